//! Watches of objects, without polling: one watch for each kind and namespace, shared by all who wait. Where watching is not
//! possible this says so, and whoever waits asks as before.
//!
//! Not kube's `watcher`: it begins with a LIST of everything that is there, which nobody here needs, and it goes around
//! [`LiveApi`], the one way out.
//! Source of the protocol: <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::answer::LARGEST;
use crate::kube::BytesAsTheyCome;
use crate::{ApiError, Class, LiveApi, Request};
use model::resource::Api;

/// How long the server is asked to keep a watch open, in seconds. Source: client-go asks for five to ten minutes, so that
/// a connection that died in silence is found.
const LASTS: u64 = 300;
/// The time that a server may add to [`LASTS`] before the connection counts as dead.
const LATE: Duration = Duration::from_secs(15);
/// Watches of one collection that break one after the other without having told anything, before it is given up.
const BREAKS: u32 = 4;
/// How long a watch waits for others that wait before it begins at the lowest of their versions: replies to writes that were
/// sent side by side come in any order.
const GATHERS: Duration = Duration::from_millis(25);
/// Before a watch is begun again; twice as long after each break.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// A watch that ends sooner, with nothing told, is not one that the server ended for its age.
const TOO_SHORT: Duration = Duration::from_secs(1);

/// Watches open at once: each is a connection.
const MOST: usize = 100;

/// The version of a collection up to which something is known. Versions are numbers that grow, in every collection of one
/// cluster. Source: KEP-5504; what is no number is not compared, and not watched.
pub type Version = u64;

/// The version of an object or a list, where it is a number.
pub fn version(of: &Value) -> Option<Version> {
    of.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// The last known state of an object.
#[derive(Clone, Debug, Default)]
enum Heard {
    /// Nothing yet.
    #[default]
    Nothing,
    /// It is so.
    Is(Version, Arc<Value>),
    Gone(Version),
    /// Nothing more will be heard.
    Silence,
}

impl Heard {
    fn version(&self) -> Version {
        match self {
            Self::Nothing | Self::Silence => 0,
            Self::Is(version, _) | Self::Gone(version) => *version,
        }
    }
}

/// The known state of one kind in one namespace.
struct Collection {
    path: String,
    known: Mutex<Known>,
}

struct Known {
    /// Everything after this version is heard.
    since: Version,
    /// Everything up to this one was heard.
    seen: Version,
    begun: bool,
    silent: bool,
    objects: BTreeMap<String, watch::Sender<Heard>>,
}

impl Collection {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hears(&self, name: &str, heard: Heard) {
        let mut known = self.known();
        known.seen = known.seen.max(heard.version());
        let object = known.objects.entry(name.to_owned()).or_default();
        if heard.version() > object.borrow().version() {
            object.send_replace(heard);
        }
    }

    /// Ends the collection, for all who wait and whoever comes later: nothing more comes.
    fn falls_silent(&self) {
        let mut known = self.known();
        known.silent = true;
        for object in known.objects.values() {
            object.send_replace(Heard::Silence);
        }
    }

    /// The present state, where changes were missed.
    fn is_now(&self, list: &Value) -> Option<()> {
        let version = version(list)?;
        let items = list["items"].as_array()?;
        for item in items {
            self.hears_event("ADDED", item)?;
        }
        let there: BTreeSet<&str> =
            items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        let mut known = self.known();
        for (_, object) in known.objects.iter().filter(|(name, _)| !there.contains(name.as_str())) {
            object.send_replace(Heard::Gone(version));
        }
        known.seen = version;
        Some(())
    }

    /// One event; `None` for one that cannot be understood.
    fn hears_event(&self, kind: &str, object: &Value) -> Option<()> {
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
                self.hears(name, Heard::Is(version, Arc::new(object)));
            }
            "DELETED" => self.hears(name, Heard::Gone(version)),
            _ => return None,
        }
        Some(())
    }
}

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server ended it, or the connection broke; whether anything had come.
    Over { told: bool },
    /// It no longer knows what came after the version. Source: `410 Gone`.
    TooOld,
    /// It will not work the next time either.
    Refused,
}

