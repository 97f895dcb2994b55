//! The record in the cluster, written twice an apply: the intent before the first write inside the cluster,
//! the outcome at the end; and once more when a check passed. A crash between loses nothing, as the intent
//! holds what was and what is to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

use super::Outcome;
use super::failure::failed;
use super::lock::{Lock, Unlocked};
use crate::address::Address;
use crate::diag::Code;
use crate::live::record::{self, Stored};
use crate::live::retry::{self, Patience};
use crate::live::{ApiError, Class, LiveApi, MANAGER, Request};
use crate::plan::{Action, Change, Plan};
use crate::record::{Entry, NAMESPACE, Record};
use crate::resource::{Api, Identity, Method, OBJECT_LABEL_MANAGED_BY, ObjectId, Resource};

/// How far a change came, as far as the record cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not known yet, or half done: what it makes and what it deletes may both be there.
    Open,
    /// Done.
    Done,
    /// Never begun.
    Untouched,
}

impl Fate {
    /// Of an outcome.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Skipped { .. } | Outcome::NotStarted => Self::Untouched,
            Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::InDoubt { .. } => Self::Open,
        }
    }
}

/// What was there before an apply, and whether the intent is written: once for all changes.
pub struct Keeper<'a> {
    plan: &'a Plan,
    api: &'a dyn LiveApi,
    now: fn() -> jiff::Timestamp,
    intent: OnceCell<Result<Option<Record>, Broken>>,
    /// Checks that passed in this apply.
    passed: Mutex<BTreeMap<Address, String>>,
    /// Further ConfigMaps that hold the record now.
    parts: Mutex<Vec<ObjectId>>,
    /// Keeps other applies of the stack away.
    lock: Option<Arc<Lock>>,
}

/// Why the intent could not be written, and the change that met it first.
struct Broken {
    met_by: Address,
    why: Unlocked,
}

impl<'a> Keeper<'a> {
    /// Nothing is read or written yet.
    pub fn new(
        plan: &'a Plan,
        api: &'a dyn LiveApi,
        now: fn() -> jiff::Timestamp,
        lock: Option<Arc<Lock>>,
    ) -> Self {
        Self {
            plan,
            api,
            now,
            intent: OnceCell::new(),
            passed: Mutex::default(),
            parts: Mutex::default(),
            lock,
        }
    }

    /// Makes sure that the intent is written, before a change writes inside the cluster.
    ///
    /// # Errors
    /// It cannot be written: the first change fails, the others are skipped because of it.
    pub async fn intent(&self, change: &Address) -> Result<(), Outcome> {
        if !keeps_record(self.plan) {
            return Ok(());
        }
        let write = || async {
            let unlocked = |why: Unlocked| Broken { met_by: change.clone(), why };
            let broken = |why: String| unlocked(Unlocked::Cannot(why));
            if let Some(lock) = &self.lock {
                lock.take().await.map_err(unlocked)?;
            }
            let old = self.old(Patience::Writing).await.map_err(broken)?;
            let record = self.record(old.as_ref(), Phase::Intent { passes: &BTreeMap::new() });
            self.write(&record, Patience::Writing).await.map_err(|error| broken(error.to_string()))?;
            Ok(old)
        };
        match self.intent.get_or_init(write).await {
            Ok(_) => Ok(()),
            Err(Broken { met_by, why: Unlocked::Held(who) }) if met_by == change => {
                let message = format!("another apply of this stack is under way: {who}");
                let help = "nothing was written inside the cluster; wait until it ends, then apply again";
                Err(failed(Code::Locked, message, Some(help)))
            }
            Err(Broken { met_by, why: Unlocked::Cannot(why) }) if met_by == change => {
                let message = format!("cannot write the record of what this apply is about to do: {why}");
                let help = "nothing was written inside the cluster; mend the cause, then apply again";
                Err(failed(Code::RecordNotWritten, message, Some(help)))
            }
            Err(Broken { met_by, .. }) => Err(Outcome::Skipped { because: met_by.clone() }),
        }
    }

