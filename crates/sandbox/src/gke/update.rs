//! `clusters.update`: one change a request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::errors::Refusal;
use super::operations::{Effect, Kind, Scope};
use super::path::ClusterId;
use super::requests::{Answer, Context, changes};
use super::state::{Cluster, Gke, Pool};
use super::{checks, clusters, defaults, derived_fields, pools, versions};
use crate::kube::object::text;

/// Fields of an update that say where, not what.
const ADDRESSING: &[&str] = &["desiredNodePoolId", "etag"];

/// Fields that one request may carry together, because they are one change.
const TOGETHER: &[&[&str]] = &[
    &["desiredLoggingService", "desiredMonitoringService", "desiredLoggingConfig", "desiredMonitoringConfig"],
    &["desiredNodePoolAutoConfigNetworkTags", "desiredNodePoolAutoConfigResourceManagerTags"],
    &["desiredNodePoolAutoConfigKubeletConfig", "desiredNodeKubeletConfig"],
    &["desiredImageType", "desiredNodeVersion"],
];

/// Where a desired field goes when it is not the field of the same name without `desired`.
const PLACES: &[(&str, &str)] = &[
    ("desiredAdditionalIpRangesConfig", "/ipAllocationPolicy"),
    ("desiredClusterAutoscaling", "/autoscaling"),
    ("desiredDefaultSnatStatus", "/networkConfig/defaultSnatStatus"),
    ("desiredDatapathProvider", "/networkConfig/datapathProvider"),
    ("desiredDefaultEnablePrivateNodes", "/networkConfig/defaultEnablePrivateNodes"),
    ("desiredDnsConfig", "/networkConfig/dnsConfig"),
    ("desiredEnableCiliumClusterwideNetworkPolicy", "/networkConfig/enableCiliumClusterwideNetworkPolicy"),
    ("desiredEnableFqdnNetworkPolicy", "/networkConfig/enableFqdnNetworkPolicy"),
    ("desiredEnableMultiNetworking", "/networkConfig/enableMultiNetworking"),
    ("desiredEnablePrivateEndpoint", "/privateClusterConfig/enablePrivateEndpoint"),
    ("desiredGatewayApiConfig", "/networkConfig/gatewayApiConfig"),
    ("desiredGcfsConfig", "/nodePoolDefaults/nodeConfigDefaults/gcfsConfig"),
    ("desiredContainerdConfig", "/nodePoolDefaults/nodeConfigDefaults/containerdConfig"),
    ("desiredIntraNodeVisibilityConfig", "/networkConfig/enableIntraNodeVisibility"),
    ("desiredInTransitEncryptionConfig", "/networkConfig/inTransitEncryptionConfig"),
    ("desiredL4ilbSubsettingConfig", "/networkConfig/enableL4ilbSubsetting"),
    ("desiredDisableL4LbFirewallReconciliation", "/networkConfig/disableL4LbFirewallReconciliation"),
    ("desiredNetworkPerformanceConfig", "/networkConfig/networkPerformanceConfig"),
    ("desiredNodeKubeletConfig", "/nodePoolDefaults/nodeConfigDefaults/nodeKubeletConfig"),
    ("desiredNodePoolAutoConfigKubeletConfig", "/nodePoolAutoConfig/nodeKubeletConfig"),
    ("desiredNodePoolAutoConfigLinuxNodeConfig", "/nodePoolAutoConfig/linuxNodeConfig"),
    ("desiredNodePoolAutoConfigNetworkTags", "/nodePoolAutoConfig/networkTags"),
    ("desiredNodePoolAutoConfigResourceManagerTags", "/nodePoolAutoConfig/resourceManagerTags"),
    ("desiredNodePoolLoggingConfig", "/nodePoolDefaults/nodeConfigDefaults/loggingConfig"),
    ("desiredPrivateIpv6GoogleAccess", "/networkConfig/privateIpv6GoogleAccess"),
    ("desiredResourceUsageExportConfig", "/resourceUsageExportConfig"),
    ("desiredServiceExternalIpsConfig", "/networkConfig/serviceExternalIpsConfig"),
    ("desiredStackType", "/ipAllocationPolicy/stackType"),
    ("desiredWorkloadIdentityConfig", "/workloadIdentityConfig"),
    ("desiredAutopilotWorkloadPolicyConfig", "/autopilot/workloadPolicyConfig"),
];

