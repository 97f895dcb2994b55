//! Fields of the GKE API without a key of their own: the rules and requests of `schemas/gke-fields.tsv`. They serve
//! `[cluster.api]` and `[node_pool.NAME.api]`, and rows of [`super::field`] that name no call.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::compare::{call, compare, put};
use crate::comparison::{Comparison, is_zero};
use crate::kind::{FieldComparison, Rule, Update};
use model::address::{FieldPath, Segment};
use model::resource::{Effect, Method, Step};
use model::schema::{GkeCall, GkeChange, GkeField, Message, gke_field, gke_fields};

static RULES: LazyLock<BTreeMap<(Message, &'static str), Rule>> = LazyLock::new(|| {
    let mut rules = BTreeMap::new();
    for field in gke_fields() {
        rules.entry((field.message, field.place())).or_insert_with(|| of(field));
    }
    rules
});

fn of(field: &'static GkeField) -> Rule {
    let (effect, note) = match field.change {
        GkeChange::InPlace => (Effect::InPlace, None),
        GkeChange::RollsNodes => (Effect::Rolling, Some("GKE recreates the nodes")),
        GkeChange::Replaces => (Effect::Replace, Some("GKE does not change it on a pool")),
        GkeChange::OnlyAtCreation => (Effect::Replace, Some("GKE takes it only at creation")),
        GkeChange::Unknown if field.call.is_none() => (Effect::Replace, Some("no request of GKE changes it")),
        GkeChange::Unknown => (Effect::Unknown, Some("what changing it does is not documented")),
        GkeChange::Output => (Effect::Ignored, Some("GKE alone sets it")),
    };
    Rule {
        path: field.place(),
        comparison: if field.is_set() { FieldComparison::Set } else { FieldComparison::Exact },
        effect,
        update: field.call.map_or(Update::Never, Update::FromSchema),
        note: if field.note.is_empty() { note } else { Some(field.note) },
    }
}

/// Returns true if GKE has a request that changes a field.
pub fn is_changed_by_request(message: Message, field: &FieldPath) -> bool {
    let rules = RULES.iter().filter(|((of, _), rule)| *of == message && rule.path().contains(field));
    rules.into_iter().any(|(_, rule)| rule.update != Update::Never)
}

