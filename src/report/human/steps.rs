//! The steps of a change in words, with what is sent.

use super::style::{Tint, paint, push_line, strip_controls, wrap};
use super::values;
use crate::report::brief;
use model::resource::{Api, Call, Deferred, Lane, Step, Until};
use plan::Change;

/// Returns true if the whole object is shown, so that request bodies are not shown again. GKE requests have other bodies.
pub(super) fn is_shown_whole(change: &Change) -> bool {
    change.lane == Lane::Kubernetes && is_new(change)
}

pub(super) fn is_new(change: &Change) -> bool {
    change.action.creates()
}

pub(super) fn steps(text: &mut String, change: &Change, steps: &[Step], indent: usize, width: usize) {
    let blank = " ".repeat(indent);
    for (place, step) in steps.iter().enumerate() {
        let first = format!("{blank}{} ", paint(Tint::Dim, &format!("{}.", place + 1)));
        text.push_str(&wrap(&first, &strip_controls(&step_text(step)), width));
        let Step::Call(Call { api, body: Some(body), .. }) = step else { continue };
        if *api == Api::Kubernetes && is_shown_whole(change) {
            continue;
        }
        for line in values::folded(&body.value()) {
            push_line(text, &format!("{blank}     {}", strip_controls(&line)));
        }
    }
}

fn step_text(step: &Step) -> String {
    match step {
        Step::Call(call) => {
            let api = match call.api {
                Api::Gke => "GKE",
                Api::Compute => "Compute Engine",
                Api::Projects => "Resource Manager",
                Api::Policies => "Organization Policy",
                Api::Billing => "Cloud Billing",
                Api::Kubernetes => "Kubernetes",
            };
            let deferred = call.deferred.iter().map(|(path, deferred)| match deferred {
                Deferred::LabelFingerprint => format!("{path}: the label fingerprint at that time"),
                Deferred::ManagedFields { without } => {
                    format!("{path}: the entries at that time, without those of {}", without.join(", "))
                }
                Deferred::Version => format!("{path}: the version at that time"),
                Deferred::Environment { variable, digest: _ } => {
                    format!("{path}: the environment variable {variable} at that time")
                }
            });
            let deferred = deferred.collect::<Vec<_>>().join(", ");
            let deferred = if deferred.is_empty() { deferred } else { format!(" ({deferred})") };
            format!("{api}: {} {}{deferred}", call.method.as_str(), call.path)
        }
        Step::Await(wait) if wait.until == Until::StillReady => {
            format!("check whether {} is ready, and warn if not", wait.identity)
        }
        Step::Await(wait) => {
            let until = match wait.until {
                Until::Ready | Until::StillReady => "ready",
                Until::Gone => "gone",
                Until::Idle => "idle",
                Until::Handled => "handled by its operator",
            };
            let deadline = brief(std::time::Duration::from_secs(wait.deadline.into()));
            format!("wait until {} is {until}, at most {deadline}", wait.identity)
        }
        Step::ReadLog { pod, expect: Some(expect) } => {
            format!("read the log of {pod}: it must contain the line `{expect}`")
        }
        Step::ReadLog { pod, expect: None } => format!("read the end of the log of {pod}"),
        Step::RecordCompletion { digest: _ } => "record that it passed".to_owned(),
    }
}
