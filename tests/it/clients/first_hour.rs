//! `examples/first-hour` runs whole on the sandbox, cleans up whatever happens, and reports no secret.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sandbox::faults::{FaultEffect, Refuse, Rule};
use sandbox::{Options, Scale};
use serde_json::Value;

use crate::golden::root;
use crate::sandbox_server::{CommandOutput, RunningCommand, SandboxServer, on_path};

/// Parts of credentials, and names. Each is in something that the kit reads.
const CANARIES: [&str; 9] = [
    "Can01-refresh-Qx71",
    "Can02-client-Qx72",
    "can03-account-qx73@corp.example",
    "can04-quota-qx74",
    "Can05-token-Qx75",
    "can06-project-qx76",
    "Can07-proxy-Qx77",
    "ya29.Can08-strange-Qx78",
    "198.51.100.79",
];

/// The kit in a folder of its own, with credentials to leak.
struct Kit {
    folder: tempfile::TempDir,
    served: SandboxServer,
}

impl Kit {
    fn new(time_scale: f64, requests: Vec<Rule>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [refresh, client, account, quota, token, ..] = CANARIES;
        let credentials = serde_json::json!({
            "type": "authorized_user", "refresh_token": refresh, "client_secret": client, "account": account,
            "quota_project_id": quota,
        });
        std::fs::write(folder.path().join("application_default_credentials.json"), credentials.to_string())
            .unwrap();
        std::fs::write(folder.path().join("token"), token).unwrap();
        let options = Options { scale: Scale { time_scale }, requests, ..Options::default() };
        Self { folder, served: SandboxServer::with(options) }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("python3");
        command.arg(root().join("examples/first-hour/first-hour")).args(words);
        self.here(command)
    }

    /// The command as it comes with the program.
    fn live(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dask-infra"));
        command.args(["doctor", "--live", "--"]).args(words);
        self.here(command)
    }

    fn here(&self, mut command: Command) -> Command {
        command.current_dir(self.path());
        for name in ["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_QUOTA_PROJECT", "DASK_INFRA_SANDBOX"] {
            command.env_remove(name);
        }
        command
            .env("DASK_INFRA", env!("CARGO_BIN_EXE_dask-infra"))
            .env("DASK_INFRA_GKE_ENDPOINT", &self.served.gke)
            .env("DASK_INFRA_SANDBOX_TOKEN_FILE", self.path().join("token"))
            .env("GOOGLE_CLOUD_PROJECT", "can06-project-qx76")
            .env("CLOUDSDK_CONFIG", self.path())
            .env("HTTPS_PROXY", "http://user:Can07-proxy-Qx77@127.0.0.1:9")
            .env("NO_PROXY", "127.0.0.1,localhost")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(&self.command(words).output().unwrap())
    }

    /// The report, which holds no canary, nor half of one; neither does its text.
    #[track_caller]
    fn report(&self) -> Value {
        let read = |name: &str| std::fs::read_to_string(self.path().join("out").join(name)).unwrap();
        let (json, text) = (read("report.json"), read("report.txt"));
        for canary in CANARIES.map(|canary| &canary[..10]) {
            assert!(!json.contains(canary) && !text.contains(canary), "{canary} is in\n{json}\n{text}");
        }
        serde_json::from_str(&json).unwrap()
    }

    fn waits_for_a_cluster(&self) {
        let begin = Instant::now();
        while self.served.sandbox.clusters().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "no cluster was made");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Experiments by name, with their verdicts.
fn verdicts(report: &Value) -> BTreeMap<&str, &str> {
    let found = report["experiments"].as_array().unwrap();
    found.iter().map(|one| (one["name"].as_str().unwrap(), one["verdict"].as_str().unwrap())).collect()
}

/// The plan takes these changes for rolling ones, and the sandbox changes Node objects in place. Which of them is right is what the
/// kit is to find out.
const OPEN: [&str; 4] = ["resource-labels", "tags", "taints", "together"];

/// Experiments that the sandbox cannot run: it lacks the API or the secret, or an hour is too short.
const NOT_HERE: [&str; 8] = [
    "account-without-roles",
    "gpu-zones",
    "key-exchanged",
    "key-self-signed",
    "nothing-left",
    "quota-metrics",
    "roles",
    "unauthenticated",
];

/// Python takes a module that lies beside a program for one of its own. What came with a repository lies elsewhere, and the kit's
/// own folder goes with it.
#[test]
fn nothing_of_the_folder_that_it_runs_in_is_taken_for_a_part_of_it() {
    if !on_path("python3", "--version") {
        return;
    }
    let kit = Kit::new(600.0, Vec::new());
    let (planted, temporary) = (kit.path().join(".dask-infra/first-hour"), kit.path().join("tmp"));
    for folder in [&planted, &temporary] {
        std::fs::create_dir_all(folder).unwrap();
    }
    for folder in [planted.as_path(), kit.path()] {
        std::fs::write(folder.join("json.py"), "raise SystemExit('planted')\n").unwrap();
    }
    let said = CommandOutput::of(&kit.live(&["--list"]).env("TMPDIR", &temporary).output().unwrap());
    said.expect(0).says("quota-metrics");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "its folder is gone");
}

