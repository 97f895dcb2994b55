use super::super::testing::{World, pool};
use super::*;
use crate::kube::object::Key;
use crate::kube::object::{is_owned_by, list};

fn world() -> World {
    let mut world = World::new(vec![pool("p", "e2-standard-16", 1, json!({}))]);
    world.pass(120);
    world
}

fn deployment(replicas: i64, strategy: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "annotations": {"note": "x"}},
        "spec": {
            "replicas": replicas, "strategy": strategy, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
            },
        },
    })
}

fn key() -> Key {
    Key::new("apps", "deployments", "default", "web")
}

fn live(world: &World) -> Value {
    world.get("apps", "deployments", "default", "web")
}

fn counts(deployment: &Value) -> [Option<i64>; 5] {
    ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"]
        .map(|field| number(deployment, &format!("/status/{field}")))
}

#[test]
fn a_deployment_comes_up() {
    let mut world = world();
    world.create(deployment(2, &json!({})));
    world.pass(1);
    let now = live(&world);
    assert_eq!(counts(&now), [Some(2), Some(2), None, None, Some(2)]);
    let reason = |ty: &str, object: &Value| {
        let found = condition(object, ty).cloned().unwrap_or_default();
        (text(&found, "/status").to_owned(), text(&found, "/reason").to_owned())
    };
    assert_eq!(reason("Available", &now), ("False".to_owned(), "MinimumReplicasUnavailable".to_owned()));
    assert_eq!(reason("Progressing", &now), ("True".to_owned(), "ReplicaSetUpdated".to_owned()));
    world.pass(30);
    let now = live(&world);
    assert_eq!(counts(&now), [Some(2), Some(2), Some(2), Some(2), None]);
    assert_eq!(number(&now, "/status/observedGeneration"), Some(generation(&now)));
    assert_eq!(reason("Available", &now), ("True".to_owned(), "MinimumReplicasAvailable".to_owned()));
    assert_eq!(reason("Progressing", &now), ("True".to_owned(), "NewReplicaSetAvailable".to_owned()));
    assert_eq!(annotation(&now, REVISION), Some("1"));
    let sets = world.all("apps", "replicasets");
    let set = sets.iter().find(|set| is_owned_by(set, &now)).expect("a ReplicaSet");
    let hash = crate::kube::object::label(set, HASH_LABEL);
    assert_eq!(name(set), format!("web-{hash}"));
    assert_eq!(set["spec"]["selector"]["matchLabels"][HASH_LABEL], json!(hash));
    assert_eq!((annotation(set, "note"), annotation(set, DESIRED)), (Some("x"), Some("2")));
    for pod in world.pods("default") {
        assert!(name(&pod).starts_with(&format!("web-{hash}-")), "{}", name(&pod));
        assert!(is_owned_by(&pod, set));
    }
}

#[test]
fn another_template_rolls_and_keeps_enough_pods() {
    let mut world = world();
    world.create(deployment(4, &json!({})));
    world.pass(60);
    let old = world.names("", "pods", "default");
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
    world.merge(&key(), &patch);
    world.pass(1);
    let active = world.pods("default").into_iter().filter(is_active).count();
    assert!((4..=5).contains(&active), "surge of one, one may be missing: {active}");
    assert!(number(&live(&world), "/status/availableReplicas") >= Some(3));
    world.pass(200);
    let pods = world.pods("default");
    assert_eq!(pods.len(), 4);
    assert!(pods.iter().all(|pod| !old.contains(&name(pod).to_owned())));
    assert_eq!(annotation(&live(&world), REVISION), Some("2"));
    assert_eq!(counts(&live(&world)), [Some(4), Some(4), Some(4), Some(4), None]);
    let sets = world.all("apps", "replicasets");
    let sizes: Vec<i64> = sets.iter().filter(|set| is_owned_by(set, &live(&world))).map(replicas).collect();
    assert_eq!(sizes.iter().sum::<i64>(), 4, "the old ReplicaSet stays, empty");
    assert_eq!(sizes.len(), 2);
}

#[test]
fn recreate_stops_the_old_pods_first() {
    let mut world = world();
    world.create(deployment(2, &json!({"type": "Recreate"})));
    world.pass(60);
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
    world.merge(&key(), &patch);
    world.pass(1);
    let images = |world: &World| -> Vec<String> {
        let pods = world.pods("default");
        pods.iter().map(|pod| text(&list(pod, "/spec/containers")[0], "/image").to_owned()).collect()
    };
    assert_eq!(images(&world), ["nginx:1", "nginx:1"]);
    world.pass(60);
    assert_eq!(images(&world), ["nginx:2", "nginx:2"]);
    assert_eq!(counts(&live(&world)), [Some(2), Some(2), Some(2), Some(2), None]);
}

#[test]
fn scaling_up_and_down() {
    let mut world = world();
    world.create(deployment(1, &json!({})));
    for wanted in [3, 0, 2] {
        world.merge(&key(), &json!({"spec": {"replicas": wanted}}));
        world.pass(60);
        assert_eq!(world.pods("default").len(), wanted);
        assert_eq!(
            world.all("apps", "replicasets").iter().filter(|set| name(set).starts_with("web-")).count(),
            1
        );
    }
}

#[test]
fn a_rollout_that_does_not_move_runs_out_of_time() {
    let mut world = world();
    world.loops.scripts.fail_image = vec!["nginx:*".to_owned()];
    world.create(deployment(1, &json!({})));
    world.pass(500);
    let reason = |world: &World| {
        text(&condition(&live(world), "Progressing").cloned().unwrap_or_default(), "/reason").to_owned()
    };
    assert_eq!(reason(&world), "ReplicaSetUpdated");
    world.pass(200);
    assert_eq!(reason(&world), "ProgressDeadlineExceeded");
    world.loops.scripts.fail_image.clear();
    world.pass(60);
    assert_eq!(reason(&world), "NewReplicaSetAvailable");
}

#[test]
fn a_deleted_deployment_takes_everything_along() {
    let mut world = world();
    world.create(deployment(2, &json!({})));
    world.pass(60);
    world.delete(&key());
    world.pass(10);
    assert!(world.pods("default").is_empty());
    assert!(!world.all("apps", "replicasets").iter().any(|set| name(set).starts_with("web-")));
}

#[test]
fn hashes_look_like_the_real_ones() {
    let template = json!({"spec": {"containers": []}});
    let hash = template_hash(&template, 0);
    assert!(hash.len() <= 10 && hash.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{hash}");
    assert_ne!(hash, template_hash(&template, 1));
}
