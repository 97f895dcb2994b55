//! The cluster autoscaler, as far as bringing nodes goes: for pods that no node takes, the pool whose next node
//! would take them; of several such pools the one whose nodes cost least. Idle nodes are not taken away.
//! Source: GKE's page "About GKE cluster autoscaling": it simulates the scheduler on a node template of each pool,
//! and prefers the cheapest pool.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::object::{is_deleted, is_finished, label, list, text};
use super::super::store::Cluster;
use super::nodes::{self, node_object};
use super::round::PoolView;
use super::scheduler::Host;
use crate::catalog::{self, Capacity};

/// Nodes that pools with autoscaling lack, by pool.
pub fn missing_nodes(cluster: &Cluster, pools: &[PoolView]) -> BTreeMap<String, u32> {
    let mut missing = BTreeMap::new();
    if !pools.iter().any(is_scaled) {
        return missing;
    }
    let pods: Vec<&Value> = cluster.list("", "pods").map(|(_, pod)| pod).collect();
    let waiting: Vec<&Value> = pods.iter().copied().filter(|pod| is_unschedulable(pod)).collect();
    if waiting.is_empty() {
        return missing;
    }
    let live: Vec<&Value> = cluster.list("", "nodes").map(|(_, node)| node).collect();
    // What is coming up counts as what it will be.
    let mut nodes: Vec<Value> = live.iter().map(|node| as_it_will_be(node, pools)).collect();
    for view in pools {
        let there = live.iter().filter(|node| label(node, nodes::POOL_LABEL) == pool_name(view)).count();
        let on_their_way = size(view).saturating_sub(u32::try_from(there).unwrap_or(u32::MAX));
        nodes.extend((0..on_their_way).map(|_| template(view)));
    }
    let fixed = nodes.len();
    let mut owners = Vec::new();
    for view in pools.iter().filter(|view| is_scaled(view)) {
        let most = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        for _ in 0..room(view).min(most) {
            nodes.push(template(view));
            owners.push(view);
        }
    }
    let all: Vec<&Value> = nodes.iter().collect();
    let mut hosts = Host::all(&all, &pods);
    let mut opened = vec![false; owners.len()];
    for pod in waiting {
        let spec = &pod["spec"];
        let fits = |index: &usize| hosts[*index].filter(spec).is_ok();
        let is_open = |index: &usize| *index < fixed || opened[*index - fixed];
        if let Some(index) = (0..hosts.len()).filter(is_open).find(fits) {
            hosts[index].take(spec);
            continue;
        }
        let price = |index: &usize| price(owners[*index - fixed]);
        let new = (fixed..hosts.len()).filter(fits).min_by(|one, other| price(one).total_cmp(&price(other)));
        if let Some(index) = new {
            hosts[index].take(spec);
            opened[index - fixed] = true;
            *missing.entry(pool_name(owners[index - fixed]).to_owned()).or_default() += 1;
        }
    }
    missing
}

fn pool_name(view: &PoolView) -> &str {
    text(&view.pool, "/name")
}

fn is_scaled(view: &PoolView) -> bool {
    view.pool["autoscaling"]["enabled"] == true && !view.deleting
}

fn is_unschedulable(pod: &Value) -> bool {
    let said = list(pod, "/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable");
    // A DaemonSet's pod is for a node that is there.
    let of_daemon_set =
        list(pod, "/metadata/ownerReferences").iter().any(|owner| owner["kind"] == "DaemonSet");
    said && text(pod, "/spec/nodeName").is_empty() && !of_daemon_set && !is_deleted(pod) && !is_finished(pod)
}

fn size(view: &PoolView) -> u32 {
    view.target_sizes.values().sum()
}

