//! One round of the control loops: what a loop sees, what it may wait for, and what it may write.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use fit::gke::pool::Features;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::object::{Key, controller, merge, text};
use super::super::status::Status;
use super::super::store::{Cluster, DeleteOptions, Resource};
use super::capacity::Capacity;
use crate::clock::Scale;

/// A node pool as the Kubernetes side sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView {
    /// The GKE NodePool as stored, JSON of the v1 API.
    pub pool: Value,
    /// How many nodes each zone must have now.
    pub target_sizes: BTreeMap<String, u32>,
    /// How many machines each zone is to have: more than nodes while the pool grows.
    pub wanted_sizes: BTreeMap<String, u32>,
    /// Why the pool could not grow: `GCE out of resources`, `GCE quota exceeded`.
    pub scale_up_error: Option<&'static str>,
    /// The pool is going away and its nodes with it.
    pub deleting: bool,
    /// The prefix of its instances' names: `gke-CLUSTER-POOL-<8 hex>`.
    pub instance_prefix: String,
    /// The features of its cluster that run pods on every node.
    pub features: Features,
}

/// Scripted faults inside a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scripts {
    /// Patterns (`*` for any run of characters) of images that cannot be pulled.
    pub fail_image: Vec<String>,
    /// The CUDA check computes wrongly: `Test FAILED`, exit code 1.
    pub cuda_fails: bool,
    /// The GPU driver does not install, neither by GKE nor by the DaemonSet.
    pub driver_fails: bool,
    /// Requests for nodes wait for machines until an annotation of theirs says that there are some.
    pub no_capacity: bool,
    /// The machines that there are for what waits for some.
    pub capacity: Vec<Capacity>,
    /// True if the Dask operator's work is imitated; off when the real one runs.
    pub imitate_operator: bool,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            fail_image: Vec::new(),
            cuda_fails: false,
            driver_fails: false,
            no_capacity: false,
            capacity: Vec::new(),
            imitate_operator: true,
        }
    }
}

/// Waits under way, by name.
#[derive(Debug, Default)]
pub(super) struct Timers {
    since: BTreeMap<String, Wait>,
    pub(super) due: Option<Timestamp>,
}

#[derive(Debug)]
struct Wait {
    since: Timestamp,
    used: bool,
}

impl Timers {
    pub(super) fn forget_unused(&mut self) {
        self.since.retain(|_, wait| std::mem::take(&mut wait.used));
    }
}

/// Objects by the uid of their controller.
pub(super) type ByOwner<'a> = BTreeMap<&'a str, Vec<&'a Value>>;

/// One loop's view of one round.
pub(super) struct Run<'a> {
    cluster: &'a Cluster,
    /// The resources that it has looked at.
    reads: RefCell<BTreeSet<Resource>>,
    pub(super) pools: &'a [PoolView],
    pub(super) scripts: &'a Scripts,
    pub(super) makes_pools: bool,
    pub(super) now: Timestamp,
    pub(super) clock: &'a Scale,
    pub(super) timers: &'a mut Timers,
    pub(super) writes: Vec<Write>,
    pub(super) owned_pods: OnceCell<ByOwner<'a>>,
}

/// The surroundings of the cluster that all loops of a step see.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) pools: &'a [PoolView],
    pub(super) scripts: &'a Scripts,
    pub(super) makes_pools: bool,
    pub(super) now: Timestamp,
    pub(super) clock: &'a Scale,
}

impl Around<'_> {
    /// Runs the turn of a loop, and returns what it wants to write and the resources that it looked at.
    pub(super) fn turn(
        self,
        cluster: &Cluster,
        timers: &mut Timers,
        turn: fn(&mut Run<'_>),
    ) -> (Vec<Write>, BTreeSet<Resource>) {
        let Self { pools, scripts, makes_pools, now, clock } = self;
        let (writes, owned_pods, reads) = (Vec::new(), OnceCell::new(), RefCell::default());
        let mut run =
            Run { cluster, reads, pools, scripts, makes_pools, now, clock, timers, writes, owned_pods };
        turn(&mut run);
        (run.writes, run.reads.into_inner())
    }
}

