//! Several stacks in one cluster that hand over, take, share, rename, import, leave out and destroy: by uid, what only one stack can have
//! goes with its last owner and with nobody else, and what stacks share goes with the last that uses it. A stack whose file has not
//! changed has nothing to do, unless another stack did something to what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use apply::Outcome;
use import::{Found, Place};
use kinds::{dask, kubernetes};
use live::survey;
use model::address::Address;
use model::resource::{ClusterName, Endpoint, Identity, Owner};
use plan::propose::adopt::{self, AcceptedChanges};
use plan::{Action, Mode, Selection};
use proptest::prelude::*;
use serde_json::Value;

use super::cases::check;
use super::harness::{ApprovedApply, Flags, Harness, Process, Stack};
use super::laws::{self, Tally};
use super::player::paused;
use super::snapshot::{Snapshot, Uid};

const STACKS: [&str; 3] = ["a", "b", "c"];
/// Things that change owners: section, kind, text, and true if stacks share them.
const THINGS: [(&str, &str, &str, bool); 4] = [
    ("dask_cluster.d", "DaskCluster", "image = \"rapids:1\"\nworker = { replicas = 0 }\n", false),
    ("dask_cluster.e", "DaskCluster", "image = \"rapids:1\"\nworker = { replicas = 0 }\n", false),
    ("node_pool.p", "pool", "machine_type = \"e2-standard-4\"\nnodes = 1\n", false),
    ("namespace.n", "Namespace", "", true),
];

/// A stack's declaration of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declaration {
    Nothing,
    Mine,
    Theirs,
}

/// A section of a stack's file.
#[derive(Clone, Debug)]
struct Section {
    says: Declaration,
    /// True where its key differs from the live name.
    renamed: bool,
    /// True for the second thing of its kind.
    second: bool,
    /// The keys that `import` wrote.
    imported: Option<String>,
}

impl Default for Section {
    fn default() -> Self {
        Self { says: Declaration::Nothing, renamed: false, second: false, imported: None }
    }
}

/// Places of [`THINGS`], and whether it is the second thing of that kind.
type Thing = (usize, bool);

fn name_of((thing, second): Thing) -> String {
    let name = THINGS[thing].0.rsplit('.').next().unwrap();
    if second { format!("{name}2") } else { name.to_owned() }
}

fn things() -> impl Iterator<Item = Thing> {
    (0..THINGS.len()).flat_map(|thing| [(thing, false), (thing, true)])
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The file of a stack says something else of a thing, and is applied.
    Apply(usize, usize, Declaration),
    Adopt(usize, usize),
    Destroy(usize),
    /// The key is another one, the live name the same.
    Rename(usize, usize),
    /// The live name is another one.
    Another(usize, usize),
    /// The section is written as `import` writes it.
    Import(usize, usize),
}

#[derive(Clone, Debug)]
struct Case(Vec<Step>);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            match step {
                Step::Apply(stack, thing, says) => {
                    writeln!(f, "{}: {} {says:?}, apply", STACKS[*stack], THINGS[*thing].0)?;
                }
                Step::Adopt(stack, thing) => writeln!(f, "{}: adopt {}", STACKS[*stack], THINGS[*thing].0)?,
                Step::Destroy(stack) => writeln!(f, "{}: destroy", STACKS[*stack])?,
                Step::Rename(stack, thing) => {
                    writeln!(f, "{}: {} gets another key, apply", STACKS[*stack], THINGS[*thing].0)?;
                }
                Step::Another(stack, thing) => {
                    writeln!(f, "{}: {} gets another name, apply", STACKS[*stack], THINGS[*thing].0)?;
                }
                Step::Import(stack, thing) => {
                    writeln!(f, "{}: {} as `import` writes it, apply", STACKS[*stack], THINGS[*thing].0)?;
                }
            }
        }
        Ok(())
    }
}

