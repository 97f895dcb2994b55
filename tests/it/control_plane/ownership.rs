//! Ownership on a real API server with the real Dask operator: the operator adopts objects of the stack and copies
//! their labels, people
//! patch by hand, other tools apply, other stacks share the operator.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{Client, ControlPlane, Operator, Part, needs};
use crate::sandbox_server::{CommandOutput, User, on_path};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const DASK: &str = "/apis/kubernetes.dask.org/v1/namespaces/default";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TEAM: &str = "/api/v1/namespaces/team";
const OPERATOR: &str = "/apis/apps/v1/namespaces/dask-operator/deployments/dask-kubernetes-operator";
const STACK_LABEL: &str = "/metadata/labels/dask-infra.dev~1stack";

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

fn write(user: &User, name: &str, plane: &ControlPlane, sections: &str) {
    let kubeconfig = plane.access().kubeconfig.display();
    let head = format!("[stack]\nname = \"{name}\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n");
    user.write(head + sections);
}

const SHARED: &str = "[dask_operator]\nversion = \"2026.3.0\"\n\n";
const OWN: &str = "[namespace.team]\nlabels = { owner = \"team\" }\n\n";
const CLUSTER: &str = "[dask_cluster.d]\nimage = \"demo:1\"\nworker = { replicas = 1 }\n";

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// Managers of an object, with what they did: `dask-infra/own Apply`.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let said = |entry: &Value| {
        format!("{} {}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap())
    };
    entries.into_iter().flatten().map(said).collect()
}

fn is_ours(object: &Value) -> bool {
    managers(object).iter().any(|manager| manager == "dask-infra/own Apply")
}

/// The operator copies our labels and sets owner references on our objects as on its own: only the records of
/// who applied tell them apart, and the program goes by them.
async fn labels_and_owners_do_not_tell(client: &Client, user: &User) {
    let group = json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskWorkerGroup",
        "metadata": { "name": "d-big", "namespace": "default", "labels": { "dask-infra.dev/stack": "own" } },
        "spec": { "cluster": "d", "worker": {
            "replicas": 0, "spec": { "containers": [{ "name": "worker", "image": "demo:1" }] },
        } },
    });
    let groups = format!("{DASK}/daskworkergroups");
    let (status, said) = client.apply(&format!("{groups}/d-big"), "dask-infra%2Fown", &group).await;
    assert_eq!(status, 201, "{said}");
    let adopted = |group: &Value| group["metadata"]["ownerReferences"][0]["name"] == "d";
    let ours = client.wait(&format!("{groups}/d-big"), "our group is adopted", adopted).await;
    let theirs = client.wait(&format!("{groups}/d-default"), "the default group is adopted", adopted).await;
    let children = client.get(DEPLOYMENTS).await.1;
    assert_eq!(items(&children).len(), 2, "scheduler and worker: {children}");
    for object in [&ours, &theirs].into_iter().chain(items(&children)) {
        assert_eq!(object.pointer(STACK_LABEL), Some(&json!("own")), "{object}");
        assert!(object["metadata"]["ownerReferences"][0]["controller"] == true, "{object}");
    }
    assert!(is_ours(&ours), "{:?}", managers(&ours));
    for object in std::iter::once(&theirs).chain(items(&children)) {
        assert!(!is_ours(object), "{:?}", managers(object));
    }
    let said = run(user, &["plan", "-v"]).expect(0);
    for child in ["d-default", "d-scheduler"] {
        assert!(!said.out.contains(child), "{child} is the operator's: {}", said.out);
    }
    // Ours by every sign, and no longer asked for: it goes, and nothing of the operator's does.
    said.says("d-big").says("1 to destroy");
    run(user, &["apply", "--auto-approve", "--allow", "delete:d-big"]).expect(0).says("1 destroyed");
    assert_eq!(client.get(&format!("{groups}/d-big")).await.0, 404);
    assert_eq!(client.get(&format!("{groups}/d-default")).await.0, 200);
    run(user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

/// The version that our creating applies carry: makes what is absent, and refuses what is there.
async fn creating_is_not_taking_over(client: &Client) {
    let map = |version: Option<&str>, value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": value },
            "metadata": { "name": "theirs", "namespace": "default", "resourceVersion": version },
        })
    };
    let path = format!("{MAPS}/theirs");
    client.send(Method::POST, MAPS, "application/json", &map(None, "theirs")).await;
    let (status, said) = client.apply(&path, "dask-infra%2Fown", &map(Some("1"), "ours")).await;
    assert_eq!(status, 409, "{said}");
    let live = client.get(&path).await.1;
    assert_eq!(live["data"]["k"], "theirs", "{live}");
    assert!(!is_ours(&live), "{:?}", managers(&live));
    client.delete(&path).await;
    let (status, said) = client.apply(&path, "dask-infra%2Fown", &map(Some("1"), "ours")).await;
    assert_eq!(status, 201, "{said}");
    client.delete(&path).await;
}

