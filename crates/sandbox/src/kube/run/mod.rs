//! The control loops of a simulated cluster: nodes from node pools, the scheduler, the workload
//! controllers, the node agents, and an imitation of the Dask operator. Every loop is a function from
//! what the store holds to a list of writes; [`Loops::step`] runs them until nothing moves.
//!
//! Not imitated: CronJobs that do not run every so many minutes, autoscalers, the provisioning of volumes, EndpointSlices, ControllerRevisions,
//! disruption budgets, most of pod affinity and topology spread, preemption, node heartbeats.
//!
//! How long something takes lives in `stages.toml`. Waits are kept in memory only: after a restart of
//! the sandbox a wait that was under way begins again.

pub mod autopilot;
pub mod autoscaler;
pub mod capacity;
mod claim;
mod cronjobs;
mod daemonsets;
mod dask;
mod deployments;
mod events;
pub mod idle;
mod jobs;
mod kueue;
pub mod logs;
pub mod market;
mod nodes;
mod pods;
pub mod provisioning;
mod replicasets;
mod round;
mod scheduler;
mod select;
mod services;
mod stages;
mod statefulsets;
mod system;
#[cfg(test)]
mod testing;
mod volumes;
mod workloads;

use std::collections::BTreeSet;

use jiff::Timestamp;

pub use self::dask::tasks;
pub use self::round::{PoolView, Scripts, Write};
pub use self::select::glob;

use self::round::{Around, Run, Timers};
use super::status::Status;
use super::store::{Cluster, Resource};
use crate::clock::Scale;

/// The most rounds that one step makes; what is left goes on in the next.
const ROUNDS: usize = 64;

/// The control loops of one cluster and what they remember between steps.
#[derive(Debug, Default)]
pub struct Loops {
    /// Scripted faults; a change takes effect with the next step.
    pub scripts: Scripts,
    /// True if node auto-provisioning creates pools beside those that were requested.
    pub makes_pools: bool,
    seen: Option<Seen>,
    memories: [Memory; LOOPS.len()],
    /// The waits of a cluster that is somewhere else.
    elsewhere: Timers,
    refused: Option<Status>,
}

/// The inputs from outside the store, as the last step has seen them.
#[derive(Debug)]
struct Seen {
    pools: Vec<PoolView>,
    scripts: Scripts,
    makes_pools: bool,
}

/// The memory of one loop. While the store stays as it was read and no wait is over, another turn would
/// find what the last one found, so there is none.
#[derive(Debug, Default)]
struct Memory {
    /// The revision that its last turn has read.
    read: Option<u64>,
    /// The resources that its last turn looked at; `None` when any change may let through what was refused to it.
    reads: Option<BTreeSet<Resource>>,
    timers: Timers,
    /// True if it has had a turn in this step.
    woken: bool,
}

impl Memory {
    fn sleeps(&self, cluster: &Cluster, now: Timestamp) -> bool {
        let Some(read) = self.read else { return false };
        let has_changed = match &self.reads {
            Some(reads) => cluster.has_changed_since(read, reads.iter()),
            None => read != cluster.revision(),
        };
        !has_changed && self.timers.due.is_none_or(|due| now < due)
    }
}

impl Loops {
    /// Loops with scripted faults.
    pub fn new(scripts: Scripts) -> Self {
        Self { scripts, ..Self::default() }
    }

    /// Brings the cluster as far as it comes by `now`. Cheap when nothing has changed and nothing is due.
    pub fn step(&mut self, cluster: &mut Cluster, pools: &[PoolView], now: Timestamp, clock: &Scale) {
        let makes_pools = self.makes_pools;
        let same = self.seen.as_ref().is_some_and(|seen| {
            seen.scripts == self.scripts && seen.pools == pools && seen.makes_pools == makes_pools
        });
        if !same {
            self.wake();
            self.seen = Some(Seen { pools: pools.to_vec(), scripts: self.scripts.clone(), makes_pools });
        }
        let is_asleep = self.memories.iter().all(|memory| memory.sleeps(cluster, now));
        if is_asleep && cluster.collected == cluster.revision() {
            return;
        }
        for round in 0..ROUNDS {
            let before = cluster.revision();
            for (turn, memory) in LOOPS.into_iter().zip(&mut self.memories) {
                if memory.sleeps(cluster, now) {
                    continue;
                }
                memory.woken = true;
                memory.read = Some(cluster.revision());
                memory.timers.due = None;
                let around = Around { pools, scripts: &self.scripts, makes_pools, now, clock };
                let (writes, reads) = around.turn(cluster, &mut memory.timers, turn);
                memory.reads = Some(reads);
                for write in writes {
                    if let Some(status) = write.apply(cluster, now) {
                        memory.reads = None;
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

    /// Returns what GKE would write now to the nodes of a cluster elsewhere, and to its requests for nodes. Real controllers
    /// and agents do everything else there. `cluster` holds what was read of it. Nothing is written to it.
    pub fn nodes_elsewhere(
        &mut self,
        cluster: &Cluster,
        pools: &[PoolView],
        now: Timestamp,
        clock: &Scale,
    ) -> Vec<Write> {
        let around = Around { pools, scripts: &self.scripts, makes_pools: self.makes_pools, now, clock };
        let (mut writes, _) = around.turn(cluster, &mut self.elsewhere, nodes::run_beside_agents);
        // The controllers there say themselves what they see.
        writes.retain(Write::is_of_a_node);
        let (of_requests, _) = around.turn(cluster, &mut self.elsewhere, provisioning::run);
        self.elsewhere.forget_unused();
        writes.into_iter().chain(of_requests).collect()
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
const LOOPS: [fn(&mut Run<'_>); 18] = [
    system::run,
    nodes::run,
    provisioning::run,
    dask::run,
    deployments::run,
    replicasets::run,
    statefulsets::run,
    daemonsets::run,
    cronjobs::run,
    kueue::suspend,
    jobs::run,
    kueue::run,
    scheduler::run,
    autoscaler::run,
    pods::run,
    volumes::run,
    services::run,
    events::run,
];

#[cfg(test)]
#[path = "story_tests.rs"]
mod story;
