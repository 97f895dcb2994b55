//! Plans the provisioning requests of Dask clusters, groups and Dask jobs (`capacity = "queued"`): a request follows the change
//! of its workers. Nodes are created for one set of workers and not used twice.

use crate::observe::fingerprint;
use crate::planner::Planner;
use crate::reason::Reason;
use crate::{Action, Change};
use kinds::comparison::FingerprintInput;
use kinds::json::{is_terminating, text};
use kinds::kubernetes::{provisioning, request_state};
use model::address::Address;
use model::resource::{Identity, KindId, Resource};

/// Decisions about a provisioning request whose workers are deleted, and about files that a section had before.
pub(crate) enum Former {
    Delete(Reason),
    Keep(Reason),
}

impl<'a> Planner<'a> {
    /// Returns the resource whose workers a request, or its PodTemplate, is for.
    fn consumer_of(&self, resource: &Resource) -> Option<&'a Resource> {
        let desired = &self.observed.inputs.desired;
        let depends_on = |one: &&'a Resource, other: &Resource| one.depends_on.contains(&other.address);
        let request = match resource.kind {
            KindId::ProvisioningRequest => resource,
            KindId::Object if text(&resource.body["kind"]) == "PodTemplate" => {
                let asks = |one: &&Resource| one.kind == KindId::ProvisioningRequest;
                desired.iter().filter(asks).find(|one| depends_on(one, resource))?
            }
            _ => return None,
        };
        if !provisioning::has_consumer(&request.body) {
            return None;
        }
        desired.iter().filter(|one| kinds::of(one.kind).has_workers).find(|one| depends_on(one, request))
    }

    /// Plans a ProvisioningRequest according to the planned change of the Dask workers that it provisions. Returns `false`, and plans
    /// nothing, if it must be planned like any other resource.
    pub(crate) fn plan_request_for_workers(&mut self, resource: &Resource) -> bool {
        let Some(consumer) = self.consumer_of(resource) else { return false };
        let Some(change) = self.changes.iter().find(|change| change.identity == consumer.identity) else {
            return false;
        };
        let action = change.action;
        let makes = action.creates();
        let live = self.live(&resource.identity).filter(|live| !is_terminating(live)).cloned();
        if !makes {
            // Its workers have their nodes, or are not desired now.
            let Some(live) = live else {
                self.not_created.insert(resource.identity.clone());
                self.changes.push(self.observed.proposed(resource, Action::Keep, Vec::new()));
                return true;
            };
            if resource.kind == KindId::ProvisioningRequest && action != Action::Delete {
                self.note_end(resource, &consumer.address, &live);
            }
            let fingerprint = Some(fingerprint(&live, &FingerprintInput::default()));
            self.changes
                .push(Change { fingerprint, ..self.observed.proposed(resource, Action::Keep, Vec::new()) });
            return true;
        }
        let (Some(live), KindId::ProvisioningRequest) = (live, resource.kind) else { return false };
        // Made before its workers were, it is theirs; a later one is for those that are to come.
        let born = |live: &serde_json::Value| text(&live["metadata"]["creationTimestamp"]).to_owned();
        let old = self.observed.inputs.world.find(&consumer.identity);
        let is_used = old.is_some_and(|old| born(old) >= born(&live));
        let reason = match request_state::has_expired(&live) {
            _ if is_used => Reason::NodesConsumed,
            Some(end) => Reason::RequestedAgain { end },
            None => return false,
        };
        let fingerprint = Some(fingerprint(&live, &FingerprintInput::default()));
        let change = self.observed.proposed(resource, Action::Replace, Vec::new());
        self.changes.push(Change { reasons: vec![reason], fingerprint, ..change });
        true
    }

    /// Decides about requests and PodTemplates of former workers. They are deleted with those workers, but a PodTemplate that a
    /// kept request names is kept.
    pub(crate) fn former_request(&self, identity: &Identity, address: &Address) -> Option<Former> {
        let object = identity.object()?;
        if !matches!(object.gvk.kind.as_str(), "PodTemplate" | "ProvisioningRequest") {
            return None;
        }
        let section = address.section();
        let consumer = self
            .changes
            .iter()
            .find(|change| kinds::of(change.kind).has_workers && change.address.as_str() == section)?;
        if consumer.action.creates() || consumer.stops() {
            return Some(Former::Delete(Reason::FormerWorkersRequest));
        }
        let names = |change: &&Change| {
            let live = self.live(&change.identity);
            change.kind == KindId::ProvisioningRequest
                && change.action == Action::Keep
                && live
                    .is_some_and(|live| live["spec"]["podSets"][0]["podTemplateRef"]["name"] == *object.name)
        };
        self.changes.iter().find(names).map(|_| Former::Keep(Reason::TemplateOfKeptRequest))
    }
}
