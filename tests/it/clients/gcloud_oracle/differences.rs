//! Where two lists of requests differ, and what is known of it. *They* are gcloud, or Terraform's provider.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Request;
use crate::control_plane::contract::fits;

/// `differences.toml`, `terraform-differences.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownDifferences {
    /// How many places differ in all. Lower it with every fix.
    pub most: usize,
    class: Vec<Class>,
}

/// Differences with one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    pub name: String,
    /// Why they may differ.
    reason: String,
    /// `INTENT SIDE METHOD PATH FIELD`; `*` stands for any text.
    #[serde(default)]
    at: Vec<String>,
    instead: Option<Replacement>,
}

/// Another request with an equal meaning, whose value is compared all the same.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replacement {
    /// `METHOD PATH FIELD`.
    gcloud: String,
    ours: String,
    /// Other fields of that request which belong to it.
    beside: Vec<String>,
}

impl KnownDifferences {
    pub fn read(text: &str) -> Self {
        let known: Self = toml::from_str(text).unwrap();
        for class in &known.class {
            let is_empty = class.at.is_empty() && class.instead.is_none();
            assert!(!class.reason.is_empty() && !is_empty, "{} has no reason or no place", class.name);
        }
        known
    }

    pub fn class(&self, place: &str) -> Option<&Class> {
        self.class.iter().find(|class| class.at.iter().any(|at| fits(at, place)))
    }

    /// The names of classes that are about other requests.
    pub fn others(&self) -> BTreeSet<&str> {
        self.class.iter().filter(|class| class.instead.is_some()).map(|class| class.name.as_str()).collect()
    }

    /// gcloud's requests as we would send them, and the classes that this took.
    pub fn translated(&self, requests: &[Request]) -> (Vec<Request>, Vec<&str>) {
        let (mut requests, mut classes) = (requests.to_vec(), Vec::new());
        for class in &self.class {
            let Some(instead) = &class.instead else { continue };
            let found: Vec<Request> =
                requests.iter_mut().filter_map(|request| instead.take_field(request)).collect();
            if !found.is_empty() {
                classes.push(class.name.as_str());
                requests.retain(|request| request.body["update"] != json!({}));
                requests.extend(found);
            }
        }
        (requests, classes)
    }

    /// Every pattern with its class.
    pub fn patterns(&self) -> Vec<(&str, &str)> {
        self.class
            .iter()
            .flat_map(|class| class.at.iter().map(|at| (class.name.as_str(), at.as_str())))
            .collect()
    }
}

impl Replacement {
    /// Takes the field out of a request of gcloud's; our request for it.
    fn take_field(&self, request: &mut Request) -> Option<Request> {
        let (method, path, field) = words(&self.gcloud);
        if request.method != method || request.path != path {
            return None;
        }
        let value = take(&mut request.body, field)?;
        self.beside.iter().for_each(|field| drop(take(&mut request.body, field)));
        let (method, path, field) = words(&self.ours);
        Some(Request { method: method.to_owned(), path: path.to_owned(), body: json!({ field: value }) })
    }
}

fn words(place: &str) -> (&str, &str, &str) {
    let words: Vec<&str> = place.split(' ').collect();
    let [method, path, field] = words[..] else { panic!("{place}") };
    (method, path, field)
}

fn take(body: &mut Value, field: &str) -> Option<Value> {
    let (message, field) = field.split_once('.').unwrap();
    body.get_mut(message)?.as_object_mut()?.remove(field)
}

/// A field that one side alone sends, or both with other values.
#[derive(Debug)]
pub struct Difference {
    /// `INTENT SIDE METHOD PATH FIELD`. The side is `ours` or their name for what it alone sends, `both` for two values.
    pub place: String,
    ours: Option<String>,
    theirs: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".to_owned());
        write!(f, "{}\n  theirs {}\n  ours   {}", self.place, said(&self.theirs), said(&self.ours))
    }
}

/// Requests to one place: how many, and the fields of all.
#[derive(Default)]
struct PlaceRequests {
    requests: usize,
    fields: BTreeMap<String, String>,
}

/// Where what we send for an intent is not what they send, whose name is `who`.
pub fn compare(intent: &str, ours: &[Request], theirs: &[Request], who: &str) -> Vec<Difference> {
    let (ours, theirs) = (by_place(ours), by_place(theirs));
    let nothing = PlaceRequests::default();
    let targets: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut found = Vec::new();
    for target in targets {
        let (ours, theirs) = (ours.get(target).unwrap_or(&nothing), theirs.get(target).unwrap_or(&nothing));
        let mut add = |field: &str, ours: Option<String>, theirs: Option<String>| {
            let side = match (&ours, &theirs) {
                (None, _) => who,
                (_, None) => "ours",
                (Some(_), Some(_)) => "both",
            };
            found.push(Difference { place: format!("{intent} {side} {target} {field}"), ours, theirs });
        };
        if ours.requests != theirs.requests {
            let count = |sent: &PlaceRequests| (sent.requests > 0).then(|| sent.requests.to_string());
            add("(requests)", count(ours), count(theirs));
        }
        let fields: BTreeSet<&String> = ours.fields.keys().chain(theirs.fields.keys()).collect();
        for field in fields {
            let (ours, theirs) = (ours.fields.get(field), theirs.fields.get(field));
            if ours != theirs {
                add(field, ours.cloned(), theirs.cloned());
            }
        }
    }
    found
}

fn by_place(requests: &[Request]) -> BTreeMap<String, PlaceRequests> {
    let mut all: BTreeMap<String, PlaceRequests> = BTreeMap::new();
    for Request { method, path, body } in requests {
        let sent = all.entry(format!("{method} {path}")).or_default();
        sent.requests += 1;
        let mut body = body.clone();
        if let Some(fields) = body.as_object_mut() {
            // gcloud says again in the body what the path says.
            fields.retain(|key, value| !matches!(key.as_str(), "name" | "parent") || !in_path(value, path));
        }
        leaves(&body, String::new(), &mut sent.fields);
    }
    all
}

fn in_path(value: &Value, path: &str) -> bool {
    let below = value.as_str().and_then(|name| name.split_once("/locations/"));
    below.is_some_and(|(_, rest)| rest.split_once('/').is_none_or(|(_, name)| path.starts_with(name)))
}

/// Returns the values of a body by their places.
pub fn fields(body: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    leaves(body, String::new(), &mut found);
    found
}

/// Values by their places, without what says nothing: proto3 does not tell a zero value from an absent one.
fn leaves(value: &Value, place: String, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            let before = found.len();
            for (key, value) in fields {
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                leaves(value, place, found);
            }
            // A message is there or not.
            if found.len() == before && !place.is_empty() {
                found.insert(place, "{}".to_owned());
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                leaves(item, format!("{place}[{index}]"), found);
            }
        }
        Value::Array(items) => {
            let mut items: Vec<String> = items.iter().map(scalar).collect();
            items.sort();
            if !items.is_empty() {
                found.insert(place, items.join(", "));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let text = scalar(value);
            if !matches!(text.as_str(), "" | "0" | "false" | "null") && !text.ends_with("UNSPECIFIED") {
                found.insert(place, text);
            }
        }
    }
}

/// Numbers are text on the wire when they have 64 bits; times have two ways to say UTC.
fn scalar(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let text = text.strip_suffix("+00:00").map_or(text.clone(), |time| format!("{time}Z"));
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
