//! The live state, as it was read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{ClusterName, Identity, ObjectId, Seen};
use crate::record::{Record, Unusable};
use crate::secrets::env_values::EnvValues;

/// The live state at one reading, by identity.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The GKE cluster without its pools. `Absent` also for a stack of `[kubernetes]`.
    pub cluster: Seen<Value>,
    /// Its node pools by name.
    pub pools: BTreeMap<String, Value>,
    /// Nodes of each pool over all zones, where that is known.
    pub sizes: BTreeMap<String, u32>,
    /// Kubernetes objects of the kinds that were asked for.
    pub objects: Seen<BTreeMap<ObjectId, Value>>,
    /// The last record inside the cluster.
    pub record: Option<Record>,
    /// True if the place of the record holds a lock and no record: an apply that began, or one that ended right then.
    pub lock_without_record: bool,
    /// True if the namespace of records is left of an apply that died, with nothing in it.
    pub record_namespace_left: bool,
    /// Kinds whose objects could not be listed, although the stack may have some that no record names.
    pub unlisted_owned: Vec<String>,
    /// Why the record that exists cannot be used.
    pub record_error: Option<Unusable>,
    /// Messages about resources not managed by this stack that could not be listed.
    pub unlisted_foreign: Vec<String>,
    /// GKE clusters of this stack at other locations of the project; only searched for when there is none at its own.
    pub other_clusters: OtherClusters,
    /// Values of the environment variables that Secrets of the stack refer to.
    pub env_values: EnvValues,
}

/// Clusters of a stack at other locations of its project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OtherClusters {
    /// Nobody searched for them.
    #[default]
    NotSearched,
    /// The clusters that carry the stack's labels.
    Found(Vec<ClusterName>),
    /// The search failed, and why.
    Unknown(String),
}

/// Where foreign objects that a plan does not read otherwise could be deleted with what is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionScope {
    /// Everywhere in the cluster.
    pub cluster: bool,
    pub namespaces: BTreeSet<String>,
    /// CRDs that are deleted with all objects of their kinds: `queues.example.com`.
    pub crds: BTreeSet<String>,
    /// True if Pods on nodes may be deleted: a node pool is.
    pub nodes: bool,
    /// Kinds that are not read, as controllers write them about other objects.
    pub excluded_kinds: &'static [&'static str],
}

/// Removes the fields of each manager from managedFields: they are half of an object. The names of the managers stay.
pub fn drop_managed_fields(live: &mut Value) {
    let entries = live.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.remove("fieldsV1");
    }
}

impl World {
    /// Creates a world in which nothing exists.
    pub fn empty() -> Self {
        Self {
            cluster: Seen::Absent,
            pools: BTreeMap::new(),
            sizes: BTreeMap::new(),
            objects: Seen::Absent,
            record: None,
            lock_without_record: false,
            record_namespace_left: false,
            unlisted_owned: Vec::new(),
            record_error: None,
            unlisted_foreign: Vec::new(),
            other_clusters: OtherClusters::NotSearched,
            env_values: EnvValues::default(),
        }
    }

    /// Returns the live JSON of an identity.
    pub fn find(&self, identity: &Identity) -> Option<&Value> {
        match identity {
            Identity::Cluster(_) => self.cluster.live(),
            Identity::NodePool { pool, .. } => self.pools.get(pool),
            Identity::Object(object) => self.objects.live().and_then(|objects| objects.get(object)),
            Identity::Check(_) => None,
        }
    }
}
