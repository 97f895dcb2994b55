//! ProvisioningRequests: requests for nodes that GKE creates all at once (queued provisioning): `[provisioning_request.NAME]`.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::{count, is_terminating, text};
use crate::kind::{
    ChangeContext, Compare, Kind, MissingQuery, Neighbor, Queries, QueryResults, StopEffect, own_object_query,
};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::job::{self, Job};
use crate::kubernetes::object::{gvk, labelled};
use crate::kubernetes::request_state::{
    RequestContext, RequestRef, RequestState, api, in_words, is_open, missing_capacity,
};
use crate::kubernetes::template::{self, PodSpecKeys};
use crate::pod_defaults;
use crate::scope::{POOL_LABEL, Scope};
use crate::section::{Lifecycle, LiveName, NameRule, PodKeys, PodRole, Pods, Section, SectionHead};
use crate::short_forms::seconds;
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{
    Api, Await, Effect, Facts, Gvk, Identity, KindId, ObjectId, Query, Queued, Readiness, Recreation,
    Resource, Step,
};

pub const SECTION: &str = "provisioning_request";

/// The ProvisioningRequest class that GKE's autoscaler queues.
pub const QUEUED_CLASS: &str = "queued-provisioning.gke.io";

/// The most machines of one request. Source: GKE's guide to the dynamic workload scheduler, "Limitations".
pub const MAX_NODES: u64 = 1000;

/// The longest lifetime of nodes in seconds: 7 days. Source: as above, `maxRunDurationSeconds`.
pub const MAX_DURATION_SECONDS: u64 = 604_800;

/// Annotations of a request. `POOL` is the live name of its pool, if that also has other capacity options. `CONSUMER` is the
/// resource whose pods use the nodes: `daskclusters.kubernetes.dask.org/rapids`.
const POOL: &str = "dask-infra.dev/pool";
const CONSUMER: &str = "dask-infra.dev/for";

/// The time for which provisioned nodes are kept for pods that have not started. Source: as above.
const BOOKING_DURATION: SignedDuration = SignedDuration::from_mins(10);

/// Seconds until an autoscaler has accepted a request. The wait for machines has no deadline.
const PICKUP_TIMEOUT: u32 = 300;

/// The image in a request whose pods another tool creates. The image does not matter: only the pods' resources decide on the
/// nodes, and nothing is pulled.
const ANY_IMAGE: &str = "registry.k8s.io/pause:3.10";

pub const KIND: Kind = Kind {
    rank: 41,
    compare: Compare::Kubernetes(effect),
    change_steps: |context: &ChangeContext| -> Vec<Step> {
        object_change_steps(context, KindId::ProvisioningRequest, facts(context), PICKUP_TIMEOUT)
    },
    queries,
    readiness: |_, found| Ok(request_readiness(found.own_object(), &RequestContext::of(found)?)),
    status_line,
    plan_summary: |resource| {
        let pods = count(&resource.body["spec"]["podSets"][0]["count"]);
        vec![format!("nodes for {pods} pod{}, all at once", if pods == 1 { "" } else { "s" })]
    },
    address: |object| Address::of(SECTION, &object.name),
    stop_effect: StopEffect::DeletesWhile(is_open),
    ..Kind::DEFAULT
};

/// A request for nodes from a pool with `queued = true`: GKE makes all of them at once when it has the machines, in one zone,
/// which may take days. A request is made once; one that has ended is made again with `--replace`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct ProvisioningRequest {
    /// The live name, which pods name in their annotation; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace, which is that of the pods. Default `default`, or the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The `[job.NAME]` that the nodes are for. Its pods get the annotations, and it is created when they are there. Give this,
    /// or describe the pods with the other keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// How many pods the nodes are for, when it is not a `job`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub count: Option<u32>,
    /// The image of the pods. It decides nothing: nodes are chosen by what the pods ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Settings of each pod, when it is not a `job`: its resources, where it runs, and the like.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// How long the nodes last: `"12h"`. At most 7 days, and 7 days when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<String>,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

