//! Checks that secrets are references instead of plain text: text in the file is also in plans, in the cluster and in terminals.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::rules::Context;
use crate::rules::manifests::given_pods;
use crate::rules::names::is_variable;
use crate::{SecretKey, Variable};
use kinds::hosts::environment::is_usual_name;
use kinds::kubernetes::{bundle, endpoint};
use kinds::section::PodRole;
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic};
use model::secrets::env_values::ENV_PREFIX;
use model::secrets::{follows_flag, has_secret_shape, is_literal, is_secret_file, redacted};

/// Ways to pass a secret to the place that needs it.
#[derive(Clone, Copy)]
enum Remedy {
    /// A variable of a section.
    Variable,
    /// A variable of a PodSpec.
    PodVariable,
    Argument,
    /// A chart's value.
    Value,
    /// A file that is copied.
    File,
    /// A place that does not accept a reference.
    Elsewhere,
}

/// A secret in plain text.
struct Literal {
    /// The address that allows it: `dask_cluster.rapids.worker.env.HF_TOKEN`, `manifest.db.env.DB_PASSWORD`.
    address: FieldPath,
    /// Its path.
    place: FieldPath,
    name: String,
    why: &'static str,
    remedy: Remedy,
}

/// Reports variables, arguments, annotations and chart values that are secrets by their name, their shape, or the variable that
/// they come from, unless `[allow]` has a reason.
pub(crate) fn secrets_are_named(context: &mut Context<'_>) {
    let mut look = Look { context, section: FieldPath::root(), found: Vec::new(), taken: Vec::new() };
    look.sections();
    look.files();
    look.objects();
    look.values();
    let Look { found, taken, .. } = look;
    for place in taken {
        let what = "a chart's value cannot be read from the environment: it would appear in plans and in the \
             cluster";
        let help = "create the Secret with a manifest (`stringData: { KEY: \"env:NAME\" }`), and give the \
             chart its name (often the value `existingSecret`)";
        context.say_of_value(Diagnostic::error(Code::LiteralSecret, what).at_value(place, "").help(help));
    }
    let allowed = &context.stack.allow.literal_secrets;
    let allow = FieldPath::keys(["allow", "literal_secrets"]);
    let rows: Vec<(&String, FieldPath)> =
        allowed.keys().map(|key| (key, key.parse().unwrap_or_default())).collect();
    for (key, path) in &rows {
        let place = allow.key(key);
        if allowed[*key].trim().is_empty() {
            let finding =
                Diagnostic::error(Code::LiteralSecret, format!("`{key}` is allowed without a reason"));
            context.say(finding.at_key(place, "").help("say why it may be public, for later readers"));
        } else if !found.iter().any(|literal| path.contains(&literal.address))
            && !context.words.iter().any(|word| path.contains(&word.place))
            && !context.is_doubtful(path)
        {
            let what = format!("`{key}` is allowed, but there is no plain-text secret");
            context.say(
                Diagnostic::warning(Code::LiteralSecret, what).at_key(place, "").help("remove the line"),
            );
        }
    }
    for literal in found {
        if !rows.iter().any(|(_, path)| path.contains(&literal.address)) {
            context.say_of_value(refused(&literal));
        }
    }
}

fn refused(literal: &Literal) -> Diagnostic {
    let Literal { address, place, name, why, remedy } = literal;
    let remedy = match remedy {
        Remedy::Variable => format!(
            "refer to a key of a Secret: `{name} = {{ secret = \"NAME\", key = \"KEY\" }}`; `kubectl create secret generic NAME \
             --from-literal=KEY=…` creates one. Or have it read from the environment when the stack is \
             applied: `{name} = {{ secret = \"env:NAME\" }}`"
        ),
        Remedy::PodVariable => {
            "refer to a key of a Secret instead of `value`: `valueFrom: { secretKeyRef: { name: NAME, key: KEY \
             } }`".to_owned()
        }
        Remedy::Argument => {
            "set it in a variable from a Secret key, and write `$(VARIABLE)` here".to_owned()
        }
        Remedy::Value => {
            "put it into a Secret and give the chart its name (often the value `existingSecret`)".to_owned()
        }
        Remedy::File => {
            "keep it out of `files`, and pass the value by a variable: `env = { NAME = { secret = \"env:NAME\" } }`".to_owned()
        }
        Remedy::Elsewhere => "put it into a Secret (`kubectl create secret generic`) and refer to that".to_owned(),
    };
    let key = quoted(address);
    let message = match literal.remedy {
        Remedy::File => {
            format!("the file `{name}` {why}, and its content would be copied to where the processes run")
        }
        _ => format!("`{name}` {why}, and values in this file appear in plans and in the cluster"),
    };
    let finding = Diagnostic::error(Code::LiteralSecret, message);
    let finding = match literal.remedy {
        Remedy::File => finding.at_value(place.clone(), "named here"),
        _ => finding.at_key(place.clone(), ""),
    };
    finding
        .help(format!("{remedy}; if it may be public, allow it: `[allow.literal_secrets]` `{key} = \"why\"`"))
}

