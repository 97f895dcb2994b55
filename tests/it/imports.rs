//! `import` and `adopt`: what the RAPIDS guide's commands make with the real gcloud and kubectl on a served sandbox,
//! read into a stack, taken over piece by piece, and destroyed without anything of others.

use std::process::{Command, Output};

use dask_infra::sandbox::{Options, Scale};
use dask_infra::stack::{self, lower};
use serde_json::{Value, json};

use crate::served::{Said, Served, User, on_path};

const ZONE: [&str; 2] = ["--zone", "us-central1-c"];

/// A served sandbox, a person with gcloud and kubectl, and the program in an empty folder.
struct Guide {
    served: Served,
    user: User,
}

impl Guide {
    /// `None` where gcloud or kubectl is missing.
    fn start() -> Option<Self> {
        if !on_path("gcloud", "--version") || !on_path("kubectl", "--help") {
            return None;
        }
        let served = Served::with(Options { scale: Scale { time_scale: 1200.0 }, ..Options::default() });
        let user = User::empty_at(&served.gke);
        std::fs::write(user.path().join("token"), "any").unwrap();
        Some(Self { served, user })
    }

    fn output(&self, program: &str, words: &[&str]) -> Output {
        let folder = self.user.path();
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(folder)
            .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", format!("{}/", self.served.gke))
            .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICEUSAGE", format!("{}/", self.served.gke))
            .env("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", folder.join("token"))
            .env("CLOUDSDK_CORE_PROJECT", "demo")
            .env("CLOUDSDK_CONFIG", folder.join("gcloud"))
            .env("CLOUDSDK_CORE_DISABLE_PROMPTS", "1")
            .env("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true")
            .env("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true")
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .env("HOME", folder);
        command.output().unwrap()
    }

    #[track_caller]
    fn run(&self, program: &str, words: &[&str]) -> String {
        let output = self.output(program, words);
        let said = Said::of(&output);
        assert!(output.status.success(), "{program} {words:?}\n{}\n{}", said.out, said.err);
        said.out
    }

    fn gcloud(&self, words: &[&str]) -> String {
        self.run("gcloud", &[&["container"], words, &ZONE].concat())
    }

    fn kubectl(&self, words: &[&str]) -> String {
        self.run("kubectl", words)
    }

