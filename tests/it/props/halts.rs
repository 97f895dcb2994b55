//! Commands that are killed at any write and typed again come to the same end as undisturbed, and so do two people who type
//! commands at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dask_infra::record::Record;
use dask_infra::resource::Identity;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::bench::Stack;
use super::cases::check;
use super::laws::{self, Tally};
use super::player::{Player, paused};
use super::script::{Adopt, Command, Kill, Run, Scale, Step};
use super::stacks::{self, Change, Section, Slot, Spec};

/// A command.
#[derive(Clone, Debug)]
enum Typed {
    Stop,
    Start,
    /// The address of so many, counted round.
    Scale(usize, u32),
    Adopt(usize),
    /// A job or a check of so many, counted round.
    Run(usize),
    /// `apply` after an edit.
    Apply(Change),
}

#[derive(Clone, Debug)]
struct Case {
    spec: Spec,
    /// Commands, and the write at which each dies.
    commands: Vec<(Typed, Kill)>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{:#?}", self.spec.render().stack, self.commands)
    }
}

fn case() -> impl Strategy<Value = Case> {
    let commands = prop::collection::vec((typed(), kill()), 2..4);
    (spec(), proptest::bool::weighted(0.3), commands).prop_map(|(spec, stopped, mut commands)| {
        if stopped {
            commands[0].0 = Typed::Stop;
            commands[1].0 = Typed::Start;
        }
        Case { spec, commands }
    })
}

fn kill() -> impl Strategy<Value = Kill> {
    (0..10usize, any::<bool>()).prop_map(|(write, after)| Kill { write, after })
}

/// Mostly with something to run.
fn spec() -> impl Strategy<Value = Spec> {
    (stacks::spec(), proptest::bool::weighted(0.4), proptest::bool::weighted(0.15)).prop_map(
        |(mut spec, job, check)| {
            let mut put = |slot| {
                if !spec.sections.iter().any(|section| section.slot == slot) {
                    spec.sections.push(Section::of(slot));
                }
            };
            if job {
                put(Slot::Operator);
                put(Slot::Job);
            }
            if check {
                put(Slot::Pool(1));
                put(Slot::Check);
            }
            spec
        },
    )
}

fn typed() -> impl Strategy<Value = Typed> {
    prop_oneof![
        2 => Just(Typed::Stop),
        2 => Just(Typed::Start),
        2 => (0..16usize, 0..4u32).prop_map(|(at, number)| Typed::Scale(at, number)),
        1 => (0..16usize).prop_map(Typed::Adopt),
        2 => (0..2usize).prop_map(Typed::Run),
        2 => stacks::change().prop_map(Typed::Apply),
    ]
}

/// The step of a command that dies, or does not. An edit is made before it.
async fn step_of(
    player: &mut Player,
    spec: &mut Spec,
    typed: &Typed,
    kill: Option<Kill>,
    edits: bool,
) -> Step {
    let command = Command { kill, ..Command::default() };
    let address = |at: &usize| {
        let all = spec.addresses();
        all[at % all.len()].clone()
    };
    match typed {
        Typed::Stop => Step::Stop(command),
        Typed::Start => Step::Start(command),
        Typed::Scale(at, number) => {
            Step::Scale(Scale { address: address(at), number: *number, kill, within: None })
        }
        Typed::Adopt(at) => Step::Adopt(Adopt { section: address(at), kill }),
        Typed::Run(at) => {
            let ends = |address: &String| address.starts_with("dask_job.") || address.starts_with("check.");
            let all: Vec<String> = spec.addresses().into_iter().filter(ends).collect();
            let section = if all.is_empty() { "cluster".to_owned() } else { all[at % all.len()].clone() };
            Step::Run(Run { section, kill, within: None })
        }
        Typed::Apply(change) => {
            if edits {
                spec.edit(change);
                player.step(&Step::Edit(spec.render())).await;
            }
            Step::Apply(command)
        }
    }
}

async fn begun(spec: &Spec) -> Player {
    let mut player = Player::new();
    for request in stacks::platform(spec) {
        player.step(&Step::Others(request)).await;
    }
    player.step(&Step::Edit(spec.render())).await;
    player.step(&Step::Apply(Command::default())).await;
    player
}

/// The record without times and counts, and without what may have been made and was not.
async fn noted(player: &Player) -> Record {
    let Some(stack) = &player.stack else { return Record::default() };
    let mut world = player.bench.world_of(stack).await.unwrap();
    let Some(mut record) = world.record.take() else { return Record::default() };
    (record.revision, record.written) = Default::default();
    record.inventory.retain(|entry| {
        matches!(entry.identity, Identity::Check(_)) || world.find(&entry.identity).is_some()
    });
    record.inventory.iter_mut().for_each(|entry| entry.took = None);
    record.inventory.sort_by(|one, other| one.identity.cmp(&other.identity));
    record
}