impl<'a> Run<'a> {
    /// The pods that the object of that uid controls, sorted by name.
    pub(super) fn pods_of(&self, owner: &str) -> Vec<&'a Value> {
        let index = self.owned_pods.get_or_init(|| self.by_owner("", "pods"));
        index.get(owner).cloned().unwrap_or_default()
    }

    /// The objects of a resource by the uid of their controller.
    pub(super) fn by_owner(&self, group: &'static str, resource: &'static str) -> ByOwner<'a> {
        let mut index = ByOwner::new();
        for object in self.objects(group, resource) {
            if let Some(owner) = controller(object) {
                index.entry(text(owner, "/uid")).or_default().push(object);
            }
        }
        index
    }

    /// The objects of a resource, sorted by namespace and name.
    pub(super) fn objects(&self, group: &'static str, resource: &'static str) -> Vec<&'a Value> {
        self.looks_at(group, resource);
        self.cluster.list(group, resource).map(|(_, object)| object).collect()
    }

    pub(super) fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<&'a Value> {
        self.looks_at(group, resource);
        self.cluster.get(&Key::new(group, resource, namespace, name))
    }

    fn looks_at(&self, group: &str, resource: &str) {
        self.reads.borrow_mut().insert((group.to_owned(), resource.to_owned()));
    }

    /// The store's revision, to make names of that no earlier turn has made.
    pub(super) fn revision(&self) -> u64 {
        self.cluster.revision()
    }

    /// Since when the wait of that name has been asked for in every step.
    pub(super) fn begun(&mut self, wait: String) -> Timestamp {
        let now = self.now;
        let wait = self.timers.since.entry(wait).or_insert(Wait { since: now, used: true });
        wait.used = true;
        wait.since
    }

    /// Returns true once `seconds` real ones, scaled, have passed since the wait of that name was first asked for.
    /// Asking keeps the wait alive; a wait that one step does not ask for is forgotten.
    pub(super) fn passed(&mut self, wait: String, seconds: f64) -> bool {
        let end = self.begun(wait).saturating_add(self.clock.real(seconds)).unwrap_or(Timestamp::MAX);
        if end <= self.now {
            return true;
        }
        self.timers.due = Some(self.timers.due.map_or(end, |due| due.min(end)));
        false
    }

    /// Returns true once a wait of that name has begun, also after its end.
    pub(super) fn has_begun(&self, wait: &str) -> bool {
        self.timers.since.contains_key(wait)
    }

    /// Returns true once a moment has come; if not, the loops run again then.
    pub(super) fn reached(&mut self, moment: Timestamp) -> bool {
        if moment > self.now {
            self.timers.due = Some(self.timers.due.map_or(moment, |due| due.min(moment)));
        }
        moment <= self.now
    }

    pub(super) fn create(&mut self, manager: &'static str, object: Value) {
        self.writes.push(Write::Create { manager, object });
    }

    /// Merges a patch into an object.
    pub(super) fn merge(&mut self, manager: &'static str, key: Key, patch: Value) {
        self.writes.push(Write::Merge { manager, key, patch });
    }

    /// Merges a patch into an object through its status subresource: metadata pass with it.
    pub(super) fn merge_with_status(&mut self, manager: &'static str, key: Key, patch: Value) {
        self.writes.push(Write::MergeWithStatus { manager, key, patch });
    }

    /// Puts a pod on a node.
    pub(super) fn bind(&mut self, key: Key, node: String) {
        self.writes.push(Write::Bind { key, node });
    }

    /// Sets the whole status of an object, if it is another one.
    pub(super) fn status(&mut self, manager: &'static str, key: Key, live: &Value, status: Value) {
        if live["status"] != status {
            self.writes.push(Write::Status { manager, key, status });
        }
    }

    /// Deletes an object as a controller does: in the background, pods with their own grace.
    pub(super) fn delete(&mut self, key: Key) {
        self.writes.push(Write::Delete { key, options: DeleteOptions::default() });
    }

    /// Takes a pod out of the store.
    pub(super) fn delete_now(&mut self, key: Key) {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        self.writes.push(Write::Delete { key, options });
    }
}

/// One write of a loop, in the name of `manager`.
#[derive(Debug)]
pub enum Write {
    /// Creates an object.
    Create {
        /// Its field manager.
        manager: &'static str,
        /// The whole object, status too.
        object: Value,
    },
    /// Merges a patch (RFC 7386) into an object.
    Merge {
        /// Its field manager.
        manager: &'static str,
        /// The object.
        key: Key,
        /// The patch.
        patch: Value,
    },
    /// Merges a patch into an object through its status subresource.
    MergeWithStatus {
        /// Its field manager.
        manager: &'static str,
        /// The object.
        key: Key,
        /// The patch.
        patch: Value,
    },
    /// Puts a pod on a node.
    Bind {
        /// The pod.
        key: Key,
        node: String,
    },
    /// Sets the status of an object; of one that is somewhere else, the parts that are given.
    Status {
        /// Its field manager.
        manager: &'static str,
        /// The object.
        key: Key,
        status: Value,
    },
    /// Deletes an object.
    Delete {
        /// The object.
        key: Key,
        /// How.
        options: DeleteOptions,
    },
}

impl Write {
    pub(super) fn is_of_a_node(&self) -> bool {
        match self {
            Self::Create { object, .. } => object["kind"] == "Node",
            Self::Merge { key, .. }
            | Self::MergeWithStatus { key, .. }
            | Self::Bind { key, .. }
            | Self::Status { key, .. }
            | Self::Delete { key, .. } => key.resource == "nodes",
        }
    }

    /// Performs the write; what the store says when it refuses.
    pub(super) fn apply(self, cluster: &mut Cluster, now: Timestamp) -> Option<Status> {
        let outcome = match self {
            Self::Create { manager, object } => cluster.create(now, manager, object),
            Self::Merge { manager, key, patch } => {
                cluster.update(now, manager, &key, |object| merge(object, &patch))
            }
            Self::MergeWithStatus { manager, key, patch } => {
                let change = |object: &mut Value| merge(object, &patch);
                cluster.update_through("status", now, manager, &key, change)
            }
            Self::Bind { key, node } => cluster.bind(now, &key, &node),
            Self::Status { manager, key, status } => {
                cluster.update_status(now, manager, &key, |object| object["status"] = status)
            }
            Self::Delete { key, options } => cluster.delete(now, &key, &options),
        };
        outcome.err()
    }
}
