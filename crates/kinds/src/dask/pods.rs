//! Pods of Dask: builds schedulers and workers from short keys, and tells why they are not ready.

use serde_json::{Value, json};

use crate::dask::api::{CLUSTER_LABEL, COMPONENT_LABEL, GROUP_LABEL, UNHANDLED};
use crate::dask::device_memory::DeviceMemoryKeys;
use crate::dask::kopf::scaled_to;
use crate::dask::process::ProcessKeys;
use crate::dask::worker_count::RegisteredWorkers;
use crate::json::{append, text};
use crate::kind::PodSource;
use crate::kubernetes::object::pods_labelled;
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::pods::{gpus, gpus_held, why};
use crate::kubernetes::template;
pub use crate::kubernetes::template::{PodSpecKeys, provenance};
use crate::kubernetes::workload::deployment_ready;
use crate::scope::{DASK_OPERATOR, Scope};
use crate::worker_resources::WorkerResources;
use model::address::Address;
use model::resource::{Await, Identity, Progress, Readiness, Resource, Until};

/// Returns the source of the pods of a cluster or of a job: a job's cluster has its name, and its program's pod has the same
/// labels.
pub(crate) fn of_cluster(resource: &Resource) -> PodSource {
    labelled(CLUSTER_LABEL, resource)
}

/// Returns the source of the pods of a group.
pub(crate) fn of_group(resource: &Resource) -> PodSource {
    labelled(GROUP_LABEL, resource)
}

fn labelled(label: &str, resource: &Resource) -> PodSource {
    let Identity::Object(object) = &resource.identity else { return PodSource::None };
    PodSource::Known(pods_labelled(object.namespace.as_deref(), [(label, object.name.as_str())]))
}

/// Returns the addresses that a Dask resource with these pods depends on, including the operator.
pub fn dependencies(pods: &[&PodSpecKeys], namespace: &str, scope: &Scope) -> Vec<Address> {
    template::dependencies(pods, namespace, scope.section(DASK_OPERATOR), scope)
}

/// Returns the PodSpec of a scheduler.
pub fn scheduler(pod_keys: &PodSpecKeys, scope: &Scope) -> Value {
    let args = if pod_keys.args.is_empty() { json!(["dask", "scheduler"]) } else { json!(pod_keys.args) };
    // Ports by name: the schema refuses numbers in probes and services.
    let probe = |delay: u32, period: u32| {
        let get = json!({ "path": "/health", "port": "http-dashboard" });
        json!({ "httpGet": get, "initialDelaySeconds": delay, "periodSeconds": period })
    };
    let port = |name: &str, number: u32| json!({ "name": name, "containerPort": number, "protocol": "TCP" });
    let container = json!({
        "name": "scheduler",
        "image": pod_keys.image,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
        "ports": [port("tcp-comm", 8786), port("http-dashboard", 8787)],
        "readinessProbe": probe(5, 10),
        "livenessProbe": probe(15, 20),
    });
    template::pod(container, pod_keys, scope)
}

/// Returns the PodSpec of a worker. The two-word commands work in every image; one-word ones were removed in distributed
/// 2026.6.0.
pub fn worker(
    pod_keys: &PodSpecKeys,
    process: &ProcessKeys,
    device_memory: &DeviceMemoryKeys,
    scope: &Scope,
) -> Value {
    let command: &[&str] =
        if pod_keys.keys.gpus() > 0 { &["dask", "cuda", "worker"] } else { &["dask", "worker"] };
    let named = command.iter().copied().chain(["--name", "$(DASK_WORKER_NAME)"]);
    let mut args: Vec<String> =
        if pod_keys.args.is_empty() { named.map(str::to_owned).collect() } else { pod_keys.args.to_vec() };
    args.extend(process.args());
    args.extend(device_memory.args());
    args.extend(pod_keys.resources.into_iter().flat_map(WorkerResources::args));
    worker_pod(&args, pod_keys, process, scope)
}

/// Returns the PodSpec of a program in the place of a worker: the arguments are those of `pod_keys`.
pub fn like_worker(pod_keys: &PodSpecKeys, process: &ProcessKeys, scope: &Scope) -> Value {
    worker_pod(pod_keys.args, pod_keys, process, scope)
}

