//! Port-forwards: local ports that lead to a pod through the API server. When the pod is replaced or the connection breaks, the
//! ports stay open, and open connections are closed so that clients notice and connect again.

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
use crate::{ApiError, ErrorClass, LiveApi as _, Request};
use model::resource::Api;

/// The pod to connect to, and its ports in the order of the local ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPod {
    pub namespace: String,
    pub pod: String,
    /// The uid, which tells it from a later pod of the same name.
    pub uid: String,
    pub ports: Vec<u16>,
}

/// Finds the pod to connect to in a LIST, preferring the one with this uid; returns the reason if there is none.
pub type FindPod = Arc<dyn Fn(&Value, Option<&str>) -> Result<TargetPod, String> + Send + Sync>;

/// The pods to connect to.
#[derive(Clone)]
pub struct ForwardTarget {
    /// The path of the LIST of candidate pods.
    pub pods: String,
    pub find: FindPod,
}

/// Events that are reported while ports are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardEvent {
    /// The pod no longer exists or runs; its connections were cut.
    PodGone(String),
    /// A pod is ready: another one, or the same one again.
    PodFound(TargetPod),
    /// The API server cannot be reached.
    ApiUnreachable(String),
    /// The API server answers again; connections were cut.
    ApiReachable,
    /// A connection could not be made.
    ConnectionFailed(String),
}

/// The interval of reads while nothing happens.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The shortest pause between two reads.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// How long a client's connection waits for a pod. Dask's own clients give up after 30 s.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// The length of an outage after which the API server has closed all connections.
const OUTAGE: Duration = Duration::from_secs(30);
/// How long the pod may continue to send after the client has closed its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A bound local port, on the loopback interface only.
pub struct LocalPort(TcpListener);

impl LocalPort {
    /// Binds this port.
    ///
    /// # Errors
    ///
    /// It is in use, or not allowed.
    pub async fn bind(port: u16) -> io::Result<Self> {
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map(Self)
    }

    /// Binds the usual port if it is free, else any free one.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn bind_or_any(usual: u16) -> io::Result<Self> {
        match Self::bind(usual).await {
            Ok(local) => Ok(local),
            Err(_) => Self::bind(0).await,
        }
    }

    /// Returns its number.
    ///
    /// # Errors
    ///
    /// The operating system does not return it.
    pub fn port(&self) -> io::Result<u16> {
        self.0.local_addr().map(|address| address.port())
    }
}

/// The current pod, and its generation. Connections to pods of earlier generations are closed.
#[derive(Clone, Debug)]
struct State {
    pod: Result<TargetPod, String>,
    generation: u64,
}

struct Shared {
    api: Arc<Connection>,
    target: ForwardTarget,
    state: watch::Sender<State>,
    check_pods: Notify,
    events: mpsc::UnboundedSender<ForwardEvent>,
}

/// Forwards local ports to `first`, and to the pods that replace it, until the future is dropped. The n-th local port leads
/// to the n-th port of the pod.
pub async fn forward(
    api: Arc<Connection>,
    target: ForwardTarget,
    first: TargetPod,
    locals: Vec<LocalPort>,
    events: mpsc::UnboundedSender<ForwardEvent>,
) {
    let (state, _) = watch::channel(State { pod: Ok(first), generation: 0 });
    let shared = Arc::new(Shared { api, target, state, check_pods: Notify::new(), events });
    let listeners = locals.into_iter().enumerate().map(|(index, local)| accept(&shared, index, local));
    tokio::join!(watch_pods(&shared), join_all(listeners));
}

async fn accept(shared: &Arc<Shared>, index: usize, LocalPort(listener): LocalPort) {
    // Open connections end with the ports.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => drop(connections.spawn(serve(Arc::clone(shared), index, socket))),
                // Too many open files, or a client that left at once.
                Err(_) => sleep(RETRY_PAUSE).await,
            },
        }
    }
}

