//! Kinds of Kubernetes, and what all objects of its API have in common.
//!
//! Kinds with a file of their own:
//!
//! - `namespace`, `job`, `check`, `provisioning` (ProvisioningRequest), `kueue`: sections of the stack file.
//! - `workload`: Deployments and DaemonSets; `pods_and_stateful_sets`; `conditioned_object`: CRDs, Services and every kind
//!   without a file, ready by its conditions.
//!
//! Objects from YAML:
//!
//! - `manifest`: `[manifest.NAME]`; `helm_release`: charts; `hooks`: the order of a chart's hooks.
//! - `bundle`: the objects of both, and the kinds that they may have; `controller`: the order of a controller's objects.
//!
//! Every object:
//!
//! - `calls`: the requests of a change; `ownership`: field managers and labels; `object`: identity, status, selectors.
//! - `equality`: spellings that mean the same; `keys`: rules of the API server that no schema has.
//! - `once_digest`: whether a run-once resource has changed since it was created.
//!
//! Pods:
//!
//! - `template`: a PodSpec from short keys; `pods`: the pods of a resource, and their logs; `pod_state`: the fields of a status;
//!   `pod_code`: the user's own files.
//! - `why`: why a pod does not run, and the remedy; `conditions`: readiness of kinds that are only known by their conditions.
//! - `flex_start`, `request_state`: pods that wait for nodes; `namespace_deletion`: a namespace that waits for its contents.
//! - `endpoint`: the Service, ports and pod to connect to.

pub mod bundle;
pub mod calls;
pub mod conditioned_object;
pub mod conditions;
pub mod controller;
pub mod endpoint;
pub mod equality;
pub mod flex_start;
pub mod helm_release;
pub mod hooks;
pub mod job;
pub mod kueue;
pub mod manifest;
pub mod name_rules;
pub mod namespace;
pub mod namespace_deletion;
pub mod object;
pub mod once_digest;
pub mod ownership;
pub mod pod_code;
pub mod pod_state;
pub mod pods;
pub mod pods_and_stateful_sets;
pub mod provisioning;
pub mod request_state;
pub mod template;
pub mod why;
pub mod workload;