impl Section for ProvisioningRequest {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            depends_on: &self.lifecycle.depends_on,
            namespace: self.namespace.as_deref(),
            ..SectionHead::default()
        }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        let namespace = self.namespace.as_deref().unwrap_or("default");
        Some(LiveName::new(self.name.as_deref(), key, NameRule::Object).within(namespace))
    }

    fn pods(&self, path: &FieldPath) -> Vec<Pods<'_>> {
        if self.job.is_some() {
            return Vec::new();
        }
        vec![Pods {
            path: path.clone(),
            role: PodRole::Requested,
            replicas: self.count.unwrap_or(1),
            image: self.image.as_deref().unwrap_or(ANY_IMAGE),
            image_path: path.key("image"),
            args: &[],
            keys: &self.keys,
        }]
    }
}

impl ProvisioningRequest {
    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    fn namespace<'a>(&'a self, job: Option<&'a Job>) -> &'a str {
        self.namespace.as_deref().or(job.map(Job::namespace)).unwrap_or("default")
    }

    /// Returns the reference that the pods of its job carry.
    pub fn requested<'a>(&'a self, key: &'a str) -> RequestRef<'a> {
        RequestRef { address: Address::of(SECTION, key), name: self.live_name(key), class: QUEUED_CLASS }
    }
}

/// Returns the PodTemplate and the request of `[provisioning_request.KEY]`; `job` is the section that it names.
///
/// Nothing protects a PodTemplate that a request names, and the autoscaler reads it only once. So a changed template gets a new
/// name, which makes a new request.
pub fn lower(
    key: &str,
    section: &ProvisioningRequest,
    job: Option<(&str, &Job)>,
    scope: &Scope,
) -> [Resource; 2] {
    let namespace = section.namespace(job.map(|(_, job)| job));
    let origin = FieldPath::keys([SECTION, key]);
    let address = Address::of(SECTION, key);
    let path = FieldPath::keys(["template"]);
    let own = PodSpecKeys {
        image: section.image.as_deref().unwrap_or(ANY_IMAGE),
        args: &[],
        keys: &section.keys,
        resources: None,
        config: None,
    };
    let (mut template, provenance, number, mut depends_on) = match job {
        Some((key, job)) => {
            let of_job = FieldPath::keys([job::SECTION, key]);
            let (template, provenance) = job::pod_template(job, &of_job, &path, scope);
            let depends_on = template::dependencies(&[&job.pod_keys()], namespace, None, scope);
            (template, provenance, (job.at_a_time(), origin.key("job")), depends_on)
        }
        None => {
            let (template, provenance) = described(section, &own, &origin, &path, scope);
            let depends_on = template::dependencies(&[&own], namespace, None, scope);
            (template, provenance, (section.count.unwrap_or(1), origin.key("count")), depends_on)
        }
    };
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    // Nodes are the same with and without, and a request is not made again for them.
    pod_defaults::remove(&mut template);
    let digest = blake3::hash(template.to_string().as_bytes()).to_hex();
    let name = section.live_name(key);
    let [pod_template, mut request] = request_resources(
        RequestSpec {
            address,
            section: Address::of(SECTION, key),
            name,
            namespace,
            template_name: format!("{name}-{}", &digest.as_str()[..8]),
            template: (template, provenance),
            number,
            max_duration: section.max_run_duration.as_deref(),
            pool: job.map_or(&section.keys, |(_, job)| &job.keys).pool.as_deref(),
            consumer: None,
            origin,
            depends_on,
            protect: section.lifecycle.protect,
        },
        scope,
    );
    request.recreation = Recreation::Once { timeout: None };
    [pod_template, request]
}

/// A ProvisioningRequest to create.
pub struct RequestSpec<'a> {
    pub address: Address,
    /// The address of the section, which is also the prefix of the PodTemplate's address.
    pub section: Address,
    pub name: &'a str,
    pub namespace: &'a str,
    pub template_name: String,
    /// The PodTemplate's `template`, with its provenance.
    pub template: (Value, Vec<(FieldPath, FieldPath)>),
    /// The number of pods, and its path in the stack file.
    pub number: (u32, FieldPath),
    /// The lifetime of the nodes, as written in the stack file.
    pub max_duration: Option<&'a str>,
    /// The key of the pool that the pods must run on.
    pub pool: Option<&'a str>,
    /// The resource that the pods belong to, if the same section creates it.
    pub consumer: Option<&'a ObjectId>,
    pub origin: FieldPath,
    pub depends_on: Vec<Address>,
    pub protect: bool,
}

