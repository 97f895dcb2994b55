//! Comparison of a resource of the GKE API, field by field, under a table of rules.
//!
//! The API keeps no owner of a field and fills in missing values. So a field is compared only if the stack sets it, and under its
//! rule. Entries of maps and lists are removed only if the record says that the stack added them. A field without a rule is an
//! error, as the effect of changing it is unknown.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::comparison::{Comparison, is_zero};
use crate::json::text;
use crate::kind::{FieldComparison, Rule, Update};
use model::address::{FieldPath, Segment};
use model::resource::{Api, Call, Effect, FieldChange, JsonText, LABEL_ID, LABEL_STACK, Method, Owner, Step};
use model::secrets::is_secret;

/// Compares the desired with the live resource under rules. `last` is what was last set, if the record has it.
pub fn compare(rules: &[&Rule], desired: &Value, live: &Value, last: Option<&Value>) -> Comparison {
    let mut compared = Comparison::default();
    for rule in rules {
        let path = rule.path();
        let null = Value::Null;
        let live_path = live_path(rule);
        let (want, have) = (path.find(desired).unwrap_or(&null), live_path.find(live).unwrap_or(&null));
        let before = last.and_then(|last| path.find(last)).unwrap_or(&null);
        if want.is_null() && before.is_null() {
            continue;
        }
        compared.fingerprint_input.add(&live_path.to_string(), have);
        match rule.comparison {
            FieldComparison::AtCreation => {}
            FieldComparison::Exact
            | FieldComparison::LastSegment
            | FieldComparison::Set
            | FieldComparison::CidrOrPrefixLength
                if want.is_null() =>
            {
                compared.report_kept_value(rule, path, have, before);
            }
            FieldComparison::MinVersion => {
                compared.field(rule, path, want, have, reaches(text(have), text(want)));
            }
            FieldComparison::CidrOrPrefixLength => {
                let size = text(want).starts_with('/') && text(have).ends_with(text(want));
                compared.field(rule, path, want, have, size || same(want, have));
            }
            FieldComparison::Exact => compared.field(rule, path, want, have, same(want, have)),
            FieldComparison::CaseInsensitive => {
                let fold = |value: &Value| value.as_str().map(str::to_lowercase);
                compared.field(rule, path, want, have, fold(want) == fold(have));
            }
            FieldComparison::LastSegment => {
                let last =
                    |value: &Value| value.as_str().and_then(|v| v.rsplit('/').next()).map(str::to_owned);
                compared.field(rule, path, want, have, last(want) == last(have));
            }
            FieldComparison::OwnItems if want.is_null() => compared.removed_list(rule, path, have, before),
            FieldComparison::Set | FieldComparison::OwnItems => {
                compared.field(rule, path, want, have, sorted(want) == sorted(have));
            }
            FieldComparison::OwnEntries | FieldComparison::OwnLabels => {
                compared.entries(rule, &path, want, have, before);
            }
            FieldComparison::OwnTaints => compared.taints(rule, &path, want, have, before),
            FieldComparison::Accelerators => compared.accelerators(rule, &path, want, have),
        }
    }
    let covered: Vec<FieldPath> = rules.iter().map(|rule| rule.path()).collect();
    compared.without_rule(&covered, &FieldPath::root(), desired, live);
    compared
}

/// Returns the entries of maps and lists of a recorded resource that the stack did not add, with their paths. Entries of Google's
/// own controllers are left out.
pub fn set_by_others(rules: &[&Rule], last: &Value, live: &Value) -> Vec<(FieldPath, Value)> {
    let mut found = Vec::new();
    for rule in rules {
        let path = rule.path();
        let null = Value::Null;
        let (before, have) = (path.find(last).unwrap_or(&null), path.find(live).unwrap_or(&null));
        match rule.comparison {
            FieldComparison::OwnEntries | FieldComparison::OwnLabels => {
                let new = have.as_object().into_iter().flatten();
                let new = new.filter(|(key, _)| before.get(*key).is_none() && !is_googles(key));
                found.extend(new.map(|(key, value)| (path.key(key), value.clone())));
            }
            FieldComparison::OwnTaints => {
                let known = |taint: &Value| {
                    let mut list = before.as_array().into_iter().flatten();
                    list.any(|known| known["key"] == taint["key"] && known["effect"] == taint["effect"])
                };
                let new = have.as_array().into_iter().flatten();
                let new = new.filter(|taint| !known(taint) && !is_googles(text(&taint["key"])));
                let shown = |taint: &Value| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]));
                found.extend(new.map(|taint| (path.key(&shown(taint)), taint["value"].clone())));
            }
            // Compared as a whole where we set it. Zones are filled in by GKE.
            FieldComparison::Set
                if rule.effect != Effect::Replace
                    && before.is_null()
                    && !rule.path.ends_with("locations") =>
            {
                found.extend((!is_zero(have)).then(|| (path, have.clone())));
            }
            FieldComparison::OwnItems => {
                let new = have.as_array().into_iter().flatten();
                let known = |item: &Value| before.as_array().is_some_and(|before| before.contains(item));
                let new = new.filter(|item| !known(item));
                found.extend(new.enumerate().map(|(index, item)| (path.index(index), item.clone())));
            }
            FieldComparison::Set
            | FieldComparison::Exact
            | FieldComparison::CaseInsensitive
            | FieldComparison::LastSegment
            | FieldComparison::MinVersion
            | FieldComparison::CidrOrPrefixLength
            | FieldComparison::Accelerators
            | FieldComparison::AtCreation => {}
        }
    }
    found
}

