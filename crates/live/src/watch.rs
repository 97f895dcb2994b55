//! Watches of objects: one watch for each kind and namespace, shared by all waits. If watching is not possible, callers poll.
//!
//! A watch begins at the resourceVersion of a reply. kube's `watcher` is not used, for two reasons. It begins with a LIST of the
//! whole collection, which is not needed here. And it only works with its own client, without write guard, in-process routers and
//! fakes. Source of the protocol: <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::answer::MAX_RESPONSE_BYTES;
use crate::kube::ByteStream;
use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::resource::Api;

/// Seconds for which the server is asked to keep a watch open. Source: client-go uses five to ten minutes, so that a silently
/// broken connection is noticed.
const WATCH_SECONDS: u64 = 300;
/// How much longer than [`WATCH_SECONDS`] a watch may last before the connection counts as dead.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The number of consecutive failures of a watch, without an event, after which it is given up.
const MAX_BREAKS: u32 = 4;
/// The time that a watch waits for more subscriptions before it begins at the lowest of their versions: responses to parallel
/// writes arrive in any order.
const BATCH_DELAY: Duration = Duration::from_millis(25);
/// The pause before a watch is started again; twice as long after each break.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// A watch without events that ends earlier than this was not ended by the server because of its age.
const MIN_WATCH: Duration = Duration::from_secs(1);

/// The maximum number of open watches: each is a connection.
const MAX_WATCHES: usize = 100;

/// A resourceVersion. Versions are numbers that grow, in every collection of one cluster. Source: KEP-5504. A version that is not
/// a number is not compared, and its object is not watched.
pub type Version = u64;

/// Returns the version of an object or a list, if it is a number.
pub fn version(of: &Value) -> Option<Version> {
    of.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// The last known state of an object.
#[derive(Clone, Debug, Default)]
enum ObjectState {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// It exists, in this version.
    Present(Version, Arc<Value>),
    Deleted(Version),
    /// It is no longer watched: no more events arrive.
    Unwatched,
}

impl ObjectState {
    fn version(&self) -> Version {
        match self {
            Self::Unknown | Self::Unwatched => 0,
            Self::Present(version, _) | Self::Deleted(version) => *version,
        }
    }
}

/// The known state of one kind in one namespace.
struct Collection {
    path: String,
    known: Mutex<CollectionState>,
}

struct CollectionState {
    /// Events after this version are received.
    since: Version,
    /// The newest version in an event or a LIST.
    seen: Version,
    is_watched: bool,
    has_ended: bool,
    objects: BTreeMap<String, watch::Sender<ObjectState>>,
}

impl Collection {
    fn known(&self) -> std::sync::MutexGuard<'_, CollectionState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_state(&self, name: &str, state: ObjectState) {
        let mut known = self.known();
        known.seen = known.seen.max(state.version());
        let object = known.objects.entry(name.to_owned()).or_default();
        if state.version() > object.borrow().version() {
            object.send_replace(state);
        }
    }

    /// Ends all current and later subscriptions: no more events arrive.
    fn end(&self) {
        let mut known = self.known();
        known.has_ended = true;
        for object in known.objects.values() {
            object.send_replace(ObjectState::Unwatched);
        }
    }

    /// Replaces the state by a list, after changes were missed.
    fn replace(&self, list: &Value) -> Option<()> {
        let version = version(list)?;
        let items = list["items"].as_array()?;
        for item in items {
            self.apply_event("ADDED", item)?;
        }
        let present: BTreeSet<&str> =
            items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        let mut known = self.known();
        for (_, object) in known.objects.iter().filter(|(name, _)| !present.contains(name.as_str())) {
            object.send_replace(ObjectState::Deleted(version));
        }
        known.seen = version;
        Some(())
    }

    /// Records one event; `None` if it cannot be parsed.
    fn apply_event(&self, kind: &str, object: &Value) -> Option<()> {
        let version = version(object)?;
        if kind == "BOOKMARK" {
            let mut known = self.known();
            known.seen = known.seen.max(version);
            return Some(());
        }
        let name = object["metadata"]["name"].as_str()?;
        match kind {
            "ADDED" | "MODIFIED" => {
                let mut object = object.clone();
                // Half of an object, and nobody who waits reads it.
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                self.set_state(name, ObjectState::Present(version, Arc::new(object)));
            }
            "DELETED" => self.set_state(name, ObjectState::Deleted(version)),
            _ => return None,
        }
        Some(())
    }
}

