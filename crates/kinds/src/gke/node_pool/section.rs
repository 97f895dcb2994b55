//! Keys of `[node_pool.NAME]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::keys::{BlueGreen, Capacity, Kubelet, Linux, LocalSsd, Reservation, TenantAffinity};
use super::networks::{NodeNetwork, PodNetwork};
use crate::gke::enums::{
    Confidential, GpuDirect, LocationPolicy, LoggingVariant, Placement, WorkloadMetadata,
};
use crate::json::is_false;
use crate::scope::{PoolFacts, Scope};
use crate::section::{LabelRules, Labels, Lifecycle, LiveName, Manage, NameRule, Section, SectionHead};
use crate::short_forms::{Accelerator, Nodes, Taint};
use model::catalog;

/// A GKE node pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct NodePool {
    /// The pool's live name; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The Compute Engine machine type: `a2-highgpu-2g`, `n1-standard-2`. Not needed with `manage = false`.
    pub machine_type: String,
    /// GPUs: a type, or a table with `type`, `count`, `sharing` and `partition`. Follows from the machine type
    /// for A2, A3, A4, G2 and G4 machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// Which NVIDIA driver GKE installs here: `default` or `latest`. Only with `[gpu_driver] install = "gke"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverVersion>,
    /// Nodes in all zones together (a multiple of the zones), or `{ min = 0, max = 4 }` to autoscale. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// Zones of the pool; defaults to those of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Kubernetes labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Kubernetes taints of the nodes. GKE adds `nvidia.com/gpu` by itself to GPU pools that join a cluster with CPU pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Network tags of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Google Cloud labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_labels: BTreeMap<String, String>,
    /// The boot disk's type: `pd-ssd`, `hyperdisk-balanced`. Default: GKE's, which is `pd-balanced`, and
    /// `hyperdisk-balanced` on machines that take Hyperdisk only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_type: Option<String>,
    /// The boot disk's size in GB. Default: GKE's, which is 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 65536))]
    pub disk_size_gb: Option<u32>,
    /// The node image: `UBUNTU_CONTAINERD`. Default: GKE's, which is `COS_CONTAINERD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_type: Option<String>,
    /// Ways to buy the machines, in the order in which `apply` tries them: `["reservation", "on-demand", "spot", "flex-start",
    /// "queued"]`. A way that has no machines is given up and its pool deleted; one that has some is kept until `--retry-capacity`.
    /// All but the last two are tried in one zone of `zones` after the other. In place of `spot`, `flex_start` and `queued`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity: Vec<Capacity>,
    /// Spot machines: cheaper, may be reclaimed at any time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub spot: bool,
    /// The Google service account of the nodes. Default: the project's default account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// True if GKE repairs broken nodes. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_repair: Option<bool>,
    /// True if GKE upgrades nodes. Default true; must be true under a release channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_upgrade: Option<bool>,
    /// How upgrades roll: extra nodes, and nodes that may be missing. Default one extra, none missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surge: Option<Surge>,
    /// Reserved machines: `"any"`, `"none"`, or `{ name = "r" }` for this reservation and no other machine. Default: any
    /// that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Reservation>,
    /// `"compact"`: machines close together, for workers that exchange much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// In which zones the autoscaler adds nodes: `"any"` where machines are to be had, `"balanced"` the same number in each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location_policy: Option<LocationPolicy>,
    /// Nodes by flex-start: GKE waits until machines are to be had, and they last for 7 days at most. Needs `nodes` that
    /// are autoscaled, and `reservation = "none"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flex_start: Option<bool>,
    /// Nodes for requests that are queued, all of one request at once (Dynamic Workload Scheduler). Needs `nodes` that are
    /// autoscaled from 0, and `reservation = "none"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<bool>,
    /// How long a node lasts at most: `"7d"`, `"12h"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<String>,
    /// Google's virtual network card, for more bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gvnic: Option<bool>,
    /// A faster transport for NCCL between GPU nodes. Needs `gvnic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_socket: Option<bool>,
    /// Tier 1 bandwidth, for large machines. Needs `gvnic`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tier_1_network: bool,
    /// Nodes without addresses of their own on the internet. Default: as the cluster's `private_nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_nodes: Option<bool>,
    /// The secondary range of the subnetwork that Pods have addresses of. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_range: Option<String>,
    /// Further networks of the nodes, each with a subnetwork: of GPU traffic, for example. Need `multi_networking` of the
    /// cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_node_networks: Vec<NodeNetwork>,
    /// Further networks that Pods can be in. Need `additional_node_networks` with the same subnetworks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_pod_networks: Vec<PodNetwork>,
    /// `"rdma"`: GPUs reach those of other nodes past the CPU, on A3 Ultra, A4 and A4X. TCPX and TCPXO have no field: they
    /// are `additional_node_networks` and Google's DaemonSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_direct: Option<GpuDirect>,
    /// Mirrors of registries, by the registry: `{ "docker.io" = ["https://mirror.gcr.io"] }`. containerd asks them first, one
    /// after the other.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registry_mirrors: BTreeMap<String, Vec<String>>,
    /// Authorities that certificates of private registries are of: a secret of Secret Manager for each domain,
    /// `{ "registry.example" = "projects/P/secrets/S/versions/1" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registry_certificates: BTreeMap<String, String>,
    /// Pods of a node at most; fewer take fewer addresses. Default: the cluster's, else 110.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 8, max = 256))]
    pub max_pods_per_node: Option<u32>,
    /// Disks inside the machines: a number for the scratch space of Pods, `{ block = 2 }` for raw block
    /// devices, or `{ scsi = 2 }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_ssd: Option<LocalSsd>,
    /// Disk images with container images on them, which nodes have before the first Pod:
    /// `projects/P/global/images/I`. Need `image_streaming`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secondary_boot_disks: Vec<String>,
    /// The Cloud KMS key that encrypts boot disks: `projects/P/locations/L/keyRings/R/cryptoKeys/K`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_disk_key: Option<String>,
    /// Containers start while their image is still being pulled. GKE streams images of Artifact Registry only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_streaming: Option<bool>,
    /// Which metadata server Pods see: `"gke"` or `"gce"`. Default: `gke` with the cluster's `workload_identity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_metadata: Option<WorkloadMetadata>,
    /// Starts signed software only. GPU drivers that a DaemonSet installs are not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
    /// True if the integrity of nodes is monitored. Default: GKE's, which is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity_monitoring: Option<bool>,
    /// How the memory of nodes is encrypted: `"sev"`, `"sev-snp"` or `"tdx"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidential: Option<Confidential>,
    /// OAuth scopes of the nodes. Default: GKE's, and with `service_account` the whole platform, as its roles decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Threads of a CPU core: 1 switches simultaneous multithreading off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2))]
    pub threads_per_core: Option<u32>,
    /// True if Pods may run virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<bool>,
    /// The oldest CPU platform: `Intel Ice Lake`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_cpu_platform: Option<String>,
    /// A group of sole-tenant nodes, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_group: Option<String>,
    /// On which sole-tenant nodes the machines run, by their labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sole_tenancy: Vec<TenantAffinity>,
    /// The agent that collects logs: `"default"`, or `"max-throughput"` for Pods that log much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging_variant: Option<LoggingVariant>,
    /// Settings of the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Kubelet>,
    /// Settings of the Linux kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<Linux>,
    /// Upgrades by a second set of nodes, in place of `surge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blue_green: Option<BlueGreen>,
    /// The version of the nodes at least: `1.33` or an exact one. Default: the control plane's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Other fields of the API's `NodePool`, by its names: `config = { kubeletConfig = { cpuManagerPolicy = "static" } }`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub api: Map<String, Value>,
    /// `false`: it exists and is managed elsewhere. It is read, compared with this section and relied on, never
    /// written, labelled or deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

