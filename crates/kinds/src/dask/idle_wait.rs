//! The wait of `--when-idle`: before workers are deleted, it waits until their scheduler has no tasks.

use serde_json::Value;

use crate::dask::api::{self, CLUSTER_LABEL, COMPONENT_LABEL};
use crate::dask::worker_count;
use crate::json::{count, text};
use crate::kubernetes::object::pods_labelled;
use crate::kubernetes::pod_state::{ContainerState, PodState};
use model::resource::{
    Action, Api, Await, Call, Facts, Identity, KindId, Method, ObjectId, Query, Readiness, Step, Until,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdleQuery {
    /// The scheduler of a Dask cluster.
    Scheduler {
        pods: Query,
        /// The query for its number of tasks.
        counts: Query,
        /// Its Service.
        service: ObjectId,
    },
    /// A job: the operator reports its end.
    Job(Query),
}

/// Returns true if a change deletes workers that may compute: all of them, or some that the plan has chosen.
pub(crate) fn deletes_workers(action: Action, steps: &[Step]) -> bool {
    let deletes = |step: &Step| matches!(step, Step::Call(Call { method: Method::Delete, .. }));
    match action {
        Action::Replace | Action::Delete | Action::Update => steps.iter().any(deletes),
        Action::Keep | Action::Create | Action::Forget | Action::Run => false,
    }
}

/// Returns the wait for the tasks of a live resource that loses workers; `None` if it has no tasks. `deadline` in seconds.
pub fn wait(kind: KindId, identity: &Identity, live: &Value, deadline: u32) -> Option<Await> {
    let Identity::Object(object) = identity else { return None };
    if !matches!(kind, KindId::DaskCluster | KindId::DaskGroup | KindId::DaskJob) {
        return None;
    }
    let itself = kind == KindId::DaskCluster;
    let cluster = if itself { object.name.as_str() } else { text(&live["spec"]["cluster"]) };
    let facts = Facts::Cluster(cluster.to_owned());
    Some(Await { kind, identity: identity.clone(), until: Until::Idle, facts, deadline })
}

pub fn idle_query(wait: &Await) -> Option<IdleQuery> {
    let Identity::Object(object) = &wait.identity else { return None };
    let at = |path: String| Query { api: Api::Kubernetes, path };
    if wait.kind == KindId::DaskJob {
        return Some(IdleQuery::Job(at(object.path())));
    }
    let cluster = wait.cluster().unwrap_or_default();
    let namespace = object.namespace.as_deref();
    Some(IdleQuery::Scheduler {
        pods: pods_labelled(namespace, [(CLUSTER_LABEL, cluster), (COMPONENT_LABEL, "scheduler")]),
        counts: worker_count::counts(namespace, cluster),
        service: api::scheduler_service(namespace, cluster),
    })
}

/// Returns true if a scheduler runs. Tasks exist only in its memory, so without it there are none. It need not be ready: a busy
/// scheduler may answer health checks late.
pub fn runs(pods: &Value) -> bool {
    PodState::each(pods).any(|pod| pod.containers().any(ContainerState::is_running))
}

/// Returns ready if a scheduler is idle by its own numbers of tasks. Idle has Dask's meaning: no task runs, waits, or lacks a
/// worker that could run it. Results that clients keep in the workers' memory are not work. The numbers do not include queued
/// tasks, but those exist only beside running ones, or while there is no worker although some are requested. Source:
/// `Scheduler.check_idle` and `adaptive_target` in `distributed/scheduler.py` 2026.8.0.
pub fn readiness(counts: &Value) -> Readiness {
    if !counts["processing"].is_u64() || !counts["tasks"].is_u64() {
        return Readiness::Failed(
            "its scheduler's address is not answered by a Dask scheduler: the answer has no number of tasks"
                .into(),
        );
    }
    let rows = [("processing", "running"), ("waiting", "waiting"), ("unrunnable", "without a worker")];
    let mut work: Vec<String> = rows
        .into_iter()
        .map(|(field, state)| (count(&counts[field]), state))
        .filter(|(tasks, _)| *tasks > 0)
        .map(|(tasks, state)| format!("{tasks} {} {state}", if tasks == 1 { "task" } else { "tasks" }))
        .collect();
    if work.is_empty() && count(&counts["workers"]) == 0 && count(&counts["desired_workers"]) > 0 {
        work.push("tasks queued for workers".into());
    }
    if work.is_empty() {
        return Readiness::Ready;
    }
    Readiness::progressing(format!("its scheduler is busy: {}", work.join(", ")))
}

/// Returns ready once the operator reports that a job has ended.
pub fn job_readiness(job: &Value) -> Readiness {
    match text(&job["status"]["jobStatus"]) {
        _ if !job.is_object() => Readiness::Ready,
        "Successful" | "Failed" => Readiness::Ready,
        "" => Readiness::progressing("the job has not started yet"),
        status => Readiness::progressing(format!("the job is {status}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(fields: &Value) -> Value {
        // As a scheduler of distributed 2026.8.0 says it with one worker and nothing to do.
        let mut counts = json!({
            "bytes": 0, "clients": 1, "cores": 1, "erred": 0, "hosts": 1, "idle": 1, "memory": 0,
            "processing": 0, "released": 0, "saturated": 0, "tasks": 0, "unrunnable": 0, "waiting": 0,
            "waiting_data": 0, "workers": 1, "desired_workers": 0,
        });
        for (field, value) in fields.as_object().unwrap() {
            counts[field] = value.clone();
        }
        counts
    }

    #[test]
    fn a_scheduler_is_idle_when_no_task_has_anything_to_do() {
        let waits = |text: &str| Readiness::progressing(format!("its scheduler is busy: {text}"));
        for (fields, expect) in [
            (json!({}), Readiness::Ready),
            // Results and mistakes that a notebook keeps.
            (json!({ "tasks": 3, "memory": 2, "erred": 1 }), Readiness::Ready),
            (json!({ "tasks": 1, "processing": 1, "desired_workers": 1 }), waits("1 task running")),
            (
                json!({ "tasks": 9, "processing": 2, "waiting": 6, "unrunnable": 1 }),
                waits("2 tasks running, 6 tasks waiting, 1 task without a worker"),
            ),
            (json!({ "tasks": 5, "workers": 0, "desired_workers": 1 }), waits("tasks queued for workers")),
            (json!({ "workers": 0 }), Readiness::Ready),
        ] {
            assert_eq!(readiness(&counts(&fields)), expect, "{fields}");
        }
        for other in [json!("ok"), json!({ "tasks": 1 }), Value::Null] {
            assert!(matches!(readiness(&other), Readiness::Failed(_)), "{other}");
        }
    }

    #[test]
    fn a_scheduler_that_does_not_run_has_no_work() {
        let pod =
            |state: Value| json!({ "items": [{ "status": { "containerStatuses": [{ "state": state }] } }] });
        assert!(runs(&pod(json!({ "running": { "startedAt": "x" } }))));
        assert!(!runs(&pod(json!({ "waiting": { "reason": "ImagePullBackOff" } }))));
        assert!(!runs(&json!({ "items": [{ "status": { "phase": "Pending" } }] })));
        assert!(!runs(&json!({ "items": [] })));
    }

    #[test]
    fn a_job_is_work_until_it_has_ended() {
        let job = |status: &str| job_readiness(&json!({ "status": { "jobStatus": status } }));
        assert_eq!(job("Successful"), Readiness::Ready);
        assert_eq!(job("Failed"), Readiness::Ready);
        assert_eq!(job("Running"), Readiness::progressing("the job is Running"));
        assert!(matches!(job(""), Readiness::Progressing(_)));
        assert_eq!(job_readiness(&Value::Null), Readiness::Ready);
    }

    #[test]
    fn what_takes_workers_away_waits() {
        let object = |gvk: model::resource::Gvk, name: &str| {
            Identity::Object(ObjectId { gvk, namespace: Some("n".into()), name: name.into() })
        };
        let (cluster, group) = (object(api::cluster(), "c"), object(api::group(), "c-big"));
        let live = json!({ "spec": { "cluster": "c" } });
        let path = |found: Option<Await>| match idle_query(&found.unwrap()) {
            Some(IdleQuery::Scheduler { counts, .. }) => counts.path,
            other => panic!("{other:?}"),
        };
        let expect = "/api/v1/namespaces/n/services/c-scheduler:http-dashboard/proxy/json/counts.json";
        for (kind, identity) in [(KindId::DaskCluster, &cluster), (KindId::DaskGroup, &group)] {
            assert_eq!(path(wait(kind, identity, &live, 9)), expect);
        }
        let call = |method| {
            let (api, path, body, deferred) = (Api::Kubernetes, String::new(), None, Vec::new());
            [Step::Call(Call { api, method, path, body, deferred })]
        };
        for (action, method, expect) in [
            (Action::Replace, Method::Delete, true),
            (Action::Delete, Method::Delete, true),
            // Goes along with something else.
            (Action::Delete, Method::Get, false),
            (Action::Update, Method::Delete, true),
            (Action::Update, Method::Patch, false),
            (Action::Create, Method::Patch, false),
        ] {
            assert_eq!(deletes_workers(action, &call(method)), expect, "{action:?} {method:?}");
        }
        let job = wait(KindId::DaskJob, &object(api::job(), "j"), &live, 9).unwrap();
        assert!(
            matches!(idle_query(&job), Some(IdleQuery::Job(Query { path, .. })) if path.ends_with("/daskjobs/j"))
        );
        assert_eq!(wait(KindId::Namespace, &cluster, &live, 9), None);
    }
}
