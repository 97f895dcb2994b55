//! What one apply leaves for the next: which things are ours, what we last set where the API keeps no
//! owner, which checks passed. Losing it loses no ability to plan.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::Address;
use crate::resource::{Gvk, Identity, ObjectId};

/// The namespace of records.
pub const NAMESPACE: &str = "dask-infra";

/// One record for each stack and cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The shape of this record; other numbers are not read.
    pub version: u32,
    /// The stack's name.
    pub stack: String,
    /// The stack's id. Another id under our name is another stack's record.
    pub id: String,
    /// Where the stack was applied, as printed.
    pub target: String,
    /// Applies so far.
    pub revision: u64,
    /// Whether this is what an apply was about to do (true) or did.
    pub intent: bool,
    /// RFC 3339 time of writing.
    pub written: String,
    /// What exists, or may exist after an interrupted apply.
    pub inventory: Vec<Entry>,
    /// Checks that passed: address to digest of what was checked.
    #[serde(default)]
    pub passes: BTreeMap<Address, String>,
}

/// One thing of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its address when it was written.
    pub address: Address,
    /// What the API calls it.
    pub identity: Identity,
    /// The name of its kind.
    pub kind: String,
    /// What we last set, for things of the GKE API, which keeps no owner of a field.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub set: Value,
}

impl Record {
    /// The version that this program writes and reads.
    pub const VERSION: u32 = 1;

    /// The ConfigMap that holds the record of a stack.
    pub fn object(stack: &str) -> ObjectId {
        ObjectId {
            gvk: Gvk {
                group: String::new(),
                version: "v1".into(),
                kind: "ConfigMap".into(),
                plural: "configmaps".into(),
            },
            namespace: Some(NAMESPACE.into()),
            name: format!("dask-infra-{stack}"),
        }
    }

    /// What we last set on a thing.
    pub fn last_set(&self, identity: &Identity) -> Option<&Value> {
        let entry = self.inventory.iter().find(|entry| &entry.identity == identity)?;
        (!entry.set.is_null()).then_some(&entry.set)
    }
}
