//! The cluster autoscaler's queue: ProvisioningRequests of the class `queued-provisioning.gke.io` on pools with queued
//! provisioning. All nodes of a request come at once, in one zone; they are for its pods only, and end after its time.
//!
//! Source: GKE's guide to the dynamic workload scheduler for states, reasons, the ten minutes and the seven days;
//! `cluster-autoscaler/provisioningrequest/conditions` for the order of conditions.
//!
//! Scripts ([`super::market`] and `no_capacity`) and an annotation of the request, [`CAPACITY`], decide whether there are
//! machines.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::object::{
    annotation, as_on_requested_nodes, condition, is_deleted, is_true, key, label, list, name, namespace,
    number, set_condition, text, time, uid,
};
use super::super::store::Cluster;
use super::autoscaler::{More, free_nodes, is_queued, pool_name, template_in};
use super::claim::{ENDS, GROUP, LONGEST, OWNER, RESOURCE};
use super::market::{self, Free, Market};
use super::nodes::{POOL_LABEL, zone_of};
use super::round::{PoolView, Run};
use super::scheduler::{Hosts, asks, surroundings};
use super::stages::stages;

const AUTOSCALER: &str = "cluster-autoscaler";
const CLASS: &str = "queued-provisioning.gke.io";

/// Says of a request whether there are machines for it: `there`, `none`, `quota`, `failed`, `revoked`.
const CAPACITY: &str = "sandbox.dask-infra.dev/capacity";

/// How long its nodes are kept for pods. Time runs no faster here: clients count the minutes by the machine's clock.
const BOOKED: SignedDuration = SignedDuration::from_mins(10);

/// Details of a request whose nodes were asked for: the pool, the zone, and how many.
const POOL: &str = "NodePoolName";
const ZONE: &str = "Zone";
const NODES: &str = "RequestedNodes";

/// One round over all requests. Machines that one of them takes are gone for the next one.
pub(super) fn run(run: &mut Run<'_>) {
    if !run.pools.iter().any(is_queued) {
        return;
    }
    let mut requests = run.objects(GROUP, RESOURCE);
    requests.sort_by_key(|request| (text(request, "/metadata/creationTimestamp"), name(request)));
    for request in requests {
        let ended = ["Failed", "CapacityRevoked"].iter().any(|kind| is_true(request, kind));
        let ours = text(request, "/spec/provisioningClassName") == CLASS;
        let before = run.writes.len();
        if ours && !ended && !is_deleted(request) {
            step(run, request);
        }
        if run.writes.len() > before {
            return;
        }
    }
}

fn step(run: &mut Run<'_>, request: &Value) {
    let said = annotation(request, CAPACITY).unwrap_or_default();
    if is_true(request, "Provisioned") {
        let since = condition(request, "Provisioned").map_or("", |one| text(one, "/lastTransitionTime"));
        let since: Timestamp = since.parse().unwrap_or(run.now);
        let over = end(request, since, run);
        if said == "revoked" || run.reached(over) {
            let why = "The nodes of the request were taken away";
            return set(run, request, &[["CapacityRevoked", "True", "CapacityRevoked", why]], None);
        }
        let unused = since.checked_add(BOOKED).unwrap_or(Timestamp::MAX);
        if !is_true(request, "BookingExpired") && run.reached(unused) {
            let why = "Capacity booking for the Provisioning Request has expired and the nodes are now candidates for \
                 scale down when underutilized.";
            set(run, request, &[["BookingExpired", "True", "BookingExpired", why]], None);
        }
        return;
    }
    if !is_true(request, "Accepted") {
        if run.passed(format!("{} seen", uid(request)), stages().delay("request_seen")) {
            accept(run, request);
        }
        return;
    }
    match said {
        "none" => {}
        "quota" => {
            let why = "Quota 'NVIDIA_A100_GPUS' exceeded. Limit: 0.0 in region us-central1.";
            if text(condition(request, "Provisioned").unwrap_or(&Value::Null), "/reason") != "QuotaExceeded" {
                set(run, request, &[["Provisioned", "False", "QuotaExceeded", why]], None);
            }
        }
        "failed" => fail(run, request, "CapacityIsNotFound", "The request could not be provisioned"),
        _ => bring(run, request, said == "there"),
    }
}

