//! `scale` on a real control plane with the real Dask operator: workers are compared by their uids.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{Client, ControlPlane, Operator, Part, needs};
use crate::sandbox_server::{CommandOutput, User};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

const OPERATOR: &str = "[dask_operator]\nversion = \"2026.3.0\"\n";

const DASK: &str = r#"
[dask_cluster.d]
image = "demo:1"
scheduler = { cpu = "100m" }
worker = { replicas = 2, cpu = "100m" } # by day

[dask_cluster.d.group.big]
replicas = 2
cpu = "200m"
"#;

/// The uids of worker Deployments by their group.
async fn workers(client: &Client) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (_, list) = client.get(DEPLOYMENTS).await;
    for item in list["items"].as_array().into_iter().flatten() {
        let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/metadata/labels/dask.org~1workergroup-name");
        if !group.is_empty() && item["metadata"]["deletionTimestamp"].is_null() {
            found.entry(group.to_owned()).or_default().insert(text("/metadata/uid").to_owned());
        }
    }
    found
}

const SCHEDULER: &str = "/apis/apps/v1/namespaces/default/deployments/d-scheduler";
const SERVICE: &str = "/api/v1/namespaces/default/services/d-scheduler";
const DEFAULT_GROUP: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups/d-default";

async fn uid(client: &Client, path: &str) -> String {
    let (_, live) = client.get(path).await;
    live["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Deletes an object as somebody by hand does, and waits until it is gone.
async fn delete(client: &Client, path: &str) {
    let (status, said) = client.delete(path).await;
    assert!(status < 300, "{said}");
    let (list, name) = path.rsplit_once('/').unwrap();
    let own = format!("{list}?fieldSelector=metadata.name%3D{name}");
    client.wait(&own, "it goes", |list| list["items"].as_array().is_some_and(Vec::is_empty)).await;
}

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_changes_and_nobody_elses_workers_go() {
    needs!(PARTS);
    let plane = ControlPlane::start().await;
    let client = plane.client();
    plane.add_node("node-0", json!({}), 8).await;
    let user = User::empty();
    let kubeconfig = plane.access().kubeconfig.to_string_lossy().into_owned();
    let head = format!("[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n{OPERATOR}");
    let path = user.path().join("stack.toml");
    std::fs::write(&path, &head).unwrap();
    run(&user, &["apply", "--auto-approve"]).expect(0);
    let operator = Operator::start(plane.access()).await;
    std::fs::write(&path, format!("{head}{DASK}")).unwrap();
    run(&user, &["apply", "--auto-approve"]).expect(0);

    // Up and kept: all stay, the file says so, the next plan is empty.
    let first = workers(&client).await;
    run(&user, &["scale", "dask_cluster.d", "4", "--write", "--auto-approve"])
        .expect(0)
        .says("replicas = 4 (was 2)");
    let up = workers(&client).await;
    assert_eq!((up["d-default"].len(), up["d-default"].is_superset(&first["d-default"])), (4, true));
    assert_eq!(up["d-big"], first["d-big"]);
    assert!(std::fs::read_to_string(&path).unwrap().contains("replicas = 4, cpu = \"100m\" } # by day"));
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // Down: only its own, with no scheduler that could be asked. The operator agrees.
    run(&user, &["scale", "dask_cluster.d", "1", "--auto-approve"]).expect(0).says("DI0434").says("DI0430");
    let down = workers(&client).await;
    assert_eq!((down["d-default"].len(), down["d-default"].is_subset(&up["d-default"])), (1, true));
    assert_eq!(down["d-big"], first["d-big"], "the other group keeps its workers");
    run(&user, &["scale", "d.group.big", "1", "--auto-approve"]).expect(0).says("DI0434");
    let both = workers(&client).await;
    assert_eq!((both["d-big"].len(), both["d-big"].is_subset(&first["d-big"])), (1, true));
    assert_eq!(both["d-default"], down["d-default"]);

    // A number that was not written to the file is reported and reverted by the next apply, which deletes no foreign
    // worker.
    run(&user, &["plan", "--detailed-exitcode"])
        .expect(2)
        .says("changed by `dask-infra scale`")
        .says("spec.worker.replicas: 1 -> 4");
    run(&user, &["apply", "--auto-approve"]).expect(0);
    let back = workers(&client).await;
    assert_eq!((back["d-default"].len(), back["d-big"].len()), (4, 2));
    user.edit("replicas = 4", "replicas = 2");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("DI0434");
    let fewer = workers(&client).await;
    assert_eq!((fewer["d-default"].len(), &fewer["d-big"]), (2, &back["d-big"]));
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // A lost object that the operator created once is created again; the others stay.
    let kept = |of: &BTreeMap<String, BTreeSet<String>>| of.clone();
    let scheduler = uid(&client, SCHEDULER).await;
    delete(&client, SERVICE).await;
    run(&user, &["plan", "--detailed-exitcode"])
        .expect(2)
        .says("Service default/d-scheduler")
        .says("1 to change");
    run(&user, &["apply", "--auto-approve"]).expect(0);
    assert_eq!(client.get(SERVICE).await.0, 200);
    assert_eq!((uid(&client, SCHEDULER).await, workers(&client).await), (scheduler.clone(), kept(&fewer)));
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    delete(&client, SCHEDULER).await;
    run(&user, &["apply", "--auto-approve"]).expect(0);
    assert_ne!(uid(&client, SCHEDULER).await, scheduler);
    assert_eq!(workers(&client).await, fewer);
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // The default group takes its workers along; the other group's stay.
    delete(&client, DEFAULT_GROUP).await;
    client.wait(DEPLOYMENTS, "its workers go", |list| list["items"].as_array().unwrap().len() == 3).await;
    run(&user, &["plan", "--detailed-exitcode"])
        .expect(2)
        .says("default/d-default; this change makes it recreate");
    run(&user, &["apply", "--auto-approve"]).expect(0);
    let remade = workers(&client).await;
    assert_eq!((remade["d-default"].len(), &remade["d-big"]), (2, &fewer["d-big"]));
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // A worker of each.
    let (_, list) = client.get(DEPLOYMENTS).await;
    let mut gone = BTreeSet::new();
    for item in list["items"].as_array().unwrap() {
        let group = item["metadata"]["labels"]["dask.org/workergroup-name"].as_str();
        if let Some(group) = group.filter(|group| gone.insert((*group).to_owned())) {
            println!("a worker of {group} is deleted");
            delete(&client, &format!("{DEPLOYMENTS}/{}", item["metadata"]["name"].as_str().unwrap())).await;
        }
    }
    run(&user, &["plan", "--detailed-exitcode"])
        .expect(2)
        .says("1 of 2 workers of DaskWorkerGroup default/d-big");
    run(&user, &["apply", "--auto-approve"]).expect(0);
    let whole = workers(&client).await;
    for group in ["d-default", "d-big"] {
        assert_eq!(
            (whole[group].len(), whole[group].intersection(&remade[group]).count()),
            (2, 1),
            "{group}"
        );
    }
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    run(&user, &["destroy", "--auto-approve", "--allow", "delete:dask_operator"]).expect(0);
    drop(operator);
}
