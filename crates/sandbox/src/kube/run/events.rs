//! Events: what `kubectl describe` lists. An event that repeats about an object is counted, not stored again; events go
//! after an hour.
//!
//! From memory of client-go, `tools/record/events_cache.go`; the hour is kube-apiserver's `--event-ttl`.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::object::{Key, hex, key, name, namespace, number, text, time, uid};
use super::round::{Run, Write};

/// How long the API server keeps events.
const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Things go their way.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Says that something happened to an object.
pub fn emit(run: &mut Run<'_>, about: &Value, level: Level, reason: &str, component: &str, message: &str) {
    let place = match namespace(about) {
        "" => "default",
        place => place,
    };
    let digest = hex(&format!("{}/{reason}/{message}", uid(about)), 16);
    let event_name = format!("{}.{digest}", name(about));
    if let Some(live) = run.get("", "events", place, &event_name) {
        let event_key = Key::new("", "events", place, &event_name);
        let count = number(live, "/count").unwrap_or(1) + 1;
        run.merge(
            "kube-controller-manager",
            event_key,
            json!({"count": count, "lastTimestamp": time(run.now)}),
        );
        return;
    }
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": event_name, "namespace": place},
        "involvedObject": {
            "apiVersion": about["apiVersion"], "kind": about["kind"], "name": name(about),
            "namespace": namespace(about), "uid": uid(about),
            "resourceVersion": about["metadata"]["resourceVersion"],
        },
        "type": match level { Level::Normal => "Normal", Level::Warning => "Warning" },
        "reason": reason, "message": message, "count": 1,
        "source": {"component": component},
        "firstTimestamp": time(run.now), "lastTimestamp": time(run.now),
        "reportingComponent": component, "reportingInstance": "",
    });
    // Two equal events in one round would have the same name.
    let made = |write: &Write| {
        matches!(write, Write::Create { object, .. }
        if object["kind"] == "Event" && name(object) == event_name)
    };
    if !run.writes.iter().any(made) {
        run.create("kube-controller-manager", event);
    }
}

/// One round: forgets old events.
pub fn run(run: &mut Run<'_>) {
    for event in run.objects("", "events") {
        let last = text(event, "/lastTimestamp").parse::<Timestamp>();
        if last.is_ok_and(|last| run.now.duration_since(last) > KEPT) {
            run.delete(key("", "events", event));
        }
    }
}
