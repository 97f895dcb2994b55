use crate::scope::POOL_LABEL;
use serde_json::json;

use super::*;

#[test]
fn the_schedulers_words_are_told_in_ours() {
    for (said, expect) in [
        (
            "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu, \
             1 node(s) had untolerated taint {a: b}. preemption: 0/4 nodes are available: 4 No preemption \
             victims found.",
            "no node fits: 2 without a free GPU, 1 with the taint a: b",
        ),
        (
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint \
             {node.kubernetes.io/not-ready: }.",
            "no node fits: 1 not ready yet",
        ),
        (
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
            "no node has the labels that it requires",
        ),
        ("0/1 nodes are available: 1 Insufficient cpu.", "no node fits: 1 without enough cpu"),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint(s).",
            "no node fits: 2 with taints that it does not tolerate",
        ),
        ("0/1 nodes are available: 1 node(s) had disk conflict.", "no node fits: 1 had disk conflict"),
        ("no nodes available to schedule pods", "the cluster has no nodes"),
        (
            "Scheduling is blocked due to non-empty scheduling gates",
            "Scheduling is blocked due to non-empty scheduling gates",
        ),
    ] {
        assert_eq!(no_node(said), expect);
    }
}

fn judged(pod: &Value, events: &[Value], log: Option<&str>, pools: &[Pool]) -> Option<Cause> {
    let position = |key: &str| format!("stack.toml:9:1 {key}");
    of_pod(
        pod,
        &PodContext {
            events,
            log,
            pools,
            refusal: &|_| None,
            position: &position,
            program: "dask-infra",
            has_keys: true,
            workers_address: Some("dask_cluster.d"),
        },
    )
}

fn unschedulable(message: &str) -> Value {
    json!({
        "spec": { "nodeSelector": { POOL_LABEL: "t4" } },
        "status": { "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message },
        ] },
    })
}

fn event(reason: &str, message: &str) -> Value {
    json!({ "type": "Warning", "reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z" })
}

fn t4(nodes: Option<u64>, most: Option<u64>) -> Pool {
    let (name, address) = ("t4".to_owned(), "node_pool.t4".to_owned());
    Pool {
        name,
        address,
        position: "stack.toml:17:9".to_owned(),
        nodes,
        most,
        needed: None,
        live: Value::Null,
    }
}

/// Messages as kube-scheduler 1.36 writes them.
#[test]
fn predicates_become_causes() {
    let tail = "no new claims to deallocate, preemption: 0/5 nodes are available: 5 Preemption is not helpful for \
                scheduling.";
    for (message, code, remedy) in [
        (
            "0/5 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node \
             affinity/selector.",
            "gpus",
            "more nodes: dask-infra scale node_pool.t4 3 --write",
        ),
        (
            "0/5 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 4 node(s) had untolerated taint \
             {nvidia.com/gpu: present}.",
            "cpu",
            "request less: `cpu` at stack.toml:9:1 cpu",
        ),
        ("0/5 nodes are available: 5 Insufficient memory.", "memory", "`memory` at stack.toml:9:1 memory"),
        ("0/5 nodes are available: 5 Too many pods.", "pods", "scale node_pool.t4 3"),
        (
            "0/5 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 3 node(s) had untolerated \
             taint {nvidia.com/gpu: present}.",
            "taint",
            "it requests no GPU: set `gpus = 1` at stack.toml:9:1 gpus",
        ),
        (
            "0/5 nodes are available: 5 node(s) had untolerated taint {dedicated: x}.",
            "taint",
            "name the pool: `pool`",
        ),
        (
            "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector.",
            "affinity",
            "name a pool that exists",
        ),
        ("0/5 nodes are available: 5 node(s) were unschedulable.", "cordoned", "kubectl uncordon"),
        ("no nodes available to schedule pods", "no_nodes", "scale node_pool.t4 3"),
    ] {
        let found = judged(&unschedulable(&format!("{message} {tail}")), &[], None, &[t4(Some(2), None)]);
        let found = found.unwrap_or_else(|| panic!("{message}: nothing"));
        assert_eq!(found.code, code, "{message}: {found:?}");
        assert!(found.remedies.iter().any(|said| said.contains(remedy)), "{message}: {found:?}");
        assert!(!found.said.unwrap_or_default().contains("preemption"), "{message}");
    }
    let counted =
        predicates("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had a, b. preemption: no");
    assert_eq!(counted, [(1, "Insufficient cpu".to_owned()), (2, "node(s) had a, b".to_owned())]);
}

