//! Checks if pods of a stack fit on the nodes that its pools will have.
//!
//! The stack file does not describe everything in a cluster. So a pod is reported only for reasons that do not depend on other
//! objects: taints, resources, ports, and labels that GKE or the pools' sections set. Volumes, pod affinity, and pods that may
//! run on nodes outside the file are left to kube-scheduler.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

use super::cluster::autopilot;
use super::node_pool::{default_disk, inline_pool};
use crate::image_pull;
use crate::json::number;
use crate::kubernetes::kueue::gang::QUEUE;
use crate::kubernetes::manifest::pod_specs;
use crate::kubernetes::template::QUEUED_TAINT;
use crate::kubernetes::why::PoolRefusal;
use crate::node_selection::{ACCELERATOR_LABEL, CLASS_LABEL, SPOT_LABEL};
use crate::scope::POOL_LABEL;
use fit::gke::pool::{Features, Pool};
use fit::gke::{admission, template};
use fit::{
    Bound, Cluster, Fit, Margin, Node, NodeId, PodRequirements, Reason, Refusal, Requirement,
    Resource as Amount, Taint,
};
use model::address::FieldPath;
use model::catalog::{self, Machine};
use model::resource::{CapacityOptions, External, Identity, KindId, Resource};

/// The name of the GPU resource, and the key of GKE's taint on GPU nodes.
pub const GPU: &str = "nvidia.com/gpu";

/// Labels that GKE derives from a pool's own settings. Its other labels also depend on the cluster's defaults or the GKE release.
const CERTAIN_LABELS: [&str; 18] = [
    POOL_LABEL,
    SPOT_LABEL,
    ACCELERATOR_LABEL,
    "cloud.google.com/gke-gpu",
    "cloud.google.com/gke-gpu-partition-size",
    "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-max-shared-clients-per-gpu",
    "cloud.google.com/machine-family",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.gke.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];

/// The label of a namespace with the compute class for pods that select none.
const DEFAULT_CLASS_LABEL: &str = "cloud.google.com/default-compute-class";

/// The pool label that keeps GKE's device plugin off its nodes. Source: NVIDIA's page "NVIDIA GPU Operator with Google GKE".
const NO_DEVICE_PLUGIN: &str = "gke-no-default-nvidia-gpu-device-plugin";

/// The step, in GB, of boot disk sizes in proposals.
const DISK_STEP_GB: u32 = 50;
const LARGEST_DISK_GB: u32 = 2000;

/// A template of pods in the body of a resource.
#[derive(Debug)]
pub struct PodTemplate<'r> {
    pub resource: &'r Resource,
    /// The path of the template in the body: `spec.template`, `spec.worker`; the root for a Pod.
    pub path: FieldPath,
    /// True for DaemonSets: each node that takes such a pod gets one.
    pub on_each_node: bool,
    /// The number of such pods, unless each node has one.
    pub count: u64,
    /// The queue of Kueue in which such pods wait. The flavor that they get adds labels and tolerations.
    pub queue: Option<&'r str>,
    pub requirements: PodRequirements,
}

impl<'r> PodTemplate<'r> {
    /// Returns true for Pods of Dask, of programs and of notebooks, and for others with GPUs. The rest are parts of the platform, such
    /// as operators, with small images.
    pub fn is_work(&self) -> bool {
        let has_gpus = || self.requirements.requests.iter().any(|request| request.resource.name() == GPU);
        match self.resource.kind {
            KindId::DaskCluster
            | KindId::DaskGroup
            | KindId::DaskJob
            | KindId::Job
            | KindId::Notebook
            | KindId::Check => true,
            _ => !self.on_each_node && has_gpus(),
        }
    }

    /// Returns the images of the containers with their paths in the body.
    pub fn images(&self) -> impl Iterator<Item = (FieldPath, &'r str)> {
        let spec = self.path.key("spec");
        let images = spec.find(&self.resource.body).map(image_pull::images);
        let in_body = move |path: FieldPath| spec.segments().iter().chain(path.segments()).cloned().collect();
        images.into_iter().flatten().map(move |(path, image)| (in_body(path), image))
    }

