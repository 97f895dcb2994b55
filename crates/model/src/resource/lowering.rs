//! A stack after lowering, and its digest.

use std::sync::Arc;

use serde::Serialize;

use super::{CapacityOptions, External, Hourly, Owner, Resource, Target};

/// A stack as resources.
#[derive(Clone, Debug, Serialize)]
pub struct Lowered {
    /// The owner of the resources.
    pub owner: Owner,
    /// Where they are desired.
    pub target: Target,
    /// All of them, in the order of making. Plans share them: there may be ten thousand.
    pub resources: Arc<[Resource]>,
    /// Resources that others own (`manage = false`).
    pub external: Vec<External>,
    /// Node pools with `capacity`, each with all its options.
    #[serde(rename = "ladders")]
    pub capacity_options: Vec<CapacityOptions>,
    /// US dollars per hour of all nodes that there can be, list prices in us-central1; `None` when one is not known.
    pub hourly: Option<Hourly>,
}

impl Lowered {
    /// Returns a digest of all of it: where it goes and whose it is, every resource, external ones too, and every capacity
    /// option. What was agreed to is known by it.
    ///
    /// # Errors
    /// It cannot be said in JSON.
    pub fn digest(&self) -> Result<blake3::Hash, serde_json::Error> {
        Ok(blake3::hash(&serde_json::to_vec(self)?))
    }
}
