//! The live state of a node pool and its nodes: their readiness, and what they offer.

use serde_json::{Value, json};

use super::billing::billed_node;
use crate::cost::Billed;
use crate::descriptions::range;
use crate::json::{count, number, text};
use crate::kind::{MissingQuery, Neighbor, Queries, QueryResults, own_object_query};
use crate::kubernetes::object::{gvk, is_ready, labelled};
use crate::scale::{ReplicaOwner, ScaleTarget};
use crate::scope::POOL_LABEL;
use crate::status::StatusLine;
use model::address::FieldPath;
use model::catalog;
use model::resource::{Await, Facts, Readiness, Resource};

pub(super) fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    if wait.until.is_ready() {
        let pool = wait.identity.pool().unwrap_or_default();
        let nodes = labelled(&gvk("", "v1", "Node", "nodes"), None, [(POOL_LABEL, pool)]);
        queries.neighbor(Neighbor::Nodes, nodes);
    }
    queries
}

/// Returns true for a live pool of node auto-provisioning, which GKE creates for Pods and deletes without them.
pub fn is_autoprovisioned(live: &Value) -> bool {
    live["autoscaling"]["autoprovisioned"] == true
}

/// Returns the readiness. A pool whose creation failed stays with the status ERROR, and one that could not grow is
/// RUNNING_WITH_ERROR.
pub(super) fn readiness(wait: &Await, found: &QueryResults) -> Result<Readiness, MissingQuery> {
    let (pool, nodes) = (found.own_object(), found.get(Neighbor::Nodes)?);
    Ok(match text(&pool["status"]) {
        "RUNNING" => {
            let per_node = &pool["config"]["accelerators"][0];
            let (desired, by_gke) = desired(wait);
            let gpus = if by_gke && !per_node.is_null() { 1 } else { 0 };
            nodes_ready(nodes, desired.unwrap_or(0), gpus)
        }
        // GKE goes on trying, and the operation that met the trouble has failed by itself.
        "RUNNING_WITH_ERROR" => {
            let why = conditions(pool);
            if lacks_machines(pool) {
                Readiness::Stalled(format!("some nodes are missing, GKE keeps trying{why}"))
            } else {
                Readiness::progressing(format!("some nodes are missing{why}"))
            }
        }
        "ERROR" => Readiness::Failed(format!("its status is ERROR{}", conditions(pool))),
        // A pool that goes by somebody else's hand is created again by the next apply.
        "STOPPING" => Readiness::progressing("it is being deleted"),
        "" => Readiness::progressing("not created yet"),
        status => Readiness::progressing(format!("its status is {status}")),
    })
}

/// Returns the number of nodes if the file sets it, and true if GKE installs their GPU driver.
fn desired(wait: &Await) -> (Option<u64>, bool) {
    if let Facts::Nodes { nodes, gpus } = wait.facts { (nodes, gpus) } else { (None, false) }
}

/// Returns true if a pool lacks machines or quota. Source: googleapis `cluster_service.proto`, `StatusCondition`.
pub fn lacks_machines(pool: &Value) -> bool {
    let short = |condition: &Value| matches!(text(&condition["code"]), "GCE_STOCKOUT" | "GCE_QUOTA_EXCEEDED");
    pool["conditions"].as_array().into_iter().flatten().any(short)
}

/// Returns ready once `desired` nodes are Ready, each with `gpus` allocatable GPUs.
fn nodes_ready(nodes: &Value, desired: u64, gpus: u64) -> Readiness {
    let list: Vec<&Value> = nodes["items"].as_array().into_iter().flatten().collect();
    let up = list.iter().filter(|node| is_ready(node)).count() as u64;
    if up < desired.max(list.len() as u64) {
        return Readiness::progressing(format!("{up} of {} nodes ready", desired.max(list.len() as u64)));
    }
    let equipped = list.iter().filter(|node| allocatable_gpus(node) >= gpus).count() as u64;
    if equipped < list.len() as u64 {
        return Readiness::progressing(format!("{equipped} of {} nodes with allocatable GPUs", list.len()));
    }
    Readiness::Ready
}

