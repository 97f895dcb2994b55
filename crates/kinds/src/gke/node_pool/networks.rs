//! Further networks of a pool's nodes and Pods.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::gke::field::as_u32;
use crate::json::text;

/// A further network of the nodes, which have a card of their own for it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeNetwork {
    /// The VPC network.
    pub network: String,
    /// Its subnetwork in the region.
    pub subnetwork: String,
}

impl NodeNetwork {
    pub(super) fn api(&self) -> Value {
        json!({ "network": self.network, "subnetwork": self.subnetwork })
    }

    pub(super) fn of(live: &Value) -> Self {
        let part = |name: &str| text(&live[name]).to_owned();
        Self { network: part("network"), subnetwork: part("subnetwork") }
    }
}

/// A further network of Pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PodNetwork {
    /// The subnetwork, which is that of one of the nodes' networks.
    pub subnetwork: String,
    /// The secondary range of that subnetwork which Pods have addresses of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// Pods of a node in this network at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pods_per_node: Option<u32>,
}

impl PodNetwork {
    pub(super) fn api(&self) -> Value {
        let Self { subnetwork, range, max_pods_per_node } = self;
        let mut network = json!({ "subnetwork": subnetwork });
        if let Some(range) = range {
            network["secondaryPodRange"] = json!(range);
        }
        if let Some(most) = max_pods_per_node {
            network["maxPodsPerNode"] = json!({ "maxPodsPerNode": most.to_string() });
        }
        network
    }

    pub(super) fn of(live: &Value) -> Self {
        let range = text(&live["secondaryPodRange"]);
        Self {
            subnetwork: text(&live["subnetwork"]).to_owned(),
            range: (!range.is_empty()).then(|| range.to_owned()),
            max_pods_per_node: as_u32(&live["maxPodsPerNode"]["maxPodsPerNode"]),
        }
    }
}

/// Returns a list; `None` if it is empty.
pub(super) fn to_json<N>(networks: &[N], api: fn(&N) -> Value) -> Option<Value> {
    (!networks.is_empty()).then(|| networks.iter().map(api).collect())
}

pub(super) fn import_all<N>(live: &Value, of: fn(&Value) -> N) -> Vec<N> {
    live.as_array().into_iter().flatten().map(of).collect()
}
