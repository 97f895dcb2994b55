//! Makes a plan: compares each desired resource with the live world, then looks for live resources that are no longer desired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::observe::inputs::{FileBaseline, Inputs};
use crate::planner::Planner;
use crate::{
    Action, Barrier, Change, ExternalRead, Mode, Plan, cost, order::graph, propose::fallback, pulls, review,
    stop,
};
use kinds::pod_defaults;
use model::address::Address;
use model::diag::{Code, Diagnostic};
use model::resource::{
    External, Gvk, KindId, ObjectId, Owner, ReadSet, Resource, Role, Seen, Target, World, drop_managed_fields,
};
use model::schema;

/// Returns the set of resources to read for a plan of these resources.
pub fn read_set(desired: &[Resource], external: &[External], target: &Target, owner: &Owner) -> ReadSet {
    let operator = desired.iter().any(|resource| resource.address.section() == kinds::scope::DASK_OPERATOR);
    let needed =
        external.iter().filter(|external| external.role == Role::Needed).map(|external| &external.resource);
    let resources: Vec<&Resource> = desired.iter().chain(needed).collect();
    let mut objects: Vec<&ObjectId> = Vec::new();
    let mut collections: BTreeSet<(Gvk, Option<String>)> = BTreeSet::new();
    for resource in resources {
        let Some(object) = resource.identity.object() else { continue };
        let beside = (kinds::of(resource.kind).also_read)();
        let kinds = beside.into_iter().chain([object.gvk.clone()]);
        collections.extend(kinds.map(|gvk| (gvk, object.namespace.clone())));
        objects.push(object);
    }
    if operator {
        // A stack with an operator must see everything that needs it, foreign objects in other namespaces too.
        collections.retain(|(gvk, _)| gvk.group != schema::DASK_GROUP);
        collections.extend(kinds::dask::api::needing_operator().map(|gvk| (gvk, None)));
    }
    let everywhere: BTreeSet<Gvk> =
        collections.iter().filter(|(_, namespace)| namespace.is_none()).map(|(gvk, _)| gvk.clone()).collect();
    collections.retain(|(gvk, namespace)| namespace.is_none() || !everywhere.contains(gvk));
    let listed: BTreeMap<&Gvk, &str> =
        collections.iter().map(|(gvk, _)| (gvk, gvk.version.as_str())).collect();
    // A LIST gives all objects in one version.
    let other_version = objects.iter().filter(|object| {
        let collection = collections.get(&(object.gvk.clone(), object.namespace.clone()));
        let version = collection.map(|(gvk, _)| gvk.version.as_str()).or(listed.get(&object.gvk).copied());
        version.is_some_and(|version| version != object.gvk.version)
    });
    // A pod that a lost answer left behind is in no record.
    let pods = desired.iter().filter(|resource| resource.kind == KindId::Check);
    let pods = pods.map(|check| kinds::dask::check::pod(&check.body)).filter(|pod| {
        !everywhere.contains(&pod.gvk) && !collections.contains(&(pod.gvk.clone(), pod.namespace.clone()))
    });
    let other_version = other_version.map(|object| (*object).clone()).chain(pods).collect();
    ReadSet {
        cluster: target.gke.clone(),
        collections,
        single_objects: other_version,
        record: Some(model::record::Record::object(&owner.stack)),
        owner: owner.clone(),
    }
}

/// Drops managedFields of live objects in a plan that deletes everything: then only external resources are compared.
pub fn drop_unused_managed_fields(world: &mut World, mode: Mode, external: &[External]) {
    let (Mode::Destroy, Seen::Live(inside)) = (mode, &mut world.objects) else { return };
    let external_objects: BTreeSet<&ObjectId> =
        external.iter().filter_map(|external| external.resource.identity.object()).collect();
    inside
        .iter_mut()
        .filter(|(object, _)| !external_objects.contains(object))
        .for_each(|(_, live)| drop_managed_fields(live));
}

