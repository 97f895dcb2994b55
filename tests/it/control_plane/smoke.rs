//! That reality itself works: what later tests against it take for granted.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::real::{Client, ControlPlane, CudaCheck, Dask, Operator, Part, ProcessGroup, alive, needs};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DASK: &str = "/apis/kubernetes.dask.org/v1/namespaces/default";

/// A pod that wants a GPU.
fn gpu_pod(name: &str, container: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "restartPolicy": "Never", "containers": [{
            "name": container, "image": "demo", "resources": { "limits": { "nvidia.com/gpu": "1" } },
        }] },
    })
}

fn dask_cluster(name: &str) -> Value {
    let selector = json!({ "dask.org/cluster-name": name, "dask.org/component": "scheduler" });
    let container = |role: &str, gpus: &str| {
        json!({
            "name": role, "image": "demo", "args": ["dask", role],
            // Their names, not numbers: the CRD takes only strings as target ports.
            "ports": [{ "name": "tcp-comm", "containerPort": 8786 }, { "name": "http-dashboard", "containerPort": 8787 }],
            "resources": { "limits": { "nvidia.com/gpu": gpus } },
        })
    };
    json!({
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": { "name": name },
        "spec": {
            "worker": { "replicas": 2, "spec": { "containers": [container("worker", "1")] } },
            "scheduler": {
                "spec": { "containers": [container("scheduler", "1")] },
                "service": { "type": "ClusterIP", "selector": selector, "ports": [
                    { "name": "tcp-comm", "protocol": "TCP", "port": 8786, "targetPort": "tcp-comm" },
                    { "name": "http-dashboard", "protocol": "TCP", "port": 8787, "targetPort": "http-dashboard" },
                ] },
            },
        },
    })
}

async fn install_dask_crds(client: &Client) {
    for crd in model::schema::dask_crds() {
        let path = format!("{CRDS}/{}", crd["metadata"]["name"].as_str().unwrap());
        let (status, said) = client.apply(&path, "test", crd).await;
        assert_eq!(status, 201, "{said}");
        client.wait(&path, "a CRD is established", |crd| has_condition(crd, "Established")).await;
    }
}

fn has_condition(object: &Value, wanted: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == wanted && one["status"] == "True"))
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

