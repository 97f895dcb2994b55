//! Node pools: create, read, change, delete.

use std::collections::BTreeMap;

use fit::gke::pool::Features;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::errors::{Code, Refusal};
use super::ids::{hex, uuid};
use super::operations::{Effect, Kind, Scope};
use super::path::ClusterId;
use super::requests::{Answer, Body, Context, Surface, changes, list_of};
use super::settings::Settings;
use super::state::{Cluster, Gke, Pool, PoolPhase};
use super::{beta, checks, defaults, quotas};
use crate::clock::Scale;
use crate::kube::object::{fill, text};
use crate::kube::run::PoolView;
use crate::kube::run::autoscaler::More;
use crate::kube::run::idle::Unneeded;

/// Machines of a new pool exist after this much of the service's time, in seconds.
const CREATE_SECONDS: f64 = 40.0;
/// And those of a resized one after this much.
const RESIZE_SECONDS: f64 = 20.0;
/// A pool without machines tries again after this long.
pub(super) const RETRY_SECONDS: f64 = 120.0;

/// Fields of an update that change nothing by themselves.
const ADDRESSING: &[&str] = &["name", "projectId", "zone", "clusterId", "nodePoolId", "etag"];

/// Fields of an update that touch no running node; all others roll the pool.
const METADATA: &[&str] = &[
    "labels",
    "resourceLabels",
    "upgradeSettings",
    "nodeDrainConfig",
    "maintenancePolicy",
    "queuedProvisioning",
];

impl Gke {
    /// A cluster's pools as its Kubernetes side sees them.
    pub fn pool_views(&self, cluster: &Cluster) -> Vec<PoolView> {
        let features = Features::read(&cluster.body);
        let view = |pool: &Pool| PoolView {
            pool: self.render_pool(cluster, pool, Surface::V1),
            target_sizes: pool.present.clone(),
            wanted_sizes: pool.sizes.clone(),
            scale_up_error: match () {
                () if pool.trouble.is_some() => Some("GCE out of resources"),
                () if pool.lacks_quota => Some("GCE quota exceeded"),
                () => None,
            },
            deleting: pool.phase == PoolPhase::Stopping,
            instance_prefix: pool.prefix.clone(),
            features,
        };
        cluster.pools.iter().map(view).collect()
    }

    /// The pool with its cluster, or GKE's 404 in the words of a recorded exchange.
    pub(super) fn require_pool(&self, id: &ClusterId, name: &str) -> Result<(&Cluster, &Pool), Refusal> {
        let cluster = self.require(id)?;
        match cluster.pools.iter().find(|pool| pool.name == name) {
            Some(pool) => Ok((cluster, pool)),
            None => Err(Refusal::not_found(format!("node pool \"{name}\" not found"))),
        }
    }

    pub(super) fn list_pools(&self, context: &Context<'_>, id: &ClusterId) -> Answer {
        let cluster = self.require(id)?;
        let list =
            cluster.pools.iter().map(|pool| self.render_pool(cluster, pool, context.surface)).collect();
        Ok(("ListNodePoolsResponse", list_of("nodePools", list)))
    }

    pub(super) fn get_pool(&self, context: &Context<'_>, id: &ClusterId, name: &str) -> Answer {
        let (cluster, pool) = self.require_pool(id, name)?;
        Ok(("NodePool", self.render_pool(cluster, pool, context.surface)))
    }

    pub(super) fn create_pool(&mut self, context: &Context<'_>, id: &ClusterId, request: Value) -> Answer {
        let cluster = self.require(id)?;
        let mut body = request["nodePool"].clone();
        let name = text(&body, "/name").to_owned();
        checks::name("node_pool", &name)?;
        if cluster.pools.iter().any(|pool| pool.name == name) {
            return Err(Refusal::exists(format!("{}/nodePools/{name}", id.link())));
        }
        let plain = cluster.pools.iter().any(|pool| !defaults::has_gpu(&pool.body));
        prepare(&mut body, &cluster.body, id, plain, context.now);
        checks::pool(&body, id, cluster.channel(), cluster.master())?;
        let scope = Scope::Pool(name);
        self.admit(id, &scope)?;
        let nodes = nodes_of(&body);
        self.check_quota(id, &[(&body, nodes)], &context.settings.quota)?;
        let grow_at = context.settings.scale.after(context.now, CREATE_SECONDS);
        let pool = new_pool(body, id, grow_at);
        if let Some(cluster) = self.clusters.get_mut(id) {
            cluster.pools.push(pool);
        }
        Ok(self.start(context, id, Kind::CreateNodePool, scope, (nodes, 1), Effect::Phase))
    }

