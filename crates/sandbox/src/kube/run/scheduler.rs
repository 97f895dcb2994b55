//! The scheduler: filters and scores of kube-scheduler's default profile for what this sandbox holds
//! (node name, taints, node selector and affinity, resources, pod count, required affinity to pods of the same node), in its
//! order and its words. Other pod affinity and anti-affinity, topology spread, volumes, host ports and preemption are not
//! imitated.
//!
//! Recalled from `pkg/scheduler/framework/plugins`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::object::{
    annotation, is_deleted, is_finished, key, label, list, milli, name, namespace, set_condition, text,
};
use super::claim::{OWNER, consumed};
use super::events;
use super::round::Run;
use super::select::{node_allowed, node_term, tolerated, untolerated};
use model::quantity::Quantity;

const SCHEDULER: &str = "kube-scheduler";

/// The resource requests of a pod, in thousandths.
pub type Requests = BTreeMap<String, i64>;

/// The requests of a pod: the sum over its containers, or its largest init container; a limit without a
/// request is a request.
pub fn requests(spec: &Value) -> Requests {
    let mut sum = Requests::new();
    for container in list(spec, "/containers") {
        for (resource, amount) in container_requests(container) {
            *sum.entry(resource).or_default() += amount;
        }
    }
    for container in list(spec, "/initContainers") {
        let sidecar = text(container, "/restartPolicy") == "Always";
        for (resource, amount) in container_requests(container) {
            let held = sum.entry(resource).or_default();
            *held = if sidecar { *held + amount } else { (*held).max(amount) };
        }
    }
    for (resource, amount) in spec.get("overhead").and_then(Value::as_object).into_iter().flatten() {
        *sum.entry(resource.clone()).or_default() += Quantity::of(amount).map_or(0, Quantity::milli);
    }
    sum.retain(|_, amount| *amount > 0);
    sum
}

fn container_requests(container: &Value) -> Requests {
    let mut out = Requests::new();
    for list in ["limits", "requests"] {
        let amounts = container["resources"].get(list).and_then(Value::as_object);
        for (resource, amount) in amounts.into_iter().flatten() {
            out.insert(resource.clone(), Quantity::of(amount).map_or(0, Quantity::milli));
        }
    }
    out
}

/// A node and what is taken of it.
#[derive(Debug)]
pub struct Host<'a> {
    node: &'a Value,
    used: Requests,
    pods: i64,
    /// CPU and memory in use as scoring counts them.
    weight: [i64; 2],
    /// The pods that are bound to it.
    bound: Vec<&'a Value>,
}

/// Requests that scoring assumes for a container without CPU or memory requests: 100m and 200 MB, so that pods
/// without requests spread too (kube-scheduler's non-zero requests).
const ASSUMED: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024 * 1000)];

/// CPU and memory of a pod as scoring counts them.
fn weight(spec: &Value) -> [i64; 2] {
    ASSUMED.map(|(resource, assumed)| {
        let asked =
            |container: &Value| container_requests(container).get(resource).copied().unwrap_or(assumed);
        list(spec, "/containers").iter().map(asked).sum()
    })
}

/// Ways to cure a refusal: removing pods from the node, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Preemption,
    None,
}

/// Why a node does not take a pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    reasons: Vec<String>,
    remedy: Remedy,
}

impl Refusal {
    fn of_selector() -> Self {
        let reasons = vec!["node(s) didn't match Pod's node affinity/selector".to_owned()];
        Self { reasons, remedy: Remedy::None }
    }

    /// Why, in the scheduler's words.
    pub fn into_reasons(self) -> Vec<String> {
        self.reasons
    }
}

