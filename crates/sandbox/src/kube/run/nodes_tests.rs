use jiff::Timestamp;

use super::super::testing::{World, gpu, pool};
use super::super::{Cluster, Loops, Write};
use super::*;
use crate::clock::Scale;

#[test]
fn labels_of_a_gpu_node() {
    let mut config = gpu("nvidia-tesla-t4", "1", "DEFAULT");
    config["labels"] = json!({"dedicated": "scheduler"});
    let view = pool("scheduler-pool", "n1-standard-2", 1, config);
    let node = node_object(&view, "us-central1-c", "gke-c-scheduler-pool-0a1b2c3d-wxyz");
    for (key, want) in [
        ("cloud.google.com/gke-nodepool", "scheduler-pool"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4"),
        ("cloud.google.com/gke-gpu-driver-version", "default"),
        ("cloud.google.com/gke-os-distribution", "cos"),
        ("cloud.google.com/machine-family", "n1"),
        ("cloud.google.com/gke-provisioning", "standard"),
        ("node.kubernetes.io/instance-type", "n1-standard-2"),
        ("topology.kubernetes.io/zone", "us-central1-c"),
        ("topology.kubernetes.io/region", "us-central1"),
        ("kubernetes.io/hostname", "gke-c-scheduler-pool-0a1b2c3d-wxyz"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("dedicated", "scheduler"),
    ] {
        assert_eq!(label(&node, key), want, "{key}");
    }
    let provider = "gce://my-project/us-central1-c/gke-c-scheduler-pool-0a1b2c3d-wxyz";
    assert_eq!(text(&node, "/spec/providerID"), provider);
    assert_eq!(text(&node, "/status/allocatable/cpu"), "1930m");
    assert_eq!(text(&node, "/status/allocatable/pods"), "110");
    assert!(node.pointer(GPU).is_none(), "no GPU before its driver");
}

#[test]
fn the_driver_label_follows_the_driver_setting() {
    for (driver, want) in
        [("DEFAULT", "default"), ("LATEST", "latest"), ("INSTALLATION_DISABLED", ""), ("", "")]
    {
        let view = pool("p", "n1-standard-2", 1, gpu("nvidia-tesla-t4", "1", driver));
        assert_eq!(label(&node_object(&view, "z-a", "n"), DRIVER_LABEL), want, "{driver}");
    }
}

#[test]
fn provisioning_and_sharing_labels() {
    let table = [
        (json!({"spot": true}), "cloud.google.com/gke-spot", "true"),
        (json!({"spot": true}), "cloud.google.com/gke-provisioning", "spot"),
        (json!({"preemptible": true}), "cloud.google.com/gke-preemptible", "true"),
        (json!({"imageType": "UBUNTU_CONTAINERD"}), "cloud.google.com/gke-os-distribution", "ubuntu"),
        (
            json!({"accelerators": [{"acceleratorCount": "1", "acceleratorType": "x",
                "gpuSharingConfig": {"gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": "2"}}]}),
            "cloud.google.com/gke-gpu-sharing-strategy",
            "time-sharing",
        ),
    ];
    for (config, key, want) in table {
        let view = pool("p", "n1-standard-2", 1, config);
        assert_eq!(label(&node_object(&view, "us-central1-c", "n"), key), want, "{key}");
    }
}

#[test]
fn partitions_and_sharing_multiply_gpus() {
    let shared = json!({"gpuSharingStrategy": "MPS", "maxSharedClientsPerGpu": "4"});
    for (accelerator, want) in [
        (json!({"acceleratorCount": "2"}), 2),
        (
            json!({"acceleratorCount": 2, "acceleratorType": "nvidia-tesla-a100", "gpuPartitionSize": "1g.5gb"}),
            14,
        ),
        (json!({"acceleratorCount": "1", "gpuSharingConfig": shared}), 4),
        (
            json!({"acceleratorCount": "2", "acceleratorType": "nvidia-tesla-a100", "gpuPartitionSize": "3g.20gb", "gpuSharingConfig": shared}),
            16,
        ),
    ] {
        assert_eq!(gpus(&json!({"config": {"accelerators": [accelerator]}})), want, "{accelerator}");
    }
    assert_eq!(gpus(&json!({})), 0);
}

#[test]
fn huge_pages_are_allocatable_and_gpus_wait_for_their_plugin() {
    let config = json!({
        "linuxNodeConfig": { "hugepages": { "hugepageSize1g": 2 } },
        "accelerators": [{ "acceleratorCount": "1", "acceleratorType": "nvidia-tesla-t4" }],
    });
    let (node, capacity) = made(&pool("p", "n1-standard-8", 1, config), "us-central1-c", "n");
    for all in [&node.allocatable, &capacity] {
        assert_eq!(amounts(all, Cpus::Whole)["hugepages-1Gi"], "2048Mi");
    }
    assert!(!node.allocatable.extended.contains_key("nvidia.com/gpu"));
}

#[test]
fn nodes_become_ready_and_lose_the_taint() {
    let mut world = World::new(vec![pool("p", "e2-standard-4", 2, json!({}))]);
    world.pass(5);
    let nodes = world.all("", "nodes");
    assert_eq!(nodes.len(), 2);
    assert!(nodes.iter().all(|node| name(node).starts_with("gke-c-p-0a1b2c3d-") && name(node).len() == 21));
    assert!(nodes.iter().all(|node| !is_ready(node) && list(node, "/spec/taints").len() == 1));
    world.pass(30);
    let nodes = world.all("", "nodes");
    assert!(nodes.iter().all(|node| is_ready(node) && node["spec"].get("taints").is_none()), "{nodes:?}");
    let addresses: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/spec/podCIDR")).collect();
    assert_eq!(addresses.len(), 2);
    let leases: Vec<String> = nodes.iter().map(|node| name(node).to_owned()).collect();
    assert_eq!(world.names("coordination.k8s.io", "leases", "kube-node-lease"), leases);
}

#[test]
fn pools_are_resized_relabelled_and_deleted() {
    let taints = json!([{"key": "k", "value": "v", "effect": "NO_SCHEDULE"}]);
    let mut world =
        World::new(vec![pool("p", "e2-standard-4", 3, json!({"labels": {"a": "1"}, "taints": taints}))]);
    world.pass(60);
    let before = world.names("", "nodes", "");
    world.pools[0].target_sizes.insert("us-central1-c".to_owned(), 2);
    world.pools[0].pool["config"]["labels"] = json!({"b": "2"});
    world.pools[0].pool["config"]["taints"] = json!([]);
    world.pass(60);
    let nodes = world.all("", "nodes");
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert!(before.contains(&name(node).to_owned()), "labels do not replace nodes");
        assert_eq!((label(node, "a"), label(node, "b")), ("", "2"));
        assert!(node["spec"].get("taints").is_none(), "{}", node["spec"]);
    }
    world.pools[0].deleting = true;
    world.pass(1);
    assert!(world.all("", "nodes").is_empty());
    assert!(world.all("coordination.k8s.io", "leases").is_empty());
    world.pools.clear();
    world.pass(60);
    assert!(world.all("", "nodes").is_empty());
}

#[test]
fn another_machine_type_replaces_nodes_one_after_another() {
    let mut world = World::new(vec![pool("p", "e2-standard-4", 2, json!({}))]);
    world.pass(60);
    let before = world.names("", "nodes", "");
    world.pools[0].pool["config"]["machineType"] = json!("e2-standard-8");
    world.pass(1);
    assert_eq!(world.all("", "nodes").len(), 3, "one more by surge");
    world.pass(300);
    let nodes = world.all("", "nodes");
    assert_eq!(nodes.len(), 2);
    assert!(nodes.iter().all(|node| !before.contains(&name(node).to_owned()) && is_ready(node)));
    assert!(nodes.iter().all(|node| text(node, "/status/capacity/cpu") == "8"));
}

/// Seconds until a node of a pool shows its GPUs, if it does within ten minutes.
fn gpus_after(driver: &str, objects: &[Value]) -> Option<i64> {
    let mut world = World::new(vec![pool("p", "a2-highgpu-2g", 1, gpu("nvidia-tesla-a100", "2", driver))]);
    for object in objects {
        world.create(object.clone());
    }
    (1..=60).find_map(|turn| {
        world.pass(10);
        let node = world.all("", "nodes").pop()?;
        (node.pointer(GPU) == Some(&json!("2"))).then_some(turn * 10)
    })
}

/// The driver DaemonSet as far as the gate cares.
fn driver_set() -> Value {
    let labels = json!({"k8s-app": "nvidia-driver-installer"});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "nvidia-driver-installer", "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": {
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [
                        {"key": ACCELERATOR_LABEL, "operator": "Exists"},
                        {"key": DRIVER_LABEL, "operator": "DoesNotExist"},
                    ]}],
                }}},
                "tolerations": [{"operator": "Exists"}],
                "initContainers": [
                    {"name": "nvidia-driver-installer", "image": "cos-nvidia-installer:fixed"},
                    {"name": "partition-gpus", "image": "gcr.io/gke-release/nvidia-partition-gpu"},
                ],
                "containers": [{"name": "pause", "image": "gke.gcr.io/pause:3.8"}],
            }},
        },
    })
}

