//! Looking at a finished plan: what a person should know before saying yes. One function for each thing.

use super::{Action, Change, Note, Plan, make};
use crate::diag::Code;
use crate::resource::Identity;

/// A check on a finished plan.
type Review = fn(&Plan, &mut Vec<Note>);

const REVIEWS: &[Review] = &[gpu_pool_first];

/// All notes, in the order of the checks.
pub fn review(plan: &Plan) -> Vec<Note> {
    let mut notes = Vec::new();
    for review in REVIEWS {
        review(plan, &mut notes);
    }
    notes
}

/// Source: GKE taints GPU nodes only when the cluster has a pool without GPUs before them.
fn gpu_pool_first(plan: &Plan, notes: &mut Vec<Note>) {
    let made = |change: &Change| {
        matches!(change.identity, Identity::Cluster(_))
            && matches!(change.action, Action::Create | Action::Replace)
    };
    let Some(pool) = make::inline_pool(&plan.desired).filter(|_| plan.changes.iter().any(made)) else {
        return;
    };
    if !pool.body["config"]["accelerators"].is_null() {
        notes.push(Note {
            code: Code::GpuPoolFirst.as_str().into(),
            address: pool.address.clone(),
            message: "the cluster's first pool has GPUs: GKE puts no nvidia.com/gpu taint on any pool then, system \
                      pods run on GPU nodes, and a stock-out fails the whole cluster; a small pool without GPUs \
                      avoids all three"
                .into(),
        });
    }
}
