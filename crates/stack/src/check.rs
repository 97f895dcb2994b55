//! Checks the whole file against its schema, and reports all errors at once. Serde, which stops at the first error and knows no
//! positions, runs afterwards and finds no more.

use serde_json::{Map, Value};

use super::schema::{OVERLAY, example_of, listed_words, members, resolve, shape, types, words};
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic, listed, nearest};

/// An error, and what to remove from the tree so that the rest can be read.
pub(super) struct Mistake {
    /// The diagnostic to report; `None` if another error reports it already.
    pub(super) diagnostic: Option<Diagnostic>,
    pub(super) path: FieldPath,
    /// The field that was meant instead, so that it is not reported as missing.
    pub(super) meant: Option<FieldPath>,
}

/// Returns all errors against the schema in a tree whose references are resolved.
pub(super) fn check(tree: &Value) -> Vec<Mistake> {
    let on_host = ["local", "ssh", "slurm"].iter().any(|target| tree.get(target).is_some());
    let mut check = Check { root: shape(), on_host, mistakes: Vec::new() };
    check.value(shape(), tree, &FieldPath::root());
    check.mistakes
}

/// Keys of other tools, each with the key that means the same here.
const OTHER_WORDS: [(&str, &str); 26] = [
    ("stop_after", "ttl"),
    ("node_count", "nodes"),
    ("num_nodes", "nodes"),
    ("initial_node_count", "nodes"),
    ("min_nodes", "nodes"),
    ("max_nodes", "nodes"),
    ("autoscaling", "nodes"),
    ("region", "location"),
    ("zone", "location"),
    ("zone", "zones"),
    ("node_locations", "zones"),
    ("gpu_type", "accelerator"),
    ("guest_accelerator", "accelerator"),
    ("command", "args"),
    ("node_selector", "pool"),
    ("instance_type", "machine_type"),
    ("machine", "machine_type"),
    ("type", "machine_type"),
    ("project_id", "project"),
    ("n_workers", "replicas"),
    ("count", "replicas"),
    ("count", "nodes"),
    ("autostop", "idle_stop"),
    ("cores", "cpu"),
    ("queue", "partition"),
    ("username", "user"),
];

const BOUGHT_BY_POOLS: &str = "machines are bought by the node pool that the workers run on: write `capacity = [\"on-demand\", \"spot\"]` into \
     its `[node_pool.NAME]`; here `capacity = \"queued\"` asks for the nodes of all workers at once";

/// Keys that are required, except in sections with `manage = false`.
const NOT_WHEN_READ: [&str; 3] = ["machine_type", "version", "image"];

fn is_read(table: &Map<String, Value>) -> bool {
    table.get("manage") == Some(&Value::Bool(false))
}

/// Adds the keys that sections with `manage = false` may leave out, as empty texts, which are not compared.
pub(super) fn fill(tree: &mut Value) {
    for (top, key) in [("node_pool", "machine_type"), ("dask_cluster", "image")] {
        let sections = tree.get_mut(top).and_then(Value::as_object_mut);
        for section in sections.into_iter().flat_map(|sections| sections.values_mut()) {
            fill_key(section, key);
        }
    }
    if let Some(operator) = tree.get_mut("dask_operator") {
        fill_key(operator, "version");
    }
}

fn fill_key(section: &mut Value, key: &str) {
    if let Some(table) = section.as_object_mut().filter(|table| is_read(table)) {
        table.entry(key).or_insert_with(|| Value::String(String::new()));
    }
}

struct Check<'a> {
    root: &'a Value,
    /// True if the stack has `[local]`, `[ssh]` or `[slurm]`.
    on_host: bool,
    mistakes: Vec<Mistake>,
}

