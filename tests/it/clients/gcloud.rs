//! The real gcloud against the sandbox, where it is installed: the commands of the guides, and walks over what it
//! lists, describes and changes. It must never crash on what the sandbox says.

mod fork_server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::sandbox::recorded_gke::fast;
use crate::sandbox_server::{SandboxServer, on_path};

/// How many gclouds run at a time.
pub const WORKERS: usize = 3;

/// gcloud with a configuration of its own, pointed at a sandbox by its environment only.
pub struct Gcloud {
    home: tempfile::TempDir,
    gke: String,
    project: String,
}

impl Gcloud {
    /// `gke` is `http://HOST:PORT`.
    pub fn new(gke: &str, project: &str) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        Self { home, gke: gke.to_owned(), project: project.to_owned() }
    }

    /// The exit code, and all that was printed. It is a fork of a preloaded gcloud where there can be one.
    pub fn run(&self, words: &str) -> (i32, String) {
        let all: Vec<&str> = words.split_whitespace().collect();
        fork_server::run(&all, &self.environment()).unwrap_or_else(|| self.run_alone(words))
    }

    /// Runs a command as a process of its own.
    pub fn run_alone(&self, words: &str) -> (i32, String) {
        let mut command = Command::new("gcloud");
        command.args(words.split_whitespace()).envs(self.environment());
        let output = command.output().expect("gcloud runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    fn environment(&self) -> [(&'static str, String); 10] {
        let root = format!("{}/", self.gke);
        [
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", root.clone()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICEUSAGE", root.clone()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", format!("{root}compute/v1/")),
            ("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true".into()),
            ("CLOUDSDK_CORE_PROJECT", self.project.clone()),
            ("CLOUDSDK_CONFIG", self.home.path().display().to_string()),
            ("CLOUDSDK_CORE_DISABLE_PROMPTS", "1".into()),
            ("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true".into()),
            ("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true".into()),
            ("KUBECONFIG", self.kubeconfig().display().to_string()),
        ]
    }

    /// Its own folder, which goes with it.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    /// Runs a command that must end well, and gives what it printed.
    fn run_ok(&self, words: &str) -> String {
        let (code, text) = self.run(words);
        assert_eq!(code, 0, "gcloud {words}\n{text}");
        text
    }
}

/// The commands of the guides, by the real client.
#[test]
fn gcloud_makes_and_changes_clusters() {
    if !on_path("gcloud", "--version") {
        return;
    }
    // gcloud waits five seconds when its first poll finds an operation running.
    let served = SandboxServer::with(fast());
    let gcloud = Gcloud::new(&served.gke, "demo");
    let zone = "--zone us-central1-c";
    let cluster = format!("--cluster c {zone}");
    gcloud.run_ok(&format!(
        "container clusters create c {zone} --release-channel stable --num-nodes 1 \
         --machine-type a2-highgpu-2g --accelerator type=nvidia-tesla-a100,count=2"
    ));
    let list = gcloud.run_ok("container clusters list --format=value(name,location,status,currentNodeCount)");
    assert!(list.contains("c\tus-central1-c\tRUNNING\t1"), "{list}");
    gcloud.run_ok(&format!(
        "container node-pools create t4 {cluster} --num-nodes 1 --machine-type n1-standard-2 \
         --accelerator type=nvidia-tesla-t4,count=1 --node-labels dedicated=scheduler"
    ));
    let (refused, text) = gcloud
        .run(&format!("container node-pools update t4 {cluster} --accelerator type=nvidia-tesla-t4,count=2"));
    assert!(refused == 1 && text.contains("Accelerator count: 2 should not be updated."), "{text}");
    gcloud.run_ok(&format!("container node-pools update t4 {cluster} --node-labels a=b"));
    gcloud.run_ok(&format!(
        "container node-pools update t4 {cluster} --enable-autoscaling --min-nodes 2 --max-nodes 3"
    ));
    gcloud.run_ok(&format!("container clusters resize c {zone} --node-pool t4 --num-nodes 2"));
    let pool = gcloud.run_ok(&format!(
        "container node-pools describe t4 {cluster} --format=value(status,config.labels,autoscaling.maxNodeCount)"
    ));
    assert!(pool.contains("RUNNING") && pool.contains("a=b") && pool.trim().ends_with('3'), "{pool}");
    gcloud.run_ok(&format!("container clusters update c {zone} --update-labels team=x"));
    let described = gcloud.run_ok(&format!(
        "container clusters describe c {zone} --format=value(resourceLabels,currentNodeCount)"
    ));
    assert!(described.contains("team=x") && described.contains('3'), "{described}");
    gcloud.run_ok(&format!("container clusters get-credentials c {zone}"));
    let kubeconfig = std::fs::read_to_string(gcloud.kubeconfig()).expect("a kubeconfig");
    assert!(kubeconfig.contains("https://127.0.0.1:") && kubeconfig.contains("certificate-authority-data"));
    let operations =
        gcloud.run_ok(&format!("container operations list {zone} --format=value(operationType,status)"));
    assert!(operations.contains("SET_NODE_POOL_SIZE\tDONE"), "{operations}");
    gcloud.run_ok(&format!("container get-server-config {zone}"));
    gcloud.run_ok(&format!("container node-pools delete t4 {cluster}"));
    let pools = gcloud.run_ok(&format!("container node-pools list {cluster} --format=value(name)"));
    assert!(pools.contains("default-pool") && !pools.contains("t4"), "{pools}");
    gcloud.run_ok(&format!("container clusters delete c {zone}"));
    let list = gcloud.run_ok("container clusters list --format=value(name)");
    assert!(!list.contains("us-central1"), "{list}");
}

