//! Commands that are killed at any write and typed again come to the same end as undisturbed, and so do two people who stop and
//! start at the same time.

use std::fmt;

use proptest::prelude::*;

use super::cases::check;
use super::laws::{self, Tally};
use super::player::{Player, paused};
use super::script::{Adopt, Command, Kill, Scale, Step};
use super::stacks::{self, Change, Spec};

/// A command.
#[derive(Clone, Debug)]
enum Typed {
    Stop,
    Start,
    /// The address of so many, counted round.
    Scale(usize, u32),
    Adopt(usize),
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
    let kill = (0..10usize, any::<bool>()).prop_map(|(write, after)| Kill { write, after });
    let typed = prop_oneof![
        2 => Just(Typed::Stop),
        2 => Just(Typed::Start),
        2 => (0..16usize, 0..4u32).prop_map(|(at, number)| Typed::Scale(at, number)),
        1 => (0..16usize).prop_map(Typed::Adopt),
        2 => stacks::change().prop_map(Typed::Apply),
    ];
    (stacks::spec(), prop::collection::vec((typed, kill), 2..5))
        .prop_map(|(spec, commands)| Case { spec, commands })
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
        Typed::Scale(at, number) => Step::Scale(Scale { address: address(at), number: *number, kill }),
        Typed::Adopt(at) => Step::Adopt(Adopt { section: address(at), kill }),
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

/// The things that the record names as stopped and as being started.
async fn noted(player: &Player) -> (Vec<String>, Vec<String>) {
    let Some(stack) = &player.stack else { return Default::default() };
    let world = player.bench.world_of(stack).await.unwrap();
    let Some(record) = world.record else { return Default::default() };
    let stopped = record.stopped.keys().map(ToString::to_string).collect();
    (stopped, record.starting.iter().map(ToString::to_string).collect())
}

#[test]
fn a_command_that_is_killed_and_typed_again_comes_to_the_same_end() {
    let tally = Tally::default();
    check("killed commands", 5, case().boxed(), |Case { spec, commands }| {
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
                let (Some(stack), Some(other)) = (&calm.stack, &killed.stack) else { return Ok(()) };
                calm.bench.wait(stack, 120).await;
                killed.bench.wait(other, 120).await;
                let (noted, noted_of_killed) = (noted(&calm).await, noted(&killed).await);
                if noted != noted_of_killed {
                    return Err(format!(
                        "{number}: {typed:?}: the record has {noted:?}, and after a kill {noted_of_killed:?}"
                    ));
                }
                let (one, two) = (calm.bench.world(stack).await, killed.bench.world(other).await);
                let keys = one.keys().chain(two.keys()).filter(|key| one.get(*key) != two.get(*key));
                let differ: Vec<String> =
                    keys.map(|key| format!("{key}: {:?} {:?}", one.get(key), two.get(key))).collect();
                if !differ.is_empty() {
                    return Err(format!(
                        "{number}: {typed:?}: undisturbed and after a kill: {}",
                        differ.join("\n")
                    ));
                }
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
            let (stopped, _) = noted(&player).await;
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