/// Creates the PodTemplate and the ProvisioningRequest for its pods.
pub fn request_resources(ask: RequestSpec<'_>, scope: &Scope) -> [Resource; 2] {
    let RequestSpec {
        address, section, name, namespace, template_name, number, origin, mut depends_on, ..
    } = ask;
    let (template, provenance) = ask.template;
    let metadata = |name: &str| json!({ "name": name, "namespace": namespace, "labels": scope.labels() });
    let identity = |gvk: Gvk, name: &str| {
        Identity::Object(ObjectId { gvk, namespace: Some(namespace.to_owned()), name: name.to_owned() })
    };
    let pod_template = Resource {
        address: Address::object(section.as_str(), "PodTemplate", Some(namespace), &template_name),
        kind: KindId::Object,
        body: json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata(&template_name), "template": template,
        }),
        identity: identity(gvk("", "v1", "PodTemplate", "podtemplates"), &template_name),
        create_only: Value::Null,
        provenance,
        origin: origin.clone(),
        depends_on: scope.namespace_dependencies(namespace),
        protect: ask.protect,
        recreation: Recreation::Always,
    };
    depends_on.push(pod_template.address.clone());
    let mut spec = json!({
        "provisioningClassName": QUEUED_CLASS,
        "podSets": [{ "count": number.0, "podTemplateRef": { "name": template_name } }],
    });
    if let Some(longest) = ask.max_duration.and_then(seconds) {
        // All parameters are text.
        spec["parameters"] = json!({ "maxRunDurationSeconds": longest.to_string() });
    }
    let mut own = metadata(name);
    if let Some(pool) = ask.pool.and_then(|key| scope.pool(key)).filter(|pool| pool.other_options) {
        own["annotations"][POOL] = json!(pool.name);
    }
    if let Some(consumer) = ask.consumer {
        own["annotations"][CONSUMER] =
            json!(format!("{}.{}/{}", consumer.gvk.plural, consumer.gvk.group, consumer.name));
    }
    let api = api();
    let request = Resource {
        address,
        kind: KindId::ProvisioningRequest,
        body: json!({ "apiVersion": api.api_version(), "kind": api.kind, "metadata": own, "spec": spec }),
        identity: identity(api, name),
        create_only: Value::Null,
        provenance: vec![
            (FieldPath::keys(["spec", "podSets"]), number.1),
            (FieldPath::keys(["spec", "parameters"]), origin.key("max_run_duration")),
        ],
        origin,
        depends_on,
        protect: ask.protect,
        recreation: Recreation::Always,
    };
    [pod_template, request]
}

/// Returns the pod template for a section that describes its own pods.
fn described(
    section: &ProvisioningRequest,
    pod_keys: &PodSpecKeys<'_>,
    origin: &FieldPath,
    path: &FieldPath,
    scope: &Scope,
) -> (Value, Vec<(FieldPath, FieldPath)>) {
    let at = path.key("spec");
    let mut pod = template::bare(PodRole::Requested.container(), pod_keys, scope);
    pod["restartPolicy"] = json!("Never");
    let mut provenance = template::provenance(&at, origin, &origin.key("image"));
    let mut whole = json!({ "spec": pod });
    section.keys.merge_into(&mut whole, path, origin, &mut provenance);
    (whole, provenance)
}

/// Returns the effect of a change. The API refuses changes of each field of the spec, but lets `parameters` be removed, which
/// changes nothing. Source: tried with the CRD of Kueue 0.15.0.
fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if FieldPath::keys(["spec"]).contains(path) {
        return (
            Effect::Replace,
            Some("a request cannot be changed: a new one begins at the end of the queue"),
        );
    }
    (Effect::InPlace, None)
}

fn facts(context: &ChangeContext) -> Facts {
    let metadata = &context.body()["metadata"];
    let said = |annotation: &str| metadata["annotations"][annotation].as_str();
    // A consumer that exists when the request is created is an older one, which keeps running until the new nodes exist.
    let is_new = context.action.creates();
    let consumer = said(CONSUMER)
        .filter(|_| !is_new)
        .and_then(|consumer| consumer_path(consumer, metadata["namespace"].as_str()));
    match said(POOL).map(str::to_owned) {
        None if consumer.is_none() => Facts::None,
        pool => Facts::Request { pool, consumer },
    }
}

