//! The main job on a real control plane: the real program applies the ready stack through the sandbox's GKE,
//! whose cluster is a real API server. The real scheduler binds the pods, the real Dask operator makes the
//! workers, KWOK runs them.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeSet;
use std::time::Duration;

use dask_infra::sandbox::{Options, Scale};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{Client, ControlPlane, Operator, Part, needs};
use crate::served::{Said, Served, User};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const NODES: &str = "/api/v1/nodes";
const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daskautoscalers.kubernetes.dask.org";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const GPU: &str = "/status/allocatable/nvidia.com~1gpu";
const POOL: &str = "/metadata/labels/cloud.google.com~1gke-nodepool";

/// GKE in front of the control plane; faster than life, and GKE takes seconds still.
fn served(plane: &ControlPlane) -> Served {
    let kubernetes = Some(plane.access().kubeconfig.clone());
    Served::with(Options { scale: Scale { time_scale: 1200.0 }, kubernetes, ..Options::default() })
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The operator, once its definitions are there: as a pod it would be started after them, too.
fn operator_when_wanted(plane: &ControlPlane) -> tokio::task::JoinHandle<Operator> {
    let (client, access) = (plane.client(), plane.access().clone());
    tokio::spawn(async move {
        client.wait(CRD, "Dask's definitions", |crd| crd.to_string().contains("Established")).await;
        Operator::start(&access).await
    })
}

fn run(user: &User, words: &[&str]) -> Said {
    block_in_place(|| user.run(words))
}

/// Pools of the nodes that a component's pods are bound to, one for each pod.
async fn pools_of(client: &Client, component: &str) -> Vec<String> {
    let path = format!("{PODS}?labelSelector=dask.org%2Fcomponent%3D{component}");
    let (pods, nodes) = (client.get(&path).await.1, client.get(NODES).await.1);
    let pool = |pod: &Value| {
        let node = items(&nodes).iter().find(|node| node["metadata"]["name"] == pod["spec"]["nodeName"]);
        node.map(|node| text(node, POOL).to_owned()).unwrap_or_default()
    };
    items(&pods).iter().map(pool).collect()
}

/// Names of what this program has applied and is still there.
async fn ours(client: &Client) -> Vec<String> {
    let mut found = Vec::new();
    for path in [
        "/api/v1/namespaces",
        "/api/v1/serviceaccounts",
        "/api/v1/services",
        "/api/v1/pods",
        "/api/v1/configmaps",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/daemonsets",
        "/apis/batch/v1/jobs",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ] {
        let list = client.get(path).await.1;
        for object in items(&list) {
            if object["metadata"]["managedFields"].to_string().contains("\"dask-infra/") {
                found.push(format!("{path} {}", text(object, "/metadata/name")));
            }
        }
    }
    found
}

/// The sets of images that the workers' Deployments had at one time, looked at again and again.
fn watch_images(client: Client) -> tokio::task::JoinHandle<BTreeSet<BTreeSet<String>>> {
    tokio::spawn(async move {
        let mut seen = BTreeSet::new();
        loop {
            let list = client.get(DEPLOYMENTS).await.1;
            let image = |item: &Value| text(item, "/spec/template/spec/containers/0/image").to_owned();
            let images: BTreeSet<String> = items(&list).iter().map(image).collect();
            let is_new = images.iter().any(|image| image.contains("25.06"));
            let all_new = is_new && images.len() == 1 && items(&list).len() == 5;
            seen.insert(images);
            if all_new {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ready_stack_lives_and_goes_on_a_real_control_plane() {
    needs!(PARTS);
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let theirs = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "theirs" } });
    client.send(Method::POST, "/api/v1/namespaces", "application/json", &theirs).await;
    plane.add_node("theirs", json!({ "cloud.google.com/gke-nodepool": "default-pool" }), 0).await;
    let served = served(&plane);
    let user = User::with_ready_stack(Some(&served.gke));

    let operator = operator_when_wanted(&plane);
    run(&user, &["apply", "--auto-approve"])
        .expect(0)
        .says("14 added")
        .says("1 check passed")
        .says("Test PASSED");
    let operator = operator.await.unwrap();
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    assert_eq!(pools_of(&client, "scheduler").await, ["scheduler-pool"]);
    assert_eq!(pools_of(&client, "worker").await, ["default-pool"; 2]);
    let nodes = client.get(NODES).await.1;
    let gpus = |pool: &str| {
        let of_pool = |node: &&Value| text(node, POOL) == pool && text(node, "/metadata/name") != "theirs";
        items(&nodes).iter().filter(of_pool).map(|node| text(node, GPU).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((gpus("default-pool"), gpus("scheduler-pool")), (vec!["2".to_owned()], vec!["1".to_owned()]));

    // More workers than the pool has GPUs for, and the node that they need, in one plan.
    user.edit("replicas = 2", "replicas = 4");
    user.edit("nodes = 1                              #", "nodes = 2                              #");
    run(&user, &["plan"]).expect(0).says("Plan: 0 to add, 2 to change, 0 to replace, 0 to destroy");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("2 changed");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0);
    assert_eq!(pools_of(&client, "worker").await, ["default-pool"; 4]);

    // The labels of a pool reach its live nodes.
    user.edit("dedicated = \"scheduler\"", "dedicated = \"scheduler\", team = \"x\"");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("1 changed");
    client
        .wait(NODES, "the node is labelled", |nodes| {
            items(nodes).iter().any(|node| text(node, "/metadata/labels/team") == "x")
        })
        .await;

    // Another image is another Dask cluster, and the old one is gone before the new one comes.
    user.edit("base:25.04", "base:25.06");
    let images = watch_images(plane.client());
    let allow = "replace:dask_cluster.rapids-dask-cluster";
    run(&user, &["apply", "--auto-approve", "--allow", allow]).expect(0).says("1 replaced");
    let images = images.await.unwrap();
    assert!(images.iter().all(|images| images.len() <= 1), "old and new at one time: {images:?}");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0);

    // One API server is one cluster.
    let second = json!({ "cluster": { "name": "second", "initialNodeCount": 1 } }).to_string();
    let clusters = "/v1/projects/demo/locations/us-central1-c/clusters";
    let refused = served.sandbox.gke_request("POST", clusters, "", second.as_bytes()).unwrap();
    assert_eq!(refused.code, 400, "{}", refused.body);
    assert!(refused.body.to_string().contains("rapids-gpu uses it"), "{}", refused.body);

    run(&user, &["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
    run(&user, &["destroy", "--auto-approve"]).expect(0).says("Nothing of the stack is there");
    let left = client.wait(NODES, "the pools' nodes are gone", |nodes| items(nodes).len() <= 1).await;
    assert_eq!(text(&left["items"][0], "/metadata/name"), "theirs", "a node of others stays");
    assert_eq!(ours(&client).await, [""; 0]);
    assert_eq!(client.get("/api/v1/namespaces/theirs").await.0, 200, "what others made is there");
    assert!(!operator.tail().contains("Traceback"), "{}", operator.tail());
}
