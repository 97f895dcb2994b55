//! Provisioning requests and their consumers under `stop` and `start`: they stop and start together. A request that is not
//! stopped would create nodes after `stop`. A used request provides no nodes to a consumer that is restarted.

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

/// Returns true if the pods of `consumer` use the nodes of `request`.
pub(crate) fn uses(consumer: &Resource, request: &Resource) -> bool {
    let (Some(one), Some(other)) = (consumer.identity.object(), request.identity.object()) else {
        return false;
    };
    is_request(request)
        && one != other
        && one.namespace == other.namespace
        && consumes(&consumer.body, &other.name)
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

/// States of the consumer of a request.
#[derive(PartialEq)]
enum ConsumerState {
    Running,
    /// It has never run, and the next apply would create it.
    NotStarted,
    /// It ran.
    Ended,
}

fn consumer_state(consumer: &Resource, world: &World) -> ConsumerState {
    let record = world.record.as_ref();
    match (world.find(&consumer.identity), kinds::of(consumer.kind).stop_effect) {
        (Some(live), StopEffect::DeletesWhile(runs)) if !runs(live) => ConsumerState::Ended,
        (Some(_), _) => ConsumerState::Running,
        (None, _) if record.is_some_and(|record| record.completed.contains_key(&consumer.identity)) => {
            ConsumerState::Ended
        }
        (None, _) => ConsumerState::NotStarted,
    }
}

/// Returns true if the next apply creates the consumer of a request. Without the request it would wait for nodes forever.
pub(crate) fn starts_next(consumer: &Resource, request: &Resource, world: &World) -> bool {
    uses(consumer, request) && consumer_state(consumer, world) == ConsumerState::NotStarted
}

/// Returns true if a resource stops with another one: a request stops with its consumer, and a consumer that has not started with
/// its request.
pub(crate) fn stops_with(
    index: usize,
    all: &[&Resource],
    can: impl Fn(&usize) -> bool,
    world: &World,
) -> bool {
    let one = all[index];
    let others = 0..all.len();
    others
        .into_iter()
        .any(|other| can(&other) && uses(all[other], one) || starts_next(one, all[other], world))
}

/// Returns true if a request is used up: its consumers have ended, and nodes requested again would have no user.
pub(crate) fn is_used_up(request: &Resource, all: &[Resource], world: &World) -> bool {
    if !is_request(request) || !world.find(&request.identity).is_some_and(request_state::has_nodes) {
        return false;
    }
    let mut consumers = all.iter().filter(|consumer| uses(consumer, request)).peekable();
    consumers.peek().is_some()
        && consumers.all(|consumer| consumer_state(consumer, world) == ConsumerState::Ended)
}

/// Returns the requests that have no consumer once all these resources are stopped.
pub(crate) fn requests_without_consumer(
    all: &[&Resource],
    stops: &BTreeSet<usize>,
    world: &World,
) -> Vec<usize> {
    let left = |index: &usize| {
        let request = all[*index];
        let consumers: Vec<usize> = (0..all.len()).filter(|consumer| uses(all[*consumer], request)).collect();
        let stays = |consumer: &usize| {
            !stops.contains(consumer) && consumer_state(all[*consumer], world) == ConsumerState::Running
        };
        consumers.iter().any(|consumer| stops.contains(consumer)) && !consumers.iter().any(stays)
    };
    (0..all.len()).filter(|index| !stops.contains(index) && is_request(all[*index])).filter(left).collect()
}

/// Returns the addresses to start together with the named ones: the stopped consumers of a request, and the stopped requests of a
/// consumer.
pub(crate) fn with_requests(inputs: &Inputs<'_>, is_stopped: impl Fn(&Resource) -> bool) -> Vec<Address> {
    let all: Vec<&Resource> = inputs.desired.iter().collect();
    let addresses: Vec<&Address> = all.iter().map(|resource| &resource.address).collect();
    let meant = |typed: &String| select::resolve_addresses(typed, &addresses).unwrap_or_default();
    let named: BTreeSet<usize> = inputs.selection.targets.iter().flat_map(meant).collect();
    let with =
        |other: &&&Resource| named.iter().any(|index| uses(other, all[*index]) || uses(all[*index], other));
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
