//! Answers of the agent of a host, and what is read out of those that have the right shape.

use std::path::Path;

use import::{Hosts, Place};
use live::hosts::shape;
use model::resource::{Gvk, ObjectId};
use serde_json::{Value, json};

use super::answers::{judge, nothing, reads_back};
use super::check_terminal_safe;

fn object(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "hosts.dask-infra.dev/v1", "kind": kind,
        "metadata": {
            "name": name, "uid": "1f0a", "resourceVersion": "7", "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": { "dask-infra/stack": "h" },
            "managedFields": [{ "manager": "dask-infra/h", "operation": "Apply", "fieldsV1": { "f:spec": {} } }],
        },
        "spec": spec, "status": status,
    })
}

/// One of each kind, as agents answer.
pub fn lives() -> Vec<Vec<u8>> {
    let versions =
        json!({ "python": "3.12.1", "dask": "2026.8.0", "distributed": "2026.8.0", "cloudpickle": null });
    let queue = json!({ "waiting": { "Priority": 1 }, "ended": { "TIMEOUT": 2 }, "since": "2026-11-01T00:00:00Z", "starts": "N/A" });
    let workers = json!({ "running": 2, "present": 2, "registered": 1, "changed": 0 });
    let scheduler = json!({
        "running": true, "answers": true, "host": "127.0.0.1", "port": 8786, "dashboardPort": 8787,
        "address": "tcp://127.0.0.1:8786", "dashboard": "http://127.0.0.1:8787/status", "versions": versions, "queue": queue,
        "workersOn": { "n1": 2 }, "tls": { "fingerprint": "0a", "ends": "2028-11-01T00:00:00Z" },
    });
    let terms = json!({
        "environment": { "name": "h-main" }, "hosts": ["n1"], "host": "n1",
        "scheduler": { "on": "n1", "host": "127.0.0.1", "port": 8786, "dashboardPort": 8787 },
        "worker": { "replicas": 2, "threads": 1, "memory": "1 GiB", "hosts": ["n1"] },
    });
    let mut job = terms.clone();
    job["program"] = json!({ "args": ["python", "work.py"], "timeout": 60 });
    let environment = json!({
        "phase": "Ready", "digest": "d", "python": "/opt/dask/bin/python", "run": "podman run --rm 'an image' python",
        "versions": versions, "extras": { "dask-cuda": "26.8.0" }, "message": "", "log": "error: no\n",
    });
    let of =
        json!({ "digest": "d", "packages": ["dask==2026.8.0"], "files": { "requirements.txt": "numpy\n" } });
    let cluster = json!({
        "converging": false, "workers": workers, "scheduler": scheduler, "queue": queue, "versions": versions, "boot": "systemd",
        "adapter": { "running": false, "message": "ended" }, "skew": "its workers: dask", "message": "d-worker-0 ended: killed",
    });
    let running = json!({ "followed": true, "jobStatus": "Failed", "exitCode": 137, "startTime": "2026-11-01T00:00:00Z",
        "workers": workers, "scheduler": scheduler, "message": "out of memory" });
    let pod = json!({ "phase": "Pending", "startTime": "2026-11-01T00:00:00Z", "message": "no",
        "slurm": { "id": "7", "state": "PENDING", "reason": "Priority" },
        "conditions": [{ "type": "Ready", "status": "False" }],
        "containerStatuses": [{ "name": "worker", "ready": false, "restartCount": 0, "state": { "terminated": { "exitCode": 1 } } }] });
    let stranger = json!({
        "apiVersion": "hosts.dask-infra.dev/v1", "kind": "Stranger", "metadata": { "name": "12-34" }, "role": "scheduler",
        "command": "dask scheduler --port 1", "host": "n1", "user": "me", "pid": 12, "ours": true, "state": "/home/me/.local/state/dask-infra",
        "address": "tcp://127.0.0.1:1", "dashboard": "http://127.0.0.1:2/status", "workers": 3, "versions": versions, "job": "9",
    });
    let log = json!({ "kind": "Log", "end": 12, "text": "hello\n", "alive": true });
    [
        object("Environment", "h-main", &of, &environment),
        object("Cluster", "d", &terms, &cluster),
        object("WorkerGroup", "g", &json!({ "cluster": "d", "worker": { "replicas": 2 } }), &cluster),
        object("Job", "j", &job, &running),
        object("Pod", "d-worker-0", &json!({ "containers": [{ "name": "worker" }] }), &pod),
        stranger,
        log,
    ]
    .iter()
    .map(|value| value.to_string().into_bytes())
    .collect()
}

/// Judges and imports answers of the right shape. An error about another one has nothing that steers a terminal.
pub fn live(bytes: &[u8], place: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let kind = value["kind"].as_str().unwrap_or("Cluster");
    let plural = format!("{}s", kind.to_ascii_lowercase());
    let group = "/apis/hosts.dask-infra.dev/v1";
    let (path, answer) = match kind {
        "Pod" => ("/api/v1/namespaces/default/pods".to_owned(), json!({ "items": [value] })),
        "Log" => ("/api/v1/namespaces/default/pods/w/log?offset=3".to_owned(), value.clone()),
        _ => (format!("{group}/{plural}"), json!({ "items": [value] })),
    };
    if let Err(why) = shape::check(&path, &answer) {
        return if why.contains('`') { check_terminal_safe(&why) } else { Err(format!("no place: {why}")) };
    }
    judge(bytes, place)?;
    let mut found = nothing(Place::Hosts(Hosts::Local));
    if kind == "Stranger" {
        found.unmanaged.push(value);
    } else {
        let gvk =
            Gvk { group: "hosts.dask-infra.dev".into(), version: "v1".into(), kind: kind.into(), plural };
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        found.objects.insert(ObjectId { gvk, namespace: None, name }, value);
    }
    reads_back(&found)
}
