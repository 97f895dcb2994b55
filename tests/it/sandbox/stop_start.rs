//! `stop` and `start` against a served sandbox: what goes, what stays gone, who is told why, and what comes back.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use serde_json::{Value, json};

use crate::sandbox_server::{ON_GKE, RunningCommand, SandboxServer, User};

const STACK: &str = r#"nodes = 2

[node_pool.more]
machine_type = "e2-standard-8"
nodes = { min = 1, max = 3 }

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
worker = { replicas = { min = 1, max = 2 }, cpu = "500m", pool = "more" }

[dask_cluster.d.group.big]
replicas = 1
cpu = "600m"

[dask_cluster.other]
image = "demo:1"
worker = { cpu = "500m", pool = "cpu" }

[dask_job.train]
like = "other"
args = ["python", "train.py"]
wait = true
"#;

const DASK: &str = "/apis/kubernetes.dask.org/v1/namespaces/default";

struct Fixture {
    served: SandboxServer,
    user: User,
}

impl Fixture {
    fn started() -> Self {
        let served = SandboxServer::fast();
        let user = User::at(&served, format!("{ON_GKE}{STACK}"));
        user.run(&["apply", "--auto-approve"]).expect(0);
        Self { served, user }
    }

    fn names(&self, plural: &str) -> Vec<String> {
        let found = self.served.get(&format!("{DASK}/{plural}"));
        let items = found["items"].as_array().into_iter().flatten();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Nodes that are there, by pool.
    fn nodes(&self, pool: &str) -> usize {
        let path = format!("/api/v1/nodes?labelSelector=cloud.google.com%2Fgke-nodepool%3D{pool}");
        let found = self.served.get(&path);
        found["items"].as_array().map_or(0, Vec::len)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.user.run(&["status", "--json"]).expect(0).out).unwrap()
    }

    fn state(&self, address: &str) -> String {
        let status = self.status();
        let thing = status["things"].as_array().unwrap().iter().find(|thing| thing["address"] == address);
        thing.unwrap()["state"].as_str().unwrap().to_owned()
    }

    fn is_ready_or_stopped(&self) {
        self.user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    }
}

