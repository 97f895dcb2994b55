//! Things that several ways lead to: which of them counts, and what is done when it has no machines. A live pool tells by
//! itself which way it was made by, so a lost record loses no way.

use std::sync::Arc;

use serde_json::Value;

use crate::observe::inputs::Inputs;
use crate::planner::Planner;
use crate::reason::Reason;
use crate::{Action, Note};
use kinds::gke::node_pool::{is_short, starts_empty, ways};
use kinds::json::{is_going, text};
use kinds::kind::ChangeContext;
use model::address::Address;
use model::diag::Code;
use model::record::Bought;
use model::resource::{Climb, Cost, Identity, Ladder, Resource, Rung, Step, Way, World};

/// Gives what has several ways the body of the one that it is on, or of the first one.
pub(crate) fn settle(inputs: &mut Inputs<'_>) {
    let Inputs { desired, ladders, world, replace, retry_capacity, hourly, .. } = inputs;
    for ladder in ladders.iter() {
        let Some(at) = desired.iter().position(|resource| resource.identity == ladder.identity) else {
            continue;
        };
        let resource = &mut Arc::make_mut(desired)[at];
        let anew = *retry_capacity || replace.contains(&resource.address);
        let stays = stays(ladder, world).filter(|_| !anew);
        let Some(way) = ladder.ways.get(stays.unwrap_or_default()) else { continue };
        resource.body = way.body.clone();
        if let (Some(hourly), Some(cost), Some(_)) = (hourly.as_mut(), way.hourly, stays)
            && let Some(before) = hourly.pools.get_mut(&resource.address)
        {
            let Cost { least, most } = &mut hourly.whole;
            *least += cost.least - before.least;
            *most += cost.most - before.most;
            *before = cost;
        }
    }
}

/// Returns the resources, each with the body of the way that it is on, for uses that only look at it.
pub fn settled(resources: &[Resource], ladders: &[Ladder], world: &World) -> Vec<Resource> {
    let mut resources = resources.to_vec();
    for ladder in ladders {
        let way = stays(ladder, world).and_then(|stays| ladder.ways.get(stays));
        let resource = resources.iter_mut().find(|resource| resource.identity == ladder.identity);
        if let (Some(way), Some(resource)) = (way, resource) {
            resource.body = way.body.clone();
        }
    }
    resources
}

/// The way that a live thing stays on; of one that an apply left without machines the next, or the first after the last.
fn stays(ladder: &Ladder, world: &World) -> Option<usize> {
    let live = world.find(&ladder.identity).filter(|live| !is_going(live))?;
    let on = ways::on(ladder, live)?;
    match goes_on(ladder, live, world) {
        true => Some((on + 1) % ladder.ways.len()),
        // What never becomes whole is made anew.
        false => Some(on).filter(|_| live["status"] != "ERROR"),
    }
}

/// Returns true if an apply ended before it could go on with the next way.
fn goes_on(ladder: &Ladder, live: &Value, world: &World) -> bool {
    is_short(live) && ways::on(ladder, live).is_some() && was_never_whole(&ladder.identity, live, world)
}

/// Returns true if GKE creates a thing, or could not, and the record says that no apply saw it ready: nothing ever ran on it.
/// Where the record does not say so, that is not certain, and nothing goes without approval.
fn was_never_whole(identity: &Identity, live: &Value, world: &World) -> bool {
    let recorded = world.record.iter().flat_map(|record| &record.inventory);
    let mut entries = recorded.filter(|entry| entry.identity == *identity);
    matches!(text(&live["status"]), "PROVISIONING" | "ERROR")
        && entries.any(|entry| entry.ready == Some(false))
}

/// `on-demand in us-central1-a or us-central1-b ($1.20/h)`, `flex-start`: ways that differ only in their zone as one.
fn told(ways: &[Way], priced: bool) -> Vec<String> {
    let alike = ways.chunk_by(|one, other| one.by == other.by);
    let line = |ways: &[Way]| -> String {
        let zones: Vec<&str> = ways.iter().filter_map(|way| way.zone.as_deref()).collect();
        let place = match zones.as_slice() {
            [] => String::new(),
            zones => format!(" in {}", zones.join(" or ")),
        };
        let Some(first) = ways.first() else { return String::new() };
        let price =
            first.hourly.filter(|_| priced).map(|Cost { least, most }| match (most - least).abs() < 0.005 {
                true => format!(" (${most:.2}/h)"),
                false if least < 0.005 => format!(" ($0–{most:.2}/h)"),
                false => format!(" (${least:.2}–{most:.2}/h)"),
            });
        format!("{}{place}{}", first.by, price.unwrap_or_default())
    };
    alike.map(line).collect()
}

