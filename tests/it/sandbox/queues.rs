//! Queues from the stack to the end, on a sandbox that plays Kueue: a gang waits whole, says so, and starts whole when
//! another goes.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::fs;

use kinds::kubernetes::kueue;
use model::resource::Identity;
use model::schema::{self, Schema};
use serde_json::{Value, json};
use stack::lower::lower;
use stack::{Options, parse_in};

use crate::golden::{cases, root};
use crate::sandbox_server::{ON_GKE, RunningCommand, SandboxServer, User, wait_until};

const STACK: &str = r#"
[node_pool.t4]
machine_type = "n1-standard-4"
accelerator = "nvidia-tesla-t4"
nodes = 4

[dask_operator]
version = "2026.3.0"

[kueue]
manifest = "kueue.yaml"

[queue.research]
pool = "t4"

[dask_cluster.one]
image = "demo:1"
queue = "research"
scheduler = { pool = "cpu" }
worker = { replicas = 3, gpus = 1, pool = "t4" }
"#;

const TWO: &str = r#"
[dask_cluster.two]
image = "demo:1"
queue = "research"
scheduler = { pool = "cpu" }
worker = { replicas = 2, gpus = 1, pool = "t4" }
"#;

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";

fn user(served: &SandboxServer, stack: &str) -> User {
    let user = User::empty_at(&served.gke);
    fs::copy(root().join("tests/data/kueue.yaml"), user.path().join("kueue.yaml")).unwrap();
    user.write(format!("{ON_GKE}{stack}"));
    user
}

/// How many of a Dask cluster's pods there are, and how many of them Kueue holds back.
fn pods(served: &SandboxServer, cluster: &str) -> (usize, usize) {
    let path = format!("/api/v1/namespaces/default/pods?labelSelector=dask.org%2Fcluster-name%3D{cluster}");
    let found = served.get(&path);
    let pods = found["items"].as_array().unwrap();
    (pods.len(), pods.iter().filter(|pod| kueue::workload::is_gated(pod)).count())
}

fn parked(served: &SandboxServer, workload: &str, is: bool) {
    let patch = json!({ "spec": { "active": !is } });
    assert_eq!(served.merge(&format!("{WORKLOADS}/{workload}"), &patch).0, 200);
}

#[test]
fn a_gang_waits_whole_and_starts_when_another_goes() {
    let served = SandboxServer::fast();
    let user = user(&served, STACK);
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(pods(&served, "one"), (4, 0));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let said = user.run(&["status"]).expect(0).out;
    assert!(said.contains("1 running, 0 waiting for quota"), "{said}");

    // Three of four GPUs are taken, and the second gang needs two.
    user.edit("[dask_cluster.one]", &format!("{}\n[dask_cluster.one]", TWO.trim_start()));
    let mut apply = RunningCommand::start(&user, &["apply", "--auto-approve"]);
    apply.wait_until("insufficient unused quota for nvidia.com/gpu in flavor t4, 1 more needed");
    assert_eq!(pods(&served, "two"), (3, 3), "none of its pods has started");
    let phase = served.get("/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/two");
    assert_eq!(phase["status"]["phase"], "Running", "what the operator says of it");
    let said = user.run(&["status"]);
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("waits in queue research:") && words.contains("(since 20"), "{}", said.out);
    let why = user.run(&["why", "dask_cluster.two"]);
    let words = format!("{} {}", why.out, why.err).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("1 more needed"), "{words}");

    // The first gives its GPUs back, and the second starts whole.
    parked(&served, "one", true);
    assert_eq!(apply.end(), Some(0));
    assert_eq!(pods(&served, "two"), (3, 0));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // Both cannot run; what waits is not drift.
    parked(&served, "one", false);
    user.edit(TWO.trim_start(), "");
    user.run(&["apply", "--auto-approve", "--allow", "delete:dask_cluster.two"])
        .expect(0)
        .says("1 destroyed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty());
}

#[test]
fn an_apply_leaves_what_waits_and_the_next_one_goes_on() {
    let served = SandboxServer::fast();
    let user = user(&served, &format!("{STACK}{TWO}"));
    let said = user.run(&["apply", "--auto-approve", "--wait", "1s"]).expect(7);
    let text = format!("{}{}", said.out, said.err).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Waiting for capacity: dask_cluster."), "{text}");
    // One of the two starts first.
    wait_until("one waits for the other", || user.run(&["status"]).out.contains("queue research"));
    let (ran, waits) = if pods(&served, "one").1 == 0 { ("one", "two") } else { ("two", "one") };
    let gated = pods(&served, waits);
    assert_eq!(gated.0, gated.1, "{waits} waits whole");
    parked(&served, ran, true);
    user.run(&["apply", "--auto-approve"]);
    assert_eq!(pods(&served, waits).1, 0, "{waits} has started");
}