fn case() -> impl Strategy<Value = Case> {
    let says = prop_oneof![3 => Just(Declaration::Mine), 2 => Just(Declaration::Theirs), 2 => Just(Declaration::Nothing)];
    let step = prop_oneof![
        6 => (0..STACKS.len(), 0..THINGS.len(), says).prop_map(|(stack, thing, says)| Step::Apply(stack, thing, says)),
        2 => (0..STACKS.len(), 0..THINGS.len()).prop_map(|(stack, thing)| Step::Adopt(stack, thing)),
        1 => (0..STACKS.len()).prop_map(Step::Destroy),
    ];
    let of = |step: fn(usize, usize) -> Step| {
        (0..STACKS.len(), 0..THINGS.len()).prop_map(move |(stack, thing)| step(stack, thing))
    };
    let step = prop_oneof![
        9 => step,
        2 => of(Step::Rename),
        1 => of(Step::Another),
        2 => of(Step::Import),
    ];
    // Two stacks in half of the cases, so that they meet more often.
    let steps = prop::collection::vec(step, 4..10);
    (steps, any::<bool>())
        .prop_map(|(steps, two)| Case(steps.into_iter().map(|step| step.limit_stacks(two)).collect()))
}

const GKE: &str = "[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n";

fn home() -> Stack {
    Stack::of(&format!(
        "[stack]\nname = \"home\"\n\n{GKE}[cluster]\nname = \"c\"\n\n[node_pool.cpu]\nmachine_type = \"e2-standard-4\"\n\n\
         [dask_operator]\nversion = \"2026.3.0\"\n"
    ))
}

type File = BTreeMap<usize, Section>;

impl Step {
    /// The step of one of two stacks, or of three.
    fn limit_stacks(self, two: bool) -> Self {
        let of = |stack: usize| if two { stack % 2 } else { stack };
        match self {
            Self::Apply(stack, thing, says) => Self::Apply(of(stack), thing, says),
            Self::Adopt(stack, thing) => Self::Adopt(of(stack), thing),
            Self::Destroy(stack) => Self::Destroy(of(stack)),
            Self::Rename(stack, thing) => Self::Rename(of(stack), thing),
            Self::Another(stack, thing) => Self::Another(of(stack), thing),
            Self::Import(stack, thing) => Self::Import(of(stack), thing),
        }
    }
}

/// The header of a section.
fn header(thing: usize, section: &Section) -> String {
    let name = name_of((thing, section.second));
    let sort = THINGS[thing].0.split('.').next().unwrap();
    if section.renamed { format!("{sort}.{name}-key") } else { format!("{sort}.{name}") }
}

fn stack(name: &str, file: &File) -> Stack {
    let mut text = format!(
        "[stack]\nname = \"{name}\"\n\n{GKE}[cluster]\nname = \"c\"\nmanage = false\n\n[dask_operator]\nmanage = false\n"
    );
    for (thing, section) in file {
        let manage = match section.says {
            Declaration::Nothing => continue,
            Declaration::Mine => "",
            Declaration::Theirs => "manage = false\n",
        };
        let name = if section.renamed {
            format!("name = \"{}\"\n", name_of((*thing, section.second)))
        } else {
            String::new()
        };
        let body = section.imported.as_deref().unwrap_or(THINGS[*thing].2);
        text += &format!("\n[{}]\n{name}{manage}{body}", header(*thing, section));
    }
    Stack::of(&text)
}

/// Live things by kind and name, each with its uid and body.
type LiveThings = BTreeMap<Thing, (Uid, Value)>;

/// A cluster with an operator, three stacks, and who has what.
struct World {
    harness: Harness,
    files: [File; 3],
    holders: BTreeMap<Thing, BTreeSet<usize>>,
    /// The live things at the end of the last apply of each stack.
    seen: [LiveThings; 3],
}

/// The stack, the command and the files of a step.
struct ExpectedStep {
    stack: usize,
    mode: Mode,
    /// The thing of an `adopt`.
    adopts: Option<usize>,
    files: [File; 3],
}

