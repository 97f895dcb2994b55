//! Looking at a finished plan: what a person should know before saying yes. One function for each thing.

use super::{Action, Change, Note, Plan, inline_pool};
use crate::diag::Code;
use crate::resource::Identity;

/// A check on a finished plan.
type Review = fn(&Plan, &mut Vec<Note>);

const REVIEWS: &[Review] = &[gpu_pool_first, check_among_workers];

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
    let Some(pool) = inline_pool(&plan.desired).filter(|_| plan.changes.iter().any(made)) else {
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

/// A check needs a free GPU, and workers that stay hold theirs.
fn check_among_workers(plan: &Plan, notes: &mut Vec<Note>) {
    let pool = |change: &Change, at: &str| {
        let wanted = plan.desired.iter().find(|resource| resource.identity == change.identity);
        wanted.and_then(|resource| resource.body.pointer(at)).filter(|selector| !selector.is_null()).cloned()
    };
    for check in plan.changes.iter().filter(|change| change.action == Action::Run) {
        let place = pool(check, "/spec/nodeSelector");
        let stays = |change: &&Change| {
            let there = matches!(change.action, Action::Keep | Action::Update | Action::Replace);
            there && place.is_some() && pool(change, "/spec/worker/spec/nodeSelector") == place
        };
        if let Some(cluster) = plan.changes.iter().find(stays) {
            notes.push(Note {
                code: Code::CheckAmongWorkers.as_str().into(),
                address: check.address.clone(),
                message: format!(
                    "it needs a free GPU on a pool where the workers of {} run, and waits until there is one: \
                     scale the workers down first if they hold them all",
                    cluster.address
                ),
            });
        }
    }
}
