//! The changes that may start now: a pure state machine over the changes of a plan. The change with the longest
//! chain of followers goes first.
//!
//! Every change counts its unfinished predecessors. At zero it enters the queue of its lane. So the cost of a whole apply is
//! linear in its changes and edges, with a logarithmic factor for the order within a queue.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use model::resource::{Await, Lane, Step, Until};
use plan::{Action, Barrier, Change};

/// The maximum number of concurrent node pool changes. Source: GKE refuses more than about five operations at a time on a
/// cluster, and starts some of its own.
pub const POOLS: usize = 4;

/// The state of a change or a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Some predecessors are not done.
    Waiting,
    /// It runs.
    Running,
    Done,
    /// It did not succeed.
    Failed,
    /// It was not started because the change with this index did not succeed.
    Skipped,
    /// It was interrupted.
    Interrupted,
}

/// The order within a queue: the heaviest chain of successors first, then the order of the plan.
type QueueEntry = (Reverse<u32>, usize);

/// Changes that may start as soon as their lane is free.
#[derive(Debug, Default)]
struct Ready<'a> {
    objects: BTreeSet<QueueEntry>,
    /// Changes that start with an idle wait. They occupy no lane, so that they do not block other changes for hours.
    idle: BTreeSet<QueueEntry>,
    cluster: BTreeSet<QueueEntry>,
    pools: BTreeMap<&'a str, Pool>,
    /// The first change of each pool that has no running change.
    heads: BTreeSet<QueueEntry>,
}

#[derive(Debug, Default)]
struct Pool {
    ready: BTreeSet<QueueEntry>,
    is_busy: bool,
}

/// The running changes of each lane.
#[derive(Debug, Default)]
struct Running {
    /// The number of running changes of Kubernetes objects, without those in an idle wait.
    objects: usize,
    pools: usize,
    cluster: bool,
}

/// Decides which changes of a plan can start next. Barriers, which stand for the end of several changes, have the indices behind those
/// of the changes.
#[derive(Debug)]
pub struct ChangeScheduler<'a> {
    changes: &'a [Change],
    states: Vec<State>,
    /// The number of unfinished predecessors of each change and barrier.
    open_predecessors: Vec<usize>,
    followers: Vec<Vec<usize>>,
    weights: Vec<u32>,
    ready: Ready<'a>,
    running: Running,
    parallelism: usize,
    /// The number of edges and queue entries that were visited, for tests of the cost.
    #[cfg(test)]
    visits: usize,
}

impl<'a> ChangeScheduler<'a> {
    /// Creates the scheduler without starting anything. Changes without steps count as done. `parallelism` is the maximum number
    /// of concurrent Kubernetes changes.
    pub fn new(changes: &'a [Change], barriers: &'a [Barrier], parallelism: usize) -> Self {
        let all = changes.iter().map(|change| &change.depends_on);
        let all: Vec<&Vec<usize>> = all.chain(barriers.iter().map(|barrier| &barrier.depends_on)).collect();
        let mut followers = vec![Vec::new(); all.len()];
        for (index, depends_on) in all.iter().enumerate() {
            for before in *depends_on {
                if let Some(followers) = followers.get_mut(*before) {
                    followers.push(index);
                }
            }
        }
        let own = |index: usize| changes.get(index).map_or(0, weight);
        let weights = weights(own, &all, &followers);
        let done = |index: usize| changes.get(index).is_some_and(|change| !has_work(change));
        let states: Vec<State> =
            (0..all.len()).map(|index| if done(index) { State::Done } else { State::Waiting }).collect();
        // A predecessor that is not in the plan never ends.
        let is_open = |before: &&usize| states.get(**before) != Some(&State::Done);
        let open_predecessors =
            all.iter().map(|depends_on| depends_on.iter().filter(is_open).count()).collect();
        let mut scheduler = Self {
            changes,
            states,
            open_predecessors,
            followers,
            weights,
            ready: Ready::default(),
            running: Running::default(),
            parallelism: parallelism.max(1),
            #[cfg(test)]
            visits: all.iter().map(|depends_on| 1 + depends_on.len()).sum(),
        };
        let free = |index: &usize| {
            scheduler.states[*index] == State::Waiting && scheduler.open_predecessors[*index] == 0
        };
        for index in (0..all.len()).filter(free).collect::<Vec<usize>>() {
            if let Some(barrier) = scheduler.enqueue(index) {
                scheduler.release_followers(barrier);
            }
        }
        scheduler
    }

    /// Returns the changes that can start now, the heaviest chain first. They count as running from now on.
    pub fn start(&mut self) -> Vec<usize> {
        let mut started: Vec<QueueEntry> = std::mem::take(&mut self.ready.idle).into_iter().collect();
        while self.running.objects < self.parallelism {
            let Some(entry) = self.ready.objects.pop_first() else { break };
            self.running.objects += 1;
            started.push(entry);
        }
        while let Some(entry) = self.next_gke_change() {
            started.push(entry);
        }
        started.sort_unstable();
        let started: Vec<usize> = started.into_iter().map(|(_, index)| index).collect();
        for index in &started {
            self.states[*index] = State::Running;
        }
        #[cfg(test)]
        {
            self.visits += 1 + started.len();
        }
        started
    }

    /// Takes the next GKE change that can start. A cluster changes alone. Pools change in parallel, but each with only one change
    /// at a time.
    fn next_gke_change(&mut self) -> Option<QueueEntry> {
        let Self { changes, ready, running, .. } = self;
        if running.cluster {
            return None;
        }
        let cluster = ready.cluster.first().filter(|_| running.pools == 0).copied();
        let pool = ready.heads.first().filter(|_| running.pools < POOLS).copied();
        if cluster.is_some_and(|cluster| pool.is_none_or(|pool| cluster < pool)) {
            running.cluster = true;
            return ready.cluster.pop_first();
        }
        let entry = pool?;
        ready.heads.remove(&entry);
        if let Lane::Pool(name) = &changes[entry.1].lane {
            let pool = ready.pools.entry(name).or_default();
            pool.ready.remove(&entry);
            pool.is_busy = true;
        }
        running.pools += 1;
        Some(entry)
    }

