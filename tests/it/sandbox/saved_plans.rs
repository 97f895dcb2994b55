//! Saved plans: what is refused and how it is said, and the document that policy scripts read. That apply sends what the plan
//! holds and nothing else is a law of `props`.

use dask_infra::report::document;
use serde_json::{Value, json};

use crate::golden::{golden, root};
use crate::sandbox_server::{SandboxServer, User};

#[test]
fn the_committed_schema_of_plans_is_current() {
    golden(&root().join("schemas/plan.schema.json"), &format!("{:#}\n", document::schema())).unwrap();
}

/// Does the work of a conftest policy: goes over `resource_changes` and collects denials.
fn denials(plan: &Value, dear: f64) -> Vec<String> {
    let mut denied = Vec::new();
    for change in plan["resource_changes"].as_array().unwrap() {
        let actions: Vec<&str> =
            change["change"]["actions"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        let address = change["address"].as_str().unwrap();
        if actions.contains(&"delete") && change["type"] == "node_pool" {
            denied.push(format!("{address}: no pool is deleted"));
        }
        let after = &change["change"]["after"];
        for gpu in after["config"]["accelerators"].as_array().into_iter().flatten() {
            if gpu["acceleratorType"] == "nvidia-tesla-a100" && after["config"]["spot"] != true {
                denied.push(format!("{address}: A100 only as spot"));
            }
        }
        let (before, after) = (&change["change"]["before"], after);
        if actions == ["update"]
            && before["spec"]["worker"]["replicas"] != after["spec"]["worker"]["replicas"]
        {
            denied.push(format!("{address}: {} workers", after["spec"]["worker"]["replicas"]));
        }
    }
    if plan["dask_infra"]["hourly"].as_f64().is_some_and(|hourly| hourly > dear) {
        denied.push("too dear".into());
    }
    denied
}

#[test]
fn every_image_of_unknown_size_is_counted() {
    let mut stack = "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
                     [node_pool.system]\nmachine_type = \"e2-standard-8\"\n"
        .to_owned();
    for number in 0..70 {
        stack.push_str(&format!(
            "\n[job.j{number}]\nimage = \"registry.example/i{number}:1\"\nargs = [\"true\"]\n"
        ));
    }
    let user = User::empty();
    user.write(stack);
    let said = user.run(&["plan", "--offline"]).expect(0);
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("without the pulls of registry.example/i0:1 and 69 more"), "{text}");
    let said = user.run(&["plan", "--offline", "--json"]).expect(0);
    let mut lines = said.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let summary = lines.find(|line| line["type"] == "change_summary").unwrap();
    assert_eq!(summary["unknown_pulls"].as_array().map(Vec::len), Some(70), "{summary}");
}

#[test]
fn policies_for_terraform_read_our_plans() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    let show = |file: &str| -> Value {
        let out = user.run(&["show", "--json", file]).expect(0).out;
        let plan: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(plan["format_version"], "1.2");
        for key in ["planned_values", "resource_drift", "output_changes", "dask_infra_version"] {
            assert!(plan.get(key).is_some(), "{key}");
        }
        plan
    };
    user.run(&["plan", "--out", "new"]).expect(0);
    let new = show("new");
    assert_eq!(denials(&new, 5.0), ["node_pool.default-pool: A100 only as spot", "too dear"]);
    let created = |change: &&Value| change["change"]["actions"] == json!(["create"]);
    assert_eq!(new["resource_changes"].as_array().unwrap().iter().filter(created).count(), 16);
    assert!(
        new["resource_changes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(created)
            .all(|c| c["change"]["before"].is_null())
    );
    user.run(&["apply", "new"]).expect(0);

    user.edit("replicas = 2", "replicas = 1");
    user.run(&["plan", "--out", "fewer"]).expect(0);
    let fewer = show("fewer");
    assert!(denials(&fewer, 50.0).contains(&"dask_cluster.rapids-dask-cluster: 1 workers".to_owned()));
    let kept = |change: &&Value| change["change"]["actions"] == json!(["no-op"]);
    assert_eq!(fewer["resource_changes"].as_array().unwrap().iter().filter(kept).count(), 15);
    user.edit("base:25.04", "base:25.06");
    user.run(&["plan", "--out", "image"]).expect(0);
    let image = show("image");
    let find = |address: &str| {
        let changes = image["resource_changes"].as_array().unwrap();
        changes.iter().find(|change| change["address"] == address).unwrap().clone()
    };
    let replaced = find("dask_cluster.rapids-dask-cluster");
    assert_eq!(replaced["change"]["actions"], json!(["delete", "create"]));
    assert_eq!(replaced["action_reason"], "replace_because_cannot_update");
    let paths = replaced["change"]["replace_paths"].as_array().unwrap();
    assert!(paths.contains(&json!(["spec", "worker", "spec", "containers", 0, "image"])), "{paths:?}");
    let image_of =
        |side: &str| replaced["change"][side].pointer("/spec/worker/spec/containers/0/image").cloned();
    assert!(image_of("before").unwrap().as_str().unwrap().contains("25.04"));
    assert!(image_of("after").unwrap().as_str().unwrap().contains("25.06"));

    user.run(&["plan", "--destroy", "--out", "gone"]).expect(0);
    let gone = show("gone");
    assert_eq!(denials(&gone, 50.0).len(), 2, "both pools");
    assert_eq!(gone["planned_values"]["root_module"]["resources"], json!([]));
}

