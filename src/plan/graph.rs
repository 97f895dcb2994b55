//! What comes before what. Edges between makes come from what resources follow; deletes go the other way
//! round, by the rank of their kinds, so that no old edges need to be kept.

use std::collections::BTreeMap;

use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graphmap::DiGraphMap;

use super::{Action, Change};
use crate::address::Address;
use crate::kinds;
use crate::resource::{Identity, Resource};

/// Fills in `follows` of every change. An error is a cycle: the addresses in it, in order.
pub fn connect(changes: &mut [Change], desired: &[Resource]) -> Result<(), Vec<Address>> {
    let edges = edges(changes, desired);
    let mut graph = DiGraphMap::<usize, ()>::new();
    for place in 0..changes.len() {
        graph.add_node(place);
    }
    for (before, after) in &edges {
        graph.add_edge(*before, *after, ());
    }
    if toposort(&graph, None).is_err() {
        let circles = tarjan_scc(&graph);
        let circle = circles.into_iter().find(|circle| circle.len() > 1).unwrap_or_default();
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

fn edges(changes: &[Change], desired: &[Resource]) -> Vec<(usize, usize)> {
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
    let makes = |change: &Change| !matches!(change.action, Action::Delete | Action::Keep);
    let rank = |change: &Change| kinds::find(&change.kind).map_or(0, |kind| kind.rank);
    // Workers that go leave their GPUs to the checks and clusters that come, and an autoscaler the number of workers.
    let gives_way = |change: &Change| {
        let [cluster, group] = [&kinds::dask_cluster::KIND, &kinds::dask_group::KIND];
        let dask = [cluster, group, &kinds::dask_autoscaler::KIND, &kinds::dask_job::KIND];
        dask.iter().any(|kind| kind.name == change.kind)
    };
    // What has no steps of its own is gone when what takes it along is.
    let goes_along = |change: &Change| change.action == Action::Delete && change.steps.is_empty();
    for (after, change) in changes.iter().enumerate().filter(|(_, change)| change.action == Action::Delete) {
        for (before, other) in changes.iter().enumerate().filter(|(_, other)| !goes_along(other)) {
            if gives_way(change) && makes(other) && rank(other) >= kinds::check::KIND.rank {
                edges.push((after, before));
                continue;
            }
            let deleted = other.action == Action::Delete;
            let earlier = match goes_along(change) {
                true => takes_along(other, change),
                false => rank(other) > rank(change),
            };
            if (deleted && earlier) || makes(other) {
                edges.push((before, after));
            }
        }
    }
    edges
}

/// Whether what goes takes another thing along: a cluster everything in it, a namespace its objects.
fn takes_along(goes: &Change, along: &Change) -> bool {
    match (&goes.identity, &along.identity) {
        (Identity::Cluster(_), _) => true,
        (Identity::Object(goes), Identity::Object(along)) if goes.gvk.kind == "Namespace" => {
            along.namespace.as_ref() == Some(&goes.name)
        }
        (Identity::Object(goes), Identity::Object(along)) => {
            goes.gvk.kind == "DaskCluster" && goes.namespace == along.namespace
        }
        (Identity::NodePool { .. } | Identity::Object(_) | Identity::Check(_), _) => false,
    }
}

/// Whether `wanted`, an address or a whole section, names this one.
pub fn names(wanted: &Address, address: &Address) -> bool {
    wanted == address || wanted.as_str() == address.section()
}
