//! Ownership in one cluster, by the real program against a served sandbox: stacks that share, foreign objects with
//! names of the
//! stack, sections that left the file, and a record that is lost or another stack's.

use serde_json::{Value, json};

use crate::sandbox_server::{SandboxServer, User};

const GKE: &str = "[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n";
const POOL: &str = "machine_type = \"e2-standard-4\"\n";
const OPERATOR: &str = "\n[dask_operator]\nversion = \"2026.3.0\"\n";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/dask-operator/deployments/dask-kubernetes-operator";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daskclusters.kubernetes.dask.org";
const RECORD: &str = "/api/v1/namespaces/dask-infra/configmaps/dask-infra-first";

/// A stack that makes a small cluster, and more.
fn first(more: &str) -> String {
    format!("[stack]\nname = \"first\"\n\n{GKE}\n[cluster]\nname = \"c\"\n\n[node_pool.cpu]\n{POOL}{more}")
}

fn stranger(served: &SandboxServer, namespace: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "theirs" } });
    let (code, said) = served.post(&path, &object);
    assert_eq!(code, 201, "{said}");
    format!("{path}/theirs")
}

/// The stacks whose field managers hold an object.
fn holders(served: &SandboxServer, path: &str) -> Vec<String> {
    let (code, live) = (served.code(path), served.get(path));
    assert_eq!(code, 200, "{path}: {live}");
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    let applied = entries.iter().filter(|entry| entry["operation"] == "Apply");
    let mut managers: Vec<String> =
        applied.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect();
    managers.sort();
    managers
}