#[test]
fn it_runs_whole_and_leaves_nothing() {
    if !on_path("python3", "--version") {
        return;
    }
    let kit = Kit::new(600.0, Vec::new());
    let said = kit.run(&["--yes", "--gpu", "nvidia-tesla-t4", "--out", "out"]).expect(0);
    let report = kit.report();
    let mut wrong = Vec::new();
    for (name, verdict) in verdicts(&report) {
        let expected: &[&str] = match name {
            // Compute's lists may come to the sandbox.
            "gpu-zones" | "quota-metrics" | "nothing-left" => continue,
            name if OPEN.contains(&name) => &["differs"],
            name if NOT_HERE.contains(&name) => &["could not be tried"],
            // No minutes, no question: the list of what an hour does not settle.
            _ => &["as expected", "could not be tried"],
        };
        if !expected.contains(&verdict) {
            wrong.push((name, verdict));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}\n{}\n{report:#}", said.err);
    let tried = verdicts(&report).values().filter(|verdict| **verdict == "as expected").count();
    assert!(tried >= 25, "{tried} as expected\n{}", said.err);
    assert_eq!(report["simulated"], true);
    assert_eq!(report["left_behind"], serde_json::json!([]));
    assert!(kit.served.sandbox.clusters().is_empty(), "{}", said.err);
    // Before each step, what it takes.
    assert!(
        said.err.contains("taints: What do changed taints do to nodes?\n  takes 4 minutes or so; "),
        "{}",
        said.err
    );
    assert!(said.err.contains("; about $0.") && said.err.contains(", so far $0."), "{}", said.err);
    assert_eq!(said.out.lines().count(), 2, "the paths of the report: {}", said.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_cleans_up_when_it_is_interrupted() {
    if !on_path("python3", "--version") {
        return;
    }
    // Slow enough to be met while the cluster is being created.
    for (step, time_scale) in [("cluster: Is", 60.0), ("taints: What", 300.0)] {
        let kit = Kit::new(time_scale, Vec::new());
        let mut running = RunningCommand::of(kit.command(&["--yes", "--out", "out"]));
        running.wait_until(step);
        kit.waits_for_a_cluster();
        running.signal("INT");
        let (code, said) = running.end_saying();
        assert_eq!(code, Some(130), "{said}");
        assert!(kit.served.sandbox.clusters().is_empty(), "at {step}");
        let report = kit.report();
        assert_eq!(verdicts(&report)["image"], "could not be tried");
        assert_eq!(verdicts(&report)["destroyed"], "as expected", "{report:#}");
        assert_eq!(report["left_behind"], serde_json::json!([]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_finds_what_a_killed_one_left() {
    if !on_path("python3", "--version") {
        return;
    }
    let kit = Kit::new(600.0, Vec::new());
    let mut running = RunningCommand::of(kit.command(&["--yes", "--out", "killed"]));
    running.wait_until("second-plan");
    running.signal("KILL");
    drop(running);
    let said = kit.run(&["--yes", "--only", "channels", "--out", "second"]).expect(0);
    let said = said.says("An earlier run, or another one, has left us-central1-c/first-hour-");
    assert_eq!(kit.served.sandbox.clusters().len(), 1, "nobody agreed to that: {}", said.err);
    kit.run(&["--clean", "--yes", "--out", "third"]).expect(0).says(": deleted");
    assert!(kit.served.sandbox.clusters().is_empty());
    kit.run(&["--clean", "--yes", "--out", "fourth"]).expect(0).says("Nothing was left");
}

#[test]
fn it_comes_with_the_program() {
    if !on_path("python3", "--version") {
        return;
    }
    let kit = Kit::new(60.0, Vec::new());
    let said = CommandOutput::of(&kit.live(&["--yes", "--only", "absent", "--out", "out"]).output().unwrap())
        .expect(0);
    let report = kit.report();
    assert_eq!(verdicts(&report)["absent"], "as expected", "{}\n{report:#}", said.err);

    let mut nowhere = kit.live(&["--list"]);
    let said = CommandOutput::of(&nowhere.env("PATH", kit.path()).output().unwrap()).expect(1);
    assert!(said.err.contains("python3") && said.err.contains("DI0009"), "{}", said.err);
}

#[test]
fn the_report_holds_no_secret() {
    if !on_path("python3", "--version") {
        return;
    }
    let refuse = Refuse {
        message: Some(format!("denied: {}. {}{}", CANARIES.join(", "), "x ".repeat(350), CANARIES.join(" "))),
        ..Refuse::with(403)
    };
    let then = FaultEffect::Refuse(refuse);
    let path = "*/serverConfig".to_owned();
    let kit = Kit::new(600.0, vec![Rule { path, times: None, then, ..Rule::default() }]);
    kit.run(&["--yes", "--only", "channels", "--out", "out"]).expect(0);
    let report = kit.report();
    assert_eq!(verdicts(&report)["channels"], "differs");
    assert!(
        report
            .to_string()
            .contains("denied: SECRET, SECRET, SECRET, PROJECT, SECRET, PROJECT, SECRET, TOKEN, ADDRESS"),
        "{report:#}"
    );
    // Unless it is asked for.
    kit.run(&["--yes", "--only", "absent", "--with-project", "--out", "named"]).expect(0);
    let named = std::fs::read_to_string(kit.path().join("named/report.json")).unwrap();
    assert!(named.contains("can06-project-qx76") && !named.contains("Can05-token-Qx75"), "{named}");
}

#[test]
fn every_experiment_is_on_its_page() {
    if !on_path("python3", "--version") {
        return;
    }
    let kit = Kit::new(600.0, Vec::new());
    let said = kit.run(&["--list"]).expect(0);
    let page = std::fs::read_to_string(root().join("examples/first-hour/README.md")).unwrap();
    let names: Vec<&str> = said.out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 35, "{names:?}");
    let missing: Vec<&&str> = names.iter().filter(|name| !page.contains(&format!("| `{name}` |"))).collect();
    assert!(missing.is_empty(), "not in examples/first-hour/README.md: {missing:?}");
}
