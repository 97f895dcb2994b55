//! Long-running operations: RUNNING first, DONE later, and what becomes true when they end.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::path::ClusterId;
use super::places;

/// The kinds of operations, in GKE's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum Kind {
    CreateCluster,
    DeleteCluster,
    UpgradeMaster,
    UpgradeNodes,
    UpdateCluster,
    CreateNodePool,
    DeleteNodePool,
    SetNodePoolManagement,
    SetNodePoolSize,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::CreateCluster,
        Self::DeleteCluster,
        Self::UpgradeMaster,
        Self::UpgradeNodes,
        Self::UpdateCluster,
        Self::CreateNodePool,
        Self::DeleteNodePool,
        Self::SetNodePoolManagement,
        Self::SetNodePoolSize,
    ];

    /// `CREATE_CLUSTER`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateCluster => "CREATE_CLUSTER",
            Self::DeleteCluster => "DELETE_CLUSTER",
            Self::UpgradeMaster => "UPGRADE_MASTER",
            Self::UpgradeNodes => "UPGRADE_NODES",
            Self::UpdateCluster => "UPDATE_CLUSTER",
            Self::CreateNodePool => "CREATE_NODE_POOL",
            Self::DeleteNodePool => "DELETE_NODE_POOL",
            Self::SetNodePoolManagement => "SET_NODE_POOL_MANAGEMENT",
            Self::SetNodePoolSize => "SET_NODE_POOL_SIZE",
        }
    }

    /// How long it takes, in seconds of the real service, when it touches `nodes` nodes, `surge` at a
    /// time. Durations seen in public threads: cluster 3 to 9 min, pool 1.5 to 7 min, deleting an empty
    /// pool about 10 s, with nodes 2.5 min and more.
    pub fn seconds(self, nodes: u32, surge: u32) -> f64 {
        match self {
            Self::CreateCluster | Self::UpgradeMaster => 300.0,
            Self::DeleteCluster => 180.0,
            Self::UpgradeNodes => 45.0 + 45.0 * f64::from(nodes.div_ceil(surge.max(1))),
            Self::UpdateCluster => 15.0,
            Self::CreateNodePool => 120.0,
            Self::DeleteNodePool if nodes == 0 => 10.0,
            Self::DeleteNodePool => 150.0,
            Self::SetNodePoolManagement => 5.0,
            Self::SetNodePoolSize => 60.0,
        }
    }
}

/// How much of its time an operation of a pool waits at first.
const PENDING_SHARE: f64 = 0.05;

/// The part that an operation locks: the whole cluster or one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Excludes every other write to the cluster.
    Cluster,
    /// Excludes other operations on this pool and on the cluster.
    Pool(String),
}

impl Scope {
    /// Returns true if a pool belongs to it.
    pub fn holds(&self, pool: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Pool(name) => name == pool,
        }
    }
}

/// The effect that an operation has when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// The cluster is there, or gone, as its phase says.
    Phase,
    /// The cluster and some of its pools get these bodies.
    Bodies {
        /// The cluster's new body.
        cluster: Option<Value>,
        /// New bodies of pools, by name.
        pools: Vec<(String, Value)>,
    },
}

/// How far an operation is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Not ended.
    Running,
    /// Ended at this time; with a reason when it failed.
    Done(Timestamp, Option<String>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// `operation-<ms>-<uuid>`.
    pub name: String,
    /// The kind of operation.
    pub kind: Kind,
    /// On which cluster.
    pub cluster: ClusterId,
    /// On which part of it.
    pub scope: Scope,
    pub start: Timestamp,
    /// When it will have ended.
    pub due: Timestamp,
    /// How far it is.
    pub status: Status,
    /// The effect at its end.
    pub effect: Effect,
    /// How many nodes it touches; shown in the progress.
    pub nodes: u32,
    /// Project number, for links.
    pub number: u64,
    /// The error that it was told to end with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doom: Option<String>,
}

impl Operation {
    /// Returns true if it has not ended.
    pub fn is_running(&self) -> bool {
        self.status == Status::Running
    }

