//! dask-infra plans and applies RAPIDS and Dask on GKE. This file is the map: one line a module,
//! in layer order. A module may use those above it and never those below; `tests/it/tidy.rs`
//! checks it.

pub mod address;
pub mod catalog;
pub mod schema;
pub mod secrets;
pub mod shell;
pub mod source;

pub mod diag;

pub mod record;
pub mod resource;

pub mod kinds;
pub mod stack;

pub mod import;

pub mod plan;

pub mod live;

pub mod apply;

pub mod report;

pub mod sandbox;

pub mod cli;
