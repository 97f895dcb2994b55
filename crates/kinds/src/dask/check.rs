//! Checks: actions that must succeed before other changes start. Only their completion in the record remains.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::code::{Code, CodeKeys};
use crate::dask::check_program::{self, BANDWIDTH, Client, Program, SUM};
use crate::dask::cluster::DaskCluster;
use crate::dask::pods as dask_pods;
use crate::driver_path;
use crate::env::{self, Env};
use crate::json::{append, text};
use crate::kind::{ChangeContext, Kind, PodSource};
use crate::kubernetes::calls::create_call;
use crate::kubernetes::object::{condition, gvk};
use crate::kubernetes::pod_code::PodCode;
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::pods::{broken, why};
use crate::kubernetes::template::{self, PodSpecKeys};
use crate::kubernetes::why::no_node_for;
use crate::node_selection::{ACCELERATOR_LABEL, Machines};
use crate::scope::{DaskFacts, POOL_LABEL, PoolFacts, Scope, allow_client};
use crate::section::{LiveName, NameRule, Section, SectionHead};
use crate::security_defaults;
use crate::short_forms;
use crate::worker_resources::WorkerResources;
use model::address::{Address, FieldPath};
use model::quantity::Quantity;
use model::resource::{
    Action, Api, Await, Call, Facts, Identity, KindId, Method, ObjectId, Progress, Query, Readiness,
    Recreation, Resource, Step, Until,
};

/// Seconds for the pod to run to completion, including those for a node with GPUs and the pull of its image, which usually take up to 22
/// minutes together; with a `time_limit`, for it to get a node.
const DEADLINE: u32 = 1800;

/// The image of the CUDA check. Source: the RAPIDS guide.
const VECTORADD: &str = "nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04";

pub const KIND: Kind = Kind {
    rank: 50,
    change_steps,
    readiness: |_, found| Ok(readiness(found.own_object())),
    plan_summary: |resource| {
        let spec = &resource.body["spec"];
        own_program(&resource.body).into_iter().chain([on_machines(spec)]).collect()
    },
    pods: |resource| PodSource::Known(Query { api: Api::Kubernetes, path: pod(&resource.body).path() }),
    runs_to_completion: true,
    ..Kind::DEFAULT
};

/// An action that must pass before what depends on it is created.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Check {
    /// The check to run. A built-in one has a name; your own program is a list of words: `["python", "-c", "import cudf"]`. It passes when
    /// it ends with code 0. `dask-infra run` prints its log; `apply` prints it when the program fails.
    pub run: CheckRun,
    /// `"client"`: the check runs once its Dask cluster is ready. `cuda-vectoradd` and `cudf` compute on every worker with GPUs. A program
    /// finds the scheduler's address in `DASK_SCHEDULER_ADDRESS`, as `dask.distributed.Client()` does. `"worker"`, for programs only: the
    /// program runs before the workers are created, in a Pod like theirs, with their image, resources, variables and nodes. Without it
    /// the check is a client, except `cuda-vectoradd` and `cudf` on Kubernetes: these run in a Pod with a GPU of its own, before the
    /// workers are created.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub role: Option<CheckRole>,
    /// Dask resources that each task of your program takes, as by `dask.annotate(resources={"GPU": 1})`: `{ GPU = 1 }`. Workers or a group
    /// of the Dask cluster declare them in their `resources`. For a program as a client.
    #[serde(default, skip_serializing_if = "WorkerResources::is_empty")]
    pub resources: WorkerResources,
    /// The longest time for its Pod on its node, including the download of the image: `"30m"`. The wait for a node is not part of it.
    /// Default 30 minutes for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
    /// The node pool to run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Which machines it runs on where no pool is named.
    #[serde(flatten)]
    pub machines: Machines,
    /// The namespace of its Pod. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The key of the Dask cluster that a client connects to. For `cudf` in its own Pod, and for a program as a worker: the Dask cluster
    /// whose image the check uses. Default the only one of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The image. Default the Dask cluster's; for `cuda-vectoradd` in its own Pod, NVIDIA's sample image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Your own code, for a program. Default that of the Dask cluster.
    #[serde(flatten)]
    pub code: CodeKeys,
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

