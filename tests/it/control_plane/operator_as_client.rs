//! The real Dask operator as a client of the sandbox's own Kubernetes API, with the sandbox's imitation of it
//! switched off: what kopf and kr8s ask for is answered as they need it.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{Access, Client, Operator, PATIENCE, Part, ProcessGroup, needs};
use crate::sandbox_server::{CommandOutput, User};

const MERGE: &str = "application/merge-patch+json";
const DASK: &str = "/apis/kubernetes.dask.org/v1/namespaces/default";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn names(list: &Value) -> Vec<&str> {
    items(list).iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

/// The Deployments of a group's workers.
fn workers(group: &str) -> String {
    format!("{DEPLOYMENTS}?labelSelector=dask.org%2Fworkergroup-name%3D{group}")
}

/// Serves a sandbox as a user does, and says where its GKE is.
async fn serve(processes: &mut ProcessGroup) -> String {
    let folder = processes.folder().join("box");
    let place = folder.to_string_lossy().into_owned();
    let words = ["sandbox", "serve", "--real-operator", "--time-scale", "1200", "--dir", &place];
    processes.start("sandbox", &mut User::empty().command(&words));
    let begun = Instant::now();
    loop {
        let said = std::fs::read(folder.join("serve.json")).unwrap_or_default();
        if let Some(gke) = serde_json::from_slice::<Value>(&said).unwrap_or_default()["gke"].as_str() {
            return gke.to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "{}", processes.ended().unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The way into the cluster of the stack, as a user gets it.
fn access(user: &User, folder: &Path) -> Access {
    let place = folder.join("box").to_string_lossy().into_owned();
    let said = run(user, &["sandbox", "kubeconfig", "rapids-gpu", "--dir", &place]).expect(0);
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, said.out).unwrap();
    Access::read(kubeconfig)
}

async fn create(client: &Client, collection: &str, object: &Value) {
    let path = format!("{DASK}/{collection}");
    let (status, said) = client.send(Method::POST, &path, "application/json", object).await;
    assert_eq!(status, 201, "{said}");
}

fn pod_spec(name: &str, selector: Value) -> Value {
    json!({ "nodeSelector": selector, "containers": [{ "name": name, "image": "demo:1" }] })
}

fn cluster_spec(name: &str, replicas: u32, selector: &Value) -> Value {
    json!({
        "worker": { "replicas": replicas, "spec": pod_spec("worker", selector.clone()) },
        "scheduler": {
            "spec": pod_spec("scheduler", selector.clone()),
            "service": {
                "type": "ClusterIP",
                "selector": { "dask.org/cluster-name": name, "dask.org/component": "scheduler" },
                "ports": [{ "name": "tcp-comm", "protocol": "TCP", "port": 8786, "targetPort": "tcp-comm" }],
            },
        },
    })
}

fn dask(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kubernetes.dask.org/v1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// Checks the children of a cluster, and that the operator created them.
async fn children_of_the_stack(client: &Client) {
    let group = client.get(&format!("{DASK}/daskworkergroups/rapids-dask-cluster-default")).await.1;
    assert_eq!(group["spec"]["worker"]["replicas"], 2, "{group}");
    assert_eq!(group["metadata"]["ownerReferences"][0]["name"], "rapids-dask-cluster", "{group}");
    let list = client.get(&workers("rapids-dask-cluster-default")).await.1;
    assert_eq!(items(&list).len(), 2, "{list}");
    for deployment in items(&list) {
        assert_eq!(deployment["status"]["readyReplicas"], 1, "{deployment}");
        assert_eq!(deployment["metadata"]["ownerReferences"][0]["uid"], group["metadata"]["uid"]);
    }
    let service = client.get("/api/v1/namespaces/default/services/rapids-dask-cluster-scheduler").await;
    assert_eq!(service.0, 200, "{}", service.1);
    let cluster = client.get(&format!("{DASK}/daskclusters/rapids-dask-cluster")).await.1;
    let finalizers = json!(["kopf.zalando.org/KopfFinalizerMarker"]);
    assert_eq!(cluster["metadata"]["finalizers"], finalizers, "{cluster}");
}

/// A group of another cluster grows, before and after the operator has been started again.
async fn scale_up(client: &Client, access: &Access, operator: Operator) -> Operator {
    create(client, "daskclusters", &dask("DaskCluster", "demo", cluster_spec("demo", 1, &json!({})))).await;
    let count = |list: &Value, count: usize| {
        items(list).len() == count && items(list).iter().all(|item| item["status"]["readyReplicas"] == 1)
    };
    let path = workers("demo-default");
    client.wait(&path, "one worker", |list| count(list, 1)).await;
    let group = format!("{DASK}/daskworkergroups/demo-default");
    // As `kubectl scale` does it.
    let scale = |replicas: u32| json!({ "spec": { "replicas": replicas } });
    let (status, said) = client.send(Method::PATCH, &format!("{group}/scale"), MERGE, &scale(2)).await;
    assert_eq!(status, 200, "{said}");
    client.wait(&path, "two workers", |list| count(list, 2)).await;
    client.wait(&group, "the group is done", |group| handled_replicas(group) == json!(2)).await;

    drop(operator);
    let (status, said) = client.send(Method::PATCH, &format!("{group}/scale"), MERGE, &scale(3)).await;
    assert_eq!(status, 200, "{said}");
    let operator = Operator::start(access).await;
    client.wait(&path, "a third worker, asked for while nobody watched", |list| count(list, 3)).await;
    client.wait(&group, "the group is done", |group| handled_replicas(group) == json!(3)).await;
    operator
}

/// The number of workers that the operator has brought a group to.
fn handled_replicas(group: &Value) -> Value {
    let noted = &group["metadata"]["annotations"]["kopf.zalando.org/last-handled-configuration"];
    let noted: Value = serde_json::from_str(noted.as_str().unwrap_or_default()).unwrap_or_default();
    noted["spec"]["worker"]["replicas"].clone()
}

/// A job runs to its end, and takes its cluster away. Its status is a subresource.
async fn job(client: &Client) {
    let spec = json!({
        "cluster": { "spec": cluster_spec("work", 1, &json!({})) },
        "job": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "job", "image": "demo:1" }] } },
    });
    create(client, "daskjobs", &dask("DaskJob", "work", spec)).await;
    let path = format!("{DASK}/daskjobs/work");
    let job = client.wait(&path, "the job succeeds", |job| job["status"]["jobStatus"] == "Successful").await;
    assert_eq!(job["status"]["clusterName"], "work", "{job}");
    assert_eq!(job["status"]["jobRunnerPodName"], "work-runner", "{job}");
    client
        .wait(&format!("{DASK}/daskclusters"), "the job's cluster goes", |list| {
            !names(list).contains(&"work")
        })
        .await;
    client
        .wait(DEPLOYMENTS, "its children go", |list| {
            !names(list).iter().any(|name| name.starts_with("work-"))
        })
        .await;
    assert_eq!(client.delete(&path).await.0, 200);
    // A group that was not adopted before its cluster went has no owner, and stays.
    client.delete(&format!("{DASK}/daskworkergroups/work-default")).await;
    client.wait(PODS, "its pod goes", |list| !names(list).contains(&"work-runner")).await;
}

