//! Dask clusters, as the operator runs them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{self, CLUSTER_LABEL, COMPONENT_LABEL, GROUP_LABEL};
use super::group::{self, DaskGroup, Joined};
use super::handled::{self, is_handled};
use super::idle::IdleTimeout;
use super::pods::{self, Tally, Wants, Workers, with_pods};
use super::registered::{self, Registered};
use super::replicas::{Replicas, Writer};
use super::service::DaskService;
use super::{autoscaler, scale, workers};
use crate::address::{Address, FieldPath};
use crate::kinds::about::{image, with_gpus, workers};
use crate::kinds::env::Needed;
use crate::kinds::json::text;
use crate::kinds::kind::{ChangeContext, Compare, Found, Held, Kind, Part, Room, Unasked, itself};
use crate::kinds::kubernetes::object::{gvk, labelled, unmarked};
use crate::kinds::kubernetes::pod_state::PodState;
use crate::kinds::kubernetes::pods::{broken, pending};
use crate::kinds::kubernetes::requests::{object_program, scale_call};
use crate::kinds::kubernetes::workload::deployment_ready;
use crate::kinds::pod;
use crate::kinds::scope::Scope;
use crate::kinds::section::{
    Inner, Labels, Lifecycle, Live, Manage, Naming, PodKeys, Pods, Role, Section, environment_of,
    object_labels,
};
use crate::kinds::status::StatusLine;
use crate::resource::{
    Action, Api, Await, Effect, Facts, Gvk, Identity, KindId, Life, ObjectId, Query, Readiness, Resource,
    Step, Until,
};

/// Seconds: images of 10 GB are pulled on every node, and GPU nodes may have to be made first.
const DEADLINE: u32 = 1800;

/// Dask clusters.
pub const KIND: Kind = Kind {
    rank: 60,
    held: Held::ByOperator,
    room: Room::Nodes,
    // Whose number of workers counts, what others attached, and what the operator made.
    beside: || {
        vec![
            api::group(),
            api::autoscaler(),
            gvk("apps", "v1", "Deployment", "deployments"),
            gvk("", "v1", "Service", "services"),
        ]
    },
    compare: Compare::Kubernetes(effect),
    program: |context| workers::program(context, KindId::DaskCluster, program(context)),
    amiss: workers::amiss,
    chosen: workers::chosen,
    queries,
    readiness,
    status_line,
    about,
    pods: pods::of_cluster,
    endpoint: api::endpoint,
    scaled: scale::scaled,
    address: |object| Address::of("dask_cluster", &object.name),
    ..Kind::BARE
};

/// `scheduler with 1 GPU, 2 workers with 1 GPU each`, and the images.
fn about(resource: &Resource) -> Vec<String> {
    let spec = &resource.body["spec"];
    let scheduler = &spec["scheduler"]["spec"];
    let (one, other) = (image(scheduler), image(&spec["worker"]["spec"]));
    let images = if one == other || other.is_empty() { one } else { format!("{one} and {other}") };
    let workers = workers(&spec["worker"], &resource.create_only["spec"]["worker"]);
    vec![format!("scheduler{}", with_gpus(scheduler)), workers, images]
}

/// A Dask cluster run by the operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct DaskCluster {
    /// The live name, at most 53 characters; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image of scheduler and workers; clients should use the same.
    pub image: String,
    /// The scheduler.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// The default group of workers.
    #[serde(default)]
    pub worker: Worker,
    /// More groups of workers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub group: BTreeMap<String, DaskGroup>,
    /// Seconds without work after which the operator deletes the whole cluster; 0, the default, is never. It is
    /// recreated only when its section changes or with `--replace`; with `{ seconds = 3600, remake = true }` the next
    /// apply recreates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<IdleTimeout>,
    /// How the scheduler is exposed: `"ClusterIP"`, the default, `"NodePort"`, `"LoadBalancer"` (internal to the VPC
    /// network), or a table. `dask-infra connect` needs none of them. A Dask scheduler runs anyone's code.
    #[serde(default)]
    pub service: DaskService,
    /// Labels; the operator copies them to everything it creates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations; the operator copies them to everything it creates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// `false`: it exists and is managed elsewhere. It is read, compared with this section and relied on, never
    /// written or deleted; groups of this stack may join it. `image` is then optional. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

