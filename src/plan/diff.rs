//! What differs between a wanted and a live Kubernetes object.
//!
//! Wanted fields are compared with live ones; fields that our manager owns and that are no longer wanted are
//! given up. What we neither want nor own causes nothing. That holds for kinds that we never saw: lists are
//! matched by the schema's keys where there is a schema, and by the keys that managedFields names.
//! Source: seen on kube-apiserver 1.36: managedFields state list keys after defaulting, and fields whose
//! zero value the server dropped.

use serde_json::{Map, Value};

use crate::address::{FieldPath, Segment};
use crate::kinds::gke::{Compared, blank};
use crate::resource::{Effect, FieldChange};
use crate::schema::{List, Schema, Type};

/// One entry of managedFields.
#[derive(Clone, Copy)]
struct Owner<'a> {
    manager: &'a str,
    time: &'a str,
    applied: bool,
    fields: &'a Value,
}

/// Whether a live object has an `Apply` entry of a field manager.
pub fn applied_by(live: &Value, manager: &str) -> bool {
    entries(live).any(|owner| owner.applied && owner.manager == manager)
}

/// When a field manager last wrote the object.
pub fn written(live: &Value, manager: &str) -> Option<String> {
    let latest = entries(live).filter(|owner| owner.manager == manager).map(|owner| owner.time).max();
    latest.map(str::to_owned)
}

/// Managers of other stacks that have applied the object.
pub fn other_stacks<'a>(live: &'a Value, manager: &str) -> Vec<&'a str> {
    let others = entries(live).filter(|owner| owner.applied && !is_of(owner.manager, manager));
    others.map(|owner| owner.manager).filter(|name| name.starts_with("dask-infra/")).collect()
}

/// Whether a manager is ours, under any of our names: `dask-infra/STACK`, `dask-infra/STACK:initial`.
fn is_of(name: &str, manager: &str) -> bool {
    name.strip_prefix(manager).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// The owners of a field below keys.
fn owners_of<'a>(live: &'a Value, path: &FieldPath) -> Vec<Owner<'a>> {
    path.segments().iter().fold(entries(live).collect(), |owners, segment| match segment {
        Segment::Key(key) => step(&owners, &format!("f:{key}")),
        Segment::Index(_) => owners,
    })
}

/// Whether a field manager has applied a field and nobody has written it since.
pub fn owns(live: &Value, manager: &str, path: &FieldPath) -> bool {
    owners_of(live, path).iter().any(|owner| owner.applied && owner.manager == manager)
}

/// Who last wrote a field by hand, and when.
pub fn written_by(live: &Value, path: &FieldPath) -> Option<(String, String)> {
    let owners = owners_of(live, path);
    let by_hand = owners.iter().filter(|owner| !owner.applied).max_by_key(|owner| owner.time)?;
    // Writes through the scale subresource of a custom resource carry no time (seen on kube-apiserver 1.36).
    let time = if by_hand.time.is_empty() { "an unknown time" } else { by_hand.time };
    Some((by_hand.manager.to_owned(), time.to_owned()))
}

fn entries(live: &Value) -> impl Iterator<Item = Owner<'_>> {
    live["metadata"]["managedFields"].as_array().into_iter().flatten().map(|entry| Owner {
        manager: entry["manager"].as_str().unwrap_or_default(),
        time: entry["time"].as_str().unwrap_or_default(),
        applied: entry["operation"] == "Apply" && entry["subresource"].is_null(),
        fields: &entry["fieldsV1"],
    })
}

