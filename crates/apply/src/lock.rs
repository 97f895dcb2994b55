//! One apply of a stack at a time: a lock in the record's ConfigMap, renewed while an apply runs. A lock that is no longer
//! renewed can be taken over, so that a killed apply blocks nobody. The clocks of two machines are never compared: an apply that
//! wants the lock watches if it is renewed.
//!
//! Lock and record are the same object. So a write of the record is conditional on the resourceVersion at which this apply last
//! held the lock: an apply that has lost the lock can no longer write the record. Other writes cannot be conditional on that
//! version. They are sent only while [`Lock::may_send`] says that nobody else can have the lock. It is not a `Lease`
//! (`coordination.k8s.io/v1`): a Kubernetes write can be conditional only on its own object, and a Lease has no fencing
//! (client-go says so about leader election).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use live::record::{ensure_namespace, forced_apply, holds_record};
use live::retry::{self, RetryDecision, RetryPolicy, RetryReason, RetryState};
use live::{ApiError, ErrorClass, LiveApi, MANAGER as RECORDS, Request};
use model::record::{NAMESPACE, Record};
use model::resource::{Api, Method, ObjectId, Owner};

/// The annotation with the lock.
const ANNOTATION: &str = "dask-infra.dev/lock";
/// The field manager of the lock: the record has its own.
const MANAGER: &str = "dask-infra-lock";
/// How often the lock is renewed, and how long a renewal may take.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// How long the lock holds after its last renewal.
const TTL: Duration = Duration::from_secs(15);
/// How long after sending the last renewal other writes may be sent. Another apply can take the lock after [`TTL`]; writes should
/// have arrived by then.
const TTL_SAFE: Duration = Duration::from_secs(10);
/// How long to wait for a namespace that is being deleted.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often an apply that waits for the lock reads it, and the pause before a failed renewal is retried.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often a write is retried because the ConfigMap was written in between.
const MAX_RACES: usize = 5;

/// The process that holds the lock or wants to take it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// `ann@laptop`.
    pub who: String,
    /// The process id.
    pub pid: u32,
    /// An identifier that distinguishes the process from all others, if the system provides one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// Answers to the question if a process still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Yes,
    /// It has ended.
    No,
    /// It is on another machine, or the system does not tell.
    Unknown,
}

/// The content of the annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    holder: Holder,
    /// When the lock was taken: RFC 3339, by the holder's clock.
    since: String,
    /// The number of renewals.
    renewed: u64,
    /// Seconds for which it holds without a renewal.
    seconds: u64,
}

impl Entry {
    fn liveness(&self, of: fn(&str) -> Liveness) -> Liveness {
        self.holder.process.as_deref().map_or(Liveness::Unknown, of)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holder: Holder { who, pid, process: _ }, since, .. } = self;
        // Nobody reads the nanoseconds; the entry keeps them, to tell two holders apart.
        let second = since.split('.').next().unwrap_or(since).trim_end_matches('Z');
        write!(f, "{who}, process {pid}, since {second}Z")
    }
}

#[derive(Clone, Debug)]
pub struct LockOptions {
    /// The process that takes the lock.
    pub holder: Holder,
    /// Finds out if the process of a holder still runs.
    pub liveness: fn(&str) -> Liveness,
    /// True to break another holder's lock.
    pub force: bool,
    /// The current time, for the lock.
    pub now: fn() -> jiff::Timestamp,
    /// A monotonic clock that also advances while the machine sleeps.
    pub clock: fn() -> Duration,
}

/// Errors of taking the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockError {
    /// Another apply holds it: who, and since when.
    HeldByOther(String),
    /// It cannot be read or written.
    Failed(String),
}

/// Reactions if the ConfigMap for the lock does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// Create it.
    Create,
    /// Continue without a lock.
    Skip,
}

/// Reasons why writes are blocked.
#[derive(Clone, Debug, PartialEq)]
pub enum SendBlocked {
    /// The lock is lost; to whom.
    LockLost(String),
    /// The last renewal was so long ago that another apply may take the lock: the time since, and the error of the last renewal.
    /// Renewing continues.
    LockUnsure(Duration, Option<ApiError>),
}

