//! The scheduler: the filters of kube-scheduler, by the crate `fit`, and the scores of its default profile for taints, node affinity and
//! free resources. Preemption is not imitated, and no other preferences.
//!
//! Nodes of GKE's pools carry GKE's own pods as well: those that are not imitated are counted, and no object shows them.
//!
//! Scores from memory of `pkg/scheduler/framework/plugins`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fit::gke::pool::{Driver, Features, Gpus, Pool};
use fit::gke::{self, system};
use fit::{
    Bound, Claim, Cluster, Effect, Labels, Node, NodeId, NodeTerm, PodRequirements, Resource, StorageClass,
    Toleration,
};
use model::address::FieldPath;
use model::quantity::Quantity;
use serde_json::{Value, json};

use super::super::object::{
    annotation, is_deleted, is_finished, key, label, list, milli, name, namespace, set_condition, text,
};
use super::super::store::Cluster as Store;
use super::claim::{OWNER, consumed};
use super::events;
use super::nodes::{ACCELERATOR_LABEL, POOL_LABEL};
use super::round::{PoolView, Run};

const SCHEDULER: &str = "kube-scheduler";
/// The namespace of GKE's own pods.
const SYSTEM: &str = "kube-system";

/// The resource requests of a pod, in thousandths.
pub type Requests = BTreeMap<String, i64>;

/// Returns what a pod of that spec asks for in all.
pub fn requests(spec: &Value) -> Requests {
    let amount = |request: &fit::Request| match request.resource {
        Resource::Cpu => request.amount,
        _ => request.amount.saturating_mul(1000),
    };
    asks(&json!({"spec": spec}))
        .requests
        .iter()
        .map(|one| (one.resource.name().to_owned(), amount(one)))
        .collect()
}

/// Returns the requirements of a pod, or of a pod template, on its node, with the tolerations that GKE adds. Gates are the business of others.
/// One that cannot be read, which the API takes none of, asks for nothing.
pub fn asks(pod: &Value) -> PodRequirements {
    let read = PodRequirements::read(pod, "default").unwrap_or_default().with_gke_tolerations();
    PodRequirements { gates: Vec::new(), ..read }
}

/// Returns the objects beside nodes and pods that decide on places, given those of a group and a resource. Nothing binds claims here: all
/// count as bound in time.
pub fn surroundings<'a>(
    objects: impl Fn(&'static str, &'static str) -> Vec<&'a Value>,
    pools: &[PoolView],
) -> Surroundings {
    let named = |object: &Value| (namespace(object).to_owned(), name(object).to_owned());
    let labels = |object: &Value| -> Labels {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    let volumes = objects("", "persistentvolumes");
    let claim = |claim: &Value| {
        let volume = volumes.iter().find(|volume| name(volume) == text(claim, "/spec/volumeName"));
        Some((named(claim), Claim::planned(claim, volume.copied()).ok()?))
    };
    let features = pools.first().map_or_else(Features::default, |view| view.features);
    let mut around = Cluster::default();
    around.namespaces =
        objects("", "namespaces").into_iter().map(|one| (name(one).to_owned(), labels(one))).collect();
    around.claims = objects("", "persistentvolumeclaims").into_iter().filter_map(claim).collect();
    around.classes = gke::storage_classes(Features { filestore_csi: true, ..features });
    let own = objects("storage.k8s.io", "storageclasses").into_iter();
    around.classes.extend(own.map(|class| (name(class).to_owned(), StorageClass::read(class))));
    around.default_class = Some(gke::DEFAULT_CLASS.to_owned());
    let daemon_sets =
        objects("apps", "daemonsets").into_iter().filter_map(|set| daemon_pod(set, features)).collect();
    Surroundings { cluster: around, features, daemon_sets }
}

/// Returns the pods of a DaemonSet; `None` for GKE's own, which are counted as GKE's pods.
fn daemon_pod(set: &Value, features: Features) -> Option<PodRequirements> {
    let gpus = Gpus { kind: String::new(), count: 1, partition: None, sharing: None, driver: Driver::None };
    let pool = Pool { gpus: Some(gpus), ..Pool::new("", "") };
    let is_gke = namespace(set) == SYSTEM
        && system::on_each_node(&pool, features).iter().any(|pod| pod.name == name(set));
    (!is_gke && !is_deleted(set)).then(|| asks(&set["spec"]["template"]))
}

/// The state around nodes and pods that decides on places.
#[derive(Clone, Default)]
pub struct Surroundings {
    cluster: Cluster,
    /// The features of the GKE cluster, for GKE's own pods on each node.
    features: Features,
    /// The pods of DaemonSets.
    daemon_sets: Vec<PodRequirements>,
}

/// Returns such objects of a store.
pub fn surroundings_of(store: &Store, pools: &[PoolView]) -> Surroundings {
    surroundings(|group, resource| store.list(group, resource).map(|(_, object)| object).collect(), pools)
}

/// Nodes and what is taken of them.
pub struct Hosts<'a> {
    nodes: Vec<&'a Value>,
    ids: Vec<NodeId>,
    cluster: Cluster,
    features: Features,
    daemon_sets: Vec<PodRequirements>,
    /// CPU and memory in use as scoring counts them.
    weights: Vec<[i64; 2]>,
}

