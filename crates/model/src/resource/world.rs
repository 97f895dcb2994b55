//! The live state at one reading.

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
    /// The number of nodes of each pool over all zones, as far as it is known.
    pub sizes: BTreeMap<String, u32>,
    /// Kubernetes objects of the kinds that were read.
    pub objects: Seen<BTreeMap<ObjectId, Value>>,
    /// The record in the cluster.
    pub record: Option<Record>,
    /// True if the record's ConfigMap contains a lock and no record: an apply is starting, or was interrupted right after its
    /// start.
    pub lock_without_record: bool,
    /// True if an interrupted apply left an empty namespace of records.
    pub record_namespace_left: bool,
    /// Kinds that could not be listed, of which the stack may have objects that no record names.
    pub unlisted_owned: Vec<String>,
    /// Why the existing record cannot be used.
    pub record_error: Option<Unusable>,
    /// Messages about resources not managed by this stack that could not be listed.
    pub unlisted_foreign: Vec<String>,
    /// GKE clusters of this stack at other locations of the project; only searched for if its own location has none.
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

/// The scope in which a plan's deletes could delete foreign objects. A plan reads these objects only for that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionScope {
    /// Everywhere in the cluster.
    pub cluster: bool,
    pub namespaces: BTreeSet<String>,
    /// CRDs that are deleted with all objects of their kinds: `queues.example.com`.
    pub crds: BTreeSet<String>,
    /// True if Pods on nodes may be deleted, because a node pool is deleted.
    pub nodes: bool,
    /// Kinds that are not read, as controllers derive them from other objects.
    pub excluded_kinds: &'static [&'static str],
}

/// Removes the fields of each entry in managedFields, which are half the size of an object. The names of the managers stay.
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
