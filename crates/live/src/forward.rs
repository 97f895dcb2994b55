//! Port-forwards: local ports that lead to a pod through the API server for as long as somebody wants them. The pod may
//! go and another one come, the connection may break: the ports stay. What was connected is cut then, so that clients
//! notice it and connect again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::io::{AsyncWriteExt as _, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::connection::Connection;
use crate::kube::Tunnel;
use crate::{ApiError, Class, LiveApi as _, Request};
use model::resource::Api;

/// The pod that answers, and its ports in the order of the local ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Tells it from another one of the same name.
    pub uid: String,
    /// Numbers of ports of the pod.
    pub ports: Vec<u16>,
}

/// Finds the pod to connect to in a LIST, preferring the one with this uid; says why there is none.
pub type Find = Arc<dyn Fn(&Value, Option<&str>) -> Result<Place, String> + Send + Sync>;

/// Where to connect to.
#[derive(Clone)]
pub struct Aim {
    /// The path of the LIST of pods that may answer.
    pub pods: String,
    /// Finds the one among them.
    pub find: Find,
}

/// Events that are reported while ports are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The pod is gone, or runs no more; what was connected was cut.
    Gone(String),
    /// Another pod answers, or the same one again.
    There(Place),
    /// The API server cannot be reached.
    Unreached(String),
    /// The API server answers again; what was connected was cut.
    Back,
    /// A connection could not be made.
    Refused(String),
}

/// How often pods are looked at while nothing calls for it.
const PACE: Duration = Duration::from_secs(3);
/// Between two looks at least.
const BREATH: Duration = Duration::from_millis(300);
/// How long a client waits for a pod. Dask's own clients give up after 30 s.
const PATIENCE: Duration = Duration::from_secs(30);
/// An API server that was away for so long has let go of what was connected through it.
const OUTAGE: Duration = Duration::from_secs(30);
/// How long the pod may go on sending when the client has ended.
const LINGER: Duration = Duration::from_secs(10);

/// A local port that is held, on the loopback interface only.
pub struct Local(TcpListener);

impl Local {
    /// Takes this very port.
    ///
    /// # Errors
    /// It is not free, or not allowed.
    pub async fn take(port: u16) -> io::Result<Self> {
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map(Self)
    }

    /// Takes the usual port when it is free, else any.
    ///
    /// # Errors
    /// There is none.
    pub async fn take_like(usual: u16) -> io::Result<Self> {
        match Self::take(usual).await {
            Ok(local) => Ok(local),
            Err(_) => Self::take(0).await,
        }
    }

    /// Its number.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn port(&self) -> io::Result<u16> {
        self.0.local_addr().map(|address| address.port())
    }
}

/// Where connections lead to now. Those of an earlier era are cut.
#[derive(Clone, Debug)]
struct State {
    place: Result<Place, String>,
    era: u64,
}

struct Shared {
    api: Arc<Connection>,
    aim: Aim,
    state: watch::Sender<State>,
    look: Notify,
    hear: mpsc::UnboundedSender<Heard>,
}

/// Forwards local ports to `first`, and to what takes its place, until the future is dropped. The n-th local port leads
/// to the n-th port of the place.
pub async fn forward(
    api: Arc<Connection>,
    aim: Aim,
    first: Place,
    locals: Vec<Local>,
    hear: mpsc::UnboundedSender<Heard>,
) {
    let (state, _) = watch::channel(State { place: Ok(first), era: 0 });
    let shared = Arc::new(Shared { api, aim, state, look: Notify::new(), hear });
    let doors = locals.into_iter().enumerate().map(|(index, local)| accept(&shared, index, local));
    tokio::join!(watch_pods(&shared), join_all(doors));
}

async fn accept(shared: &Arc<Shared>, index: usize, Local(listener): Local) {
    // What is under way ends with the ports.
    let mut carried = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = carried.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => drop(carried.spawn(carry(Arc::clone(shared), index, socket))),
                // Too many open files, or a client that left at once.
                Err(_) => sleep(BREATH).await,
            },
        }
    }
}

async fn carry(shared: Arc<Shared>, index: usize, mut socket: TcpStream) {
    // Small messages of clients must not wait for each other; that it is not done costs time only.
    let _ = socket.set_nodelay(true);
    let Some((mut tunnel, era)) = shared.open(index).await else { return };
    let mut state = shared.state.subscribe();
    tokio::select! {
        _ = state.wait_for(|state| state.era != era) => {}
        ended = pump(&mut socket, &mut tunnel) => match ended {
            Ended::Client => {}
            Ended::Pod => shared.look.notify_one(),
            Ended::Trouble(why) => {
                shared.say(Heard::Refused(why));
                shared.look.notify_one();
            }
        },
    }
}

enum Ended {
    Client,
    Pod,
    Trouble(String),
}

