//! The note on a check that waits for a GPU which workers use.

use std::cell::LazyCell;

use crate::{Action, Change, Note, Plan};
use kinds::dask::check_program;
use kinds::gke::node_pool::node_bounds;
use kinds::gke::placement::{Near, PodTemplate, Pools, all_pod_templates, pod_count};
use kinds::pod::gpus;
use kinds::scale::{ReplicaOwner, ScaleTarget};
use kinds::scope::POOL_LABEL;
use model::address::FieldPath;
use model::diag::Code;
use model::resource::{Identity, Resource, by_identity};

/// Adds a note on a check that needs a free GPU on nodes where running workers may hold all GPUs.
pub(super) fn checks_find_one(plan: &Plan, notes: &mut Vec<Note>) {
    let desired = by_identity(&plan.desired);
    // Reading the pools takes longer than all the rest, and most plans have no such check.
    let pools = LazyCell::new(|| Pools::of(&plan.desired, &plan.external, &plan.capacity_options));
    let selector_at = |change: &Change, at: &str| {
        let desired = desired.get(&change.identity);
        desired.and_then(|resource| resource.body.pointer(at)).filter(|selector| !selector.is_null()).cloned()
    };
    for check in plan.changes.iter().filter(|change| change.action == Action::Run) {
        let Some(pod) = desired.get(&check.identity).map(|resource| &resource.body) else { continue };
        if gpus(&pod["spec"]) == 0 {
            continue;
        }
        let check_selector = selector_at(check, "/spec/nodeSelector");
        // No worker runs on nodes that this plan makes.
        let is_new = |change: &Change| {
            let made = matches!(change.action, Action::Create | Action::Replace);
            let name = match &change.identity {
                Identity::NodePool { pool, .. } => pool,
                Identity::Cluster(_) | Identity::Object(_) | Identity::Check(_) => return false,
            };
            made && check_selector.as_ref().is_some_and(|selector| selector[POOL_LABEL] == name.as_str())
        };
        if plan.changes.iter().any(is_new) {
            continue;
        }
        let stays = |change: &&Change| {
            let there = matches!(change.action, Action::Keep | Action::Update | Action::Replace);
            // Workers that come here with this plan are not here yet. Those of a pool that is replaced come back before the
            // check runs.
            let selector = FieldPath::keys(["spec", "worker", "spec", "nodeSelector"]);
            let moves = change.fields.iter().any(|field| selector.contains(&field.path));
            let worker_selector = selector_at(change, "/spec/worker/spec/nodeSelector");
            there && !moves && check_selector.is_some() && worker_selector == check_selector
        };
        let Some(cluster) = plan.changes.iter().find(stays) else { continue };
        if !pools.as_ref().is_some_and(|pools| has_room(plan, pools, &check.identity)) {
            let instead = match check_program::passed(pod) {
                Some(_) => ", or set `as = \"client\"` in place of `pool`",
                None => "",
            };
            notes.push(Note::new(
                Code::CheckAmongWorkers,
                &check.address,
                format!(
                    "the check waits for a free GPU on a pool where the workers of {} run: if they use all \
                     GPUs, scale them down first{instead}",
                    cluster.address
                ),
            ));
        }
    }
}

/// Returns true if the pool of a check has a place for it beside all Pods of the stack that can be on the pool, at the largest number of
/// both.
fn has_room(plan: &Plan, pools: &Pools<'_>, check: &Identity) -> bool {
    let is_check = |resource: &&Resource| resource.identity == *check;
    let check = plan.desired.iter().filter(is_check).flat_map(all_pod_templates).next();
    let selected = |pod: &PodTemplate<'_>| pod.requirements.node_selector.get(POOL_LABEL).cloned();
    let pool = check.as_ref().and_then(selected).and_then(|name| pools.pool(&name));
    let (Some(check), Some(pool)) = (check, pool) else { return false };
    let Some((_, most)) = node_bounds(&pool.resource.body) else { return false };
    // Checks run one after the other or end soon.
    let others = plan.desired.iter().filter(|resource| !matches!(resource.identity, Identity::Check(_)));
    let others = others.flat_map(all_pod_templates);
    let others = others.filter(|pod| !pod.on_each_node && pools.takes(pool, &pod.requirements));
    let mut pods = vec![(check.requirements, 1)];
    for mut pod in others {
        let Some(count) = largest_count(&pod, plan) else { return false };
        pod.requirements.spread.clear();
        pods.push((pod.requirements, count));
    }
    pools.pack(pool, &pods, Some(most.into()), Near::Fits).left == 0
}

/// Returns the largest number of Pods of a template; `None` if the stack leaves it to others. Replicas in the body are not the largest
/// number where an autoscaler scales them.
fn largest_count(pod: &PodTemplate<'_>, plan: &Plan) -> Option<u64> {
    let target = (kinds::of(pod.resource.kind).scale_target)(pod.resource, &plan.desired);
    // That of a Dask cluster counts its workers, not its scheduler.
    let is_scaled =
        |target: &ScaleTarget| target.path.parent().is_some_and(|parent| parent.contains(&pod.path));
    match target.filter(is_scaled).map(|target| target.replica_owner) {
        Some(ReplicaOwner::File(count)) => Some(count),
        Some(ReplicaOwner::Autoscaler { max, .. }) => Some(max),
        Some(ReplicaOwner::Notebooks(_) | ReplicaOwner::Unmanaged) => None,
        None => match pod_count(&pod.resource.body, &pod.path) {
            Some(count) => Some(count),
            // Those of a Dask job may have an autoscaler.
            None => (pod.path.last_key() != Some("worker")).then_some(1),
        },
    }
}
