//! One apply of a stack at a time: a lock beside the record, in the same ConfigMap, renewed while an apply runs. One that
//! is not renewed any more is taken over, so that a killed apply locks nobody out. The clocks of two machines are not
//! compared: whoever wants the lock watches whether it is renewed.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::record::{applied_by, ensure_namespace};
use crate::live::retry::{self, Patience};
use crate::live::{ApiError, Class, LiveApi, Request};
use crate::record::{NAMESPACE, Record};
use crate::resource::{Api, ObjectId, Owner};

/// The annotation that holds it.
const ANNOTATION: &str = "dask-infra.dev/lock";
/// The field manager of the lock: the record has its own.
const MANAGER: &str = "dask-infra-lock";
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(5);
/// How long after its last renewal it holds.
const HOLDS: Duration = Duration::from_secs(15);
/// How long a namespace that is being deleted is waited for.
const LEAVES: Duration = Duration::from_secs(60);
/// How often somebody who wants it looks whether it is renewed.
const LOOK: Duration = Duration::from_secs(1);

/// Who applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// `ann@laptop`.
    pub who: String,
    /// The process.
    pub pid: u32,
    /// What tells the process from every other one, where the system says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// Whether a process of this machine still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lives {
    /// It does.
    Yes,
    /// It has ended.
    No,
    /// It is another machine's, or the system does not say.
    Unknown,
}

/// What stands in the annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    holder: Holder,
    /// RFC 3339 time of the holder's clock.
    since: String,
    /// Counts renewals.
    renewed: u64,
    /// Seconds that it holds without being renewed.
    seconds: u64,
}

/// How to lock.
#[derive(Clone, Debug)]
pub struct Locking {
    /// Who wants it.
    pub holder: Holder,
    /// Whether the process of a holder still runs.
    pub lives: fn(&str) -> Lives,
    /// Whether another's lock is broken.
    pub force: bool,
    /// The time that the lock gets.
    pub now: fn() -> jiff::Timestamp,
}

/// Why there is no lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unlocked {
    /// Another apply holds it; who and since when.
    Held(String),
    /// It cannot be read or written.
    Cannot(String),
}

struct Held {
    entry: Entry,
    version: Option<String>,
}

/// The lock of a stack, held or not yet.
pub struct Lock {
    api: Arc<dyn LiveApi>,
    place: ObjectId,
    locking: Locking,
    held: Mutex<Option<Held>>,
}

impl Lock {
    /// Nothing is asked yet.
    pub fn new(api: Arc<dyn LiveApi>, owner: &Owner, locking: Locking) -> Self {
        Self { api, place: Record::object(&owner.stack), locking, held: Mutex::default() }
    }

    /// Takes it when the stack has a record: before anything else is done. Without a record there is nothing yet that
    /// another apply could be at.
    ///
    /// # Errors
    /// Another apply holds it.
    pub async fn take_early(&self) -> Result<(), Unlocked> {
        match self.read().await {
            Ok(Some(live)) => self.take_from(Some(live)).await,
            Ok(None) => Ok(()),
            // A cluster that is not there, or on its way out; the first write inside it takes the lock.
            Err(_) => Ok(()),
        }
    }

    /// Takes it, making its ConfigMap when it is missing.
    ///
    /// # Errors
    /// Another apply holds it, or it cannot be written.
    pub async fn take(&self) -> Result<(), Unlocked> {
        if self.held.lock().await.is_some() {
            return Ok(());
        }
        let live = self.read().await.map_err(|error| Unlocked::Cannot(error.to_string()))?;
        self.take_from(live).await
    }

    async fn take_from(&self, mut live: Option<Value>) -> Result<(), Unlocked> {
        // Whoever comes first wins; the other one sees it at the next look.
        for _ in 0..5 {
            if let Some(other) = live.as_ref().and_then(entry_of) {
                live = self.outlast(other).await?;
            }
            let version = match &live {
                Some(live) => live.pointer("/metadata/resourceVersion").and_then(Value::as_str),
                None => Some("1"),
            };
            let Locking { holder, now, .. } = &self.locking;
            let (since, seconds) = (now().to_string(), HOLDS.as_secs());
            let entry = Entry { holder: holder.clone(), since, renewed: 0, seconds };
            match self.write(&entry, version).await {
                Ok(version) => {
                    *self.held.lock().await = Some(Held { entry, version });
                    return Ok(());
                }
                Err(error) if raced(&error) => {
                    live = self.read().await.map_err(|error| Unlocked::Cannot(error.to_string()))?;
                }
                Err(error) => return Err(Unlocked::Cannot(error.to_string())),
            }
        }
        Err(Unlocked::Cannot("others write it all the time".into()))
    }

