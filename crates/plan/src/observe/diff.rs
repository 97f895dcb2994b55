//! Differences between a desired and a live Kubernetes object.
//!
//! Desired fields are compared with live ones; fields that the stack's field manager owns and that are no longer desired are
//! released. Other live fields are ignored. This also works for custom kinds: lists are matched by the schema's keys, or without
//! a schema by the keys that managedFields names. Source: seen on kube-apiserver 1.36: managedFields state list keys after
//! defaulting, and fields whose zero value the server dropped.

use serde_json::{Map, Value};

use kinds::comparison::{Comparison, is_zero};
use kinds::kubernetes::equality::{ValueFormat, is_requirements, same};
use kinds::kubernetes::ownership::is_manager_of_stack;
pub use kinds::kubernetes::ownership::other_stacks;
use model::address::{Cursor, FieldPath, Segment, SegmentRef};
use model::resource::{Effect, FieldChange};
use model::schema::{List, Schema};
use model::secrets;

/// One entry of managedFields.
#[derive(Clone, Copy)]
struct ManagedFieldsEntry<'a> {
    manager: &'a str,
    time: &'a str,
    applied: bool,
    fields: &'a Value,
}

/// Returns true if a live object has an `Apply` entry of a field manager.
pub fn applied_by(live: &Value, manager: &str) -> bool {
    entries(live).any(|owner| owner.applied && owner.manager == manager)
}

/// Returns the API version in which a field manager has applied an object.
pub fn applied_in<'a>(live: &'a Value, manager: &str) -> Option<&'a str> {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let applied = |entry: &&Value| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry["subresource"].is_null()
    };
    entries.into_iter().find(applied)?["apiVersion"].as_str()
}

/// Returns when a field manager last wrote the object.
pub fn last_written(live: &Value, manager: &str) -> Option<String> {
    let latest = entries(live).filter(|owner| owner.manager == manager).map(|owner| owner.time).max();
    latest.map(str::to_owned)
}

/// Field managers of Kubernetes' own controllers. Their writes do not count as changes made outside the stack.
const CONTROLLERS: &[&str] =
    &["kube-controller-manager", "kube-scheduler", "kubelet", "cloud-controller-manager"];

/// Returns the field manager that wrote an object first, and when.
pub fn creator(live: &Value) -> Option<(String, String)> {
    let first = entries(live).filter(|owner| !owner.time.is_empty()).min_by_key(|owner| owner.time)?;
    Some((first.manager.to_owned(), first.time.to_owned()))
}

/// Returns fields that other field managers set and that are neither desired nor create-only. `manager` is the
/// stack's. Status, annotations, finalizers and owner references are left out, as controllers write them, and so are
/// fields that the change removes.
pub fn set_by_others(
    desired: &Value,
    create_only: &Value,
    live: &Value,
    manager: &str,
    schema: Option<&Schema>,
) -> Vec<FieldChange> {
    let of_us = |name: &str| {
        is_manager_of_stack(name, manager) || name == "dask-infra" || name.starts_with("dask-infra/")
    };
    let list = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut found: Vec<FieldChange> = Vec::new();
    for (entry, owner) in list.zip(entries(live)) {
        let status = entry["subresource"] == "status";
        if of_us(owner.manager) || CONTROLLERS.contains(&owner.manager) || status {
            continue;
        }
        let effect: fn(&FieldPath) -> (Effect, Option<&'static str>) = |_| (Effect::InPlace, None);
        let mut walk = DiffWalker::new(manager, effect);
        walk.removed_fields(owner.fields, Some(desired), live, schema);
        let new = walk.compared.changes.into_iter().filter(|change| {
            let metadata = FieldPath::root().key("metadata");
            let books = metadata.contains(&change.path) && !metadata.key("labels").contains(&change.path);
            let status = FieldPath::root().key("status").contains(&change.path);
            !books && !status && change.path.find(create_only).is_none()
        });
        let who = (owner.manager.to_owned(), owner.time.to_owned());
        found.extend(new.map(|change| FieldChange { drift: Some(who.clone()), ..change }));
    }
    // Of several that wrote a field the last one is told.
    let time = |change: &FieldChange| change.drift.as_ref().map(|(_, time)| time.clone());
    found.sort_by(|a, b| a.path.cmp(&b.path).then(time(b).cmp(&time(a))));
    found.dedup_by(|a, b| a.path == b.path);
    found
}

/// Returns the entries of managedFields that own a field.
fn field_entries<'a>(live: &'a Value, path: &FieldPath) -> Vec<ManagedFieldsEntry<'a>> {
    path.segments().iter().fold(entries(live).collect(), |owners, segment| match segment {
        Segment::Key(key) => owners_below(&owners, &format!("f:{key}")),
        Segment::Index(_) => owners,
    })
}

