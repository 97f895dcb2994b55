//! A notebook's user with the real `KubeCluster` beside a stack, on a real control plane with the real operator: whose the
//! number of workers is.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use serde_json::Value;

use crate::real::{DaskFixture, Part, needs};

const DASK: &str = r#"
[dask_cluster.d]
image = "demo:1"
worker = { replicas = { start = 1 }, cpu = "100m" }

[dask_cluster.d.group.big]
replicas = 1
cpu = "100m"
"#;
const GROUP: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups/d-default";
const AUTOSCALER: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskautoscalers/d";

fn deployments(group: &str) -> String {
    format!(
        "/apis/apps/v1/namespaces/default/deployments?labelSelector=dask.org%2Fworkergroup-name%3D{group}"
    )
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs the code of a user's notebook.
fn notebook(fixture: &DaskFixture, does: &str) {
    let script = format!(
        "import os\nfrom dask_kubernetes.operator import KubeCluster\n\
         cluster = KubeCluster.from_name('d', namespace='default', port_forward_cluster_ip=True, quiet=True)\n\
         {does}\nprint('done', flush=True)\nos._exit(0)\n"
    );
    let said = fixture.dask.notebook(&fixture.plane.access().kubeconfig, &script);
    assert!(said.contains("done"), "{said}");
}

async fn workers(fixture: &DaskFixture, group: &str, count: usize, what: &str) -> Vec<String> {
    let is = |list: &Value| names(list).len() == count;
    names(&fixture.client.wait(&deployments(group), what, is).await)
}

/// A nightly apply: nothing to do, and nothing done.
async fn nightly(fixture: &DaskFixture, number: u64) {
    let (code, plan) = fixture.plan();
    assert_eq!(code, 0, "{plan}");
    fixture.run(&["apply", "--auto-approve"]).expect(0).says("No changes");
    assert_eq!(fixture.client.get(GROUP).await.1["spec"]["worker"]["replicas"], number);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: dask::edits_of_groups_and_numbers_do_what_the_plan_says runs on every change"]
async fn a_user_who_was_given_the_number_keeps_it() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator]);
    let mut fixture = DaskFixture::start(0).await;
    fixture.add(DASK);
    fixture.run(&["apply", "--auto-approve"]).expect(0).says("2 added");
    nightly(&fixture, 1).await;

    notebook(&fixture, "cluster.scale(3)");
    let all = workers(&fixture, "d-default", 3, "KubeCluster.scale(3)").await;
    nightly(&fixture, 3).await;
    fixture.user.edit("[dask_cluster.d]\n", "[dask_cluster.d]\nlabels = { team = \"a\" }\n");
    fixture.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    assert_eq!(workers(&fixture, "d-default", 3, "another edit").await, all);

    // The operator asks the scheduler how many it wants (none: there is no task), and lets those go that it names.
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    fixture.dask.add_workers(&all).await;
    notebook(&fixture, "cluster.adapt(minimum=2, maximum=4)");
    workers(&fixture, "d-default", 2, "KubeCluster.adapt asks the scheduler, which wants fewer").await;
    workers(&fixture, "d-big", 1, "the other group").await;
    nightly(&fixture, 2).await;
    assert_eq!(fixture.client.get(AUTOSCALER).await.0, 200, "an apply leaves the user's autoscaler alone");
    notebook(&fixture, "cluster.adapt(minimum=3, maximum=4)");
    workers(&fixture, "d-default", 3, "the least number of the autoscaler").await;
    nightly(&fixture, 3).await;

    // The file takes the number: the user's autoscaler is a second writer, and the plan says so.
    fixture.user.edit("{ start = 1 }", "3");
    let (_, plan) = fixture.plan();
    assert!(plan.contains("DI0362"), "{plan}");
    // `scale` deletes it, as it always does.
    notebook(&fixture, "cluster.scale(4)");
    fixture.client.wait_gone(AUTOSCALER, "KubeCluster.scale deletes the autoscaler").await;
    let all = workers(&fixture, "d-default", 4, "KubeCluster.scale(4)").await;
    let known = fixture.dask.workers().await;
    let new: Vec<&str> = all.iter().filter(|name| !known.contains(name)).map(String::as_str).collect();
    fixture.dask.add_workers(&new).await;
    let (_, plan) = fixture.plan();
    assert!(plan.contains("spec.worker.replicas") && plan.contains("-> 3"), "{plan}");
    fixture.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    workers(&fixture, "d-default", 3, "the file's number").await;
    fixture.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // With the number the file's, a scaled group is drift: named with its writer, and taken back.
    notebook(&fixture, "cluster.scale(4)");
    let all = workers(&fixture, "d-default", 4, "KubeCluster.scale(4), again").await;
    let known = fixture.dask.workers().await;
    let new: Vec<&str> = all.iter().filter(|name| !known.contains(name)).map(String::as_str).collect();
    fixture.dask.add_workers(&new).await;
    let (code, plan) = fixture.plan();
    assert_eq!(code, 2, "{plan}");
    for words in [
        "spec.worker.replicas: 4 -> 3",
        "of DaskWorkerGroup default/d-default, which decides",
        "changed by kr8s",
    ] {
        assert!(plan.contains(words), "no {words:?} in: {plan}");
    }
    fixture.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    workers(&fixture, "d-default", 3, "the file's number, again").await;
    workers(&fixture, "d-big", 1, "the other group").await;
    fixture.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    fixture
        .run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"])
        .expect(0)
        .says("Destroy complete");
}
