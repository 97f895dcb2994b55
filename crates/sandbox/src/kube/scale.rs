//! The `scale` subresource.

use serde_json::{Value, json};

use super::scheme::{Kind, Origin};
use super::strategy::pairs;

/// The `Scale` object of a scalable object.
pub fn scale_of(kind: &Kind, object: &Value) -> Value {
    let at = |path: &str| object.pointer(&pointer(path)).and_then(Value::as_i64).unwrap_or(0);
    let paths = kind.scale.as_ref();
    let mut metadata = json!({});
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(name) {
            metadata[name] = value.clone();
        }
    }
    let mut status = json!({"replicas": paths.map_or(0, |paths| at(&paths.status))});
    if kind.origin == Origin::BuiltIn {
        status["selector"] = json!(pairs(object.pointer("/spec/selector/matchLabels")).join(","));
    } else if let Some(selector) = paths.and_then(|paths| paths.selector.as_deref()) {
        status["selector"] = object.pointer(&pointer(selector)).cloned().unwrap_or_else(|| json!(""));
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": paths.map_or(0, |paths| at(&paths.spec))}, "status": status})
}

/// `.spec.replicas` as a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}
