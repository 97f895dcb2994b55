//! The guide's stack from its pools to its workers, and back.

use serde_json::{Value, json};

use super::super::object::{Key, is_true, label, list, name, number, text};
use super::logs::log;
use super::testing::{World, gpu, pool};

const RAPIDS: &str = "nvcr.io/nvidia/rapidsai/base:25.04-cuda12.8-py3.12";

fn pools() -> Vec<super::PoolView> {
    let mut t4 = gpu("nvidia-tesla-t4", "1", "INSTALLATION_DISABLED");
    t4["labels"] = json!({"dedicated": "scheduler"});
    vec![
        pool("default-pool", "a2-highgpu-2g", 1, gpu("nvidia-tesla-a100", "2", "INSTALLATION_DISABLED")),
        pool("scheduler-pool", "n1-standard-2", 1, t4),
    ]
}

fn driver() -> Value {
    let labels = json!({"k8s-app": "nvidia-driver-installer"});
    let requests = json!({"requests": {"cpu": "150m"}});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "nvidia-driver-installer", "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels}, "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": {
                "priorityClassName": "system-node-critical", "hostNetwork": true,
                "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"},
                        {"key": "cloud.google.com/gke-gpu-driver-version", "operator": "DoesNotExist"},
                    ]}],
                }}},
                "initContainers": [
                    {"name": "nvidia-driver-installer", "image": "cos-nvidia-installer:fixed", "resources": requests},
                    {"name": "partition-gpus", "image": "gcr.io/gke-release/nvidia-partition-gpu", "resources": requests},
                ],
                "containers": [{"name": "pause", "image": "gke.gcr.io/pause:3.8"}],
            }},
        },
    })
}

fn check(pool_name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("check-{pool_name}"), "namespace": "default"},
        "spec": {
            "restartPolicy": "Never", "nodeSelector": {"cloud.google.com/gke-nodepool": pool_name},
            "containers": [{
                "name": "cuda-vectoradd", "image": "nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04",
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }],
        },
    })
}

fn operator() -> Value {
    let labels = json!({"app.kubernetes.io/name": "dask-kubernetes-operator"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "dask-kubernetes-operator", "namespace": "default", "labels": labels},
        "spec": {
            "strategy": {"type": "Recreate"}, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "dask-kubernetes-operator", "image": "ghcr.io/dask/dask-kubernetes-operator:2026.3.0"},
            ]}},
        },
    })
}

fn dask_cluster() -> Value {
    let one_gpu = json!({"limits": {"nvidia.com/gpu": "1"}});
    let probe = json!({"httpGet": {"path": "/health", "port": "http-dashboard"}, "initialDelaySeconds": 5});
    json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster",
        "metadata": {"name": "rapids-dask-cluster", "namespace": "default"},
        "spec": {
            "worker": {"replicas": 2, "spec": {"containers": [{
                "name": "worker", "image": RAPIDS, "resources": one_gpu,
                "args": ["dask", "cuda", "worker", "--name", "$(DASK_WORKER_NAME)"],
            }]}},
            "scheduler": {
                "spec": {
                    "containers": [{
                        "name": "scheduler", "image": RAPIDS, "resources": one_gpu,
                        "args": ["dask", "scheduler"], "readinessProbe": probe, "livenessProbe": probe,
                        "ports": [
                            {"name": "tcp-comm", "containerPort": 8786, "protocol": "TCP"},
                            {"name": "http-dashboard", "containerPort": 8787, "protocol": "TCP"},
                        ],
                    }],
                    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 100,
                        "preference": {"matchExpressions": [
                            {"key": "dedicated", "operator": "In", "values": ["scheduler"]},
                        ]},
                    }]}},
                },
                "service": {
                    "type": "ClusterIP",
                    "selector": {
                        "dask.org/cluster-name": "rapids-dask-cluster", "dask.org/component": "scheduler",
                    },
                    "ports": [
                        {"name": "tcp-comm", "protocol": "TCP", "port": 8786, "targetPort": "tcp-comm"},
                        {"name": "http-dashboard", "protocol": "TCP", "port": 8787, "targetPort": "http-dashboard"},
                    ],
                },
            },
        },
    })
}

/// Seconds until `done`, at most a quarter of an hour.
fn wait(world: &mut World, what: &str, done: impl Fn(&World) -> bool) -> i64 {
    let waited = (0..900).find(|_| {
        let over = done(world);
        if !over {
            world.pass(1);
        }
        over
    });
    waited.unwrap_or_else(|| panic!("{what} never came"))
}

