//! Imports live objects of stacks and lowers the result again: it must be the same as before.

use std::path::Path;

use serde_json::json;

use super::*;
use kinds::dask;
use model::resource::{Identity, KindId, Resource};
use stack::Loaded;

fn load(folder: &Path, text: &str) -> Loaded {
    let env = |name: &str| Some(if name == "GOOGLE_CLOUD_PROJECT" { "demo" } else { "secret" }.to_owned());
    let vars = BTreeMap::new();
    stack::parse_in(folder, "stack.toml", text, &Options { env: &env, vars: &vars, helm: None }).unwrap()
}

fn put(target: &mut Value, more: &Value) {
    match (target, more) {
        (Value::Object(target), Value::Object(more)) => {
            more.iter().for_each(|(key, value)| put(target.entry(key.clone()).or_insert(Value::Null), value));
        }
        (target, more) => *target = more.clone(),
    }
}

/// Returns a world in which these resources exist, without an owner.
fn live(resources: &[Resource], place: Place) -> Found {
    let mut found = Found {
        place,
        endpoint: Endpoint::Auto,
        cluster: Value::Null,
        pools: BTreeMap::new(),
        sizes: BTreeMap::new(),
        objects: BTreeMap::new(),
        unmanaged: Vec::new(),
        unread: Vec::new(),
    };
    for resource in resources {
        let mut body = resource.body.clone();
        if !resource.create_only.is_null() {
            put(&mut body, &resource.create_only);
        }
        match &resource.identity {
            Identity::Cluster(_) => found.cluster = body,
            Identity::NodePool { pool, .. } => {
                let nodes = body["nodeCount"].as_u64().and_then(|nodes| u32::try_from(nodes).ok());
                found.sizes.extend(nodes.map(|nodes| (pool.clone(), nodes)));
                found.pools.insert(pool.clone(), body);
            }
            Identity::Object(object) => drop(found.objects.insert(object.clone(), body)),
            Identity::Check(_) => {}
        }
    }
    found
}

fn owner() -> Owner {
    Owner { stack: "s".to_owned(), id: "s".to_owned() }
}

/// Returns the resources of an imported text after everything in it is adopted.
fn adopted(text: &str) -> Vec<Resource> {
    let text = text.replace("manage = false\n", "");
    lower::lower(&load(Path::new(""), &text).stack, false).resources.to_vec()
}

/// Removes the labels of owners, which an import does not restore.
fn plain(body: &Value) -> Value {
    let mut body = body.clone();
    for labels in ["/metadata/labels", "/resourceLabels", "/config/resourceLabels"] {
        if let Some(labels) = body.pointer_mut(labels).and_then(Value::as_object_mut) {
            labels.retain(|key, _| !key.starts_with("dask-infra"));
        }
    }
    body
}

/// Replaces the operator's chart with the built-in objects: the program that renders charts may be missing.
fn with_built_in_operator(text: &str) -> String {
    let Some((before, rest)) = text.split_once("source = \"chart\"\n") else { return text.to_owned() };
    let (_, after) = rest.split_once("protect").unwrap();
    format!("{before}protect{after}")
}

