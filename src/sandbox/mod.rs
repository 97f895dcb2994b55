//! The embedded GKE and Kubernetes.

pub mod clock;
pub mod kube;
