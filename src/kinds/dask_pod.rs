//! Pods of Dask: how schedulers and workers are built from short forms, and why one does not run.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::node_pool::POOL_LABEL;
use super::{Scope, condition, count, text};

/// What a pod runs, with what and where: the short form that schedulers and workers share.
pub struct Wants<'a> {
    /// The image.
    pub image: &'a str,
    /// Arguments of the image's entry point; none for the default ones.
    pub args: &'a [String],
    /// Environment variables.
    pub env: &'a BTreeMap<String, String>,
    /// GPUs.
    pub gpus: u32,
    /// CPUs, as a quantity.
    pub cpu: Option<&'a String>,
    /// Memory, as a quantity.
    pub memory: Option<&'a String>,
    /// The key of the node pool that it must run on.
    pub pool: Option<&'a String>,
    /// The key of the node pool that it runs on when there is room.
    pub prefer_pool: Option<&'a String>,
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
    let command: &[&str] = if wants.gpus > 0 { &["dask", "cuda", "worker"] } else { &["dask", "worker"] };
    let named = command.iter().copied().chain(["--name", "$(DASK_WORKER_NAME)"]);
    let args = if wants.args.is_empty() { json!(named.collect::<Vec<_>>()) } else { json!(wants.args) };
    let container = json!({
        "name": "worker",
        "image": wants.image,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
    });
    pod(container, wants, scope)
}

fn pod(mut container: Value, wants: &Wants, scope: &Scope) -> Value {
    let Wants { image: _, args: _, env, gpus, cpu, memory, pool, prefer_pool } = wants;
    let find = |key: &Option<&String>| key.and_then(|key| scope.pool(key));
    let (pool, prefer) = (find(pool), find(prefer_pool));
    if !env.is_empty() {
        container["env"] = env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    }
    // Quantities as text: the schema of these kinds refuses numbers.
    for (resource, amount) in [("cpu", cpu), ("memory", memory)] {
        if let Some(amount) = amount {
            container["resources"]["requests"][resource] = json!(amount);
            container["resources"]["limits"][resource] = json!(amount);
        }
    }
    let mut tolerations = Vec::new();
    if *gpus > 0 {
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

/// What is waited for, with the word of a pod that says why.
pub(crate) fn with_pods(what: &str, pods: &Value, component: &str) -> String {
    let list = pods["items"].as_array().into_iter().flatten();
    let mut own = list.filter(|pod| pod["metadata"]["labels"]["dask.org/component"] == component);
    match own.find_map(pending) {
        Some(why) => format!("{what}: {why}"),
        None => what.to_owned(),
    }
}

/// Why a pod does not run yet, when it says.
fn pending(pod: &Value) -> Option<String> {
    if let Some(scheduled) = condition(pod, "PodScheduled")
        && scheduled["status"] == "False"
    {
        return Some(format!(
            "{} is unschedulable: {}",
            text(&pod["metadata"]["name"]),
            text(&scheduled["message"])
        ));
    }
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    let reason = text(&waiting["reason"]);
    (!reason.is_empty()).then(|| format!("{} is in {reason}", text(&pod["metadata"]["name"])))
}

/// Why a pod will not run without help: an image that cannot be pulled, or a container that crashes again
/// and again.
pub(crate) fn broken(pod: &Value) -> Option<String> {
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let initial = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
    let name = text(&pod["metadata"]["name"]);
    initial.chain(containers).find_map(|container| {
        let waiting = &container["state"]["waiting"];
        let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
        let crashed = reason == "CrashLoopBackOff" && count(&container["restartCount"]) >= 3;
        let unpullable = matches!(reason, "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull");
        (crashed || unpullable).then(|| format!("pod {name}: {reason}: {message}"))
    })
}
