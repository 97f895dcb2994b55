//! Which change may start when: a pure state machine over the changes of a plan. What the longest chain of
//! followers waits for goes first.
//!
//! Every change counts what it still waits for and is put into the queue of its lane when that is nothing, so a whole
//! apply costs its changes and its edges, whatever their number (and a logarithm for the order within a queue).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use model::resource::{Await, Lane, Step, Until};
use plan::{Action, Barrier, Change};

/// Node pool changes at once. Source: GKE refuses more than about five operations at a time on a cluster,
/// and starts some of its own.
pub const POOLS: usize = 4;

/// Where a change or a barrier stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Some that it follows are not done.
    Waiting,
    /// It runs.
    Running,
    Done,
    /// It did not succeed.
    Failed,
    /// It was not started because another (the place in the list) did not succeed.
    Skipped,
    /// It was left in the middle.
    Left,
}

/// The order within a queue: the heaviest chain first, then the order of the plan.
type Turn = (Reverse<u32>, usize);

/// Changes that may start as soon as their lane has room.
#[derive(Debug, Default)]
struct Ready<'a> {
    objects: BTreeSet<Turn>,
    /// Changes that wait for others to finish their work. They need no room: they must not hold up the rest for hours.
    idle: BTreeSet<Turn>,
    cluster: BTreeSet<Turn>,
    pools: BTreeMap<&'a str, Pool>,
    /// The first of every pool on which nothing runs.
    heads: BTreeSet<Turn>,
}

#[derive(Debug, Default)]
struct Pool {
    ready: BTreeSet<Turn>,
    is_busy: bool,
}

/// How much runs in each lane.
#[derive(Debug, Default)]
struct Running {
    /// Objects, but for those that wait for the work of others.
    objects: usize,
    pools: usize,
    cluster: bool,
}

/// The changes of a plan and how far they are. Barriers are numbered on after the changes.
#[derive(Debug)]
pub struct Scheduler<'a> {
    changes: &'a [Change],
    states: Vec<State>,
    /// How many that each one follows are not done.
    open: Vec<usize>,
    followers: Vec<Vec<usize>>,
    weights: Vec<u32>,
    ready: Ready<'a>,
    running: Running,
    wide: usize,
    /// Edges and queue entries looked at so far.
    #[cfg(test)]
    looks: usize,
}

impl<'a> Scheduler<'a> {
    /// Nothing is started; what has no steps counts as done. `wide`: Kubernetes changes at once.
    pub fn new(changes: &'a [Change], barriers: &'a [Barrier], wide: usize) -> Self {
        let all = changes.iter().map(|change| &change.depends_on);
        let all: Vec<&Vec<usize>> = all.chain(barriers.iter().map(|barrier| &barrier.depends_on)).collect();
        let mut followers = vec![Vec::new(); all.len()];
        for (place, depends_on) in all.iter().enumerate() {
            for before in *depends_on {
                if let Some(followers) = followers.get_mut(*before) {
                    followers.push(place);
                }
            }
        }
        let own = |place: usize| changes.get(place).map_or(0, weight);
        let weights = weights(own, &all, &followers);
        let done = |place: usize| changes.get(place).is_some_and(|change| !runs(change));
        let states: Vec<State> =
            (0..all.len()).map(|place| if done(place) { State::Done } else { State::Waiting }).collect();
        // What names nothing in the plan is never done.
        let is_open = |before: &&usize| states.get(**before) != Some(&State::Done);
        let open = all.iter().map(|depends_on| depends_on.iter().filter(is_open).count()).collect();
        let mut scheduler = Self {
            changes,
            states,
            open,
            followers,
            weights,
            ready: Ready::default(),
            running: Running::default(),
            wide: wide.max(1),
            #[cfg(test)]
            looks: all.iter().map(|depends_on| 1 + depends_on.len()).sum(),
        };
        let free = |place: &usize| scheduler.states[*place] == State::Waiting && scheduler.open[*place] == 0;
        for place in (0..all.len()).filter(free).collect::<Vec<usize>>() {
            if let Some(barrier) = scheduler.enter(place) {
                scheduler.cleared_by(barrier);
            }
        }
        scheduler
    }

    /// The changes that start now, heaviest chain first; they count as running from here on.
    pub fn start(&mut self) -> Vec<usize> {
        let mut started: Vec<Turn> = std::mem::take(&mut self.ready.idle).into_iter().collect();
        while self.running.objects < self.wide {
            let Some(turn) = self.ready.objects.pop_first() else { break };
            self.running.objects += 1;
            started.push(turn);
        }
        while let Some(turn) = self.next_of_gke() {
            started.push(turn);
        }
        started.sort_unstable();
        let started: Vec<usize> = started.into_iter().map(|(_, place)| place).collect();
        for place in &started {
            self.states[*place] = State::Running;
        }
        #[cfg(test)]
        {
            self.looks += 1 + started.len();
        }
        started
    }

