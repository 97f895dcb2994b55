//! The part of KWOK's configuration that depends on the run: ports, log files, the end of the CUDA check.
//! The rest is `tests/real/kwok.yaml`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The containers of the checks that compute on GPUs.
const CUDA: &str = "cuda-vectoradd";
const CUDF: &str = "cudf";

/// How a pod with a container `cuda-vectoradd` ends; one with a container `cudf` passes. With KWOK nothing computes: it judges our gate, not CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaCheck {
    /// Exit code 0, `Test PASSED` in the log.
    Passes,
    /// Exit code 1, what the sample says without a usable driver in the log.
    Fails,
    /// Exit code 0 and an empty log.
    SaysNothing,
    /// Exit code 0 and a log that the kubelet cannot read.
    LosesItsLog,
    /// The image cannot be pulled; the pod stays Pending.
    HasNoImage,
}

/// The target of a pod's port when the API server is asked for a port-forward.
#[derive(Clone, Copy, Debug)]
pub struct Forward {
    /// The port of the pod, of any pod.
    pub pod: u16,
    /// A port of this machine's loopback interface.
    pub host: u16,
}

/// The log of the CUDA check, by line.
fn log(check: CudaCheck) -> Option<&'static [&'static str]> {
    match check {
        CudaCheck::Passes => Some(&["[Vector addition of 50000 elements]", "Test PASSED", "Done"]),
        CudaCheck::Fails => Some(&[
            "[Vector addition of 50000 elements]",
            "Failed to allocate device vector A (error code CUDA driver version is insufficient for CUDA runtime version)!",
        ]),
        CudaCheck::SaysNothing | CudaCheck::HasNoImage => Some(&[]),
        CudaCheck::LosesItsLog => None,
    }
}

/// Lines as the container runtime keeps them and KWOK reads them.
fn cri(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "2026-01-01T00:00:00.000000000Z stdout F {line}");
    }
    text
}

/// Containers with logs of their own, which a test may write.
pub const PROGRAMS: [&str; 2] = ["job", "dask-sum"];

/// Returns the log file of all containers of a name.
fn log_file(folder: &Path, container: &str) -> PathBuf {
    folder.join(format!("{container}.log.cri"))
}

/// Has all containers of a name say this.
pub fn say(folder: &Path, container: &str, said: &str) {
    std::fs::write(log_file(folder, container), cri(&said.lines().collect::<Vec<&str>>())).unwrap();
}

/// Writes the files of one run of KWOK into `folder` and returns its configuration there, a YAML stream.
pub fn configuration(folder: &Path, check: CudaCheck, forwards: &[Forward]) -> String {
    let (check_log, other_log) = (log_file(folder, CUDA), log_file(folder, "pods"));
    match log(check) {
        Some(lines) => std::fs::write(&check_log, cri(lines)).unwrap(),
        None => drop(std::fs::remove_file(&check_log)),
    }
    say(folder, CUDF, "cudf: 26.04.00\ncudf: computed");
    let [job, sum] = PROGRAMS;
    say(folder, job, "epoch 1 of 2\nepoch 2 of 2\nloss 0.1");
    say(folder, sum, "this container is imitated by KWOK");
    std::fs::write(&other_log, cri(&["this container is imitated by KWOK"])).unwrap();
    let documents = [
        cluster_wide(
            "ClusterLogs",
            json!({ "logs": [
                { "containers": [CUDA], "logsFile": check_log, "follow": false },
                { "containers": [CUDF], "logsFile": log_file(folder, CUDF), "follow": false },
                { "containers": [job], "logsFile": log_file(folder, job), "follow": false },
                { "containers": [sum], "logsFile": log_file(folder, sum), "follow": false },
                { "logsFile": other_log, "follow": false },
            ] }),
        ),
        cluster_wide(
            "ClusterPortForward",
            json!({ "forwards": forwards.iter().map(|Forward { pod, host }| json!({
                "ports": [pod], "target": { "address": "127.0.0.1", "port": host },
            })).collect::<Vec<Value>>() }),
        ),
        end_of_check("cuda-check-ends", CUDA, check),
        end_of_check("cudf-check-ends", CUDF, CudaCheck::Passes),
    ];
    documents.map(|document| format!("{document:#}\n")).join("---\n")
}

fn cluster_wide(kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": { "name": "all" }, "spec": spec })
}

/// The stage of pods with the container of a check.
fn end_of_check(stage: &str, container: &str, check: CudaCheck) -> Value {
    let state = match check {
        CudaCheck::HasNoImage => json!({ "waiting": {
            "reason": "ImagePullBackOff", "message": "Back-off pulling image: not found",
        } }),
        CudaCheck::Fails => json!({ "terminated": { "exitCode": 1, "reason": "Error" } }),
        _ => json!({ "terminated": { "exitCode": 0, "reason": "Completed" } }),
    };
    let phase = match check {
        CudaCheck::HasNoImage => "Pending",
        CudaCheck::Fails => "Failed",
        _ => "Succeeded",
    };
    let template = format!(
        r#"
        {{{{ $now := Now }}}}
        phase: {phase}
        startTime: {{{{ $now | Quote }}}}
        hostIP: {{{{ NodeIPWith .spec.nodeName | Quote }}}}
        podIP: {{{{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}}}
        conditions:
        - {{ type: Ready, status: "False", lastTransitionTime: {{{{ $now | Quote }}}} }}
        - {{ type: ContainersReady, status: "False", lastTransitionTime: {{{{ $now | Quote }}}} }}
        containerStatuses:
        {{{{ range .spec.containers }}}}
        - {{ name: {{{{ .name | Quote }}}}, image: {{{{ .image | Quote }}}}, ready: false, started: false, restartCount: 0, state: {state} }}
        {{{{ end }}}}
        "#
    );
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": { "name": stage },
        "spec": {
            "resourceRef": { "apiGroup": "v1", "kind": "Pod" },
            "selector": { "matchExpressions": [
                { "key": ".metadata.deletionTimestamp", "operator": "DoesNotExist" },
                { "key": ".status.podIP", "operator": "DoesNotExist" },
                { "key": ".spec.containers.[].name", "operator": "In", "values": [container] },
            ] },
            "next": { "statusTemplate": template },
        },
    })
}
