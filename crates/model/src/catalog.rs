//! Facts about accelerators, machine types and zones, from `schemas/gcp-accelerators.toml`. Data and lookup only. An unknown
//! value is `None`, never zero.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde::Deserialize;

use crate::schema::closest;

/// A machine type.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Machine {
    pub name: String,
    pub vcpus: Option<u32>,
    /// Memory in GB as in the price list: 1 GB is 2^30 bytes.
    pub memory_gb: Option<f64>,
    /// The accelerators that come with the type. `None` for those without.
    #[serde(flatten)]
    pub accelerator: Option<FixedAccelerator>,
    /// The number of local SSDs that GKE always attaches.
    #[serde(rename = "local_ssd_count_default")]
    pub local_ssds: Option<u32>,
    /// Zones in which the type is known to exist; empty if unknown.
    #[serde(default)]
    pub zones: Vec<String>,
}

/// Accelerators that belong to a machine type: a pool of that type must ask for exactly these.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FixedAccelerator {
    #[serde(rename = "accelerator_type")]
    pub kind: String,
    #[serde(rename = "accelerator_count")]
    pub count: u32,
}

impl Machine {
    /// `a2`, `n1`, `e2`. Custom types without a series in their name are N1.
    pub fn series(&self) -> &str {
        match self.name.split('-').next().unwrap_or_default() {
            "custom" => "n1",
            series => series,
        }
    }

    /// Returns true if accelerators can be attached to the type, as only N1 allows.
    pub fn takes_accelerators(&self) -> bool {
        self.series() == "n1"
    }
}

/// A GPU model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Accelerator {
    /// The API's name: `nvidia-tesla-t4`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The common name: `T4`.
    pub alias: String,
    pub gpu_memory_gib: u32,
    /// The compute capability: `7.5`. Source: NVIDIA, "CUDA GPU Compute Capability".
    pub compute_capability: ComputeCapability,
    /// Prefixes of the machine types that have it.
    pub machine_series: Vec<String>,
    pub attach: Attach,
    /// The numbers of GPUs that a node can have.
    pub counts: Vec<u32>,
    /// The number of partitions per GPU, keyed by partition size; empty if it cannot be partitioned.
    #[serde(default, rename = "mig_max_per_gpu")]
    pub mig: BTreeMap<String, u32>,
    #[serde(default)]
    pub zones: Vec<String>,
    #[serde(default)]
    n1_max_vcpus_by_count: Vec<(u32, u32)>,
    #[serde(default)]
    n1_max_memory_gb_by_count: Vec<(u32, f64)>,
}

/// The instructions and features that a GPU has, as NVIDIA numbers them: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ComputeCapability(pub u32, pub u32);

impl TryFrom<String> for ComputeCapability {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let numbers = text
            .split_once('.')
            .and_then(|(major, minor)| Some(Self(major.parse().ok()?, minor.parse().ok()?)));
        numbers.ok_or_else(|| format!("{text:?} is no compute capability"))
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// How a GPU gets to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// It comes with the machine type.
    Fixed,
    /// It is attached to an N1 machine.
    N1,
}

impl Accelerator {
    /// Returns the most vCPUs that an N1 machine may have beside this many GPUs.
    pub fn n1_max_vcpus(&self, count: u32) -> Option<u32> {
        self.n1_max_vcpus_by_count.iter().find(|(at, _)| *at == count).map(|(_, vcpus)| *vcpus)
    }

    /// Returns the most memory that an N1 machine may have beside this many GPUs.
    pub fn n1_max_memory_gb(&self, count: u32) -> Option<f64> {
        self.n1_max_memory_gb_by_count.iter().find(|(at, _)| *at == count).map(|(_, gb)| *gb)
    }
}

/// How capacity is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceModel {
    OnDemand,
    /// Spot or preemptible.
    Spot,
}

/// The ways to share one GPU between containers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GpuSharing {
    pub strategies: Vec<String>,
    #[serde(rename = "max_shared_clients_per_gpu")]
    pub max_clients: u32,
    /// The maximum number of GPUs that a container can request if GPUs are time-shared.
    #[serde(rename = "max_gpus_per_container_time_sharing")]
    pub max_gpus_per_container: u32,
}

