//! The API without HTTP: what requests do to the store and what they answer.

use serde_json::{Value, json};

use super::*;
use crate::kube::object::Key;
use crate::kube::scheme::MINOR;
use crate::kube::store::DeleteOptions;
use model::schema;

/// Answers a request that is no watch and no log; pure but for the cluster.
fn handle(cluster: &mut Cluster, now: Timestamp, request: &Request) -> Response {
    let version = format!("v1.{MINOR}.0");
    if let Some(response) = discovery::handle(&cluster.kinds, &version, request) {
        return response;
    }
    match route(cluster, now, request) {
        Ok(Answer::Done(response)) => response,
        Ok(Answer::Watch(_) | Answer::Log { .. }) => {
            Status::internal("this request needs a stream; send it through the router").into()
        }
        Err(status) => status.into(),
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new("test", now());
    for crd in schema::dask_crds() {
        cluster.create(now(), "test", crd.clone()).unwrap();
    }
    cluster.collect(now());
    cluster
}

/// Sends a request; the answer is its code and body.
fn send(cluster: &mut Cluster, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: parse_query(query),
        content_type: media.to_owned(),
        user_agent: "tester/1".to_owned(),
        body: body.into(),
        ..Request::default()
    };
    let response = handle(cluster, now(), &request);
    (response.code, serde_json::from_slice(&response.body).unwrap_or_default())
}

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

#[test]
fn writes_answer_with_the_codes_of_the_server() {
    let c = &mut cluster();
    let one = &format!("{MAPS}/a");
    let with = |field: &str, value: &str| {
        let mut object = map("a");
        object["metadata"][field] = json!(value);
        object
    };
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let steps: Vec<(&str, String, &str, Value, u16)> = vec![
        ("POST", format!("{MAPS}?dryRun=All"), JSON, map("a"), 201),
        ("GET", one.clone(), JSON, Value::Null, 404),
        ("POST", MAPS.to_owned(), JSON, map("a"), 201),
        ("POST", MAPS.to_owned(), JSON, map("a"), 409),
        ("POST", "/api/v1/namespaces/none/configmaps".to_owned(), JSON, map("a"), 404),
        ("POST", MAPS.to_owned(), JSON, map("Bad_Name"), 422),
        ("PUT", one.clone(), JSON, with("resourceVersion", "1"), 409),
        ("PUT", one.clone(), JSON, with("uid", "other"), 409),
        ("PUT", one.clone(), JSON, map("a"), 200),
        ("PATCH", one.clone(), MERGE, json!({"data": {"k": "w"}}), 200),
        ("PATCH", format!("{one}?&fieldManager=m"), APPLY, map("a"), 409),
        ("PATCH", format!("{one}?&fieldManager=m&force=true"), APPLY, map("a"), 200),
        ("PATCH", one.clone(), APPLY, map("a"), 422),
        // A stated version: refused on what is there, creates what is not.
        ("PATCH", format!("{one}?fieldManager=m"), APPLY, with("resourceVersion", "1"), 409),
        (
            "PATCH",
            format!("{MAPS}/b?fieldManager=m"),
            APPLY,
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "b", "resourceVersion": "1"}}),
            201,
        ),
        (
            "PATCH",
            format!("{MAPS}/c?fieldManager=m"),
            APPLY,
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "uid": "u"}}),
            409,
        ),
        ("DELETE", one.clone(), JSON, json!({"preconditions": {"uid": "other"}}), 409),
        ("DELETE", one.clone(), JSON, Value::Null, 200),
        ("DELETE", one.clone(), JSON, Value::Null, 404),
        ("GET", "/apis/apps/v1/nonsense".to_owned(), JSON, Value::Null, 404),
        (
            "POST",
            deployments.to_owned(),
            JSON,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {}}),
            422,
        ),
        (
            "POST",
            format!("{deployments}?fieldValidation=Strict"),
            JSON,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "specs": {}}),
            400,
        ),
    ];
    for (method, path, media, body, code) in steps {
        let (found, answer) = send(c, method, &path, media, &body);
        assert_eq!(found, code, "{method} {path} {body}: {answer}");
    }
}

