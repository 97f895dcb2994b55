//! Work in queues for queued nodes, with the real Kueue, the real Dask operator and a real control plane; the sandbox is GKE
//! and its cluster autoscaler. Gangs of eight GPU workers and a Job go through the states of Kueue. The table of
//! `docs/queues.md` is what is held against them: in each case the state of the Workload, and what `status` and `why` say.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use reqwest::Method;
use sandbox::kube::run::Scripts;
use sandbox::{Options, Scale};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::control_plane::queue_table::{PageCases, one_line, state};
use crate::real::{Client, ControlPlane, CudaCheck, Dask, Kueue, Operator, PATIENCE, Part, needs};
use crate::sandbox_server::{SandboxServer, User};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator, Part::Kueue];
const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes?labelSelector=cloud.google.com%2Fgke-nodepool%3Da100";
const MERGE: &str = "application/merge-patch+json";

const BASE: &str = r#"[stack]
name = "s"

[gke]
project = "demo"
location = "us-central1-c"

[cluster]
name = "c"

[node_pool.system]
machine_type = "e2-standard-16"

[node_pool.a100]
machine_type = "a2-highgpu-1g"
nodes = { min = 0, max = 8 }
queued = true
reservation = "none"
location_policy = "any"
auto_repair = false

[dask_operator]
version = "2026.3.0"
"#;

const QUEUE: &str = r#"
[kueue]
manage = false

[queue.research]
pool = "a100"
retries = 1
"#;

const JOB: &str = r#"
[job.train]
image = "demo:1"
args = ["train.py"]
gpus = 1
cpu = "100m"
pool = "a100"
parallelism = 2
queue = "research"
"#;

fn gang(name: &str) -> String {
    format!(
        "\n[dask_cluster.{name}]\nimage = \"demo:1\"\nqueue = \"research\"\nscheduler = {{ cpu = \"100m\", pool = \"system\" }}\n\
         worker = {{ replicas = 8, gpus = 1, cpu = \"100m\", pool = \"a100\" }}\n"
    )
}

struct Lab {
    _plane: ControlPlane,
    client: Client,
    _dask: Dask,
    _operator: Operator,
    served: SandboxServer,
    kueue: Kueue,
    user: User,
    told: PageCases,
}

impl Lab {
    async fn start() -> Lab {
        let mut plane = ControlPlane::start().await;
        let dask = Dask::start().await;
        plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
        // Ten minutes of the machine's clock are two days of these nodes, which last for seven.
        let scripts = Scripts { no_capacity: true, ..Scripts::default() };
        let (scale, kubernetes) = (Scale { time_scale: 300.0 }, Some(plane.access().kubeconfig.clone()));
        let served = SandboxServer::with(Options { scale, scripts, kubernetes, ..Options::default() });
        let (client, user) = (plane.client(), User::empty_at(&served.gke));
        user.write(BASE);
        block_in_place(|| user.run(&["apply", "--auto-approve"])).expect(0);
        let operator = Operator::start(plane.access()).await;
        let kueue = Kueue::start(plane.access()).await;
        user.write(format!("{BASE}{QUEUE}"));
        block_in_place(|| user.run(&["apply", "--auto-approve"])).expect(0);
        let told = PageCases::of(include_str!("queued_nodes.rs"));
        let lab = Lab { _plane: plane, client, _dask: dask, _operator: operator, served, kueue, user, told };
        // How long Kueue waits until it tries again, from when the first one had its quota. On a machine that does other things, two
        // gangs are there and are looked at in ten times the ten seconds that it takes here.
        let strategy = json!({ "spec": { "retryStrategy": { "backoffBaseSeconds": 100 } } });
        let configs = lab.client.get(&format!("{KUEUE}/provisioningrequestconfigs")).await.1;
        let config = configs["items"][0]["metadata"]["name"].as_str().unwrap();
        lab.patch(&format!("{KUEUE}/provisioningrequestconfigs/{config}"), &strategy).await;
        lab
    }

    async fn patch(&self, path: &str, patch: &Value) {
        let (status, said) = self.client.send(Method::PATCH, path, MERGE, patch).await;
        assert_eq!(status, 200, "{path}: {said}");
    }

    fn says(&self, sections: &str) {
        self.user.write(format!("{BASE}{QUEUE}{sections}"));
    }

    fn run(&self, words: &[&str]) -> (i32, String) {
        let said = block_in_place(|| self.user.run(words));
        (said.code, one_line(&format!("{} {}", said.out, said.err)))
    }

    #[track_caller]
    fn apply(&self, more: &[&str], code: i32) -> String {
        let (got, said) = self.run(&[&["apply", "--auto-approve"], more].concat());
        assert_eq!(got, code, "{more:?}: {said}");
        said
    }

