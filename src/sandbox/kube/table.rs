//! The `Table` that `kubectl get` prints: the columns of pkg/printers/internalversion for built-in
//! kinds, a CRD's own for custom ones, name and age for the rest.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{Column, Kind, Origin};
use super::store::text;

/// How much of each object a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// From `includeObject`.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("None") => Self::None,
            Some("Object") => Self::Object,
            _ => Self::Metadata,
        }
    }
}

/// Header and type of a column; `true` for those that only `-o wide` shows.
type Header = (&'static str, &'static str, bool);

const NAME: Header = ("Name", "string", false);
const AGE: Header = ("Age", "string", false);
const WORKLOAD: [Header; 3] =
    [("Containers", "string", true), ("Images", "string", true), ("Selector", "string", true)];

/// The columns of a built-in kind.
fn headers(kind: &Kind) -> Vec<Header> {
    let text = |name: &'static str| (name, "string", false);
    let number = |name: &'static str| (name, "integer", false);
    let wide = |name: &'static str| (name, "string", true);
    let workload = |own: Vec<Header>| [vec![NAME], own, vec![AGE], WORKLOAD.to_vec()].concat();
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => vec![
            NAME,
            text("Ready"),
            text("Status"),
            text("Restarts"),
            AGE,
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ],
        ("", "Node") => vec![
            NAME,
            text("Status"),
            text("Roles"),
            AGE,
            text("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        ("", "Namespace") => vec![NAME, text("Status"), AGE],
        ("", "Service") => vec![
            NAME,
            text("Type"),
            text("Cluster-IP"),
            text("External-IP"),
            text("Port(s)"),
            AGE,
            wide("Selector"),
        ],
        ("", "ConfigMap") => vec![NAME, text("Data"), AGE],
        ("", "Secret") => vec![NAME, text("Type"), text("Data"), AGE],
        ("", "Event") => vec![
            text("Last Seen"),
            text("Type"),
            text("Reason"),
            text("Object"),
            wide("Subobject"),
            wide("Source"),
            text("Message"),
            wide("First Seen"),
            wide("Count"),
            wide("Name"),
        ],
        ("apps", "Deployment") => workload(vec![text("Ready"), text("Up-to-date"), text("Available")]),
        ("apps", "DaemonSet") => workload(vec![
            number("Desired"),
            number("Current"),
            number("Ready"),
            number("Up-to-date"),
            number("Available"),
            text("Node Selector"),
        ]),
        ("apps", "ReplicaSet") => workload(vec![number("Desired"), number("Current"), number("Ready")]),
        ("apps", "StatefulSet") => {
            vec![NAME, text("Ready"), AGE, wide("Containers"), wide("Images")]
        }
        ("batch", "Job") => workload(vec![text("Status"), text("Completions"), text("Duration")]),
        ("coordination.k8s.io", "Lease") => vec![NAME, text("Holder"), AGE],
        ("scheduling.k8s.io", "PriorityClass") => {
            vec![NAME, number("Value"), ("Global-Default", "boolean", false), AGE, text("PreemptionPolicy")]
        }
        ("rbac.authorization.k8s.io", "ClusterRole" | "Role") => vec![NAME, ("Created At", "date", false)],
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => {
            vec![NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")]
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => vec![NAME, ("Created At", "date", false)],
        _ => vec![NAME, AGE],
    }
}

/// Cells of a built-in kind, in the order of its headers.
fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let own = |pointer: &str| json!(text(object, pointer));
    let name = own("/metadata/name");
    let age = json!(since(text(object, "/metadata/creationTimestamp"), now));
    let count = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let workload = |own: Vec<Value>| {
        let (names, images) = containers(object);
        let selector = selector(object.pointer("/spec/selector"));
        [vec![name.clone()], own, vec![age.clone()], vec![json!(names), json!(images), json!(selector)]]
            .concat()
    };
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => pod(object, now, age),
        ("", "Node") => node(object, age),
        ("", "Namespace") => vec![name, own("/status/phase"), age],
        ("", "Service") => service(object, age),
        ("", "ConfigMap") => {
            let size = |pointer: &str| {
                object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
            };
            vec![name, json!((size("/data") + size("/binaryData")).to_string()), age]
        }
        ("", "Secret") => {
            let size = object.pointer("/data").and_then(Value::as_object).map_or(0, serde_json::Map::len);
            vec![name, own("/type"), json!(size.to_string()), age]
        }
        ("", "Event") => event(object, now),
        ("apps", "Deployment") => workload(vec![
            json!(format!("{}/{}", count("/status/readyReplicas"), count("/spec/replicas"))),
            json!(count("/status/updatedReplicas").to_string()),
            json!(count("/status/availableReplicas").to_string()),
        ]),
        ("apps", "DaemonSet") => {
            let nodes = format_labels(object.pointer("/spec/template/spec/nodeSelector"));
            let numbers = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ];
            let mut own: Vec<Value> =
                numbers.iter().map(|name| json!(count(&format!("/status/{name}")))).collect();
            own.push(json!(nodes));
            workload(own)
        }
        ("apps", "ReplicaSet") => workload(vec![
            json!(count("/spec/replicas")),
            json!(count("/status/replicas")),
            json!(count("/status/readyReplicas")),
        ]),
        ("apps", "StatefulSet") => {
            let (names, images) = containers(object);
            let ready = format!("{}/{}", count("/status/readyReplicas"), count("/spec/replicas"));
            vec![name, json!(ready), age, json!(names), json!(images)]
        }
        ("batch", "Job") => workload(job(object, now)),
        ("coordination.k8s.io", "Lease") => vec![name, own("/spec/holderIdentity"), age],
        ("scheduling.k8s.io", "PriorityClass") => vec![
            name,
            json!(count("/value")),
            json!(object["globalDefault"] == true),
            age,
            own("/preemptionPolicy"),
        ],
        ("rbac.authorization.k8s.io", "ClusterRole" | "Role")
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            vec![name, own("/metadata/creationTimestamp")]
        }
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => binding(object, name, age),
        _ => vec![name, age],
    }
}

