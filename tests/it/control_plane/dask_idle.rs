//! A cluster that the real operator deletes for want of work: it asks the real scheduler.

use serde_json::Value;

use crate::control_plane::dask::{Deployments, pods};
use crate::real::{DaskFixture, Part, needs};

const CLUSTERS: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters";
const DASK: &str = r#"
[dask_cluster.d]
image = "demo:1"
idle_timeout = 20
worker = { replicas = 1, cpu = "100m" }

[dask_cluster.d.group.big]
replicas = 1
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: ttl_idle_stop::a_cluster_without_work_goes_with_its_nodes_and_stays_gone_until_it_is_started runs on every change"]
async fn a_cluster_that_went_for_want_of_work_stays_away_until_it_is_asked_for() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator]);
    let fixture = DaskFixture::start(0).await;
    fixture.add(DASK);
    fixture.run(&["apply", "--auto-approve"]).expect(0).says("2 added");
    let none = |list: &Value| list["items"].as_array().is_some_and(Vec::is_empty);
    fixture.client.wait(CLUSTERS, "the operator deletes it", none).await;
    let begun = std::time::Instant::now();
    while pods(&fixture.client).await != Deployments::new() {
        assert!(begun.elapsed() < crate::real::PATIENCE, "its Deployments stay");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }

    let (code, plan) = fixture.plan();
    assert_eq!(code, 0, "{plan}");
    for words in ["DI0363", "and the operator deletes it", "`--replace dask_cluster.d`", "No changes"] {
        assert!(plan.contains(words), "no {words:?} in: {plan}");
    }
    fixture.run(&["apply", "--auto-approve"]).expect(0);
    assert!(none(&fixture.client.get(CLUSTERS).await.1), "an apply does not make it again");

    // A changed section does, with its group.
    fixture.user.edit("idle_timeout = 20", "idle_timeout = 86400");
    let (_, plan) = fixture.plan();
    assert!(plan.contains("Plan: 2 to add"), "{plan}");
    fixture.run(&["apply", "--auto-approve"]).expect(0).says("2 added");
    fixture.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    fixture
        .run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"])
        .expect(0)
        .says("Destroy complete");
    assert_eq!(pods(&fixture.client).await, Deployments::new());
}
