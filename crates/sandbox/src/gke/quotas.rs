//! Quotas of Compute Engine: what pools take of them, what is left, and how GKE refuses.
//! Source: refusals in public threads, as GoogleCloudPlatform's issue hivemq 48 (several numbered) and
//! terraform-google-modules/terraform-google-kubernetes-engine 1795; that of the project's is worded after `CPUS_ALL_REGIONS`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::errors::{Code, Refusal};
use super::machines;
use super::path::ClusterId;
use super::places;
use super::settings::Quota;
use super::state::{Cluster, Gke};
use crate::kube::object::text;
use model::catalog::{self, PriceModel};

/// Where a quota holds.
#[derive(Clone, Copy)]
enum Scope<'s> {
    Region(&'s str),
    Project,
}

/// Quotas that every region has.
pub(super) fn of_regions() -> impl Iterator<Item = String> {
    let of = |spot| catalog::accelerators().filter_map(move |gpu| machines::quota_metric(&gpu.kind, spot));
    let disks =
        ["pd-standard", "pd-balanced", "hyperdisk-balanced"].into_iter().filter_map(catalog::disk_quota);
    let others = catalog::cpu_quotas().chain(disks).chain([catalog::ADDRESS_QUOTA]).map(str::to_owned);
    let all: BTreeSet<String> = of(false).chain(of(true)).chain(others).collect();
    all.into_iter()
}

/// Quotas that a project has for all regions together.
pub(super) fn of_projects() -> impl Iterator<Item = String> {
    [Some(catalog::GLOBAL_CPU_QUOTA), catalog::global_gpu_quota()].into_iter().flatten().map(str::to_owned)
}

/// How many of so many more machines stay within the limits of auto-provisioning, which count all nodes of the cluster and hold
/// for all pools that are autoscaled. GPUs of a type without a limit are not made. Source: GKE's page "Configure node
/// auto-provisioning", "Configuring GPU limits".
pub(super) fn within_limits(cluster: &Cluster, config: &Value, count: u32) -> u32 {
    if !cluster.makes_pools() {
        return count;
    }
    (1..=count).rev().find(|count| is_within_limits(cluster, config, *count)).unwrap_or(0)
}

fn is_within_limits(cluster: &Cluster, config: &Value, count: u32) -> bool {
    let limits = cluster.body["autoscaling"]["resourceLimits"].as_array();
    let limit = |resource: &str| {
        let found = limits.into_iter().flatten().find(|limit| limit["resourceType"] == resource)?;
        let most = &found["maximum"];
        most.as_f64().or_else(|| most.as_str()?.parse().ok())
    };
    let pools = cluster.pools.iter().map(|pool| (&pool.body["config"], pool.nodes()));
    let all: Vec<(&Value, u32)> = pools.chain([(config, count)]).collect();
    let gpu = text(config, "/accelerators/0/acceleratorType");
    let resources = ["cpu", "memory", gpu].into_iter().filter(|resource| !resource.is_empty());
    resources.into_iter().all(|resource| {
        let used: f64 = all.iter().map(|(config, count)| amount(config, resource) * f64::from(*count)).sum();
        limit(resource).is_some_and(|most| used <= most)
    })
}

/// Returns the amount of a resource that a node has: CPUs, gigabytes, or GPUs of a type.
fn amount(config: &Value, resource: &str) -> f64 {
    let machine = catalog::machine(text(config, "/machineType"));
    match resource {
        "cpu" => machine.and_then(|machine| machine.vcpus).map_or(0.0, f64::from),
        "memory" => machine.and_then(|machine| machine.memory_gb).unwrap_or(0.0),
        _ if text(config, "/accelerators/0/acceleratorType") == resource => {
            text(config, "/accelerators/0/acceleratorCount").parse().unwrap_or(0.0)
        }
        _ => 0.0,
    }
}