    /// A cluster changes alone; pools side by side, each of them once at a time.
    fn next_of_gke(&mut self) -> Option<Turn> {
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
        let turn = pool?;
        ready.heads.remove(&turn);
        if let Lane::Pool(name) = &changes[turn.1].lane {
            let pool = ready.pools.entry(name).or_default();
            pool.ready.remove(&turn);
            pool.is_busy = true;
        }
        running.pools += 1;
        Some(turn)
    }

    /// Marks a running change as done.
    pub fn done(&mut self, change: usize) {
        self.ends(change, State::Done);
        self.cleared_by(change);
    }

    /// A running change did not succeed: its followers, near and far, are skipped and named.
    pub fn failed(&mut self, change: usize) -> Vec<usize> {
        self.ends(change, State::Failed);
        let mut lost = vec![change];
        let mut skipped = Vec::new();
        while let Some(place) = lost.pop() {
            for at in 0..self.followers[place].len() {
                let follower = self.followers[place][at];
                #[cfg(test)]
                {
                    self.looks += 1;
                }
                if self.states[follower] == State::Waiting {
                    self.states[follower] = State::Skipped;
                    lost.push(follower);
                    skipped.extend(Some(follower).filter(|place| *place < self.changes.len()));
                }
            }
        }
        skipped.sort_unstable();
        skipped
    }

    /// Marks a running change as left in the middle by an interruption.
    pub fn left(&mut self, change: usize) {
        self.ends(change, State::Left);
    }

    /// Changes that were never started.
    pub fn waiting(&self) -> Vec<usize> {
        self.all(State::Waiting)
    }

    /// Changes that run.
    pub fn running(&self) -> Vec<usize> {
        self.all(State::Running)
    }

    fn all(&self, state: State) -> Vec<usize> {
        (0..self.changes.len()).filter(|change| self.states[*change] == state).collect()
    }

    /// Gives back the room that a running change had in its lane.
    fn ends(&mut self, place: usize, state: State) {
        let ran = std::mem::replace(&mut self.states[place], state) == State::Running;
        let change = &self.changes[place];
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

    /// Counts one open change less for all followers of a finished change.
    fn cleared_by(&mut self, place: usize) {
        let mut done = vec![place];
        while let Some(place) = done.pop() {
            for at in 0..self.followers[place].len() {
                let follower = self.followers[place][at];
                self.open[follower] -= 1;
                #[cfg(test)]
                {
                    self.looks += 1;
                }
                if self.open[follower] == 0 && self.states[follower] == State::Waiting {
                    done.extend(self.enter(follower));
                }
            }
        }
    }

    /// Puts a change into the queue of its lane. A barrier has nothing to do: it is done, and given back.
    fn enter(&mut self, place: usize) -> Option<usize> {
        let Some(change) = self.changes.get(place) else {
            self.states[place] = State::Done;
            return Some(place);
        };
        let turn = (Reverse(self.weights[place]), place);
        let ready = &mut self.ready;
        match &change.lane {
            Lane::Cluster => ready.cluster.insert(turn),
            Lane::Kubernetes if waits_for_idle(change) => ready.idle.insert(turn),
            Lane::Kubernetes => ready.objects.insert(turn),
            Lane::Pool(name) => {
                let pool = ready.pools.entry(name).or_default();
                if !pool.is_busy {
                    if let Some(first) = pool.ready.first() {
                        ready.heads.remove(first);
                    }
                    ready.heads.insert(pool.ready.first().map_or(turn, |first| turn.min(*first)));
                }
                pool.ready.insert(turn)
            }
        };
        None
    }
}

/// Returns true if there is anything to do for a change. What is kept may still be waited for.
pub fn runs(change: &Change) -> bool {
    !change.steps.is_empty() || change.action != Action::Keep
}

/// Returns true if a change begins with a wait for the work of others.
fn waits_for_idle(change: &Change) -> bool {
    matches!(change.steps.first(), Some(Step::Await(Await { until: Until::Idle, .. })))
}

/// GKE takes minutes where Kubernetes takes seconds.
fn weight(change: &Change) -> u32 {
    match (runs(change), &change.lane) {
        (false, _) => 0,
        (true, Lane::Cluster | Lane::Pool(_)) => 100,
        (true, Lane::Kubernetes) => 1,
    }
}

/// The weight of the longest chain that begins at each one, the last in a chain first. What stands in a circle or
/// before one weighs nothing: such a plan is not applied to its end anyway.
fn weights(own: impl Fn(usize) -> u32, depends_on: &[&Vec<usize>], followers: &[Vec<usize>]) -> Vec<u32> {
    let mut weights = vec![0; depends_on.len()];
    let mut open: Vec<usize> = followers.iter().map(Vec::len).collect();
    let mut last: Vec<usize> = (0..depends_on.len()).filter(|place| open[*place] == 0).collect();
    while let Some(place) = last.pop() {
        let longest = followers[place].iter().map(|follower| weights[*follower]).max();
        weights[place] = own(place).saturating_add(longest.unwrap_or(0));
        for before in depends_on[place].iter().filter(|before| **before < depends_on.len()) {
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
