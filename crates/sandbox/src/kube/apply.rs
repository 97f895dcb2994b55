//! Field ownership: what a write does to `metadata.managedFields`, and server-side apply. Follows
//! sigs.k8s.io/structured-merge-diff (package merge) and apimachinery's managedfields package.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::fields::{Element, Set, path_text};
use super::object::{fill, text, time};
use super::scheme::{Kind, Origin};
use super::status::{Cause, Status};
use super::typed::{self, Shape};

/// More `Update` entries than these are merged into one named `ancient-changes`.
const MAX_UPDATE_ENTRIES: usize = 10;

/// The manager that owns what was there before the first apply, when nobody was recorded.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Metadata that nobody owns.
const UNOWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Apply,
    Update,
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    operation: Operation,
    time: Option<String>,
    manager: String,
    api_version: String,
    subresource: String,
    set: Set,
}

impl Entry {
    /// Returns true if both are the same manager's: appliers whatever their version, updaters by version.
    fn is_same(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    fn decode(entry: &Value) -> Option<Self> {
        let operation = match text(entry, "/operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let own = |pointer: &str| text(entry, pointer).to_owned();
        Some(Self {
            operation,
            time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            manager: own("/manager"),
            api_version: own("/apiVersion"),
            subresource: own("/subresource"),
            set: Set::decode(entry.get("fieldsV1").unwrap_or(&Value::Null)),
        })
    }

    fn encode(&self) -> Value {
        let mut entry = json!({
            "apiVersion": self.api_version, "fieldsType": "FieldsV1", "fieldsV1": self.set.encode(),
            "manager": self.manager,
            "operation": match self.operation { Operation::Apply => "Apply", Operation::Update => "Update" },
        });
        if let Some(time) = &self.time {
            entry["time"] = json!(time);
        }
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }

    /// As conflict messages name it.
    fn describe(&self) -> String {
        let mut name = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            name += &format!(" with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            name += &format!(" using {}", self.api_version);
        }
        name
    }
}

fn decode(object: &Value) -> Vec<Entry> {
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Entry::decode).collect()
}

/// Writes the entries in the API server's order.
fn encode(object: &mut Value, mut entries: Vec<Entry>) {
    entries.sort_by(|a, b| {
        (a.operation, &a.time, &a.manager, &a.api_version, &a.subresource).cmp(&(
            b.operation,
            &b.time,
            &b.manager,
            &b.api_version,
            &b.subresource,
        ))
    });
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        let list: Vec<Value> = entries.iter().map(Entry::encode).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(list));
    }
}

fn without_entries(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// The author of a write, with the subresource and the time.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager's name.
    pub manager: &'a str,
    /// `status`, `scale`, or empty for the object itself.
    pub subresource: &'a str,
    /// When.
    pub now: Timestamp,
}

/// Records that a plain write has turned `live` into `object` (`None`: created it).
pub fn update(kind: &Kind, live: Option<&Value>, object: &mut Value, writer: Writer<'_>) {
    let entries = if writer.subresource.is_empty() { sent_entries(live, object) } else { live.map(decode) };
    let Some(entries) = entries else { return };
    if entries.is_empty() && live.is_some() {
        // Nobody was recorded so far: tracking starts with the first apply.
        encode(object, entries);
        return;
    }
    let new = without_entries(object);
    let old = live.map_or_else(|| zero(kind), without_entries);
    let entries = record_update(kind, &old, &new, entries, writer);
    encode(object, entries);
}

/// The entries to go on from: those in the request when it carries any, else the live ones. An empty
/// list in the request resets them.
fn sent_entries(live: Option<&Value>, object: &Value) -> Option<Vec<Entry>> {
    let sent = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let reset = sent.is_some_and(|list| match list.as_slice() {
        [] => true,
        [only] => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    });
    if reset {
        return Some(Vec::new());
    }
    let decoded = decode(object);
    if !decoded.is_empty() {
        return Some(decoded);
    }
    Some(live.map(decode).unwrap_or_default())
}

fn record_update(
    kind: &Kind,
    old: &Value,
    new: &Value,
    entries: Vec<Entry>,
    writer: Writer<'_>,
) -> Vec<Entry> {
    let Writer { manager, subresource, now } = writer;
    let shape = Shape::of_kind(kind);
    let compared = typed::compare(&shape, old, new);
    let filter = |set: &Set| visible(kind, subresource, set);
    let taken = filter(&compared.modified.union(&compared.added));
    let removed = filter(&compared.removed);
    let mut entries = release(entries, &taken, &removed, |_| true);
    let set = strip(&taken);
    if !set.is_empty() {
        let mine = Entry {
            operation: Operation::Update,
            time: Some(time(now)),
            manager: if manager.is_empty() { "unknown".to_owned() } else { manager.to_owned() },
            api_version: kind.api_version(),
            subresource: subresource.to_owned(),
            set,
        };
        match entries.iter_mut().find(|entry| entry.is_same(&mine)) {
            Some(entry) => {
                entry.set = entry.set.union(&mine.set);
                entry.time = mine.time;
            }
            None => entries.push(mine),
        }
    }
    cap(entries)
}

