//! Pods of a stack against the nodes that its pools will have.
//!
//! The stack file does not tell everything of a cluster. A pod is said to fit nowhere only for reasons that hold whatever else is there:
//! taints, resources, ports, and labels that GKE or the pools' own sections set. Volumes, and pods that must be near to others, are left to
//! kube-scheduler, and so are pods that may run on nodes that the file does not describe.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

use super::cluster::{autopilot, features};
use super::node_pool::{default_disk, inline_pool};
use crate::json::number;
use crate::kubernetes::manifest::pod_specs;
use crate::node_selection::CLASS_LABEL;
use crate::scope::POOL_LABEL;
use fit::gke::pool::{Features, Pool};
use fit::gke::template;
use fit::{
    Bound, Cluster, Fit, Margin, Node, NodeId, PodRequirements, Reason, Refusal, Requirement,
    Resource as Amount,
};
use model::address::FieldPath;
use model::catalog::{self, Machine};
use model::resource::{Identity, KindId, Lowered, Resource};

/// The resource of GPUs, and the taint of nodes that have some.
pub const GPU: &str = "nvidia.com/gpu";

/// Labels that GKE sets on some nodes: where no pool has them, no new node does.
const LABELS_OF_GKE: [&str; 3] =
    ["cloud.google.com/gke-accelerator", "cloud.google.com/gke-gpu", "cloud.google.com/gke-spot"];

/// The label by which a pool keeps GKE's device plugin off its nodes. Source: NVIDIA's page "NVIDIA GPU Operator with Google GKE".
const NO_DEVICE_PLUGIN: &str = "gke-no-default-nvidia-gpu-device-plugin";

/// Sizes of boot disks that are proposed.
const DISK_STEP_GB: u32 = 50;
const LARGEST_DISK_GB: u32 = 2000;

/// A template of pods in the body of a resource.
#[derive(Debug)]
pub struct PodTemplate<'r> {
    pub resource: &'r Resource,
    /// The place of the template in the body: `spec.template`, `spec.worker`; the root for a Pod.
    pub path: FieldPath,
    /// Pods that are made from it.
    pub replicas: u64,
    /// True if each node that takes such a pod gets one (DaemonSets).
    pub on_each_node: bool,
    pub requirements: PodRequirements,
}

impl PodTemplate<'_> {
    /// Returns the place in the body of a place in the pod.
    pub fn place(&self, in_pod: &FieldPath) -> FieldPath {
        self.path.segments().iter().chain(in_pod.segments()).cloned().collect()
    }
}

/// Returns the templates of pods in a resource. Those with a quantity or an operator that Kubernetes does not take are left out: they have an
/// error of their own.
pub fn pod_templates(resource: &Resource) -> Vec<PodTemplate<'_>> {
    if resource.kind == KindId::Crd {
        return Vec::new();
    }
    let mut specs = Vec::new();
    pod_specs(&resource.body, &FieldPath::root(), &mut specs);
    specs.into_iter().filter_map(|(spec, _)| pod_template(resource, &spec)).collect()
}

fn pod_template<'r>(resource: &'r Resource, spec: &FieldPath) -> Option<PodTemplate<'r>> {
    let path = spec.parent()?;
    let template = path.find(&resource.body)?;
    let (namespace, kind) = match &resource.identity {
        // A request books nodes for it, and no pod is made.
        Identity::Object(id) if id.gvk.kind == "PodTemplate" => return None,
        Identity::Object(id) => (id.namespace.as_deref().unwrap_or("default"), id.gvk.kind.as_str()),
        Identity::Check(_) => ("default", "Pod"),
        Identity::Cluster(_) | Identity::NodePool { .. } => return None,
    };
    let mut requirements =
        PodRequirements::read(template, namespace).ok()?.with_extended_resource_tolerations();
    requirements.near.clear();
    requirements.apart.clear();
    requirements.volumes.clear();
    let parent = path.parent().and_then(|parent| parent.find(&resource.body));
    let replicas = [Some(&template["replicas"]), parent.map(|parent| &parent["replicas"])];
    let replicas = replicas.into_iter().chain([parent.map(|parent| &parent["parallelism"])]).flatten();
    Some(PodTemplate {
        resource,
        path,
        replicas: replicas.filter_map(number).next().unwrap_or(1),
        on_each_node: kind == "DaemonSet",
        requirements,
    })
}

