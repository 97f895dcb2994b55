//! Jobs: pods until enough of them have succeeded.
//!
//! From memory of `pkg/controller/job/job_controller.go`.

use serde_json::{Value, json};

use super::super::object::{is_deleted, is_true, key, list, number, set_condition, text, time, uid};
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
    let active: Vec<&Value> = pods.iter().copied().filter(|pod| is_active(pod)).collect();
    let late = is_late(run, job);
    let progress = Progress { late, ..Progress::of(job, &pods) };
    let wanted = progress.wanted(job);
    for _ in active.len()..wanted {
        run.create(MANAGER, pod(job, &job["spec"]["template"]));
    }
    if active.len() < wanted {
        let message = format!("Created {} pods", wanted - active.len());
        events::emit(run, job, Level::Normal, "SuccessfulCreate", "job-controller", &message);
    }
    delete_surplus(run, &active, active.len().saturating_sub(wanted));
    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    let mut status = json!({"ready": ready, "uncountedTerminatedPods": {}, "terminating": 0});
    let Progress { succeeded, failed, suspended, .. } = progress;
    for (field, count) in [("active", active.len()), ("succeeded", succeeded), ("failed", failed)] {
        if count > 0 {
            status[field] = json!(count);
        }
    }
    let start = job.pointer("/status/startTime").cloned();
    if let Some(start) = start.or_else(|| (!suspended).then(|| json!(time(run.now)))) {
        status["startTime"] = start;
    }
    if progress.is_complete() {
        status["completionTime"] = json!(time(run.now));
    }
    let mut conditions = list(job, "/status/conditions").to_vec();
    for [ty, value, reason, message] in progress.news(is_true(job, "Suspended")) {
        let condition = json!({
            "type": ty, "status": value, "reason": reason, "message": message, "lastProbeTime": time(run.now),
        });
        set_condition(&mut conditions, condition, run.now);
    }
    if !conditions.is_empty() {
        status["conditions"] = Value::Array(conditions);
    }
    run.status(MANAGER, key("batch", "jobs", job), job, status);
}

/// How far a Job is.
struct Progress {
    succeeded: usize,
    failed: usize,
    completions: usize,
    limit: usize,
    suspended: bool,
    /// True if it has run longer than it may.
    late: bool,
}

/// Returns true once a Job's `activeDeadlineSeconds` are over.
fn is_late(run: &mut Run<'_>, job: &Value) -> bool {
    let given = number(job, "/spec/activeDeadlineSeconds").and_then(|seconds| u32::try_from(seconds).ok());
    let Some(seconds) = given else { return false };
    if job["spec"]["suspend"] == true || text(job, "/status/startTime").is_empty() {
        return false;
    }
    // Whole seconds of a Job are long seconds of the sandbox's clock, so they are counted from when it was seen to run.
    run.passed(format!("{} deadline", uid(job)), f64::from(seconds))
}

impl Progress {
    fn of(job: &Value, pods: &[&Value]) -> Self {
        let count = |phase: &str| pods.iter().filter(|pod| text(pod, "/status/phase") == phase).count();
        Self {
            succeeded: count("Succeeded"),
            failed: count("Failed"),
            completions: usize_at(job, "/spec/completions", 1),
            limit: usize_at(job, "/spec/backoffLimit", 6),
            suspended: job["spec"]["suspend"] == true,
            late: false,
        }
    }

    fn is_complete(&self) -> bool {
        self.succeeded >= self.completions
    }

    fn has_failed(&self) -> bool {
        self.late || self.failed > self.limit
    }

    /// How many pods may run.
    fn wanted(&self, job: &Value) -> usize {
        if self.suspended || self.is_complete() || self.has_failed() {
            return 0;
        }
        usize_at(job, "/spec/parallelism", 1).min(self.completions - self.succeeded)
    }

    /// Conditions that change: type, status, reason, message.
    fn news(&self, was_suspended: bool) -> Vec<[&'static str; 4]> {
        const REACHED: &str = "Reached expected number of succeeded pods";
        const LIMIT: &str = "Job has reached the specified backoff limit";
        if self.is_complete() {
            return vec![
                ["SuccessCriteriaMet", "True", "CompletionsReached", REACHED],
                ["Complete", "True", "CompletionsReached", REACHED],
            ];
        }
        if self.late {
            const LATE: &str = "Job was active longer than specified deadline";
            return vec![
                ["FailureTarget", "True", "DeadlineExceeded", LATE],
                ["Failed", "True", "DeadlineExceeded", LATE],
            ];
        }
        if self.has_failed() {
            return vec![
                ["FailureTarget", "True", "BackoffLimitExceeded", LIMIT],
                ["Failed", "True", "BackoffLimitExceeded", LIMIT],
            ];
        }
        match (self.suspended, was_suspended) {
            (true, false) => vec![["Suspended", "True", "JobSuspended", "Job suspended"]],
            (false, true) => vec![["Suspended", "False", "JobResumed", "Job resumed"]],
            (true, true) | (false, false) => Vec::new(),
        }
    }
}

fn usize_at(job: &Value, pointer: &str, default: usize) -> usize {
    number(job, pointer).and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
