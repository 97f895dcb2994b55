//! Pods. Source: `pkg/registry/core/pod/strategy.go`, `printPod` in `pkg/printers/internalversion/printers.go`,
//! `AddFieldLabelConversionsForPod` in `pkg/apis/core/v1/conversion.go`; objects are compared with
//! kube-apiserver 1.36.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::age;
use super::super::object::{is_deleted, is_true, list, text};
use super::super::status::Cause;
use super::super::strategy::Cell::{At, Of, OrNone};
use super::super::strategy::{AGE, Deletion, NAME, Selectable, Strategy, column, count, each, put, wide};
use super::{admission, pod_spec};

pub const STRATEGIES: &[Strategy] = &[Strategy {
    generation: true,
    // Being bound is not being changed.
    no_generation: &["/spec/nodeName"],
    columns: &[
        NAME,
        column("Ready", At(|pod, now| State::of(pod, now).ready)),
        column("Status", At(|pod, now| State::of(pod, now).reason)),
        column("Restarts", At(|pod, now| State::of(pod, now).restarts)),
        AGE,
        wide("IP", OrNone("/status/podIP")),
        wide("Node", OrNone("/spec/nodeName")),
        wide("Nominated Node", OrNone("/status/nominatedNodeName")),
        wide("Readiness Gates", Of(gates)),
    ],
    zero: || json!({"spec": {"containers": null}, "status": {}}),
    defaults: |pod| {
        pod_spec::spec(&mut pod["spec"]);
        requests(&mut pod["spec"]);
        put(&mut pod["spec"], "enableServiceLinks", json!(true));
    },
    prepare_for_create: |numbers, pod| {
        admission::create(pod);
        admission::token(numbers, pod);
    },
    prepare_for_update: |_, pod| admission::tolerations(&mut pod["spec"]),
    validate,
    validate_update,
    selectable: Selectable::These(&[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ]),
    condition_times: &["lastProbeTime", "lastTransitionTime"],
    deletion: Deletion::Graceful,
    options: &[
        ("attach", "PodAttachOptions"),
        ("exec", "PodExecOptions"),
        ("portforward", "PodPortForwardOptions"),
        ("proxy", "PodProxyOptions"),
    ],
    ..Strategy::of("", "Pod")
}];

/// Sets missing requests of containers to their limits. Source: `SetDefaults_Pod`.
fn requests(spec: &mut Value) {
    for kind in ["initContainers", "containers"] {
        for container in each(spec, kind) {
            let limits = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
            for (name, amount) in limits.into_iter().flatten() {
                put(&mut container["resources"], "requests", json!({}));
                put(&mut container["resources"]["requests"], &name, amount);
            }
        }
    }
}

fn validate(pod: &Value, causes: &mut Vec<Cause>) {
    const POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
    pod_spec::validate(pod, "/spec", "spec", causes);
    let policy = text(pod, "/spec/restartPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        causes.push(Cause::unsupported("spec.restartPolicy", format!("\"{policy}\""), POLICIES));
    }
}