/// Sends a request as the router does, which keeps dry runs apart.
fn send_routed(cluster: &mut Cluster, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    match path.contains("dryRun=All") {
        true => send(&mut cluster.scratch(), method, path, media, body),
        false => send(cluster, method, path, media, body),
    }
}

/// Of two clusters one gets each write as a dry run before. The other has the same objects in the end, with the same uids,
/// addresses and versions.
#[test]
fn dry_runs_leave_no_trace() {
    let (tried, quiet) = (&mut cluster(), &mut cluster());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    // GKE has its definition in every cluster.
    let monitoring = json!({"apiVersion": "monitoring.googleapis.com/v1", "kind": "PodMonitoring",
        "metadata": {"name": "m"}, "spec": {"selector": {}, "endpoints": [{"port": "http"}]}});
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    let core = "/api/v1/namespaces/default";
    let monitored = "/apis/monitoring.googleapis.com/v1/namespaces/default/podmonitorings/m";
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let steps: Vec<(&str, String, &str, Value)> = vec![
        ("POST", format!("{core}/pods"), JSON, pod),
        ("PATCH", format!("{core}/services/s?fieldManager=m"), APPLY, service),
        ("PATCH", format!("{core}/configmaps/a?fieldManager=m"), APPLY, map("a")),
        ("PATCH", format!("{core}/configmaps/a?fieldManager=n&force=true"), APPLY, map("a")),
        ("PATCH", format!("{core}/configmaps/a"), MERGE, json!({"data": {"k": "w"}})),
        ("PUT", format!("{core}/configmaps/a"), JSON, map("a")),
        ("POST", format!("{core}/configmaps"), JSON, map("a")),
        ("POST", definitions.to_owned(), JSON, crd),
        ("PATCH", format!("{monitored}?fieldManager=m"), APPLY, monitoring),
        ("POST", "/api/v1/namespaces".to_owned(), JSON, space),
        ("DELETE", format!("{core}/configmaps/a"), JSON, Value::Null),
        ("DELETE", format!("{core}/pods"), JSON, Value::Null),
        ("DELETE", "/api/v1/namespaces/team".to_owned(), JSON, Value::Null),
        ("DELETE", format!("{definitions}/widgets.example.com"), JSON, Value::Null),
    ];
    for (method, path, media, body) in steps {
        let mark = if path.contains('?') { "&" } else { "?" };
        let before = format!("{:?}", tried.snapshot());
        let (code, answer) = send_routed(tried, method, &format!("{path}{mark}dryRun=All"), media, &body);
        assert_eq!(format!("{:?}", tried.snapshot()), before, "{method} {path}: {answer}");
        let real = send_routed(tried, method, &path, media, &body);
        assert_eq!(code, real.0, "{method} {path}: {answer}");
        if code == 201 {
            assert_ne!(
                answer["metadata"]["uid"], real.1["metadata"]["uid"],
                "{method} {path}: the uid of the dry run"
            );
        }
        assert_eq!(real, send_routed(quiet, method, &path, media, &body), "{method} {path}");
        assert_eq!(format!("{:?}", tried.snapshot()), format!("{:?}", quiet.snapshot()), "{method} {path}");
        tried.take_dirty();
        send_routed(tried, method, &format!("{path}{mark}dryRun=All"), media, &body);
        assert!(tried.take_dirty().is_empty(), "{method} {path}: a dry run is written to disk");
    }
}

#[test]
fn a_dry_run_of_a_taken_name_judges_the_object_first() {
    let c = &mut cluster();
    assert_eq!(send_routed(c, "POST", MAPS, JSON, &map("a")).0, 201);
    let path = &format!("{MAPS}?dryRun=All");
    let (code, answer) = send_routed(c, "POST", path, JSON, &map("a"));
    assert_eq!((code, &answer["reason"]), (409, &json!("AlreadyExists")), "{answer}");
    let mut wrong = map("a");
    wrong["data"] = json!({"a b": "1"});
    let (code, answer) = send_routed(c, "POST", path, JSON, &wrong);
    assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{answer}");
}

