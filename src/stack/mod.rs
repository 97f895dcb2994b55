//! The stack file as a typed tree. Spans are not here: [`Sources`] finds the place of any field path,
//! at this stage and at every later one.
//!
//! Doc comments of sections and fields are what `schema`, editors and `docs/stack-reference.md` show.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod parse;
pub mod rules;
pub mod short;
pub mod sources;

pub use short::{Accelerator, Nodes, Sharing};
pub use sources::{Location, Sources, Span};

/// A stack: what should exist, from the GKE cluster down to the Dask workers and the checks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "dask-infra stack")]
pub struct Stack {
    /// Whose things these are.
    pub stack: Header,
    /// Where in Google Cloud. Give this or `[kubernetes]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gke: Option<Gke>,
    /// An existing Kubernetes cluster, by kubeconfig and context. Give this or `[gke]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// Values that other places use as `${var.NAME}`. A value here may use `${env.NAME}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, Scalar>,
    /// The GKE cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// GKE node pools, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_pool: BTreeMap<String, NodePool>,
    /// Kubernetes namespaces, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespace: BTreeMap<String, Namespace>,
    /// How the NVIDIA driver gets onto GPU nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_driver: Option<GpuDriver>,
    /// The Dask operator: its custom resource definitions, rights and Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dask_operator: Option<DaskOperator>,
    /// Dask clusters run by the operator, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dask_cluster: BTreeMap<String, DaskCluster>,
    /// Actions that must pass before what depends on them is made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub check: BTreeMap<String, Check>,
}

/// A value of `[vars]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Scalar(pub serde_json::Value);

/// Whose things these are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The owner of everything the stack makes: lower-case letters, digits and `-`, at most 40 characters.
    pub name: String,
    /// Tells two stacks of one name apart. Written by `init`; the name is used when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Where in Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gke {
    /// The project's id. `${env.NAME}` may be used here.
    pub project: String,
    /// A zone (`us-central1-c`) or a region (`us-central1`).
    pub location: String,
}

/// An existing Kubernetes cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    /// The kubeconfig file; `$KUBECONFIG`, then `~/.kube/config` when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    /// The context in it; the current one when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// The GKE cluster. Its node pools are sections of their own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The cluster's name: at most 40 characters.
    pub name: String,
    /// `rapid`, `regular`, `stable` or `extended`; `none` for no channel. Default `regular`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_channel: Option<ReleaseChannel>,
    /// The control plane's version when the cluster is made: `1.33`, `latest` or an exact one. Not compared later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Zones of the nodes, for a regional cluster or one with nodes in several zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The VPC network. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The subnetwork. Default: the network's own in the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnetwork: Option<String>,
    /// Google Cloud labels of the cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Refuses to delete or replace it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
}

/// A release channel of GKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseChannel {
    /// New versions first.
    Rapid,
    /// GKE's default.
    Regular,
    /// Versions that have stood in the regular channel.
    Stable,
    /// Stable with longer support.
    Extended,
    /// No channel: versions are moved by hand.
    None,
}

/// A GKE node pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodePool {
    /// The pool's live name; the section's key when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The Compute Engine machine type: `a2-highgpu-2g`, `n1-standard-2`.
    pub machine_type: String,
    /// GPUs: a type, or a table with `type`, `count`, `sharing` and `partition`. Follows from the machine type
    /// for A2, A3, A4, G2 and G4 machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// Which NVIDIA driver GKE installs here: `default` or `latest`. Only with `[gpu_driver] install = "gke"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverVersion>,
    /// Nodes in all zones together (a multiple of the zones), or `{ min = 0, max = 4 }` to autoscale. Default 1.
    #[serde(default)]
    pub nodes: Nodes,
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
    /// Refuses to delete or replace it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
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

/// A taint of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value; empty when missing.
    #[serde(default)]
    pub value: String,
    /// What happens to pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods are kept away.
    NoSchedule,
    /// New pods are kept away when there is another place.
    PreferNoSchedule,
    /// Running pods are evicted as well.
    NoExecute,
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

/// A Kubernetes namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// The live name; the section's key when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Refuses to delete it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

/// How the NVIDIA driver gets onto GPU nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuDriver {
    /// `gke`: GKE installs it. `daemonset`: the installer DaemonSet for Container-Optimized OS does, and the
    /// pools say `INSTALLATION_DISABLED` so that it has something to do. Default `gke`.
    #[serde(default)]
    pub install: DriverInstall,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

/// Who installs the NVIDIA driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriverInstall {
    /// GKE itself, as part of the node pool.
    #[default]
    Gke,
    /// The installer DaemonSet `kube-system/nvidia-driver-installer`.
    Daemonset,
}

/// The Dask operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaskOperator {
    /// The operator's release: `2026.3.0`.
    pub version: String,
    /// Where it runs. Default `dask-operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The controller's image; the release's own when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Refuses to delete it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

/// A Dask cluster run by the operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaskCluster {
    /// The live name, at most 53 characters; the section's key when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image of scheduler and workers; clients should use the same.
    pub image: String,
    /// The scheduler.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// The default group of workers.
    #[serde(default)]
    pub worker: Worker,
    /// Seconds without work after which the operator deletes the whole cluster. 0, the default, is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u32>,
    /// How the scheduler is reached. Default `ClusterIP`. A Dask scheduler runs anyone's code.
    #[serde(default)]
    pub service: ServiceType,
    /// Labels; the operator copies them to everything it makes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations; the operator copies them to everything it makes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Refuses to delete or replace it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

/// The kind of Service in front of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ServiceType {
    /// Reached from inside the Kubernetes cluster only.
    #[default]
    ClusterIP,
    /// A port on every node.
    NodePort,
    /// A load balancer inside the VPC network.
    LoadBalancer,
}

/// The scheduler of a Dask cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// Where it runs and with what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub gpus: Option<u32>,
    /// CPUs, as a Kubernetes quantity: `"2"`, `"500m"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory, as a Kubernetes quantity: `"8Gi"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The node pool it must run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The node pool it runs on when there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_pool: Option<String>,
    /// Arguments of the image's entry point. Default `dask scheduler`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The default group of workers of a Dask cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// How many. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10000))]
    pub replicas: u32,
    /// GPUs of each worker. With GPUs the worker is `dask cuda worker`. One GPU a worker keeps scale-down exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub gpus: Option<u32>,
    /// CPUs, as a Kubernetes quantity: `"2"`, `"500m"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory, as a Kubernetes quantity: `"8Gi"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The node pool they must run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The node pool they run on when there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_pool: Option<String>,
    /// Arguments of the image's entry point. Default `dask cuda worker --name $(DASK_WORKER_NAME)` with GPUs,
    /// `dask worker --name $(DASK_WORKER_NAME)` without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            replicas: 1,
            gpus: None,
            cpu: None,
            memory: None,
            pool: None,
            prefer_pool: None,
            args: Vec::new(),
            env: BTreeMap::new(),
        }
    }
}

/// An action that must pass before what depends on it is made. It runs when its pool, the driver or its own text
/// changed, or when no pass of it is recorded.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What to run.
    pub run: CheckRun,
    /// The node pool to run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The namespace of its Pod. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image, when the check's own does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

/// What a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckRun {
    /// NVIDIA's vector addition sample on one GPU; its log must say `Test PASSED`.
    CudaVectoradd,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