/// A pool of the stack with the new nodes that it would have, one in each zone.
#[derive(Debug)]
pub struct PoolNodes<'r> {
    pub resource: &'r Resource,
    settings: Pool,
    nodes: Vec<NodeId>,
    /// False if GKE chooses the zones.
    are_zones_known: bool,
}

/// The pools of a stack as the pods of new nodes see them.
#[derive(Debug)]
pub struct Pools<'r> {
    cluster: Cluster,
    pools: Vec<PoolNodes<'r>>,
    /// True if the cluster has nodes that the stack does not describe, or may get some.
    has_other_nodes: bool,
    /// True if the stack makes the cluster, so that the order of its pools decides on GKE's taint.
    is_taint_known: bool,
    features: Features,
}

/// Pods on new nodes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Pods for which there is no node.
    pub left: u64,
    /// Nodes with pods.
    pub nodes: u64,
}

/// The answer for a pod.
#[derive(Debug)]
pub enum Placement<'p, 'r> {
    /// A new node takes it, or may.
    Possible,
    /// A new node of the pool takes it if the node has as much as is expected.
    Near(&'p PoolNodes<'r>, Vec<Margin>),
    /// No node takes it: the reasons of each pool.
    Impossible(Vec<(&'p PoolNodes<'r>, Vec<Refusal>)>),
}

impl<'r> Pools<'r> {
    /// Returns the pools of a lowered stack; `None` where GKE makes the nodes, or where the stack makes no pool.
    pub fn of(lowered: &'r Lowered) -> Option<Self> {
        let resources = &lowered.resources;
        let is_cluster = |resource: &&Resource| matches!(resource.identity, Identity::Cluster(_));
        let own = resources.iter().find(is_cluster);
        let external = lowered.external.iter().map(|external| &external.resource);
        let gke = own.or_else(|| external.clone().find(is_cluster))?;
        if autopilot::is_on(&gke.body) {
            return None;
        }
        let is_pool = |resource: &&Resource| matches!(resource.identity, Identity::NodePool { .. });
        let first = inline_pool(resources, &lowered.capacity_options)?;
        let makes_pools = gke.body["autoscaling"]["enableNodeAutoprovisioning"] == true;
        let mut found = Self {
            cluster: Cluster::default(),
            pools: Vec::new(),
            has_other_nodes: own.is_none() || makes_pools || external.clone().any(|other| is_pool(&other)),
            is_taint_known: own.is_some(),
            features: features(&gke.body),
        };
        let has_gpu_taint = first.body["config"]["accelerators"].is_null();
        for pool in resources.iter().filter(is_pool) {
            found.add(pool, gke, has_gpu_taint);
        }
        found.add_daemon_sets(resources);
        Some(found)
    }

    fn add(&mut self, resource: &'r Resource, gke: &Resource, has_gpu_taint: bool) {
        let settings = settings(&resource.body, has_gpu_taint);
        let (zones, are_zones_known) = zones(&resource.body, gke);
        let templates: Vec<_> =
            zones.iter().filter_map(|zone| template(&settings, zone, self.features).ok()).collect();
        // Nobody knows the sizes of such a machine, so nobody knows what does not fit.
        self.has_other_nodes |= templates.is_empty();
        let nodes: Vec<NodeId> = templates.into_iter().map(|node| self.cluster.add(node)).collect();
        if !nodes.is_empty() {
            self.pools.push(PoolNodes { resource, settings, nodes, are_zones_known });
        }
    }