/// Errors of writing the record's first ConfigMap.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordWriteError {
    /// The lock is lost; to whom.
    LockLost(String),
    /// The request failed.
    Failed(ApiError),
}

#[derive(Clone, Debug)]
struct HeldLock {
    entry: Entry,
    version: Option<String>,
    uid: Option<String>,
    /// True if the ConfigMap contains the lock but no record.
    only_lock: bool,
}

/// The last known state of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LockState {
    /// Not taken.
    NotTaken,
    /// This apply holds it. The value is the time of the clock when the last renewal was sent.
    Held(Duration),
    /// Another holder took it.
    Lost(String),
}

/// The lock of a stack. It need not be held yet.
pub struct Lock {
    api: Arc<dyn LiveApi>,
    place: ObjectId,
    options: LockOptions,
    held: Mutex<Option<HeldLock>>,
    state: watch::Sender<LockState>,
    /// The error of the last renewal; `None` after one that succeeded.
    last_error: Mutex<Option<ApiError>>,
    /// True if the ConfigMap with the lock may be deleted before the lock is released.
    expect_deletion: AtomicBool,
}

impl Lock {
    /// Creates the lock without taking it.
    pub fn new(api: Arc<dyn LiveApi>, owner: &Owner, options: LockOptions) -> Self {
        let (place, state) = (Record::object(&owner.stack), watch::Sender::new(LockState::NotTaken));
        Self {
            api,
            place,
            options,
            held: Mutex::default(),
            state,
            last_error: Mutex::default(),
            expect_deletion: AtomicBool::default(),
        }
    }

    /// Takes the lock, unless it is held already. `missing` says what happens if the ConfigMap does not exist.
    ///
    /// # Errors
    /// Another apply holds it or has taken it, or it cannot be read or written.
    pub async fn take(&self, missing: IfMissing) -> Result<(), LockError> {
        if let LockState::Lost(who) = &*self.state.borrow() {
            return Err(LockError::HeldByOther(who.clone()));
        }
        if self.is_held() {
            return Ok(());
        }
        let cannot = |error: ApiError| LockError::Failed(error.with_remedy());
        let mut live = self.read().await.map_err(cannot)?;
        let (mut tries, start, mut races) = (RetryState::new(RetryPolicy::Write), Instant::now(), 0);
        // Whoever comes first wins; the other one sees it at the next look.
        while races < MAX_RACES {
            if let Some(other) = live.as_ref().and_then(entry_of) {
                live = self.wait_for_release(other).await?;
            }
            if live.is_none() && missing == IfMissing::Skip {
                return Ok(());
            }
            let LockOptions { holder, now, .. } = &self.options;
            let (since, seconds) = (now().to_string(), TTL.as_secs());
            let entry = Entry { holder: holder.clone(), since, renewed: 0, seconds };
            let only_lock = live.as_ref().is_none_or(|live| !holds_record(live));
            let (version, uid) = match &live {
                Some(live) => (version_of(live), uid_of(live)),
                // The version that no live object has.
                None => (Some("1".to_owned()), None),
            };
            let mut mine = HeldLock { entry, version, uid, only_lock };
            let sent = (self.options.clock)();
            let error = match self.create(&mine).await {
                Ok(reply) => {
                    mine.version = version_of(&reply);
                    mine.uid = uid_of(&reply);
                    *self.held() = Some(mine);
                    self.state.send_replace(LockState::Held(sent));
                    return Ok(());
                }
                Err(error) => error,
            };
            if is_race(&error) {
                races += 1;
            } else {
                match tries.decide(&self.write_request(&mine), &error, false, start.elapsed()) {
                    // It may have been done: then the next look finds our own entry.
                    RetryDecision::Again {
                        reason: RetryReason::Lost | RetryReason::Unavailable,
                        after,
                        ..
                    } => {
                        tokio::time::sleep(after).await;
                    }
                    RetryDecision::Again { .. } | RetryDecision::GiveUp => return Err(cannot(error)),
                }
            }
            live = self.read().await.map_err(cannot)?;
        }
        Err(LockError::Failed("other clients keep changing it".into()))
    }

