//! Turns in a queue, with the real Kueue and the real Dask operator: jobs that run, end and fail, what is lent, what is more
//! urgent, and what others do to queues and to gangs. The table of `docs/queues.md` is what is held against it.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::control_plane::queue_table::{PageCases, one_line, state};
use crate::real::{Client, DaskFixture, Kueue, PATIENCE, Part, needs};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator, Part::Kueue];
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const QUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research";
const LOCAL_QUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues/research";
const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MERGE: &str = "application/merge-patch+json";

/// Four GPUs, which `guests` may borrow.
const QUEUES: &str = r#"
[kueue]
manage = false

[queue.research]
gpus = 4
cohort = "lab"
priorities = { high = 1000 }
namespaces = ["default"]

[queue.guests]
gpus = 0
cohort = "lab"
namespaces = ["default"]
"#;

fn gang(name: &str, queue: &str, workers: u32, more: &str) -> String {
    format!(
        "\n[dask_cluster.{name}]\nimage = \"demo:1\"\nqueue = \"{queue}\"\n{more}scheduler = {{ cpu = \"100m\" }}\n\
         worker = {{ replicas = {workers}, gpus = 1, cpu = \"100m\" }}\n"
    )
}

/// A job of two pods that end as `end` says.
fn job(name: &str, end: &str) -> String {
    format!(
        "\n[job.{name}]\nimage = \"demo:1\"\nqueue = \"research\"\ngpus = 1\ncpu = \"100m\"\nparallelism = 2\n\
         annotations = {{ \"example.org/end\" = \"{end}\" }}\n"
    )
}

struct Lab {
    fixture: DaskFixture,
    kueue: Kueue,
    base: String,
    told: PageCases,
}

impl Lab {
    async fn start() -> Lab {
        let fixture = DaskFixture::start(4).await;
        let kueue = Kueue::start(fixture.plane.access()).await;
        fixture.add(QUEUES);
        let base = fixture.user.stack();
        Lab { fixture, kueue, base, told: PageCases::of(include_str!("queue_turns.rs")) }
    }

    fn client(&self) -> &Client {
        &self.fixture.client
    }

    fn run(&self, words: &[&str]) -> (i32, String) {
        let said = self.fixture.run(words);
        (said.code, one_line(&format!("{} {}", said.out, said.err)))
    }

    /// Applies the queues with these sections.
    fn apply(&mut self, sections: &[&str], more: &[&str], code: i32) {
        let text = format!("{}{}", self.base, sections.concat());
        self.fixture.user.write(text);
        let (got, said) = self.run(&[&["apply", "--auto-approve"], more].concat());
        if got != code {
            self.told.wrong(format!("apply {more:?} ends with {got}, not with {code}: {said}"));
        }
    }

    async fn patch(&self, path: &str, patch: &Value) {
        let (status, said) = self.client().send(Method::PATCH, path, MERGE, patch).await;
        assert_eq!(status, 200, "{path}: {said}");
    }

    /// The Workload of a gang, or of a job.
    async fn workload(&self, name: &str) -> Value {
        let all = self.client().get(WORKLOADS).await.1;
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let named = |one: &Value| {
            let found = one["metadata"]["name"].as_str().unwrap();
            found == name || found.starts_with(&format!("job-{name}-"))
        };
        all.into_iter().find(named).map_or(Value::Null, |mut found| {
            found["kind"] = json!("Workload");
            found
        })
    }