fn worker_pod(args: &[String], pod_keys: &PodSpecKeys, process: &ProcessKeys, scope: &Scope) -> Value {
    let container = json!({
        "name": "worker",
        "image": pod_keys.image,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
    });
    let mut pod = template::pod(container, pod_keys, scope);
    let variable = |(name, value): (String, String)| json!({ "name": name, "value": value });
    append(&mut pod["containers"][0], "env", process.variables().into_iter().map(variable).collect());
    pod
}

/// Returns the PodSpec of a job's program.
pub fn program(pod_keys: &PodSpecKeys, scope: &Scope) -> Value {
    let container = json!({
        "name": "job",
        "image": pod_keys.image,
        "imagePullPolicy": "IfNotPresent",
        "args": pod_keys.args,
    });
    template::pod(container, pod_keys, scope)
}

/// The workers of one group.
pub struct Workers<'a> {
    /// The wait. Its facts have the desired number if the file owns it.
    pub wait: &'a Await,
    /// The live group, which has the desired number if the file does not own it.
    pub group: &'a Value,
    /// The group's name.
    pub name: &'a str,
    /// Worker Deployments.
    pub workers: &'a Value,
    pub pods: &'a Value,
    /// The scheduler's report on the workers of the whole cluster, if it was read.
    pub registered: Option<RegisteredWorkers>,
    /// True if the operator has handled every edit: then a number other than the desired one was set by another owner.
    pub number_is_final: bool,
    /// The DaskAutoscalers of the namespace, if they were read.
    pub autoscalers: Option<&'a Value>,
}

/// Returns the desired number of workers, and its owner if that is not the stack. A kept resource may have been scaled since. A
/// plan reports that as drift, and its workers still count as ready.
pub fn desired(wait: &Await, group: &Value) -> (u64, String) {
    let live = group["spec"]["worker"]["replicas"].as_u64();
    match (wait.workers(), live) {
        (Some(file), Some(live)) if file != live && wait.until == Until::StillReady => {
            (live, format!(" (the stack says {file})"))
        }
        (file, live) => (file.or(live).unwrap_or(1), String::new()),
    }
}

/// The numbers of workers of a group, for `status`.
pub struct WorkerCounts {
    desired: u64,
    whose: String,
    created: usize,
    ready: usize,
    registered: Option<RegisteredWorkers>,
    gpus: u64,
}

impl WorkerCounts {
    /// Counts the workers in the worker Deployments, in the pods of the whole Dask cluster, and in the scheduler's report if it
    /// was read.
    pub fn of(
        wait: &Await,
        group: &Value,
        workers: &[&Value],
        pods: &Value,
        registered: Option<RegisteredWorkers>,
    ) -> Self {
        let (desired, whose) = desired(wait, group);
        let ready = workers.iter().filter(|worker| deployment_ready(worker) == Readiness::Ready).count();
        let name = text(&group["metadata"]["name"]);
        let own = PodState::each(pods).filter(|pod| ["", name].contains(&pod.label(GROUP_LABEL)));
        Self { desired, whose, created: workers.len(), ready, registered, gpus: gpus(own) }
    }

    /// Returns `workers: 2 desired, 2 made, 1 ready`. The report of a scheduler that is not ready is outdated.
    pub fn line(&self, scheduler_ready: bool) -> String {
        let Self { desired, whose, created: made, ready, registered, gpus } = self;
        let known = registered.as_ref().filter(|_| scheduler_ready).map(RegisteredWorkers::status_line);
        let (known, held) = (known.unwrap_or_default(), gpus_held(*gpus));
        format!("workers: {desired} desired{whose}, {made} created, {ready} ready{known}{held}")
    }

