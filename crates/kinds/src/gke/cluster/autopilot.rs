//! Autopilot clusters: their creation, and the settings that GKE decides.

use serde_json::{Value, json};

use super::section::{Cluster, ReleaseChannel};

/// Returns true if a cluster, desired or live, is an Autopilot cluster.
pub fn is_on(cluster: &Value) -> bool {
    cluster["autopilot"]["enabled"] == true
}

/// Returns the cluster of a request that creates it. `autopilot = false` is not sent, as it is GKE's default. The request for an
/// Autopilot cluster contains a pool, as in gcloud's requests; GKE uses only its labels.
pub(super) fn created(body: &Value) -> Value {
    let mut cluster = body.clone();
    if is_on(body) {
        let config = json!({ "resourceLabels": body["resourceLabels"] });
        // Its Pods have addresses of a range of the VPC network always.
        cluster["ipAllocationPolicy"]["useIpAliases"] = json!(true);
        cluster["nodePools"] = json!([{ "config": config, "initialNodeCount": 1, "name": "default-pool" }]);
        return cluster;
    }
    if needs_aliases(body) {
        cluster["ipAllocationPolicy"]["useIpAliases"] = json!(true);
    }
    let rest = cluster["autopilot"].as_object_mut().map(|autopilot| {
        autopilot.remove("enabled");
        autopilot.len()
    });
    if let (Some(0) | None, Some(fields)) = (rest, cluster.as_object_mut()) {
        fields.remove("autopilot");
    }
    cluster
}

/// Returns true if a new cluster sets fields that have an effect only in a VPC-native cluster, and does not set `useIpAliases`.
/// GKE's default may not be relied on for that: "This field is only applicable if `use_ip_aliases` is true" (googleapis
/// `cluster_service.proto`, IPAllocationPolicy), and gcloud takes `--default-max-pods-per-node` with `--enable-ip-alias` only.
/// For private nodes and Dataplane V2 the default is enough: Terraform's acceptance tests rely on it.
fn needs_aliases(cluster: &Value) -> bool {
    let policy = &cluster["ipAllocationPolicy"];
    let ranges = [
        "clusterIpv4CidrBlock",
        "clusterSecondaryRangeName",
        "servicesIpv4CidrBlock",
        "servicesSecondaryRangeName",
    ];
    let needs = ranges.iter().any(|range| !policy[*range].is_null())
        || !cluster["defaultMaxPodsConstraint"].is_null();
    needs && policy["useIpAliases"].is_null() && policy["useRoutes"] != true
}

/// A key of `[cluster]` that GKE manages in an Autopilot cluster. The section must not set it.
pub struct ManagedKey {
    /// The key; `addons.dns_cache` for a key of a table.
    pub key: &'static str,
    /// Returns true if a section sets something that GKE would refuse or ignore.
    pub is_set: fn(&Cluster) -> bool,
    /// GKE's behavior instead: the rest of a sentence that starts with "GKE".
    pub instead: &'static str,
}

/// Builds the row of an addon that is always on.
macro_rules! always_on {
    ($key:literal, $addon:ident) => {
        ManagedKey {
            key: $key,
            is_set: |cluster| cluster.addons.is_some_and(|addons| addons.$addon == Some(false)),
            instead: "has this addon on always",
        }
    };
}

/// Source: GKE's page "Compare GKE Autopilot and Standard", `conflicts` in `schemas/gke-fields.tsv`, and the flags that
/// `gcloud container clusters create-auto` lacks.
pub const MANAGED_KEYS: &[ManagedKey] = &[
    ManagedKey {
        key: "autoprovisioning",
        is_set: |cluster| cluster.autoprovisioning.is_some(),
        instead: "makes nodes for all Pods by itself, without limits of a cluster",
    },
    ManagedKey {
        key: "max_pods_per_node",
        is_set: |cluster| cluster.max_pods_per_node.is_some(),
        instead: "chooses how many Pods a node takes",
    },
    ManagedKey {
        key: "shielded_nodes",
        is_set: |cluster| cluster.shielded_nodes.is_some(),
        instead: "makes shielded nodes only",
    },
    ManagedKey {
        key: "network_policy",
        is_set: |cluster| cluster.network_policy.is_some(),
        instead: "enforces network policies by Dataplane V2",
    },
    ManagedKey {
        key: "dataplane_v2",
        is_set: |cluster| cluster.dataplane_v2 == Some(false),
        instead: "uses Dataplane V2 always",
    },
    ManagedKey {
        key: "workload_identity",
        is_set: |cluster| cluster.workload_identity == Some(false),
        instead: "uses workload identity always",
    },
    ManagedKey {
        key: "vertical_pod_autoscaling",
        is_set: |cluster| cluster.vertical_pod_autoscaling == Some(false),
        instead: "has vertical Pod autoscaling on always",
    },
    ManagedKey {
        key: "release_channel",
        is_set: |cluster| cluster.release_channel == Some(ReleaseChannel::None),
        instead: "keeps Autopilot clusters in a release channel",
    },
    always_on!("addons.http_load_balancing", http_load_balancing),
    always_on!("addons.horizontal_pod_autoscaling", horizontal_pod_autoscaling),
    always_on!("addons.dns_cache", dns_cache),
    always_on!("addons.persistent_disk_csi", persistent_disk_csi),
    always_on!("addons.filestore_csi", filestore_csi),
    always_on!("addons.gcs_fuse_csi", gcs_fuse_csi),
];

