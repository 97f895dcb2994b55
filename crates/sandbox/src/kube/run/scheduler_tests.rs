use super::super::super::object::Key;
use super::super::testing::{World, gpu, pool};
use super::*;

fn node(node_name: &str, mut labels: Value, taints: Value, allocatable: Value) -> Value {
    labels["kubernetes.io/hostname"] = json!(node_name);
    json!({
        "metadata": {"name": node_name, "labels": labels}, "spec": {"taints": taints},
        "status": {"allocatable": allocatable},
    })
}

fn three_nodes() -> Vec<Value> {
    let sizes = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let gpus = json!({"cpu": "24", "memory": "160Gi", "pods": "110", "nvidia.com/gpu": "2"});
    let taint = json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]);
    vec![
        node("a100", json!({"pool": "a100"}), taint, gpus),
        node("cpu-1", json!({"pool": "cpu"}), json!([]), sizes.clone()),
        node("cpu-2", json!({"pool": "cpu", "disk": "ssd"}), json!([]), sizes),
    ]
}

fn affinity(key: &str, value: &str) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
    ]}}})
}

fn asking(limits: Value) -> Value {
    json!([{"name": "c", "resources": {"limits": limits}}])
}

/// Where a pod goes, or the scheduler's message.
fn outcome(spec: &Value, nodes: &[Value]) -> String {
    let refs: Vec<&Value> = nodes.iter().collect();
    let hosts = Hosts::new(&refs, &[], Surroundings::default());
    place(&json!({"spec": spec}), None, &hosts)
        .map_or_else(|message| message, |index| name(&nodes[index]).to_owned())
}

#[test]
fn messages_and_places() {
    let tolerates = json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]);
    let table = [
        (json!({"containers": asking(json!({"cpu": "1"}))}), "cpu-1"),
        (json!({"containers": asking(json!({"nvidia.com/gpu": 2})), "tolerations": tolerates}), "a100"),
        (
            json!({"containers": asking(json!({"nvidia.com/gpu": 3})), "tolerations": tolerates}),
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: \
             3 Preemption is not helpful for scheduling.",
        ),
        (
            json!({"containers": asking(json!({"cpu": "20"}))}),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        ),
        (
            json!({"containers": asking(json!({"cpu": "100"})), "nodeSelector": {"pool": "cpu"},
                "tolerations": tolerates}),
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient cpu. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        ),
        (json!({"containers": [], "affinity": affinity("disk", "ssd")}), "cpu-2"),
        (
            json!({"containers": [], "affinity": affinity("disk", "floppy"), "tolerations": tolerates}),
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes \
             are available: 3 Preemption is not helpful for scheduling.",
        ),
    ];
    for (spec, want) in table {
        assert_eq!(outcome(&spec, &three_nodes()), want, "{spec}");
    }
    assert_eq!(outcome(&json!({}), &[]), "no nodes available to schedule pods");
}

#[test]
fn nodes_that_are_full_could_be_emptied() {
    let nodes = three_nodes();
    let refs: Vec<&Value> = nodes.iter().collect();
    let bound = json!({"spec": {"nodeName": "cpu-1", "containers": asking(json!({"cpu": "3"}))}});
    let finished = json!({"spec": {"nodeName": "cpu-2", "containers": asking(json!({"cpu": "4"}))},
        "status": {"phase": "Succeeded"}});
    let hosts = Hosts::new(&refs, &[&bound, &finished], Surroundings::default());
    let spec = json!({"containers": asking(json!({"cpu": "2"})), "nodeSelector": {"pool": "cpu"}});
    assert_eq!(place(&json!({"spec": spec}), None, &hosts), Ok(2), "finished pods take nothing");
    let only = json!({"containers": asking(json!({"cpu": "2"})), "nodeSelector": {"pool": "cpu"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cpu-1"]}]}]}}}});
    let why = place(&json!({"spec": only}), None, &hosts).expect_err("full");
    assert!(
        why.ends_with(
            "1 No preemption victims found for incoming pod, 2 Preemption is not helpful for \
        scheduling."
        ),
        "{why}"
    );
}

#[test]
fn a_pod_that_must_run_beside_another_waits_for_it() {
    let nodes = three_nodes();
    let refs: Vec<&Value> = nodes.iter().collect();
    let beside = |app: &str| {
        let term =
            json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"});
        json!({"containers": [], "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let bound =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": "cpu-2", "containers": []}});
    let hosts = Hosts::new(&refs, &[&bound], Surroundings::default());
    assert_eq!(place(&json!({"spec": beside("web")}), None, &hosts), Ok(2));
    assert_eq!(
        place(&json!({"spec": beside("other")}), None, &hosts).expect_err("alone"),
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: \
         3 Preemption is not helpful for scheduling."
    );
}

#[test]
fn a_pod_whose_claim_does_not_exist_waits_for_it() {
    let mut world = World::new(vec![pool("p", "e2-standard-4", 1, json!({}))]);
    world.pass(120);
    let claim = |name: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
    world
        .create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "busybox"}], "volumes": [claim("data")]}}));
    world.pass(1);
    let message = |world: &World| {
        let pod = world.get("", "pods", "default", "p");
        text(&pod["status"]["conditions"][0], "/message").to_owned()
    };
    assert_eq!(
        message(&world),
        "0/1 nodes are available: persistentvolumeclaim \"data\" not found. preemption: 0/1 nodes are available: \
         1 Preemption is not helpful for scheduling."
    );
    world.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
    world.pass(30);
    assert_eq!(message(&world), "");
}

