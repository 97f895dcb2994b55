//! The text of an imported stack: its sections in the usual order, with comments above and below each.

use serde_json::{Map, Value, json};

use crate::{Draft, EnvironmentFile, Found, Hosts, Imported, Place};
use model::address::FieldPath;
use stack::reference;
use stack::sections::is_keyed;
use stack::toml::{escaped, header, inline, word};

/// The maximum length of a line. Longer values get their own table header.
const WIDTH: usize = 110;

/// Keys that come first in a section; the others follow in alphabetical order.
const FIRST: [&str; 17] = [
    "name",
    "namespace",
    "id",
    "project",
    "location",
    "manage",
    "version",
    "install",
    "release_channel",
    "zones",
    "machine_type",
    "accelerator",
    "nodes",
    "image",
    "args",
    "replicas",
    "gpus",
];

/// Writes the draft as the TOML text of a stack file, with its comments.
pub(crate) fn write(found: &Found, draft: &Draft) -> Imported {
    let mut page = Page { draft, text: head(found, draft), sections: Vec::new(), left_out: Vec::new() };
    let tree = serde_json::to_value(&draft.stack).unwrap_or_default();
    for name in reference::order() {
        let path = FieldPath::keys([name]);
        match tree.get(name).and_then(Value::as_object) {
            Some(members) if is_keyed(name) => {
                members.iter().for_each(|(key, section)| page.section(&path.key(key), section));
            }
            Some(_) => page.section(&path, &tree[name]),
            None => {}
        }
    }
    let Page { mut text, sections, mut left_out, .. } = page;
    if !draft.unsupported.is_empty() {
        text.push_str("\n# Not in this file:\n");
        draft.unsupported.iter().for_each(|line| text.push_str(&comment(&format!("- {line}"), "  ")));
        left_out.extend(draft.unsupported.iter().cloned());
    }
    let environments = draft.stack.environment.iter();
    let files = environments.flat_map(|(key, section)| {
        section.texts.iter().filter_map(|(name, text)| EnvironmentFile::new(key, name, text))
    });
    Imported { text, sections, files: files.collect(), left_out }
}

fn head(found: &Found, draft: &Draft) -> String {
    let place = match &found.place {
        Place::Gke(name) => {
            format!("GKE cluster {} of project {} in {}", name.cluster, name.project, name.location)
        }
        Place::Kubeconfig { context: Some(context), .. } => {
            format!("the cluster of the kubeconfig's context {context}")
        }
        Place::Kubeconfig { context: None, .. } => {
            "the cluster of the kubeconfig's current context".to_owned()
        }
        Place::Hosts(hosts) => {
            let place = match hosts {
                Hosts::Local => "this machine",
                Hosts::Ssh { .. } => "hosts by SSH",
                Hosts::Slurm { .. } => "a login node of SLURM",
            };
            let next = match draft.unread_hosts {
                true => {
                    "the next apply would take away what is on hosts that were not read; they are named below"
                }
                false => "the next plan is empty",
            };
            let about = format!(
                "What a stack of this name left on {place}, as read by `dask-infra import`. It is this stack's: {next}."
            );
            return comment(&about, "");
        }
    };
    let about = format!(
        "{place}, as read by `dask-infra import`. Sections with `manage = false` are managed elsewhere: read \
         and compared, never written or deleted. `dask-infra adopt ADDRESS` adopts one."
    );
    comment(&about, "")
}

struct Page<'a> {
    draft: &'a Draft,
    text: String,
    sections: Vec<String>,
    left_out: Vec<String>,
}

