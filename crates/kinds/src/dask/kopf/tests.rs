//! Tries every order in which users, this program, a watch and kopf can act, on a small model of kopf. Source of the model:
//! `kopf._core.reactor.queueing` and `processing` of kopf 1.45.2.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde_json::json;

use super::*;
use crate::kind::{Part, QueryResults};
use crate::kubernetes::object::gvk;
use model::resource::{Facts, KindId, Owner, Until};

const WANTED: u64 = 2;

/// An object that kopf watches: the number that users write, and kopf's annotation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WatchedObject {
    asked: u64,
    noted: u64,
    version: u32,
    /// States that kopf has not handled yet.
    events: VecDeque<(u64, u64, u32)>,
    /// The number whose handler runs, or has run and is not recorded.
    handling: Option<u64>,
    ran: bool,
    /// The version of kopf's own last write: it ignores older events.
    expected: u32,
}

impl WatchedObject {
    fn new(number: u64) -> Self {
        let (asked, noted) = (number, number);
        Self { asked, noted, version: 0, events: VecDeque::new(), handling: None, ran: false, expected: 0 }
    }

    fn moved(&mut self) {
        self.version += 1;
        self.events.push_back((self.asked, self.noted, self.version));
    }

    fn ask(&mut self, number: u64) {
        if self.asked != number {
            self.asked = number;
            self.moved();
        }
    }

    /// Takes the next state.
    fn take(&mut self) {
        if let Some((asked, noted, version)) = self.events.pop_front()
            && version >= self.expected
            && asked != noted
        {
            (self.handling, self.ran) = (Some(asked), false);
        }
    }

    fn note(&mut self, number: u64) {
        if self.noted != number {
            self.noted = number;
            self.moved();
        }
        (self.expected, self.handling) = (self.version, None);
    }

    fn is_quiet(&self) -> bool {
        self.events.is_empty() && self.handling.is_none()
    }

    fn live(&self, name: &str) -> Value {
        let spec = |number: u64| json!({ "cluster": "c", "worker": { "replicas": number } });
        let noted = json!({ "spec": spec(self.noted) }).to_string();
        json!({
            "metadata": {
                "name": name, "ownerReferences": [{ "kind": "DaskCluster" }],
                "annotations": { "kopf.zalando.org/last-handled-configuration": noted },
            },
            "spec": spec(self.asked),
            "status": { "phase": "Running" },
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum On {
    Cluster,
    Group,
}

/// A step of this program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ours {
    Handled(On),
    Write(On),
    /// Waits until the object is ready.
    Ready(On),
}

/// The values that a readiness check has read so far, at different moments.
type Look = (Option<(u64, u64)>, Option<(u64, u64)>, Option<u64>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    cluster: WatchedObject,
    group: WatchedObject,
    workers: u64,
    /// The number of edits that other users may still make.
    edits: u8,
    /// The number of this program's steps that are done.
    done: usize,
    look: Look,
}

struct Model<'a> {
    steps: Vec<Ours>,
    /// True if a watch may skip all states but the newest, as after a broken connection.
    coalesces: bool,
    judged: &'a mut Judged,
}

/// Earlier results, keyed by everything that they depend on.
#[derive(Default)]
struct Judged {
    ready: BTreeMap<(On, Look), Readiness>,
    handled: BTreeMap<(On, u64, u64), bool>,
}

fn deployment(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "generation": 1, "labels": { "dask.org/workergroup-name": "c-default" } },
        "spec": { "replicas": 1 },
        "status": {
            "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "conditions": [{ "type": "Available", "status": "True" }],
        },
    })
}

fn live_object(of: (u64, u64), name: &str) -> Value {
    WatchedObject { asked: of.0, noted: of.1, ..WatchedObject::new(of.0) }.live(name)
}

fn await_of(on: On, until: Until) -> Await {
    let (kind, gvk, name) = match on {
        On::Cluster => (KindId::DaskCluster, api::cluster(), "c"),
        On::Group => (KindId::DaskGroup, api::group(), "c-default"),
    };
    let identity = Identity::Object(ObjectId { gvk, namespace: Some("n".to_owned()), name: name.to_owned() });
    Await {
        kind,
        identity,
        until,
        facts: Facts::Workers { replicas: Some(WANTED), cluster: None, gang: None },
        deadline: 1,
    }
}

fn owner() -> Owner {
    Owner { stack: "s".to_owned(), id: "s".to_owned() }
}

