//! Generated pools and Pods, end to end: what `validate` says of them, against what happens to them. The pools are the sandbox's
//! GKE with its cluster autoscaler, the rest is a real API server, the real kube-scheduler and the real controllers of Deployments,
//! StatefulSets and DaemonSets. KWOK runs the Pods.
//!
//! `DASK_INFRA_CASES=N` cases of `DASK_INFRA_SEED=TEXT`, 50 of `0` by default. Each case has labels and taints of its own, so that all
//! of them live in one cluster.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fit::gke::pool::{Driver, Features, Gpus, Pool};
use fit::gke::system::on_each_node;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::control_plane::main_job::sandbox_with_control_plane;
use crate::real::{Client, ControlPlane, PATIENCE, Part, needs};
use crate::sandbox_server::User;

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok];
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";

/// The cluster of all cases. Its other Pods have a pool of their own.
const BASE: &str = r#"[stack]
name = "s"

[gke]
project = "demo"
location = "us-central1"

[cluster]
name = "c"
workload_identity = true

[node_pool.system]
machine_type = "e2-standard-8"
zones = ["us-central1-a"]
"#;

/// A machine type with its vCPUs, GiB, and GPUs that a pool of it has.
type Machine = (&'static str, u32, u32, Option<&'static str>);
const MACHINES: [Machine; 8] = [
    ("e2-standard-2", 2, 8, None),
    ("e2-standard-4", 4, 16, None),
    ("e2-highmem-2", 2, 16, None),
    ("n2-standard-4", 4, 16, None),
    ("c3-standard-4", 4, 16, None),
    ("n1-standard-4", 4, 15, Some(r#"accelerator = "nvidia-tesla-t4""#)),
    ("n1-standard-8", 8, 30, Some(r#"accelerator = { type = "nvidia-tesla-t4", count = 2 }"#)),
    ("a2-highgpu-1g", 12, 85, Some("")),
];

/// A node pool.
#[derive(Clone, Debug)]
struct DrawnPool {
    machine: Machine,
    /// Nodes from the start, or at most.
    nodes: u32,
    is_autoscaled: bool,
    zone: &'static str,
    tier: Option<&'static str>,
    taints: Vec<(&'static str, &'static str, &'static str)>,
    disk: u32,
}

/// The requests of a Pod, each a share of the first pool's machine in percent; the disk in GiB.
#[derive(Clone, Debug)]
struct Amounts {
    cpu: Option<u32>,
    memory: Option<u32>,
    disk: Option<u32>,
    gpus: u32,
    /// CPU of an init container.
    init: Option<u32>,
}

/// A case: pools, and the Pods of one controller for them.
#[derive(Clone, Debug)]
struct Case {
    pools: Vec<DrawnPool>,
    kind: &'static str,
    replicas: u32,
    amounts: Amounts,
    /// Requirements of node affinity for the label `tier`.
    tier: Option<(&'static str, &'static [&'static str])>,
    tolerations: Vec<Value>,
    /// Topology keys of a spread with its greatest skew, and of affinity and anti-affinity of the Pods to each other.
    spread: Option<(&'static str, u32)>,
    near: Option<&'static str>,
    apart: Option<&'static str>,
    port: Option<u32>,
    /// Percent of a CPU that a Pod of a DaemonSet takes on each node.
    agent: Option<u32>,
}

fn pool() -> impl Strategy<Value = DrawnPool> {
    let taint = (select(&["team", "dedicated"]), select(&["ml", "web"]));
    let taint = (taint, select(&["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"]))
        .prop_map(|((key, value), effect)| (key, value, effect));
    let nodes = (1_u32..4, prop::bool::weighted(0.7));
    let zone = select(&["us-central1-a", "us-central1-b", "us-central1-c"]);
    let tier = weighted(0.6, select(&["gold", "silver", "3"]));
    (select(&MACHINES), nodes, zone, tier, weighted(0.3, taint), select(&[50_u32, 100, 100])).prop_map(
        |(machine, (nodes, is_autoscaled), zone, tier, taint, disk)| DrawnPool {
            machine,
            nodes,
            is_autoscaled,
            zone,
            tier,
            taints: taint.into_iter().collect(),
            disk,
        },
    )
}

fn amounts() -> impl Strategy<Value = Amounts> {
    let share = || select(&[3_u32, 10, 20, 30, 45, 60, 75, 80, 85, 92, 97]);
    let rest = (weighted(0.15, select(&[5_u32, 20, 45, 80])), select(&[0_u32, 1, 1, 1, 2]));
    (weighted(0.8, share()), weighted(0.6, share()), rest, weighted(0.15, share()))
        .prop_map(|(cpu, memory, (disk, gpus), init)| Amounts { cpu, memory, disk, gpus, init })
}

fn case() -> impl Strategy<Value = Case> {
    const TIERS: [(&str, &[&str]); 6] = [
        ("In", &["gold"]),
        ("In", &["silver", "gold"]),
        ("NotIn", &["gold"]),
        ("Exists", &[]),
        ("DoesNotExist", &[]),
        ("Gt", &["2"]),
    ];
    let toleration = select(vec![
        json!({ "key": "team", "operator": "Exists" }),
        json!({ "key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule" }),
        json!({ "key": "dedicated", "operator": "Exists", "effect": "NoExecute" }),
        json!({ "operator": "Exists" }),
    ]);
    let key = || select(&["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    let topology = (
        weighted(0.2, (key(), 1_u32..3)),
        weighted(0.1, key()),
        weighted(0.15, key()),
        weighted(0.1, Just(8786_u32)),
    );
    let controller = (select(&["Deployment", "Deployment", "StatefulSet"]), 1_u32..5);
    let place = (weighted(0.2, select(&TIERS)), (vec(toleration, 0..2), prop::bool::weighted(0.6)));
    (vec(pool(), 1..4), controller, amounts(), place, topology, weighted(0.25, select(&[10_u32, 40, 90])))
        .prop_map(|(pools, (kind, replicas), mut amounts, (tier, tolerations), topology, agent)| {
            // Most Pods are for the first pool.
            if pools[0].machine.3.is_none() {
                amounts.gpus /= 2;
            }
            let (mut tolerations, tolerates_all) = tolerations;
            if tolerates_all {
                tolerations.push(json!({ "operator": "Exists" }));
            }
            let (spread, near, apart, port) = topology;
            Case { pools, kind, replicas, amounts, tier, tolerations, spread, near, apart, port, agent }
        })
}

fn drawn() -> Vec<Case> {
    let of = |name: &str| env::var(name).ok();
    let count = of("DASK_INFRA_CASES").map_or(50, |count| count.parse().unwrap());
    let mut seed = [0; 32];
    let text = of("DASK_INFRA_SEED").unwrap_or_else(|| "0".to_owned());
    text.bytes().zip(&mut seed).for_each(|(byte, place)| *place = byte);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    println!("{count} cases of DASK_INFRA_SEED={text}");
    (0..count).map(|_| case().new_tree(&mut runner).unwrap().current()).collect()
}

impl Case {
    /// Returns the sections of the node pools. `name` is the case's.
    fn pools(&self, name: &str) -> String {
        let mut text = String::new();
        for (number, pool) in self.pools.iter().enumerate() {
            let DrawnPool { machine: (machine, .., accelerator), nodes, zone, disk, .. } = pool;
            let tier = pool.tier.map(|tier| format!(", tier = {tier:?}")).unwrap_or_default();
            let nodes = match pool.is_autoscaled {
                true => format!("{{ min = 0, max = {nodes} }}"),
                false => nodes.to_string(),
            };
            write!(
                text,
                "\n[node_pool.{name}-{number}]\nmachine_type = {machine:?}\n{}\nnodes = {nodes}\nzones = [{zone:?}]\n\
                 labels = {{ case = {name:?}{tier} }}\ndisk_size_gb = {disk}\n",
                accelerator.unwrap_or_default()
            )
            .unwrap();
            for (key, value, effect) in &pool.taints {
                writeln!(text, "taints = [{{ key = {key:?}, value = {value:?}, effect = {effect:?} }}]")
                    .unwrap();
            }
        }
        text
    }

    /// Returns the section of the Pods.
    fn section(name: &str) -> String {
        format!("\n[manifest.{name}]\nfile = \"{name}.yaml\"\n")
    }

    /// Returns the controller of the Pods, and a DaemonSet.
    fn objects(&self, name: &str) -> Vec<Value> {
        let labels = json!({ "app": name });
        let template = json!({ "metadata": { "labels": labels }, "spec": self.pod(name) });
        let mut spec =
            json!({ "replicas": self.replicas, "selector": { "matchLabels": labels }, "template": template });
        if self.kind == "StatefulSet" {
            spec["serviceName"] = json!(name);
            spec["podManagementPolicy"] = json!("Parallel");
        }
        let object =
            json!({ "apiVersion": "apps/v1", "kind": self.kind, "metadata": { "name": name }, "spec": spec });
        let agent = self.agent.map(|percent| {
            let spec = json!({
                "nodeSelector": { "case": name },
                "containers": [container("agent", &json!({ "requests": { "cpu": format!("{}m", percent * 10) } }))],
            });
            daemon_set("default", &format!("agent-{name}"), spec)
        });
        [Some(object), agent].into_iter().flatten().collect()
    }

    fn pod(&self, name: &str) -> Value {
        let (_, vcpus, gib, _) = self.pools[0].machine;
        let Amounts { cpu, memory, disk, gpus, init } = self.amounts;
        let cpus = |share: u32| format!("{}m", vcpus * share * 10);
        let mut requests = json!({});
        let given = [
            ("cpu", cpu.map(cpus)),
            ("memory", memory.map(|share| format!("{}Mi", gib * share * 1024 / 100))),
            ("ephemeral-storage", disk.map(|gib| format!("{gib}Gi"))),
        ];
        for (resource, amount) in given {
            if let Some(amount) = amount {
                requests[resource] = json!(amount);
            }
        }
        let limits = if gpus > 0 { json!({ "nvidia.com/gpu": gpus.to_string() }) } else { json!({}) };
        let mut main = container("main", &json!({ "requests": requests, "limits": limits }));
        if let Some(port) = self.port {
            main["ports"] = json!([{ "containerPort": port, "hostPort": port }]);
        }
        let mut spec = json!({ "nodeSelector": { "case": name }, "containers": [main], "tolerations": self.tolerations });
        if let Some(share) = init {
            spec["initContainers"] =
                json!([container("init", &json!({ "requests": { "cpu": cpus(share) } }))]);
        }
        let own = json!({ "matchLabels": { "app": name } });
        if let Some((key, skew)) = self.spread {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": own,
            }]);
        }
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        if let Some((operator, values)) = self.tier {
            let term =
                json!({ "matchExpressions": [{ "key": "tier", "operator": operator, "values": values }] });
            spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] = json!([term]);
        }
        for (kind, key) in [("podAffinity", self.near), ("podAntiAffinity", self.apart)] {
            if let Some(key) = key {
                spec["affinity"][kind][REQUIRED] = json!([{ "topologyKey": key, "labelSelector": own }]);
            }
        }
        spec
    }

    /// Returns true if the Pods have rules about each other.
    fn relates_pods(&self) -> bool {
        self.spread.is_some() || self.near.is_some() || self.apart.is_some()
    }
}

fn container(name: &str, resources: &Value) -> Value {
    json!({ "name": name, "image": "demo:1", "resources": resources })
}

fn daemon_set(namespace: &str, name: &str, mut pod: Value) -> Value {
    let labels = json!({ "daemon": name });
    pod["tolerations"] = json!([{ "operator": "Exists" }]);
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": namespace },
        "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } },
    })
}

/// Creates GKE's own DaemonSets, which the sandbox leaves to a real GKE. kube-proxy is one here, too: KWOK has no static Pods.
async fn create_system_pods(client: &Client) {
    const ACCELERATOR: &str = "cloud.google.com/gke-accelerator";
    let mut pool = Pool::new("any", "n1-standard-4");
    pool.minor = Some(36);
    let everywhere = on_each_node(&pool, Features::default());
    pool.gpus = Some(Gpus {
        kind: "nvidia-tesla-t4".to_owned(),
        count: 1,
        partition: None,
        sharing: None,
        driver: Driver::Latest,
    });
    for pod in on_each_node(&pool, Features::default()) {
        let requests = json!({ "cpu": format!("{}m", pod.cpu), "memory": pod.memory.to_string() });
        let mut spec = json!({
            "priorityClassName": "system-node-critical",
            "containers": [container(pod.name, &json!({ "requests": requests }))],
        });
        if !everywhere.contains(&pod) {
            let term = json!({ "matchExpressions": [{ "key": ACCELERATOR, "operator": "Exists" }] });
            spec["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } });
        }
        let path = format!("/apis/apps/v1/namespaces/kube-system/daemonsets/{}", pod.name);
        let (status, said) = client.apply(&path, "gke", &daemon_set("kube-system", pod.name, spec)).await;
        assert_eq!(status, 201, "{said}");
    }
}

/// The program's answer before anything is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Predicted {
    /// DI0336, DI0248: no node of any pool takes a Pod, or has the labels.
    Never,
    /// DI0338: this many Pods find no node.
    Lacking(u32),
    /// DI0337: about as much as a node has.
    Near,
    Fits,
}

fn predict(name: &str, case: &Case) -> (Predicted, String) {
    let user = User::empty();
    user.write(format!("{BASE}{}{}", case.pools(name), Case::section(name)));
    write_objects(&user, name, case);
    let said = user.run(&["validate"]);
    assert_eq!(said.code, 0, "{case:#?}\n{}{}", said.out, said.err);
    let said = format!("{}{}", said.out, said.err);
    let pending = || {
        let line = said.lines().find(|line| line.contains("Pods find no node")).unwrap();
        line.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
    };
    let predicted = if said.contains("DI0336") || said.contains("DI0248") {
        Predicted::Never
    } else if said.contains("DI0337") {
        Predicted::Near
    } else if said.contains("DI0338") {
        Predicted::Lacking(pending())
    } else {
        Predicted::Fits
    };
    (predicted, said)
}

fn write_objects(user: &User, name: &str, case: &Case) {
    let documents: Vec<String> = case.objects(name).iter().map(Value::to_string).collect();
    std::fs::write(user.path().join(format!("{name}.yaml")), documents.join("\n---\n")).unwrap();
}

/// The Pods of a case.
#[derive(Clone, Debug, Default)]
struct Placed {
    bound: u32,
    /// kube-scheduler's words about the others.
    refused: Vec<String>,
    /// Pods that it has not judged yet.
    open: u32,
}

async fn placed(client: &Client) -> BTreeMap<String, Placed> {
    let list = client.get(PODS).await.1;
    let mut cases: BTreeMap<String, Placed> = BTreeMap::new();
    for pod in list["items"].as_array().unwrap() {
        let Some(name) = pod["metadata"]["labels"]["app"].as_str() else { continue };
        let case = cases.entry(name.to_owned()).or_default();
        let conditions = pod["status"]["conditions"].as_array();
        let refused =
            conditions.into_iter().flatten().find(|condition| condition["reason"] == "Unschedulable");
        match (pod["spec"]["nodeName"].is_string(), refused) {
            (true, _) => case.bound += 1,
            (false, Some(refused)) => {
                case.refused.push(refused["message"].as_str().unwrap_or_default().to_owned());
            }
            (false, None) => case.open += 1,
        }
    }
    cases
}

/// The cases in one cluster.
struct Lab {
    cases: Vec<Case>,
    names: Vec<String>,
    /// The answer of `validate` for each.
    predicted: Vec<(Predicted, String)>,
    client: Client,
    user: User,
}

impl Lab {
    /// Creates or changes the pools. Those of Pods that find no node have the most nodes that they can have, if `grown`.
    fn apply_pools(&self, grown: bool) {
        let mut text = BASE.to_owned();
        for (number, (name, case)) in self.names.iter().zip(&self.cases).enumerate() {
            let mut case = case.clone();
            let is_grown = grown && self.find_no_node(number);
            case.pools.iter_mut().for_each(|pool| pool.is_autoscaled &= !is_grown);
            text += &case.pools(name);
        }
        self.user.write(text);
        block_in_place(|| self.user.run(&["apply", "--auto-approve"])).expect(0);
    }

    fn find_no_node(&self, number: usize) -> bool {
        matches!(self.predicted[number].0, Predicted::Never | Predicted::Lacking(_))
    }

    async fn create_pods(&self) {
        for object in self.names.iter().zip(&self.cases).flat_map(|(name, case)| case.objects(name)) {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap();
            let (kind, name) = (text("/kind").to_lowercase(), text("/metadata/name"));
            let path = format!("/apis/apps/v1/namespaces/default/{kind}s/{name}");
            let (status, said) = self.client.apply(&path, "somebody", &object).await;
            assert_eq!(status, 201, "{said}");
        }
    }

    /// Waits until the grown pools have all their nodes.
    async fn wait_for_nodes(&self) {
        let ready = |nodes: &Value, name: &String| {
            let nodes = nodes["items"].as_array().map_or(&[][..], Vec::as_slice);
            let own = nodes.iter().filter(|node| node["metadata"]["labels"]["case"] == name.as_str());
            own.filter(|node| !node["spec"]["taints"].to_string().contains("not-ready")).count()
        };
        let has_all = |nodes: &Value, number: usize| {
            let all = self.cases[number].pools.iter().map(|pool| pool.nodes as usize).sum::<usize>();
            !self.find_no_node(number) || ready(nodes, &self.names[number]) == all
        };
        let all = |nodes: &Value| (0..self.cases.len()).all(|number| has_all(nodes, number));
        self.client.wait(NODES, "the nodes of all pools", all).await;
    }

    /// Returns true if the Pods of a case are where `validate` says.
    fn holds(&self, number: usize, now: &Placed) -> bool {
        let case = &self.cases[number];
        match self.predicted[number].0 {
            // With rules about each other, or several pools, only that a new node takes a Pod is promised.
            Predicted::Fits if case.relates_pods() || case.pools.len() > 1 => now.bound > 0,
            Predicted::Fits => now.bound == case.replicas,
            Predicted::Lacking(count) if case.relates_pods() => {
                now.bound > 0 && now.bound + count <= case.replicas
            }
            Predicted::Lacking(count) => now.bound + count == case.replicas,
            Predicted::Never => now.bound == 0,
            Predicted::Near => true,
        }
    }

    /// Waits until this is true of the Pods of each case, and fails with the cases of which it is not.
    async fn wait_for_pods(&self, what: &str, is_so: impl Fn(usize, &Placed) -> bool) {
        let (begun, none) = (Instant::now(), Placed::default());
        loop {
            let now = placed(&self.client).await;
            let of = |number: usize| now.get(&self.names[number]).unwrap_or(&none);
            let others: Vec<usize> =
                (0..self.cases.len()).filter(|number| !is_so(*number, of(*number))).collect();
            if others.is_empty() {
                return;
            }
            if begun.elapsed() > PATIENCE {
                for number in &others {
                    let (name, (predicted, said)) = (&self.names[*number], &self.predicted[*number]);
                    println!("{name}: {predicted:?}: {:#?}\n{:#?}\n{said}", self.cases[*number], of(*number));
                }
                panic!("{what}: {others:?}");
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_fifty_generated_stacks_are_scheduled_as_validate_says() {
    needs!(PARTS);
    let cases = drawn();
    let names: Vec<String> = (0..cases.len()).map(|number| format!("c{number:02}")).collect();
    let predicted = names.iter().zip(&cases).map(|(name, case)| predict(name, case)).collect();
    let plane = ControlPlane::start().await;
    let client = plane.client();
    create_system_pods(&client).await;
    let served = sandbox_with_control_plane(&plane);
    let lab = Lab { cases, names, predicted, client, user: User::empty_at(&served.gke) };
    lab.apply_pools(false);
    lab.create_pods().await;
    lab.wait_for_pods("Pods that fit are scheduled", |number, now| lab.holds(number, now)).await;
    // The others are judged once more, with all nodes that their pools can have.
    lab.apply_pools(true);
    lab.wait_for_nodes().await;
    let (status, said) = lab.client.delete(&format!("{PODS}?fieldSelector=spec.nodeName%3D")).await;
    assert_eq!(status, 200, "{said}");
    let judged = |number: usize, now: &Placed| {
        let refused = u32::try_from(now.refused.len()).unwrap();
        now.open == 0 && now.bound + refused == lab.cases[number].replicas && lab.holds(number, now)
    };
    lab.wait_for_pods("Pods are scheduled as predicted", judged).await;
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for (predicted, _) in &lab.predicted {
        *counts.entry(format!("{predicted:?}")).or_default() += 1;
    }
    println!("{counts:?}");
    // The words of the program are more than one answer.
    let share = |is_so: fn(&Predicted) -> bool| {
        let of = lab.predicted.iter().filter(|(predicted, _)| is_so(predicted)).count();
        of as f64 / lab.cases.len() as f64
    };
    assert!(share(|predicted| matches!(predicted, Predicted::Fits)) > 0.2, "{counts:?}");
    assert!(share(|predicted| matches!(predicted, Predicted::Never)) > 0.1, "{counts:?}");
    assert!(share(|predicted| matches!(predicted, Predicted::Lacking(_))) > 0.02, "{counts:?}");
    assert!(share(|predicted| matches!(predicted, Predicted::Near)) < 0.25, "{counts:?}");
}
