//! Requests for nodes and what uses those nodes: they stop and start together. A request that stays brings nodes after
//! `stop`, and one that was used gives none to what comes back.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::observe::inputs::Inputs;
use crate::propose::select;
use kinds::kind::StopEffect;
use kinds::kubernetes::request_state;
use kinds::scope::POOL_LABEL;
use model::address::Address;
use model::resource::{Resource, World};

fn is_request(resource: &Resource) -> bool {
    let api = request_state::api();
    let is = |kind: &str, group: &str| kind == api.kind && group == api.group;
    resource.identity.object().is_some_and(|object| is(&object.gvk.kind, &object.gvk.group))
}

/// Returns true if the pods of `user` use the nodes of `request`.
pub(crate) fn uses(user: &Resource, request: &Resource) -> bool {
    let (Some(one), Some(other)) = (user.identity.object(), request.identity.object()) else { return false };
    is_request(request)
        && one != other
        && one.namespace == other.namespace
        && consumes(&user.body, &other.name)
}

fn consumes(value: &Value, request: &str) -> bool {
    let mut found = Vec::new();
    request_state::consumed(value, &mut found);
    found.contains(&request)
}

/// Returns true if a request asks for nodes of a pool.
pub(crate) fn is_for(request: &Resource, pool: &str, all: &[&Resource]) -> bool {
    let Some(object) = request.identity.object().filter(|_| is_request(request)) else { return false };
    let sets = request.body["spec"]["podSets"].as_array().into_iter().flatten();
    let mut names = sets.filter_map(|set| set["podTemplateRef"]["name"].as_str());
    names.any(|name| {
        let mut templates = all.iter().filter(|other| {
            other.identity.object().is_some_and(|template| {
                template.gvk.kind == "PodTemplate"
                    && template.name == name
                    && template.namespace == object.namespace
            })
        });
        templates.any(|template| template.body["template"]["spec"]["nodeSelector"][POOL_LABEL] == pool)
    })
}

/// Where a user of a request stands.
#[derive(PartialEq)]
enum UserState {
    Running,
    /// It has never run, and the next apply would make it.
    NotStarted,
    /// It ran.
    Ended,
}

fn user_state(user: &Resource, world: &World) -> UserState {
    let record = world.record.as_ref();
    match (world.find(&user.identity), kinds::of(user.kind).stop_effect) {
        (Some(live), StopEffect::DeletesWhile(runs)) if !runs(live) => UserState::Ended,
        (Some(_), _) => UserState::Running,
        (None, _) if record.is_some_and(|record| record.passes.contains_key(&user.identity)) => {
            UserState::Ended
        }
        (None, _) => UserState::NotStarted,
    }
}

/// Returns true if the next apply creates the user of a request, which alone would wait for nodes that nobody asks for.
pub(crate) fn starts_next(user: &Resource, request: &Resource, world: &World) -> bool {
    uses(user, request) && user_state(user, world) == UserState::NotStarted
}

/// Returns true if a thing is stopped together with what stops: a request of something that can stop, or a future user of a
/// request.
pub(crate) fn stops_with(
    place: usize,
    all: &[&Resource],
    can: impl Fn(&usize) -> bool,
    world: &World,
) -> bool {
    let one = all[place];
    let others = 0..all.len();
    others
        .into_iter()
        .any(|other| can(&other) && uses(all[other], one) || starts_next(one, all[other], world))
}

/// Returns true if a request has done its work: its users have ended, and nodes requested again would serve nobody.
pub(crate) fn is_used_up(request: &Resource, all: &[Resource], world: &World) -> bool {
    if !is_request(request) || !world.find(&request.identity).is_some_and(request_state::has_nodes) {
        return false;
    }
    let mut users = all.iter().filter(|user| uses(user, request)).peekable();
    users.peek().is_some() && users.all(|user| user_state(user, world) == UserState::Ended)
}

/// Requests that nothing uses any more once all of these stop.
pub(crate) fn left_by(all: &[&Resource], stops: &BTreeSet<usize>, world: &World) -> Vec<usize> {
    let left = |place: &usize| {
        let request = all[*place];
        let users: Vec<usize> = (0..all.len()).filter(|user| uses(all[*user], request)).collect();
        let stays =
            |user: &usize| !stops.contains(user) && user_state(all[*user], world) == UserState::Running;
        users.iter().any(|user| stops.contains(user)) && !users.iter().any(stays)
    };
    (0..all.len()).filter(|place| !stops.contains(place) && is_request(all[*place])).filter(left).collect()
}

/// Returns the addresses that start with the named ones: stopped users of a request, and stopped requests of a user.
pub(crate) fn with_requests(inputs: &Inputs<'_>, is_stopped: impl Fn(&Resource) -> bool) -> Vec<Address> {
    let all: Vec<&Resource> = inputs.desired.iter().collect();
    let addresses: Vec<&Address> = all.iter().map(|resource| &resource.address).collect();
    let meant = |typed: &String| select::resolve_addresses(typed, &addresses).unwrap_or_default();
    let named: BTreeSet<usize> = inputs.selection.targets.iter().flat_map(meant).collect();
    let with =
        |other: &&&Resource| named.iter().any(|place| uses(other, all[*place]) || uses(all[*place], other));
    let more = all.iter().filter(|other| is_stopped(other)).filter(with);
    more.map(|other| other.address.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use kinds::kubernetes::request_state::ANNOTATIONS;

    #[test]
    fn users_are_known_by_the_annotations_of_their_pods() {
        let body = |annotation: &str| json!({ "spec": { "worker": { "metadata": { "annotations": { annotation: "r" } } } } });
        let [today, _, before, _] = ANNOTATIONS;
        assert!(consumes(&body(today), "r") && consumes(&body(before), "r"));
        assert!(!consumes(&body(today), "other") && !consumes(&body("else"), "r"));
        assert!(consumes(&json!([body(today)]), "r") && !consumes(&Value::Null, "r"));
    }
}
