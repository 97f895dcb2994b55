//! The effects of changed fields, compared with reality: the real Dask operator's handling of the children
//! of a changed DaskCluster, and the real API server's refusals.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kinds::kind::Compare;
use model::address::{FieldPath, Segment};
use model::resource::{Effect, KindId, Resource};
use reqwest::Method;
use serde_json::{Value, json};
use stack::{Options, parse_text};

use crate::real::{Client, ControlPlane, CudaCheck, Dask, Operator, Part, needs};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CLUSTERS: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters";
const GROUPS: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WORKERS: &str =
    "/apis/apps/v1/namespaces/default/deployments?labelSelector=dask.org%2Fcomponent%3Dworker";
const SERVICES: &str = "/api/v1/namespaces/default/services?labelSelector=dask.org%2Fcomponent%3Dscheduler";

/// Where kopf keeps what an object was when it had done everything that there was to do for it.
const HANDLED: &str = "kopf.zalando.org/last-handled-configuration";

/// Returns the effect that a plan shows for a field, and the reason.
fn claim(kind: KindId, path: &FieldPath) -> (Effect, Option<&'static str>) {
    match kinds::of(kind).compare {
        Compare::Kubernetes(effect) => effect(path),
        _ => panic!("{kind} is not compared by Kubernetes rules"),
    }
}

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

fn pointer(path: &FieldPath) -> String {
    let mut pointer = String::new();
    for segment in path.segments() {
        match segment {
            Segment::Key(key) => write!(pointer, "/{}", key.replace('~', "~0").replace('/', "~1")).unwrap(),
            Segment::Index(index) => write!(pointer, "/{index}").unwrap(),
        }
    }
    pointer
}

/// Sets fields of a live object, and nothing else of it.
async fn set(client: &Client, at: &str, fields: &[(FieldPath, Value)]) -> (u16, Value) {
    let add =
        |(path, value): &(FieldPath, Value)| json!({ "op": "add", "path": pointer(path), "value": value });
    let patch = fields.iter().map(add).collect();
    client.send(Method::PATCH, at, "application/json-patch+json", &patch).await
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Established" && one["status"] == "True"))
}

/// The effect of a change of a DaskCluster on its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObservedEffect {
    /// They stay as they were.
    Kept,
    /// There are as many worker Deployments as wanted.
    Scaled,
    /// They go with their cluster, which the operator deletes.
    Ended,
}

/// A changed field of a DaskCluster.
struct Change {
    path: &'static str,
    value: Value,
    claim: Effect,
    seen: ObservedEffect,
}

