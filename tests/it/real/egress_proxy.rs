//! The API server's way to pods and nodes: a proxy of our own that it dials through, as GKE's does through
//! konnectivity. KWOK's pods have addresses that lead nowhere; their forwarded ports lead to processes here.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use super::kwok::Forward;
use super::process_group::ProcessGroup;

/// A running proxy, until it is dropped.
pub struct EgressProxy {
    configuration: PathBuf,
    forwards: Arc<Mutex<Vec<Forward>>>,
    task: tokio::task::JoinHandle<()>,
}

impl EgressProxy {
    /// Listens on a socket in the folder of the processes.
    pub fn start(processes: &ProcessGroup) -> EgressProxy {
        let socket = processes.folder().join("pods.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let through =
            json!({ "proxyProtocol": "HTTPConnect", "transport": { "uds": { "udsName": socket } } });
        let configuration = json!({
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{ "name": "cluster", "connection": through }],
        });
        let configuration = processes.write("egress.json", configuration.to_string());
        let forwards = Arc::new(Mutex::new(Vec::new()));
        let routes = Arc::clone(&forwards);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, Arc::clone(&routes)));
            }
        });
        EgressProxy { configuration, forwards, task }
    }

    /// Returns the file for `--egress-selector-config-file` of the API server.
    pub fn configuration(&self) -> &Path {
        &self.configuration
    }

    /// Where the ports of pods lead from now on.
    pub fn set_forwards(&self, forwards: &[Forward]) {
        *self.forwards.lock().unwrap() = forwards.to_vec();
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One connection: `CONNECT 10.0.0.7:8787 HTTP/1.1`, then bytes both ways. Kubelets are KWOK, on this machine.
async fn connect(mut client: UnixStream, forwards: Arc<Mutex<Vec<Forward>>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let (host, port) = head.split(' ').nth(1)?.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let lead = |forward: &&Forward| forward.pod == port;
    let target = match host {
        "127.0.0.1" | "localhost" => Some(port),
        _ => forwards.lock().unwrap().iter().find(lead).map(|forward| forward.host),
    };
    let server = match target {
        Some(port) => TcpStream::connect(("127.0.0.1", port)).await.ok(),
        None => None,
    };
    let Some(mut server) = server else {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await.ok();
    };
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
    copy_bidirectional(&mut client, &mut server).await.ok().map(|_| ())
}
