//! External resources that the stack depends on (`manage = false`). They are read and compared with the section. They are never
//! written, labeled, waited for or deleted.

use serde_json::Value;

use crate::observe::fingerprint;
use crate::planner::Planner;
use crate::{ExternalRead, Mode, Note, observe::diff};
use kinds::comparison::FingerprintInput;
use kinds::gke::{self, node_pool};
use kinds::kind::Compare;
use kinds::kubernetes::manifest::pod_specs;
use kinds::pod::gpus;
use kinds::scope::POOL_LABEL;
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic};
use model::resource::{FieldChange, Identity, ObjectId, Resource, Role, Seen};

impl Planner<'_> {
    /// Looks up all external resources that the stack needs in the live state, and compares them.
    pub(crate) fn read_external(&mut self) -> Vec<ExternalRead> {
        let inputs = self.observed.inputs;
        let mut reads = Vec::new();
        let mut missing: Vec<&Resource> = Vec::new();
        for external in inputs.external.iter().filter(|external| external.role == Role::Needed) {
            let resource = &external.resource;
            let Some(live) = self.find_live(resource) else {
                if inputs.offline {
                    reads.push(self.external_read(resource, None, None));
                } else if inputs.mode == Mode::Apply && self.is_certainly_absent(&resource.identity) {
                    missing.push(resource);
                }
                continue;
            };
            let live = self.with_size(resource, live);
            let differences = self.differences(resource, &live);
            let paths = relied_on(&resource.identity);
            let values =
                paths.iter().map(|path| (path.to_string(), path.find(&live).unwrap_or(&Value::Null)));
            let fingerprint_input = FingerprintInput::of(values);
            let found = self.found(&resource.identity, &live);
            reads.push(self.external_read(
                resource,
                Some(found),
                Some(fingerprint(&live, &fingerprint_input)),
            ));
            if inputs.mode == Mode::Apply {
                self.check_usable(resource, &live);
                for change in differences {
                    self.notes.push(difference(resource, &change, self.location(resource, &change.path)));
                }
            }
        }
        // One cause for all that a section lacks; what runs comes last and stands for the rest.
        for (index, resource) in missing.iter().enumerate() {
            if !missing[index + 1..].iter().any(|later| later.origin == resource.origin) {
                self.problems.push(self.not_there(resource));
            }
        }
        if inputs.mode == Mode::Apply {
            self.check_zones();
            self.check_pods_fit();
        }
        reads
    }

    /// Returns the live state of an external resource. The operator's Deployment is found under any name.
    fn find_live(&self, resource: &Resource) -> Option<Value> {
        let world = self.observed.inputs.world;
        if let Some(live) = world.find(&resource.identity) {
            return Some(live.clone());
        }
        // A Helm release may have another name.
        let Identity::Object(desired) = &resource.identity else { return None };
        let operator = resource.address.section() == kinds::scope::DASK_OPERATOR;
        if !operator || desired.gvk.kind != "Deployment" {
            return None;
        }
        let same = |object: &ObjectId| object.gvk == desired.gvk && object.namespace == desired.namespace;
        let mut objects = world.objects.live()?.iter();
        let found = objects.find(|(object, live)| same(object) && kinds::dask::operator::is_operator(live));
        found.map(|(_, live)| live.clone())
    }

    /// Returns true if a resource that was not found is certainly absent. Otherwise its parent may be missing or unreadable,
    /// which has its own message.
    fn is_certainly_absent(&self, identity: &Identity) -> bool {
        let world = self.observed.inputs.world;
        let inside =
            |cluster: &Seen<Value>| cluster.live().is_some() || self.observed.inputs.target.gke.is_none();
        let ours = self
            .observed
            .inputs
            .desired
            .iter()
            .any(|resource| matches!(resource.identity, Identity::Cluster(_)));
        match identity {
            Identity::Cluster(_) => world.cluster == Seen::Absent,
            Identity::NodePool { .. } => world.cluster.live().is_some() || ours,
            Identity::Object(_) => match &world.objects {
                Seen::Live(_) => true,
                Seen::Absent => inside(&world.cluster) || ours,
                Seen::Unreadable(_) => false,
            },
            Identity::Check(_) => false,
        }
    }

    fn external_read(
        &self,
        resource: &Resource,
        found: Option<String>,
        fingerprint: Option<String>,
    ) -> ExternalRead {
        let Resource { address, identity, kind, origin, .. } = resource;
        let location = self.observed.inputs.sources.locate(origin).map(|location| location.to_string());
        let (address, identity, kind) = (address.clone(), identity.clone(), *kind);
        ExternalRead { address, identity, kind, location, found, fingerprint }
    }

    fn not_there(&self, resource: &Resource) -> Diagnostic {
        let Resource { identity, origin, .. } = resource;
        let what = format!("{identity} does not exist, but `[{origin}]` says that it is managed elsewhere");
        let sources = self.observed.inputs.sources;
        let span = sources.span(&origin.key("name")).or_else(|| sources.span(origin));
        let elsewhere = match identity {
            Identity::Object(ObjectId { namespace: Some(_), .. })
                if origin.to_string() == "dask_operator" =>
            {
                "; if it runs in another namespace, set `namespace = \"…\"`"
            }
            _ => "",
        };
        let help = format!(
            "have its owner create it first, fix the name, or remove `manage = false` so that the stack \
             creates it{elsewhere}"
        );
        let problem = Diagnostic::error(Code::NotThere, what).at(span, "relied on here");
        problem.about(resource.address.clone(), "").help(help)
    }

    /// Returns the fields whose live values differ from the section.
    fn differences(&self, resource: &Resource, live: &Value) -> Vec<FieldChange> {
        let mut changes = match kinds::of(resource.kind).compare {
            Compare::Gke(message, rows) => {
                gke::api::compared(message, rows, &resource.body, live, None).changes
            }
            Compare::Kubernetes(effect) => {
                let schema = self.observed.crd_schemas.schema(resource);
                let manager = self.observed.inputs.owner.field_manager();
                diff::compare(&resource.body, live, &manager, schema.as_ref(), effect).changes
            }
            Compare::Action => Vec::new(),
        };
        // Fields that the section does not set are not compared, and not released if an earlier apply of the stack set
        // them.
        let name = FieldPath::keys(["metadata", "name"]);
        let said = |change: &FieldChange| change.after.as_ref().is_some_and(|after| !after.is_null());
        let gpus = FieldPath::keys(["config", "accelerators"]);
        let depends_on = |change: &FieldChange| {
            let machine = resource.origin.key("machine_type");
            gpus.contains(&change.path) && machine.contains(&resource.origin_of(&change.path))
        };
        // Built-in GPUs differ when the machine type does, which is told by itself.
        changes.retain(|change| said(change) && change.path != name && !depends_on(change));
        changes
    }

    fn location(&self, resource: &Resource, path: &FieldPath) -> Option<String> {
        self.observed.inputs.sources.locate(&resource.origin_of(path)).map(|location| location.to_string())
    }

    /// Reports resources that are being created or deleted, or are broken: the stack cannot depend on them.
    fn check_usable(&mut self, resource: &Resource, live: &Value) {
        let why = match (&resource.identity, live["status"].as_str()) {
            (_, _) if !live["metadata"]["deletionTimestamp"].is_null() => "it is being deleted".to_owned(),
            (Identity::Cluster(_) | Identity::NodePool { .. }, Some(status)) => match status {
                "PROVISIONING" | "STOPPING" | "ERROR" => {
                    format!("its status is {status}{}", node_pool::conditions(live))
                }
                "RUNNING_WITH_ERROR" | "DEGRADED" => {
                    let message = format!("its status is {status}{}", node_pool::conditions(live));
                    self.warn(Code::NotUsable, resource, message);
                    return;
                }
                _ => return,
            },
            (Identity::Object(object), _) => {
                if let Some(short) = missing_for_readiness(object, live) {
                    self.warn(
                        Code::NotUsable,
                        resource,
                        format!("managed elsewhere, and not ready: {short}"),
                    );
                }
                return;
            }
            _ => return,
        };
        let what = format!("{} cannot be used: {why}", resource.identity);
        let help = "the stack does not wait for what is managed elsewhere: plan again when it is running";
        let problem =
            Diagnostic::error(Code::NotUsable, what).at_value(resource.origin.clone(), "relied on here");
        self.problems.push(problem.about(resource.address.clone(), "").help(help));
    }

    fn warn(&mut self, code: Code, resource: &Resource, message: String) {
        self.notes.push(Note::new(code, &resource.address, message));
    }

    /// Returns a short summary of what was found.
    fn found(&self, identity: &Identity, live: &Value) -> String {
        match identity {
            Identity::Cluster(_) => gke::cluster::summary(live),
            Identity::NodePool { pool, .. } => {
                node_pool::summary(live, self.observed.inputs.world.sizes.get(pool).copied())
            }
            Identity::Object(object) if object.gvk == kinds::dask::api::cluster() => {
                kinds::dask::cluster::summary(live)
            }
            Identity::Object(object) => {
                let image = &live["spec"]["template"]["spec"]["containers"][0]["image"];
                let ready = missing_for_readiness(object, live).unwrap_or_else(|| "ready".to_owned());
                match (object.gvk.kind.as_str(), image.as_str()) {
                    ("Deployment", Some(image)) => {
                        format!("{}, {ready}", image.rsplit('/').next().unwrap_or(image))
                    }
                    _ => ready,
                }
            }
            Identity::Check(_) => String::new(),
        }
    }

    /// Refuses a number of nodes of a new pool that the zones of its external cluster do not divide evenly.
    fn check_zones(&mut self) {
        let inputs = self.observed.inputs;
        let is_external = |identity: &Identity| {
            inputs.external.iter().any(|external| external.resource.identity == *identity)
        };
        let Some(live) =
            inputs.world.cluster.live().filter(|_| {
                inputs.target.gke.clone().is_some_and(|name| is_external(&Identity::Cluster(name)))
            })
        else {
            return;
        };
        let zones = live["locations"].as_array().map_or(0, Vec::len) as u64;
        for resource in inputs.desired.iter().filter(|resource| {
            // A live one has zones of its own.
            let new = inputs.world.find(&resource.identity).is_none();
            matches!(resource.identity, Identity::NodePool { .. })
                && new
                && resource.body["locations"].is_null()
        }) {
            let Some(nodes) = resource.body["nodeCount"].as_u64() else { continue };
            if zones == 0 || nodes.is_multiple_of(zones) {
                continue;
            }
            let what = format!(
                "{nodes} nodes are not spread evenly over the {zones} zones of {}",
                inputs.target.gke.as_ref().map_or("", |name| &name.cluster)
            );
            let number = resource.origin_of(&FieldPath::keys(["nodeCount"]));
            let names: Vec<String> =
                live["locations"].as_array().into_iter().flatten().map(ToString::to_string).collect();
            let help = format!(
                "set the actual zones in `[cluster]`, `zones = [{}]`, or give the pool its own",
                names.join(", ")
            );
            self.problems.push(
                Diagnostic::error(Code::OthersZones, what).at_value(number, "all zones together").help(help),
            );
        }
    }

    /// Checks that Pods that must run on an external pool find the GPUs that they request there, and tolerate its taints.
    fn check_pods_fit(&mut self) {
        let inputs = self.observed.inputs;
        for resource in inputs.desired.iter() {
            let mut pods = Vec::new();
            pod_specs(&resource.body, &FieldPath::root(), &mut pods);
            for (path, pod) in pods {
                let Some(pool) = pod["nodeSelector"][POOL_LABEL].as_str() else { continue };
                let of_pool = |external: &&model::resource::External| matches!(&external.resource.identity, Identity::NodePool { pool: name, .. } if name == pool);
                let Some(external) = inputs.external.iter().find(of_pool) else { continue };
                let Some(live) = inputs.world.pools.get(pool) else { continue };
                self.check_gpus(resource, &path, pod, &external.resource, live);
                self.check_taints(resource, pod, &external.resource, live);
            }
        }
    }

    fn check_gpus(
        &mut self,
        resource: &Resource,
        path: &FieldPath,
        pod: &Value,
        pool: &Resource,
        live: &Value,
    ) {
        let asked = gpus(pod);
        let there = node_pool::live_gpus(live);
        if asked <= there {
            return;
        }
        let has = if there == 0 { "none".to_owned() } else { there.to_string() };
        let what = format!(
            "a Pod of {} requests {asked} GPUs, a node of {} has {has}",
            resource.address, pool.identity
        )
        .replace(" 1 GPUs", " 1 GPU");
        let requested_at = resource.origin_of(&path.key("containers").index(0).key("resources"));
        let problem = Diagnostic::error(Code::NoGpuThere, what).at_value(requested_at, "requested here");
        let problem = problem.at_value(pool.origin.clone(), format!("{has} per live node"));
        self.problems
            .push(problem.help("request fewer GPUs or name another pool; this one is managed elsewhere"));
    }

    fn check_taints(&mut self, resource: &Resource, pod: &Value, pool: &Resource, live: &Value) {
        let tolerations: Vec<&Value> = pod["tolerations"].as_array().into_iter().flatten().collect();
        for taint in live["config"]["taints"].as_array().into_iter().flatten() {
            let effect = match taint["effect"].as_str() {
                Some("NO_SCHEDULE") => "NoSchedule",
                Some("NO_EXECUTE") => "NoExecute",
                _ => continue,
            };
            let tolerated = tolerations.iter().any(|toleration| tolerates(toleration, taint, effect));
            if tolerated {
                continue;
            }
            let (key, value) =
                (taint["key"].as_str().unwrap_or_default(), taint["value"].as_str().unwrap_or_default());
            let message = format!(
                "{} has the taint {key}={value}:{effect}, which its section does not declare, so the Pods of \
                 {} would not be scheduled there: set `taints = [{{ key = \"{key}\", value = \"{value}\", \
                 effect = \"{effect}\" }}]`",
                pool.identity, resource.address
            );
            self.warn(Code::OthersTaint, pool, message);
        }
    }
}

