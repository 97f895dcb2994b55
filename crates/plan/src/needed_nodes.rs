//! The nodes that the Pods of a stack need, by kube-scheduler's rules and the way of GKE's autoscaler: a pod that no node takes gets a
//! new node of the cheapest pool that would take it.
//!
//! It is an expectation: GKE may choose another pool, and Pods that are not of the stack need nodes, too.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::observe::inputs::Inputs;
use crate::{Action, Change};
use fit::gke::pool::Features;
use fit::gke::{system, template};
use fit::{Bound, Cluster, Node, NodeId, PodRequirements, groups};
use kinds::dask;
use kinds::gke::cluster::autopilot;
use kinds::gke::node_pool::{billed_node, inline_pool, node_bounds};
use kinds::gke::placement::{all_pod_templates, pod_count, settings, zones};
use kinds::json::text;
use model::address::FieldPath;
use model::resource::{Identity, KindId, Resource, World};

/// The changes of a plan by what they are to the API.
pub(crate) type ChangesByIdentity<'c> = BTreeMap<&'c Identity, &'c Change>;

/// Numbers of nodes by pool. Without workloads that change, the live numbers count.
pub(crate) struct NodeCounts(BTreeMap<String, u32>);

impl NodeCounts {
    pub(crate) fn get(&self, pool: &str) -> Option<u32> {
        self.0.get(pool).copied()
    }
}

/// Pods beyond this many are taken to be like the ones before: a plan must not take long for a number.
const MAX_PODS: usize = 5_000;

