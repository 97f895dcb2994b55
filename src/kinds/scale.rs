//! What can be scaled: where its number stands in its body and in the stack file, who writes it, and which live objects
//! hold it. A kind that can be scaled has an arm in [`scaled`].

use crate::kinds::json::count;
use serde_json::Value;

use crate::address::FieldPath;
use crate::kinds::dask;
use crate::kinds::kubernetes::manifest;
use crate::resource::{Identity, KindId, ObjectId, Resource};

/// How a thing is scaled.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    /// The number in its body.
    pub path: FieldPath,
    /// The value in the stack file, or in a file that it names, that says the number.
    pub place: FieldPath,
    /// What is counted: `workers`, `nodes`, `pods`.
    pub unit: &'static str,
    /// Who writes it.
    pub number: Number,
}

/// Who writes a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// The file, this one.
    File(u64),
    /// Notebooks, after this one at the beginning.
    Notebooks(u64),
    /// Nobody says it.
    Unsaid,
    /// An autoscaler between bounds; who that is.
    Autoscaler {
        /// At least.
        min: u64,
        /// At most.
        max: u64,
        /// "GKE's autoscaler", "DaskAutoscaler default/rapids".
        whose: String,
        /// The place of the bounds.
        place: FieldPath,
    },
}

/// How a thing of a stack is scaled; `None` for what has no number. `all` are the things of the stack.
pub fn scaled(resource: &Resource, all: &[Resource]) -> Option<Scaled> {
    let kind = resource.kind;
    if kind == KindId::NodePool {
        return Some(pool(resource));
    }
    let Identity::Object(object) = &resource.identity else { return None };
    if kind == KindId::DaskCluster || kind == KindId::DaskGroup {
        return Some(workers(resource, object, all));
    }
    let from_files = [manifest::SECTION, "helm_release"].contains(&top(resource).as_str());
    let counted = [KindId::Deployment, KindId::StatefulSet].contains(&kind);
    (from_files && counted).then(|| pods(resource, object, all))
}

fn top(resource: &Resource) -> String {
    let section = resource.address.section();
    section.split('.').next().unwrap_or_default().to_owned()
}

fn pool(resource: &Resource) -> Scaled {
    let place = resource.origin.key("nodes");
    let bounds = &resource.body["autoscaling"];
    let number = match resource.body["nodeCount"].as_u64() {
        Some(nodes) => Number::File(nodes),
        None => Number::Autoscaler {
            min: count(&bounds["totalMinNodeCount"]),
            max: count(&bounds["totalMaxNodeCount"]),
            whose: "GKE's autoscaler".to_owned(),
            place: place.clone(),
        },
    };
    Scaled { path: FieldPath::keys(["nodeCount"]), place, unit: "nodes", number }
}

fn workers(resource: &Resource, object: &ObjectId, all: &[Resource]) -> Scaled {
    let path = dask::cluster::replicas_path();
    let place = resource.origin_of(&path);
    let of_cluster = object.gvk == dask::cluster::api();
    let autoscaler = all.iter().filter(|_| of_cluster).find(
        |other| matches!(&other.identity, Identity::Object(id) if is_autoscaler_of(id, &other.body, object)),
    );
    let number = |tree: &Value| path.find(tree).and_then(Value::as_u64);
    let number = match (autoscaler, number(&resource.body), number(&resource.initial)) {
        (Some(autoscaler), _, _) => Number::Autoscaler {
            min: count(&autoscaler.body["spec"]["minimum"]),
            max: count(&autoscaler.body["spec"]["maximum"]),
            whose: autoscaler.identity.to_string(),
            place: autoscaler.origin_of(&FieldPath::keys(["spec", "maximum"])),
        },
        (None, Some(number), _) => Number::File(number),
        (None, None, Some(start)) => Number::Notebooks(start),
        (None, None, None) => Number::Unsaid,
    };
    let place = if matches!(number, Number::Notebooks(_)) { place.key("start") } else { place };
    Scaled { path, place, unit: "workers", number }
}

/// Whether an object is an autoscaler of a DaskCluster.
pub fn is_autoscaler_of(id: &ObjectId, body: &Value, cluster: &ObjectId) -> bool {
    id.gvk == dask::autoscaler::api()
        && id.namespace == cluster.namespace
        && body["spec"]["cluster"] == cluster.name.as_str()
}

