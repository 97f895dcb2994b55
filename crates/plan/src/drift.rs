//! Changes made outside the stack since the last apply: which field, by which field manager, and when. GKE's API keeps no owner
//! of a field. There, drift is a difference from what the record says was last set. Fields that another tool set and the stack
//! does not are reported as external.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::observe::Observed;
use crate::observe::diff;
use crate::observe::env_secrets::{self, check_env_is_set};
use crate::observe::inputs::Inputs;
use crate::planner::Planner;
use crate::propose::dask;
use crate::propose::zones::is_surge;
use crate::stop;
use kinds::comparison::Comparison;
use kinds::gke;
use kinds::kind::Compare;
use kinds::kubernetes::ownership;
use model::address::{Address, FieldPath};
use model::diag::Diagnostic;
use model::record::Entry;
use model::resource::{Effect, FieldChange, Identity, KindId, RecordedKind, Resource, World};
use model::schema::Schema;

/// One resource that was changed or deleted outside the stack since the last apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    pub address: Address,
    pub identity: Identity,
    pub kind: RecordedKind,
    pub drift_kind: DriftKind,
    /// Fields that differ: `before` is live, `after` is what the stack sets.
    pub fields: Vec<FieldChange>,
    /// Fields that the stack does not set and another tool does: `before` is live.
    pub set_by_others: Vec<FieldChange>,
    /// `stack.toml:12:1`; `None` if the file no longer has it.
    pub location: Option<String>,
}

/// Kinds of drift.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriftKind {
    /// Another tool wrote some of its fields.
    Changed,
    /// Another tool deleted it.
    Deleted,
    /// Another tool deleted it and created a new one of the same name: the field manager of the new one, and when.
    Replaced(Option<(String, String)>),
    /// Another tool removed the stack's field manager from it.
    OwnershipRemoved,
}

/// The drift found in the live state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriftReport {
    /// The drift, in the order of the stack, with deleted resources last.
    pub found: Vec<Drift>,
    /// True if there is a record to compare GKE resources with.
    pub recorded: bool,
}

impl DriftReport {
    /// Returns how many resources were changed outside the stack, and how many were deleted.
    pub fn counts(&self) -> (usize, usize) {
        let gone = self.found.iter().filter(|drift| drift.drift_kind == DriftKind::Deleted).count();
        (self.found.len() - gone, gone)
    }
}

/// Returns the changes made outside the stack.
///
/// # Errors
///
/// Part of the live state cannot be read, or a target is an unknown address.
pub fn drift(inputs: Inputs<'_>) -> Result<DriftReport, Vec<Diagnostic>> {
    let inputs = &stop::apply_stops(inputs)?;
    let mut planner = Planner::new(inputs);
    planner.check_readable();
    planner.select();
    for resource in inputs.desired.iter().filter(|resource| planner.selected.has(&resource.address)) {
        check_env_is_set(inputs, resource, &mut planner.problems);
    }
    if !planner.problems.is_empty() {
        return Err(planner.problems);
    }
    let record = inputs.world.record.as_ref();
    // An intent names what may never have been made.
    let made = record.filter(|record| !record.intent).map(|record| record.inventory.as_slice());
    let made = made.unwrap_or_default().iter().filter(|entry| planner.selected.has(&entry.address));
    let lost: Vec<(&Entry, DriftKind)> = made
        .filter(|entry| inputs.stop_of(&entry.identity).is_none())
        .filter_map(|entry| Some((entry, lost(inputs, &entry.identity)?)))
        .collect();
    let others = lost.iter().filter(|(_, what)| *what != DriftKind::Deleted);
    let others: BTreeMap<&Identity, &DriftKind> =
        others.map(|(entry, what)| (&entry.identity, what)).collect();
    let mut found: Vec<Drift> = Vec::new();
    for resource in inputs.desired.iter().filter(|resource| planner.selected.has(&resource.address)) {
        let schema = planner.observed.crd_schemas.schema(resource);
        let replaced = others.get(&resource.identity).map(|what| (*what).clone());
        let (fields, set_by_others) = match &resource.identity {
            Identity::Object(_) if replaced.is_some() => (
                compared(inputs, resource, schema.as_ref()).map(|all| all.changes).unwrap_or_default(),
                Vec::new(),
            ),
            Identity::Object(_) => object_drift(inputs, resource, schema.as_ref()),
            Identity::Cluster(_) | Identity::NodePool { .. } => {
                let last = record.and_then(|record| record.last_set(&resource.identity));
                last.map(|last| gke_drift(inputs.world, &resource.identity, resource.kind, last))
                    .unwrap_or_default()
            }
            Identity::Check(_) => Default::default(),
        };
        if replaced.is_some() || !fields.is_empty() || !set_by_others.is_empty() {
            let (address, identity, kind) =
                (resource.address.clone(), resource.identity.clone(), resource.kind.into());
            let (what, location) = (replaced.unwrap_or(DriftKind::Changed), location(inputs, resource));
            found.push(Drift { address, identity, kind, drift_kind: what, fields, set_by_others, location });
        }
    }
    let told: BTreeSet<&Identity> = found.iter().map(|drift| &drift.identity).collect();
    let rest = lost.into_iter().filter(|(entry, _)| !told.contains(&entry.identity));
    let rest: Vec<Drift> = rest.map(|(entry, what)| lost_resource(&planner.observed, entry, what)).collect();
    found.extend(rest);
    Ok(DriftReport { found, recorded: record.is_some() })
}