/// Requests that scoring assumes for a container without CPU or memory requests: 100m and 200 MB, so that pods
/// without requests spread too (kube-scheduler's non-zero requests).
const ASSUMED: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024 * 1000)];

/// CPU and memory of a pod as scoring counts them.
fn weight(spec: &Value) -> [i64; 2] {
    ASSUMED.map(|(resource, assumed)| {
        let given = |container: &Value, list: &str| {
            container["resources"][list].get(resource).and_then(Quantity::of).map(Quantity::milli)
        };
        let asked = |container: &Value| {
            given(container, "requests").or_else(|| given(container, "limits")).unwrap_or(assumed)
        };
        list(spec, "/containers").iter().map(asked).sum()
    })
}

/// The pods of GKE that each node of its pools has, and that are not among those of the node.
fn system_pods(node: &Value, there: &BTreeSet<&str>, features: Features) -> Vec<system::SystemPod> {
    if label(node, POOL_LABEL).is_empty() {
        return Vec::new();
    }
    let read = Node::read(node);
    let gpus = read.labels.get(ACCELERATOR_LABEL).map(|kind| Gpus {
        kind: kind.clone(),
        count: 1,
        partition: None,
        sharing: None,
        driver: Driver::None,
    });
    let version = text(node, "/status/nodeInfo/kubeletVersion");
    let pool = Pool {
        gpus,
        gvisor: read.labels.contains_key("sandbox.gke.io/runtime"),
        minor: version.split('.').nth(1).and_then(|minor| minor.parse().ok()),
        labels: read.labels,
        ..Pool::new("", "")
    };
    let mut all = system::on_each_node(&pool, features);
    all.retain(|pod| !there.iter().any(|name| name.starts_with(pod.name)));
    all
}

impl<'a> Hosts<'a> {
    /// The nodes with what the bound pods take of them.
    pub fn new(nodes: &[&'a Value], pods: &[&Value], around: Surroundings) -> Self {
        let mut on: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !is_finished(pod)) {
            on.entry(text(pod, "/spec/nodeName")).or_default().push(pod);
        }
        let Surroundings { cluster, features, daemon_sets } = around;
        let (ids, weights) = (Vec::new(), Vec::new());
        let mut hosts = Self { nodes: nodes.to_vec(), ids, cluster, features, daemon_sets, weights };
        for node in nodes {
            let bound = on.get(name(node)).map_or(&[][..], Vec::as_slice);
            hosts.add(node, bound);
        }
        hosts
    }

    /// New nodes, with the pods of DaemonSets that they take, as the cluster autoscaler counts. Source:
    /// `simulator/node_info_utils.go` of cluster-autoscaler.
    pub fn of_new(nodes: &[&'a Value], around: Surroundings) -> Self {
        let mut hosts = Self::new(nodes, &[], around);
        hosts.take_daemon_pods(0..nodes.len());
        hosts
    }

    /// Gives new nodes to the pods of DaemonSets that they take.
    pub fn take_daemon_pods(&mut self, new: impl IntoIterator<Item = usize>) {
        let pods = std::mem::take(&mut self.daemon_sets);
        for index in new {
            for pod in &pods {
                if self.first(pod, [index]).is_some() {
                    self.take(index, pod, &Value::Null);
                }
            }
        }
        self.daemon_sets = pods;
    }

    fn add(&mut self, node: &Value, bound: &[&Value]) {
        let of_gke = bound.iter().filter(|pod| namespace(pod) == SYSTEM).map(|pod| name(pod)).collect();
        let (mut read, mut weights) = (Node::read(node), [0, 0]);
        for pod in system_pods(node, &of_gke, self.features) {
            weights = [weights[0] + pod.cpu, weights[1] + pod.memory * 1000];
            read.bind(Bound::running(pod.requirements(vec![Toleration::everything()])));
        }
        for pod in bound {
            let [cpu, memory] = weight(&pod["spec"]);
            weights = [weights[0] + cpu, weights[1] + memory];
            read.bind(Bound { terminating: is_deleted(pod), ..Bound::running(asks(pod)) });
        }
        self.ids.push(self.cluster.add(read));
        self.weights.push(weights);
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    fn node(&self, index: usize) -> Option<&Node> {
        self.cluster.node(*self.ids.get(index)?)
    }

    /// The first of some hosts that takes a pod.
    pub fn first(&self, pod: &PodRequirements, among: impl IntoIterator<Item = usize>) -> Option<usize> {
        self.taking(pod, among).next()
    }

    /// The hosts of some that take a pod.
    pub fn taking<'h>(
        &'h self,
        pod: &'h PodRequirements,
        among: impl IntoIterator<Item = usize> + 'h,
    ) -> impl Iterator<Item = usize> + 'h {
        let question = self.cluster.ask(pod);
        among.into_iter().filter(move |index| self.node(*index).is_some_and(|node| question.takes(node)))
    }

