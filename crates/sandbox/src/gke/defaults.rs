//! Defaults that GKE fills in. Values are those of published exchanges with the real service (versions 1.33 to 1.36) and
//! of its documentation.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::facts::{FACTS, fill_sent, fill_unsent, overlay};
use super::ids::{hex, project_number};
use super::path::ClusterId;
use super::places;
use super::{derived_fields, machines, versions};
use crate::kube::object::{fill, text};
use fit::gke::pool::{Arch, Pool};

/// Scopes of nodes when nobody names any.
const SCOPES: &[&str] = &[
    "https://www.googleapis.com/auth/devstorage.read_only",
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/monitoring",
    "https://www.googleapis.com/auth/service.management.readonly",
    "https://www.googleapis.com/auth/servicecontrol",
    "https://www.googleapis.com/auth/trace.append",
];

/// Scopes of nodes that auto-provisioning makes.
const PROVISIONED_SCOPES: &[&str] =
    &["https://www.googleapis.com/auth/userinfo.email", "https://www.googleapis.com/auth/cloud-platform"];

const MONITORING: &str = "https://www.googleapis.com/auth/monitoring";

/// Scopes that allow a node to report.
const REPORTING: &[&str] = &[MONITORING, "https://www.googleapis.com/auth/cloud-platform"];

/// Pods of a cluster, when nobody names a range.
const PODS: &str = "10.112.0.0/14";
/// Services of a cluster, the range that GKE owns.
const SERVICES: &str = "34.118.224.0/20";

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

/// The project of a resource link, where that names one.
fn host_project(link: &str) -> Option<&str> {
    let (_, rest) = link.split_once("projects/")?;
    rest.split('/').next()
}

/// Fills in a NodePool message from what its cluster says: its version, zones and name.
pub(super) fn node_pool(pool: &mut Value, cluster: &Value, id: &ClusterId, now: Timestamp) {
    let version = match text(pool, "/version") {
        "" | "-" => text(cluster, "/currentMasterVersion").to_owned(),
        version => version.to_owned(),
    };
    pool["version"] = json!(version);
    node_config(&mut pool["config"], &version);
    if !text(cluster, "/workloadIdentityConfig/workloadPool").is_empty() {
        fill(&mut pool["config"], &json!({ "workloadMetadataConfig": { "mode": "GKE_METADATA" } }));
    }
    let name = text(pool, "/name").to_owned();
    let subnetwork = text(cluster, "/networkConfig/subnetwork");
    let pods = match text(cluster, "/clusterIpv4Cidr") {
        "" => PODS,
        pods => pods,
    };
    let range = match text(cluster, "/ipAllocationPolicy/clusterSecondaryRangeName") {
        "" => pod_range(id),
        range => range.to_owned(),
    };
    let mut defaults = json!({
        "locations": cluster["locations"],
        "management": { "autoRepair": true, "autoUpgrade": true },
        "maxPodsConstraint": cluster["defaultMaxPodsConstraint"],
        "networkConfig": {
            "networkTierConfig": { "networkTier": "NETWORK_TIER_DEFAULT" },
            "podIpv4CidrBlock": pods,
            "podRange": range,
            "subnetwork": subnetwork,
        },
        "podIpv4CidrSize": 24,
        "selfLink": format!("https://container.googleapis.com/v1/{}/nodePools/{name}", id.link()),
    });
    if cluster["networkConfig"]["defaultEnablePrivateNodes"] == true {
        defaults["networkConfig"]["enablePrivateNodes"] = json!(true);
    }
    fill_unsent(pool, &defaults, "");
    upgrade_settings(pool);
    autoscaling(pool);
    certificate(pool, now);
}

/// Returns true if GKE adds the nodes of a pool on request and removes them again.
fn is_short_lived(pool: &Value) -> bool {
    pool["queuedProvisioning"]["enabled"] == true || pool["config"]["flexStart"] == true
}

/// Naming one of the two numbers sets the other to 0.
pub(super) fn upgrade_settings(pool: &mut Value) {
    let says = pool["upgradeSettings"].as_object().is_some_and(|settings| !settings.is_empty());
    let mut defaults = match (is_short_lived(pool), says) {
        (true, _) => json!({ "strategy": "SHORT_LIVED" }),
        (false, true) => json!({ "strategy": "SURGE" }),
        (false, false) => json!({ "strategy": "SURGE", "maxSurge": 1 }),
    };
    if pool["upgradeSettings"]["strategy"] == "BLUE_GREEN" {
        defaults["blueGreenSettings"] = json!({ "nodePoolSoakDuration": "3600s" });
    }
    fill(&mut pool["upgradeSettings"], &defaults);
}