/// The scheduler of a Dask cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Scheduler {
    /// What each pod gets and where it runs.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// Arguments of the image's entry point. Default `dask scheduler`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

/// The default group of workers of a Dask cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Worker {
    /// How many: a number; `{ min = 0, max = 8 }` for the operator's autoscaler; `{ start = 2 }` for the initial
    /// number, which then belongs to notebooks. Default 1.
    #[serde(default)]
    pub replicas: Replicas,
    /// What each pod gets and where it runs.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// Dask resources of each worker, which tasks can request: `{ GPU = 1 }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, f64>,
    /// Arguments of the image's entry point. Default `dask cuda worker --name $(DASK_WORKER_NAME)` with GPUs,
    /// `dask worker --name $(DASK_WORKER_NAME)` without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

impl Scheduler {
    pub(super) fn wants<'a>(&'a self, image: &'a str) -> Wants<'a> {
        Wants { image, args: &self.args, keys: &self.keys, resources: None }
    }

    /// Its pod; `image` is where the image stands, and the image.
    pub(super) fn pods<'a>(&'a self, path: FieldPath, image: (FieldPath, &'a str)) -> Pods<'a> {
        let (image_path, image) = image;
        Pods {
            path,
            role: Role::Scheduler,
            replicas: 1,
            image,
            image_path,
            args: &self.args,
            keys: &self.keys,
        }
    }
}

impl Worker {
    pub(super) fn wants<'a>(&'a self, image: &'a str) -> Wants<'a> {
        Wants { image, args: &self.args, keys: &self.keys, resources: Some(&self.resources) }
    }

    /// Its pods; `image` is where the image stands, and the image.
    pub(super) fn pods<'a>(
        &'a self,
        path: FieldPath,
        image: (FieldPath, &'a str),
        replicas: u32,
    ) -> Pods<'a> {
        let (image_path, image) = image;
        Pods { path, role: Role::Worker, replicas, image, image_path, args: &self.args, keys: &self.keys }
    }
}

/// What the operator does with an edit: replicas and idle timeout are followed, the rest is read once.
/// Source: `operator/controller/controller.py` of dask-kubernetes 2026.3.0.
fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    let at = |keys: &[&str]| FieldPath::keys(keys.iter().copied()).contains(path);
    if at(&["spec", "worker", "replicas"]) || at(&["spec", "idleTimeout"]) {
        return (Effect::InPlace, None);
    }
    if at(&["metadata"]) {
        return (Effect::InPlace, Some("what the operator created keeps the old value"));
    }
    (Effect::Replace, Some("the operator reads it only when it creates the cluster"))
}

/// What `[dask_cluster.KEY]` becomes: the cluster, its groups, its autoscaler. What others own of it is not among them.
pub fn lower(key: &str, section: &DaskCluster, scope: &Scope) -> Vec<Resource> {
    let all = all(key, section, scope).into_iter();
    all.filter(|(_, managed)| *managed).map(|(resource, _)| resource).collect()
}

/// What `manage = false` in `[dask_cluster.KEY]` or in its groups says of things that others own. A cluster whose
/// scheduler and workers are not described is looked up, and its scheduler's image compared where one is given; the
/// Service is compared when it is said.
pub fn read(key: &str, section: &DaskCluster, scope: &Scope) -> Vec<Resource> {
    let external = all(key, section, scope).into_iter().filter(|(_, managed)| !managed);
    let plain = section.scheduler == Scheduler::default() && section.worker == Worker::default();
    let read = external.map(|(resource, _)| {
        let mut resource = unmarked(resource);
        resource.create_only = Value::Null;
        resource.life = Life::Kept;
        if resource.kind != KindId::DaskCluster {
            return resource;
        }
        if plain || section.image.is_empty() {
            let container = (!section.image.is_empty()).then(|| json!([{ "image": section.image }]));
            let idle = resource.body["spec"].get("idleTimeout").cloned();
            resource.body["spec"] = match container {
                Some(containers) => json!({ "scheduler": { "spec": { "containers": containers } } }),
                None => json!({}),
            };
            if let Some(idle) = idle {
                resource.body["spec"]["idleTimeout"] = idle;
            }
        } else if let Some(scheduler) =
            resource.body.pointer_mut("/spec/scheduler").and_then(Value::as_object_mut)
        {
            // How a load balancer is kept inside is its owner's to say.
            scheduler.remove("metadata");
            if section.service == DaskService::default() {
                scheduler.remove("service");
            }
        }
        resource
    });
    read.collect()
}

