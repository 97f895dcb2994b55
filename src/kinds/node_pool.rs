//! GKE node pools.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::gke::{How, Rule, call, merged_entries, owned_labels};
use super::gpu_driver::DriverInstall;
use super::short::{Accelerator, Nodes, SharingStrategy};
use super::status::Said;
use super::{Compare, Doing, Kind, PoolFacts, Scope, condition, count, is_false, itself, text};
use crate::address::{Address, FieldPath};
use crate::catalog;
use crate::resource::{
    Action, Api, Await, ClusterName, Effect, FieldChange, Identity, Life, Method, Query, Readiness, Resource,
    Step, Until,
};

/// Seconds: a pool takes 2 to 7 minutes, a replacement with a drain can take over an hour.
const DEADLINE: u32 = 5400;

/// The label that GKE puts on every node of a pool.
pub const POOL_LABEL: &str = "cloud.google.com/gke-nodepool";

/// GKE node pools.
pub const KIND: Kind = Kind {
    name: "node_pool",
    rank: 10,
    compare: Compare::Gke(RULES),
    program,
    queries,
    judge,
    shared: false,
};

const fn rule(
    path: &'static str,
    how: How,
    effect: Effect,
    call: &'static str,
    note: Option<&'static str>,
) -> Rule {
    Rule { path, how, effect, call, note }
}

const ROLLS: Option<&str> = Some("GKE makes the nodes anew");
const FIXED: Option<&str> = Some("GKE does not change it on a pool");

/// Source of what is changed how: googleapis `cluster_service.proto`, UpdateNodePoolRequest and the `set…`
/// methods; what is not in them replaces the pool. That tags roll the nodes is not documented.
const RULES: &[Rule] = &[
    rule("name", How::Exact, Effect::Replace, "", FIXED),
    rule("config.machineType", How::Exact, Effect::Rolling, "roll", ROLLS),
    rule("config.diskType", How::Exact, Effect::Rolling, "roll", ROLLS),
    rule("config.diskSizeGb", How::Exact, Effect::Rolling, "roll", ROLLS),
    rule("config.imageType", How::Caseless, Effect::Rolling, "roll", ROLLS),
    rule("config.accelerators", How::Accelerators, Effect::Rolling, "roll", ROLLS),
    rule("config.tags", How::Set, Effect::Rolling, "roll", ROLLS),
    rule("config.labels", How::OwnEntries, Effect::InPlace, "update", None),
    rule("config.taints", How::OwnTaints, Effect::InPlace, "update", None),
    rule("config.resourceLabels", How::OwnEntries, Effect::InPlace, "update", None),
    rule("upgradeSettings", How::Exact, Effect::InPlace, "update", None),
    rule("locations", How::Set, Effect::InPlace, "locations", Some("nodes come and go with the zones")),
    rule("management", How::Exact, Effect::InPlace, "management", None),
    rule("autoscaling", How::Exact, Effect::InPlace, "autoscaling", None),
    rule("nodeCount", How::Exact, Effect::InPlace, "size", None),
    rule("initialNodeCount", How::AtCreation, Effect::Ignored, "", None),
    rule("config.spot", How::Exact, Effect::Replace, "", FIXED),
    rule("config.serviceAccount", How::Exact, Effect::Replace, "", FIXED),
    rule("config.oauthScopes", How::Set, Effect::Replace, "", FIXED),
];

/// A GKE node pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodePool {
    /// The pool's live name; the section's key when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The Compute Engine machine type: `a2-highgpu-2g`, `n1-standard-2`. Not needed with `manage = false`.
    pub machine_type: String,
    /// GPUs: a type, or a table with `type`, `count`, `sharing` and `partition`. Follows from the machine type
    /// for A2, A3, A4, G2 and G4 machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// Which NVIDIA driver GKE installs here: `default` or `latest`. Only with `[gpu_driver] install = "gke"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverVersion>,
    /// Nodes in all zones together (a multiple of the zones), or `{ min = 0, max = 4 }` to autoscale. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
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
    /// `false`: it exists and others own it. It is read, compared with what is said here and relied on, never
    /// written, labelled or deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manage: Option<bool>,
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

