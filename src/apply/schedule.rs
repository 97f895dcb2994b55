//! Which change may start when: a pure state machine over the changes of a plan. What the longest chain of
//! followers waits for goes first.

use crate::plan::{Action, Change};
use crate::resource::{Await, Lane, Step, Until};

/// Node pool changes at once. Source: GKE refuses more than about five operations at a time on a cluster,
/// and starts some of its own.
pub const POOLS: usize = 4;

/// Where a change stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Some that it follows are not done.
    Waiting,
    /// It runs.
    Running,
    /// It is done.
    Done,
    /// It did not succeed.
    Failed,
    /// It was not started because another (the place in the list) did not succeed.
    Skipped,
    /// It was left in the middle.
    Left,
}

/// The changes of a plan and how far they are.
#[derive(Debug)]
pub struct Scheduler<'a> {
    changes: &'a [Change],
    states: Vec<State>,
    weights: Vec<u32>,
    wide: usize,
}

impl<'a> Scheduler<'a> {
    /// Nothing is started; what has no steps counts as done. `wide`: Kubernetes changes at once.
    pub fn new(changes: &'a [Change], wide: usize) -> Self {
        let state = |change: &Change| if runs(change) { State::Waiting } else { State::Done };
        let states = changes.iter().map(state).collect();
        Self { changes, states, weights: weights(changes), wide: wide.max(1) }
    }

    /// The changes that start now, heaviest chain first; they count as running from here on.
    pub fn start(&mut self) -> Vec<usize> {
        let mut ready: Vec<usize> = (0..self.changes.len()).filter(|change| self.is_ready(*change)).collect();
        ready.sort_by_key(|change| (std::cmp::Reverse(self.weights[*change]), *change));
        ready.retain(|change| {
            let fits = self.fits(&self.changes[*change]);
            if fits {
                self.states[*change] = State::Running;
            }
            fits
        });
        ready
    }

    /// A running change is done.
    pub fn done(&mut self, change: usize) {
        self.states[change] = State::Done;
    }

    /// A running change did not succeed: its followers, near and far, are skipped and named.
    pub fn failed(&mut self, change: usize) -> Vec<usize> {
        self.states[change] = State::Failed;
        let mut skipped = Vec::new();
        loop {
            let next = (0..self.changes.len()).find(|follower| {
                self.states[*follower] == State::Waiting
                    && self.changes[*follower].follows.iter().any(|before| self.is_lost(*before))
            });
            let Some(next) = next else { break };
            self.states[next] = State::Skipped;
            skipped.push(next);
        }
        skipped.sort_unstable();
        skipped
    }

    /// A running change was left in the middle by an interruption.
    pub fn left(&mut self, change: usize) {
        self.states[change] = State::Left;
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
        (0..self.states.len()).filter(|change| self.states[*change] == state).collect()
    }

    fn is_lost(&self, change: usize) -> bool {
        matches!(self.states.get(change), Some(State::Failed | State::Skipped))
    }

    fn is_ready(&self, change: usize) -> bool {
        let done = |before: &usize| self.states.get(*before) == Some(&State::Done);
        self.states[change] == State::Waiting && self.changes[change].follows.iter().all(done)
    }

    fn fits(&self, change: &Change) -> bool {
        let lane = &change.lane;
        let lanes = || self.running().into_iter().map(|change| &self.changes[change].lane);
        // What waits for others to finish their work must not hold up the rest for hours.
        let busy = self.running().into_iter().map(|change| &self.changes[change]);
        let busy = busy.filter(|change| change.lane == Lane::Kubernetes && !waits_for_idle(change)).count();
        let wide = lanes().filter(|other| **other == Lane::Kubernetes).count();
        match lane {
            Lane::Cluster => wide == lanes().count(),
            Lane::Pool(_) => {
                let clear = !lanes().any(|other| *other == Lane::Cluster || other == lane);
                clear && lanes().count() - wide < POOLS
            }
            Lane::Kubernetes => busy < self.wide || waits_for_idle(change),
        }
    }
}

/// Whether there is anything to do for a change. What is kept may still be waited for.
pub fn runs(change: &Change) -> bool {
    !change.steps.is_empty() || change.action != Action::Keep
}

/// Whether a change begins with a wait for the work of others.
fn waits_for_idle(change: &Change) -> bool {
    matches!(change.steps.first(), Some(Step::Await(Await { until: Until::Idle, .. })))
}

