//! The node that GKE creates for a pool.

use std::collections::BTreeMap;
use std::fmt;

use model::catalog;
use serde_json::json;

use crate::admission::{Admission, RuntimeClass};
use crate::node::{Bound, Node};
use crate::resources::Amounts;
use crate::taints::{Taint, Toleration};
use crate::volumes::StorageClass;

mod disks;
pub mod pool;
mod sizes;
pub mod system;

use pool::{Arch, Driver, Features, Gpus, Image, Pool, Purchase, Strategy};
use sizes::Hardware;

/// Parts of a pool whose sizes this program does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// A machine type that is not in the catalog, or has no CPUs or memory there.
    Machine(String),
    /// A partition size (MIG) that is not in the catalog for the GPU type.
    Partition { kind: String, size: String },
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(name) => write!(f, "the sizes of the machine type {name} are not known"),
            Self::Partition { kind, size } => write!(f, "partitions {size} of {kind} are not known"),
        }
    }
}

impl std::error::Error for Unknown {}

/// Returns the node that GKE creates for a pool in a zone, with GKE's own pods, as it is once all agents have reported.
///
/// The real amounts may differ by `slack`: 1 % of the capacity, and the uncertainty of GKE's own pods. The labels of TPUs are
/// missing. Not modeled: nodes of GKE Sandbox on Intel processors, which have simultaneous multithreading off unless the pool
/// turns it on.
///
/// # Errors
/// The machine or the partition is not in the catalog.
pub fn template(pool: &Pool, zone: &str, features: Features) -> Result<Node, Unknown> {
    let mut node = node(pool, zone, &format!("{}-{zone}", pool.name), features)?;
    let system = system::on_each_node(pool, features);
    let capacity = capacity(pool)?;
    node.slack = Some(Amounts {
        cpu: capacity.cpu / 100 + system.iter().map(|pod| pod.cpu_slack).sum::<i64>(),
        memory: capacity.memory / 100 + system.iter().map(|pod| pod.memory_slack).sum::<i64>(),
        ephemeral_storage: capacity.ephemeral_storage / 100,
        ..Amounts::default()
    });
    for pod in system {
        node.bind(Bound::running(pod.requirements(vec![Toleration::everything()])));
    }
    Ok(node)
}

/// Returns the node of this name that GKE creates for a pool in a zone, without pods, as it is once all agents have reported.
///
/// # Errors
/// The machine or the partition is not in the catalog.
pub fn node(pool: &Pool, zone: &str, name: &str, features: Features) -> Result<Node, Unknown> {
    let hardware = Hardware::of(pool)?;
    let mut allocatable = hardware.allocatable();
    // The kubelet takes them off the memory for pods. Source: `MachineInfo` in `pkg/kubelet/nodestatus/setters.go` of Kubernetes 1.36.
    let huge_pages = pool.huge_pages.resources();
    allocatable.memory = (allocatable.memory - huge_pages.values().sum::<i64>()).max(0);
    allocatable.extended.extend(huge_pages);
    if let Some(gpus) = &pool.gpus {
        allocatable.extended.insert("nvidia.com/gpu".to_owned(), gpus.allocatable()?);
    }
    Ok(Node {
        name: name.to_owned(),
        labels: labels(pool, &hardware, zone, name, features),
        taints: taints(pool, hardware.arch),
        allocatable,
        ..Node::default()
    })
}

/// Returns the capacity that the kubelet of such a node reports, without GPUs.
///
/// # Errors
/// The machine is not in the catalog.
pub fn capacity(pool: &Pool) -> Result<Amounts, Unknown> {
    let mut capacity = Hardware::of(pool)?.capacity();
    capacity.extended.extend(pool.huge_pages.resources());
    Ok(capacity)
}

impl<'a> Hardware<'a> {
    fn of(pool: &'a Pool) -> Result<Self, Unknown> {
        let unknown = || Unknown::Machine(pool.machine_type.clone());
        let machine = catalog::machine(&pool.machine_type).ok_or_else(unknown)?;
        let (vcpus, gib) = machine.vcpus.zip(machine.memory_gb).ok_or_else(unknown)?;
        let halved = pool.threads_per_core == 1 && vcpus > 1 && has_threads(machine.series());
        Ok(Self {
            machine_type: &pool.machine_type,
            vcpus: if halved { vcpus / 2 } else { vcpus },
            memory: bytes(gib),
            disk: pool.disk_gib,
            local_ssds: pool.local_ssds,
            image: pool.image,
            arch: Arch::of(&pool.machine_type),
            max_pods: pool.max_pods,
        })
    }
}

