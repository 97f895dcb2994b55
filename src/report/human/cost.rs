//! The cost of a stack, and of the part of it that exists.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::report::cost::dollars;
use crate::report::still_running::StillRunning;
use apply::Summary;
use kinds::cost::{Billed, are_secondary_disks};
use model::prices::{Origin, Prices, Sum};
use model::resource::{External, Identity, Target};
use plan::{Bill, Mode, Plan, SectionCost};

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
    let list = list_of(&bill.region, &bill.date, &bill.origin());
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
    let StillRunning { sections, sum, is_certain } = StillRunning::after(plan, summary)?;
    let names: Vec<&str> = sections.iter().map(|address| address.as_str()).collect();
    let runs = if is_certain { "Still running" } else { "May still run" };
    let costs = match sum.is_known() {
        true => format!("for up to {}", amount(&sum)),
        false => format!("{} for what has a price", amount(&sum)),
    };
    let names = names.join(", ");
    let line = format!("{runs}: {names}, {costs}, {} a day; `{program} destroy` ends it", a_day(&sum));
    Some(with_unknown(line, &sum.unknown))
}

/// `$8.31/h`, `at least $8.31/h`.
pub fn amount(sum: &Sum) -> String {
    format!("{}${:.2}/h", least(sum), sum.usd)
}

/// `$199`, `at least $6.00`: the cost of 24 hours.
fn a_day(sum: &Sum) -> String {
    in_hours(sum, 24.0)
}

/// `$199`, `at least $6.00`: the cost of so many hours.
pub fn in_hours(sum: &Sum, hours: f64) -> String {
    format!("{}{}", least(sum), money(sum.usd * hours))
}

/// `$6.00`, `$199`, `$2,310`: cents only where they matter.
pub fn money(usd: f64) -> String {
    if usd < 10.0 {
        return format!("${usd:.2}");
    }
    let digits = format!("{usd:.0}");
    let first = (digits.len() - 1) % 3 + 1;
    let groups = digits.as_bytes()[first..].chunks(3).map(String::from_utf8_lossy);
    groups.fold(format!("${}", &digits[..first]), |text, group| format!("{text},{group}"))
}

/// The word before an amount of which a part is unknown.
fn least(sum: &Sum) -> &'static str {
    if sum.is_known() { "" } else { "at least " }
}

pub fn with_unknown(known: String, unknown: &BTreeSet<String>) -> String {
    let names: Vec<&str> = unknown.iter().map(String::as_str).collect();
    if names.is_empty() { known } else { format!("{known}; price unknown: {}", names.join(", ")) }
}

/// `list prices of us-central1, 2026-07-30`, `prices of us-central1, 2026-11-30 (Cloud Billing)`.
fn list_of(region: &str, date: &str, origin: &Origin) -> String {
    match origin {
        Origin::List => format!("list prices of {region}, {date}"),
        Origin::File => format!("prices of the given file for {region}, {date}"),
        Origin::Source(source) => format!("prices of {region}, {date} ({source})"),
    }
}

/// `list prices of us-central1, 2026-07-30, with boot disks, without traffic`.
pub fn counted_with(region: &str, date: &str, origin: &Origin, has_spot: bool) -> String {
    let list = list_of(region, date, origin);
    let spot = if has_spot { snapshot(date) } else { String::new() };
    format!("{list}, with boot disks, without traffic{spot}")
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
    /// The origin of the prices.
    pub origin: Origin,
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
            origin: prices.origin(),
        }
    }

    /// `Running cost: $8.31/h, $199 a day (…)`; nothing where nothing is billed.
    pub fn shown(&self) -> Option<String> {
        let Self { sum, region, date, origin } = self;
        if sum.is_zero() {
            return None;
        }
        let counted = counted_with(region, date, origin, sum.spot);
        let known = format!("Running cost: {}, {} a day ({counted})", amount(sum), a_day(sum));
        Some(with_unknown(known, &sum.unknown))
    }

    /// `{ "usd_per_hour": 8.31, "unpriced": [] }`; null where nothing is billed.
    pub fn json(&self) -> Value {
        let Self { sum, region, date, origin } = self;
        match sum.is_zero() {
            true => Value::Null,
            false => json!({
                "usd_per_hour": dollars(sum.usd), "unpriced": sum.unknown, "region": region,
                "prices_of": date, "prices_from": origin.as_str(), "spot_snapshot": sum.spot.then_some(date),
            }),
        }
    }
}

/// `$0.13/h`, `$0–0.54/h`, with secondary boot disks `at least $0.87/h`; nothing where another price is unknown.
pub(super) fn shown(cost: &SectionCost) -> Option<String> {
    let (least, most) = (&cost.idle, &cost.most);
    // The rest of a node whose machine has no price says nothing about what it costs.
    if !are_secondary_disks(least.unknown.iter().chain(&most.unknown)) || most.is_zero() {
        return None;
    }
    let at_least = self::least(most);
    Some(match amount(least) == amount(most) {
        true => amount(most),
        false if least.is_zero() => format!("{at_least}$0–{:.2}/h", most.usd),
        false => format!("{at_least}${:.2}–{:.2}/h", least.usd, most.usd),
    })
}

#[cfg(test)]
mod tests {
    use super::money;

    #[test]
    fn amounts_have_cents_only_where_they_matter() {
        for (usd, text) in [
            (0.0, "$0.00"),
            (9.994, "$9.99"),
            (10.0, "$10"),
            (999.6, "$1,000"),
            (12_345.0, "$12,345"),
            (1_234_567.0, "$1,234,567"),
        ] {
            assert_eq!(money(usd), text);
        }
    }
}