    /// Puts the pods of DaemonSets on the nodes that take them.
    fn add_daemon_sets(&mut self, resources: &[Resource]) {
        for pod in resources.iter().flat_map(pod_templates).filter(|pod| pod.on_each_node) {
            let question = self.cluster.ask(&pod.requirements);
            let taken = self.cluster.nodes().filter(|(_, node)| question.takes(node));
            for id in taken.map(|(id, _)| id).collect::<Vec<_>>() {
                // The node is there: its number is from this cluster.
                let _ = self.cluster.bind(id, Bound::running(pod.requirements.clone()));
            }
        }
    }

    /// Asks which new nodes take a pod.
    pub fn place<'p>(&'p self, pod: &PodRequirements) -> Placement<'p, 'r> {
        // GKE makes pools for the compute classes of a cluster.
        if pod.node_selector.contains_key(CLASS_LABEL) {
            return Placement::Possible;
        }
        let name = pod.node_selector.get(POOL_LABEL);
        let is_candidate = |pool: &&PoolNodes<'_>| name.is_none_or(|name| *name == pool.settings.name);
        let (question, mut near, mut refused) = (self.cluster.ask(pod), None, Vec::new());
        // Reasons are texts: they are made only where no node takes it without them.
        let sure = |node: &Node| question.takes(node) && question.verdict(node) == Fit::Fits;
        if self.pools.iter().filter(is_candidate).flat_map(|pool| self.nodes(pool)).any(sure) {
            return Placement::Possible;
        }
        for pool in self.pools.iter().filter(is_candidate) {
            let mut reasons = Vec::new();
            for node in self.nodes(pool) {
                match question.verdict(node) {
                    Fit::Fits => return Placement::Possible,
                    Fit::Near(margins) => near = near.or(Some((pool, margins))),
                    Fit::Refused(refusals) => {
                        let certain = refusals.into_iter().filter(|refusal| self.is_certain(pool, refusal));
                        reasons.push(certain.collect::<Vec<_>>());
                    }
                }
            }
            match reasons.into_iter().min_by_key(Vec::len) {
                Some(reasons) if reasons.is_empty() => return Placement::Possible,
                Some(reasons) => refused.push((pool, reasons)),
                None => {}
            }
        }
        match near {
            Some((pool, margins)) => Placement::Near(pool, margins),
            None if refused.is_empty() || self.has_other_nodes && name.is_none() => Placement::Possible,
            None => Placement::Impossible(refused),
        }
    }

    fn nodes(&self, pool: &PoolNodes<'_>) -> impl Iterator<Item = &Node> {
        pool.nodes.iter().filter_map(|id| self.cluster.node(*id))
    }

    /// Returns the pool of a name.
    pub fn pool(&self, name: &str) -> Option<&PoolNodes<'r>> {
        self.pools.iter().find(|pool| pool.settings.name == name)
    }

    /// Puts pods on new nodes of a pool, the largest first, each on the first node that takes it: on at most so many nodes, or on as many as
    /// they need. Pods that no node takes are left.
    pub fn pack(&self, pool: &PoolNodes<'_>, pods: &[(PodRequirements, u64)], most: Option<u64>) -> Packing {
        let Some(empty) = pool.nodes.first().and_then(|id| self.cluster.node(*id)) else {
            return Packing::default();
        };
        let mut pods: Vec<&(PodRequirements, u64)> = pods.iter().collect();
        pods.sort_by_key(|(pod, _)| std::cmp::Reverse(share(pod, empty)));
        let mut nodes: Vec<(Node, u64)> = Vec::new();
        let mut packing = Packing::default();
        for (pod, count) in pods {
            let mut left = *count;
            for (node, number) in std::mem::take(&mut nodes) {
                self.fill(pod, &node, number, &mut left, &mut nodes);
            }
            let each = self.capacity(pod, empty, left);
            if each > 0 {
                let free = most.map_or(u64::MAX, |most| most - packing.nodes);
                let more = left.div_ceil(each).min(free);
                packing.nodes += more;
                self.fill(pod, empty, more, &mut left, &mut nodes);
            }
            packing.left += left;
        }
        packing
    }

    /// Puts pods on nodes that are alike, and adds the nodes to `filled`.
    fn fill(
        &self,
        pod: &PodRequirements,
        node: &Node,
        number: u64,
        left: &mut u64,
        filled: &mut Vec<(Node, u64)>,
    ) {
        let each = self.capacity(pod, node, *left);
        let full = left.checked_div(each).unwrap_or(0).min(number);
        *left -= full * each;
        let partly = if full < number { (*left).min(each.saturating_sub(1)) } else { 0 };
        *left -= partly;
        let groups =
            [(each, full), (partly, u64::from(partly > 0)), (0, number - full - u64::from(partly > 0))];
        filled.extend(groups.into_iter().filter(|(_, nodes)| *nodes > 0).map(|(pods, nodes)| {
            let mut node = node.clone();
            for _ in 0..pods {
                node.bind(Bound::running(pod.clone()));
            }
            (node, nodes)
        }));
    }

    /// Returns how many of at most so many equal pods a node takes.
    fn capacity(&self, pod: &PodRequirements, node: &Node, most: u64) -> u64 {
        let question = self.cluster.ask(pod);
        let (mut node, mut count) = (node.clone(), 0);
        while count < most && question.verdict(&node).is_possible() {
            node.bind(Bound::running(pod.clone()));
            count += 1;
        }
        count
    }

    /// Returns true if a reason holds for every new node of a pool, whatever else is in the cluster.
    fn is_certain(&self, pool: &PoolNodes<'_>, refusal: &Refusal) -> bool {
        match &refusal.reason {
            Reason::Taint { taint } => taint.key != GPU || self.is_taint_known,
            Reason::Short { resource: Amount::Extended(name), .. } => {
                name == GPU && !has_other_device_plugin(&pool.resource.body)
            }
            Reason::Short { .. } | Reason::Port { .. } => true,
            Reason::Selector { key, .. } | Reason::NoDomain { topology_key: key } => {
                self.knows_label(pool, key)
            }
            Reason::Affinity { unmet } => unmet.iter().all(|requirement| match requirement {
                Some(Requirement { key, .. }) => self.knows_label(pool, key),
                None => true,
            }),
            _ => false,
        }
    }

    /// Returns true for a label that GKE or a section sets, and no one else.
    fn knows_label(&self, pool: &PoolNodes<'_>, key: &str) -> bool {
        let is_zone = key.ends_with("/zone");
        let is_there = |pool: &PoolNodes<'_>| {
            let nodes = pool.nodes.iter().filter_map(|id| self.cluster.node(*id));
            nodes.into_iter().any(|node| node.labels.contains_key(key))
        };
        let is_known = LABELS_OF_GKE.contains(&key) || self.pools.iter().any(is_there);
        is_known && (!is_zone || pool.are_zones_known)
    }

    /// Returns the smallest machine of the pool's series, with GPUs of its kind, that takes a pod which is too large for the pool's own.
    pub fn smallest_machine(&self, pool: &PoolNodes<'_>, pod: &PodRequirements) -> Option<&'static Machine> {
        let own = catalog::machine(&pool.settings.machine_type)?;
        let of_series = catalog::machines().filter(|machine| machine.series() == own.series());
        let mut machines: Vec<_> = of_series.collect();
        machines.sort_by(|one, other| {
            let size = |machine: &Machine| (machine.vcpus, machine.memory_gb.unwrap_or_default());
            size(one).partial_cmp(&size(other)).unwrap_or(Ordering::Equal)
        });
        machines.into_iter().find(|machine| {
            let settings = with_machine(&pool.settings, own, machine);
            settings.is_some_and(|settings| self.takes(pool, &settings, pod))
        })
    }

    /// Returns the smallest boot disk, in steps of 50 GB, with which the pool takes a pod.
    pub fn smallest_disk(&self, pool: &PoolNodes<'_>, pod: &PodRequirements) -> Option<u32> {
        let sizes = (1..=LARGEST_DISK_GB / DISK_STEP_GB).map(|steps| steps * DISK_STEP_GB);
        let mut larger = sizes.filter(|size| *size > pool.settings.disk_gib);
        larger.find(|size| self.takes(pool, &Pool { disk_gib: *size, ..pool.settings.clone() }, pod))
    }

    /// Returns true if a new node of a pool takes a pod when the pool has other settings.
    fn takes(&self, pool: &PoolNodes<'_>, settings: &Pool, pod: &PodRequirements) -> bool {
        let node = pool.nodes.iter().find_map(|id| self.cluster.node(*id));
        let zone = node.and_then(|node| node.labels.get("topology.kubernetes.io/zone"));
        let node = zone.and_then(|zone| template(settings, zone, self.features).ok());
        node.is_some_and(|node| self.cluster.ask(pod).verdict(&node) == Fit::Fits)
    }
}

