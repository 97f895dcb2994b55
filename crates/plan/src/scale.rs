//! Plans a change of one resource's live replica count, and nothing else.

use serde_json::{Value, json};

use crate::observe::inputs::{Inputs, Partial};
use crate::observe::{Ownership, fingerprint};
use crate::planner::{Planner, Selected};
use crate::steps::{deleted_workers_note, wait_until_ready};
use crate::{Action, Change, Note, Plan, cost};
use kinds::comparison::FingerprintInput;
use kinds::dask;
use kinds::dask::scale::{is_autoscaler_of, scale_objects};
use kinds::json::is_terminating;
use kinds::kind::ChangeContext;
use kinds::kubernetes::calls::scale_call_as;
use kinds::kubernetes::kueue::gang;
use kinds::scale::{ReplicaOwner, ScaleTarget};
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic};
use model::resource::{Effect, FieldChange, Identity, ObjectId, Resource, Step};

/// The replica count that a command asks for.
#[derive(Clone, Copy, Debug)]
pub struct ScaleRequest<'a> {
    pub address: &'a Address,
    /// The fields with the count, and the owner of the count according to the stack file.
    pub target: &'a ScaleTarget,
    /// The new count.
    pub replicas: u32,
    /// True if the stack file is edited to this count.
    pub persist: bool,
}

/// Plans a change of one replica count. `inputs` already have the new count, and select only this resource.
///
/// # Errors
///
/// The resource is not live, is not managed by this stack, or something else sets its replica count.
pub fn scale(inputs: Inputs, request: &ScaleRequest<'_>) -> Result<Plan, Vec<Diagnostic>> {
    let mut planner = Planner::new(&inputs);
    planner.check_readable();
    planner.check_target();
    planner.selected = Selected::Only([request.address.clone()].into());
    if planner.problems.is_empty()
        && let Err(problem) = planner.plan_scale(request)
    {
        planner.problems.push(*problem);
    }
    planner.notes.extend(planner.unknown_state_notes());
    planner.notes.extend(planner.left_without_workers());
    let number = (!request.persist).then_some(request.replicas);
    let partial = planner.partial().map(|partial| Partial { replicas: number, ..partial });
    let Planner { changes, problems, notes, .. } = planner;
    if !problems.is_empty() {
        return Err(problems);
    }
    let bill = cost::bill(&inputs, &changes);
    let mut plan = inputs.into_plan(changes, Vec::new(), notes, partial);
    plan.bill = bill;
    Ok(plan)
}

