//! The steps of every change: each kind's file writes its own program; here they are told what they must know
//! of each other.

use std::collections::BTreeSet;

use super::make::{Maker, is_going};
use super::{Action, Barrier, Change, given};
use crate::kinds;
use crate::kinds::kind::Doing;
use crate::record::Record;
use crate::resource::{self, Identity, KindId, ObjectId, Resource, Step, Until, World};

impl Maker<'_> {
    pub(super) fn steps(&mut self) {
        let inputs = self.inputs;
        let made = |change: &Change| matches!(change.action, Action::Create | Action::Replace);
        let cluster = self.changes.iter().find(|change| matches!(change.identity, Identity::Cluster(_)));
        let cluster_made = cluster.is_some_and(made);
        let cluster_goes =
            cluster.is_some_and(|change| matches!(change.action, Action::Delete | Action::Replace));
        let inline = inline_pool(&inputs.desired).filter(|_| cluster_made);
        // These hold a finalizer of the operator, or have a cluster that does.
        let held = [KindId::DaskCluster, KindId::DaskAutoscaler, KindId::DaskJob];
        let leaves = |change: &Change| held.contains(&change.kind) && change.action == Action::Delete;
        let orphaned = self.changes.iter().any(leaves) && !operator_runs(inputs.world);
        // What they would keep from going without an operator.
        let more = [KindId::DaskGroup, KindId::Definition, KindId::Namespace];
        let kept: Vec<KindId> = held.into_iter().chain(more).collect();
        let desired = resource::by_identity(&inputs.desired);
        let zones = self.zones_of_pools();
        let seen_ready = inputs.world.record.as_ref().map(Record::seen_ready).unwrap_or_default();
        let with_cluster = if cluster_goes { self.goes_with_cluster() } else { BTreeSet::new() };
        for (place, change) in self.changes.iter_mut().enumerate() {
            let kind = kinds::of(change.kind);
            // There is nothing to wait for.
            if self.gone.contains(&change.identity) {
                continue;
            }
            let resource = desired.get(&change.identity).copied();
            let goes_along = match (&change.identity, change.action) {
                (Identity::NodePool { .. }, Action::Delete) => cluster_goes,
                // Only a living operator lets a DaskCluster go; without one it goes with the cluster.
                (Identity::Object(_), Action::Delete) if change.foreign => true,
                (Identity::Object(_), Action::Delete) => {
                    let held_up = cluster_goes && orphaned && kept.contains(&change.kind);
                    held_up || with_cluster.contains(&change.identity)
                }
                _ => false,
            };
            let is_inline = inline.is_some_and(|inline| inline.identity == change.identity);
            let wanted =
                |resource: &&Resource| is_inline || matches!(resource.identity, Identity::Cluster(_));
            let inline_pool = inline.filter(|_| resource.as_ref().is_some_and(wanted)).map(|pool| &pool.body);
            let live = inputs.world.find(&change.identity).cloned();
            let doing = Doing {
                action: change.action,
                identity: &change.identity,
                resource: resource.filter(|_| change.action != Action::Delete),
                live: live.as_ref(),
                fields: &change.fields,
                owner: &inputs.owner,
                inline_pool,
                zones: zones.get(&place).map_or(0, Vec::len),
                taking: change.taken.is_some(),
                leaving: change.action == Action::Create
                    && (live.as_ref().is_some_and(is_going) || self.with_owner.contains(&change.identity)),
            };
            change.steps = (kind.program)(&doing);
            given::leave_open(&inputs.world.given, &mut change.steps);
            if change.action == Action::Keep && half_made(inputs.world, &seen_ready, &change.identity) {
                wait_to_the_end(&mut change.steps);
            }
            if is_inline && change.action == Action::Create {
                change.reason = Some("made together with the cluster".into());
            }
            if goes_along {
                change.reason = change.reason.take().or(Some("goes with the cluster".into()));
                change.steps = Vec::new();
            }
        }
    }

    /// A look at what is kept matters only to those that follow it. What may be half made is waited for in any case.
    pub(super) fn drop_idle_waits(&mut self, barriers: &[Barrier]) {
        let mut followed = vec![false; self.changes.len() + barriers.len()];
        let acts = self.changes.iter().filter(|change| change.action != Action::Keep);
        for before in acts.flat_map(|change| &change.follows) {
            followed[*before] = true;
        }
        for (place, barrier) in (self.changes.len()..).zip(barriers) {
            if followed[place] {
                barrier.follows.iter().for_each(|before| followed[*before] = true);
            }
        }
        for (place, change) in self.changes.iter_mut().enumerate() {
            let looks = change
                .steps
                .iter()
                .all(|step| matches!(step, Step::Await(wait) if wait.until == Until::Still));
            if change.action == Action::Keep && looks && !followed[place] {
                change.steps.clear();
            }
        }
    }
}

/// Whether an apply began with a thing of ours and none has seen it ready since. Where no record is, an apply may have
/// ended before it could write one.
fn half_made(world: &World, seen_ready: &BTreeSet<&Identity>, identity: &Identity) -> bool {
    // A cluster in trouble runs: what would mend it must not wait for it.
    let in_trouble = matches!(identity, Identity::Cluster(_))
        && world.find(identity).is_some_and(|live| live["status"] == "DEGRADED");
    !in_trouble && !seen_ready.contains(identity)
}

/// What is looked at is waited for instead.
pub(super) fn wait_to_the_end(steps: &mut [Step]) {
    for step in steps {
        if let Step::Await(wait) = step
            && wait.until == Until::Still
        {
            wait.until = Until::Ready;
        }
    }
}

/// Whether a Dask operator is there to let Dask clusters go. Where its Deployment was not read, it may be.
fn operator_runs(world: &World) -> bool {
    let Some(objects) = world.inside.live() else { return true };
    let operator =
        |object: &ObjectId| object.gvk.kind == "Deployment" && object.name == kinds::scope::OPERATOR_NAME;
    let asked = objects.keys().any(|object| object.gvk.kind == "CustomResourceDefinition");
    let found = objects.iter().find(|(object, _)| operator(object));
    match found {
        Some((_, live)) => kinds::json::count(&live["status"]["availableReplicas"]) > 0,
        None => !asked,
    }
}

/// The pool that is made with its cluster: the first without GPUs, else the first, for GKE wants one there.
pub fn inline_pool(desired: &[Resource]) -> Option<&Resource> {
    let pools: Vec<&Resource> =
        desired.iter().filter(|resource| matches!(resource.identity, Identity::NodePool { .. })).collect();
    let plain = pools.iter().find(|pool| pool.body["config"]["accelerators"].is_null());
    plain.or(pools.first()).copied()
}
