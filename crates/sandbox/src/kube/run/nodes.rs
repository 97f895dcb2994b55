//! Nodes: what GKE makes of its node pools, and what their agents report. A node that its pool's
//! settings no longer describe is made anew, by surge, as GKE's upgrades do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::object::{
    Key, annotation, hex, is_true, label, letters, list, milli, name, number, reference_to, set_condition,
    text, time, uid,
};
use super::events;
use super::round::{PoolView, Run};
use super::stages::stages;
use fit::gke::pool::{Gpus, Pool};
use fit::{Taint, gke};

/// The field manager that registers nodes and writes their status.
const KUBELET: &str = "kubelet";
/// GKE's own writer of labels and taints on live nodes.
const GKE: &str = "gke-node-controller";
/// The label that says which pool a node belongs to.
pub const POOL_LABEL: &str = "cloud.google.com/gke-nodepool";
/// Present on nodes where GKE installs the driver itself: `default` or `latest`.
pub const DRIVER_LABEL: &str = "cloud.google.com/gke-gpu-driver-version";
/// The type of the node's GPUs.
pub const ACCELERATOR_LABEL: &str = "cloud.google.com/gke-accelerator";
const LABELS_APPLIED: &str = "node.gke.io/last-applied-node-labels";
const TAINTS_APPLIED: &str = "node.gke.io/last-applied-node-taints";
/// Where a node says how many GPUs pods may have.
const GPU: &str = "/status/allocatable/nvidia.com~1gpu";
const LEASES: &str = "kube-node-lease";
/// The taint of a node whose agents have not reported yet.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The work of a live node's agents, given its pool.
type Agents = fn(&mut Run<'_>, &PoolView, &Value);

/// One round: registers, replaces and removes nodes, and lets the live ones report.
pub fn run(run: &mut Run<'_>) {
    follow_pools(run, report);
}

/// Runs such a round for nodes whose agents and controllers are not imitated: those nodes become Ready on their own,
/// and what GKE does remains.
pub fn run_beside_agents(run: &mut Run<'_>) {
    follow_pools(run, report_gpus_alone);
}

fn follow_pools(run: &mut Run<'_>, agents: Agents) {
    let nodes = run.objects("", "nodes");
    let mut used = UsedNames::new(&nodes);
    for view in run.pools {
        for (zone, size) in &view.target_sizes {
            let size = if view.deleting { 0 } else { usize::try_from(*size).unwrap_or(usize::MAX) };
            size_zone(run, view, zone, size, &nodes, &mut used);
        }
    }
    for node in nodes {
        let view = run.pools.iter().find(|view| text(&view.pool, "/name") == label(node, POOL_LABEL));
        match view {
            Some(view) if view.target_sizes.contains_key(zone_of(node)) => {
                apply_labels_and_taints(run, view, node);
                agents(run, view, node);
            }
            // Nodes that no pool made belong to whoever made them.
            None if label(node, POOL_LABEL).is_empty() => {}
            _ => remove(run, node),
        }
    }
}

pub(super) fn zone_of(node: &Value) -> &str {
    label(node, "topology.kubernetes.io/zone")
}

fn is_ready(node: &Value) -> bool {
    is_true(node, "Ready")
}

/// Brings one zone of a pool to its size, and replaces nodes whose machine is out of date.
fn size_zone(
    run: &mut Run<'_>,
    view: &PoolView,
    zone: &str,
    size: usize,
    nodes: &[&Value],
    used: &mut UsedNames,
) {
    let pool = text(&view.pool, "/name");
    let mine = nodes.iter().filter(|node| label(node, POOL_LABEL) == pool && zone_of(node) == zone);
    let wanted = machine_of(&node_object(view, zone, ""));
    let (mut current, mut old): (Vec<&Value>, Vec<&Value>) =
        mine.partition(|node| machine_of(node) == wanted);
    // The instance group takes the newest ones first.
    current.sort_by_key(|node| (text(node, "/metadata/creationTimestamp"), name(node)));
    old.sort_by_key(|node| (text(node, "/metadata/creationTimestamp"), name(node)));
    let setting = |field: &str| number(&view.pool, &format!("/upgradeSettings/{field}"));
    let count = |number: i64| usize::try_from(number).unwrap_or(0);
    let unavailable = count(setting("maxUnavailable").unwrap_or(0));
    let surge =
        setting("maxSurge").map_or(usize::from(unavailable == 0), count).max(usize::from(unavailable == 0));
    let limit = if old.is_empty() { size } else { size + surge };
    let total = current.len() + old.len();
    let missing = limit.saturating_sub(total).min(size.saturating_sub(current.len()));
    for _ in 0..missing {
        let node = used.register(run, view, zone);
        run.create(KUBELET, node);
    }
    let ready = current.iter().filter(|node| is_ready(node)).count();
    let spare =
        (ready + old.len()).saturating_sub(size.saturating_sub(if old.is_empty() { 0 } else { unavailable }));
    let old_to_go = if size == 0 { old.len() } else { spare.min(old.len()) };
    for node in old.iter().rev().take(old_to_go) {
        remove(run, node);
    }
    let surplus = current.len().saturating_sub(size);
    for node in current.iter().rev().take(surplus) {
        remove(run, node);
    }
}

fn remove(run: &mut Run<'_>, node: &Value) {
    events::emit(
        run,
        node,
        events::Level::Normal,
        "RemovingNode",
        "node-controller",
        &format!("Node {} event: Removing Node {} from Controller", name(node), name(node)),
    );
    run.delete(Key::new("", "nodes", "", name(node)));
}

/// Names and addresses in use.
struct UsedNames {
    names: BTreeSet<String>,
    cidrs: BTreeSet<String>,
    addresses: BTreeSet<String>,
}

impl UsedNames {
    fn new(nodes: &[&Value]) -> Self {
        let address =
            |node: &&Value| list(node, "/status/addresses").first().map(|a| text(a, "/address").to_owned());
        Self {
            names: nodes.iter().map(|node| name(node).to_owned()).collect(),
            cidrs: nodes.iter().map(|node| text(node, "/spec/podCIDR").to_owned()).collect(),
            addresses: nodes.iter().filter_map(address).collect(),
        }
    }

    /// A new node with a name, an address and a pod range that no other has.
    fn register(&mut self, run: &Run<'_>, view: &PoolView, zone: &str) -> Value {
        let revision = run.revision();
        let mut fresh = (0_u32..).map(|try_| {
            let suffix = letters(&format!("{}/{zone}/{revision}/{try_}", view.instance_prefix), 4);
            format!("{}-{suffix}", view.instance_prefix)
        });
        let name = fresh.find(|name| self.names.insert(name.clone())).unwrap_or_default();
        let mut ranges = (0_u32..1024).map(|n| format!("10.{}.{}.0/24", 44 + n / 256, n % 256));
        let cidr = ranges.find(|range| self.cidrs.insert(range.clone())).unwrap_or_default();
        let mut hosts = (2_u32..60_000).map(|n| format!("10.128.{}.{}", n / 256, n % 256));
        let address = hosts.find(|host| self.addresses.insert(host.clone())).unwrap_or_default();
        let mut node = node_object(view, zone, &name);
        node["spec"]["podCIDR"] = json!(cidr);
        node["spec"]["podCIDRs"] = json!([cidr]);
        node["status"]["addresses"] = json!([
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ]);
        set_conditions(&mut node, Readiness::NotReady, run);
        node
    }
}

/// A Node as it registers, without addresses and conditions.
pub fn node_object(view: &PoolView, zone: &str, name: &str) -> Value {
    let pool = &view.pool;
    let config = &pool["config"];
    let project = text(pool, "/selfLink").split("/projects/").nth(1).and_then(|rest| rest.split('/').next());
    let own = own_labels(pool);
    let taints_applied = taints_text(&own_taints(pool));
    let (made, capacity) = made(view, zone, name);
    let mut taints: Vec<Value> = made.taints.iter().map(taint_of).collect();
    taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    let version = text(pool, "/version");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "labels": made.labels,
            "annotations": {
                "container.googleapis.com/instance_id": instance_id(name),
                LABELS_APPLIED: labels_text(&own),
                TAINTS_APPLIED: taints_applied,
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"providerID": format!("gce://{}/{zone}/{name}", project.unwrap_or_default()), "taints": taints},
        "status": {
            "capacity": amounts(&capacity, Cpus::Whole), "allocatable": amounts(&made.allocatable, Cpus::Thousandths),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": made.labels.get("kubernetes.io/arch"), "operatingSystem": "linux",
                "osImage": os_image(text(config, "/imageType")),
                "kernelVersion": "6.6.97+", "containerRuntimeVersion": "containerd://2.0.6",
                "kubeletVersion": format!("v{version}"), "kubeProxyVersion": "",
                "bootID": uuid(&format!("{name} boot")), "machineID": hex(name, 32), "systemUUID": uuid(name),
            },
        },
    })
}

