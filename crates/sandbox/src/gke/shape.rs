//! Proto3 JSON: reads request bodies into one canonical form and writes it out again. Canonical means
//! lowerCamel names, 64-bit numbers as strings, enums by name, and no field that holds its zero value
//! unless the field knows presence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::errors::Violation;
use model::schema::{self, Schema, Type};

/// `shape.toml`: what the schemas leave out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    present: BTreeSet<String>,
    beta: BTreeSet<String>,
    numbers: Vec<BTreeMap<String, i64>>,
}

static FACTS: LazyLock<Facts> =
    LazyLock::new(|| toml::from_str(include_str!("shape.toml")).unwrap_or_default());

/// How a client wants enums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enums {
    /// `"status": "RUNNING"`.
    #[default]
    Names,
    /// `"status": 2`, asked for by `$alt=json;enum-encoding=int`.
    Numbers,
}

/// Reads `body` as the message `name`: the canonical form, or every field that does not fit.
pub fn read(name: &str, body: &Value) -> Result<Value, Vec<Violation>> {
    let Some(schema) = schema::gke::message(name) else { return Ok(body.clone()) };
    let mut reader = Reader { violations: Vec::new() };
    let read = reader.value(&schema, body, "", "");
    if reader.violations.is_empty() {
        Ok(read.unwrap_or_else(|| Value::Object(Map::new())))
    } else {
        Err(reader.violations)
    }
}

/// Writes a canonical value of the message `name` as the client asked.
pub fn write(name: &str, value: Value, enums: Enums) -> Value {
    match (enums, schema::gke::message(name)) {
        (Enums::Numbers, Some(schema)) => numbered(&schema, value),
        _ => value,
    }
}

struct Reader {
    violations: Vec<Violation>,
}

impl Reader {
    /// The canonical form, or `None` for null and for what was refused.
    fn value(&mut self, schema: &Schema, value: &Value, path: &str, parent: &str) -> Option<Value> {
        if value.is_null() {
            return None;
        }
        match (schema.ty(), value) {
            (Type::Object, Value::Object(map)) => Some(self.message(schema, map, path, parent)),
            (Type::Map, Value::Object(map)) => Some(self.map(schema, map, path)),
            (Type::List, Value::Array(items)) => Some(self.list(schema, items, path, parent)),
            (Type::List, _) => self.wrong(path, "a list", value),
            (_, Value::Array(_)) if schema.ty() != Type::Any => {
                self.refuse(path, "Proto field is not repeating, cannot start list.")
            }
            (Type::Boolean, Value::Bool(_)) | (Type::Any, _) => Some(value.clone()),
            (Type::Boolean, _) => self.wrong(path, "TYPE_BOOL", value),
            (Type::Integer, _) => match integer(value) {
                Some(number) if i32::try_from(number).is_ok() => Some(number.into()),
                _ => self.wrong(path, "TYPE_INT32", value),
            },
            (Type::IntOrString | Type::Quantity, _) => match integer(value) {
                Some(number) => Some(number.to_string().into()),
                None => self.wrong(path, "TYPE_INT64", value),
            },
            (Type::Number, _) => match value.as_f64().or_else(|| value.as_str()?.parse().ok()) {
                Some(number) => Some(number.into()),
                None => self.wrong(path, "TYPE_DOUBLE", value),
            },
            (Type::String, _) if !schema.enum_values().is_empty() => {
                match enum_name(&schema.enum_values(), value) {
                    Some(name) => Some(name.into()),
                    None => self.wrong(path, "TYPE_ENUM", value),
                }
            }
            (Type::String, Value::String(_)) => Some(value.clone()),
            (Type::String, _) => self.wrong(path, "TYPE_STRING", value),
            (Type::Object | Type::Map, _) => self.wrong(path, "TYPE_MESSAGE", value),
        }
    }