impl World {
    async fn new() -> Self {
        let (harness, home) = (Harness { strict: true, ..Harness::empty() }, home());
        let plan = harness.plan(&home, Mode::Apply).await.unwrap();
        let going = ApprovedApply { process: Process::Number(1), stack: &home, plan, moment: None };
        let ended = harness.apply_one(going, Vec::new()).await;
        assert!(ended.summary.is_some(), "{:?}", ended.refused);
        let holders = things().map(|thing| (thing, BTreeSet::new())).collect();
        Self { harness, files: Default::default(), holders, seen: Default::default() }
    }

    fn uid(snapshot: &Snapshot, thing: Thing) -> Option<Uid> {
        let (kind, name) = (THINGS[thing.0].1, name_of(thing));
        let mut found = snapshot.things.iter().filter(|(_, thing)| thing.kind == kind && thing.name == name);
        found.next().map(|(uid, _)| uid.clone())
    }

    /// The live things of [`THINGS`], each with its uid and body.
    async fn live(&self) -> LiveThings {
        let (snapshot, world) = (Snapshot::read(&self.harness.sandbox), self.harness.world(&home()).await);
        let live = |thing: Thing| {
            let path = path_of(THINGS[thing.0].1, &name_of(thing));
            Some((thing, (Self::uid(&snapshot, thing)?, world.get(&path).cloned().unwrap_or_default())))
        };
        things().filter_map(live).collect()
    }

    /// Plans and applies with every approval; `Ok(false)` when it is refused.
    async fn run(&self, stack: &Stack, mode: Mode, section: Option<&str>) -> Result<bool, String> {
        let targets = section.map(str::to_owned).into_iter().collect();
        let flags = Flags { selection: Selection { targets, excludes: Vec::new() }, ..Flags::default() };
        let Ok(mut plan) = self.harness.plan_with(stack, mode, &flags).await else { return Ok(false) };
        plan.approved = plan.missing_approvals(&[]);
        if let Some(section) = section {
            let world = self.harness.world_of(stack).await?;
            let agreed = AcceptedChanges { field_changes: true, approvals: &plan.approved };
            if !adopt::adoption_errors(&plan, &Address::new(section), &world, agreed, stack.sources())
                .is_empty()
            {
                return Ok(false);
            }
            adopt::without_waits(&mut plan);
        }
        if plan.has_nothing_to_do() {
            return Ok(true);
        }
        let going = ApprovedApply { process: Process::Number(7), stack, plan: plan.clone(), moment: None };
        let ended = self.harness.apply_one(going, Vec::new()).await;
        let Some(summary) = ended.summary else { return Err(format!("refused: {:?}", ended.refused)) };
        let bad = summary.outcomes.iter().find(|(_, outcome, _)| *outcome != Outcome::Done);
        if let Some((place, outcome, _)) = bad {
            return Err(format!("{}: {outcome:?}", plan.changes[*place].address));
        }
        let again = self.harness.plan_with(stack, mode, &flags).await;
        match again {
            Ok(plan) if plan.is_empty() => Ok(true),
            Ok(plan) => Err(format!("the second plan is not empty: {}", laws::actions(&plan).join("; "))),
            Err(_) if mode == Mode::Destroy || section.is_some() => Ok(true),
            Err(why) => Err(format!("there is no second plan: {why}")),
        }
    }

