//! Waits with watches: which requests they send, and what they do if watching does not work.

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};

use super::*;
use live::kube::ByteStream;

/// Faults of the watches of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// `watch` is not among the rights.
    Forbidden,
    /// Every connection breaks before anything is received.
    Breaks,
    /// Every connection breaks after one event, in the middle of the next.
    Cut,
    /// The events after any version are forgotten.
    TooOld,
    /// Nothing is ever received, and the watch never ends.
    Deaf,
}

/// Behaviors of the server after a delete, with its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    /// The object terminates for five seconds, and the reply has it as terminating.
    Later,
    /// The object is gone, and the reply is a Status.
    AtOnce,
    /// The object is gone. The reply has its last state with the version of its deletion, as kube-apiserver does for Services.
    Echoed,
    /// The object is gone after five seconds, and another client creates one with the same name at that moment.
    Renewed,
}

/// ConfigMaps that are ready five seconds after they were made.
struct Live {
    trouble: Trouble,
    goes: Goes,
    state: Arc<Mutex<State>>,
    moved: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
    events: Vec<(u64, Value)>,
    asked: Vec<Request>,
}

impl State {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let name = path.rsplit('/').next().unwrap();
        object["metadata"] = json!({"name": name, "uid": name, "resourceVersion": self.version.to_string()});
        let kind = if self.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        self.events.push((self.version, json!({"type": kind, "object": object})));
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn remove(&mut self, path: &str) -> Value {
        self.version += 1;
        let mut object = self.objects.remove(path).unwrap();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.events.push((self.version, json!({"type": "DELETED", "object": object})));
        object
    }

    /// Makes another one of the same name.
    fn renew(&mut self, path: &str) {
        self.remove(path);
        self.put(path, ready());
        let object = self.objects.get_mut(path).unwrap();
        object["metadata"]["uid"] = json!("another");
        self.events.last_mut().unwrap().1["object"] = object.clone();
    }
}

impl Live {
    fn with(trouble: Trouble) -> Self {
        // An API server is never at its first version.
        let state = State { version: 1000, ..State::default() };
        Self { trouble, goes: Goes::Later, state: Arc::new(Mutex::new(state)), moved: watch::Sender::new(0) }
    }

    fn later(&self, path: String, what: impl FnOnce(&mut State, &str) + Send + 'static) {
        let (state, moved) = (Arc::clone(&self.state), self.moved.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let mut state = state.lock().unwrap();
            what(&mut state, &path);
            moved.send_replace(state.version);
        });
    }

    /// Reads of objects or lists, and watches.
    fn reads(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        let reads = state.asked.iter().filter(|request| !request.writes());
        let (watches, gets): (Vec<_>, Vec<_>) =
            reads.partition(|request| request.path.contains("watch=true"));
        (
            gets.iter().filter(|request| request.path.starts_with(&CONFIG[..CONFIG.len() - 1])).count(),
            watches.len(),
        )
    }
}

