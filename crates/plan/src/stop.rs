//! Stopping and starting: `stop` deletes resources or scales them to zero, and `start` restores them. Neither changes the stack
//! file. The record says what is stopped, by whom and since when. Every plan leaves stopped resources stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::observe::Ownership;
use crate::observe::inputs::Inputs;
use crate::observe::stop_state::{PreviousStops, StopRequest};
use crate::planner::Planner;
use crate::propose::dask::expiry_code;
use crate::reason::Reason;
use crate::{
    Action, Change, Mode, Note, Selection, observe::cascade, propose::impact, propose::provisioning,
    propose::select,
};
use kinds::dask;
use kinds::dask::expiry::{self, ExpiryCause};
use kinds::kind::StopEffect;
use kinds::scope::POOL_LABEL;
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic};
use model::record::{Expired, Record, Stop, Stopped};
use model::resource::{External, Identity, KindId, Recreation, Resource, Seen, World};

/// Returns the inputs with the stops applied: the stopped resources, and pools without nodes.
///
/// # Errors
///
/// `stop` names resources that cannot be stopped.
pub(crate) fn apply_stops(mut inputs: Inputs<'_>) -> Result<Inputs<'_>, Vec<Diagnostic>> {
    let record = inputs.world.record.as_ref();
    let recorded = record.map(|record| record.stopped.clone()).unwrap_or_default();
    let recorded_starting = record.map(|record| record.starting.clone()).unwrap_or_default();
    inputs.stop_state.differs_from_record = false;
    if inputs.mode == Mode::Destroy {
        // Whatever goes is no longer stopped; what is left out of a destroy still is.
        let all = inputs.selection.is_all();
        inputs.stop_state.stopped = if all { Stopped::new() } else { recorded };
        inputs.stop_state.starting = if all { BTreeSet::new() } else { recorded_starting };
        return Ok(inputs);
    }
    let expired = record.is_some_and(|record| record.expired.is_some());
    let nothing = recorded.is_empty() && recorded_starting.is_empty() && !expired;
    if nothing && inputs.stop_state.request == StopRequest::Leave {
        inputs.stop_state.stopped = Stopped::new();
        inputs.stop_state.starting = BTreeSet::new();
        return Ok(inputs);
    }
    inputs.previous_stops = previous_stops(&inputs.desired, &inputs.external, inputs.world);
    let PreviousStops { mut stopped, mut starting } = inputs.previous_stops.clone();
    match inputs.stop_state.request.clone() {
        StopRequest::Leave => {}
        StopRequest::Stop(stop) => {
            let stops = resources_to_stop(&inputs)?;
            inputs.selection = Selection {
                targets: stops.iter().map(|resource| resource.address.to_string()).collect(),
                excludes: Vec::new(),
            };
            for resource in stops {
                starting.remove(&resource.identity);
                let section = Some(resource.address.section().to_owned());
                stopped.entry(resource.identity).or_insert_with(|| Stop { section, ..stop.clone() });
            }
            // The next command would note these. Noted now, a stop that is typed again after a kill ends as one that was not killed.
            stopped.extend(newly_stopped_with(&stopped, &inputs.desired, &inputs.external, inputs.world));
        }
        StopRequest::Start => {
            if !inputs.selection.targets.is_empty() {
                let with =
                    provisioning::with_requests(&inputs, |other| inputs.previous_stops.has(&other.identity));
                inputs.selection.targets.extend(with.iter().map(Address::to_string));
            }
            let mut planner = Planner::new(&inputs);
            planner.select();
            let selected = |resource: &&Resource| planner.selected.has(&resource.address);
            let mut starts: BTreeSet<Identity> =
                inputs.desired.iter().filter(selected).map(|resource| resource.identity.clone()).collect();
            let pools = pools_needed_to_start(&inputs, &starts);
            drop(planner);
            starts.extend(pools.iter().map(|pool| pool.identity.clone()));
            // Nothing of the stack runs without its time limits.
            let limits = inputs.desired.iter().filter(|resource| expiry::is_of_stack(resource));
            let limits: Vec<&Resource> =
                limits.filter(|job| inputs.previous_stops.has(&job.identity)).collect();
            starts.extend(limits.iter().map(|job| job.identity.clone()));
            if !inputs.selection.targets.is_empty() {
                let needed = pools.iter().chain(limits);
                inputs.selection.targets.extend(needed.map(|resource| resource.address.to_string()));
            }
            let startable: BTreeSet<&Address> =
                startable(&inputs.desired, &inputs.external, inputs.world).into_iter().collect();
            let come = |resource: &&Resource| {
                startable.contains(&resource.address) && starts.contains(&resource.identity)
            };
            starting.extend(inputs.desired.iter().filter(come).map(|resource| resource.identity.clone()));
            stopped.retain(|identity, _| !starts.contains(identity));
        }
    }
    let whole = inputs.selection.is_all() || inputs.stop_state.is_start();
    // Nowhere to note it, and nothing to note.
    let is_nowhere = inputs.target.gke.is_some() && matches!(inputs.world.cluster, Seen::Absent);
    inputs.stop_state.differs_from_record = !is_nowhere
        && (stopped != inputs.previous_stops.stopped
            || starting != inputs.previous_stops.starting
            || whole && !starting.is_empty());
    for at in 0..inputs.desired.len() {
        let resource = &inputs.desired[at];
        if let (true, StopEffect::Empties(empty)) =
            (stopped.contains_key(&resource.identity), kinds::of(resource.kind).stop_effect)
        {
            let resource = &mut Arc::make_mut(&mut inputs.desired)[at];
            empty(&mut resource.body);
        }
    }
    inputs.stop_state.stopped = stopped;
    inputs.stop_state.starting = starting;
    Ok(inputs)
}

/// Returns the resources that are stopped or being started according to the record, and new ones in a stopped section.
fn previous_stops(desired: &[Resource], external: &[External], world: &World) -> PreviousStops {
    let Some(record) = &world.record else { return PreviousStops::default() };
    let identities: BTreeSet<&Identity> = desired.iter().map(|resource| &resource.identity).collect();
    let mut stopped = record.stopped.clone();
    stopped.extend(expired(record, desired, world));
    // What a `start` had begun is stopped with all else.
    let starting = record.starting.iter().filter(|_| record.expired.is_none());
    let starting = starting.filter(|identity| identities.contains(identity)).cloned().collect();
    stopped.extend(newly_stopped_with(&stopped, desired, external, world));
    stopped.retain(|identity, _| identities.contains(identity));
    PreviousStops { stopped, starting }
}

/// Returns the resources that a CronJob of the stack stops, or has stopped, since the record was written.
fn expired(record: &Record, desired: &[Resource], world: &World) -> Stopped {
    let Some(Expired { stop, deleted }) = &record.expired else { return Stopped::new() };
    let is_recorded = |identity: &Identity| record.inventory.iter().any(|entry| entry.identity == *identity);
    let stops =
        |resource: &&Resource| match (kinds::of(resource.kind).stop_effect, world.find(&resource.identity)) {
            (StopEffect::Nothing, _) => false,
            (StopEffect::DeletesWhile(runs), Some(live)) => runs(live),
            (StopEffect::DeletesWhile(_), None) => {
                resource.identity.object().is_some_and(|object| deleted.contains(&object.path()))
            }
            (_, Some(_)) => true,
            (_, None) => is_recorded(&resource.identity),
        };
    let open = |resource: &&Resource| !record.stopped.contains_key(&resource.identity);
    let stopped = desired.iter().filter(open).filter(stops);
    stopped
        .map(|resource| {
            let section = Some(resource.address.section().to_owned());
            (resource.identity.clone(), Stop { section, ..stop.clone() })
        })
        .collect()
}

/// Returns the stopped resources of the stack, by the record and by the CronJobs of the stack.
pub fn stopped(desired: &[Resource], external: &[External], world: &World) -> Stopped {
    previous_stops(desired, external, world).stopped
}

/// Returns new resources of a stopped section or on a stopped pool. They count as stopped, too. So an edit of a stopped section
/// creates nothing that costs money, and nothing waits for a stopped pool.
fn newly_stopped_with(
    stopped: &Stopped,
    desired: &[Resource],
    external: &[External],
    world: &World,
) -> Stopped {
    let mut new = Stopped::new();
    if stopped.is_empty() {
        return new;
    }
    let record = world.record.as_ref();
    let all: Vec<&Resource> = desired.iter().collect();
    let pools: Vec<&Resource> = desired.iter().filter(|one| one.identity.pool().is_some()).collect();
    let for_unpinned = pools_for_unpinned_pods(&pools);
    // Pods that name no pool may run on one that is not of the stack.
    let others = external.iter().any(|external| external.resource.identity.pool().is_some())
        || world
            .pools
            .keys()
            .any(|live| !pools.iter().any(|pool| pool.identity.pool() == Some(live.as_str())));
    let is_new = |resource: &Resource| {
        !matches!(kinds::of(resource.kind).stop_effect, StopEffect::Nothing)
            && !stopped.contains_key(&resource.identity)
            && !record.is_some_and(|record| {
                record.starting.contains(&resource.identity)
                    || record.completed.contains_key(&resource.identity)
            })
            && world.find(&resource.identity).is_none()
    };
    for resource in desired.iter().filter(|resource| is_new(resource)) {
        let section = resource.address.section();
        let of_section = || stopped.values().find(|stop| stop.section.as_deref() == Some(section));
        let of_pool = || {
            let stop = |pool: &Resource| stopped.get(&pool.identity);
            resource.identity.object()?;
            let named = pools.iter().filter(|pool| stops_with(resource, pool, &all, world));
            let mut named = named.peekable();
            match named.peek() {
                Some(_) => named.find_map(|pool| stop(pool)),
                None if others || names_a_pool(&resource.body) => None,
                None if for_unpinned.iter().all(|pool| stop(pool).is_some()) => {
                    for_unpinned.first().and_then(|pool| stop(pool))
                }
                None => None,
            }
        };
        if let Some(stop) = of_section().or_else(of_pool) {
            let section = Some(section.to_owned());
            new.insert(resource.identity.clone(), Stop { section, ..stop.clone() });
        }
    }
    new
}

/// Returns the pools on which pods without a pool selector can run: those without GPUs, or all if there is no such
/// pool.
fn pools_for_unpinned_pods<'r>(pools: &[&'r Resource]) -> Vec<&'r Resource> {
    let is_plain = |pool: &&&Resource| pool.body["config"]["accelerators"].is_null();
    let plain: Vec<&Resource> = pools.iter().filter(is_plain).copied().collect();
    if plain.is_empty() { pools.to_vec() } else { plain }
}