#[test]
fn what_a_stack_makes_is_imported_as_that_stack() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let stacks = ["rapids-gke", "rapids-gke-lean", "dask-groups", "dask-job", "dask-autoscaled"];
    let folders = stacks.map(|name| root.join("stacks").join(name));
    let cases = [root.join("tests/cases/diag-everything")];
    let mut compared = 0;
    for folder in folders.iter().chain(&cases) {
        let text = with_built_in_operator(&std::fs::read_to_string(folder.join("stack.toml")).unwrap());
        let lowered = lower::lower(&load(folder, &text).stack, false);
        let place = Place::Gke(lowered.target.gke.clone().unwrap());
        let imported = import(&live(&lowered.resources, place), &owner());
        let again = adopted(&imported.text);
        let kinds = [
            KindId::Cluster,
            KindId::NodePool,
            KindId::DaskCluster,
            KindId::DaskGroup,
            KindId::DaskAutoscaler,
            KindId::DaskJob,
            KindId::GpuDriver,
        ];
        for resource in lowered.resources.iter().filter(|resource| kinds.contains(&resource.kind)) {
            let same = again.iter().find(|other| other.identity == resource.identity);
            let same = same.unwrap_or_else(|| panic!("no {} in\n{}", resource.identity, imported.text));
            let (mut expect, mut got) = (plain(&resource.body), plain(&same.body));
            if !resource.create_only.is_null() {
                // `start` is a number of others', and none of the stack's once it is live.
                for body in [&mut expect, &mut got] {
                    body["spec"]["worker"]["replicas"] = Value::Null;
                }
            }
            for body in [&mut expect, &mut got] {
                // A version is for making one, and the default network need not be said.
                body["initialClusterVersion"] = Value::Null;
                if body["network"] == "default" {
                    body["network"] = Value::Null;
                }
                // Nor need what GKE chooses by itself.
                if let Some(config) = body["config"].as_object_mut() {
                    config.retain(|key, value| key != "imageType" || value != "COS_CONTAINERD");
                }
                body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            }
            assert_eq!(got, expect, "{}\n{}", resource.address, imported.text);
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

fn cluster(name: &str, namespace: &str, scheduler: Value, worker: Value) -> (ObjectId, Value) {
    let object =
        ObjectId { gvk: dask::api::cluster(), namespace: Some(namespace.to_owned()), name: name.to_owned() };
    let ports = json!([
        { "name": "tcp-comm", "protocol": "TCP", "port": 8786, "targetPort": "tcp-comm" },
        { "name": "http-dashboard", "protocol": "TCP", "port": 8787, "targetPort": "http-dashboard" },
    ]);
    let selector = json!({ "dask.org/cluster-name": name, "dask.org/component": "scheduler" });
    let service = json!({ "type": "ClusterIP", "selector": selector, "ports": ports });
    let live = json!({
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "scheduler": { "spec": scheduler, "service": service },
            "worker": { "replicas": 1, "spec": worker },
        },
        "status": { "phase": "Running" },
    });
    (object, live)
}

fn container(name: &str) -> Value {
    json!({ "containers": [{ "name": name, "image": "daskdev/dask:latest", "args": ["dask", name] }] })
}

fn kubernetes(objects: Vec<(ObjectId, Value)>) -> Found {
    let place = Place::Kubeconfig { path: None, context: Some("lab".to_owned()) };
    Found { objects: objects.into_iter().collect(), ..live(&[], place) }
}

/// Pods that no short form can express are imported without loss.
#[test]
fn every_pod_comes_back() {
    let with = |more: Value| {
        let mut pod = container("worker");
        put(&mut pod, &more);
        pod
    };
    let pods = [
        container("worker"),
        with(
            json!({ "tolerations": [{ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }] }),
        ),
        with(json!({ "nodeSelector": { "cloud.google.com/gke-nodepool": "elsewhere", "a": "b" } })),
        with(json!({ "volumes": [{ "name": "v", "emptyDir": {} }], "serviceAccountName": "x" })),
        with(json!({ "securityContext": {}, "hostNetwork": false, "priority": 0 })),
        json!({ "containers": [{ "name": "main", "image": "i" }] }),
        json!({ "containers": [{ "name": "side", "image": "s" }, { "name": "worker", "image": "daskdev/dask:latest" }] }),
        json!({ "containers": [{
            "name": "worker", "image": "other:1", "imagePullPolicy": "Always", "command": ["run"],
            "args": ["dask", "worker", "--name", "$(DASK_WORKER_NAME)", "--resources", "GPU=1 FPGA=2.5"],
            "env": [
                { "name": "B", "value": "1" }, { "name": "A", "value": "${HOME} $(B) ünï \"quoted\" \n line" },
                { "name": "C", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } },
            ],
            "resources": { "limits": { "nvidia.com/gpu": "2", "cpu": "1", "memory": "2Gi" }, "requests": { "cpu": "1" } },
            "ports": [{ "name": "p", "containerPort": 1 }], "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
        }], "initContainers": [{ "name": "i", "image": "i" }] }),
        json!({ "containers": [{
            "name": "worker", "image": "other:1",
            "args": ["dask", "worker", "--name", "$(DASK_WORKER_NAME)", "--resources", "GPU=0"],
        }] }),
        json!({ "containers": [{ "name": "worker", "image": "daskdev/dask:latest", "env": [
            { "name": "Z", "value": "1" }, { "name": "A", "value": "2" },
        ], "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1", "memory": "1Gi" } } }] }),
    ];
    for worker in pods {
        let found = kubernetes(vec![cluster("d", "default", container("scheduler"), worker.clone())]);
        let imported = import(&found, &owner());
        let again = adopted(&imported.text);
        let made = again.iter().find(|resource| resource.address.as_str() == "dask_cluster.d");
        let made = made.unwrap_or_else(|| panic!("{}", imported.text));
        assert_eq!(made.body["spec"]["worker"]["spec"], worker, "{}", imported.text);
        assert_eq!(made.body["spec"]["scheduler"]["spec"], container("scheduler"), "{}", imported.text);
        assert_eq!(imported.left_out, Vec::<String>::new(), "{}", imported.text);
    }
}

