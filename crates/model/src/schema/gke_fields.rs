//! Every field of a cluster and of a node pool of the GKE API, from `schemas/gke-fields.tsv`: when it can be set, what changing
//! it does, and which request changes it. The head of the file describes its columns.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Messages that a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Message {
    Cluster,
    NodePool,
}

/// Effects of changing a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    InPlace,
    /// The pool's nodes are recreated.
    RollsNodes,
    /// The pool is recreated.
    Replaces,
    /// The cluster is recreated: the field can be set only at its creation.
    OnlyAtCreation,
    /// GKE accepts the change; its effect on nodes is unknown.
    Unknown,
    /// Output only: only GKE changes it.
    Output,
}

/// The request that changes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GkeCall {
    /// `update.desiredX` (PUT of the cluster), `X` (PUT of the pool), `:method.X` (POST).
    pub name: &'static str,
    /// The path of the value that it takes.
    pub root: &'static str,
    /// True if the API replaces the whole value: the live value is then sent with the desired one over it.
    pub whole: bool,
}

/// A field, or the list or map that contains it.
#[derive(Clone, Debug)]
pub struct GkeField {
    pub message: Message,
    /// The path: `config.kubeletConfig.cpuManagerPolicy`, with `[]` or `{}` after lists and maps.
    pub path: &'static str,
    /// The type in the API: `boolean`, `list of string`, `enum WorkloadMetadataConfig.Mode (GCE_METADATA, …)`.
    pub ty: &'static str,
    pub change: Change,
    /// The request that changes it; `None` if none does.
    pub call: Option<GkeCall>,
    /// Other effects of a change; may be empty.
    pub note: &'static str,
    /// If GKE fills in a value: `yes: …`, `no …`, or empty.
    pub default: &'static str,
    /// Fields and settings that it needs or excludes; may be empty.
    pub conflicts: &'static str,
    /// The sources of these facts, as the head of the file explains.
    pub sources: &'static str,
}

impl GkeField {
    /// Returns the path up to the first list or map, as lists and maps are compared as a whole.
    pub fn place(&self) -> &'static str {
        let end = self.path.find(['[', '{']).unwrap_or(self.path.len());
        &self.path[..end]
    }

    /// Returns the value that a response without the field means, if it is not the type's zero value.
    pub fn absent(&self) -> Option<&'static str> {
        self.default.strip_prefix("no: absent is ")
    }

    /// Returns true for a field with an enumeration as its type.
    pub fn is_name(&self) -> bool {
        self.ty.starts_with("enum ")
    }

    /// Returns true if the field is a list of plain values.
    pub fn is_set(&self) -> bool {
        self.path.ends_with("[]") && self.ty.starts_with("list")
    }
}

static FIELDS: LazyLock<Vec<GkeField>> = LazyLock::new(|| {
    let text = include_str!("../../../../schemas/gke-fields.tsv");
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.filter_map(read).collect()
});

/// Fields by message and [`GkeField::place`]; of several fields with the same place, the first.
static PLACES: LazyLock<BTreeMap<(Message, &'static str), &'static GkeField>> = LazyLock::new(|| {
    let mut places = BTreeMap::new();
    for field in FIELDS.iter() {
        places.entry((field.message, field.place())).or_insert(field);
    }
    places
});

fn read(row: &'static str) -> Option<GkeField> {
    let columns: Vec<&str> = row.split('\t').collect();
    let &[message, path, ty, when, effect, call, root, send, note, default, conflicts, sources] =
        columns.as_slice()
    else {
        return None;
    };
    let change = match (when, effect) {
        ("output", _) => Change::Output,
        (_, "in place") => Change::InPlace,
        (_, "rolls nodes") => Change::RollsNodes,
        (_, "replaces") => Change::Replaces,
        (_, "only at creation") => Change::OnlyAtCreation,
        _ => Change::Unknown,
    };
    let message = if message == "cluster" { Message::Cluster } else { Message::NodePool };
    let call = (!call.is_empty()).then_some(GkeCall { name: call, root, whole: send == "whole" });
    Some(GkeField { message, path, ty, change, call, note, default, conflicts, sources })
}

/// Returns all fields, in the order of the file.
pub fn gke_fields() -> &'static [GkeField] {
    &FIELDS
}

/// Returns the field at a path, or the first one of the list or map there.
pub fn gke_field(message: Message, place: &str) -> Option<&'static GkeField> {
    PLACES.get(&(message, place)).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::schema::{Schema, Type, gke};

    fn leaves(schema: &Schema, path: &str, above: &mut Vec<String>, found: &mut BTreeSet<String>) {
        match schema.ty() {
            Type::Object if !schema.property_names().is_empty() => {
                let names = schema.property_names();
                let own = names.join(",");
                // A message that holds itself.
                if above.contains(&own) {
                    return;
                }
                above.push(own);
                for name in names {
                    let Some(inner) = schema.property(&name) else { continue };
                    let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                    leaves(&inner, &path, above, found);
                }
                above.pop();
            }
            Type::List => {
                if let Some(items) = schema.items() {
                    leaves(&items, &format!("{path}[]"), above, found);
                }
            }
            Type::Map => {
                found.insert(format!("{path}{{}}"));
            }
            _ => {
                found.insert(path.to_owned());
            }
        }
    }

    /// The descriptors are Google's own; the file is maintained by hand.
    #[test]
    fn no_field_of_the_descriptors_is_missing() {
        for (message, name) in [(Message::Cluster, "Cluster"), (Message::NodePool, "NodePool")] {
            let mut found = BTreeSet::new();
            leaves(&gke::message(name).unwrap(), "", &mut Vec::new(), &mut found);
            let known: BTreeSet<&str> =
                FIELDS.iter().filter(|field| field.message == message).map(|field| field.path).collect();
            let missing: Vec<&String> = found
                .iter()
                // Pools have rows of their own; what a cluster's creation says of its first pool is deprecated.
                .filter(|path| message == Message::NodePool || !path.starts_with("nodePools[]"))
                .filter(|path| message == Message::NodePool || !path.starts_with("nodeConfig."))
                .filter(|path| {
                    let inside = |known: &&str| {
                        known.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.'))
                    };
                    !known.contains(path.as_str()) && !known.iter().any(inside)
                })
                .collect();
            assert_eq!(missing, Vec::<&String>::new(), "{name}");
            assert!(found.len() > 100, "{name}");
        }
    }

    #[test]
    fn rows_are_whole() {
        let rows =
            include_str!("../../../../schemas/gke-fields.tsv").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(rows.count(), FIELDS.len() + 1);
        for field in FIELDS.iter() {
            let GkeField { path, change, call, .. } = field;
            if let Some(call) = call {
                assert!(path.starts_with(call.root), "{path}: {}", call.root);
            }
            // A later effect without a call would be a promise that nobody keeps.
            if matches!(change, Change::InPlace | Change::RollsNodes) && *path != "initialClusterVersion" {
                assert!(call.is_some(), "{path}");
            }
            if matches!(change, Change::Output | Change::OnlyAtCreation) {
                assert!(call.is_none(), "{path}");
            }
        }
        let lookup = |path| gke_field(Message::NodePool, path).map(|field| field.change);
        assert_eq!(lookup("config.kubeletConfig.cpuManagerPolicy"), Some(Change::RollsNodes));
        assert_eq!(lookup("config.reservationAffinity.values"), Some(Change::Replaces));
        assert_eq!(lookup("config.nothing"), None);
    }
}
