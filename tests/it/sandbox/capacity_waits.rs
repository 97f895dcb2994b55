//! Work that waits: jobs that run to their end, requests for nodes that wait for machines, and an apply that ends while they
//! do; on the sandbox, told by the real program.

use sandbox::kube::run::Scripts;
use sandbox::{Options, Stockout};
use serde_json::{Value, json};

use crate::sandbox_server::{FAST, ON_GKE, RunningCommand, SandboxServer, User};

const QUEUED: &str = r#"
[node_pool.a100]
machine_type = "a2-highgpu-2g"
nodes = { min = 0, max = 4 }
queued = true
reservation = "none"
location_policy = "any"

[job.train]
image = "demo:1"
command = ["python", "train.py"]
gpus = 2
pool = "a100"
parallelism = 2
wait = true

[provisioning_request.train]
job = "train"
max_run_duration = "12h"
"#;

const REQUEST: &str = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests/train";
const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/train";

fn user(options: Options, stack: &str) -> (SandboxServer, User) {
    let served = SandboxServer::with(Options { scale: FAST, ..options });
    let user = User::at(&served, format!("{ON_GKE}{stack}"));
    (served, user)
}

/// Says whether there are machines for the request.
fn capacity(served: &SandboxServer, what: &str) {
    let patch = json!({ "metadata": { "annotations": { "sandbox.dask-infra.dev/capacity": what } } });
    assert_eq!(served.merge(REQUEST, &patch).0, 200);
}

fn uid(served: &SandboxServer, path: &str) -> Value {
    served.get(path)["metadata"]["uid"].clone()
}

#[test]
fn a_job_runs_once_to_its_end() {
    let stack =
        "\n[job.train]\nimage = \"demo:1\"\nargs = [\"train\"]\ncpu = \"1\"\nparallelism = 2\nwait = true\n";
    let (served, user) = user(Options::default(), stack);
    user.run(&["apply", "--auto-approve"]).expect(0).says("job.train: created");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["status", "job.train"]).expect(0).says("complete; 2 of 2 runs finished");
    user.run(&["logs", "train"]).expect(0);

    // Deleted, it does not run again by itself; asked for, it does.
    let first = uid(&served, JOB);
    served.delete(JOB);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("DI0364");
    user.run(&["run", "train", "--auto-approve", "--allow", "replace:job.train"]).expect(0);
    assert_ne!(uid(&served, JOB), first);

    // A job that lasts too long has failed.
    user.edit("wait = true", "wait = true\nmax_run_duration = \"1s\"");
    user.edit("\"train\"]", "\"again\"]");
    user.run(&["apply", "--auto-approve", "--allow", "replace:job.train"])
        .expect(1)
        .says("it ran longer than `max_run_duration`");
    user.run(&["plan"]).expect(0).says("the job failed");
}

