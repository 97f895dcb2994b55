//! GKE's control plane: clusters, node pools, operations. Pure: every entry takes the time, and the same
//! calls at the same times give the same answers.
//!
//! What it imitates comes from published exchanges and the API's own description; what is only recalled
//! says so where it stands.

mod checks;
mod clusters;
mod compute;
mod defaults;
pub mod errors;
pub mod limits;
mod machines;
pub mod operations;
pub mod path;
mod places;
mod pools;
mod requests;
pub mod shape;
#[cfg(test)]
mod tests;
mod update;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::limits::{Quota, Stockout};
pub use self::path::ClusterId;
pub use self::requests::{Reply, Request};

use self::operations::Operation;
use super::clock::Scale;
use super::faults;
use super::kube::run::PoolView;
use super::persist::counter;

/// What does not belong to the state but decides its answers.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How fast time runs.
    pub scale: Scale,
    /// GPU quota per region.
    pub quota: Quota,
    /// Whether clusters wait for somebody to give them an endpoint, or name one themselves.
    pub endpoints: Endpoints,
    /// Certificate authority of every cluster, PEM.
    pub authority: String,
    /// How many clusters there can be.
    pub room: Room,
    /// How long operations take, in seconds of the real service, where it is not the usual time.
    pub seconds: BTreeMap<operations::Kind, f64>,
}

/// Whether machines are asked for anew, or after a shortage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    Again,
}

/// How many clusters there can be at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// As many as are asked for.
    #[default]
    Any,
    /// One: there is one API server that can stand behind it.
    One,
}

/// Who gives a cluster its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoints {
    /// Nobody listens; a documentation address is enough.
    #[default]
    InProcess,
    /// A listener is bound outside, and [`Gke::set_endpoint`] tells where.
    Served,
}

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

/// One cluster.
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
    /// Counts changes, for the etag.
    #[serde(deserialize_with = "counter")]
    pub revision: u64,
    /// `gke-CLUSTER-POOL-HASH`, what machine and group names start with.
    pub prefix: String,
}

/// The whole state of GKE.
#[derive(Debug, Default)]
pub struct Gke {
    clusters: BTreeMap<ClusterId, Cluster>,
    operations: BTreeMap<String, Operation>,
    meta: Meta,
    /// Scripted shortages, each with the name under which its attempts are counted.
    stockouts: Vec<(String, Stockout)>,
    dirty: BTreeSet<String>,
    /// Counts changes in this process.
    revision: u64,
}

/// What is not about one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Meta {
    /// Counts everything that needs a name nobody has used.
    #[serde(deserialize_with = "counter")]
    counter: u64,
    /// How many attempts each scripted shortage has failed, by its name.
    #[serde(default)]
    met: BTreeMap<String, u32>,
}

const META: &str = "meta";

/// Ended operations are forgotten beyond this many, oldest first; real ones after some days.
const KEPT_OPERATIONS: usize = 500;

impl Cluster {
    /// Whether the Kubernetes API answers.
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

    /// What changed since the last call: entries to store, or to forget where the value is `None`.
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

    /// Forgets what changed since the last call: nobody stores it. Whether there was anything.
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

    fn touch(&mut self, id: &ClusterId) {
        self.revision += 1;
        self.dirty.insert(format!("cluster/{id}"));
    }

    fn touch_operation(&mut self, name: &str) {
        self.revision += 1;
        self.dirty.insert(format!("operation/{name}"));
    }

    /// Changes whenever something did that the clusters show.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A number that was never given out before.
    fn next(&mut self) -> u64 {
        self.meta.counter += 1;
        self.dirty.insert(META.to_owned());
        self.meta.counter
    }

    /// All clusters, sorted by name.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    /// One cluster.
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

    /// A cluster's pools as its Kubernetes side sees them.
    pub fn pool_views(&self, cluster: &Cluster) -> Vec<PoolView> {
        let view = |pool: &Pool| PoolView {
            pool: self.render_pool(cluster, pool, "https://container.googleapis.com/v1"),
            target_sizes: pool.present.clone(),
            deleting: pool.phase == PoolPhase::Stopping,
            instance_prefix: pool.prefix.clone(),
        };
        cluster.pools.iter().map(view).collect()
    }

