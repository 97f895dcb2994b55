use proptest::prelude::*;

use super::*;
use model::address::Address;
use model::resource::{Identity, KindId};

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
        let depends_on = words.map(|word| word.parse().unwrap()).collect();
        let identity = Identity::Check(address.clone());
        Change { lane, depends_on, ..Change::new(address, identity, KindId::Object, action) }
    };
    rows.iter().map(change).collect()
}

#[test]
fn a_chain_runs_in_order_and_what_is_kept_is_done() {
    let changes = changes(&["cluster C", "pool P:a 0", "kept -K", "object K 1 2"]);
    let mut scheduler = ChangeScheduler::new(&changes, &[], 64);
    for index in [0, 1, 3] {
        assert_eq!(scheduler.start(), [index]);
        assert_eq!(scheduler.start(), Vec::<usize>::new());
        scheduler.done(index);
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
    for (names, parallelism, started) in rows {
        let changes = changes(names);
        assert_eq!(ChangeScheduler::new(&changes, &[], *parallelism).start(), *started, "{names:?}");
    }
}

#[test]
fn a_cluster_change_waits_for_running_pools_but_not_for_objects() {
    let changes = changes(&["pool P:a", "object K", "cluster C", "object K 2"]);
    let mut scheduler = ChangeScheduler::new(&changes, &[], 64);
    assert_eq!(scheduler.start(), [2, 1]);
    scheduler.done(2);
    assert_eq!(scheduler.start(), [0, 3]);
}

#[test]
fn the_longest_chain_goes_first() {
    let changes = changes(&["a K", "b K", "pool P:x 1", "c K", "d K 3", "e K 4"]);
    let mut scheduler = ChangeScheduler::new(&changes, &[], 1);
    let mut order = Vec::new();
    loop {
        let started = scheduler.start();
        if started.is_empty() {
            break;
        }
        started.iter().for_each(|index| scheduler.done(*index));
        order.extend(started);
    }
    assert_eq!(order, [1, 2, 3, 4, 0, 5]);
}

#[test]
fn a_failure_skips_its_followers_and_nothing_else() {
    let changes = changes(&["a K", "b K 0", "c K 1", "d K", "e K 3"]);
    let mut scheduler = ChangeScheduler::new(&changes, &[], 64);
    assert_eq!(scheduler.start(), [0, 3]);
    assert_eq!(scheduler.failed(0), [1, 2]);
    scheduler.done(3);
    assert_eq!(scheduler.start(), [4]);
    scheduler.interrupted(4);
    assert!(scheduler.start().is_empty() && scheduler.running().is_empty());
}

#[test]
fn a_circle_never_starts_and_never_hangs() {
    let changes = changes(&["a K 1", "b K 0"]);
    let mut scheduler = ChangeScheduler::new(&changes, &[], 64);
    assert!(scheduler.start().is_empty());
    assert_eq!(scheduler.waiting(), [0, 1]);
}

#[test]
fn a_barrier_is_passed_when_all_before_it_are_done_and_falls_with_one_of_them() {
    let changes = changes(&["a K", "b K", "c K 4", "d K 4 0"]);
    let barriers = [Barrier { depends_on: vec![0, 1] }];
    let mut scheduler = ChangeScheduler::new(&changes, &barriers, 64);
    assert_eq!(scheduler.start(), [0, 1]);
    scheduler.done(0);
    assert!(scheduler.start().is_empty());
    scheduler.done(1);
    assert_eq!(scheduler.start(), [2, 3]);

    let mut scheduler = ChangeScheduler::new(&changes, &barriers, 64);
    assert_eq!(scheduler.start(), [0, 1]);
    scheduler.done(0);
    assert_eq!(scheduler.failed(1), [2, 3]);
    assert!(scheduler.waiting().is_empty());
}

/// The scheduler's rules in a simple form: every step checks every change, and every pair is an edge.
struct Plain<'a> {
    changes: &'a [Change],
    depends_on: Vec<Vec<usize>>,
    states: Vec<State>,
    weights: Vec<u32>,
    parallelism: usize,
}