/// A manual edit is reported with its author and time, and reverted.
async fn a_patch_by_hand_is_taken_back(client: &Client, user: &User, plane: &ControlPlane) {
    let patch = json!({ "metadata": { "labels": { "owner": "me", "extra": "mine" } } });
    if block_in_place(|| on_path("kubectl", "--help")) {
        let mut kubectl = Command::new("kubectl");
        kubectl.args(["patch", "namespace", "team", "--type", "merge", "-p", &patch.to_string()]);
        kubectl.env("KUBECONFIG", &plane.access().kubeconfig);
        let output = block_in_place(|| kubectl.output()).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    } else {
        let path = format!("{TEAM}?fieldManager=kubectl-patch");
        client.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await;
    }
    let live = client.get(TEAM).await.1;
    let entry = live["metadata"]["managedFields"].as_array().unwrap().iter();
    let time = entry.clone().find(|entry| entry["manager"] == "kubectl-patch").unwrap()["time"].clone();
    let when = format!("changed by kubectl-patch at {}", time.as_str().unwrap());
    run(user, &["plan"]).expect(0).says("metadata.labels.owner: \"me\" -> \"team\"").says(&when);
    run(user, &["apply", "--auto-approve"]).expect(0).says("1 changed");
    let live = client.get(TEAM).await.1;
    assert_eq!(live["metadata"]["labels"]["owner"], "team", "{live}");
    assert_eq!(live["metadata"]["labels"]["extra"], "mine", "what we never set stays: {live}");
    run(user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

/// A field that another tool applies is adopted only with an approval that names it.
async fn another_applier_is_refused(client: &Client, user: &User) {
    let theirs = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "team", "labels": { "owner": "platform" } },
    });
    let (status, said) = client.apply(TEAM, "terraform&force=true", &theirs).await;
    assert_eq!(status, 200, "{said}");
    run(user, &["plan"]).expect(3).says("`terraform`").says("--allow take:namespace.team");
    run(user, &["apply", "--auto-approve"]).expect(3).says("--allow take:namespace.team");
    assert_eq!(client.get(TEAM).await.1["metadata"]["labels"]["owner"], "platform");
    run(user, &["apply", "--auto-approve", "--allow", "take:namespace.team"]).expect(0).says("1 changed");
    let live = client.get(TEAM).await.1;
    assert_eq!(live["metadata"]["labels"]["owner"], "team", "{live}");
    assert!(!managers(&live).iter().any(|manager| manager.starts_with("terraform")), "{:?}", managers(&live));
    run(user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

const QUEUES: &str = "/apis/example.com/v1/namespaces/default/queues";

/// An object is the same one in every version that is served, also when it is applied in another one than before.
async fn versions_are_views_of_one_object(client: &Client, plane: &ControlPlane) {
    let version = |name: &str| {
        json!({ "name": name, "served": true, "storage": name == "v1", "schema": { "openAPIV3Schema": {
            "type": "object", "properties": { "spec": { "type": "object", "properties": {
                "size": { "type": "integer" } } } } } } })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "queues.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Queue", "plural": "queues", "singular": "queue", "listKind": "QueueList" },
            "versions": [version("v1beta1"), version("v1")] },
    });
    let queue = |version: &str| {
        json!({ "apiVersion": format!("example.com/{version}"), "kind": "Queue",
            "metadata": { "name": "main" }, "spec": { "size": 1 } })
    };
    let user = User::empty();
    let sections = "[manifest.kinds]\nfile = \"kinds.yaml\"\n\n[manifest.app]\nfile = \"app.yaml\"\n";
    write(&user, "versions", plane, sections);
    let file = |name: &str, value: &Value| std::fs::write(user.path().join(name), value.to_string()).unwrap();
    file("kinds.yaml", &definition);
    file("app.yaml", &queue("v1"));
    run(&user, &["apply", "--auto-approve"]).expect(0).says("2 added");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let uid = client.get(&format!("{QUEUES}/main")).await.1["metadata"]["uid"].clone();
    for (other, before) in [("v1beta1", "v1"), ("v1", "v1beta1")] {
        file("app.yaml", &queue(other));
        let moved = format!("apiVersion: \"example.com/{before}\" -> \"example.com/{other}\"");
        run(&user, &["plan"]).expect(0).says(&moved).says("1 to change");
        run(&user, &["apply", "--auto-approve"]).expect(0).says("1 changed");
        run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
        assert_eq!(client.get(&format!("{QUEUES}/main")).await.1["metadata"]["uid"], uid, "the same object");
    }
    // The definition takes what others have of its kind along.
    let mut theirs = queue("v1");
    theirs["metadata"]["name"] = json!("theirs");
    let (status, said) = client.send(Method::POST, QUEUES, "application/json", &theirs).await;
    assert_eq!(status, 201, "{said}");
    let consent = "delete:others.default/Queue/theirs";
    let own = ["--allow", "delete:manifest.kinds"];
    let destroy = ["destroy", "--auto-approve"];
    run(&user, &[&destroy[..], &own].concat()).expect(3).says(consent);
    assert_eq!(client.get(&format!("{QUEUES}/theirs")).await.0, 200);
    run(&user, &[&destroy[..], &own, &["--allow", consent]].concat()).expect(0);
    assert_eq!(client.get(QUEUES).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_two_versions_is_one_thing() {
    needs!(&[Part::Etcd, Part::Kubernetes]);
    let plane = ControlPlane::start().await;
    versions_are_views_of_one_object(&plane.client(), &plane).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ours_is_told_by_who_applied_it() {
    needs!(PARTS);
    let plane = ControlPlane::start().await;
    let client = plane.client();
    plane.add_node("node-0", json!({}), 0).await;
    let user = User::empty();
    write(&user, "own", &plane, &format!("{OWN}{SHARED}"));
    run(&user, &["apply", "--auto-approve"]).expect(0);
    let operator = Operator::start(plane.access()).await;
    write(&user, "own", &plane, &format!("{OWN}{SHARED}{CLUSTER}"));
    run(&user, &["apply", "--auto-approve"]).expect(0).says("1 added");

    labels_and_owners_do_not_tell(&client, &user).await;
    creating_is_not_taking_over(&client).await;
    a_patch_by_hand_is_taken_back(&client, &user, &plane).await;
    another_applier_is_refused(&client, &user).await;

    // A second stack uses the same operator: it makes nothing of it anew, and the first one leaves it there.
    let second = User::empty();
    write(&second, "next", &plane, SHARED);
    run(&second, &["apply", "--auto-approve"]).expect(0);
    let both = managers(&client.get(OPERATOR).await.1);
    for manager in ["dask-infra/own Apply", "dask-infra/next Apply"] {
        assert!(both.iter().any(|one| one == manager), "{both:?}");
    }
    run(&user, &["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
    let left = client.get(OPERATOR).await;
    assert_eq!(left.0, 200, "the second stack uses it: {}", left.1);
    assert_eq!(client.get(TEAM).await.0, 404);
    run(&second, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    // The last one takes it along.
    run(&second, &["destroy", "--auto-approve"]).expect(3).says("--allow delete:dask_operator");
    let words = ["destroy", "--auto-approve", "--allow", "delete:dask_operator"];
    run(&second, &words).expect(0).says("Destroy complete");
    for path in [OPERATOR, "/api/v1/namespaces/dask-operator"] {
        assert_eq!(client.get(path).await.0, 404, "{path}");
    }
    drop(operator);
}