#[test]
fn an_apply_that_changes_nothing_moves_nothing() {
    let c = &mut cluster();
    let path = &format!("{MAPS}/a?fieldManager=m");
    let (_, first) = send(c, "PATCH", path, APPLY, &map("a"));
    let revision = c.revision();
    let (_, second) = send(c, "PATCH", path, APPLY, &map("a"));
    assert_eq!(first, second);
    assert_eq!(c.revision(), revision);
}

#[test]
fn lists_are_paged_at_one_revision() {
    let c = &mut cluster();
    for name in ["a", "b", "c"] {
        send(c, "POST", MAPS, JSON, &map(name));
    }
    let names = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
    };
    let (_, page) = send(c, "GET", &format!("{MAPS}?limit=2"), JSON, &Value::Null);
    assert_eq!(names(&page), ["a", "b"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    send(c, "DELETE", &format!("{MAPS}/c"), JSON, &Value::Null);
    let token = text(&page, "/metadata/continue");
    let (_, rest) = send(c, "GET", &format!("{MAPS}?limit=2&continue={token}"), JSON, &Value::Null);
    assert_eq!(names(&rest), ["c"]);
    let (code, _) = send(c, "GET", &format!("{MAPS}?resourceVersion=999999"), JSON, &Value::Null);
    assert_eq!(code, 504);
}

fn dependent(name: &str, owner: &Value, blocking: bool) -> Value {
    let mut object = map(name);
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocking}]);
    object
}

#[test]
fn dependents_follow_their_owner_as_asked() {
    for (policy, finalizer, expected) in [
        ("Background", false, vec![]),
        ("Background", true, vec!["held"]),
        ("Foreground", true, vec!["held", "owner"]),
        ("Orphan", false, vec!["child", "grandchild", "held"]),
    ] {
        let c = &mut cluster();
        let (_, owner) = send(c, "POST", MAPS, JSON, &map("owner"));
        let (_, child) = send(c, "POST", MAPS, JSON, &dependent("child", &owner, true));
        send(c, "POST", MAPS, JSON, &dependent("grandchild", &child, false));
        let mut held = dependent("held", &owner, true);
        if finalizer {
            held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        }
        send(c, "POST", MAPS, JSON, &held);
        c.collect(now());
        send(c, "DELETE", &format!("{MAPS}/owner"), JSON, &json!({"propagationPolicy": policy}));
        c.collect(now());
        let names: Vec<&str> = c.list("", "configmaps").map(|(key, _)| key.name.as_str()).collect();
        assert_eq!(names, expected, "{policy}");
        if finalizer {
            send(c, "PATCH", &format!("{MAPS}/held"), MERGE, &json!({"metadata": {"finalizers": null}}));
            c.collect(now());
            assert_eq!(c.list("", "configmaps").count(), 0, "{policy}");
        }
    }
}

#[test]
fn a_namespace_waits_for_its_content() {
    let c = &mut cluster();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    send(c, "POST", "/api/v1/namespaces", JSON, &namespace);
    let mut held = map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    send(c, "POST", "/api/v1/namespaces/n/configmaps", JSON, &held);
    let (_, answer) = send(c, "DELETE", "/api/v1/namespaces/n", JSON, &Value::Null);
    assert_eq!(answer["status"]["phase"], "Terminating");
    c.collect(now());
    let (code, _) = send(c, "POST", "/api/v1/namespaces/n/configmaps", JSON, &map("late"));
    assert_eq!(code, 403);
    let (_, waiting) = send(c, "GET", "/api/v1/namespaces/n", JSON, &Value::Null);
    assert!(waiting.to_string().contains("example.com/hold in 1 resource instances"), "{waiting}");
    let path = "/api/v1/namespaces/n/configmaps/held";
    send(c, "PATCH", path, MERGE, &json!({"metadata": {"finalizers": null}}));
    c.collect(now());
    assert_eq!(send(c, "GET", "/api/v1/namespaces/n", JSON, &Value::Null).0, 404);
}

