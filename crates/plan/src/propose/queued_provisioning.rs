//! Node pools with queued provisioning: notes what a live pool loses when it becomes one, and which requests wait for a deleted
//! one. Source: Google's guide to the Dynamic Workload Scheduler for the first ("make sure that the node pool is empty"), and
//! kubernetes/autoscaler issue 9490 for the second: a request whose pool is deleted stays accepted forever.

use serde_json::Value;

use crate::planner::Planner;
use crate::propose::impact::{MAX_LISTED, enables_queued_provisioning};
use crate::reason::Reason;
use crate::{Action, Change, Note};
use kinds::json::text;
use kinds::kubernetes::kueue::gang;
use kinds::kubernetes::object::condition;
use kinds::scope::POOL_LABEL;
use model::address::FieldPath;
use model::diag::Code;
use model::resource::{Identity, ObjectId};

impl Planner<'_> {
    /// Adds the reason why an update of a pool deletes its nodes.
    pub(crate) fn explain_emptied_pools(&mut self) {
        for change in self.changes.iter_mut().filter(|change| enables_queued_provisioning(change)) {
            change.reasons.push(Reason::Emptied);
            let number = FieldPath::keys(["nodeCount"]);
            change.fields.retain(|field| field.path != number);
        }
    }

    /// Returns notes on accepted ProvisioningRequests that would wait forever because only their pool is deleted.
    pub(crate) fn stranded_request_notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let deleted = |change: &&Change| matches!(change.action, Action::Delete | Action::Replace);
        let gone: Vec<&Change> = self.changes.iter().filter(deleted).collect();
        if gone.iter().any(|change| matches!(change.identity, Identity::Cluster(_))) {
            return notes;
        }
        for change in &gone {
            let Identity::NodePool { pool, .. } = &change.identity else { continue };
            let stays =
                self.waiting_for(pool).filter(|(object, live)| !self.deletes_request(object, live, &gone));
            let names: Vec<String> = stays.map(|(object, _)| object.to_string()).collect();
            if names.is_empty() {
                continue;
            }
            let more = match names.len().saturating_sub(MAX_LISTED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let [is, they, them] =
                if names.len() == 1 { ["is", "it", "it"] } else { ["are", "they", "them"] };
            let message = format!(
                "{}{more} {is} accepted and waiting for machines of this pool: GKE never says that the pool is gone, so {they} \
                 would wait forever; delete {them} first, and request again afterwards",
                names[..names.len().min(MAX_LISTED)].join(", "),
            );
            notes.push(Note::new(Code::RequestsWait, &change.address, message));
        }
        notes
    }

    /// Returns accepted requests without machines yet, whose Pods request nodes of a pool.
    fn waiting_for(&self, pool: &str) -> impl Iterator<Item = (&ObjectId, &Value)> {
        let objects = self.observed.inputs.world.objects.live();
        let templates = move |namespace: &Option<String>, name: &str| {
            let found = objects.into_iter().flatten().find(|(object, _)| {
                object.gvk.kind == "PodTemplate" && object.namespace == *namespace && object.name == name
            });
            found.is_some_and(|(_, live)| live["template"]["spec"]["nodeSelector"][POOL_LABEL] == pool)
        };
        let requests = objects.into_iter().flatten().filter(|(object, _)| {
            object.gvk.kind == "ProvisioningRequest" && object.gvk.group == "autoscaling.x-k8s.io"
        });
        let holds = |live: &Value, kind: &str| {
            condition(live, kind).is_some_and(|condition| condition["status"] == "True")
        };
        let waits = move |live: &Value| {
            holds(live, "Accepted") && !["Provisioned", "Failed"].iter().any(|ended| holds(live, ended))
        };
        requests.filter(move |(object, live)| {
            let sets = live["spec"]["podSets"].as_array().into_iter().flatten();
            let mut names = sets.map(|set| text(&set["podTemplateRef"]["name"]));
            waits(live) && names.any(|name| templates(&object.namespace, name))
        })
    }

    /// Returns true if the same plan deletes a request, or the gang for which Kueue created it.
    fn deletes_request(&self, request: &ObjectId, live: &Value, gone: &[&Change]) -> bool {
        let owners = live["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let workloads: Vec<&str> = owners
            .filter(|owner| owner["kind"] == "Workload")
            .filter_map(|owner| owner["name"].as_str())
            .collect();
        gone.iter().any(|change| {
            let Some(object) = change.identity.object() else { return false };
            let gang = || gang::name_in_object(&object.gvk.kind, self.live(&change.identity)?);
            let alike = object.namespace == request.namespace;
            object == request || alike && gang().is_some_and(|gang| workloads.contains(&gang.as_str()))
        })
    }
}
