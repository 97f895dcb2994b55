//! The record in the cluster. An apply writes it twice, and once more for each check that passes. The intent is written before
//! the first write to any API, or as soon as there is a cluster. The outcome is written at the end. A crash in between loses
//! nothing, as the intent has both the old and the new state. The first ConfigMap is written under the lock that it contains.
//!
//! The write after a check matters if the apply is killed later: the next apply must not need to rerun the check, whose GPU is
//! now used by workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

use crate::Outcome;
use crate::cost_meter::CostMeter;
use crate::failure::failed;
use crate::lock::{IfMissing, Lock, LockError, RecordWriteError};
use crate::record_error::RecordError;
use kinds::kind::StopEffect;
use live::record::{self, RecordContent, StoredRecord, ensure_namespace, forced_apply, namespace_path};
use live::retry::{self, RetryPolicy};
use live::{ApiError, ErrorClass, LiveApi, MANAGER, Request};
use model::address::Address;
use model::diag::Code;
use model::record::{CapacityUsed, Completions, Entry, NAMESPACE, Record, Tried};
use model::resource::{Api, Host, Identity, KindId, Method, ObjectId, Recreation, Resource, by_identity};
use plan::{Action, Change, Plan, Progress, invalidates_check};

/// How the changes of an apply ended, by their index in the plan, and how long each took.
pub type Outcomes = BTreeMap<usize, (Outcome, Duration)>;

/// The shortest creation time that is worth a note.
const SHORTEST_NOTED: Duration = Duration::from_secs(10);

impl From<&Outcome> for Progress {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Skipped { .. } | Outcome::Waits { .. } | Outcome::NotStarted => Self::Untouched,
            Outcome::Failed { .. }
            | Outcome::TimedOut { .. }
            | Outcome::Queued { .. }
            | Outcome::InDoubt { .. } => Self::Open,
        }
    }
}

/// The writer of the record. It has the record from before the apply, and writes the intent once for all changes.
pub struct RecordWriter<'a> {
    plan: &'a Plan,
    api: &'a dyn LiveApi,
    now: fn() -> jiff::Timestamp,
    /// The cost of the stack, which each write of the record counts up to its time.
    cost: CostMeter<'a>,
    intent: OnceCell<Result<Option<Record>, IntentError>>,
    /// Completions of this apply: checks that passed and run-once resources that were created.
    passed: Mutex<Completions>,
    /// Run-once resources whose request is in progress or whose reply was lost.
    creating: Mutex<BTreeSet<Identity>>,
    /// Pools that did not get their machines with their first capacity option in this apply.
    capacity_used: Mutex<Vec<CapacityUsed>>,
    /// Further ConfigMaps of the current record.
    parts: Mutex<Vec<ObjectId>>,
    /// The lock of the stack.
    lock: Option<Arc<Lock>>,
    /// True if the plan was made under the lock: no other apply can have written the record since.
    planned_under_lock: bool,
}

/// The error of writing the intent, and the change that needed it first.
struct IntentError {
    failed_change: Address,
    why: IntentFailure,
}

enum IntentFailure {
    Lock(LockError),
    /// Another apply has written the record since the plan was made.
    Stale,
}

/// The number of parallel LISTs when the namespace of records is checked for other objects.
const PARALLELISM: usize = 16;