    fn message(&mut self, schema: &Schema, map: &Map<String, Value>, path: &str, parent: &str) -> Value {
        let mut read = Map::new();
        for (key, value) in map {
            let name = camel(key);
            let Some(field) = schema.property(&name) else {
                if FACTS.beta.contains(&name) || schema.preserves_unknown() {
                    read.insert(name, without_false(value));
                } else {
                    self.unknown(key, path);
                }
                continue;
            };
            let inner = join(path, &snake(&name));
            let Some(value) = self.value(&field, value, &inner, &name) else { continue };
            if !is_zero(&field, &value) || has_presence(parent, &name) {
                read.insert(name, value);
            }
        }
        Value::Object(read)
    }

    fn map(&mut self, schema: &Schema, map: &Map<String, Value>, path: &str) -> Value {
        let Some(values) = schema.values() else { return Value::Object(map.clone()) };
        let entries = map.iter().filter_map(|(key, value)| {
            let inner = format!("{path}[{key:?}]");
            Some((key.clone(), self.value(&values, value, &inner, "")?))
        });
        Value::Object(entries.collect())
    }

    fn list(&mut self, schema: &Schema, items: &[Value], path: &str, parent: &str) -> Value {
        let Some(item) = schema.items() else { return Value::Array(items.to_vec()) };
        let read = items.iter().enumerate().filter_map(|(index, value)| {
            let inner = format!("{path}[{index}]");
            self.value(&item, value, &inner, parent)
        });
        Value::Array(read.collect())
    }

    fn unknown(&mut self, key: &str, path: &str) {
        let place = if path.is_empty() { String::new() } else { format!(" at '{path}'") };
        let text =
            format!("Invalid JSON payload received. Unknown name \"{key}\"{place}: Cannot find field.");
        self.violations.push(Violation { field: path.to_owned(), description: text });
    }

    fn wrong(&mut self, path: &str, expected: &str, value: &Value) -> Option<Value> {
        self.refuse(path, &format!("Invalid value at '{path}' ({expected}), {value}"))
    }

    fn refuse(&mut self, path: &str, text: &str) -> Option<Value> {
        self.violations.push(Violation { field: path.to_owned(), description: text.to_owned() });
        None
    }
}

/// Returns true if an explicit false or zero of a field stays; `parent` is the field that holds its message.
pub(super) fn has_presence(parent: &str, field: &str) -> bool {
    FACTS.present.contains(field) || FACTS.present.contains(&format!("{parent}.{field}"))
}

/// Returns a value without schema, stripped of its fields that are `false`.
fn without_false(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let told = map.iter().filter(|(_, inner)| **inner != Value::Bool(false));
            Value::Object(told.map(|(key, inner)| (key.clone(), without_false(inner))).collect())
        }
        other => other.clone(),
    }
}

/// Zero values of proto3; a message is never one, an empty map is.
fn is_zero(schema: &Schema, value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => match schema.ty() {
            Type::IntOrString | Type::Quantity => text == "0",
            _ => text.is_empty() || schema.enum_values().first() == Some(text),
        },
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && schema.ty() == Type::Map,
        Value::Null => true,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => {
            number.as_i64().or_else(|| number.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64))
        }
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn numbers_of(names: &[String]) -> Option<&'static BTreeMap<String, i64>> {
    FACTS.numbers.iter().find(|table| names.iter().all(|name| table.contains_key(name)))
}

fn enum_name(names: &[String], value: &Value) -> Option<String> {
    if let Value::String(text) = value {
        return names.contains(text).then(|| text.clone());
    }
    let number = integer(value)?;
    match numbers_of(names) {
        Some(table) => table.iter().find(|(_, n)| **n == number).map(|(name, _)| name.clone()),
        None => names.get(usize::try_from(number).ok()?).cloned(),
    }
}

fn enum_number(names: &[String], name: &str) -> Option<i64> {
    match numbers_of(names) {
        Some(table) => table.get(name).copied(),
        None => names.iter().position(|known| known == name).and_then(|at| i64::try_from(at).ok()),
    }
}

