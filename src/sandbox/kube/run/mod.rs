//! The control loops of a simulated cluster: nodes from node pools, the scheduler, the workload
//! controllers, the node agents, and an imitation of the Dask operator. Every loop is a function from
//! what the store holds to a list of writes; [`Loops::step`] runs them until nothing moves.
//!
//! Not imitated: StatefulSets, CronJobs, autoscalers, volumes, EndpointSlices, ControllerRevisions,
//! disruption budgets, pod affinity and topology spread, preemption, node heartbeats.
//!
//! How long something takes lives in `stages.toml`. Waits are kept in memory only: after a restart of
//! the sandbox a wait that was under way begins again.

pub mod autoscaler;
mod daemonsets;
mod dask;
mod deployments;
mod events;
mod jobs;
pub mod logs;
mod machine;
mod nodes;
pub(super) mod object;
mod pods;
mod quantity;
mod replicasets;
mod scheduler;
mod select;
mod services;
mod stages;
mod system;
#[cfg(test)]
mod testing;
mod workloads;

pub use select::glob;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::store::{Cluster, DeleteOptions, Key, Status};
use crate::sandbox::clock::Scale;

/// A node pool as the Kubernetes side sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView {
    /// The GKE NodePool as stored, JSON of the v1 API.
    pub pool: Value,
    /// How many nodes each zone must have now.
    pub target_sizes: BTreeMap<String, u32>,
    /// The pool is going away and its nodes with it.
    pub deleting: bool,
    /// What its instances' names begin with: `gke-CLUSTER-POOL-<8 hex>`.
    pub instance_prefix: String,
}

/// What goes otherwise than it should, by script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scripts {
    /// Patterns (`*` for any run of characters) of images that cannot be pulled.
    pub fail_image: Vec<String>,
    /// The CUDA check computes wrongly: `Test FAILED`, exit code 1.
    pub cuda_fails: bool,
    /// The GPU driver does not install, neither by GKE nor by the DaemonSet.
    pub driver_fails: bool,
    /// Whether the Dask operator's work is imitated; off when the real one runs.
    pub imitate_operator: bool,
}

impl Default for Scripts {
    fn default() -> Self {
        Self { fail_image: Vec::new(), cuda_fails: false, driver_fails: false, imitate_operator: true }
    }
}

/// The most rounds that one step makes; what is left goes on in the next.
const ROUNDS: usize = 64;

/// The control loops of one cluster and what they remember between steps.
#[derive(Debug, Default)]
pub struct Loops {
    /// Scripted faults; a change takes effect with the next step.
    pub scripts: Scripts,
    seen: Option<Seen>,
    memories: [Memory; LOOPS.len()],
    /// The waits of a cluster that is somewhere else.
    elsewhere: Timers,
    refused: Option<Status>,
}

/// What lies outside the store, as the last step has seen it.
#[derive(Debug)]
struct Seen {
    pools: Vec<PoolView>,
    scripts: Scripts,
}

/// What one loop remembers. While the store stays as it was read and no wait is over, another turn would
/// find what the last one found, so there is none.
#[derive(Debug, Default)]
struct Memory {
    /// The revision that its last turn has read.
    read: Option<u64>,
    timers: Timers,
    /// Whether it has had a turn in this step.
    woken: bool,
}

impl Memory {
    fn sleeps(&self, revision: u64, now: Timestamp) -> bool {
        self.read == Some(revision) && self.timers.due.is_none_or(|due| now < due)
    }
}

impl Loops {
    /// Loops with scripted faults.
    pub fn new(scripts: Scripts) -> Self {
        Self { scripts, ..Self::default() }
    }

