//! Machines that GKE chooses itself, of Autopilot and of node auto-provisioning: which ones pods that wait would run on, and
//! which nodes nobody needs any more. Source: GKE's pages "Autopilot overview", "Deploy GPU workloads in Autopilot", "Choose
//! compute classes for Autopilot Pods", "About node pool auto-creation" and the guide to the dynamic workload scheduler:
//! selectors say GPU, Spot and class, requests the size. Which machine types it takes is not documented; those here
//! are the smallest of the catalog that fit. It refuses nothing and raises no requests.

use fit::gke::pool::Features;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::object::{as_on_requested_nodes, is_deleted, is_true, label, name, namespace, text};
use super::super::store::Cluster;
use super::autoscaler::{
    More, as_it_will_be, is_queued, is_unschedulable, pool_name, size, template, template_in,
};
use super::claim::{GROUP, RESOURCE};
use super::idle::{Idle, Unneeded, holds};
use super::nodes::{ACCELERATOR_LABEL, POOL_LABEL};
use super::round::PoolView;
use super::scheduler::{Hosts, Surroundings, asks, requests, surroundings_of};
use crate::clock::Scale;
use model::catalog::{self, Attach};

const SPOT_LABEL: &str = "cloud.google.com/gke-spot";
const CLASS_LABEL: &str = "cloud.google.com/compute-class";

/// Machines for pods without GPUs, the smallest first.
const PLAIN: &[&str] = &[
    "e2-standard-2",
    "e2-standard-4",
    "e2-standard-8",
    "e2-standard-16",
    "e2-standard-32",
    "n2-standard-64",
    "n2-standard-128",
];

/// Machines that GPUs are attached to, the smallest first.
const HOSTS: &[&str] = &[
    "n1-standard-4",
    "n1-standard-8",
    "n1-standard-16",
    "n1-standard-32",
    "n1-standard-64",
    "n1-standard-96",
];

/// A machine that pods ask for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    machine_type: String,
    /// Type and number of its GPUs.
    gpus: Option<(String, u32)>,
    spot: bool,
    class: Option<String>,
    /// True if a request brings it, and no pod does.
    queued: bool,
}

impl Machine {
    pub fn is_queued(&self) -> bool {
        self.queued
    }

    /// Returns the config of a NodePool message with such machines.
    pub fn config(&self) -> Value {
        let Self { machine_type, gpus, spot, class, queued: _ } = self;
        let mut config = json!({ "machineType": machine_type });
        let mut taints = Vec::new();
        let mut taint = |key: &str, value: &str| {
            taints.push(json!({ "key": key, "value": value, "effect": "NO_SCHEDULE" }));
        };
        if let Some((kind, count)) = gpus {
            config["accelerators"] = json!([{
                "acceleratorType": kind, "acceleratorCount": count.to_string(),
                "gpuDriverInstallationConfig": { "gpuDriverVersion": "DEFAULT" },
            }]);
            taint("nvidia.com/gpu", "present");
        }
        if *spot {
            config["spot"] = json!(true);
            taint(SPOT_LABEL, "true");
        }
        if let Some(class) = class {
            config["labels"] = json!({ CLASS_LABEL: class });
            taint(CLASS_LABEL, class);
        }
        if !taints.is_empty() {
            config["taints"] = Value::Array(taints);
        }
        config
    }

    /// A node of it, when all of its agents have reported.
    fn node(&self) -> Value {
        template(&PoolView {
            pool: json!({ "name": "nap", "config": self.config() }),
            target_sizes: BTreeMap::new(),
            wanted_sizes: BTreeMap::new(),
            scale_up_error: None,
            deleting: false,
            instance_prefix: String::new(),
            features: Features::default(),
        })
    }
}

/// The machines that pods of a cluster lack, and the nodes that none of them needs.
#[derive(Debug, Default, PartialEq)]
pub struct Demand {
    /// Machines that are lacking.
    pub more: BTreeMap<Machine, u32>,
    /// Nodes that have been idle for long.
    pub idle: Vec<Unneeded>,
}

/// The work of node auto-provisioning for the pods and requests of a cluster.
#[derive(Debug, Default, PartialEq)]
pub struct Provision {
    /// Machines that no pool has, and how many; of those for requests a pool is enough, whose nodes the requests bring.
    pub more: BTreeMap<Machine, u32>,
    /// True if a request may still come to its pools that have no nodes.
    pub requested: bool,
}

