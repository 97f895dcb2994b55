//! Services. Source: `SetDefaults_Service` in `pkg/apis/core/v1/defaults.go`, `printService` in
//! `pkg/printers/internalversion/printers.go`, `ValidateService` in `pkg/apis/core/validation/validation.go`, and
//! `alloc.go` in `pkg/registry/core/service/storage` for the addresses.

use serde_json::{Value, json};

use super::super::names::bad_domain_label;
use super::super::numbers::Numbers;
use super::super::object::{fill, list, text};
use super::super::status::Cause;
use super::super::strategy::Cell::{Of, OrNone, Text};
use super::super::strategy::{AGE, NAME, Selectable, Strategy, column, each, labels, or_none, put, wide};

/// The address of the `kubernetes` Service: the first of GKE's default Service range, 34.118.224.0/20.
const KUBERNETES: &str = "34.118.224.1";

pub const STRATEGIES: &[Strategy] = &[Strategy {
    columns: &[
        NAME,
        column("Type", Text("/spec/type")),
        column("Cluster-IP", OrNone("/spec/clusterIP")),
        column("External-IP", Of(external)),
        column("Port(s)", Of(ports)),
        AGE,
        wide("Selector", Of(|service| labels(service.pointer("/spec/selector")))),
    ],
    zero: || json!({"spec": {}, "status": {"loadBalancer": {}}}),
    defaults,
    prepare_for_create: addresses,
    prepare_for_update: keep_addresses,
    bad_name: bad_domain_label,
    validate,
    validate_update,
    selectable: Selectable::These(&["spec.clusterIP", "spec.type"]),
    ..Strategy::of("", "Service")
}];

/// The Service of the API server itself.
pub fn kubernetes() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": KUBERNETES,
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}]},
    })
}

fn is_external(service: &Value) -> bool {
    text(service, "/spec/type") == "ExternalName"
}

/// Returns true if the service listens on the nodes, too.
fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer")
}

fn defaults(service: &mut Value) {
    fill(
        service,
        &json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None"}, "status": {"loadBalancer": {}}}),
    );
    if is_external(service) {
        return;
    }
    let (balanced, nodes) = (text(service, "/spec/type") == "LoadBalancer", has_node_ports(service));
    let spec = &mut service["spec"];
    put(spec, "internalTrafficPolicy", json!("Cluster"));
    if nodes {
        put(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if balanced {
        put(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    for port in each(spec, "ports") {
        let number = port["port"].clone();
        put(port, "protocol", json!("TCP"));
        put(port, "targetPort", number);
    }
}

/// Gives a Service its cluster address and node ports.
fn addresses(numbers: &mut Numbers, service: &mut Value) {
    if is_external(service) {
        return;
    }
    let nodes = has_node_ports(service);
    let spec = &mut service["spec"];
    fill(spec, &json!({"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}));
    if let Some(ip) = spec.get("clusterIP").cloned() {
        put(spec, "clusterIPs", json!([ip]));
    }
    if text(spec, "/clusterIP").is_empty() {
        let number = numbers.draw() % 3800 + 32;
        let ip = json!(format!("34.118.{}.{}", 224 + number / 256, number % 256));
        spec["clusterIPs"] = json!([ip]);
        spec["clusterIP"] = ip;
    }
    for port in each(spec, "ports").filter(|_| nodes) {
        if port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) == 0 {
            port["nodePort"] = json!(30_000 + numbers.draw() % 2768);
        }
    }
}

/// An update that does not speak of the addresses leaves them as they were.
fn keep_addresses(live: &Value, service: &mut Value) {
    if is_external(live) || is_external(service) {
        return;
    }
    for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if let Some(value) = live["spec"].get(name) {
            put(&mut service["spec"], name, value.clone());
        }
    }
}

fn validate(service: &Value, causes: &mut Vec<Cause>) {
    let ports = list(service, "/spec/ports");
    if text(service, "/spec/clusterIP") != "None" && !is_external(service) && ports.is_empty() {
        causes.push(Cause::required("spec.ports"));
    }
    for (index, port) in ports.iter().enumerate() {
        for name in ["port", "targetPort"] {
            if let Some(number) = port[name].as_i64().filter(|number| !(1..=65535).contains(number)) {
                let field = format!("spec.ports[{index}].{name}");
                causes.push(Cause::invalid(field, number, "must be between 1 and 65535, inclusive"));
            }
        }
    }
    for (index, port) in ports.iter().enumerate().filter(|_| ports.len() > 1) {
        if text(port, "/name").is_empty() {
            causes.push(Cause::required(format!("spec.ports[{index}].name")));
        }
    }
}

fn validate_update(live: &Value, service: &Value, causes: &mut Vec<Cause>) {
    let (old, new) = (text(live, "/spec/clusterIP"), text(service, "/spec/clusterIP"));
    if !is_external(live) && !is_external(service) && !old.is_empty() && old != new {
        causes.push(Cause::invalid("spec.clusterIPs[0]", format!("[\"{new}\"]"), "may not change once set"));
    }
}

fn external(service: &Value) -> String {
    match text(service, "/spec/type") {
        "LoadBalancer" => {
            let entries = list(service, "/status/loadBalancer/ingress").iter();
            let addresses: Vec<&str> = entries
                .map(|entry| match text(entry, "/ip") {
                    "" => text(entry, "/hostname"),
                    ip => ip,
                })
                .collect();
            if addresses.is_empty() { "<pending>".to_owned() } else { addresses.join(",") }
        }
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ => {
            let addresses = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str);
            or_none(&addresses.collect::<Vec<_>>().join(","))
        }
    }
}

fn ports(service: &Value) -> String {
    let ports = list(service, "/spec/ports").iter().map(|port| {
        let node = port["nodePort"].as_i64().filter(|node| *node != 0).map(|node| format!(":{node}"));
        format!("{}{}/{}", port["port"], node.unwrap_or_default(), text(port, "/protocol"))
    });
    or_none(&ports.collect::<Vec<_>>().join(","))
}