/// Returns the parts that cannot change on a live node: GKE's own labels, sizes and versions.
fn machine_of(node: &Value) -> Value {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let system = |key: &str| {
        (key.starts_with("cloud.google.com/") || key == "node.kubernetes.io/instance-type")
            && !labels_from_text(annotation(node, LABELS_APPLIED).unwrap_or_default()).contains_key(key)
    };
    let labels: Map<String, Value> = labels
        .into_iter()
        .flatten()
        .filter(|(key, _)| system(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    // By number: a real API server writes 102400Ki as 100Mi.
    let capacity = ["cpu", "memory", "ephemeral-storage", "pods"]
        .map(|resource| milli(&node["status"]["capacity"], resource));
    let info = &node["status"]["nodeInfo"];
    json!([labels, capacity, info["kubeletVersion"], info["osImage"]])
}

fn os_image(image_type: &str) -> &'static str {
    if image_type.to_ascii_uppercase().starts_with("UBUNTU") {
        "Ubuntu 24.04.3 LTS"
    } else {
        "Container-Optimized OS from Google"
    }
}

/// A UUID that follows from a text.
fn uuid(seed: &str) -> String {
    let digits = hex(seed, 32);
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

/// Nineteen digits, as Compute Engine numbers instances.
fn instance_id(name: &str) -> String {
    let number = u64::from_str_radix(&hex(name, 15), 16).unwrap_or(0);
    format!("{:019}", number % 9_000_000_000_000_000_000 + 1_000_000_000_000_000_000)
}

/// Returns the node that GKE makes for a pool, and its capacity. Machines and partitions that nobody knows count as GKE's default and as
/// none.
fn made(view: &PoolView, zone: &str, name: &str) -> (fit::Node, fit::Amounts) {
    let read = Pool::read(&view.pool);
    let of = |pool: &Pool| {
        let node = gke::node(pool, zone, name, view.features).ok()?;
        Some((node, gke::capacity(pool).ok()?))
    };
    let unpartitioned =
        Pool { gpus: read.gpus.clone().map(|gpus| Gpus { partition: None, ..gpus }), ..read.clone() };
    let unknown = || {
        let (mut node, capacity) =
            of(&Pool { machine_type: "e2-medium".to_owned(), ..unpartitioned.clone() })?;
        for key in ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"] {
            node.labels.insert(key.to_owned(), read.machine_type.clone());
        }
        Some((node, capacity))
    };
    let (mut node, capacity) = of(&read).or_else(|| of(&unpartitioned)).or_else(unknown).unwrap_or_default();
    // Devices show when their plugin reports them; the kernel has the huge pages from its boot on.
    node.allocatable.extended.retain(|resource, _| resource.starts_with("hugepages-"));
    // A pool may have both kinds of waiting.
    if view.pool["config"]["flexStart"] == true {
        node.labels.insert("cloud.google.com/gke-flex-start".to_owned(), "true".to_owned());
    }
    (node, capacity)
}

/// The way in which CPUs are written.
#[derive(Clone, Copy)]
enum Cpus {
    Whole,
    Thousandths,
}

/// Amounts as the kubelet writes them.
fn amounts(all: &fit::Amounts, cpus: Cpus) -> Value {
    let (cpu, disk) = match cpus {
        Cpus::Whole => ((all.cpu / 1000).to_string(), format!("{}Ki", all.ephemeral_storage / 1024)),
        Cpus::Thousandths => (format!("{}m", all.cpu), all.ephemeral_storage.to_string()),
    };
    let huge = |name: &str| match all.extended.get(name) {
        Some(bytes) => format!("{}Mi", bytes >> 20),
        None => "0".to_owned(),
    };
    json!({
        "cpu": cpu, "memory": format!("{}Ki", all.memory / 1024), "ephemeral-storage": disk, "pods": all.pods.to_string(),
        "hugepages-1Gi": huge("hugepages-1Gi"), "hugepages-2Mi": huge("hugepages-2Mi"),
    })
}

fn taint_of(taint: &Taint) -> Value {
    let mut out = json!({"key": taint.key, "effect": taint.effect.name()});
    if !taint.value.is_empty() {
        out["value"] = json!(taint.value);
    }
    out
}

/// Returns how many `nvidia.com/gpu` a node of a pool has once its driver is there.
pub fn gpus(pool: &Value) -> i64 {
    let Some(gpus) = Pool::read(pool).gpus else { return 0 };
    gpus.allocatable().or_else(|_| Gpus { partition: None, ..gpus }.allocatable()).unwrap_or(0)
}

/// The pool's own Kubernetes labels.
fn own_labels(pool: &Value) -> BTreeMap<String, Value> {
    let labels = pool.pointer("/config/labels").and_then(Value::as_object);
    labels.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The pool's taints as Kubernetes writes them.
fn own_taints(pool: &Value) -> Vec<Value> {
    Pool::read(pool).taints.iter().map(taint_of).collect()
}

fn labels_text(labels: &BTreeMap<String, Value>) -> String {
    let pairs: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.join(",")
}

fn labels_from_text(text: &str) -> BTreeMap<&str, &str> {
    text.split(',').filter_map(|pair| pair.split_once('=')).collect()
}

fn taint_text(taint: &Value) -> String {
    format!("{}={}:{}", text(taint, "/key"), text(taint, "/value"), text(taint, "/effect"))
}

fn taints_text(taints: &[Value]) -> String {
    taints.iter().map(taint_text).collect::<Vec<_>>().join(",")
}

/// Labels and taints of a pool reach its live nodes; what others have put there stays.
fn apply_labels_and_taints(run: &mut Run<'_>, view: &PoolView, node: &Value) {
    let labels = own_labels(&view.pool);
    let taints = own_taints(&view.pool);
    let (labels_new, taints_new) = (labels_text(&labels), taints_text(&taints));
    let labels_old = annotation(node, LABELS_APPLIED).unwrap_or_default();
    let taints_old = annotation(node, TAINTS_APPLIED).unwrap_or_default();
    if labels_new == labels_old && taints_new == taints_old {
        return;
    }
    let mut patch: Map<String, Value> =
        labels_from_text(labels_old).into_keys().map(|key| (key.to_owned(), Value::Null)).collect();
    patch.extend(labels);
    let gone: BTreeSet<&str> = taints_old.split(',').collect();
    let mut merged = taints.clone();
    for taint in list(node, "/spec/taints") {
        if !gone.contains(taint_text(taint).as_str()) && !merged.contains(taint) {
            merged.push(taint.clone());
        }
    }
    run.merge(
        GKE,
        Key::new("", "nodes", "", name(node)),
        json!({
            "metadata": {
                "labels": patch,
                "annotations": {LABELS_APPLIED: labels_new, TAINTS_APPLIED: taints_new},
            },
            "spec": {"taints": if merged.is_empty() { Value::Null } else { Value::Array(merged) }},
        }),
    );
}

/// The kubelet's Lease. It is made and not renewed: heartbeats would be writes for nobody.
fn make_lease(run: &mut Run<'_>, node: &Value) {
    if run.get("coordination.k8s.io", "leases", LEASES, name(node)).is_some() {
        return;
    }
    let mut owner = reference_to(node);
    super::super::object::merge(&mut owner, &json!({"controller": null, "blockOwnerDeletion": null}));
    let renewed = format!("{}.000000Z", time(run.now).trim_end_matches('Z'));
    run.create(
        KUBELET,
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name(node), "namespace": LEASES, "ownerReferences": [owner]},
            "spec": {"holderIdentity": name(node), "leaseDurationSeconds": 40, "renewTime": renewed},
        }),
    );
}