fn pods(resource: &Resource, object: &ObjectId, all: &[Resource]) -> Scaled {
    let path = FieldPath::keys(["spec", "replicas"]);
    let autoscaler = all.iter().find(|other| {
        let of = &other.body["spec"]["scaleTargetRef"];
        let Identity::Object(id) = &other.identity else { return false };
        id.gvk.kind == "HorizontalPodAutoscaler"
            && id.namespace == object.namespace
            && of["kind"] == object.gvk.kind.as_str()
            && of["name"] == object.name.as_str()
    });
    let number = match (autoscaler, path.find(&resource.body).and_then(Value::as_u64)) {
        (Some(autoscaler), _) => Number::Autoscaler {
            min: autoscaler.body["spec"]["minReplicas"].as_u64().unwrap_or(1),
            max: count(&autoscaler.body["spec"]["maxReplicas"]),
            whose: autoscaler.identity.to_string(),
            place: autoscaler.origin_of(&FieldPath::keys(["spec", "maxReplicas"])),
        },
        (None, Some(number)) => Number::File(number),
        (None, None) => Number::Unsaid,
    };
    Scaled { place: resource.origin_of(&path), path, unit: "pods", number }
}

/// The live objects that hold a thing's number. A DaskCluster's is held by its default group, which counts; its own is
/// what the file says, and the operator hands a change of it on.
pub fn holders(object: &ObjectId, number: &Number) -> Vec<ObjectId> {
    if object.gvk != dask::cluster::api() {
        return vec![object.clone()];
    }
    let group = dask::cluster::default_group(object);
    match number {
        Number::File(_) => vec![group, object.clone()],
        Number::Notebooks(_) | Number::Unsaid | Number::Autoscaler { .. } => vec![group],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::address::Address;
    use crate::kinds::dask;
    use crate::kinds::kubernetes::object::gvk;
    use crate::resource::Life;

    fn resource(kind: KindId, address: &str, id: ObjectId, body: Value, initial: Value) -> Resource {
        Resource {
            address: Address::new(address),
            identity: Identity::Object(id),
            kind,
            body,
            initial,
            origin: FieldPath::keys(["a", "b"]),
            origins: Vec::new(),
            follows: Vec::new(),
            protect: false,
            life: Life::Kept,
        }
    }

    fn id(gvk: crate::resource::Gvk) -> ObjectId {
        ObjectId { gvk, namespace: Some("n".to_owned()), name: "d".to_owned() }
    }

    #[test]
    fn a_number_has_one_writer() {
        let said = json!({ "spec": { "worker": { "replicas": 3 } } });
        let cluster = |body: &Value, initial: &Value| {
            resource(
                KindId::DaskCluster,
                "dask_cluster.d",
                id(dask::cluster::api()),
                body.clone(),
                initial.clone(),
            )
        };
        let bounds = json!({ "spec": { "cluster": "d", "minimum": 1, "maximum": 4 } });
        let scaler = resource(KindId::DaskAutoscaler, "x", id(dask::autoscaler::api()), bounds, Value::Null);
        let number =
            |resource: &Resource, all: &[Resource]| scaled(resource, all).map(|scaled| scaled.number);
        assert_eq!(number(&cluster(&said, &Value::Null), &[]), Some(Number::File(3)));
        assert_eq!(number(&cluster(&json!({}), &said), &[]), Some(Number::Notebooks(3)));
        assert_eq!(number(&cluster(&json!({}), &Value::Null), &[]), Some(Number::Unsaid));
        let Some(Number::Autoscaler { min: 1, max: 4, whose, .. }) =
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
        assert_eq!(found.map(|found| (found.number, found.unit)), Some((Number::File(2), "pods")));
        assert_eq!(scaled(&web("dask_operator/Deployment/n/d"), &[]), None);
        let of =
            json!({ "spec": { "maxReplicas": 5, "scaleTargetRef": { "kind": "Deployment", "name": "d" } } });
        let scaler = gvk("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
        let scaler = resource(KindId::Object, "h", id(scaler), of, Value::Null);
        let found = scaled(&web("manifest.m/Deployment/n/d"), &[scaler]).map(|found| found.number);
        assert!(matches!(found, Some(Number::Autoscaler { min: 1, max: 5, .. })), "{found:?}");
    }

    #[test]
    fn the_default_group_holds_the_number_of_a_cluster() {
        let names = |number: &Number| {
            let held = holders(&id(dask::cluster::api()), number);
            held.into_iter().map(|object| object.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&Number::File(1)), ["DaskWorkerGroup n/d-default", "DaskCluster n/d"]);
        assert_eq!(names(&Number::Notebooks(1)), ["DaskWorkerGroup n/d-default"]);
        assert_eq!(holders(&id(dask::group::api()), &Number::File(1)), [id(dask::group::api())]);
    }
}