/// Returns the path of a rule's field in the live object. It differs for the version of a cluster, which is set by one field and
/// read from another.
fn live_path(rule: &Rule) -> FieldPath {
    match rule.path {
        "initialClusterVersion" => FieldPath::keys(["currentMasterVersion"]),
        path => path.parse().unwrap_or_default(),
    }
}

/// Returns true if a version is the desired one or a newer one. A desired version may leave its last parts open: `1.33`.
pub fn reaches(version: &str, desired: &str) -> bool {
    let parts = |version: &str| -> Vec<u64> {
        version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    let given = desired.starts_with(|c: char| c.is_ascii_digit());
    let (have, want) = (parts(version), parts(desired));
    !given || have.is_empty() || have.iter().take(want.len()).ge(want.iter())
}

/// Returns true for labels and taints that GKE adds to its resources. Source: recorded node pools; `nvidia.com/gpu` is its taint
/// of GPU pools.
fn is_googles(key: &str) -> bool {
    key.starts_with("goog-")
        || key.contains("google.com/")
        || key.contains("gke.io/")
        || key == "nvidia.com/gpu"
}

impl Comparison {
    fn push(&mut self, rule: &Rule, path: FieldPath, before: &Value, after: &Value) {
        let given = |value: &Value| (!value.is_null()).then(|| value.clone());
        self.changes.push(FieldChange {
            secret: path.last_key().is_some_and(is_secret),
            path,
            before: given(before),
            after: given(after),
            effect: rule.effect.clone(),
            note: rule.note.map(str::to_owned),
            drift: None,
        });
    }

    /// Compares one field. A field that is no longer desired keeps its value: there is no default to return to.
    fn field(&mut self, rule: &Rule, path: FieldPath, want: &Value, have: &Value, equal: bool) {
        if want.is_null() || equal {
            return;
        }
        let (Some(desired), true) = (want.as_object(), rule.comparison == FieldComparison::Exact) else {
            self.push(rule, path, have, want);
            return;
        };
        for (key, value) in desired {
            let live = have.get(key).unwrap_or(&Value::Null);
            if !same(value, live) {
                self.push(rule, path.key(key), live, value);
            }
        }
    }

    /// Keeps the value of a field that the section no longer sets, because GKE has no default to return to.
    fn report_kept_value(&mut self, rule: &Rule, path: FieldPath, have: &Value, before: &Value) {
        let stays = match rule.comparison {
            FieldComparison::Set => sorted(before) == sorted(have),
            _ => same(before, have),
        };
        if !is_zero(have) && stays {
            let note = Some("no longer in the file; the live value stays");
            let rule = Rule { effect: Effect::Ignored, note, ..*rule };
            self.push(&rule, path, have, &Value::Null);
        }
    }

    /// Reports a list that is no longer desired: it loses the entries that the stack added.
    fn removed_list(&mut self, rule: &Rule, path: FieldPath, have: &Value, before: &Value) {
        let ours = |item: &Value| before.as_array().is_some_and(|before| before.contains(item));
        let live: Vec<Value> = have.as_array().cloned().unwrap_or_default();
        let kept: Vec<Value> = live.iter().filter(|item| !ours(item)).cloned().collect();
        if kept.len() < live.len() {
            self.push(rule, path, have, &Value::Array(kept));
        }
    }

    fn entries(&mut self, rule: &Rule, path: &FieldPath, want: &Value, have: &Value, last: &Value) {
        for (key, value) in want.as_object().into_iter().flatten() {
            let live = have.get(key).unwrap_or(&Value::Null);
            if live != value {
                self.push(rule, path.key(key), live, value);
            }
        }
        for key in last.as_object().into_iter().flat_map(Map::keys) {
            if let (None, Some(live)) = (want.get(key), have.get(key)) {
                self.push(rule, path.key(key), live, &Value::Null);
            }
        }
    }

    fn taints(&mut self, rule: &Rule, path: &FieldPath, want: &Value, have: &Value, last: &Value) {
        let shown = |taint: &Value| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]));
        let find = |list: &Value, desired: &Value| {
            list.as_array().and_then(|list| list.iter().find(|taint| shown(taint) == shown(desired))).cloned()
        };
        for taint in want.as_array().into_iter().flatten() {
            let live = find(have, taint).unwrap_or_default();
            if !same(&live["value"], &taint["value"]) || live.is_null() {
                self.push(rule, path.key(&shown(taint)), &live["value"], &taint["value"]);
            }
        }
        for taint in last.as_array().into_iter().flatten() {
            if let (None, Some(live)) = (find(want, taint), find(have, taint)) {
                self.push(rule, path.key(&shown(taint)), &live["value"], &Value::Null);
            }
        }
    }

    /// Compares GPUs. Source: facts on nodePools.update: "Accelerator count: 1 should not be updated."; an empty list is ignored
    /// and removes nothing; driver version and sharing are changed in place.
    fn accelerators(&mut self, rule: &Rule, path: &FieldPath, want: &Value, have: &Value) {
        let fixed = |note| Rule { effect: Effect::Replace, note: Some(note), ..*rule };
        let (want, have) = (&want[0], &have[0]);
        if is_zero(want) != is_zero(have) {
            let rule = fixed("GPUs cannot be added to or removed from a pool");
            self.push(&rule, path.clone(), have, want);
            return;
        }
        let path = path.index(0);
        for field in ["acceleratorType", "acceleratorCount", "gpuPartitionSize"] {
            if !same(&want[field], &have[field]) {
                let rule = fixed("GKE cannot change the GPUs of a pool");
                self.push(&rule, path.key(field), &have[field], &want[field]);
            }
        }
        let rule = &Rule { comparison: FieldComparison::Exact, effect: rule.effect.clone(), ..*rule };
        for field in ["gpuDriverInstallationConfig", "gpuSharingConfig"] {
            self.field(rule, path.key(field), &want[field], &have[field], same(&want[field], &have[field]));
        }
    }

    fn without_rule(&mut self, covered: &[FieldPath], path: &FieldPath, want: &Value, live: &Value) {
        if says_nothing(want) || covered.iter().any(|rule| rule.contains(path)) {
            return;
        }
        let below = covered.iter().any(|rule| path.contains(rule));
        if let (Some(fields), true) = (want.as_object(), below) {
            for (key, value) in fields {
                self.without_rule(covered, &path.key(key), value, live.get(key).unwrap_or(&Value::Null));
            }
        } else if !same(want, live) {
            let rule = Rule {
                path: "",
                comparison: FieldComparison::Exact,
                effect: Effect::Unknown,
                update: Update::Never,
                note: Some("the effect of changing it is unknown"),
            };
            self.push(&rule, path.clone(), live, want);
        }
    }
}

