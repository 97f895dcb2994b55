//! Kinds of definitions that GKE brings into every cluster, from `schemas/gke/`.

use std::sync::OnceLock;

use serde_json::Value;

use super::{Api, Schema};

/// The API group of requests for nodes.
pub const AUTOSCALING_GROUP: &str = "autoscaling.x-k8s.io";

/// The definition of ProvisioningRequests.
pub fn provisioning_crd() -> &'static Value {
    static CRD: OnceLock<Value> = OnceLock::new();
    CRD.get_or_init(|| {
        serde_json::from_str(include_str!("../../schemas/gke/provisioningrequest.json")).unwrap_or_default()
    })
}

/// Such kinds, as discovery tells them.
pub fn served_apis() -> &'static [Api] {
    static APIS: OnceLock<Vec<Api>> = OnceLock::new();
    APIS.get_or_init(|| Api::from_crd(provisioning_crd()))
}

/// The schema of such a kind in one of its versions.
pub fn served(group: &str, version: &str, kind: &str) -> Option<Schema> {
    let crd = provisioning_crd();
    if (group, kind) != (AUTOSCALING_GROUP, crd["spec"]["names"]["kind"].as_str()?) {
        return None;
    }
    let versions = crd["spec"]["versions"].as_array()?;
    let found = versions.iter().find(|found| found["name"] == version)?;
    Some(Schema::from_crd(&found["schema"]["openAPIV3Schema"]))
}
