//! Dask's configuration as a table, passed to processes as environment variables.
//!
//! `DASK_FOO__BAR_BAZ=1` sets `foo.bar-baz`: Dask lower-cases the name, reads `__` as a dot, treats `-` and `_` as the same, and
//! reads the value as a Python literal. Sources: Dask's page "Configuration", section "Environment Variables";
//! `collect_env` and `interpret_value` in `dask/config.py` of dask 2026.8.0.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::json::append;
use model::address::FieldPath;

/// Keys whose variables have another meaning for Dask or its operator. Source: `dask/config.py` of dask 2026.8.0 and
/// `operator/controller/controller.py` of dask-kubernetes 2026.3.0.
const RESERVED: [&str; 5] =
    ["config", "root-config", "internal-inherit-config", "scheduler-address", "worker-name"];

/// Dask's configuration. Nested tables and dotted keys mean the same.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct DaskConfig(BTreeMap<String, Value>);

/// A value of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The path of the value in the table of the stack file.
    pub path: FieldPath,
    /// The environment variable.
    pub variable: String,
    /// The value as a Python literal, or as a text that Dask does not take for one.
    pub literal: String,
}

/// A key that cannot be a key of Dask's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigProblem {
    /// It is not dotted words of lowercase letters and digits.
    Form { path: FieldPath, key: String },
    /// Its variable has another meaning.
    Reserved { path: FieldPath, key: String },
    /// The table is empty.
    Empty { path: FieldPath },
    /// Two keys set one value.
    Twice { first: FieldPath, second: FieldPath },
}

impl DaskConfig {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns it with one more value, which replaces that of the same key.
    #[must_use]
    pub(crate) fn with(&self, key: &str, value: Value) -> Self {
        let mut table = self.0.clone();
        table.insert(key.to_owned(), value);
        Self(table)
    }

    /// Returns the values with their variables, in the order of the table.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for (key, value) in &self.0 {
            collect(&FieldPath::root().key(key), &words(key), value, &mut settings);
        }
        settings
    }

    /// Returns the environment variables, each once.
    pub fn variables(&self) -> BTreeMap<String, String> {
        self.settings().into_iter().map(|setting| (setting.variable, setting.literal)).collect()
    }

    /// Returns the variables that `env` does not set: a part of a cluster overrides the cluster.
    fn beside<V>(&self, env: &BTreeMap<String, V>) -> impl Iterator<Item = (String, String)> {
        self.variables().into_iter().filter(|(name, _)| !env.contains_key(name))
    }

    /// Adds the variables to a container with the variables `env` of its section.
    pub fn add_to_container<V>(&self, container: &mut Value, env: &BTreeMap<String, V>) {
        let item =
            |(name, literal): (String, String)| json!({ "name": name, "value": in_container(&literal) });
        append(container, "env", self.beside(env).map(item).collect());
    }

    /// Adds the variables to a process on a host, whose own variables are those of `env`.
    pub fn add_to_process<V>(&self, process: &mut Value, env: &BTreeMap<String, V>) {
        for (name, literal) in self.beside(env) {
            process["env"][name] = json!(literal);
        }
    }

    /// Returns the provenance of the variables in a container at `path`; `origin` is the path of the table.
    pub fn container_provenance(
        &self,
        container: &Value,
        path: &FieldPath,
        origin: &FieldPath,
    ) -> Vec<(FieldPath, FieldPath)> {
        let list: Vec<&Value> = container["env"].as_array().into_iter().flatten().collect();
        let of = |setting: Setting| {
            let literal = in_container(&setting.literal);
            let own = json!({ "name": setting.variable, "value": literal });
            let index = list.iter().position(|item| **item == own)?;
            Some((path.key("env").index(index), join(origin, &setting.path)))
        };
        self.settings().into_iter().filter_map(of).collect()
    }

    /// Returns the provenance of the variables in the body of a process at `path`; `origin` is the path of the table. Variables of
    /// `env` have another origin.
    pub fn process_provenance<V>(
        &self,
        env: &BTreeMap<String, V>,
        path: &FieldPath,
        origin: &FieldPath,
    ) -> Vec<(FieldPath, FieldPath)> {
        let settings = self.settings().into_iter().filter(|setting| !env.contains_key(&setting.variable));
        settings
            .map(|setting| (path.key("env").key(&setting.variable), join(origin, &setting.path)))
            .collect()
    }

    /// Returns the variables as a list of a container.
    pub fn container_variables(&self) -> impl Iterator<Item = Value> {
        let item =
            |(name, literal): (String, String)| json!({ "name": name, "value": in_container(&literal) });
        self.variables().into_iter().map(item)
    }

    /// Returns the keys that cannot be set.
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        for (key, value) in &self.0 {
            check(&FieldPath::root().key(key), key, &words(key), value, &mut problems);
        }
        let mut seen: BTreeMap<String, FieldPath> = BTreeMap::new();
        for setting in self.settings() {
            if let Some(first) = seen.insert(setting.variable, setting.path.clone()) {
                problems.push(ConfigProblem::Twice { first, second: setting.path });
            }
        }
        // A value cannot be a table as well: Dask fails at its import. `__` stands between the keys of tables.
        for (variable, path) in &seen {
            let parents = variable.match_indices("__").filter_map(|(end, _)| seen.get(&variable[..end]));
            problems.extend(
                parents.map(|first| ConfigProblem::Twice { first: first.clone(), second: path.clone() }),
            );
        }
        problems
    }
}

