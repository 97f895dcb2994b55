//! The main job, told by the real program against a served sandbox over HTTP and TLS: planned, applied,
//! planned again, changed, destroyed.

use std::process::Command;

use sandbox::kube::run::Scripts;
use sandbox::{Options, Stockout};
use serde_json::{Value, json};

use crate::sandbox_server::{FAST, SandboxServer, User, on_path, wait_until};

/// Fast enough for a test, slow enough that things take time.
const CLUSTER: &str = "/v1/projects/demo/locations/us-central1-c/clusters/rapids-gpu";

fn gke(served: &SandboxServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let reply = served.sandbox.gke_request(method, path, "", body.to_string().as_bytes()).unwrap();
    (reply.code, reply.body)
}

#[test]
fn the_guide_is_planned_applied_changed_and_destroyed() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["validate"]).expect(0);
    let offline = user.run(&["plan", "--offline"]).expect(0).says("Plan: 14 to add").out;
    let online = user.run(&["plan", "--detailed-exitcode"]).expect(2).says("SIMULATED").out;
    let changes = |plan: &str| -> Vec<String> {
        plan.lines()
            .filter(|line| line.starts_with("  +") || line.starts_with("  >"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(changes(&offline), changes(&online), "an empty project is planned the same without network");
    user.run(&["apply", "--auto-approve"])
        .expect(0)
        .says("14 added")
        .says("2 checks passed")
        .says("check.cuda: passed")
        .says("check.cudf: passed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let (code, _) = gke(&served, "GET", CLUSTER, &Value::Null);
    assert_eq!(code, 200);

    // Others work in the same cluster.
    let pool = json!({ "nodePool": { "name": "theirs", "initialNodeCount": 1 } });
    let (code, _) = gke(&served, "POST", &format!("{CLUSTER}/nodePools"), &pool);
    assert_eq!(code, 200);

    user.edit("replicas = 2", "replicas = 1");
    let plan = user.run(&["plan", "--detailed-exitcode"]).expect(2).says("spec.worker.replicas: 2 -> 1").out;
    assert!(plan.contains("Plan: 1 to change"), "{plan}");
    assert!(!plan.contains("theirs"), "what others made is not in the plan: {plan}");
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);

    user.edit("base:25.04", "base:25.06");
    user.run(&["plan"]).expect(0).says("forces replacement").says("the operator reads it only");
    user.run(&["apply", "--auto-approve"]).expect(3).says("--allow replace:dask_cluster.rapids-dask-cluster");
    let allow = "replace:dask_cluster.rapids-dask-cluster";
    // The check computes on the new workers: they hold all GPUs.
    let said = user.run(&["apply", "--auto-approve", "--allow", allow]).expect(0).says("1 replaced");
    let at = |what: &str| said.err.find(what).unwrap_or_else(|| panic!("no {what}: {}", said.err));
    assert!(at("rapids-dask-cluster: replaced") < at("check.cudf: running"), "{}", said.err);
    user.run(&["plan", "--detailed-exitcode"]).expect(0);

    user.edit("dedicated = \"scheduler\"", "dedicated = \"scheduler\", team = \"x\"");
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    user.edit("accelerator = \"nvidia-tesla-t4\"", "accelerator = { type = \"nvidia-tesla-t4\", count = 2 }");
    user.run(&["plan"]).expect(0).says("GKE cannot change the GPUs of a pool");
    let allow = "replace:node_pool.scheduler-pool";
    user.run(&["apply", "--auto-approve", "--allow", allow]).expect(0).says("1 replaced");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);

    user.run(&["destroy", "--auto-approve"]).expect(3).says("delete:node_pool.theirs");
    let allow = "delete:node_pool.theirs";
    user.run(&["destroy", "--auto-approve", "--allow", allow]).expect(0).says("Destroy complete");
    let (_, left) = gke(&served, "GET", "/v1/projects/demo/locations/-/clusters", &Value::Null);
    assert_eq!(left.get("clusters"), None, "nothing is left: {left}");
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
}

#[test]
fn gkes_own_driver_needs_no_daemon_set() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    user.edit("install = \"daemonset\"", "install = \"gke\"");
    let plan = user.run(&["plan"]).expect(0).says("Plan: 13 to add").out;
    assert!(!plan.contains("nvidia-driver-installer"), "{plan}");
    user.run(&["apply", "--auto-approve"]).expect(0).says("check.cuda: passed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
}

#[test]
fn a_failing_check_fails_the_apply_with_its_log() {
    let scripts = Scripts { cuda_fails: true, ..Scripts::default() };
    let served = SandboxServer::with(Options { scale: FAST, scripts, ..Options::default() });
    let user = User::with_ready_stack(Some(&served.gke));
    let said = user.run(&["apply", "--auto-approve"]).expect(1).says("Test FAILED").says("check.cuda");
    assert!(said.out.contains("skipped") || said.err.contains("skipped"), "{}{}", said.out, said.err);
    // The operator does not depend on the check; the Dask cluster does, and the check's pod is gone.
    user.run(&["plan"]).expect(0).says("Plan: 1 to add, 2 checks to run");
}

/// A program of one's own runs as a worker before the workers are created and as a client after them, passes once, and runs
/// again when its words change.
#[test]
fn a_program_of_ones_own_is_a_check() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    let programs = "\n[check.imports]\nrun = [\"python\", \"-c\", \"import cudf\"]\nas = \"worker\"\n\n\
                    [check.smoke]\nrun = [\"python\", \"-m\", \"smoke\"]\ntime_limit = \"20m\"\n";
    user.write(format!("{}{programs}", user.stack()));
    let said = user.run(&["apply", "--auto-approve"]).expect(0);
    let said = said.says("check.imports: passed").says("check.smoke: passed").says("4 checks passed");
    let at = |what: &str| said.err.find(what).unwrap_or_else(|| panic!("no {what}: {}", said.err));
    let workers = at("dask_cluster.rapids-dask-cluster: created");
    assert!(at("check.imports: passed") < workers && workers < at("check.smoke: running"), "{}", said.err);
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    user.edit("\"-m\", \"smoke\"", "\"-m\", \"smoke.all\"");
    user.run(&["plan"]).expect(0).says("Plan: 1 check to run");
    user.run(&["run", "smoke", "--auto-approve"]).expect(0).says("the program was not run");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
}

