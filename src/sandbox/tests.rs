//! The shell around the state: persistence, clocks, addresses.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;

const CLUSTERS: &str = "/v1/projects/p/locations/us-central1-c/clusters";

fn options(dir: Option<&std::path::Path>) -> Options {
    let start = "2026-11-21T09:00:00Z".parse().expect("a time");
    Options { dir: dir.map(Into::into), clock: Clock::Manual(start), ..Options::default() }
}

fn request(sandbox: &Sandbox, method: &str, path: &str, body: &Value) -> gke::Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    sandbox.gke_request(method, path, "", body.as_bytes()).expect("stored")
}

/// A cluster `c`, brought up within 12 seconds of the sandbox.
fn with_cluster(sandbox: &Sandbox) -> ClusterId {
    let body = json!({"cluster": {"name": "c", "initialNodeCount": 1}});
    assert_eq!(request(sandbox, "POST", CLUSTERS, &body).code, 200);
    for _ in 0..24 {
        sandbox.advance(SignedDuration::from_millis(500)).expect("stored");
    }
    let id = ClusterId::new("p", "us-central1-c", "c");
    assert_eq!(sandbox.clusters(), std::slice::from_ref(&id));
    id
}

fn nodes(sandbox: &Sandbox, id: &ClusterId) -> usize {
    let state = sandbox.lock();
    state.clusters[id].cluster.list("", "nodes").count()
}

#[test]
fn a_cluster_has_nodes_an_address_and_a_kubeconfig() {
    let sandbox = Sandbox::open(options(None)).expect("open");
    let id = with_cluster(&sandbox);
    assert_eq!(nodes(&sandbox, &id), 1);
    let body = request(&sandbox, "GET", &format!("{CLUSTERS}/c"), &Value::Null).body;
    assert_eq!(body["status"], "RUNNING");
    let endpoint = body["endpoint"].as_str().expect("an address");
    assert_eq!(sandbox.cluster_by_endpoint(&format!("https://{endpoint}/")), Some(id.clone()));
    let config = sandbox.kubeconfig(&id).expect("a kubeconfig");
    assert_eq!(config["current-context"], "gke_p_us-central1-c_c");
    let authority = &config["clusters"][0]["cluster"]["certificate-authority-data"];
    assert_eq!(authority, &body["masterAuth"]["clusterCaCertificate"]);
}

#[test]
fn everything_is_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let sandbox = Sandbox::open(options(Some(dir.path()))).expect("open");
    let id = with_cluster(&sandbox);
    let before = request(&sandbox, "GET", &format!("{CLUSTERS}/c"), &Value::Null);
    drop(sandbox);
    let sandbox = Sandbox::open(options(Some(dir.path()))).expect("open again");
    sandbox.advance(SignedDuration::from_secs(12)).expect("stored");
    assert_eq!(request(&sandbox, "GET", &format!("{CLUSTERS}/c"), &Value::Null), before);
    assert_eq!(nodes(&sandbox, &id), 1);
    assert_eq!(request(&sandbox, "DELETE", &format!("{CLUSTERS}/c"), &Value::Null).code, 200);
    sandbox.advance(SignedDuration::from_secs(10)).expect("stored");
    assert_eq!(sandbox.clusters(), []);
    drop(sandbox);
    let (_, entries) = Store::open(dir.path()).expect("open the file");
    let left: Vec<&String> =
        entries.iter().map(|(key, _)| key).filter(|key| key.starts_with("kube")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_folder_has_one_owner() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Sandbox::open(options(Some(dir.path()))).expect("open");
    let error = Sandbox::open(options(Some(dir.path()))).expect_err("taken").to_string();
    assert!(error.contains("is in use by another sandbox"), "{error}");
    drop(first);
    Sandbox::open(options(Some(dir.path()))).expect("free again");
}