impl<'a> Planner<'a> {
    fn ladder(&self, identity: &Identity) -> Option<&'a Ladder> {
        self.seen.inputs.ladders.iter().find(|ladder| ladder.identity == *identity)
    }

    /// The way whose body a resource has now.
    fn way(&self, resource: &Resource) -> Option<(&'a Ladder, usize)> {
        let ladder = self.ladder(&resource.identity)?;
        Some((ladder, ladder.ways.iter().position(|way| way.body == resource.body)?))
    }

    /// The way of a live thing whose number is the autoscaler's, whatever the file says of other ways.
    pub(crate) fn autoscaled_way(&self, resource: &Resource, live: &Value) -> Option<String> {
        let ladder = self.ladder(&resource.identity).filter(|_| live["autoscaling"]["enabled"] == true)?;
        ways::on(ladder, live).map(|on| ladder.ways[on].name())
    }

    /// Why a live thing is to leave the way that it was made by.
    pub(crate) fn leaves_its_way(&self, resource: &Resource, live: &Value) -> Option<Reason> {
        let (ladder, wanted) = self.way(resource)?;
        match ways::on(ladder, live) {
            None => Some(Reason::OtherWays),
            Some(on) if goes_on(ladder, live, self.seen.inputs.world) => {
                Some(Reason::NoMachines { by: ladder.ways[on].name() })
            }
            // One that is on its first way is tried again where that has no machines now.
            Some(on) if self.seen.inputs.retry_capacity && (on != wanted || is_short(live)) => {
                Some(Reason::TriesAgain { on: ladder.ways[on].name() })
            }
            Some(_) => None,
        }
    }

    /// Fills in `climb` of each change: all steps that apply may send when a way has no machines.
    pub(crate) fn climbs(&mut self) {
        for place in 0..self.changes.len() {
            let change = &self.changes[place];
            let Some(resource) = self.seen.wanted.get(&change.identity).copied() else { continue };
            let Some((ladder, from)) = self.way(resource) else { continue };
            let address = change.address.clone();
            match change.action {
                // Made with its cluster, it cannot be tried: the cluster would fail with it.
                Action::Create | Action::Replace if change.reasons.contains(&Reason::CreatedWithCluster) => {}
                Action::Create | Action::Replace => {
                    let climb = self.climb(resource, ladder, from);
                    let change = &mut self.changes[place];
                    change.climb = Some(climb);
                    change.reasons.push(Reason::Ways(told(&ladder.ways[from..], true)));
                }
                Action::Keep => {
                    let world = self.seen.inputs.world;
                    let live = world.find(&change.identity);
                    let open = live.is_some_and(|live| was_never_whole(&change.identity, live, world));
                    if change.is_waited_for() && open {
                        self.changes[place].climb = Some(self.climb(resource, ladder, from));
                        self.tell_next(&address, ladder, from);
                        continue;
                    }
                    self.tell_way(&address, ladder, from);
                }
                // Nothing runs on it that would be lost with it, so another way costs nothing.
                Action::Update if self.comes_from_nothing(resource) => {
                    let climb = self.climb(resource, ladder, from);
                    let change = &mut self.changes[place];
                    change.climb = Some(climb);
                    change.reasons.push(Reason::Ways(told(&ladder.ways[from..], true)));
                    self.tell_way(&address, ladder, from);
                }
                Action::Update => self.tell_way(&address, ladder, from),
                Action::Delete | Action::Forget | Action::Run => {}
            }
        }
    }

    /// Returns true if a pool without nodes gets some, and may be recreated.
    fn comes_from_nothing(&self, resource: &Resource) -> bool {
        let size = resource.identity.pool().and_then(|pool| self.seen.inputs.world.sizes.get(pool));
        size == Some(&0) && !starts_empty(&resource.body) && !resource.protect
    }

    fn climb(&self, resource: &Resource, ladder: &Ladder, from: usize) -> Climb {
        let rung = |way: &Way| {
            let resource = Resource { body: way.body.clone(), ..resource.clone() };
            Rung { way: way.name(), steps: self.anew(&resource, Action::Replace) }
        };
        Climb {
            first: ladder.ways[from].name(),
            then: ladder.ways[from + 1..].iter().map(rung).collect(),
            last: self.anew(resource, Action::Delete),
        }
    }

    /// Returns the steps that delete a thing that has been tried and, unless `action` is a delete, recreate it.
    fn anew(&self, resource: &Resource, action: Action) -> Vec<Step> {
        let context = ChangeContext {
            resource: (action != Action::Delete).then_some(resource),
            zones: self.zones_of(resource, Action::Replace).len(),
            ..ChangeContext::of(action, &resource.identity, &self.seen.inputs.owner)
        };
        (kinds::of(resource.kind).program)(&context)
    }

    /// Says what may become of something that GKE still makes.
    fn tell_next(&mut self, address: &Address, ladder: &Ladder, from: usize) {
        let then = match ladder.ways.get(from + 1) {
            None => "apply deletes it and fails".to_owned(),
            Some(next) => format!("apply deletes it and goes on with {}", next.name()),
        };
        let way = ladder.ways[from].name();
        let message = format!("GKE is still creating it by {way}; if there are no machines, {then}");
        self.notes.push(Note::of(Code::NextWay, address, message));
    }

    /// Says that something is not on its first way.
    fn tell_way(&mut self, address: &Address, ladder: &Ladder, from: usize) {
        if from == 0 {
            return;
        }
        let record = self.seen.inputs.world.record.as_ref();
        let bought = record.and_then(|record| record.bought_as(&ladder.identity));
        let tried = bought.map(|Bought { tried, .. }| tried.as_slice()).unwrap_or_default();
        let before = match tried {
            [] => format!("before it in `capacity`: {}", told(&ladder.ways[..from], false).join(", ")),
            tried => {
                let names: Vec<&str> = tried.iter().map(|tried| tried.way.as_str()).collect();
                format!("no machines when it was created: {}", names.join(", "))
            }
        };
        let message = format!(
            "its machines are {}; {before}. `apply --retry-capacity` replaces it and begins with {}",
            ladder.ways[from].name(),
            ladder.ways[0].name()
        );
        self.notes.push(Note::of(Code::LowerWay, address, message));
    }
}
