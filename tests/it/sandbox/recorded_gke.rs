//! The sandbox's GKE against exchanges with the real service: published recordings, and the requests of gcloud.

use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::{Options, Scale};

use crate::sandbox_server::{SandboxServer, on_path};

/// The least score of the recorded exchanges; see `published_exchanges_come_back`.
const LEAST_SCORE: f64 = 0.998;

/// The folder of facts beside the project, where a developer's machine has one.
pub fn facts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared")
}

/// One that is fast enough for the first poll to find an operation done.
pub fn fast() -> Options {
    Options { scale: Scale { time_scale: 20_000.0 }, ..Options::default() }
}

/// Replays every recorded exchange and counts the leaves that come back as recorded. What is missing today: the node
/// image of a version that is no longer the default one, and the surge node that one recording caught.
#[test]
fn published_exchanges_come_back() {
    let (script, logs) = (facts().join("tools/replay_gke.py"), facts().join("facts/gke-exchanges-real"));
    if !script.exists() || !logs.exists() || !on_path("python3", "--version") {
        println!("skipped: no recorded exchanges beside the project, or no python3");
        return;
    }
    let served = SandboxServer::with(fast());
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
