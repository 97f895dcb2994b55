//! Nodes that nobody needs, which GKE takes away: those on which nothing has run for long, and those whose time is over.
//! Source: GKE's pages "About GKE cluster autoscaling", "About flex-start" and the guide to the dynamic workload scheduler.
//! Not imitated: moving pods away from nodes that are little used.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::super::object::{
    Key, annotation, is_deleted, is_finished, is_true, label, list, name, namespace, text, uid,
};
use super::super::store::Cluster;
use super::autoscaler::{as_it_will_be, is_queued, pool_name, size};
use super::claim::{ENDS, GROUP, LONGEST, OWNER, RESOURCE, consumes};
use super::market;
use super::nodes::{POOL_LABEL, zone_of};
use super::provisioning::{coming_to, is_coming, pods_of};
use super::round::PoolView;
use super::scheduler::{Hosts, asks, surroundings_of};
use crate::clock::Scale;

/// A node on which nothing runs stays for so many seconds of the service. Source: the cluster autoscaler's default.
const IDLE_SECONDS: f64 = 600.0;

/// A node that nobody needs.
#[derive(Debug, PartialEq)]
pub struct Unneeded {
    pub node: Key,
    pub pool: String,
    pub zone: String,
}

impl Unneeded {
    fn of(node: &Value) -> Self {
        Self {
            node: Key::new("", "nodes", "", name(node)),
            pool: label(node, POOL_LABEL).to_owned(),
            zone: zone_of(node).to_owned(),
        }
    }
}

/// Since when nodes have been idle, by name. In memory only: after a restart of the sandbox the time begins again.
#[derive(Debug, Default)]
pub struct Idle(BTreeMap<String, Timestamp>);

impl Idle {
    /// Returns the nodes that have been idle for long.
    pub(super) fn long(&mut self, idle: &[&Value], now: Timestamp, clock: &Scale) -> Vec<Unneeded> {
        self.0.retain(|known, _| idle.iter().any(|node| name(node) == known));
        let mut unneeded = Vec::new();
        for node in idle {
            let since = *self.0.entry(name(node).to_owned()).or_insert(now);
            if clock.after(since, IDLE_SECONDS) <= now {
                unneeded.push(Unneeded::of(node));
            }
        }
        unneeded
    }

    /// The nodes of autoscaled pools that go now.
    pub fn surplus(
        &mut self,
        cluster: &Cluster,
        pools: &[PoolView],
        now: Timestamp,
        clock: &Scale,
    ) -> Vec<Unneeded> {
        let scaled = |view: &&PoolView| view.pool["autoscaling"]["enabled"] == true && !view.deleting;
        if !pools.iter().any(|view| scaled(&view)) {
            self.0.clear();
            return Vec::new();
        }
        let requests: Vec<&Value> = cluster.list(GROUP, RESOURCE).map(|(_, request)| request).collect();
        let pods: Vec<&Value> = cluster.list("", "pods").map(|(_, pod)| pod).collect();
        let came = |request: &Value| {
            let bound = pods.iter().filter(|pod| {
                let takes = consumes(pod) == Some(name(request)) && namespace(pod) == namespace(request);
                takes && !text(pod, "/spec/nodeName").is_empty()
            });
            u64::try_from(bound.count()).unwrap_or(u64::MAX) >= pods_of(request)
        };
        let coming: Vec<&Value> = requests.iter().copied().filter(|request| is_coming(request)).collect();
        let mut awaited: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        let needed: BTreeSet<String> = pods.iter().filter_map(|pod| holds(pod)).collect();
        let (mut over, mut idle) = (Vec::new(), Vec::new());
        for (_, node) in cluster.list("", "nodes") {
            let pool = pools.iter().filter(scaled).find(|view| pool_name(view) == label(node, POOL_LABEL));
            let Some(view) = pool else { continue };
            let of_request = annotation(node, OWNER)
                .and_then(|owner| requests.iter().find(|request| uid(request) == owner));
            let revoked = of_request.is_some_and(|request| is_true(request, "CapacityRevoked"));
            if revoked || end(view, node, clock).is_some_and(|end| end <= now) {
                over.push(Unneeded::of(node));
                continue;
            }
            let kept = match annotation(node, OWNER) {
                // For pods that have not come yet.
                Some(_) => {
                    of_request.is_some_and(|request| !is_true(request, "BookingExpired") && !came(request))
                }
                // For a request, which takes its nodes when all of them are there.
                None => {
                    let place = (pool_name(view), zone_of(node));
                    let left =
                        awaited.entry(place).or_insert_with(|| coming_to(&coming, view, Some(place.1)));
                    let is_awaited = *left > 0;
                    *left = left.saturating_sub(1);
                    is_awaited
                }
            };
            if !kept && !needed.contains(name(node)) {
                idle.push(node);
            }
        }
        wanted(&mut idle, &pods, pools, cluster);
        for unneeded in self.long(&idle, now, clock) {
            let view = pools.iter().find(|view| pool_name(view) == unneeded.pool);
            let gone = over.iter().filter(|other| other.pool == unneeded.pool).count();
            let left = view.map_or(0, size).saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
            if view.is_some_and(|view| left > least(view)) {
                over.push(unneeded);
            }
        }
        over
    }
}