/// Ranges of pods beside the cluster's own. Those that are removed go by their names.
const POD_RANGES: &str = "/ipAllocationPolicy/additionalPodRangesConfig/podRangeNames";

/// Messages that keep what the update does not name, down to so many levels; all others are replaced. An addon
/// that is named is replaced as a whole (recorded); of the endpoints' fields those with presence are.
const MERGED: &[(&str, u32)] = &[
    ("desiredAddonsConfig", 1),
    ("desiredAdditionalIpRangesConfig", 1),
    ("desiredMonitoringConfig", 1),
    ("desiredControlPlaneEndpointsConfig", 2),
    ("desiredSecurityPostureConfig", 1),
];

impl Gke {
    pub(super) fn update_cluster(&mut self, context: &Context<'_>, id: &ClusterId, request: Value) -> Answer {
        let cluster = self.require(id)?;
        let update = &request["update"];
        clusters::cluster_etag(cluster, text(update, "/etag"))?;
        let fields = fields(update)?;
        let pool = text(update, "/desiredNodePoolId").to_owned();
        let planned = plan(self, cluster, id, &pool, &fields)?;
        self.admit(id, &planned.scope)?;
        let Planned { kind, scope, nodes, surge, effect } = planned;
        Ok(self.start(context, id, kind, scope, (nodes, surge), effect))
    }
}

/// The desired fields of an update: at least one, and of one change only.
fn fields(update: &Value) -> Result<Vec<(&str, &Value)>, Refusal> {
    let fields = changes(update, ADDRESSING);
    let Some((first, _)) = fields.first() else {
        return Err(Refusal::invalid("Must specify a field to update."));
    };
    let group = TOGETHER.iter().find(|group| group.contains(first));
    for (other, _) in &fields[1..] {
        if !group.is_some_and(|group| group.contains(other)) {
            return Err(Refusal::invalid(format!(
                "Exactly one update can be applied to a cluster with each request: found {first} and {other}."
            )));
        }
    }
    Ok(fields)
}

struct Planned {
    kind: Kind,
    scope: Scope,
    nodes: u32,
    surge: u32,
    effect: Effect,
}

fn plan(
    gke: &Gke,
    cluster: &Cluster,
    id: &ClusterId,
    pool: &str,
    fields: &[(&str, &Value)],
) -> Result<Planned, Refusal> {
    let mut body = cluster.body.clone();
    let mut planned = Planned {
        kind: Kind::UpdateCluster,
        scope: Scope::Cluster,
        nodes: 0,
        surge: 1,
        effect: Effect::Phase,
    };
    let mut changed = BTreeMap::new();
    for (key, value) in fields {
        match *key {
            "desiredNodePoolAutoscaling" | "desiredNodeVersion" | "desiredImageType" => {
                for member in planned_pools(gke, cluster, id, pool)? {
                    // Version and image may come in one request.
                    let after = changed.entry(member.name.clone()).or_insert_with(|| member.body.clone());
                    pool_field(after, key, value, cluster)?;
                    checks::pool(after, id, cluster.channel(), cluster.master())?;
                    planned.surge = pools::surge(after);
                }
                if *key != "desiredNodePoolAutoscaling" {
                    planned.kind = Kind::UpgradeNodes;
                }
                if !pool.is_empty() && pool != "-" {
                    planned.scope = Scope::Pool(pool.to_owned());
                }
            }
            "desiredLocations" => {
                checks::zones(&json!({ "locations": value }), id)?;
                body["locations"] = (*value).clone();
                for member in &cluster.pools {
                    let mut after = member.body.clone();
                    after["locations"] = (*value).clone();
                    changed.insert(member.name.clone(), after);
                }
            }
            "desiredMasterVersion" => {
                planned.kind = Kind::UpgradeMaster;
                body["currentMasterVersion"] = json!(master_version(value, cluster)?);
            }
            "additionalPodRangesConfig" | "removedAdditionalPodRangesConfig" => {
                pod_ranges(&mut body, key, value);
            }
            _ => store(&mut body, key, value),
        }
    }
    derived_fields::updated(&mut body, &cluster.body);
    if planned.kind == Kind::UpgradeNodes {
        let rolled = cluster.pools.iter().filter(|pool| changed.contains_key(&pool.name));
        planned.nodes = rolled.map(Pool::nodes).sum();
    }
    let cluster_body = (planned.scope == Scope::Cluster).then_some(body);
    planned.effect = Effect::Bodies { cluster: cluster_body, pools: changed.into_iter().collect() };
    Ok(planned)
}