impl LiveApi for Live {
    fn send(&self, request: Request) -> BoxFuture<'_, Reply> {
        let mut state = self.state.lock().unwrap();
        state.asked.push(request.clone());
        let path = request.path.split('?').next().unwrap().to_owned();
        let reply = match request.method {
            _ if !path.starts_with(&CONFIG[..CONFIG.len() - 1]) => match request.method {
                Method::Get => Err(refused(&request, ErrorClass::NotFound, "not found")),
                _ => Ok(json!({})),
            },
            Method::Patch => {
                let made = state.put(&path, json!({"phase": "new"}));
                self.later(path, |state, path| drop(state.put(path, ready())));
                Ok(made)
            }
            Method::Delete => Ok(match self.goes {
                Goes::Later => {
                    let going = state.put(&path, json!({"phase": "going"}));
                    self.later(path, |state, path| drop(state.remove(path)));
                    going
                }
                Goes::AtOnce => {
                    let uid = state.remove(&path)["metadata"]["uid"].clone();
                    json!({"kind": "Status", "status": "Success", "details": {"uid": uid}})
                }
                Goes::Echoed => state.remove(&path),
                Goes::Renewed => {
                    let going = state.put(&path, json!({"phase": "going"}));
                    self.later(path, State::renew);
                    going
                }
            }),
            _ if path.ends_with("/configmaps") => {
                let items: Vec<&Value> = state.objects.values().collect();
                Ok(json!({"metadata": {"resourceVersion": state.version.to_string()}, "items": items}))
            }
            _ => state
                .objects
                .get(&path)
                .cloned()
                .ok_or_else(|| refused(&request, ErrorClass::NotFound, "not found")),
        };
        self.moved.send_replace(state.version);
        async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            reply
        }
        .boxed()
    }

    fn can_stream(&self) -> bool {
        true
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<ByteStream, ApiError>> {
        self.state.lock().unwrap().asked.push(request.clone());
        let from = request.path.split("resourceVersion=").nth(1).unwrap();
        let from: u64 = from.split('&').next().unwrap().parse().unwrap();
        let bytes = match self.trouble {
            Trouble::Forbidden => Err(refused(&request, ErrorClass::Denied, "no right to watch")),
            Trouble::Breaks => Ok(stream::empty().boxed()),
            Trouble::Deaf => Ok(stream::pending().boxed()),
            // The second time its own LIST has said where it is.
            Trouble::TooOld if self.reads().1 == 1 => {
                let line =
                    json!({"type": "ERROR", "object": {"kind": "Status", "code": 410}}).to_string() + "\n";
                Ok(stream::iter([Ok(Bytes::from(line))]).boxed())
            }
            Trouble::None | Trouble::TooOld => Ok(self.events(from).boxed()),
            Trouble::Cut => {
                let half = stream::iter([Ok(Bytes::from_static(b"{\"type\": \"MODI"))]);
                Ok(self.events(from).take(2).chain(half).boxed())
            }
        };
        async move { bytes }.boxed()
    }
}

impl Live {
    /// Events after a version, each in two pieces.
    fn events(&self, from: u64) -> impl futures::Stream<Item = Result<Bytes, String>> + Send + 'static {
        let (state, moved) = (Arc::clone(&self.state), self.moved.subscribe());
        let events = stream::unfold((from, state, moved), |(from, state, mut moved)| async move {
            loop {
                let next = state.lock().unwrap().events.iter().find(|(version, _)| *version > from).cloned();
                if let Some((version, event)) = next {
                    return Some((event, (version, state, moved)));
                }
                moved.changed().await.ok()?;
            }
        });
        events.flat_map(|event| {
            let line = event.to_string() + "\n";
            let (first, second) = line.split_at(line.len() / 2);
            stream::iter([Ok(Bytes::from(first.to_owned())), Ok(Bytes::from(second.to_owned()))])
        })
    }
}

fn deletes(name: &str) -> Change {
    let object = object("ConfigMap", "configmaps", name);
    let (path, identity) = (object.path(), Identity::Object(object));
    let steps =
        vec![call(Api::Kubernetes, Method::Delete, &path, json!({})), wait(&identity, Until::Gone, 60)];
    change(name, identity, Action::Delete, steps, &[])
}

async fn applied(
    trouble: Trouble,
    changes: Vec<Change>,
    live: Live,
) -> (Vec<Outcome>, (usize, usize), Duration) {
    assert_eq!(live.trouble, trouble);
    let kinds: Kinds = |_| &KIND;
    let (_sender, interrupt) = watch::channel(0);
    let options = ApplyOptions { now: || jiff::Timestamp::UNIX_EPOCH, kinds, ..ApplyOptions::new(interrupt) };
    let live = Arc::new(live);
    let began = Instant::now();
    let summary = apply(&plan(changes), Arc::<Live>::clone(&live), options, |_| {}).await;
    let outcomes = summary.outcomes.into_iter().map(|(_, outcome, _)| outcome).collect();
    (outcomes, live.reads(), began.elapsed())
}

fn many() -> Vec<Change> {
    (0..100).map(|number| makes(&format!("c{number}"), &[])).collect()
}

