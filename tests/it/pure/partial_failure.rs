//! Progress: what has no relation to a failure is done, and a quota that leaves room in some order is got through by an
//! apply and another one. Stacks, edits, failing things and quotas are generated; the plans run in the scheduler of apply
//! against a model of what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use apply::schedule::{ChangeScheduler, has_work};
use model::diag::{self, Look};
use model::resource::{Identity, Seen, World};
use model::source::Sources;
use plan::{Action, Change, Inputs, Mode, Plan, plan};
use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;
use stack::lower::{Lowered, lower};
use stack::{Options, parse_text};

use crate::props::cases;
use crate::world::settled;

/// Sorts of GPUs that may stand beside N1 machines.
const GPUS: [&str; 2] = ["nvidia-tesla-t4", "nvidia-tesla-v100"];

#[derive(Clone, Debug, PartialEq)]
struct Pool {
    /// Which of [`GPUS`], one a node.
    gpu: Option<usize>,
    nodes: u32,
    spot: bool,
    checked: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Dask {
    pool: u8,
    workers: u8,
    image: u8,
    namespace: Option<u8>,
}

#[derive(Clone, Debug, PartialEq)]
struct Shape {
    pools: BTreeMap<u8, Pool>,
    dask: BTreeMap<u8, Dask>,
    namespaces: BTreeSet<u8>,
}

impl Shape {
    /// Removes references to sections that are not there.
    fn whole(mut self) -> Self {
        self.pools.entry(9).or_insert(Pool { gpu: None, nodes: 1, spot: false, checked: false });
        let Self { pools, dask, namespaces } = &mut self;
        for pool in pools.values_mut() {
            pool.checked &= pool.gpu.is_some();
        }
        dask.retain(|_, dask| pools.get(&dask.pool).is_some_and(|pool| pool.gpu.is_some()));
        for dask in dask.values_mut() {
            dask.namespace = dask.namespace.filter(|name| namespaces.contains(name));
        }
        self
    }

