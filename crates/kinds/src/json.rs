//! Functions that read JSON whose shape a server decides.

use schemars::{Schema, json_schema};
use serde::de::{Deserialize as _, Deserializer, Error as _};
use serde_json::Value;

/// Returns a JSON string, and an empty text for anything else.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a count in an object's status; 0 if it is missing.
pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Returns a whole number, which may be a JSON string: some APIs and quantities have it so.
pub fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Appends items to the list under `key`, and creates the list if it is missing.
pub(crate) fn append(object: &mut Value, key: &str, items: Vec<Value>) {
    if items.is_empty() {
        return;
    }
    match &mut object[key] {
        Value::Array(list) => list.extend(items),
        list => *list = Value::Array(items),
    }
}

/// Returns true if a live object is being deleted.
pub fn is_terminating(live: &Value) -> bool {
    !live["metadata"]["deletionTimestamp"].is_null() || live["status"] == "STOPPING"
}

/// Returns true for `false`, for `skip_serializing_if`.
pub fn is_false(value: &bool) -> bool {
    !value
}

/// Deserializes a table with fields of the Kubernetes API. A rule of the stack checks the fields.
///
/// # Errors
/// The value is not a table; `what` names what was expected.
pub(crate) fn table<'de, D: Deserializer<'de>>(deserializer: D, what: &str) -> Result<Value, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_object() { Ok(value) } else { Err(D::Error::custom(what)) }
}

/// Returns the schema of a table with fields of the Kubernetes API.
pub(crate) fn table_schema(description: &str) -> Schema {
    json_schema!({ "description": description, "type": "object", "additionalProperties": {} })
}