impl Page<'_> {
    fn section(&mut self, path: &FieldPath, section: &Value) {
        let Some(table) = section.as_object() else { return };
        let name = path.to_string();
        let on_host = self.draft.stack.is_on_hosts() && path.segments().len() > 1;
        if section["manage"] == false || on_host {
            self.sections.push(name.clone());
        }
        self.text.push('\n');
        for line in self.draft.above.get(&name).into_iter().flatten() {
            self.text.push_str(&comment(line, ""));
        }
        let mut table = pruned(table);
        let groups = table.remove("group");
        // Files hold it.
        table.remove("texts");
        self.table(path, &table, false);
        for line in self.draft.below.get(&name).into_iter().flatten() {
            self.text.push_str(&comment(line, "  "));
            self.left_out.push(format!("[{name}] {line}"));
        }
        for (key, group) in groups.iter().filter_map(Value::as_object).flatten() {
            self.section(&path.key("group").key(key), group);
        }
    }

    /// Writes a header with its keys, and then the tables that are too large for a line.
    fn table(&mut self, path: &FieldPath, table: &Map<String, Value>, item: bool) {
        let start = self.text.len();
        let (open, close) = if item { ("[[", "]]") } else { ("[", "]") };
        self.text.push_str(&format!("{open}{}{close}\n", header(path)));
        let keys = self.text.len();
        let mut large = Vec::new();
        for (key, value) in ordered(table) {
            let line = format!("{} = {}\n", word(key), inline(value, escaped));
            let tables = value.is_object() || value.as_array().is_some_and(|items| is_tables(items));
            if line.chars().count() > WIDTH && tables {
                large.push((key, value));
            } else if line.chars().count() > WIDTH && value.is_array() {
                self.lines(key, value);
            } else {
                self.text.push_str(&line);
            }
        }
        // A table that holds nothing but tables needs no header of its own.
        let bare = self.text.len() == keys && !item && !large.is_empty();
        if bare {
            self.text.truncate(start);
        }
        for (place, (key, value)) in large.into_iter().enumerate() {
            let path = path.key(key);
            let gap = if bare && place == 0 { "" } else { "\n" };
            match value {
                Value::Object(table) => {
                    self.text.push_str(gap);
                    self.table(&path, table, false);
                }
                items => {
                    let items = items.as_array().into_iter().flatten().filter_map(Value::as_object);
                    for (place, item) in items.enumerate() {
                        self.text.push_str(if place == 0 { gap } else { "\n" });
                        self.table(&path, item, true);
                    }
                }
            }
        }
    }

    fn lines(&mut self, key: &str, list: &Value) {
        self.text.push_str(&format!("{} = [\n", word(key)));
        for item in list.as_array().into_iter().flatten() {
            self.text.push_str(&format!("    {},\n", inline(item, escaped)));
        }
        self.text.push_str("]\n");
    }
}

fn is_tables(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(Value::is_object)
}

fn ordered(table: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| (rank(key), key.as_str()));
    entries
}

/// Returns a section without keys that have their default value.
fn pruned(table: &Map<String, Value>) -> Map<String, Value> {
    let defaults = [
        ("scheduler", json!({})),
        ("service", json!("ClusterIP")),
        ("restart", json!("never")),
        ("replicas", json!(1)),
        ("worker", json!({})),
    ];
    let is_default =
        |key: &str, value: &Value| defaults.iter().any(|(name, default)| *name == key && default == value);
    let mut kept = Map::new();
    for (key, value) in table {
        let value = match value {
            Value::Object(inner) if matches!(key.as_str(), "scheduler" | "worker") => {
                Value::Object(pruned(inner))
            }
            other => other.clone(),
        };
        if !is_default(key, &value) {
            kept.insert(key.clone(), value);
        }
    }
    kept
}

/// Splits a text into words; text in backticks stays one word.
fn unbroken(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut().filter(|last| last.matches('`').count() % 2 == 1) {
            Some(last) => *last = format!("{last} {word}"),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// Returns a comment, wrapped to the file's width.
fn comment(words: &str, indent: &str) -> String {
    let mut text = String::new();
    let mut line = String::from("#");
    // Live text may have line breaks, which would end the comment.
    for word in unbroken(words) {
        if line.chars().count() + word.chars().count() + 1 > WIDTH && line.len() > 1 + indent.len() {
            text.push_str(&line);
            text.push('\n');
            line = format!("#{indent}");
        }
        line.push(' ');
        line.push_str(&word);
    }
    text.push_str(&line);
    text.push('\n');
    text
}
