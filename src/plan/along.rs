//! What others have that would go along with what goes: pools, namespaces and objects in a GKE cluster, objects in
//! a namespace of ours, worker groups attached to a DaskCluster. Each is named and needs consent of its own.

use std::collections::BTreeMap;

use serde_json::Value;

use super::leave::dask_things;
use super::make::Maker;
use super::{Action, Change, Note, Plan, diff};
use crate::address::Address;
use crate::diag::Code;
use crate::kinds::{self, text};
use crate::resource::{Identity, ObjectId, Reach};

/// Namespaces of the system and of records: GKE's add-ons and every cluster's own.
/// Source: the namespaces of a new GKE cluster, <https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-configuration-overview>.
const SYSTEM: [&str; 5] = ["kube-", "gke-", "gmp-", "config-management-", "dask-infra"];
/// Kinds that controllers write for others; they say nothing of their own.
const SHADOWS: [&str; 6] =
    ["Event", "Endpoints", "EndpointSlice", "Lease", "ControllerRevision", "PodMetrics"];
/// How many things of a namespace are named in its reason.
const NAMED: usize = 3;

/// Where things of others could go along with what a plan deletes.
pub fn reach(plan: &Plan) -> Option<Reach> {
    reach_of(&plan.changes)
}

fn reach_of(changes: &[Change]) -> Option<Reach> {
    let goes = |change: &&Change| matches!(change.action, Action::Delete | Action::Replace);
    let mut names = std::collections::BTreeSet::new();
    for change in changes.iter().filter(goes).filter(|change| !change.foreign) {
        match &change.identity {
            Identity::Cluster(_) => return Some(Reach::Cluster),
            Identity::Object(object) if object.gvk.kind == "Namespace" => {
                names.insert(object.name.clone());
            }
            Identity::Object(_) | Identity::NodePool { .. } | Identity::Check(_) => {}
        }
    }
    (!names.is_empty()).then_some(Reach::Namespaces(names))
}

fn is_system(namespace: &str) -> bool {
    SYSTEM.iter().any(|start| namespace.starts_with(start))
}

impl<'w> Maker<'w> {
    /// Everything of others that would go along.
    pub(super) fn goes_along(&mut self) {
        self.attached();
        let Some(reach) = reach_of(&self.changes) else { return };
        if reach == Reach::Cluster {
            self.pools_of_others();
        }
        let mut strangers = self.strangers(&reach);
        if reach == Reach::Cluster {
            self.namespaces_of_others(&mut strangers);
        }
        for objects in strangers.into_values() {
            for (object, live) in objects {
                let namespace = object.namespace.as_deref().unwrap_or_default();
                let address =
                    Address::object(&format!("others.{namespace}"), &object.gvk.kind, None, &object.name);
                let why = match reach {
                    Reach::Cluster => "others made it, and it would go with the cluster",
                    Reach::Namespaces(_) => "others made it, and it would go with its namespace",
                };
                self.foreign(Identity::Object(object.clone()), live, address, kinds::object::PLAIN.name, why);
            }
        }
        for message in &self.inputs.world.unseen {
            self.notes.push(Note {
                code: Code::OthersUnseen.as_str().into(),
                address: Address::new("cluster"),
                message: format!(
                    "what others have could not be looked at, and would go along unnamed: {message}"
                ),
            });
        }
    }

    fn foreign(&mut self, identity: Identity, live: &Value, address: Address, kind: &'static str, why: &str) {
        if !self.changes.iter().any(|change| change.identity == identity) {
            self.delete(identity, live, address, kind, Some(why), true);
        }
    }

    /// Pools that others made in a GKE cluster that is deleted or made anew.
    fn pools_of_others(&mut self) {
        let Some(name) = self.inputs.target.gke.clone() else { return };
        for (pool, live) in &self.inputs.world.pools {
            let identity = Identity::NodePool { cluster: name.clone(), pool: pool.clone() };
            let why = "others made it, and it would go with the cluster";
            self.foreign(identity, live, Address::of("node_pool", pool), kinds::node_pool::KIND.name, why);
        }
    }