#[test]
fn the_node_autoscaler_and_the_pool_know_more() {
    let waits = unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    let scaled = [t4(None, Some(4))];
    let code = |events: &[Value], pools: &[Pool]| judged(&waits, events, None, pools).map(|cause| cause.code);
    let full = event("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached");
    let found = judged(&waits, &[full], None, &scaled);
    let found = found.unwrap_or_else(|| panic!("nothing"));
    assert!(found.remedies[0].contains("raise `max` of node_pool.t4 at stack.toml:17:9"), "{found:?}");
    assert!(found.said.is_some_and(|said| said.contains("max node group size reached")));
    let up = event("TriggeredScaleUp", "pod triggered scale-up: [{gke-t4 0->1 (max: 4)}]");
    assert_eq!(code(&[up], &scaled), Some("scaling"));
    let out = "Node scale up in zones us-central1-c associated with this pod failed: GCE out of resources. Pod is at \
               risk of not being scheduled.";
    assert_eq!(code(&[event("FailedScaleUp", out)], &scaled), Some("stock_out"));
    let quota = "Node scale up in zones us-central1-c associated with this pod failed: GCE quota exceeded.";
    assert_eq!(code(&[event("FailedScaleUp", quota)], &scaled), Some("quota"));
    let mut short = t4(Some(2), None);
    short.live = json!({ "conditions": [{ "code": "GCE_STOCKOUT", "message": "[GCE_STOCKOUT]: Instance" }] });
    assert_eq!(code(&[], &[short.clone()]), Some("stock_out"));
    let pool = of_pool(&short, "dask-infra").unwrap_or_else(|| panic!("nothing"));
    assert_eq!((pool.code, pool.remedies.len()), ("stock_out", 2), "{pool:?}");
    assert_eq!(of_pool(&t4(Some(2), None), "dask-infra"), None);
}

/// The pool has no nodes yet, so the scheduler's message is about nodes of other pools.
#[test]
fn the_autoscalers_reason_comes_before_the_schedulers() {
    let scheduler =
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: no";
    let (waits, scaled) = (unschedulable(scheduler), [t4(None, Some(2))]);
    for (said, code, what, remedy) in [
        (
            "1 node(s) had untolerated taint {nvidia.com/gpu: present}",
            "taint",
            "a new node of node_pool.t4 would have the taint nvidia.com/gpu: present",
            "set `gpus = 1` at stack.toml:9:1 gpus",
        ),
        (
            "1 node(s) didn't match Pod's node affinity/selector, 1 Insufficient cpu",
            "cpu",
            "it requests more cpu than a new node of node_pool.t4 has",
            "request less: `cpu` at stack.toml:9:1 cpu",
        ),
        ("1 max node group size reached", "most", "its maximum of nodes", "raise `max` of node_pool.t4"),
        ("1 in backoff after failed scale-up", "scale_up_failed", "could not create a node", "wait"),
    ] {
        for lead in ["", " (it wouldn't fit if a new node is added)"] {
            let event = event("NotTriggerScaleUp", &format!("pod didn't trigger scale-up{lead}: {said}"));
            let found = judged(&waits, &[event], None, &scaled).unwrap_or_else(|| panic!("nothing"));
            assert_eq!(found.code, code, "{found:?}");
            assert!(found.what.contains(what), "{found:?}");
            assert!(found.remedies[0].contains(remedy), "{found:?}");
            let lacks = match code {
                "scale_up_failed" => Outlook::NoMachines,
                "most" => Outlook::PoolIsFull,
                _ => Outlook::NoNode,
            };
            assert_eq!(found.outlook, lacks, "{found:?}");
            assert!(found.said.is_some_and(|text| text.contains(said)), "{said}");
        }
    }
    let found = judged(&waits, &[], None, &scaled).unwrap_or_else(|| panic!("nothing"));
    assert_eq!(found.code, "no_nodes");
    assert!(found.what.starts_with("waiting for a node: node_pool.t4"), "{found:?}");
    // A pool of a fixed size is not the autoscaler's.
    let full = event("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached");
    let lacks = unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    let found = judged(&lacks, &[full], None, &[t4(Some(2), None)]).unwrap_or_else(|| panic!("nothing"));
    assert!(found.remedies[0].contains("scale node_pool.t4 3"), "{found:?}");
}

#[test]
fn a_pod_of_a_pool_without_nodes_waits_for_one() {
    let elsewhere = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.";
    let spec = json!({ "nodeSelector": { POOL_LABEL: "t4" } });
    assert_eq!(no_node_for(&spec, elsewhere), "waiting for a node in pool `t4`");
    assert_eq!(no_node_for(&json!({}), elsewhere), "no node has the labels that it requires");
    let both =
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 Insufficient cpu.";
    assert_eq!(no_node_for(&spec, both), "no node fits: 1 without enough cpu");
    let event = |reason: &str, time: &str| {
        let message = "pod didn't trigger scale-up: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, \
                       1 node(s) didn't match Pod's node affinity/selector";
        json!({ "reason": reason, "message": message, "lastTimestamp": time })
    };
    let refused = event("NotTriggerScaleUp", "2026-01-01T00:00:00Z");
    assert_eq!(
        no_scale_up(std::slice::from_ref(&refused)).as_deref(),
        Some("the autoscaler adds no node: a new node would have the taint nvidia.com/gpu: present")
    );
    assert_eq!(no_scale_up(&[refused, event("TriggeredScaleUp", "2026-01-02T00:00:00Z")]), None);
}