    /// Marks a running change as done.
    pub fn done(&mut self, change: usize) {
        self.end(change, State::Done);
        self.release_followers(change);
    }

    /// Marks a running change as failed. Skips all its direct and indirect successors, and returns them.
    pub fn failed(&mut self, change: usize) -> Vec<usize> {
        self.end(change, State::Failed);
        let mut lost = vec![change];
        let mut skipped = Vec::new();
        while let Some(index) = lost.pop() {
            for position in 0..self.followers[index].len() {
                let follower = self.followers[index][position];
                #[cfg(test)]
                {
                    self.visits += 1;
                }
                if self.states[follower] == State::Waiting {
                    self.states[follower] = State::Skipped;
                    lost.push(follower);
                    skipped.extend(Some(follower).filter(|index| *index < self.changes.len()));
                }
            }
        }
        skipped.sort_unstable();
        skipped
    }

    /// Marks a running change as interrupted.
    pub fn interrupted(&mut self, change: usize) {
        self.end(change, State::Interrupted);
    }

    /// Returns the changes that were not started.
    pub fn waiting(&self) -> Vec<usize> {
        self.all(State::Waiting)
    }

    /// Returns the running changes.
    pub fn running(&self) -> Vec<usize> {
        self.all(State::Running)
    }

    fn all(&self, state: State) -> Vec<usize> {
        (0..self.changes.len()).filter(|change| self.states[*change] == state).collect()
    }

    /// Frees the lane of a change that has ended.
    fn end(&mut self, index: usize, state: State) {
        let ran = std::mem::replace(&mut self.states[index], state) == State::Running;
        let change = &self.changes[index];
        match &change.lane {
            _ if !ran => {}
            Lane::Cluster => self.running.cluster = false,
            Lane::Pool(name) => {
                self.running.pools -= 1;
                let pool = self.ready.pools.entry(name).or_default();
                pool.is_busy = false;
                self.ready.heads.extend(pool.ready.first());
            }
            Lane::Kubernetes if waits_for_idle(change) => {}
            Lane::Kubernetes => self.running.objects -= 1,
        }
    }

    /// Lowers the number of open predecessors of all successors of a finished change.
    fn release_followers(&mut self, index: usize) {
        let mut done = vec![index];
        while let Some(index) = done.pop() {
            for position in 0..self.followers[index].len() {
                let follower = self.followers[index][position];
                self.open_predecessors[follower] -= 1;
                #[cfg(test)]
                {
                    self.visits += 1;
                }
                if self.open_predecessors[follower] == 0 && self.states[follower] == State::Waiting {
                    done.extend(self.enqueue(follower));
                }
            }
        }
    }

    /// Puts a change into the queue of its lane. A barrier has nothing to do, so it is marked as done and returned.
    fn enqueue(&mut self, index: usize) -> Option<usize> {
        let Some(change) = self.changes.get(index) else {
            self.states[index] = State::Done;
            return Some(index);
        };
        let entry = (Reverse(self.weights[index]), index);
        let ready = &mut self.ready;
        match &change.lane {
            Lane::Cluster => ready.cluster.insert(entry),
            Lane::Kubernetes if waits_for_idle(change) => ready.idle.insert(entry),
            Lane::Kubernetes => ready.objects.insert(entry),
            Lane::Pool(name) => {
                let pool = ready.pools.entry(name).or_default();
                if !pool.is_busy {
                    if let Some(first) = pool.ready.first() {
                        ready.heads.remove(first);
                    }
                    ready.heads.insert(pool.ready.first().map_or(entry, |first| entry.min(*first)));
                }
                pool.ready.insert(entry)
            }
        };
        None
    }
}

/// Returns true if a change has steps. Even a kept resource may have a wait.
pub fn has_work(change: &Change) -> bool {
    !change.steps.is_empty() || change.action != Action::Keep
}

/// Returns true if a change starts with an idle wait.
fn waits_for_idle(change: &Change) -> bool {
    matches!(change.steps.first(), Some(Step::Await(Await { until: Until::Idle, .. })))
}

/// Returns the weight of a change: GKE takes minutes, Kubernetes takes seconds.
fn weight(change: &Change) -> u32 {
    match (has_work(change), &change.lane) {
        (false, _) => 0,
        (true, Lane::Cluster | Lane::Pool(_)) => 100,
        (true, Lane::Kubernetes) => 1,
    }
}

/// Returns for each change the weight of the heaviest chain that starts with it, computed from the ends of the chains. A change
/// in a cycle or before one weighs nothing: such a plan cannot be completed anyway.
fn weights(own: impl Fn(usize) -> u32, depends_on: &[&Vec<usize>], followers: &[Vec<usize>]) -> Vec<u32> {
    let mut weights = vec![0; depends_on.len()];
    let mut open: Vec<usize> = followers.iter().map(Vec::len).collect();
    let mut last: Vec<usize> = (0..depends_on.len()).filter(|index| open[*index] == 0).collect();
    while let Some(index) = last.pop() {
        let longest = followers[index].iter().map(|follower| weights[*follower]).max();
        weights[index] = own(index).saturating_add(longest.unwrap_or(0));
        for before in depends_on[index].iter().filter(|before| **before < depends_on.len()) {
            open[*before] -= 1;
            if open[*before] == 0 {
                last.push(*before);
            }
        }
    }
    weights
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
