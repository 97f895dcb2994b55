//! The order of the changes of a plan: single edges, and groups in which each change of one side comes before each of the other.
//! A group with many edges becomes a barrier.

pub(crate) mod duration;
pub mod graph;
pub(crate) mod relations;

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graphmap::DiGraphMap;

use crate::{Barrier, Change};

/// The maximum number of edges that a group may have without becoming a barrier.
const MAX_PAIRS: usize = 1024;

/// The order of changes, as edges and groups of their indices.
#[derive(Debug)]
pub(crate) struct Order {
    pairs: Vec<(usize, usize)>,
    groups: Vec<Group>,
    /// The most edges of a group that are written out.
    limit: usize,
}

impl Default for Order {
    fn default() -> Self {
        Self::with_limit(MAX_PAIRS)
    }
}

/// Changes that all come before all of the others.
#[derive(Debug)]
struct Group {
    before: Vec<usize>,
    after: Vec<usize>,
}

impl Order {
    /// Adds the edge from `before` to `after`.
    pub fn add_edge(&mut self, before: usize, after: usize) {
        self.pairs.push((before, after));
    }

    /// Creates an empty order. Groups with more edges than `limit` become barriers.
    pub fn with_limit(limit: usize) -> Self {
        Self { pairs: Vec::new(), groups: Vec::new(), limit }
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.groups.is_empty()
    }

    /// Returns true if a group of this size has too many pairs to write them out.
    pub fn is_long(&self, before: usize, after: usize) -> bool {
        before.saturating_mul(after) > self.limit
    }

    /// Adds an edge from each change in `before` to each change in `after`, except from a change to itself.
    pub fn add_edges(&mut self, before: &[usize], after: &[usize]) {
        if !self.is_long(before.len(), after.len()) {
            for after in after {
                let others = before.iter().filter(|before| *before != after);
                self.pairs.extend(others.map(|before| (*before, *after)));
            }
            return;
        }
        let later: BTreeSet<usize> = after.iter().copied().collect();
        let (both, before): (Vec<usize>, Vec<usize>) =
            before.iter().copied().partition(|index| later.contains(index));
        match both.as_slice() {
            [] => self.group(before, after.to_vec()),
            [one] => {
                let others = after.iter().filter(|after| *after != one);
                self.pairs.extend(others.map(|after| (*one, *after)));
                self.group(before, after.to_vec());
            }
            // They are in a cycle, whatever else they follow.
            [..] => self.group(before.into_iter().chain(both).collect(), after.to_vec()),
        }
    }

    fn group(&mut self, before: Vec<usize>, after: Vec<usize>) {
        if !before.is_empty() && !after.is_empty() {
            self.groups.push(Group { before, after });
        }
    }

    /// Removes the edges inside each cycle.
    pub fn remove_cycle_edges(&mut self, cycles: &[Vec<usize>]) {
        if cycles.is_empty() {
            return;
        }
        let circle_of: BTreeMap<usize, usize> = cycles
            .iter()
            .enumerate()
            .flat_map(|(number, cycle)| cycle.iter().map(move |index| (*index, number)))
            .collect();
        let cycle = |index: &usize| circle_of.get(index);
        self.pairs.retain(|(before, after)| cycle(before).is_none() || cycle(before) != cycle(after));
        for Group { before, after } in std::mem::take(&mut self.groups) {
            // In one cycle at most: what is before all in one is before all in another.
            let ahead: BTreeSet<&usize> = before.iter().filter_map(cycle).collect();
            let Some(met) = after.iter().filter_map(cycle).find(|number| ahead.contains(number)) else {
                self.group(before, after);
                continue;
            };
            let (inside, outside) = before.into_iter().partition(|index| cycle(index) == Some(met));
            let later: Vec<usize> = after.iter().copied().filter(|index| cycle(index) != Some(met)).collect();
            self.group(outside, after);
            self.group(inside, later);
        }
    }
}

