//! The live state, as it was read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{ClusterName, Identity, ObjectId, Seen};
use crate::record::{Record, Unusable};
use crate::secrets::env_values::Given;

/// The live state at one reading, by identity.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The GKE cluster without its pools. `Absent` also for a stack of `[kubernetes]`.
    pub cluster: Seen<Value>,
    /// Its node pools by name.
    pub pools: BTreeMap<String, Value>,
    /// Nodes of each pool over all zones, where that is known.
    pub sizes: BTreeMap<String, u32>,
    /// Objects inside, of the kinds that were asked for.
    pub inside: Seen<BTreeMap<ObjectId, Value>>,
    /// The last record inside the cluster.
    pub record: Option<Record>,
    /// True if the place of the record holds a lock and no record: an apply that began, or one that ended right then.
    pub lock_without_record: bool,
    /// True if the namespace of records is left of an apply that died, with nothing in it.
    pub record_namespace_left: bool,
    /// Kinds of which things of the stack may be there that no record names and that could not be listed.
    pub unlisted: Vec<String>,
    /// Why the record that is there cannot be used.
    pub unusable: Option<Unusable>,
    /// Messages about resources not managed by this stack that could not be listed.
    pub unseen: Vec<String>,
    /// GKE clusters of this stack at other places of the project; only looked for when there is none at its own.
    pub elsewhere: Elsewhere,
    /// Values of the environment variables that Secrets of the stack ask for.
    pub given: Given,
}

/// Where else in its project a stack has a GKE cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Elsewhere {
    /// It was not looked for.
    #[default]
    Unasked,
    /// The clusters that carry the stack's labels.
    Found(Vec<ClusterName>),
    /// It could not be looked for, and why.
    Unknown(String),
}

/// Where things that a plan does not read otherwise could be deleted with what is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionScope {
    /// Everywhere in the cluster.
    pub cluster: bool,
    pub namespaces: BTreeSet<String>,
    /// Everywhere, of the kinds of these definitions: `queues.example.com`.
    pub definitions: BTreeSet<String>,
    /// On nodes: a node pool goes.
    pub nodes: bool,
    /// Kinds that are not looked for, as nothing of them is of anybody.
    pub excluded_kinds: &'static [&'static str],
}

/// Leaves out who wrote which field of a live object, which is half of its tree. The names of the writers stay.
pub fn forget_fields(live: &mut Value) {
    let entries = live.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.remove("fieldsV1");
    }
}

impl World {
    /// A world in which nothing exists.
    pub fn empty() -> Self {
        Self {
            cluster: Seen::Absent,
            pools: BTreeMap::new(),
            sizes: BTreeMap::new(),
            inside: Seen::Absent,
            record: None,
            lock_without_record: false,
            record_namespace_left: false,
            unlisted: Vec::new(),
            unusable: None,
            unseen: Vec::new(),
            elsewhere: Elsewhere::Unasked,
            given: Given::default(),
        }
    }

    /// The live JSON of an identity.
    pub fn find(&self, identity: &Identity) -> Option<&Value> {
        match identity {
            Identity::Cluster(_) => self.cluster.live(),
            Identity::NodePool { pool, .. } => self.pools.get(pool),
            Identity::Object(object) => self.inside.live().and_then(|objects| objects.get(object)),
            Identity::Check(_) => None,
        }
    }
}
