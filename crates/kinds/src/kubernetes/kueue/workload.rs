//! Kueue's reasons to hold a gang back, from the Workload with the gang's name and from the gated pods. The Workload of a Job has
//! a generated name, and the Job as its owner. A DaskCluster is `Running` while all of its pods are held back, so its phase does
//! not help. Source: states that Kueue 0.15.0 wrote, tried with the real operator.

use serde_json::{Value, json};

use crate::json::text;
use crate::kind::{Neighbor, Part, Queries, QueryResults};
use crate::kubernetes::kueue::gang::{self, COUNT, GATE, MANAGED, POD_GROUP_LABEL, QUEUE};
use crate::kubernetes::kueue::{kind, workload_of};
use crate::kubernetes::object::condition;
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::request_state;
use model::resource::{Api, Identity, KindId, ObjectId, Query, Queued, Readiness, Resource};

/// Reads the Workload of a gang, other Workloads of its namespace, and the requests for nodes that Kueue makes.
pub fn query(queries: &mut Queries, identity: &Identity, gang: Option<&str>) {
    let (Some(object), Some(gang)) = (identity.object(), gang) else { return };
    let path = workload_of(object.namespace.as_deref(), gang).path();
    queries.part(Part::Workload, Query { api: Api::Kubernetes, path });
    add_related_queries(queries, object);
}

/// Objects around a Workload; `null` if they are not known.
#[derive(Clone, Copy)]
struct WorkloadContext<'v> {
    others: &'v Value,
    requests: &'v Value,
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn holds<'v>(workload: &'v Value, kind: &str) -> Option<&'v Value> {
    condition(workload, kind).filter(|found| found["status"] == "True")
}

impl<'v> WorkloadContext<'v> {
    fn from_found(found: &'v QueryResults<'_>) -> Self {
        let read = |neighbor: Neighbor| found.find(neighbor).unwrap_or(&Value::Null);
        Self { others: read(Neighbor::Workloads), requests: read(Neighbor::ProvisioningRequests) }
    }

    /// Returns how many Workloads of its namespace and queue come before it: those with a higher priority, and older ones with
    /// the same priority.
    fn before(&self, workload: &Value) -> usize {
        let priority = |one: &Value| one["spec"]["priority"].as_i64().unwrap_or_default();
        let rank = |one: &Value| {
            (
                -priority(one),
                text(&one["metadata"]["creationTimestamp"]).to_owned(),
                text(&one["metadata"]["name"]).to_owned(),
            )
        };
        let waits = |one: &&Value| {
            one["spec"]["queueName"] == workload["spec"]["queueName"]
                && one["spec"]["active"] != false
                && ["Finished", "Admitted", "QuotaReserved"].iter().all(|kind| holds(one, kind).is_none())
        };
        let own = rank(workload);
        items(self.others).filter(waits).filter(|other| rank(other) < own).count()
    }

