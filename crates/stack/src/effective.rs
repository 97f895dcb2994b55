//! The effective stack: all files merged and variables resolved. Written as TOML with the position of each value in a comment, or
//! as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::lower::Lowered;
use super::toml::{escaped, header, inline, word};
use super::{Sources, Stack, reference};
use model::address::FieldPath;
use model::resource::{Resource, Role};
use model::secrets::{Secrets, masked};

/// A stack and its resources, for output: values that look like secrets are hidden.
pub struct Effective<'a> {
    stack: Value,
    sources: &'a Sources,
    becomes: Vec<Becomes>,
}

/// Removes the contents of manifests, charts and other files. They are shown as the resources of the section instead.
fn without_texts(tree: &mut Value) {
    let own = |keys: &mut Value| {
        if let Value::Object(keys) = keys {
            keys.retain(|key, _| !["objects", "known", "given", "texts", "contents"].contains(&key.as_str()));
        }
    };
    for section in ["manifest", "helm_release", "environment", "dask_cluster", "dask_job", "check"] {
        let sections = tree.get_mut(section).and_then(Value::as_object_mut);
        sections.into_iter().flatten().for_each(|(_, section)| own(section));
    }
    for section in ["dask_operator", "kueue"] {
        tree.get_mut(section).into_iter().for_each(own);
    }
}

/// A resource of a section, or one that it relies on.
struct Becomes {
    resource: Resource,
    ours: bool,
}

impl<'a> Effective<'a> {
    /// Creates the output form of a valid stack.
    pub fn new(stack: &Stack, sources: &'a Sources, lowered: &Lowered) -> Self {
        let mut tree = serde_json::to_value(stack).unwrap_or_default();
        without_texts(&mut tree);
        let ours = lowered.resources.iter().map(|resource| (resource, true));
        let needed = lowered.external.iter().filter(|external| external.role == Role::Needed);
        let external = needed.map(|external| (&external.resource, false));
        let mut becomes: Vec<Becomes> = ours
            .chain(external)
            .map(|(resource, ours)| Becomes { resource: resource.clone(), ours })
            .collect();
        for becomes in &mut becomes {
            hide(&mut becomes.resource.body, sources.secrets());
        }
        // Reasons stand under the names of what they allow.
        let allow = tree.as_object_mut().and_then(|tree| tree.remove("allow"));
        hide(&mut tree, sources.secrets());
        if let (Some(table), Some(allow)) = (tree.as_object_mut(), allow) {
            table.insert("allow".to_owned(), allow);
        }
        Self { stack: tree, sources, becomes }
    }

    /// Returns the stack as TOML; `objects` adds the objects of each section as comments.
    pub fn toml(&self, objects: bool) -> String {
        let mut text =
            String::from("# The stack after resolving extended files, variables and short forms;\n");
        text.push_str("# each value is followed by the place it comes from.\n");
        let none = Map::new();
        let root = self.stack.as_object().unwrap_or(&none);
        let order = reference::order();
        let known = order.iter().filter_map(|name| root.get_key_value(*name));
        let others = root.iter().filter(|(name, _)| !order.contains(&name.as_str()));
        for (name, section) in known.chain(others) {
            self.table(&mut text, &FieldPath::root().key(name), section);
        }
        if objects {
            text.push_str("\n# The objects that it produces, as they would be sent:\n");
            self.becomes.iter().for_each(|becomes| self.object(&mut text, becomes));
        }
        text
    }

    /// Returns the stack, the places of its values and the objects that it produces as JSON.
    pub fn json(&self) -> Value {
        let mut places = Map::new();
        self.places(&self.stack, &FieldPath::root(), &mut places);
        let becomes = self.becomes.iter().map(|Becomes { resource, ours }| {
            let Resource { address, identity, kind, body, origin, .. } = resource;
            let location = self.sources.locate(origin).map(|location| location.to_string());
            json!({
                "address": address, "identity": identity.to_string(), "kind": kind, "managed": ours,
                "location": location, "body": body,
            })
        });
        json!({ "stack": self.stack, "places": places, "becomes": becomes.collect::<Vec<_>>() })
    }

