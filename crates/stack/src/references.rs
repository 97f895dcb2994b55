//! References in places where they are not resolved, and would be applied as plain text.
//!
//! `env:NAME` is read in `{ secret = "env:NAME" }` and in the data of a manifest's Secret; `${var.NAME}` and `${env.NAME}` in
//! TOML. Only a whole value counts: shell commands, templates and tags (`env:prod`) contain such words in the middle or in lower
//! case.

use serde_json::{Map, Value};

use model::address::FieldPath;
use model::secrets::env_values::ENV_PREFIX;
use model::secrets::is_secret;
use model::source::Sources;

/// Kinds of places. The kind determines how a reference is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// A variable of a section's pods.
    Variable,
    /// A variable of a PodSpec.
    PodVariable,
    /// An argument of a container.
    Argument,
    /// A value of a chart.
    Value,
    /// A field of an object.
    Object,
    /// A key of the stack that takes text.
    Key,
}

/// A reference in a place where it is not resolved.
#[derive(Clone, Debug)]
pub(super) struct Word {
    /// `env:NAME`, `${var.NAME}`.
    pub(super) text: String,
    /// The key or name of the value.
    pub(super) name: String,
    pub(super) place: FieldPath,
    pub(super) home: Home,
}

/// Finds unresolved references in a stack whose files are read. Skips objects of charts, which depend on the chart's values.
pub(super) fn unread(tree: &Value, sources: &Sources) -> Vec<Word> {
    let mut look = Look { sources, found: Vec::new() };
    for (section, value) in tree.as_object().into_iter().flatten() {
        // `[vars]` is read where a variable is used, and reasons are plain texts.
        if matches!(section.as_str(), "vars" | "stack" | "budget" | "allow" | "environment") {
            continue;
        }
        let path = FieldPath::root().key(section);
        match (section.as_str(), value) {
            ("manifest", Value::Object(manifests)) => {
                for (key, manifest) in manifests {
                    let path = path.key(key).key("objects");
                    let objects = manifest["objects"].as_array().into_iter().flatten();
                    objects.enumerate().for_each(|(place, object)| look.object(object, &path.index(place)));
                }
            }
            ("helm_release", Value::Object(releases)) => {
                releases.iter().for_each(|(key, release)| look.chart(release, &path.key(key)));
            }
            ("dask_operator" | "kueue", release) => look.chart(release, &path),
            (_, value) => look.below(value, &path, section, Home::Key),
        }
    }
    look.found
}

struct Look<'a> {
    sources: &'a Sources,
    found: Vec<Word>,
}

