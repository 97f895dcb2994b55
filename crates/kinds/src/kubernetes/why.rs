//! Reasons why a pod does not run, from the pod, its events and its pool, and their remedies.
//!
//! Sources of the messages: kube-scheduler 1.36 (`pkg/scheduler/framework/types.go`, filter plugins), cluster-autoscaler
//! (`core/scaleup`, events `NotTriggerScaleUp`, `TriggeredScaleUp`, `FailedScaleUp`), kubelet (`images/types.go`), GKE's
//! conditions of node pools.

use serde_json::Value;

use crate::json::{number, text};
use crate::kubernetes::pod_state::{ContainerState, PodState};
use crate::pod;
use crate::scale::{ReplicaOwner, ScaleTarget};
use fit::Refusal;
use model::address::{Address, FieldPath};
use model::resource::{Identity, Resource};

/// The reason why something does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// A stable word: `gpus`, `stock_out`, `image`.
    pub code: &'static str,
    /// The problem, in words.
    pub what: String,
    /// The message of the component that reports it.
    pub said: Option<String>,
    /// Remedies, the likeliest first.
    pub remedies: Vec<String>,
    /// The effect of waiting.
    pub outlook: Outlook,
}

/// The effect of waiting on a cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outlook {
    /// Nobody can tell.
    #[default]
    Unknown,
    /// A node is created for the pod, or the autoscaler is about to decide.
    NodeIsComing,
    /// The pool has its largest size, and pods on it end, or its last nodes are about to be ready.
    RoomIsComing,
    /// GKE lacks machines or quota for a node of the pod's pool, and tries again.
    NoMachines,
    /// The autoscaler adds no node of the pod's pool, as a new one would not take the pod.
    NoNode,
    /// No new node of the stack's pools takes the pod, by kube-scheduler's rules.
    NoFit,
    /// The autoscaler says that a pool has its largest size. It names each such pool, also those that the pod does not select.
    PoolIsFull,
}

impl Cause {
    fn with_outlook(self, outlook: Outlook) -> Self {
        Self { outlook, ..self }
    }
}

/// The facts of a node pool that matter to a pod that waits for it.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Its live name.
    pub name: String,
    /// Its address in the stack.
    pub address: String,
    /// The position of its number of nodes: `stack.toml:17:9`.
    pub position: String,
    /// The number of nodes, if it is fixed.
    pub nodes: Option<u64>,
    /// The number of nodes that have enough GPUs for all pods of the stack in this pool.
    pub needed: Option<u64>,
    /// The largest number of nodes, if the pool is autoscaled.
    pub most: Option<u64>,
    /// Its live state at GKE.
    pub live: Value,
}

impl Pool {
    /// Returns the pool of a resource with this number of nodes, without its live state; `None` for other kinds. `locate` returns
    /// the position of a field in the stack file.
    pub fn of(
        resource: &Resource,
        scaled: &ScaleTarget,
        locate: &dyn Fn(&FieldPath) -> String,
    ) -> Option<Self> {
        let Identity::NodePool { pool, .. } = &resource.identity else { return None };
        let (nodes, most) = match &scaled.replica_owner {
            ReplicaOwner::File(nodes) => (Some(*nodes), None),
            ReplicaOwner::Autoscaler { max, .. } if *max > 0 => (None, Some(*max)),
            ReplicaOwner::Autoscaler { .. } | ReplicaOwner::Notebooks(_) | ReplicaOwner::Unmanaged => {
                (None, None)
            }
        };
        Some(Self {
            name: pool.clone(),
            address: resource.address.to_string(),
            position: locate(&scaled.origin),
            nodes,
            needed: None,
            most,
            live: Value::Null,
        })
    }

    /// Returns true if new nodes of the pool have the taint that a reason of the scheduler names, as far as its live state is known.
    fn has_taint(&self, reason: &str) -> bool {
        let config = &self.live["config"];
        if config.is_null() {
            return true;
        }
        let has_gpus = !config["accelerators"][0].is_null();
        let mut taints = config["taints"].as_array().into_iter().flatten();
        match braced(reason).and_then(|taint| taint.split(':').next()) {
            Some("nvidia.com/gpu") => has_gpus,
            Some(key) => taints.any(|taint| taint["key"] == *key),
            None => has_gpus || taints.next().is_some(),
        }
    }

