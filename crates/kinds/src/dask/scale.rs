//! Scaling of Dask workers: the owner of their number, and the live objects that contain it.

use serde_json::Value;

use crate::dask::api;
use crate::json::count;
use crate::scale::{ReplicaOwner, ScaleTarget};
use model::address::FieldPath;
use model::resource::{Identity, ObjectId, Resource};

/// Returns how a cluster or a group is scaled; `all` are the resources of the stack.
pub(crate) fn scaled(resource: &Resource, all: &[Resource]) -> Option<ScaleTarget> {
    let Identity::Object(object) = &resource.identity else { return None };
    let path = api::replicas_path();
    let origin = resource.origin_of(&path);
    let of_cluster = object.gvk == api::cluster();
    let autoscaler = all.iter().filter(|_| of_cluster).find(
        |other| matches!(&other.identity, Identity::Object(id) if is_autoscaler_of(id, &other.body, object)),
    );
    let number = |tree: &Value| path.find(tree).and_then(Value::as_u64);
    let number = match (autoscaler, number(&resource.body), number(&resource.create_only)) {
        (Some(autoscaler), _, _) => ReplicaOwner::Autoscaler {
            min: count(&autoscaler.body["spec"]["minimum"]),
            max: count(&autoscaler.body["spec"]["maximum"]),
            whose: autoscaler.identity.to_string(),
            origin: autoscaler.origin_of(&FieldPath::keys(["spec", "maximum"])),
        },
        (None, Some(number), _) => ReplicaOwner::File(number),
        (None, None, Some(start)) => ReplicaOwner::Notebooks(start),
        (None, None, None) => ReplicaOwner::Unmanaged,
    };
    let origin = if matches!(number, ReplicaOwner::Notebooks(_)) { origin.key("start") } else { origin };
    Some(ScaleTarget { path, origin, unit: "workers", replica_owner: number })
}

/// Returns true if an object is an autoscaler of a DaskCluster.
pub fn is_autoscaler_of(id: &ObjectId, body: &Value, cluster: &ObjectId) -> bool {
    id.gvk == api::autoscaler()
        && id.namespace == cluster.namespace
        && body["spec"]["cluster"] == cluster.name.as_str()
}

/// Returns the live objects with a resource's replica count. A DaskCluster's count is that of its default group; its own count is
/// that of the file, and the operator copies changes of it.
pub fn scale_objects(object: &ObjectId, number: &ReplicaOwner) -> Vec<ObjectId> {
    if object.gvk != api::cluster() {
        return vec![object.clone()];
    }
    let group = api::default_group(object);
    match number {
        ReplicaOwner::File(_) => vec![group, object.clone()],
        ReplicaOwner::Notebooks(_) | ReplicaOwner::Unmanaged | ReplicaOwner::Autoscaler { .. } => vec![group],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::object::gvk;
    use model::address::Address;
    use model::resource::{KindId, Recreation};

    fn scaled(resource: &Resource, all: &[Resource]) -> Option<ScaleTarget> {
        (crate::of(resource.kind).scale_target)(resource, all)
    }

    fn resource(kind: KindId, address: &str, id: ObjectId, body: Value, create_only: Value) -> Resource {
        Resource {
            address: Address::new(address),
            identity: Identity::Object(id),
            kind,
            body,
            create_only,
            origin: FieldPath::keys(["a", "b"]),
            provenance: Vec::new(),
            depends_on: Vec::new(),
            protect: false,
            recreation: Recreation::Always,
        }
    }

    fn id(gvk: model::resource::Gvk) -> ObjectId {
        ObjectId { gvk, namespace: Some("n".to_owned()), name: "d".to_owned() }
    }

    #[test]
    fn a_number_has_one_writer() {
        let said = json!({ "spec": { "worker": { "replicas": 3 } } });
        let cluster = |body: &Value, create_only: &Value| {
            resource(
                KindId::DaskCluster,
                "dask_cluster.d",
                id(api::cluster()),
                body.clone(),
                create_only.clone(),
            )
        };
        let bounds = json!({ "spec": { "cluster": "d", "minimum": 1, "maximum": 4 } });
        let scaler = resource(KindId::DaskAutoscaler, "x", id(api::autoscaler()), bounds, Value::Null);
        let number =
            |resource: &Resource, all: &[Resource]| scaled(resource, all).map(|scaled| scaled.replica_owner);
        assert_eq!(number(&cluster(&said, &Value::Null), &[]), Some(ReplicaOwner::File(3)));
        assert_eq!(number(&cluster(&json!({}), &said), &[]), Some(ReplicaOwner::Notebooks(3)));
        assert_eq!(number(&cluster(&json!({}), &Value::Null), &[]), Some(ReplicaOwner::Unmanaged));
        let Some(ReplicaOwner::Autoscaler { min: 1, max: 4, whose, .. }) =
            number(&cluster(&json!({}), &said), &[scaler])
        else {
            panic!("not the autoscaler's")
        };
        assert_eq!(whose, "DaskAutoscaler n/d");
    }

    #[test]
    fn deployments_of_files_have_a_number_and_others_have_none() {
        let deployment = gvk("apps", "v1", "Deployment", "deployments");
        let web = |address: &str| {
            resource(
                KindId::Deployment,
                address,
                id(deployment.clone()),
                json!({ "spec": { "replicas": 2 } }),
                Value::Null,
            )
        };
        let found = scaled(&web("manifest.m/Deployment/n/d"), &[]);
        assert_eq!(
            found.map(|found| (found.replica_owner, found.unit)),
            Some((ReplicaOwner::File(2), "pods"))
        );
        assert_eq!(scaled(&web("dask_operator/Deployment/n/d"), &[]), None);
        let of =
            json!({ "spec": { "maxReplicas": 5, "scaleTargetRef": { "kind": "Deployment", "name": "d" } } });
        let scaler = gvk("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
        let scaler = resource(KindId::Object, "h", id(scaler), of, Value::Null);
        let found = scaled(&web("manifest.m/Deployment/n/d"), &[scaler]).map(|found| found.replica_owner);
        assert!(matches!(found, Some(ReplicaOwner::Autoscaler { min: 1, max: 5, .. })), "{found:?}");
    }

    #[test]
    fn the_default_group_holds_the_number_of_a_cluster() {
        let names = |number: &ReplicaOwner| {
            let held = scale_objects(&id(api::cluster()), number);
            held.into_iter().map(|object| object.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&ReplicaOwner::File(1)), ["DaskWorkerGroup n/d-default", "DaskCluster n/d"]);
        assert_eq!(names(&ReplicaOwner::Notebooks(1)), ["DaskWorkerGroup n/d-default"]);
        assert_eq!(scale_objects(&id(api::group()), &ReplicaOwner::File(1)), [id(api::group())]);
    }
}
