//! Rules for Dask resources beyond their fields: the effective number of workers, and what is deleted with a cluster.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use crate::planner::Planner;
use crate::reason::RunUnknown;
use crate::{Change, Inputs, Note, observe::diff};
use kinds::comparison::Comparison;
use kinds::dask;
use kinds::dask::expiry::ExpiryCause;
use kinds::gke::cluster::autopilot;
use kinds::gke::node_pool;
use kinds::json::{is_terminating, text};
use kinds::kubernetes::{provisioning, request_state};
use kinds::scope::POOL_LABEL;
use model::address::Address;
use model::diag::Code;
use model::resource::{self, Effect, FieldChange, Identity, KindId, ObjectId, Recreation, Resource, World};

/// Lets a Job that Kueue has not admitted change its queue in place. After admission Kueue's webhook refuses that. Source:
/// `pkg/controller/jobframework/validation.go` of Kueue 0.15.0.
fn queue_of_job(live: &Value, compared: &mut Comparison) {
    let waits = live["spec"]["suspend"] == true;
    let queue = |field: &&mut FieldChange| kinds::kubernetes::job::is_queue(&field.path);
    for field in compared.changes.iter_mut().filter(|_| waits).filter(queue) {
        field.effect = Effect::InPlace;
        field.note = Some("it has not started, so it waits in the other queue from now on".to_owned());
    }
}

/// The replica count of the default group, which takes precedence over the cluster's own. `KubeCluster.scale` and `kubectl scale`
/// write it there, and leave the cluster's own count as it is.
struct DefaultGroupReplicas<'w> {
    group: ObjectId,
    live: &'w Value,
    replicas: Option<&'w Value>,
}

fn default_group_replicas<'w>(world: &'w World, cluster: &ObjectId) -> Option<DefaultGroupReplicas<'w>> {
    let group = dask::api::default_group(cluster);
    let live = world.find(&Identity::Object(group.clone()))?;
    Some(DefaultGroupReplicas { replicas: dask::api::replicas_path().find(live), group, live })
}

impl DefaultGroupReplicas<'_> {
    /// Returns the difference from the desired count. The operator copies changes of the cluster's count to the group.
    fn difference(&self, desired: &Value, cluster: &Value) -> Option<FieldChange> {
        let path = dask::api::replicas_path();
        let number =
            self.replicas.filter(|number| *number != desired && path.find(cluster) == Some(desired))?;
        let unknown = || ("others".to_owned(), "an unknown time".to_owned());
        Some(FieldChange {
            before: Some(number.clone()),
            after: Some(desired.clone()),
            effect: Effect::InPlace,
            note: Some(format!("of {}, which decides", self.group)),
            drift: Some(diff::last_writer(self.live, &path).unwrap_or_else(unknown)),
            path,
            secret: false,
        })
    }
}

/// Returns the difference between the default group's replica count and the file's, if the file has one.
pub(crate) fn replicas_change(world: &World, resource: &Resource, live: &Value) -> Option<FieldChange> {
    let cluster = resource.identity.object().filter(|object| object.gvk == dask::api::cluster())?;
    let desired = dask::api::replicas_path().find(&resource.body)?;
    default_group_replicas(world, cluster)?.difference(desired, live)
}

/// Returns the code of notes on a cluster that a CronJob deletes.
pub(crate) fn expiry_code(cause: ExpiryCause) -> Code {
    match cause {
        ExpiryCause::Ttl => Code::TtlGone,
        ExpiryCause::IdleStop => Code::IdleGone,
    }
}

