//! Gangs: the pods of a Dask cluster that start together or not at all, as one pod group of Kueue. The operator copies the
//! metadata of its resources to their pods, so four labels and annotations there make all of them a gang. Tried with the real
//! operator and Kueue 0.15.0 of 2026-03; source of the names: `pkg/controller/jobs/pod/constants`.

use serde_json::{Value, json};

use crate::scope::Scope;
use model::address::FieldPath;
use model::resource::{Effect, Resource};

/// The label with the WorkloadPriorityClass of work. For a pod group, Kueue reads it from the pods when it creates the Workload.
/// Source: Kueue 0.15.0, `pkg/controller/jobframework/reconciler.go`, `ExtractPriority`.
pub const PRIORITY: &str = "kueue.x-k8s.io/priority-class";
/// The label with the LocalQueue that a pod waits in.
pub const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// The label with the name of the gang and of its Workload.
pub const POD_GROUP_LABEL: &str = "kueue.x-k8s.io/pod-group-name";
/// The annotation with the number of pods that Kueue waits for before it considers the gang.
pub const COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// The annotation with `"false"` that lets a gang end when its pods are gone; without it pods, Workload and quota stay forever.
pub const RETRIABLE: &str = "kueue.x-k8s.io/retriable-in-group";
/// The annotation with a pod's role in the gang; without it Kueue derives one from the pod's shape.
pub const ROLE: &str = "kueue.x-k8s.io/role-hash";
/// The label of pods that Kueue manages.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// The scheduling gate of a pod that Kueue holds back.
pub const GATE: &str = "kueue.x-k8s.io/admission";

/// The termination grace period, in seconds, of workers of a gang. While a worker terminates, Kueue counts its replacement as
/// surplus and deletes it, about ten times a second.
const GRACE_SECONDS: u32 = 5;

/// The gang of a resource's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang<'a> {
    /// The live name of its queue.
    pub queue: &'a str,
    /// The gang's name, which is the name of the resource that its pods belong to.
    pub name: &'a str,
    /// The number of its pods.
    pub count: u32,
    /// The WorkloadPriorityClass of its work.
    pub priority_class: Option<String>,
}

