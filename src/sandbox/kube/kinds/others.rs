//! Kinds of which little is said: a row each. Sources: the `strategy.go` of each for the generation,
//! `pkg/printers/internalversion/printers.go` for columns, `pkg/apis/*/v1/defaults.go` for defaults,
//! `pkg/apis/*/validation/validation.go` for what may not change.

use serde_json::{Value, json};

use super::super::object::{CLAIM_IN_USE, VOLUME_IN_USE, fill};
use super::super::run::quantity::milli;
use super::super::status::Cause;
use super::super::strategy::Cell::{Of, Text};
use super::super::strategy::{AGE, Column, NAME, Selectable, Strategy, column, number, put};
use super::pod_spec;

const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const NETWORKING: &str = "networking.k8s.io";

pub const STRATEGIES: &[Strategy] = &[
    counting(ADMISSION, "MutatingWebhookConfiguration"),
    counting(ADMISSION, "ValidatingAdmissionPolicy"),
    counting(ADMISSION, "ValidatingAdmissionPolicyBinding"),
    counting(ADMISSION, "ValidatingWebhookConfiguration"),
    counting(FLOW, "FlowSchema"),
    counting(FLOW, "PriorityLevelConfiguration"),
    counting(NETWORKING, "Ingress"),
    counting(NETWORKING, "IngressClass"),
    counting(NETWORKING, "NetworkPolicy"),
    counting("policy", "PodDisruptionBudget"),
    Strategy { selectable: Selectable::These(&["status.replicas"]), ..counting("", "ReplicationController") },
    // A custom resource, whose definition holds each field of the spec fast.
    Strategy {
        immutable: &["/spec/podSets", "/spec/provisioningClassName", "/spec/parameters"],
        ..counting("autoscaling.x-k8s.io", "ProvisioningRequest")
    },
    Strategy {
        defaults: |object| pod_spec::template(object, "/template"),
        ..Strategy::of("", "PodTemplate")
    },
    Strategy {
        zero: || json!({"spec": {"resources": {}}, "status": {}}),
        defaults: |claim| put(&mut claim["spec"], "volumeMode", json!("Filesystem")),
        // The finalizer is that of the admission plugin `storageobjectinuseprotection`.
        prepare_for_create: |_, claim| {
            put(&mut claim["metadata"], "finalizers", json!([CLAIM_IN_USE]));
            fill(&mut claim["status"], &json!({"phase": "Pending"}));
        },
        validate_update: claim_update,
        ..Strategy::of("", "PersistentVolumeClaim")
    },
    Strategy {
        zero: || json!({"spec": {}, "status": {}}),
        defaults: |volume| {
            let spec = &mut volume["spec"];
            put(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
            put(spec, "volumeMode", json!("Filesystem"));
        },
        prepare_for_create: |_, volume| {
            put(&mut volume["metadata"], "finalizers", json!([VOLUME_IN_USE]));
            fill(&mut volume["status"], &json!({"phase": "Pending"}));
        },
        ..Strategy::of("", "PersistentVolume")
    },
    Strategy {
        defaults: |autoscaler| put(&mut autoscaler["spec"], "minReplicas", json!(1)),
        ..Strategy::of("autoscaling", "HorizontalPodAutoscaler")
    },
    Strategy {
        selectable: Selectable::These(&["spec.signerName"]),
        ..Strategy::of("certificates.k8s.io", "CertificateSigningRequest")
    },
    Strategy {
        columns: &[NAME, column("Holder", Text("/spec/holderIdentity")), AGE],
        zero: || json!({"spec": {}}),
        ..Strategy::of("coordination.k8s.io", "Lease")
    },
    Strategy {
        columns: &[
            NAME,
            number("Value", "/value"),
            Column { ty: "boolean", ..column("Global-Default", Of(|class| is_default(class).to_string())) },
            AGE,
            column("PreemptionPolicy", Text("/preemptionPolicy")),
        ],
        defaults: |class| put(class, "preemptionPolicy", json!("PreemptLowerPriority")),
        immutable: &["/value", "/preemptionPolicy"],
        ..counting("scheduling.k8s.io", "PriorityClass")
    },
    Strategy {
        immutable: &["/parameters", "/provisioner", "/reclaimPolicy", "/volumeBindingMode"],
        ..Strategy::of("storage.k8s.io", "StorageClass")
    },
];

/// A kind whose objects count their generation.
const fn counting(group: &'static str, kind: &'static str) -> Strategy {
    Strategy { generation: true, ..Strategy::of(group, kind) }
}

/// Source: `ValidatePersistentVolumeClaimUpdate`, of a claim that is bound: nothing binds claims here, and on GKE they are.
fn claim_update(live: &Value, object: &Value, causes: &mut Vec<Cause>) {
    let fixed = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("volumeAttributesClassName");
            // The binder writes it.
            if live["spec"]["volumeName"].is_null() {
                fields.remove("volumeName");
            }
        }
        if let Some(resources) = spec["resources"].as_object_mut() {
            resources.remove("requests");
        }
        spec
    };
    if fixed(live) != fixed(object) {
        let what = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", what));
    }
    let storage = |claim: &Value| milli(&claim["spec"]["resources"]["requests"]["storage"]);
    if storage(object) < storage(live) {
        let what = "field can not be less than status.capacity";
        causes.push(Cause::forbidden("spec.resources.requests.storage", what));
    }
}

fn is_default(class: &Value) -> bool {
    class["globalDefault"] == true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_grows_and_is_otherwise_as_it_was() {
        let claim = |size: &str, mode: &str| json!({"spec": {"accessModes": [mode], "resources": {"requests": {"storage": size}}}});
        let live = claim("10Gi", "ReadWriteOnce");
        for (object, refused) in [
            (claim("10240Mi", "ReadWriteOnce"), 0),
            (claim("20Gi", "ReadWriteOnce"), 0),
            (claim("9Gi", "ReadWriteOnce"), 1),
            (claim("10Gi", "ReadWriteMany"), 1),
            (claim("1Gi", "ReadWriteMany"), 2),
        ] {
            let mut causes = Vec::new();
            claim_update(&live, &object, &mut causes);
            assert_eq!(causes.len(), refused, "{object}");
        }
    }
}