#[test]
fn an_apply_ends_while_capacity_is_queued_and_a_later_one_goes_on() {
    let scripts = Scripts { no_capacity: true, ..Scripts::default() };
    let (served, user) = user(Options { scripts, ..Options::default() }, QUEUED);
    let said = user
        .run(&["apply", "--auto-approve", "--wait", "1s"])
        .expect(7)
        .says("Apply queued")
        .says("job.train waits for provisioning_request.train");
    assert!(said.err.contains("provisioning_request.train: left waiting"), "{}", said.err);
    assert_eq!(served.code(JOB), 404, "nothing of the job is there");
    let request = uid(&served, REQUEST);

    // Nothing is locked, nothing is made twice, and everybody says what it waits for.
    user.run(&["status"]).expect(0).says("queued").says("no machines yet");
    user.run(&["why", "provisioning_request.train"]).expect(0).says("no machines yet");
    user.run(&["plan"]).expect(0).says("DI0380").says("queued since");
    capacity(&served, "quota");
    user.run(&["apply", "--auto-approve", "--wait", "1s"])
        .expect(7)
        .says("a quota of the project is too small");
    let lines = user.run(&["apply", "--auto-approve", "--wait", "1s", "--json"]).expect(7).out;
    assert!(lines.contains("\"outcome\":\"queued\""), "{lines}");
    assert_eq!(uid(&served, REQUEST), request);

    // The machines come, and the job runs on them.
    capacity(&served, "there");
    user.run(&["apply", "--auto-approve"]).expect(0).says("job.train: created");
    assert_eq!(uid(&served, REQUEST), request);
    // Its pods go with their nodes, which are not kept when it has ended.
    let job = served.get(JOB);
    let annotations = &job["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["autoscaling.x-k8s.io/consume-provisioning-request"], "train");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

#[test]
fn a_request_that_ended_is_not_ready_and_can_be_made_again_or_cancelled() {
    let scripts = Scripts { no_capacity: true, ..Scripts::default() };
    let (served, user) = user(Options { scripts, ..Options::default() }, QUEUED);
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7);
    capacity(&served, "failed");
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(1).says("GKE cannot make its nodes");
    user.run(&["plan"]).expect(0).says("DI0387");
    user.run(&["status"]).expect(0).says("failed");
    let (first, allow) = (uid(&served, REQUEST), "replace:provisioning_request.train");
    let again = [
        "apply",
        "--auto-approve",
        "--wait",
        "1s",
        "--replace",
        "provisioning_request.train",
        "--allow",
        allow,
    ];
    user.run(&again).expect(7);
    assert_ne!(uid(&served, REQUEST), first);

    // Cancelled before the machines come: nothing of it is left, nor of the job behind it.
    user.run(&["destroy", "--auto-approve", "--target", "provisioning_request.train"]).expect(0);
    assert_eq!(served.code(REQUEST), 404);
    let templates = served.get("/api/v1/namespaces/default/podtemplates");
    assert_eq!(templates["items"], json!([]));
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

/// Queued provisioning is switched on for an empty, autoscaled pool only, and only when it was made without reservations.
#[test]
fn a_pool_becomes_one_for_requests_in_steps() {
    const POOL: &str =
        "\n[node_pool.a100]\nmachine_type = \"a2-highgpu-2g\"\nnodes = 1\nauto_repair = false\n";
    const ON: &str = "nodes = { min = 0, max = 4 }\nlocation_policy = \"any\"\nqueued = true";
    let (served, user) = user(Options::default(), &format!("{POOL}reservation = \"none\"\n"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.edit("nodes = 1", ON);
    user.run(&["plan"]).expect(0).says("all its nodes are deleted first").says("1 to change");
    user.run(&["apply", "--auto-approve"]).expect(0);
    let path = "/v1/projects/demo/locations/us-central1-c/clusters/c/nodePools/a100";
    let pool = served.sandbox.gke_request("GET", path, "", b"").unwrap().body;
    assert_eq!(pool["queuedProvisioning"]["enabled"], true, "{pool:#}");
    let nodes = "/api/v1/nodes?labelSelector=cloud.google.com%2Fgke-nodepool%3Da100";
    assert_eq!(served.get(nodes)["items"], json!([]));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    let (_served, user) = self::user(Options::default(), POOL);
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.edit("nodes = 1", &format!("{ON}\nreservation = \"none\""));
    user.run(&["plan"]).expect(0).says("1 to replace").says("--allow replace:node_pool.a100");
}

/// Whoever takes the pool of an accepted request away hears of it, unless the request goes as well.
#[test]
fn a_pool_that_a_request_waits_for_does_not_go_in_silence() {
    let scripts = Scripts { no_capacity: true, ..Scripts::default() };
    let (_served, user) = user(Options { scripts, ..Options::default() }, QUEUED);
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7);
    let says = |words: &[&str], expected: bool| {
        let said = user.run(words);
        assert!(
            said.code == 0 && said.out.contains("DI0384") == expected,
            "{words:?}: {}{}",
            said.out,
            said.err
        );
    };
    let pool = ["plan", "--replace", "node_pool.a100"];
    says(&pool, true);
    says(&[&pool[..], &["--replace", "provisioning_request.train"]].concat(), false);
    says(&["plan", "--destroy", "--target", "node_pool.a100"], false);
    says(&["plan", "--destroy"], false);
    user.edit("[node_pool.a100]", "[node_pool.a100]\nname = \"other\"");
    says(&["plan"], false);
}

#[test]
fn a_stop_takes_requests_and_jobs_along_and_a_start_asks_again() {
    let scripts = Scripts { no_capacity: true, ..Scripts::default() };
    let (served, user) = user(Options { scripts, ..Options::default() }, QUEUED);
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7);
    let first = uid(&served, REQUEST);
    user.run(&["stop", "--auto-approve"]).expect(0).says("provisioning_request.train");
    assert_eq!(served.code(REQUEST), 404, "no node comes for it any more");
    // The job that waited for it does not start without it.
    let said = user.run(&["apply", "--auto-approve"]).expect(0);
    said.says("provisioning_request.train, job.train; `dask-infra start` restores everything");
    assert_eq!(served.code(JOB), 404);
    user.run(&["start", "provisioning_request.train", "--auto-approve", "--wait", "1s"]).expect(7);
    assert_ne!(uid(&served, REQUEST), first);
    capacity(&served, "there");
    user.run(&["apply", "--auto-approve"]).expect(0).says("job.train: created");

    // A finished request is not created again.
    let second = uid(&served, REQUEST);
    user.run(&["stop", "--auto-approve"]).expect(0);
    user.run(&["start", "--auto-approve"]).expect(0);
    assert_eq!(uid(&served, REQUEST), second);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

#[test]
fn a_job_that_runs_is_stopped_and_runs_again() {
    // Of two pods that need most of a node each, one waits for ever.
    let stack = "\n[job.train]\nimage = \"demo:1\"\nargs = [\"train\"]\ncpu = \"7\"\nparallelism = 2\ncompletions = 1000\n";
    let (served, user) = user(Options::default(), stack);
    user.run(&["apply", "--auto-approve"]).expect(0);
    let first = uid(&served, JOB);
    user.run(&["stop", "job.train", "--auto-approve"]).expect(0);
    assert_eq!(served.code(JOB), 404);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes").says("stopped by");
    user.run(&["start", "--auto-approve"]).expect(0).says("job.train: created");
    assert_ne!(uid(&served, JOB), first);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

#[test]
fn an_apply_comes_back_when_there_is_capacity_and_holds_nothing_meanwhile() {
    const STAYS: [&str; 5] = ["apply", "--auto-approve", "--when-capacity", "--wait", "2d"];
    let scripts = Scripts { no_capacity: true, ..Scripts::default() };
    let (served, user) = user(Options { scripts, ..Options::default() }, QUEUED);
    user.run(&["apply", "--auto-approve", "--when-capacity", "--wait", "1s"]).expect(7);
    let mut waits = RunningCommand::start(&user, &STAYS);
    waits.wait_until("left waiting");
    waits.signal("INT");
    assert_eq!(waits.end(), Some(130));

    let mut waits = RunningCommand::start(&user, &STAYS);
    waits.wait_until("left waiting");
    let follows =
        RunningCommand::start(&user, &["status", "--follow", "provisioning_request.train", "--json"]);
    // Not locked.
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7);
    capacity(&served, "there");
    let (code, said) = waits.end_saying();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Apply complete"), "{said}");
    let (code, said) = follows.end_saying();
    assert_eq!(code, Some(0), "{said}");
    let states: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(states[0]["things"][1]["state"], "queued", "{said}");
    assert!(states.iter().any(|line| line["type"] == "state" && line["state"] == "ready"), "{said}");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

#[test]
fn following_ends_when_something_has_failed() {
    let scripts = Scripts { no_capacity: true, ..Scripts::default() };
    let (served, user) = user(Options { scripts, ..Options::default() }, QUEUED);
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7);
    capacity(&served, "failed");
    let said = user.run(&["status", "--follow", "provisioning_request.train"]).expect(1);
    assert!(said.out.contains("GKE cannot make its nodes"), "{}", said.out);
}

#[test]
fn pods_that_wait_for_machines_of_flex_start_are_queued() {
    let stack = r#"
[node_pool.flex]
machine_type = "a2-highgpu-1g"
nodes = { min = 0, max = 2 }
flex_start = true
reservation = "none"
auto_repair = false

[job.train]
image = "demo:1"
gpus = 1
pool = "flex"
wait = true
timeout = 1
"#;
    let (_served, user) =
        user(Options { stockouts: vec![Stockout::forever("flex")], ..Options::default() }, stack);
    user.run(&["apply", "--auto-approve", "--wait", "2s"])
        .expect(7)
        .says("waits for machines of the pool flex");
    user.run(&["status", "job.train"]).expect(0).says("queued since");
}
