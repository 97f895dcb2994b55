//! The built-in kinds as protobuf messages, from `schemas/protobuf.jsonl`: the numbers of their fields.

use std::sync::LazyLock;

use serde::Deserialize;

use super::lines::Lines;

static LINES: LazyLock<Lines> =
    LazyLock::new(|| Lines::new(include_str!("../../../../schemas/protobuf.jsonl")));

/// A field of a message.
#[derive(Debug, Deserialize)]
pub struct Field {
    /// The number of the field on the wire.
    pub number: u32,
    /// Its name in JSON; `None` if the fields of its message are inlined.
    pub name: Option<String>,
    /// `bool`, `bytes`, `double`, `int32`, `int64`, `string`, or the name of a message.
    #[serde(rename = "type")]
    pub ty: String,
    /// Its cardinality.
    #[serde(default)]
    pub many: Many,
    /// True if a zero value counts as set. Go also writes fields that were never set.
    #[serde(default)]
    pub zero: bool,
}

/// The cardinality of a field.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Many {
    #[default]
    One,
    List,
    /// Entries with a key (1) and a value (2).
    Map,
}

/// Returns the fields of a message; its name is that of its definition.
pub fn fields(message: &str) -> Option<Vec<Field>> {
    #[derive(Deserialize)]
    struct Line {
        fields: Vec<Field>,
    }
    serde_json::from_str::<Line>(LINES.line(message)?).ok().map(|line| line.fields)
}