    pub(super) fn delete_pool(&mut self, context: &Context<'_>, id: &ClusterId, name: &str) -> Answer {
        let (_, pool) = self.require_pool(id, name)?;
        let nodes = pool.present.values().sum();
        let scope = Scope::Pool(name.to_owned());
        self.admit(id, &scope)?;
        self.change_pool(id, name, |pool| {
            pool.phase = PoolPhase::Stopping;
            pool.grow_at = None;
        });
        Ok(self.start(context, id, Kind::DeleteNodePool, scope, (nodes, 1), Effect::Phase))
    }

    /// `nodePools.update`: the request is flat, without a mask; what it does not name stays.
    pub(super) fn update_pool(
        &mut self,
        context: &Context<'_>,
        id: &ClusterId,
        name: &str,
        request: Value,
    ) -> Answer {
        let (cluster, pool) = self.require_pool(id, name)?;
        checks::etag(&pool_etag(cluster, pool), text(&request, "/etag"))?;
        let mut after = pool.body.clone();
        let changes = changes(&request, ADDRESSING);
        for (key, value) in &changes {
            change(&mut after, key, value, cluster, pool)?;
        }
        checks::pool(&after, id, cluster.channel(), cluster.master())?;
        let scope = Scope::Pool(name.to_owned());
        self.admit(id, &scope)?;
        let rolls = changes.iter().any(|(key, _)| !METADATA.contains(key) && *key != "locations");
        let kind = if rolls && after != pool.body { Kind::UpgradeNodes } else { Kind::UpdateCluster };
        let surge = surge(&after);
        let nodes = pool.nodes();
        let effect = Effect::Bodies { cluster: None, pools: vec![(name.to_owned(), after)] };
        Ok(self.start(context, id, kind, scope, (nodes, surge), effect))
    }

    pub(super) fn pool_verb(
        &mut self,
        context: &Context<'_>,
        id: &ClusterId,
        name: &str,
        verb: &str,
        body: Body<'_>,
    ) -> Answer {
        let (cluster, pool) = self.require_pool(id, name)?;
        let mut after = pool.body.clone();
        let (kind, key) = match verb {
            "setSize" => {
                let count = body.read("SetNodePoolSizeRequest")?["nodeCount"].as_i64().unwrap_or_default();
                return self.set_size(context, id, name, count);
            }
            "setManagement" => {
                after["management"] = or_empty(&body.read("SetNodePoolManagementRequest")?["management"]);
                (Kind::SetNodePoolManagement, "management")
            }
            "setAutoscaling" => {
                let asked = body.read("SetNodePoolAutoscalingRequest")?;
                after["autoscaling"] = or_empty(&asked["autoscaling"]);
                (Kind::UpdateCluster, "autoscaling")
            }
            "rollback" => (Kind::UpgradeNodes, "version"),
            "completeUpgrade" => return Ok(("", json!({}))),
            _ => {
                return Err(Refusal::new(
                    Code::Unimplemented,
                    format!("nodePools:{verb} is a part of the API that the sandbox does not serve."),
                ));
            }
        };
        drop_off(&mut after, key);
        defaults::autoscaling(&mut after);
        checks::pool(&after, id, cluster.channel(), cluster.master())?;
        let scope = Scope::Pool(name.to_owned());
        self.admit(id, &scope)?;
        let effect = Effect::Bodies { cluster: None, pools: vec![(name.to_owned(), after)] };
        Ok(self.start(context, id, kind, scope, (0, 1), effect))
    }

