//! The steps after a DELETE: graceful pods, finalizers, dependents, namespaces; and the conditions
//! that make a CustomResourceDefinition served.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::kinds::definition::stored_versions;
use super::object::{Key, is_deleted, is_finished, is_true, list, number, set_condition, text, time};
use super::scheme::Kind;
use super::status::Status;
use super::store::{Cluster, DeleteOptions, Propagation, next_generation, waits};
use super::strategy::Deletion;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const COLLECTOR: &str = "kube-controller-manager";

impl Cluster {
    /// Deletes an object as the API server does: at once, or, when it is a running pod, has finalizers
    /// or is a namespace, by marking it. The answer is the object as it is then, or as it last was.
    pub fn delete(&mut self, now: Timestamp, key: &Key, options: &DeleteOptions) -> Result<Value, Status> {
        let (kind, live) = self.live(key)?;
        check_preconditions(key, &live, options)?;
        let mut object = live.as_ref().clone();
        let grace = grace(&kind, &object, options);
        let changed = set_propagation(&kind, &mut object, options.propagation);
        let deletion = kind.strategy.deletion;
        if deletion == Deletion::AfterInstances
            && !is_deleted(&object)
            && !has_finalizer(&object, CUSTOM_CLEANUP)
        {
            // The API server itself asks to be waited for, as it has the objects to delete.
            add_finalizer(&mut object, CUSTOM_CLEANUP);
        }
        if options.dry_run {
            return Ok(object);
        }
        if is_deleted(&object) {
            // A second DELETE can only shorten what the first one granted.
            let pending = number(&object, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
            if grace < pending {
                let object = self.mark_deleted(&kind, now + SignedDuration::from_secs(grace), grace, object);
                return Ok(self.release(&kind, key, object));
            }
            if changed {
                return Ok(self.mark_deleted(&kind, deletion_time(&live).unwrap_or(now), pending, object));
            }
            return Ok(object);
        }
        if !waits(&kind, &object) && grace == 0 {
            let last = self.remove(key);
            if deletion != Deletion::Graceful {
                return Ok(last.map_or(object, |last| last.as_ref().clone()));
            }
            // A pod is marked even if nothing runs of it; that mark is never stored.
            object["metadata"]["deletionTimestamp"] = json!(time(now));
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            next_generation(&mut object);
            return Ok(object);
        }
        if deletion == Deletion::AfterContent {
            object["status"]["phase"] = json!("Terminating");
        }
        Ok(self.mark_deleted(&kind, now + SignedDuration::from_secs(grace), grace, object))
    }

    /// Removes the object when its deletion has nothing left to wait for.
    fn release(&mut self, kind: &Kind, key: &Key, object: Value) -> Value {
        let pending = number(&object, "/metadata/deletionGracePeriodSeconds");
        if pending == Some(0) && !waits(kind, &object) {
            return self.remove(key).map_or(object, |last| last.as_ref().clone());
        }
        object
    }

    /// One round of the garbage collector, the namespace controller and the CRD controller. Cheap when
    /// nothing has changed since the last round.
    pub fn collect(&mut self, now: Timestamp) {
        if self.collected == self.revision() {
            return;
        }
        // Each pass can make work for the next one (a chain of owners); the store is small, so run
        // until it settles. The bound only guards against two rules that undo each other.
        for _ in 0..64 {
            let before = self.revision();
            self.establish(now);
            if std::mem::take(&mut self.concerns_others) {
                self.collect_dependents(now);
            }
            self.empty_namespaces(now);
            self.remove_custom_objects(now);
            if self.revision() == before {
                break;
            }
        }
        self.collected = self.revision();
    }

    /// Accepts the names of new CRDs and serves them.
    pub(super) fn establish(&mut self, now: Timestamp) {
        let fresh: Vec<Key> = self
            .list("apiextensions.k8s.io", "customresourcedefinitions")
            .filter(|(_, crd)| !is_true(crd, "Established"))
            .map(|(key, _)| key.clone())
            .collect();
        for key in fresh {
            let _ = self.update_status(now, "kube-apiserver", &key, |crd| {
                let condition = |ty: &str, reason: &str, message: &str| {
                    json!({"type": ty, "status": "True", "reason": reason, "message": message,
                        "lastTransitionTime": time(now)})
                };
                let (names, stored) = (crd["spec"]["names"].clone(), stored_versions(crd));
                crd["status"] = json!({
                    "acceptedNames": names,
                    "conditions": [
                        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
                    ],
                    "storedVersions": stored,
                });
            });
        }
    }

    /// Owner references: dependents of vanished owners go, owners wait for blocking dependents.
    fn collect_dependents(&mut self, now: Timestamp) {
        let mut owners: BTreeMap<String, Key> = BTreeMap::new();
        let mut dependents: Vec<Key> = Vec::new();
        let mut finishing: Vec<Key> = Vec::new();
        for (key, object) in self.objects() {
            owners.insert(text(object, "/metadata/uid").to_owned(), key.clone());
            if references(object).next().is_some() {
                dependents.push(key.clone());
            }
            if has_finalizer(object, FOREGROUND) || has_finalizer(object, ORPHAN) {
                finishing.push(key.clone());
            }
        }
        for key in dependents {
            self.collect_dependent(now, &key, &owners);
        }
        for key in finishing {
            self.finish_owner(now, &key);
        }
    }

    fn collect_dependent(&mut self, now: Timestamp, key: &Key, owners: &BTreeMap<String, Key>) {
        let Some(object) = self.get(key) else { return };
        let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
        let (mut solid, mut absent, mut waiting) = (false, BTreeSet::new(), BTreeSet::new());
        for reference in references(object) {
            let uid = text(reference, "/uid").to_owned();
            // A cluster-wide object, or one in another namespace, under the same uid cannot happen;
            // a reference across namespaces counts as absent, as with the real collector.
            let owner = owners
                .get(&uid)
                .filter(|owner| owner.namespace.is_empty() || owner.namespace == key.namespace)
                .and_then(|owner| self.get(owner));
            match owner {
                None => drop(absent.insert(uid)),
                Some(owner) if is_deleted(owner) && has_finalizer(owner, FOREGROUND) => {
                    waiting.insert(uid);
                }
                Some(_) => solid = true,
            }
        }
        if solid {
            if !absent.is_empty() || !waiting.is_empty() {
                let _ = self.update(now, COLLECTOR, key, |object| {
                    drop_references(object, |uid| absent.contains(uid) || waiting.contains(uid));
                });
            }
            return;
        }
        if deleting {
            return;
        }
        let propagation = match waiting.is_empty() {
            true if has_finalizer(object, ORPHAN) => Propagation::Orphan,
            true => Propagation::Background,
            false => Propagation::Foreground,
        };
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let _ = self.delete(now, key, &options);
    }

    /// Takes `foregroundDeletion` or `orphan` off an owner when its dependents allow it.
    fn finish_owner(&mut self, now: Timestamp, key: &Key) {
        let Some(owner) = self.get(key) else { return };
        if !is_deleted(owner) {
            return;
        }
        let uid = text(owner, "/metadata/uid").to_owned();
        let orphan = has_finalizer(owner, ORPHAN);
        let mine = |reference: &Value| text(reference, "/uid") == uid;
        if orphan {
            let kept: Vec<Key> = self
                .objects()
                .filter(|(_, object)| references(object).any(mine))
                .map(|(key, _)| key.clone())
                .collect();
            for dependent in kept {
                let _ = self.update(now, COLLECTOR, &dependent, |object| {
                    drop_references(object, |reference| reference == uid);
                });
            }
        } else {
            let blocked = self.objects().any(|(_, object)| {
                references(object).any(|reference| mine(reference) && reference["blockOwnerDeletion"] == true)
            });
            if blocked {
                return;
            }
        }
        let name = if orphan { ORPHAN } else { FOREGROUND };
        let _ = self.update(now, COLLECTOR, key, |owner| drop_finalizer(owner, name));
    }

    /// Deletes what is in terminating namespaces, and the namespaces once they are empty.
    fn empty_namespaces(&mut self, now: Timestamp) {
        let terminating: Vec<String> = self
            .list("", "namespaces")
            .filter(|(_, namespace)| is_deleted(namespace))
            .map(|(key, _)| key.name.clone())
            .collect();
        for name in terminating {
            let content: Vec<(Key, bool)> = self
                .objects()
                .filter(|(key, _)| key.namespace == name)
                .map(|(key, object)| (key.clone(), is_deleted(object)))
                .collect();
            for (key, deleting) in &content {
                if !deleting {
                    let options = DeleteOptions {
                        propagation: Some(Propagation::Background),
                        ..DeleteOptions::default()
                    };
                    let _ = self.delete(now, key, &options);
                }
            }
            let left: Vec<Value> = self
                .objects()
                .filter(|(key, _)| key.namespace == name)
                .map(|(_, object)| object.clone())
                .collect();
            let key = Key::new("", "namespaces", "", &name);
            if left.is_empty() {
                let _ = self.update(now, COLLECTOR, &key, |namespace| {
                    drop(namespace["spec"].as_object_mut().and_then(|spec| spec.remove("finalizers")));
                });
            } else {
                self.report_remaining(now, &key, &left);
            }
        }
    }

    /// The conditions by which a stuck namespace says what it waits for.
    fn report_remaining(&mut self, now: Timestamp, key: &Key, left: &[Value]) {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
        for object in left {
            if let Ok((kind, _)) = self.live(&self.key_of(object)) {
                *kinds.entry(kind.qualified()).or_default() += 1;
            }
            for name in list(object, "/metadata/finalizers").iter().filter_map(Value::as_str) {
                *finalizers.entry(name.to_owned()).or_default() += 1;
            }
        }
        let conditions = [
            remaining(
                "NamespaceContentRemaining",
                ["SomeResourcesRemain", "ContentRemoved"],
                list_of("Some resources are remaining", &kinds, "has"),
                "All content successfully removed",
            ),
            remaining(
                "NamespaceFinalizersRemaining",
                ["SomeFinalizersRemain", "ContentHasNoFinalizers"],
                list_of("Some content in the namespace has finalizers remaining", &finalizers, "in"),
                "All content-preserving finalizers finished",
            ),
        ];
        let _ = self.update_status(now, COLLECTOR, key, |namespace| {
            let mut known = list(namespace, "/status/conditions").to_vec();
            for condition in conditions {
                set_condition(&mut known, condition, now);
            }
            namespace["status"]["conditions"] = json!(known);
        });
    }

    /// Deletes the objects of CRDs that are being deleted, then lets the CRDs go.
    fn remove_custom_objects(&mut self, now: Timestamp) {
        let leaving: Vec<(Key, String, String)> = self
            .list("apiextensions.k8s.io", "customresourcedefinitions")
            .filter(|(_, crd)| is_deleted(crd) && has_finalizer(crd, CUSTOM_CLEANUP))
            .map(|(key, crd)| {
                (key.clone(), text(crd, "/spec/group").to_owned(), text(crd, "/spec/names/plural").to_owned())
            })
            .collect();
        for (key, group, plural) in leaving {
            let instances: Vec<(Key, bool)> =
                self.list(&group, &plural).map(|(key, object)| (key.clone(), is_deleted(object))).collect();
            for (instance, deleting) in instances {
                if !deleting {
                    let _ = self.delete(now, &instance, &DeleteOptions::default());
                }
            }
            if self.list(&group, &plural).next().is_none() {
                let _ = self.update(now, "kube-apiserver", &key, |crd| drop_finalizer(crd, CUSTOM_CLEANUP));
            }
        }
    }
}

/// Returns the counts as a sentence; `None` when there are none.
fn list_of(what: &str, counts: &BTreeMap<String, usize>, word: &str) -> Option<String> {
    let parts = counts.iter().map(|(name, count)| format!("{name} {word} {count} resource instances"));
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("{what}: {}", parts.join(", ")))
}