    /// `kubectl create` or `apply` of an object.
    fn give(&self, verb: &str, object: &Value) -> String {
        let file = self.user.path().join("object.json");
        std::fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&[verb, "-f", &file.display().to_string()])
    }

    fn get(&self, words: &[&str]) -> Value {
        let said = self.kubectl(&[&["get", "-o", "json", "--show-managed-fields"], words].concat());
        serde_json::from_str(&said).unwrap()
    }

    /// Waits until `words` of kubectl print what is wanted.
    #[track_caller]
    fn wait(&self, words: &[&str], wanted: &str) {
        let begun = std::time::Instant::now();
        loop {
            let said = self.kubectl(words);
            if said.trim() == wanted {
                return;
            }
            assert!(begun.elapsed() < crate::real::PATIENCE, "{words:?} says {said:?}, not {wanted:?}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// The guide, as far as its cluster: GPU nodes for workers, a node with a T4 for the scheduler.
    fn cluster(&self) {
        self.gcloud(&[
            "clusters",
            "create",
            "rapids-gpu",
            "--accelerator",
            "type=nvidia-tesla-a100,count=2",
            "--machine-type",
            "a2-highgpu-2g",
            "--num-nodes",
            "1",
            "--release-channel",
            "stable",
        ]);
        self.gcloud(&[
            "node-pools",
            "create",
            "scheduler-pool",
            "--cluster",
            "rapids-gpu",
            "--accelerator",
            "type=nvidia-tesla-t4,count=1",
            "--machine-type",
            "n1-standard-2",
            "--num-nodes",
            "1",
            "--node-labels",
            "dedicated=scheduler",
        ]);
        self.gcloud(&["clusters", "get-credentials", "rapids-gpu"]);
    }

    /// The installer of the driver and the operator, with kubectl.
    fn inside(&self) {
        for object in
            rendered("[gpu_driver]\ninstall = \"daemonset\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n")
        {
            self.give("create", &object);
        }
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
        let available = ["--for=condition=Available", "deployment", "--all", "--timeout=60s"];
        self.kubectl(&[&["wait", "--namespace", "dask-operator"], &available[..]].concat());
    }

    fn dask(&self) {
        self.give("apply", &dask_cluster("rapids-dask-cluster"));
        self.wait(
            &["get", "daskcluster", "rapids-dask-cluster", "-o", "jsonpath={.status.phase}"],
            "Running",
        );
        let workers =
            ["get", "pods", "-l", "dask.org/component=worker", "-o", "jsonpath={.items[*].status.phase}"];
        self.wait(&workers, "Running Running");
    }

    fn gke(&self) -> Value {
        let said = self.gcloud(&["clusters", "describe", "rapids-gpu", "--format", "json"]);
        serde_json::from_str(&said).unwrap()
    }

    fn stack(&self) -> String {
        std::fs::read_to_string(self.user.path().join("stack.toml")).unwrap()
    }
}

/// What a stack would make of these sections, without its marks: what somebody without this tool has in YAML files.
fn rendered(sections: &str) -> Vec<Value> {
    let text = format!("[stack]\nname = \"any\"\n\n[kubernetes]\n\n{sections}");
    let vars = std::collections::BTreeMap::new();
    let loaded =
        stack::parse_text("stack.toml", &text, &stack::Options { env: &|_| None, vars: &vars }).unwrap();
    let resources = lower::lower(&loaded.stack, true).resources;
    let plain = resources.into_iter().map(|mut resource| {
        let labels = resource.body["metadata"]["labels"].as_object_mut().unwrap();
        labels.retain(|key, _| key != "app.kubernetes.io/managed-by" && key != "dask-infra.dev/stack");
        resource.body
    });
    plain.collect()
}

/// The guide's DaskCluster: one-word commands, no tolerations, a scheduler that prefers nodes by their label.
fn dask_cluster(name: &str) -> Value {
    let gpu = json!({ "limits": { "nvidia.com/gpu": "1" } });
    let image = "nvcr.io/nvidia/rapidsai/base:25.04-cuda12.8-py3.12";
    let port = |name: &str, number: u32| json!({ "name": name, "containerPort": number, "protocol": "TCP" });
    let probe = |delay: u32, period: u32| {
        json!({ "httpGet": { "port": "http-dashboard", "path": "/health" },
            "initialDelaySeconds": delay, "periodSeconds": period })
    };
    let served = |name: &str, number: u32| json!({ "name": name, "protocol": "TCP", "port": number, "targetPort": name });
    let prefers = json!([{ "weight": 100, "preference": { "matchExpressions": [
        { "key": "dedicated", "operator": "In", "values": ["scheduler"] },
    ] } }]);
    json!({
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": { "name": name, "labels": { "dask.org/cluster-name": name } },
        "spec": {
            "worker": { "replicas": 2, "spec": { "containers": [{
                "name": "worker", "image": image, "imagePullPolicy": "IfNotPresent",
                "args": ["dask-cuda-worker", "--name", "$(DASK_WORKER_NAME)"], "resources": gpu,
            }] } },
            "scheduler": {
                "spec": {
                    "containers": [{
                        "name": "scheduler", "image": image, "imagePullPolicy": "IfNotPresent", "env": null,
                        "args": ["dask-scheduler"],
                        "ports": [port("tcp-comm", 8786), port("http-dashboard", 8787)],
                        "readinessProbe": probe(5, 10), "livenessProbe": probe(15, 20), "resources": gpu,
                    }],
                    "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": prefers } },
                },
                "service": {
                    "type": "ClusterIP",
                    "selector": { "dask.org/cluster-name": name, "dask.org/component": "scheduler" },
                    "ports": [served("tcp-comm", 8786), served("http-dashboard", 8787)],
                },
            },
        },
    })
}

#[test]
fn the_guides_cluster_is_imported_and_the_plan_is_empty() {
    let Some(guide) = Guide::start() else { return };
    guide.cluster();
    guide.inside();
    guide.dask();
    let said = guide.user.run(&["import", "--project", "demo", "--cluster", "rapids-gpu"]).expect(0);
    println!("{}\n{}\n{}", said.out, said.err, guide.stack());
    let validated = guide.user.run(&["validate"]).expect(0);
    println!("{}\n{}", validated.out, validated.err);
    let planned = guide.user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    println!("{}\n{}", planned.out, planned.err);
}
