//! The requests that create, change and delete a node pool.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fields::{RULES, SET_SIZE};
use super::section::{certain_nodes, first_nodes};
use crate::gke::api;
use crate::gke::compare::{call, sent_changes};
use crate::gke::field::updated;
use crate::json::text;
use crate::kind::{ChangeContext, Rule, Update};
use model::resource::{
    Action, Await, CapacityOptions, Facts, Identity, KindId, Method, Resource, Step, Until,
};
use model::schema::Message;

/// Seconds: a pool takes 2 to 7 minutes, a replacement with a drain can take over an hour.
const DEADLINE: u32 = 5400;

/// Returns the number of nodes per zone, for the pool's current zones.
fn nodes_in_a_zone(context: &ChangeContext) -> Value {
    let (body, autoscaling) = (context.body(), &context.body()["autoscaling"]);
    let number = |value: &Value| value.as_u64();
    let zones = u64::try_from(context.zones).unwrap_or_default();
    match (number(&body["nodeCount"]), number(&autoscaling["totalMinNodeCount"])) {
        (Some(nodes), _) if zones > 0 => json!(nodes / zones),
        (None, Some(min)) if zones > 0 => {
            json!(first_nodes(min, zones))
        }
        _ => body["initialNodeCount"].clone(),
    }
}

/// Returns the number of zones of the pool's nodes; 0 if it is unknown.
fn zones(context: &ChangeContext) -> u64 {
    let of = |body: &Value| body["locations"].as_array().map(Vec::len).filter(|zones| *zones > 0);
    let known = Some(context.zones).filter(|zones| *zones > 0).or_else(|| of(context.body()));
    let zones = known.or_else(|| context.live.and_then(of)).unwrap_or_default();
    u64::try_from(zones).unwrap_or_default()
}

/// Returns the body that creates a pool, without `nodeCount`, which is only compared.
pub fn creation_body(pool: &Value) -> Value {
    let mut body = pool.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("nodeCount");
        if pool["autoscaling"]["enabled"] == false {
            fields.remove("autoscaling");
        }
    }
    body
}

/// Returns the body of the pool that the request for its cluster contains. GKE creates such a pool with at least one node. Source: googleapis
/// `cluster_service.proto`, `Cluster.initial_node_count`; gcloud refuses `clusters create --num-nodes 0`.
pub fn inline_body(pool: &Value) -> Value {
    let mut body = creation_body(pool);
    if starts_empty(pool) {
        body["initialNodeCount"] = json!(1);
    }
    body
}

/// Returns true if a pool is created without nodes.
pub fn starts_empty(pool: &Value) -> bool {
    initial_nodes(pool) == 0
}

/// Returns the number of nodes with which a pool is created, in all zones that it names.
pub fn initial_nodes(pool: &Value) -> u64 {
    let zones = pool["locations"].as_array().map_or(1, |zones| zones.len().max(1));
    pool["initialNodeCount"].as_u64().unwrap_or_default() * zones as u64
}

/// Returns true if Pods on a pool can use the Google service account of its nodes; `shields` is true if the cluster has Workload
/// Identity. An account that was created for the pool does not count: it has only the permissions that it was given. From memory
/// from Google's pages on Workload Identity.
pub fn gives_its_account(pool: &Value, shields: bool) -> bool {
    let config = &pool["config"];
    match text(&config["workloadMetadataConfig"]["mode"]) {
        "GKE_METADATA" => return false,
        "GCE_METADATA" => {}
        _ if shields => return false,
        _ => {}
    }
    ["", "default"].contains(&text(&config["serviceAccount"]))
}

