//! Finds the names that a text mentions, without searching for each of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Returns true for a character that names can contain within a token.
fn is_part(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-'
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter| !is_part(letter)).filter(|word| !word.is_empty())
}

/// Returns true if a text in a value contains a name as a whole word.
pub(crate) fn has_word(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text
            .match_indices(name)
            .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)),
        Value::Array(items) => items.iter().any(|item| has_word(item, name)),
        Value::Object(fields) => fields.values().any(|value| has_word(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Collects the words of all texts in a value.
fn words_of<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::String(text) => found.extend(tokens(text)),
        Value::Array(items) => items.iter().for_each(|item| words_of(item, found)),
        Value::Object(fields) => fields.values().for_each(|value| words_of(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the fields of a live object that can mention other objects.
pub(crate) fn referencing_fields(live: &Value) -> impl Iterator<Item = &Value> {
    let fields = live.as_object().into_iter().flatten();
    fields.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status")).map(|(_, value)| value)
}

/// Indices of objects, by namespace and by the rarest token of their name. Cluster-wide objects have no namespace.
#[derive(Default)]
pub(crate) struct NameIndex<'a> {
    /// Indices by namespace and rarest token of the name.
    by_token: BTreeMap<(Option<&'a str>, &'a str), Vec<usize>>,
    /// Indices of names without a token.
    without_token: Vec<usize>,
}

impl<'a> NameIndex<'a> {
    /// Builds the index from index, namespace and name.
    pub fn new(named: &[(usize, Option<&'a str>, &'a str)]) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for word in named.iter().flat_map(|(_, _, name)| tokens(name)) {
            *counts.entry(word).or_default() += 1;
        }
        let mut names = Self::default();
        for (index, namespace, name) in named {
            match tokens(name).min_by_key(|word| counts.get(word)) {
                Some(word) => names.by_token.entry((*namespace, word)).or_default().push(*index),
                None => names.without_token.push(*index),
            }
        }
        names
    }

    /// Returns the indices of all objects that an object in a namespace may mention. The set may contain a few that it does not.
    pub fn candidates_in(&self, live: &Value, namespace: Option<&str>) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut said = BTreeSet::new();
        if self.by_token.is_empty() && self.without_token.is_empty() {
            return found;
        }
        referencing_fields(live).for_each(|value| words_of(value, &mut said));
        found.extend(&self.without_token);
        for word in said {
            found.extend(self.by_token.get(&(None, word)).into_iter().flatten());
            if namespace.is_some() {
                found.extend(self.by_token.get(&(namespace, word)).into_iter().flatten());
            }
        }
        found
    }
}
