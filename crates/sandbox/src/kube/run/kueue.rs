//! An imitation of Kueue 0.15.0: it acts only while a pod of its manager runs. Pods of groups and single Pods with a queue
//! get a scheduling gate, Jobs are suspended; each piece of work gets a Workload, is admitted whole when its queue has the
//! quota and its checks have passed, and starts.
//!
//! Not imitated: webhooks (what is wrong is taken, and nothing is refused while the manager is away), finalizers,
//! preemption, priorities, fair sharing, topologies, partial admission, other kinds of jobs, limits of borrowing.
//!
//! Source: conditions and messages as the real one left them beside the real Dask operator; `pkg/scheduler` and
//! `pkg/controller/jobs/pod` of Kueue 0.15.0 for the rest.

mod assign;
mod checks;
mod conditions;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::assign::{Quotas, Sets};
use self::conditions::{Conditions, GROUP, KUEUE, MANAGED};
use super::super::object::{
    annotation, hex, is_deleted, is_finished, is_true, key, label, list, name, namespace, number,
    reference_to, text, uid,
};
use super::deployments;
use super::events::{self, Level};
use super::round::Run;
use super::stages::stages;

const API: &str = "kueue.x-k8s.io/v1beta2";

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const POD_GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
const RETRIABLE: &str = "kueue.x-k8s.io/retriable-in-group";
const ROLE: &str = "kueue.x-k8s.io/role-hash";
const GATES: [&str; 2] = ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"];

/// Real seconds from a change to Kueue's answer.
const REACTS: f64 = 1.0;
/// How long Kueue is said to remember that a group was not complete: once is enough.
const REMEMBERED: f64 = 3600.0;

/// One round before Jobs get their pods: those with a queue wait.
pub fn suspend(run: &mut Run<'_>) {
    if !lives(run) {
        return;
    }
    for job in run.objects("batch", "jobs") {
        if label(job, QUEUE).is_empty() || is_deleted(job) {
            continue;
        }
        let workload_name = format!("job-{}-{}", name(job), hex(uid(job), 5));
        let workload = run.get(GROUP, "workloads", namespace(job), &workload_name);
        let ended = is_true(job, "Complete") || is_true(job, "Failed");
        match workload {
            None if !ended => {
                if job["spec"]["suspend"] != true {
                    run.merge(KUEUE, key("batch", "jobs", job), json!({"spec": {"suspend": true}}));
                }
                let sets = vec![(String::from("main"), number(job, "/spec/parallelism").unwrap_or(1), {
                    let template = &job["spec"]["template"];
                    json!({"metadata": template["metadata"], "spec": template["spec"]})
                })];
                let owners = json!([reference_to(job)]);
                create(run, job, &workload_name, label(job, QUEUE), (sets, owners));
            }
            Some(workload) if ended && !is_true(workload, "Finished") => {
                let reason = if is_true(job, "Complete") { "Succeeded" } else { "Failed" };
                finish(run, workload, reason, "Job finished successfully");
            }
            Some(workload) if !ended => {
                let (admitted, suspended) = (is_true(workload, "Admitted"), job["spec"]["suspend"] == true);
                if admitted && suspended {
                    let more = assign::placement(run, workload, "main");
                    let spec =
                        json!({"spec": {"suspend": false, "template": more.patch(&job["spec"]["template"])}});
                    run.merge(KUEUE, key("batch", "jobs", job), spec);
                    let message = format!(
                        "Admitted by clusterQueue {}",
                        text(workload, "/status/admission/clusterQueue")
                    );
                    events::emit(run, job, Level::Normal, "Started", "batch/job-kueue-controller", &message);
                } else if !admitted && !suspended {
                    run.merge(KUEUE, key("batch", "jobs", job), json!({"spec": {"suspend": true}}));
                }
            }
            _ => {}
        }
    }
}

/// One round over everything else.
pub fn run(run: &mut Run<'_>) {
    if !lives(run) {
        return;
    }
    if takes_pods(run) {
        pods(run);
    }
    let active = queues(run);
    workloads(run, &active);
}

/// The manager's Deployments with a running pod.
fn managers<'a>(run: &Run<'a>) -> Vec<&'a Value> {
    let named = |object: &&Value| {
        label(object, "app.kubernetes.io/name") == "kueue" && name(object).ends_with("controller-manager")
    };
    let all = run.objects("apps", "deployments").into_iter().filter(named);
    all.filter(|deployment| {
        deployments::active_pods(run, deployment).iter().any(|pod| text(pod, "/status/phase") == "Running")
    })
    .collect()
}