/// Returns true if a field manager has applied a field and no other manager has written it since.
pub fn owns(live: &Value, manager: &str, path: &FieldPath) -> bool {
    field_entries(live, path).iter().any(|owner| owner.applied && owner.manager == manager)
}

/// Returns the field manager of the last plain write (an `Update` entry) of a field, and the time.
pub fn last_writer(live: &Value, path: &FieldPath) -> Option<(String, String)> {
    let owners = field_entries(live, path);
    let by_hand = owners.iter().filter(|owner| !owner.applied).max_by_key(|owner| owner.time)?;
    // Writes through the scale subresource of a custom resource carry no time (seen on kube-apiserver 1.36).
    let time = if by_hand.time.is_empty() { "an unknown time" } else { by_hand.time };
    Some((by_hand.manager.to_owned(), time.to_owned()))
}

fn entries(live: &Value) -> impl Iterator<Item = ManagedFieldsEntry<'_>> {
    live["metadata"]["managedFields"].as_array().into_iter().flatten().map(|entry| ManagedFieldsEntry {
        manager: entry["manager"].as_str().unwrap_or_default(),
        time: entry["time"].as_str().unwrap_or_default(),
        applied: entry["operation"] == "Apply" && entry["subresource"].is_null(),
        fields: &entry["fieldsV1"],
    })
}

/// Compares a desired object with the live one. `effect` returns what changing a field does.
pub fn compare<'a>(
    desired: &'a Value,
    live: &'a Value,
    manager: &'a str,
    schema: Option<&Schema>,
    effect: fn(&FieldPath) -> (Effect, Option<&'static str>),
) -> Comparison {
    let mut walk = DiffWalker::new(manager, effect);
    let owners: Vec<ManagedFieldsEntry> = entries(live).collect();
    for (key, value) in desired.as_object().into_iter().flatten() {
        if matches!(key.as_str(), "apiVersion" | "kind") {
            continue;
        }
        let child = schema.and_then(|schema| schema.property(key));
        let below = owners_below(&owners, &format!("f:{key}"));
        walk.at(SegmentRef::Key(key), |walk| walk.field(value, live.get(key), &below, child.as_ref()));
    }
    if let Some(ours) = owners.iter().find(|owner| owner.applied && owner.manager == manager) {
        walk.removed_fields(ours.fields, Some(desired), live, schema);
    }
    walk.compared
}

/// Returns the entries that own the field `key` one level below. An entry that owns a whole value owns all fields in it.
fn owners_below<'a>(owners: &[ManagedFieldsEntry<'a>], key: &str) -> Vec<ManagedFieldsEntry<'a>> {
    let whole = |owner: &ManagedFieldsEntry| owner.fields.as_object().is_some_and(Map::is_empty);
    let below = owners.iter().filter_map(|owner| {
        if whole(owner) {
            Some(*owner)
        } else {
            Some(ManagedFieldsEntry { fields: owner.fields.get(key)?, ..*owner })
        }
    });
    below.collect()
}

struct DiffWalker<'a> {
    manager: &'a str,
    cursor: Cursor<'a>,
    effect: fn(&FieldPath) -> (Effect, Option<&'static str>),
    /// True while the compared list counts as one value.
    in_whole_list: bool,
    /// True while the `limits` or `requests` of a container are compared.
    in_requirements: bool,
    /// True while the compared value has the name of a secret.
    secret: bool,
    compared: Comparison,
}

