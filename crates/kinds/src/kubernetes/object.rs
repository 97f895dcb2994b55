//! Kubernetes objects as JSON: identity, status, selectors.

use serde_json::{Value, json};

use crate::json::text;
use crate::pod_defaults;
use crate::scope::{DRIVER_INSTALLER, HOSTS_GROUP, KUEUE_GROUP};
use model::resource::{
    Api, Gvk, Identity, KindId, OBJECT_LABEL_MANAGED_BY, OBJECT_LABEL_STACK, ObjectId, Query, Resource,
    encoded,
};
use model::schema::{self, DASK_GROUP};

pub use model::resource::gvk;

/// Creates the identity and the body of an object with this metadata.
pub fn new_object(gvk: Gvk, metadata: Value, spec: Value) -> (Identity, Value) {
    let said = |key: &str| metadata[key].as_str().map(str::to_owned);
    let (namespace, name) = (said("namespace"), said("name").unwrap_or_default());
    let body =
        json!({ "apiVersion": gvk.api_version(), "kind": gvk.kind, "metadata": metadata, "spec": spec });
    (Identity::Object(ObjectId { gvk, namespace, name }), body)
}

/// Returns a LIST of the objects with these labels.
pub(crate) fn labelled<'l>(
    gvk: &Gvk,
    namespace: Option<&str>,
    labels: impl IntoIterator<Item = (&'l str, &'l str)>,
) -> Query {
    let pairs = labels.into_iter().map(|(key, value)| format!("{key}={value}"));
    let pairs = encoded(&pairs.collect::<Vec<_>>().join(","));
    Query { api: Api::Kubernetes, path: format!("{}?labelSelector={pairs}", gvk.collection(namespace)) }
}

/// Returns a LIST of the pods with these labels.
pub(crate) fn pods_labelled<'l>(
    namespace: Option<&str>,
    labels: impl IntoIterator<Item = (&'l str, &'l str)>,
) -> Query {
    labelled(&gvk("", "v1", "Pod", "pods"), namespace, labels)
}

/// Returns a LIST of the pods of a selector with these labels; `None` without labels.
pub(crate) fn pods_matching(namespace: Option<&str>, selector: &Value) -> Option<Query> {
    let labels = selector.as_object().filter(|labels| !labels.is_empty())?;
    Some(pods_labelled(namespace, labels.iter().map(|(key, value)| (key.as_str(), text(value)))))
}

/// Returns the schema of an object's kind.
pub fn object_schema(identity: &Identity) -> Option<schema::Schema> {
    let Identity::Object(object) = identity else { return None };
    let gvk = &object.gvk;
    if gvk.group == DASK_GROUP {
        return schema::dask(&gvk.kind);
    }
    schema::builtin(&gvk.group, &gvk.version, &gvk.kind)
        .or_else(|| schema::served(&gvk.group, &gvk.version, &gvk.kind))
}

/// Returns a condition of a Kubernetes object by its type.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Returns true if the condition `Ready` of an object is true.
pub fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Returns an object with only its API version, kind, name and namespace.
pub(crate) fn bare(body: &Value) -> Value {
    let mut bare = json!({ "apiVersion": body["apiVersion"], "kind": body["kind"] });
    for field in ["name", "namespace"] {
        if let Some(value) = body["metadata"].get(field) {
            bare["metadata"][field] = value.clone();
        }
    }
    bare
}

/// Reduces a lowered resource to what its section sets: without the stack's labels and the defaults of pods,
/// which an external object need not have.
pub(crate) fn strip_generated_fields(mut resource: Resource) -> Resource {
    pod_defaults::remove(&mut resource.body);
    let labels = resource.body.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels {
        labels.retain(|key, value| {
            key != OBJECT_LABEL_STACK && !(key == OBJECT_LABEL_MANAGED_BY && *value == "dask-infra")
        });
    }
    if resource.body["metadata"]["labels"] == json!({})
        && let Some(metadata) = resource.body["metadata"].as_object_mut()
    {
        metadata.remove("labels");
    }
    resource
}

/// Returns the kind whose rules apply to an object.
pub fn kind_of(object: &ObjectId) -> KindId {
    let ObjectId { gvk, name, .. } = object;
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        (DASK_GROUP, "DaskCluster") => KindId::DaskCluster,
        (DASK_GROUP, "DaskJob") => KindId::DaskJob,
        (DASK_GROUP, "DaskWorkerGroup") => KindId::DaskGroup,
        (DASK_GROUP, "DaskAutoscaler") => KindId::DaskAutoscaler,
        (HOSTS_GROUP, "Environment") => KindId::Environment,
        (HOSTS_GROUP, "Files") => KindId::HostFiles,
        (HOSTS_GROUP, "Cluster") => KindId::HostCluster,
        (HOSTS_GROUP, "WorkerGroup") => KindId::HostGroup,
        (HOSTS_GROUP, "Job") => KindId::HostJob,
        (KUEUE_GROUP, _) => KindId::Queue,
        ("", "Namespace") => KindId::Namespace,
        ("", "Service") => KindId::Service,
        ("", "Pod") => KindId::Pod,
        ("batch", "Job") => KindId::Job,
        ("autoscaling.x-k8s.io", "ProvisioningRequest") => KindId::ProvisioningRequest,
        ("apps", "StatefulSet") => KindId::StatefulSet,
        ("apps", "Deployment") => KindId::Deployment,
        ("apps", "DaemonSet") if name == DRIVER_INSTALLER => KindId::GpuDriver,
        ("apps", "DaemonSet") => KindId::DaemonSet,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => KindId::Crd,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => KindId::Binding,
        _ => KindId::Object,
    }
}