async fn serve(shared: Arc<Shared>, index: usize, mut socket: TcpStream) {
    // Small messages of clients must not wait for each other; that it is not done costs time only.
    let _ = socket.set_nodelay(true);
    let Some((mut tunnel, generation)) = shared.open(index).await else { return };
    let mut state = shared.state.subscribe();
    tokio::select! {
        _ = state.wait_for(|state| state.generation != generation) => {}
        ended = copy_both_ways(&mut socket, &mut tunnel) => match ended {
            EndedBy::Client => {}
            EndedBy::Pod => shared.check_pods.notify_one(),
            EndedBy::Failed(why) => {
                shared.report(ForwardEvent::ConnectionFailed(why));
                shared.check_pods.notify_one();
            }
        },
    }
}

enum EndedBy {
    Client,
    Pod,
    Failed(String),
}

/// Copies bytes both ways until one side ends.
async fn copy_both_ways(socket: &mut TcpStream, tunnel: &mut Tunnel) -> EndedBy {
    let (mut from_client, mut to_client) = socket.split();
    let (mut from_pod, mut to_pod) = split(&mut tunnel.stream);
    let failure = &mut tunnel.error;
    // An error on one side shows on the other.
    let up = async {
        let _ = copy(&mut from_client, &mut to_pod).await;
        let _ = to_pod.shutdown().await;
    };
    let down = async {
        let _ = copy(&mut from_pod, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    let failure = async {
        match failure.await {
            Some(why) => why,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(up, down, failure);
    tokio::select! {
        biased;
        why = &mut failure => EndedBy::Failed(why),
        () = &mut down => EndedBy::Pod,
        () = &mut up => {
            // The connection ends even if the pod's last bytes do not arrive in time.
            let _ = timeout(CLOSE_TIMEOUT, &mut down).await;
            EndedBy::Client
        }
    }
}

impl Shared {
    fn report(&self, event: ForwardEvent) {
        // Nobody listens any more when all of it ends.
        let _ = self.events.send(event);
    }

    /// Opens a tunnel to the current pod, and returns it with the pod's generation. Waits as long as there is no pod.
    async fn open(&self, index: usize) -> Option<(Tunnel, u64)> {
        let begun = Instant::now();
        let mut state = self.state.subscribe();
        loop {
            let State { pod, generation } = state.borrow_and_update().clone();
            let why = match self.try_open(&pod, index).await {
                Ok(tunnel) => return Some((tunnel, generation)),
                Err(OpenError::Permanent(why)) => {
                    self.report(ForwardEvent::ConnectionFailed(why));
                    return None;
                }
                Err(OpenError::Temporary(why)) => why,
            };
            if begun.elapsed() > OPEN_TIMEOUT {
                self.report(ForwardEvent::ConnectionFailed(why));
                return None;
            }
            self.check_pods.notify_one();
            tokio::select! {
                _ = state.changed() => {}
                () = sleep(RETRY_PAUSE) => {}
            }
        }
    }

    async fn try_open(&self, pod: &Result<TargetPod, String>, index: usize) -> Result<Tunnel, OpenError> {
        let target = pod.as_ref().map_err(|why| OpenError::Temporary(why.clone()))?;
        let Some(port) = target.ports.get(index) else {
            return Err(OpenError::Permanent("the pod has no such port".to_owned()));
        };
        self.api.tunnel(&target.namespace, &target.pod, *port).await.map_err(|error| match error.class {
            ErrorClass::Denied | ErrorClass::Invalid => OpenError::Permanent(error.to_string()),
            _ => OpenError::Temporary(error.to_string()),
        })
    }
}

enum OpenError {
    Temporary(String),
    Permanent(String),
}

/// Polls the pods.
async fn watch_pods(shared: &Shared) {
    let mut away: Option<Instant> = None;
    loop {
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            () = shared.check_pods.notified() => sleep(RETRY_PAUSE).await,
        }
        let request = Request::get(Api::Kubernetes, shared.target.pods.clone());
        match shared.api.send(request).await {
            Err(error) => {
                if away.is_none() && !error.is_temporary() {
                    away = Some(Instant::now());
                    shared.report(ForwardEvent::ApiUnreachable(error.to_string()));
                }
            }
            Ok(list) => {
                let outage = away.take().map(|since| since.elapsed());
                let cut = outage.is_some_and(|outage| outage > OUTAGE);
                let before = shared.state.borrow().pod.clone();
                let current = before.as_ref().ok().map(|pod| pod.uid.as_str());
                let (change, cuts) = pod_change(&before, (shared.target.find)(&list, current), cut);
                if outage.is_some() {
                    shared.report(ForwardEvent::ApiReachable);
                }
                let Some((pod, events)) = change else { continue };
                shared.state.send_modify(|state| {
                    state.generation += u64::from(cuts);
                    state.pod = pod;
                });
                events.into_iter().for_each(|event| shared.report(event));
            }
        }
    }
}

type PodChange = (Result<TargetPod, String>, Vec<ForwardEvent>);

/// Compares the pod found now with the one before. Returns the new pod if it is another one, the events, and true if open
/// connections have to be closed.
fn pod_change(
    before: &Result<TargetPod, String>,
    now: Result<TargetPod, String>,
    cut: bool,
) -> (Option<PodChange>, bool) {
    match (before, now) {
        (Ok(old), Ok(new)) if *old == new => (cut.then(|| (Ok(new), Vec::new())), cut),
        (Ok(old), Ok(new)) => {
            let gone = ForwardEvent::PodGone(format!("pod {} no longer exists", old.pod));
            (Some((Ok(new.clone()), vec![gone, ForwardEvent::PodFound(new)])), true)
        }
        (Ok(_), Err(why)) => (Some((Err(why.clone()), vec![ForwardEvent::PodGone(why)])), true),
        (Err(_), Ok(new)) => (Some((Ok(new.clone()), vec![ForwardEvent::PodFound(new)])), false),
        // The reason changes while a pod starts; the last one is for clients that wait.
        (Err(_), Err(why)) => (Some((Err(why), Vec::new())), false),
    }
}

impl ApiError {
    /// Returns true if the server answered and asks to retry, which says nothing about the connection.
    fn is_temporary(&self) -> bool {
        matches!(self.class, ErrorClass::Throttled | ErrorClass::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(pod: &str) -> TargetPod {
        TargetPod { namespace: "n".into(), pod: pod.into(), uid: format!("uid-{pod}"), ports: vec![8786] }
    }

    #[test]
    fn what_is_connected_is_cut_when_it_leads_nowhere() {
        let none = || Err("there is no pod yet".to_owned());
        assert_eq!(pod_change(&Ok(target("a")), Ok(target("a")), false), (None, false));
        let (change, cut) = pod_change(&Ok(target("a")), Ok(target("a")), true);
        assert!(cut && change.unwrap().1.is_empty(), "after an outage");
        let (change, cut) = pod_change(&Ok(target("a")), Ok(target("b")), false);
        let gone = ForwardEvent::PodGone("pod a no longer exists".into());
        assert_eq!((change.unwrap().1, cut), (vec![gone, ForwardEvent::PodFound(target("b"))], true));
        let (change, cut) = pod_change(&Ok(target("a")), none(), false);
        assert_eq!(
            (change.unwrap().1, cut),
            (vec![ForwardEvent::PodGone("there is no pod yet".into())], true)
        );
        let (change, cut) = pod_change(&none(), Ok(target("b")), false);
        assert_eq!((change.unwrap().1, cut), (vec![ForwardEvent::PodFound(target("b"))], false));
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_refused_or_another_one_is_taken() {
        let held = LocalPort::bind(0).await.unwrap();
        let port = held.port().unwrap();
        assert_eq!(LocalPort::bind(port).await.err().unwrap().kind(), io::ErrorKind::AddrInUse);
        assert_ne!(LocalPort::bind_or_any(port).await.unwrap().port().unwrap(), port);
    }
}