impl Planner<'_> {
    /// Compares replica counts that other tools may write. A released count names its new owner, and the file's count is compared
    /// with that of the default group. Jobs and requests are compared by their outcome.
    pub(crate) fn compare_dask_state(
        &mut self,
        resource: &Resource,
        live: &Value,
        compared: &mut Comparison,
    ) {
        let Identity::Object(object) = &resource.identity else { return };
        if resource.kind == KindId::Job {
            queue_of_job(live, compared);
        }
        let is_job = matches!(resource.kind, KindId::DaskJob | KindId::HostJob);
        if is_job || kinds::kubernetes::job::is_of_section(resource) {
            return self.adjust_job_changes(resource, live, compared);
        }
        if resource.kind == KindId::ProvisioningRequest {
            return self.note_ended_request(resource, live);
        }
        let of_cluster = object.gvk == dask::api::cluster();
        if !of_cluster && object.gvk != dask::api::group() {
            return;
        }
        let path = dask::api::replicas_path();
        match path.find(&resource.body) {
            Some(desired) if of_cluster => {
                self.compare_default_group(object, desired, live, compared);
                self.note_second_writer(resource, object);
            }
            Some(_) => {}
            None => self.released_replicas(resource, live, compared),
        }
    }

    /// Compares the file's count with that of the default group, and makes the plan's fingerprint depend on it.
    fn compare_default_group(
        &self,
        cluster: &ObjectId,
        desired: &Value,
        live: &Value,
        compared: &mut Comparison,
    ) {
        let Some(counts) = default_group_replicas(self.observed.inputs.world, cluster) else { return };
        let fingerprint_input = dask::api::replicas_path().key("default group").to_string();
        compared.fingerprint_input.add(&fingerprint_input, counts.replicas.unwrap_or(&Value::Null));
        compared.changes.extend(counts.difference(desired, live));
    }

    /// Adds a note on a foreign autoscaler that writes the same count as the file, such as the one that `KubeCluster.adapt`
    /// creates.
    fn note_second_writer(&mut self, resource: &Resource, cluster: &ObjectId) {
        let objects = self.observed.inputs.world.objects.live().into_iter().flatten();
        let mut others = objects.filter(|(object, live)| {
            object.gvk == dask::api::autoscaler()
                && object.namespace == cluster.namespace
                && live["spec"]["cluster"] == cluster.name.as_str()
                && !self.observed.has_applied(live)
        });
        let Some((other, _)) = others.next() else { return };
        self.notes.push(Note::new(
            Code::TwoWriters,
            &resource.address,
            format!(
                "{other}, which is not in this stack, sets the number of workers too, and the two overwrite \
                 each other: delete it, or leave the number to it with `replicas = {{ start = 2 }}`"
            ),
        ));
    }

    fn released_replicas(&mut self, resource: &Resource, live: &Value, compared: &mut Comparison) {
        let path = dask::api::replicas_path();
        let Some(start) = path.find(&resource.create_only) else { return };
        let autoscaled = self.is_autoscaled(resource);
        let to = if autoscaled { "the autoscaler" } else { "notebooks" };
        for field in compared.changes.iter_mut().filter(|field| field.path == path && field.after.is_none()) {
            field.note = Some(format!("unchanged, and left to {to} from now on"));
        }
        let set = self.observed.inputs.owner.initial_manager();
        let now = path.find(live);
        if !autoscaled && now.is_some_and(|now| now != start) && diff::owns(live, &set, &path) {
            self.notes.push(Note::new(
                Code::StartHasNoEffect,
                &resource.address,
                format!(
                    "`start = {start}` applies only at creation; the number now belongs to notebooks and is \
                     not changed"
                ),
            ));
        }
    }

    fn is_autoscaled(&self, resource: &Resource) -> bool {
        let Identity::Object(cluster) = &resource.identity else { return false };
        self.observed.inputs.desired.iter().any(|other| match &other.identity {
            Identity::Object(object) => {
                object.gvk == dask::api::autoscaler()
                    && object.namespace == cluster.namespace
                    && other.body["spec"]["cluster"] == cluster.name.as_str()
            }
            _ => false,
        })
    }

    /// Reverts drift of a job in place, unless the file's text changed, too: drift alone must not rerun it. Ignores changes of
    /// the cluster that the job copied, and notes a failed job.
    fn adjust_job_changes(&mut self, resource: &Resource, live: &Value, compared: &mut Comparison) {
        let record = self.observed.inputs.world.record.as_ref();
        let made = record.and_then(|record| record.completed.get(&resource.identity));
        let edited = made.is_some_and(|made| !kinds::kubernetes::once_digest::matches_digest(made, resource));
        for field in &mut compared.changes {
            if field.drift.is_some() && !edited {
                field.effect = Effect::InPlace;
                field.note = Some("the job does not run again because of it".to_owned());
            } else if field.effect != Effect::InPlace
                && !resource.origin.contains(&resource.origin_of(&field.path))
            {
                let note = match resource.kind {
                    KindId::DaskJob => "the job copied its cluster when it started",
                    KindId::HostJob => "the job has it as it was when it started",
                    _ => continue,
                };
                field.effect = Effect::Ignored;
                field.note = Some(note.to_owned());
            }
        }
        if live["status"]["jobStatus"] == "Failed" || kinds::kubernetes::job::has_failed(live) {
            self.notes.push(Note::new(
                Code::JobEnded,
                &resource.address,
                format!("the job failed; `--replace {}` runs it again", resource.address),
            ));
        }
    }

    /// Returns true if the pool of a request got its machines with a capacity option that needs no request.
    fn is_needless(&self, request: &Value) -> bool {
        let pool = provisioning::pool_with_options(request);
        let live = pool.and_then(|pool| self.observed.inputs.world.pools.get(pool));
        live.is_some_and(|live| live["queuedProvisioning"]["enabled"] != true)
    }

    /// Adds a note on a request that has ended and provides no more nodes.
    fn note_ended_request(&mut self, resource: &Resource, live: &Value) {
        self.note_end(resource, &resource.address, live);
    }

    /// Adds a note that a request has ended, and how to repeat it.
    pub(crate) fn note_end(&mut self, resource: &Resource, again: &Address, live: &Value) {
        let Some(end) = request_state::has_ended(live).filter(|_| !self.is_needless(live)) else { return };
        let address = &resource.address;
        let anew = if again == address { "" } else { ", and recreates that" };
        let message = format!("the request ended: {end}; `--replace {again}` asks for its nodes again{anew}");
        self.notes.push(Note::new(Code::RequestEnded, address, message));
    }

    /// Returns true if a desired resource is absent and must not be recreated: a run-once resource that was created from its
    /// current text and was deleted since, or a resource of such a cluster.
    pub(crate) fn stays_absent(&mut self, resource: &Resource) -> bool {
        let Inputs { world, mode: _, replace, .. } = self.observed.inputs;
        let live = world.find(&resource.identity).filter(|_| !self.cluster_is_new);
        if live.is_some_and(|live| !is_terminating(live)) || replace.contains(&resource.address) {
            return false;
        }
        if self.cluster_of(resource).is_some_and(|cluster| self.not_created.contains(&cluster)) {
            return true;
        }
        let Recreation::Once { timeout } = resource.recreation else { return false };
        let of_cluster = matches!(resource.kind, KindId::DaskCluster | KindId::HostCluster);
        let is_cluster = timeout.is_none() && of_cluster;
        if is_cluster && self.observed.inputs.is_started(&resource.identity) {
            return false;
        }
        let passed = world.record.as_ref().and_then(|record| record.completed.get(&resource.identity));
        if self.cluster_is_new
            || !passed.is_some_and(|made| kinds::kubernetes::once_digest::matches_digest(made, resource))
        {
            return false;
        }
        let address = &resource.address;
        if let Some(ends) =
            kinds::hosts::cluster::ends(&resource.body).filter(|_| resource.kind == KindId::HostCluster)
        {
            let code = if resource.body["spec"]["ttl"].is_null() { Code::IdleGone } else { Code::TtlGone };
            let message =
                format!("it does not exist; `dask-infra start {address}` recreates it, and it ends {ends}");
            self.notes.push(Note::new(code, address, message));
            return true;
        }
        let idle = resource.body["spec"]["idleTimeout"].as_u64().filter(|seconds| *seconds > 0);
        let by_operator = |seconds: u64| format!("the operator deletes it after {seconds} s without work");
        let expirations = dask::expiry::for_cluster(resource, &self.observed.inputs.desired);
        let (code, message) = match (expirations.first(), idle) {
            (Some((first, _)), idle) => {
                let clause = |(cause, job): &(ExpiryCause, &Resource)| {
                    Some(format!("its {} deletes it {}", cause.key(), cause.clause(job)?))
                };
                let why: Vec<String> =
                    expirations.iter().filter_map(clause).chain(idle.map(by_operator)).collect();
                let again = format!("`dask-infra start {address}` recreates it");
                (expiry_code(*first), format!("it does not exist; {again}, and {}", why.join(", and ")))
            }
            (None, Some(idle)) => (
                Code::IdleGone,
                format!("it does not exist; `--replace {address}` recreates it, and {}", by_operator(idle)),
            ),
            (None, None) if resource.kind == KindId::ProvisioningRequest => (
                Code::RequestEnded,
                format!(
                    "the request was made and has been deleted since; `--replace {address}` asks for its nodes again"
                ),
            ),
            (None, None) => (
                Code::JobEnded,
                format!("the job has run and was deleted since; `--replace {address}` runs it again"),
            ),
        };
        self.notes.push(Note::new(code, address, message));
        true
    }

    /// Warns of Dask clusters that this plan creates on nodes whose metadata server gives pods the nodes' service account.
    pub(crate) fn note_node_accounts(&mut self) {
        let inputs = self.observed.inputs;
        let desired = resource::by_identity(&inputs.desired);
        // Of what stays, what its section does not say counts, too.
        let made = self.changes.iter().filter(|change| change.action.creates());
        let made: HashSet<&Identity> = made.map(|change| &change.identity).collect();
        let stays = |identity: &Identity| inputs.world.find(identity).filter(|_| !made.contains(identity));
        let body = |identity: &Identity| stays(identity).or(desired.get(identity).map(|own| &own.body));
        let Some(cluster) = inputs.target.gke.clone().map(Identity::Cluster) else { return };
        let Some(cluster) = body(&cluster).filter(|cluster| !autopilot::is_on(cluster)) else { return };
        let edited = desired.values().find(|resource| matches!(resource.identity, Identity::Cluster(_)));
        let identity_pool =
            |cluster: &Value| !text(&cluster["workloadIdentityConfig"]["workloadPool"]).is_empty();
        let shields = identity_pool(cluster) || edited.is_some_and(|edited| identity_pool(&edited.body));
        let exposed: BTreeSet<&str> = inputs
            .desired
            .iter()
            .filter_map(|resource| match &resource.identity {
                identity @ Identity::NodePool { pool, .. } => {
                    Some((pool.as_str(), body(identity)?, stays(identity).is_some()))
                }
                Identity::Cluster(_) | Identity::Object(_) | Identity::Check(_) => None,
            })
            // GKE says of pools that were created under Workload Identity that they have it.
            .filter(|(_, pool, is_live)| node_pool::gives_its_account(pool, shields && !is_live))
            .map(|(name, ..)| name)
            .collect();
        let made = self
            .changes
            .iter()
            .filter(|change| change.kind == KindId::DaskCluster && change.action.creates());
        let notes = made.filter_map(|change| {
            let spec = &desired.get(&change.identity)?.body["spec"];
            let own = ["scheduler", "worker"].map(|part| spec[part]["spec"]["nodeSelector"][POOL_LABEL].as_str());
            let is_on = |pool: &&&str| own.iter().any(|own| own.is_none_or(|own| own == **pool));
            let pools: Vec<String> = exposed.iter().filter(is_on).map(|pool| format!("node_pool.{pool}")).collect();
            let message = format!(
                "anyone who can connect to its scheduler can use the Google service account of its nodes ({}); `workload_identity \
                 = true` in `[cluster]` prevents that",
                pools.join(", ")
            );
            (!pools.is_empty()).then(|| Note::new(Code::NodeAccount, &change.address, message))
        });
        let notes: Vec<Note> = notes.collect();
        self.notes.extend(notes);
    }

    /// Returns why creating a run-once resource may run it a second time: an apply was interrupted while creating it, or the
    /// record is lost.
    pub(crate) fn may_have_run(&self, resource: &Resource) -> Option<RunUnknown> {
        let Inputs { world, replace, .. } = self.observed.inputs;
        let once =
            matches!(resource.recreation, Recreation::Once { .. }) && !replace.contains(&resource.address);
        // A Dask cluster does nothing by itself: to create it twice is no harm.
        let comes =
            resource.kind == KindId::DaskCluster && self.observed.inputs.is_started(&resource.identity);
        if !once || self.cluster_is_new || comes {
            return None;
        }
        // A request stays when it has ended, so one that is not there was never made.
        let stays = resource.kind == KindId::ProvisioningRequest;
        match &world.record {
            Some(record) if record.create_once_pending.contains(&resource.identity) && !stays => {
                Some(RunUnknown::Interrupted)
            }
            None if self.has_applied_objects() => Some(RunUnknown::RecordMissing),
            Some(_) | None => None,
        }
    }

    /// Returns the DaskCluster that a desired group or autoscaler is attached to.
    fn cluster_of(&self, resource: &Resource) -> Option<Identity> {
        let Identity::Object(object) = &resource.identity else { return None };
        let of_host = object.gvk == kinds::hosts::api::group();
        let attached = of_host || object.gvk == dask::api::group() || object.gvk == dask::api::autoscaler();
        let name = resource.body["spec"]["cluster"].as_str().filter(|_| attached)?.to_owned();
        let gvk = if of_host { kinds::hosts::api::cluster() } else { dask::api::cluster() };
        let namespace = object.namespace.clone();
        Some(Identity::Object(ObjectId { gvk, namespace, name }))
    }

    /// Returns the DaskCluster that a live group or autoscaler is deleted with in this plan: the operator made it their owner.
    pub(crate) fn deleted_with(&self, resource: &Resource, live: &Value) -> Option<Address> {
        let Identity::Object(object) = &resource.identity else { return None };
        let attached = object.gvk == dask::api::group() || object.gvk == dask::api::autoscaler();
        let owners = live["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        if !attached || owners == 0 || !self.observed.has_applied(live) {
            return None;
        }
        let cluster = Identity::Object(ObjectId {
            gvk: dask::api::cluster(),
            namespace: object.namespace.clone(),
            name: live["spec"]["cluster"].as_str()?.to_owned(),
        });
        let deleted = |change: &&Change| {
            change.identity == cluster
                && matches!(change.action, crate::Action::Replace | crate::Action::Create)
        };
        self.changes.iter().find(deleted).map(|change| change.address.clone())
    }
}
