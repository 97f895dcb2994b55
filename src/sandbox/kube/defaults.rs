//! What the server fills in when an object arrives.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::store::Cluster;

/// The address of the `kubernetes` Service: the first of GKE's default Service range.
pub const KUBERNETES_SERVICE_IP: &str = "34.118.224.1";

/// Defaults of a new object.
pub fn on_create(_cluster: &mut Cluster, kind: &Kind, object: &mut Value) {
    if kind.group.is_empty() && kind.kind == "Namespace" {
        object["spec"]["finalizers"] = json!(["kubernetes"]);
        object["status"]["phase"] = json!("Active");
        let name = object["metadata"]["name"].clone();
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
}