impl Check<'_> {
    fn value(&mut self, schema: &Value, value: &Value, path: &FieldPath) {
        // Reported when it was read or resolved.
        if value.is_null() {
            return;
        }
        let schema = resolve(self.root, schema);
        // Any value: what Kubernetes says about it is looked at later.
        if schema.as_object().is_some_and(Map::is_empty) {
            return;
        }
        if let Some(words) = words(schema) {
            return self.word(&words, value, path);
        }
        if let Some(table) = value.as_object()
            && self.lacks_a_name(schema, table, path)
        {
            return;
        }
        let found = type_of(value);
        let fits = |name: &&str| *name == found || (*name == "number" && found == "integer");
        let alternatives =
            schema.get("oneOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let alternatives: Vec<&Value> =
            alternatives.iter().map(|schema| resolve(self.root, schema)).collect();
        if alternatives.is_empty() {
            let types = types(schema);
            if !types.iter().any(fits) {
                return self.wrong_type(&[schema], value, path);
            }
            return self.inside(schema, value, path);
        }
        match alternatives.iter().find(|schema| types(schema).iter().any(fits)) {
            Some(schema) => self.inside(schema, value, path),
            None => self.wrong_type(&alternatives, value, path),
        }
    }

    /// Checks the content of a value that has the right type.
    fn inside(&mut self, schema: &Value, value: &Value, path: &FieldPath) {
        match value {
            Value::Number(_) => self.range(schema, value, path),
            Value::Array(items) => {
                let Some(schema) = schema.get("items") else { return };
                for (index, item) in items.iter().enumerate() {
                    self.value(schema, item, &path.index(index));
                }
            }
            Value::Object(table) => self.table(schema, table, path),
            Value::String(_) => {
                if let Some(words) = listed_words(schema) {
                    self.word(&words, value, path);
                }
            }
            _ => {}
        }
    }

    fn table(&mut self, schema: &Value, table: &Map<String, Value>, path: &FieldPath) {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let mut unknown: Vec<(&str, &Value)> = Vec::new();
        for (key, value) in table {
            let path = path.key(key);
            match (properties.get(key), schema.get("additionalProperties")) {
                (Some(schema), _) | (None, Some(schema @ Value::Object(_))) => {
                    self.value(schema, value, &path);
                }
                // Anything: what a chart says about it is heard when it is rendered.
                (None, Some(Value::Bool(true))) => {}
                _ => {
                    unknown.push((key, value));
                    self.unknown_key(properties, key, value, &path);
                }
            }
        }
        let required =
            schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        // On a host there are no images.
        let of_cluster = path.segments().len() == 2 && FieldPath::keys(["dask_cluster"]).contains(path);
        let image = (of_cluster && !self.on_host).then(|| Value::String("image".to_owned()));
        // A `manage` that is not understood may have been meant as `false`.
        let read = table.get("manage").is_some_and(|manage| *manage != Value::Bool(true));
        let needless = |key: &&str| read && NOT_WHEN_READ.contains(key);
        let required = required.iter().chain(&image).filter_map(Value::as_str);
        let missing = required.filter(|key| !table.contains_key(*key));
        for key in missing.filter(|key| !needless(key)) {
            // A key that is misspelled, or stands one table too deep, is not missing as well.
            let misspelt = unknown
                .iter()
                .any(|(word, value)| means(word, properties) == Some(key) || value.get(key).is_some());
            match misspelt {
                true => self.mistakes.push(Mistake { diagnostic: None, path: path.clone(), meant: None }),
                false => self.missing_key(&properties[key], key, path),
            }
        }
    }

    /// `[node_pool] machine_type = …`: the section needs a name. A single error covers all keys in it.
    fn lacks_a_name(&mut self, schema: &Value, table: &Map<String, Value>, path: &FieldPath) -> bool {
        let [Segment::Key(top)] = path.segments() else { return false };
        let Some(properties) =
            members(self.root, schema).and_then(|members| members["properties"].as_object())
        else {
            return false;
        };
        let Some((key, _)) =
            table.iter().find(|(key, value)| properties.contains_key(*key) && !value.is_object())
        else {
            return false;
        };
        let what = format!("`[{top}]` has no name");
        let label = format!("as `{key}` stands below it, this is one `{top}`");
        let diagnostic = Diagnostic::error(Code::WrongType, what).at_key(path.clone(), label);
        self.push(diagnostic.help(format!("give it a name: `[{top}.NAME]`, with `{key}` below it")), path);
        true
    }

    fn unknown_key(&mut self, properties: &Map<String, Value>, key: &str, value: &Value, path: &FieldPath) {
        let parent = path.parent().unwrap_or_default();
        let (what, known, label) = if parent.is_root() && value.is_object() {
            (format!("there is no section `[{key}]`"), "sections are", "unknown section")
        } else if parent.is_root() {
            (format!("`{key}` is not in a section"), "sections are", "before the first section")
        } else {
            (format!("{} has no key `{key}`", section(&parent)), "its keys are", "unknown key")
        };
        let names = || properties.keys().map(String::as_str);
        let listed_names = || names().filter(|name| !parent.is_root() || !OVERLAY.contains(name));
        let root = self.root;
        let sections = root["properties"].as_object();
        let section = sections.and_then(|sections| means(key, sections)).filter(|_| value.is_object());
        let meant = section.map(|section| FieldPath::root().key(section));
        let (label, help) = if path == &FieldPath::keys(["stack", "helm"]) {
            // It was a key before 0.2: a stack that names a program runs it on every machine that looks at it.
            (
                "no longer a key",
                "a stack cannot choose programs: give `--helm PATH`, or set DASK_INFRA_HELM; without them \
                 `helm` is taken from the PATH"
                    .to_owned(),
            )
        } else if key == "extends" {
            ("not here", "`extends` belongs at the top of the file, before the first section".to_owned())
        } else if let Some(near) = nearest(key, names()) {
            (label, format!("did you mean `{near}`?"))
        } else if let Some(ours) = means(key, properties) {
            (label, format!("use `{ours}` instead"))
        } else if let Some(near) = sharing_words(key, names()) {
            (label, format!("did you mean {}?", listed(near, "or")))
        } else if let Some(section) = section.filter(|_| !parent.is_root()) {
            (
                "not here",
                format!(
                    "`{section}` is a section of its own: `[{section}…]`, not inside {}",
                    self::section(&parent)
                ),
            )
        } else {
            match self.elsewhere(key, &parent).as_slice() {
                [] => (label, format!("{known} {}", listed(listed_names(), "and"))),
                places => {
                    let other =
                        format!("`{key}` is a key of {}", listed(places.iter().map(String::as_str), "and"));
                    let near = listed_names().count() <= FEW && !parent.is_root();
                    let own = near.then(|| format!("{known} {}; ", listed(listed_names(), "and")));
                    ("not here", format!("{}{other}", own.unwrap_or_default()))
                }
            }
        };
        let diagnostic = Diagnostic::error(Code::UnknownKey, what).at_key(path.clone(), label);
        let diagnostic = Some(diagnostic.help(help));
        self.mistakes.push(Mistake { diagnostic, path: path.clone(), meant });
    }

    fn missing_key(&mut self, schema: &Value, key: &str, path: &FieldPath) {
        let example = self.example(key, schema);
        let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let about = about.split_inclusive(". ").next().unwrap_or_default().trim_end().trim_end_matches('.');
        let diagnostic = if path.is_root() {
            Diagnostic::error(Code::MissingKey, format!("the file has no section `[{key}]`")).help(
                match key {
                    "stack" => {
                        "add `[stack]` with `name = \"…\"`, or begin with a ready stack: `dask-infra init`"
                            .to_owned()
                    }
                    _ => format!("add `[{key}]`: {}", lower_first(about)),
                },
            )
        } else {
            Diagnostic::error(Code::MissingKey, format!("{} has no `{key}`", section(path)))
                .help(format!("add `{example}`: {}", lower_first(about)))
        };
        let label = if path.is_root() { String::new() } else { format!("needs `{key}`") };
        self.push(diagnostic.at_value(path.clone(), label), path);
    }

    fn word(&mut self, words: &[&str], value: &Value, path: &FieldPath) {
        let allowed = listed(words.iter().copied(), "or");
        let Some(word) = value.as_str() else {
            let message = format!("{} takes {allowed}, not {}", key_of(path), name_of(type_of(value)));
            let diagnostic = Diagnostic::error(Code::WrongType, message).at_value(path.clone(), "");
            let help = match words {
                _ if is_bought(words, path) => BOUGHT_BY_POOLS.to_owned(),
                [word, ..] => format!("for example `{} = \"{word}\"`", bare_key(path)),
                [] => String::new(),
            };
            return self.push(diagnostic.help(help), path);
        };
        if words.contains(&word) {
            return;
        }
        let message = format!("{} cannot be `{word}`", key_of(path));
        let diagnostic = Diagnostic::error(Code::NotOneOf, message).at_value(path.clone(), "");
        let help = match nearest(word, words.iter().copied()) {
            None if is_bought(words, path) => BOUGHT_BY_POOLS.to_owned(),
            Some(near) => format!("did you mean `{near}`? It takes {allowed}"),
            None => format!("it takes {allowed}"),
        };
        self.push(diagnostic.help(help), path);
    }

    fn range(&mut self, schema: &Value, value: &Value, path: &FieldPath) {
        let limit = |name: &str| schema.get(name).and_then(Value::as_i64);
        let Some(number) = value.as_i64() else { return };
        let most = limit("maximum").filter(|most| *most != i64::from(u32::MAX) || number > *most);
        let (least, most) = (limit("minimum"), most);
        let label = match (least, most) {
            (Some(least), _) if number < least => format!("at least {least}"),
            (_, Some(most)) if number > most => format!("at most {most}"),
            _ => return,
        };
        let message = format!("{} cannot be {number}", key_of(path));
        let help = match (least, most) {
            (Some(least), Some(most)) => format!("it takes {least} to {most}"),
            _ => format!("it takes {label}"),
        };
        let diagnostic = Diagnostic::error(Code::OutOfRange, message).at_value(path.clone(), label);
        self.push(diagnostic.help(help), path);
    }

    fn wrong_type(&mut self, schemas: &[&Value], value: &Value, path: &FieldPath) {
        let expected: Vec<&str> = schemas.iter().flat_map(|schema| types(schema)).collect();
        let names: Vec<&str> = expected.iter().map(|name| name_of(name)).collect();
        let found = type_of(value);
        let message = format!("{} takes {}, not {}", key_of(path), names.join(" or "), name_of(found));
        let diagnostic = Diagnostic::error(Code::WrongType, message).at_value(path.clone(), name_of(found));
        let help = self.better_value(schemas, &expected, value, path);
        self.push(diagnostic.help(help), path);
    }

    /// Returns a correct value: the same value in the right form if possible, else an example.
    fn better_value(&self, schemas: &[&Value], expected: &[&str], value: &Value, path: &FieldPath) -> String {
        let key = bare_key(path);
        let single = |name: &str| expected.contains(&name);
        let has_example = || schemas.iter().any(|schema| example_of(resolve(self.root, schema)).is_some());
        match value {
            Value::String(text)
                if (single("integer") && text.parse::<i64>().is_ok())
                    || (single("boolean") && text.parse::<bool>().is_ok()) =>
            {
                format!("without quotes: `{key} = {text}`")
            }
            Value::String(text) if single("array") => format!("in brackets: `{key} = [\"{text}\"]`"),
            Value::String(text) if single("boolean") && yes_or_no(text).is_some() => {
                format!("TOML writes it `{key} = {}`", yes_or_no(text).unwrap_or_default())
            }
            Value::Bool(_) | Value::Number(_) if single("string") && !has_example() => {
                match path.segments().last() {
                    Some(Segment::Index(_)) => format!("in quotes: `\"{value}\"`"),
                    _ => format!("in quotes: `{key} = \"{value}\"`"),
                }
            }
            Value::Array(_) if single("object") && path.segments().len() <= 2 => {
                let keyed = schemas.first().is_some_and(|schema| members(self.root, schema).is_some());
                let name = if keyed && path.segments().len() == 1 { ".NAME" } else { "" };
                format!("sections have single brackets: `[{path}{name}]`")
            }
            Value::String(text) if single("integer") && !digits(text).is_empty() => {
                format!("only the number: `{key} = {}`", digits(text))
            }
            Value::Number(number)
                if single("integer") && number.as_f64().is_some_and(|it| it.fract() == 0.0) =>
            {
                format!("without a fraction: `{key} = {}`", number.as_f64().unwrap_or_default())
            }
            _ if single("object") && path.segments().len() <= 2 => format!("write a section: `[{path}]`"),
            _ => match schemas.first() {
                Some(schema) if matches!(path.segments().last(), Some(Segment::Index(_))) => {
                    let example = self.example("", schema);
                    format!("for example `{}`", example.trim_start_matches(" = "))
                }
                Some(schema) => format!("for example `{}`", self.example(&key, schema)),
                None => String::new(),
            },
        }
    }

    fn example(&self, key: &str, schema: &Value) -> String {
        let schema = resolve(self.root, schema);
        if let Some(given) = example_of(schema) {
            return format!("{key} = {given}");
        }
        if let Some([first, ..]) = words(schema).or_else(|| listed_words(schema)).as_deref() {
            return format!("{key} = \"{first}\"");
        }
        let alternatives = schema.get("oneOf").and_then(Value::as_array);
        if let Some(first) = alternatives.and_then(|alternatives| alternatives.first()) {
            return self.example(key, first);
        }
        match types(schema).first() {
            Some(&"integer") => {
                let least = schema.get("minimum").and_then(Value::as_i64).unwrap_or(1);
                format!("{key} = {}", least.max(1))
            }
            Some(&"number") => format!("{key} = 1.5"),
            Some(&"boolean") => format!("{key} = true"),
            Some(&"array") => {
                let objects = schema
                    .get("items")
                    .is_some_and(|items| types(resolve(self.root, items)).contains(&"object"));
                if objects { format!("{key} = [{{ … }}]") } else { format!("{key} = [\"…\"]") }
            }
            Some(&"object") if schema.get("properties").is_none() => {
                format!("{key} = {{ name = \"value\" }}")
            }
            Some(&"object") => format!("{key} = {}", self.example_table(schema)),
            _ => format!("{key} = \"…\""),
        }
    }

    /// Returns an example of a table with its required keys.
    fn example_table(&self, schema: &Value) -> String {
        let required =
            schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let required = required.iter().filter_map(Value::as_str);
        let keys: Vec<String> = required.map(|key| self.example(key, &schema["properties"][key])).collect();
        if keys.is_empty() { "{ … }".to_owned() } else { format!("{{ {} }}", keys.join(", ")) }
    }

    /// Returns the tables that have this key, those of the same section first.
    fn elsewhere(&self, key: &str, here: &FieldPath) -> Vec<String> {
        let mut places = Vec::new();
        self.tables_with(key, self.root, &mut Vec::new(), &mut places);
        let top = match here.segments().first() {
            Some(Segment::Key(top)) => top.as_str(),
            _ => "",
        };
        let same = |place: &String| place.starts_with(&format!("[{top}.")) || *place == format!("[{top}]");
        if places.iter().any(same) {
            places.retain(same);
        }
        places.truncate(3);
        places
    }

    fn tables_with(&self, key: &str, schema: &Value, path: &mut Vec<String>, places: &mut Vec<String>) {
        let schema = resolve(self.root, schema);
        for alternative in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
            self.tables_with(key, alternative, path, places);
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            if properties.contains_key(key) && !path.is_empty() {
                places.push(format!("[{}]", path.join(".")));
            }
            for (name, schema) in properties {
                path.push(name.clone());
                self.tables_with(key, schema, path, places);
                path.pop();
            }
        }
        if let Some(schema @ Value::Object(_)) = schema.get("additionalProperties") {
            path.push("NAME".to_owned());
            self.tables_with(key, schema, path, places);
            path.pop();
        }
    }

    fn push(&mut self, diagnostic: Diagnostic, path: &FieldPath) {
        self.mistakes.push(Mistake { diagnostic: Some(diagnostic), path: path.clone(), meant: None });
    }
}

