//! What comes before what. Edges between makes come from what resources follow; those of deletes from what relates two
//! things, so that no old edges need to be kept.

use std::collections::BTreeMap;

use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graphmap::DiGraphMap;

use super::relations::{Edges, Relations};
use super::{Action, Change};
use crate::address::Address;
use crate::resource::{Resource, World};

/// Fills in `follows` of every change. An error is a cycle: the addresses in it, in order.
pub fn connect(changes: &mut [Change], desired: &[Resource], world: &World) -> Result<(), Vec<Address>> {
    let makes = of_makes(changes, desired);
    let Edges { of_deletes, mut giving, mut leaving } = Relations::of(changes, desired, world).edges();
    let all = |giving: &[Edge], leaving: &[Edge]| -> Vec<Edge> {
        makes.iter().chain(&of_deletes).chain(giving).chain(leaving).copied().collect()
    };
    let count = changes.len();
    let mut edges = all(&giving, &leaving);
    // Who leaves for room that only the delete gives cannot go first.
    leaving.retain(not_within(&circles(count, &edges)));
    edges = all(&giving, &leaving);
    giving.retain(not_within(&circles(count, &edges)));
    edges = all(&giving, &leaving);
    if let Some(circle) = circles(count, &edges).into_iter().next() {
        return Err(circle.into_iter().map(|place| changes[place].address.clone()).collect());
    }
    for (before, after) in edges {
        changes[after].follows.push(before);
    }
    for change in changes {
        change.follows.sort_unstable();
        change.follows.dedup();
    }
    Ok(())
}

/// Places among the changes: the first comes before the second.
pub(super) type Edge = (usize, usize);

/// Those that follow each other in circles.
fn circles(count: usize, edges: &[Edge]) -> Vec<Vec<usize>> {
    let mut graph = DiGraphMap::<usize, ()>::new();
    for place in 0..count {
        graph.add_node(place);
    }
    for (before, after) in edges {
        graph.add_edge(*before, *after, ());
    }
    if toposort(&graph, None).is_ok() {
        return Vec::new();
    }
    tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1).collect()
}

/// Whether an edge closes none of the circles.
fn not_within(circles: &[Vec<usize>]) -> impl Fn(&Edge) -> bool {
    |(before, after)| !circles.iter().any(|circle| circle.contains(before) && circle.contains(after))
}

/// Which of many addresses an address or a whole section names, without looking at each of them.
pub struct Named<'a> {
    /// By the address itself and by its section; every place stands once under a name.
    places: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Named<'a> {
    /// Of these addresses, in their order.
    pub fn of(addresses: impl IntoIterator<Item = &'a Address>) -> Self {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, address) in addresses.into_iter().enumerate() {
            places.entry(address.as_str()).or_default().push(place);
            if address.section() != address.as_str() {
                places.entry(address.section()).or_default().push(place);
            }
        }
        Self { places }
    }

    /// The places of those that `wanted`, an address or a whole section, names.
    pub fn by(&self, wanted: &Address) -> &[usize] {
        self.places.get(wanted.as_str()).map_or(&[], Vec::as_slice)
    }
}

/// What resources say that they follow.
fn of_makes(changes: &[Change], desired: &[Resource]) -> Vec<Edge> {
    let mut edges = Vec::new();
    let named = Named::of(changes.iter().map(|change| &change.address));
    let resources: BTreeMap<&Address, &Resource> =
        desired.iter().rev().map(|resource| (&resource.address, resource)).collect();
    for (after, change) in changes.iter().enumerate() {
        let resource = resources.get(&change.address).filter(|_| change.action != Action::Delete);
        for wanted in resource.iter().flat_map(|resource| &resource.follows) {
            let earlier = named.by(wanted).iter().copied();
            let stays = |before: &usize| *before != after && changes[*before].action != Action::Delete;
            edges.extend(earlier.filter(stays).map(|before| (before, after)));
        }
    }
    edges
}

/// Whether `wanted`, an address or a whole section, names this one.
pub fn names(wanted: &Address, address: &Address) -> bool {
    wanted == address || wanted.as_str() == address.section()
}
