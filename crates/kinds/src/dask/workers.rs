//! Steps for the workers of a Dask cluster, a group or a job: recreate lost workers, delete surplus ones, choose the workers to
//! delete, and wait for their tasks.
//!
//! The operator creates each child only once. Source: `daskcluster_create_components` in dask-kubernetes 2026.3.0 runs when
//! `status.phase` becomes `Created` and makes what does not exist; `daskworkergroup_replica_update` runs when the number of a
//! group changes and counts Deployments. `tests/it/control_plane/scale.rs` compares with the real operator.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::dask::api::{self, GROUP_LABEL};
use crate::dask::idle_wait;
use crate::dask::kopf::{scaled_to, waits_before};
use crate::json::{is_terminating, text};
use crate::kind::{ChangeContext, Defect};
use crate::kubernetes::calls::{delete_call, repair_call, scale_call_as};
use crate::kubernetes::object::gvk;
use crate::kubernetes::workload::deployment_ready;
use model::resource::{Action, Await, Facts, Identity, KindId, ObjectId, Readiness, Step, Until};

/// Seconds in which the operator handles a number: it retries after a minute.
const PICKUP_TIMEOUT: u32 = 300;

type Objects = BTreeMap<ObjectId, Value>;

/// Returns the steps of a change, beginning with those about workers.
pub(crate) fn change_steps(context: &ChangeContext, kind: KindId, own: Vec<Step>) -> Vec<Step> {
    let is_wait = |step: &Step| matches!(step, Step::Await(_));
    let alone = context.defect.is_some_and(|defect| defect.repair_only);
    let mut steps: Vec<Step> = context.defect.map(|defect| defect.steps.clone()).unwrap_or_default();
    steps.extend(deletes(&deleted_workers(context)));
    // The resource itself does not differ: it is not written.
    steps.extend(own.into_iter().filter(|step| !alone || is_wait(step)));
    if let Some(object) = context.object() {
        steps.splice(..0, waits_before(context.action, object, context.fields, &steps));
    }
    if let (Some(live), Some(seconds)) = (context.live, context.idle_wait_seconds)
        && idle_wait::deletes_workers(context.action, &steps)
    {
        let wait = idle_wait::wait(kind, context.identity, live, seconds);
        steps.splice(..0, wait.map(Step::Await));
    }
    steps
}

/// Returns the deletes of workers by name, each with the uid that the plan read.
pub fn deletes(workers: &[(ObjectId, Value)]) -> Vec<Step> {
    workers.iter().map(|(object, live)| Step::Call(delete_call(object, live))).collect()
}

/// Finds defects of a cluster or a group. Surplus workers, which the operator did not delete when it scaled down, are deleted if
/// nothing else differs. Lost children are recreated.
pub(crate) fn find_defect(context: &ChangeContext) -> Option<Defect> {
    let (object, inside) = (context.object()?, context.objects?);
    let alone = context.action == Action::Keep;
    let group = group_of(object)?;
    let left = if alone { surplus_defect(context, &group, inside) } else { None };
    let lost = lost_children(context, object, inside).or_else(|| lost_workers(context, &group, inside));
    let why: Vec<&str> = left.iter().chain(&lost).map(|(why, _)| why.as_str()).collect();
    let why = (!why.is_empty()).then(|| why.join("; "))?;
    let steps = lost.into_iter().chain(left).flat_map(|(_, steps)| steps).collect();
    Some(Defect { steps, repair_only: alone, ..Defect::of(context, why) })
}

/// Returns the group with the number of workers of an object: the object itself, or the default group of a cluster.
fn group_of(object: &ObjectId) -> Option<ObjectId> {
    let group = if object.gvk == api::cluster() { api::default_group(object) } else { object.clone() };
    (group.gvk == api::group()).then_some(group)
}

/// Returns the Deployments in the namespace of a group.
fn deployments<'v>(inside: &'v Objects, group: &ObjectId) -> Vec<(&'v ObjectId, &'v Value)> {
    let gvk = gvk("apps", "v1", "Deployment", "deployments");
    let first = ObjectId { gvk, namespace: group.namespace.clone(), name: String::new() };
    let beside = |object: &ObjectId| object.gvk == first.gvk && object.namespace == first.namespace;
    inside.range(&first..).take_while(|(object, _)| beside(object)).collect()
}

fn worker_names(workers: &[(ObjectId, Value)]) -> String {
    let names: Vec<&str> = workers.iter().map(|(object, _)| object.name.as_str()).collect();
    names.join(", ")
}

fn surplus_defect(
    context: &ChangeContext,
    group: &ObjectId,
    objects: &Objects,
) -> Option<(String, Vec<Step>)> {
    let desired = context.body()["spec"]["worker"]["replicas"].as_u64()?;
    let live = objects.get(group)?;
    let asked = live["spec"]["worker"]["replicas"].as_u64();
    if asked != Some(desired) || scaled_to(live) != Some(desired) {
        return None;
    }
    let left = surplus_workers(desired, &group.name, &deployments(objects, group));
    let why = format!(
        "the Dask operator reports that it scaled to {desired}, but did not; the surplus is deleted: {}",
        worker_names(&left)
    );
    (!left.is_empty()).then(|| (why, deletes(&left)))
}

