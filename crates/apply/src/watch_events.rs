//! The state of a wait's object without reading it: the reply to the last write, and later events of a watch.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

use kinds::kind::Queries;
use live::watch::{ObjectUpdate, Subscription, Version, Watches, version};
use model::resource::{Api, Await, Identity, Until};

/// How long a watch without events is trusted. After that the object is read once.
const READ_AFTER: Duration = Duration::from_secs(30);
/// How long apply waits for the end of a deleted object before its wait begins: most objects are gone at once.
const DELETION_PAUSE: Duration = Duration::from_millis(100);

/// Replies of the server to the last write of an object.
#[derive(Debug)]
pub enum Reply {
    /// The object as it was written.
    Written(Value),
    /// The deleted object: as it last was, or as it is being deleted.
    Deleted(Value),
    /// Nothing is left of what was deleted.
    Gone,
}

/// The known state of an object, without reading it.
#[derive(Clone, Debug)]
pub enum Known {
    Present(Arc<Value>),
    /// The server reported that it was deleted.
    Deleted,
    /// It has to be read.
    Unknown,
}

/// Follows the events of the one object for which a change waits, and keeps its newest state.
pub struct ObjectTracker<'a> {
    watches: &'a Watches<'a>,
    /// The path of the object, if the wait depends on this object alone.
    path: Option<String>,
    subscription: Option<Subscription>,
    newest: Option<(Version, Arc<Value>)>,
    /// True if the reply to the delete says that nothing is left.
    is_deleted: bool,
    /// When the object was last read or an event arrived.
    last_news: Instant,
}

impl<'a> ObjectTracker<'a> {
    /// Returns the tracker for a wait whose readiness depends on these queries. A wait that reads its object only once needs no
    /// tracker.
    pub fn new(watches: &'a Watches<'a>, wait: &Await, queries: &Queries) -> Self {
        let read: Vec<_> = match wait.until {
            Until::Ready => queries.all().map(|(_, query)| query).collect(),
            Until::Gone => queries.parts().iter().map(|(_, query)| query).collect(),
            Until::StillReady | Until::Idle | Until::Handled => Vec::new(),
        };
        let path = match (&wait.identity, read.as_slice()) {
            (Identity::Object(object), [only]) => {
                let path = object.path();
                (watches.is_supported() && only.api == Api::Kubernetes && only.path == path).then_some(path)
            }
            _ => None,
        };
        Self { watches, path, subscription: None, newest: None, is_deleted: false, last_news: Instant::now() }
    }

    /// Returns the path of the object, if the wait depends on this object alone.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Records the object as the server just returned it.
    pub fn record(&mut self, live: &Value) {
        if let Some(version) = version(live) {
            self.record_after(version, live);
        }
    }

    /// Records the reply of the server to what was just sent.
    pub fn record_reply(&mut self, reply: &Reply) {
        match reply {
            Reply::Written(live) => self.record(live),
            // The reply of an immediate delete has the version of the deletion, and a watch from that version does not
            // report it.
            // Source: apiserver, `etcd3/store.go`, `conditionalDelete`; seen on kube-apiserver 1.36.
            Reply::Deleted(live) => {
                if let Some(version) = version(live) {
                    self.record_after(version.saturating_sub(1), live);
                }
            }
            Reply::Gone => self.is_deleted = true,
        }
    }

    /// Records the object as it was after a version.
    fn record_after(&mut self, version: Version, live: &Value) {
        if self.path.is_none() {
            return;
        }
        self.last_news = Instant::now();
        if self.newest.as_ref().is_none_or(|(newest, _)| *newest <= version) {
            self.newest = Some((version, Arc::new(live.clone())));
        }
    }

    /// Subscribes to changes of the object after its known version. It is called only if the object is not ready at once, so that
    /// ready objects need no watch.
    pub fn subscribe(&mut self) {
        let (None, Some(path), Some((version, _))) = (&self.subscription, &self.path, &self.newest) else {
            return;
        };
        self.subscription = self.watches.subscribe(path, *version);
        match &self.subscription {
            Some(subscription) if !subscription.has_missed() => {}
            // It may have changed before the watch that others began.
            Some(_) => self.newest = None,
            None => self.stop_tracking(),
        }
    }

    /// Returns the object as it is known to be.
    pub fn known(&mut self) -> Known {
        if self.is_deleted {
            return Known::Deleted;
        }
        let Some((known, object)) = &self.newest else { return Known::Unknown };
        // The reply to what was just sent.
        let Some(subscription) = &mut self.subscription else { return Known::Present(Arc::clone(object)) };
        match subscription.update_after(*known) {
            ObjectUpdate::Unchanged if self.last_news.elapsed() < READ_AFTER => {
                Known::Present(Arc::clone(object))
            }
            ObjectUpdate::Unchanged => Known::Unknown,
            ObjectUpdate::Present(object) => {
                self.last_news = Instant::now();
                self.newest = version(&object).map(|version| (version, Arc::clone(&object)));
                Known::Present(object)
            }
            ObjectUpdate::Deleted => Known::Deleted,
            ObjectUpdate::Unwatched => {
                self.stop_tracking();
                Known::Unknown
            }
        }
    }

    /// Waits briefly for the end of an object that was just deleted: most are gone at once.
    pub async fn await_deletion(&mut self) {
        self.subscribe();
        if self.subscription.is_some() && matches!(self.known(), Known::Present(_)) {
            let _ = timeout(DELETION_PAUSE, self.changed()).await;
        }
    }

    fn stop_tracking(&mut self) {
        (self.subscription, self.newest, self.path) = (None, None, None);
    }

    /// Waits until there may be an update. Never ends without a subscription.
    pub async fn changed(&mut self) {
        match &mut self.subscription {
            Some(subscription) => subscription.changed().await,
            None => std::future::pending().await,
        }
    }
}
