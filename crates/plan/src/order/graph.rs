//! The order of changes. Edges between creates come from `depends_on` of resources. Edges of deletes come from relations between
//! two resources, so no edges of earlier plans need to be kept.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::observe::address_match::AddressIndex;
use crate::order::relations::{Edges, Relations};
use crate::order::{Order, cycles, write_edges};
use crate::{Action, Barrier, Change};
use kinds::hosts;
use model::address::Address;
use model::resource::{Effect, FieldChange, KindId, Resource, World};

/// Fills in `depends_on` of every change and returns the barriers. The error is a cycle: its addresses, in order.
pub fn connect(
    changes: &mut [Change],
    desired: &[Resource],
    world: &World,
) -> Result<Vec<Barrier>, Vec<Address>> {
    let handovers = worker_handover_order(changes, world);
    let makes = create_order(changes, desired, &handovers);
    let Edges { delete_after_dependents, mut delete_before_capacity_users, mut delete_after_users } =
        Relations::of(changes, desired, world).edges();
    handovers.iter().for_each(|(successor, deleted)| delete_after_users.add_edge(*successor, *deleted));
    let count = changes.len();
    // A user that leaves for capacity that only the delete frees cannot be first.
    delete_after_users.remove_cycle_edges(&cycles(
        count,
        &[&makes, &delete_after_dependents, &delete_before_capacity_users, &delete_after_users],
    ));
    delete_before_capacity_users.remove_cycle_edges(&cycles(
        count,
        &[&makes, &delete_after_dependents, &delete_before_capacity_users, &delete_after_users],
    ));
    let mut checked = check_order(changes, desired);
    if !checked.is_empty() {
        // A group may wait for a check of its own cluster.
        checked.remove_cycle_edges(&cycles(
            count,
            &[&makes, &delete_after_dependents, &delete_before_capacity_users, &delete_after_users, &checked],
        ));
    }
    let orders = [makes, delete_after_dependents, delete_before_capacity_users, delete_after_users, checked];
    if let Some(cycle) = cycles(count, &orders.each_ref()).into_iter().next() {
        return Err(cycle.into_iter().map(|index| changes[index].address.clone()).collect());
    }
    Ok(write_edges(orders, changes))
}

/// Effects of a change on workers. If changes happen in this order, the workers of a Dask cluster lose no data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WorkerEffect {
    /// Workers start, or stay as they are.
    Start,
    /// Running workers restart, and move their data to other workers meanwhile. `fewer`: some of them end after that.
    Restart {
        fewer: bool,
    },
    End,
}

impl WorkerEffect {
    /// Returns the effect of a change on workers; `None` if no other workers can take over.
    fn of(change: &Change) -> Option<Self> {
        let number = hosts::api::replicas_path();
        let falls = |field: &FieldChange| field.path == number && field.falls_to().is_some();
        let fewer = change.fields.iter().any(falls);
        let restarts = change.fields.iter().any(|field| field.effect == Effect::Rolling);
        match change.action {
            Action::Create => Some(Self::Start),
            Action::Delete => Some(Self::End),
            Action::Update if restarts => Some(Self::Restart { fewer }),
            Action::Update => Some(if fewer { Self::End } else { Self::Start }),
            Action::Replace | Action::Keep | Action::Run | Action::Forget => None,
        }
    }
}

/// Returns pairs of changes of workers that must not overlap, in their order. Workers that end move their data to other workers of
/// their Dask cluster. So the others start first, and no two sections restart workers at the same time. There is no order if the new
/// workers may need the capacity of the old ones.
fn worker_handover_order(changes: &[Change], world: &World) -> Vec<(usize, usize)> {
    let has_capacity = |change: &Change| {
        let worker = world.find(&change.identity).map_or(&Value::Null, |live| &live["spec"]["worker"]);
        worker.is_object() && worker.get("slurm").is_none() && worker.get("gpus").is_none()
    };
    let mut effects = BTreeMap::<&str, Vec<(WorkerEffect, usize)>>::new();
    for (index, change) in
        changes.iter().enumerate().filter(|(_, change)| kinds::of(change.kind).retires_gracefully)
    {
        if let Some(effect) = WorkerEffect::of(change) {
            effects.entry(cluster_of(&change.address)).or_default().push((effect, index));
        }
    }
    let mut handovers = Vec::new();
    for effects in effects.values_mut() {
        effects.sort();
        for (index, (effect, after)) in
            effects.iter().enumerate().filter(|(_, (_, index))| has_capacity(&changes[*index]))
        {
            let is_before = |other: &&(WorkerEffect, usize)| {
                other.0 < *effect || matches!(effect, WorkerEffect::Restart { .. })
            };
            handovers.extend(effects[..index].iter().filter(is_before).map(|(_, before)| (*before, *after)));
        }
    }
    handovers
}

