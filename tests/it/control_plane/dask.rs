//! Worker groups, autoscalers and numbers of workers on a real control plane with the real Dask operator: what a plan
//! says of an edit, and what becomes of the workers. After each edit the next plan is empty.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{Client, ControlPlane, CudaCheck, Dask, Operator, Part, needs};
use crate::sandbox_server::{CommandOutput, User};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

/// The uids of Deployments by what they are of.
pub type Deployments = BTreeMap<String, BTreeSet<String>>;

const GROUPS: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups";
const AUTOSCALERS: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskautoscalers";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MERGE: &str = "application/merge-patch+json";

const OPERATOR: &str = "[dask_operator]\nversion = \"2026.3.0\"\n";

const DASK: &str = r#"
[dask_cluster.d]
image = "demo:1"
scheduler = { cpu = "100m" }
worker = { replicas = 1, cpu = "100m" }

[dask_cluster.d.group.big]
replicas = 1
cpu = "200m"
"#;

fn stack(kubeconfig: &str, rest: &str) -> String {
    format!("[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n{OPERATOR}{rest}")
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

/// The Deployments of schedulers and workers by what they are of: `scheduler`, or the group's name.
pub async fn pods(client: &Client) -> Deployments {
    let mut found = Deployments::new();
    let (_, list) = client.get(DEPLOYMENTS).await;
    for item in items(&list) {
        let group = match text(item, "/metadata/labels/dask.org~1workergroup-name") {
            "" => text(item, "/metadata/name"),
            group => group,
        };
        found.entry(group.to_owned()).or_default().insert(text(item, "/metadata/uid").to_owned());
    }
    found
}

/// `d-big 1 kept 1 new, d-default 1 kept, d-scheduler 1 kept`.
pub fn describe_changes(before: &Deployments, after: &Deployments) -> String {
    let none = BTreeSet::new();
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |name: &&String| {
        let (old, new) = (before.get(*name).unwrap_or(&none), after.get(*name).unwrap_or(&none));
        let counts = [
            (old.intersection(new).count(), "kept"),
            (new.difference(old).count(), "new"),
            (old.difference(new).count(), "gone"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
        format!("{name} {}", counts.join(" "))
    };
    names.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// A step between two applies.
enum Act {
    /// The stack file is edited.
    Edit(Vec<(&'static str, &'static str)>),
    /// Somebody scales a worker group: `kubectl scale` goes by the subresource, `KubeCluster.scale` by the object.
    Scale { group: &'static str, to: u64, by: &'static str },
}

/// An act, what the plan says of it, and what becomes of schedulers and workers.
struct Row {
    act: Act,
    says: &'static [&'static str],
    allow: &'static [&'static str],
    worker_changes: &'static str,
}

fn edit(
    from: &'static str,
    to: &'static str,
    says: &'static [&'static str],
    allow: &'static [&'static str],
    worker_changes: &'static str,
) -> Row {
    Row { act: Act::Edit(vec![(from, to)]), says, allow, worker_changes }
}

/// Edits that are applied at once.
fn edits(
    all: &[(&'static str, &'static str)],
    says: &'static [&'static str],
    allow: &'static [&'static str],
    worker_changes: &'static str,
) -> Row {
    Row { act: Act::Edit(all.to_vec()), says, allow, worker_changes }
}

const REMADE: &str = "d-big 1 new 1 gone, d-default 1 new 1 gone, d-scheduler 1 new 1 gone";

const NEW_ONLY: &str = "the operator sets it on new workers only";
const READ_ONCE: &str = "the operator reads it only when it creates the cluster";
const ALONG: &str = "deleted with dask_cluster.d, then recreated";