    /// Converts a path in the pod to the path in the body.
    pub fn path_in_body(&self, in_pod: &FieldPath) -> FieldPath {
        self.path.segments().iter().chain(in_pod.segments()).cloned().collect()
    }
}

/// Returns the templates of pods in a resource, except for pods that wait in a queue of Kueue.
pub fn pod_templates(resource: &Resource) -> Vec<PodTemplate<'_>> {
    let mut templates = all_pod_templates(resource);
    templates.retain(|pod| pod.queue.is_none());
    templates
}

/// Returns the templates of pods in a resource. Templates with an invalid quantity or operator are left out: another error
/// reports them.
pub fn all_pod_templates(resource: &Resource) -> Vec<PodTemplate<'_>> {
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
    let requirements = alone(admission().read(template, namespace).ok()?);
    let parent = path.parent().and_then(|parent| parent.find(&resource.body));
    let count = pod_count(&resource.body, &path).unwrap_or(1);
    let is_suspended = parent.is_some_and(|parent| parent["suspend"] == true);
    // No pod is made, or kube-scheduler has nothing to say about it.
    if count == 0 || is_suspended || requirements.node_name.is_some() {
        return None;
    }
    let queue = |body: &'r Value| body["metadata"]["labels"][QUEUE].as_str();
    let queue = queue(template).or_else(|| queue(&resource.body));
    Some(PodTemplate { resource, path, on_each_node: kind == "DaemonSet", count, queue, requirements })
}

/// Returns the pod without what depends on other pods and on volumes.
fn alone(pod: PodRequirements) -> PodRequirements {
    PodRequirements { near: Vec::new(), apart: Vec::new(), volumes: Vec::new(), ..pod }
}

/// Orders pools by what separates them from a pod: other labels, no GPUs where the pod requests some, and then the number of
/// refusals.
pub fn distance(refusals: &[Refusal]) -> (usize, bool, usize) {
    let other_labels = refusals.iter().filter(|refusal| labels_of(refusal).next().is_some()).count();
    let lacks_gpus = |refusal: &Refusal| {
        matches!(&refusal.reason, Reason::Short { resource: Amount::Extended(_), allocatable: 0, .. })
    };
    (other_labels, refusals.iter().any(lacks_gpus), refusals.len())
}

/// Returns the keys of the labels that a node would need to have with another value, or at all.
fn labels_of(refusal: &Refusal) -> impl Iterator<Item = &str> {
    let (one, unmet) = match &refusal.reason {
        Reason::Selector { key, .. } | Reason::NoDomain { topology_key: key } => (Some(key), &[][..]),
        Reason::Affinity { unmet } => (None, unmet.as_slice()),
        _ => (None, &[][..]),
    };
    one.into_iter().chain(unmet.iter().flatten().map(|requirement| &requirement.key)).map(String::as_str)
}

/// Returns the number of pods of a template, which stands in it or beside it; `None` if the body leaves it to others.
pub fn pod_count(body: &Value, template: &FieldPath) -> Option<u64> {
    let parent = template.parent().and_then(|parent| parent.find(body));
    let inside = template.find(body).map(|template| &template["replicas"]);
    let beside = ["replicas", "parallelism"].map(|key| parent.map(|parent| &parent[key]));
    [inside].into_iter().chain(beside).flatten().find_map(number)
}

/// A pool of the stack with a new node in each of its zones.
#[derive(Debug)]
pub struct PoolNodes<'r> {
    pub resource: &'r Resource,
    settings: Pool,
    nodes: Vec<NodeId>,
    /// False if GKE chooses the zones, or the cluster is managed elsewhere.
    are_zones_known: bool,
    /// True if the pool has several capacity options; the body has the first one.
    has_capacity_options: bool,
}

