//! Kubernetes objects that are ready as soon as they exist, or once their conditions say so. Also CRDs and Services.

use serde_json::Value;

use crate::json::text;
use crate::kind::{ChangeContext, Compare, DeletionBlocker, Kind, PodSource, address_by_name, address_in};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::object::{condition, object_schema};
use crate::kubernetes::{conditions, endpoint, pods};
use crate::scope::DASK_OPERATOR;
use model::address::FieldPath;
use model::resource::{Action, Effect, Facts, Identity, KindId, Readiness, Resource, Step};
use model::schema::DASK_GROUP;

/// Seconds until an object counts as stuck.
const DEADLINE: u32 = 120;
/// Seconds until an object of a custom kind counts as stuck.
const CUSTOM_TIMEOUT: u32 = 1800;
/// Seconds until a definition that was deleted counts as stuck. kube-apiserver 1.36 can lose sight of one when
/// its finalizer meets "storage is (re)initializing", and looks again after 5 minutes (seen; the resync period
/// of its informers); then it waits up to a minute for the instances.
const CRD_DELETE_TIMEOUT: u32 = 480;

/// ConfigMaps, ServiceAccounts, roles and every kind without a file of its own.
pub const GENERIC: Kind = Kind {
    rank: 30,
    compare: Compare::Kubernetes(|_| (Effect::InPlace, None)),
    change_steps: |context| {
        // An unknown controller may need long, for example to pull an image or to wait for capacity. Kueue handles its queues
        // within seconds.
        let known = object_schema(context.identity).is_some() || conditions::is_of_queues(context.body());
        object_change_steps(
            context,
            KindId::Object,
            Facts::None,
            if known { DEADLINE } else { CUSTOM_TIMEOUT },
        )
    },
    readiness: |_, found| Ok(conditions::readiness(found.own_object())),
    shared: true,
    pods: replica_set_pods,
    shown_by_kubernetes_kind: true,
    ..Kind::DEFAULT
};

/// RoleBinding and ClusterRoleBinding: their role cannot be changed.
pub const BINDING: Kind = Kind {
    rank: 31,
    compare: Compare::Kubernetes(binding_effect),
    change_steps: |context| plain(context, KindId::Binding),
    readiness: |_, found| Ok(exists(found.own_object())),
    shared: true,
    shown_by_kubernetes_kind: true,
    ..Kind::DEFAULT
};

pub const SERVICE: Kind = Kind {
    rank: 32,
    compare: Compare::Kubernetes(service_effect),
    change_steps: |context| plain(context, KindId::Service),
    readiness: |_, found| Ok(service_ready(found.own_object())),
    shared: true,
    endpoint: endpoint::of_service,
    ..Kind::DEFAULT
};

/// CustomResourceDefinitions.
pub const CRD: Kind = Kind {
    rank: 25,
    deletion_blocker: DeletionBlocker::Contents,
    compare: Compare::Kubernetes(crd_effect),
    change_steps: crd_change_steps,
    readiness: |_, found| Ok(crd_ready(found.own_object())),
    shared: true,
    address: |object| match object.name.ends_with(DASK_GROUP) {
        true => address_in(DASK_OPERATOR, object),
        false => address_by_name(object),
    },
    shown_by_kubernetes_kind: true,
    ..Kind::DEFAULT
};

fn plain(context: &ChangeContext, kind: KindId) -> Vec<Step> {
    object_change_steps(context, kind, Facts::None, DEADLINE)
}

fn crd_change_steps(context: &ChangeContext) -> Vec<Step> {
    let deadline = match context.action {
        Action::Delete | Action::Replace => CRD_DELETE_TIMEOUT,
        _ => DEADLINE,
    };
    object_change_steps(context, KindId::Crd, Facts::None, deadline)
}

/// Returns the pods of a ReplicaSet; other generic kinds have no pods.
fn replica_set_pods(resource: &Resource) -> PodSource {
    match &resource.identity {
        Identity::Object(object) if object.gvk.group == "apps" && object.gvk.kind == "ReplicaSet" => {
            pods::selecting(resource)
        }
        Identity::Object(_) | Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => {
            PodSource::None
        }
    }
}

