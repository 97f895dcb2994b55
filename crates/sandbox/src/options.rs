//! How a sandbox is opened.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;

use super::clock::Scale;
use super::error::SandboxError;
use super::faults::Rule;
use super::faults::file::{Faults, parse};
use super::faults::mistakes::Mistakes;
use super::gke::{Quota, Stockout, operations};
use super::kube::run::Scripts;

/// The file of faults of a folder, when no other one is named.
const FAULTS: &str = "faults.toml";

/// Where the time comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's clock, and what [`Sandbox::advance`] has added to it.
    #[default]
    System,
    /// Starts at this moment and moves by [`Sandbox::advance`] only.
    Manual(Timestamp),
}

/// How to open a sandbox.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where to keep the state; in memory only when unset.
    pub dir: Option<PathBuf>,
    /// How fast time runs; 60 makes a cluster in seconds.
    pub scale: Scale,
    /// Quotas of regions and of projects.
    pub gke_quota: Quota,
    /// Scripted shortages of machines. Failures that they caused in an earlier run of the folder count.
    pub stockouts: Vec<Stockout>,
    /// Rules for requests; likewise.
    pub requests: Vec<Rule>,
    /// How long GKE's operations take, in seconds of the real service, where it is not the usual time.
    pub operation_seconds: BTreeMap<operations::Kind, f64>,
    /// True if every running cluster has the status `DEGRADED`, although it answers requests.
    pub degraded: bool,
    /// A file with more of these; without it `faults.toml` in `dir`, when there is one.
    pub faults: Option<PathBuf>,
    /// Scripted faults inside the clusters.
    pub scripts: Scripts,
    /// Where the time comes from.
    pub clock: Clock,
    /// Puts the API server of this kubeconfig, on loopback, behind the one cluster that there can be then.
    /// Only a served sandbox can.
    pub kubernetes: Option<PathBuf>,
}

/// Adds the faults of the file. The options' own values (flags) take precedence.
///
/// # Errors
/// The file cannot be read, or what is wrong with it.
pub fn join(mut options: Options) -> Result<Options, SandboxError> {
    let kept = options.dir.as_ref().map(|dir| dir.join(FAULTS)).filter(|path| path.exists());
    let Some(path) = options.faults.take().or(kept) else { return Ok(options) };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| SandboxError::io(format!("read the faults in {}", path.display()), error))?;
    let Faults { requests, stockouts, quota, default_quota, seconds, degraded, scripts } =
        parse(&text).map_err(|problems| SandboxError::Faults(Box::new(Mistakes { path, text, problems })))?;
    options.requests.extend(requests);
    options.stockouts.extend(stockouts);
    for (metric, limit) in quota {
        options.gke_quota.limits.entry(metric).or_insert(limit);
    }
    if options.gke_quota.default == Quota::default().default {
        options.gke_quota.default = default_quota.unwrap_or(options.gke_quota.default);
    }
    for (kind, time) in seconds {
        options.operation_seconds.entry(kind).or_insert(time);
    }
    options.degraded |= degraded;
    options.scripts.fail_image.extend(scripts.fail_image);
    options.scripts.cuda_fails |= scripts.cuda_fails;
    options.scripts.driver_fails |= scripts.driver_fails;
    options.scripts.no_capacity |= scripts.no_capacity;
    options.scripts.capacity.extend(scripts.capacity);
    Ok(options)
}
