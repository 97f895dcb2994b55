//! Looking at a finished plan: what a person should know before saying yes. One function for each thing.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Action, Change, Consent, Note, Plan, inline_pool};
use crate::address::Address;
use crate::diag::{Code, nearest};
use crate::kinds::dask;
use crate::kinds::gke::cluster::autopilot;
use crate::kinds::gke::node_pool::starts_empty;
use crate::kinds::kubernetes::provisioning;
use crate::kinds::scope::POOL_LABEL;
use crate::resource::{Identity, KindId, Resource, by_identity};

/// A check on a finished plan.
type Review = fn(&Plan, &mut Vec<Note>);

const REVIEWS: &[Review] = &[
    gpu_pool_first,
    nodes_of_autopilot,
    nodes_that_last,
    check_among_workers,
    secrets_of_others,
    idle_pools,
    idle_consents,
];

/// All notes, in the order of the checks.
pub fn review(plan: &Plan) -> Vec<Note> {
    let mut notes = Vec::new();
    for review in REVIEWS {
        review(plan, &mut notes);
    }
    notes
}

fn is_made(change: &Change) -> bool {
    matches!(change.identity, Identity::Cluster(_))
        && matches!(change.action, Action::Create | Action::Replace)
}

/// An Autopilot cluster begins without nodes, and its price is that of what Pods request.
fn nodes_of_autopilot(plan: &Plan, notes: &mut Vec<Note>) {
    let wanted = by_identity(&plan.desired);
    for change in plan.changes.iter().filter(|change| is_made(change)) {
        if wanted.get(&change.identity).is_some_and(|cluster| autopilot::is_on(&cluster.body)) {
            notes.push(Note::of(Code::AutopilotNodes, &change.address, "GKE creates nodes when Pods need them, which \
                 takes minutes, and removes them afterwards; it raises requests that are below its minimum, and \
                 bills what Pods request, which is not in the cost shown"));
        }
    }
}

/// Nodes that are requested for workers go after a time, and their room is needed twice when other workers had some.
fn nodes_that_last(plan: &Plan, notes: &mut Vec<Note>) {
    let wanted = by_identity(&plan.desired);
    let asks = |change: &&Change| {
        change.kind == KindId::ProvisioningRequest
            && matches!(change.action, Action::Create | Action::Replace)
    };
    for change in plan.changes.iter().filter(asks) {
        let Some(request) = wanted.get(&change.identity) else { continue };
        if !provisioning::has_user(&request.body) {
            continue;
        }
        let workers = change.address.section();
        let lasts = provisioning::lasts(&request.body);
        let mut message = format!(
            "all nodes come at once, which may take days, and go {lasts} later with the workers that still run on them; \
             then `--replace {workers}` requests others"
        );
        let goes = |other: &&Change| other.address.as_str() == workers && other.action == Action::Replace;
        if plan.changes.iter().any(|other| goes(&other)) {
            message.push_str(&format!(
                ". The old workers run until these nodes are there: if the pool has no room for both, the request fails, and \
                 `destroy --target {workers}` makes room"
            ));
        }
        notes.push(Note::of(Code::NodesLast, &change.address, message));
    }
}

/// Source: GKE taints GPU nodes only when the cluster has a pool without GPUs before them.
fn gpu_pool_first(plan: &Plan, notes: &mut Vec<Note>) {
    let Some(pool) = inline_pool(&plan.desired, &plan.ladders).filter(|_| plan.changes.iter().any(is_made))
    else {
        return;
    };
    first_pool(pool, notes);
    if !pool.body["config"]["accelerators"].is_null() {
        notes.push(Note::of(Code::GpuPoolFirst, &pool.address, "the cluster's first pool has GPUs: GKE then \
             sets no nvidia.com/gpu taint on any pool, system pods run on GPU nodes, and a stock-out fails the \
             whole cluster; a small pool without GPUs avoids all three"));
    }
}

/// What GKE asks of the first pool beyond what the file says of it.
fn first_pool(pool: &Resource, notes: &mut Vec<Note>) {
    let mut tell = |what: &str| notes.push(Note::of(Code::FirstPool, &pool.address, what));
    if starts_empty(&pool.body) {
        tell(
            "a cluster is created with a node, so this pool begins with one in each zone; the autoscaler removes it \
              when nothing runs there",
        );
    }
    if pool.body["config"]["spot"] == true {
        tell(
            "the cluster's first pool has spot machines only: where none are to be had, the cluster is not created; a \
              small pool without `spot` avoids that",
        );
    }
}

