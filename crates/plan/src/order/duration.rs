//! The usual duration of an apply: the duration of the longest path through the changes that wait for each other.

use crate::{Change, Plan};
use model::resource::DurationEstimate;

/// The path through the plan that takes longest; changes without a known duration are not on it.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath<'p> {
    /// The duration of the whole path, if all of it is fast and if all of it is slow.
    pub estimate: DurationEstimate,
    /// The changes on it, in their order.
    pub changes: Vec<&'p Change>,
}

impl Plan {
    /// Returns the longest path through the plan if everything is slow; `None` if no duration is known.
    pub fn critical_path(&self) -> Option<CriticalPath<'_>> {
        let own: Vec<Option<DurationEstimate>> = self.changes.iter().map(|change| change.estimate).collect();
        let (estimate, indices) = longest(&own, |index| self.predecessors(&self.changes[index]).collect())?;
        Some(CriticalPath {
            estimate,
            changes: indices.into_iter().map(|index| &self.changes[index]).collect(),
        })
    }
}

/// The longest path up to a change, and including it.
#[derive(Clone, Copy, Default)]
struct Path {
    estimate: DurationEstimate,
    /// The last change on it with a known duration.
    last: Option<usize>,
    /// The one before that.
    earlier: Option<usize>,
}

fn longest(
    own: &[Option<DurationEstimate>],
    before: impl Fn(usize) -> Vec<usize>,
) -> Option<(DurationEstimate, Vec<usize>)> {
    let paths = paths(own, before);
    let ends = paths.iter().filter_map(|path| Some((path.estimate, path.last?)));
    let (estimate, last) = ends.max_by_key(|(estimate, _)| estimate.most)?;
    let mut indices: Vec<usize> =
        std::iter::successors(Some(last), |index| paths.get(*index)?.earlier).collect();
    indices.reverse();
    Some((estimate, indices))
}

fn paths(own: &[Option<DurationEstimate>], before: impl Fn(usize) -> Vec<usize>) -> Vec<Path> {
    let mut paths: Vec<Option<Path>> = vec![None; own.len()];
    let mut open: Vec<usize> = (0..own.len()).rev().collect();
    // Each is looked at again after all that it waits for; a plan has no circles.
    while let Some(index) = open.last().copied() {
        let before = before(index);
        let ahead: Vec<usize> = before.iter().copied().filter(|index| paths[*index].is_none()).collect();
        if paths[index].is_some() || ahead.is_empty() {
            open.pop();
            let reached = before.into_iter().filter_map(|index| paths[index]);
            let reached = reached.max_by_key(|path| path.estimate.most).unwrap_or_default();
            paths[index].get_or_insert_with(|| own[index].map_or(reached, |own| reached.and(index, own)));
        }
        open.extend(ahead);
    }
    paths.into_iter().map(Option::unwrap_or_default).collect()
}

impl Path {
    fn and(self, index: usize, own: DurationEstimate) -> Self {
        Self { estimate: self.estimate + own, last: Some(index), earlier: self.last }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(seconds: u32) -> DurationEstimate {
        DurationEstimate { least: seconds / 2, most: seconds }
    }

    #[test]
    fn what_is_quick_between_two_that_take_long_is_passed_over() {
        let own = [Some(time(300)), None, Some(time(100)), Some(time(200)), None];
        let before = |index: usize| [vec![], vec![0], vec![1], vec![1], vec![2, 3]][index].clone();
        let estimate = DurationEstimate { least: 250, most: 500 };
        assert_eq!(longest(&own, before), Some((estimate, vec![0, 3])));
        assert_eq!(longest(&[None, None], |_| Vec::new()), None);
    }

    proptest! {
        /// Checks that no path is longer, and that the reported one is a path.
        #[test]
        fn none_is_longer(drawn in prop::collection::vec((prop::option::of(1_u32..1000), any::<u16>()), 1..12)) {
            let own: Vec<Option<DurationEstimate>> = drawn.iter().map(|(seconds, _)| seconds.map(time)).collect();
            // Each change depends on the earlier ones whose bit is set.
            let before = |index: usize| (0..index).filter(|other| drawn[index].1 & (1 << other) != 0).collect::<Vec<_>>();
            fn most(index: usize, own: &[Option<DurationEstimate>], before: &dyn Fn(usize) -> Vec<usize>) -> u32 {
                let reached = before(index).into_iter().map(|index| most(index, own, before)).max();
                reached.unwrap_or(0) + own[index].map_or(0, |own| own.most)
            }
            let expected = (0..own.len()).map(|index| most(index, &own, &before)).max().unwrap();
            let found = longest(&own, before);
            prop_assert_eq!(found.as_ref().map_or(0, |(estimate, _)| estimate.most), expected);
            if let Some((estimate, indices)) = found {
                prop_assert_eq!(indices.iter().filter_map(|index| own[*index]).map(|own| own.most).sum::<u32>(), estimate.most);
                prop_assert!(indices.is_sorted());
            }
        }
    }
}
