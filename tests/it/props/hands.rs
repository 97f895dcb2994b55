//! Several stacks in one cluster that hand over, take, share, leave out and destroy: by uid, what only one stack can have goes
//! with its last owner and with nobody else, and what stacks share goes with the last that uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dask_infra::address::Address;
use dask_infra::apply::Outcome;
use dask_infra::plan::adopt::{self, Agreed};
use dask_infra::plan::{Mode, Selection};
use proptest::prelude::*;

use super::bench::{Bench, Flags, Going, Process, Stack};
use super::cases::check;
use super::laws::{self, Tally};
use super::oracle::{Look, Uid};
use super::player::paused;

const STACKS: [&str; 3] = ["a", "b", "c"];
/// What may change hands: sections, their kinds, and whether stacks share them.
const THINGS: [(&str, &str, &str, bool); 4] = [
    ("dask_cluster.d", "DaskCluster", "image = \"rapids:1\"\nworker = { replicas = 0 }\n", false),
    ("dask_cluster.e", "DaskCluster", "image = \"rapids:1\"\nworker = { replicas = 0 }\n", false),
    ("node_pool.p", "pool", "machine_type = \"e2-standard-4\"\nnodes = 1\n", false),
    ("namespace.n", "Namespace", "", true),
];

/// What a stack's file says of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Nothing,
    Mine,
    Theirs,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The file of a stack says something else of a thing, and is applied.
    Apply(usize, usize, Says),
    Adopt(usize, usize),
    Destroy(usize),
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
            }
        }
        Ok(())
    }
}

fn case() -> impl Strategy<Value = Case> {
    let says = prop_oneof![3 => Just(Says::Mine), 2 => Just(Says::Theirs), 2 => Just(Says::Nothing)];
    let step = prop_oneof![
        6 => (0..STACKS.len(), 0..THINGS.len(), says).prop_map(|(stack, thing, says)| Step::Apply(stack, thing, says)),
        2 => (0..STACKS.len(), 0..THINGS.len()).prop_map(|(stack, thing)| Step::Adopt(stack, thing)),
        1 => (0..STACKS.len()).prop_map(Step::Destroy),
    ];
    prop::collection::vec(step, 4..10).prop_map(Case)
}

const GKE: &str = "[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n";

fn home() -> Stack {
    Stack::of(&format!(
        "[stack]\nname = \"home\"\n\n{GKE}[cluster]\nname = \"c\"\n\n[node_pool.cpu]\nmachine_type = \"e2-standard-4\"\n\n\
         [dask_operator]\nversion = \"2026.3.0\"\n"
    ))
}

type File = BTreeMap<usize, Says>;

fn stack(name: &str, file: &File) -> Stack {
    let mut text = format!(
        "[stack]\nname = \"{name}\"\n\n{GKE}[cluster]\nname = \"c\"\nmanage = false\n\n[dask_operator]\nmanage = false\n"
    );
    for (thing, says) in file {
        let (section, _, body, _) = THINGS[*thing];
        text += &match says {
            Says::Nothing => continue,
            Says::Mine => format!("\n[{section}]\n{body}"),
            Says::Theirs => format!("\n[{section}]\nmanage = false\n{body}"),
        };
    }
    Stack::of(&text)
}

/// A cluster with an operator, three stacks, and who has what.
struct World {
    bench: Bench,
    files: [File; 3],
    holders: [BTreeSet<usize>; 4],
}

impl World {
    async fn new() -> Self {
        let (bench, home) = (Bench { strict: true, ..Bench::empty() }, home());
        let plan = bench.plan(&home, Mode::Apply).await.unwrap();
        let going = Going { process: Process::Number(1), stack: &home, plan, moment: None };
        let ended = bench.apply_one(going, Vec::new()).await;
        assert!(ended.summary.is_some(), "{:?}", ended.refused);
        Self { bench, files: Default::default(), holders: Default::default() }
    }

    fn uid(look: &Look, thing: usize) -> Option<Uid> {
        let (section, kind, ..) = THINGS[thing];
        let name = section.rsplit('.').next().unwrap();
        let mut found = look.things.iter().filter(|(_, thing)| thing.kind == kind && thing.name == name);
        found.next().map(|(uid, _)| uid.clone())
    }

    /// Plans and applies with every consent; `Ok(false)` when it is refused.
    async fn run(&self, stack: &Stack, mode: Mode, section: Option<&str>) -> Result<bool, String> {
        let targets = section.map(str::to_owned).into_iter().collect();
        let flags = Flags { selection: Selection { targets, excludes: Vec::new() }, ..Flags::default() };
        let Ok(mut plan) = self.bench.plan_with(stack, mode, &flags).await else { return Ok(false) };
        plan.allowed = plan.missing_consents(&[]);
        if let Some(section) = section {
            let world = self.bench.world_of(stack).await?;
            let agreed = Agreed { changes: true, consents: &plan.allowed };
            if !adopt::against(&plan, &Address::new(section), &world, agreed, stack.sources()).is_empty() {
                return Ok(false);
            }
            adopt::without_waits(&mut plan);
        }
        if plan.has_nothing_to_do() {
            return Ok(true);
        }
        let going = Going { process: Process::Number(7), stack, plan: plan.clone(), moment: None };
        let ended = self.bench.apply_one(going, Vec::new()).await;
        let Some(summary) = ended.summary else { return Err(format!("refused: {:?}", ended.refused)) };
        let bad = summary.outcomes.iter().find(|(_, outcome, _)| *outcome != Outcome::Done);
        if let Some((place, outcome, _)) = bad {
            return Err(format!("{}: {outcome:?}", plan.changes[*place].address));
        }
        let again = self.bench.plan_with(stack, mode, &flags).await;
        match again {
            Ok(plan) if plan.is_empty() => Ok(true),
            Ok(plan) => Err(format!("the second plan is not empty: {}", laws::actions(&plan).join("; "))),
            Err(_) if mode == Mode::Destroy || section.is_some() => Ok(true),
            Err(why) => Err(format!("there is no second plan: {why}")),
        }
    }