impl<'a> DiffWalker<'a> {
    fn new(manager: &'a str, effect: fn(&FieldPath) -> (Effect, Option<&'static str>)) -> Self {
        Self {
            manager,
            cursor: Cursor::default(),
            effect,
            in_whole_list: false,
            in_requirements: false,
            secret: false,
            compared: Comparison::default(),
        }
    }

    fn at(&mut self, segment: SegmentRef<'a>, walk: impl FnOnce(&mut Self)) {
        self.cursor.enter(segment);
        walk(self);
        self.cursor.leave();
    }

    fn owned(&self, owners: &[ManagedFieldsEntry]) -> bool {
        owners.iter().any(|owner| owner.applied && owner.manager == self.manager)
    }

    fn record_difference(
        &mut self,
        before: Option<&Value>,
        after: Option<&Value>,
        owners: &[ManagedFieldsEntry],
    ) {
        let path = self.cursor.path();
        let (effect, note) = (self.effect)(&path);
        let other =
            owners.iter().find(|owner| owner.applied && !is_manager_of_stack(owner.manager, self.manager));
        if let Some(other) = other.filter(|_| after.is_some()) {
            self.compared.others.push((path.clone(), other.manager.to_owned()));
        }
        // An item that is missing from a list that another manager wrote whole was removed by that manager.
        let external = before.is_some() || self.in_whole_list && !self.owned(owners);
        let by_hand = owners.iter().find(|owner| !owner.applied).filter(|_| external);
        self.compared.changes.push(FieldChange {
            path,
            before: before.cloned(),
            after: after.cloned(),
            effect,
            note: note.map(str::to_owned),
            drift: by_hand.map(|owner| (owner.manager.to_owned(), owner.time.to_owned())),
            secret: self.secret,
        });
    }

    fn leaf(
        &mut self,
        want: &Value,
        live: Option<&Value>,
        owners: &[ManagedFieldsEntry],
        schema: Option<&Schema>,
    ) {
        self.compared.fingerprint_input.add(self.cursor.as_str(), live.unwrap_or(&Value::Null));
        let equal = match live {
            Some(live) if self.in_requirements => same(want, live, ValueFormat::Quantity),
            Some(live) => want == live || same(want, live, ValueFormat::of(schema, &self.cursor.path())),
            // The server drops zero values of built-in kinds; our entry still names the field.
            None => is_zero(want) && self.owned(owners),
        };
        if !equal {
            self.record_difference(live, Some(want), owners);
        }
    }

    fn field(
        &mut self,
        want: &'a Value,
        live: Option<&'a Value>,
        owners: &[ManagedFieldsEntry<'a>],
        schema: Option<&Schema>,
    ) {
        match (want, live) {
            (Value::Object(fields), Some(Value::Object(have))) => {
                let outside = self.in_requirements;
                self.in_requirements |= is_requirements(fields) && is_requirements(have);
                for (key, value) in fields {
                    // As most are. Whose a value is and whether it is a secret matters where it differs.
                    let scalar = matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_));
                    if let Some(live) = have.get(key).filter(|live| scalar && *live == value) {
                        self.at(SegmentRef::Key(key), |walk| {
                            walk.compared.fingerprint_input.add(walk.cursor.as_str(), live);
                        });
                        continue;
                    }
                    let child = schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
                    let below = owners_below(owners, &format!("f:{key}"));
                    // Either side says the name beside a value; a list without keys may have it on one only.
                    let secret = secrets::hides(fields, key) || secrets::hides(have, key);
                    let outside = std::mem::replace(&mut self.secret, secret);
                    self.at(SegmentRef::Key(key), |walk| {
                        walk.field(value, have.get(key), &below, child.as_ref());
                    });
                    self.secret = outside;
                }
                self.in_requirements = outside;
                if schema.is_some_and(Schema::atomic_map) {
                    self.report_extra_fields(fields, have, owners, schema);
                }
            }
            (Value::Object(fields), None) if fields.is_empty() && self.owned(owners) => {}
            // Built-in kinds keep no empty lists, and our entry does not name those whose items have keys: `env: []`, which
            // charts write. A list that is not there and an empty one mean the same.
            (Value::Array(items), None) if items.is_empty() => {}
            (Value::Array(items), Some(Value::Array(have))) => self.list(items, have, owners, schema),
            (Value::Null, _) => {}
            _ => self.leaf(want, live, owners, schema),
        }
    }

    fn list(
        &mut self,
        items: &'a [Value],
        have: &'a [Value],
        owners: &[ManagedFieldsEntry<'a>],
        schema: Option<&Schema>,
    ) {
        let kind = schema.map_or_else(|| list_kind(owners), Schema::list);
        let item_schema = schema.and_then(Schema::items);
        match kind {
            List::Map(keys) => {
                let item_schema = item_schema.as_ref();
                let pairs = match_items(&keys, items, have, item_schema);
                for (index, (item, found)) in items.iter().zip(pairs).enumerate() {
                    let live = found.map(|found| &have[found]);
                    // managedFields names the keys after defaulting.
                    let mut named = key_values(&keys, item, item_schema);
                    for (key, value) in live.map(|live| key_values(&keys, live, None)).into_iter().flatten() {
                        named.entry(key).or_insert(value);
                    }
                    let below = owners_below(owners, &format!("k:{}", Value::Object(named)));
                    let segment = SegmentRef::Index(found.unwrap_or(index));
                    self.at(segment, |walk| walk.field(item, live, &below, item_schema));
                }
            }
            List::Set => {
                for (index, item) in items.iter().enumerate() {
                    if !have.contains(item) {
                        let below = owners_below(owners, &format!("v:{item}"));
                        self.at(SegmentRef::Index(index), |walk| walk.leaf(item, None, &below, None));
                    }
                }
            }
            List::Atomic if items.len() == have.len() => {
                let outside = std::mem::replace(&mut self.in_whole_list, true);
                for (index, (item, live)) in items.iter().zip(have).enumerate() {
                    let outside = self.secret;
                    self.secret |= secrets::follows_flag(items, index) || secrets::follows_flag(have, index);
                    self.at(SegmentRef::Index(index), |walk| {
                        walk.field(item, Some(live), owners, item_schema.as_ref());
                        walk.secret = outside;
                        if let (Value::Object(item), Value::Object(live)) = (item, live) {
                            walk.report_extra_fields(item, live, owners, item_schema.as_ref());
                        }
                    });
                }
                self.in_whole_list = outside;
            }
            List::Atomic => {
                let [before, after] = [have, items].map(|list| Value::Array(list.to_vec()));
                self.record_difference(Some(&before), Some(&after), owners);
            }
        }
    }

    /// Reports fields inside an atomic value that the stack does not set. While the stack owns the value they are the server's
    /// defaults. Afterwards they are somebody's edit, unless they are defaults.
    fn report_extra_fields(
        &mut self,
        want: &Map<String, Value>,
        have: &'a Map<String, Value>,
        owners: &[ManagedFieldsEntry],
        schema: Option<&Schema>,
    ) {
        if self.owned(owners) || owners.is_empty() {
            return;
        }
        let default = |key: &str| schema.and_then(|schema| schema.property(key)?.default());
        let filled_in = |key: &str, live: &Value| default(key).is_some_and(|default| default == *live);
        for (key, live) in have.iter().filter(|(key, live)| !want.contains_key(*key) && !filled_in(key, live))
        {
            self.secret = secrets::hides(have, key);
            self.at(SegmentRef::Key(key), |walk| walk.record_difference(Some(live), None, owners));
            self.secret = false;
        }
    }

    /// Reports live fields that the field manager of this walk owns and that are no longer desired.
    fn removed_fields(
        &mut self,
        fields: &'a Value,
        desired: Option<&Value>,
        live: &Value,
        schema: Option<&Schema>,
    ) {
        let item_schema = schema.and_then(Schema::items);
        for (name, below) in fields.as_object().into_iter().flatten() {
            let mut schema_below = item_schema.clone();
            let (segment, want, have) = match name.split_once(':') {
                Some(("f", key)) => {
                    schema_below = schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
                    (SegmentRef::Key(key), desired.and_then(|desired| desired.get(key)), live.get(key))
                }
                Some(("k", keys)) => {
                    let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { continue };
                    let index = position(live, &keys, item_schema.as_ref());
                    let want = desired.and_then(|desired| {
                        position(desired, &keys, item_schema.as_ref()).map(|at| &desired[at])
                    });
                    (SegmentRef::Index(index.unwrap_or(0)), want, index.map(|index| &live[index]))
                }
                Some(("v", text)) => {
                    let Ok(value) = serde_json::from_str::<Value>(text) else { continue };
                    let find = |list: &Value| list.as_array()?.iter().position(|item| item == &value);
                    let index = find(live);
                    let want = desired.and_then(|desired| find(desired).map(|at| &desired[at]));
                    (SegmentRef::Index(index.unwrap_or(0)), want, index.map(|index| &live[index]))
                }
                _ => continue,
            };
            let Some(have) = have else { continue };
            let table =
                |value: &Value, key: &str| value.as_object().is_some_and(|table| secrets::hides(table, key));
            self.secret = name.strip_prefix("f:").is_some_and(|key| table(live, key));
            let inner = below.as_object().is_some_and(|fields| fields.keys().any(|key| key != "."));
            self.at(segment, |walk| {
                if inner && (want.is_some() || !have.is_array()) {
                    walk.removed_fields(below, want, have, schema_below.as_ref());
                } else if want.is_none() {
                    walk.record_difference(Some(have), None, &[]);
                }
            });
            self.secret = false;
        }
    }
}

