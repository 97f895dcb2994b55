//! Converts Kueue's objects from v1beta1, which guides use, to v1beta2. Source: the types of both versions in Kueue 0.15.0,
//! `apis/kueue`.

use serde_json::{Value, json};

use crate::json::text;
use crate::kubernetes::kueue::{GROUP, OLDER, VERSION};

/// Returns true if an object has the older API version.
pub fn is_older(object: &Value) -> bool {
    text(&object["apiVersion"]).split_once('/') == Some((GROUP, OLDER))
}

/// Returns the fields of the older version that the newer one does not have, with the message for each.
pub fn dropped(object: &Value) -> Vec<(&'static [&'static str], &'static str)> {
    let has = |keys: &[&str]| keys.iter().try_fold(object, |value, key| value.get(*key)).is_some();
    let known: [(&'static [&'static str], &'static str); 3] = match text(&object["kind"]) {
        "ClusterQueue" => [
            (&["spec", "admissionChecks"], "written as `admissionChecksStrategy`"),
            (&["spec", "cohort"], "written as `cohortName`"),
            (&["spec", "flavorFungibility"], "`Borrow` and `Preempt` are written as `MayStopSearch`"),
        ],
        "AdmissionCheck" => {
            [(&["spec", "retryDelayMinutes"], "left out: Kueue has no such delay any more"), NONE, NONE]
        }
        _ => [NONE, NONE, NONE],
    };
    known.into_iter().filter(|(keys, _)| !keys.is_empty() && has(keys)).collect()
}

const NONE: (&[&str], &str) = (&[], "");

/// Returns the object in the newer version.
pub fn renewed(mut object: Value) -> Value {
    object["apiVersion"] = json!(format!("{GROUP}/{VERSION}"));
    let kind = text(&object["kind"]).to_owned();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return object };
    match kind.as_str() {
        "ClusterQueue" => {
            if let Some(Value::Array(checks)) = spec.remove("admissionChecks") {
                let rules: Vec<Value> = checks.iter().map(|check| json!({ "name": check })).collect();
                let strategy = spec.entry("admissionChecksStrategy").or_insert_with(|| json!({}));
                if strategy["admissionChecks"].is_null() {
                    strategy["admissionChecks"] = json!(rules);
                }
            }
            if let Some(cohort) = spec.remove("cohort") {
                spec.entry("cohortName").or_insert(cohort);
            }
            let policies = spec.get_mut("flavorFungibility").and_then(Value::as_object_mut);
            for policy in policies.into_iter().flat_map(serde_json::Map::values_mut) {
                if *policy == "Borrow" || *policy == "Preempt" {
                    *policy = json!("MayStopSearch");
                }
            }
        }
        "AdmissionCheck" => drop(spec.remove("retryDelayMinutes")),
        _ => {}
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_queue_is_written_in_the_newer_version() {
        let api = "kueue.x-k8s.io/v1beta1";
        let older = json!({
            "apiVersion": api, "kind": "ClusterQueue", "metadata": { "name": "dws-cluster-queue" },
            "spec": {
                "namespaceSelector": {}, "cohort": "a", "admissionChecks": ["dws-prov"],
                "flavorFungibility": { "whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor" },
            },
        });
        assert!(is_older(&older));
        assert_eq!(dropped(&older).len(), 3);
        let newer = renewed(older);
        let expect = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "dws-cluster-queue" },
            "spec": {
                "namespaceSelector": {}, "cohortName": "a",
                "admissionChecksStrategy": { "admissionChecks": [{ "name": "dws-prov" }] },
                "flavorFungibility": { "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor" },
            },
        });
        assert_eq!(newer, expect);
        assert!(!is_older(&newer) && dropped(&newer).iter().all(|(keys, _)| keys[1] == "flavorFungibility"));
        let check = json!({ "apiVersion": api, "kind": "AdmissionCheck", "spec": { "controllerName": "c", "retryDelayMinutes": 5 } });
        assert_eq!(dropped(&check).len(), 1);
        assert_eq!(renewed(check)["spec"], json!({ "controllerName": "c" }));
        let flavor = json!({ "apiVersion": api, "kind": "ResourceFlavor", "metadata": { "name": "f" } });
        assert!(dropped(&flavor).is_empty());
        assert_eq!(renewed(flavor)["apiVersion"], "kueue.x-k8s.io/v1beta2");
    }
}