    pub fn is_held(&self) -> bool {
        self.held().is_some()
    }

    /// Returns who has taken the lock, if it was lost.
    pub fn lost(&self) -> Option<String> {
        match &*self.state.borrow() {
            LockState::Lost(who) => Some(who.clone()),
            LockState::NotTaken | LockState::Held(_) => None,
        }
    }

    /// Returns `Ok` if writes may be sent now: nobody else can have the lock, or no lock is used.
    ///
    /// # Errors
    /// Why writes are blocked.
    pub fn may_send(&self) -> Result<(), SendBlocked> {
        match &*self.state.borrow() {
            LockState::NotTaken => Ok(()),
            LockState::Lost(who) => Err(SendBlocked::LockLost(who.clone())),
            LockState::Held(renewed) => match (self.options.clock)().saturating_sub(*renewed) {
                since if since > TTL_SAFE => Err(SendBlocked::LockUnsure(since, self.last_error().clone())),
                _ => Ok(()),
            },
        }
    }

    /// Waits until the lock of another holder is released or has expired. Returns the ConfigMap then.
    async fn wait_for_release(&self, other: Entry) -> Result<Option<Value>, LockError> {
        let LockOptions { holder, liveness, force, .. } = &self.options;
        let seen = Instant::now();
        loop {
            let live = self.read().await.map_err(|error| LockError::Failed(error.with_remedy()))?;
            let Some(entry) = live.as_ref().and_then(entry_of) else { return Ok(live) };
            let liveness = entry.liveness(*liveness);
            let over = seen.elapsed() >= Duration::from_secs(entry.seconds);
            if *force
                || entry.holder == *holder
                || liveness == Liveness::No
                || (over && liveness == Liveness::Unknown)
            {
                return Ok(live);
            }
            if liveness == Liveness::Yes || entry != other {
                return Err(LockError::HeldByOther(entry.to_string()));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Renews the lock until it is lost; returns who has it then.
    pub async fn renew(&self) -> String {
        let mut state = self.state.subscribe();
        let mut pause = RENEW_INTERVAL;
        loop {
            let lost = state.wait_for(|state| matches!(state, LockState::Lost(_)));
            if let Ok(Ok(state)) = tokio::time::timeout(pause, lost).await
                && let LockState::Lost(who) = &*state
            {
                return who.clone();
            }
            pause = match self.renew_once().await {
                true => RENEW_INTERVAL,
                false => POLL_INTERVAL,
            };
        }
    }

    /// Renews the lock once. Returns true if that succeeded, or the lock is not held.
    async fn renew_once(&self) -> bool {
        for _ in 0..MAX_RACES {
            let Some(mine) = self.next_entry() else { return true };
            let sent = (self.options.clock)();
            match tokio::time::timeout(RENEW_INTERVAL, self.api.send(self.write_request(&mine))).await {
                Ok(Ok(reply)) => {
                    self.note_version(&mine, &reply);
                    *self.last_error() = None;
                    self.state.send_if_modified(|state| match state {
                        LockState::Held(renewed) => {
                            *renewed = sent;
                            true
                        }
                        LockState::NotTaken | LockState::Lost(_) => false,
                    });
                    return true;
                }
                Ok(Err(error)) if is_race(&error) => match self.check(&mine).await {
                    LockCheck::Held => {}
                    LockCheck::Lost(_) | LockCheck::Unknown => return false,
                },
                // Tried again soon: a short silence loses nothing.
                Ok(Err(error)) => {
                    *self.last_error() = Some(error);
                    return false;
                }
                Err(_) => {
                    *self.last_error() = None;
                    return false;
                }
            }
        }
        false
    }

    fn last_error(&self) -> MutexGuard<'_, Option<ApiError>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entry that the next renewal writes. Its number rises with each try, because even a try without a reply may
    /// have been stored.
    fn next_entry(&self) -> Option<HeldLock> {
        let mut held = self.held();
        let mine = held.as_mut()?;
        mine.entry.renewed += 1;
        Some(mine.clone())
    }

    /// Writes the record's first ConfigMap, if this apply still holds the lock.
    ///
    /// # Errors
    /// The lock is lost, or the request failed.
    pub async fn write(&self, config_map: &Value, policy: RetryPolicy) -> Result<(), RecordWriteError> {
        self.send_if_held(policy, |mine| {
            let mut body = config_map.clone();
            bind(&mut body, mine);
            forced_apply(self.place.path(), body, RECORDS)
        })
        .await
        .map(|()| {
            if let Some(mine) = self.held().as_mut() {
                mine.only_lock = false;
            }
        })
    }

    /// Deletes the record's first ConfigMap, and the lock with it, if this apply still holds the lock.
    ///
    /// # Errors
    /// The lock is lost, or the request failed.
    pub async fn remove(&self) -> Result<(), RecordWriteError> {
        match self.send_if_held(RetryPolicy::Read, |mine| self.delete_request(mine)).await {
            Err(RecordWriteError::Failed(error)) if error.class == ErrorClass::NotFound => {}
            result => result?,
        }
        self.forget();
        Ok(())
    }

    /// Declares that this apply is about to delete the ConfigMap with the lock. A renewal that does not find it then does not
    /// count as a loss.
    pub fn expect_deletion(&self) {
        self.expect_deletion.store(true, Ordering::Relaxed);
    }

    /// Sends a write that is conditional on the version of the ConfigMap at which this apply last held the lock.
    async fn send_if_held(
        &self,
        policy: RetryPolicy,
        request: impl Fn(&HeldLock) -> Request,
    ) -> Result<(), RecordWriteError> {
        let (mut tries, start, mut races) = (RetryState::new(policy), Instant::now(), 0);
        loop {
            let mine = self.held().clone();
            let Some(mine) = mine else {
                return Err(RecordWriteError::LockLost(self.lost().unwrap_or_else(|| "nobody".to_owned())));
            };
            let request = request(&mine);
            let error = match self.api.send(request.clone()).await {
                Ok(reply) => {
                    self.note_version(&mine, &reply);
                    return Ok(());
                }
                Err(error) => error,
            };
            if is_race(&error) && races < MAX_RACES {
                races += 1;
                match self.check(&mine).await {
                    LockCheck::Lost(who) => return Err(RecordWriteError::LockLost(who)),
                    LockCheck::Held => {}
                    LockCheck::Unknown => tokio::time::sleep(POLL_INTERVAL).await,
                }
                continue;
            }
            match tries.decide(&request, &error, false, start.elapsed()) {
                RetryDecision::Again { after, .. } => tokio::time::sleep(after).await,
                RetryDecision::GiveUp => return Err(RecordWriteError::Failed(error)),
            }
        }
    }

    /// Releases the lock. A lock that cannot be released expires soon.
    pub async fn release(&self) {
        for _ in 0..MAX_RACES {
            let mine = self.held().clone();
            let Some(mine) = mine else { return };
            let request = match mine.only_lock {
                // It was made for the lock alone.
                true => self.delete_request(&mine),
                false => {
                    let mut body = self.body(json!({}));
                    bind(&mut body, &mine);
                    forced_apply(self.place.path(), body, MANAGER)
                }
            };
            match self.api.send(request).await {
                Err(error) if is_race(&error) => match self.check(&mine).await {
                    LockCheck::Held => {}
                    LockCheck::Lost(_) | LockCheck::Unknown => return,
                },
                Ok(_) | Err(_) => break,
            }
        }
        self.forget();
    }

    /// Abandons the lock, because its cluster is about to be deleted. It is taken again in a new cluster.
    pub fn forget(&self) {
        *self.held() = None;
        self.state.send_if_modified(|state| match state {
            LockState::Held(_) => {
                *state = LockState::NotTaken;
                true
            }
            LockState::NotTaken | LockState::Lost(_) => false,
        });
    }

    /// Checks if the lock is still held after a conflict: the ConfigMap also changes when the record is written.
    async fn check(&self, mine: &HeldLock) -> LockCheck {
        let Ok(live) = self.read_once().await else { return LockCheck::Unknown };
        let who = match live.as_ref().and_then(entry_of) {
            Some(entry) if entry.holder == mine.entry.holder && entry.since == mine.entry.since => {
                if let (Some(live), Some(held)) = (live.as_ref(), self.held().as_mut()) {
                    held.version = version_of(live);
                }
                return LockCheck::Held;
            }
            Some(Entry { holder, .. }) => format!("{}, process {}", holder.who, holder.pid),
            None if live.is_none() && self.expect_deletion.load(Ordering::Relaxed) => {
                return LockCheck::Unknown;
            }
            None => "nobody: the lock was broken".to_owned(),
        };
        // A lock that was released meanwhile is not lost.
        if self.held().take().is_some() {
            self.state.send_replace(LockState::Lost(who.clone()));
        }
        LockCheck::Lost(who)
    }

    fn held(&self) -> MutexGuard<'_, Option<HeldLock>> {
        // Nothing that holds it can panic half way.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the version that a write of this apply resulted in.
    fn note_version(&self, mine: &HeldLock, reply: &Value) {
        if let Some(held) = self.held().as_mut().filter(|held| held.version == mine.version) {
            held.version = version_of(reply);
        }
    }

    async fn read_once(&self) -> Result<Option<Value>, ApiError> {
        let request = Request::get(Api::Kubernetes, self.place.path());
        let read = self.api.send(request.clone());
        let answer = tokio::time::timeout(RENEW_INTERVAL, read).await;
        none_if_not_found(answer.unwrap_or_else(|_| Err(request.unanswered("no answer in time"))))
    }

    async fn read(&self) -> Result<Option<Value>, ApiError> {
        let request = Request::get(Api::Kubernetes, self.place.path());
        none_if_not_found(retry::send(&*self.api, request, RetryPolicy::Write).await)
    }

    fn body(&self, annotations: Value) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": self.place.name, "namespace": NAMESPACE, "annotations": annotations },
        })
    }

