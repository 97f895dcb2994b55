//! `ttl` and `idle_stop` of `[stack]`: the CronJob's script by a real Python, against the sandbox's GKE and Kubernetes.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use kinds::dask::stack_expiry::SCRIPT;
use kinds::kind::StopEffect;
use model::resource::KindId;
use serde_json::{Value, json};

use crate::control_plane::ttl_idle_stop::{access, look};
use crate::sandbox_server::{CommandOutput, SandboxServer, User, on_path, wait_until};

const STACK: &str = r#"
[stack]
name = "s"
EXPIRY

[gke]
project = "demo"
location = "us-central1-c"

[cluster]
name = "c"
workload_identity = true

[node_pool.system]
machine_type = "e2-standard-8"

[node_pool.t4]
machine_type = "n1-standard-4"
accelerator = "nvidia-tesla-t4"
nodes = { min = 0, max = 2 }

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
worker = { replicas = 2, gpus = 1, pool = "t4" }

[job.once]
image = "demo:1"
args = ["true"]
"#;

const CLUSTER: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/d";
const CRON: &str = "/apis/batch/v1/namespaces/dask-infra/cronjobs/s-stack-";

/// Returns the address of a metadata server that gives everybody the token of a sandbox. It ends with the test's process.
fn metadata_server(token: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
            let _read = stream.read(&mut request).unwrap();
            let body = json!({ "access_token": token }).to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    address
}

struct World {
    served: SandboxServer,
    user: User,
    metadata: String,
}

impl World {
    fn with(expiry: &str) -> Self {
        let served = SandboxServer::fast();
        let user = User::at(&served, STACK.replace("EXPIRY", expiry));
        let metadata = metadata_server(served.sandbox.token().map(ToString::to_string).unwrap_or_default());
        user.run(&["apply", "--auto-approve"]).expect(0);
        Self { served, user, metadata }
    }

    /// Runs one look of the CronJob of a key, as if its time were this many seconds.
    fn look(&self, key: &str, seconds: &str) -> CommandOutput {
        let suffix = if key == "ttl" { "ttl" } else { "idle" };
        let cron = self.served.get(&format!("{CRON}{suffix}"));
        CommandOutput::of(&self.look_of(&cron, seconds).output().unwrap())
    }

    fn look_of(&self, cron: &Value, seconds: &str) -> Command {
        let mut command = look(&access(&self.served, &self.user), self.user.path(), "python3", cron);
        command.env("DASK_INFRA_REAPER_SECONDS", seconds).env("DASK_INFRA_REAPER_PAUSE", "0.1");
        command.env("DASK_INFRA_REAPER_GOOGLE", format!("{}/v1/", self.served.gke));
        command.env("GCE_METADATA_HOST", &self.metadata);
        command
    }

    fn nodes(&self, pool: &str) -> usize {
        let path = format!("/api/v1/nodes?labelSelector=cloud.google.com%2Fgke-nodepool%3D{pool}");
        self.served.get(&path)["items"].as_array().map_or(0, Vec::len)
    }

    fn has_cluster(&self) -> bool {
        self.served.code(CLUSTER) == 200
    }
}