#[test]
fn two_stacks_share_the_operator_and_the_last_to_leave_removes_it() {
    let served = SandboxServer::fast();
    let ann = User::at(&served, first(OPERATOR));
    ann.run(&["apply", "--auto-approve"]).expect(0);
    let guest =
        format!("[stack]\nname = \"second\"\n\n{GKE}\n[cluster]\nname = \"c\"\nmanage = false\n{OPERATOR}");
    let bob = User::at(&served, &guest);
    bob.run(&["plan"]).expect(0).says("stack first uses it too; this stack shares it");
    bob.run(&["apply", "--auto-approve"]).expect(0);
    bob.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    for path in [DEPLOYMENT, DEFINITION] {
        assert_eq!(holders(&served, path), ["dask-infra/first", "dask-infra/second"], "{path}");
    }

    bob.run(&["destroy", "--auto-approve"]).expect(0).says("only released by this stack");
    for path in [DEPLOYMENT, DEFINITION] {
        assert_eq!(holders(&served, path), ["dask-infra/first"], "{path}");
    }
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    bob.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");

    ann.write(first(""));
    ann.run(&["apply", "--auto-approve"]).expect(3).says("delete:dask_operator");
    assert_eq!(served.code(DEPLOYMENT), 200, "nothing goes without approval");
    ann.run(&["apply", "--auto-approve", "--allow", "delete:dask_operator"]).expect(0);
    for path in [DEPLOYMENT, DEFINITION] {
        assert_eq!(served.code(path), 404, "{path} went with the last stack");
    }
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

/// Each sees that the other still uses it, and plans to leave it to the other: then nobody would delete it.
#[test]
fn of_two_that_leave_at_once_the_second_deletes() {
    let served = SandboxServer::fast();
    let ann = User::at(&served, first(OPERATOR));
    ann.run(&["apply", "--auto-approve"]).expect(0);
    let guest =
        format!("[stack]\nname = \"second\"\n\n{GKE}\n[cluster]\nname = \"c\"\nmanage = false\n{OPERATOR}");
    let bob = User::at(&served, &guest);
    bob.run(&["apply", "--auto-approve"]).expect(0);
    ann.write(first(""));
    ann.run(&["plan", "--out", "leaves", "--allow", "delete:dask_operator"])
        .expect(0)
        .says("only released by this stack");
    bob.run(&["plan", "--destroy", "--out", "leaves"]).expect(0).says("only released by this stack");
    ann.run(&["apply", "leaves"]).expect(0);
    assert_eq!(holders(&served, DEPLOYMENT), ["dask-infra/second"]);
    bob.run(&["apply", "leaves"]).expect(4).says("planned: released; now: deleted");
    assert_eq!(holders(&served, DEPLOYMENT), ["dask-infra/second"], "nothing was done");
    bob.run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"]).expect(0);
    for path in [DEPLOYMENT, DEFINITION] {
        assert_eq!(served.code(path), 404, "{path} went with the last stack");
    }
}

#[test]
fn what_left_the_file_goes_with_approval_and_things_of_others_are_named() {
    let served = SandboxServer::fast();
    let ann = User::at(&served, first("\n[namespace.team]\n"));
    ann.run(&["apply", "--auto-approve"]).expect(0);
    let third = format!("\n[node_pool.third]\n{POOL}");
    ann.write(first(&format!("\n[namespace.team]\n{third}")));
    ann.run(&["apply", "--auto-approve"]).expect(0).says("1 added");
    ann.write(first("\n[namespace.team]\n"));
    ann.run(&["plan"]).expect(0).says("Plan: 1 to destroy").says("node_pool.third");
    ann.run(&["plan", "--out", "saved"]).expect(0);
    let shown: Value = serde_json::from_str(&ann.run(&["show", "--json", "saved"]).expect(0).out).unwrap();
    let changes = shown["resource_changes"].as_array().unwrap();
    let gone = changes.iter().find(|change| change["address"] == "node_pool.third").unwrap();
    let before = &gone["change"]["before"];
    assert_eq!(
        (&before["name"], &before["status"]),
        (&json!("third"), &json!("RUNNING")),
        "everything that is live"
    );
    assert_eq!(before["config"]["machineType"], "e2-standard-4");
    ann.run(&["apply", "--auto-approve"]).expect(3).says("delete:node_pool.third");
    let allow = "delete:node_pool.third";
    ann.run(&["plan", "--target", "node_pool.third", "--allow", allow])
        .expect(0)
        .says("apply --target node_pool.third --allow delete:node_pool.third");
    ann.run(&["apply", "--auto-approve", "--allow", allow]).expect(0).says("1 destroyed");
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    let (inside, beside) = (stranger(&served, "team"), stranger(&served, "default"));
    ann.write(first(""));
    ann.run(&["apply", "--auto-approve", "--allow", "delete:namespace.team"])
        .expect(3)
        .says("it would be deleted with its namespace");
    assert_eq!(served.code(&inside), 200, "what others made stays without approval");
    let allow = ["--allow", "delete:namespace.team", "--allow", "delete:others.team"];
    ann.run(&[&["apply", "--auto-approve"], &allow[..]].concat()).expect(0);
    assert_eq!((served.code(&inside), served.code(&beside)), (404, 200));
    ann.run(&["destroy", "--auto-approve"]).expect(3).says("delete:others.default");
    assert_eq!(served.code(&beside), 200);
    ann.run(&["destroy", "--auto-approve", "--allow", "delete:others.default"]).expect(0);
    assert_eq!(served.sandbox.clusters().len(), 0);
}

#[test]
fn without_gkes_sections_nothing_is_done_and_without_a_record_it_goes_on() {
    let served = SandboxServer::fast();
    let whole = first("\n[namespace.team]\n");
    let ann = User::at(&served, &whole);
    ann.run(&["apply", "--auto-approve"]).expect(0);
    let words: [&[&str]; 4] =
        [&["plan"], &["apply", "--auto-approve"], &["destroy", "--auto-approve"], &["status"]];
    for (stack, says) in [
        (format!("[stack]\nname = \"first\"\n\n{GKE}\n[namespace.team]\n"), "`[gke]` needs `[cluster]`"),
        ("[stack]\nname = \"first\"\n\n[namespace.team]\n".to_owned(), "has no target"),
    ] {
        ann.write(&stack);
        for words in words {
            let said = ann.run(words).expect(1).says(says);
            assert!(!said.err.contains("kubeconfig"), "{}", said.err);
        }
    }
    // The cluster stays whatever else leaves the file: only `destroy` deletes it.
    ann.write(format!("[stack]\nname = \"first\"\n\n{GKE}\n[cluster]\nname = \"c\"\nmanage = false\n"));
    ann.run(&["plan"]).expect(0).says("2 to destroy").says("node_pool.cpu").says("namespace.team");
    ann.write(&whole);
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    let record = served.get(RECORD);
    assert!(record["binaryData"]["record"].is_string() && record["data"]["record"].is_null(), "{record}");
    ann.write(whole.replace("name = \"first\"\n", "name = \"first\"\nid = \"another\"\n"));
    ann.run(&["plan"]).expect(3).says("the record of another stack named first (id first), not another");
    ann.run(&["apply", "--auto-approve"]).expect(3).says("rename this stack");
    ann.write(&whole);

    assert_eq!(served.delete(RECORD), 200);
    ann.run(&["plan", "--detailed-exitcode"])
        .expect(0)
        .says("No changes")
        .says("the record of earlier applies is missing");
    ann.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
    assert_eq!(served.sandbox.clusters().len(), 0);
}

const RAPIDS: &str = "/apis/kubernetes.dask.org/v1/namespaces/team/daskclusters/rapids";

#[test]
fn what_is_still_wanted_keeps_its_namespace() {
    let served = SandboxServer::fast();
    let cluster = "\n[dask_cluster.rapids]\nnamespace = \"team\"\nimage = \"demo:1\"\nprotect = true\n\
                   worker = { replicas = 1 }\n";
    let ann = User::at(&served, first(&format!("{OPERATOR}\n[namespace.team]\n{cluster}")));
    ann.run(&["apply", "--auto-approve"]).expect(0);
    let uid = served.get(RAPIDS)["metadata"]["uid"].clone();
    ann.write(first(&format!("{OPERATOR}{cluster}")));
    let allow = ["--auto-approve", "--allow", "delete:namespace.team"];
    for more in [&[][..], &["--target", "namespace.team"], &["--exclude", "dask_cluster.rapids"]] {
        let words = [&["apply"], &allow[..], more].concat();
        ann.run(&words)
            .expect(3)
            .says("DI0313")
            .says("DI0305")
            .says("`[namespace.team]`, with `manage = false`");
        assert_eq!(served.get(RAPIDS)["metadata"]["uid"], uid, "{more:?}");
    }
    ann.write(first(&format!("{OPERATOR}\n[namespace.team]\nmanage = false\n{cluster}")));
    ann.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(served.get(RAPIDS)["metadata"]["uid"], uid);
}

/// A definition of Queues with these versions; the last is stored.
fn queues(versions: &[&str]) -> String {
    let version = |name: &&str| {
        let storage = Some(name) == versions.last();
        json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": {
            "type": "object", "properties": { "spec": { "type": "object", "properties": {
                "size": { "type": "integer" } } } } } } })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "queues.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Queue", "plural": "queues", "singular": "queue", "listKind": "QueueList" },
            "versions": versions.iter().map(version).collect::<Vec<_>>() },
    })
    .to_string()
}

