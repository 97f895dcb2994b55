//! The main job on a real control plane: the real program applies the ready stack through the sandbox's GKE,
//! whose cluster is a real API server. The real scheduler binds the pods, the real Dask operator makes the
//! workers, KWOK runs them.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use reqwest::Method;
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::control_plane::connect::ConnectProcess;
use crate::real::{Client, ControlPlane, CudaCheck, Dask, Operator, Part, needs};
use crate::sandbox_server::{CommandOutput, FAST, SandboxServer, User, on_path};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const NODES: &str = "/api/v1/nodes";
/// A kubeconfig of the sandbox for its cluster.
const THROUGH: &str = "through-the-sandbox";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daskautoscalers.kubernetes.dask.org";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WORKERS: &str =
    "/apis/apps/v1/namespaces/default/deployments?labelSelector=dask.org%2Fcomponent%3Dworker";
const GPU: &str = "/status/allocatable/nvidia.com~1gpu";
const POOL: &str = "/metadata/labels/cloud.google.com~1gke-nodepool";

/// GKE in front of the control plane; faster than life, and GKE takes seconds still.
pub fn sandbox_with_control_plane(plane: &ControlPlane) -> SandboxServer {
    let kubernetes = Some(plane.access().kubeconfig.clone());
    SandboxServer::with(Options { scale: FAST, kubernetes, ..Options::default() })
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The operator, once its definitions are there: as a pod it would be started after them, too. It works
/// through the sandbox, too: its watches and port-forwards go through the proxy.
pub fn operator_when_wanted(plane: &ControlPlane, sandbox: Sandbox) -> tokio::task::JoinHandle<Operator> {
    let (client, mut access) = (plane.client(), plane.access().clone());
    access.kubeconfig = plane.folder().join(THROUGH);
    tokio::spawn(async move {
        client.wait(CRD, "Dask's definitions", |crd| crd.to_string().contains("Established")).await;
        let kubeconfig = sandbox.kubeconfig(&sandbox.clusters()[0]).unwrap();
        std::fs::write(&access.kubeconfig, kubeconfig.to_string()).unwrap();
        Operator::start(&access).await
    })
}

fn run(user: &User, words: &[&str]) -> CommandOutput {
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

/// Objects that are deleted with a GKE cluster, and that no destroy deletes before it. The API server here outlives
/// the simulated cluster,
/// so they are still there.
const GOES_WITH_THE_CLUSTER: [&str; 9] = [
    "/api/v1/namespaces dask-operator",
    "/api/v1/serviceaccounts dask-kubernetes-operator",
    "/apis/apps/v1/deployments dask-kubernetes-operator",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles dask-kubernetes-operator-role-cluster",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings dask-kubernetes-operator-rolebinding-cluster",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions daskautoscalers.kubernetes.dask.org",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions daskclusters.kubernetes.dask.org",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions daskjobs.kubernetes.dask.org",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions daskworkergroups.kubernetes.dask.org",
];

/// Names of what this program has applied and is still there.
async fn applied_names(client: &Client) -> Vec<String> {
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
        DEFINITIONS,
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

/// Both protocols of kubectl's port-forward, WebSocket and SPDY, lead through the sandbox to the real scheduler.
async fn forwards(kubeconfig: &Path) {
    if !block_in_place(|| on_path("kubectl", "--help")) {
        return;
    }
    let http = crate::real::http_client().build().unwrap();
    for websockets in ["true", "false"] {
        let mut kubectl = Command::new("kubectl")
            .args(["port-forward", "service/rapids-dask-cluster-scheduler", ":8787"])
            .env("KUBECONFIG", kubeconfig)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        // Lives as long as kubectl, which has more to say.
        let mut said = BufReader::new(kubectl.stdout.take().unwrap());
        block_in_place(|| said.read_line(&mut line)).unwrap();
        // Forwarding from 127.0.0.1:40001 -> 8787
        let address = line.split_whitespace().nth(2).unwrap_or_default().to_owned();
        let answer = http.get(format!("http://{address}/health")).send().await;
        kubectl.kill().unwrap();
        kubectl.wait().unwrap();
        assert_eq!(answer.unwrap().status(), 200, "websockets {websockets}");
    }
}

/// `connect` leads through the sandbox, too: GKE is imitated there, the scheduler is not.
async fn connects(user: &User) {
    let (connecting, there) = ConnectProcess::start(user, &["connect", "--json"]);
    assert_eq!((text(&there, "/type"), there["simulated"] == true), ("connected", true), "{there}");
    let http = crate::real::http_client().build().unwrap();
    let health = text(&there, "/dashboard").replace("/status", "/health");
    assert_eq!(http.get(health).send().await.unwrap().status(), 200);
    assert!(!text(&there, "/versions/dask").is_empty(), "{there}");
    assert_eq!(connecting.interrupt(), 0);
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
            let all_new = is_new && images.len() == 1 && items(&list).len() == 3;
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
    let mut plane = ControlPlane::start().await;
    let mut dask = Dask::start().await;
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    let client = plane.client();
    let theirs = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "theirs" } });
    client.send(Method::POST, "/api/v1/namespaces", "application/json", &theirs).await;
    plane.add_node("theirs", json!({ "cloud.google.com/gke-nodepool": "default-pool" }), 0).await;
    let served = sandbox_with_control_plane(&plane);
    let user = User::with_ready_stack(Some(&served.gke));

    let operator = operator_when_wanted(&plane, served.sandbox.clone());
    run(&user, &["apply", "-v", "--auto-approve"])
        .expect(0)
        .says("14 added")
        .says("2 checks passed")
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

    forwards(&plane.folder().join(THROUGH)).await;
    connects(&user).await;

    // More workers than the pool has GPUs for, and the node that they need, in one plan.
    user.edit("replicas = 2", "replicas = 4");
    user.edit("nodes = 1                              #", "nodes = 2                              #");
    run(&user, &["plan"]).expect(0).says("Plan: 2 to change");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("2 changed");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0);
    assert_eq!(pools_of(&client, "worker").await, ["default-pool"; 4]);

    // And back: the operator asks the scheduler, through a port-forward, which workers may go.
    let list = client.get(WORKERS).await.1;
    let workers: Vec<&str> = items(&list).iter().map(|item| text(item, "/metadata/name")).collect();
    dask.add_workers(&workers).await;
    user.edit("replicas = 4", "replicas = 2");
    user.edit("nodes = 2 ", "nodes = 1 ");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("2 changed");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0);
    assert_eq!(items(&client.get(WORKERS).await.1).len(), 2);
    assert_eq!(dask.workers().await.len(), 2);

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
    assert_eq!(images.len(), 3, "the old one, none, the new one: {images:?}");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0);

    // One API server is one cluster.
    let second = json!({ "cluster": { "name": "second", "initialNodeCount": 1 } }).to_string();
    let clusters = "/v1/projects/demo/locations/us-central1-c/clusters";
    let refused = served.sandbox.gke_request("POST", clusters, "", second.as_bytes()).unwrap();
    assert_eq!(refused.code, 400, "{}", refused.body);
    assert!(refused.body.to_string().contains("rapids-gpu uses it"), "{}", refused.body);

    assert!(applied_names(&client).await.len() > 8, "what is ours can be told");
    // The plan names foreign objects first. Here they outlive the GKE cluster, as its API server does.
    run(&user, &["destroy", "--auto-approve"]).expect(3).says("delete:namespace.theirs");
    let words = ["destroy", "--auto-approve", "--allow", "delete:namespace.theirs"];
    run(&user, &words).expect(0).says("Destroy complete");
    run(&user, &["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
    let left = client.wait(NODES, "the pools' nodes are gone", |nodes| items(nodes).len() <= 1).await;
    assert_eq!(text(&left["items"][0], "/metadata/name"), "theirs", "a node of others stays");
    assert_eq!(applied_names(&client).await, GOES_WITH_THE_CLUSTER);
    assert_eq!(client.get("/api/v1/namespaces/theirs").await.0, 200, "what others made is there");
    assert!(!operator.tail().contains("Traceback"), "{}", operator.tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cuda_check_is_judged_by_its_end_and_its_log() {
    needs!(Part::CONTROL_PLANE);
    let mut plane = ControlPlane::start().await;
    let client = plane.client();
    let served = sandbox_with_control_plane(&plane);
    let user = User::with_ready_stack(Some(&served.gke));
    for (fate, said) in [
        (CudaCheck::Fails, "CUDA driver version is insufficient"),
        (CudaCheck::SaysNothing, "Test PASSED"),
        (CudaCheck::LosesItsLog, "log"),
        (CudaCheck::HasNoImage, "ImagePullBackOff"),
    ] {
        plane.restart_kwok(fate, &[]).await;
        run(&user, &["apply", "--auto-approve"]).expect(1).says("check.cuda").says(said);
        run(&user, &["plan"]).expect(0).says("2 checks to run");
        let clusters = client.get("/apis/kubernetes.dask.org/v1/daskclusters").await.1;
        assert_eq!(items(&clusters).len(), 0, "no worker before the check has passed: {clusters}");
    }
    run(&user, &["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
    client.wait(NODES, "the pools' nodes are gone", |nodes| items(nodes).is_empty()).await;
    assert_eq!(applied_names(&client).await, GOES_WITH_THE_CLUSTER);
}

#[test]
fn a_server_that_is_not_on_this_machine_is_refused() {
    let user = User::empty();
    let kubeconfig = json!({
        "current-context": "far", "contexts": [{ "name": "far", "context": { "cluster": "far", "user": "me" } }],
        "clusters": [{ "name": "far", "cluster": { "server": "https://192.0.2.7:6443" } }],
        "users": [{ "name": "me", "user": { "token": "secret" } }],
    });
    std::fs::write(user.path().join("far"), kubeconfig.to_string()).unwrap();
    let said = user.run(&["sandbox", "serve", "--kubernetes", "far"]).expect(1);
    said.says("the kubeconfig far cannot be used").says("https://192.0.2.7:6443 is not on this machine");
}