    /// Raises `needed` to the nodes for the GPUs that live pods request from the pool: workers may have been scaled since.
    pub fn needs(&mut self, pods: &[Value]) {
        let here = pods.iter().filter(|pod| pod::selected_pool(&pod["spec"]) == Some(&self.name));
        let asked: u64 = here.map(|pod| pod::gpus(&pod["spec"])).sum();
        let a_node = number(&self.live["config"]["accelerators"][0]["acceleratorCount"]).unwrap_or_default();
        if a_node > 0 && asked > 0 {
            self.needed = Some(self.needed.unwrap_or(0).max(asked.div_ceil(a_node)));
        }
    }
}

/// A pool with the reasons why its new nodes do not take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRefusal {
    pub pool: Address,
    pub refusals: Vec<Refusal>,
}

/// Facts around a pod that help to explain it.
pub struct PodContext<'a> {
    /// Events about the pod, in any order.
    pub events: &'a [Value],
    /// The end of the log of its crashing container.
    pub log: Option<&'a str>,
    /// Node pools of the stack.
    pub pools: &'a [Pool],
    /// Returns the pool that is nearest to taking a pod, with the reasons why its new nodes do not; `None` if new nodes of some pool
    /// may take it, or are not known, as on a cluster that is not of GKE.
    pub refusal: &'a dyn Fn(&Value) -> Option<PoolRefusal>,
    /// Returns the position of a key of the pod's section: `cpu` gives `stack.toml:12:5`.
    pub position: &'a dyn Fn(&str) -> String,
    /// True if the section has keys for its pod, such as `pool` and `gpus`.
    pub has_keys: bool,
    /// The name of the program in commands.
    pub program: &'a str,
    /// The address of the workers that the pod is one of, for a pod whose number `scale` can change.
    pub workers_address: Option<&'a str>,
}

/// Returns why a pod does not run; `None` if it does, or has succeeded.
pub fn of_pod(pod: &Value, context: &PodContext<'_>) -> Option<Cause> {
    let state = PodState(pod);
    if state.is_ready() || state.phase() == "Succeeded" {
        return None;
    }
    if state.is_terminating() {
        return Some(cause("going", "it is being deleted", None, vec!["wait until it is deleted".into()]));
    }
    if let Some(scheduled) = state.unscheduled() {
        return Some(unscheduled(pod, scheduled, context));
    }
    if let Some(cause) = state.containers().find_map(|container| stuck(container, context)) {
        return Some(cause);
    }
    if text(&pod["spec"]["nodeName"]).is_empty() {
        let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
        let what = format!("not yet seen by its scheduler `{scheduler}`");
        return Some(cause("unseen", &what, None, vec!["check again in a few seconds".into()]));
    }
    let warning = newest(context.events, |event| event["type"] == "Warning");
    let said = warning.map(|event| format!("{}: {}", text(&event["reason"]), text(&event["message"])));
    let unhealthy = warning.is_some_and(|event| event["reason"] == "Unhealthy");
    Some(if unhealthy {
        let remedies = vec![
            "its log shows why it does not answer; a probe that starts too early needs `initialDelaySeconds`"
                .into(),
        ];
        cause("probe", "it is running, but its readiness probe fails", said, remedies)
    } else {
        let what = format!("it is starting on node {}", text(&pod["spec"]["nodeName"]));
        let remedies = vec!["the first pull of a 10 GB image on a node takes minutes".into()];
        cause("starting", &what, said, remedies)
    })
}

pub(crate) fn cause(code: &'static str, what: &str, said: Option<String>, remedies: Vec<String>) -> Cause {
    Cause { code, what: what.to_owned(), said, remedies, outlook: Outlook::Unknown }
}

/// Returns the newest matching event.
fn newest(events: &[Value], meant: impl Fn(&Value) -> bool) -> Option<&Value> {
    let time = |event: &&Value| {
        let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
        times.iter().map(|time| text(time).to_owned()).max()
    };
    events.iter().filter(|event| meant(event)).max_by_key(time)
}