fn lives(run: &Run<'_>) -> bool {
    !managers(run).is_empty()
}

/// Returns true if the manager's configuration has plain Pods among its frameworks, or if there is none, as in tests.
fn takes_pods(run: &Run<'_>) -> bool {
    let homes: Vec<&str> = managers(run).into_iter().map(namespace).collect();
    let maps = run.objects("", "configmaps").into_iter().filter(|map| homes.contains(&namespace(map)));
    let mut texts = maps.filter_map(|map| map["data"]["controller_manager_config.yaml"].as_str());
    let is_pod = |line: &str| {
        let item = line.trim().strip_prefix("- ").map(|item| item.trim().trim_matches(['"', '\'']));
        item == Some("pod")
    };
    texts.next().is_none_or(|text| text.lines().any(is_pod))
}

/// Gates for new pods, and a Workload for each group that is complete.
fn pods(run: &mut Run<'_>) {
    let all = run.objects("", "pods").into_iter().filter(|pod| !label(pod, QUEUE).is_empty());
    let mut groups: BTreeMap<(&str, String), Vec<&Value>> = BTreeMap::new();
    for pod in all {
        let system = namespace(pod).starts_with("kube-") || namespace(pod) == "kueue-system";
        // Pods of Jobs are the Job's.
        let of_job = list(pod, "/metadata/ownerReferences").iter().any(|owner| owner["kind"] == "Job");
        if system || of_job {
            continue;
        }
        let group = match label(pod, POD_GROUP) {
            "" => format!("pod-{}-{}", name(pod), hex(uid(pod), 5)),
            group => group.to_owned(),
        };
        groups.entry((namespace(pod), group)).or_default().push(pod);
    }
    for ((place, group_name), pods) in groups {
        let workload = run.get(GROUP, "workloads", place, &group_name);
        let new = pods
            .iter()
            .filter(|pod| label(pod, MANAGED).is_empty() && text(pod, "/spec/nodeName").is_empty());
        for pod in new.filter(|pod| !is_deleted(pod) && !is_finished(pod)) {
            let gates: Vec<Value> = GATES.iter().map(|gate| json!({"name": gate})).collect();
            let patch =
                json!({"metadata": {"labels": {MANAGED: "true"}}, "spec": {"schedulingGates": gates}});
            run.merge(KUEUE, key("", "pods", pod), patch);
        }
        let there: Vec<&Value> = pods.into_iter().filter(|pod| !is_deleted(pod)).collect();
        let active: Vec<&Value> = there.iter().copied().filter(|pod| !is_finished(pod)).collect();
        let Some(first) = there.first() else { continue };
        let total = annotation(first, COUNT).and_then(|count| count.parse::<usize>().ok()).unwrap_or(1);
        match workload {
            None if active.len() < total => {
                let wait = format!("{place}/{group_name} incomplete {total}");
                let is_new = !run.has_begun(&wait);
                run.passed(wait, REMEMBERED);
                if is_new {
                    let message = format!("'{group_name}' group has fewer runnable pods than expected");
                    events::emit(
                        run,
                        first,
                        Level::Warning,
                        "ErrWorkloadCompose",
                        "pod-kueue-controller",
                        &message,
                    );
                }
            }
            None => {
                if run.passed(format!("{place}/{group_name} compose"), REACTS) {
                    let sets = pod_sets(&active);
                    let owners = owners(&there);
                    create(run, first, &group_name, label(first, QUEUE), (sets, owners));
                }
            }
            Some(workload) => one_group(run, workload, (&there, &active), total),
        }
    }
}