    /// Notes a pass in the intent at once: what follows the check may take the GPUs that it would need to
    /// run again.
    ///
    /// # Errors
    /// In words for the user; the pass still counts for this apply.
    pub async fn passed(&self, check: &Address, digest: &str) -> Result<(), String> {
        // Held while writing, so that the last write holds all passes.
        let mut passes = self.passed.lock().await;
        passes.insert(check.clone(), digest.to_owned());
        let Some(Ok(old)) = self.intent.get() else { return Ok(()) };
        let record = self.record(old.as_ref(), Phase::Intent { passes: &passes });
        self.write(&record, Patience::Reading).await.map_err(|error| error.to_string())
    }

    /// Writes what the apply did; deletes the record when nothing of the stack is left.
    ///
    /// # Errors
    /// In words for the user. The intent stays, which names all that may be there.
    pub async fn outcome(
        &self,
        fates: &BTreeMap<usize, Fate>,
        passes: &BTreeMap<Address, String>,
    ) -> Result<(), String> {
        if !keeps_record(self.plan) {
            return Ok(());
        }
        let old = match self.intent.get() {
            Some(Ok(old)) => old.clone(),
            // The intent's own failure has been told.
            Some(Err(_)) => return Ok(()),
            None if can_reach(self.plan, fates) => self.old(Patience::Reading).await?,
            None => return Ok(()),
        };
        let record = self.record(old.as_ref(), Phase::Outcome { fates, passes });
        let done = if record.inventory.is_empty() && record.passes.is_empty() {
            self.remove().await
        } else {
            self.write(&record, Patience::Reading).await
        };
        done.map_err(|error| error.to_string())
    }

    fn record(&self, old: Option<&Record>, phase: Phase<'_>) -> Record {
        let before = old.map(|record| record.inventory.as_slice()).unwrap_or_default();
        let old_passes = old.map(|record| record.passes.clone()).unwrap_or_default();
        let (intent, inventory, passes) = match phase {
            // A check that is about to run again has not passed until it has.
            Phase::Intent { passes } => {
                let known = carried(self.plan, old_passes, passes);
                (true, inventory(self.plan, before, |_| Fate::Open), known)
            }
            Phase::Outcome { fates, passes } => {
                let fate = |change| fates.get(&change).copied().unwrap_or(Fate::Open);
                let left = inventory(self.plan, before, fate);
                // What was read and is neither live nor wanted went without us.
                let seen = |entry: &Entry| {
                    self.plan.leaves_out(&entry.identity)
                        || self.plan.changes.iter().any(|change| change.identity == entry.identity)
                };
                let left = left.into_iter().filter(seen).collect();
                (false, left, carried(self.plan, old_passes, passes))
            }
        };
        let revision = old.map_or(0, |record| record.revision);
        Record {
            version: Record::VERSION,
            stack: self.plan.owner.stack.clone(),
            id: self.plan.owner.id.clone(),
            target: self.plan.target.to_string(),
            // The intent counts the apply; its outcome is the same one.
            revision: revision + 1,
            intent,
            written: (self.now)().to_string(),
            inventory,
            passes,
        }
    }

    /// The record before this apply.
    async fn old(&self, patience: Patience) -> Result<Option<Record>, String> {
        let place = Record::object(&self.plan.owner.stack);
        let found = record::fetch(self.api, &place, patience).await.map_err(|error| error.to_string())?;
        let Some(Stored { record, parts }) = found else { return Ok(None) };
        *self.parts.lock().await = parts;
        let record = record.map_err(|why| format!("{place}: {why}"))?;
        if record.id != self.plan.owner.id {
            let Record { id, stack, .. } = record;
            return Err(format!(
                "{place} belongs to another stack named {stack} (id {id}); give this stack another name"
            ));
        }
        Ok(Some(record))
    }