    /// Worker groups and autoscalers that others attached to a DaskCluster of ours that goes.
    fn attached(&mut self) {
        let manager = self.inputs.owner.field_manager();
        let goes: Vec<ObjectId> = self
            .changes
            .iter()
            .filter(|change| matches!(change.action, Action::Delete | Action::Replace) && !change.foreign)
            .filter(|change| change.kind == kinds::dask_cluster::KIND.name)
            .filter_map(|change| match &change.identity {
                Identity::Object(object) => Some(object.clone()),
                Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => None,
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
            self.foreign(Identity::Object(object.clone()), live, address, kinds::object::PLAIN.name, &why);
        }
    }

    /// Namespaces that others made in a GKE cluster that goes, and what is in them, which a consent to the
    /// namespace holds for.
    fn namespaces_of_others(&mut self, strangers: &mut BTreeMap<String, Vec<(&ObjectId, &Value)>>) {
        let manager = self.inputs.owner.field_manager();
        for (object, live) in self.inputs.world.inside.live().into_iter().flatten() {
            let name = object.name.as_str();
            let known = name == "default" || is_system(name);
            if object.gvk.kind != "Namespace" || known || diff::applied_by(live, &manager) {
                continue;
            }
            let inside = strangers.remove(name).unwrap_or_default();
            let named: Vec<String> = inside
                .iter()
                .take(NAMED)
                .map(|(object, _)| format!("{} {}", object.gvk.kind, object.name))
                .collect();
            let more = match inside.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let with =
                if named.is_empty() { named.concat() } else { format!(", with {}{more}", named.join(", ")) };
            let why = format!("others made it, and it would go with the cluster{with}");
            let address = Address::of("namespace", name);
            self.foreign(Identity::Object(object.clone()), live, address, kinds::namespace::KIND.name, &why);
        }
    }

    /// Objects within reach that are nobody's we know: not of this stack, not made for something of this stack, not
    /// the system's; by namespace.
    fn strangers(&self, reach: &Reach) -> BTreeMap<String, Vec<(&'w ObjectId, &'w Value)>> {
        let manager = self.inputs.owner.field_manager();
        let mut found: BTreeMap<String, Vec<(&ObjectId, &Value)>> = BTreeMap::new();
        for (object, live) in self.inputs.world.inside.live().into_iter().flatten() {
            let Some(namespace) = object.namespace.as_deref() else { continue };
            let beside = !reach.holds(namespace) || is_system(namespace);
            if beside
                || diff::applied_by(live, &manager)
                || belongs(object, live)
                || self.serves_ours(object, live)
            {
                continue;
            }
            found.entry(namespace.to_owned()).or_default().push((object, live));
        }
        found
    }

    /// What the operator made for a DaskCluster of ours.
    fn serves_ours(&self, object: &ObjectId, live: &Value) -> bool {
        let manager = self.inputs.owner.field_manager();
        let label = live["metadata"]["labels"]["dask.org/cluster-name"].as_str();
        let Some(name) = label.or(live["spec"]["cluster"].as_str()) else { return false };
        dask_things(self.inputs.world).any(|(cluster, live)| {
            let same = cluster.name == name && cluster.namespace == object.namespace;
            same && cluster.gvk.kind == "DaskCluster" && diff::applied_by(live, &manager)
        })
    }
}

/// Whether an object belongs to another, or is one that every namespace has.
fn belongs(object: &ObjectId, live: &Value) -> bool {
    let owners = live["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    let kind = object.gvk.kind.as_str();
    let everywhere = match kind {
        "ConfigMap" => object.name == "kube-root-ca.crt",
        "ServiceAccount" => object.name == "default",
        "Service" => object.name == "kubernetes" && object.namespace.as_deref() == Some("default"),
        "Secret" => text(&live["type"]) == "kubernetes.io/service-account-token",
        _ => false,
    };
    owners || everywhere || SHADOWS.contains(&kind)
}