/// Everything of a section, and whether the stack makes it.
fn all(key: &str, section: &DaskCluster, scope: &Scope) -> Vec<(Resource, bool)> {
    let cluster = lower_cluster(key, section, scope);
    let joined = Joined {
        address: &cluster.address,
        origin: &cluster.origin,
        name: section.live_name(key),
        namespace: section.namespace(),
        image: &section.image,
    };
    let groups = section
        .group
        .iter()
        .map(|(key, group)| (group::lower(&joined, key, group, scope), group.manage.is_managed()));
    let mut resources: Vec<(Resource, bool)> = groups.collect();
    if let Writer::Autoscaler { min, max } = section.worker.replicas.writer() {
        let autoscaler = autoscaler::lower(&cluster, min, max, scope);
        resources.extend(autoscaler.map(|autoscaler| (autoscaler, section.manage.is_managed())));
    }
    resources.insert(0, (cluster, section.manage.is_managed()));
    resources
}

/// What is known of a live cluster, in a few words.
pub fn summary(live: &Value) -> String {
    let phase = match text(&live["status"]["phase"]) {
        "" => "no phase yet",
        phase => phase,
    };
    let image = text(&live["spec"]["scheduler"]["spec"]["containers"][0]["image"]);
    let image = if image.is_empty() {
        String::new()
    } else {
        format!("{}, ", image.rsplit('/').next().unwrap_or(image))
    };
    format!("{image}{phase}")
}

impl Section for DaskCluster {
    fn is_managed(&self) -> bool {
        self.manage.is_managed()
    }

    fn depends_on(&self) -> &[String] {
        &self.lifecycle.depends_on
    }

    fn live<'a>(&'a self, key: &'a str) -> Option<Live<'a>> {
        Some(Live::new(self.name.as_deref(), key, Naming::Dask).within(self.namespace()))
    }

    fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    fn labels(&self) -> Vec<Labels<'_>> {
        object_labels(&self.labels, &self.annotations)
    }

    fn pods(&self, path: &FieldPath) -> Vec<Pods<'_>> {
        let Self { scheduler, worker, group, image, .. } = self;
        let image = (path.key("image"), image.as_str());
        let mut pods = Vec::new();
        // Of a cluster of others the stack makes groups only.
        if self.is_managed() {
            pods.push(scheduler.pods(path.key("scheduler"), image.clone()));
            pods.push(worker.pods(path.key("worker"), image.clone(), worker.replicas.most()));
        }
        pods.extend(group.iter().map(|(key, group)| group.pods_of(path.key("group").key(key), &image)));
        pods
    }

    fn environment(&self, path: &FieldPath) -> Vec<Needed<'_>> {
        let external = self.group.iter().filter(|(_, group)| !group.manage.is_managed());
        let external: Vec<FieldPath> = external.map(|(key, _)| path.key("group").key(key)).collect();
        let pods = self.pods(path).into_iter().filter(|pods| !external.contains(&pods.path));
        environment_of(pods, self.given_namespace())
    }

    fn inner(&self) -> Vec<Inner<'_>> {
        self.group.iter().map(|(key, section)| Inner { field: "group", key, section }).collect()
    }
}

impl DaskCluster {
    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }
}

