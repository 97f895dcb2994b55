//! Scripted faults: requests that are refused, delayed, or lost. Shortages in GKE (machines, quota) are in `gke/limits.rs`;
//! faults inside a cluster are in `kube/run`.

mod bodies;
pub mod file;
pub(super) mod layer;
pub mod mistakes;
mod rule;

pub(super) use self::bodies::Side;
pub(super) use self::rule::Script;
pub use self::rule::{DryRuns, FaultEffect, Refuse, Rule};