impl Model<'_> {
    fn handled(&mut self, state: &State, on: On) -> bool {
        let of = match on {
            On::Cluster => &state.cluster,
            On::Group => &state.group,
        };
        *self.judged.handled.entry((on, of.asked, of.noted)).or_insert_with(|| {
            let wait = await_of(on, Until::Handled);
            let kind = crate::of(wait.kind);
            assert_eq!((kind.queries)(&wait).all().count(), 1, "one read is of one moment");
            kind.readiness(&wait, &QueryResults::of([(Part::Itself, &of.live("c"))])) == Readiness::Ready
        })
    }

    fn readiness(&mut self, on: On, look: &Look) -> Readiness {
        if let Some(known) = self.judged.ready.get(&(on, *look)) {
            return known.clone();
        }
        let wait = await_of(on, Until::Ready);
        let group = live_object(look.1.unwrap(), "c-default");
        let names = ["a", "b", "c", "d", "e"];
        let workers: Vec<Value> =
            names.iter().take(look.2.unwrap() as usize).map(|name| deployment(name)).collect();
        let (workers, pods) = (json!({ "items": workers }), json!({ "items": [] }));
        let found = match on {
            On::Cluster => vec![
                live_object(look.0.unwrap(), "c"),
                deployment("c-scheduler"),
                json!({ "spec": { "type": "ClusterIP" } }),
                group,
                workers,
                pods,
            ],
            On::Group => vec![group, workers, pods],
        };
        let kind = crate::of(wait.kind);
        let judged = kind.readiness(&wait, &QueryResults::answers(&(kind.queries)(&wait), &found));
        self.judged.ready.insert((on, *look), judged.clone());
        judged
    }

    /// Adds the states that kopf, the watch and the handlers may produce next.
    fn operator(&self, state: &State, next: &mut Vec<State>) {
        for on in [On::Cluster, On::Group] {
            let mut after = state.clone();
            let object = if on == On::Cluster { &mut after.cluster } else { &mut after.group };
            if self.coalesces && object.events.len() > 1 {
                let mut left_out = state.clone();
                let object = if on == On::Cluster { &mut left_out.cluster } else { &mut left_out.group };
                object.events.drain(..object.events.len() - 1);
                next.push(left_out);
            }
            match object.handling {
                None if object.events.is_empty() => continue,
                None => object.take(),
                Some(number) if object.ran => object.note(number),
                // `daskcluster_default_worker_group_replica_update`.
                Some(number) if on == On::Cluster => {
                    object.ran = true;
                    after.group.ask(number);
                }
                // `daskworkergroup_replica_update`, one Deployment after the other.
                Some(number) => {
                    match number.cmp(&after.workers) {
                        std::cmp::Ordering::Greater => after.workers += 1,
                        std::cmp::Ordering::Less => after.workers -= 1,
                        std::cmp::Ordering::Equal => {}
                    }
                    after.group.ran = after.workers == number;
                }
            }
            next.push(after);
        }
    }

    /// Adds the states that this program's steps may produce next.
    fn ours(&mut self, state: &State, next: &mut Vec<State>) {
        let done = |after: &mut State| (after.done, after.look) = (state.done + 1, Look::default());
        let mut after = state.clone();
        match self.steps.get(state.done).copied() {
            None => {}
            Some(Ours::Handled(on)) if self.handled(state, on) => {
                done(&mut after);
                next.push(after);
            }
            Some(Ours::Handled(_)) => {}
            Some(Ours::Write(_)) if !self.is_planned(state) => {}
            Some(Ours::Write(on)) => {
                match on {
                    On::Cluster => after.cluster.ask(WANTED),
                    On::Group => after.group.ask(WANTED),
                }
                done(&mut after);
                next.push(after);
            }
            Some(Ours::Ready(on)) => {
                let mut read = false;
                let (cluster, group) = (&state.cluster, &state.group);
                for part in 0..3 {
                    let mut after = state.clone();
                    match part {
                        0 if after.look.0.is_none() => after.look.0 = Some((cluster.asked, cluster.noted)),
                        1 if after.look.1.is_none() => after.look.1 = Some((group.asked, group.noted)),
                        2 if after.look.2.is_none() => after.look.2 = Some(state.workers),
                        _ => continue,
                    }
                    read = true;
                    next.push(after);
                }
                if !read {
                    match self.readiness(on, &state.look) {
                        Readiness::Ready => done(&mut after),
                        _ => after.look = Look::default(),
                    }
                    next.push(after);
                }
            }
        }
    }

    fn writes(&self, on: On) -> bool {
        self.steps.contains(&Ours::Write(on))
    }

    /// Returns true if a plan writes exactly these numbers: it writes the group alone if the cluster has the desired number, and
    /// the cluster alone if the operator copies its number.
    fn is_planned(&self, state: &State) -> bool {
        let cluster = self.writes(On::Cluster) || state.cluster.asked == WANTED;
        let group = self.writes(On::Group) || state.cluster.asked != WANTED;
        cluster && group
    }

    /// Adds the writes of other users until the next read: a concurrent writer can always come last.
    fn others(&self, state: &State, next: &mut Vec<State>) {
        let done = &self.steps[..state.done];
        if state.edits == 0 || done.iter().any(|step| matches!(step, Ours::Write(_))) {
            return;
        }
        // No cluster's number is handed on to a group of the stack.
        let of_group = self.steps.contains(&Ours::Ready(On::Group));
        let all = if of_group { &[On::Group][..] } else { &[On::Cluster, On::Group] };
        let is_over = |object: &WatchedObject| object.is_quiet() && object.asked == object.noted;
        let over = is_over(&state.cluster) && is_over(&state.group);
        for number in 1..=3 {
            for on in all.iter().copied() {
                if done.contains(&Ours::Handled(on)) {
                    continue;
                }
                let mut after = state.clone();
                after.edits -= 1;
                let object = if on == On::Cluster { &mut after.cluster } else { &mut after.group };
                // To and fro before the operator looks: that cannot be told from a number that nobody has touched.
                // Beside a cluster, which hands on what others write to it, one edit of theirs is on its way at a time.
                if number == object.noted || !of_group && !over {
                    continue;
                }
                object.ask(number);
                next.push(after);
            }
        }
    }

    /// Tries all orders until one gives a wrong result. Returns the mistake, if any, and the number of states.
    fn run(&mut self, first: u64, edits: u8) -> (Option<String>, usize) {
        let start = State {
            cluster: WatchedObject::new(first),
            group: WatchedObject::new(first),
            workers: first,
            edits,
            done: 0,
            look: Look::default(),
        };
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            let now = self.steps.get(state.done).copied();
            let quiet = state.cluster.is_quiet() && state.group.is_quiet();
            let (cluster, group) = (&state.cluster, &state.group);
            let all =
                (Some((cluster.asked, cluster.noted)), Some((group.asked, group.noted)), Some(state.workers));
            let wrong = match now {
                None => (state.workers != WANTED).then_some("the wait is over and the workers move"),
                Some(Ours::Ready(on)) if quiet => {
                    (self.readiness(on, &all) != Readiness::Ready).then_some("nothing moves and it waits")
                }
                Some(Ours::Handled(on)) if quiet => {
                    (!self.handled(&state, on)).then_some("nothing moves and it waits")
                }
                Some(_) => None,
            };
            if let Some(wrong) = wrong {
                return (Some(format!("{wrong}: {state:?}")), seen.len());
            }
            let mut next = Vec::new();
            self.operator(&state, &mut next);
            self.ours(&state, &mut next);
            self.others(&state, &mut next);
            open.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
        }
        (None, seen.len())
    }
}