/// Returns the key of a table that a wrong key means: a typo, or a key of another tool.
fn means<'p>(word: &str, properties: &'p Map<String, Value>) -> Option<&'p str> {
    let near = nearest(word, properties.keys().map(String::as_str));
    near.or_else(|| {
        let ours = OTHER_WORDS.iter().filter(|(external, _)| *external == word).map(|(_, ours)| *ours);
        ours.into_iter().find_map(|ours| properties.get_key_value(ours)).map(|(key, _)| key.as_str())
    })
}

/// The maximum number of keys for a message to list all keys of a table instead of tables of other sections.
const FEW: usize = 12;

/// Returns keys that contain the word or are contained in it: `max_gpus` for `gpus`. `None` if there are too many.
fn sharing_words<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<Vec<&'n str>> {
    let holds = |whole: &str, part: &str| {
        let [whole, part] = [whole, part].map(|text| text.replace('-', "_"));
        whole.starts_with(&format!("{part}_")) || whole.ends_with(&format!("_{part}"))
    };
    let near: Vec<&str> = names.filter(|name| holds(name, word) || holds(word, name)).collect();
    matches!(near.len(), 1..=3).then_some(near)
}

fn digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    &text[..end]
}

/// Parses words for true and false from other languages.
fn yes_or_no(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "y" | "on" | "1" | "true" => Some(true),
        "no" | "n" | "off" | "0" | "false" => Some(false),
        _ => None,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn name_of(name: &str) -> &'static str {
    match name {
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a decimal number",
        "string" => "text",
        "array" => "a list",
        "object" => "a table",
        _ => "nothing",
    }
}

/// Returns a table in a sentence: `` `[node_pool.a]` ``.
fn section(path: &FieldPath) -> String {
    if path.is_root() { "the file".to_owned() } else { format!("`[{path}]`") }
}

fn key_of(path: &FieldPath) -> String {
    match path.segments().last() {
        Some(Segment::Index(_)) => format!("`{path}`"),
        _ => format!("`{}`", bare_key(path)),
    }
}

/// Returns true if a wrong value of `capacity` is a capacity option of node pools: `capacity` of workers takes only `"queued"`.
fn is_bought(words: &[&str], path: &FieldPath) -> bool {
    bare_key(path) == "capacity" && words == ["queued"]
}

fn bare_key(path: &FieldPath) -> String {
    let last = path.segments().iter().rev().find_map(|segment| match segment {
        Segment::Key(key) => Some(key.as_str()),
        Segment::Index(_) => None,
    });
    last.unwrap_or_default().to_owned()
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    let rest = chars.as_str();
    // Names such as GPU stay as they are.
    if rest.starts_with(|c: char| c.is_uppercase()) {
        return text.to_owned();
    }
    format!("{}{rest}", first.to_lowercase())
}