fn exists(object: &Value) -> Readiness {
    if object.is_object() { Readiness::Ready } else { Readiness::progressing("not created yet") }
}

fn starts(path: &FieldPath, keys: &[&str]) -> bool {
    FieldPath::keys(keys.iter().copied()).contains(path)
}

fn binding_effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if starts(path, &["roleRef"]) {
        return (Effect::Replace, Some("the role of a binding cannot be changed"));
    }
    (Effect::InPlace, None)
}

fn service_effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if starts(path, &["spec", "clusterIP"]) || starts(path, &["spec", "clusterIPs"]) {
        return (Effect::Replace, Some("the address of a Service cannot be changed"));
    }
    // Both are fixed while the Service stays a load balancer, which a single field does not tell.
    if starts(path, &["spec", "loadBalancerClass"]) || starts(path, &["spec", "healthCheckNodePort"]) {
        return (Effect::Replace, Some("the load balancer of a Service cannot be changed"));
    }
    (Effect::InPlace, None)
}

fn crd_effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    let fixed = [
        &["spec", "group"][..],
        &["spec", "scope"],
        &["spec", "names", "kind"],
        &["spec", "names", "plural"],
    ];
    if fixed.iter().any(|keys| starts(path, keys)) {
        return (Effect::Replace, Some("group, scope and kind of a definition cannot be changed"));
    }
    (Effect::InPlace, None)
}

fn service_ready(service: &Value) -> Readiness {
    if !service.is_object() {
        return Readiness::progressing("not created yet");
    }
    let balanced = service["spec"]["type"] == "LoadBalancer";
    let addresses = service["status"]["loadBalancer"]["ingress"].as_array().map_or(0, Vec::len);
    if balanced && addresses == 0 {
        return Readiness::progressing("the load balancer has no address yet");
    }
    Readiness::Ready
}

/// Returns the readiness from the conditions `Established` and `NamesAccepted`, as kubectl and kapp do. Names that collide are
/// never accepted.
fn crd_ready(crd: &Value) -> Readiness {
    if let Some(names) = condition(crd, "NamesAccepted")
        && names["status"] == "False"
    {
        return Readiness::Failed(format!("its names are not accepted: {}", text(&names["message"])));
    }
    match condition(crd, "Established") {
        Some(established) if established["status"] == "True" => Readiness::Ready,
        _ => Readiness::progressing("not yet served by the API server"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::{Part, QueryResults};
    use crate::kubernetes::object::gvk;
    use model::resource::{Await, Identity, ObjectId, Until};

    fn readiness(kind: KindId, object: Value) -> Readiness {
        let gvk = gvk("", "v1", "Service", "services");
        let identity = Identity::Object(ObjectId { gvk, namespace: None, name: "x".into() });
        let wait = Await { kind, identity, until: Until::Ready, facts: Facts::None, deadline: 1 };
        crate::of(kind).readiness(&wait, &QueryResults::of([(Part::Itself, &object)]))
    }

    #[test]
    fn a_definition_is_ready_when_established() {
        let with = |conditions: Value| json!({ "status": { "conditions": conditions } });
        assert!(matches!(readiness(KindId::Crd, with(json!([]))), Readiness::Progressing(_)));
        let both = json!([{ "type": "NamesAccepted", "status": "True" }, { "type": "Established", "status": "True" }]);
        assert_eq!(readiness(KindId::Crd, with(both)), Readiness::Ready);
        let clash = json!([{ "type": "NamesAccepted", "status": "False", "message": "taken" }]);
        assert_eq!(
            readiness(KindId::Crd, with(clash)),
            Readiness::Failed("its names are not accepted: taken".into())
        );
    }

    #[test]
    fn a_load_balancer_is_ready_with_its_address() {
        let service = |status: Value| json!({ "spec": { "type": "LoadBalancer" }, "status": status });
        assert!(matches!(readiness(KindId::Service, service(json!({}))), Readiness::Progressing(_)));
        let address = json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.1" }] } });
        assert_eq!(readiness(KindId::Service, service(address)), Readiness::Ready);
    }
}