/// Returns true for a table that contains no value: `addons = {}`, `maintenancePolicy = { window = {} }`.
fn says_nothing(value: &Value) -> bool {
    value.as_object().is_some_and(|table| table.values().all(says_nothing))
}

/// Returns the fields that a call changes. Fields that keep their value although they are no longer desired are left out.
pub fn sent_changes(changes: &[FieldChange]) -> impl Iterator<Item = &FieldChange> {
    changes.iter().filter(|change| change.effect != Effect::Ignored)
}

/// Returns true if values are equal under proto3 JSON: the live value must have everything that the stack sets, and may have
/// more.
fn same(want: &Value, have: &Value) -> bool {
    match (want, have) {
        (want, have) if is_zero(want) || is_zero(have) => is_zero(want) && is_zero(have),
        (Value::Object(want), have) => want.iter().all(|(key, value)| same(value, &have[key])),
        (Value::Array(want), Value::Array(have)) => {
            want.len() == have.len() && want.iter().zip(have).all(|(want, have)| same(want, have))
        }
        (Value::Number(number), Value::String(text)) | (Value::String(text), Value::Number(number)) => {
            number.to_string() == *text
        }
        (want, have) => want == have,
    }
}

fn sorted(list: &Value) -> Vec<String> {
    let mut items: Vec<String> = list.as_array().into_iter().flatten().map(ToString::to_string).collect();
    items.sort();
    items
}