/// Returns the largest part of a node's resources that a pod asks for, in millionths.
fn share(pod: &PodRequirements, node: &Node) -> i64 {
    let part = |request: &fit::Request| {
        let all = node.allocatable.get(&request.resource).max(1);
        request.amount.saturating_mul(1_000_000) / all
    };
    pod.requests.iter().map(part).max().unwrap_or_default()
}

/// The settings of a pool with another machine. `None` when its GPUs do not go with that machine.
fn with_machine(pool: &Pool, own: &Machine, machine: &Machine) -> Option<Pool> {
    let mut settings = Pool { machine_type: machine.name.clone(), ..pool.clone() };
    match (&own.accelerator, &machine.accelerator) {
        (None, None) => {
            let gpus = settings.gpus.as_ref();
            let limits = gpus.and_then(|gpus| Some((catalog::accelerator(&gpus.kind)?, gpus.count)));
            let fits = limits.is_none_or(|(kind, count)| {
                kind.n1_max_vcpus(count).zip(machine.vcpus).is_none_or(|(most, has)| has <= most)
                    && kind
                        .n1_max_memory_gb(count)
                        .zip(machine.memory_gb)
                        .is_none_or(|(most, has)| has <= most)
            });
            fits.then_some(settings)
        }
        (Some(own), Some(built_in)) if own.kind == built_in.kind => {
            settings.gpus.as_mut()?.count = built_in.count;
            Some(settings)
        }
        _ => None,
    }
}