#[test]
fn a_program_that_fails_fails_the_apply_with_its_code() {
    let scripts = Scripts { cuda_fails: true, ..Scripts::default() };
    let served = SandboxServer::with(Options { scale: FAST, scripts, ..Options::default() });
    let user = User::with_ready_stack(Some(&served.gke));
    let stack = user.stack();
    let (before, _) = stack.split_once("[check.cuda]").unwrap();
    user.write(format!(
        "{before}[check.cuda]\nrun = [\"python\", \"-c\", \"import cudf\"]\nas = \"worker\"\n"
    ));
    let said = user.run(&["apply", "--auto-approve"]).expect(1);
    said.says("check.cuda").says("ended with code 1");
    // The Pod is deleted, so the next apply creates another one.
    user.run(&["plan"]).expect(0).says("1 check to run");
}

#[test]
fn an_image_that_cannot_be_pulled_ends_the_wait_early() {
    let scripts = Scripts { fail_image: vec!["*rapidsai*".into()], ..Scripts::default() };
    let served = SandboxServer::with(Options { scale: FAST, scripts, ..Options::default() });
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["apply", "--auto-approve"])
        .expect(1)
        .says("ImagePullBackOff")
        .says("dask_cluster.rapids-dask-cluster");
}

#[test]
fn a_stock_out_leaves_the_pool_and_the_next_apply_goes_on() {
    let stockouts = vec![Stockout::next("scheduler-pool", 3)];
    let served = SandboxServer::with(Options { scale: FAST, stockouts, ..Options::default() });
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["apply", "--auto-approve"]).expect(1).says("GCE_STOCKOUT").says("node_pool.scheduler-pool");
    let (code, pool) = gke(&served, "GET", &format!("{CLUSTER}/nodePools/scheduler-pool"), &Value::Null);
    assert_eq!(code, 200, "a failed creation leaves the pool behind: {pool}");
    // GKE goes on trying and has a machine in the end. Before that, the pool in its error state would be replaced.
    let pool = || gke(&served, "GET", &format!("{CLUSTER}/nodePools/scheduler-pool"), &Value::Null).1;
    wait_until("the pool has its node", || pool()["status"] != "ERROR");
    user.run(&["apply", "--auto-approve"]).expect(0).says("Apply complete");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
}

