//! The state that the Dask operator has handled. The operator uses kopf, which stores the last handled state in an annotation. It
//! serves as the generation that the operator's kinds lack.

use serde_json::Value;

use crate::dask::api::{self, UNHANDLED};
use model::resource::{
    Action, Await, Facts, FieldChange, Identity, KindId, ObjectId, Readiness, Step, Until,
};

/// Seconds in which the operator handles an edit: kopf tries a handler that failed again after a minute, and the search
/// for a scheduler that does not answer holds up all handlers for some 200 seconds.
/// Source: `get_scheduler_address` in dask-kubernetes 2026.3.0.
const DEADLINE: u32 = 300;

/// Returns true if the operator has handled the spec that a resource has now. `None` if the annotation is missing, as with an
/// operator that does not use kopf.
///
/// The annotation contains a state instead of a counter. So after the edits A→B→A the object looks handled, although the operator
/// may have seen neither edit. For that reason a number is written only once the previous one is handled ([`waits_before`]).
pub(crate) fn is_handled(object: &Value) -> Option<bool> {
    noted(object).map(|noted| noted["spec"] == object["spec"])
}

fn noted(object: &Value) -> Option<Value> {
    let noted = &object["metadata"]["annotations"]["kopf.zalando.org/last-handled-configuration"];
    serde_json::from_str(noted.as_str()?).ok()
}

/// Returns the number of workers that the operator says it has scaled a group to. Source: `retire_workers` in
/// dask-kubernetes 2026.3.0 deletes what the scheduler names, and a scheduler that knows no worker names none; seen
/// with a real scheduler.
pub(crate) fn scaled_to(group: &Value) -> Option<u64> {
    noted(group)?["spec"]["worker"]["replicas"].as_u64()
}

/// Returns the waits that come before all other steps of an update that writes a number of workers. They wait until the operator
/// has handled the state before the write. It is certain to handle that state, even if it skips earlier ones, because it is the
/// newest. That state differs from the written one, so the annotation shows afterwards which of the two was handled. The wait for
/// the cluster comes first: once the cluster is handled, the operator has written the group. An edit that another user makes and
/// reverts before the operator reads it is not noticed.
pub fn waits_before(action: Action, object: &ObjectId, fields: &[FieldChange], steps: &[Step]) -> Vec<Step> {
    let of_cluster = object.gvk == api::cluster();
    if action != Action::Update || !of_cluster && object.gvk != api::group() {
        return Vec::new();
    }
    let path = api::replicas_path();
    // A repair has steps but no field that differs.
    if !fields.iter().any(|field| field.path == path) && !steps.iter().any(scales) {
        return Vec::new();
    }
    let wait = |kind: KindId, object: ObjectId| {
        let identity = Identity::Object(object);
        Step::Await(Await { kind, identity, until: Until::Handled, facts: Facts::None, deadline: DEADLINE })
    };
    let itself = |kind| wait(kind, object.clone());
    if of_cluster {
        let group = wait(KindId::DaskGroup, api::default_group(object));
        return vec![itself(KindId::DaskCluster), group];
    }
    vec![itself(KindId::DaskGroup)]
}

fn scales(step: &Step) -> bool {
    matches!(step, Step::Call(call) if call.body.as_ref().is_some_and(|body| body.value()["kind"] == "Scale"))
}

/// Returns the readiness for [`Until::Handled`]. A missing object has no edits to handle.
pub(crate) fn readiness(object: &Value) -> Readiness {
    if !object.is_object() || is_handled(object) != Some(false) {
        return Readiness::Ready;
    }
    Readiness::Unhandled(UNHANDLED.into())
}

#[cfg(test)]
mod tests;