/// Takes fields from those entries that `whose` picks; entries that own nothing any more go.
fn release(entries: Vec<Entry>, taken: &Set, removed: &Set, whose: impl Fn(&Entry) -> bool) -> Vec<Entry> {
    entries
        .into_iter()
        .map(|mut entry| {
            if whose(&entry) {
                let conflict = entry.set.intersection(taken);
                entry.set = entry.set.difference(&conflict).difference(removed);
            }
            entry
        })
        .filter(|entry| !entry.set.is_empty())
        .collect()
}

/// The part of a set that a write through this door can touch: a write of the object does not reach
/// `status` when that is a subresource, and the other way round.
fn visible(kind: &Kind, subresource: &str, set: &Set) -> Set {
    match subresource {
        "status" => set.only("status"),
        "" if kind.has("status") => set.without("status"),
        _ => set.clone(),
    }
}

fn strip(set: &Set) -> Set {
    let unowned: Set = UNOWNED
        .iter()
        .map(|path| path.iter().map(|name| Element::Field((*name).to_owned())).collect::<Vec<_>>())
        .collect();
    set.difference(&unowned)
}

/// Merges the oldest `Update` entries when there are too many.
fn cap(mut entries: Vec<Entry>) -> Vec<Entry> {
    let updates = entries.iter().filter(|entry| entry.operation == Operation::Update).count();
    if updates <= MAX_UPDATE_ENTRIES {
        return entries;
    }
    entries.sort_by(|a, b| (a.operation, &a.time).cmp(&(b.operation, &b.time)));
    let first = entries.iter().position(|entry| entry.operation == Operation::Update).unwrap_or(0);
    let mut merged: Vec<Entry> = Vec::new();
    let surplus = updates - MAX_UPDATE_ENTRIES + 1;
    for old in entries.drain(first..first + surplus) {
        let bucket = Entry { manager: "ancient-changes".to_owned(), subresource: String::new(), ..old };
        match merged.iter_mut().find(|entry| entry.is_same(&bucket)) {
            Some(entry) => {
                entry.set = entry.set.union(&bucket.set);
                entry.time = bucket.time;
            }
            None => merged.push(bucket),
        }
    }
    entries.extend(merged);
    entries
}

/// Ways to treat a conflict of an apply with other owners of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Conflicts are refused.
    No,
    /// Conflicting fields change hands.
    Yes,
}

/// Server-side apply: lays `config` over `live` (`None`: nothing is there yet) for `writer`, drops what
/// the same manager applied before and no longer does, and records who owns what. The answer still
/// lacks defaults, and carries nulls where everything of a field went.
pub fn apply(
    kind: &Kind,
    live: Option<&Value>,
    config: &Value,
    writer: Writer<'_>,
    force: Force,
) -> Result<Value, Status> {
    check(kind, config)?;
    let (old, mut entries) = match live {
        Some(live) => (without_entries(live), decode(live)),
        None => (zero(kind), Vec::new()),
    };
    if entries.is_empty() && live.is_some() {
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..writer };
        entries = record_update(kind, &zero(kind), &old, entries, before);
    }
    let outcome = lay_over(kind, &old, config, &entries, writer, force);
    let (new, entries) = match outcome {
        Ok(result) => result,
        Err(conflicts) => {
            // kubectl moving from client-side apply takes over what its annotation says it owned.
            let open = match (writer.manager, allowed_by_annotation(kind, &old)) {
                ("kubectl", Some(allowed)) => {
                    conflicts.into_iter().filter(|(_, path)| !allowed.has(path)).collect()
                }
                _ => conflicts,
            };
            if !open.is_empty() {
                return Err(refuse(&open));
            }
            lay_over(kind, &old, config, &entries, writer, Force::Yes)
                .map_err(|conflicts| refuse(&conflicts))?
        }
    };
    let mut object = new;
    if writer.manager == "kubectl"
        && old.pointer("/metadata/annotations").is_some_and(|a| a.get(LAST_APPLIED).is_some())
    {
        let mut applied = config.clone();
        if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.remove(LAST_APPLIED);
        }
        object["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{applied}\n"));
    }
    encode(&mut object, entries);
    Ok(object)
}

