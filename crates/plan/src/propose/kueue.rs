//! Work that waits or runs in deleted queues. Foreign work is listed and needs its own approval.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::planner::Planner;
use crate::reason::Reason;
use crate::{Action, Change, Note};
use kinds::json::text;
use kinds::kubernetes::kueue::{self, gang};
use kinds::kubernetes::object::condition;
use model::address::Address;
use model::diag::Code;
use model::resource::{Identity, KindId, ObjectId};

/// Returns the names of the CRDs whose objects show which work is in a queue.
pub(crate) fn crds() -> impl Iterator<Item = String> {
    ["workloads", "localqueues"].into_iter().map(|plural| format!("{plural}.{}", kueue::GROUP))
}

/// Returns true for a ClusterQueue or LocalQueue of Kueue.
pub(crate) fn is_queue(object: &ObjectId) -> bool {
    object.gvk.group == kueue::GROUP && ["ClusterQueue", "LocalQueue"].contains(&object.gvk.kind.as_str())
}

/// Namespaces and names of gangs. A gang's Workload has the same ones.
pub(crate) type Gangs = BTreeSet<(String, String)>;

impl<'w> Planner<'w> {
    /// Adds the deletes of foreign work in deleted queues. Each needs its own approval.
    pub(crate) fn delete_foreign_work(&mut self, planned: &mut BTreeSet<Identity>) {
        let queues = |change: &&Change| {
            matches!(change.action, Action::Delete | Action::Replace)
                && !change.foreign
                && change.identity.object().is_some_and(is_queue)
        };
        let gone: Vec<(ObjectId, Address)> = self
            .changes
            .iter()
            .filter(queues)
            .filter_map(|change| Some((change.identity.object()?.clone(), change.address.clone())))
            .collect();
        if gone.is_empty() {
            return;
        }
        let ours = self.own_gangs();
        let found: Vec<(&'w ObjectId, &'w Value, Address, Reason)> = self
            .observed
            .inputs
            .world
            .objects
            .live()
            .into_iter()
            .flatten()
            .filter(|(object, live)| {
                object.gvk.group == kueue::GROUP
                    && object.gvk.kind == "Workload"
                    && condition(live, "Finished").is_none_or(|finished| finished["status"] != "True")
                    && !self.is_of_own_work(&ours, object, live)
            })
            .filter_map(|(object, live)| {
                let (queue, address) = gone.iter().find(|(queue, _)| self.is_in(queue, object, live))?;
                let admitted =
                    condition(live, "Admitted").is_some_and(|admitted| admitted["status"] == "True");
                let reason = Reason::InQueue { queue: queue.name.clone(), admitted };
                Some((object, live, address.clone(), reason))
            })
            .collect();
        let mut told: BTreeSet<Address> = BTreeSet::new();
        for (object, live, queue, reason) in found {
            if told.insert(queue.clone()) {
                let message = "work that this stack did not create waits or runs in it; each piece needs approval of \
                               its own";
                self.notes.push(Note::new(Code::QueueInUse, &queue, message));
            }
            let section = format!("others.{}", object.namespace.as_deref().unwrap_or_default());
            let address = Address::object(&section, &object.gvk.kind, None, &object.name);
            self.delete_foreign(
                planned,
                Identity::Object(object.clone()),
                (live, address, KindId::Queue),
                reason,
            );
        }
    }

    /// Returns true if Kueue created an object for work of this stack.
    pub(crate) fn is_of_own_work(&self, gangs: &Gangs, object: &ObjectId, live: &Value) -> bool {
        let gang = || (object.namespace.clone().unwrap_or_default(), object.name.clone());
        let workload = object.gvk.group == kueue::GROUP && object.gvk.kind == "Workload";
        workload && (gangs.contains(&gang()) || self.is_of_own_job(object, live))
    }

    /// Returns the gangs of this stack.
    pub(crate) fn own_gangs(&self) -> Gangs {
        let objects = self.observed.inputs.world.objects.live().into_iter().flatten();
        let own = objects.filter(|(_, live)| self.observed.has_applied(live));
        own.filter_map(|(object, live)| {
            let gang = gang::name_in_object(&object.gvk.kind, live)?;
            Some((object.namespace.clone().unwrap_or_default(), gang))
        })
        .collect()
    }

    /// Returns true if a Workload belongs to a Job of this stack.
    fn is_of_own_job(&self, workload: &ObjectId, live: &Value) -> bool {
        let owners = live["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let jobs: Vec<&str> =
            owners.filter(|owner| owner["kind"] == "Job").map(|owner| text(&owner["name"])).collect();
        let objects = self.observed.inputs.world.objects.live().into_iter().flatten();
        let mut own =
            objects.filter(|(object, _)| object.gvk.kind == "Job" && object.namespace == workload.namespace);
        own.any(|(object, live)| jobs.contains(&object.name.as_str()) && self.observed.has_applied(live))
    }

    /// Returns true if a Workload is in a queue: it names the LocalQueue, or a LocalQueue of the ClusterQueue.
    fn is_in(&self, queue: &ObjectId, workload: &ObjectId, live: &Value) -> bool {
        let named = text(&live["spec"]["queueName"]);
        if queue.gvk.kind == "LocalQueue" {
            return queue.namespace == workload.namespace && queue.name == named;
        }
        if live["status"]["admission"]["clusterQueue"] == queue.name.as_str() {
            return true;
        }
        let mut objects = self.observed.inputs.world.objects.live().into_iter().flatten();
        objects.any(|(object, local)| {
            object.gvk.kind == "LocalQueue"
                && object.gvk.group == kueue::GROUP
                && object.namespace == workload.namespace
                && object.name == named
                && local["spec"]["clusterQueue"] == queue.name.as_str()
        })
    }
}