/// Returns the waits of [`waits_before`], and the writes.
fn program(on: On, writes: &[On], waits: bool) -> Vec<Ours> {
    let Identity::Object(object) = await_of(on, Until::Ready).identity else { unreachable!() };
    let owner = owner();
    let call = Step::Call(crate::kubernetes::calls::scale_call(&object, &owner, json!(WANTED)));
    let before = waits_before(Action::Update, &object, &[], &[call]);
    let handled = before.iter().map(|step| match step {
        Step::Await(wait) if wait.kind == KindId::DaskCluster => Ours::Handled(On::Cluster),
        Step::Await(wait) if wait.kind == KindId::DaskGroup => Ours::Handled(On::Group),
        other => panic!("{other:?}"),
    });
    let writes = writes.iter().map(|on| Ours::Write(*on));
    handled.filter(|_| waits).chain(writes).chain([Ours::Ready(on)]).collect()
}

#[test]
fn in_every_order_the_wait_ends_after_the_last_worker_has_moved() {
    let mut judged = Judged::default();
    for coalesces in [false, true] {
        for (on, writes) in [
            (On::Group, &[On::Group][..]),
            (On::Cluster, &[On::Cluster]),
            (On::Cluster, &[On::Group]),
            (On::Cluster, &[On::Group, On::Cluster]),
        ] {
            let mut run = |waits, first| {
                let steps = program(on, writes, waits);
                Model { steps, coalesces, judged: &mut judged }.run(first, 3)
            };
            let mut shown = false;
            for first in 1..=3 {
                let (wrong, states) = run(true, first);
                println!("{on:?} {writes:?} from {first}, coalesces {coalesces}: {states} states");
                assert_eq!(wrong, None, "{on:?} {writes:?} from {first}, coalesces {coalesces}");
                shown |= run(false, first).0.is_some();
            }
            assert!(shown, "without the waits nothing goes wrong: the model does not show what they are for");
        }
    }
}

#[test]
fn only_a_number_is_waited_for() {
    let object = |gvk| ObjectId { gvk, namespace: None, name: "c".to_owned() };
    let owner = owner();
    let pods = object(gvk("apps", "v1", "Deployment", "deployments"));
    let scale =
        |object: &ObjectId| vec![Step::Call(crate::kubernetes::calls::scale_call(object, &owner, json!(1)))];
    let group = object(api::group());
    assert_eq!(waits_before(Action::Update, &group, &[], &scale(&group)).len(), 1);
    assert_eq!(waits_before(Action::Update, &group, &[], &[]), []);
    assert_eq!(waits_before(Action::Replace, &group, &[], &scale(&group)), []);
    assert_eq!(waits_before(Action::Update, &pods, &[], &scale(&pods)), []);
}