/// The check that a section runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRun {
    BuiltIn(BuiltInCheck),
    /// The user's program, as the words of its command line.
    Program(Vec<String>),
}

/// Built-in checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltInCheck {
    /// Vectors are added on GPUs. In a Pod NVIDIA's sample on one GPU, whose log must say `Test PASSED`; as a client every worker of
    /// a Dask cluster that has GPUs, with the cupy or numba of its image or environment.
    CudaVectoradd,
    /// cuDF is imported and computes, on a GPU. In a Pod with the workers' image before they are created, which finds the driver as they
    /// will; as a client every worker of a Dask cluster that has GPUs.
    Cudf,
    /// A Dask client submits ten tasks to a Dask cluster of the file, which must add up to 45. On Kubernetes and on hosts.
    DaskSum,
    /// A Dask client has workers of a Dask cluster send 32 MiB to each other, and says how many bytes a second that is: a wrong
    /// network interface is seen. On Kubernetes and on hosts.
    Bandwidth,
}

impl BuiltInCheck {
    /// Returns the program that a client of a Dask cluster runs.
    fn program(self) -> Program {
        match self {
            Self::DaskSum => SUM,
            Self::Bandwidth => BANDWIDTH,
            Self::CudaVectoradd => check_program::VECTORADD,
            Self::Cudf => check_program::CUDF_ON_WORKERS,
        }
    }

    /// Returns true for a check of GPUs.
    fn is_of_gpus(self) -> bool {
        matches!(self, Self::CudaVectoradd | Self::Cudf)
    }
}

impl Serialize for CheckRun {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::BuiltIn(check) => check.serialize(serializer),
            Self::Program(words) => words.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CheckRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrWords;

        impl<'de> Visitor<'de> for NameOrWords {
            type Value = CheckRun;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a check or the words of a program")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<CheckRun, E> {
                BuiltInCheck::deserialize(StrDeserializer::new(name)).map(CheckRun::BuiltIn)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<CheckRun, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(words)).map(CheckRun::Program)
            }
        }

        deserializer.deserialize_any(NameOrWords)
    }
}

impl JsonSchema for CheckRun {
    fn schema_name() -> Cow<'static, str> {
        "CheckRun".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        // Alternatives are told apart by their type, which a list of constants does not say.
        let built_in = BuiltInCheck::json_schema(generator);
        let names = built_in.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&Value> = names.filter_map(|name| name.get("const")).collect();
        json_schema!({
            "description": "A built-in check, or the words of a program.",
            "oneOf": [
                { "type": "string", "enum": names },
                { "type": "array", "items": { "type": "string" } },
            ],
        })
    }
}

/// The part that a check plays beside a Dask cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckRole {
    /// Connects to the scheduler, once the Dask cluster is ready.
    Client,
    /// Runs in a Pod like those of the workers, before they are created.
    Worker,
}

impl Check {
    /// Returns true for a check that runs as a client of a Dask cluster, which must be ready.
    pub fn is_client(&self, on_hosts: bool) -> bool {
        match self.run {
            CheckRun::BuiltIn(check) => {
                on_hosts || self.role == Some(CheckRole::Client) || !check.is_of_gpus()
            }
            CheckRun::Program(_) => !self.is_like_worker(),
        }
    }

    /// Returns true for a check that computes on the GPUs of a Dask cluster's workers.
    pub fn is_on_gpus_of_workers(&self, on_hosts: bool) -> bool {
        matches!(self.run, CheckRun::BuiltIn(check) if check.is_of_gpus()) && self.is_client(on_hosts)
    }