fn join(table: &FieldPath, inside: &FieldPath) -> FieldPath {
    table.segments().iter().chain(inside.segments()).cloned().collect()
}

fn words(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

/// Returns the table of a value that holds further keys of the configuration. A table with other keys is a value: variables of
/// a program, such as `MALLOC_TRIM_THRESHOLD_`, are upper case, and Dask lower-cases the names of its own variables.
fn inner(value: &Value) -> Option<&Map<String, Value>> {
    let is_key = |key: &String| key.split('.').all(is_word);
    value.as_object().filter(|table| table.keys().all(is_key) && !table.is_empty())
}

fn collect(path: &FieldPath, key: &[String], value: &Value, settings: &mut Vec<Setting>) {
    let Some(table) = inner(value) else {
        let variable = format!("DASK_{}", key.join("__").replace('-', "_").to_uppercase());
        settings.push(Setting { path: path.clone(), variable, literal: literal(value) });
        return;
    };
    for (name, value) in table {
        let key: Vec<String> = key.iter().cloned().chain(words(name)).collect();
        collect(&path.key(name), &key, value, settings);
    }
}

fn check(path: &FieldPath, name: &str, key: &[String], value: &Value, problems: &mut Vec<ConfigProblem>) {
    let dotted = key.join(".").replace('_', "-");
    if !name.split('.').all(is_word) {
        problems.push(ConfigProblem::Form { path: path.clone(), key: name.to_owned() });
    } else if RESERVED.contains(&dotted.as_str()) || dotted.starts_with("infra-") {
        problems.push(ConfigProblem::Reserved { path: path.clone(), key: dotted });
    } else if value.as_object().is_some_and(Map::is_empty) {
        problems.push(ConfigProblem::Empty { path: path.clone() });
    } else {
        for (name, value) in inner(value).into_iter().flatten() {
            let key: Vec<String> = key.iter().cloned().chain(words(name)).collect();
            check(&path.key(name), name, &key, value, problems);
        }
    }
}

/// Returns true for lowercase letters and digits with single `-` or `_` between them. A doubled one would be a dot to Dask.
fn is_word(word: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.split(['-', '_']).all(is_part)
}

/// Returns the value as Python would write it. A text stays as it is if Python cannot read it as something else.
fn literal(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => python(other),
    }
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        // JSON's escapes are Python's.
        Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) => {
            let pairs = table.iter().map(|(key, value)| format!("{}: {}", json!(key), python(value)));
            format!("{{{}}}", pairs.collect::<Vec<String>>().join(", "))
        }
    }
}

/// Returns true for a text that `interpret_value` leaves as it is: a word, an address, a path, or a number with a unit.
fn is_plain(text: &str) -> bool {
    let is_text = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '/' | '_' | '-');
    let named = ["none", "null", "true", "false"].contains(&text.to_lowercase().as_str());
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    // `1e5`, `1j`, `0x1f`, `0b1` and `0o7` are numbers of Python.
    let is_measure =
        ["s", "ms", "us", "m", "h", "d", "kB", "MB", "GB", "TB", "kiB", "KiB", "MiB", "GiB", "TiB"]
            .contains(&unit)
            && unit.len() < text.len();
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    text.chars().all(is_text) && !named && (is_word || is_measure)
}

impl JsonSchema for DaskConfig {
    fn schema_name() -> Cow<'static, str> {
        "DaskConfig".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Dask's configuration by dotted keys: `{ \"distributed.adaptive.target-duration\" = \"10s\" }`.",
            "type": "object",
            "additionalProperties": true,
        })
    }
}

