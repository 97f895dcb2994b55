//! Endpoints that `connect` can open: the Service, its ports, and the pod behind them. This module only computes values;
//! `live::forward` forwards the ports.

use serde_json::Value;

use crate::json::text;
use crate::kind::{ConnectTarget, EndpointKind};
use crate::kubernetes::object::pods_matching;
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::pods::pending;
use model::resource::{Identity, Query, Resource};

/// Purposes of the ports of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// The scheduler's port for Dask clients.
    Comm,
    /// The scheduler's dashboard.
    Dashboard,
    /// Jupyter's pages.
    Pages,
}

impl PortRole {
    /// Returns the usual port.
    pub fn usual(self) -> u16 {
        match self {
            Self::Comm => 8786,
            Self::Dashboard => 8787,
            Self::Pages => 8888,
        }
    }

    /// Returns the name that the Dask operator, its charts and this program give to it.
    fn name(self) -> &'static str {
        match self {
            Self::Comm => "tcp-comm",
            Self::Dashboard => "http-dashboard",
            Self::Pages => "http",
        }
    }
}

/// The number of a container's port, or its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodPort {
    Number(u16),
    /// A port name, to be looked up in the pod.
    Named(String),
}

/// The pod behind an endpoint, and its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFound {
    pub namespace: String,
    pub name: String,
    /// The uid, which distinguishes it from another pod of the same name.
    pub uid: String,
    /// The image of its first container.
    pub image: String,
    /// The numbers of the requested ports, in their order.
    pub ports: Vec<u16>,
    /// The Secret with the password that Jupyter asks for, and the key in it.
    pub password: Option<(String, String)>,
}

/// The variable that Jupyter takes its password from. Source: `jupyter_server/auth/identity.py`.
pub const PASSWORD: &str = "JUPYTER_TOKEN";

/// Returns the endpoint of a Service whose ports lead to a scheduler or a notebook.
pub(crate) fn of_service(resource: &Resource) -> Option<ConnectTarget> {
    let Identity::Object(object) = &resource.identity else { return None };
    let has = |use_for: PortRole| port(&resource.body, use_for).is_some();
    let behind = if has(PortRole::Comm) {
        EndpointKind::Scheduler
    } else if has(PortRole::Pages) && leads_to(&resource.body, PortRole::Pages.usual()) {
        EndpointKind::Notebook
    } else {
        return None;
    };
    Some(ConnectTarget { kind: behind, service: object.clone() })
}

fn leads_to(service: &Value, number: u16) -> bool {
    ports(service).any(|port| port["targetPort"] == number || port["port"] == number)
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    service["spec"]["ports"].as_array().into_iter().flatten()
}

/// Returns the container port that a port of a Service leads to. The Service's port is found by its name, as in the operator,
/// else by the usual number.
pub fn port(service: &Value, use_for: PortRole) -> Option<PodPort> {
    let own = text(&service["metadata"]["name"]);
    let named = |port: &&Value| port["name"] == use_for.name();
    let as_service = |port: &&Value| use_for == PortRole::Comm && !own.is_empty() && port["name"] == *own;
    let usual = |port: &&Value| port["targetPort"] == use_for.usual() || port["port"] == use_for.usual();
    let found = ports(service)
        .find(named)
        .or_else(|| ports(service).find(as_service))
        .or_else(|| ports(service).find(usual))?;
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    match &found["targetPort"] {
        Value::String(name) => match name.parse() {
            Ok(number) => Some(PodPort::Number(number)),
            Err(_) => Some(PodPort::Named(name.clone())),
        },
        Value::Null => number(&found["port"]).map(PodPort::Number),
        other => number(other).map(PodPort::Number),
    }
}

/// Lists the pods that a Service selects; nothing when it selects none.
pub fn pods(service: &Value) -> Option<Query> {
    pods_matching(service["metadata"]["namespace"].as_str(), &service["spec"]["selector"])
}

/// Returns the pod to connect to. That is the pod with the uid `current` as long as it runs, ready or not, else the oldest ready
/// pod.
///
/// # Errors
///
/// Why there is no such pod, as far as the pods show it.
pub fn choose(list: &Value, desired: &[PodPort], current: Option<&str>) -> Result<PodFound, String> {
    let staying = || {
        PodState::each(list)
            .filter(|pod| !pod.is_terminating() && !matches!(pod.phase(), "Succeeded" | "Failed"))
    };
    let kept = staying()
        .filter(|pod| pod.phase() == "Running")
        .find(|pod| current.is_some_and(|current| pod.0["metadata"]["uid"] == *current));
    let oldest = || {
        let ready = staying().filter(|pod| pod.is_ready());
        ready.min_by_key(|pod| text(&pod.0["metadata"]["creationTimestamp"]))
    };
    let Some(PodState(pod)) = kept.or_else(oldest) else { return Err(why_none(list, staying().count())) };
    let ports: Result<Vec<u16>, String> = desired.iter().map(|port| number(port, pod)).collect();
    Ok(PodFound {
        namespace: text(&pod["metadata"]["namespace"]).to_owned(),
        name: text(&pod["metadata"]["name"]).to_owned(),
        uid: text(&pod["metadata"]["uid"]).to_owned(),
        image: text(&pod["spec"]["containers"][0]["image"]).to_owned(),
        ports: ports?,
        password: password(pod),
    })
}

