//! Work that waits for days, on the sandbox's own clock: applies that die and go on from another folder, requests that are
//! cancelled, that expire while nobody looks, and whose nodes come in the night and go after their days. Each ends with
//! nothing lost, nothing paid for that was not said, and the next plan right.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use jiff::SignedDuration;
use sandbox::kube::run::Scripts;
use sandbox::kube::run::capacity::{Capacity, Start};
use sandbox::{Options, Scale};
use serde_json::Value;

use crate::golden::root;
use crate::sandbox_server::{ON_GKE, RunningCommand, SandboxServer, User};

const POOL: &str = r#"
[node_pool.a100]
machine_type = "a2-highgpu-2g"
nodes = { min = 0, max = 4 }
zones = ["us-central1-a", "us-central1-b", "us-central1-c"]
queued = true
reservation = "none"
location_policy = "any"
auto_repair = false
"#;

/// A job that needs two nodes at once.
const JOB: &str = r#"
[job.train]
image = "demo:1"
command = ["python", "train.py"]
gpus = 2
pool = "a100"
parallelism = 2
wait = true

[provisioning_request.train]
job = "train"
max_run_duration = "3d"
"#;

/// Workers that go on until their nodes end.
const DASK: &str = r#"
[dask_operator]
version = "2026.3.0"

[provisioning_request.gpus]
count = 2
gpus = 2
cpu = "12"
memory = "80Gi"
pool = "a100"
max_run_duration = "3d"

[dask_cluster.d]
image = "demo:1"
depends_on = ["provisioning_request.gpus"]
scheduler = { pool = "cpu" }

[dask_cluster.d.worker]
replicas = 2
gpus = 2
cpu = "12"
memory = "80Gi"
pool = "a100"
annotations = { "autoscaling.x-k8s.io/consume-provisioning-request" = "gpus", "autoscaling.x-k8s.io/provisioning-class-name" = "queued-provisioning.gke.io" }
"#;

const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests";
const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const WAITS: [&str; 4] = ["apply", "--auto-approve", "--wait", "1s"];
const PLAN: [&str; 2] = ["plan", "--detailed-exitcode"];

const HOUR: f64 = 3600.0;

/// Slow enough that the ten minutes of a request, which run no faster, are not the three days of its nodes.
const SCALE: Scale = Scale { time_scale: 300.0 };

struct Night {
    served: SandboxServer,
    stack: String,
}

impl Night {
    /// There are machines in one zone for four hours, nine hours after somebody has asked for some.
    fn new(stack: &str) -> Self {
        let rule = Capacity {
            zone: Some("us-central1-b".to_owned()),
            nodes: Some(2),
            from: Start::After(9 * 3600),
            lasts: Some(4 * 3600),
            ..Capacity::default()
        };
        let scripts = Scripts { capacity: vec![rule], ..Scripts::default() };
        let served = SandboxServer::with(Options { scale: SCALE, scripts, ..Options::default() });
        Self { served, stack: stack.to_owned() }
    }

    /// Somebody with the same stack in a folder of their own.
    fn user(&self) -> User {
        User::at(&self.served, format!("{ON_GKE}{POOL}{}", self.stack))
    }

    /// Hours of the service pass.
    fn pass(&self, hours: f64) {
        self.served.sandbox.advance(SCALE.real(hours * HOUR)).unwrap();
    }

