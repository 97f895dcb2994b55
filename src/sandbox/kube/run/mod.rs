//! The control loops of a simulated cluster. Their place only: they come with their own branch.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::store::Cluster;
use crate::sandbox::clock::Scale;

/// A node pool as the Kubernetes side sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView {
    /// The GKE NodePool as stored, JSON of the v1 API.
    pub pool: Value,
    /// How many nodes each zone must have now.
    pub target_sizes: BTreeMap<String, u32>,
    /// The pool is going away and its nodes with it.
    pub deleting: bool,
    /// What its instances' names begin with: `gke-CLUSTER-POOL-<8 hex>`.
    pub instance_prefix: String,
}

/// What goes otherwise than it should, by script.
#[derive(Clone, Debug, Default)]
pub struct Scripts {}

/// The control loops of one cluster.
#[derive(Debug, Default)]
pub struct Loops {}

impl Loops {
    /// Loops with scripted faults.
    pub fn new(_scripts: Scripts) -> Self {
        Self::default()
    }

    /// Does nothing yet.
    pub fn step(&mut self, _cluster: &mut Cluster, _pools: &[PoolView], _now: Timestamp, _clock: &Scale) {}
}
