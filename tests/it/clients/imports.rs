//! `import` and `adopt`: what the RAPIDS guide's commands make with the real gcloud and kubectl on a served sandbox,
//! read into a stack, taken over piece by piece, and destroyed without anything of others.

use std::process::{Command, Output};

use serde_json::{Value, json};
use stack::lower;

use crate::sandbox_server::{CommandOutput, SandboxServer, User, on_path};

const ZONE: [&str; 2] = ["--zone", "us-central1-c"];

/// A served sandbox, a person with gcloud and kubectl, and the program in an empty folder.
struct Guide {
    served: SandboxServer,
    user: User,
}

impl Guide {
    /// `None` where gcloud or kubectl is missing.
    fn start() -> Option<Self> {
        if !on_path("gcloud", "--version") || !on_path("kubectl", "--help") {
            return None;
        }
        let served = SandboxServer::fast();
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
        let said = CommandOutput::of(&output);
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
    fn apply_driver_and_operator(&self) {
        // One start of kubectl for all of them.
        let objects =
            rendered("[gpu_driver]\ninstall = \"daemonset\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n");
        self.give("create", &json!({ "apiVersion": "v1", "kind": "List", "items": objects }));
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
        self.user.stack()
    }
}

/// Returns the objects of these sections without the stack's labels: the YAML files of somebody without this tool.
pub fn rendered(sections: &str) -> Vec<Value> {
    let text = format!("[stack]\nname = \"any\"\n\n[kubernetes]\n\n{sections}");
    let vars = std::collections::BTreeMap::new();
    let loaded =
        stack::parse_text("stack.toml", &text, &stack::Options { env: &|_| None, vars: &vars, helm: None })
            .unwrap();
    let resources = lower::lower(&loaded.stack, true).resources;
    let plain = resources.iter().cloned().map(|mut resource| {
        let labels = resource.body["metadata"]["labels"].as_object_mut().unwrap();
        labels.retain(|key, _| key != "app.kubernetes.io/managed-by" && key != "dask-infra.dev/stack");
        resource.body
    });
    plain.collect()
}

/// The guide's DaskCluster: one-word commands, no tolerations, a scheduler that prefers nodes by their label.
pub fn dask_cluster(name: &str) -> Value {
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

/// Names and uids of everything that the operator made.
fn children(guide: &Guide) -> Vec<String> {
    let list = guide.get(&["deployments,services,pods,daskworkergroups", "-l", "dask.org/cluster-name"]);
    let mut uids: Vec<String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| format!("{} {} {}", item["kind"], item["metadata"]["name"], item["metadata"]["uid"]))
        .collect();
    uids.sort();
    uids
}

/// GKE's objects without what an adoption changes: marks, and the tags and fingerprints that go with them.
fn unmarked(live: &Value) -> Value {
    match live {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !key.starts_with("dask-infra") && *key != "etag" && *key != "labelFingerprint")
            .filter(|(_, value)| value.as_object().is_none_or(|inner| !inner.is_empty()))
            .map(|(key, value)| (key.clone(), unmarked(value)))
            .filter(|(_, value)| value.as_object().is_none_or(|inner| !inner.is_empty()))
            .collect(),
        Value::Array(items) => items.iter().map(unmarked).collect(),
        other => other.clone(),
    }
}

