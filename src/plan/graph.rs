//! What comes before what. Edges between makes come from what resources follow; those of deletes from what relates two
//! things, so that no old edges need to be kept.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::named::Named;
use super::order::{Order, circles, inscribe};
use super::relations::{Edges, Relations};
use super::{Action, Barrier, Change};
use crate::address::{Address, FieldPath};
use crate::kinds;
use crate::resource::{FieldChange, Resource, World};

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
    let orders = [makes, of_deletes, giving, leaving];
    if let Some(circle) = circles(count, &orders.each_ref()).into_iter().next() {
        return Err(circle.into_iter().map(|place| changes[place].address.clone()).collect());
    }
    Ok(inscribe(orders, changes))
}

/// Workers that go hand over what they hold to others of their Dask cluster, so these come first: pairs of who takes and who goes. Not
/// where those that come may need the room of those that go, nor where each both comes and goes.
fn handed_over(changes: &[Change], world: &World) -> Vec<(usize, usize)> {
    let all = || changes.iter().enumerate().filter(|(_, change)| kinds::of(change.kind).hands_over);
    let goes = |change: &Change| change.action == Action::Delete || are_fewer(change);
    let has_room = |change: &Change| {
        let worker = world.find(&change.identity).map_or(&Value::Null, |live| &live["spec"]["worker"]);
        worker.is_object() && worker.get("slurm").is_none() && worker.get("gpus").is_none()
    };
    // A Dask cluster that is replaced has nothing to take over for.
    let takes = |change: &Change| match change.action {
        Action::Create => true,
        Action::Update => !are_fewer(change) || change.fields.len() > 1,
        _ => false,
    };
    let of_one = |one: &Address, other: &Address| cluster_of(one) == cluster_of(other);
    let mut handed = Vec::new();
    for (going, change) in all().filter(|(_, change)| goes(change) && has_room(change)) {
        let takers = all().filter(|(_, other)| takes(other) && !(goes(other) && takes(change)));
        let takers = takers.filter(|(_, other)| of_one(&other.address, &change.address));
        handed.extend(takers.map(|(taker, _)| (taker, going)));
    }
    handed
}

/// `dask_cluster.NAME` of the address of its workers or of a group.
fn cluster_of(address: &Address) -> &str {
    let text = address.section();
    text.match_indices('.').nth(1).map_or(text, |(end, _)| &text[..end])
}

fn are_fewer(change: &Change) -> bool {
    let number = FieldPath::keys(["spec", "worker", "replicas"]);
    let falls = |field: &FieldChange| field.path == number && field.falls_to().is_some();
    change.action == Action::Update && change.fields.iter().any(falls)
}

/// What resources say that they follow. A group does not follow its Dask cluster where that waits to hand over to it.
fn of_makes(changes: &[Change], desired: &[Resource], handed: &[(usize, usize)]) -> Order {
    let mut order = Order::default();
    let named = Named::of(changes.iter().map(|change| &change.address));
    let resources: HashMap<&Address, &Resource> =
        desired.iter().rev().map(|resource| (&resource.address, resource)).collect();
    let follows = || {
        changes.iter().enumerate().flat_map(|(after, change)| {
            let resource = resources.get(&change.address).filter(|_| change.action != Action::Delete);
            let follows = resource.into_iter().flat_map(|resource| &resource.follows);
            let is_handed = move |wanted: &Address| {
                handed.iter().any(|(taker, goes)| *taker == after && changes[*goes].address == *wanted)
            };
            follows.filter(move |wanted| !is_handed(wanted)).map(move |wanted| (wanted, after))
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
