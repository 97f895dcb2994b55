//! One Kubernetes cluster: objects with versions, the history that watches read, and the writes that
//! controllers make. Everything takes the time from outside and is deterministic.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::apply::{self, Writer};
use super::form::{self, normalize};
use super::kinds::{namespace, service};
use super::numbers::Numbers;
use super::object::{Key, concerns_others, generation, is_deleted, list, number, text, time};
use super::scheme::{Kind, Kinds};
use super::status::{Cause, Status};
use super::strategy::Deletion;
use crate::persist::MOST;

/// How many changes the history keeps; a watch from before them gets 410 Gone, as when etcd compacts.
const HISTORY: usize = 20_000;

/// The change of an object in one revision.
#[derive(Clone, Debug)]
pub struct Change {
    /// The store's revision after the change.
    pub revision: u64,
    /// Which object.
    pub key: Key,
    /// The object before, `None` when it was created.
    pub before: Option<Arc<Value>>,
    /// The object after, `None` when it was removed.
    pub after: Option<Arc<Value>>,
}

/// A change that persistence must write.
#[derive(Clone, Debug)]
pub enum Dirty {
    /// Store this object.
    Put(Key, Value),
    /// Forget this object.
    Remove(Key),
    /// Store the cluster's own counters.
    Meta(Value),
}

/// Policies for the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The owner goes at once, its dependents after it.
    Background,
    /// The owner waits for those dependents that block it.
    Foreground,
    /// The dependents stay and lose the reference.
    Orphan,
}

/// The options of a DELETE.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Seconds that a pod gets; `None` takes the pod's own.
    pub grace_period_seconds: Option<i64>,
    /// `None` takes the kind's default.
    pub propagation: Option<Propagation>,
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must be at this version.
    pub resource_version: Option<String>,
    /// Say what would happen, change nothing.
    pub dry_run: bool,
}

/// One Kubernetes cluster.
#[derive(Debug, Default)]
pub struct Cluster {
    revision: u64,
    numbers: Numbers,
    objects: BTreeMap<Key, Arc<Value>>,
    pub(super) kinds: Kinds,
    history: VecDeque<Change>,
    /// Watches from a revision before this one are too old.
    horizon: u64,
    /// The revision of the last change of each resource, by group and plural; what was restored has none.
    touched: BTreeMap<Resource, u64>,
    dirty: BTreeSet<Key>,
    dirty_meta: bool,
    /// The revision that `collect` has seen through.
    pub(super) collected: u64,
    /// True if a change since then can lead to the deletion of other objects.
    pub(super) concerns_others: bool,
}

/// A resource by its group and plural.
pub(super) type Resource = (String, String);

impl Cluster {
    /// A cluster as it is right after its creation: the four system namespaces, their default service
    /// accounts and the `kubernetes` Service. `seed` makes its uids differ from other clusters'.
    pub fn new(seed: &str, now: Timestamp) -> Self {
        let mut cluster = Self { numbers: Numbers::new(seed, 0), ..Self::default() };
        for object in namespace::system().chain([service::kubernetes()]) {
            // Creation in an empty store has nothing to collide with.
            let _ = cluster.create(now, "kube-apiserver", object);
        }
        cluster.collect(now);
        // Writes before the server listens are not in its watch history.
        cluster.compact();
        cluster
    }

    /// A cluster from what persistence kept; `meta` is the last [`Dirty::Meta`].
    pub fn restore(meta: &Value, entries: impl IntoIterator<Item = (Key, Value)>) -> Result<Self, String> {
        let number = |name: &str| {
            meta.get(name).and_then(Value::as_u64).filter(|counted| *counted <= MOST).ok_or_else(|| {
                format!("the stored state of a Kubernetes cluster has no number `{name}` that can be: reset the sandbox")
            })
        };
        let revision = number("revision")?;
        let numbers = Numbers::new(text(meta, "/seed"), number("counter")?);
        let mut cluster =
            Self { numbers, revision, horizon: revision, concerns_others: true, ..Self::default() };
        for (key, object) in entries {
            cluster.kinds.note(&key, Some(&object));
            cluster.objects.insert(key, Arc::new(object));
        }
        Ok(cluster)
    }