/// Returns a text as the value of a variable of a container: Kubernetes replaces `$(NAME)` and reads `$$` as `$`.
fn in_container(literal: &str) -> String {
    literal.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(value: Value) -> DaskConfig {
        serde_json::from_value(value).unwrap()
    }

    fn pairs(value: Value) -> Vec<(String, String)> {
        config(value).settings().into_iter().map(|setting| (setting.variable, setting.literal)).collect()
    }

    #[test]
    fn values_become_python_literals() {
        let found = pairs(json!({
            "distributed.adaptive.target-duration": "10s",
            "distributed.scheduler": { "work-stealing": false, "allowed_failures": 5 },
            "distributed.worker.memory.spill": 0.75,
            "distributed.worker.preload": ["a.py", "b c.py"],
            "distributed.nanny.pre-spawn-environ": { "MALLOC_TRIM_THRESHOLD_": 65536, "A": "b" },
        }));
        let expect = [
            ("DASK_DISTRIBUTED__ADAPTIVE__TARGET_DURATION", "10s"),
            ("DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON", r#"{"A": "b", "MALLOC_TRIM_THRESHOLD_": 65536}"#),
            ("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "5"),
            ("DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING", "False"),
            ("DASK_DISTRIBUTED__WORKER__MEMORY__SPILL", "0.75"),
            ("DASK_DISTRIBUTED__WORKER__PRELOAD", r#"["a.py", "b c.py"]"#),
        ];
        assert_eq!(found, expect.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn texts_that_python_reads_as_something_else_are_quoted() {
        for (text, expect) in [
            ("10s", "10s"),
            ("0.5s", "0.5s"),
            ("tasks", "tasks"),
            ("/scratch", "/scratch"),
            ("tcp://a:1", "tcp://a:1"),
            ("12", r#""12""#),
            ("1e5", r#""1e5""#),
            ("5j", r#""5j""#),
            ("True", r#""True""#),
            ("none", r#""none""#),
            ("[1]", r#""[1]""#),
            ("set()", r#""set()""#),
            ("a \"b\"\n", r#""a \"b\"\n""#),
            ("", r#""""#),
        ] {
            assert_eq!(literal(&json!(text)), expect, "{text}");
        }
    }

    #[test]
    fn keys_that_dask_cannot_have_are_found() {
        let found = |value| config(value).problems();
        let path = |text: &str| FieldPath::keys([text]);
        assert_eq!(found(json!({ "distributed.worker.resources.GPU": 1 })).len(), 1);
        for key in ["Distributed.a", "a..b", "a__b", "a-", "1a", "a b", ""] {
            assert_eq!(
                found(json!({ key: 1 })),
                [ConfigProblem::Form { path: path(key), key: key.to_owned() }],
                "{key}"
            );
        }
        for key in ["scheduler-address", "config", "infra-tls"] {
            let expect = [ConfigProblem::Reserved { path: path(key), key: key.to_owned() }];
            assert_eq!(found(json!({ key: "a" })), expect, "{key}");
        }
        assert_eq!(found(json!({ "distributed": {} })), [ConfigProblem::Empty { path: path("distributed") }]);
        let twice = found(json!({ "a.b-c": 1, "a": { "b_c": 2 } }));
        assert_eq!(twice, [ConfigProblem::Twice { first: path("a").key("b_c"), second: path("a.b-c") }]);
        assert_eq!(found(json!({ "distributed": { "scheduler": { "work-stealing": true } } })), []);
    }

    #[test]
    fn variables_of_a_section_override() {
        let own = BTreeMap::from([("DASK_A".to_owned(), "2")]);
        let config = config(json!({ "a": 1, "b": "$(HOME)" }));
        let mut container = json!({ "env": [{ "name": "DASK_A", "value": "2" }] });
        config.add_to_container(&mut container, &own);
        let expect = json!({ "name": "DASK_B", "value": "\"$$(HOME)\"" });
        assert_eq!(container["env"], json!([{ "name": "DASK_A", "value": "2" }, expect]));
        let origin = FieldPath::keys(["config"]);
        let provenance = config.container_provenance(&container, &FieldPath::root(), &origin);
        assert_eq!(provenance, [(FieldPath::keys(["env"]).index(1), origin.key("b"))]);
        let mut plain = json!({ "name": "worker" });
        DaskConfig::default().add_to_container(&mut plain, &own);
        assert_eq!(plain, json!({ "name": "worker" }));
        let mut process = json!({ "env": { "DASK_A": "2" } });
        config.add_to_process(&mut process, &own);
        assert_eq!(process["env"], json!({ "DASK_A": "2", "DASK_B": "\"$(HOME)\"" }));
    }
}
