//! What is short: places for operations, GPU quota, machines.

use std::collections::BTreeMap;

use serde_json::Value;

use super::errors::{Code, Refusal};
use super::ids::hex;
use super::machines;
use super::operations::Scope;
use super::path::ClusterId;
use super::places;
use super::settings::{Quota, Stockout};
use super::state::{Cluster, Gke, Pool};
use crate::catalog;
use crate::sandbox::kube::run::glob;

/// Operations that one cluster runs at a time; seen in threads of 2023.
const CONCURRENT_OPERATIONS: usize = 5;

/// Whether a zone of a shortage exists; a pattern need not.
pub fn check_zone(zone: &str) -> Result<(), String> {
    if zone.contains('*') || (places::is_zone(zone) && places::exists(zone)) {
        return Ok(());
    }
    let near = catalog::suggest_zone(zone).map(|near| format!("; did you mean `{near}`?"));
    Err(format!("`{zone}` is no zone{}", near.unwrap_or_default()))
}

/// Whether a GPU of a shortage exists; a pattern need not.
pub fn check_gpu(gpu: &str) -> Result<(), String> {
    if gpu.contains('*') || catalog::accelerator(gpu).is_some() {
        return Ok(());
    }
    let near = catalog::suggest_accelerator(gpu).map(|near| format!("; did you mean `{near}`?"));
    Err(format!("`{gpu}` is no GPU{}", near.unwrap_or_default()))
}

/// Whether there is such a quota.
pub fn check_metric(metric: &str) -> Result<(), String> {
    let of = |spot| catalog::accelerators().filter_map(move |gpu| machines::quota_metric(&gpu.kind, spot));
    if of(false).chain(of(true)).any(|known| known == metric) {
        return Ok(());
    }
    let all: std::collections::BTreeSet<String> = of(false).collect();
    let all: Vec<String> = all.into_iter().collect();
    Err(format!("`{metric}` is no quota of GPUs; there are {} and those of spot machines", all.join(", ")))
}

/// Whether a scripted shortage keeps the pool's missing machines away; counts the attempt. The text is what
/// the pool, its condition and the operation say.
pub(super) fn shortage(
    stockouts: &[(String, Stockout)],
    met: &mut BTreeMap<String, u32>,
    id: &ClusterId,
    pool: &Pool,
) -> Option<String> {
    let mut lines = Vec::new();
    for (zone, wanted) in &pool.sizes {
        let present = pool.present.get(zone).copied().unwrap_or_default();
        if present >= *wanted {
            continue;
        }
        let scripted = stockouts.iter().find(|(name, stockout)| {
            let so_far = met.get(name).copied().unwrap_or_default();
            covers(stockout, pool, zone) && stockout.times.is_none_or(|times| so_far < times)
        });
        let Some((name, _)) = scripted else { continue };
        let so_far = met.entry(name.clone()).or_default();
        *so_far = so_far.saturating_add(1);
        lines.push(stockout_text(id, pool, zone, *wanted, present));
    }
    match lines.as_slice() {
        [] => None,
        [line] => Some(line.clone()),
        _ => Some(
            lines
                .iter()
                .enumerate()
                .map(|(at, line)| format!("({}) {line}", at + 1))
                .collect::<Vec<_>>()
                .join(" "),
        ),
    }
}

/// Whether a shortage is about machines of this pool in this zone.
fn covers(stockout: &Stockout, pool: &Pool, zone: &str) -> bool {
    let mut types = pool.body["config"]["accelerators"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["acceleratorType"].as_str());
    glob(&stockout.pool, &pool.name)
        && stockout.zone.as_ref().is_none_or(|only| glob(only, zone))
        && stockout.gpu.as_ref().is_none_or(|only| types.any(|gpu| glob(only, gpu)))
}