    /// Returns a copy for a dry run, which is dropped after it: its objects, kinds and numbers, without the history.
    pub(super) fn scratch(&mut self) -> Self {
        Self {
            revision: self.revision,
            numbers: self.numbers.of_dry_run(),
            objects: self.objects.clone(),
            kinds: self.kinds.clone(),
            horizon: self.revision,
            touched: self.touched.clone(),
            collected: self.collected,
            concerns_others: self.concerns_others,
            ..Self::default()
        }
    }

    /// The object of that key.
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key).map(AsRef::as_ref)
    }

    /// Objects of a resource in all namespaces, sorted by namespace and name.
    pub fn list(&self, group: &str, resource: &str) -> impl Iterator<Item = (&Key, &Value)> + use<'_> {
        self.list_after(Key::new(group, resource, "", ""))
    }

    /// Objects of the key's resource from that key on, sorted by namespace and name.
    pub fn list_after(&self, start: Key) -> impl Iterator<Item = (&Key, &Value)> + use<'_> {
        let (group, resource) = (start.group.clone(), start.resource.clone());
        self.objects
            .range((Bound::Included(start), Bound::Unbounded))
            .take_while(move |(key, _)| key.group == group && key.resource == resource)
            .map(|(key, object)| (key, object.as_ref()))
    }

    /// Objects of a resource as they were at a revision, sorted by namespace and name; `None` when the
    /// history does not reach back that far.
    pub fn list_at(&self, revision: u64, group: &str, resource: &str) -> Option<Vec<(Key, Arc<Value>)>> {
        let start = Key::new(group, resource, "", "");
        let is_mine = |key: &Key| key.group == group && key.resource == resource;
        let mut found: BTreeMap<Key, Arc<Value>> = self
            .objects
            .range((Bound::Included(start), Bound::Unbounded))
            .take_while(|(key, _)| is_mine(key))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let changes: Vec<&Change> = self.changes_since(revision)?.collect();
        for change in changes.into_iter().rev().filter(|change| is_mine(&change.key)) {
            match &change.before {
                Some(before) => drop(found.insert(change.key.clone(), before.clone())),
                None => drop(found.remove(&change.key)),
            }
        }
        Some(found.into_iter().collect())
    }

    /// All objects, sorted by key.
    pub fn objects(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.objects.iter().map(|(key, object)| (key, object.as_ref()))
    }

    /// The store's revision; it moves with every change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns true if one of these resources has changed after `revision`.
    pub(super) fn has_changed_since<'r>(
        &self,
        revision: u64,
        mut resources: impl Iterator<Item = &'r Resource>,
    ) -> bool {
        resources.any(|resource| self.touched.get(resource).is_some_and(|last| *last > revision))
    }

    /// The oldest revision that the history can go on from.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Forgets what was before now, as etcd does from time to time: who reads on from there gets 410.
    pub fn compact(&mut self) {
        self.history.clear();
        self.horizon = self.revision;
    }

    /// The changes after `revision`, or `None` when the history does not reach back that far.
    pub fn changes_since(&self, revision: u64) -> Option<impl Iterator<Item = &Change>> {
        if revision < self.horizon {
            return None;
        }
        let start = self.history.partition_point(|change| change.revision <= revision);
        Some(self.history.range(start..))
    }

    /// Takes the changes since the last call, which must be written to disk.
    pub fn take_dirty(&mut self) -> Vec<Dirty> {
        let mut entries: Vec<Dirty> = std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|key| match self.objects.get(&key) {
                Some(object) => Dirty::Put(key, object.as_ref().clone()),
                None => Dirty::Remove(key),
            })
            .collect();
        if std::mem::take(&mut self.dirty_meta) {
            entries.push(self.meta());
        }
        entries
    }

    fn meta(&self) -> Dirty {
        let (seed, counter) = (self.numbers.seed(), self.numbers.drawn());
        Dirty::Meta(json!({"seed": seed, "revision": self.revision, "counter": counter}))
    }

    /// Forgets what has changed since the last call: nobody writes it to disk. Returns true if there was anything.
    pub fn drop_dirty(&mut self) -> bool {
        let objects = !std::mem::take(&mut self.dirty).is_empty();
        std::mem::take(&mut self.dirty_meta) || objects
    }

    /// Everything that persistence must know of this cluster, as if all of it were dirty.
    pub fn snapshot(&self) -> Vec<Dirty> {
        let mut entries: Vec<Dirty> = self
            .objects
            .iter()
            .map(|(key, object)| Dirty::Put(key.clone(), object.as_ref().clone()))
            .collect();
        entries.push(self.meta());
        entries
    }

    /// The kind of that name, built in or from a CRD, served or not yet.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.kinds.by_kind(api_version, kind)
    }

    /// Creates an object as a controller does: defaults and identity are filled in, nothing is judged
    /// but that the kind exists, the name is free and the namespace is there.
    pub fn create(&mut self, now: Timestamp, manager: &str, object: Value) -> Result<Value, Status> {
        let kind = self.kind_of(&object)?;
        let mut object = object;
        // In the order of a client's request: what admission and the kind's own rules add is nobody's.
        form::fill(&kind, &mut object);
        normalize(&kind, &mut object);
        apply::update(&kind, None, &mut object, Writer { manager, subresource: "", now });
        self.prepare(now, &kind, &mut object)?;
        normalize(&kind, &mut object);
        self.insert(&kind, object)
    }

    /// Changes an object as a controller does. Nothing happens, and no watcher sees anything, when the
    /// change leaves it equal. `metadata.generation` moves when the kind counts it.
    pub fn update(
        &mut self,
        now: Timestamp,
        manager: &str,
        key: &Key,
        change: impl FnOnce(&mut Value),
    ) -> Result<Value, Status> {
        self.update_through("", now, manager, key, change)
    }

    /// [`Cluster::update`] through a subresource that lets metadata pass with it.
    pub fn update_through(
        &mut self,
        subresource: &str,
        now: Timestamp,
        manager: &str,
        key: &Key,
        change: impl FnOnce(&mut Value),
    ) -> Result<Value, Status> {
        let (kind, live) = self.live(key)?;
        let mut object = live.as_ref().clone();
        change(&mut object);
        self.write(&kind, &live, object, Writer { manager, subresource, now })
    }

    /// Stores what a writer has made of the live object, if it is something else.
    fn write(
        &mut self,
        kind: &Kind,
        live: &Value,
        mut object: Value,
        writer: Writer<'_>,
    ) -> Result<Value, Status> {
        if object == *live {
            return Ok(object);
        }
        apply::update(kind, Some(live), &mut object, writer);
        self.replace(kind, &kind.key(live), object)
    }

    /// Puts a pod on a node, as the server does for a scheduler: what it writes is nobody's.
    /// Source: `BindingREST` of kube-apiserver; seen on 1.36.
    pub fn bind(&mut self, now: Timestamp, key: &Key, node: &str) -> Result<Value, Status> {
        let (kind, live) = self.live(key)?;
        let mut pod = live.as_ref().clone();
        pod["spec"]["nodeName"] = json!(node);
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time(now),
        });
        match pod["status"].get_mut("conditions").and_then(Value::as_array_mut) {
            Some(conditions) => {
                conditions.retain(|condition| condition["type"] != "PodScheduled");
                conditions.push(scheduled);
            }
            None => pod["status"]["conditions"] = json!([scheduled]),
        }
        self.replace(&kind, key, pod)
    }

    /// [`Cluster::update`] through the `status` subresource: only `status` is taken over.
    pub fn update_status(
        &mut self,
        now: Timestamp,
        manager: &str,
        key: &Key,
        change: impl FnOnce(&mut Value),
    ) -> Result<Value, Status> {
        let (kind, live) = self.live(key)?;
        let mut changed = live.as_ref().clone();
        change(&mut changed);
        let mut object = live.as_ref().clone();
        match changed.get_mut("status").map(Value::take) {
            Some(status) => object["status"] = status,
            None => drop(object.as_object_mut().and_then(|fields| fields.remove("status"))),
        }
        self.write(&kind, &live, object, Writer { manager, subresource: "status", now })
    }

    /// Fills what the server fills at creation: name from `generateName`, namespace, uid, time,
    /// generation 1 and the kind's defaults. Refuses a taken name and a missing namespace.
    pub(super) fn prepare(&mut self, now: Timestamp, kind: &Kind, object: &mut Value) -> Result<(), Status> {
        if !object.get("metadata").is_some_and(Value::is_object) {
            object["metadata"] = json!({});
        }
        let namespace = if kind.namespaced {
            match text(object, "/metadata/namespace") {
                "" => "default".to_owned(),
                name => name.to_owned(),
            }
        } else {
            String::new()
        };
        let mut name = text(object, "/metadata/name").to_owned();
        let prefix = text(object, "/metadata/generateName").to_owned();
        while name.is_empty() && !prefix.is_empty() {
            let candidate = format!("{prefix}{}", self.numbers.suffix());
            let taken =
                self.objects.contains_key(&Key::new(&kind.group, &kind.plural, &namespace, &candidate));
            if !taken {
                name = candidate;
            }
        }
        self.check_namespace(kind, &namespace, &name)?;
        if self.objects.contains_key(&Key::new(&kind.group, &kind.plural, &namespace, &name)) {
            return Err(Status::already_exists(&kind.group, &kind.plural, &name));
        }
        let uid = self.numbers.uid();
        let metadata =
            object["metadata"].as_object_mut().ok_or_else(|| Status::bad_request("no metadata"))?;
        metadata.insert("name".to_owned(), json!(name));
        metadata.remove("namespace");
        if kind.namespaced {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("creationTimestamp".to_owned(), json!(time(now)));
        for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(field);
        }
        metadata.remove("generation");
        if kind.counts_generation() {
            metadata.insert("generation".to_owned(), json!(1));
        }
        form::fill(kind, object);
        (kind.strategy.prepare_for_create)(&mut self.numbers, object);
        self.dirty_meta = true;
        Ok(())
    }

    fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), Status> {
        if !kind.namespaced {
            return Ok(());
        }
        let found = self.get(&Key::new("", "namespaces", "", namespace));
        let Some(found) = found else {
            return Err(Status::not_found("", "namespaces", namespace));
        };
        if found.pointer("/metadata/deletionTimestamp").is_some() {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let mut status = Status::forbidden(&kind.group, &kind.plural, name, &why);
            let message = format!("namespace {namespace} is being terminated");
            status.causes.push(Cause::new("NamespaceTerminating", "metadata.namespace", message));
            return Err(status);
        }
        Ok(())
    }

    /// Stores a prepared object under a new revision.
    pub(super) fn insert(&mut self, kind: &Kind, object: Value) -> Result<Value, Status> {
        let key = kind.key(&object);
        if self.objects.contains_key(&key) {
            return Err(Status::already_exists(&kind.group, &kind.plural, &key.name));
        }
        Ok(self.put(key, object))
    }

    /// Stores the new state of an object: counts the generation, keeps its identity, and removes it when
    /// it was only waiting for its last finalizer.
    pub(super) fn replace(&mut self, kind: &Kind, key: &Key, mut object: Value) -> Result<Value, Status> {
        let Some(live) = self.objects.get(key).cloned() else {
            return Err(Status::not_found(&key.group, &key.resource, &key.name));
        };
        keep(&["name", "namespace"], &live, &mut object);
        keep(IDENTITY, &live, &mut object);
        if object == *live {
            return Ok(object);
        }
        if kind.generation_moves(&live, &object) {
            next_generation(&mut object);
        }
        if is_released(kind, &object) {
            self.remove(key);
            return Ok(object);
        }
        Ok(self.put(key.clone(), object))
    }

    /// Marks an object as being deleted from `at` on.
    pub(super) fn mark_deleted(
        &mut self,
        kind: &Kind,
        at: Timestamp,
        grace: i64,
        mut object: Value,
    ) -> Value {
        object["metadata"]["deletionTimestamp"] = json!(time(at));
        match kind.strategy.deletion {
            Deletion::AtOnce | Deletion::KeepsDependents | Deletion::Graceful => {
                object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            }
            Deletion::AfterContent | Deletion::AfterInstances => {}
        }
        if kind.counts_generation() {
            next_generation(&mut object);
        }
        self.put(kind.key(&object), object)
    }

    /// Takes an object out of the store, whatever it waits for.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.bump();
        self.kinds.note(key, None);
        let mut last = before.as_ref().clone();
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let last = Arc::new(last);
        self.record(Change { revision: self.revision, key: key.clone(), before: Some(before), after: None });
        Some(last)
    }

    fn put(&mut self, key: Key, mut object: Value) -> Value {
        self.bump();
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.kinds.note(&key, Some(&object));
        let stored = Arc::new(object.clone());
        let before = self.objects.insert(key.clone(), stored.clone());
        self.record(Change { revision: self.revision, key, before, after: Some(stored) });
        object
    }

    fn record(&mut self, change: Change) {
        self.dirty.insert(change.key.clone());
        let Key { group, resource, .. } = &change.key;
        self.touched.insert((group.clone(), resource.clone()), change.revision);
        self.concerns_others |= change.after.as_deref().is_none_or(concerns_others);
        self.history.push_back(change);
        if self.history.len() > HISTORY
            && let Some(old) = self.history.pop_front()
        {
            self.horizon = old.revision;
        }
    }

    fn bump(&mut self) {
        self.revision += 1;
        self.dirty_meta = true;
    }

    /// The key of a stored object, by its `apiVersion` and `kind`.
    pub(super) fn key_of(&self, object: &Value) -> Key {
        let kind = self.kinds.by_kind(text(object, "/apiVersion"), text(object, "/kind"));
        kind.map_or_else(|| Key::new("", "", "", ""), |kind| kind.key(object))
    }

    /// The kind and the stored state of a key.
    pub(super) fn live(&self, key: &Key) -> Result<(Arc<Kind>, Arc<Value>), Status> {
        let not_found = || Status::not_found(&key.group, &key.resource, &key.name);
        let live = self.objects.get(key).cloned().ok_or_else(not_found)?;
        let kind = self
            .kinds
            .by_kind(text(&live, "/apiVersion"), text(&live, "/kind"))
            .or_else(|| self.kinds.by_resource(&key.group, &key.resource))
            .ok_or_else(not_found)?;
        Ok((kind, live))
    }

    fn kind_of(&self, object: &Value) -> Result<Arc<Kind>, Status> {
        let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        self.kinds.by_kind(version, kind).ok_or_else(|| {
            Status::bad_request(format!("no matches for kind \"{kind}\" in version \"{version}\""))
        })
    }
}