/// Returns `2 Insufficient nvidia.com/gpu` of `0/5 nodes are available: …`, without the part about preemption.
pub fn predicates(message: &str) -> Vec<(u64, String)> {
    let message = shortened(message);
    let reasons = message.split_once(": ").map_or(message, |(_, reasons)| reasons);
    let mut found: Vec<(u64, String)> = Vec::new();
    for part in reasons.trim_end_matches(['.', ' ']).split(", ") {
        let counted = part.split_once(' ').and_then(|(number, what)| Some((number.parse().ok()?, what)));
        match (counted, found.last_mut()) {
            (Some((number, what)), _) => found.push((number, what.to_owned())),
            // A comma inside of a reason.
            (None, Some((_, before))) => {
                before.push_str(", ");
                before.push_str(part);
            }
            (None, None) => {}
        }
    }
    found
}

/// The text for a pod whose node affinity or selector matches no node.
pub const NO_LABELS: &str = "no node has the labels that it requires";

/// Translates the scheduler's message: `no node fits: 2 without a free GPU, 1 not ready yet`. Nodes that the pod does not select
/// are left out, as most of them are in other pools.
pub fn no_node(message: &str) -> String {
    if message.starts_with("no nodes available") {
        return "the cluster has no nodes".to_owned();
    }
    let mut reasons = predicates(message);
    if reasons.is_empty() {
        return shortened(message).to_owned();
    }
    reasons.retain(|(_, reason)| !reason.contains("node affinity/selector"));
    if reasons.is_empty() {
        return NO_LABELS.to_owned();
    }
    // Reasons that more nodes would fix come before reasons that rule a node out permanently.
    reasons.sort_by_key(|(_, reason)| !reason.starts_with("Insufficient ") && reason != "Too many pods");
    let words: Vec<String> = reasons.iter().map(|(nodes, why)| format!("{nodes} {}", lacks(why))).collect();
    format!("no node fits: {}", words.join(", "))
}

/// Translates the scheduler's message for a pod with this PodSpec. A pod whose pool is empty also matches no node; it waits for
/// one.
pub fn no_node_for(spec: &Value, message: &str) -> String {
    let reasons = predicates(message);
    let elsewhere = |(_, reason): &(u64, String)| reason.contains("node affinity/selector");
    match pod::selected_pool(spec) {
        Some(pool) if !reasons.is_empty() && reasons.iter().all(elsewhere) => {
            format!("waiting for a node in pool `{pool}`")
        }
        _ => no_node(message),
    }
}

/// Translates the node autoscaler's message about a pod for which it adds no node: `the autoscaler adds no node: 1 with the taint
/// nvidia.com/gpu: present`. `None` if it adds one, or says nothing about new nodes of the pod's pools.
pub fn no_scale_up(events: &[Value]) -> Option<String> {
    let newest = newest(events, is_scaling).filter(|event| event["reason"] == "NotTriggerScaleUp")?;
    let reasons: Vec<String> = predicates(text(&newest["message"]))
        .iter()
        .filter(|(_, reason)| !reason.contains("node affinity/selector"))
        .map(|(_, reason)| match reason.strip_prefix("Insufficient ") {
            Some(resource) => format!("a new node would not have enough {resource}"),
            None if reason.starts_with(MAX_SIZE_REACHED) => "a pool has its maximum of nodes".to_owned(),
            None => match taint(reason) {
                Some(taint) => format!("a new node would have the taint {taint}"),
                None => reason.trim_start_matches("node(s) ").to_owned(),
            },
        })
        .collect();
    (!reasons.is_empty()).then(|| format!("the autoscaler adds no node: {}", reasons.join(", ")))
}

/// The autoscaler's message about a pool with its largest number of nodes.
const MAX_SIZE_REACHED: &str = "max node group size reached";

fn is_scaling(event: &Value) -> bool {
    matches!(text(&event["reason"]), "NotTriggerScaleUp" | "TriggeredScaleUp" | "FailedScaleUp")
}

