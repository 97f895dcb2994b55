use super::super::testing::{World, pool};
use super::*;
use crate::kube::object::Key;
use crate::kube::object::number;

fn set(selector: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"nodeSelector": selector, "containers": [{"name": "c", "image": "agent:1"}]},
            },
        },
    })
}

fn counts(world: &World) -> [Option<i64>; 6] {
    let set = world.get("apps", "daemonsets", "default", "agent");
    [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ]
    .map(|field| number(&set, &format!("/status/{field}")))
}

#[test]
fn one_pod_on_each_node_that_fits() {
    let tainted = json!({"taints": [{"key": "k", "value": "v", "effect": "NO_SCHEDULE"}]});
    let pools = vec![pool("a", "e2-standard-4", 2, json!({})), pool("b", "e2-standard-4", 1, tainted)];
    let mut world = World::new(pools);
    world.create(set(&Value::Null));
    world.pass(120);
    assert_eq!(counts(&world), [Some(2), Some(2), Some(2), Some(2), Some(2), None]);
    let mut places: Vec<String> =
        world.pods("default").iter().map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), 2);
    assert!(places.iter().all(|place| place.starts_with("gke-c-a-")));
}

#[test]
fn no_node_that_fits_is_no_failure() {
    let mut world = World::new(vec![pool("a", "e2-standard-4", 1, json!({}))]);
    world.create(set(&json!({"nothing": "here"})));
    world.pass(60);
    assert_eq!(counts(&world), [Some(0), Some(0), Some(0), None, None, None]);
}

#[test]
fn another_template_replaces_one_pod_at_a_time() {
    let mut world = World::new(vec![pool("a", "e2-standard-4", 2, json!({}))]);
    world.create(set(&Value::Null));
    world.pass(120);
    let key = Key::new("apps", "daemonsets", "default", "agent");
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "agent:2"}]}}}});
    world.merge(&key, &patch);
    world.pass(1);
    assert_eq!(counts(&world)[2..4], [Some(1), None], "one is stopping, none is new");
    world.pass(120);
    assert_eq!(counts(&world), [Some(2), Some(2), Some(2), Some(2), Some(2), None]);
    let live = world.get("apps", "daemonsets", "default", "agent");
    assert_eq!(number(&live, "/status/observedGeneration"), Some(generation(&live)));
}