/// When the nodes of a request that were there at a moment end.
fn end(request: &Value, since: Timestamp, run: &Run<'_>) -> Timestamp {
    let told = text(request, "/spec/parameters/maxRunDurationSeconds").parse().unwrap_or(LONGEST);
    run.clock.after(since, market::of(told.min(LONGEST)))
}

/// For how many pods a request asks: one with several sets is refused.
pub(super) fn pods_of(request: &Value) -> u64 {
    number(request, "/spec/podSets/0/count").and_then(|count| u64::try_from(count).ok()).unwrap_or(1)
}

/// Looks at a request: what can never be met fails at once.
fn accept(run: &mut Run<'_>, request: &Value) {
    let sets = list(request, "/spec/podSets");
    let [set_of_pods] = sets else {
        let why = "ProvisioningRequests with multiple PodSets are not supported";
        return fail(run, request, "InvalidRequest", why);
    };
    let named = text(set_of_pods, "/podTemplateRef/name");
    let Some(found) = run.get("", "podtemplates", namespace(request), named) else {
        let why = format!("podTemplate {}/{named} not found", namespace(request));
        return fail(run, request, "PodTemplateNotFound", &why);
    };
    match chosen(run, found, pods_of(request)) {
        Err((reason, why)) => fail(run, request, reason, &why),
        Ok(_) => set(
            run,
            request,
            &[
                ["Accepted", "True", "SuccessfullyQueued", "Provisioning Request was successfully queued."],
                ["Provisioned", "False", "NotProvisioned", "Provisioning Request is not provisioned yet."],
            ],
            None,
        ),
    }
}

/// Where nodes take the pods of a request: pool, zone, and how many they are.
type Place<'p> = (&'p PoolView, &'p str, u32);

/// Where the nodes of a request can be, each with as many as the pods need.
fn chosen<'p>(run: &Run<'p>, template: &Value, pods: u64) -> Result<Vec<Place<'p>>, (&'static str, String)> {
    let mut pod = template["template"].clone();
    pod["spec"] = as_on_requested_nodes(&pod["spec"]);
    pod["metadata"]["namespace"] = template["metadata"]["namespace"].clone();
    let asked = asks(&pod);
    let around = surroundings(|group, resource| run.objects(group, resource), run.pools);
    let (mut places, mut full) = (Vec::new(), Vec::new());
    for view in run.pools.iter().filter(|view| is_queued(view) && !view.deleting) {
        for zone in view.target_sizes.keys() {
            let node = template_in(view, zone);
            let mut host = Hosts::of_new(&[&node], around.clone());
            let mut each = 0_u64;
            while each < pods && host.first(&asked, [0]).is_some() {
                host.take(0, &asked, &pod["spec"]);
                each += 1;
            }
            if each == 0 {
                continue;
            }
            let nodes = u32::try_from(pods.div_ceil(each)).unwrap_or(u32::MAX);
            if nodes <= free_nodes(view) {
                places.push((view, zone.as_str(), nodes));
            } else if !full.contains(&pool_name(view)) {
                full.push(pool_name(view));
            }
        }
    }
    match (places.is_empty(), full.is_empty()) {
        (false, _) => Ok(places),
        (true, true) => Err(("PodsNotSchedulable", "pods cannot be scheduled in the nodepool".to_owned())),
        (true, false) => Err((
            "OutOfResources",
            format!("Max nodepool size reached, affected nodepools: {}", full.join(", ")),
        )),
    }
}

