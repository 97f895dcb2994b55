//! The cost of a stack, and of the part of it that exists.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::report::cost::dollars;
use apply::{Outcome, Summary};
use kinds::cost::Billed;
use model::address::Address;
use model::prices::{Prices, Sum};
use model::resource::{External, Identity, Target};
use plan::{Action, Bill, Change, Mode, Plan, Reason, SectionCost};

/// `Cost: $8.31/h as planned, $199 a day; $0.25/h idle, $15.69/h at maximum (…)`. Unknown prices are named, and never left out of a
/// sum in silence.
pub(super) fn plan_cost(plan: &Plan) -> Option<String> {
    let bill = plan.bill()?;
    let (after, idle, most) = (bill.after(), bill.idle(), bill.most());
    let other = |sum: &Sum, word: &str| {
        let is_other = plan.mode == Mode::Apply && amount(sum) != amount(&after);
        is_other.then(|| format!("{} {word}", amount(sum)))
    };
    let limits: Vec<String> =
        [other(&idle, "idle"), other(&most, "at maximum")].into_iter().flatten().collect();
    let limits = if limits.is_empty() { String::new() } else { format!("; {}", limits.join(", ")) };
    let whole = if plan.partial.is_some() { " for the whole stack" } else { "" };
    let sum = changed(plan, bill, &after)?;
    let is_cluster = |external: &External| matches!(external.resource.identity, Identity::Cluster(_));
    let with = match plan.external.iter().any(is_cluster) {
        true => "with boot disks",
        false => "with GKE's fee and boot disks",
    };
    let list = list_of(&bill.region, &bill.date, bill.prices.is_none());
    let spot = if bill.has_spot() { snapshot(&bill.date) } else { String::new() };
    let known = format!("Cost: {sum}{limits}{whole} ({list}, {with}, without traffic{spot})");
    let mut unknown = bill.unknown();
    unknown.extend(bill.before().into_iter().flat_map(|before| before.unknown));
    Some(with_unknown(known, &unknown))
}

/// `$8.31/h as planned, $199 a day`, `$0.25/h → $8.31/h, $199 a day`. `None` where nothing is billed, before or after.
fn changed(plan: &Plan, bill: &Bill, after: &Sum) -> Option<String> {
    let before = bill.before().unwrap_or_default();
    let day = if after.usd > 0.0 { format!(", {} a day", a_day(after)) } else { String::new() };
    let billed = !after.is_zero() || !bill.most().is_zero();
    match before.is_zero() {
        true if plan.mode == Mode::Destroy || !billed => None,
        true => Some(format!("{} as planned{day}", amount(after))),
        false if amount(&before) == amount(after) => Some(format!("{}, unchanged{day}", amount(after))),
        false => Some(format!("{} → {}{day}", amount(&before), amount(after))),
    }
}

/// The line of the prompt: `Cost after it: $8.31/h, $199 a day.`
pub fn asked(plan: &Plan) -> Option<String> {
    let after = plan.bill()?.after();
    (plan.mode == Mode::Apply && !after.is_zero())
        .then(|| format!("Cost after it: {}, {} a day.", amount(&after), a_day(&after)))
}

/// The line below an apply that did not do everything: what is there, or may be, and what it costs. A pool whose Pods did not
/// start has fewer nodes, hence "up to".
pub(super) fn runs_on(plan: &Plan, summary: &Summary, program: &str) -> Option<String> {
    let left: Vec<Left<'_>> = plan
        .bill()?
        .sections
        .iter()
        .map(|(address, cost)| Left::of(address, cost, &outcomes_of(address, plan, summary)))
        .filter(|left| !left.sum.is_zero())
        .collect();
    if left.is_empty() {
        return None;
    }
    let names: Vec<&str> = left.iter().map(|left| left.address.as_str()).collect();
    let sum: Sum = left.iter().map(|left| &left.sum).sum();
    let runs = if left.iter().all(|left| left.is_certain) { "Still running" } else { "May still run" };
    let costs = match sum.is_known() {
        true => format!("for up to {}", amount(&sum)),
        false => format!("{} for what has a price", amount(&sum)),
    };
    let names = names.join(", ");
    let line = format!("{runs}: {names}, {costs}, {} a day; `{program} destroy` ends it", a_day(&sum));
    Some(with_unknown(line, &sum.unknown))
}

/// A change of a section's cluster or pool, and how it ended.
type Ended<'s> = (&'s Change, Option<&'s Outcome>);

