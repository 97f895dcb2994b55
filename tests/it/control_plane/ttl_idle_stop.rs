//! `ttl` and `idle_stop`: a Dask cluster that a CronJob deletes when its time is over or when it has been without work, on the
//! sandbox, and the CronJob's own script by a real Python: against the sandbox's API, a real API server with its rights, and a
//! real Dask scheduler.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::http::Method;
use base64::Engine as _;
use kinds::dask::expiry::SCRIPT;
use sandbox::{Options, Scale};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::control_plane::dask::{Deployments, pods};
use crate::golden::root;
use crate::real::{Access, Client, Dask, DaskFixture, PATIENCE, Part, needs};
use crate::sandbox_server::{CommandOutput, ON_GKE, SandboxServer, User, on_path};

const OPERATOR: &str = "\n[dask_operator]\nversion = \"2026.3.0\"\n";

const CLUSTERS: &str = r#"
[dask_cluster.d]
image = "demo:1"
ttl = "TTL"
worker = { replicas = { min = 1, max = 2 }, cpu = "500m" }

[dask_cluster.d.group.big]
replicas = 1
"#;

const CLUSTER: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/d";
const CRON: &str = "/apis/batch/v1/namespaces/default/cronjobs/d-ttl";

fn lab(time_scale: f64, ttl: &str) -> (SandboxServer, User) {
    let served = SandboxServer::with(Options { scale: Scale { time_scale }, ..Options::default() });
    let user = User::at(&served, format!("{ON_GKE}{OPERATOR}{}", CLUSTERS.replace("TTL", ttl)));
    (served, user)
}

fn is_there(served: &SandboxServer, path: &str) -> bool {
    served.code(path) == 200
}

/// A time in seconds since 1970.
fn seconds_of(object: &Value, pointer: &str) -> Option<i64> {
    Some(object.pointer(pointer)?.as_str()?.parse::<jiff::Timestamp>().ok()?.as_second())
}

/// Until a CronJob has looked after a second.
fn wait_until_looked(served: &SandboxServer, cron: &str, after: i64) {
    crate::sandbox_server::wait_until("it has looked", || {
        let cron = served.get(cron);
        seconds_of(&cron, "/status/lastScheduleTime").is_some_and(|looked| looked > after)
    });
}

