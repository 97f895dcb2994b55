//! The engine against reality: the real program applies a `[kubernetes]` stack to a real control plane where
//! the real Dask operator works. Nothing of the sandbox is in here.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use serde_json::{Value, json};

use crate::real::{ControlPlane, Operator, Part, needs};
use crate::sandbox_server::User;

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const DASK: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters";

fn stack(kubeconfig: &str) -> String {
    format!(
        r#"[stack]
name = "real"

[kubernetes]
kubeconfig = "{kubeconfig}"

[namespace.team]
labels = {{ owner = "team" }}

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
worker = {{ replicas = 1 }}
"#
    )
}

fn items(list: &Value) -> usize {
    list["items"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_is_applied_changed_and_destroyed_on_a_real_cluster() {
    needs!(PARTS);
    let plane = ControlPlane::start().await;
    let client = plane.client();
    plane.add_node("node-0", json!({}), 2).await;
    let user = User::empty();
    user.write(stack(&plane.access().kubeconfig.to_string_lossy()));

    // The Deployment of the operator is run by KWOK and does nothing; the operator itself runs here. It wants
    // its definitions, so the rest of the stack comes first.
    user.edit("[dask_cluster.d]\nimage = \"demo:1\"\nworker = { replicas = 1 }\n", "");
    user.run(&["plan"]).expect(0).says("LIVE").says("Plan: 10 to add");
    user.run(&["apply", "--auto-approve"]).expect(0).says("10 added");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let operator = Operator::start(plane.access()).await;

    user.write(stack(&plane.access().kubeconfig.to_string_lossy()));
    user.run(&["plan"]).expect(0).says("Plan: 1 to add");
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 added");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    user.edit("replicas = 1", "replicas = 2");
    user.run(&["plan"]).expect(0).says("spec.worker.replicas: 1 -> 2");
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    let workers = "/apis/apps/v1/namespaces/default/deployments?labelSelector=dask.org%2Fcomponent%3Dworker";
    let (_, list) = client.get(workers).await;
    assert_eq!(items(&list), 2, "{list:#}");

    // A change by hand is drift: named, and taken back.
    let patch = json!({ "spec": { "worker": { "replicas": 1 } } });
    let path = format!("{DASK}/d?fieldManager=kubectl-patch");
    let (status, said) =
        client.send(reqwest::Method::PATCH, &path, "application/merge-patch+json", &patch).await;
    assert_eq!(status, 200, "{said}");
    user.run(&["plan"]).expect(0).says("changed by kubectl-patch");

    // A foreign object with a name of the stack is not adopted.
    let theirs = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "theirs" } });
    client.send(reqwest::Method::POST, "/api/v1/namespaces", "application/json", &theirs).await;
    user.edit("[namespace.team]", "[namespace.theirs]\n\n[namespace.team]");
    user.run(&["plan"]).expect(3).says("already exists and does not belong to this stack");
    user.edit("[namespace.theirs]\n\n", "");

    user.edit("demo:1", "demo:2");
    user.run(&["apply", "--auto-approve"]).expect(3).says("replace:dask_cluster.d");
    user.run(&["apply", "--auto-approve", "--allow", "replace:d"]).expect(0).says("1 replaced");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);

    // Definitions in a cluster that stays go only with a consent of their own.
    user.run(&["destroy", "--auto-approve"]).expect(3).says("--allow delete:dask_operator");
    let allow = "delete:dask_operator";
    user.run(&["destroy", "--auto-approve", "--allow", allow]).expect(0).says("Destroy complete");
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
    for path in ["/api/v1/namespaces/team", "/api/v1/namespaces/dask-operator"] {
        assert_eq!(client.get(path).await.0, 404, "{path}");
    }
    assert_eq!(client.get("/api/v1/namespaces/theirs").await.0, 200, "what others made is there");
    drop(operator);
}
