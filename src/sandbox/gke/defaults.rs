//! What GKE fills in. Values are those of published exchanges with the real service (versions 1.30.5 and
//! 1.35.5) and of its documentation.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::ids::{hex, project_number};
use super::path::ClusterId;
use super::places;
use super::versions::{self, NEW_DEFAULTS};
use crate::sandbox::kube::object::{fill, text};

/// Scopes of nodes when nobody names any.
const SCOPES: &[&str] = &[
    "https://www.googleapis.com/auth/devstorage.read_only",
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/monitoring",
    "https://www.googleapis.com/auth/service.management.readonly",
    "https://www.googleapis.com/auth/servicecontrol",
    "https://www.googleapis.com/auth/trace.append",
];

/// Scopes of nodes that run as a named service account.
const ACCOUNT_SCOPES: &[&str] =
    &["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"];

const MONITORING: &str = "https://www.googleapis.com/auth/monitoring";

/// Scopes that allow a node to report.
const REPORTING: &[&str] = &[MONITORING, "https://www.googleapis.com/auth/cloud-platform"];

/// Pods of a cluster, when nobody names a range.
const PODS: &str = "10.112.0.0/14";
/// Services of a cluster, the range that GKE owns.
const SERVICES: &str = "34.118.224.0/20";

/// `cluster.toml`: what a Cluster message has that says nothing else.
static CLUSTER: LazyLock<Value> =
    LazyLock::new(|| toml::from_str(include_str!("cluster.toml")).unwrap_or_default());

/// The object at `key`, made when there is none.
pub(super) fn object<'v>(value: &'v mut Value, key: &str) -> &'v mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    let inner = &mut value[key];
    if !inner.is_object() {
        *inner = json!({});
    }
    match inner {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// The last part of a resource link; `default` for none.
fn last_part(link: &str) -> &str {
    match link.rsplit('/').next() {
        None | Some("") => "default",
        Some(last) => last,
    }
}

/// Fills in a NodePool message. `fallback` is what the cluster says: its version, zones and name.
pub(super) fn node_pool(pool: &mut Value, cluster: &Value, id: &ClusterId) {
    let version = match text(pool, "/version") {
        "" | "-" => text(cluster, "/currentMasterVersion").to_owned(),
        version => version.to_owned(),
    };
    pool["version"] = json!(version);
    node_config(&mut pool["config"], &version);
    let name = text(pool, "/name").to_owned();
    let subnetwork = text(cluster, "/networkConfig/subnetwork");
    let pods = match text(cluster, "/clusterIpv4Cidr") {
        "" => PODS,
        pods => pods,
    };
    let mut defaults = json!({
        "locations": cluster["locations"],
        "management": { "autoRepair": true, "autoUpgrade": true },
        "maxPodsConstraint": cluster["defaultMaxPodsConstraint"],
        "networkConfig": {
            "networkTierConfig": { "networkTier": "NETWORK_TIER_DEFAULT" },
            "podIpv4CidrBlock": pods,
            "podRange": pod_range(id),
            "subnetwork": subnetwork,
        },
        "podIpv4CidrSize": 24,
        "selfLink": format!("https://container.googleapis.com/v1/{}/nodePools/{name}", id.link()),
        "upgradeSettings": { "maxSurge": 1, "strategy": "SURGE" },
    });
    if pool["config"]["flexStart"] == true {
        defaults["upgradeSettings"] = json!({ "strategy": "SHORT_LIVED" });
    }
    if let Some(settings) = pool["upgradeSettings"].as_object()
        && !settings.is_empty()
    {
        // Naming one of the two numbers sets the other to 0.
        defaults["upgradeSettings"] = json!({ "strategy": defaults["upgradeSettings"]["strategy"] });
    }
    // Management is replaced as a whole: what was sent, also an empty message, stands.
    if pool["management"].is_object() {
        defaults["management"] = json!({});
    }
    fill(pool, &defaults);
}

fn pod_range(id: &ClusterId) -> String {
    format!("gke-{}-pods-{}", id.name, hex(&["cluster", &id.to_string()], 8))
}

/// Fills in a NodeConfig message of a node of this version.
fn node_config(config: &mut Value, version: &str) {
    let machine = match text(config, "/machineType") {
        "" => "e2-medium",
        machine => machine,
    };
    let disk_type = [text(config, "/diskType"), text(config, "/bootDisk/diskType")]
        .into_iter()
        .find(|disk| !disk.is_empty())
        .unwrap_or(if machine.starts_with("n4-") { "hyperdisk-balanced" } else { "pd-balanced" });
    let boot_size = text(config, "/bootDisk/sizeGb").parse().ok();
    let size = config["diskSizeGb"].as_i64().or(boot_size).unwrap_or(100);
    let account = text(config, "/serviceAccount");
    let scopes = if matches!(account, "" | "default") { SCOPES } else { ACCOUNT_SCOPES };
    let defaults = json!({
        "machineType": machine,
        "diskType": disk_type,
        "diskSizeGb": size,
        "bootDisk": { "diskType": disk_type, "sizeGb": size.to_string() },
        "imageType": "COS_CONTAINERD",
        "oauthScopes": scopes,
        "metadata": { "disable-legacy-endpoints": "true" },
        "serviceAccount": "default",
        "shieldedInstanceConfig": { "enableIntegrityMonitoring": true },
        "kubeletConfig": { "insecureKubeletReadonlyPortEnabled": false, "maxParallelImagePulls": 2 },
        "windowsNodeConfig": {},
        "effectiveCgroupMode": "EFFECTIVE_CGROUP_MODE_V2",
        "resourceLabels": { "goog-gke-node-pool-provisioning-model": provisioning_model(config) },
    });
    fill(config, &defaults);
    if let Some(image) = config["imageType"].as_str().map(str::to_ascii_uppercase) {
        config["imageType"] = json!(image);
    }
    if versions::at_least(version, versions::DRIVERS_BY_DEFAULT) {
        driver(config);
    }
}

/// The values for spot and flex-start are recalled.
fn provisioning_model(config: &Value) -> &'static str {
    match config {
        _ if config["flexStart"] == true => "flex-start",
        _ if config["spot"] == true => "spot",
        _ if config["preemptible"] == true => "preemptible",
        _ => "on-demand",
    }
}

