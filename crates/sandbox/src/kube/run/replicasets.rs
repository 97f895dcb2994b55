//! ReplicaSets: as many pods as asked for.
//!
//! From memory of `pkg/controller/replicaset/replica_set.go`; objects are compared with
//! those of a real control plane (Kubernetes 1.36) by `control_plane::sandbox_equality`.

use serde_json::{Value, json};

use super::super::object::{generation, is_deleted, key, labels, name};
use super::events::{self, Level};
use super::round::Run;
use super::select;
use super::workloads::{MANAGER, delete_surplus, is_active, is_ready, pod, pods_of, replicas};

/// One round over all ReplicaSets.
pub fn run(run: &mut Run<'_>) {
    for set in run.objects("apps", "replicasets") {
        let pods = pods_of(run, set);
        let active: Vec<&Value> = pods.into_iter().filter(|pod| is_active(pod)).collect();
        if !is_deleted(set) {
            scale(run, set, &active);
        }
        write_status(run, set, &active);
    }
}

fn scale(run: &mut Run<'_>, set: &Value, active: &[&Value]) {
    let wanted = usize::try_from(replicas(set)).unwrap_or(0);
    for _ in active.len()..wanted {
        run.create(MANAGER, pod(set, &set["spec"]["template"]));
    }
    if active.len() < wanted {
        let message = format!("Created pods for {}: {}", name(set), wanted - active.len());
        events::emit(run, set, Level::Normal, "SuccessfulCreate", "replicaset-controller", &message);
    }
    delete_surplus(run, active, active.len().saturating_sub(wanted));
}

fn write_status(run: &mut Run<'_>, set: &Value, active: &[&Value]) {
    let template = &set["spec"]["template"]["metadata"]["labels"];
    let labelled = active.iter().filter(|pod| select::exact(template, &labels(pod))).count();
    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    let mut status = json!({"replicas": active.len(), "observedGeneration": generation(set)});
    // The API drops zeros here.
    for (field, count) in
        [("fullyLabeledReplicas", labelled), ("readyReplicas", ready), ("availableReplicas", ready)]
    {
        if count > 0 {
            status[field] = json!(count);
        }
    }
    run.status(MANAGER, key("apps", "replicasets", set), set, status);
}
