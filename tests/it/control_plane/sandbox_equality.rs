//! One stack, two clusters: the ready stack is applied to the sandbox and to a real API server with its real
//! controllers and the real Dask operator, and every object of the stack and what was made of it is compared.
//!
//! Known differences are in `tests/real/known-differences.toml`, with a reason; that list may only shrink. Nodes
//! are not compared: here as there they are the sandbox's, and a real GKE node is on neither side.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::task::block_in_place;

use crate::control_plane::contract::{fits, normalizer::differences};
use crate::control_plane::main_job::{operator_when_wanted, sandbox_with_control_plane};
use crate::golden::root;
use crate::real::{Access, Client, ControlPlane, PATIENCE, Part, needs};
use crate::sandbox_server::{SandboxServer, User};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const NODES: &str = "/api/v1/nodes";
/// Every kind that the stack has, and that controllers and the operator make of it.
const KINDS: &[&str] = &[
    "/api/v1/namespaces",
    "/api/v1/serviceaccounts",
    "/api/v1/configmaps",
    "/api/v1/services",
    "/api/v1/pods",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/daemonsets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/kubernetes.dask.org/v1/daskclusters",
    "/apis/kubernetes.dask.org/v1/daskworkergroups",
];
/// Fewer objects are not the whole stack.
const LEAST_OBJECTS: usize = 28;

/// `tests/real/known-differences.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownDifferences {
    /// How many places may differ in all. Lower it with every fix.
    most: usize,
    class: Vec<Class>,
}

/// Differences with one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    /// Why the sandbox may differ.
    reason: String,
    /// A race of the real side: there or not, and not counted.
    #[serde(default)]
    sometimes: bool,
    /// `KIND NAMESPACE/NAME POINTER`; `*` stands for any text.
    at: Vec<String>,
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// The stack's objects and all that has come of them, as `kubectl get -o json` would print them and with the
/// records of who wrote what.
async fn objects(client: &Client) -> Vec<Value> {
    let mut all = Vec::new();
    for path in KINDS {
        let (status, list) = client.get(path).await;
        assert_eq!(status, 200, "{path}: {list}");
        for item in items(&list) {
            let mut object = json!({
                "apiVersion": list["apiVersion"], "kind": text(&list, "/kind").trim_end_matches("List"),
            });
            object.as_object_mut().unwrap().extend(item.as_object().unwrap().clone());
            all.push(object);
        }
    }
    let mut ours: BTreeSet<String> = BTreeSet::new();
    loop {
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.into_iter().flatten().any(|owner| ours.contains(text(owner, "/uid")))
        };
        let written =
            |object: &Value| object["metadata"]["managedFields"].to_string().contains("\"dask-infra");
        let more: Vec<String> = all
            .iter()
            .filter(|object| !ours.contains(uid(object)) && (written(object) || owned(object)))
            .map(|object| uid(object).to_owned())
            .collect();
        if more.is_empty() {
            break;
        }
        ours.extend(more);
    }
    all.retain(|object| ours.contains(uid(object)));
    all
}

/// Values that are drawn, assigned or counted in each run, and their placeholders; longer texts first.
fn stand_ins(objects: &[Value], nodes: &Value) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for node in items(nodes) {
        let pool = text(node, "/metadata/labels/cloud.google.com~1gke-nodepool");
        pairs.push((text(node, "/metadata/name").to_owned(), format!("NODE-OF-{pool}")));
    }
    for object in objects {
        let name = text(object, "/metadata/name");
        pairs.push((uid(object).to_owned(), format!("UID of {} {name}", text(object, "/kind"))));
        match text(object, "/kind") {
            "Pod" => pairs.push((name.to_owned(), format!("{}NAME", text(object, "/metadata/generateName")))),
            "ReplicaSet" => {
                let hash = text(object, "/metadata/labels/pod-template-hash");
                pairs.push((hash.to_owned(), "HASH".to_owned()));
            }
            "Deployment" if text(object, "/metadata/labels/dask.org~1component") == "worker" => {
                let group = text(object, "/metadata/labels/dask.org~1workergroup-name");
                pairs.push((name.to_owned(), format!("{group}-worker-ID")));
            }
            _ => {}
        }
        for volume in object["spec"]["volumes"].as_array().into_iter().flatten() {
            let name = text(volume, "/name");
            if name.starts_with("kube-api-access-") {
                pairs.push((name.to_owned(), "kube-api-access-NAME".to_owned()));
            }
        }
    }
    pairs.retain(|(from, _)| !from.is_empty());
    // The placeholder of a uid contains names.
    let is_uid = |from: &str| objects.iter().any(|object| uid(object) == from);
    pairs.sort_by_key(|(from, _)| (!is_uid(from), std::cmp::Reverse(from.len())));
    pairs
}

/// Lists that are maps by their meaning, by what their entries are called.
fn entry_name(field: &str, entry: &Value) -> Option<String> {
    let word = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
    match field {
        "conditions" => Some(word("type")),
        "managedFields" => Some(["manager", "operation", "subresource"].map(word).join(" ")),
        _ => None,
    }
}