impl<'a> RecordWriter<'a> {
    /// Creates the writer without reading or writing. If the lock is held already, the plan was made under it.
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
            cost: CostMeter::new(plan, now),
            intent: OnceCell::new(),
            passed: Mutex::default(),
            creating: Mutex::default(),
            capacity_used: Mutex::default(),
            parts: Mutex::default(),
            planned_under_lock: lock.as_ref().is_none_or(|lock| lock.is_held()),
            lock,
        }
    }

    /// Writes the intent before the first write of any change.
    ///
    /// # Errors
    /// The intent cannot be written: the first change fails, and the others are skipped because of it.
    pub async fn intent(&self, change: &Address) -> Result<(), Outcome> {
        if !keeps_record(self.plan) {
            return Ok(());
        }
        let write = || async {
            let broken = |why: IntentFailure| IntentError { failed_change: change.clone(), why };
            let unlocked = |why: LockError| broken(IntentFailure::Lock(why));
            if let Some(lock) = &self.lock {
                lock.take(IfMissing::Create).await.map_err(unlocked)?;
            }
            let old =
                self.read_record(RetryPolicy::Write).await.map_err(|why| unlocked(LockError::Failed(why)))?;
            if old.is_some() && !self.planned_under_lock {
                return Err(broken(IntentFailure::Stale));
            }
            let mut record = self.record(old.as_ref(), Phase::Intent { completed: &Completions::new() });
            record.accrued_cost = self.cost.read(old.as_ref(), |_| Progress::Open).await;
            self.add_capacity_used(&mut record, old.as_ref(), None).await;
            self.write(&record, RetryPolicy::Write).await.map_err(|why| match why {
                RecordWriteError::LockLost(who) => unlocked(LockError::HeldByOther(who)),
                RecordWriteError::Failed(error) => unlocked(LockError::Failed(error.with_remedy())),
            })?;
            Ok(old)
        };
        match self.intent.get_or_init(write).await {
            Ok(_) => Ok(()),
            Err(IntentError { failed_change, why }) if failed_change == change => Err(match why {
                IntentFailure::Lock(LockError::HeldByOther(who)) => {
                    let message = format!("another apply of this stack is running: {who}");
                    let help = "nothing was written to the cluster; wait until it finishes, then apply again";
                    failed(Code::Locked, message, Some(help))
                }
                IntentFailure::Lock(LockError::Failed(why)) => {
                    let message =
                        format!("the record of this apply cannot be written before its first change: {why}");
                    let help = "nothing was written to the cluster; fix the cause, then apply again";
                    failed(Code::RecordNotWritten, message, Some(help))
                }
                IntentFailure::Stale => {
                    let message = "another apply of this stack wrote the record after this plan was made";
                    let help = "nothing was written to the cluster; plan again, then apply";
                    failed(Code::Stale, message, Some(help))
                }
            }),
            Err(IntentError { failed_change, .. }) => {
                Err(Outcome::Skipped { because: failed_change.clone() })
            }
        }
    }

    /// Writes a completion into the record at once: successors of the check may take the GPUs that a rerun would need.
    ///
    /// # Errors
    /// The error as a text for the user. For this apply, the check still counts as passed.
    pub async fn note_pass(&self, thing: &Identity, digest: &str) -> Result<(), String> {
        // Held while writing, so that the last write has all completions.
        let mut completed = self.passed.lock().await;
        completed.insert(thing.clone(), digest.to_owned());
        self.creating.lock().await.remove(thing);
        self.update_intent(&completed).await
    }

    /// Records that a run-once resource is about to be created: if this process is killed now, it is unknown if it was.
    ///
    /// # Errors
    /// The error as a text for the user. The resource must not be created then.
    pub async fn note_creation(&self, thing: &Identity) -> Result<(), String> {
        let completed = self.passed.lock().await;
        if self.creating.lock().await.insert(thing.clone()) {
            self.update_intent(&completed).await
        } else {
            Ok(())
        }
    }

    /// Removes the entry that a resource is about to be created, because the API refused the request.
    pub async fn drop_creation(&self, thing: &Identity) {
        self.creating.lock().await.remove(thing);
    }

    /// Remembers the capacity option that a pool got its machines with, and the options tried before. It is written with the
    /// outcome.
    pub async fn note_capacity_used(&self, thing: &Identity, option: &str, tried: Vec<Tried>) {
        let used = CapacityUsed { identity: thing.clone(), option: option.to_owned(), tried };
        self.capacity_used.lock().await.push(used);
    }

    /// Adds the capacity options of this apply to the record, and earlier ones that are still valid.
    async fn add_capacity_used(
        &self,
        record: &mut Record,
        old: Option<&Record>,
        outcomes: Option<&Outcomes>,
    ) {
        let new = self.capacity_used.lock().await.clone();
        for used in &new {
            let offered = self.plan.capacity_options.iter().find(|offered| offered.identity == used.identity);
            let option = offered
                .and_then(|offered| offered.options.iter().find(|option| option.name() == used.option));
            let entry = record.inventory.iter_mut().find(|entry| entry.identity == used.identity);
            if let (Some(option), Some(entry)) = (option, entry) {
                entry.set = option.body.clone();
            }
        }
        let is_recreated = |thing: &Identity| {
            let changes = self.plan.changes.iter().enumerate();
            let mut made = changes.filter(|(_, change)| &change.identity == thing && change.action.creates());
            made.any(|(index, _)| {
                outcomes.is_some_and(|outcomes| progress(outcomes, index) == Progress::Done)
            })
        };
        let holds = |used: &&CapacityUsed| {
            let is_there = record.inventory.iter().any(|entry| entry.identity == used.identity);
            is_there
                && !is_recreated(&used.identity)
                && !new.iter().any(|other| other.identity == used.identity)
        };
        let old = old.map(|record| record.capacity_used.as_slice()).unwrap_or_default();
        record.capacity_used = old.iter().filter(holds).chain(&new).cloned().collect();
    }

    async fn update_intent(&self, completed: &Completions) -> Result<(), String> {
        let Some(Ok(old)) = self.intent.get() else { return Ok(()) };
        let create_once_pending = self.creating.lock().await.clone();
        let mut record = self.record(old.as_ref(), Phase::Intent { completed });
        record.accrued_cost = self.cost.read(old.as_ref(), |_| Progress::Open).await;
        record.create_once_pending.extend(create_once_pending);
        self.add_capacity_used(&mut record, old.as_ref(), None).await;
        let written = self.write(&record, RetryPolicy::Read).await;
        written.map_err(|why| RecordError::from(why).to_string())
    }

    /// Writes the outcome of the apply, or deletes the record if nothing of the stack is left.
    ///
    /// # Errors
    /// The outcome cannot be written. The intent remains, which lists everything that may exist.
    pub async fn outcome(&self, outcomes: &Outcomes, completed: &Completions) -> Result<(), RecordError> {
        if !keeps_record(self.plan) {
            return Ok(());
        }
        let old = match self.intent.get() {
            Some(Ok(old)) => old.clone(),
            // The intent's own failure has been told.
            Some(Err(_)) => return Ok(()),
            None if has_cluster(self.plan, outcomes) => {
                if let Some(lock) = &self.lock {
                    lock.take(IfMissing::Create).await?;
                }
                self.read_record(RetryPolicy::Read).await.map_err(RecordError::Failed)?
            }
            None => return Ok(()),
        };
        let mut record = self.record(old.as_ref(), Phase::Outcome { outcomes, completed });
        record.accrued_cost = self.cost.read(old.as_ref(), |change| progress(outcomes, change)).await;
        record.create_once_pending.extend(self.creating.lock().await.clone());
        self.add_capacity_used(&mut record, old.as_ref(), Some(outcomes)).await;
        if record.inventory.is_empty() && record.completed.is_empty() && record.stopped.is_empty() {
            self.remove().await
        } else {
            Ok(self.write(&record, RetryPolicy::Read).await?)
        }
    }

    fn record(&self, old: Option<&Record>, phase: Phase<'_>) -> Record {
        let before = old.map(|record| record.inventory.as_slice()).unwrap_or_default();
        let old_completed = old.map(|record| record.completed.clone()).unwrap_or_default();
        let changes: BTreeMap<&Identity, &Change> =
            self.plan.changes.iter().rev().map(|change| (&change.identity, change)).collect();
        let create_once_pending = self.creation_begun(old, &changes);
        let done = match &phase {
            Phase::Intent { .. } => false,
            Phase::Outcome { outcomes, .. } => {
                let mut indices = 0..self.plan.changes.len();
                self.plan.partial.is_none()
                    && indices.all(|index| progress(outcomes, index) == Progress::Done)
            }
        };
        let starting = self.starting(&phase);
        let (intent, inventory, completed) = match phase {
            Phase::Intent { completed } => {
                let known = remaining_completions(self.plan, old_completed, completed, |_| Progress::Open);
                let left = inventory(self.plan, before, |_| Progress::Open);
                (true, with_durations(left, before, &BTreeMap::new()), known)
            }
            Phase::Outcome { outcomes, completed } => {
                let left = self.remaining(before, outcomes, &changes);
                let completed = remaining_completions(self.plan, old_completed, completed, |change| {
                    progress(outcomes, change)
                });
                // A stack of which nothing is left, and that is made again, is another one.
                let over = self.plan.partial.is_none() && left.is_empty();
                (false, left, if over { Completions::new() } else { completed })
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
            completed,
            stopped: self.plan.stop_state.stopped.clone(),
            starting,
            started: match self.plan.stop_state.is_start() {
                true => jiff::Timestamp::from_second((self.now)().as_second()).ok().map(|at| at.to_string()),
                false => old.and_then(|record| record.started.clone()),
            },
            expired: None,
            incomplete: self.plan.incomplete,
            create_once_pending,
            capacity_used: Vec::new(),
            hosts: hosts(self.plan, old.filter(|_| !done)),
            accrued_cost: None,
        }
    }

    /// Returns the resources that are being started and were not found live yet: the next apply continues with them.
    fn starting(&self, phase: &Phase<'_>) -> BTreeSet<Identity> {
        let is_there = |thing: &Identity| match phase {
            Phase::Intent { completed } => completed.contains_key(thing),
            Phase::Outcome { outcomes, .. } => {
                let changes = self.plan.changes.iter().enumerate();
                let mut own = changes.filter(|(_, change)| change.identity == *thing).peekable();
                let is_done = |(index, change): (usize, &Change)| {
                    change.action == Action::Keep && !change.is_waited_for()
                        || progress(outcomes, index) == Progress::Done
                };
                own.peek().is_some() && own.all(is_done)
            }
        };
        let starting = self.plan.stop_state.starting.iter();
        starting.filter(|thing| !is_there(thing)).cloned().collect()
    }

    /// Returns the run-once resources that may or may not have been created. Live ones have been, and ones that are created now
    /// are added again.
    fn creation_begun(
        &self,
        old: Option<&Record>,
        changes: &BTreeMap<&Identity, &Change>,
    ) -> BTreeSet<Identity> {
        let settled = |thing: &&Identity| {
            let change = changes.get(*thing);
            change.is_none_or(|change| change.action == Action::Keep && change.fingerprint.is_none())
        };
        let mut create_once_pending: BTreeSet<Identity> =
            old.iter().flat_map(|record| &record.create_once_pending).filter(settled).cloned().collect();
        if old.is_none() && self.plan.notes.iter().any(|note| note.code == Code::RecordLost.as_str()) {
            create_once_pending.extend(left_out_once(self.plan));
        }
        create_once_pending
    }

    /// Returns what exists after the apply. A resource that the plan read and that was neither live nor desired is left out. A
    /// resource that the plan did not read may exist.
    fn remaining(
        &self,
        before: &[Entry],
        outcomes: &Outcomes,
        changes: &BTreeMap<&Identity, &Change>,
    ) -> Vec<Entry> {
        let mut left = inventory(self.plan, before, |change| progress(outcomes, change));
        let pods: BTreeSet<Identity> = pods(self.plan).into_values().map(|pod| pod.identity).collect();
        left.retain(|entry| {
            !self.planned_under_lock
                || !self.plan.target.reads(&entry.identity)
                || self.plan.leaves_out(&entry.identity)
                || changes.contains_key(&entry.identity)
                || pods.contains(&entry.identity)
        });
        with_durations(left, before, &durations(self.plan, outcomes))
    }

    /// Reads the record as it was before this apply.
    async fn read_record(&self, policy: RetryPolicy) -> Result<Option<Record>, String> {
        let record_id = Record::object(&self.plan.owner.stack);
        let found = record::fetch(self.api, &record_id, policy).await.map_err(|error| error.with_remedy())?;
        let StoredRecord::Record(stored) = found else { return Ok(None) };
        let RecordContent { record, parts } = *stored;
        *self.parts.lock().await = parts;
        let record = record.map_err(|why| format!("{record_id}: {why}"))?;
        let record = record.with_project_of(self.plan.target.gke.as_ref());
        if record.id != self.plan.owner.id {
            let Record { id, stack, .. } = record;
            return Err(format!(
                "{record_id} belongs to another stack named {stack} (id {id}); give this stack another name"
            ));
        }
        Ok(Some(record))
    }

    /// Writes the ConfigMaps of the record. The first one is written last, because it makes the others valid. Without the lock it
    /// cannot be written, and no part is deleted.
    async fn write(&self, record: &Record, policy: RetryPolicy) -> Result<(), RecordWriteError> {
        let mut held = self.parts.lock().await;
        let packed = record::pack(record);
        let count = packed.len();
        for (number, (record_id, config_map)) in (1..).zip(&packed) {
            match &self.lock {
                Some(lock) if number == count => lock.write(config_map, policy).await?,
                Some(_) | None => {
                    let written = self.write_one(record_id, config_map, policy).await;
                    written.map_err(RecordWriteError::Failed)?;
                }
            }
        }
        let old = held.iter().filter(|old| !packed.iter().any(|(record_id, _)| record_id == *old));
        for part in old {
            // A part that cannot be deleted stays unused until the record is deleted.
            let _ = self.delete(part.path(), None).await;
        }
        let ids = packed.into_iter().map(|(record_id, _)| record_id);
        *held = ids.filter(|record_id| record::is_part(&record.stack, &record_id.name)).collect();
        Ok(())
    }

    async fn write_one(
        &self,
        record_id: &ObjectId,
        config_map: &Value,
        policy: RetryPolicy,
    ) -> Result<(), ApiError> {
        let write = || forced_apply(record_id.path(), config_map.clone(), MANAGER);
        match retry::send(self.api, write(), policy).await {
            Ok(_) => Ok(()),
            Err(error) if error.class == ErrorClass::NotFound && !error.is_unknown_path() => {
                // The namespace is not there; the platform team may make it, so it is not made unasked.
                ensure_namespace(self.api, policy).await?;
                retry::send(self.api, write(), policy).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the record, and its namespace if this program created it and it contains nothing else. The namespace is deleted
    /// first, while the lock is held. From then on nothing can be created in it, so no other apply's lock is deleted with it. All
    /// deletes have a uid: if a reply is lost, another apply may have created its own record before the request is sent again.
    async fn remove(&self) -> Result<(), RecordError> {
        let record_id = Record::object(&self.plan.owner.stack);
        let parts = self.parts_by_uid(&record_id).await?;
        if let Some(lock) = &self.lock {
            lock.expect_deletion();
        }
        if let Some(uid) = self.removable_namespace(&record_id).await? {
            self.delete(namespace_path(), Some(uid)).await?;
        }
        match &self.lock {
            Some(lock) => lock.remove().await?,
            None => self.delete(record_id.path(), None).await?,
        }
        for (part, uid) in parts {
            self.delete(part.path(), Some(uid)).await?;
        }
        Ok(())
    }

    /// Returns the further ConfigMaps of this and of earlier records, with their uids.
    async fn parts_by_uid(&self, record_id: &ObjectId) -> Result<Vec<(ObjectId, String)>, ApiError> {
        let collection = Request::get(Api::Kubernetes, record_id.gvk.collection(Some(NAMESPACE)));
        let left = match retry::send(self.api, collection, RetryPolicy::Read).await {
            Err(error) if error.class == ErrorClass::NotFound => return Ok(Vec::new()),
            result => result?,
        };
        let items = left["items"].as_array().into_iter().flatten();
        let named = items.filter_map(|item| {
            let metadata = &item["metadata"];
            Some((metadata["name"].as_str()?.to_owned(), metadata["uid"].as_str()?.to_owned()))
        });
        let parts = named.filter(|(name, _)| record::is_part(&self.plan.owner.stack, name));
        Ok(parts.map(|(name, uid)| (ObjectId { name, ..record_id.clone() }, uid)).collect())
    }

    /// Returns the uid of the namespace of records if this program created it and it contains only this record.
    async fn removable_namespace(&self, record_id: &ObjectId) -> Result<Option<String>, ApiError> {
        let stack = &self.plan.owner.stack;
        let own = |object: &ObjectId| {
            object == record_id || (object.gvk == record_id.gvk && record::is_part(stack, &object.name))
        };
        record::removable_namespace(self.api, own, RetryPolicy::Read, PARALLELISM).await
    }

    /// Deletes an object. If it is gone or has been replaced meanwhile, nothing is left to do.
    async fn delete(&self, path: String, uid: Option<String>) -> Result<(), ApiError> {
        let body = uid.map(|uid| json!({ "preconditions": { "uid": uid } }));
        let request = Request { api: Api::Kubernetes, method: Method::Delete, path, body };
        match retry::send(self.api, request, RetryPolicy::Read).await {
            Err(error) if matches!(error.class, ErrorClass::NotFound | ErrorClass::Conflict) => Ok(()),
            result => result.map(drop),
        }
    }
}

enum Phase<'a> {
    Intent { completed: &'a Completions },
    Outcome { outcomes: &'a Outcomes, completed: &'a Completions },
}

pub(crate) fn cluster_change(plan: &Plan) -> Option<(usize, &Change)> {
    plan.changes.iter().enumerate().find(|(_, change)| matches!(change.identity, Identity::Cluster(_)))
}

/// Returns true if an apply of the plan writes a record. It does not if there is nothing to do, if the stack manages nothing, or
/// in a cluster that the plan deletes.
pub(crate) fn keeps_record(plan: &Plan) -> bool {
    let managed = |change: &Change| !matches!(change.identity, Identity::Check(_));
    let something =
        plan.record_left || plan.stop_state.differs_from_record || plan.changes.iter().any(managed);
    something
        && !plan.has_nothing_to_do()
        && cluster_change(plan).is_none_or(|(_, change)| change.action != Action::Delete)
}

/// Returns true if there is a cluster in which the outcome can be written.
fn has_cluster(plan: &Plan, outcomes: &Outcomes) -> bool {
    match cluster_change(plan) {
        Some((index, Change { action: Action::Create | Action::Replace, .. })) => {
            progress(outcomes, index) == Progress::Done
        }
        _ => true,
    }
}

fn progress(outcomes: &Outcomes, change: usize) -> Progress {
    outcomes.get(&change).map_or(Progress::Open, |(outcome, _)| Progress::from(outcome))
}

/// Returns the seconds that resources took to be created, if that is long enough to be recorded.
fn durations<'p>(plan: &'p Plan, outcomes: &Outcomes) -> BTreeMap<&'p Identity, u32> {
    let made =
        plan.changes.iter().enumerate().filter(|(index, change)| {
            change.action.creates() && progress(outcomes, *index) == Progress::Done
        });
    let took = made.filter_map(|(index, change)| {
        let (_, took) = outcomes.get(&index).filter(|(_, took)| *took >= SHORTEST_NOTED)?;
        Some((&change.identity, u32::try_from(took.as_secs()).ok()?))
    });
    took.collect()
}

/// Adds to the entries how long their resources took to be created, now or in an earlier apply.
fn with_durations(entries: Vec<Entry>, before: &[Entry], took: &BTreeMap<&Identity, u32>) -> Vec<Entry> {
    let earlier: BTreeMap<&Identity, u32> =
        before.iter().filter_map(|entry| Some((&entry.identity, entry.took?))).collect();
    let known = |thing: &Identity| took.get(thing).or_else(|| earlier.get(thing)).copied();
    entries.into_iter().map(|entry| Entry { took: known(&entry.identity), ..entry }).collect()
}

/// Returns what exists after an apply, from the progress of each change. If all changes are open, returns what may exist.
pub fn inventory(plan: &Plan, before: &[Entry], progress: impl Fn(usize) -> Progress) -> Vec<Entry> {
    let mut entries: BTreeMap<Identity, Entry> = BTreeMap::new();
    for entry in before {
        entries.insert(entry.identity.clone(), entry.clone());
    }
    let desired = by_identity(&plan.desired);
    let pods = pods(plan);
    for (index, change) in plan.changes.iter().enumerate() {
        let Change { identity, action, .. } = change;
        let (progress, ready) = match (*action, progress(index)) {
            (Action::Keep, progress) if change.is_waited_for() => {
                (Progress::Done, progress == Progress::Done)
            }
            (Action::Keep, _) => (Progress::Done, true),
            (_, progress) => (progress, progress == Progress::Done),
        };
        let new = match pods.get(&index) {
            Some(pod) => Some(pod.clone()),
            None if matches!(identity, Identity::Check(_)) => continue,
            None => desired.get(identity).map(|resource| {
                let old = before.iter().find(|entry| entry.identity == *identity);
                let is_stopped = plan.stop_state.stopped.contains_key(identity) && !action.creates();
                let set = old.filter(|_| is_stopped).and_then(|old| stopped_fields(resource, &old.set));
                let entry = entry(resource);
                Entry { ready: Some(ready), set: set.unwrap_or(entry.set), ..entry }
            }),
        };
        update_entries(&mut entries, change, progress, new);
    }
    for (address, object) in plan.partial.iter().flat_map(|partial| &partial.unrecorded) {
        let identity = Identity::Object(object.clone());
        let left = entry_without_fields(address, &identity, kinds::kubernetes::object::kind_of(object));
        entries.entry(identity).or_insert(Entry { ready: Some(false), ..left });
    }
    entries.into_values().collect()
}

/// Updates the entries by the progress of a change; `new` is the resource that it creates, or the pod that it runs.
fn update_entries(
    entries: &mut BTreeMap<Identity, Entry>,
    change: &Change,
    progress: Progress,
    new: Option<Entry>,
) {
    let Change { identity, action, .. } = change;
    match (action, progress) {
        (Action::Delete | Action::Forget, Progress::Done) => {
            entries.remove(identity);
        }
        // The pod of a check goes with its run; it stays only where that was cut short.
        (Action::Run, Progress::Done | Progress::Untouched) => {
            entries.retain(|_, entry| new.as_ref().is_none_or(|pod| pod.identity != entry.identity));
        }
        (Action::Run, Progress::Open) => {
            entries.extend(new.map(|pod| (pod.identity.clone(), pod)));
        }
        // It may be there still, and no record may have named it before: the last one may be lost.
        (Action::Delete | Action::Forget, Progress::Open | Progress::Untouched) if !change.foreign => {
            entries.entry(identity.clone()).or_insert_with(|| change_entry(change));
        }
        (_, Progress::Untouched) | (Action::Delete | Action::Forget, _) => {}
        (Action::Keep, Progress::Done) if new.is_none() => {
            // It stays for others, and is still what this stack has made.
            entries.entry(identity.clone()).or_insert_with(|| change_entry(change));
        }
        (_, Progress::Done) => {
            entries.extend(new.map(|entry| (identity.clone(), entry)));
        }
        (_, Progress::Open) => {
            let Some(mut entry) = new else { return };
            if let Some(old) = entries.get(identity) {
                entry.set = merged(&old.set, entry.set);
            }
            entries.insert(identity.clone(), entry);
        }
    }
}

/// Returns the pods of the checks that a plan runs, by the index of the change.
fn pods(plan: &Plan) -> BTreeMap<usize, Entry> {
    let runs = plan.changes.iter().enumerate().filter(|(_, change)| change.action == Action::Run);
    let desired = by_identity(&plan.desired);
    let pods = runs.filter_map(|(index, change)| {
        let resource = desired.get(&change.identity)?;
        let pod = Some(kinds::dask::check::pod(&resource.body)).filter(|pod| !pod.name.is_empty())?;
        let address = kinds::dask::check::address_of(&change.address, &pod);
        Some((index, entry_without_fields(&address, &Identity::Object(pod), KindId::Object)))
    });
    pods.collect()
}

fn change_entry(change: &Change) -> Entry {
    entry_without_fields(&change.address, &change.identity, change.kind)
}

/// Returns the entry of a resource without the values last set.
fn entry_without_fields(address: &Address, identity: &Identity, kind: KindId) -> Entry {
    let (address, identity) = (address.clone(), identity.clone());
    Entry { address, identity, kind: kind.into(), set: Value::Null, ready: None, took: None }
}

fn entry(resource: &Resource) -> Entry {
    let Resource { address, identity, kind, body, .. } = resource;
    let set = match identity {
        // The GKE API keeps no owner of a field.
        Identity::Cluster(_) | Identity::NodePool { .. } => body.clone(),
        Identity::Object(_) | Identity::Check(_) => Value::Null,
    };
    Entry { set, ..entry_without_fields(address, identity, *kind) }
}

/// Returns the values last set on a pool that is stopped: the earlier ones, because edits of a stopped pool are applied when it
/// starts.
fn stopped_fields(resource: &Resource, set: &Value) -> Option<Value> {
    let StopEffect::Empties(empty) = kinds::of(resource.kind).stop_effect else { return None };
    let mut set = Some(set.clone()).filter(Value::is_object)?;
    empty(&mut set);
    Some(set)
}

/// Returns the hosts of the stack, and former hosts that may still have resources of it.
fn hosts(plan: &Plan, left: Option<&Record>) -> Vec<Host> {
    let names: BTreeSet<&str> = plan.desired.iter().flat_map(|resource| host_names(&resource.body)).collect();
    let used = plan.target.hosts.iter().filter(|host| names.contains(host.name.as_str()));
    let mut hosts: Vec<Host> = used.cloned().collect();
    for host in left.iter().flat_map(|record| &record.hosts) {
        let is_known =
            hosts.iter().any(|known| known.name == host.name) || plan.target.gone.contains(&host.name);
        hosts.extend((!is_known).then(|| host.clone()));
    }
    hosts
}

fn host_names(body: &Value) -> impl Iterator<Item = &str> {
    body["spec"]["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the values that may be set if it is unknown which of two was: the new values, and values that only the old one has.
fn merged(old: &Value, new: Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(mut new)) => {
            for (key, before) in old {
                let after = match new.remove(key) {
                    Some(after) => merged(before, after),
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

/// Returns the run-once resources that a plan leaves out. If the record is lost, a new record would not know them.
fn left_out_once(plan: &Plan) -> impl Iterator<Item = Identity> {
    let left_out =
        move |resource: &&Resource| !plan.changes.iter().any(|change| change.identity == resource.identity);
    let once = plan.desired.iter().filter(|resource| matches!(resource.recreation, Recreation::Once { .. }));
    once.filter(left_out).map(|resource| resource.identity.clone())
}

/// Returns the completions that are still valid, and the new ones. A completion belongs to a resource: it stays if the resource
/// is left out of the plan, gets another address, or is deleted outside the stack. A run-once resource that exists gets one even
/// if an earlier record was lost.
fn remaining_completions(
    plan: &Plan,
    old: Completions,
    new: &Completions,
    progress: impl Fn(usize) -> Progress,
) -> Completions {
    let is_recreated = cluster_change(plan).is_some_and(|(_, change)| change.action == Action::Replace);
    let mut completed = if is_recreated { Completions::new() } else { old };
    let desired = by_identity(&plan.desired);
    let is_check = |resource: &&Resource| matches!(resource.identity, Identity::Check(_));
    let checks: Vec<&Resource> = plan.desired.iter().filter(is_check).collect();
    for (index, change) in plan.changes.iter().enumerate() {
        let Change { identity, action, .. } = change;
        match (action, progress(index)) {
            // A check that is about to run again has not passed until it has.
            (Action::Run, Progress::Open | Progress::Done)
            | (Action::Delete | Action::Forget, Progress::Done) => {
                completed.remove(identity);
            }
            (Action::Keep, _) if change.fingerprint.is_some() => {
                let resource = desired.get(identity).copied();
                let once = resource.filter(|resource| matches!(resource.recreation, Recreation::Once { .. }));
                if let Some(resource) = once {
                    completed
                        .entry(identity.clone())
                        .or_insert_with(|| kinds::kubernetes::once_digest::digest(resource));
                }
            }
            _ => {}
        }
        // Also those that this plan leaves out: they have not passed on what is there now.
        if (kinds::of(change.kind).invalidates_checks)(*action) && progress(index) != Progress::Untouched {
            let checks = checks.iter().filter(|check| invalidates_check(change, check));
            checks.for_each(|check| drop(completed.remove(&check.identity)));
        }
    }
    kinds::kubernetes::once_digest::renew(&mut completed, &plan.desired);
    completed.extend(new.iter().map(|(thing, digest)| (thing.clone(), digest.clone())));
    completed
}