fn queue(version: &str, name: &str) -> Value {
    json!({ "apiVersion": format!("example.com/{version}"), "kind": "Queue",
        "metadata": { "name": name, "namespace": "default" }, "spec": { "size": 1 } })
}

#[test]
fn versions_are_views_of_one_object_and_a_definition_takes_all_of_its_kind_along() {
    let served = SandboxServer::fast();
    let kinds = "\n[manifest.kinds]\nfile = \"kinds.yaml\"\n";
    let app = "\n[manifest.app]\nfile = \"app.yaml\"\ndefinitions = \"kinds.yaml\"\n";
    let ann = User::at(&served, first(&format!("{kinds}{app}")));
    let file = |name: &str, text: String| std::fs::write(ann.path().join(name), text).unwrap();
    file("kinds.yaml", queues(&["v1beta1", "v1"]));
    file("app.yaml", queue("v1", "main").to_string());
    ann.run(&["apply", "--auto-approve"]).expect(0);
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let path = "/apis/example.com/v1/namespaces/default/queues";
    let uid = served.get(&format!("{path}/main"))["metadata"]["uid"].clone();
    file("app.yaml", queue("v1beta1", "main").to_string());
    ann.run(&["plan"])
        .expect(0)
        .says("apiVersion: \"example.com/v1\" -> \"example.com/v1beta1\"")
        .says("1 to change");
    ann.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    assert_eq!(served.get(&format!("{path}/main"))["metadata"]["uid"], uid, "it is the same object");

    let (code, said) = served.post(path, &queue("v1", "theirs"));
    assert_eq!(code, 201, "{said}");
    ann.write(first(app));
    let allow = ["--allow", "delete:manifest.kinds"];
    ann.run(&[&["apply", "--auto-approve"], &allow[..]].concat())
        .expect(3)
        .says("DI0313")
        .says("manifest.app");
    ann.write(first(""));
    let allow = [&allow[..], &["--allow", "delete:manifest.app"]].concat();
    ann.run(&[&["apply", "--auto-approve"], &allow[..]].concat())
        .expect(3)
        .says("delete:others.default/Queue/theirs")
        .says("it would be deleted with the definition of its kind");
    assert_eq!(served.code(&format!("{path}/theirs")), 200, "what others made stays without approval");
    let allow = [&allow[..], &["--allow", "delete:others.default"]].concat();
    ann.run(&[&["apply", "--auto-approve"], &allow[..]].concat()).expect(0);
    assert_eq!(served.code(path), 404);
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

#[test]
fn the_operator_that_others_need_is_not_forgotten() {
    let served = SandboxServer::fast();
    let ann = User::at(&served, first(OPERATOR));
    ann.run(&["apply", "--auto-approve"]).expect(0);
    let pod = json!({ "containers": [{ "name": "a", "image": "demo:1" }] });
    let ports = json!([{ "name": "tcp-comm", "port": 8786, "targetPort": "tcp-comm" }]);
    let theirs = json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "metadata": { "name": "theirs" },
        "spec": { "worker": { "replicas": 0, "spec": pod },
            "scheduler": { "spec": pod, "service": { "type": "ClusterIP", "selector": {}, "ports": ports } } },
    });
    let path = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters";
    let (code, said) = served.post(path, &theirs);
    assert_eq!(code, 201, "{said}");
    // It leaves the file and stays; then something else is applied.
    ann.write(first(""));
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("DI0356");
    ann.write(first("\n[namespace.team]\n"));
    ann.run(&["apply", "--auto-approve"]).expect(0).says("1 added");
    for more in [&["--target", "namespace.team"][..], &["--target", "dask_operator"]] {
        ann.run(&[&["destroy", "--auto-approve", "--allow", "delete:dask_operator"], more].concat())
            .expect(0);
        assert_eq!(served.code(DEPLOYMENT), 200, "others need it: {more:?}");
    }
    ann.write(first(""));
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("DI0356");

    assert_eq!(served.delete(&format!("{path}/theirs")), 200);
    for _ in 0..3000 {
        if served.code(&format!("{path}/theirs")) == 404 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    ann.run(&["apply", "--auto-approve"]).expect(3).says("delete:dask_operator");
    ann.run(&["apply", "--auto-approve", "--allow", "delete:dask_operator"]).expect(0);
    for path in [DEPLOYMENT, DEFINITION] {
        assert_eq!(served.code(path), 404, "{path} is left to nobody");
    }
    ann.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

const DASK: &str = "image = \"rapids:1\"\nworker = { replicas = 1 }\n";
const CLUSTER: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/d";

/// A stack in the cluster of the first one.
fn guest(name: &str, more: &str) -> String {
    format!(
        "[stack]\nname = \"{name}\"\n\n{GKE}\n[cluster]\nname = \"c\"\nmanage = false\n\n[dask_operator]\nmanage = false\n{more}"
    )
}

/// The two ways of docs/import.md: the first stack hands over, or it no longer exists.
#[test]
fn a_dask_cluster_goes_to_another_stack_and_is_destroyed_there() {
    let served = SandboxServer::fast();
    let home = User::at(&served, first(OPERATOR));
    home.run(&["apply", "--auto-approve"]).expect(0);
    let [mine, theirs] = ["", "manage = false\n"].map(|line| format!("\n[dask_cluster.d]\n{line}{DASK}"));
    let alpha = User::at(&served, guest("alpha", &mine));
    let beta = User::at(&served, guest("beta", &theirs));
    alpha.run(&["apply", "--auto-approve"]).expect(0);
    let uid = served.get(CLUSTER)["metadata"]["uid"].clone();

    beta.run(&["adopt", "dask_cluster.d", "--auto-approve"]).expect(3).says("belongs to the stack alpha");
    alpha.write(guest("alpha", &theirs));
    alpha.run(&["plan", "--detailed-exitcode"]).expect(2).says("release it");
    alpha.run(&["apply", "--auto-approve"]).expect(0).says("1 released");
    alpha.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    assert_eq!(holders(&served, CLUSTER), [""; 0]);
    assert!(served.get(CLUSTER)["metadata"]["labels"]["dask-infra.dev/stack"].is_null());
    beta.run(&["adopt", "dask_cluster.d", "--auto-approve"]).expect(0).says("`manage = false` removed");
    assert_eq!(holders(&served, CLUSTER), ["dask-infra/beta"]);
    // Whoever gave it away destroys what is left, and asks for nothing.
    alpha.write(guest("alpha", ""));
    alpha.run(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!(served.get(CLUSTER)["metadata"]["uid"], uid);

    // Its file is lost: another stack takes it with approval.
    let gamma = User::at(&served, guest("gamma", &theirs));
    gamma.run(&["adopt", "dask_cluster.d", "--auto-approve"]).expect(3).says("--allow take:dask_cluster.d");
    gamma.run(&["adopt", "dask_cluster.d", "--auto-approve", "--allow", "take:dask_cluster.d"]).expect(0);
    assert_eq!(holders(&served, CLUSTER), ["dask-infra/gamma"]);
    assert_eq!(served.get(CLUSTER)["metadata"]["uid"], uid, "nothing was recreated");
    beta.run(&["destroy", "--auto-approve"]).expect(0).says("it belongs to stack gamma now");
    assert_eq!(served.get(CLUSTER)["metadata"]["uid"], uid);
    gamma.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
    assert_eq!(served.code(CLUSTER), 404);
}

/// Others clear managedFields: the object is named, and goes with approval only.
#[test]
fn an_object_without_its_field_manager_is_named_by_destroy() {
    let served = SandboxServer::fast();
    let home = User::at(&served, first(OPERATOR));
    home.run(&["apply", "--auto-approve"]).expect(0);
    let alpha = User::at(&served, guest("alpha", &format!("\n[dask_cluster.d]\n{DASK}")));
    alpha.run(&["apply", "--auto-approve"]).expect(0);
    served.merge(CLUSTER, &json!({ "metadata": { "managedFields": [{}] } }));
    alpha.run(&["plan", "--refresh-only"]).expect(2).says("field manager was removed from it");
    alpha.run(&["destroy", "--auto-approve"]).expect(3).says("delete:dask_cluster.d");
    assert_eq!(served.code(CLUSTER), 200);
    alpha.run(&["destroy", "--auto-approve", "--allow", "delete:dask_cluster.d"]).expect(0);
    assert_eq!(served.code(CLUSTER), 404);
}

/// A handed-over object is not deleted when its section is removed.
#[test]
fn what_was_handed_over_outlives_its_section_and_the_stack() {
    let served = SandboxServer::fast();
    let pool = |line: &str| format!("\n[node_pool.shared]\n{line}{POOL}\n[namespace.theirs]\n{line}");
    let home = User::at(&served, first(&pool("")));
    home.run(&["apply", "--auto-approve"]).expect(0);
    let alone = format!("[stack]\nname = \"alpha\"\n\n{GKE}\n[cluster]\nname = \"c\"\nmanage = false\n");
    let alpha = User::at(
        &served,
        format!("{alone}{}", pool("").replace("shared", "given").replace("theirs", "given")),
    );
    alpha.run(&["apply", "--auto-approve"]).expect(0);
    alpha.write(format!(
        "{alone}{}",
        pool("manage = false\n").replace("shared", "given").replace("theirs", "given")
    ));
    alpha.run(&["apply", "--auto-approve"]).expect(0).says("2 released");
    alpha.write(format!("{alone}\n[namespace.other]\n"));
    alpha.run(&["apply", "--auto-approve"]).expect(0).says("1 added");
    alpha.run(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!(served.code("/api/v1/namespaces/given"), 200);
    let path = "/v1/projects/demo/locations/us-central1-c/clusters/c/nodePools/given";
    let live = served.sandbox.gke_request("GET", path, "", b"").unwrap();
    assert_eq!(live.code, 200, "{}", live.body);
    assert!(live.body["config"]["resourceLabels"]["dask-infra-stack"].is_null(), "{}", live.body);
}