/// Returns the first two segments of the section, `dask_cluster.NAME`.
fn cluster_of(address: &Address) -> &str {
    let text = address.section();
    text.match_indices('.').nth(1).map_or(text, |(end, _)| &text[..end])
}

/// Returns the order of checks of a Dask cluster: after all changes of its groups and parts, including deletes, because workers
/// that start or end meanwhile change the measurement. Checks do not wait for groups without changes, as their workers may be
/// waiting for machines.
fn check_order(changes: &[Change], desired: &[Resource]) -> Order {
    let mut order = Order::default();
    let runs = |change: &Change| change.kind == KindId::Check && change.action == Action::Run;
    let running = changes.iter().enumerate().filter(|(_, change)| runs(change));
    let running: HashMap<&Address, usize> = running.map(|(index, change)| (&change.address, index)).collect();
    if running.is_empty() {
        return order;
    }
    let mut parts = BTreeMap::<&str, Vec<usize>>::new();
    for (index, change) in changes.iter().enumerate() {
        let cluster = cluster_of(&change.address);
        if change.action != Action::Keep && cluster != change.address.as_str() {
            parts.entry(cluster).or_default().push(index);
        }
    }
    for resource in desired {
        let Some(check) = running.get(&resource.address) else { continue };
        for followed in &resource.depends_on {
            order.add_edges(parts.get(followed.as_str()).map_or(&[][..], Vec::as_slice), &[*check]);
        }
    }
    order
}

/// Returns the order by `depends_on`. A group does not wait for its Dask cluster if the cluster waits to hand over to the group.
fn create_order(changes: &[Change], desired: &[Resource], handovers: &[(usize, usize)]) -> Order {
    let mut order = Order::default();
    let named = AddressIndex::new(changes.iter().map(|change| &change.address));
    let resources: HashMap<&Address, &Resource> =
        desired.iter().rev().map(|resource| (&resource.address, resource)).collect();
    let depends_on = || {
        changes.iter().enumerate().flat_map(|(after, change)| {
            let resource = resources.get(&change.address).filter(|_| change.action != Action::Delete);
            let is_handed = move |dependency: &Address| {
                handovers.iter().any(|(successor, deleted)| {
                    *successor == after && changes[*deleted].address == *dependency
                })
            };
            // The predecessors of a dependency that waits for this change stay predecessors of this change.
            let depends_on = resource.into_iter().flat_map(|resource| &resource.depends_on);
            let depends_on = depends_on.flat_map(|dependency| match resources.get(dependency) {
                Some(waits) if is_handed(dependency) => waits.depends_on.iter().collect(),
                _ => vec![dependency],
            });
            depends_on.map(move |dependency| (dependency, after)).collect::<Vec<_>>()
        })
    };
    let before = |dependency: &Address| -> Vec<usize> {
        let stays = |before: &usize| changes[*before].action != Action::Delete;
        named.lookup(dependency).iter().copied().filter(stays).collect()
    };
    // Many that follow a whole section share the list of what is in it.
    let mut followers: BTreeMap<&Address, Vec<usize>> = BTreeMap::new();
    for (dependency, after) in depends_on() {
        followers.entry(dependency).or_default().push(after);
    }
    followers.retain(|dependency, after| order.is_long(named.lookup(dependency).len(), after.len()));
    for (dependency, after) in depends_on().filter(|(dependency, _)| !followers.contains_key(dependency)) {
        order.add_edges(&before(dependency), &[after]);
    }
    for (dependency, after) in &followers {
        order.add_edges(&before(dependency), after);
    }
    order
}