/// The file.
#[derive(Deserialize)]
struct Facts {
    accelerator: Vec<Accelerator>,
    machine: Vec<Machine>,
    n1_host: Vec<Machine>,
    shared_core: Vec<Machine>,
    family: Vec<Family>,
    gpu_sharing: GpuSharing,
    quota: Quota,
}

/// Machine types whose names and sizes follow a rule: `NAME-VCPUS`.
#[derive(Deserialize)]
struct Family {
    name: String,
    gb_per_vcpu: f64,
    vcpus: Vec<u32>,
    /// The sizes that do not follow the rule.
    #[serde(default)]
    memory_gb_by_vcpus: Vec<(u32, f64)>,
}

#[derive(Deserialize)]
struct Quota {
    global_gpu: String,
    regional_on_demand: BTreeMap<String, String>,
    preemptible_prefix: String,
    dws_active_resize_requests: Requests,
}

/// The quota of provisioning requests.
#[derive(Deserialize)]
struct Requests {
    metric: String,
    default_limit: i64,
}

/// The file, arranged for lookup.
struct Catalog {
    accelerators: BTreeMap<String, Accelerator>,
    machines: BTreeMap<String, Machine>,
    zones: BTreeSet<String>,
    gpu_sharing: GpuSharing,
    quota: Quota,
}

/// The catalog. `None` if the built-in file cannot be parsed, which a test rules out.
static CATALOG: LazyLock<Option<Catalog>> = LazyLock::new(|| {
    let facts = serde_json::from_str(include_str!("../../../schemas/gcp-accelerators.json")).ok()?;
    Some(Catalog::new(facts))
});

impl Catalog {
    fn new(facts: Facts) -> Self {
        let Facts { accelerator, machine, n1_host, shared_core, family, gpu_sharing, quota } = facts;
        let families = family.iter().flat_map(Family::machines);
        let rows = machine.into_iter().chain(n1_host).chain(shared_core).chain(families);
        let machines: BTreeMap<_, _> = rows.map(|row| (row.name.clone(), row)).collect();
        let accelerators: BTreeMap<_, _> =
            accelerator.into_iter().map(|row| (row.kind.clone(), row)).collect();
        let zones = machines.values().flat_map(|row| &row.zones);
        let zones = zones.chain(accelerators.values().flat_map(|row| &row.zones)).cloned().collect();
        Self { accelerators, machines, zones, gpu_sharing, quota }
    }
}

impl Family {
    fn machines(&self) -> impl Iterator<Item = Machine> {
        self.vcpus.iter().map(|&vcpus| {
            let listed = self.memory_gb_by_vcpus.iter().find(|(at, _)| *at == vcpus);
            let memory_gb = listed.map_or((f64::from(vcpus) * self.gb_per_vcpu).floor(), |(_, gb)| *gb);
            Machine {
                name: format!("{}-{vcpus}", self.name),
                vcpus: Some(vcpus),
                memory_gb: Some(memory_gb),
                accelerator: None,
                local_ssds: None,
                zones: Vec::new(),
            }
        })
    }
}

/// Returns a machine type by name; custom types (`n2-custom-8-16384`) are read from their name.
pub fn machine(name: &str) -> Option<&'static Machine> {
    CATALOG.as_ref()?.machines.get(name).or_else(|| custom(name))
}

/// Custom types that were looked up. They are leaked, so that they have the same lifetime as those of the table; a run uses only
/// a few.
static CUSTOM: Mutex<BTreeMap<String, &'static Machine>> = Mutex::new(BTreeMap::new());

fn custom(name: &str) -> Option<&'static Machine> {
    let mut known = CUSTOM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(machine) = known.get(name) {
        return Some(machine);
    }
    let machine: &'static Machine = Box::leak(Box::new(read_custom(name)?));
    known.insert(name.to_owned(), machine);
    Some(machine)
}

