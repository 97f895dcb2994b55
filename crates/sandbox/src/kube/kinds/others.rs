//! Kinds of which little is said: a row each. Sources: the `strategy.go` of each for the generation,
//! `pkg/printers/internalversion/printers.go` for columns, `pkg/apis/*/v1/defaults.go` for defaults,
//! `pkg/apis/*/validation/validation.go` for what may not change.

use serde_json::{Value, json};

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
];

/// A kind whose objects count their generation.
const fn counting(group: &'static str, kind: &'static str) -> Strategy {
    Strategy { generation: true, ..Strategy::of(group, kind) }
}

fn is_default(class: &Value) -> bool {
    class["globalDefault"] == true
}
