//! Why a pod does not run, told by the pod, its events and its pool, and what cures it.
//!
//! Sources of the words: kube-scheduler 1.36 (`pkg/scheduler/framework/types.go`, filter plugins), cluster-autoscaler
//! (`core/scaleup`, events `NotTriggerScaleUp`, `TriggeredScaleUp`, `FailedScaleUp`), kubelet (`images/types.go`), GKE's
//! conditions of node pools.

use serde_json::Value;

use super::pod_state::{ContainerState, PodState};
use crate::kinds::json::{number, text};
use crate::kinds::pod;
use crate::kinds::scope::POOL_LABEL;

/// Why something does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// A stable word: `gpus`, `stock_out`, `image`.
    pub code: &'static str,
    /// What is the matter.
    pub what: String,
    /// The words that say so.
    pub said: Option<String>,
    /// What to do, the likeliest first.
    pub remedies: Vec<String>,
}

/// A node pool, as far as a pod that waits for it cares.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Its live name.
    pub name: String,
    /// Its address in the stack.
    pub address: String,
    /// Where its number of nodes stands: `stack.toml:17:9`.
    pub place: String,
    /// Nodes, when the file fixes them.
    pub nodes: Option<u64>,
    /// How many nodes have GPUs for all that the stack has run there, where it has some.
    pub needed: Option<u64>,
    /// Nodes at most, when an autoscaler has it.
    pub most: Option<u64>,
    /// What GKE says of it.
    pub live: Value,
}

impl Pool {
    /// Counts the GPUs that live pods ask of it: somebody may have scaled them since the stack was written.
    pub fn needs(&mut self, pods: &[Value]) {
        let here = pods.iter().filter(|pod| pod["spec"]["nodeSelector"][POOL_LABEL] == *self.name);
        let asked: u64 = here.map(|pod| pod::gpus(&pod["spec"])).sum();
        let a_node = number(&self.live["config"]["accelerators"][0]["acceleratorCount"]).unwrap_or_default();
        if a_node > 0 && asked > 0 {
            self.needed = Some(self.needed.unwrap_or(0).max(asked.div_ceil(a_node)));
        }
    }
}

/// What is around a pod.
pub struct PodContext<'a> {
    /// Events about the pod, in any order.
    pub events: &'a [Value],
    /// The end of the log of its container that crashes.
    pub log: Option<&'a str>,
    /// Node pools of the stack.
    pub pools: &'a [Pool],
    /// Where a key of the pod's section stands: `cpu` gives `stack.toml:12:5`.
    pub place: &'a dyn Fn(&str) -> String,
    /// Whether the section has keys for its pod: `pool`, `gpus` and the like.
    pub has_keys: bool,
    /// How the program is called.
    pub program: &'a str,
    /// The address whose number of workers the pod is one of.
    pub scaled: Option<&'a str>,
}

/// Why a pod does not run; `None` when it does, or has ended well.
pub fn of_pod(pod: &Value, context: &PodContext<'_>) -> Option<Cause> {
    let state = PodState(pod);
    if state.is_ready() || state.phase() == "Succeeded" {
        return None;
    }
    if state.is_going() {
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
    Cause { code, what: what.to_owned(), said, remedies }
}

/// The newest event of those that are meant.
fn newest(events: &[Value], meant: impl Fn(&Value) -> bool) -> Option<&Value> {
    let time = |event: &&Value| {
        let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
        times.iter().map(|time| text(time).to_owned()).max()
    };
    events.iter().filter(|event| meant(event)).max_by_key(time)
}

/// `2 Insufficient nvidia.com/gpu` of `0/5 nodes are available: …`, without what is said of preemption.
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

/// What the scheduler says, in words: `no node fits: 2 without a free GPU, 1 not ready yet`. Nodes that the pod does not ask
/// for are left out, as most are of other pools.
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
        return "no node has the labels that it requires".to_owned();
    }
    // What more nodes would cure stands before what rules a node out for good.
    reasons.sort_by_key(|(_, reason)| !reason.starts_with("Insufficient ") && reason != "Too many pods");
    let words: Vec<String> = reasons.iter().map(|(nodes, why)| format!("{nodes} {}", lacks(why))).collect();
    format!("no node fits: {}", words.join(", "))
}