/// Which NVIDIA driver GKE installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriverVersion {
    /// The driver that GKE chooses for the node version.
    Default,
    /// The newest driver for the node's COS build.
    Latest,
}

impl DriverVersion {
    /// Returns the API's name.
    pub(super) fn api(self) -> &'static str {
        match self {
            Self::Default => "DEFAULT",
            Self::Latest => "LATEST",
        }
    }
}

/// How upgrades of a pool roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Surge {
    /// Extra nodes during an upgrade. Needs spare GPUs; 0 where capacity is scarce.
    #[serde(default)]
    pub max_surge: u32,
    /// Nodes that may be missing during an upgrade.
    #[serde(default)]
    pub max_unavailable: u32,
}

impl Section for NodePool {
    fn head(&self) -> SectionHead<'_> {
        SectionHead { manage: self.manage, depends_on: &self.lifecycle.depends_on, ..SectionHead::default() }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(self.name.as_deref(), key, NameRule::Gke))
    }

    fn labels(&self) -> Vec<Labels<'_>> {
        // Labels of external pools are not checked.
        if !self.is_managed() {
            return Vec::new();
        }
        vec![
            ("labels", &self.labels, LabelRules::Kubernetes),
            ("resource_labels", &self.resource_labels, LabelRules::Google),
        ]
    }
}