/// Returns what a node lacks, as text after a number of nodes. Source: the filter plugins' `ErrReason` texts.
fn lacks(reason: &str) -> String {
    match reason {
        "Insufficient nvidia.com/gpu" => "without a free GPU".to_owned(),
        "Too many pods" => "at their limit of pods".to_owned(),
        "node(s) were unschedulable" => "cordoned".to_owned(),
        other => match (other.strip_prefix("Insufficient "), taint(other)) {
            (Some(resource), _) => format!("without enough {resource}"),
            (None, Some("node.kubernetes.io/not-ready")) => "not ready yet".to_owned(),
            // kube-scheduler 1.36 names no taint.
            (None, Some("(s)")) => "with taints that it does not tolerate".to_owned(),
            (None, Some(taint)) => format!("with the taint {taint}"),
            (None, None) => other.trim_start_matches("node(s) ").to_owned(),
        },
    }
}

/// Returns `nvidia.com/gpu: present` of `node(s) had untolerated taint {nvidia.com/gpu: present}`.
fn taint(reason: &str) -> Option<&str> {
    let (_, taint) = reason.split_once("untolerated taint")?;
    Some(taint.trim().trim_matches(['{', '}', ' ', ':']))
}

/// Returns the one pool that a pod must run on.
fn pool_of<'a>(pod: &Value, pools: &'a [Pool]) -> Option<&'a Pool> {
    let name = pod::selected_pool(&pod["spec"])?;
    pools.iter().find(|pool| pool.name == name)
}

fn unscheduled(pod: &Value, scheduled: &Value, context: &PodContext<'_>) -> Cause {
    let message = text(&scheduled["message"]);
    if scheduled["reason"] == "SchedulingGated" {
        let remedies =
            vec!["whoever set the gates removes them: Kueue, when its queue admits the pod".into()];
        return cause("gated", "it has scheduling gates", Some(message.to_owned()), remedies);
    }
    let pool = pool_of(pod, context.pools);
    let scaling = newest(context.events, is_scaling);
    let scaling_said =
        scaling.map(|event| format!("{}: {}", text(&event["reason"]), text(&event["message"])));
    if scaling.is_some_and(|event| event["reason"] == "TriggeredScaleUp") {
        let remedies =
            vec!["wait: GKE adds a GPU node in 2 to 10 minutes, including the driver installation".into()];
        let what = match pool {
            Some(pool) => format!("waiting for a node: the autoscaler is adding one to {}", pool.address),
            None => "waiting for a node: the autoscaler is adding one".to_owned(),
        };
        return cause("scaling", &what, scaling_said, remedies).with_outlook(Outlook::NodeIsComing);
    }
    // GKE keeps the condition of a pool while it tries another zone.
    if let Some(cause) = capacity(pool, scaling, context) {
        return cause;
    }
    let reasons = predicates(message);
    let refused = scaling.filter(|event| event["reason"] == "NotTriggerScaleUp");
    if let Some(cause) =
        refused.and_then(|event| not_scaled(text(&event["message"]), &reasons, pool, context))
    {
        return cause;
    }
    let said = Some(shortened(message).to_owned());
    if let Some(refusal) = (context.refusal)(pod) {
        return fits_nowhere(&refusal, scaling_said.or(said), context);
    }
    let has = |words: &str| reasons.iter().any(|(_, reason)| reason.starts_with(words));
    if let Some((_, reason)) = reasons.iter().find(|(_, reason)| reason.starts_with("Insufficient ")) {
        return insufficient(
            reason.trim_start_matches("Insufficient "),
            pool,
            scaling_said.or(said),
            context,
        );
    }
    if has("Too many pods") {
        let remedies = vec![more_nodes(pool, context)];
        return cause("pods", "the nodes it can run on are at their limit of pods", said, remedies);
    }
    if let Some(pool) = pool.filter(|pool| pool.nodes == Some(0)) {
        let what = format!("{} has no nodes", pool.address);
        return cause("no_nodes", &what, said, vec![more_nodes(Some(pool), context)]);
    }
    if message.starts_with("no nodes available") {
        return cause("no_nodes", "the cluster has no nodes", said, vec![more_nodes(pool, context)]);
    }
    if let Some((_, reason)) = reasons.iter().find(|(_, reason)| reason.contains("untolerated taint")) {
        return tainted(reason, said, context);
    }
    let elsewhere = |(_, reason): &(u64, String)| reason.contains("node affinity/selector");
    if let Some(pool) =
        pool.filter(|pool| pool.most.is_some() && !reasons.is_empty() && reasons.iter().all(elsewhere))
    {
        let what = format!("waiting for a node: {} has none yet, and its autoscaler adds them", pool.address);
        let remedies = vec![
            "wait: GKE adds a GPU node in 2 to 10 minutes, including the driver installation".to_owned(),
            format!(
                "if none comes, see GKE's message about the pool: {} why {}",
                context.program, pool.address
            ),
        ];
        return cause("no_nodes", &what, scaling_said.or(said), remedies).with_outlook(Outlook::NodeIsComing);
    }
    if has("node(s) didn't match Pod's node affinity/selector") {
        let what = match pool {
            Some(pool) => format!("no node it can run on has the labels of {}", pool.address),
            None => NO_LABELS.to_owned(),
        };
        let remedies = vec![
            match context.has_keys {
                true => {
                    format!("name a pool that exists and has nodes: `pool` at {}", (context.position)("pool"))
                }
                false => format!(
                    "select labels that nodes have: `nodeSelector` or node affinity at {}",
                    (context.position)("nodeSelector")
                ),
            },
            "list the nodes: kubectl get nodes -L cloud.google.com/gke-nodepool".to_owned(),
        ];
        return cause("affinity", &what, said, remedies);
    }
    if has("node(s) were unschedulable") {
        let remedies = vec!["they were cordoned, or GKE is draining them: kubectl uncordon NODE".into()];
        return cause("cordoned", "the nodes it can run on accept no new pods", said, remedies);
    }
    if reasons.iter().any(|(_, reason)| reason.contains("PersistentVolumeClaim") || reason.contains("volume"))
    {
        let remedies = vec!["check its claims: kubectl describe pvc".into()];
        return cause("volume", "its volumes are not available where it can run", said, remedies);
    }
    cause("unscheduled", "no node accepts it", said, Vec::new())
}