    /// Brings the cluster as far as it comes by `now`. Cheap when nothing has changed and nothing is due.
    pub fn step(&mut self, cluster: &mut Cluster, pools: &[PoolView], now: Timestamp, clock: &Scale) {
        let same = self.seen.as_ref().is_some_and(|seen| seen.scripts == self.scripts && seen.pools == pools);
        if !same {
            self.wake();
            self.seen = Some(Seen { pools: pools.to_vec(), scripts: self.scripts.clone() });
        }
        if self.memories.iter().all(|memory| memory.sleeps(cluster.revision(), now)) {
            return;
        }
        for round in 0..ROUNDS {
            let before = cluster.revision();
            for (turn, memory) in LOOPS.into_iter().zip(&mut self.memories) {
                if memory.sleeps(cluster.revision(), now) {
                    continue;
                }
                memory.woken = true;
                memory.read = Some(cluster.revision());
                memory.timers.due = None;
                let writes = {
                    let timers = &mut memory.timers;
                    let mut run = Run {
                        cluster,
                        pools,
                        scripts: &self.scripts,
                        now,
                        clock,
                        timers,
                        writes: Vec::new(),
                        owned_pods: OnceCell::new(),
                    };
                    turn(&mut run);
                    run.writes
                };
                for write in writes {
                    if let Some(status) = write.apply(cluster, now) {
                        self.refused = Some(status);
                    }
                }
            }
            cluster.collect(now);
            if cluster.revision() == before {
                break;
            }
            if round + 1 == ROUNDS {
                self.wake();
            }
        }
        for memory in self.memories.iter_mut().filter(|memory| memory.woken) {
            memory.woken = false;
            memory.timers.forget_unused();
        }
    }

    /// Gives every loop a turn in the next step, whatever the store says.
    fn wake(&mut self) {
        for memory in &mut self.memories {
            memory.read = None;
        }
    }

    /// What GKE would do now to the nodes of a cluster that is somewhere else, in which real controllers and
    /// agents do everything else. `cluster` holds what was read of it: its Nodes and the pods of the driver
    /// installer. Nothing is written to it.
    pub fn nodes_elsewhere(
        &mut self,
        cluster: &Cluster,
        pools: &[PoolView],
        now: Timestamp,
        clock: &Scale,
    ) -> Vec<Write> {
        let mut run = Run {
            cluster,
            pools,
            scripts: &self.scripts,
            now,
            clock,
            timers: &mut self.elsewhere,
            writes: Vec::new(),
            owned_pods: OnceCell::new(),
        };
        nodes::run_beside_agents(&mut run);
        let Run { mut writes, .. } = run;
        self.elsewhere.forget_unused();
        // The controllers there say themselves what they see.
        writes.retain(Write::is_of_a_node);
        writes
    }

    /// When the next step has something to do without any change from outside.
    pub fn due(&self) -> Option<Timestamp> {
        self.memories.iter().filter_map(|memory| memory.timers.due).min()
    }

    /// The last write of a loop that the store refused: usually a namespace that is going away.
    pub fn refused(&self) -> Option<&Status> {
        self.refused.as_ref()
    }
}

/// The loops in their order within a round: causes before effects, so that most changes settle in one.
const LOOPS: [fn(&mut Run<'_>); 11] = [
    system::run,
    nodes::run,
    dask::run,
    deployments::run,
    replicasets::run,
    daemonsets::run,
    jobs::run,
    scheduler::run,
    pods::run,
    services::run,
    events::run,
];

/// Waits under way, by name.
#[derive(Debug, Default)]
struct Timers {
    since: BTreeMap<String, Wait>,
    due: Option<Timestamp>,
}

#[derive(Debug)]
struct Wait {
    since: Timestamp,
    used: bool,
}

impl Timers {
    fn forget_unused(&mut self) {
        self.since.retain(|_, wait| std::mem::take(&mut wait.used));
    }
}

/// Objects by the uid of their controller.
type ByOwner<'a> = BTreeMap<&'a str, Vec<&'a Value>>;

/// One loop's view of one round.
struct Run<'a> {
    cluster: &'a Cluster,
    pools: &'a [PoolView],
    scripts: &'a Scripts,
    now: Timestamp,
    clock: &'a Scale,
    timers: &'a mut Timers,
    writes: Vec<Write>,
    owned_pods: OnceCell<ByOwner<'a>>,
}

