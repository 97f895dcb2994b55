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

/// Like [`options`], with a kubeconfig of a server that nobody asks.
fn backed(dir: &std::path::Path) -> Options {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(dir.join("server.pem"), made.cert.pem()).expect("write");
    let config = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": "https://127.0.0.1:1", "certificate-authority": "server.pem",
        }}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    let kubeconfig = dir.join("real");
    std::fs::write(&kubeconfig, config.to_string()).expect("write");
    Options { kubernetes: Some(kubeconfig), ..options(Some(dir)) }
}

#[test]
fn a_real_api_server_is_one_cluster_and_nothing_of_it_is_made_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let sandbox = Sandbox::open_with(backed(dir.path()), Endpoints::Served).expect("open");
    let id = with_cluster(&sandbox);
    assert!(sandbox.lock().clusters.is_empty(), "no cluster is simulated");
    sandbox.set_endpoint(&id, "127.0.0.1:1").expect("stored");
    sandbox.advance(SignedDuration::from_secs(1)).expect("stored");
    let (backed_id, pools) = sandbox.backed_cluster().expect("a cluster");
    assert_eq!((backed_id, pools.len()), (id, 1));
    let second = json!({"cluster": {"name": "second", "initialNodeCount": 1}});
    let refused = request(&sandbox, "POST", CLUSTERS, &second);
    assert_eq!(refused.code, 400, "{}", refused.body);
    assert_eq!(refused.body["error"]["status"], "FAILED_PRECONDITION");
    assert_eq!(request(&sandbox, "DELETE", &format!("{CLUSTERS}/c"), &Value::Null).code, 200);
    sandbox.advance(SignedDuration::from_secs(10)).expect("stored");
    assert_eq!(request(&sandbox, "POST", CLUSTERS, &second).code, 200, "there is room again");
}

#[test]
fn simulated_clusters_do_not_become_real_ones_nor_the_other_way() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = |options: Options| Sandbox::open_with(options, Endpoints::Served);
    let refused = |options: Options| open(options).expect_err("another backing").to_string();
    with_cluster(&open(options(Some(dir.path()))).expect("simulated"));
    let said = refused(backed(dir.path()));
    assert!(said.contains("the clusters of this sandbox are simulated"), "{said}");

    let dir = tempfile::tempdir().expect("a folder");
    drop(open(options(Some(dir.path()))).expect("empty"));
    with_cluster(&open(backed(dir.path())).expect("an empty folder can be either"));
    let said = refused(options(Some(dir.path())));
    assert!(said.contains("serve it with `--kubernetes`"), "{said}");
    open(backed(dir.path())).expect("as it was");
    let said = Sandbox::open(backed(dir.path())).expect_err("not served").to_string();
    assert!(said.contains("a sandbox that is served only"), "{said}");
}