    fn gpus(&self, sort: usize) -> u32 {
        self.pools.values().filter(|pool| pool.gpu == Some(sort)).map(|pool| pool.nodes).sum()
    }
}

/// The stack file.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = "[stack]\nname = \"s\"\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n[cluster]\nname = \"c\"\n\
                    [dask_operator]\nversion = \"2026.3.0\"\n";
        f.write_str(head)?;
        for (name, Pool { gpu, nodes, spot, checked }) in &self.pools {
            let gpu = gpu.map(|sort| format!("accelerator = \"{}\"\n", GPUS[sort])).unwrap_or_default();
            write!(
                f,
                "[node_pool.p{name}]\nmachine_type = \"n1-standard-2\"\n{gpu}nodes = {nodes}\nspot = {spot}\n"
            )?;
            if *checked {
                write!(f, "[check.c{name}]\nrun = \"cuda-vectoradd\"\npool = \"p{name}\"\n")?;
            }
        }
        for name in &self.namespaces {
            writeln!(f, "[namespace.n{name}]")?;
        }
        for (name, Dask { pool, workers, image, namespace }) in &self.dask {
            let namespace = namespace.map(|name| format!("namespace = \"n{name}\"\n")).unwrap_or_default();
            write!(
                f,
                "[dask_cluster.d{name}]\nimage = \"rapids:{image}\"\n{namespace}worker = {{ replicas = {workers}, gpus = 1, \
                 pool = \"p{pool}\" }}\n"
            )?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Case {
    before: Shape,
    after: Shape,
    /// Which of the changes fail, as shares of all.
    failing: Vec<prop::sample::Index>,
    /// GPUs of each sort above what is needed before and after.
    spare: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after, failing, spare } = self;
        write!(f, "# before\n{before}\n# after\n{after}\n# failing {failing:?}, spare {spare}")
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let pool = (
        prop_oneof![1 => Just(None), 4 => (0..GPUS.len()).prop_map(Some)],
        1_u32..=3,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(gpu, nodes, spot, checked)| Pool { gpu, nodes, spot, checked });
    let dask = (0_u8..4, 1_u8..=2, 0_u8..2, prop::option::of(0_u8..2))
        .prop_map(|(pool, workers, image, namespace)| Dask { pool, workers, image, namespace });
    (btree_map(0_u8..4, pool, 0..=3), btree_map(0_u8..3, dask, 0..=3), btree_set(0_u8..2, 0..=2))
        .prop_map(|(pools, dask, namespaces)| Shape { pools, dask, namespaces }.whole())
}

/// A stack and what somebody makes of it: another one, or the same with its pools renamed.
fn edits() -> impl Strategy<Value = (Shape, Shape)> {
    let renamed = |shape: Shape| {
        let other = |name: u8| if name < 4 { name + 4 } else { name };
        let mut after = shape.clone();
        after.pools = after.pools.into_iter().map(|(name, pool)| (other(name), pool)).collect();
        after.dask.values_mut().for_each(|dask| dask.pool = other(dask.pool));
        (shape, after)
    };
    prop_oneof![2 => (shapes(), shapes()), 1 => shapes().prop_map(renamed)]
}

fn generated_case() -> impl Strategy<Value = Case> {
    let failing = prop::collection::vec(any::<prop::sample::Index>(), 0..=2);
    (edits(), failing, 0_u32..=2).prop_map(|((before, after), failing, spare)| Case {
        before,
        after,
        failing,
        spare,
    })
}

fn read(shape: &Shape) -> (Lowered, Sources) {
    let vars = BTreeMap::new();
    let read =
        parse_text("stack.toml", &shape.to_string(), &Options { env: &|_| None, vars: &vars, helm: None });
    let loaded = read.unwrap_or_else(|failure| {
        panic!("{}", diag::render(&failure.diagnostics, &failure.sources, Look::PLAIN))
    });
    (lower(&loaded.stack, true), loaded.sources)
}

fn planned((lowered, sources): &(Lowered, Sources), world: &World) -> Result<Plan, String> {
    plan(Inputs::of(lowered.clone(), Mode::Apply, world, sources))
        .map_err(|problems| diag::render(&problems, sources, Look::PLAIN))
}

fn gpus(pool: &serde_json::Value, nodes: u32) -> [u32; GPUS.len()] {
    let sort = pool["config"]["accelerators"][0]["acceleratorType"].as_str();
    GPUS.map(|gpu| if sort == Some(gpu) { nodes } else { 0 })
}

/// The live and the desired state, and the number of GPUs that are available.
struct Model {
    world: World,
    wish: World,
    most: [u32; GPUS.len()],
}

impl Model {
    fn gpus_used(&self) -> [u32; GPUS.len()] {
        self.world.pools.iter().fold([0; GPUS.len()], |sum, (name, pool)| {
            let own = gpus(pool, self.world.sizes[name]);
            std::array::from_fn(|sort| sum[sort] + own[sort])
        })
    }

