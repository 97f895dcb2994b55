//! Readiness of kinds that this program knows only by their status: the conditions that controllers commonly use. Source:
//! kubernetes-sigs/cli-utils, `pkg/kstatus/README.md`; the Kubernetes API conventions on `status.conditions`.

use serde_json::Value;

use crate::json::{count, text};
use crate::kubernetes::object::condition;
use model::resource::Readiness;

/// Types of conditions that mean that an object needs help to make progress.
const BAD: &[&str] = &["Stalled", "Failed"];
/// Types of conditions that mean that an object is ready. The first one that it has counts: an object that is not `Ready` may be
/// `Available`.
const GOOD: &[&str] = &["Ready", "Available", "Succeeded", "Complete"];
/// The prefix of Kueue's API groups. For its queues and checks `Active` means ready; other APIs use it for objects that are in
/// use.
const KUEUE: &str = "kueue.x-k8s.io/";

/// Returns the readiness from an object's conditions. Without any it is ready, as nothing else is known.
pub(crate) fn readiness(object: &Value) -> Readiness {
    if !object.is_object() {
        return Readiness::progressing("not created yet");
    }
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Readiness::progressing("it is being deleted");
    }
    let (generation, seen) =
        (count(&object["metadata"]["generation"]), &object["status"]["observedGeneration"]);
    if seen.as_u64().is_some_and(|seen| seen < generation) {
        return Readiness::progressing(format!(
            "its controller has handled generation {seen} of {generation}"
        ));
    }
    let holds = |kind: &str| condition(object, kind).filter(|found| found["status"] == "True");
    if let Some((kind, bad)) = BAD.iter().find_map(|kind| Some((kind, holds(kind)?))) {
        return Readiness::Failed(format!("{kind}{}", why(bad)));
    }
    if let Some(going_on) = holds("Reconciling") {
        return Readiness::progressing(format!("its controller is working on it{}", why(going_on)));
    }
    let active = text(&object["apiVersion"]).starts_with(KUEUE).then_some("Active");
    let good = GOOD.iter().copied().chain(active).find_map(|kind| Some((kind, condition(object, kind)?)));
    let Some((kind, good)) = good else {
        return match is_of_queues(object) && !is_held(object) {
            true => Readiness::progressing("Kueue has not handled it yet"),
            false => Readiness::Ready,
        };
    };
    // The queue behind it says why it admits nothing.
    let by_queue = active.is_some() && text(&good["reason"]) == "ClusterQueueIsInactive";
    if active.is_some() && is_held(object) || by_queue {
        return Readiness::Ready;
    }
    let old = good["observedGeneration"].as_u64().is_some_and(|seen| seen < generation);
    match text(&good["status"]) {
        "True" if !old => Readiness::Ready,
        "True" => Readiness::progressing(format!("{kind} is not yet of generation {generation}")),
        status => Readiness::progressing(format!("{kind} is {status}{}", why(good))),
    }
}

/// Returns true for an object of Kueue that always gets the condition `Active`. Without the condition it is unknown if it can be
/// used. A check's condition is set by its own controller, which may be another program. Source: `UpdateClusterQueueStatus` and
/// `UpdateStatusIfChanged` in `pkg/controller/core` of Kueue 0.15.0.
pub(crate) fn is_of_queues(object: &Value) -> bool {
    let controller = &object["spec"]["controllerName"];
    text(&object["apiVersion"]).starts_with(KUEUE)
        && match text(&object["kind"]) {
            "ClusterQueue" | "LocalQueue" => true,
            "AdmissionCheck" => controller == "kueue.x-k8s.io/provisioning-request",
            _ => false,
        }
}

/// Returns true for a queue whose `stopPolicy` holds all work.
fn is_held(queue: &Value) -> bool {
    matches!(text(&queue["spec"]["stopPolicy"]), "Hold" | "HoldAndDrain")
}

