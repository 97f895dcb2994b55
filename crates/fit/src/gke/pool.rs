//! The settings of a node pool that decide on what its nodes take.

use std::collections::BTreeMap;

use crate::taints::Taint;

/// A node pool, as far as it decides on pods. `kinds` fills it from a section of the stack, or from a live pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    /// `n1-standard-2`.
    pub machine_type: String,
    pub gpus: Option<Gpus>,
    /// `pd-balanced`.
    pub disk_type: String,
    /// The boot disk in GiB, which GKE's API calls GB.
    pub disk_gib: u32,
    /// Local SSDs that are the scratch space of pods (`ephemeralStorageLocalSsdConfig`).
    pub local_ssds: u32,
    pub image: Image,
    /// Kubernetes labels of the pool.
    pub labels: BTreeMap<String, String>,
    /// Taints of the pool. Those that GKE has added may be among them.
    pub taints: Vec<Taint>,
    pub purchase: Purchase,
    /// True if GKE has made the pool by itself (node auto-provisioning).
    pub auto_provisioned: bool,
    /// True if GKE adds its taint to a pool with GPUs: see [`gpu_taints`].
    pub gpu_taint: bool,
    /// True if pods run in gVisor here (GKE Sandbox).
    pub gvisor: bool,
    pub max_pods: u32,
    /// Threads of a core: 1 without simultaneous multithreading, 2 with it.
    pub threads_per_core: u32,
    /// The minor number of the nodes' Kubernetes version: 36 of `1.36.3-gke.1767000`. `None` when it is not known.
    pub minor: Option<u32>,
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
    /// Containers at most.
    pub clients: u32,
}

/// The way of sharing.
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
    /// None: others install it.
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

/// The way in which machines are bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purchase {
    OnDemand,
    Spot,
    Preemptible,
    FlexStart,
    /// For requests (Dynamic Workload Scheduler).
    Queued,
}

/// Features of the cluster whose pods run on every node.
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
}

impl Default for Features {
    /// A new Standard cluster with Workload Identity, without network policies.
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
        }
    }
}

impl Pool {
    /// A pool with GKE's defaults.
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
            gvisor: false,
            max_pods: 110,
            threads_per_core: 2,
            minor: None,
        }
    }
}

/// Returns for each pool if GKE adds the taint `nvidia.com/gpu=present:NoSchedule` to it, given which of them have GPUs, in the order of
/// their creation. A pool with GPUs gets it when a pool without GPUs is there already, and never later.
///
/// Source: GKE's page "About GPUs in GKE", as quoted in terraform-google-modules/terraform-google-kubernetes-engine 703.
pub fn gpu_taints(have_gpus: &[bool]) -> Vec<bool> {
    let mut plain = false;
    let each = |has_gpus: &bool| {
        let tainted = *has_gpus && plain;
        plain |= !has_gpus;
        tainted
    };
    have_gpus.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gpu_taint_depends_on_the_order_of_pools() {
        assert_eq!(gpu_taints(&[false, true, true]), [false, true, true]);
        assert_eq!(gpu_taints(&[true, false, true]), [false, false, true]);
        assert_eq!(gpu_taints(&[true, true]), [false, false]);
    }
}