/// An e2-standard-2 gives 1930m to pods, of which GKE's own take 459m.
#[test]
fn pods_of_gke_take_their_part_of_a_node() {
    let mut world = World::new(vec![pool("p", "e2-standard-2", 1, json!({}))]);
    world.pass(120);
    for (name, cpu) in [("small", "1400m"), ("large", "1600m")] {
        world.create(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": asking(json!({"cpu": cpu}))}}),
        );
        world.pass(1);
        let pod = world.get("", "pods", "default", name);
        let is_placed = !text(&pod, "/spec/nodeName").is_empty();
        assert_eq!(is_placed, name == "small", "{}", pod["status"]);
        world.delete(&Key::new("", "pods", "default", name));
        world.pass(60);
    }
}

#[test]
fn preferences_weigh_more_than_free_space() {
    let prefer = |weight: i64, value: &str| {
        json!({"weight": weight,
            "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": [value]}]}})
    };
    let sizes = json!({"cpu": "2", "memory": "6Gi", "pods": "110", "nvidia.com/gpu": "1"});
    let mut nodes = three_nodes();
    nodes.push(node("t4", json!({"pool": "t4"}), json!([]), sizes));
    nodes[0]["spec"]["taints"] = json!([]);
    let spec = |terms: Value| {
        json!({"containers": asking(json!({"nvidia.com/gpu": 1})),
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
    };
    assert_eq!(outcome(&spec(json!([])), &nodes), "a100");
    assert_eq!(outcome(&spec(json!([prefer(100, "t4")])), &nodes), "t4");
    assert_eq!(outcome(&spec(json!([prefer(50, "t4"), prefer(60, "a100")])), &nodes), "a100");
    assert_eq!(outcome(&spec(json!([prefer(100, "nowhere")])), &nodes), "a100");
}

#[test]
fn requests_of_a_pod() {
    let spec = json!({
        "containers": [
            {"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "nvidia.com/gpu": 1}}},
            {"resources": {"limits": {"memory": "1Gi"}}},
        ],
        "initContainers": [{"resources": {"requests": {"cpu": "500m"}}}],
    });
    let want = [("cpu", 500), ("memory", 1_073_741_824_000), ("nvidia.com/gpu", 1000)];
    assert_eq!(requests(&spec), want.map(|(resource, amount)| (resource.to_owned(), amount)).into());
}

#[test]
fn a_pod_that_fits_nowhere_says_so_and_is_bound_when_it_does() {
    let mut world = World::new(Vec::new());
    world.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}));
    world.pass(1);
    let pod = world.get("", "pods", "default", "p");
    let condition = &pod["status"]["conditions"][0];
    assert_eq!((text(&pod, "/status/phase"), text(condition, "/reason")), ("Pending", "Unschedulable"));
    let events = world.all("", "events");
    let event = events.iter().find(|event| event["reason"] == "FailedScheduling").expect("an event");
    assert_eq!(event["message"], "no nodes available to schedule pods");
    world.pools.push(pool("p", "n1-standard-2", 1, gpu("nvidia-tesla-t4", "1", "DEFAULT")));
    world.pass(600);
    let pod = world.get("", "pods", "default", "p");
    assert!(text(&pod, "/spec/nodeName").starts_with("gke-c-p-"), "{}", pod["status"]);
    assert_eq!(text(&pod, "/status/phase"), "Running");
}
