//! Jobs: pods until enough of them have succeeded.
//!
//! Recalled from `pkg/controller/job/job_controller.go`.

use serde_json::{Value, json};

use super::super::object::{is_deleted, is_true, key, list, number, set_condition, text, time};
use super::events::{self, Level};
use super::round::Run;
use super::workloads::{MANAGER, delete_surplus, is_active, is_ready, pod, pods_of};

/// One round over all Jobs.
pub fn run(run: &mut Run<'_>) {
    for job in run.objects("batch", "jobs") {
        if is_deleted(job) || is_true(job, "Complete") || is_true(job, "Failed") {
            continue;
        }
        step(run, job);
    }
}

fn step(run: &mut Run<'_>, job: &Value) {
    let pods = pods_of(run, job);
    let count = |phase: &str| pods.iter().filter(|pod| text(pod, "/status/phase") == phase).count();
    let (succeeded, failed) = (count("Succeeded"), count("Failed"));
    let active: Vec<&Value> = pods.iter().copied().filter(|pod| is_active(pod)).collect();
    let parallelism = usize_at(job, "/spec/parallelism", 1);
    let completions = number(job, "/spec/completions").and_then(|number| usize::try_from(number).ok());
    let completions = completions.unwrap_or(1);
    let limit = usize_at(job, "/spec/backoffLimit", 6);
    let suspended = job["spec"]["suspend"] == true;
    let wanted = if suspended { 0 } else { parallelism.min(completions.saturating_sub(succeeded)) };
    let over = failed > limit;
    if succeeded < completions && !over {
        for _ in active.len()..wanted {
            run.create(MANAGER, pod(job, &job["spec"]["template"]));
        }
        if active.len() < wanted {
            let message = format!("Created {} pods", wanted - active.len());
            events::emit(run, job, Level::Normal, "SuccessfulCreate", "job-controller", &message);
        }
        delete_surplus(run, &active, active.len().saturating_sub(wanted));
    } else {
        delete_surplus(run, &active, active.len());
    }
    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    let mut status = json!({"ready": ready, "uncountedTerminatedPods": {}, "terminating": 0});
    for (field, count) in [("active", active.len()), ("succeeded", succeeded), ("failed", failed)] {
        if count > 0 {
            status[field] = json!(count);
        }
    }
    let start = job.pointer("/status/startTime").cloned();
    if let Some(start) = start.or_else(|| (!suspended).then(|| json!(time(run.now)))) {
        status["startTime"] = start;
    }
    let mut conditions = list(job, "/status/conditions").to_vec();
    let mut say = |ty: &str, value: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": ty, "status": value, "reason": reason, "message": message, "lastProbeTime": time(run.now),
        });
        set_condition(&mut conditions, condition, run.now);
    };
    let suspended_before = is_true(job, "Suspended");
    if succeeded >= completions {
        let message = "Reached expected number of succeeded pods";
        say("SuccessCriteriaMet", "True", "CompletionsReached", message);
        say("Complete", "True", "CompletionsReached", message);
        status["completionTime"] = json!(time(run.now));
    } else if over {
        let message = "Job has reached the specified backoff limit";
        say("FailureTarget", "True", "BackoffLimitExceeded", message);
        say("Failed", "True", "BackoffLimitExceeded", message);
    } else if suspended && !suspended_before {
        say("Suspended", "True", "JobSuspended", "Job suspended");
    } else if !suspended && suspended_before {
        say("Suspended", "False", "JobResumed", "Job resumed");
    }
    if !conditions.is_empty() {
        status["conditions"] = Value::Array(conditions);
    }
    run.status(MANAGER, key("batch", "jobs", job), job, status);
}

fn usize_at(job: &Value, pointer: &str, default: usize) -> usize {
    number(job, pointer).and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