/// Compares a wanted object with the live one. `effect` tells what changing a field does.
pub fn compare(
    wanted: &Value,
    live: &Value,
    manager: &str,
    schema: Option<&Schema>,
    effect: fn(&FieldPath) -> (Effect, Option<&'static str>),
) -> Compared {
    let mut walk = Walk { manager, effect, in_whole_list: false, compared: Compared::default() };
    let owners: Vec<Owner> = entries(live).collect();
    for (key, value) in wanted.as_object().into_iter().flatten() {
        if matches!(key.as_str(), "apiVersion" | "kind") {
            continue;
        }
        let path = FieldPath::root().key(key);
        let child = schema.and_then(|schema| schema.property(key));
        walk.field(&path, value, live.get(key), &step(&owners, &format!("f:{key}")), child.as_ref());
    }
    if let Some(ours) = owners.iter().find(|owner| owner.applied && owner.manager == manager) {
        walk.given_up(&FieldPath::root(), ours.fields, Some(wanted), live);
    }
    walk.compared
}

/// The owners of what lies one step below; who owns a value whole owns all that is in it.
fn step<'a>(owners: &[Owner<'a>], key: &str) -> Vec<Owner<'a>> {
    let whole = |owner: &Owner| owner.fields.as_object().is_some_and(Map::is_empty);
    let below = owners.iter().filter_map(|owner| {
        if whole(owner) { Some(*owner) } else { Some(Owner { fields: owner.fields.get(key)?, ..*owner }) }
    });
    below.collect()
}

struct Walk<'a> {
    manager: &'a str,
    effect: fn(&FieldPath) -> (Effect, Option<&'static str>),
    /// Whether a list is looked into that is written as one value.
    in_whole_list: bool,
    compared: Compared,
}