    /// The target's link: the cluster, or the pool in it.
    fn target(&self) -> String {
        let ClusterId { location, name, .. } = &self.cluster;
        let cluster =
            format!("projects/{}/{}/{location}/clusters/{name}", self.number, places::word(location));
        match &self.scope {
            Scope::Pool(pool) => format!("{cluster}/nodePools/{pool}"),
            Scope::Cluster => cluster,
        }
    }

    /// Returns true if it waits for its turn: those of pools do at first, those of a cluster run at once (recorded).
    fn is_pending(&self, now: Timestamp) -> bool {
        matches!(self.scope, Scope::Pool(_)) && self.is_running() && self.share(now) < PENDING_SHARE
    }

    /// The Operation message as a GET shows it; `base` is the address of the API and its version.
    pub fn render(&self, now: Timestamp, base: &str) -> Value {
        let ClusterId { location, .. } = &self.cluster;
        let number = self.number;
        let mut body = Map::new();
        let mut put = |key: &str, value: Value| body.insert(key.to_owned(), value);
        put("name", json!(self.name));
        put("operationType", json!(self.kind.name()));
        put(
            "selfLink",
            json!(format!(
                "{base}/projects/{number}/{}/{location}/operations/{}",
                places::word(location),
                self.name
            )),
        );
        put("targetLink", json!(format!("{base}/{}", self.target())));
        put("zone", json!(location));
        // Recorded operations of zones do without it; of regions none is at hand.
        if !places::is_zone(location) {
            put("location", json!(location));
        }
        put("startTime", json!(self.start.to_string()));
        if let Some(progress) = self.progress(now) {
            put("progress", progress);
        }
        match &self.status {
            Status::Running => {
                put("status", json!(if self.is_pending(now) { "PENDING" } else { "RUNNING" }));
            }
            Status::Done(end, failure) => {
                put("status", json!("DONE"));
                put("endTime", json!(end.to_string()));
                if let Some(message) = failure {
                    // Clients look at one of the two only, so both are set, as GKE does.
                    put("statusMessage", json!(message));
                    put("error", json!({ "code": 8, "message": message }));
                }
            }
        }
        Value::Object(body)
    }

    /// The share of the time that has passed, 0 to 1.
    fn share(&self, now: Timestamp) -> f64 {
        let whole = self.due.duration_since(self.start).as_secs_f64();
        if !self.is_running() || whole <= 0.0 {
            return 1.0;
        }
        (now.duration_since(self.start).as_secs_f64() / whole).clamp(0.0, 1.0)
    }

    fn progress(&self, now: Timestamp) -> Option<Value> {
        let metric = |name: &str, value: u32| json!({ "name": name, "intValue": value.to_string() });
        let share = self.share(now);
        // The answer to the request that starts it tells of none.
        if share <= 0.0 || self.is_pending(now) {
            return None;
        }
        let part = |whole: u32, from: f64, to: f64| {
            (f64::from(whole) * ((share - from) / (to - from)).clamp(0.0, 1.0)).floor() as u32
        };
        let metrics = match self.kind {
            Kind::CreateCluster => vec![
                metric("CLUSTER_CONFIGURING", part(8, 0.0, 0.4)),
                metric("CLUSTER_CONFIGURING_TOTAL", 8),
                metric("CLUSTER_DEPLOYING", part(12, 0.4, 0.8)),
                metric("CLUSTER_DEPLOYING_TOTAL", 12),
                // Recorded operations end with one of the two health checks counted.
                metric("CLUSTER_HEALTHCHECKING", part(1, 0.8, 1.0)),
                metric("CLUSTER_HEALTHCHECKING_TOTAL", 2),
            ],
            // Recorded of changes that touch no node.
            Kind::UpdateCluster if self.scope != Scope::Cluster => vec![metric("NODES_TOTAL", 0)],
            Kind::UpgradeNodes if self.nodes == 0 => vec![metric("NODES_TOTAL", 0)],
            Kind::UpgradeNodes => {
                let done = part(self.nodes, 0.0, 1.0);
                vec![
                    metric("NODES_TOTAL", self.nodes),
                    metric("NODES_FAILED", 0),
                    metric("NODES_COMPLETE", done),
                    metric("NODES_DONE", done),
                    metric("NODE_PDB_DELAY_SECONDS", 0),
                ]
            }
            _ => return None,
        };
        Some(json!({ "metrics": metrics }))
    }
}
