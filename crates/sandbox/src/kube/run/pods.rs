//! The node agents: what becomes of a pod once it is bound to a node. How long each part takes comes
//! from `stages.toml`; what has been reached stands in the pod's own status.
//!
//! From memory of `pkg/kubelet` (`status/generate.go`, `kubelet_pods.go`, `images/image_manager.go`); statuses are compared
//! with what KWOK reports by `control_plane::sandbox_equality`.

use std::collections::{BTreeMap, BTreeSet};

use fit::{Effect, Taint, Toleration};
use model::address::FieldPath;
use serde_json::{Value, json};

use super::super::object::{
    Key, hex, is_deleted, is_finished, key, list, name, number, set_condition, text, time, uid,
};
use super::events::{self, Level};
use super::nodes;
use super::round::Run;
use super::select::glob;
use super::stages::{Fault, Gate, Role, Stage, stages};
use super::workloads::initial_delay;

const KUBELET: &str = "kubelet";

/// One round over all pods.
pub fn run(run: &mut Run<'_>) {
    let pods = run.objects("", "pods");
    let nodes: BTreeMap<&str, &Value> =
        run.objects("", "nodes").into_iter().map(|node| (name(node), node)).collect();
    let mut addresses: BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/status/podIP")).collect();
    let mut images: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let ranges: Vec<String> = (2..255).map(|host: u8| host.to_string()).collect();
    let mut given: BTreeSet<String> = BTreeSet::new();
    for pod in pods {
        let place = text(pod, "/spec/nodeName");
        match nodes.get(place) {
            _ if is_deleted(pod) => stop(run, pod, nodes.contains_key(place)),
            _ if place.is_empty() => {}
            // The pod garbage collector: pods of vanished nodes go.
            None => run.delete_now(key("", "pods", pod)),
            Some(_) if is_finished(pod) => {}
            // The taint eviction controller; tolerations for a time count as forever.
            Some(node) if is_evicted(pod, node) => {
                run.delete(key("", "pods", pod));
            }
            Some(node) => {
                let address = address(pod, node, &ranges, &mut given, &addresses);
                let mut agent = Agent { run, pod, node, pulled: BTreeSet::new() };
                agent.advance(&address);
                images.entry(place).or_default().append(&mut agent.pulled);
                addresses.insert(text(pod, "/status/podIP"));
            }
        }
    }
    for (place, fresh) in images {
        if let Some(node) = nodes.get(place).filter(|_| !fresh.is_empty()) {
            note_images(run, node, &fresh);
        }
    }
}

/// Returns true if the node has a taint that ends the pod.
fn is_evicted(pod: &Value, node: &Value) -> bool {
    let mut taints = Taint::read_all(&node["spec"]["taints"]);
    taints.retain(|taint| taint.effect == Effect::NoExecute);
    let tolerations =
        || Toleration::read_all(&pod["spec"]["tolerations"], &FieldPath::root()).unwrap_or_default();
    !taints.is_empty() && {
        let tolerations = tolerations();
        taints.iter().any(|taint| !tolerations.iter().any(|one| one.tolerates(taint)))
    }
}

/// Ends a pod that somebody has deleted.
fn stop(run: &mut Run<'_>, pod: &Value, has_node: bool) {
    let grace = number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
    if grace == 0 {
        return; // Only finalizers hold it now.
    }
    #[expect(clippy::cast_precision_loss, reason = "grace periods are small")]
    let patience = stages().delay("pod_stop").min(grace as f64);
    if !has_node || is_finished(pod) || run.passed(format!("{} stop", uid(pod)), patience) {
        run.delete_now(key("", "pods", pod));
    }
}

