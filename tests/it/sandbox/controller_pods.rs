//! Pods that controllers made for a stack are the stack's: no command asks for approval for them, or says that they come back.

use serde_json::json;

use crate::sandbox_server::{ON_GKE, SandboxServer, User, wait_until};

const STACK: &str = r#"
[node_pool.work]
machine_type = "e2-standard-8"

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
ttl = "30d"
scheduler = { cpu = "500m", pool = "work" }
worker = { cpu = "500m", pool = "work" }
"#;

#[test]
fn the_pods_of_a_stacks_own_controllers_are_no_strangers() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}{STACK}"));
    user.run(&["apply", "--auto-approve"]).expect(0);

    // A look of `ttl` runs on a node that is recreated, and stopped. In the sandbox a worker does not end by itself.
    let jobs = "/apis/batch/v1/namespaces/default";
    let cron = served.get(&format!("{jobs}/cronjobs/d-ttl"));
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "d-ttl", "uid": cron["metadata"]["uid"], "controller": true,
    });
    let pod = json!({
        "nodeSelector": { "cloud.google.com/gke-nodepool": "work" }, "restartPolicy": "Never",
        "containers": [{ "name": "look", "image": "demo:1" }],
    });
    let labels = json!({ "dask.org/component": "worker" });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "look", "namespace": "default", "ownerReferences": [owner] },
        "spec": { "template": { "metadata": { "labels": labels }, "spec": pod } },
    });
    let (code, answer) = served.post(&format!("{jobs}/jobs"), &job);
    assert_eq!(code, 201, "{answer}");
    wait_until("the look has a node", || {
        let pods = served.get("/api/v1/namespaces/default/pods");
        let all = pods["items"].as_array().unwrap();
        all.iter().any(|pod| {
            pod["metadata"]["ownerReferences"][0]["name"] == "look" && pod["spec"]["nodeName"].is_string()
        })
    });

    // A replaced Dask cluster takes its workers along: none of them is recreated on another node, and neither
    // is the look.
    user.edit(
        "machine_type = \"e2-standard-8\"\n\n[dask_operator]",
        "machine_type = \"e2-standard-4\"\n\n[dask_operator]",
    );
    user.edit("image = \"demo:1\"", "image = \"demo:2\"");
    let said = user.run(&["plan", "--detailed-exitcode"]).expect(2).says("image");
    // A pod of the operator may run there, too, and is named.
    let named = |text: &str| text.contains("Pod default/") || text.contains("Pods default/");
    assert!(!named(&said.out) && !named(&said.err), "{}", said.out);

    user.run(&["stop", "node_pool.work", "--auto-approve"]).expect(0).says("Stop complete");
}
