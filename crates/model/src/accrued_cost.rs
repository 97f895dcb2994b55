//! The cost of a stack since it was created, between two bounds: the record does not know how many nodes an autoscaler ran.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::prices::{Sum, add_finite};

/// The number of names without a price that a range keeps, so that the record of an old stack does not grow.
const MAX_NAMES: usize = 32;
/// The name in place of those that a range does not keep. It begins with no ASCII character, so that it comes last.
const FURTHER_NAMES: &str = "… and more";

/// A cost between two bounds: in US dollars, or in US dollars per hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostRange {
    /// The cost of what certainly existed.
    pub least: f64,
    /// The cost of all that may have existed and has a price.
    pub most: f64,
    /// Names of parts without a price: the cost may exceed `most`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown: BTreeSet<String>,
}

impl CostRange {
    /// Returns the range between two sums. A part without a price widens it at its upper end only.
    pub fn between(least: &Sum, most: &Sum) -> Self {
        let unknown = least.unknown.union(&most.unknown).cloned().collect();
        Self { least: least.usd.min(most.usd), most: most.usd.max(least.usd), unknown }
    }

    /// Returns the smallest range that holds both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let unknown = self.unknown.union(&other.unknown).cloned().collect();
        Self { least: self.least.min(other.least), most: self.most.max(other.most), unknown }
    }

    /// Adds what costs at the same time.
    pub fn add(&mut self, other: &Self) {
        self.add_hours(other, 1.0);
    }

    /// Adds the cost of so many hours at a rate.
    fn add_hours(&mut self, rate: &Self, hours: f64) {
        self.least = add_finite(self.least, rate.least * hours);
        self.most = add_finite(self.most, rate.most * hours);
        if hours > 0.0 {
            self.unknown.extend(rate.unknown.iter().cloned());
        }
        if self.unknown.len() > MAX_NAMES {
            self.unknown = self.unknown.iter().take(MAX_NAMES - 1).cloned().collect();
            self.unknown.insert(FURTHER_NAMES.to_owned());
        }
    }

    /// Returns true for amounts in their order.
    fn is_sound(&self) -> bool {
        let Self { least, most, unknown: _ } = self;
        0.0 <= *least && least <= most && most.is_finite()
    }
}

/// US dollars per hour of a stack as an apply leaves it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostRates {
    /// The cost of the whole stack.
    pub running: CostRange,
    /// The cost after `ttl` or `idle_stop` has stopped the whole stack: its cluster without nodes.
    pub expired: CostRange,
    /// The day of the prices: `2026-07-30`; `None` where nothing has been billed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices_of: Option<String>,
    /// The origin of the prices as it is printed, so that a record stays readable when there are other origins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices_from: Option<String>,
}

/// The cost of a stack up to the last write of its record, and its rates since then. Its size does not grow with time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccruedCost {
    /// The time from which costs are counted.
    pub since: Timestamp,
    /// False if the stack existed before `since`, without costs in its record.
    #[serde(default)]
    pub from_creation: bool,
    /// The time up to which `total` counts, and from which `rates` hold.
    pub until: Timestamp,
    /// US dollars from `since` to `until`.
    pub total: CostRange,
    /// US dollars per hour after `until`.
    pub rates: CostRates,
}

impl AccruedCost {
    /// Begins to count, from when an apply may have created something.
    pub fn begin(since: Timestamp, from_creation: bool, rates: CostRates) -> Self {
        Self { since, from_creation, until: since, total: CostRange::default(), rates }
    }

    /// Counts the time up to `now`. From the time at which the stop of the whole stack began, it is counted at least as stopped and at
    /// most as running: nobody notes when the last node is gone. Time before `until` is counted already: a clock that was set back
    /// counts nothing.
    pub fn advance(&mut self, now: Timestamp, expired: Option<Timestamp>) {
        let now = now.max(self.until);
        let end = expired.map_or(now, |expired| expired.clamp(self.until, now));
        self.total.add_hours(&self.rates.running, hours(self.until, end));
        self.total.add_hours(&self.rates.while_stopping(), hours(end, now));
        self.until = now;
    }

    /// Returns true if nothing has cost anything.
    pub fn is_zero(&self) -> bool {
        self.total.most == 0.0 && self.total.unknown.is_empty()
    }

    /// Returns true if the cost can be counted on and written: JSON has no other numbers than finite ones.
    pub fn is_sound(&self) -> bool {
        let Self { since, from_creation: _, until, total, rates } = self;
        since <= until && [total, &rates.running, &rates.expired].into_iter().all(CostRange::is_sound)
    }
}

impl CostRates {
    /// Returns the cost after the stop of the whole stack has begun.
    pub fn while_stopping(&self) -> CostRange {
        self.running.clone().or(self.expired.clone())
    }
}

/// Reads the cost of a record. A record has more than its costs, so one that another version wrote, or that is damaged, is none.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<AccruedCost>, D::Error> {
    let cost = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(cost).ok().filter(AccruedCost::is_sound))
}

/// Returns true for a cost that is left out of the record.
pub(crate) fn is_left_out(cost: &Option<AccruedCost>) -> bool {
    !cost.as_ref().is_some_and(AccruedCost::is_sound)
}

