//! The settings of a node pool that determine which pods fit on its nodes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::json::list;
use crate::labels::labels;
use crate::taints::{Effect, Taint};

/// A node pool, with the settings that determine which pods fit. [`Pool::read`] reads a live pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Pool {
    pub name: String,
    /// `n1-standard-2`.
    pub machine_type: String,
    pub gpus: Option<Gpus>,
    /// `pd-balanced`.
    pub disk_type: String,
    /// The boot disk in GiB, which GKE's API calls GB.
    pub disk_gib: u32,
    /// The number of local SSDs that hold the scratch space of pods (`ephemeralStorageLocalSsdConfig`).
    pub local_ssds: u32,
    pub image: Image,
    /// Kubernetes labels of the pool.
    pub labels: BTreeMap<String, String>,
    /// Taints of the pool. They may include taints that GKE has added.
    pub taints: Vec<Taint>,
    pub purchase: Purchase,
    /// True if GKE has created the pool itself (node auto-provisioning).
    pub auto_provisioned: bool,
    /// True if GKE adds the taint `nvidia.com/gpu=present:NoSchedule`, should the pool have GPUs. GKE does so when it creates the pool,
    /// if the cluster has a pool without GPUs by then, and never later.
    ///
    /// Source: GKE's page "About GPUs in GKE", as quoted in terraform-google-modules/terraform-google-kubernetes-engine 703.
    pub gpu_taint: bool,
    /// True if GKE taints the pool's Arm nodes: `taintConfig.architectureTaintBehavior` is not `NONE`.
    pub arch_taint: bool,
    /// True if pods run in gVisor here (GKE Sandbox).
    pub gvisor: bool,
    /// True if its nodes have no external addresses.
    pub private_nodes: bool,
    pub max_pods: u32,
    /// Threads per core: 1 without simultaneous multithreading, 2 with it. No effect on machines whose cores have one thread.
    pub threads_per_core: u32,
    /// Huge pages that the kernel sets aside at boot.
    pub huge_pages: HugePages,
    /// The minor number of the nodes' Kubernetes version: 36 of `1.36.3-gke.1767000`. `None` if unknown.
    pub minor: Option<u32>,
}

/// Numbers of huge pages by their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Of 2 MiB.
    pub small: u32,
    /// Of 1 GiB.
    pub large: u32,
}

/// GPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpus {
    /// `nvidia-tesla-t4`.
    pub kind: String,
    /// GPUs of one node.
    pub count: u32,
    /// The size of partitions (MIG): `1g.5gb`.
    pub partition: Option<String>,
    pub sharing: Option<Sharing>,
    pub driver: Driver,
}

/// Several containers on one GPU, or on one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    pub strategy: Strategy,
    /// The maximum number of containers.
    pub clients: u32,
}

/// The sharing strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    TimeSharing,
    /// NVIDIA's Multi-Process Service.
    Mps,
}

/// The driver that GKE installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Default,
    Latest,
    /// None: something other than GKE installs the driver.
    None,
}

/// The operating system of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Container-Optimized OS.
    Cos,
    Ubuntu,
}

impl Image {
    /// Reads `imageType` of the API: `COS_CONTAINERD`, `UBUNTU_CONTAINERD`.
    pub fn of(image_type: &str) -> Self {
        if image_type.to_ascii_uppercase().starts_with("UBUNTU") { Self::Ubuntu } else { Self::Cos }
    }
}

/// The processor's architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// The architecture of a machine type, by its family: Tau T2A, C4A, N4A and A4X are ARM.
    pub fn of(machine_type: &str) -> Self {
        let family = machine_type.split('-').next().unwrap_or_default();
        if matches!(family, "t2a" | "c4a" | "n4a" | "a4x") { Self::Arm64 } else { Self::Amd64 }
    }

    /// The value of the label `kubernetes.io/arch`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// The provisioning model of the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purchase {
    OnDemand,
    Spot,
    Preemptible,
    FlexStart,
    /// Queued provisioning, on ProvisioningRequests (Dynamic Workload Scheduler).
    Queued,
}

/// Features of the cluster that run pods on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of GKE's own")]
pub struct Features {
    /// Dataplane V2: `anetd` in place of kube-proxy and Calico.
    pub dataplane_v2: bool,
    /// Network policies by Calico.
    pub network_policy: bool,
    /// Workload Identity: the metadata server of GKE.
    pub workload_identity: bool,
    /// Logs to Cloud Logging.
    pub logging: bool,
    /// Metrics to Cloud Monitoring.
    pub monitoring: bool,
    /// Google's managed Prometheus.
    pub managed_prometheus: bool,
    /// NodeLocal DNSCache.
    pub node_local_dns: bool,
    /// The agent that masquerades addresses.
    pub masquerade: bool,
    /// Volume drivers: Cloud Storage FUSE, Filestore, Parallelstore, Lustre.
    pub gcs_fuse_csi: bool,
    pub filestore_csi: bool,
    pub parallelstore_csi: bool,
    pub lustre_csi: bool,
    /// GPU metrics: `DCGM` is among the components of `monitoringConfig`.
    pub dcgm: bool,
}