/// The pools of a stack, for questions about pods on new nodes.
#[derive(Debug)]
pub struct Pools<'r> {
    cluster: Cluster,
    pools: Vec<PoolNodes<'r>>,
    /// True if the cluster has, or may get, nodes that the stack does not describe.
    has_other_nodes: bool,
    /// True if the stack creates the cluster. Then its zones are known, and so is which GPU pools get GKE's taint.
    is_own: bool,
    features: Features,
    /// Keys of the labels that sections of pools set.
    labels: BTreeSet<String>,
}

/// The answer of a new node to the question if it takes a pod.
enum Answer {
    /// It takes the pod, or that depends on something outside the file.
    Open,
    Near(Vec<Margin>),
    Refused(Vec<Refusal>),
}

/// The certainty of a refusal.
enum Certainty {
    /// It holds for every new node of the pool.
    Certain,
    /// The node takes the pod if GKE's own pods request less than estimated.
    Estimated(Margin),
    /// It depends on other objects in the cluster.
    Other,
    /// The pod is for nodes that the file does not describe.
    OtherNodes,
}

/// The answer of [`Pools::pack`] for a pod that fits if the node has as much free as estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    Fits,
    DoesNotFit,
}

/// Pods on new nodes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// The number of pods for which there is no node.
    pub left: u64,
    /// The number of nodes with pods.
    pub nodes: u64,
}

/// The answer for a pod.
#[derive(Debug)]
pub enum PodPlacement<'p, 'r> {
    /// A new node takes it or may take it.
    Possible,
    /// A new node of the pool takes it if the node has as much free as estimated.
    Near(&'p PoolNodes<'r>, Vec<Margin>),
    /// No node takes it. The refusals are listed by pool, the nearest one first.
    Impossible(Vec<(&'p PoolNodes<'r>, Vec<Refusal>)>),
}

impl PoolNodes<'_> {
    /// Returns the amount by which the estimate of a resource on a new node may be too high.
    fn slack(&self, cluster: &Cluster, resource: &Amount) -> i64 {
        let node = self.nodes.first().and_then(|id| cluster.node(*id));
        node.and_then(|node| node.slack.as_ref()).map_or(0, |slack| slack.get(resource))
    }
}

impl<'r> Pools<'r> {
    /// Returns the amount that certainly fits on a new node with `free` estimated as free.
    pub fn sure(&self, pool: &PoolNodes<'_>, resource: &Amount, free: i64) -> i64 {
        free - pool.slack(&self.cluster, resource) - 1
    }

    /// Returns the amount of a resource that is certainly free on each new node of a pool, beside Pods of GKE and of DaemonSets.
    pub fn free(&self, pool: &PoolNodes<'_>, resource: &Amount) -> i64 {
        let free = |node: &Node| node.allocatable.get(resource).saturating_sub(node.used().get(resource));
        let free = self.nodes(pool).map(free).min().unwrap_or_default();
        if resource.is_measured() { self.sure(pool, resource, free) } else { free }
    }

    /// Returns true if a taint keeps Pods off the nodes of a pool, unless they tolerate it by name or need its GPUs. GKE's other taints
    /// let all Pods of a kind in: those for Arm processors, those of GKE Sandbox.
    pub fn is_reserved(&self, pool: &PoolNodes<'_>) -> bool {
        let is_own = |taint: &Taint| pool.settings.taints.contains(taint);
        let reserves = |taint: &Taint| is_own(taint) || [GPU, QUEUED_TAINT].contains(&taint.key.as_str());
        let mut taints = self.nodes(pool).flat_map(|node| &node.taints);
        taints.any(|taint| taint.keeps_off() && reserves(taint))
    }