#[test]
fn a_queue_goes_with_nothing_of_it_left() {
    let served = SandboxServer::fast();
    let user = user(&served, STACK);
    user.run(&["apply", "--auto-approve"]).expect(0);

    // Others wait in the queue.
    let resources = json!({ "limits": { "nvidia.com/gpu": "4" } });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "theirs", "namespace": "default", "labels": { "kueue.x-k8s.io/queue-name": "research" },
        },
        "spec": { "containers": [{ "name": "a", "image": "demo:1", "resources": resources }] },
    });
    assert_eq!(served.post("/api/v1/namespaces/default/pods", &pod).0, 201);
    served.sandbox.clusters();

    let whole = user.stack();
    let without = whole.split("[queue.research]").next().unwrap().to_owned();
    user.write(without);
    let allow = ["--allow", "delete:dask_cluster.one", "--allow", "delete:queue.research"];
    let words: Vec<&str> = ["apply", "--auto-approve"].into_iter().chain(allow).collect();
    let said = user.run(&words).expect(3);
    let text = format!("{}{}", said.out, said.err).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("it waits in queue research, and would wait forever"), "{text}");
    assert!(text.contains("DI0383"), "{text}");

    assert_eq!(served.delete("/api/v1/namespaces/default/pods/theirs"), 200);
    user.run(&words).expect(0);
    let left = |path: &str| served.get(path)["items"].as_array().unwrap().len();
    assert_eq!(left(WORKLOADS), 0);
    for kind in ["clusterqueues", "resourceflavors", "localqueues"] {
        assert_eq!(left(&format!("/apis/kueue.x-k8s.io/v1beta2/{kind}")), 0, "{kind}");
    }
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

/// An object that Kueue keeps while it is in use is not replaced, and the stack's own work is not reported as foreign.
#[test]
fn a_queue_with_own_work_is_not_replaced_and_kueue_goes_with_it() {
    let served = SandboxServer::fast();
    let user = user(&served, STACK);
    user.run(&["apply", "--auto-approve"]).expect(0);
    for what in ["queue.research", "queue.research/ResourceFlavor/t4"] {
        let said = user.run(&["plan", "--replace", what]).expect(1).says("DI0383");
        assert_eq!(said.err.matches("DI0383").count(), 1, "{}", said.err);
    }
    user.run(&["plan", "--replace", "queue.research/LocalQueue/default/research"]).expect(0);

    user.edit("[kueue]\nmanifest = \"kueue.yaml\"\n\n[queue.research]\npool = \"t4\"\n", "");
    user.edit("queue = \"research\"\n", "");
    let said = user.run(&["plan"]).expect(0).says("replace:dask_cluster.one").says("delete:queue.research");
    assert!(!said.out.contains("others."), "{}", said.out);
    let allowed = ["replace:dask_cluster.one", "delete:queue.research", "delete:kueue"];
    let allowed = allowed.into_iter().flat_map(|what| ["--allow", what]);
    let words: Vec<&str> = ["apply", "--auto-approve"].into_iter().chain(allowed).collect();
    user.run(&words).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

/// A job says what Kueue says of it: what it waits for, and that it was given up, which no waiting changes.
#[test]
fn a_job_in_a_queue_says_what_kueue_says() {
    let served = SandboxServer::fast();
    let job = "\n[job.train]\nimage = \"demo:1\"\nargs = [\"train\"]\ngpus = 1\npool = \"t4\"\nparallelism = 2\n\
               queue = \"research\"\n";
    let user = user(&served, STACK);
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.write(format!("{ON_GKE}{STACK}{job}"));
    let wait = ["apply", "--auto-approve", "--wait", "1s"];
    user.run(&wait).expect(7).says("1 more needed");
    user.run(&["status", "job.train"]).says("1 more needed");
    user.run(&["why", "job.train"]).says("1 more needed");

    let all = served.get(WORKLOADS);
    let of_job = |workload: &&Value| workload["metadata"]["ownerReferences"][0]["name"] == "train";
    let own = all["items"].as_array().unwrap().iter().find(of_job).unwrap();
    let own = own["metadata"]["name"].as_str().unwrap();
    parked(&served, own, true);
    user.run(&wait).expect(1).says("it is parked").says(&format!("patch workload {own}"));
    user.run(&["why", "job.train"]).says("it is parked");

    parked(&served, own, false);
    parked(&served, "one", true);
    user.run(&["apply", "--auto-approve", "--target", "job.train"]).expect(0);
}

/// Objects of sections fit the CRDs of Kueue 0.15.0, without unknown fields.
#[test]
fn queues_fit_kueues_own_definitions() {
    let env = |_: &str| Some("demo".to_owned());
    let options = Options { env: &env, vars: &BTreeMap::new(), helm: None };
    let data = root().join("tests/data");
    let loaded =
        parse_in(&data, "stack.toml", &format!("{ON_GKE}{STACK}"), &options).unwrap_or_else(|failure| {
            panic!("{}", failure.diagnostics.len());
        });
    let kueue = loaded.stack.kueue.unwrap();
    let schema = |kind: &str| {
        let definition = kueue.objects.iter().find(|object| object["spec"]["names"]["kind"] == kind)?;
        Some(Schema::from_crd(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    };
    let mut count = 0;
    for case in cases("plan-").into_iter().chain(cases("plan-stack-queued")) {
        let text = fs::read_to_string(case.join("stack.toml")).unwrap();
        if !text.contains("[queue.") && !text.contains("dws-queues.yaml") {
            continue;
        }
        let helm = crate::charts::recorded(&case, "stack");
        let options = Options { helm: Some(&helm), ..options };
        let Ok(loaded) = parse_in(&case, "stack.toml", &text, &options) else { panic!("{}", case.display()) };
        for resource in lower(&loaded.stack, true).resources.iter() {
            let Identity::Object(object) = &resource.identity else { continue };
            if object.gvk.group != kueue::GROUP {
                continue;
            }
            assert_eq!(object.gvk.version, kueue::VERSION, "{}", resource.address);
            let shape =
                schema(&object.gvk.kind).unwrap_or_else(|| panic!("no definition of {}", object.gvk.kind));
            let problems: Vec<String> =
                schema::check(&shape, &resource.body).iter().map(ToString::to_string).collect();
            assert!(problems.is_empty(), "{}: {}\n{problems:?}", case.display(), resource.address);
            count += 1;
        }
    }
    assert!(count >= 30, "{count} objects");
}
