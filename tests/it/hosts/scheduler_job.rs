//! `scheduler = { slurm = … }` with the real SLURM: the scheduler is a job, too, on a node that nobody knows before.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::hosts::adaptive::{Client, squares};
use crate::hosts::agent::{Agent, HOSTS, Setting};
use crate::hosts::slurm::{Login, python};
use crate::real::{Cluster, Part, needs};
use crate::sandbox_server::{User, wait_until};

const REPLACE: [&str; 4] = ["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"];

/// A client of the scheduler, wherever it is.
fn client(login: &Login) -> Client {
    Client::connected(&python(), &login.run(&["connect", "--json"]).expect(0).out)
}

/// A job that leaves no room on the only node of a partition.
fn hold(login: &Login) -> String {
    let words = ["--parsable", "-p", "short", "-n1", "-c4", "-o", "/dev/null", "--wrap", "sleep 300"];
    let job = login.cluster.says("sbatch", &words).trim().to_owned();
    wait_until("the node is held", || {
        login.cluster.says("squeue", &["-h", "-j", &job, "-o", "%t"]).trim() == "R"
    });
    job
}

#[test]
fn a_scheduler_that_is_a_job_computes_and_goes() {
    needs!(&[Part::Slurm]);
    let scheduler = "cpu = \"2\", memory = \"400Mi\", slurm = { time_limit = \"2h\" }";
    let more = "[dask_cluster.work.group.other]\nmemory = \"300Mi\"\n\n[check.sum]\nrun = \"dask-sum\"\n";
    let login = Login::of("partition = \"cpu\"\ntime_limit = \"1h\"", scheduler, "replicas = 2", more);
    let plan = login.run(&["plan", "-v"]).expect(0);
    plan.says("scheduler as a job of SLURM").says("--time=120").says("--cpus-per-task=2");
    login.apply().expect(0).says("check.sum");
    login.nothing_to_do();
    let all = ["work-other-worker-0", "work-scheduler", "work-worker-0", "work-worker-1"];
    assert_eq!(login.jobs(), all);
    let script = fs::read_to_string(login.folder().join("scripts/work-scheduler.sh")).unwrap();
    for line in
        ["#SBATCH --time=120\n", "#SBATCH --mem=400M\n", "#SBATCH --partition=cpu\n", " --scheduler-file "]
    {
        assert!(script.contains(line), "{line} in {script}");
    }
    login.run(&["status"]).expect(0).says("2 of 2 workers").says("scheduler at tls://");
    login.run(&["logs", "work", "-c", "scheduler", "--tail", "-1"]).expect(0).says("Scheduler at");
    login.run(&["why", "work"]).expect(0).says("ready");
    let mut computes = client(&login);
    assert_eq!(computes.says("up 50 0"), "3");
    for number in ["3", "1"] {
        login.run(&["scale", "work", number, "--auto-approve"]).expect(0);
        assert_eq!(computes.says("sum"), squares(&[50]), "with {number} workers");
    }
    drop(computes);
    login.apply().expect(0);
    // A scheduler that others cancel is noticed and submitted again, with the jobs that ended with it.
    let before = login.cluster.job("work-scheduler");
    login.cluster.says("scancel", &[&before]);
    wait_until("the job is gone", || !login.jobs().contains(&"work-scheduler".to_owned()));
    let plan = login.run(&["plan", "--detailed-exitcode"]).expect(2);
    plan.says("the scheduler is not running (1 job cancelled by somebody else)");
    login.run(&["why", "work"]).expect(0).says("cancelled by somebody else (CANCELLED)");
    login.apply().expect(0);
    login.nothing_to_do();
    assert_ne!(login.cluster.job("work-scheduler"), before);
    assert_eq!(login.jobs(), all);
    // Back to the login node.
    let ports = format!("port = {}, dashboard_port = {}", login.ports[0], login.ports[1]);
    login.user.edit(scheduler, &ports);
    login.run(&["plan"]).expect(0).says("replace");
    login.run(&REPLACE).expect(0);
    login.nothing_to_do();
    assert!(!login.jobs().contains(&"work-scheduler".to_owned()));
    login.is_gone();
}

/// Workers are submitted when there is a scheduler, whoever was killed while its job waited.
#[test]
#[ignore = "nightly: a_scheduler_that_is_a_job_computes_and_goes runs on every change"]
fn workers_wait_for_a_scheduler_that_waits_in_the_queue() {
    needs!(&[Part::Slurm]);
    let login = Login::of("partition = \"short\"", "memory = \"400Mi\", slurm = {}", "replicas = 1", "");
    let held = hold(&login);
    let apply = ["apply", "--auto-approve", "--wait", "10s"];
    login.run(&apply).expect(7).says("its scheduler: 1 job waits").says("Resources");
    login.nothing_to_do();
    assert_eq!(login.jobs().iter().filter(|job| job.starts_with("work-")).count(), 1, "{:?}", login.jobs());
    login.run(&["status"]).says("scheduler: 1 job").says("(Resources)");
    login.run(&["why", "work"]).expect(0).says("waits: no nodes are free (Resources)");
    login.run(&["connect"]).expect(1).says("does not accept connections");
    let waiting = login.cluster.job("work-scheduler");
    // The process that waits for the scheduler is killed.
    let note = fs::read_to_string(login.folder().join("run/work")).unwrap();
    let note: Value = serde_json::from_str(&note).unwrap();
    let killed = Command::new("kill").args(["-9", &note["pid"].to_string()]).stdout(Stdio::null()).status();
    assert!(killed.unwrap().success());
    let interrupted = || login.run(&["plan", "--detailed-exitcode"]).code == 2;
    wait_until("that is seen", interrupted);
    login.run(&["plan"]).expect(0).says("what waits for the job of its scheduler was interrupted");
    login.run(&apply).expect(7);
    assert_eq!(login.cluster.job("work-scheduler"), waiting, "it keeps its place in the queue");
    // A scheduler that asks for something else is another job; one that can never start is an error.
    login.user.edit("slurm = {}", "cpu = \"99\", slurm = {}");
    login.run(&REPLACE).expect(1).says("its scheduler: 1 job can never start").says("PartitionConfig");
    login.user.edit("cpu = \"99\", slurm = {}", "slurm = {}");
    login.run(&[&REPLACE[..], &["--wait", "10s"]].concat()).expect(7);
    login.cluster.says("scancel", &[&held]);
    login.apply().expect(0);
    login.nothing_to_do();
    assert_eq!(login.jobs(), ["work-scheduler", "work-worker-0"]);
    login.is_gone();
}