/// The pod's address: the node's with `hostNetwork`, otherwise a free one of the node's range.
fn address(
    pod: &Value,
    node: &Value,
    hosts: &[String],
    given: &mut BTreeSet<String>,
    taken: &BTreeSet<&str>,
) -> String {
    let own = text(pod, "/status/podIP");
    if !own.is_empty() {
        return own.to_owned();
    }
    if pod["spec"]["hostNetwork"] == true {
        return host_address(node).to_owned();
    }
    let Some((front, _)) = text(node, "/spec/podCIDR").rsplit_once('.') else {
        return String::new();
    };
    let mut free = hosts.iter().map(|host| format!("{front}.{host}"));
    let found = free.find(|address| !taken.contains(address.as_str()) && !given.contains(address));
    let found = found.unwrap_or_default();
    given.insert(found.clone());
    found
}

fn host_address(node: &Value) -> &str {
    let internal = list(node, "/status/addresses").iter().find(|address| address["type"] == "InternalIP");
    internal.map_or("", |address| text(address, "/address"))
}

/// The node lists the images it has, as kubelets do.
fn note_images(run: &mut Run<'_>, node: &Value, fresh: &BTreeSet<String>) {
    let mut all = list(node, "/status/images").to_vec();
    for image in fresh {
        if !has_image(node, image) {
            all.push(json!({"names": [image], "sizeBytes": size_of(image)}));
        }
    }
    let mut status = node["status"].clone();
    status["images"] = Value::Array(all);
    run.status(KUBELET, Key::new("", "nodes", "", name(node)), node, status);
}

fn has_image(node: &Value, image: &str) -> bool {
    list(node, "/status/images").iter().any(|entry| list(entry, "/names").iter().any(|known| known == image))
}

/// Bytes, guessed from how long the image takes to arrive: about 50 MB a second.
fn size_of(image: &str) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "seconds of a pull are few")]
    let seconds = stages().pull(image) as i64;
    seconds.max(1) * 50_000_000
}

