//! `connect`, `logs` and `run` against the sandbox: what they say, and what they refuse.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use sandbox::{Options, Scale};

use crate::sandbox_server::{SandboxServer, User};

/// Faster than the one minute of the main job.
fn served() -> SandboxServer {
    SandboxServer::with(Options { scale: Scale { time_scale: 6000.0 }, ..Options::default() })
}

fn write(user: &User, text: &str) {
    user.write(text);
}

const KUBERNETES: &str = "[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"none\"\n\n";

#[test]
fn what_cannot_be_connected_to_is_said_without_asking_anybody() {
    let user = User::empty();
    let cluster = |name: &str| format!("[dask_cluster.{name}]\nimage = \"demo:1\"\n\n");
    let operator = "[dask_operator]\nversion = \"2026.3.0\"\n\n";
    write(&user, &format!("{KUBERNETES}{operator}"));
    user.run(&["connect"]).expect(1).says("DI0422").says("nothing to connect to").says("[notebook.NAME]");
    write(&user, &format!("{KUBERNETES}{operator}{}{}", cluster("a"), cluster("b")));
    let several = user.run(&["connect"]).expect(1);
    several.says("DI0422").says("`dask_cluster.a` and `dask_cluster.b`").says("connect dask_cluster.a");
    let other = user.run(&["connect", "dask_operator"]).expect(1);
    other.says("`dask_operator` cannot be connected to").says("`dask_cluster.a` or `dask_cluster.b`");
    user.run(&["connect", "dask_cluster.c"]).expect(1).says("dask_cluster.c");
    let notebook = "[notebook.lab]\nimage = \"demo:1\"\npassword = { secret = \"s\", key = \"k\" }\n";
    write(&user, &format!("{KUBERNETES}{notebook}"));
    user.run(&["connect", "--dashboard-port", "9000"]).expect(1).says("has no dashboard");
    user.run(&["connect", "--port", "0"]).expect(1).says("--port");
}

#[test]
fn the_sandbox_alone_runs_no_program_to_connect_to() {
    let user = User::with_ready_stack(None);
    let refused = user.run(&["--sandbox", "connect"]).expect(1);
    refused.says("DI0423").says("SIMULATED").says("sandbox serve --kubernetes");
    let served = served();
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["connect"])
        .expect(1)
        .says("DI0421")
        .says("the GKE cluster rapids-gpu does not exist")
        .says("apply");
    user.run(&["apply", "--auto-approve"]).expect(0);
    for words in [&["connect"][..], &["connect", "--background"]] {
        user.run(words).expect(1).says("DI0423").says("SIMULATED").says("rapids-dask-cluster");
    }
    let left: Vec<_> =
        std::fs::read_dir(user.path().join("dask-infra/connect")).into_iter().flatten().collect();
    assert!(left.iter().all(|entry| entry.as_ref().unwrap().path().extension() == Some("log".as_ref())));
}

#[test]
fn logs_are_those_of_the_pods_of_a_section() {
    let served = served();
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["logs", "check.cuda"])
        .expect(1)
        .says("the GKE cluster rapids-gpu does not exist")
        .says("apply");
    user.run(&["apply", "--auto-approve"]).expect(0);
    let all = user.run(&["logs", "rapids-dask-cluster"]).expect(0);
    let lines: Vec<&str> = all.out.lines().collect();
    let of = |component: &str| lines.iter().filter(|line| line.contains(&format!("/{component}] "))).count();
    assert_eq!((of("scheduler"), of("worker")), (3, 6), "{}", all.out);
    assert!(lines[0].starts_with("[pod/rapids-dask-cluster-"), "{}", all.out);
    let is_grouped = lines.windows(2).filter(|pair| pair[0].split(' ').next() != pair[1].split(' ').next());
    assert_eq!(is_grouped.count(), 2, "one pod after the other: {}", all.out);
    let one = user.run(&["logs", "rapids-dask-cluster", "-c", "scheduler", "--tail", "1"]).expect(0);
    assert!(one.out.starts_with("distributed.scheduler - INFO -   dashboard at:"), "{}", one.out);
    assert_eq!(one.out.lines().count(), 1);
    let json = user.run(&["logs", "rapids-dask-cluster", "--json", "--tail", "1"]).expect(0);
    assert_eq!(json.out.lines().count(), 3);
    let parsed: serde_json::Value = serde_json::from_str(json.out.lines().next().unwrap()).unwrap();
    assert_eq!(parsed["namespace"], "default");
    user.run(&["logs", "dask_operator"]).expect(0).says("Initial authentication");
    user.run(&["logs", "gpu_driver"]).expect(0).says("Finished installing the drivers");
    user.run(&["logs", "rapids-dask-cluster", "-c", "nobody"]).expect(1).says("no pod").says("`nobody`");
    user.run(&["logs", "check.cuda"])
        .expect(1)
        .says("DI0421")
        .says("deleted when the check has passed")
        .says("run check.cuda");
    user.run(&["logs", "node_pool.default-pool"]).expect(1).says("DI0427").says("has no pods");
    user.run(&["logs", "rapids-dask-cluster", "--previous"]).expect(0);
    user.run(&["logs", "rapids-dask-cluster", "--since", "soon"]).expect(1).says("1h 30m");
}

#[test]
fn checks_and_jobs_run_again_and_nothing_else_does() {
    let served = served();
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    user.run(&["run", "cuda"]).expect(3).says("--auto-approve");
    // The workers hold the GPUs that the check needs.
    user.edit("replicas = 2", "replicas = 1");
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["run", "cuda", "--auto-approve"]).expect(0).says("1 check passed").says("Test PASSED");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    let other = user.run(&["run", "dask_operator", "--auto-approve"]).expect(1);
    other.says("DI0428").says("does not run to completion").says("give `check.cuda`");

    let job = User::with_stack("dask-job", Some(&served.gke));
    job.run(&["apply", "--auto-approve"]).expect(0);
    job.run(&["run", "train", "--auto-approve"]).expect(3).says("replace:dask_job.train");
    let again = ["run", "train", "--auto-approve", "--allow", "replace:dask_job.train"];
    // With its NetworkPolicy: the section is what is replaced.
    job.run(&again).expect(0).says("2 replaced");
    job.run(&["plan", "--detailed-exitcode"]).expect(0);
    job.run(&["logs", "train"]).expect(0);
}

#[test]
fn a_notebook_comes_up_and_is_told_with_its_pods() {
    let served = served();
    let user = User::with_stack("dask-notebook", Some(&served.gke));
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["status"]).expect(0).says("notebook.lab").says("1 of 1 pods ready");
    user.run(&["connect", "lab"]).expect(1).says("DI0423").says("notebook.lab");
    user.edit("memory = \"8Gi\"", "memory = \"9Gi\"");
    user.run(&["plan"]).expect(0).says("notebook.lab").says("unsaved work in it is lost");
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
}
