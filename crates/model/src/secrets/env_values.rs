//! Values of Secrets from environment variables. A plan holds only the name of the variable; apply inserts the value
//! right before the request is sent.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The prefix of a value that stands for an environment variable: `env:HF_TOKEN`.
pub const ENV_PREFIX: &str = "env:";
/// The text that is shown for a secret value that changes.
pub const SENSITIVE: &str = "(sensitive value)";

/// The number of hash rounds for a digest. They make guessing a value from a saved plan slow.
const ROUNDS: u32 = 1 << 14;

/// Returns the environment variables that a Secret's data refers to, with their keys. No base64 has a colon in it.
pub fn env_references(body: &Value) -> impl Iterator<Item = (&str, &str)> {
    let data = (body["kind"] == "Secret").then(|| body["data"].as_object()).flatten();
    let all = data.into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?.strip_prefix(ENV_PREFIX)?)))
}

/// Values of environment variables, by name. They are never written to a file or printed, not even for debugging.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvValues(BTreeMap<String, String>);

impl fmt::Debug for EnvValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl EnvValues {
    /// Reads the variables that the bodies refer to, as far as they are set. An empty variable counts as unset: CI pipelines set
    /// an empty variable for a missing secret.
    pub fn read<'b>(
        bodies: impl Iterator<Item = &'b Value>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let names = bodies.flat_map(|body| env_references(body).map(|(_, name)| name));
        let there = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty())?;
            Some((name.to_owned(), value))
        };
        Self(names.filter_map(there).collect())
    }

    /// Returns true if a variable has a value.
    pub fn has(&self, variable: &str) -> bool {
        self.0.contains_key(variable)
    }

    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value of a variable in base64, as in a Secret's data.
    pub fn encoded(&self, variable: &str) -> Option<Value> {
        self.0.get(variable).map(|value| STANDARD.encode(value).into())
    }

    /// Returns a digest that distinguishes values without revealing them. `salt` makes the digests of the same value in two
    /// places differ.
    pub fn digest(&self, variable: &str, salt: &str) -> Option<String> {
        let value = self.0.get(variable)?;
        let mut digest = blake3::hash(salt.as_bytes());
        for _ in 0..ROUNDS {
            digest = blake3::keyed_hash(digest.as_bytes(), value.as_bytes());
        }
        Some(digest.to_hex().as_str()[..16].to_owned())
    }

    /// Returns a body with the values in it.
    pub fn filled(&self, body: &Value) -> Value {
        let mut filled = body.clone();
        for (key, variable) in env_references(body) {
            if let Some(value) = self.encoded(variable) {
                filled["data"][key] = value;
            }
        }
        filled
    }
}

/// Replaces every text by [`SENSITIVE`].
pub fn redacted(value: &Value) -> Value {
    match value {
        Value::Object(table) => table.iter().map(|(key, value)| (key.clone(), redacted(value))).collect(),
        Value::Array(items) => items.iter().map(redacted).collect(),
        Value::String(_) => SENSITIVE.into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_stand_in_data_of_secrets_only() {
        let names = |body: Value| env_references(&body).map(|(_, name)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            names(json!({ "kind": "Secret", "data": { "a": "env:A", "b": "Yg==", "c": "env:C" } })),
            ["A", "C"]
        );
        assert!(names(json!({ "kind": "ConfigMap", "data": { "a": "env:A" } })).is_empty());
        assert!(names(json!({ "kind": "Secret" })).is_empty());
        assert!(names(Value::Null).is_empty());
    }

    #[test]
    fn what_is_given_is_put_in_and_told_apart_and_never_printed() {
        let body = json!({ "kind": "Secret", "data": { "a": "env:A", "b": "env:B", "c": "env:C" } });
        let variable = |name: &str| match name {
            "A" => Some("Canary-1".to_owned()),
            "C" => Some(String::new()),
            _ => None,
        };
        let given = EnvValues::read(std::iter::once(&body), variable);
        assert!(given.has("A") && !given.has("B") && !given.has("C"));
        let filled = json!({ "kind": "Secret", "data": { "a": "Q2FuYXJ5LTE=", "b": "env:B", "c": "env:C" } });
        assert_eq!(given.filled(&body), filled);
        assert!(!format!("{given:?}").contains("Canary"), "{given:?}");
        let other = EnvValues::read(std::iter::once(&body), |_| Some("Canary-2".to_owned()));
        let digest = |given: &EnvValues, salt: &str| given.digest("A", salt).unwrap();
        assert_eq!(digest(&given, "x"), digest(&given, "x"));
        assert_ne!(digest(&given, "x"), digest(&other, "x"));
        assert_ne!(digest(&given, "x"), digest(&given, "y"));
        assert_eq!(given.digest("B", "x"), None);
    }

    #[test]
    fn every_text_is_veiled() {
        let veil = redacted(&json!({ "a": "x", "b": ["y", null] }));
        assert_eq!(veil, json!({ "a": SENSITIVE, "b": [SENSITIVE, null] }));
    }
}