    /// Does a change, or says that there are not GPUs enough. What a replace deletes is gone all the same.
    fn perform(&mut self, change: &Change) -> bool {
        match &change.identity {
            Identity::Cluster(_) => {}
            Identity::NodePool { pool, .. } => {
                let made = matches!(change.action, Action::Create | Action::Replace | Action::Update);
                if !matches!(change.action, Action::Update | Action::Keep) {
                    self.world.pools.remove(pool);
                }
                if made {
                    let before = (self.world.pools.remove(pool), self.world.sizes.get(pool).copied());
                    let nodes = self.wish.sizes[pool];
                    let more = gpus(&self.wish.pools[pool], nodes);
                    let used = self.gpus_used();
                    if (0..GPUS.len()).any(|sort| more[sort] > 0 && used[sort] + more[sort] > self.most[sort])
                    {
                        if let (Some(live), Some(nodes)) = before {
                            self.world.pools.insert(pool.clone(), live);
                            self.world.sizes.insert(pool.clone(), nodes);
                        }
                        return false;
                    }
                    self.world.pools.insert(pool.clone(), self.wish.pools[pool].clone());
                    self.world.sizes.insert(pool.clone(), nodes);
                }
            }
            Identity::Object(object) => {
                let (Seen::Live(live), Seen::Live(wish)) = (&mut self.world.objects, &self.wish.objects)
                else {
                    return true;
                };
                match wish.get(object).filter(|_| change.action != Action::Delete) {
                    Some(wanted) if change.action != Action::Keep => {
                        drop(live.insert(object.clone(), wanted.clone()));
                    }
                    Some(_) => {}
                    None => drop(live.remove(object)),
                }
            }
            check @ Identity::Check(_) => {
                let passes = &self.wish.record.as_ref().unwrap().completed;
                self.world.record.as_mut().unwrap().completed.insert(check.clone(), passes[check].clone());
            }
        }
        true
    }
}

/// How an apply ended.
pub struct RunResult {
    done: BTreeSet<usize>,
    failed: BTreeSet<usize>,
    /// In the order in which they began.
    pub order: Vec<usize>,
}

/// Runs a plan in the order of apply, each change at once.
pub fn run(plan: &Plan, mut does: impl FnMut(usize) -> bool) -> RunResult {
    let mut scheduler = ChangeScheduler::new(&plan.changes, &plan.barriers, 64);
    let mut ended = RunResult { done: BTreeSet::new(), failed: BTreeSet::new(), order: Vec::new() };
    loop {
        let started = scheduler.start();
        let Some(_) = started.first() else { break };
        for place in started {
            ended.order.push(place);
            if does(place) {
                scheduler.done(place);
                ended.done.insert(place);
            } else {
                scheduler.failed(place);
                ended.failed.insert(place);
            }
        }
    }
    ended
}

fn apply_with_failures(plan: &Plan, model: &mut Model, failing: &BTreeSet<usize>) -> RunResult {
    let ended = run(plan, |place| !failing.contains(&place) && model.perform(&plan.changes[place]));
    // The part of the record that an apply writes.
    let inventory = model.wish.record.as_ref().unwrap().inventory.clone();
    let record = model.world.record.as_mut().unwrap();
    record.inventory.extend(inventory);
    ended
}

/// Returns true if a change that was not done is related to another one, judged by the stacks alone, not by the plan's
/// order.
fn is_related(case: &Case, change: &Change, other: &Change) -> bool {
    let key = |change: &Change, kind: &str| -> Option<u8> {
        change.address.section().strip_prefix(kind)?.get(1..)?.parse().ok()
    };
    let pool_of = |shape: &Shape, dask: u8| shape.dask.get(&dask).map(|dask| dask.pool);
    let sort = |shape: &Shape, pool: u8| shape.pools.get(&pool).map(|pool| pool.gpu);
    let (pool, dask, namespace, check) = (
        key(change, "node_pool."),
        key(change, "dask_cluster."),
        key(change, "namespace."),
        key(change, "check."),
    );
    let [other_pool, other_dask, other_namespace, other_check] =
        ["node_pool.", "dask_cluster.", "namespace.", "check."].map(|kind| key(other, kind));
    let deletes = change.action == Action::Delete;
    let other_deletes = other.action == Action::Delete;
    // Everything stands on the cluster.
    if matches!(other.identity, Identity::Cluster(_)) {
        return true;
    }
    if let Some(pool) = pool {
        let on_it = |shape: &Shape| other_dask.and_then(|dask| pool_of(shape, dask)) == Some(pool);
        let gpu = if deletes { sort(&case.before, pool) } else { sort(&case.after, pool) };
        let other_gpu = other_pool.map(|other| match other_deletes {
            true => sort(&case.before, other),
            false => sort(&case.after, other),
        });
        return match deletes {
            // Schedulers run wherever there are no GPUs.
            true if gpu == Some(None) && other_dask.is_some() => true,
            true => {
                on_it(&case.before) || other_gpu.is_some_and(|other| other == Some(None) && gpu == Some(None))
            }
            false => other_deletes && other_gpu == Some(gpu) && gpu != Some(None),
        };
    }
    if let Some(dask) = dask {
        if deletes {
            return other_dask == Some(dask);
        }
        let (was, is) = (pool_of(&case.before, dask), pool_of(&case.after, dask));
        let same = |other: Option<u8>| other.is_some() && (other == is || other == was);
        let meets = other_dask.is_some_and(|other| same(pool_of(&case.before, other)));
        let of = |shape: &Shape| shape.dask.get(&dask).and_then(|dask| dask.namespace);
        let within = other_namespace
            .is_some_and(|name| of(&case.after) == Some(name) || of(&case.before) == Some(name));
        return same(other_pool)
            || same(other_check)
            || other_deletes && meets
            || within
            || other_dask == Some(dask)
            || other.address.section() == "dask_operator";
    }
    if let Some(check) = check {
        let on_it = other_dask.and_then(|dask| pool_of(&case.before, dask)) == Some(check);
        return other_pool == Some(check) || other_deletes && on_it;
    }
    if let Some(namespace) = namespace {
        let of =
            |shape: &Shape| other_dask.and_then(|dask| shape.dask.get(&dask)?.namespace) == Some(namespace);
        return of(&case.before) || of(&case.after);
    }
    // The operator's own objects.
    other.address.section() == change.address.section()
}

fn holds(case: &Case) -> Result<(), String> {
    let (before, after) = (read(&case.before), read(&case.after));
    let mut wish = settled(&after.0);
    wish.record.as_mut().unwrap().intent = false;
    let most = std::array::from_fn(|sort| case.before.gpus(sort).max(case.after.gpus(sort)) + case.spare);
    let mut model = Model { world: settled(&before.0), wish, most };
    let first = planned(&after, &model.world)?;
    let active: Vec<usize> = (0..first.changes.len())
        .filter(|place| has_work(&first.changes[*place]) && first.changes[*place].action != Action::Keep)
        .collect();
    let failing: BTreeSet<usize> = match active.is_empty() {
        true => BTreeSet::new(),
        false => case.failing.iter().map(|index| active[index.index(active.len())]).collect(),
    };
    let ended = apply_with_failures(&first, &mut model, &failing);
    let name = |place: usize| {
        let change = &first.changes[place];
        format!("{:?} {}", change.action, change.address)
    };
    let shown =
        |places: &BTreeSet<usize>| places.iter().map(|place| name(*place)).collect::<Vec<_>>().join(", ");
    // A skipped change is related to another one that was not done, down to a failed one.
    let undone: BTreeSet<usize> =
        active.iter().copied().filter(|place| !ended.done.contains(place)).collect();
    let mut excused: BTreeSet<usize> = ended.failed.clone();
    loop {
        let more: Vec<usize> = undone
            .difference(&excused)
            .copied()
            .filter(|place| {
                excused.iter().any(|lost| is_related(case, &first.changes[*place], &first.changes[*lost]))
            })
            .collect();
        if more.is_empty() {
            break;
        }
        excused.extend(more);
    }
    let without: BTreeSet<usize> = undone.difference(&excused).copied().collect();
    if !without.is_empty() {
        return Err(format!(
            "{} failed; without a relation to it, not done: {}",
            shown(&ended.failed),
            shown(&without)
        ));
    }
    // Nothing goes while something that goes, too, still runs on it or is in it.
    for (at, place) in ended.order.iter().enumerate() {
        let change = &first.changes[*place];
        for later in &ended.order[at + 1..] {
            let other = &first.changes[*later];
            let both = change.action == Action::Delete && other.action == Action::Delete;
            let lower = |change: &Change| change.address.as_str().starts_with("dask_cluster.");
            if both && !lower(change) && lower(other) && is_related(case, change, other) {
                return Err(format!("{} begins before {}", name(*place), name(*later)));
            }
        }
    }
    if !failing.is_empty() {
        return Ok(());
    }
    // Some order satisfies the quota: so an apply and another one do.
    let second = planned(&after, &model.world)?;
    let ended = apply_with_failures(&second, &mut model, &BTreeSet::new());
    let third = planned(&after, &model.world)?;
    let left: Vec<String> = third
        .changes
        .iter()
        .filter(|change| change.action != Action::Keep)
        .map(|change| format!("{:?} {}", change.action, change.address))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(format!(
        "after two applies there is still {} to do ({} failed in the second)",
        left.join(", "),
        ended.failed.len()
    ))
}

#[test]
fn what_has_no_relation_to_a_failure_is_done_and_quotas_are_got_through() {
    cases::check("progress", 50, generated_case().boxed(), holds);
}
