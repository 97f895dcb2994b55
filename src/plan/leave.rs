//! What goes: what is live and ours and no longer wanted, and what others have that would go along with it.

use serde_json::Value;

use super::make::{Maker, fingerprint, lane};
use super::{Action, Change, Inputs, Mode, diff};
use crate::address::{Address, FieldPath};
use crate::kinds::{self, Kind, gke};
use crate::resource::{Identity, ObjectId, Resource, World};

impl Maker<'_> {
    /// Live things of ours that the file no longer asks for. A GKE cluster is never among them.
    pub(super) fn no_longer_wanted(&mut self) {
        if self.renewed {
            self.taken_along();
            return;
        }
        let wanted: Vec<Identity> =
            self.inputs.desired.iter().map(|resource| resource.identity.clone()).collect();
        for (identity, live, address, kind) in self.owned() {
            if !wanted.contains(&identity) && !matches!(identity, Identity::Cluster(_)) {
                self.delete(identity, &live, address, kind, Some("no longer in the stack file"), false);
            }
        }
    }

    pub(super) fn destroy(&mut self) {
        for (identity, live, address, kind) in self.owned() {
            if let Some(resource) = self.inputs.desired.iter().find(|resource| resource.identity == identity)
            {
                self.protected(resource, "delete");
            }
            self.delete(identity, &live, address, kind, None, false);
        }
        self.taken_along();
    }

    /// Pools that others made in a GKE cluster that is deleted or made anew: they are named, and need consent of
    /// their own.
    fn taken_along(&mut self) {
        let goes = |change: &Change| {
            let deleted = matches!(change.action, Action::Delete | Action::Replace);
            deleted && matches!(change.identity, Identity::Cluster(_))
        };
        let Some(name) = self.inputs.target.gke.clone().filter(|_| self.changes.iter().any(goes)) else {
            return;
        };
        for (pool, live) in &self.inputs.world.pools {
            let identity = Identity::NodePool { cluster: name.clone(), pool: pool.clone() };
            if self.changes.iter().any(|change| change.identity == identity) {
                continue;
            }
            let (address, why) =
                (Address::of("node_pool", pool), "others made it, and it would go with the cluster");
            self.delete(identity, live, address, kinds::node_pool::KIND.name, Some(why), true);
        }
        self.namespaces_of_others();
    }

    /// Everything live that is ours, with the address it has or had.
    fn owned(&self) -> Vec<(Identity, Value, Address, &'static str)> {
        let Inputs { world, target, owner, desired, theirs, .. } = self.inputs;
        let mut owned = Vec::new();
        let needed = self.operator_is_needed();
        let mut add = |identity: Identity, live: &Value| {
            if theirs.iter().any(|theirs| theirs.resource.identity == identity) {
                return;
            }
            let (address, kind) = self.known_as(&identity, desired);
            if needed && address.section() == kinds::dask_operator::SECTION {
                return;
            }
            owned.push((identity, live.clone(), address, kind));
        };
        if let (Some(name), Some(live)) = (&target.gke, world.cluster.live())
            && gke::is_ours(&live["resourceLabels"], owner)
        {
            add(Identity::Cluster(name.clone()), live);
        }
        for (pool, live) in &world.pools {
            let identity = |name: &crate::resource::ClusterName| Identity::NodePool {
                cluster: name.clone(),
                pool: pool.clone(),
            };
            if let Some(name) = &target.gke
                && gke::is_ours(&live["config"]["resourceLabels"], owner)
            {
                add(identity(name), live);
            }
        }
        let manager = owner.field_manager();
        for (object, live) in world.inside.live().into_iter().flatten() {
            // What another stack has applied too is its to keep: the last to leave deletes.
            let shared = !diff::other_stacks(live, &manager).is_empty();
            if diff::applied_by(live, &manager) && !shared && !self.is_record(object) {
                add(Identity::Object(object.clone()), live);
            }
        }
        owned
    }

    /// The operator and its definitions stay while the cluster stays and others have Dask things in it: without
    /// them those could neither work nor go.
    fn operator_is_needed(&self) -> bool {
        if self.inputs.target.gke.is_some() && self.inputs.mode == Mode::Destroy {
            return false;
        }
        let manager = self.inputs.owner.field_manager();
        let alone = |(_, live): (&ObjectId, &Value)| !live["metadata"]["ownerReferences"].is_array();
        dask_things(self.inputs.world).filter(|(_, live)| !diff::applied_by(live, &manager)).any(alone)
    }

    /// Worker groups and autoscalers that others attached to a DaskCluster of ours that goes: they go along.
    pub(super) fn attached(&mut self) {
        let manager = self.inputs.owner.field_manager();
        let goes: Vec<ObjectId> = self
            .changes
            .iter()
            .filter(|change| matches!(change.action, Action::Delete | Action::Replace) && !change.foreign)
            .filter(|change| change.kind == kinds::dask_cluster::KIND.name)
            .filter_map(|change| match &change.identity {
                Identity::Object(object) => Some(object.clone()),
                _ => None,
            })
            .collect();
        for (object, live) in dask_things(self.inputs.world) {
            let cluster = goes.iter().find(|cluster| {
                cluster.namespace == object.namespace && live["spec"]["cluster"] == cluster.name.as_str()
            });
            let Some(cluster) = cluster.filter(|_| !diff::applied_by(live, &manager)) else { continue };
            // The operator's own default group is part of the cluster.
            if object.name == format!("{}-default", cluster.name) {
                continue;
            }
            let address =
                Address::object("dask_cluster", &object.gvk.kind, object.namespace.as_deref(), &object.name);
            let why = format!("others attached it to DaskCluster {}, and it would go with it", cluster.name);
            self.delete(
                Identity::Object(object.clone()),
                live,
                address,
                kinds::object::PLAIN.name,
                Some(&why),
                true,
            );
        }
    }

    /// Namespaces that others made in a GKE cluster that goes, and with them all that is in them.
    fn namespaces_of_others(&mut self) {
        let manager = self.inputs.owner.field_manager();
        let system = ["default", "dask-infra"];
        let systems = ["kube-", "gke-", "gmp-"];
        for (object, live) in self.inputs.world.inside.live().into_iter().flatten() {
            let name = object.name.as_str();
            let known = system.contains(&name) || systems.iter().any(|start| name.starts_with(start));
            if object.gvk.kind != "Namespace" || known || diff::applied_by(live, &manager) {
                continue;
            }
            let why = "others made it, and it would go with the cluster";
            let address = Address::of("namespace", name);
            let kind = kinds::namespace::KIND.name;
            self.delete(Identity::Object(object.clone()), live, address, kind, Some(why), true);
        }
    }

    /// The record and its namespace are not things of the stack: apply keeps them.
    fn is_record(&self, object: &ObjectId) -> bool {
        let namespace = kinds::namespace::object(crate::record::NAMESPACE);
        *object == crate::record::Record::object(&self.inputs.owner.stack) || *object == namespace
    }

    fn known_as(&self, identity: &Identity, desired: &[Resource]) -> (Address, &'static str) {
        let name = |kind: &str| kinds::find(kind).map_or(kinds::object::PLAIN.name, |kind: &Kind| kind.name);
        if let Some(resource) = desired.iter().find(|resource| &resource.identity == identity) {
            return (resource.address.clone(), name(&resource.kind));
        }
        let record = self.inputs.world.record.as_ref();
        if let Some(entry) = record.and_then(|r| r.inventory.iter().find(|entry| &entry.identity == identity))
        {
            return (entry.address.clone(), name(&entry.kind));
        }
        match identity {
            Identity::Cluster(_) => (Address::new("cluster"), kinds::cluster::KIND.name),
            Identity::NodePool { pool, .. } => (Address::of("node_pool", pool), kinds::node_pool::KIND.name),
            Identity::Check(address) => (address.clone(), kinds::check::KIND.name),
            Identity::Object(object) => kinds::known_as(object),
        }
    }

    fn delete(
        &mut self,
        identity: Identity,
        live: &Value,
        address: Address,
        kind: &'static str,
        reason: Option<&str>,
        foreign: bool,
    ) {
        let wanted = self.inputs.desired.iter().find(|resource| resource.identity == identity);
        let origin = wanted.map_or(FieldPath::keys(["stack", "name"]), |resource| resource.origin.clone());
        self.changes.push(Change {
            location: self.inputs.sources.locate(&origin).map(|location| location.to_string()),
            lane: lane(&identity),
            address,
            identity,
            kind: kind.to_owned(),
            action: Action::Delete,
            fields: Vec::new(),
            reason: reason.map(str::to_owned),
            origin,
            steps: Vec::new(),
            follows: Vec::new(),
            fingerprint: Some(fingerprint(live, &[])),
            foreign,
        });
    }
}

/// Live things of the Dask operator's kinds.
fn dask_things(world: &World) -> impl Iterator<Item = (&ObjectId, &Value)> {
    let dask = |object: &ObjectId| kinds::dask_cluster::needing_operator().any(|gvk| gvk == object.gvk);
    world.inside.live().into_iter().flatten().filter(move |(object, _)| dask(object))
}
