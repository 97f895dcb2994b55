//! `import` and `adopt` against reality: what kubectl made on a real control plane, worked on by the real Dask operator,
//! is read, taken over and scaled; its children stay who they are.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::process::Command;

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::clients::imports::{dask_cluster, rendered};
use crate::real::{Client, ControlPlane, Operator, Part, needs};
use crate::sandbox_server::{CommandOutput, User, on_path};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const DASK: &str = "/apis/kubernetes.dask.org/v1/namespaces/default";

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

/// kubectl with the rights of the plane; what it prints.
fn kubectl(plane: &ControlPlane, words: &[&str]) -> String {
    let kubeconfig = plane.access().kubeconfig.display().to_string();
    let output = block_in_place(|| {
        Command::new("kubectl").args(["--kubeconfig", &kubeconfig]).args(words).output().unwrap()
    });
    let said = CommandOutput::of(&output);
    assert!(output.status.success(), "kubectl {words:?}\n{}\n{}", said.out, said.err);
    said.out
}

fn give(plane: &ControlPlane, user: &User, verb: &str, object: &Value) {
    let file = user.path().join("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    kubectl(plane, &[verb, "-f", &file.display().to_string()]);
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// Names and uids of what the operator made.
async fn children(client: &Client) -> Vec<String> {
    let mut found = Vec::new();
    for path in [
        "/apis/apps/v1/namespaces/default/deployments",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/pods",
        &format!("{DASK}/daskworkergroups"),
    ] {
        let list = client.get(path).await.1;
        let dask = items(&list)
            .iter()
            .filter(|item| item["metadata"]["labels"]["dask.org/cluster-name"].is_string());
        found.extend(
            dask.map(|item| format!("{path} {} {}", item["metadata"]["name"], item["metadata"]["uid"])),
        );
    }
    found.sort();
    found
}

/// Workers of a group that run, as the operator labels them.
async fn workers(client: &Client, group: &str, number: usize) {
    let path = format!(
        "/apis/apps/v1/namespaces/default/deployments?labelSelector=dask.org%2Fworkergroup-name%3D{group}"
    );
    let available = |list: &Value| {
        let ready = items(list).iter().filter(|item| item["status"]["availableReplicas"] == 1);
        items(list).len() == number && ready.count() == number
    };
    client.wait(&path, &format!("{number} workers of {group}"), available).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kubectl_made_is_imported_and_adopted_on_a_real_cluster() {
    needs!(PARTS);
    if !on_path("kubectl", "--help") {
        return;
    }
    let plane = ControlPlane::start().await;
    let client = plane.client();
    plane.add_node("node-0", json!({}), 8).await;
    let user = User::empty();
    for object in rendered("[dask_operator]\nversion = \"2026.3.0\"\n") {
        give(&plane, &user, "create", &object);
    }
    kubectl(&plane, &["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    let operator = Operator::start(plane.access()).await;
    give(&plane, &user, "apply", &dask_cluster("rapids"));
    client
        .wait(&format!("{DASK}/daskworkergroups/rapids-default"), "the default group", Value::is_object)
        .await;
    let pod = json!({ "containers": [{
        "name": "worker", "image": "demo:1", "args": ["dask", "worker", "--name", "$(DASK_WORKER_NAME)"],
        "env": [{ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
    }], "terminationGracePeriodSeconds": 5 });
    give(
        &plane,
        &user,
        "apply",
        &json!({
            "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskWorkerGroup", "metadata": { "name": "rapids-more" },
            "spec": { "cluster": "rapids", "worker": { "replicas": 1, "spec": pod } },
        }),
    );
    workers(&client, "rapids-default", 2).await;
    workers(&client, "rapids-more", 1).await;
    // Which of the two comes last is a race in this operator (dask-kubernetes issue 968).
    let handled =
        |cluster: &Value| matches!(cluster["status"]["phase"].as_str(), Some("Pending" | "Running"));
    client.wait(&format!("{DASK}/daskclusters/rapids"), "the operator's last phase", handled).await;

    let kubeconfig = plane.access().kubeconfig.display().to_string();
    run(&user, &["import", "--kubeconfig", &kubeconfig, "--context", "gone"]).expect(1).says("gone");
    let said = run(&user, &["import", "--kubeconfig", &kubeconfig, "--name", "taken"]).expect(0);
    let text = user.stack();
    assert!(!said.err.contains("warning"), "{}\n{text}", said.err);
    for line in ["context = \"real\"", "[dask_cluster.rapids.group.more]", "[dask_operator]"] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let quiet = run(&user, &["validate"]).expect(0);
    assert!(!quiet.err.contains("warning"), "{}\n{text}", quiet.err);
    let planned = run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    assert!(!planned.err.contains("warning"), "{}\n{text}", planned.err);

    let made = children(&client).await;
    run(&user, &["adopt", "dask_cluster.rapids"]).expect(3).says("--auto-approve");
    for section in ["dask_operator", "dask_cluster.rapids", "dask_cluster.rapids.group.more"] {
        run(&user, &["adopt", section, "--auto-approve"]).expect(0).says("`manage = false` removed");
        run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    }
    assert_eq!(children(&client).await, made, "nobody was made anew");
    for path in ["daskclusters/rapids", "daskworkergroups/rapids-more"] {
        let live = client.get(&format!("{DASK}/{path}")).await.1;
        let entries = live["metadata"]["managedFields"].as_array().unwrap();
        let ours = |entry: &Value| entry["manager"] == "dask-infra/taken" && entry["operation"] == "Apply";
        assert!(entries.iter().any(ours), "{path}: {entries:?}");
    }

    // It is a stack like any other now.
    user.edit("replicas = 2", "replicas = 3");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("1 changed");
    workers(&client, "rapids-default", 3).await;
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    run(&user, &["destroy", "--auto-approve", "--allow", "delete:dask_operator"])
        .expect(0)
        .says("Destroy complete");
    assert_eq!(client.get("/apis/kubernetes.dask.org/v1/daskclusters").await.0, 404, "its definition went");
    drop(operator);
}