    /// Returns true for a check that tries the nodes of a pool in a Pod of its own, before anything else runs there.
    pub fn is_of_pool(&self) -> bool {
        !self.is_client(false)
    }

    /// Returns the words of a program that runs in a Pod like those of workers.
    fn program_like_worker(&self) -> Option<&[String]> {
        match &self.run {
            CheckRun::Program(words) if self.role == Some(CheckRole::Worker) => Some(words),
            CheckRun::Program(_) | CheckRun::BuiltIn(_) => None,
        }
    }

    /// Returns true for a program that runs in a Pod like those of workers.
    pub fn is_like_worker(&self) -> bool {
        self.program_like_worker().is_some()
    }

    /// Returns true for a check that needs a GPU whatever else the file says.
    pub fn needs_gpu(&self) -> bool {
        self.is_of_pool() && !self.is_like_worker()
    }

    /// Returns true if the check uses a Dask cluster of the file: its scheduler, its image, or the Pods of its workers.
    pub fn uses_cluster(&self, on_hosts: bool) -> bool {
        let is_cudf = self.run == CheckRun::BuiltIn(BuiltInCheck::Cudf);
        let takes_image = is_cudf && (self.image.is_none() || self.cluster.is_some());
        takes_image || self.is_like_worker() || self.is_client(on_hosts)
    }

    /// Returns the code of its program: its own, or that of its Dask cluster. A built-in check has none.
    pub fn code<'a>(
        &'a self,
        cluster: Option<(&String, &'a DaskCluster)>,
        origin: &FieldPath,
    ) -> Option<Code<'a>> {
        match &self.run {
            CheckRun::Program(_) => {
                let copied = cluster.map(|(key, like)| like.code.at(&FieldPath::keys(["dask_cluster", key])));
                Some(self.code.at(origin).or(copied))
            }
            CheckRun::BuiltIn(_) => None,
        }
    }

    /// Returns `min` as a number.
    pub fn least(&self) -> Option<u64> {
        let min = self.min.as_deref().and_then(Quantity::parse)?;
        u64::try_from(min.floor()).ok()
    }

    /// Returns `time_limit` in seconds.
    pub fn seconds(&self) -> Option<u64> {
        self.time_limit.as_deref().and_then(short_forms::seconds)
    }
}

