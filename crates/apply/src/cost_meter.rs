//! The cost of the stack during an apply, which is written with the record.

use jiff::Timestamp;
use tokio::sync::Mutex;

use model::accrued_cost::{AccruedCost, CostRange, CostRates};
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
    /// record from before the apply counts on. `None` where the record of before has no cost and the plan none either, and for a stack
    /// that is not on Google Cloud.
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
        // Where nothing is billed any more, the origin of the earlier prices is still that of the sum.
        cost.rates = self.plan.cost_rates(progress).unwrap_or_else(|| CostRates {
            running: CostRange::default(),
            expired: CostRange::default(),
            ..cost.rates
        });
        *held = Some(cost.clone());
        Some(cost)
    }

    /// Begins to count with this apply. Until the first write of the record, anything that it plans may have been done. The first record
    /// of a stack begins to count although nothing is billed yet: node pools that are added later are counted from their creation.
    fn begin(&self, old: Option<&Record>) -> Option<AccruedCost> {
        plan::cost::region(&self.plan.target)?;
        let rates = self.plan.cost_rates(|_| Progress::Open);
        let is_first = old.is_none();
        let was_free =
            self.plan.bill().is_none_or(|bill| bill.before().is_some_and(|before| before.is_zero()));
        let rates = if is_first { Some(rates.unwrap_or_default()) } else { rates };
        Some(AccruedCost::begin(self.began, is_first && was_free, rates?))
    }
}
