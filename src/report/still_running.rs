//! The part of a stack that an apply leaves running when it did not do everything, and its cost.

use apply::{Outcome, Summary};
use model::address::Address;
use model::prices::Sum;
use plan::{Action, Change, Plan, SectionCost};

/// Clusters and node pools that are there after an apply, or may be.
#[derive(Debug, PartialEq)]
pub struct StillRunning<'p> {
    pub sections: Vec<&'p Address>,
    /// The most that they cost.
    pub sum: Sum,
    /// False if nobody knows that all of them are there.
    pub is_certain: bool,
}

impl<'p> StillRunning<'p> {
    /// Returns what an apply leaves. `None` where Google bills nothing, or where the apply did all that it planned.
    pub fn after(plan: &'p Plan, summary: &Summary) -> Option<Self> {
        if summary.outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done) {
            return None;
        }
        let sections = plan.bill()?.sections.iter();
        let all =
            sections.map(|(address, cost)| Left::of(address, cost, &outcomes_of(address, plan, summary)));
        let left: Vec<Left<'p>> = all.filter(|left| !left.sum.is_zero()).collect();
        (!left.is_empty()).then(|| Self {
            sections: left.iter().map(|left| left.address).collect(),
            sum: left.iter().map(|left| &left.sum).sum(),
            is_certain: left.iter().all(|left| left.is_certain),
        })
    }
}

/// A change of a section's cluster or pool, and how it ended.
type Ended<'s> = (&'s Change, Option<&'s Outcome>);

/// Returns the changes of a section's cluster or pool with their outcomes; none if the plan changes neither.
fn outcomes_of<'s>(address: &Address, plan: &'s Plan, summary: &'s Summary) -> Vec<Ended<'s>> {
    let outcome =
        |at: usize| summary.outcomes.iter().find(|(place, ..)| *place == at).map(|(_, outcome, _)| outcome);
    let changes = plan.billed_changes(address).into_iter();
    changes.map(|(at, change)| (change, outcome(at))).collect()
}

/// A section of which something is there after an apply, or may be.
struct Left<'c> {
    address: &'c Address,
    sum: Sum,
    /// False if nobody knows that all of it is there.
    is_certain: bool,
}

impl<'c> Left<'c> {
    fn of(address: &'c Address, cost: &SectionCost, ended: &[Ended<'_>]) -> Self {
        let sum = match ended {
            [] => cost.after.clone(),
            [(_, outcome)] => left_of(cost, *outcome),
            several => left_of_both(cost, several),
        };
        Self { address, sum, is_certain: ended.iter().all(is_certain) }
    }
}

/// Returns false for what may not be there: a creation that was refused or got no answer, and a deletion that got none.
fn is_certain((change, outcome): &Ended<'_>) -> bool {
    match outcome {
        Some(Outcome::Failed { .. } | Outcome::Queued { .. }) => !change.action.creates(),
        Some(Outcome::InDoubt { .. }) => !change.action.creates() && change.action != Action::Delete,
        None
        | Some(
            Outcome::Done
            | Outcome::TimedOut { .. }
            | Outcome::NotStarted
            | Outcome::Skipped { .. }
            | Outcome::Waits { .. },
        ) => true,
    }
}

/// Returns true if a change was done, or there was none.
fn is_done(outcome: Option<&Outcome>) -> bool {
    outcome.is_none_or(|outcome| *outcome == Outcome::Done)
}

/// Returns true if a change has not begun, so that all is as before.
fn has_not_begun(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotStarted | Outcome::Skipped { .. } | Outcome::Waits { .. })
}

/// Returns the cost of a section after its change has ended, or has not begun.
fn left_of(cost: &SectionCost, outcome: Option<&Outcome>) -> Sum {
    let may_be_as_before = cost.after.is_zero() || cost.before.usd > cost.after.usd;
    match !is_done(outcome) && (may_be_as_before || outcome.is_some_and(has_not_begun)) {
        true => cost.before.clone(),
        false => cost.after.clone(),
    }
}

/// Returns the cost of a section whose pool gets another name: of the old one unless it is gone, and of the new one once it has begun.
fn left_of_both(cost: &SectionCost, ended: &[Ended<'_>]) -> Sum {
    let is_old = |(change, _): &&Ended<'_>| matches!(change.action, Action::Delete | Action::Forget);
    let old = ended.iter().filter(is_old).any(|(_, outcome)| !is_done(*outcome));
    let new = ended.iter().filter(|one| !is_old(one)).any(|(_, outcome)| !outcome.is_some_and(has_not_begun));
    [(old, &cost.before), (new, &cost.after)]
        .into_iter()
        .filter(|(is_left, _)| *is_left)
        .map(|(_, sum)| sum)
        .sum()
}