/// A group that has its Workload.
fn one_group(run: &mut Run<'_>, workload: &Value, (there, active): (&[&Value], &[&Value]), total: usize) {
    let owners = owners(there);
    if workload["metadata"]["ownerReferences"] != owners && owners != json!([]) {
        run.merge(KUEUE, key(GROUP, "workloads", workload), json!({"metadata": {"ownerReferences": owners}}));
    }
    if active.is_empty() {
        if !is_true(workload, "Finished") {
            let succeeded = there.iter().filter(|pod| text(pod, "/status/phase") == "Succeeded").count();
            let reason = if succeeded > 0 { "Succeeded" } else { "Failed" };
            finish(run, workload, reason, &format!("Pods succeeded: {succeeded}/{total}."));
        }
        return;
    }
    if active.len() > total {
        let mut newest = active.to_vec();
        newest.sort_by_key(|pod| (text(pod, "/metadata/creationTimestamp"), name(pod)));
        for pod in &newest[total..] {
            if run.passed(format!("{} excess", uid(pod)), REACTS) {
                events::emit(
                    run,
                    pod,
                    Level::Normal,
                    "ExcessPodDeleted",
                    "pod-kueue-controller",
                    "Excess pod deleted",
                );
                run.delete(key("", "pods", pod));
            }
        }
        return;
    }
    if !is_true(workload, "Admitted") {
        // Stopped after it had started: its pods go, and what makes them makes them again.
        for pod in active.iter().filter(|pod| !is_gated(pod) && !label(pod, MANAGED).is_empty()) {
            run.delete(key("", "pods", pod));
        }
        return;
    }
    for pod in active.iter().filter(|pod| is_gated(pod)) {
        let more = assign::placement(run, workload, &role(pod));
        let mut patch = more.patch(pod);
        patch["spec"]["schedulingGates"] = Value::Null;
        run.merge(KUEUE, key("", "pods", pod), patch);
    }
}

fn is_gated(pod: &Value) -> bool {
    list(pod, "/spec/schedulingGates").iter().any(|gate| gate["name"] == GATES[0])
}

/// The pods that a Workload goes with; none of a group that is not allowed to end.
fn owners(pods: &[&Value]) -> Value {
    let ends = pods
        .iter()
        .any(|pod| annotation(pod, RETRIABLE) == Some("false") || label(pod, POD_GROUP).is_empty());
    let mut owners: Vec<Value> = Vec::new();
    for pod in pods.iter().filter(|_| ends) {
        let mut reference = reference_to(pod);
        if let Some(fields) = reference.as_object_mut() {
            fields.remove("controller");
            fields.remove("blockOwnerDeletion");
        }
        owners.push(reference);
    }
    Value::Array(owners)
}

/// Returns the name of a pod's part of its group.
fn role(pod: &Value) -> String {
    match annotation(pod, ROLE) {
        Some(role) => role.to_owned(),
        None => {
            let spec = &pod["spec"];
            let requests: Vec<&Value> =
                list(pod, "/spec/containers").iter().map(|c| &c["resources"]).collect();
            hex(&json!([requests, spec["nodeSelector"], spec["priority"]]).to_string(), 8)
        }
    }
}

/// Name, number and template of each part.
fn pod_sets(pods: &[&Value]) -> Vec<(String, i64, Value)> {
    let mut sets: BTreeMap<String, (i64, Value)> = BTreeMap::new();
    for pod in pods {
        let mut spec = pod["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("schedulingGates");
        }
        sets.entry(role(pod)).or_insert_with(|| (0, json!({"spec": spec}))).0 += 1;
    }
    sets.into_iter().map(|(role, (count, template))| (role, count, template)).collect()
}

fn create(
    run: &mut Run<'_>,
    of: &Value,
    workload_name: &str,
    queue: &str,
    (sets, owners): (Vec<(String, i64, Value)>, Value),
) {
    let sets: Vec<Value> = sets
        .into_iter()
        .map(|(name, count, template)| json!({"name": name, "count": count, "template": template}))
        .collect();
    let mut metadata = json!({"name": workload_name, "namespace": namespace(of), "ownerReferences": owners});
    let parameters = checks::parameters(of);
    if !parameters.is_empty() {
        metadata["annotations"] = Value::Object(parameters);
    }
    run.create(
        KUEUE,
        json!({
            "apiVersion": API, "kind": "Workload", "metadata": metadata,
            "spec": {"active": true, "podSets": sets, "queueName": queue},
        }),
    );
}

fn finish(run: &mut Run<'_>, workload: &Value, reason: &str, message: &str) {
    let mut conditions = Conditions::of(workload);
    conditions.set(run, "Finished", true, (reason, message));
    let status = conditions.status();
    run.status(KUEUE, key(GROUP, "workloads", workload), workload, status);
}

