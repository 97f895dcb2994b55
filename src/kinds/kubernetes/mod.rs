//! Kinds of Kubernetes, and what all objects of its API have in common.

pub mod bundle;
pub mod check;
pub mod conditions;
pub mod dask_sum;
pub mod endpoint;
pub mod going;
pub mod helm_release;
pub mod hooks;
pub mod job;
pub mod kueue;
pub mod machines;
pub mod made;
pub mod manifest;
pub mod namespace;
pub mod object;
pub mod plain;
pub mod pod_state;
pub mod pods;
pub mod provisioning;
pub mod request_stage;
pub mod requests;
pub mod runs;
pub mod same;
pub mod template;
pub mod why;
pub mod workload;
