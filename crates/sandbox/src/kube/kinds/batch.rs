//! Jobs and CronJobs. Source: `pkg/apis/batch/v1/defaults.go`, `printJob` in
//! `pkg/printers/internalversion/printers.go`, `generateSelector` and `DefaultGarbageCollectionPolicy` in
//! `pkg/registry/batch/job/strategy.go`, `pkg/apis/batch/validation/validation.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::age::since;
use super::super::object::{fill, is_deleted, is_true, number, text};
use super::super::status::Cause;
use super::super::strategy::Cell::{At, Of};
use super::super::strategy::{AGE, Deletion, NAME, Selectable, Strategy, column, count, put};
use super::apps::{CONTAINERS, IMAGES, SELECTOR, template};
use super::pod_spec;

pub const STRATEGIES: &[Strategy] = &[
    Strategy {
        generation: true,
        columns: &[
            NAME,
            column("Status", Of(|job| status(job).to_owned())),
            column("Completions", Of(completions)),
            column("Duration", At(duration)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        zero: || json!({"spec": {"template": template()}, "status": {}}),
        defaults,
        prepare_for_create: |_, job| {
            put(job, "status", json!({}));
            select(job);
        },
        validate: |job, causes| {
            pod_spec::validate(job, "/spec/template/spec", "spec.template.spec", causes);
            if text(job, "/spec/template/spec/restartPolicy") == "Always" {
                let message = "Required value: valid values: \"OnFailure\", \"Never\"";
                causes.push(Cause::new("FieldValueRequired", "spec.template.spec.restartPolicy", message));
            }
        },
        immutable: &["/spec/selector", "/spec/template", "/spec/completionMode"],
        selectable: Selectable::These(&["status.successful"]),
        condition_times: &["lastProbeTime", "lastTransitionTime"],
        deletion: Deletion::KeepsDependents,
        ..Strategy::of("batch", "Job")
    },
    Strategy {
        generation: true,
        defaults: |job| {
            pod_spec::template(job, "/spec/jobTemplate/spec/template");
            fill(
                &mut job["spec"],
                &json!({"concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3,
                    "failedJobsHistoryLimit": 1}),
            );
        },
        ..Strategy::of("batch", "CronJob")
    },
];

fn defaults(job: &mut Value) {
    pod_spec::template(job, "/spec/template");
    let spec = &mut job["spec"];
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        put(spec, "completions", json!(1));
    }
    let replacement = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    fill(
        spec,
        &json!({"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "manualSelector": false, "podReplacementPolicy": replacement}),
    );
}

/// The selector that the server makes from the uid.
fn select(job: &mut Value) {
    if job.pointer("/spec/manualSelector").is_some_and(|manual| manual == true) {
        return;
    }
    let (uid, name) = (job["metadata"]["uid"].clone(), job["metadata"]["name"].clone());
    job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    let metadata = &mut job["spec"]["template"]["metadata"];
    put(metadata, "labels", json!({}));
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        metadata["labels"][label] = value.clone();
    }
    let labels = metadata["labels"].clone();
    put(&mut job["metadata"], "labels", labels);
}

fn status(job: &Value) -> &'static str {
    let first = |types: &[&'static str]| types.iter().copied().find(|ty| is_true(job, ty));
    match first(&["Complete", "Failed"]) {
        Some(end) => end,
        None if is_deleted(job) => "Terminating",
        None => first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running"),
    }
}

fn completions(job: &Value) -> String {
    let done = count(job, "/status/succeeded");
    match (number(job, "/spec/completions"), count(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    match (text(job, "/status/startTime"), text(job, "/status/completionTime").parse()) {
        ("", _) => String::new(),
        (start, Ok(end)) => since(start, end),
        (start, Err(_)) => since(start, now),
    }
}