/// Returns the cause for a pod that no new node of the stack's pools takes, by the pool that is nearest to taking it.
fn fits_nowhere(nearest: &PoolRefusal, said: Option<String>, context: &PodContext<'_>) -> Cause {
    let PoolRefusal { pool, refusals } = nearest;
    let reasons: Vec<String> = refusals.iter().map(|refusal| refusal.reason.to_string()).collect();
    let what = format!(
        "no node that the stack's pools can have takes it; on a new node of {pool}, the nearest one, it {}",
        reasons.join(", and ")
    );
    let remedies = vec![format!("see which change is the smallest: {} validate", context.program)];
    cause("no_fit", &what, said, remedies).with_outlook(Outlook::NoFit)
}

/// Returns why the node autoscaler adds no node for a pod, from its message about new nodes. The message counts if the pod's pool
/// is autoscaled. For a pod without a pool it counts unless the scheduler reports that nodes only lack room: then it is about
/// other pools. Source: cluster-autoscaler, `core/scaleup/orchestrator` and `processors/status/eventing_scale_up_processor.go`.
fn not_scaled(
    message: &str,
    scheduler: &[(u64, String)],
    pool: Option<&Pool>,
    context: &PodContext<'_>,
) -> Option<Cause> {
    let lacks_room = scheduler.iter().any(|(_, reason)| reason.starts_with("Insufficient "));
    if pool.map_or(lacks_room, |pool| pool.most.is_none()) {
        return None;
    }
    let reasons = predicates(message);
    let find =
        |words: &str| reasons.iter().map(|(_, reason)| reason.as_str()).find(|reason| reason.contains(words));
    let said = Some(format!("NotTriggerScaleUp: {message}"));
    let whose = pool.map_or_else(|| "a pool".to_owned(), |pool| pool.address.clone());
    if find(MAX_SIZE_REACHED).is_some() {
        let what = format!("{whose} has its maximum of nodes, and none of them has room for it");
        let remedies = [more_nodes(pool, context)].into_iter().chain(fewer_workers("or use", context));
        return Some(cause("most", &what, said, remedies.collect()).with_outlook(Outlook::PoolIsFull));
    }
    if let Some(resource) = find("Insufficient ").and_then(|reason| reason.strip_prefix("Insufficient ")) {
        let what = format!("it requests more {resource} than a new node of {whose} has");
        let key = if resource == "nvidia.com/gpu" { "gpus" } else { resource };
        let larger = pool.map_or_else(
            || "or add a pool of larger machines".to_owned(),
            |pool| format!("or choose a larger `machine_type` for {} at {}", pool.address, pool.position),
        );
        let code = match resource {
            "nvidia.com/gpu" => "gpus",
            "cpu" => "cpu",
            "memory" | "ephemeral-storage" => "memory",
            _ => "resource",
        };
        let less = format!("request less: `{key}` at {}", (context.position)(key));
        return Some(cause(code, &what, said, vec![less, larger]).with_outlook(Outlook::NoNode));
    }
    if find("in backoff after failed scale-up").is_some() {
        let what = format!(
            "the node autoscaler could not create a node of {whose}, and waits before it tries again"
        );
        let remedies = vec![
            "wait: GKE keeps trying".to_owned(),
            format!("see GKE's message about the pool: {} why {whose}", context.program),
        ];
        return Some(cause("scale_up_failed", &what, said, remedies).with_outlook(Outlook::NoMachines));
    }
    // kube-scheduler's rules stop at the first reason, and taints come before labels: other pools' taints are named, too.
    if let Some(reason) =
        find("untolerated taint").filter(|reason| pool.is_none_or(|pool| pool.has_taint(reason)))
    {
        let Cause { code, remedies, .. } = tainted(reason, None, context);
        let what = format!("a new node of {whose} would have {} it does not tolerate", of_taint(reason));
        return Some(cause(code, &what, said, remedies).with_outlook(Outlook::NoNode));
    }
    None
}

