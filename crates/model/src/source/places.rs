//! Positions of fields by their path. Manifests have hundreds of thousands of fields. So each is a small row that is found
//! through the row of its parent, and no paths are stored.

use std::collections::HashMap;

use super::{FileId, Span};
use crate::address::{FieldPath, Segment};

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub key: Option<Span>,
    pub value: Span,
}

#[derive(Clone, Debug)]
pub(super) struct Places {
    names: HashMap<Box<str>, u32>,
    /// Maps a row and a step below it to the child's row.
    below: HashMap<(u32, Step), u32>,
    /// The rows. The first one is the root. `None` for rows without a position of their own.
    rows: Vec<Option<Row>>,
}

/// The row of a field whose position was added, to add positions below it.
#[derive(Clone, Copy, Debug)]
pub struct Spot(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Name(u32),
    Index(u32),
}

/// A [`Place`] in half the size, as no text is longer than 4 GiB.
#[derive(Clone, Copy, Debug)]
struct Row {
    key: Option<Short>,
    value: Short,
}

#[derive(Clone, Copy, Debug)]
struct Short {
    file: FileId,
    start: u32,
    end: u32,
}

impl Default for Places {
    fn default() -> Self {
        Self { names: HashMap::new(), below: HashMap::new(), rows: vec![None] }
    }
}

impl Places {
    pub fn record(&mut self, path: &FieldPath, place: Place) -> Spot {
        let at = path.segments().iter().fold(0, |at, segment| match segment {
            Segment::Key(key) => {
                let step = Step::Name(self.named(key));
                self.below(at, step)
            }
            Segment::Index(index) => self.below(at, Step::Index(short(*index))),
        });
        self.put(at, place)
    }

    pub fn record_key(&mut self, Spot(above): Spot, name: &str, place: Place) -> Spot {
        let step = Step::Name(self.named(name));
        let at = self.below(above, step);
        self.put(at, place)
    }

    pub fn record_item(&mut self, Spot(above): Spot, index: usize, place: Place) -> Spot {
        let at = self.below(above, Step::Index(short(index)));
        self.put(at, place)
    }

    fn put(&mut self, at: u32, place: Place) -> Spot {
        self.rows[long(at)] = Some(place.into());
        Spot(at)
    }

    fn below(&mut self, at: u32, step: Step) -> u32 {
        let next = short(self.rows.len());
        let row = *self.below.entry((at, step)).or_insert(next);
        if row == next {
            self.rows.push(None);
        }
        row
    }

    /// Removes a field and everything below it.
    pub fn forget(&mut self, path: &FieldPath) {
        let Some((last, above)) = path.segments().split_last() else {
            *self = Self::default();
            return;
        };
        let above = above.iter().try_fold(0, |at, segment| self.step(at, segment));
        if let (Some(at), Some(step)) = (above, self.known(last)) {
            // Its rows stay, and nothing leads to them.
            self.below.remove(&(at, step));
        }
    }

    pub fn get(&self, path: &FieldPath) -> Option<Place> {
        let at = path.segments().iter().try_fold(0, |at, segment| self.step(at, segment))?;
        self.rows[long(at)].map(Place::from)
    }

    /// Returns the position of a field, or of the nearest field around it with a position.
    pub fn nearest(&self, path: &FieldPath) -> Option<Place> {
        let mut at = 0;
        let mut found = self.rows[0];
        for segment in path.segments() {
            let Some(next) = self.step(at, segment) else { break };
            at = next;
            found = self.rows[long(at)].or(found);
        }
        found.map(Place::from)
    }

    fn step(&self, at: u32, segment: &Segment) -> Option<u32> {
        self.below.get(&(at, self.known(segment)?)).copied()
    }

    fn known(&self, segment: &Segment) -> Option<Step> {
        match segment {
            Segment::Key(key) => self.names.get(key.as_str()).copied().map(Step::Name),
            Segment::Index(index) => Some(Step::Index(short(*index))),
        }
    }

    fn named(&mut self, name: &str) -> u32 {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        let next = short(self.names.len());
        self.names.insert(name.into(), next);
        next
    }
}

impl From<Place> for Row {
    fn from(Place { key, value }: Place) -> Self {
        Self { key: key.map(Short::from), value: value.into() }
    }
}

impl From<Row> for Place {
    fn from(Row { key, value }: Row) -> Self {
        Self { key: key.map(Span::from), value: value.into() }
    }
}

impl From<Span> for Short {
    fn from(Span { file, start, end }: Span) -> Self {
        Self { file, start: short(start), end: short(end) }
    }
}

impl From<Short> for Span {
    fn from(Short { file, start, end }: Short) -> Self {
        Self { file, start: long(start), end: long(end) }
    }
}

fn short(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn long(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn paths() -> impl Strategy<Value = FieldPath> {
        let segment = prop_oneof![
            "[ab]".prop_map(Segment::Key),
            (0..2_usize).prop_map(Segment::Index),
            Just(Segment::Key("0".to_owned())),
        ];
        proptest::collection::vec(segment, 0..4).prop_map(FieldPath::from_iter)
    }

    proptest! {
        /// Compares the index with a plain map from full paths.
        #[test]
        fn a_field_is_found_where_it_was_noted(
            steps in proptest::collection::vec((paths(), any::<bool>()), 0..24),
            asked in proptest::collection::vec(paths(), 8),
        ) {
            let mut sources = super::super::Sources::default();
            let file = sources.add("x", "");
            let mut places = Places::default();
            let mut plain = BTreeMap::new();
            for (start, (path, forgets)) in steps.into_iter().enumerate() {
                if forgets {
                    places.forget(&path);
                    plain.retain(|other: &FieldPath, _| !path.contains(other));
                } else {
                    let value = Span { file, start, end: start + 1 };
                    places.record(&path, Place { key: None, value });
                    plain.insert(path, value);
                }
            }
            for path in plain.keys().cloned().chain(asked) {
                prop_assert_eq!(places.get(&path).map(|place| place.value), plain.get(&path).copied());
                let around = std::iter::successors(Some(path.clone()), FieldPath::parent);
                let nearest = around.filter_map(|path| plain.get(&path).copied()).next();
                prop_assert_eq!(places.nearest(&path).map(|place| place.value), nearest);
            }
        }
    }
}
