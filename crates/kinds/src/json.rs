//! Reading of JSON whose shape a server decides.

use schemars::{Schema, json_schema};
use serde::de::{Deserialize as _, Deserializer, Error as _};
use serde_json::Value;

/// Returns a JSON string, and an empty text for anything else.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a count of an object's status; a missing one is zero.
pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Returns a number, which some APIs write as text, and so do quantities.
pub(crate) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Returns true if a live object is being deleted.
pub fn is_terminating(live: &Value) -> bool {
    !live["metadata"]["deletionTimestamp"].is_null() || live["status"] == "STOPPING"
}

/// Returns true for a switch that is off, which `skip_serializing_if` leaves out.
pub fn is_false(value: &bool) -> bool {
    !value
}

/// Reads a table in Kubernetes' own words, whose fields a rule checks.
///
/// # Errors
/// It is no table; `what` is what was expected.
pub(crate) fn table<'de, D: Deserializer<'de>>(deserializer: D, what: &str) -> Result<Value, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_object() { Ok(value) } else { Err(D::Error::custom(what)) }
}

/// Returns the schema of such a table.
pub(crate) fn table_schema(description: &str) -> Schema {
    json_schema!({ "description": description, "type": "object", "additionalProperties": {} })
}
