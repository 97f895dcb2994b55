//! GKE's control plane: clusters, node pools, operations. Pure: every entry takes the time, and the same
//! calls at the same times give the same answers.
//!
//! The imitation comes from published exchanges and the API's own description; what is from memory
//! says so where it stands.

mod autopilot;
mod beta;
mod checks;
mod clusters;
mod compute;
mod defaults;
mod derived_fields;
pub mod errors;
mod facts;
mod ids;
pub mod limits;
mod lists;
mod machines;
pub mod operations;
pub mod path;
mod places;
mod pools;
mod quotas;
mod requests;
mod settings;
pub mod shape;
mod state;
#[cfg(test)]
mod tests;
mod tick;
mod update;
mod versions;

pub use self::path::ClusterId;
pub use self::requests::{Reply, Request};
pub use self::settings::{ClusterLimit, Endpoints, Quota, Settings, Stockout};
pub use self::state::{Cluster, Gke};