async fn create_pod(client: &Client, pod: &Value) {
    let (status, said) = client.send(Method::POST, PODS, "application/json", pod).await;
    assert_eq!(status, 201, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: main_job::the_ready_stack_lives_and_goes_on_a_real_control_plane runs on every change"]
async fn pods_are_scheduled_by_gpus_and_a_check_ends_with_its_log() {
    needs!(Part::CONTROL_PLANE);
    let mut plane = ControlPlane::start().await;
    let client = plane.client();
    plane.add_node("node-0", json!({ "cloud.google.com/gke-nodepool": "a100" }), 1).await;
    client.wait("/api/v1/nodes/node-0", "the node is Ready", |node| has_condition(node, "Ready")).await;

    create_pod(&client, &gpu_pod("first", "anything")).await;
    let first = format!("{PODS}/first");
    client
        .wait(&first, "the pod runs", |pod| {
            pod["status"]["phase"] == "Running" && has_condition(pod, "Ready")
        })
        .await;
    create_pod(&client, &gpu_pod("check", "cuda-vectoradd")).await;
    let check = format!("{PODS}/check");
    client
        .wait(&check, "no second GPU is given away", |pod| {
            pod["status"]["conditions"][0]["reason"] == "Unschedulable"
        })
        .await;
    client.delete(&first).await;
    client.wait(&check, "the check ends", |pod| pod["status"]["phase"] == "Succeeded").await;
    let (status, log) = client.get(&format!("{check}/log")).await;
    assert_eq!(status, 200, "{log}");
    assert!(log.as_str().unwrap().contains("Test PASSED"), "{log}");

    for fate in [CudaCheck::Fails, CudaCheck::SaysNothing, CudaCheck::LosesItsLog, CudaCheck::HasNoImage] {
        client.delete(&check).await;
        client.wait(PODS, "the last check is gone", |pods| names(pods).is_empty()).await;
        plane.restart_kwok(fate, &[]).await;
        create_pod(&client, &gpu_pod("check", "cuda-vectoradd")).await;
        let pod = client
            .wait(&check, "the check has its fate", |pod| pod["status"]["containerStatuses"].is_array())
            .await;
        let state = &pod["status"]["containerStatuses"][0]["state"];
        let log = client.get(&format!("{check}/log")).await;
        match fate {
            CudaCheck::Fails => assert_eq!(state["terminated"]["exitCode"], 1),
            CudaCheck::HasNoImage => assert_eq!(state["waiting"]["reason"], "ImagePullBackOff"),
            _ => assert_eq!(pod["status"]["phase"], "Succeeded"),
        }
        let readable = fate != CudaCheck::LosesItsLog;
        assert_eq!(log.0 == 200, readable, "{fate:?}: {}", log.1);
        assert!(!log.1.to_string().contains("Test PASSED"), "{fate:?}: {}", log.1);
    }
}

/// The walk over all stable groups that the server itself names: none is left out of `schemas/`.
#[tokio::test(flavor = "multi_thread")]
async fn every_stable_kind_of_the_release_is_known() {
    needs!(Part::CONTROL_PLANE);
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let (_, groups) = client.get("/apis").await;
    let mut paths = vec!["/api/v1".to_owned()];
    for version in
        groups["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap())
    {
        let name = version["version"].as_str().unwrap();
        if name.strip_prefix('v').is_some_and(|number| number.chars().all(|c| c.is_ascii_digit())) {
            paths.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut missing = Vec::new();
    for path in &paths {
        let (_, list) = client.get(path).await;
        let (group, version) = list["groupVersion"].as_str().unwrap().rsplit_once('/').unwrap_or(("", "v1"));
        let plain = |resource: &&Value| !resource["name"].as_str().unwrap().contains('/');
        for resource in list["resources"].as_array().unwrap().iter().filter(plain) {
            let kind = resource["kind"].as_str().unwrap();
            let known = model::schema::api(group, version, kind);
            let same = known.is_some_and(|known| {
                known.plural == resource["name"].as_str().unwrap()
                    && resource["namespaced"] == known.namespaced
            });
            if !same || model::schema::builtin(group, version, kind).is_none() {
                missing.push(format!("{group}/{version} {kind}"));
            }
        }
    }
    assert!(paths.len() > 15, "{paths:?}");
    assert_eq!(missing, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: main_job::the_ready_stack_lives_and_goes_on_a_real_control_plane runs on every change"]
async fn the_operator_makes_the_children_and_nothing_stays_behind() {
    needs!(PARTS);
    let begun = Instant::now();
    let plane = ControlPlane::start().await;
    let client = plane.client();
    install_dask_crds(&client).await;
    plane.add_node("node-0", json!({}), 2).await;
    plane.add_node("node-1", json!({}), 2).await;
    let operator = Operator::start(plane.access()).await;

    let (status, said) =
        client.apply(&format!("{DASK}/daskclusters/demo"), "test", &dask_cluster("demo")).await;
    assert_eq!(status, 201, "{said}");
    let ready = |deployment: &Value| deployment["status"]["readyReplicas"] == 1;
    client
        .wait(DEPLOYMENTS, "scheduler and two workers are ready", |list| {
            list["items"].as_array().unwrap().iter().filter(|item| ready(item)).count() == 3
        })
        .await;
    let groups = client.get(&format!("{DASK}/daskworkergroups")).await.1;
    assert_eq!(names(&groups), ["demo-default"]);
    let pods = client.get(PODS).await.1;
    let bound =
        pods["items"].as_array().unwrap().iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    assert_eq!(bound, 3);
    let all_ready = begun.elapsed();

    client.delete(&format!("{DASK}/daskclusters/demo")).await;
    client.wait(PODS, "the pods are gone", |pods| names(pods).is_empty()).await;
    let (groups, folder) = ([plane.group(), operator.group()], plane.folder().to_owned());
    let took = (plane.started_in, operator.started_in, all_ready, begun.elapsed());
    drop((plane, operator));
    assert_eq!(groups.map(alive), [const { Vec::<String>::new() }; 2]);
    assert!(!folder.exists());
    let (plane, operator, all_ready, all) = took;
    println!(
        "control plane {plane:.1?}, operator {operator:.1?}, cluster ready {all_ready:.1?}, all {all:.1?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: scale::a_number_changes_and_nobody_elses_workers_go runs on every change"]
async fn the_operator_scales_down_through_a_real_scheduler() {
    needs!(PARTS);
    let mut plane = ControlPlane::start().await;
    let client = plane.client();
    install_dask_crds(&client).await;
    plane.add_node("node-0", json!({}), 4).await;
    let mut dask = Dask::start().await;
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    let operator = Operator::start(plane.access()).await;
    let cluster = format!("{DASK}/daskclusters/demo");
    let (status, said) = client.apply(&cluster, "test", &dask_cluster("demo")).await;
    assert_eq!(status, 201, "{said}");
    let ready = |list: &Value, count: usize| {
        let items = list["items"].as_array().unwrap();
        items.len() == count && items.iter().all(|item| item["status"]["readyReplicas"] == 1)
    };
    let workers = format!("{DEPLOYMENTS}?labelSelector=dask.org/component=worker");
    let list = client.wait(&workers, "two workers are ready", |list| ready(list, 2)).await;
    dask.add_workers(&names(&list)).await;

    let mut smaller = dask_cluster("demo");
    smaller["spec"]["worker"]["replicas"] = json!(1);
    let begun = Instant::now();
    let (status, said) = client.apply(&cluster, "test", &smaller).await;
    assert_eq!(status, 200, "{said}");
    let list = client.wait(&workers, "one worker is left", |list| ready(list, 1)).await;
    println!("one worker less in {:.1?}", begun.elapsed());
    assert!(!operator.tail().contains("Traceback"), "{}", operator.tail());
    assert_eq!(dask.workers().await, names(&list));
}

/// Plays two parts: the one that is killed says which group it has started and waits for its end.
#[test]
fn a_killed_runner_leaves_nothing_behind() {
    const VICTIM: &str = "DASK_INFRA_TEST_VICTIM";
    if env::var_os(VICTIM).is_some() {
        let mut processes = ProcessGroup::new();
        processes.start("shell", Command::new("sh").args(["-c", "sleep 1000 & sleep 1000"]));
        println!("\nvictim {} {}", processes.group(), processes.folder().display());
        thread::sleep(Duration::from_secs(1000));
        return;
    }
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "control_plane::smoke::a_killed_runner_leaves_nothing_behind", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = said.into_iter().find(|line| line.starts_with("victim ")).unwrap();
    let (group, folder) = line["victim ".len()..].split_once(' ').unwrap();
    let (group, folder) = (group.parse().unwrap(), Path::new(folder));
    let begun = Instant::now();
    let patient = || {
        thread::sleep(Duration::from_millis(20));
        begun.elapsed() < Duration::from_secs(30)
    };
    while alive(group).len() < 4 && patient() {}
    assert_eq!(alive(group).len(), 4, "a leader, a shell, two sleepers: {:?}", alive(group));
    victim.kill().unwrap();
    victim.wait().unwrap();
    while (!alive(group).is_empty() || folder.exists()) && patient() {}
    assert_eq!(alive(group), [""; 0]);
    assert!(!folder.exists());
}
