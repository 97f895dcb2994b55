//! Claims, volumes and storage classes. Sources: `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation/validation.go`,
//! `pkg/apis/storage/validation/validation.go`.

use serde_json::{Value, json};

use super::super::object::{CLAIM_IN_USE, VOLUME_IN_USE, fill};
use super::super::quantity;
use super::super::status::Cause;
use super::super::strategy::{Strategy, put};

pub const STRATEGIES: &[Strategy] = &[
    Strategy {
        zero: || json!({"spec": {"resources": {}}, "status": {}}),
        defaults: |claim| put(&mut claim["spec"], "volumeMode", json!("Filesystem")),
        // The finalizer is that of the admission plugin `storageobjectinuseprotection`.
        prepare_for_create: |_, claim| {
            put(&mut claim["metadata"], "finalizers", json!([CLAIM_IN_USE]));
            fill(&mut claim["status"], &json!({"phase": "Pending"}));
        },
        validate_update: claim,
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
        immutable: &["/parameters", "/provisioner", "/reclaimPolicy", "/volumeBindingMode"],
        ..Strategy::of("storage.k8s.io", "StorageClass")
    },
];

/// Fields of a claim that may change: what it asks for once it is bound, and its class of volume attributes. It grows only, but
/// for an expansion that failed. Source: `ValidatePersistentVolumeClaimUpdate`, 1.36.
fn claim(live: &Value, claim: &Value, causes: &mut Vec<Cause>) {
    const REQUESTS: &str = "/spec/resources/requests";
    let is_bound = live["status"]["phase"] == "Bound";
    let fixed = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("volumeAttributesClassName");
            if live["spec"]["volumeName"].is_null() {
                fields.remove("volumeName");
            }
        }
        if let Some(requests) = spec.pointer_mut("/resources/requests").filter(|_| is_bound) {
            *requests = Value::Null;
        }
        spec
    };
    if fixed(live) != fixed(claim) {
        let message = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", message));
    }
    let size =
        |resources: Option<&Value>| resources.map_or(0, |resources| quantity::of(resources, "storage"));
    let (before, after) = (size(live.pointer(REQUESTS)), size(claim.pointer(REQUESTS)));
    if after < before && after <= size(live.pointer("/status/capacity")) {
        causes.push(Cause::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
}