/// What a node lacks, behind a number of nodes. Source: the filter plugins' `ErrReason` texts.
fn lacks(reason: &str) -> String {
    match reason {
        "Insufficient nvidia.com/gpu" => "without a free GPU".to_owned(),
        "Too many pods" => "at their limit of pods".to_owned(),
        "node(s) were unschedulable" => "cordoned".to_owned(),
        other => match (other.strip_prefix("Insufficient "), taint(other)) {
            (Some(resource), _) => format!("without enough {resource}"),
            (None, Some("node.kubernetes.io/not-ready")) => "not ready yet".to_owned(),
            (None, Some(taint)) => format!("with the taint {taint}"),
            (None, None) => other.trim_start_matches("node(s) ").to_owned(),
        },
    }
}

/// `nvidia.com/gpu: present` of `node(s) had untolerated taint {nvidia.com/gpu: present}`.
fn taint(reason: &str) -> Option<&str> {
    let (_, taint) = reason.split_once("untolerated taint")?;
    Some(taint.trim().trim_matches(['{', '}', ' ', ':']))
}

/// The one pool that a pod must run on.
fn pool_of<'a>(pod: &Value, pools: &'a [Pool]) -> Option<&'a Pool> {
    let name = pod["spec"]["nodeSelector"][POOL_LABEL].as_str()?;
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
    let scaling = newest(context.events, |event| {
        matches!(text(&event["reason"]), "NotTriggerScaleUp" | "TriggeredScaleUp" | "FailedScaleUp")
    });
    let scaling_said =
        scaling.map(|event| format!("{}: {}", text(&event["reason"]), text(&event["message"])));
    if let Some(cause) = capacity(pool, scaling, context) {
        return cause;
    }
    if scaling.is_some_and(|event| event["reason"] == "TriggeredScaleUp") {
        let remedies =
            vec!["wait: GKE adds a GPU node in 2 to 10 minutes, including the driver installation".into()];
        return cause("scaling", "the node autoscaler is adding a node for it", scaling_said, remedies);
    }
    let reasons = predicates(message);
    let said = Some(shortened(message).to_owned());
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
    if has("node(s) didn't match Pod's node affinity/selector") {
        let what = match pool {
            Some(pool) => format!("no node it can run on has the labels of {}", pool.address),
            None => "no node has the labels that it requires".to_owned(),
        };
        let remedies = vec![
            format!("name a pool that exists and has nodes: `pool` at {}", (context.place)("pool")),
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

/// Machines that are not to be had: the node autoscaler's words, or GKE's about the pool.
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
    Some(cause(short, &what, Some(said.to_owned()), remedies))
}

fn fewer_workers(lead: &str, context: &PodContext<'_>) -> Option<String> {
    context.scaled.map(|address| format!("{lead} fewer workers: {} scale {address} N", context.program))
}

fn insufficient(
    resource: &str,
    pool: Option<&Pool>,
    said: Option<String>,
    context: &PodContext<'_>,
) -> Cause {
    let at = |key: &str| (context.place)(key);
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
        Some(Pool { address, most: Some(most), place, .. }) => {
            format!("its autoscaler is limited to {most}: raise `max` of {address} at {place}, then apply")
        }
        Some(Pool { address, .. }) => format!("ask the owner of {address} for more nodes"),
        None => "choose a pool with free nodes with `pool`, or enlarge one with `nodes`".to_owned(),
    }
}

