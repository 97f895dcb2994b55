//! Proposes what happens to each resource, and why.
//!
//! The three steps of every plan:
//!
//! - `select`: what `--target` and `--exclude` leave of it; `target_check`: the target is that of the last apply.
//! - `desired`: a change for each resource of the file; `external`: the ones with `manage = false`, read and compared.
//! - `prune`: deletes of what the file no longer has; `impact`: what a server deletes with them, foreign objects included.
//!
//! Rules of single kinds, which the steps call:
//!
//! - `adopt`: a plan that adopts foreign resources, and nothing else.
//! - `code`: the user's own files, which follow what uses them.
//! - `crds`: fields and versions that a changed CRD no longer has.
//! - `dask`: worker counts, jobs that run once, what is deleted with a Dask cluster.
//! - `hosts`: workers, host names and certificates on hosts.
//! - `kueue`: foreign work in queues that are deleted.
//! - `fallback`: the capacity option of a node pool; `zones`: its number of nodes by zone; `node_pods`: the Pods on its nodes.
//!
//! Provisioning requests ask GKE for all nodes at once. Three modules plan them:
//!
//! - `provisioning`: a request and its consumer stop and start together.
//! - `provisioned_workers`: requests that `capacity = "queued"` makes for Dask workers follow the change of these workers.
//! - `queued_provisioning`: pools that serve requests: what a pool loses when it becomes one, and which requests wait for a
//!   deleted one.

pub mod adopt;
pub(crate) mod code;
pub(crate) mod crds;
pub(crate) mod dask;
pub(crate) mod desired;
pub mod external;
pub mod fallback;
pub(crate) mod hosts;
pub mod impact;
pub(crate) mod kueue;
pub(crate) mod node_pods;
pub(crate) mod provisioned_workers;
pub(crate) mod provisioning;
pub(crate) mod prune;
pub(crate) mod queued_provisioning;
pub mod select;
pub(crate) mod target_check;
pub(crate) mod zones;