    /// A size counts per zone.
    fn set_size(&mut self, context: &Context<'_>, id: &ClusterId, name: &str, count: i64) -> Answer {
        let (_, pool) = self.require_pool(id, name)?;
        let Ok(count) = u32::try_from(count) else {
            return Err(Refusal::invalid(format!("Node_count must not be negative: {count}.")));
        };
        let zones = u32::try_from(pool.sizes.len()).unwrap_or(u32::MAX);
        let more = (count * zones).saturating_sub(pool.sizes.values().sum());
        let nodes = pool.nodes().max(count * zones);
        let scope = Scope::Pool(name.to_owned());
        self.admit(id, &scope)?;
        let (_, pool) = self.require_pool(id, name)?;
        self.check_quota(id, &[(&pool.body, more)], &context.settings.quota)?;
        let grow_at = context.settings.scale.after(context.now, RESIZE_SECONDS);
        self.change_pool(id, name, |pool| {
            for size in pool.sizes.values_mut() {
                *size = count;
            }
            // A manual resize rewrites the creation's echo.
            pool.body["initialNodeCount"] = json!(count);
            drop_off(&mut pool.body, "initialNodeCount");
            resize(pool, grow_at);
        });
        Ok(self.start(context, id, Kind::SetNodePoolSize, scope, (nodes, 1), Effect::Phase))
    }

    /// Adds the machines that the autoscaler wants to running pools, as far as the quota goes. It first waits for machines
    /// on their way: the pods may fit those.
    pub fn scale_up(&mut self, id: &ClusterId, more: &More, now: Timestamp, settings: &Settings) {
        for ((name, place), count) in more {
            let Ok((cluster, pool)) = self.require_pool(id, name) else { continue };
            let waits = pool.grow_at.is_some() || pool.phase != PoolPhase::Running;
            let count = quotas::within_limits(cluster, &pool.body["config"], *count);
            if waits || count == 0 {
                continue;
            }
            let lacks_quota = self.check_quota(id, &[(&pool.body, count)], &settings.quota).is_err();
            if lacks_quota != pool.lacks_quota {
                self.change_pool(id, name, |pool| pool.lacks_quota = lacks_quota);
            }
            if lacks_quota {
                continue;
            }
            let grow_at = settings.scale.after(now, RESIZE_SECONDS);
            self.change_pool(id, name, |pool| {
                if let Some(size) = place.as_ref().and_then(|zone| pool.sizes.get_mut(zone)) {
                    *size += count;
                    return resize(pool, grow_at);
                }
                for _ in 0..count {
                    // The zones stay as even as they can be.
                    if let Some(least) = pool.sizes.values_mut().min() {
                        *least += 1;
                    }
                }
                resize(pool, grow_at);
            });
        }
    }

    /// Lets machines go that nobody needs.
    pub fn take_away(&mut self, id: &ClusterId, unneeded: &[Unneeded]) {
        for unneeded in unneeded {
            self.change_pool(id, &unneeded.pool, |pool| {
                for sizes in [&mut pool.sizes, &mut pool.present] {
                    if let Some(size) = sizes.get_mut(&unneeded.zone) {
                        *size = size.saturating_sub(1);
                    }
                }
            });
        }
    }

    pub(super) fn change_pool(&mut self, id: &ClusterId, name: &str, change: impl FnOnce(&mut Pool)) {
        let pools = self.clusters.get_mut(id).map(|cluster| &mut cluster.pools);
        if let Some(pool) = pools.into_iter().flatten().find(|pool| pool.name == name) {
            change(pool);
            self.touch(id);
        }
    }

    /// The NodePool message as a GET shows it.
    pub(super) fn render_pool(&self, cluster: &Cluster, pool: &Pool, surface: Surface) -> Value {
        let id = &cluster.id;
        let mut body = pool.body.clone();
        let busy = self
            .operations
            .values()
            .any(|op| op.is_running() && op.cluster == *id && op.scope == Scope::Pool(pool.name.clone()));
        let present: u32 = pool.present.values().sum();
        let status = match (pool.phase, &pool.trouble) {
            (PoolPhase::Provisioning, _) => "PROVISIONING",
            (PoolPhase::Stopping, _) => "STOPPING",
            (PoolPhase::Running, _) if busy => "RECONCILING",
            (PoolPhase::Running, Some(_)) if present == 0 => "ERROR",
            (PoolPhase::Running, Some(_)) => "RUNNING_WITH_ERROR",
            (PoolPhase::Running, None) => "RUNNING",
        };
        body["status"] = json!(status);
        if let Some(trouble) = &pool.trouble {
            body["statusMessage"] = json!(trouble);
            body["conditions"] = conditions(trouble);
        }
        body["selfLink"] = json!(format!("{}/{}/nodePools/{}", surface.base(), id.link(), pool.name));
        body["etag"] = json!(pool_etag(cluster, pool));
        if pool.sizes.values().any(|_| true) {
            let groups: Vec<Value> =
                pool.sizes.keys().map(|zone| json!(group_link(id, zone, &pool.prefix))).collect();
            body["instanceGroupUrls"] = Value::Array(groups);
        }
        if let Some(used) = range_utilization(cluster) {
            body["networkConfig"]["podIpv4RangeUtilization"] = json!(used);
        }
        beta::pool(&mut body, surface);
        body
    }
}