    /// The first ConfigMap comes last: it is what makes the others count.
    async fn write(&self, record: &Record, patience: Patience) -> Result<(), ApiError> {
        let mut held = self.parts.lock().await;
        let packed = record::pack(record);
        for (place, config_map) in &packed {
            self.write_one(place, config_map, patience).await?;
        }
        let old = held.iter().filter(|old| !packed.iter().any(|(place, _)| place == *old));
        for part in old {
            // What stays lies about unused until the record goes.
            let _ = self.delete(part.path()).await;
        }
        let places = packed.into_iter().map(|(place, _)| place);
        *held = places.filter(|place| record::is_part(&record.stack, &place.name)).collect();
        Ok(())
    }

    async fn write_one(
        &self,
        place: &ObjectId,
        config_map: &Value,
        patience: Patience,
    ) -> Result<(), ApiError> {
        let write = || applied(place.path(), config_map.clone());
        match retry::send(self.api, write(), patience).await {
            Ok(_) => Ok(()),
            Err(error) if error.class == Class::NotFound && !error.is_unknown_path() => {
                // The namespace is not there; the platform team may make it, so it is not made unasked.
                ensure_namespace(self.api, patience).await?;
                retry::send(self.api, write(), patience).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the record, and the namespace when we made it and no other record is in it.
    async fn remove(&self) -> Result<(), ApiError> {
        let place = Record::object(&self.plan.owner.stack);
        self.delete(place.path()).await?;
        let collection = place.gvk.collection(Some(NAMESPACE));
        let left =
            retry::send(self.api, Request::get(Api::Kubernetes, collection), Patience::Reading).await?;
        let items = left["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        let (parts, names): (Vec<&str>, Vec<&str>) =
            names.partition(|name| record::is_part(&self.plan.owner.stack, name));
        for name in parts {
            self.delete(ObjectId { name: name.to_owned(), ..place.clone() }.path()).await?;
        }
        // Every namespace holds a ConfigMap with the cluster's certificate authority.
        if names.iter().any(|name| *name != "kube-root-ca.crt") {
            return Ok(());
        }
        let request = Request::get(Api::Kubernetes, namespace_path());
        let namespace = match retry::send(self.api, request, Patience::Reading).await {
            Err(error) if error.class == Class::NotFound => return Ok(()),
            result => result?,
        };
        let entries = namespace.pointer("/metadata/managedFields").and_then(Value::as_array);
        let ours = |entry: &Value| entry["manager"] == MANAGER && entry["operation"] == "Apply";
        if entries.into_iter().flatten().any(ours) {
            self.delete(namespace_path()).await?;
        }
        Ok(())
    }

    async fn delete(&self, path: String) -> Result<(), ApiError> {
        let request = Request { api: Api::Kubernetes, method: Method::Delete, path, body: None };
        match retry::send(self.api, request, Patience::Reading).await {
            Err(error) if error.class == Class::NotFound => Ok(()),
            result => result.map(drop),
        }
    }
}

enum Phase<'a> {
    Intent { passes: &'a BTreeMap<Address, String> },
    Outcome { fates: &'a BTreeMap<usize, Fate>, passes: &'a BTreeMap<Address, String> },
}

fn applied(path: String, body: Value) -> Request {
    applied_by(path, body, MANAGER)
}

/// Makes the namespace of records.
pub async fn ensure_namespace(api: &dyn LiveApi, patience: Patience) -> Result<(), ApiError> {
    retry::send(api, applied(namespace_path(), namespace()), patience).await.map(drop)
}

/// A forced server-side apply by a manager.
pub fn applied_by(path: String, body: Value, manager: &str) -> Request {
    let path = format!("{path}?fieldManager={manager}&force=true");
    Request { api: Api::Kubernetes, method: Method::Patch, path, body: Some(body) }
}

fn namespace_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}")
}

fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": { OBJECT_LABEL_MANAGED_BY: MANAGER } },
    })
}

fn cluster_change(plan: &Plan) -> Option<(usize, &Change)> {
    plan.changes.iter().enumerate().find(|(_, change)| matches!(change.identity, Identity::Cluster(_)))
}