/// The edits, each on top of those before.
fn rows() -> Vec<Row> {
    let kept = "d-big 1 kept, d-default 1 kept, d-scheduler 1 kept";
    let big = "d-big 1 new 1 gone, d-default 1 kept, d-scheduler 1 kept";
    let only_big: &[&str] = &["replace:dask_cluster.d.group.big"];
    let only_cluster: &[&str] = &["replace:dask_cluster.d"];
    vec![
        // Edits that reach no worker.
        edit(
            "[dask_cluster.d]\n",
            "[dask_cluster.d]\nannotations = { note = \"x\" }\nidle_timeout = 86400\nlabels = { team = \"a\" }\n",
            &[
                "metadata.labels.team",
                "metadata.annotations",
                "what the operator created keeps the old value",
                "spec.idleTimeout: 0 -> 86400",
            ],
            &[],
            kept,
        ),
        edit(
            "idle_timeout = 86400",
            "idle_timeout = 90000",
            &["spec.idleTimeout: 86400 -> 90000"],
            &[],
            kept,
        ),
        // A group's pods: the group is made anew, nobody else's workers are touched.
        edit("cpu = \"200m\"", "cpu = \"300m\"", &["dask_cluster.d.group.big", NEW_ONLY], only_big, big),
        edit(
            "cpu = \"300m\"",
            "cpu = \"300m\"\nmemory = \"1Gi\"\nenv = { COLOUR = \"red\" }\nresources = { GPU = 1 }\nimage = \"demo:2\"\ngpus = 1",
            &["memory", "COLOUR", "--resources", "\"demo:1\" -> \"demo:2\"", "nvidia.com/gpu", NEW_ONLY],
            only_big,
            big,
        ),
        edit(
            "cpu = \"300m\"",
            "cpu = \"300m\"\nargs = [\"dask\", \"worker\"]",
            &["spec.worker.spec.containers[0].args", NEW_ONLY],
            only_big,
            big,
        ),
        edit("args = [\"dask\", \"worker\"]\n", "", &[NEW_ONLY], only_big, big),
        // A group of another name is another group.
        edit(
            "group.big]\n",
            "group.big]\nname = \"large\"\n",
            &["1 to add", "1 to destroy"],
            &["delete:dask_cluster.d.group.big"],
            "d-big 1 gone, d-default 1 kept, d-scheduler 1 kept, large 1 new",
        ),
        // The key is only the address.
        edit(
            "group.big]\n",
            "group.huge]\n",
            &["No changes"],
            &[],
            "d-default 1 kept, d-scheduler 1 kept, large 1 kept",
        ),
        edit(
            "group.huge]\nname = \"large\"\n",
            "group.big]\n",
            &["1 to add", "1 to destroy"],
            &["delete:dask_cluster.d.group.big"],
            "d-big 1 new, d-default 1 kept, d-scheduler 1 kept, large 1 gone",
        ),
        edit(
            "[dask_cluster.d.group.big]",
            "[dask_cluster.d.group.small]\nreplicas = 2\n\n[dask_cluster.d.group.big]",
            &["+ dask_cluster.d.group.small"],
            &[],
            "d-big 1 kept, d-default 1 kept, d-scheduler 1 kept, d-small 2 new",
        ),
        edit(
            "[dask_cluster.d.group.small]\nreplicas = 2\n\n",
            "",
            &["- dask_cluster.d.group.small"],
            &["delete:dask_cluster.d.group.small"],
            "d-big 1 kept, d-default 1 kept, d-scheduler 1 kept, d-small 2 gone",
        ),
        // The cluster's: it takes its groups ALONG, and they come back with it.
        edit(
            "worker = { replicas = 1, cpu = \"100m\" }",
            "worker = { replicas = 1, cpu = \"110m\" }",
            &[READ_ONCE, ALONG],
            only_cluster,
            REMADE,
        ),
        edits(
            &[
                ("scheduler = { cpu = \"100m\" }", "scheduler = { cpu = \"110m\" }"),
                ("labels =", "service = \"NodePort\"\nlabels ="),
            ],
            &["spec.scheduler.service.type", "110m", READ_ONCE, ALONG],
            only_cluster,
            REMADE,
        ),
        edits(
            &[
                ("image = \"demo:1\"", "image = \"demo:3\""),
                ("cpu = \"110m\" }\n\n", "cpu = \"110m\", resources = { GPU = 1 } }\n\n"),
            ],
            &["\"demo:1\" -> \"demo:3\"", "--resources", ALONG],
            only_cluster,
            REMADE,
        ),
        // Numbers.
        edits(
            &[
                ("worker = { replicas = 1", "worker = { replicas = 2"),
                ("group.big]\nreplicas = 1", "group.big]\nreplicas = 2"),
            ],
            &["spec.worker.replicas: 1 -> 2", "2 to change"],
            &[],
            "d-big 1 kept 1 new, d-default 1 kept 1 new, d-scheduler 1 kept",
        ),
        // Given to notebooks: nothing dips, and what notebooks do is theirs.
        edit(
            "worker = { replicas = 2",
            "worker = { replicas = { start = 2 }",
            &["left to notebooks from now on"],
            &[],
            "d-big 2 kept, d-default 2 kept, d-scheduler 1 kept",
        ),
        Row {
            act: Act::Scale { group: "d-default", to: 3, by: "kr8s" },
            says: &["No changes"],
            allow: &[],
            worker_changes: "d-big 2 kept, d-default 2 kept 1 new, d-scheduler 1 kept",
        },
        edit(
            "{ start = 2 }",
            "{ start = 5 }",
            &["DI0361", "No changes"],
            &[],
            "d-big 2 kept, d-default 3 kept, d-scheduler 1 kept",
        ),
        edit(
            "labels = { team = \"a\" }",
            "labels = { team = \"b\" }",
            &["metadata.labels.team"],
            &[],
            "d-big 2 kept, d-default 3 kept, d-scheduler 1 kept",
        ),
        // To the autoscaler, whose least number makes one more.
        edit(
            "{ start = 5 }",
            "{ min = 4, max = 6 }",
            &["DaskAutoscaler", "1 to add"],
            &[],
            "d-big 2 kept, d-default 3 kept 1 new, d-scheduler 1 kept",
        ),
        edit(
            "max = 6",
            "max = 7",
            &["spec.maximum: 6 -> 7"],
            &[],
            "d-big 2 kept, d-default 4 kept, d-scheduler 1 kept",
        ),
        edit(
            "min = 4",
            "min = 5",
            &["spec.minimum: 4 -> 5"],
            &[],
            "d-big 2 kept, d-default 4 kept 1 new, d-scheduler 1 kept",
        ),
        // And back to the file; the autoscaler goes first.
        edit(
            "{ min = 5, max = 7 }",
            "6",
            &["spec.worker.replicas: 2 -> 6", "- DaskAutoscaler/default/d delete"],
            &["delete:dask_cluster.d/DaskAutoscaler/default/d"],
            "d-big 2 kept, d-default 5 kept 1 new, d-scheduler 1 kept",
        ),
        Row {
            act: Act::Scale { group: "d-big", to: 1, by: "kr8s" },
            says: &["spec.worker.replicas: 1 -> 2", "changed by kr8s"],
            allow: &[],
            worker_changes: "d-big 2 kept, d-default 6 kept, d-scheduler 1 kept",
        },
        Row {
            act: Act::Scale { group: "d-default", to: 7, by: "kubectl" },
            says: &[
                "spec.worker.replicas: 7 -> 6",
                "of DaskWorkerGroup default/d-default, which decides",
                "changed by kubectl",
            ],
            allow: &[],
            worker_changes: "d-big 2 kept, d-default 6 kept, d-scheduler 1 kept",
        },
    ]
}

