use fit::gke::pool::Features;
use fit::gke::template;
use fit::{Bound, Cluster, Fit, Node};
use kinds::gke::placement::{pod_templates, settings};
use model::catalog::{self, Machine};
use model::resource::Resource;
use serde::Deserialize as _;

use super::*;
use crate::rules::shares::findings;

#[test]
fn shares_are_rounded_down() {
    for (milli, expect) in [(11_420, "11"), (3920, "3900m"), (2000, "2"), (199, "100m")] {
        assert_eq!(cpu_text(milli).as_deref(), Some(expect), "{milli}");
    }
    assert_eq!(cpu_text(99), None);
    for (mib, expect) in
        [(80_000, "78Gi"), (16_384, "16Gi"), (12_950, "12800Mi"), (4096, "4Gi"), (300, "256Mi")]
    {
        assert_eq!(memory_text(mib * MIB + 5).as_deref(), Some(expect), "{mib}");
    }
    assert_eq!(memory_text(255 * MIB), None);
}

/// Workers with a share of their node.
struct Case {
    /// Keys of the workers.
    keys: String,
    fitted: &'static [Amount],
    /// The workers of a node; `None` for as many as their other amounts allow.
    workers: Option<u32>,
}

/// Returns workers with GPUs, workers with one amount as a quantity, and one worker for each node, on a machine type.
fn cases(machine: &Machine) -> Vec<Case> {
    let case = |keys: &str, fitted, workers| Case { keys: keys.to_owned(), fitted, workers };
    let both = "cpu = \"fit\"\nmemory = \"fit\"";
    let all = &[Amount::Memory, Amount::Cpu];
    let gpus = machine.accelerator.as_ref().map_or(0, |gpus| gpus.count);
    if gpus > 0 {
        let with_gpus = |each: u32| case(&format!("gpus = {each}\n{both}"), all, Some(gpus / each));
        return (1..=gpus).map(with_gpus).collect();
    }
    vec![
        case(both, all, Some(1)),
        case("cpu = \"700m\"\nmemory = \"fit\"", &[Amount::Memory], None),
        case("cpu = \"3\"\nmemory = \"fit\"", &[Amount::Memory], None),
        case("cpu = \"fit\"\nmemory = \"3Gi\"", &[Amount::Cpu], None),
    ]
}

/// Pools with a taint of the section, and with GKE's where there are GPUs.
const POOLS: [(&str, &str); 2] = [
    ("tainted", "taints = [{ key = \"workers\", value = \"true\", effect = \"NoSchedule\" }]\n"),
    ("open", ""),
];

const HEAD: &str = "[stack]\nname = \"s\"\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-a\"\n[cluster]\nname = \"c\"\n\
    [node_pool.system]\nmachine_type = \"e2-standard-4\"\nnodes = 1\n\
    [dask_cluster.d]\nimage = \"ghcr.io/dask/dask:2026.3.0\"\n";

/// Returns the Pod of a DaemonSet that comes to every node.
fn agent() -> Value {
    let resources = json!({ "requests": { "cpu": "130m", "memory": "700Mi" } });
    let spec = json!({
        "tolerations": [{ "operator": "Exists" }],
        "containers": [{ "name": "a", "image": "busybox:1", "resources": resources }],
    });
    json!({ "metadata": { "labels": { "app": "agent" } }, "spec": spec })
}

/// Returns the stack of a text, with shares, and with a DaemonSet.
fn stack(text: &str) -> Stack {
    let mut value: Value = toml::from_str(text).unwrap();
    let spec = json!({ "selector": { "matchLabels": { "app": "agent" } }, "template": agent() });
    let object = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" }, "spec": spec });
    value["manifest"] = json!({ "agent": { "file": "agent.yaml", "objects": [object] } });
    let shared = of(&Stack::deserialize(&value).unwrap(), true);
    put_in(&mut value, &shared);
    Stack::deserialize(&value).unwrap()
}

/// Returns a stack with a group for each case on each pool. One stack for all: lowering it is most of the time.
fn stack_of(machine: &str, cases: &[Case]) -> Stack {
    let mut text = HEAD.to_owned();
    for (pool, taints) in POOLS {
        text += &format!("[node_pool.{pool}]\nmachine_type = \"{machine}\"\nnodes = 1\n{taints}");
        for (index, Case { keys, .. }) in cases.iter().enumerate() {
            text += &format!("[dask_cluster.d.group.{pool}-{index}]\npool = \"{pool}\"\n{keys}\n");
        }
    }
    stack(&text)
}

fn find<'a>(lowered: &'a Lowered, address: &str) -> &'a Resource {
    lowered.resources.iter().find(|resource| resource.address.as_str() == address).unwrap()
}

/// Returns a new node of a pool, with the Pods of GKE and of the DaemonSet.
fn new_node(lowered: &Lowered, pool: &str) -> Node {
    let features = Features::read(&find(lowered, "cluster").body);
    let pool = settings(&find(lowered, &format!("node_pool.{pool}")).body, true);
    let mut node = template(&pool, "us-central1-a", features).unwrap();
    node.bind(Bound::running(PodRequirements::read(&agent(), "default").unwrap()));
    // Pods for Arm processors have a toleration, which is not of the size of a node.
    node.taints.retain(|taint| taint.key != "kubernetes.io/arch");
    node
}