impl<'a> Plain<'a> {
    fn new(changes: &'a [Change], barriers: &[Barrier], parallelism: usize) -> Self {
        let pairs = |change: &Change| {
            let each = change.depends_on.iter().flat_map(|before| match before.checked_sub(changes.len()) {
                Some(barrier) => barriers[barrier].depends_on.clone(),
                None => vec![*before],
            });
            each.collect::<Vec<usize>>()
        };
        let depends_on: Vec<Vec<usize>> = changes.iter().map(pairs).collect();
        let states =
            changes.iter().map(|one| if has_work(one) { State::Waiting } else { State::Done }).collect();
        let mut plain = Self { changes, depends_on, states, weights: Vec::new(), parallelism };
        plain.weights = (0..changes.len()).map(|index| plain.weight(index)).collect();
        plain
    }

    /// Successors come later in the list.
    fn weight(&self, index: usize) -> u32 {
        let followers = (0..self.changes.len()).filter(|other| self.depends_on[*other].contains(&index));
        weight(&self.changes[index]) + followers.map(|other| self.weight(other)).max().unwrap_or(0)
    }

    fn start(&mut self) -> Vec<usize> {
        let done = |before: &usize| self.states[*before] == State::Done;
        let is_ready =
            |index: &usize| self.states[*index] == State::Waiting && self.depends_on[*index].iter().all(done);
        let mut ready: Vec<usize> = (0..self.changes.len()).filter(is_ready).collect();
        ready.sort_by_key(|index| (Reverse(self.weights[*index]), *index));
        ready.retain(|index| {
            let fits = self.fits(&self.changes[*index]);
            if fits {
                self.states[*index] = State::Running;
            }
            fits
        });
        ready
    }

    fn fits(&self, change: &Change) -> bool {
        let running = || self.all(State::Running).into_iter().map(|index| &self.changes[index]);
        let of_gke = || running().filter(|other| other.lane != Lane::Kubernetes);
        let busy = running().filter(|other| other.lane == Lane::Kubernetes && !waits_for_idle(other)).count();
        match &change.lane {
            Lane::Cluster => of_gke().count() == 0,
            Lane::Pool(_) => {
                let clear = !of_gke().any(|other| other.lane == Lane::Cluster || other.lane == change.lane);
                clear && of_gke().count() < POOLS
            }
            Lane::Kubernetes => busy < self.parallelism || waits_for_idle(change),
        }
    }

    fn failed(&mut self, index: usize) -> Vec<usize> {
        self.states[index] = State::Failed;
        let mut skipped = Vec::new();
        loop {
            let is_lost = |before: &usize| matches!(self.states[*before], State::Failed | State::Skipped);
            let next = (0..self.changes.len()).find(|follower| {
                self.states[*follower] == State::Waiting && self.depends_on[*follower].iter().any(is_lost)
            });
            let Some(next) = next else { break };
            self.states[next] = State::Skipped;
            skipped.push(next);
        }
        skipped.sort_unstable();
        skipped
    }

    fn all(&self, state: State) -> Vec<usize> {
        (0..self.changes.len()).filter(|index| self.states[*index] == state).collect()
    }
}

/// One change of a generated plan: its lane, whether it has anything to do, whether it waits for idleness, and whom it
/// follows, as numbers of which the rest counts.
type Drawn = (u8, u8, Vec<prop::sample::Index>, Vec<prop::sample::Index>);

fn drawn() -> impl Strategy<Value = (Vec<Drawn>, Vec<Vec<prop::sample::Index>>)> {
    let index = || any::<prop::sample::Index>();
    let depends_on = || prop::collection::vec(index(), 0..3);
    let change = (0u8..9, 0u8..5, depends_on(), prop::collection::vec(index(), 0..2));
    (prop::collection::vec(change, 1..16), prop::collection::vec(prop::collection::vec(index(), 1..4), 0..3))
}

