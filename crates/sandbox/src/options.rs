//! The options of a sandbox.

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

/// The default name of the faults file in a sandbox folder.
const FAULTS: &str = "faults.toml";

/// The source of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's clock, plus the time that [`Sandbox::advance`] has added.
    #[default]
    System,
    /// Starts at this moment and moves by [`Sandbox::advance`] only.
    Manual(Timestamp),
}

/// The options with which a sandbox is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The folder of the state; if unset, the state is only in memory.
    pub dir: Option<PathBuf>,
    /// The speed of time; 60 creates a cluster in seconds.
    pub scale: Scale,
    /// The quotas of every region and every project.
    pub gke_quota: Quota,
    /// Scripted shortages of machines. Failures in earlier runs of the folder count.
    pub stockouts: Vec<Stockout>,
    /// Scripted faults of requests. Failures in earlier runs of the folder count.
    pub requests: Vec<Rule>,
    /// The durations of GKE's operations that differ from the usual ones, in seconds of the real service.
    pub operation_seconds: BTreeMap<operations::Kind, f64>,
    /// True if every running cluster has the status `DEGRADED`, although it answers requests.
    pub degraded: bool,
    /// A file with more of these faults; if unset, `faults.toml` in `dir`, if it exists.
    pub faults: Option<PathBuf>,
    /// Scripted faults inside the clusters.
    pub scripts: Scripts,
    /// The source of the time.
    pub clock: Clock,
    /// The kubeconfig of a real API server on loopback, which becomes the API server of the cluster. There can be only one
    /// cluster then. Only for a served sandbox.
    pub kubernetes: Option<PathBuf>,
}

/// Adds the faults of the faults file. The options' own values (from flags) take precedence.
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