    /// Returns the newest request that Kueue has made for a Workload: `WORKLOAD-CHECK-NUMBER`.
    fn request(&self, workload: &Value) -> Option<&Value> {
        let name = text(&workload["metadata"]["name"]);
        let of_it = |request: &&Value| {
            let owners = request["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.into_iter().any(|owner| owner["kind"] == "Workload" && owner["name"] == name)
        };
        let number = |request: &&Value| -> u64 {
            let last = text(&request["metadata"]["name"]).rsplit('-').next();
            last.and_then(|last| last.parse().ok()).unwrap_or_default()
        };
        items(self.requests).filter(of_it).max_by_key(number)
    }
}

/// Returns a note on a gang that runs with missing pods, whose quota Kueue keeps reserved.
pub fn note(found: &QueryResults) -> Option<String> {
    let told = holds(found.find(Part::Workload)?, "WaitingForReplacementPods")?;
    let since =
        told["lastTransitionTime"].as_str().map(|since| format!(" since {since}")).unwrap_or_default();
    let message = match text(&told["message"]) {
        "" => String::new(),
        message => format!(": {message}"),
    };
    Some(format!("Kueue waits for pods in place of those that ended{since}{message}"))
}

/// Reads all Workloads of a resource's namespace, one of which may be a Job's own, and the requests for nodes that Kueue makes.
pub fn add_related_queries(queries: &mut Queries, object: &ObjectId) {
    let namespace = object.namespace.as_deref();
    for (neighbor, gvk) in
        [(Neighbor::Workloads, kind("Workload")), (Neighbor::ProvisioningRequests, request_state::api())]
    {
        queries.neighbor(neighbor, Query { api: Api::Kubernetes, path: gvk.collection(namespace) });
    }
}

/// Returns the reason why a Job is held back, by its own Workload among those found; `None` when there is none, or nothing does.
pub fn job_wait_reason(found: &QueryResults, job: &Value) -> Option<WaitReason> {
    let uid = job["metadata"]["uid"].as_str()?;
    let owned = |workload: &&Value| {
        let owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.into_iter().any(|owner| owner["uid"] == uid)
    };
    let around = WorkloadContext::from_found(found);
    reason_of(items(around.others).find(owned)?, "", &Value::Null, around)
}

/// Returns true if a resource waits in a queue, so that its Workload is read.
pub fn waits(resource: &Resource) -> bool {
    let in_queue = || resource.kind == KindId::Job && !resource.body["metadata"]["labels"][QUEUE].is_null();
    gang::name_of(resource).is_some() || in_queue()
}

/// The reason why Kueue has not admitted a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReason {
    /// Why it waits, or why it will never start.
    pub why: String,
    /// The start of the wait (RFC 3339).
    pub since: Option<String>,
    /// True if waiting does not help.
    pub permanent: bool,
}

impl WaitReason {
    fn waits(why: impl Into<String>) -> Self {
        Self { why: why.into(), since: None, permanent: false }
    }

    fn never(why: impl Into<String>) -> Self {
        Self { permanent: true, ..Self::waits(why) }
    }

    fn since(self, told: &Value) -> Self {
        let since = told["lastTransitionTime"].as_str().map(str::to_owned);
        Self { since, ..self }
    }

    /// Returns the readiness of a resource that waits for this reason.
    pub fn readiness(&self) -> Readiness {
        match self.permanent {
            true => Readiness::Failed(self.line()),
            false => Readiness::Queued(Queued { what: self.why.clone(), since: self.since.clone() }),
        }
    }

