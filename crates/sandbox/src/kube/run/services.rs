//! Services: the endpoints behind them, and the address of a load balancer.
//!
//! From memory of `pkg/controller/endpoint/endpoints_controller.go`; the time of a load balancer is a guess.

use serde_json::{Value, json};

use super::super::object::{hex, is_deleted, is_finished, key, labels, list, name, namespace, text, uid};
use super::round::Run;
use super::select;
use super::stages::stages;
use super::workloads::{MANAGER, is_ready};

/// One round over all Services.
pub fn run(run: &mut Run<'_>) {
    let pods = run.objects("", "pods");
    for service in run.objects("", "services") {
        if is_deleted(service) {
            continue;
        }
        if text(service, "/spec/type") == "LoadBalancer" {
            balance(run, service);
        }
        if service["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty()) {
            write_endpoints(run, service, &pods);
        }
    }
    for endpoints in run.objects("", "endpoints") {
        let service = run.get("", "services", namespace(endpoints), name(endpoints));
        if service.is_none() && endpoints["metadata"]["annotations"].get(TRIGGER).is_some() {
            run.delete(key("", "endpoints", endpoints));
        }
    }
}

/// Marks endpoints that the controller made, as the real one does.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// GKE gives a LoadBalancer Service its address after a while.
fn balance(run: &mut Run<'_>, service: &Value) {
    if !list(service, "/status/loadBalancer/ingress").is_empty() {
        return;
    }
    if run.passed(format!("{} balancer", uid(service)), stages().delay("load_balancer")) {
        // 203.0.113.0/24 is set aside for documentation: nobody's address.
        let host = u8::from_str_radix(&hex(uid(service), 2), 16).unwrap_or(1).clamp(1, 254);
        let status =
            json!({"loadBalancer": {"ingress": [{"ip": format!("203.0.113.{host}"), "ipMode": "VIP"}]}});
        run.status("cloud-controller-manager", key("", "services", service), service, status);
    }
}

fn write_endpoints(run: &mut Run<'_>, service: &Value, pods: &[&Value]) {
    let selected = |pod: &&&Value| {
        namespace(pod) == namespace(service)
            && !is_finished(pod)
            && !is_deleted(pod)
            && !text(pod, "/status/podIP").is_empty()
            && select::exact(&service["spec"]["selector"], &labels(pod))
    };
    let (ready, waiting): (Vec<&Value>, Vec<&Value>) =
        pods.iter().filter(selected).partition(|pod| is_ready(pod));
    let mut subset = json!({"ports": ports(service, ready.iter().chain(&waiting).next().copied())});
    for (field, group) in [("addresses", &ready), ("notReadyAddresses", &waiting)] {
        if !group.is_empty() {
            subset[field] = group.iter().map(|pod| address(pod)).collect();
        }
    }
    let subsets = if ready.is_empty() && waiting.is_empty() { Value::Null } else { json!([subset]) };
    let live = run.get("", "endpoints", namespace(service), name(service));
    match live {
        None => {
            let mut endpoints = json!({
                "apiVersion": "v1", "kind": "Endpoints",
                "metadata": {
                    "name": name(service), "namespace": namespace(service), "labels": labels(service),
                    "annotations": {TRIGGER: service["metadata"]["creationTimestamp"]},
                },
            });
            if !subsets.is_null() {
                endpoints["subsets"] = subsets;
            }
            run.create(MANAGER, endpoints);
        }
        Some(live) if live["subsets"] != subsets => {
            run.merge(MANAGER, key("", "endpoints", live), json!({"subsets": subsets}));
        }
        Some(_) => {}
    }
}

fn address(pod: &Value) -> Value {
    json!({
        "ip": pod["status"]["podIP"], "nodeName": pod["spec"]["nodeName"],
        "targetRef": {"kind": "Pod", "name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
    })
}

/// The numbers behind the Service's ports: a named target is looked up in a pod.
fn ports(service: &Value, pod: Option<&Value>) -> Vec<Value> {
    let named = |target: &str| {
        let containers = pod.map_or(&[][..], |pod| list(pod, "/spec/containers"));
        let mut ports = containers.iter().flat_map(|container| list(container, "/ports"));
        ports.find(|port| port["name"] == target).map(|port| port["containerPort"].clone())
    };
    list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let number = match &port["targetPort"] {
                Value::String(target) => named(target).unwrap_or_else(|| port["port"].clone()),
                Value::Number(number) => json!(number),
                _ => port["port"].clone(),
            };
            let protocol = if port["protocol"].is_null() { json!("TCP") } else { port["protocol"].clone() };
            let mut out = json!({"port": number, "protocol": protocol});
            if !port["name"].is_null() {
                out["name"] = port["name"].clone();
            }
            out
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{World, pool};
    use super::*;

    #[test]
    fn endpoints_follow_the_pods() {
        let mut world = World::new(vec![pool("p", "e2-standard-4", 1, json!({}))]);
        world.create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"},
            "spec": {"selector": {"app": "x"}, "ports": [
                {"name": "web", "port": 80, "targetPort": "http"}, {"name": "raw", "port": 9000},
            ]},
        }));
        world.pass(60);
        let endpoints = |world: &World| world.get("", "endpoints", "default", "s");
        assert_eq!(endpoints(&world).get("subsets"), None);
        world.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "nginx",
                "ports": [{"name": "http", "containerPort": 8080}]}]},
        }));
        world.pass(30);
        let subset = endpoints(&world)["subsets"][0].clone();
        let pod = world.get("", "pods", "default", "p");
        assert_eq!(subset["addresses"][0]["ip"], pod["status"]["podIP"]);
        let ports = json!([
            {"name": "web", "port": 8080, "protocol": "TCP"}, {"name": "raw", "port": 9000, "protocol": "TCP"},
        ]);
        assert_eq!(subset["ports"], ports);
        world.delete(&crate::kube::object::Key::new("", "services", "default", "s"));
        world.pass(1);
        assert_eq!(endpoints(&world), Value::Null);
    }
}
