//! Helm as a client of the sandbox: the Dask operator's own chart, installed, upgraded, listed, uninstalled.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::clients::kubectl::has_kubectl;
use crate::real::{Part, needs};
use crate::sandbox_server::SandboxServer;

const PARENT: &str = "/v1/projects/demo/locations/us-central1-c";

/// A cluster of a served sandbox, and Helm and kubectl pointed at it.
struct Cluster {
    served: SandboxServer,
    home: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let served = SandboxServer::fast();
        let body = json!({"cluster": {"name": "c", "initialNodeCount": 1}});
        let (code, said) = gke(&served, "POST", &format!("{PARENT}/clusters"), &body);
        assert_eq!(code, 200, "{said}");
        let begun = std::time::Instant::now();
        while gke(&served, "GET", &format!("{PARENT}/clusters/c"), &Value::Null).1["status"] != "RUNNING" {
            assert!(begun.elapsed() < crate::real::PATIENCE, "the cluster is not running");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = served.sandbox.kubeconfig(&served.sandbox.clusters()[0]).unwrap();
        std::fs::write(home.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { served, home }
    }

    fn run(&self, program: &Path, words: &[&str]) -> (bool, String) {
        let output = Command::new(program)
            .args(words)
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .env("HOME", self.home.path())
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn helm(&self, words: &[&str]) -> String {
        let (done, said) = self.run(&Part::Helm.program("helm"), words);
        assert!(done, "helm {}\n{said}", words.join(" "));
        said
    }

    fn kubectl(&self, words: &[&str]) -> String {
        let (done, said) = self.run(Path::new("kubectl"), words);
        assert!(done, "kubectl {}\n{said}", words.join(" "));
        said
    }
}

fn gke(served: &SandboxServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let reply = served.sandbox.gke_request(method, path, "", body.to_string().as_bytes()).unwrap();
    (reply.code, reply.body)
}

/// The chart in the operator's wheel.
pub fn chart() -> PathBuf {
    let libraries = Part::Operator.program("").parent().unwrap().join("lib");
    let python = std::fs::read_dir(libraries).unwrap().next().unwrap().unwrap().path();
    let place = "site-packages/dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator";
    python.join(place)
}

#[test]
fn helm_installs_upgrades_lists_and_uninstalls_the_operators_chart() {
    needs!(&[Part::Helm, Part::Operator]);
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start();
    let chart = chart().display().to_string();
    let place = ["--namespace", "dask-operator"];
    let install =
        ["install", "dask", &chart, place[0], place[1], "--create-namespace", "--wait", "--timeout=2m"];
    assert!(cluster.helm(&install).contains("STATUS: deployed"));
    let ready = ["get", "deploy", "-n", place[1], "-o", "jsonpath={.items[*].status.readyReplicas}"];
    assert_eq!(cluster.kubectl(&ready), "1");
    let definitions = ["get", "crd", "-o", "name"];
    assert_eq!(cluster.kubectl(&definitions).matches("kubernetes.dask.org").count(), 4);
    let listed = cluster.helm(&["list", place[0], place[1]]);
    assert!(listed.contains("deployed") && listed.contains("dask-kubernetes-operator-"), "{listed}");
    let secrets = ["get", "secrets", "-n", place[1], "-o", "name"];
    assert_eq!(cluster.kubectl(&secrets).trim(), "secret/sh.helm.release.v1.dask.v1");

    // A second install of the chart: another release, equal objects.
    let objects = [
        "get",
        "deploy,sa,clusterrole,clusterrolebinding",
        "-n",
        place[1],
        "-l",
        "app.kubernetes.io/instance=dask",
        "-o",
        "jsonpath={.items[*].metadata.resourceVersion}",
    ];
    let settled = || {
        // The Deployment's status may still be on its way.
        let (mut before, mut now) = (String::new(), cluster.kubectl(&objects));
        while before != now {
            before = now;
            std::thread::sleep(std::time::Duration::from_millis(200));
            now = cluster.kubectl(&objects);
        }
        now
    };
    let before = settled();
    assert!(!before.is_empty());
    let upgrade = ["upgrade", "dask", &chart, place[0], place[1], "--wait", "--timeout=2m"];
    assert!(cluster.helm(&upgrade).contains("REVISION: 2"));
    assert_eq!(settled(), before, "an upgrade to the same chart changes nothing");
    let annotated = [
        "get",
        "deploy",
        "-n",
        place[1],
        "-o",
        "jsonpath={.items[*].spec.template.metadata.annotations.team}",
    ];
    cluster.helm(&[&upgrade[..], &["--set", "podAnnotations.team=x"]].concat());
    assert_eq!(cluster.kubectl(&annotated), "x");
    assert_eq!(cluster.kubectl(&ready), "1");
    assert!(cluster.helm(&["history", "dask", place[0], place[1]]).contains("superseded"));
    cluster.helm(&["rollback", "dask", "1", place[0], place[1], "--wait", "--timeout=2m"]);
    assert_eq!(cluster.kubectl(&annotated), "", "the annotation goes with the release that had it");

    cluster.helm(&["uninstall", "dask", place[0], place[1], "--wait", "--timeout=2m"]);
    let left = [
        "get",
        "deploy,sa,secrets,clusterroles,clusterrolebindings",
        "-A",
        "-l",
        "app.kubernetes.io/instance=dask",
        "-o",
        "name",
    ];
    assert_eq!(cluster.kubectl(&left).trim(), "");
    assert_eq!(cluster.kubectl(&secrets).trim(), "");
    assert_eq!(cluster.kubectl(&definitions).matches("kubernetes.dask.org").count(), 4, "definitions stay");
    assert_eq!(cluster.served.sandbox.clusters().len(), 1);
}
