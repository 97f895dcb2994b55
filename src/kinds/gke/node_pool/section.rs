//! What `[node_pool.NAME]` says.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::catalog;
use crate::kinds::json::is_false;
use crate::kinds::scope::{PoolFacts, Scope};
use crate::kinds::section::{LabelRules, Labels, Lifecycle, Live, Manage, Naming, Section};
use crate::kinds::short::{Accelerator, Nodes, Taint};

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
    /// Spot machines: cheaper, may be reclaimed at any time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub spot: bool,
    /// The Google service account of the nodes. Default: the project's default account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Whether GKE repairs broken nodes. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_repair: Option<bool>,
    /// Whether GKE upgrades nodes. Default true; must be true under a release channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_upgrade: Option<bool>,
    /// How upgrades roll: extra nodes, and nodes that may be missing. Default one extra, none missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surge: Option<Surge>,
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
    /// The API's name.
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
    fn is_managed(&self) -> bool {
        self.manage.is_managed()
    }

    fn depends_on(&self) -> &[String] {
        &self.lifecycle.depends_on
    }

    fn live<'a>(&'a self, key: &'a str) -> Option<Live<'a>> {
        Some(Live::new(self.name.as_deref(), key, Naming::Gke))
    }

    fn labels(&self) -> Vec<Labels<'_>> {
        // Those of others are as they are.
        if !self.is_managed() {
            return Vec::new();
        }
        vec![
            ("labels", &self.labels, LabelRules::Kubernetes),
            ("resource_labels", &self.resource_labels, LabelRules::Google),
        ]
    }
}

impl NodePool {
    /// How many nodes are wanted.
    pub fn size(&self) -> Nodes {
        self.nodes.unwrap_or_default()
    }

    /// How many nodes each zone begins with, as far as the file says; a plan knows the live zones.
    pub(super) fn first_nodes(&self, scope: &Scope) -> u64 {
        let own = u32::try_from(self.zones.len()).unwrap_or(1);
        let zones = u64::from(if own == 0 { scope.zones.max(1) } else { own });
        match self.size() {
            Nodes::Fixed(nodes) => u64::from(nodes) / zones,
            Nodes::Autoscaled { min, .. } => first_nodes(min.into(), zones),
        }
    }

    /// The pool's live name.
    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    /// Type and count of the GPUs of a node: what the file says, else what the machine type fixes.
    pub fn gpus(&self) -> Option<(String, u32)> {
        let machine = catalog::machine(&self.machine_type);
        let fixed =
            machine.and_then(|machine| machine.accelerator.as_ref()).map(|gpu| (gpu.kind.clone(), gpu.count));
        let Some(Accelerator { r#type, count, .. }) = &self.accelerator else { return fixed };
        let count = count.or(fixed.as_ref().map(|(_, count)| *count)).unwrap_or(1);
        Some((r#type.clone(), count))
    }

    /// Allocatable `nvidia.com/gpu` of a node: partitions and clients multiply the GPUs.
    pub fn allocatable_gpus(&self) -> u32 {
        let Some((r#type, count)) = self.gpus() else { return 0 };
        let Some(Accelerator { sharing, partition, .. }) = &self.accelerator else { return count };
        let gpu = catalog::accelerator(&r#type);
        let parts = partition.as_ref().and_then(|size| gpu?.mig.get(size).copied()).unwrap_or(1);
        count * parts * sharing.as_ref().map_or(1, |sharing| sharing.clients)
    }

    /// What neighbours may know.
    pub fn facts(&self, key: &str) -> PoolFacts {
        let nodes = match self.size() {
            Nodes::Fixed(nodes) => nodes,
            Nodes::Autoscaled { min, .. } => min,
        };
        PoolFacts {
            key: key.to_owned(),
            name: self.live_name(key).to_owned(),
            gpus: self.allocatable_gpus(),
            nodes,
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
        }
    }
}

/// Nodes in each zone that an autoscaled pool is made with: as many of its minimum as all zones can have. More would be
/// billed until the autoscaler takes them away, and may be more than its maximum.
pub fn first_nodes(min: u64, zones: u64) -> u64 {
    min / zones.max(1)
}

/// Zones of a regional cluster that leaves them to GKE.
const ZONES_OF_A_REGION: u64 = 3;

/// Nodes of an autoscaled pool that are waited for. The autoscaler does not always bring a pool up to its minimum
/// (hashicorp/terraform-provider-google issue 8270), so it is what the pool is made with.
pub(super) fn certain_nodes(min: u64, zones: u64) -> u64 {
    min - min % if zones == 0 { ZONES_OF_A_REGION } else { zones }
}