/// Returns the cause if machines are not available: by the node autoscaler's message, or GKE's about the pool.
fn capacity(pool: Option<&Pool>, scaling: Option<&Value>, context: &PodContext<'_>) -> Option<Cause> {
    let failed =
        scaling.filter(|event| event["reason"] == "FailedScaleUp").map(|event| text(&event["message"]));
    let of_pool = pool.and_then(|pool| {
        let conditions = pool.live["conditions"].as_array().into_iter().flatten();
        let mut bad = conditions.filter(|one| text(&one["code"]).starts_with("GCE_"));
        bad.next().map(|one| (text(&one["code"]), text(&one["message"])))
    });
    let (short, said) = match (failed, of_pool) {
        (Some(words), _) => {
            let lower = words.to_ascii_lowercase();
            let quota = lower.contains("quota");
            let short = lower.contains("out of resources") || lower.contains("stockout");
            (
                if quota {
                    "quota"
                } else if short {
                    "stock_out"
                } else {
                    "scale_up_failed"
                },
                words,
            )
        }
        (None, Some(("GCE_QUOTA_EXCEEDED", words))) => ("quota", words),
        (None, Some((_, words))) => ("stock_out", words),
        (None, None) => return None,
    };
    let whose = pool.map_or_else(|| "a pool".to_owned(), |pool| pool.address.clone());
    let program = context.program;
    let (what, mut remedies) = match short {
        "quota" => (
            format!("the project's quota does not allow more machines for {whose}"),
            vec![
                format!("see what is missing: {program} doctor"),
                "request more in the console under IAM, Quotas, or use another region or machine type".to_owned(),
            ],
        ),
        "stock_out" => (
            format!("the zone is out of the machines of {whose}"),
            vec![
                "wait: GKE keeps trying".to_owned(),
                "use another zone or GPU: `zones`, `machine_type` of the pool; or `spot = true`, which has its \
                 own capacity"
                    .to_owned(),
            ],
        ),
        _ => (
            format!("the node autoscaler could not create a node of {whose}"),
            vec![format!("see GKE's message about the pool: {program} why {whose}")],
        ),
    };
    if short == "stock_out" {
        remedies.extend(fewer_workers("continue with", context));
    }
    Some(cause(short, &what, Some(said.to_owned()), remedies).with_outlook(Outlook::NoMachines))
}

fn fewer_workers(lead: &str, context: &PodContext<'_>) -> Option<String> {
    context
        .workers_address
        .map(|address| format!("{lead} fewer workers: {} scale {address} N", context.program))
}