/// Returns in a few words what a workload or CRD lacks to be ready.
fn missing_for_readiness(object: &ObjectId, live: &Value) -> Option<String> {
    let status = &live["status"];
    let (ready, desired) = match object.gvk.kind.as_str() {
        "Deployment" => (&status["availableReplicas"], live["spec"]["replicas"].as_u64().unwrap_or(1)),
        "DaemonSet" => (&status["numberReady"], kinds::json::count(&status["desiredNumberScheduled"])),
        "CustomResourceDefinition" => {
            let established = kinds::kubernetes::object::condition(live, "Established")
                .is_some_and(|said| said["status"] == "True");
            return (!established).then(|| "not established".to_owned());
        }
        "DaskCluster" => {
            return match live["status"]["phase"].as_str() {
                None => Some("no Dask operator has processed it".to_owned()),
                Some("Error") => Some("the operator gave it phase Error".to_owned()),
                Some(_) => None,
            };
        }
        _ => return None,
    };
    let ready = kinds::json::count(ready);
    (ready < desired || desired == 0).then(|| format!("{ready} of {desired} Pods ready"))
}

/// Returns the live fields of external resources that the plan depends on.
fn relied_on(identity: &Identity) -> Vec<FieldPath> {
    let fields: &[&str] = match identity {
        Identity::Cluster(_) => &["locations", "releaseChannel.channel"],
        Identity::NodePool { .. } => &["config.machineType", "config.accelerators", "config.taints"],
        Identity::Object(_) | Identity::Check(_) => &[],
    };
    fields.iter().map(|field| field.parse().unwrap_or_default()).collect()
}

