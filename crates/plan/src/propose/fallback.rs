//! Node pools with several capacity options: selects the current option, and the options to try if it has no machines. A live
//! pool shows which option it was created with, so nothing is lost with the record.

use std::sync::Arc;

use serde_json::Value;

use crate::cost::option_cost;
use crate::observe::inputs::Inputs;
use crate::planner::Planner;
use crate::reason::Reason;
use crate::{Action, Note};
use kinds::gke::node_pool::{capacity_options, lacks_machines, starts_empty};
use kinds::json::{is_terminating, text};
use kinds::kind::ChangeContext;
use model::address::Address;
use model::diag::Code;
use model::record::CapacityUsed;
use model::resource::{
    CapacityOption, CapacityOptions, Fallback, FallbackStep, Identity, Resource, Step, World,
};

/// Gives each pool with several capacity options the body of its current option, or of the first if it has none yet.
pub(crate) fn use_current_options(inputs: &mut Inputs<'_>) {
    let Inputs { desired, capacity_options, world, replace, retry_capacity, .. } = inputs;
    for capacity in capacity_options.iter() {
        let Some(at) = desired.iter().position(|resource| resource.identity == capacity.identity) else {
            continue;
        };
        let resource = &mut Arc::make_mut(desired)[at];
        let retries = *retry_capacity || replace.contains(&resource.address);
        let stays = current_option(capacity, world).filter(|_| !retries);
        let Some(option) = capacity.options.get(stays.unwrap_or_default()) else { continue };
        resource.body = option.body.clone();
    }
}

/// Returns the resources, each pool with the body of its current capacity option, for commands that do not plan.
pub fn with_current_options(
    resources: &[Resource],
    capacity_options: &[CapacityOptions],
    world: &World,
) -> Vec<Resource> {
    let mut resources = resources.to_vec();
    for capacity in capacity_options {
        let option = current_option(capacity, world).and_then(|stays| capacity.options.get(stays));
        let resource = resources.iter_mut().find(|resource| resource.identity == capacity.identity);
        if let (Some(option), Some(resource)) = (option, resource) {
            resource.body = option.body.clone();
        }
    }
    resources
}

/// Returns the option of the live pool. If an apply was interrupted because the option had no machines, returns the next one;
/// after the last option comes the first.
fn current_option(capacity: &CapacityOptions, world: &World) -> Option<usize> {
    let live = world.find(&capacity.identity).filter(|live| !is_terminating(live))?;
    let on = capacity_options::option_of(capacity, live)?;
    match is_interrupted(capacity, live, world) {
        true => Some((on + 1) % capacity.options.len()),
        // A pool in ERROR never becomes ready and is recreated.
        false => Some(on).filter(|_| live["status"] != "ERROR"),
    }
}

/// Returns true if an apply was interrupted before it tried the next option.
fn is_interrupted(capacity: &CapacityOptions, live: &Value, world: &World) -> bool {
    lacks_machines(live)
        && capacity_options::option_of(capacity, live).is_some()
        && was_never_ready(&capacity.identity, live, world)
}

/// Returns true if GKE is creating a resource or has failed to, and the record says that it has never been ready. Then nothing
/// has ever run on it. Without a record that is uncertain, and a deletion needs approval.
fn was_never_ready(identity: &Identity, live: &Value, world: &World) -> bool {
    let recorded = world.record.iter().flat_map(|record| &record.inventory);
    let mut entries = recorded.filter(|entry| entry.identity == *identity);
    matches!(text(&live["status"]), "PROVISIONING" | "ERROR")
        && entries.any(|entry| entry.ready == Some(false))
}

/// `on-demand in us-central1-a or us-central1-b ($1.20/h)`, `flex-start`: options that differ only in their zone as one.
fn options_text(options: &[CapacityOption], priced: Option<&Inputs<'_>>) -> Vec<String> {
    let alike = options.chunk_by(|one, other| one.capacity == other.capacity);
    let line = |options: &[CapacityOption]| -> String {
        let zones: Vec<&str> = options.iter().filter_map(|option| option.zone.as_deref()).collect();
        let in_zones = match zones.as_slice() {
            [] => String::new(),
            zones => format!(" in {}", zones.join(" or ")),
        };
        let Some(first) = options.first() else { return String::new() };
        let price = priced.and_then(|inputs| option_cost(first, inputs));
        let price = price.map(|(least, most)| match (most - least).abs() < 0.005 {
            true => format!(" (${most:.2}/h)"),
            false if least < 0.005 => format!(" ($0–{most:.2}/h)"),
            false => format!(" (${least:.2}–{most:.2}/h)"),
        });
        format!("{}{in_zones}{}", first.capacity, price.unwrap_or_default())
    };
    alike.map(line).collect()
}

