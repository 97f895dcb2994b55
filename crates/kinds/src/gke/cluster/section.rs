//! Keys of `[cluster]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::keys::{Addons, Autoprovisioning, Maintenance, Networks};
use crate::gke::enums::{LogComponent, MetricComponent, SecurityPosture, VulnerabilityScanning};
use crate::json::is_false;
use crate::section::{LabelRules, Labels, LiveName, Manage, NameRule, Section};
use model::resource::Endpoint;

/// The GKE cluster. Its node pools are sections of their own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The cluster's name: at most 40 characters.
    pub name: String,
    /// Autopilot: GKE makes nodes for Pods and takes them away, in a region, without `[node_pool]`. Pods choose machines
    /// by `accelerator`, `spot` and `compute_class`. Default false; another value replaces the cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub autopilot: bool,
    /// `rapid`, `regular`, `stable` or `extended`; `none` for no channel. Default `regular`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_channel: Option<ReleaseChannel>,
    /// The control plane's version at least: `1.33`, or an exact one; an older cluster is upgraded. `latest` is for creation only.
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
    /// How this program reaches the control plane: `public` or `private` address, `dns` (a name under `gke.goog`, with
    /// a public certificate), or `auto`: `dns` where it is the only way in. Sets nothing in GKE. Default `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Google Cloud labels of the cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Nodes without addresses of their own on the internet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_nodes: Option<bool>,
    /// Networks that reach the control plane: `["10.0.0.0/8"]`, or a table of names and ranges. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorized_networks: Option<Networks>,
    /// True if the control plane has an address on the internet. Default: GKE's, which is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_endpoint: Option<bool>,
    /// True if IP addresses reach the control plane; false if only its DNS name does. Default: GKE's, which is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_endpoints: Option<bool>,
    /// True if the control plane's DNS name can be reached from outside the VPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_endpoint: Option<bool>,
    /// Addresses of Pods: the name of a secondary range of the subnetwork, a range (`10.4.0.0/14`) or its size (`/17`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_range: Option<String>,
    /// Addresses of Services, likewise. Default: a range of Google's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services_range: Option<String>,
    /// Pods are Google service accounts by themselves, in place of the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_identity: Option<bool>,
    /// Node pools that GKE makes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoprovisioning: Option<Autoprovisioning>,
    /// When GKE may upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
    /// True if nodes can have further networks (`additional_node_networks` of a pool). Needs `dataplane_v2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_networking: Option<bool>,
    /// GKE's data plane on eBPF, which enforces network policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataplane_v2: Option<bool>,
    /// Enforces network policies by Calico. Not with `dataplane_v2`, which does so by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<bool>,
    /// Addons of the cluster, by name: `{ gcs_fuse_csi = true }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addons: Option<Addons>,
    /// Components that write logs to Cloud Logging: `["system", "workloads"]`. Default: GKE's, which is these two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Vec<LogComponent>>,
    /// Components that send metrics to Cloud Monitoring: `["system", "dcgm"]`. Default: GKE's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<Vec<MetricComponent>>,
    /// Google's managed Prometheus. Default: GKE's, which is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_prometheus: Option<bool>,
    /// The Cloud KMS key that encrypts Secrets: `projects/P/locations/L/keyRings/R/cryptoKeys/K`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets_key: Option<String>,
    /// Nodes whose identity can be verified. Default: GKE's, which is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shielded_nodes: Option<bool>,
    /// Starts images only that the project's policy admits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_authorization: Option<bool>,
    /// Shows costs by namespace and label in billing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_allocation: Option<bool>,
    /// Recommends and sets requests of Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vertical_pod_autoscaling: Option<bool>,
    /// The level of GKE's checks of workloads: `"disabled"`, `"basic"` or `"enterprise"`. Default: GKE's, which is `basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_posture: Option<SecurityPosture>,
    /// Which packages GKE looks at for known vulnerabilities: `"disabled"`, `"basic"` or `"enterprise"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vulnerability_scanning: Option<VulnerabilityScanning>,
    /// The Pub/Sub topic that hears of upgrades: `projects/P/topics/T`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification_topic: Option<String>,
    /// The project whose fleet the cluster belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// Pods of a node at most, where a pool does not say. Default: GKE's, which is 110.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 8, max = 256))]
    pub max_pods_per_node: Option<u32>,
    /// Other fields of the API's `Cluster`, by its names: `addonsConfig = { gcsFuseCsiDriverConfig = { enabled = true } }`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub api: Map<String, Value>,
    /// `false`: it exists and is managed elsewhere. It is read, compared with this section and relied on, never
    /// written, labelled or deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// Refuses to delete or replace it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
}

impl Cluster {
    /// Returns true when GKE creates node pools by itself (node auto-provisioning).
    pub fn makes_pools(&self) -> bool {
        self.autoprovisioning.as_ref().is_some_and(Autoprovisioning::makes_pools)
    }
}

impl Section for Cluster {
    fn is_managed(&self) -> bool {
        self.manage.is_managed()
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(Some(&self.name), key, NameRule::Gke))
    }

    fn labels(&self) -> Vec<Labels<'_>> {
        vec![("labels", &self.labels, LabelRules::Google)]
    }
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

impl ReleaseChannel {
    /// Returns the API's name.
    pub(super) fn api(self) -> &'static str {
        match self {
            Self::Rapid => "RAPID",
            Self::Regular => "REGULAR",
            Self::Stable => "STABLE",
            Self::Extended => "EXTENDED",
            Self::None => "UNSPECIFIED",
        }
    }

    pub(super) fn of(api: &str) -> Self {
        let channels = [Self::Rapid, Self::Regular, Self::Stable, Self::Extended];
        channels.into_iter().find(|channel| channel.api() == api).unwrap_or(Self::None)
    }
}
