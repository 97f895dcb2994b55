//! `--when-idle`: a change that takes workers away waits for the work in them, on the sandbox and through the proxy of a
//! real API server to a real Dask scheduler.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{ControlPlane, CudaCheck, Dask, Operator, Part, needs};
use crate::sandbox_server::{CommandOutput, RunningCommand, SandboxServer, User};

const CLUSTER: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/d";
const WORKERS: &str =
    "/apis/apps/v1/namespaces/default/deployments?labelSelector=dask.org%2Fcomponent%3Dworker";
const DASK: &str = "\n[dask_cluster.d]\nimage = \"demo:1\"\nworker = { replicas = 1, cpu = \"100m\" }\n";
const ALLOW: [&str; 5] = ["apply", "--auto-approve", "--allow", "replace:dask_cluster.d", "--when-idle"];
const BUSY: &str = "its scheduler is busy:";

fn words<'w>(more: &[&'w str]) -> Vec<&'w str> {
    ALLOW.iter().chain(more).copied().collect()
}

/// Returns true if the test runner ignores SIGHUP, as `nohup` does: programs inherit that.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 1 is the lowest bit.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn on_the_sandbox_a_busy_cluster_stays_until_it_is_idle() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    let target = "[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
        [node_pool.cpu]\nmachine_type = \"e2-standard-8\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n";
    user.write(format!("[stack]\nname = \"s\"\n\n{target}{DASK}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let uid = || served.get(CLUSTER)["metadata"]["uid"].clone();
    let tasks = |tasks: Value| {
        let path = "/api/v1/namespaces/default/services/d-scheduler";
        let patch = json!({ "metadata": { "annotations": { "sandbox.dask-infra.dev/tasks": tasks } } });
        assert_eq!(served.merge(path, &patch).0, 200);
    };
    let first = uid();
    tasks(json!("3"));
    user.edit("demo:1", "demo:2");

    // Not in time: nothing of it is done, the rest is.
    user.edit("[dask_operator]", "[namespace.more]\n\n[dask_operator]");
    let said = user.run(&words(&["--wait", "1s"])).expect(6).says("waits until it is idle, at most 1s");
    let line = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(line.contains(&format!("is not idle after 1 s: {BUSY} 3 tasks running")), "{line}");
    assert_eq!(uid(), first, "{line}");
    let more = served.code("/api/v1/namespaces/more");
    assert_eq!(more, 200, "what need not wait is done");

    // Interrupted: nothing is done, and nothing stays locked. A closed terminal is a SIGHUP, which `nohup` has ignored.
    let mut nohup = Command::new("sh");
    let apply = user.command(&words(&["--wait", "4h"]));
    nohup.args(["-c", "trap '' HUP && exec \"$0\" \"$@\""]).arg(apply.get_program()).args(apply.get_args());
    nohup.envs(apply.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    nohup.current_dir(user.path());
    let hangup: &[&str] = if hangups_are_ignored() { &["HUP", "TERM"] } else { &["HUP"] };
    for (command, signals, code) in [
        (user.command(&words(&["--wait", "4h"])), &["INT"][..], 130),
        (user.command(&words(&["--wait", "4h"])), &["TERM"], 143),
        (user.command(&words(&["--wait", "4h"])), hangup, 143),
        (nohup, &["HUP", "INT"], 130),
    ] {
        let mut applying = RunningCommand::of(command);
        let line = applying.wait_until(BUSY);
        assert!(line.contains("dask_cluster.d") && line.contains("3 tasks running (at most 4h)"), "{line}");
        for signal in signals {
            applying.signal(signal);
        }
        assert_eq!(applying.end(), Some(code), "{signals:?}");
        assert_eq!(uid(), first, "{signals:?}");
        // Locked would be 5.
        user.run(&words(&["--wait", "1s"])).expect(6);
    }

    // A saved plan carries the wait, and says so.
    let plan = ["plan", "--when-idle", "--wait", "30m", "--out", "p", "--allow", "replace:dask_cluster.d"];
    user.run(&plan).expect(0).says("waits until it is idle, at most 30m");
    let mut applying = RunningCommand::start(&user, &["apply", "p"]);
    applying.wait_until(BUSY);
    tasks(Value::Null);
    assert_eq!(applying.end(), Some(0));
    assert_ne!(uid(), first);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // Without its Service it cannot be asked.
    let service = "/api/v1/namespaces/default/services/d-scheduler";
    assert_eq!(served.delete(service), 200);
    user.edit("demo:2", "demo:3");
    user.run(&words(&[])).expect(1).says("DI0460").says("Service default/d-scheduler does not exist");
}

#[test]
fn a_time_to_wait_is_checked() {
    let user = User::empty();
    for (wait, said) in [
        (&["--when-idle", "--wait", "soon"][..], "give a time as `90s`, `30m`, `1h 30m` or `3d`"),
        (&["--when-idle", "--wait=-4h"], "give a time as"),
        (&["--when-idle", "--wait", "0s"], "give a time as"),
        (&["--wait", "later"], "give a time as `90s`, `30m`, `1h 30m` or `3d`"),
        (&["p.plan", "--when-idle"], "cannot be used with"),
    ] {
        user.run(&[&["apply"], wait].concat()).expect(1).says(said);
    }
}

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_scheduler_with_a_running_task_is_waited_for() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator]);
    let mut plane = ControlPlane::start_with_a_way_to_pods().await;
    let mut dask = Dask::start().await;
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    let client = plane.client();
    plane.add_node("node-0", json!({}), 0).await;
    let user = User::empty();
    let kubeconfig = plane.access().kubeconfig.display().to_string();
    let stack = format!(
        "[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n"
    );
    user.write(&stack);
    run(&user, &["apply", "--auto-approve"]).expect(0);
    let operator = Operator::start(plane.access()).await;
    user.write(stack + DASK);
    // A worker is ready when its scheduler knows it, and KWOK's pods run none.
    dask.add_workers(&["w"]).await;
    run(&user, &["apply", "--auto-approve"]).expect(0);
    let before = client.get(CLUSTER).await.1["metadata"]["uid"].clone();

    let done = plane.folder().join("the-work-is-done");
    dask.work_until(&done).await;
    user.edit("demo:1", "demo:2");
    run(&user, &words(&["--wait", "2s"])).expect(6).says(&format!("{BUSY} 1 task running"));
    assert_eq!(client.get(CLUSTER).await.1["metadata"]["uid"], before);

    let mut applying = RunningCommand::start(&user, &words(&["--wait", "10m"]));
    let line = applying.wait_until(BUSY);
    assert!(line.contains("1 task running (at most 10m)"), "{line}");
    assert_eq!(client.get(CLUSTER).await.1["metadata"]["uid"], before);
    std::fs::write(&done, "").unwrap();
    assert_eq!(applying.end(), Some(0));
    let after = client.get(CLUSTER).await.1;
    assert_ne!(after["metadata"]["uid"], before);
    let workers = client.get(WORKERS).await.1;
    assert_eq!(
        workers["items"][0]["spec"]["template"]["spec"]["containers"][0]["image"], "demo:2",
        "{workers}"
    );
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    drop((operator, dask));
}
