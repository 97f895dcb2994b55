//! Reasons why Dask resources do not run: their pods, the sections that describe the pods, and the operator.

use serde_json::Value;

use crate::dask::api::{COMPONENT_LABEL, GROUP_LABEL};
use crate::json::text;
use crate::kubernetes::why::{Cause, cause};
use model::address::FieldPath;
use model::resource::{Identity, KindId, Resource};

/// Returns the pods in a LIST that belong to the resource itself: for a DaskCluster those of its scheduler and its default group.
pub fn own_pods<'v>(resource: &Resource, answer: &'v Value) -> Vec<&'v Value> {
    let list = match answer["items"].as_array() {
        Some(list) => list.iter().collect(),
        None if answer["kind"] == "Pod" => vec![answer],
        None => Vec::new(),
    };
    list.into_iter().filter(|pod| is_own_pod(resource, pod)).collect()
}

/// Returns true for a pod of a resource. Worker groups of a Dask cluster are resources of their own, but for its default group.
pub fn is_own_pod(resource: &Resource, pod: &Value) -> bool {
    let Identity::Object(object) = &resource.identity else { return true };
    let group = text(&pod["metadata"]["labels"][GROUP_LABEL]);
    object.gvk.kind != "DaskCluster" || group.is_empty() || group == format!("{}-default", object.name)
}

/// Returns the path of a pod's keys in the stack file: its section, or `scheduler` or `worker` in it.
pub fn part_of(resource: &Resource, pod: &Value) -> FieldPath {
    let component = text(&pod["metadata"]["labels"][COMPONENT_LABEL]);
    match (resource.kind, component) {
        (KindId::DaskCluster | KindId::DaskJob, part @ ("scheduler" | "worker")) => resource.origin.key(part),
        _ => resource.origin.clone(),
    }
}

/// Returns the cause for an object that its operator has not handled.
pub fn unhandled(waits_for: &str, namespace: &str) -> Cause {
    let remedies = vec![
        format!("its log: kubectl -n {namespace} logs deployment/dask-kubernetes-operator --tail 50"),
        "an operator limited to one namespace sees no other: check its argument `--namespace`".to_owned(),
    ];
    cause("operator", "the Dask operator does not process it", Some(waits_for.to_owned()), remedies)
}
