//! The machines that there are now, by script, for pools that wait for some.

use jiff::Timestamp;
use serde_json::Value;

use super::super::object::{list, text};
use super::capacity::{Capacity, Start, WAYS};
use super::round::PoolView;
use super::select::glob;
use crate::clock::Scale;

/// How the machines of a pool are bought, if they are waited for.
fn way(pool: &Value) -> Option<&'static str> {
    let [queued, flex_start] = WAYS;
    match () {
        () if pool["queuedProvisioning"]["enabled"] == true => Some(queued),
        () if pool["config"]["flexStart"] == true => Some(flex_start),
        () => None,
    }
}

impl Capacity {
    fn covers(&self, view: &PoolView) -> bool {
        let config = &view.pool["config"];
        let mut gpus = list(config, "/accelerators").iter().map(|gpu| text(gpu, "/acceleratorType"));
        way(&view.pool).is_some_and(|way| self.way.as_deref().is_none_or(|only| only == way))
            && glob(&self.pool, text(&view.pool, "/name"))
            && self.gpu.as_ref().is_none_or(|only| gpus.any(|gpu| glob(only, gpu)))
            && self.machine.as_ref().is_none_or(|only| glob(only, text(config, "/machineType")))
    }

    /// From when to when those that were asked for at a moment are to be had.
    fn window(&self, asked: Timestamp, clock: &Scale) -> (Timestamp, Timestamp) {
        let start = match self.from {
            Start::Always => Timestamp::MIN,
            Start::At(moment) => moment,
            Start::After(seconds) => clock.after(asked, of(seconds)),
        };
        (start, self.lasts.map_or(Timestamp::MAX, |seconds| clock.after(start, of(seconds))))
    }
}

/// Whole seconds as the clock takes them.
#[expect(clippy::cast_precision_loss, reason = "durations of days")]
pub fn of(seconds: u64) -> f64 {
    seconds as f64
}

/// The machines that there are now, for whoever asked at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Market<'a> {
    pub rules: &'a [Capacity],
    pub now: Timestamp,
    pub clock: &'a Scale,
}

/// Nodes that can be had in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// As many as are asked for.
    All,
    Some(u32),
}

impl Free {
    pub fn most(self, wanted: u32) -> u32 {
        match self {
            Self::All => wanted,
            Self::Some(nodes) => nodes.min(wanted),
        }
    }
}

impl<'a> Market<'a> {
    fn about(self, view: &PoolView) -> impl Iterator<Item = &'a Capacity> {
        self.rules.iter().filter(move |rule| rule.covers(view))
    }

    /// Returns true if a rule covers the pool.
    pub fn knows(self, view: &PoolView) -> bool {
        self.about(view).next().is_some()
    }

    /// How many nodes more there are for a pool in a zone.
    pub fn free(self, pools: &[PoolView], view: &PoolView, zone: &str, asked: Timestamp) -> Free {
        let mut sum = 0_u32;
        for rule in self.about(view).filter(|rule| rule.zone.as_ref().is_none_or(|only| glob(only, zone))) {
            let (start, end) = rule.window(asked, self.clock);
            if start > self.now || end <= self.now {
                continue;
            }
            let Some(nodes) = rule.nodes else { return Free::All };
            let taken: u32 = pools
                .iter()
                .filter(|other| rule.covers(other))
                .filter_map(|other| other.target_sizes.get(zone))
                .sum();
            sum = sum.saturating_add(nodes.saturating_sub(taken));
        }
        Free::Some(sum)
    }

    /// When a pool's next machines come, as far as that is a matter of time.
    pub fn next(self, view: &PoolView, asked: Timestamp) -> Option<Timestamp> {
        let starts = self.about(view).map(|rule| rule.window(asked, self.clock).0);
        starts.filter(|start| *start > self.now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{gpu, pool};
    use super::*;
    use serde_json::json;

    fn queued(name: &str) -> PoolView {
        let mut view = pool(name, "a2-highgpu-1g", 0, gpu("nvidia-tesla-a100", "1", "DEFAULT"));
        view.pool["queuedProvisioning"] = json!({ "enabled": true });
        view
    }

    #[test]
    fn machines_are_there_where_and_when_the_rules_say() {
        let now: Timestamp = "2026-11-24T03:00:00Z".parse().expect("a time");
        let clock = Scale { time_scale: 60.0 };
        let ago = |minutes| now - jiff::SignedDuration::from_mins(minutes);
        let rule = Capacity::default;
        let hours = |count: u64| count * 3600;
        // Four hours of the service are four minutes here.
        let cases = [
            (vec![], None),
            (vec![rule()], Some(Free::All)),
            (vec![Capacity { way: Some("flex-start".to_owned()), ..rule() }], None),
            (vec![Capacity { pool: "b*".to_owned(), ..rule() }], None),
            (vec![Capacity { gpu: Some("*a100".to_owned()), nodes: Some(8), ..rule() }], Some(Free::Some(8))),
            (vec![Capacity { machine: Some("a3*".to_owned()), ..rule() }], None),
            (vec![Capacity { zone: Some("*-b".to_owned()), ..rule() }], Some(Free::Some(0))),
            (vec![Capacity { from: Start::At(now), ..rule() }], Some(Free::All)),
            (
                vec![Capacity { from: Start::At(ago(5)), lasts: Some(hours(4)), ..rule() }],
                Some(Free::Some(0)),
            ),
            (vec![Capacity { from: Start::After(hours(5)), ..rule() }], Some(Free::Some(0))),
            (vec![Capacity { from: Start::After(hours(4)), ..rule() }], Some(Free::All)),
            (
                vec![
                    Capacity { nodes: Some(2), ..rule() },
                    Capacity { nodes: Some(3), from: Start::After(hours(4)), ..rule() },
                ],
                Some(Free::Some(5)),
            ),
        ];
        for (rules, expect) in cases {
            let market = Market { rules: &rules, now, clock: &clock };
            let view = queued("a100");
            let free = market.free(std::slice::from_ref(&view), &view, "us-central1-c", ago(4));
            assert_eq!(market.knows(&view).then_some(free), expect, "{rules:?}");
        }
        let rules =
            [Capacity { nodes: Some(3), ..rule() }, Capacity { from: Start::After(hours(5)), ..rule() }];
        let market = Market { rules: &rules, now, clock: &clock };
        let mut other = queued("b100");
        other.target_sizes.insert("us-central1-c".to_owned(), 2);
        let view = queued("a100");
        let pools = [view.clone(), other];
        assert_eq!(market.free(&pools, &view, "us-central1-c", ago(4)), Free::Some(1), "two are taken");
        assert_eq!(market.next(&view, ago(4)), Some(now + jiff::SignedDuration::from_mins(1)));
    }
}
