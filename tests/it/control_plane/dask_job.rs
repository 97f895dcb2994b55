//! A job beside a cluster with an autoscaler and a second group of GPU workers, on a real control plane with the real Dask
//! operator: how a job ends, what makes it run again and what never does, and what else becomes of the stack's things.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use reqwest::Method;
use serde_json::{Value, json};

use crate::control_plane::dask::{Deployments, describe_changes, pods};
use crate::real::{DaskFixture, Part, needs};

const JOB: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskjobs/train";
const CLUSTERS: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters";
const RUNNER: &str = "/api/v1/namespaces/default/pods/train-runner";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MERGE: &str = "application/merge-patch+json";

const DASK: &str = r#"
[dask_cluster.d]
image = "demo:1"
scheduler = { cpu = "100m" }
worker = { replicas = { min = 1, max = 3 }, cpu = "100m" }

[dask_cluster.d.group.big]
replicas = 1
gpus = 1
resources = { GPU = 1 }

[dask_job.train]
like = "d"
image = "demo:succeeds"
args = ["python", "train.py"]
replicas = 1
wait = true
"#;

/// A step between two applies.
enum Act {
    Edit(&'static str, &'static str),
    /// Somebody changes the job's object.
    ByHand(Value),
    /// It is asked for.
    Replace,
}

/// The effect on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Kept,
    New,
    Gone,
}

struct Row {
    act: Act,
    says: &'static [&'static str],
    allow: &'static str,
    /// The exit code of the apply and what it says.
    ends: (i32, &'static [&'static str]),
    /// Changes of schedulers and workers, without those of the job; empty if all are kept.
    worker_changes: &'static str,
    job: Job,
}

fn edit(from: &'static str, to: &'static str, says: &'static [&'static str]) -> Row {
    Row { act: Act::Edit(from, to), says, allow: "", ends: (0, &[]), worker_changes: "", job: Job::Kept }
}

/// An edit after which the job runs again.
fn reruns(from: &'static str, to: &'static str, says: &'static [&'static str]) -> Row {
    let ends: (i32, &[&str]) = (0, &["loss 0.1", "1 replaced"]);
    Row { allow: "replace:dask_job.train", ends, job: Job::New, ..edit(from, to, says) }
}

const ONCE: &str = "a job runs once: a changed job is deleted and runs again";