/// Every field that a `[dask_cluster.KEY]` sets, and the two metadata that only the API has. Each change is
/// made on top of those before.
fn changes() -> Vec<Change> {
    let change = |claim: Effect, seen: ObservedEffect| {
        move |path: &'static str, value: Value| Change { path, value, claim: claim.clone(), seen }
    };
    let fixed = change(Effect::Replace, ObservedEffect::Kept);
    let labelled = change(Effect::InPlace, ObservedEffect::Kept);
    let probe = json!({ "httpGet": { "path": "/health", "port": "http-dashboard" }, "periodSeconds": 77 });
    let port =
        |name: &str, port: u16| json!({ "name": name, "protocol": "TCP", "port": port, "targetPort": name });
    let affinity = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 1, "preference": { "matchExpressions": [{ "key": "zone", "operator": "Exists" }] },
    }] } });
    let more = json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "1" } });
    let toleration = json!([{ "key": "reserved", "operator": "Exists" }]);
    let env = json!([{ "name": "COLOUR", "value": "red" }]);
    let unconfined = json!({ "seccompProfile": { "type": "Unconfined" } });
    let escalates = json!({ "allowPrivilegeEscalation": true });
    let metadata = json!({ "labels": { "tier": "new" }, "annotations": { "tier": "new" } });
    let container_port = json!([{ "name": "tcp-comm", "containerPort": 9786, "protocol": "TCP" }]);
    vec![
        labelled("metadata.labels.colour", json!("red")),
        labelled("metadata.labels.added", json!("later")),
        labelled("metadata.annotations.colour", json!("red")),
        fixed("spec.scheduler.metadata", metadata.clone()),
        fixed("spec.scheduler.service.type", json!("NodePort")),
        fixed("spec.scheduler.service.ports", json!([port("tcp-comm", 8786), port("http-dashboard", 80)])),
        fixed("spec.scheduler.service.selector", json!({ "app": "other" })),
        fixed("spec.scheduler.spec.containers[0].image", json!("demo:2")),
        fixed("spec.scheduler.spec.containers[0].imagePullPolicy", json!("Always")),
        fixed("spec.scheduler.spec.containers[0].args", json!(["dask", "scheduler", "--no-show"])),
        fixed("spec.scheduler.spec.containers[0].env", env.clone()),
        fixed("spec.scheduler.spec.containers[0].resources", more.clone()),
        fixed("spec.scheduler.spec.containers[0].ports", container_port),
        fixed("spec.scheduler.spec.containers[0].readinessProbe", probe.clone()),
        fixed("spec.scheduler.spec.containers[0].livenessProbe", probe),
        fixed("spec.scheduler.spec.containers[0].name", json!("other")),
        fixed("spec.scheduler.spec.nodeSelector", json!({ "zone": "b" })),
        fixed("spec.scheduler.spec.affinity", affinity.clone()),
        fixed("spec.scheduler.spec.tolerations", toleration.clone()),
        fixed("spec.scheduler.spec.automountServiceAccountToken", json!(true)),
        fixed("spec.scheduler.spec.securityContext", unconfined.clone()),
        fixed("spec.scheduler.spec.containers[0].securityContext", escalates.clone()),
        fixed("spec.worker.metadata", metadata),
        fixed("spec.worker.spec.containers[0].image", json!("demo:2")),
        fixed("spec.worker.spec.containers[0].imagePullPolicy", json!("Always")),
        fixed("spec.worker.spec.containers[0].args", json!(["dask", "worker", "--nthreads", "1"])),
        fixed("spec.worker.spec.containers[0].env", env),
        fixed("spec.worker.spec.containers[0].resources", more),
        fixed("spec.worker.spec.containers[0].name", json!("other")),
        fixed("spec.worker.spec.nodeSelector", json!({ "zone": "b" })),
        fixed("spec.worker.spec.affinity", affinity),
        fixed("spec.worker.spec.tolerations", toleration),
        fixed("spec.worker.spec.automountServiceAccountToken", json!(true)),
        fixed("spec.worker.spec.securityContext", unconfined),
        fixed("spec.worker.spec.containers[0].securityContext", escalates),
        change(Effect::InPlace, ObservedEffect::Scaled)("spec.worker.replicas", json!(2)),
        change(Effect::InPlace, ObservedEffect::Ended)("spec.idleTimeout", json!(1)),
    ]
}

/// Returns true if a plan with `claim` is right about the observed effect. Changed in place with a reason means "the
/// object takes it, what was made of it does not".
fn agrees(claim: &(Effect, Option<&str>), seen: ObservedEffect) -> bool {
    match claim {
        (Effect::InPlace, None) => seen != ObservedEffect::Kept,
        (Effect::InPlace, Some(_)) | (Effect::Replace, _) => seen == ObservedEffect::Kept,
        _ => false,
    }
}

/// The DaskCluster `d` as our own program sends it.
fn our_dask_cluster() -> Resource {
    let text = r#"
        [stack]
        name = "effects"
        [kubernetes]
        kubeconfig = "unused"
        [dask_operator]
        version = "2026.3.0"
        [dask_cluster.d]
        image = "demo:1"
        labels = { colour = "blue" }
        annotations = { colour = "blue" }
        scheduler = { cpu = "500m", memory = "1Gi", env = { COLOUR = "blue" } }
        worker = { replicas = 1, cpu = "500m", memory = "1Gi", env = { COLOUR = "blue" } }
    "#;
    let vars = BTreeMap::new();
    let loaded = parse_text("stack.toml", text, &Options { env: &|_| None, vars: &vars, helm: None });
    let loaded = loaded.map_err(|failure| format!("{:?}", failure.diagnostics)).unwrap();
    let lowered = stack::lower::lower(&loaded.stack, false);
    lowered.resources.iter().find(|resource| resource.kind == KindId::DaskCluster).cloned().unwrap()
}