    /// Returns the facts for the JSON output: `queued` and `queued_since`.
    pub fn facts(&self) -> [(&'static str, Value); 2] {
        [("queued", json!(self.why)), ("queued_since", json!(self.since))]
    }

    /// Returns the reason, with the start of the wait.
    pub fn line(&self) -> String {
        match &self.since {
            Some(since) => format!("{} (since {since})", self.why),
            None => self.why.clone(),
        }
    }
}

/// Returns the reason why a gang is held back; `None` if nothing holds it back, or there is no gang.
pub fn wait_reason(found: &QueryResults, gang: Option<&str>, pods: &Value) -> Option<WaitReason> {
    reason_of(found.find(Part::Workload)?, gang?, pods, WorkloadContext::from_found(found))
}

fn reason_of(workload: &Value, gang: &str, pods: &Value, around: WorkloadContext<'_>) -> Option<WaitReason> {
    if !workload.is_object() {
        return incomplete(gang, pods);
    }
    let holds = |kind: &str| holds(workload, kind);
    if holds("Finished").is_some() {
        return None;
    }
    if workload["spec"]["active"] == false {
        return Some(inactive(workload, around.request(workload)));
    }
    if holds("Admitted").is_some() {
        return None;
    }
    let queue = text(&workload["spec"]["queueName"]);
    if let Some(reserved) = holds("QuotaReserved") {
        return Some(pending_check(workload, queue, around.request(workload)).unwrap_or_else(|| {
            WaitReason::waits(format!("queue {queue} has reserved its quota, and it is about to start"))
                .since(reserved)
        }));
    }
    let Some(told) = condition(workload, "QuotaReserved") else {
        return Some(WaitReason::waits(format!("waits in queue {queue}: Kueue has not looked at it yet")));
    };
    let message = text(&told["message"]);
    // More than the queue has at all, even when nothing else runs in it.
    if message.contains("> maximum capacity") {
        let why =
            format!("it can never start in queue {queue}: {message}; lower its number or raise the quota");
        return Some(WaitReason::never(why).since(told));
    }
    let next = match message {
        message if message.contains("doesn't exist") => {
            "; if it was deleted, the next apply of the stack that has the queue creates it"
        }
        message if message.contains("is inactive") => "; `kubectl describe clusterqueue` says why",
        _ => "",
    };
    let before = match around.before(workload) {
        0 => String::new(),
        1 => ", behind 1 other".to_owned(),
        many => format!(", behind {many} others"),
    };
    Some(WaitReason::waits(format!("waits in queue {queue}{before}: {message}{next}")).since(told))
}

/// Returns why a gang without a Workload waits: some of its pods are missing, or Kueue does not manage them.
fn incomplete(gang: &str, pods: &Value) -> Option<WaitReason> {
    let own: Vec<&Value> =
        pods["items"].as_array().into_iter().flatten().filter(|pod| is_of(pod, gang)).collect();
    let first = own.first()?;
    let gated = own.iter().filter(|pod| is_gated(pod)).count();
    if gated > 0 {
        let all = text(&first["metadata"]["annotations"][COUNT]);
        return Some(WaitReason::waits(format!(
            "Kueue waits for all pods of the gang: {gated} of {all} are there"
        )));
    }
    if own.iter().any(|pod| !pod["metadata"]["labels"][MANAGED].is_null()) {
        return None;
    }
    Some(WaitReason::never(
        "Kueue does not hold back its pods, so they start one by one: `pod` must be among `integrations.frameworks` \
         of Kueue's configuration",
    ))
}

fn is_of(pod: &Value, gang: &str) -> bool {
    PodState(pod).label(POD_GROUP_LABEL) == gang
}

/// Returns true if Kueue holds a pod back.
pub fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE))
}

/// Returns the reason for a Workload that Kueue gave up or a user deactivated.
fn inactive(workload: &Value, request: Option<&Value>) -> WaitReason {
    let (namespace, name) = (text(&workload["metadata"]["namespace"]), text(&workload["metadata"]["name"]));
    let told = condition(workload, "Evicted").unwrap_or(&Value::Null);
    // A Workload that Kueue itself deactivates has one of these reasons. A Workload that a user deactivates keeps the reason of
    // its last eviction, such as a drained queue (seen with 0.15.0).
    let Some(evicted) = Some(told).filter(|told| text(&told["reason"]).starts_with("DeactivatedDueTo"))
    else {
        let message = match text(&told["reason"]) {
            "Deactivated" => text(&told["message"]),
            _ => "`spec.active` of its Workload is false",
        };
        return WaitReason::never(format!(
            "it is parked: {message}; to let it go on: kubectl -n {namespace} patch workload {name} --type merge \
             -p '{{\"spec\":{{\"active\":true}}}}'"
        ))
        .since(told);
    };
    let message = text(&evicted["message"]);
    // The Workload has only that a check was rejected; the request knows why.
    let cause = request.and_then(request_state::has_ended);
    let cause = cause.map(|cause| format!("; its request for nodes {cause}")).unwrap_or_default();
    // Reactivating one that a check has rejected does nothing in 0.15.0: the Workload must be recreated.
    WaitReason::never(format!(
        "Kueue has given it up: {message}{cause}; to try again: kubectl -n {namespace} delete workload {name}"
    ))
    .since(evicted)
}

