//! Answers without what no two servers share: uids, versions, times, addresses, drawn names.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Values of one case so far: equal values get equal placeholders.
#[derive(Default)]
pub struct Normalizer {
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
}

impl Normalizer {
    /// An answer or an event.
    pub fn answer(&mut self, value: &Value) -> Value {
        let mut value = value.clone();
        self.find_names(&value);
        if is_list(&value)
            && let Some(version) = version_of(&mut value)
        {
            *version = json!("RV");
        }
        self.walk(&mut value);
        value
    }

    fn find_names(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let own = |name: &str| fields.get(name).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) = (own("generateName"), own("name"))
                    && name.len() > prefix.len()
                    && name.starts_with(prefix)
                {
                    let number = self.names.len() + 1;
                    self.names.entry(name.to_owned()).or_insert_with(|| format!("{prefix}NAME-{number}"));
                }
                fields.values().for_each(|value| self.find_names(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.find_names(value)),
            _ => {}
        }
    }

    fn walk(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if fields.get("type").is_some_and(|kind| kind == "BOOKMARK")
                    && let Some(version) = fields.get_mut("object").and_then(version_of)
                {
                    *version = json!("RV");
                }
                if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                    let key = |entry: &Value| {
                        ["manager", "operation", "subresource", "apiVersion"]
                            .map(|name| entry[name].to_string())
                    };
                    entries.sort_by_key(key);
                }
                for name in ["resources", "groups"] {
                    // Definitions come into discovery as they happen to be established.
                    if let Some(Value::Array(list)) = fields.get_mut(name) {
                        list.sort_by_key(|one| one["name"].to_string());
                    }
                }
                if let Some(Value::Array(causes)) = fields.get_mut("causes") {
                    // The real server finds the owners of conflicting fields in any order.
                    causes.sort_by_key(ToString::to_string);
                }
                for (name, value) in fields.iter_mut() {
                    self.field(name, value);
                }
                let renamed: Vec<(String, String)> = fields
                    .keys()
                    .map(|name| (name.clone(), self.text(name)))
                    .filter(|(old, new)| old != new)
                    .collect();
                for (old, new) in renamed {
                    let value = fields.remove(&old).unwrap_or_default();
                    fields.insert(new, value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|value| self.walk(value)),
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    fn field(&mut self, name: &str, value: &mut Value) {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match (name, &*value) {
            ("resourceVersion", Value::String(text)) if number(text) => {
                let next = self.versions.len() + 1;
                *value = json!(self.versions.entry(text.clone()).or_insert_with(|| format!("RV-{next}")));
            }
            ("cells", Value::Array(cells)) => {
                let age = |text: &str| text.strip_suffix('s').is_some_and(number);
                let aged = |cell: &Value| match cell.as_str() {
                    Some(text) if age(text) => json!("AGE"),
                    _ => cell.clone(),
                };
                *value = cells.iter().map(aged).collect();
            }
            ("continue", Value::String(text)) if !text.is_empty() => *value = json!("CONTINUE"),
            ("clusterIP", Value::String(text)) if is_address(text) => *value = json!("ADDRESS"),
            ("clusterIPs", Value::Array(list))
                if list.iter().all(|one| one.as_str().is_some_and(is_address)) =>
            {
                *value = json!(["ADDRESS"]);
            }
            ("serverAddress" | "gitVersion" | "goVersion", Value::String(_)) => *value = json!("OURS"),
            ("nodePort" | "healthCheckNodePort", Value::Number(_)) => *value = json!("PORT"),
            _ => self.walk(value),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, stand_in) in &self.names {
            text = text.replace(name, stand_in);
        }
        while let Some((at, uid)) = find(&text, UID) {
            let next = self.uids.len() + 1;
            let stand_in = self.uids.entry(uid).or_insert_with(|| format!("UID-{next}"));
            text.replace_range(at..at + UID.len(), stand_in);
        }
        while let Some((at, _)) = find(&text, TIME) {
            let rest = &text[at + TIME.len()..];
            let more =
                rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | 'Z')).unwrap_or(rest.len());
            text.replace_range(at..at + TIME.len() + more, "TIME");
        }
        for (before, after) in [
            ("\\\"resourceVersion\\\":\\\"", ""),
            ("ResourceVersion in record (", ""),
            ("current: ", ""),
            ("too old resource version: ", ""),
            ("kube-api-access-", "NAME"),
        ] {
            if let Some(at) = text.find(before) {
                let from = at + before.len();
                let rest = &text[from..];
                let odd =
                    |c: char| !(c.is_ascii_alphanumeric() || after.is_empty() && matches!(c, '(' | ' '));
                let end = rest.find(odd).unwrap_or(rest.len());
                text.replace_range(from..from + end, if after.is_empty() { "RV" } else { after });
            }
        }
        text
    }
}

/// The version of what is a state of the whole store, not of one object.
fn version_of(value: &mut Value) -> Option<&mut Value> {
    value.pointer_mut("/metadata/resourceVersion")
}

/// An empty list has no items in protobuf, and no list has a name.
fn is_list(value: &Value) -> bool {
    let kind = value["kind"].as_str().unwrap_or_default();
    kind == "Table" || (kind.ends_with("List") && value.pointer("/metadata/name").is_none())
}

/// `x` is a hexadecimal digit, `0` a decimal one.
const UID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const TIME: &str = "0000-00-00T00:00:00";

fn find(text: &str, shape: &str) -> Option<(usize, String)> {
    let fits = |window: &[u8]| {
        window.iter().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
            b'x' => byte.is_ascii_hexdigit(),
            b'0' => byte.is_ascii_digit(),
            wanted => *byte == wanted,
        })
    };
    let at = text.as_bytes().windows(shape.len()).position(fits)?;
    Some((at, text[at..at + shape.len()].to_owned()))
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

/// Keeps of every list in an answer the items of these names.
pub fn keep(value: &mut Value, names: &[String]) {
    match value {
        Value::Array(items) => {
            let name = |item: &Value| {
                let name = item["name"].as_str().or_else(|| item["metadata"]["name"].as_str());
                name.or_else(|| item["resource"].as_str()).map(str::to_owned)
            };
            items.retain(|item| name(item).is_none_or(|name| names.contains(&name)));
            items.iter_mut().for_each(|item| keep(item, names));
        }
        Value::Object(fields) => fields.values_mut().for_each(|value| keep(value, names)),
        _ => {}
    }
}

/// Where two values differ, at the highest place that only one of them has: `(pointer, ours, theirs)`.
pub fn differences(at: &str, ours: &Value, theirs: &Value, found: &mut Vec<(String, String, String)>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let place = format!("{at}/{name}");
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => differences(&place, a, b, found),
                    (a, b) => found.push((place, shown(a), shown(b))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}/{index}"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((at.to_owned(), shown(Some(a)), shown(Some(b)))),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}