    /// The keys that `import` writes of a thing. Its file as a whole has nothing to do.
    async fn imported_keys(&self, thing: Thing) -> Result<Option<String>, String> {
        let (project, location, cluster) = ("demo".to_owned(), "us-central1-c".to_owned(), "c".to_owned());
        let name = ClusterName { project, location, cluster };
        let namespaces = kubernetes::object::gvk("", "v1", "Namespace", "namespaces");
        let kinds: Vec<_> =
            dask::api::needing_operator().chain([namespaces]).map(|kind| (kind, None)).collect();
        let api = self.harness.api(Some(name.clone()));
        let Ok(found) = survey::survey(&*api, Some(&name), &kinds, 64).await else {
            return Err("the cluster cannot be read".to_owned());
        };
        let survey::Survey { cluster, pools, sizes, objects, .. } = found;
        let (endpoint, unmanaged, unread) = (Endpoint::Auto, Vec::new(), Vec::new());
        let found =
            Found { place: Place::Gke(name), endpoint, cluster, pools, sizes, objects, unmanaged, unread };
        let owner = Owner { stack: "imported".to_owned(), id: "imported".to_owned() };
        let text = import::import(&found, &owner).text;
        let plan = self.harness.plan(&Stack::of(&text), Mode::Apply).await?;
        if !plan.is_empty() {
            return Err(format!("what `import` wrote is not empty: {}", laws::actions(&plan).join("; ")));
        }
        let file: toml::Table = toml::from_str(&text).unwrap();
        let sort = THINGS[thing.0].0.split('.').next().unwrap();
        let Some(section) = file.get(sort).and_then(|sections| sections.get(name_of(thing))) else {
            return Ok(None);
        };
        let mut section = section.as_table().unwrap().clone();
        section.remove("manage");
        // One line each: the keys of others follow.
        let lines = section.iter().map(|(key, value)| format!("{key} = {value}\n"));
        Ok(Some(lines.collect()))
    }

    /// Records the owners of a thing after a stack was applied. Returns true if the thing is deleted.
    fn update_holders(&mut self, stack: usize, thing: Thing, says: Declaration) -> bool {
        let (holders, shared) = (self.holders.get_mut(&thing).unwrap(), THINGS[thing.0].3);
        match says {
            Declaration::Mine => {
                if !shared {
                    holders.clear();
                }
                holders.insert(stack);
                false
            }
            Declaration::Theirs => {
                holders.remove(&stack);
                false
            }
            Declaration::Nothing => holders.remove(&stack) && holders.is_empty(),
        }
    }

    /// The files after a step; `None` when there is nothing to import.
    async fn expected_step(&self, step: Step) -> Result<Option<ExpectedStep>, String> {
        let mut files = self.files.clone();
        let mut said = |stack: usize, thing: usize, edit: &dyn Fn(&mut Section)| {
            edit(files[stack].entry(thing).or_default());
            (stack, Mode::Apply, None)
        };
        let (stack, mode, adopts) = match step {
            Step::Apply(stack, thing, says) => said(stack, thing, &|section| section.says = says),
            Step::Rename(stack, thing) => said(stack, thing, &|section| section.renamed = !section.renamed),
            Step::Another(stack, thing) => said(stack, thing, &|section| section.second = !section.second),
            Step::Adopt(stack, thing) => {
                said(stack, thing, &|section| section.says = Declaration::Mine);
                (stack, Mode::Apply, Some(thing))
            }
            Step::Import(stack, thing) => {
                let second = self.files[stack].get(&thing).is_some_and(|section| section.second);
                let Some(text) = self.imported_keys((thing, second)).await? else { return Ok(None) };
                said(stack, thing, &|section| {
                    *section = Section {
                        says: Declaration::Theirs,
                        second,
                        renamed: false,
                        imported: Some(text.clone()),
                    };
                })
            }
            Step::Destroy(stack) => (stack, Mode::Destroy, None),
        };
        Ok(Some(ExpectedStep { stack, mode, adopts, files }))
    }