impl NodePool {
    /// Whether the stack makes and changes it.
    pub fn is_managed(&self) -> bool {
        self.manage != Some(false)
    }

    /// How many nodes are wanted.
    pub fn size(&self) -> Nodes {
        self.nodes.unwrap_or_default()
    }

    /// The pool's live name.
    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    /// Type and count of the GPUs of a node: what the file says, else what the machine type fixes.
    pub fn gpus(&self) -> Option<(String, u32)> {
        let machine = catalog::machine(&self.machine_type);
        let fixed =
            machine.and_then(|machine| machine.accelerator.as_ref()).map(|gpu| (gpu.kind.clone(), gpu.count));
        let Some(Accelerator { r#type, count, .. }) = &self.accelerator else { return fixed };
        let count = count.or(fixed.as_ref().map(|(_, count)| *count)).unwrap_or(1);
        Some((r#type.clone(), count))
    }

    /// Allocatable `nvidia.com/gpu` of a node: partitions and clients multiply the GPUs.
    pub fn allocatable_gpus(&self) -> u32 {
        let Some((r#type, count)) = self.gpus() else { return 0 };
        let Some(Accelerator { sharing, partition, .. }) = &self.accelerator else { return count };
        let gpu = catalog::accelerator(&r#type);
        let parts = partition.as_ref().and_then(|size| gpu?.mig.get(size).copied()).unwrap_or(1);
        count * parts * sharing.as_ref().map_or(1, |sharing| sharing.clients)
    }

    /// What neighbours may know.
    pub fn facts(&self, key: &str) -> PoolFacts {
        let nodes = match self.size() {
            Nodes::Fixed(nodes) => nodes,
            Nodes::Autoscaled { min, .. } => min,
        };
        PoolFacts {
            key: key.to_owned(),
            name: self.live_name(key).to_owned(),
            gpus: self.allocatable_gpus(),
            nodes,
            hardware: format!(
                "{} {:?} {:?} {:?} {:?}",
                self.machine_type,
                self.gpus(),
                self.accelerator,
                self.driver,
                self.image_type
            ),
            labels: self.labels.clone(),
            taints: self.taints.clone(),
        }
    }
}

impl TaintEffect {
    fn api(self) -> &'static str {
        match self {
            Self::NoSchedule => "NO_SCHEDULE",
            Self::PreferNoSchedule => "PREFER_NO_SCHEDULE",
            Self::NoExecute => "NO_EXECUTE",
        }
    }

    /// The name in the Kubernetes API.
    pub fn kubernetes(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// What `[node_pool.KEY]` becomes. What plans reason about is said explicitly, so that an offline plan
/// does not depend on a server's version.
pub fn lower(key: &str, section: &NodePool, cluster: &ClusterName, scope: &Scope) -> Resource {
    let name = section.live_name(key);
    let mut body = json!({
        "name": name,
        "config": config(section, scope),
        "management": {
            "autoRepair": section.auto_repair.unwrap_or(true),
            "autoUpgrade": section.auto_upgrade.unwrap_or(true),
        },
        "upgradeSettings": surge(section.surge),
    });
    let own = u32::try_from(section.zones.len()).unwrap_or(1);
    let places = if own == 0 { scope.zones.max(1) } else { own };
    match section.size() {
        Nodes::Fixed(nodes) => {
            body["nodeCount"] = json!(nodes);
            body["initialNodeCount"] = json!(nodes / places);
            body["autoscaling"] = json!({ "enabled": false });
        }
        Nodes::Autoscaled { min, max } => {
            body["initialNodeCount"] = json!(min.div_ceil(places));
            body["autoscaling"] =
                json!({ "enabled": true, "totalMinNodeCount": min, "totalMaxNodeCount": max });
        }
    }
    if !section.zones.is_empty() {
        body["locations"] = json!(section.zones);
    }
    let origin = FieldPath::keys(["node_pool", key]);
    let gpus = if section.accelerator.is_some() { "accelerator" } else { "machine_type" };
    let places = [
        ("name", "name"),
        ("config.machineType", "machine_type"),
        ("config.accelerators", gpus),
        ("config.accelerators[0].gpuDriverInstallationConfig", "driver"),
        ("config.diskType", "disk_type"),
        ("config.diskSizeGb", "disk_size_gb"),
        ("config.imageType", "image_type"),
        ("config.labels", "labels"),
        ("config.taints", "taints"),
        ("config.tags", "tags"),
        ("config.resourceLabels", "resource_labels"),
        ("config.spot", "spot"),
        ("config.serviceAccount", "service_account"),
        ("management.autoRepair", "auto_repair"),
        ("management.autoUpgrade", "auto_upgrade"),
        ("upgradeSettings", "surge"),
        ("nodeCount", "nodes"),
        ("initialNodeCount", "nodes"),
        ("autoscaling", "nodes"),
        ("locations", "zones"),
    ];
    let mut follows: Vec<Address> = scope.inside();
    follows.extend(section.depends_on.iter().map(Address::new));
    Resource {
        address: Address::of("node_pool", key),
        identity: Identity::NodePool { cluster: cluster.clone(), pool: name.to_owned() },
        kind: KIND.name.into(),
        body,
        origins: places
            .iter()
            .map(|(field, key)| (field.parse().unwrap_or_default(), origin.key(key)))
            .collect(),
        origin,
        follows,
        protect: section.protect,
        life: Life::Kept,
        initial: Value::Null,
    }
}

/// What `[node_pool.KEY]` with `manage = false` says of a pool that others own: what is given, nothing else.
pub fn read(key: &str, section: &NodePool, cluster: &ClusterName, scope: &Scope) -> Resource {
    let mut resource = lower(key, section, cluster, scope);
    let whole = std::mem::take(&mut resource.body);
    let mut body = json!({ "name": whole["name"] });
    let given = [
        ("machineType", !section.machine_type.is_empty()),
        ("diskType", section.disk_type.is_some()),
        ("diskSizeGb", section.disk_size_gb.is_some()),
        ("imageType", section.image_type.is_some()),
        ("accelerators", section.gpus().is_some()),
        ("labels", !section.labels.is_empty()),
        ("taints", !section.taints.is_empty()),
        ("tags", !section.tags.is_empty()),
        ("spot", section.spot),
        ("serviceAccount", section.service_account.is_some()),
    ];
    for (field, _) in given.into_iter().filter(|(_, given)| *given) {
        body["config"][field] = whole["config"][field].clone();
    }
    let counted = section.accelerator.as_ref().is_none_or(|accelerator| accelerator.count.is_some());
    if !counted && let Some(accelerator) = body["config"]["accelerators"][0].as_object_mut() {
        accelerator.remove("acceleratorCount");
    }
    if section.driver.is_none() && body["config"]["accelerators"].is_array() {
        let accelerator = body["config"]["accelerators"][0].as_object_mut();
        accelerator.and_then(|fields| fields.remove("gpuDriverInstallationConfig"));
    }
    if !section.resource_labels.is_empty() {
        body["config"]["resourceLabels"] = json!(section.resource_labels);
    }
    match section.nodes {
        Some(Nodes::Fixed(_)) => body["nodeCount"] = whole["nodeCount"].clone(),
        Some(Nodes::Autoscaled { .. }) => body["autoscaling"] = whole["autoscaling"].clone(),
        None => {}
    }
    for (field, given) in [("autoRepair", section.auto_repair), ("autoUpgrade", section.auto_upgrade)] {
        if let Some(given) = given {
            body["management"][field] = json!(given);
        }
    }
    if section.surge.is_some() {
        body["upgradeSettings"] = whole["upgradeSettings"].clone();
    }
    if !section.zones.is_empty() {
        body["locations"] = whole["locations"].clone();
    }
    resource.body = body;
    resource
}

/// A live pool in a few words; `nodes` is how many it has, where that is known.
pub fn summary(live: &Value, nodes: Option<u32>) -> String {
    let config = &live["config"];
    let (gpu, count) = (&config["accelerators"][0]["acceleratorType"], gpu_count(config));
    let mut said = match nodes {
        Some(nodes) => format!("{nodes} × {}", text(&config["machineType"])),
        None => text(&config["machineType"]).to_owned(),
    };
    if count > 0 {
        said.push_str(&format!(" with {count} × {}", text(gpu)));
    }
    format!("{said}, {}", text(&live["status"]))
}

fn gpu_count(config: &Value) -> u64 {
    let count = &config["accelerators"][0]["acceleratorCount"];
    count.as_str().and_then(|count| count.parse().ok()).unwrap_or_else(|| super::count(count))
}

/// `nvidia.com/gpu` that a node of a live pool gives: partitions and clients multiply the GPUs.
pub fn live_gpus(live: &Value) -> u64 {
    let gpu = &live["config"]["accelerators"][0];
    let parts = catalog::accelerator(text(&gpu["acceleratorType"]))
        .and_then(|known| known.mig.get(text(&gpu["gpuPartitionSize"])).copied())
        .unwrap_or(1);
    let clients = &gpu["gpuSharingConfig"]["maxSharedClientsPerGpu"];
    let clients = clients.as_str().and_then(|clients| clients.parse().ok()).or(clients.as_u64()).unwrap_or(1);
    gpu_count(&live["config"]) * u64::from(parts) * clients.max(1)
}

fn surge(given: Option<Surge>) -> Value {
    let Surge { max_surge, max_unavailable } = given.unwrap_or(Surge { max_surge: 1, max_unavailable: 0 });
    json!({ "maxSurge": max_surge, "maxUnavailable": max_unavailable, "strategy": "SURGE" })
}

fn config(section: &NodePool, scope: &Scope) -> Value {
    let mut config = json!({
        "machineType": section.machine_type,
        "diskType": section.disk_type.as_deref().unwrap_or("pd-balanced"),
        "diskSizeGb": section.disk_size_gb.unwrap_or(100),
        "imageType": section.image_type.as_deref().unwrap_or("COS_CONTAINERD"),
        "resourceLabels": owned_labels(&section.resource_labels, &scope.owner),
        "spot": section.spot,
    });
    if let Some(accelerator) = accelerator(section, scope.driver) {
        config["accelerators"] = json!([accelerator]);
    }
    if !section.labels.is_empty() {
        config["labels"] = json!(section.labels);
    }
    if !section.taints.is_empty() {
        config["taints"] = section.taints.iter().map(taint).collect();
    }
    if !section.tags.is_empty() {
        config["tags"] = json!(section.tags);
    }
    if let Some(account) = &section.service_account {
        // With an account of one's own, its roles decide what nodes may do; gcloud asks for this scope then.
        config["serviceAccount"] = json!(account);
        config["oauthScopes"] = json!(["https://www.googleapis.com/auth/cloud-platform"]);
    }
    config
}

fn taint(taint: &Taint) -> Value {
    let Taint { key, value, effect } = taint;
    json!({ "key": key, "value": value, "effect": effect.api() })
}

/// GKE 1.30.1 and later install a driver when nothing is said, and the installer DaemonSet then finds
/// nothing to do; so the version is always said.
fn accelerator(section: &NodePool, install: DriverInstall) -> Option<Value> {
    let (r#type, count) = section.gpus()?;
    let driver = match (install, section.driver) {
        (DriverInstall::Daemonset, _) => "INSTALLATION_DISABLED",
        (DriverInstall::Gke, Some(DriverVersion::Latest)) => "LATEST",
        (DriverInstall::Gke, Some(DriverVersion::Default) | None) => "DEFAULT",
    };
    let mut accelerator = json!({
        "acceleratorType": r#type,
        "acceleratorCount": count.to_string(),
        "gpuDriverInstallationConfig": { "gpuDriverVersion": driver },
    });
    if let Some(Accelerator { sharing, partition, .. }) = &section.accelerator {
        if let Some(partition) = partition {
            accelerator["gpuPartitionSize"] = json!(partition);
        }
        if let Some(sharing) = sharing {
            let strategy = match sharing.strategy {
                SharingStrategy::TimeSharing => "TIME_SHARING",
                SharingStrategy::Mps => "MPS",
            };
            accelerator["gpuSharingConfig"] = json!({ "gpuSharingStrategy": strategy, "maxSharedClientsPerGpu": sharing.clients.to_string() });
        }
    }
    Some(accelerator)
}

/// The body that makes a pool: the number that is compared later is not part of it.
pub fn creation_body(pool: &Value) -> Value {
    let mut body = pool.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("nodeCount");
        if pool["autoscaling"]["enabled"] == false {
            fields.remove("autoscaling");
        }
    }
    body
}

fn program(doing: &Doing) -> Vec<Step> {
    let Identity::NodePool { cluster, pool } = doing.identity else { return Vec::new() };
    let path = format!("/v1/{}", cluster.pool_path(pool));
    let body = doing.body();
    let wait = |until| {
        let driver = &body["config"]["accelerators"][0]["gpuDriverInstallationConfig"]["gpuDriverVersion"];
        let by_gke = driver.is_string() && driver != "INSTALLATION_DISABLED";
        let facts = json!({
            "pool": pool,
            "nodes": body["nodeCount"].as_u64().or(body["autoscaling"]["totalMinNodeCount"].as_u64()),
            "gpus": by_gke,
        });
        let (identity, kind) = (doing.identity.clone(), KIND.name.to_owned());
        Step::Await(Await { kind, identity, until, facts, deadline: DEADLINE })
    };
    let delete = || call(Method::Delete, path.clone(), None);
    let create = || {
        let body = json!({ "nodePool": creation_body(body) });
        call(Method::Post, format!("/v1/{}/nodePools", cluster.path()), Some(body))
    };
    match doing.action {
        Action::Keep => vec![wait(Until::Ready)],
        Action::Create if doing.inline_pool.is_some() => vec![wait(Until::Ready)],
        Action::Create if doing.leaving => vec![wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Create => vec![create(), wait(Until::Ready)],
        Action::Update => {
            let mut steps = updates(doing, &path);
            steps.push(wait(Until::Ready));
            steps
        }
        Action::Replace => vec![delete(), wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Delete => vec![delete(), wait(Until::Gone)],
        Action::Forget | Action::Run => Vec::new(),
    }
}

/// As few calls as the API allows: what changes only metadata goes into one update, what rolls the nodes
/// into another, so that they roll once; zones stand alone, as the API's reference warns. Size, management
/// and autoscaling have methods of their own.
fn updates(doing: &Doing, path: &str) -> Vec<Step> {
    let (body, live) = (doing.body(), doing.live.unwrap_or(&Value::Null));
    let groups: Vec<(&str, &str)> = RULES
        .iter()
        .filter(|rule| {
            let at: FieldPath = rule.path.parse().unwrap_or_default();
            doing.fields.iter().any(|field| at.contains(&field.path))
        })
        .map(|rule| (rule.call, rule.path))
        .collect();
    let touched = |call: &str| groups.iter().any(|(group, _)| *group == call);
    let mut steps = Vec::new();
    if touched("autoscaling") {
        let body = json!({ "autoscaling": body["autoscaling"] });
        steps.push(call(Method::Post, format!("{path}:setAutoscaling"), Some(body)));
    }
    if touched("management") {
        let body = json!({ "management": body["management"] });
        steps.push(call(Method::Post, format!("{path}:setManagement"), Some(body)));
    }
    for group in ["update", "roll", "locations"] {
        let fields = groups.iter().filter(|(call, _)| *call == group).map(|(_, field)| *field);
        let mut request = json!({});
        for field in fields {
            let (key, value) = update_field(field, body, live, doing.fields);
            request[key] = value;
        }
        if touched(group) {
            steps.push(call(Method::Put, path.to_owned(), Some(request)));
        }
    }
    if touched("size") {
        // The number is for each zone, of the zones that the pool has once those changed, too.
        let nodes = json!({ "nodeCount": body["initialNodeCount"] });
        steps.push(call(Method::Post, format!("{path}:setSize"), Some(nodes)));
    }
    steps
}

/// A field of UpdateNodePoolRequest. Maps and lists are replaced whole by the API, so what others put in
/// is sent along.
fn update_field(field: &str, body: &Value, live: &Value, changes: &[FieldChange]) -> (&'static str, Value) {
    let at: FieldPath = field.parse().unwrap_or_default();
    let null = Value::Null;
    let (want, have) = (at.find(body).unwrap_or(&null), at.find(live).unwrap_or(&null));
    match field {
        "config.labels" => ("labels", json!({ "labels": merged_entries(want, have, changes, &at) })),
        "config.resourceLabels" => {
            let mut labels = merged_entries(want, have, changes, &at);
            if let Some(labels) = labels.as_object_mut() {
                labels.retain(|key, _| !key.starts_with("goog-gke"));
            }
            ("resourceLabels", json!({ "labels": labels }))
        }
        "config.taints" => ("taints", json!({ "taints": merged_taints(want, have, changes, &at) })),
        "config.tags" => {
            // What is no longer said loses only what we put in.
            let left =
                changes.iter().find(|change| change.path == at).and_then(|change| change.after.clone());
            ("tags", json!({ "tags": left.unwrap_or_else(|| want.clone()) }))
        }
        "config.machineType" => ("machineType", want.clone()),
        "config.diskType" => ("diskType", want.clone()),
        "config.diskSizeGb" => ("diskSizeGb", json!(want.to_string())),
        "config.imageType" => ("imageType", want.clone()),
        "config.accelerators" => ("accelerators", want.clone()),
        "upgradeSettings" => ("upgradeSettings", want.clone()),
        _ => ("locations", want.clone()),
    }
}

fn merged_taints(want: &Value, live: &Value, changes: &[FieldChange], at: &FieldPath) -> Vec<Value> {
    let shown = |taint: &Value| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]));
    let ours =
        |taint: &Value| want.as_array().is_some_and(|list| list.iter().any(|t| shown(t) == shown(taint)));
    let given_up = |taint: &Value| {
        changes.iter().any(|change| change.after.is_none() && change.path == at.key(&shown(taint)))
    };
    let kept = live.as_array().into_iter().flatten().filter(|taint| !ours(taint) && !given_up(taint));
    kept.chain(want.as_array().into_iter().flatten()).cloned().collect()
}

fn queries(wait: &Await) -> Vec<Query> {
    let mut queries = itself(wait);
    if wait.until == Until::Ready {
        let pool = text(&wait.facts["pool"]);
        let path = format!("/api/v1/nodes?labelSelector={}%3D{pool}", POOL_LABEL.replace('/', "%2F"));
        queries.push(Query { api: Api::Kubernetes, path });
    }
    queries
}

/// A pool whose creation failed stays behind with status ERROR, one that could not grow is RUNNING_WITH_ERROR.
fn judge(wait: &Await, found: &[Value]) -> Readiness {
    let [pool, nodes] = found else { return Readiness::Progressing("an answer".into()) };
    match text(&pool["status"]) {
        "RUNNING" => {}
        // GKE goes on trying, and the operation that met the trouble has failed by itself.
        "RUNNING_WITH_ERROR" => {
            return Readiness::Progressing(format!("all its nodes{}", conditions(pool)));
        }
        status @ ("ERROR" | "STOPPING") => {
            return Readiness::Failed(format!("its status is {status}{}", conditions(pool)));
        }
        "" => return Readiness::Progressing("it to appear".into()),
        status => return Readiness::Progressing(format!("status RUNNING, now {status}")),
    }
    let per_node = &pool["config"]["accelerators"][0];
    let gpus = if wait.facts["gpus"] == true && !per_node.is_null() { 1 } else { 0 };
    nodes_ready(nodes, wait.facts["nodes"].as_u64().unwrap_or(0), gpus)
}

/// Whether as many nodes as wanted are Ready, each with so many allocatable GPUs.
pub(crate) fn nodes_ready(nodes: &Value, wanted: u64, gpus: u64) -> Readiness {
    let list: Vec<&Value> = nodes["items"].as_array().into_iter().flatten().collect();
    let ready = |node: &&&Value| condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
    let up = list.iter().filter(ready).count() as u64;
    if up < wanted.max(list.len() as u64) {
        return Readiness::Progressing(format!("{up} of {} nodes ready", wanted.max(list.len() as u64)));
    }
    let equipped = list.iter().filter(|node| allocatable_gpus(node) >= gpus).count() as u64;
    if equipped < list.len() as u64 {
        return Readiness::Progressing(format!("{equipped} of {} nodes with allocatable GPUs", list.len()));
    }
    Readiness::Ready
}

/// For `status`: nodes and what they offer.
pub(super) fn says(wait: &Await, found: &[Value]) -> Said {
    let [pool, nodes] = found else { return Said::default() };
    let list: Vec<&Value> = nodes["items"].as_array().into_iter().flatten().collect();
    let ready = |node: &&&Value| condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
    let (made, up) = (list.len(), list.iter().filter(ready).count());
    let gpus: u64 = list.iter().map(|node| allocatable_gpus(node)).sum();
    let wanted = wait.facts["nodes"].as_u64();
    let of = wanted.map_or(made, |wanted| usize::try_from(wanted).unwrap_or(made).max(made));
    let has_gpus = !pool["config"]["accelerators"][0].is_null();
    let noun = if gpus == 1 { "GPU" } else { "GPUs" };
    let offer = if has_gpus { format!(", {gpus} {noun} allocatable") } else { String::new() };
    let status = text(&pool["status"]);
    let trouble = if matches!(status, "RUNNING" | "") { String::new() } else { format!("{status}: ") };
    Said {
        line: format!("{trouble}{up} of {of} nodes ready{offer}"),
        facts: vec![
            ("status", pool["status"].clone()),
            ("machine_type", pool["config"]["machineType"].clone()),
            ("nodes_wanted", json!(wanted)),
            ("nodes_made", json!(made)),
            ("nodes_ready", json!(up)),
            ("gpus_allocatable", json!(gpus)),
        ],
        pending: Vec::new(),
    }
}

/// `nvidia.com/gpu` that pods may ask for on a node.
pub(crate) fn allocatable_gpus(node: &Value) -> u64 {
    let gpus = &node["status"]["allocatable"]["nvidia.com/gpu"];
    gpus.as_str().and_then(|gpus| gpus.parse().ok()).unwrap_or_else(|| count(gpus))
}

/// What GKE says of a cluster or pool in trouble, as the end of a sentence.
pub(crate) fn conditions(live: &Value) -> String {
    let messages: Vec<&str> = live["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| text(&condition["message"]))
        .chain([text(&live["statusMessage"])])
        .filter(|message| !message.is_empty())
        .collect();
    match messages.first() {
        Some(message) => format!(": {message}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_count_when_they_are_ready_and_have_their_gpus() {
        let node = |ready: &str, gpus: &str| {
            json!({ "status": {
                "conditions": [{ "type": "Ready", "status": ready }], "allocatable": { "nvidia.com/gpu": gpus }
            } })
        };
        let list = |nodes: &[Value]| json!({ "items": nodes });
        let up = node("True", "2");
        assert_eq!(nodes_ready(&list(std::slice::from_ref(&up)), 1, 2), Readiness::Ready);
        assert_eq!(nodes_ready(&list(&[]), 0, 1), Readiness::Ready);
        let waits = |list: Value, wanted, gpus, expect: &str| {
            assert_eq!(nodes_ready(&list, wanted, gpus), Readiness::Progressing(expect.into()));
        };
        waits(list(&[]), 1, 0, "0 of 1 nodes ready");
        waits(list(&[node("False", "2")]), 1, 0, "0 of 1 nodes ready");
        waits(list(&[up, node("True", "0")]), 2, 1, "1 of 2 nodes with allocatable GPUs");
    }
}