/// Returns how to match the items of a list that has no schema: by the keys that managedFields names. Without any, the list is one
/// value.
fn list_kind(owners: &[ManagedFieldsEntry]) -> List {
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

/// Returns the values of a list item's keys, with defaults.
fn key_values(keys: &[String], item: &Value, schema: Option<&Schema>) -> Map<String, Value> {
    let value = |key: &String| {
        let default = || schema.and_then(|schema| schema.property(key)).and_then(|field| field.default());
        item.get(key).cloned().or_else(default)
    };
    keys.iter().filter_map(|key| Some((key.clone(), value(key)?))).collect()
}

/// Returns the index of the item with these keys, with defaults. Without a known default, a key that an item lacks matches any
/// value; items with all keys are preferred.
fn position(list: &Value, keys: &Map<String, Value>, schema: Option<&Schema>) -> Option<usize> {
    let names: Vec<String> = keys.keys().cloned().collect();
    let items = list.as_array()?;
    let exact = items.iter().position(|item| key_values(&names, item, schema) == *keys);
    let fits = |item: &Value| {
        key_values(&names, item, schema).iter().all(|(name, value)| keys.get(name) == Some(value))
    };
    exact.or_else(|| items.iter().position(fits))
}

/// Returns the live item with the same keys for each desired one. Without a known default, the server may have filled in a key
/// that the desired item lacks: then it matches an item that no other one names.
fn match_items(
    keys: &[String],
    items: &[Value],
    have: &[Value],
    schema: Option<&Schema>,
) -> Vec<Option<usize>> {
    let values = |item: &Value| key_values(keys, item, schema);
    let live: Vec<Map<String, Value>> = have.iter().map(values).collect();
    let mut pairs: Vec<Option<usize>> = items
        .iter()
        .map(|item| {
            let desired = values(item);
            live.iter().position(|live| *live == desired)
        })
        .collect();
    for (index, item) in items.iter().enumerate() {
        let desired = values(item);
        if pairs[index].is_some() || desired.len() == keys.len() {
            continue;
        }
        let free = |at: &usize| !pairs.contains(&Some(*at));
        let fits = |at: &usize| desired.iter().all(|(key, value)| live[*at].get(key) == Some(value));
        pairs[index] = (0..live.len()).filter(free).find(fits);
    }
    pairs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use model::schema;

    fn check(desired: Value, live: Value, expect: &[&str]) {
        check_with(schema::builtin("apps", "v1", "Deployment").as_ref(), desired, live, expect);
    }

    fn check_with(schema: Option<&Schema>, desired: Value, live: Value, expect: &[&str]) {
        let compared = compare(&desired, &live, "dask-infra/s", schema, |_| (Effect::InPlace, None));
        let show = |value: &Option<Value>| value.as_ref().map_or("-".into(), Value::to_string);
        let found: Vec<String> = compared
            .changes
            .iter()
            .map(|c| {
                let by = c.drift.as_ref().map_or(String::new(), |(manager, _)| format!(" by {manager}"));
                format!("{}: {} -> {}{by}", c.path, show(&c.before), show(&c.after))
            })
            .collect();
        assert_eq!(found, expect, "{desired} against {live}");
    }

    fn managed(live: Value, fields: Value) -> Value {
        let mut live = live;
        live["metadata"]["managedFields"] =
            json!([{ "manager": "dask-infra/s", "operation": "Apply", "fieldsV1": fields }]);
        live
    }

    #[test]
    fn what_the_server_filled_in_is_no_difference() {
        let desired = json!({ "spec": { "replicas": 1, "template": { "spec": {
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
        check(desired, managed(live, fields), &[]);
    }

    /// Returns a Service for DNS, as every cluster has one.
    fn dns() -> (Value, Value) {
        let desired = json!({ "spec": { "ports": [
            { "name": "dns-tcp", "port": 53 }, { "name": "dns", "port": 53, "protocol": "UDP" }
        ] } });
        let live = json!({ "spec": { "ports": [
            { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53 },
            { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
        ] } });
        let fields = json!({ "f:spec": { "f:ports": {
            r#"k:{"port":53,"protocol":"TCP"}"#: { ".": {}, "f:name": {}, "f:port": {} },
            r#"k:{"port":53,"protocol":"UDP"}"#: { ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {} },
        } } });
        (desired, managed(live, fields))
    }

    #[test]
    fn one_port_with_two_protocols_is_two_items() {
        let (desired, live) = dns();
        let service = schema::builtin("", "v1", "Service");
        let mut turned = desired.clone();
        turned["spec"]["ports"].as_array_mut().unwrap().reverse();
        for desired in [&desired, &turned] {
            check_with(service.as_ref(), desired.clone(), live.clone(), &[]);
            check_with(None, desired.clone(), live.clone(), &[]);
        }
        let one = json!({ "spec": { "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }] } });
        let gone = [r#"spec.ports[0].name: "dns-tcp" -> -"#, "spec.ports[0].port: 53 -> -"];
        check_with(service.as_ref(), one, live.clone(), &gone);
        let other = json!({ "spec": { "ports": [
            { "name": "dns-tcp", "port": 53 }, { "name": "dns", "port": 53, "protocol": "UDP", "nodePort": 1 }
        ] } });
        for schema in [service.as_ref(), None] {
            check_with(schema, other.clone(), live.clone(), &["spec.ports[1].nodePort: - -> 1"]);
        }
    }

    /// A pod inside a DaskCluster, whose definition calls quantities text.
    #[test]
    fn spellings_in_custom_resources_are_no_difference() {
        let dask = |limits: Value, env: Value, label: Value| {
            json!({ "metadata": { "labels": { "tier": label } }, "spec": { "worker": { "spec": { "containers": [{
                "name": "worker", "image": "x", "resources": { "limits": limits, "requests": { "cpu": "500m" } },
                "env": [{ "name": "A", "value": env }],
            }], "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "1Gi" } }] } } } })
        };
        let desired =
            dask(json!({ "memory": "8Gi", "cpu": "1", "nvidia.com/gpu": 1 }), json!("1"), json!("1"));
        let mut live = dask(
            json!({ "memory": "8192Mi", "cpu": "1000m", "nvidia.com/gpu": "1" }),
            json!("1000m"),
            json!("1000m"),
        );
        live["spec"]["worker"]["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = json!("1024Mi");
        let differ = [
            r#"metadata.labels.tier: "1000m" -> "1""#,
            r#"spec.worker.spec.containers[0].env[0].value: "1000m" -> "1""#,
        ];
        for schema in [schema::dask("DaskCluster"), None, Some(Schema::any())] {
            check_with(schema.as_ref(), desired.clone(), live.clone(), &differ);
        }
        let more = dask(json!({ "memory": "9Gi", "cpu": "1", "nvidia.com/gpu": 1 }), json!("1"), json!("1"));
        let path = "spec.worker.spec.containers[0].resources.limits.memory";
        check_with(None, more, desired, &[&format!(r#"{path}: "8Gi" -> "9Gi""#)]);
    }

    /// Checks spellings that only the definition of a custom kind allows.
    #[test]
    fn spellings_that_a_definition_allows_are_no_difference() {
        let quantity = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
        let schema = Schema::from_crd(&json!({ "type": "object", "properties": { "spec": {
            "type": "object", "properties": {
                "size": { "x-kubernetes-int-or-string": true, "pattern": quantity },
                "port": { "x-kubernetes-int-or-string": true },
                "every": { "type": "string", "format": "duration" },
                "word": { "type": "string" },
            },
        } } }));
        let desired = json!({ "spec": { "size": 1, "port": 80, "every": "1h", "word": "1h" } });
        let live = json!({ "spec": { "size": "1000m", "port": "80", "every": "60m", "word": "60m" } });
        let word = r#"spec.word: "60m" -> "1h""#;
        check_with(Some(&schema), desired.clone(), live.clone(), &[word]);
        let all =
            [r#"spec.every: "60m" -> "1h""#, r#"spec.port: "80" -> 80"#, r#"spec.size: "1000m" -> 1"#, word];
        check_with(None, desired, live, &all);
        let other = json!({ "spec": { "size": "1m", "port": "1000m", "every": "1m" } });
        let desired = json!({ "spec": { "size": 1, "port": 1, "every": "1h" } });
        let differ = [r#"spec.every: "1m" -> "1h""#, r#"spec.port: "1000m" -> 1"#, r#"spec.size: "1m" -> 1"#];
        check_with(Some(&schema), desired, other, &differ);
    }

    #[test]
    fn a_default_in_a_list_that_others_wrote_whole_is_no_edit() {
        let item = json!({ "type": "object", "properties": {
            "a": { "type": "string" }, "b": { "type": "integer", "default": 3 },
        } });
        let list = json!({ "type": "object", "properties": { "list": { "type": "array", "items": item } } });
        let schema = Schema::from_crd(&json!({ "type": "object", "properties": { "spec": list } }));
        let mut live = json!({ "spec": { "list": [{ "a": "x", "b": 3 }, { "a": "theirs", "b": 4 }] } });
        live["metadata"]["managedFields"] = json!([{
            "manager": "other", "operation": "Update", "time": "2026-11-21T10:00:00Z",
            "fieldsV1": { "f:spec": { "f:list": {} } },
        }]);
        let desired = json!({ "spec": { "list": [{ "a": "x" }, { "a": "y" }] } });
        let edits = [r#"spec.list[1].a: "theirs" -> "y" by other"#, "spec.list[1].b: 4 -> - by other"];
        check_with(Some(&schema), desired, live, &edits);
    }

    /// A changed leaf has no name beside it: whether it is a secret is known where the two objects are.
    #[test]
    fn values_of_secrets_are_known_by_the_name_beside_them() {
        let object = |schema: bool, env: Value, args: Value, data: Value| {
            let pod = json!({ "containers": [{ "name": "a", "env": env, "args": args }] });
            match schema {
                true => json!({ "spec": { "template": { "spec": pod } }, "data": data }),
                false => json!({ "spec": { "pod": pod }, "data": data }),
            }
        };
        for with_schema in [true, false] {
            let desired = object(
                with_schema,
                json!([{ "name": "A", "value": "wA" }, { "name": "A_TOKEN", "value": "w1" }, { "name": "NEW_TOKEN", "value": "w2" }]),
                json!(["--password", "w3", "--n=w4"]),
                json!({ "password": "w5", "mode": "w6" }),
            );
            // In another order, as others may have written it.
            let live = object(
                with_schema,
                json!([{ "name": "A_TOKEN", "value": "l1" }, { "name": "A", "value": "lA" }, { "name": "GONE_TOKEN", "value": "l2" }]),
                json!(["--password", "l3", "--n=l4"]),
                json!({ "password": "l5", "mode": "l6", "old_password": "l7" }),
            );
            let fields = json!({ "f:data": { "f:old_password": {} }, "f:spec": { "f:template": { "f:spec": { "f:containers": {
                r#"k:{"name":"a"}"#: { "f:env": { r#"k:{"name":"GONE_TOKEN"}"#: { ".": {}, "f:name": {}, "f:value": {} } } } } } } } });
            let live = managed(live, fields);
            let schema = with_schema.then(|| schema::builtin("apps", "v1", "Deployment")).flatten();
            let compared =
                compare(&desired, &live, "dask-infra/s", schema.as_ref(), |_| (Effect::InPlace, None));
            let shown: Vec<String> = compared
                .changes
                .iter()
                .map(|change| {
                    let (before, after) = change.shown();
                    format!("{}: {before:?} -> {after:?}", change.path)
                })
                .collect();
            let all = shown.join("\n");
            for secret in ["w1", "w2", "w3", "w5", "l1", "l2", "l3", "l5", "l7"] {
                assert!(!all.contains(secret), "{secret} in\n{all}");
            }
            // Without keys the variables are compared by their places.
            for open in ["wA", "lA", "w4", "l4", "w6", "l6"].iter().skip(if with_schema { 0 } else { 2 }) {
                assert!(all.contains(open), "{open} not in\n{all}");
            }
        }
    }

    #[test]
    fn items_are_matched_by_key_and_not_by_place() {
        let desired = json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "a", "image": "new" }, { "name": "b", "image": "same" }
        ] } } } });
        let live = json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "injected", "image": "z" }, { "name": "b", "image": "same" }, { "name": "a", "image": "old" }
        ] } } } });
        check(desired, live, &[r#"spec.template.spec.containers[2].image: "old" -> "new""#]);
    }

    #[test]
    fn owned_fields_that_are_no_longer_desired_are_released() {
        let fields = json!({
            "f:metadata": { "f:labels": { "f:a": {}, "f:b": {} } },
            "f:spec": { "f:paused": {}, "f:replicas": {} },
        });
        let live = json!({
            "metadata": { "labels": { "a": "1", "b": "2", "theirs": "3" } }, "spec": { "paused": true, "replicas": 2 },
        });
        let desired = json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "replicas": 2 } });
        let live = managed(live, fields);
        check(desired, live, &[r#"metadata.labels.b: "2" -> -"#, "spec.paused: true -> -"]);
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
        let desired = json!({ "spec": { "template": { "spec": { "tolerations": [{ "key": "a", "operator": "Exists" }] } } } });
        let mut live = json!({ "spec": { "template": { "spec": { "tolerations": [{ "key": "b" }] } } } });
        live["metadata"]["managedFields"] = json!([{
            "manager": "kubectl-patch", "operation": "Update", "time": "2026-11-21T10:00:00Z",
            "fieldsV1": { "f:spec": { "f:template": { "f:spec": { "f:tolerations": {} } } } },
        }]);
        let path = "spec.template.spec.tolerations[0]";
        let both = [
            format!(r#"{path}.key: "b" -> "a" by kubectl-patch"#),
            format!(r#"{path}.operator: - -> "Exists" by kubectl-patch"#),
        ];
        check(desired, live, &both.each_ref().map(String::as_str));
    }
}
