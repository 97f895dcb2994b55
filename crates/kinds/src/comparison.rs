//! The result of the comparison of a live resource with the desired one, of GKE's API as of Kubernetes.

use serde_json::Value;

use model::address::FieldPath;
use model::resource::FieldChange;

/// The live values that a change relies on, as text to be hashed. Values are appended as text instead of collected, because a CRD
/// has thousands of fields.
#[derive(Default)]
pub struct FingerprintInput(Vec<u8>);

impl FingerprintInput {
    pub fn of<'v>(values: impl IntoIterator<Item = (impl AsRef<str>, &'v Value)>) -> Self {
        let mut fingerprint_input = Self::default();
        values.into_iter().for_each(|(path, live)| fingerprint_input.add(path.as_ref(), live));
        fingerprint_input
    }

    pub fn add(&mut self, path: &str, live: &Value) {
        self.0.push(b'\n');
        self.0.extend_from_slice(path.as_bytes());
        self.0.push(b'=');
        // Values are written to memory, which does not fail.
        let _ = serde_json::to_writer(&mut self.0, live);
    }

    /// Returns `path=value` for each, after a newline.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The result of a comparison.
#[derive(Default)]
pub struct Comparison {
    /// Fields that differ.
    pub changes: Vec<FieldChange>,
    /// Every live value that was compared, for the fingerprint.
    pub fingerprint_input: FingerprintInput,
    /// Fields that differ and that another field manager applies, with its name.
    pub others: Vec<(FieldPath, String)>,
}

/// Returns true for a zero value, which proto3 JSON leaves out.
pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty() || value == "0",
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}