    /// Adds scripted shortages. What they have failed so far is kept, they themselves are not: without them
    /// there are machines again.
    pub fn add_stockouts(&mut self, stockouts: Vec<Stockout>) {
        let all = self.stockouts.drain(..).map(|(_, stockout)| stockout).chain(stockouts).collect();
        self.stockouts = faults::named(all);
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

    /// Does what is due by `now`. Cheap when nothing is.
    pub fn tick(&mut self, now: Timestamp, settings: &Settings) {
        self.bring_up(now, settings);
        self.grow(now, settings, Attempt::First);
        // Between the two: an operation that met a shortage must tell of it, however late this tick comes.
        self.finish(now, settings);
        self.grow(now, settings, Attempt::Again);
    }

    /// Control planes that answer from now on.
    fn bring_up(&mut self, now: Timestamp, settings: &Settings) {
        let due: Vec<ClusterId> = self
            .clusters
            .values()
            .filter(|cluster| cluster.endpoint.is_none() && cluster.has_control_plane(now))
            .map(|cluster| cluster.id.clone())
            .collect();
        for id in due {
            if settings.endpoints == Endpoints::InProcess {
                // RFC 5737 addresses never lead anywhere by accident.
                let number = self.next();
                self.set_endpoint(&id, &format!("203.0.113.{}", number % 256));
            }
        }
    }

    /// Machines that appear now, or fail to.
    fn grow(&mut self, now: Timestamp, settings: &Settings, attempt: Attempt) {
        let Self { clusters, meta, stockouts, dirty, revision, .. } = self;
        for cluster in clusters.values_mut() {
            let id = cluster.id.clone();
            for pool in &mut cluster.pools {
                let is_its_turn = pool.trouble.is_some() == (attempt == Attempt::Again);
                if !is_its_turn || pool.grow_at.is_none_or(|at| at > now) {
                    continue;
                }
                dirty.insert(format!("cluster/{id}"));
                *revision += 1;
                match limits::shortage(stockouts, &mut meta.met, &id, pool) {
                    Some(trouble) => {
                        dirty.insert(META.to_owned());
                        pool.trouble = Some(trouble);
                        pool.grow_at = Some(settings.scale.after(now, pools::RETRY_SECONDS));
                    }
                    None => {
                        pool.present = pool.sizes.clone();
                        pool.trouble = None;
                        pool.grow_at = None;
                    }
                }
            }
        }
    }

    /// Operations that end now.
    fn finish(&mut self, now: Timestamp, settings: &Settings) {
        let due: Vec<Operation> =
            self.operations.values().filter(|op| op.is_running() && op.due <= now).cloned().collect();
        for operation in due {
            self.end(operation, now, settings);
        }
        self.forget_old();
    }

    fn forget_old(&mut self) {
        if self.operations.len() <= KEPT_OPERATIONS {
            return;
        }
        let mut ended: Vec<(Timestamp, String)> = self
            .operations
            .values()
            .filter(|operation| !operation.is_running())
            .map(|operation| (operation.start, operation.name.clone()))
            .collect();
        ended.sort();
        for (_, name) in ended.into_iter().take(self.operations.len() - KEPT_OPERATIONS) {
            self.operations.remove(&name);
            self.touch_operation(&name);
        }
    }
}

/// A hash of words as `length` hexadecimal digits, for ids that look random but follow from the state.
fn hex(words: &[&str], length: usize) -> String {
    let mut hasher = blake3::Hasher::new();
    for word in words {
        hasher.update(word.as_bytes());
        hasher.update(&[0]);
    }
    let mut text = hasher.finalize().to_hex().to_string();
    text.truncate(length);
    text
}

/// The same in the form of a UUID.
fn uuid(words: &[&str]) -> String {
    let hex = hex(words, 32);
    format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

/// A project's number, for links: projects are not kept, so it follows from the name.
fn project_number(project: &str) -> u64 {
    match project.parse() {
        Ok(number) => number,
        Err(_) => {
            let hash = u64::from_str_radix(&hex(&["project", project], 12), 16).unwrap_or_default();
            100_000_000_000 + hash % 900_000_000_000
        }
    }
}
