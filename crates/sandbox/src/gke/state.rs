//! The state of GKE as it is stored.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::operations::Operation;
use super::path::ClusterId;
use super::settings::{Endpoints, Stockout};
use crate::kube::object::text;
use crate::persist::{counter, named};

/// Where a cluster is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Being created; the control plane answers from the time given.
    Provisioning { control_plane: Timestamp },
    /// In use.
    Running,
    /// Being deleted.
    Stopping,
    /// Its creation failed.
    Error,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name.
    pub id: ClusterId,
    /// Where it is in its life.
    pub phase: Phase,
    /// `host:port` of its Kubernetes API, once there is one.
    pub endpoint: Option<String>,
    /// The Cluster message without what follows from the rest of this struct.
    pub body: Value,
    /// Node pools in order of creation.
    pub pools: Vec<Pool>,
    /// Counts changes, for the etag.
    #[serde(deserialize_with = "counter")]
    pub revision: u64,
    /// Counts label changes, for the fingerprint.
    #[serde(deserialize_with = "counter")]
    pub label_revision: u64,
    /// Why it is not well.
    pub trouble: Option<String>,
}

/// Where a pool is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolPhase {
    /// Its first operation runs.
    Provisioning,
    /// In use.
    Running,
    /// Being deleted.
    Stopping,
}

/// One node pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// Its name within the cluster.
    pub name: String,
    /// Where it is in its life.
    pub phase: PoolPhase,
    /// The NodePool message without what follows from the rest of this struct.
    pub body: Value,
    /// Nodes wanted, by zone.
    pub sizes: BTreeMap<String, u32>,
    /// Machines that exist, by zone.
    pub present: BTreeMap<String, u32>,
    /// When missing machines are tried again.
    pub grow_at: Option<Timestamp>,
    /// Why machines are missing.
    pub trouble: Option<String>,
    /// True if the autoscaler's last attempt was refused for lack of quota.
    #[serde(default)]
    pub lacks_quota: bool,
    /// Counts changes, for the etag.
    #[serde(deserialize_with = "counter")]
    pub revision: u64,
    /// `gke-CLUSTER-POOL-HASH`, what machine and group names start with.
    pub prefix: String,
}

/// The whole state of GKE.
#[derive(Debug, Default)]
pub struct Gke {
    pub(super) clusters: BTreeMap<ClusterId, Cluster>,
    pub(super) operations: BTreeMap<String, Operation>,
    pub(super) meta: Meta,
    /// Scripted shortages, each with the name under which its attempts are counted.
    pub(super) stockouts: Vec<(String, Stockout)>,
    pub(super) dirty: BTreeSet<String>,
    /// Counts changes in this process.
    pub(super) revision: u64,
}

/// The state that does not belong to one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Counts everything that needs a name nobody has used.
    #[serde(deserialize_with = "counter")]
    pub(super) counter: u64,
    /// How many attempts each scripted shortage has failed, by its name.
    #[serde(default)]
    pub(super) met: BTreeMap<String, u32>,
}

/// The entry that is not about one cluster.
pub const META: &str = "meta";

/// The release channel that a Cluster message names; empty for none.
pub fn channel(body: &Value) -> &str {
    match text(body, "/releaseChannel/channel") {
        "UNSPECIFIED" => "",
        channel => channel,
    }
}

impl Cluster {
    /// Its release channel, empty for none.
    pub fn channel(&self) -> &str {
        channel(&self.body)
    }

    /// The version of its control plane.
    pub fn master(&self) -> &str {
        text(&self.body, "/currentMasterVersion")
    }

    /// Its name under `gke.goog`; where somebody listens, a name that leads there.
    pub fn dns_name(&self, endpoints: Endpoints) -> String {
        let listener = || self.endpoint.as_ref()?.rsplit_once(':');
        match (endpoints, listener()) {
            (Endpoints::Served, Some((_, port))) => format!("localhost:{port}"),
            (Endpoints::Served | Endpoints::InProcess, _) => {
                text(&self.body, "/controlPlaneEndpointsConfig/dnsEndpointConfig/endpoint").to_owned()
            }
        }
    }

    /// Returns the endpoint that the API shows: the DNS name where there is no access by IP.
    /// Source: Config Connector's recorded `containercluster-dnsendpoint-noipendpoint`.
    pub fn shown_endpoint(&self, endpoints: Endpoints) -> Option<String> {
        let enabled = self.body.pointer("/controlPlaneEndpointsConfig/ipEndpointsConfig/enabled");
        let address = self.endpoint.clone()?;
        Some(if enabled == Some(&Value::Bool(false)) { self.dns_name(endpoints) } else { address })
    }