impl Walk<'_> {
    fn owned(&self, owners: &[Owner]) -> bool {
        owners.iter().any(|owner| owner.applied && owner.manager == self.manager)
    }

    fn differs(&mut self, path: &FieldPath, before: Option<&Value>, after: Option<&Value>, owners: &[Owner]) {
        let (effect, note) = (self.effect)(path);
        let other = owners.iter().find(|owner| owner.applied && !is_of(owner.manager, self.manager));
        if let Some(other) = other.filter(|_| after.is_some()) {
            self.compared.others.push((path.clone(), other.manager.to_owned()));
        }
        // What is missing from a list that others wrote whole was taken out by them.
        let theirs = before.is_some() || self.in_whole_list && !self.owned(owners);
        let by_hand = owners.iter().find(|owner| !owner.applied).filter(|_| theirs);
        self.compared.changes.push(FieldChange {
            path: path.clone(),
            before: before.cloned(),
            after: after.cloned(),
            effect,
            note: note.map(str::to_owned),
            drift: by_hand.map(|owner| (owner.manager.to_owned(), owner.time.to_owned())),
        });
    }

    fn leaf(&mut self, path: &FieldPath, want: &Value, live: Option<&Value>, owners: &[Owner], ty: Type) {
        self.compared.seen.push((path.clone(), live.cloned().unwrap_or_default()));
        let equal = match live {
            Some(live) => same(want, live, ty),
            // The server drops zero values of built-in kinds; our entry still names the field.
            None => blank(want) && self.owned(owners),
        };
        if !equal {
            self.differs(path, live, Some(want), owners);
        }
    }

    fn field(
        &mut self,
        path: &FieldPath,
        want: &Value,
        live: Option<&Value>,
        owners: &[Owner],
        schema: Option<&Schema>,
    ) {
        let ty = schema.map_or(Type::Any, Schema::ty);
        match (want, live) {
            (Value::Object(fields), Some(Value::Object(have))) => {
                for (key, value) in fields {
                    let child = schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
                    let below = step(owners, &format!("f:{key}"));
                    self.field(&path.key(key), value, have.get(key), &below, child.as_ref());
                }
                if schema.is_some_and(Schema::atomic_map) {
                    self.extras(path, fields, have, owners);
                }
            }
            (Value::Object(fields), None) if fields.is_empty() && self.owned(owners) => {}
            // Built-in kinds keep no empty lists, and our entry does not name those whose items have keys: `env: []`, which
            // charts write. A list that is not there and an empty one mean the same.
            (Value::Array(items), None) if items.is_empty() => {}
            (Value::Array(items), Some(Value::Array(have))) => self.list(path, items, have, owners, schema),
            (Value::Null, _) => {}
            _ => self.leaf(path, want, live, owners, ty),
        }
    }

    fn list(
        &mut self,
        path: &FieldPath,
        items: &[Value],
        have: &[Value],
        owners: &[Owner],
        schema: Option<&Schema>,
    ) {
        let kind = schema.map_or_else(|| named(owners), Schema::list);
        let item_schema = schema.and_then(Schema::items);
        match kind {
            List::Map(keys) => {
                for (place, item) in items.iter().enumerate() {
                    let values = key_values(&keys, item, item_schema.as_ref());
                    let found =
                        have.iter().position(|live| key_values(&keys, live, item_schema.as_ref()) == values);
                    let below = step(owners, &format!("k:{}", Value::Object(values)));
                    let path = path.index(found.unwrap_or(place));
                    self.field(&path, item, found.map(|found| &have[found]), &below, item_schema.as_ref());
                }
            }
            List::Set => {
                for (place, item) in items.iter().enumerate() {
                    if !have.contains(item) {
                        let below = step(owners, &format!("v:{item}"));
                        self.leaf(&path.index(place), item, None, &below, Type::Any);
                    }
                }
            }
            List::Atomic if items.len() == have.len() => {
                let outside = std::mem::replace(&mut self.in_whole_list, true);
                for (place, (item, live)) in items.iter().zip(have).enumerate() {
                    let path = path.index(place);
                    self.field(&path, item, Some(live), owners, item_schema.as_ref());
                    if let (Value::Object(item), Value::Object(live)) = (item, live) {
                        self.extras(&path, item, live, owners);
                    }
                }
                self.in_whole_list = outside;
            }
            List::Atomic => self.differs(
                path,
                Some(&Value::Array(have.to_vec())),
                Some(&Value::Array(items.to_vec())),
                owners,
            ),
        }
    }

    /// Fields inside an atomic value that we did not say: defaults of the server while the value is ours,
    /// somebody's edit when it no longer is.
    fn extras(
        &mut self,
        path: &FieldPath,
        want: &Map<String, Value>,
        have: &Map<String, Value>,
        owners: &[Owner],
    ) {
        if self.owned(owners) || owners.is_empty() {
            return;
        }
        for (key, live) in have.iter().filter(|(key, _)| !want.contains_key(*key)) {
            self.differs(&path.key(key), Some(live), None, owners);
        }
    }

    /// Fields that our manager owns, that are live, and that are no longer wanted.
    fn given_up(&mut self, path: &FieldPath, fields: &Value, wanted: Option<&Value>, live: &Value) {
        for (name, below) in fields.as_object().into_iter().flatten() {
            let (child_path, want, have) = match name.split_once(':') {
                Some(("f", key)) => (path.key(key), wanted.and_then(|wanted| wanted.get(key)), live.get(key)),
                Some(("k", keys)) => {
                    let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { continue };
                    let place = position(live, &keys);
                    let want = wanted.and_then(|wanted| position(wanted, &keys).map(|at| &wanted[at]));
                    (path.index(place.unwrap_or(0)), want, place.map(|place| &live[place]))
                }
                Some(("v", text)) => {
                    let Ok(value) = serde_json::from_str::<Value>(text) else { continue };
                    let find = |list: &Value| list.as_array()?.iter().position(|item| item == &value);
                    let place = find(live);
                    let want = wanted.and_then(|wanted| find(wanted).map(|at| &wanted[at]));
                    (path.index(place.unwrap_or(0)), want, place.map(|place| &live[place]))
                }
                _ => continue,
            };
            let Some(have) = have else { continue };
            let inner = below.as_object().is_some_and(|fields| fields.keys().any(|key| key != "."));
            if inner && (want.is_some() || !have.is_array()) {
                self.given_up(&child_path, below, want, have);
            } else if want.is_none() {
                self.differs(&child_path, Some(have), None, &[]);
            }
        }
    }
}

