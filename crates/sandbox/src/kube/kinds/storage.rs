//! Claims, volumes and storage classes. Sources: `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation/validation.go`,
//! `pkg/apis/storage/validation/validation.go`.

use serde_json::{Value, json};

use super::super::object::{BOUND, CLAIM_IN_USE, VOLUME_IN_USE, fill, milli};
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
        validate_update: validate_claim_update,
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

/// Fields of a claim that may change: once it is bound what it asks for and its class of volume attributes, and a volume or a class that
/// it did not have. It grows only, but for an expansion that failed. Source: `ValidatePersistentVolumeClaimUpdate`, 1.36.
fn validate_claim_update(live: &Value, claim: &Value, causes: &mut Vec<Cause>) {
    const REQUESTS: &str = "/spec/resources/requests";
    const REQUESTS_OF_SPEC: &str = "/resources/requests";
    let is_bound = live["status"]["phase"] == BOUND;
    let fixed = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        if let Some(requests) = spec.pointer_mut(REQUESTS_OF_SPEC) {
            // One amount has several texts.
            *requests = if is_bound { Value::Null } else { json!(milli(requests, "storage")) };
        }
        if let Some(fields) = spec.as_object_mut() {
            if is_bound {
                fields.remove("volumeAttributesClassName");
            }
            fields.retain(|field, _| {
                !(["volumeName", "storageClassName"].contains(&field.as_str())
                    && live["spec"][field].is_null())
            });
        }
        spec
    };
    if fixed(live) != fixed(claim) {
        let message = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", message));
    }
    let size = |resources: &Value| milli(resources, "storage");
    let requested = |claim: &Value| claim.pointer(REQUESTS).map_or(0, size);
    let (before, after) = (requested(live), requested(claim));
    let capacity = live.pointer("/status/capacity").map_or(0, size);
    if after < before && after <= capacity {
        causes.push(Cause::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(storage: &str, capacity: &str, mode: &str) -> Value {
        let bound = json!({"phase": BOUND, "capacity": {"storage": capacity}});
        json!({
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": storage}}},
            "status": if capacity.is_empty() { json!({"phase": "Pending"}) } else { bound },
        })
    }

    /// Before, after, and the fields that are refused.
    #[test]
    fn a_claim_grows_only() {
        let of = |storage, capacity| claim(storage, capacity, "ReadWriteOnce");
        let cases = [
            (of("10Gi", "10Gi"), of("20Gi", "10Gi"), vec![]),
            (of("10Gi", ""), of("20Gi", ""), vec!["spec"]),
            (of("1Gi", ""), of("1024Mi", ""), vec![]),
            (of("10Gi", "10Gi"), of("5Gi", "10Gi"), vec!["spec.resources.requests.storage"]),
            (of("10Gi", ""), of("5Gi", ""), vec!["spec"]),
            // An expansion that failed.
            (of("20Gi", "10Gi"), of("15Gi", "10Gi"), vec![]),
            (of("10Gi", ""), claim("10Gi", "", "ReadWriteMany"), vec!["spec"]),
        ];
        for (before, after, refused) in cases {
            let mut causes = Vec::new();
            validate_claim_update(&before, &after, &mut causes);
            let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
            assert_eq!(fields, refused, "{before} {after}");
        }
    }
}
