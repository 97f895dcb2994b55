//! Changes that the API server refuses because of another field of the object: changes of a ConfigMap or Secret with `immutable:
//! true`, and of a volume claim that would get smaller.

use serde_json::Value;

use kinds::json::text;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::quantity::Quantity;
use model::resource::{Effect, FieldChange, Resource};

const IMMUTABLE: &str = "it has `immutable: true`";
/// Fields of a ConfigMap or Secret that cannot change once `immutable` is true. Source: `ValidateConfigMapUpdate`, `ValidateSecretUpdate` in `pkg/apis/core/validation/validation.go`.
const IMMUTABLE_FIELDS: [&str; 4] = ["data", "binaryData", "stringData", "immutable"];

fn is_core(resource: &Resource, kinds: &[&str]) -> bool {
    let object = resource.identity.object();
    object.is_some_and(|object| object.gvk.group.is_empty() && kinds.contains(&object.gvk.kind.as_str()))
}

/// Makes a change of an immutable field replace the object.
pub(crate) fn replace_if_immutable(resource: &Resource, live: &Value, changes: &mut [FieldChange]) {
    if live["immutable"] != true || !is_core(resource, &["ConfigMap", "Secret"]) {
        return;
    }
    for change in changes {
        if IMMUTABLE_FIELDS.iter().any(|field| FieldPath::keys([*field]).contains(&change.path)) {
            (change.effect, change.note) = (Effect::Replace, Some(IMMUTABLE.to_owned()));
        }
    }
}

/// Returns the error for a volume claim whose change the API server would refuse. A claim without a volume cannot change its
/// size. A claim with a volume can grow, and shrink only to a size that its volume has not reached yet. Source:
/// `ValidatePersistentVolumeClaimUpdate` in `pkg/apis/core/validation/validation.go`, 1.36.
pub(crate) fn claim_error(resource: &Resource, live: &Value, changes: &[FieldChange]) -> Option<Diagnostic> {
    if !is_core(resource, &["PersistentVolumeClaim"]) {
        return None;
    }
    match live["status"]["phase"].as_str() {
        None | Some(BOUND) => shrinks(resource, live, changes),
        Some(phase) => changes_unbound(resource, phase, changes),
    }
}

const BOUND: &str = "Bound";

fn storage() -> FieldPath {
    FieldPath::keys(["spec", "resources", "requests", "storage"])
}

fn shrinks(resource: &Resource, live: &Value, changes: &[FieldChange]) -> Option<Diagnostic> {
    let place = storage();
    let change = changes.iter().find(|change| change.path == place)?;
    let (before, after) = change.before.as_ref().zip(change.after.as_ref())?;
    let capacity = &live["status"]["capacity"]["storage"];
    let least = if capacity.is_null() { before } else { capacity };
    let fits = |floor: &Value| {
        Quantity::of(after).zip(Quantity::of(floor)).is_none_or(|(after, floor)| after > floor)
    };
    let grows = Quantity::of(after).zip(Quantity::of(before)).is_none_or(|(after, before)| after >= before);
    if grows || fits(least) {
        return None;
    }
    let what = format!(
        "{} cannot shrink from {} to {}: Kubernetes does not make a volume smaller",
        resource.identity,
        text(before),
        text(after)
    );
    let help = format!(
        "keep {}; for a smaller volume create a claim of another name and copy the data, or delete this one with its \
         data: --replace {}",
        text(before),
        resource.address
    );
    let problem = Diagnostic::error(Code::ClaimSize, what);
    Some(problem.at_value(resource.origin_of(&place), "requested here").help(help))
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn changes_unbound(resource: &Resource, phase: &str, changes: &[FieldChange]) -> Option<Diagnostic> {
    let of_bound = [storage(), FieldPath::keys(["spec", "volumeAttributesClassName"])];
    let change = changes.iter().find(|change| of_bound.contains(&change.path))?;
    let (before, after) = (shown(change.before.as_ref()), shown(change.after.as_ref()));
    let what = format!(
        "{} cannot change from {before} to {after}: its phase is {phase}, and Kubernetes changes what a claim asks for \
         only once it is bound to a volume",
        resource.identity
    );
    let help = format!(
        "keep {before} until a pod uses the claim; or replace the claim, which holds no data yet: --replace {}",
        resource.address
    );
    let problem = Diagnostic::error(Code::ClaimSize, what);
    Some(problem.at_value(resource.origin_of(&change.path), "requested here").help(help))
}
