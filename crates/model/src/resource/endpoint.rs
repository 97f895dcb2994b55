//! The endpoint of a control plane.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which endpoint of a GKE cluster's control plane is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// The DNS endpoint where it is the only way in, else the one that the API calls `endpoint`.
    #[default]
    Auto,
    /// The external IP address.
    Public,
    /// The internal IP address: from the cluster's network, or through a proxy there.
    Private,
    /// The name under `gke.goog`, with Google's own certificate.
    Dns,
}

impl Endpoint {
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}