fn lower_cluster(key: &str, section: &DaskCluster, scope: &Scope) -> Resource {
    let (name, namespace) = (section.live_name(key), section.namespace());
    let mut metadata = json!({ "name": name, "namespace": namespace, "labels": scope.labels() });
    for (label, value) in &section.labels {
        metadata["labels"][label] = json!(value);
    }
    if !section.annotations.is_empty() {
        metadata["annotations"] = json!(section.annotations);
    }
    let wants = (section.scheduler.wants(&section.image), section.worker.wants(&section.image));
    let (replicas, create_only) = section.worker.replicas.split();
    let mut spec = json!({
        "scheduler": { "spec": pods::scheduler(&wants.0, scope) },
        "worker": { "spec": pods::worker(&wants.1, scope) },
    });
    if let Some(replicas) = replicas {
        spec["worker"]["replicas"] = json!(replicas);
    }
    if let Some(idle) = section.idle_timeout {
        spec["idleTimeout"] = json!(idle.seconds());
    }
    let mut follows = pods::follows(&[&wants.0, &wants.1], namespace, scope);
    follows.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let api = api::cluster();
    let origin = FieldPath::keys(["dask_cluster", key]);
    let mut provenance = provenance(&origin);
    let place = FieldPath::keys(["spec", "scheduler", "service"]);
    spec["scheduler"]["service"] =
        section.service.body(name, &place, &origin.key("service"), &mut provenance);
    let annotations = section.service.annotations(scope.target.gke.is_some());
    if !annotations.is_empty() {
        spec["scheduler"]["metadata"] = json!({ "annotations": annotations });
    }
    for (part, given) in [("scheduler", &section.scheduler.keys.pod), ("worker", &section.worker.keys.pod)] {
        let place = FieldPath::keys(["spec", part, "spec"]);
        let from = origin.key(part).key("pod");
        pod::merge_pod(&mut spec[part]["spec"], given.as_ref(), &place, &from, &mut provenance);
    }
    Resource {
        address: Address::of("dask_cluster", key),
        identity: Identity::Object(ObjectId {
            gvk: api.clone(),
            namespace: Some(namespace.into()),
            name: name.into(),
        }),
        kind: KindId::DaskCluster,
        body: json!({
            "apiVersion": api.api_version(), "kind": api.kind, "metadata": metadata, "spec": spec,
        }),
        create_only,
        provenance,
        follows,
        origin,
        protect: section.lifecycle.protect,
        life: section.idle_timeout.map_or(Life::Kept, IdleTimeout::life),
    }
}

fn provenance(origin: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
    let mut provenance = vec![
        (FieldPath::keys(["metadata", "labels"]), origin.key("labels")),
        (FieldPath::keys(["metadata", "annotations"]), origin.key("annotations")),
        (FieldPath::keys(["spec", "idleTimeout"]), origin.key("idle_timeout")),
        (FieldPath::keys(["spec", "scheduler", "service"]), origin.key("service")),
        (FieldPath::keys(["spec", "scheduler", "metadata"]), origin.key("service")),
        (FieldPath::keys(["spec", "worker", "replicas"]), origin.key("worker").key("replicas")),
    ];
    for part in ["scheduler", "worker"] {
        let pod = FieldPath::keys(["spec", part, "spec"]);
        provenance.extend(pods::provenance(&pod, &origin.key(part), &origin.key("image")));
    }
    provenance
}

/// What was changed on the default group is written there: the cluster has the right number already, and the operator
/// acts only when that changes.
fn program(context: &ChangeContext) -> Vec<Step> {
    let replicas = context.body()["spec"]["worker"]["replicas"].as_u64();
    let facts = Facts::Workers { replicas, cluster: None };
    let mut steps = object_program(context, KindId::DaskCluster, facts, DEADLINE);
    let path = api::replicas_path();
    let live = context.live.and_then(|live| path.find(live));
    let scaled = context.fields.iter().find(|field| {
        field.path == path && field.drift.is_some() && field.after.is_some() && field.after.as_ref() == live
    });
    if let (Action::Update, Some(field), Some(cluster)) = (context.action, scaled, context.object()) {
        let replicas = field.after.clone().unwrap_or_default();
        let call = Step::Call(scale_call(&api::default_group(cluster), context.owner, replicas));
        // Nothing else of the cluster differs: it is not written.
        if context.fields.len() == 1 {
            steps.retain(|step| !matches!(step, Step::Call(_)));
        }
        let place = steps.iter().position(|step| matches!(step, Step::Await(_))).unwrap_or(steps.len());
        steps.insert(place, call);
    }
    steps
}

/// The cluster and everything that the operator makes for it, and what the scheduler counts.
fn queries(wait: &Await) -> Vec<(Part, Query)> {
    let Identity::Object(cluster) = &wait.identity else { return Vec::new() };
    let namespace = cluster.namespace.as_deref();
    let one = |gvk: Gvk, suffix: &str| Query {
        api: Api::Kubernetes,
        path: format!("{}/{}-{suffix}", gvk.collection(namespace), cluster.name),
    };
    let deployments = gvk("apps", "v1", "Deployment", "deployments");
    let mut queries = itself(wait);
    if wait.until == Until::Handled {
        return queries;
    }
    queries.push((Part::Scheduler, one(deployments.clone(), "scheduler")));
    queries.push((Part::Service, one(gvk("", "v1", "Service", "services"), "scheduler")));
    queries.push((Part::Group, one(api::group(), "default")));
    let workers = [(CLUSTER_LABEL, cluster.name.as_str()), (COMPONENT_LABEL, "worker")];
    queries.push((Part::Workers, labelled(&deployments, namespace, workers)));
    queries.push((Part::Pods, registered::pods(namespace, &cluster.name)));
    if wait.until.is_ready() {
        queries.push((Part::Counts, registered::counts(namespace, &cluster.name)));
    }
    queries
}