/// `` `machine_type` is "n1-standard-2" here (stack.toml:14:16) and "n1-standard-4" live ``.
fn difference(resource: &Resource, change: &FieldChange, location: Option<String>) -> Note {
    let path = &change.path;
    let (before, after) = change.shown();
    let said = after.map_or_else(|| "nothing".to_owned(), |said| said.to_string());
    let live = before.filter(|live| !live.is_null());
    let live = live.map_or_else(|| "not set".to_owned(), |live| live.to_string());
    let location = location.map(|location| format!(" ({location})")).unwrap_or_default();
    let message = format!(
        "`{}` is {said} in the stack file{location} and {live} live; it is managed elsewhere, so nothing is changed",
        key(resource, path)
    );
    Note::new(Code::OthersDiffer, &resource.address, message)
}

/// Returns the key of the section that a field of the body comes from, with the path below it: `labels.team`.
fn key(resource: &Resource, path: &FieldPath) -> String {
    let provenance = resource.provenance.iter().filter(|(field, _)| field.contains(path));
    let Some((field, origin)) = provenance.max_by_key(|(field, _)| field.segments().len()) else {
        return path.to_string();
    };
    let inside = origin.segments().iter().skip(resource.origin.segments().len());
    let below = path.segments().iter().skip(field.segments().len());
    let channel = Segment::Key("channel".to_owned());
    let below = below.filter(|segment| matches!(segment, Segment::Key(_)) && **segment != channel);
    inside.chain(below).cloned().collect::<FieldPath>().to_string()
}

fn tolerates(toleration: &Value, taint: &Value, effect: &str) -> bool {
    let key = toleration["key"].as_str().unwrap_or_default();
    let exists = toleration["operator"] == "Exists";
    let same_key = (key.is_empty() && exists) || taint["key"] == key;
    let value = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let same_value = exists || value(&toleration["value"]) == value(&taint["value"]);
    let same_effect = toleration["effect"].as_str().is_none_or(|given| given == effect);
    same_key && same_value && same_effect
}
