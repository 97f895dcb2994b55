//! Comparison of a live object with what its change was planned for, once its version has moved. A status or a label of
//! others moves it, too.

use serde_json::Value;

use crate::{Change, observe::diff, observe::env_secrets};
use kinds::kind::Compare;
use model::address::FieldPath;
use model::resource::{Owner, Resource};
use model::secrets::env_values::Given;

/// Relations of a live object to its planned change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// As it is desired already, and ours.
    UpToDate,
    /// As the change was planned for: whatever moved, the plan does not depend on it.
    Planned,
    /// Something else.
    Moved,
}

/// Compares again what the plan compared.
pub fn recheck(change: &Change, resource: &Resource, owner: &Owner, given: &Given, live: &Value) -> Recheck {
    let Compare::Kubernetes(effect) = &kinds::of(change.kind).compare else {
        return Recheck::Moved;
    };
    let (schema, manager) =
        (kinds::kubernetes::object::object_schema(&resource.identity), owner.field_manager());
    let compared = env_secrets::compare(given, &resource.body, live, &manager, schema.as_ref(), *effect);
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
    if planned && agreed { Recheck::Planned } else { Recheck::Moved }
}