/// Returns the path of the resource in an annotation [`CONSUMER`]. All such kinds have version v1.
fn consumer_path(consumer: &str, namespace: Option<&str>) -> Option<String> {
    let (kind, name) = consumer.split_once('/')?;
    let (plural, group) = kind.split_once('.')?;
    Some(format!("{}/{name}", gvk(group, "v1", "", plural).collection(namespace)))
}

/// Reads the request and all pods of its namespace, as no label shows which of them use its nodes. Also reads the nodes of its
/// pool, if that has other capacity options, and its consumer.
fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    if let (Identity::Object(request), true) = (&wait.identity, wait.until.is_ready()) {
        let path = gvk("", "v1", "Pod", "pods").collection(request.namespace.as_deref());
        queries.neighbor(Neighbor::AllPods, Query { api: Api::Kubernetes, path });
    }
    if let (Facts::Request { pool, consumer }, true) = (&wait.facts, wait.until.is_ready()) {
        let nodes = |pool: &str| labelled(&gvk("", "v1", "Node", "nodes"), None, [(POOL_LABEL, pool)]);
        if let Some(pool) = pool {
            queries.neighbor(Neighbor::Nodes, nodes(pool));
        }
        if let Some(path) = consumer.clone() {
            queries.neighbor(Neighbor::Consumer, Query { api: Api::Kubernetes, path });
        }
    }
    queries
}

/// Returns the pool of a request, if the pool also has other capacity options.
pub fn pool_with_options(request: &Value) -> Option<&str> {
    request["metadata"]["annotations"][POOL].as_str()
}

