//! `ttl`: a Dask cluster that a CronJob deletes when its time is over, on the sandbox, and the CronJob's own script by a
//! real Python against the sandbox's API.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::process::Command;
use std::time::{Duration, Instant};

use axum::http::Method;
use base64::Engine as _;
use dask_infra::kinds::dask::ttl::SCRIPT;
use dask_infra::sandbox::{Options, Scale};
use serde_json::{Value, json};

use crate::golden::root;
use crate::sandbox_dask::kube;
use crate::served::{Said, Served, User, on_path};

const STACK: &str = r#"[stack]
name = "s"

[gke]
project = "demo"
location = "us-central1-c"

[cluster]
name = "c"

[node_pool.cpu]
machine_type = "e2-standard-8"

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
ttl = "TTL"
worker = { replicas = { min = 1, max = 2 }, cpu = "500m" }

[dask_cluster.d.group.big]
replicas = 1
"#;

const CLUSTER: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/d";
const CRON: &str = "/apis/batch/v1/namespaces/default/cronjobs/d-ttl";

fn lab(time_scale: f64, ttl: &str) -> (Served, User) {
    let served = Served::with(Options { scale: Scale { time_scale }, ..Options::default() });
    let user = User::with_ready_stack(Some(&served.gke));
    std::fs::write(user.path().join("stack.toml"), STACK.replace("TTL", ttl)).unwrap();
    (served, user)
}

fn is_there(served: &Served, path: &str) -> bool {
    kube(served, &Method::GET, path, &Value::Null).0 == 200
}