#[test]
fn a_saved_plan_is_applied_as_it_was_and_refused_when_the_world_moved() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["plan", "--out", "plan"]).expect(0);
    user.run(&["show", "plan"]).expect(0).says("Plan: 14 to add");
    user.run(&["apply", "plan"]).expect(0).says("14 added");
    user.run(&["apply", "plan"]).expect(4).says("stale");
    user.edit("replicas = 2", "replicas = 1");
    user.run(&["plan", "--out", "next"]).expect(0);
    user.edit("replicas = 1", "replicas = 2");
    user.run(&["apply", "next"]).expect(0).says("1 changed");
    user.run(&["plan"]).expect(0).says("spec.worker.replicas: 1 -> 2");
    std::fs::write(user.path().join("broken"), "{}").unwrap();
    user.run(&["apply", "broken"]).expect(1).says("broken is not a usable plan");
}

/// The sandbox in the program's own process, kept in a folder, killed in the middle.
#[test]
fn killed_anywhere_and_run_again_it_converges() {
    let user = User::with_ready_stack(None);
    let words = ["--sandbox=box", "apply", "--auto-approve"];
    for line in ["node_pool.default-pool: creat", "gpu_driver", "dask_cluster.rapids-dask-cluster: creating"]
    {
        let mut child = user
            .command(&words)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let seen = lines.any(|said| said.is_ok_and(|said| said.contains(&format!("  {line}"))));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen, "{line} was never said");
    }
    user.run(&words).expect(0).says("Apply complete");
    user.run(&["--sandbox=box", "plan", "--detailed-exitcode"]).expect(0);
    user.run(&["--sandbox=box", "destroy", "--auto-approve"]).expect(0);
    user.run(&["--sandbox=box", "destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
}

#[test]
fn kubectl_and_gcloud_see_what_the_stack_says() {
    if !on_path("gcloud", "--version") || !on_path("kubectl", "--help") {
        return;
    }
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let (kubeconfig, config) = (user.path().join("kubeconfig"), user.path().join("gcloud"));
    let token = user.path().join("token");
    std::fs::write(&token, "any").unwrap();
    let run = |program: &str, words: &[&str]| -> String {
        let output = Command::new(program)
            .args(words)
            .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", format!("{}/", served.gke))
            .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICEUSAGE", format!("{}/", served.gke))
            .env("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", &token)
            .env("CLOUDSDK_CORE_PROJECT", "demo")
            .env("CLOUDSDK_CONFIG", &config)
            .env("CLOUDSDK_CORE_DISABLE_PROMPTS", "1")
            .env("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true")
            .env("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true")
            .env("KUBECONFIG", &kubeconfig)
            .env("HOME", user.path())
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {words:?}\n{out}\n{err}");
        out.into_owned()
    };
    let place = ["--zone", "us-central1-c"];
    let pools =
        run("gcloud", &["container", "node-pools", "list", "--cluster", "rapids-gpu", place[0], place[1]]);
    assert!(pools.contains("default-pool") && pools.contains("a2-highgpu-2g"), "{pools}");
    assert!(pools.contains("scheduler-pool") && pools.contains("n1-standard-2"), "{pools}");
    run("gcloud", &["container", "clusters", "get-credentials", "rapids-gpu", place[0], place[1]]);
    let seen = run("kubectl", &["get", "nodes,pods,daskclusters", "-A"]);
    assert_eq!(seen.matches("node/gke-rapids-gpu-").count(), 2, "{seen}");
    assert_eq!(seen.matches("pod/rapids-dask-cluster-default-worker-").count(), 2, "{seen}");
    assert_eq!(seen.matches("pod/rapids-dask-cluster-scheduler-").count(), 1, "{seen}");
    assert!(seen.contains("daskcluster.kubernetes.dask.org/rapids-dask-cluster"), "{seen}");
    assert!(seen.contains("Running"), "{seen}");
}