/// The table of these objects. `show` says whether column definitions are stated: a watch does so only
/// in its first event.
pub fn table(kind: &Kind, objects: &[&Value], metadata: &Value, include: Include, now: Timestamp) -> Value {
    let (definitions, rows): (Vec<Value>, Vec<Vec<Value>>) = match kind.origin {
        Origin::BuiltIn => (
            headers(kind).into_iter().map(|(name, ty, wide)| definition(name, ty, wide)).collect(),
            objects.iter().map(|object| cells(kind, object, now)).collect(),
        ),
        Origin::Custom => (
            custom_columns(kind)
                .iter()
                .map(|Column { name, ty, priority, .. }| definition(name, ty, *priority != 0))
                .collect(),
            objects.iter().map(|object| custom_cells(kind, object, now)).collect(),
        ),
    };
    let rows: Vec<Value> = rows
        .into_iter()
        .zip(objects)
        .map(|(cells, object)| (numbers(&definitions, cells), object))
        .map(|(cells, object)| match include {
            Include::None => json!({"cells": cells, "object": null}),
            Include::Metadata => json!({"cells": cells, "object": partial(object)}),
            Include::Object => json!({"cells": cells, "object": object}),
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows})
}

/// Cells of integer columns as numbers.
fn numbers(definitions: &[Value], cells: Vec<Value>) -> Vec<Value> {
    let number = |cell: &Value| cell.as_str().and_then(|text| text.parse::<i64>().ok());
    let typed = |(cell, definition): (Value, &Value)| match number(&cell) {
        Some(number) if definition["type"] == "integer" => json!(number),
        _ => cell,
    };
    cells.into_iter().zip(definitions).map(typed).collect()
}

/// An object's metadata alone.
pub fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn definition(name: &str, ty: &str, wide: bool) -> Value {
    json!({"name": name, "type": ty, "format": if name == "Name" { "name" } else { "" }, "description": "",
        "priority": i32::from(wide)})
}

