//! What comes before what. Edges between makes come from what resources follow; those of deletes from what relates two
//! things, so that no old edges need to be kept.

use std::collections::{BTreeMap, HashMap};

use super::named::Named;
use super::order::{Order, circles, inscribe};
use super::relations::{Edges, Relations};
use super::{Action, Barrier, Change};
use crate::address::Address;
use crate::resource::{Resource, World};

/// Fills in `follows` of every change and gives the barriers between them. An error is a cycle: the addresses in it, in
/// order.
pub fn connect(
    changes: &mut [Change],
    desired: &[Resource],
    world: &World,
) -> Result<Vec<Barrier>, Vec<Address>> {
    let makes = of_makes(changes, desired);
    let Edges { of_deletes, mut giving, mut leaving } = Relations::of(changes, desired, world).edges();
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

/// What resources say that they follow.
fn of_makes(changes: &[Change], desired: &[Resource]) -> Order {
    let mut order = Order::default();
    let named = Named::of(changes.iter().map(|change| &change.address));
    let resources: HashMap<&Address, &Resource> =
        desired.iter().rev().map(|resource| (&resource.address, resource)).collect();
    let follows = || {
        changes.iter().enumerate().flat_map(|(after, change)| {
            let resource = resources.get(&change.address).filter(|_| change.action != Action::Delete);
            let follows = resource.into_iter().flat_map(|resource| &resource.follows);
            follows.map(move |wanted| (wanted, after))
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
