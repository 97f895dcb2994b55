//! Autopilot clusters and node auto-provisioning on a served sandbox: nodes come with Pods and requests and go with them, and
//! nothing asks for their pools.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::sandbox_server::{SandboxServer, User, wait_until};

const GPU: &str = "cloud.google.com/gke-accelerator";

fn gpu_nodes(served: &SandboxServer) -> Vec<Value> {
    let nodes = served.get("/api/v1/nodes");
    let with = |node: &&Value| !node["metadata"]["labels"][GPU].is_null();
    nodes["items"].as_array().into_iter().flatten().filter(with).cloned().collect()
}

#[test]
fn nodes_come_with_pods_and_go_with_them() {
    let served = SandboxServer::fast();
    let user = User::with_stack("autopilot", Some(&served.gke));
    let said = user.run(&["apply", "--auto-approve"]).expect(0);
    said.says("at least $0.10/h").says("price unknown: Pods").says("DI0366");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let nodes = gpu_nodes(&served);
    assert!(nodes.len() >= 2, "a node for each worker: {}", nodes.len());
    for node in &nodes {
        assert_eq!(node["metadata"]["labels"][GPU], "nvidia-l4");
    }

    user.run(&["scale", "dask_cluster.rapids", "1", "--auto-approve", "--write"]).expect(0);
    wait_until("the node of the worker that left is gone", || gpu_nodes(&served).len() == 1);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["status"]).expect(0).says("workers: 1 desired");

    let import = ["import", "--project", "demo", "--cluster", "dask-autopilot", "--out", "-"];
    let imported = user.run(&import).expect(0).out;
    for line in
        ["autopilot = true", "release_channel = \"stable\"", "accelerator = \"nvidia-l4\"", "us-central1"]
    {
        assert!(imported.contains(line), "no {line} in:\n{imported}");
    }
    for line in
        ["[node_pool", "[gpu_driver", "autoscaling", "autoprovisioning", "dataplane_v2", "gke-accelerator"]
    {
        assert!(!imported.contains(line), "{line} in:\n{imported}");
    }

    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty(), "a cluster is left");
}

#[test]
fn an_imported_cluster_is_used_and_adopted() {
    let served = SandboxServer::fast();
    let user = User::empty_at(&served.gke);
    let stack = "[stack]\nname = \"s\"\n[gke]\nproject = \"demo\"\nlocation = \"us-central1\"\n[cluster]\nname = \"c\"\n\
                 autopilot = true\n[namespace.team]\n";
    user.write(stack);
    user.run(&["apply", "--auto-approve"]).expect(0);
    let other = User::empty_at(&served.gke);
    other.run(&["import", "--project", "demo", "--cluster", "c", "--out", "stack.toml"]).expect(0);
    other.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // The stack that says nothing of Autopilot would be of another cluster.
    user.edit("autopilot = true\n", "");
    user.edit(
        "[namespace.team]\n",
        "[node_pool.system]\nmachine_type = \"e2-standard-4\"\nnodes = 3\n[namespace.team]\n",
    );
    user.run(&["plan"]).expect(0).says("replace").says("autopilot.enabled");
    user.run(&["apply", "--auto-approve"]).expect(3);
    user.run(&["apply", "--auto-approve", "--allow", "replace:cluster"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.edit(
        "us-central1\"\n[cluster]\nname = \"c\"\n",
        "us-central1\"\n[cluster]\nname = \"c\"\nautopilot = true\n",
    );
    user.edit("[node_pool.system]\nmachine_type = \"e2-standard-4\"\nnodes = 3\n", "");
    user.run(&["apply", "--auto-approve", "--allow", "replace:cluster"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

const PROVISIONED: &str = r#"[stack]
name = "s"

[gke]
project = "demo"
location = "us-central1-a"

[cluster]
name = "c"

[cluster.autoprovisioning]
max_cpus = 64
max_memory_gb = 256
max_gpus = { nvidia-l4 = 2 }
auto_repair = false

[node_pool.system]
machine_type = "e2-standard-4"

[dask_operator]
version = "2026.3.0"
"#;

const DASK: &str = r#"
[dask_cluster.d]
image = "demo:1"
scheduler = { pool = "system", cpu = "500m" }
worker = { replicas = 2, accelerator = "nvidia-l4", gpus = 1, cpu = "1" }
"#;

#[test]
fn pools_are_made_for_pods_within_the_limits_and_go_with_them() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{PROVISIONED}{DASK}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["status"]).expect(0).says("workers: 2 desired, 2 created, 2 ready");
    let pools = |nodes: &[Value]| -> Vec<String> {
        let of = |node: &Value| {
            node["metadata"]["labels"]["cloud.google.com/gke-nodepool"].as_str().unwrap().to_owned()
        };
        nodes.iter().map(of).collect()
    };
    let nodes = gpu_nodes(&served);
    assert!(
        nodes.len() == 2 && pools(&nodes).iter().all(|pool| pool.starts_with("nap-")),
        "{:?}",
        pools(&nodes)
    );
    // They are nobody's section.
    let import = ["import", "--project", "demo", "--cluster", "c", "--out", "-"];
    let imported = user.run(&import).expect(0).out;
    assert!(imported.contains("[node_pool.system]") && !imported.contains("nap-"), "{imported}");

    // A third one would be more than the limit: somebody asks for it all the same.
    let group = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups/d-default";
    assert_eq!(served.merge(group, &json!({ "spec": { "worker": { "replicas": 3 } } })).0, 200);
    wait_until("the third worker has no node", || {
        let pods = served.get("/api/v1/namespaces/default/pods");
        let waits = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
        pods["items"].as_array().into_iter().flatten().filter(|pod| waits(pod)).count() == 1
    });
    // Twenty minutes of the service: more than a machine takes to be there.
    let later = served.sandbox.now() + SignedDuration::from_secs(1);
    wait_until("a machine would have been there", || {
        assert_eq!(gpu_nodes(&served).len(), 2);
        served.sandbox.now() > later
    });
    user.edit("nvidia-l4 = 2", "nvidia-l4 = 3");
    user.edit("replicas = 2", "replicas = 3");
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["status"]).expect(0).says("workers: 3 desired, 3 created, 3 ready");
    assert_eq!(gpu_nodes(&served).len(), 3);

    user.edit(&DASK.replace("replicas = 2", "replicas = 3"), "");
    user.run(&["apply", "--auto-approve", "--allow", "delete:dask_cluster.d"]).expect(0);
    wait_until("nodes without work are gone", || gpu_nodes(&served).is_empty());
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty(), "a cluster is left");
}

#[test]
fn a_request_without_a_pool_gets_one_of_its_own() {
    let served = SandboxServer::fast();
    let user = User::empty_at(&served.gke);
    let work = r#"
[job.train]
image = "demo:1"
command = ["python", "train.py"]
accelerator = "nvidia-l4"
gpus = 1
cpu = "1"
parallelism = 2

[provisioning_request.train]
job = "train"
"#;
    user.write(format!("{PROVISIONED}{work}"));
    user.run(&["apply", "--auto-approve"]).expect(0).says("provisioning_request.train");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["status"]).expect(0).says("2 of 2 runs finished");
    wait_until("nodes whose work has ended are gone", || gpu_nodes(&served).is_empty());
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty(), "a cluster is left");
}
