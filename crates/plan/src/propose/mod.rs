//! Proposes what happens to each resource, and why.

pub mod adopt;
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