/// Returns the resource of `[check.KEY]`, and its files. The body is the pod to run. Its name contains a digest of its text, so a pod with the
/// same name that an interrupted apply left behind runs the same check. `cluster` is the Dask cluster that it names, or the only one,
/// with its key.
pub fn lower(
    key: &str,
    section: &Check,
    cluster: Option<(&String, &DaskCluster)>,
    scope: &Scope,
) -> (Resource, Option<Resource>) {
    let origin = FieldPath::keys(["check", key]);
    let address = Address::of("check", key);
    let on_hosts = scope.target.is_on_hosts();
    let like = section.program_like_worker().filter(|_| !on_hosts).zip(cluster);
    let code = section.code(cluster, &origin);
    let namespace = match like {
        // Secrets that the variables of workers name are there.
        Some((_, (_, like))) => like.namespace(),
        None => section.namespace.as_deref().unwrap_or("default"),
    };
    let own_code = code.clone().map(|code| PodCode::new(&format!("check-{key}"), namespace, code));
    let CheckPod { mut metadata, mut spec, mut provenance, pool, mut depends_on } = match like {
        Some((words, cluster)) => like_worker(section, words, (cluster, own_code.as_ref()), &origin, scope),
        None => plain_pod(section, (namespace, own_code.as_ref()), &origin, scope),
    };
    if let Some(code) = code.as_ref().filter(|_| on_hosts) {
        if let Some(digest) = code.digest() {
            metadata["annotations"][check_program::FILES_ANNOTATION] = json!(digest);
        }
        if let Some(folder) = code.folder() {
            spec["containers"][0]["workingDir"] = json!(folder);
        }
    }
    let facts = scope.dask_cluster(section.cluster.as_deref()).filter(|_| section.is_client(on_hosts));
    let hardware = pool.and_then(|pool| scope.pool(pool)).map_or("", |pool| &pool.hardware);
    let gpu_workers = cluster.filter(|_| section.is_on_gpus_of_workers(on_hosts)).map(|(_, cluster)| cluster);
    let checked = match facts {
        // Another environment is another check.
        Some(facts) => {
            let environment = scope.environment(facts.environment.as_deref());
            let environment = environment.map(|environment| &environment.digest);
            let nodes = gpu_workers.filter(|_| !on_hosts).map(|cluster| gpu_nodes(cluster, scope));
            let files = code.as_ref().and_then(Code::digest).filter(|_| on_hosts);
            let files = files.map(|digest| format!(" files {digest}")).unwrap_or_default();
            format!("{spec} {environment:?}{}{files}", nodes.unwrap_or_default())
        }
        None => format!("{spec} {hardware} {:?}", scope.driver),
    };
    let digest = blake3::hash(checked.as_bytes()).to_hex();
    metadata["name"] = json!(format!("check-{key}-{}", &digest.as_str()[..8]));
    metadata["namespace"] = json!(namespace);
    if let Some(facts) = facts.filter(|facts| facts.is_network_restricted) {
        allow_client(&mut metadata, &facts.name);
    }
    // After the digest: with more workers it need not run again.
    let processes =
        gpu_workers.map_or(0, |cluster| cluster.gpu_workers().map(|one| one.processes()).sum::<u32>());
    if processes > 0 {
        append(&mut spec["containers"][0], "env", vec![check_program::min_workers(processes)]);
    }
    // After the digest: a check that has passed has passed without.
    if !on_hosts && !section.is_like_worker() {
        security_defaults::apply(&mut spec);
    }
    if let Some(seconds) = section.seconds() {
        spec["activeDeadlineSeconds"] = json!(seconds);
    }
    depends_on.extend(section.depends_on.iter().map(Address::new));
    let path = FieldPath::keys(["spec"]);
    provenance.push((path.key("activeDeadlineSeconds"), origin.key("time_limit")));
    let files = own_code.filter(|_| !on_hosts).and_then(|code| code.resource(&address, scope));
    depends_on.extend(files.as_ref().map(|files| files.address.clone()));
    let check = Resource {
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
    };
    (check, files)
}

/// Returns what a check on the GPUs of workers depends on, beside its own text: their images, their machines and the driver.
fn gpu_nodes(cluster: &DaskCluster, scope: &Scope) -> String {
    let workers = cluster.gpu_workers().map(|workers| {
        let pool = workers.keys.pool.as_deref().and_then(|pool| scope.pool(pool));
        format!(" {} {}", workers.image, pool.map_or("", |pool| &pool.hardware))
    });
    format!("{} {:?}", workers.collect::<String>(), scope.driver)
}

/// The pod of a check, without its name.
struct CheckPod<'a> {
    metadata: Value,
    spec: Value,
    provenance: Vec<(FieldPath, FieldPath)>,
    /// The key of the pool that it runs on.
    pool: Option<&'a str>,
    depends_on: Vec<Address>,
}