impl<'a> Host<'a> {
    /// The nodes with what the bound pods take of them.
    pub fn all(nodes: &[&'a Value], pods: &[&'a Value]) -> Vec<Self> {
        let empty = |node: &&'a Value| {
            let (used, bound) = (Requests::new(), Vec::new());
            Self { node, used, pods: 0, weight: [0; 2], bound }
        };
        let mut hosts: Vec<Self> = nodes.iter().map(empty).collect();
        for pod in pods.iter().filter(|pod| !is_finished(pod)) {
            let place = text(pod, "/spec/nodeName");
            if let Some(host) = hosts.iter_mut().find(|host| name(host.node) == place) {
                host.take(&pod["spec"]);
                host.bound.push(pod);
            }
        }
        hosts
    }

    /// Gives the node to a pod.
    pub fn take(&mut self, spec: &Value) {
        for (resource, amount) in requests(spec) {
            *self.used.entry(resource).or_default() += amount;
        }
        let [cpu, memory] = weight(spec);
        self.weight = [self.weight[0] + cpu, self.weight[1] + memory];
        self.pods += 1;
    }

    /// Checks that the node takes the pod; the first filter that refuses has the word.
    pub fn filter(&self, spec: &Value) -> Result<(), Refusal> {
        let never = |reason: String| Err(Refusal { reasons: vec![reason], remedy: Remedy::None });
        let tolerations = list(spec, "/tolerations");
        let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
        if self.node["spec"]["unschedulable"] == true && !tolerated(&cordon, tolerations) {
            return never("node(s) were unschedulable".to_owned());
        }
        if let Some(taint) = untolerated(self.node, tolerations, &["NoSchedule", "NoExecute"]) {
            let (key, value) = (text(taint, "/key"), text(taint, "/value"));
            return never(format!("node(s) had untolerated taint {{{key}: {value}}}"));
        }
        if !node_allowed(spec, self.node) {
            return Err(Refusal::of_selector());
        }
        self.fits(spec)?;
        if !self.has_company(spec) {
            return never("node(s) didn't match pod affinity rules".to_owned());
        }
        Ok(())
    }

    /// Returns true if the pods are there that a pod must run beside, by the labels of its terms. Not imitated: other
    /// topologies than the node, expressions, namespaces, and a first pod that only pods of its own kind would keep out.
    fn has_company(&self, spec: &Value) -> bool {
        let terms = list(spec, "/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution");
        terms.iter().filter(|term| text(term, "/topologyKey") == "kubernetes.io/hostname").all(|term| {
            let wanted = term.pointer("/labelSelector/matchLabels").and_then(Value::as_object);
            wanted.is_none_or(|wanted| {
                let fits = |pod: &Value| wanted.iter().all(|(key, value)| value == label(pod, key));
                self.bound.iter().any(|pod| fits(pod))
            })
        })
    }

    fn fits(&self, spec: &Value) -> Result<(), Refusal> {
        let allocatable = &self.node["status"]["allocatable"];
        let mut refusal = Refusal { reasons: Vec::new(), remedy: Remedy::Preemption };
        if (self.pods + 1) * 1000 > milli(allocatable, "pods") {
            refusal.reasons.push("Too many pods".to_owned());
        }
        let order =
            |resource: &str| ["cpu", "memory", "ephemeral-storage"].iter().position(|r| *r == resource);
        let mut wanted: Vec<(String, i64)> = requests(spec).into_iter().collect();
        wanted.sort_by_key(|(resource, _)| order(resource).unwrap_or(usize::MAX));
        for (resource, amount) in wanted {
            let all = milli(allocatable, &resource);
            if amount > all - self.used.get(&resource).copied().unwrap_or(0) {
                refusal.reasons.push(format!("Insufficient {resource}"));
                if amount > all {
                    refusal.remedy = Remedy::None;
                }
            }
        }
        if refusal.reasons.is_empty() { Ok(()) } else { Err(refusal) }
    }

    /// Share of CPU and memory that would stay free, in percent, as `LeastAllocated` scores.
    fn least_allocated(&self, wanted: [i64; 2]) -> i64 {
        let allocatable = &self.node["status"]["allocatable"];
        let share = |index: usize| {
            let all = milli(allocatable, ASSUMED[index].0);
            let used = self.weight[index] + wanted[index];
            if all == 0 || used > all { 0 } else { (all - used) * 100 / all }
        };
        i64::midpoint(share(0), share(1))
    }
}