fn tainted(reason: &str, said: Option<String>, context: &PodContext<'_>) -> Cause {
    let taint = reason.split_once('{').and_then(|(_, rest)| rest.split('}').next()).unwrap_or(reason);
    let key = taint.split(':').next().unwrap_or(taint).trim();
    let what = format!("the nodes with free capacity have the taint {taint}, which it does not tolerate");
    let place = |key: &str| (context.place)(key);
    let remedies = if key == "nvidia.com/gpu" && !context.has_keys {
        let plain = context.pools.iter().filter(|pool| pool.live["config"]["accelerators"][0].is_null());
        let more: Vec<String> = plain.map(|pool| more_nodes(Some(pool), context)).collect();
        if more.is_empty() { vec!["add a node pool without GPUs".to_owned()] } else { more }
    } else if key == "nvidia.com/gpu" {
        vec![
            format!("it requests no GPU: set `gpus = 1` at {}", place("gpus")),
            format!("or run it on a pool without GPUs: `pool` at {}", place("pool")),
        ]
    } else if key.starts_with("node.kubernetes.io/") || key.starts_with("node.cloudprovider") {
        vec!["nodes are not ready yet, or unhealthy: kubectl get nodes".to_owned()]
    } else {
        vec![
            format!("name the pool: `pool` at {} adds the tolerations for its taints", place("pool")),
            "or give it a toleration in `pod`".to_owned(),
        ]
    };
    cause("taint", &what, said, remedies)
}

/// A container that cannot start, or does not stay.
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
    let at = (context.place)("image");
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
        let remedies = vec![format!("raise `memory` at {}", (context.place)("memory"))];
        return cause("out_of_memory", &what, log, remedies);
    }
    let code = ended["exitCode"].as_i64();
    let what = match code {
        Some(code) => format!("container {name} exits with code {code}{again}"),
        None => format!("container {name} keeps exiting{again}"),
    };
    let remedy = match code {
        Some(126 | 127) => {
            format!("the image does not have this command: `args` at {}", (context.place)("args"))
        }
        _ => "fix what its log reports, then apply".to_owned(),
    };
    cause("crash", &what, log, vec![remedy])
}

/// The scheduler's words without what it says of preemption and of claims, which never helps here: kube-scheduler 1.36
/// ends with `. no new claims to deallocate, preemption: …` (seen).
pub fn shortened(why: &str) -> &str {
    match why.split_once(". ") {
        Some((first, rest)) if rest.contains("preemption: ") => &why[..=first.len()],
        Some(_) | None => why.split(" preemption: ").next().unwrap_or(why),
    }
}