/// Returns the settings of a pool that decide on its pods. `has_gpu_taint` is true if GKE adds its taint to nodes with GPUs.
fn settings(body: &Value, has_gpu_taint: bool) -> Pool {
    let pool = Pool { gpu_taint: has_gpu_taint, ..Pool::read(body) };
    match body["config"]["diskType"].is_null() {
        true => Pool { disk_type: default_disk(&pool.machine_type).to_owned(), ..pool },
        false => pool,
    }
}

/// Returns true if others than GKE say how many GPUs the nodes of a pool have to give.
fn has_other_device_plugin(body: &Value) -> bool {
    body["config"]["labels"][NO_DEVICE_PLUGIN] == "true"
}

/// The zones of a pool's nodes, and whether they are known: GKE chooses three of a region.
fn zones(pool: &Value, gke: &Resource) -> (Vec<String>, bool) {
    let listed = |body: &Value| -> Vec<String> {
        let zones = body["locations"].as_array().into_iter().flatten();
        zones.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for zones in [listed(pool), listed(&gke.body)] {
        if !zones.is_empty() {
            return (zones, true);
        }
    }
    let Identity::Cluster(name) = &gke.identity else { return (Vec::new(), false) };
    if catalog::region_of(&name.location).is_some() {
        return (vec![name.location.clone()], true);
    }
    let region = name.location.as_str();
    let zones: BTreeSet<String> = ["a", "b", "c"].iter().map(|zone| format!("{region}-{zone}")).collect();
    (zones.into_iter().collect(), false)
}