/// Returns the pod of a check that does not copy a worker.
fn plain_pod<'a>(
    section: &'a Check,
    (namespace, code): (&str, Option<&PodCode<'_>>),
    origin: &FieldPath,
    scope: &Scope,
) -> CheckPod<'a> {
    let on_hosts = scope.target.is_on_hosts();
    let named_cluster = scope.dask_cluster(section.cluster.as_deref());
    let cluster = named_cluster.filter(|_| section.is_client(on_hosts));
    let (mut spec, annotations) = match &section.run {
        CheckRun::Program(words) => {
            client(&check_program::own(words, &section.resources), section, cluster, scope)
        }
        CheckRun::BuiltIn(check) if section.is_client(on_hosts) => {
            client(&check.program().client(), section, cluster, scope)
        }
        CheckRun::BuiltIn(BuiltInCheck::Cudf) => {
            let image = section.image.as_deref().or(named_cluster.map(|facts| facts.image.as_str()));
            (cudf(image.unwrap_or_default(), scope), Value::Null)
        }
        CheckRun::BuiltIn(_) => (vectoradd(section.image.as_deref()), Value::Null),
    };
    if let Some(pool) = section.pool.as_ref().and_then(|pool| scope.pool(pool)) {
        on_pool(&mut spec, pool);
    }
    section.machines.add_to_pod(&mut spec);
    let mut metadata = json!({ "labels": scope.labels() });
    if !annotations.is_null() {
        metadata["annotations"] = annotations;
    }
    let path = FieldPath::keys(["spec"]);
    let mut provenance = vec![(path.key("nodeSelector"), origin.key("pool"))];
    if let Some(code) = code.filter(|_| !on_hosts) {
        code.add_to(&mut spec, &Env::new(), None);
        provenance.extend(code.provenance(&spec, &path, None));
    }
    provenance.extend(Machines::provenance(&path, origin));
    let pool = section.pool.as_deref();
    let depends_on = dependencies(pool, cluster, namespace, scope);
    CheckPod { metadata, spec, provenance, pool, depends_on }
}

/// Returns the pod of a program that runs as a worker of a Dask cluster would.
fn like_worker<'a>(
    section: &Check,
    words: &[String],
    ((cluster, like), code): ((&String, &'a DaskCluster), Option<&PodCode<'_>>),
    origin: &FieldPath,
    scope: &Scope,
) -> CheckPod<'a> {
    let keys = &like.worker.keys;
    let namespace = like.namespace();
    let pod_keys = PodSpecKeys {
        image: section.image.as_deref().unwrap_or(&like.image),
        args: words,
        keys,
        resources: None,
        config: Some(&like.config),
    };
    // The container is named `worker`, so that `pod` of the workers is merged into it.
    let mut spec = dask_pods::like_worker(&pod_keys, &like.worker.process, scope);
    let path = FieldPath::keys(["spec"]);
    let cluster = FieldPath::keys(["dask_cluster", cluster]);
    let worker = cluster.key("worker");
    let image = if section.image.is_some() { origin } else { &cluster };
    let mut provenance = template::provenance(&path, &worker, &image.key("image"));
    provenance.push((path.key("containers").index(0).key("args"), origin.key("run")));
    if let Some(code) = code {
        let of_workers = like.worker.working_dir.as_deref().filter(|_| section.code.working_dir.is_none());
        code.add_to(&mut spec, &keys.env, of_workers);
        provenance.extend(code.provenance(&spec, &path, of_workers.map(|_| worker.key("working_dir"))));
    }
    let mut pod = json!({ "metadata": { "labels": scope.labels() }, "spec": spec });
    keys.merge_into(&mut pod, &FieldPath::root(), &worker, &mut provenance);
    only_program(&mut pod["spec"], words);
    let pool = keys.pool.as_deref();
    let mut depends_on = dependencies(pool, None, namespace, scope);
    depends_on.extend(env::dependencies(keys.env.values(), namespace, &scope.owner));
    let (metadata, spec) = (pod["metadata"].take(), pod["spec"].take());
    CheckPod { metadata, spec, provenance, pool, depends_on }
}

/// Leaves one container in a pod, which runs the program once: the worker's own command, its probes and its sidecars would run
/// something else, or go on after it.
fn only_program(spec: &mut Value, words: &[String]) {
    if let Some(containers) = spec["containers"].as_array_mut() {
        containers.retain(|container| container["name"] == "worker");
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            for key in ["command", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "ports"] {
                container.remove(key);
            }
            container.insert("args".to_owned(), json!(words));
        }
    }
    spec["restartPolicy"] = json!("Never");
}