impl Provision {
    /// Returns the need that neither the pools nor the nodes that their own autoscaling is about to add can cover.
    pub fn of(cluster: &Cluster, pools: &[PoolView], coming: &More) -> Self {
        let pods: Vec<&Value> = cluster.list("", "pods").map(|(_, pod)| pod).collect();
        let live: Vec<&Value> = cluster.list("", "nodes").map(|(_, node)| node).collect();
        let mut nodes = with_those_on_their_way(&live, pools);
        for ((pool, zone), count) in coming {
            let Some(view) = pools.iter().find(|view| pool_name(view) == pool) else { continue };
            let node = zone.as_ref().map_or_else(|| template(view), |zone| template_in(view, zone));
            nodes.extend((0..*count).map(|_| node.clone()));
        }
        let around = surroundings_of(cluster, pools);
        let mut more = lacking(&pods, &nodes, &around).0;
        let waiting = requests_that_wait(cluster);
        let takes = |pod: &Value| pools.iter().any(|view| takes_requests_for(view, pod, &around));
        for pod in waiting.iter().filter(|pod| !takes(pod)) {
            if let Some(open) = fitting(pod, &around) {
                more.insert(Machine { queued: true, ..open.machine }, 0);
            }
        }
        let ended = ["Failed", "CapacityRevoked", "BookingExpired"];
        let open = |request: &Value| !ended.iter().any(|kind| is_true(request, kind));
        let requested = cluster.list(GROUP, RESOURCE).any(|(_, request)| open(request));
        Self { more, requested }
    }
}

/// The pods of requests that nobody has looked at yet.
fn requests_that_wait(cluster: &Cluster) -> Vec<Value> {
    let waits = |request: &Value| {
        !["Accepted", "Failed"].iter().any(|kind| is_true(request, kind)) && !is_deleted(request)
    };
    let templates: Vec<&Value> = cluster.list("", "podtemplates").map(|(_, template)| template).collect();
    let waiting = cluster.list(GROUP, RESOURCE).filter(|(_, request)| waits(request));
    let specs = waiting.filter_map(|(_, request)| {
        let named = text(request, "/spec/podSets/0/podTemplateRef/name");
        let template = templates
            .iter()
            .find(|template| name(template) == named && namespace(template) == namespace(request))?;
        let mut pod = template["template"].clone();
        pod["spec"] = as_on_requested_nodes(&pod["spec"]);
        pod["metadata"]["namespace"] = template["metadata"]["namespace"].clone();
        Some(pod)
    });
    specs.collect()
}

fn takes_requests_for(view: &PoolView, pod: &Value, around: &Surroundings) -> bool {
    let node = template(view);
    let takes = || Hosts::of_new(&[&node], around.clone()).first(&asks(pod), [0]).is_some();
    is_queued(view) && !view.deleting && takes()
}

/// The nodes as they will be, and those that their pools still lack.
fn with_those_on_their_way(live: &[&Value], pools: &[PoolView]) -> Vec<Value> {
    let mut nodes: Vec<Value> = live.iter().map(|node| as_it_will_be(node, pools)).collect();
    for view in pools {
        let there = live.iter().filter(|node| label(node, POOL_LABEL) == pool_name(view)).count();
        let coming = size(view).saturating_sub(u32::try_from(there).unwrap_or(u32::MAX));
        nodes.extend((0..coming).map(|_| template(view)));
    }
    nodes
}

/// The machines that pods lack which none of the nodes takes, and the nodes that take the others.
fn lacking(
    pods: &[&Value],
    nodes: &[Value],
    around: &Surroundings,
) -> (BTreeMap<Machine, u32>, BTreeSet<String>) {
    let all: Vec<&Value> = nodes.iter().collect();
    let mut hosts = Hosts::new(&all, pods, around.clone());
    let mut taken = BTreeSet::new();
    let mut opened: Vec<Opened<'_>> = Vec::new();
    for pod in pods.iter().filter(|pod| is_unschedulable(pod)) {
        let asked = asks(pod);
        if let Some(index) = hosts.first(&asked, 0..hosts.len()) {
            hosts.take(index, &asked, &pod["spec"]);
            taken.insert(name(&nodes[index]).to_owned());
        } else if let Some(open) = opened.iter_mut().find(|open| open.takes(pod, around)) {
            open.pods.push(pod);
        } else if let Some(new) = fitting(pod, around) {
            opened.push(new);
        }
    }
    let mut more = BTreeMap::new();
    for open in opened {
        *more.entry(open.machine).or_default() += 1;
    }
    (more, taken)
}