#[test]
fn a_stack_whose_time_is_over_has_no_nodes_until_it_is_started() {
    if !on_path("python3", "--version") {
        println!("skipped: there is no python3");
        return;
    }
    let world = World::with("ttl = \"12h\"");
    let user = &world.user;
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["status"]).expect(0).says("stops the stack in 1");
    world.look("ttl", "86400").expect(0).says("s old, and stays until it is 86400 s old");
    assert!(world.has_cluster() && world.nodes("t4") > 0);

    let ended = world.look("ttl", "0").expect(0);
    let ended = ended.says("stopped: it was").says(&format!("deleted: {CLUSTER}"));
    ended.says("emptied: the node pool t4").says("emptied: the node pool system");
    assert!(!world.has_cluster());
    assert_eq!(world.served.code("/apis/batch/v1/namespaces/default/jobs/once"), 200, "it had ended");
    wait_until("all nodes are gone", || world.nodes("t4") + world.nodes("system") == 0);
    assert_eq!(world.served.code(&format!("{CRON}ttl")), 404);
    let plan = user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    plan.says("stopped by the stack's ttl since");
    user.run(&["status"]).says("stopped by the stack's ttl since");
    // An apply in between keeps what it knows.
    user.edit("args = [\"true\"]", "args = [\"true\"]\nlabels = { a = \"b\" }");
    user.run(&["apply", "--auto-approve", "--allow", "replace:job.once"]);
    user.run(&["plan"]).says("stopped by the stack's ttl since");

    user.run(&["start", "dask_cluster.d", "--auto-approve"]).expect(0);
    assert!(world.has_cluster() && world.nodes("t4") > 0);
    world.look("ttl", "86400").expect(0).says("s old, and stays until it is 86400 s old");
    user.run(&["start", "--auto-approve"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

#[test]
fn a_stop_that_was_cut_off_goes_on_and_a_start_makes_it_void() {
    if !on_path("python3", "--version") {
        println!("skipped: there is no python3");
        return;
    }
    let world = World::with("ttl = \"12h\"\nidle_stop = { after = \"12h\", destroy = true }");
    let (user, cron) = (&world.user, world.served.get(&format!("{CRON}ttl")));
    // GKE cannot be reached once the objects are gone.
    let mut command = world.look_of(&cron, "0");
    command.env("GCE_METADATA_HOST", "127.0.0.1:1");
    let failed = CommandOutput::of(&command.output().unwrap());
    assert_ne!(failed.code, 0, "{}", failed.err);
    assert!(world.has_cluster(), "nothing is done without the right to finish it");

    // The other key does not go on with it, and what was to be deleted is made again.
    let record = "/api/v1/namespaces/dask-infra/configmaps/dask-infra-s";
    let once = "/apis/batch/v1/namespaces/default/jobs/once";
    let digest = world.served.get(record)["data"]["digest"].clone();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let note = json!({
        "by": "ttl", "since": now, "digest": digest, "deleted": [once], "empty": [],
    });
    let annotations = json!({ "metadata": { "annotations": { "dask-infra.dev/ended": note.to_string() } } });
    assert_eq!(world.served.merge(record, &annotations).0, 200);
    world.look("idle_stop", "0").expect(0).says("the stack is being stopped by its ttl");
    assert_eq!(world.served.delete(once), 200);
    // Noted and not done: a plan does the rest.
    user.run(&["plan"]).expect(0).says(&format!("stopped by the stack's ttl since {now}"));
    user.run(&["status"]).says("still there");
    user.run(&["start", "--auto-approve"]).expect(0);
    assert!(world.has_cluster());
    assert_eq!(world.served.code(once), 200, "a job that was stopped runs again");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    world.look("ttl", "86400").expect(0).says("stays until it is 86400 s old");

    world.look("ttl", "0").expect(0).says("emptied: the node pool system");
    for key in ["ttl", "idle"] {
        assert_eq!(world.served.code(&format!("{CRON}{key}")), 404, "{key}");
    }
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

#[test]
fn a_stack_may_take_its_cluster_along_unless_others_use_it() {
    if !on_path("python3", "--version") {
        println!("skipped: there is no python3");
        return;
    }
    let world = World::with("ttl = { after = \"12h\", destroy = true }");
    let other = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "dask-infra-other", "namespace": "dask-infra" },
    });
    let path = "/api/v1/namespaces/dask-infra/configmaps";
    assert_eq!(world.served.post(path, &other).0, 201);
    let stays = world.look("ttl", "0").expect(0).says("the GKE cluster stays, as it has the stack other");
    stays.says("emptied: the node pool system");
    wait_until("all nodes are gone", || world.nodes("t4") + world.nodes("system") == 0);

    let world = World::with("ttl = { after = \"12h\", destroy = true }");
    world.look("ttl", "0").expect(0).says("deleted: the GKE cluster");
    wait_until("the cluster is gone", || world.served.sandbox.clusters().is_empty());
    world.user.run(&["status"]).says("absent");
}