    /// Returns the request that writes this apply's entry.
    fn write_request(&self, mine: &HeldLock) -> Request {
        let text = serde_json::to_string(&mine.entry).unwrap_or_default();
        let mut body = self.body(json!({ ANNOTATION: text }));
        bind(&mut body, mine);
        forced_apply(self.place.path(), body, MANAGER)
    }

    fn delete_request(&self, mine: &HeldLock) -> Request {
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": mine.uid, "resourceVersion": mine.version },
        });
        let (api, method) = (Api::Kubernetes, Method::Delete);
        Request { api, method, path: self.place.path(), body: Some(body) }
    }

    /// Writes an entry for the first time, and creates the namespace if it is missing.
    async fn create(&self, mine: &HeldLock) -> Result<Value, ApiError> {
        // Of the last destroy the namespace may still be on its way out.
        let first = match self.api.send(self.write_request(mine)).await {
            Err(error) if error.class == ErrorClass::Busy => {
                let again = retry::send(&*self.api, self.write_request(mine), RetryPolicy::Write);
                tokio::time::timeout(NAMESPACE_TIMEOUT, again).await.unwrap_or(Err(error))
            }
            result => result,
        };
        match first {
            Err(error) if error.class == ErrorClass::NotFound && !error.is_unknown_path() => {
                ensure_namespace(&*self.api, RetryPolicy::Write).await?;
                self.api.send(self.write_request(mine)).await
            }
            result => result,
        }
    }
}

