//! Checks: actions that must succeed before other changes start. Only their completion in the record remains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::driver_path;
use crate::json::text;
use crate::kind::{ChangeContext, Kind, PodSource};
use crate::kubernetes::calls::create_call;
use crate::kubernetes::dask_check::{self, BANDWIDTH, Program, SUM};
use crate::kubernetes::object::{condition, gvk};
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::pods::broken;
use crate::kubernetes::why::no_node_for;
use crate::node_selection::{ACCELERATOR_LABEL, Machines};
use crate::scope::{DaskFacts, POOL_LABEL, PoolFacts, Scope, allow_client};
use crate::section::{LiveName, NameRule, Section, SectionHead};
use crate::security_defaults;
use model::address::{Address, FieldPath};
use model::quantity::Quantity;
use model::resource::{
    Action, Api, Await, Call, Facts, Identity, KindId, Method, ObjectId, Progress, Query, Readiness,
    Recreation, Resource, Step, Until,
};

/// Seconds for the pod to run to completion, including the download of its image.
const DEADLINE: u32 = 900;

/// The image of the CUDA check. Source: the RAPIDS guide.
const VECTORADD: &str = "nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04";

/// The line that the CUDA check's log must have.
const PASSED: &str = "Test PASSED";

pub const KIND: Kind = Kind {
    rank: 50,
    change_steps,
    readiness: |_, found| Ok(readiness(found.own_object())),
    plan_summary: |resource| vec![on_machines(&resource.body["spec"])],
    pods: |resource| PodSource::Known(Query { api: Api::Kubernetes, path: pod(&resource.body).path() }),
    runs_to_completion: true,
    ..Kind::DEFAULT
};

/// An action that must pass before what depends on it is created.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Check {
    /// The check to run.
    pub run: CheckRun,
    /// The node pool to run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Which machines it runs on where no pool is named.
    #[serde(flatten)]
    pub machines: Machines,
    /// The namespace of its Pod. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// With `dask-sum` and `bandwidth`, and with `cuda-vectoradd` and `cudf` on hosts: the key of the Dask cluster that computes. With `cudf`
    /// on Kubernetes: that whose image is tried. Default the only one of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The image, instead of the check's own; that of `dask-sum`, `bandwidth` and `cudf` is the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// With `bandwidth`: bytes a second that each measured connection must have: `"500M"`, `"1Gi"`. Default any: the numbers are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<String>,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

impl Section for Check {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            depends_on: &self.depends_on,
            namespace: self.namespace.as_deref(),
            ..SectionHead::default()
        }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(None, key, NameRule::Check))
    }
}

/// Kinds of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckRun {
    /// Vectors are added on GPUs. In a cluster NVIDIA's sample on one GPU, whose log must say `Test PASSED`; on hosts every worker of
    /// a Dask cluster that has GPUs, with the cupy or numba of its environment.
    CudaVectoradd,
    /// cuDF is imported and computes, on a GPU. In a cluster a Pod with the workers' image does so before the workers are made, and finds
    /// the driver as they will; on hosts every worker of a Dask cluster that has GPUs.
    Cudf,
    /// A Dask client submits ten tasks to a Dask cluster of the file, which must add up to 45. On Kubernetes and on hosts.
    DaskSum,
    /// A Dask client has workers of a Dask cluster send 32 MiB to each other, and says how many bytes a second that is: a wrong
    /// network interface is seen. On Kubernetes and on hosts.
    Bandwidth,
}

impl CheckRun {
    /// Returns the program that a client of a Dask cluster runs; `None` for a check that needs no Dask cluster.
    pub fn program(self, on_hosts: bool) -> Option<Program> {
        match self {
            Self::DaskSum => Some(SUM),
            Self::Bandwidth => Some(BANDWIDTH),
            Self::CudaVectoradd if on_hosts => Some(dask_check::VECTORADD),
            Self::Cudf if on_hosts => Some(dask_check::CUDF_ON_WORKERS),
            Self::CudaVectoradd | Self::Cudf => None,
        }
    }

    /// Returns true for a check that tests the GPUs of a pool in its own Pod, before anything else runs there.
    pub fn is_of_pool(self) -> bool {
        matches!(self, Self::CudaVectoradd | Self::Cudf)
    }
}

impl Check {
    /// Returns true if the check uses a Dask cluster of the file: its scheduler, or its image.
    pub fn uses_cluster(&self, on_hosts: bool) -> bool {
        let takes_image = self.run == CheckRun::Cudf && (self.image.is_none() || self.cluster.is_some());
        takes_image || self.run.program(on_hosts).is_some()
    }

    /// Returns `min` as a number.
    pub fn least(&self) -> Option<u64> {
        let min = self.min.as_deref().and_then(Quantity::parse)?;
        u64::try_from(min.floor()).ok()
    }
}

