//! Objects that look ready and are not: an operator whose Deployment is available and that does not watch, and a
//! scale-down that it reports and did not do. Both on the real operator and a real API server.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{Client, ControlPlane, CudaCheck, Dask, Operator, Part, needs};
use crate::sandbox_server::{CommandOutput, RunningCommand, User};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const WORKERS: &str =
    "/apis/apps/v1/namespaces/default/deployments?labelSelector=dask.org%2Fcomponent%3Dworker";
const OPERATOR: &str = "/apis/apps/v1/namespaces/dask-operator/deployments/dask-kubernetes-operator";
const CLUSTER: &str = "\n[dask_cluster.d]\nimage = \"demo:1\"\nworker = { replicas = 1 }\n";
/// The text of an apply while the operator sleeps.
const UNSEEN: &str = "not yet handled by the Dask operator";

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

/// The operator's Deployment is as available as ever.
async fn looks_well(client: &Client) {
    let deployment = client.get(OPERATOR).await.1;
    let available = deployment["status"]["conditions"].as_array().unwrap().iter();
    let available = available.filter(|one| one["type"] == "Available" && one["status"] == "True").count();
    assert_eq!(available, 1, "{deployment}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_did_not_do_is_not_ready() {
    needs!(PARTS);
    let mut plane = ControlPlane::start().await;
    // A scheduler that answers and knows no worker.
    let dask = Dask::start().await;
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    let client = plane.client();
    plane.add_node("node-0", json!({}), 0).await;
    let user = User::empty();
    let kubeconfig = plane.access().kubeconfig.display().to_string();
    let stack = format!(
        "[stack]\nname = \"truth\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n"
    );
    user.write(&stack);
    run(&user, &["apply", "--auto-approve"]).expect(0);
    let operator = Operator::start(plane.access()).await;

    operator.pause();
    user.write(stack + CLUSTER);
    let mut applying = RunningCommand::start(&user, &["apply", "--auto-approve"]);
    let line = applying.wait_until(UNSEEN);
    assert!(line.contains("dask_cluster.d"), "{line}");
    looks_well(&client).await;
    operator.resume();
    assert_eq!(applying.end(), Some(0));
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // With its children there, nothing but their number tells that it sleeps.
    operator.pause();
    user.edit("replicas = 1", "replicas = 2");
    let mut applying = RunningCommand::start(&user, &["apply", "--auto-approve"]);
    let line = applying.wait_until(UNSEEN);
    assert!(line.contains("does not request 2 yet"), "{line}");
    looks_well(&client).await;
    operator.resume();
    assert_eq!(applying.end(), Some(0));
    let list = client.get(WORKERS).await.1;
    assert_eq!(names(&list).len(), 2);

    // The scheduler names nobody, the operator deletes nobody and is content.
    user.edit("replicas = 2", "replicas = 1");
    let said = run(&user, &["apply", "--auto-approve"]).expect(1).says("scaled to 1, but left 2");
    for name in names(&list) {
        assert!(said.err.contains(name) || said.out.contains(name), "{name} is not named: {}", said.err);
    }
    assert_eq!(names(&client.get(WORKERS).await.1), names(&list), "all workers are there");
    assert!(operator.log().contains("down to 1 workers"), "{}", operator.tail());
    // The next plan has the change that the operator did not make.
    let said = run(&user, &["plan", "--detailed-exitcode"]).expect(2).says("scaled to 1, but did not");
    assert!(names(&list).iter().any(|name| said.out.contains(name)), "no worker is named: {}", said.out);
    run(&user, &["apply", "--auto-approve"]).expect(0).says("1 changed");
    assert_eq!(names(&client.get(WORKERS).await.1).len(), 1);
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    let words = ["destroy", "--auto-approve", "--allow", "delete:dask_operator"];
    run(&user, &words).expect(0).says("Destroy complete");
}
