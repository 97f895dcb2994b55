//! How long a stack of many Kubernetes objects takes, and how much of it is ours: see README.md beside this file.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used
)]

#[path = "../tests/it/control_plane/many_objects.rs"]
mod many_objects;
#[path = "../tests/it/real/mod.rs"]
mod real;
#[path = "../tests/it/sandbox_server.rs"]
mod sandbox_server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use many_objects::{ResourceUse, objects, run, stack};
use real::{Access, ControlPlane, Part};
use serde_json::{Value, json};

/// Requests under way at once, as many as dask-infra has.
const WIDE: usize = 64;
/// Short commands are measured so often, and the shortest time counts.
const BEST_OF: usize = 3;
/// The kinds that are listed to read everything.
const KINDS: [&str; 5] = [
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/services",
    "/api/v1/serviceaccounts",
    "/apis/apps/v1/deployments",
];

fn path(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (prefix, plural) = match text("/kind") {
        "Namespace" => return format!("/api/v1/namespaces/{}", text("/metadata/name")),
        "ConfigMap" => ("/api/v1", "configmaps"),
        "Service" => ("/api/v1", "services"),
        "ServiceAccount" => ("/api/v1", "serviceaccounts"),
        _ => ("/apis/apps/v1", "deployments"),
    };
    format!("{prefix}/namespaces/{}/{plural}/{}", text("/metadata/namespace"), text("/metadata/name"))
}

/// The least that anybody can do: requests, side by side, and nothing else.
struct Floor {
    server: String,
    token: String,
    client: reqwest::Client,
}

