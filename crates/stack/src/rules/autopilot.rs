//! Checks of keys that an Autopilot cluster does not accept, and of the machines that Pods select.

use crate::NodePool;
use crate::rules::{Context, machines};
use kinds::gke::api::leaves;
use kinds::gke::cluster::autopilot::{MANAGED_KEYS, MANAGED_PATHS};
use kinds::node_selection::{ACCELERATOR_LABEL, CLASS_LABEL, Machines};
use kinds::section::Pods;
use model::address::FieldPath;
use model::catalog;
use model::diag::{Code, Diagnostic, listed};
use model::schema::Message;

/// Pods of one kind, and the machines that they select.
struct Asking<'a> {
    path: FieldPath,
    /// `each worker`.
    who: String,
    gpus: u32,
    pool: Option<&'a str>,
    prefer_pool: Option<&'a str>,
    machines: &'a Machines,
    /// True if the key `pod` selects the GPU type or a compute class.
    by_pod: bool,
}

fn is_autopilot(context: &Context<'_>) -> bool {
    context.stack.cluster.as_ref().is_some_and(|cluster| cluster.autopilot)
}

/// Returns all pods that the stack creates, including those of checks.
fn asking<'a>(context: &Context<'a>) -> Vec<Asking<'a>> {
    let mut all: Vec<Asking<'a>> = context.pods().into_iter().map(of_pods).collect();
    // A program in the place of a worker has the keys of the workers.
    let checks = context.checks().filter(|(_, check)| !check.is_like_worker());
    all.extend(checks.map(|(path, check)| Asking {
        path,
        who: "the check".to_owned(),
        gpus: u32::from(check.needs_gpu()),
        pool: check.pool.as_deref(),
        prefer_pool: None,
        machines: &check.machines,
        by_pod: false,
    }));
    all
}

fn of_pods(pods: Pods<'_>) -> Asking<'_> {
    let keys = pods.keys;
    let selector = keys.pod.as_ref().map(|pod| &pod.0["nodeSelector"]);
    let named = |label: &str| selector.is_some_and(|selector| !selector[label].is_null());
    Asking {
        path: pods.path,
        who: pods.role.to_string(),
        gpus: keys.gpus(),
        pool: keys.pool.as_deref(),
        prefer_pool: keys.prefer_pool.as_deref(),
        machines: &keys.machines,
        by_pod: named(ACCELERATOR_LABEL) || named(CLASS_LABEL),
    }
}

/// Checks that a stack with an Autopilot cluster has no node pools and no driver installer, and that the cluster is regional.
pub(crate) fn gke_makes_the_nodes(context: &mut Context<'_>) {
    if !is_autopilot(context) {
        return;
    }
    let stack = context.stack;
    let here = FieldPath::keys(["cluster", "autopilot"]);
    let refused = |message: &str, place: FieldPath, help: &str| {
        let finding = Diagnostic::error(Code::Autopilot, message).at_value(place, "not with Autopilot");
        finding.at_value(here.clone(), "here").help(help)
    };
    for name in stack.node_pool.keys() {
        let place = FieldPath::keys(["node_pool", name]);
        let help = "remove the pool; Pods choose their machines by `accelerator`, `spot` and `compute_class`";
        context.say(refused("an Autopilot cluster takes no node pools: GKE makes its nodes", place, help));
    }
    if stack.gpu_driver.is_some() {
        let what = "GKE installs the GPU driver of an Autopilot cluster";
        context.say(refused(what, FieldPath::keys(["gpu_driver"]), "remove `[gpu_driver]`"));
    }
    let location = stack.gke.as_ref().map(|gke| gke.location.as_str()).unwrap_or_default();
    if let Some(region) = catalog::region_of(location) {
        let place = FieldPath::keys(["gke", "location"]);
        let finding =
            Diagnostic::error(Code::Autopilot, "an Autopilot cluster is in a region, not in a zone");
        let finding = finding.at_value(place, "a zone").at_value(here.clone(), "here");
        context.say(finding.help(format!("write `location = \"{region}\"`")));
    }
}

/// Reports keys for settings that GKE determines itself in an Autopilot cluster.
pub(crate) fn keys_are_ours_to_say(context: &mut Context<'_>) {
    let stack = context.stack;
    let Some(cluster) = stack.cluster.as_ref().filter(|it| it.autopilot && it.manage.is_managed()) else {
        return;
    };
    let section = FieldPath::keys(["cluster"]);
    for owned in MANAGED_KEYS.iter().filter(|owned| (owned.is_set)(cluster)) {
        let what = format!("`{}` is not for Autopilot clusters: GKE {}", owned.key, owned.instead);
        let place = owned.key.split('.').fold(section.clone(), |place, key| place.key(key));
        let finding = Diagnostic::error(Code::AutopilotOwns, what).at_value(place, "");
        context.say(finding.help(format!("remove `{}`", owned.key)));
    }
    for leaf in leaves(Message::Cluster, &cluster.api) {
        let owned = MANAGED_PATHS.iter().filter_map(|place| place.parse::<FieldPath>().ok());
        if !owned.into_iter().any(|place| place.contains(&leaf)) {
            continue;
        }
        let place =
            section.key("api").segments().iter().chain(leaf.segments()).cloned().collect::<FieldPath>();
        let what = format!("`{leaf}` is not for Autopilot clusters: GKE decides it");
        let finding = Diagnostic::error(Code::AutopilotOwns, what).at_value(place, "");
        context.say(finding.help("remove it"));
    }
}

/// Checks that a Pod with GPUs names their type on Autopilot, that the type exists, and that a type comes with GPUs.
pub(crate) fn gpus_are_named(context: &mut Context<'_>) {
    let autopilot = is_autopilot(context);
    for Asking { path, who, gpus, pool, machines, by_pod, .. } in asking(context) {
        let named = machines.accelerator.is_some() || machines.compute_class.is_some() || by_pod;
        // A pool on Autopilot is refused anyway.
        if autopilot && gpus > 0 && !named && pool.is_none() {
            let what = format!("{who} requests a GPU, and Autopilot must know which");
            let finding = Diagnostic::error(Code::GpuOfPod, what).at_value(path.clone(), "");
            context.say(finding.help("add `accelerator`, for example `accelerator = \"nvidia-l4\"`"));
        }
        let Some(kind) = &machines.accelerator else { continue };
        let place = path.key("accelerator");
        if catalog::accelerator(kind).is_none() {
            let finding = Diagnostic::error(Code::UnknownAccelerator, format!("unknown GPU type `{kind}`"))
                .at_value(place, "");
            context.say(finding.help(match catalog::suggest_accelerator(kind) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let all = catalog::accelerators().map(|accelerator| accelerator.kind.as_str());
                    format!("GKE has {}", listed(all, "and"))
                }
            }));
        } else if gpus == 0 {
            let what = format!("{who} selects a node with a GPU, but requests none");
            let finding = Diagnostic::error(Code::GpuOfPod, what).at_value(place, "");
            context.say(finding.help("add `gpus = 1`, or remove `accelerator`"));
        }
    }
}