impl Idle {
    /// Returns the machines to add and the nodes to delete now.
    pub fn demand(&mut self, cluster: &Cluster, pools: &[PoolView], now: Timestamp, clock: &Scale) -> Demand {
        let pods: Vec<&Value> = cluster.list("", "pods").map(|(_, pod)| pod).collect();
        let live: Vec<&Value> = cluster.list("", "nodes").map(|(_, node)| node).collect();
        let around = surroundings_of(cluster, pools);
        let (more, taken) = lacking(&pods, &with_those_on_their_way(&live, pools), &around);
        let needed: BTreeSet<String> = pods.iter().filter_map(|pod| holds(pod)).chain(taken).collect();
        Demand { more, idle: self.unneeded(&live, &needed, pools, now, clock) }
    }

    fn unneeded(
        &mut self,
        live: &[&Value],
        needed: &BTreeSet<String>,
        pools: &[PoolView],
        now: Timestamp,
        clock: &Scale,
    ) -> Vec<Unneeded> {
        let of_pool = |node: &Value| pools.iter().any(|view| pool_name(view) == label(node, POOL_LABEL));
        let idle: Vec<&Value> =
            live.iter().copied().filter(|node| of_pool(node) && !needed.contains(name(node))).collect();
        self.long(&idle, now, clock)
    }
}

/// A machine that does not exist yet, and the pods that it is for.
struct Opened<'p> {
    machine: Machine,
    node: Value,
    pods: Vec<&'p Value>,
}

impl Opened<'_> {
    fn takes(&self, pod: &Value, around: &Surroundings) -> bool {
        let mut host = Hosts::of_new(&[&self.node], around.clone());
        self.pods.iter().for_each(|pod| host.take(0, &asks(pod), &pod["spec"]));
        host.first(&asks(pod), [0]).is_some()
    }
}

/// The smallest machine that takes a pod.
fn fitting<'p>(pod: &'p Value, around: &Surroundings) -> Option<Opened<'p>> {
    let spec = &pod["spec"];
    let selected = |label: &str| spec["nodeSelector"][label].as_str();
    let gpus = requests(spec).get("nvidia.com/gpu").copied().unwrap_or(0) / 1000;
    let (spot, class) = (selected(SPOT_LABEL) == Some("true"), selected(CLASS_LABEL).map(str::to_owned));
    let machines = machines(selected(ACCELERATOR_LABEL), u32::try_from(gpus).unwrap_or(u32::MAX));
    machines.into_iter().find_map(|(machine_type, gpus)| {
        let machine = Machine { machine_type, gpus, spot, class: class.clone(), queued: false };
        let open = Opened { node: machine.node(), machine, pods: Vec::new() };
        open.takes(pod, around).then(|| Opened { pods: vec![pod], ..open })
    })
}