    fn table(&self, text: &mut String, path: &FieldPath, value: &Value) {
        let Some(table) = value.as_object() else { return };
        let (tables, values): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| value.is_object());
        // A keyed section has a header only where its members are.
        if !values.is_empty() || tables.is_empty() {
            let place = self.sources.written(path).map(|span| self.sources.location(span).to_string());
            let place = place.map(|place| format!("  # {place}")).unwrap_or_default();
            let _ = write!(text, "\n[{}]{place}\n", header(path));
        }
        let lines: Vec<(String, String)> = values
            .into_iter()
            .map(|(key, value)| {
                (format!("{} = {}", word(key), inline(value, with_references)), self.place(&path.key(key)))
            })
            .collect();
        let column = lines.iter().map(|(line, _)| line.chars().count()).filter(|width| *width <= 60).max();
        for (line, place) in lines {
            let _ = writeln!(text, "{line:<width$}  # {place}", width = column.unwrap_or(0));
        }
        for (key, value) in tables {
            self.table(text, &path.key(key), value);
        }
    }

    fn place(&self, path: &FieldPath) -> String {
        match self.sources.written(path) {
            Some(span) => self.sources.location(span).to_string(),
            None => "default".to_owned(),
        }
    }

    fn places(&self, value: &Value, path: &FieldPath, places: &mut Map<String, Value>) {
        match value {
            Value::Object(table) => {
                table.iter().for_each(|(key, value)| self.places(value, &path.key(key), places));
            }
            _ => {
                places.insert(path.to_string(), self.place(path).into());
            }
        }
    }

    fn object(&self, text: &mut String, Becomes { resource, ours }: &Becomes) {
        let Resource { address, identity, body, origin, .. } = resource;
        let place = self.sources.locate(origin).map(|place| format!(" ({place})")).unwrap_or_default();
        let what = match ours {
            true => format!("{address}: {identity}{place}"),
            false => format!("{address}: {identity} is only read, it is managed elsewhere{place}"),
        };
        let _ = write!(text, "\n# {what}\n");
        for line in format!("{body:#}").lines() {
            let _ = writeln!(text, "#   {line}");
        }
    }
}

/// Escapes references, except for `${env.`, which stands for a hidden secret.
fn with_references(text: &str) -> String {
    escaped(text).replace("$${env.", "${env.")
}

/// Hides secrets: a value from a variable with the name of a secret is replaced by its reference, other secrets are masked.
fn hide(value: &mut Value, secrets: &Secrets) {
    known(value, secrets);
    *value = masked(value);
}

fn known(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) if secrets.are_in(text) => *text = secrets.out_of(text),
        Value::Object(table) => table.values_mut().for_each(|value| known(value, secrets)),
        Value::Array(items) => items.iter_mut().for_each(|value| known(value, secrets)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::super::{Options, lower, parse_in};
    use super::*;

    const EVERYTHING: &str = include_str!("../../../tests/cases/diag-everything/stack.toml");

    fn env(name: &str) -> Option<String> {
        match name {
            "GOOGLE_CLOUD_PROJECT" => Some("demo".to_owned()),
            "HF_TOKEN" => Some("hf_canary".to_owned()),
            _ => None,
        }
    }

    fn shown(text: &str, look: impl Fn(&Effective<'_>) -> String) -> String {
        let vars = BTreeMap::new();
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/diag-everything"));
        let loaded =
            parse_in(folder, "stack.toml", text, &Options { env: &env, vars: &vars, helm: None }).unwrap();
        let lowered = lower::lower(&loaded.stack, true);
        look(&Effective::new(&loaded.stack, &loaded.sources, &lowered))
    }

    #[test]
    fn what_is_shown_is_the_same_stack_again() {
        let first = shown(EVERYTHING, |effective| effective.toml(true));
        let places = |text: &str| -> String {
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .map(|l| l.split("  # ").next().unwrap())
                .collect()
        };
        let second = shown(&first, |effective| effective.toml(true));
        assert_eq!(places(&first), places(&second));
        assert!(first.contains("nodes = 2"), "variables are put in: {first}");
    }

    #[test]
    fn every_value_names_its_place() {
        let text = shown(EVERYTHING, |effective| effective.toml(false));
        let values = text.lines().filter(|line| line.contains(" = ") && !line.starts_with('#'));
        for line in values {
            let place = line.rsplit("  # ").next().unwrap();
            assert!(
                ["default", "stack.toml:", "worker.yaml:"].iter().any(|file| place.starts_with(file)),
                "{line}"
            );
        }
    }

    #[test]
    fn secrets_stay_hidden() {
        let text = EVERYTHING.replacen(
            "[vars]",
            "[vars]\nhub = \"x-${env.HF_TOKEN}\"\ndb_password = \"pw-canary\"",
            1,
        );
        let text = text.replacen(
            "[allow.literal_secrets]",
            "[allow.literal_secrets]
\"dask_cluster.one\" = \"a test\"",
            1,
        );
        let text = text.replacen("env = {", "env = { A = \"${var.hub}\", B = \"${var.db_password}\", ", 1);
        let all = shown(&text, |effective| format!("{}{}", effective.toml(true), effective.json()));
        assert!(!all.contains("canary"), "{all}");
        assert!(all.contains("${env.HF_TOKEN}"), "{all}");
    }
}
