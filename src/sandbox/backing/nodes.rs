//! The Node objects of the real API server follow GKE's node pools: they come, are labelled and tainted
//! anew, get their GPUs, and go, by the same rules as in a simulated cluster.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Backing;
use crate::sandbox::error::SandboxError;
use crate::sandbox::gke::ClusterId;
use crate::sandbox::kube::object::Key;
use crate::sandbox::kube::run::{Loops, PoolView, Write};
use crate::sandbox::kube::store::Cluster;
use crate::sandbox::state::Sandbox;

/// How often the server is looked at while there is a cluster. Reading a handful of nodes on loopback costs
/// less than keeping two watches right.
const LOOK: Duration = Duration::from_millis(250);
/// Which nodes are ours: an annotation with the cluster that they belong to. Nodes without it are nobody's
/// business.
const OURS: &str = "sandbox.dask-infra.dev/cluster";
const NODES: &str = "/api/v1/nodes";
const DRIVER_PODS: &str = "/api/v1/pods?labelSelector=k8s-app%3Dnvidia-driver-installer";
const MERGE: &str = "application/merge-patch+json";

/// Keeps the nodes as the pools say, for as long as the sandbox is served.
pub async fn keep(sandbox: Sandbox, backing: Arc<Backing>) -> Result<(), SandboxError> {
    let mut changes = sandbox.shared.changes.subscribe();
    let mut loops = Loops::new(sandbox.shared.scripts.clone());
    loop {
        let wanted = sandbox.backed_cluster();
        let rest = match round(&sandbox, &backing, &mut loops, wanted.as_ref()).await {
            Ok(Rest::Settled) if wanted.is_none() => None,
            // The server may be down, or starting: its clients see that for themselves.
            Ok(_) | Err(_) => Some(LOOK),
        };
        let sleep = async {
            match rest {
                None => std::future::pending().await,
                Some(rest) => tokio::time::sleep(rest).await,
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return Ok(()) },
            () = sleep => {}
        }
    }
}

/// What a round left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Settled,
    Moving,
}

/// Reads the nodes, and does what is due.
async fn round(
    sandbox: &Sandbox,
    backing: &Backing,
    loops: &mut Loops,
    wanted: Option<&(ClusterId, Vec<PoolView>)>,
) -> Result<Rest, String> {
    let mine = wanted.map(|(id, _)| id.to_string());
    let nodes = list(backing, NODES).await?;
    let (mut current, mut left) = (Vec::new(), Vec::new());
    for node in items(&nodes) {
        match node["metadata"]["annotations"][OURS].as_str() {
            None => {}
            Some(of) if Some(of) == mine.as_deref() => current.push(node),
            Some(_) => left.push(node),
        }
    }
    let mut rest = Rest::Settled;
    for node in left {
        rest = Rest::Moving;
        backing.ask(Method::DELETE, &path(name(node)), "", &Value::Null).await?;
    }
    let Some((id, pools)) = wanted else { return Ok(rest) };
    let pods = list(backing, DRIVER_PODS).await?;
    let mirror = mirror(&nodes, &current, &pods)?;
    for write in loops.nodes_elsewhere(&mirror, pools, sandbox.now(), &sandbox.shared.settings.scale) {
        rest = Rest::Moving;
        perform(backing, id, &mirror, write).await?;
    }
    Ok(rest)
}

/// What was read, in the shape that the rules read.
fn mirror(nodes: &Value, current: &[&Value], pods: &Value) -> Result<Cluster, String> {
    let revision = nodes["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    let meta = json!({ "revision": revision.unwrap_or(0_u64), "counter": 0 });
    let nodes = current.iter().map(|&node| (key(name(node)), node.clone()));
    let pods = items(pods).iter().map(|pod| {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        (Key::new("", "pods", namespace, name(pod)), pod.clone())
    });
    Cluster::restore(&meta, nodes.chain(pods))
}

/// Sends one write. A refusal is no end: the next round reads what is, and tries again.
async fn perform(backing: &Backing, id: &ClusterId, mirror: &Cluster, write: Write) -> Result<(), String> {
    let (method, path, media_type, body) = match write {
        Write::Create { manager, mut object } => {
            object["metadata"]["annotations"][OURS] = json!(id.to_string());
            (Method::POST, format!("{NODES}?fieldManager={manager}"), "application/json", object)
        }
        Write::Merge { manager, key, mut patch } => {
            // The list of taints is written whole, so not over somebody's write that we have not seen.
            let seen = mirror.get(&key).map(|node| &node["metadata"]["resourceVersion"]);
            patch["metadata"]["resourceVersion"] = seen.cloned().unwrap_or_default();
            (Method::PATCH, format!("{}?fieldManager={manager}", path(&key.name)), MERGE, patch)
        }
        Write::Status { manager, key, status } => {
            let path = format!("{}/status?fieldManager={manager}", path(&key.name));
            (Method::PATCH, path, MERGE, json!({ "status": status }))
        }
        Write::Delete { key, .. } => (Method::DELETE, path(&key.name), "", Value::Null),
        // Nothing of a node.
        Write::MergeWithStatus { .. } | Write::Bind { .. } => return Ok(()),
    };
    backing.ask(method, &path, media_type, &body).await.map(drop)
}

async fn list(backing: &Backing, path: &str) -> Result<Value, String> {
    match backing.ask(Method::GET, path, "", &Value::Null).await? {
        (StatusCode::OK, list) => Ok(list),
        (status, said) => Err(format!("{path}: {status} {}", said["message"])),
    }
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn key(name: &str) -> Key {
    Key::new("", "nodes", "", name)
}

fn path(name: &str) -> String {
    format!("{NODES}/{name}")
}
