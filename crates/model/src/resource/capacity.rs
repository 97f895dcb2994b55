//! `capacity`: the options to get the machines of a node pool, and the fallback from one option to the next.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Identity, Step};

/// The options of a pool, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityOptions {
    pub identity: Identity,
    /// At least one.
    #[serde(rename = "ways")]
    pub options: Vec<CapacityOption>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityOption {
    /// The provisioning model: `spot`, `reservation r`.
    #[serde(rename = "by")]
    pub capacity: String,
    /// The zone that it is tried in, if it is tried zone by zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The desired body of the node pool with this option.
    pub body: Value,
}

impl CapacityOption {
    /// Returns the name that people read: `spot in us-central1-a`. No two options of a pool have the same name.
    pub fn name(&self) -> String {
        match &self.zone {
            Some(zone) => format!("{} in {zone}", self.capacity),
            None => self.capacity.clone(),
        }
    }
}

/// The options that a change tries one after another when no machines are available for its steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fallback {
    /// The option that the steps of the change try.
    pub first: String,
    /// The options after it, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<FallbackStep>,
    /// Steps after the last option has failed: they delete the pool.
    #[serde(rename = "last")]
    pub cleanup: Vec<Step>,
}

/// An option and its steps. They first delete the pool of the previous option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FallbackStep {
    #[serde(rename = "way")]
    pub option: String,
    pub steps: Vec<Step>,
}