/// The children by kind and name, without what controllers write there whatever the cluster says.
async fn children(client: &Client) -> BTreeMap<String, Value> {
    let mut children = BTreeMap::new();
    for (kind, list) in [("Deployment", DEPLOYMENTS), ("Service", SERVICES), ("DaskWorkerGroup", GROUPS)] {
        let (status, list) = client.get(list).await;
        assert_eq!(status, 200, "{list}");
        for object in items(&list) {
            let mut annotations = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            annotations.retain(|key, _| {
                !key.starts_with("kopf.zalando.org/") && !key.starts_with("deployment.kubernetes.io/")
            });
            let facts = json!({
                "uid": object["metadata"]["uid"],
                "labels": object["metadata"]["labels"],
                "annotations": annotations,
                "spec": object["spec"],
            });
            children.insert(format!("{kind} {}", name(object)), facts);
        }
    }
    children
}

/// Waits until the operator has done with an object all that it does for its present fields.
async fn wait_until_handled(client: &Client, at: &str, path: &FieldPath, value: &Value) {
    let wait = client.wait(at, "the operator handles the change", |object| {
        let handled = object["metadata"]["annotations"][HANDLED].as_str().unwrap_or_default();
        let handled: Value = serde_json::from_str(handled).unwrap_or_default();
        path.find(&handled) == Some(value)
    });
    wait.await;
}

/// Returns the template of a worker: its Deployment without its name and without the label that came later.
fn worker_template(deployment: &Value) -> String {
    let mut spec = deployment["spec"].clone();
    for labels in ["/selector/matchLabels", "/template/metadata/labels"] {
        spec.pointer_mut(labels).unwrap().as_object_mut().unwrap().remove("added");
    }
    spec.to_string().replace(name(deployment), "NAME")
}

/// All paths of a tree that have no more paths under them; lists are one value, as in the operator's schema.
fn leaves(at: &FieldPath, value: &Value, found: &mut Vec<FieldPath>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| leaves(&at.key(key), value, found)),
        Value::Array(list) if at.to_string().ends_with("containers") => {
            list.iter().enumerate().for_each(|(place, value)| leaves(&at.index(place), value, found));
        }
        _ => found.push(at.clone()),
    }
}

