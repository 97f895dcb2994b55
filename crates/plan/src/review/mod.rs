//! Notes on a finished plan that a person should read before saying yes. One function for each kind of note.

pub mod dry_run;
mod free_gpus;
pub mod preflight;
pub mod readiness;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{Action, Approval, Change, Note, Plan};
use kinds::dask::expiry;
use kinds::dask::stack_expiry;
use kinds::gke::cluster::autopilot;
use kinds::gke::node_pool::{inline_pool, starts_empty};
use kinds::kubernetes::provisioning;
use kinds::scale::ReplicaOwner;
use kinds::scope::POOL_LABEL;
use model::address::Address;
use model::diag::{Code, nearest};
use model::resource::{Identity, KindId, Resource, by_identity};

/// A check on a finished plan.
type Review = fn(&Plan, &mut Vec<Note>);

const REVIEWS: &[Review] = &[
    gpu_pool_first,
    nodes_of_autopilot,
    nodes_that_expire,
    free_gpus::checks_find_one,
    foreign_secrets,
    idle_pools,
    expiry_rights,
    unused_approvals,
];

/// Returns all notes, in the order of the checks.
pub fn review(plan: &Plan) -> Vec<Note> {
    let mut notes = Vec::new();
    for review in REVIEWS {
        review(plan, &mut notes);
    }
    notes
}

fn creates_cluster(change: &Change) -> bool {
    matches!(change.identity, Identity::Cluster(_)) && change.action.creates()
}

/// Adds a note that an Autopilot cluster starts without nodes, and that its price depends on what Pods request.
fn nodes_of_autopilot(plan: &Plan, notes: &mut Vec<Note>) {
    let desired = by_identity(&plan.desired);
    for change in plan.changes.iter().filter(|change| creates_cluster(change)) {
        if desired.get(&change.identity).is_some_and(|cluster| autopilot::is_on(&cluster.body)) {
            notes.push(Note::new(Code::AutopilotNodes, &change.address, "GKE creates nodes when Pods need them, which \
                 takes minutes, and removes them afterwards; it raises requests that are below its minimum, and \
                 bills what Pods request, which is not in the cost shown"));
        }
    }
}

