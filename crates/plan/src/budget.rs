//! Limits of cost, and what exceeds them.

use serde::{Deserialize, Serialize};

use crate::{ApprovalVerb, Mode, Plan};
use model::prices::Sum;

/// Limits of what a stack may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// US dollars per hour with autoscaled pools at their maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_hour: Option<f64>,
    /// US dollars per day with autoscaled pools at their minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_per_day: Option<f64>,
}

/// A limit that the cost exceeds, or may exceed.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    pub limit: Limit,
    /// US dollars, per hour or per day as the limit.
    pub allowed: f64,
    /// The known part of the cost, in the unit of the limit.
    pub cost: f64,
    /// Names of parts without a price: the cost may exceed the limit although its known part does not.
    pub unknown: Vec<String>,
}

/// A sort of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    MaxPerHour,
    IdlePerDay,
}

impl Limit {
    /// The key of `[budget]`.
    pub fn key(self) -> &'static str {
        match self {
            Self::MaxPerHour => "max_per_hour",
            Self::IdlePerDay => "idle_per_day",
        }
    }

    /// US dollars per `h` or per `day`.
    pub fn unit(self) -> &'static str {
        match self {
            Self::MaxPerHour => "h",
            Self::IdlePerDay => "day",
        }
    }

    /// The state of the stack that the limit is about.
    pub fn state(self) -> &'static str {
        match self {
            Self::MaxPerHour => "with its node pools at their maximum",
            Self::IdlePerDay => "with its node pools at their minimum",
        }
    }
}

impl Budget {
    /// Returns true without limits.
    pub fn is_none(&self) -> bool {
        self.max_per_hour.is_none() && self.idle_per_day.is_none()
    }

    /// Returns the same limits with those of `other` in their place, where it has some.
    #[must_use]
    pub fn overridden_by(self, other: Self) -> Self {
        Self {
            max_per_hour: other.max_per_hour.or(self.max_per_hour),
            idle_per_day: other.idle_per_day.or(self.idle_per_day),
        }
    }
}

impl Plan {
    /// Returns true if a plan over its budget is not to be applied. One that changes nothing, or after which nothing may cost more than
    /// now, makes nothing worse.
    pub fn is_held_to_budget(&self) -> bool {
        !self.is_empty() && self.bill().is_some_and(crate::Bill::may_rise)
    }

    /// Returns the limits that the plan exceeds, or may exceed, without the approval `budget`.
    pub fn over_budget(&self) -> Vec<Excess> {
        if self.may_exceed_budget() { Vec::new() } else { self.exceeded_limits() }
    }

    /// Returns true if the plan has the approval `budget`.
    pub fn may_exceed_budget(&self) -> bool {
        self.approved.iter().any(|approval| approval.verb == ApprovalVerb::Budget)
    }

    /// Returns the limits that the plan exceeds, or may exceed, with or without approval. A plan that takes away exceeds none.
    pub fn exceeded_limits(&self) -> Vec<Excess> {
        let takes_away = self.mode == Mode::Destroy || self.stop_state.is_stop();
        let Some(bill) = self.bill().filter(|_| !takes_away) else { return Vec::new() };
        let limits = [
            (Limit::MaxPerHour, self.budget.max_per_hour, bill.most(), 1.0),
            (Limit::IdlePerDay, self.budget.idle_per_day, bill.idle(), 24.0),
        ];
        let excess = |(limit, allowed, sum, hours): (Limit, Option<f64>, Sum, f64)| {
            let (allowed, cost) = (allowed?, sum.usd * hours);
            // A cent is more than the sums of floats are apart.
            let exceeds = cost > allowed + 0.005 || !sum.is_known();
            exceeds.then(|| Excess { limit, allowed, cost, unknown: sum.unknown.into_iter().collect() })
        };
        limits.into_iter().filter_map(excess).collect()
    }
}