fn stockout_text(id: &ClusterId, pool: &Pool, zone: &str, wanted: u32, present: u32) -> String {
    let missing = wanted - present;
    format!(
        "Google Compute Engine: Not all instances running in IGM after 1m6.2s. Expected {wanted}, running \
         {present}, transitioning {missing}. Current errors: [GCE_STOCKOUT]: Instance '{}-{}' creation failed: \
         The zone 'projects/{}/zones/{zone}' does not have enough resources available to fulfill the request.  \
         '(resource type:compute)'.",
        pool.prefix,
        hex(&[&pool.prefix, zone], 4),
        id.project,
    )
}

/// Metric and number of GPUs of one node of a NodePool message.
fn gpus(body: &Value) -> Vec<(String, u32)> {
    let preemptible = ["spot", "preemptible"].iter().any(|key| body["config"][key] == true);
    let entries = body["config"]["accelerators"].as_array().into_iter().flatten();
    entries
        .filter_map(|entry| {
            let metric = machines::quota_metric(entry["acceleratorType"].as_str()?, preemptible)?;
            Some((metric, entry["acceleratorCount"].as_str()?.parse().ok()?))
        })
        .collect()
}

impl Gke {
    /// Refuses when an operation on `scope` cannot start now.
    pub(super) fn admit(&self, id: &ClusterId, scope: &Scope) -> Result<(), Refusal> {
        let running: Vec<_> =
            self.operations.values().filter(|op| op.is_running() && op.cluster == *id).collect();
        let blocker = running.iter().find(|op| match (&op.scope, scope) {
            (Scope::Pool(one), Scope::Pool(other)) => one == other,
            _ => true,
        });
        if let Some(operation) = blocker {
            return Err(Refusal::busy(&operation.name));
        }
        if running.len() >= CONCURRENT_OPERATIONS {
            return Err(Refusal::new(
                Code::ResourceExhausted,
                format!(
                    "Too many operations: cluster \"{}\" hits the concurrent operations quota \
                     {CONCURRENT_OPERATIONS}, please try again later.",
                    id.name
                ),
            ));
        }
        Ok(())
    }

    /// Refuses when the project has too few GPUs left in the region for `nodes` more nodes of each pool.
    pub(super) fn check_quota(
        &self,
        id: &ClusterId,
        wanted: &[(&Value, u32)],
        quota: &Quota,
    ) -> Result<(), Refusal> {
        let mut requested: BTreeMap<String, u32> = BTreeMap::new();
        for (body, nodes) in wanted {
            for (metric, count) in gpus(body) {
                *requested.entry(metric).or_default() += count * nodes;
            }
        }
        let used = self.gpus_in_use(&id.project, places::region(&id.location));
        let mut lines = Vec::new();
        for (metric, requested) in requested {
            let limit = quota.limit(&metric);
            let available = limit.saturating_sub(used.get(&metric).copied().unwrap_or_default());
            if requested > available {
                lines.push(format!(
                    "nsufficient regional quota to satisfy request: resource \"{metric}\": request requires \
                     '{requested}.0' and is short '{}.0'. project has a quota of '{limit}.0' with \
                     '{available}.0' available. View and manage quotas at \
                     https://console.cloud.google.com/iam-admin/quotas?usage=USED&project={}.",
                    requested - available,
                    id.project
                ));
            }
        }
        let text = match lines.as_slice() {
            [] => return Ok(()),
            [line] => format!("I{line}"),
            _ => {
                let numbered = lines.iter().enumerate().map(|(at, line)| format!("({}) i{line}", at + 1));
                numbered.collect::<Vec<_>>().join(" ")
            }
        };
        Err(Refusal::new(Code::PermissionDenied, text))
    }

    fn gpus_in_use(&self, project: &str, region: &str) -> BTreeMap<String, u32> {
        let mut used = BTreeMap::new();
        let here = |cluster: &&Cluster| {
            cluster.id.project == project && places::region(&cluster.id.location) == region
        };
        for pool in self.clusters.values().filter(here).flat_map(|cluster| &cluster.pools) {
            let nodes: u32 = pool.sizes.values().sum();
            for (metric, count) in gpus(&pool.body) {
                *used.entry(metric).or_default() += count * nodes;
            }
        }
        used
    }
}