/// An autoscaler that is on has a policy; queued nodes come where they are to be had.
pub(super) fn autoscaling(pool: &mut Value) {
    if pool["autoscaling"]["enabled"] == true {
        let policy = if is_short_lived(pool) { "ANY" } else { "BALANCED" };
        fill(&mut pool["autoscaling"], &json!({ "locationPolicy": policy }));
    }
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
        .unwrap_or(if machines::takes_hyperdisk_only(machine) {
            "hyperdisk-balanced"
        } else {
            "pd-balanced"
        });
    let boot_size = text(config, "/bootDisk/sizeGb").parse().ok();
    let size = config["diskSizeGb"].as_i64().or(boot_size).unwrap_or(100);
    let defaults = json!({
        "machineType": machine,
        "diskType": disk_type,
        "diskSizeGb": size,
        "bootDisk": { "diskType": disk_type, "sizeGb": size.to_string() },
        "imageType": "COS_CONTAINERD",
        "oauthScopes": SCOPES,
        "metadata": { "disable-legacy-endpoints": "true" },
        "serviceAccount": "default",
        "shieldedInstanceConfig": { "enableIntegrityMonitoring": true },
        "kubeletConfig": { "insecureKubeletReadonlyPortEnabled": false, "maxParallelImagePulls": pulls(config) },
        "windowsNodeConfig": {},
        "effectiveCgroupMode": "EFFECTIVE_CGROUP_MODE_V2",
        "resourceLabels": { "goog-gke-node-pool-provisioning-model": provisioning_model(config) },
    });
    fill_unsent(config, &defaults, "config");
    fill_sent(config, &json!({ "confidentialNodes": { "confidentialInstanceType": "SEV" } }));
    if let Some(image) = config["imageType"].as_str().map(str::to_ascii_uppercase) {
        config["imageType"] = json!(image);
    }
    if versions::at_least(version, versions::DRIVERS_BY_DEFAULT) {
        driver(config);
    }
    node_image(config, version);
}

/// Nodes with local SSDs pull more images at a time (recorded on an n2 with one).
fn pulls(config: &Value) -> u32 {
    let local = [
        "/ephemeralStorageLocalSsdConfig/localSsdCount",
        "/localNvmeSsdBlockConfig/localSsdCount",
        "/localSsdCount",
    ];
    if local.iter().any(|place| config.pointer(place).is_some()) { 3 } else { 2 }
}

/// Sets the fields of a NodePool message that new nodes change.
pub(super) fn renew(pool: &mut Value, now: Timestamp) {
    let version = text(pool, "/version").to_owned();
    node_image(&mut pool["config"], &version);
    certificate(pool, now);
}

/// How long the certificate lasts with which nodes join: recorded as five years less a day.
const CERTIFICATE_DAYS: i64 = 5 * 365;

/// Nodes of some versions join with a certificate of their pool, which is made anew with them.
fn certificate(pool: &mut Value, now: Timestamp) {
    if versions::has_bootstrap_certificate(text(pool, "/version")) {
        let end = now.checked_add(SignedDuration::from_hours(24 * CERTIFICATE_DAYS)).unwrap_or(now);
        pool["kubeletCertInfo"] = json!({ "tpmBootstrapCertExpireTime": seconds(end) });
    } else {
        pool.as_object_mut().map(|map| map.remove("kubeletCertInfo"));
    }
}

/// The time without the fractions of its second.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// The image that nodes of this version boot; recorded for Container-Optimized OS only.
fn node_image(config: &mut Value, version: &str) {
    if config["imageType"] == "COS_CONTAINERD" {
        let image = versions::node_image(version);
        config["nodeImageConfig"] = json!({ "image": image, "imageProject": "gke-node-images" });
    } else {
        config.as_object_mut().map(|map| map.remove("nodeImageConfig"));
    }
}

/// The values for spot and flex-start are from memory.
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
    let entries = config.get_mut("accelerators").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        let version = text(entry, "/gpuDriverInstallationConfig/gpuDriverVersion");
        if matches!(version, "" | "GPU_DRIVER_VERSION_UNSPECIFIED") {
            entry["gpuDriverInstallationConfig"] = json!({ "gpuDriverVersion": "DEFAULT" });
        }
    }
}

