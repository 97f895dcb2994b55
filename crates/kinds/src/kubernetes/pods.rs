//! Pods of a resource: their selectors, their containers, and why they do not run.

use serde_json::Value;

use crate::json::{count, text};
use crate::kind::PodSource;
use crate::kubernetes::object::pods_matching;
use crate::kubernetes::pod_state::{ContainerState, PodState};
use crate::kubernetes::why::{no_node_for, no_scale_up};
use crate::pod;
use crate::status::Pending;
use model::resource::{Api, Identity, Query, Resource};

/// Returns the source of the pods of an object with a selector, which is in its desired body or else in the live object.
pub fn selecting(resource: &Resource) -> PodSource {
    let Identity::Object(object) = &resource.identity else { return PodSource::None };
    match selected(&resource.body) {
        Some(query) => PodSource::Known(query),
        None => PodSource::FromObject(Query { api: Api::Kubernetes, path: object.path() }),
    }
}

/// Returns the LIST of the pods that an object selects, if it has a selector.
pub fn selected(object: &Value) -> Option<Query> {
    pods_matching(object["metadata"]["namespace"].as_str(), &object["spec"]["selector"]["matchLabels"])
}

/// A container of a pod, with a log of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Container {
    /// The pod's namespace.
    pub namespace: String,
    pub pod: String,
    /// The index among the pod's containers, in the order in which they start.
    pub index: usize,
    pub name: String,
    /// The uid, which distinguishes the pod from another one of the same name.
    pub uid: String,
    /// The number of restarts: each start has a log of its own.
    pub restarts: u64,
    /// The reason why there is no log yet.
    pub waits: Option<String>,
    /// How it ended: `ended with code 0`.
    pub ended: Option<String>,
}

/// Returns the containers of a LIST of pods, or of one pod, pod by pod in the order in which they start.
pub fn containers(found: &Value) -> Vec<Container> {
    let mut all: Vec<Container> = match found["items"].as_array() {
        Some(pods) => pods.iter().flat_map(of_pod).collect(),
        None => of_pod(found),
    };
    all.sort();
    all.dedup();
    all
}

fn of_pod(pod: &Value) -> Vec<Container> {
    let metadata = |key: &str| text(&pod["metadata"][key]).to_owned();
    let all = ["initContainers", "containers"].iter();
    let all = all.flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
    let state = PodState(pod);
    let one = |(index, container): (usize, &Value)| {
        // Names are unique in a pod.
        let status = state.containers().find(|status| container["name"] == status.name());
        Container {
            namespace: metadata("namespace"),
            pod: metadata("name"),
            index,
            name: text(&container["name"]).to_owned(),
            uid: metadata("uid"),
            restarts: status.map_or(0, ContainerState::restarts),
            waits: waits(status),
            ended: status.and_then(ended),
        }
    };
    all.enumerate().map(one).collect()
}

fn ended(status: ContainerState<'_>) -> Option<String> {
    status.exit_code().map(|code| format!("ended with code {code}"))
}

/// Returns why a container has no log: it waits, and has not run before.
fn waits(status: Option<ContainerState<'_>>) -> Option<String> {
    let Some(status) = status else { return Some("it has not started".to_owned()) };
    let (reason, _) = status.waiting().filter(|_| status.last().is_none())?;
    Some(match reason {
        "" => "it has not started".to_owned(),
        reason => reason.to_owned(),
    })
}

/// Returns the number of GPUs that the running pods in `pods` hold.
pub(crate) fn gpus<'p>(pods: impl Iterator<Item = PodState<'p>>) -> u64 {
    let running = pods.filter(|pod| pod.phase() == "Running" && !pod.is_terminating());
    running.map(|pod| pod::gpus(&pod.0["spec"])).sum()
}

/// Returns `, 2 GPUs held`; empty without GPUs.
pub(crate) fn gpus_held(gpus: u64) -> String {
    match gpus {
        0 => String::new(),
        1 => ", 1 GPU held".to_owned(),
        many => format!(", {many} GPUs held"),
    }
}

/// Returns the pods in a LIST that should run and do not, with the reason from their conditions or containers.
pub fn pending(pods: &Value) -> Vec<Pending> {
    let waiting = PodState::each(pods)
        .filter(|pod| !pod.is_terminating() && !pod.is_ready() && pod.phase() != "Succeeded");
    let told = |pod: PodState<'_>| Pending {
        namespace: pod.namespace().to_owned(),
        pod: pod.name().to_owned(),
        why: why(pod),
        unscheduled: pod.unscheduled().is_some(),
    };
    waiting.map(told).collect()
}

/// Returns why a pod does not run yet, if its status says so.
pub(crate) fn why(pod: PodState<'_>) -> Option<String> {
    if let Some(scheduled) = pod.unscheduled() {
        return Some(no_node_for(&pod.0["spec"], text(&scheduled["message"])));
    }
    if let Some((reason, message)) = pod.containers().find_map(ContainerState::waiting) {
        let restarts: u64 = pod.containers().map(ContainerState::restarts).sum();
        let again = if restarts > 0 { format!(" after {restarts} restarts") } else { String::new() };
        let colon = if message.is_empty() { "" } else { ": " };
        return Some(format!("{reason}{again}{colon}{message}"));
    }
    let mut ended = pod.containers().filter_map(ContainerState::terminated);
    let ended = ended.find(|ended| count(&ended["exitCode"]) > 0)?;
    Some(format!("a container ended with code {}: {}", ended["exitCode"], text(&ended["reason"])))
}

