//! Workers on nodes that are requested all at once, without Kueue: `capacity = "queued"`. The request describes exactly the pods
//! that the operator will create, and the workers' annotations name it. The resource with the workers is created once the nodes
//! exist. Tried with the real operator: it copies `spec.worker.metadata` to the pods of workers only, and only once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dask::pods;
use crate::kubernetes::provisioning::{self, RequestSpec};
use crate::kubernetes::request_state::{ANNOTATIONS, RequestRef};
use crate::pod_defaults;
use crate::scope::Scope;
use crate::section::PodKeys;
use model::address::{Address, FieldPath};
use model::resource::{Effect, Resource};

/// How the nodes of workers are had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerCapacity {
    /// By a request for all of them at once, which GKE answers when it has the machines.
    Queued,
}

/// Workers for which nodes are requested.
pub(crate) struct WorkerRequest<'a> {
    /// The path of the workers' part in the body.
    pub path: &'a [&'a str],
    /// The paths of the workers' keys, and of their image, in the stack file.
    pub workers: FieldPath,
    pub image: FieldPath,
    pub keys: &'a PodKeys,
    /// The number of workers, and its path in the stack file.
    pub number: (u32, FieldPath),
    /// The lifetime of the nodes, as written in the stack file.
    pub longest: Option<&'a str>,
    /// True if the name of the request contains a digest of its content; false for run-once resources, where the name is fixed.
    pub name_by_digest: bool,
}

/// Requests nodes for the workers of a resource with `capacity`, and makes the resource depend on the request.
pub(crate) fn request_workers(
    capacity: Option<WorkerCapacity>,
    consumer: &mut Resource,
    request: WorkerRequest<'_>,
    scope: &Scope,
) -> Option<[Resource; 2]> {
    let WorkerCapacity::Queued = capacity?;
    let annotations = FieldPath::keys(request.path.iter().copied()).key("metadata").key("annotations");
    let made = request_resources(consumer, request, scope)?;
    let from = consumer.origin.key("capacity");
    consumer.provenance.extend(ANNOTATIONS.iter().map(|name| (annotations.key(name), from.clone())));
    consumer.depends_on.push(made[1].address.clone());
    Some(made)
}

/// Returns the PodTemplate and the request for these workers, and adds the annotations that name it to them. Both depend on
/// everything that the resource depends on, so that the nodes come last: pods must start on them within ten minutes.
fn request_resources(
    consumer: &mut Resource,
    request: WorkerRequest<'_>,
    scope: &Scope,
) -> Option<[Resource; 2]> {
    let Resource { address: section, identity, body, origin, depends_on, protect, .. } = consumer;
    let consumer = identity.object()?;
    let worker = request.path.iter().fold(body, |part, key| &mut part[*key]);
    let mut template = json!({ "spec": worker["spec"] });
    if worker["metadata"].is_object() {
        template["metadata"] = worker["metadata"].clone();
    }
    // Nodes are the same with and without.
    pod_defaults::remove(&mut template);
    let (count, longest) = (request.number.0, request.longest);
    let text = format!("{template} {count} {}", longest.unwrap_or_default());
    let digest = blake3::hash(text.as_bytes()).to_hex();
    let of_text = format!("{}-{}", consumer.name, &digest.as_str()[..8]);
    let name = if request.name_by_digest { of_text.clone() } else { format!("{}-workers", consumer.name) };
    let namespace = consumer.namespace.as_deref().unwrap_or("default");
    let address = Address::object(section.as_str(), "ProvisioningRequest", Some(namespace), &name);
    RequestRef { address: address.clone(), name: &name, class: provisioning::QUEUED_CLASS }
        .add_annotations(&mut worker["metadata"]);
    let path = FieldPath::keys(["template"]);
    let mut provenance = pods::provenance(&path.key("spec"), &request.workers, &request.image);
    provenance.extend(PodKeys::metadata_provenance(&path, &request.workers));
    let made = provisioning::request_resources(
        RequestSpec {
            address,
            section: section.clone(),
            name: &name,
            namespace,
            template_name: of_text,
            template: (template, provenance),
            number: request.number,
            max_duration: longest,
            pool: request.keys.pool.as_deref(),
            consumer: Some(consumer),
            origin: origin.clone(),
            depends_on: depends_on.clone(),
            protect: *protect,
        },
        scope,
    );
    Some(made)
}

/// Returns the effect of changing an annotation of workers; `None` for other fields. `worker` is the path of the workers.
pub(crate) fn effect(path: &FieldPath, worker: &[&str]) -> Option<(Effect, Option<&'static str>)> {
    let annotations = FieldPath::keys(worker.iter().copied()).key("metadata").key("annotations");
    let names = ANNOTATIONS.iter().any(|name| annotations.key(name).contains(path));
    let why = "all its workers belong to one request for nodes: other workers, or another number, need another request";
    names.then_some((Effect::Replace, Some(why)))
}

/// Returns true if nodes are requested for the workers of a resource.
pub fn are_requested(body: &Value) -> bool {
    let names =
        |worker: &Value| ANNOTATIONS.iter().any(|name| !worker["metadata"]["annotations"][*name].is_null());
    names(&body["spec"]["worker"]) || names(&body["spec"]["cluster"]["spec"]["worker"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_request_is_never_changed_in_place() {
        let worker = ["spec", "worker"];
        let path = FieldPath::keys(["spec", "worker", "metadata", "annotations"]);
        for name in ANNOTATIONS {
            assert_eq!(
                effect(&path.key(name), &worker).map(|found| found.0),
                Some(Effect::Replace),
                "{name}"
            );
        }
        assert_eq!(effect(&path.key("team"), &worker), None);
        let mut body = json!({ "spec": { "cluster": { "spec": { "worker": {} } } } });
        assert!(!are_requested(&body));
        body["spec"]["cluster"]["spec"]["worker"]["metadata"]["annotations"][ANNOTATIONS[0]] = json!("r");
        assert!(are_requested(&body));
    }
}