    /// The Workload of a gang, or of the Job.
    async fn workload(&self, name: &str) -> Value {
        let all = self.client.get(WORKLOADS).await.1;
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

    /// Waits until what a Workload is like has these words.
    async fn wait_for_state(&self, name: &str, words: &str) {
        let begun = Instant::now();
        loop {
            let found = self.workload(name).await;
            if state(&found).contains(words) || found["status"].to_string().contains(words) {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{name}: no {words:?} in {}: {}",
                state(&found),
                found["status"]
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The name of the request that somebody's Workload has now.
    async fn request(&self, name: &str) -> String {
        let begun = Instant::now();
        loop {
            let owner = self.workload(name).await["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let all = self.client.get(REQUESTS).await.1;
            let all = all["items"].as_array().cloned().unwrap_or_default();
            let mut mine = all.iter().filter(|one| {
                let is_accepted = one["status"].to_string().contains("SuccessfullyQueued");
                one["metadata"]["ownerReferences"][0]["name"] == *owner && is_accepted
            });
            if let Some(last) = mine.rfind(|one| !one["status"].to_string().contains("\"Failed\"")) {
                return last["metadata"]["name"].as_str().unwrap().to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "{name} has no request that is accepted: {all:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Says what becomes of somebody's request.
    async fn capacity(&self, name: &str, what: &str) {
        let request = self.request(name).await;
        let patch = json!({ "metadata": { "annotations": { "sandbox.dask-infra.dev/capacity": what } } });
        self.patch(&format!("{REQUESTS}/{request}"), &patch).await;
    }

    /// Pods of a Dask cluster: how many, and how many of them are held back.
    async fn pods(&self, name: &str) -> (usize, usize) {
        let path = format!("{PODS}?labelSelector=dask.org%2Fcluster-name%3D{name}");
        let list = self.client.get(&path).await.1;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let held = |pod: &&Value| pod["status"]["phase"] != "Running";
        (pods.len(), pods.iter().filter(held).count())
    }

    async fn has_pods(&self, name: &str, expect: (usize, usize)) {
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

    async fn nodes(&self) -> usize {
        self.client.get(NODES).await.1["items"].as_array().map_or(0, Vec::len)
    }

    async fn has_nodes(&self, expect: usize) {
        let begun = Instant::now();
        while self.nodes().await != expect {
            assert!(begun.elapsed() < PATIENCE, "{} nodes in place of {expect}", self.nodes().await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Holds a row of the page against what is.
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
async fn gangs_and_jobs_go_through_the_states_of_kueue() {
    needs!(PARTS);
    let begun = Instant::now();
    let mut lab = Lab::start().await;
    let (one, two, job) = ("dask_cluster.one", "dask_cluster.two", "job.train");
    println!("{:?}: all is up", begun.elapsed());

    // Its quota is there, and its nodes are not.
    lab.says(&gang("one"));
    lab.apply(&["--wait", "2s"], 7);
    lab.wait_for_state("one", "check Pending").await;
    lab.case("gang-waits-for-nodes", one).await;
    assert_eq!(lab.pods("one").await, (9, 9));

    // Another one comes to the same queue.
    lab.says(&format!("{}{}", gang("one"), gang("two")));
    lab.apply(&["--wait", "1s"], 7);
    lab.wait_for_state("two", "QuotaReserved=False").await;
    lab.case("gang-competes", two).await;

    // A request that fails is asked for once more.
    lab.capacity("one", "failed").await;
    lab.wait_for_state("one", "check Retry").await;
    lab.case("gang-request-failed", one).await;

    // Kueue sends the first one to the end of the queue, and the second one has its quota.
    lab.wait_for_state("two", "check Pending").await;
    lab.wait_for_state("one", "QuotaReserved=False").await;
    lab.case("gang-evicted-and-requeued", one).await;
    lab.says(&format!("{}{}{JOB}", gang("one"), gang("two")));
    lab.apply(&["--wait", "1s"], 7);
    lab.case("job-in-queue", job).await;
    lab.capacity("two", "quota").await;
    lab.wait_for_state("two", "NVIDIA_A100_GPUS").await;
    lab.case("gang-project-quota", two).await;
    assert_eq!(lab.nodes().await, 0);
    lab.capacity("two", "there").await;
    lab.has_pods("two", (9, 0)).await;
    lab.case("gang-admitted", two).await;
    assert_eq!(lab.nodes().await, 8);

    // A worker dies, and the ten minutes of its request pass: nothing changes.
    let path = format!("{PODS}?labelSelector=dask.org%2Fcluster-name%3Dtwo%2Cdask.org%2Fcomponent%3Dworker");
    let dies = lab.client.get(&path).await.1["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    lab.client.delete(&format!("{PODS}/{dies}")).await;
    lab.client.wait_gone(&format!("{PODS}/{dies}"), "the worker that died").await;
    lab.has_pods("two", (9, 0)).await;
    lab.case("gang-worker-replaced", two).await;
    lab.served.sandbox.advance(SignedDuration::from_secs(610)).unwrap();
    let expired = |list: &Value| list.to_string().contains("BookingExpired");
    lab.client.wait(REQUESTS, "the booking expires", expired).await;
    lab.case("gang-booking-expired", two).await;
    assert_eq!((lab.pods("two").await, lab.nodes().await), ((9, 0), 8));

    // Seven days are over: the nodes go, and the gang stops whole.
    lab.served.sandbox.advance(SignedDuration::from_secs(1500)).unwrap();
    lab.wait_for_state("two", "active: false").await;
    lab.has_pods("two", (9, 9)).await;
    lab.has_nodes(0).await;
    lab.wait_for_state("two", "QuotaReserved=False").await;
    lab.case("gang-revoked", two).await;

    lab.kueue.lives();
    println!("{:?}: done", begun.elapsed());
    lab.told.end();
}
