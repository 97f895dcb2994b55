//! The form in which objects are stored: defaults filled in, and nothing that reading and printing drops.
//!
//! Source: the `omitempty` tags of `k8s.io/api/*/types.go`; what a real server printed is recorded in `tests/contract`.

use serde_json::{Map, Value};

use super::scheme::{Kind, Origin};
use model::schema::{Schema, Type};

/// Fills in the fields that a write may omit: the defaults of the schema, and those that kube-apiserver sets in code.
pub fn fill(kind: &Kind, object: &mut Value) {
    if let Some(schema) = &kind.schema {
        from_schema(schema, object);
    }
    (kind.strategy.defaults)(object);
}

/// Defaults that the schema declares, wherever the object around them is there.
fn from_schema(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in schema.property_names() {
                let Some(property) = schema.property(&name) else { continue };
                if fields.get(&name).is_none_or(|value| value.is_null() && !property.nullable())
                    && let Some(default) = property.default()
                {
                    fields.insert(name.clone(), default);
                }
                // Scalars have nothing below them.
                if let Some(value @ (Value::Object(_) | Value::Array(_))) = fields.get_mut(&name) {
                    from_schema(&property, value);
                }
            }
            if let Some(values) = schema.values() {
                for value in fields.values_mut().filter(|value| value.is_object() || value.is_array()) {
                    from_schema(&values, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    from_schema(&schema, item);
                }
            }
        }
        _ => {}
    }
}

/// Normalizes an object to the form in which it is stored.
pub fn normalize(kind: &Kind, object: &mut Value) {
    if let Some(schema) = &kind.schema {
        match kind.origin {
            Origin::BuiltIn => print(schema, object),
            Origin::Custom => prune(schema, object),
        }
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        metadata.retain(|name, value| !matches!(name.as_str(), "annotations" | "labels") || !is_empty(value));
    }
}

/// Times of conditions that the server's own types print as null when nobody has set them.
pub fn null_times(kind: &Kind, object: &mut Value) {
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        for name in kind.strategy.condition_times {
            condition.entry(*name).or_insert(Value::Null);
        }
    }
}

/// Drops fields that the schema does not have, and nulls that are no values.
pub fn prune(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if schema.ty() == Type::Any {
                return;
            }
            let values = schema.values();
            let open = schema.preserves_unknown() || (schema.property_names().is_empty() && values.is_none());
            fields.retain(|name, value| match schema.property(name).or_else(|| values.clone()) {
                None => open,
                Some(below) => {
                    if value.is_null() {
                        return below.nullable() || below.ty() == Type::Any;
                    }
                    prune(&below, value);
                    true
                }
            });
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    prune(&schema, item);
                }
            }
        }
        _ => {}
    }
}

/// Fields whose zero the server's own types leave out although it is not an empty text or list.
const OMITTED_ZEROS: &[&str] = &[
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "minReadySeconds",
    "nodePort",
    "paused",
    "publishNotReadyAddresses",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "unschedulable",
];

/// Texts that stay although they are empty.
const KEPT_EMPTY: &[&str] = &["ingressClassName", "storageClassName", "type", "volumeName"];

/// Drops what reading into the server's own types and writing out again drops: nulls, empty maps and
/// lists, empty texts, quantities as numbers (they become texts) and the zeros of [`OMITTED_ZEROS`]. Fields whose struct is empty stay (`emptyDir`).
fn print(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let map = schema.ty() == Type::Map;
            if schema.ty() == Type::Any {
                return;
            }
            fields.retain(|name, value| {
                let below = schema.property(name).or_else(|| schema.values());
                if let Some(below) = &below {
                    print(below, value);
                }
                let ty = below.map(|below| below.ty());
                if let (Some(Type::Quantity), Value::Number(number)) = (ty, &*value) {
                    *value = Value::String(number.to_string());
                }
                match value {
                    Value::Null => ty == Some(Type::Any) || (map && ty == Some(Type::Map)),
                    Value::Array(items) => !items.is_empty() || map || ty == Some(Type::Any),
                    Value::Object(inner) => !inner.is_empty() || ty != Some(Type::Map) || map,
                    Value::String(inner) => {
                        !inner.is_empty()
                            || map
                            || KEPT_EMPTY.contains(&name.as_str())
                            || ty == Some(Type::Any)
                    }
                    Value::Bool(false) => !OMITTED_ZEROS.contains(&name.as_str()),
                    Value::Number(number) if number.as_i64() == Some(0) => {
                        !OMITTED_ZEROS.contains(&name.as_str())
                    }
                    _ => true,
                }
            });
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    print(&schema, item);
                }
            }
        }
        _ => {}
    }
}
