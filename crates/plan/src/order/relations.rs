//! Relations between two changes of a plan, one of which is a delete. A delete waits for the deletes of its dependents, and for
//! changes after which a resource no longer uses it. It does not wait for every create: changes that are unrelated to a failure
//! are still made.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::observe::address_match::AddressIndex;
use crate::observe::text_index::{NameIndex, has_word, referencing_fields};
use crate::order::Order;
use crate::{Action, Change};
use kinds::json::text;
use kinds::kind::FreedCapacity;
use kinds::kubernetes::manifest::{node_labels, pod_specs};
use kinds::pod::gpus;
use model::address::{Address, FieldPath};
use model::resource::{Await, Identity, KindId, ObjectId, Resource, Step, Until, World};

/// The node pools that the pods of a resource may run on.
#[derive(Default)]
struct PodPools {
    /// Names of pools that they require or prefer.
    pools: BTreeSet<String>,
    /// True if some pods may run on any node.
    unpinned: bool,
    /// True if some pods that may run on any node request GPUs.
    unpinned_gpus: bool,
}

impl PodPools {
    fn of(body: &Value) -> Self {
        let mut specs = Vec::new();
        pod_specs(body, &FieldPath::root(), &mut specs);
        let mut pods = Self::default();
        for (path, spec) in specs {
            let labels = node_labels(spec, &path);
            let own = labels.iter().filter(|label| label.key == kinds::scope::POOL_LABEL);
            let own: Vec<String> =
                own.flat_map(|label| &label.values).map(|name| (*name).to_owned()).collect();
            if own.is_empty() {
                pods.unpinned = true;
                pods.unpinned_gpus |= gpus(spec) > 0;
            }
            pods.pools.extend(own);
        }
        pods
    }

    /// Returns true if some pods may run on a pool. GKE taints nodes with GPUs, so pods that request no GPU stay away.
    fn may_run_on(&self, pool: &str, has_gpus: bool) -> bool {
        self.pools.contains(pool) || self.unpinned && (!has_gpus || self.unpinned_gpus)
    }

    /// Returns true if pods of both resources may run on one node.
    fn may_share_node(&self, other: &Self) -> bool {
        let any = |pods: &Self| pods.unpinned || !pods.pools.is_empty();
        any(self) && any(other) && (self.unpinned || other.unpinned || !self.pools.is_disjoint(&other.pools))
    }
}

/// A change with the facts about its resource.
struct ChangeNode<'a> {
    change: &'a Change,
    rank: u32,
    live: &'a Value,
    desired: Option<&'a Resource>,
    live_pods: PodPools,
    desired_pods: PodPools,
}

impl<'a> ChangeNode<'a> {
    fn object(&self) -> Option<&'a ObjectId> {
        self.change.identity.object()
    }

    fn pool(&self) -> Option<&'a str> {
        match &self.change.identity {
            Identity::NodePool { pool, .. } => Some(pool),
            Identity::Cluster(_) | Identity::Object(_) | Identity::Check(_) => None,
        }
    }

    /// Returns true for every action but Keep and Delete.
    fn writes(&self) -> bool {
        !matches!(self.change.action, Action::Delete | Action::Keep)
    }

    fn deletes(&self) -> bool {
        self.change.action == Action::Delete
    }

    /// Returns true if its live object may use a deleted resource until this change is made.
    fn uses(&self) -> bool {
        matches!(self.change.action, Action::Update | Action::Replace | Action::Forget)
    }

    /// Returns true if other changes may wait for the capacity that it frees.
    fn frees_capacity(&self) -> bool {
        self.object().is_none() || self.freed_capacity() != FreedCapacity::Nothing
    }

    fn freed_capacity(&self) -> FreedCapacity {
        kinds::of(self.change.kind).freed_capacity
    }

    fn is_deleted_itself(&self) -> bool {
        self.deletes() && !self.is_deleted_with_parent()
    }

    /// Returns true for a delete without steps of its own: it is done once the delete of its parent is.
    fn is_deleted_with_parent(&self) -> bool {
        self.deletes() && self.change.steps.is_empty()
    }

    /// Returns the GPU type of a pool, from its live state or else from its desired one.
    fn gpu(&self) -> Option<&'a str> {
        self.pool()?;
        let body = self.desired.map_or(self.live, |desired| &desired.body);
        body["config"]["accelerators"][0]["acceleratorType"].as_str()
    }

    fn waits_until_idle(&self) -> bool {
        matches!(self.change.steps.first(), Some(Step::Await(Await { until: Until::Idle, .. })))
    }
}

