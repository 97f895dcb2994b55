//! The check `dask-sum`: a client connects to a Dask cluster, which computes.

use serde_json::{Value, json};

use crate::kinds::scope::DaskFacts;

/// The container of the check, and what its log begins with.
pub const NAME: &str = "dask-sum";

/// The line that its log must have: 0 + 1 + … + 9.
pub const PASSED: &str = "dask-sum: 45";

/// Says on a host whose environment a program runs in.
const CLUSTER: &str = "hosts.dask-infra.dev/cluster";
/// Says on which of several hosts.
const ON: &str = "hosts.dask-infra.dev/on";

/// Runs in the image or environment of the cluster, so it has the cluster's versions.
const PROGRAM: &str = "\
import os
from distributed import Client

with Client(os.environ[\"DASK_SCHEDULER_ADDRESS\"], timeout=\"60s\") as client:
    total = client.submit(sum, client.map(int, range(10)))
    print(\"dask-sum:\", total.result(timeout=300), flush=True)
";

/// The spec of the pod that runs it in a Kubernetes cluster: as `args`, so that the image's entry point prepares the
/// environment.
pub fn in_cluster(cluster: &DaskFacts) -> Value {
    json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": NAME,
            "image": cluster.image,
            "args": ["python", "-c", PROGRAM],
            "env": [{ "name": "DASK_SCHEDULER_ADDRESS", "value": cluster.scheduler }],
        }],
    })
}

/// The same on a host, and the annotations that name the cluster.
pub fn on_host(cluster: &DaskFacts) -> (Value, Value) {
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": NAME,
            "command": ["python", "-c", PROGRAM],
            "env": [{ "name": "DASK_SCHEDULER_ADDRESS", "value": cluster.scheduler }],
        }],
    });
    let mut annotations = json!({ CLUSTER: cluster.name });
    if let Some(on) = &cluster.on {
        annotations[ON] = json!(on);
    }
    (spec, annotations)
}

/// Whether a pod stands for a process on a host.
pub fn is_on_host(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(CLUSTER).is_some()
}