/// Returns the whole map to send, as the API replaces it: the stack's entries as desired, and all other live entries unchanged.
pub fn merged_entries(want: &Value, live: &Value, changes: &[FieldChange], at: &FieldPath) -> Value {
    let mut all = live.as_object().cloned().unwrap_or_default();
    for change in changes.iter().filter(|change| at.contains(&change.path) && change.after.is_none()) {
        if let Some(Segment::Key(key)) = change.path.segments().last() {
            all.remove(key);
        }
    }
    for (key, value) in want.as_object().into_iter().flatten() {
        all.insert(key.clone(), value.clone());
    }
    Value::Object(all)
}

/// Returns all taints to send, merged by key and effect, as [`merged_entries`] does for maps.
pub fn merged_taints(want: &Value, live: &Value, changes: &[FieldChange], at: &FieldPath) -> Vec<Value> {
    let shown = |taint: &Value| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]));
    let ours =
        |taint: &Value| want.as_array().is_some_and(|list| list.iter().any(|t| shown(t) == shown(taint)));
    let is_removed = |taint: &Value| {
        changes.iter().any(|change| change.after.is_none() && change.path == at.key(&shown(taint)))
    };
    let kept = live.as_array().into_iter().flatten().filter(|taint| !ours(taint) && !is_removed(taint));
    kept.chain(want.as_array().into_iter().flatten()).cloned().collect()
}

/// Sets a value at a path; missing tables are created.
pub(super) fn put(body: &mut Value, path: &FieldPath, value: Value) {
    let target = path.segments().iter().fold(body, |target, segment| match segment {
        Segment::Key(key) => &mut target[key.as_str()],
        Segment::Index(index) => &mut target[*index],
    });
    *target = value;
}

/// Returns one request to GKE.
pub(super) fn call(method: Method, path: String, body: Option<Value>) -> Step {
    Step::Call(Call { api: Api::Gke, method, path, body: body.map(JsonText::from), deferred: Vec::new() })
}

/// Returns the Google Cloud labels of a resource: those of the file, and the ownership labels.
pub fn owned_labels(given: &BTreeMap<String, String>, owner: &Owner) -> Value {
    let mut labels = json!(given);
    labels[LABEL_STACK] = json!(owner.stack);
    labels[LABEL_ID] = json!(owner.id);
    labels
}