/// Paths that `api` cannot set, because GKE manages them in an Autopilot cluster.
pub const MANAGED_PATHS: &[&str] = &[
    "autoscaling",
    "defaultMaxPodsConstraint",
    "networkConfig.enableIntraNodeVisibility",
    "networkPolicy",
    "shieldedNodes",
];

/// Fields that GKE fills in. An import leaves them out. Sources: as above; responses from memory.
const FILLED_IN: &[&str] = &[
    "/addonsConfig/dnsCacheConfig",
    "/addonsConfig/gcePersistentDiskCsiDriverConfig",
    "/addonsConfig/gcpFilestoreCsiDriverConfig",
    "/addonsConfig/gcsFuseCsiDriverConfig",
    "/addonsConfig/networkPolicyConfig",
    "/addonsConfig/statefulHaConfig",
    "/autoscaling",
    "/defaultMaxPodsConstraint",
    "/networkConfig/datapathProvider",
    "/networkConfig/enableIntraNodeVisibility",
    "/networkConfig/gatewayApiConfig",
    "/networkPolicy",
    "/nodePoolDefaults",
    "/shieldedNodes",
    "/verticalPodAutoscaling",
    "/workloadIdentityConfig",
];

/// Returns a live Autopilot cluster without the fields that GKE decides.
pub fn chosen(live: &Value) -> Value {
    let mut live = live.clone();
    for pointer in FILLED_IN {
        let Some((above, last)) = pointer.rsplit_once('/') else { continue };
        if let Some(fields) = live.pointer_mut(above).and_then(Value::as_object_mut) {
            fields.remove(last);
        }
    }
    live
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_autopilot_cluster_says_so() {
        let labels = json!({ "a": "b" });
        let desired = json!({ "name": "c", "autopilot": { "enabled": true }, "resourceLabels": labels });
        let pool =
            json!({ "config": { "resourceLabels": labels }, "initialNodeCount": 1, "name": "default-pool" });
        let mut expect = desired.clone();
        expect["ipAllocationPolicy"] = json!({ "useIpAliases": true });
        expect["nodePools"] = json!([pool]);
        assert_eq!(created(&desired), expect);
        assert_eq!(
            created(&json!({ "name": "c", "autopilot": { "enabled": false } })),
            json!({ "name": "c" })
        );
        let policy = json!({ "workloadPolicyConfig": { "allowNetAdmin": true } });
        let mut given = policy.clone();
        given["enabled"] = json!(false);
        assert_eq!(created(&json!({ "autopilot": given })), json!({ "autopilot": policy }));
    }

    #[test]
    fn ranges_come_with_the_addresses_that_they_are_of() {
        let aliases = |body: &Value| created(body)["ipAllocationPolicy"]["useIpAliases"].clone();
        let range = json!({ "ipAllocationPolicy": { "clusterSecondaryRangeName": "pods" } });
        assert_eq!(aliases(&range), true);
        assert_eq!(aliases(&json!({ "defaultMaxPodsConstraint": { "maxPodsPerNode": "64" } })), true);
        assert_eq!(aliases(&json!({ "networkConfig": { "defaultEnablePrivateNodes": true } })), Value::Null);
        let routes = json!({ "ipAllocationPolicy": { "useRoutes": true, "clusterIpv4CidrBlock": "/17" } });
        assert_eq!(aliases(&routes), Value::Null);
    }

    #[test]
    fn what_gke_decides_is_not_chosen() {
        let live = json!({
            "name": "c", "autoscaling": { "enableNodeAutoprovisioning": true }, "shieldedNodes": { "enabled": true },
            "networkConfig": { "datapathProvider": "ADVANCED_DATAPATH", "network": "n" },
        });
        assert_eq!(chosen(&live), json!({ "name": "c", "networkConfig": { "network": "n" } }));
    }
}
