//! The embedded GKE and Kubernetes.
