//! Fields that answers of v1beta1 have beyond those of v1. Source: published exchanges with v1beta1.

use serde_json::{Value, json};

use super::facts::FACTS;
use super::path::ClusterId;
use super::requests::Surface;
use crate::kube::object::{fill, text};

/// Adds to a Cluster message what its surface shows.
pub(super) fn cluster(body: &mut Value, id: &ClusterId, surface: Surface) {
    if surface == Surface::V1 {
        return;
    }
    fill(body, &FACTS.v1beta1);
    let telemetry = json!({ "type": telemetry(body) });
    fill(&mut body["clusterTelemetry"], &telemetry);
    let namespace = text(body, "/workloadIdentityConfig/workloadPool").to_owned();
    if !namespace.is_empty() {
        let provider = format!(
            "https://container.googleapis.com/v1/projects/{}/locations/{}/clusters/{}",
            id.project, id.location, id.name
        );
        fill(
            &mut body["workloadIdentityConfig"],
            &json!({ "identityNamespace": namespace, "identityProvider": provider }),
        );
    }
}

/// Adds to a NodePool message what its surface shows.
pub(super) fn pool(body: &mut Value, surface: Surface) {
    let metadata = match text(body, "/config/workloadMetadataConfig/mode") {
        _ if surface == Surface::V1 => return,
        "GKE_METADATA" => "GKE_METADATA_SERVER",
        "GCE_METADATA" => "EXPOSE",
        _ => return,
    };
    fill(&mut body["config"]["workloadMetadataConfig"], &json!({ "nodeMetadata": metadata }));
}

/// Both services on, both off, or something between.
fn telemetry(body: &Value) -> &'static str {
    let workloads = body
        .pointer("/loggingConfig/componentConfig/enableComponents")
        .and_then(Value::as_array)
        .is_some_and(|names| names.iter().any(|name| name == "WORKLOADS"));
    match (text(body, "/loggingService"), text(body, "/monitoringService")) {
        ("none", "none") => "DISABLED",
        _ if workloads => "ENABLED",
        _ => "SYSTEM_ONLY",
    }
}
