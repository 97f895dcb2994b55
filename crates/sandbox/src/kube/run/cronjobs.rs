//! CronJobs that run every so many minutes: `*/5 * * * *`. Others never run here.
//!
//! From memory of `pkg/controller/cronjob/cronjob_controllerv2.go`. Programs do not run in the sandbox, so what a Job of a
//! CronJob does is an imitation of the one program that is known: of an object whose path stands in its environment
//! (`DASK_INFRA_REAPER_PATH`) and that is older than `DASK_INFRA_REAPER_SECONDS` when the Job is done, nothing is left. Where
//! the address of a Dask scheduler stands there, too, it is the time without work that counts.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::object::{
    Key, controller, is_deleted, is_true, key, label, list, name, namespace, number, reference_to, text, uid,
};
use super::super::store::{DeleteOptions, Propagation};
use super::dask::tasks;
use super::round::{Run, Write};
use super::workloads::MANAGER;

/// One round over all CronJobs.
pub fn run(run: &mut Run<'_>) {
    for cron in run.objects("batch", "cronjobs") {
        if !is_deleted(cron) {
            step(run, cron);
        }
    }
}

fn step(run: &mut Run<'_>, cron: &Value) {
    let own = |job: &&Value| controller(job).is_some_and(|owner| text(owner, "/uid") == uid(cron));
    let mut jobs: Vec<&Value> = run.objects("batch", "jobs").into_iter().filter(own).collect();
    // Names end with a number that grows.
    jobs.sort_by_key(|job| name(job).rsplit('-').next().and_then(|number| number.parse::<u64>().ok()));
    let has_ended = |job: &Value| is_true(job, "Complete") || is_true(job, "Failed");
    let idle = idle_since(run, cron);
    for job in jobs.iter().filter(|job| is_true(job, "Complete")) {
        imitate(run, job, idle);
    }
    for (end, limit) in [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")] {
        let ended: Vec<&Value> = jobs.iter().copied().filter(|job| is_true(job, end)).collect();
        let kept = number(cron, &format!("/spec/{limit}")).and_then(|kept| usize::try_from(kept).ok());
        let surplus = ended.len().saturating_sub(kept.unwrap_or(3));
        for job in ended.into_iter().take(surplus).filter(|job| !is_deleted(job)) {
            let propagation = Some(Propagation::Background);
            let options = DeleteOptions { propagation, ..DeleteOptions::default() };
            run.writes.push(Write::Delete { key: key("batch", "jobs", job), options });
        }
    }
    let active: Vec<Value> = jobs.iter().filter(|job| !has_ended(job)).map(|job| reference(job)).collect();
    let mut status = json!({});
    if !active.is_empty() {
        status["active"] = json!(active);
    }
    if let Some(last) = jobs.last() {
        status["lastScheduleTime"] = last["metadata"]["creationTimestamp"].clone();
    }
    let done = jobs.iter().rev().find(|job| is_true(job, "Complete"));
    if let Some(done) =
        done.map_or(cron.pointer("/status/lastSuccessfulTime"), |job| job.pointer("/status/completionTime"))
    {
        status["lastSuccessfulTime"] = done.clone();
    }
    run.status(MANAGER, key("batch", "cronjobs", cron), cron, status);
    let Some(every) = minutes(text(cron, "/spec/schedule")).filter(|_| cron["spec"]["suspend"] != true)
    else {
        return;
    };
    // A wait of its own after each Job, so that the next one comes as long after it.
    let last = jobs.last().map_or("", |job| name(job));
    if !run.passed(format!("{} cron after {last}", uid(cron)), every * 60.0) || !active.is_empty() {
        return;
    }
    let template = &cron["spec"]["jobTemplate"];
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": format!("{}-{}", name(cron), run.revision()), "namespace": namespace(cron),
            "ownerReferences": [reference_to(cron)],
        },
        "spec": template["spec"],
    });
    for field in ["labels", "annotations"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            job["metadata"][field] = value.clone();
        }
    }
    run.create(MANAGER, job);
}

fn reference(job: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": name(job), "namespace": namespace(job), "uid": uid(job),
    })
}

/// `*/5 * * * *` is every five minutes.
fn minutes(schedule: &str) -> Option<f64> {
    let every: u32 = schedule.strip_prefix("*/")?.strip_suffix(" * * * *")?.parse().ok()?;
    (every > 0).then(|| f64::from(every))
}

/// A variable of the program in the pods of a template.
fn variable<'v>(template: &'v Value, name: &str) -> &'v str {
    let container = list(template, "/spec/containers").first();
    let variables = container.map_or(&[][..], |container| list(container, "/env"));
    variables.iter().find(|variable| variable["name"] == name).map_or("", |found| text(found, "/value"))
}

/// The object of a path of the API.
fn object_at<'a>(run: &Run<'a>, path: &str) -> Option<(Key, &'a Value)> {
    let parts: Vec<&str> = path.split('/').collect();
    let ["", "apis", group, _, "namespaces", namespace, resource, name] = parts.as_slice() else {
        return None;
    };
    Some((Key::new(group, resource, namespace, name), run.get(group, resource, namespace, name)?))
}

