//! The record that one apply leaves for the next: the resources that the stack owns, the values last set where the API keeps no
//! owner, and the checks that passed. Plans also work without it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accrued_cost::{self, AccruedCost};
use crate::address::Address;
use crate::resource::{ClusterName, Host, Identity, ObjectId, RecordedKind, gvk};

/// The namespace of records.
pub const NAMESPACE: &str = "dask-infra";

/// The number of digest characters in the names of further ConfigMaps.
pub const DIGEST: usize = 16;

/// Returns true for a ConfigMap that is a further part of a stack's record. Names of stacks contain no dot.
pub fn is_part(stack: &str, name: &str) -> bool {
    is_part_of(&Record::object(stack), name)
}

/// `dask-infra-STACK.0123456789abcdef-2`: a digest and a number.
pub fn is_part_of(record_id: &ObjectId, name: &str) -> bool {
    let rest = name.strip_prefix(&record_id.name).and_then(|rest| rest.strip_prefix('.'));
    rest.and_then(|rest| rest.split_once('-')).is_some_and(|(digest, number)| {
        let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        digest.len() == DIGEST && hex(digest) && number.parse::<u32>().is_ok_and(|number| number > 1)
    })
}

/// One record for each stack and cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of the record's format; other versions are not read.
    pub version: u32,
    /// The stack's name.
    pub stack: String,
    /// The stack's id. A record with the same name and another id belongs to another stack.
    pub id: String,
    /// Where the stack was applied, as printed.
    pub target: String,
    /// Applies so far.
    pub revision: u64,
    /// True if this is what an apply was about to do; false if it is what an apply did.
    pub intent: bool,
    /// RFC 3339 time of writing.
    pub written: String,
    /// Resources that exist, or may exist after an interrupted apply.
    pub inventory: Vec<Entry>,
    /// Checks that passed and run-once resources that were created, each with the digest of its text.
    #[serde(rename = "passes", default, with = "as_list")]
    pub completed: Completions,
    /// Resources that are stopped, although the file has them.
    #[serde(default, with = "as_list", skip_serializing_if = "Stopped::is_empty")]
    pub stopped: Stopped,
    /// The resources that a `start` began to restore and that were not found live since. Any later apply or `start` continues
    /// with them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub starting: BTreeSet<Identity>,
    /// RFC 3339 time of the last `start`, from which `ttl` and `idle_stop` of the stack count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// The stop of the whole stack by its `ttl` or `idle_stop` since the record was written. It is stored beside the record.
    #[serde(skip)]
    pub expired: Option<Expired>,
    /// True if it was created after an earlier record was lost, and the search for resources of the stack was incomplete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// Run-once resources that an apply was about to create: it is unknown if it did.
    #[serde(rename = "begun", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub create_once_pending: BTreeSet<Identity>,
    /// Pools with several capacity options that were not created by the first one.
    #[serde(rename = "bought", default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_used: Vec<CapacityUsed>,
    /// The hosts of `[ssh]` with resources, or possible resources, of the stack. A host that is removed from the file still has
    /// to be emptied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// The cost so far; `None` in records of earlier versions, outside of Google Cloud, and where it cannot be read.
    #[serde(
        rename = "cost",
        default,
        deserialize_with = "accrued_cost::deserialize",
        skip_serializing_if = "accrued_cost::is_left_out"
    )]
    pub accrued_cost: Option<AccruedCost>,
}

/// The capacity option that a pool was created with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityUsed {
    pub identity: Identity,
    /// The name of the option in the plan.
    #[serde(rename = "way")]
    pub option: String,
    /// Capacity options before it.
    pub tried: Vec<Tried>,
}

/// A capacity option that had no machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    #[serde(rename = "way")]
    pub option: String,
    /// GKE's answer.
    pub why: String,
}

/// Digests by identity: an address may change, the identity does not.
pub type Completions = BTreeMap<Identity, String>;

/// The stopped resources, by identity.
pub type Stopped = BTreeMap<Identity, Stop>;

/// A stop of the whole stack by its `ttl` or `idle_stop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    pub stop: Stop,
    /// The API paths of the objects that it deletes.
    pub deleted: BTreeSet<String>,
}

/// The user or the key of the stack that stopped something, and the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// `ann@laptop`.
    pub by: String,
    /// RFC 3339 time, to the second.
    pub since: String,
    /// The section that created it. Further resources of that section are stopped as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
}

