//! The cost of a plan for programs.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use model::prices::Sum;
use plan::{Bill, Plan};

/// The cost of the stack in US dollars per hour: clusters, nodes and their boot disks, without traffic.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanCost {
    /// The region whose prices count.
    pub region: String,
    /// The day of the prices.
    pub prices_of: String,
    /// The day of the Spot prices, which move; only if some are in the sums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_snapshot: Option<String>,
    /// The cost now; absent if no live state was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<HourlySum>,
    /// The cost once the apply has ended, with the nodes that the stack's Pods need.
    pub after: HourlySum,
    /// The cost with autoscaled pools at their minimum.
    pub idle: HourlySum,
    /// The cost with autoscaled pools at their maximum.
    pub most: HourlySum,
    /// The cost of each section that has a cluster or nodes.
    pub sections: BTreeMap<String, SectionSums>,
}

/// The cost of a section.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SectionSums {
    /// The cost now; absent if no live state was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<HourlySum>,
    /// The cost once the apply has ended.
    pub after: HourlySum,
    /// The cost at the minimum.
    pub idle: HourlySum,
    /// The cost at the maximum.
    pub most: HourlySum,
}

/// A sum of prices.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HourlySum {
    /// US dollars per hour of everything that has a price.
    pub usd_per_hour: f64,
    /// Names of parts without a price; then the cost is at least `usd_per_hour`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown: BTreeSet<String>,
}

impl HourlySum {
    fn of(sum: &Sum) -> Self {
        Self { usd_per_hour: dollars(sum.usd), unknown: sum.unknown.clone() }
    }
}

/// A sum without the digits that only floats have: a hundredth of a cent.
pub fn dollars(usd: f64) -> f64 {
    (usd * 10_000.0).round() / 10_000.0
}

/// Returns the cost of a plan.
pub fn plan_cost(plan: &Plan) -> Option<PlanCost> {
    let bill = plan.bill()?;
    let Bill { region, date, prices: _, is_live_known, sections } = bill;
    let section = |(address, cost): (_, &plan::SectionCost)| {
        let sums = SectionSums {
            before: is_live_known.then(|| HourlySum::of(&cost.before)),
            after: HourlySum::of(&cost.after),
            idle: HourlySum::of(&cost.idle),
            most: HourlySum::of(&cost.most),
        };
        (format!("{address}"), sums)
    };
    Some(PlanCost {
        region: region.clone(),
        prices_of: date.clone(),
        spot_snapshot: bill.has_spot().then(|| date.clone()),
        before: bill.before().as_ref().map(HourlySum::of),
        after: HourlySum::of(&bill.after()),
        idle: HourlySum::of(&bill.idle()),
        most: HourlySum::of(&bill.most()),
        sections: sections.iter().map(section).collect::<BTreeMap<String, SectionSums>>(),
    })
}

/// US dollars per hour at the maximum.
pub fn most(plan: &Plan) -> Option<f64> {
    plan.bill().map(|bill| dollars(bill.most().usd))
}

/// US dollars per hour at the minimum.
pub fn idle(plan: &Plan) -> Option<f64> {
    plan.bill().map(|bill| dollars(bill.idle().usd))
}

/// Returns the names of everything without a price.
pub fn unknown(plan: &Plan) -> Vec<String> {
    plan.bill().map(|bill| bill.unknown().into_iter().collect()).unwrap_or_default()
}