/// Since when the scheduler that the program of a CronJob asks has had nothing to do. Where there is none, or no worker of
/// those that its groups are to have, nobody knows.
fn idle_since(run: &mut Run<'_>, cron: &Value) -> Option<Timestamp> {
    let template = &cron["spec"]["jobTemplate"]["spec"]["template"];
    let address = variable(template, "DASK_INFRA_REAPER_SCHEDULER").strip_prefix("tcp://")?;
    let service = run.get("", "services", namespace(cron), address.split('.').next()?)?;
    let (_, cluster) = object_at(run, variable(template, "DASK_INFRA_REAPER_PATH"))?;
    let pods = run.objects("", "pods");
    let is_there = |component: &str| {
        let own = |pod: &&&Value| {
            namespace(pod) == namespace(cluster)
                && label(pod, "dask.org/cluster-name") == name(cluster)
                && label(pod, "dask.org/component") == component
        };
        pods.iter().filter(own).any(|pod| is_true(pod, "Ready"))
    };
    let mut groups = variable(template, "DASK_INFRA_REAPER_GROUPS").split(' ');
    let wanted = groups.any(|group| {
        object_at(run, group).and_then(|(_, group)| number(group, "/spec/worker/replicas")) > Some(0)
    });
    let idle = tasks(service) == 0 && is_there("scheduler") && (!wanted || is_there("worker"));
    idle.then(|| run.begun(format!("{} idle", uid(cluster))))
}

/// Imitates the work of the program in a Job at its end.
fn imitate(run: &mut Run<'_>, job: &Value, idle: Option<Timestamp>) {
    let template = &job["spec"]["template"];
    let Some((key, object)) = object_at(run, variable(template, "DASK_INFRA_REAPER_PATH")) else { return };
    let Ok(seconds) = variable(template, "DASK_INFRA_REAPER_SECONDS").parse::<f64>() else { return };
    let moment = |object: &Value, pointer: &str| text(object, pointer).parse::<Timestamp>().ok();
    let begun = if !variable(template, "DASK_INFRA_REAPER_SCHEDULER").is_empty() {
        idle
    } else if let Some((_, workload)) = object_at(run, variable(template, "DASK_INFRA_REAPER_WORKLOAD")) {
        // A queued workload counts from its admission.
        let mut conditions = list(workload, "/status/conditions").iter();
        let admitted = |one: &&Value| one["type"] == "Admitted" && one["status"] == "True";
        conditions.find(admitted).and_then(|admitted| moment(admitted, "/lastTransitionTime"))
    } else {
        moment(object, "/metadata/creationTimestamp")
    };
    let (Some(begun), Some(done)) = (begun, moment(job, "/status/completionTime")) else {
        return;
    };
    if !is_deleted(object) && run.clock.after(begun, seconds) <= done {
        run.delete(key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{World, pool};
    use super::*;

    fn cron(spec: &Value) -> Value {
        let env = json!([
            { "name": "DASK_INFRA_REAPER_PATH", "value": "/apis/apps/v1/namespaces/default/deployments/d" },
            { "name": "DASK_INFRA_REAPER_SECONDS", "value": "1800" },
        ]);
        let container = json!({ "name": "c", "image": "demo:1", "env": env });
        let mut cron = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "t", "namespace": "default" },
            "spec": { "schedule": "*/5 * * * *", "successfulJobsHistoryLimit": 1, "jobTemplate": { "spec": {
                "template": { "spec": { "restartPolicy": "Never", "containers": [container] } },
            } } },
        });
        crate::kube::object::merge(&mut cron["spec"], spec);
        cron
    }

    fn world(spec: &Value) -> World {
        let mut world = World::new(vec![pool("p", "e2-standard-4", 1, json!({}))]);
        world.pass(60);
        world.create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "namespace": "default" },
            "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "d" } }, "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
            } },
        }));
        world.create(cron(spec));
        world
    }

    #[test]
    fn a_cron_job_runs_every_few_minutes_and_deletes_what_is_old() {
        let mut world = world(&json!({}));
        let there = |world: &World| !world.get("apps", "deployments", "default", "d").is_null();
        world.pass(290);
        assert_eq!(world.names("batch", "jobs", "default").len(), 0);
        world.pass(60);
        assert_eq!(world.names("batch", "jobs", "default").len(), 1);
        world.pass(1400);
        assert!(there(&world), "its time is not over");
        assert!(world.names("batch", "jobs", "default").len() <= 2, "old Jobs go");
        world.pass(600);
        assert!(!there(&world));
    }

    #[test]
    fn a_suspended_one_and_one_of_another_schedule_do_not_run() {
        for spec in [json!({ "suspend": true }), json!({ "schedule": "0 8 * * 1" })] {
            let mut world = world(&spec);
            world.pass(4000);
            assert!(world.names("batch", "jobs", "default").is_empty(), "{spec}");
        }
    }
}
