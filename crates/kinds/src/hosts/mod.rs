//! Kinds on hosts: Python environments, and Dask clusters as processes. The host's agent shows them as objects of a small
//! Kubernetes-like API, so they are compared, changed and recorded like objects of a cluster.

mod adaptive;
pub mod api;
pub mod cluster;
pub mod container;
pub mod environment;
pub mod files;
pub mod group;
pub mod job;
pub mod slurm;
pub mod workers;