/// The changes of a plan, and the edges of which one end is a delete.
pub(crate) struct Relations<'a> {
    nodes: Vec<ChangeNode<'a>>,
    /// Deleted sections with a controller or a CRD of an API group, by group.
    serving_sections: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

/// The edges between changes, grouped by their cause.
#[derive(Default)]
pub(crate) struct Edges {
    /// Deletes after the deletes of their dependents.
    pub delete_after_dependents: Order,
    /// Deletes before creates that use the capacity that the deletes free.
    pub delete_before_capacity_users: Order,
    /// Deletes after changes that end the use of their resource. These edges are dropped where they would close a cycle.
    pub delete_after_users: Order,
}

impl<'a> Relations<'a> {
    pub fn of(changes: &'a [Change], desired: &'a [Resource], world: &'a World) -> Self {
        let desired: HashMap<&Identity, &Resource> =
            desired.iter().map(|resource| (&resource.identity, resource)).collect();
        let any_delete = changes.iter().any(|change| change.action == Action::Delete);
        let node = |change: &'a Change| {
            let live = world.find(&change.identity).unwrap_or(&Value::Null);
            debug_assert!(change.before.is_null() || !live.is_null(), "what goes was read");
            let desired = desired.get(&change.identity).copied();
            let pods = |body: &Value| if any_delete { PodPools::of(body) } else { PodPools::default() };
            ChangeNode {
                rank: kinds::of(change.kind).rank,
                live_pods: pods(live),
                desired_pods: desired.map(|desired| pods(&desired.body)).unwrap_or_default(),
                change,
                live,
                desired,
            }
        };
        let nodes: Vec<ChangeNode> = changes.iter().map(node).collect();
        let serving_sections = serving_sections(nodes.iter().map(|node| (node.change, node.live)));
        Self { nodes, serving_sections }
    }

    /// Returns the edges. Objects are found by an index of their relations, as there may be ten thousand and comparing each pair
    /// would be slow. Clusters, pools and resources with workers are few, and are compared with everything.
    pub fn edges(&self) -> Edges {
        self.add_to(Edges::default())
    }

    fn add_to(&self, mut edges: Edges) -> Edges {
        if !self.nodes.iter().any(ChangeNode::deletes) {
            return edges;
        }
        self.order_cascaded(&mut edges);
        for (deleted, node) in self.indices(ChangeNode::is_deleted_itself) {
            for (index, other) in self.indices(ChangeNode::writes).filter(|_| node.frees_capacity()) {
                if self.takes_freed_capacity(node, other) {
                    edges.delete_before_capacity_users.add_edge(deleted, index);
                } else if self.uses_until_written(other, node) {
                    edges.delete_after_users.add_edge(index, deleted);
                }
            }
            let objects = node.object().is_some();
            for (index, other) in
                self.indices(ChangeNode::is_deleted_itself).filter(|(index, _)| !objects && *index != deleted)
            {
                if self.lives_on(other, node) {
                    edges.delete_after_dependents.add_edge(index, deleted);
                }
            }
        }
        self.order_emptied_pools(&mut edges);
        self.order_sections(&mut edges);
        self.order_served_kinds(&mut edges);
        self.order_contents(&mut edges);
        self.order_dependents(&mut edges);
        self.order_mentions(&mut edges);
        edges
    }

    /// Orders deletes before stopped pools lose their nodes: the operator that finishes the deletes may run on any of them.
    fn order_emptied_pools(&self, edges: &mut Edges) {
        let deleted: Vec<usize> =
            self.indices(ChangeNode::is_deleted_itself).map(|(index, _)| index).collect();
        let emptied: Vec<usize> =
            self.indices(|node| node.change.scales_to_zero()).map(|(index, _)| index).collect();
        edges.delete_after_dependents.add_edges(&deleted, &emptied);
    }

    fn indices(
        &self,
        which: impl Fn(&ChangeNode<'a>) -> bool,
    ) -> impl Iterator<Item = (usize, &ChangeNode<'a>)> {
        self.nodes.iter().enumerate().filter(move |(_, node)| which(node))
    }

    /// Orders deletes without steps after the deletes of their parents. A cluster contains everything in it. A namespace and a
    /// Dask cluster hold what is in one namespace.
    fn order_cascaded(&self, edges: &mut Edges) {
        let mut cascaded: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.indices(ChangeNode::is_deleted_with_parent) {
            let namespace = node.object().and_then(|object| object.namespace.as_deref());
            cascaded.entry(namespace).or_default().push(index);
        }
        let mut parents: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        let deleted = |node: &ChangeNode<'a>| matches!(node.change.action, Action::Delete | Action::Replace);
        for (index, node) in
            self.indices(|node: &ChangeNode<'a>| deleted(node) && !node.is_deleted_with_parent())
        {
            match &node.change.identity {
                Identity::Cluster(_) => {
                    let all: Vec<usize> = cascaded.values().flatten().copied().collect();
                    edges.delete_after_dependents.add_edges(&[index], &all);
                }
                Identity::Object(object) if object.gvk.kind == "Namespace" => {
                    parents.entry(Some(&object.name)).or_default().push(index);
                }
                Identity::Object(object) if object.gvk.kind == "DaskCluster" => {
                    parents.entry(object.namespace.as_deref()).or_default().push(index);
                }
                Identity::NodePool { .. } | Identity::Object(_) | Identity::Check(_) => {}
            }
        }
        for (namespace, parents) in parents {
            let objects = cascaded.get(&namespace).into_iter().flatten().copied();
            let objects: Vec<usize> = objects.filter(|index| self.nodes[*index].object().is_some()).collect();
            edges.delete_after_dependents.add_edges(&parents, &objects);
        }
    }

    /// Adds the edges from `before` to `deleted`: a delete waits for the changes in `before` that write or release, and for deletes of
    /// objects that were created later.
    fn add_edges_between(&self, before: &[usize], deleted: &[usize], edges: &mut Edges) {
        let deleted: Vec<usize> = deleted
            .iter()
            .copied()
            .filter(|index| self.nodes[*index].is_deleted_itself() && self.nodes[*index].object().is_some())
            .collect();
        let object = |index: &&usize| self.nodes[**index].object().is_some();
        let (mut made, mut ranks) = (Vec::new(), BTreeMap::<u32, Vec<usize>>::new());
        for index in before.iter().filter(object) {
            let node = &self.nodes[*index];
            if node.writes() {
                made.push(*index);
            } else if node.is_deleted_itself() {
                ranks.entry(node.rank).or_default().push(*index);
            }
        }
        // Later made, earlier deleted: so no two wait for each other.
        for (rank, before) in ranks {
            let below: Vec<usize> =
                deleted.iter().copied().filter(|index| self.nodes[*index].rank < rank).collect();
            edges.delete_after_dependents.add_edges(&before, &below);
        }
        let plain: Vec<usize> =
            deleted.into_iter().filter(|index| !self.nodes[*index].frees_capacity()).collect();
        edges.delete_after_users.add_edges(&made, &plain);
    }

    /// Adds the edges between objects of one section.
    fn order_sections(&self, edges: &mut Edges) {
        let mut sections: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            sections.entry(node.change.address.section()).or_default().push(index);
        }
        for indices in sections.values() {
            self.add_edges_between(indices, indices, edges);
        }
    }

    /// Adds the edges between objects of custom kinds and the sections that serve their group.
    fn order_served_kinds(&self, edges: &mut Edges) {
        for (group, sections) in &self.serving_sections {
            let of_group =
                |node: &ChangeNode<'a>| node.object().is_some_and(|object| object.gvk.group == *group);
            let objects: Vec<usize> = self.indices(of_group).map(|(index, _)| index).collect();
            let serves =
                |node: &ChangeNode<'a>| sections.contains(node.change.address.section()) && !of_group(node);
            let serving: Vec<usize> = self.indices(serves).map(|(index, _)| index).collect();
            self.add_edges_between(&objects, &serving, edges);
            self.order_cascading_namespaces(&objects, &serving, edges);
        }
    }

    /// Orders a namespace that deletes objects with it before the sections that serve these, whose controller removes finalizers.
    /// This does not hold if the namespace itself serves them, or contains what does.
    fn order_cascading_namespaces(&self, objects: &[usize], serving: &[usize], edges: &mut Edges) {
        let inside = |index: &usize, name: &str| {
            let object = self.nodes[*index].object();
            object.is_some_and(|object| object.namespace.as_deref() == Some(name))
        };
        for (index, node) in self.indices(ChangeNode::is_deleted_itself) {
            let Some(object) = node.object().filter(|object| object.gvk.kind == "Namespace") else {
                continue;
            };
            let taken =
                |other: &usize| self.nodes[*other].is_deleted_with_parent() && inside(other, &object.name);
            let serves_itself = serving.iter().any(|other| *other == index || inside(other, &object.name));
            if !serves_itself && objects.iter().any(taken) {
                // Pools of such a section have no controller.
                let serves = |other: &usize| {
                    self.nodes[*other].is_deleted_itself() && self.nodes[*other].object().is_some()
                };
                let later: Vec<usize> = serving.iter().copied().filter(serves).collect();
                edges.delete_after_users.add_edges(&[index], &later);
            }
        }
    }

    /// Orders a deleted namespace and its objects, and a deleted CRD and the objects of its kind.
    fn order_contents(&self, edges: &mut Edges) {
        let mut namespaces: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut by_crd: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(object) = node.object() else { continue };
            if let Some(namespace) = &object.namespace {
                namespaces.entry(namespace).or_default().push(index);
            }
            let crd = format!("{}.{}", object.gvk.plural, object.gvk.group);
            by_crd.entry(crd).or_default().push(index);
        }
        for (index, node) in self.indices(ChangeNode::is_deleted_itself) {
            let inside = match node.object() {
                Some(object) if object.gvk.kind == "Namespace" => namespaces.get(object.name.as_str()),
                Some(object) if object.gvk.kind == "CustomResourceDefinition" => by_crd.get(&object.name),
                Some(_) | None => None,
            };
            self.add_edges_between(inside.map_or(&[], Vec::as_slice), &[index], edges);
        }
    }

    /// Orders a delete after the deletes of resources that depend on it.
    fn order_dependents(&self, edges: &mut Edges) {
        let named = AddressIndex::new(self.nodes.iter().map(|node| &node.change.address));
        let mut followers: BTreeMap<&Address, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.indices(ChangeNode::is_deleted_itself) {
            for dependency in node.desired.iter().flat_map(|resource| &resource.depends_on) {
                followers.entry(dependency).or_default().push(index);
            }
        }
        for (dependency, followers) in followers {
            self.add_edges_between(&followers, named.lookup(dependency), edges);
        }
    }

    /// Orders a delete after the changes of live objects that mention its object.
    fn order_mentions(&self, edges: &mut Edges) {
        let named = self.indices(ChangeNode::is_deleted_itself).filter_map(|(index, node)| {
            let ObjectId { namespace, name, .. } = node.object()?;
            Some((index, namespace.as_deref(), name.as_str()))
        });
        let known = NameIndex::new(&named.collect::<Vec<_>>());
        for (index, node) in self.indices(|node: &ChangeNode<'a>| node.is_deleted_itself() || node.uses()) {
            let Some(by) = node.object() else { continue };
            for deleted in known.candidates_in(node.live, by.namespace.as_deref()) {
                let is_named =
                    self.nodes[deleted].object().is_some_and(|object| mentions(node.live, by, object));
                if is_named && deleted != index {
                    self.add_edges_between(&[index], &[deleted], edges);
                }
            }
        }
    }

    /// Returns true if `other` is in a deleted cluster, or its pods may run on a deleted pool.
    fn lives_on(&self, other: &ChangeNode, deleted: &ChangeNode) -> bool {
        match (deleted.pool(), other.object()) {
            (Some(pool), Some(_)) => other.live_pods.may_run_on(pool, deleted.gpu().is_some()),
            (Some(_), None) => false,
            (None, _) => matches!(deleted.change.identity, Identity::Cluster(_)),
        }
    }

    /// Returns true if `other`, which is written, run or released, may use a deleted resource until then.
    fn uses_until_written(&self, other: &ChangeNode, deleted: &ChangeNode) -> bool {
        if matches!(deleted.change.identity, Identity::Cluster(_)) {
            return true;
        }
        if let Some(pool) = deleted.pool() {
            let moves = matches!(other.change.action, Action::Update | Action::Replace);
            return match other.pool() {
                // Pods of the last pool without GPUs, among them GKE's system pods, need another node first.
                Some(_) => {
                    deleted.gpu().is_none() && other.gpu().is_none() && self.is_last_without_gpus(deleted)
                }
                None => moves && other.live_pods.pools.contains(pool),
            };
        }
        let (Some(object), Some(inside)) = (deleted.object(), other.object()) else { return false };
        deleted.change.address.section() == other.change.address.section()
            || is_inside(inside, object)
            || self.is_served(inside, deleted)
            || other.uses() && mentions(other.live, inside, object)
    }

    /// Returns true if the deleted pool has no GPUs, and no pool without GPUs is kept or updated.
    fn is_last_without_gpus(&self, deleted: &ChangeNode) -> bool {
        let stays = |node: &&ChangeNode| matches!(node.change.action, Action::Keep | Action::Update);
        let mut plain = self.nodes.iter().filter(|node| node.pool().is_some() && node.gpu().is_none());
        deleted.gpu().is_none() && !plain.any(|node| stays(&node))
    }

    /// Returns true if another change takes the capacity that a delete frees. GPUs of a type go to pools with GPUs of that type:
    /// quotas count them, and full quotas are the rule. Deleted workers and interrupted checks free GPUs for the checks and
    /// clusters that are created. A deleted autoscaler frees the number of workers for another owner.
    fn takes_freed_capacity(&self, deleted: &ChangeNode, other: &ChangeNode) -> bool {
        if let (Some(pool), Some(_)) = (deleted.pool(), other.pool()) {
            let takes = match other.change.action {
                Action::Create | Action::Replace => true,
                Action::Update => {
                    let size = FieldPath::keys(["nodeCount"]);
                    let autoscaling = FieldPath::keys(["autoscaling"]);
                    other
                        .change
                        .fields
                        .iter()
                        .any(|field| size == field.path || autoscaling.contains(&field.path))
                }
                Action::Keep | Action::Delete | Action::Forget | Action::Run => false,
            };
            // Work that is waited for must not lose its nodes before.
            let held = |node: &ChangeNode| {
                node.writes() && node.waits_until_idle() && node.live_pods.pools.contains(pool)
            };
            return takes
                && deleted.gpu().is_some()
                && deleted.gpu() == other.gpu()
                && !self.nodes.iter().any(held);
        }
        if other.rank < kinds::dask::check::KIND.rank {
            return false;
        }
        let same = deleted.change.address.section() == other.change.address.section();
        // The pod of a check that was cut short may hold the GPU that its next run asks for.
        let left = kinds::dask::check::is_leftover_pod(&deleted.change.identity, &deleted.change.address);
        if left || deleted.freed_capacity() == FreedCapacity::Nodes {
            return same || deleted.live_pods.may_share_node(&other.desired_pods);
        }
        let of_it = |object: &ObjectId| {
            let (of, beside) =
                (text(&deleted.live["spec"]["cluster"]), deleted.object().map(|deleted| &deleted.namespace));
            let group = other.desired.map_or("", |desired| text(&desired.body["spec"]["cluster"]));
            beside == Some(&object.namespace) && (object.name == of || group == of)
        };
        deleted.freed_capacity() == FreedCapacity::WorkerCount && (same || other.object().is_some_and(of_it))
    }

    /// Returns true if a deleted resource serves the kind of an object: its CRD, or the section of its controller. False if the
    /// deleted resource is itself an object of that API group.
    fn is_served(&self, object: &ObjectId, deleted: &ChangeNode) -> bool {
        let sections = self.serving_sections.get(object.gvk.group.as_str());
        let own = deleted.object().is_some_and(|deleted| deleted.gvk.group == object.gvk.group);
        !own && sections.is_some_and(|sections| sections.contains(deleted.change.address.section()))
    }
}