/// Returns the `status` line: the nodes, and the GPUs that pods can request on them.
pub(super) fn status_line(wait: &Await, found: &QueryResults) -> Result<StatusLine, MissingQuery> {
    let (pool, nodes) = (found.own_object(), found.get(Neighbor::Nodes)?);
    let list: Vec<&Value> = nodes["items"].as_array().into_iter().flatten().collect();
    let (made, up) = (list.len(), list.iter().filter(|node| is_ready(node)).count());
    let gpus: u64 = list.iter().map(|node| allocatable_gpus(node)).sum();
    let (desired, _) = desired(wait);
    let of = desired.map_or(made, |desired| usize::try_from(desired).unwrap_or(made).max(made));
    let has_gpus = !pool["config"]["accelerators"][0].is_null();
    let noun = if gpus == 1 { "GPU" } else { "GPUs" };
    let offer = if has_gpus { format!(", {gpus} {noun} allocatable") } else { String::new() };
    let status = text(&pool["status"]);
    let trouble = if matches!(status, "RUNNING" | "") { String::new() } else { format!("{status}: ") };
    Ok(StatusLine {
        line: format!("{trouble}{up} of {of} nodes ready{offer}"),
        facts: vec![
            ("status", pool["status"].clone()),
            ("machine_type", pool["config"]["machineType"].clone()),
            ("nodes_wanted", json!(desired)),
            ("nodes_made", json!(made)),
            ("nodes_ready", json!(up)),
            ("gpus_allocatable", json!(gpus)),
        ],
        billed: u32::try_from(made)
            .ok()
            .map(|made| Billed::Nodes(billed_node(pool), made))
            .into_iter()
            .collect(),
        ..StatusLine::default()
    })
}

/// Returns the `nvidia.com/gpu` that pods can request on a node.
pub fn allocatable_gpus(node: &Value) -> u64 {
    number(&node["status"]["allocatable"]["nvidia.com/gpu"]).unwrap_or_default()
}

