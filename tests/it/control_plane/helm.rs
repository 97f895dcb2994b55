//! Charts by the real `helm`, the program and a cluster: the sandbox's and a real one. The Dask operator's own chart
//! ends in the objects that the built-in operator ends in.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::control_plane::helm_as_client;
use crate::golden::root;
use crate::real::{Client, ControlPlane, Part, needs};
use crate::sandbox_server::{CommandOutput, SandboxServer, User};

const DASK: &str = "chart = \"dask\"\nrepo = \"https://helm.dask.org\"\nversion = \"2024.1.1\"\n";

fn chart(name: &str) -> String {
    format!("chart = \"{}\"\n", root().join("tests/charts").join(name).display())
}

#[test]
fn the_stack_of_the_dask_chart_is_applied_changed_and_destroyed() {
    needs!(&[Part::Helm]);
    let served = SandboxServer::fast();
    let user = User::with_stack("helm-gpu", Some(&served.gke)).rendering(Part::Helm.program("helm"));
    user.edit(DASK, &chart("dask"));
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 check passed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.edit("replicas = 2\n", "replicas = 1\n");
    user.edit("tag = \"25.04-", "tag = \"25.06-");
    let said = user.run(&["plan", "-v"]).expect(0);
    let said = said.says("Deployment/default/rapids-dask-worker-gpu-workers").says("spec.replicas: 2 -> 1");
    said.says("(stack.toml:").says("25.06-cuda12.8-py3.12");
    user.run(&["apply", "--auto-approve"]).expect(0).says("3 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    // A group is scaled at once, and kept where its number stands.
    let group = "helm_release.rapids/gpu-workers";
    user.run(&["scale", group, "2", "--auto-approve"]).expect(0).says("spec.replicas: 1 -> 2");
    user.run(&["plan"]).expect(0).says("spec.replicas: 2 -> 1");
    user.run(&["scale", "gpu-workers", "2", "--auto-approve", "--write"])
        .expect(0)
        .says("replicas = 2 (was 1)");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["scale", "helm_release.rapids/worker", "2", "--auto-approve", "--write"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let text = user.stack();
    assert_eq!(text.matches("replicas = 2").count(), 2, "{text}");
    user.run(&["scale", "no-such-group", "2"]).expect(1);
    // A number in a file of values is scaled, and written there.
    let from = text.find("[[helm_release").unwrap();
    let to = text.find("[helm_release.rapids.values.jupyter]").unwrap();
    let in_file = "additional_worker_groups:\n  - name: gpu-workers\n    replicas: 2\n";
    std::fs::write(user.path().join("groups.yaml"), in_file).unwrap();
    let stack = format!("{}{}", &text[..from], &text[to..]);
    let chart = chart("dask");
    let stack = stack.replace(&chart, &format!("{chart}values_files = [\"groups.yaml\"]\n"));
    user.write(stack);
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    user.run(&["scale", "gpu-workers", "1", "--auto-approve"]).expect(0).says("spec.replicas: 2 -> 1");
    user.run(&["plan"]).expect(0).says("(groups.yaml:3:15)");
    user.run(&["scale", "gpu-workers", "1", "--auto-approve", "--write"]).expect(0).says("groups.yaml:3:15");
    let written = std::fs::read_to_string(user.path().join("groups.yaml")).unwrap();
    assert_eq!(written, in_file.replace("replicas: 2", "replicas: 1"));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.write(text);
    // A group that is taken out of the values goes, and nothing else does.
    user.edit(
        "[[helm_release.rapids.values.additional_worker_groups]]",
        "[[helm_release.rapids.values.idle]]",
    );
    let allow = "delete:helm_release.rapids/Deployment/default/rapids-dask-worker-gpu-workers";
    user.run(&["plan"]).expect(0).says("1 to destroy");
    user.run(&["apply", "--auto-approve", "--allow", allow]).expect(0).says("1 destroyed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
}

#[test]
fn hooks_of_an_installation_run_in_their_order_and_once() {
    needs!(&[Part::Helm]);
    let served = SandboxServer::fast();
    let user = User::with_stack("helm-gpu", Some(&served.gke)).rendering(Part::Helm.program("helm"));
    let path = user.path().join("stack.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let base = &text[..text.find("[check.cuda]").unwrap()];
    let release = format!("[helm_release.app]\n{}values = {{ message = \"one\" }}\n", chart("hooked"));
    std::fs::write(&path, format!("{base}{release}")).unwrap();
    user.run(&["apply", "--auto-approve"]).expect(0).says("Apply complete");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    // A hook with another text is another run, which needs consent; what is no hook changes where it is.
    user.edit("message = \"one\"", "message = \"two\"");
    let job = "replace:helm_release.app/Job/default/app-prepare";
    user.run(&["apply", "--auto-approve"]).expect(3).says(job);
    user.run(&["apply", "--auto-approve", "--allow", job]).expect(0).says("1 replaced");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.edit(&release.replace("one", "two"), "");
    let said = user.run(&["plan"]).expect(0).says("to destroy");
    assert!(said.out.contains("gadgets.example.org"), "{}", said.out);
    user.run(&["destroy", "--auto-approve", "--allow", "delete:helm_release.app"]).expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_a_repository_is_fetched_in_its_version() {
    needs!(&[Part::Helm]);
    let folder = tempfile::tempdir().unwrap();
    let charts = root().join("tests/charts/dask").display().to_string();
    for words in [&["package", &charts][..], &["repo", "index", "."]] {
        let mut helm = Command::new(Part::Helm.program("helm"));
        helm.args(words).current_dir(folder.path()).env("HOME", folder.path()).stdin(Stdio::null());
        let made = block_in_place(|| helm.output()).unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let place = folder.path().to_owned();
    let files = axum::Router::new().fallback(move |uri: http::Uri| {
        let file = place.join(uri.path().trim_start_matches('/'));
        async move { std::fs::read(file).map_err(|_| http::StatusCode::NOT_FOUND) }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, files).await });

    let user = User::empty().rendering(Part::Helm.program("helm"));
    let stack = format!(
        "[stack]\nname = \"s\"\n\n[kubernetes]\ncontext = \"lab\"\n\n[helm_release.rapids]\nchart = \"dask\"\n\
         repo = \"http://{address}\"\nversion = \"1.2.3\"\nvalues.jupyter.enabled = false\n"
    );
    user.write(stack);
    run(&user, &["plan", "--offline"]).expect(0).says("3 to add");
    user.edit("1.2.3", "9.9.9");
    run(&user, &["plan", "--offline"]).expect(1).says("the chart cannot be fetched").says("9.9.9");
    serving.abort();
}

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

/// Returns the operator's objects, without names of the server, times, and labels.
async fn operator(client: &Client) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for path in [
        "/api/v1/namespaces",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/api/v1/namespaces/dask-operator/serviceaccounts",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/apps/v1/namespaces/dask-operator/deployments",
    ] {
        let list = client.get(path).await.1;
        for object in list["items"].as_array().unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap();
            if !name.contains("dask") || name == "dask-infra" {
                continue;
            }
            let mut object = object.clone();
            object["metadata"] = json!({ "name": name, "namespace": object["metadata"]["namespace"] });
            object.as_object_mut().unwrap().remove("status");
            found.insert(format!("{path}/{name}"), object);
        }
    }
    found
}

/// The paths of fields that a plan would change.
fn changed_fields(said: &CommandOutput) -> Vec<String> {
    let lines = said.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let changes = lines.filter(|line| line["type"] == "planned_change");
    let fields = changes.flat_map(|line| line["change"]["fields"].as_array().cloned().unwrap_or_default());
    fields.map(|field| field["path"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_chart_ends_in_the_objects_of_the_built_in_operator() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator, Part::Helm]);
    let plane = ControlPlane::start().await;
    let client = plane.client();
    plane.add_node("node-0", json!({}), 0).await;
    let user = User::empty().rendering(Part::Helm.program("helm"));
    let kubeconfig = plane.access().kubeconfig.display().to_string();
    let base = format!(
        "[stack]\nname = \"real\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n"
    );
    let own = format!("{base}source = \"chart\"\nchart = \"{}\"\n", helm_as_client::chart().display());
    let write = |text: &str| user.write(text);

    write(&base);
    run(&user, &["apply", "--auto-approve"]).expect(0).says("9 added");
    let built_in = operator(&client).await;
    assert_eq!(built_in.len(), 9, "{:?}", built_in.keys());

    // From built-in to the chart, and back: labels, and nothing else.
    for text in [&own, &base] {
        write(text);
        let said = run(&user, &["plan", "--json"]).expect(0);
        let fields = changed_fields(&said);
        assert!(!fields.is_empty(), "{}", said.out);
        assert!(fields.iter().all(|path| path.starts_with("metadata.labels")), "{fields:#?}");
        run(&user, &["apply", "--auto-approve"]).expect(0).says("changed");
        run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
        assert_eq!(operator(&client).await, built_in);
    }

    // From nothing, too.
    let allow = ["destroy", "--auto-approve", "--allow", "delete:dask_operator"];
    run(&user, &allow).expect(0).says("Destroy complete");
    assert_eq!(operator(&client).await.len(), 0);
    // The record's namespace is going, and nothing is made in it meanwhile.
    client.wait_gone("/api/v1/namespaces/dask-infra", "the namespace of the record").await;
    write(&own);
    run(&user, &["apply", "--auto-approve"]).expect(0).says("9 added");
    assert_eq!(operator(&client).await, built_in);
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // The Dask chart beside it, as Helm has installed it: taken over with consent.
    let chart_of_dask = root().join("tests/charts/dask");
    let words = ["install", "rapids", &chart_of_dask.display().to_string(), "--set", "jupyter.enabled=false"];
    let mut install = Command::new(Part::Helm.program("helm"));
    install.args(words).env("KUBECONFIG", &kubeconfig).env("HOME", user.path()).stdin(Stdio::null());
    let installed = block_in_place(|| install.output()).unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    write(&format!("{own}\n[helm_release.rapids]\n{}values.jupyter.enabled = false\n", chart("dask")));
    run(&user, &["plan"]).expect(3).says("`helm`").says("take:helm_release.rapids");
    let take = ["apply", "--auto-approve", "--allow", "take:helm_release.rapids"];
    run(&user, &take).expect(0).says("3 changed");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    run(&user, &allow).expect(0).says("Destroy complete");
    assert_eq!(operator(&client).await.len(), 0);
}