/// Returns the resource of `[check.KEY]`. The body is the pod to run. Its name contains a digest of its text, so a pod with the
/// same name that an interrupted apply left behind runs the same check.
pub fn lower(key: &str, section: &Check, scope: &Scope) -> Resource {
    let Check { run, pool, machines, namespace, cluster, image, min: _, depends_on: named } = section;
    let namespace = namespace.as_deref().unwrap_or("default");
    let program = run.program(scope.target.is_on_hosts());
    let named_cluster = scope.dask_cluster(cluster.as_deref());
    let cluster = named_cluster.filter(|_| program.is_some());
    let (mut spec, annotations) = match (program, run) {
        (Some(program), _) => client(program, section, cluster, scope),
        (None, CheckRun::Cudf) => {
            let image = image.as_deref().or(named_cluster.map(|facts| facts.image.as_str()));
            (cudf(image.unwrap_or_default(), scope), Value::Null)
        }
        (None, _) => (vectoradd(image.as_deref()), Value::Null),
    };
    let facts = pool.as_ref().and_then(|pool| scope.pool(pool));
    if let Some(facts) = facts {
        on_pool(&mut spec, facts);
    }
    machines.add_to_pod(&mut spec);
    let hardware = facts.map_or("", |facts| &facts.hardware);
    let checked = match cluster {
        // Another environment is another check.
        Some(facts) => {
            let environment = scope.environment(facts.environment.as_deref());
            format!("{spec} {:?}", environment.map(|environment| &environment.digest))
        }
        None => format!("{spec} {hardware} {:?}", scope.driver),
    };
    let digest = blake3::hash(checked.as_bytes()).to_hex();
    let name = format!("check-{key}-{}", &digest.as_str()[..8]);
    let origin = FieldPath::keys(["check", key]);
    let address = Address::of("check", key);
    let mut depends_on = dependencies(pool.as_deref(), cluster, namespace, scope);
    depends_on.extend(named.iter().map(Address::new));
    let mut metadata = json!({ "name": name, "namespace": namespace, "labels": scope.labels() });
    if let Some(facts) = cluster.filter(|facts| facts.is_network_restricted) {
        allow_client(&mut metadata, &facts.name);
    }
    if !annotations.is_null() {
        metadata["annotations"] = annotations;
    }
    // After the digest: a check that has passed has passed without.
    if !scope.target.is_on_hosts() {
        security_defaults::apply(&mut spec);
    }
    let path = FieldPath::keys(["spec"]);
    let mut provenance = vec![(path.key("nodeSelector"), origin.key("pool"))];
    provenance.extend(Machines::provenance(&path, &origin));
    Resource {
        identity: Identity::Check(address.clone()),
        address,
        kind: KindId::Check,
        body: json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
        }),
        provenance,
        origin,
        depends_on,
        protect: false,
        recreation: Recreation::Always,
        create_only: Value::Null,
    }
}

/// Makes a pod run on a node pool. The pod already tolerates the taint of GPU nodes.
fn on_pool(spec: &mut Value, pool: &PoolFacts) {
    spec["nodeSelector"] = json!({ POOL_LABEL: pool.name });
    for taint in pool.taints.iter().filter(|taint| taint.key != "nvidia.com/gpu") {
        let toleration = json!({
            "key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect.kubernetes(),
        });
        match spec["tolerations"].as_array_mut() {
            Some(list) => list.push(toleration),
            None => spec["tolerations"] = json!([toleration]),
        }
    }
}

/// Returns the dependencies: the namespace, the checked machines, and the Dask cluster.
fn dependencies(
    pool: Option<&str>,
    cluster: Option<&DaskFacts>,
    namespace: &str,
    scope: &Scope,
) -> Vec<Address> {
    let mut depends_on = scope.namespace_dependencies(namespace);
    match (pool, cluster) {
        (Some(pool), _) => depends_on.push(Address::of("node_pool", pool)),
        (None, Some(_)) => {}
        (None, None) => depends_on.extend(scope.pools.iter().map(|pool| Address::of("node_pool", &pool.key))),
    }
    match cluster {
        Some(facts) => depends_on.push(Address::of("dask_cluster", &facts.key)),
        None => depends_on.extend(scope.section("gpu_driver")),
    }
    depends_on
}

/// Returns `on pool a100`, `on nvidia-l4`.
fn on_machines(pod: &Value) -> String {
    let selector = &pod["nodeSelector"];
    let gpu = text(&selector[ACCELERATOR_LABEL]);
    match text(&selector[POOL_LABEL]) {
        "" if gpu.is_empty() => String::new(),
        "" => format!("on {gpu}"),
        pool => format!("on pool {pool}"),
    }
}

fn vectoradd(image: Option<&str>) -> Value {
    on_gpu(json!({ "name": "cuda-vectoradd", "image": image.unwrap_or(VECTORADD) }))
}