/// `stopped by ann@laptop since 2026-11-23T18:00:00Z`.
impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stopped by {} since {}", self.by, self.since)
    }
}

/// Keys of JSON objects are text, and identities are not.
pub mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Identity;

    pub fn serialize<S: Serializer, V: Serialize>(
        things: &BTreeMap<Identity, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(things)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Identity, V>, D::Error> {
        Ok(Vec::<(Identity, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// One recorded resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its address when it was written.
    pub address: Address,
    /// The name of the resource in the API.
    pub identity: Identity,
    pub kind: RecordedKind,
    /// The values last set, for resources of the GKE API, which keeps no owner of a field.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub set: Value,
    /// True if an apply has seen it ready since it was last created or changed; `None` in records from before this was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Seconds that its last creation took until it was ready, if that was long enough to be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<u32>,
}

/// Reasons why an existing record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Its content is damaged; the text says how.
    Damaged(String),
    /// Another version of this program wrote it.
    Version(u64),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged(why) => f.write_str(why),
            Self::Version(version) => {
                write!(f, "it has version {version}; this program reads version {}", Record::VERSION)
            }
        }
    }
}

impl Unusable {
    /// Returns the remedy, as an instruction to the user.
    pub fn remedy(&self, stack: &str) -> String {
        match self {
            Self::Damaged(_) => format!(
                "restore the ConfigMap from a backup, or delete it: kubectl --namespace {NAMESPACE} delete \
                 configmap {}; without it checks run again, and jobs that ran and were deleted need approval \
                 to run again (docs/plan-and-apply.md)",
                Record::object(stack).name
            ),
            Self::Version(_) => "use the version of dask-infra that wrote it, or a newer one".to_owned(),
        }
    }
}

impl Record {
    /// The version that this program writes and reads.
    pub const VERSION: u32 = 1;

    /// Returns the ConfigMap that holds the record of a stack.
    pub fn object(stack: &str) -> ObjectId {
        ObjectId {
            gvk: gvk("", "v1", "ConfigMap", "configmaps"),
            namespace: Some(NAMESPACE.into()),
            name: format!("dask-infra-{stack}"),
        }
    }

    /// Returns this record with the project as written in `target`, if location and name are the same. The record is in that
    /// cluster, so another spelling (number or id) means the same project.
    #[must_use]
    pub fn with_project_of(mut self, target: Option<&ClusterName>) -> Self {
        let Some(target) = target else { return self };
        let renamed = |mut identity: Identity| {
            if let Identity::Cluster(cluster) | Identity::NodePool { cluster, .. } = &mut identity
                && (&cluster.location, &cluster.cluster) == (&target.location, &target.cluster)
            {
                cluster.project.clone_from(&target.project);
            }
            identity
        };
        for entry in &mut self.inventory {
            entry.identity = renamed(entry.identity.clone());
        }
        for used in &mut self.capacity_used {
            used.identity = renamed(used.identity.clone());
        }
        let Self { completed, stopped, create_once_pending, .. } = &mut self;
        *completed =
            std::mem::take(completed).into_iter().map(|(thing, digest)| (renamed(thing), digest)).collect();
        *stopped = std::mem::take(stopped).into_iter().map(|(thing, stop)| (renamed(thing), stop)).collect();
        *create_once_pending = std::mem::take(create_once_pending).into_iter().map(renamed).collect();
        self
    }

    /// Returns the cost of the stack up to a time.
    pub fn accrued_cost_at(&self, now: Timestamp) -> Option<AccruedCost> {
        let mut cost = self.accrued_cost.clone()?;
        let expired = self.expired.as_ref().and_then(|expired| expired.stop.since.parse().ok());
        cost.advance(now, expired);
        Some(cost)
    }

    /// Returns the resources that an apply has found ready since they were last created or changed. All others may be incomplete.
    pub fn seen_ready(&self) -> BTreeSet<&Identity> {
        let ready = self.inventory.iter().filter(|entry| entry.ready.unwrap_or(!self.intent));
        ready.map(|entry| &entry.identity).collect()
    }

    /// Returns the capacity option of a pool that was not created by the first one.
    pub fn capacity_of(&self, identity: &Identity) -> Option<&CapacityUsed> {
        self.capacity_used.iter().find(|used| &used.identity == identity)
    }