/// Carries bytes both ways until one side ends.
async fn pump(socket: &mut TcpStream, tunnel: &mut Tunnel) -> Ended {
    let (mut from_client, mut to_client) = socket.split();
    let (mut from_pod, mut to_pod) = split(&mut tunnel.stream);
    let trouble = &mut tunnel.trouble;
    // What goes wrong on one side shows on the other.
    let up = async {
        let _ = copy(&mut from_client, &mut to_pod).await;
        let _ = to_pod.shutdown().await;
    };
    let down = async {
        let _ = copy(&mut from_pod, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    let trouble = async {
        match trouble.await {
            Some(why) => why,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(up, down, trouble);
    tokio::select! {
        biased;
        why = &mut trouble => Ended::Trouble(why),
        () = &mut down => Ended::Pod,
        () = &mut up => {
            // Whether the rest came in time changes nothing.
            let _ = timeout(LINGER, &mut down).await;
            Ended::Client
        }
    }
}

impl Shared {
    fn say(&self, heard: Heard) {
        // Nobody listens any more when all of it ends.
        let _ = self.hear.send(heard);
    }

    /// A tunnel to the pod of now, and its era; a client waits while there is none.
    async fn open(&self, index: usize) -> Option<(Tunnel, u64)> {
        let begun = Instant::now();
        let mut state = self.state.subscribe();
        loop {
            let State { place, era } = state.borrow_and_update().clone();
            let why = match self.try_open(&place, index).await {
                Ok(tunnel) => return Some((tunnel, era)),
                Err(Unopened::ForGood(why)) => {
                    self.say(Heard::Refused(why));
                    return None;
                }
                Err(Unopened::ForNow(why)) => why,
            };
            if begun.elapsed() > PATIENCE {
                self.say(Heard::Refused(why));
                return None;
            }
            self.look.notify_one();
            tokio::select! {
                _ = state.changed() => {}
                () = sleep(BREATH) => {}
            }
        }
    }

    async fn try_open(&self, place: &Result<Place, String>, index: usize) -> Result<Tunnel, Unopened> {
        let place = place.as_ref().map_err(|why| Unopened::ForNow(why.clone()))?;
        let Some(port) = place.ports.get(index) else {
            return Err(Unopened::ForGood("the pod has no such port".to_owned()));
        };
        self.api.tunnel(&place.namespace, &place.pod, *port).await.map_err(|error| match error.class {
            Class::Denied | Class::Invalid => Unopened::ForGood(error.to_string()),
            _ => Unopened::ForNow(error.to_string()),
        })
    }
}

enum Unopened {
    ForNow(String),
    ForGood(String),
}

/// Looks at the pods again and again.
async fn watch_pods(shared: &Shared) {
    let mut away: Option<Instant> = None;
    loop {
        tokio::select! {
            () = sleep(PACE) => {}
            () = shared.look.notified() => sleep(BREATH).await,
        }
        let request = Request::get(Api::Kubernetes, shared.aim.pods.clone());
        match shared.api.send(request).await {
            Err(error) => {
                if away.is_none() && !error.is_passing() {
                    away = Some(Instant::now());
                    shared.say(Heard::Unreached(error.to_string()));
                }
            }
            Ok(list) => {
                let outage = away.take().map(|since| since.elapsed());
                let cut = outage.is_some_and(|outage| outage > OUTAGE);
                let before = shared.state.borrow().place.clone();
                let current = before.as_ref().ok().map(|place| place.uid.as_str());
                let (told, cuts) = moved(&before, (shared.aim.find)(&list, current), cut);
                if outage.is_some() {
                    shared.say(Heard::Back);
                }
                let Some((place, heard)) = told else { continue };
                shared.state.send_modify(|state| {
                    state.era += u64::from(cuts);
                    state.place = place;
                });
                heard.into_iter().for_each(|heard| shared.say(heard));
            }
        }
    }
}

type Told = (Result<Place, String>, Vec<Heard>);

/// Returns the result of a look at the pods: the new place when it is another one, the events, and true if open connections
/// lead nowhere.
fn moved(before: &Result<Place, String>, now: Result<Place, String>, cut: bool) -> (Option<Told>, bool) {
    match (before, now) {
        (Ok(old), Ok(new)) if *old == new => (cut.then(|| (Ok(new), Vec::new())), cut),
        (Ok(old), Ok(new)) => {
            let gone = Heard::Gone(format!("pod {} no longer exists", old.pod));
            (Some((Ok(new.clone()), vec![gone, Heard::There(new)])), true)
        }
        (Ok(_), Err(why)) => (Some((Err(why.clone()), vec![Heard::Gone(why)])), true),
        (Err(_), Ok(new)) => (Some((Ok(new.clone()), vec![Heard::There(new)])), false),
        // Why there is none changes while it comes up; the last word is for whoever waits.
        (Err(_), Err(why)) => (Some((Err(why), Vec::new())), false),
    }
}

impl ApiError {
    /// Returns true if it says nothing about the connection: the server answered, and asks for patience.
    fn is_passing(&self) -> bool {
        matches!(self.class, Class::Throttled | Class::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pod: &str) -> Place {
        Place { namespace: "n".into(), pod: pod.into(), uid: format!("uid-{pod}"), ports: vec![8786] }
    }

    #[test]
    fn what_is_connected_is_cut_when_it_leads_nowhere() {
        let none = || Err("there is no pod yet".to_owned());
        assert_eq!(moved(&Ok(place("a")), Ok(place("a")), false), (None, false));
        let (told, cut) = moved(&Ok(place("a")), Ok(place("a")), true);
        assert!(cut && told.unwrap().1.is_empty(), "after an outage");
        let (told, cut) = moved(&Ok(place("a")), Ok(place("b")), false);
        let gone = Heard::Gone("pod a no longer exists".into());
        assert_eq!((told.unwrap().1, cut), (vec![gone, Heard::There(place("b"))], true));
        let (told, cut) = moved(&Ok(place("a")), none(), false);
        assert_eq!((told.unwrap().1, cut), (vec![Heard::Gone("there is no pod yet".into())], true));
        let (told, cut) = moved(&none(), Ok(place("b")), false);
        assert_eq!((told.unwrap().1, cut), (vec![Heard::There(place("b"))], false));
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_refused_or_another_one_is_taken() {
        let held = Local::take(0).await.unwrap();
        let port = held.port().unwrap();
        assert_eq!(Local::take(port).await.err().unwrap().kind(), io::ErrorKind::AddrInUse);
        assert_ne!(Local::take_like(port).await.unwrap().port().unwrap(), port);
    }
}
