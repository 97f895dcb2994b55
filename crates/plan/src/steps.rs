//! Computes the steps of each change. The kind's file writes them; this module passes it the facts about other changes.
//!
//! A change has a list of steps in sequence, and edges join changes. Steps have no edges of their own: no case needed one into
//! the middle of a list.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::observe::cascade;
use crate::observe::inputs::Inputs;
use crate::planner::Planner;
use crate::reason::Reason;
use crate::{Action, Barrier, Change, Note, observe::env_secrets};
use kinds::gke::node_pool::inline_pool;
use kinds::json::is_terminating;
use kinds::kind::ChangeContext;
use model::address::Address;
use model::diag::Code;
use model::record::Record;
use model::resource::{self, ByIdentity, DurationEstimate, Identity, ObjectId, Resource, Step, Until, World};

/// Facts about all other changes that the steps of a change depend on.
struct StepContext<'a> {
    planner: &'a Planner<'a>,
    desired: ByIdentity<'a>,
    /// The pool that is created with the cluster.
    inline: Option<&'a Resource>,
    /// True if the cluster is deleted or replaced, with its contents.
    cluster_is_deleted: bool,
    /// Resources that are deleted with the cluster and need no delete of their own.
    with_cluster: BTreeSet<Identity>,
    /// Namespaces and CRDs that are replaced: their contents are deleted before their own change begins.
    replaced_parents: Vec<&'a Identity>,
    /// The zones of each pool whose number of nodes is set, keyed by the index of its change.
    zones: &'a BTreeMap<usize, Vec<String>>,
    /// Seconds that earlier creates of a resource took.
    took: BTreeMap<&'a Identity, u32>,
}

/// The steps of a change, and the reasons for it.
struct ChangeSteps {
    steps: Vec<Step>,
    reasons: Vec<Reason>,
    note: Option<Note>,
    estimate: Option<DurationEstimate>,
}

impl Planner<'_> {
    /// Writes the steps of every change whose action is not Keep.
    pub(crate) fn steps(&mut self) {
        let zones = self.zones_of_pools();
        let uneven_zone_counts = self.uneven_zone_counts(&zones);
        let others = StepContext::of(self, &zones);
        let acts = |change: &Change| change.action != Action::Keep;
        let changes = self.changes.iter().enumerate();
        let steps_by_change: Vec<Option<ChangeSteps>> =
            changes.map(|(index, change)| acts(change).then(|| others.change_steps(index, change))).collect();
        self.problems.extend(uneven_zone_counts);
        for (change, planned) in self.changes.iter_mut().zip(steps_by_change) {
            if let Some(ChangeSteps { steps, reasons, note, estimate }) = planned {
                (change.steps, change.reasons, change.estimate) = (steps, reasons, estimate);
                self.notes.extend(note);
            }
        }
    }

    /// Adds readiness checks to unchanged resources that other changes depend on, and waits to those that an earlier
    /// apply may have left incomplete.
    pub(crate) fn add_kept_waits(&mut self, barriers: &[Barrier]) {
        let inputs = self.observed.inputs;
        let followed = followed(&self.changes, barriers);
        let desired = resource::by_identity(&inputs.desired);
        let seen_ready = inputs.world.record.as_ref().map(Record::seen_ready).unwrap_or_default();
        let kept = self.changes.iter_mut().zip(followed);
        for (change, followed) in kept.filter(|(change, _)| change.action == Action::Keep) {
            // There is nothing to wait for.
            if self.not_created.contains(&change.identity) {
                continue;
            }
            let context = ChangeContext {
                resource: desired.get(&change.identity).copied(),
                live: inputs.world.find(&change.identity),
                ..ChangeContext::of(Action::Keep, &change.identity, &inputs.owner)
            };
            let mut steps = (kinds::of(change.kind).change_steps)(&context);
            if may_be_incomplete(inputs.world, &seen_ready, &change.identity) {
                wait_until_ready(&mut steps);
            }
            if followed || !steps.iter().all(|step| is_wait(step, Until::StillReady)) {
                change.steps = steps;
            }
        }
    }
}