impl Planner<'_> {
    fn plan_scale(&mut self, request: &ScaleRequest<'_>) -> Result<(), Box<Diagnostic>> {
        let inputs = self.observed.inputs;
        let Some(resource) = inputs.desired.iter().find(|resource| resource.address == *request.address)
        else {
            return Err(self.cannot(
                request,
                format!("{} does not belong to this stack", request.address),
                None,
            ));
        };
        if let Some(stop) = inputs.stop_of(&resource.identity) {
            let help = format!("start it first: dask-infra start {}", resource.address);
            return Err(self.cannot(request, format!("{} is {stop}", resource.identity), Some(&help)));
        }
        let live = self.owned_live(resource, request)?;
        self.check_can_grow(resource, request)?;
        let before = match &resource.identity {
            Identity::Object(object) => self.live_numbers(object, request)?,
            _ => vec![(None, live["nodeCount"].as_u64().map(Value::from))],
        };
        let to = json!(request.replicas);
        let path = &request.target.path;
        let fingerprint_input = FingerprintInput::of(before.iter().map(|(object, number)| {
            let path = object.as_ref().map_or_else(|| path.clone(), |object| path.key(&object.name));
            (path.to_string(), number.as_ref().unwrap_or(&Value::Null))
        }));
        let fingerprint = Some(fingerprint(&live, &fingerprint_input));
        let differs: Vec<_> = before.iter().filter(|(_, number)| number.as_ref() != Some(&to)).collect();
        let Some((_, from)) = differs.first() else {
            let kept = self.observed.proposed(resource, Action::Keep, Vec::new());
            self.changes.push(Change { fingerprint, ..kept });
            return Ok(());
        };
        let field = FieldChange {
            path: path.clone(),
            before: from.clone(),
            after: Some(to.clone()),
            effect: Effect::InPlace,
            note: None,
            drift: None,
            secret: false,
        };
        let fields = vec![field];
        if matches!(resource.identity, Identity::NodePool { .. })
            && let Some(problem) = self.uneven_zones(resource, &self.live_zones(resource))
        {
            return Err(Box::new(problem));
        }
        let objects: Vec<&ObjectId> = differs.iter().filter_map(|(object, _)| object.as_ref()).collect();
        let (steps, goes) = self.scale_steps(resource, &live, &fields, request.replicas, &objects);
        self.notes.extend(deleted_workers_note(&resource.address, &goes));
        let change = self.observed.proposed(resource, Action::Update, fields);
        self.changes.push(Change { fingerprint, steps, ..change });
        self.note_owner(resource, request);
        Ok(())
    }

    /// Returns the live resource. One that does not exist, is being deleted, or is foreign is not scaled.
    fn owned_live(
        &mut self,
        resource: &Resource,
        request: &ScaleRequest<'_>,
    ) -> Result<Value, Box<Diagnostic>> {
        let Some(live) = self.observed.inputs.world.find(&resource.identity).cloned() else {
            let help = "`dask-infra apply` creates it with the number in the stack file";
            return Err(self.cannot(request, format!("{} does not exist", resource.identity), Some(help)));
        };
        if is_terminating(&live) {
            let what = format!("{} is being deleted", resource.identity);
            return Err(self.cannot(request, what, Some("`dask-infra apply` recreates it")));
        }
        if let Some(option) = self.autoscaled_option(resource, &live) {
            let what = format!(
                "the machines of {} are {option}: GKE's autoscaler sets their number",
                resource.identity
            );
            return Err(self.cannot(
                request,
                what,
                Some("change `nodes` in the stack file for its maximum, then apply"),
            ));
        }
        let live = self.with_size(resource, live);
        let kind = kinds::of(resource.kind);
        if let Ownership::Foreign(whose) = self.observed.ownership(resource, kind, &live) {
            let what =
                format!("{} already exists and does not belong to this stack: {whose}", resource.identity);
            let problem = Diagnostic::error(Code::NotOurs, what);
            let span = self.observed.inputs.sources.span(&resource.origin);
            let help = format!(
                "its owner scales it; to adopt it: dask-infra apply --allow take:{}",
                resource.address
            );
            let problem = problem.at(span, "named here").about(resource.address.clone(), "");
            return Err(Box::new(problem.help(help)));
        }
        Ok(live)
    }

    /// Returns an error for resources of a fixed size: gangs, and resources on nodes that were requested for all of them.
    fn check_can_grow(&self, resource: &Resource, request: &ScaleRequest<'_>) -> Result<(), Box<Diagnostic>> {
        if gang::name_of(resource).is_some() {
            let help = "change `replicas` in the stack file and apply: that recreates it; a `group` with a queue adds \
                        workers without that";
            let what =
                format!("{} starts whole, with as many workers as it was created with", request.address);
            return Err(self.cannot(request, what, Some(help)));
        }
        if dask::queued_workers::are_requested(&resource.body) {
            let help = "change `replicas` in the stack file and apply: that requests nodes for all of them and recreates it; \
                        a `group` with `capacity = \"queued\"` adds workers without that";
            let what = format!("{} has nodes for as many workers as it was created with", request.address);
            return Err(self.cannot(request, what, Some(help)));
        }
        Ok(())
    }

    /// Returns the live objects that hold the replica count, and the count.
    #[expect(clippy::type_complexity, reason = "a list of pairs, read at once by the one caller")]
    fn live_numbers(
        &self,
        object: &ObjectId,
        request: &ScaleRequest<'_>,
    ) -> Result<Vec<(Option<ObjectId>, Option<Value>)>, Box<Diagnostic>> {
        let world = self.observed.inputs.world;
        let others = world.objects.live().into_iter().flatten();
        let foreign = others.filter(|(id, live)| is_autoscaler_of(id, live, object) && !is_terminating(live));
        if let Some((autoscaler, live)) = foreign.into_iter().next() {
            let bounds = (&live["spec"]["minimum"], &live["spec"]["maximum"]);
            let what = format!(
                "{autoscaler} sets the number of workers of {}, between {} and {}",
                request.address, bounds.0, bounds.1
            );
            let ours = self.observed.has_applied(live);
            let help = if ours {
                "the stack created it for an earlier `replicas = { min, max }`: `dask-infra apply` deletes it"
                    .to_owned()
            } else {
                let namespace = autoscaler.namespace.as_deref().unwrap_or("default");
                format!(
                    "`KubeCluster.adapt` creates one: call `scale` in the notebook, or delete it: kubectl -n \
                     {namespace} delete daskautoscaler {}",
                    autoscaler.name
                )
            };
            return Err(Box::new(
                Diagnostic::error(Code::NumberOfOthers, what).about(request.address.clone(), "").help(help),
            ));
        }
        let mut found = Vec::new();
        for object in scale_objects(object, &request.target.replica_owner) {
            let Some(live) = world.find(&Identity::Object(object.clone())) else {
                let what = format!("{object}, which has the number of workers, does not exist");
                let help = "the Dask operator does not recreate it: `dask-infra plan` shows the fix";
                return Err(self.cannot(request, what, Some(help)));
            };
            // A number that nobody wrote is the default of its definition.
            let number = request.target.path.find(live).cloned().unwrap_or_else(|| json!(1));
            found.push((Some(object), Some(number)));
        }
        Ok(found)
    }

    /// Returns the calls that write the count (for pools, GKE's own call), followed by the kind's steps, such as the wait.
    /// Returns the deleted workers, too.
    fn scale_steps(
        &self,
        resource: &Resource,
        live: &Value,
        fields: &[FieldChange],
        to: u32,
        objects: &[&ObjectId],
    ) -> (Vec<Step>, Vec<(ObjectId, Value)>) {
        let kind = kinds::of(resource.kind);
        let owner = &self.observed.inputs.owner;
        let mut counted = resource.clone();
        let object = matches!(resource.identity, Identity::Object(_));
        if object && dask::api::replicas_path().find(&resource.create_only).is_some() {
            counted.body["spec"]["worker"]["replicas"] = json!(to);
        }
        let context = |action| ChangeContext {
            resource: Some(&counted),
            live: Some(live),
            objects: self.observed.inputs.world.objects.live(),
            fields,
            zones: self.live_zones(resource).len(),
            ..ChangeContext::of(action, &resource.identity, owner)
        };
        let mut own = (kind.change_steps)(&context(if object { Action::Keep } else { Action::Update }));
        wait_until_ready(&mut own);
        let goes = (kind.deleted_workers)(&context(Action::Update));
        let mut steps = dask::workers::deletes(&goes);
        let manager = owner.scale_manager();
        steps.extend(objects.iter().map(|object| Step::Call(scale_call_as(object, &manager, json!(to)))));
        if let Identity::Object(object) = &resource.identity {
            steps.splice(..0, dask::kopf::waits_before(Action::Update, object, fields, &steps));
        }
        steps.extend(own);
        (steps, goes)
    }

    /// Adds a note on who owns the count from now on, unless the stack file or an autoscaler has it.
    fn note_owner(&mut self, resource: &Resource, request: &ScaleRequest<'_>) {
        let ScaleTarget { origin: place, replica_owner: number, unit, .. } = request.target;
        let (code, message) = match number {
            ReplicaOwner::File(says) if !request.persist && *says != u64::from(request.replicas) => {
                let at = self.observed.inputs.sources.locate(place);
                let at = at.map(|at| format!(" ({at})")).unwrap_or_default();
                let unit = if *says == 1 { unit.trim_end_matches('s') } else { unit };
                let message = format!(
                    "the stack file has {says} {unit}{at}, and the next apply restores that; `--write` writes \
                     {} to the file",
                    request.replicas
                );
                (Code::NotKept, message)
            }
            ReplicaOwner::File(_) | ReplicaOwner::Autoscaler { .. } => return,
            ReplicaOwner::Notebooks(_) | ReplicaOwner::Unmanaged => {
                let whose =
                    if *number == ReplicaOwner::Unmanaged { "nothing in the stack" } else { "notebooks" };
                let message = format!(
                    "the number belongs to {whose}: it stays {} until it is changed there",
                    request.replicas
                );
                (Code::NotKept, message)
            }
        };
        self.notes.push(Note::new(code, &resource.address, message));
    }

    fn cannot(&self, request: &ScaleRequest<'_>, what: String, help: Option<&str>) -> Box<Diagnostic> {
        let section: FieldPath = request.address.section().parse().unwrap_or_default();
        let span = self.observed.inputs.sources.span(&section);
        let problem = Diagnostic::error(Code::NothingToScale, what).at(span, "requested");
        let problem = problem.about(request.address.clone(), "");
        Box::new(help.into_iter().fold(problem, Diagnostic::help))
    }
}