    async fn step(&mut self, step: Step) -> Result<bool, String> {
        let before = Snapshot::read(&self.harness.sandbox);
        let Some(ExpectedStep { stack: number, mode, adopts, files }) = self.expected_step(step).await?
        else {
            return Ok(false);
        };
        let stack = stack(STACKS[number], &files[number]);
        let section = adopts.map(|thing| header(thing, &files[number][&thing]));
        let done = self.run(&stack, mode, section.as_deref()).await?;
        let after = Snapshot::read(&self.harness.sandbox);
        let mut goes = BTreeSet::new();
        if done {
            for (thing, second) in things() {
                let section = files[number].get(&thing).filter(|section| section.second == second);
                let says = section.map_or(Declaration::Nothing, |section| section.says);
                let says = if mode == Mode::Destroy && says == Declaration::Mine {
                    Declaration::Nothing
                } else {
                    says
                };
                let meant = |adopts: usize| adopts == thing && section.is_some();
                if adopts.is_none_or(meant) && self.update_holders(number, (thing, second), says) {
                    goes.insert((thing, second));
                }
            }
            self.files = files;
            if mode == Mode::Destroy {
                self.files[number].clear();
            }
        }
        for thing in things() {
            let (section, holders) = (name_of(thing), &self.holders[&thing]);
            let (was, is) = (Self::uid(&before, thing), Self::uid(&after, thing));
            let went = was.is_some() && was != is;
            if went != (goes.contains(&thing) && was.is_some()) {
                let verb = if went { "is gone" } else { "is still there" };
                return Err(format!("{section} {verb}; it is had by {holders:?}"));
            }
            let Some(live) = is.and_then(|uid| after.things.get(&uid).cloned()) else { continue };
            let marks: BTreeSet<String> =
                live.appliers.iter().filter(|name| name.starts_with("dask-infra/")).cloned().collect();
            let holders = holders.iter().map(|stack| format!("dask-infra/{}", STACKS[*stack])).collect();
            if live.kind != "pool" && marks != holders {
                return Err(format!("{section} has the marks {marks:?}, and is had by {holders:?}"));
            }
        }
        let seen = self.live().await;
        if done {
            self.seen[number].clone_from(&seen);
        }
        for (stack, name) in STACKS.iter().enumerate() {
            if self.files[stack].values().all(|section| section.says == Declaration::Nothing) {
                continue;
            }
            self.check_no_changes(stack, &seen).await.map_err(|why| format!("stack {name}: {why}"))?;
        }
        Ok(done)
    }

    /// A stack has nothing to do only when all that it wants is there by field, and it has something to do only with what another
    /// stack has touched since. The same holds for what it says of drift.
    async fn check_no_changes(&self, number: usize, now: &LiveThings) -> Result<(), String> {
        let (file, then) = (&self.files[number], &self.seen[number]);
        let stack = stack(STACKS[number], file);
        let touched: BTreeSet<Thing> = things().filter(|thing| then.get(thing) != now.get(thing)).collect();
        let thing_of = |identity: &Identity| {
            let (kind, name) = match identity {
                Identity::NodePool { pool, .. } => ("pool", pool.as_str()),
                Identity::Object(object) => (object.gvk.kind.as_str(), object.name.as_str()),
                Identity::Cluster(_) | Identity::Check(_) => return None,
            };
            things().find(|thing| THINGS[thing.0].1 == kind && name_of(*thing) == name)
        };
        let (plan, drift) = match self.harness.plan_and_drift(&stack).await {
            Err(why) if touched.is_empty() => return Err(format!("nobody touched what it has: {why}")),
            Err(_) => return Ok(()),
            Ok(told) => told,
        };
        let changes = plan.changes.iter().filter(|change| change.action != Action::Keep);
        for change in changes {
            if !thing_of(&change.identity).is_some_and(|thing| touched.contains(&thing)) {
                return Err(format!(
                    "nobody touched what its plan changes: {}",
                    laws::actions(&plan).join("; ")
                ));
            }
        }
        for drift in &drift.found {
            if !thing_of(&drift.identity).is_some_and(|thing| touched.contains(&thing)) {
                return Err(format!(
                    "nobody touched {}, and it has drifted: {:?}",
                    drift.address, drift.drift_kind
                ));
            }
        }
        for resource in stack.resources() {
            let Some(thing) = thing_of(&resource.identity) else { continue };
            let live = now.get(&thing);
            let lacks = live.map_or(Some("all of it".to_owned()), |(_, live)| {
                first_missing_field(&super::world::normal(&resource.body), live, "")
            });
            if let (true, Some(lacks)) = (plan.is_empty(), &lacks) {
                return Err(format!("its plan is empty, and {} lacks {lacks}", resource.address));
            }
            let (was, is) = (then.get(&thing).map(|(uid, _)| uid), live.map(|(uid, _)| uid));
            if drift.found.is_empty() && was != is {
                return Err(format!("there is no drift, and {} is another one", resource.address));
            }
            if plan.is_empty() && !self.holders[&thing].contains(&number) {
                return Err(format!("its plan is empty, and {} is not its own", resource.address));
            }
        }
        Ok(())
    }
}

