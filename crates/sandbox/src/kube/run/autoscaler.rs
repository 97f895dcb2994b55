//! The cluster autoscaler, as far as bringing nodes goes: for pods that no node takes, the pool whose next node
//! would take them; of several such pools the one whose nodes cost least. Which nodes go is in `idle.rs`.
//! Source: GKE's page "About GKE cluster autoscaling": it simulates the scheduler on a node template of each pool,
//! and prefers the cheapest pool.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::object::{is_deleted, is_finished, label, list, text};
use super::super::store::Cluster;
use super::events::{Level, emit};
use super::market::Market;
use super::nodes::{self, node_object};
use super::round::{PoolView, Run};
use super::scheduler::{Hosts, Surroundings, asks, surroundings, surroundings_of};
use model::catalog::{self, PriceModel};
use model::prices::Prices;

/// Nodes to be added, by pool, and by zone where it matters in which.
pub type More = BTreeMap<(String, Option<String>), u32>;

/// Nodes that pools with autoscaling lack.
pub fn missing_nodes(cluster: &Cluster, pools: &[PoolView], market: Market<'_>) -> More {
    let mut missing = More::new();
    if !pools.iter().any(is_scaled) {
        return missing;
    }
    let pods: Vec<&Value> = cluster.list("", "pods").map(|(_, pod)| pod).collect();
    let waiting: Vec<&Value> = pods.iter().copied().filter(|pod| is_unschedulable(pod)).collect();
    if waiting.is_empty() {
        return missing;
    }
    let live: Vec<&Value> = cluster.list("", "nodes").map(|(_, node)| node).collect();
    // Nodes that are starting count with their final size and labels.
    let mut nodes: Vec<Value> = live.iter().map(|node| as_it_will_be(node, pools)).collect();
    for view in pools {
        let there = live.iter().filter(|node| label(node, nodes::POOL_LABEL) == pool_name(view)).count();
        let on_their_way = size(view).saturating_sub(u32::try_from(there).unwrap_or(u32::MAX));
        nodes.extend((0..on_their_way).map(|_| template(view)));
    }
    let fixed = nodes.len();
    let around = surroundings_of(cluster, pools);
    let mut owners = Vec::new();
    for view in pools.iter().filter(|view| is_scaled(view)) {
        let mut left = free_nodes(view).min(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
        if !market.knows(view) {
            nodes.extend((0..left).map(|_| template(view)));
            owners.extend((0..left).map(|_| (view, None)));
            continue;
        }
        for zone in view.target_sizes.keys() {
            let node = template_in(view, zone);
            let Some(asked) = asked(&node, &waiting, &around) else { continue };
            let here = market.free(pools, view, zone, asked).most(left);
            left -= here;
            nodes.extend((0..here).map(|_| node.clone()));
            owners.extend((0..here).map(|_| (view, Some(zone))));
        }
    }
    let all: Vec<&Value> = nodes.iter().collect();
    let mut hosts = Hosts::new(&all, &pods, around);
    hosts.take_daemon_pods(live.len()..all.len());
    let mut opened = vec![false; owners.len()];
    for pod in waiting {
        let (asked, spec) = (asks(pod), &pod["spec"]);
        let is_open = |index: &usize| *index < fixed || opened[*index - fixed];
        if let Some(index) = hosts.first(&asked, (0..hosts.len()).filter(is_open)) {
            hosts.take(index, &asked, spec);
            continue;
        }
        let price = |index: &usize| price(owners[*index - fixed].0);
        let new =
            hosts.taking(&asked, fixed..hosts.len()).min_by(|one, other| price(one).total_cmp(&price(other)));
        if let Some(index) = new {
            hosts.take(index, &asked, spec);
            opened[index - fixed] = true;
            let (view, zone) = owners[index - fixed];
            *missing.entry((pool_name(view).to_owned(), zone.cloned())).or_default() += 1;
        }
    }
    missing
}

/// One round: writes an event about each pod that waits for a node. Source: cluster-autoscaler,
/// `processors/status/eventing_scale_up_processor.go`; GKE adds `FailedScaleUp`, as in
/// <https://github.com/huggingface/Google-Cloud-Containers/issues/126>.
pub(super) fn run(run: &mut Run<'_>) {
    // Where GKE makes pools, it has others to choose from.
    if run.makes_pools || !run.pools.iter().any(is_scaled) {
        return;
    }
    let pods = run.objects("", "pods");
    let waiting: Vec<&Value> = pods.iter().copied().filter(|pod| is_unschedulable(pod)).collect();
    if waiting.is_empty() {
        return;
    }
    let coming: Vec<Value> =
        run.objects("", "nodes").into_iter().map(|node| as_it_will_be(node, run.pools)).collect();
    let scaled: Vec<&PoolView> = run.pools.iter().filter(|view| is_scaled(view)).collect();
    let templates: Vec<Value> = scaled.iter().map(|view| template(view)).collect();
    let around = surroundings(|group, resource| run.objects(group, resource), run.pools);
    let there = Hosts::new(&coming.iter().collect::<Vec<_>>(), &pods, around.clone());
    let new = Hosts::of_new(&templates.iter().collect::<Vec<_>>(), around);
    let mut events = Vec::new();
    for pod in waiting {
        let asked = asks(pod);
        if there.first(&asked, 0..there.len()).is_some() {
            continue;
        }
        let refusals = scaled.iter().enumerate().map(|(index, view)| (*view, new.words(&asked, index)));
        let refusals: Vec<(&PoolView, Vec<String>)> = refusals.collect();
        if let Some(event) = ScaleUp::of(&refusals, &coming) {
            events.push((pod, event));
        }
    }
    let known = run.objects("", "events");
    for (pod, ScaleUp { level, reason, message }) in events {
        let is_it = |event: &&&Value| event["involvedObject"]["uid"] == pod["metadata"]["uid"];
        let of_scaling = |event: &&&Value| event["source"]["component"] == COMPONENT;
        let newest =
            known.iter().filter(is_it).filter(of_scaling).max_by_key(|event| text(event, "/lastTimestamp"));
        let same = |event: &&Value| event["reason"] == reason && event["message"] == message.as_str();
        if !newest.is_some_and(same) {
            emit(run, pod, level, reason, COMPONENT, &message);
        }
    }
}

/// The component that reports events of the autoscaler.
const COMPONENT: &str = "cluster-autoscaler";
/// The reason of an event about a pod that brings no node.
const NOT_SCALED: &str = "NotTriggerScaleUp";

/// An event of the autoscaler about a pod.
struct ScaleUp {
    level: Level,
    reason: &'static str,
    message: String,
}

impl ScaleUp {
    /// Returns the event about a pod. `pools` are the scaled pools with what a new node of each lacks for the pod, `coming` the
    /// nodes that exist. `None` before the pools have changed.
    fn of(pools: &[(&PoolView, Vec<String>)], coming: &[Value]) -> Option<Self> {
        let takes = |(_, words): &&(&PoolView, Vec<String>)| words.is_empty();
        let fitting = || pools.iter().filter(takes).map(|(view, _)| *view);
        if let Some(view) = fitting().find(|view| view.scale_up_error.is_none() && is_growing(view)) {
            return Some(Self { level: Level::Normal, reason: "TriggeredScaleUp", message: growth(view) });
        }
        if let Some((view, error)) = fitting().find_map(|view| Some((view, view.scale_up_error?))) {
            let zones: Vec<&str> = view.wanted_sizes.keys().map(String::as_str).collect();
            let message = format!(
                "Node scale up in zones {} associated with this pod failed: {error}. Pod is at risk of not being scheduled.",
                zones.join(", ")
            );
            return Some(Self { level: Level::Warning, reason: "FailedScaleUp", message });
        }
        if fitting().any(|view| free_nodes(view) > 0 || is_starting(view, coming)) {
            return None;
        }
        let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
        for (view, words) in pools {
            let full = || vec!["max node group size reached".to_owned()];
            let refused = if free_nodes(view) == 0 { full() } else { words.clone() };
            refused.into_iter().for_each(|reason| *reasons.entry(reason).or_default() += 1);
        }
        let reasons: Vec<String> =
            reasons.iter().map(|(reason, pools)| format!("{pools} {reason}")).collect();
        let message = format!("pod didn't trigger scale-up: {}", reasons.join(", "));
        Some(Self { level: Level::Normal, reason: NOT_SCALED, message })
    }
}

/// Returns true while machines of the pool are on their way.
fn is_growing(view: &PoolView) -> bool {
    view.wanted_sizes.values().sum::<u32>() > size(view)
}

/// Returns true while machines of the pool become nodes.
fn is_starting(view: &PoolView, nodes: &[Value]) -> bool {
    let nodes = nodes.iter().filter(|node| label(node, nodes::POOL_LABEL) == pool_name(view)).count();
    nodes < usize::try_from(size(view)).unwrap_or_default()
}

/// `pod triggered scale-up: [{https://…/instanceGroups/gke-c-gpu-1a2b3c4d-grp 0->1 (max: 4)}]`.
fn growth(view: &PoolView) -> String {
    let most = size(view) + free_nodes(view);
    let link = text(&view.pool, "/selfLink");
    let project = link.split("/projects/").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let groups = view.wanted_sizes.iter().filter_map(|(zone, wanted)| {
        let now = view.target_sizes.get(zone).copied().unwrap_or_default();
        let group = format!(
            "https://www.googleapis.com/compute/v1/projects/{project}/zones/{zone}/instanceGroups/{}-grp",
            view.instance_prefix
        );
        (*wanted > now).then(|| format!("{{{group} {now}->{wanted} (max: {most})}}"))
    });
    format!("pod triggered scale-up: [{}]", groups.collect::<Vec<_>>().join(" "))
}

/// Since when a pod has waited for such a node.
fn asked(node: &Value, waiting: &[&Value], around: &Surroundings) -> Option<Timestamp> {
    let host = Hosts::of_new(&[node], around.clone());
    let fitting = waiting.iter().filter(|pod| host.first(&asks(pod), [0]).is_some());
    fitting.filter_map(|pod| text(pod, "/metadata/creationTimestamp").parse().ok()).min()
}

pub(super) fn pool_name(view: &PoolView) -> &str {
    text(&view.pool, "/name")
}

fn is_scaled(view: &PoolView) -> bool {
    // Nodes of queued pools are for requests.
    view.pool["autoscaling"]["enabled"] == true && !view.deleting && !is_queued(view)
}

/// Returns true if the nodes of the pool are created for requests only.
pub(super) fn is_queued(view: &PoolView) -> bool {
    view.pool["queuedProvisioning"]["enabled"] == true
}

pub(super) fn is_unschedulable(pod: &Value) -> bool {
    let said = list(pod, "/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable");
    // A DaemonSet's pod is for a node that is there.
    let of_daemon_set =
        list(pod, "/metadata/ownerReferences").iter().any(|owner| owner["kind"] == "DaemonSet");
    said && text(pod, "/spec/nodeName").is_empty() && !of_daemon_set && !is_deleted(pod) && !is_finished(pod)
}

pub(super) fn size(view: &PoolView) -> u32 {
    view.target_sizes.values().sum()
}

/// Nodes that the pool's limits still allow: those of all zones together, or of each.
pub(super) fn free_nodes(view: &PoolView) -> u32 {
    let limit =
        |key: &str| view.pool["autoscaling"][key].as_u64().and_then(|limit| u32::try_from(limit).ok());
    let zones = u32::try_from(view.target_sizes.len()).unwrap_or(1);
    let most = limit("totalMaxNodeCount").or_else(|| limit("maxNodeCount").map(|each| each * zones));
    most.unwrap_or(0).saturating_sub(size(view))
}

/// A node of the pool as it is when all of its agents have reported.
pub(super) fn template(view: &PoolView) -> Value {
    template_in(view, view.target_sizes.keys().next().map_or("", String::as_str))
}

/// Returns a node of the pool in a zone, as it is when all of its agents have reported.
pub(super) fn template_in(view: &PoolView, zone: &str) -> Value {
    let mut node = node_object(view, zone, &format!("template-{}", pool_name(view)));
    finish(&mut node, view);
    node
}

pub(super) fn as_it_will_be(node: &Value, pools: &[PoolView]) -> Value {
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
    let gpus = nodes::gpus(&view.pool);
    if gpus > 0 {
        node["status"]["allocatable"]["nvidia.com/gpu"] = json!(gpus.to_string());
    }
}

/// Returns the hourly price of a node by the list of its region, else of the one where most is known; an unknown price counts as the
/// highest.
fn price(view: &PoolView) -> f64 {
    let config = &view.pool["config"];
    let accelerator = list(config, "/accelerators").first();
    let kind = accelerator.map(|accelerator| text(accelerator, "/acceleratorType"));
    let count = accelerator.map_or(0, |accelerator| {
        let count = &accelerator["acceleratorCount"];
        let count = count.as_u64().or_else(|| count.as_str()?.parse().ok());
        count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
    });
    let capacity = if config["spot"] == true { PriceModel::Spot } else { PriceModel::OnDemand };
    let machine = text(config, "/machineType");
    let comes_with = catalog::machine(machine).is_some_and(|machine| machine.accelerator.is_some());
    let attached = kind.filter(|_| count > 0 && !comes_with);
    let in_region = |region: &str| {
        let host = Prices::list().machine(machine, region, capacity)?;
        let Some(kind) = attached else { return Some(host) };
        Some(host + Prices::list().gpu(kind, region, capacity)? * f64::from(count))
    };
    let region = view.target_sizes.keys().next().and_then(|zone| catalog::region_of(zone));
    region.and_then(in_region).or_else(|| in_region("us-central1")).unwrap_or(f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::capacity::{Capacity, Start};
    use super::super::testing::{World, gpu, pool};
    use super::*;
    use crate::clock::Scale;
    use fit::gke::pool::Features;

    const REAL: Scale = Scale { time_scale: 1.0 };

    /// Returns the number of missing nodes, keyed by `POOL in ZONE`.
    fn missing(world: &World, rules: &[Capacity]) -> BTreeMap<String, u32> {
        let market = Market { rules, now: world.now, clock: &REAL };
        let all = missing_nodes(&world.cluster, &world.pools, market).into_iter();
        let told = |(pool, zone): (String, Option<String>)| match zone {
            Some(zone) => format!("{pool} in {zone}"),
            None => pool,
        };
        all.map(|(place, count)| (told(place), count)).collect()
    }

    fn wait(world: &mut World, name: &str) {
        let container =
            json!({ "name": "a", "image": "x", "resources": { "limits": { "nvidia.com/gpu": "1" } } });
        world.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": { "containers": [container] },
        }));
    }

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
        assert_eq!(missing(&world, &[]), BTreeMap::new());
        for name in ["a", "b", "c", "d", "e"] {
            wait(&mut world, name);
        }
        world.pass(1);
        let expect = BTreeMap::from([("t4".to_owned(), 2), ("a100".to_owned(), 2)]);
        assert_eq!(missing(&world, &[]), expect, "two of one GPU, then two of two");
        for place in [1, 2] {
            world.pools[place].target_sizes.insert("us-central1-c".to_owned(), 2);
        }
        assert_eq!(missing(&world, &[]), BTreeMap::new(), "those on their way count");
        world.pass(600);
        let bound =
            world.pods("default").iter().filter(|pod| !text(pod, "/spec/nodeName").is_empty()).count();
        assert_eq!((bound, missing(&world, &[])), (5, BTreeMap::new()));
    }

    #[test]
    fn pods_on_every_node_leave_less_of_a_new_one() {
        let mut scaled = scaled("big", "e2-standard-4", json!({}));
        let asks =
            |cpu: &str| json!([{ "name": "a", "image": "x", "resources": { "requests": { "cpu": cpu } } }]);
        let mut has = |features: Features, daemon: Option<&str>| {
            scaled.features = features;
            // GKE's own pods have a pool.
            let mut world = World::new(vec![pool("cpu", "e2-standard-2", 1, json!({})), scaled.clone()]);
            world.pools[0].features = features;
            world.pass(300);
            if let Some(cpu) = daemon {
                let template =
                    json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": asks(cpu) } });
                world.create(json!({
                    "apiVersion": "apps/v1", "kind": "DaemonSet",
                    "metadata": { "name": "agent", "namespace": "default" },
                    "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template },
                }));
            }
            world.create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "default" },
                "spec": { "containers": asks("3500m") },
            }));
            world.pass(1);
            missing(&world, &[]).contains_key("big")
        };
        let identity = Features::default();
        assert!(has(identity, None));
        assert!(!has(identity, Some("200m")), "the DaemonSet takes what the Pod needs");
        let plain = Features { workload_identity: false, ..identity };
        assert!(has(plain, Some("100m")) && !has(identity, Some("100m")), "GKE's metadata server takes 100m");
    }

    #[test]
    fn pods_that_bring_no_node_are_told_why() {
        let mut config = gpu("nvidia-tesla-t4", "1", "DEFAULT");
        config["taints"] = json!([{ "key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE" }]);
        let cpu = pool("cpu", "e2-standard-2", 1, json!({}));
        let mut world = World::new(vec![cpu, scaled("t4", "n1-standard-2", config)]);
        world.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "plain", "namespace": "default" },
            "spec": { "containers": [{ "name": "a", "image": "x" }], "nodeSelector": { (nodes::POOL_LABEL): "t4" } },
        }));
        world.pass(30);
        let events = world.all("", "events");
        let told: Vec<(&str, &str, u64)> = events
            .iter()
            .filter(|event| event["reason"] == NOT_SCALED)
            .map(|event| {
                let count = event["count"].as_u64().unwrap_or_default();
                (text(event, "/involvedObject/name"), text(event, "/message"), count)
            })
            .collect();
        let taint = "pod didn't trigger scale-up: 1 node(s) had untolerated taint(s)";
        assert_eq!(told, [("plain", taint, 1)]);
    }

    #[test]
    fn flex_start_nodes_come_where_and_when_there_are_machines() {
        let mut view = scaled("t4", "n1-standard-2", gpu("nvidia-tesla-t4", "1", "DEFAULT"));
        view.pool["config"]["flexStart"] = json!(true);
        let zones = ["us-central1-a", "us-central1-b"];
        view.target_sizes = zones.map(|zone| (zone.to_owned(), 0)).into();
        let mut world = World::new(vec![pool("cpu", "e2-standard-2", 1, json!({})), view]);
        for name in ["a", "b", "c"] {
            wait(&mut world, name);
        }
        world.pass(10);
        let in_b = Capacity { zone: Some("us-central1-b".to_owned()), ..Capacity::default() };
        let later = Capacity { from: Start::After(600), lasts: Some(600), nodes: Some(1), ..in_b.clone() };
        let there = |count| BTreeMap::from([("t4 in us-central1-b".to_owned(), count)]);
        assert_eq!(missing(&world, &[]), BTreeMap::from([("t4".to_owned(), 2)]), "the pool has no more");
        assert_eq!(missing(&world, &[in_b]), there(2));
        let later = [later];
        assert_eq!(missing(&world, &later), BTreeMap::new());
        world.pass(600);
        assert_eq!(missing(&world, &later), there(1));
        world.pass(600);
        assert_eq!(missing(&world, &later), BTreeMap::new());
    }
}