fn numbered(schema: &Schema, value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.into_iter().map(|(key, value)| {
                let field = match schema.ty() {
                    Type::Map => schema.values(),
                    _ => schema.property(&key),
                };
                let value = match field {
                    Some(field) => numbered(&field, value),
                    None => value,
                };
                (key, value)
            });
            Value::Object(entries.collect())
        }
        Value::Array(items) => match schema.items() {
            Some(item) => items.into_iter().map(|value| numbered(&item, value)).collect(),
            None => Value::Array(items),
        },
        Value::String(text) => match enum_number(&schema.enum_values(), &text) {
            Some(number) => number.into(),
            None => Value::String(text),
        },
        other => other,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `node_pool` to `nodePool`; names that are lowerCamel already stay.
fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for letter in name.chars() {
        match letter {
            '_' => upper = true,
            _ if upper => {
                out.extend(letter.to_uppercase());
                upper = false;
            }
            _ => out.push(letter),
        }
    }
    out
}

/// `nodePool` to `node_pool`, the spelling of paths in messages.
fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_is_read_whole() {
        let Facts { present, beta, numbers } = &*FACTS;
        assert_eq!((present.len(), beta.len(), numbers.len()), (69, 34, 11));
    }

    #[test]
    fn bodies_become_canonical() {
        let cases = [
            (json!({"name": "a", "initialNodeCount": 0}), json!({"name": "a"})),
            (json!({"initial_node_count": "3"}), json!({"initialNodeCount": 3})),
            (json!({"management": {"autoRepair": false}}), json!({"management": {}})),
            (json!({"config": {"flexStart": false}}), json!({"config": {"flexStart": false}})),
            (
                json!({"config": {"accelerators": [{"acceleratorCount": 2}]}}),
                json!({"config": {"accelerators": [{"acceleratorCount": "2"}]}}),
            ),
            (
                json!({"config": {"taints": [{"key": "k", "effect": 1}]}}),
                json!({"config": {"taints": [{"key": "k", "effect": "NO_SCHEDULE"}]}}),
            ),
            (json!({"upgradeSettings": {"strategy": 3}}), json!({"upgradeSettings": {"strategy": "SURGE"}})),
        ];
        for (body, want) in cases {
            assert_eq!(read("NodePool", &body), Ok(want), "{body}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        let cases = [
            (
                json!({"config": {"machineTyp": "x"}}),
                "Invalid JSON payload received. Unknown name \"machineTyp\" at 'config': Cannot find field.",
            ),
            (json!({"nme": 1}), "Invalid JSON payload received. Unknown name \"nme\": Cannot find field."),
            (
                json!({"initialNodeCount": "three"}),
                "Invalid value at 'initial_node_count' (TYPE_INT32), \"three\"",
            ),
            (
                json!({"autoscaling": {"enabled": "yes"}}),
                "Invalid value at 'autoscaling.enabled' (TYPE_BOOL), \"yes\"",
            ),
            (
                json!({"config": {"taints": [{"effect": "SOMETIMES"}]}}),
                "Invalid value at 'config.taints[0].effect' (TYPE_ENUM), \"SOMETIMES\"",
            ),
        ];
        for (body, want) in cases {
            let found = read("NodePool", &body).expect_err("refused");
            assert_eq!(found[0].description, want);
        }
    }

    #[test]
    fn enums_leave_as_numbers_when_asked() {
        let pool =
            json!({"status": "RUNNING", "upgradeSettings": {"strategy": "SHORT_LIVED"}, "name": "RUNNING"});
        let want = json!({"status": 2, "upgradeSettings": {"strategy": 5}, "name": "RUNNING"});
        assert_eq!(write("NodePool", pool.clone(), Enums::Numbers), want);
        assert_eq!(write("NodePool", pool.clone(), Enums::Names), pool);
    }
}