#[test]
fn all_that_costs_money_goes_and_comes_back() {
    let fixture = Fixture::started();
    let user = &fixture.user;
    // Nobody is asked on a pipe.
    user.run(&["stop"]).expect(3).says("--auto-approve");
    assert_eq!(fixture.names("daskclusters"), ["d", "other"]);
    user.run(&["stop", "--auto-approve"]).expect(0).says("Stop complete!").says("dask-infra start\n");
    assert!(fixture.names("daskclusters").is_empty() && fixture.names("daskautoscalers").is_empty());
    assert_eq!((fixture.nodes("cpu"), fixture.nodes("more")), (0, 0));
    assert_eq!(fixture.names("daskjobs"), ["train"], "what has ended does not run again");

    // Later plans leave it so, and say who and since when.
    let plan = user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes").says("DI0385");
    assert!(plan.out.contains("stopped by ") && plan.out.contains(" since 20"), "{}", plan.out);
    user.run(&["plan", "--refresh-only"]).expect(0).says("No drift.");
    user.run(&["status"]).expect(0).says("stopped by ");
    // The operator has no node, and nobody waits for that.
    user.run(&["status", "--follow"]).expect(0).says("all node pools are stopped");
    for address in ["node_pool.cpu", "dask_cluster.d", "dask_cluster.d.group.big"] {
        assert_eq!(fixture.state(address), "stopped", "{address}");
    }
    user.run(&["scale", "node_pool.cpu", "1", "--auto-approve"]).expect(1).says("is stopped by");
    user.run(&["stop", "--auto-approve"]).expect(0).says("It is stopped already.");

    // An edit of what is stopped waits; what is not stopped changes.
    user.edit("image = \"demo:1\"\nworker = { replicas", "image = \"demo:2\"\nworker = { replicas");
    user.edit("[dask_operator]", "[namespace.team]\n\n[dask_operator]");
    // So does what would run on a stopped pool.
    user.edit(
        "[dask_job.train]",
        "[dask_cluster.late]\nimage = \"demo:1\"\nworker = { pool = \"more\" }\n\n[dask_job.train]",
    );
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 added");
    assert!(fixture.names("daskclusters").is_empty());
    fixture.is_ready_or_stopped();

    user.run(&["start", "--auto-approve"]).expect(0).says("Start complete!").says("5 added, 2 changed");
    fixture.is_ready_or_stopped();
    assert_eq!(fixture.names("daskclusters"), ["d", "late", "other"]);
    assert_eq!((fixture.nodes("cpu"), fixture.nodes("more")), (2, 1));
    let cluster = fixture.served.get(&format!("{DASK}/daskclusters/d"));
    assert_eq!(cluster["spec"]["worker"]["spec"]["containers"][0]["image"], "demo:2");
    assert_eq!(fixture.status()["ready"], true, "{}", fixture.status());
    user.run(&["start", "--auto-approve"]).expect(0).says("nothing in this stack is stopped");
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

#[test]
fn a_section_stops_by_itself_and_starts_with_what_it_needs() {
    let fixture = Fixture::started();
    let user = &fixture.user;
    user.run(&["stop", "dask_operator", "--auto-approve"]).expect(1).says("DI0340");
    user.run(&["start", "other", "--auto-approve"]).expect(0).says("dask_cluster.other is not stopped");

    // A pool goes with what must run on it.
    user.run(&["stop", "node_pool.more", "--auto-approve"]).expect(0);
    assert_eq!(fixture.names("daskclusters"), ["other"]);
    assert_eq!((fixture.nodes("cpu"), fixture.nodes("more")), (2, 0));
    fixture.is_ready_or_stopped();
    user.run(&["start", "dask_cluster.d", "--auto-approve"]).expect(0);
    assert_eq!(fixture.names("daskclusters"), ["d", "other"]);
    assert_eq!(fixture.nodes("more"), 1);
    fixture.is_ready_or_stopped();

    // Two things, one after the other; a saved plan brings both back.
    user.run(&["stop", "other", "--auto-approve"]).expect(0);
    user.run(&["stop", "d", "--auto-approve"]).expect(0);
    user.run(&["plan", "--start", "--out", "p"]).expect(0).says("stopped until now");
    user.run(&["apply", "p"]).expect(0);
    assert_eq!(fixture.names("daskclusters"), ["d", "other"]);
    fixture.is_ready_or_stopped();

    // A cluster that was deleted by hand is stopped by a note in the record alone.
    let path = format!("{DASK}/daskclusters/other");
    assert_eq!(fixture.served.delete(&path), 200);
    user.run(&["stop", "other", "--auto-approve"]).expect(0);
    fixture.is_ready_or_stopped();

    // A destroy while something is stopped leaves nothing, and the next apply makes everything.
    user.run(&["stop", "--auto-approve"]).expect(0);
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(fixture.names("daskclusters"), ["d", "other"]);
}

#[test]
fn a_stop_that_is_killed_goes_on() {
    let fixture = Fixture::started();
    let user = &fixture.user;
    for until in ["dask_cluster.d", "node_pool"] {
        let mut stopping = RunningCommand::start(user, &["stop", "--auto-approve"]);
        stopping.wait_until(until);
        stopping.signal("KILL");
        stopping.end();
        user.run(&["stop", "--auto-approve"]).expect(0);
        fixture.is_ready_or_stopped();
        assert!(fixture.names("daskclusters").is_empty());
        assert_eq!((fixture.nodes("cpu"), fixture.nodes("more")), (0, 0));

        let mut starting = RunningCommand::start(user, &["start", "--auto-approve"]);
        starting.wait_until(until);
        starting.signal("KILL");
        starting.end();
        // Running the command again completes it, whatever its first result was.
        user.run(&["start", "--auto-approve"]).expect(0);
        fixture.is_ready_or_stopped();
        assert_eq!(fixture.names("daskclusters"), ["d", "other"]);
    }
}

#[test]
fn pods_of_others_are_lost_with_approval_only() {
    let fixture = Fixture::started();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "theirs", "namespace": "default" },
        "spec": {
            "nodeSelector": { "cloud.google.com/gke-nodepool": "cpu" },
            "containers": [{ "name": "c", "image": "web:1" }],
        },
    });
    assert_eq!(fixture.served.post("/api/v1/namespaces/default/pods", &pod).0, 201);
    let named = || {
        let pod = fixture.served.get("/api/v1/namespaces/default/pods/theirs");
        pod["spec"]["nodeName"].is_string()
    };
    while !named() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let allow = "delete:others.default/Pod/theirs";
    fixture.user.run(&["stop", "node_pool.cpu", "--auto-approve"]).expect(3).says(allow);
    assert_eq!(fixture.nodes("cpu"), 2);
    fixture.user.run(&["stop", "node_pool.cpu", "--auto-approve", "--allow", allow]).expect(0);
    assert_eq!(fixture.nodes("cpu"), 0);
    fixture.is_ready_or_stopped();
}

#[test]
fn a_ttl_of_the_command_line_is_written_to_the_stack_file() {
    let served = SandboxServer::fast();
    // Comments and layout stay.
    let stack = ON_GKE.replacen("[cluster]", "[cluster]\nworkload_identity = true", 1);
    // The stack's own files are not the user's code: an edit of them is no edit of code.
    let more =
        "[dask_operator]\nversion = \"2026.3.0\"\n[dask_cluster.d]\nimage = \"demo:1\"\nfiles = [\".\"]\n";
    let user = User::at(&served, format!("# The lab's.\n{stack}nodes = 1 # one is enough\n{more}"));
    std::fs::write(user.path().join("train.py"), "").unwrap();
    let before = user.stack();
    user.run(&["apply", "--ttl", "8h"]).expect(3).says("--auto-approve");
    user.run(&["apply", "--ttl", "soon", "--auto-approve"]).expect(1).says("soon");
    user.run(&["apply", "--ttl", "8h", "--when-capacity"]).expect(1).says("cannot be used with");
    assert_eq!(user.stack(), before, "without approval the file is as it was");

    user.run(&["apply", "--ttl", "8h", "--auto-approve"]).expect(0).says("ttl = \"8h\" (was not given)");
    let (name, _) = before.split_once("\n\n").unwrap();
    assert_eq!(user.stack(), before.replacen(name, &format!("{name}\nttl = \"8h\""), 1));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["status"]).expect(0).says("stops the stack in ");
    let written = user.stack();
    user.run(&["apply", "--ttl", "8h", "--auto-approve"]).expect(0).says("No changes");
    assert_eq!(user.stack(), written);

    // Of a table only the time changes.
    user.edit("ttl = \"8h\"", "ttl = { after = \"8h\", destroy = true }");
    user.run(&["apply", "--ttl", "4h", "--auto-approve"]).expect(0).says("after = \"4h\" (was \"8h\")");
    assert_eq!(user.stack(), written.replace("ttl = \"8h\"", "ttl = { after = \"4h\", destroy = true }"));
}
