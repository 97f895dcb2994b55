//! Fields that both a section and the GKE API have. A row has the field's name in both, how it is compared, the effect and the
//! call of a change, the value that the stack sends, and how a live value is imported.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::api;
use super::compare::{merged_entries, merged_taints, put};
use crate::json::number;
use crate::kind::{FieldComparison, Rule, Update};
use crate::scope::Scope;
use model::address::FieldPath;
use model::resource::{Effect, FieldChange, LABEL_ID, LABEL_STACK};
use model::schema::Message;

pub struct Field<S: 'static> {
    /// The key of the section.
    pub key: &'static str,
    /// The rule of the API field: how it is compared and changed.
    pub rule: RuleSource,
    /// The value that the section sets; `None` when it sets none.
    pub from_section: fn(&S) -> Option<Value>,
    /// The value that is sent for a resource of the stack, if it differs from what the section sets.
    pub to_api: fn(&S, &Scope) -> Option<Value>,
    /// Imports a live value into the section unless it is the default.
    pub import: fn(&mut S, &Value),
}

impl<S> Field<S> {
    /// The default row: it sends and imports nothing.
    pub const NONE: Self = Self {
        key: "",
        rule: RuleSource::FromSchema(""),
        from_section: |_| None,
        to_api: |_, _| None,
        import: |_, _| {},
    };
}

impl<S> Field<S> {
    /// Returns the path in the API.
    pub fn path(&self) -> FieldPath {
        self.rule.path()
    }
}

impl RuleSource {
    /// Returns the path in the API.
    pub fn path(&self) -> FieldPath {
        match self {
            Self::Explicit(rule) => rule.path(),
            Self::FromSchema(path) => path.parse().unwrap_or_default(),
        }
    }
}

/// The rule by which a field is compared and changed.
pub enum RuleSource {
    Explicit(Rule),
    /// The rule that `schemas/gke-fields.tsv` has for this path.
    FromSchema(&'static str),
}

/// Creates the rule of a row.
pub const fn rule(
    path: &'static str,
    comparison: FieldComparison,
    effect: Effect,
    update: Update,
    note: Option<&'static str>,
) -> RuleSource {
    RuleSource::Explicit(Rule { path, comparison, effect, update, note })
}

/// Builds the row of a key with a switch, a number, a string, or an enumeration of [`super::enums`]. The effect of a change is
/// that of `schemas/gke-fields.tsv`.
macro_rules! schema_row {
    ($key:ident: switch, $path:literal) => {
        schema_row!($key, $path, |on: &bool| serde_json::Value::Bool(*on), |live: &serde_json::Value| live
            .as_bool())
    };
    ($key:ident: number, $path:literal) => {
        schema_row!($key, $path, |number: &u32| serde_json::Value::from(*number), $crate::gke::field::as_u32)
    };
    // The API's JSON has 64-bit integers as strings.
    ($key:ident: int64, $path:literal) => {
        schema_row!(
            $key,
            $path,
            |number: &u32| serde_json::Value::from(number.to_string()),
            $crate::gke::field::as_u32
        )
    };
    ($key:ident: text, $path:literal) => {
        schema_row!(
            $key,
            $path,
            |text: &String| serde_json::Value::from(text.as_str()),
            |live: &serde_json::Value| { live.as_str().filter(|text| !text.is_empty()).map(str::to_owned) }
        )
    };
    ($key:ident: word $of:ty, $path:literal) => {
        schema_row!($key, $path, |word: &$of| word.api(), <$of>::of)
    };
    ($key:ident, $path:literal, $api:expr, $of:expr) => {
        Field {
            key: stringify!($key),
            from_section: |section| section.$key.as_ref().map($api),
            import: |section, live| section.$key = ($of)(live),
            rule: RuleSource::FromSchema($path),
            ..Field::NONE
        }
    };
}
pub(super) use schema_row;

/// Reads a number that may be a string.
pub fn as_u32(live: &Value) -> Option<u32> {
    number(live).and_then(|number| u32::try_from(number).ok())
}

/// The owner of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedBy {
    /// The stack creates it. Values that plans depend on are set explicitly, so that an offline plan does not depend on a
    /// server's version.
    Stack,
    /// It is managed elsewhere: only values that the section sets are compared.
    Others,
}

/// Returns the number of fields with an explicit rule.
pub const fn count<S>(fields: &[Field<S>]) -> usize {
    let (mut count, mut index) = (0, 0);
    while index < fields.len() {
        if let RuleSource::Explicit(_) = fields[index].rule {
            count += 1;
        }
        index += 1;
    }
    count
}

/// Returns the explicit rules of the fields.
pub const fn rules<S, const N: usize>(fields: &'static [Field<S>]) -> [&'static Rule; N] {
    const NONE: Rule = Rule {
        path: "",
        comparison: FieldComparison::Exact,
        effect: Effect::InPlace,
        update: Update::Never,
        note: None,
    };
    let mut rules = [&NONE; N];
    let (mut count, mut index) = (0, 0);
    while index < fields.len() {
        if let RuleSource::Explicit(rule) = &fields[index].rule {
            rules[count] = rule;
            count += 1;
        }
        index += 1;
    }
    rules
}

