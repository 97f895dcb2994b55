//! Pods of Dask: how schedulers and workers are built from short forms, and why one does not run.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::api::{CLUSTER_LABEL, COMPONENT_LABEL, GROUP_LABEL, UNSEEN};
use super::handled::scaled_to;
use super::registered::Registered;
use crate::address::{Address, FieldPath};
use crate::kinds::env;
use crate::kinds::json::text;
use crate::kinds::kind::Where;
use crate::kinds::kubernetes::object::pods_labelled;
use crate::kinds::kubernetes::pod_state::PodState;
use crate::kinds::kubernetes::pods::{gpus, gpus_held, why};
use crate::kinds::kubernetes::workload::deployment_ready;
use crate::kinds::scope::{POOL_LABEL, Scope};
use crate::kinds::section::PodKeys;
use crate::resource::{Await, Identity, Readiness, Resource, Until};

/// What a pod runs, with what and where: the short form that schedulers and workers share.
pub struct Wants<'a> {
    pub image: &'a str,
    /// Arguments of the image's entry point; none for the default ones.
    pub args: &'a [String],
    /// What it gets and where it runs.
    pub keys: &'a PodKeys,
    /// Dask's own resources, for workers.
    pub resources: Option<&'a BTreeMap<String, f64>>,
}

/// The pods of a cluster, or of a job: its cluster is called as it is, and its program's pod is labelled like the others.
pub(super) fn of_cluster(resource: &Resource) -> Where {
    labelled(CLUSTER_LABEL, resource)
}

/// The pods of a group.
pub(super) fn of_group(resource: &Resource) -> Where {
    labelled(GROUP_LABEL, resource)
}

fn labelled(label: &str, resource: &Resource) -> Where {
    let Identity::Object(object) = &resource.identity else { return Where::Nowhere };
    Where::Here(pods_labelled(object.namespace.as_deref(), [(label, object.name.as_str())]))
}

/// What a thing of Dask with these pods follows: its namespace, the operator, the pools, the driver where GPUs are
/// asked for, and the checks of those pools: a check needs a free GPU, so it comes first.
pub fn follows(pods: &[&Wants], namespace: &str, scope: &Scope) -> Vec<Address> {
    let pools: Vec<&String> =
        pods.iter().flat_map(|pod| [&pod.keys.pool, &pod.keys.prefer_pool]).flatten().collect();
    let mut follows = scope.in_namespace(namespace);
    follows.extend(scope.section(crate::kinds::scope::DASK_OPERATOR));
    follows.extend(pools.iter().map(|pool| Address::of("node_pool", pool)));
    if pods.iter().any(|pod| pod.keys.gpus() > 0) {
        follows.extend(scope.section("gpu_driver"));
    }
    let variables = pods.iter().flat_map(|pod| pod.keys.env.values());
    follows.extend(env::follows(variables, namespace, &scope.owner));
    let ours = |pool: &Option<String>| pool.as_ref().is_none_or(|pool| pools.contains(&pool));
    follows.extend(scope.checks.iter().filter(|(_, pool)| ours(pool)).map(|(address, _)| address.clone()));
    follows
}

/// Where the parts of a PodSpec come from in the stack file.
pub fn provenance(pod: &FieldPath, section: &FieldPath, image: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
    let container = pod.key("containers").index(0);
    vec![
        (pod.clone(), section.clone()),
        (container.key("image"), image.clone()),
        (container.key("args"), section.key("args")),
        (container.key("env"), section.key("env")),
        (container.key("resources"), section.key("gpus")),
        (pod.key("nodeSelector"), section.key("pool")),
        (pod.key("affinity"), section.key("prefer_pool")),
    ]
}

/// The PodSpec of a scheduler.
pub fn scheduler(wants: &Wants, scope: &Scope) -> Value {
    let args = if wants.args.is_empty() { json!(["dask", "scheduler"]) } else { json!(wants.args) };
    // Ports by name: the schema refuses numbers in probes and services.
    let probe = |delay: u32, period: u32| {
        let get = json!({ "path": "/health", "port": "http-dashboard" });
        json!({ "httpGet": get, "initialDelaySeconds": delay, "periodSeconds": period })
    };
    let port = |name: &str, number: u32| json!({ "name": name, "containerPort": number, "protocol": "TCP" });
    let container = json!({
        "name": "scheduler",
        "image": wants.image,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
        "ports": [port("tcp-comm", 8786), port("http-dashboard", 8787)],
        "readinessProbe": probe(5, 10),
        "livenessProbe": probe(15, 20),
    });
    pod(container, wants, scope)
}