/// A condition that holds while something is left, with its reasons for both.
fn remaining(ty: &str, [some, none]: [&str; 2], left: Option<String>, clear: &str) -> Value {
    match left {
        Some(left) => json!({"type": ty, "status": "True", "reason": some, "message": left}),
        None => json!({"type": ty, "status": "False", "reason": none, "message": clear}),
    }
}

/// The finalizer by which a CRD waits for its objects.
pub const CUSTOM_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn check_preconditions(key: &Key, live: &Value, options: &DeleteOptions) -> Result<(), Status> {
    for (asked, pointer, name, perhaps) in [
        (&options.uid, "/metadata/uid", "UID", "deleted and then recreated"),
        (&options.resource_version, "/metadata/resourceVersion", "ResourceVersion", "modified"),
    ] {
        let found = text(live, pointer);
        if let Some(asked) = asked
            && asked != found
        {
            let why = format!(
                "the {name} in the precondition ({asked}) does not match the {name} in record ({found}). \
                 The object might have been {perhaps}"
            );
            // The server names the kind here, without its group.
            return Err(Status::conflict("", text(live, "/kind"), &key.name, &why));
        }
    }
    Ok(())
}

/// Seconds until a deleted object may go. Only pods that run somewhere get any.
fn grace(kind: &Kind, object: &Value, options: &DeleteOptions) -> i64 {
    let running = !text(object, "/spec/nodeName").is_empty() && !is_finished(object);
    if kind.strategy.deletion != Deletion::Graceful || !running {
        return 0;
    }
    let own = || number(object, "/spec/terminationGracePeriodSeconds").unwrap_or(30);
    options.grace_period_seconds.unwrap_or_else(own).max(0)
}

