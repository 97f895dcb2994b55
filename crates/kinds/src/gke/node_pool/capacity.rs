//! The quotas and other capacity that the nodes of a pool need. Source: Compute Engine's page of allocation quotas; refusals of
//! GKE in public threads (`CPUS`, `SSD_TOTAL_GB`, `IN_USE_ADDRESSES`, `GPUS_ALL_REGIONS`).

use serde_json::Value;

use super::fields::default_disk;
use crate::json::{number, text};
use model::catalog::{self, Attach};

/// The number of zones that GKE chooses for a regional cluster without zones in the file.
const ZONES_OF_A_REGION: u64 = 3;
/// The disk size in GB that GKE chooses for a pool that sets none.
const DISK_GB: u64 = 100;

/// The amount that one node uses of one quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Compute Engine's name: `NVIDIA_T4_GPUS`.
    pub quota: String,
    /// The quota of Spot machines. It replaces `quota` if the project has a limit for it. Source: hail-is/hail 10588, from
    /// Google's support.
    pub of_spot: Option<String>,
    pub amount: u64,
    /// True if GKE is certain to refuse nodes when the quota does not suffice.
    pub certain: bool,
}

/// Kinds of node addresses: public ones are on the internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpExposure {
    Public,
    Private,
    /// The cluster is managed elsewhere.
    Unknown,
}

/// Provisioning models of a pool's machines, as far as they differ in quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purchase {
    OnDemand,
    /// They may come from a reservation. Reserved machines already count against the quotas.
    MaybeReserved,
    /// They come from a reservation.
    Reserved,
    /// Spot, flex-start and queued machines.
    Spot,
}

/// One node of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequirements {
    pub machine: String,
    /// GPUs that are attached instead of being part of the machine type.
    pub attached: Option<(String, u64)>,
    pub shares: Vec<Share>,
    /// Names of quotas that it uses and that Compute Engine does not report, for messages.
    pub unreported_quotas: Vec<String>,
    pub addresses: IpExposure,
    pub secure_boot: bool,
}

impl NodeRequirements {
    /// Returns the requirements of one node of a pool with this body; `cluster`: the default addresses of nodes in its cluster.
    pub fn of(pool: &Value, cluster: IpExposure) -> Self {
        let config = &pool["config"];
        let machine = text(&config["machineType"]).to_owned();
        let purchase = purchase(pool);
        let addresses = match pool["networkConfig"]["enablePrivateNodes"].as_bool() {
            Some(true) => IpExposure::Private,
            Some(false) => IpExposure::Public,
            None => cluster,
        };
        let mut node = Self {
            attached: attached(config),
            shares: Vec::new(),
            unreported_quotas: Vec::new(),
            addresses,
            secure_boot: config["shieldedInstanceConfig"]["enableSecureBoot"] == true,
            machine,
        };
        if purchase != Purchase::Reserved {
            node.gpus(config, purchase);
            node.cpus(purchase);
        }
        node.disk(config);
        if addresses != IpExposure::Private {
            let certain = addresses == IpExposure::Public;
            node.takes(catalog::ADDRESS_QUOTA, None, 1, certain);
        }
        node
    }

    /// Marks all shares as uncertain, for a pool with further capacity options.
    #[must_use]
    pub fn as_uncertain(mut self) -> Self {
        self.shares.iter_mut().for_each(|share| share.certain = false);
        self
    }

    fn takes(&mut self, quota: &str, of_spot: Option<String>, amount: u64, certain: bool) {
        self.shares.push(Share { quota: quota.to_owned(), of_spot, amount, certain });
    }

    fn gpus(&mut self, config: &Value, purchase: Purchase) {
        for gpu in config["accelerators"].as_array().into_iter().flatten() {
            let (kind, count) =
                (text(&gpu["acceleratorType"]), number(&gpu["acceleratorCount"]).unwrap_or(1));
            let certain = purchase == Purchase::OnDemand;
            match catalog::quota_metric(kind, catalog::PriceModel::OnDemand) {
                Some(quota) => {
                    let of_spot = catalog::quota_metric(kind, catalog::PriceModel::Spot);
                    self.takes(&quota, of_spot.filter(|_| purchase == Purchase::Spot), count, certain);
                }
                None => self.unreported_quotas.push(format!("the quota of {kind}")),
            }
            if let Some(all) = catalog::global_gpu_quota() {
                self.takes(all, None, count, certain);
            }
        }
    }

