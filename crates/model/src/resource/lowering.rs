//! A stack after lowering, and its digest.

use std::sync::Arc;

use serde::Serialize;

use super::{CapacityOptions, External, Owner, Resource, Target};

/// A stack as resources.
#[derive(Clone, Debug, Serialize)]
pub struct Lowered {
    /// The owner of the resources.
    pub owner: Owner,
    /// The target of the resources.
    pub target: Target,
    /// All resources, in the order of creation. Plans share them, as there may be ten thousand.
    pub resources: Arc<[Resource]>,
    /// External resources (`manage = false`).
    pub external: Vec<External>,
    /// Node pools with `capacity`, each with all its options.
    #[serde(rename = "ladders")]
    pub capacity_options: Vec<CapacityOptions>,
}

impl Lowered {
    /// Returns a digest of everything: target, owner, all resources including external ones, and all capacity options. It
    /// identifies a stack that a user has approved.
    ///
    /// # Errors
    /// A value cannot be serialized.
    pub fn digest(&self) -> Result<blake3::Hash, serde_json::Error> {
        Ok(blake3::hash(&serde_json::to_vec(self)?))
    }
}