/// How a list without a schema is told apart: by the keys that managedFields names, else whole.
fn named(owners: &[Owner]) -> List {
    let fields = owners.iter().filter_map(|owner| owner.fields.as_object()).flat_map(Map::keys);
    let mut kind = List::Atomic;
    for key in fields {
        if let Some(keys) = key.strip_prefix("k:")
            && let Ok(Value::Object(keys)) = serde_json::from_str(keys)
        {
            return List::Map(keys.keys().cloned().collect());
        }
        if key.starts_with("v:") {
            kind = List::Set;
        }
    }
    kind
}

/// The values of a list item's keys, defaults filled in.
fn key_values(keys: &[String], item: &Value, schema: Option<&Schema>) -> Map<String, Value> {
    let value = |key: &String| {
        let default = || schema.and_then(|schema| schema.property(key)).and_then(|field| field.default());
        item.get(key).cloned().or_else(default)
    };
    keys.iter().filter_map(|key| Some((key.clone(), value(key)?))).collect()
}

/// The item whose keys are these; a key that the item does not say may have been defaulted.
fn position(list: &Value, keys: &Map<String, Value>) -> Option<usize> {
    let fits =
        |item: &Value| keys.iter().all(|(key, value)| item.get(key).is_none_or(|found| found == value));
    list.as_array()?.iter().position(fits)
}

fn same(want: &Value, live: &Value, ty: Type) -> bool {
    if want == live {
        return true;
    }
    match (want, live) {
        (Value::Number(want), Value::Number(live)) => want.as_f64() == live.as_f64(),
        (Value::String(_) | Value::Number(_), Value::String(_) | Value::Number(_))
            if ty == Type::Quantity =>
        {
            matches!((quantity(want), quantity(live)), (Some(want), Some(live)) if want == live)
        }
        _ => false,
    }
}

