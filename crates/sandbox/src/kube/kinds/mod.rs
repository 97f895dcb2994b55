//! Behavior of the built-in kinds that their schemas do not have: a file or a row for each, and nothing about kinds
//! anywhere else. A kind without a row is stored, listed and watched like any other.

mod admission;
mod apps;
mod batch;
mod config;
pub mod definition;
mod event;
pub mod namespace;
mod node;
mod others;
mod pod;
mod pod_spec;
mod rbac;
mod review;
pub mod service;
mod storage;

use super::strategy::Strategy;

const ALL: &[&[Strategy]] = &[
    apps::STRATEGIES,
    batch::STRATEGIES,
    config::STRATEGIES,
    definition::STRATEGIES,
    event::STRATEGIES,
    namespace::STRATEGIES,
    node::STRATEGIES,
    others::STRATEGIES,
    pod::STRATEGIES,
    rbac::STRATEGIES,
    review::STRATEGIES,
    service::STRATEGIES,
    storage::STRATEGIES,
];

/// The strategy of custom kinds and of built-in kinds without a row.
pub const PLAIN: &Strategy = &Strategy::of("", "");

/// Returns the strategy of a kind, whatever its version.
pub fn strategy(group: &str, kind: &str) -> &'static Strategy {
    let mut all = ALL.iter().copied().flatten();
    all.find(|known| known.group == group && known.kind == kind).unwrap_or(PLAIN)
}
