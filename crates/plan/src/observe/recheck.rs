//! Compares a live object whose resourceVersion has changed with the object that its change was planned for. The version also
//! changes when a controller writes the status or another tool writes labels.

use serde_json::Value;

use crate::{Change, observe::diff, observe::env_secrets};
use kinds::kind::Compare;
use model::address::FieldPath;
use model::resource::{Owner, Resource};
use model::secrets::env_values::EnvValues;

/// Relations of a live object to its planned change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// It has the desired values, and the stack owns it.
    UpToDate,
    /// The planned change is still valid: nothing that the plan depends on has changed.
    Planned,
    /// The planned change is no longer valid.
    Changed,
}

/// Repeats the comparison of the plan.
pub fn recheck(
    change: &Change,
    resource: &Resource,
    owner: &Owner,
    env_values: &EnvValues,
    live: &Value,
) -> Recheck {
    let Compare::Kubernetes(effect) = &kinds::of(change.kind).compare else {
        return Recheck::Changed;
    };
    let (schema, manager) =
        (kinds::kubernetes::object::object_schema(&resource.identity), owner.field_manager());
    let compared = env_secrets::compare(env_values, &resource.body, live, &manager, schema.as_ref(), *effect);
    if compared.changes.is_empty() && diff::applied_by(live, &manager) {
        return Recheck::UpToDate;
    }
    let planned = compared.changes.iter().all(|now| {
        let same = change.fields.iter().find(|field| field.path == now.path);
        same.is_some_and(|field| (&field.before, &field.after) == (&now.before, &now.after))
    });
    let adopted = |path: &FieldPath| {
        change
            .adopted
            .as_ref()
            .is_some_and(|adopted| adopted.fields.is_empty() || adopted.fields.contains(path))
    };
    let agreed = compared.others.iter().all(|(path, _)| adopted(path));
    if planned && agreed { Recheck::Planned } else { Recheck::Changed }
}
