//! Checks that run as a client of a Dask cluster: if it computes, how fast its workers exchange data, and if they can use their
//! GPUs.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::dask::device_memory;
use crate::dask_config::DaskConfig;
use crate::json::text;
use crate::scope::DaskFacts;
use crate::worker_resources::WorkerResources;

/// The annotation that names the Dask cluster whose environment a program on a host uses.
const CLUSTER_ANNOTATION: &str = "hosts.dask-infra.dev/cluster";
/// The annotation that names the host on which a program runs.
const HOST_ANNOTATION: &str = "hosts.dask-infra.dev/on";

/// The annotation with the digest of the files of a program on a host.
pub const FILES_ANNOTATION: &str = "hosts.dask-infra.dev/files";

/// The variable with the required bytes per second of a connection.
const MIN_BANDWIDTH: &str = "DASK_INFRA_MIN_BANDWIDTH";
/// The variable with the required number of worker processes with a GPU.
const MIN_WORKERS: &str = "DASK_INFRA_MIN_GPU_WORKERS";

/// A program that is a client of a Dask cluster. It runs in the image or environment of the cluster, so its versions match.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The container of the check.
    pub name: &'static str,
    /// The line that its log must have.
    pub passed: &'static str,
    text: &'static str,
}

/// Includes the text of a program, with the code that compares versions before it.
macro_rules! program {
    ($($file:literal),+) => {
        concat!(
            "RULES = ",
            include_str!("../../../model/src/versions.json"),
            include_str!("../../../model/src/versions.py"),
            include_str!("check_program/agree.py"),
            $(include_str!($file),)+
        )
    };
}

/// The sum of 0 to 9 on the workers.
pub const SUM: Program =
    Program { name: "dask-sum", passed: "dask-sum: 45", text: program!("check_program/sum.py") };

pub const BANDWIDTH: Program = Program {
    name: "bandwidth",
    passed: "bandwidth: measured",
    text: program!("check_program/bandwidth.py"),
};

/// The CUDA check on the workers of a Dask cluster.
pub const VECTORADD: Program = Program {
    name: "cuda-vectoradd",
    passed: "Test PASSED",
    text: program!("check_program/on_gpus.py", "check_program/vectoradd.py"),
};

/// The cuDF check on the workers of a Dask cluster.
pub const CUDF_ON_WORKERS: Program = Program {
    name: CUDF.name,
    passed: CUDF.passed,
    text: program!("check_program/on_gpus.py", "check_program/cudf_on_workers.py"),
};

/// The cuDF check in its own pod.
pub const CUDF: Program =
    Program { name: "cudf", passed: "cudf: computed", text: include_str!("check_program/cudf.py") };

impl Program {
    /// Returns it as a client of a Dask cluster.
    pub fn client(&self) -> Client<'static> {
        Client { name: self.name, words: vec!["python", "-c", self.text], resources: None }
    }
}

/// The process of a client of a Dask cluster.
#[derive(Clone, Debug)]
pub struct Client<'a> {
    /// The container.
    name: &'a str,
    /// The words of the command line.
    words: Vec<&'a str>,
    /// Dask's resources that all of its tasks take.
    resources: Option<&'a WorkerResources>,
}

impl Client<'_> {
    /// Returns Dask's configuration in its process.
    fn config<'c>(&self, cluster: &'c DaskFacts) -> Cow<'c, DaskConfig> {
        match self.resources {
            Some(resources) => Cow::Owned(resources.annotate(&cluster.config)),
            None => Cow::Borrowed(&cluster.config),
        }
    }
}

/// Returns the client of a check that runs the user's program, whose tasks take `resources`.
pub fn own<'a>(words: &'a [String], resources: &'a WorkerResources) -> Client<'a> {
    Client {
        name: "program",
        words: words.iter().map(String::as_str).collect(),
        resources: Some(resources).filter(|resources| !resources.is_empty()),
    }
}

/// Returns the line that the log of a built-in check must have; `None` for the user's program, which passes by its exit code.
pub fn passed(pod: &Value) -> Option<&'static str> {
    let name = text(&pod["spec"]["containers"][0]["name"]);
    [SUM, BANDWIDTH, VECTORADD, CUDF]
        .into_iter()
        .find(|program| program.name == name)
        .map(|program| program.passed)
}

fn variables(config: impl Iterator<Item = Value>, cluster: &DaskFacts, least: Option<u64>) -> Value {
    let mut variables = vec![json!({ "name": "DASK_SCHEDULER_ADDRESS", "value": cluster.scheduler })];
    variables.extend(config);
    variables.extend(cluster.spills.then(device_memory::spill_variable));
    variables.extend(least.map(|least| json!({ "name": MIN_BANDWIDTH, "value": least.to_string() })));
    json!(variables)
}

/// Returns the spec of the pod that runs it in a Kubernetes cluster. The program is in `args`, so that the image's entry point
/// prepares the environment.
pub fn in_cluster(client: &Client<'_>, cluster: &DaskFacts, least: Option<u64>) -> Value {
    json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": client.name,
            "image": cluster.image,
            "args": client.words,
            "env": variables(client.config(cluster).container_variables(), cluster, least),
        }],
    })
}

/// Returns the spec of the pod of a client without a Dask cluster, which the rules refuse.
pub fn without_cluster(client: &Client<'_>) -> Value {
    json!({ "containers": [{ "name": client.name }] })
}

/// Returns the variable with the number of processes with a GPU that must have connected.
pub fn min_workers(processes: u32) -> Value {
    json!({ "name": MIN_WORKERS, "value": processes.to_string() })
}

/// Returns the container that runs it in its own pod.
pub fn container(program: Program, image: &str) -> Value {
    json!({ "name": program.name, "image": image, "args": ["python", "-c", program.text] })
}

/// Returns the spec of the pod that runs it on a host, and the annotations that name the cluster.
pub fn on_host(client: &Client<'_>, cluster: &DaskFacts, least: Option<u64>) -> (Value, Value) {
    let config = client.config(cluster).variables().into_iter();
    let config = config.map(|(name, literal)| json!({ "name": name, "value": literal }));
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": client.name,
            "command": client.words,
            "env": variables(config, cluster, least),
        }],
    });
    let mut annotations = json!({ CLUSTER_ANNOTATION: cluster.name });
    if let Some(on) = &cluster.scheduler_host {
        annotations[HOST_ANNOTATION] = json!(on);
    }
    (spec, annotations)
}

/// Returns true if a pod represents a process on a host.
pub fn is_on_host(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(CLUSTER_ANNOTATION).is_some()
}
