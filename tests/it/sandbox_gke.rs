//! The sandbox's GKE, from outside: published exchanges replayed, and the real gcloud where it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use dask_infra::sandbox::serve::Server;
use dask_infra::sandbox::{Options, Scale};
use tokio::sync::oneshot;

/// What the recorded exchanges must score at least; see `published_exchanges_come_back`.
const LEAST_SCORE: f64 = 0.98;

/// A served sandbox on its own thread; it ends with this value.
struct Served {
    gke: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    fn start(time_scale: f64) -> Self {
        let options = Options { scale: Scale { time_scale }, ..Options::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let server = Server::bind(options, 0).await.expect("bind");
                ready.send(server.address()).expect("the test listens");
                server.run(async { stopped.await.unwrap_or(()) }).await.expect("serve");
            });
        });
        let gke = format!("http://{}", address.recv().expect("ready"));
        Self { gke, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn on_path(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The folder of facts beside the project, where a developer's machine has one.
fn facts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared")
}

/// Replays every recorded exchange and counts the leaves that come back as recorded.
#[test]
fn published_exchanges_come_back() {
    let (script, logs) = (facts().join("tools/replay_gke.py"), facts().join("facts/gke-exchanges"));
    if !script.exists() || !logs.exists() || !on_path("python3") {
        println!("skipped: no recorded exchanges beside the project, or no python3");
        return;
    }
    let served = Served::start(20_000.0);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(logs).expect("logs").map(|entry| entry.expect("log").path()).collect();
    files.sort();
    let output = Command::new("python3")
        .arg(script)
        .arg(&served.gke)
        .args(files)
        .arg("--show=400")
        .output()
        .expect("python3");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().unwrap_or_default();
    let score: f64 = last
        .split(" = ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .expect("a score in the last line");
    assert!(score >= LEAST_SCORE, "{last}");
}

/// gcloud with a configuration of its own, pointed at a sandbox by its environment only.
struct Gcloud {
    home: tempfile::TempDir,
    gke: String,
}

impl Gcloud {
    fn new(gke: &str) -> Self {
        Self { home: tempfile::tempdir().expect("a folder"), gke: gke.to_owned() }
    }

    fn run(&self, words: &str) -> (bool, String) {
        let root = format!("{}/", self.gke);
        let output = Command::new("gcloud")
            .args(words.split_whitespace())
            .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", &root)
            .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICEUSAGE", &root)
            .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", format!("{root}compute/v1/"))
            .env("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true")
            .env("CLOUDSDK_CORE_PROJECT", "demo")
            .env("CLOUDSDK_CONFIG", self.home.path())
            .env("CLOUDSDK_CORE_DISABLE_PROMPTS", "1")
            .env("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true")
            .env("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true")
            .env("KUBECONFIG", self.kubeconfig())
            .output()
            .expect("gcloud runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    /// Runs a command that must end well, and gives what it printed.
    fn well(&self, words: &str) -> String {
        let (well, text) = self.run(words);
        assert!(well, "gcloud {words}\n{text}");
        text
    }
}

/// The commands of the guides, by the real client.
#[test]
fn gcloud_makes_and_changes_clusters() {
    if !on_path("gcloud") {
        println!("skipped: gcloud is not on the PATH");
        return;
    }
    // Fast enough for the first poll to find an operation done; gcloud waits five seconds otherwise.
    let served = Served::start(20_000.0);
    let gcloud = Gcloud::new(&served.gke);
    let zone = "--zone us-central1-c";
    let cluster = format!("--cluster c {zone}");
    gcloud.well(&format!(
        "container clusters create c {zone} --release-channel stable --num-nodes 1 \
         --machine-type a2-highgpu-2g --accelerator type=nvidia-tesla-a100,count=2"
    ));
    let list = gcloud.well("container clusters list --format=value(name,location,status,currentNodeCount)");
    assert!(list.contains("c\tus-central1-c\tRUNNING\t1"), "{list}");
    gcloud.well(&format!(
        "container node-pools create t4 {cluster} --num-nodes 1 --machine-type n1-standard-2 \
         --accelerator type=nvidia-tesla-t4,count=1 --node-labels dedicated=scheduler"
    ));
    let (refused, text) = gcloud
        .run(&format!("container node-pools update t4 {cluster} --accelerator type=nvidia-tesla-t4,count=2"));
    assert!(!refused && text.contains("Accelerator count: 2 should not be updated."), "{text}");
    gcloud.well(&format!("container node-pools update t4 {cluster} --node-labels a=b"));
    gcloud.well(&format!("container node-pools update t4 {cluster} --enable-autoscaling --max-nodes 3"));
    gcloud.well(&format!("container clusters resize c {zone} --node-pool t4 --num-nodes 2"));
    let pool = gcloud.well(&format!(
        "container node-pools describe t4 {cluster} --format=value(status,config.labels,autoscaling.maxNodeCount)"
    ));
    assert!(pool.contains("RUNNING") && pool.contains("a=b") && pool.trim().ends_with('3'), "{pool}");
    gcloud.well(&format!("container clusters update c {zone} --update-labels team=x"));
    let described = gcloud.well(&format!(
        "container clusters describe c {zone} --format=value(resourceLabels,currentNodeCount)"
    ));
    assert!(described.contains("team=x") && described.contains('3'), "{described}");
    gcloud.well(&format!("container clusters get-credentials c {zone}"));
    let kubeconfig = std::fs::read_to_string(gcloud.kubeconfig()).expect("a kubeconfig");
    assert!(kubeconfig.contains("https://127.0.0.1:") && kubeconfig.contains("certificate-authority-data"));
    let operations =
        gcloud.well(&format!("container operations list {zone} --format=value(operationType,status)"));
    assert!(operations.contains("SET_NODE_POOL_SIZE\tDONE"), "{operations}");
    gcloud.well(&format!("container get-server-config {zone}"));
    gcloud.well(&format!("container node-pools delete t4 {cluster}"));
    let pools = gcloud.well(&format!("container node-pools list {cluster} --format=value(name)"));
    assert!(pools.contains("default-pool") && !pools.contains("t4"), "{pools}");
    gcloud.well(&format!("container clusters delete c {zone}"));
    let list = gcloud.well("container clusters list --format=value(name)");
    assert!(!list.contains("us-central1"), "{list}");
}
