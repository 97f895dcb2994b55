//! Kinds of GKE.

pub mod api;
pub mod cluster;
pub mod compare;
pub mod enums;
pub mod field;
pub mod gpu_driver;
pub mod node_pool;
pub mod placement;