/// What is around a cluster.
struct Related<'a> {
    cluster: &'a Value,
    scheduler: &'a Value,
    service: &'a Value,
    group: &'a Value,
    workers: &'a Value,
    pods: &'a Value,
    registered: Option<Registered>,
}

impl<'a> Related<'a> {
    fn of(found: &Found<'a>) -> Result<Self, Unasked> {
        let pods = found.get(Part::Pods)?;
        Ok(Self {
            cluster: found.itself(),
            scheduler: found.get(Part::Scheduler)?,
            service: found.get(Part::Service)?,
            group: found.get(Part::Group)?,
            workers: found.get(Part::Workers)?,
            pods,
            registered: found.find(Part::Counts).map(|counts| Registered::of(pods, counts)),
        })
    }
}

fn readiness(wait: &Await, found: &Found) -> Result<Readiness, Unasked> {
    match wait.until {
        Until::Handled => Ok(handled::readiness(found.itself())),
        Until::Ready | Until::Still | Until::Gone | Until::Idle => Ok(ready(wait, Related::of(found)?)),
    }
}

/// The phase alone is not to be trusted: `Running` says that there is a Service, and a healthy cluster may
/// stay `Pending` for good. So scheduler, Service, default group and workers are looked at themselves.
fn ready(wait: &Await, related: Related<'_>) -> Readiness {
    let Related { cluster, scheduler, service, group, workers, pods, registered } = related;
    let phase = text(&cluster["status"]["phase"]);
    if !cluster.is_object() {
        return Readiness::Progressing("not created yet".into());
    }
    if phase == "Error" {
        return Readiness::Failed("the operator gave it phase Error: its name is not valid".into());
    }
    let handled = is_handled(cluster);
    if phase.is_empty() || handled == Some(false) || is_handled(group) == Some(false) {
        return pods::unseen(wait, group);
    }
    if let Some(reason) = PodState::each(pods).find_map(broken) {
        return Readiness::Failed(reason);
    }
    match deployment_ready(scheduler) {
        Readiness::Ready | Readiness::Impaired(_) => {}
        // The operator's Deployments give up after ten minutes, and come up all the same once there is a node.
        Readiness::Progressing(_) | Readiness::Stalled(_) | Readiness::Failed(_) => {
            return Readiness::Progressing(with_pods("scheduler not ready", pods, "scheduler"));
        }
    }
    if !service.is_object() {
        return Readiness::Progressing("the scheduler has no Service yet".into());
    }
    let balanced = service["spec"]["type"] == "LoadBalancer";
    if balanced && service["status"]["loadBalancer"]["ingress"].as_array().is_none_or(Vec::is_empty) {
        return Readiness::Progressing("the load balancer has no address yet".into());
    }
    if !group.is_object() {
        return Readiness::Progressing("the default worker group does not exist yet".into());
    }
    let name = format!("{}-default", text(&cluster["metadata"]["name"]));
    let settled = handled == Some(true);
    Workers { wait, group, name: &name, workers, pods, registered, settled }.ready()
}

