//! The features of a cluster that add pods to every node, as a type of `fit`.

use serde_json::Value;

use crate::json::text;
use fit::gke::pool::Features;

/// Reads the features from the body of the request that makes a cluster, or from the live cluster. Missing fields have GKE's
/// default for Standard clusters: logs and metrics are collected.
pub fn features(body: &Value) -> Features {
    let collects = |config: &Value| {
        config["componentConfig"]["enableComponents"]
            .as_array()
            .is_none_or(|components| !components.is_empty())
    };
    let addon = |name: &str| body["addonsConfig"][name]["enabled"] == true;
    let components = body["monitoringConfig"]["componentConfig"]["enableComponents"].as_array();
    Features {
        dataplane_v2: body["networkConfig"]["datapathProvider"] == "ADVANCED_DATAPATH",
        network_policy: body["networkPolicy"]["enabled"] == true,
        workload_identity: !text(&body["workloadIdentityConfig"]["workloadPool"]).is_empty(),
        logging: collects(&body["loggingConfig"]),
        monitoring: collects(&body["monitoringConfig"]),
        managed_prometheus: body["monitoringConfig"]["managedPrometheusConfig"]["enabled"] != false,
        node_local_dns: addon("dnsCacheConfig"),
        gcs_fuse_csi: addon("gcsFuseCsiDriverConfig"),
        filestore_csi: addon("gcpFilestoreCsiDriverConfig"),
        parallelstore_csi: addon("parallelstoreCsiDriverConfig"),
        lustre_csi: addon("lustreCsiDriverConfig"),
        dcgm: components.is_none_or(|components| components.iter().any(|component| component == "DCGM")),
        ..Features::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn features_are_those_of_the_request() {
        let features = features(&json!({
            "networkConfig": { "datapathProvider": "ADVANCED_DATAPATH" },
            "workloadIdentityConfig": { "workloadPool": "p.svc.id.goog" },
            "loggingConfig": { "componentConfig": { "enableComponents": [] } },
            "addonsConfig": { "dnsCacheConfig": { "enabled": true } },
        }));
        let Features {
            dataplane_v2,
            network_policy,
            workload_identity,
            logging,
            monitoring,
            node_local_dns,
            ..
        } = features;
        assert_eq!((dataplane_v2, network_policy, workload_identity), (true, false, true));
        assert_eq!((logging, monitoring, node_local_dns), (false, true, true));
    }
}