#[test]
fn the_guide() {
    let mut world = World::with_dask(pools());
    world.create(driver());
    let gpus = |node: &Value| text(node, "/status/allocatable/nvidia.com~1gpu").to_owned();
    let shown = |world: &World| world.all("", "nodes").iter().filter(|node| !gpus(node).is_empty()).count();
    let driver = wait(&mut world, "GPUs", |world| shown(world) == 2);
    let mut counts: Vec<String> = world.all("", "nodes").iter().map(gpus).collect();
    counts.sort();
    assert_eq!(counts, ["1", "2"]);
    let set = world.get("apps", "daemonsets", "kube-system", "nvidia-driver-installer");
    assert_eq!(number(&set, "/status/numberReady"), Some(2));

    for pool_name in ["default-pool", "scheduler-pool"] {
        world.create(check(pool_name));
    }
    let ended =
        |world: &World| world.pods("default").iter().all(|pod| text(pod, "/status/phase") == "Succeeded");
    let checked = wait(&mut world, "the checks", ended);
    for pod in world.pods("default") {
        let key = Key::new("", "pods", "default", name(&pod));
        assert!(log(&world.cluster, &key).is_some_and(|log| log.contains("Test PASSED\n")));
        world.delete(&key);
    }

    world.create(operator());
    world.create(dask_cluster());
    let up = wait(&mut world, "the Dask cluster", |world| {
        let cluster = world.get("kubernetes.dask.org", "daskclusters", "default", "rapids-dask-cluster");
        let deployments = world.all("apps", "deployments");
        text(&cluster, "/status/phase") == "Running"
            && deployments.iter().filter(|d| is_true(d, "Available")).count() == 5
    });
    let pods = world.pods("default");
    for pod in &pods {
        let node = world.get("", "nodes", "", text(pod, "/spec/nodeName"));
        let place = label(&node, "cloud.google.com/gke-nodepool");
        match label(pod, "dask.org/component") {
            "scheduler" => assert_eq!(place, "scheduler-pool"),
            "worker" => assert_eq!(place, "default-pool"),
            _ => continue,
        }
        let injected =
            list(pod, "/spec/tolerations").iter().any(|toleration| toleration["key"] == "nvidia.com/gpu");
        assert!(injected, "{}", pod["spec"]);
    }
    // At the default scale of 60 the whole of it must fit into a fraction of a minute.
    assert!(driver + checked + up < 720, "{driver} + {checked} + {up} seconds");
    assert_eq!(world.loops.refused(), None);

    let groups =
        ["rapids-dask-cluster"].map(|c| Key::new("kubernetes.dask.org", "daskclusters", "default", c));
    for key in &groups {
        world.delete(key);
    }
    wait(&mut world, "the end of the Dask cluster", |world| {
        world.names("", "pods", "default").len() == 1
            && world.all("kubernetes.dask.org", "daskworkergroups").is_empty()
    });
}

/// Everything that users would see, without what only counts writes.
fn snapshot(world: &World) -> Vec<Value> {
    world.cluster.objects().map(|(_, object)| object.clone()).collect()
}

#[test]
fn the_same_story_ends_in_the_same_store() {
    let run = || {
        let mut world = World::with_dask(pools());
        for object in [driver(), operator(), dask_cluster()] {
            world.create(object);
        }
        world.pass(600);
        snapshot(&world)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_restart_in_the_middle_only_costs_time() {
    for moment in [30, 150, 330] {
        let mut world = World::with_dask(pools());
        for object in [driver(), operator(), dask_cluster()] {
            world.create(object);
        }
        world.pass(moment);
        world.loops = super::Loops::default();
        world.pass(900);
        let cluster = world.get("kubernetes.dask.org", "daskclusters", "default", "rapids-dask-cluster");
        assert_eq!(text(&cluster, "/status/phase"), "Running", "restart after {moment} seconds");
        let pods = world.pods("default");
        assert!(pods.len() == 4 && pods.iter().all(|pod| is_true(pod, "Ready")), "{moment}");
    }
}

#[test]
fn a_driver_that_does_not_install_holds_everything_back() {
    for way in ["INSTALLATION_DISABLED", "LATEST"] {
        let mut world = World::new(vec![pool("p", "n1-standard-2", 1, gpu("nvidia-tesla-t4", "1", way))]);
        world.loops.scripts.driver_fails = true;
        world.create(driver());
        world.create(check("p"));
        world.pass(600);
        let check = world.get("", "pods", "default", "check-p");
        let why = text(&check, "/status/conditions/0/message").to_owned();
        assert!(why.starts_with("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), "{way}: {why}");
        world.loops.scripts.driver_fails = false;
        world.pass(900);
        let check = world.get("", "pods", "default", "check-p");
        assert_eq!(text(&check, "/status/phase"), "Succeeded", "{way}");
    }
}

#[test]
fn many_deployments_settle_in_time() {
    let mut world = World::new(vec![pool("p", "e2-standard-32", 4, json!({}))]);
    for number in 0..60 {
        let mut deployment = operator();
        deployment["metadata"]["name"] = json!(format!("d-{number}"));
        deployment["metadata"]["labels"] = json!({});
        world.create(deployment);
    }
    world.pass(120);
    let ready = world.all("apps", "deployments").iter().filter(|d| is_true(d, "Available")).count();
    assert_eq!(ready, 61, "with the DNS");
}