impl<'a> StepContext<'a> {
    fn of(planner: &'a Planner<'a>, zones: &'a BTreeMap<usize, Vec<String>>) -> Self {
        let desired = &planner.observed.inputs.desired;
        let cluster = planner.changes.iter().find(|change| matches!(change.identity, Identity::Cluster(_)));
        let is = |actions: [Action; 2]| cluster.is_some_and(|cluster| actions.contains(&cluster.action));
        let deletes_cluster = is([Action::Delete, Action::Replace]);
        let mut with_cluster = BTreeSet::new();
        if deletes_cluster {
            with_cluster = planner.deleted_with_cluster();
            with_cluster.extend(planner.blocked_deletions());
        }
        let inline = inline_pool(desired, &planner.observed.inputs.capacity_options)
            .filter(|_| is([Action::Create, Action::Replace]));
        let replaced = planner.changes.iter().filter(|change| change.action == Action::Replace);
        let is_parent =
            |object: &ObjectId| cascade::is_namespace(object) || cascade::defined_kind(object).is_some();
        let replaced_parents = replaced
            .map(|change| &change.identity)
            .filter(|identity| identity.object().is_some_and(is_parent))
            .collect();
        let Inputs { world, target, .. } = planner.observed.inputs;
        // The sandbox makes in seconds what takes GKE minutes.
        let record = world.record.as_ref().filter(|_| !target.simulated);
        let recorded = record.into_iter().flat_map(|record| &record.inventory);
        let took = recorded.filter_map(|entry| Some((&entry.identity, entry.took?))).collect();
        let desired = resource::by_identity(desired);
        Self {
            planner,
            desired,
            inline,
            cluster_is_deleted: deletes_cluster,
            with_cluster,
            replaced_parents,
            zones,
            took,
        }
    }

    /// Returns true if the server deletes its resource together with another deleted resource.
    fn is_deleted_with(&self, change: &Change) -> bool {
        match (&change.identity, change.action) {
            (Identity::NodePool { .. }, Action::Delete) => self.cluster_is_deleted,
            (identity @ Identity::Object(_), Action::Delete) => {
                change.foreign || self.with_cluster.contains(identity)
            }
            _ => false,
        }
    }

    /// Returns true if the server has already deleted its resource with a replaced parent. The change then only creates it.
    fn is_deleted_before(&self, change: &Change) -> bool {
        let held = |parent: &&Identity| cascade::cascade_reason(parent, &change.identity).is_some();
        change.action == Action::Replace && self.replaced_parents.iter().any(held)
    }