/// Kinds that make Pods which stay, or which run to their end.
const WORKLOADS: [&str; 8] =
    ["DaskCluster", "DaskJob", "DaskWorkerGroup", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"];

/// Returns the nodes of each autoscaled pool once all Pods of the stack have a place. Empty where nothing that makes Pods changes.
pub(crate) fn needed_nodes(inputs: &Inputs<'_>, changes: &ChangesByIdentity<'_>, region: &str) -> NodeCounts {
    let acts =
        |(identity, change): (&&Identity, &&Change)| change.action != Action::Keep && makes_pods(identity);
    // Most plans change nothing, and pay for no reading of Pods.
    if !changes.iter().any(acts) {
        return NodeCounts(BTreeMap::new());
    }
    let Some(pools_after) = PoolEstimates::of(inputs, changes, region) else {
        return NodeCounts(BTreeMap::new());
    };
    let pods = StackPods::of(inputs, changes);
    // Checks run before the workloads, and their nodes stay for these.
    let (first, then) = (pools_after.nodes_needed(&pods.checks), pools_after.nodes_needed(&pods.workloads));
    let most = |(pool, nodes): (String, u32)| {
        let nodes = nodes.max(first.get(&pool).copied().unwrap_or_default());
        (pool, nodes)
    };
    NodeCounts(then.into_iter().map(most).collect())
}

/// The Pods that a stack makes.
#[derive(Default)]
struct StackPods {
    checks: Vec<PodRequirements>,
    workloads: Vec<PodRequirements>,
}

impl StackPods {
    fn of(inputs: &Inputs<'_>, changes: &ChangesByIdentity<'_>) -> Self {
        let mut pods = Self::default();
        let stopped = &inputs.stop_state.stopped;
        for resource in inputs.desired.iter().filter(|resource| makes_pods(&resource.identity)) {
            let acts = changes.get(&resource.identity).is_some_and(|change| change.action != Action::Keep);
            // Finished, stopped and excluded resources have no Pods.
            let is_over = || inputs.world.find(&resource.identity).is_none_or(is_finished);
            if stopped.contains_key(&resource.identity) || !acts && is_over() {
                continue;
            }
            let list = if resource.kind == KindId::Check { &mut pods.checks } else { &mut pods.workloads };
            list.extend(pods_of(resource, inputs.world));
        }
        pods
    }
}

fn makes_pods(identity: &Identity) -> bool {
    match identity {
        Identity::Object(id) => WORKLOADS.contains(&id.gvk.kind.as_str()),
        Identity::Check(_) => true,
        Identity::Cluster(_) | Identity::NodePool { .. } => false,
    }
}

/// Returns true for a live job or Pod that has ended.
fn is_finished(live: &Value) -> bool {
    let status = &live["status"];
    let ended = |word: &str| matches!(word, "Succeeded" | "Failed" | "Successful");
    ended(text(&status["phase"])) || ended(text(&status["jobStatus"])) || !status["completionTime"].is_null()
}

/// Returns the Pods of a resource. Conditions on their neighbors and volumes are left to kube-scheduler.
fn pods_of(resource: &Resource, world: &World) -> impl Iterator<Item = PodRequirements> {
    let templates = all_pod_templates(resource).into_iter().filter(|template| !template.on_each_node);
    templates.flat_map(move |template| {
        let others = unmanaged_count(resource, &template.path, world);
        let count = usize::try_from(others.unwrap_or(template.count)).unwrap_or(MAX_PODS);
        let mut pod = template.requirements;
        (pod.spread, pod.gates) = Default::default();
        std::iter::repeat_n(pod, count.min(MAX_PODS))
    })
}

/// Returns the number of Pods of a template that the stack leaves to others, such as an autoscaler: the live one, else the one that it
/// is created with.
fn unmanaged_count(resource: &Resource, template: &FieldPath, world: &World) -> Option<u64> {
    if pod_count(&resource.body, template).is_some() {
        return None;
    }
    let live_group = || {
        let cluster = resource.identity.object().filter(|object| object.gvk == dask::api::cluster())?;
        let group = world.find(&Identity::Object(dask::api::default_group(cluster)))?;
        pod_count(group, template)
    };
    let live = || pod_count(world.find(&resource.identity)?, template);
    live_group().or_else(live).or_else(|| pod_count(&resource.create_only, template))
}

/// The nodes that are there and those that may come.
struct PoolEstimates {
    features: Features,
    pools: Vec<PoolEstimate>,
}

struct PoolEstimate {
    name: String,
    node: Node,
    /// US dollars per hour of a node.
    price: f64,
    least: u32,
    most: u32,
}

impl PoolEstimates {
    /// Returns the pools as they are after the apply. `None` where GKE makes the nodes, or where no pool is autoscaled.
    fn of(inputs: &Inputs<'_>, changes: &ChangesByIdentity<'_>, region: &str) -> Option<Self> {
        let gke = inputs.desired.iter().chain(inputs.external.iter().map(|external| &external.resource));
        let gke = gke.into_iter().find(|resource| matches!(resource.identity, Identity::Cluster(_)))?;
        if autopilot::is_on(&gke.body) {
            return None;
        }
        let features = Features::read(&gke.body);
        let first = inline_pool(&inputs.desired, &inputs.capacity_options)?;
        let has_gpu_taint = first.body["config"]["accelerators"].is_null();
        let deleted =
            |identity: &Identity| changes.get(identity).is_some_and(|change| change.action == Action::Delete);
        let is_pool =
            |resource: &&Resource| resource.identity.pool().is_some() && !deleted(&resource.identity);
        let pool = |resource: &Resource| {
            let settings = settings(&resource.body, has_gpu_taint);
            let (zones, _) = zones(&resource.body, gke, true);
            let node = template(&settings, zones.first()?, features).ok()?;
            let node_alone = billed_node(&resource.body).without_secondary_disks();
            let price = node_alone.price(inputs.prices, region);
            let price = if price.is_known() { price.usd } else { f64::MAX };
            let (least, most) = node_bounds(&resource.body)?;
            Some(PoolEstimate { name: resource.identity.pool()?.to_owned(), node, price, least, most })
        };
        let pools: Vec<PoolEstimate> = inputs.desired.iter().filter(is_pool).filter_map(pool).collect();
        pools.iter().any(|pool| pool.most > pool.least).then_some(Self { features, pools })
    }

    /// Returns the nodes of each pool once these Pods, and those of GKE itself, have a place.
    fn nodes_needed(&self, pods: &[PodRequirements]) -> BTreeMap<String, u32> {
        let mut cluster = Cluster::default();
        let mut owners = Vec::new();
        for (at, pool) in self.pools.iter().enumerate() {
            for _ in 0..pool.least {
                cluster.add(pool.node.clone());
                owners.push(at);
            }
        }
        let system = system::somewhere(self.features).into_iter().flat_map(|(number, pod)| {
            std::iter::repeat_n(pod.requirements(Vec::new()), usize::try_from(number).unwrap_or_default())
        });
        let all: Vec<PodRequirements> = system.chain(pods.iter().cloned()).take(MAX_PODS).collect();
        for group in groups(&all) {
            let Some(pod) = group.first().map(|at| &all[*at]) else { continue };
            self.place(pod, group.len(), &mut cluster, &mut owners);
        }
        let mut counts: BTreeMap<String, u32> =
            self.pools.iter().map(|pool| (pool.name.clone(), 0)).collect();
        for at in owners {
            *counts.entry(self.pools[at].name.clone()).or_default() += 1;
        }
        counts
    }

    /// Places equal Pods. A node that refused one of them refuses the next, as nothing leaves a node.
    fn place(&self, pod: &PodRequirements, number: usize, cluster: &mut Cluster, owners: &mut Vec<usize>) {
        let mut from = 0;
        for _ in 0..number {
            let taken = {
                let question = cluster.ask(pod);
                let mut nodes = cluster.nodes().enumerate().skip(from);
                nodes.find(|(_, (_, node))| question.takes(node)).map(|(at, (id, _))| (at, id))
            };
            let id = match taken {
                Some((at, id)) => {
                    from = at;
                    id
                }
                None => match self.new_node(pod, cluster, owners) {
                    Some(id) => id,
                    None => return,
                },
            };
            // The node is there: its number is from this cluster.
            let _ = cluster.bind(id, Bound::running(pod.clone()));
        }
    }

    /// Adds a node of the cheapest pool whose new node takes the Pod.
    fn new_node(
        &self,
        pod: &PodRequirements,
        cluster: &mut Cluster,
        owners: &mut Vec<usize>,
    ) -> Option<NodeId> {
        let is_open = |at: usize, pool: &PoolEstimate| {
            let there = owners.iter().filter(|owner| **owner == at).count();
            u32::try_from(there).is_ok_and(|there| there < pool.most)
        };
        let question = cluster.ask(pod);
        let open = self.pools.iter().enumerate().filter(|(at, pool)| is_open(*at, pool));
        let fitting = open.filter(|(_, pool)| question.takes(&pool.node));
        let (at, pool) = fitting.min_by(|(_, one), (_, other)| one.price.total_cmp(&other.price))?;
        owners.push(at);
        Some(cluster.add(pool.node.clone()))
    }
}
