//! What a thing says of itself for `status`, beyond whether it is ready. A kind that has something to say
//! has a function in its file and a row in [`SAYS`]; it is told what its own queries found.

use serde_json::Value;

use crate::kinds::dask;
use crate::kinds::gke::node_pool;
use crate::kinds::json::{count, text};
use crate::kinds::kubernetes::object::condition;
use crate::kinds::kubernetes::workload;
use crate::resource::{Await, KindId};

/// What a thing says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// One line for people: `1 of 1 nodes ready, 2 GPUs allocatable`.
    pub line: String,
    /// The same for programs, by name.
    pub facts: Vec<(&'static str, Value)>,
    /// Pods that do not run, and why where they say it.
    pub pending: Vec<Pending>,
}

/// A pod that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Why, by its own conditions; events may know more.
    pub why: Option<String>,
}

/// What the queries of a kind found, in their order, as words.
pub type Says = fn(&Await, &[Value]) -> Said;

/// Who says something.
const SAYS: &[(KindId, Says)] = &[
    (KindId::Cluster, cluster),
    (KindId::NodePool, node_pool::says),
    (KindId::GpuDriver, workload::daemon_set_says),
    (KindId::DaemonSet, workload::daemon_set_says),
    (KindId::Deployment, workload::deployment_says),
    (KindId::DaskCluster, dask::cluster::says),
    (KindId::DaskGroup, dask::group::says),
    (KindId::DaskAutoscaler, dask::autoscaler::says),
    (KindId::DaskJob, dask::job::says),
    (KindId::Notebook, dask::notebook::says),
];

/// GPUs that the running pods of a list hold.
pub(super) fn gpus(pods: &Value) -> u64 {
    let running =
        pods["items"].as_array().into_iter().flatten().filter(|pod| {
            pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
        });
    let containers = running.filter_map(|pod| pod["spec"]["containers"].as_array()).flatten();
    let held = containers.map(|container| &container["resources"]["limits"]["nvidia.com/gpu"]);
    held.filter_map(|gpus| gpus.as_u64().or_else(|| gpus.as_str()?.parse().ok())).sum()
}

/// `, 2 GPUs held`, where there are some.
pub(super) fn gpus_held(gpus: u64) -> String {
    match gpus {
        0 => String::new(),
        1 => ", 1 GPU held".to_owned(),
        many => format!(", {many} GPUs held"),
    }
}

/// What a thing of a kind says; nothing for kinds without a row.
pub fn said(wait: &Await, found: &[Value]) -> Said {
    let says = SAYS.iter().find(|(kind, _)| *kind == wait.kind).map(|(_, says)| says);
    says.map(|says| says(wait, found)).unwrap_or_default()
}

fn cluster(_: &Await, found: &[Value]) -> Said {
    let live = found.first().unwrap_or(&Value::Null);
    let (status, version) = (text(&live["status"]), text(&live["currentMasterVersion"]));
    let version = if version.is_empty() { String::new() } else { format!(", version {version}") };
    Said {
        line: format!("{status}{version}"),
        facts: vec![("status", live["status"].clone()), ("version", live["currentMasterVersion"].clone())],
        pending: Vec::new(),
    }
}

/// Pods of a list that should run and do not, with the reason of their conditions or containers.
pub fn pending(pods: &Value) -> Vec<Pending> {
    let list = pods["items"].as_array().into_iter().flatten();
    let waiting = list.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).filter(|pod| {
        let ready = condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True");
        !ready && !matches!(text(&pod["status"]["phase"]), "Succeeded")
    });
    waiting
        .map(|pod| Pending {
            namespace: text(&pod["metadata"]["namespace"]).to_owned(),
            pod: text(&pod["metadata"]["name"]).to_owned(),
            why: why(pod),
        })
        .collect()
}

fn why(pod: &Value) -> Option<String> {
    if let Some(scheduled) = condition(pod, "PodScheduled")
        && scheduled["status"] == "False"
    {
        return Some(format!("unschedulable: {}", text(&scheduled["message"])));
    }
    let status = &pod["status"];
    let containers = [&status["initContainerStatuses"], &status["containerStatuses"]];
    let all = || containers.iter().filter_map(|list| list.as_array()).flatten();
    let stuck = all().map(|container| &container["state"]["waiting"]).find(|waiting| waiting.is_object());
    if let Some(waiting) = stuck {
        let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
        let restarts: u64 = all().map(|container| count(&container["restartCount"])).sum();
        let again = if restarts > 0 { format!(" after {restarts} restarts") } else { String::new() };
        let colon = if message.is_empty() { "" } else { ": " };
        return Some(format!("{reason}{again}{colon}{message}"));
    }
    let ended = all().map(|container| &container["state"]["terminated"]).find(|ended| ended.is_object());
    ended
        .map(|ended| format!("a container ended with code {}: {}", ended["exitCode"], text(&ended["reason"])))
}

/// Why a pod waits, by the newest warning among events of its namespace.
pub fn why_by_events(pod: &str, events: &Value) -> Option<String> {
    let list = events["items"].as_array().into_iter().flatten();
    let own = list.filter(|event| event["involvedObject"]["name"] == pod && event["type"] == "Warning");
    let time = |event: &&Value| {
        let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
        times.iter().map(|time| text(time).to_owned()).max()
    };
    let newest = own.max_by_key(time)?;
    Some(format!("{}: {}", text(&newest["reason"]), text(&newest["message"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_say_why_they_wait() {
        let pod = |status: Value| json!({ "metadata": { "name": "p", "namespace": "n" }, "status": status });
        let table = [
            (json!({ "conditions": [{ "type": "Ready", "status": "True" }] }), None),
            (json!({ "phase": "Succeeded" }), None),
            (json!({ "phase": "Pending" }), Some(None)),
            (
                json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/2 nodes" }] }),
                Some(Some("unschedulable: 0/2 nodes")),
            ),
            (
                json!({ "containerStatuses": [{ "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] }),
                Some(Some("CrashLoopBackOff after 3 restarts")),
            ),
            (
                json!({ "initContainerStatuses": [{ "state": { "waiting": { "reason": "ErrImagePull", "message": "no" } } }] }),
                Some(Some("ErrImagePull: no")),
            ),
        ];
        for (status, expect) in table {
            let found = pending(&json!({ "items": [pod(status.clone())] }));
            let why = found.first().map(|pending| pending.why.as_deref());
            assert_eq!(why, expect, "{status}");
        }
    }

    #[test]
    fn the_newest_warning_counts() {
        let event = |kind: &str, time: &str, message: &str| json!({ "involvedObject": { "name": "p" }, "type": kind, "lastTimestamp": time, "reason": "R", "message": message });
        let events = json!({ "items": [
            event("Warning", "2026-01-02T00:00:00Z", "new"), event("Warning", "2026-01-01T00:00:00Z", "old"),
            event("Normal", "2026-01-03T00:00:00Z", "fine"),
        ] });
        assert_eq!(why_by_events("p", &events).as_deref(), Some("R: new"));
        assert_eq!(why_by_events("q", &events), None);
    }
}
