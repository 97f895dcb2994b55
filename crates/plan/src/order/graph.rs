//! The order of changes. Edges between creates come from what resources follow. Those of deletes come from relations between
//! two things, so that no old edges need to be kept.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::observe::address_match::Named;
use crate::order::relations::{Edges, Relations};
use crate::order::{Order, circles, inscribe};
use crate::{Action, Barrier, Change};
use kinds::hosts;
use model::address::Address;
use model::resource::{Effect, FieldChange, KindId, Resource, World};

/// Fills in `follows` of every change and gives the barriers between them. An error is a cycle: the addresses in it, in
/// order.
pub fn connect(
    changes: &mut [Change],
    desired: &[Resource],
    world: &World,
) -> Result<Vec<Barrier>, Vec<Address>> {
    let handed = handed_over(changes, world);
    let makes = of_makes(changes, desired, &handed);
    let Edges { of_deletes, mut giving, mut leaving } = Relations::of(changes, desired, world).edges();
    handed.iter().for_each(|(taker, goes)| leaving.pair(*taker, *goes));
    let count = changes.len();
    // Who leaves for room that only the delete gives cannot go first.
    leaving.cut(&circles(count, &[&makes, &of_deletes, &giving, &leaving]));
    giving.cut(&circles(count, &[&makes, &of_deletes, &giving, &leaving]));
    let mut checked = of_checks(changes, desired);
    if !checked.is_empty() {
        // A group may wait for a check of its own cluster.
        checked.cut(&circles(count, &[&makes, &of_deletes, &giving, &leaving, &checked]));
    }
    let orders = [makes, of_deletes, giving, leaving, checked];
    if let Some(circle) = circles(count, &orders.each_ref()).into_iter().next() {
        return Err(circle.into_iter().map(|place| changes[place].address.clone()).collect());
    }
    Ok(inscribe(orders, changes))
}

/// Effects of a change on workers, in the order in which those of one Dask cluster lose nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Workers come, or stay as they are.
    Come,
    /// Those that run start again, and move what they hold to others meanwhile. `fewer` of them go after that.
    Restart {
        fewer: bool,
    },
    Go,
}

impl Turn {
    /// Returns the effect of a change on workers; `None` for what has nobody to take over for.
    fn of(change: &Change) -> Option<Self> {
        let number = hosts::api::replicas_path();
        let falls = |field: &FieldChange| field.path == number && field.falls_to().is_some();
        let fewer = change.fields.iter().any(falls);
        let restarts = change.fields.iter().any(|field| field.effect == Effect::Rolling);
        match change.action {
            Action::Create => Some(Self::Come),
            Action::Delete => Some(Self::Go),
            Action::Update if restarts => Some(Self::Restart { fewer }),
            Action::Update => Some(if fewer { Self::Go } else { Self::Come }),
            Action::Replace | Action::Keep | Action::Run | Action::Forget => None,
        }
    }
}

/// Workers that go hand over what they hold to others of their Dask cluster, so these come first, and no two sections restart theirs
/// at once: pairs of who is before whom. Not where those that come may need the room of those that go.
fn handed_over(changes: &[Change], world: &World) -> Vec<(usize, usize)> {
    let has_room = |change: &Change| {
        let worker = world.find(&change.identity).map_or(&Value::Null, |live| &live["spec"]["worker"]);
        worker.is_object() && worker.get("slurm").is_none() && worker.get("gpus").is_none()
    };
    let mut turns = BTreeMap::<&str, Vec<(Turn, usize)>>::new();
    for (place, change) in changes.iter().enumerate().filter(|(_, change)| kinds::of(change.kind).hands_over)
    {
        if let Some(turn) = Turn::of(change) {
            turns.entry(cluster_of(&change.address)).or_default().push((turn, place));
        }
    }
    let mut handed = Vec::new();
    for turns in turns.values_mut() {
        turns.sort();
        for (index, (turn, going)) in
            turns.iter().enumerate().filter(|(_, (_, place))| has_room(&changes[*place]))
        {
            let is_before = |other: &&(Turn, usize)| other.0 < *turn || matches!(turn, Turn::Restart { .. });
            handed.extend(turns[..index].iter().filter(is_before).map(|(_, before)| (*before, *going)));
        }
    }
    handed
}

/// Two steps into a file: `dask_cluster.NAME` for all that is in it.
fn cluster_of(address: &Address) -> &str {
    let text = address.section();
    text.match_indices('.').nth(1).map_or(text, |(end, _)| &text[..end])
}

/// Checks of a Dask cluster compute when all changes of its groups and of what belongs to it are done, deletes as well: workers that
/// come or go meanwhile change what is measured. A group that is kept is not waited for: its workers may wait for machines.
fn of_checks(changes: &[Change], desired: &[Resource]) -> Order {
    let mut order = Order::default();
    let runs = |change: &Change| change.kind == KindId::Check && change.action == Action::Run;
    let running = changes.iter().enumerate().filter(|(_, change)| runs(change));
    let running: HashMap<&Address, usize> = running.map(|(place, change)| (&change.address, place)).collect();
    if running.is_empty() {
        return order;
    }
    let mut parts = BTreeMap::<&str, Vec<usize>>::new();
    for (place, change) in changes.iter().enumerate() {
        let cluster = cluster_of(&change.address);
        if change.action != Action::Keep && cluster != change.address.as_str() {
            parts.entry(cluster).or_default().push(place);
        }
    }
    for resource in desired {
        let Some(check) = running.get(&resource.address) else { continue };
        for followed in &resource.follows {
            order.all(parts.get(followed.as_str()).map_or(&[][..], Vec::as_slice), &[*check]);
        }
    }
    order
}

/// Returns the order by what resources follow. A group does not follow its Dask cluster where that waits to hand over to it.
fn of_makes(changes: &[Change], desired: &[Resource], handed: &[(usize, usize)]) -> Order {
    let mut order = Order::default();
    let named = Named::of(changes.iter().map(|change| &change.address));
    let resources: HashMap<&Address, &Resource> =
        desired.iter().rev().map(|resource| (&resource.address, resource)).collect();
    let follows = || {
        changes.iter().enumerate().flat_map(|(after, change)| {
            let resource = resources.get(&change.address).filter(|_| change.action != Action::Delete);
            let is_handed = move |wanted: &Address| {
                handed.iter().any(|(taker, goes)| *taker == after && changes[*goes].address == *wanted)
            };
            // What the one follows that waits is before the other all the same.
            let follows = resource.into_iter().flat_map(|resource| &resource.follows);
            let follows = follows.flat_map(|wanted| match resources.get(wanted) {
                Some(waits) if is_handed(wanted) => waits.follows.iter().collect(),
                _ => vec![wanted],
            });
            follows.map(move |wanted| (wanted, after)).collect::<Vec<_>>()
        })
    };
    let before = |wanted: &Address| -> Vec<usize> {
        let stays = |before: &usize| changes[*before].action != Action::Delete;
        named.by(wanted).iter().copied().filter(stays).collect()
    };
    // Many that follow a whole section share the list of what is in it.
    let mut followers: BTreeMap<&Address, Vec<usize>> = BTreeMap::new();
    for (wanted, after) in follows() {
        followers.entry(wanted).or_default().push(after);
    }
    followers.retain(|wanted, after| order.is_long(named.by(wanted).len(), after.len()));
    for (wanted, after) in follows().filter(|(wanted, _)| !followers.contains_key(wanted)) {
        order.all(&before(wanted), &[after]);
    }
    for (wanted, after) in &followers {
        order.all(&before(wanted), after);
    }
    order
}