    /// Returns the pools of a stack by its resources, those that it only refers to, and the capacity options of its pools; `None` if
    /// GKE creates the nodes itself, or the stack creates no pool.
    pub fn of(
        resources: &'r [Resource],
        external: &'r [External],
        options: &[CapacityOptions],
    ) -> Option<Self> {
        let is_cluster = |resource: &&Resource| matches!(resource.identity, Identity::Cluster(_));
        let own = resources.iter().find(is_cluster);
        let external = external.iter().map(|external| &external.resource);
        let gke = own.or_else(|| external.clone().find(is_cluster))?;
        if autopilot::is_on(&gke.body) {
            return None;
        }
        let is_pool = |resource: &&Resource| matches!(resource.identity, Identity::NodePool { .. });
        let first = inline_pool(resources, options)?;
        let autoscaling = &gke.body["autoscaling"];
        let has_default_class =
            |resource: &Resource| !resource.body["metadata"]["labels"][DEFAULT_CLASS_LABEL].is_null();
        let makes_pools = autoscaling["enableNodeAutoprovisioning"] == true
            || autoscaling["defaultComputeClassConfig"]["enabled"] == true
            || resources.iter().any(has_default_class);
        let mut found = Self {
            cluster: Cluster::default(),
            pools: Vec::new(),
            has_other_nodes: own.is_none() || makes_pools || external.clone().any(|other| is_pool(&other)),
            is_own: own.is_some(),
            features: Features::read(&gke.body),
            labels: BTreeSet::new(),
        };
        let has_gpu_taint = first.body["config"]["accelerators"].is_null();
        for pool in resources.iter().filter(is_pool) {
            let has_options = options.iter().any(|options| options.identity == pool.identity);
            found.add(pool, gke, has_gpu_taint, has_options);
        }
        found.add_daemon_sets(resources);
        Some(found)
    }

    fn add(
        &mut self,
        resource: &'r Resource,
        gke: &Resource,
        has_gpu_taint: bool,
        has_capacity_options: bool,
    ) {
        let settings = settings(&resource.body, has_gpu_taint);
        let (zones, are_zones_known) = zones(&resource.body, gke, self.is_own);
        let templates: Vec<_> =
            zones.iter().filter_map(|zone| template(&settings, zone, self.features).ok()).collect();
        // Nobody knows the sizes of such a machine, so nobody knows what does not fit.
        self.has_other_nodes |= templates.is_empty();
        let nodes: Vec<NodeId> = templates.into_iter().map(|node| self.cluster.add(node)).collect();
        self.labels.extend(settings.labels.keys().cloned());
        if !nodes.is_empty() {
            self.pools.push(PoolNodes { resource, settings, nodes, are_zones_known, has_capacity_options });
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
    pub fn place<'p>(&'p self, pod: &PodRequirements) -> PodPlacement<'p, 'r> {
        // GKE makes pools for the compute classes of a cluster.
        if names_compute_class(pod) {
            return PodPlacement::Possible;
        }
        let name = pod.node_selector.get(POOL_LABEL);
        let is_candidate = |pool: &&PoolNodes<'_>| name.is_none_or(|name| *name == pool.settings.name);
        let (question, mut near, mut refused) = (self.cluster.ask(pod), None, Vec::new());
        // Reasons are texts: they are made only where no node takes it without them.
        let sure = |node: &Node| question.takes(node) && question.verdict(node) == Fit::Fits;
        if self.pools.iter().filter(is_candidate).flat_map(|pool| self.nodes(pool)).any(sure) {
            return PodPlacement::Possible;
        }
        for pool in self.pools.iter().filter(is_candidate) {
            let mut certain = Vec::new();
            for node in self.nodes(pool) {
                match self.answer(pool, node, question.verdict(node)) {
                    Answer::Open => return PodPlacement::Possible,
                    Answer::Near(margins) => near = near.or(Some((pool, margins))),
                    Answer::Refused(refusals) => certain.push(refusals),
                }
            }
            refused.extend(certain.into_iter().min_by_key(Vec::len).map(|reasons| (pool, reasons)));
        }
        match near {
            _ if self.has_other_nodes && name.is_none() => PodPlacement::Possible,
            Some((pool, margins)) => PodPlacement::Near(pool, margins),
            None if refused.is_empty() => PodPlacement::Possible,
            None => {
                refused.sort_by_key(|(_, refusals)| distance(refusals));
                PodPlacement::Impossible(refused)
            }
        }
    }

    /// Returns true if the file alone decides that no node takes a pod. A live pool has the taints of its creation, so GPU nodes may
    /// lack GKE's taint, and somebody may label a node by hand.
    pub fn is_certain(&self, refused: &[(&PoolNodes<'_>, Vec<Refusal>)]) -> bool {
        let by_hand = |key: &str| !key.contains('/') && !self.labels.contains(key);
        let may_end = |refusal: &Refusal| match &refusal.reason {
            Reason::Taint { taint } => taint.key == GPU,
            _ => labels_of(refusal).any(by_hand),
        };
        !refused.iter().any(|(_, refusals)| refusals.iter().all(may_end))
    }

    /// Returns the pool that is nearest to taking a live pod, with the reasons why its new nodes certainly do not; `None` if the new
    /// nodes of some pool take it, or may take it.
    pub fn refusal_of(&self, pod: &Value) -> Option<PoolRefusal> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
        match self.place(&alone(admission().read(pod, namespace).ok()?)) {
            PodPlacement::Impossible(refused) => {
                let is_certain = self.is_certain(&refused);
                let (pool, refusals) = refused.into_iter().next().filter(|_| is_certain)?;
                Some(PoolRefusal { pool: pool.resource.address.clone(), refusals })
            }
            PodPlacement::Possible | PodPlacement::Near(..) => None,
        }
    }

    /// Returns the pools of which a new node takes a pod, or takes it if the node has as much free as estimated.
    pub fn takers(&self, pod: &PodRequirements) -> Vec<&PoolNodes<'r>> {
        self.pools.iter().filter(|pool| self.takes(pool, pod)).collect()
    }

    /// Returns the first of the [`Self::takers`].
    pub fn first_taker(&self, pod: &PodRequirements) -> Option<&PoolNodes<'r>> {
        self.pools.iter().find(|pool| self.takes(pool, pod))
    }

