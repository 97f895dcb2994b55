//! Knowledge of a wait about its object without asking for it: the reply to what was sent, and what a watch reports after it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

use kinds::kind::Queries;
use live::watch::{Hearing, News, Version, Watches, version};
use model::resource::{Api, Await, Identity, Until};

/// How long a watch is believed that tells nothing: then the object is asked for once.
const BELIEVED: Duration = Duration::from_secs(30);
/// How long to listen for the end of what was deleted before that is waited for: most things go at once.
const AT_ONCE: Duration = Duration::from_millis(100);

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

/// Knowledge of an object without asking for it.
#[derive(Clone, Debug)]
pub enum Known {
    Is(Arc<Value>),
    /// Nothing had its name after it was known to be there, by the server's word.
    Gone,
    /// It has to be asked for.
    Unknown,
}

/// The ear of one wait.
pub struct Ear<'a> {
    watches: &'a Watches<'a>,
    /// The object that alone says how the wait stands; `None` where there is more to look at.
    path: Option<String>,
    hearing: Option<Hearing>,
    newest: Option<(Version, Arc<Value>)>,
    /// True if the reply to the deletion was that nothing is left.
    gone: bool,
    /// When the server was last asked, or told something.
    asked: Instant,
}

impl<'a> Ear<'a> {
    /// For a wait that is judged by these. What was looked at once and is not waited for needs no ear.
    pub fn of(watches: &'a Watches<'a>, wait: &Await, queries: &Queries) -> Self {
        let read: Vec<_> = match wait.until {
            Until::Ready => queries.all().map(|(_, query)| query).collect(),
            Until::Gone => queries.parts().iter().map(|(_, query)| query).collect(),
            Until::StillReady | Until::Idle | Until::Handled => Vec::new(),
        };
        let path = match (&wait.identity, read.as_slice()) {
            (Identity::Object(object), [only]) => {
                let path = object.path();
                (watches.work() && only.api == Api::Kubernetes && only.path == path).then_some(path)
            }
            _ => None,
        };
        Self { watches, path, hearing: None, newest: None, gone: false, asked: Instant::now() }
    }

    /// The object that alone says how the wait stands.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Takes in the object as the server just returned it.
    pub fn notes(&mut self, live: &Value) {
        if let Some(version) = version(live) {
            self.notes_after(version, live);
        }
    }

    /// Takes in the reply of the server to what was just sent.
    pub fn notes_reply(&mut self, reply: &Reply) {
        match reply {
            Reply::Written(live) => self.notes(live),
            // What went at once has the version of its deletion, which a watch from there on does not tell.
            // Source: apiserver, `etcd3/store.go`, `conditionalDelete`; seen on kube-apiserver 1.36.
            Reply::Deleted(live) => {
                if let Some(version) = version(live) {
                    self.notes_after(version.saturating_sub(1), live);
                }
            }
            Reply::Gone => self.gone = true,
        }
    }

    /// Takes in the object as it was after a version.
    fn notes_after(&mut self, version: Version, live: &Value) {
        if self.path.is_none() {
            return;
        }
        self.asked = Instant::now();
        if self.newest.as_ref().is_none_or(|(newest, _)| *newest <= version) {
            self.newest = Some((version, Arc::new(live.clone())));
        }
    }

    /// Listens from here on to what becomes of the object: what is ready at once needs no watch.
    pub fn listens(&mut self) {
        let (None, Some(path), Some((version, _))) = (&self.hearing, &self.path, &self.newest) else {
            return;
        };
        self.hearing = self.watches.hear(path, *version);
        match &self.hearing {
            Some(hearing) if !hearing.has_missed() => {}
            // It may have changed before the watch that others began.
            Some(_) => self.newest = None,
            None => self.deaf(),
        }
    }

    /// The object as it is known to be.
    pub fn told(&mut self) -> Known {
        if self.gone {
            return Known::Gone;
        }
        let Some((known, object)) = &self.newest else { return Known::Unknown };
        // The reply to what was just sent.
        let Some(hearing) = &mut self.hearing else { return Known::Is(Arc::clone(object)) };
        match hearing.after(*known) {
            News::Nothing if self.asked.elapsed() < BELIEVED => Known::Is(Arc::clone(object)),
            News::Nothing => Known::Unknown,
            News::Is(object) => {
                self.asked = Instant::now();
                self.newest = version(&object).map(|version| (version, Arc::clone(&object)));
                Known::Is(object)
            }
            News::Gone => Known::Gone,
            News::Ask => {
                self.deaf();
                Known::Unknown
            }
        }
    }

    /// Ends when what was just deleted is heard gone, or does not go at once.
    pub async fn goes(&mut self) {
        self.listens();
        if self.hearing.is_some() && matches!(self.told(), Known::Is(_)) {
            let _ = timeout(AT_ONCE, self.changed()).await;
        }
    }

    fn deaf(&mut self) {
        (self.hearing, self.newest, self.path) = (None, None, None);
    }

    /// Ends when there may be news; never where nothing is heard.
    pub async fn changed(&mut self) {
        match &mut self.hearing {
            Some(hearing) => hearing.changed().await,
            None => std::future::pending().await,
        }
    }
}
