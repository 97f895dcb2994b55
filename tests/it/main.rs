//! The single test binary; each file is a group of cases.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it skipped"
)]

mod arithmetic;
mod canary;
mod charts;
mod cli;
mod comparison;
mod contract;
mod everyday;
mod faults;
mod faulty;
mod first_cluster;
mod first_hour;
mod given;
mod gke_keys;
mod golden;
mod google;
mod growth;
mod hostile;
mod imports;
mod kills;
mod main_job;
mod manifests;
mod many;
mod network;
mod of_others;
mod once;
mod oracle;
mod owners;
mod plan_cases;
mod preflight;
mod progress;
mod props;
mod races;
mod reach;
mod real;
mod real_connect;
mod real_dask;
mod real_dask_idle;
mod real_dask_job;
mod real_dask_notebook;
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
mod resumed;
mod sandbox_clients;
mod sandbox_dask;
mod sandbox_folder;
mod sandbox_gcloud;
mod sandbox_gke;
mod sandbox_helm;
mod sandbox_intents;
mod sandbox_kube;
mod sandbox_token;
mod saved_plans;
mod scale;
mod served;
mod stack_cases;
mod stale;
mod sweep;
mod tidy;
mod trust;
mod walkthrough;
mod when_idle;
mod why;
