//! All tests but those of cases, in one binary: a folder for each thing that they need.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it skipped"
)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod clients;
mod control_plane;
mod hosts;
mod props;
mod pure;
mod real;
mod sandbox;
mod sandbox_server;

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
