//! Decides which objects are deleted with the GKE cluster, and which before it. CRDs and controllers of custom kinds
//! are deleted with the cluster, so that the controllers finish their work. Objects with load balancers or disks are
//! deleted first: these would remain and cost money.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::observe::cascade::is_namespace;
use crate::order::relations::{is_custom, sections_with_controllers};
use crate::planner::Planner;
use crate::{Action, Change};
use kinds::kind::DeletionBlocker;
use kinds::kubernetes::manifest::pod_specs;
use model::address::FieldPath;
use model::resource::{Identity, ObjectId, World};

impl Planner<'_> {
    /// Returns the deleted resources whose deletion needs an operator, if no Dask operator is left.
    pub(crate) fn blocked_deletions(&self) -> BTreeSet<Identity> {
        let deleted = || self.changes.iter().filter(|change| change.action == Action::Delete);
        let blocker = |change: &Change| kinds::of(change.kind).deletion_blocker;
        if operator_runs(self.observed.inputs.world)
            || !deleted().any(|change| blocker(change) == DeletionBlocker::Operator)
        {
            return BTreeSet::new();
        }
        let blocked = deleted().filter(|change| blocker(change) != DeletionBlocker::Nothing);
        blocked.map(|change| change.identity.clone()).collect()
    }

    /// Returns CRDs and the controllers of custom kinds, with their RBAC and namespaces. Without them, objects with a finalizer
    /// would never be deleted, foreign ones included, and the delete of the cluster waits for the deletes before it.
    pub(crate) fn deleted_with_cluster(&self) -> BTreeSet<Identity> {
        let world = self.observed.inputs.world;
        let sections = sections_with_controllers(&self.changes, world);
        let deleted = |change: &&Change| change.action == Action::Delete && !change.foreign;
        let served = self.changes.iter().filter(deleted).filter_map(|change| match &change.identity {
            Identity::Object(object) if sections.contains(change.address.section()) => Some(object),
            _ => None,
        });
        let stays_outside = |object: &ObjectId| {
            let live = world.find(&Identity::Object(object.clone())).unwrap_or(&Value::Null);
            is_custom(object) || has_external_effects(object, live)
        };
        let mut with_cluster: BTreeSet<&ObjectId> = served.filter(|object| !stays_outside(object)).collect();
        let served_namespaces: BTreeSet<&str> =
            with_cluster.iter().filter_map(|object| object.namespace.as_deref()).collect();
        // Outside effects of foreign objects end only when those objects are deleted.
        let holds_outside = |namespace: &str| {
            let mut inside = world.objects.live().into_iter().flatten();
            inside.any(|(object, live)| {
                object.namespace.as_deref() == Some(namespace) && has_external_effects(object, live)
            })
        };
        let namespaces = self.changes.iter().filter(deleted).filter_map(|change| match &change.identity {
            Identity::Object(object) if is_namespace(object) => Some(object),
            _ => None,
        });
        with_cluster.retain(|object| !is_namespace(object));
        with_cluster.extend(namespaces.filter(|object| {
            let name = object.name.as_str();
            served_namespaces.contains(name) && !holds_outside(name)
        }));
        with_cluster.into_iter().map(|object| Identity::Object(object.clone())).collect()
    }
}

/// Returns true if a Dask operator runs, or may run because its Deployment was not read.
fn operator_runs(world: &World) -> bool {
    let Some(objects) = world.objects.live() else { return true };
    let operator =
        |object: &ObjectId| object.gvk.kind == "Deployment" && object.name == kinds::scope::OPERATOR_NAME;
    let asked = objects.keys().any(|object| object.gvk.kind == "CustomResourceDefinition");
    let found = objects.iter().find(|(object, _)| operator(object));
    match found {
        Some((_, live)) => kinds::json::count(&live["status"]["availableReplicas"]) > 0,
        None => !asked,
    }
}

/// Returns true if load balancers or disks outside of the cluster depend on an object, or on its contents. Source:
/// <https://cloud.google.com/kubernetes-engine/docs/how-to/deleting-a-cluster>: external load balancers and persistent disks are
/// not deleted with a cluster; a claim is deleted when no Pod uses it any more.
fn has_external_effects(object: &ObjectId, live: &Value) -> bool {
    match object.gvk.kind.as_str() {
        "Service" => live["spec"]["type"] == "LoadBalancer",
        "Ingress" | "Gateway" | "PersistentVolume" | "PersistentVolumeClaim" => true,
        _ => {
            let mut specs = Vec::new();
            pod_specs(live, &FieldPath::root(), &mut specs);
            let claims = |spec: &Value| {
                let volumes = spec["volumes"].as_array().into_iter().flatten();
                volumes.into_iter().any(|volume| !volume["persistentVolumeClaim"].is_null())
            };
            live["spec"]["volumeClaimTemplates"].is_array() || specs.iter().any(|(_, spec)| claims(spec))
        }
    }
}