/// Reasons why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server ended it, or the connection broke.
    Closed { has_events: bool },
    /// The server no longer has the changes since the version. Source: `410 Gone`.
    TooOld,
    /// Repeating the request would fail again.
    Refused,
}

/// The watches of one apply.
pub struct Watches<'a> {
    api: &'a dyn LiveApi,
    collections: Mutex<BTreeMap<String, Arc<Collection>>>,
    start: mpsc::UnboundedSender<Arc<Collection>>,
    started: tokio::sync::Mutex<mpsc::UnboundedReceiver<Arc<Collection>>>,
}

impl<'a> Watches<'a> {
    /// Creates watches; none is open yet.
    pub fn new(api: &'a dyn LiveApi) -> Self {
        let (start, started) = mpsc::unbounded_channel();
        Self { api, collections: Mutex::default(), start, started: tokio::sync::Mutex::new(started) }
    }

    /// Returns true if the API supports watches.
    pub fn is_supported(&self) -> bool {
        self.api.can_stream()
    }

    /// Runs all watches, and never ends. Events are received only while this future is polled.
    pub async fn run(&self) -> Infallible {
        let mut started = self.started.lock().await;
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(collection) = started.recv() => open.push(self.keep_watching(collection)),
                Some(()) = open.next(), if !open.is_empty() => {}
                else => std::future::pending().await,
            }
        }
    }

    /// Subscribes to the object at a path, after a known version. Returns `None` if it cannot be watched.
    pub fn subscribe(&self, path: &str, version: Version) -> Option<Subscription> {
        let (path, name) = path.rsplit_once('/')?;
        let mut collections = self.collections.lock().unwrap_or_else(PoisonError::into_inner);
        if collections.len() >= MAX_WATCHES && !collections.contains_key(path) {
            return None;
        }
        let collection = collections.entry(path.to_owned()).or_insert_with(|| {
            let (is_watched, has_ended, objects) = (false, false, BTreeMap::new());
            let known = CollectionState { since: version, seen: version, is_watched, has_ended, objects };
            let collection = Arc::new(Collection { path: path.to_owned(), known: Mutex::new(known) });
            // The receiver lives as long as this.
            let _ = self.start.send(Arc::clone(&collection));
            collection
        });
        let mut known = collection.known();
        if !known.is_watched {
            known.since = known.since.min(version);
            known.seen = known.since;
        }
        let has_missed = version < known.since;
        let state = known.objects.entry(name.to_owned()).or_default().subscribe();
        (!known.has_ended).then_some(Subscription { state, has_missed })
    }

    /// Ends all subscriptions, because the cluster is deleted: their state is not valid for a new cluster.
    pub fn end_all(&self) {
        let mut collections = self.collections.lock().unwrap_or_else(PoisonError::into_inner);
        for collection in std::mem::take(&mut *collections).values() {
            collection.end();
        }
    }

    /// Watches a collection until watching fails repeatedly or the subscriptions end.
    async fn keep_watching(&self, collection: Arc<Collection>) {
        let mut breaks = 0;
        sleep(BATCH_DELAY).await;
        collection.known().is_watched = true;
        while !collection.known().has_ended {
            let began = Instant::now();
            let end = match self.watch(&collection).await {
                End::TooOld => self.list(&collection).await,
                end => end,
            };
            breaks = match end {
                End::Closed { has_events: true } => 0,
                End::Closed { has_events: false } if began.elapsed() >= MIN_WATCH => breaks,
                End::Closed { has_events: false } | End::TooOld => breaks + 1,
                End::Refused => MAX_BREAKS,
            };
            if breaks >= MAX_BREAKS {
                return collection.end();
            }
            if breaks > 0 {
                sleep(FIRST_PAUSE * 2_u32.pow(breaks - 1)).await;
            }
        }
    }

    async fn watch(&self, collection: &Collection) -> End {
        let (path, seen) = (&collection.path, collection.known().seen);
        let path = format!(
            "{path}?allowWatchBookmarks=true&resourceVersion={seen}&timeoutSeconds={WATCH_SECONDS}&watch=true"
        );
        match self.api.stream(Request::get(Api::Kubernetes, path)).await {
            Ok(bytes) => {
                let longest = Duration::from_secs(WATCH_SECONDS) + CLOSE_TIMEOUT;
                let mut has_events = false;
                let end = timeout(longest, read_events(collection, bytes, &mut has_events)).await;
                end.unwrap_or(End::Closed { has_events })
            }
            Err(error) => end_of(&error),
        }
    }

    /// Lists the collection once, after changes were missed.
    async fn list(&self, collection: &Collection) -> End {
        match self.api.send(Request::get(Api::Kubernetes, collection.path.clone())).await {
            Ok(list) => match collection.replace(&list) {
                Some(()) => End::Closed { has_events: true },
                None => End::Refused,
            },
            Err(error) => end_of(&error),
        }
    }
}