/// Objects that end by themselves, as the API server shows them, each with the kind of its section.
fn objects_that_end() -> Vec<(KindId, Value)> {
    let metadata = json!({ "name": "x", "creationTimestamp": "2026-11-29T00:00:00Z" });
    let object = |kind: &str, spec: Value, status: Value| json!({ "kind": kind, "metadata": metadata, "spec": spec, "status": status });
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": "2026-11-29T01:00:00Z" });
    let mut found = Vec::new();
    for status in ["True", "False"] {
        for kind in ["Complete", "Failed", "SuccessCriteriaMet", "Suspended"] {
            let status = json!({ "conditions": [condition(kind, status)] });
            found.push((KindId::Job, object("Job", json!({}), status)));
        }
        for kind in ["Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"] {
            let status = json!({ "conditions": [condition(kind, status)] });
            found.push((KindId::ProvisioningRequest, object("ProvisioningRequest", json!({}), status)));
        }
    }
    found.push((KindId::Job, object("Job", json!({}), json!({}))));
    found.push((KindId::Job, object("Job", json!({ "suspend": true }), json!({}))));
    let mut queued = object("Job", json!({ "suspend": true }), json!({}));
    queued["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "q" });
    found.push((KindId::Job, queued));
    for status in [
        json!({}),
        json!({ "jobStatus": "Running" }),
        json!({ "jobStatus": "Successful" }),
        json!({ "jobStatus": "Failed" }),
    ] {
        found.push((KindId::DaskJob, object("DaskJob", json!({}), status)));
    }
    for phase in ["Pending", "Running", "Succeeded", "Failed", "Unknown"] {
        found.push((KindId::Pod, object("Pod", json!({}), json!({ "phase": phase }))));
    }
    found
}

#[test]
fn the_script_takes_for_work_what_stop_does() {
    if !on_path("python3", "--version") {
        println!("skipped: there is no python3");
        return;
    }
    let objects = objects_that_end();
    let expected: Vec<bool> = objects
        .iter()
        .map(|(kind, live)| match kinds::of(*kind).stop_effect {
            StopEffect::DeletesWhile(runs) => runs(live),
            StopEffect::Nothing | StopEffect::Deletes | StopEffect::Empties(_) => panic!("{kind}"),
        })
        .collect();
    // The functions without what they are called for.
    let (functions, _) = SCRIPT.split_once("\ntry:\n    job, record").unwrap();
    let all: Vec<&Value> = objects.iter().map(|(_, live)| live).collect();
    let asks = "for live in json.load(sys.stdin):\n    at = None if works({'runs': True}, live) or rests(live) else ended_at(live)\n    \
                print(json.dumps([works({'runs': True}, live), at]))\n";
    let mut python = Command::new("python3");
    python
        .arg("-c")
        .arg(format!("{functions}\n{asks}"))
        .env("KUBERNETES_SERVICE_HOST", "h")
        .env("KUBERNETES_SERVICE_PORT", "1");
    python.env("DASK_INFRA_REAPER_STACK", "{}").env("DASK_INFRA_REAPER_SECONDS", "0");
    let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(json!(all).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let answers: Vec<(bool, Option<i64>)> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let answered: Vec<bool> = answers.iter().map(|(works, _)| *works).collect();
    for ((expected, answered), (_, live)) in expected.iter().zip(&answered).zip(&objects) {
        assert_eq!(expected, answered, "{live}");
    }
    assert_eq!(answers.len(), objects.len());
    // 2026-11-29: an end is never later than the object says, and never unknown.
    assert!(
        answers.iter().all(|(works, at)| *works || at.is_none_or(|at| at < 1_800_000_000)),
        "{answers:?}"
    );
}