/// A check needs a free GPU, and workers that stay hold theirs.
fn check_among_workers(plan: &Plan, notes: &mut Vec<Note>) {
    let wanted = by_identity(&plan.desired);
    let pool = |change: &Change, at: &str| {
        let wanted = wanted.get(&change.identity);
        wanted.and_then(|resource| resource.body.pointer(at)).filter(|selector| !selector.is_null()).cloned()
    };
    for check in plan.changes.iter().filter(|change| change.action == Action::Run) {
        let place = pool(check, "/spec/nodeSelector");
        let stays = |change: &&Change| {
            let there = matches!(change.action, Action::Keep | Action::Update | Action::Replace);
            there && place.is_some() && pool(change, "/spec/worker/spec/nodeSelector") == place
        };
        if let Some(cluster) = plan.changes.iter().find(stays) {
            notes.push(Note::of(
                Code::CheckAmongWorkers,
                &check.address,
                format!(
                    "it waits for a free GPU on a pool where the workers of {} run: scale the workers down \
                     first if they use all GPUs",
                    cluster.address
                ),
            ));
        }
    }
}

/// A cluster that goes for want of work leaves nodes of a fixed size behind.
fn idle_pools(plan: &Plan, notes: &mut Vec<Note>) {
    let news = |change: &&Change| matches!(change.action, Action::Create | Action::Update | Action::Replace);
    let wanted = by_identity(&plan.desired);
    for change in plan.changes.iter().filter(news) {
        let Some(cluster) = wanted.get(&change.identity).filter(|wanted| wanted.kind == KindId::DaskCluster)
        else {
            continue;
        };
        let spec = &cluster.body["spec"];
        let key = match dask::ttl::of(cluster, &plan.desired) {
            Some(_) => "ttl",
            None if spec["idleTimeout"].as_u64().unwrap_or(0) > 0 => "idle_timeout",
            None => continue,
        };
        let on = &spec["worker"]["spec"]["nodeSelector"][POOL_LABEL];
        let stays = plan.desired.iter().find(|other| {
            matches!(&other.identity, Identity::NodePool { pool, .. } if on == pool.as_str())
                && other.body["nodeCount"].as_u64().unwrap_or(0) > 0
        });
        if let Some(pool) = stays {
            notes.push(Note::of(
                Code::IdlePool,
                &cluster.address,
                format!(
                    "`{key}` deletes the Dask cluster, but not its nodes: {} has a fixed size and keeps \
                     costing; with `nodes = {{ min = 0, max = {} }}` GKE removes them, too",
                    pool.address, pool.body["nodeCount"]
                ),
            ));
        }
    }
}

const NOT_NEEDED: &str = "approval was given for something that this plan neither deletes nor replaces";

/// A new container whose Secret is not there does not start. Nothing in the plan makes the Secret, and before the first
/// apply has made the cluster nobody can.
fn secrets_of_others(plan: &Plan, notes: &mut Vec<Note>) {
    let mut told = BTreeSet::new();
    let desired = by_identity(&plan.desired);
    let secrets: BTreeSet<(&str, &str)> = plan.desired.iter().filter_map(secret).collect();
    for change in plan.changes.iter().filter(|change| change.action == Action::Create) {
        let Identity::Object(object) = &change.identity else { continue };
        let Some(wanted) = desired.get(&change.identity) else { continue };
        let mut keys = Vec::new();
        secret_keys(&wanted.body, &mut keys);
        let namespace = object.namespace.as_deref().unwrap_or("default");
        for (name, key) in keys {
            if secrets.contains(&(namespace, name)) || !told.insert((namespace, name, key)) {
                continue;
            }
            notes.push(Note::of(Code::SecretOfOthers, &change.address, format!(
                    "its container starts only when Secret {namespace}/{name}, which is not in this stack, has \
                     the key `{key}`: kubectl -n {namespace} create secret generic {name} \
                     --from-literal={key}=…"
                )));
        }
    }
}

/// Namespace and name of a Secret.
fn secret(resource: &Resource) -> Option<(&str, &str)> {
    let Identity::Object(object) = &resource.identity else { return None };
    let namespace = object.namespace.as_deref()?;
    (object.gvk.kind == "Secret").then_some((namespace, object.name.as_str()))
}

/// Secrets and keys that containers in a body take variables from and cannot do without.
fn secret_keys<'b>(body: &'b Value, found: &mut Vec<(&'b str, &'b str)>) {
    match body {
        Value::Object(fields) => {
            if let Some(from) = fields.get("secretKeyRef")
                && let (Some(name), Some(key)) = (from["name"].as_str(), from["key"].as_str())
                && from["optional"] != true
            {
                found.push((name, key));
            }
            fields.values().for_each(|value| secret_keys(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| secret_keys(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What of the plan a consent that fits nothing may have meant.
fn meant_instead(plan: &Plan, given: &Consent) -> Option<Address> {
    let needed = plan.missing_consents(&[]);
    let addresses = needed.iter().map(|consent| consent.address.as_str());
    nearest(given.address.as_str(), addresses).map(Address::new)
}

/// A consent that fits nothing is mostly a slip of the finger.
fn idle_consents(plan: &Plan, notes: &mut Vec<Note>) {
    for consent in plan.idle_consents() {
        notes.push(Note::of(
            Code::IdleConsent,
            &consent.address,
            match meant_instead(plan, consent) {
                Some(near) => format!("{NOT_NEEDED}; did you mean `{near}`?"),
                None => NOT_NEEDED.to_owned(),
            },
        ));
    }
}
