//! The common part of the workload controllers: pods from templates, counting pods, choosing those to delete.
//!
//! From memory of `pkg/controller/controller_utils.go` (`GetPodFromTemplate`, `ActivePods`).

use serde_json::{Value, json};

use super::super::object::{
    is_deleted, is_finished, is_true, key, list, name, namespace, number, reference_to, text, uid,
};
use super::round::Run;

/// The field manager of the workload controllers.
pub const MANAGER: &str = "kube-controller-manager";

/// The priority classes that every cluster has.
const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// `spec.replicas`, 1 when absent.
pub fn replicas(object: &Value) -> i64 {
    number(object, "/spec/replicas").unwrap_or(1)
}

/// A pod of a controller from its template: labels, annotations, finalizers and spec are the template's.
pub fn pod(owner: &Value, template: &Value) -> Value {
    let metadata = &template["metadata"];
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-", name(owner)), "namespace": namespace(owner),
            "ownerReferences": [reference_to(owner)],
        },
        "spec": template["spec"],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = metadata.get(field).filter(|value| !value.is_null()) {
            pod["metadata"][field] = value.clone();
        }
    }
    let class = text(&pod["spec"], "/priorityClassName");
    if let Some((_, priority)) = SYSTEM_PRIORITIES.iter().find(|(name, _)| *name == class) {
        pod["spec"]["priority"] = json!(priority);
    }
    pod
}

/// The pods that a controller owns, sorted by name.
pub fn pods_of<'a>(run: &Run<'a>, owner: &Value) -> Vec<&'a Value> {
    run.pods_of(uid(owner))
}

/// Pods that count: neither ended nor being deleted.
pub fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !is_deleted(pod)
}

pub fn is_ready(pod: &Value) -> bool {
    is_true(pod, "Ready")
}

/// Deletes `surplus` of the pods: those without a node first, then not running, not ready, the newest.
pub fn delete_surplus(run: &mut Run<'_>, pods: &[&Value], surplus: usize) {
    let mut order: Vec<&Value> = pods.to_vec();
    order.sort_by_key(|pod| {
        let born = text(pod, "/metadata/creationTimestamp");
        (
            !text(pod, "/spec/nodeName").is_empty(),
            text(pod, "/status/phase") == "Running",
            is_ready(pod),
            std::cmp::Reverse(born),
            name(pod),
        )
    });
    for pod in order.into_iter().take(surplus) {
        run.delete(key("", "pods", pod));
    }
}

/// An absolute number or a percentage of `total`.
pub fn share(value: &Value, total: i64, default: i64, round_up: bool) -> i64 {
    let percent = |text: &str| text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok());
    let of = |percent: i64| if round_up { (total * percent + 99) / 100 } else { total * percent / 100 };
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(default),
        Value::String(text) => percent(text).map_or_else(|| text.parse().unwrap_or(default), of),
        _ => default,
    }
}

/// Returns the sum of the initial delays of a container's startup and readiness probes, in seconds.
pub fn initial_delay(container: &Value) -> f64 {
    let seconds = |probe: &str| {
        container
            .get(probe)
            .filter(|probe| probe.is_object())
            .map(|probe| probe["initialDelaySeconds"].as_f64().unwrap_or(0.0))
    };
    seconds("startupProbe").unwrap_or(0.0) + seconds("readinessProbe").unwrap_or(0.0)
}

/// The names of a pod's containers that its status says something about.
pub fn container_statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, "/status/initContainerStatuses").iter().chain(list(pod, "/status/containerStatuses"))
}
