//! Fields of sections that the GKE API has: one row says where the section has a field and where the API has it, how it
//! is compared, what changing it does and by which call, what a stack sends of it, and how a live value is said.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::compare::{merged_entries, merged_taints};
use crate::address::{FieldPath, Segment};
use crate::kinds::kind::{How, Rule, Update};
use crate::kinds::scope::Scope;
use crate::resource::{Effect, FieldChange, LABEL_ID, LABEL_STACK};

/// A field of a section.
pub struct Field<S: 'static> {
    /// As the section has it.
    pub key: &'static str,
    /// As the API has it.
    pub rule: Rule,
    /// What the section says; `None` when it says nothing.
    pub said: fn(&S) -> Option<Value>,
    /// What a stack that makes the thing sends, where that is more than what the section says.
    pub sent: fn(&S, &Scope) -> Option<Value>,
    /// Says a live value, unless it is what the section means without it.
    pub import: fn(&mut S, &Value),
}

impl<S> Field<S> {
    /// Never said, never sent.
    pub const NONE: Self = Self {
        key: "",
        rule: Rule { path: "", how: How::Exact, effect: Effect::InPlace, update: Update::Never, note: None },
        said: |_| None,
        sent: |_, _| None,
        import: |_, _| {},
    };
}

/// A rule of a row.
pub const fn rule(
    path: &'static str,
    how: How,
    effect: Effect,
    update: Update,
    note: Option<&'static str>,
) -> Rule {
    Rule { path, how, effect, update, note }
}

/// Whose a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The stack makes it: what plans reason about is said explicitly, so that an offline plan does not depend on a
    /// server's version.
    Stack,
    /// Others own it: what is given is compared, nothing else.
    Others,
}

/// The rules of fields, as a kind has them.
pub const fn rules<S, const N: usize>(fields: &'static [Field<S>]) -> [&'static Rule; N] {
    let mut rules = [&Field::<()>::NONE.rule; N];
    let mut place = 0;
    while place < N {
        rules[place] = &fields[place].rule;
        place += 1;
    }
    rules
}

/// What a section becomes, as the API has it.
pub fn body<S>(fields: &[Field<S>], section: &S, scope: &Scope, maker: Maker) -> Value {
    let mut body = json!({});
    for field in fields {
        let value = match maker {
            Maker::Stack => (field.sent)(section, scope).or_else(|| (field.said)(section)),
            Maker::Others => (field.said)(section),
        };
        if let Some(value) = value {
            put(&mut body, &field.rule.path(), value);
        }
    }
    body
}

/// Sets a value at a place; tables on the way are made.
pub(super) fn put(body: &mut Value, path: &FieldPath, value: Value) {
    let place = path.segments().iter().fold(body, |place, segment| match segment {
        Segment::Key(key) => &mut place[key.as_str()],
        Segment::Index(index) => &mut place[*index],
    });
    *place = value;
}

/// Where the values of a body come from.
pub fn provenance<S>(fields: &[Field<S>], section: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
    fields.iter().map(|field| (field.rule.path(), section.key(field.key))).collect()
}

/// Says what is live.
pub fn import<S>(fields: &[Field<S>], section: &mut S, live: &Value) {
    for field in fields {
        (field.import)(section, field.rule.path().find(live).unwrap_or(&Value::Null));
    }
}

/// Where the API has the fields.
pub fn places<S>(fields: &[Field<S>]) -> Vec<FieldPath> {
    fields.iter().map(|field| field.rule.path()).collect()
}

/// The value of a field of an update request. Maps and lists are replaced whole by the API, so what others put in is sent
/// along; they stand in messages of their own there.
pub fn updated(rule: &Rule, body: &Value, live: &Value, changes: &[FieldChange]) -> Value {
    let (at, null) = (rule.path(), Value::Null);
    let (want, have) = (at.find(body).unwrap_or(&null), at.find(live).unwrap_or(&null));
    match rule.how {
        How::OwnEntries => json!({ "labels": merged_entries(want, have, changes, &at) }),
        How::OwnLabels => {
            let mut entries = merged_entries(want, have, changes, &at);
            if let Some(entries) = entries.as_object_mut() {
                entries.retain(|key, _| !key.starts_with("goog-gke"));
            }
            json!({ "labels": entries })
        }
        How::OwnTaints => json!({ "taints": merged_taints(want, have, changes, &at) }),
        How::OwnItems => {
            // What is no longer said loses only what we put in.
            let left =
                changes.iter().find(|change| change.path == at).and_then(|change| change.after.clone());
            json!({ "tags": left.unwrap_or_else(|| want.clone()) })
        }
        // An int64, which gcloud writes as text.
        _ if want.is_number() => json!(want.to_string()),
        How::Exact | How::Caseless | How::Set | How::LastPart | How::Accelerators | How::AtCreation => {
            want.clone()
        }
    }
}

/// Text that is given.
pub fn given(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!(text))
}

/// A list that is given.
pub fn listed(list: &[String]) -> Option<Value> {
    (!list.is_empty()).then(|| json!(list))
}

/// Texts of JSON strings.
pub fn texts<'v>(list: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    list.into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A live text that is another than the default.
pub fn not(default: &str, live: &Value) -> Option<String> {
    live.as_str().filter(|text| !text.is_empty() && !text.eq_ignore_ascii_case(default)).map(str::to_owned)
}

/// Entries of a map of texts.
pub fn pairs(live: &Value) -> impl Iterator<Item = (String, String)> {
    let pairs = live.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
}

/// Google Cloud labels that people put there: GKE's own and those of stacks are left out.
pub fn google_labels(live: &Value) -> BTreeMap<String, String> {
    let marks = |key: &str| key == LABEL_STACK || key == LABEL_ID || key.starts_with("goog-");
    pairs(live).filter(|(key, _)| !marks(key)).collect()
}
