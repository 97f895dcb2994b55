//! Deployments and DaemonSets: readiness by the rules of kstatus, which check more than Helm's do. Source:
//! kubernetes-sigs/cli-utils, `pkg/kstatus/status`.

use serde_json::{Value, json};

use crate::descriptions::{image, replicas};
use crate::json::{count, text};
use crate::kind::{Compare, Kind};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::object::condition;
use crate::kubernetes::{helm_release, manifest, pods};
use crate::scale::{ReplicaOwner, ScaleTarget};
use crate::status::StatusLine;
use model::address::FieldPath;
use model::resource::{Effect, Facts, Identity, KindId, Readiness, Resource};

/// Seconds after which a rollout counts as stuck. Images of 10 GB can be pulled in this time.
const DEADLINE: u32 = 900;

pub const DEPLOYMENT: Kind = Kind {
    rank: 40,
    compare: Compare::Kubernetes(template_effect),
    change_steps: |context| object_change_steps(context, KindId::Deployment, Facts::None, DEADLINE),
    readiness: |_, found| Ok(deployment_ready(found.own_object())),
    shared: true,
    status_line: |_, found| Ok(deployment_status(found.own_object())),
    plan_summary: |resource| replicas(&resource.body["spec"]),
    pods: pods::selecting,
    scale_target: scaled,
    ..Kind::DEFAULT
};

/// DaemonSets.
pub const DAEMON_SET: Kind = Kind {
    rank: 40,
    compare: Compare::Kubernetes(template_effect),
    change_steps: |context| object_change_steps(context, KindId::DaemonSet, Facts::None, DEADLINE),
    readiness: |_, found| Ok(daemon_set_ready(found.own_object())),
    shared: true,
    status_line: |_, found| Ok(daemon_set_status(found.own_object())),
    plan_summary: |resource| vec![image(&resource.body["spec"]["template"]["spec"])],
    pods: pods::selecting,
    ..Kind::DEFAULT
};

/// Returns the effect of a change: the selector is fixed, a changed pod template rolls, and the rest is changed in place.
pub(crate) fn template_effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if FieldPath::keys(["spec", "selector"]).contains(path) {
        return (Effect::Replace, Some("the selector cannot be changed"));
    }
    if FieldPath::keys(["spec", "template"]).contains(path) {
        return (Effect::Rolling, Some("its pods are recreated"));
    }
    (Effect::InPlace, None)
}

fn observed(object: &Value) -> bool {
    count(&object["status"]["observedGeneration"]) >= count(&object["metadata"]["generation"])
}

/// Returns ready once all replicas run the newest template and are available.
pub(crate) fn deployment_ready(object: &Value) -> Readiness {
    if !object.is_object() {
        return Readiness::progressing("not created yet");
    }
    if !observed(object) {
        return Readiness::progressing("not yet seen by the Deployment controller");
    }
    if let Some(progress) = condition(object, "Progressing")
        && progress["reason"] == "ProgressDeadlineExceeded"
    {
        return Readiness::Failed(format!("its rollout is not progressing: {}", text(&progress["message"])));
    }
    let status = &object["status"];
    let desired = object["spec"]["replicas"].as_u64().unwrap_or(1);
    let parts = [
        ("replicas", "pods created"),
        ("updatedReplicas", "pods of the newest template"),
        ("readyReplicas", "pods ready"),
        ("availableReplicas", "pods available"),
    ];
    for (field, meaning) in parts {
        let have = count(&status[field]);
        if have < desired {
            return Readiness::progressing(format!("{have} of {desired} {meaning}"));
        }
    }
    let made = count(&status["replicas"]);
    if made > desired {
        let pods = if made - desired == 1 { "pod" } else { "pods" };
        return Readiness::progressing(format!("{} old {pods} not yet deleted", made - desired));
    }
    match condition(object, "Available") {
        Some(available) if available["status"] == "True" => Readiness::Ready,
        _ => Readiness::progressing("not available yet"),
    }
}

