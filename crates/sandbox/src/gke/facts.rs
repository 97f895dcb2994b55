//! `cluster.toml`, and the ways in which its tables are put into a message.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::shape;
use crate::kube::object::fill;

/// `cluster.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Facts {
    pub cluster: Value,
    pub since: Vec<Since>,
    pub autopilot: Value,
    pub forced: Value,
    pub sent: Value,
    pub left_out: Value,
    pub v1beta1: Value,
}

/// The fields that clusters have from a version on.
#[derive(Debug, Deserialize)]
pub(super) struct Since {
    pub version: String,
    pub cluster: Value,
}

pub(super) static FACTS: LazyLock<Facts> =
    LazyLock::new(|| toml::from_str(include_str!("cluster.toml")).unwrap_or_default());

/// Puts what `over` has into `value`, whatever stands there.
pub(super) fn overlay(value: &mut Value, over: &Value) {
    match (value, over) {
        (Value::Object(map), Value::Object(over)) => {
            for (key, inner) in over {
                overlay(map.entry(key.clone()).or_insert(Value::Null), inner);
            }
        }
        (value, over) => *value = over.clone(),
    }
}

/// [`fill`] for a message that was sent, in the field `name`. Proto3 cannot tell a boolean that was not sent from
/// false once its message is there, unless the field has presence: so such a default goes with the whole message
/// or not at all.
pub(super) fn fill_unsent(value: &mut Value, defaults: &Value, name: &str) {
    let (Value::Object(map), Value::Object(defaults)) = (&mut *value, defaults) else {
        return fill(value, defaults);
    };
    for (key, default) in defaults {
        match map.get_mut(key) {
            Some(inner) => fill_unsent(inner, default, key),
            None if default.is_boolean() && !shape::has_presence(name, key) => {}
            None => drop(map.insert(key.clone(), default.clone())),
        }
    }
}

/// Gives messages that are there, and say something, what `rows` has for them.
pub(super) fn fill_sent(value: &mut Value, rows: &Value) {
    let (Some(map), Some(rows)) = (value.as_object_mut(), rows.as_object()) else { return };
    let says = !map.is_empty();
    for (key, row) in rows {
        match map.get_mut(key) {
            Some(inner) => fill_sent(inner, row),
            None if says && !row.is_object() => drop(map.insert(key.clone(), row.clone())),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_is_read() {
        assert_eq!(FACTS.cluster["shieldedNodes"]["enabled"], true);
        assert_eq!(FACTS.since.len(), 3);
    }

    #[test]
    fn a_message_that_was_sent_keeps_its_booleans() {
        let defaults =
            json!({"shieldedNodes": {"enabled": true}, "rotationConfig": {"enabled": true, "a": "b"}});
        let mut value = json!({"shieldedNodes": {}, "rotationConfig": {}});
        fill_unsent(&mut value, &defaults, "");
        // The second field has presence: there the server sees that it was not sent.
        assert_eq!(value, json!({"shieldedNodes": {}, "rotationConfig": {"enabled": true, "a": "b"}}));
        let mut value = json!({"shieldedNodes": {}});
        fill_sent(&mut value, &json!({"shieldedNodes": {"a": 1}, "other": {"a": 1}}));
        assert_eq!(value, json!({"shieldedNodes": {}}), "an empty message says nothing");
    }
}
