use super::super::logs::log;
use super::super::testing::{World, gpu, pool};
use super::*;
use serde_json::json;

fn gpu_world() -> World {
    let mut world = World::new(vec![pool("p", "n1-standard-2", 1, gpu("nvidia-tesla-t4", "1", "DEFAULT"))]);
    world.pass(300);
    world
}

fn bare_pod(pod_name: &str, image: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod_name, "namespace": "default"},
        "spec": {"restartPolicy": policy, "containers": [
            {"name": "main", "image": image, "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
    })
}

const CUDA: &str = "nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04";

#[test]
fn the_cuda_check_passes() {
    let mut world = gpu_world();
    world.create(bare_pod("cuda-vectoradd", CUDA, "Never"));
    let key = Key::new("", "pods", "default", "cuda-vectoradd");
    world.pass(5);
    assert_eq!(log(&world.cluster, &key), None, "nothing before it starts");
    assert_eq!(
        text(
            &world.get("", "pods", "default", "cuda-vectoradd"),
            "/status/containerStatuses/0/state/waiting/reason"
        ),
        "ContainerCreating"
    );
    world.pass(60);
    let pod = world.get("", "pods", "default", "cuda-vectoradd");
    assert_eq!(text(&pod, "/status/phase"), "Succeeded");
    assert_eq!(number(&pod, "/status/containerStatuses/0/state/terminated/exitCode"), Some(0));
    let log = log(&world.cluster, &key).expect("a log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(
        lines,
        [
            "[Vector addition of 50000 elements]",
            "Copy input data from the host memory to the CUDA device",
            "CUDA kernel launch with 196 blocks of 256 threads",
            "Copy output data from the CUDA device to the host memory",
            "Test PASSED",
            "Done",
        ]
    );
}

#[test]
fn the_cuda_check_fails_by_script() {
    for (policy, phase) in [("Never", "Failed"), ("OnFailure", "Running")] {
        let mut world = gpu_world();
        world.loops.scripts.cuda_fails = true;
        world.create(bare_pod("check", CUDA, policy));
        world.pass(60);
        let pod = world.get("", "pods", "default", "check");
        assert_eq!(text(&pod, "/status/phase"), phase, "{policy}");
        let log = log(&world.cluster, &Key::new("", "pods", "default", "check")).expect("a log");
        assert!(log.ends_with("Test FAILED\n"), "{log}");
        if policy == "OnFailure" {
            let restarts = number(&pod, "/status/containerStatuses/0/restartCount");
            assert!(restarts > Some(0), "{}", pod["status"]);
        }
    }
}

#[test]
fn an_image_that_is_not_there_backs_off_and_recovers() {
    let mut world = gpu_world();
    world.loops.scripts.fail_image = vec!["*:nope".to_owned()];
    world.create(bare_pod("p", "busybox:nope", "Always"));
    let waiting = "/status/containerStatuses/0/state/waiting/reason";
    for (seconds, want) in [(1, "ContainerCreating"), (5, "ErrImagePull"), (20, "ImagePullBackOff")] {
        world.pass(seconds);
        assert_eq!(text(&world.get("", "pods", "default", "p"), waiting), want);
    }
    world.loops.scripts.fail_image.clear();
    world.pass(60);
    assert_eq!(text(&world.get("", "pods", "default", "p"), "/status/phase"), "Running");
}

#[test]
fn a_second_pod_finds_the_image() {
    let mut world = gpu_world();
    world.create(bare_pod("first", CUDA, "Never"));
    world.pass(60);
    world.create(bare_pod("second", CUDA, "Never"));
    world.pass(6);
    assert_eq!(text(&world.get("", "pods", "default", "second"), "/status/phase"), "Succeeded");
}

#[test]
fn deleted_pods_stop_and_pods_of_vanished_nodes_go() {
    let mut world = gpu_world();
    world.create(bare_pod("a", "busybox", "Always"));
    world.pass(60);
    world.delete(&Key::new("", "pods", "default", "a"));
    assert!(world.get("", "pods", "default", "a").pointer("/metadata/deletionTimestamp").is_some());
    world.pass(5);
    assert_eq!(world.get("", "pods", "default", "a"), Value::Null);
    world.create(bare_pod("b", "busybox", "Always"));
    world.pass(60);
    world.pools.clear();
    world.pass(1);
    assert_eq!(world.get("", "pods", "default", "b"), Value::Null);
}

#[test]
fn readiness_follows_the_probe() {
    let mut world = World::new(vec![pool("p", "e2-standard-4", 1, json!({}))]);
    world.pass(60);
    let mut pod = bare_pod("p", "busybox", "Always");
    pod["spec"]["containers"][0]["resources"] = json!({});
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"initialDelaySeconds": 30, "httpGet": {"path": "/"}});
    world.create(pod);
    world.pass(20);
    let pod = world.get("", "pods", "default", "p");
    let ready = crate::kube::object::condition(&pod, "Ready").cloned().unwrap_or_default();
    assert_eq!(text(&pod, "/status/phase"), "Running");
    assert_eq!(text(&ready, "/message"), "containers with unready status: [main]");
    world.pass(40);
    assert!(crate::kube::object::is_true(&world.get("", "pods", "default", "p"), "Ready"));
}

#[test]
fn a_quiet_cluster_costs_nothing() {
    let mut world = gpu_world();
    let revision = world.cluster.revision();
    world.pass(3000);
    assert_eq!(world.cluster.revision(), revision, "nothing moves by itself");
    assert_eq!(world.loops.due(), None);
    assert_eq!(world.loops.refused(), None);
}