/// Results of a check of this apply's lock.
enum LockCheck {
    Held,
    Lost(String),
    Unknown,
}

/// Makes a write fail unless the ConfigMap is the one that was last read. The uid prevents the write from creating a deleted
/// ConfigMap again.
fn bind(body: &mut Value, mine: &HeldLock) {
    for (name, value) in [("resourceVersion", &mine.version), ("uid", &mine.uid)] {
        if let Some(value) = value {
            body["metadata"][name] = json!(value);
        }
    }
}

fn version_of(live: &Value) -> Option<String> {
    live.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned)
}

fn uid_of(live: &Value) -> Option<String> {
    live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned)
}

fn none_if_not_found(answer: Result<Value, ApiError>) -> Result<Option<Value>, ApiError> {
    match answer {
        Err(error) if error.class == ErrorClass::NotFound => Ok(None),
        result => result.map(Some),
    }
}

fn is_race(error: &ApiError) -> bool {
    matches!(error.class, ErrorClass::Conflict | ErrorClass::AlreadyExists)
}

/// Returns who is applying a stack, and true if that is certain: a process on another machine may have ended. `None` if nobody
/// is, or the lock cannot be read.
pub async fn running(
    api: &dyn LiveApi,
    owner: &Owner,
    liveness: fn(&str) -> Liveness,
) -> Option<(String, bool)> {
    let request = Request::get(Api::Kubernetes, Record::object(&owner.stack).path());
    let entry = entry_of(&api.send(request).await.ok()?)?;
    match entry.liveness(liveness) {
        Liveness::No => None,
        alive => Some((entry.to_string(), alive == Liveness::Yes)),
    }
}

