//! The one list of sections that stand for something that is made. [`Section`] has the
//! questions that all of them answer. Beside its own file a section needs its row here and its field in [`Stack`].

use std::collections::BTreeMap;

use super::Stack;
use kinds::section::{Pods, Section};
use model::address::{FieldPath, Segment};

/// How a section is found in a stack.
pub(crate) struct Row {
    /// As it stands in the file.
    pub(crate) name: &'static str,
    /// True if there can be several, by key.
    pub(crate) keyed: bool,
    all: for<'s> fn(&'s Stack) -> Vec<(&'s str, &'s dyn Section)>,
    remove: fn(&mut Stack, &str) -> bool,
}

/// A section of a stack, with its place.
pub(crate) struct Placed<'s> {
    /// Of a section inside of another: that of the outer one.
    pub(crate) row: &'static Row,
    /// Its key; empty for a section that comes once.
    pub(crate) key: &'s str,
    /// Its place in the file.
    pub(crate) path: FieldPath,
    /// True if another section holds it.
    pub(crate) is_inner: bool,
    /// The section itself.
    pub(crate) section: &'s dyn Section,
}

macro_rules! once {
    ($field:ident) => {
        Row {
            name: stringify!($field),
            keyed: false,
            all: |stack| stack.$field.iter().map(|section| ("", section as &dyn Section)).collect(),
            remove: |stack, _| stack.$field.take().is_some(),
        }
    };
}

macro_rules! keyed {
    ($field:ident) => {
        Row {
            name: stringify!($field),
            keyed: true,
            all: |stack| members(&stack.$field),
            remove: |stack, key| stack.$field.remove(key).is_some(),
        }
    };
}

/// In the order in which people write them.
pub(crate) const SECTIONS: &[Row] = &[
    once!(cluster),
    keyed!(node_pool),
    keyed!(namespace),
    once!(gpu_driver),
    once!(dask_operator),
    once!(kueue),
    keyed!(queue),
    keyed!(environment),
    keyed!(dask_cluster),
    keyed!(dask_job),
    keyed!(job),
    keyed!(provisioning_request),
    keyed!(notebook),
    keyed!(manifest),
    keyed!(helm_release),
    keyed!(check),
];

fn members<S: Section>(map: &BTreeMap<String, S>) -> Vec<(&str, &dyn Section)> {
    map.iter().map(|(key, section)| (key.as_str(), section as &dyn Section)).collect()
}

/// Returns true if a table of the file holds sections by key: `[node_pool.a]`.
pub fn is_keyed(name: &str) -> bool {
    SECTIONS.iter().any(|row| row.name == name && row.keyed)
}

impl Stack {
    /// Returns the places of the sections in the file; after each, those of the sections inside of it.
    pub fn section_paths(&self) -> Vec<FieldPath> {
        self.sections().into_iter().map(|placed| placed.path).collect()
    }

    /// Returns every section, and after each the ones inside of it.
    pub(crate) fn sections(&self) -> Vec<Placed<'_>> {
        let mut found = Vec::new();
        for row in SECTIONS {
            for (key, section) in (row.all)(self) {
                let path = match row.keyed {
                    true => FieldPath::keys([row.name, key]),
                    false => FieldPath::keys([row.name]),
                };
                let inner = section.inner().into_iter().map(|inner| Placed {
                    row,
                    key: inner.key,
                    path: path.key(inner.field).key(inner.key),
                    is_inner: true,
                    section: inner.section,
                });
                let inner: Vec<Placed<'_>> = inner.collect();
                found.push(Placed { row, key, path, is_inner: false, section });
                found.extend(inner);
            }
        }
        found
    }

    /// Returns every pod that the stack makes for its sections. Those of manifests and charts are objects.
    pub fn pods(&self) -> Vec<Pods<'_>> {
        self.sections().iter().flat_map(|placed| placed.section.pods(&placed.path)).collect()
    }

    /// Takes a section away; whether it was there.
    pub fn remove(&mut self, path: &FieldPath) -> bool {
        let keys: Option<Vec<&str>> = path.segments().iter().map(Segment::key).collect();
        match keys.as_deref() {
            Some(["dask_cluster", cluster, "group", key]) => {
                let of = self.dask_cluster.get_mut(*cluster);
                of.is_some_and(|section| section.group.remove(*key).is_some())
            }
            Some([name, key @ ..]) if key.len() < 2 => {
                let row = SECTIONS.iter().find(|row| row.name == *name && row.keyed != key.is_empty());
                row.is_some_and(|row| (row.remove)(self, key.first().copied().unwrap_or_default()))
            }
            _ => false,
        }
    }
}