/// Nothing is recorded of a plan that does nothing or of a stack that manages nothing, nor in a cluster that the plan deletes.
fn keeps_record(plan: &Plan) -> bool {
    let managed = |change: &Change| !matches!(change.identity, Identity::Check(_));
    plan.changes.iter().any(managed)
        && !plan.is_empty()
        && cluster_change(plan).is_none_or(|(_, change)| change.action != Action::Delete)
}

/// Whether there is a cluster to write the outcome into.
fn can_reach(plan: &Plan, fates: &BTreeMap<usize, Fate>) -> bool {
    match cluster_change(plan) {
        Some((place, Change { action: Action::Create | Action::Replace, .. })) => {
            fates.get(&place) == Some(&Fate::Done)
        }
        _ => true,
    }
}

/// What exists after an apply of which each change met its fate; with all fates open, what may exist.
pub fn inventory(plan: &Plan, before: &[Entry], fate: impl Fn(usize) -> Fate) -> Vec<Entry> {
    let mut entries: BTreeMap<Identity, Entry> = BTreeMap::new();
    for entry in before {
        entries.insert(entry.identity.clone(), entry.clone());
    }
    let desired: BTreeMap<&Identity, &Resource> =
        plan.desired.iter().map(|resource| (&resource.identity, resource)).collect();
    for (place, change) in plan.changes.iter().enumerate() {
        let Change { identity, action, .. } = change;
        if matches!(identity, Identity::Check(_)) {
            continue;
        }
        let fate = if *action == Action::Keep { Fate::Done } else { fate(place) };
        let wanted = desired.get(identity).map(|resource| entry(resource));
        match (action, fate) {
            (Action::Delete | Action::Forget, Fate::Done) => {
                entries.remove(identity);
            }
            (_, Fate::Untouched) | (Action::Delete | Action::Forget | Action::Run, _) => {}
            (_, Fate::Done) => {
                entries.extend(wanted.map(|entry| (identity.clone(), entry)));
            }
            (_, Fate::Open) => {
                let Some(mut entry) = wanted else { continue };
                if let Some(old) = entries.get(identity) {
                    entry.set = united(&old.set, entry.set);
                }
                entries.insert(identity.clone(), entry);
            }
        }
    }
    entries.into_values().collect()
}

fn entry(resource: &Resource) -> Entry {
    let Resource { address, identity, kind, body, .. } = resource;
    let set = match identity {
        // The GKE API keeps no owner of a field.
        Identity::Cluster(_) | Identity::NodePool { .. } => body.clone(),
        Identity::Object(_) | Identity::Check(_) => Value::Null,
    };
    Entry { address: address.clone(), identity: identity.clone(), kind: kind.clone(), set }
}

/// What may have been set when it is not known which of two was: the new values and what only the old has.
fn united(old: &Value, new: Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(mut new)) => {
            for (key, before) in old {
                let after = match new.remove(key) {
                    Some(after) => united(before, after),
                    None => before.clone(),
                };
                new.insert(key.clone(), after);
            }
            Value::Object(new)
        }
        (Value::Array(old), Value::Array(mut new)) => {
            let gone: Vec<Value> = old.iter().filter(|item| !new.contains(item)).cloned().collect();
            new.extend(gone);
            Value::Array(new)
        }
        (old, Value::Null) => old.clone(),
        (_, new) => new,
    }
}

/// Passes that still hold: of checks that the plan keeps, and the new ones.
fn carried(
    plan: &Plan,
    old: BTreeMap<Address, String>,
    new: &BTreeMap<Address, String>,
) -> BTreeMap<Address, String> {
    let anew = cluster_change(plan).is_some_and(|(_, change)| change.action == Action::Replace);
    let holds = |address: &Address| {
        let kept = |change: &Change| change.address == *address && change.action == Action::Keep;
        let left_out = plan.leaves_out(&Identity::Check(address.clone()));
        !anew && (left_out || plan.changes.iter().any(kept))
    };
    let mut passes: BTreeMap<Address, String> =
        old.into_iter().filter(|(address, _)| holds(address)).collect();
    passes.extend(new.iter().map(|(address, digest)| (address.clone(), digest.clone())));
    passes
}