/// Returns the deleted sections that serve the custom kinds of an API group, keyed by group. Such a section deletes a CRD or a role
/// of a controller that mentions the group; the controller may have to remove finalizers.
fn serving_sections<'a>(
    changes: impl Iterator<Item = (&'a Change, &'a Value)> + Clone,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let objects = changes.filter_map(|(change, live)| Some((change, change.identity.object()?, live)));
    let moving = objects.clone().filter(|(change, ..)| change.action != Action::Keep);
    let custom = moving.filter(|(_, object, _)| is_custom(object));
    let groups: BTreeSet<&str> = custom.map(|(_, object, _)| object.gvk.group.as_str()).collect();
    let mut serving: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (change, object, live) in objects.filter(|(change, ..)| change.action == Action::Delete) {
        let speaks = matches!(object.gvk.kind.as_str(), "CustomResourceDefinition" | "ClusterRole" | "Role");
        for group in groups.iter().filter(|group| speaks && has_word(live, group)) {
            serving.entry(group).or_default().insert(change.address.section());
        }
    }
    serving
}

/// Returns true for an object of a kind that is not built into the API server.
pub(crate) fn is_custom(object: &ObjectId) -> bool {
    model::schema::api(&object.gvk.group, &object.gvk.version, &object.gvk.kind).is_none()
}