/// Returns the quota that one node of a stored NodePool message takes, by metric.
fn takes(body: &Value) -> Vec<(String, u64)> {
    let config = &body["config"];
    let spot = ["spot", "preemptible"].iter().any(|key| config[key] == true);
    let mut taken = Vec::new();
    for gpu in config["accelerators"].as_array().into_iter().flatten() {
        let count: u64 = text(gpu, "/acceleratorCount").parse().unwrap_or_default();
        let of_sort = machines::quota_metric(text(gpu, "/acceleratorType"), spot);
        let all = catalog::global_gpu_quota().map(str::to_owned);
        taken.extend(of_sort.into_iter().chain(all).map(|metric| (metric, count)));
    }
    let machine = text(config, "/machineType");
    if let Some(vcpus) = catalog::machine(machine).and_then(|machine| machine.vcpus) {
        let capacity = if spot { PriceModel::Spot } else { PriceModel::OnDemand };
        let metrics = catalog::cpu_quota(machine, capacity).into_iter().chain([catalog::GLOBAL_CPU_QUOTA]);
        taken.extend(metrics.map(|metric| (metric.to_owned(), u64::from(vcpus))));
    }
    if let Some(metric) = catalog::disk_quota(text(config, "/diskType")) {
        taken.push((metric.to_owned(), config["diskSizeGb"].as_u64().unwrap_or_default()));
    }
    if body["networkConfig"]["enablePrivateNodes"] != true {
        taken.push((catalog::ADDRESS_QUOTA.to_owned(), 1));
    }
    taken
}

impl Gke {
    /// Refuses when too little is left for `nodes` more nodes of each pool.
    pub(super) fn check_quota(
        &self,
        id: &ClusterId,
        wanted: &[(&Value, u32)],
        quota: &Quota,
    ) -> Result<(), Refusal> {
        let mut requested: BTreeMap<String, u64> = BTreeMap::new();
        for (body, nodes) in wanted {
            for (metric, each) in takes(body) {
                *requested.entry(metric).or_default() += each * u64::from(*nodes);
            }
        }
        let region = places::region(&id.location);
        let (here, everywhere) =
            (self.used(&id.project, Scope::Region(region)), self.used(&id.project, Scope::Project));
        let global: Vec<String> = of_projects().collect();
        let mut lines = Vec::new();
        for (metric, requested) in requested {
            let (used, scope) = match global.contains(&metric) {
                true => (&everywhere, "project"),
                false => (&here, "regional"),
            };
            let limit = u64::from(quota.limit(&metric));
            let available = limit.saturating_sub(used.get(&metric).copied().unwrap_or_default());
            if requested > available {
                lines.push(format!(
                    "nsufficient {scope} quota to satisfy request: resource \"{metric}\": request requires \
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

    /// Returns the quota that the pools of a project take, by metric.
    fn used(&self, project: &str, scope: Scope<'_>) -> BTreeMap<String, u64> {
        let clusters = self.clusters.values().filter(|cluster| cluster.id.project == project);
        let here = clusters.filter(|cluster| match scope {
            Scope::Region(region) => places::region(&cluster.id.location) == region,
            Scope::Project => true,
        });
        let mut used = BTreeMap::new();
        for pool in here.flat_map(|cluster| &cluster.pools) {
            let nodes: u32 = pool.sizes.values().sum();
            for (metric, each) in takes(&pool.body) {
                *used.entry(metric).or_default() += each * u64::from(nodes);
            }
        }
        used
    }

    /// The quotas of a region as Compute Engine lists them; those of the project without one.
    pub(super) fn quotas(&self, project: &str, region: Option<&str>, quota: &Quota) -> Value {
        let used = self.used(project, region.map_or(Scope::Project, Scope::Region));
        let names: Vec<String> =
            if region.is_some() { of_regions().collect() } else { of_projects().collect() };
        let one = |metric: String| {
            #[expect(clippy::cast_precision_loss, reason = "as Compute Engine writes it")]
            let usage = used.get(&metric).copied().unwrap_or_default() as f64;
            json!({ "metric": metric, "limit": f64::from(quota.limit(&metric)), "usage": usage })
        };
        names.into_iter().map(one).collect()
    }
}