fn cudf(image: &str, scope: &Scope) -> Value {
    let mut container = dask_check::container(dask_check::CUDF, image);
    if driver_path::is_needed(scope) {
        driver_path::add(&mut container);
    }
    on_gpu(container)
}

/// Returns a PodSpec whose container requests a GPU.
fn on_gpu(mut container: Value) -> Value {
    container["resources"] = json!({ "limits": { "nvidia.com/gpu": "1" } });
    json!({
        // OnFailure would hide a failing GPU behind restarts.
        "restartPolicy": "Never",
        "containers": [container],
        "tolerations": [{ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }],
    })
}

/// Returns the pod of a Dask client, and its annotations; the rules refuse a check without a cluster.
fn client(program: Program, check: &Check, cluster: Option<&DaskFacts>, scope: &Scope) -> (Value, Value) {
    let least = check.least();
    match cluster {
        Some(facts) if scope.target.is_on_hosts() => dask_check::on_host(program, facts, least),
        Some(facts) => {
            let mut spec = dask_check::in_cluster(program, facts, least);
            if let Some(image) = &check.image {
                spec["containers"][0]["image"] = json!(image);
            }
            (spec, Value::Null)
        }
        None => (json!({ "containers": [] }), Value::Null),
    }
}

/// Returns the digest of a check's text: its pod, the pool's hardware, the installer of the driver.
pub fn digest(body: &Value) -> String {
    text(&body["metadata"]["name"]).rsplit('-').next().unwrap_or_default().to_owned()
}

/// Returns the pod that a check runs, from its body.
pub fn pod(body: &Value) -> ObjectId {
    ObjectId {
        gvk: gvk("", "v1", "Pod", "pods"),
        namespace: body["metadata"]["namespace"].as_str().map(str::to_owned),
        name: text(&body["metadata"]["name"]).to_owned(),
    }
}

/// Returns the address of a pod that an interrupted apply of a check left behind.
pub fn address_of(check: &Address, pod: &ObjectId) -> Address {
    Address::object(check.as_str(), &pod.gvk.kind, pod.namespace.as_deref(), &pod.name)
}

/// Returns true for the pod of a check that an interrupted apply left behind. Deleting it loses no data.
pub fn is_leftover_pod(identity: &Identity, address: &Address) -> bool {
    let pod = matches!(identity, Identity::Object(object) if object.gvk.kind == "Pod");
    pod && address.as_str().contains('/')
        && address.section().split('.').next() == Some(KindId::Check.as_str())
}

/// Returns the steps: create the pod, wait for its end, read the log, delete it, and only then record that the check passed.
fn change_steps(context: &ChangeContext) -> Vec<Step> {
    if context.action != Action::Run {
        return Vec::new();
    }
    let body = context.body();
    let pod = pod(body);
    let wait = |until| {
        let (identity, kind) = (Identity::Object(pod.clone()), KindId::Check);
        Step::Await(Await { kind, identity, until, facts: Facts::None, deadline: DEADLINE })
    };
    // Equal text means the same pod: apply adopts the pod that an interrupted apply left behind, and reads its log to the end. It
    // does not apply the pod again, because few fields of a pod can change after creation.
    let create = create_call(&pod, context.owner, body);
    let expect = dask_check::passed(body).unwrap_or(PASSED);
    let delete = Call {
        api: Api::Kubernetes,
        method: Method::Delete,
        path: pod.path(),
        body: Some(
            json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" }).into(),
        ),
        deferred: Vec::new(),
    };
    vec![
        Step::Call(create),
        wait(Until::Ready),
        Step::ReadLog { pod: pod.clone(), expect: Some(expect.into()) },
        Step::Call(delete),
        wait(Until::Gone),
        Step::RecordCompletion { digest: digest(body) },
    ]
}

/// Returns ready once the pod ran to completion. Another step reads the log.
fn readiness(pod: &Value) -> Readiness {
    if let Some(reason) = broken(PodState(pod)) {
        return Readiness::Failed(reason);
    }
    match text(&pod["status"]["phase"]) {
        // A failed run is ready to be read: its log says more than its exit code.
        "Succeeded" | "Failed" => Readiness::Ready,
        "" => Readiness::progressing("its pod does not exist yet"),
        phase => match condition(pod, "PodScheduled") {
            Some(scheduled) if scheduled["status"] == "False" => {
                let blocked_by = Some(no_node_for(&pod["spec"], text(&scheduled["message"])));
                Readiness::progressing(Progress { what: "its pod is pending".to_owned(), blocked_by })
            }
            _ if dask_check::is_on_host(pod) => Readiness::progressing("it computes"),
            _ if phase == "Pending" => Readiness::progressing("its pod is starting"),
            _ => Readiness::progressing(format!("its pod is {phase}")),
        },
    }
}