/// A line of `walks.txt`.
struct Step {
    code: i32,
    words: &'static str,
    piece: &'static str,
}

/// The walks of `walks.txt`, each with its name.
fn walks() -> Vec<(&'static str, Vec<Step>)> {
    let mut walks = Vec::new();
    for line in include_str!("gcloud/walks.txt").lines() {
        if let Some(name) = line.strip_prefix('[') {
            walks.push((name.trim_end_matches(']'), Vec::new()));
        } else if !line.is_empty() && !line.starts_with('#') {
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let [code, words, piece] = parts[..] else { panic!("no step: {line}") };
            let code = code.parse().expect("an exit code");
            walks.last_mut().expect("a walk").1.push(Step { code, words, piece });
        }
    }
    walks
}

/// Goes one walk; what is wrong, step by step. `OPERATION` is the last operation that was named.
fn walk(gcloud: &Gcloud, steps: &[Step]) -> Vec<String> {
    let mut operation = String::new();
    let mut wrong = Vec::new();
    for Step { code, words, piece } in steps {
        let (got, text) = gcloud.run(&words.replace(" OPERATION ", &format!(" {operation} ")));
        let crashed = text.contains("gcloud crashed") || text.contains("Traceback (most recent call last)");
        if crashed || got != *code || !text.contains(piece) {
            wrong.push(format!("{words}\n  exit code {got}, not {code}, or not `{piece}`:\n{text}"));
        }
        let mut names =
            text.split(|letter: char| letter.is_whitespace() || matches!(letter, '/' | '"' | '.'));
        if let Some(name) = names.rfind(|name| name.starts_with("operation-")) {
            operation = name.to_owned();
        }
    }
    wrong
}

#[test]
fn gcloud_never_crashes_on_what_the_sandbox_says() {
    if !on_path("gcloud", "--version") {
        return;
    }
    let served = SandboxServer::with(fast());
    let walks = walks();
    let steps: usize = walks.iter().map(|(_, steps)| steps.len()).sum();
    assert!(steps >= 95, "{steps}");
    let wrong = Mutex::new(Vec::new());
    let left = Mutex::new(walks);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some((name, steps)) = left.lock().expect("no worker failed").pop() else { break };
                    let gcloud = Gcloud::new(&served.gke, &format!("walk-{name}"));
                    wrong.lock().expect("no worker failed").extend(walk(&gcloud, &steps));
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no worker failed");
    assert!(wrong.is_empty(), "{} of {steps}:\n{}", wrong.len(), wrong.join("\n"));
}
