//! The single test binary; each file is a group of cases.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it skipped"
)]

mod arithmetic;
mod autopilot;
mod booked;
mod canary;
mod cli;
mod comparison;
mod contract;
mod days;
mod docs_blocks;
mod everyday;
mod faults;
mod faulty;
mod first_cluster;
mod first_hour;
mod given;
mod gke_keys;
mod google;
mod growth;
mod guide;
mod halted;
mod held;
mod host_agent;
mod host_faults;
mod host_upkeep;
mod host_workers;
mod hostile;
mod imports;
mod kept_charts;
mod kills;
mod ladder;
mod limits;
mod main_job;
mod manifests;
mod many;
mod network;
mod of_others;
mod off;
mod once;
mod oracle;
mod own_controllers;
mod owners;
mod plans;
mod progress;
mod props;
mod queues;
mod races;
mod reach;
mod real;
mod real_adapted;
mod real_anywhere;
mod real_connect;
mod real_containers;
mod real_dask;
mod real_dask_idle;
mod real_dask_job;
mod real_dask_notebook;
mod real_effects;
mod real_engine;
mod real_equality;
mod real_helm;
mod real_hosts;
mod real_hosts_import;
mod real_import;
mod real_login;
mod real_main_job;
mod real_moves;
mod real_operator;
mod real_ownership;
mod real_queued;
mod real_queues;
mod real_scale;
mod real_scheduler_job;
mod real_slurm;
mod real_smoke;
mod real_ssh;
mod real_tls;
mod real_truth;
mod real_turns;
mod real_versions;
mod reaper;
mod reports;
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
mod second_user;
mod served;
mod stacks;
mod stale;
mod sweep;
mod tidy;
mod told;
mod trust;
mod untrusted;
mod waiting;
mod walkthrough;
mod when_idle;
mod why;

// Cases, also for tests that look at all of them.
#[path = "../by_case/charts.rs"]
mod charts;
#[path = "../by_case/golden.rs"]
mod golden;
#[path = "../by_case/overlay.rs"]
mod overlay;
#[path = "../by_case/page.rs"]
mod page;
#[path = "../by_case/planned.rs"]
mod planned;
#[path = "../by_case/world.rs"]
mod world;
