//! Autopilot clusters on a served sandbox: nodes come with Pods and go with them, and nothing asks for their pools.

use std::fs;

use dask_infra::sandbox::{Options, Scale};
use serde_json::Value;

use crate::served::{Served, User, until};

const SCALE: Scale = Scale { time_scale: 1200.0 };

const GPU: &str = "cloud.google.com/gke-accelerator";

fn served() -> Served {
    Served::with(Options { scale: SCALE, ..Options::default() })
}

/// The nodes with GPUs.
fn gpu_nodes(served: &Served) -> Vec<Value> {
    let nodes = served.get("/api/v1/nodes");
    let with = |node: &&Value| !node["metadata"]["labels"][GPU].is_null();
    nodes["items"].as_array().into_iter().flatten().filter(with).cloned().collect()
}

#[test]
fn nodes_come_with_pods_and_go_with_them() {
    let served = served();
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
    until("the node of the worker that left is gone", || gpu_nodes(&served).len() == 1);
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
    let served = served();
    let user = User::empty_at(&served.gke);
    let stack = "[stack]\nname = \"s\"\n[gke]\nproject = \"demo\"\nlocation = \"us-central1\"\n[cluster]\nname = \"c\"\n\
                 autopilot = true\n[namespace.team]\n";
    fs::write(user.path().join("stack.toml"), stack).unwrap();
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