/// Returns how a recorded resource was lost; `None` if it is live and still the stack's.
fn lost(inputs: &Inputs<'_>, identity: &Identity) -> Option<DriftKind> {
    let Some(live) = inputs.world.find(identity) else { return Some(DriftKind::Deleted) };
    match identity {
        Identity::Object(_) if !diff::applied_by(live, &inputs.owner.field_manager()) => {
            match is_the_same(inputs, live) {
                true => Some(DriftKind::OwnershipRemoved),
                false => Some(DriftKind::Replaced(diff::creator(live))),
            }
        }
        Identity::Object(_) | Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => None,
    }
}

/// Returns true if a live object still names this stack and is the one that the stack created: its creator is not recorded, or it
/// is older than the last apply.
fn is_the_same(inputs: &Inputs<'_>, live: &Value) -> bool {
    let written = inputs.world.record.as_ref().map(|record| record.written.as_str()).unwrap_or_default();
    let made = live["metadata"]["creationTimestamp"].as_str();
    let before = made.is_some_and(|made| {
        let times = (made.parse::<jiff::Timestamp>(), written.parse::<jiff::Timestamp>());
        matches!(times, (Ok(made), Ok(written)) if made <= written)
    });
    let mut entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let has_creator = entries.any(|entry| entry["subresource"].is_null());
    (before || !has_creator) && ownership::has_stack_labels(live, &inputs.owner.stack)
}

fn lost_resource(
    seen: &Observed<'_>,
    Entry { address, identity, kind, .. }: &Entry,
    what: DriftKind,
) -> Drift {
    let desired = seen.desired.get(identity);
    Drift {
        address: address.clone(),
        identity: identity.clone(),
        kind: kind.clone(),
        drift_kind: what,
        fields: Vec::new(),
        set_by_others: Vec::new(),
        location: desired.and_then(|desired| location(seen.inputs, desired)),
    }
}

fn location(inputs: &Inputs<'_>, desired: &Resource) -> Option<String> {
    inputs.sources.locate(&desired.origin).map(|location| location.to_string())
}

/// Desired fields that differ, and fields that the stack does not set and another tool does.
type FieldDrift = (Vec<FieldChange>, Vec<FieldChange>);

/// Returns the differences between a live object and the desired one; `None` if it does not exist.
fn compared(inputs: &Inputs<'_>, resource: &Resource, schema: Option<&Schema>) -> Option<Comparison> {
    let live = inputs.world.find(&resource.identity)?;
    let manager = inputs.owner.field_manager();
    let Compare::Kubernetes(effect) = &kinds::of(resource.kind).compare else { return None };
    Some(env_secrets::compare(&inputs.world.env_values, &resource.body, live, &manager, schema, *effect))
}

/// Returns the desired fields that another field manager wrote last, and the fields that only other field managers set.
fn object_drift(inputs: &Inputs<'_>, resource: &Resource, schema: Option<&Schema>) -> FieldDrift {
    let manager = inputs.owner.field_manager();
    let live = inputs.world.find(&resource.identity).filter(|live| diff::applied_by(live, &manager));
    let (Some(live), Some(compared)) = (live, compared(inputs, resource, schema)) else {
        return FieldDrift::default();
    };
    let applied = |path: &FieldPath| {
        let other =
            compared.others.iter().find(|(field, _)| field == path).map(|(_, other)| other.clone())?;
        let time = diff::last_written(live, &other).unwrap_or_default();
        Some((other, time))
    };
    let with_owner = |field: FieldChange| {
        let drift = field.drift.clone().or_else(|| applied(&field.path))?;
        Some(FieldChange { drift: Some(drift), ..field })
    };
    let mut set_by_others =
        diff::set_by_others(&resource.body, &resource.create_only, live, &manager, schema);
    env_secrets::redact(&resource.body, &mut set_by_others);
    let known = |field: &FieldChange| compared.changes.iter().any(|other| other.path == field.path);
    let set_by_others = set_by_others.into_iter().filter(|field| !known(field)).collect();
    let mut fields: Vec<FieldChange> = compared.changes.clone().into_iter().filter_map(with_owner).collect();
    fields.extend(dask::replicas_change(inputs.world, resource, live));
    (fields, set_by_others)
}

/// Returns the fields of a GKE resource that differ from what was last set, and the map and list entries that the stack did not
/// add.
fn gke_drift(world: &World, identity: &Identity, kind: KindId, last: &Value) -> FieldDrift {
    let (Some(live), Compare::Gke(message, rules)) = (world.find(identity), &kinds::of(kind).compare) else {
        return FieldDrift::default();
    };
    let mut live = live.clone();
    if let Identity::NodePool { pool, .. } = identity {
        // An unknown value is not reported as changed.
        let desired = last["nodeCount"].as_u64();
        let surge = |size: &&u32| desired.is_none_or(|desired| !is_surge(&live, desired, **size));
        let size = world.sizes.get(pool).filter(surge);
        let size = size.map_or_else(|| last["nodeCount"].clone(), |size| (*size).into());
        live["nodeCount"] = size;
    }
    let changes = gke::api::compared(*message, rules, last, &live, None).changes;
    let set_by_others =
        gke::compare::set_by_others(rules, last, &live).into_iter().map(|(path, value)| FieldChange {
            path,
            before: Some(value),
            after: None,
            effect: Effect::InPlace,
            note: None,
            drift: None,
            secret: false,
        });
    (changes, set_by_others.collect())
}