/// The watches of one apply.
pub struct Watches<'a> {
    api: &'a dyn LiveApi,
    collections: Mutex<BTreeMap<String, Arc<Collection>>>,
    begin: mpsc::UnboundedSender<Arc<Collection>>,
    begun: tokio::sync::Mutex<mpsc::UnboundedReceiver<Arc<Collection>>>,
}

impl<'a> Watches<'a> {
    /// None is open yet.
    pub fn new(api: &'a dyn LiveApi) -> Self {
        let (begin, begun) = mpsc::unbounded_channel();
        Self { api, collections: Mutex::default(), begin, begun: tokio::sync::Mutex::new(begun) }
    }

    /// Returns true if the API supports watches.
    pub fn work(&self) -> bool {
        self.api.can_follow()
    }

    /// Listens for all who wait. Never ends; what is heard is heard while this is polled.
    pub async fn listen(&self) -> Infallible {
        let mut begun = self.begun.lock().await;
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(collection) = begun.recv() => open.push(self.follow(collection)),
                Some(()) = open.next(), if !open.is_empty() => {}
                else => std::future::pending().await,
            }
        }
    }

    /// Subscribes to the object at a path, after a known version. Returns `None` where it cannot be watched.
    pub fn hear(&self, path: &str, version: Version) -> Option<Hearing> {
        let (path, name) = path.rsplit_once('/')?;
        let mut collections = self.collections.lock().unwrap_or_else(PoisonError::into_inner);
        if collections.len() >= MOST && !collections.contains_key(path) {
            return None;
        }
        let collection = collections.entry(path.to_owned()).or_insert_with(|| {
            let (begun, silent, objects) = (false, false, BTreeMap::new());
            let known = Known { since: version, seen: version, begun, silent, objects };
            let collection = Arc::new(Collection { path: path.to_owned(), known: Mutex::new(known) });
            // Whoever listens is there as long as this is.
            let _ = self.begin.send(Arc::clone(&collection));
            collection
        });
        let mut known = collection.known();
        if !known.begun {
            known.since = known.since.min(version);
            known.seen = known.since;
        }
        let missed = version < known.since;
        let heard = known.objects.entry(name.to_owned()).or_default().subscribe();
        (!known.silent).then_some(Hearing { heard, missed })
    }

    /// Forgets what was heard of a cluster that is deleted: it holds for no other one.
    pub fn forget(&self) {
        let mut collections = self.collections.lock().unwrap_or_else(PoisonError::into_inner);
        for collection in std::mem::take(&mut *collections).values() {
            collection.falls_silent();
        }
    }

    /// Watches a collection for as long as that works.
    async fn follow(&self, collection: Arc<Collection>) {
        let mut breaks = 0;
        sleep(GATHERS).await;
        collection.known().begun = true;
        while !collection.known().silent {
            let began = Instant::now();
            let end = match self.watch(&collection).await {
                End::TooOld => self.list(&collection).await,
                end => end,
            };
            breaks = match end {
                End::Over { told: true } => 0,
                End::Over { told: false } if began.elapsed() >= TOO_SHORT => breaks,
                End::Over { told: false } | End::TooOld => breaks + 1,
                End::Refused => BREAKS,
            };
            if breaks >= BREAKS {
                return collection.falls_silent();
            }
            if breaks > 0 {
                sleep(FIRST_PAUSE * 2_u32.pow(breaks - 1)).await;
            }
        }
    }

    async fn watch(&self, collection: &Collection) -> End {
        let (path, seen) = (&collection.path, collection.known().seen);
        let path = format!(
            "{path}?allowWatchBookmarks=true&resourceVersion={seen}&timeoutSeconds={LASTS}&watch=true"
        );
        match self.api.follow(Request::get(Api::Kubernetes, path)).await {
            Ok(bytes) => {
                let longest = Duration::from_secs(LASTS) + LATE;
                let mut told = false;
                let heard = timeout(longest, hear_all(collection, bytes, &mut told)).await;
                heard.unwrap_or(End::Over { told })
            }
            Err(error) => refusal(&error),
        }
    }

    /// Lists the collection once, for changes that were missed.
    async fn list(&self, collection: &Collection) -> End {
        match self.api.send(Request::get(Api::Kubernetes, collection.path.clone())).await {
            Ok(list) => match collection.is_now(&list) {
                Some(()) => End::Over { told: true },
                None => End::Refused,
            },
            Err(error) => refusal(&error),
        }
    }
}

