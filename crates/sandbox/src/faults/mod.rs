//! Faults that the sandbox was told to produce: requests that are refused, late, or lost on their way. What
//! is short in GKE (machines, quota) is in `gke/limits.rs`; what goes wrong inside a cluster in `kube/run`.

mod bodies;
pub mod file;
pub(super) mod layer;
pub mod mistakes;
mod rule;

pub(super) use self::bodies::Side;
pub(super) use self::rule::Script;
pub use self::rule::{FaultEffect, Refuse, Rule};