/// Returns the body that a section declares, in the API's form.
pub fn body<S>(fields: &[Field<S>], section: &S, scope: &Scope, maker: ManagedBy) -> Value {
    let mut body = json!({});
    for field in fields {
        let value = match maker {
            ManagedBy::Stack => (field.to_api)(section, scope).or_else(|| (field.from_section)(section)),
            ManagedBy::Others => (field.from_section)(section),
        };
        if let Some(value) = value {
            put(&mut body, &field.path(), value);
        }
    }
    body
}

/// Returns the provenance of the values of a body.
pub fn provenance<S>(fields: &[Field<S>], section: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
    fields.iter().map(|field| (field.path(), section.key(field.key))).collect()
}

/// Imports a live resource into the keys of a section. Returns the values that the keys cannot express, as fields of the API.
/// Values that GKE fills in according to `schemas/gke-fields.tsv` are left out.
pub fn import<S>(
    message: Message,
    fields: &[Field<S>],
    section: &mut S,
    live: &Value,
) -> serde_json::Map<String, Value> {
    for field in fields {
        let path = field.path();
        match field.rule {
            RuleSource::Explicit(_) => (field.import)(section, path.find(live).unwrap_or(&Value::Null)),
            RuleSource::FromSchema(_) => {
                let chosen = Value::Object(api::import(message, &[], &api::only_path(&path, live)));
                if let Some(chosen) = path.find(&chosen) {
                    (field.import)(section, chosen);
                }
            }
        }
    }
    let covered: Vec<FieldPath> = fields.iter().flat_map(|field| covers(message, field, section)).collect();
    api::import(message, &covered, live)
}

/// Returns the paths that a row covers: its own path, or for a rule of `schemas/gke-fields.tsv` the paths below it that the
/// section sets.
pub fn covers<S>(message: Message, field: &Field<S>, section: &S) -> Vec<FieldPath> {
    match (&field.rule, (field.from_section)(section)) {
        (RuleSource::Explicit(rule), _) => vec![rule.path()],
        (RuleSource::FromSchema(_), Some(value)) => api::leaves_at(message, &field.path(), &value),
        (RuleSource::FromSchema(_), None) => Vec::new(),
    }
}

/// Returns the value of a field of an update request. The API replaces maps and lists as a whole, so all other live entries are
/// included. The request wraps maps and lists in messages.
pub fn updated(rule: &Rule, body: &Value, live: &Value, changes: &[FieldChange]) -> Value {
    let (at, null) = (rule.path(), Value::Null);
    let (want, have) = (at.find(body).unwrap_or(&null), at.find(live).unwrap_or(&null));
    match rule.comparison {
        FieldComparison::OwnEntries => json!({ "labels": merged_entries(want, have, changes, &at) }),
        FieldComparison::OwnLabels => {
            let mut entries = merged_entries(want, have, changes, &at);
            if let Some(entries) = entries.as_object_mut() {
                entries.retain(|key, _| !key.starts_with("goog-gke"));
            }
            json!({ "labels": entries })
        }
        FieldComparison::OwnTaints => json!({ "taints": merged_taints(want, have, changes, &at) }),
        FieldComparison::OwnItems => {
            // If the key was removed from the file, only our own items are removed.
            let left =
                changes.iter().find(|change| change.path == at).and_then(|change| change.after.clone());
            json!({ "tags": left.unwrap_or_else(|| want.clone()) })
        }
        // An int64, which gcloud writes as text.
        _ if want.is_number() => json!(want.to_string()),
        FieldComparison::MinVersion
        | FieldComparison::CidrOrPrefixLength
        | FieldComparison::Exact
        | FieldComparison::CaseInsensitive
        | FieldComparison::Set
        | FieldComparison::LastSegment
        | FieldComparison::Accelerators
        | FieldComparison::AtCreation => want.clone(),
    }
}

pub fn non_empty(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!(text))
}

pub fn non_empty_list(list: &[String]) -> Option<Value> {
    (!list.is_empty()).then(|| json!(list))
}

/// Returns the strings of a list.
pub fn strings<'v>(list: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    list.into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns a live string unless it is empty or the default.
pub fn unless_default(default: &str, live: &Value) -> Option<String> {
    live.as_str().filter(|text| !text.is_empty() && !text.eq_ignore_ascii_case(default)).map(str::to_owned)
}

/// Returns the entries of a map of strings.
pub fn pairs(live: &Value) -> impl Iterator<Item = (String, String)> {
    let pairs = live.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
}

/// Returns the Google Cloud labels that users set, without those of GKE and of stacks.
pub fn google_labels(live: &Value) -> BTreeMap<String, String> {
    let is_reserved = |key: &str| key == LABEL_STACK || key == LABEL_ID || key.starts_with("goog-");
    pairs(live).filter(|(key, _)| !is_reserved(key)).collect()
}
