//! Objects from YAML files and the stack that we recommend, by the real program against a served sandbox.

use serde_json::Value;

use crate::golden::root;
use crate::sandbox_server::{ON_GKE, SandboxServer, User};

/// Which pool each pod whose name begins so runs on.
fn pools_of(served: &SandboxServer, namespace: &str, start: &str) -> Vec<String> {
    let nodes = served.get("/api/v1/nodes");
    let pods = served.get(&format!("/api/v1/namespaces/{namespace}/pods"));
    let pool = |node: &Value| {
        let nodes = nodes["items"].as_array().unwrap();
        let found = nodes.iter().find(|found| found["metadata"]["name"] == *node);
        let found = found.unwrap_or_else(|| panic!("no node {node} for {start} in {pods}"));
        found["metadata"]["labels"]["cloud.google.com/gke-nodepool"].as_str().unwrap().to_owned()
    };
    let pods = pods["items"].as_array().unwrap().iter();
    let own = pods.filter(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with(start));
    own.map(|pod| pool(&pod["spec"]["nodeName"])).collect()
}

/// The stack with its Dask cluster from the guide's own YAML.
fn guide(user: &User, yaml: &str) {
    let path = user.path().join("stack.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    if let Some(start) = text.find("[dask_cluster") {
        // `check.cudf` is a client of the section.
        let (end, cudf) = (text.find("[check").unwrap(), text.find("[check.cudf]").unwrap());
        let manifest = "[manifest.guide]\nfile = \"rapids-dask-cluster.yaml\"\n\n";
        std::fs::write(path, format!("{}{manifest}{}", &text[..start], &text[end..cudf])).unwrap();
    }
    std::fs::write(user.path().join("rapids-dask-cluster.yaml"), yaml).unwrap();
}

fn guides_yaml() -> String {
    std::fs::read_to_string(root().join("tests/cases/diag-guide/rapids-dask-cluster.yaml")).unwrap()
}

#[test]
fn the_guides_yaml_is_mended_as_told_and_does_what_the_section_does() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    guide(&user, &guides_yaml().replace("nvidia.com/gpu: \"1\"", "nvidia.com/gpu: 1"));
    let said = user.run(&["apply", "--auto-approve"]).expect(1);
    let said = said.says("rapids-dask-cluster.yaml:22:31").says("quote it: `nvidia.com/gpu: \"1\"`");
    said.says("rapids-dask-cluster.yaml:29:11").says("`env` has no value");
    guide(&user, &guides_yaml().replace("          env:\n", ""));
    user.run(&["apply", "--auto-approve"]).expect(0).says("14 added").says("1 check passed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let of = |served: &SandboxServer| {
        let mut workers = pools_of(served, "default", "rapids-dask-cluster-default-worker");
        workers.sort();
        (workers, pools_of(served, "default", "rapids-dask-cluster-scheduler"))
    };
    let by_manifest = of(&served);
    assert_eq!(by_manifest.1, ["scheduler-pool"], "the guide's point: the scheduler is on the T4");

    let path = user.path().join("rapids-dask-cluster.yaml");
    let edited = std::fs::read_to_string(&path).unwrap().replace("replicas: 2", "replicas: 1");
    std::fs::write(&path, edited).unwrap();
    user.run(&["plan"]).expect(0).says("spec.worker.replicas: 2 -> 1").says("rapids-dask-cluster.yaml:10:15");
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
}

#[test]
fn the_lean_stack_brings_gpu_nodes_for_pods_that_ask_for_them() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    std::fs::copy(root().join("stacks/rapids-gke-lean/stack.toml"), user.path().join("stack.toml")).unwrap();
    let said = user.run(&["apply", "--auto-approve"]).expect(0).says("2 checks passed");
    assert!(!said.out.contains("DI0351"), "no GPU pool comes first: {}", said.out);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    assert_eq!(pools_of(&served, "dask-operator", "dask-kubernetes-operator"), ["system"]);
    assert_eq!(pools_of(&served, "default", "rapids-scheduler"), ["scheduler"]);
    assert_eq!(pools_of(&served, "default", "rapids-default-worker"), ["workers", "workers"]);
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
}

#[test]
fn objects_come_and_go_with_their_files() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    let case = root().join("tests/cases/plan-manifest");
    for file in ["app.yaml", "gadgets.yaml", "job.yaml"] {
        std::fs::copy(case.join(file), user.path().join(file)).unwrap();
    }
    let path = user.path().join("stack.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let base = text[..text.find("[dask_operator]").unwrap()].to_owned();
    let gadgets = "[manifest.gadgets]\nfile = \"gadgets.yaml\"\n";
    std::fs::write(&path, format!("{base}[manifest.app]\nfile = [\"app.yaml\", \"job.yaml\"]\n\n{gadgets}"))
        .unwrap();
    user.run(&["apply", "--auto-approve"]).expect(0).says("Apply complete");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    assert_eq!(served.get("/apis/example.com/v1/gadgets/one")["spec"]["size"], 3);
    let deployment = served.get("/apis/apps/v1/namespaces/team/deployments/web");
    assert_eq!(deployment["status"]["availableReplicas"], 2);

    std::fs::write(&path, format!("{base}[manifest.app]\nfile = [\"app.yaml\", \"job.yaml\"]\n")).unwrap();
    user.run(&["apply", "--auto-approve"]).expect(3).says("--allow delete:manifest.gadgets");
    user.run(&["apply", "--auto-approve", "--allow", "delete:manifest.gadgets"])
        .expect(0)
        .says("2 destroyed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    assert_eq!(served.get("/apis/example.com/v1/gadgets/one")["spec"], Value::Null);
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

/// Resources of any kind that take the GPUs of a pool come after the check that needs a free one.
#[test]
fn kinds_that_gke_installs_are_applied_and_deleted() {
    let served = SandboxServer::fast();
    let user = User::at(&served, ON_GKE.to_owned() + "\n[manifest.d]\nfile = \"d.yaml\"\n");
    let yaml = std::fs::read_to_string(root().join("tests/cases/diag-kinds-of-gke/d.yaml")).unwrap();
    std::fs::write(user.path().join("d.yaml"), yaml).unwrap();
    user.run(&["apply", "--auto-approve"]).expect(0).says("DI0264");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let class = "/apis/cloud.google.com/v1/computeclasses/gpus";
    assert_eq!(served.get(class)["spec"]["priorities"][0]["spot"], true);
    let path = user.path().join("d.yaml");
    let edited = std::fs::read_to_string(&path).unwrap().replace("interval: 30s", "interval: 60s");
    std::fs::write(&path, edited).unwrap();
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
}

#[test]
fn what_asks_for_gpus_waits_for_the_check_of_its_pool() {
    let served = SandboxServer::fast();
    let user = User::with_stack("rapids-gke-lean", Some(&served.gke));
    let deployment = serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "own", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "own" } },
            "template": { "metadata": { "labels": { "app": "own" } }, "spec": {
                "nodeSelector": { "cloud.google.com/gke-nodepool": "workers" },
                "containers": [
                    { "name": "c", "image": "i:1", "resources": { "limits": { "nvidia.com/gpu": 1 } } },
                ],
            } },
        },
    });
    std::fs::write(user.path().join("own.yaml"), deployment.to_string()).unwrap();
    let path = user.path().join("stack.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}\n[manifest.own]\nfile = \"own.yaml\"\n")).unwrap();
    let graph = user.run(&["graph"]).expect(0);
    let row = graph.out.lines().find(|line| line.starts_with("manifest.own")).expect("a row");
    assert!(row.contains("check.cuda"), "{}", graph.out);
}