fn entry_of(live: &Value) -> Option<Entry> {
    let text = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;
    use model::resource::Method;

    /// Tokio's clock, which these tests move.
    fn paused() -> Duration {
        thread_local!(static FIRST: Instant = Instant::now());
        FIRST.with(Instant::elapsed)
    }

    /// A fake API with one ConfigMap, of which only the annotation and the version matter.
    #[derive(Default)]
    struct StoredConfigMap(StdMutex<(Option<String>, u64)>);

    impl StoredConfigMap {
        fn entry(&self) -> Option<Entry> {
            let held = self.0.lock().unwrap();
            held.0.as_deref().and_then(|text| serde_json::from_str(text).ok())
        }
    }

    impl LiveApi for StoredConfigMap {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            let mut held = self.0.lock().unwrap();
            let answer = if request.method == Method::Get {
                match held.1 {
                    0 => Err(request.failed(ErrorClass::NotFound, "not found")),
                    version => Ok(json!({ "metadata": {
                        "resourceVersion": version.to_string(), "annotations": { ANNOTATION: held.0 },
                    } })),
                }
            } else if request.method == Method::Delete {
                let body = request.body.clone().unwrap_or_default();
                if body["preconditions"]["resourceVersion"] == *held.1.to_string() {
                    *held = (None, 0);
                    Ok(json!({}))
                } else {
                    Err(request.failed(ErrorClass::Conflict, "the object has been modified"))
                }
            } else {
                let body = request.body.clone().unwrap_or_default();
                let wanted = body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                let fits = wanted == held.1.to_string() || (held.1 == 0 && wanted == "1");
                if fits {
                    held.0 = body["metadata"]["annotations"][ANNOTATION].as_str().map(str::to_owned);
                    held.1 += 10;
                    Ok(json!({ "metadata": { "resourceVersion": held.1.to_string() } }))
                } else {
                    Err(request.failed(ErrorClass::Conflict, "the object has been modified"))
                }
            };
            async move { answer }.boxed()
        }
    }

    /// A [`StoredConfigMap`] whose namespace is being deleted: this many writes are refused.
    struct Leaving(StoredConfigMap, StdMutex<u32>);

    impl LiveApi for Leaving {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            let mut left = self.1.lock().unwrap();
            if request.method != Method::Get && *left > 0 {
                *left -= 1;
                let refused = request.failed(ErrorClass::Busy, "namespace dask-infra is being terminated");
                return async move { Err(refused) }.boxed();
            }
            self.0.send(request)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_is_being_deleted_is_waited_for() {
        for (refusals, taken) in [(4, true), (u32::MAX, false)] {
            let holder = Holder { who: "ann".into(), pid: 7, process: None };
            let owner = Owner { stack: "s".into(), id: "s".into() };
            let api = Arc::new(Leaving(StoredConfigMap::default(), StdMutex::new(refusals)));
            let now = || jiff::Timestamp::UNIX_EPOCH;
            let options =
                LockOptions { holder, liveness: |_| Liveness::Unknown, force: false, now, clock: paused };
            let start = Instant::now();
            assert_eq!(Lock::new(api, &owner, options).take(IfMissing::Create).await.is_ok(), taken);
            assert!(start.elapsed() <= Duration::from_secs(60), "{:?}", start.elapsed());
        }
    }

    fn lock(shelf: &Arc<StoredConfigMap>, who: &str, liveness: fn(&str) -> Liveness, force: bool) -> Lock {
        let holder = Holder { who: who.into(), pid: 7, process: Some(who.into()) };
        let now = || jiff::Timestamp::UNIX_EPOCH;
        let owner = Owner { stack: "s".into(), id: "s".into() };
        let api: Arc<dyn LiveApi> = Arc::<StoredConfigMap>::clone(shelf);
        Lock::new(api, &owner, LockOptions { holder, liveness, force, now, clock: paused })
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_renewed_keeps_others_out_until_it_is_given_back() {
        let shelf = Arc::new(StoredConfigMap::default());
        let ann = lock(&shelf, "ann", |_| Liveness::Unknown, false);
        assert_eq!(ann.take(IfMissing::Skip).await, Ok(()), "without a record there is nothing to lock");
        assert_eq!(shelf.entry(), None);
        ann.take(IfMissing::Create).await.unwrap();
        let bob = lock(&shelf, "bob", |_| Liveness::Unknown, false);
        let start = Instant::now();
        let refused = tokio::select! {
            _ = ann.renew() => panic!("ann lost it"),
            taken = bob.take(IfMissing::Skip) => taken,
        };
        assert_eq!(refused, Err(LockError::HeldByOther("ann, process 7, since 1970-01-01T00:00:00Z".into())));
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        ann.release().await;
        assert_eq!(shelf.entry(), None);
        bob.take(IfMissing::Create).await.unwrap();
        assert_eq!(shelf.entry().unwrap().holder.who, "bob");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_of_a_killed_apply_is_taken_over() {
        type Looks = fn(&str) -> Liveness;
        let rows: [(Looks, bool, u64); 3] = [
            // Another machine's, not renewed any more.
            (|_| Liveness::Unknown, false, TTL.as_secs()),
            // A process of this machine that has ended.
            (|_| Liveness::No, false, 0),
            (|_| Liveness::Yes, true, 0),
        ];
        for (liveness, force, seconds) in rows {
            let shelf = Arc::new(StoredConfigMap::default());
            lock(&shelf, "ann", liveness, false).take(IfMissing::Create).await.unwrap();
            let start = Instant::now();
            lock(&shelf, "bob", liveness, force).take(IfMissing::Create).await.unwrap();
            assert_eq!(start.elapsed().as_secs(), seconds);
            assert_eq!(shelf.entry().unwrap().holder.who, "bob");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_lives_on_this_machine_is_not_waited_for() {
        let shelf = Arc::new(StoredConfigMap::default());
        lock(&shelf, "ann", |_| Liveness::Yes, false).take(IfMissing::Create).await.unwrap();
        let start = Instant::now();
        let refused = lock(&shelf, "bob", |_| Liveness::Yes, false).take(IfMissing::Create).await;
        assert!(matches!(refused, Err(LockError::HeldByOther(_))), "{refused:?}");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_written_record_loses_no_lock_and_a_broken_lock_is_noticed() {
        let shelf = Arc::new(StoredConfigMap::default());
        let ann = lock(&shelf, "ann", |_| Liveness::Yes, false);
        ann.take(IfMissing::Create).await.unwrap();
        // The record is written into the same ConfigMap.
        shelf.0.lock().unwrap().1 += 1;
        let renewed = tokio::time::timeout(Duration::from_secs(20), ann.renew()).await;
        assert!(renewed.is_err(), "{renewed:?}");
        assert!(shelf.entry().unwrap().renewed >= 3);
        lock(&shelf, "bob", |_| Liveness::Yes, true).take(IfMissing::Create).await.unwrap();
        assert_eq!(ann.renew().await, "bob, process 7");
        // A release does not touch another holder's lock.
        ann.release().await;
        assert_eq!(shelf.entry().unwrap().holder.who, "bob");
    }
}