#[test]
fn the_table_has_every_field_that_we_set() {
    let changes: Vec<FieldPath> = changes().iter().map(|change| path(change.path)).collect();
    let mut ours_set = Vec::new();
    leaves(&FieldPath::root(), &our_dask_cluster().body, &mut ours_set);
    let identity = ["apiVersion", "kind", "metadata.name", "metadata.namespace"].map(path);
    let tried = |leaf: &FieldPath| {
        let label =
            |path: &FieldPath| path.parent().is_some_and(|map| map.parent() == Some(self::path("metadata")));
        changes
            .iter()
            .any(|change| change.contains(leaf) || label(change) && change.parent() == leaf.parent())
    };
    ours_set.retain(|leaf| !identity.contains(leaf) && !tried(leaf));
    let left: Vec<String> = ours_set.iter().map(ToString::to_string).collect();
    assert_eq!(left, [""; 0], "fields of a DaskCluster that no change tries");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: the_table_has_every_field_that_we_set and dask::edits_of_groups_and_numbers_do_what_the_plan_says run on every change"]
async fn the_operator_does_with_a_changed_field_what_we_claim() {
    needs!(PARTS);
    let mut plane = ControlPlane::start().await;
    let client = plane.client();
    for definition in model::schema::dask_crds() {
        let at = format!("{CRDS}/{}", name(definition));
        assert_eq!(client.apply(&at, "test", definition).await.0, 201);
        client.wait(&at, "a definition is established", is_established).await;
    }
    plane.add_node("node-0", json!({}), 0).await;
    // An idle timeout above 0 makes the operator ask the scheduler, and swallow it when there is none.
    let dask = Dask::start().await;
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    let operator = Operator::start(plane.access()).await;
    let at = format!("{CLUSTERS}/d");
    let (status, said) = client.apply(&at, "test", &our_dask_cluster().body).await;
    assert_eq!(status, 201, "{said}");
    let ready = |list: &Value, count: usize| {
        items(list).len() == count && items(list).iter().all(|item| item["status"]["readyReplicas"] == 1)
    };
    client.wait(DEPLOYMENTS, "scheduler and worker are ready", |list| ready(list, 2)).await;
    client
        .wait(&format!("{GROUPS}/d-default"), "the group is adopted", |group| {
            group["metadata"]["ownerReferences"].is_array()
        })
        .await;
    let image = path("spec.worker.spec.containers[0].image");
    wait_until_handled(&client, &at, &image, &json!("demo:1")).await;

    let first = children(&client).await;
    assert_eq!(first.len(), 4, "{first:#?}");
    let first_worker = client.get(WORKERS).await.1["items"][0].clone();
    for Change { path: at_field, value, claim: claimed, seen } in changes() {
        let field = path(at_field);
        let said = claim(KindId::DaskCluster, &field);
        assert_eq!(said.0, claimed, "{at_field}");
        assert!(agrees(&said, seen), "{at_field}: {said:?} but {seen:?}");
        let (status, answer) = set(&client, &at, &[(field.clone(), value.clone())]).await;
        assert_eq!(status, 200, "{at_field}: {answer}");
        match seen {
            // All changes are compared with the first state, so a later change finds a late effect.
            ObservedEffect::Kept => {
                wait_until_handled(&client, &at, &field, &value).await;
                assert_eq!(children(&client).await, first, "{at_field}");
            }
            ObservedEffect::Scaled => {
                wait_until_handled(&client, &at, &field, &value).await;
                let list = client.wait(WORKERS, "one worker more", |list| ready(list, 2)).await;
                // The group's copy of the pod counts for it, as for the others. Of the cluster's metadata it
                // gets the labels that it had not when it was made, on its pods too, and no new value.
                let new = items(&list).iter().find(|item| name(item) != name(&first_worker)).unwrap();
                assert_eq!(worker_template(new), worker_template(&first_worker));
                for labels in ["/metadata", "/spec/template/metadata"] {
                    let labels = &new.pointer(labels).unwrap()["labels"];
                    assert_eq!((&labels["colour"], &labels["added"]), (&json!("blue"), &json!("later")));
                }
                let mut now = children(&client).await;
                now.remove(&format!("Deployment {}", name(new)));
                now.get_mut("DaskWorkerGroup d-default").unwrap()["spec"]["worker"]["replicas"] = json!(1);
                assert_eq!(now, first, "what was there stays as it was");
            }
            ObservedEffect::Ended => {
                client
                    .wait(CLUSTERS, "the operator deletes the idle cluster", |list| items(list).is_empty())
                    .await;
                client.wait(DEPLOYMENTS, "its children go", |list| items(list).is_empty()).await;
            }
        }
    }
    drop((operator, dask));
}

/// The API server's refusals: 422, and one of these. Other mistakes have other texts.
const REFUSALS: &[&str] = &["field is immutable", "may not change once set", "cannot change roleRef"];

/// An object and the changes that are tried on it, each on what the accepted ones before it left.
struct ObjectChanges {
    /// The kind whose claims are meant.
    kinds: &'static [KindId],
    collection: &'static str,
    object: Value,
    /// The field in question, and what else must change for the object to be well formed.
    changes: Vec<(Effect, Vec<(&'static str, Value)>)>,
}

fn replace(path: &'static str, value: Value) -> (Effect, Vec<(&'static str, Value)>) {
    (Effect::Replace, vec![(path, value)])
}

fn rolling(path: &'static str, value: Value) -> (Effect, Vec<(&'static str, Value)>) {
    (Effect::Rolling, vec![(path, value)])
}

fn in_place(path: &'static str, value: Value) -> (Effect, Vec<(&'static str, Value)>) {
    (Effect::InPlace, vec![(path, value)])
}