/// An unset driver version is stored as DEFAULT, and GKE installs the driver.
fn driver(config: &mut Value) {
    for entry in config["accelerators"].as_array_mut().into_iter().flatten() {
        let version = text(entry, "/gpuDriverInstallationConfig/gpuDriverVersion");
        if matches!(version, "" | "GPU_DRIVER_VERSION_UNSPECIFIED") {
            entry["gpuDriverInstallationConfig"] = json!({ "gpuDriverVersion": "DEFAULT" });
        }
    }
}

/// Taints that GKE adds to a new pool. The GPU taint comes only when a pool without GPUs is there already,
/// and never later: so it depends on the order of creation.
pub(super) fn taints(pool: &mut Value, has_pool_without_gpu: bool) {
    let mut wanted = Vec::new();
    if has_gpu(pool) && has_pool_without_gpu {
        wanted.push(("nvidia.com/gpu", "present"));
    }
    if pool["queuedProvisioning"]["enabled"] == true {
        wanted.push(("cloud.google.com/gke-queued", "true"));
    }
    for (key, value) in wanted {
        let taint = json!({ "key": key, "value": value, "effect": "NO_SCHEDULE" });
        match &mut pool["config"]["taints"] {
            Value::Array(taints)
                if taints.iter().any(|known| known["key"] == key && known["effect"] == "NO_SCHEDULE") => {}
            Value::Array(taints) => taints.push(taint),
            other => *other = json!([taint]),
        }
    }
}

/// Whether a NodePool message has accelerators.
pub(super) fn has_gpu(pool: &Value) -> bool {
    pool["config"]["accelerators"].as_array().is_some_and(|entries| !entries.is_empty())
}

/// Fills in a Cluster message; `version` is that of the control plane, `channel` its release channel.
pub(super) fn cluster(cluster: &mut Value, id: &ClusterId, version: &str, channel: &str) {
    let ClusterId { project, location, .. } = id;
    let region = places::region(location);
    let network = last_part(text(cluster, "/network")).to_owned();
    let subnetwork = last_part(text(cluster, "/subnetwork")).to_owned();
    cluster["network"] = json!(network);
    cluster["subnetwork"] = json!(subnetwork);
    let mut defaults = CLUSTER.clone();
    defaults["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"] = json!(format!(
        "gke-{}-{}.{location}.gke.goog",
        hex(&["dns", &id.to_string()], 36),
        project_number(project),
    ));
    defaults["locations"] = json!(places::default_zones(location));
    defaults["networkConfig"]["network"] = json!(format!("projects/{project}/global/networks/{network}"));
    defaults["networkConfig"]["subnetwork"] =
        json!(format!("projects/{project}/regions/{region}/subnetworks/{subnetwork}"));
    defaults["releaseChannel"] = json!({ "channel": channel });
    if versions::at_least(version, NEW_DEFAULTS) {
        defaults["addonsConfig"]["dnsCacheConfig"] = json!({ "enabled": true });
        defaults["anonymousAuthenticationConfig"]["mode"] = json!("LIMITED");
    }
    // Lists are replaced, not filled: naming components means only those.
    fill(cluster, &defaults);
    addresses(cluster, id);
    provisioning(&mut cluster["autoscaling"]);
    maintenance(cluster);
}