/// An autoscaler is adopted by its cluster and goes with it. The cluster's scheduler has no node, so nobody
/// asks it for a count: there is no process behind it.
async fn autoscaler(client: &Client) {
    let nowhere = json!({ "nowhere": "true" });
    create(client, "daskclusters", &dask("DaskCluster", "idle", cluster_spec("idle", 1, &nowhere))).await;
    client.wait(&workers("idle-default"), "its worker", |list| items(list).len() == 1).await;
    let spec = json!({ "cluster": "idle", "minimum": 1, "maximum": 4 });
    create(client, "daskautoscalers", &dask("DaskAutoscaler", "idle", spec)).await;
    let path = format!("{DASK}/daskautoscalers/idle");
    let adopted = |scaler: &Value| {
        scaler["metadata"]["ownerReferences"][0]["name"] == "idle"
            && scaler["metadata"]["finalizers"].is_array()
    };
    client.wait(&path, "the autoscaler is adopted", adopted).await;
    for cluster in ["idle", "demo"] {
        assert_eq!(client.delete(&format!("{DASK}/daskclusters/{cluster}")).await.0, 200);
    }
    client
        .wait(&format!("{DASK}/daskautoscalers"), "deleted with its cluster", |list| items(list).is_empty())
        .await;
    let of_the_stack = |name: &&str| name.starts_with("rapids-");
    client.wait(DEPLOYMENTS, "all children go", |list| names(list).iter().all(&of_the_stack)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_operator_works_in_the_sandbox() {
    needs!(&[Part::Operator]);
    let mut processes = ProcessGroup::new();
    let gke = serve(&mut processes).await;
    let user = User::with_ready_stack(Some(&gke));
    let stack = user.path().join("stack.toml");
    let whole = std::fs::read_to_string(&stack).unwrap();
    let at = whole.find("[dask_cluster").unwrap();
    // `check.cudf` is a client of the Dask cluster.
    let (until, cudf) = (whole.find("[check").unwrap(), whole.find("[check.cudf]").unwrap());

    // The operator's definitions come first, then it, then its work.
    std::fs::write(&stack, format!("{}{}", &whole[..at], &whole[until..cudf])).unwrap();
    run(&user, &["apply", "--auto-approve"]).expect(0).says("13 added");
    let access = access(&user, processes.folder());
    let client = Client::new(&access);
    let operator = Operator::start(&access).await;
    std::fs::write(&stack, &whole).unwrap();
    run(&user, &["apply", "--auto-approve"]).expect(0).says("1 added");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    children_of_the_stack(&client).await;

    user.edit("replicas = 2", "replicas = 4");
    user.edit("nodes = 1                              #", "nodes = 2                              #");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("2 changed");
    assert_eq!(items(&client.get(&workers("rapids-dask-cluster-default")).await.1).len(), 4);
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    let operator = scale_up(&client, &access, operator).await;
    job(&client).await;
    autoscaler(&client).await;
    // A job that is over at once takes its cluster from under the operator's feet: that is said, and no more.
    let log = operator.log();
    let wrong = |line: &&str| line.contains("[ERROR") && !line.contains("[default/work");
    assert_eq!(log.lines().filter(wrong).collect::<Vec<_>>(), [""; 0], "{log}");
    run(&user, &["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
}
