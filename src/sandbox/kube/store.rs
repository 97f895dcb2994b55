//! One Kubernetes cluster: objects with versions, the history that watches read, and the writes that
//! controllers make. Everything takes the time from outside and is deterministic.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::apply::{self, Writer};
use super::defaults;
use super::kinds::{Kind, Kinds};
pub use super::status::{Cause, Status};
use super::write::settle;
use crate::sandbox::persist::MOST;

/// How many changes the history keeps; a watch from before them gets 410 Gone, as when etcd compacts.
const HISTORY: usize = 20_000;

/// The letters the API server draws generated names from.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// What names an object in a cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Key {
    /// API group, empty for the core group.
    pub group: String,
    /// Plural of the resource, `pods`.
    pub resource: String,
    /// Empty for cluster-wide kinds.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// A key from its four parts; an empty namespace for cluster-wide kinds.
    pub fn new(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// What became of an object in one revision.
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

/// What persistence must write.
#[derive(Clone, Debug)]
pub enum Dirty {
    /// Store this object.
    Put(Key, Value),
    /// Forget this object.
    Remove(Key),
    /// Store the cluster's own counters.
    Meta(Value),
}

/// Who deletes the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The owner goes at once, its dependents after it.
    Background,
    /// The owner waits for those dependents that block it.
    Foreground,
    /// The dependents stay and lose the reference.
    Orphan,
}

/// What a DELETE may ask for.
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
    seed: String,
    revision: u64,
    counter: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    pub(super) kinds: Kinds,
    history: VecDeque<Change>,
    /// Watches from a revision before this one are too old.
    horizon: u64,
    dirty: BTreeSet<Key>,
    dirty_meta: bool,
    /// The revision that `collect` has seen through.
    pub(super) collected: u64,
}