/// All that is there, and what the record says of each thing.
async fn facts(player: &Player, stack: &Stack) -> BTreeMap<String, Value> {
    player.bench.wait(stack, 120).await;
    let mut facts = player.bench.world(stack).await;
    let mut record = noted(player).await;
    for entry in std::mem::take(&mut record.inventory) {
        facts.insert(format!("record of {}", entry.identity), json!(entry));
    }
    let Value::Object(rest) = json!(record) else { return facts };
    facts.extend(rest.into_iter().map(|(key, value)| (format!("record: {key}"), value)));
    facts
}

/// Says how two worlds of one stack and their records differ.
///
/// # Errors
/// They do.
pub async fn differ(calm: &Player, other: &Player) -> Result<(), String> {
    let (Some(stack), Some(same)) = (&calm.stack, &other.stack) else { return Ok(()) };
    let (one, two) = (facts(calm, stack).await, facts(other, same).await);
    let keys: BTreeSet<&String> = one.keys().chain(two.keys()).collect();
    let differ = keys.into_iter().filter(|key| one.get(*key) != two.get(*key));
    let differ: Vec<String> =
        differ.map(|key| format!("{key}: {:?} {:?}", one.get(key), two.get(key))).collect();
    if differ.is_empty() { Ok(()) } else { Err(differ.join("\n")) }
}

#[test]
fn a_command_that_is_killed_and_typed_again_comes_to_the_same_end() {
    let tally = Tally::default();
    check("killed commands", 4, case().boxed(), |Case { spec, commands }| {
        paused(async {
            let (mut calm, mut killed) = (begun(spec).await, begun(spec).await);
            let (mut spec, mut same) = (spec.clone(), spec.clone());
            for (number, (typed, kill)) in commands.iter().enumerate() {
                let step = step_of(&mut calm, &mut spec, typed, None, true).await;
                let done = calm.step(&step).await;
                tally.step(&step, &done);
                let dies = step_of(&mut killed, &mut same, typed, Some(*kill), true).await;
                let first = killed.step(&dies).await;
                tally.step(&dies, &first);
                if first.died {
                    let again = step_of(&mut killed, &mut same, typed, None, false).await;
                    let again = killed.step(&again).await;
                    // A death after the last write leaves nothing to do, and then nothing is stopped any more.
                    let idle = again.refused.as_deref().is_none_or(|why| why.contains("nothing"));
                    if !idle && done.refused.is_none() {
                        return Err(format!("{number}: {typed:?} again: {:?}", again.refused));
                    }
                }
                if !done.is_begun() && !first.is_begun() {
                    continue;
                }
                differ(&calm, &killed)
                    .await
                    .map_err(|why| format!("{number}: {typed:?}: undisturbed and after a kill: {why}"))?;
            }
            Ok(())
        })
    });
}

/// A second person acts between plan and lock.
#[test]
fn what_a_second_person_starts_or_stops_meanwhile_stays_so() {
    let tally = Tally::default();
    let cases = (stacks::spec(), stacks::change(), any::<bool>());
    let cases = cases.prop_map(|(spec, edit, starts)| Second { spec, edit, starts });
    check("second person", 4, cases.boxed(), |Second { spec, edit, starts }| {
        paused(async {
            let mut player = begun(spec).await;
            let plain = Command::default;
            if *starts {
                player.step(&Step::Stop(plain())).await;
            }
            let mut spec = spec.clone();
            spec.edit(edit);
            player.step(&Step::Edit(spec.render())).await;
            let second = if *starts { Step::Start(plain()) } else { Step::Stop(plain()) };
            let first = Step::Apply(Command { during: vec![second], process: 1, ..plain() });
            let done = player.step(&first).await;
            tally.step(&first, &done);
            let Some(second) = done.others.first().map(|(plan, _)| plan) else { return Ok(()) };
            laws::honest(&player, &first, &done)?;
            let stopped = noted(&player).await.stopped;
            let wanted = second.halts.stopped.len();
            if *starts && !stopped.is_empty() || !*starts && stopped.is_empty() && wanted > 0 {
                return Err(format!("the second person wanted {wanted} stopped, the record has {stopped:?}"));
            }
            let first = done.plan.as_ref().filter(|_| done.is_begun());
            let takes = |field: &dask_infra::resource::FieldChange| {
                field.path.to_string() == "nodeCount" && field.after == Some(serde_json::json!(0))
            };
            let empties = first
                .into_iter()
                .flat_map(|plan| &plan.changes)
                .filter(|change| change.fields.iter().any(takes));
            let empties: Vec<&str> = empties.map(|change| change.address.as_str()).collect();
            match *starts && !empties.is_empty() {
                true => Err(format!("it takes the nodes of what was started: {empties:?}")),
                false => Ok(()),
            }
        })
    });
}

#[derive(Clone, Debug)]
struct Second {
    spec: Spec,
    edit: Change,
    starts: bool,
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nedit: {:?}\nstarts: {}", self.spec.render().stack, self.edit, self.starts)
    }
}