/// The weights of preferred node affinity that a node earns.
fn preferred(spec: &Value, node: &Value) -> i64 {
    list(spec, "/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution")
        .iter()
        .filter(|term| node_term(&term["preference"], node))
        .map(|term| term["weight"].as_i64().unwrap_or(0))
        .sum()
}

/// Taints that only discourage, and that the pod does not tolerate.
fn discouraged(spec: &Value, node: &Value) -> i64 {
    let tolerations = list(spec, "/tolerations");
    let taints =
        list(node, "/spec/taints").iter().filter(|taint| text(taint, "/effect") == "PreferNoSchedule");
    i64::try_from(taints.filter(|taint| !tolerated(taint, tolerations)).count()).unwrap_or(0)
}

/// Picks the place of a pod among the hosts, or says in kube-scheduler's words why there is none. Nodes that were made for a
/// request are for pods that name it, which may run on others as well.
pub fn place(spec: &Value, request: Option<&str>, hosts: &[Host<'_>]) -> Result<usize, String> {
    if hosts.is_empty() {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let mut refusals = Vec::new();
    let mut open = Vec::new();
    for (index, host) in hosts.iter().enumerate() {
        let is_its = request
            .is_none_or(|request| annotation(host.node, OWNER).is_none_or(|made_for| made_for == request));
        match host.filter(spec).and_then(|()| if is_its { Ok(()) } else { Err(Refusal::of_selector()) }) {
            Ok(()) => open.push(index),
            Err(refusal) => refusals.push(refusal),
        }
    }
    let wanted = weight(spec);
    let most_preferred = open.iter().map(|&index| preferred(spec, hosts[index].node)).max().unwrap_or(0);
    let most_discouraged = open.iter().map(|&index| discouraged(spec, hosts[index].node)).max().unwrap_or(0);
    // Weights of the default profile: taints 3, node affinity 2, resources 1; each score is 0..100.
    let score = |index: usize| {
        let node = hosts[index].node;
        let affinity = if most_preferred > 0 { preferred(spec, node) * 100 / most_preferred } else { 0 };
        let taints =
            if most_discouraged > 0 { 100 - discouraged(spec, node) * 100 / most_discouraged } else { 100 };
        3 * taints + 2 * affinity + hosts[index].least_allocated(wanted)
    };
    let best =
        open.into_iter().min_by_key(|&index| (Reverse(score(index)), name(hosts[index].node).to_owned()));
    best.ok_or_else(|| message(hosts.len(), &refusals))
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 …. preemption: 0/3 nodes are available: ….`
fn message(nodes: usize, refusals: &[Refusal]) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut cures: BTreeMap<&str, usize> = BTreeMap::new();
    for refusal in refusals {
        for reason in &refusal.reasons {
            *reasons.entry(reason).or_default() += 1;
        }
        let remedy = match refusal.remedy {
            Remedy::Preemption => "No preemption victims found for incoming pod",
            Remedy::None => "Preemption is not helpful for scheduling",
        };
        *cures.entry(remedy).or_default() += 1;
    }
    let histogram = |counts: BTreeMap<&str, usize>| {
        let mut lines: Vec<String> =
            counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        lines.sort();
        lines.join(", ")
    };
    format!(
        "0/{nodes} nodes are available: {}. preemption: 0/{nodes} nodes are available: {}.",
        histogram(reasons),
        histogram(cures)
    )
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
    let mut hosts = Host::all(&nodes, &pods);
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
        match place(spec, consumed(run, pod), &hosts) {
            Ok(index) => {
                hosts[index].take(spec);
                bind(run, pod, name(hosts[index].node));
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