/// Returns the rules of a section's rows, and rules for all other fields in the bodies.
pub fn rules(message: Message, rows: &[&'static Rule], bodies: &[&Value]) -> Vec<&'static Rule> {
    let mut all: BTreeMap<&str, &'static Rule> = BTreeMap::new();
    let covered: Vec<FieldPath> = rows.iter().map(|rule| rule.path()).collect();
    for body in bodies {
        collect_rules(message, body, &FieldPath::root(), &covered, &mut all);
    }
    rows.iter().copied().chain(all.into_values()).collect()
}

/// Collects the rules of the fields in `body`, except of those below a path in `covered`, which have a row of their own. `path` is
/// that of `body`.
fn collect_rules(
    message: Message,
    body: &Value,
    path: &FieldPath,
    covered: &[FieldPath],
    found: &mut BTreeMap<&'static str, &'static Rule>,
) {
    if covered.iter().any(|rule| rule.contains(path)) {
        return;
    }
    if let Some(rule) = gke_field(message, &path.to_string())
        .and_then(|field| RULES.get_key_value(&(message, field.place())))
        .map(|(_, rule)| rule)
    {
        found.insert(rule.path, rule);
        return;
    }
    for (key, value) in body.as_object().into_iter().flatten() {
        collect_rules(message, value, &path.key(key), covered, found);
    }
}

/// Compares the desired with the live resource, under the rows of a section and the table of API fields. `last` has the values
/// last set, if the record has them.
pub fn compared(
    message: Message,
    rows: &[&'static Rule],
    desired: &Value,
    live: &Value,
    last: Option<&Value>,
) -> Comparison {
    let bodies = [Some(desired), last];
    let bodies: Vec<&Value> = bodies.into_iter().flatten().collect();
    let live = &with_omitted_names(message, desired, live);
    let mut compared = compare(&rules(message, rows, &bodies), desired, live, last);
    // A field that was removed from the file needs no change of its own if a desired field excludes it.
    compared.changes.retain(|change| change.after.is_some() || !is_excluded(&change.path, desired));
    compared
}

/// Returns a live resource with the enum names that GKE leaves out of responses, for fields that are desired: `LEGACY_DATAPATH`
/// if `datapathProvider` is missing, and `UNSPECIFIED` for the `releaseChannel: {}` of a cluster without a channel.
fn with_omitted_names(message: Message, desired: &Value, live: &Value) -> Value {
    let mut answered = live.clone();
    let Some(table) = desired.as_object() else { return answered };
    for place in leaves(message, table) {
        let Some(want) = place.find(desired).and_then(Value::as_str) else { continue };
        let Some(field) = gke_field(message, &place.to_string()).filter(|field| field.is_name()) else {
            continue;
        };
        let unspecified = want.ends_with("UNSPECIFIED").then_some(want);
        let Some(name) = field.absent().or(unspecified) else { continue };
        // An answer that is no message on the way is none of GKE's, and differs as it is.
        let mut above = (0..place.segments().len()).map(|end| place.segments()[..end].iter().cloned());
        let is_message =
            |path: FieldPath| path.find(&answered).is_none_or(|it| it.is_object() || it.is_null());
        if place.find(live).is_none_or(is_zero)
            && live.is_object()
            && above.all(|path| is_message(path.collect()))
        {
            put(&mut answered, &place, name.into());
        }
    }
    answered
}

/// Returns true if the desired state sets a field that cannot be set together with this one.
fn is_excluded(path: &FieldPath, desired: &Value) -> bool {
    let is_one = |segment: &Segment| matches!(segment, Segment::Key(key) if ONE_OF.contains(&key.as_str()));
    let Some(at) = path.segments().iter().position(is_one) else { return false };
    let above: FieldPath = path.segments()[..at].iter().cloned().collect();
    let beside = above.find(desired).and_then(Value::as_object);
    let other = |key: &&String| ONE_OF.contains(&key.as_str()) && !above.key(key).contains(path);
    beside.is_some_and(|beside| beside.keys().any(|key| other(&key)))
}

/// Returns the paths of the fields that a section sets under `api`. It descends into tables, down to fields compared as a whole.
pub fn leaves(message: Message, api: &Map<String, Value>) -> Vec<FieldPath> {
    let mut found = Vec::new();
    for (key, value) in api {
        below(message, value, &FieldPath::root().key(key), &mut found);
    }
    found
}

/// Returns the leaf paths below a path.
pub fn leaves_at(message: Message, path: &FieldPath, value: &Value) -> Vec<FieldPath> {
    let mut found = Vec::new();
    below(message, value, path, &mut found);
    found
}

fn below(message: Message, value: &Value, path: &FieldPath, found: &mut Vec<FieldPath>) {
    let inner = value.as_object().filter(|_| gke_field(message, &path.to_string()).is_none());
    match inner {
        Some(table) if !table.is_empty() => {
            table.iter().for_each(|(key, value)| below(message, value, &path.key(key), found));
        }
        Some(_) | None => found.push(path.clone()),
    }
}

/// Merges the table `api` of a section into its body. Returns the provenance of the values.
pub fn merge_into_body(
    body: &mut Value,
    message: Message,
    api: &Map<String, Value>,
    section: &FieldPath,
) -> Vec<(FieldPath, FieldPath)> {
    for (key, value) in api {
        merge(&mut body[key.as_str()], value);
    }
    let section = section.key("api");
    let place = |leaf: &FieldPath| section.segments().iter().chain(leaf.segments()).cloned().collect();
    leaves(message, api).into_iter().map(|leaf| (leaf.clone(), place(&leaf))).collect()
}

/// Returns the fields of a live resource that a user chose, as a section's `api` table. Fields of `covered`, output-only fields
/// and values that GKE fills in are left out.
pub fn import(message: Message, covered: &[FieldPath], live: &Value) -> Map<String, Value> {
    let mut found = Value::Object(Map::new());
    chosen(message, covered, live, &FieldPath::root(), &mut found);
    match found {
        Value::Object(found) => found,
        _ => Map::new(),
    }
}

/// Returns a live resource reduced to one path.
pub fn only_path(path: &FieldPath, live: &Value) -> Value {
    let mut part = Value::Object(Map::new());
    if let Some(value) = path.find(live) {
        put(&mut part, path, value.clone());
    }
    part
}

fn chosen(message: Message, covered: &[FieldPath], live: &Value, path: &FieldPath, found: &mut Value) {
    if is_zero(live) || covered.iter().any(|row| row.contains(path)) {
        return;
    }
    match gke_field(message, &path.to_string()) {
        Some(field) if field.change == GkeChange::Output || filled_in(field, live) => {}
        Some(_) => put(found, path, live.clone()),
        None => {
            for (key, value) in live.as_object().into_iter().flatten() {
                chosen(message, covered, value, &path.key(key), found);
            }
        }
    }
}

/// Returns true if GKE filled in a value. In the table, `yes: true` gives the value; `yes: the channel's default` allows any. The
/// first name of an enumeration means that nothing was chosen; some versions write it out (recorded: `HPA_PROFILE_UNSPECIFIED` of
/// 1.33).
fn filled_in(field: &GkeField, live: &Value) -> bool {
    if field.is_name() && live.as_str().is_some_and(|name| name.ends_with("_UNSPECIFIED")) {
        return true;
    }
    let Some(default) = field.default.strip_prefix("yes: ") else { return false };
    let mut words = default.split([' ', ',']);
    let (first, rest) = (words.next().unwrap_or_default(), words.next());
    let literal = rest.is_none() || rest.is_some_and(|word| matches!(word, "from" | "when" | "(36"));
    let plain = first.parse::<i64>().is_ok()
        || matches!(first, "true" | "false")
        || first.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    match live {
        _ if !literal || !plain => true,
        Value::String(text) => text == first,
        other => first.parse::<Value>().is_ok_and(|default| *other == default),
    }
}

/// Merges a value into another: tables are merged, everything else is replaced.
pub fn merge(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                merge(below.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (below, above) => above.clone_into(below),
    }
}

/// Returns the requests that change the fields of `touched` rules, one for each field of an update: the API takes one field at a
/// time for a cluster, and all known clients send those of pools the same way.
///
/// Updates come before methods: the addon of network policies is switched on before the policies are.
pub fn requests(message: Message, touched: &[&Rule], body: &Value, live: &Value, path: &str) -> Vec<Step> {
    let mut calls: BTreeMap<(bool, &str), GkeCall> = BTreeMap::new();
    for rule in touched {
        if let Update::FromSchema(call) = rule.update {
            // Without a place of its own a call takes the field.
            let root = if call.root.is_empty() { rule.path } else { call.root };
            calls.insert((call.name.starts_with(':'), call.name), GkeCall { root, ..call });
        }
    }
    calls.into_values().map(|of| request(message, of, body, live, path)).collect()
}

/// Fields of which only one can be set: a desired one replaces the others. Source: googleapis `cluster_service.proto`,
/// `MaintenanceWindow.policy`, a oneof.
const ONE_OF: [&str; 3] = ["dailyMaintenanceWindow", "recurringWindow", "recurringMaintenanceWindow"];

/// Removes fields from a live value that a desired field excludes.
fn exclude(live: &mut Value, desired: &Value) {
    let (Some(live), Some(desired)) = (live.as_object_mut(), desired.as_object()) else { return };
    if ONE_OF.iter().any(|name| desired.contains_key(*name)) {
        live.retain(|key, _| !ONE_OF.contains(&key.as_str()));
    }
    for (key, inner) in desired {
        if let Some(live) = live.get_mut(key) {
            exclude(live, inner);
        }
    }
}

/// Removes output-only fields below a path from a live value: how GKE answers a request with them is not known.
fn remove_output_only(message: Message, at: &FieldPath, live: &mut Value) {
    let is_answer = |place: &FieldPath| {
        gke_field(message, &place.to_string()).is_some_and(|field| field.change == GkeChange::Output)
    };
    let Some(fields) = live.as_object_mut() else { return };
    fields.retain(|key, _| !is_answer(&at.key(key)));
    for (key, inner) in fields {
        remove_output_only(message, &at.key(key), inner);
    }
}

/// Returns the part of a body that this call changes, without fields that another call or none changes.
fn part_of(message: Message, of: GkeCall, at: &FieldPath, body: &Value) -> Value {
    let mut part = Value::Null;
    for rule in rules(message, &[], &[&only_path(at, body)]) {
        let same = matches!(rule.update, Update::FromSchema(call) if call.name == of.name);
        let path = rule.path();
        if let (true, Some(value)) = (same, path.find(body)) {
            let below = path.segments()[at.segments().len()..].iter().cloned().collect();
            put(&mut part, &below, value.clone());
        }
    }
    part
}

fn request(message: Message, of: GkeCall, body: &Value, live: &Value, path: &str) -> Step {
    let at: FieldPath = of.root.parse().unwrap_or_default();
    let desired = match of.whole {
        true => at.find(body).cloned().unwrap_or_default(),
        false => part_of(message, of, &at, body),
    };
    let mut value = if of.whole { at.find(live).cloned().unwrap_or(Value::Null) } else { Value::Null };
    remove_output_only(message, &at, &mut value);
    exclude(&mut value, &desired);
    merge(&mut value, &desired);
    let nested = |fields: &str, value| {
        fields.rsplit('.').fold(value, |value, field| {
            let mut table = Map::new();
            table.insert(field.to_owned(), value);
            Value::Object(table)
        })
    };
    match of.name.strip_prefix(':').and_then(|rest| rest.split_once('.')) {
        Some((method, fields)) => call(Method::Post, format!("{path}:{method}"), Some(nested(fields, value))),
        None => call(Method::Put, path.to_owned(), Some(nested(of.name, value))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_come_for_what_is_said() {
        let row: &'static Rule = &Rule {
            path: "config.labels",
            comparison: FieldComparison::OwnEntries,
            effect: Effect::InPlace,
            update: Update::Never,
            note: None,
        };
        let body = json!({ "config": {
            "labels": { "a": "b" },
            "kubeletConfig": { "cpuManagerPolicy": "static" },
            "metadata": { "k": "v" },
            "reservationAffinity": { "values": ["r"] },
            "odd": { "x": 1 },
        } });
        let found = rules(Message::NodePool, &[row], &[&body]);
        let paths: Vec<&str> = found.iter().map(|rule| rule.path).collect();
        assert_eq!(
            paths,
            [
                "config.labels",
                "config.kubeletConfig.cpuManagerPolicy",
                "config.metadata",
                "config.reservationAffinity.values"
            ]
        );
        let Value::Object(api) = body else { unreachable!() };
        let places: Vec<String> = leaves(Message::NodePool, &api).iter().map(ToString::to_string).collect();
        assert_eq!(
            places,
            [
                "config.kubeletConfig.cpuManagerPolicy",
                "config.labels",
                "config.metadata",
                "config.odd.x",
                "config.reservationAffinity.values"
            ]
        );
    }

    #[test]
    fn a_request_takes_a_part_or_the_whole() {
        let rule = |message, path| RULES.get(&(message, path)).unwrap();
        let sent = |message, rules: &[&Rule], body: Value, live: Value| -> Vec<String> {
            let steps = requests(message, rules, &body, &live, "/v1/x");
            let Ok(steps) = serde_json::to_value(steps) else { return Vec::new() };
            let one = |step: &Value| {
                format!("{} {} {}", step["call"]["method"], step["call"]["path"], step["call"]["body"])
            };
            steps.as_array().into_iter().flatten().map(one).collect()
        };
        let found = sent(
            Message::Cluster,
            &[rule(Message::Cluster, "addonsConfig.gcsFuseCsiDriverConfig.enabled")],
            json!({ "addonsConfig": { "gcsFuseCsiDriverConfig": { "enabled": true } } }),
            json!({ "addonsConfig": { "dnsCacheConfig": { "enabled": true } } }),
        );
        let addon = r#"{"update":{"desiredAddonsConfig":{"gcsFuseCsiDriverConfig":{"enabled":true}}}}"#;
        assert_eq!(found, [format!(r#""PUT" "/v1/x" {addon}"#)]);
        let found = sent(
            Message::NodePool,
            &[
                rule(Message::NodePool, "config.kubeletConfig.cpuManagerPolicy"),
                rule(Message::NodePool, "config.kubeletConfig.podPidsLimit"),
            ],
            json!({ "config": { "kubeletConfig": { "cpuManagerPolicy": "static", "podPidsLimit": "4096" } } }),
            json!({ "config": { "kubeletConfig": { "maxPodsPerNode": 3, "cpuManagerPolicy": "none" } } }),
        );
        let kubelet =
            r#"{"kubeletConfig":{"cpuManagerPolicy":"static","maxPodsPerNode":3,"podPidsLimit":"4096"}}"#;
        assert_eq!(found, [format!(r#""PUT" "/v1/x" {kubelet}"#)]);
        let found = sent(
            Message::Cluster,
            &[rule(Message::Cluster, "networkConfig.enableIntraNodeVisibility")],
            json!({ "networkConfig": { "enableIntraNodeVisibility": true } }),
            json!({}),
        );
        let visible = r#"{"update":{"desiredIntraNodeVisibilityConfig":{"enabled":true}}}"#;
        assert_eq!(found, [format!(r#""PUT" "/v1/x" {visible}"#)]);
        // If the API replaces the whole message, the live fields are sent too, without those that only GKE sets.
        let found = sent(
            Message::Cluster,
            &[rule(Message::Cluster, "databaseEncryption.keyName")],
            json!({ "databaseEncryption": { "keyName": "k", "state": "ENCRYPTED" } }),
            json!({ "databaseEncryption": { "currentState": "CURRENT_STATE_DECRYPTED", "state": "DECRYPTED" } }),
        );
        let encryption = r#"{"update":{"desiredDatabaseEncryption":{"keyName":"k","state":"ENCRYPTED"}}}"#;
        assert_eq!(found, [format!(r#""PUT" "/v1/x" {encryption}"#)]);
    }

    #[test]
    fn nobody_chose_the_first_name_of_an_enumeration() {
        let live = json!({ "podAutoscaling": { "hpaProfile": "HPA_PROFILE_UNSPECIFIED" } });
        assert_eq!(import(Message::Cluster, &[], &live), Map::new());
        let live = json!({ "podAutoscaling": { "hpaProfile": "NONE" } });
        assert_eq!(Value::Object(import(Message::Cluster, &[], &live)), live);
    }
}
