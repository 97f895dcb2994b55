//! `why` against worlds in which something is the matter: no free GPU, a stock-out, and pods that the real scheduler
//! refuses.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use sandbox::Stockout;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{ControlPlane, Part, needs};
use crate::sandbox_server::{CommandOutput, SandboxServer, User};

const STACK: &str = r#"[stack]
name = "lab"

[gke]
project = "demo"
location = "us-central1-c"

[cluster]
name = "lab"

[node_pool.cpu]
machine_type = "e2-standard-4"

[node_pool.t4]
machine_type = "n1-standard-4"
accelerator = "nvidia-tesla-t4"
nodes = 1

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
scheduler = { pool = "cpu" }
worker = { replicas = 1, gpus = 1, pool = "t4" }
"#;

fn lab() -> (SandboxServer, User) {
    let served = SandboxServer::fast();
    let user = User::at(&served, STACK);
    (served, user)
}

/// Asks until the answer has the words, and gives it.
fn wait_until(user: &User, address: &str, words: &str) -> CommandOutput {
    let begun = Instant::now();
    loop {
        let said = user.run(&["why", address]).expect(0);
        let line = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.contains(words) {
            return said;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no {words:?} in:\n{}", said.out);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_worker_without_a_gpu_and_its_cure() {
    let (served, user) = lab();
    user.run(&["why", "dask_cluster.d"]).expect(0).says("absent").says("the next apply would create it");
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["why", "dask_cluster.d"]).expect(0).says("Healthy; no changes planned.");
    user.run(&["status", "dask_cluster.d", "--watch"]).expect(0).says("It is ready.");
    let json: Value = serde_json::from_str(&user.run(&["why", "t4", "--json"]).expect(0).out).unwrap();
    assert_eq!(json["well"], true, "{json}");

    // A notebook asks for more than there are nodes.
    let group = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups/d-default";
    let (status, said) = served.merge(group, &json!({ "spec": { "worker": { "replicas": 3 } } }));
    assert_eq!(status, 200, "{said}");
    wait_until(&user, "dask_cluster.d", "the nodes it can run on have no free GPU")
        .says("Insufficient nvidia.com/gpu")
        .says("dask-infra scale node_pool.t4 3 --write")
        .says("dask-infra scale dask_cluster.d N")
        .says("spec.worker.replicas: 3 -> 1 (stack.toml:25:23)");
    // A group that others scaled is a change of theirs; the plan that takes it back is not empty.
    user.run(&["status"]).expect(0).says("3 desired (the stack says 1)").says("no node fits: ");
    let json: Value =
        serde_json::from_str(&user.run(&["why", "dask_cluster.d", "--json"]).expect(0).out).unwrap();
    assert_eq!((&json["well"], &json["causes"][0]["code"]), (&json!(false), &json!("gpus")), "{json}");
    assert_eq!(json["planned"][0]["action"], "update");
    // The cure cures.
    user.run(&["scale", "node_pool.t4", "3", "--auto-approve"]).expect(0);
    user.run(&["scale", "dask_cluster.d", "3", "--write", "--auto-approve"]).expect(0);
    user.run(&["why", "dask_cluster.d"]).expect(0).says("Healthy; no changes planned.");
    user.run(&["why", "nobody"]).expect(1).says("is not an address in this stack");
}

#[test]
fn machines_that_are_not_to_be_had() {
    let (served, user) = lab();
    served.sandbox.add_stockout(Stockout::forever("t4")).unwrap();
    user.run(&["apply", "--auto-approve"]).expect(1);
    user.run(&["why", "node_pool.t4"])
        .expect(0)
        .says("the zone is out of the machines of node_pool.t4")
        .says("GCE_STOCKOUT")
        .says("`zones`, `machine_type` of the pool");
    user.run(&["why", "dask_cluster.d"]).expect(0).says("absent").says("after").says("node_pool.t4");
}

/// The pool is at its limit: the scheduler knows only the nodes that are there, the node autoscaler why there are no more.
#[test]
fn the_autoscalers_own_reason_comes_first() {
    let served = SandboxServer::fast();
    let user = User::at(&served, STACK.replace("nodes = 1\n", "nodes = { min = 0, max = 1 }\n"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let group = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups/d-default";
    let (status, said) = served.merge(group, &json!({ "spec": { "worker": { "replicas": 3 } } }));
    assert_eq!(status, 200, "{said}");
    wait_until(&user, "dask_cluster.d", "node_pool.t4 has its maximum of nodes")
        .says("NotTriggerScaleUp")
        .says("raise `max`");
    user.run(&["status"]).expect(0).says("the autoscaler adds no node");
}

/// A program that is ended with the test, however that ends.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// The words of kube-scheduler itself; no operator is needed for them.
#[tokio::test(flavor = "multi_thread")]
async fn the_real_schedulers_words_become_causes() {
    const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok];
    needs!(PARTS);
    let plane = ControlPlane::start().await;
    plane.add_node("node-0", json!({}), 1).await;
    let user = User::empty();
    let kubeconfig = plane.access().kubeconfig.to_string_lossy().into_owned();
    let path = user.path().join("stack.toml");
    let mut text = format!("[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n");
    let pods = [
        ("cpu", "resources: { requests: { cpu: '100' } }", "", "Insufficient cpu", "as much free cpu"),
        (
            "gpus",
            "resources: { limits: { nvidia.com/gpu: '4' } }",
            "",
            "Insufficient nvidia.com/gpu",
            "no free GPU",
        ),
        ("place", "", "nodeSelector: { disk: fast }", "affinity/selector", "no node has the labels"),
    ];
    for (name, container, spec, _, _) in pods {
        let yaml = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{ name: {name} }}\nspec:\n  selector: {{ matchLabels: {{ app: \
             {name} }} }}\n  template:\n    metadata: {{ labels: {{ app: {name} }} }}\n    spec:\n      containers:\n        \
             - name: main\n          image: main:1\n          {container}\n      {spec}\n"
        );
        std::fs::write(user.path().join(format!("{name}.yaml")), yaml).unwrap();
        text.push_str(&format!("\n[manifest.{name}]\nfile = \"{name}.yaml\"\n"));
    }
    std::fs::write(&path, text).unwrap();
    // It waits for pods that nobody will run, until it is told to stop.
    let mut apply = user.command(&["apply", "--auto-approve"]);
    let apply = ChildGuard(apply.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    block_in_place(|| {
        for (name, _, _, predicate, what) in pods {
            let said = wait_until(&user, &format!("manifest.{name}"), what);
            assert!(said.out.contains(predicate), "{}", said.out);
        }
    });
    drop(apply);
}
