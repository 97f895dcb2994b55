//! The cost of a stack while an apply runs and after it, between two bounds: by the progress of its changes.

use crate::cost::{SectionCost, is_billed};
use crate::{Action, Change, Plan, Reason};
use model::accrued_cost::{CostRange, CostRates};
use model::address::Address;
use model::resource::{Identity, Step};

/// The progress of a change, as far as others can rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Unknown or half done: the resources that it creates and the ones that it deletes may exist.
    Open,
    Done,
    /// Not started.
    Untouched,
}

impl Plan {
    /// Returns the changes of a section's cluster or node pools, each with the index of the change whose outcome counts. A pool that
    /// gets another name has two. The request for a cluster has its first pool.
    pub fn billed_changes(&self, address: &Address) -> Vec<(usize, &Change)> {
        let cluster = self.changes.iter().position(|change| is_cluster(&change.identity));
        let place = |at: usize, change: &Change| match change.reasons.contains(&Reason::CreatedWithCluster) {
            true => cluster.unwrap_or(at),
            false => at,
        };
        let all = self.changes.iter().enumerate();
        let own = all.filter(|(_, change)| change.address == *address && is_billed(&change.identity));
        own.map(|(at, change)| (place(at, change), change)).collect()
    }

    /// Returns the cost of the stack per hour by the progress of the changes; `None` where Google bills nothing of it by the hour.
    pub fn cost_rates(&self, progress: impl Fn(usize) -> Progress) -> Option<CostRates> {
        let bill = self.bill()?;
        let (mut running, mut expired) = (CostRange::default(), CostRange::default());
        for (address, cost) in &bill.sections {
            let range = range_of(cost, &self.billed_changes(address), &progress);
            running.add(&range);
            if self.has_cluster_at(address) {
                expired.add(&range);
            }
        }
        let (prices_of, prices_from) = (bill.date.clone(), bill.origin().as_str().to_owned());
        Some(CostRates { running, expired, prices_of: Some(prices_of), prices_from: Some(prices_from) })
    }

    fn has_cluster_at(&self, address: &Address) -> bool {
        let mut desired = self.desired.iter();
        desired.any(|resource| resource.address == *address && is_cluster(&resource.identity))
    }
}

fn is_cluster(identity: &Identity) -> bool {
    matches!(identity, Identity::Cluster(_))
}

/// Returns the cost of a section: as before where nothing has begun, as planned where all is done, else whatever is possible.
fn range_of(
    cost: &SectionCost,
    changes: &[(usize, &Change)],
    progress: &impl Fn(usize) -> Progress,
) -> CostRange {
    let (before, after) = (range_before(cost), range_after(cost, changes));
    let all = |wanted: Progress| changes.iter().all(|(at, _)| progress(*at) == wanted);
    match changes {
        _ if all(Progress::Done) => after,
        _ if all(Progress::Untouched) => before,
        [(_, change)] if stays(change) => before.or(after),
        // In between it may not exist.
        [_] => before.or(after).or(CostRange::default()),
        // The old pool and the new one may exist at the same time.
        _ => {
            let mut both = before;
            both.add(&after);
            both.or(CostRange::default())
        }
    }
}

/// Returns the cost of what is there.
fn range_before(cost: &SectionCost) -> CostRange {
    CostRange::between(cost.live_least(), &cost.live_most).or(range_now(cost))
}

/// Returns the cost of what is planned.
fn range_after(cost: &SectionCost, changes: &[(usize, &Change)]) -> CostRange {
    let after = CostRange::between(cost.least(), &cost.most);
    let was_autoscaled = cost.live_idle.usd < cost.live_most.usd;
    let is_autoscaled = cost.idle.usd < cost.most.usd;
    match changes {
        [] => after.or(range_now(cost)),
        _ if changes.iter().any(|(_, change)| !stays(change) || sets_size(change)) => after,
        // New limits of an autoscaled pool, and the end of its autoscaling, remove no node that is busy. Up to that request, the
        // autoscaler may have added nodes up to the old limit.
        _ if was_autoscaled || is_autoscaled => {
            CostRange { most: after.most.max(cost.live_most.usd).max(cost.before.usd), ..after }
        }
        _ => after,
    }
}

/// Returns true if a change asks GKE for a number of nodes, after which an earlier autoscaler adds none.
fn sets_size(change: &Change) -> bool {
    let is_size = |step: &Step| matches!(step, Step::Call(request) if request.path.ends_with(":setSize"));
    change.steps.iter().any(is_size)
}

/// The cost of the nodes that are there, which may be outside of the limits of an autoscaled pool for a while.
fn range_now(cost: &SectionCost) -> CostRange {
    CostRange::between(&cost.before, &cost.before)
}