    /// The reasons why a host does not take a pod, in the scheduler's words; none when it does.
    pub fn words(&self, pod: &PodRequirements, index: usize) -> Vec<String> {
        self.node(index).map(|node| self.cluster.ask(pod).words(node)).unwrap_or_default()
    }

    /// Gives a host to a pod.
    pub fn take(&mut self, index: usize, pod: &PodRequirements, spec: &Value) {
        let [cpu, memory] = weight(spec);
        if let Some([of_cpu, of_memory]) = self.weights.get_mut(index) {
            (*of_cpu, *of_memory) = (*of_cpu + cpu, *of_memory + memory);
        }
        if let Some(id) = self.ids.get(index) {
            // Its ids are those of its nodes.
            let _ = self.cluster.bind(*id, Bound::running(Arc::new(pod.clone())));
        }
    }

    /// Share of CPU and memory that would stay free, in percent, as `LeastAllocated` scores.
    fn least_allocated(&self, index: usize, wanted: [i64; 2]) -> i64 {
        let allocatable = &self.nodes[index]["status"]["allocatable"];
        let share = |place: usize| {
            let all = milli(allocatable, ASSUMED[place].0);
            let used = self.weights[index][place] + wanted[place];
            if all == 0 || used > all { 0 } else { (all - used) * 100 / all }
        };
        i64::midpoint(share(0), share(1))
    }

    /// The weights of preferred node affinity that a host earns.
    fn preferred(&self, index: usize, preferences: &[(NodeTerm, i64)]) -> i64 {
        let Some(node) = self.node(index) else { return 0 };
        let earned = preferences.iter().filter(|(term, _)| term.check(&node.labels, &node.name).is_ok());
        earned.map(|(_, weight)| weight).sum()
    }

    /// Taints that only discourage, and that the pod does not tolerate.
    fn discouraged(&self, index: usize, pod: &PodRequirements) -> i64 {
        let taints = self.node(index).into_iter().flat_map(|node| &node.taints);
        let soft = taints.filter(|taint| taint.effect == Effect::PreferNoSchedule);
        let tolerates = |taint: &fit::Taint| pod.tolerations.iter().any(|one| one.tolerates(taint));
        i64::try_from(soft.filter(|taint| !tolerates(taint)).count()).unwrap_or(0)
    }
}

/// The terms of preferred node affinity with their weights.
fn preferences(spec: &Value) -> Vec<(NodeTerm, i64)> {
    let all = list(spec, "/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution").iter();
    let read = |term: &Value| {
        let read = NodeTerm::read(&term["preference"], &FieldPath::root()).ok()?;
        Some((read, term["weight"].as_i64().unwrap_or(0)))
    };
    all.filter_map(read).collect()
}

/// Ways to cure a refusal: removing pods from the node, or none.
const PREEMPTION: &str = "No preemption victims found for incoming pod";
const NO_CURE: &str = "Preemption is not helpful for scheduling";

