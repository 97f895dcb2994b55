//! `stop` and `start`: killed at any write and typed again they come to the same end as undisturbed, and so do two people who
//! stop and start at the same time.

use std::fmt;

use proptest::prelude::*;

use super::cases::check;
use super::laws::{self, Tally};
use super::player::{Player, paused};
use super::script::{Command, Kill, Step};
use super::stacks::{self, Change, Spec};

#[derive(Clone, Debug)]
struct Case {
    spec: Spec,
    /// The write at which `stop` dies, and whether that is done.
    stop: Kill,
    start: Kill,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nstop: {:?}\nstart: {:?}", self.spec.render().stack, self.stop, self.start)
    }
}

fn case() -> impl Strategy<Value = Case> {
    let kill = || (0..10usize, any::<bool>()).prop_map(|(write, after)| Kill { write, after });
    (stacks::spec(), kill(), kill()).prop_map(|(spec, stop, start)| Case { spec, stop, start })
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
    check("killed stop and start", 6, case().boxed(), |case| {
        paused(async {
            let mut player = begun(&case.spec).await;
            if player.stack.is_none() {
                return Ok(());
            }
            let plain = Command::default;
            let mut ends = Vec::new();
            // Undisturbed first, then killed: both begin with all of it there.
            for (stop, start) in [(None, None), (Some(case.stop), Some(case.start))] {
                for (kill, step) in
                    [(stop, Step::Stop as fn(Command) -> Step), (start, Step::Start as fn(Command) -> Step)]
                {
                    if kill.is_some() {
                        let killed = step(Command { kill, ..plain() });
                        let done = player.step(&killed).await;
                        tally.step(&killed, &done);
                        if done.refused.is_some() {
                            return Ok(());
                        }
                    }
                    let again = step(plain());
                    let done = player.step(&again).await;
                    tally.step(&again, &done);
                    // A kill after the last write leaves nothing to do.
                    let idle = done.refused.as_deref().is_none_or(|why| why.contains("nothing is stopped"));
                    if kill.is_some() && !idle {
                        return Err(format!("again: {:?}", done.refused));
                    }
                    let Some(stack) = &player.stack else { return Ok(()) };
                    player.bench.wait(stack, 120).await;
                    ends.push((player.bench.world(stack).await, noted(&player).await));
                }
            }
            for (what, place) in [("stop", 0), ("start", 1)] {
                let ((world, record), (killed, record_of_killed)) = (&ends[place], &ends[place + 2]);
                if record != record_of_killed {
                    return Err(format!(
                        "{what}: the record has {record:?}, and after a kill {record_of_killed:?}"
                    ));
                }
                let keys =
                    world.keys().chain(killed.keys()).filter(|key| world.get(*key) != killed.get(*key));
                let differ: Vec<String> =
                    keys.map(|key| format!("{key}: {:?} {:?}", world.get(key), killed.get(key))).collect();
                if !differ.is_empty() {
                    return Err(format!("{what}: undisturbed and after a kill: {}", differ.join("\n")));
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
    check("second person", 6, cases.boxed(), |Second { spec, edit, starts }| {
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