/// Adds or removes the collector's finalizers as the propagation asks; says whether that changed any.
fn set_propagation(kind: &Kind, object: &mut Value, asked: Option<Propagation>) -> bool {
    let before = object.pointer("/metadata/finalizers").cloned();
    let propagation = match asked {
        Some(propagation) => propagation,
        None if has_finalizer(object, ORPHAN) => Propagation::Orphan,
        None if has_finalizer(object, FOREGROUND) => Propagation::Foreground,
        None if kind.strategy.deletion == Deletion::KeepsDependents => Propagation::Orphan,
        None => Propagation::Background,
    };
    drop_finalizer(object, ORPHAN);
    drop_finalizer(object, FOREGROUND);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => add_finalizer(object, FOREGROUND),
        Propagation::Orphan => add_finalizer(object, ORPHAN),
    }
    before != object.pointer("/metadata/finalizers").cloned()
}

fn add_finalizer(object: &mut Value, name: &str) {
    match object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
        Some(list) => list.push(json!(name)),
        None => object["metadata"]["finalizers"] = json!([name]),
    }
}

fn deletion_time(object: &Value) -> Option<Timestamp> {
    text(object, "/metadata/deletionTimestamp").parse().ok()
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    list(object, "/metadata/finalizers").iter().any(|finalizer| finalizer == name)
}

fn drop_finalizer(object: &mut Value, name: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
    list.retain(|finalizer| finalizer != name);
    if list.is_empty() {
        metadata.remove("finalizers");
    }
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    list(object, "/metadata/ownerReferences").iter()
}

fn drop_references(object: &mut Value, gone: impl Fn(&str) -> bool) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(list) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else { return };
    list.retain(|reference| !gone(text(reference, "/uid")));
    if list.is_empty() {
        metadata.remove("ownerReferences");
    }
}