impl Look<'_> {
    fn object(&mut self, object: &Value, path: &FieldPath) {
        let secret = object["kind"] == "Secret";
        for (key, value) in object.as_object().into_iter().flatten() {
            // Said by the rule of Secrets where it names no variable.
            if !(secret && matches!(key.as_str(), "data" | "stringData")) {
                self.below(value, &path.key(key), key, Home::Object);
            }
        }
    }

    fn chart(&mut self, release: &Value, path: &FieldPath) {
        for (key, value) in release.as_object().into_iter().flatten() {
            match key.as_str() {
                "objects" | "known" => {}
                "values" | "given" => self.below(value, &path.key(key), key, Home::Value),
                _ => self.below(value, &path.key(key), key, Home::Key),
            }
        }
    }

    fn below(&mut self, value: &Value, path: &FieldPath, name: &str, home: Home) {
        match value {
            Value::Object(table) => self.table(table, path, name, home),
            Value::Array(items) => {
                let home = match (name, home) {
                    ("args" | "command", Home::Object | Home::Key) => Home::Argument,
                    (_, home) => home,
                };
                let flag = |place: usize| place.checked_sub(1).and_then(|before| items.get(before)?.as_str());
                for (place, item) in items.iter().enumerate() {
                    // `--password`, `env:WORD`.
                    let flag = flag(place).filter(|flag| home == Home::Argument && flag.starts_with('-'));
                    let name = flag.filter(|flag| is_secret(flag) && !flag.contains('=')).unwrap_or(name);
                    self.below(item, &path.index(place), name, home);
                }
            }
            Value::String(text) => self.text(text, path, name, home),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn table(&mut self, table: &Map<String, Value>, path: &FieldPath, above: &str, home: Home) {
        let given = |key: &str| table.get(key).and_then(Value::as_str);
        let variable = given("secret").is_some_and(|text| text.starts_with(ENV_PREFIX));
        // Read there, and in values refused by the rule of secrets.
        let is_read = match home {
            Home::Value => table.len() == 1,
            Home::Key => above != "env",
            Home::Variable | Home::PodVariable | Home::Argument | Home::Object => false,
        };
        for (key, value) in table {
            let inner = match (above, home, key.as_str()) {
                (_, _, "secret") if variable && is_read => continue,
                ("env", Home::Object | Home::Key, "value") if table.contains_key("name") => Home::PodVariable,
                ("env", Home::Key, _) if value.is_string() => Home::Variable,
                (_, home, _) => home,
            };
            let name = if key == "value" { given("name").unwrap_or(key) } else { key.as_str() };
            self.below(value, &path.key(key), name, inner);
        }
    }

    fn text(&mut self, text: &str, path: &FieldPath, name: &str, home: Home) {
        let flag = text.split_once('=').filter(|(flag, _)| flag.starts_with('-') && is_secret(flag));
        let (name, text) = flag.filter(|_| home == Home::Argument).unwrap_or((name, text));
        // TOML is resolved: what is left of these there is `$${…}`, which means the text.
        let resolved =
            || self.sources.span(path).is_none_or(|span| self.sources.name(span.file).ends_with(".toml"));
        if is_variable(name, text) || (is_reference(text) && !resolved()) {
            self.found.push(Word { text: text.to_owned(), name: name.to_owned(), place: path.clone(), home });
        }
    }
}

/// Returns true for `env:NAME`. Under the name of a secret, any text with this prefix counts. Elsewhere the name must be in
/// capitals, as monitoring tags look like `env:prod`.
fn is_variable(name: &str, text: &str) -> bool {
    let inner = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let variable = |rest: &str| {
        rest.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && rest.chars().all(inner)
    };
    text.strip_prefix(ENV_PREFIX).is_some_and(|rest| is_secret(name) || variable(rest))
}

/// Returns true for a text that is exactly `${var.NAME}` or `${env.NAME}`.
fn is_reference(text: &str) -> bool {
    let inner = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let name = inner.and_then(|inner| inner.strip_prefix("var.").or_else(|| inner.strip_prefix("env.")));
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.is_some_and(|name| !name.is_empty() && name.chars().all(fits))
}

impl Word {
    /// Returns the environment variable that it names.
    fn variable(&self) -> Option<&str> {
        self.text.strip_prefix(ENV_PREFIX).or_else(|| self.text.strip_prefix("${env.")?.strip_suffix('}'))
    }

    /// Returns where such a reference is resolved, as words.
    pub(super) fn read_in(&self) -> &'static str {
        match self.text.starts_with(ENV_PREFIX) {
            true => "in `{ secret = \"env:NAME\" }` and in the data of a Secret in a manifest only",
            false => "in the stack's TOML only",
        }
    }

    /// Returns the form of the reference that works in this place.
    pub(super) fn instead(&self) -> String {
        let Self { text, name, home, .. } = self;
        let Some(variable) = self.variable() else {
            let value = match home {
                Home::Value => format!("; for a chart's value, set it in `values`: `{name} = \"{text}\"`"),
                _ => String::new(),
            };
            return format!("write the value out{value}");
        };
        let manifest = format!("a manifest's Secret has it with `stringData: {{ KEY: \"env:{variable}\" }}`");
        match home {
            Home::Variable => format!("write `{name} = {{ secret = \"env:{variable}\" }}`"),
            Home::PodVariable => {
                format!("{manifest}; here write `valueFrom: {{ secretKeyRef: {{ name: NAME, key: KEY }} }}`")
            }
            Home::Argument => format!(
                "put it into a variable of the container from a Secret, and write `$({variable})` here; {manifest}"
            ),
            Home::Value => format!("{manifest}; give the chart its name (often the value `existingSecret`)"),
            Home::Object => format!("{manifest}; refer to that here"),
            Home::Key if is_secret(name) => format!("{manifest}; refer to that here"),
            Home::Key => {
                format!("put `NAME = \"${{env.{variable}}}\"` into `[vars]`, and write `${{var.NAME}}` here")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_whole_words_of_ours_count() {
        for (name, text) in
            [("tag", "env:WORD"), ("password", "env:jup_hash"), ("password", "env:my-pass"), ("x", "env:_A1")]
        {
            assert!(is_variable(name, text), "{name} {text}");
        }
        for (name, text) in [
            ("tag", "env:prod"),
            ("tags", "env:PROD team:a"),
            ("tag", "environment:WORD"),
            ("tag", "env:"),
            ("password", "$(WORD)"),
        ] {
            assert!(!is_variable(name, text), "{name} {text}");
        }
        for text in ["${var.x}", "${env.HOME}"] {
            assert!(is_reference(text), "{text}");
        }
        for text in ["${HOME}", "${env:HOME}", "echo ${env.HOME}", "${var.x}-${var.y}", "${var.}", "${VAR}"] {
            assert!(!is_reference(text), "{text}");
        }
    }

    #[test]
    fn places_that_are_read_say_nothing() {
        let secret =
            |kind: &str| json!({ "kind": kind, "data": { "a": "env:A" }, "stringData": { "b": "env:B" } });
        let tree = json!({
            "vars": { "token": "env:A" },
            "allow": { "literal_secrets": { "x": "env:A" } },
            "manifest": { "m": { "objects": [secret("Secret"), secret("ConfigMap")] } },
            "notebook": { "n": { "password": { "secret": "env:A" }, "env": { "T": { "secret": "env:A" }, "U": "env:A" } } },
            "helm_release": { "r": {
                "values": { "password": { "secret": "env:A" }, "auth": { "secret": "env:A", "user": "me" } },
                "objects": [{ "data": { "a": "env:A" } }],
            } },
            "dask_cluster": { "c": { "worker": { "args": ["--token=env:A", "--tag=env:A", "env:A"] } } },
        });
        let words = unread(&tree, &Sources::default());
        let mut found: Vec<String> =
            words.iter().map(|word| format!("{} {:?}", word.place, word.home)).collect();
        found.sort();
        assert_eq!(
            found,
            [
                "dask_cluster.c.worker.args[0] Argument",
                "dask_cluster.c.worker.args[2] Argument",
                "helm_release.r.values.auth.secret Value",
                "manifest.m.objects[1].data.a Object",
                "manifest.m.objects[1].stringData.b Object",
                "notebook.n.env.U Variable",
            ]
        );
    }
}
