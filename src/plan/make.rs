//! Making a plan: each wanted thing against the live world, then what is live and no longer wanted.

use std::collections::{BTreeMap, BTreeSet};

use super::inputs::Inputs;
use super::maker::Maker;
use super::{Action, Barrier, Change, Mode, Plan, Read, graph, review};
use crate::address::Address;
use crate::diag::{Code, Diagnostic};
use crate::kinds;
use crate::resource::{Gvk, KindId, ObjectId, Owner, Resource, Role, Target, Theirs, Wanted};
use crate::schema;

/// What must be read to plan these resources.
pub fn wanted(desired: &[Resource], theirs: &[Theirs], target: &Target, owner: &Owner) -> Wanted {
    let operator = desired.iter().any(|resource| resource.address.section() == kinds::scope::DASK_OPERATOR);
    let needed = theirs.iter().filter(|theirs| theirs.role == Role::Needed).map(|theirs| &theirs.resource);
    let things: Vec<&Resource> = desired.iter().chain(needed).collect();
    let mut objects: Vec<&ObjectId> = Vec::new();
    let mut collections: BTreeSet<(Gvk, Option<String>)> = BTreeSet::new();
    for resource in things {
        let Some(object) = resource.identity.object() else { continue };
        let beside = (kinds::of(resource.kind).beside)();
        let kinds = beside.into_iter().chain([object.gvk.clone()]);
        collections.extend(kinds.map(|gvk| (gvk, object.namespace.clone())));
        objects.push(object);
    }
    if operator {
        // Who has an operator must see everything that needs it, others' things in other namespaces too.
        collections.retain(|(gvk, _)| gvk.group != schema::DASK_GROUP);
        collections.extend(kinds::dask::api::needing_operator().map(|gvk| (gvk, None)));
    }
    let everywhere: BTreeSet<Gvk> =
        collections.iter().filter(|(_, namespace)| namespace.is_none()).map(|(gvk, _)| gvk.clone()).collect();
    collections.retain(|(gvk, namespace)| namespace.is_none() || !everywhere.contains(gvk));
    let listed: BTreeMap<&Gvk, &str> =
        collections.iter().map(|(gvk, _)| (gvk, gvk.version.as_str())).collect();
    let apart = objects.iter().filter(|object| {
        let place = collections.get(&(object.gvk.clone(), object.namespace.clone()));
        let version = place.map(|(gvk, _)| gvk.version.as_str()).or(listed.get(&object.gvk).copied());
        version.is_some_and(|version| version != object.gvk.version)
    });
    // A pod that a lost answer left behind is in no record.
    let pods = desired.iter().filter(|resource| resource.kind == KindId::Check);
    let pods = pods.map(|check| kinds::kubernetes::check::pod(&check.body)).filter(|pod| {
        !everywhere.contains(&pod.gvk) && !collections.contains(&(pod.gvk.clone(), pod.namespace.clone()))
    });
    let apart = apart.map(|object| (*object).clone()).chain(pods).collect();
    Wanted {
        cluster: target.gke.clone(),
        collections,
        apart,
        record: Some(crate::record::Record::object(&owner.stack)),
        owner: owner.clone(),
    }
}

/// The plan, or everything that stands against making one, in order of the file.
pub fn plan(inputs: Inputs) -> Result<Plan, Vec<Diagnostic>> {
    let mut maker = Maker::new(&inputs);
    let reads = observe(&mut maker);
    propose(&mut maker);
    let barriers = order(&mut maker);
    let partial = maker.partial();
    let Maker { changes, mut problems, mut notes, .. } = maker;
    notes.dedup();
    if !problems.is_empty() {
        crate::diag::sort(&mut problems, inputs.sources);
        return Err(problems);
    }
    let mut plan = inputs.into_plan(changes, reads, notes, partial);
    plan.barriers = barriers;
    let reviewed = review::review(&plan);
    plan.notes.extend(reviewed);
    Ok(plan)
}

/// What is there to plan with, and what the plan is about.
fn observe(maker: &mut Maker<'_>) -> Vec<Read> {
    maker.readable();
    maker.select();
    let reads = maker.read_theirs();
    maker.at_its_place();
    reads
}

/// What happens to each thing and why, without how.
fn propose(maker: &mut Maker<'_>) {
    match maker.seen.inputs.mode {
        Mode::Apply => {
            maker.wants();
            maker.no_longer_wanted();
        }
        Mode::Destroy => maker.destroy(),
    }
    maker.goes_along();
    maker.notes.extend(maker.drained());
    maker.notes.extend(maker.what_cannot_be_known());
    // Deletes are shown as they are done: what was made last goes first.
    let rank = |change: &Change| kinds::of(change.kind).rank;
    if let Some(first) = maker.changes.iter().position(|change| change.action == Action::Delete) {
        maker.changes[first..].sort_by_key(|change| std::cmp::Reverse(rank(change)));
    }
}

/// The steps of all changes, and which come before which.
fn order(maker: &mut Maker<'_>) -> Vec<Barrier> {
    maker.steps();
    let inputs = maker.seen.inputs;
    let connected = graph::connect(&mut maker.changes, &inputs.desired, inputs.world);
    let barriers = connected.unwrap_or_else(|circle| {
        maker.problems.push(circle_problem(&circle, inputs));
        Vec::new()
    });
    maker.looks(&barriers);
    barriers
}

fn circle_problem(circle: &[Address], inputs: &Inputs) -> Diagnostic {
    let path: Vec<&str> = circle.iter().chain(circle.first()).map(Address::as_str).collect();
    let problem =
        Diagnostic::error(Code::Cycle, format!("these follow each other in a circle: {}", path.join(" -> ")));
    let places = circle.iter().map(|address| inputs.sources.address_span(address));
    let problem = places.fold(problem, |problem, span| problem.at(span, "in the circle"));
    problem.help("take one `depends_on` out of the circle")
}