/// The value of a Kubernetes quantity in thousandths of a thousandth, so that `1500m` and `1.5` are one.
/// Source: `k8s.io/apimachinery/pkg/api/resource`.
pub fn quantity(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (factor, divisor): (i128, i128) = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: u32 = exponent.strip_prefix(['e', 'E'])?.trim_start_matches('+').parse().ok()?;
            (10_i128.checked_pow(power)?, 1)
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(digits.checked_mul(factor)?.checked_mul(1_000_000_000)? / scale / divisor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema;

    fn check(wanted: Value, live: Value, expect: &[&str]) {
        let schema = schema::builtin("apps", "v1", "Deployment");
        let compared = compare(&wanted, &live, "dask-infra/s", schema.as_ref(), |_| (Effect::InPlace, None));
        let show = |value: &Option<Value>| value.as_ref().map_or("-".into(), Value::to_string);
        let found: Vec<String> = compared
            .changes
            .iter()
            .map(|c| {
                let by = c.drift.as_ref().map_or(String::new(), |(manager, _)| format!(" by {manager}"));
                format!("{}: {} -> {}{by}", c.path, show(&c.before), show(&c.after))
            })
            .collect();
        assert_eq!(found, expect, "{wanted} against {live}");
    }

    fn managed(live: Value, fields: Value) -> Value {
        let mut live = live;
        live["metadata"]["managedFields"] =
            json!([{ "manager": "dask-infra/s", "operation": "Apply", "fieldsV1": fields }]);
        live
    }

    #[test]
    fn what_the_server_filled_in_is_no_difference() {
        let wanted = json!({ "spec": { "replicas": 1, "template": { "spec": {
            "hostNetwork": false,
            "containers": [{ "name": "a", "image": "x", "ports": [{ "containerPort": 80 }],
                "resources": { "limits": { "cpu": "1", "memory": "1024Mi" } } }],
        } } } });
        let live = json!({ "spec": { "replicas": 1, "revisionHistoryLimit": 10, "template": { "spec": {
            "containers": [{ "name": "a", "image": "x", "imagePullPolicy": "Always",
                "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                "resources": { "limits": { "cpu": "1000m", "memory": "1Gi" } } }],
        } } } });
        let fields = json!({ "f:spec": { "f:replicas": {}, "f:template": { "f:spec": {
            "f:hostNetwork": {},
            "f:containers": { r#"k:{"name":"a"}"#: { ".": {}, "f:image": {}, "f:name": {},
                "f:ports": { r#"k:{"containerPort":80,"protocol":"TCP"}"#: { ".": {}, "f:containerPort": {} } },
                "f:resources": { "f:limits": { "f:cpu": {}, "f:memory": {} } } } },
        } } } });
        check(wanted, managed(live, fields), &[]);
    }

    #[test]
    fn items_are_matched_by_key_and_not_by_place() {
        let wanted = json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "a", "image": "new" }, { "name": "b", "image": "same" }
        ] } } } });
        let live = json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "injected", "image": "z" }, { "name": "b", "image": "same" }, { "name": "a", "image": "old" }
        ] } } } });
        check(wanted, live, &[r#"spec.template.spec.containers[2].image: "old" -> "new""#]);
    }

    #[test]
    fn owned_fields_that_are_no_longer_wanted_are_given_up() {
        let fields = json!({
            "f:metadata": { "f:labels": { "f:a": {}, "f:b": {} } },
            "f:spec": { "f:paused": {}, "f:replicas": {} },
        });
        let live = json!({
            "metadata": { "labels": { "a": "1", "b": "2", "theirs": "3" } }, "spec": { "paused": true, "replicas": 2 },
        });
        let wanted = json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "replicas": 2 } });
        let live = managed(live, fields);
        check(wanted, live, &[r#"metadata.labels.b: "2" -> -"#, "spec.paused: true -> -"]);
    }

    #[test]
    fn an_edit_by_hand_names_its_manager() {
        let mut live = managed(json!({ "spec": { "replicas": 5 } }), json!({ "f:spec": {} }));
        if let Some(entries) = live["metadata"]["managedFields"].as_array_mut() {
            entries.push(json!({
                "manager": "kubectl-patch", "operation": "Update", "time": "2026-11-21T10:00:00Z",
                "fieldsV1": { "f:spec": { "f:replicas": {} } },
            }));
        }
        check(json!({ "spec": { "replicas": 2 } }), live, &["spec.replicas: 5 -> 2 by kubectl-patch"]);
    }

    #[test]
    fn what_is_missing_from_a_list_that_others_wrote_whole_was_taken_out_by_them() {
        let wanted = json!({ "spec": { "template": { "spec": { "tolerations": [{ "key": "a", "operator": "Exists" }] } } } });
        let mut live = json!({ "spec": { "template": { "spec": { "tolerations": [{ "key": "b" }] } } } });
        live["metadata"]["managedFields"] = json!([{
            "manager": "kubectl-patch", "operation": "Update", "time": "2026-11-21T10:00:00Z",
            "fieldsV1": { "f:spec": { "f:template": { "f:spec": { "f:tolerations": {} } } } },
        }]);
        let place = "spec.template.spec.tolerations[0]";
        let both = [
            format!(r#"{place}.key: "b" -> "a" by kubectl-patch"#),
            format!(r#"{place}.operator: - -> "Exists" by kubectl-patch"#),
        ];
        check(wanted, live, &both.each_ref().map(String::as_str));
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (left, right) in
            [("1", "1000m"), ("1Gi", "1024Mi"), ("10k", "10000"), ("1.5", "1500m"), ("1e3", "1k")]
        {
            assert_eq!(quantity(&json!(left)), quantity(&json!(right)), "{left} {right}");
        }
        assert_eq!(quantity(&json!("x")), None);
        assert_ne!(quantity(&json!("1")), quantity(&json!("1m")));
    }
}