/// Taints that GKE adds to a new pool. The GPU taint comes only when a pool without GPUs is there already,
/// and never later: so it depends on the order of creation. That of Arm machines comes unless the pool refuses it. Source:
/// terraform-google-modules/terraform-google-kubernetes-engine 703, and GKE's pages on queued provisioning and on Arm workloads.
pub(super) fn taints(pool: &mut Value, has_pool_without_gpu: bool) {
    let mut wanted = Vec::new();
    if has_gpu(pool) && has_pool_without_gpu {
        wanted.push(("nvidia.com/gpu", "present"));
    }
    if pool["queuedProvisioning"]["enabled"] == true {
        wanted.push(("cloud.google.com/gke-queued", "true"));
    }
    let read = Pool::read(pool);
    if read.arch_taint && Arch::of(&read.machine_type) == Arch::Arm64 {
        wanted.push(("kubernetes.io/arch", "arm64"));
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

/// Returns true if a NodePool message has accelerators.
pub(super) fn has_gpu(pool: &Value) -> bool {
    pool["config"]["accelerators"].as_array().is_some_and(|entries| !entries.is_empty())
}

/// Fills in a Cluster message; `version` is that of the control plane, `channel` its release channel.
pub(super) fn cluster(cluster: &mut Value, id: &ClusterId, version: &str, channel: &str) {
    let ClusterId { project, location, .. } = id;
    let region = places::region(location);
    // A shared VPC is another project's.
    let host = host_project(text(cluster, "/subnetwork")).or(host_project(text(cluster, "/network")));
    let host = host.unwrap_or(project).to_owned();
    let network = last_part(text(cluster, "/network")).to_owned();
    let subnetwork = last_part(text(cluster, "/subnetwork")).to_owned();
    cluster["network"] = json!(network);
    cluster["subnetwork"] = json!(subnetwork);
    let mut defaults = FACTS.cluster.clone();
    for row in FACTS.since.iter().filter(|row| versions::at_least(version, &row.version)) {
        overlay(&mut defaults, &row.cluster);
    }
    if cluster["autopilot"]["enabled"] == true {
        overlay(&mut defaults, &FACTS.autopilot);
    }
    defaults["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"] = json!(format!(
        "gke-{}-{}.{location}.gke.goog",
        hex(&["dns", &id.to_string()], 36),
        project_number(project),
    ));
    defaults["locations"] = json!(places::default_zones(location));
    defaults["networkConfig"]["network"] = json!(format!("projects/{host}/global/networks/{network}"));
    defaults["networkConfig"]["subnetwork"] =
        json!(format!("projects/{host}/regions/{region}/subnetworks/{subnetwork}"));
    cluster["releaseChannel"] =
        if channel == "UNSPECIFIED" { json!({}) } else { json!({ "channel": channel }) };
    derived_fields::sent(cluster);
    // Naming components means only those, and naming none switches the service off: gcloud's `--logging=NONE` sends an empty
    // `componentConfig`.
    for service in ["loggingConfig", "monitoringConfig"] {
        if cluster[service].get("componentConfig").is_some() {
            object(&mut defaults, service).remove("componentConfig");
        }
    }
    // Lists are replaced, not filled.
    fill_unsent(cluster, &defaults, "");
    overlay(cluster, &FACTS.forced);
    addresses(cluster, id);
    provisioning(&mut cluster["autoscaling"]);
    encryption(cluster, version);
    derived_fields::finish(cluster);
}

/// Sets the state of encryption. If the request asks for encrypted Secrets, 1.35 and later encrypt all objects (one recording).
pub(super) fn encryption(cluster: &mut Value, version: &str) {
    let (state, current) = match text(cluster, "/databaseEncryption/state") {
        "" | "DECRYPTED" => ("DECRYPTED", "CURRENT_STATE_DECRYPTED"),
        "ENCRYPTED" if !versions::at_least(version, "1.35.0") => ("ENCRYPTED", "CURRENT_STATE_ENCRYPTED"),
        _ => ("ALL_OBJECTS_ENCRYPTION_ENABLED", "CURRENT_STATE_ALL_OBJECTS_ENCRYPTION_ENABLED"),
    };
    cluster["databaseEncryption"]["state"] = json!(state);
    cluster["databaseEncryption"]["currentState"] = json!(current);
}

/// Ranges: VPC-native clusters take their pods from a secondary range, and the API repeats each range under
/// its old and new names.
fn addresses(cluster: &mut Value, id: &ClusterId) {
    // Clusters that use routes name their pods' range here.
    let routed = text(cluster, "/clusterIpv4Cidr").to_owned();
    let policy = object(cluster, "ipAllocationPolicy");
    policy.remove("createSubnetwork");
    if policy.get("useRoutes").is_none_or(|routes| routes == false) {
        // False comes back as true: routes have a field of their own.
        policy.insert("useIpAliases".into(), json!(true));
    }
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
    let pods = match routed.as_str() {
        "" => PODS,
        range => range,
    };
    let pods = range(["clusterIpv4CidrBlock", "clusterIpv4Cidr"], pods);
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
    let scopes = if enabled && given { PROVISIONED_SCOPES } else { SCOPES };
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
