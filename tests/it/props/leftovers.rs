//! Commands in any order, with accidents: what carries our mark is always found by the next plan, and a destroy at the
//! end leaves nothing of ours and takes nothing of others'.

use proptest::prelude::*;

use super::cases::check;
use super::laws::{self, Tally};
use super::player::{Player, paused};
use super::script::{Adopt, Command, Kill, Scale, Script, Step, Wait};
use super::snapshot::Snapshot;
use super::stacks::{self, Change, ExternalChange, Section, Slot, Spec};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    Edit(Change),
    Apply,
    Target(usize),
    Exclude(usize),
    /// Dies at a write.
    Killed(usize, bool),
    /// While it plans, another process applies what the file will be after an edit.
    Overtaken(Change),
    /// At the same time another process applies what the file was before an edit.
    Beside(Change),
    Scale(usize, u32),
    Adopt(usize),
    Destroy,
    DestroyKilled(usize, bool),
    Others(ExternalChange),
    Wait,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => stacks::change().prop_map(Event::Edit),
        5 => Just(Event::Apply),
        1 => (0..16usize).prop_map(Event::Target),
        1 => (0..16usize).prop_map(Event::Exclude),
        3 => (0..24usize, any::<bool>()).prop_map(|(write, after)| Event::Killed(write, after)),
        1 => stacks::change().prop_map(Event::Overtaken),
        2 => stacks::change().prop_map(Event::Beside),
        1 => (0..4usize, 1..3u32).prop_map(|(which, number)| Event::Scale(which, number)),
        1 => (0..8usize).prop_map(Event::Adopt),
        1 => Just(Event::Destroy),
        1 => (0..12usize, any::<bool>()).prop_map(|(write, after)| Event::DestroyKilled(write, after)),
        2 => stacks::external_change().prop_map(Event::Others),
        2 => stacks::foreign_damage().prop_map(Event::Others),
        1 => Just(Event::Wait),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    (stacks::spec(), prop::collection::vec(event(), 2..9)).prop_map(|(spec, events)| render(spec, &events))
}

fn render(mut spec: Spec, events: &[Event]) -> Script {
    let mut steps: Vec<Step> = stacks::platform(&spec).into_iter().map(Step::Others).collect();
    steps.push(Step::Edit(spec.render()));
    steps.push(Step::Apply(Command::default()));
    let pick = |spec: &Spec, at: usize| {
        let addresses = spec.addresses();
        vec![addresses[at % addresses.len()].clone()]
    };
    for event in events {
        let plain = Command::default();
        match event {
            Event::Edit(change) => {
                spec.edit(change);
                steps.push(Step::Edit(spec.render()));
            }
            Event::Apply => steps.push(Step::Apply(plain)),
            Event::Target(at) => steps.push(Step::Apply(Command { target: pick(&spec, *at), ..plain })),
            Event::Exclude(at) => steps.push(Step::Apply(Command { exclude: pick(&spec, *at), ..plain })),
            Event::Killed(write, after) => {
                let kill = Some(Kill { write: *write, after: *after });
                steps.push(Step::Apply(Command { kill, process: 1, ..plain }));
            }
            Event::Overtaken(change) => {
                let meanwhile = Some(spec.render());
                spec.edit(change);
                steps.push(Step::Edit(spec.render()));
                steps.push(Step::Apply(Command { meanwhile, ..plain }));
            }
            Event::Beside(change) => {
                let beside = Some(spec.render());
                spec.edit(change);
                steps.push(Step::Edit(spec.render()));
                steps.push(Step::Apply(Command { beside, ..plain }));
            }
            Event::Scale(which, number) => {
                let counted = [
                    "node_pool.system",
                    "node_pool.extra",
                    "dask_cluster.rapids",
                    "dask_cluster.rapids.group.big",
                ];
                steps.push(Step::Scale(Scale {
                    address: counted[*which].to_owned(),
                    number: *number,
                    kill: None,
                    within: None,
                }));
            }
            Event::Adopt(at) => {
                let section = pick(&spec, *at).concat();
                steps.push(Step::Adopt(Adopt { section, kill: None }));
            }
            Event::Destroy => steps.push(Step::Destroy(plain)),
            Event::DestroyKilled(write, after) => {
                let kill = Some(Kill { write: *write, after: *after });
                steps.push(Step::Destroy(Command { kill, process: 1, ..plain }));
            }
            Event::Others(deed) => steps.extend(deed.requests(&spec).into_iter().map(Step::Others)),
            Event::Wait => steps.push(Step::Wait(Wait { seconds: 30 })),
        }
    }
    Script { steps, ..Script::default() }
}

/// Others clear who wrote which field of Dask clusters of ours. `destroy` deletes them all the same, with approval for each.
#[test]
fn what_others_unmark_goes_with_a_destroy() {
    let tally = Tally::default();
    let spec = (stacks::spec(), 0..2usize).prop_map(|(mut spec, namespace)| {
        let wanted = [Slot::Operator, Slot::Dask(0), Slot::Dask(1)];
        spec.sections.retain(|section| !wanted.contains(&section.slot));
        let dask = |slot| Section { namespace, ..Section::of(slot) };
        spec.sections.extend(wanted.map(dask));
        let steps = [Step::Edit(spec.render()), Step::Apply(Command::default())];
        let platform = stacks::platform(&spec).into_iter().map(Step::Others);
        Script { steps: platform.chain(steps).collect(), ..Script::default() }
    });
    let cases = (spec, 0..2usize, 0..2usize, proptest::bool::weighted(0.3));
    let cases = cases.prop_map(|(script, which, namespace, edited)| {
        let mut script = script;
        script.steps.push(Step::Others(stacks::unmark(which, namespace)));
        if edited {
            script.steps.push(Step::Apply(Command::default()));
            script.steps.push(Step::Others(stacks::unmark(which, namespace)));
        }
        script
    });
    check("unmarked", 4, cases.boxed(), |script| {
        paused(async {
            let mut player = Player::new();
            for step in &script.steps {
                let done = player.step(step).await;
                tally.step(step, &done);
            }
            let ours = |snapshot: &Snapshot| {
                let daskclusters = snapshot.things.values().filter(|thing| thing.kind == "DaskCluster");
                daskclusters.map(ToString::to_string).collect::<Vec<_>>()
            };
            let before = ours(&Snapshot::read(&player.harness.sandbox));
            player.stack = Some(player.unprotected());
            let step = Step::Destroy(Command::default());
            let done = player.step(&step).await;
            let left = ours(&done.after);
            match done.is_whole() && left.is_empty() {
                true => Ok(()),
                false => Err(format!("of {before:?} are left {left:?}: {:?}", done.refused)),
            }
        })
    });
}

#[test]
fn what_carries_our_mark_is_found_and_a_destroy_leaves_nothing() {
    let tally = Tally::default();
    check("nothing forgotten", 6, script().boxed(), |script| {
        paused(async {
            let mut player = Player::new();
            for (number, step) in script.steps.iter().enumerate() {
                let done = player.step(step).await;
                tally.step(step, &done);
                let judged = laws::all(&mut player, step, &done).await;
                judged.map_err(|why| format!("at step {}: {why}", number + 1))?;
            }
            laws::nothing_left(&mut player).await
        })
    });
}