/// Checks that Pods with a node pool select no machines, and that the machines which other Pods select exist.
pub(crate) fn machines_are_said_once(context: &mut Context<'_>) {
    let autopilot = is_autopilot(context);
    for Asking { path, who, pool, prefer_pool, machines, .. } in asking(context) {
        if autopilot {
            let named = [("pool", pool), ("prefer_pool", prefer_pool)];
            for (key, _) in named.into_iter().filter(|(_, name)| name.is_some()) {
                let what = format!("`{key}` of {who} names a node pool, and an Autopilot cluster has none");
                let finding = Diagnostic::error(Code::MachinesOfPool, what).at_value(path.key(key), "");
                context.say(finding.help("use `accelerator`, `spot` or `compute_class`, or none of them"));
            }
            continue;
        }
        for (key, _) in machines.selected_labels() {
            if pool.is_some() {
                let what = format!("`{key}` and `pool` both say where {who} runs");
                let finding = Diagnostic::error(Code::MachinesOfPool, what).at_value(path.key(key), "here");
                let finding = finding.at_value(path.key("pool"), "and here");
                context.say(finding.help("remove one of the two: the pool says which machines it has"));
            } else if let Some(what) = lacking(context, key, machines, &who) {
                let finding = Diagnostic::error(Code::GpuOfPod, what).at_value(path.key(key), "");
                context.say(finding.help("add a `[node_pool.NAME]` with such machines, or remove the key"));
            }
        }
    }
}

/// Returns the message that no pool has the selected machines, if all pools of the cluster are known.
fn lacking(context: &Context<'_>, key: &str, machines: &Machines, who: &str) -> Option<String> {
    let stack = context.stack;
    let cluster = stack.cluster.as_ref().filter(|cluster| cluster.manage.is_managed())?;
    let broken = context.doubt.sections.iter().any(|path| FieldPath::keys(["node_pool"]).contains(path));
    let makes_pools = cluster.makes_pools() || cluster.api.contains_key("autoscaling");
    if broken || makes_pools || stack.node_pool.is_empty() {
        return None;
    }
    let lacks = |has: &dyn Fn(&NodePool) -> bool| !stack.node_pool.values().any(has);
    match key {
        "accelerator" => {
            let kind = machines.accelerator.as_deref()?;
            let known = catalog::accelerator(kind).is_some();
            let has =
                |pool: &NodePool| machines::gpu_type_of(pool) == Some(kind) || !pool.manage.is_managed();
            (known && lacks(&has)).then(|| format!("{who} needs a node with `{kind}`, and no pool has one"))
        }
        "spot" => {
            let has = |pool: &NodePool| pool.spot || !pool.manage.is_managed();
            lacks(&has).then(|| format!("{who} needs a Spot node, and no pool has one"))
        }
        _ => None,
    }
}

/// Warns about Pods without requests, which Autopilot fills in. Source: GKE's page "Resource requests in Autopilot".
pub(crate) fn requests_are_given(context: &mut Context<'_>) {
    if !is_autopilot(context) {
        return;
    }
    for pods in context.pods() {
        let keys = pods.keys;
        // Others' words are not looked into.
        if keys.pod.is_some() || pods.replicas == 0 {
            continue;
        }
        let missing: Vec<&str> = [("cpu", &keys.cpu), ("memory", &keys.memory)]
            .into_iter()
            .filter(|(_, given)| given.is_none())
            .map(|(key, _)| key)
            .collect();
        if missing.is_empty() {
            continue;
        }
        let fills = if keys.gpus() > 0 { "the least that goes with its GPUs" } else { "0.5 vCPU and 2 GiB" };
        let what = format!(
            "{} does not request {}: Autopilot fills in its default, {fills}",
            pods.role,
            listed(missing.iter().copied(), "or")
        );
        let finding = Diagnostic::warning(Code::AutopilotRequests, what).at_value(pods.path.clone(), "");
        context.say(
            finding.help(
                "for example `cpu = \"4\"` and `memory = \"16Gi\"`; Pods get and cost what they request",
            ),
        );
    }
}