/// The PodSpec of a worker. The two-word commands work in every image; one-word ones were removed in distributed
/// 2026.6.0.
pub fn worker(wants: &Wants, scope: &Scope) -> Value {
    let command: &[&str] =
        if wants.keys.gpus() > 0 { &["dask", "cuda", "worker"] } else { &["dask", "worker"] };
    let named = command.iter().copied().chain(["--name", "$(DASK_WORKER_NAME)"]);
    let mut args: Vec<String> =
        if wants.args.is_empty() { named.map(str::to_owned).collect() } else { wants.args.to_vec() };
    let resources = wants.resources.into_iter().flatten().map(|(name, amount)| format!("{name}={amount}"));
    let resources: Vec<String> = resources.collect();
    if !resources.is_empty() {
        args.extend(["--resources".to_owned(), resources.join(" ")]);
    }
    let container = json!({
        "name": "worker",
        "image": wants.image,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
    });
    pod(container, wants, scope)
}

/// The PodSpec of a job's program.
pub fn program(wants: &Wants, scope: &Scope) -> Value {
    let container = json!({
        "name": "job",
        "image": wants.image,
        "imagePullPolicy": "IfNotPresent",
        "args": wants.args,
    });
    pod(container, wants, scope)
}

/// A PodSpec with one container, of which only the image is said.
pub fn bare(name: &str, wants: &Wants, scope: &Scope) -> Value {
    pod(json!({ "name": name, "image": wants.image, "imagePullPolicy": "IfNotPresent" }), wants, scope)
}

fn pod(mut container: Value, wants: &Wants, scope: &Scope) -> Value {
    let PodKeys { gpus: _, cpu, memory, pool, prefer_pool, env: variables, pod: _ } = wants.keys;
    let gpus = wants.keys.gpus();
    let find = |key: &Option<String>| key.as_ref().and_then(|key| scope.pool(key));
    let (pool, prefer) = (find(pool), find(prefer_pool));
    if !variables.is_empty() {
        container["env"] = env::list(variables, &env::own_secret(&scope.owner));
    }
    // Quantities as text: the schema of these kinds refuses numbers.
    for (resource, amount) in [("cpu", cpu), ("memory", memory)] {
        if let Some(amount) = amount {
            container["resources"]["requests"][resource] = json!(amount);
            container["resources"]["limits"][resource] = json!(amount);
        }
    }
    let mut tolerations = Vec::new();
    if gpus > 0 {
        container["resources"]["limits"]["nvidia.com/gpu"] = json!(gpus.to_string());
        tolerations.push(json!({ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }));
    }
    for taint in pool.iter().chain(&prefer).flat_map(|pool| &pool.taints) {
        let toleration = json!({
            "key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect.kubernetes(),
        });
        if taint.key != "nvidia.com/gpu" && !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    let mut pod_spec = json!({ "containers": [container] });
    if !tolerations.is_empty() {
        pod_spec["tolerations"] = json!(tolerations);
    }
    if let Some(pool) = pool {
        pod_spec["nodeSelector"] = json!({ POOL_LABEL: pool.name });
    }
    if let Some(prefer) = prefer {
        let matches = json!([{ "key": POOL_LABEL, "operator": "In", "values": [prefer.name] }]);
        pod_spec["affinity"] = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 100, "preference": { "matchExpressions": matches } },
        ] } });
    }
    pod_spec
}

/// The workers of one group.
pub struct Workers<'a> {
    /// The wait; its facts may say how many there must be.
    pub wait: &'a Await,
    /// The live group, which says how many there must be when the number is not the file's.
    pub group: &'a Value,
    /// The group's name.
    pub name: &'a str,
    /// Worker Deployments.
    pub workers: &'a Value,
    pub pods: &'a Value,
    /// What the scheduler says of the workers of the whole cluster, where it was asked.
    pub registered: Option<Registered>,
    /// Whether another number than the wanted one is somebody's wish, and not one that the operator has still to follow.
    pub settled: bool,
}

/// How many workers there should be, and whose number that is where it is not the stack's. What is kept may have been
/// scaled since, which a plan tells as a change of others: its workers are no less ready for it.
pub fn desired(wait: &Await, group: &Value) -> (u64, String) {
    let live = group["spec"]["worker"]["replicas"].as_u64();
    match (wait.workers(), live) {
        (Some(file), Some(live)) if file != live && wait.until == Until::Still => {
            (live, format!(" (the stack says {file})"))
        }
        (file, live) => (file.or(live).unwrap_or(1), String::new()),
    }
}

/// How many workers of a group there are, for `status`.
pub struct Tally {
    desired: u64,
    whose: String,
    made: usize,
    ready: usize,
    registered: Option<Registered>,
    gpus: u64,
}