/// One that waits goes with its cluster.
#[test]
#[ignore = "nightly: a_scheduler_that_is_a_job_computes_and_goes runs on every change"]
fn a_scheduler_in_the_queue_is_destroyed() {
    needs!(&[Part::Slurm]);
    let login = Login::of("partition = \"short\"", "memory = \"400Mi\", slurm = {}", "replicas = 1", "");
    let held = hold(&login);
    login.run(&["apply", "--auto-approve", "--wait", "5s"]).expect(7);
    login.run(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!(login.jobs().iter().filter(|job| job.starts_with("work-")).count(), 0, "{:?}", login.jobs());
    login.cluster.says("scancel", &[&held]);
    wait_until("the node is free", || login.jobs().is_empty());
    login.is_gone();
}

/// At its time limit, and when an administrator puts it back into the queue, all of its cluster is begun again.
#[test]
#[ignore = "nightly: a_scheduler_that_is_a_job_computes_and_goes runs on every change"]
fn a_scheduler_that_ended_or_began_anew_is_replaced() {
    needs!(&[Part::Slurm]);
    let scheduler = "cpu = \"2\", memory = \"400Mi\", slurm = { time_limit = \"1h\" }";
    let login = Login::of("partition = \"cpu\"", scheduler, "replicas = { min = 1, max = 2 }", "");
    login.apply().expect(0);
    login.nothing_to_do();
    let mut computes = client(&login);
    assert_eq!(computes.says("up 40 0.5"), "2");
    drop(computes);
    // A file that is lost is written again.
    let other = User::empty();
    login.run_as(&other, &["import", "--slurm"]).expect(0);
    let written = fs::read_to_string(other.path().join("stack.toml")).unwrap();
    assert!(written.contains("cpu = \"2\"") && written.contains("memory = \"400Mi\""), "{written}");
    login.run_as(&other, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let first = login.cluster.job("work-scheduler");
    login.cluster.says("scontrol", &["update", &format!("JobId={first}"), "TimeLimit=1"]);
    let state =
        || login.cluster.says("squeue", &["-h", "-t", "all", "-j", &first, "-o", "%T"]).trim().to_owned();
    // SLURM looks at limits once in half a minute.
    let over = std::time::Instant::now() + std::time::Duration::from_secs(150);
    while state() != "TIMEOUT" {
        assert!(std::time::Instant::now() < over, "{}", state());
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let plan = login.run(&["plan", "--detailed-exitcode"]).expect(2);
    plan.says("the scheduler is not running (1 job reached the time limit)");
    login.apply().expect(0);
    login.nothing_to_do();
    let second = login.cluster.job("work-scheduler");
    assert_ne!(second, first);
    login.cluster.says("scontrol", &["update", &format!("JobId={second}"), "Requeue=1"]);
    login.cluster.says("scontrol", &["requeue", &second]);
    wait_until("that is seen", || login.run(&["plan", "--detailed-exitcode"]).code == 2);
    login.run(&["status"]).says("its scheduler is not running").says("was requeued");
    login.apply().expect(0);
    login.nothing_to_do();
    assert_ne!(login.cluster.job("work-scheduler"), second);
    assert_eq!(client(&login).says("again"), "45");
    login.is_gone();
}

/// A look at the queue is used again for a while: what it says of a job may be older than the answer of the scheduler in it.
#[test]
fn a_look_from_before_it_answered_is_no_requeue() {
    needs!(&[Part::Slurm]);
    let (state, cluster) = (tempfile::tempdir().unwrap(), Cluster::start());
    let shell = format!("export SLURM_CONF={}", cluster.configuration().display());
    // All of the start sees one look, from before the scheduler was submitted.
    let setting =
        Setting { faster: &[("RECENT = 1\n", "RECENT = 60\n")], shell: &shell, ..Setting::default() };
    let mut agent = Agent::start_with(state.path(), &setting);
    agent.with_environment(&python());
    let slurm = json!({ "directives": ["--partition=cpu", "--ntasks=1", "--mem=400M"] });
    let body = json!({ "metadata": { "name": "c" }, "spec": {
        "environment": { "name": "main", "digest": "d1" },
        "scheduler": { "slurm": slurm },
        "worker": { "replicas": 1, "threads": 1, "slurm": slurm },
    } });
    agent.apply(&format!("{HOSTS}/clusters/c"), "", &body);
    let live = agent.wait_until_settled("clusters/c", 1);
    assert_eq!(live["status"]["scheduler"]["running"], true, "{live:#}");
    agent.destroy();
}
