//! A GKE API for one gcloud command: it answers reads from a world, takes every write, and remembers the writes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Request;

/// Version of the control plane and of all nodes.
pub const VERSION: &str = "1.33.5-gke.1201000";

/// Serves until the process ends: an idle thread a command.
pub struct FakeGke {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    state: Arc<Mutex<State>>,
}

/// The cluster with its pools, and what was written.
struct State {
    cluster: Option<Value>,
    written: Vec<Request>,
}

impl FakeGke {
    /// In a world with this cluster, or with none.
    pub fn start(cluster: Option<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State { cluster, written: Vec::new() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that goes away takes only its own answer along.
                let _gone = answer(&stream, &shared);
            }
        });
        Self { url, state }
    }

    /// Returns the writes, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().written.clone()
    }
}

/// Reads one request and answers it; every connection has one.
fn answer(mut stream: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? <= 2 {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (code, reply) = state.lock().unwrap().reply(method, path, body);
    let reply = reply.to_string();
    write!(
        stream,
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{reply}",
        reply.len()
    )
}

impl State {
    fn reply(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
        if method != "GET" {
            self.create(path, &body);
            self.written.push(Request::new(method, path, body));
            return (200, operation());
        }
        match self.read(path) {
            Some(found) => (200, found),
            None => {
                let message = format!("Not found: {path}.");
                (404, json!({ "error": { "code": 404, "message": message, "status": "NOT_FOUND" } }))
            }
        }
    }

    fn read(&self, path: &str) -> Option<Value> {
        if path.contains("/services/") {
            return Some(json!({ "state": "ENABLED" }));
        }
        if path.contains("/operations") {
            return Some(operation());
        }
        if path.ends_with("/serverConfig") {
            return Some(json!({ "defaultClusterVersion": VERSION, "validMasterVersions": [VERSION] }));
        }
        let cluster = self.cluster.as_ref()?;
        if path.ends_with("/clusters/c") {
            return Some(cluster.clone());
        }
        let (_, pool) = path.split_once("/nodePools/")?;
        cluster["nodePools"].as_array()?.iter().find(|known| known["name"] == pool).cloned()
    }

    /// gcloud reads what it has made.
    fn create(&mut self, path: &str, body: &Value) {
        if path.ends_with("/clusters") {
            let mut cluster = body["cluster"].clone();
            dress(&mut cluster);
            // gcloud looks at both for the kubeconfig that it writes.
            cluster["controlPlaneEndpointsConfig"] = json!({
                "dnsEndpointConfig": { "endpoint": "gke-1.us-central1-c.gke.goog", "allowExternalTraffic": true },
                "ipEndpointsConfig": { "enabled": true, "publicEndpoint": "127.0.0.1", "privateEndpoint": "127.0.0.1" },
            });
            self.cluster = Some(cluster);
        } else if let Some(cluster) = &mut self.cluster
            && path.ends_with("/nodePools")
            && let Some(pools) = cluster["nodePools"].as_array_mut()
        {
            pools.push(body["nodePool"].clone());
            dress(cluster);
        }
    }
}

fn operation() -> Value {
    json!({ "name": "operation-1", "status": "DONE", "operationType": "UPDATE_CLUSTER", "zone": "us-central1-c" })
}

/// Adds the fields that GKE adds to a cluster and its pools, as far as gcloud or a plan asks for them.
pub fn dress(cluster: &mut Value) {
    let fill = |thing: &mut Value, key: &str, value: Value| {
        if thing[key].is_null() {
            thing[key] = value;
        }
    };
    fill(cluster, "status", json!("RUNNING"));
    fill(cluster, "currentMasterVersion", json!(VERSION));
    fill(cluster, "currentNodeVersion", json!(VERSION));
    fill(cluster, "endpoint", json!("127.0.0.1"));
    fill(cluster, "labelFingerprint", json!("a9dc16a7"));
    fill(cluster, "masterAuth", json!({ "clusterCaCertificate": "Zm9v" }));
    fill(cluster, "locations", json!(["us-central1-c"]));
    fill(cluster, "nodePools", json!([]));
    if cluster["maintenancePolicy"]["resourceVersion"].is_null() {
        cluster["maintenancePolicy"]["resourceVersion"] = json!("e3b0c442");
    }
    for pool in cluster["nodePools"].as_array_mut().into_iter().flatten() {
        fill(pool, "status", json!("RUNNING"));
        fill(pool, "version", json!(VERSION));
    }
}
