//! The cost of a plan for programs.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::still_running::StillRunning;
use apply::Summary;
use model::prices::Sum;
use plan::budget::{Budget, Excess};
use plan::{Bill, Plan};

/// The cost of the stack in US dollars per hour: clusters, nodes and their boot disks, without traffic.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanCost {
    /// The region whose prices count.
    pub region: String,
    /// The day of the prices.
    pub prices_of: String,
    /// The origin of the prices: `list` for those of the program, `file` for a file of `--prices`, or the source that the prices
    /// name, such as `Cloud Billing`.
    pub prices_from: String,
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
    /// The limits of `[budget]` and `--budget`, and those that the cost exceeds; absent without limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetLimits>,
}

/// Limits of cost, and what exceeds them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BudgetLimits {
    /// US dollars per hour with autoscaled pools at their maximum; absent without this limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_hour: Option<f64>,
    /// US dollars per day with autoscaled pools at their minimum; absent without this limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_per_day: Option<f64>,
    /// The limits that the cost exceeds, or may exceed because something has no price.
    pub exceeded: Vec<ExceededLimit>,
    /// True if the plan has the approval `budget`, to exceed them.
    pub approved: bool,
}

/// A limit that the cost exceeds, or may exceed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExceededLimit {
    /// The key of the limit: `max_per_hour` or `idle_per_day`.
    pub limit: &'static str,
    /// The limit in US dollars per hour or per day.
    pub allowed: f64,
    /// The cost of everything that has a price, in the unit of the limit.
    pub cost: f64,
    /// Names of parts without a price.
    pub unknown: Vec<String>,
}

impl BudgetLimits {
    fn of(plan: &Plan) -> Option<Self> {
        let Budget { max_per_hour, idle_per_day } = plan.budget;
        let exceeded = |Excess { limit, allowed, cost, unknown }: Excess| ExceededLimit {
            limit: limit.key(),
            allowed,
            cost: dollars(cost),
            unknown,
        };
        (!plan.budget.is_none()).then(|| Self {
            max_per_hour,
            idle_per_day,
            exceeded: plan.exceeded_limits().into_iter().map(exceeded).collect(),
            approved: plan.may_exceed_budget(),
        })
    }
}

/// The cost of what an apply leaves running when it did not do everything.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunningSections {
    /// The sections with a cluster or nodes that are there, or may be.
    pub sections: Vec<String>,
    /// True if all of them are there; false if the request for one was refused or has no answer yet.
    pub certain: bool,
    /// The most that they cost: a pool whose Pods did not start may have fewer nodes.
    pub at_most: HourlySum,
}

/// Returns the cost of what an apply leaves; `None` if it did everything, or leaves nothing that Google bills by the hour.
pub fn still_running(plan: &Plan, summary: &Summary) -> Option<RunningSections> {
    let StillRunning { sections, sum, is_certain } = StillRunning::after(plan, summary)?;
    let sections = sections.iter().map(ToString::to_string).collect();
    Some(RunningSections { sections, certain: is_certain, at_most: HourlySum::of(&sum) })
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
    pub(super) fn of(sum: &Sum) -> Self {
        Self { usd_per_hour: dollars(sum.usd), unknown: sum.unknown.clone() }
    }
}

/// A sum without the digits that only floats have: a hundredth of a cent.
pub fn dollars(usd: f64) -> f64 {
    let digits = (usd * 10_000.0).round() / 10_000.0;
    if digits.is_finite() { digits } else { usd }
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
        prices_from: bill.origin().as_str().to_owned(),
        spot_snapshot: bill.has_spot().then(|| date.clone()),
        before: bill.before().as_ref().map(HourlySum::of),
        after: HourlySum::of(&bill.after()),
        idle: HourlySum::of(&bill.idle()),
        most: HourlySum::of(&bill.most()),
        sections: sections.iter().map(section).collect::<BTreeMap<String, SectionSums>>(),
        budget: BudgetLimits::of(plan),
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
