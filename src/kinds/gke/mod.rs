//! Kinds of GKE.

pub mod cluster;
pub mod compare;
pub mod gpu_driver;
pub mod node_pool;