    /// Waits until the Workload of something has these words in its state or in what Kueue says of it.
    async fn wait_for_state(&mut self, name: &str, words: &str) {
        let begun = Instant::now();
        loop {
            let found = self.workload(name).await;
            if state(&found).contains(words) || found["status"].to_string().contains(words) {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let (state, status) = (state(&found), &found["status"]);
                return self.told.wrong(format!("{name}: no {words:?} in {state}: {status}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until Kueue says of a gang that its queue is inactive. It says so of what it looks at, and may have looked before its
    /// cache knew that somebody stopped the queue.
    async fn wait_for_inactive(&mut self, name: &str, since: &str) {
        let look = json!({ "metadata": { "annotations": { "looked-since": since } } });
        self.patch(&format!("{WORKLOADS}/{name}"), &look).await;
        self.wait_for_state(name, "inactive").await;
    }

    /// Pods of a Dask cluster or of a job.
    async fn pods(&self, label: &str) -> Vec<Value> {
        let list = self.client().get(&format!("{PODS}?labelSelector={label}")).await.1;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until a Dask cluster has so many pods, so many of them held back.
    async fn has_pods(&mut self, name: &str, expect: (usize, usize)) {
        let begun = Instant::now();
        loop {
            let pods = self.pods(&format!("dask.org%2Fcluster-name%3D{name}")).await;
            let held = pods.iter().filter(|pod| pod["status"]["phase"] != "Running").count();
            if (pods.len(), held) == expect {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let said = format!("{name}: {} pods, {held} held, not {expect:?}", pods.len());
                return self.told.wrong(said);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn case(&mut self, case: &str, address: &str) {
        let name = address.split_once('.').unwrap().1;
        let begun = Instant::now();
        loop {
            let is = state(&self.workload(name).await);
            let late = begun.elapsed() > PATIENCE;
            if self.told.has_state(case, &is) || late {
                let read = [is, self.run(&["status", address]).1, self.run(&["why", address]).1];
                if self.told.agrees(case, &read) || late {
                    return self.told.case(case, &read);
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_a_queue_takes_its_turn() {
    needs!(PARTS);
    let begun = Instant::now();
    let mut lab = Lab::start().await;
    println!("{:?}: all is up", begun.elapsed());

    // A job is started, resumed and completed; another one fails.
    let good = job("good", "later");
    lab.apply(&[&good], &[], 0);
    lab.wait_for_state("good", "Admitted").await;
    lab.case("job-runs", "job.good").await;
    for pod in lab.pods("batch.kubernetes.io%2Fjob-name%3Dgood").await {
        let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
        lab.patch(&path, &json!({ "metadata": { "annotations": { "example.org/end": null } } })).await;
    }
    lab.wait_for_state("good", "Finished").await;
    lab.case("job-succeeded", "job.good").await;
    let bad = job("bad", "failed");
    lab.apply(&[&good, &bad], &[], 0);
    lab.wait_for_state("bad", "Finished").await;
    lab.case("job-failed", "job.bad").await;
    let events = lab.client().get("/api/v1/namespaces/default/events").await.1.to_string();
    for reason in ["Suspended", "CreatedWorkload", "Started", "Resumed", "SuccessfulCreate", "Completed"] {
        assert!(events.contains(&format!("\"reason\":\"{reason}\"")), "no event {reason} of the guide");
    }

    // Guests borrow three of four GPUs, so there is no room for those who lend them.
    let guest = gang("guest", "guests", 3, "");
    lab.apply(&[&guest], &["--allow", "delete:job.good", "--allow", "delete:job.bad"], 0);
    lab.has_pods("guest", (4, 0)).await;
    lab.case("gang-borrows", "dask_cluster.guest").await;
    let calm = gang("calm", "research", 3, "");
    lab.apply(&[&guest, &calm], &["--wait", "1s"], 7);
    lab.wait_for_state("calm", "insufficient").await;
    lab.case("gang-behind-what-is-lent", "dask_cluster.calm").await;

    // A higher priority comes before an earlier one.
    let urgent = gang("urgent", "research", 2, "priority = \"high\"\n");
    lab.apply(&[&guest, &calm, &urgent], &["--wait", "1s"], 7);
    lab.wait_for_state("urgent", "insufficient").await;
    lab.case("gang-behind-one-more-urgent", "dask_cluster.calm").await;
    lab.case("gang-first-in-its-queue", "dask_cluster.urgent").await;

    // Somebody holds the queue: nothing starts, though there is room.
    lab.patch(QUEUE, &json!({ "spec": { "stopPolicy": "Hold" } })).await;
    let guests = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/guest";
    lab.client().delete(guests).await;
    lab.client().wait_gone(guests, "the guest").await;
    lab.has_pods("guest", (0, 0)).await;
    lab.wait_for_inactive("urgent", "held").await;
    lab.case("queue-held", "dask_cluster.urgent").await;
    lab.patch(QUEUE, &json!({ "spec": { "stopPolicy": "None" } })).await;
    lab.has_pods("urgent", (3, 0)).await;
    lab.case("gang-urgent-started", "dask_cluster.urgent").await;
    assert_eq!(lab.pods("dask.org%2Fcluster-name%3Dcalm").await.len(), 4);
    lab.has_pods("calm", (4, 4)).await;

    // Somebody drains the queue, and lets it go on.
    lab.patch(QUEUE, &json!({ "spec": { "stopPolicy": "HoldAndDrain" } })).await;
    lab.has_pods("urgent", (3, 3)).await;
    lab.wait_for_state("urgent", "QuotaReserved=False").await;
    lab.wait_for_inactive("urgent", "drained").await;
    lab.case("gang-drained", "dask_cluster.urgent").await;
    // Whoever is asked first starts when it goes on, so the other one is parked for so long.
    lab.wait_for_inactive("calm", "drained").await;
    lab.patch(&format!("{WORKLOADS}/calm"), &json!({ "spec": { "active": false } })).await;
    lab.wait_for_state("calm", "Evicted").await;
    lab.case("gang-parked-while-it-waits", "dask_cluster.calm").await;
    lab.patch(QUEUE, &json!({ "spec": { "stopPolicy": "None" } })).await;
    lab.has_pods("urgent", (3, 0)).await;
    lab.patch(&format!("{WORKLOADS}/calm"), &json!({ "spec": { "active": true } })).await;
    lab.wait_for_state("calm", "insufficient").await;

    // Parked, the next one has its GPUs; let go, it waits for its turn again.
    lab.patch(&format!("{WORKLOADS}/urgent"), &json!({ "spec": { "active": false } })).await;
    lab.has_pods("calm", (4, 0)).await;
    lab.wait_for_state("urgent", "QuotaReserved=False").await;
    lab.case("gang-parked", "dask_cluster.urgent").await;
    lab.patch(&format!("{WORKLOADS}/urgent"), &json!({ "spec": { "active": true } })).await;
    lab.wait_for_state("urgent", "insufficient").await;
    lab.case("gang-let-go", "dask_cluster.urgent").await;

    // Others lower the quota below what it needs, and delete its queue; an apply brings both back.
    let quota = |gpus: &str| json!({ "op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/GPU/nominalQuota", "value": gpus });
    let spec = lab.client().get(QUEUE).await.1;
    let resources = spec["spec"]["resourceGroups"][0]["flavors"][0]["resources"].as_array().unwrap().clone();
    let at = resources.iter().position(|one| one["name"] == "nvidia.com/gpu").unwrap();
    let mut patch = quota("1");
    patch["path"] = json!(patch["path"].as_str().unwrap().replace("GPU", &at.to_string()));
    let json_patch = "application/json-patch+json";
    let (status, said) = lab.client().send(Method::PATCH, QUEUE, json_patch, &json!([patch])).await;
    assert_eq!(status, 200, "{said}");
    lab.wait_for_state("urgent", "maximum capacity").await;
    lab.case("gang-can-never-start", "dask_cluster.urgent").await;
    lab.client().delete(LOCAL_QUEUE).await;
    lab.client().wait_gone(LOCAL_QUEUE, "the LocalQueue").await;
    lab.wait_for_state("urgent", "doesn't exist").await;
    lab.case("local-queue-deleted", "dask_cluster.urgent").await;
    lab.apply(&[&calm, &urgent], &["--wait", "1s"], 7);
    lab.wait_for_state("urgent", "insufficient unused quota").await;

    // A quota of the namespace lets two pods of four be made: seven are there.
    let limit = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "pods", "namespace": "default" },
        "spec": { "hard": { "pods": "9" } },
    });
    let (status, said) = lab.client().send(Method::POST, QUOTAS, "application/json", &limit).await;
    assert_eq!(status, 201, "{said}");
    lab.client()
        .wait(&format!("{QUOTAS}/pods"), "the quota counts", |found| found["status"]["used"]["pods"] == "7")
        .await;
    let cut = gang("cut", "research", 3, "");
    lab.apply(&[&calm, &urgent, &cut], &["--wait", "1s"], 7);
    lab.has_pods("cut", (2, 2)).await;
    lab.case("gang-incomplete", "dask_cluster.cut").await;
    lab.client().delete(&format!("{QUOTAS}/pods")).await;

    // Somebody takes a worker from a gang that runs: its quota stays.
    let workers = "dask.org%2Fcluster-name%3Dcalm%2Cdask.org%2Fcomponent%3Dworker";
    let found = lab.client().get(&format!("{DEPLOYMENTS}?labelSelector={workers}")).await.1;
    let worker = found["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    lab.client().delete(&format!("{DEPLOYMENTS}/{worker}")).await;
    lab.wait_for_state("calm", "WaitingForReplacementPods").await;
    lab.case("gang-lacks-a-worker", "dask_cluster.calm").await;

    // A queue in which others' work runs does not go in silence.
    let foreign = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "foreign", "namespace": "default", "labels": { "kueue.x-k8s.io/queue-name": "research" } },
        "spec": { "template": { "metadata": { "annotations": { "example.org/end": "later" } }, "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "demo:1", "resources": { "requests": { "cpu": "1m" } } }],
        } } },
    });
    lab.patch(&format!("{WORKLOADS}/urgent"), &json!({ "spec": { "active": false } })).await;
    let gone = ["delete:dask_cluster.urgent", "delete:dask_cluster.cut"].map(|one| ["--allow", one]).concat();
    lab.apply(&[&calm], &gone, 0);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let (status, said) = lab.client().send(Method::POST, jobs, "application/json", &foreign).await;
    assert_eq!(status, 201, "{said}");
    lab.wait_for_state("foreign", "Admitted").await;
    let destroy = ["destroy", "--auto-approve", "--target", "queue.research"];
    let (code, said) = lab.run(&destroy);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("DI0383") && said.contains("foreign"), "{said}");

    lab.kueue.lives();
    println!("{:?}: done", begun.elapsed());
    lab.told.end();
}
