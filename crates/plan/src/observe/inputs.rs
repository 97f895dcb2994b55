//! The inputs of a plan.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::observe::stop_state::{PreviousStops, StopState};
use crate::{Approval, Change, ExternalRead, Mode, Note, Plan};
use model::address::Address;
use model::prices::Prices;
use model::resource::{
    CapacityOptions, External, Identity, Lowered, ObjectId, Owner, Resource, Target, World,
};
use model::source::Sources;

/// The values of `--target` and `--exclude`, as they were typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The values of `--target`: the plan has only these and what they need. Empty for everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// The values of `--exclude`: the plan has neither these nor what needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<String>,
}

impl Selection {
    /// Returns true if the plan is about the whole stack.
    pub fn is_all(&self) -> bool {
        self.targets.is_empty() && self.excludes.is_empty()
    }
}

/// The part of a stack to which a plan is limited, by `--target`, `--exclude`, a stop or a start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// The limits as they were typed.
    pub selection: Selection,
    /// Resources that are in the stack or owned by it, but not in the plan. The record keeps their entries.
    pub left_out: Vec<(Address, Identity)>,
    /// Live objects of the stack among them that the record does not name, because an earlier record was lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrecorded: Vec<(Address, ObjectId)>,
    /// The number of replicas or nodes of the target, where it differs from the stack file's.
    #[serde(rename = "number", default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
}

/// The stack file's values where a plan compares something else: pools that are stopped have no nodes in it, and pools with
/// several capacity options use one of them. A plan that is made again starts from the file's values, because both depend on the
/// live state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileBaseline {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<Resource>,
}

impl FileBaseline {
    /// Returns true if the plan compares exactly what the file says.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Creates the baseline from the differences between the file and what is compared.
    pub(crate) fn of(file: &[Resource], compared: &Inputs<'_>) -> Self {
        let pairs = file.iter().zip(compared.desired.iter());
        let differ = pairs.filter(|(file, compared)| file.body != compared.body);
        Self { resources: differ.map(|(file, _)| file.clone()).collect() }
    }

    /// Returns the desired state as the file has it.
    pub(crate) fn restored(&self, compared: &Arc<[Resource]>) -> Arc<[Resource]> {
        let mut desired = Arc::clone(compared);
        for resource in &self.resources {
            let index = desired.iter().position(|one| one.identity == resource.identity);
            if let Some(index) = index {
                Arc::make_mut(&mut desired)[index] = resource.clone();
            }
        }
        desired
    }
}

/// Everything that a plan is computed from.
pub struct Inputs<'a> {
    /// The desired state.
    pub desired: Arc<[Resource]>,
    /// External resources, which the stack reads.
    pub external: Vec<External>,
    /// Node pools with `capacity`, each with all its options.
    pub capacity_options: Vec<CapacityOptions>,
    /// The live state.
    pub world: &'a World,
    pub target: Target,
    pub owner: Owner,
    pub mode: Mode,
    /// True if the world is empty because nothing was read.
    pub offline: bool,
    /// Approvals given.
    pub approved: Vec<Approval>,
    /// Addresses of `--replace`.
    pub replace: Vec<Address>,
    /// True if pools with several capacity options begin with the first one again.
    pub retry_capacity: bool,
    /// The limits of the plan.
    pub selection: Selection,
    /// True if the target may differ from that of the last apply.
    pub allow_retarget: bool,
    /// The longest wait, in seconds, for an idle scheduler before workers are deleted.
    pub idle_wait_seconds: Option<u32>,
    /// The resources that stop, start, or are stopped.
    pub stop_state: StopState,
    /// The positions of values in the stack file.
    pub sources: &'a Sources,
    /// The prices that its cost is counted with.
    pub prices: &'a Prices,
    /// Limits of what it may cost.
    pub budget: Budget,
    /// The stops and starts before this plan.
    pub previous_stops: PreviousStops,
    /// The stack file's values where the plan compares other values.
    pub file_baseline: FileBaseline,
}

impl<'a> Inputs<'a> {
    /// Creates the inputs for a plan of the whole stack without options.
    pub fn of(stack: Lowered, mode: Mode, world: &'a World, sources: &'a Sources) -> Self {
        let Lowered { owner, target, resources, external, capacity_options } = stack;
        let record = world.record.as_ref();
        let stopped = record.map(|record| record.stopped.clone()).unwrap_or_default();
        let starting = record.map(|record| record.starting.clone()).unwrap_or_default();
        let stop_state = StopState { stopped, starting, ..StopState::default() };
        Self {
            desired: resources,
            external,
            capacity_options,
            world,
            target,
            owner,
            mode,
            offline: false,
            approved: Vec::new(),
            replace: Vec::new(),
            retry_capacity: false,
            selection: Selection::default(),
            allow_retarget: false,
            idle_wait_seconds: None,
            stop_state,
            sources,
            prices: Prices::list(),
            budget: Budget::default(),
            previous_stops: PreviousStops::default(),
            file_baseline: FileBaseline::default(),
        }
    }

    /// Returns the plan that consists of these changes and of the inputs that it needs to be made again.
    pub fn into_plan(
        self,
        changes: Vec<Change>,
        reads: Vec<ExternalRead>,
        notes: Vec<Note>,
        partial: Option<Partial>,
    ) -> Plan {
        // Where nothing of the stack is, nothing was forgotten: that is a first apply.
        let incomplete = !self.world.unlisted_owned.is_empty() && self.has_applied_objects();
        let Self {
            desired,
            external,
            capacity_options,
            world,
            target,
            owner,
            mode,
            offline,
            approved,
            replace,
            retry_capacity,
            selection: _,
            allow_retarget: retarget,
            idle_wait_seconds: when_idle,
            stop_state,
            sources: _,
            prices: _,
            budget,
            previous_stops: _,
            file_baseline: in_file,
        } = self;
        let kept = world.record.is_some() || world.lock_without_record || world.record_namespace_left;
        let record_left = mode == Mode::Destroy && partial.is_none() && changes.is_empty() && kept;
        Plan {
            record_left,
            incomplete,
            target,
            owner,
            mode,
            offline,
            changes,
            barriers: Vec::new(),
            desired,
            file_baseline: in_file,
            capacity_options,
            external,
            reads,
            notes,
            bill: None,
            unknown_pulls: Vec::new(),
            dry_run: None,
            budget,
            approved,
            partial,
            allow_retarget: retarget,
            replace,
            retry_capacity,
            idle_wait_seconds: when_idle,
            stop_state,
        }
    }
}
