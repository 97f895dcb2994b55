//! Operations of GKE.

use std::time::Duration;

use serde_json::Value;

use crate::live::{LiveApi, Request};
use crate::resource::Api;

/// How long a GKE operation may take. Source: Terraform's limit for pools, raised to it after a replacement
/// took 75 minutes.
pub const OPERATION: Duration = Duration::from_secs(2 * 60 * 60);

/// Parts of a GKE path.
pub struct Places<'p> {
    /// `projects/P/locations/L`.
    pub parent: String,
    pub cluster: Option<&'p str>,
}

impl<'p> Places<'p> {
    pub fn of(path: &'p str) -> Option<Self> {
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

/// A running operation on the cluster of a path, or on exactly the thing at `target`.
pub async fn running_operation(api: &dyn LiveApi, path: &str, target: Option<&str>) -> Option<Value> {
    let places = Places::of(path)?;
    let list = Request::get(Api::Gke, format!("/v1/{}/operations", places.parent));
    let reply = api.send(list).await.ok()?;
    let operations = reply.get("operations")?.as_array()?;
    let found = operations.iter().find(|operation| {
        let link = operation["targetLink"].as_str().unwrap_or_default();
        let hits = match (target, &places.cluster) {
            (Some(target), _) => link.ends_with(target),
            (None, Some(cluster)) => link.split('/').any(|part| part == *cluster),
            (None, None) => false,
        };
        hits && operation["status"] != "DONE"
    });
    found.cloned()
}