/// Makes a pod run on a node pool. The pod already tolerates the taint of GPU nodes.
fn on_pool(spec: &mut Value, pool: &PoolFacts) {
    spec["nodeSelector"] = json!({ POOL_LABEL: pool.name });
    for taint in pool.taints.iter().filter(|taint| taint.key != "nvidia.com/gpu") {
        let toleration = json!({
            "key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect.kubernetes(),
        });
        append(spec, "tolerations", vec![toleration]);
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

/// The longest program in a line of a plan, in characters.
const PROGRAM_WIDTH: usize = 40;

/// Returns the words of the user's program: `python -m etl.smoke`.
fn own_program(pod: &Value) -> Option<String> {
    if check_program::passed(pod).is_some() {
        return None;
    }
    let container = &pod["spec"]["containers"][0];
    let words = ["args", "command"].into_iter().find_map(|key| container[key].as_array())?;
    let line = words.iter().map(text).collect::<Vec<_>>().join(" ").replace('\n', " ");
    let shown: String = line.chars().take(PROGRAM_WIDTH).collect();
    Some(if shown.len() < line.len() { format!("{}…", shown.trim_end()) } else { line })
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
    let mut container = check_program::container(check_program::CUDF, image);
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
fn client(client: &Client<'_>, check: &Check, cluster: Option<&DaskFacts>, scope: &Scope) -> (Value, Value) {
    let least = check.least();
    match cluster {
        Some(facts) if scope.target.is_on_hosts() => check_program::on_host(client, facts, least),
        Some(facts) => {
            let mut spec = check_program::in_cluster(client, facts, least);
            if let Some(image) = &check.image {
                spec["containers"][0]["image"] = json!(image);
            }
            (spec, Value::Null)
        }
        None => (check_program::without_cluster(client), Value::Null),
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
    // A node may have to come first, for which the limit does not count.
    let seconds = body["spec"]["activeDeadlineSeconds"].as_u64();
    let deadline = seconds.and_then(|seconds| u32::try_from(seconds).ok()).map_or(DEADLINE, |s| DEADLINE + s);
    let wait = |until| {
        let (identity, kind) = (Identity::Object(pod.clone()), KindId::Check);
        Step::Await(Await { kind, identity, until, facts: Facts::None, deadline })
    };
    // Equal text means the same pod: apply adopts the pod that an interrupted apply left behind, and reads its log to the end. It
    // does not apply the pod again, because few fields of a pod can change after creation.
    let create = create_call(&pod, context.owner, body);
    let expect = check_program::passed(body).map(str::to_owned);
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
        Step::ReadLog { pod: pod.clone(), expect },
        Step::Call(delete),
        wait(Until::Gone),
        Step::RecordCompletion { digest: digest(body) },
    ]
}

/// Returns ready once the pod ran to completion. Another step reads the log, which for a built-in check decides.
fn readiness(pod: &Value) -> Readiness {
    if let Some(reason) = broken(PodState(pod)) {
        return Readiness::Failed(reason);
    }
    if pod["status"]["phase"] == "Failed" && check_program::passed(pod).is_none() {
        return Readiness::Failed(failure(PodState(pod)));
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
            _ if check_program::is_on_host(pod) => Readiness::progressing("it computes"),
            _ if phase == "Pending" => Readiness::progressing("its pod is starting"),
            _ => Readiness::progressing(format!("its pod is {phase}")),
        },
    }
}

/// Returns why the user's program did not pass.
fn failure(pod: PodState<'_>) -> String {
    // Of the pod itself: its time is over, it was evicted.
    let (reason, message) = (text(&pod.0["status"]["reason"]), text(&pod.0["status"]["message"]));
    match (reason, message) {
        ("", "") => why(pod).unwrap_or_else(|| "its Pod failed".to_owned()),
        ("", words) | (words, "") => words.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}
