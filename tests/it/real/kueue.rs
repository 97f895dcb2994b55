//! The real Kueue outside of the cluster. Its webhooks are reached by address, so its definitions and webhook
//! configurations name one in the place of a Service.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::client::{Client, http_client};
use super::control_plane::{Access, PATIENCE};
use super::parts::Part;
use super::process_group::{ProcessGroup, free_ports};

/// Definitions of more than one version. Source: `config/components/crd/kustomization.yaml` of Kueue.
const CONVERTED: [&str; 5] = ["clusterqueues", "localqueues", "cohorts", "workloads", "multikueueclusters"];
/// Webhooks that leave the system's namespaces alone. Source: `config/components/webhook/kustomization.yaml`.
const OF_PODS: [&str; 3] = ["pod.kb.io", "deployment.kb.io", "statefulset.kb.io"];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Where it runs, as far as the cluster knows.
pub const NAMESPACE: &str = "kueue-system";

/// A running manager of Kueue, with `pod` among its frameworks.
pub struct Kueue {
    processes: ProcessGroup,
    configuration: PathBuf,
    health: u16,
}

impl Kueue {
    /// Installs the definitions, starts the manager, and has its webhooks asked.
    pub async fn start(access: &Access) -> Kueue {
        let (processes, client) = (ProcessGroup::new(), Client::new(access));
        let [health, webhook] = free_ports();
        let url = format!("https://127.0.0.1:{webhook}");
        let certified = rcgen::generate_simple_self_signed(["localhost".into(), "127.0.0.1".into()]).unwrap();
        processes.write("tls.crt", certified.cert.pem());
        processes.write("tls.key", certified.signing_key.serialize_pem());
        let reached = |path: &str| json!({ "url": format!("{url}{path}"), "caBundle": BASE64.encode(certified.cert.pem()) });
        define(&client, &reached).await;
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        put(&client, "/api/v1/namespaces", &namespace).await;
        put(&client, &format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"), &stand_in()).await;

        let folder = processes.folder().display().to_string();
        let configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": NAMESPACE,
            "health": { "healthProbeBindAddress": format!("127.0.0.1:{health}") },
            "metrics": { "bindAddress": "0" },
            "webhook": { "host": "127.0.0.1", "port": webhook, "certDir": folder },
            "leaderElection": { "leaderElect": false },
            "internalCertManagement": { "enable": false },
            // It would need an API server of its own beside the other one.
            "featureGates": { "VisibilityOnDemand": false },
            "clientConnection": { "qps": 50, "burst": 100 },
            "integrations": { "frameworks": ["batch/job", "pod"] },
        });
        let configuration = processes.write("kueue.yaml", configuration.to_string());
        let mut kueue = Kueue { processes, configuration, health };
        kueue.run(access).await;
        // Last: as long as nobody answers them, no pod can be made.
        for mut object in documents("webhooks.yaml") {
            let name = format!("kueue-{}", object["metadata"]["name"].as_str().unwrap());
            object["metadata"]["name"] = json!(name);
            for hook in object["webhooks"].as_array_mut().unwrap() {
                let path = hook["clientConfig"]["service"]["path"].as_str().unwrap().to_owned();
                hook["clientConfig"] = reached(&path);
                if OF_PODS.iter().any(|end| hook["name"].as_str().unwrap().ends_with(end)) {
                    hook["namespaceSelector"] = json!({ "matchExpressions": [
                        { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE] },
                    ] });
                }
            }
            let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
            put(&client, &format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &object).await;
        }
        kueue
    }

    /// Starts the manager, and waits until it is ready.
    async fn run(&mut self, access: &Access) {
        let begun = Instant::now();
        let folder = self.processes.folder().display().to_string();
        let mut command = Command::new(Part::Kueue.program("kueue"));
        command.arg("--config").arg(&self.configuration).arg("--kubeconfig").arg(&access.kubeconfig);
        command.env("KUEUE_METRICS_CERTS", &folder).env("HOME", &folder);
        self.processes.start("kueue", &mut command);
        let http = http_client().build().unwrap();
        let ready = format!("http://127.0.0.1:{}/readyz", self.health);
        while !http.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success()) {
            self.lives();
            assert!(begun.elapsed() < PATIENCE, "Kueue is not ready after {} s", PATIENCE.as_secs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Fails when its manager has ended.
    pub fn lives(&mut self) {
        if let Some(ended) = self.processes.ended() {
            panic!("{ended}");
        }
    }
}

/// Returns the Deployment that stacks look for to find an external Kueue. Its pod does nothing; the manager runs
/// beside the cluster.
fn stand_in() -> Value {
    let labels = json!({ "app": "kueue" });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "kueue-controller-manager", "namespace": NAMESPACE },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "manager", "image": "demo:1" }] },
        } },
    })
}

async fn define(client: &Client, reached: &impl Fn(&str) -> Value) {
    let mut names = Vec::new();
    let mut files: Vec<_> =
        fs::read_dir(Part::Kueue.program("definitions")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files {
        let mut definition: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        if CONVERTED.contains(&definition["spec"]["names"]["plural"].as_str().unwrap()) {
            definition["spec"]["conversion"] = json!({
                "strategy": "Webhook",
                "webhook": { "clientConfig": reached("/convert"), "conversionReviewVersions": ["v1"] },
            });
        }
        names.push(definition["metadata"]["name"].as_str().unwrap().to_owned());
        put(client, DEFINITIONS, &definition).await;
    }
    for name in names {
        let established = |definition: &Value| {
            let conditions = definition["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True")
        };
        client.wait(&format!("{DEFINITIONS}/{name}"), "it is not established", established).await;
    }
}

/// The objects of a file with several.
fn documents(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(Part::Kueue.program(name)).unwrap();
    let documents = text.split("\n---\n").map(|text| text.trim_start_matches("---\n"));
    documents
        .filter(|text| !text.trim().is_empty())
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect()
}

async fn put(client: &Client, list: &str, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let (status, said) = client.apply(&format!("{list}/{name}"), "tests", object).await;
    assert!(status == 200 || status == 201, "{name}: {status} {said}");
}
