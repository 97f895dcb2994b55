//! Tests with programs that `tests/real/build` builds: a control plane, the Dask operator, Kueue, Helm.

pub mod connect;
pub mod contract;
mod dask;
mod dask_idle;
mod dask_job;
mod dask_notebook;
mod dry_runs;
mod false_readiness;
mod field_effects;
mod growth;
mod helm;
mod helm_as_client;
mod import;
mod kubernetes_target;
mod main_job;
mod many_objects;
mod operator_as_client;
mod ownership;
mod queue_table;
mod queue_turns;
mod queued_nodes;
mod queues;
mod recorded_charts;
mod sandbox_equality;
mod scale;
mod smoke;
mod ttl_idle_stop;