/// Tells if GKE creates nodes of a pool for provisioning requests. The capacity options alone decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServesRequests {
    Never,
    /// Only if the capacity options before "queued" have no machines.
    Perhaps,
    Always,
}

impl NodePool {
    /// Returns true if GKE waits for machines when it adds nodes (`queued` or `flex_start`).
    pub fn waits_for_machines(&self) -> bool {
        self.queued == Some(true) || self.flex_start == Some(true)
    }

    /// Returns whether GKE creates its nodes for provisioning requests.
    pub fn serves_requests(&self) -> ServesRequests {
        match self.capacity.as_slice() {
            [] if self.queued == Some(true) => ServesRequests::Always,
            [Capacity::Queued] => ServesRequests::Always,
            options if options.contains(&Capacity::Queued) => ServesRequests::Perhaps,
            _ => ServesRequests::Never,
        }
    }

    /// Returns the desired number of nodes.
    pub fn size(&self) -> Nodes {
        self.nodes.unwrap_or_default()
    }

    /// Returns the initial number of nodes per zone, from the zones in the file. A plan uses the live zones.
    pub(super) fn first_nodes(&self, scope: &Scope) -> u64 {
        let own = u32::try_from(self.zones.len()).unwrap_or(1);
        let zones = u64::from(if own == 0 { scope.zones.max(1) } else { own });
        match self.size() {
            Nodes::Fixed(nodes) => u64::from(nodes) / zones,
            Nodes::Autoscaled { min, .. } => first_nodes(min.into(), zones),
        }
    }

    /// Returns the pool's live name.
    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    /// Returns the type and count of the GPUs of a node: those of the file, else those of the machine type.
    pub fn gpus(&self) -> Option<(String, u32)> {
        let machine = catalog::machine(&self.machine_type);
        let fixed =
            machine.and_then(|machine| machine.accelerator.as_ref()).map(|gpu| (gpu.kind.clone(), gpu.count));
        let Some(Accelerator { r#type, count, .. }) = &self.accelerator else { return fixed };
        let count = count.or(fixed.as_ref().map(|(_, count)| *count)).unwrap_or(1);
        Some((r#type.clone(), count))
    }

    /// Returns the allocatable `nvidia.com/gpu` of a node: partitions and clients multiply the GPUs.
    pub fn allocatable_gpus(&self) -> u32 {
        let Some((r#type, count)) = self.gpus() else { return 0 };
        let Some(Accelerator { sharing, partition, .. }) = &self.accelerator else { return count };
        let gpu = catalog::accelerator(&r#type);
        let parts = partition.as_ref().and_then(|size| gpu?.mig.get(size).copied()).unwrap_or(1);
        count * parts * sharing.as_ref().map_or(1, |sharing| sharing.clients)
    }

    /// Returns the facts of the pool that other sections may use.
    pub fn facts(&self, key: &str) -> PoolFacts {
        PoolFacts {
            key: key.to_owned(),
            name: self.live_name(key).to_owned(),
            gpus: self.allocatable_gpus(),
            max_nodes: self.size().most(),
            hardware: format!(
                "{} {:?} {:?} {:?} {:?}",
                self.machine_type,
                self.gpus(),
                self.accelerator,
                self.driver,
                self.image_type
            ),
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            queued: self.serves_requests() != ServesRequests::Never,
            other_options: self.serves_requests() == ServesRequests::Perhaps,
        }
    }
}

/// Returns the initial nodes per zone of an autoscaled pool: its minimum divided by the zones, rounded down. With more, nodes
/// would be billed until the autoscaler deletes them, and their number may exceed its maximum.
pub fn first_nodes(min: u64, zones: u64) -> u64 {
    min / zones.max(1)
}

/// The number of zones that GKE chooses for a regional cluster without `zones`.
const ZONES_OF_A_REGION: u64 = 3;

/// Returns the number of nodes of an autoscaled pool to wait for: the initial one, as the autoscaler does not always bring a pool
/// up to its minimum (hashicorp/terraform-provider-google issue 8270).
pub fn certain_nodes(min: u64, zones: u64) -> u64 {
    min - min % if zones == 0 { ZONES_OF_A_REGION } else { zones }
}