/// Returns the wait for the first admission check that has not passed, with its message.
fn pending_check(workload: &Value, queue: &str, request: Option<&Value>) -> Option<WaitReason> {
    let checks = workload["status"]["admissionChecks"].as_array()?;
    let check = checks.iter().find(|check| check["state"] != "Ready")?;
    let name = text(&check["name"]);
    // Kueue hands on the words of the autoscaler without their reason.
    let quota = request.and_then(request_state::lacks_quota);
    let message = match (&quota, text(&check["message"])) {
        (Some(quota), _) => quota,
        (None, "") => "nothing is known yet",
        (None, message) => message,
    };
    let tries = check["retryCount"].as_u64().filter(|tries| *tries > 0);
    let tries = tries.map(|tries| format!(", {tries} tries failed")).unwrap_or_default();
    let at = workload["status"]["requeueState"]["requeueAt"].as_str();
    let why = match (text(&check["state"]), at) {
        ("Retry", Some(at)) => format!("queue {queue} tries again at {at}{tries}: {message}"),
        ("Retry", None) => format!("queue {queue} tries again{tries}: {message}"),
        _ => format!("waits for capacity, with the quota of queue {queue} (check {name}{tries}): {message}"),
    };
    Some(WaitReason::waits(why).since(check))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: &str = "2026-01-01T00:00:00Z";
    const ALONE: WorkloadContext<'_> = WorkloadContext { others: &Value::Null, requests: &Value::Null };

    #[test]
    fn the_place_in_a_queue_is_that_of_what_is_more_urgent_or_older() {
        let other = |name: &str, made: &str, priority: i64, kind: &str| {
            json!({
                "metadata": { "name": name, "creationTimestamp": made },
                "spec": { "queueName": "gpus", "priority": priority },
                "status": { "conditions": [{ "type": kind, "status": "True" }] },
            })
        };
        let mut own = workload(&[("QuotaReserved", "False", "Pending", "no room")], json!({}));
        own["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
        let mut elsewhere = other("e", "2026-01-01T00:00:00Z", 0, "None");
        elsewhere["spec"]["queueName"] = json!("cpus");
        let others = json!({ "items": [
            own,
            other("older", "2026-01-01T00:00:00Z", 0, "None"),
            other("newer", "2026-01-03T00:00:00Z", 0, "None"),
            other("urgent", "2026-01-03T00:00:00Z", 10, "None"),
            other("runs", "2026-01-01T00:00:00Z", 0, "Admitted"),
            other("reserved", "2026-01-01T00:00:00Z", 0, "QuotaReserved"),
            elsewhere,
        ] });
        let none = json!({ "items": [] });
        let line = |own: &Value| {
            reason_of(own, "g", &none, WorkloadContext { others: &others, ..ALONE }).unwrap().why
        };
        assert_eq!(line(&own), "waits in queue gpus, behind 2 others: no room");
        own["spec"]["priority"] = json!(5);
        assert_eq!(line(&own), "waits in queue gpus, behind 1 other: no room");
        own["spec"]["priority"] = json!(11);
        assert_eq!(line(&own), "waits in queue gpus: no room");
    }

    #[test]
    fn why_a_check_was_rejected_is_told_by_the_request() {
        let request = |name: &str, kind: &str, reason: &str, message: &str| {
            json!({
                "metadata": { "name": name, "ownerReferences": [{ "kind": "Workload", "name": "g" }] },
                "status": { "conditions": [
                    { "type": "Accepted", "status": "True" },
                    { "type": kind, "status": if kind == "Failed" { "True" } else { "False" }, "reason": reason,
                      "message": message, "lastTransitionTime": SINCE },
                ] },
            })
        };
        let none = json!({ "items": [] });
        let rejected = "The workload is deactivated due to Admission check(s): dws, were rejected";
        let given_up = workload(
            &[("Evicted", "True", "DeactivatedDueToAdmissionCheck", rejected)],
            json!({ "spec": { "active": false } }),
        );
        let requests = json!({ "items": [
            request("g-dws-2", "Failed", "OutOfCapacity", "the first"),
            request("g-dws-10", "Failed", "QuotaExceeded", "Quota 'NVIDIA_A100_GPUS' exceeded."),
        ] });
        let around = WorkloadContext { requests: &requests, ..ALONE };
        let why = reason_of(&given_up, "g", &none, around).unwrap().why;
        assert!(why.contains(rejected), "{why}");
        assert!(
            why.contains(
                "its request for nodes failed since 2026-01-01T00:00:00Z: a quota of the project is too small"
            ),
            "{why}"
        );
        let mut waits = workload(&[("QuotaReserved", "True", "QuotaReserved", "")], json!({}));
        waits["status"]["admissionChecks"] =
            json!([{ "name": "dws", "state": "Pending", "message": "Quota exceeded." }]);
        let requests =
            json!({ "items": [request("g-dws-1", "Provisioned", "QuotaExceeded", "Quota exceeded.")] });
        let why =
            reason_of(&waits, "g", &none, WorkloadContext { requests: &requests, ..ALONE }).unwrap().why;
        assert!(why.ends_with("(check dws): a quota of the project is too small: Quota exceeded."), "{why}");
    }

    #[test]
    fn what_somebody_parks_is_not_given_up_by_kueue() {
        let none = json!({ "items": [] });
        let drained = [("Evicted", "True", "ClusterQueueStopped", "The ClusterQueue is stopped")];
        for conditions in [&drained[..], &[]] {
            let parked = workload(conditions, json!({ "spec": { "active": false } }));
            let why = reason_of(&parked, "g", &none, ALONE).unwrap().why;
            assert!(why.starts_with("it is parked: ") && why.contains("patch workload"), "{why}");
        }
    }

    #[test]
    fn pods_that_a_gang_lacks_are_told() {
        let lacks = workload(
            &[
                ("Admitted", "True", "Admitted", ""),
                ("WaitingForReplacementPods", "True", "PodsFailed", "1 pod failed"),
            ],
            json!({}),
        );
        let said = note(&QueryResults::of([(Part::Workload, &lacks)])).unwrap();
        assert_eq!(
            said,
            format!("Kueue waits for pods in place of those that ended since {SINCE}: 1 pod failed")
        );
        let whole = workload(&[("Admitted", "True", "Admitted", "")], json!({}));
        assert_eq!(note(&QueryResults::of([(Part::Workload, &whole)])), None);
    }

    fn workload(conditions: &[(&str, &str, &str, &str)], more: Value) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason, message)| {
                json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE })
            })
            .collect();
        let mut workload = json!({
            "metadata": { "name": "g", "namespace": "n" },
            "spec": { "queueName": "gpus" },
            "status": { "conditions": conditions },
        });
        for (key, value) in more.as_object().unwrap() {
            workload[key.as_str()] = value.clone();
        }
        workload
    }

    fn pod(gated: bool, managed: bool) -> Value {
        let mut pod = json!({ "metadata": { "labels": { POD_GROUP_LABEL: "g" }, "annotations": { COUNT: "3" } }, "spec": {} });
        if gated {
            pod["spec"]["schedulingGates"] = json!([{ "name": GATE }]);
        }
        if managed {
            pod["metadata"]["labels"][MANAGED] = json!("true");
        }
        pod
    }

    #[test]
    fn what_kueue_says_is_told() {
        let none = json!({ "items": [] });
        let check = |state: &str, message: &str| {
            let check =
                json!({ "name": "dws", "state": state, "message": message, "lastTransitionTime": SINCE });
            json!([check])
        };
        let reserved = ("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus");
        let waits = |message: &str| workload(&[("QuotaReserved", "False", "Pending", message)], json!({}));
        let unused = "couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in flavor gpu, \
                      2 more needed";
        let never = "couldn't assign flavors to pod set worker: insufficient quota for nvidia.com/gpu in flavor gpu, \
                     previously considered podsets requests (0) + current podset request (20) > maximum capacity (8)";
        for (workload, expect) in [
            (waits(unused), Some((format!("waits in queue gpus: {unused} (since {SINCE})"), false))),
            (
                waits("LocalQueue gpus doesn't exist"),
                Some((
                    format!(
                        "waits in queue gpus: LocalQueue gpus doesn't exist; if it was deleted, the next apply of the stack that \
                         has the queue creates it (since {SINCE})"
                    ),
                    false,
                )),
            ),
            (
                waits(never),
                Some((
                    format!(
                        "it can never start in queue gpus: {never}; lower its number or raise the quota (since {SINCE})"
                    ),
                    true,
                )),
            ),
            (
                workload(&[], json!({})),
                Some(("waits in queue gpus: Kueue has not looked at it yet".to_owned(), false)),
            ),
            (
                workload(
                    &[("Evicted", "True", "DeactivatedDueToAdmissionCheck", "rejected")],
                    json!({ "spec": { "active": false } }),
                ),
                Some((
                    format!(
                        "Kueue has given it up: rejected; to try again: kubectl -n n delete workload g (since {SINCE})"
                    ),
                    true,
                )),
            ),
            (
                workload(
                    &[reserved, ("Admitted", "True", "Admitted", "The workload is admitted")],
                    json!({}),
                ),
                None,
            ),
            (workload(&[("Finished", "True", "Succeeded", "")], json!({})), None),
        ] {
            let found = reason_of(&workload, "g", &none, ALONE).map(|held| (held.line(), held.permanent));
            assert_eq!(found, expect, "{workload}");
        }
        let mut checked = workload(&[reserved], json!({}));
        checked["status"]["admissionChecks"] = check("Pending", "no GPUs today");
        let found = reason_of(&checked, "g", &none, ALONE).map(|held| held.line());
        let expect = "waits for capacity, with the quota of queue gpus (check dws): no GPUs today";
        assert_eq!(found, Some(format!("{expect} (since {SINCE})")));
        let mut retried = workload(&[reserved], json!({}));
        retried["status"]["admissionChecks"] = check("Retry", "Retrying after failure: none");
        retried["status"]["admissionChecks"][0]["retryCount"] = json!(2);
        retried["status"]["requeueState"]["requeueAt"] = json!("2026-01-01T00:01:00Z");
        let found = reason_of(&retried, "g", &none, ALONE).map(|held| held.line());
        let expect =
            "queue gpus tries again at 2026-01-01T00:01:00Z, 2 tries failed: Retrying after failure: none";
        assert_eq!(found, Some(format!("{expect} (since {SINCE})")));
    }

    #[test]
    fn the_workload_of_a_job_is_the_one_that_it_owns() {
        let job = json!({ "metadata": { "uid": "u" } });
        let mut own = workload(
            &[("Evicted", "True", "DeactivatedDueToAdmissionCheck", "rejected")],
            json!({ "spec": { "active": false } }),
        );
        own["metadata"]["ownerReferences"] = json!([{ "kind": "Job", "uid": "u" }]);
        let other = workload(&[("QuotaReserved", "False", "Pending", "none")], json!({}));
        let list = json!({ "items": [other, own] });
        let found = |list: &Value| job_wait_reason(&QueryResults::of([(Neighbor::Workloads, list)]), &job);
        let held = found(&list).unwrap();
        assert!(held.permanent && held.why.contains("delete workload g"), "{held:?}");
        assert_eq!(found(&json!({ "items": [other] })), None);
        assert_eq!(job_wait_reason(&QueryResults::of::<Part>([]), &job), None, "it was not asked for");
    }

    #[test]
    fn before_there_is_a_workload_pods_tell() {
        let of = |pods: Vec<Value>| reason_of(&Value::Null, "g", &json!({ "items": pods }), ALONE);
        assert_eq!(of(vec![]), None, "nothing is there yet");
        let found = of(vec![pod(true, true), pod(true, true)]).map(|held| held.line());
        assert_eq!(found.as_deref(), Some("Kueue waits for all pods of the gang: 2 of 3 are there"));
        assert_eq!(of(vec![pod(false, true)]), None, "it was let go, and its Workload was deleted");
        let ignored = of(vec![pod(false, false)]).unwrap();
        assert!(ignored.permanent && ignored.why.contains("`pod` must be among"), "{ignored:?}");
        let mut other = pod(true, true);
        other["metadata"]["labels"][POD_GROUP_LABEL] = json!("another");
        assert_eq!(of(vec![other]), None);
    }
}
