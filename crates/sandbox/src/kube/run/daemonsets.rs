//! DaemonSets: one pod on each node that its template may run on.
//!
//! From memory of `pkg/controller/daemon` (`daemon_controller.go`, `update.go`); objects are compared with
//! those of a real control plane (Kubernetes 1.36) by `control_plane::sandbox_equality`.

use fit::{Effect, Node, PodRequirements, Taint};
use serde_json::{Value, json};

use super::super::object::{
    generation, is_deleted, is_finished, key, label, list, name, namespace, template_hash, text,
};
use super::events::{self, Level};
use super::round::Run;
use super::scheduler::asks;
use super::workloads::{MANAGER, is_ready, pod, pods_of, share};

const HASH_LABEL: &str = "controller-revision-hash";
const GENERATION_LABEL: &str = "pod-template-generation";

/// One round over all DaemonSets.
pub fn run(run: &mut Run<'_>) {
    let nodes = run.objects("", "nodes");
    let nodes: Vec<(&Value, Node)> = nodes.into_iter().map(|node| (node, Node::read(node))).collect();
    for set in run.objects("apps", "daemonsets") {
        if is_deleted(set) {
            continue;
        }
        step(run, set, &nodes);
    }
}

/// The template with what the controller adds: the tolerations of a pod that must stay on its node.
fn daemon_template(set: &Value, hash: &str) -> Value {
    let mut template = set["spec"]["template"].clone();
    let mut tolerations = list(&template, "/spec/tolerations").to_vec();
    let mut wanted = vec![("not-ready", "NoExecute"), ("unreachable", "NoExecute")];
    wanted.extend(
        ["disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"].map(|k| (k, "NoSchedule")),
    );
    if template["spec"]["hostNetwork"] == true {
        wanted.push(("network-unavailable", "NoSchedule"));
    }
    for (taint, effect) in wanted {
        let toleration =
            json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": effect});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    template["spec"]["tolerations"] = Value::Array(tolerations);
    if !template["metadata"]["labels"].is_object() {
        template["metadata"]["labels"] = json!({});
    }
    template["metadata"]["labels"][HASH_LABEL] = json!(hash);
    template["metadata"]["labels"][GENERATION_LABEL] = json!("1");
    template
}

/// Returns two flags: the set's pod should be placed on a node, and it may stay there.
fn places(pod: &PodRequirements, node: &Node) -> (bool, bool) {
    let tolerates = |taint: &Taint| pod.tolerations.iter().any(|one| one.tolerates(taint));
    let is_off = |effects: &[Effect]| {
        node.taints.iter().any(|taint| effects.contains(&taint.effect) && !tolerates(taint))
    };
    let cordon = Taint::no_schedule("node.kubernetes.io/unschedulable", "");
    let is_open = !node.unschedulable || tolerates(&cordon);
    let starts = is_open && !is_off(&[Effect::NoSchedule, Effect::NoExecute]);
    let allowed = pod.selects(node);
    (allowed && starts, allowed && !is_off(&[Effect::NoExecute]))
}

/// The node that a daemon pod is made for or sits on.
fn node_of(pod: &Value) -> &str {
    let bound = text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return bound;
    }
    text(
        pod,
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0\
         /matchFields/0/values/0",
    )
}

fn step(run: &mut Run<'_>, set: &Value, nodes: &[(&Value, Node)]) {
    let hash = template_hash(&set["spec"]["template"], 0);
    let template = daemon_template(set, &hash);
    let pods = pods_of(run, set);
    let unavailable = &set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"];
    let mut counts = Counts::default();
    let mut outdated: Vec<&Value> = Vec::new();
    let asked = asks(&template);
    for (node, read) in nodes {
        let (starts, stays) = places(&asked, read);
        let here: Vec<&Value> = pods.iter().copied().filter(|pod| node_of(pod) == name(node)).collect();
        let living: Vec<&Value> = here.iter().copied().filter(|pod| !is_deleted(pod)).collect();
        counts.desired += i64::from(starts);
        match living.as_slice() {
            [] if starts && here.is_empty() => make_pod(run, set, &template, node),
            [] => {}
            [pod, rest @ ..] if starts || stays => {
                counts.current += i64::from(starts);
                counts.misplaced += i64::from(!starts);
                counts.ready += i64::from(starts && is_ready(pod));
                let fresh = label(pod, HASH_LABEL) == hash;
                counts.updated += i64::from(starts && fresh);
                if is_finished(pod) {
                    run.delete(key("", "pods", pod));
                } else if !fresh {
                    outdated.push(pod);
                }
                for pod in rest {
                    run.delete(key("", "pods", pod));
                }
            }
            living => {
                counts.misplaced += 1;
                for pod in living {
                    run.delete(key("", "pods", pod));
                }
            }
        }
    }
    if text(set, "/spec/updateStrategy/type") != "OnDelete" {
        // Broken pods may go at once, working ones only as the strategy allows.
        let allowed = share(unavailable, counts.desired, 1, true).max(1) - (counts.desired - counts.ready);
        let (broken, working): (Vec<&Value>, Vec<&Value>) =
            outdated.into_iter().partition(|pod| !is_ready(pod));
        let allowed = usize::try_from(allowed).unwrap_or(0);
        for pod in broken.into_iter().chain(working.into_iter().take(allowed)) {
            run.delete(key("", "pods", pod));
        }
    }
    run.status(MANAGER, key("apps", "daemonsets", set), set, counts.status(generation(set)));
}

/// Pods of a DaemonSet, and the nodes that want one.
#[derive(Default)]
struct Counts {
    desired: i64,
    current: i64,
    misplaced: i64,
    ready: i64,
    updated: i64,
}

impl Counts {
    fn status(&self, generation: i64) -> Value {
        let Self { desired, current, misplaced, ready, updated } = self;
        let mut status = json!({
            "observedGeneration": generation, "desiredNumberScheduled": desired,
            "currentNumberScheduled": current, "numberMisscheduled": misplaced, "numberReady": ready,
        });
        // The API drops zeros of these.
        for (field, count) in [
            ("updatedNumberScheduled", *updated),
            ("numberAvailable", *ready),
            ("numberUnavailable", desired - ready),
        ] {
            if count > 0 {
                status[field] = json!(count);
            }
        }
        status
    }
}

fn make_pod(run: &mut Run<'_>, set: &Value, template: &Value, node: &Value) {
    let mut made = pod(set, template);
    made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name(node)]}]},
        ],
    });
    run.create(MANAGER, made);
    let message = format!("Created pod of {} in {} for node {}", name(set), namespace(set), name(node));
    events::emit(run, set, Level::Normal, "SuccessfulCreate", "daemonset-controller", &message);
}

#[cfg(test)]
#[path = "daemonsets_tests.rs"]
mod tests;