    /// Returns the numbers by name, for the JSON output.
    pub fn facts(&self) -> [(&'static str, Value); 5] {
        [
            ("workers_wanted", json!(self.desired)),
            ("workers_made", json!(self.created)),
            ("workers_ready", json!(self.ready)),
            ("workers_registered", self.registered.as_ref().map_or(Value::Null, RegisteredWorkers::fact)),
            ("gpus", json!(self.gpus)),
        ]
    }
}

/// Returns the readiness while the operator has not handled the desired state.
pub fn unhandled(wait: &Await, group: &Value) -> Readiness {
    let asked = group["spec"]["worker"]["replicas"].as_u64();
    match (wait.workers(), asked) {
        (Some(file), Some(asked)) if file != asked && wait.until == Until::Ready => {
            group_number_differs(file)
        }
        _ => Readiness::Unhandled(UNHANDLED.into()),
    }
}

fn group_number_differs(desired: u64) -> Readiness {
    Readiness::progressing(format!("{UNHANDLED}; its worker group does not request {desired} yet"))
}

impl Workers<'_> {
    /// Returns ready if there are as many workers as desired, and all are ready.
    pub fn ready(&self) -> Readiness {
        let of_group = |worker: &&Value| worker["metadata"]["labels"][GROUP_LABEL] == *self.name;
        let list: Vec<&Value> =
            self.workers["items"].as_array().into_iter().flatten().filter(of_group).collect();
        let file = self.wait.workers();
        let asked = self.group["spec"]["worker"]["replicas"].as_u64();
        let desired = match desired(self.wait, self.group) {
            (desired, _) if self.number_is_final => desired,
            (desired, _) => file.unwrap_or(desired),
        };
        let ready = list.iter().filter(|worker| deployment_ready(worker) == Readiness::Ready).count() as u64;
        let made = list.len() as u64;
        if let Some(asked) = asked.filter(|asked| *asked != desired) {
            return match self.number_is_final {
                true => Readiness::Failed(self.second_owner(asked, desired)),
                false => Readiness::progressing(format!(
                    "its worker group requests {asked} workers, not {desired} yet"
                )),
            };
        }
        if made > desired {
            return self.too_many(&list, desired);
        }
        if ready < desired {
            let what = format!("{ready} of {desired} workers ready");
            return Readiness::Progressing(with_pods(what, self.pods, "worker"));
        }
        match self.registered.as_ref().and_then(RegisteredWorkers::missing) {
            Some(missing) => Readiness::progressing(missing),
            None => Readiness::Ready,
        }
    }

    /// Describes the other owner of the number. The operator has handled everything, so waiting would not help.
    fn second_owner(&self, asked: u64, desired: u64) -> String {
        let Self { group, autoscalers, name, .. } = self;
        let scalers = autoscalers.iter().flat_map(|list| list["items"].as_array()).flatten();
        let cluster = &group["spec"]["cluster"];
        // An autoscaler writes the default group only. Source: `operator/controller/controller.py` of dask-kubernetes 2026.3.0.
        let is_default = cluster.as_str().is_some_and(|cluster| *name == format!("{cluster}-default"));
        let scaler = scalers.filter(|_| is_default).find(|scaler| scaler["spec"]["cluster"] == *cluster);
        let (who, cure) = match (scaler, last_writer(group)) {
            (Some(scaler), _) => {
                let (spec, metadata) = (&scaler["spec"], &scaler["metadata"]);
                let whose = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
                let bounds = format!("{} to {} workers", spec["minimum"], spec["maximum"]);
                (
                    format!("DaskAutoscaler {whose} ({bounds}) sets the number, too"),
                    "delete the autoscaler, or leave the number to it: `replicas = { start = N }` in a section, no \
                     `replicas` in a manifest",
                )
            }
            (None, Some(writer)) => (
                format!("`{writer}` changed it during the apply"),
                "apply again once nobody else sets the number, or leave it to them: `replicas = { start = N }`",
            ),
            (None, None) => (
                "it was changed during the apply".to_owned(),
                "apply again once nobody else sets the number, or leave it to them: `replicas = { start = N }`",
            ),
        };
        format!("DaskWorkerGroup {name} requests {asked} workers, the stack says {desired}: {who}; {cure}")
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
        Readiness::progressing(format!("{surplus} of {} workers still to be removed", list.len()))
    }
}

/// Returns the field manager that wrote the number of a group last. Writes through the scale subresource have no time (seen on
/// kube-apiserver 1.36), so such a manager counts as the last.
fn last_writer(group: &Value) -> Option<&str> {
    let entries = group["metadata"]["managedFields"].as_array()?.iter();
    let wrote = entries.filter(|entry| entry["fieldsV1"]["f:spec"]["f:worker"]["f:replicas"].is_object());
    let last = wrote.max_by_key(|entry| entry["time"].as_str().unwrap_or("~"))?;
    Some(text(&last["manager"])).filter(|manager| !manager.is_empty())
}

/// Returns a [`Progress`] that names the first blocked pod of the resource.
pub(crate) fn with_pods(what: impl Into<String>, pods: &Value, component: &str) -> Progress {
    let mut own =
        PodState::each(pods).filter(|pod| pod.label(COMPONENT_LABEL) == component && !pod.is_ready());
    Progress { what: what.into(), blocked_by: own.find_map(why) }
}
