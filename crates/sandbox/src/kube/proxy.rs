//! The API server's proxy to Services, as far as a Dask scheduler answers behind it. No process computes here: the
//! scheduler has no task, or as many as its Service is annotated with.

use serde_json::{Value, json};

use super::object::{Key, is_true, label, list, namespace, text};
use super::request::{Request, Response};
use super::run;
use super::status::Status;
use super::store::Cluster;

/// Answers `GET /api/v1/namespaces/N/services/NAME:PORT/proxy/PATH`; `None` for other paths.
pub fn answer(cluster: &Cluster, request: &Request) -> Option<Response> {
    let rest = request.path.strip_prefix("/api/v1/namespaces/")?;
    let (space, rest) = rest.split_once("/services/")?;
    let (service, path) = rest.split_once("/proxy")?;
    if request.method != "GET" || !path.is_empty() && !path.starts_with('/') {
        return None;
    }
    Some(through(cluster, space, service, path).unwrap_or_else(Response::from))
}

/// Source: `ResourceLocation` in `pkg/registry/core/service/storage/storage.go`; seen on kube-apiserver 1.36.
fn through(cluster: &Cluster, space: &str, wanted: &str, path: &str) -> Result<Response, Status> {
    let (service_name, port) = wanted.split_once(':').unwrap_or((wanted, ""));
    let service = cluster.get(&Key::new("", "services", space, service_name));
    let service = service.ok_or_else(|| Status::not_found("", "services", service_name))?;
    let known = |known: &Value| {
        let number = known["port"].as_u64().map(|port| port.to_string());
        text(known, "/name") == port || number.as_deref() == Some(port) || port.is_empty()
    };
    let none = || Status::unavailable(format!("no endpoints available for service {wanted:?}"));
    if !list(service, "/spec/ports").iter().any(known) {
        let message = format!("no service port {port:?} found for service {service_name:?}");
        return Err(Status::unavailable(message));
    }
    let selects = |pod: &&Value| {
        let selector = service.pointer("/spec/selector").and_then(Value::as_object);
        let fits = selector.is_some_and(|selector| {
            selector.iter().all(|(key, value)| Some(label(pod, key)) == value.as_str())
        });
        namespace(pod) == space && fits && is_true(pod, "Ready")
    };
    let pods = || cluster.list("", "pods").map(|(_, pod)| pod);
    let scheduler = pods().find(selects).ok_or_else(none)?;
    let page = |code: u16, text: &str| Response {
        content_type: "text/html; charset=UTF-8".into(),
        ..Response::text(code, text)
    };
    if label(scheduler, "dask.org/component") != "scheduler" {
        return Ok(page(404, "<html><title>404: Not Found</title><body>404: Not Found</body></html>"));
    }
    let of = label(scheduler, "dask.org/cluster-name");
    let is_worker = |pod: &&Value| {
        let own = label(pod, "dask.org/component") == "worker" && label(pod, "dask.org/cluster-name") == of;
        own && namespace(pod) == space && is_true(pod, "Ready")
    };
    Ok(match path {
        "/health" => Response::text(200, "ok"),
        "/json/counts.json" => Response::json(200, &counts(service, pods().filter(is_worker).count())),
        _ => page(404, "<html><title>404: Not Found</title><body>404: Not Found</body></html>"),
    })
}

/// Source: `distributed/http/scheduler/json.py` 2026.8.0.
fn counts(service: &Value, workers: usize) -> Value {
    let tasks = run::tasks(service);
    let (running, unrunnable) = if workers == 0 { (0, tasks) } else { (tasks, 0) };
    json!({
        "bytes": 0, "clients": usize::from(tasks > 0), "cores": workers, "erred": 0, "hosts": workers,
        "idle": workers.saturating_sub(tasks), "memory": 0, "processing": running, "released": 0,
        "saturated": 0, "tasks": tasks, "unrunnable": unrunnable, "waiting": 0, "waiting_data": 0,
        "workers": workers, "desired_workers": tasks.min(workers.max(1)),
    })
}
