//! Readiness of kept resources: a plan without changes may still have resources that are not ready.

use std::collections::HashMap;

use crate::{Action, Change, Mode, Note, Plan};
use model::diag::Code;
use model::resource::{Await, Identity, KindId, Readiness, Resource, World};

/// Returns the waits that show whether kept resources are ready, with the index of their change.
pub fn waits_of_kept(plan: &Plan, world: &World) -> Vec<(usize, Await)> {
    if plan.mode == Mode::Destroy {
        return Vec::new();
    }
    let desired: HashMap<&Identity, &Resource> =
        plan.desired.iter().map(|resource| (&resource.identity, resource)).collect();
    // Where all pools are stopped, or were until now, no pod has a node.
    let mut pools = plan.desired.iter().filter(|resource| resource.identity.pool().is_some()).peekable();
    let nodeless = pools.peek().is_some() && pools.all(|pool| plan.stop_state.has(&pool.identity));
    let wait = |(index, change): (usize, &Change)| {
        let resource = desired.get(&change.identity)?;
        let live = world.find(&change.identity)?;
        // Most objects have nothing that could say that they are not ready.
        let silent = change.kind == KindId::Object && live["status"].is_null();
        if silent && live["metadata"]["deletionTimestamp"].is_null() {
            return None;
        }
        Some((index, kinds::of(resource.kind).keep_wait(resource, &plan.owner, live)?))
    };
    let is_kept = |(_, change): &(usize, &Change)| {
        let has_pods = nodeless && change.identity.object().is_some();
        change.action == Action::Keep && !matches!(change.identity, Identity::Check(_)) && !has_pods
    };
    plan.changes.iter().enumerate().filter(is_kept).filter_map(wait).collect()
}

/// Notes resources that are not ready.
pub fn add_notes(plan: &mut Plan, found: Vec<(usize, Readiness)>) {
    for (index, readiness) in found {
        let Some(change) = plan.changes.get(index) else { continue };
        let what = match readiness {
            Readiness::Ready => continue,
            Readiness::Impaired(what) => {
                let message = format!("{}: {what}", change.identity);
                plan.notes.push(Note::new(Code::Impaired, &change.address, message));
                continue;
            }
            Readiness::Progressing(progress) => progress.to_string(),
            Readiness::Unhandled(what) | Readiness::Stalled(what) => what,
            Readiness::Queued(queued) => queued.to_string(),
            // Waiting alone never has it ready, and an apply asks for nothing a second time.
            Readiness::Failed(why) if change.kind == KindId::ProvisioningRequest => {
                let address = &change.address;
                let is_told =
                    |note: &Note| note.code == Code::RequestEnded.as_str() && note.address == *address;
                if !plan.notes.iter().any(is_told) {
                    let message =
                        format!("the request ended: {why}; `--replace {address}` asks for its nodes again");
                    plan.notes.push(Note::new(Code::RequestEnded, address, message));
                }
                continue;
            }
            Readiness::Failed(why) => why,
        };
        let next = match change.is_waited_for() {
            true => "not ready since it was created or changed, so the next apply waits for it",
            false => "it was ready before, so apply does not wait for it",
        };
        let message = format!("{} is not ready: {what}; {next}", change.identity);
        plan.notes.push(Note::new(Code::Unready, &change.address, message));
    }
}