pub(super) fn change_steps(context: &ChangeContext) -> Vec<Step> {
    let Identity::NodePool { cluster, pool } = context.identity else { return Vec::new() };
    let path = format!("/v1/{}", cluster.pool_path(pool));
    let body = context.body();
    let wait = |until| {
        let driver = &body["config"]["accelerators"][0]["gpuDriverInstallationConfig"]["gpuDriverVersion"];
        let by_gke = driver.is_string() && driver != "INSTALLATION_DISABLED";
        let least = body["autoscaling"]["totalMinNodeCount"].as_u64();
        let nodes = body["nodeCount"].as_u64().or(least.map(|min| certain_nodes(min, zones(context))));
        let facts = Facts::Nodes { nodes, gpus: by_gke };
        let (identity, kind) = (context.identity.clone(), KindId::NodePool);
        Step::Await(Await { kind, identity, until, facts, deadline: DEADLINE })
    };
    let delete = || call(Method::Delete, path.clone(), None);
    let create = || {
        let mut pool = creation_body(body);
        pool["initialNodeCount"] = nodes_in_a_zone(context);
        let body = json!({ "nodePool": pool });
        call(Method::Post, format!("/v1/{}/nodePools", cluster.path()), Some(body))
    };
    match context.action {
        Action::Keep => vec![wait(Until::StillReady)],
        Action::Create if context.inline_pool.is_some() => vec![wait(Until::Ready)],
        Action::Create if context.terminating => vec![wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Create => vec![create(), wait(Until::Ready)],
        Action::Update => {
            let mut steps = updates(context, &path);
            steps.push(wait(Until::Ready));
            steps
        }
        Action::Replace => vec![delete(), wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Delete => vec![delete(), wait(Until::Gone)],
        // The labels that say whose it is.
        Action::Forget => updates(context, &path),
        Action::Run => Vec::new(),
    }
}

/// Returns true if a change enables queued provisioning on a live pool. GKE enables it only for an empty pool: once the
/// autoscaler has no minimum, the nodes are deleted. Source: Google's guide to the Dynamic Workload Scheduler, "Update existing
/// node pool".
fn becomes_queued(body: &Value, live: &Value) -> bool {
    let on = |pool: &Value| pool["queuedProvisioning"]["enabled"] == true;
    on(body) && !on(live)
}

/// Returns as few calls as the API allows: changes of metadata go into one update, and changes that recreate the nodes into
/// another, so that they are recreated once. Zones are sent alone, as the API's reference warns. Size, management and autoscaling
/// have methods of their own.
fn updates(context: &ChangeContext, path: &str) -> Vec<Step> {
    let (body, live) = (context.body(), context.live.unwrap_or(&Value::Null));
    let touched: Vec<&Rule> = api::rules(Message::NodePool, RULES, &[body])
        .into_iter()
        .filter(|rule| sent_changes(context.fields).any(|field| rule.path().contains(&field.path)))
        .collect();
    let mut methods: BTreeMap<&str, Value> = BTreeMap::new();
    let (mut together, mut rolling, mut alone) = (json!({}), json!({}), Vec::new());
    for rule in &touched {
        let value = || updated(rule, body, live, context.fields);
        match rule.update {
            Update::Never | Update::FromSchema(_) => {}
            Update::Together(name) => together[name] = value(),
            Update::Rolling(name) => rolling[name] = value(),
            Update::Alone(name) => alone.push(json!({ name: value() })),
            Update::Method(name) => {
                let part = rule.path.split('.').next().unwrap_or_default();
                methods.insert(name, json!({ part: body[part] }));
            }
        }
    }
    // With its zones the number of nodes changes; what a new zone begins with is GKE's to say.
    let moved = touched.iter().any(|rule| rule.path == "locations");
    let sized = methods.remove(SET_SIZE).is_some() || moved && body["nodeCount"].is_u64();
    // The autoscaler that is turned on does not bring a pool to its minimum: it waits until a node is needed. Source: GKE's
    // page "About GKE cluster autoscaling", on limits.
    let autoscaling = &body["autoscaling"];
    let least = autoscaling["totalMinNodeCount"].as_u64();
    let below = least.zip(context.nodes).is_some_and(|(min, now)| u64::from(now) < min);
    let on = touched.iter().any(|rule| rule.path == "autoscaling") && autoscaling["enabled"] == true;
    let turned_on = on && live["autoscaling"]["enabled"] != true;
    let raised = turned_on && below;
    let method = |(name, body)| call(Method::Post, format!("{path}:{name}"), Some(body));
    let requests = [together, rolling].into_iter().filter(|request| *request != json!({})).chain(alone);
    let puts = requests.map(|request| call(Method::Put, path.to_owned(), Some(request)));
    let size = (SET_SIZE, json!({ "nodeCount": nodes_in_a_zone(context) }));
    let listed = api::requests(Message::NodePool, &touched, body, live, path);
    let emptied = becomes_queued(body, live).then(|| method((SET_SIZE, json!({ "nodeCount": 0 }))));
    // First, so that one that ends in between leaves a difference behind.
    let first = raised.then(|| method(size.clone()));
    let last = (sized && !raised).then(|| method(size));
    let methods = methods.into_iter().map(method);
    first.into_iter().chain(methods).chain(puts).chain(emptied).chain(listed).chain(last).collect()
}

/// Selects the node pool that is created together with the cluster, as GKE needs one. Prefers a pool with fixed
/// capacity, without GPUs, not Spot and not empty.
pub fn inline_pool<'d>(
    desired: &'d [Resource],
    capacity_options: &[CapacityOptions],
) -> Option<&'d Resource> {
    let pools = desired.iter().filter(|resource| matches!(resource.identity, Identity::NodePool { .. }));
    pools.min_by_key(|pool| {
        let config = &pool.body["config"];
        // Nodes that are waited for cannot be there at first, and without those that are tried there is no cluster.
        let tried = capacity_options.iter().any(|capacity| capacity.identity == pool.identity);
        let waits = config["flexStart"] == true || pool.body["queuedProvisioning"]["enabled"] == true;
        let none = pool.body["nodeCount"] == 0;
        let empty = starts_empty(&pool.body);
        (waits || tried || none, !config["accelerators"].is_null(), config["spot"] == true, empty)
    })
}
