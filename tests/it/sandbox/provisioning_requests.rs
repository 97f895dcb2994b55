//! Workers on nodes that are requested all at once, without Kueue, on a sandbox that plays GKE's queue; and pools whose last
//! way is that queue.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use sandbox::kube::run::Scripts;
use sandbox::{Options, Scale, Stockout};
use serde_json::{Value, json};

use crate::sandbox_server::{FAST, ON_GKE, SandboxServer, User};

const RAPIDS: &str = r#"
[node_pool.a100]
machine_type = "a2-highgpu-2g"
nodes = { min = 0, max = 8 }
queued = true
reservation = "none"
location_policy = "any"
auto_repair = false

[dask_operator]
version = "2026.3.0"

[dask_cluster.rapids]
image = "demo:1"
capacity = "queued"
max_run_duration = "1d"
scheduler = { pool = "cpu" }
worker = { replicas = 2, gpus = 2, pool = "a100" }
"#;

const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests";
const CLUSTER: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/rapids";
const APPLY: [&str; 4] = ["apply", "--auto-approve", "--wait", "1s"];

/// Ten minutes after a job its nodes go, and its pods with them: time for a look, also on a busy machine.
const LOOKED_AT: Scale = Scale { time_scale: 120.0 };

fn user(options: Options, stack: &str) -> (SandboxServer, User) {
    user_at(FAST, options, stack)
}

fn user_at(scale: Scale, options: Options, stack: &str) -> (SandboxServer, User) {
    let served = SandboxServer::with(Options { scale, ..options });
    let user = User::at(&served, format!("{ON_GKE}{stack}"));
    (served, user)
}

fn without_machines() -> Options {
    Options { scripts: Scripts { no_capacity: true, ..Scripts::default() }, ..Options::default() }
}

fn requests(served: &SandboxServer) -> Vec<Value> {
    served.get(REQUESTS)["items"].as_array().unwrap().clone()
}

/// The only request.
fn request(served: &SandboxServer) -> Value {
    let all = requests(served);
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0].clone()
}

fn path(request: &Value) -> String {
    format!("{REQUESTS}/{}", request["metadata"]["name"].as_str().unwrap())
}

/// Says whether there are machines for the only request.
fn capacity(served: &SandboxServer, what: &str) {
    let patch = json!({ "metadata": { "annotations": { "sandbox.dask-infra.dev/capacity": what } } });
    assert_eq!(served.merge(&path(&request(served)), &patch).0, 200);
}

/// Has the only request be as it is when nobody came to its nodes.
fn expire(served: &SandboxServer) {
    let live = request(served);
    // Of today: its nodes are there for seven days.
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let conditions: Vec<Value> = ["Accepted", "Provisioned", "BookingExpired"]
        .map(|kind| {
            json!({ "type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": now })
        })
        .into();
    let patch = json!({ "status": { "conditions": conditions } });
    let status = format!("{}/status", path(&live));
    assert_eq!(served.merge(&status, &patch).0, 200);
}

fn is_there(served: &SandboxServer, path: &str) -> bool {
    served.code(path) == 200
}

#[test]
fn workers_wait_for_their_nodes_and_start_when_all_are_there() {
    let (served, user) = user(without_machines(), RAPIDS);
    user.run(&APPLY).expect(7).says("Apply queued").says("dask_cluster.rapids waits for");
    assert!(!is_there(&served, CLUSTER), "nothing of the cluster is there");
    let first = request(&served);
    assert_eq!(first["spec"]["podSets"][0]["count"], 2);
    assert_eq!(first["spec"]["parameters"]["maxRunDurationSeconds"], "86400");
    user.run(&["status"]).expect(0).says("no machines yet");
    // The next apply waits for the same request.
    user.run(&APPLY).expect(7);
    assert_eq!(request(&served)["metadata"]["uid"], first["metadata"]["uid"]);

    capacity(&served, "there");
    user.run(&["apply", "--auto-approve"]).expect(0).says("dask_cluster.rapids: created");
    assert_eq!(request(&served)["metadata"]["uid"], first["metadata"]["uid"]);
    let name = first["metadata"]["name"].as_str().unwrap();
    let pods = served.get("/api/v1/namespaces/default/pods");
    for pod in pods["items"].as_array().unwrap() {
        let metadata = &pod["metadata"];
        let worker = metadata["labels"]["dask.org/component"] == "worker";
        for prefix in ["autoscaling.x-k8s.io", "cluster-autoscaler.kubernetes.io"] {
            let consumes = metadata["annotations"][format!("{prefix}/consume-provisioning-request")].as_str();
            assert_eq!(consumes, worker.then_some(name), "{metadata}");
        }
    }
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["status"]).expect(0).says("in use").says("its nodes go");
    user.run(&["scale", "rapids", "4"]).expect(1).says("has nodes for as many workers");

    // Other workers are another request; what is of the old ones goes.
    user.edit("replicas = 2", "replicas = 3");
    user.run(&["plan"]).expect(0).says("DI0394").says("if the pool has no room for both");
    user.run(&["apply", "--auto-approve", "--wait", "1s", "--allow", "replace:dask_cluster.rapids"])
        .expect(7);
    assert_eq!(requests(&served).len(), 2, "the old workers keep theirs");
    let second = requests(&served).into_iter().find(|one| one["metadata"]["uid"] != first["metadata"]["uid"]);
    let patch = json!({ "metadata": { "annotations": { "sandbox.dask-infra.dev/capacity": "there" } } });
    assert_eq!(served.merge(&path(&second.unwrap()), &patch).0, 200);
    user.run(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.rapids"]).expect(0);
    assert_eq!(request(&served)["spec"]["podSets"][0]["count"], 3);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    user.run(&["destroy", "--auto-approve", "--target", "dask_cluster.rapids"]).expect(0);
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty());
}

