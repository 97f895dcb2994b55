//! Pods and StatefulSets. If the API does not allow a change in place, they are recreated. Readiness follows the rules of
//! kstatus: a pod that runs to completion is ready once it has succeeded. Source: kubernetes-sigs/cli-utils,
//! `pkg/kstatus/status`; `pkg/apis/*/validation` of Kubernetes.

use serde_json::Value;

use crate::descriptions::{image, replicas};
use crate::json::{count, text};
use crate::kind::{ChangeContext, Compare, Kind, PodSource, StopEffect};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::pods::{self, broken};
use crate::kubernetes::workload;
use model::address::FieldPath;
use model::resource::{Api, Await, Effect, Facts, Identity, KindId, Query, Readiness, Resource, Step};

/// Seconds: images of 10 GB are pulled, and GPU nodes may have to be created first.
const DEADLINE: u32 = 1800;

/// Pods without a controller.
pub const POD: Kind = Kind {
    rank: 42,
    compare: Compare::Kubernetes(pod_effect),
    change_steps: pod_change_steps,
    readiness: |wait, found| Ok(pod_ready(wait, found.own_object())),
    shared: true,
    plan_summary: |resource| vec![image(&resource.body["spec"])],
    pods: own_pod,
    stop_effect: StopEffect::DeletesWhile(|pod| {
        !matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
    }),
    ..Kind::DEFAULT
};

/// StatefulSets.
pub const STATEFUL_SET: Kind = Kind {
    rank: 40,
    compare: Compare::Kubernetes(stateful_set_effect),
    change_steps: |context| object_change_steps(context, KindId::StatefulSet, Facts::None, DEADLINE),
    readiness: |_, found| Ok(stateful_set_ready(found.own_object())),
    shared: true,
    plan_summary: |resource| replicas(&resource.body["spec"]),
    pods: pods::selecting,
    scale_target: workload::scaled,
    ..Kind::DEFAULT
};

fn own_pod(resource: &Resource) -> PodSource {
    match &resource.identity {
        Identity::Object(object) => PodSource::Known(Query { api: Api::Kubernetes, path: object.path() }),
        Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => PodSource::None,
    }
}

fn at(path: &FieldPath, keys: &[&str]) -> bool {
    FieldPath::keys(keys.iter().copied()).contains(path)
}

fn pod_effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if at(path, &["spec"]) && !at(path, &["spec", "activeDeadlineSeconds"]) {
        return (Effect::Replace, Some("a Pod cannot be changed"));
    }
    (Effect::InPlace, None)
}

fn stateful_set_effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if at(path, &["spec", "template"]) {
        return (Effect::Rolling, Some("its pods are recreated"));
    }
    let free = [
        "replicas",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    if at(path, &["spec"]) && !free.iter().any(|key| at(path, &["spec", key])) {
        return (Effect::Replace, Some("it cannot be changed on a StatefulSet"));
    }
    (Effect::InPlace, None)
}

fn pod_change_steps(context: &ChangeContext) -> Vec<Step> {
    let ends = matches!(text(&context.body()["spec"]["restartPolicy"]), "OnFailure" | "Never");
    let facts = if ends { Facts::Ends } else { Facts::None };
    object_change_steps(context, KindId::Pod, facts, DEADLINE)
}

/// Returns the readiness. A pod with `restartPolicy: Always` is ready by its condition; any other once it has succeeded.
fn pod_ready(wait: &Await, pod: &Value) -> Readiness {
    if !pod.is_object() {
        return Readiness::progressing("not created yet");
    }
    let state = PodState(pod);
    if let Some(reason) = broken(state) {
        return Readiness::Failed(reason);
    }
    let ends = wait.facts == Facts::Ends;
    match state.phase() {
        "Succeeded" => Readiness::Ready,
        "Failed" => {
            Readiness::Failed(format!("it failed {}", text(&pod["status"]["message"])).trim().to_owned())
        }
        "Running" if state.is_ready() && !ends => Readiness::Ready,
        phase if ends => Readiness::progressing(format!("{phase}, not finished yet")),
        phase => Readiness::progressing(format!("{phase}, not ready yet")),
    }
}

fn stateful_set_ready(set: &Value) -> Readiness {
    if !set.is_object() {
        return Readiness::progressing("not created yet");
    }
    let (status, spec) = (&set["status"], &set["spec"]);
    if count(&status["observedGeneration"]) < count(&set["metadata"]["generation"]) {
        return Readiness::progressing("not yet seen by the StatefulSet controller");
    }
    let desired = spec["replicas"].as_u64().unwrap_or(1);
    // Pods of the old template stay until they are deleted by hand.
    let by_hand = spec["updateStrategy"]["type"] == "OnDelete";
    let partition = count(&spec["updateStrategy"]["rollingUpdate"]["partition"]);
    let new = if by_hand { 0 } else { desired.saturating_sub(partition) };
    for (field, least, meaning) in
        [("updatedReplicas", new, "pods of the newest template"), ("readyReplicas", desired, "pods ready")]
    {
        let have = count(&status[field]);
        if have < least {
            return Readiness::progressing(format!("{have} of {least} {meaning}"));
        }
    }
    Readiness::Ready
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::object::gvk;
    use model::resource::{Identity, ObjectId, Until};

    #[test]
    fn pods_that_end_are_ready_when_they_have_ended() {
        let readiness = |facts: Facts, status: Value| {
            let gvk = gvk("", "v1", "Pod", "pods");
            let identity = Identity::Object(ObjectId { gvk, namespace: None, name: "x".into() });
            let wait = Await { kind: KindId::Pod, identity, until: Until::Ready, facts, deadline: 1 };
            pod_ready(&wait, &json!({ "metadata": { "name": "x" }, "status": status }))
        };
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let running = json!({ "phase": "Running", "conditions": ready });
        assert_eq!(readiness(Facts::None, running.clone()), Readiness::Ready);
        assert_eq!(readiness(Facts::Ends, running), Readiness::progressing("Running, not finished yet"));
        assert_eq!(readiness(Facts::Ends, json!({ "phase": "Succeeded" })), Readiness::Ready);
        assert_eq!(
            readiness(Facts::Ends, json!({ "phase": "Failed" })),
            Readiness::Failed("it failed".into())
        );
    }

    #[test]
    fn stateful_sets_are_ready_when_every_count_matches() {
        let with = |updated: u64, ready: u64| {
            json!({ "metadata": { "generation": 1 }, "spec": { "replicas": 2 }, "status": {
                "observedGeneration": 1, "updatedReplicas": updated, "readyReplicas": ready } })
        };
        assert_eq!(stateful_set_ready(&with(2, 2)), Readiness::Ready);
        assert_eq!(stateful_set_ready(&with(2, 1)), Readiness::progressing("1 of 2 pods ready"));
        assert!(matches!(stateful_set_ready(&with(1, 2)), Readiness::Progressing(_)));
    }

    #[test]
    fn what_cannot_be_changed_is_recreated() {
        for (effect, path, expect) in [
            (pod_effect as fn(&FieldPath) -> _, "spec.containers[0].image", Effect::Replace),
            (pod_effect, "metadata.labels.a", Effect::InPlace),
            (stateful_set_effect, "spec.serviceName", Effect::Replace),
            (stateful_set_effect, "spec.replicas", Effect::InPlace),
            (stateful_set_effect, "spec.template.spec", Effect::Rolling),
        ] {
            let (found, _): (Effect, Option<&str>) = effect(&path.parse().unwrap());
            assert_eq!(found, expect, "{path}");
        }
    }
}