/// How much of the pods' range the nodes take, a /24 each, rounded to four digits as the API does.
pub(super) fn range_utilization(cluster: &Cluster) -> Option<f64> {
    let nodes: u32 = cluster.pools.iter().flat_map(|pool| pool.present.values()).sum();
    let bits: i32 = text(&cluster.body, "/clusterIpv4Cidr").rsplit('/').next()?.parse().ok()?;
    let used = (f64::from(nodes) / 2f64.powi(24 - bits) * 10_000.0).round() / 10_000.0;
    (used > 0.0).then_some(used)
}

/// The conditions of a pool or cluster that lacks machines.
pub(super) fn conditions(trouble: &str) -> Value {
    json!([{ "code": "GCE_STOCKOUT", "canonicalCode": "RESOURCE_EXHAUSTED", "message": trouble }])
}

pub(super) fn group_link(id: &ClusterId, zone: &str, prefix: &str) -> String {
    format!(
        "https://www.googleapis.com/compute/v1/projects/{}/zones/{zone}/instanceGroupManagers/{prefix}-grp",
        id.project
    )
}

fn pool_etag(cluster: &Cluster, pool: &Pool) -> String {
    uuid(&["etag", &cluster.id.to_string(), &pool.name, &pool.prefix, &pool.revision.to_string()])
}

/// `gke-CLUSTER-POOL-HASH`: both names share 32 letters, each gets at least 16.
pub(super) fn prefix(id: &ClusterId, pool: &str) -> String {
    let cut = |name: &str, other: &str| {
        let room = 32usize.saturating_sub(other.len()).max(16);
        name.chars().take(room).collect::<String>()
    };
    let hash = hex(&["pool", &id.to_string(), pool], 8);
    format!("gke-{}-{}-{hash}", cut(&id.name, pool), cut(pool, &id.name))
}

/// Nodes of all zones that a new pool starts with.
pub(super) fn nodes_of(body: &Value) -> u32 {
    sizes(body).values().sum()
}

