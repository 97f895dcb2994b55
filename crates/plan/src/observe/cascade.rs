//! Resources that a server deletes with another one. With a GKE cluster: everything in it. With a node pool: the Pods that
//! nothing recreates. With a namespace: its objects. With a CRD: the objects of its kind. With an owner: the objects that it
//! owns. With a DaskCluster: its groups and autoscalers. This holds for foreign resources, too, and does not depend on `--target`
//! and `--exclude`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::observe::diff;
use kinds::dask;
use kinds::scope::POOL_LABEL;
use model::resource::{ClusterName, Identity, ObjectId, World};

/// Reasons why a resource is deleted with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CascadeReason {
    /// It is in a GKE cluster.
    Cluster,
    /// It is a Pod on a node of a pool, and has no controller that recreates it elsewhere.
    Pool,
    Namespace,
    /// Its CRD is deleted.
    Crd,
    /// All its owners are deleted. Source: the garbage collector, <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>.
    Owner,
    /// It is attached to a DaskCluster.
    DaskCluster,
}

/// Returns why a resource is deleted with `parent`, if their identities alone show it.
pub fn cascade_reason(parent: &Identity, child: &Identity) -> Option<CascadeReason> {
    match (parent, child) {
        (Identity::Cluster(_), Identity::Cluster(_)) => None,
        (Identity::Cluster(_), _) => Some(CascadeReason::Cluster),
        (Identity::Object(parent), Identity::Object(child)) => {
            let inside = is_namespace(parent) && child.namespace.as_ref() == Some(&parent.name);
            let defined =
                || defined_kind(parent) == Some((child.gvk.plural.as_str(), child.gvk.group.as_str()));
            if inside { Some(CascadeReason::Namespace) } else { defined().then_some(CascadeReason::Crd) }
        }
        (Identity::NodePool { .. } | Identity::Object(_) | Identity::Check(_), _) => None,
    }
}

pub fn is_namespace(object: &ObjectId) -> bool {
    object.gvk.kind == "Namespace" && object.gvk.group.is_empty()
}

/// Returns the plural and the group of the kind that a CRD defines. The CRD's name consists of both.
pub fn defined_kind(object: &ObjectId) -> Option<(&str, &str)> {
    let is_crd = object.gvk.kind == "CustomResourceDefinition";
    is_crd.then(|| object.name.split_once('.')).flatten()
}

/// The cause of a delete that follows from another delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CascadeEntry {
    /// The resource at the beginning of the chain, which is deleted by itself.
    pub root: Identity,
    /// The reason why the resource is deleted with its neighbor in the chain.
    pub reason: CascadeReason,
}

