//! Output of `kubectl logs`: the first lines that such a program writes. They follow from the pod's
//! status alone and prove nothing about real programs.

use serde_json::Value;

use super::super::object::{Key, label, list, name, namespace, number, text};
use super::super::store::Cluster;
use super::pods::exit_code;
use super::workloads::container_statuses;

/// The lines of NVIDIA's vectorAdd sample before its verdict.
const VECTOR_ADD: &str = "[Vector addition of 50000 elements]\n\
    Copy input data from the host memory to the CUDA device\n\
    CUDA kernel launch with 196 blocks of 256 threads\n\
    Copy output data from the CUDA device to the host memory\n";

/// The log of a pod's first container; `None` when there is no such pod or nothing has started in it.
pub fn log(cluster: &Cluster, pod: &Key) -> Option<String> {
    let pod = cluster.get(pod)?;
    let first = list(pod, "/spec/containers").first()?;
    container_log(pod, text(first, "/name"))
}

/// The log of a named container of a pod, init containers too; `None` when it has not started.
pub fn container_log(pod: &Value, container: &str) -> Option<String> {
    let status = container_statuses(pod).find(|status| status["name"] == container)?;
    let started =
        status["state"].get("waiting").is_none() || status.pointer("/lastState/terminated").is_some();
    if !started {
        return None;
    }
    let image = text(status, "/image");
    let code = exit_code(status).or_else(|| number(status, "/lastState/terminated/exitCode"));
    Some(match label(pod, "dask.org/component") {
        _ if image.contains("vectoradd") => vector_add(code),
        _ if container == "nvidia-driver-installer" => driver_installer(code),
        _ if container == "cudf" => at_the_end(code, "cudf: 26.04.00\ncudf: computed\n"),
        _ if container == "dask-sum" => at_the_end(code, "dask-sum: 45\n"),
        _ if container == "bandwidth" => at_the_end(code, "bandwidth: measured\n"),
        _ if name(pod).starts_with("check-") && matches!(container, "program" | "worker") => {
            at_the_end(code, "SIMULATED: the program was not run\n")
        }
        _ if container == "wait-for-driver" => driver_wait(code),
        "scheduler" => scheduler(pod),
        "worker" => worker(pod),
        "job-runner" => String::new(),
        _ if image.contains("dask-kubernetes-operator") => operator(),
        _ => String::new(),
    })
}

fn vector_add(code: Option<i64>) -> String {
    match code {
        Some(0) => format!("{VECTOR_ADD}Test PASSED\nDone\n"),
        Some(_) => format!("{VECTOR_ADD}Test FAILED\n"),
        None => VECTOR_ADD.lines().take(1).map(|line| format!("{line}\n")).collect(),
    }
}

/// Returns the last line of a check, once it has succeeded.
fn at_the_end(code: Option<i64>, said: &str) -> String {
    if code == Some(0) { said.to_owned() } else { String::new() }
}

fn driver_installer(code: Option<i64>) -> String {
    match code {
        Some(0) => "Installing GPU driver version latest\nFinished installing the drivers.\n".to_owned(),
        _ => "Installing GPU driver version latest\n".to_owned(),
    }
}

fn driver_wait(code: Option<i64>) -> String {
    match code {
        Some(0) => "GPU driver libraries are available.\n".to_owned(),
        _ => "Waiting for GPU driver libraries to be available.\n".to_owned(),
    }
}

fn scheduler(pod: &Value) -> String {
    let address = text(pod, "/status/podIP");
    format!(
        "distributed.scheduler - INFO - State start\n\
         distributed.scheduler - INFO -   Scheduler at:   tcp://{address}:8786\n\
         distributed.scheduler - INFO -   dashboard at:  http://{address}:8787/status\n"
    )
}

fn worker(pod: &Value) -> String {
    let address = text(pod, "/status/podIP");
    let cluster = label(pod, "dask.org/cluster-name");
    let place = namespace(pod);
    format!(
        "distributed.worker - INFO -       Start worker at:  tcp://{address}:41000\n\
         distributed.worker - INFO -         Worker name: {}\n\
         distributed.worker - INFO -         Registered to: tcp://{cluster}-scheduler.{place}.svc.cluster.local:8786\n",
        worker_name(pod)
    )
}

/// The name that the operator injected, or the pod's own.
fn worker_name(pod: &Value) -> &str {
    let named = list(pod, "/spec/containers").iter().flat_map(|container| list(container, "/env"));
    named
        .into_iter()
        .find(|env| env["name"] == "DASK_WORKER_NAME")
        .map_or(name(pod), |env| text(env, "/value"))
}

fn operator() -> String {
    "[INFO    ] Initial authentication has been initiated.\n\
     [INFO    ] Initial authentication has finished.\n"
        .to_owned()
}