impl Floor {
    fn new(access: &Access) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let roots = reqwest::Certificate::from_pem_bundle(access.ca_pem.as_bytes()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only(roots).no_proxy().build().unwrap();
        Self { server: access.server.clone(), token: access.token.clone(), client }
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: Option<&Value>) -> Vec<u8> {
        let mut request =
            self.client.request(method, format!("{}{path}", self.server)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.header("content-type", "application/apply-patch+yaml").body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let (status, url) = (answer.status(), answer.url().clone());
        let body = answer.bytes().await.unwrap();
        assert!(status.is_success(), "{url}: {status} {}", String::from_utf8_lossy(&body));
        body.to_vec()
    }

    async fn apply(&self, objects: &[Value]) {
        let (namespaces, rest): (Vec<&Value>, Vec<&Value>) =
            objects.iter().partition(|object| object["kind"] == "Namespace");
        for some in [namespaces, rest] {
            let sent = some.into_iter().map(|object| async move {
                let path = format!("{}?fieldManager=floor&force=true", path(object));
                self.send(reqwest::Method::PATCH, &path, Some(object)).await;
            });
            futures::stream::iter(sent).buffer_unordered(WIDE).collect::<Vec<()>>().await;
        }
    }

    /// Until every Deployment was seen by its controller.
    async fn settle(&self) {
        loop {
            let list: Value =
                serde_json::from_slice(&self.send(reqwest::Method::GET, KINDS[4], None).await).unwrap();
            let is_seen =
                |item: &Value| item["status"]["observedGeneration"] == item["metadata"]["generation"];
            if list["items"].as_array().unwrap().iter().all(is_seen) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Everything, as values: what nobody has decoded nobody can compare.
    async fn list(&self) -> Vec<Value> {
        let lists = KINDS.map(|path| async move {
            let body = self.send(reqwest::Method::GET, path, None).await;
            serde_json::from_slice::<Value>(&body).unwrap()
        });
        futures::future::join_all(lists).await
    }
}

fn row(what: &str, time: Duration, beside: Option<(&str, Duration)>, took: Option<&ResourceUse>) {
    let ratio = beside.map_or_else(String::new, |(name, other)| {
        format!("{:.2} x {name} ({:.2} s)", time.as_secs_f64() / other.as_secs_f64(), other.as_secs_f64())
    });
    let more = took.map_or_else(String::new, |took| format!("{:.2} s CPU, {} MiB", took.cpu, took.resident));
    println!("{what:<34} {:>8.2} s   {ratio:<46} {more}", time.as_secs_f64());
}

fn offline(program: &Path, counts: &[usize]) {
    for count in counts {
        let folder = tempfile::tempdir().unwrap();
        stack(folder.path(), &objects(*count), None);
        let runs = (0..BEST_OF).map(|_| run(program, &["plan", "--offline"], folder.path(), &[0]));
        let best = runs.min_by_key(|took| took.time).unwrap();
        row(&format!("{count}: plan --offline"), best.time, None, Some(&best));
    }
}

async fn live(program: &Path, count: usize) {
    let all = objects(count);
    let floor_plane = ControlPlane::start().await;
    let floor = Floor::new(floor_plane.access());
    let began = Instant::now();
    floor.apply(&all).await;
    let applied = began.elapsed();
    floor.settle().await;
    let settled = began.elapsed();
    let mut listed = Duration::MAX;
    for _ in 0..BEST_OF {
        let began = Instant::now();
        let everything = floor.list().await;
        listed = listed.min(began.elapsed());
        let items = everything.iter().filter_map(|list| list["items"].as_array());
        assert!(items.map(Vec::len).sum::<usize>() >= count);
    }
    row(&format!("{count}: bare applies"), applied, None, None);
    drop((floor, floor_plane));

    let plane = ControlPlane::start().await;
    let folder = tempfile::tempdir().unwrap();
    stack(folder.path(), &all, Some(&plane.access().kubeconfig));
    let run = |words: &[&str]| tokio::task::block_in_place(|| run(program, words, folder.path(), &[0]));
    let apply = run(&["apply", "--auto-approve"]);
    row(&format!("{count}: apply"), apply.time, Some(("bare applies, settled", settled)), Some(&apply));
    let plans = (0..BEST_OF).map(|_| run(&["plan", "--detailed-exitcode"]));
    let plan = plans.min_by_key(|took| took.time).unwrap();
    row(&format!("{count}: plan without changes"), plan.time, Some(("bare LISTs", listed)), Some(&plan));
    let destroy = run(&["destroy", "--auto-approve"]);
    row(&format!("{count}: destroy"), destroy.time, None, Some(&destroy));
}

/// Another tool that is installed, on the same objects. `None` where it is not there.
async fn kubectl(count: usize) -> Option<()> {
    let kubectl = PathBuf::from("kubectl");
    let there =
        Command::new(&kubectl).args(["version", "--client"]).output().is_ok_and(|out| out.status.success());
    if !there {
        println!("{count}: kubectl is not on the PATH");
        return None;
    }
    let plane = ControlPlane::start().await;
    let folder = tempfile::tempdir().unwrap();
    stack(folder.path(), &objects(count), Some(&plane.access().kubeconfig));
    let kubeconfig = format!("--kubeconfig={}", plane.access().kubeconfig.display());
    let run = |words: &[&str]| tokio::task::block_in_place(|| run(&kubectl, words, folder.path(), &[0]));
    let began = Instant::now();
    let apply = run(&[&kubeconfig, "apply", "--server-side", "-f", "all.yaml"]);
    Floor::new(plane.access()).settle().await;
    row(&format!("{count}: kubectl apply --server-side"), began.elapsed(), None, Some(&apply));
    let again = run(&[&kubeconfig, "diff", "--server-side", "-f", "all.yaml"]);
    row(&format!("{count}: kubectl diff"), again.time, None, Some(&again));
    Some(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let counts: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let counts = if counts.is_empty() { vec![1_000] } else { counts };
    let asked = |what: &str| words.iter().any(|word| word == what);
    let program = PathBuf::from(env!("CARGO_BIN_EXE_dask-infra"));
    offline(&program, &[100, 1_000, 10_000]);
    if asked("offline") {
        return;
    }
    if !real::can_run("benches::objects", Part::CONTROL_PLANE) {
        println!("no control plane: tests/real/build makes one");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for count in counts {
            live(&program, count).await;
            if asked("kubectl") {
                kubectl(count).await;
            }
        }
    });
}