/// Returns the worker Deployments of a group beyond the desired number: first those that are not ready, then the youngest.
fn surplus_workers(desired: u64, group: &str, deployments: &[(&ObjectId, &Value)]) -> Vec<(ObjectId, Value)> {
    let own = |(_, live): &&(&ObjectId, &Value)| {
        live["metadata"]["labels"][GROUP_LABEL] == group && !is_terminating(live)
    };
    let mut own: Vec<_> = deployments.iter().filter(own).copied().collect();
    own.sort_by_key(|(object, live)| {
        let ready = deployment_ready(live) == Readiness::Ready;
        (std::cmp::Reverse(ready), text(&live["metadata"]["creationTimestamp"]), *object)
    });
    let go = own.split_off(own.len().min(usize::try_from(desired).unwrap_or(usize::MAX)));
    go.into_iter().map(|(object, live)| (object.clone(), live.clone())).collect()
}

/// Returns the workers to delete when the number of a DaskCluster or a group falls and the cluster has workers of several groups:
/// the operator would ask the scheduler, which chooses among the workers of all groups. Source: `retire_workers` in
/// dask-kubernetes 2026.3.0; issue 914.
pub(crate) fn deleted_workers(context: &ChangeContext) -> Vec<(ObjectId, Value)> {
    let path = api::replicas_path();
    let falls =
        context.fields.iter().find(|field| field.path == path).filter(|_| context.action == Action::Update);
    let to = falls.and_then(|field| field.after.as_ref()).and_then(Value::as_u64);
    let group = context.object().and_then(group_of);
    let (Some(group), Some(inside), Some(to)) = (group, context.objects, to) else { return Vec::new() };
    let Some(cluster) = inside.get(&group).map(|live| &live["spec"]["cluster"]) else { return Vec::new() };
    let workers = deployments(inside, &group);
    let has_workers = |name: &str| {
        workers
            .iter()
            .any(|(_, live)| live["metadata"]["labels"][GROUP_LABEL] == name && !is_terminating(live))
    };
    let several = inside.iter().any(|(other, live)| {
        let beside =
            other.gvk == api::group() && other.namespace == group.namespace && other.name != group.name;
        beside && live["spec"]["cluster"] == *cluster && has_workers(&other.name)
    });
    if several { surplus_workers(to, &group.name, &workers) } else { Vec::new() }
}

/// Returns the steps that recreate a lost scheduler, its Service or the default group: they make the operator create missing
/// children, without changing existing ones.
fn lost_children(
    context: &ChangeContext,
    cluster: &ObjectId,
    inside: &Objects,
) -> Option<(String, Vec<Step>)> {
    let live = context.live.filter(|_| cluster.gvk == api::cluster())?;
    // Only then the operator says that it has made them.
    if !matches!(text(&live["status"]["phase"]), "Pending" | "Running") {
        return None;
    }
    let namespace = cluster.namespace.as_deref();
    let service = api::scheduler_service(namespace, &cluster.name);
    let scheduler = ObjectId { gvk: gvk("apps", "v1", "Deployment", "deployments"), ..service.clone() };
    let children = [scheduler, service, api::default_group(cluster)];
    let lost = children.iter().filter(|child| inside.get(child).is_none_or(is_terminating));
    let lost: Vec<String> = lost.map(ToString::to_string).collect();
    if lost.is_empty() {
        return None;
    }
    let why = format!(
        "lost, and the Dask operator does not recreate it by itself: {}; this change makes it recreate what is \
         missing",
        lost.join(", ")
    );
    let body = json!({
        "apiVersion": cluster.gvk.api_version(),
        "kind": cluster.gvk.kind,
        "metadata": { "name": cluster.name, "namespace": namespace, "uid": live["metadata"]["uid"] },
        "status": { "phase": "Created" },
    });
    Some((why, vec![Step::Call(repair_call(cluster, context.owner, body))]))
}

/// Returns the steps that recreate lost workers, which the operator counts as created. They lower the number to that of the
/// existing workers and raise it again. The operator then creates the missing workers and retires none.
fn lost_workers(context: &ChangeContext, group: &ObjectId, inside: &Objects) -> Option<(String, Vec<Step>)> {
    let live = inside.get(group)?;
    let desired = live["spec"]["worker"]["replicas"].as_u64()?;
    if scaled_to(live) != Some(desired) {
        return None;
    }
    let mut own = deployments(inside, group);
    own.retain(|(_, worker)| worker["metadata"]["labels"][GROUP_LABEL] == group.name.as_str());
    // One that goes is still counted by the operator: it is not known yet whether it is lost.
    let there = own.len() as u64;
    if there >= desired || own.iter().any(|(_, worker)| is_terminating(worker)) {
        return None;
    }
    let why = format!(
        "{} of {desired} workers of {group} lost, and the Dask operator does not recreate them by itself: its \
         number is set to the {there} that exist and then raised again",
        desired - there
    );
    let manager = context.owner.scale_manager();
    let scale = |number: u64| Step::Call(scale_call_as(group, &manager, json!(number)));
    let noted = Step::Await(Await {
        kind: KindId::DaskGroup,
        identity: Identity::Object(group.clone()),
        until: Until::Ready,
        facts: Facts::ScaledTo(there),
        deadline: PICKUP_TIMEOUT,
    });
    Some((why, vec![scale(there), noted, scale(desired)]))
}
