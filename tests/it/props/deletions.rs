//! Stacks, edits of them, flags and things of others: whatever vanishes was named, whatever is protected stays, a second
//! plan is empty, a thing has one identity, and nothing is forgotten.

use proptest::prelude::*;

use super::cases::{check, count};
use super::laws::{self, Tally};
use super::player::play;
use super::script::{Approvals, Command, Script, Step};
use super::stacks::{self, Change, ExternalChange, Section, Slot, Spec, Tweak};

const CASES: u32 = 12;

/// Flags of an apply.
#[derive(Clone, Debug)]
struct Flags {
    target: Option<usize>,
    exclude: Option<usize>,
    replace: Option<usize>,
    approval: Approvals,
}

fn flags() -> impl Strategy<Value = Flags> {
    let one_of = || proptest::option::weighted(0.15, 0..16usize);
    let approval =
        prop_oneof![4 => Just(Approvals::All), 2 => Just(Approvals::Ours), 1 => Just(Approvals::Nothing)];
    (one_of(), one_of(), one_of(), approval).prop_map(|(target, exclude, replace, approval)| Flags {
        target,
        exclude,
        replace,
        approval,
    })
}

impl Flags {
    fn command(&self, spec: &Spec) -> Command {
        let addresses = spec.addresses();
        let pick =
            |at: Option<usize>| at.map(|at| addresses[at % addresses.len()].clone()).into_iter().collect();
        Command {
            target: pick(self.target),
            exclude: pick(self.exclude),
            replace: pick(self.replace),
            approval: self.approval,
            ..Command::default()
        }
    }
}

/// A stack is applied, others make things, the stack is edited, and applied with flags, or destroyed.
fn script() -> impl Strategy<Value = Script> {
    let round = (prop::collection::vec(stacks::change(), 1..4), flags(), proptest::bool::weighted(0.2));
    (
        stacks::spec(),
        prop::collection::vec(stacks::external_change(), 0..4),
        prop::collection::vec(round, 1..3),
    )
        .prop_map(|(spec, deeds, rounds)| render(spec, &deeds, &rounds))
}

fn render(mut spec: Spec, deeds: &[ExternalChange], rounds: &[(Vec<Change>, Flags, bool)]) -> Script {
    let mut steps: Vec<Step> = stacks::platform(&spec).into_iter().map(Step::Others).collect();
    steps.push(Step::Edit(spec.render()));
    steps.push(Step::Apply(Command::default()));
    steps.extend(deeds.iter().flat_map(|deed| deed.requests(&spec)).map(Step::Others));
    for (changes, flags, destroy) in rounds {
        changes.iter().for_each(|change| spec.edit(change));
        steps.push(Step::Edit(spec.render()));
        let command = flags.command(&spec);
        steps.push(if *destroy { Step::Destroy(command) } else { Step::Apply(command) });
    }
    Script { steps, ..Script::default() }
}

/// A section is handed over in a cluster of others, and leaves the file later.
fn handover_script() -> impl Strategy<Value = Script> {
    let slots =
        [Slot::Pool(2), Slot::Namespace(1), Slot::Namespace(2), Slot::Dask(0), Slot::Dask(1)].to_vec();
    let edits = prop::collection::vec(stacks::change(), 0..3);
    (stacks::spec(), prop::sample::select(slots), edits, any::<bool>()).prop_map(
        |(mut spec, slot, edits, applies)| {
            (spec.own_cluster, spec.autopilot) = (false, false);
            spec.sections
                .iter_mut()
                .for_each(|section| (section.protect, section.extra_protect) = (false, false));
            for slot in [Slot::Operator, slot] {
                if !spec.sections.iter().any(|section| section.slot == slot) {
                    spec.sections.push(Section::of(slot));
                }
            }
            let mut steps: Vec<Step> = stacks::platform(&spec).into_iter().map(Step::Others).collect();
            steps.extend([Step::Edit(spec.render()), Step::Apply(Command::default())]);
            spec.edit(&Change::Tweak(slot, Tweak::Manage));
            steps.extend([Step::Edit(spec.render()), Step::Apply(Command::default())]);
            spec.edit(&Change::Remove(slot));
            edits.iter().for_each(|change| spec.edit(change));
            steps.push(Step::Edit(spec.render()));
            steps.extend(applies.then(|| Step::Apply(Command::default())));
            steps.push(Step::Destroy(Command::default()));
            Script { steps, ..Script::default() }
        },
    )
}

#[test]
fn what_was_handed_over_stays_when_its_section_has_left() {
    let tally = Tally::default();
    check("handed over", 4, handover_script().boxed(), |script| {
        play(script, async |player, step, done| {
            tally.step(step, done);
            if matches!(step, Step::Destroy(_)) && done.is_begun() && !player.handed_over.is_empty() {
                tally.count(BESIDE_HANDED_OVER);
            }
            laws::all(player, step, done).await
        })
    });
    tally.demand(4, &[BESIDE_HANDED_OVER]);
}

const BESIDE_HANDED_OVER: &str = "destroyed beside what was handed over";

#[test]
fn what_vanishes_was_named_and_what_is_protected_stays() {
    let tally = Tally::default();
    check("honesty", CASES, script().boxed(), |script| {
        play(script, async |player, step, done| {
            tally.step(step, done);
            laws::all(player, step, done).await
        })
    });
    let calls = tally.of("calls made as planned");
    let whole = count(CASES) >= CASES && std::env::var_os("DASK_INFRA_NUMBER").is_none();
    assert!(!whole || calls > 100, "{calls} calls are too few to say anything");
}