#[test]
fn bound_pods_get_their_grace() {
    let c = &mut cluster();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i",
            "resources": {"limits": {"nvidia.com/gpu": 1}}}]}});
    let (_, stored) = send(c, "POST", "/api/v1/namespaces/default/pods", JSON, &pod);
    assert_eq!(stored.pointer("/spec/containers/0/resources/requests/nvidia.com~1gpu"), Some(&json!("1")));
    assert_eq!(stored.pointer("/spec/tolerations/0/key"), Some(&json!("nvidia.com/gpu")));
    let path = "/api/v1/namespaces/default/pods/p";
    let (_, dying) = send(c, "DELETE", path, JSON, &Value::Null);
    assert_eq!(dying["metadata"]["deletionGracePeriodSeconds"], 30);
    let key = Key::new("", "pods", "default", "p");
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    c.delete(now(), &key, &options).unwrap();
    assert_eq!(c.get(&key), None);
}

#[test]
fn custom_resources_count_generations_and_take_defaults() {
    let c = &mut cluster();
    let container = json!([{"name": "w", "image": "i", "env": null, "typo": 1}]);
    let group = json!({"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskWorkerGroup",
        "metadata": {"name": "g"}, "spec": {"cluster": "d", "worker": {"spec": {"containers": container}}}});
    let path = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups";
    let (code, stored) = send(c, "POST", path, JSON, &group);
    assert_eq!(code, 201, "{stored}");
    assert_eq!(stored.pointer("/spec/worker/replicas"), Some(&json!(1)));
    assert_eq!(stored.pointer("/spec/worker/spec/containers/0"), Some(&json!({"name": "w", "image": "i"})));
    // There is no status subresource: a status write is a new generation, PUT needs a version.
    let (_, patched) = send(c, "PATCH", &format!("{path}/g"), MERGE, &json!({"status": {"phase": "x"}}));
    assert_eq!(patched["metadata"]["generation"], if patched["status"].is_null() { 1 } else { 2 });
    assert_eq!(send(c, "PUT", &format!("{path}/g"), JSON, &group).0, 422);
    let strategic = "application/strategic-merge-patch+json";
    assert_eq!(send(c, "PATCH", &format!("{path}/g"), strategic, &json!({})).0, 415);
    let (_, scale) = send(c, "PATCH", &format!("{path}/g/scale"), MERGE, &json!({"spec": {"replicas": 3}}));
    assert_eq!(scale["spec"]["replicas"], 3);
}

#[test]
fn a_restored_cluster_goes_on_where_it_was() {
    let c = &mut cluster();
    send(c, "POST", MAPS, JSON, &map("a"));
    let mut meta = Value::Null;
    let mut entries = Vec::new();
    for dirty in c.take_dirty() {
        match dirty {
            super::super::store::Dirty::Put(key, value) => entries.push((key, value)),
            super::super::store::Dirty::Remove(_) => {}
            super::super::store::Dirty::Meta(value) => meta = value,
        }
    }
    assert!(c.take_dirty().is_empty());
    let restored = &mut Cluster::restore(&meta, entries).unwrap();
    assert_eq!(restored.objects().collect::<Vec<_>>(), c.objects().collect::<Vec<_>>());
    assert_eq!(restored.revision(), c.revision());
    assert!(restored.changes_since(c.revision() - 1).is_none(), "older watches must start again");
    assert_eq!(
        send(restored, "POST", MAPS, JSON, &map("b")).1["metadata"]["uid"],
        send(c, "POST", MAPS, JSON, &map("b")).1["metadata"]["uid"]
    );
}