/// The pools that an update means: the named one, or all.
fn planned_pools<'c>(
    gke: &'c Gke,
    cluster: &'c Cluster,
    id: &ClusterId,
    pool: &str,
) -> Result<Vec<&'c Pool>, Refusal> {
    match pool {
        "" | "-" => Ok(cluster.pools.iter().collect()),
        _ => Ok(vec![gke.require_pool(id, pool)?.1]),
    }
}

fn pool_field(after: &mut Value, key: &str, value: &Value, cluster: &Cluster) -> Result<(), Refusal> {
    match key {
        "desiredNodePoolAutoscaling" if value["enabled"] == true => {
            after["autoscaling"] = value.clone();
            defaults::autoscaling(after);
        }
        "desiredNodePoolAutoscaling" => {
            after.as_object_mut().map(|map| map.remove("autoscaling"));
        }
        "desiredImageType" => {
            after["config"]["imageType"] = json!(value.as_str().unwrap_or_default().to_ascii_uppercase());
        }
        _ => after["version"] = json!(pools::node_version(value, cluster)?),
    }
    Ok(())
}

fn master_version(value: &Value, cluster: &Cluster) -> Result<&'static str, Refusal> {
    let asked = value.as_str().unwrap_or_default();
    let (channel, current) = (cluster.channel(), cluster.master());
    let refuse = |text: String| Err(Refusal::invalid(text));
    match versions::resolve(asked, channel) {
        None => refuse(format!("Master version \"{asked}\" is unsupported.")),
        Some(version) if versions::compare(version, current).is_lt() => {
            refuse(format!("Master cannot be downgraded: {current} to {version}."))
        }
        Some(version) => Ok(version),
    }
}

/// Adds ranges by name, or takes them away.
fn pod_ranges(body: &mut Value, key: &str, value: &Value) {
    let names = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let asked = names(value.get("podRangeNames"));
    let mut after = names(body.pointer(POD_RANGES));
    after.retain(|name| !asked.contains(name));
    if key == "additionalPodRangesConfig" {
        after.extend(asked);
    }
    defaults::object(&mut body["ipAllocationPolicy"], "additionalPodRangesConfig")
        .insert("podRangeNames".into(), after.into());
}

/// Puts what `before` has and `after` has not into `after`, for so many levels of objects.
fn keep(after: &mut Value, before: &Value, levels: u32) {
    let (Some(map), Some(before)) = (after.as_object_mut(), before.as_object()) else { return };
    for (key, value) in before {
        match map.get_mut(key) {
            Some(inner) if levels > 1 => keep(inner, value, levels - 1),
            Some(_) => {}
            None => drop(map.insert(key.clone(), value.clone())),
        }
    }
}

/// A block of settings goes where its name says.
fn store(body: &mut Value, key: &str, value: &Value) {
    let value = match key {
        "desiredIntraNodeVisibilityConfig" => json!(value["enabled"] == true),
        "desiredL4ilbSubsettingConfig" => json!(value["enabled"] == true),
        _ => value.clone(),
    };
    let place = PLACES.iter().find(|(name, _)| *name == key).map(|(_, place)| (*place).to_owned());
    let place = place.unwrap_or_else(|| {
        let name = key.strip_prefix("desired").unwrap_or(key);
        let mut letters = name.chars();
        let head = letters.next().map(|letter| letter.to_ascii_lowercase());
        format!("/{}{}", head.map(String::from).unwrap_or_default(), letters.as_str())
    });
    let mut target = &mut *body;
    let parts: Vec<&str> = place.split('/').skip(1).collect();
    let Some((last, parents)) = parts.split_last() else { return };
    for part in parents {
        defaults::object(target, part);
        target = &mut target[*part];
    }
    let mut after = value;
    if let Some((_, levels)) = MERGED.iter().find(|(name, _)| *name == key) {
        keep(&mut after, &target[*last], *levels);
    }
    target[*last] = after;
    match key {
        "desiredClusterAutoscaling" => defaults::provisioning(&mut body["autoscaling"]),
        "desiredDatabaseEncryption" => {
            let version = text(body, "/currentMasterVersion").to_owned();
            defaults::encryption(body, &version);
        }
        _ => {}
    }
}