/// Returns stopped pools that started pods without a pool selector need, including the operator's. If none of these pools runs,
/// all of them start.
fn pools_needed_to_start(inputs: &Inputs<'_>, starts: &BTreeSet<Identity>) -> Vec<Resource> {
    let starting = startable(&inputs.desired, &inputs.external, inputs.world);
    let makes = inputs.desired.iter().any(|resource| {
        resource.identity.pool().is_none()
            && starts.contains(&resource.identity)
            && starting.contains(&&resource.address)
    });
    let pools: Vec<&Resource> =
        inputs.desired.iter().filter(|resource| resource.identity.pool().is_some()).collect();
    let pools = pools_for_unpinned_pods(&pools);
    let stays =
        |pool: &&Resource| inputs.previous_stops.has(&pool.identity) && !starts.contains(&pool.identity);
    if !makes || !pools.iter().all(stays) {
        return Vec::new();
    }
    pools.into_iter().cloned().collect()
}

/// Returns the resources to stop: the named ones that can be stopped, the resources that run on them, and their parts.
fn resources_to_stop(inputs: &Inputs<'_>) -> Result<Vec<Resource>, Vec<Diagnostic>> {
    let all: Vec<&Resource> = inputs.desired.iter().collect();
    let addresses: Vec<&Address> = all.iter().map(|resource| &resource.address).collect();
    let can = |index: &usize| can_stop(all[*index], inputs);
    let mut stops: BTreeSet<usize> = BTreeSet::new();
    let mut problems = Vec::new();
    for typed in &inputs.selection.targets {
        match select::resolve_addresses(typed, &addresses) {
            Ok(indices) => {
                let parts = |index: &usize| {
                    indices.iter().any(|meant| all[*meant].origin.contains(&all[*index].origin))
                };
                // Planned again, a stop names what goes along with others, too.
                let goes =
                    |index: &usize| can(index) || provisioning::stops_with(*index, &all, can, inputs.world);
                let found: Vec<usize> = (0..all.len()).filter(parts).filter(goes).collect();
                if found.is_empty() {
                    problems.push(not_stoppable(typed, &addresses, &indices, inputs));
                }
                stops.extend(found);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if inputs.selection.targets.is_empty() {
        stops.extend((0..all.len()).filter(can));
    }
    if stops.is_empty() {
        let what = "nothing in this stack can be stopped";
        let problem = Diagnostic::error(Code::NothingToStop, what);
        return Err(vec![problem.help(stoppable(inputs))]);
    }
    let mut open: Vec<usize> = stops.iter().copied().collect();
    while !open.is_empty() {
        while let Some(one) = open.pop() {
            let along = |index: &usize| {
                let resource = all[*index];
                can(index) && stops_with(resource, all[one], &all, inputs.world)
                    || provisioning::starts_next(resource, all[one], inputs.world)
            };
            let more: Vec<usize> = (0..all.len()).filter(along).collect();
            open.extend(more.into_iter().filter(|index| stops.insert(*index)));
        }
        let left = provisioning::requests_without_consumer(&all, &stops, inputs.world);
        open.extend(left.into_iter().filter(|index| stops.insert(*index)));
    }
    Ok(stops.into_iter().map(|index| all[index].clone()).collect())
}

const STOPPABLE_HELP: &str = "Dask clusters, their groups, jobs that have not ended, notebooks, Pods, requests for nodes and node pools can be stopped";

/// Names the kinds that can be stopped on the stack's target: on hosts, processes cost nothing by the hour.
fn stoppable(inputs: &Inputs<'_>) -> &'static str {
    match inputs.target.is_on_hosts() {
        true => {
            "on hosts only jobs that run can be stopped; `dask-infra scale NAME 0` ends the workers of a Dask cluster, `dask-infra destroy` all of it"
        }
        false => STOPPABLE_HELP,
    }
}

fn not_stoppable(typed: &str, addresses: &[&Address], indices: &[usize], inputs: &Inputs<'_>) -> Diagnostic {
    let meant = indices.first().map_or(typed, |index| addresses[*index].section());
    let section: FieldPath = meant.parse().unwrap_or_default();
    let problem = Diagnostic::error(Code::NothingToStop, format!("`{typed}` cannot be stopped"));
    problem.at(inputs.sources.span(&section), "requested").help(stoppable(inputs))
}

/// Returns true if `stop` affects a resource. A job that has ended or has never run is not affected: `start` would run it again.
fn can_stop(resource: &Resource, inputs: &Inputs<'_>) -> bool {
    let world = inputs.world;
    let recorded = inputs.previous_stops.stopped.contains_key(&resource.identity);
    match kinds::of(resource.kind).stop_effect {
        StopEffect::Nothing => false,
        StopEffect::Deletes | StopEffect::Empties(_) => true,
        StopEffect::DeletesWhile(runs) => {
            let runs = world.find(&resource.identity).is_some_and(runs);
            recorded || runs && !provisioning::is_used_up(resource, &inputs.desired, world)
        }
    }
}

/// Returns true if a resource requires another: pods that must run on a pool, and parts of a Dask cluster.
fn requires(one: &Resource, other: &Resource) -> bool {
    if let Some(pool) = other.identity.pool() {
        return must_run_on(&one.body, pool);
    }
    let (Some(part), Some(cluster)) = (one.identity.object(), other.identity.object()) else { return false };
    if ![dask::api::cluster(), kinds::hosts::api::cluster()].contains(&cluster.gvk) {
        return false;
    }
    let attached = part.gvk == dask::api::group() || part.gvk == dask::api::autoscaler();
    let of_it = part.namespace == cluster.namespace && one.body["spec"]["cluster"] == cluster.name.as_str();
    attached && of_it || other.origin.contains(&one.origin)
}

/// Returns true if `one` stops with `other`: if it [`requires`] it, or uses the nodes of the request that `other` is. A request
/// for a pool's nodes stops with the pool. So does a Job with live pods on it, because it counts lost pods as failures.
fn stops_with(one: &Resource, other: &Resource, all: &[&Resource], world: &World) -> bool {
    let Some(pool) = other.identity.pool() else {
        return requires(one, other) || provisioning::uses(one, other);
    };
    let has_pods = || {
        let uid = world.find(&one.identity).and_then(|live| live["metadata"]["uid"].as_str());
        let owns = |pod: &Value| uid.is_some() && cascade::owner_uids(pod).any(|owner| Some(owner) == uid);
        let pods = cascade::pods_of_pool(world, pool);
        one.kind == KindId::Job
            && pods.into_iter().any(|(object, pod)| impact::is_user_pod(object, pod) && owns(pod))
    };
    requires(one, other) || provisioning::is_for(one, pool, all) || has_pods()
}

fn must_run_on(body: &Value, pool: &str) -> bool {
    match body {
        Value::Object(fields) => {
            fields.get("nodeSelector").is_some_and(|labels| labels[POOL_LABEL] == pool)
                || fields.values().any(|value| must_run_on(value, pool))
        }
        Value::Array(items) => items.iter().any(|item| must_run_on(item, pool)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn names_a_pool(body: &Value) -> bool {
    match body {
        Value::Object(fields) => {
            fields.get("nodeSelector").is_some_and(|labels| !labels[POOL_LABEL].is_null())
                || fields.values().any(names_a_pool)
        }
        Value::Array(items) => items.iter().any(names_a_pool),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the addresses that `start` can restore: stopped resources, resources that an interrupted `start` began to restore, and
/// Dask clusters that were deleted by their time limit and not recreated.
pub fn startable<'r>(desired: &'r [Resource], external: &[External], world: &World) -> Vec<&'r Address> {
    let Some(record) = &world.record else { return Vec::new() };
    let before = previous_stops(desired, external, world);
    let is_removed = |resource: &Resource| {
        let once = matches!(resource.recreation, Recreation::Once { timeout: None });
        let of_cluster = [dask::api::cluster(), kinds::hosts::api::cluster()];
        let cluster = resource.identity.object().is_some_and(|object| of_cluster.contains(&object.gvk));
        once && cluster
            && record.completed.contains_key(&resource.identity)
            && world.find(&resource.identity).is_none()
    };
    let clusters: Vec<&Resource> = desired.iter().filter(|resource| is_removed(resource)).collect();
    // Its groups and its autoscaler went with it.
    let with = |resource: &Resource| {
        world.find(&resource.identity).is_none() && clusters.iter().any(|cluster| requires(resource, cluster))
    };
    let startable =
        |resource: &&Resource| before.has(&resource.identity) || is_removed(resource) || with(resource);
    desired.iter().filter(startable).map(|resource| &resource.address).collect()
}

impl<'a> Inputs<'a> {
    /// Returns who stopped a resource, and when.
    pub(crate) fn stop_of(&self, identity: &Identity) -> Option<&Stop> {
        self.stop_state.stopped.get(identity)
    }

    /// Returns the reason to delete a stopped resource: the record has it as stopped, or this plan stops it.
    fn stopped_why(&self, identity: &Identity, stop: &Stop) -> Reason {
        match self.previous_stops.stopped.contains_key(identity) {
            true => Reason::Stopped(stop.clone()),
            false => Reason::WillBeStopped,
        }
    }

    /// Returns true for a resource that `start` has requested, now or before an interruption.
    pub(crate) fn is_started(&self, identity: &Identity) -> bool {
        self.stop_state.is_start() || self.stop_state.starting.contains(identity)
    }
}

impl Planner<'_> {
    /// Stops a resource: deletes it if it exists, and does not create it otherwise.
    pub(crate) fn stop(&mut self, resource: &Resource, stop: &Stop) {
        let kind = kinds::of(resource.kind);
        let ours = |live: &&Value| matches!(self.observed.ownership(resource, kind, live), Ownership::Owned);
        if let Some(live) = self.live(&resource.identity).filter(ours).cloned() {
            self.refuse_if_protected(resource, "delete");
            let (address, identity) = (resource.address.clone(), resource.identity.clone());
            let why = Some(self.observed.inputs.stopped_why(&resource.identity, stop));
            self.changes.push(self.deletion(identity, &live, (address, resource.kind), why));
            return;
        }
        self.not_created.insert(resource.identity.clone());
        self.changes.push(self.observed.proposed(resource, Action::Keep, Vec::new()));
    }

    /// Explains why stopped and started resources change, and lists those that are stopped already.
    pub(crate) fn note_stops(&mut self) {
        let inputs = self.observed.inputs;
        let stopped = &inputs.stop_state.stopped;
        for change in &mut self.changes {
            let acts = matches!(change.action, Action::Create | Action::Update | Action::Replace);
            match stopped.get(&change.identity) {
                Some(stop) if change.action == Action::Update => {
                    change.reasons.push(inputs.stopped_why(&change.identity, stop));
                }
                None if acts && inputs.previous_stops.has(&change.identity) => {
                    change.reasons.push(Reason::Started);
                }
                Some(_) | None => {}
            }
        }
        // Deletes are shown last.
        self.changes.sort_by_key(|change| change.action == Action::Delete);
        let told: BTreeMap<&Identity, &Resource> = self
            .observed
            .desired
            .iter()
            .filter(|(identity, _)| inputs.previous_stops.stopped.contains_key(identity))
            .map(|(identity, resource)| (*identity, *resource))
            .collect();
        let mut notes = Vec::new();
        for change in self.changes.iter().filter(|change| change.action == Action::Keep) {
            let (Some(stop), Some(resource)) = (stopped.get(&change.identity), told.get(&change.identity))
            else {
                continue;
            };
            // Resources of a cluster that is also stopped are not named beside it.
            let part = |other: &&Resource| other.identity != resource.identity && requires(resource, other);
            if told.values().filter(|other| other.identity.object().is_some()).any(part) {
                continue;
            }
            let message = format!("{stop}; `dask-infra start {}` restores it", resource.address);
            notes.push(Note::new(Code::Stopped, &resource.address, message));
        }
        self.notes.extend(notes);
    }

    /// Adds a note on a new time limit of an existing cluster: the time that the cluster has already lived counts.
    pub(crate) fn note_expiry(&mut self) {
        let inputs = self.observed.inputs;
        if !inputs.desired.iter().any(|resource| resource.kind == KindId::Expiry) {
            return;
        }
        let actions: BTreeMap<&Identity, Action> =
            self.changes.iter().map(|change| (&change.identity, change.action)).collect();
        let action = |identity: &Identity| actions.get(identity).copied();
        let mut notes = Vec::new();
        for cluster in inputs.desired.iter() {
            let stays = matches!(action(&cluster.identity), Some(Action::Keep | Action::Update));
            let Some(live) = self.live(&cluster.identity).filter(|_| stays) else { continue };
            for (cause, job) in expiry::for_cluster(cluster, &inputs.desired) {
                let changed =
                    matches!(action(&job.identity), Some(Action::Create | Action::Update | Action::Replace));
                let Some(after) = expiry::after(job).filter(|_| changed) else { continue };
                let made = live["metadata"]["creationTimestamp"].as_str();
                let made = made.map(|made| format!(", {made}")).unwrap_or_default();
                let from = match cause {
                    ExpiryCause::IdleStop => "the moment when its work ended".to_owned(),
                    ExpiryCause::Ttl if expiry::is_of_queue(job) => {
                        "the moment when its queue admitted it".to_owned()
                    }
                    ExpiryCause::Ttl => format!("its creation{made}"),
                };
                let message = format!(
                    "its {} of {after} counts from {from}: if that is over, it is deleted within minutes",
                    cause.key()
                );
                notes.push(Note::new(expiry_code(cause), &cluster.address, message));
            }
        }
        self.notes.extend(notes);
    }

    /// Returns true if a check would use a stopped resource.
    pub(crate) fn uses_stopped(&self, resource: &Resource) -> bool {
        let stopped = &self.observed.inputs.stop_state.stopped;
        !stopped.is_empty()
            && self.observed.inputs.desired.iter().any(|other| {
                stopped.contains_key(&other.identity) && resource.depends_on.contains(&other.address)
            })
    }
}

impl Change {
    /// Returns true if the change stops its resource: deletes it, or scales a pool to zero nodes.
    pub fn stops(&self) -> bool {
        self.reasons.iter().any(|reason| matches!(reason, Reason::Stopped(_) | Reason::WillBeStopped))
    }

    /// Returns true if the change stops its pool by scaling it to zero nodes.
    pub(crate) fn scales_to_zero(&self) -> bool {
        matches!(self.identity, Identity::NodePool { .. }) && self.action == Action::Update && self.stops()
    }
}