/// Scales a group as others do, and waits until the operator has followed. Dask learns of the newest worker: the
/// scheduler is asked which one may go.
async fn scale(client: &Client, dask: &mut Dask, group: &str, to: u64, by: &str) {
    let path = format!("{GROUPS}/{group}");
    let (path, patch) = match by {
        "kubectl" => (format!("{path}/scale?fieldManager={by}"), json!({ "spec": { "replicas": to } })),
        _ => (format!("{path}?fieldManager={by}"), json!({ "spec": { "worker": { "replicas": to } } })),
    };
    let known: BTreeSet<String> = workers(client, group).await.into_iter().collect();
    let (status, said) = client.send(Method::PATCH, &path, MERGE, &patch).await;
    assert_eq!(status, 200, "{said}");
    // Without workers that Dask knows of, the scheduler names none that may go, and all Deployments stay.
    if known.len() as u64 > to {
        return;
    }
    let of_group = format!("{DEPLOYMENTS}?labelSelector=dask.org%2Fworkergroup-name%3D{group}");
    client.wait(&of_group, "the operator follows", |list| items(list).len() as u64 == to).await;
    let new: Vec<String> = workers(client, group).await;
    let new: Vec<&str> = new.iter().filter(|name| !known.contains(*name)).map(String::as_str).collect();
    if by != "kr8s" || group != "d-default" {
        dask.add_workers(&new).await;
    }
}

