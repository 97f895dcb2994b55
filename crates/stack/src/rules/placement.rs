//! Checks for pods that no node of the stack's pools takes, by the rules of kube-scheduler.

use std::collections::{BTreeMap, BTreeSet};

use crate::Nodes;
use crate::rules::{Context, queues};
use fit::{Margin, PodRequirements, Reason, Refusal, Resource as Amount, Taint};
use kinds::gke::placement::{
    GPU, Near, PodPlacement, PodTemplate, PoolNodes, Pools, all_pod_templates, distance,
};
use kinds::kubernetes::kueue::flavor::started_forms;
use kinds::scope::POOL_LABEL;
use kinds::section::{PodRole, Pods, managed};
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic, listed};
use model::resource::{Identity, KindId, Recreation, Resource};

/// The maximum number of pools that a message names.
const MAX_POOLS: usize = 3;
/// The maximum number of sections with Pods on a pool that a message shows.
const MAX_SECTIONS: usize = 3;

/// Checks that a new node takes every pod, and that the pools have enough nodes for all of them.
pub(crate) fn pods_fit_their_nodes(context: &mut Context<'_>) {
    if context.stack.cluster.is_none()
        || context.stack.node_pool.is_empty()
        || !context.doubt.sections.is_empty()
    {
        return;
    }
    let lowered = context.take_lowered();
    if let Some(pools) = Pools::of(&lowered.resources, &lowered.external, &lowered.capacity_options) {
        let pods: Vec<PodTemplate<'_>> = lowered.resources.iter().flat_map(all_pod_templates).collect();
        for finding in refusals(&pools, &pods, &lowered.resources, &context.found) {
            context.say_once(finding);
        }
        for finding in shortages(&pools, &pods, context) {
            context.say(finding);
        }
    }
    context.lowered = Some(lowered);
}

/// Returns a finding for each pod that no node takes.
fn refusals(
    pools: &Pools<'_>,
    pods: &[PodTemplate<'_>],
    resources: &[Resource],
    known: &[Diagnostic],
) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.on_each_node && !has_no_place(pod, known)) {
        let placement = match pod.queue {
            None => pools.place(&pod.requirements),
            // The flavors of a queue outside of the stack are not known.
            Some(queue) => match started_forms(&pod.requirements, queue, resources) {
                Some(forms) => pools.place_any(&forms),
                None => continue,
            },
        };
        let finding = match placement {
            PodPlacement::Possible => continue,
            PodPlacement::Near(pool, margins) => Some(near(pod, pool, &margins, pools)),
            PodPlacement::Impossible(refused) => impossible(pod, &refused, pools, known),
        };
        found.extend(finding);
    }
    found
}

/// Returns true for a pod whose pool, queue, GPU type or place as a check already has an error.
fn has_no_place(pod: &PodTemplate<'_>, known: &[Diagnostic]) -> bool {
    let codes = [Code::UnknownPool, Code::NoQueue, Code::GpuOfPod, Code::CheckProgram];
    let section = &pod.resource.origin;
    let mut wrong = known.iter().filter(|found| codes.contains(&found.code));
    wrong.any(|found| found.fields().any(|field| section.contains(field)))
}

/// Pods that only the new nodes of one pool take.
struct PoolPods<'a> {
    /// The path of their keys.
    path: FieldPath,
    count: u64,
    template: &'a PodTemplate<'a>,
}