    /// Who has a thing after a stack was applied, and whether it goes.
    fn settle(&mut self, stack: usize, thing: usize, says: Says) -> bool {
        let (holders, shared) = (&mut self.holders[thing], THINGS[thing].3);
        match says {
            Says::Mine => {
                if !shared {
                    holders.clear();
                }
                holders.insert(stack);
                false
            }
            Says::Theirs => {
                holders.remove(&stack);
                false
            }
            Says::Nothing => holders.remove(&stack) && holders.is_empty(),
        }
    }

    async fn step(&mut self, step: Step) -> Result<bool, String> {
        let before = Look::at(&self.bench.sandbox);
        let mut files = self.files.clone();
        let (number, mode, section) = match step {
            Step::Apply(number, thing, says) => {
                files[number].insert(thing, says);
                (number, Mode::Apply, None)
            }
            Step::Adopt(number, thing) => {
                files[number].insert(thing, Says::Mine);
                (number, Mode::Apply, Some(thing))
            }
            Step::Destroy(number) => (number, Mode::Destroy, None),
        };
        let stack = stack(STACKS[number], &files[number]);
        let done = self.run(&stack, mode, section.map(|thing| THINGS[thing].0)).await?;
        let after = Look::at(&self.bench.sandbox);
        let mut goes = BTreeSet::new();
        if done {
            for thing in 0..THINGS.len() {
                let says = files[number].get(&thing).copied().unwrap_or(Says::Nothing);
                let says = if mode == Mode::Destroy && says == Says::Mine { Says::Nothing } else { says };
                let touched = section.is_none_or(|section| section == thing);
                if touched && self.settle(number, thing, says) {
                    goes.insert(thing);
                }
            }
            self.files = files;
            if mode == Mode::Destroy {
                self.files[number].clear();
            }
        }
        for (thing, (section, ..)) in THINGS.iter().enumerate() {
            let (was, is) = (Self::uid(&before, thing), Self::uid(&after, thing));
            let went = was.is_some() && was != is;
            if went != (goes.contains(&thing) && was.is_some()) {
                let verb = if went { "is gone" } else { "is still there" };
                return Err(format!("{section} {verb}; it is had by {:?}", self.holders[thing]));
            }
            let Some(live) = is.and_then(|uid| after.things.get(&uid).cloned()) else { continue };
            let marks: BTreeSet<String> =
                live.appliers.iter().filter(|name| name.starts_with("dask-infra/")).cloned().collect();
            let holders =
                self.holders[thing].iter().map(|stack| format!("dask-infra/{}", STACKS[*stack])).collect();
            if live.kind != "pool" && marks != holders {
                return Err(format!("{section} has the marks {marks:?}, and is had by {holders:?}"));
            }
        }
        Ok(done)
    }
}

#[test]
fn what_changes_hands_goes_with_its_last_owner_and_with_nobody_else() {
    let tally = Tally::default();
    check("hands", 3, case().boxed(), |Case(steps)| {
        paused(async {
            let mut world = World::new().await;
            for (number, step) in steps.iter().enumerate() {
                let done = world.step(*step).await.map_err(|why| format!("at step {}: {why}", number + 1))?;
                tally.count(if done { "done" } else { "refused" });
            }
            Ok(())
        })
    });
}

/// A stack makes, another one takes, and destroys; a stack makes and hands over, another one adopts, and leaves it out.
#[test]
fn both_ways_to_another_stack_end_with_the_things_gone() {
    let ways: [&[Step]; 3] = [
        &[Step::Apply(0, 0, Says::Mine), Step::Adopt(1, 0), Step::Destroy(1)],
        &[
            Step::Apply(0, 0, Says::Mine),
            Step::Apply(0, 2, Says::Mine),
            Step::Apply(0, 0, Says::Theirs),
            Step::Apply(0, 2, Says::Theirs),
            Step::Adopt(1, 0),
            Step::Apply(1, 0, Says::Nothing),
            Step::Destroy(0),
            Step::Adopt(1, 2),
            Step::Destroy(1),
        ],
        &[Step::Apply(0, 3, Says::Mine), Step::Apply(1, 3, Says::Mine), Step::Destroy(0), Step::Destroy(1)],
    ];
    for steps in ways {
        paused(async {
            let mut world = World::new().await;
            for step in steps {
                assert_eq!(world.step(*step).await, Ok(true), "{}", Case(steps.to_vec()));
            }
            for (thing, holders) in world.holders.iter().enumerate() {
                assert!(holders.is_empty(), "{}", THINGS[thing].0);
                assert_eq!(World::uid(&Look::at(&world.bench.sandbox), thing), None, "{}", THINGS[thing].0);
            }
        });
    }
}
