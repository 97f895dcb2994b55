//! Tests of the resources of a Dask cluster and of its readiness.

use super::*;
use crate::dask::api::UNHANDLED;

fn deployment(name: &str, ready: u64) -> Value {
    json!({
        "metadata": { "name": name, "generation": 1, "labels": { "dask.org/workergroup-name": "c-default" } },
        "spec": { "replicas": 1 },
        "status": {
            "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready,
            "availableReplicas": ready, "conditions": [{ "type": "Available", "status": "True" }],
        },
    })
}

fn identity() -> Identity {
    Identity::Object(ObjectId { gvk: api::cluster(), namespace: Some("default".into()), name: "c".into() })
}

#[test]
fn only_what_the_operator_has_handled_counts() {
    let judged = |until: Until, cluster: &Value, group: &Value, counts: &Value| {
        let identity = identity();
        let facts = Facts::Workers { replicas: Some(2), cluster: None, gang: None };
        let wait = Await { kind: KindId::DaskCluster, identity, until, facts, deadline: 1 };
        let pod = json!({
            "metadata": { "labels": { "dask.org/component": "worker" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        let found = [
            cluster.clone(),
            deployment("c-scheduler", 1),
            json!({ "spec": { "type": "ClusterIP" } }),
            group.clone(),
            json!({ "items": [deployment("a", 1), deployment("b", 1), deployment("c", 1)] }),
            json!({ "items": [pod, pod, pod] }),
            counts.clone(),
        ];
        let found = QueryResults::answers(&queries(&wait), &found);
        (readiness(&wait, &found).unwrap(), status_line(&wait, &found).unwrap().line)
    };
    let cluster = |asked: u64, handled: Option<u64>| {
        let mut cluster = group(asked, handled.unwrap_or(0));
        cluster["metadata"]["name"] = json!("c");
        cluster["status"]["phase"] = json!("Running");
        if handled.is_none() {
            cluster["metadata"]["annotations"] = Value::Null;
        }
        cluster
    };
    let (three, ready) = (json!({ "workers": 3, "hosts": 3 }), Readiness::Ready);
    let waits = |text: &str| Readiness::progressing(text);
    // The number is the file's and the operator still works on an older one.
    let unseen = judged(Until::Ready, &cluster(2, Some(3)), &group(3, 3), &three).0;
    assert_eq!(unseen, waits(&format!("{UNHANDLED}; its worker group does not request 2 yet")));
    assert_eq!(
        judged(Until::StillReady, &cluster(2, Some(3)), &group(3, 3), &three).0,
        Readiness::Unhandled(UNHANDLED.into())
    );
    assert_eq!(
        judged(Until::StillReady, &cluster(2, Some(2)), &group(3, 2), &three).0,
        Readiness::Unhandled(UNHANDLED.into())
    );
    // It was scaled since: `dask-infra scale` or a notebook.
    let (found, line) = judged(Until::StillReady, &cluster(2, Some(2)), &group(3, 3), &three);
    let expect = "Running; workers: 3 desired (the stack says 2), 3 created, 3 ready, all registered";
    assert_eq!((found, line.as_str()), (ready, expect));
    // Another owner of the number: it would never become the stack's.
    let (found, _) = judged(Until::Ready, &cluster(2, Some(2)), &group(3, 3), &three);
    let Readiness::Failed(why) = found else {
        panic!("an apply waits for a number that never comes: {found:?}")
    };
    assert!(why.contains("requests 3 workers, the stack says 2: it was changed during the apply"), "{why}");
    assert!(!why.contains(UNHANDLED), "{why}");
    // An operator that notes nothing.
    let (found, _) = judged(Until::StillReady, &cluster(2, None), &group(3, 3), &three);
    assert!(matches!(found, Readiness::Progressing(_)));

    let two = json!({ "workers": 2, "hosts": 2 });
    let (found, line) = judged(Until::StillReady, &cluster(2, Some(2)), &group(3, 3), &two);
    assert_eq!(found, waits("1 of 3 workers not registered with the scheduler"));
    assert!(line.ends_with("3 ready, 1 created, not registered"), "{line}");
    let (found, line) =
        judged(Until::StillReady, &cluster(2, Some(2)), &group(3, 3), &json!("it does not answer"));
    assert_eq!(found, Readiness::Ready);
    assert!(line.ends_with("3 ready, registered unknown (it does not answer)"), "{line}");
}

#[test]
fn a_second_owner_of_the_number_is_named() {
    let identity = identity();
    let facts = Facts::Workers { replicas: Some(2), cluster: None, gang: None };
    let wait = Await { kind: KindId::DaskCluster, identity, until: Until::Ready, facts, deadline: 1 };
    let mut counts = group(1, 1);
    counts["spec"]["cluster"] = json!("c");
    counts["metadata"]["managedFields"] = json!([
        { "manager": "kopf", "time": "2026-01-01T00:00:00Z", "fieldsV1": { "f:spec": { "f:worker": { "f:replicas": {} } } } },
        { "manager": "kubectl", "fieldsV1": { "f:spec": { "f:worker": { "f:replicas": {} } } } },
    ]);
    let (workers, pods) = (json!({ "items": [] }), json!({ "items": [] }));
    let judged = |autoscalers: &Value| {
        let (name, registered) = ("c-default", None);
        let (group, workers, pods) = (&counts, &workers, &pods);
        let (number_is_final, autoscalers) = (true, Some(autoscalers));
        match (Workers { wait: &wait, group, name, workers, pods, registered, number_is_final, autoscalers }
            .ready())
        {
            Readiness::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    };
    let scaler = |cluster: &str| {
        json!({ "items": [{
            "metadata": { "name": "c", "namespace": "default" },
            "spec": { "cluster": cluster, "minimum": 1, "maximum": 10 },
        }] })
    };
    let why = judged(&scaler("c"));
    assert!(why.contains("DaskAutoscaler default/c (1 to 10 workers) sets the number, too"), "{why}");
    let why = judged(&scaler("other"));
    assert!(why.contains("`kubectl` changed it during the apply"), "{why}");
}

fn check(phase: &str, scheduler: u64, workers: &[u64], replicas: u64) -> Readiness {
    let identity = identity();
    let wait = Await {
        kind: KindId::DaskCluster,
        identity,
        until: Until::Ready,
        facts: Facts::Workers { replicas: Some(replicas), cluster: None, gang: None },
        deadline: 1,
    };
    let workers: Vec<Value> = workers.iter().map(|ready| deployment("w", *ready)).collect();
    let found = [
        json!({ "metadata": { "name": "c" }, "status": { "phase": phase } }),
        deployment("c-scheduler", scheduler),
        json!({ "spec": { "type": "ClusterIP" } }),
        json!({ "metadata": { "name": "c-default" } }),
        json!({ "items": workers }),
        json!({ "items": [] }),
    ];
    readiness(&wait, &QueryResults::answers(&queries(&wait), &found)).unwrap()
}

/// Returns a group that asks for `asked` workers, and for which the operator has handled `handled` workers.
fn group(asked: u64, handled: u64) -> Value {
    let noted = json!({ "spec": { "worker": { "replicas": handled } } }).to_string();
    json!({
        "metadata": {
            "name": "c-default", "annotations": { "kopf.zalando.org/last-handled-configuration": noted },
        },
        "spec": { "worker": { "replicas": asked } },
    })
}

#[test]
fn a_scale_down_that_is_reported_and_not_done_fails() {
    let with = |group: &Value, second: Value| {
        let workers = json!({ "items": [deployment("a", 1), second] });
        let identity = identity();
        let facts = Facts::Workers { replicas: Some(1), cluster: None, gang: None };
        let wait = Await { kind: KindId::DaskCluster, identity, until: Until::Ready, facts, deadline: 1 };
        let pods = json!({ "items": [] });
        let (name, registered) = ("c-default", None);
        let (number_is_final, autoscalers) = (true, None);
        Workers {
            wait: &wait,
            group,
            name,
            workers: &workers,
            pods: &pods,
            registered,
            number_is_final,
            autoscalers,
        }
        .ready()
    };
    let waits = |found, expect: &str| assert_eq!(found, Readiness::progressing(expect));
    let mut going = deployment("b", 1);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    waits(with(&group(1, 1), going), "1 of 2 workers still to be removed");
    let Readiness::Failed(why) = with(&group(1, 1), deployment("b", 1)) else { panic!("not failed") };
    assert!(why.contains("scaled to 1, but left 2") && why.contains("1 of the Deployments a, b"), "{why}");
}

#[test]
fn the_phase_is_not_trusted() {
    assert_eq!(check("Running", 1, &[1, 1], 2), Readiness::Ready);
    assert_eq!(check("Pending", 1, &[1, 1], 2), Readiness::Ready, "a healthy cluster may stay Pending");
    let waits = |found, expect: &str| assert_eq!(found, Readiness::progressing(expect));
    waits(check("Running", 1, &[1], 2), "1 of 2 workers ready");
    waits(check("Running", 0, &[1, 1], 2), "scheduler not ready");
    waits(check("Running", 1, &[1, 1, 1], 2), "1 of 3 workers still to be removed");
    assert_eq!(check("", 1, &[1, 1], 2), Readiness::Unhandled(UNHANDLED.into()));
    assert!(matches!(check("Error", 1, &[], 0), Readiness::Failed(_)));
}

#[test]
fn only_replicas_and_idle_timeout_are_followed() {
    for (path, expect) in [
        ("spec.worker.replicas", Effect::InPlace),
        ("spec.idleTimeout", Effect::InPlace),
        ("metadata.labels.a", Effect::InPlace),
        ("spec.worker.spec.containers[0].image", Effect::Replace),
        ("spec.scheduler.service.type", Effect::Replace),
    ] {
        assert_eq!(effect(&path.parse().unwrap()).0, expect, "{path}");
    }
}

#[test]
fn gpus_of_other_groups_are_told_there() {
    let pod = |group: &str, gpus: u64| {
        json!({
            "metadata": { "labels": { "dask.org/workergroup-name": group } },
            "spec": { "containers": [{ "resources": { "limits": { "nvidia.com/gpu": gpus } } }] },
            "status": { "phase": "Running" },
        })
    };
    let mut scheduler = pod("", 1);
    scheduler["metadata"]["labels"] = json!({ "dask.org/component": "scheduler" });
    let pods = json!({ "items": [scheduler, pod("c-default", 2), pod("c-more", 4)] });
    let identity = identity();
    let facts = Facts::Workers { replicas: Some(1), cluster: None, gang: None };
    let wait = Await { kind: KindId::DaskCluster, identity, until: Until::StillReady, facts, deadline: 1 };
    let of = |name: &str| {
        let group = json!({ "metadata": { "name": name }, "spec": { "worker": { "replicas": 1 } } });
        WorkerCounts::of(&wait, &group, &[], &pods, None).line(true)
    };
    assert!(of("c-default").ends_with("3 GPUs held"), "{}", of("c-default"));
}
