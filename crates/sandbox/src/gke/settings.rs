//! Settings that are not part of GKE's state but decide its answers: scripts, limits, the speed of time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::operations::Kind;
use crate::clock::Scale;

/// Settings that are not part of the state but decide its answers.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How fast time runs.
    pub scale: Scale,
    /// Quotas of regions and of projects.
    pub quota: Quota,
    /// The source of the clusters' endpoints.
    pub endpoints: Endpoints,
    /// Certificate authority of every cluster, PEM.
    pub authority: String,
    /// How many clusters there can be.
    pub cluster_limit: ClusterLimit,
    /// How long operations take, in seconds of the real service, where it is not the usual time.
    pub seconds: BTreeMap<Kind, f64>,
    /// True if every running cluster has the status `DEGRADED`, although it answers requests.
    pub degraded: bool,
}

impl Settings {
    /// When an operation of this kind that starts now will have ended.
    pub fn due(&self, kind: Kind, start: Timestamp, nodes: u32, surge: u32) -> Timestamp {
        let told = self.seconds.get(&kind).copied();
        self.scale.after(start, told.unwrap_or_else(|| kind.seconds(nodes, surge)))
    }
}

/// How many clusters there can be at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterLimit {
    /// No limit.
    #[default]
    Unlimited,
    /// One: there is one API server that can stand behind it.
    One,
}

/// Sources of a cluster's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoints {
    /// Nobody listens; a documentation address is enough.
    #[default]
    InProcess,
    /// A listener is bound outside, and [`Gke::set_endpoint`] tells where.
    Served,
}

/// Quotas of every region and of every project, by metric (`NVIDIA_T4_GPUS`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Limit of GPUs of a sort that `limits` does not name. Of everything else there is plenty.
    pub default: u32,
    /// Limits by metric.
    pub limits: BTreeMap<String, u32>,
}

/// More than anybody asks for.
const PLENTY: u32 = 1_000_000;

impl Default for Quota {
    fn default() -> Self {
        Self { default: 128, limits: BTreeMap::new() }
    }
}

impl Quota {
    pub fn limit(&self, metric: &str) -> u32 {
        let unnamed = if metric.contains("NVIDIA") { self.default } else { PLENTY };
        self.limits.get(metric).copied().unwrap_or(unnamed)
    }
}

/// The ways in which machines are bought.
pub const WAYS: [&str; 5] = ["reservation", "on-demand", "spot", "flex-start", "queued"];

/// A scripted shortage of machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stockout {
    /// Which pools, by name; `*` stands for any run of letters.
    pub pool: String,
    /// Only in this zone; everywhere when unset. `*` as above.
    pub zone: Option<String>,
    /// Only machines with this GPU; all when unset. `*` as above.
    pub gpu: Option<String>,
    /// Only this machine type; all when unset. `*` as above.
    #[serde(default)]
    pub machine: Option<String>,
    /// Only machines bought in this way, one of [`WAYS`]; all when unset.
    #[serde(default)]
    pub way: Option<String>,
    /// How many attempts fail before machines are to be had; `None` for all.
    pub times: Option<u32>,
}

impl Stockout {
    /// Every attempt of the pools that `pool` matches fails.
    pub fn forever(pool: &str) -> Self {
        Self { pool: pool.to_owned(), zone: None, gpu: None, machine: None, way: None, times: None }
    }

    /// The next `times` attempts of the pools that `pool` matches fail.
    pub fn next(pool: &str, times: u32) -> Self {
        Self { times: Some(times), ..Self::forever(pool) }
    }
}