/// Returns `: QuotaExceeded: Quota 'X' exceeded`.
fn why(condition: &Value) -> String {
    let words = [text(&condition["reason"]), text(&condition["message"])];
    words.iter().filter(|word| !word.is_empty()).map(|word| format!(": {word}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, api: &str, conditions: &[(&str, &str)]) -> Readiness {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| json!({ "type": kind, "status": status, "reason": "Why", "message": "so" }))
            .collect();
        readiness(&json!({
            "apiVersion": api, "kind": kind, "metadata": { "generation": 2 },
            "spec": { "provisioningClassName": "queued" },
            "status": { "observedGeneration": 2, "conditions": conditions },
        }))
    }

    #[test]
    fn conditions_decide() {
        let waits = |text: &str| Readiness::progressing(text);
        let fails = |text: &str| Readiness::Failed(text.to_owned());
        for (conditions, expect) in [
            (vec![], Readiness::Ready),
            (vec![("Ready", "True")], Readiness::Ready),
            (vec![("Ready", "False")], waits("Ready is False: Why: so")),
            (vec![("Ready", "Unknown")], waits("Ready is Unknown: Why: so")),
            (vec![("Available", "False")], waits("Available is False: Why: so")),
            (vec![("Available", "True"), ("Ready", "False")], waits("Ready is False: Why: so")),
            (vec![("Succeeded", "False")], waits("Succeeded is False: Why: so")),
            (vec![("Ready", "True"), ("Stalled", "True")], fails("Stalled: Why: so")),
            (vec![("Failed", "True")], fails("Failed: Why: so")),
            (vec![("Failed", "False"), ("Stalled", "False")], Readiness::Ready),
            (
                vec![("Ready", "True"), ("Reconciling", "True")],
                waits("its controller is working on it: Why: so"),
            ),
            // Of a service that has scaled to nothing.
            (vec![("Active", "False")], Readiness::Ready),
        ] {
            assert_eq!(of("Widget", "example.com/v1", &conditions), expect, "{conditions:?}");
        }
        let queue = of("LocalQueue", "kueue.x-k8s.io/v1beta2", &[("Active", "False")]);
        assert_eq!(queue, waits("Active is False: Why: so"));
    }

    #[test]
    fn a_queue_is_not_ready_before_kueue_says_so() {
        let of = |kind: &str, api: &str, spec: Value, conditions: Value| {
            readiness(&json!({
                "apiVersion": api, "kind": kind, "metadata": {}, "spec": spec,
                "status": { "conditions": conditions },
            }))
        };
        let kueue = "kueue.x-k8s.io/v1beta2";
        let inactive = |reason: &str| json!([{ "type": "Active", "status": "False", "reason": reason }]);
        let (unseen, held) = (json!([]), json!({ "stopPolicy": "Hold" }));
        let waits = |text: &str| Readiness::progressing(text);
        let check = |name: &str| json!({ "controllerName": name });
        let provisioning = || check("kueue.x-k8s.io/provisioning-request");
        for (kind, api, spec, conditions, expect) in [
            ("ClusterQueue", kueue, json!({}), unseen.clone(), waits("Kueue has not handled it yet")),
            ("LocalQueue", kueue, json!({}), unseen.clone(), waits("Kueue has not handled it yet")),
            ("AdmissionCheck", kueue, provisioning(), unseen.clone(), waits("Kueue has not handled it yet")),
            ("AdmissionCheck", kueue, check("example.com/c"), unseen.clone(), Readiness::Ready),
            ("ResourceFlavor", kueue, json!({}), unseen.clone(), Readiness::Ready),
            ("ClusterQueue", "example.com/v1", json!({}), unseen.clone(), Readiness::Ready),
            ("ClusterQueue", kueue, held.clone(), unseen, Readiness::Ready),
            ("ClusterQueue", kueue, held, inactive("Stopped"), Readiness::Ready),
            ("ClusterQueue", kueue, json!({}), inactive("F"), waits("Active is False: F")),
            ("LocalQueue", kueue, json!({}), inactive("ClusterQueueIsInactive"), Readiness::Ready),
        ] {
            assert_eq!(of(kind, api, spec.clone(), conditions), expect, "{kind} {api} {spec}");
        }
    }

    #[test]
    fn a_status_of_an_older_generation_says_nothing() {
        let ready = json!([{ "type": "Ready", "status": "True", "observedGeneration": 1 }]);
        let object = |seen: Value| json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": seen, "conditions": ready } });
        for (seen, expect) in [
            (json!(1), "its controller has handled generation 1 of 2"),
            (Value::Null, "Ready is not yet of generation 2"),
        ] {
            assert_eq!(readiness(&object(seen)), Readiness::progressing(expect));
        }
        let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        assert!(matches!(readiness(&going), Readiness::Progressing(why) if why.what.contains("deleted")));
    }
}