impl Cluster {
    /// A cluster as it is right after its creation: the four system namespaces, their default service
    /// accounts and the `kubernetes` Service. `seed` makes its uids differ from other clusters'.
    pub fn new(seed: &str, now: Timestamp) -> Self {
        let mut cluster = Self { seed: seed.to_owned(), ..Self::default() };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            // Creation in an empty store has nothing to collide with.
            let _ = cluster.create(now, "kube-apiserver", namespace);
        }
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": defaults::KUBERNETES_SERVICE_IP,
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}]},
        });
        let _ = cluster.create(now, "kube-apiserver", service);
        cluster.collect(now);
        // What a server does before it listens is not in its history.
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
        let seed = meta.get("seed").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut cluster =
            Self { seed, revision, counter: number("counter")?, horizon: revision, ..Self::default() };
        for (key, object) in entries {
            cluster.kinds.note(&key, Some(&object));
            cluster.objects.insert(key, Arc::new(object));
        }
        Ok(cluster)
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

    /// What has changed since the last call and must be written to disk.
    pub fn take_dirty(&mut self) -> Vec<Dirty> {
        let mut entries: Vec<Dirty> = std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|key| match self.objects.get(&key) {
                Some(object) => Dirty::Put(key, object.as_ref().clone()),
                None => Dirty::Remove(key),
            })
            .collect();
        if std::mem::take(&mut self.dirty_meta) {
            entries.push(Dirty::Meta(
                json!({"seed": self.seed, "revision": self.revision, "counter": self.counter}),
            ));
        }
        entries
    }

    /// Forgets what has changed since the last call: nobody writes it to disk. Whether there was anything.
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
        entries.push(Dirty::Meta(
            json!({"seed": self.seed, "revision": self.revision, "counter": self.counter}),
        ));
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
        defaults::fill(&kind, &mut object);
        settle(&kind, &mut object);
        apply::update(&kind, None, &mut object, Writer { manager, subresource: "", now });
        self.prepare(now, &kind, &mut object)?;
        settle(&kind, &mut object);
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
        if object == *live {
            return Ok(object);
        }
        apply::update(&kind, Some(&live), &mut object, Writer { manager, subresource, now });
        self.replace(&kind, key, object)
    }

    /// Puts a pod on a node, as the server does for a scheduler: what it writes is nobody's.
    /// Source: `BindingREST` of kube-apiserver; seen on 1.36.
    pub fn bind(&mut self, now: Timestamp, key: &Key, node: &str) -> Result<Value, Status> {
        let (kind, live) = self.live(key)?;
        let mut pod = live.as_ref().clone();
        pod["spec"]["nodeName"] = json!(node);
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": seconds(now),
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
        if object == *live {
            return Ok(object);
        }
        apply::update(&kind, Some(&live), &mut object, Writer { manager, subresource: "status", now });
        self.replace(&kind, key, object)
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
            let candidate = format!("{prefix}{}", self.suffix());
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
        let uid = self.uid();
        let metadata =
            object["metadata"].as_object_mut().ok_or_else(|| Status::bad_request("no metadata"))?;
        metadata.insert("name".to_owned(), json!(name));
        metadata.remove("namespace");
        if kind.namespaced {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("creationTimestamp".to_owned(), json!(seconds(now)));
        for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(field);
        }
        metadata.remove("generation");
        if kind.counts_generation() {
            metadata.insert("generation".to_owned(), json!(1));
        }
        defaults::on_create(self, kind, object);
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
            status.causes.push(Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
            return Err(status);
        }
        Ok(())
    }

    /// Stores a prepared object under a new revision.
    pub(super) fn insert(&mut self, kind: &Kind, object: Value) -> Result<Value, Status> {
        let key = key_of(kind, &object);
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
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in [
                "name",
                "namespace",
                "uid",
                "creationTimestamp",
                "generation",
                "resourceVersion",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
            ] {
                match live["metadata"].get(field) {
                    Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
                    None => drop(metadata.remove(field)),
                }
            }
        }
        if object == *live {
            return Ok(object);
        }
        if kind.generation_moves(&live, &object) {
            let generation = live.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
            object["metadata"]["generation"] = json!(generation.saturating_add(1));
        }
        if self.is_released(&object) {
            self.remove(key);
            return Ok(object);
        }
        Ok(self.put(key.clone(), object))
    }

    /// Whether a deleted object has nothing left to wait for.
    fn is_released(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let waits =
            |list: Option<&Value>| list.and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        let namespace_waits = object["kind"] == "Namespace" && waits(object.pointer("/spec/finalizers"));
        metadata.get("deletionTimestamp").is_some()
            && metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) == 0
            && !waits(metadata.get("finalizers"))
            && !namespace_waits
    }

    /// Marks an object as being deleted from `at` on.
    pub(super) fn mark_deleted(&mut self, key: &Key, at: Timestamp, grace: i64, mut object: Value) -> Value {
        object["metadata"]["deletionTimestamp"] = json!(seconds(at));
        // Namespaces and definitions go in their own way.
        if !matches!(text(&object, "/kind"), "Namespace" | "CustomResourceDefinition") {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        let counts =
            self.kinds.by_resource(&key.group, &key.resource).is_some_and(|kind| kind.counts_generation());
        if counts && let Some(generation) = object.pointer("/metadata/generation").and_then(Value::as_i64) {
            object["metadata"]["generation"] = json!(generation.saturating_add(1));
        }
        self.put(key.clone(), object)
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
        kind.map_or_else(|| Key::new("", "", "", ""), |kind| key_of(&kind, object))
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

    /// The next number of this cluster, for addresses and names.
    pub(super) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.dirty_meta = true;
        self.counter
    }

    fn hash(&mut self) -> [u8; 32] {
        let number = self.next();
        *blake3::hash(format!("{}/{number}", self.seed).as_bytes()).as_bytes()
    }

    fn uid(&mut self) -> String {
        let mut bytes = self.hash();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex: String = bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Five letters as in `generateName`.
    pub(super) fn suffix(&mut self) -> String {
        let bytes = self.hash();
        bytes[..5]
            .iter()
            .map(|byte| char::from(NAME_LETTERS[usize::from(*byte) % NAME_LETTERS.len()]))
            .collect()
    }
}

/// A time as Kubernetes prints it: RFC 3339 in whole seconds.
pub fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).map_or_else(|_| time.to_string(), |whole| whole.to_string())
}

/// The string at a JSON pointer, empty when there is none.
pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The key of an object of that kind.
pub fn key_of(kind: &Kind, object: &Value) -> Key {
    let namespace = if kind.namespaced { text(object, "/metadata/namespace") } else { "" };
    Key::new(&kind.group, &kind.plural, namespace, text(object, "/metadata/name"))
}

/// The object at `pointer` as a map, empty when there is none.
pub fn map<'v>(object: &'v Value, pointer: &str) -> Option<&'v Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}
