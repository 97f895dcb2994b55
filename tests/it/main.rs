//! The single test binary; each file is a group of cases.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it skipped"
)]

mod charts;
mod cli;
mod contract;
mod everyday;
mod faults;
mod golden;
mod imports;
mod kills;
mod main_job;
mod manifests;
mod of_others;
mod owners;
mod plan_cases;
mod reach;
mod real;
mod real_connect;
mod real_dask;
mod real_effects;
mod real_engine;
mod real_equality;
mod real_helm;
mod real_import;
mod real_main_job;
mod real_operator;
mod real_ownership;
mod real_scale;
mod real_smoke;
mod real_truth;
mod report_cases;
mod sandbox_clients;
mod sandbox_dask;
mod sandbox_gke;
mod sandbox_helm;
mod sandbox_kube;
mod saved_plans;
mod scale;
mod served;
mod stack_cases;
mod sweep;
mod tidy;
mod when_idle;
