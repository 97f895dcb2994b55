//! Generated clusters and pods: few labels, zones, taints and amounts, so that they meet often.

use fit::gke::pool::{Driver, Features, Gpus, Pool, Purchase, Sharing, Strategy as GpuStrategy};
use fit::{
    Admission, Bound, Claim, Cluster, LimitRange, Node, PodRequirements, RuntimeClass, StorageClass,
    Unreadable, gke,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Nodes, pods on them, and pods that are asked about.
#[derive(Clone, Debug)]
pub struct Case {
    nodes: Vec<Made>,
    /// With the number of the node, modulo their number.
    bound: Vec<(usize, Option<bool>, Value)>,
    pub pods: Vec<Value>,
    /// States of the claims `c0`, `c1`, …
    claims: Vec<ClaimKind>,
    /// The default class of storage.
    default: Option<&'static str>,
    /// True if the namespace `team` has a LimitRange.
    limits: bool,
    admit: bool,
}

/// A node as it is, or the template of a pool.
#[derive(Clone, Debug)]
enum Made {
    Live(Value),
    Template(Box<Pool>, &'static str, Features),
}

/// The ways to a volume.
#[derive(Clone, Debug)]
enum ClaimKind {
    /// Bound to a volume that is in zones by node affinity, or by labels.
    Affinity(Vec<&'static str>),
    Labels(&'static str),
    Anywhere,
    /// For one pod.
    OnePod,
    /// Of a class that waits for the pod: everywhere, in one zone, or without a provisioner.
    Waits(&'static str),
    /// Of a class that does not wait.
    Immediate,
    /// It says nothing of a class.
    Default,
    /// It asks for a volume that exists.
    Empty,
    /// Of a class that does not exist.
    Unknown,
    /// It waits for the pod, and its volume is being made for a node.
    Chosen(&'static str),
    /// It names a volume that is not its own yet, and exists or not.
    Named(bool),
    /// It is bound to a volume that does not exist.
    Gone,
    /// It has lost its volume.
    Lost,
    /// It is bound, and is being deleted.
    Going,
    /// There is none.
    Missing,
}

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const ZONES: [&str; 3] = ["us-central1-a", "us-central1-b", "us-central1-c"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// A JSON object of those entries that are not null.
fn object(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let kept = entries.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(kept.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}

fn some<T: Into<Value>>(value: Option<T>) -> Value {
    value.map_or(Value::Null, Into::into)
}

/// An array, or nothing when it is empty.
fn array(values: Vec<Value>) -> Value {
    if values.is_empty() { Value::Null } else { Value::Array(values) }
}

/// Mostly nothing.
fn rarely<T: std::fmt::Debug + Clone>(
    percent: u32,
    strategy: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    option::weighted(f64::from(percent.clamp(1, 99)) / 100.0, strategy).boxed()
}

fn pick(values: &'static [&'static str]) -> BoxedStrategy<&'static str> {
    select(values).boxed()
}

/// The share of what a case has, in percent. kube-scheduler ends at the first predicate that refuses: the later ones are only heard where
/// the others have nothing to say.
#[derive(Clone, Copy, Debug)]
struct Mix {
    /// Nodes that have enough of everything.
    roomy: u32,
    /// Taints, cordons and templates of pools, which have both.
    closed: u32,
    /// Node selectors and node affinity.
    place: u32,
    ports: u32,
    /// Init containers.
    init: u32,
    spread: u32,
    near: u32,
    apart: u32,
    volumes: u32,
    /// Pods on nodes that are being deleted.
    terminating: u32,
    /// Gates, node names, the host's network, overhead, `resources` of the pod.
    rare: u32,
}

const EVEN: Mix = Mix {
    roomy: 30,
    closed: 30,
    place: 30,
    ports: 15,
    init: 25,
    spread: 20,
    near: 15,
    apart: 20,
    volumes: 20,
    terminating: 10,
    rare: 8,
};
const PLAIN: Mix = Mix {
    roomy: 0,
    closed: 0,
    place: 0,
    ports: 0,
    init: 0,
    spread: 0,
    near: 0,
    apart: 0,
    volumes: 0,
    terminating: 5,
    rare: 0,
};
const MIXES: [Mix; 8] = [
    EVEN,
    Mix { rare: 10, init: 60, ..PLAIN },
    Mix { roomy: 95, rare: 30, ports: 70, ..PLAIN },
    Mix { roomy: 95, closed: 60, place: 60, rare: 8, ..PLAIN },
    Mix { roomy: 100, closed: 10, place: 10, spread: 90, terminating: 30, ..PLAIN },
    Mix { roomy: 100, closed: 50, spread: 90, ..PLAIN },
    Mix { roomy: 100, near: 40, apart: 50, ..PLAIN },
    Mix { roomy: 100, volumes: 80, ..PLAIN },
];

/// A label of nodes with one of its values.
fn label() -> BoxedStrategy<(&'static str, &'static str)> {
    select(&[
        (ZONE, ZONES[0]),
        (ZONE, ZONES[1]),
        (HOST, "n0"),
        ("pool", "p"),
        ("pool", "q"),
        ("size", "1"),
        ("size", "2"),
        ("size", "x"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4"),
        ("cloud.google.com/gke-nodepool", "t4"),
        ("cloud.google.com/gke-spot", "true"),
    ])
    .boxed()
}

fn taint() -> BoxedStrategy<Value> {
    let keys = pick(&["nvidia.com/gpu", "team", "kubernetes.io/arch"]);
    (keys, pick(&["", "present", "ml"]), pick(&["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"]))
        .prop_map(|(key, value, effect)| json!({ "key": key, "value": value, "effect": effect }))
        .boxed()
}

fn live_node(mix: Mix) -> BoxedStrategy<Made> {
    let labels =
        (rarely(80, pick(&ZONES)), rarely(60, pick(&["p", "q"])), rarely(70, pick(&["1", "2", "3", "x"])));
    let tight = (
        pick(&["940m", "1500m", "1930m", "2", "2500m", "3.92", "4", "1m", "2m", "102m", "503m"]),
        pick(&["2Gi", "3Gi", "4Gi", "5615Mi", "8000M", "13591652Ki"]),
        pick(&["10Gi", "47060071478", "5G"]),
        pick(&["0", "1", "2", "3", "110", "110", "110"]),
        rarely(40, pick(&["0", "1", "2", "4"])),
    );
    let roomy = (Just("96"), Just("1360Gi"), Just("2Ti"), Just("110"), Just(Some("64")));
    let roomy = roomy.prop_map(|(cpu, memory, disk, pods, gpus)| (cpu, memory, disk, pods, gpus));
    let amounts = prop_oneof![101 - mix.roomy => tight, mix.roomy + 1 => roomy];
    let closed = (rarely(mix.closed, vec(taint(), 1..3)), rarely(mix.closed / 3, Just(true)));
    (labels, amounts, closed)
        .prop_map(|((zone, pool, size), (cpu, memory, disk, pods, gpus), (taints, cordoned))| {
            let labels = object([(ZONE, some(zone)), ("pool", some(pool)), ("size", some(size))]);
            let amounts = object([
                ("cpu", cpu.into()),
                ("memory", memory.into()),
                ("ephemeral-storage", disk.into()),
                ("pods", pods.into()),
                ("nvidia.com/gpu", some(gpus)),
                ("hugepages-2Mi", if cpu == "96" { "64Gi".into() } else { Value::Null }),
            ]);
            Made::Live(json!({
                "metadata": { "labels": labels },
                "spec": object([("taints", some(taints)), ("unschedulable", some(cordoned))]),
                "status": { "allocatable": amounts },
            }))
        })
        .boxed()
}

fn template_node() -> BoxedStrategy<Made> {
    let gpus = (select(&[1_u32, 2, 4]), rarely(30, select(&[2_u32, 8])));
    let machine = pick(&["n1-standard-2", "e2-medium", "n2-standard-4", "n1-highmem-4", "t2a-standard-2"]);
    (machine, rarely(50, gpus), any::<(bool, bool, bool, bool)>(), select(&[100_u32, 50, 10]), pick(&ZONES))
        .prop_map(|(machine, gpus, (tainted, spot, dataplane_v2, network_policy), disk, zone)| {
            let mut pool = Pool::new(if gpus.is_some() { "t4" } else { "plain" }, machine);
            pool.gpus = gpus.map(|(count, clients)| Gpus {
                kind: "nvidia-tesla-t4".to_owned(),
                count,
                partition: None,
                sharing: clients.map(|clients| Sharing { strategy: GpuStrategy::Mps, clients }),
                driver: Driver::Latest,
            });
            pool.gpu_taint = tainted;
            pool.disk_gib = disk;
            pool.purchase = if spot { Purchase::Spot } else { Purchase::OnDemand };
            pool.max_pods = if network_policy { 32 } else { 110 };
            let features = Features { dataplane_v2, network_policy, ..Features::default() };
            Made::Template(Box::new(pool), zone, features)
        })
        .boxed()
}

/// `resources` of a container that kube-apiserver takes: limits are not below requests, and those of GPUs equal.
fn resources() -> BoxedStrategy<Value> {
    let cpu = rarely(60, pick(&["100u", "100u", "1m", "100m", "500m", "500m", "1", "1", "1.5", "2"]));
    let memory = rarely(60, pick(&["64Mi", "1Gi", "1Gi", "2Gi", "1.5G", "3Gi", "100Gi", "0.3"]));
    let disk = rarely(20, pick(&["1Gi", "5Gi", "11Gi"]));
    let gpus = rarely(25, pick(&["0", "1", "2"]));
    (cpu, memory, disk, gpus, any::<[bool; 3]>(), rarely(5, Just("1Gi")))
        .prop_map(|(cpu, memory, disk, gpus, as_limit, huge)| {
            let given = [("cpu", cpu), ("memory", memory), ("ephemeral-storage", disk)];
            let of = |limit: bool| {
                let kept = given.iter().zip(as_limit).filter(move |(_, is_limit)| *is_limit == limit);
                kept.map(|((name, amount), _)| (*name, some(*amount)))
            };
            // Huge pages are taken with CPU or memory only.
            let huge = huge.filter(|_| cpu.is_some() || memory.is_some());
            let limits = of(true).chain([("nvidia.com/gpu", some(gpus)), ("hugepages-2Mi", some(huge))]);
            json!({ "requests": object(of(false)), "limits": object(limits) })
        })
        .boxed()
}

fn port() -> BoxedStrategy<Value> {
    let ip = rarely(30, pick(&["10.0.0.1", "127.0.0.1", "0.0.0.0"]));
    (select(&[80, 81]), rarely(60, Just(())), pick(&["TCP", "UDP"]), ip)
        .prop_map(|(port, of_node, protocol, ip)| {
            object([
                ("containerPort", port.into()),
                ("hostPort", some(of_node.map(|()| port))),
                ("protocol", protocol.into()),
                ("hostIP", some(ip)),
            ])
        })
        .boxed()
}

/// A container without its name.
fn container(ports: u32) -> BoxedStrategy<Value> {
    (resources(), rarely(ports, vec(port(), 1..2)))
        .prop_map(|(resources, ports)| {
            object([("image", "x".into()), ("resources", resources), ("ports", some(ports))])
        })
        .boxed()
}

/// A requirement of nodes in each operator.
fn node_requirement() -> BoxedStrategy<Value> {
    let listed = (label(), label(), pick(&["In", "In", "NotIn", "Exists", "DoesNotExist"])).prop_map(
        |((key, value), (_, other), operator)| {
            let values = matches!(operator, "In" | "NotIn").then(|| json!([value, other]));
            object([
                ("key", key.into()),
                ("operator", operator.into()),
                ("values", values.unwrap_or_default()),
            ])
        },
    );
    let compared = (pick(&["size", "size", "size", "pool"]), pick(&["Gt", "Lt"]), pick(&["1", "2", "-3"]))
        .prop_map(|(key, operator, value)| json!({ "key": key, "operator": operator, "values": [value] }));
    prop_oneof![3 => listed, 1 => compared].boxed()
}

fn node_term() -> BoxedStrategy<Value> {
    let field = (pick(&["In", "NotIn"]), pick(&["n0", "n1"])).prop_map(
        |(operator, name)| json!({ "key": "metadata.name", "operator": operator, "values": [name] }),
    );
    (vec(node_requirement(), 0..3), rarely(15, field))
        .prop_map(|(expressions, field)| {
            object([
                ("matchExpressions", array(expressions)),
                ("matchFields", some(field.map(|field| vec![field]))),
            ])
        })
        .boxed()
}

fn toleration() -> BoxedStrategy<Value> {
    let key = pick(&["nvidia.com/gpu", "team", "kubernetes.io/arch", "node.kubernetes.io/unschedulable"]);
    let effect = rarely(60, pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]));
    let exists = (rarely(90, key.clone()), effect.clone()).prop_map(|(key, effect)| {
        object([("key", some(key)), ("operator", "Exists".into()), ("effect", some(effect))])
    });
    let equal = (key, rarely(50, Just("Equal")), pick(&["", "present", "ml"]), effect).prop_map(
        |(key, operator, value, effect)| {
            object([
                ("key", key.into()),
                ("operator", some(operator)),
                ("value", value.into()),
                ("effect", some(effect)),
            ])
        },
    );
    prop_oneof![exists, equal].boxed()
}

/// A label selector of pods: absent, empty, by labels, or by expressions.
fn selector() -> BoxedStrategy<Value> {
    let app = pick(&["w", "s"]);
    let expression =
        (app.clone(), pick(&["In", "NotIn", "Exists", "DoesNotExist"])).prop_map(|(app, operator)| {
            let values = matches!(operator, "In" | "NotIn").then(|| json!([app]));
            object([
                ("key", "app".into()),
                ("operator", operator.into()),
                ("values", values.unwrap_or_default()),
            ])
        });
    prop_oneof![
        1 => Just(Value::Null),
        1 => Just(json!({})),
        6 => app.prop_map(|app| json!({ "matchLabels": { "app": app } })),
        3 => vec(expression, 1..3).prop_map(|all| json!({ "matchExpressions": all })),
    ]
    .boxed()
}

fn topology_key() -> BoxedStrategy<&'static str> {
    pick(&[ZONE, ZONE, ZONE, HOST, "pool", "pool", "rack"])
}

fn spread() -> BoxedStrategy<Value> {
    let policy = || rarely(40, pick(&["Honor", "Ignore"]));
    let when = pick(&["DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]);
    (
        topology_key(),
        when,
        1..3_i64,
        selector(),
        rarely(30, 1..4_i64),
        (policy(), policy()),
        rarely(20, Just("part")),
    )
        .prop_map(|(key, when, skew, selector, domains, (affinity, taints), part)| {
            let part = part.filter(|_| selector.is_object());
            object([
                ("topologyKey", key.into()),
                ("whenUnsatisfiable", when.into()),
                ("maxSkew", skew.into()),
                ("labelSelector", selector),
                ("minDomains", some(domains.filter(|_| when == "DoNotSchedule"))),
                ("nodeAffinityPolicy", some(affinity)),
                ("nodeTaintsPolicy", some(taints)),
                ("matchLabelKeys", some(part.map(|part| vec![part]))),
            ])
        })
        .boxed()
}

fn pod_term() -> BoxedStrategy<Value> {
    let by_label = prop_oneof![
        Just(json!({})),
        Just(json!({ "matchLabels": { "team": "a" } })),
        Just(json!({ "matchExpressions": [{ "key": "team", "operator": "DoesNotExist" }] })),
    ];
    let keys = rarely(20, pick(&["matchLabelKeys", "mismatchLabelKeys"]));
    (topology_key(), selector(), rarely(25, pick(&["default", "team", "gone"])), rarely(25, by_label), keys)
        .prop_map(|(key, selector, namespace, by_label, keys)| {
            let keys = keys.filter(|_| selector.is_object());
            let mut term = object([
                ("topologyKey", key.into()),
                ("labelSelector", selector),
                ("namespaces", some(namespace.map(|namespace| vec![namespace]))),
                ("namespaceSelector", some(by_label)),
            ]);
            if let Some(keys) = keys {
                term[keys] = json!(["part"]);
            }
            term
        })
        .boxed()
}

fn volume() -> BoxedStrategy<Value> {
    let claim =
        pick(&["c0", "c1", "c2"]).prop_map(|name| json!({ "persistentVolumeClaim": { "claimName": name } }));
    let disk = (pick(&["d0", "d1"]), any::<bool>()).prop_map(
        |(name, read_only)| json!({ "gcePersistentDisk": { "pdName": name, "readOnly": read_only } }),
    );
    // Of classes that wait, or that do not exist: this crate takes it that others have made their volume before the pod waits.
    let own = pick(&["late", "zonal", "local", "none"]).prop_map(|class| {
        let storage = json!({ "requests": { "storage": "1Gi" } });
        let spec = object([
            ("storageClassName", class.into()),
            ("accessModes", json!(["ReadWriteOnce"])),
            ("resources", storage),
        ]);
        json!({ "ephemeral": { "volumeClaimTemplate": { "spec": spec } } })
    });
    prop_oneof![4 => claim, 1 => disk, 1 => own].boxed()
}

/// `resources` of the pod itself, large enough for its containers in most cases.
fn pod_resources() -> BoxedStrategy<Value> {
    (rarely(60, pick(&["2", "4", "6"])), rarely(50, pick(&["6Gi", "120Gi"])), any::<[bool; 2]>())
        .prop_map(|(cpu, memory, as_limit)| {
            let given = [("cpu", cpu, as_limit[0]), ("memory", memory, as_limit[1])];
            let of =
                |limit: bool| given.iter().filter(move |one| one.2 == limit).map(|one| (one.0, some(one.1)));
            json!({ "requests": object(of(false)), "limits": object(of(true)) })
        })
        .boxed()
}

/// A pod without name and place.
fn pod(mix: Mix) -> BoxedStrategy<Value> {
    let labels = (rarely(85, pick(&["w", "s"])), rarely(40, pick(&["1", "2"])))
        .prop_map(|(app, part)| object([("app", some(app)), ("part", some(part))]));
    let init = (container(mix.ports / 2), any::<bool>()).prop_map(|(mut container, sidecar)| {
        if sidecar {
            container["restartPolicy"] = json!("Always");
        }
        container
    });
    let containers = (
        vec(container(mix.ports), 1..3),
        rarely(mix.init, vec(init, 1..4)),
        rarely(mix.rare, pod_resources()),
    );
    let node_affinity = rarely(mix.place, vec(node_term(), 1..3));
    let place = (
        vec(label(), 0..2).boxed(),
        node_affinity,
        rarely(50, vec(toleration(), 1..3)),
        rarely(3, pick(&["n0", "n1"])),
    );
    let others = (
        rarely(mix.spread, vec(spread(), 1..4)),
        rarely(mix.near, vec(pod_term(), 1..3)),
        rarely(mix.apart, vec(pod_term(), 1..3)),
        rarely(mix.volumes, vec(volume(), 1..3)),
    );
    let rest = (
        rarely(mix.rare / 3, Just("g.example/wait")),
        rarely(mix.rare, Just(true)),
        rarely(mix.rare, pick(&["100m", "1"])),
        rarely(mix.rare, pick(&["safe", "safe", "plain", "none"])),
    );
    let namespace = pick(&["default", "default", "default", "default", "default", "default", "team", "gone"]);
    ((namespace, labels), containers, rarely(mix.place, Just(())), place, others, rest)
        .prop_map(|((namespace, labels), (containers, init, resources), selects, place, others, rest)| {
            let (selector, terms, tolerations, node) = place;
            let (spread, near, apart, volumes) = others;
            let (gate, host_network, overhead, runtime) = rest;
            let named = |prefix: &str, all: Vec<Value>| -> Vec<Value> {
                let name = |(at, mut one): (usize, Value)| {
                    one["name"] = json!(format!("{prefix}{at}"));
                    one
                };
                all.into_iter().enumerate().map(name).collect()
            };
            let required = |terms: Option<Vec<Value>>| terms.map(|terms| json!({ REQUIRED: terms }));
            let affinity = object([
                (
                    "nodeAffinity",
                    some(terms.map(|terms| json!({ REQUIRED: { "nodeSelectorTerms": terms } }))),
                ),
                ("podAffinity", some(required(near))),
                ("podAntiAffinity", some(required(apart))),
            ]);
            let selector = selects.map(|()| {
                selector.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect::<Map<_, _>>()
            });
            let spec = object([
                ("containers", named("c", containers).into()),
                ("initContainers", some(init.map(|all| named("i", all)))),
                ("resources", some(resources)),
                ("nodeSelector", some(selector)),
                ("affinity", affinity),
                ("tolerations", some(tolerations)),
                ("topologySpreadConstraints", some(spread)),
                ("volumes", some(volumes.map(|all| named("v", all)))),
                ("nodeName", some(node.filter(|_| gate.is_none()))),
                ("schedulingGates", some(gate.map(|gate| vec![json!({ "name": gate })]))),
                ("hostNetwork", some(host_network)),
                ("overhead", some(overhead.map(|cpu| json!({ "cpu": cpu })))),
                ("runtimeClassName", some(runtime)),
            ]);
            json!({ "metadata": { "namespace": namespace, "labels": labels }, "spec": spec })
        })
        .boxed()
}

fn claim() -> BoxedStrategy<ClaimKind> {
    let zones = vec(pick(&ZONES), 1..3).prop_map(ClaimKind::Affinity);
    let labels = pick(&["us-central1-a", "us-central1-b__us-central1-a"]).prop_map(ClaimKind::Labels);
    let class = pick(&["late", "zonal", "local"]).prop_map(ClaimKind::Waits);
    let other = select(vec![
        ClaimKind::Anywhere,
        ClaimKind::OnePod,
        ClaimKind::Immediate,
        ClaimKind::Empty,
        ClaimKind::Unknown,
        ClaimKind::Named(true),
        ClaimKind::Named(false),
        ClaimKind::Gone,
        ClaimKind::Lost,
        ClaimKind::Going,
        ClaimKind::Missing,
    ]);
    let chosen = pick(&["n0", "n1"]).prop_map(ClaimKind::Chosen);
    prop_oneof![3 => zones, 1 => labels, 3 => class, 2 => Just(ClaimKind::Default), 1 => chosen, 2 => other]
        .boxed()
}

/// A whole case.
pub fn case() -> BoxedStrategy<Case> {
    let of = |mix: Mix| {
        let nodes = vec(
            prop_oneof![100 - mix.closed / 2 => live_node(mix), 1 + mix.closed / 2 => template_node()],
            1..6,
        );
        let bound = vec((0..8_usize, rarely(mix.terminating, Just(true)), pod(mix)), 0..10);
        let default = rarely(70, pick(&["late", "zonal", "early"]));
        let objects = (vec(claim(), 3), default, rarely(30, Just(())), any::<bool>());
        (nodes, bound, vec(pod(mix), 1..4), objects)
            .prop_map(|(nodes, bound, pods, (claims, default, limits, admit))| {
                let limits = limits.is_some();
                Case { nodes, bound, pods, claims, default, limits, admit }
            })
            .boxed()
    };
    proptest::strategy::Union::new(MIXES.map(of)).boxed()
}

/// A case in both forms.
pub struct Question {
    /// For the judge.
    pub json: Value,
    /// For this crate: nodes by name, in the order of the judge's.
    pub cluster: Cluster,
    /// An error where this crate says that kube-apiserver refuses the pod.
    pub pods: Vec<Result<PodRequirements, Unreadable>>,
}

impl Case {
    /// The objects of the claims, volumes and classes.
    fn storage(&self) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
        let class = |name: &str, mode: &str, provisioner: &str, topologies: Value| {
            let is_default = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
            let annotations = self.default.filter(|default| *default == name).map(|_| is_default);
            object([
                ("metadata", object([("name", name.into()), ("annotations", some(annotations))])),
                ("provisioner", provisioner.into()),
                ("volumeBindingMode", mode.into()),
                ("allowedTopologies", topologies),
            ])
        };
        let driver = "pd.csi.storage.gke.io";
        let late = "WaitForFirstConsumer";
        let zonal = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": [ZONES[0], ZONES[1]] }] }]);
        let classes = vec![
            class("late", late, driver, Value::Null),
            class("zonal", late, driver, zonal),
            class("local", late, "kubernetes.io/no-provisioner", Value::Null),
            class("early", "Immediate", driver, Value::Null),
        ];
        let (mut claims, mut volumes) = (Vec::new(), Vec::new());
        for (at, kind) in self.claims.iter().enumerate() {
            let (name, volume) = (format!("c{at}"), format!("v{at}"));
            let done = json!({ "pv.kubernetes.io/bind-completed": "yes" });
            let none = Value::Null;
            let mode = if matches!(kind, ClaimKind::OnePod) { "ReadWriteOncePod" } else { "ReadWriteOnce" };
            let (class, annotations, to) = match kind {
                ClaimKind::Affinity(_)
                | ClaimKind::Labels(_)
                | ClaimKind::Anywhere
                | ClaimKind::OnePod
                | ClaimKind::Gone
                | ClaimKind::Lost
                | ClaimKind::Going => (Some("late"), done, Some(&volume)),
                ClaimKind::Waits(class) => (Some(*class), none, None),
                ClaimKind::Chosen(node) => {
                    (Some("late"), json!({ "volume.kubernetes.io/selected-node": node }), None)
                }
                ClaimKind::Immediate => (Some("early"), none, None),
                ClaimKind::Default => (None, none, None),
                ClaimKind::Empty => (Some(""), none, None),
                ClaimKind::Unknown => (Some("none"), none, None),
                ClaimKind::Named(_) => (Some("late"), none, Some(&volume)),
                ClaimKind::Missing => continue,
            };
            let phase = matches!(kind, ClaimKind::Lost).then(|| json!({ "phase": "Lost" }));
            let deleted = matches!(kind, ClaimKind::Going).then_some("2026-01-01T00:00:00Z");
            for namespace in ["default", "team", "gone"] {
                claims.push(json!({
                    "metadata": object([
                        ("name", json!(name)), ("namespace", namespace.into()), ("annotations", annotations.clone()),
                        ("deletionTimestamp", some(deleted)),
                    ]),
                    "spec": object([("storageClassName", some(class)), ("volumeName", some(to.cloned())), ("accessModes", json!([mode]))]),
                    "status": phase.clone().unwrap_or_else(|| json!({})),
                }));
            }
            let (labels, affinity) = match kind {
                ClaimKind::Affinity(zones) => {
                    let wanted = json!([{ "key": ZONE, "operator": "In", "values": zones }]);
                    (
                        Value::Null,
                        json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": wanted }] } }),
                    )
                }
                ClaimKind::Labels(zones) => (json!({ ZONE: zones }), Value::Null),
                _ => (Value::Null, Value::Null),
            };
            let is_there = !matches!(kind, ClaimKind::Gone | ClaimKind::Lost | ClaimKind::Named(false));
            if to.is_some() && is_there {
                volumes.push(json!({
                    "metadata": object([("name", json!(volume)), ("labels", labels)]),
                    "spec": object([
                        ("nodeAffinity", affinity),
                        ("storageClassName", some(class)),
                        ("csi", json!({ "driver": driver, "volumeHandle": volume })),
                    ]),
                }));
            }
        }
        (claims, volumes, classes)
    }

    /// RuntimeClasses, and the LimitRange of a namespace.
    fn admission(&self) -> (Vec<Value>, Vec<Value>, Admission) {
        let scheduling = json!({
            "nodeSelector": { "pool": "p" },
            "tolerations": [{ "key": "team", "operator": "Exists", "effect": "NoSchedule" }],
        });
        let runtimes = vec![
            json!({
                "metadata": { "name": "safe" }, "handler": "runsc", "scheduling": scheduling,
                "overhead": { "podFixed": { "cpu": "100m" } },
            }),
            json!({ "metadata": { "name": "plain" }, "handler": "runc" }),
        ];
        let item = json!({
            "type": "Container", "min": { "ephemeral-storage": "1Gi" }, "default": { "memory": "1Gi" },
            "defaultRequest": { "cpu": "100m" },
        });
        let range = json!({ "metadata": { "name": "l", "namespace": "team" }, "spec": { "limits": [item] } });
        let ranges = if self.limits { vec![range] } else { Vec::new() };
        let mut admission = Admission::default();
        for class in &runtimes {
            let name = class["metadata"]["name"].as_str().unwrap().to_owned();
            admission.runtime_classes.insert(name, RuntimeClass::read(class).unwrap());
        }
        for range in &ranges {
            let read = LimitRange::read(range).unwrap();
            admission.limit_ranges.entry("team".to_owned()).or_default().push(read);
        }
        (runtimes, ranges, admission)
    }

    /// Both forms of the case.
    pub fn question(&self) -> Question {
        let mut cluster = Cluster::default();
        let namespaces = [("default", json!({ "team": "a" })), ("team", json!({}))];
        for (name, labels) in &namespaces {
            let labels = labels
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()));
            cluster.namespaces.insert((*name).to_owned(), labels.collect());
        }
        let (mut claims, volumes, classes) = self.storage();
        let (runtimes, ranges, admission) = self.admission();
        cluster.default_class = self.default.map(str::to_owned);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        for class in &classes {
            cluster.classes.insert(text(&class["metadata"]["name"]), StorageClass::read(class));
        }
        for claim in &claims {
            let volume =
                volumes.iter().find(|volume| volume["metadata"]["name"] == claim["spec"]["volumeName"]);
            let key = (text(&claim["metadata"]["namespace"]), text(&claim["metadata"]["name"]));
            cluster.claims.insert(key, Claim::read(claim, volume).unwrap());
        }
        let read = |pod: &Value| {
            let pod = admission.read(pod, "default")?;
            Ok(if self.admit { pod.with_extended_resource_tolerations() } else { pod })
        };
        let (mut nodes, mut bound) = (Vec::new(), Vec::new());
        for (at, made) in self.nodes.iter().enumerate() {
            let name = format!("n{at}");
            match made {
                Made::Live(node) => {
                    let mut node = node.clone();
                    node["metadata"]["name"] = json!(name);
                    node["metadata"]["labels"][HOST] = json!(name);
                    cluster.add(Node::read(&node));
                    nodes.push(node);
                }
                Made::Template(pool, zone, features) => {
                    let mut node = gke::template(pool, zone, *features).unwrap();
                    node.name.clone_from(&name);
                    node.labels.insert(HOST.to_owned(), name.clone());
                    nodes.push(as_json(&node));
                    bound.extend(
                        node.pods()
                            .iter()
                            .enumerate()
                            .map(|(number, pod)| system_pod(&pod.pod, &name, number)),
                    );
                    cluster.add(node);
                }
            }
        }
        let ids: Vec<_> = cluster.nodes().map(|(id, _)| id).collect();
        for (at, (node, terminating, pod)) in self.bound.iter().enumerate() {
            let at_node = node % nodes.len();
            let mut pod = pod.clone();
            pod["metadata"]["name"] = json!(format!("b{at}"));
            pod["metadata"]["uid"] = json!(format!("b{at}"));
            pod["spec"]["nodeName"] = json!(format!("n{at_node}"));
            pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
            let terminating = terminating.unwrap_or(false);
            if terminating {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            // One that kube-apiserver would not have taken makes a case that is not judged.
            if let Ok(read) = read(&pod) {
                cluster.bind(ids[at_node], Bound { terminating, ..Bound::running(read) }).unwrap();
            }
            bound.push(pod);
        }
        let pods: Vec<Value> = self
            .pods
            .iter()
            .enumerate()
            .map(|(at, pod)| {
                let mut pod = pod.clone();
                pod["metadata"]["name"] = json!(format!("p{at}"));
                pod["metadata"]["uid"] = json!(format!("p{at}"));
                pod
            })
            .collect();
        claims.extend(pods.iter().flat_map(own_claims));
        let named =
            |(name, labels): &(&str, Value)| json!({ "metadata": { "name": name, "labels": labels } });
        let requirements = pods.iter().map(read).collect();
        let json = json!({
            "nodes": nodes, "bound": bound, "pods": pods, "namespaces": namespaces.iter().map(named).collect::<Vec<_>>(),
            "claims": claims, "volumes": volumes, "classes": classes, "admit": self.admit, "runtimes": runtimes, "ranges": ranges,
        });
        Question { json, cluster, pods: requirements }
    }
}

/// The claims that the controller of ephemeral volumes makes for a pod.
fn own_claims(pod: &Value) -> Vec<Value> {
    let (name, namespace) = (&pod["metadata"]["name"], &pod["metadata"]["namespace"]);
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true });
    let claim = |volume: &Value| {
        let spec = volume.pointer("/ephemeral/volumeClaimTemplate/spec")?;
        let name = format!("{}-{}", name.as_str()?, volume["name"].as_str()?);
        let metadata = json!({ "name": name, "namespace": namespace, "ownerReferences": [owner] });
        Some(json!({ "metadata": metadata, "spec": spec }))
    };
    pod["spec"]["volumes"].as_array().into_iter().flatten().filter_map(claim).collect()
}

/// A node of this crate as Kubernetes has it.
fn as_json(node: &Node) -> Value {
    let taint =
        |taint: &fit::Taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect.name() });
    let all = &node.allocatable;
    let mut allocatable = json!({
        "cpu": format!("{}m", all.cpu), "memory": all.memory.to_string(),
        "ephemeral-storage": all.ephemeral_storage.to_string(), "pods": all.pods.to_string(),
    });
    for (name, amount) in &all.extended {
        allocatable[name] = json!(amount.to_string());
    }
    json!({
        "metadata": { "name": node.name, "labels": node.labels },
        "spec": { "taints": node.taints.iter().map(taint).collect::<Vec<_>>() },
        "status": { "allocatable": allocatable },
    })
}

/// A pod of GKE as Kubernetes has it.
fn system_pod(pod: &PodRequirements, node: &str, number: usize) -> Value {
    let text = |one: &fit::Request| {
        let unit = if one.resource == fit::Resource::Cpu { "m" } else { "" };
        (one.resource.name().to_owned(), json!(format!("{}{unit}", one.amount)))
    };
    let requests: Map<String, Value> = pod.requests.iter().map(text).collect();
    json!({
        "metadata": { "name": format!("{node}-{number}"), "uid": format!("{node}-{number}"), "namespace": pod.namespace },
        "spec": {
            "nodeName": node, "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "c", "image": "x", "resources": { "requests": requests } }],
        },
    })
}
