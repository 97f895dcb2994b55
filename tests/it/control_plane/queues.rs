//! Gangs on a real control plane with the real Kueue and the real Dask operator: what waits, starts whole, is parked, can never
//! start, and goes with nothing left; and what `apply`, `status` and `why` say of each.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::control_plane::queue_table::one_line;
use crate::real::{Client, DaskFixture, Kueue, PATIENCE, Part, needs};

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";
const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator, Part::Kueue];

const QUEUE: &str = "\n[kueue]\nmanage = false\n\n[queue.research]\ngpus = 4\n";

fn cluster(name: &str, workers: u32) -> String {
    format!(
        "\n[dask_cluster.{name}]\nimage = \"demo:1\"\nqueue = \"research\"\nscheduler = {{ cpu = \"100m\" }}\n\
         worker = {{ replicas = {workers}, gpus = 1, cpu = \"100m\" }}\n"
    )
}

struct Lab {
    fixture: DaskFixture,
    kueue: Kueue,
    base: String,
}

impl Lab {
    /// Four GPUs, and a queue that hands them out.
    async fn start() -> Lab {
        let fixture = DaskFixture::start(4).await;
        let kueue = Kueue::start(fixture.plane.access()).await;
        fixture.add(QUEUE);
        let base = fixture.user.stack();
        Lab { fixture, kueue, base }
    }

    fn client(&self) -> &Client {
        &self.fixture.client
    }

    /// The stack with these Dask clusters, and nothing else of that kind.
    fn says(&self, clusters: &[(&str, u32)]) {
        let clusters: String = clusters.iter().map(|(name, workers)| cluster(name, *workers)).collect();
        self.fixture.user.write(format!("{}{clusters}", self.base));
    }

    /// An apply that waits no longer than this for its turn: its exit code, and what it says as one line.
    fn apply(&self, wait: &str, allow: &[&str]) -> (i32, String) {
        let mut words = vec!["apply", "--auto-approve", "--wait", wait];
        words.extend(allow.iter().flat_map(|consent| ["--allow", consent]));
        self.run(&words)
    }

    fn run(&self, words: &[&str]) -> (i32, String) {
        let said = self.fixture.run(words);
        (said.code, one_line(&format!("{} {}", said.out, said.err)))
    }

    /// Returns the output of `status` and `why` for a Dask cluster.
    fn status_and_why(&self, name: &str) -> String {
        let address = format!("dask_cluster.{name}");
        format!("{} {}", self.run(&["status", &address]).1, self.run(&["why", &address]).1)
    }

    /// Pods of a Dask cluster: how many, and how many of them are held back.
    async fn pods(&self, name: &str) -> (usize, usize) {
        let path = format!("{PODS}?labelSelector=dask.org%2Fcluster-name%3D{name}");
        let (_, list) = self.client().get(&path).await;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let gated =
            |pod: &&Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
        (pods.len(), pods.iter().filter(gated).count())
    }

    /// Waits until a Dask cluster has so many pods, so many of them held back.
    async fn wait_for_pods(&self, name: &str, expect: (usize, usize)) {
        let begun = Instant::now();
        loop {
            let found = self.pods(name).await;
            if found == expect {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{name}: {found:?} in place of {expect:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn active(&self, name: &str, is: bool) {
        let patch = json!({ "spec": { "active": is } });
        let (status, said) =
            self.client().send(Method::PATCH, &format!("{WORKLOADS}/{name}"), MERGE, &patch).await;
        assert_eq!(status, 200, "{said}");
    }

    fn plans_nothing(&self) {
        let (code, said) = self.fixture.plan();
        assert_eq!(code, 0, "{said}");
    }
}

fn holds(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gangs_wait_start_and_go_as_the_real_kueue_has_it() {
    needs!(PARTS);
    let mut lab = Lab::start().await;

    // Admitted: all pods start together.
    lab.says(&[("one", 3)]);
    let (code, said) = lab.apply("5m", &[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(lab.pods("one").await, (4, 0));
    let (_, workload) = lab.client().get(&format!("{WORKLOADS}/one")).await;
    let sets = workload["spec"]["podSets"].as_array().unwrap();
    let sets: Vec<(&str, u64)> =
        sets.iter().map(|set| (set["name"].as_str().unwrap(), set["count"].as_u64().unwrap())).collect();
    assert_eq!(sets, [("scheduler", 1), ("worker", 3)]);
    lab.plans_nothing();

    // Not enough quota: it waits whole, the apply ends with "queued" and leaves no lock.
    lab.says(&[("one", 3), ("two", 2)]);
    let (code, said) = lab.apply("10s", &[]);
    assert_eq!(code, 7, "{said}");
    holds(&said, &["waits in queue research", "insufficient unused quota for nvidia.com/gpu"]);
    assert_eq!(lab.pods("two").await, (3, 3));
    holds(&lab.status_and_why("two"), &["waits in queue research", "1 more needed", "(since 20"]);
    let (code, said) = lab.apply("5s", &[]);
    assert_eq!(code, 7, "again, with nothing in the way: {said}");

    // Room comes: it starts without anybody, and the next apply finds nothing to do.
    lab.active("one", false).await;
    lab.wait_for_pods("two", (3, 0)).await;
    holds(&lab.status_and_why("one"), &["it is parked", "kubectl -n default patch workload one"]);
    lab.says(&[("two", 2)]);
    let (code, said) = lab.apply("5m", &["delete:dask_cluster.one"]);
    assert_eq!(code, 0, "{said}");
    lab.client().wait_gone(&format!("{WORKLOADS}/one"), "its Workload and its quota go with it").await;
    lab.plans_nothing();

    // Grown: another gang, with consent.
    lab.says(&[("two", 4)]);
    let (code, said) = lab.apply("5m", &[]);
    assert_eq!(code, 3, "{said}");
    let (code, said) = lab.apply("5m", &["replace:dask_cluster.two"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(lab.pods("two").await, (5, 0));
    let (code, said) = lab.run(&["scale", "dask_cluster.two", "3", "--auto-approve"]);
    assert_eq!(code, 1, "{said}");

    // Never: refused before anything is asked for.
    lab.says(&[("two", 4), ("three", 5)]);
    let (code, said) = lab.apply("5s", &[]);
    assert_eq!(code, 1, "{said}");
    holds(&said, &["DI0321"]);

    // A worker dies: another takes its place in the same reservation.
    lab.says(&[("two", 4)]);
    let path = format!("{PODS}?labelSelector=dask.org%2Fcluster-name%3Dtwo%2Cdask.org%2Fcomponent%3Dworker");
    let (_, list) = lab.client().get(&path).await;
    let dies = list["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    lab.client().delete(&format!("{PODS}/{dies}")).await;
    lab.client().wait_gone(&format!("{PODS}/{dies}"), "the worker that died").await;
    lab.wait_for_pods("two", (5, 0)).await;
    lab.plans_nothing();

    // A quota that shrinks takes nothing away.
    let path = lab.fixture.user.path().join("stack.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("gpus = 4\n", "gpus = 8\n")).unwrap();
    let (code, said) = lab.apply("5m", &[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(lab.pods("two").await, (5, 0));

    // Everything goes, and nothing of Kueue's is left.
    let (code, said) = lab.run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"]);
    assert_eq!(code, 0, "{said}");
    for path in [
        WORKLOADS,
        "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
        "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
        PODS,
    ] {
        let (_, left) = lab.client().get(path).await;
        assert_eq!(left["items"], json!([]), "{path}");
    }
    lab.kueue.lives();
}