/// A value without what no two servers share.
fn normalized(field: &str, value: &Value, pairs: &[(String, String)]) -> Value {
    let replaced = |text: &str| pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    match value {
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| (replaced(key), normalized(key, value, pairs));
            Value::Object(map.iter().map(entry).collect())
        }
        Value::Array(list) => {
            match list.iter().map(|entry| entry_name(field, entry)).collect::<Option<Vec<_>>>() {
                Some(names) if !list.is_empty() => {
                    let entries = list.iter().map(|entry| normalized("", entry, pairs));
                    Value::Object(names.into_iter().zip(entries).collect::<Map<_, _>>())
                }
                _ => list.iter().map(|entry| normalized(field, entry, pairs)).collect(),
            }
        }
        Value::String(text) => match field {
            "resourceVersion" => json!("VERSION"),
            "containerID" | "imageID" | "controller-revision-hash" => json!("HASH"),
            _ if text.parse::<jiff::Timestamp>().is_ok() => json!("TIME"),
            _ if text.parse::<std::net::IpAddr>().is_ok() => json!("ADDRESS"),
            // kopf's notes.
            _ if text.starts_with('{') => match serde_json::from_str::<Value>(text) {
                Ok(inner) => normalized("", &inner, pairs),
                Err(_) => json!(replaced(text)),
            },
            _ => json!(replaced(text)),
        },
        other => other.clone(),
    }
}

/// Normal objects by kind and name. Those that nothing but their drawn names tells apart are numbered.
async fn world(client: &Client) -> BTreeMap<String, Value> {
    let (objects, nodes) = (objects(client).await, client.get(NODES).await.1);
    let pairs = stand_ins(&objects, &nodes);
    let mut found: Vec<(String, Value)> = Vec::new();
    for object in &objects {
        let mut object = normalized("", object, &pairs);
        if text(&object, "/kind") == "ConfigMap" {
            // The record: times and uids, compressed.
            for field in ["data", "binaryData"] {
                for value in object[field].as_object_mut().into_iter().flat_map(Map::values_mut) {
                    *value = json!("RECORD");
                }
            }
        }
        let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        let slash = if namespace.is_empty() { "" } else { "/" };
        found.push((format!("{} {namespace}{slash}{name}", text(&object, "/kind")), object));
    }
    found.sort_by_key(|(key, object)| (key.clone(), object.to_string()));
    let mut numbered = BTreeMap::new();
    for (key, object) in found {
        let number = (1..).find(|number| !numbered.contains_key(&format!("{key}#{number}"))).unwrap();
        numbered.insert(format!("{key}#{number}"), object);
    }
    numbered
}

/// Places that differ, with what both say.
fn compare(sandbox: &BTreeMap<String, Value>, real: &BTreeMap<String, Value>) -> Vec<(String, String)> {
    let keys: BTreeSet<&String> = sandbox.keys().chain(real.keys()).collect();
    let mut all = Vec::new();
    for key in keys {
        match (sandbox.get(key), real.get(key)) {
            (Some(sandbox), Some(real)) => {
                let mut found = Vec::new();
                differences("", sandbox, real, &mut found);
                all.extend(found.into_iter().map(|(pointer, sandbox, real)| {
                    (format!("{key} {pointer}"), format!("  sandbox {sandbox}\n  real    {real}"))
                }));
            }
            (sandbox, _) => {
                let side = if sandbox.is_some() { "the sandbox" } else { "the real cluster" };
                all.push((format!("{key} /"), format!("  only in {side}")));
            }
        }
    }
    all
}

/// Returns unknown differences, known ones that are equal now, and the number of known places by class.
fn judge<'k>(
    known: &'k KnownDifferences,
    found: &[(String, String)],
) -> (Vec<String>, BTreeMap<&'k str, usize>) {
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, said) in found {
        match known.class.iter().find(|class| class.at.iter().any(|at| fits(at, place))) {
            Some(class) if class.sometimes => {}
            Some(class) => *counts.entry(&class.name).or_default() += 1,
            None => wrong.push(format!("{place}\n{said}")),
        }
    }
    for class in known.class.iter().filter(|class| !class.sometimes) {
        let idle = class.at.iter().filter(|at| !found.iter().any(|(place, _)| fits(at, place)));
        wrong.extend(idle.map(|at| {
            format!("`{at}` ({}) no longer differs: take it off known-differences.toml", class.name)
        }));
    }
    let listed: usize = counts.values().sum();
    if listed != known.most {
        wrong.push(format!("`most` is {}, and {listed} known places differ: {counts:?}", known.most));
    }
    (wrong, counts)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stack_is_the_same_in_the_sandbox_and_on_a_real_cluster() {
    needs!(PARTS);
    let known = std::fs::read_to_string(root().join("tests/real/known-differences.toml")).unwrap();
    let known: KnownDifferences = toml::from_str(&known).unwrap();
    for class in &known.class {
        assert!(!class.reason.is_empty(), "{} has no reason", class.name);
    }

    let plane = ControlPlane::start().await;
    let front = sandbox_with_control_plane(&plane);
    let there = User::with_ready_stack(Some(&front.gke));
    let operator = operator_when_wanted(&plane, front.sandbox.clone());
    block_in_place(|| there.run(&["apply", "--auto-approve"])).expect(0).says("14 added");
    let _operator = operator.await.unwrap();
    let real = plane.client();

    let served = SandboxServer::fast();
    let here = User::with_ready_stack(Some(&served.gke));
    block_in_place(|| here.run(&["apply", "--auto-approve"])).expect(0).says("14 added");
    let kubeconfig = here.path().join("kubeconfig");
    let written = served.sandbox.kubeconfig(&served.sandbox.clusters()[0]).unwrap();
    std::fs::write(&kubeconfig, written.to_string()).unwrap();
    let sandbox = Client::new(&Access::read(kubeconfig));

    // Both settle: an operator notes what it has done a moment after it is ready.
    let begun = Instant::now();
    loop {
        let (ours, theirs) = (world(&sandbox).await, world(&real).await);
        let (wrong, counts) = judge(&known, &compare(&ours, &theirs));
        if wrong.is_empty() {
            assert!(theirs.len() >= LEAST_OBJECTS, "only {} objects: {:?}", theirs.len(), theirs.keys());
            println!("{} objects; known differences: {counts:?}", theirs.len());
            return;
        }
        assert!(begun.elapsed() < PATIENCE / 4, "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