#[test]
fn secrets_are_named_and_not_written() {
    let worker = json!({ "containers": [{ "name": "worker", "image": "i", "env": [
        { "name": "HF_TOKEN", "value": "canary" }, { "name": "MODE", "value": "fast" },
    ] }] });
    let imported =
        import(&kubernetes(vec![cluster("d", "default", container("scheduler"), worker)]), &owner());
    assert!(!imported.text.contains("canary"), "{}", imported.text);
    assert!(imported.text.contains("HF_TOKEN"), "{}", imported.text);
    assert!(imported.left_out[0].contains("looks like a secret"), "{:?}", imported.left_out);
}

#[test]
fn names_meet_and_some_cannot_be_said() {
    let one =
        |name: &str, namespace: &str| cluster(name, namespace, container("scheduler"), container("worker"));
    let group = |cluster: &str, name: &str| {
        let object = ObjectId {
            gvk: dask::api::group(),
            namespace: Some("default".to_owned()),
            name: name.to_owned(),
        };
        let worker = json!({ "replicas": 2, "spec": container("worker") });
        (object, json!({ "metadata": { "name": name }, "spec": { "cluster": cluster, "worker": worker } }))
    };
    let objects = vec![
        one("d", "default"),
        one("d", "team"),
        one("with.dot", "default"),
        one("kube", "kube-system"),
        group("d", "d-default"),
        group("d", "d-high"),
        group("d", "low"),
        group("gone", "gone-x"),
    ];
    let imported = import(&kubernetes(objects), &owner());
    assert_eq!(
        imported.sections,
        [
            "namespace.team",
            "dask_cluster.d",
            "dask_cluster.d.group.high",
            "dask_cluster.d.group.low",
            "dask_cluster.d-team",
            "dask_cluster.kube",
        ],
        "{}",
        imported.text
    );
    let left = imported.left_out.join("\n");
    assert!(left.contains("with.dot` is not a valid name in a stack"), "{left}");
    assert!(left.contains("its cluster gone is not in this file"), "{left}");
    assert!(imported.text.contains("name = \"low\""), "{}", imported.text);
    let again = adopted(&imported.text);
    let names: Vec<String> = again.iter().map(|resource| resource.identity.to_string()).collect();
    for name in ["DaskCluster team/d", "DaskWorkerGroup default/d-high", "DaskWorkerGroup default/low"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
}

/// Checks that objects that a stack would not create are read, and reported in the stack's own words.
#[test]
fn what_a_stack_would_not_make_is_told() {
    let worker = json!({ "containers": [{ "name": "worker", "image": "i", "surprise": true }] });
    let objects = vec![
        cluster("bad", "default", container("scheduler"), worker),
        cluster("good", "default", container("scheduler"), container("worker")),
    ];
    let imported = import(&kubernetes(objects), &owner());
    assert_eq!(imported.sections, ["dask_cluster.bad", "dask_cluster.good"], "{}", imported.text);
    let left = imported.left_out.join("\n");
    assert!(
        left.contains("[dask_cluster.bad] a stack cannot describe it") && left.contains("surprise"),
        "{left}"
    );
    load(Path::new(""), &imported.text);
}

#[test]
fn keepers_are_known_by_their_marks() {
    let table = [
        (json!({ "annotations": { "meta.helm.sh/release-name": "dask" } }), Some("Helm release dask")),
        (json!({ "labels": { "app.kubernetes.io/managed-by": "Helm" } }), Some("Helm release")),
        (
            json!({ "annotations": { "argocd.argoproj.io/tracking-id": "lab:apps/Deployment:a/b" } }),
            Some("Argo CD application lab"),
        ),
        (
            json!({ "labels": { "kustomize.toolkit.fluxcd.io/name": "apps" } }),
            Some("Flux Kustomization apps"),
        ),
        (json!({ "managedFields": [{ "manager": "argocd-controller" }] }), Some("Argo CD")),
        (json!({ "managedFields": [{ "manager": "kubectl" }] }), None),
    ];
    for (metadata, expect) in table {
        assert_eq!(kept_by(&json!({ "metadata": metadata })).as_deref(), expect);
    }
}