/// Returns a finding for each pool that cannot have enough nodes for all pods that no other pool takes. Shortages of GPUs have
/// their own finding.
fn shortages(pools: &Pools<'_>, templates: &[PodTemplate<'_>], context: &Context<'_>) -> Vec<Diagnostic> {
    let sections = context.pods();
    let of_section: BTreeMap<&FieldPath, &Pods<'_>> =
        sections.iter().map(|pods| (&pods.path, pods)).collect();
    // Pods of a request are those of another section, and pods that wait in a queue do not run all at once.
    let waiting = queues::waiting(context.stack);
    let counts = |pod: &&PodTemplate<'_>| stays(pod) && !pod.on_each_node && pod.queue.is_none();
    let mut by_pool: BTreeMap<&Address, Vec<PoolPods<'_>>> = BTreeMap::new();
    for template in templates.iter().filter(counts) {
        let path = template.resource.origin_of(&template.path.key("spec"));
        let section = of_section.get(&path);
        let count = section.map_or(template.count, |pods| pods.replicas.into());
        let is_requested = section.is_some_and(|pods| pods.role == PodRole::Requested);
        if is_requested || count == 0 || waiting.contains(&path) {
            continue;
        }
        if let Some(pool) = pools.only_taker(&template.requirements) {
            by_pool.entry(&pool.resource.address).or_default().push(PoolPods { path, count, template });
        }
    }
    let mut found = Vec::new();
    for (key, section) in managed(&context.stack.node_pool) {
        let is_wrong = matches!(section.size(), Nodes::Autoscaled { min, max } if min > max);
        let Some(pool) = pools.pool(section.live_name(key)).filter(|_| !is_wrong) else { continue };
        if let Some(here) = by_pool.get(&pool.resource.address) {
            found.extend(shortage(pools, pool, section.size().most().into(), here));
        }
    }
    let is_told = |finding: &Diagnostic| {
        let told = context.found.iter().filter(|other| other.code == Code::MoreGpusThanPool);
        told.into_iter().any(|other| other.fields().any(|field| finding.fields().any(|own| own == field)))
    };
    found.retain(|finding| !is_told(finding));
    found
}

/// Returns true for pods that stay. Others run to completion and make room for pods that wait, as those of jobs and of schedules do;
/// of custom resources nobody knows.
fn stays(pod: &PodTemplate<'_>) -> bool {
    const STAYING: [&str; 5] = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Pod"];
    let policy = pod.path.key("spec").key("restartPolicy");
    let is_restarted = policy.find(&pod.resource.body).is_none_or(|policy| policy == "Always");
    match (pod.resource.kind, &pod.resource.identity) {
        (KindId::Job | KindId::DaskJob | KindId::Check, _) => false,
        (KindId::Object, Identity::Object(id)) => is_restarted && STAYING.contains(&id.gvk.kind.as_str()),
        _ => is_restarted,
    }
}

/// The maximum number of different pods of a pool whose nodes are counted: the time grows with its square.
const MAX_PACKED: usize = 200;