#[test]
fn containers_that_do_not_start_say_why() {
    let with = |state: Value, restarts: u64| {
        json!({
            "spec": { "nodeName": "n" },
            "status": { "containerStatuses": [{
                "name": "worker", "image": "demo:9", "restartCount": restarts, "state": state,
                "lastState": { "terminated": { "exitCode": 127, "reason": "Error" } },
            }] },
        })
    };
    let pull =
        |message: &str| with(json!({ "waiting": { "reason": "ErrImagePull", "message": message } }), 0);
    for (message, code) in [
        ("failed to resolve reference: docker.io/library/demo:9: not found", "image"),
        ("manifest for demo:9 not found: manifest unknown", "image"),
        ("failed to authorize: failed to fetch oauth token: 403 Forbidden", "image_rights"),
        ("pull access denied, repository does not exist or may require authorization", "image_rights"),
        ("dial tcp: lookup nvcr.io: no such host", "image_network"),
        ("dial tcp 1.2.3.4:443: i/o timeout", "image_network"),
        ("429: toomanyrequests: You have reached your pull rate limit", "image_limit"),
    ] {
        let found = judged(&pull(message), &[], None, &[]).map(|cause| cause.code);
        assert_eq!(found, Some(code), "{message}");
    }
    let backing = with(json!({ "waiting": { "reason": "ImagePullBackOff", "message": "Back-off" } }), 0);
    let pulled = event("Failed", "Failed to pull image \"demo:9\": manifest unknown");
    let found = judged(&backing, &[pulled], None, &[]).unwrap_or_else(|| panic!("nothing"));
    assert!(found.what.contains("the image demo:9 does not exist"), "{found:?}");

    let crash = with(json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off" } }), 4);
    let found =
        judged(&crash, &[], Some("Traceback\nNo such file\n"), &[]).unwrap_or_else(|| panic!("nothing"));
    assert_eq!(found.what, "container worker exits with code 127, 4 restarts");
    assert!(found.said.is_some_and(|said| said.ends_with("No such file")));
    assert!(found.remedies[0].contains("`args` at stack.toml:9:1 args"));

    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(judged(&ready, &[], None, &[]), None);
    let new = json!({ "spec": {}, "status": { "phase": "Pending" } });
    assert_eq!(judged(&new, &[], None, &[]).map(|cause| cause.code), Some("unseen"));
    let probe = json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Running" } });
    let unhealthy = event("Unhealthy", "Readiness probe failed: connection refused");
    assert_eq!(judged(&probe, &[unhealthy], None, &[]).map(|cause| cause.code), Some("probe"));
}

/// GKE keeps the condition of a pool while it tries another zone, and the autoscaler names the taints of every pool.
#[test]
fn a_newer_scale_up_and_the_pools_own_taints_count() {
    let elsewhere = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    let waits = unschedulable(elsewhere);
    let mut pool = t4(None, Some(4));
    pool.live = json!({ "config": {}, "conditions": [{ "code": "GCE_STOCKOUT", "message": "[GCE_STOCKOUT]: Instance" }] });
    let found = |events: &[Value], pool: &Pool| {
        judged(&waits, events, None, std::slice::from_ref(pool)).unwrap_or_else(|| panic!("nothing"))
    };
    assert_eq!(found(&[], &pool).outlook, Outlook::NoMachines);
    let up = event("TriggeredScaleUp", "pod triggered scale-up: [{gke-t4 0->1 (max: 4)}]");
    assert_eq!(found(&[up], &pool).outlook, Outlook::NodeIsComing);
    pool.live = json!({ "config": {} });
    let refused =
        |reasons: &str| event("NotTriggerScaleUp", &format!("pod didn't trigger scale-up: {reasons}"));
    let of_gpus = "1 node(s) had untolerated taint {nvidia.com/gpu: present}";
    let backoff = refused(&format!("1 in backoff after failed scale-up, {of_gpus}"));
    assert_eq!(found(&[backoff], &pool).code, "scale_up_failed");
    assert_ne!(found(&[refused(of_gpus)], &pool).code, "taint", "the pool has no GPUs");
    pool.live = json!({ "config": { "accelerators": [{ "acceleratorCount": "1" }] } });
    assert_eq!(found(&[refused(of_gpus)], &pool).code, "taint");
    let team = "1 node(s) had untolerated taint {team: x}";
    assert_ne!(found(&[refused(team)], &pool).code, "taint");
    pool.live = json!({ "config": { "taints": [{ "key": "team", "value": "x", "effect": "NO_SCHEDULE" }] } });
    assert_eq!(found(&[refused(team)], &pool).code, "taint");
}