/// Returns the deleted sections that serve a custom kind: with a CRD, or with the controller of deleted objects.
pub(crate) fn sections_with_controllers<'a>(changes: &'a [Change], world: &'a World) -> BTreeSet<&'a str> {
    let with_live = |change: &'a Change| (change, world.find(&change.identity).unwrap_or(&Value::Null));
    let defined =
        changes.iter().filter(|change| change.action == Action::Delete && change.kind == KindId::Crd);
    let defined = defined.map(|change| change.address.section());
    serving_sections(changes.iter().map(with_live)).into_values().flatten().chain(defined).collect()
}

/// Returns true if `inside` is in the namespace `object`, or of the kind of the CRD `object`.
fn is_inside(inside: &ObjectId, object: &ObjectId) -> bool {
    match object.gvk.kind.as_str() {
        "Namespace" => inside.namespace.as_ref() == Some(&object.name),
        "CustomResourceDefinition" => object.name == format!("{}.{}", inside.gvk.plural, inside.gvk.group),
        _ => false,
    }
}

/// Returns true if a live object mentions another one that it can refer to: the ConfigMap that it mounts, its ServiceAccount.
fn mentions(live: &Value, by: &ObjectId, object: &ObjectId) -> bool {
    let reaches = object.namespace.is_none() || object.namespace == by.namespace;
    reaches && referencing_fields(live).any(|value| has_word(value, &object.name))
}

#[cfg(test)]
#[path = "relations_tests.rs"]
mod tests;