/// Writes the reports of a node's agents as time passes: Ready, then its GPUs.
fn report(run: &mut Run<'_>, view: &PoolView, node: &Value) {
    let key = Key::new("", "nodes", "", name(node));
    make_lease(run, node);
    if !is_ready(node) {
        if run.passed(format!("{} ready", uid(node)), stages().delay("node_ready")) {
            let mut ready = node.clone();
            set_conditions(&mut ready, Readiness::Ready, run);
            run.status(KUBELET, key.clone(), node, ready["status"].take());
            let taints: Vec<&Value> =
                list(node, "/spec/taints").iter().filter(|taint| taint["key"] != NOT_READY).collect();
            let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
            run.merge("kube-controller-manager", key, json!({"spec": {"taints": taints}}));
            let message = format!("Node {} status is now: NodeReady", name(node));
            events::emit(run, node, events::Level::Normal, "NodeReady", "kubelet", &message);
        }
        return;
    }
    let gpus = gpus(&view.pool).to_string();
    let shown = node.pointer(GPU);
    if gpus != "0"
        && shown.is_none()
        && plugin_is_ready(run, node)
        && run.passed(format!("{} gpus", uid(node)), stages().delay("gpu_report"))
    {
        let mut status = node["status"].clone();
        status["capacity"]["nvidia.com/gpu"] = json!(gpus);
        status["allocatable"]["nvidia.com/gpu"] = json!(gpus);
        run.status(KUBELET, key, node, status);
    }
}