fn hours(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() / 3600.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn range(least: f64, most: f64, unknown: &[&str]) -> CostRange {
        CostRange { least, most, unknown: unknown.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn rates(running: CostRange) -> CostRates {
        CostRates { running, expired: range(0.1, 0.1, &[]), ..CostRates::default() }
    }

    const NINE: &str = "2026-11-01T09:00:00Z";

    #[test]
    fn each_period_counts_at_its_own_rates() {
        let mut cost = AccruedCost::begin(at(NINE), true, rates(range(0.0, 8.0, &[])));
        cost.advance(at("2026-11-01T09:30:00Z"), None);
        assert_eq!(cost.total, range(0.0, 4.0, &[]));
        cost.rates = rates(range(1.0, 2.0, &["a9"]));
        assert_eq!(cost.total, range(0.0, 4.0, &[]), "a rate alone costs nothing");
        cost.advance(at("2026-11-01T11:30:00Z"), None);
        assert_eq!(cost.total, range(2.0, 8.0, &["a9"]));
        assert_eq!((cost.since, cost.until), (at(NINE), at("2026-11-01T11:30:00Z")));
    }

    #[test]
    fn from_the_stop_of_the_whole_stack_anything_may_run_or_nothing() {
        for (expired, total) in [
            (Some("2026-11-01T11:00:00Z"), range(2.2, 8.0, &[])),
            // A stop that clocks place outside of the period is at its nearer end.
            (Some("2026-11-01T08:00:00Z"), range(0.4, 8.0, &[])),
            (Some("2026-11-02T09:00:00Z"), range(4.0, 8.0, &[])),
            (None, range(4.0, 8.0, &[])),
        ] {
            let mut cost = AccruedCost::begin(at(NINE), true, rates(range(1.0, 2.0, &[])));
            cost.advance(at("2026-11-01T13:00:00Z"), expired.map(at));
            let cents = |usd: f64| (usd * 100.0).round();
            assert_eq!(cents(cost.total.least), cents(total.least), "{expired:?}");
            assert_eq!(cents(cost.total.most), cents(total.most), "{expired:?}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_counts_nothing_twice() {
        let mut cost = AccruedCost::begin(at(NINE), true, rates(range(1.0, 1.0, &[])));
        cost.advance(at("2026-11-01T10:00:00Z"), None);
        for now in ["2026-11-01T09:30:00Z", "2026-11-01T10:00:00Z"] {
            cost.advance(at(now), Some(at("2026-11-01T09:10:00Z")));
            assert_eq!(cost.total, range(1.0, 1.0, &[]), "{now}");
        }
        cost.advance(at("2026-11-01T11:00:00Z"), None);
        assert_eq!(cost.total, range(2.0, 2.0, &[]));
    }

    #[test]
    fn names_without_a_price_are_bounded() {
        let mut total = CostRange::default();
        for machine in 0..1000 {
            total.add(&range(0.0, 0.0, &[&format!("machine-{machine:04}")]));
        }
        assert_eq!(total.unknown.len(), MAX_NAMES);
        assert!(total.unknown.contains(FURTHER_NAMES) && total.unknown.contains("machine-0000"));
    }

    #[test]
    fn the_name_of_further_ones_comes_last() {
        let mut total = CostRange::default();
        (0..40).for_each(|machine| total.add(&range(0.0, 0.0, &[&format!("z{machine:02}")])));
        assert_eq!(total.unknown.last().map(String::as_str), Some(FURTHER_NAMES));
    }

    #[test]
    fn amounts_stay_finite() {
        let mut cost = AccruedCost::begin(at(NINE), true, rates(range(0.0, f64::MAX, &[])));
        for hour in ["19", "20", "21"] {
            cost.advance(at(&format!("2026-11-01T{hour}:00:00Z")), None);
            assert!(cost.is_sound(), "{cost:?}");
        }
    }

    #[test]
    fn a_range_of_sums_is_as_wide_as_they_are_apart() {
        let sum = |usd, unknown: &[&str]| Sum { usd, unknown: range(0.0, 0.0, unknown).unknown, spot: false };
        assert_eq!(CostRange::between(&sum(1.0, &["a"]), &sum(3.0, &["b"])), range(1.0, 3.0, &["a", "b"]));
        let both = range(1.0, 3.0, &["a"]).or(range(0.5, 2.0, &["b"]));
        assert_eq!(both, range(0.5, 3.0, &["a", "b"]));
    }

    proptest! {
        /// Bounds stay in order and only grow, whatever the clocks of the writers say.
        #[test]
        fn bounds_grow_and_stay_in_order(
            writes in prop::collection::vec((0..100_000_i64, prop::option::of(0..100_000_i64), 0.0..9.0_f64, 0.0..9.0_f64), 1..9),
        ) {
            let time = |second| Timestamp::from_second(second).unwrap();
            let mut cost = AccruedCost::begin(time(50_000), true, CostRates::default());
            for (now, expired, least, more) in writes {
                let before = cost.clone();
                cost.advance(time(now), expired.map(time));
                prop_assert!(cost.total.least <= cost.total.most);
                prop_assert!(before.total.least <= cost.total.least && before.total.most <= cost.total.most);
                prop_assert!(before.until <= cost.until);
                cost.rates = rates(range(least, least + more, &[]));
            }
        }
    }
}
