//! GKE node pools.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::compare::owned_labels;
use crate::address::{Address, FieldPath};
use crate::catalog;
use crate::kinds::json::is_false;
use crate::kinds::kind::{Compare, Kind};
use crate::kinds::scope::{PoolFacts, Scope};
use crate::kinds::section::{LabelRules, Labels, Lifecycle, Live, Manage, Naming, Section};
use crate::kinds::short::{Accelerator, DriverInstall, Nodes, SharingStrategy, Taint};
use crate::resource::{ClusterName, Identity, KindId, Life, Resource};

mod calls;
mod ready;
mod rules;

pub use calls::creation_body;
use calls::first_nodes;
pub(crate) use ready::{allocatable_gpus, conditions};
pub use ready::{live_gpus, summary};

/// GKE node pools.
pub const KIND: Kind = Kind {
    rank: 10,
    compare: Compare::Gke(rules::RULES),
    program: calls::program,
    queries: ready::queries,
    judge: ready::judge,
    says: ready::says,
    about: ready::about,
    scaled: ready::scaled,
    ..Kind::BARE
};

/// A GKE node pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct NodePool {
    /// The pool's live name; the section's key when missing.
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
    /// Zones of the pool; those of the cluster when missing.
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
    /// The boot disk's type. Default `pd-balanced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_type: Option<String>,
    /// The boot disk's size in GB. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 65536))]
    pub disk_size_gb: Option<u32>,
    /// The node image. Default `COS_CONTAINERD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_type: Option<String>,
    /// Spot machines: cheaper, may be taken away at any time.
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
    /// `false`: it exists and others own it. It is read, compared with what is said here and relied on, never
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

/// What `[node_pool.KEY]` becomes. What plans reason about is said explicitly, so that an offline plan
/// does not depend on a server's version.
pub fn lower(key: &str, section: &NodePool, cluster: &ClusterName, scope: &Scope) -> Resource {
    let name = section.live_name(key);
    let mut body = json!({
        "name": name,
        "config": config(section, scope),
        "management": {
            "autoRepair": section.auto_repair.unwrap_or(true),
            "autoUpgrade": section.auto_upgrade.unwrap_or(true),
        },
        "upgradeSettings": surge(section.surge),
    });
    let own = u32::try_from(section.zones.len()).unwrap_or(1);
    // As far as the file says; a plan knows the live ones.
    let places = if own == 0 { scope.zones.max(1) } else { own };
    match section.size() {
        Nodes::Fixed(nodes) => {
            body["nodeCount"] = json!(nodes);
            body["initialNodeCount"] = json!(nodes / places);
            body["autoscaling"] = json!({ "enabled": false });
        }
        Nodes::Autoscaled { min, max } => {
            body["initialNodeCount"] = json!(first_nodes(min.into(), max.into(), places.into()));
            body["autoscaling"] =
                json!({ "enabled": true, "totalMinNodeCount": min, "totalMaxNodeCount": max });
        }
    }
    if !section.zones.is_empty() {
        body["locations"] = json!(section.zones);
    }
    let origin = FieldPath::keys(["node_pool", key]);
    let gpus = if section.accelerator.is_some() { "accelerator" } else { "machine_type" };
    let places = [
        ("name", "name"),
        ("config.machineType", "machine_type"),
        ("config.accelerators", gpus),
        ("config.accelerators[0].gpuDriverInstallationConfig", "driver"),
        ("config.diskType", "disk_type"),
        ("config.diskSizeGb", "disk_size_gb"),
        ("config.imageType", "image_type"),
        ("config.labels", "labels"),
        ("config.taints", "taints"),
        ("config.tags", "tags"),
        ("config.resourceLabels", "resource_labels"),
        ("config.spot", "spot"),
        ("config.serviceAccount", "service_account"),
        ("management.autoRepair", "auto_repair"),
        ("management.autoUpgrade", "auto_upgrade"),
        ("upgradeSettings", "surge"),
        ("nodeCount", "nodes"),
        ("initialNodeCount", "nodes"),
        ("autoscaling", "nodes"),
        ("locations", "zones"),
    ];
    let mut follows: Vec<Address> = scope.inside();
    follows.extend(section.lifecycle.depends_on.iter().map(Address::new));
    Resource {
        address: Address::of("node_pool", key),
        identity: Identity::NodePool { cluster: cluster.clone(), pool: name.to_owned() },
        kind: KindId::NodePool,
        body,
        origins: places
            .iter()
            .map(|(field, key)| (field.parse().unwrap_or_default(), origin.key(key)))
            .collect(),
        origin,
        follows,
        protect: section.lifecycle.protect,
        life: Life::Kept,
        initial: Value::Null,
    }
}

