//! Operations of GKE.

use std::time::Duration;

use serde_json::Value;

use live::{LiveApi, Request};
use model::resource::Api;

/// How long a GKE operation may take. Source: Terraform's limit for pools, raised to it after a replacement
/// took 75 minutes.
pub const OPERATION: Duration = Duration::from_secs(2 * 60 * 60);

/// Parts of a GKE path.
pub struct OperationPath<'p> {
    /// `projects/P/locations/L`.
    pub parent: String,
    pub cluster: Option<&'p str>,
}

impl<'p> OperationPath<'p> {
    pub fn parse(path: &'p str) -> Option<Self> {
        let rest = path.strip_prefix("/v1/")?;
        // A project of a domain has a colon in its name: `example.com:team`.
        let (path, last) = rest.rsplit_once('/')?;
        let last = last.split([':', '?']).next()?;
        let mut parts = path.split('/').chain([last]);
        let (projects, project) = (parts.next()?, parts.next()?);
        let (locations, location) = (parts.next()?, parts.next()?);
        if projects != "projects" || locations != "locations" {
            return None;
        }
        parts.next();
        let cluster = parts.next();
        Some(Self { parent: format!("projects/{project}/locations/{location}"), cluster })
    }
}

/// Returns an operation that is running on the cluster of a path, or exactly on the resource at `target`.
pub async fn running_operation(api: &dyn LiveApi, path: &str, target: Option<&str>) -> Option<Value> {
    let place = OperationPath::parse(path)?;
    let list = Request::get(Api::Gke, format!("/v1/{}/operations", place.parent));
    let reply = api.send(list).await.ok()?;
    let operations = reply.get("operations")?.as_array()?;
    let found = operations.iter().find(|operation| {
        let link = operation["targetLink"].as_str().unwrap_or_default();
        let hits = match (target, &place.cluster) {
            (Some(target), _) => link.ends_with(target),
            (None, Some(cluster)) => link.split('/').any(|part| part == *cluster),
            (None, None) => false,
        };
        hits && operation["status"] != "DONE"
    });
    found.cloned()
}

/// Describes what GKE does in an operation: `creating a node pool`. An unknown type is shown unchanged. Source: `Operation.Type`
/// of the API, container v1.
pub fn describe(operation: &Value) -> String {
    let known = match operation["operationType"].as_str().unwrap_or_default() {
        "CREATE_CLUSTER" => "creating the cluster",
        "DELETE_CLUSTER" => "deleting the cluster",
        "UPDATE_CLUSTER" => "updating the cluster",
        "REPAIR_CLUSTER" => "repairing the cluster",
        "RESIZE_CLUSTER" => "resizing the cluster",
        "UPGRADE_MASTER" => "upgrading the control plane",
        "UPGRADE_NODES" | "AUTO_UPGRADE_NODES" => "upgrading nodes",
        "AUTO_REPAIR_NODES" => "repairing nodes",
        "CREATE_NODE_POOL" => "creating a node pool",
        "DELETE_NODE_POOL" => "deleting a node pool",
        "SET_NODE_POOL_SIZE" => "resizing a node pool",
        "SET_NODE_POOL_MANAGEMENT" => "changing upgrades and repairs of a node pool",
        "SET_LABELS" => "changing labels",
        "SET_MASTER_AUTH" => "changing the credentials of the control plane",
        "SET_NETWORK_POLICY" => "changing the network policy",
        "SET_MAINTENANCE_POLICY" => "changing the maintenance window",
        "FLEET_FEATURE_UPGRADE" => "upgrading a feature of the fleet",
        "" => "running an operation",
        other => return format!("running {other}"),
    };
    known.to_owned()
}

/// Returns the progress of an operation as a text without its subject, which is printed beside it.
pub fn stage(status: &str) -> String {
    match status {
        "PENDING" => "GKE has not started it yet".to_owned(),
        "RUNNING" => "GKE is working on it".to_owned(),
        "ABORTING" => "GKE is aborting it".to_owned(),
        other => format!("GKE's operation is {other}"),
    }
}