/// Leaves out nodes that pods wait for: whoever binds them may be slower than the clock here. A pod behind a gate waits for whoever
/// opens it, and the cluster autoscaler does not count it. Source: `Pod Scheduling Readiness` of Kubernetes.
fn wanted(idle: &mut Vec<&Value>, pods: &[&Value], pools: &[PoolView], cluster: &Cluster) {
    let waiting = |pod: &&&Value| {
        let is_free = text(pod, "/spec/nodeName").is_empty() && list(pod, "/spec/schedulingGates").is_empty();
        is_free && !is_deleted(pod) && !is_finished(pod)
    };
    let waiting: Vec<&&Value> = pods.iter().filter(waiting).collect();
    if idle.is_empty() || waiting.is_empty() {
        return;
    }
    let nodes: Vec<Value> = idle.iter().map(|node| as_it_will_be(node, pools)).collect();
    let all: Vec<&Value> = nodes.iter().collect();
    let mut hosts = Hosts::new(&all, &[], surroundings_of(cluster, pools));
    let mut taken = BTreeSet::new();
    for pod in waiting {
        let asked = asks(pod);
        if let Some(index) = hosts.first(&asked, 0..hosts.len()) {
            hosts.take(index, &asked, &pod["spec"]);
            taken.insert(name(&nodes[index]));
        }
    }
    idle.retain(|node| !taken.contains(name(node)));
}

/// How many nodes a pool keeps: of all zones together, or of each.
fn least(view: &PoolView) -> u32 {
    let limit =
        |key: &str| view.pool["autoscaling"][key].as_u64().and_then(|limit| u32::try_from(limit).ok());
    let zones = u32::try_from(view.target_sizes.len()).unwrap_or(1);
    limit("totalMinNodeCount").or_else(|| limit("minNodeCount").map(|each| each * zones)).unwrap_or(0)
}

/// When a node goes whatever runs on it.
fn end(view: &PoolView, node: &Value, clock: &Scale) -> Option<Timestamp> {
    if let Some(end) = annotation(node, ENDS) {
        return end.parse().ok();
    }
    // Nodes of queued pools have their time from their request.
    if view.pool["config"]["flexStart"] != true || is_queued(view) {
        return None;
    }
    let made: Timestamp = text(node, "/metadata/creationTimestamp").parse().ok()?;
    let told = text(&view.pool, "/config/maxRunDuration").trim_end_matches('s').parse().ok();
    Some(clock.after(made, market::of(told.unwrap_or(LONGEST))))
}

