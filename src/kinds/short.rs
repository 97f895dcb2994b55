//! Values with a short form and a full one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// GPUs of a node pool: `"nvidia-tesla-t4"`, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// The accelerator's type as GKE names it: `nvidia-tesla-t4`.
    pub r#type: String,
    /// GPUs a node; `None` means what the machine type fixes, else 1.
    pub count: Option<u32>,
    /// Several pods on one GPU.
    pub sharing: Option<Sharing>,
    /// The size of a partition (MIG): `1g.5gb`.
    pub partition: Option<String>,
}

/// How several pods share one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// `time-sharing` or `mps`.
    pub strategy: SharingStrategy,
    /// Pods on one GPU at most.
    #[schemars(range(min = 2, max = 48))]
    pub clients: u32,
}

/// The way of sharing a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharingStrategy {
    /// Pods take turns.
    TimeSharing,
    /// NVIDIA's Multi-Process Service.
    Mps,
}

/// The size of a node pool: a number, or limits to autoscale between. Both count all zones together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// As many as this.
    Fixed(u32),
    /// GKE's autoscaler is the writer of the number.
    Autoscaled {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
}

impl Default for Nodes {
    fn default() -> Self {
        Self::Fixed(1)
    }
}