/// Adds a note that nodes requested for workers expire, and that replaced workers need their capacity twice for a while.
fn nodes_that_expire(plan: &Plan, notes: &mut Vec<Note>) {
    let desired = by_identity(&plan.desired);
    let asks = |change: &&Change| change.kind == KindId::ProvisioningRequest && change.action.creates();
    for change in plan.changes.iter().filter(asks) {
        let Some(request) = desired.get(&change.identity) else { continue };
        if !provisioning::has_consumer(&request.body) {
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
        notes.push(Note::new(Code::NodesLast, &change.address, message));
    }
}

/// Adds a note if the first pool has GPUs. Source: GKE taints GPU nodes only when the cluster has a pool without GPUs before
/// them.
fn gpu_pool_first(plan: &Plan, notes: &mut Vec<Note>) {
    let Some(pool) = inline_pool(&plan.desired, &plan.capacity_options)
        .filter(|_| plan.changes.iter().any(creates_cluster))
    else {
        return;
    };
    note_inline_pool(pool, notes);
    if !pool.body["config"]["accelerators"].is_null() {
        notes.push(Note::new(Code::GpuPoolFirst, &pool.address, "the cluster's first pool has GPUs: GKE then \
             sets no nvidia.com/gpu taint on any pool, system pods run on GPU nodes, and a stock-out fails the \
             whole cluster; a small pool without GPUs avoids all three"));
    }
}

/// Adds a note on GKE's requirements for the pool that is created with the cluster.
fn note_inline_pool(pool: &Resource, notes: &mut Vec<Note>) {
    let mut tell = |what: &str| notes.push(Note::new(Code::FirstPool, &pool.address, what));
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

/// Adds a note on the right that a new CronJob of the stack needs in the project.
fn expiry_rights(plan: &Plan, notes: &mut Vec<Note>) {
    let desired = by_identity(&plan.desired);
    // An update may be one that deletes the cluster in place of emptying pools.
    let acts = |change: &&Change| {
        let acts = matches!(change.action, Action::Create | Action::Update | Action::Replace);
        change.kind == KindId::Expiry && acts
    };
    for change in plan.changes.iter().filter(acts) {
        if desired.get(&change.identity).is_some_and(|job| stack_expiry::uses_google(job)) {
            let message = "it changes node pools with a right that somebody grants in the project: `dask-infra permissions` prints \
                           the commands";
            notes.push(Note::new(Code::StackExpiryRights, &change.address, message));
        }
    }
}

/// Adds a note on the nodes that pools keep after a cluster's time limit deletes it.
fn idle_pools(plan: &Plan, notes: &mut Vec<Note>) {
    // The stack's own limits empty its pools.
    if plan.desired.iter().any(expiry::is_of_stack) {
        return;
    }
    let changed = |resource: &Resource| {
        let news = |change: &&Change| {
            let acts = matches!(change.action, Action::Create | Action::Update | Action::Replace);
            acts && change.identity == resource.identity
        };
        plan.changes.iter().any(|change| news(&change))
    };
    for cluster in plan.desired.iter().filter(|resource| resource.kind == KindId::DaskCluster) {
        let expirations = expiry::for_cluster(cluster, &plan.desired);
        let mut keys: Vec<&str> = expirations.iter().map(|(cause, _)| cause.key()).collect();
        if cluster.body["spec"]["idleTimeout"].as_u64().unwrap_or(0) > 0 {
            keys.push("idle_timeout");
        }
        if keys.is_empty() {
            continue;
        }
        let news = changed(cluster) || expirations.iter().any(|(_, job)| changed(job));
        for (pool, on) in pools_of(plan, cluster) {
            let (keeps, most) =
                match (kinds::of(pool.kind).scale_target)(pool, &plan.desired).map(|it| it.replica_owner) {
                    Some(ReplicaOwner::File(nodes)) => (nodes, nodes),
                    Some(ReplicaOwner::Autoscaler { min, max, .. }) => (min, max),
                    Some(ReplicaOwner::Notebooks(_) | ReplicaOwner::Unmanaged) | None => continue,
                };
            if keeps == 0 || !(news || changed(pool) || changed(on)) {
                continue;
            }
            let cost = plan.bill().and_then(|bill| bill.sections.get(&pool.address)).map(|cost| &cost.idle);
            let cost = cost.filter(|cost| cost.is_known());
            let cost = cost.map(|cost| format!(" for ${:.2}/h", cost.usd)).unwrap_or_default();
            let bought = pool.origin.key("capacity");
            let cure = match pool.provenance.iter().any(|(_, from)| *from == bought) {
                // The ways are tried with the first node, so there has to be one.
                true => format!("`dask-infra stop {}` takes all away", pool.address),
                false => {
                    format!("with `nodes = {{ min = 0, max = {most} }}` GKE removes all that are not needed")
                }
            };
            let count = if keeps == 1 { "a node".to_owned() } else { format!("{keeps} nodes") };
            let message = format!(
                "`{}` deletes the Dask cluster, but {} keeps {count}{cost}, whatever runs there; {cure}",
                keys.join("` or `"),
                pool.address
            );
            notes.push(Note::new(Code::IdlePool, &cluster.address, message));
        }
    }
}

/// Returns the pools of a cluster's workers, each once, with the cluster or group that selects it.
fn pools_of<'p>(plan: &'p Plan, cluster: &'p Resource) -> Vec<(&'p Resource, &'p Resource)> {
    let groups = plan
        .desired
        .iter()
        .filter(|other| other.kind == KindId::DaskGroup && cluster.origin.contains(&other.origin));
    let mut pools: Vec<(&Resource, &Resource)> = Vec::new();
    for with_workers in std::iter::once(cluster).chain(groups) {
        let on = &with_workers.body["spec"]["worker"]["spec"]["nodeSelector"][POOL_LABEL];
        let named = plan
            .desired
            .iter()
            .find(|other| matches!(&other.identity, Identity::NodePool { pool, .. } if on == pool.as_str()));
        if let Some(pool) =
            named.filter(|pool| pools.iter().all(|(known, _)| known.identity != pool.identity))
        {
            pools.push((pool, with_workers));
        }
    }
    pools
}

const NOT_NEEDED: &str = "approval was given for something that this plan neither deletes nor replaces";

/// Adds a note on Secrets outside the stack that a new container needs to start. The plan does not create them, and nobody can
/// before the first apply has created the cluster.
fn foreign_secrets(plan: &Plan, notes: &mut Vec<Note>) {
    let mut told = BTreeSet::new();
    let desired = by_identity(&plan.desired);
    let secrets: BTreeSet<(&str, &str)> = plan.desired.iter().filter_map(secret).collect();
    for change in plan.changes.iter().filter(|change| change.action == Action::Create) {
        let Identity::Object(object) = &change.identity else { continue };
        let Some(desired) = desired.get(&change.identity) else { continue };
        let mut keys = Vec::new();
        secret_keys(&desired.body, &mut keys);
        let namespace = object.namespace.as_deref().unwrap_or("default");
        for (name, key) in keys {
            if secrets.contains(&(namespace, name)) || !told.insert((namespace, name, key)) {
                continue;
            }
            notes.push(Note::new(Code::SecretOfOthers, &change.address, format!(
                    "its container starts only when Secret {namespace}/{name}, which is not in this stack, has \
                     the key `{key}`: kubectl -n {namespace} create secret generic {name} \
                     --from-literal={key}=…"
                )));
        }
    }
}

/// Returns the namespace and name of a Secret.
fn secret(resource: &Resource) -> Option<(&str, &str)> {
    let Identity::Object(object) = &resource.identity else { return None };
    let namespace = object.namespace.as_deref()?;
    (object.gvk.kind == "Secret").then_some((namespace, object.name.as_str()))
}

/// Collects the Secrets and keys that the required variables of containers refer to.
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

/// Returns the address in the plan that a mistyped approval may have meant.
fn intended_address(plan: &Plan, given: &Approval) -> Option<Address> {
    let needed = plan.missing_approvals(&[]);
    let addresses = needed.iter().map(|approval| approval.address.as_str());
    nearest(given.address.as_str(), addresses).map(Address::new)
}

/// Adds a note on approvals that match nothing, mostly because of typos.
fn unused_approvals(plan: &Plan, notes: &mut Vec<Note>) {
    for approval in plan.unused_approvals() {
        notes.push(Note::new(
            Code::UnusedApproval,
            &approval.address,
            match intended_address(plan, approval) {
                Some(near) => format!("{NOT_NEEDED}; did you mean `{near}`?"),
                None => NOT_NEEDED.to_owned(),
            },
        ));
    }
}