    fn change_steps(&self, index: usize, change: &Change) -> ChangeSteps {
        if self.is_deleted_with(change) {
            let mut reasons = change.reasons.clone();
            if reasons.is_empty() {
                reasons.push(Reason::DeletedWithCluster);
            }
            return ChangeSteps { steps: Vec::new(), reasons, note: None, estimate: None };
        }
        let kind = kinds::of(change.kind);
        let inputs = self.planner.observed.inputs;
        let live = inputs.world.find(&change.identity);
        let is_inline = self.inline.is_some_and(|inline| inline.identity == change.identity);
        let resource = self.desired.get(&change.identity).filter(|_| change.action != Action::Delete);
        let is_deleted_before = self.is_deleted_before(change);
        let action = if is_deleted_before { Action::Create } else { change.action };
        let with_pool = is_inline || matches!(change.identity, Identity::Cluster(_));
        let removed_managers = self.planner.observed.removed_managers(change, kind, live);
        let context = ChangeContext {
            resource: resource.copied(),
            live,
            objects: inputs.world.objects.live(),
            fields: &change.fields,
            inline_pool: self.inline.filter(|_| with_pool && resource.is_some()).map(|pool| &pool.body),
            zones: self.zones.get(&index).map_or(0, Vec::len),
            nodes: change.identity.pool().and_then(|pool| inputs.world.sizes.get(pool).copied()),
            adopting: change.adopted.is_some(),
            removed_managers: &removed_managers,
            terminating: is_deleted_before
                || change.action == Action::Create
                    && (live.is_some_and(is_terminating)
                        || self.planner.recreated_with_parent.contains(&change.identity)),
            defect: self.planner.defects.get(&change.address).filter(|_| change.action == Action::Update),
            idle_wait_seconds: inputs.idle_wait_seconds,
            ..ChangeContext::of(action, &change.identity, &inputs.owner)
        };
        let mut steps = (kind.change_steps)(&context);
        env_secrets::defer_env_values(&inputs.world.env_values, &mut steps);
        let mut reasons = match is_inline && change.action == Action::Create {
            true => vec![Reason::CreatedWithCluster],
            false => change.reasons.clone(),
        };
        reasons.extend(waits_until_idle(&steps));
        let note = deleted_workers_note(&change.address, &(kind.deleted_workers)(&context));
        let makes = change.action.creates();
        let last_time = || self.took.get(&change.identity).copied().map(DurationEstimate::again);
        let estimate = makes.then(|| last_time().or_else(|| (kind.estimate)(&context))).flatten();
        ChangeSteps { steps, reasons, note, estimate }
    }
}

/// Returns the reason for a wait for idle workers, if the steps begin with one.
fn waits_until_idle(steps: &[Step]) -> Option<Reason> {
    match steps.first()? {
        Step::Await(wait) if wait.until == Until::Idle => {
            Some(Reason::WaitsUntilIdle { seconds: wait.deadline })
        }
        Step::Await(_) | Step::Call(_) | Step::ReadLog { .. } | Step::RecordCompletion { .. } => None,
    }
}

/// Returns for each change and barrier true if a change other than Keep waits for it.
fn followed(changes: &[Change], barriers: &[Barrier]) -> Vec<bool> {
    let mut followed = vec![false; changes.len() + barriers.len()];
    let acts = changes.iter().filter(|change| change.action != Action::Keep);
    for before in acts.flat_map(|change| &change.depends_on) {
        followed[*before] = true;
    }
    for (index, barrier) in (changes.len()..).zip(barriers) {
        if followed[index] {
            barrier.depends_on.iter().for_each(|before| followed[*before] = true);
        }
    }
    followed
}

/// Returns the note on workers that the plan selects for deletion.
pub(crate) fn deleted_workers_note(address: &Address, goes: &[(ObjectId, Value)]) -> Option<Note> {
    let names: Vec<&str> = goes.iter().map(|(object, _)| object.name.as_str()).collect();
    let message = format!(
        "these workers are deleted, so that the scheduler does not choose workers of another group: {}; Dask \
         recomputes what they held",
        names.join(", ")
    );
    (!goes.is_empty()).then(|| Note::new(Code::ChosenWorkers, address, message))
}

fn is_wait(step: &Step, until: Until) -> bool {
    matches!(step, Step::Await(wait) if wait.until == until)
}

/// Returns true if an apply started to create a resource of this stack and none has seen it ready since. Without a
/// record, an apply may have ended before it could write one.
fn may_be_incomplete(world: &World, seen_ready: &BTreeSet<&Identity>, identity: &Identity) -> bool {
    // A cluster in trouble runs: what would mend it must not wait for it.
    let in_trouble = matches!(identity, Identity::Cluster(_))
        && world.find(identity).is_some_and(|live| live["status"] == "DEGRADED");
    !in_trouble && !seen_ready.contains(identity)
}

/// Turns readiness checks into waits until the resource is ready.
pub(crate) fn wait_until_ready(steps: &mut [Step]) {
    for step in steps {
        if let Step::Await(wait) = step
            && wait.until == Until::StillReady
        {
            wait.until = Until::Ready;
        }
    }
}
