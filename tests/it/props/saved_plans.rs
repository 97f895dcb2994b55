//! *Stale if and only if*: a saved plan still holds exactly when a fresh plan with the same flags is the same; and when it
//! holds, a server that nobody disturbs takes all of its calls.

use std::fmt;

use apply::Outcome;
use plan::{Mode, Plan, Selection, file};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::cases::check;
use super::harness::Flags;
use super::laws::Tally;
use super::player::{Player, paused};
use super::script::Step;
use super::stacks::{self, Change, ExternalChange, Spec};

#[derive(Clone, Debug)]
struct Case {
    spec: Spec,
    edits: Vec<Change>,
    targets: Option<usize>,
    replaces: Option<usize>,
    destroys: bool,
    moves: Vec<ExternalChange>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, edits, targets, replaces, destroys, moves } = self;
        write!(f, "{}\nedits: {edits:?}\ntarget: {targets:?}\nreplace: {replaces:?}\n", spec.render().stack)?;
        write!(f, "destroy: {destroys}\nbetween plan and apply: {moves:?}")
    }
}

fn case() -> impl Strategy<Value = Case> {
    let moves = prop_oneof![stacks::external_change(), stacks::foreign_damage()];
    (
        stacks::spec(),
        prop::collection::vec(stacks::change(), 0..4),
        prop::option::weighted(0.2, 0..16usize),
        prop::option::weighted(0.2, 0..16usize),
        prop::bool::weighted(0.2),
        prop::collection::vec(moves, 0..3),
    )
        .prop_map(|(spec, edits, targets, replaces, destroys, moves)| Case {
            spec,
            edits,
            targets,
            replaces,
            destroys,
            moves,
        })
}

/// Returns the changes that are shown and sent as JSON, without values that change by themselves. Written apart from
/// the program.
fn essence(plan: &Plan) -> Vec<Value> {
    let changes = plan.changes.iter().map(|change| {
        let mut value = json!(change);
        for gone in ["location", "follows", "before"] {
            value.as_object_mut().unwrap().remove(gone);
        }
        for field in value["fields"].as_array_mut().into_iter().flatten() {
            if let Some(time) = field.pointer_mut("/drift/1") {
                *time = Value::Null;
            }
        }
        if value["action"] == "keep" {
            value["steps"].as_array_mut().unwrap().retain(|step| step.get("await").is_none());
        }
        for step in value["steps"].as_array_mut().into_iter().flatten() {
            let version = step.pointer_mut("/call/body/metadata/resourceVersion");
            if let Some(version) = version.filter(|version| **version != "1") {
                *version = Value::Null;
            }
        }
        value
    });
    changes.chain(plan.reads.iter().map(|read| json!(read))).collect()
}

#[test]
fn a_saved_plan_is_stale_if_and_only_if_a_fresh_one_differs() {
    let tally = Tally::default();
    check("stale if and only if", 10, case().boxed(), |case| {
        paused(async {
            let Case { mut spec, edits, targets, replaces, destroys, moves } = case.clone();
            let mut player = Player::new();
            for request in stacks::platform(&spec) {
                player.step(&Step::Others(request)).await;
            }
            player.step(&Step::Edit(spec.render())).await;
            player.step(&Step::Apply(Default::default())).await;
            edits.iter().for_each(|edit| spec.edit(edit));
            player.step(&Step::Edit(spec.render())).await;
            let pick = |at: Option<usize>| {
                let all = spec.addresses();
                at.map(|at| all[at % all.len()].clone()).into_iter().collect::<Vec<_>>()
            };
            let flags = Flags {
                selection: Selection { targets: pick(targets), excludes: Vec::new() },
                replace: pick(replaces),
                ..Flags::default()
            };
            let mode = if destroys { Mode::Destroy } else { Mode::Apply };
            let Some(stack) = player.stack.take() else { return Ok(()) };
            let Ok(saved) = player.harness.plan_with(&stack, mode, &flags).await else {
                tally.count("not planned");
                return Ok(());
            };
            player.stack = Some(stack);
            for deed in moves {
                for request in deed.requests(&spec) {
                    player.step(&Step::Others(request)).await;
                }
            }
            let stack = player.stack.take().unwrap();
            let fresh = player.harness.plan_with(&stack, mode, &flags).await;
            let again = player.harness.plan_again(&stack, &saved).await;
            let (fresh, again) = match (fresh, again) {
                (Ok(fresh), Ok(again)) => (fresh, again),
                (Err(_), Err(_)) => {
                    tally.count("refused now");
                    return Ok(());
                }
                (fresh, again) => {
                    return Err(format!("only one is refused: {:?} {:?}", fresh.err(), again.err()));
                }
            };
            let moved = file::stale_changes(&saved, &again);
            let same = essence(&saved) == essence(&fresh);
            tally.count(if same { "holds" } else { "stale" });
            if same != moved.is_empty() {
                return Err(format!("the same: {same}; what moved: {moved:?}"));
            }
            if !same || again.is_empty() {
                return Ok(());
            }
            let ended = player.harness.apply(&stack, &again, Vec::new(), None).await;
            let summary = ended.summary.ok_or("it died")?;
            let refused = summary.outcomes.iter().find_map(|(place, outcome, _)| match outcome {
                Outcome::Failed { message, .. } if message.contains(" answered 409") => {
                    Some(format!("{}: {message}", again.changes[*place].address))
                }
                _ => None,
            });
            refused.map_or(Ok(()), Err)
        })
    });
}