fn password(pod: &Value) -> Option<(String, String)> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut env = containers.filter_map(|container| container["env"].as_array()).flatten();
    let secret = &env.find(|variable| variable["name"] == PASSWORD)?["valueFrom"]["secretKeyRef"];
    Some((secret["name"].as_str()?.to_owned(), secret["key"].as_str()?.to_owned()))
}

fn why_none(list: &Value, staying: usize) -> String {
    let pending = pending(list);
    match pending.first() {
        Some(pending) => match &pending.why {
            Some(why) => format!("pod {} is not ready: {why}", pending.pod),
            None => format!("pod {} is not ready yet", pending.pod),
        },
        None if staying == 0 => "there is no pod yet".to_owned(),
        None => "no pod is ready".to_owned(),
    }
}

fn number(port: &PodPort, pod: &Value) -> Result<u16, String> {
    let name = match port {
        PodPort::Number(number) => return Ok(*number),
        PodPort::Named(name) => name,
    };
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
    let found = ports.find(|port| port["name"] == **name).and_then(|port| port["containerPort"].as_u64());
    found.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
        format!("pod {} has no port `{name}`, the target of its Service", text(&pod["metadata"]["name"]))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, status: Value) -> Value {
        json!({
            "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"),
                          "creationTimestamp": format!("2026-01-01T00:00:0{}Z", name.len()) },
            "spec": { "containers": [{ "image": "i", "ports": [{ "name": "tcp-comm", "containerPort": 8786 }] }] },
            "status": status,
        })
    }

    fn running(ready: &str) -> Value {
        json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] })
    }

    fn named() -> Vec<PodPort> {
        vec![PodPort::Named("tcp-comm".into()), PodPort::Number(8787)]
    }

    fn list(pods: &[Value]) -> Value {
        json!({ "items": pods })
    }

    #[test]
    fn ports_are_found_by_name_by_the_services_name_and_by_number() {
        let service =
            |ports: Value| json!({ "metadata": { "name": "c-scheduler" }, "spec": { "ports": ports } });
        let comm = |ports: Value| port(&service(ports), PortRole::Comm);
        let by_name = comm(
            json!([{ "name": "x", "port": 1 }, { "name": "tcp-comm", "port": 9, "targetPort": "comm" }]),
        );
        assert_eq!(by_name, Some(PodPort::Named("comm".into())));
        assert_eq!(comm(json!([{ "name": "c-scheduler", "port": 99 }])), Some(PodPort::Number(99)));
        let chart = json!([{ "name": "dask-webui", "port": 80, "targetPort": 8787 }]);
        assert_eq!(comm(chart.clone()), None);
        assert_eq!(port(&service(chart), PortRole::Dashboard), Some(PodPort::Number(8787)));
        assert_eq!(
            comm(json!([{ "name": "a", "port": 8786, "targetPort": "8001" }])),
            Some(PodPort::Number(8001))
        );
    }

    #[test]
    fn the_oldest_ready_pod_is_chosen_and_kept_while_it_runs() {
        let old = pod("a", running("True"));
        let new = pod("bb", running("True"));
        let chosen = |pods: &[Value], current| choose(&list(pods), &named(), current).map(|found| found.name);
        assert_eq!(chosen(&[new.clone(), old.clone()], None).as_deref(), Ok("a"));
        assert_eq!(chosen(&[new.clone(), old.clone()], Some("uid-bb")).as_deref(), Ok("bb"));
        let shaky = pod("a", running("False"));
        assert_eq!(
            chosen(&[shaky.clone(), new.clone()], Some("uid-a")).as_deref(),
            Ok("a"),
            "not ready for a moment"
        );
        assert_eq!(chosen(&[shaky, new.clone()], None).as_deref(), Ok("bb"));
        let mut going = old;
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(chosen(&[going, new], Some("uid-a")).as_deref(), Ok("bb"));
        let found = choose(&list(&[pod("a", running("True"))]), &named(), None).unwrap();
        assert_eq!((found.ports, found.image.as_str()), (vec![8786, 8787], "i"));
    }

    #[test]
    fn why_there_is_no_pod_is_said() {
        let why = |pods: &[Value]| choose(&list(pods), &named(), None).unwrap_err();
        assert_eq!(why(&[]), "there is no pod yet");
        let unschedulable = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "message": "0/2 nodes are available" }
        ] });
        assert_eq!(why(&[pod("a", unschedulable)]), "pod a is not ready: 0/2 nodes are available");
        let mut other = pod("a", running("True"));
        other["spec"]["containers"][0]["ports"] = json!([]);
        assert_eq!(why(&[other]), "pod a has no port `tcp-comm`, the target of its Service");
    }

    #[test]
    fn the_pods_of_a_service_are_asked_by_its_selector() {
        let service = json!({ "metadata": { "namespace": "n" }, "spec": { "selector": {
            "dask.org/cluster-name": "c", "dask.org/component": "scheduler",
        } } });
        let expect = "/api/v1/namespaces/n/pods?labelSelector=dask.org%2Fcluster-name%3Dc%2Cdask.org%2Fcomponent%3Dscheduler";
        assert_eq!(pods(&service).unwrap().path, expect);
        assert_eq!(pods(&json!({ "spec": {} })), None);
    }
}
