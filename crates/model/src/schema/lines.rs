//! A file of `schemas/` with one JSON object a line, `{"name":"…",…}`, sorted by name. Opening it cuts
//! lines and reads names; a line is parsed when it is asked for, once.

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
    /// `None` inside when the line has no schema.
    schema: OnceLock<Option<Schema>>,
}

#[derive(Deserialize)]
struct Definition {
    schema: Option<Node>,
    /// Of a kind: the line that has its schema.
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

    /// Returns the schema that a line holds, or the one of the definition that it names.
    pub fn schema(&self, name: &str) -> Option<Schema> {
        let entry = self.entry(name)?;
        let read = || {
            let Definition { schema, definition } = serde_json::from_str(entry.line).ok()?;
            schema.map(Schema::new).or_else(|| self.schema(&definition?))
        };
        entry.schema.get_or_init(read).clone()
    }
}