/// Returns the end that an error means, by whether the same request may succeed later.
fn refusal(error: &ApiError) -> End {
    match error.class {
        _ if error.status == Some(410) => End::TooOld,
        Class::Busy
        | Class::Throttled
        | Class::Unavailable
        | Class::Held
        | Class::Lost
        | Class::Unauthenticated => End::Over { told: false },
        Class::NotFound
        | Class::AlreadyExists
        | Class::Conflict
        | Class::Untrusted
        | Class::Denied
        | Class::Quota
        | Class::Unreadable
        | Class::TooLarge
        | Class::Invalid
        | Class::Other => End::Refused,
    }
}

/// Events, a line each, until there are no more.
async fn hear_all(collection: &Collection, mut bytes: BytesAsTheyCome, told: &mut bool) -> End {
    let mut rest: Vec<u8> = Vec::new();
    while let Some(Ok(piece)) = bytes.next().await {
        // Only what is new can hold the end of a line.
        let mut from = rest.len();
        rest.extend_from_slice(&piece);
        let mut done = 0;
        while let Some(end) = rest[from..].iter().position(|byte| *byte == b'\n').map(|at| from + at) {
            match hear_line(collection, &rest[done..end]) {
                Some(End::Over { .. }) => *told = true,
                Some(end) => return end,
                None => {}
            }
            (done, from) = (end + 1, end + 1);
        }
        rest.drain(..done);
        if rest.len() > LARGEST {
            return End::Refused;
        }
    }
    End::Over { told: *told }
}

/// `None` for an empty line, [`End::Over`] for an event that was heard.
fn hear_line(collection: &Collection, line: &[u8]) -> Option<End> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let Ok(event) = serde_json::from_slice::<Value>(line) else { return Some(End::Refused) };
    let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
    if kind == "ERROR" {
        let is_old = object["code"] == 410;
        return Some(if is_old { End::TooOld } else { End::Over { told: false } });
    }
    let heard = collection.hears_event(kind, object);
    Some(heard.map_or(End::Refused, |()| End::Over { told: true }))
}

/// A subscription to one object.
pub struct Hearing {
    heard: watch::Receiver<Heard>,
    missed: bool,
}

/// News about an object.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// Nothing after what is known.
    Nothing,
    /// It is so now.
    Is(Arc<Value>),
    /// It was deleted.
    Gone,
    /// It has to be asked for: nothing more will be heard.
    Ask,
}

impl Hearing {
    /// Returns true if something may have happened between the known version and the beginning of the watch. Then the object
    /// has to be read once.
    pub fn has_missed(&self) -> bool {
        self.missed
    }

    /// Returns the news after a version.
    pub fn after(&mut self, version: Version) -> News {
        match &*self.heard.borrow_and_update() {
            Heard::Silence => News::Ask,
            Heard::Is(newer, object) if *newer > version => News::Is(Arc::clone(object)),
            Heard::Gone(newer) if *newer > version => News::Gone,
            Heard::Nothing | Heard::Is(..) | Heard::Gone(_) => News::Nothing,
        }
    }

    /// Ends when there may be news.
    pub async fn changed(&mut self) {
        if self.heard.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