/// Nodes that the pool's limits still allow: those of all zones together, or of each.
fn room(view: &PoolView) -> u32 {
    let limit =
        |key: &str| view.pool["autoscaling"][key].as_u64().and_then(|limit| u32::try_from(limit).ok());
    let zones = u32::try_from(view.target_sizes.len()).unwrap_or(1);
    let most = limit("totalMaxNodeCount").or_else(|| limit("maxNodeCount").map(|each| each * zones));
    most.unwrap_or(0).saturating_sub(size(view))
}

/// A node of the pool as it is when all of its agents have reported.
fn template(view: &PoolView) -> Value {
    let zone = view.target_sizes.keys().next().map_or("", String::as_str);
    let mut node = node_object(view, zone, &format!("template-{}", pool_name(view)));
    finish(&mut node, view);
    node
}

fn as_it_will_be(node: &Value, pools: &[PoolView]) -> Value {
    let mut node = node.clone();
    if let Some(view) = pools.iter().find(|view| pool_name(view) == label(&node, nodes::POOL_LABEL)) {
        finish(&mut node, view);
    }
    node
}

fn finish(node: &mut Value, view: &PoolView) {
    if let Some(Value::Array(taints)) = node.pointer_mut("/spec/taints") {
        taints.retain(|taint| taint["key"] != nodes::NOT_READY);
    }
    let gpus = nodes::gpus(&view.pool["config"]);
    if gpus > 0 {
        node["status"]["allocatable"]["nvidia.com/gpu"] = json!(gpus.to_string());
    }
}

/// What a node costs; what is not known costs most.
fn price(view: &PoolView) -> f64 {
    let config = &view.pool["config"];
    let accelerator = list(config, "/accelerators").first();
    let kind = accelerator.map(|accelerator| text(accelerator, "/acceleratorType"));
    let count = accelerator.map_or(0, |accelerator| {
        let count = &accelerator["acceleratorCount"];
        let count = count.as_u64().or_else(|| count.as_str()?.parse().ok());
        count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
    });
    let capacity = if config["spot"] == true { Capacity::Spot } else { Capacity::OnDemand };
    catalog::hourly_price(text(config, "/machineType"), kind, count, capacity).unwrap_or(f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{World, gpu, pool};
    use super::*;

    fn scaled(name: &str, machine: &str, config: Value) -> PoolView {
        let mut view = pool(name, machine, 0, config);
        view.pool["autoscaling"] = json!({ "enabled": true, "totalMaxNodeCount": 2 });
        view
    }

    #[test]
    fn pods_that_wait_bring_nodes_of_the_cheapest_pool_that_takes_them() {
        let t4 = scaled("t4", "n1-standard-2", gpu("nvidia-tesla-t4", "1", "DEFAULT"));
        let a100 = scaled("a100", "a2-highgpu-2g", gpu("nvidia-tesla-a100", "2", "DEFAULT"));
        let mut world = World::new(vec![pool("cpu", "e2-standard-2", 1, json!({})), a100, t4]);
        world.pass(300);
        assert_eq!(missing_nodes(&world.cluster, &world.pools), BTreeMap::new());
        for name in ["a", "b", "c", "d", "e"] {
            let container =
                json!({ "name": "a", "image": "x", "resources": { "limits": { "nvidia.com/gpu": "1" } } });
            world.create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
                "spec": { "containers": [container] },
            }));
        }
        world.pass(1);
        let expect = BTreeMap::from([("t4".to_owned(), 2), ("a100".to_owned(), 2)]);
        assert_eq!(missing_nodes(&world.cluster, &world.pools), expect, "two of one GPU, then two of two");
        for place in [1, 2] {
            world.pools[place].target_sizes.insert("us-central1-c".to_owned(), 2);
        }
        assert_eq!(missing_nodes(&world.cluster, &world.pools), BTreeMap::new(), "those on their way count");
        world.pass(600);
        let bound =
            world.pods("default").iter().filter(|pod| !text(pod, "/spec/nodeName").is_empty()).count();
        assert_eq!((bound, missing_nodes(&world.cluster, &world.pools)), (5, BTreeMap::new()));
    }
}