fn workload(kind: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": { "name": "x", "labels": { "app": "x" } },
        "spec": {
            "selector": { "matchLabels": { "app": "x" } },
            "template": {
                "metadata": { "labels": { "app": "x" } },
                "spec": { "containers": [{ "name": "x", "image": "demo:1" }] },
            },
        },
    })
}

/// A selector must match the template's labels, so both are changed.
fn other_selector() -> (Effect, Vec<(&'static str, Value)>) {
    let (selector, labels) = ("spec.selector.matchLabels.app", "spec.template.metadata.labels.app");
    (Effect::Replace, vec![(selector, json!("y")), (labels, json!("y"))])
}

fn of_templates() -> Vec<(Effect, Vec<(&'static str, Value)>)> {
    vec![
        other_selector(),
        rolling("spec.template.spec.containers[0].image", json!("demo:2")),
        rolling("spec.template.metadata.labels.more", json!("yes")),
        rolling("spec.template.spec.nodeSelector", json!({ "zone": "b" })),
        in_place("spec.minReadySeconds", json!(1)),
        in_place("spec.revisionHistoryLimit", json!(3)),
        in_place("metadata.labels.app", json!("y")),
        in_place("metadata.annotations", json!({ "note": "y" })),
    ]
}

fn of_deployments() -> ObjectChanges {
    let mut changes = of_templates();
    changes.push(in_place("spec.replicas", json!(2)));
    changes.push(in_place("spec.strategy", json!({ "type": "Recreate" })));
    changes.push(in_place("spec.progressDeadlineSeconds", json!(77)));
    changes.push(in_place("spec.paused", json!(true)));
    ObjectChanges {
        kinds: &[KindId::Deployment],
        collection: DEPLOYMENTS,
        object: workload("Deployment"),
        changes,
    }
}

fn of_daemon_sets() -> ObjectChanges {
    let mut changes = of_templates();
    changes.push(in_place("spec.updateStrategy", json!({ "type": "OnDelete" })));
    ObjectChanges {
        kinds: &[KindId::DaemonSet, KindId::GpuDriver],
        collection: "/apis/apps/v1/namespaces/default/daemonsets",
        object: workload("DaemonSet"),
        changes,
    }
}

fn of_services() -> ObjectChanges {
    let port = |port: u16| json!([{ "name": "web", "port": port, "protocol": "TCP", "targetPort": 80 }]);
    ObjectChanges {
        kinds: &[KindId::Service],
        collection: "/api/v1/namespaces/default/services",
        object: json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "x", "labels": { "app": "x" } },
            "spec": { "selector": { "app": "x" }, "ports": port(80) },
        }),
        changes: vec![
            replace("spec.clusterIP", json!("10.0.0.77")),
            (
                Effect::Replace,
                vec![("spec.clusterIPs", json!(["10.0.0.77"])), ("spec.clusterIP", json!("10.0.0.77"))],
            ),
            in_place("spec.selector", json!({ "app": "y" })),
            in_place("spec.ports", port(81)),
            in_place("spec.sessionAffinity", json!("ClientIP")),
            in_place("spec.publishNotReadyAddresses", json!(true)),
            in_place("metadata.labels.app", json!("y")),
            in_place("spec.type", json!("NodePort")),
            in_place("spec.externalTrafficPolicy", json!("Local")),
            (
                Effect::InPlace,
                vec![("spec.type", json!("LoadBalancer")), ("spec.loadBalancerClass", json!("demo.dev/one"))],
            ),
            in_place("spec.loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
            replace("spec.loadBalancerClass", json!("demo.dev/two")),
            replace("spec.healthCheckNodePort", json!(32_123)),
        ],
    }
}