async fn workers(client: &Client, group: &str) -> Vec<String> {
    let path = format!("{DEPLOYMENTS}?labelSelector=dask.org%2Fworkergroup-name%3D{group}");
    let (_, list) = client.get(&path).await;
    items(&list).iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_groups_and_numbers_do_what_the_plan_says() {
    needs!(PARTS);
    let mut plane = ControlPlane::start().await;
    let mut dask = Dask::start().await;
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    let client = plane.client();
    plane.add_node("node-0", json!({}), 8).await;
    let user = User::empty();
    let write = |rest: &str| {
        let kubeconfig = plane.access().kubeconfig.to_string_lossy().into_owned();
        user.write(stack(&kubeconfig, rest));
    };
    // The operator runs here and wants its definitions.
    write("");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("9 added");
    let operator = Operator::start(plane.access()).await;
    write(DASK);
    run(&user, &["plan"]).expect(0).says("Plan: 2 to add");
    run(&user, &["apply", "--auto-approve"]).expect(0).says("2 added");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    let rows = rows();
    println!("{} rows", rows.len());
    let mut wrong = Vec::new();
    for (number, Row { act, says, allow, worker_changes: expect }) in rows.into_iter().enumerate() {
        let before = pods(&client).await;
        let generation = client.get(&format!("{GROUPS}/d-default")).await.1["metadata"]["generation"].clone();
        let what = match act {
            Act::Edit(all) => {
                for (from, to) in &all {
                    user.edit(from, to);
                }
                format!("{number}: {all:?}")
            }
            Act::Scale { group, to, by } => {
                scale(&client, &mut dask, group, to, by).await;
                format!("{number}: {group} to {to} by {by}")
            }
        };
        println!("{what}");
        let mut words = vec!["apply", "--auto-approve"];
        words.extend(allow.iter().flat_map(|consent| ["--allow", consent]));
        // An apply begins with its plan.
        let said = run(&user, &words).expect(0);
        let said = format!("{}{}", said.out, said.err);
        // As one line, however it was wrapped.
        let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let unsaid = says.iter().filter(|words| !line.contains(*words));
        wrong.extend(unsaid.map(|words| format!("{what}: no {words:?} in:\n{said}")));
        run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
        let mut after = pods(&client).await;
        if describe_changes(&before, &after) != expect {
            // The autoscaler acts on its own.
            let path = DEPLOYMENTS;
            let wanted: usize = expect.split(' ').filter_map(|word| word.parse::<usize>().ok()).sum();
            let gone = expect.matches("gone").count();
            client.wait(path, &what, |list| items(list).len() + gone >= wanted).await;
            after = pods(&client).await;
        }
        let found = describe_changes(&before, &after);
        if found != expect {
            wrong.push(format!("{what}: {expect:?} is expected and {found:?} is seen"));
        }
        if says.iter().any(|words| words.contains("left to notebooks")) {
            let now = client.get(&format!("{GROUPS}/d-default")).await.1["metadata"]["generation"].clone();
            assert_eq!(now, generation, "handing over moves no number");
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    run(&user, &["destroy", "--auto-approve", "--allow", "delete:dask_operator"])
        .expect(0)
        .says("Destroy complete");
    run(&user, &["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
    assert_eq!(pods(&client).await, Deployments::new());
    for collection in [GROUPS, AUTOSCALERS] {
        assert_eq!(client.get(collection).await.0, 404, "{collection} is gone with its definition");
    }
    drop((operator, dask));
}
