//! Which nodes are whose: those of a ProvisioningRequest are for its pods only, and last for its time.

use serde_json::Value;

pub use super::super::object::consumes;
use super::super::object::{namespace, uid};
use super::round::Run;

pub const GROUP: &str = "autoscaling.x-k8s.io";
pub const RESOURCE: &str = "provisioningrequests";

/// Says of a node which request it is for, by uid, and when it ends.
pub const OWNER: &str = "sandbox.dask-infra.dev/request";
pub const ENDS: &str = "sandbox.dask-infra.dev/ends";

/// Seconds that nodes last at most, and where nothing is said.
pub const LONGEST: u64 = 604_800;

/// Of which request a pod takes nodes: by uid, nothing while there is none of that name. `None` for pods that name none.
pub fn consumed<'a>(run: &Run<'a>, pod: &Value) -> Option<&'a str> {
    let named = consumes(pod)?;
    Some(run.get(GROUP, RESOURCE, namespace(pod), named).map_or("", uid))
}