/// The GPUs of a node whose device plugin is not imitated either: they show once the driver is there.
fn report_gpus_alone(run: &mut Run<'_>, view: &PoolView, node: &Value) {
    let gpus = gpus(&view.pool).to_string();
    if gpus != "0"
        && node.pointer(GPU).is_none()
        && has_driver(run, node)
        && run.passed(format!("{} gpus", uid(node)), stages().delay("gpu_report"))
    {
        let shown = json!({"nvidia.com/gpu": gpus});
        let status = json!({"capacity": shown, "allocatable": shown});
        run.status(KUBELET, Key::new("", "nodes", "", name(node)), node, status);
    }
}

/// Returns true if a device plugin is Ready on the node; it starts only when the driver is there.
fn plugin_is_ready(run: &Run<'_>, node: &Value) -> bool {
    run.objects("", "pods").iter().any(|pod| {
        text(pod, "/spec/nodeName") == name(node)
            && label(pod, "k8s-app") == "nvidia-gpu-device-plugin"
            && is_true(pod, "Ready")
    })
}

/// Returns true once the NVIDIA driver is on a node: installed by GKE some time after Ready, or by a Ready pod of
/// the driver DaemonSet.
pub fn has_driver(run: &mut Run<'_>, node: &Value) -> bool {
    if node.pointer(GPU).is_some() {
        return true;
    }
    if !label(node, DRIVER_LABEL).is_empty() {
        return is_ready(node)
            && !run.scripts.driver_fails
            && run.passed(format!("{} driver", uid(node)), stages().delay("driver_install"));
    }
    run.objects("", "pods").iter().any(|pod| {
        text(pod, "/spec/nodeName") == name(node)
            && label(pod, "k8s-app") == "nvidia-driver-installer"
            && is_true(pod, "Ready")
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Readiness {
    NotReady,
    Ready,
}

fn set_conditions(node: &mut Value, readiness: Readiness, run: &Run<'_>) {
    let mut conditions = list(node, "/status/conditions").to_vec();
    let ready = readiness == Readiness::Ready;
    let network = if ready {
        ("False", "RouteCreated", "NodeController create implicit route")
    } else {
        ("True", "NoRouteCreated", "Node created without a route")
    };
    let kubelet = if ready {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        (
            "False",
            "KubeletNotReady",
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
             message:Network plugin returns error: cni plugin not initialized",
        )
    };
    for (ty, (status, reason, message)) in [
        ("NetworkUnavailable", network),
        (
            "MemoryPressure",
            ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        ("DiskPressure", ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")),
        ("PIDPressure", ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available")),
        ("Ready", kubelet),
    ] {
        let condition = json!({
            "type": ty, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time(run.now),
        });
        set_condition(&mut conditions, condition, run.now);
    }
    node["status"]["conditions"] = Value::Array(conditions);
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