/// The applied configuration must fit the schema.
pub fn check(kind: &Kind, config: &Value) -> Result<(), Status> {
    if config.pointer("/metadata/managedFields").is_some_and(|value| !value.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let errors = typed::validate(&Shape::of_kind(kind), config);
    if errors.is_empty() {
        return Ok(());
    }
    let list = match errors.as_slice() {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    let Kind { group, version, kind, .. } = kind;
    let (namespace, name) = (text(config, "/metadata/namespace"), text(config, "/metadata/name"));
    Err(Status::unknown(format!(
        "failed to create typed patch object ({namespace}/{name}; {group}/{version}, Kind={kind}): {list}"
    )))
}

type Conflict = (String, Vec<Element>);

fn lay_over(
    kind: &Kind,
    old: &Value,
    config: &Value,
    entries: &[Entry],
    writer: Writer<'_>,
    force: Force,
) -> Result<(Value, Vec<Entry>), Vec<Conflict>> {
    let Writer { manager, subresource, now } = writer;
    let shape = Shape::of_kind(kind);
    let merged = typed::merge(&shape, Some(old), Some(config)).unwrap_or_else(|| config.clone());
    let mut mine = Entry {
        operation: Operation::Apply,
        time: None,
        manager: manager.to_owned(),
        api_version: kind.api_version(),
        subresource: subresource.to_owned(),
        set: visible(kind, subresource, &typed::field_set(&shape, config)),
    };
    let last = entries.iter().find(|entry| entry.is_same(&mine)).cloned();
    mine.time = last.as_ref().and_then(|last| last.time.clone());
    let mut entries: Vec<Entry> = entries.iter().filter(|entry| !entry.is_same(&mine)).cloned().collect();
    entries.push(mine.clone());
    let new = match last {
        Some(last) if !last.set.is_empty() => prune(&shape, merged, &entries, &last.set),
        _ => merged,
    };
    let compared = typed::compare(&shape, old, &new);
    let taken = visible(kind, subresource, &compared.modified.union(&compared.added));
    let removed = visible(kind, subresource, &compared.removed);
    let others = |entry: &Entry| !entry.is_same(&mine);
    if force == Force::No {
        let mut conflicts: Vec<Conflict> = Vec::new();
        for entry in entries.iter().filter(|entry| others(entry)) {
            let paths = entry.set.intersection(&taken).paths();
            conflicts.extend(paths.into_iter().map(|path| (entry.describe(), path)));
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    let mut entries = release(entries, &taken, &removed, others);
    let changed = new != *old;
    for entry in &mut entries {
        if entry.is_same(&mine) {
            entry.set = strip(&entry.set);
            if changed {
                entry.time = Some(time(now));
            }
        }
    }
    entries.retain(|entry| !entry.set.is_empty());
    Ok((new, entries))
}

/// Removes what the manager applied last time, unless it or somebody else still owns it.
fn prune(shape: &Shape, merged: Value, entries: &[Entry], last: &Set) -> Value {
    let named = |set: &Set| typed::with_named_fields(shape, set);
    let set_of = |value: &Value| named(&typed::field_set(shape, value));
    let last = named(last);
    let pruned = typed::remove(shape, &merged, &last);
    let owned = entries.iter().fold(Set::default(), |all, entry| all.union(&entry.set));
    let everything = set_of(&merged);
    let gone = everything.difference(&set_of(&pruned).union(&named(&owned)));
    let pruned = typed::remove(shape, &merged, &gone);
    let gone = everything.difference(&set_of(&pruned)).intersection(&last);
    typed::remove(shape, &merged, &gone)
}

fn refuse(conflicts: &[Conflict]) -> Status {
    let causes = conflicts
        .iter()
        .map(|(manager, path)| {
            Cause::new("FieldManagerConflict", path_text(path), format!("conflict with {manager}"))
        })
        .collect();
    let message = match conflicts {
        [(manager, path)] => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {}", path_text(path))
        }
        many => {
            let mut managers: Vec<&String> = many.iter().map(|(manager, _)| manager).collect();
            managers.sort();
            managers.dedup();
            let mut lines = Vec::new();
            for manager in managers {
                lines.push(format!("conflicts with {manager}:"));
                let theirs = many.iter().filter(|(owner, _)| owner == manager);
                lines.extend(theirs.map(|(_, path)| format!("- {}", path_text(path))));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    Status::apply_conflict(message, causes)
}

/// The fields that kubectl's client-side annotation still matches in the live object.
fn allowed_by_annotation(kind: &Kind, live: &Value) -> Option<Set> {
    let annotation = live.pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
    let applied: Value = serde_json::from_str(annotation).ok()?;
    if text(&applied, "/apiVersion") != kind.api_version() {
        return None;
    }
    let shape = Shape::of_kind(kind);
    let compared = typed::compare(&shape, &applied, live);
    let set = typed::field_set(&shape, &applied);
    Some(set.difference(&compared.modified).difference(&compared.added).difference(&compared.removed))
}

/// A new object of the kind as the server's own types print it: structs that cannot be left out are
/// there, and so are not owned as such by whoever creates the object.
fn zero(kind: &Kind) -> Value {
    let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.kind});
    if kind.origin == Origin::Custom {
        return object;
    }
    object["metadata"] = json!({});
    fill(&mut object, &(kind.strategy.zero)());
    object
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