/// The end of a container's start, so far.
enum Arrival {
    Waiting(&'static str, String),
    Here,
}

/// The agent at work on one pod.
struct Agent<'r, 'a> {
    run: &'r mut Run<'a>,
    pod: &'a Value,
    node: &'a Value,
    pulled: BTreeSet<String>,
}

impl<'a> Agent<'_, 'a> {
    fn advance(&mut self, address: &str) {
        let pod = self.pod;
        let inits = list(pod, "/spec/initContainers");
        let mut init_statuses = Vec::new();
        let mut go = true;
        for container in inits {
            let status = self.container(container, Role::Init, go);
            let sidecar = text(container, "/restartPolicy") == "Always";
            go = go
                && (exit_code(&status) == Some(0) || (sidecar && status["state"].get("running").is_some()));
            init_statuses.push(status);
        }
        let mains = list(pod, "/spec/containers");
        let statuses: Vec<Value> = mains.iter().map(|c| self.container(c, Role::Main, go)).collect();
        let mut status =
            pod.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
        let phase = phase(pod, &init_statuses, &statuses);
        status["phase"] = json!(phase);
        status["conditions"] = Value::Array(self.conditions(phase, go, &init_statuses, &statuses));
        if !init_statuses.is_empty() {
            status["initContainerStatuses"] = Value::Array(init_statuses);
        }
        status["containerStatuses"] = Value::Array(statuses);
        let host = host_address(self.node);
        status["hostIP"] = json!(host);
        status["hostIPs"] = json!([{"ip": host}]);
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{"ip": address}]);
        if status.get("startTime").is_none() {
            status["startTime"] = json!(time(self.run.now));
        }
        self.run.status(KUBELET, key("", "pods", pod), pod, status);
    }

    fn known(&self, container: &Value, role: Role) -> Option<&'a Value> {
        let field =
            if role == Role::Init { "/status/initContainerStatuses" } else { "/status/containerStatuses" };
        list(self.pod, field).iter().find(|status| status["name"] == container["name"])
    }

    fn mark(&self, container: &Value, what: &str, restarts: i64) -> String {
        format!("{} {} {what} {restarts}", uid(self.pod), text(container, "/name"))
    }

    /// The next status of a container; `go`: whether those before it have done their part.
    fn container(&mut self, container: &Value, role: Role, go: bool) -> Value {
        let known = self.known(container, role);
        let stage = stages().container(self.pod, container, role);
        let state = known.map(|status| &status["state"]);
        let Some(known) = known.filter(|_| state.is_some_and(|state| state.get("waiting").is_none())) else {
            return self.waiting(container, known, stage, go);
        };
        if known["state"].get("running").is_some() {
            return self.running(container, known, stage, role);
        }
        let again = match text(self.pod, "/spec/restartPolicy") {
            "Never" => false,
            "OnFailure" => exit_code(known) != Some(0),
            _ => role == Role::Main || exit_code(known) != Some(0),
        };
        if again { self.crash_loop(container, known) } else { known.clone() }
    }

    /// A container that has not started, or not again.
    fn waiting(
        &mut self,
        container: &Value,
        known: Option<&Value>,
        stage: Option<&Stage>,
        go: bool,
    ) -> Value {
        let has_inits = !list(self.pod, "/spec/initContainers").is_empty();
        let idle = if has_inits { "PodInitializing" } else { "ContainerCreating" };
        let restarts = known.and_then(|known| number(known, "/restartCount")).unwrap_or(0);
        let mut status = blank(container, restarts);
        if let Some(last) = known.and_then(|known| known.get("lastState")) {
            status["lastState"] = last.clone();
        }
        if !go {
            status["state"] = json!({"waiting": {"reason": idle}});
            return status;
        }
        if known.is_some_and(|known| text(known, "/state/waiting/reason") == "CrashLoopBackOff") {
            let wait = crash_wait(restarts);
            if !self.run.passed(self.mark(container, "crash", restarts), wait) {
                return known.cloned().unwrap_or(status);
            }
            status["restartCount"] = json!(restarts + 1);
            return self.start(container, status);
        }
        match self.arrival(container, stage) {
            Arrival::Here => self.start(container, status),
            Arrival::Waiting(reason, message) => {
                let reason = if reason.is_empty() { idle } else { reason };
                status["state"] = json!({"waiting": {"reason": reason}});
                if !message.is_empty() {
                    status["state"]["waiting"]["message"] = json!(message);
                }
                status
            }
        }
    }

    /// Imitates the pull of the image, and returns `Arrival::Here` once the container may start.
    fn arrival(&mut self, container: &Value, stage: Option<&Stage>) -> Arrival {
        let image = text(container, "/image");
        let present = has_image(self.node, image);
        let missing = self.run.scripts.fail_image.iter().any(|pattern| glob(pattern, image));
        if missing && !present {
            return self.missing_image(container, image);
        }
        let pull = if present { 0.0 } else { stages().pull(image) };
        if !present && pull > 0.0 {
            let message = format!("Pulling image \"{image}\"");
            self.say_once(Level::Normal, "Pulling", &message);
        }
        let start = stage.map_or(0.0, |stage| stage.start);
        if self.run.passed(self.mark(container, "start", 0), pull + start) {
            let message = if present {
                format!("Container image \"{image}\" already present on machine")
            } else {
                let size = size_of(image);
                format!(
                    "Successfully pulled image \"{image}\" in {pull}s ({pull}s including waiting). \
                     Image size: {size} bytes."
                )
            };
            self.say_once(Level::Normal, "Pulled", &message);
            self.pulled.insert(image.to_owned());
            return Arrival::Here;
        }
        Arrival::Waiting("", String::new())
    }

    fn missing_image(&mut self, container: &Value, image: &str) -> Arrival {
        if !self.run.passed(self.mark(container, "pull", 0), stages().delay("pull_fails")) {
            return Arrival::Waiting("", String::new());
        }
        let why = format!(
            "failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": {image}: not found"
        );
        let failed = format!("rpc error: code = NotFound desc = {why}");
        self.say_once(Level::Warning, "Failed", &format!("Failed to pull image \"{image}\": {failed}"));
        if !self.run.passed(self.mark(container, "back-off", 0), stages().delay("pull_back_off")) {
            return Arrival::Waiting("ErrImagePull", failed);
        }
        let message = format!("Back-off pulling image \"{image}\"");
        self.say_once(Level::Normal, "BackOff", &message);
        Arrival::Waiting("ImagePullBackOff", format!("{message}: ErrImagePull: {failed}"))
    }

    fn start(&mut self, container: &Value, mut status: Value) -> Value {
        let restarts = number(&status, "/restartCount").unwrap_or(0);
        let container_name = text(container, "/name");
        let id = hex(&self.mark(container, "id", restarts), 64);
        status["containerID"] = json!(format!("containerd://{id}"));
        status["imageID"] = json!(image_id(text(container, "/image")));
        status["state"] = json!({"running": {"startedAt": time(self.run.now)}});
        status["started"] = json!(true);
        status["ready"] =
            json!(container.get("readinessProbe").is_none() && container.get("startupProbe").is_none());
        self.say_once(Level::Normal, "Created", &format!("Created container: {container_name}"));
        self.say_once(Level::Normal, "Started", &format!("Started container {container_name}"));
        status
    }

    fn running(&mut self, container: &Value, known: &Value, stage: Option<&Stage>, role: Role) -> Value {
        let restarts = number(known, "/restartCount").unwrap_or(0);
        let sidecar = role == Role::Init && text(container, "/restartPolicy") == "Always";
        let mut status = known.clone();
        if let Some((stage, end)) = stage.and_then(|stage| Some((stage, stage.ends?))).filter(|_| !sidecar) {
            let open = match stage.needs {
                Some(Gate::Driver) => nodes::has_driver(self.run, self.node),
                None => true,
            };
            if open && self.run.passed(self.mark(container, "end", restarts), end.after) {
                let scripts = self.run.scripts;
                let broken = match stage.fault {
                    Some(Fault::Cuda) => scripts.cuda_fails,
                    Some(Fault::Driver) => scripts.driver_fails,
                    None => false,
                };
                return self.terminated(known, if broken { 1 } else { end.exit });
            }
        }
        if status["ready"] != true {
            let wait = initial_delay(container) + stage.map_or(0.0, |stage| stage.ready);
            if self.run.passed(self.mark(container, "ready", restarts), wait) {
                status["ready"] = json!(true);
            }
        }
        status
    }

    fn terminated(&self, known: &Value, exit: i64) -> Value {
        let mut status = known.clone();
        status["state"] = json!({"terminated": {
            "exitCode": exit, "reason": if exit == 0 { "Completed" } else { "Error" },
            "startedAt": known["state"]["running"]["startedAt"], "finishedAt": time(self.run.now),
            "containerID": known["containerID"],
        }});
        status["ready"] = json!(exit == 0 && is_init(self.pod, known));
        status["started"] = json!(false);
        status
    }

    fn crash_loop(&mut self, container: &Value, known: &Value) -> Value {
        let restarts = number(known, "/restartCount").unwrap_or(0);
        let mut status = known.clone();
        status["lastState"] = known["state"].clone();
        #[expect(clippy::cast_possible_truncation, reason = "a back-off is at most 300 seconds")]
        let wait = crash_wait(restarts) as i64;
        let (pod_name, place) = (name(self.pod), text(self.pod, "/metadata/namespace"));
        let message = format!(
            "back-off {wait}s restarting failed container={} pod={pod_name}_{place}({})",
            text(container, "/name"),
            uid(self.pod)
        );
        status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        status["ready"] = json!(false);
        let told =
            format!("Back-off restarting failed container {} in pod {pod_name}", text(container, "/name"));
        events::emit(self.run, self.pod, Level::Warning, "BackOff", "kubelet", &told);
        status
    }

    /// Emits an event that a state's entry is worth, not each look at it.
    fn say_once(&mut self, level: Level, reason: &str, message: &str) {
        let digest = hex(&format!("{}/{reason}/{message}", uid(self.pod)), 16);
        let (place, event) = (text(self.pod, "/metadata/namespace"), format!("{}.{digest}", name(self.pod)));
        if self.run.get("", "events", place, &event).is_none() {
            events::emit(self.run, self.pod, level, reason, "kubelet", message);
        }
    }

    fn conditions(&self, phase: &str, initialized: bool, inits: &[Value], mains: &[Value]) -> Vec<Value> {
        let now = self.run.now;
        let unready: Vec<&str> =
            mains.iter().filter(|s| s["ready"] != true).map(|s| text(s, "/name")).collect();
        let incomplete: Vec<&str> = inits
            .iter()
            .filter(|s| exit_code(s) != Some(0) && s["ready"] != true)
            .map(|s| text(s, "/name"))
            .collect();
        let plain = |ty: &str, status: &str| json!({"type": ty, "status": status, "lastProbeTime": null});
        let because = |ty: &str, reason: &str, message: String| {
            let mut condition = plain(ty, "False");
            condition["reason"] = json!(reason);
            if !message.is_empty() {
                condition["message"] = json!(message);
            }
            condition
        };
        let ready = |ty: &str| match phase {
            "Succeeded" => because(ty, "PodCompleted", String::new()),
            "Failed" => because(ty, "PodFailed", String::new()),
            _ if unready.is_empty() => plain(ty, "True"),
            _ => because(
                ty,
                "ContainersNotReady",
                format!("containers with unready status: [{}]", unready.join(" ")),
            ),
        };
        let init = match phase {
            "Succeeded" => {
                json!({"type": "Initialized", "status": "True", "reason": "PodCompleted", "lastProbeTime": null})
            }
            _ if initialized => plain("Initialized", "True"),
            _ => {
                let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
                because("Initialized", "ContainersNotInitialized", message)
            }
        };
        let sandbox = if matches!(phase, "Succeeded" | "Failed") { "False" } else { "True" };
        let mut conditions = list(self.pod, "/status/conditions").to_vec();
        let scheduled = plain("PodScheduled", "True");
        for condition in [
            plain("PodReadyToStartContainers", sandbox),
            init,
            ready("Ready"),
            ready("ContainersReady"),
            scheduled,
        ] {
            set_condition(&mut conditions, condition, now);
        }
        conditions
    }
}