    /// Returns true if the Kubernetes API answers.
    pub fn has_control_plane(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Provisioning { control_plane } => control_plane <= now,
            Phase::Running | Phase::Stopping => true,
            Phase::Error => false,
        }
    }
}

impl Gke {
    /// A state without anything.
    pub fn new() -> Self {
        Self { dirty: BTreeSet::from([META.to_owned()]), ..Self::default() }
    }

    /// A state from what [`Gke::take_dirty`] gave earlier.
    pub fn restore(entries: impl IntoIterator<Item = (String, Value)>) -> Result<Self, String> {
        let mut gke = Self::default();
        let wrong = |key: &str, error: serde_json::Error| format!("entry {key} is not readable: {error}");
        for (key, value) in entries {
            match key.split_once('/') {
                None => gke.meta = serde_json::from_value(value).map_err(|error| wrong(&key, error))?,
                Some(("operation", name)) => {
                    let read = serde_json::from_value(value).map_err(|error| wrong(&key, error))?;
                    gke.operations.insert(name.to_owned(), read);
                }
                Some(_) => {
                    let read: Cluster = serde_json::from_value(value).map_err(|error| wrong(&key, error))?;
                    gke.clusters.insert(read.id.clone(), read);
                }
            }
        }
        Ok(gke)
    }

    /// Takes the entries that changed since the last call, to store them, or to delete those with `None`.
    pub fn take_dirty(&mut self) -> Vec<(String, Option<Value>)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty
            .into_iter()
            .map(|key| {
                let value = self.entry(&key);
                (key, value)
            })
            .collect()
    }

    /// Forgets what changed since the last call: nobody stores it. Returns true if there was anything.
    pub fn drop_dirty(&mut self) -> bool {
        !std::mem::take(&mut self.dirty).is_empty()
    }

    fn entry(&self, key: &str) -> Option<Value> {
        match key.split_once('/') {
            None => serde_json::to_value(&self.meta).ok(),
            Some(("operation", name)) => {
                self.operations.get(name).and_then(|entry| serde_json::to_value(entry).ok())
            }
            Some((_, name)) => self
                .clusters
                .values()
                .find(|cluster| cluster.id.to_string() == name)
                .and_then(|entry| serde_json::to_value(entry).ok()),
        }
    }

    pub(super) fn touch(&mut self, id: &ClusterId) {
        self.revision += 1;
        self.dirty.insert(format!("cluster/{id}"));
    }

    pub(super) fn touch_operation(&mut self, name: &str) {
        self.revision += 1;
        self.dirty.insert(format!("operation/{name}"));
    }

    /// Changes whenever something did that the clusters show.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A number that was never given out before.
    pub(super) fn next(&mut self) -> u64 {
        self.meta.counter += 1;
        self.dirty.insert(META.to_owned());
        self.meta.counter
    }

    /// All clusters, sorted by name.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    pub fn cluster(&self, id: &ClusterId) -> Option<&Cluster> {
        self.clusters.get(id)
    }

    /// Tells where a cluster's Kubernetes API listens.
    pub fn set_endpoint(&mut self, id: &ClusterId, endpoint: &str) {
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        if cluster.endpoint.as_deref() != Some(endpoint) {
            cluster.endpoint = Some(endpoint.to_owned());
            self.touch(id);
        }
    }

    /// Adds scripted shortages. The failures that they have caused are kept, they themselves are not: without them
    /// there are machines again.
    pub fn add_stockouts(&mut self, stockouts: Vec<Stockout>) {
        let all = self.stockouts.drain(..).map(|(_, stockout)| stockout).chain(stockouts).collect();
        self.stockouts = named(all);
    }

    /// The state of another one, with the scripted shortages of this one.
    pub fn with_state_of(&mut self, other: Self) -> Self {
        Self { stockouts: std::mem::take(&mut self.stockouts), ..other }
    }

    /// A number that was never given out before, for ids.
    pub fn next_number(&mut self) -> u64 {
        self.next()
    }

    /// Makes a running operation end with an error. `false` when there is none of that name.
    pub fn doom(&mut self, name: &str, why: &str) -> bool {
        let Some(operation) = self.operations.get_mut(name).filter(|operation| operation.is_running()) else {
            return false;
        };
        operation.doom = Some(why.to_owned());
        self.touch_operation(name);
        true
    }

    /// Everything, as entries to store.
    pub fn snapshot(&self) -> Vec<(String, Value)> {
        let clusters = self.clusters.keys().map(|id| format!("cluster/{id}"));
        let operations = self.operations.keys().map(|name| format!("operation/{name}"));
        let keys = clusters.chain(operations).chain([META.to_owned()]);
        keys.filter_map(|key| self.entry(&key).map(|value| (key, value))).collect()
    }
}