/// Returns true if a live cluster or pool carries the labels of this stack.
pub fn is_ours(labels: &Value, owner: &Owner) -> bool {
    labels[LABEL_STACK] == owner.stack.as_str() && labels[LABEL_ID] == owner.id.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[&Rule] = &[
        &rule("name", FieldComparison::Exact),
        &rule("image", FieldComparison::CaseInsensitive),
        &rule("scopes", FieldComparison::Set),
        &rule("tags", FieldComparison::OwnItems),
        &rule("labels", FieldComparison::OwnEntries),
        &rule("taints", FieldComparison::OwnTaints),
        &rule("network", FieldComparison::LastSegment),
        &rule("config.accelerators", FieldComparison::Accelerators),
        &rule("management", FieldComparison::Exact),
    ];

    const fn rule(path: &'static str, comparison: FieldComparison) -> Rule {
        Rule { path, comparison, effect: Effect::InPlace, update: Update::Never, note: None }
    }

    fn check(desired: Value, live: Value, last: Value, expect: &[&str]) {
        let compared = compare(RULES, &desired, &live, Some(&last));
        let show = |value: &Option<Value>| value.as_ref().map_or("-".into(), Value::to_string);
        let found: Vec<String> = compared
            .changes
            .iter()
            .map(|c| format!("{}: {} -> {} {:?}", c.path, show(&c.before), show(&c.after), c.effect))
            .collect();
        assert_eq!(found, expect, "{desired} against {live}");
    }

    #[test]
    fn entries_of_others_are_told_and_googles_are_not() {
        let live = json!({
            "labels": { "ours": "1", "a": "b", "goog-gke-node": "", "cloud.google.com/gke-x": "y" },
            "taints": [
                { "key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE" },
                { "key": "k", "value": "v", "effect": "NO_EXECUTE" },
            ],
            "scopes": ["x"], "name": "n",
        });
        let found = set_by_others(RULES, &json!({ "labels": { "ours": "1" } }), &live);
        let told: Vec<String> = found.iter().map(|(path, value)| format!("{path} = {value}")).collect();
        assert_eq!(told, [r#"scopes = ["x"]"#, r#"labels.a = "b""#, r#"taints."k:NO_EXECUTE" = "v""#]);
        let all = json!({ "labels": { "ours": "1", "a": "" }, "taints": live["taints"], "scopes": ["x"] });
        assert_eq!(set_by_others(RULES, &all, &live), []);
    }

    #[test]
    fn only_what_is_said_is_compared() {
        check(json!({}), json!({ "labels": { "a": "b" }, "name": "x" }), json!({}), &[]);
        check(json!({ "name": "y" }), json!({ "name": "x" }), json!({}), &[r#"name: "x" -> "y" InPlace"#]);
        check(json!({ "image": "cos" }), json!({ "image": "COS" }), json!({}), &[]);
        check(json!({ "scopes": ["a", "b"] }), json!({ "scopes": ["b", "a"] }), json!({}), &[]);
        check(json!({ "network": "default" }), json!({ "network": "projects/p/default" }), json!({}), &[]);
    }

    #[test]
    fn zero_values_and_absent_fields_are_the_same() {
        check(
            json!({ "management": { "autoRepair": true, "autoUpgrade": false } }),
            json!({ "management": { "autoRepair": true } }),
            json!({}),
            &[],
        );
        check(
            json!({ "management": { "autoRepair": false } }),
            json!({ "management": { "autoRepair": true } }),
            json!({}),
            &["management.autoRepair: true -> false InPlace"],
        );
    }

    #[test]
    fn entries_go_only_when_we_put_them_in() {
        let live = json!({ "labels": { "ours": "1", "theirs": "2" } });
        check(json!({ "labels": {} }), live.clone(), json!({}), &[]);
        check(
            json!({ "labels": {} }),
            live,
            json!({ "labels": { "ours": "1" } }),
            &[r#"labels.ours: "1" -> - InPlace"#],
        );
    }

    #[test]
    fn a_list_that_is_no_longer_said_stays_or_loses_what_we_put_in() {
        let live = json!({ "scopes": ["b", "a"], "tags": ["ours", "theirs"] });
        let last = json!({ "scopes": ["a", "b"], "tags": ["ours"] });
        let expect =
            [r#"scopes: ["b","a"] -> - Ignored"#, r#"tags: ["ours","theirs"] -> ["theirs"] InPlace"#];
        check(json!({}), live.clone(), last, &expect);
        check(json!({}), live, json!({ "scopes": ["c"], "tags": ["c"] }), &[]);
    }

    #[test]
    fn taints_of_the_server_stay() {
        let gpu = json!({ "key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE" });
        let own = json!({ "key": "team", "value": "a", "effect": "NO_SCHEDULE" });
        check(json!({ "taints": [own] }), json!({ "taints": [gpu, own] }), json!({}), &[]);
        check(
            json!({ "taints": [own] }),
            json!({ "taints": [gpu] }),
            json!({}),
            &[r#"taints."team:NO_SCHEDULE": - -> "a" InPlace"#],
        );
    }

    #[test]
    fn gpu_count_replaces_and_driver_does_not() {
        let gpus = |count: &str, driver: &str| {
            json!({ "config": { "accelerators": [{
                "acceleratorType": "nvidia-tesla-t4", "acceleratorCount": count,
                "gpuDriverInstallationConfig": { "gpuDriverVersion": driver },
            }] } })
        };
        check(
            gpus("2", "DEFAULT"),
            gpus("1", "DEFAULT"),
            json!({}),
            &[r#"config.accelerators[0].acceleratorCount: "1" -> "2" Replace"#],
        );
        check(
            gpus("1", "LATEST"),
            gpus("1", "DEFAULT"),
            json!({}),
            &[
                r#"config.accelerators[0].gpuDriverInstallationConfig.gpuDriverVersion: "DEFAULT" -> "LATEST" InPlace"#,
            ],
        );
    }

    #[test]
    fn a_field_without_a_rule_has_an_unknown_effect() {
        check(json!({ "odd": { "x": {} } }), json!({ "odd": { "x": { "a": 1 } } }), json!({}), &[]);
        check(json!({ "config": { "odd": 1 } }), json!({}), json!({}), &["config.odd: - -> 1 Unknown"]);
    }
}