/// Machine types with at least so many GPUs of a type, and with how many. A pod that names no type of GPU gets none.
fn machines(kind: Option<&str>, gpus: u32) -> Vec<(String, Option<(String, u32)>)> {
    let Some(kind) = kind else {
        let plain = PLAIN.iter().filter(|_| gpus == 0);
        return plain.map(|name| ((*name).to_owned(), None)).collect();
    };
    let Some(known) = catalog::accelerator(kind) else { return Vec::new() };
    let mut found: Vec<(u32, u32, &str)> = match known.attach {
        Attach::Fixed => catalog::machines()
            .filter_map(|machine| {
                let fixed = machine.accelerator.as_ref().filter(|fixed| fixed.kind == kind)?;
                Some((fixed.count, machine.vcpus.unwrap_or(u32::MAX), machine.name.as_str()))
            })
            .collect(),
        Attach::N1 => {
            let hosts = HOSTS.iter().filter_map(|name| Some((catalog::machine(name)?.vcpus?, *name)));
            let hosts: Vec<(u32, &str)> = hosts.collect();
            let fits = |count: u32, vcpus: u32| known.n1_max_vcpus(count).is_none_or(|most| vcpus <= most);
            let with = |count: &u32| {
                let count = *count;
                let fitting = hosts.iter().filter(move |(vcpus, _)| fits(count, *vcpus));
                fitting.map(move |(vcpus, name)| (count, *vcpus, *name)).collect::<Vec<_>>()
            };
            known.counts.iter().flat_map(with).collect()
        }
    };
    found.retain(|(count, ..)| *count >= gpus.max(1));
    found.sort_unstable();
    found.into_iter().map(|(count, _, name)| (name.to_owned(), Some((kind.to_owned(), count)))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{World, pool};
    use super::*;

    fn pod(world: &mut World, name: &str, selector: Value, gpus: Option<&str>, cpu: &str) {
        let mut resources = json!({ "requests": { "cpu": cpu } });
        if let Some(gpus) = gpus {
            resources["limits"]["nvidia.com/gpu"] = json!(gpus);
        }
        let tolerations: Vec<Value> = ["nvidia.com/gpu", SPOT_LABEL, CLASS_LABEL]
            .into_iter()
            .map(|key| json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" }))
            .collect();
        world.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "nodeSelector": selector, "tolerations": tolerations,
                "containers": [{ "name": "a", "image": "x", "resources": resources }],
            },
        }));
    }

    fn wanted(world: &World, idle: &mut Idle) -> Vec<String> {
        let clock = Scale { time_scale: 1.0 };
        let demand = idle.demand(&world.cluster, &world.pools, world.now, &clock);
        let said = demand.more.into_iter().map(|(machine, count)| {
            let Machine { machine_type, gpus, spot, class, queued: _ } = machine;
            let gpus = gpus.map(|(kind, count)| format!(" {count}x{kind}")).unwrap_or_default();
            let spot = if spot { " spot" } else { "" };
            format!("{count} {machine_type}{gpus}{spot} {}", class.unwrap_or_default()).trim_end().to_owned()
        });
        said.collect()
    }

    #[test]
    fn pods_get_the_smallest_machine_that_they_select() {
        for (selector, gpus, cpu, expect) in [
            (json!({}), None, "1", "1 e2-standard-2"),
            (json!({}), None, "20", "1 e2-standard-32"),
            (
                json!({ ACCELERATOR_LABEL: "nvidia-tesla-t4" }),
                Some("1"),
                "2",
                "1 n1-standard-4 1xnvidia-tesla-t4",
            ),
            (json!({ ACCELERATOR_LABEL: "nvidia-l4" }), Some("1"), "6", "1 g2-standard-8 1xnvidia-l4"),
            (
                json!({ ACCELERATOR_LABEL: "nvidia-tesla-a100" }),
                Some("2"),
                "2",
                "1 a2-highgpu-2g 2xnvidia-tesla-a100",
            ),
            (
                json!({ SPOT_LABEL: "true", CLASS_LABEL: "Balanced" }),
                None,
                "1",
                "1 e2-standard-2 spot Balanced",
            ),
            (json!({}), Some("1"), "1", ""),
            (json!({ "mine": "x" }), None, "1", ""),
            (json!({}), None, "900", ""),
        ] {
            let mut world = World::new(Vec::new());
            pod(&mut world, "p", selector.clone(), gpus, cpu);
            world.pass(1);
            let found = wanted(&world, &mut Idle::default());
            // The pods that every cluster has need a machine, too.
            if expect.is_empty() {
                assert_eq!(found, ["1 e2-standard-2"], "{selector} {cpu}");
            } else {
                assert!(found.iter().any(|found| found == expect), "{found:?} for {selector} {cpu}");
            }
        }
    }

    #[test]
    fn a_node_that_is_idle_for_long_is_not_needed() {
        let mut world = World::new(vec![pool("nap-1", "e2-standard-4", 2, json!({}))]);
        world.pass(300);
        let clock = Scale { time_scale: 1.0 };
        let mut idle = Idle::default();
        let mut at = |world: &World| idle.demand(&world.cluster, &world.pools, world.now, &clock).idle;
        assert_eq!(at(&world), []);
        world.pass(599);
        assert_eq!(at(&world), []);
        world.pass(1);
        let found = at(&world);
        // The other one has the pods that every cluster has.
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].pool.as_str(), found[0].zone.as_str()), ("nap-1", "us-central1-c"));
    }
}
