//! Names in the operator's API, and the objects that the operator creates.

use crate::kind::{ConnectTarget, EndpointKind};
use crate::kubernetes::object::gvk;
use model::address::FieldPath;
use model::resource::{Gvk, Identity, ObjectId, Resource};
use model::schema::DASK_GROUP;

/// The operator's label with the name of the Dask cluster.
pub(crate) const CLUSTER_LABEL: &str = "dask.org/cluster-name";
/// The operator's label with the name of the group of workers.
pub(crate) const GROUP_LABEL: &str = "dask.org/workergroup-name";
/// The label with the role of an object in a cluster: `scheduler`, `worker`, `job-runner`.
pub const COMPONENT_LABEL: &str = "dask.org/component";

/// Returns the kind DaskCluster.
pub fn cluster() -> Gvk {
    gvk(DASK_GROUP, "v1", "DaskCluster", "daskclusters")
}

/// Returns the kind DaskWorkerGroup.
pub fn group() -> Gvk {
    gvk(DASK_GROUP, "v1", "DaskWorkerGroup", "daskworkergroups")
}

/// Returns the kind DaskJob.
pub fn job() -> Gvk {
    gvk(DASK_GROUP, "v1", "DaskJob", "daskjobs")
}

/// Returns the kind DaskAutoscaler.
pub fn autoscaler() -> Gvk {
    gvk(DASK_GROUP, "v1", "DaskAutoscaler", "daskautoscalers")
}

/// Returns the kinds whose objects need a running operator, to act on them or to remove their finalizers.
pub fn needing_operator() -> impl Iterator<Item = Gvk> {
    [cluster(), job(), autoscaler(), group()].into_iter()
}

/// Returns the default group of a cluster, which the operator creates: its number of workers takes precedence.
pub fn default_group(cluster: &ObjectId) -> ObjectId {
    ObjectId { gvk: group(), namespace: cluster.namespace.clone(), name: format!("{}-default", cluster.name) }
}

/// Returns the path of the number of workers, in clusters and in groups.
pub fn replicas_path() -> FieldPath {
    FieldPath::keys(["spec", "worker", "replicas"])
}

/// Returns the Service of a scheduler; the operator needs its ports to have names.
pub fn scheduler_service(namespace: Option<&str>, cluster: &str) -> ObjectId {
    let gvk = gvk("", "v1", "Service", "services");
    ObjectId { gvk, namespace: namespace.map(str::to_owned), name: format!("{cluster}-scheduler") }
}

/// Returns the address of a cluster's scheduler from inside the Kubernetes cluster. Source: the operator writes the same into its
/// workers, port and domain included (`operator/controller/controller.py` of dask-kubernetes 2026.3.0).
pub fn scheduler_address(cluster: &str, namespace: &str) -> String {
    format!("tcp://{cluster}-scheduler.{namespace}.svc.cluster.local:8786")
}

/// Returns the scheduler of a DaskCluster or a DaskJob as an endpoint.
pub(crate) fn endpoint(resource: &Resource) -> Option<ConnectTarget> {
    let Identity::Object(object) = &resource.identity else { return None };
    let service = scheduler_service(object.namespace.as_deref(), &object.name);
    Some(ConnectTarget { kind: EndpointKind::Scheduler, service })
}

/// The text of a wait for an operator that has not acted yet. Its Deployment has no readiness probe, so an available operator may
/// not watch yet.
pub(crate) const UNHANDLED: &str = "not yet handled by the Dask operator";

/// The text of a wait for an object that does not have its cluster as an owner yet.
pub(crate) const UNATTACHED: &str = "not yet attached to its cluster by the Dask operator";
