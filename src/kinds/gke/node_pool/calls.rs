//! The requests that make, change and delete a node pool.

use serde_json::{Value, json};

use super::rules::RULES;
use crate::address::FieldPath;
use crate::kinds::gke::compare::{call, merged_entries, sent};
use crate::kinds::json::text;
use crate::kinds::kind::Doing;
use crate::resource::{Action, Await, FieldChange, Identity, KindId, Method, Step, Until};

/// Seconds: a pool takes 2 to 7 minutes, a replacement with a drain can take over an hour.
const DEADLINE: u32 = 5400;

/// How many nodes a pool has in each of its zones: of the zones that it is in when it is asked for.
fn nodes_in_a_zone(doing: &Doing) -> Value {
    let (body, autoscaling) = (doing.body(), &doing.body()["autoscaling"]);
    let number = |value: &Value| value.as_u64();
    let zones = u64::try_from(doing.zones).unwrap_or_default();
    match (number(&body["nodeCount"]), number(&autoscaling["totalMinNodeCount"])) {
        (Some(nodes), _) if zones > 0 => json!(nodes / zones),
        (None, Some(min)) if zones > 0 => {
            let max = number(&autoscaling["totalMaxNodeCount"]).unwrap_or(min);
            json!(first_nodes(min, max, zones))
        }
        _ => body["initialNodeCount"].clone(),
    }
}

/// The body that makes a pool: the number that is compared later is not part of it.
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

pub(super) fn program(doing: &Doing) -> Vec<Step> {
    let Identity::NodePool { cluster, pool } = doing.identity else { return Vec::new() };
    let path = format!("/v1/{}", cluster.pool_path(pool));
    let body = doing.body();
    let wait = |until| {
        let driver = &body["config"]["accelerators"][0]["gpuDriverInstallationConfig"]["gpuDriverVersion"];
        let by_gke = driver.is_string() && driver != "INSTALLATION_DISABLED";
        let facts = json!({
            "pool": pool,
            "nodes": body["nodeCount"].as_u64().or(body["autoscaling"]["totalMinNodeCount"].as_u64()),
            "gpus": by_gke,
        });
        let (identity, kind) = (doing.identity.clone(), KindId::NodePool);
        Step::Await(Await { kind, identity, until, facts, deadline: DEADLINE })
    };
    let delete = || call(Method::Delete, path.clone(), None);
    let create = || {
        let mut pool = creation_body(body);
        pool["initialNodeCount"] = nodes_in_a_zone(doing);
        let body = json!({ "nodePool": pool });
        call(Method::Post, format!("/v1/{}/nodePools", cluster.path()), Some(body))
    };
    match doing.action {
        Action::Keep => vec![wait(Until::Still)],
        Action::Create if doing.inline_pool.is_some() => vec![wait(Until::Ready)],
        Action::Create if doing.leaving => vec![wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Create => vec![create(), wait(Until::Ready)],
        Action::Update => {
            let mut steps = updates(doing, &path);
            steps.push(wait(Until::Ready));
            steps
        }
        Action::Replace => vec![delete(), wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Delete => vec![delete(), wait(Until::Gone)],
        Action::Forget | Action::Run => Vec::new(),
    }
}

/// As few calls as the API allows: what changes only metadata goes into one update, what rolls the nodes
/// into another, so that they roll once; zones stand alone, as the API's reference warns. Size, management
/// and autoscaling have methods of their own.
fn updates(doing: &Doing, path: &str) -> Vec<Step> {
    let (body, live) = (doing.body(), doing.live.unwrap_or(&Value::Null));
    let groups: Vec<(&str, &str)> = RULES
        .iter()
        .filter(|rule| {
            let at: FieldPath = rule.path.parse().unwrap_or_default();
            sent(doing.fields).any(|field| at.contains(&field.path))
        })
        .map(|rule| (rule.call, rule.path))
        .collect();
    let touched = |call: &str| groups.iter().any(|(group, _)| *group == call);
    let mut steps = Vec::new();
    if touched("autoscaling") {
        let body = json!({ "autoscaling": body["autoscaling"] });
        steps.push(call(Method::Post, format!("{path}:setAutoscaling"), Some(body)));
    }
    if touched("management") {
        let body = json!({ "management": body["management"] });
        steps.push(call(Method::Post, format!("{path}:setManagement"), Some(body)));
    }
    for group in ["update", "roll", "locations"] {
        let fields = groups.iter().filter(|(call, _)| *call == group).map(|(_, field)| *field);
        let mut request = json!({});
        for field in fields {
            let (key, value) = update_field(field, body, live, doing.fields);
            request[key] = value;
        }
        if touched(group) {
            steps.push(call(Method::Put, path.to_owned(), Some(request)));
        }
    }
    // With its zones the number of nodes changes; what a new zone begins with is GKE's to say.
    if touched("size") || touched("locations") && body["nodeCount"].is_u64() {
        let nodes = json!({ "nodeCount": nodes_in_a_zone(doing) });
        steps.push(call(Method::Post, format!("{path}:setSize"), Some(nodes)));
    }
    steps
}

/// A field of UpdateNodePoolRequest. Maps and lists are replaced whole by the API, so what others put in
/// is sent along.
fn update_field(field: &str, body: &Value, live: &Value, changes: &[FieldChange]) -> (&'static str, Value) {
    let at: FieldPath = field.parse().unwrap_or_default();
    let null = Value::Null;
    let (want, have) = (at.find(body).unwrap_or(&null), at.find(live).unwrap_or(&null));
    match field {
        "config.labels" => ("labels", json!({ "labels": merged_entries(want, have, changes, &at) })),
        "config.resourceLabels" => {
            let mut labels = merged_entries(want, have, changes, &at);
            if let Some(labels) = labels.as_object_mut() {
                labels.retain(|key, _| !key.starts_with("goog-gke"));
            }
            ("resourceLabels", json!({ "labels": labels }))
        }
        "config.taints" => ("taints", json!({ "taints": merged_taints(want, have, changes, &at) })),
        "config.tags" => {
            // What is no longer said loses only what we put in.
            let left =
                changes.iter().find(|change| change.path == at).and_then(|change| change.after.clone());
            ("tags", json!({ "tags": left.unwrap_or_else(|| want.clone()) }))
        }
        "config.machineType" => ("machineType", want.clone()),
        "config.diskType" => ("diskType", want.clone()),
        "config.diskSizeGb" => ("diskSizeGb", json!(want.to_string())),
        "config.imageType" => ("imageType", want.clone()),
        "config.accelerators" => ("accelerators", want.clone()),
        "upgradeSettings" => ("upgradeSettings", want.clone()),
        _ => ("locations", want.clone()),
    }
}

fn merged_taints(want: &Value, live: &Value, changes: &[FieldChange], at: &FieldPath) -> Vec<Value> {
    let shown = |taint: &Value| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]));
    let ours =
        |taint: &Value| want.as_array().is_some_and(|list| list.iter().any(|t| shown(t) == shown(taint)));
    let given_up = |taint: &Value| {
        changes.iter().any(|change| change.after.is_none() && change.path == at.key(&shown(taint)))
    };
    let kept = live.as_array().into_iter().flatten().filter(|taint| !ours(taint) && !given_up(taint));
    kept.chain(want.as_array().into_iter().flatten()).cloned().collect()
}

/// Nodes in each zone that an autoscaled pool is made with: its least, and no more than its most.
pub fn first_nodes(min: u64, max: u64, zones: u64) -> u64 {
    let zones = zones.max(1);
    min.div_ceil(zones).min(max / zones)
}
