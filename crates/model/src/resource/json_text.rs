//! JSON trees stored as text. A tree takes ten times the memory of its text, as each table is a node with room for eleven fields.
//! So the bodies in a plan, which may have ten thousand objects, are stored as text.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A JSON tree stored as text. Clones share the text. Equal trees have equal texts, as keys are sorted.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Arc<str>);

impl JsonText {
    /// Returns the tree.
    pub fn value(&self) -> Value {
        // The text was written from a tree, so it can be parsed.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }
}

impl Default for JsonText {
    fn default() -> Self {
        Value::Null.into()
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        Self(value.to_string().into())
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_comes_back() {
        let tree = json!({ "b": [1, -1, 0.1, 1e300, u64::MAX, null, true], "a": { "text": "ä\n\"\u{1}" } });
        let packed = JsonText::from(&tree);
        assert_eq!(packed.value(), tree);
        assert_eq!(serde_json::to_value(&packed).unwrap(), tree);
        assert_eq!(serde_json::from_value::<JsonText>(tree).unwrap(), packed);
        assert!(JsonText::default().is_null() && !packed.is_null());
    }
}