fn insufficient(
    resource: &str,
    pool: Option<&Pool>,
    said: Option<String>,
    context: &PodContext<'_>,
) -> Cause {
    let at = |key: &str| (context.position)(key);
    let more = more_nodes(pool, context);
    let fewer = fewer_workers("or use", context);
    match resource {
        "nvidia.com/gpu" => {
            let what = "the nodes it can run on have no free GPU".to_owned();
            cause("gpus", &what, said, [more].into_iter().chain(fewer).collect())
        }
        "cpu" | "memory" | "ephemeral-storage" => {
            let what = format!("no node it can run on has as much free {resource} as it requests");
            let less = format!("request less: `{resource}` at {}", at(resource));
            let code = if resource == "cpu" { "cpu" } else { "memory" };
            cause(code, &what, said, [less, more].into_iter().chain(fewer).collect())
        }
        other => {
            let what = format!("no node it can run on has free `{other}`");
            cause("resource", &what, said, vec![more])
        }
    }
}

fn more_nodes(pool: Option<&Pool>, context: &PodContext<'_>) -> String {
    match pool {
        Some(Pool { address, nodes: Some(nodes), needed, .. }) => {
            format!(
                "more nodes: {} scale {address} {} --write",
                context.program,
                needed.unwrap_or(0).max(nodes + 1)
            )
        }
        Some(Pool { address, most: Some(most), position, .. }) => {
            format!("its autoscaler is limited to {most}: raise `max` of {address} at {position}, then apply")
        }
        Some(Pool { address, .. }) => format!("ask the owner of {address} for more nodes"),
        None if context.has_keys => {
            "choose a pool with free nodes with `pool`, or enlarge one with `nodes`".to_owned()
        }
        None => "enlarge a pool that it may run on with `nodes`".to_owned(),
    }
}

/// Returns `nvidia.com/gpu: present` between braces. kube-scheduler 1.36 names no taint: `node(s) had untolerated taint(s)`.
fn braced(reason: &str) -> Option<&str> {
    reason.split_once('{').and_then(|(_, rest)| rest.split('}').next())
}

/// Returns `the taint nvidia.com/gpu: present, which`, to be followed by `the pod does not tolerate`.
fn of_taint(reason: &str) -> String {
    braced(reason).map_or_else(|| "taints that".to_owned(), |taint| format!("the taint {taint}, which"))
}

fn tainted(reason: &str, said: Option<String>, context: &PodContext<'_>) -> Cause {
    let key = braced(reason).and_then(|taint| taint.split(':').next()).unwrap_or_default().trim();
    let what = format!("the nodes with free capacity have {} it does not tolerate", of_taint(reason));
    let position = |key: &str| (context.position)(key);
    let remedies = if key == "nvidia.com/gpu" && !context.has_keys {
        let plain = context.pools.iter().filter(|pool| pool.live["config"]["accelerators"][0].is_null());
        let more: Vec<String> = plain.map(|pool| more_nodes(Some(pool), context)).collect();
        if more.is_empty() { vec!["add a node pool without GPUs".to_owned()] } else { more }
    } else if key == "nvidia.com/gpu" {
        vec![
            format!("it requests no GPU: set `gpus = 1` at {}", position("gpus")),
            format!("or run it on a pool without GPUs: `pool` at {}", position("pool")),
        ]
    } else if key.starts_with("node.kubernetes.io/") || key.starts_with("node.cloudprovider") {
        vec!["nodes are not ready yet, or unhealthy: kubectl get nodes".to_owned()]
    } else if !context.has_keys {
        vec![format!("give it a toleration: `tolerations` at {}", position("tolerations"))]
    } else {
        vec![
            format!("name the pool: `pool` at {} adds the tolerations for its taints", position("pool")),
            "or give it a toleration in `pod`".to_owned(),
        ]
    };
    cause("taint", &what, said, remedies)
}