/// Returns the plan, or all errors, sorted by their position in the file.
pub fn plan(mut inputs: Inputs) -> Result<Plan, Vec<Diagnostic>> {
    let file = Arc::clone(&inputs.desired);
    fallback::use_current_options(&mut inputs);
    drop_newer_pod_defaults(&mut inputs);
    let mut inputs = stop::apply_stops(inputs)?;
    if !Arc::ptr_eq(&file, &inputs.desired) {
        inputs.file_baseline = FileBaseline::of(&file, &inputs);
    }
    drop(file);
    let mut planner = Planner::new(&inputs);
    let reads = observe(&mut planner);
    propose(&mut planner);
    let barriers = order(&mut planner);
    let partial = planner.partial();
    let Planner { mut changes, mut problems, mut notes, .. } = planner;
    notes.dedup();
    if !problems.is_empty() {
        model::diag::sort(&mut problems, inputs.sources);
        return Err(problems);
    }
    let bill = cost::bill(&inputs, &changes);
    let unknown_pulls = pulls::add_times(&mut changes, &barriers, &inputs);
    let mut plan = inputs.into_plan(changes, reads, notes, partial);
    plan.bill = bill;
    plan.unknown_pulls = unknown_pulls;
    plan.barriers = barriers;
    let reviewed = review::review(&plan);
    plan.notes.extend(reviewed);
    Ok(plan)
}

/// Keeps the body of Jobs that were created before the defaults of pods existed: adding these would rerun
/// them, and a Job's pod template is immutable.
fn drop_newer_pod_defaults(inputs: &mut Inputs<'_>) {
    let Inputs { desired, world, replace, .. } = inputs;
    let made: Vec<(usize, Value)> = desired
        .iter()
        .enumerate()
        .filter(|(_, resource)| matches!(resource.kind, KindId::Job | KindId::DaskJob))
        .filter(|(_, resource)| !replace.contains(&resource.address))
        .filter_map(|(index, resource)| {
            let mut body = resource.body.clone();
            pod_defaults::remove_absent_in_live(&mut body, world.find(&resource.identity)?);
            (body != resource.body).then_some((index, body))
        })
        .collect();
    if made.is_empty() {
        return;
    }
    let desired = Arc::make_mut(desired);
    made.into_iter().for_each(|(index, body)| desired[index].body = body);
}

/// Checks the live state, selects the resources of the plan, and returns the external resources that were read.
fn observe(planner: &mut Planner<'_>) -> Vec<ExternalRead> {
    planner.check_readable();
    planner.select();
    let reads = planner.read_external();
    planner.check_target();
    reads
}

/// Proposes what happens to each resource and why, without the steps.
fn propose(planner: &mut Planner<'_>) {
    match planner.observed.inputs.mode {
        Mode::Apply => {
            planner.plan_desired();
            planner.note_stops();
            planner.note_expiry();
            planner.note_node_accounts();
            planner.prune();
        }
        Mode::Destroy => planner.destroy(),
    }
    planner.plan_cascade();
    planner.explain_emptied_pools();
    planner.mark_replacements_without_processes();
    planner.notes.extend(planner.drained_pod_notes());
    planner.notes.extend(planner.stranded_request_notes());
    planner.notes.extend(planner.unknown_state_notes());
    planner.notes.extend(planner.unreachable_state_notes());
    planner.notes.extend(planner.host_notes());
    // Deletes are shown as they are done: what was made last goes first.
    let rank = |change: &Change| kinds::of(change.kind).rank;
    if let Some(first) = planner.changes.iter().position(|change| change.action == Action::Delete) {
        planner.changes[first..].sort_by_key(|change| std::cmp::Reverse(rank(change)));
    }
}

/// Fills in the steps and the dependencies of all changes. Returns the barriers.
fn order(planner: &mut Planner<'_>) -> Vec<Barrier> {
    planner.steps();
    let inputs = planner.observed.inputs;
    let connected = graph::connect(&mut planner.changes, &inputs.desired, inputs.world);
    let barriers = connected.unwrap_or_else(|cycle| {
        planner.problems.push(cycle_problem(&cycle, inputs));
        Vec::new()
    });
    planner.add_kept_waits(&barriers);
    planner.add_fallbacks();
    barriers
}

fn cycle_problem(cycle: &[Address], inputs: &Inputs) -> Diagnostic {
    let path: Vec<&str> = cycle.iter().chain(cycle.first()).map(Address::as_str).collect();
    let problem = Diagnostic::error(Code::Cycle, format!("dependency cycle: {}", path.join(" -> ")));
    let spans = cycle.iter().map(|address| inputs.sources.address_span(address));
    let problem = spans.fold(problem, |problem, span| problem.at(span, "in the cycle"));
    problem.help("remove one `depends_on` from the cycle")
}