/// Parses the name of a custom type: `[SERIES-]custom-VCPUS-MEGABYTES[-ext]`.
fn read_custom(name: &str) -> Option<Machine> {
    let size = match name.split_once("-custom-") {
        Some(("e2" | "n1" | "n2" | "n2d" | "n4", size)) => size,
        Some(_) => return None,
        None => name.strip_prefix("custom-")?,
    };
    let (vcpus, megabytes) = size.strip_suffix("-ext").unwrap_or(size).split_once('-')?;
    let (vcpus, megabytes): (u32, u32) = (vcpus.parse().ok()?, megabytes.parse().ok()?);
    let fits = vcpus > 0 && vcpus <= 128 && megabytes > 0 && megabytes % 256 == 0;
    fits.then(|| Machine {
        name: name.to_owned(),
        vcpus: Some(vcpus),
        memory_gb: Some(f64::from(megabytes) / 1024.0),
        accelerator: None,
        local_ssds: None,
        zones: Vec::new(),
    })
}

/// Returns all machine types of the table, by name.
pub fn machines() -> impl Iterator<Item = &'static Machine> {
    CATALOG.iter().flat_map(|catalog| catalog.machines.values())
}

/// Returns the machine type that a wrong name probably means.
pub fn suggest(name: &str) -> Option<String> {
    let names: Vec<&str> = machines().map(|machine| &*machine.name).collect();
    closest(name, &names)
}

/// Returns a GPU model by its API name.
pub fn accelerator(kind: &str) -> Option<&'static Accelerator> {
    CATALOG.as_ref()?.accelerators.get(kind)
}

/// Returns all GPU models, by name.
pub fn accelerators() -> impl Iterator<Item = &'static Accelerator> {
    CATALOG.iter().flat_map(|catalog| catalog.accelerators.values())
}

/// Returns the GPU type that a wrong name probably means: by its model (`T4`, `nvidia-t4`), or by a name similar to the API's.
pub fn suggest_accelerator(name: &str) -> Option<String> {
    let kinds: Vec<&str> = accelerators().map(|accelerator| &*accelerator.kind).collect();
    let lower = name.to_lowercase();
    let model = lower.rsplit('-').next().unwrap_or_default();
    let ending = |kind: &&&str| kind.strip_suffix(model).is_some_and(|before| before.ends_with('-'));
    let called = kinds.iter().find(ending).map(|kind| (*kind).to_owned());
    called.or_else(|| closest(name, &kinds))
}

/// Returns the zones that some row of the table names, sorted. Google Cloud has more zones: those without GPUs are missing here.
pub fn zones() -> impl Iterator<Item = &'static str> {
    CATALOG.iter().flat_map(|catalog| &catalog.zones).map(String::as_str)
}

/// Returns the zone that a wrong name probably means.
pub fn suggest_zone(name: &str) -> Option<String> {
    let zones: Vec<&str> = zones().collect();
    closest(name, &zones)
}

/// Returns the region of a zone by the naming rule: `us-central1-c` is in `us-central1`. `None` if the name is not that of a
/// zone.
pub fn region_of(zone: &str) -> Option<&str> {
    let (region, letter) = zone.rsplit_once('-')?;
    let lettered = letter.len() == 1 && letter.bytes().all(|byte| byte.is_ascii_lowercase());
    let numbered = region.contains('-') && region.ends_with(|c: char| c.is_ascii_digit());
    (lettered && numbered).then_some(region)
}

/// Returns how a GPU may be shared.
pub fn gpu_sharing() -> Option<&'static GpuSharing> {
    CATALOG.as_ref().map(|catalog| &catalog.gpu_sharing)
}

/// Returns the Compute Engine quota that GPUs of a kind count against in a region.
pub fn quota_metric(accelerator: &str, capacity: PriceModel) -> Option<String> {
    let quota = &CATALOG.as_ref()?.quota;
    let metric = quota.regional_on_demand.get(accelerator)?;
    Some(match capacity {
        PriceModel::OnDemand => metric.clone(),
        PriceModel::Spot => format!("{}{metric}", quota.preemptible_prefix),
    })
}