/// Returns an address as a TOML key.
pub(crate) fn quoted(address: &FieldPath) -> String {
    let address = address.to_string();
    if address.contains(['"', '\\']) { format!("'{address}'") } else { format!("\"{address}\"") }
}

struct Look<'a, 'c> {
    context: &'a Context<'c>,
    section: FieldPath,
    found: Vec<Literal>,
    /// Paths of chart values that come from environment variables.
    taken: Vec<FieldPath>,
}

impl Look<'_, '_> {
    /// Returns why a text under a name is a secret; `None` if it is none.
    fn why(&self, name: &str, text: &str) -> Option<&'static str> {
        if is_literal(name, text) {
            Some("is named like a secret")
        } else if has_secret_shape(text) {
            Some("looks like a secret")
        } else if self.context.given.are_in(text) {
            Some("has the value of a variable that is a secret")
        } else {
            None
        }
    }

    fn add(&mut self, address: FieldPath, place: FieldPath, name: &str, why: &'static str, remedy: Remedy) {
        // One variable of several containers is one thing to allow.
        if !self.found.iter().any(|known| known.address == address && known.place == place) {
            self.found.push(Literal { address, place, name: name.to_owned(), why, remedy });
        }
    }

    /// Checks keys of the stack's own sections.
    fn sections(&mut self) {
        for pod in self.context.pods() {
            let texts = pod.keys.env.iter().filter_map(|(name, value)| Some((name, value.text()?)));
            for (name, text) in texts {
                // Said by the rule of notebooks.
                if pod.role == PodRole::Notebook && name == endpoint::PASSWORD {
                    continue;
                }
                let place = pod.path.key("env").key(name);
                if let Some(why) = self.why(name, text) {
                    self.add(place.clone(), place, name, why, Remedy::Variable);
                }
            }
            self.section = pod.path.clone();
            let args: Value = pod.args.iter().map(String::as_str).collect();
            self.arguments(&args, &pod.path.key("args"));
        }
        let stack = self.context.stack;
        let namespaces = stack.namespace.iter();
        let mut annotated: Vec<(FieldPath, &BTreeMap<String, String>)> = namespaces
            .map(|(key, namespace)| (FieldPath::keys(["namespace", key]), &namespace.annotations))
            .collect();
        for (key, cluster) in &stack.dask_cluster {
            let section = FieldPath::keys(["dask_cluster", key]);
            let service = (section.key("service"), &cluster.service.annotations);
            annotated.push((section, &cluster.annotations));
            annotated.push(service);
        }
        for pod in stack.pods() {
            annotated.push((pod.path, &pod.keys.annotations));
        }
        for (section, annotations) in annotated {
            let table: Map<String, Value> =
                annotations.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
            self.section = section;
            self.annotations(&table, &self.section.key("annotations"));
        }
        for (path, pod, _) in given_pods(self.context) {
            self.section = path.parent().unwrap_or_default();
            self.tree(pod, &path);
        }
    }

    /// Checks the files that are copied, by their names and by the shapes in their contents.
    fn files(&mut self) {
        let stack = self.context.stack;
        let clusters = stack.dask_cluster.iter().map(|(key, section)| ("dask_cluster", key, &section.code));
        let jobs = stack.dask_job.iter().map(|(key, section)| ("dask_job", key, &section.code));
        let checks = stack.check.iter().map(|(key, section)| ("check", key, &section.code));
        let sections = clusters.chain(jobs).chain(checks);
        let code = sections.map(|(kind, key, code)| (FieldPath::keys([kind, key, "files"]), &code.contents));
        let environments = stack.environment.iter().map(|(key, section)| {
            let named = if section.pyproject.is_some() { "pyproject" } else { "requirements" };
            (FieldPath::keys(["environment", key, named]), &section.contents.files)
        });
        let environment = Segment::Key("environment".to_owned());
        for (place, files) in code.chain(environments) {
            for (path, file) in files.iter() {
                // The text of an environment's own file is checked by its rule.
                let name = path.rsplit('/').next().unwrap_or(path);
                if place.segments().first() == Some(&environment) && is_usual_name(name) {
                    continue;
                }
                let why = if is_secret_file(path) {
                    Some("is named like one with secrets")
                } else if String::from_utf8(file.bytes()).is_ok_and(|text| has_secret_shape(&text)) {
                    Some("has what looks like a secret")
                } else {
                    None
                };
                if let Some(why) = why {
                    self.found.push(Literal {
                        address: place.key(path),
                        place: place.clone(),
                        name: path.clone(),
                        why,
                        remedy: Remedy::File,
                    });
                }
            }
        }
    }

    /// Checks objects that users wrote. Objects of charts follow from chart values.
    fn objects(&mut self) {
        for object in
            bundle::objects(&self.context.stack.bundles()).filter(|object| !object.bundle.is_chart())
        {
            self.section = object.bundle.path();
            self.tree(object.value, &object.origin());
            let data = (object.kind() == "ConfigMap").then(|| object.value["data"].as_object()).flatten();
            for (key, text) in
                data.into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_str()?)))
            {
                // Keys of configuration are no names of secrets often enough: `token.url`.
                if has_secret_shape(text) {
                    let place = object.origin().key("data").key(key);
                    let address = self.section.key("data").key(key);
                    self.add(address, place, key, "looks like a secret", Remedy::Elsewhere);
                }
            }
        }
    }

    /// Checks variables, arguments and annotations anywhere in a tree.
    fn tree(&mut self, value: &Value, path: &FieldPath) {
        match value {
            Value::Object(table) => {
                for (key, value) in table {
                    let path = path.key(key);
                    match (key.as_str(), value) {
                        ("env", Value::Array(items)) => self.variables(items, &path),
                        ("args" | "command", Value::Array(_)) => self.arguments(value, &path),
                        ("annotations", Value::Object(annotations)) => self.annotations(annotations, &path),
                        _ => self.tree(value, &path),
                    }
                }
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(place, item)| self.tree(item, &path.index(place)));
            }
            Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    fn variables(&mut self, items: &[Value], path: &FieldPath) {
        for (place, item) in items.iter().enumerate() {
            let (Some(name), Some(text)) = (item["name"].as_str(), item["value"].as_str()) else { continue };
            if let Some(why) = self.why(name, text) {
                let address = self.section.key("env").key(name);
                self.add(address, path.index(place).key("value"), name, why, Remedy::PodVariable);
            }
        }
    }

    fn arguments(&mut self, list: &Value, path: &FieldPath) {
        let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
        for (place, item) in items.iter().enumerate() {
            let Some(text) = item.as_str() else { continue };
            // A shell's script says `password=$PASSWORD` and means a variable.
            let script = text.contains(['\n', ' ', '$']);
            let named = follows_flag(items, place) || (!script && redacted(text) != text);
            let why = if named { Some("is named like a secret") } else { self.why("", text) };
            let name = match follows_flag(items, place) {
                true => items[place - 1].as_str().unwrap_or_default(),
                false => text.split(['=', ' ']).next().filter(|name| name.starts_with('-')).unwrap_or("args"),
            };
            if let Some(why) = why {
                let key = path.last_key().unwrap_or("args");
                self.add(self.section.key(key), path.index(place), name, why, Remedy::Argument);
            }
        }
    }

    fn annotations(&mut self, annotations: &Map<String, Value>, path: &FieldPath) {
        for (key, value) in annotations {
            let Some(text) = value.as_str() else { continue };
            // The part before the `/` is a domain.
            let name = key.rsplit('/').next().unwrap_or(key);
            if let Some(why) = self.why(name, text) {
                self.add(
                    self.section.key("annotations").key(key),
                    path.key(key),
                    key,
                    why,
                    Remedy::Elsewhere,
                );
            }
        }
    }

    /// Checks chart values.
    fn values(&mut self) {
        let stack = self.context.stack;
        let releases = stack.helm_release.iter();
        let releases = releases.map(|(key, release)| {
            (FieldPath::keys(["helm_release", key]), &release.values, release.given.as_slice())
        });
        let operator = stack.dask_operator.as_ref();
        let operator =
            operator.map(|operator| (FieldPath::keys(["dask_operator"]), &operator.values, [].as_slice()));
        let kueue = stack.kueue.as_ref();
        let kueue = kueue.map(|kueue| (FieldPath::keys(["kueue"]), &kueue.values, [].as_slice()));
        for (section, values, given) in releases.chain(operator).chain(kueue) {
            let address = section.key("values");
            for (name, value) in values {
                self.value(name, value, &address.key(name), &section.key("values").key(name));
            }
            for (place, file) in given.iter().enumerate() {
                for (name, value) in file.as_object().into_iter().flatten() {
                    self.value(name, value, &address.key(name), &section.key("given").index(place).key(name));
                }
            }
        }
    }

    fn value(&mut self, name: &str, value: &Value, address: &FieldPath, place: &FieldPath) {
        match value {
            Value::Object(table) => {
                let variable = table.get("secret").and_then(Value::as_str).filter(|_| table.len() == 1);
                if variable.is_some_and(|text| text.starts_with(ENV_PREFIX)) {
                    self.taken.push(place.clone());
                }
                for (key, value) in table {
                    self.value(key, value, &address.key(key), &place.key(key));
                }
            }
            Value::Array(items) => {
                let named =
                    |item: &Value| Some((item.get("name")?.as_str()?.to_owned(), item.get("value")?.clone()));
                for (index, item) in items.iter().enumerate() {
                    let (address, place) = (address.index(index), place.index(index));
                    match named(item) {
                        Some((name, value)) => self.value(&name, &value, &address, &place),
                        None => self.value(name, item, &address, &place),
                    }
                }
            }
            Value::String(text) => {
                if let Some(why) = self.why(name, text) {
                    self.add(address.clone(), place.clone(), name, why, Remedy::Value);
                }
            }
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }
}

/// Checks that references name a Secret and a key in it, or a variable of the environment.
pub(crate) fn references_are_names(context: &mut Context<'_>) {
    let mut found: Vec<(FieldPath, &SecretKey)> = Vec::new();
    for pod in context.pods() {
        let named = pod.keys.env.iter().filter_map(|(name, value)| match value {
            Variable::Secret(reference) => Some((pod.path.key("env").key(name), reference)),
            Variable::Text(_) => None,
        });
        found.extend(named);
    }
    for (key, notebook) in &context.stack.notebook {
        let place = FieldPath::keys(["notebook", key, "password"]);
        // A password that names a Secret is checked by the rule for notebooks.
        let password = notebook.password.as_ref().filter(|password| password.variable().is_some());
        found.extend(password.map(|password| (place, password)));
    }
    for (place, reference) in found {
        for finding in wrong_names(&place, reference) {
            context.say_of_value(finding);
        }
    }
}

fn wrong_names(place: &FieldPath, SecretKey { secret, key }: &SecretKey) -> Vec<Diagnostic> {
    let bad = |field: &str, message: String, help: &str| {
        Diagnostic::error(Code::BadName, message).at_value(place.key(field), "").help(help)
    };
    if let Some(variable) = secret.strip_prefix(ENV_PREFIX) {
        let named = (!is_variable(variable)).then(|| {
            let what = format!("`{variable}` cannot be the name of an environment variable");
            bad(
                "secret",
                what,
                "letters, digits and `_`, not starting with a digit; it is the name of the \
                 variable, not the value",
            )
        });
        let keyed = (!key.is_empty()).then(|| {
            let what = "an environment variable has no key".to_owned();
            bad("key", what, "remove `key`; an existing Secret is named without `env:`")
        });
        return named.into_iter().chain(keyed).collect();
    }
    let object = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let data = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut found = Vec::new();
    if secret.is_empty() || !secret.chars().all(object) {
        let help = "lower-case letters, digits, `-` and `.`; it is the name of a Secret, not the value";
        found.push(bad("secret", format!("`{secret}` cannot be the name of a Secret"), help));
    }
    if key.is_empty() {
        let what = format!("no key of the Secret `{secret}` is given");
        let help =
            "add `key = \"KEY\"`; `{ secret = \"env:NAME\" }` reads the value from the environment instead";
        found.push(bad("secret", what, help));
    } else if !key.chars().all(data) {
        let what = format!("`{key}` cannot be the key in a Secret");
        found.push(bad("key", what, "letters, digits, `-`, `_` and `.`"));
    }
    found
}