impl<'a> Gang<'a> {
    /// Creates the gang of a resource that waits in a queue of the stack, with its name and the number of its pods.
    pub fn from_queue(
        queue: Option<&str>,
        priority: Option<&str>,
        (name, count): (&'a str, u32),
        scope: &'a Scope,
    ) -> Option<Self> {
        let facts = scope.queue(queue?)?;
        Some(Self { queue: &facts.name, name, count, priority_class: scope.priority_class(queue, priority) })
    }

    /// Adds its labels and annotations to the metadata of a resource.
    pub fn add_labels(&self, metadata: &mut Value) {
        metadata["labels"][QUEUE] = json!(self.queue);
        metadata["labels"][POD_GROUP_LABEL] = json!(self.name);
        metadata["annotations"][COUNT] = json!(self.count.to_string());
        metadata["annotations"][RETRIABLE] = json!("false");
        if let Some(class) = &self.priority_class {
            metadata["labels"][PRIORITY] = json!(class);
        }
    }
}

/// Sets the role of a section's pods in the gang.
pub fn set_role(section: &mut Value, role: &str) {
    section["metadata"]["annotations"][ROLE] = json!(role);
}

/// Sets a short termination grace period.
pub fn set_short_grace_period(pod: &mut Value) {
    pod["terminationGracePeriodSeconds"] = json!(GRACE_SECONDS);
}

/// Sets the roles of scheduler and workers in the spec of a Dask cluster.
pub fn set_cluster_roles(spec: &mut Value) {
    set_short_grace_period(&mut spec["worker"]["spec"]);
    for role in ["scheduler", "worker"] {
        set_role(&mut spec[role], role);
    }
}

/// Returns the provenance of the labels and annotations: the key `queue`.
pub fn provenance(
    metadata: &FieldPath,
    origin: &FieldPath,
    number: &FieldPath,
) -> Vec<(FieldPath, FieldPath)> {
    let queue = origin.key("queue");
    vec![
        (metadata.key("labels").key(PRIORITY), origin.key("priority")),
        (metadata.key("labels").key(QUEUE), queue.clone()),
        (metadata.key("labels").key(POD_GROUP_LABEL), queue.clone()),
        (metadata.key("annotations").key(COUNT), number.clone()),
        (metadata.key("annotations").key(RETRIABLE), queue),
    ]
}

/// Returns the effect of changing an entry of a gang; `None` for other fields. The operator copies the entries to pods only once.
/// A gang whose number is raised never starts: Kueue deletes each surplus pod, and the operator recreates it.
pub fn effect(path: &FieldPath) -> Option<(Effect, Option<&'static str>)> {
    let at = |map: &str, key: &str| FieldPath::keys(["metadata", map, key]).contains(path);
    if at("annotations", COUNT) {
        return Some((Effect::Replace, Some("a gang has as many pods as it was created with")));
    }
    if at("labels", PRIORITY) {
        return Some((Effect::Replace, Some("pods tell Kueue their priority when they are created")));
    }
    let entry = at("labels", QUEUE) || at("labels", POD_GROUP_LABEL) || at("annotations", RETRIABLE);
    entry.then_some((Effect::Replace, Some("pods join the queue of a gang when they are created")))
}

/// Returns the name of the gang in a body: the gang of the whole resource, or of the workers of a group.
pub fn name_in_body(body: &Value) -> Option<String> {
    name_in_object(body["kind"].as_str().unwrap_or_default(), body)
}

/// Returns the name of the gang in an object of a kind, as [`name_in_body`] does. Items of a list do not say their kind.
pub fn name_in_object(kind: &str, object: &Value) -> Option<String> {
    let own = &object["metadata"]["labels"][POD_GROUP_LABEL];
    let workers = &object["spec"]["worker"]["metadata"]["labels"][POD_GROUP_LABEL];
    let own = if kind == "DaskWorkerGroup" { workers } else { own };
    own.as_str().map(str::to_owned)
}

/// Returns the name of the gang of a resource, as [`name_in_body`] does for a body.
pub fn name_of(resource: &Resource) -> Option<String> {
    name_in_body(&resource.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gang_is_four_entries() {
        let mut metadata = json!({ "name": "c", "labels": { "team": "a" } });
        Gang { queue: "gpus", name: "c", count: 4, priority_class: None }.add_labels(&mut metadata);
        let expect = json!({
            "name": "c",
            "labels": { "team": "a", QUEUE: "gpus", POD_GROUP_LABEL: "c" },
            "annotations": { COUNT: "4", RETRIABLE: "false" },
        });
        assert_eq!(metadata, expect);
        let cluster = json!({ "kind": "DaskCluster", "metadata": metadata });
        assert_eq!(name_in_body(&cluster), Some("c".to_owned()));
        let group = json!({ "kind": "DaskWorkerGroup", "metadata": { "labels": { POD_GROUP_LABEL: "the cluster's" } },
            "spec": { "worker": { "metadata": metadata } } });
        assert_eq!(name_in_body(&group), Some("c".to_owned()));
        assert_eq!(name_in_body(&json!({ "kind": "DaskCluster", "metadata": {} })), None);
    }

    #[test]
    fn what_makes_a_gang_is_never_changed_in_place() {
        for (path, expect) in [
            (FieldPath::keys(["metadata", "annotations", COUNT]), true),
            (FieldPath::keys(["metadata", "annotations", RETRIABLE]), true),
            (FieldPath::keys(["metadata", "labels", QUEUE]), true),
            (FieldPath::keys(["metadata", "labels", POD_GROUP_LABEL]), true),
            (FieldPath::keys(["metadata", "labels", "team"]), false),
            (FieldPath::keys(["spec", "worker", "replicas"]), false),
        ] {
            let found = effect(&path).map(|(effect, _)| effect);
            assert_eq!(found == Some(Effect::Replace), expect, "{path}");
        }
    }
}
