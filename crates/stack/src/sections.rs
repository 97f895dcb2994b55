//! The list of all sections that have resources. [`Section`] has their common properties. Besides its own file, a section needs a
//! row here and a field in [`Stack`].

use std::collections::BTreeMap;

use super::Stack;
use kinds::section::{Pods, Section};
use model::address::{FieldPath, Segment};

/// A row of the table of section types: the name in the file, and the access to the sections of a [`Stack`].
pub(crate) struct Row {
    /// Its name in the file.
    pub(crate) name: &'static str,
    /// True if there can be several, each with a key.
    pub(crate) keyed: bool,
    all: for<'s> fn(&'s Stack) -> Vec<(&'s str, &'s dyn Section)>,
    remove: fn(&mut Stack, &str) -> bool,
}

/// A section of a stack, with its path.
pub(crate) struct Placed<'s> {
    /// Its row; for a section inside another one, the row of the outer section.
    pub(crate) row: &'static Row,
    /// Its key; empty for a section without keys.
    pub(crate) key: &'s str,
    /// Its path in the file.
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

/// All sections, in their usual order.
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

/// Returns true if the sections of a type have keys: `[node_pool.a]`.
pub fn is_keyed(name: &str) -> bool {
    SECTIONS.iter().any(|row| row.name == name && row.keyed)
}

impl Stack {
    /// Returns the paths of the sections in the file, each followed by those of the sections inside it.
    pub fn section_paths(&self) -> Vec<FieldPath> {
        self.sections().into_iter().map(|placed| placed.path).collect()
    }

    /// Returns all sections, each followed by the ones inside it.
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

    /// Returns all pods that the stack creates for its sections. Pods of manifests and charts are not included.
    pub fn pods(&self) -> Vec<Pods<'_>> {
        self.sections().iter().flat_map(|placed| placed.section.pods(&placed.path)).collect()
    }

    /// Removes a section, and returns true if it existed.
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