impl<'a> Planner<'a> {
    fn capacity_options(&self, identity: &Identity) -> Option<&'a CapacityOptions> {
        self.observed.inputs.capacity_options.iter().find(|capacity| capacity.identity == *identity)
    }

    /// Returns the capacity option whose body a resource has now.
    fn option_of(&self, resource: &Resource) -> Option<(&'a CapacityOptions, usize)> {
        let capacity = self.capacity_options(&resource.identity)?;
        Some((capacity, capacity.options.iter().position(|option| option.body == resource.body)?))
    }

    /// Returns the name of the option that a live pool was created with, if GKE's autoscaler scales the pool.
    pub(crate) fn autoscaled_option(&self, resource: &Resource, live: &Value) -> Option<String> {
        let capacity =
            self.capacity_options(&resource.identity).filter(|_| live["autoscaling"]["enabled"] == true)?;
        capacity_options::option_of(capacity, live).map(|on| capacity.options[on].name())
    }

    /// Returns the reason to recreate a live pool with another capacity option.
    pub(crate) fn leaves_option(&self, resource: &Resource, live: &Value) -> Option<Reason> {
        let (capacity, desired) = self.option_of(resource)?;
        match capacity_options::option_of(capacity, live) {
            None => Some(Reason::CapacityOptionRemoved),
            Some(on) if is_interrupted(capacity, live, self.observed.inputs.world) => {
                Some(Reason::NoMachines { by: capacity.options[on].name() })
            }
            // One that is on its first option is tried again where that has no machines now.
            Some(on) if self.observed.inputs.retry_capacity && (on != desired || lacks_machines(live)) => {
                Some(Reason::RetriesCapacity { on: capacity.options[on].name() })
            }
            Some(_) => None,
        }
    }

    /// Fills in `fallback` of each change: all steps that apply may send if an option has no machines.
    pub(crate) fn add_fallbacks(&mut self) {
        for index in 0..self.changes.len() {
            let change = &self.changes[index];
            let Some(resource) = self.observed.desired.get(&change.identity).copied() else { continue };
            let Some((capacity, from)) = self.option_of(resource) else { continue };
            let address = change.address.clone();
            match change.action {
                // Made with its cluster, it cannot be tried: the cluster would fail with it.
                Action::Create | Action::Replace if change.reasons.contains(&Reason::CreatedWithCluster) => {}
                Action::Create | Action::Replace => {
                    let fallback = self.fallback(resource, capacity, from);
                    let change = &mut self.changes[index];
                    change.fallback = Some(fallback);
                    change.reasons.push(Reason::CapacityOrder(options_text(
                        &capacity.options[from..],
                        Some(self.observed.inputs),
                    )));
                }
                Action::Keep => {
                    let world = self.observed.inputs.world;
                    let live = world.find(&change.identity);
                    let open = live.is_some_and(|live| was_never_ready(&change.identity, live, world));
                    if change.is_waited_for() && open {
                        self.changes[index].fallback = Some(self.fallback(resource, capacity, from));
                        self.note_next_option(&address, capacity, from);
                        continue;
                    }
                    self.note_fallback(&address, capacity, from);
                }
                // Nothing runs on it that would be lost with it, so another option costs nothing.
                Action::Update if self.starts_from_zero(resource) => {
                    let fallback = self.fallback(resource, capacity, from);
                    let change = &mut self.changes[index];
                    change.fallback = Some(fallback);
                    change.reasons.push(Reason::CapacityOrder(options_text(
                        &capacity.options[from..],
                        Some(self.observed.inputs),
                    )));
                    self.note_fallback(&address, capacity, from);
                }
                Action::Update => self.note_fallback(&address, capacity, from),
                Action::Delete | Action::Forget | Action::Run => {}
            }
        }
    }

    /// Returns true if a pool without nodes gets nodes and can be recreated without loss.
    fn starts_from_zero(&self, resource: &Resource) -> bool {
        let size = resource.identity.pool().and_then(|pool| self.observed.inputs.world.sizes.get(pool));
        size == Some(&0) && !starts_empty(&resource.body) && !resource.protect
    }

    fn fallback(&self, resource: &Resource, capacity: &CapacityOptions, from: usize) -> Fallback {
        let step = |option: &CapacityOption| {
            let resource = Resource { body: option.body.clone(), ..resource.clone() };
            FallbackStep { option: option.name(), steps: self.recreate_steps(&resource, Action::Replace) }
        };
        Fallback {
            first: capacity.options[from].name(),
            then: capacity.options[from + 1..].iter().map(step).collect(),
            cleanup: self.recreate_steps(resource, Action::Delete),
        }
    }

    /// Returns the steps that delete a pool after a failed option and, unless `action` is a delete, recreate it.
    fn recreate_steps(&self, resource: &Resource, action: Action) -> Vec<Step> {
        let context = ChangeContext {
            resource: (action != Action::Delete).then_some(resource),
            zones: self.zones_of(resource, Action::Replace).len(),
            ..ChangeContext::of(action, &resource.identity, &self.observed.inputs.owner)
        };
        (kinds::of(resource.kind).change_steps)(&context)
    }

    /// Notes the next option of a pool that GKE is still creating.
    fn note_next_option(&mut self, address: &Address, capacity: &CapacityOptions, from: usize) {
        let then = match capacity.options.get(from + 1) {
            None => "apply deletes it and fails".to_owned(),
            Some(next) => format!("apply deletes it and goes on with {}", next.name()),
        };
        let option = capacity.options[from].name();
        let message = format!("GKE is still creating it by {option}; if there are no machines, {then}");
        self.notes.push(Note::new(Code::CapacityNext, address, message));
    }

    /// Notes that a pool is not on its first option.
    fn note_fallback(&mut self, address: &Address, capacity: &CapacityOptions, from: usize) {
        if from == 0 {
            return;
        }
        let record = self.observed.inputs.world.record.as_ref();
        let used = record.and_then(|record| record.capacity_of(&capacity.identity));
        let tried = used.map(|CapacityUsed { tried, .. }| tried.as_slice()).unwrap_or_default();
        let before = match tried {
            [] => format!(
                "before it in `capacity`: {}",
                options_text(&capacity.options[..from], None).join(", ")
            ),
            tried => {
                let names: Vec<&str> = tried.iter().map(|tried| tried.option.as_str()).collect();
                format!("no machines when it was created: {}", names.join(", "))
            }
        };
        let message = format!(
            "its machines are {}; {before}. `apply --retry-capacity` replaces it and begins with {}",
            capacity.options[from].name(),
            capacity.options[0].name()
        );
        self.notes.push(Note::new(Code::CapacityFallback, address, message));
    }
}