impl<'a> Run<'a> {
    /// The pods that the object of that uid controls, sorted by name.
    fn pods_of(&self, owner: &str) -> Vec<&'a Value> {
        let index = self.owned_pods.get_or_init(|| self.by_owner("", "pods"));
        index.get(owner).cloned().unwrap_or_default()
    }

    /// The objects of a resource by the uid of their controller.
    fn by_owner(&self, group: &'static str, resource: &'static str) -> ByOwner<'a> {
        let mut index = ByOwner::new();
        for object in self.objects(group, resource) {
            if let Some(owner) = object::controller(object) {
                index.entry(object::text(owner, "/uid")).or_default().push(object);
            }
        }
        index
    }

    /// The objects of a resource, sorted by namespace and name.
    fn objects(&self, group: &'static str, resource: &'static str) -> Vec<&'a Value> {
        self.cluster.list(group, resource).map(|(_, object)| object).collect()
    }

    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<&'a Value> {
        self.cluster.get(&Key::new(group, resource, namespace, name))
    }

    /// Whether `seconds` real ones, scaled, have passed since the wait of that name was first asked for.
    /// Asking keeps the wait alive; a wait that one step does not ask for is forgotten.
    fn passed(&mut self, wait: String, seconds: f64) -> bool {
        let now = self.now;
        let wait = self.timers.since.entry(wait).or_insert(Wait { since: now, used: true });
        wait.used = true;
        let end = wait.since.saturating_add(self.clock.real(seconds)).unwrap_or(Timestamp::MAX);
        if end <= now {
            return true;
        }
        self.timers.due = Some(self.timers.due.map_or(end, |due| due.min(end)));
        false
    }

    /// Whether a wait of that name is under way or over.
    fn is_waiting(&self, wait: &str) -> bool {
        self.timers.since.contains_key(wait)
    }

    /// Whether a moment has come; if not, the loops run again then.
    fn reached(&mut self, moment: Timestamp) -> bool {
        if moment > self.now {
            self.timers.due = Some(self.timers.due.map_or(moment, |due| due.min(moment)));
        }
        moment <= self.now
    }

    fn create(&mut self, manager: &'static str, object: Value) {
        self.writes.push(Write::Create { manager, object });
    }

    /// Merges a patch into an object.
    fn merge(&mut self, manager: &'static str, key: Key, patch: Value) {
        self.writes.push(Write::Merge { manager, key, patch });
    }

    /// Merges a patch into an object through its status subresource: metadata pass with it.
    fn merge_with_status(&mut self, manager: &'static str, key: Key, patch: Value) {
        self.writes.push(Write::MergeWithStatus { manager, key, patch });
    }

    /// Puts a pod on a node.
    fn bind(&mut self, key: Key, node: String) {
        self.writes.push(Write::Bind { key, node });
    }

    /// Sets the whole status of an object, if it is another one.
    fn status(&mut self, manager: &'static str, key: Key, live: &Value, status: Value) {
        if live["status"] != status {
            self.writes.push(Write::Status { manager, key, status });
        }
    }

    /// Deletes an object as a controller does: in the background, pods with their own grace.
    fn delete(&mut self, key: Key) {
        self.writes.push(Write::Delete { key, options: DeleteOptions::default() });
    }

    /// Takes a pod out of the store.
    fn delete_now(&mut self, key: Key) {
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
        /// What changes.
        patch: Value,
    },
    /// Merges a patch into an object through its status subresource.
    MergeWithStatus {
        /// Its field manager.
        manager: &'static str,
        /// The object.
        key: Key,
        /// What changes.
        patch: Value,
    },
    /// Puts a pod on a node.
    Bind {
        /// The pod.
        key: Key,
        /// The node.
        node: String,
    },
    /// Sets the status of an object; of one that is somewhere else, the parts that are given.
    Status {
        /// Its field manager.
        manager: &'static str,
        /// The object.
        key: Key,
        /// The status.
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
    fn is_of_a_node(&self) -> bool {
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
    fn apply(self, cluster: &mut Cluster, now: Timestamp) -> Option<Status> {
        let outcome = match self {
            Self::Create { manager, object } => cluster.create(now, manager, object),
            Self::Merge { manager, key, patch } => {
                cluster.update(now, manager, &key, |object| object::merge(object, &patch))
            }
            Self::MergeWithStatus { manager, key, patch } => {
                let change = |object: &mut Value| object::merge(object, &patch);
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

#[cfg(test)]
#[path = "story_tests.rs"]
mod story;