impl Default for Features {
    /// Returns the features of a new Standard cluster with Workload Identity: no network policies, and only the volume driver for
    /// disks.
    fn default() -> Self {
        Self {
            dataplane_v2: false,
            network_policy: false,
            workload_identity: true,
            logging: true,
            monitoring: true,
            managed_prometheus: true,
            node_local_dns: false,
            masquerade: true,
            gcs_fuse_csi: false,
            filestore_csi: false,
            parallelstore_csi: false,
            lustre_csi: false,
            dcgm: true,
        }
    }
}

impl Features {
    /// Reads the features from the body of the request that creates a cluster, or from the live cluster. Missing fields have GKE's
    /// default for Standard clusters: logs and metrics are collected.
    pub fn read(cluster: &Value) -> Self {
        let collects = |config: &Value| {
            config["componentConfig"]["enableComponents"]
                .as_array()
                .is_none_or(|components| !components.is_empty())
        };
        let addon = |name: &str| cluster["addonsConfig"][name]["enabled"] == true;
        let components = cluster["monitoringConfig"]["componentConfig"]["enableComponents"].as_array();
        Self {
            dataplane_v2: cluster["networkConfig"]["datapathProvider"] == "ADVANCED_DATAPATH",
            network_policy: cluster["networkPolicy"]["enabled"] == true,
            workload_identity: cluster["workloadIdentityConfig"]["workloadPool"]
                .as_str()
                .is_some_and(|pool| !pool.is_empty()),
            logging: collects(&cluster["loggingConfig"]),
            monitoring: collects(&cluster["monitoringConfig"]),
            managed_prometheus: cluster["monitoringConfig"]["managedPrometheusConfig"]["enabled"] != false,
            node_local_dns: addon("dnsCacheConfig"),
            gcs_fuse_csi: addon("gcsFuseCsiDriverConfig"),
            filestore_csi: addon("gcpFilestoreCsiDriverConfig"),
            parallelstore_csi: addon("parallelstoreCsiDriverConfig"),
            lustre_csi: addon("lustreCsiDriverConfig"),
            dcgm: components.is_none_or(|components| components.iter().any(|component| component == "DCGM")),
            ..Self::default()
        }
    }
}

impl Pool {
    /// Returns a pool with GKE's defaults.
    pub fn new(name: &str, machine_type: &str) -> Self {
        Self {
            name: name.to_owned(),
            machine_type: machine_type.to_owned(),
            gpus: None,
            disk_type: "pd-balanced".to_owned(),
            disk_gib: 100,
            local_ssds: 0,
            image: Image::Cos,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            purchase: Purchase::OnDemand,
            auto_provisioned: false,
            gpu_taint: false,
            arch_taint: true,
            gvisor: false,
            private_nodes: false,
            max_pods: 110,
            threads_per_core: 2,
            huge_pages: HugePages::default(),
            minor: None,
        }
    }
}

/// Reading the pools of GKE's API.
impl Pool {
    /// Reads a NodePool. Absent fields get GKE's defaults. Taints that GKE has added are included.
    pub fn read(pool: &Value) -> Self {
        let config = &pool["config"];
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let disk = &config["bootDisk"];
        let taint = |taint: &Value| {
            let text = |key: &str| taint[key].as_str().unwrap_or_default().to_owned();
            let effect = Effect::of(&text("effect")).unwrap_or(Effect::NoSchedule);
            Taint { key: text("key"), value: text("value"), effect }
        };
        Self {
            gpus: list(&config["accelerators"]).first().map(Gpus::read),
            disk_type: text(&config["diskType"])
                .or_else(|| text(&disk["diskType"]))
                .unwrap_or_else(|| "pd-balanced".to_owned()),
            disk_gib: number(&config["diskSizeGb"]).or_else(|| number(&disk["sizeGb"])).unwrap_or(100),
            local_ssds: number(&config["ephemeralStorageLocalSsdConfig"]["localSsdCount"]).unwrap_or(0),
            image: Image::of(config["imageType"].as_str().unwrap_or_default()),
            labels: labels(&config["labels"]),
            taints: list(&config["taints"]).iter().map(taint).collect(),
            purchase: Purchase::read(pool),
            auto_provisioned: pool["autoscaling"]["autoprovisioned"] == true,
            arch_taint: config["taintConfig"]["architectureTaintBehavior"] != "NONE",
            gvisor: config["sandboxConfig"]["type"] == "GVISOR",
            private_nodes: pool["networkConfig"]["enablePrivateNodes"] == true,
            max_pods: number(&pool["maxPodsConstraint"]["maxPodsPerNode"]).unwrap_or(110),
            threads_per_core: number(&config["advancedMachineFeatures"]["threadsPerCore"]).unwrap_or(2),
            huge_pages: HugePages::read(&config["linuxNodeConfig"]["hugepages"]),
            minor: pool["version"].as_str().and_then(|version| version.split('.').nth(1)?.parse().ok()),
            ..Self::new(
                pool["name"].as_str().unwrap_or_default(),
                &text(&config["machineType"]).unwrap_or_else(|| "e2-medium".to_owned()),
            )
        }
    }
}