#[test]
fn a_plan_without_changes_is_compared_with_what_is_live() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    let text = std::fs::read_to_string(user.path().join("stack.toml")).unwrap();
    user.write(text + "\n[check.sum]\nrun = \"dask-sum\"\n\n[check.network]\nrun = \"bandwidth\"\n");
    user.run(&["apply", "--auto-approve"]).expect(0).says("4 checks passed");
    user.run(&["plan", "--detailed-exitcode", "--out", "same"]).expect(0);
    user.run(&["apply", "same"]).expect(0).says("up to date");
    user.run(&["scale", "dask_cluster.rapids-dask-cluster", "1", "--auto-approve"]).expect(0);
    let said =
        user.run(&["apply", "same"]).expect(4).says("same is stale").says("dask_cluster.rapids-dask-cluster");
    assert!(!said.out.contains("up to date"), "{}", said.out);
}

#[test]
fn what_cannot_be_applied_is_told_apart() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["plan", "--out", "plan"]).expect(0);
    let path = |name: &str| user.path().join(name);
    let text = std::fs::read_to_string(path("plan")).unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(path(name), text).unwrap();
    write("empty", b"");
    write("half", &text.as_bytes()[..text.len() / 2]);
    write("zip", b"PK\x03\x04");
    write("words", b"hello");
    write("other", b"{\"a\":1}");
    write(
        "newer",
        text.replacen(&format!("\"tool\":\"{}\"", env!("CARGO_PKG_VERSION")), "\"tool\":\"99.0.0\"", 1)
            .as_bytes(),
    );
    write("changed", text.replace("us-central1-c", "us-central1-a").as_bytes());
    for (name, says) in [
        ("nowhere", "no such file"),
        ("empty", "it is empty"),
        ("half", "it is truncated"),
        ("zip", "ZIP archive"),
        ("words", "it is not valid JSON"),
        ("other", "not a file written by `plan --out`"),
        ("newer", "it was written by dask-infra 99.0.0"),
        ("changed", "its content was changed after it was written"),
    ] {
        user.run(&["apply", name]).expect(1).says("DI0307").says(says);
        user.run(&["show", name]).expect(1).says(says);
        user.run(&["show", "--json", name]).expect(1).says(says);
    }
    user.edit("name = \"rapids\"", "name = \"another\"");
    user.run(&["apply", "plan"]).expect(1).says("is a plan of stack rapids");
    user.edit("name = \"another\"", "name = \"rapids\"");
    user.edit("us-central1-c", "us-central1-a");
    user.run(&["apply", "plan"]).expect(1).says("was made for").says("the stack file now targets");
    // Without a stack file the plan is enough.
    std::fs::remove_file(path("stack.toml")).unwrap();
    user.run(&["apply", "plan"]).expect(0).says("14 added");
    let hidden = std::fs::read_dir(user.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".plan"));
    assert_eq!(hidden.count(), 0, "nothing is left beside a saved plan");
}

/// Two applies at the same time: the second is refused and named the first; a killed one locks nobody out.
#[test]
fn a_second_apply_at_the_same_time_is_refused() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    // More workers than the pool has GPUs: the first apply waits for them until it is killed.
    user.edit("replicas = 2", "replicas = 20");
    let mut first = user
        .command(&["apply", "--auto-approve"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(first.stderr.take().unwrap()));
    let waits =
        |line: std::io::Result<String>| line.unwrap().contains("  dask_cluster.rapids-dask-cluster: creat");
    assert!(lines.any(waits), "it ended early");
    user.edit("replicas = 20", "replicas = 2");
    user.run(&["plan"])
        .expect(0)
        .says("another apply of this stack is running")
        .says("plan again when it has ended");
    user.run(&["apply", "--auto-approve"])
        .expect(5)
        .says("DI0411")
        .says(&format!("process {}", first.id()))
        .says("nothing was done")
        .says("--force-unlock");
    first.kill().unwrap();
    first.wait().unwrap();
    let said = user.run(&["plan"]).expect(0);
    assert!(!said.out.contains("another apply") && !said.err.contains("another apply"), "{}", said.err);
    user.run(&["apply", "--auto-approve"]).expect(0).says("Apply complete");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
}