/// Returns GKE's message about a cluster or pool with problems, as the end of a sentence; empty without a message.
pub fn conditions(live: &Value) -> String {
    let messages: Vec<&str> = live["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| text(&condition["message"]))
        .chain([text(&live["statusMessage"])])
        .filter(|message| !message.is_empty())
        .collect();
    match messages.first() {
        Some(message) => format!(": {message}"),
        None => String::new(),
    }
}

/// Returns `0–4 × a2-highgpu-1g with 1 × nvidia-tesla-a100, spot`.
pub fn about(resource: &Resource) -> Vec<String> {
    let body = &resource.body;
    let (config, scaled) = (&body["config"], &body["autoscaling"]);
    let nodes = match scaled["enabled"] == true {
        true if scaled["totalMaxNodeCount"].is_number() => {
            range(&scaled["totalMinNodeCount"], &scaled["totalMaxNodeCount"])
        }
        true => range(&scaled["minNodeCount"], &scaled["maxNodeCount"]),
        false => number(&body["nodeCount"])
            .or_else(|| number(&body["initialNodeCount"]))
            .map(|nodes| nodes.to_string()),
    };
    let spot = if config["spot"] == true { "spot" } else { "" };
    vec![machines(config, nodes), spot.to_owned()]
}

/// Returns `2 × a2-highgpu-1g with 1 × nvidia-tesla-a100`.
fn machines(config: &Value, nodes: Option<String>) -> String {
    let (gpu, count) = (&config["accelerators"][0]["acceleratorType"], gpu_count(config));
    let machine = text(&config["machineType"]);
    let mut said = nodes.map_or_else(|| machine.to_owned(), |nodes| format!("{nodes} × {machine}"));
    if count > 0 {
        said.push_str(&format!(" with {count} × {}", text(gpu)));
    }
    said
}

/// Summarizes a live pool; `nodes` is its number of nodes, if it is known.
pub fn summary(live: &Value, nodes: Option<u32>) -> String {
    let machines = machines(&live["config"], nodes.map(|nodes| nodes.to_string()));
    format!("{machines}, {}", text(&live["status"]))
}

fn gpu_count(config: &Value) -> u64 {
    number(&config["accelerators"][0]["acceleratorCount"]).unwrap_or_default()
}

/// Returns `nvidia.com/gpu` of a node of a live pool: partitions and clients multiply the GPUs.
pub fn live_gpus(live: &Value) -> u64 {
    let gpu = &live["config"]["accelerators"][0];
    let parts = catalog::accelerator(text(&gpu["acceleratorType"]))
        .and_then(|known| known.mig.get(text(&gpu["gpuPartitionSize"])).copied())
        .unwrap_or(1);
    let clients = number(&gpu["gpuSharingConfig"]["maxSharedClientsPerGpu"]).unwrap_or(1);
    gpu_count(&live["config"]) * u64::from(parts) * clients.max(1)
}

/// Returns how the number of its nodes is scaled.
pub(super) fn scaled(resource: &Resource, _: &[Resource]) -> Option<ScaleTarget> {
    let origin = resource.origin.key("nodes");
    let bounds = &resource.body["autoscaling"];
    let number = match resource.body["nodeCount"].as_u64() {
        Some(nodes) => ReplicaOwner::File(nodes),
        None => ReplicaOwner::Autoscaler {
            min: count(&bounds["totalMinNodeCount"]),
            max: count(&bounds["totalMaxNodeCount"]),
            whose: "GKE's autoscaler".to_owned(),
            origin: origin.clone(),
        },
    };
    Some(ScaleTarget { path: FieldPath::keys(["nodeCount"]), origin, unit: "nodes", replica_owner: number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Part;
    use model::resource::{KindId, Until};

    #[test]
    fn a_pool_without_machines_is_stalled() {
        let pool = |code: &str| {
            let identity = model::resource::Identity::Check(model::address::Address::new("x"));
            let facts = Facts::Nodes { nodes: Some(2), gpus: false };
            let wait = Await { kind: KindId::NodePool, identity, until: Until::Ready, facts, deadline: 1 };
            let conditions = json!([{ "code": code, "message": "zone z is full" }]);
            let live = json!({ "status": "RUNNING_WITH_ERROR", "conditions": conditions });
            let nodes = json!({ "items": [] });
            readiness(&wait, &QueryResults::of([(Part::Itself, &live)]).with(Neighbor::Nodes, &nodes))
                .unwrap()
        };
        for code in ["GCE_STOCKOUT", "GCE_QUOTA_EXCEEDED"] {
            assert_eq!(
                pool(code),
                Readiness::Stalled("some nodes are missing, GKE keeps trying: zone z is full".into()),
                "{code}"
            );
        }
        for code in ["", "UNKNOWN", "SET_BY_OPERATOR"] {
            assert_eq!(
                pool(code),
                Readiness::progressing("some nodes are missing: zone z is full"),
                "{code}"
            );
        }
    }

    #[test]
    fn nodes_count_when_they_are_ready_and_have_their_gpus() {
        let node = |ready: &str, gpus: &str| {
            json!({ "status": {
                "conditions": [{ "type": "Ready", "status": ready }], "allocatable": { "nvidia.com/gpu": gpus }
            } })
        };
        let list = |nodes: &[Value]| json!({ "items": nodes });
        let up = node("True", "2");
        assert_eq!(nodes_ready(&list(std::slice::from_ref(&up)), 1, 2), Readiness::Ready);
        assert_eq!(nodes_ready(&list(&[]), 0, 1), Readiness::Ready);
        let waits = |list: Value, desired, gpus, expect: &str| {
            assert_eq!(nodes_ready(&list, desired, gpus), Readiness::progressing(expect));
        };
        waits(list(&[]), 1, 0, "0 of 1 nodes ready");
        waits(list(&[node("False", "2")]), 1, 0, "0 of 1 nodes ready");
        waits(list(&[up, node("True", "0")]), 2, 1, "1 of 2 nodes with allocatable GPUs");
    }
}
