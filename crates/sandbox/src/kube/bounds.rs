//! Rules of a custom kind's definition beyond types: bounds, and lists whose items may not come
//! twice. Wording of kube-openapi's `validation/errors` and of apiextensions-apiserver's `schema/listtype`.

use serde_json::{Map, Value};

use super::scheme::Kind;
use super::status::Cause;

/// Everything by which an object breaks its definition's bounds.
pub fn judge(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(document) = &kind.document {
        walk(document, object, "", &mut causes);
    }
    let replicas = kind.scale.as_ref().and_then(|scale| {
        let count = object.pointer(&scale.spec.replace('.', "/"))?.as_i64()?;
        Some((scale.spec.clone(), count))
    });
    if let Some((field, count)) = replicas.filter(|(_, count)| *count < 0) {
        causes.push(Cause::invalid(field, count, "should be a non-negative integer"));
    }
    causes
}

fn walk(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let declared = schema.get("properties").and_then(|properties| properties.get(name));
                let below = declared.or_else(|| schema.get("additionalProperties"));
                let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if let Some(below) = below {
                    walk(below, value, &place, causes);
                }
            }
        }
        Value::Array(items) => {
            count(schema, items, path, causes);
            twice(schema, items, path, causes);
            for (index, item) in items.iter().enumerate() {
                if let Some(below) = schema.get("items") {
                    walk(below, item, &format!("{path}[{index}]"), causes);
                }
            }
        }
        Value::String(text) => length(schema, text, path, causes),
        Value::Number(_) => number(schema, value, path, causes),
        Value::Null | Value::Bool(_) => {}
    }
}

fn limit(schema: &Value, name: &str) -> Option<usize> {
    schema.get(name).and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok())
}

fn invalid(path: &str, shown: &str, why: &str) -> Cause {
    Cause::invalid(path, shown, &format!("{path} in body {why}"))
}

fn number(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(found) = value.as_f64() else { return };
    let on = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    if let Some(bound) = schema.get("minimum") {
        let least = bound.as_f64().unwrap_or(f64::MIN);
        if on("exclusiveMinimum") && found <= least {
            causes.push(invalid(path, &value.to_string(), &format!("should be greater than {bound}")));
        } else if found < least {
            let why = format!("should be greater than or equal to {bound}");
            causes.push(invalid(path, &value.to_string(), &why));
        }
    }
    if let Some(bound) = schema.get("maximum") {
        let most = bound.as_f64().unwrap_or(f64::MAX);
        if on("exclusiveMaximum") && found >= most {
            causes.push(invalid(path, &value.to_string(), &format!("should be less than {bound}")));
        } else if found > most {
            let why = format!("should be less than or equal to {bound}");
            causes.push(invalid(path, &value.to_string(), &why));
        }
    }
}

fn length(schema: &Value, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let found = text.chars().count();
    if let Some(least) = limit(schema, "minLength").filter(|least| found < *least) {
        causes.push(invalid(path, &format!("{text:?}"), &format!("should be at least {least} chars long")));
    }
    if let Some(most) = limit(schema, "maxLength").filter(|most| found > *most) {
        let message = format!("Too long: may not be more than {most} bytes");
        causes.push(Cause::new("FieldValueTooLong", path, message));
    }
}

fn count(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let found = items.len();
    if let Some(least) = limit(schema, "minItems").filter(|least| found < *least) {
        causes.push(invalid(path, &found.to_string(), &format!("should have at least {least} items")));
    }
    if let Some(most) = limit(schema, "maxItems").filter(|most| found > *most) {
        let message = format!("Too many: {found}: must have at most {most} items");
        causes.push(Cause::new("FieldValueTooMany", path, message));
    }
}

/// Items of sets and of lists with keys come once.
fn twice(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let name = |item: &Value| -> Option<Value> {
        match schema.get("x-kubernetes-list-type")?.as_str()? {
            "set" => Some(item.clone()),
            "map" => {
                let keys = schema.get("x-kubernetes-list-map-keys")?.as_array()?;
                let keys = keys.iter().filter_map(Value::as_str);
                let named = keys.filter_map(|key| Some((key.to_owned(), item.get(key)?.clone())));
                Some(Value::Object(named.collect::<Map<_, _>>()))
            }
            _ => None,
        }
    };
    let mut seen: Vec<Value> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let Some(name) = name(item) else { return };
        if seen.contains(&name) {
            let message = format!("Duplicate value: {name}");
            causes.push(Cause::new("FieldValueDuplicate", format!("{path}[{index}]"), message));
        } else {
            seen.push(name);
        }
    }
}
