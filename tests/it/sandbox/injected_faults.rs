//! Faults that the sandbox was told to produce, as a user meets them: by file and by flag, with the real
//! program.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::sandbox_server::User;

/// `sandbox serve` of the real program, stopped with this value.
struct SandboxProcess {
    child: Child,
    gke: String,
}

impl SandboxProcess {
    fn start(user: &User, words: &[&str]) -> Self {
        let words = [&["sandbox", "serve", "--dir", "box", "--time-scale", "1200"], words].concat();
        let mut child = user.command(&words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        Self { gke: ready["gke"].as_str().unwrap().to_owned(), child }
    }

    fn stop(mut self) {
        let killed = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(killed.success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for SandboxProcess {
    fn drop(&mut self) {
        // Both fail when it has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stock_out_and_a_quota_are_said_by_flag() {
    let user = User::with_ready_stack(None);
    let serving = SandboxProcess::start(&user, &["--quota", "NVIDIA_A100_GPUS=1"]);
    user.run(&["--sandbox=box", "apply", "--auto-approve", "--skip-preflight"])
        .expect(1)
        .says("DI0603")
        .says("Insufficient regional quota to satisfy request: resource \"NVIDIA_A100_GPUS\"");
    serving.stop();
    let serving = SandboxProcess::start(&user, &["--stock-out", "us-central1-c:nvidia-tesla-t4"]);
    assert!(serving.gke.starts_with("http://127.0.0.1:"), "{}", serving.gke);
    user.run(&["--sandbox=box", "apply", "--auto-approve"])
        .expect(1)
        .says("GCE_STOCKOUT")
        .says("node_pool.scheduler-pool");
    serving.stop();
    // Without the flag there are machines again.
    let serving = SandboxProcess::start(&user, &[]);
    let allow = "replace:node_pool.scheduler-pool";
    user.run(&["--sandbox=box", "apply", "--auto-approve", "--allow", allow]).expect(0);
    user.run(&["--sandbox=box", "plan", "--detailed-exitcode"]).expect(0);
    serving.stop();
}

/// New projects have no GPUs in any region. GKE says so when the cluster and its other pools have been made.
#[test]
fn a_quota_of_the_project_is_seen_before_the_first_write() {
    let user = User::with_ready_stack(None);
    let serving = SandboxProcess::start(&user, &["--quota", "GPUS_ALL_REGIONS=0"]);
    let short = "does not suffice: need 3, limit 0, used 0";
    let ask = "--quota-id GPUS-ALL-REGIONS-per-project";
    let plan = user.run(&["--sandbox=box", "plan"]).expect(1).says("DI0603").says(short).says(ask);
    assert!(!plan.err.contains("another region") && !plan.out.contains("another region"), "{}", plan.err);
    let lines = user.run(&["--sandbox=box", "plan", "--json"]).expect(1).out;
    let told: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let error = told.iter().find(|line| line["diagnostic"]["severity"] == "error").unwrap();
    assert_eq!(error["diagnostic"]["code"], "DI0603");
    let detail = error["diagnostic"]["detail"].as_str().unwrap();
    assert!(detail.contains("apply stops before the first write"), "{detail}");
    let saved = ["--sandbox=box", "plan", "--out", "p.plan"];
    user.run(&saved).expect(1).says(short);
    for apply in [&["apply", "--auto-approve"][..], &["apply", "p.plan"]] {
        user.run(&[&["--sandbox=box"], apply].concat()).expect(1).says(short).says("--skip-preflight");
    }
    user.run(&["--sandbox=box", "doctor"]).expect(1).says("quota GPUS_ALL_REGIONS of").says("capacity");
    user.run(&["sandbox", "kubeconfig", "rapids", "--dir", "box"]).expect(1).says("has no cluster");
    user.run(&["--sandbox=box", "apply", "p.plan", "--skip-preflight"])
        .expect(1)
        .says("Insufficient project quota to satisfy request: resource \"GPUS_ALL_REGIONS\"");
    serving.stop();
    let serving = SandboxProcess::start(&user, &["--quota", "GPUS_ALL_REGIONS=9", "--quota", "CPUS=1000"]);
    user.run(&["--sandbox=box", "doctor"]).expect(0);
    user.run(&["--sandbox=box", "apply", "--auto-approve"]).expect(0);
    // Plans that need no more capacity check no quota.
    user.run(&["--sandbox=box", "plan", "--detailed-exitcode"]).expect(0);
    user.run(&["--sandbox=box", "doctor"]).expect(0).says("an apply creates no nodes");
    serving.stop();
}

#[test]
fn a_file_in_the_folder_is_read_and_its_mistakes_are_told() {
    let user = User::with_ready_stack(None);
    let folder = user.path().join("box");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("faults.toml");
    std::fs::write(&file, "[[request]]\npath = \"*/clusters\"\nanswer = 600\ncolour = 1\n").unwrap();
    user.run(&["--sandbox=box", "plan"])
        .expect(1)
        .says("DI0502")
        .says("faults.toml:3:10")
        .says("has no error 600")
        .says("faults.toml:4:1");
    let fault = "[[request]]\nmethod = \"POST\"\npath = \"*/clusters\"\nanswer = 403\n";
    std::fs::write(&file, fault).unwrap();
    let apply = ["--sandbox=box", "apply", "--auto-approve"];
    user.run(&apply).expect(1).says("Required \"container.clusters.create\" permission(s)").says("DI0602");
    // It was to happen once, and another command knows that it has.
    user.write("[stack]\nname = \"s\"\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n[cluster]\nname = \"c\"\n[node_pool.a]\nmachine_type = \"e2-standard-2\"\nnodes = 1\n");
    user.run(&apply).expect(0);
    user.run(&["--sandbox=box", "plan", "--detailed-exitcode"]).expect(0);
    user.run(&["sandbox", "reset", "--dir", "box"]).expect(0);
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["faults.toml"], "what the user wrote stays, and nothing else");
}

#[test]
fn a_folder_in_use_and_a_damaged_one_are_told_apart() {
    let user = User::with_ready_stack(None);
    let serving = SandboxProcess::start(&user, &[]);
    let pid = format!("process {}", serving.child.id());
    user.run(&["sandbox", "serve", "--dir", "box"]).expect(1).says("DI0503").says(&pid);
    user.run(&["sandbox", "reset", "--dir", "box"]).expect(1).says("DI0503");
    serving.stop();
    for content in ["", "not a database"] {
        std::fs::write(user.path().join("box/sandbox.redb"), content).unwrap();
        user.run(&["--sandbox=box", "plan"])
            .expect(1)
            .says("DI0504")
            .says("box/sandbox.redb")
            .says("sandbox reset --dir box");
    }
    user.run(&["sandbox", "reset", "--dir", "box"]).expect(0);
    assert!(!user.path().join("box").exists(), "nothing is left");
    user.run(&["sandbox", "reset", "--dir", "box"]).expect(0).says("Nothing to delete");
}

#[test]
fn wrong_flags_say_what_there_is() {
    let user = User::empty();
    let rows = [
        (["--stock-out", "us-centrall-c"], "no zone"),
        (["--stock-out", "us-central1-c:t4"], "did you mean `nvidia-tesla-t4`"),
        (["--quota", "T4=1"], "NVIDIA_T4_GPUS"),
        (["--faults", "nowhere.toml"], "nowhere.toml"),
    ];
    for (words, said) in rows {
        let words = [&["sandbox", "serve", "--dir", "box"], &words[..]].concat();
        user.run(&words).expect(1).says(said);
    }
}
