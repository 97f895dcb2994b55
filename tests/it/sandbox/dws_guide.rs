//! The manifests of GKE's guide to the Dynamic Workload Scheduler, as they stand there but for the names to fill in: as
//! `[manifest]` of a stack they do what the guide says of them, and what does not work is named first.

use std::fs;

use sandbox::kube::run::Scripts;
use sandbox::{Options, Scale};
use serde_json::{Value, json};

use crate::golden::root;
use crate::sandbox_server::{ON_GKE, SandboxServer, User};

const POOL: &str = r#"
[node_pool.a100]
machine_type = "a2-highgpu-1g"
nodes = { min = 0, max = 4 }
queued = true
reservation = "none"
location_policy = "any"
auto_repair = false
gvnic = true
"#;

const WITH_KUEUE: &str = r#"
[kueue]
manifest = "kueue.yaml"

[manifest.queues]
file = "dws-queues.yaml"
depends_on = ["kueue"]

[manifest.job]
file = "job.yaml"
depends_on = ["manifest.queues"]
"#;

const WITHOUT: &str = r#"
[manifest.request]
file = "provisioning-request.yaml"

[manifest.pods]
file = "pods.yaml"
depends_on = ["manifest.request"]
"#;

const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Slow enough that the job ends before the ten minutes that it gives its nodes.
const SCALE: Scale = Scale { time_scale: 100.0 };

/// A file of the guide, with what it tells to fill in.
fn guide(user: &User, name: &str) {
    let mut text = fs::read_to_string(root().join("tests/data/dws").join(name)).unwrap();
    let filled = [
        ("PROVISIONING_REQUEST_NAME", "request"),
        ("POD_TEMPLATE_NAME", "pods"),
        ("NAMESPACE_NAME", "default"),
        ("NODEPOOL_NAME", "a100"),
        ("MAX_RUN_DURATION_SECONDS", "43200"),
        ("JOB_NAME", "pi"),
        ("COUNT", "2"),
    ];
    for (name, value) in filled {
        text = text.replace(name, value);
    }
    fs::write(user.path().join(name), text).unwrap();
}

fn user(options: Options, stack: &str, files: &[&str]) -> (SandboxServer, User) {
    let served = SandboxServer::with(Options { scale: SCALE, ..options });
    let user = User::empty_at(&served.gke);
    fs::copy(root().join("tests/data/kueue.yaml"), user.path().join("kueue.yaml")).unwrap();
    files.iter().for_each(|file| guide(&user, file));
    user.write(format!("{ON_GKE}{POOL}{stack}"));
    (served, user)
}

fn items(served: &SandboxServer, path: &str) -> Vec<Value> {
    served.get(path)["items"].as_array().unwrap().clone()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_queues_and_the_job_work_as_they_stand() {
    let (served, user) = user(Options::default(), WITH_KUEUE, &["dws-queues.yaml", "job.yaml"]);
    user.run(&["validate"]).expect(0).says("DI0296").says("admissionChecks");
    user.run(&["apply", "--auto-approve"]).expect(0);
    let request = &items(&served, REQUESTS)[0];
    assert_eq!(request["spec"]["provisioningClassName"], "queued-provisioning.gke.io");
    assert_eq!(request["spec"]["parameters"]["maxRunDurationSeconds"], "600", "as the Job's annotation says");
    let job = &items(&served, JOBS)[0];
    assert_eq!((&job["spec"]["suspend"], &job["status"]["succeeded"]), (&json!(false), &json!(1)));
    user.run(&["status", "manifest.job"]).expect(0).says("ready");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty());
}

#[test]
fn the_request_and_its_pods_work_once_the_mistakes_are_mended() {
    let scripts = Scripts { no_capacity: true, ..Scripts::default() };
    let files = ["provisioning-request.yaml", "pods.yaml"];
    let (served, user) = user(Options { scripts, ..Options::default() }, WITHOUT, &files);
    // All three mistakes of the guide at once.
    let said = user.run(&["validate"]).expect(1);
    let said = one_line(&format!("{}{}", said.out, said.err));
    for word in ["DI0245", "v10", "autoscaling.x-k8s.io/v1`", "cluster-autoscaler.kubernetes.io/", "DI0326"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let path = user.path().join("provisioning-request.yaml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("apiVersion: v10", "apiVersion: v1")).unwrap();

    // It waits, and nothing of the pods is there before the nodes are.
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7).says("no machines yet");
    user.run(&["status"]).expect(0).says("queued since");
    assert!(items(&served, JOBS).is_empty());
    let patch = json!({ "metadata": { "annotations": { "sandbox.dask-infra.dev/capacity": "there" } } });
    assert_eq!(served.merge(&format!("{REQUESTS}/request"), &patch).0, 200);
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(items(&served, JOBS)[0]["status"]["succeeded"], 2);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // Cancelled, with what uses it.
    user.run(&["destroy", "--auto-approve", "--target", "manifest.request"]).expect(0);
    assert!(items(&served, REQUESTS).is_empty() && items(&served, JOBS).is_empty());
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty());
}