/// Returns ready once every node that should run a pod runs a ready one of the newest template.
pub(crate) fn daemon_set_ready(object: &Value) -> Readiness {
    if !object.is_object() {
        return Readiness::progressing("not created yet");
    }
    if object["status"]["observedGeneration"].is_null() || !observed(object) {
        return Readiness::progressing("not yet seen by the DaemonSet controller");
    }
    let status = &object["status"];
    let desired = count(&status["desiredNumberScheduled"]);
    let parts = [
        ("currentNumberScheduled", "pods created"),
        ("updatedNumberScheduled", "pods of the newest template"),
        ("numberReady", "pods ready"),
        ("numberAvailable", "pods available"),
    ];
    for (field, meaning) in parts {
        let have = count(&status[field]);
        if have < desired {
            return Readiness::progressing(format!("{have} of {desired} {meaning}"));
        }
    }
    Readiness::Ready
}

/// Returns the `status` line: the number of running pods.
pub(crate) fn deployment_status(object: &Value) -> StatusLine {
    let desired = object["spec"]["replicas"].as_u64().unwrap_or(1);
    pods_said(desired, count(&object["status"]["replicas"]), count(&object["status"]["readyReplicas"]))
}

/// Returns the `status` line: the number of nodes with a running pod.
pub(crate) fn daemon_set_status(object: &Value) -> StatusLine {
    let status = &object["status"];
    let (desired, made) =
        (count(&status["desiredNumberScheduled"]), count(&status["currentNumberScheduled"]));
    pods_said(desired, made, count(&status["numberReady"]))
}

fn pods_said(desired: u64, made: u64, ready: u64) -> StatusLine {
    StatusLine {
        line: format!("{ready} of {desired} pods ready"),
        facts: vec![
            ("pods_wanted", json!(desired)),
            ("pods_made", json!(made)),
            ("pods_ready", json!(ready)),
        ],
        ..StatusLine::default()
    }
}

/// Returns how a workload of a manifest or chart is scaled; `all` are the resources of the stack.
pub(crate) fn scaled(resource: &Resource, all: &[Resource]) -> Option<ScaleTarget> {
    let Identity::Object(object) = &resource.identity else { return None };
    let section = resource.address.section().split('.').next().unwrap_or_default();
    if ![manifest::SECTION, helm_release::SECTION].contains(&section) {
        return None;
    }
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
        (Some(autoscaler), _) => ReplicaOwner::Autoscaler {
            min: autoscaler.body["spec"]["minReplicas"].as_u64().unwrap_or(1),
            max: count(&autoscaler.body["spec"]["maxReplicas"]),
            whose: autoscaler.identity.to_string(),
            origin: autoscaler.origin_of(&FieldPath::keys(["spec", "maxReplicas"])),
        },
        (None, Some(number)) => ReplicaOwner::File(number),
        (None, None) => ReplicaOwner::Unmanaged,
    };
    Some(ScaleTarget { origin: resource.origin_of(&path), path, unit: "pods", replica_owner: number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployments_are_ready_when_every_count_matches() {
        let with = |status: Value| json!({ "metadata": { "generation": 2 }, "spec": { "replicas": 2 }, "status": status });
        let all = json!({
            "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            "conditions": [{ "type": "Available", "status": "True" }],
        });
        assert_eq!(deployment_ready(&with(all.clone())), Readiness::Ready);
        for (field, value, expect) in [
            ("observedGeneration", 1, "not yet seen by the Deployment controller"),
            ("readyReplicas", 1, "1 of 2 pods ready"),
            ("replicas", 3, "1 old pod not yet deleted"),
        ] {
            let mut status = all.clone();
            status[field] = json!(value);
            assert_eq!(deployment_ready(&with(status)), Readiness::progressing(expect), "{field}");
        }
        let stuck = json!({ "observedGeneration": 2, "conditions": [
            { "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "no" }
        ] });
        assert!(matches!(deployment_ready(&with(stuck)), Readiness::Failed(_)));
    }

    #[test]
    fn an_unseen_daemon_set_with_no_pods_is_not_ready() {
        assert!(matches!(daemon_set_ready(&json!({ "status": {} })), Readiness::Progressing(_)));
        let none = json!({ "metadata": { "generation": 1 }, "status": { "observedGeneration": 1 } });
        assert_eq!(daemon_set_ready(&none), Readiness::Ready);
        let one = json!({ "metadata": { "generation": 1 }, "status": {
            "observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "updatedNumberScheduled": 1
        } });
        assert_eq!(daemon_set_ready(&one), Readiness::progressing("0 of 1 pods ready"));
    }
}