impl Tally {
    /// Of worker Deployments, the pods of the group, and what the scheduler says where it was asked.
    pub fn of(
        wait: &Await,
        group: &Value,
        workers: &[&Value],
        pods: &Value,
        registered: Option<Registered>,
    ) -> Self {
        let (desired, whose) = desired(wait, group);
        let ready = workers.iter().filter(|worker| deployment_ready(worker) == Readiness::Ready).count();
        Self { desired, whose, made: workers.len(), ready, registered, gpus: gpus(pods) }
    }

    /// `workers: 2 desired, 2 made, 1 ready`; what a scheduler says that is not ready is of before.
    pub fn line(&self, scheduler_ready: bool) -> String {
        let Self { desired, whose, made, ready, registered, gpus } = self;
        let known = registered.as_ref().filter(|_| scheduler_ready).map(Registered::status_line);
        let (known, held) = (known.unwrap_or_default(), gpus_held(*gpus));
        format!("workers: {desired} desired{whose}, {made} created, {ready} ready{known}{held}")
    }

    /// The same for programs.
    pub fn facts(&self) -> [(&'static str, Value); 5] {
        [
            ("workers_wanted", json!(self.desired)),
            ("workers_made", json!(self.made)),
            ("workers_ready", json!(self.ready)),
            ("workers_registered", self.registered.as_ref().map_or(Value::Null, Registered::fact)),
            ("gpus", json!(self.gpus)),
        ]
    }
}

/// What an apply waits for while the operator has not handled what is wanted.
pub fn unseen(wait: &Await, group: &Value) -> Readiness {
    let asked = group["spec"]["worker"]["replicas"].as_u64();
    match (wait.workers(), asked) {
        (Some(file), Some(asked)) if file != asked && wait.until == Until::Ready => asks_otherwise(file),
        _ => Readiness::Progressing(UNSEEN.into()),
    }
}

fn asks_otherwise(desired: u64) -> Readiness {
    Readiness::Progressing(format!("{UNSEEN}; its worker group does not request {desired} yet"))
}

impl Workers<'_> {
    /// Whether there are as many as wanted, and all ready.
    pub fn ready(&self) -> Readiness {
        let of_group = |worker: &&Value| worker["metadata"]["labels"][GROUP_LABEL] == *self.name;
        let list: Vec<&Value> =
            self.workers["items"].as_array().into_iter().flatten().filter(of_group).collect();
        let file = self.wait.workers();
        let asked = self.group["spec"]["worker"]["replicas"].as_u64();
        let desired = match desired(self.wait, self.group) {
            (desired, _) if self.settled => desired,
            (desired, _) => file.unwrap_or(desired),
        };
        let ready = list.iter().filter(|worker| deployment_ready(worker) == Readiness::Ready).count() as u64;
        let made = list.len() as u64;
        if asked.is_some_and(|asked| asked != desired) {
            return asks_otherwise(desired);
        }
        if made > desired {
            return self.too_many(&list, desired);
        }
        if ready < desired {
            let what = format!("{ready} of {desired} workers ready");
            return Readiness::Progressing(with_pods(&what, self.pods, "worker"));
        }
        match self.registered.as_ref().and_then(Registered::missing) {
            Some(missing) => Readiness::Progressing(missing),
            None => Readiness::Ready,
        }
    }

    fn too_many(&self, list: &[&Value], desired: u64) -> Readiness {
        let surplus = (list.len() as u64).saturating_sub(desired);
        let staying = list.iter().filter(|worker| worker["metadata"]["deletionTimestamp"].is_null());
        let names: Vec<&str> = staying.map(|worker| text(&worker["metadata"]["name"])).collect();
        if names.len() as u64 > desired && scaled_to(self.group) == Some(desired) {
            return Readiness::Failed(format!(
                "the Dask operator reports that it scaled to {desired}, but left {}: its scheduler named no \
                 worker to retire, and the operator does not retry; the next apply deletes {surplus} of the \
                 Deployments {}",
                names.len(),
                names.join(", ")
            ));
        }
        Readiness::Progressing(format!("{surplus} of {} workers still to be removed", list.len()))
    }
}

/// How far something is, and what holds up the first of its pods that says so.
pub(crate) fn with_pods(what: &str, pods: &Value, component: &str) -> String {
    let mut own =
        PodState::each(pods).filter(|pod| pod.label(COMPONENT_LABEL) == component && !pod.is_ready());
    match own.find_map(why) {
        Some(why) => format!("{what}; {why}"),
        None => what.to_owned(),
    }
}
