//! The nodes of an autoscaled pool that the pods of a plan need at once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::body_before;
use crate::{Action, Plan};
use fit::{PodRequirements, Resource as Amount};
use kinds::gke::placement::{GPU, pod_count, pod_templates, settings};
use kinds::scope::POOL_LABEL;
use model::resource::{KindId, by_identity};

/// Returns the number of nodes, keyed by pool, for the GPUs of additional pods that name their pool. Other pods may get nodes of another
/// pool, and pods in a queue wait. Checks run one after the other, before the workloads.
pub(super) fn nodes_for_pods(plan: &Plan) -> BTreeMap<String, u64> {
    let desired = by_identity(&plan.desired);
    let starts = |action| matches!(action, Action::Create | Action::Update | Action::Replace | Action::Run);
    let started = plan.changes.iter().filter(|change| starts(change.action));
    let mut gpus: BTreeMap<(String, bool), u64> = BTreeMap::new();
    for (change, resource) in started.filter_map(|change| Some((change, desired.get(&change.identity)?))) {
        let before = (change.action == Action::Update).then(|| body_before(&resource.body, &change.fields));
        let is_check = resource.kind == KindId::Check;
        for template in pod_templates(resource).into_iter().filter(|template| !template.on_each_node) {
            let Some(pool) = template.requirements.node_selector.get(POOL_LABEL) else { continue };
            // A number that the file leaves to others may be 0.
            let pods = pod_count(&resource.body, &template.path).unwrap_or(u64::from(is_check));
            let earlier =
                before.as_ref().and_then(|body| pod_count(body, &template.path)).unwrap_or_default();
            let pods = pods.saturating_sub(earlier);
            let asked = gpus_of(&template.requirements).saturating_mul(pods);
            let sum = gpus.entry((pool.clone(), is_check)).or_default();
            *sum = if is_check { asked.max(*sum) } else { asked.saturating_add(*sum) };
        }
    }
    let pools = plan
        .desired
        .iter()
        .filter_map(|resource| Some((resource.identity.pool()?, gpus_of_node(&resource.body)?)));
    pools
        .filter_map(|(pool, each)| {
            let asked =
                [false, true].into_iter().filter_map(|check| gpus.get(&(pool.to_owned(), check))).max()?;
            Some((pool.to_owned(), asked.div_ceil(each)))
        })
        .collect()
}

/// Returns the GPUs of a node; `None` where it has none, where pods share them, and where the nodes wait for requests or machines.
fn gpus_of_node(pool: &Value) -> Option<u64> {
    let waits = pool["queuedProvisioning"]["enabled"] == true || pool["config"]["flexStart"] == true;
    let gpus = settings(pool, true).gpus.filter(|_| !waits)?;
    let is_whole = gpus.sharing.is_none() && gpus.partition.is_none() && gpus.count > 0;
    is_whole.then_some(gpus.count.into())
}

fn gpus_of(pod: &PodRequirements) -> u64 {
    let request = pod.request(&Amount::Extended(GPU.to_owned()));
    request.and_then(|request| u64::try_from(request.amount).ok()).unwrap_or_default()
}