    /// Returns true if a new node of a pool takes a pod, or takes it if the node has as much free as estimated.
    pub fn takes(&self, pool: &PoolNodes<'_>, pod: &PodRequirements) -> bool {
        let name = pod.node_selector.get(POOL_LABEL);
        if names_compute_class(pod) || name.is_some_and(|name| *name != pool.settings.name) {
            return false;
        }
        let question = self.cluster.ask(pod);
        self.nodes(pool).any(|node| question.verdict(node).is_possible())
    }

    /// Asks which new nodes take a pod that may start in one of several forms.
    pub fn place_any<'p>(&'p self, forms: &[PodRequirements]) -> PodPlacement<'p, 'r> {
        let (mut near, mut refused) = (None, Vec::new());
        for form in forms {
            match self.place(form) {
                PodPlacement::Possible => return PodPlacement::Possible,
                PodPlacement::Near(pool, margins) => near = near.or(Some((pool, margins))),
                PodPlacement::Impossible(refusals) => refused.extend(refusals),
            }
        }
        match near {
            Some((pool, margins)) => PodPlacement::Near(pool, margins),
            None if refused.is_empty() => PodPlacement::Possible,
            None => PodPlacement::Impossible(refused),
        }
    }

    /// Returns the part of a verdict that does not depend on other objects in the cluster.
    fn answer(&self, pool: &PoolNodes<'_>, node: &Node, verdict: Fit) -> Answer {
        let refusals = match verdict {
            Fit::Fits => return Answer::Open,
            Fit::Near(margins) => return Answer::Near(margins),
            Fit::Refused(refusals) => refusals,
        };
        let (mut certain, mut near) = (Vec::new(), Vec::new());
        for refusal in refusals {
            match self.certainty(pool, node, &refusal) {
                Certainty::Certain => certain.push(refusal),
                Certainty::Estimated(margin) => near.push(margin),
                Certainty::Other => {}
                Certainty::OtherNodes => return Answer::Open,
            }
        }
        match (certain.is_empty(), near.is_empty()) {
            (false, _) => Answer::Refused(certain),
            (true, false) => Answer::Near(near),
            (true, true) => Answer::Open,
        }
    }

    fn nodes(&self, pool: &PoolNodes<'_>) -> impl Iterator<Item = &Node> {
        pool.nodes.iter().filter_map(|id| self.cluster.node(*id))
    }

    /// Returns the pool of a name.
    pub fn pool(&self, name: &str) -> Option<&PoolNodes<'r>> {
        self.pools.iter().find(|pool| pool.settings.name == name)
    }

    /// Puts pods on new nodes of a pool, the largest first, each on the first node that takes it. Uses at most `most` nodes, or
    /// as many as needed. Counts the pods that no node takes.
    pub fn pack(
        &self,
        pool: &PoolNodes<'_>,
        pods: &[(PodRequirements, u64)],
        most: Option<u64>,
        near: Near,
    ) -> Packing {
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
                self.fill((pod, near), &node, number, &mut left, &mut nodes);
            }
            let each = self.capacity((pod, near), empty, left);
            if each > 0 {
                let free = most.map_or(u64::MAX, |most| most - packing.nodes);
                let more = left.div_ceil(each).min(free);
                packing.nodes += more;
                self.fill((pod, near), empty, more, &mut left, &mut nodes);
            }
            packing.left += left;
        }
        packing
    }

    /// Puts pods on `number` equal nodes, lowers `left` by the placed pods, and adds the nodes to `filled`.
    fn fill(
        &self,
        (pod, near): (&PodRequirements, Near),
        node: &Node,
        number: u64,
        left: &mut u64,
        filled: &mut Vec<(Node, u64)>,
    ) {
        let each = self.capacity((pod, near), node, *left);
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

    /// Returns how many pods equal to `pod` a node takes, at most `most`.
    fn capacity(&self, (pod, near): (&PodRequirements, Near), node: &Node, most: u64) -> u64 {
        let question = self.cluster.ask(pod);
        let (mut node, mut count) = (node.clone(), 0);
        let fits = |node: &Node| match near {
            Near::Fits => question.verdict(node).is_possible(),
            Near::DoesNotFit => question.verdict(node) == Fit::Fits,
        };
        while count < most && fits(&node) {
            node.bind(Bound::running(pod.clone()));
            count += 1;
        }
        count
    }

    fn certainty(&self, pool: &PoolNodes<'_>, node: &Node, refusal: &Refusal) -> Certainty {
        let certain = |is_certain: bool| if is_certain { Certainty::Certain } else { Certainty::Other };
        let label = |is_known: bool| if is_known { Certainty::Certain } else { Certainty::OtherNodes };
        match &refusal.reason {
            Reason::Taint { taint } => {
                certain((taint.key != GPU || self.is_own) && !is_startup_taint(&taint.key))
            }
            Reason::Short { resource: Amount::Extended(name), .. } => {
                certain(name == GPU && !has_other_device_plugin(&pool.resource.body))
            }
            Reason::Short { resource: Amount::EphemeralStorage, .. }
                if has_local_ssds(&pool.settings.machine_type) =>
            {
                Certainty::Other
            }
            // The amounts of GKE's own pods are not published, and the file does not tell all that run.
            Reason::Short { resource, wanted, free, allocatable } if resource.is_measured() => {
                let slack = node.slack.as_ref().map_or(0, |slack| slack.get(resource));
                match *wanted > allocatable + slack {
                    true => Certainty::Certain,
                    false => Certainty::Estimated(Margin {
                        resource: resource.clone(),
                        wanted: *wanted,
                        free: *free,
                        path: refusal.path.clone(),
                    }),
                }
            }
            Reason::Short { .. } | Reason::Port { .. } => Certainty::Certain,
            Reason::Selector { key, .. } | Reason::NoDomain { topology_key: key } => {
                label(self.knows_label(pool, key))
            }
            Reason::Affinity { unmet } => label(unmet.iter().all(|requirement| match requirement {
                Some(Requirement { key, .. }) => self.knows_label(pool, key),
                None => true,
            })),
            _ => Certainty::Other,
        }
    }

    /// Returns true for a label that only GKE or a section sets. Then the file alone shows which nodes have it. Programs that label
    /// nodes, such as GPU feature discovery, use keys with the domain of their makers.
    fn knows_label(&self, pool: &PoolNodes<'_>, key: &str) -> bool {
        // `matchFields` have a field of the node, not a label.
        let is_plain = !key.contains('/') && key != "metadata.name";
        let is_of_section = self.labels.contains(key) || (self.is_own && is_plain);
        let is_of_purchase = key == SPOT_LABEL && pool.has_capacity_options;
        let is_zone = key.ends_with("/zone");
        (is_of_section || CERTAIN_LABELS.contains(&key))
            && !is_of_purchase
            && (!is_zone || pool.are_zones_known)
    }

    /// Returns the one pool whose new nodes take a pod, or may take it; `None` if there are several, or none.
    pub fn only_taker(&self, pod: &PodRequirements) -> Option<&PoolNodes<'r>> {
        let name = pod.node_selector.get(POOL_LABEL);
        if names_compute_class(pod) || (self.has_other_nodes && name.is_none()) {
            return None;
        }
        let question = self.cluster.ask(pod);
        // Most pools have another label; reasons are texts.
        let lacks_label = |pool: &PoolNodes<'_>, node: &Node| {
            pod.node_selector
                .iter()
                .any(|(key, wanted)| node.labels.get(key) != Some(wanted) && self.knows_label(pool, key))
        };
        let refuses = |pool: &PoolNodes<'_>, node: &Node| {
            lacks_label(pool, node)
                || (!question.takes(node)
                    && matches!(self.answer(pool, node, question.verdict(node)), Answer::Refused(_)))
        };
        let is_candidate = |pool: &&PoolNodes<'_>| name.is_none_or(|name| *name == pool.settings.name);
        let takes = |pool: &&PoolNodes<'_>| !self.nodes(pool).all(|node| refuses(pool, node));
        let mut takers = self.pools.iter().filter(is_candidate).filter(takes);
        takers.next().filter(|_| takers.next().is_none())
    }

    /// Returns the smallest machine type and boot disk (in GB) with which the pool takes a pod that is too large for it. The
    /// machine type is of the pool's series, has the same type of GPUs, and has no less of anything than the current one. A value
    /// that need not change is `None`.
    pub fn enlarged(
        &self,
        pool: &PoolNodes<'_>,
        pod: &PodRequirements,
    ) -> Option<(Option<&'static str>, Option<u32>)> {
        let own = catalog::machine(&pool.settings.machine_type)?;
        let size = |machine: &Machine| (machine.vcpus, machine.memory_gb.unwrap_or_default());
        let is_larger = |machine: &&Machine| {
            machine.series() == own.series() && machine.vcpus >= own.vcpus && size(machine).1 >= size(own).1
        };
        let mut machines: Vec<_> = catalog::machines().filter(is_larger).collect();
        machines.sort_by(|one, other| size(one).partial_cmp(&size(other)).unwrap_or(Ordering::Equal));
        let sizes = (1..=LARGEST_DISK_GB / DISK_STEP_GB).map(|steps| steps * DISK_STEP_GB);
        let larger = sizes.filter(|size| *size > pool.settings.disk_gib).map(Some);
        let mut disks = std::iter::once(None).chain(larger);
        disks.find_map(|disk| {
            machines.iter().find_map(|machine| {
                let settings = with_machine(&pool.settings, own, machine)?;
                let settings = Pool { disk_gib: disk.unwrap_or(settings.disk_gib), ..settings };
                let name = (machine.name != own.name).then_some(machine.name.as_str());
                self.takes_with(pool, &settings, pod).then_some((name, disk))
            })
        })
    }

    /// Returns true if a new node of a pool with these settings takes a pod.
    fn takes_with(&self, pool: &PoolNodes<'_>, settings: &Pool, pod: &PodRequirements) -> bool {
        let node = pool.nodes.iter().find_map(|id| self.cluster.node(*id));
        let zone = node.and_then(|node| node.labels.get("topology.kubernetes.io/zone"));
        let node = zone.and_then(|zone| template(settings, zone, self.features).ok());
        node.is_some_and(|node| self.cluster.ask(pod).verdict(&node) == Fit::Fits)
    }
}