/// Why a node pool has not the nodes that it should.
pub fn of_pool(pool: &Pool, program: &str) -> Option<Cause> {
    let context = PodContext {
        events: &[],
        log: None,
        pools: &[],
        place: &|_| String::new(),
        has_keys: false,
        program,
        scaled: None,
    };
    capacity(Some(pool), None, &context)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_schedulers_words_are_told_in_ours() {
        for (said, expect) in [
            (
                "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu, \
                 1 node(s) had untolerated taint {a: b}. preemption: 0/4 nodes are available: 4 No preemption \
                 victims found.",
                "no node fits: 2 without a free GPU, 1 with the taint a: b",
            ),
            (
                "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint \
                 {node.kubernetes.io/not-ready: }.",
                "no node fits: 1 not ready yet",
            ),
            (
                "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
                "no node has the labels that it requires",
            ),
            ("0/1 nodes are available: 1 Insufficient cpu.", "no node fits: 1 without enough cpu"),
            ("0/1 nodes are available: 1 node(s) had disk conflict.", "no node fits: 1 had disk conflict"),
            ("no nodes available to schedule pods", "the cluster has no nodes"),
            (
                "Scheduling is blocked due to non-empty scheduling gates",
                "Scheduling is blocked due to non-empty scheduling gates",
            ),
        ] {
            assert_eq!(no_node(said), expect);
        }
    }

    fn judged(pod: &Value, events: &[Value], log: Option<&str>, pools: &[Pool]) -> Option<Cause> {
        let place = |key: &str| format!("stack.toml:9:1 {key}");
        of_pod(
            pod,
            &PodContext {
                events,
                log,
                pools,
                place: &place,
                program: "dask-infra",
                has_keys: true,
                scaled: Some("dask_cluster.d"),
            },
        )
    }

    fn unschedulable(message: &str) -> Value {
        json!({
            "spec": { "nodeSelector": { POOL_LABEL: "t4" } },
            "status": { "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message },
            ] },
        })
    }

    fn event(reason: &str, message: &str) -> Value {
        json!({ "type": "Warning", "reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z" })
    }

    fn t4(nodes: Option<u64>, most: Option<u64>) -> Pool {
        let (name, address) = ("t4".to_owned(), "node_pool.t4".to_owned());
        Pool {
            name,
            address,
            place: "stack.toml:17:9".to_owned(),
            nodes,
            most,
            needed: None,
            live: Value::Null,
        }
    }

    /// Messages as kube-scheduler 1.36 writes them.
    #[test]
    fn predicates_become_causes() {
        let tail = "no new claims to deallocate, preemption: 0/5 nodes are available: 5 Preemption is not helpful for \
                    scheduling.";
        for (message, code, remedy) in [
            (
                "0/5 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node \
                 affinity/selector.",
                "gpus",
                "more nodes: dask-infra scale node_pool.t4 3 --write",
            ),
            (
                "0/5 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 4 node(s) had untolerated taint \
                 {nvidia.com/gpu: present}.",
                "cpu",
                "request less: `cpu` at stack.toml:9:1 cpu",
            ),
            (
                "0/5 nodes are available: 5 Insufficient memory.",
                "memory",
                "`memory` at stack.toml:9:1 memory",
            ),
            ("0/5 nodes are available: 5 Too many pods.", "pods", "scale node_pool.t4 3"),
            (
                "0/5 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 3 node(s) had untolerated \
                 taint {nvidia.com/gpu: present}.",
                "taint",
                "it requests no GPU: set `gpus = 1` at stack.toml:9:1 gpus",
            ),
            (
                "0/5 nodes are available: 5 node(s) had untolerated taint {dedicated: x}.",
                "taint",
                "name the pool: `pool`",
            ),
            (
                "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector.",
                "affinity",
                "name a pool that exists",
            ),
            ("0/5 nodes are available: 5 node(s) were unschedulable.", "cordoned", "kubectl uncordon"),
            ("no nodes available to schedule pods", "no_nodes", "scale node_pool.t4 3"),
        ] {
            let found = judged(&unschedulable(&format!("{message} {tail}")), &[], None, &[t4(Some(2), None)]);
            let found = found.unwrap_or_else(|| panic!("{message}: nothing"));
            assert_eq!(found.code, code, "{message}: {found:?}");
            assert!(found.remedies.iter().any(|said| said.contains(remedy)), "{message}: {found:?}");
            assert!(!found.said.unwrap_or_default().contains("preemption"), "{message}");
        }
        let counted =
            predicates("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had a, b. preemption: no");
        assert_eq!(counted, [(1, "Insufficient cpu".to_owned()), (2, "node(s) had a, b".to_owned())]);
    }

    #[test]
    fn the_node_autoscaler_and_the_pool_know_more() {
        let waits = unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
        let scaled = [t4(None, Some(4))];
        let code =
            |events: &[Value], pools: &[Pool]| judged(&waits, events, None, pools).map(|cause| cause.code);
        let full = event("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached");
        let found = judged(&waits, &[full], None, &scaled);
        let found = found.unwrap_or_else(|| panic!("nothing"));
        assert!(found.remedies[0].contains("raise `max` of node_pool.t4 at stack.toml:17:9"), "{found:?}");
        assert!(found.said.is_some_and(|said| said.contains("max node group size reached")));
        let up = event("TriggeredScaleUp", "pod triggered scale-up: [{gke-t4 0->1 (max: 4)}]");
        assert_eq!(code(&[up], &scaled), Some("scaling"));
        let out = "Node scale up in zones us-central1-c associated with this pod failed: GCE out of resources. Pod is at \
                   risk of not being scheduled.";
        assert_eq!(code(&[event("FailedScaleUp", out)], &scaled), Some("stock_out"));
        let quota =
            "Node scale up in zones us-central1-c associated with this pod failed: GCE quota exceeded.";
        assert_eq!(code(&[event("FailedScaleUp", quota)], &scaled), Some("quota"));
        let mut short = t4(Some(2), None);
        short.live =
            json!({ "conditions": [{ "code": "GCE_STOCKOUT", "message": "[GCE_STOCKOUT]: Instance" }] });
        assert_eq!(code(&[], &[short.clone()]), Some("stock_out"));
        let pool = of_pool(&short, "dask-infra").unwrap_or_else(|| panic!("nothing"));
        assert_eq!((pool.code, pool.remedies.len()), ("stock_out", 2), "{pool:?}");
        assert_eq!(of_pool(&t4(Some(2), None), "dask-infra"), None);
    }

    #[test]
    fn containers_that_do_not_start_say_why() {
        let with = |state: Value, restarts: u64| {
            json!({
                "spec": { "nodeName": "n" },
                "status": { "containerStatuses": [{
                    "name": "worker", "image": "demo:9", "restartCount": restarts, "state": state,
                    "lastState": { "terminated": { "exitCode": 127, "reason": "Error" } },
                }] },
            })
        };
        let pull =
            |message: &str| with(json!({ "waiting": { "reason": "ErrImagePull", "message": message } }), 0);
        for (message, code) in [
            ("failed to resolve reference: docker.io/library/demo:9: not found", "image"),
            ("manifest for demo:9 not found: manifest unknown", "image"),
            ("failed to authorize: failed to fetch oauth token: 403 Forbidden", "image_rights"),
            ("pull access denied, repository does not exist or may require authorization", "image_rights"),
            ("dial tcp: lookup nvcr.io: no such host", "image_network"),
            ("dial tcp 1.2.3.4:443: i/o timeout", "image_network"),
            ("429: toomanyrequests: You have reached your pull rate limit", "image_limit"),
        ] {
            let found = judged(&pull(message), &[], None, &[]).map(|cause| cause.code);
            assert_eq!(found, Some(code), "{message}");
        }
        let backing = with(json!({ "waiting": { "reason": "ImagePullBackOff", "message": "Back-off" } }), 0);
        let pulled = event("Failed", "Failed to pull image \"demo:9\": manifest unknown");
        let found = judged(&backing, &[pulled], None, &[]).unwrap_or_else(|| panic!("nothing"));
        assert!(found.what.contains("the image demo:9 does not exist"), "{found:?}");

        let crash = with(json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off" } }), 4);
        let found =
            judged(&crash, &[], Some("Traceback\nNo such file\n"), &[]).unwrap_or_else(|| panic!("nothing"));
        assert_eq!(found.what, "container worker exits with code 127, 4 restarts");
        assert!(found.said.is_some_and(|said| said.ends_with("No such file")));
        assert!(found.remedies[0].contains("`args` at stack.toml:9:1 args"));

        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        assert_eq!(judged(&ready, &[], None, &[]), None);
        let new = json!({ "spec": {}, "status": { "phase": "Pending" } });
        assert_eq!(judged(&new, &[], None, &[]).map(|cause| cause.code), Some("unseen"));
        let probe = json!({ "spec": { "nodeName": "n" }, "status": { "phase": "Running" } });
        let unhealthy = event("Unhealthy", "Readiness probe failed: connection refused");
        assert_eq!(judged(&probe, &[unhealthy], None, &[]).map(|cause| cause.code), Some("probe"));
    }
}