    /// Minutes of the service pass until it is so.
    fn wait_until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if is(self) {
                return;
            }
            self.pass(1.0 / 60.0);
        }
        panic!("it never came to this: {what}");
    }

    fn names(&self, path: &str) -> Vec<String> {
        let found = self.served.get(path);
        let items = found["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn uid(&self, path: &str) -> Value {
        self.served.get(path)["metadata"]["uid"].clone()
    }

    /// Zones of the nodes that are paid for.
    fn paid(&self) -> Vec<String> {
        let path = "/api/v1/nodes?labelSelector=cloud.google.com%2Fgke-nodepool%3Da100";
        let found = self.served.get(path);
        let zone = |node: &Value| {
            node["metadata"]["labels"]["topology.kubernetes.io/zone"].as_str().unwrap().to_owned()
        };
        found["items"].as_array().unwrap().iter().map(zone).collect()
    }

    /// Returns true if the one request is in a state.
    fn is(&self, state: &str) -> bool {
        let found = self.served.get(REQUESTS);
        let conditions = found["items"][0]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == state && condition["status"] == "True")
    }

    /// Nobody pays for anything but what a stack says that waits.
    fn waits(&self) {
        assert_eq!(self.names(REQUESTS).len(), 1);
        assert_eq!(self.names(TEMPLATES).len(), 1);
        assert_eq!(self.names(JOBS), [""; 0], "the job waits for its nodes");
        assert_eq!(self.paid(), [""; 0]);
    }
}

#[test]
fn killed_at_any_step_it_goes_on_from_another_folder() {
    for step in ["cluster: creating", "cluster: created", "node_pool.a100: created", "accepted"] {
        let night = Night::new(JOB);
        let first = night.user();
        let mut apply = RunningCommand::start(&first, &["apply", "--auto-approve"]);
        if step == "accepted" {
            apply.wait_until("node_pool.a100: created");
            night.wait_until(step, |night| night.is("Accepted"));
        } else {
            apply.wait_until(step);
        }
        apply.signal("KILL");
        apply.end();
        let second = night.user();
        second.run(&WAITS).expect(7).says("job.train waits for provisioning_request.train");
        night.waits();
        let request = night.uid(&format!("{REQUESTS}/train"));

        // The machines come, and somebody else goes on.
        night.pass(9.0);
        let third = night.user();
        third.run(&["apply", "--auto-approve"]).expect(0).says("job.train: created");
        assert_eq!(
            night.uid(&format!("{REQUESTS}/train")),
            request,
            "{step}: the place in the queue is kept"
        );
        assert!(night.paid().iter().all(|zone| zone == "us-central1-b"), "{step}");
        first.run(&PLAN).expect(0).says("No changes");

        // Finished work costs nothing more.
        night.wait_until("the nodes go when nothing runs on them", |night| night.paid().is_empty());
        first.run(&PLAN).expect(0).says("No changes");
    }
}

#[test]
fn what_is_cancelled_elsewhere_does_not_come() {
    let night = Night::new(JOB);
    night.user().run(&WAITS).expect(7);
    night.user().run(&["destroy", "--auto-approve", "--target", "provisioning_request.train"]).expect(0);
    assert_eq!((night.names(REQUESTS), night.names(TEMPLATES)), (Vec::new(), Vec::new()));
    for _ in 0..12 {
        night.pass(1.0);
    }
    assert_eq!(night.paid(), [""; 0]);
    let user = night.user();
    user.run(&PLAN).expect(2).says("provisioning_request.train").says("job.train");
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(night.served.sandbox.clusters().is_empty());
}

#[test]
fn a_request_that_expires_while_nobody_looks_costs_ten_minutes() {
    let night = Night::new(JOB);
    night.user().run(&WAITS).expect(7);
    let request = night.uid(&format!("{REQUESTS}/train"));
    night.pass(9.0);
    night.wait_until("provisioned", |night| night.is("Provisioned"));
    assert_eq!(night.paid(), ["us-central1-b"; 2]);
    // Ten minutes of the machine's clock: nothing is taken away before.
    night.served.sandbox.advance(SignedDuration::from_secs(590)).unwrap();
    assert_eq!(night.paid().len(), 2);
    night.served.sandbox.advance(SignedDuration::from_secs(20)).unwrap();
    night.wait_until("expired, and the nodes are gone", |night| {
        night.is("BookingExpired") && night.paid().is_empty()
    });
    assert_eq!(night.names(JOBS), [""; 0]);

    let user = night.user();
    user.run(&["status", "provisioning_request.train"]).expect(0).says("failed");
    user.run(&["why", "provisioning_request.train"]).says("booking expired");
    user.run(&["plan"]).expect(0).says("DI0387");
    assert_eq!(user.run(&WAITS).code, 1, "it is not asked for again by itself");
    assert_eq!(night.uid(&format!("{REQUESTS}/train")), request);
    let allow = "replace:provisioning_request.train";
    let again = [&WAITS[..], &["--replace", "provisioning_request.train", "--allow", allow]].concat();
    user.run(&again).expect(7);
    night.waits();
    night.pass(9.0);
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&PLAN).expect(0).says("No changes");
}