/// Ranges: VPC-native clusters take their pods from a secondary range, and the API repeats each range under
/// its old and new names.
fn addresses(cluster: &mut Value, id: &ClusterId) {
    let policy = object(cluster, "ipAllocationPolicy");
    policy.insert("useIpAliases".into(), json!(true));
    let mut range = |names: [&str; 2], default: &str| -> String {
        let asked =
            names.iter().find_map(|name| policy.get(*name)).and_then(Value::as_str).unwrap_or_default();
        // A bare size asks GKE to choose the range.
        let chosen = match asked {
            "" => default.to_owned(),
            size if size.starts_with('/') => default.split('/').next().unwrap_or_default().to_owned() + size,
            range => range.to_owned(),
        };
        for name in names {
            policy.insert(name.into(), json!(chosen));
        }
        chosen
    };
    let pods = range(["clusterIpv4CidrBlock", "clusterIpv4Cidr"], PODS);
    let services = range(["servicesIpv4CidrBlock", "servicesIpv4Cidr"], SERVICES);
    fill(
        &mut cluster["ipAllocationPolicy"],
        &json!({
            "clusterSecondaryRangeName": pod_range(id),
            "networkTierConfig": { "networkTier": "NETWORK_TIER_DEFAULT" },
            "podCidrOverprovisionConfig": {},
            "stackType": "IPV4",
        }),
    );
    cluster["clusterIpv4Cidr"] = json!(pods);
    cluster["servicesIpv4Cidr"] = json!(services);
}

/// Fills in node auto-provisioning, also after an update of it.
pub(super) fn provisioning(autoscaling: &mut Value) {
    let enabled = autoscaling["enableNodeAutoprovisioning"] == true;
    let given = autoscaling["autoprovisioningNodePoolDefaults"].is_object();
    let scopes = if enabled && given { ACCOUNT_SCOPES } else { SCOPES };
    let mut defaults = json!({
        "imageType": "COS_CONTAINERD",
        "oauthScopes": scopes,
        "serviceAccount": "default",
    });
    let pool = object(autoscaling, "autoprovisioningNodePoolDefaults");
    if pool.get("minCpuPlatform").is_some_and(|platform| platform == "automatic") {
        pool.remove("minCpuPlatform");
    }
    if !pool.contains_key("management") {
        defaults["management"] = json!({ "autoRepair": true, "autoUpgrade": true });
    }
    if pool.contains_key("upgradeSettings") {
        defaults["upgradeSettings"] = json!({ "strategy": "SURGE" });
    }
    fill(
        autoscaling,
        &json!({ "autoprovisioningNodePoolDefaults": defaults, "autoscalingProfile": "BALANCED" }),
    );
    // While the cluster is monitored its nodes may report.
    if let Value::Array(scopes) = &mut autoscaling["autoprovisioningNodePoolDefaults"]["oauthScopes"]
        && !scopes.iter().filter_map(Value::as_str).any(|scope| REPORTING.contains(&scope))
    {
        scopes.push(json!(MONITORING));
    }
}

/// A maintenance window lasts four hours unless told otherwise; an empty window is none.
pub(super) fn maintenance(cluster: &mut Value) {
    let policy = object(cluster, "maintenancePolicy");
    if policy.get("window").is_some_and(|window| window.as_object().is_some_and(Map::is_empty)) {
        policy.remove("window");
    }
    if let Some(daily) = policy.get_mut("window").and_then(|window| window.get_mut("dailyMaintenanceWindow"))
    {
        fill(daily, &json!({ "duration": "PT4H0M0S" }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read() {
        assert_eq!(CLUSTER["shieldedNodes"]["enabled"], true);
    }
}