/// Returns true for machines whose cores have two threads. Source: Compute Engine's pages "Set the number of threads per core" and
/// "CPU platforms": T2D, H3, H4D and all Arm processors have one.
fn has_threads(series: &str) -> bool {
    !matches!(series, "t2d" | "h3" | "h4d") && Arch::of(series) == Arch::Amd64
}

/// GKE's default storage class.
pub const DEFAULT_CLASS: &str = "standard-rwo";

/// Returns the storage classes that GKE creates. Source: `kubectl get storageclass` of clusters with and without the Filestore
/// driver, published since 2023.
pub fn storage_classes(features: Features) -> BTreeMap<String, StorageClass> {
    let class = |waits_for_pod| StorageClass { waits_for_pod, provisions: true, ..StorageClass::default() };
    let disks = [("premium-rwo", true), (DEFAULT_CLASS, true), ("standard", false)];
    let shares = ["enterprise-multishare-rwx", "enterprise-rwx", "premium-rwx", "standard-rwx", "zonal-rwx"];
    let shares = shares.into_iter().filter(|_| features.filestore_csi).map(|name| (name, true));
    disks.into_iter().chain(shares).map(|(name, waits)| (name.to_owned(), class(waits))).collect()
}

/// Returns the admission settings of GKE clusters. From memory: the RuntimeClass `gvisor` of GKE Sandbox, which is not published
/// anywhere, sends pods to the nodes that GKE labels and taints for it.
pub fn admission() -> Admission {
    let scheduling = json!({
        "nodeSelector": { GVISOR: "gvisor" },
        "tolerations": [{ "key": GVISOR, "operator": "Equal", "value": "gvisor", "effect": "NoSchedule" }],
    });
    let gvisor = RuntimeClass::read(&json!({ "scheduling": scheduling })).unwrap_or_default();
    Admission { runtime_classes: [("gvisor".to_owned(), gvisor)].into(), gke: true, ..Admission::default() }
}

/// The key of the label and the taint of nodes of GKE Sandbox.
const GVISOR: &str = "sandbox.gke.io/runtime";

#[expect(clippy::cast_possible_truncation, reason = "sizes of machines are far below 2^53 bytes")]
fn bytes(gib: f64) -> i64 {
    (gib * 1_073_741_824.0) as i64
}

impl Gpus {
    /// Returns the `nvidia.com/gpu` that a node has once its driver is installed: partitions and sharing clients multiply the
    /// GPUs.
    ///
    /// # Errors
    /// The number of such partitions per GPU is unknown.
    pub fn allocatable(&self) -> Result<i64, Unknown> {
        let parts = match &self.partition {
            None => 1,
            Some(size) => {
                let known = catalog::accelerator(&self.kind).and_then(|kind| kind.mig.get(size).copied());
                known.ok_or_else(|| Unknown::Partition { kind: self.kind.clone(), size: size.clone() })?
            }
        };
        let clients = self.sharing.map_or(1, |sharing| sharing.clients.max(1));
        Ok(i64::from(self.count) * i64::from(parts) * i64::from(clients))
    }
}