/// Returns how many pods a node certainly takes, at most `most`.
fn certain(pod: &PodRequirements, node: &Node, most: u32) -> u32 {
    let (cluster, mut node) = (Cluster::default(), node.clone());
    let question = cluster.ask(pod);
    let takes = |_: &u32| {
        let fits = question.verdict(&node) == Fit::Fits;
        node.bind(Bound::running(pod.clone()));
        fits
    };
    u32::try_from((0..most).take_while(takes).count()).unwrap()
}

fn with_amount(pod: &PodRequirements, resource: &Amount, change: impl Fn(i64) -> i64) -> PodRequirements {
    let mut pod = pod.clone();
    for request in pod.requests.iter_mut().filter(|request| request.resource == *resource) {
        request.amount = change(request.amount);
    }
    pod
}

fn one_step_more(resource: &Amount, amount: i64) -> i64 {
    let step = match resource {
        Amount::Cpu if amount >= WHOLE_CPUS => 1000,
        Amount::Cpu => CPU_STEP,
        _ if amount >= WHOLE_GIB * MIB => LARGE_MEMORY_STEP * MIB,
        _ => SMALL_MEMORY_STEP * MIB,
    };
    amount + step
}

/// Returns false for workers without a share, which a rule reports: of machines that are too small for it or have no taint.
fn check(case: &Case, group: &str, stack: &Stack, lowered: &Lowered, node: &Node) -> bool {
    if stack.dask_cluster["d"].group[group].keys.fitted().next().is_some() {
        return false;
    }
    let resource = find(lowered, &format!("dask_cluster.d.group.{group}"));
    let worker = &pod_templates(resource)[0].requirements;
    for fitted in case.fitted {
        let others = with_amount(worker, fitted, |_| 0);
        let workers = case.workers.unwrap_or_else(|| certain(&others, node, 1000));
        // Another rule reports the amount that is too large.
        if workers == 0 {
            return false;
        }
        let named = format!("{} on {group}: {workers} workers", case.keys);
        assert!(certain(worker, node, workers) == workers, "{named} do not fit");
        let larger = with_amount(worker, fitted, |amount| one_step_more(fitted, amount));
        assert!(certain(&larger, node, workers) < workers, "{named} could have more");
    }
    true
}

/// Returns how many kinds of workers got a share on one of every `step` machine types.
fn tried(step: usize) -> usize {
    let is_known = |machine: &&Machine| machine.vcpus.and(machine.memory_gb).is_some();
    let on_machine = |machine: &Machine| {
        let cases = cases(machine);
        let stack = stack_of(&machine.name, &cases);
        let lowered = lower(&stack, true);
        let on_pool = |(pool, _)| {
            let node = new_node(&lowered, pool);
            let group = |index| format!("{pool}-{index}");
            let numbered = cases.iter().enumerate();
            numbered.filter(|(index, case)| check(case, &group(*index), &stack, &lowered, &node)).count()
        };
        POOLS.into_iter().map(on_pool).sum::<usize>()
    };
    catalog::machines().filter(is_known).step_by(step).map(on_machine).sum()
}

#[test]
fn a_new_node_takes_its_workers_and_no_larger_ones() {
    let tried = tried(7);
    assert!(tried > 100, "{tried}");
}

#[test]
#[ignore = "nightly: a_new_node_takes_its_workers_and_no_larger_ones runs on every change"]
fn a_new_node_of_any_machine_type_takes_its_workers_and_no_larger_ones() {
    let tried = tried(1);
    assert!(tried > 500, "{tried}");
}

/// Returns a stack with lines of a Dask cluster and of its pool, and its shares.
fn shares(dask: &str, pool: &str) -> (Stack, Vec<Shared>) {
    let text = format!("{HEAD}{dask}\n[node_pool.p]\nnodes = 1\n{pool}\n");
    let stack = toml::from_str(&text).unwrap();
    let shared = of(&stack, true);
    (stack, shared)
}

#[test]
fn taints_of_arm_processors_reserve_no_nodes() {
    for machine in ["n2-standard-8", "t2a-standard-8"] {
        let pool = format!("machine_type = \"{machine}\"");
        let (_, shared) = shares("worker = { memory = \"fit\", pool = \"p\" }", &pool);
        assert_eq!(shared[0].share, Err(NoShare::NotReserved), "{machine}");
    }
}

#[test]
fn workers_of_an_external_dask_cluster_have_a_share() {
    let dask = "manage = false\nworker = { memory = \"fit\", pool = \"p\" }";
    let (_, shared) = shares(dask, &format!("machine_type = \"n2-standard-8\"\n{}", POOLS[0].1));
    assert_eq!(shared[0].share.as_deref(), Ok("26Gi"));
}

#[test]
fn a_share_that_is_missing_without_another_error_is_an_error() {
    let (stack, shared) =
        shares("worker = { memory = \"fit\", pool = \"q\" }", "machine_type = \"n2-standard-8\"");
    assert_eq!(shared[0].share, Err(NoShare::Unclear));
    let count = |has_error| findings(&stack, &shared, has_error).len();
    assert_eq!((count(true), count(false)), (0, 1));
}