/// Returns the cause for a container that cannot start or keeps crashing.
fn stuck(container: ContainerState<'_>, context: &PodContext<'_>) -> Option<Cause> {
    let (reason, message) = container.waiting().unwrap_or_default();
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            let event =
                newest(context.events, |event| text(&event["message"]).contains("ailed to pull image"));
            // Backing off says no more than that.
            let said = event.map_or(message, |event| text(&event["message"]));
            Some(unpulled(container.image(), said, context))
        }
        "CrashLoopBackOff" => Some(crashed(container, context)),
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            let what = format!("container {} cannot be created", container.name());
            let remedies =
                vec!["what it refers to must exist: Secrets, ConfigMaps, commands of the image".into()];
            Some(cause("config", &what, Some(message.to_owned()), remedies))
        }
        _ => container.terminated().map(|_| crashed(container, context)),
    }
}

fn unpulled(image: &str, said: &str, context: &PodContext<'_>) -> Cause {
    let lower = said.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let at = (context.position)("image");
    let (code, what, remedy) = if has(&["manifest unknown", "not found", "manifest for"]) {
        (
            "image",
            format!("the image {image} does not exist"),
            format!("fix its name or tag: `image` at {at}"),
        )
    } else if has(&["unauthorized", "denied", "forbidden", "401", "403"]) {
        (
            "image_rights",
            format!("the nodes may not pull {image}"),
            "give the nodes' service account Artifact Registry Reader, or name `imagePullSecrets` in `pod`"
                .to_owned(),
        )
    } else if has(&["no such host", "timeout", "dial tcp", "connection refused", "deadline exceeded", "tls"])
    {
        (
            "image_network",
            format!("the nodes cannot reach the registry of {image}"),
            "private nodes need Cloud NAT or a mirror in Artifact Registry".to_owned(),
        )
    } else if has(&["toomanyrequests", "rate limit"]) {
        (
            "image_limit",
            format!("the registry of {image} limits the rate of requests"),
            "log in with `imagePullSecrets`, or mirror the image in Artifact Registry".to_owned(),
        )
    } else if has(&["no space left"]) {
        (
            "disk",
            format!("the node's disk has no room for {image}"),
            "a larger `disk_size_gb` of the pool".to_owned(),
        )
    } else {
        ("image", format!("the image {image} cannot be pulled"), format!("check its name: `image` at {at}"))
    };
    cause(code, &what, Some(said.to_owned()).filter(|said| !said.is_empty()), vec![remedy])
}

fn crashed(container: ContainerState<'_>, context: &PodContext<'_>) -> Cause {
    let ended = container.terminated().or(container.last()).unwrap_or(&Value::Null);
    let (name, restarts) = (container.name(), container.restarts());
    let again = if restarts == 0 { String::new() } else { format!(", {restarts} restarts") };
    let log = context.log.map(str::trim_end).filter(|log| !log.is_empty());
    let log = log.map(|log| format!("the end of its log:\n{log}"));
    if ended["reason"] == "OOMKilled" {
        let what = format!("container {name} exceeds its memory limit{again}");
        let remedies = vec![format!("raise `memory` at {}", (context.position)("memory"))];
        return cause("out_of_memory", &what, log, remedies);
    }
    let code = ended["exitCode"].as_i64();
    let what = match code {
        Some(code) => format!("container {name} exits with code {code}{again}"),
        None => format!("container {name} keeps exiting{again}"),
    };
    let remedy = match code {
        Some(126 | 127) => {
            format!("the image does not have this command: `args` at {}", (context.position)("args"))
        }
        _ => "fix what its log reports, then apply".to_owned(),
    };
    cause("crash", &what, log, vec![remedy])
}

/// Returns the scheduler's message without the parts about preemption and claims, which are not useful here: kube-scheduler 1.36
/// ends with `. no new claims to deallocate, preemption: …` (seen).
pub fn shortened(why: &str) -> &str {
    match why.split_once(". ") {
        Some((first, rest)) if rest.contains("preemption: ") => &why[..=first.len()],
        Some(_) | None => why.split(" preemption: ").next().unwrap_or(why),
    }
}

/// Returns why a node pool does not have its nodes.
pub fn of_pool(pool: &Pool, program: &str) -> Option<Cause> {
    let context = PodContext {
        events: &[],
        log: None,
        pools: &[],
        position: &|_| String::new(),
        refusal: &|_| None,
        has_keys: false,
        program,
        workers_address: None,
    };
    capacity(Some(pool), None, &context)
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
