//! Dry runs as a user meets them, with an API server that refuses what the sandbox was told to refuse.

use serde_json::Value;

use crate::sandbox_server::User;

const STACK: &str = r#"[stack]
name = "s"

[gke]
project = "demo"
location = "us-central1-c"

[cluster]
name = "c"

[node_pool.a]
machine_type = "e2-standard-2"
nodes = 1

[manifest.all]
file = "all.yaml"
"#;

fn map(name: &str, value: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: default\ndata:\n  a: {value:?}\n"
    )
}

/// A user with an applied stack, whose manifest then asks for more.
fn user() -> User {
    let user = User::empty();
    user.write(STACK);
    write(&user, &[map("one", "1")]);
    run(&user, &["apply", "--auto-approve"], 0);
    write(&user, &[map("one", "2"), map("two", "1"), map("three", "1")]);
    user
}

fn write(user: &User, objects: &[String]) {
    std::fs::write(user.path().join("all.yaml"), objects.concat()).unwrap();
}

fn faults(user: &User, text: &str) {
    std::fs::write(user.path().join("box/faults.toml"), text).unwrap();
}

fn run(user: &User, words: &[&str], code: i32) -> crate::sandbox_server::CommandOutput {
    user.run(&[&["--sandbox=box"], words].concat()).expect(code)
}

fn rule(path: &str, answer: u16, message: &str) -> String {
    let head = "[[request]]\nmethod = \"PATCH\"\ndry_run = \"only\"\ntimes = \"always\"\n";
    let message = if message.is_empty() { String::new() } else { format!("message = '{message}'\n") };
    format!("{head}path = \"{path}\"\nanswer = {answer}\n{message}")
}

const DENIED: &str =
    "admission webhook \"names.example.com\" denied the request: the label `owner` is missing";

#[test]
fn a_refusing_webhook_stands_in_the_plan_and_nothing_is_written() {
    let user = user();
    let rules = [rule("*/configmaps/one", 403, DENIED), rule("*/configmaps/three", 403, DENIED)];
    faults(&user, &rules.concat());
    let plan = run(&user, &["plan"], 1);
    let place = |text: &str| plan.err.find(text).unwrap_or_else(|| panic!("{text}: {}", plan.err));
    assert!(place("all.yaml:2:1") < place("all.yaml:18:1"), "{}", plan.err);
    assert_eq!(plan.err.matches("error[DI0436]").count(), 2, "{}", plan.err);
    let json = run(&user, &["plan", "--json"], 1).out;
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let errors: Vec<&Value> = lines.iter().filter(|line| line["diagnostic"]["code"] == "DI0436").collect();
    assert_eq!(errors[0]["diagnostic"]["address"], "manifest.all/ConfigMap/default/one");
    assert_eq!(errors[1]["diagnostic"]["range"]["start"]["line"], 18);
    let summary = lines.iter().find(|line| line["type"] == "change_summary").unwrap();
    assert_eq!(summary["dry_run"], serde_json::json!({ "tried": 3, "untried": [] }));
    run(&user, &["plan", "--out", "p.plan"], 1);
    for words in [&["apply", "--auto-approve"][..], &["apply", "p.plan"]] {
        run(&user, words, 1).says("the API server refuses ConfigMap default/one").says("--skip-dry-run");
    }
    run(&user, &["plan", "--detailed-exitcode", "--skip-dry-run"], 2);
    run(&user, &["apply", "p.plan", "--skip-dry-run"], 0).says("2 added, 1 changed");
    run(&user, &["plan", "--detailed-exitcode"], 0);
}

#[test]
fn what_cannot_be_tried_is_counted_and_applied() {
    let user = user();
    let rules = [
        rule("*/configmaps/one", 400, "admission webhook \"side.example.com\" does not support dry run"),
        rule("*/configmaps/two", 403, ""),
        rule(
            "*/configmaps/three",
            500,
            "Internal error occurred: failed calling webhook \"v.example.com\": EOF",
        ),
    ];
    faults(&user, &rules.concat());
    let json = run(&user, &["plan", "--json"], 0).out;
    let summary = json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let summary = summary.into_iter().find(|line| line["type"] == "change_summary").unwrap();
    let reasons: Vec<&str> = summary["dry_run"]["untried"]
        .as_array()
        .unwrap()
        .iter()
        .map(|untried| untried["reason"].as_str().unwrap())
        .collect();
    let expected = [
        "admission webhook side.example.com does not support dry runs",
        "the credentials may not patch configmaps",
        "admission webhook v.example.com does not answer",
    ];
    assert_eq!(reasons, expected);
    assert_eq!(summary["dry_run"]["tried"], 0);
    run(&user, &["apply", "--auto-approve"], 0)
        .says("Not tried on the API server")
        .says("2 added, 1 changed");
}

/// The plan is made three times: for approval, under the lock, and after it. Each object is tried once.
#[test]
fn an_apply_tries_each_object_once() {
    let user = user();
    let refuse_second = "[[request]]\nmethod = \"PATCH\"\ndry_run = \"only\"\nskip = 3\ntimes = \"always\"\npath = \"*/configmaps/*\"\nanswer = 403\nmessage = 'admission webhook \"v\" denied the request'\n";
    faults(&user, refuse_second);
    run(&user, &["apply", "--auto-approve"], 0).says("2 added, 1 changed");
    // Nothing differs, so nothing is tried.
    run(&user, &["plan", "--detailed-exitcode"], 0);
    write(&user, &[map("one", "3")]);
    run(&user, &["plan"], 1).says("DI0436");
}

#[test]
fn a_first_apply_says_that_nothing_can_be_tried_yet() {
    let user = User::empty();
    user.write(STACK);
    write(&user, &[map("one", "1")]);
    run(&user, &["plan"], 0).says("Not tried on the API server: 1 object (the plan creates GKE cluster c)");
    let offline = run(&user, &["plan", "--offline"], 0);
    assert!(!offline.out.contains("Not tried"), "{}", offline.out);
    let saved = run(&user, &["plan", "--out", "p.plan"], 0);
    drop(saved);
    let shown: Value = serde_json::from_str(&run(&user, &["show", "--json", "p.plan"], 0).out).unwrap();
    let untried = &shown["dask_infra"]["dry_run"]["untried"];
    assert_eq!(untried[0]["objects"], serde_json::json!(["manifest.all/ConfigMap/default/one"]));
    assert_eq!(untried[0]["count"], 1);
}
