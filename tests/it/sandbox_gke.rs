//! The sandbox's GKE, from outside: published exchanges replayed, and the real gcloud where it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use dask_infra::sandbox::serve::Server;
use dask_infra::sandbox::{Options, Scale};
use tokio::sync::oneshot;

/// What the recorded exchanges must score at least; see `published_exchanges_come_back`.
const LEAST_SCORE: f64 = 0.80;

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