/// What `[node_pool.KEY]` with `manage = false` says of a pool that others own: what is given, nothing else.
pub fn read(key: &str, section: &NodePool, cluster: &ClusterName, scope: &Scope) -> Resource {
    let mut resource = lower(key, section, cluster, scope);
    let whole = std::mem::take(&mut resource.body);
    let mut body = json!({ "name": whole["name"] });
    let given = [
        ("machineType", !section.machine_type.is_empty()),
        ("diskType", section.disk_type.is_some()),
        ("diskSizeGb", section.disk_size_gb.is_some()),
        ("imageType", section.image_type.is_some()),
        ("accelerators", section.gpus().is_some()),
        ("labels", !section.labels.is_empty()),
        ("taints", !section.taints.is_empty()),
        ("tags", !section.tags.is_empty()),
        ("spot", section.spot),
        ("serviceAccount", section.service_account.is_some()),
    ];
    for (field, _) in given.into_iter().filter(|(_, given)| *given) {
        body["config"][field] = whole["config"][field].clone();
    }
    let counted = section.accelerator.as_ref().is_none_or(|accelerator| accelerator.count.is_some());
    if !counted && let Some(accelerator) = body["config"]["accelerators"][0].as_object_mut() {
        accelerator.remove("acceleratorCount");
    }
    if section.driver.is_none() && body["config"]["accelerators"].is_array() {
        let accelerator = body["config"]["accelerators"][0].as_object_mut();
        accelerator.and_then(|fields| fields.remove("gpuDriverInstallationConfig"));
    }
    if !section.resource_labels.is_empty() {
        body["config"]["resourceLabels"] = json!(section.resource_labels);
    }
    match section.nodes {
        Some(Nodes::Fixed(_)) => body["nodeCount"] = whole["nodeCount"].clone(),
        Some(Nodes::Autoscaled { .. }) => body["autoscaling"] = whole["autoscaling"].clone(),
        None => {}
    }
    for (field, given) in [("autoRepair", section.auto_repair), ("autoUpgrade", section.auto_upgrade)] {
        if let Some(given) = given {
            body["management"][field] = json!(given);
        }
    }
    if section.surge.is_some() {
        body["upgradeSettings"] = whole["upgradeSettings"].clone();
    }
    if !section.zones.is_empty() {
        body["locations"] = whole["locations"].clone();
    }
    resource.body = body;
    resource
}

fn surge(given: Option<Surge>) -> Value {
    let Surge { max_surge, max_unavailable } = given.unwrap_or(Surge { max_surge: 1, max_unavailable: 0 });
    json!({ "maxSurge": max_surge, "maxUnavailable": max_unavailable, "strategy": "SURGE" })
}

fn config(section: &NodePool, scope: &Scope) -> Value {
    let mut config = json!({
        "machineType": section.machine_type,
        "diskType": section.disk_type.as_deref().unwrap_or("pd-balanced"),
        "diskSizeGb": section.disk_size_gb.unwrap_or(100),
        "imageType": section.image_type.as_deref().unwrap_or("COS_CONTAINERD"),
        "resourceLabels": owned_labels(&section.resource_labels, &scope.owner),
        "spot": section.spot,
    });
    if let Some(accelerator) = accelerator(section, scope.driver) {
        config["accelerators"] = json!([accelerator]);
    }
    if !section.labels.is_empty() {
        config["labels"] = json!(section.labels);
    }
    if !section.taints.is_empty() {
        config["taints"] = section.taints.iter().map(taint).collect();
    }
    if !section.tags.is_empty() {
        config["tags"] = json!(section.tags);
    }
    if let Some(account) = &section.service_account {
        // With an account of one's own, its roles decide what nodes may do; gcloud asks for this scope then.
        config["serviceAccount"] = json!(account);
        config["oauthScopes"] = json!(["https://www.googleapis.com/auth/cloud-platform"]);
    }
    config
}

fn taint(taint: &Taint) -> Value {
    let Taint { key, value, effect } = taint;
    json!({ "key": key, "value": value, "effect": effect.api() })
}

/// GKE 1.30.1 and later install a driver when nothing is said, and the installer DaemonSet then finds
/// nothing to do; so the version is always said.
fn accelerator(section: &NodePool, install: DriverInstall) -> Option<Value> {
    let (r#type, count) = section.gpus()?;
    let driver = match (install, section.driver) {
        (DriverInstall::Daemonset, _) => "INSTALLATION_DISABLED",
        (DriverInstall::Gke, Some(DriverVersion::Latest)) => "LATEST",
        (DriverInstall::Gke, Some(DriverVersion::Default) | None) => "DEFAULT",
    };
    let mut accelerator = json!({
        "acceleratorType": r#type,
        "acceleratorCount": count.to_string(),
        "gpuDriverInstallationConfig": { "gpuDriverVersion": driver },
    });
    if let Some(Accelerator { sharing, partition, .. }) = &section.accelerator {
        if let Some(partition) = partition {
            accelerator["gpuPartitionSize"] = json!(partition);
        }
        if let Some(sharing) = sharing {
            let strategy = match sharing.strategy {
                SharingStrategy::TimeSharing => "TIME_SHARING",
                SharingStrategy::Mps => "MPS",
            };
            accelerator["gpuSharingConfig"] = json!({ "gpuSharingStrategy": strategy, "maxSharedClientsPerGpu": sharing.clients.to_string() });
        }
    }
    Some(accelerator)
}