/// Edges lead from earlier to later changes in the list, so that there are no cycles. The successors of a barrier come after all
/// its predecessors.
fn plan_of(rows: &[Drawn], barriers: &[Vec<prop::sample::Index>]) -> (Vec<Change>, Vec<Barrier>) {
    let barriers: Vec<Barrier> = barriers
        .iter()
        .map(|indices| Barrier { depends_on: indices.iter().map(|index| index.index(rows.len())).collect() })
        .collect();
    let names = ["K", "K", "K", "K", "P:a", "P:b", "P:c", "C", "K"];
    let texts: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(index, (lane, does, depends_on, passes))| {
            let kept = if *does == 0 { "-" } else { "" };
            let mut text = format!("x{index} {kept}{}", names[usize::from(*lane)]);
            for before in depends_on.iter().filter(|_| index > 0) {
                text += &format!(" {}", before.index(index));
            }
            let open = |barrier: &&usize| barriers[**barrier].depends_on.iter().all(|before| *before < index);
            let numbers: Vec<usize> =
                passes.iter().filter(|_| !barriers.is_empty()).map(|one| one.index(barriers.len())).collect();
            for barrier in numbers.iter().filter(open) {
                text += &format!(" {}", rows.len() + barrier);
            }
            text
        })
        .collect();
    let mut changes = changes(&texts.iter().map(String::as_str).collect::<Vec<&str>>());
    for (change, (lane, does, _, _)) in changes.iter_mut().zip(rows) {
        if *lane == 8 && *does > 0 {
            change.steps.push(idle(change));
        }
    }
    (changes, barriers)
}

fn idle(change: &Change) -> Step {
    let wait = serde_json::json!({
        "kind": "object", "identity": change.identity, "until": "idle", "deadline": 60
    });
    Step::Await(serde_json::from_value(wait).unwrap())
}

proptest! {
    /// Checks that the scheduler starts the same changes in the same order as the simple form. No lane exceeds its limit, a
    /// failure skips exactly its direct and indirect successors, and at the end no change is left that could have run.
    #[test]
    fn it_does_as_the_plain_rules_say(
        (rows, barriers) in drawn(),
        parallelism in 1usize..5,
        ends in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 40),
    ) {
        let (changes, barriers) = plan_of(&rows, &barriers);
        let mut scheduler = ChangeScheduler::new(&changes, &barriers, parallelism);
        let mut plain = Plain::new(&changes, &barriers, parallelism);
        let mut ends = ends.into_iter().cycle();
        let mut started = 0;
        loop {
            let now = scheduler.start();
            prop_assert_eq!(&now, &plain.start());
            started += now.len();
            prop_assert!(scheduler.start().is_empty(), "all that can start has started");
            let running = scheduler.running();
            prop_assert_eq!(&running, &plain.all(State::Running));
            prop_assert_eq!(scheduler.waiting(), plain.all(State::Waiting));
            if running.is_empty() {
                break;
            }
            let Some((which, how)) = ends.next() else { break };
            let index = running[which.index(running.len())];
            match how {
                0 => prop_assert_eq!(scheduler.failed(index), plain.failed(index)),
                1 => {
                    scheduler.interrupted(index);
                    plain.states[index] = State::Interrupted;
                }
                _ => {
                    scheduler.done(index);
                    plain.states[index] = State::Done;
                }
            }
        }
        let all = changes.iter().filter(|change| has_work(change)).count();
        let skipped = plain.all(State::Skipped).len();
        prop_assert_eq!(started + skipped + scheduler.waiting().len(), all);
        if plain.all(State::Interrupted).is_empty() {
            prop_assert!(scheduler.waiting().is_empty());
        }
    }
}

/// Returns how much is looked at for a whole apply: a namespace, objects in it, and a barrier between them and as many deletes.
fn visits(count: usize) -> usize {
    let half = count / 2;
    let rows: Vec<String> = std::iter::once("namespace K".to_owned())
        .chain((1..=half).map(|index| format!("object{index} K 0")))
        .chain((1..=half).map(|index| format!("old{index} K {}", 2 * half + 1)))
        .collect();
    let changes = changes(&rows.iter().map(String::as_str).collect::<Vec<&str>>());
    let barriers = [Barrier { depends_on: (1..=half).collect() }];
    let mut scheduler = ChangeScheduler::new(&changes, &barriers, 64);
    let mut running = std::collections::VecDeque::new();
    let mut ended = 0;
    loop {
        running.extend(scheduler.start());
        let Some(index) = running.pop_front() else { break };
        scheduler.done(index);
        ended += 1;
    }
    assert_eq!(ended, changes.len());
    scheduler.visits
}

#[test]
fn the_work_grows_with_the_changes_and_not_with_their_square() {
    let (one, two) = (visits(1_000), visits(2_000));
    assert!(two * 10 <= one * 24, "{one} looks for 1,000 changes, {two} for 2,000");
}