#[test]
fn nodes_that_nobody_came_to_are_asked_for_again() {
    let (served, user) = user(without_machines(), RAPIDS);
    user.run(&APPLY).expect(7);
    let first = request(&served);
    expire(&served);
    user.run(&["status"]).says("booking expired");
    user.run(&["plan"]).expect(0).says("its nodes are requested again").says("no pod came to its nodes");
    user.run(&APPLY).expect(7);
    let second = request(&served);
    assert_ne!(second["metadata"]["uid"], first["metadata"]["uid"]);
    assert!(!is_there(&served, CLUSTER));

    // One that failed is told with its cause, and the next apply asks again.
    capacity(&served, "failed");
    user.run(&["status"]).says("GKE cannot make its nodes");
    user.run(&APPLY).expect(7).says("GKE cannot make its nodes");
    assert_ne!(request(&served)["metadata"]["uid"], second["metadata"]["uid"]);

    // Cancelled: nothing is left.
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty());
}

#[test]
fn groups_and_jobs_have_nodes_of_their_own() {
    let more = "\n[dask_cluster.rapids.group.more]\ncapacity = \"queued\"\nreplicas = 1\ngpus = 2\npool = \"a100\"\n\
                \n[dask_job.sums]\nlike = \"rapids\"\nargs = [\"python\", \"sums.py\"]\ncapacity = \"queued\"\n";
    let (served, user) = user(Options::default(), &format!("{RAPIDS}{more}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let mut names: Vec<String> = requests(&served)
        .iter()
        .map(|one| one["metadata"]["annotations"]["dask-infra.dev/for"].as_str().unwrap().to_owned())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "daskclusters.kubernetes.dask.org/rapids",
            "daskjobs.kubernetes.dask.org/sums",
            "daskworkergroups.kubernetes.dask.org/rapids-more"
        ]
    );
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

/// A stopped cluster requests no nodes; starting it requests them again.
#[test]
fn a_cluster_that_is_stopped_and_started_has_new_nodes() {
    let (served, user) = user(Options::default(), RAPIDS);
    user.run(&["apply", "--auto-approve"]).expect(0);
    let first = request(&served);
    user.run(&["stop", "dask_cluster.rapids", "--auto-approve"]).expect(0);
    assert!(!is_there(&served, CLUSTER));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    if !requests(&served).is_empty() {
        expire(&served);
    }
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["start", "dask_cluster.rapids", "--auto-approve"]).expect(0);
    assert!(is_there(&served, CLUSTER));
    assert_ne!(request(&served)["metadata"]["uid"], first["metadata"]["uid"]);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

/// A pool that is bought by its last way has nodes for requests only; by another one they are there for all.
#[test]
fn a_request_is_needed_on_the_way_queued_only() {
    let pool = "\n[node_pool.gpu]\nmachine_type = \"n1-standard-4\"\naccelerator = \"nvidia-tesla-t4\"\nnodes = 2\n\
                capacity = [\"on-demand\", \"queued\"]\n";
    let work = "\n[job.train]\nimage = \"demo:1\"\nargs = [\"train\"]\ngpus = 1\npool = \"gpu\"\nparallelism = 2\n\
                wait = true\n\n[provisioning_request.train]\njob = \"train\"\n";
    for sold_out in [true, false] {
        let out = Stockout { way: Some("on-demand".to_owned()), ..Stockout::forever("gpu") };
        let stockouts = if sold_out { vec![out] } else { Vec::new() };
        let (served, user) = user_at(LOOKED_AT, Options { stockouts, ..Options::default() }, pool);
        user.run(&["apply", "--auto-approve"]).expect(0);
        if !sold_out {
            // GKE has the definition in every cluster, the sandbox with queued pools only.
            let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            assert_eq!(served.post(all, model::schema::provisioning_crd()).0, 201);
        }
        user.write(format!("{ON_GKE}{pool}{work}"));
        user.run(&["apply", "--auto-approve"]).expect(0).says("job.train: created");
        let expect = if sold_out { "in use" } else { "not needed" };
        user.run(&["status", "provisioning_request.train"]).expect(0).says(expect);
        user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    }
}
