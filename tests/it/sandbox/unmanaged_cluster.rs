//! A cluster and pools that others made, used with `manage = false`: read, relied on, never touched.

use std::time::Duration;

use serde_json::{Value, json};

use crate::sandbox_server::{SandboxServer, User};

const PARENT: &str = "/v1/projects/demo/locations/us-central1-c";

fn gke(served: &SandboxServer, method: &str, path: &str, body: &Value) -> Value {
    let reply = served.sandbox.gke_request(method, path, "", body.to_string().as_bytes()).unwrap();
    assert_eq!(reply.code, 200, "{method} {path}: {}", reply.body);
    reply.body
}

/// Asks again until a thing runs; the sandbox has its own clock.
fn running(served: &SandboxServer, path: &str) -> Value {
    for _ in 0..3000 {
        let live = gke(served, "GET", path, &Value::Null);
        if live["status"] == "RUNNING" {
            return live;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{path} does not run");
}

/// Creates the cluster that Terraform would have created.
fn platform(served: &SandboxServer) {
    let cpu = json!({ "name": "cpu", "initialNodeCount": 1, "config": { "machineType": "e2-standard-4" } });
    let cluster = json!({ "cluster": { "name": "shared", "nodePools": [cpu] } });
    gke(served, "POST", &format!("{PARENT}/clusters"), &cluster);
    running(served, &format!("{PARENT}/clusters/shared"));
    let gpu = json!({ "nodePool": { "name": "gpu", "initialNodeCount": 1, "config": {
        "machineType": "a2-highgpu-1g",
        "accelerators": [{
            "acceleratorType": "nvidia-tesla-a100", "acceleratorCount": "1",
            "gpuDriverInstallationConfig": { "gpuDriverVersion": "DEFAULT" },
        }],
    } } });
    gke(served, "POST", &format!("{PARENT}/clusters/shared/nodePools"), &gpu);
    running(served, &format!("{PARENT}/clusters/shared/nodePools/gpu"));
}

fn cluster(served: &SandboxServer) -> Value {
    gke(served, "GET", &format!("{PARENT}/clusters/shared"), &Value::Null)
}

#[test]
fn what_others_own_is_used_and_left_as_it_is() {
    let served = SandboxServer::fast();
    let user = User::with_stack("on-existing-gke", Some(&served.gke));
    user.run(&["validate"]).expect(0);
    user.run(&["plan"]).expect(1).says("GKE cluster shared does not exist").says("stack.toml:17:8");

    platform(&served);
    let before = cluster(&served);
    user.run(&["plan"])
        .expect(0)
        .says("1 × a2-highgpu-1g with 1 × nvidia-tesla-a100, RUNNING")
        .says("2 checks to run");
    user.run(&["plan", "--json"]).expect(0).says("\"action\":\"read\"");
    user.run(&["plan", "--out", "saved"]).expect(0);
    user.run(&["apply", "saved"]).expect(0).says("2 checks passed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    assert_eq!(cluster(&served), before, "nothing of the cluster was written");

    // The operator goes over to others, and what the sections say is compared.
    user.edit("version = \"2026.3.0\"", "manage = false");
    user.run(&["plan", "--detailed-exitcode"]).expect(2).says("dask-kubernetes-operator:2026.3.0, ready");
    user.run(&["apply", "--auto-approve"]).expect(0).says("9 released");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("dask-kubernetes-operator:2026.3.0, ready");
    user.edit(
        "manage = false                         # machine",
        "manage = false\nnodes = 7              # machine",
    );
    user.run(&["plan", "--detailed-exitcode"])
        .expect(0)
        .says("`nodes` is 7 in the stack file")
        .says("1 live");
    user.edit("nodes = 7", "nodes = 1");
    user.edit("gpus = 1, pool", "gpus = 2, pool");
    user.run(&["plan"]).expect(1).says("requests 2 GPUs, a node of node pool gpu has 1");
    user.edit("gpus = 2, pool", "gpus = 1, pool");

    user.run(&["destroy", "--auto-approve"]).expect(0).says("not managed, kept").says("Destroy complete");
    assert_eq!(cluster(&served), before, "nor deleted");
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy").says("not managed, kept");
}

#[test]
fn a_stack_in_which_nothing_is_managed_checks() {
    let served = SandboxServer::fast();
    platform(&served);
    let user = User::with_stack("on-existing-gke", Some(&served.gke));
    let text = user.stack();
    let (head, rest) = text.split_once("\n[dask_operator]\n").unwrap();
    let (_, checks) = rest.split_once("\n[check.cuda]\n").unwrap();
    let (check, _) = checks.split_once("\n[check.cudf]\n").unwrap();
    let stack = |check: &str| user.write(format!("{head}{check}"));
    stack("\n");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("read: RUNNING");
    stack(&format!("\n[check.cuda]\n{check}"));
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 check passed");
    // Nothing is managed, so nothing is recorded.
    user.run(&["plan", "--detailed-exitcode"])
        .expect(2)
        .says("passes are not recorded where nothing is managed");
}
