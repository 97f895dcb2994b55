//! The Node objects of the real API server follow GKE's node pools: they are created, relabeled and retainted, get their GPUs,
//! and are deleted, by the same rules as in a simulated cluster. The same holds for the cluster autoscaler: nodes for waiting
//! pods, ProvisioningRequests, and removal of idle nodes.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Backing;
use crate::error::SandboxError;
use crate::gke::ClusterId;
use crate::kube::object::{Key, is_finished};
use crate::kube::run::autoscaler::missing_nodes;
use crate::kube::run::idle::{Idle, Unneeded};
use crate::kube::run::market::Market;
use crate::kube::run::provisioning::requested_nodes;
use crate::kube::run::{Loops, PoolView, Write};
use crate::kube::store::Cluster;
use crate::state::Sandbox;

/// The interval at which the server is read while there is a cluster. Reading a few nodes on loopback is simpler than maintaining
/// two watches.
const LOOK: Duration = Duration::from_millis(250);
/// The annotation on the sandbox's nodes, with the cluster that they belong to. Nodes without it are left alone.
const OURS: &str = "sandbox.dask-infra.dev/cluster";
const NODES: &str = "/api/v1/nodes";
const DRIVER_PODS: &str = "/api/v1/pods?labelSelector=k8s-app%3Dnvidia-driver-installer";
const PODS: &str = "/api/v1/pods";
const TEMPLATES: &str = "/api/v1/podtemplates";
const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";
const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests";
const GROUP: &str = "autoscaling.x-k8s.io";
const MERGE: &str = "application/merge-patch+json";

/// Keeps the nodes as the pools define them, as long as the sandbox is served.
pub async fn keep(sandbox: Sandbox, backing: Arc<Backing>) -> Result<(), SandboxError> {
    let mut changes = sandbox.shared.changes.subscribe();
    let mut loops = (Loops::new(sandbox.shared.scripts.clone()), Idle::default());
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

/// The state of the nodes after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Settled,
    Moving,
}

/// Reads the nodes, and makes the changes that are due.
async fn round(
    sandbox: &Sandbox,
    backing: &Backing,
    (loops, idle): &mut (Loops, Idle),
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
    // A hand of nodes is looked at often; all pods only where somebody scales by them.
    let scales = pools.iter().any(|view| view.pool["autoscaling"]["enabled"] == true);
    let pods = list(backing, if scales { PODS } else { DRIVER_PODS }).await?;
    let (requests, templates) = if scales { requested(backing).await? } else { <(Value, Value)>::default() };
    let daemon_sets = if scales { list(backing, DAEMON_SETS).await? } else { Value::Null };
    let read = [
        ("", "pods", &pods),
        ("apps", "daemonsets", &daemon_sets),
        ("", "podtemplates", &templates),
        (GROUP, "provisioningrequests", &requests),
    ];
    let mirror = mirror(&nodes, &current, &read)?;
    let (now, clock) = (sandbox.now(), &sandbox.shared.settings.scale);
    for write in loops.nodes_elsewhere(&mirror, pools, now, clock) {
        rest = Rest::Moving;
        perform(backing, id, &mirror, write).await?;
    }
    if !scales {
        return Ok(rest);
    }
    let surplus = idle.surplus(&mirror, pools, now, clock);
    let unneeded = surplus.len();
    let gone = taken_down(backing, surplus, &pods).await?;
    if gone.len() < unneeded {
        rest = Rest::Moving;
    }
    let market = Market { rules: &sandbox.shared.scripts.capacity, now, clock };
    let mut more = missing_nodes(&mirror, pools, market);
    more.extend(requested_nodes(&mirror, pools));
    if !gone.is_empty() || !more.is_empty() {
        rest = Rest::Moving;
        let scaled = sandbox.change(|state, shared| {
            // The missing nodes were computed from sizes that may have changed since; the next round reads them again.
            let is_same =
                state.gke.clusters().any(|one| one.id == *id && state.gke.pool_views(one) == *pools);
            state.gke.take_away(id, &gone);
            if is_same {
                state.gke.scale_up(id, &more, now, &shared.settings);
            }
        });
        scaled.map_err(|error| error.to_string())?;
    }
    Ok(rest)
}

/// Returns the ProvisioningRequests and their pod templates; empty if the CustomResourceDefinition is missing.
async fn requested(backing: &Backing) -> Result<(Value, Value), String> {
    let requests = backing.ask(Method::GET, REQUESTS, "", &Value::Null).await?.1;
    let templates = if items(&requests).is_empty() { Value::Null } else { list(backing, TEMPLATES).await? };
    Ok((requests, templates))
}

/// Drains the given nodes, deletes those on which nothing runs any more, and returns the deleted ones.
async fn taken_down(
    backing: &Backing,
    surplus: Vec<Unneeded>,
    pods: &Value,
) -> Result<Vec<Unneeded>, String> {
    let mut gone = Vec::new();
    for unneeded in surplus {
        if drained(backing, &unneeded.node.name, pods).await? {
            backing.ask(Method::DELETE, &path(&unneeded.node.name), "", &Value::Null).await?;
            gone.push(unneeded);
        }
    }
    Ok(gone)
}

/// Deletes the pods on a node, except those of DaemonSets, and returns true once none is left. Normally the kubelet ends the pods
/// of a machine that shuts down, but here no kubelet may be running.
async fn drained(backing: &Backing, node: &str, pods: &Value) -> Result<bool, String> {
    let runs = |pod: &&Value| {
        let of_daemon_set = pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        pod["spec"]["nodeName"] == node && !of_daemon_set && !is_finished(pod)
    };
    let mut drained = true;
    for pod in items(pods).iter().filter(runs) {
        drained = false;
        if pod["metadata"]["deletionTimestamp"].is_null() {
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}", name(pod));
            backing.ask(Method::DELETE, &path, "", &Value::Null).await?;
        }
    }
    Ok(drained)
}

/// Returns the objects that were read as a [`Cluster`], which the rules read.
fn mirror(nodes: &Value, current: &[&Value], others: &[(&str, &str, &Value)]) -> Result<Cluster, String> {
    let revision = nodes["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    let meta = json!({ "revision": revision.unwrap_or(0_u64), "counter": 0 });
    let nodes = current.iter().map(|&node| (key(name(node)), node.clone()));
    let others = others.iter().flat_map(|(group, resource, list)| {
        items(list).iter().map(|object| {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            (Key::new(group, resource, namespace, name(object)), object.clone())
        })
    });
    Cluster::restore(&meta, nodes.chain(others))
}

/// Sends one write. If it is refused, the next round reads the state and tries again.
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
            let object = match key.resource.as_str() {
                "nodes" => path(&key.name),
                resource => {
                    let Key { group, namespace, name, .. } = &key;
                    format!("/apis/{group}/v1/namespaces/{namespace}/{resource}/{name}")
                }
            };
            let path = format!("{object}/status?fieldManager={manager}");
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