/// Returns the cycles.
pub(crate) fn cycles(count: usize, orders: &[&Order]) -> Vec<Vec<usize>> {
    let mut graph = DiGraphMap::<usize, ()>::new();
    for index in 0..count {
        graph.add_node(index);
    }
    for (before, after) in orders.iter().flat_map(|order| &order.pairs) {
        graph.add_edge(*before, *after, ());
    }
    for (barrier, Group { before, after }) in (count..).zip(orders.iter().flat_map(|order| &order.groups)) {
        for before in before {
            graph.add_edge(*before, barrier, ());
        }
        for after in after {
            graph.add_edge(barrier, *after, ());
        }
    }
    if toposort(&graph, None).is_ok() {
        return Vec::new();
    }
    let mut cycles = tarjan_scc(&graph);
    cycles.iter_mut().for_each(|cycle| cycle.retain(|index| *index < count));
    cycles.retain(|cycle| cycle.len() > 1);
    cycles
}

/// Writes the orders into the changes, and returns the barriers of their groups.
pub(crate) fn write_edges<const N: usize>(orders: [Order; N], changes: &mut [Change]) -> Vec<Barrier> {
    let count = changes.len();
    let mut barriers = Vec::new();
    for Order { pairs, groups, limit: _ } in orders {
        for (before, after) in pairs {
            changes[after].depends_on.push(before);
        }
        for Group { before: depends_on, after } in groups {
            for after in after {
                changes[after].depends_on.push(count + barriers.len());
            }
            barriers.push(Barrier { depends_on });
        }
    }
    for change in changes {
        change.depends_on.sort_unstable();
        change.depends_on.dedup();
    }
    barriers
}

#[cfg(test)]
impl Order {
    /// Returns all edges, including those of groups.
    pub fn written_out(&self) -> BTreeSet<(usize, usize)> {
        let of_group = |group: &Group| {
            let Group { before, after } = group;
            let pairs = before.iter().flat_map(|before| after.iter().map(|after| (*before, *after)));
            pairs.collect::<Vec<(usize, usize)>>()
        };
        self.pairs.iter().copied().chain(self.groups.iter().flat_map(of_group)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Sides = (BTreeSet<usize>, BTreeSet<usize>);

    /// Draws two orders: one that stays, and one that gives way to it. In each no index is on both sides of a group.
    fn drawn() -> impl Strategy<Value = (Vec<Sides>, Vec<Sides>)> {
        let side = || prop::collection::btree_set(0_usize..9, 1..5);
        let sides = (side(), side()).prop_map(|(before, after)| {
            let after = after.difference(&before).copied().collect();
            (before, after)
        });
        let sides = || prop::collection::vec(sides.clone(), 0..4);
        (sides(), sides())
    }

    fn order(limit: usize, sides: &[Sides]) -> Order {
        let mut order = Order::with_limit(limit);
        for (before, after) in sides {
            let list = |side: &BTreeSet<usize>| side.iter().copied().collect::<Vec<usize>>();
            order.add_edges(&list(before), &list(after));
        }
        order
    }

    fn sorted(mut cycles: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
        cycles.iter_mut().for_each(|cycle| cycle.sort_unstable());
        cycles.sort();
        cycles
    }

    proptest! {
        /// Checks that a barrier means the same as its edges: the same cycles, and the same edges left once the cycles are cut.
        #[test]
        fn groups_are_pairs_in_short((stands, gives) in drawn()) {
            let (mut short, mut long) = (order(0, &gives), order(usize::MAX, &gives));
            prop_assert_eq!(short.written_out(), long.written_out());
            let (before, plain) = (order(0, &stands), order(usize::MAX, &stands));
            let met = cycles(9, &[&before, &short]);
            prop_assert_eq!(sorted(met.clone()), sorted(cycles(9, &[&plain, &long])));
            short.remove_cycle_edges(&met);
            long.remove_cycle_edges(&met);
            prop_assert_eq!(short.written_out(), long.written_out());
            prop_assert!(short.groups.iter().all(|group| !group.before.is_empty() && !group.after.is_empty()));
        }
    }

    #[test]
    fn what_follows_itself_among_many_waits_for_the_others() {
        for limit in [0, usize::MAX] {
            let mut order = Order::with_limit(limit);
            order.add_edges(&[0, 1, 2], &[2, 3]);
            let pairs = BTreeSet::from([(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]);
            assert_eq!(order.written_out(), pairs, "{limit}");
            assert!(cycles(4, &[&order]).is_empty());
        }
        for limit in [0, usize::MAX] {
            let mut order = Order::with_limit(limit);
            order.add_edges(&[0, 1], &[0, 1]);
            assert_eq!(sorted(cycles(2, &[&order])), [[0, 1]], "{limit}");
        }
    }
}
