//! What the built-in kinds do that their schemas do not say: a file or a row for each, and nothing about kinds
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
];

/// What a kind does about which there is no row, and a custom one.
pub const PLAIN: &Strategy = &Strategy::of("", "");

/// What that kind does, whatever its version.
pub fn strategy(group: &str, kind: &str) -> &'static Strategy {
    let mut all = ALL.iter().copied().flatten();
    all.find(|known| known.group == group && known.kind == kind).unwrap_or(PLAIN)
}