fn of_bindings() -> ObjectChanges {
    ObjectChanges {
        kinds: &[KindId::Binding],
        collection: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        object: json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "x", "labels": { "app": "x" } },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
            "subjects": [{ "kind": "ServiceAccount", "name": "x", "namespace": "default" }],
        }),
        changes: vec![
            replace("roleRef.name", json!("edit")),
            in_place("subjects", json!([{ "kind": "ServiceAccount", "name": "y", "namespace": "default" }])),
            in_place("metadata.labels.app", json!("y")),
        ],
    }
}

fn of_definitions() -> ObjectChanges {
    let text = json!({ "type": "string" });
    let version = |properties: Value| {
        json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
            "type": "object", "properties": properties,
        } } })
    };
    ObjectChanges {
        kinds: &[KindId::Crd],
        collection: CRDS,
        object: json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "things.demo.dev", "labels": { "app": "x" } },
            "spec": {
                "group": "demo.dev", "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing" },
                "versions": [version(json!({ "a": text }))],
            },
        }),
        changes: vec![
            replace("spec.group", json!("other.dev")),
            replace("spec.scope", json!("Cluster")),
            replace("spec.names.kind", json!("Other")),
            replace("spec.names.plural", json!("others")),
            in_place("spec.names.singular", json!("thingy")),
            in_place("spec.names.shortNames", json!(["th"])),
            in_place("spec.names.categories", json!(["all"])),
            in_place("spec.names.listKind", json!("Things")),
            in_place("spec.versions", json!([version(json!({ "a": text, "b": text }))])),
            in_place("metadata.labels.app", json!("y")),
        ],
    }
}

/// The kinds without a file of their own that the sections make, and namespaces.
fn of_plain_objects() -> [ObjectChanges; 3] {
    let metadata = json!({ "name": "x", "labels": { "app": "x" } });
    [
        ObjectChanges {
            kinds: &[KindId::Object],
            collection: "/api/v1/namespaces/default/serviceaccounts",
            object: json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
            changes: vec![
                in_place("metadata.labels.app", json!("y")),
                in_place("automountServiceAccountToken", json!(false)),
            ],
        },
        ObjectChanges {
            kinds: &[KindId::Object],
            collection: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            object: json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
            }),
            changes: vec![
                in_place("metadata.labels.app", json!("y")),
                in_place("rules", json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }])),
            ],
        },
        ObjectChanges {
            kinds: &[KindId::Namespace],
            collection: "/api/v1/namespaces",
            object: json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }),
            changes: vec![
                in_place("metadata.labels.app", json!("y")),
                in_place("metadata.annotations", json!({ "note": "y" })),
            ],
        },
    ]
}

async fn try_changes(client: &Client, tried: ObjectChanges, wrong: &mut Vec<String>) -> usize {
    let ObjectChanges { kinds, collection, object, changes } = tried;
    let (status, said) = client.send(Method::POST, collection, "application/json", &object).await;
    assert_eq!(status, 201, "{said}");
    let at = format!("{collection}/{}", name(&object));
    if collection == CRDS {
        client.wait(&at, "a definition is established", is_established).await;
    }
    let count = changes.len();
    for (claimed, fields) in changes {
        let fields: Vec<(FieldPath, Value)> =
            fields.into_iter().map(|(field, value)| (path(field), value)).collect();
        let field = &fields[0].0;
        for kind in kinds {
            let (said, _) = claim(*kind, field);
            if said != claimed {
                wrong.push(format!("{kind} {field}: {said:?} is claimed, the table says {claimed:?}"));
            }
        }
        let (status, said) = set(client, &at, &fields).await;
        let message = said["message"].as_str().unwrap_or_default();
        let right = match claimed {
            Effect::Replace => status == 422 && REFUSALS.iter().any(|words| message.contains(words)),
            _ => status == 200,
        };
        if !right {
            wrong.push(format!("{} {field}: {claimed:?}, but {status} {message}", kinds[0]));
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_what_we_replace_and_takes_what_we_change_in_place() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok]);
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let mut all = vec![of_deployments(), of_daemon_sets(), of_services(), of_bindings(), of_definitions()];
    all.extend(of_plain_objects());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for tried in all {
        count += try_changes(&client, tried, &mut wrong).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{count} changes tried");
}