/// Writes the status of queues and checks: if they are usable, and how much work queues hold. Returns the active ClusterQueues.
fn queues(run: &mut Run<'_>) -> Vec<String> {
    for check in run.objects(GROUP, "admissionchecks") {
        let config = text(check, "/spec/parameters/name");
        let found = run.get(GROUP, "provisioningrequestconfigs", "", config).is_some();
        let missing = format!("ProvisioningRequestConfig.kueue.x-k8s.io \"{config}\" not found");
        let said = match found {
            true => ("Active", "The admission check is active"),
            false => ("BadParametersRef", missing.as_str()),
        };
        let mut conditions = Conditions::of(check);
        conditions.set(run, "Active", found, said);
        let status = conditions.status();
        run.status(KUEUE, key(GROUP, "admissionchecks", check), check, status);
    }
    let workloads = run.objects(GROUP, "workloads");
    let locals = run.objects(GROUP, "localqueues");
    let mut active = Vec::new();
    for queue in run.objects(GROUP, "clusterqueues") {
        let why = unusable(run, queue);
        if why.is_none() {
            active.push(name(queue).to_owned());
        }
        let mine = |workload: &&&Value| {
            locals.iter().any(|local| {
                namespace(local) == namespace(workload)
                    && name(local) == text(workload, "/spec/queueName")
                    && text(local, "/spec/clusterQueue") == name(queue)
            })
        };
        let own: Vec<&Value> = workloads.iter().filter(mine).copied().collect();
        let said = match &why {
            None => ("Ready", "Can admit new workloads"),
            Some((reason, message)) => (*reason, message.as_str()),
        };
        count(run, queue, "clusterqueues", (why.is_none(), said), &own);
    }
    for local in locals {
        let usable = active.iter().any(|queue| queue == text(local, "/spec/clusterQueue"));
        let said = match usable {
            true => ("Ready", "Can submit new workloads to localQueue"),
            false => ("ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"),
        };
        let mine = |workload: &&&Value| {
            namespace(workload) == namespace(local) && text(workload, "/spec/queueName") == name(local)
        };
        let own: Vec<&Value> = workloads.iter().filter(mine).copied().collect();
        count(run, local, "localqueues", (usable, said), &own);
    }
    active
}

/// Why a ClusterQueue admits nothing.
fn unusable(run: &Run<'_>, queue: &Value) -> Option<(&'static str, String)> {
    let flavors = list(queue, "/spec/resourceGroups").iter().flat_map(|group| list(group, "/flavors"));
    let mut flavors = flavors.map(|flavor| text(flavor, "/name"));
    if let Some(missing) = flavors.find(|flavor| run.get(GROUP, "resourceflavors", "", flavor).is_none()) {
        let message = format!("Can't admit new workloads: references missing ResourceFlavor(s): {missing}.");
        return Some(("FlavorNotFound", message));
    }
    let mut checks =
        list(queue, "/spec/admissionChecksStrategy/admissionChecks").iter().map(|rule| text(rule, "/name"));
    let check = checks.find(|check| {
        !run.get(GROUP, "admissionchecks", "", check).is_some_and(|check| is_true(check, "Active"))
    })?;
    let message = format!("Can't admit new workloads: references inactive AdmissionCheck(s): {check}.");
    Some(("AdmissionCheckInactive", message))
}

fn count(
    run: &mut Run<'_>,
    queue: &Value,
    resource: &'static str,
    (usable, said): (bool, (&str, &str)),
    own: &[&Value],
) {
    let living = || own.iter().filter(|workload| !is_true(workload, "Finished"));
    let reserving = living().filter(|workload| is_true(workload, "QuotaReserved")).count();
    let admitted = living().filter(|workload| is_true(workload, "Admitted")).count();
    let is_new = queue["status"].is_null();
    if is_new && !run.passed(format!("{} seen", uid(queue)), stages().delay("kueue_reacts")) {
        return;
    }
    let mut conditions = Conditions::of(queue);
    conditions.set(run, "Active", usable, said);
    let mut status = conditions.status();
    status["pendingWorkloads"] = json!(living().count() - reserving);
    status["reservingWorkloads"] = json!(reserving);
    status["admittedWorkloads"] = json!(admitted);
    run.status(KUEUE, key(GROUP, resource, queue), queue, status);
}