/// The weight of the longest chain that begins at each change. GKE takes minutes where Kubernetes takes
/// seconds.
fn weights(changes: &[Change]) -> Vec<u32> {
    let own = |change: &Change| match (runs(change), &change.lane) {
        (false, _) => 0,
        (true, Lane::Cluster | Lane::Pool(_)) => 100,
        (true, Lane::Kubernetes) => 1,
    };
    let mut weights: Vec<u32> = changes.iter().map(own).collect();
    // A chain is no longer than the list; a circle ends here too.
    for _ in 0..changes.len() {
        let mut moved = false;
        for (place, change) in changes.iter().enumerate() {
            for before in &change.follows {
                let Some(earlier) = changes.get(*before) else { continue };
                let chain = own(earlier).saturating_add(weights[place]);
                if weights[*before] < chain {
                    weights[*before] = chain;
                    moved = true;
                }
            }
        }
        if !moved {
            break;
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Address, FieldPath};
    use crate::resource::Identity;

    /// `name lane follows…`, lanes: `C`, `P:pool`, `K`; `-` before the lane: nothing to do.
    fn changes(rows: &[&str]) -> Vec<Change> {
        let change = |row: &&str| {
            let mut words = row.split(' ');
            let address = Address::new(words.next().unwrap());
            let lane = words.next().unwrap();
            let (action, lane) = match lane.strip_prefix('-') {
                Some(lane) => (Action::Keep, lane),
                None => (Action::Create, lane),
            };
            let lane = match lane.split_once(':') {
                Some((_, pool)) => Lane::Pool(pool.into()),
                None if lane == "C" => Lane::Cluster,
                None => Lane::Kubernetes,
            };
            Change {
                identity: Identity::Check(address.clone()),
                address,
                kind: "x".into(),
                action,
                fields: Vec::new(),
                reason: None,
                origin: FieldPath::root(),
                location: None,
                lane,
                steps: Vec::new(),
                follows: words.map(|word| word.parse().unwrap()).collect(),
                fingerprint: None,
                foreign: false,
                taken: None,
                before: serde_json::Value::Null,
            }
        };
        rows.iter().map(change).collect()
    }

    #[test]
    fn a_chain_runs_in_order_and_what_is_kept_is_done() {
        let changes = changes(&["cluster C", "pool P:a 0", "kept -K", "object K 1 2"]);
        let mut scheduler = Scheduler::new(&changes, 64);
        for place in [0, 1, 3] {
            assert_eq!(scheduler.start(), [place]);
            assert_eq!(scheduler.start(), Vec::<usize>::new());
            scheduler.done(place);
        }
        assert!(scheduler.start().is_empty() && scheduler.waiting().is_empty());
    }

    #[test]
    fn lanes_limit_what_runs_at_once() {
        let rows: &[(&[&str], usize, &[usize])] = &[
            (&["a P:a", "b P:b", "c P:c", "d P:d", "e P:e"], 64, &[0, 1, 2, 3]),
            (&["a P:a", "b P:a", "c P:b"], 64, &[0, 2]),
            (&["a C", "b C", "c P:a", "d K"], 64, &[0, 3]),
            (&["a K", "b K", "c K"], 2, &[0, 1]),
        ];
        for (names, wide, started) in rows {
            let changes = changes(names);
            assert_eq!(Scheduler::new(&changes, *wide).start(), *started, "{names:?}");
        }
    }

    #[test]
    fn a_cluster_change_waits_for_running_pools_but_not_for_objects() {
        let changes = changes(&["pool P:a", "object K", "cluster C 2", "object K"]);
        let mut scheduler = Scheduler::new(&changes, 64);
        scheduler.states[2] = State::Running;
        assert_eq!(scheduler.start(), [1, 3]);
        scheduler.done(2);
        assert_eq!(scheduler.start(), [0]);
    }

    #[test]
    fn the_longest_chain_goes_first() {
        let changes = changes(&["a K", "b K", "pool P:x 1", "c K", "d K 3", "e K 4"]);
        let mut scheduler = Scheduler::new(&changes, 1);
        let mut order = Vec::new();
        loop {
            let started = scheduler.start();
            if started.is_empty() {
                break;
            }
            started.iter().for_each(|place| scheduler.done(*place));
            order.extend(started);
        }
        assert_eq!(order, [1, 2, 3, 4, 0, 5]);
    }

    #[test]
    fn a_failure_skips_its_followers_and_nothing_else() {
        let changes = changes(&["a K", "b K 0", "c K 1", "d K", "e K 3"]);
        let mut scheduler = Scheduler::new(&changes, 64);
        assert_eq!(scheduler.start(), [0, 3]);
        assert_eq!(scheduler.failed(0), [1, 2]);
        scheduler.done(3);
        assert_eq!(scheduler.start(), [4]);
        scheduler.left(4);
        assert!(scheduler.start().is_empty() && scheduler.running().is_empty());
    }

    #[test]
    fn a_circle_never_starts_and_never_hangs() {
        let changes = changes(&["a K 1", "b K 0"]);
        let mut scheduler = Scheduler::new(&changes, 64);
        assert!(scheduler.start().is_empty());
        assert_eq!(scheduler.waiting(), [0, 1]);
    }
}