/// Returns true if a resource exists before, during and after a change.
fn stays(change: &Change) -> bool {
    match change.action {
        Action::Keep | Action::Update | Action::Run => true,
        Action::Create | Action::Replace | Action::Delete | Action::Forget => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::prices::Sum;
    use model::resource::{Api, Call, ClusterName, KindId, Method};

    fn pool(name: &str, action: Action) -> Change {
        let cluster = ClusterName { project: "p".into(), location: "z".into(), cluster: "c".into() };
        let identity = Identity::NodePool { cluster, pool: name.to_owned() };
        Change::new(Address::of("node_pool", name), identity, KindId::NodePool, action)
    }

    /// A pool of 2 to 4 dollars before, and of 1 to 8 after.
    fn cost() -> SectionCost {
        let sum = |usd| Sum { usd, ..Sum::default() };
        SectionCost {
            before: sum(3.0),
            live_idle: sum(2.0),
            live_most: sum(4.0),
            idle: sum(1.0),
            most: sum(8.0),
            ..SectionCost::default()
        }
    }

    fn bounds(cost: &SectionCost, changes: &[Change], progress: &[Progress]) -> (f64, f64) {
        let changes: Vec<(usize, &Change)> = changes.iter().enumerate().collect();
        let range = range_of(cost, &changes, &|at| progress[at]);
        (range.least, range.most)
    }

    #[test]
    fn a_section_costs_what_is_possible_at_its_progress() {
        use Progress::{Done, Open, Untouched};
        for (action, progress, expect) in [
            (Action::Update, Done, (1.0, 8.0)),
            (Action::Update, Untouched, (2.0, 4.0)),
            (Action::Update, Open, (1.0, 8.0)),
            (Action::Replace, Done, (1.0, 8.0)),
            (Action::Replace, Open, (0.0, 8.0)),
            (Action::Create, Open, (0.0, 8.0)),
            (Action::Delete, Open, (0.0, 8.0)),
            (Action::Delete, Untouched, (2.0, 4.0)),
        ] {
            assert_eq!(bounds(&cost(), &[pool("a", action)], &[progress]), expect, "{action:?} {progress:?}");
        }
        assert_eq!(bounds(&cost(), &[], &[]), (1.0, 8.0), "nothing of it is in the plan");
    }

    #[test]
    fn a_pool_with_another_name_may_be_there_beside_the_old_one() {
        use Progress::{Done, Open, Untouched};
        let renamed = [pool("old", Action::Delete), pool("new", Action::Create)];
        for (progress, expect) in [
            ([Done, Done], (1.0, 8.0)),
            ([Untouched, Untouched], (2.0, 4.0)),
            ([Open, Open], (0.0, 12.0)),
            ([Untouched, Done], (0.0, 12.0)),
        ] {
            assert_eq!(bounds(&cost(), &renamed, &progress), expect, "{progress:?}");
        }
    }

    #[test]
    fn nodes_of_earlier_limits_count_until_a_size_is_set() {
        let sum = |usd| Sum { usd, ..Sum::default() };
        let done = |cost: &SectionCost, change: Change| bounds(cost, &[change], &[Progress::Done]);
        let shrunk = SectionCost { idle: sum(0.0), most: sum(1.0), ..cost() };
        assert_eq!(done(&shrunk, pool("a", Action::Update)), (0.0, 4.0));
        assert_eq!(done(&shrunk, pool("a", Action::Replace)), (0.0, 1.0));
        let fixed = SectionCost { idle: sum(1.0), most: sum(1.0), ..cost() };
        assert_eq!(done(&fixed, pool("a", Action::Update)), (1.0, 4.0));
        let path = "/v1/p:setSize".to_owned();
        let request = Call { api: Api::Gke, method: Method::Post, path, body: None, deferred: Vec::new() };
        let sized = Change { steps: vec![Step::Call(request)], ..pool("a", Action::Update) };
        assert_eq!(done(&fixed, sized), (1.0, 1.0));
        // More nodes than the limit of before, which somebody else added.
        let crowded = SectionCost { before: sum(5.0), ..shrunk };
        assert_eq!(done(&crowded, pool("a", Action::Update)), (0.0, 5.0));
        let manual = SectionCost { live_idle: sum(3.0), live_most: sum(3.0), ..fixed };
        assert_eq!(done(&manual, pool("a", Action::Update)), (1.0, 1.0));
    }

    #[test]
    fn nothing_is_certain_of_nodes_that_google_cloud_takes_away() {
        let none = Some(Sum::default());
        let cost = SectionCost { certain_idle: none.clone(), live_certain: none, ..cost() };
        for (progress, expect) in [(Progress::Untouched, (0.0, 4.0)), (Progress::Done, (0.0, 8.0))] {
            assert_eq!(bounds(&cost, &[pool("a", Action::Update)], &[progress]), expect, "{progress:?}");
        }
    }

    #[test]
    fn of_several_capacity_options_the_cheapest_is_certain() {
        let cheapest = Some(Sum { usd: 0.5, ..Sum::default() });
        let cost = SectionCost { certain_idle: cheapest, ..cost() };
        assert_eq!(bounds(&cost, &[pool("a", Action::Create)], &[Progress::Done]), (0.5, 8.0));
        let mut both = cost.clone();
        both += &self::cost();
        assert_eq!((both.least().usd, both.idle.usd), (1.5, 2.0));
    }
}
