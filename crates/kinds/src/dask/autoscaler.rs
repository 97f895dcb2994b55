//! Autoscalers of Dask clusters: `replicas = { min, max }` of the default group.

use serde_json::{Value, json};

use crate::dask::api::{self, UNATTACHED, UNHANDLED};
use crate::dask::kopf::is_handled;
use crate::descriptions::range;
use crate::json::text;
use crate::kind::{
    Compare, DeletionBlocker, FreedCapacity, Kind, MissingQuery, Neighbor, Queries, QueryResults, StopEffect,
    address_in, own_object_query,
};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::object::new_object;
use crate::scope::Scope;
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{
    Api, Await, Effect, Facts, Identity, KindId, ObjectId, Query, Readiness, Recreation, Resource,
};

/// Seconds: the operator retries after a minute if it missed the cluster.
const DEADLINE: u32 = 300;

pub const KIND: Kind = Kind {
    rank: 62,
    deletion_blocker: DeletionBlocker::Operator,
    freed_capacity: FreedCapacity::WorkerCount,
    compare: Compare::Kubernetes(effect),
    change_steps: |context| {
        let facts = Facts::Cluster(text(&context.body()["spec"]["cluster"]).to_owned());
        object_change_steps(context, KindId::DaskAutoscaler, facts, DEADLINE)
    },
    queries,
    readiness: |_, found| Ok(readiness(found.own_object())),
    status_line,
    plan_summary: |resource| {
        let spec = &resource.body["spec"];
        range(&spec["minimum"], &spec["maximum"])
            .map(|range| format!("{range} workers"))
            .into_iter()
            .collect()
    },
    address: |object| address_in("dask_cluster", object),
    stop_effect: StopEffect::Deletes,
    ..Kind::DEFAULT
};

/// Returns the effect of a changed field: the timer reads the bounds each time, the owner is set once. Source:
/// `operator/controller/controller.py` of dask-kubernetes 2026.3.0.
fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if FieldPath::keys(["spec", "cluster"]).contains(path) {
        return (Effect::Replace, Some("an autoscaler belongs to the cluster it was created for"));
    }
    (Effect::InPlace, None)
}

/// Lowers the autoscaler of a section's cluster. It has the cluster's name: `KubeCluster.adapt` and `KubeCluster.scale` look for
/// it there, so there is never a second one.
pub fn lower(cluster: &Resource, min: u32, max: u32, scope: &Scope) -> Option<Resource> {
    let Identity::Object(ObjectId { namespace, name, .. }) = &cluster.identity else { return None };
    let api = api::autoscaler();
    let replicas = cluster.origin.key("worker").key("replicas");
    let spec = |key: &str| FieldPath::keys(["spec", key]);
    let address = Address::object(cluster.address.as_str(), &api.kind, namespace.as_deref(), name);
    let metadata = json!({ "name": name, "namespace": namespace, "labels": scope.labels() });
    let (identity, body) =
        new_object(api, metadata, json!({ "cluster": name, "minimum": min, "maximum": max }));
    Some(Resource {
        address,
        identity,
        kind: KindId::DaskAutoscaler,
        body,
        create_only: Value::Null,
        provenance: vec![
            (spec("minimum"), replicas.key("min")),
            (spec("maximum"), replicas.key("max")),
            (FieldPath::keys(["spec"]), replicas.clone()),
        ],
        origin: replicas,
        depends_on: vec![cluster.address.clone()],
        protect: false,
        recreation: Recreation::Always,
    })
}

/// Reads the autoscaler and the group whose number it writes. The group stays when the autoscaler is deleted.
fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    if !wait.until.is_ready() {
        return queries;
    }
    if let (Identity::Object(object), Some(cluster)) = (&wait.identity, wait.cluster()) {
        let (gvk, namespace) = (api::cluster(), object.namespace.clone());
        let group = api::default_group(&ObjectId { gvk, namespace, name: cluster.to_owned() });
        queries.neighbor(Neighbor::ScaledGroup, Query { api: Api::Kubernetes, path: group.path() });
    }
    queries
}

/// Returns the `status` line: its bounds, and the current number.
fn status_line(_: &Await, found: &QueryResults) -> Result<StatusLine, MissingQuery> {
    let (spec, group) = (&found.own_object()["spec"], found.get(Neighbor::ScaledGroup)?);
    let now = &group["spec"]["worker"]["replicas"];
    let at = now.as_u64().map(|now| format!(", now {now}")).unwrap_or_default();
    Ok(StatusLine {
        line: format!("autoscaler: {} to {} workers{at}", spec["minimum"], spec["maximum"]),
        facts: vec![
            ("workers_least", spec["minimum"].clone()),
            ("workers_most", spec["maximum"].clone()),
            ("workers_wanted", now.clone()),
        ],
        ..StatusLine::default()
    })
}

/// Returns ready once the operator has set the cluster as its owner: from then on the operator uses its bounds.
fn readiness(autoscaler: &Value) -> Readiness {
    if !autoscaler.is_object() {
        return Readiness::progressing("not created yet");
    }
    if is_handled(autoscaler) == Some(false) {
        return Readiness::Unhandled(UNHANDLED.into());
    }
    match autoscaler["metadata"]["ownerReferences"].as_array() {
        Some(owners) if !owners.is_empty() => Readiness::Ready,
        _ => Readiness::Unhandled(UNATTACHED.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::Until;

    #[test]
    fn it_works_once_its_cluster_owns_it() {
        assert!(matches!(readiness(&Value::Null), Readiness::Progressing(_)));
        assert!(matches!(readiness(&json!({ "metadata": {} })), Readiness::Unhandled(_)));
        let owned = json!({ "metadata": { "ownerReferences": [{ "kind": "DaskCluster", "name": "c" }] } });
        assert_eq!(readiness(&owned), Readiness::Ready);
    }

    #[test]
    fn its_group_is_not_waited_for_when_it_goes() {
        let identity = Identity::Object(ObjectId {
            gvk: api::autoscaler(),
            namespace: Some("default".into()),
            name: "c".into(),
        });
        for (until, expect) in [(Until::Ready, 2), (Until::Gone, 1)] {
            let (kind, identity, facts) =
                (KindId::DaskAutoscaler, identity.clone(), Facts::Cluster("c".to_owned()));
            let found = queries(&Await { kind, identity, until, facts, deadline: 1 });
            assert_eq!(found.all().count(), expect, "{until:?}");
        }
    }

    #[test]
    fn the_bounds_are_followed_and_the_cluster_is_not() {
        for (path, expect) in [
            ("spec.minimum", Effect::InPlace),
            ("spec.maximum", Effect::InPlace),
            ("metadata.labels.a", Effect::InPlace),
            ("spec.cluster", Effect::Replace),
        ] {
            assert_eq!(effect(&path.parse().unwrap()).0, expect, "{path}");
        }
    }
}