fn is_init(pod: &Value, status: &Value) -> bool {
    list(pod, "/spec/initContainers").iter().any(|container| container["name"] == status["name"])
}

/// A container that nothing is known of yet.
fn blank(container: &Value, restarts: i64) -> Value {
    json!({
        "name": container["name"], "image": container["image"], "imageID": "", "lastState": {},
        "ready": false, "started": false, "restartCount": restarts, "state": {},
    })
}

/// Seconds before a crashed container starts again: doubles, up to five minutes.
fn crash_wait(restarts: i64) -> f64 {
    let doubled = 2_f64.powi(i32::try_from(restarts.clamp(0, 16)).unwrap_or(16));
    (stages().delay("crash_back_off") * doubled).min(300.0)
}

fn image_id(image: &str) -> String {
    let repository = image.rsplit_once('@').map_or(image, |(front, _)| front);
    let repository = match repository.rsplit_once(':') {
        Some((front, tag)) if !tag.contains('/') => front,
        _ => repository,
    };
    format!("{repository}@sha256:{}", hex(image, 64))
}

/// The exit code of a container that has ended.
pub fn exit_code(status: &Value) -> Option<i64> {
    number(status, "/state/terminated/exitCode")
}

/// The phase that follows from what the containers do, as the kubelet derives it.
fn phase(pod: &Value, inits: &[Value], mains: &[Value]) -> &'static str {
    let policy = text(pod, "/spec/restartPolicy");
    let never = policy == "Never";
    if never && inits.iter().any(|status| exit_code(status).is_some_and(|code| code != 0)) {
        return "Failed";
    }
    let ended = |status: &Value| exit_code(status).is_some();
    if !mains.is_empty() && mains.iter().all(ended) && !matches!(policy, "" | "Always") {
        let failed = mains.iter().any(|status| exit_code(status) != Some(0));
        return match (failed, never) {
            (false, _) => "Succeeded",
            (true, true) => "Failed",
            (true, false) => "Running",
        };
    }
    let has_run = |status: &Value| {
        status["state"].get("waiting").is_none() || status.pointer("/lastState/terminated").is_some()
    };
    if mains.iter().all(has_run) { "Running" } else { "Pending" }
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