/// The edits, each on top of those before.
fn rows() -> Vec<Row> {
    vec![
        edit("max = 3", "max = 4", &["spec.maximum: 3 -> 4"]),
        Row {
            worker_changes: "d-big 1 kept, d-default 1 kept 1 new, d-scheduler 1 kept",
            ..edit("min = 1", "min = 2", &["spec.minimum: 1 -> 2"])
        },
        Row {
            allow: "replace:dask_cluster.d",
            worker_changes: "d-big 1 new 1 gone, d-default 2 new 2 gone, d-scheduler 1 new 1 gone",
            ..edit(
                "image = \"demo:1\"",
                "image = \"demo:2\"",
                &[
                    "\"demo:1\" -> \"demo:2\"",
                    "deleted with dask_cluster.d",
                    "the job copied its cluster when it started",
                ],
            )
        },
        Row {
            allow: "replace:dask_cluster.d.group.big",
            worker_changes: "d-big 1 new 1 gone, d-default 2 kept, d-scheduler 1 kept",
            ..edit("gpus = 1", "gpus = 2", &["limits.\"nvidia.com/gpu\": \"1\" -> \"2\""])
        },
        Row {
            allow: "replace:dask_cluster.e.group.big",
            worker_changes: "d-big 1 new 1 gone, d-default 2 kept, d-scheduler 1 kept, e-scheduler 1 new",
            ..edit(
                "[dask_cluster.d.group.big]\n",
                "[dask_cluster.e]\nimage = \"demo:2\"\nworker = { replicas = 0 }\n\n[dask_cluster.e.group.big]\nname = \"d-big\"\n",
                &["+ dask_cluster.e", "a group belongs to the cluster it was created for"],
            )
        },
        reruns("train.py", "train2.py", &[ONCE, "\"train.py\" -> \"train2.py\""]),
        reruns(
            "replicas = 1\nwait",
            "replicas = 2\nenv = { LR = \"0.1\" }\nwait",
            &[ONCE, "env", "spec.cluster.spec.worker.replicas: 1 -> 2"],
        ),
        edit("\nwait = true", "", &["No changes"]),
        edit("env = { LR", "wait = true\nenv = { LR", &["No changes"]),
        Row {
            act: Act::ByHand(json!({ "spec": { "job": { "spec": { "containers": [
                { "name": "job", "image": "demo:other" },
            ] } } } })),
            ..edit("", "", &["the job does not run again because of it", "changed by kubectl"])
        },
        Row { act: Act::Replace, ..reruns("", "", &["as requested"]) },
        Row {
            ends: (1, &["DI0403", "its program failed with exit code 3", "loss 0.1"]),
            ..reruns("demo:succeeds", "demo:fails", &["\"demo:succeeds\" -> \"demo:fails\""])
        },
        reruns(
            "image = \"demo:fails\"",
            "image = \"demo:flaky\"\nrestart = \"on-failure\"",
            &["DI0263", "spec.job.spec.restartPolicy: \"Never\" -> \"OnFailure\""],
        ),
        Row {
            ends: (1, &["DI0403", "train-runner: CrashLoopBackOff"]),
            ..reruns("demo:flaky", "demo:crashes", &["\"demo:flaky\" -> \"demo:crashes\""])
        },
        reruns("demo:crashes\"\nrestart = \"on-failure\"", "demo:succeeds\"", &["-> \"demo:succeeds\""]),
        Row {
            allow: "delete:dask_cluster.d/DaskAutoscaler/default/d",
            ..edit("{ min = 2, max = 4 }", "2", &["delete: DaskAutoscaler default/d", "1 to destroy"])
        },
        Row {
            allow: "delete:dask_job.train",
            job: Job::Gone,
            ..edit(
                "[dask_job.train]\nlike = \"d\"\nimage = \"demo:succeeds\"\nargs = [\"python\", \"train2.py\"]\n\
                 replicas = 2\nwait = true\nenv = { LR = \"0.1\" }\n",
                "",
                &["- dask_job.train"],
            )
        },
    ]
}

/// Schedulers and workers that stay: the operator takes a job's own away when it ends.
async fn workers(fixture: &DaskFixture) -> Deployments {
    let mut found = pods(&fixture.client).await;
    found.retain(|name, _| !name.starts_with("train"));
    found
}

/// The job's object and the run that it stands for.
async fn run_of(fixture: &DaskFixture) -> Option<(Value, Value)> {
    let (code, job) = fixture.client.get(JOB).await;
    let (_, runner) = fixture.client.get(RUNNER).await;
    (code == 200).then(|| (job["metadata"]["uid"].clone(), runner["metadata"]["uid"].clone()))
}

/// The cluster of a job that has ended goes, and that is no drift.
async fn cluster_of_the_job_goes(fixture: &DaskFixture) {
    let none = |list: &Value| {
        let items = list["items"].as_array().unwrap();
        !items.iter().any(|item| item["metadata"]["name"].as_str().unwrap().starts_with("train"))
    };
    fixture.client.wait(CLUSTERS, "the job's cluster goes", none).await;
    fixture.client.wait(DEPLOYMENTS, "its Deployments go", none).await;
}