/// Returns the changes of a section's cluster or pool with their outcomes; none if the plan changes neither. A pool that gets another
/// name has two. The request for a cluster has its first pool.
fn outcomes_of<'s>(address: &Address, plan: &'s Plan, summary: &'s Summary) -> Vec<Ended<'s>> {
    let is_cluster = |change: &Change| matches!(change.identity, Identity::Cluster(_));
    let is_billed =
        |change: &Change| is_cluster(change) || matches!(change.identity, Identity::NodePool { .. });
    let cluster = plan.changes.iter().position(is_cluster);
    let outcome = |at: usize, change: &Change| {
        let with_cluster = change.reasons.contains(&Reason::CreatedWithCluster);
        let at = if with_cluster { cluster? } else { at };
        summary.outcomes.iter().find(|(place, ..)| *place == at).map(|(_, outcome, _)| outcome)
    };
    let all = plan.changes.iter().enumerate();
    let own = all.filter(|(_, change)| change.address == *address && is_billed(change));
    own.map(|(at, change)| (change, outcome(at, change))).collect()
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

/// `$8.31/h`, `at least $8.31/h`.
pub fn amount(sum: &Sum) -> String {
    format!("{}${:.2}/h", least(sum), sum.usd)
}

/// `$199`, `at least $6.00`: the cost of 24 hours.
fn a_day(sum: &Sum) -> String {
    let day = sum.usd * 24.0;
    let least = least(sum);
    if day < 10.0 { format!("{least}${day:.2}") } else { format!("{least}${day:.0}") }
}

/// The word before an amount of which a part is unknown.
fn least(sum: &Sum) -> &'static str {
    if sum.is_known() { "" } else { "at least " }
}

fn with_unknown(known: String, unknown: &BTreeSet<String>) -> String {
    let names: Vec<&str> = unknown.iter().map(String::as_str).collect();
    if names.is_empty() { known } else { format!("{known}; price unknown: {}", names.join(", ")) }
}

/// `list prices of us-central1, 2026-07-30`.
fn list_of(region: &str, date: &str, is_list: bool) -> String {
    match is_list {
        true => format!("list prices of {region}, {date}"),
        false => format!("prices of the given file for {region}, {date}"),
    }
}

fn snapshot(date: &str) -> String {
    format!("; Spot prices: snapshot of {date}")
}

/// The running cost of existing resources, with the prices that it is counted with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunningCost {
    pub sum: Sum,
    /// The region whose prices count.
    pub region: String,
    /// The day of the prices.
    pub date: String,
    /// True for the prices of the program.
    pub is_list: bool,
}

impl RunningCost {
    /// Returns the cost of what exists, where Google bills any.
    pub fn of<'b>(target: &Target, billed: impl Iterator<Item = &'b Billed>, prices: &Prices) -> Self {
        let Some(region) = plan::cost::region(target) else { return Self::default() };
        let each: Vec<Sum> = billed.map(|billed| billed.price(prices, region)).collect();
        Self {
            sum: each.iter().sum(),
            region: region.to_owned(),
            date: prices.date().to_owned(),
            is_list: prices.is_list(),
        }
    }

    /// `Running cost: $8.31/h, $199 a day (…)`; nothing where nothing is billed.
    pub fn shown(&self) -> Option<String> {
        let Self { sum, region, date, is_list } = self;
        if sum.is_zero() {
            return None;
        }
        let list = list_of(region, date, *is_list);
        let spot = if sum.spot { snapshot(date) } else { String::new() };
        let known = format!(
            "Running cost: {}, {} a day ({list}, with boot disks, without traffic{spot})",
            amount(sum),
            a_day(sum)
        );
        Some(with_unknown(known, &sum.unknown))
    }

    /// `{ "usd_per_hour": 8.31, "unpriced": [] }`; null where nothing is billed.
    pub fn json(&self) -> Value {
        let Self { sum, region, date, is_list: _ } = self;
        match sum.is_zero() {
            true => Value::Null,
            false => json!({
                "usd_per_hour": dollars(sum.usd), "unpriced": sum.unknown, "region": region,
                "prices_of": date, "spot_snapshot": sum.spot.then_some(date),
            }),
        }
    }
}

/// `$0.13/h`, `$0–0.54/h`; nothing where a price is unknown.
pub(super) fn shown(cost: &SectionCost) -> Option<String> {
    let (least, most) = (&cost.idle, &cost.most);
    if !least.is_known() || !most.is_known() || most.is_zero() {
        return None;
    }
    Some(match amount(least) == amount(most) {
        true => amount(most),
        false if least.is_zero() => format!("$0–{:.2}/h", most.usd),
        false => format!("${:.2}–{:.2}/h", least.usd, most.usd),
    })
}
