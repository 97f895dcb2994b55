//! What a wait knows of its object without asking for it: the reply to what was sent, and what a watch tells after it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::kinds::kind::Part;
use crate::live::watch::{Hearing, News, Version, Watches, version};
use crate::resource::{Api, Await, Identity, Query, Until};

/// How long a watch is believed that tells nothing: then the object is asked for once.
const BELIEVED: Duration = Duration::from_secs(30);

/// The ear of one wait.
pub struct Ear<'a> {
    watches: &'a Watches<'a>,
    /// The object that alone says how the wait stands; `None` where there is more to look at.
    path: Option<String>,
    hearing: Option<Hearing>,
    newest: Option<(Version, Arc<Value>)>,
    /// When the server was last asked, or told something.
    asked: Instant,
}

impl<'a> Ear<'a> {
    /// For a wait that is judged by these. What was looked at once and is not waited for needs no ear.
    pub fn of(watches: &'a Watches<'a>, wait: &Await, queries: &[(Part, Query)]) -> Self {
        let path = match (&wait.identity, wait.until, queries) {
            (Identity::Object(object), Until::Ready | Until::Gone, [(_, only)]) => {
                let path = object.path();
                (watches.work() && only.api == Api::Kubernetes && only.path == path).then_some(path)
            }
            _ => None,
        };
        Self { watches, path, hearing: None, newest: None, asked: Instant::now() }
    }

    /// The object that alone says how the wait stands.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// What the server said of the object just now.
    pub fn notes(&mut self, live: &Value) {
        let Some(version) = version(live).filter(|_| self.path.is_some()) else { return };
        self.asked = Instant::now();
        if self.newest.as_ref().is_none_or(|(newest, _)| *newest <= version) {
            self.newest = Some((version, Arc::new(live.clone())));
        }
    }

    /// From here on it is heard what becomes of the object: what is ready at once needs no watch.
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

    /// The object as it is known to be; `None` when it has to be asked for.
    pub fn told(&mut self) -> Option<Arc<Value>> {
        let (known, object) = self.newest.as_ref()?;
        // The reply to what was just sent.
        let Some(hearing) = &mut self.hearing else { return Some(Arc::clone(object)) };
        match hearing.after(*known) {
            News::Nothing => (self.asked.elapsed() < BELIEVED).then(|| Arc::clone(object)),
            News::Is(object) => {
                self.asked = Instant::now();
                self.newest = version(&object).map(|version| (version, Arc::clone(&object)));
                Some(object)
            }
            News::Gone => None,
            News::Ask => {
                self.deaf();
                None
            }
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