/// Returns why the node autoscaler adds no node for a pod, from events of its namespace.
pub fn not_scaled_by_events(pod: &str, events: &Value) -> Option<String> {
    let list = events["items"].as_array().into_iter().flatten();
    let own: Vec<Value> = list.filter(|event| event["involvedObject"]["name"] == pod).cloned().collect();
    no_scale_up(&own)
}

/// Returns why a pod waits, from the newest warning among events of its namespace.
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

/// Returns why a pod will not run without help: an image that cannot be pulled, or a container that keeps crashing.
pub(crate) fn broken(pod: PodState<'_>) -> Option<String> {
    if pod.is_terminating() {
        return None;
    }
    let name = pod.name();
    pod.containers().find_map(|container| {
        let (reason, message) = container.waiting()?;
        let crashed = reason == "CrashLoopBackOff" && container.restarts() >= 3;
        let unpullable = matches!(reason, "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull");
        (crashed || unpullable).then(|| format!("pod {name}: {reason}: {message}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dask;
    use crate::kubernetes::object::{gvk, kind_of};
    use model::address::{Address, FieldPath};
    use model::resource::{Gvk, ObjectId, Recreation};

    fn resource(gvk: Gvk, body: Value) -> Resource {
        let object = ObjectId { gvk, namespace: Some("n".into()), name: "y".into() };
        Resource {
            address: Address::new("x.y"),
            kind: kind_of(&object),
            identity: Identity::Object(object),
            body,
            create_only: Value::Null,
            origin: FieldPath::root(),
            provenance: Vec::new(),
            depends_on: Vec::new(),
            protect: false,
            recreation: Recreation::Always,
        }
    }

    #[test]
    fn pods_are_found_by_the_operators_labels_and_by_selectors() {
        let of = |resource: &Resource| (crate::of(resource.kind).pods)(resource);
        let here = |resource: &Resource| match of(resource) {
            PodSource::Known(query) => query.path,
            other => format!("{other:?}"),
        };
        let pods = "/api/v1/namespaces/n/pods";
        let cluster = resource(dask::api::cluster(), Value::Null);
        assert_eq!(here(&cluster), format!("{pods}?labelSelector=dask.org%2Fcluster-name%3Dy"));
        let group = resource(dask::api::group(), Value::Null);
        assert_eq!(here(&group), format!("{pods}?labelSelector=dask.org%2Fworkergroup-name%3Dy"));
        let deployment = gvk("apps", "v1", "Deployment", "deployments");
        let body = json!({ "metadata": { "namespace": "n" }, "spec": { "selector": { "matchLabels": { "a/b": "c", "d": "e" } } } });
        assert_eq!(
            here(&resource(deployment.clone(), body)),
            format!("{pods}?labelSelector=a%2Fb%3Dc%2Cd%3De")
        );
        assert!(
            matches!(of(&resource(deployment, Value::Null)), PodSource::FromObject(_)),
            "what others own says it itself"
        );
        assert_eq!(of(&resource(gvk("", "v1", "Service", "services"), Value::Null)), PodSource::None);
    }

    #[test]
    fn containers_come_in_the_order_of_their_start() {
        let pod = |name: &str, statuses: Value| {
            json!({
                "metadata": { "name": name, "namespace": "n", "uid": name },
                "spec": { "initContainers": [{ "name": "install" }], "containers": [{ "name": "a" }, { "name": "b" }] },
                "status": { "containerStatuses": statuses },
            })
        };
        let waiting = json!({ "waiting": { "reason": "ContainerCreating" } });
        let again = json!({ "name": "b", "restartCount": 2, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                            "lastState": { "terminated": { "exitCode": 1 } } });
        let first = pod("p1", json!([{ "name": "a", "state": waiting }, again]));
        let second = pod("p2", json!([{ "name": "a", "state": { "running": {} } }]));
        let found = containers(&json!({ "items": [second, first] }));
        let told: Vec<String> = found
            .iter()
            .map(|one| {
                format!(
                    "{}/{} {} {}",
                    one.pod,
                    one.name,
                    one.restarts,
                    one.waits.as_deref().unwrap_or("runs")
                )
            })
            .collect();
        assert_eq!(told[..3], ["p1/install 0 it has not started", "p1/a 0 ContainerCreating", "p1/b 2 runs"]);
        assert_eq!(told[4], "p2/a 0 runs");
    }

    #[test]
    fn pods_say_why_they_wait() {
        let pod = |status: Value| json!({ "metadata": { "name": "p", "namespace": "n" }, "status": status });
        let table = [
            (json!({ "conditions": [{ "type": "Ready", "status": "True" }] }), None),
            (json!({ "phase": "Succeeded" }), None),
            (json!({ "phase": "Pending" }), Some(None)),
            (
                json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu." }] }),
                Some(Some("no node fits: 2 without a free GPU")),
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