/// Returns the reason for the end of a watch after an error: it depends on whether the same request may succeed later.
fn end_of(error: &ApiError) -> End {
    match error.class {
        _ if error.status == Some(410) => End::TooOld,
        ErrorClass::Busy
        | ErrorClass::Throttled
        | ErrorClass::Unavailable
        | ErrorClass::LockUnsure
        | ErrorClass::Lost
        | ErrorClass::Unauthenticated => End::Closed { has_events: false },
        ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::Conflict
        | ErrorClass::Untrusted
        | ErrorClass::Denied
        | ErrorClass::Quota
        | ErrorClass::Unreadable
        | ErrorClass::TooLarge
        | ErrorClass::Invalid
        | ErrorClass::Other => End::Refused,
    }
}

/// Reads events, a line each, until there are no more.
async fn read_events(collection: &Collection, mut bytes: ByteStream, has_events: &mut bool) -> End {
    let mut rest: Vec<u8> = Vec::new();
    while let Some(Ok(piece)) = bytes.next().await {
        // Only what is new can hold the end of a line.
        let mut from = rest.len();
        rest.extend_from_slice(&piece);
        let mut done = 0;
        while let Some(end) = rest[from..].iter().position(|byte| *byte == b'\n').map(|at| from + at) {
            match read_event(collection, &rest[done..end]) {
                Line::Recorded => *has_events = true,
                Line::Ends(end) => return end,
                Line::Empty => {}
            }
            (done, from) = (end + 1, end + 1);
        }
        rest.drain(..done);
        if rest.len() > MAX_RESPONSE_BYTES {
            return End::Refused;
        }
    }
    End::Closed { has_events: *has_events }
}

/// A line of a watch.
enum Line {
    /// An event, which was recorded.
    Recorded,
    Empty,
    /// The last line.
    Ends(End),
}

/// Reads one line.
fn read_event(collection: &Collection, line: &[u8]) -> Line {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Line::Empty;
    }
    let Ok(event) = serde_json::from_slice::<Value>(line) else { return Line::Ends(End::Refused) };
    let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
    if kind == "ERROR" {
        // Other errors are tried again like a connection that broke.
        return Line::Ends(if object["code"] == 410 {
            End::TooOld
        } else {
            End::Closed { has_events: false }
        });
    }
    collection.apply_event(kind, object).map_or(Line::Ends(End::Refused), |()| Line::Recorded)
}

/// A subscription to one object.
pub struct Subscription {
    state: watch::Receiver<ObjectState>,
    has_missed: bool,
}

/// Updates of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectUpdate {
    /// No change since the known version.
    Unchanged,
    /// It exists, in this state.
    Present(Arc<Value>),
    /// It was deleted.
    Deleted,
    /// It is no longer watched, and has to be read.
    Unwatched,
}

impl Subscription {
    /// Returns true if the object may have changed between the known version and the beginning of the watch. Then it has to be
    /// read once.
    pub fn has_missed(&self) -> bool {
        self.has_missed
    }

    /// Returns the update after a version.
    pub fn update_after(&mut self, version: Version) -> ObjectUpdate {
        match &*self.state.borrow_and_update() {
            ObjectState::Unwatched => ObjectUpdate::Unwatched,
            ObjectState::Present(newer, object) if *newer > version => {
                ObjectUpdate::Present(Arc::clone(object))
            }
            ObjectState::Deleted(newer) if *newer > version => ObjectUpdate::Deleted,
            ObjectState::Unknown | ObjectState::Present(..) | ObjectState::Deleted(_) => {
                ObjectUpdate::Unchanged
            }
        }
    }

    /// Ends when there may be an update.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