/// Admits what has room, in the order of each queue, and tells the rest what it waits for.
fn workloads(run: &mut Run<'_>, active: &[String]) {
    let mut quotas = Quotas::of(run);
    let mut waiting: Vec<&Value> = Vec::new();
    for workload in run.objects(GROUP, "workloads") {
        if is_true(workload, "Finished") || is_deleted(workload) {
            continue;
        }
        if workload["spec"]["active"] == false {
            deactivated(run, workload);
        } else if !is_true(workload, "QuotaReserved") {
            waiting.push(workload);
        } else if is_true(workload, "Admitted") {
            checks::revoked(run, workload);
        } else {
            checks::step(run, workload);
        }
    }
    waiting.sort_by_key(|workload| (text(workload, "/metadata/creationTimestamp"), name(workload)));
    let mut blocked_by: Vec<String> = Vec::new();
    for workload in waiting {
        let local_name = text(workload, "/spec/queueName");
        let Some(local) = run.get(GROUP, "localqueues", namespace(workload), local_name) else {
            wait(run, workload, ("Inadmissible", &format!("LocalQueue {local_name} doesn't exist")));
            continue;
        };
        let queue_name = text(local, "/spec/clusterQueue");
        let queue = run.get(GROUP, "clusterqueues", "", queue_name);
        let Some(queue) = queue.filter(|_| active.iter().any(|queue| queue == queue_name)) else {
            wait(run, workload, ("Inadmissible", &format!("ClusterQueue {queue_name} is inactive")));
            continue;
        };
        // The head of a strict queue is the only one that is looked at.
        if blocked_by.iter().any(|held| held == queue_name) {
            continue;
        }
        match quotas.assign(run, queue, workload) {
            Ok(sets) => reserve(run, queue, workload, &sets),
            Err(message) => {
                if text(queue, "/spec/queueingStrategy") == "StrictFIFO" {
                    blocked_by.push(queue_name.to_owned());
                }
                wait(run, workload, ("Pending", &message));
            }
        }
    }
}

fn wait(run: &mut Run<'_>, workload: &Value, said: (&str, &str)) {
    let mut conditions = Conditions::of(workload);
    conditions.set(run, "QuotaReserved", false, said);
    let status = conditions.status();
    run.status(KUEUE, key(GROUP, "workloads", workload), workload, status);
}

fn reserve(run: &mut Run<'_>, queue: &Value, workload: &Value, sets: &Sets) {
    let checks = checks::needed(queue, sets);
    let mut conditions = Conditions::of(workload);
    let message = format!("Quota reserved in ClusterQueue {}", name(queue));
    conditions.set(run, "QuotaReserved", true, ("QuotaReserved", &message));
    if checks.is_empty() {
        conditions.set(run, "Admitted", true, ("Admitted", "The workload is admitted"));
    }
    let mut status = conditions.status();
    status["admission"] = json!({"clusterQueue": name(queue), "podSetAssignments": sets.assignments()});
    if !checks.is_empty() {
        let pending = |check: &String| {
            json!({
                "name": check, "state": "Pending", "message": "",
                "lastTransitionTime": super::super::object::time(run.now),
            })
        };
        status["admissionChecks"] = checks.iter().map(pending).collect();
    }
    run.status(KUEUE, key(GROUP, "workloads", workload), workload, status);
}

/// Work that somebody parked, or that a check has rejected, gives its quota back.
fn deactivated(run: &mut Run<'_>, workload: &Value) {
    if is_true(workload, "Evicted") && !is_true(workload, "QuotaReserved") {
        return;
    }
    let rejected =
        list(workload, "/status/admissionChecks").iter().find(|check| check["state"] == "Rejected");
    let by_check = rejected.map(|check| {
        let name = text(check, "/name");
        format!("The workload is deactivated due to Admission check(s): {name}, were rejected")
    });
    let said = match &by_check {
        Some(message) => ("DeactivatedDueToAdmissionCheck", message.as_str()),
        None => ("Deactivated", "The workload is deactivated"),
    };
    let mut conditions = Conditions::of(workload);
    conditions.set(run, "Evicted", true, said);
    conditions.set(run, "QuotaReserved", false, ("Pending", said.1));
    if is_true(workload, "Admitted") {
        conditions.set(run, "Admitted", false, ("NoReservation", "The workload has no reservation"));
    }
    let mut status = conditions.status();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("admission");
        fields.remove("admissionChecks");
    }
    run.status(KUEUE, key(GROUP, "workloads", workload), workload, status);
}

#[cfg(test)]
#[path = "kueue_tests.rs"]
mod tests;