impl HugePages {
    fn read(pages: &Value) -> Self {
        let count = |key: &str| number(&pages[key]).unwrap_or(0);
        Self { small: count("hugepageSize2m"), large: count("hugepageSize1g") }
    }

    /// Returns the resources of a node with these pages, in bytes.
    pub fn resources(self) -> BTreeMap<String, i64> {
        let rows =
            [("hugepages-2Mi", i64::from(self.small) << 21), ("hugepages-1Gi", i64::from(self.large) << 30)];
        rows.into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| (name.to_owned(), bytes))
            .collect()
    }
}

impl Gpus {
    fn read(accelerator: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let shared = &accelerator["gpuSharingConfig"];
        let strategy = match shared["gpuSharingStrategy"].as_str() {
            Some("TIME_SHARING") => Some(Strategy::TimeSharing),
            Some("MPS") => Some(Strategy::Mps),
            _ => None,
        };
        let clients = number(&shared["maxSharedClientsPerGpu"]).unwrap_or(1);
        Self {
            kind: text(&accelerator["acceleratorType"]),
            count: number(&accelerator["acceleratorCount"]).unwrap_or(0),
            partition: Some(text(&accelerator["gpuPartitionSize"])).filter(|size| !size.is_empty()),
            sharing: strategy.map(|strategy| Sharing { strategy, clients }),
            driver: match accelerator["gpuDriverInstallationConfig"]["gpuDriverVersion"].as_str() {
                Some("DEFAULT") => Driver::Default,
                Some("LATEST") => Driver::Latest,
                _ => Driver::None,
            },
        }
    }
}

impl Purchase {
    fn read(pool: &Value) -> Self {
        let config = &pool["config"];
        let rows = [
            (&pool["queuedProvisioning"]["enabled"], Self::Queued),
            (&config["flexStart"], Self::FlexStart),
            (&config["spot"], Self::Spot),
            (&config["preemptible"], Self::Preemptible),
        ];
        rows.into_iter().find(|(is_set, _)| **is_set == true).map_or(Self::OnDemand, |(_, purchase)| purchase)
    }
}

/// Returns a number, which the API may write as a string.
fn number(value: &Value) -> Option<u32> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pools_of_the_api_are_read() {
        let gpu = json!({
            "acceleratorType": "nvidia-tesla-a100", "acceleratorCount": "2", "gpuPartitionSize": "1g.5gb",
            "gpuSharingConfig": { "gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": "3" },
            "gpuDriverInstallationConfig": { "gpuDriverVersion": "LATEST" },
        });
        let read = Pool::read(&json!({
            "name": "a100", "version": "1.36.3-gke.1767000", "maxPodsConstraint": { "maxPodsPerNode": "32" },
            "autoscaling": { "enabled": true, "autoprovisioned": true }, "networkConfig": { "enablePrivateNodes": true },
            "config": {
                "machineType": "a2-highgpu-2g", "bootDisk": { "diskType": "hyperdisk-balanced", "sizeGb": "200" }, "spot": true,
                "imageType": "UBUNTU_CONTAINERD", "labels": { "team": "ml" }, "accelerators": [gpu],
                "taints": [{ "key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE" }],
                "taintConfig": { "architectureTaintBehavior": "NONE" }, "sandboxConfig": { "type": "GVISOR" },
                "advancedMachineFeatures": { "threadsPerCore": "1" },
                "ephemeralStorageLocalSsdConfig": { "localSsdCount": 2 },
            },
        }));
        let expected = Pool {
            gpus: Some(Gpus {
                kind: "nvidia-tesla-a100".to_owned(),
                count: 2,
                partition: Some("1g.5gb".to_owned()),
                sharing: Some(Sharing { strategy: Strategy::TimeSharing, clients: 3 }),
                driver: Driver::Latest,
            }),
            disk_type: "hyperdisk-balanced".to_owned(),
            disk_gib: 200,
            local_ssds: 2,
            image: Image::Ubuntu,
            labels: [("team".to_owned(), "ml".to_owned())].into(),
            taints: vec![Taint::no_schedule("nvidia.com/gpu", "present")],
            purchase: Purchase::Spot,
            auto_provisioned: true,
            gpu_taint: false,
            arch_taint: false,
            gvisor: true,
            private_nodes: true,
            max_pods: 32,
            threads_per_core: 1,
            minor: Some(36),
            ..Pool::new("a100", "a2-highgpu-2g")
        };
        assert_eq!(read, expected);
        assert_eq!(Pool::read(&json!({ "name": "p" })), Pool::new("p", "e2-medium"));
        let queued = json!({ "queuedProvisioning": { "enabled": true }, "config": { "flexStart": true } });
        assert_eq!(Pool::read(&queued).purchase, Purchase::Queued);
    }
}