/// Picks the place of a pod among the hosts, or says in kube-scheduler's words why there is none. Nodes that were made for a
/// request are for pods that name it, which may run on others as well.
pub fn place(pod: &Value, request: Option<&str>, hosts: &Hosts<'_>) -> Result<usize, String> {
    if hosts.len() == 0 {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let (asked, spec) = (asks(pod), &pod["spec"]);
    let question = hosts.cluster.ask(&asked);
    let (mut open, mut reasons, mut cures) = (Vec::new(), Vec::new(), Vec::new());
    for (index, node) in hosts.nodes.iter().enumerate() {
        let is_its =
            request.is_none_or(|request| annotation(node, OWNER).is_none_or(|made_for| made_for == request));
        match hosts.node(index).filter(|host| !question.takes(host)) {
            Some(host) => {
                reasons.extend(question.words(host));
                cures.push(if question.is_preemptible(host) { PREEMPTION } else { NO_CURE });
            }
            None if is_its => open.push(index),
            None => {
                reasons.push("node(s) didn't match Pod's node affinity/selector".to_owned());
                cures.push(NO_CURE);
            }
        }
    }
    let (wanted, preferences) = (weight(spec), preferences(spec));
    let most = |of: &dyn Fn(usize) -> i64| open.iter().map(|index| of(*index)).max().unwrap_or(0);
    let preferred = |index| hosts.preferred(index, &preferences);
    let discouraged = |index| hosts.discouraged(index, &asked);
    let (most_preferred, most_discouraged) = (most(&preferred), most(&discouraged));
    // Weights of the default profile: taints 3, node affinity 2, resources 1; each score is 0..100.
    let score = |index: usize| {
        let affinity = if most_preferred > 0 { preferred(index) * 100 / most_preferred } else { 0 };
        let taints =
            if most_discouraged > 0 { 100 - discouraged(index) * 100 / most_discouraged } else { 100 };
        3 * taints + 2 * affinity + hosts.least_allocated(index, wanted)
    };
    let best = open
        .iter()
        .copied()
        .min_by_key(|&index| (Reverse(score(index)), name(hosts.nodes[index]).to_owned()));
    best.ok_or_else(|| message(hosts.len(), question.words_for_all(), reasons, cures))
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 …. preemption: 0/3 nodes are available: ….`
fn message(nodes: usize, of_pod: Option<String>, reasons: Vec<String>, cures: Vec<&str>) -> String {
    let why = of_pod.unwrap_or_else(|| histogram(reasons));
    let cures = histogram(cures.into_iter().map(str::to_owned).collect());
    format!("0/{nodes} nodes are available: {why}. preemption: 0/{nodes} nodes are available: {cures}.")
}

/// Texts with their numbers.
fn histogram(texts: Vec<String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    let mut lines: Vec<String> = counts.iter().map(|(text, count)| format!("{count} {text}")).collect();
    lines.sort();
    lines.join(", ")
}

/// One round: binds what can be bound, oldest first within a priority, and says why the rest waits.
pub fn run(run: &mut Run<'_>) {
    let pods = run.objects("", "pods");
    let waiting =
        |pod: &&&Value| text(pod, "/spec/nodeName").is_empty() && !is_deleted(pod) && !is_finished(pod);
    let mut pending: Vec<&Value> = pods.iter().filter(waiting).copied().collect();
    if pending.is_empty() {
        return;
    }
    let nodes = run.objects("", "nodes");
    let around = surroundings(|group, resource| run.objects(group, resource), run.pools);
    let mut hosts = Hosts::new(&nodes, &pods, around);
    pending.sort_by_key(|pod| {
        let priority = pod["spec"]["priority"].as_i64().unwrap_or(0);
        (Reverse(priority), text(pod, "/metadata/creationTimestamp"), namespace(pod), name(pod))
    });
    for pod in pending {
        let spec = &pod["spec"];
        if !list(spec, "/schedulingGates").is_empty() {
            refuse(run, pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates");
            continue;
        }
        if !matches!(text(spec, "/schedulerName"), "" | "default-scheduler") {
            continue;
        }
        match place(pod, consumed(run, pod), &hosts) {
            Ok(index) => {
                hosts.take(index, &asks(pod), spec);
                bind(run, pod, name(nodes[index]));
            }
            Err(why) => refuse(run, pod, "Unschedulable", &why),
        }
    }
}

fn bind(run: &mut Run<'_>, pod: &Value, node: &str) {
    run.bind(key("", "pods", pod), node.to_owned());
    let message = format!("Successfully assigned {}/{} to {node}", namespace(pod), name(pod));
    events::emit(run, pod, events::Level::Normal, "Scheduled", "default-scheduler", &message);
}

fn refuse(run: &mut Run<'_>, pod: &Value, reason: &str, message: &str) {
    let known = list(pod, "/status/conditions").iter().find(|condition| condition["type"] == "PodScheduled");
    if known.is_some_and(|known| text(known, "/reason") == reason && text(known, "/message") == message) {
        return;
    }
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastProbeTime": null,
    });
    set_status(run, pod, condition);
    if reason == "Unschedulable" {
        events::emit(run, pod, events::Level::Warning, "FailedScheduling", "default-scheduler", message);
    }
}

fn set_status(run: &mut Run<'_>, pod: &Value, condition: Value) {
    let mut status =
        pod.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
    let mut conditions = list(pod, "/status/conditions").to_vec();
    set_condition(&mut conditions, condition, run.now);
    if status.get("phase").is_none() {
        status["phase"] = json!("Pending");
    }
    status["conditions"] = Value::Array(conditions);
    run.status(SCHEDULER, key("", "pods", pod), pod, status);
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