fn gone(count: usize) -> (Vec<Change>, State) {
    let mut state = State { version: 1000, ..State::default() };
    let names: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
    for name in &names {
        state.put(&format!("{CONFIG}{name}"), ready());
    }
    (names.iter().map(|name| deletes(name)).collect(), state)
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_share_one_watch_and_ask_for_nothing() {
    let (outcomes, (gets, watches), took) = applied(Trouble::None, many(), Live::with(Trouble::None)).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Done), "{outcomes:?}");
    assert_eq!((gets, watches), (0, 1));
    // Two rounds of 64 and 36, each ready after five seconds: heard at once, not at the next look.
    assert!(took < Duration::from_millis(10_500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn where_a_watch_does_not_work_it_is_asked_as_before() {
    for trouble in [Trouble::Forbidden, Trouble::Breaks, Trouble::Cut, Trouble::TooOld, Trouble::Deaf] {
        let (outcomes, (gets, watches), _) = applied(trouble, many(), Live::with(trouble)).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Done), "{trouble:?}: {outcomes:?}");
        let expected = match trouble {
            Trouble::None => unreachable!(),
            Trouble::Forbidden => gets >= 100 && watches == 1,
            Trouble::Breaks => gets >= 100 && watches == 4,
            // Each event is heard once, and the watch goes on after it.
            Trouble::Cut => gets == 0 && watches >= 200,
            // One LIST of what was missed.
            Trouble::TooOld => gets == 1 && watches == 2,
            Trouble::Deaf => gets == 100 && watches == 1,
        };
        assert!(expected, "{trouble:?}: {gets} GETs, {watches} watches");
    }
}

#[tokio::test(start_paused = true)]
async fn what_goes_is_heard_gone_and_not_asked_for() {
    for (trouble, goes, gets, watches) in [
        (Trouble::None, Goes::Later, 0, 1),
        (Trouble::None, Goes::AtOnce, 0, 0),
        (Trouble::None, Goes::Echoed, 0, 1),
        (Trouble::None, Goes::Renewed, 0, 1),
        // A Status says that the object is deleted, so no watch is needed.
        (Trouble::Forbidden, Goes::AtOnce, 0, 0),
        (Trouble::Forbidden, Goes::Echoed, 20, 1),
        (Trouble::Forbidden, Goes::Later, 20 * 20, 1),
        (Trouble::Forbidden, Goes::Renewed, 20 * 20, 1),
        (Trouble::Breaks, Goes::Echoed, 20, 4),
        (Trouble::Cut, Goes::Later, 0, 50),
        (Trouble::TooOld, Goes::Echoed, 1, 2),
        // It is believed for a while that tells nothing.
        (Trouble::Deaf, Goes::Echoed, 20, 1),
        (Trouble::Deaf, Goes::Renewed, 20, 1),
    ] {
        let (changes, state) = gone(20);
        let live = Live { goes, state: Arc::new(Mutex::new(state)), ..Live::with(trouble) };
        let (outcomes, asked, _) = applied(trouble, changes, live).await;
        assert!(
            outcomes.iter().all(|outcome| *outcome == Outcome::Done),
            "{trouble:?} {goes:?}: {outcomes:?}"
        );
        assert!(asked.0 <= gets && asked.1 <= watches, "{trouble:?} {goes:?}: (GETs, watches) {asked:?}");
        assert!(asked.0 > 0 || gets == 0, "{trouble:?} {goes:?}: nobody asked");
    }
}

/// A lost reply and then a conflict: the deleted object is gone, and apply does not wait for the new one with its name.
#[tokio::test(start_paused = true)]
async fn one_that_has_the_name_of_what_is_gone_is_not_waited_for() {
    let object = object("ConfigMap", "configmaps", "a");
    let (path, identity) = (object.path(), Identity::Object(object));
    let delete = call(Api::Kubernetes, Method::Delete, &path, json!({"preconditions": {"uid": "old"}}));
    let steps = vec![delete, wait(&identity, Until::Gone, 60)];
    let api = Fake::new()
        .on("GET /api/v1/namespaces/n/configmaps/a", always(json!({"metadata": {"uid": "new"}})))
        .on(
            "DELETE /api/v1/namespaces/n/configmaps/a",
            in_turn(vec![
                Err((ErrorClass::Lost, "broken off")),
                Err((ErrorClass::Conflict, "the UID differs")),
            ]),
        );
    let (applied, _) = quiet(vec![change("a", identity, Action::Delete, steps, &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
}
