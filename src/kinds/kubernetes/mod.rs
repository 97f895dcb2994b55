//! Kinds of Kubernetes, and what all objects of its API have in common.

pub mod bundle;
pub mod check;
pub mod conditions;
pub mod endpoint;
pub mod going;
pub mod helm_release;
pub mod hooks;
pub mod made;
pub mod manifest;
pub mod namespace;
pub mod object;
pub mod plain;
pub mod pod_state;
pub mod pods;
pub mod requests;
pub mod runs;
pub mod same;
pub mod why;
pub mod workload;
