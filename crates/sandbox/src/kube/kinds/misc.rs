//! Kinds of which little is said: a row each. Sources: the `strategy.go` of each for the generation,
//! `pkg/printers/internalversion/printers.go` for columns, `pkg/apis/*/v1/defaults.go` for defaults,
//! `pkg/apis/*/validation/validation.go` for what may not change.

use serde_json::{Value, json};

use super::super::object::{CLAIM_IN_USE, VOLUME_IN_USE, fill};
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

fn is_default(class: &Value) -> bool {
    class["globalDefault"] == true
}