    /// Waits until another's lock is given back or holds no longer; what is there then.
    async fn outlast(&self, other: Entry) -> Result<Option<Value>, Unlocked> {
        let Locking { holder, lives, force, now: _ } = &self.locking;
        let held = |entry: &Entry| {
            let Entry { holder: Holder { who, pid, process: _ }, since, .. } = entry;
            // Nobody reads the nanoseconds; the entry keeps them, to tell two holders apart.
            let second = since.split('.').next().unwrap_or(since).trim_end_matches('Z');
            Unlocked::Held(format!("{who}, process {pid}, since {second}Z"))
        };
        let seen = Instant::now();
        loop {
            let live = self.read().await.map_err(|error| Unlocked::Cannot(error.to_string()))?;
            let Some(entry) = live.as_ref().and_then(entry_of) else { return Ok(live) };
            let lives = entry.holder.process.as_deref().map_or(Lives::Unknown, lives);
            let over = seen.elapsed() >= Duration::from_secs(entry.seconds);
            if *force || entry.holder == *holder || lives == Lives::No || (over && lives == Lives::Unknown) {
                return Ok(live);
            }
            if lives == Lives::Yes || entry != other {
                return Err(held(&entry));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Renews it until it is lost; says who has it then.
    pub async fn renew(&self) -> String {
        loop {
            tokio::time::sleep(RENEW).await;
            let mut held = self.held.lock().await;
            let Some(mine) = held.as_mut() else { continue };
            mine.entry.renewed += 1;
            match self.write(&mine.entry, mine.version.as_deref()).await {
                Ok(version) => mine.version = version,
                Err(error) if raced(&error) => match self.look(mine).await {
                    Mine::Still(version) => mine.version = version,
                    Mine::Lost(who) => {
                        *held = None;
                        return who;
                    }
                    Mine::Unknown => {}
                },
                // Tried again at the next turn: a short silence loses nothing.
                Err(_) => {}
            }
        }
    }

    /// Gives it back. What cannot be given back holds no longer soon.
    pub async fn release(&self) {
        let mut held = self.held.lock().await;
        let Some(mut mine) = held.take() else { return };
        for _ in 0..3 {
            let body = self.body(json!({}), mine.version.as_deref());
            match self.api.send(applied_by(self.place.path(), body, MANAGER)).await {
                Err(error) if raced(&error) => match self.look(&mine).await {
                    Mine::Still(version) => mine.version = version,
                    Mine::Lost(_) | Mine::Unknown => return,
                },
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Whether it is still ours although the ConfigMap was written: the record is written there too.
    async fn look(&self, mine: &Held) -> Mine {
        let Ok(live) = self.read().await else { return Mine::Unknown };
        let Some(live) = live else { return Mine::Unknown };
        let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned);
        match entry_of(&live) {
            Some(entry) if entry.holder == mine.entry.holder && entry.since == mine.entry.since => {
                Mine::Still(version)
            }
            Some(Entry { holder, .. }) => Mine::Lost(format!("{}, process {}", holder.who, holder.pid)),
            None => Mine::Lost("nobody: somebody broke it".into()),
        }
    }

    async fn read(&self) -> Result<Option<Value>, ApiError> {
        let request = Request::get(Api::Kubernetes, self.place.path());
        match retry::send(&*self.api, request, Patience::Reading).await {
            Err(error) if error.class == Class::NotFound => Ok(None),
            result => result.map(Some),
        }
    }

    fn body(&self, annotations: Value, version: Option<&str>) -> Value {
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": self.place.name, "namespace": NAMESPACE, "annotations": annotations },
        });
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        body
    }

    async fn write(&self, entry: &Entry, version: Option<&str>) -> Result<Option<String>, ApiError> {
        let text = serde_json::to_string(entry).unwrap_or_default();
        let body = self.body(json!({ ANNOTATION: text }), version);
        let write = || applied_by(self.place.path(), body.clone(), MANAGER);
        // Of the last destroy the namespace may still be on its way out.
        let first = match self.api.send(write()).await {
            Err(error) if error.class == Class::Busy => {
                let again = retry::send(&*self.api, write(), Patience::Writing);
                tokio::time::timeout(LEAVES, again).await.unwrap_or(Err(error))
            }
            result => result,
        };
        let reply = match first {
            Err(error) if error.class == Class::NotFound && !error.is_unknown_path() => {
                ensure_namespace(&*self.api, Patience::Writing).await?;
                self.api.send(write()).await?
            }
            result => result?,
        };
        Ok(reply.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned))
    }
}

/// What became of our lock.
enum Mine {
    Still(Option<String>),
    Lost(String),
    Unknown,
}

fn raced(error: &ApiError) -> bool {
    matches!(error.class, Class::Conflict | Class::AlreadyExists)
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
    use crate::resource::Method;

    /// One ConfigMap behind the API: what matters of it are its annotation and its version.
    #[derive(Default)]
    struct Shelf(StdMutex<(Option<String>, u64)>);

    impl Shelf {
        fn entry(&self) -> Option<Entry> {
            let held = self.0.lock().unwrap();
            held.0.as_deref().and_then(|text| serde_json::from_str(text).ok())
        }
    }

    impl LiveApi for Shelf {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            let mut held = self.0.lock().unwrap();
            let answer = if request.method == Method::Get {
                match held.1 {
                    0 => Err(request.failed(Class::NotFound, "not found")),
                    version => Ok(json!({ "metadata": {
                        "resourceVersion": version.to_string(), "annotations": { ANNOTATION: held.0 },
                    } })),
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
                    Err(request.failed(Class::Conflict, "the object has been modified"))
                }
            };
            async move { answer }.boxed()
        }
    }

    /// A shelf whose namespace is being deleted while so many writes are refused.
    struct Leaving(Shelf, StdMutex<u32>);

    impl LiveApi for Leaving {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            let mut left = self.1.lock().unwrap();
            if request.method != Method::Get && *left > 0 {
                *left -= 1;
                let refused = request.failed(Class::Busy, "namespace dask-infra is being terminated");
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
            let api = Arc::new(Leaving(Shelf::default(), StdMutex::new(refusals)));
            let now = || jiff::Timestamp::UNIX_EPOCH;
            let locking = Locking { holder, lives: |_| Lives::Unknown, force: false, now };
            let start = Instant::now();
            assert_eq!(Lock::new(api, &owner, locking).take().await.is_ok(), taken);
            assert!(start.elapsed() <= Duration::from_secs(60), "{:?}", start.elapsed());
        }
    }

    fn lock(shelf: &Arc<Shelf>, who: &str, lives: fn(&str) -> Lives, force: bool) -> Lock {
        let holder = Holder { who: who.into(), pid: 7, process: Some(who.into()) };
        let now = || jiff::Timestamp::UNIX_EPOCH;
        let owner = Owner { stack: "s".into(), id: "s".into() };
        let api: Arc<dyn LiveApi> = Arc::<Shelf>::clone(shelf);
        Lock::new(api, &owner, Locking { holder, lives, force, now })
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_renewed_keeps_others_out_until_it_is_given_back() {
        let shelf = Arc::new(Shelf::default());
        let ann = lock(&shelf, "ann", |_| Lives::Unknown, false);
        assert_eq!(ann.take_early().await, Ok(()), "without a record there is nothing to lock");
        assert_eq!(shelf.entry(), None);
        ann.take().await.unwrap();
        let bob = lock(&shelf, "bob", |_| Lives::Unknown, false);
        let start = Instant::now();
        let refused = tokio::select! {
            _ = ann.renew() => panic!("ann lost it"),
            taken = bob.take_early() => taken,
        };
        assert_eq!(refused, Err(Unlocked::Held("ann, process 7, since 1970-01-01T00:00:00Z".into())));
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        ann.release().await;
        assert_eq!(shelf.entry(), None);
        bob.take_early().await.unwrap();
        assert_eq!(shelf.entry().unwrap().holder.who, "bob");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_of_a_killed_apply_is_taken_over() {
        type Looks = fn(&str) -> Lives;
        let rows: [(Looks, bool, u64); 3] = [
            // Another machine's, not renewed any more.
            (|_| Lives::Unknown, false, HOLDS.as_secs()),
            // A process of this machine that has ended.
            (|_| Lives::No, false, 0),
            (|_| Lives::Yes, true, 0),
        ];
        for (lives, force, seconds) in rows {
            let shelf = Arc::new(Shelf::default());
            lock(&shelf, "ann", lives, false).take().await.unwrap();
            let start = Instant::now();
            lock(&shelf, "bob", lives, force).take().await.unwrap();
            assert_eq!(start.elapsed().as_secs(), seconds);
            assert_eq!(shelf.entry().unwrap().holder.who, "bob");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_lives_on_this_machine_is_not_waited_for() {
        let shelf = Arc::new(Shelf::default());
        lock(&shelf, "ann", |_| Lives::Yes, false).take().await.unwrap();
        let start = Instant::now();
        let refused = lock(&shelf, "bob", |_| Lives::Yes, false).take().await;
        assert!(matches!(refused, Err(Unlocked::Held(_))), "{refused:?}");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_written_record_loses_no_lock_and_a_broken_lock_is_noticed() {
        let shelf = Arc::new(Shelf::default());
        let ann = lock(&shelf, "ann", |_| Lives::Yes, false);
        ann.take().await.unwrap();
        // The record is written into the same ConfigMap.
        shelf.0.lock().unwrap().1 += 1;
        let renewed = tokio::time::timeout(Duration::from_secs(20), ann.renew()).await;
        assert!(renewed.is_err(), "{renewed:?}");
        assert!(shelf.entry().unwrap().renewed >= 3);
        lock(&shelf, "bob", |_| Lives::Yes, true).take().await.unwrap();
        assert_eq!(ann.renew().await, "bob, process 7");
        // What is another's is not given back.
        ann.release().await;
        assert_eq!(shelf.entry().unwrap().holder.who, "bob");
    }
}
