//! Kinds: what a section becomes, how its fields may change, when it is ready. A kind is one file.

use serde_json::Value;

use crate::resource::{Await, Effect, Query, Readiness};

/// The static description of a kind.
pub struct Kind {
    /// `node_pool`, `DaemonSet`.
    pub name: &'static str,
    /// The place in the order of making: what has a higher rank is made later and deleted earlier.
    pub rank: u32,
    /// What to read to judge readiness.
    pub queries: fn(&Await) -> Vec<Query>,
    /// Judges readiness by what the queries found, in their order; `null` is what is not there.
    pub judge: fn(&Await, &[Value]) -> Readiness,
    /// What changing a field of a Kubernetes object does; GKE kinds have their own table.
    pub effect: fn(&crate::address::FieldPath) -> (Effect, Option<&'static str>),
}

/// The kind of a name.
pub fn find(_name: &str) -> Option<&'static Kind> {
    None
}