/// The columns of a custom kind; without declared ones, its age.
fn custom_columns(kind: &Kind) -> Vec<Column> {
    let column = |name: &str, ty: &str, path: &str| Column {
        name: name.to_owned(),
        ty: ty.to_owned(),
        path: path.to_owned(),
        priority: 0,
    };
    let mut columns = vec![column("Name", "string", ".metadata.name")];
    if kind.columns.is_empty() {
        columns.push(column("Age", "date", ".metadata.creationTimestamp"));
    }
    columns.extend(kind.columns.iter().cloned());
    columns
}

fn custom_cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    custom_columns(kind)
        .iter()
        .map(|Column { ty, path, .. }| match find(object, path) {
            Some(value) if ty == "date" => json!(since(value.as_str().unwrap_or_default(), now)),
            Some(value) if ty == "string" && !value.is_string() => json!(value.to_string()),
            Some(value) => value,
            None if ty == "date" => json!("<unknown>"),
            None => Value::Null,
        })
        .collect()
}

/// The part of JSONPath that printer columns use: names, and `[?(@.a=="b")]` filters.
fn find(object: &Value, path: &str) -> Option<Value> {
    let mut place = object.clone();
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix("[?(@.") {
            let (filter, tail) = tail.split_once(")]")?;
            let (name, wanted) = filter.split_once("==")?;
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            place = place.as_array()?.iter().find(|item| item[name.trim()] == wanted)?.clone();
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix('[') {
            let (index, tail) = tail.split_once(']')?;
            place = match index.parse::<usize>() {
                Ok(index) => place.get(index)?.clone(),
                Err(_) => place.get(index.trim_matches(['"', '\'']))?.clone(),
            };
            rest = tail;
        } else {
            let tail = rest.strip_prefix('.').unwrap_or(rest);
            let mut end = tail.len();
            let bytes = tail.as_bytes();
            for at in 0..bytes.len() {
                let escaped = at > 0 && bytes[at - 1] == b'\\';
                if (bytes[at] == b'.' && !escaped) || bytes[at] == b'[' {
                    end = at;
                    break;
                }
            }
            let name = tail[..end].replace("\\.", ".");
            if name.is_empty() {
                return None;
            }
            place = place.get(&name)?.clone();
            rest = &tail[end..];
        }
    }
    Some(place)
}