fn until_gone(served: &Served) {
    let begun = Instant::now();
    while is_there(served, CLUSTER) {
        assert!(begun.elapsed() < Duration::from_secs(600), "the Dask cluster stays");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_cluster_whose_time_is_over_goes_and_stays_gone_until_it_is_started() {
    // Ten hours are 30 seconds.
    let (served, user) = lab(1200.0, "10h");
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert!(is_there(&served, CLUSTER) && is_there(&served, CRON));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    until_gone(&served);
    let plan = user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes").says("DI0389");
    assert!(plan.out.contains("10h after it is created"), "{}", plan.out);
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert!(!is_there(&served, CLUSTER) && is_there(&served, CRON));

    user.run(&["start", "dask_cluster.d", "--auto-approve"]).expect(0).says("3 added");
    assert!(is_there(&served, CLUSTER));
    // Without a ttl nothing waits for it any more.
    user.edit("ttl = \"10h\"\n", "");
    user.run(&["apply", "--auto-approve"]).expect(3).says("--allow delete:dask_cluster.d");
    user.run(&["apply", "--auto-approve", "--allow", "delete:dask_cluster.d"]).expect(0).says("4 destroyed");
    assert!(is_there(&served, CLUSTER) && !is_there(&served, CRON));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

#[test]
fn the_script_deletes_what_is_old_and_nothing_else() {
    if !on_path("python3", "--version") {
        println!("skipped: there is no python3");
        return;
    }
    let (served, user) = lab(1200.0, "365d");
    user.run(&["apply", "--auto-approve"]).expect(0);
    let config = served.sandbox.kubeconfig(&served.sandbox.clusters()[0]).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    let account = user.path().join("account");
    std::fs::create_dir(&account).unwrap();
    let authority = cluster["certificate-authority-data"].as_str().unwrap();
    let authority = base64::engine::general_purpose::STANDARD.decode(authority).unwrap();
    std::fs::write(account.join("ca.crt"), authority).unwrap();
    std::fs::write(account.join("token"), "anything\n").unwrap();
    let server = cluster["server"].as_str().unwrap().trim_start_matches("https://");
    let (host, port) = server.rsplit_once(':').unwrap_or((server, "443"));
    let run_in = |path: &str, seconds: &str, workload: &str| {
        let mut command = Command::new("python3");
        command.args(["-W", "ignore", "-c", SCRIPT]);
        // A proxy of the environment must not be asked.
        command.env("https_proxy", "http://127.0.0.1:1");
        command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
        command.env("DASK_INFRA_TTL_PATH", path).env("DASK_INFRA_TTL_SECONDS", seconds);
        command.env("DASK_INFRA_TTL_ACCOUNT", &account);
        command.env("DASK_INFRA_TTL_WORKLOAD", workload).env("DASK_INFRA_TTL_PAUSE", "0");
        Said::of(&command.output().unwrap())
    };
    let run = |path: &str, seconds: &str| run_in(path, seconds, "");
    // The CronJob stands for a Workload: what is not let start has no time, and one that nobody holds back has that of its
    // creation.
    run_in(CLUSTER, "0", CRON).expect(0).says("its time has not begun");
    run_in(CLUSTER, "86400", "/apis/batch/v1/namespaces/default/cronjobs/none")
        .expect(0)
        .says("stays until it is 86400 s old");
    let admitted = json!({ "status": { "conditions": [
        { "type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ] } });
    let scheduler = "/apis/apps/v1/namespaces/default/deployments/d-scheduler";
    assert_eq!(kube(&served, &Method::PATCH, &format!("{scheduler}/status"), &admitted).0, 200);
    run_in(CLUSTER, "31536000000", scheduler).expect(0).says("s in use, and stays until");
    run(CLUSTER, "86400").expect(0).says("stays until it is 86400 s old");
    assert!(is_there(&served, CLUSTER));
    run("/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/none", "0")
        .expect(0)
        .says("there is nothing to delete");
    run("/apis/kubernetes.dask.org/v1/namespaces/default/nonsense", "0").expect(0);
    run(CLUSTER, "0").expect(0).says("deleted: it was");
    until_gone(&served);
    run(CLUSTER, "0").expect(0);
}

#[test]
fn the_time_of_a_cluster_in_a_queue_begins_when_it_is_let_start() {
    let served = Served::with(Options { scale: Scale { time_scale: 1200.0 }, ..Options::default() });
    let user = User::empty_at(&served.gke);
    std::fs::copy(root().join("tests/data/kueue.yaml"), user.path().join("kueue.yaml")).unwrap();
    let cluster = "image = \"demo:1\"\nqueue = \"q\"\nscheduler = { cpu = \"500m\" }\nworker = { replicas = 2, cpu = \"500m\" }\n";
    let (target, _) = STACK.split_once("[dask_cluster.d]").unwrap();
    // Room for one of them.
    let queue = "[kueue]\nmanifest = \"kueue.yaml\"\n\n[queue.q]\ncpu = \"2\"\n\n[dask_cluster.first]\n";
    let stack = format!("{target}{queue}{cluster}");
    std::fs::write(user.path().join("stack.toml"), &stack).unwrap();
    user.run(&["apply", "--auto-approve"]).expect(0);
    let second = format!("{stack}\n[dask_cluster.d]\nttl = \"10h\"\n{cluster}");
    std::fs::write(user.path().join("stack.toml"), second).unwrap();
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7);
    let second = |object: &Value, pointer: &str| -> Option<i64> {
        Some(object.pointer(pointer)?.as_str()?.parse::<jiff::Timestamp>().ok()?.as_second())
    };
    // Ten hours are 30 seconds, and it is looked at every five minutes: while it waits its time has not begun.
    let (_, waits) = kube(&served, &Method::GET, CLUSTER, &Value::Null);
    let made = second(&waits, "/metadata/creationTimestamp").unwrap();
    loop {
        let (_, cron) = kube(&served, &Method::GET, CRON, &Value::Null);
        if second(&cron, "/status/lastScheduleTime").is_some_and(|looked| looked - made > 31) {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(is_there(&served, CLUSTER), "it was deleted while it waited");
    user.run(&["stop", "dask_cluster.first", "--auto-approve"]).expect(0);
    until_gone(&served);
    user.run(&["plan"]).expect(0).says("after its queue admits it");
}