/// Returns the lifetime of a request's nodes: `7d`, `12h`.
pub fn lasts(request: &Value) -> String {
    let seconds = request["spec"]["parameters"]["maxRunDurationSeconds"].as_str();
    let seconds: u64 = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(MAX_DURATION_SECONDS);
    let units = [(86_400, 'd'), (3600, 'h'), (60, 'm')];
    let whole = units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

/// Returns true if the section of a request also creates the resource that uses its nodes.
pub fn has_consumer(request: &Value) -> bool {
    !request["metadata"]["annotations"][CONSUMER].is_null()
}

fn request_readiness(request: &Value, around: &RequestContext<'_>) -> Readiness {
    if !request.is_object() {
        return Readiness::progressing("not created yet");
    }
    if is_terminating(request) {
        return Readiness::progressing("it is being deleted");
    }
    let (stage, of) = RequestState::of(request, around);
    match (stage, of) {
        (RequestState::Provisioned | RequestState::Used | RequestState::Needless, _) => Readiness::Ready,
        // An existing consumer has had its nodes, and one that has ended needs none. For a consumer that is still to be created,
        // the nodes are requested again.
        (RequestState::BookingExpired, Some(end)) if around.consumer.is_some() => {
            Readiness::Impaired(in_words(stage, end))
        }
        (RequestState::Failed | RequestState::CapacityRevoked, Some(end))
            if around.consumer.is_some_and(Value::is_object) =>
        {
            Readiness::Impaired(in_words(stage, end))
        }
        (RequestState::Failed | RequestState::BookingExpired | RequestState::CapacityRevoked, Some(end)) => {
            Readiness::Failed(in_words(stage, end))
        }
        (RequestState::Accepted, Some(accepted)) => {
            Readiness::Queued(Queued::since(missing_capacity(request), &accepted["lastTransitionTime"]))
        }
        _ => {
            let class = text(&request["spec"]["provisioningClassName"]);
            Readiness::progressing(format!("no autoscaler has accepted requests of class {class} yet"))
        }
    }
}

/// Returns the `status` line: the stage, and the time by which pods must start.
fn status_line(_: &Await, found: &QueryResults) -> Result<StatusLine, MissingQuery> {
    let request = found.own_object();
    let (stage, of) = RequestState::of(request, &RequestContext::of(found)?);
    let since = of.map_or(&request["metadata"]["creationTimestamp"], |of| &of["lastTransitionTime"]);
    let desired = count(&request["spec"]["podSets"][0]["count"]);
    let begun = since.as_str().and_then(|since| since.parse::<Timestamp>().ok());
    let longest = request["spec"]["parameters"]["maxRunDurationSeconds"].as_str();
    let longest = longest.and_then(|seconds| seconds.parse().ok()).unwrap_or(MAX_DURATION_SECONDS);
    let until = match stage {
        RequestState::Provisioned => Some(("pods must start", BOOKING_DURATION)),
        RequestState::Used => {
            i64::try_from(longest).ok().map(|lasts| ("its nodes go", SignedDuration::from_secs(lasts)))
        }
        _ => None,
    };
    let until = until.and_then(|(what, after)| Some((what, begun?.checked_add(after).ok()?.to_string())));
    let by = |meant: RequestState| until.as_ref().filter(|_| stage == meant).map(|(_, end)| end);
    let pods = format!("nodes for {desired} pod{}", if desired == 1 { "" } else { "s" });
    Ok(StatusLine {
        line: match since.as_str() {
            Some(since) => format!("{} since {since}; {pods}", stage.word()),
            None => format!("{}; {pods}", stage.word()),
        },
        facts: vec![
            ("stage", json!(stage.word())),
            ("since", since.clone()),
            ("pods_wanted", json!(desired)),
            ("pods_must_start_by", json!(by(RequestState::Provisioned))),
            ("nodes_go_at", json!(by(RequestState::Used))),
        ],
        until,
        ..StatusLine::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Part;
    use crate::kubernetes::request_state::{CONSUMES, has_ended, has_expired};

    const SINCE: &str = "2026-01-01T00:00:00Z";

    fn request(conditions: &[(&str, &str)]) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| json!({ "type": kind, "status": status, "reason": "Why", "message": "so", "lastTransitionTime": SINCE }))
            .collect();
        json!({
            "metadata": { "name": "r" },
            "spec": { "provisioningClassName": "queued", "podSets": [{ "count": 2 }] },
            "status": { "conditions": conditions },
        })
    }

    fn pods(phase: &str) -> Value {
        json!({ "items": [{ "metadata": { "annotations": { CONSUMES: "r" } }, "status": { "phase": phase } }] })
    }

    /// States as Kueue and the cluster autoscaler write them.
    #[test]
    fn requests_for_capacity() {
        let queued = |what: &str| Readiness::Queued(Queued { what: what.into(), since: Some(SINCE.into()) });
        let fails = |what: &str| Readiness::Failed(what.into());
        let none = Readiness::progressing("no autoscaler has accepted requests of class queued yet");
        let (accepted, provisioned) = (("Accepted", "True"), ("Provisioned", "True"));
        let expired = "booking expired since 2026-01-01T00:00:00Z: no pod came to its nodes within 10 minutes, and the \
             autoscaler takes them away (Why: so)";
        for (conditions, phase, expect) in [
            (vec![], "", none.clone()),
            (vec![("Accepted", "False")], "", none),
            (vec![accepted], "", queued("no machines yet")),
            (vec![accepted, ("Provisioned", "False")], "", queued("no machines yet: so")),
            (vec![accepted, provisioned], "Pending", Readiness::Ready),
            (vec![provisioned, ("BookingExpired", "True")], "Running", Readiness::Ready),
            (vec![provisioned, ("BookingExpired", "True")], "Pending", fails(expired)),
            (vec![("BookingExpired", "True")], "Running", fails(expired)),
            (
                vec![provisioned, ("CapacityRevoked", "True")],
                "Running",
                fails("capacity revoked since 2026-01-01T00:00:00Z: its nodes were taken away (Why: so)"),
            ),
            (
                vec![accepted, ("Failed", "True")],
                "",
                fails("failed since 2026-01-01T00:00:00Z: GKE cannot make its nodes (Why: so)"),
            ),
        ] {
            let pods = pods(phase);
            assert_eq!(
                request_readiness(&request(&conditions), &alone(&pods)),
                expect,
                "{conditions:?} {phase}"
            );
        }
        assert!(matches!(request_readiness(&Value::Null, &alone(&Value::Null)), Readiness::Progressing(_)));
        // A pod that has a node pulls its image, however long.
        let mut bound = pods("Pending");
        bound["items"][0]["spec"]["nodeName"] = json!("n");
        let expired = request(&[provisioned, ("BookingExpired", "True")]);
        assert_eq!(request_readiness(&expired, &alone(&bound)), Readiness::Ready);
        // Its consumer exists, or is gone.
        let there = json!({ "kind": "DaskCluster" });
        let consumer = |consumer| RequestContext { consumer: Some(consumer), ..alone(&Value::Null) };
        assert_eq!(request_readiness(&expired, &consumer(&there)), Readiness::Ready);
        assert!(matches!(request_readiness(&expired, &consumer(&Value::Null)), Readiness::Impaired(_)));
        let revoked = request(&[provisioned, ("CapacityRevoked", "True")]);
        assert!(matches!(request_readiness(&revoked, &consumer(&there)), Readiness::Impaired(_)));
        assert!(matches!(request_readiness(&revoked, &consumer(&Value::Null)), Readiness::Failed(_)));
        assert!(has_ended(&expired).is_none() && has_expired(&expired).is_some());
        // A pool that was bought in another way needs no request.
        let needless = RequestContext { needless: true, ..alone(&Value::Null) };
        assert_eq!(request_readiness(&request(&[("Failed", "True")]), &needless), Readiness::Ready);
    }

    fn alone(pods: &Value) -> RequestContext<'_> {
        RequestContext { pods, needless: false, consumer: None }
    }

    #[test]
    fn where_the_thing_is_that_nodes_are_for() {
        let path = consumer_path("daskclusters.kubernetes.dask.org/rapids", Some("n")).unwrap();
        assert_eq!(path, "/apis/kubernetes.dask.org/v1/namespaces/n/daskclusters/rapids");
    }

    #[test]
    fn causes_are_told_in_words() {
        let with = |kind: &str, status: &str, reason: &str, message: &str| {
            let mut request = request(&[("Accepted", "True"), (kind, status)]);
            request["status"]["conditions"][1]["reason"] = json!(reason);
            request["status"]["conditions"][1]["message"] = json!(message);
            match request_readiness(&request, &alone(&Value::Null)) {
                Readiness::Failed(why) => why,
                Readiness::Queued(queued) => queued.what,
                other => panic!("{other:?}"),
            }
        };
        let quota = "Quota 'NVIDIA_P4_GPUS' exceeded. Limit: 1.0 in region europe-west4.";
        assert_eq!(
            with("Provisioned", "False", "QuotaExceeded", quota),
            format!("a quota of the project is too small: {quota}")
        );
        let max = "Max nodepool size reached, affected nodepools: a100";
        assert!(with("Failed", "True", "OutOfCapacity", max).contains("larger than its maximum (`nodes`)"));
        let fits = "pods cannot be scheduled in the nodepool";
        assert!(with("Failed", "True", "CapacityIsNotFound", fits).contains("its pods fit no node"));
    }

    #[test]
    fn pods_have_ten_minutes() {
        let line = |conditions: &[(&str, &str)]| {
            let (request, pods) = (request(conditions), Value::Null);
            let identity = Identity::Check(Address::new("x"));
            let (kind, until) = (KindId::ProvisioningRequest, model::resource::Until::StillReady);
            let wait = Await { kind, identity, until, facts: Facts::None, deadline: 1 };
            status_line(&wait, &QueryResults::of([(Part::Itself, &request)]).with(Neighbor::AllPods, &pods))
                .unwrap()
        };
        let provisioned = line(&[("Provisioned", "True")]);
        assert_eq!(provisioned.line, "provisioned since 2026-01-01T00:00:00Z; nodes for 2 pods");
        assert_eq!(provisioned.until, Some(("pods must start", "2026-01-01T00:10:00Z".to_owned())));
        assert_eq!(line(&[("Accepted", "True")]).until, None);
        let used = {
            let (request, pods) = (request(&[("Provisioned", "True")]), pods("Running"));
            let identity = Identity::Check(Address::new("x"));
            let (kind, until) = (KindId::ProvisioningRequest, model::resource::Until::StillReady);
            let wait = Await { kind, identity, until, facts: Facts::None, deadline: 1 };
            status_line(&wait, &QueryResults::of([(Part::Itself, &request)]).with(Neighbor::AllPods, &pods))
                .unwrap()
        };
        assert_eq!(used.until, Some(("its nodes go", "2026-01-08T00:00:00Z".to_owned())));
    }

    #[test]
    fn a_request_is_not_changed() {
        for (path, expect) in [
            ("spec.podSets[0].count", Effect::Replace),
            ("spec.parameters", Effect::Replace),
            ("metadata.labels.a", Effect::InPlace),
        ] {
            assert_eq!(effect(&path.parse().unwrap()).0, expect, "{path}");
        }
    }
}