#[test]
fn capacity_comes_at_three_in_the_morning_and_goes_after_its_days() {
    let night = Night::new(DASK);
    let user = night.user();
    user.run(&WAITS).expect(7).says("dask_cluster.d waits for provisioning_request.gpus");
    for _ in 0..6 {
        night.pass(1.0);
        assert_eq!(night.paid(), [""; 0]);
    }
    user.run(&["status"]).expect(0).says("queued");
    // At three, while an apply of somebody waits for it.
    let other = night.user();
    let apply = RunningCommand::start(&other, &["apply", "--auto-approve", "--wait", "72h"]);
    night.pass(3.0);
    assert_eq!(apply.end(), Some(0));
    assert_eq!(night.paid(), ["us-central1-b"; 2]);
    user.run(&PLAN).expect(0).says("No changes");

    // Two days later nothing has changed, after three the nodes end.
    night.pass(48.0);
    assert!(!night.is("CapacityRevoked"));
    user.run(&["status", "provisioning_request.gpus"]).expect(0).says("in use");
    assert_eq!(night.paid().len(), 2);
    user.run(&PLAN).expect(0).says("No changes");
    night.pass(24.0);
    night.wait_until("the nodes have ended", |night| night.is("CapacityRevoked") && night.paid().is_empty());
    user.run(&["status", "provisioning_request.gpus"]).expect(0).says("failed");
    let said = user.run(&["plan"]).expect(0).says("DI0387").out;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("`--replace provisioning_request.gpus` asks for its nodes again"), "{said}");
    assert_eq!(night.paid(), [""; 0], "nothing is asked for by itself");
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(night.served.sandbox.clusters().is_empty());
}

/// A `helm` that says what it said when the golden case of the stack was made.
fn helm(user: &User) -> std::path::PathBuf {
    let kept = root().join("tests/cases/plan-stack-queued-a100/helm/stack-kueue.yaml");
    let program = user.path().join("helm");
    let script = format!(
        "#!/bin/sh\ncase $1 in\nversion) echo v4.0.0 ;;\npull) mkdir \"$5/kueue\" && : > \"$5/kueue/Chart.yaml\" ;;\n\
         *) cat > /dev/null; cat '{}' ;;\nesac\n",
        kept.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn the_ready_stack_is_applied_ends_with_its_nodes_and_is_destroyed() {
    let served = SandboxServer::with(Options { scale: SCALE, ..Options::default() });
    let user = User::with_stack("queued-a100", Some(&served.gke));
    let helm = helm(&user);
    let user = user.rendering(helm);
    let night = Night { served, stack: String::new() };
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(night.paid().len(), 8);
    user.run(&PLAN).expect(0).says("No changes");
    user.run(&["status"]).expect(0);

    // `max_run_duration` of its queue is over: the gang stops whole, and nothing is paid for.
    night.pass(12.0);
    night.wait_until("the nodes have ended", |night| night.is("CapacityRevoked") && night.paid().is_empty());
    let said = user.run(&["why", "dask_cluster.rapids"]);
    let said = format!("{} {}", said.out, said.err).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("research") && said.contains("delete"), "{said}");

    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(night.served.sandbox.clusters().is_empty());
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
}