/// The node that a pod holds: those of DaemonSets are there because the node is.
pub(super) fn holds(pod: &Value) -> Option<String> {
    let node = text(pod, "/spec/nodeName");
    let of_daemon_set =
        list(pod, "/metadata/ownerReferences").iter().any(|owner| owner["kind"] == "DaemonSet");
    (!node.is_empty() && !of_daemon_set && !is_finished(pod)).then(|| node.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{World, gpu, pool};
    use super::*;
    use serde_json::json;

    const REAL: Scale = Scale { time_scale: 1.0 };

    fn surplus(world: &World, idle: &mut Idle) -> Vec<String> {
        let gone = idle.surplus(&world.cluster, &world.pools, world.now, &REAL);
        gone.into_iter().map(|unneeded| unneeded.pool).collect()
    }

    #[test]
    fn idle_nodes_of_autoscaled_pools_go_down_to_their_minimum() {
        for (key, least, expect) in
            [("totalMinNodeCount", 0, 3), ("totalMinNodeCount", 2, 1), ("minNodeCount", 1, 2)]
        {
            let mut more = pool("more", "e2-standard-4", 3, json!({}));
            more.pool["autoscaling"] = json!({ "enabled": true, key: least, "totalMaxNodeCount": 9 });
            let mut world = World::new(vec![pool("cpu", "e2-standard-4", 2, json!({})), more]);
            world.pass(300);
            let held =
                world.pods("kube-system").iter().filter_map(holds).next().expect("a pod of the system");
            let mut idle = Idle::default();
            assert_eq!(surplus(&world, &mut idle), [""; 0]);
            world.pass(599);
            assert_eq!(surplus(&world, &mut idle), [""; 0]);
            world.pass(1);
            let of_system = usize::from(held.contains("-more-"));
            let gone = surplus(&world, &mut idle);
            assert_eq!(gone, vec!["more"; expect.min(3 - of_system)], "{key} = {least}");
        }
    }

    #[test]
    fn pods_wait_for_idle_nodes_unless_a_gate_holds_them_back() {
        for (gates, expect) in [(json!([]), 0), (json!([{ "name": "kueue.x-k8s.io/admission" }]), 1)] {
            let mut more = pool("more", "e2-standard-4", 1, json!({}));
            more.pool["autoscaling"] = json!({ "enabled": true, "totalMaxNodeCount": 9 });
            let mut world = World::new(vec![pool("cpu", "e2-standard-4", 1, json!({})), more]);
            world.pass(300);
            for pod in world.pods("kube-system") {
                if holds(&pod).is_some_and(|node| node.contains("-more-")) {
                    world.delete(&Key::new("", "pods", "kube-system", name(&pod)));
                }
            }
            let mut idle = Idle::default();
            world.create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "waits", "namespace": "default" },
                "spec": {
                    "schedulingGates": gates, "nodeSelector": { "cloud.google.com/gke-nodepool": "more" },
                    "containers": [{ "name": "main", "image": "example.com/image:1" }],
                },
            }));
            surplus(&world, &mut idle);
            world.now += jiff::SignedDuration::from_secs(601);
            assert_eq!(surplus(&world, &mut idle).len(), expect, "{gates}");
        }
    }

    #[test]
    fn flex_start_nodes_end_whatever_runs_on_them() {
        let mut flex = pool("flex", "n1-standard-4", 1, gpu("nvidia-tesla-t4", "1", "DEFAULT"));
        flex.pool["autoscaling"] = json!({ "enabled": true, "totalMaxNodeCount": 2 });
        flex.pool["config"]["flexStart"] = json!(true);
        flex.pool["config"]["maxRunDuration"] = json!("7200s");
        let mut world = World::new(vec![flex]);
        world.pass(300);
        assert!(world.pods("kube-system").iter().any(|pod| holds(pod).is_some()), "it is in use");
        let mut idle = Idle::default();
        world.pass(6800);
        assert_eq!(surplus(&world, &mut idle), [""; 0]);
        world.pass(100);
        assert_eq!(surplus(&world, &mut idle), ["flex"]);
    }
}
