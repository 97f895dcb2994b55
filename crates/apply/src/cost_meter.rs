//! The cost of the stack during an apply, which is written with the record.

use jiff::Timestamp;
use tokio::sync::Mutex;

use model::accrued_cost::{AccruedCost, CostRates};
use model::prices::Sum;
use model::record::Record;
use plan::{Plan, Progress};

/// Counts the cost of the stack from one write of the record to the next.
pub(crate) struct CostMeter<'a> {
    plan: &'a Plan,
    now: fn() -> Timestamp,
    /// The time before the first request of the apply.
    began: Timestamp,
    /// The cost as it was last read; `None` before that, and where nothing is billed.
    cost: Mutex<Option<AccruedCost>>,
}

impl<'a> CostMeter<'a> {
    pub(crate) fn new(plan: &'a Plan, now: fn() -> Timestamp) -> Self {
        Self { plan, now, began: now(), cost: Mutex::default() }
    }

    /// Returns the cost up to now, with the rates from now on by the progress of the changes. Before the first one, the cost in the
    /// record from before the apply counts on. `None` where Google bills nothing, now or before.
    pub(crate) async fn read(
        &self,
        old: Option<&Record>,
        progress: impl Fn(usize) -> Progress,
    ) -> Option<AccruedCost> {
        let mut held = self.cost.lock().await;
        let now = (self.now)();
        let earlier = || old.and_then(|record| record.accrued_cost_at(now));
        let mut cost = held.take().or_else(earlier).or_else(|| self.begin(old))?;
        cost.advance(now, None);
        cost.rates = self.plan.cost_rates(progress);
        *held = Some(cost.clone());
        Some(cost)
    }

    /// Begins to count with this apply. Until the first write of the record, anything that it plans may have been done.
    fn begin(&self, old: Option<&Record>) -> Option<AccruedCost> {
        let before = self.plan.bill()?.before();
        let from_creation = old.is_none() && before.as_ref().is_some_and(Sum::is_zero);
        let rates: CostRates = self.plan.cost_rates(|_| Progress::Open);
        Some(AccruedCost::begin(self.began, from_creation, rates))
    }
}