#[test]
fn the_guides_cluster_is_imported_adopted_and_destroyed() {
    let Some(guide) = Guide::start() else { return };
    guide.cluster();
    guide.apply_driver_and_operator();
    guide.dask();
    let user = &guide.user;
    let said = user.run(&["import", "--project", "demo", "--cluster", "rapids-gpu"]).expect(0);
    let said = said
        .says("node_pool.scheduler-pool")
        .says("DaemonSet kube-system/nvidia-driver-installer: not needed, as GKE installs");
    assert!(said.out.contains("adopt dask_cluster.rapids-dask-cluster"), "{}", said.out);
    let text = guide.stack();
    for line in [
        "# Node pool scheduler-pool, RUNNING, nodes: 1.",
        "accelerator = \"nvidia-tesla-t4\"",
        "release_channel = \"stable\"",
        "tolerations = { \"$patch\" = \"delete\" }",
        // The guide's containers do not say where the driver is.
        "containers = [{ env = { \"$patch\" = \"delete\" }, name = \"worker\" }]",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    user.run(&["import", "--cluster", "rapids-gpu"]).expect(1).says("stack.toml already exists");
    let quiet = user.run(&["validate"]).expect(0);
    assert!(!quiet.err.contains("warning"), "{}", quiet.err);
    let planned = user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    assert!(!planned.err.contains("warning"), "{}", planned.err);

    let (before, made) = (guide.gke(), children(&guide));
    let with = text.replacen(
        "[node_pool.scheduler-pool]\nmanage = false\n",
        "[node_pool.scheduler-pool]\nmanage = false  # theirs\n",
        1,
    );
    user.write(with);
    user.run(&["adopt", "node_pool.scheduler-pool"]).expect(3).says("--auto-approve");
    assert_eq!(guide.gke(), before, "nothing without consent");
    for section in [
        "node_pool.scheduler-pool",
        "node_pool.default-pool",
        "dask_operator",
        "dask_cluster.rapids-dask-cluster",
    ] {
        // Pods run on both pools, and GKE may recreate nodes whose labels change.
        let consent = format!("update:{section}");
        let mut words = vec!["adopt", section, "--auto-approve"];
        if section.starts_with("node_pool.") {
            user.run(&words).expect(3).says(&consent);
            words.extend(["--allow", consent.as_str()]);
        }
        user.run(&words).expect(0).says("`manage = false` removed");
        let planned = user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
        assert!(!planned.err.contains("warning"), "{section}: {}", planned.err);
    }
    assert!(
        guide.stack().contains("[node_pool.scheduler-pool]\n# theirs\nmachine_type"),
        "{}",
        guide.stack()
    );
    assert_eq!(children(&guide), made, "the operator's children are untouched");
    assert_eq!(unmarked(&guide.gke()), unmarked(&before), "nothing but labels");
    let adopted = guide.get(&["daskcluster", "rapids-dask-cluster"]);
    let managers = adopted["metadata"]["managedFields"].as_array().unwrap();
    let ours = |entry: &Value| entry["manager"] == "dask-infra/rapids-gpu" && entry["operation"] == "Apply";
    assert!(managers.iter().any(ours), "{managers:?}");
    user.run(&["adopt", "dask_operator", "--auto-approve"]).expect(0).says("now belongs to this stack");

    // The cluster itself and the driver's installer stay with others.
    user.run(&["destroy", "--auto-approve"]).expect(3).says("delete:dask_operator");
    let consents = ["--allow", "delete:dask_operator"];
    let gone = user
        .run(&[&["destroy", "--auto-approve"], &consents[..]].concat())
        .expect(0)
        .says("Destroy complete");
    assert!(!gone.out.contains("nvidia-driver-installer"), "{}", gone.out);
    let left = guide.gke();
    assert_eq!(left["nodePools"], Value::Null, "{left}");
    assert_eq!(left["status"], "RUNNING");
    guide.kubectl(&["get", "--namespace", "kube-system", "daemonset", "nvidia-driver-installer"]);
    let crds = guide.kubectl(&["get", "crd", "-o", "name"]);
    assert!(!crds.contains("dask"), "{crds}");
}

#[test]
#[ignore = "nightly: the_guides_cluster_is_imported_adopted_and_destroyed runs on every change"]
fn what_is_not_there_and_what_would_change_is_told() {
    let Some(guide) = Guide::start() else { return };
    let user = &guide.user;
    user.run(&["import", "--project", "demo"]).expect(1).says("project demo has no GKE cluster");
    guide.gcloud(&[
        "clusters",
        "create",
        "lab",
        "--machine-type",
        "n1-standard-4",
        "--num-nodes",
        "2",
        "--disk-type",
        "pd-ssd",
        "--accelerator",
        "type=nvidia-tesla-t4,count=1,gpu-driver-version=disabled",
    ]);
    guide.gcloud(&["clusters", "get-credentials", "lab"]);
    let project = ["--project", "demo"];
    let import = |more: &[&str]| user.run(&[&["import"], &project[..], more].concat());
    import(&["--cluster", "lob"]).expect(1).says("did you mean `--cluster lab`?");
    import(&["--location", "europe-west4", "--cluster", "lab"]).expect(1).says("has no GKE cluster lab");
    // The only one of the project needs no name; nothing of Dask is there.
    let printed = import(&["--out", "-", "--name", "mine"]).expect(0).says("name = \"mine\"").out;
    assert!(printed.contains("nodes = 2") && printed.contains("disk_type = \"pd-ssd\""), "{printed}");
    assert!(!user.path().join("stack.toml").exists());
    import(&[]).expect(0).says("The cluster has no Dask resources");
    std::fs::remove_file(user.path().join("stack.toml")).unwrap();

    guide.apply_driver_and_operator();
    let installer = ["--namespace", "kube-system", "daemonset/nvidia-driver-installer"];
    guide.kubectl(&[&["set", "image"], &installer[..], &["pause=pause:other"]].concat());
    guide.kubectl(&[
        "label",
        "--namespace",
        "dask-operator",
        "deployment/dask-kubernetes-operator",
        "kustomize.toolkit.fluxcd.io/name=apps",
    ]);
    let two = dask_cluster("twice");
    guide.give("apply", &two);
    guide.kubectl(&["create", "namespace", "team"]);
    let mut there = two.clone();
    there["metadata"]["namespace"] = json!("team");
    there["spec"]["worker"]["spec"]["containers"][0]["env"] =
        json!([{ "name": "API_KEY", "value": "canary" }, { "name": "MODE", "value": "x" }]);
    guide.give("apply", &there);
    let one = import(&["--namespace", "team", "--out", "-"]).expect(0).says("namespace = \"team\"").out;
    assert!(one.contains("[dask_cluster.twice]") && !one.contains("twice-team"), "{one}");
    let said = import(&[]).expect(0).says("dask_cluster.twice-team").says("API_KEY looks like a secret");
    let text = guide.stack();
    assert!(!format!("{text}{}{}", said.out, said.err).contains("canary"), "{text}");
    assert!(text.contains("install = \"daemonset\"") && text.contains("[namespace.team]"), "{text}");
    assert!(text.contains("Managed by Flux Kustomization apps"), "{text}");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    user.run(&["adopt", "node_pool.other"]).expect(1).says("is not an address");
    user.run(&["adopt", "gpu_driver", "--auto-approve"])
        .expect(3)
        .says("so adopting it would")
        .says("pause:other");
    user.run(&["adopt", "cluster", "--auto-approve"]).expect(1).says("`[cluster]` needs `[node_pool.NAME]`");
    let refused = user.run(&["adopt", "dask_operator", "--auto-approve"]).expect(3);
    refused.says("Flux Kustomization apps").says("--allow take:dask_operator");
    user.run(&["adopt", "dask_operator", "--auto-approve", "--allow", "take:dask_operator"]).expect(0);
    user.run(&["adopt", "namespace.team", "--auto-approve"]).expect(0);
    user.run(&["adopt", "gpu_driver", "--auto-approve", "--with-changes"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    // Another stack keeps what it has.
    let other = text.replacen("name = \"lab\"", "name = \"other\"", 1);
    std::fs::write(user.path().join("other.toml"), other).unwrap();
    user.run(&["adopt", "dask_cluster.twice", "--auto-approve"]).expect(0);
    let stolen =
        user.run(&["--stack", "other.toml", "adopt", "dask_cluster.twice", "--auto-approve"]).expect(3);
    stolen.says("belongs to the stack lab");
}
