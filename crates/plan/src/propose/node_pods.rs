//! Effects on the Pods of nodes that GKE recreates or deletes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::observe::cascade::{Cascade, is_pod, pods_of_pool};
use crate::planner::Planner;
use crate::propose::impact::{
    MAX_LISTED, controller_kind, enables_queued_provisioning, is_user_pod, recreates_nodes, shrinks_to,
};
use crate::{Action, Change, Note};
use model::diag::Code;
use model::resource::{Identity, KindId, ObjectId};

/// Kinds of changes to the nodes of a pool.
#[derive(Clone, Copy, PartialEq)]
enum NodeImpact {
    Rolled,
    /// All nodes are deleted.
    Deleted {
        replaced: bool,
    },
    /// The pool is deleted, and the cluster stays.
    Removed,
    /// Some nodes are deleted; GKE chooses which.
    Fewer,
}

impl NodeImpact {
    fn of(change: &Change) -> Option<Self> {
        let replaced = change.action == Action::Replace && !change.foreign;
        match shrinks_to(change) {
            _ if change.action == Action::Delete => Some(Self::Removed),
            _ if recreates_nodes(change) => Some(Self::Rolled),
            Some(1..) => Some(Self::Fewer),
            left => (enables_queued_provisioning(change) || left == Some(0) || replaced)
                .then_some(Self::Deleted { replaced }),
        }
    }
}

impl Planner<'_> {
    /// Returns notes on the Pods that a change of a pool evicts: those that are lost, and those that restart elsewhere.
    pub(crate) fn drained_pod_notes(&self) -> Vec<Note> {
        let world = self.observed.inputs.world;
        let goes = |change: &&Change| matches!(change.action, Action::Delete | Action::Replace);
        let gone: BTreeSet<Identity> =
            self.changes.iter().filter(goes).map(|change| change.identity.clone()).collect();
        if gone.iter().any(|one| matches!(one, Identity::Cluster(_))) {
            return Vec::new();
        }
        // Stopped resources are listed with everything that is deleted with them.
        let changes = self.changes.iter().filter(|change| !change.scales_to_zero());
        let changes: Vec<_> = changes
            .filter_map(|change| Some((change, change.identity.pool()?, NodeImpact::of(change)?)))
            .collect();
        if changes.is_empty() {
            return Vec::new();
        }
        let going = self.deleted_with_owner(&gone);
        let homeless = self.no_pool_is_left();
        let mut notes = Vec::new();
        for (change, pool, nodes) in changes {
            let (mut lost, mut moved) = (Vec::new(), Vec::new());
            for (object, live) in pods_of_pool(world, pool) {
                match (is_user_pod(object, live), controller_kind(live)) {
                    (false, _) | (true, Some("DaemonSet" | "Node")) => {}
                    (true, Some(_)) if going.contains(object) => {}
                    (true, Some(_)) => moved.push(object),
                    // The approval of the delete covers its losses, which the delete names.
                    (true, None)
                        if matches!(nodes, NodeImpact::Removed | NodeImpact::Deleted { replaced: true }) => {}
                    (true, None) => lost.push(object),
                }
            }
            let mut parts = match nodes {
                NodeImpact::Fewer => some(&lost, &moved),
                NodeImpact::Removed if homeless && !moved.is_empty() => waiting(&moved),
                NodeImpact::Rolled | NodeImpact::Deleted { .. } | NodeImpact::Removed => all(&lost, &moved),
            };
            let unseen = world.unlisted_foreign.iter().filter(|_| nodes != NodeImpact::Removed);
            parts.extend(unseen.map(|why| format!("not all pods on them could be listed: {why}")));
            if parts.is_empty() {
                continue;
            }
            let what = match nodes {
                NodeImpact::Rolled => "drains and recreates the nodes",
                NodeImpact::Deleted { .. } | NodeImpact::Removed => "deletes all nodes",
                NodeImpact::Fewer => "deletes some of the nodes",
            };
            let message = format!("GKE {what} of this pool: {}", parts.join("; "));
            notes.push(Note::new(Code::NodesDrained, &change.address, message));
        }
        notes
    }

    /// Returns true if every pool is deleted and none is created.
    fn no_pool_is_left(&self) -> bool {
        let mut left: BTreeSet<&str> = self.observed.inputs.world.pools.keys().map(String::as_str).collect();
        let mut comes = false;
        for change in &self.changes {
            match (change.identity.pool(), change.action) {
                (Some(pool), Action::Delete) => drop(left.remove(pool)),
                (Some(_), Action::Create | Action::Replace) => comes = true,
                _ => {}
            }
        }
        left.is_empty() && !comes
    }

    /// Returns the Pods that are deleted with their owner, and those of the CronJobs of `ttl` and `idle_stop`: they lose nothing,
    /// as the next run checks again.
    fn deleted_with_owner(&self, gone: &BTreeSet<Identity>) -> BTreeSet<ObjectId> {
        let inputs = self.observed.inputs;
        let manager = inputs.owner.field_manager();
        let cascade = Cascade::new(inputs.world, inputs.target.gke.as_ref(), &manager);
        let along = cascade.all(&gone.iter().cloned().collect::<Vec<_>>());
        let is_gone = |owner: &Identity| along.contains_key(owner) || gone.contains(owner);
        let objects = inputs.world.objects.live().into_iter().flatten();
        let is_expiry_job = |owner: &ObjectId, _: &Value| {
            self.observed.addresses.find(&Identity::Object(owner.clone())).1 == KindId::Expiry
        };
        let goes = objects.filter(|(object, live)| {
            is_pod(object) && (cascade.has_owner(live, is_gone) || cascade.has_ancestor(live, &is_expiry_job))
        });
        goes.map(|(object, _)| object.clone()).collect()
    }
}

/// Describes Pods for which no node remains.
fn waiting(moved: &[&ObjectId]) -> Vec<String> {
    let (is, waits) = if moved.len() == 1 { ("is", "waits") } else { ("are", "wait") };
    vec![format!("no pool is left for {}, which {is} recreated and {waits} for a node", named(moved))]
}

/// Describes Pods whose nodes are all deleted or recreated.
fn all(lost: &[&ObjectId], moved: &[&ObjectId]) -> Vec<String> {
    let mut parts = Vec::new();
    if !lost.is_empty() {
        let (is, it) = if lost.len() == 1 { ("is", "it") } else { ("are", "them") };
        parts.push(format!("{} {is} lost, as no controller recreates {it}", named(lost)));
    }
    if !moved.is_empty() {
        let (is, loses) = if moved.len() == 1 { ("is", "loses") } else { ("are", "lose") };
        let what = "data in memory and on the node's disks";
        parts.push(format!("{} {is} recreated on another node and {loses} {what}", named(moved)));
    }
    parts
}

/// Describes Pods on a pool that loses some nodes: it is unknown which.
fn some(lost: &[&ObjectId], moved: &[&ObjectId]) -> Vec<String> {
    let mut parts = Vec::new();
    if !lost.is_empty() {
        parts.push(format!(
            "of {}, those on these nodes are lost, as no controller recreates them",
            named(lost)
        ));
    }
    if !moved.is_empty() {
        let what = "lose data in memory and on the node's disks";
        parts.push(format!("of {}, those on these nodes are recreated on others and {what}", named(moved)));
    }
    parts
}

fn named(pods: &[&ObjectId]) -> String {
    let names: Vec<String> = pods.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    let more = match pods.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", names.join(", "))
}
