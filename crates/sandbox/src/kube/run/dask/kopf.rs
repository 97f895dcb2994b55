//! The bookkeeping of kopf, the framework under the operator: what it last handled stands in an
//! annotation, and a finalizer keeps objects with timers until it lets them go.
//!
//! From memory of kopf, `_cogs/configs/diffbase.py` and `_core/reactor`; records are compared with the real operator's by
//! `control_plane::sandbox_equality`.

use serde_json::{Map, Value, json};

use crate::kube::object::{annotation, list};

/// Keeps an object until the operator has seen its deletion.
pub const FINALIZER: &str = "kopf.zalando.org/KopfFinalizerMarker";
/// The state that kopf handled last.
pub const LAST_HANDLED: &str = "kopf.zalando.org/last-handled-configuration";

/// Returns the parts that kopf compares: labels, annotations that are nobody's bookkeeping, everything outside metadata
/// and status, and those parts of the status that a handler watches.
pub fn essence(object: &Value, watched: &[&str]) -> Value {
    let mut out: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    for field in ["apiVersion", "kind", "metadata", "status"] {
        out.remove(field);
    }
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        let mut map = object["metadata"].get(field).and_then(Value::as_object).cloned().unwrap_or_default();
        map.retain(|key, _| {
            field == "labels"
                || !(key.starts_with("kopf.zalando.org/")
                    || key == "kubectl.kubernetes.io/last-applied-configuration")
        });
        if !map.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(map));
        }
    }
    if !metadata.is_empty() {
        out.insert("metadata".to_owned(), Value::Object(metadata));
    }
    let mut out = Value::Object(out);
    for field in watched {
        match (*field, object.get("status")) {
            ("", Some(status)) => out["status"] = status.clone(),
            (field, Some(status)) if status.get(field).is_some() => {
                out["status"][field] = status[field].clone();
            }
            _ => {}
        }
    }
    out
}

/// Returns the state that was handled last, `None` when the object is new to the operator.
pub fn last_handled(object: &Value) -> Option<Value> {
    serde_json::from_str(annotation(object, LAST_HANDLED)?).ok()
}

/// The patch that says that this state is handled.
pub fn handled(essence: &Value) -> Value {
    json!({"metadata": {"annotations": {LAST_HANDLED: format!("{essence}\n")}}})
}

/// Returns true if the object has the operator's finalizer.
pub fn has_finalizer(object: &Value) -> bool {
    list(object, "/metadata/finalizers").iter().any(|finalizer| finalizer == FINALIZER)
}

/// The finalizers with kopf's own.
pub fn with_finalizer(object: &Value) -> Vec<Value> {
    let mut all = without_finalizer(object);
    all.push(json!(FINALIZER));
    all
}

/// The finalizers but kopf's own.
pub fn without_finalizer(object: &Value) -> Vec<Value> {
    list(object, "/metadata/finalizers")
        .iter()
        .filter(|finalizer| **finalizer != FINALIZER)
        .cloned()
        .collect()
}