/// Where a world has a thing.
fn path_of(kind: &str, name: &str) -> String {
    match kind {
        "pool" => format!("c/{name}"),
        "Namespace" => format!("namespaces /{name}"),
        _ => format!("daskclusters default/{name}"),
    }
}

/// The first field of what is wanted that is not live. What is off may be absent.
fn first_missing_field(wanted: &Value, live: &Value, at: &str) -> Option<String> {
    match (wanted, live) {
        (Value::Object(fields), _) => fields
            .iter()
            .find_map(|(key, wanted)| first_missing_field(wanted, &live[key], &format!("{at}.{key}"))),
        (Value::Array(wanted), Value::Array(live)) if wanted.len() == live.len() => {
            let mut pairs = wanted.iter().zip(live);
            pairs.find_map(|(wanted, live)| first_missing_field(wanted, live, &format!("{at}[]")))
        }
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::Null | Value::Bool(false), Value::Null) => None,
        (Value::Number(number), Value::Null) if number.as_u64() == Some(0) => None,
        (Value::String(text), Value::Null) if text.is_empty() => None,
        // Lists of a kind do not repeat it, and pools have the number of each zone.
        _ if [".apiVersion", ".kind", ".nodeCount"].contains(&at) => None,
        _ if wanted == live => None,
        _ => Some(format!("{at}: {wanted}, live {live}")),
    }
}

#[test]
fn what_changes_hands_goes_with_its_last_owner_and_with_nobody_else() {
    let tally = Tally::default();
    check("hands", 2, case().boxed(), |Case(steps)| {
        paused(async {
            let mut world = World::new().await;
            for (number, step) in steps.iter().enumerate() {
                let done = world.step(*step).await.map_err(|why| format!("at step {}: {why}", number + 1))?;
                let name = format!("{step:?}");
                let name = name.split('(').next().unwrap_or_default();
                tally.count(format!("{name}: {}", if done { "done" } else { "refused" }));
            }
            Ok(())
        })
    });
}

/// A stack makes, another one takes, and destroys; a stack makes and hands over, another one adopts, and leaves it out.
#[test]
fn both_ways_to_another_stack_end_with_the_things_gone() {
    let ways: [&[Step]; 3] = [
        &[Step::Apply(0, 0, Declaration::Mine), Step::Adopt(1, 0), Step::Destroy(1)],
        &[
            Step::Apply(0, 0, Declaration::Mine),
            Step::Apply(0, 2, Declaration::Mine),
            Step::Apply(0, 0, Declaration::Theirs),
            Step::Apply(0, 2, Declaration::Theirs),
            Step::Adopt(1, 0),
            Step::Apply(1, 0, Declaration::Nothing),
            Step::Destroy(0),
            Step::Adopt(1, 2),
            Step::Destroy(1),
        ],
        &[
            Step::Apply(0, 3, Declaration::Mine),
            Step::Apply(1, 3, Declaration::Mine),
            Step::Destroy(0),
            Step::Destroy(1),
        ],
    ];
    for steps in ways {
        paused(async {
            let mut world = World::new().await;
            for step in steps {
                assert_eq!(world.step(*step).await, Ok(true), "{}", Case(steps.to_vec()));
            }
            for (thing, holders) in &world.holders {
                assert!(holders.is_empty(), "{}", name_of(*thing));
                assert_eq!(
                    World::uid(&Snapshot::read(&world.harness.sandbox), *thing),
                    None,
                    "{}",
                    name_of(*thing)
                );
            }
        });
    }
}