/// Counts a change of the object.
pub(super) fn next_generation(object: &mut Value) {
    let generation = generation(object);
    object["metadata"]["generation"] = json!(generation.saturating_add(1));
}

/// Returns true if finalizers keep a deleted object alive.
pub(super) fn waits(kind: &Kind, object: &Value) -> bool {
    let has_content = kind.strategy.deletion == Deletion::AfterContent;
    !list(object, "/metadata/finalizers").is_empty()
        || (has_content && !list(object, "/spec/finalizers").is_empty())
}

/// Returns true if an object is deleted and has nothing left to wait for.
fn is_released(kind: &Kind, object: &Value) -> bool {
    let pending = number(object, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
    is_deleted(object) && pending == 0 && !waits(kind, object)
}

/// Metadata that only the server writes.
const IDENTITY: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

fn keep(fields: &[&str], live: &Value, object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    for name in fields {
        match live["metadata"].get(name) {
            Some(value) => drop(metadata.insert((*name).to_owned(), value.clone())),
            None => drop(metadata.remove(*name)),
        }
    }
}

/// Restores the fields of the live object that no body can change.
pub(super) fn keep_identity(live: &Value, object: &mut Value) {
    keep(IDENTITY, live, object);
    keep(&["generateName", "selfLink"], live, object);
}