/// Asks for the nodes of a request, once, and says when all of them are there.
fn bring(run: &mut Run<'_>, request: &Value, there: bool) {
    let details = &request["status"]["provisioningClassDetails"];
    if details[ZONE].is_string() {
        return take(run, request);
    }
    if !run.passed(format!("{} nodes", uid(request)), stages().delay("request_nodes")) {
        return;
    }
    let set_of_pods = &request["spec"]["podSets"][0];
    let named = text(set_of_pods, "/podTemplateRef/name");
    let Some(found) = run.get("", "podtemplates", namespace(request), named) else { return };
    let places = match chosen(run, found, pods_of(request)) {
        Err((reason, why)) => return fail(run, request, reason, &why),
        Ok(places) => places,
    };
    let asked = text(request, "/metadata/creationTimestamp").parse().unwrap_or(run.now);
    let market = Market { rules: &run.scripts.capacity, now: run.now, clock: run.clock };
    let coming: Vec<&Value> = run.objects(GROUP, RESOURCE).into_iter().filter(|one| is_coming(one)).collect();
    let place = places.iter().find(|(view, zone, nodes)| {
        let free = match market.knows(view) {
            _ if there => Free::All,
            true => market.free(run.pools, view, zone, asked),
            false if run.scripts.no_capacity => Free::Some(0),
            false => Free::All,
        };
        // Nodes that other requests still wait for come first.
        let of_others = coming_to(&coming, view, Some(zone));
        let wanted = nodes.saturating_add(of_others);
        free.most(wanted) >= wanted
            && nodes.saturating_add(coming_to(&coming, view, None)) <= free_nodes(view)
    });
    if let Some((view, zone, nodes)) = place {
        let details = json!({POOL: pool_name(view), ZONE: zone, NODES: nodes.to_string()});
        return set(run, request, &[], Some(details));
    }
    let next = places.iter().filter_map(|(view, ..)| market.next(view, asked)).min();
    next.map(|next| run.reached(next));
}

/// Gives a request its nodes, when all of them are there.
fn take(run: &mut Run<'_>, request: &Value) {
    let details = &request["status"]["provisioningClassDetails"];
    let view = run.pools.iter().find(|view| details[POOL] == *pool_name(view));
    let gpus = view.map_or(0, |view| super::nodes::gpus(&view.pool));
    let is_ready = |node: &&Value| {
        let shown = node.pointer("/status/allocatable/nvidia.com~1gpu").is_some();
        is_true(node, "Ready") && (gpus == 0 || shown)
    };
    // Nodes that it took while its status could not be written are its own already.
    let is_open =
        |node: &&Value| is_in(node, details) && owner(node).is_none_or(|owner| owner == uid(request));
    let nodes = run.objects("", "nodes").into_iter().filter(is_open).filter(is_ready);
    let wanted = usize::try_from(detail(details, NODES)).unwrap_or(usize::MAX);
    let nodes: Vec<&Value> = nodes.take(wanted).collect();
    if nodes.len() < wanted {
        return;
    }
    let ends = time(end(request, run.now, run));
    for node in nodes {
        let owned = json!({"metadata": {"annotations": {OWNER: uid(request), ENDS: ends}}});
        run.merge(AUTOSCALER, key("", "nodes", node), owned);
    }
    let why = "Provisioning Request was successfully provisioned.";
    set(run, request, &[["Provisioned", "True", "Provisioned", why]], None);
}

/// Returns true if a node is in the pool and the zone of the details.
fn is_in(node: &Value, details: &Value) -> bool {
    label(node, POOL_LABEL) == text(details, "/NodePoolName") && zone_of(node) == text(details, "/Zone")
}

/// The uid of the request that has a node.
fn owner(node: &Value) -> Option<&str> {
    annotation(node, OWNER)
}