#[test]
fn gpus_wait_for_the_driver() {
    let auto = gpus_after("LATEST", &[]).expect("GKE installs it");
    assert!((130..220).contains(&auto), "{auto}");
    assert_eq!(gpus_after("INSTALLATION_DISABLED", &[]), None, "nobody installs it");
    let manual = gpus_after("INSTALLATION_DISABLED", &[driver_set()]).expect("the DaemonSet installs it");
    assert!((100..220).contains(&manual), "{manual}");
}

#[test]
fn the_driver_set_wants_no_node_where_gke_installs() {
    let mut world = World::new(vec![pool("p", "a2-highgpu-2g", 1, gpu("nvidia-tesla-a100", "2", "DEFAULT"))]);
    world.create(driver_set());
    world.pass(300);
    let set = world.get("apps", "daemonsets", "kube-system", "nvidia-driver-installer");
    assert_eq!(
        set["status"],
        json!({"observedGeneration": 1, "desiredNumberScheduled": 0,
        "currentNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0})
    );
}

#[test]
fn the_device_plugin_says_that_it_waits() {
    let view = pool("p", "a2-highgpu-2g", 1, gpu("nvidia-tesla-a100", "2", "INSTALLATION_DISABLED"));
    let mut world = World::new(vec![view]);
    world.pass(120);
    let pods = world.pods("kube-system");
    let plugin =
        pods.iter().find(|pod| label(pod, "k8s-app") == "nvidia-gpu-device-plugin").expect("a plugin");
    assert_eq!(text(plugin, "/status/phase"), "Pending");
    assert!(plugin.pointer("/status/initContainerStatuses/0/state/running").is_some());
    let log = super::super::logs::container_log(plugin, "wait-for-driver");
    assert_eq!(log.as_deref(), Some("Waiting for GPU driver libraries to be available.\n"));
}

/// Returns the writes that are due after `seconds` in a cluster elsewhere that holds these objects.
fn elsewhere(loops: &mut Loops, view: &PoolView, objects: &[Value], seconds: i64) -> Vec<Write> {
    let keyed = objects.iter().map(|object| {
        let resource = if object["kind"] == "Node" { "nodes" } else { "pods" };
        (Key::new("", resource, text(object, "/metadata/namespace"), name(object)), object.clone())
    });
    let cluster = Cluster::restore(&json!({"revision": 7, "counter": 0}), keyed).expect("a cluster");
    let now = Timestamp::from_second(1_795_000_000 + seconds).expect("a time");
    loops.nodes_elsewhere(&cluster, std::slice::from_ref(view), now, &Scale { time_scale: 1.0 })
}

/// A node elsewhere, as a real API server and its agents leave it: quantities in other words, Ready.
fn ready_node(view: &PoolView) -> Value {
    let mut node = node_object(view, "us-central1-c", "gke-c-p-0a1b2c3d-wxyz");
    node["metadata"]["uid"] = json!("1");
    node["spec"]["taints"] = json!([]);
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    node["status"]["capacity"]["ephemeral-storage"] =
        json!((milli(&node["status"]["capacity"], "ephemeral-storage") / 1000).to_string());
    node
}

#[test]
fn elsewhere_only_nodes_are_written() {
    let mut view = pool("p", "n1-standard-2", 1, json!({"labels": {"team": "x"}}));
    let mut loops = Loops::default();
    let made = elsewhere(&mut loops, &view, &[], 0);
    assert!(matches!(&made[..], [Write::Create { object, .. }] if object["kind"] == "Node"), "{made:?}");
    let node = ready_node(&view);
    assert!(elsewhere(&mut loops, &view, std::slice::from_ref(&node), 1).is_empty(), "nothing is to be done");
    view.pool["config"]["labels"] = json!({"team": "y"});
    let labelled = elsewhere(&mut loops, &view, std::slice::from_ref(&node), 2);
    assert!(
        matches!(&labelled[..], [Write::Merge { patch, .. }] if patch["metadata"]["labels"]["team"] == "y")
    );
    view.deleting = true;
    let gone = elsewhere(&mut loops, &view, &[node], 3);
    let first_goes = matches!(&gone[0], Write::Delete { key, .. } if key.name == "gke-c-p-0a1b2c3d-wxyz");
    assert!(first_goes, "{gone:?}");
}

#[test]
fn elsewhere_gpus_wait_for_their_driver() {
    let shown = |writes: &[Write]| match writes {
        [Write::Status { status, .. }] => status["allocatable"]["nvidia.com/gpu"] == "2",
        [] => false,
        other => panic!("{other:?}"),
    };
    let installed = pool("p", "n1-standard-2", 1, gpu("nvidia-tesla-t4", "2", "DEFAULT"));
    let (mut loops, node) = (Loops::default(), ready_node(&installed));
    let mut after = |seconds| shown(&elsewhere(&mut loops, &installed, std::slice::from_ref(&node), seconds));
    assert!(!after(0) && !after(100), "GKE is installing it");
    assert!(!after(111), "the device plugin starts");
    assert!(after(120));

    let own = pool("p", "n1-standard-2", 1, gpu("nvidia-tesla-t4", "2", "INSTALLATION_DISABLED"));
    let (mut loops, node) = (Loops::default(), ready_node(&own));
    let driver = json!({
        "kind": "Pod", "spec": {"nodeName": name(&node)},
        "metadata": {"name": "d", "namespace": "kube-system", "labels": {"k8s-app": "nvidia-driver-installer"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    assert!(!shown(&elsewhere(&mut loops, &own, std::slice::from_ref(&node), 1000)), "nobody installs it");
    assert!(!shown(&elsewhere(&mut loops, &own, &[node.clone(), driver.clone()], 1001)));
    assert!(shown(&elsewhere(&mut loops, &own, &[node, driver], 1010)));
}