fn wait_until_gone(served: &SandboxServer) {
    let begun = Instant::now();
    while is_there(served, CLUSTER) {
        assert!(begun.elapsed() < Duration::from_secs(600), "the Dask cluster stays");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// How to reach the sandbox's cluster, which takes any token.
pub fn access(served: &SandboxServer, user: &User) -> Access {
    let config = served.sandbox.kubeconfig(&served.sandbox.clusters()[0]).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    let authority = cluster["certificate-authority-data"].as_str().unwrap();
    let authority = base64::engine::general_purpose::STANDARD.decode(authority).unwrap();
    Access {
        server: cluster["server"].as_str().unwrap().to_owned(),
        token: "anything".to_owned(),
        ca_pem: String::from_utf8(authority).unwrap(),
        kubeconfig: user.path().join("none"),
    }
}

/// Returns the command of a CronJob's Job, by this Python and with an account's token.
pub fn look(access: &Access, folder: &Path, python: impl AsRef<std::ffi::OsStr>, cron: &Value) -> Command {
    let account = folder.join("account");
    std::fs::create_dir_all(&account).unwrap();
    std::fs::write(account.join("ca.crt"), &access.ca_pem).unwrap();
    std::fs::write(account.join("token"), format!("{}\n", access.token)).unwrap();
    let server = access.server.trim_start_matches("https://");
    let (host, port) = server.rsplit_once(':').unwrap_or((server, "443"));
    let container = &cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    let mut command = Command::new(python);
    let script = ["args", "command"].into_iter().find_map(|start| container[start][2].as_str());
    command.args(["-c", script.unwrap_or(SCRIPT)]);
    for variable in container["env"].as_array().into_iter().flatten() {
        command.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
    }
    // A proxy of the environment must not be asked.
    command.env("https_proxy", "http://127.0.0.1:1").env("HOME", folder);
    command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
    command.env("DASK_INFRA_REAPER_ACCOUNT", account);
    command
}

#[test]
fn a_cluster_whose_time_is_over_goes_and_stays_gone_until_it_is_started() {
    // Ten hours are 30 seconds.
    let (served, user) = lab(1200.0, "10h");
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert!(is_there(&served, CLUSTER) && is_there(&served, CRON));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    wait_until_gone(&served);
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
    let run_in = |path: &str, seconds: &str, workload: &str| {
        let mut command = look(&access(&served, &user), user.path(), "python3", &json!({}));
        command.env("DASK_INFRA_REAPER_PATH", path).env("DASK_INFRA_REAPER_SECONDS", seconds);
        command.env("DASK_INFRA_REAPER_WORKLOAD", workload).env("DASK_INFRA_REAPER_PAUSE", "0");
        CommandOutput::of(&command.output().unwrap())
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
    assert_eq!(served.merge(&format!("{scheduler}/status"), &admitted).0, 200);
    run_in(CLUSTER, "31536000000", scheduler).expect(0).says("s in use, and stays until");
    run(CLUSTER, "86400").expect(0).says("stays until it is 86400 s old");
    assert!(is_there(&served, CLUSTER));
    run("/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/none", "0")
        .expect(0)
        .says("there is nothing to delete");
    run("/apis/kubernetes.dask.org/v1/namespaces/default/nonsense", "0").expect(0);
    run(CLUSTER, "0").expect(0).says("deleted: it was");
    wait_until_gone(&served);
    run(CLUSTER, "0").expect(0);
}

#[test]
fn the_time_of_a_cluster_in_a_queue_begins_when_it_is_let_start() {
    let served = SandboxServer::fast();
    let user = User::empty_at(&served.gke);
    std::fs::copy(root().join("tests/data/kueue.yaml"), user.path().join("kueue.yaml")).unwrap();
    let cluster = "image = \"demo:1\"\nqueue = \"q\"\nscheduler = { cpu = \"500m\" }\nworker = { replicas = 2, cpu = \"500m\" }\n";
    let target = format!("{ON_GKE}{OPERATOR}\n");
    // Room for one of them.
    let queue = "[kueue]\nmanifest = \"kueue.yaml\"\n\n[queue.q]\ncpu = \"2\"\n\n[dask_cluster.first]\n";
    let stack = format!("{target}{queue}{cluster}");
    user.write(&stack);
    user.run(&["apply", "--auto-approve"]).expect(0);
    let second = format!("{stack}\n[dask_cluster.d]\nttl = \"10h\"\n{cluster}");
    user.write(second);
    user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7);
    // Ten hours are 30 seconds, and it is looked at every five minutes: while it waits its time has not begun.
    let waits = served.get(CLUSTER);
    let made = seconds_of(&waits, "/metadata/creationTimestamp").unwrap();
    wait_until_looked(&served, CRON, made + 31);
    assert!(is_there(&served, CLUSTER), "it was deleted while it waited");
    user.run(&["stop", "dask_cluster.first", "--auto-approve"]).expect(0);
    wait_until_gone(&served);
    user.run(&["plan"]).expect(0).says("after its queue admits it");
}

const IDLE_CRON: &str = "/apis/batch/v1/namespaces/default/cronjobs/d-idle";
const IDLE: &str = r#"
[dask_cluster.d]
image = "demo:1"
idle_stop = "365d"
worker = { replicas = 1, cpu = "100m" }

[dask_cluster.d.group.big]
replicas = 1
"#;

#[test]
fn a_cluster_without_work_goes_with_its_nodes_and_stays_gone_until_it_is_started() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    let target = format!("{ON_GKE}{OPERATOR}\n");
    let pool = "[node_pool.t4]\nmachine_type = \"n1-standard-4\"\naccelerator = \"nvidia-tesla-t4\"\n\
        nodes = { min = 0, max = 2 }\n\n";
    let workers = "worker = { replicas = 2, gpus = 1, pool = \"t4\" }\n";
    // Ten hours are 30 seconds.
    let cluster = format!("[dask_cluster.d]\nimage = \"demo:1\"\n{workers}");
    user.write(format!("{target}{pool}{cluster}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let tasks = |tasks: Value| {
        let path = "/api/v1/namespaces/default/services/d-scheduler";
        let patch = json!({ "metadata": { "annotations": { "sandbox.dask-infra.dev/tasks": tasks } } });
        assert_eq!(served.merge(path, &patch).0, 200);
    };
    tasks(json!("3"));
    // It comes to a cluster that is there.
    user.edit("image = \"demo:1\"\n", "image = \"demo:1\"\nidle_stop = \"10h\"\n");
    user.run(&["apply", "--auto-approve"]).expect(0).says("counts from the moment when its work ended");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    wait_until_looked(&served, IDLE_CRON, jiff::Timestamp::now().as_second() + 31);
    assert!(is_there(&served, CLUSTER), "it has work");
    tasks(Value::Null);
    let begun = Instant::now();
    wait_until_gone(&served);
    assert!(begun.elapsed() > Duration::from_secs(29), "work before counts as idle: {:?}", begun.elapsed());

    let gpus = "/api/v1/nodes?labelSelector=cloud.google.com%2Fgke-nodepool%3Dt4";
    crate::sandbox_server::wait_until("its nodes stay", || {
        let nodes = served.get(gpus);
        nodes["items"].as_array().is_some_and(Vec::is_empty)
    });

    let plan = user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes").says("DI0363");
    assert!(plan.out.contains("and its idle_stop"), "{}", plan.out);
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert!(!is_there(&served, CLUSTER) && is_there(&served, IDLE_CRON));
    user.run(&["start", "dask_cluster.d", "--auto-approve"]).expect(0).says("1 added");
    assert!(is_there(&served, CLUSTER));
    user.run(&["stop", "dask_cluster.d", "--auto-approve"]).expect(0);
    assert!(!is_there(&served, CLUSTER) && !is_there(&served, IDLE_CRON));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes").says("DI0385");
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

/// How many seconds a look found the cluster without work.
fn seconds_without_work(said: &CommandOutput) -> u64 {
    let words: Vec<&str> = said.out.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "without").expect(&said.out);
    words[at - 2].parse().expect(&said.out)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_asks_a_real_scheduler_and_work_between_two_looks_counts() {
    needs!(&[Part::Operator]);
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}{OPERATOR}{IDLE}"));
    block_in_place(|| user.run(&["apply", "--auto-approve"])).expect(0);
    let cron = block_in_place(|| served.get(IDLE_CRON));
    let asks_at = |address: &str, seconds: &str| {
        let mut command = look(&access(&served, &user), user.path(), Part::Operator.program("python"), &cron);
        command.env("DASK_INFRA_REAPER_SCHEDULER", address).env("DASK_INFRA_REAPER_SECONDS", seconds);
        command.env("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "2s");
        CommandOutput::of(&block_in_place(|| command.output()).unwrap())
    };
    let asks = |dask: &Dask, seconds: &str| asks_at(&dask.address(), seconds);

    let mut dask = Dask::start().await;
    // Its groups are to have two workers, and none has come.
    asks(&dask, "0").expect(0).says("it waits for its workers, and its time has not begun");
    dask.add_workers(&["w"]).await;
    asks(&dask, "86400").expect(0).says("s without work, and stays until it is 86400 s without work");
    let done = user.path().join("the-work-is-done");
    dask.work_until(&done).await;
    asks(&dask, "0").expect(0).says("it has work, and its time has not begun");
    std::fs::write(&done, "").unwrap();
    let begun = Instant::now();
    while asks(&dask, "86400").expect(0).out.contains("has work") {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays busy");
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = seconds_without_work(&asks(&dask, "86400").expect(0));
    assert!(before >= 2, "{before}");
    // Nobody looks while this begins and ends.
    let again = Instant::now();
    let script =
        format!("from distributed import Client\nClient('{}').submit(sum, [1]).result()", dask.address());
    dask.notebook(Path::new("none"), &script);
    let after = seconds_without_work(&asks(&dask, "86400").expect(0));
    assert!(after <= again.elapsed().as_secs(), "{after} s, and it had work {:?} ago", again.elapsed());

    let address = dask.address();
    drop(dask);
    let silent = asks_at(&address, "0").expect(1);
    silent.says("its scheduler does not say whether it has work, so it stays");
    assert!(block_in_place(|| is_there(&served, CLUSTER)));

    // A new scheduler knows no idleness of the old one.
    let mut dask = Dask::start().await;
    dask.add_workers(&["w"]).await;
    asks(&dask, "86400").expect(0).says("stays until it is 86400 s");
    tokio::time::sleep(Duration::from_secs(2)).await;
    asks(&dask, "1").expect(0).says("s without work").says("deleted: it was");
    block_in_place(|| wait_until_gone(&served));
    asks(&dask, "0").expect(0).says("there is nothing to delete");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_api_server_its_account_may_do_what_it_must_and_no_more() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator]);
    let mut fixture = DaskFixture::start(0).await;
    fixture.add(IDLE);
    fixture.run(&["apply", "--auto-approve"]).expect(0);
    fixture.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let path = "/api/v1/namespaces/default/serviceaccounts/d-idle/token";
    let (code, token) = fixture.client.send(Method::POST, path, "application/json", &request).await;
    assert_eq!(code, 201, "{token}");
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let access = Access { token, ..fixture.plane.access().clone() };
    let account = Client::new(&access);
    let dask = "/apis/kubernetes.dask.org/v1/namespaces/default";
    for (path, code) in [
        (format!("{dask}/daskclusters/d"), 200),
        (format!("{dask}/daskworkergroups/d-default"), 200),
        (format!("{dask}/daskworkergroups/d-big"), 200),
        (format!("{dask}/daskclusters"), 403),
        (format!("{dask}/daskclusters/other"), 403),
        (format!("{dask}/daskworkergroups"), 403),
        (IDLE_CRON.to_owned(), 403),
        ("/api/v1/namespaces/default/pods".to_owned(), 403),
        ("/api/v1/namespaces/default/secrets".to_owned(), 403),
    ] {
        assert_eq!(account.get(&path).await.0, code, "{path}");
    }
    for path in ["daskclusters/other", "daskworkergroups/d-big"] {
        assert_eq!(account.delete(&format!("{dask}/{path}")).await.0, 403, "{path}");
    }

    let (_, cron) = fixture.client.get(IDLE_CRON).await;
    let asks = |address: &str, seconds: &str| {
        let python = Part::Operator.program("python");
        let mut command = look(&access, fixture.user.path(), python, &cron);
        command.env("DASK_INFRA_REAPER_SCHEDULER", address).env("DASK_INFRA_REAPER_SECONDS", seconds);
        CommandOutput::of(&block_in_place(|| command.output()).unwrap())
    };
    asks(&fixture.dask.address(), "0").expect(0).says("it waits for its workers");
    fixture.dask.add_workers(&["w"]).await;
    asks(&fixture.dask.address(), "86400").expect(0).says("stays until it is 86400 s without work");
    tokio::time::sleep(Duration::from_secs(1)).await;
    asks(&fixture.dask.address(), "1").expect(0).says("deleted: it was");
    fixture.client.wait_gone(CLUSTER, "the DaskCluster stays").await;
    let begun = Instant::now();
    while pods(&fixture.client).await != Deployments::new() {
        assert!(begun.elapsed() < PATIENCE, "its Deployments stay");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let (code, plan) = fixture.plan();
    assert_eq!(code, 0, "{plan}");
    for words in ["DI0363", "and its idle_stop", "No changes"] {
        assert!(plan.contains(words), "no {words:?} in: {plan}");
    }
    fixture.run(&["start", "dask_cluster.d", "--auto-approve"]).expect(0).says("2 added");
    fixture.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    // The limits of the stack: the operator's finalizers are waited for, and what comes later is not known to it.
    fixture.user.edit("[stack]\n", "[stack]\nttl = \"12h\"\n");
    fixture.run(&["apply", "--auto-approve"]).expect(0);
    fixture.run(&["status"]).says("stops the stack in 11h59m");
    let (_, cron) = fixture.client.get("/apis/batch/v1/namespaces/dask-infra/cronjobs/s-stack-ttl").await;
    let path = "/api/v1/namespaces/dask-infra/serviceaccounts/s-stack-ttl/token";
    let (code, token) = fixture.client.send(Method::POST, path, "application/json", &request).await;
    assert_eq!(code, 201, "{token}");
    let access = Access { token: token["status"]["token"].as_str().unwrap().to_owned(), ..access };
    let account = Client::new(&access);
    for path in ["configmaps", "secrets", "configmaps/kube-root-ca.crt"] {
        assert_eq!(account.get(&format!("/api/v1/namespaces/dask-infra/{path}")).await.0, 403, "{path}");
    }
    let asks = |seconds: &str| {
        let mut command = look(&access, fixture.user.path(), "python3", &cron);
        command.env("DASK_INFRA_REAPER_SECONDS", seconds);
        CommandOutput::of(&block_in_place(|| command.output()).unwrap())
    };
    asks("86400").expect(0).says("s old, and stays until it is 86400 s old");
    asks("0").expect(0).says("stopped: it was").says("deleted: /apis/kubernetes.dask.org");
    assert_eq!(fixture.client.get(CLUSTER).await.0, 404);
    let (code, plan) = fixture.plan();
    assert_eq!(code, 0, "{plan}");
    assert!(plan.contains("stopped by the stack's ttl since"), "{plan}");
    fixture.run(&["status"]).says("stopped by the stack's ttl since");
    fixture.run(&["start", "dask_cluster.d", "--auto-approve"]).expect(0).says("4 added");
    asks("86400").expect(0).says("s old, and stays until it is 86400 s old");

    fixture.user.edit("ttl = \"12h\"\n", "idle_stop = \"12h\"\n");
    fixture.run(&["apply", "--auto-approve", "--allow", "delete:stack.ttl"]).expect(0);
    let (_, cron) = fixture.client.get("/apis/batch/v1/namespaces/dask-infra/cronjobs/s-stack-idle").await;
    let path = "/api/v1/namespaces/dask-infra/serviceaccounts/s-stack-idle/token";
    let (code, token) = fixture.client.send(Method::POST, path, "application/json", &request).await;
    assert_eq!(code, 201, "{token}");
    let access = Access { token: token["status"]["token"].as_str().unwrap().to_owned(), ..access };
    // Its scheduler listens here.
    let inside = "tcp://d-scheduler.default.svc.cluster.local:8786";
    let cron: Value =
        serde_json::from_str(&cron.to_string().replace(inside, &fixture.dask.address())).unwrap();
    let asks = |seconds: &str| {
        let python = Part::Operator.program("python");
        let mut command = look(&access, fixture.user.path(), python, &cron);
        command.env("DASK_INFRA_REAPER_SECONDS", seconds);
        CommandOutput::of(&block_in_place(|| command.output()).unwrap())
    };
    asks("86400").expect(0).says("s without work, and stays until it is 86400 s without work");
    // It knows of work when its Dask cluster is gone.
    let noted = format!("{}", jiff::Timestamp::now().as_second() + 1);
    let annotations = json!({ "metadata": { "annotations": { "dask-infra.dev/worked": noted } } });
    let path = "/apis/batch/v1/namespaces/dask-infra/cronjobs/s-stack-idle";
    let (code, said) =
        fixture.client.send(Method::PATCH, path, "application/merge-patch+json", &annotations).await;
    assert_eq!(code, 200, "{said}");
    asks("10").expect(0).says("stays until it is 10 s without work");
    tokio::time::sleep(Duration::from_secs(2)).await;
    asks("1").expect(0).says("stopped: it was");
    fixture.run(&["status"]).says("stopped by the stack's idle_stop since");
    fixture.run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"]).expect(0);
    fixture.client.wait_gone("/api/v1/namespaces/dask-infra", "the namespace of records stays").await;
}