    fn cpus(&mut self, purchase: Purchase) {
        let machine = self.machine.clone();
        let spot = purchase == Purchase::Spot;
        let Some(vcpus) = catalog::machine(&machine).and_then(|machine| machine.vcpus).map(u64::from) else {
            self.unreported_quotas.push(format!("the vCPUs of {machine}"));
            return;
        };
        match catalog::cpu_quota(&machine, catalog::PriceModel::OnDemand) {
            Some(quota) => {
                let of_spot = catalog::cpu_quota(&machine, catalog::PriceModel::Spot).filter(|_| spot);
                // Which quota E2 counts against is from memory.
                let certain = purchase == Purchase::OnDemand && !machine.starts_with("e2-");
                self.takes(quota, of_spot.map(str::to_owned), vcpus, certain);
            }
            None => self.unreported_quotas.push(format!("the quota of the vCPUs of {machine}")),
        }
        self.takes(catalog::GLOBAL_CPU_QUOTA, None, vcpus, purchase == Purchase::OnDemand);
    }

    fn disk(&mut self, config: &Value) {
        let said = |old: &str, new: &str| {
            let of_boot = &config["bootDisk"][new];
            if of_boot.is_null() { &config[old] } else { of_boot }
        };
        let (kind, size) = (text(said("diskType", "diskType")), number(said("diskSizeGb", "sizeGb")));
        let kind = if kind.is_empty() { default_disk(&self.machine) } else { kind };
        match catalog::disk_quota(kind) {
            Some(quota) => self.takes(quota, None, size.unwrap_or(DISK_GB), true),
            None => self.unreported_quotas.push(format!("the quota of {kind} disks")),
        }
    }
}

fn purchase(pool: &Value) -> Purchase {
    let config = &pool["config"];
    let spot = ["spot", "preemptible", "flexStart"].iter().any(|key| config[key] == true);
    if spot || pool["queuedProvisioning"]["enabled"] == true {
        return Purchase::Spot;
    }
    match text(&config["reservationAffinity"]["consumeReservationType"]) {
        "SPECIFIC_RESERVATION" => Purchase::Reserved,
        "ANY_RESERVATION" | "ANY_RESERVATION_THEN_FAIL" => Purchase::MaybeReserved,
        _ => Purchase::OnDemand,
    }
}

fn attached(config: &Value) -> Option<(String, u64)> {
    let gpu = &config["accelerators"][0];
    let known = catalog::accelerator(text(&gpu["acceleratorType"]))?;
    let count = number(&gpu["acceleratorCount"]).unwrap_or(1);
    (known.attach == Attach::N1).then(|| (known.kind.clone(), count))
}

/// Returns the addresses that a cluster with this body gives its nodes.
pub fn ip_exposure_of(cluster: &Value) -> IpExposure {
    let private = cluster["networkConfig"]["defaultEnablePrivateNodes"] == true
        || cluster["privateClusterConfig"]["enablePrivateNodes"] == true;
    if private { IpExposure::Private } else { IpExposure::Public }
}

/// Returns the largest number of nodes of a pool with this body.
pub fn most_nodes(pool: &Value, zones: u64) -> u64 {
    let scaled = &pool["autoscaling"];
    if scaled["enabled"] != true {
        return number(&pool["nodeCount"]).unwrap_or_default();
    }
    let zones = if zones == 0 { ZONES_OF_A_REGION } else { zones };
    let each = number(&scaled["maxNodeCount"]).unwrap_or_default();
    number(&scaled["totalMaxNodeCount"]).filter(|most| *most > 0).unwrap_or(each * zones)
}

/// Returns the initial number of nodes, from the number per zone.
pub fn nodes_at_first(pool: &Value, in_a_zone: u64, zones: u64) -> u64 {
    match (zones, number(&pool["nodeCount"])) {
        (0, Some(nodes)) => nodes,
        (0, None) => in_a_zone * ZONES_OF_A_REGION,
        (zones, _) => in_a_zone * zones,
    }
}

