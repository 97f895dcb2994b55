//! Kinds of Dask, the pods that they create, and their readiness.

pub mod api;
pub mod autoscaler;
pub mod check;
pub mod check_program;
pub mod cluster;
mod cron_job;
pub mod device_memory;
pub mod expiry;
pub mod group;
pub mod idle;
pub mod idle_wait;
pub mod job;
pub mod kopf;
pub mod network;
pub mod notebook;
pub mod operator;
mod parts;
pub mod pods;
pub mod process;
pub mod queued_workers;
pub mod replicas;
pub mod scale;
pub mod service;
pub mod stack_expiry;
pub mod why;
pub mod worker_count;
pub mod workers;
