//! Keys of clusters and node pools on a served sandbox: applied, nothing to change, changed, imported, and a cluster in
//! trouble that answers all the same.

use std::fs;

use sandbox::Options;

use crate::golden::root;
use crate::sandbox_server::{FAST, SandboxServer, User};

/// The stack of a case of plans, with the sections of another one.
fn stack(user: &User, cases: [&str; 2]) {
    let [whole, pools] = cases.map(|case| {
        let file = root().join("tests/cases").join(case).join("stack.toml");
        fs::read_to_string(file).unwrap()
    });
    let more = pools.split_once("[node_pool.all]").unwrap().1;
    // The DNS name, which is the way in that is left, has a certificate that nobody trusts here.
    let whole = whole.replacen("[cluster]\n", "[cluster]\nendpoint = \"private\"\n", 1);
    user.write(format!("{whole}\n[node_pool.all]{more}"));
}

#[test]
fn every_key_is_applied_and_comes_back() {
    let served = SandboxServer::fast();
    let user = User::empty_at(&served.gke);
    stack(&user, ["plan-cluster-keys", "plan-pool-keys"]);
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    let import = ["import", "--project", "demo", "--cluster", "c", "--endpoint", "private", "--out", "-"];
    let imported = user.run(&import).expect(0).out;
    for key in [
        "endpoint = \"private\"",
        "private_nodes = true",
        "public_endpoint = false",
        "dns_endpoint = true",
        "workload_identity = true",
        "dataplane_v2 = true",
        "reservation = { name = \"r\" }",
        "placement = \"compact\"",
        "location_policy = \"any\"",
        "max_run_duration = \"7d\"",
        "local_ssd = 2",
        "confidential = \"sev\"",
        "threads_per_core = 1",
        "multi_networking = true",
        "pods_range = \"pods\"",
        "pod_range = \"pods-2\"",
        "additional_node_networks = [{ network = \"gpu\", subnetwork = \"gpu-0\" }]",
        "additional_pod_networks = [{ max_pods_per_node = 8, range = \"gpu-pods\", subnetwork = \"gpu-0\" }]",
        "registry_mirrors = { \"docker.io\" = [\"https://mirror.gcr.io\"] }",
        "registry_certificates = { \"registry.lab.example\" = \"projects/demo/secrets/ca/versions/1\" }",
        "gpu_direct = \"rdma\"",
    ] {
        assert!(imported.contains(key), "no {key} in:\n{imported}");
    }

    user.edit("logging_variant = \"max-throughput\"", "logging_variant = \"default\"");
    user.edit("cost_allocation = true", "cost_allocation = false");
    user.edit("max_cpus = 64", "max_cpus = 128");
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

#[test]
fn a_degraded_cluster_is_used_with_a_warning() {
    let served = SandboxServer::with(Options { scale: FAST, degraded: true, ..Options::default() });
    let user = User::empty_at(&served.gke);
    let text = "[stack]\nname = \"s\"\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n[cluster]\nname = \"c\"\n\
                [node_pool.system]\nmachine_type = \"n4-standard-4\"\n[namespace.team]\n";
    user.write(text);
    let why = "DEGRADED: Node service account is missing permissions.";
    user.run(&["apply", "--auto-approve"]).expect(0).says(why);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says(why).says("DI0382");
    user.run(&["status"]).expect(0).says(why);
}
