use super::super::testing::{World, pool};
use super::*;
use crate::kube::object::Key;
use crate::kube::object::{condition, label};

fn world() -> World {
    let mut world = World::new(vec![pool("p", "e2-standard-4", 1, json!({}))]);
    world.pass(60);
    world
}

fn job(spec: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}],
        }}},
    });
    crate::kube::object::merge(&mut job["spec"], spec);
    job
}

fn live(world: &World) -> Value {
    world.get("batch", "jobs", "default", "j")
}

#[test]
fn a_job_completes() {
    let mut world = world();
    world.create(job(&json!({"completions": 3, "parallelism": 2})));
    world.pass(15);
    assert_eq!(number(&live(&world), "/status/active"), Some(2));
    let labelled = world.pods("default");
    assert!(labelled.iter().all(|pod| label(pod, "batch.kubernetes.io/job-name") == "j"));
    world.pass(120);
    let done = live(&world);
    assert!(is_true(&done, "Complete") && is_true(&done, "SuccessCriteriaMet"), "{}", done["status"]);
    assert_eq!(number(&done, "/status/succeeded"), Some(3));
    assert!(!text(&done, "/status/completionTime").is_empty());
}

#[test]
fn a_job_gives_up() {
    let mut world = world();
    world.loops.scripts.cuda_fails = true;
    let containers = json!([{"name": "c", "image": "samples:vectoradd"}]);
    world.create(job(&json!({"backoffLimit": 1, "template": {"spec": {"containers": containers}}})));
    world.pass(200);
    let done = live(&world);
    let failed = condition(&done, "Failed").cloned().unwrap_or_default();
    assert_eq!(text(&failed, "/reason"), "BackoffLimitExceeded");
    assert_eq!(number(&done, "/status/failed"), Some(2));
}

#[test]
fn a_suspended_job_waits() {
    let mut world = world();
    world.create(job(&json!({"suspend": true})));
    world.pass(60);
    assert!(world.pods("default").is_empty());
    assert!(is_true(&live(&world), "Suspended"));
    world.merge(&Key::new("batch", "jobs", "default", "j"), &json!({"spec": {"suspend": false}}));
    world.pass(60);
    assert!(is_true(&live(&world), "Complete"));
}