    /// Returns the values last set on a resource.
    pub fn last_set(&self, identity: &Identity) -> Option<&Value> {
        let entry = self.inventory.iter().find(|entry| &entry.identity == identity)?;
        (!entry.set.is_null()).then_some(&entry.set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::KindId;

    #[test]
    fn a_project_written_otherwise_is_the_same_place() {
        let pool = |project: &str, cluster: &str| {
            let (project, location, cluster) = (project.to_owned(), "z".to_owned(), cluster.to_owned());
            Identity::NodePool { cluster: ClusterName { project, location, cluster }, pool: "p".to_owned() }
        };
        let stopped = |identity: Identity| Stopped::from([(identity, Stop::default())]);
        let target = ClusterName { project: "demo".into(), location: "z".into(), cluster: "c".into() };
        for (recorded, named) in [
            (pool("123456789", "c"), pool("demo", "c")),
            (pool("demo", "c"), pool("demo", "c")),
            (pool("123456789", "other"), pool("123456789", "other")),
        ] {
            let record = Record { stopped: stopped(recorded), ..Record::default() };
            assert_eq!(record.clone().with_project_of(None), record);
            assert_eq!(record.with_project_of(Some(&target)).stopped, stopped(named));
        }
    }

    /// A cost as an apply writes it.
    fn cost() -> Value {
        let range = serde_json::json!({ "least": 1.0, "most": 2.0 });
        serde_json::json!({
            "since": "2026-11-01T09:00:00Z", "from_creation": true, "until": "2026-11-01T10:00:00Z", "total": range,
            "rates": { "running": range, "expired": range, "prices_of": "2026-07-30", "prices_from": "list" },
        })
    }

    fn with_cost(pointer: &str, value: Value) -> Record {
        let entry = Entry {
            address: Address::new("a"),
            identity: Identity::Check(Address::new("a")),
            kind: KindId::Object.into(),
            set: Value::Null,
            ready: None,
            took: None,
        };
        let mut json = serde_json::to_value(Record { inventory: vec![entry], ..Record::default() }).unwrap();
        json["cost"] = cost();
        *json.pointer_mut(&format!("/cost{pointer}")).unwrap() = value;
        // As it comes from the API, as text.
        serde_json::from_str(&json.to_string()).unwrap_or_else(|why| panic!("{pointer}: {why}"))
    }

    #[test]
    fn a_cost_that_cannot_be_read_leaves_the_rest_of_the_record() {
        use serde_json::json;
        for (pointer, value) in [
            ("", json!({ "total": null })),
            ("", json!("much")),
            ("/total/most", json!(null)),
            ("/total/least", json!(-1.0)),
            ("/total/least", json!(3.0)),
            ("/rates/running/most", json!(0.5)),
            ("/rates/prices_from", json!({ "auction": "spot" })),
            ("/until", json!("2026-11-01T08:00:00Z")),
        ] {
            let record = with_cost(pointer, value.clone());
            assert_eq!((record.accrued_cost, record.inventory.len()), (None, 1), "{pointer} {value}");
        }
        for (pointer, value) in [
            ("/rates/prices_from", json!("an origin of a later version")),
            ("/total", json!({ "least": 1, "most": 2, "likely": 1.5 })),
        ] {
            let record = with_cost(pointer, value);
            assert!(record.accrued_cost.is_some() && record.inventory.len() == 1, "{pointer}");
            let again: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
            assert_eq!(again, record);
        }
    }

    #[test]
    fn an_amount_that_is_not_finite_is_not_written() {
        for amount in [f64::INFINITY, f64::NAN] {
            let mut record = with_cost("/total/least", serde_json::json!(1.0));
            record.accrued_cost.as_mut().unwrap().rates.running.most = amount;
            assert_eq!(serde_json::to_value(&record).unwrap().get("cost"), None);
        }
    }

    #[test]
    fn what_no_apply_has_seen_ready_may_be_half_made() {
        let identity = Identity::Check(Address::new("a"));
        let with = |intent, ready| {
            let (address, kind) = (Address::new("a"), KindId::Object.into());
            let entry =
                Entry { address, identity: identity.clone(), kind, set: Value::Null, ready, took: None };
            Record { intent, inventory: vec![entry], ..Record::default() }.seen_ready().is_empty()
        };
        for (intent, ready, half_made) in [
            (false, Some(true), false),
            (true, Some(true), false),
            (false, Some(false), true),
            (true, Some(false), true),
            // Of a version that did not note it.
            (false, None, false),
            (true, None, true),
        ] {
            assert_eq!(with(intent, ready), half_made, "{intent} {ready:?}");
        }
        assert!(Record::default().seen_ready().is_empty(), "made, and killed before it was recorded");
    }
}