fn shortage(pools: &Pools<'_>, pool: &PoolNodes<'_>, most: u64, here: &[PoolPods<'_>]) -> Option<Diagnostic> {
    let alone =
        |of: &PoolPods<'_>| PodRequirements { spread: Vec::new(), ..of.template.requirements.clone() };
    let mut counts: BTreeMap<PodRequirements, u64> = BTreeMap::new();
    for of in here {
        *counts.entry(alone(of)).or_default() += of.count;
    }
    if counts.len() > MAX_PACKED {
        return None;
    }
    let pods: Vec<(PodRequirements, u64)> = counts.into_iter().collect();
    let lacking = |near: Near| {
        // A pod that an empty node does not take has its own finding, or needs something that the file does not tell.
        let fits = |(pod, _): &&(PodRequirements, u64)| {
            pools.pack(pool, &[(pod.clone(), 1)], Some(1), near).left == 0
        };
        let pods: Vec<(PodRequirements, u64)> = pods.iter().filter(fits).cloned().collect();
        let needed = pools.pack(pool, &pods, None, near).nodes;
        let all: u64 = pods.iter().map(|(_, count)| count).sum();
        (needed > most).then(|| (needed, pools.pack(pool, &pods, Some(most), near).left, all))
    };
    let certain = lacking(Near::Fits);
    let (needed, left, all) = certain.or_else(|| lacking(Near::DoesNotFit))?;
    let ends = match most {
        1 => "1 node".to_owned(),
        most => format!("{most} nodes"),
    };
    let address = &pool.resource.address;
    let (code, what) = match certain {
        Some(_) => (
            Code::PoolTooSmall,
            format!("{left} of {all} Pods find no node: `{address}` ends at {ends}, they need {needed}"),
        ),
        None => (
            Code::PodNearLimit,
            format!(
                "{left} of {all} Pods may find no node: `{address}` ends at {ends}, and they ask for about all that it has"
            ),
        ),
    };
    let mut finding = Diagnostic::warning(code, what);
    for of in here.iter().take(MAX_SECTIONS) {
        let pods = if of.count == 1 { "1 Pod".to_owned() } else { format!("{} Pods", of.count) };
        finding = finding.at_value(of.path.clone(), pods);
    }
    let more = match here.len().saturating_sub(MAX_SECTIONS) {
        0 => String::new(),
        1 => " (1 more section has Pods on the pool)".to_owned(),
        more => format!(" ({more} more sections have Pods on the pool)"),
    };
    let size = ["autoscaling", "initialNodeCount", "nodeCount"];
    let size = size.into_iter().find(|key| !pool.resource.body[*key].is_null()).unwrap_or_default();
    let place = pool.resource.origin_of(&FieldPath::keys([size]));
    let help = format!("use {needed} nodes, a larger machine type, or fewer Pods");
    Some(finding.at_value(place, format!("ends at {ends}")).help(format!("{help}{more}")))
}

/// Returns `a worker of`, `the scheduler of`: the pods of a template, as a singular.
fn role(pod: &PodTemplate<'_>) -> &'static str {
    let role = pod.path.last_key().unwrap_or_default();
    match (pod.resource.kind, role) {
        (KindId::DaskCluster | KindId::DaskGroup | KindId::DaskJob, "worker") => "a worker",
        (KindId::DaskCluster | KindId::DaskJob, "scheduler") => "the scheduler",
        (KindId::DaskJob, _) => "the client",
        (KindId::Check, _) => "the Pod",
        _ => "a Pod",
    }
}

/// Returns the warning for a pod that may fit: only a real node shows it.
fn near(pod: &PodTemplate<'_>, pool: &PoolNodes<'_>, margins: &[Margin], pools: &Pools<'_>) -> Diagnostic {
    let what = format!(
        "{} of `{}` asks for about all that a node of `{}` has: only a running node tells if it fits",
        role(pod),
        pod.resource.address,
        pool.resource.address
    );
    let mut finding = Diagnostic::warning(Code::PodNearLimit, what);
    for margin in margins {
        let Margin { resource, wanted, free, path } = margin;
        let noun = noun(resource);
        let place = pod.resource.origin_of(&pod.path_in_body(path));
        finding = finding.at_value(place, format!("asks for {}{noun}", resource.text(*wanted)));
        let free = format!("about {} are free on a new node", resource.text(*free));
        finding = finding.at_value(place_of_size(pool, resource), free);
    }
    let shorts: Vec<(&Amount, i64)> = margins.iter().map(|margin| (&margin.resource, margin.free)).collect();
    finding.help(larger(pod, pool, pools, &shorts))
}

/// Returns the error for a pod that fits nowhere, or a warning if something else may change the pod before it is scheduled.
fn impossible(
    pod: &PodTemplate<'_>,
    refused: &[(&PoolNodes<'_>, Vec<Refusal>)],
    pools: &Pools<'_>,
    known: &[Diagnostic],
) -> Option<Diagnostic> {
    let told = Told::of(pod, known);
    let left = |refusals: &[Refusal]| refusals.iter().filter(|refusal| !told.has(refusal)).cloned().collect();
    let mut refused: Vec<(&PoolNodes<'_>, Vec<Refusal>)> =
        refused.iter().map(|(pool, refusals)| (*pool, left(refusals))).collect();
    refused.sort_by_key(|(_, refusals)| distance(refusals));
    if refused.iter().any(|(_, refusals)| refusals.is_empty()) {
        return None;
    }
    let nodes = match pod.requirements.node_selector.get(POOL_LABEL).and(refused.first()) {
        Some((pool, _)) => format!("no node of `{}`", pool.resource.address),
        None => "no node".to_owned(),
    };
    let what = format!("{nodes} takes {} of `{}`", role(pod), pod.resource.address);
    // What ran once stays in the file.
    let runs_once = matches!(pod.resource.recreation, Recreation::Once { .. });
    let is_certain = is_of_section(pod) && !runs_once && pools.is_certain(&refused);
    let finding = if is_certain { Diagnostic::error } else { Diagnostic::warning };
    refused.truncate(MAX_POOLS);
    let mut finding = finding(Code::NoNodeForPod, what);
    let mut asked = BTreeSet::new();
    for refusal in refused.iter().flat_map(|(_, refusals)| refusals) {
        let place = place_in_pod(pod, refusal);
        if asked.insert((place.clone(), request(refusal))) {
            finding = finding.at_value(place, request(refusal));
        }
    }
    for (pool, refusals) in &refused {
        finding = pool_labels(finding, pool, refusals);
    }
    Some(finding.help(cure(pod, &refused, pools)))
}

/// Returns true for pods that the stack makes for a section of its own, and false for those of manifests and charts.
fn is_of_section(pod: &PodTemplate<'_>) -> bool {
    !matches!(pod.resource.address.section().split('.').next(), Some("manifest" | "helm_release"))
}

/// Returns the path in the pod that a refusal is about. For a taint, it is the key that names the pool.
fn place_in_pod(pod: &PodTemplate<'_>, refusal: &Refusal) -> FieldPath {
    let selector = FieldPath::keys(["spec", "nodeSelector", POOL_LABEL]);
    let names_pool = pod.requirements.node_selector.contains_key(POOL_LABEL);
    let path = match &refusal.reason {
        Reason::Taint { .. } if names_pool => &selector,
        _ => &refusal.path,
    };
    pod.resource.origin_of(&pod.path_in_body(path))
}

/// Refusals that another finding about the same pod has already reported.
struct Told {
    gpus: bool,
    labels: bool,
}

impl Told {
    fn of(pod: &PodTemplate<'_>, known: &[Diagnostic]) -> Self {
        let origin = pod.resource.origin_of(&pod.path.key("spec"));
        let root = &pod.resource.origin;
        let is_about =
            |found: &Diagnostic| found.fields().any(|field| origin.contains(field) || root.contains(field));
        let told = |codes: &[Code]| known.iter().any(|found| codes.contains(&found.code) && is_about(found));
        Self { gpus: told(&[Code::NoGpuThere, Code::CheckNeedsGpu]), labels: told(&[Code::NoSuchNodeLabel]) }
    }

    fn has(&self, refusal: &Refusal) -> bool {
        match &refusal.reason {
            Reason::Short { resource: Amount::Extended(name), .. } => self.gpus && name == GPU,
            Reason::Selector { .. } | Reason::Affinity { .. } => self.labels,
            _ => false,
        }
    }
}

fn noun(resource: &Amount) -> &str {
    match resource {
        Amount::Cpu => " CPUs",
        Amount::Memory => " of memory",
        Amount::EphemeralStorage => " of disk",
        Amount::Extended(name) if name == GPU => " GPUs",
        Amount::Extended(_) | Amount::Pods => " Pods",
    }
}

/// Returns the text of a label at the pod.
fn request(refusal: &Refusal) -> String {
    match &refusal.reason {
        Reason::Short { resource: Amount::Pods, .. } => "one Pod more".to_owned(),
        Reason::Short { resource: Amount::Extended(name), wanted: 1, .. } if name == GPU => {
            "asks for a GPU".to_owned()
        }
        Reason::Short { resource, wanted, .. } => {
            format!("asks for {}{}", resource.text(*wanted), noun(resource))
        }
        Reason::Taint { taint } if taint.key == GPU => "asks for no GPUs".to_owned(),
        Reason::Taint { taint } => format!("does not tolerate `{taint}`"),
        Reason::Selector { key, wanted, .. } => format!("requires `{key}={wanted}`"),
        Reason::NoDomain { topology_key } => format!("spreads by `{topology_key}`"),
        other => other.to_string(),
    }
}

/// Adds labels at the keys of the pool.
fn pool_labels(mut finding: Diagnostic, pool: &PoolNodes<'_>, refusals: &[Refusal]) -> Diagnostic {
    let mut told = BTreeSet::new();
    for refusal in refusals {
        let (place, text) = pool_label(pool, refusal);
        if told.insert((place.clone(), text.clone())) {
            finding = finding.at_value(place, text);
        }
    }
    finding
}

fn pool_label(pool: &PoolNodes<'_>, refusal: &Refusal) -> (FieldPath, String) {
    let section = &pool.resource.origin;
    match &refusal.reason {
        Reason::Short { resource: Amount::Extended(_), allocatable: 0, .. } => {
            (place_of_machine(pool), "has no GPUs".to_owned())
        }
        Reason::Short { resource, free, allocatable, .. } => {
            let (left, all) = (resource.text(*free), resource.text(*allocatable));
            let text = match resource {
                Amount::Extended(_) | Amount::Pods => format!("a node has {all}"),
                Amount::Cpu | Amount::Memory | Amount::EphemeralStorage if left == all => {
                    format!("a new node has {all}{}", noun(resource))
                }
                Amount::Cpu | Amount::Memory | Amount::EphemeralStorage => {
                    format!("a new node has {left} of {all}{} left beside GKE's own Pods", noun(resource))
                }
            };
            (place_of_size(pool, resource), text)
        }
        Reason::Taint { taint } => taint_label(pool, taint),
        Reason::Selector { key, found: Some(found), .. } => {
            (place_of_label(pool, key), format!("has `{key}={found}`"))
        }
        Reason::Selector { key, found: None, .. } | Reason::NoDomain { topology_key: key } => {
            (section.clone(), format!("has no `{key}`"))
        }
        Reason::Affinity { .. } => (section.clone(), "has other labels".to_owned()),
        _ => (section.clone(), "refuses it".to_owned()),
    }
}

fn taint_label(pool: &PoolNodes<'_>, taint: &Taint) -> (FieldPath, String) {
    let taints = pool.resource.body["config"]["taints"].as_array();
    let own = taints.and_then(|taints| taints.iter().position(|own| own["key"] == taint.key.as_str()));
    match own {
        Some(index) => {
            let place = FieldPath::keys(["config", "taints"]).index(index);
            (pool.resource.origin_of(&place), format!("keeps off Pods without a toleration of `{taint}`"))
        }
        None if taint.key == GPU => {
            (place_of_machine(pool), format!("has GPUs: GKE taints its nodes with `{taint}`"))
        }
        None => (pool.resource.origin.clone(), format!("GKE taints its nodes with `{taint}`")),
    }
}

fn place_of_machine(pool: &PoolNodes<'_>) -> FieldPath {
    pool.resource.origin_of(&FieldPath::keys(["config", "machineType"]))
}

fn place_of_size(pool: &PoolNodes<'_>, resource: &Amount) -> FieldPath {
    let key = match resource {
        Amount::EphemeralStorage if !pool.resource.body["config"]["diskSizeGb"].is_null() => "diskSizeGb",
        Amount::Extended(_) if !pool.resource.body["config"]["accelerators"].is_null() => "accelerators",
        Amount::Pods if !pool.resource.body["maxPodsConstraint"].is_null() => {
            return pool.resource.origin_of(&FieldPath::keys(["maxPodsConstraint", "maxPodsPerNode"]));
        }
        _ => "machineType",
    };
    pool.resource.origin_of(&FieldPath::keys(["config", key]))
}

fn place_of_label(pool: &PoolNodes<'_>, key: &str) -> FieldPath {
    if key == POOL_LABEL {
        return pool.resource.origin_of(&FieldPath::keys(["name"]));
    }
    match pool.resource.body["config"]["labels"][key].is_null() {
        true => pool.resource.origin.clone(),
        false => pool.resource.origin_of(&FieldPath::keys(["config", "labels", key])),
    }
}

/// Returns the smallest change after which a node takes the pod. It is a change of the first pool, which is the nearest one.
fn cure(pod: &PodTemplate<'_>, refused: &[(&PoolNodes<'_>, Vec<Refusal>)], pools: &Pools<'_>) -> String {
    let Some((pool, refusals)) = refused.first() else {
        return String::new();
    };
    let (mut cures, mut shorts) = (Vec::new(), Vec::new());
    for refusal in refusals {
        match &refusal.reason {
            Reason::Taint { taint } if taint.key == GPU && is_of_section(pod) => {
                cures.push("set `gpus`, or add a toleration of `nvidia.com/gpu` in `pod`".to_owned());
            }
            Reason::Taint { taint } if taint.key == GPU => {
                cures
                    .push("ask for `nvidia.com/gpu` in the limits of a container, or tolerate it".to_owned());
            }
            Reason::Taint { taint } => cures.push(format!("add a toleration of `{}` to the Pod", taint.key)),
            Reason::Short { resource: Amount::Extended(_), free, .. } => cures.push(more_gpus(pool, *free)),
            Reason::Short { resource, free, .. } => shorts.push((resource, *free)),
            Reason::Selector { .. } | Reason::Affinity { .. } => {
                cures.push("select labels that one pool has".to_owned());
            }
            Reason::NoDomain { .. } => cures.push("spread by a label that the nodes have".to_owned()),
            _ => {}
        }
    }
    if !shorts.is_empty() {
        cures.push(larger(pod, pool, pools, &shorts));
    }
    cures.dedup();
    cures.join("; ")
}

fn more_gpus(pool: &PoolNodes<'_>, free: i64) -> String {
    let pool = &pool.resource.address;
    let more = format!("give `{pool}` a machine type or an `accelerator` with more");
    match free {
        ..=0 => more,
        1 => format!("ask for 1 GPU, or {more}"),
        free => format!("ask for at most {free} GPUs, or {more}"),
    }
}

fn larger(
    pod: &PodTemplate<'_>,
    pool: &PoolNodes<'_>,
    pools: &Pools<'_>,
    shorts: &[(&Amount, i64)],
) -> String {
    let at_most = |(resource, free): &(&Amount, i64)| at_most(resource, pools.sure(pool, resource, *free));
    let left: Vec<String> = shorts.iter().filter_map(at_most).collect();
    let less = listed(left.iter().map(String::as_str), "and").replace('`', "");
    let larger = pools.enlarged(pool, &without_demands(&pod.requirements)).map(|(machine, disk)| {
        let machine = machine.map(|machine| format!("`machine_type = \"{machine}\"`"));
        let disk = disk.map(|size| format!("`disk_size_gb = {size}`"));
        machine.into_iter().chain(disk).collect::<Vec<_>>().join(" and ")
    });
    match (larger, less.is_empty()) {
        (Some(larger), true) => format!("set {larger} in `{}`", pool.resource.address),
        (Some(larger), false) => {
            format!("set {larger} in `{}`, or ask for at most {less}", pool.resource.address)
        }
        (None, true) => "ask for less: no machine of this family is large enough".to_owned(),
        (None, false) => format!("ask for at most {less}: no machine of this family is large enough"),
    }
}

/// Returns the pod without selectors and with all tolerations, to check only its size.
fn without_demands(pod: &PodRequirements) -> PodRequirements {
    PodRequirements {
        tolerations: vec![fit::Toleration::everything()],
        node_selector: BTreeMap::new(),
        node_terms: None,
        spread: Vec::new(),
        ..pod.clone()
    }
}

/// Returns an amount of a resource, rounded down to a tenth.
fn at_most(resource: &Amount, sure: i64) -> Option<String> {
    let (unit, name) = match resource {
        Amount::Cpu => (1000, " CPUs"),
        Amount::Memory => (1 << 30, "Gi of memory"),
        Amount::EphemeralStorage => (1 << 30, "Gi of disk"),
        Amount::Extended(_) | Amount::Pods => return None,
    };
    let tenths = sure * 10 / unit;
    (tenths > 0).then(|| match tenths % 10 {
        0 => format!("{}{name}", tenths / 10),
        rest => format!("{}.{rest}{name}", tenths / 10),
    })
}
