//! A file of `schemas/` with one JSON object per line, `{"name":"…",…}`, sorted by name. Opening it only splits lines and reads
//! names. A line is parsed on first use.

use std::sync::OnceLock;

use serde::Deserialize;

use super::Schema;
use super::node::Node;

const START: &str = "{\"name\":\"";

pub(super) struct Lines {
    entries: Vec<Entry>,
}

struct Entry {
    name: &'static str,
    line: &'static str,
    /// The parsed schema; `None` inside if the line has no schema.
    schema: OnceLock<Option<Schema>>,
}

#[derive(Deserialize)]
struct Definition {
    schema: Option<Node>,
    /// For a kind: the name of the line with its schema.
    definition: Option<String>,
}

impl Lines {
    pub fn new(text: &'static str) -> Self {
        let entries = text.lines().filter_map(|line| {
            let (name, _) = line.strip_prefix(START)?.split_once('"')?;
            Some(Entry { name, line, schema: OnceLock::new() })
        });
        Self { entries: entries.collect() }
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let place = self.entries.binary_search_by(|entry| entry.name.cmp(name)).ok()?;
        self.entries.get(place)
    }

    /// Returns the text of a line.
    pub fn line(&self, name: &str) -> Option<&'static str> {
        self.entry(name).map(|entry| entry.line)
    }

    /// Returns all lines, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.entries.iter().map(|entry| (entry.name, entry.line))
    }

    /// Returns the schema in a line, or in the definition that the line names.
    pub fn schema(&self, name: &str) -> Option<Schema> {
        let entry = self.entry(name)?;
        let read = || {
            let Definition { schema, definition } = serde_json::from_str(entry.line).ok()?;
            schema.map(Schema::new).or_else(|| self.schema(&definition?))
        };
        entry.schema.get_or_init(read).clone()
    }
}
