//! Proposals for each desired resource: its action, the fields that change, and why.

use std::collections::HashMap;

use serde_json::Value;

use crate::observe::{Ownership, fingerprint, pool_identity_field};
use crate::planner::{Planner, Selected};
use crate::reason::{OtherStacks, Reason};
use crate::{
    Action, Adopted, Change, Note, observe::address_match, observe::env_secrets, observe::immutable,
    propose::code, propose::hosts,
};
use kinds::comparison::FingerprintInput;
use kinds::gke;
use kinds::json::is_terminating;
use kinds::kind::{Compare, Kind};
use kinds::kubernetes::kueue::queue;
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic};
use model::resource::{Effect, FieldChange, Identity, KindId, Resource};

impl Planner<'_> {
    /// Proposes a change for each desired resource, in the order of the file.
    pub(crate) fn plan_desired(&mut self) {
        let inputs = self.observed.inputs;
        // The cluster first: when it is recreated, everything in it is.
        for resource in inputs.desired.iter() {
            self.plan_resource(resource);
        }
        self.checks();
        let positions: HashMap<&Address, usize> =
            inputs.desired.iter().map(|resource| &resource.address).zip(0..).collect();
        self.changes.sort_by_cached_key(|change| positions.get(&change.address).copied());
    }

    fn plan_resource(&mut self, resource: &Resource) {
        let kind = kinds::of(resource.kind);
        if matches!(kind.compare, Compare::Action) {
            return;
        }
        if !self.selected.has(&resource.address) {
            // A resource that is deleted with its owner is in the plan whatever the selection says.
            let live = self.live(&resource.identity);
            if live.is_none_or(|live| self.deleted_with(resource, live).is_none()) {
                return;
            }
            self.selected.add(&resource.address);
        }
        if !self.observed.inputs.offline {
            env_secrets::check_env_is_set(self.observed.inputs, resource, &mut self.problems);
        }
        if let Some(stop) = self.observed.inputs.stop_of(&resource.identity) {
            if kind.stop_effect.deletes() {
                return self.stop(resource, stop);
            }
            if !self.cluster_is_new && self.live(&resource.identity).is_none() {
                self.not_created.insert(resource.identity.clone());
                self.changes.push(self.observed.proposed(resource, Action::Keep, Vec::new()));
                return;
            }
        }
        if self.plan_request_for_workers(resource) || self.plan_unused_code(resource) {
            return;
        }
        let is_cluster = matches!(resource.identity, Identity::Cluster(_));
        if self.stays_absent(resource) {
            self.not_created.insert(resource.identity.clone());
            self.changes.push(self.observed.proposed(resource, Action::Keep, Vec::new()));
            return;
        }
        let Some(live) = self.live(&resource.identity) else {
            if self.cluster_is_new && self.observed.inputs.world.find(&resource.identity).is_some() {
                self.refuse_if_protected(resource, "delete");
            }
            self.cluster_is_new |= is_cluster;
            let reruns = self.may_have_run(resource);
            let action = if reruns.is_some() { Action::Replace } else { Action::Create };
            let change = self.observed.proposed(resource, action, Vec::new());
            let reasons = Vec::from_iter(reruns.map(Reason::MayHaveRun));
            self.changes.push(Change { reasons, ..change });
            return;
        };
        if let Some(owner) = self.deleted_with(resource, live) {
            self.refuse_if_protected(resource, "delete");
            self.recreated_with_parent.insert(resource.identity.clone());
            self.recreate(resource, live, Reason::RecreatedWith(owner));
            return;
        }
        if is_terminating(live) {
            self.cluster_is_new |= is_cluster;
            self.recreate(resource, live, Reason::BeingDeleted);
            return;
        }
        self.plan_live(resource, kind, live);
    }

    fn recreate(&mut self, resource: &Resource, live: &Value, reason: Reason) {
        let change = self.observed.proposed(resource, Action::Create, Vec::new());
        let fingerprint = Some(fingerprint(live, &FingerprintInput::default()));
        self.changes.push(Change { reasons: vec![reason], fingerprint, ..change });
    }

    /// Refuses an object that was read in another API version than the file's: the server does not serve the file's version.
    fn check_served_version(&mut self, resource: &Resource, live: &Value) {
        let (Some(desired), Some(served)) =
            (resource.body["apiVersion"].as_str(), live["apiVersion"].as_str())
        else {
            return;
        };
        if desired == served || self.observed.will_serve(resource) {
            return;
        }
        let what = format!("the cluster serves {} as `{served}`, not as `{desired}`", resource.identity);
        let origin = resource.origin_of(&FieldPath::keys(["apiVersion"]));
        let help = format!("use `apiVersion: {served}`, with the fields of that version");
        let problem = Diagnostic::error(Code::VersionNotServed, what).at_value(origin, "requested here");
        self.problems.push(problem.about(resource.address.clone(), "").help(help));
    }

    /// Proposes the change of a desired resource that is live and stays.
    fn plan_live(&mut self, resource: &Resource, kind: &Kind, live: &Value) {
        self.check_served_version(resource, live);
        // Only a pool's own JSON lacks it; ten thousand other resources are not copied.
        let pool = matches!(resource.identity, Identity::NodePool { .. }).then(|| {
            let live = self.with_size(resource, live.clone());
            self.with_planned_zones(resource, live)
        });
        let live = pool.as_ref().unwrap_or(live);
        let ownership = self.observed.ownership(resource, kind, live);
        let joins = !matches!(ownership, Ownership::Owned) && matches!(kind.compare, Compare::Kubernetes(_));
        let Some(mut compared) = self.observed.compared(resource, kind, live) else { return };
        if self.observed.inputs.stop_of(&resource.identity).is_some() {
            // Edits of what is stopped wait until it is started.
            compared.changes.retain(|field| gke::node_pool::is_emptied_by(&field.path));
        }
        self.compare_dask_state(resource, live, &mut compared);
        self.name_changed_files(resource, live, &mut compared);
        hosts::adjust_host_worker_changes(kind, live, &mut compared.changes);
        self.note_move(resource, &mut compared.changes);
        if !self.observed.inputs.replace.contains(&resource.address) {
            self.problems.extend(immutable::claim_error(resource, live, &compared.changes));
        }
        let (mut action, forced) = self.action(resource, live, &compared.changes);
        let mut reasons = Vec::from_iter(forced);
        if action != Action::Keep
            && let Some((path, groups)) = pool_identity_field(live)
        {
            compared.fingerprint_input.add(path, groups);
        }
        let fingerprint = Some(fingerprint(live, &compared.fingerprint_input));
        let adopted = match ownership {
            Ownership::Owned => adopted_fields(&compared.others),
            Ownership::Shared(stacks) => {
                // Our entry on the object is what tells the others that we use it.
                if reasons.is_empty() {
                    reasons.push(Reason::Shared(OtherStacks(stacks)));
                }
                adopted_fields(&compared.others)
            }
            Ownership::Foreign(from) => Some(Adopted { from, fields: Vec::new() }),
        };
        if action == Action::Keep && joins {
            action = Action::Update;
        }
        if matches!(action, Action::Keep | Action::Update)
            && let Some(defect) = self.observed.find_defect(resource, kind, live, action)
            && !(defect.needs_replace && resource.protect)
        {
            action = if defect.needs_replace { Action::Replace } else { Action::Update };
            reasons.push(Reason::Defect(defect.why.clone()));
            self.defects.insert(resource.address.clone(), defect);
        }
        if adopted.is_some() && reasons.is_empty() {
            reasons.push(Reason::WouldBeAdopted);
        }
        if action == Action::Update && resource.kind == KindId::Crd {
            self.check_stored_versions(resource, live);
        }
        if action == Action::Replace {
            if matches!(resource.identity, Identity::Cluster(_)) {
                self.cluster_is_new = true;
                // Nothing in it outlives it, so nothing in it can be left out.
                self.selected = Selected::All;
            }
            if !reasons.iter().any(Reason::loses_no_data) {
                self.refuse_if_protected(resource, "replace");
            }
        }
        let change = self.observed.proposed(resource, action, compared.changes);
        self.changes.push(Change { reasons, fingerprint, adopted, ..change });
    }

    /// Adds the live number of nodes, which GKE's JSON of a pool does not contain. An unknown number is left out and not
    /// compared.
    pub(crate) fn with_size(&mut self, resource: &Resource, mut live: Value) -> Value {
        let Identity::NodePool { pool, .. } = &resource.identity else { return live };
        let desired = &resource.body["nodeCount"];
        match self.observed.inputs.world.sizes.get(pool) {
            Some(nodes) if self.has_surge_nodes(resource, &live, *nodes) => {
                live["nodeCount"] = desired.clone();
                self.notes.push(Note::new(
                    Code::UnknownSize,
                    &resource.address,
                    format!(
                        "GKE upgrades it and has scaled it to {nodes} nodes; those above {desired} are for the \
                         upgrade, so no change of size is planned"
                    ),
                ));
            }
            Some(nodes) => live["nodeCount"] = (*nodes).into(),
            None if desired.is_null() => {}
            None => {
                live["nodeCount"] = desired.clone();
                self.notes.push(Note::new(
                    Code::UnknownSize,
                    &resource.address,
                    "the live number of nodes is unknown, so no change of size is planned",
                ));
            }
        }
        live
    }

    fn action(
        &mut self,
        resource: &Resource,
        live: &Value,
        changes: &[FieldChange],
    ) -> (Action, Option<Reason>) {
        let named = self.observed.inputs.replace.iter().any(|address| address == &resource.address);
        // Files of one content are always the same, and what runs may use them until it is replaced itself.
        let asked = named && !code::is_code(resource);
        if asked {
            self.refuse_replace_in_use(resource);
            return (Action::Replace, Some(Reason::Requested));
        }
        let stopped = self.observed.inputs.stop_of(&resource.identity).is_some();
        if let Some(reason) = self.leaves_option(resource, live).filter(|_| !stopped) {
            return (Action::Replace, Some(reason));
        }
        if let Some(trouble) = self.pool_error(resource, live).filter(|_| !stopped) {
            return (Action::Replace, Some(trouble));
        }
        let has_request = |field: &FieldPath| match kinds::of(resource.kind).compare {
            Compare::Gke(message, _) => gke::api::is_changed_by_request(message, field),
            Compare::Kubernetes(_) | Compare::Action => false,
        };
        let unknown = changes.iter().filter(|change| change.effect == Effect::Unknown);
        for change in unknown.filter(|change| !has_request(&change.path)) {
            let what = format!("{}: the effect of changing `{}` is unknown", resource.address, change.path);
            let origin = resource.origin_of(&change.path);
            let help = format!("to replace it instead: --replace {}", resource.address);
            self.problems.push(
                Diagnostic::error(Code::UnknownEffect, what).at_value(origin, "requested here").help(help),
            );
        }
        if changes.iter().any(|change| change.effect == Effect::Replace) {
            (Action::Replace, None)
        } else if changes.iter().all(|change| change.effect == Effect::Ignored) {
            (Action::Keep, None)
        } else {
            (Action::Update, None)
        }
    }

    /// Refuses `--replace` of an object that Kueue does not delete while it is in use: the replacement would wait until its
    /// deadline. Reports each section once.
    fn refuse_replace_in_use(&mut self, resource: &Resource) {
        let inputs = self.observed.inputs;
        let section = resource.address.section();
        let is_kept = |one: &&Resource| {
            one.address.section() == section
                && inputs.replace.contains(&one.address)
                && one.identity.object().is_some_and(queue::is_kept_in_use)
        };
        let first = inputs.desired.iter().find(is_kept);
        if first.is_none_or(|first| first.identity != resource.identity) {
            return;
        }
        let what = format!(
            "{section} cannot be replaced: Kueue keeps a queue until its work has ended, and flavors and checks until no queue \
             names them"
        );
        let help = format!(
            "edit the section: it is changed in place; to create it again: `dask-infra destroy --target {section}`, which names \
             the work that goes with it, and `dask-infra apply`"
        );
        let origin = resource.origin.clone();
        self.problems.push(Diagnostic::error(Code::QueueInUse, what).at_value(origin, "in use").help(help));
    }

    /// Returns the reason to replace a pool in the status ERROR. A pool whose creation failed never becomes usable. A pool that
    /// could not grow may still do so.
    fn pool_error(&mut self, resource: &Resource, live: &Value) -> Option<Reason> {
        if matches!(resource.identity, Identity::Object(_) | Identity::Check(_)) {
            return None;
        }
        let conditions = gke::node_pool::conditions(live);
        match live["status"].as_str() {
            Some("ERROR") => Some(Reason::InError { conditions }),
            Some("RUNNING_WITH_ERROR") => {
                self.notes.push(Note::new(
                    Code::PoolInTrouble,
                    &resource.address,
                    format!("its status is RUNNING_WITH_ERROR{conditions}; GKE keeps trying"),
                ));
                None
            }
            _ => None,
        }
    }

    /// Proposes to run each check that has changed since it passed, or whose pass another change invalidates. Keeps all other
    /// checks.
    fn checks(&mut self) {
        let inputs = self.observed.inputs;
        let is_check = |resource: &Resource| matches!(resource.identity, Identity::Check(_));
        let nothing_is_managed = inputs.desired.iter().all(is_check);
        for resource in
            inputs.desired.iter().filter(|resource| matches!(resource.identity, Identity::Check(_)))
        {
            if !self.selected.has(&resource.address) {
                continue;
            }
            let digest = kinds::dask::check::digest(&resource.body);
            let record = inputs.world.record.as_ref().filter(|_| !self.cluster_is_new);
            let passed = record.and_then(|record| record.completed.get(&resource.identity));
            let renewed = self.changes.iter().find(|change| invalidates_check(change, resource));
            let asked = inputs.replace.contains(&resource.address);
            let reason = match (passed, renewed) {
                _ if asked => Some(Reason::Requested),
                // There is no node to run on.
                _ if self.uses_stopped(resource) => None,
                (Some(_), Some(change)) => {
                    Some(Reason::DependencyChanged(change.address.clone(), change.action))
                }
                (Some(passed), None) if *passed == digest => None,
                (Some(_), None) => Some(Reason::CheckChanged),
                _ if nothing_is_managed => Some(Reason::PassesNotRecorded),
                _ => Some(Reason::NotPassed),
            };
            let action = if reason.is_some() { Action::Run } else { Action::Keep };
            let reasons = Vec::from_iter(reason);
            self.changes.push(Change { reasons, ..self.observed.proposed(resource, action, Vec::new()) });
        }
    }
}

/// Returns true if a check must run again because of a change.
pub fn invalidates_check(change: &Change, check: &Resource) -> bool {
    let before = |address| address_match::includes(address, &change.address);
    (kinds::of(change.kind).invalidates_checks)(change.action) && check.depends_on.iter().any(before)
}

/// Returns the fields that other field managers apply with other values; the stack adopts them.
fn adopted_fields(others: &[(FieldPath, String)]) -> Option<Adopted> {
    let mut managers: Vec<String> =
        others.iter().map(|(_, manager)| format!("field manager `{manager}`")).collect();
    managers.dedup();
    let fields = others.iter().map(|(path, _)| path.clone()).collect();
    (!others.is_empty()).then(|| Adopted { from: managers.join(", "), fields })
}