/// Families of machine types and the Compute Engine quota of their vCPUs in a region; all Spot vCPUs share one quota. Families
/// from C4 on count against `CPUS_PER_VM_FAMILY`, which only Cloud Quotas reports. Source: `Quota.metric` of Compute Engine's v1
/// API; that E2 counts with N1 is from memory.
const CPU_QUOTAS: &[(&str, &str)] = &[
    ("a2", "A2_CPUS"),
    ("c2", "C2_CPUS"),
    ("c2d", "C2D_CPUS"),
    ("c3", "C3_CPUS"),
    ("e2", "CPUS"),
    ("m1", "M1_CPUS"),
    ("m2", "M2_CPUS"),
    ("m3", "M3_CPUS"),
    ("n1", "CPUS"),
    ("n2", "N2_CPUS"),
    ("n2d", "N2D_CPUS"),
    ("t2a", "T2A_CPUS"),
    ("t2d", "T2D_CPUS"),
];

/// Returns the quota that the vCPUs of a machine type count against in a region.
pub fn cpu_quota(machine: &str, capacity: PriceModel) -> Option<&'static str> {
    let series = match machine.split('-').next().unwrap_or_default() {
        "custom" => "n1",
        series => series,
    };
    let (_, quota) = CPU_QUOTAS.iter().find(|(known, _)| *known == series)?;
    Some(match capacity {
        PriceModel::OnDemand => quota,
        PriceModel::Spot => "PREEMPTIBLE_CPUS",
    })
}

/// Returns all quotas of vCPUs in a region.
pub fn cpu_quotas() -> impl Iterator<Item = &'static str> {
    CPU_QUOTAS.iter().map(|(_, quota)| *quota).chain(["PREEMPTIBLE_CPUS"])
}

/// Returns the quota of a region that disks of a type count against. Source: `Quota.metric` of Compute Engine's v1 API;
/// `HDB_TOTAL_GB` in refusals of Hyperdisk Balanced.
pub fn disk_quota(kind: &str) -> Option<&'static str> {
    match kind {
        "pd-standard" => Some("DISKS_TOTAL_GB"),
        "pd-balanced" | "pd-ssd" => Some("SSD_TOTAL_GB"),
        "hyperdisk-balanced" => Some("HDB_TOTAL_GB"),
        _ => None,
    }
}

/// The quota of a region for external addresses of machines.
pub const ADDRESS_QUOTA: &str = "IN_USE_ADDRESSES";

/// The quota that all vCPUs of a project count against.
pub const GLOBAL_CPU_QUOTA: &str = "CPUS_ALL_REGIONS";

/// Returns the quota that all GPUs of a project count against.
pub fn global_gpu_quota() -> Option<&'static str> {
    CATALOG.as_ref().map(|catalog| &*catalog.quota.global_gpu)
}