/// Returns the number of additional nodes during an upgrade. Source: googleapis `cluster_service.proto`, `UpgradeSettings`: one
/// by default, for the whole pool.
pub fn surge_nodes(pool: &Value) -> u64 {
    let settings = &pool["upgradeSettings"];
    match text(&settings["strategy"]) {
        "BLUE_GREEN" => number(&pool["nodeCount"]).unwrap_or_default(),
        "SHORT_LIVED" => 0,
        _ if settings["maxSurge"].is_null() && settings["maxUnavailable"].is_null() => 1,
        _ => number(&settings["maxSurge"]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns quota, Spot quota, amount, and true if GKE is certain to refuse nodes when the quota is too small.
    fn shares(pool: &Value) -> Vec<(String, Option<String>, u64, bool)> {
        let shares = NodeRequirements::of(pool, IpExposure::Public).shares.into_iter();
        shares.map(|share| (share.quota, share.of_spot, share.amount, share.certain)).collect()
    }

    fn share(
        quota: &str,
        of_spot: Option<&str>,
        amount: u64,
        certain: bool,
    ) -> (String, Option<String>, u64, bool) {
        (quota.to_owned(), of_spot.map(str::to_owned), amount, certain)
    }

    #[test]
    fn a_node_takes_of_each_quota_that_it_counts_against() {
        let gpu = json!([{ "acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "2" }]);
        let pool = json!({ "config": { "machineType": "n1-standard-4", "accelerators": gpu, "diskSizeGb": 50, "diskType": "pd-standard" } });
        let on_demand = [
            share("NVIDIA_T4_GPUS", None, 2, true),
            share("GPUS_ALL_REGIONS", None, 2, true),
            share("CPUS", None, 4, true),
            share("CPUS_ALL_REGIONS", None, 4, true),
            share("DISKS_TOTAL_GB", None, 50, true),
            share("IN_USE_ADDRESSES", None, 1, true),
        ];
        assert_eq!(shares(&pool), on_demand);
        let mut spot = pool.clone();
        spot["config"]["spot"] = json!(true);
        let first = share("NVIDIA_T4_GPUS", Some("PREEMPTIBLE_NVIDIA_T4_GPUS"), 2, false);
        assert_eq!(shares(&spot)[0], first);
        assert_eq!(shares(&spot)[2], share("CPUS", Some("PREEMPTIBLE_CPUS"), 4, false));
        let mut reserved = pool;
        reserved["config"]["reservationAffinity"]["consumeReservationType"] = json!("SPECIFIC_RESERVATION");
        reserved["networkConfig"]["enablePrivateNodes"] = json!(true);
        assert_eq!(shares(&reserved), [share("DISKS_TOTAL_GB", None, 50, true)]);
    }

    #[test]
    fn what_no_api_tells_is_named() {
        let gpu = json!([{ "acceleratorType": "nvidia-h200-141gb", "acceleratorCount": "8" }]);
        let pool = json!({ "config": { "machineType": "a3-ultragpu-8g", "accelerators": gpu, "diskType": "hyperdisk-extreme" } });
        let node = NodeRequirements::of(&pool, IpExposure::Private);
        assert_eq!(node.attached, None, "it comes with the machine");
        assert!(
            node.unreported_quotas.contains(&"the quota of nvidia-h200-141gb".to_owned()),
            "{:?}",
            node.unreported_quotas
        );
        assert!(
            node.unreported_quotas.contains(&"the quota of hyperdisk-extreme disks".to_owned()),
            "{:?}",
            node.unreported_quotas
        );
        assert_eq!(node.shares[0].quota, "GPUS_ALL_REGIONS");
    }

    #[test]
    fn numbers_of_nodes() {
        let fixed = json!({ "nodeCount": 4 });
        let scaled = json!({ "autoscaling": { "enabled": true, "totalMaxNodeCount": 9 } });
        let each = json!({ "autoscaling": { "enabled": true, "maxNodeCount": 2 } });
        assert_eq!([&fixed, &scaled, &each].map(|pool| most_nodes(pool, 0)), [4, 9, 6]);
        assert_eq!((nodes_at_first(&fixed, 2, 2), nodes_at_first(&scaled, 1, 0)), (4, 3));
        let rolls = |settings: Value| surge_nodes(&json!({ "nodeCount": 4, "upgradeSettings": settings }));
        assert_eq!(rolls(json!(null)), 1);
        assert_eq!(rolls(json!({ "maxSurge": 0, "maxUnavailable": 1 })), 0);
        assert_eq!(rolls(json!({ "strategy": "BLUE_GREEN" })), 4);
    }
}