/// For `status`: the phase that the operator gave, and how many workers there are.
fn status_line(wait: &Await, found: &Found) -> Result<StatusLine, Unasked> {
    let Related { cluster, scheduler, service, group, workers, pods, registered } = Related::of(found)?;
    let phase = match text(&cluster["status"]["phase"]) {
        "" => "no phase yet",
        phase => phase,
    };
    let name = format!("{}-default", text(&cluster["metadata"]["name"]));
    let own = |worker: &&Value| worker["metadata"]["labels"][GROUP_LABEL] == *name;
    let workers: Vec<&Value> = workers["items"].as_array().into_iter().flatten().filter(own).collect();
    let tally = Tally::of(wait, group, &workers, pods, registered);
    let scheduler = deployment_ready(scheduler) == Readiness::Ready;
    let down = if scheduler { "" } else { "scheduler not ready; " };
    let ingress = &service["status"]["loadBalancer"]["ingress"][0];
    let address = ["ip", "hostname"].into_iter().find_map(|key| ingress[key].as_str());
    let reached = address.map(|address| format!("; at {address}")).unwrap_or_default();
    let mut facts = vec![
        ("address", json!(address)),
        ("phase", cluster["status"]["phase"].clone()),
        ("scheduler_ready", json!(scheduler)),
    ];
    facts.extend(tally.facts());
    Ok(StatusLine {
        line: format!("{phase}; {down}{}{reached}", tally.line(scheduler)),
        facts,
        pending: pending(pods),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::dask::api::UNSEEN;

    fn deployment(name: &str, ready: u64) -> Value {
        json!({
            "metadata": { "name": name, "generation": 1, "labels": { "dask.org/workergroup-name": "c-default" } },
            "spec": { "replicas": 1 },
            "status": {
                "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready,
                "availableReplicas": ready, "conditions": [{ "type": "Available", "status": "True" }],
            },
        })
    }

    #[test]
    fn only_what_the_operator_has_handled_counts() {
        let judged = |until: Until, cluster: &Value, group: &Value, counts: &Value| {
            let identity = Identity::Object(ObjectId {
                gvk: api::cluster(),
                namespace: Some("default".into()),
                name: "c".into(),
            });
            let facts = Facts::Workers { replicas: Some(2), cluster: None };
            let wait = Await { kind: KindId::DaskCluster, identity, until, facts, deadline: 1 };
            let pod = json!({
                "metadata": { "labels": { "dask.org/component": "worker" } },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            });
            let found = [
                cluster.clone(),
                deployment("c-scheduler", 1),
                json!({ "spec": { "type": "ClusterIP" } }),
                group.clone(),
                json!({ "items": [deployment("a", 1), deployment("b", 1), deployment("c", 1)] }),
                json!({ "items": [pod, pod, pod] }),
                counts.clone(),
            ];
            let found = Found::answers(&queries(&wait), &found);
            (readiness(&wait, &found).unwrap(), status_line(&wait, &found).unwrap().line)
        };
        let cluster = |asked: u64, handled: Option<u64>| {
            let mut cluster = group(asked, handled.unwrap_or(0));
            cluster["metadata"]["name"] = json!("c");
            cluster["status"]["phase"] = json!("Running");
            if handled.is_none() {
                cluster["metadata"]["annotations"] = Value::Null;
            }
            cluster
        };
        let (three, ready) = (json!({ "workers": 3, "hosts": 3 }), Readiness::Ready);
        let waits = |text: &str| Readiness::Progressing(text.to_owned());
        // The number is the file's and the operator still works on an older one.
        let unseen = judged(Until::Ready, &cluster(2, Some(3)), &group(3, 3), &three).0;
        assert_eq!(unseen, waits(&format!("{UNSEEN}; its worker group does not request 2 yet")));
        assert_eq!(judged(Until::Still, &cluster(2, Some(3)), &group(3, 3), &three).0, waits(UNSEEN));
        assert_eq!(judged(Until::Still, &cluster(2, Some(2)), &group(3, 2), &three).0, waits(UNSEEN));
        // It was scaled since: `dask-infra scale` or a notebook.
        let (found, line) = judged(Until::Still, &cluster(2, Some(2)), &group(3, 3), &three);
        let expect = "Running; workers: 3 desired (the stack says 2), 3 created, 3 ready, all registered";
        assert_eq!((found, line.as_str()), (ready, expect));
        let (found, _) = judged(Until::Ready, &cluster(2, Some(2)), &group(3, 3), &three);
        assert!(matches!(found, Readiness::Progressing(_)), "an apply waits for its own number");
        // An operator that notes nothing.
        let (found, _) = judged(Until::Still, &cluster(2, None), &group(3, 3), &three);
        assert!(matches!(found, Readiness::Progressing(_)));

        let two = json!({ "workers": 2, "hosts": 2 });
        let (found, line) = judged(Until::Still, &cluster(2, Some(2)), &group(3, 3), &two);
        assert_eq!(found, waits("1 of 3 workers not registered with the scheduler"));
        assert!(line.ends_with("3 ready, 1 created, not registered"), "{line}");
        let (found, line) =
            judged(Until::Still, &cluster(2, Some(2)), &group(3, 3), &json!("it does not answer"));
        assert_eq!(found, Readiness::Ready);
        assert!(line.ends_with("3 ready, registered unknown (it does not answer)"), "{line}");
    }

    fn check(phase: &str, scheduler: u64, workers: &[u64], replicas: u64) -> Readiness {
        let identity = Identity::Object(ObjectId {
            gvk: api::cluster(),
            namespace: Some("default".into()),
            name: "c".into(),
        });
        let wait = Await {
            kind: KindId::DaskCluster,
            identity,
            until: Until::Ready,
            facts: Facts::Workers { replicas: Some(replicas), cluster: None },
            deadline: 1,
        };
        let workers: Vec<Value> = workers.iter().map(|ready| deployment("w", *ready)).collect();
        let found = [
            json!({ "metadata": { "name": "c" }, "status": { "phase": phase } }),
            deployment("c-scheduler", scheduler),
            json!({ "spec": { "type": "ClusterIP" } }),
            json!({ "metadata": { "name": "c-default" } }),
            json!({ "items": workers }),
            json!({ "items": [] }),
        ];
        readiness(&wait, &Found::answers(&queries(&wait), &found)).unwrap()
    }

    /// A group that asks for `asked` workers, of which the operator has noted `handled`.
    fn group(asked: u64, handled: u64) -> Value {
        let noted = json!({ "spec": { "worker": { "replicas": handled } } }).to_string();
        json!({
            "metadata": {
                "name": "c-default", "annotations": { "kopf.zalando.org/last-handled-configuration": noted },
            },
            "spec": { "worker": { "replicas": asked } },
        })
    }

    #[test]
    fn a_scale_down_that_is_reported_and_not_done_fails() {
        let with = |group: &Value, second: Value| {
            let workers = json!({ "items": [deployment("a", 1), second] });
            let identity = Identity::Object(ObjectId {
                gvk: api::cluster(),
                namespace: Some("default".into()),
                name: "c".into(),
            });
            let facts = Facts::Workers { replicas: Some(1), cluster: None };
            let wait = Await { kind: KindId::DaskCluster, identity, until: Until::Ready, facts, deadline: 1 };
            let pods = json!({ "items": [] });
            let (name, registered) = ("c-default", None);
            Workers { wait: &wait, group, name, workers: &workers, pods: &pods, registered, settled: true }
                .ready()
        };
        let waits = |found, expect: &str| assert_eq!(found, Readiness::Progressing(expect.into()));
        let mut going = deployment("b", 1);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        waits(with(&group(1, 1), going), "1 of 2 workers still to be removed");
        let Readiness::Failed(why) = with(&group(1, 1), deployment("b", 1)) else { panic!("not failed") };
        assert!(
            why.contains("scaled to 1, but left 2") && why.contains("1 of the Deployments a, b"),
            "{why}"
        );
    }

    #[test]
    fn the_phase_is_not_trusted() {
        assert_eq!(check("Running", 1, &[1, 1], 2), Readiness::Ready);
        assert_eq!(check("Pending", 1, &[1, 1], 2), Readiness::Ready, "a healthy cluster may stay Pending");
        let waits = |found, expect: &str| assert_eq!(found, Readiness::Progressing(expect.into()));
        waits(check("Running", 1, &[1], 2), "1 of 2 workers ready");
        waits(check("Running", 0, &[1, 1], 2), "scheduler not ready");
        waits(check("Running", 1, &[1, 1, 1], 2), "1 of 3 workers still to be removed");
        waits(check("", 1, &[1, 1], 2), UNSEEN);
        assert!(matches!(check("Error", 1, &[], 0), Readiness::Failed(_)));
    }

    #[test]
    fn only_replicas_and_idle_timeout_are_followed() {
        for (path, expect) in [
            ("spec.worker.replicas", Effect::InPlace),
            ("spec.idleTimeout", Effect::InPlace),
            ("metadata.labels.a", Effect::InPlace),
            ("spec.worker.spec.containers[0].image", Effect::Replace),
            ("spec.scheduler.service.type", Effect::Replace),
        ] {
            assert_eq!(effect(&path.parse().unwrap()).0, expect, "{path}");
        }
    }
}
