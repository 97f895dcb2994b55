//! Limits and shortages: places for operations, machines.

use std::collections::BTreeMap;

use serde_json::Value;

use super::errors::{Code, Refusal};
use super::ids::hex;
use super::operations::Scope;
use super::path::ClusterId;
use super::settings::{Stockout, WAYS};
use super::state::{Gke, Pool};
use super::{machines, places, quotas};
use crate::kube::object::text;
use crate::kube::run::glob;
use model::catalog;

/// Operations that one cluster runs at a time; seen in threads of 2023.
const CONCURRENT_OPERATIONS: usize = 5;

/// Checks that the zone of a shortage exists; a pattern need not.
pub fn check_zone(zone: &str) -> Result<(), String> {
    if zone.contains('*') || (places::is_zone(zone) && places::exists(zone)) {
        return Ok(());
    }
    let near = catalog::suggest_zone(zone).map(|near| format!("; did you mean `{near}`?"));
    Err(format!("`{zone}` is no zone{}", near.unwrap_or_default()))
}

/// Checks that the GPU of a shortage exists; a pattern need not.
pub fn check_gpu(gpu: &str) -> Result<(), String> {
    if gpu.contains('*') || catalog::accelerator(gpu).is_some() {
        return Ok(());
    }
    let near = catalog::suggest_accelerator(gpu).map(|near| format!("; did you mean `{near}`?"));
    Err(format!("`{gpu}` is no GPU{}", near.unwrap_or_default()))
}

/// Checks that the quota exists.
pub fn check_metric(metric: &str) -> Result<(), String> {
    if quotas::of_regions().chain(quotas::of_projects()).any(|known| known == metric) {
        return Ok(());
    }
    let spot = |name: &String| name.starts_with("PREEMPTIBLE_");
    let all: std::collections::BTreeSet<String> = quotas::of_regions().filter(|name| !spot(name)).collect();
    let all: Vec<String> = all.into_iter().chain(quotas::of_projects()).collect();
    Err(format!("`{metric}` is no quota here; there are {} and those of spot machines", all.join(", ")))
}

/// Returns the message if a scripted shortage keeps the pool's missing machines away, and counts the attempt. The pool, its
/// condition and the operation show the message.
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

/// Returns true if a shortage is about machines of this pool in this zone.
fn covers(stockout: &Stockout, pool: &Pool, zone: &str) -> bool {
    let mut types = pool.body["config"]["accelerators"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["acceleratorType"].as_str());
    glob(&stockout.pool, &pool.name)
        && stockout.zone.as_ref().is_none_or(|only| glob(only, zone))
        && stockout.gpu.as_ref().is_none_or(|only| types.any(|gpu| glob(only, gpu)))
        && stockout.machine.as_ref().is_none_or(|only| glob(only, text(&pool.body, "/config/machineType")))
        && stockout.way.as_ref().is_none_or(|only| only == way(&pool.body))
}

/// How the machines of a pool are bought.
fn way(pool: &Value) -> &'static str {
    let on = |pointer: &str| pool.pointer(pointer).is_some_and(|on| *on == true);
    let reserved = text(pool, "/config/reservationAffinity/consumeReservationType");
    let [reservation, on_demand, spot, flex_start, queued] = WAYS;
    match () {
        () if on("/queuedProvisioning/enabled") => queued,
        () if on("/config/flexStart") => flex_start,
        () if on("/config/spot") || on("/config/preemptible") => spot,
        () if reserved == "SPECIFIC_RESERVATION" => reservation,
        () => on_demand,
    }
}

/// Checks that the way of a shortage exists.
pub fn check_way(way: &str) -> Result<(), String> {
    if WAYS.contains(&way) {
        return Ok(());
    }
    Err(format!("`{way}` is no way to buy machines; there are {}", WAYS.join(", ")))
}

/// Checks that the machine type of a shortage exists; a pattern need not.
pub fn check_machine(machine: &str) -> Result<(), String> {
    if machine.contains('*') || machines::exists(machine) {
        return Ok(());
    }
    Err(format!("`{machine}` is no machine type"))
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
}