/// Returns true for a taint that somebody takes away once a node is prepared. Sources: cluster-autoscaler,
/// `utils/taints/taints.go`; Cilium, "Considerations on Node Pool Taints and Unmanaged Pods".
fn is_startup_taint(key: &str) -> bool {
    const PREFIXES: [&str; 4] = [
        "startup-taint.cluster-autoscaler.kubernetes.io/",
        "status-taint.cluster-autoscaler.kubernetes.io/",
        "ignore-taint.cluster-autoscaler.kubernetes.io/",
        "node.cilium.io/agent-not-ready",
    ];
    PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns true if a pod selects nodes of a compute class.
fn names_compute_class(pod: &PodRequirements) -> bool {
    let terms = pod.node_terms.iter().flatten();
    let mut keys = terms.flat_map(|term| &term.expressions).map(|requirement| &requirement.key);
    pod.node_selector.contains_key(CLASS_LABEL) || keys.any(|key| key == CLASS_LABEL)
}

/// Returns the largest share of one of a node's resources that a pod requests, in millionths.
fn share(pod: &PodRequirements, node: &Node) -> i64 {
    let part = |request: &fit::Request| {
        let all = node.allocatable.get(&request.resource).max(1);
        request.amount.saturating_mul(1_000_000) / all
    };
    pod.requests.iter().map(part).max().unwrap_or_default()
}

/// Returns the settings of a pool with another machine type; `None` if its GPUs cannot be attached to that machine type.
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

/// Reads from the body of a node pool the settings that decide which pods its nodes take. `has_gpu_taint` is true if GKE adds the
/// taint `nvidia.com/gpu` to its GPU nodes.
pub fn settings(body: &Value, has_gpu_taint: bool) -> Pool {
    let pool = Pool { gpu_taint: has_gpu_taint, ..Pool::read(body) };
    match body["config"]["diskType"].is_null() {
        true => Pool { disk_type: default_disk(&pool.machine_type).to_owned(), ..pool },
        false => pool,
    }
}

/// Returns true if machines of a type always have local SSDs, which GKE may use as the scratch space of pods.
fn has_local_ssds(machine_type: &str) -> bool {
    let machine = catalog::machine(machine_type);
    machine_type.ends_with("-lssd")
        || machine.is_some_and(|machine| machine.local_ssds.is_some_and(|count| count > 0))
}

/// Returns true if a device plugin other than GKE's reports the GPUs of a pool's nodes.
fn has_other_device_plugin(body: &Value) -> bool {
    body["config"]["labels"][NO_DEVICE_PLUGIN] == "true"
}

/// Returns the zones of a pool's nodes, and true if they are known. Otherwise GKE chooses three zones of the region.
pub fn zones(pool: &Value, gke: &Resource, is_own: bool) -> (Vec<String>, bool) {
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
        return (vec![name.location.clone()], is_own);
    }
    let region = name.location.as_str();
    let zones: BTreeSet<String> = ["a", "b", "c"].iter().map(|zone| format!("{region}-{zone}")).collect();
    (zones.into_iter().collect(), false)
}
