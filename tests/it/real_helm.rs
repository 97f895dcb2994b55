//! Charts by the real `helm`, the program and a cluster: the sandbox's and a real one. The Dask operator's own chart
//! ends in the objects that the built-in operator ends in.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;

use dask_infra::sandbox::{Options, Scale};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::golden::root;
use crate::real::{Client, ControlPlane, Part, needs};
use crate::sandbox_helm;
use crate::served::{Said, Served, User};

const DASK: &str = "chart = \"dask\"\nrepo = \"https://helm.dask.org\"\nversion = \"2024.1.1\"\n";

fn served() -> Served {
    Served::with(Options { scale: Scale { time_scale: 1200.0 }, ..Options::default() })
}

fn helm() -> String {
    format!("helm = \"{}\"\n", Part::Helm.program("helm").display())
}

fn chart(name: &str) -> String {
    format!("chart = \"{}\"\n", root().join("tests/charts").join(name).display())
}

#[test]
fn the_stack_of_the_dask_chart_is_applied_changed_and_destroyed() {
    needs!(&[Part::Helm]);
    let served = served();
    let user = User::with_stack("helm-gpu", Some(&served.gke));
    user.edit("name = \"helm-gpu\"\n", &format!("name = \"helm-gpu\"\n{}", helm()));
    user.edit(DASK, &chart("dask"));
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 check passed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.edit("replicas = 2\n", "replicas = 1\n");
    user.edit("tag = \"25.04-", "tag = \"25.06-");
    let said = user.run(&["plan", "-v"]).expect(0);
    let said = said.says("Deployment/default/rapids-dask-worker-gpu-workers").says("spec.replicas: 2 -> 1");
    said.says("(stack.toml:54:12)").says("25.06-cuda12.8-py3.12");
    user.run(&["apply", "--auto-approve"]).expect(0).says("3 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
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
    let served = served();
    let user = User::with_stack("helm-gpu", Some(&served.gke));
    let path = user.path().join("stack.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let base = text[..text.find("[check.cuda]").unwrap()].replacen("[gke]", &format!("{}\n[gke]", helm()), 1);
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

fn run(user: &User, words: &[&str]) -> Said {
    block_in_place(|| user.run(words))
}

/// What the operator is made of, without names of the server, times, and labels.
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
fn changed(said: &Said) -> Vec<String> {
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
    let user = User::empty();
    let kubeconfig = plane.access().kubeconfig.display().to_string();
    let base = format!(
        "[stack]\nname = \"real\"\n{}\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n",
        helm()
    );
    let own = format!("{base}source = \"chart\"\nchart = \"{}\"\n", sandbox_helm::chart().display());
    let write = |text: &str| std::fs::write(user.path().join("stack.toml"), text).unwrap();

    write(&base);
    run(&user, &["apply", "--auto-approve"]).expect(0).says("9 added");
    let built_in = operator(&client).await;
    assert_eq!(built_in.len(), 9, "{:?}", built_in.keys());

    // From built-in to the chart, and back: labels, and nothing else.
    for text in [&own, &base] {
        write(text);
        let said = run(&user, &["plan", "--json"]).expect(0);
        let fields = changed(&said);
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
    write(&own);
    run(&user, &["apply", "--auto-approve"]).expect(0).says("9 added");
    assert_eq!(operator(&client).await, built_in);
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // The Dask chart beside it, on the same API server.
    write(&format!("{own}\n[helm_release.rapids]\n{}values.jupyter.enabled = false\n", chart("dask")));
    run(&user, &["apply", "--auto-approve"]).expect(0).says("3 added");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    run(&user, &allow).expect(0).says("Destroy complete");
    assert_eq!(operator(&client).await.len(), 0);
}
