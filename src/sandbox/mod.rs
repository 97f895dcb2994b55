//! The embedded GKE and Kubernetes.

pub mod kube;