/// Parents that live resources are deleted with.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CascadeParent<'w> {
    Namespace(&'w str),
    /// Plural and group.
    Crd(&'w str, &'w str),
    /// A uid.
    Owner(&'w str),
    /// Namespace and name.
    DaskCluster(&'w str, &'w str),
    Pool(&'w str),
}

/// The live resources, by the parents that they are deleted with.
pub struct Cascade<'w> {
    world: &'w World,
    cluster: Option<&'w ClusterName>,
    at: BTreeMap<CascadeParent<'w>, Vec<&'w ObjectId>>,
    uids: BTreeMap<&'w str, &'w ObjectId>,
}

impl<'w> Cascade<'w> {
    /// Indexes the live state. `manager` is the stack's field manager.
    pub fn new(world: &'w World, cluster: Option<&'w ClusterName>, manager: &str) -> Self {
        let inside = || world.objects.live().into_iter().flatten();
        let pools = pools_of_nodes(world);
        let mut at: BTreeMap<CascadeParent<'w>, Vec<&'w ObjectId>> = BTreeMap::new();
        let mut uids = BTreeMap::new();
        for (object, live) in inside() {
            uids.extend(live["metadata"]["uid"].as_str().map(|uid| (uid, object)));
            let namespace = object.namespace.as_deref();
            let mut parents: Vec<CascadeParent<'w>> =
                namespace.map(CascadeParent::Namespace).into_iter().collect();
            if !object.gvk.group.is_empty() {
                parents.push(CascadeParent::Crd(&object.gvk.plural, &object.gvk.group));
            }
            parents.extend(owner_uids(live).map(CascadeParent::Owner));
            let owned = owner_uids(live).next().is_some();
            let attached = object.gvk == dask::api::group() || object.gvk == dask::api::autoscaler();
            // The operator makes the cluster their owner; what others have just attached will be its, too.
            if attached && (owned || !diff::applied_by(live, manager)) {
                let cluster = live["spec"]["cluster"].as_str();
                parents.extend(
                    cluster.map(|name| CascadeParent::DaskCluster(namespace.unwrap_or_default(), name)),
                );
            }
            if is_pod(object) && !owned {
                parents.extend(pool_of(live, &pools).map(CascadeParent::Pool));
            }
            for parent in parents {
                at.entry(parent).or_default().push(object);
            }
        }
        Self { world, cluster, at, uids }
    }

    /// Returns the resources that are deleted directly with `deleted`, without those that are deleted with these in turn.
    pub fn direct(&self, deleted: &Identity) -> Vec<(Identity, CascadeReason)> {
        let found = |parent: CascadeParent<'_>, reason: CascadeReason| {
            let objects = self.at.get(&parent).into_iter().flatten();
            objects.map(move |object| (Identity::Object((*object).clone()), reason)).collect::<Vec<_>>()
        };
        match deleted {
            Identity::Cluster(_) => {
                let pools = self.world.pools.keys().filter_map(|pool| {
                    Some(Identity::NodePool { cluster: self.cluster?.clone(), pool: pool.clone() })
                });
                let objects = self.world.objects.live().into_iter().flatten();
                let objects = objects.map(|(object, _)| Identity::Object(object.clone()));
                pools.chain(objects).map(|child| (child, CascadeReason::Cluster)).collect()
            }
            Identity::NodePool { pool, .. } => found(CascadeParent::Pool(pool), CascadeReason::Pool),
            Identity::Object(object) => {
                let mut cascaded = Vec::new();
                if is_namespace(object) {
                    cascaded.extend(found(CascadeParent::Namespace(&object.name), CascadeReason::Namespace));
                }
                if let Some((plural, group)) = defined_kind(object) {
                    cascaded.extend(found(CascadeParent::Crd(plural, group), CascadeReason::Crd));
                }
                if object.gvk == dask::api::cluster() {
                    let namespace = object.namespace.as_deref().unwrap_or_default();
                    cascaded.extend(found(
                        CascadeParent::DaskCluster(namespace, &object.name),
                        CascadeReason::DaskCluster,
                    ));
                }
                let uid = self.world.find(deleted).and_then(|live| live["metadata"]["uid"].as_str());
                cascaded.extend(
                    uid.into_iter().flat_map(|uid| found(CascadeParent::Owner(uid), CascadeReason::Owner)),
                );
                cascaded
            }
            Identity::Check(_) => Vec::new(),
        }
    }

    /// Returns all resources that are deleted with these, directly or in chains.
    pub fn all(&self, deleted: &[Identity]) -> BTreeMap<Identity, CascadeEntry> {
        let mut all_deleted: BTreeSet<Identity> = deleted.iter().cloned().collect();
        let mut open: Vec<(Identity, Identity)> =
            deleted.iter().rev().map(|one| (one.clone(), one.clone())).collect();
        let mut cascaded = BTreeMap::new();
        while let Some((one, root)) = open.pop() {
            for (child, reason) in self.direct(&one) {
                let stays = reason == CascadeReason::Owner && !self.loses_all_owners(&child, &all_deleted);
                if stays || !all_deleted.insert(child.clone()) {
                    continue;
                }
                cascaded.insert(child.clone(), CascadeEntry { root: root.clone(), reason });
                open.push((child, root.clone()));
            }
        }
        cascaded
    }

    /// Returns true if no owner of a resource stays. An owner that was not read may be deleted already.
    fn loses_all_owners(&self, child: &Identity, all_deleted: &BTreeSet<Identity>) -> bool {
        let Some(live) = self.world.find(child) else { return false };
        let mut known = owner_uids(live).filter_map(|uid| self.uids.get(uid));
        known.all(|owner| all_deleted.contains(&Identity::Object((*owner).clone())))
    }

    /// Returns true if `is` holds for one of a resource's owners.
    pub fn has_owner(&self, live: &Value, is: impl Fn(&Identity) -> bool) -> bool {
        let mut known = owner_uids(live).filter_map(|uid| self.uids.get(uid));
        known.any(|owner| is(&Identity::Object((*owner).clone())))
    }
}

impl Cascade<'_> {
    /// Returns true if `is` holds for an owner of a resource, or for an owner of that: a controller created it.
    pub fn has_ancestor(&self, live: &Value, is: &impl Fn(&ObjectId, &Value) -> bool) -> bool {
        let mut open: Vec<&ObjectId> =
            owner_uids(live).filter_map(|uid| self.uids.get(uid).copied()).collect();
        let mut seen = BTreeSet::new();
        while let Some(owner) = open.pop() {
            let live = self.world.objects.live().and_then(|inside| inside.get(owner));
            let Some(live) = live.filter(|_| seen.insert(owner)) else { continue };
            if is(owner, live) {
                return true;
            }
            open.extend(owner_uids(live).filter_map(|uid| self.uids.get(uid).copied()));
        }
        false
    }
}

/// Returns the pool of each node, by the node's name.
fn pools_of_nodes(world: &World) -> BTreeMap<&str, &str> {
    let inside = world.objects.live().into_iter().flatten();
    let nodes = inside.filter(|(object, _)| object.gvk.kind == "Node" && object.namespace.is_none());
    nodes
        .filter_map(|(object, live)| {
            Some((object.name.as_str(), live["metadata"]["labels"][POOL_LABEL].as_str()?))
        })
        .collect()
}

pub(crate) fn is_pod(object: &ObjectId) -> bool {
    object.gvk.kind == "Pod" && object.gvk.group.is_empty()
}

/// Returns the pool of the node that a Pod runs on.
fn pool_of<'w>(pod: &Value, pools: &BTreeMap<&str, &'w str>) -> Option<&'w str> {
    pod["spec"]["nodeName"].as_str().and_then(|node| pools.get(node).copied())
}

/// Returns the Pods on the nodes of a pool.
pub(crate) fn pods_of_pool<'w>(world: &'w World, pool: &str) -> Vec<(&'w ObjectId, &'w Value)> {
    let pools = pools_of_nodes(world);
    let inside = world.objects.live().into_iter().flatten();
    inside.filter(|(object, live)| is_pod(object) && pool_of(live, &pools) == Some(pool)).collect()
}

/// Returns the uids of an object's ownerReferences.
pub(crate) fn owner_uids(live: &Value) -> impl Iterator<Item = &str> {
    let owners = live["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    // Owners without a uid match no object.
    owners.map(|owner| owner["uid"].as_str().unwrap_or_default())
}