/// One edit: what the plan says, what the apply says, what became of everything, and an empty plan after it.
async fn row(fixture: &DaskFixture, number: usize, row: Row) -> Vec<String> {
    let Row { act, says, allow, ends: (exit, telling), worker_changes: expect, job } = row;
    let (before, run_before) = (workers(fixture).await, run_of(fixture).await);
    let mut words = vec!["apply", "--auto-approve"];
    let what = match act {
        Act::Edit(from, to) => {
            fixture.user.edit(from, to);
            format!("{number}: {from:?} -> {to:?}")
        }
        Act::ByHand(patch) => {
            let path = format!("{JOB}?fieldManager=kubectl");
            let (code, said) = fixture.client.send(Method::PATCH, &path, MERGE, &patch).await;
            assert_eq!(code, 200, "{said}");
            format!("{number}: by hand {patch}")
        }
        Act::Replace => {
            words.extend(["--replace", "dask_job.train"]);
            format!("{number}: --replace")
        }
    };
    println!("{what}");
    let mut wrong = Vec::new();
    if !allow.is_empty() {
        fixture.run(&words).expect(3);
        assert_eq!(run_of(fixture).await, run_before, "{what}: without consent nothing is done");
        words.extend(["--allow", allow]);
    }
    let said = fixture.run(&words).expect(exit);
    let text = format!("{}{}", said.out, said.err);
    // An apply begins with its plan.
    let plan = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let unsaid = says.iter().filter(|words| !plan.contains(*words));
    wrong.extend(unsaid.map(|words| format!("{what}: no {words:?} in: {plan}")));
    let unsaid = telling.iter().filter(|words| !text.contains(*words));
    wrong.extend(unsaid.map(|words| format!("{what}: no {words:?} in the apply:\n{text}")));
    let run_after = run_of(fixture).await;
    let found = match (&run_before, &run_after) {
        (_, None) => Job::Gone,
        (before, after) if before == after => Job::Kept,
        (Some((job, runner)), Some((new_job, new_runner))) if job != new_job && runner != new_runner => {
            Job::New
        }
        other => panic!("{what}: half a new run: {other:?}"),
    };
    if found != job {
        wrong.push(format!("{what}: the job is {found:?}, not {job:?}"));
    }
    if !text.contains("CrashLoopBackOff") {
        cluster_of_the_job_goes(fixture).await;
    }
    let (code, plan) = fixture.plan();
    let failed = exit == 1 && job == Job::New && !text.contains("CrashLoopBackOff");
    if code != 0 || failed && !plan.contains("the job failed; `--replace dask_job.train` runs it again") {
        wrong.push(format!("{what}: then a plan ends with {code} and says {plan}"));
    }
    let kept: Vec<String> = before.iter().map(|(name, all)| format!("{name} {} kept", all.len())).collect();
    let expect = if expect.is_empty() { kept.join(", ") } else { expect.to_owned() };
    let begun = std::time::Instant::now();
    let mut found = describe_changes(&before, &workers(fixture).await);
    // The autoscaler acts on its own.
    while found != expect && begun.elapsed() < crate::real::PATIENCE && what.contains("min = 1") {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        found = describe_changes(&before, &workers(fixture).await);
    }
    if found != expect {
        wrong.push(format!("{what}: {expect:?} is expected and {found:?} is seen"));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_once_and_is_followed_to_its_end() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator]);
    let fixture = DaskFixture::start(8).await;
    fixture.add(DASK);
    let said = fixture.run(&["apply", "--auto-approve"]).expect(0).says("4 added");
    said.says("loss 0.1");
    cluster_of_the_job_goes(&fixture).await;
    assert_eq!(fixture.client.get(JOB).await.1["status"]["jobStatus"], "Successful");
    fixture.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    let rows = rows();
    println!("{} rows", rows.len());
    let mut wrong = Vec::new();
    for (number, each) in rows.into_iter().enumerate() {
        let restarts = matches!(each.act, Act::Edit(_, to) if to.contains("demo:flaky"));
        wrong.extend(row(&fixture, number, each).await);
        if restarts {
            let runner = fixture.client.get(RUNNER).await.1;
            assert_eq!(runner["status"]["containerStatuses"][0]["restartCount"], 1, "{runner}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    fixture
        .run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"])
        .expect(0)
        .says("Destroy complete");
    fixture.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
    assert_eq!(pods(&fixture.client).await, Deployments::new());
    for left in [JOB, RUNNER, CLUSTERS] {
        assert_eq!(fixture.client.get(left).await.0, 404, "{left}");
    }
    assert!(!fixture.operator.tail().contains("Traceback"), "{}", fixture.operator.tail());
    drop(fixture.plane);
}