/// Of a pod's spec only images, deadlines, added tolerations and (gated) little else may change. Source:
/// `ValidatePodUpdate`.
fn validate_update(live: &Value, pod: &Value, causes: &mut Vec<Cause>) {
    let kept: Vec<Value> = list(pod, "/spec/tolerations").iter().map(timeless).collect();
    if list(live, "/spec/tolerations").iter().any(|toleration| !kept.contains(&timeless(toleration))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", why));
        return;
    }
    let bound = text(live, "/spec/nodeName");
    let moved = !bound.is_empty() && bound != text(pod, "/spec/nodeName");
    if frozen(live) != frozen(pod) || moved {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
            `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
            existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
            previously negative)";
        causes.push(Cause::forbidden("spec", why));
    }
}

fn timeless(toleration: &Value) -> Value {
    let mut toleration = toleration.clone();
    drop(toleration.as_object_mut().and_then(|fields| fields.remove("tolerationSeconds")));
    toleration
}

/// Returns the part of the spec that an update cannot change.
fn frozen(pod: &Value) -> Value {
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    for kind in ["containers", "initContainers"] {
        for container in each(&mut spec, kind).filter_map(Value::as_object_mut) {
            container.remove("image");
        }
    }
    if let Some(fields) = spec.as_object_mut() {
        for name in ["activeDeadlineSeconds", "tolerations", "nodeName", "terminationGracePeriodSeconds"] {
            fields.remove(name);
        }
    }
    spec
}

fn gates(pod: &Value) -> String {
    match list(pod, "/spec/readinessGates") {
        [] => "<none>".to_owned(),
        gates => format!("0/{}", gates.len()),
    }
}

/// The status columns of a pod in the table.
struct State {
    ready: String,
    reason: String,
    restarts: String,
}

/// The summary of a pod's containers: how many are ready, how often they restarted, when last, and the reason to show, if
/// there is one.
#[derive(Default)]
struct Containers {
    ready: usize,
    restarts: i64,
    last: String,
    reason: Option<String>,
}

impl State {
    fn of(pod: &Value, now: Timestamp) -> Self {
        let Containers { ready, restarts, last, reason } = match initializing(pod) {
            Some(waiting) => waiting,
            None => running(pod),
        };
        let reason = match (reason, text(pod, "/status/reason")) {
            (_, "NodeLost") if is_deleted(pod) => "Unknown".to_owned(),
            _ if is_deleted(pod) && !is_over(pod) => "Terminating".to_owned(),
            (Some(reason), _) => reason,
            (None, _) => usual(pod),
        };
        let restarts = match (restarts, last.is_empty()) {
            (0, _) | (_, true) => restarts.to_string(),
            _ => format!("{restarts} ({} ago)", age::since(&last, now)),
        };
        Self { ready: format!("{ready}/{}", list(pod, "/spec/containers").len()), reason, restarts }
    }
}

fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The word for a pod whose containers have none.
fn usual(pod: &Value) -> String {
    let is_gate =
        |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
    if list(pod, "/status/conditions").iter().any(is_gate) {
        return "SchedulingGated".to_owned();
    }
    match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    }
}

/// A pod whose init containers are not through.
fn initializing(pod: &Value) -> Option<Containers> {
    let statuses = list(pod, "/status/initContainerStatuses");
    let done = |status: &Value| {
        status.pointer("/state/terminated").is_some_and(|terminated| count(terminated, "/exitCode") == 0)
    };
    let (index, status) = statuses.iter().enumerate().find(|(_, status)| !done(status))?;
    let reason = match (status.pointer("/state/terminated"), text(status, "/state/waiting/reason")) {
        (Some(terminated), _) => format!("Init:{}", ended(terminated)),
        (None, "" | "PodInitializing") => {
            format!("Init:{index}/{}", list(pod, "/spec/initContainers").len())
        }
        (None, waiting) => format!("Init:{waiting}"),
    };
    let restarts = statuses.iter().map(|status| count(status, "/restartCount")).sum();
    Some(Containers { restarts, reason: Some(reason), ..Containers::default() })
}

fn running(pod: &Value) -> Containers {
    let mut all = Containers::default();
    let (mut running, mut error) = (false, None);
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        all.restarts += count(status, "/restartCount");
        all.last = all.last.max(text(status, "/lastState/terminated/finishedAt").to_owned());
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            all.reason = Some(waiting.to_owned());
        } else if let Some(terminated) = status.pointer("/state/terminated") {
            let word = ended(terminated);
            if count(terminated, "/exitCode") != 0 {
                error = Some(word.clone());
            }
            all.reason = Some(word);
        } else if status["ready"] == true && status.pointer("/state/running").is_some() {
            running = true;
            all.ready += 1;
        }
    }
    if all.reason.clone().unwrap_or_else(|| usual(pod)) == "Completed" {
        all.reason = Some(match (running, is_true(pod, "Ready"), error) {
            (true, true, _) => "Running".to_owned(),
            (_, _, Some(error)) => error,
            (true, false, None) => "NotReady".to_owned(),
            (false, _, None) => "Completed".to_owned(),
        });
    }
    all
}

/// The word for a container that has ended.
fn ended(terminated: &Value) -> String {
    match (text(terminated, "/reason"), count(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", count(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