fn detail(details: &Value, key: &str) -> u32 {
    details[key].as_str().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns true if the nodes of a request may have been asked for and are not its own yet.
pub(super) fn is_coming(request: &Value) -> bool {
    let over = ["Provisioned", "Failed", "CapacityRevoked"].iter().any(|kind| is_true(request, kind));
    !over && !is_deleted(request)
}

/// Nodes that are on their way to requests.
pub(super) fn coming_to(requests: &[&Value], view: &PoolView, zone: Option<&str>) -> u32 {
    let details = requests.iter().map(|request| &request["status"]["provisioningClassDetails"]);
    details
        .filter(|details| details[POOL] == *pool_name(view))
        .filter(|details| zone.is_none_or(|zone| details[ZONE] == *zone))
        .map(|details| detail(details, NODES))
        .sum()
}

/// Nodes that pools lack for requests whose time has come.
pub fn requested_nodes(cluster: &Cluster, pools: &[PoolView]) -> More {
    let mut missing = More::new();
    if !pools.iter().any(is_queued) {
        return missing;
    }
    let coming: Vec<&Value> =
        cluster.list(GROUP, RESOURCE).map(|(_, request)| request).filter(|one| is_coming(one)).collect();
    // A request has its nodes a moment before it says so.
    let comes = |owner: &str| coming.iter().any(|request| uid(request) == owner);
    for view in pools.iter().filter(|view| is_queued(view) && !view.deleting) {
        for (zone, size) in &view.target_sizes {
            let place = json!({POOL: pool_name(view), ZONE: zone});
            let owned = cluster
                .list("", "nodes")
                .filter(|(_, node)| is_in(node, &place) && owner(node).is_some_and(|owner| !comes(owner)));
            let owned = u32::try_from(owned.count()).unwrap_or(u32::MAX);
            let lacks = coming_to(&coming, view, Some(zone)).saturating_sub(size.saturating_sub(owned));
            if lacks > 0 {
                missing.insert((pool_name(view).to_owned(), Some(zone.clone())), lacks);
            }
        }
    }
    missing
}

fn fail(run: &mut Run<'_>, request: &Value, reason: &str, why: &str) {
    set(run, request, &[["Failed", "True", reason, why]], None);
}

/// Sets conditions (type, status, reason, message) and details.
fn set(run: &mut Run<'_>, request: &Value, conditions: &[[&str; 4]], details: Option<Value>) {
    let mut status = request.get("status").filter(|status| status.is_object()).cloned().unwrap_or(json!({}));
    let mut all = list(request, "/status/conditions").to_vec();
    for [ty, value, reason, message] in conditions {
        let generation = &request["metadata"]["generation"];
        let one = json!({
            "type": ty, "status": value, "reason": reason, "message": message, "observedGeneration": generation,
        });
        set_condition(&mut all, one, run.now);
    }
    if !all.is_empty() {
        status["conditions"] = Value::Array(all);
    }
    if let Some(details) = details {
        status["provisioningClassDetails"] = details;
    }
    run.status(AUTOSCALER, key(GROUP, RESOURCE, request), request, status);
}

#[cfg(test)]
mod tests {
    use super::super::super::object::CONSUMES;
    use super::super::capacity::{Capacity, Start};
    use super::super::idle::Idle;
    use super::super::testing::{World, gpu, pool};
    use super::*;
    use crate::clock::Scale;
    use crate::kube::object::Key;

    /// Seconds after which idle nodes go.
    const LONG: i64 = 601;

    /// The nodes that GKE takes away when those that are idle now stay so for some seconds.
    fn gone(world: &World, seconds: i64) -> Vec<String> {
        let (clock, mut idle) = (Scale { time_scale: 1.0 }, Idle::default());
        let later = world.now + SignedDuration::from_secs(seconds);
        idle.surplus(&world.cluster, &world.pools, world.now, &clock);
        let gone = idle.surplus(&world.cluster, &world.pools, later, &clock);
        gone.into_iter().map(|unneeded| unneeded.node.name).collect()
    }

    fn queued(most: u32) -> World {
        let mut view = pool("a100", "a2-highgpu-2g", 0, gpu("nvidia-tesla-a100", "2", "DEFAULT"));
        view.pool["autoscaling"] = json!({"enabled": true, "totalMaxNodeCount": most});
        view.pool["queuedProvisioning"] = json!({"enabled": true});
        let mut world = World::new(vec![pool("cpu", "e2-standard-4", 1, json!({})), view]);
        world.pass(120);
        world
    }

    fn ask(world: &mut World, pods: u32, gpus: &str) {
        let container = json!({"name": "p", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}});
        world.create(json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t", "namespace": "default"},
            "template": {"spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]}},
        }));
        world.create(json!({
            "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
            "metadata": {"name": "r", "namespace": "default"},
            "spec": {
                "provisioningClassName": CLASS,
                "podSets": [{"count": pods, "podTemplateRef": {"name": "t"}}],
            },
        }));
    }

    /// Conditions that hold, and `NAME: REASON` of the one that failed it.
    fn state(world: &World) -> Vec<String> {
        let request = world.get(GROUP, RESOURCE, "default", "r");
        let all = list(&request, "/status/conditions").iter();
        all.filter(|one| one["status"] == "True").map(|one| text(one, "/type").to_owned()).collect()
    }

    fn told(world: &World, ty: &str) -> String {
        let request = world.get(GROUP, RESOURCE, "default", "r");
        text(condition(&request, ty).unwrap_or(&Value::Null), "/message").to_owned()
    }

    fn capacity(world: &mut World, what: &str) {
        let key = Key::new(GROUP, RESOURCE, "default", "r");
        world.merge(&key, &json!({"metadata": {"annotations": {CAPACITY: what}}}));
    }

    /// Adds the missing nodes to the pool, as GKE does, and returns their number.
    fn grow(world: &mut World) -> u32 {
        let missing = requested_nodes(&world.cluster, &world.pools);
        for ((_, zone), more) in &missing {
            let zone = zone.as_ref().expect("nodes of a request come in one zone");
            *world.pools[1].target_sizes.get_mut(zone).expect("a zone of the pool") += more;
        }
        missing.values().sum()
    }

    #[test]
    fn all_nodes_of_a_request_come_at_once_and_are_kept_for_ten_minutes() {
        let mut world = queued(8);
        ask(&mut world, 5, "1");
        world.pass(10);
        assert_eq!(state(&world), ["Accepted"]);
        assert_eq!(grow(&mut world), 0);
        world.pass(60);
        assert_eq!(grow(&mut world), 3, "two pods a node");
        assert_eq!(grow(&mut world), 0, "asked for once");
        // The last machine takes longer.
        let late = world.pools[1].target_sizes.values_mut().next().expect("a zone of the pool");
        *late -= 1;
        world.pass(300);
        assert_eq!(state(&world), ["Accepted"]);
        assert!(gone(&world, LONG).is_empty(), "kept while another one comes");
        assert_eq!(grow(&mut world), 1);
        world.pass(300);
        assert_eq!(state(&world), ["Accepted", "Provisioned"]);
        assert!(gone(&world, LONG).is_empty(), "kept while nobody came");
        world.pass(700);
        assert_eq!(state(&world), ["Accepted", "Provisioned", "BookingExpired"]);
        capacity(&mut world, "revoked");
        world.pass(1);
        assert_eq!(state(&world).last().map(String::as_str), Some("CapacityRevoked"));
    }

    /// Before a real API server, nodes and status are written one after the other, and a write may be refused.
    #[test]
    fn nodes_of_a_request_whose_status_is_not_written_yet_do_not_come_twice() {
        let mut world = queued(8);
        ask(&mut world, 5, "1");
        world.pass(70);
        assert_eq!(grow(&mut world), 3);
        world.pass(300);
        assert_eq!(state(&world), ["Accepted", "Provisioned"]);
        let accepted = json!([{"type": "Accepted", "status": "True"}]);
        let key = Key::new(GROUP, RESOURCE, "default", "r");
        world.merge(&key, &json!({"status": {"conditions": accepted}}));
        assert_eq!(grow(&mut world), 0);
        world.pass(10);
        assert_eq!(
            (state(&world), grow(&mut world)),
            (vec!["Accepted".to_owned(), "Provisioned".to_owned()], 0)
        );
    }

    #[test]
    fn a_request_waits_while_there_are_no_machines() {
        let mut world = queued(8);
        world.loops.scripts.no_capacity = true;
        ask(&mut world, 2, "2");
        world.pass(4000);
        assert_eq!((state(&world), grow(&mut world)), (vec!["Accepted".to_owned()], 0));
        capacity(&mut world, "quota");
        world.pass(1);
        assert!(told(&world, "Provisioned").starts_with("Quota 'NVIDIA_A100_GPUS' exceeded"));
        capacity(&mut world, "there");
        world.pass(60);
        assert_eq!(grow(&mut world), 2);
    }

    #[test]
    fn what_can_never_be_met_fails() {
        let mut world = queued(2);
        ask(&mut world, 6, "1");
        world.pass(10);
        assert_eq!(told(&world, "Failed"), "Max nodepool size reached, affected nodepools: a100");
        let mut world = queued(2);
        ask(&mut world, 1, "4");
        world.pass(10);
        assert_eq!(told(&world, "Failed"), "pods cannot be scheduled in the nodepool");
        let mut world = queued(2);
        ask(&mut world, 1, "1");
        capacity(&mut world, "failed");
        world.pass(60);
        assert_eq!(state(&world), ["Accepted", "Failed"]);
    }

    #[test]
    fn nodes_of_one_request_come_in_a_zone_that_has_all_of_them() {
        let mut world = queued(8);
        let zones = ["us-central1-a", "us-central1-b", "us-central1-c"];
        world.pools[1].target_sizes = zones.map(|zone| (zone.to_owned(), 0)).into();
        let rule = |zone: &str, nodes| Capacity {
            zone: Some(format!("us-central1-{zone}")),
            nodes: Some(nodes),
            ..Capacity::default()
        };
        let tonight = world.now + SignedDuration::from_hours(9);
        let at_night = Capacity { from: Start::At(tonight), lasts: Some(7200), ..rule("b", 3) };
        world.loops.scripts.capacity = vec![rule("a", 2), rule("c", 1), at_night];
        ask(&mut world, 5, "1");
        world.pass(8 * 3600);
        assert_eq!(grow(&mut world), 0, "three machines, but in two zones");
        world.pass(3600);
        assert_eq!(grow(&mut world), 3);
        assert_eq!(world.pools[1].target_sizes["us-central1-b"], 3);
        world.pass(300);
        assert_eq!(state(&world), ["Accepted", "Provisioned"]);
    }

    #[test]
    fn nodes_are_for_one_request_and_end_with_it() {
        let mut world = queued(8);
        ask(&mut world, 2, "2");
        let spec = json!({"parameters": {"maxRunDurationSeconds": "7200"}});
        world.merge(&Key::new(GROUP, RESOURCE, "default", "r"), &json!({"spec": spec}));
        world.pass(60);
        assert_eq!(grow(&mut world), 2);
        world.pass(300);
        let taking = |name: &str, request: &str| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "annotations": {CONSUMES[0]: request}},
                "spec": {
                    "tolerations": [{"operator": "Exists"}], "nodeSelector": {POOL_LABEL: "a100"},
                    "containers": [{"name": "p", "image": "x"}],
                },
            })
        };
        world.create(taking("ours", "r"));
        world.create(taking("theirs", "another"));
        world.pass(30);
        let node = |world: &World, name: &str| {
            text(&world.get("", "pods", "default", name), "/spec/nodeName").to_owned()
        };
        assert!(!node(&world, "ours").is_empty());
        assert_eq!(node(&world, "theirs"), "", "no node of a request that is not there");
        // A second one gets nodes of its own.
        let mut again = world.get(GROUP, RESOURCE, "default", "r");
        again["metadata"] = json!({"name": "again", "namespace": "default"});
        again["status"] = Value::Null;
        world.create(again);
        world.pass(60);
        assert_eq!(grow(&mut world), 2);
        assert!(gone(&world, LONG).is_empty());
        world.pass(7200 - 480);
        assert_eq!(state(&world), ["Accepted", "Provisioned", "BookingExpired"]);
        world.pass(300);
        assert_eq!(state(&world), ["Accepted", "Provisioned", "BookingExpired", "CapacityRevoked"]);
        assert_eq!(gone(&world, 1).len(), 2, "those of the first one, with what runs on them");
    }
}
