//! Nodes. Source: `printNode` in `pkg/printers/internalversion/printers.go`, `AddFieldLabelConversionsForNode` in
//! `pkg/apis/core/v1/conversion.go`.

use serde_json::{Map, Value, json};

use super::super::object::{condition, list, text};
use super::super::strategy::Cell::{Of, Text};
use super::super::strategy::{AGE, NAME, Selectable, Strategy, column, or_none, wide};

pub const STRATEGIES: &[Strategy] = &[Strategy {
    columns: &[
        NAME,
        column("Status", Of(status)),
        column("Roles", Of(roles)),
        AGE,
        column("Version", Text("/status/nodeInfo/kubeletVersion")),
        wide("Internal-IP", Of(|node| address(node, "InternalIP"))),
        wide("External-IP", Of(|node| address(node, "ExternalIP"))),
        wide("OS-Image", Of(|node| info(node, "osImage"))),
        wide("Kernel-Version", Of(kernel)),
        wide("Container-Runtime", Of(|node| info(node, "containerRuntimeVersion"))),
    ],
    zero: || {
        json!({"spec": {},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": {}}})
    },
    selectable: Selectable::These(&["spec.unschedulable"]),
    condition_times: &["lastHeartbeatTime", "lastTransitionTime"],
    ..Strategy::of("", "Node")
}];

fn status(node: &Value) -> String {
    let ready = match condition(node, "Ready").map(|ready| ready["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    };
    let closed = node.pointer("/spec/unschedulable").is_some_and(|value| value == true);
    format!("{ready}{}", if closed { ",SchedulingDisabled" } else { "" })
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flat_map(Map::keys);
    let roles: Vec<&str> =
        labels.filter_map(|label| label.strip_prefix("node-role.kubernetes.io/")).collect();
    or_none(&roles.join(","))
}

fn address(node: &Value, ty: &str) -> String {
    let found = list(node, "/status/addresses").iter().find(|address| address["type"] == ty);
    or_none(found.map_or("", |address| text(address, "/address")))
}

fn info(node: &Value, name: &str) -> String {
    match text(node, &format!("/status/nodeInfo/{name}")) {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    }
}

fn kernel(node: &Value) -> String {
    let version = info(node, "kernelVersion");
    match text(node, "/status/nodeInfo/architecture") {
        "" => version,
        architecture => format!("{version} ({architecture})"),
    }
}