/// Time since then as kubectl prints it; `<unknown>` without a time.
fn since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) => human(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// A duration in two units at most: `5s`, `3m20s`, `4h`, `2d3h`.
pub fn human(seconds: i64) -> String {
    let two = |high: i64, unit: &str, low: i64, lower: &str| match low {
        0 => format!("{high}{unit}"),
        _ => format!("{high}{unit}{low}{lower}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ => two(hours / 24 / 365, "y", hours / 24 % 365, "d"),
    }
}

fn containers(object: &Value) -> (String, String) {
    let list = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let join = |field: &str| {
        let parts: Vec<&str> = list.into_iter().flatten().map(|container| text(container, field)).collect();
        parts.join(",")
    };
    (join("/name"), join("/image"))
}

fn format_labels(labels: Option<&Value>) -> String {
    let parts: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}

/// A label selector as one text.
fn selector(selector: Option<&Value>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let labels = selector.and_then(|selector| selector.get("matchLabels")).and_then(Value::as_object);
    for (name, value) in labels.into_iter().flatten() {
        parts.push(format!("{name}={}", value.as_str().unwrap_or_default()));
    }
    let expressions =
        selector.and_then(|selector| selector.get("matchExpressions")).and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let key = text(expression, "/key");
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match text(expression, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn pod(object: &Value, now: Timestamp, age: Value) -> Vec<Value> {
    let (ready, total, reason, restarts) = pod_state(object, now);
    let gates = object.pointer("/spec/readinessGates").and_then(Value::as_array);
    let gates = gates.map_or_else(|| "<none>".to_owned(), |gates| format!("0/{}", gates.len()));
    vec![
        json!(text(object, "/metadata/name")),
        json!(format!("{ready}/{total}")),
        json!(reason),
        json!(restarts),
        age,
        or_none(text(object, "/status/podIP")),
        or_none(text(object, "/spec/nodeName")),
        or_none(text(object, "/status/nominatedNodeName")),
        json!(gates),
    ]
}

/// Ready containers, all containers, the STATUS word and the RESTARTS cell.
fn pod_state(object: &Value, now: Timestamp) -> (usize, usize, String, String) {
    let list = |pointer: &str| object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let total = list("/spec/containers").len();
    let phase = text(object, "/status/phase");
    let mut reason = match text(object, "/status/reason") {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    for condition in list("/status/conditions") {
        if condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated" {
            "SchedulingGated".clone_into(&mut reason);
        }
    }
    let (mut restarts, mut ready, mut last) = (0, 0, String::new());
    let initializing =
        init_reason(&list("/status/initContainerStatuses"), list("/spec/initContainers").len());
    if let Some(init) = initializing {
        reason = init;
        for status in list("/status/initContainerStatuses") {
            restarts += status["restartCount"].as_i64().unwrap_or(0);
        }
    } else {
        let (mut running, mut error) = (false, String::new());
        for status in list("/status/containerStatuses").iter().rev() {
            restarts += status["restartCount"].as_i64().unwrap_or(0);
            last = last.max(text(status, "/lastState/terminated/finishedAt").to_owned());
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut reason);
            } else if let Some(terminated) = status.pointer("/state/terminated") {
                reason = ended(terminated, "");
                if terminated["exitCode"].as_i64().unwrap_or(0) != 0 {
                    reason.clone_into(&mut error);
                }
            } else if status["ready"] == true && status.pointer("/state/running").is_some() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            let pod_ready =
                list("/status/conditions").iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            reason = match (running, pod_ready, error.is_empty()) {
                (true, true, _) => "Running".to_owned(),
                (_, _, false) => error,
                (true, false, true) => "NotReady".to_owned(),
                (false, _, true) => reason,
            };
        }
    }
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        if text(object, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarts = match (restarts, last.is_empty()) {
        (0, _) | (_, true) => restarts.to_string(),
        _ => format!("{restarts} ({} ago)", since(&last, now)),
    };
    (ready, total, reason, restarts)
}

/// The word for a pod whose init containers are not through.
fn init_reason(statuses: &[Value], total: usize) -> Option<String> {
    for (index, status) in statuses.iter().enumerate() {
        if let Some(terminated) = status.pointer("/state/terminated") {
            if terminated["exitCode"].as_i64().unwrap_or(0) == 0 {
                continue;
            }
            return Some(ended(terminated, "Init:"));
        }
        return Some(match text(status, "/state/waiting/reason") {
            "" | "PodInitializing" => format!("Init:{index}/{total}"),
            waiting => format!("Init:{waiting}"),
        });
    }
    None
}

fn ended(terminated: &Value, prefix: &str) -> String {
    match (text(terminated, "/reason"), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("{prefix}ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("{prefix}Signal:{signal}"),
        (reason, _) => format!("{prefix}{reason}"),
    }
}

fn node(object: &Value, age: Value) -> Vec<Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| condition["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object.pointer("/spec/unschedulable").is_some_and(|value| value == true) {
        status += ",SchedulingDisabled";
    }
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: Vec<&str> = labels
        .into_iter()
        .flat_map(serde_json::Map::keys)
        .filter_map(|label| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let addresses = object.pointer("/status/addresses").and_then(Value::as_array);
    let address = |ty: &str| {
        let found = addresses.into_iter().flatten().find(|address| address["type"] == ty);
        or_none(found.map_or("", |address| text(address, "/address")))
    };
    let info = |name: &str| match text(object, &format!("/status/nodeInfo/{name}")) {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    };
    let mut kernel = info("kernelVersion");
    let architecture = text(object, "/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel += &format!(" ({architecture})");
    }
    vec![
        json!(text(object, "/metadata/name")),
        json!(status),
        or_none(&roles.join(",")),
        age,
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

fn service(object: &Value, age: Value) -> Vec<Value> {
    let join = |list: Option<&Value>| {
        let parts: Vec<&str> =
            list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        parts.join(",")
    };
    let external = join(object.pointer("/spec/externalIPs"));
    let external = match text(object, "/spec/type") {
        "LoadBalancer" => {
            let ingress = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
            let parts: Vec<&str> = ingress
                .into_iter()
                .flatten()
                .map(|entry| match text(entry, "/ip") {
                    "" => text(entry, "/hostname"),
                    ip => ip,
                })
                .collect();
            json!(if parts.is_empty() { "<pending>".to_owned() } else { parts.join(",") })
        }
        "ExternalName" => json!(text(object, "/spec/externalName")),
        _ => or_none(&external),
    };
    let ports: Vec<String> = object
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|port| match port["nodePort"].as_i64().unwrap_or(0) {
            0 => format!("{}/{}", port["port"], text(port, "/protocol")),
            node => format!("{}:{node}/{}", port["port"], text(port, "/protocol")),
        })
        .collect();
    vec![
        json!(text(object, "/metadata/name")),
        json!(text(object, "/spec/type")),
        or_none(text(object, "/spec/clusterIP")),
        external,
        or_none(&ports.join(",")),
        age,
        json!(format_labels(object.pointer("/spec/selector"))),
    ]
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let time = |pointer: &str| Some(text(object, pointer)).filter(|text| !text.is_empty());
    let first = since(time("/firstTimestamp").or_else(|| time("/eventTime")).unwrap_or_default(), now);
    let last = time("/series/lastObservedTime").or_else(|| time("/lastTimestamp"));
    let last = last.map_or_else(|| first.clone(), |last| since(last, now));
    let count =
        object.pointer("/series/count").or_else(|| object.get("count")).and_then(Value::as_i64).unwrap_or(1);
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let target = match text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let or = |a: &'static str, b: &'static str| match text(object, a) {
        "" => text(object, b).to_owned(),
        text => text.to_owned(),
    };
    let (component, host) =
        (or("/source/component", "/reportingComponent"), or("/source/host", "/reportingInstance"));
    let source = if host.is_empty() { component } else { format!("{component}, {host}") };
    vec![
        json!(last),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(target),
        json!(text(object, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(object, "/message").trim()),
        json!(first),
        json!(count.to_string()),
        json!(text(object, "/metadata/name")),
    ]
}

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let count = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let done = count("/status/succeeded").unwrap_or(0);
    let completions = match (count("/spec/completions"), count("/spec/parallelism").unwrap_or(0)) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    };
    let has = |ty: &str| super::kinds::has_condition(object, ty);
    let status = match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if object.pointer("/metadata/deletionTimestamp").is_some() => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let duration = match (
        text(object, "/status/startTime"),
        text(object, "/status/completionTime").parse::<Timestamp>(),
    ) {
        ("", _) => String::new(),
        (start, Ok(end)) => since(start, end),
        (start, Err(_)) => since(start, now),
    };
    vec![json!(status), json!(completions), json!(duration)]
}

fn binding(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| {
        let list = object["subjects"].as_array();
        let parts: Vec<String> = list
            .into_iter()
            .flatten()
            .filter(|subject| subject["kind"] == kind)
            .map(|subject| match text(subject, "/namespace") {
                "" => text(subject, "/name").to_owned(),
                namespace => format!("{namespace}/{}", text(subject, "/name")),
            })
            .collect();
        json!(parts.join(", "))
    };
    vec![name, json!(role), age, subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_as_kubectl_prints_them() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (660, "11m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (10 * 3600, "10h"),
            (50 * 3600, "2d2h"),
            (10 * 86400, "10d"),
        ] {
            assert_eq!(human(seconds), expected);
        }
    }

    #[test]
    fn columns_find_their_values() {
        let object = json!({"a": {"b.c": 1}, "l": [{"type": "Ready", "status": "True"}]});
        assert_eq!(find(&object, ".a.b\\.c"), Some(json!(1)));
        assert_eq!(find(&object, ".l[?(@.type==\"Ready\")].status"), Some(json!("True")));
        assert_eq!(find(&object, ".l[0].type"), Some(json!("Ready")));
        assert_eq!(find(&object, ".x.y"), None);
    }
}
