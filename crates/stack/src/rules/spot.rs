//! Checks that what cannot be interrupted is not on Spot machines.

use crate::NodePool;
use crate::rules::Context;
use crate::rules::machines::gpu_type_of;
use kinds::gke::node_pool::Capacity;
use kinds::node_selection::Machines;
use kinds::section::{PodRole, Pods};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Warns of schedulers on Spot machines. GKE takes such a machine away with 30 s notice, and a scheduler keeps the state of its Dask
/// cluster in memory only. Source: <https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms>.
pub(crate) fn schedulers_are_not_interrupted(context: &mut Context<'_>) {
    let schedulers = context.pods().into_iter().filter(|pods| pods.role == PodRole::Scheduler);
    let on_spot: Vec<(Pods<'_>, FieldPath)> =
        schedulers.filter_map(|pods| spot_place(context, &pods).map(|place| (pods, place))).collect();
    for (pods, place) in on_spot {
        let of_pods = if pods.keys.pool.is_some() { pods.path.key("pool") } else { pods.path };
        let what = "a scheduler on Spot machines loses the work of all its workers";
        let finding = Diagnostic::warning(Code::SpotScheduler, what)
            .at_value(of_pods, "keeps the state of its Dask cluster in memory")
            .at_value(place, "may be taken away at any time");
        context.say(finding.help("give the scheduler on-demand machines; only the workers gain from Spot"));
    }
}

/// Returns the path of the key by which pods run on Spot machines, or may.
fn spot_place(context: &Context<'_>, pods: &Pods<'_>) -> Option<FieldPath> {
    if pods.keys.machines.spot {
        // With a pool it is an error of its own.
        return pods.keys.pool.is_none().then(|| pods.path.key("spot"));
    }
    if let Some(key) = pods.keys.pool.as_deref() {
        return spot_key(context.pool(key)?).map(|spot| FieldPath::keys(["node_pool", key, spot]));
    }
    // Without a pool it runs on any that nothing keeps it off; pools of other stacks are not known.
    if context.stack.cluster.is_none() || pods.keys.pod.is_some() || pods.keys.machines != Machines::default()
    {
        return None;
    }
    let open = context.pools().filter(|(_, pool)| gpu_type_of(pool).is_none() && pool.taints.is_empty());
    let spot: Vec<Option<FieldPath>> =
        open.map(|(path, pool)| spot_key(pool).map(|key| path.key(key))).collect();
    // An on-demand pool beside them usually has room.
    spot.into_iter().collect::<Option<Vec<_>>>()?.into_iter().next()
}

/// Returns the key of a pool that buys Spot machines.
fn spot_key(pool: &NodePool) -> Option<&'static str> {
    match pool {
        NodePool { spot: true, .. } => Some("spot"),
        NodePool { capacity, .. } if capacity.contains(&Capacity::Spot) => Some("capacity"),
        _ => None,
    }
}