/// Returns the name of a region's quota of provisioning requests in Compute Engine, and its default limit.
pub fn request_quota() -> Option<(String, i64)> {
    let quota = &CATALOG.as_ref()?.quota.dws_active_resize_requests;
    Some((quota.metric.to_uppercase(), quota.default_limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        assert!(CATALOG.is_some());
    }

    #[test]
    fn machines_are_found_by_row_family_or_name() {
        for (name, expected) in [
            ("a2-highgpu-2g", Some((24, 170.0))),
            ("n1-standard-2", Some((2, 7.5))),
            ("n1-highcpu-4", Some((4, 3.6))),
            ("e2-medium", Some((2, 4.0))),
            ("e2-standard-4", Some((4, 16.0))),
            ("n2-highmem-128", Some((128, 864.0))),
            ("c3-highcpu-22", Some((22, 44.0))),
            ("c4-standard-2", Some((2, 7.0))),
            ("c4d-highcpu-4", Some((4, 7.0))),
            ("custom-4-8192", Some((4, 8.0))),
            ("n2-custom-8-16384-ext", Some((8, 16.0))),
            ("e2-standard-3", None),
            ("a9-standard-4", None),
            ("n2-custom-8-100", None),
            ("c3-custom-8-8192", None),
            ("", None),
        ] {
            let found = machine(name).map(|machine| (machine.vcpus.unwrap(), machine.memory_gb.unwrap()));
            assert_eq!(found, expected, "{name}");
        }
        let fixed = machine("a2-highgpu-2g").unwrap().accelerator.as_ref().unwrap();
        assert_eq!((&*fixed.kind, fixed.count), ("nvidia-tesla-a100", 2));
        assert!(machine("n1-standard-2").unwrap().accelerator.is_none());
        assert!(machine("custom-4-8192").unwrap().takes_accelerators());
        assert_eq!(machine("a4x-highgpu-4g").unwrap().vcpus, None);
    }

    #[test]
    fn accelerators_say_what_they_allow() {
        let t4 = accelerator("nvidia-tesla-t4").unwrap();
        assert_eq!(t4.compute_capability, ComputeCapability(7, 5));
        assert_eq!((t4.attach, &*t4.counts), (Attach::N1, &[1, 2, 4][..]));
        assert_eq!(
            (t4.n1_max_vcpus(1), t4.n1_max_memory_gb(4), t4.n1_max_vcpus(3)),
            (Some(48), Some(624.0), None)
        );
        assert_eq!(accelerator("nvidia-tesla-a100").unwrap().mig.get("1g.5gb"), Some(&7));
        assert_eq!(gpu_sharing().unwrap().strategies, ["TIME_SHARING", "MPS"]);
        for machine in machines() {
            if let Some(FixedAccelerator { kind, count }) = &machine.accelerator {
                assert!(accelerator(kind).unwrap().counts.contains(count), "{}", machine.name);
            }
        }
    }

    #[test]
    fn names_are_suggested() {
        for (found, expected) in [
            (suggest("a2-higgpu-2g"), Some("a2-highgpu-2g")),
            (suggest("n1-standart-2"), Some("n1-standard-2")),
            (suggest("quantum"), None),
            (suggest_accelerator("T4"), Some("nvidia-tesla-t4")),
            (suggest_accelerator("nvidia-t4"), Some("nvidia-tesla-t4")),
            (suggest_accelerator("nvidia-tesla-a10"), Some("nvidia-tesla-a100")),
            (suggest_zone("us-central-1c"), Some("us-central1-c")),
        ] {
            assert_eq!(found.as_deref(), expected);
        }
    }

    #[test]
    fn zones_have_regions() {
        for (zone, region) in [
            ("us-central1-c", Some("us-central1")),
            ("europe-west4-a", Some("europe-west4")),
            ("us-central1", None),
            ("us-central1-cc", None),
            ("a-b", None),
        ] {
            assert_eq!(region_of(zone), region, "{zone}");
        }
        assert!(zones().any(|zone| zone == "us-central1-c"));
        assert!(zones().all(|zone| region_of(zone).is_some()));
    }

    #[test]
    fn quotas_have_names() {
        let metric = |capacity| quota_metric("nvidia-tesla-t4", capacity).unwrap();
        assert_eq!(metric(PriceModel::OnDemand), "NVIDIA_T4_GPUS");
        assert_eq!(metric(PriceModel::Spot), "PREEMPTIBLE_NVIDIA_T4_GPUS");
        assert_eq!(quota_metric("nvidia-b200", PriceModel::OnDemand), None);
        assert_eq!(global_gpu_quota(), Some("GPUS_ALL_REGIONS"));
        assert_eq!(request_quota(), Some(("ACTIVE_RESIZE_REQUESTS".to_owned(), 100)));
        let cpus = |machine| (cpu_quota(machine, PriceModel::OnDemand), cpu_quota(machine, PriceModel::Spot));
        assert_eq!(cpus("a2-highgpu-1g"), (Some("A2_CPUS"), Some("PREEMPTIBLE_CPUS")));
        assert_eq!(cpus("custom-4-8192"), (Some("CPUS"), Some("PREEMPTIBLE_CPUS")));
        assert_eq!(cpus("c4-standard-2"), (None, None));
        assert!(["n1-standard-1", "e2-medium"].into_iter().all(|machine| cpus(machine).0 == Some("CPUS")));
    }
}