/// Returns the labels of a node: those of GKE and its cloud provider, then those of the pool. Source: the dump of GKE 1.36 (see
/// [`system`]), which does not show what `gke-cpu-scaling-level` counts for cores with one thread: CPUs are assumed. GPU labels
/// from GKE's pages on GPUs, and `gke-gpu` from the dump of GKE 1.31.
fn labels(
    pool: &Pool,
    hardware: &Hardware<'_>,
    zone: &str,
    name: &str,
    features: Features,
) -> BTreeMap<String, String> {
    let region = catalog::region_of(zone).unwrap_or(zone);
    let family = match pool.machine_type.split('-').next().unwrap_or_default() {
        "custom" => "n1",
        family => family,
    };
    let arch = hardware.arch.name();
    let os = match pool.image {
        Image::Cos => "cos",
        Image::Ubuntu => "ubuntu",
    };
    let provisioning = match pool.purchase {
        Purchase::Spot => "spot",
        Purchase::Preemptible => "preemptible",
        Purchase::OnDemand | Purchase::FlexStart | Purchase::Queued => "standard",
    };
    let (pods, cpus) = (pool.max_pods.to_string(), hardware.vcpus.to_string());
    let memory = (hardware.memory >> 30).to_string();
    let always = [
        ("beta.kubernetes.io/arch", arch),
        ("beta.kubernetes.io/instance-type", &pool.machine_type),
        ("beta.kubernetes.io/os", "linux"),
        ("cloud.google.com/gke-boot-disk", &pool.disk_type),
        ("cloud.google.com/gke-container-runtime", "containerd"),
        ("cloud.google.com/gke-cpu-scaling-level", &cpus),
        ("cloud.google.com/gke-logging-variant", "DEFAULT"),
        ("cloud.google.com/gke-max-pods-per-node", &pods),
        ("cloud.google.com/gke-memory-gb-scaling-level", &memory),
        ("cloud.google.com/gke-netd-ready", "true"),
        ("cloud.google.com/gke-nodepool", &pool.name),
        ("cloud.google.com/gke-os-distribution", os),
        ("cloud.google.com/gke-provisioning", provisioning),
        ("cloud.google.com/gke-stack-type", "IPV4"),
        ("cloud.google.com/machine-family", family),
        ("cloud.google.com/private-node", if pool.private_nodes { "true" } else { "false" }),
        ("failure-domain.beta.kubernetes.io/region", region),
        ("failure-domain.beta.kubernetes.io/zone", zone),
        ("kubernetes.io/arch", arch),
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", &pool.machine_type),
        ("topology.gke.io/zone", zone),
        ("topology.kubernetes.io/region", region),
        ("topology.kubernetes.io/zone", zone),
    ];
    let calico = features.network_policy && !features.dataplane_v2;
    let sometimes = [
        (pool.purchase == Purchase::Spot, "cloud.google.com/gke-spot", "true"),
        (pool.purchase == Purchase::Preemptible, "cloud.google.com/gke-preemptible", "true"),
        (pool.purchase == Purchase::FlexStart, "cloud.google.com/gke-flex-start", "true"),
        (pool.gvisor, GVISOR, "gvisor"),
        (pool.local_ssds > 0, "cloud.google.com/gke-ephemeral-storage-local-ssd", "true"),
        (features.workload_identity, "iam.gke.io/gke-metadata-server-enabled", "true"),
        (features.masquerade, "node.kubernetes.io/masq-agent-ds-ready", "true"),
        (features.node_local_dns, "addon.gke.io/node-local-dns-ds-ready", "true"),
        (calico, "projectcalico.org/ds-ready", "true"),
    ];
    let given = sometimes.iter().filter(|(is_set, ..)| *is_set).map(|(_, key, value)| (*key, *value));
    let mut all: BTreeMap<String, String> =
        always.into_iter().chain(given).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    all.extend(pool.gpus.iter().flat_map(gpu_labels));
    all.extend(disks::types(family).map(|kind| (format!("disk-type.gke.io/{kind}"), "true".to_owned())));
    all.extend(pool.labels.clone());
    all
}

fn gpu_labels(gpus: &Gpus) -> Vec<(String, String)> {
    let mut all = vec![("gke-accelerator", gpus.kind.clone()), ("gke-gpu", "true".to_owned())];
    let driver = match gpus.driver {
        Driver::Default => Some("default"),
        Driver::Latest => Some("latest"),
        Driver::None => None,
    };
    all.extend(driver.map(|driver| ("gke-gpu-driver-version", driver.to_owned())));
    all.extend(gpus.partition.clone().map(|size| ("gke-gpu-partition-size", size)));
    if let Some(sharing) = gpus.sharing {
        let strategy = match sharing.strategy {
            Strategy::TimeSharing => "time-sharing",
            Strategy::Mps => "mps",
        };
        all.push(("gke-gpu-sharing-strategy", strategy.to_owned()));
        all.push(("gke-max-shared-clients-per-gpu", sharing.clients.to_string()));
    }
    all.into_iter().map(|(key, value)| (format!("cloud.google.com/{key}"), value)).collect()
}

/// Returns the taints of a node: those of the pool, and those that GKE adds. Source: GKE's pages on GPUs, Spot VMs (tainted only
/// where GKE makes the pool), Arm nodes, GKE Sandbox, and queued provisioning. For flex-start, the pages show a label and no
/// taint, and no dump of such a node was found.
fn taints(pool: &Pool, arch: Arch) -> Vec<Taint> {
    let gpus = pool.gpus.is_some() && (pool.gpu_taint || pool.auto_provisioned);
    let rows = [
        (gpus, "nvidia.com/gpu", "present"),
        (pool.purchase == Purchase::Spot && pool.auto_provisioned, "cloud.google.com/gke-spot", "true"),
        (pool.purchase == Purchase::Queued, "cloud.google.com/gke-queued", "true"),
        (arch == Arch::Arm64 && pool.arch_taint, "kubernetes.io/arch", "arm64"),
        (pool.gvisor, GVISOR, "gvisor"),
    ];
    let mut all = pool.taints.clone();
    for (_, key, value) in rows.into_iter().filter(|(is_set, ..)| *is_set) {
        let taint = Taint::no_schedule(key, value);
        if !all.iter().any(|known| known.key == taint.key && known.effect == taint.effect) {
            all.push(taint);
        }
    }
    all
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