fn sizes(body: &Value) -> BTreeMap<String, u32> {
    let count = body["initialNodeCount"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
    let zones = body["locations"].as_array().into_iter().flatten().filter_map(Value::as_str);
    zones.map(|zone| (zone.to_owned(), count)).collect()
}

/// Makes a requested pool what GKE would store. `plain` says that the cluster has a pool without GPUs.
pub(super) fn prepare(pool: &mut Value, cluster: &Value, id: &ClusterId, plain: bool, now: Timestamp) {
    if !pool.is_object() {
        *pool = json!({});
    }
    for key in ["status", "statusMessage", "conditions", "instanceGroupUrls", "etag", "selfLink"] {
        pool.as_object_mut().map(|map| map.remove(key));
    }
    defaults::node_pool(pool, cluster, id, now);
    defaults::taints(pool, plain);
    drop_off(pool, "autoscaling");
    drop_nulls(pool);
}

/// A pool whose machines exist from `grow_at`.
pub(super) fn new_pool(body: Value, id: &ClusterId, grow_at: Timestamp) -> Pool {
    let name = text(&body, "/name").to_owned();
    let sizes = sizes(&body);
    let present = sizes.keys().map(|zone| (zone.clone(), 0)).collect();
    let prefix = prefix(id, &name);
    Pool {
        name,
        phase: PoolPhase::Provisioning,
        body,
        sizes,
        present,
        grow_at: Some(grow_at),
        trouble: None,
        lacks_quota: false,
        revision: 0,
        prefix,
    }
}

/// Machines that are too many go at once, missing ones come at `grow_at`.
pub(super) fn resize(pool: &mut Pool, grow_at: Timestamp) {
    pool.present.retain(|zone, _| pool.sizes.contains_key(zone));
    let mut grows = false;
    for (zone, wanted) in &pool.sizes {
        let present = pool.present.entry(zone.clone()).or_default();
        *present = (*present).min(*wanted);
        grows |= *present < *wanted;
    }
    pool.grow_at = grows.then_some(grow_at);
    if !grows {
        pool.trouble = None;
    }
}

/// Gives a pool a new body; its zones follow.
pub(super) fn replace(pool: &mut Pool, body: Value, now: Timestamp, scale: &Scale) {
    pool.revision += 1;
    let zones: Vec<String> = body["locations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let size = pool.sizes.values().copied().max().unwrap_or_default();
    if !zones.is_empty() && !zones.iter().eq(pool.sizes.keys()) {
        pool.sizes = zones
            .into_iter()
            .map(|zone| {
                let size = pool.sizes.get(&zone).copied().unwrap_or(size);
                (zone, size)
            })
            .collect();
        resize(pool, scale.after(now, RESIZE_SECONDS));
    }
    pool.body = body;
}

/// How many nodes a roll takes at a time.
pub(super) fn surge(body: &Value) -> u32 {
    let number = |key: &str| body["upgradeSettings"][key].as_u64().unwrap_or_default();
    u32::try_from(number("maxSurge") + number("maxUnavailable")).unwrap_or(u32::MAX).max(1)
}

fn or_empty(value: &Value) -> Value {
    if value.is_null() { json!({}) } else { value.clone() }
}

/// Off, and without any number, is how an absent message looks.
fn drop_off(body: &mut Value, key: &str) {
    let absent = match &body[key] {
        Value::Object(map) => {
            let is_off = |name: &str| map.get(name).is_none_or(|on| on == false);
            key == "autoscaling" && is_off("enabled") && is_off("autoprovisioned")
        }
        Value::Number(number) => number.as_u64() == Some(0),
        other => other.is_null(),
    };
    if absent && let Some(map) = body.as_object_mut() {
        map.remove(key);
    }
}

fn drop_nulls(body: &mut Value) {
    if let Some(map) = body.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
}

/// One field of `nodePools.update`.
fn change(
    after: &mut Value,
    key: &str,
    value: &Value,
    cluster: &Cluster,
    pool: &Pool,
) -> Result<(), Refusal> {
    match key {
        // Wrappers: the whole map or list is replaced, and an empty one clears it.
        "labels" => put(&mut after["config"], "labels", value.get("labels")),
        "taints" => put(&mut after["config"], "taints", value.get("taints")),
        "tags" => put(&mut after["config"], "tags", value.get("tags")),
        "resourceLabels" => resource_labels(&mut after["config"], value.get("labels")),
        "accelerators" => accelerators(&mut after["config"], value)?,
        "diskSizeGb" | "diskType" | "bootDisk" => disk(&mut after["config"], key, value),
        "machineType" => {
            after["config"]["machineType"] = value.clone();
        }
        "nodeVersion" => after["version"] = json!(node_version(value, cluster)?),
        "imageType" => {
            let image = value.as_str().unwrap_or_default().to_ascii_uppercase();
            after["config"]["imageType"] = json!(image);
        }
        "kubeletConfig" => {
            let mut config = value.clone();
            let keep = json!({
                "insecureKubeletReadonlyPortEnabled":
                    after["config"]["kubeletConfig"]["insecureKubeletReadonlyPortEnabled"],
                // Recorded twice, of pools of e2-medium: 2 at creation, 3 after the first update.
                "maxParallelImagePulls": 3,
            });
            fill(&mut config, &keep);
            after["config"]["kubeletConfig"] = config;
        }
        "nodeNetworkConfig" => {
            let mut config = value.clone();
            fill(&mut config, &after["networkConfig"]);
            after["networkConfig"] = config;
        }
        "upgradeSettings" => {
            let mut settings = value.clone();
            if let Some(strategy) = after["upgradeSettings"]["strategy"].as_str() {
                fill(&mut settings, &json!({ "strategy": strategy }));
            }
            after["upgradeSettings"] = settings;
            defaults::upgrade_settings(after);
        }
        "queuedProvisioning" => queued(after, value, pool)?,
        "locations" | "nodeDrainConfig" | "maintenancePolicy" => after[key] = value.clone(),
        "image" | "imageProject" => {}
        // Everything else of the request is a block of NodeConfig by the same name.
        _ => after["config"][key] = value.clone(),
    }
    Ok(())
}

fn put(config: &mut Value, key: &str, value: Option<&Value>) {
    let Some(map) = config.as_object_mut() else { return };
    match value {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

/// Labels that the service owns survive a replacement.
fn resource_labels(config: &mut Value, labels: Option<&Value>) {
    let mut after: Map<String, Value> = labels.and_then(Value::as_object).cloned().unwrap_or_default();
    for (key, value) in config["resourceLabels"].as_object().into_iter().flatten() {
        if key.starts_with("goog-gke-") {
            after.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    config["resourceLabels"] = Value::Object(after);
}

/// Driver and sharing change in place; count and type do not.
fn accelerators(config: &mut Value, wanted: &Value) -> Result<(), Refusal> {
    let before = config["accelerators"].as_array().cloned().unwrap_or_default();
    let wanted = wanted.as_array().cloned().unwrap_or_default();
    if wanted.len() != before.len() {
        return Err(Refusal::invalid(format!(
            "Accelerator entries cannot be added or removed: the pool has {}, the update {}.",
            before.len(),
            wanted.len()
        )));
    }
    for (old, new) in before.iter().zip(&wanted) {
        let named = [
            ("acceleratorCount", "count"),
            ("acceleratorType", "type"),
            ("gpuPartitionSize", "partition size"),
        ];
        for (key, word) in named {
            if new.get(key).is_some() && text(old, &format!("/{key}")) != text(new, &format!("/{key}")) {
                return Err(Refusal::invalid(format!(
                    "Accelerator {word}: {} should not be updated.",
                    text(new, &format!("/{key}"))
                )));
            }
        }
    }
    let merged = before.iter().zip(wanted).map(|(old, mut new)| {
        fill(&mut new, old);
        new
    });
    config["accelerators"] = merged.collect();
    Ok(())
}

/// The older pair and the boot disk say the same.
fn disk(config: &mut Value, key: &str, value: &Value) {
    match key {
        "diskType" => {
            config["diskType"] = value.clone();
            config["bootDisk"]["diskType"] = value.clone();
        }
        "diskSizeGb" => {
            let size = value.as_str().and_then(|text| text.parse::<i64>().ok()).unwrap_or(100);
            config["diskSizeGb"] = json!(size);
            config["bootDisk"]["sizeGb"] = json!(size.to_string());
        }
        _ => {
            let mut disk = value.clone();
            fill(&mut disk, &config["bootDisk"]);
            config["diskType"] = disk["diskType"].clone();
            if let Some(size) = disk["sizeGb"].as_str().and_then(|text| text.parse::<i64>().ok()) {
                config["diskSizeGb"] = json!(size);
            }
            config["bootDisk"] = disk;
        }
    }
}

/// A version for nodes: exact, an alias, or `-` for the control plane's.
pub(super) fn node_version(value: &Value, cluster: &Cluster) -> Result<String, Refusal> {
    let asked = value.as_str().unwrap_or_default();
    let master = cluster.master();
    match asked {
        "" | "-" => Ok(master.to_owned()),
        _ if asked == master => Ok(master.to_owned()),
        _ => match super::versions::resolve(asked, "UNSPECIFIED") {
            Some(version) => Ok(version.to_owned()),
            None => Err(Refusal::invalid(format!("Node version \"{asked}\" is unsupported."))),
        },
    }
}

fn queued(after: &mut Value, value: &Value, pool: &Pool) -> Result<(), Refusal> {
    if value["enabled"] == true && pool.nodes() > 0 {
        return Err(Refusal::invalid("Queued_provisioning can be enabled for an empty node pool only"));
    }
    after["queuedProvisioning"] = value.clone();
    if value["enabled"] == true {
        defaults::taints(after, false);
    }
    Ok(())
}
