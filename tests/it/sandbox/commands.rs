//! The everyday commands of the built program, and what it says when something outside the stack file stands in the
//! way: one table, by hand-made endpoints and files.

use std::path::Path;
use std::process::Command;

use axum::Router;
use serde_json::{Value, json};

use crate::golden::{golden, root};
use crate::sandbox_server::{CommandOutput, User};

/// GKE that gives one answer to everything, on a free port of this machine, until it is dropped.
struct Gke {
    url: String,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Gke {
    fn answering(status: u16, body: &Value) -> Self {
        let body = body.to_string();
        let answer = move || {
            let body = body.clone();
            async move {
                let status = http::StatusCode::from_u16(status).unwrap();
                (status, [(http::header::CONTENT_TYPE, "application/json")], body)
            }
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(axum::routing::any(answer));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { url, runtime: Some(runtime) }
    }

    fn refusing(status: u16, canonical: &str, message: &str, reason: &str) -> Self {
        let details = json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason,
            "metadata": { "service": "container.googleapis.com" },
        }]);
        Self::answering(
            status,
            &json!({ "error": { "code": status, "message": message, "status": canonical, "details": details } }),
        )
    }
}

impl Drop for Gke {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A user without a home, so without gcloud's files.
fn command_without_home(user: &User, words: &[&str]) -> Command {
    let mut command = user.command(words);
    command.env("HOME", user.path().join("no-home")).env_remove("KUBECONFIG");
    for name in [
        "CLOUDSDK_CONFIG",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_QUOTA_PROJECT",
        "CLOUDSDK_CORE_PROJECT",
        "CLOUDSDK_COMPUTE_ZONE",
    ] {
        command.env_remove(name);
    }
    command
}

fn command_output(command: &mut Command) -> CommandOutput {
    CommandOutput::of(&command.output().unwrap())
}

/// The message of the first error, without its frame.
fn first(said: &CommandOutput) -> String {
    let lines = said.err.lines().map(str::trim).skip_while(|line| !line.starts_with("x "));
    let message = lines.take_while(|line| line.starts_with("x ") || line.starts_with("| "));
    message.map(|line| &line[2..]).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_stack_is_begun_tried_looked_at_and_taken_away() {
    let user = User::empty();
    command_without_home(&user, &["init"])
        .output()
        .map(|output| CommandOutput::of(&output))
        .unwrap()
        .expect(0)
        .says("rapids-gke");
    let home = user.path().join("no-home/.config/gcloud/configurations");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(
        home.join("config_default"),
        "[core]\nproject = my-lab-1\n[compute]\nzone = us-central1-f\n",
    )
    .unwrap();
    command_output(&mut command_without_home(&user, &["init", "--from", "rapids-gke"]))
        .expect(0)
        .says("Wrote stack.toml")
        .says("my-lab-1");
    let text = user.stack();
    assert!(
        text.contains("project = \"my-lab-1\"") && text.contains("location = \"us-central1-f\""),
        "{text}"
    );
    assert!(user.path().join(".dask-infra/stack.schema.json").is_file());
    command_output(&mut command_without_home(&user, &["init", "--from", "rapids-gke"]))
        .expect(1)
        .says("DI0010");
    assert_eq!(user.stack(), text, "never over a file");

    user.run(&["validate"]).expect(0);
    user.run(&["graph"]).expect(0).says("node_pool.scheduler-pool          after cluster");
    user.run(&["graph", "--format", "mermaid"]).expect(0).says("flowchart TD");
    user.run(&["--sandbox", "status"]).expect(0).says("Nothing exists yet.");
    user.run(&["--sandbox", "plan", "--refresh-only"]).expect(0).says("No drift.");
    user.run(&["--sandbox", "apply", "--auto-approve", "--target", "dask_operator"])
        .expect(0)
        .says("partial: only dask_operator");
    let half = user.run(&["--sandbox", "status"]).expect(0).says("absent");
    assert!(half.out.contains("9 of 9 objects ready"), "{}", half.out);
    user.run(&["--sandbox", "plan", "--target", "dask_operator", "--detailed-exitcode"]).expect(0);
    user.run(&["--sandbox", "plan", "--summary", "--detailed-exitcode"]).expect(2).says("create");
    user.run(&["--sandbox", "apply", "--auto-approve"]).expect(0);
    user.run(&["--sandbox", "plan", "--detailed-exitcode"]).expect(0);
    let status = user.run(&["--sandbox", "status"]).expect(0).says("All 8 are ready.");
    assert!(status.out.contains("Running; workers: 2 desired, 2 created, 2 ready"), "{}", status.out);
    assert!(status.out.contains("1 of 1 nodes ready, 2 GPUs allocatable"), "{}", status.out);
    let json: Value =
        serde_json::from_str(&user.run(&["--sandbox", "status", "--json"]).expect(0).out).unwrap();
    assert_eq!((json["ready"].clone(), json["simulated"].clone()), (json!(true), json!(true)));

    user.edit("replicas = 2", "replicas = 3");
    user.run(&["--sandbox", "apply", "--auto-approve", "--exclude", "dask_cluster.rapids-dask-cluster"])
        .expect(0)
        .says("This part of the stack is up to date");
    user.run(&["--sandbox", "destroy", "--auto-approve", "--target", "dask_cluster.rapids-dask-cluster"])
        .expect(0);
    user.run(&["--sandbox", "status"]).expect(0).says("absent   dask_cluster.rapids-dask-cluster");
    user.run(&["--sandbox", "destroy", "--auto-approve"]).expect(0);
    user.run(&["--sandbox", "status"]).expect(0).says("Nothing exists yet.");
}

#[test]
fn help_of_every_command_has_an_example_and_the_short_one_fits_a_screen() {
    let user = User::empty();
    let short = user.run(&["-h"]).expect(0).out;
    // A line for each command: one more for `cost`.
    assert!(short.lines().count() <= 41, "{} lines:\n{short}", short.lines().count());
    let start =
        ["dask-infra init --from rapids-gke-lean", "dask-infra --sandbox apply    shows the plan and asks"];
    assert!(start.iter().all(|command| short.lines().any(|line| line.trim() == *command)), "{short}");
    let commands = short.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 12, "{names:?}");
    for name in names.iter().filter(|name| !matches!(**name, "help" | "version")) {
        let help = user.run(&[name, "--help"]).expect(0).out;
        assert!(help.contains("Example") && help.contains("dask-infra "), "{name}:\n{help}");
    }
    user.run(&["explain", "DI0206"]).expect(0).says("nvidia-tesla-t4");
    user.run(&["explain", "node_pool.nodes"]).expect(0).says("Default: 1.");
    user.run(&["explain"]).expect(0).says("dask_cluster");
}

/// Returns bash's completions for the last of these words, by the script that it was given.
fn shell_completions(user: &User, words: &[&str]) -> String {
    const ASK: &str = r#"
        eval "$SCRIPT"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _clap_complete_dask_infra dask-infra "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let script = user.run(&["completions", "bash"]).expect(0).out;
    let folder = Path::new(env!("CARGO_BIN_EXE_dask-infra")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let done = Command::new("bash")
        .args(["-c", ASK, "bash", "dask-infra"])
        .args(words)
        .current_dir(user.path())
        .envs([("SCRIPT", script), ("PATH", path)])
        .output()
        .unwrap();
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn a_shell_offers_options_codes_ready_stacks_and_the_addresses_of_the_file() {
    let user = User::empty();
    assert!(shell_completions(&user, &["init", "--from", "rap"]).contains("rapids-gke-lean"));
    assert_eq!(shell_completions(&user, &["why", "node"]).trim(), "", "there is no file yet");
    user.run(&["init", "--from", "rapids-gke-lean"]).expect(0);
    assert_eq!(shell_completions(&user, &["plan", "--refresh-o"]), "--refresh-only\n");
    assert_eq!(shell_completions(&user, &["explain", "DI000"]), "DI0001\nDI0002\nDI0008\nDI0009\n");
    let pools = "node_pool.scheduler\nnode_pool.system\nnode_pool.workers\n";
    for words in
        [["plan", "--target", "node"].as_slice(), &["destroy", "--exclude", "node"], &["status", "node"]]
    {
        assert_eq!(shell_completions(&user, words), pools, "{words:?}");
    }
    assert_eq!(
        shell_completions(&user, &["apply", "--allow", "replace:dask_c"]),
        "replace:dask_cluster.rapids\n"
    );
    assert_eq!(shell_completions(&user, &["why", "gke"]).trim(), "", "a place is no address");

    // A file that is broken, and one that lies over another one.
    user.edit("[stack]", "[stack");
    assert!(
        shell_completions(&user, &["why", "node"]).contains("node_pool.system"),
        "what can be read is offered"
    );
    user.edit("[stack", "[stack]");
    std::fs::write(user.path().join("over.toml"), "extends = \"stack.toml\"\n[node_pool.more]\n").unwrap();
    let offered = shell_completions(&user, &["--stack", "over.toml", "why", "node"]);
    assert!(offered.contains("node_pool.more") && offered.contains("node_pool.system"), "{offered}");
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        user.run(&["completions", shell]).expect(0).says("COMPLETE");
    }
}

#[test]
fn the_page_of_commands_is_current() {
    golden(&root().join("docs/commands.md"), &dask_infra::cli::page()).unwrap();
}

#[test]
fn a_doctor_names_what_is_missing_and_no_secret() {
    let user = User::with_ready_stack(None);
    let key = user.path().join("key.json");
    let pem = include_str!("../../data/token-test.pem");
    let of = |private: &str| json!({ "type": "service_account", "client_email": "me@x", "private_key": private, "quota_project_id": "bills" });
    let mut command = command_without_home(&user, &["doctor", "--offline"]);
    command.env("GOOGLE_APPLICATION_CREDENTIALS", &key).env("GOOGLE_CLOUD_PROJECT", "p");
    std::fs::write(&key, of(pem).to_string()).unwrap();
    let found =
        command_output(&mut command).expect(0).says("service_account of me@x").says("No problems found");
    let secret = pem.lines().nth(1).unwrap();
    assert!(found.out.contains("bills") && !found.out.contains(secret) && !found.err.contains(secret));
    // An unusable key is reported as a problem.
    std::fs::write(&key, of("CANARY").to_string()).unwrap();
    let found = command_output(&mut command).expect(1).says("cannot be used: its `private_key`");
    assert!(!found.out.contains("CANARY") && !found.err.contains("CANARY"));
    // gcloud's folder is looked up once, for everybody.
    let folder = user.path().join("elsewhere");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("application_default_credentials.json"), of("CANARY").to_string()).unwrap();
    for words in [&["doctor"][..], &["plan"]] {
        let mut command = command_without_home(&user, words);
        command.env("CLOUDSDK_CONFIG", &folder).env("GOOGLE_CLOUD_PROJECT", "p");
        command_output(&mut command).expect(1).says("elsewhere").says("`private_key`");
    }
    command_output(&mut command_without_home(&user, &["doctor", "--offline"]))
        .expect(1)
        .says("GOOGLE_CLOUD_PROJECT");
    user.run(&["--sandbox", "doctor"]).expect(0).says("does not exist yet").says("allows everything");
    let gke = Gke::answering(200, &json!({ "clusters": [], "permissions": ["container.clusters.get"] }));
    let mut command = command_without_home(&user, &["doctor", "--json"]);
    command.env("DASK_INFRA_GKE_ENDPOINT", &gke.url);
    let list: Value = serde_json::from_str(&command_output(&mut command).expect(0).out).unwrap();
    let permissions =
        list.as_array().unwrap().iter().find(|finding| finding["what"] == "permissions").unwrap();
    assert_eq!(permissions["mark"], "look");
    assert!(permissions["cure"].as_str().unwrap().contains("roles/container.admin"), "{permissions}");
}

#[test]
fn permissions_are_those_of_the_stack() {
    let list = |user: &User| -> Value {
        serde_json::from_str(&user.run(&["permissions", "--format", "json"]).expect(0).out).unwrap()
    };
    let user = User::with_ready_stack(Some("http://127.0.0.1:1"));
    let own = list(&user);
    let roles = ["roles/container.admin", "roles/compute.viewer", "roles/iam.serviceAccountUser"];
    assert_eq!(own["apply"]["roles"], json!(roles));
    assert_eq!(own["plan"]["roles"], json!(["roles/container.viewer", "roles/compute.viewer"]));
    let named = own["apply"]["permissions"].as_array().unwrap();
    for permission in [
        "container.clusterRoles.bind",
        "container.clusterRoles.escalate",
        "container.clusterRoleBindings.create",
        "container.customResourceDefinitions.create",
        "container.daemonSets.create",
        "container.thirdPartyObjects.create",
        "container.clusters.create",
    ] {
        assert!(named.contains(&json!(permission)), "{permission}: {named:?}");
    }
    user.run(&["permissions"])
        .expect(0)
        .says("gcloud projects add-iam-policy-binding demo --member user:YOU");
    let existing = User::with_stack("on-existing-gke", Some("http://127.0.0.1:1"));
    let named = list(&existing)["apply"]["permissions"].to_string();
    assert!(!named.contains("clusters.create") && !named.contains("actAs"), "{named}");
    existing.edit(
        "[dask_operator]\nversion = \"2026.3.0\"",
        "[dask_operator]\nversion = \"2026.3.0\"\nmanage = false",
    );
    assert_eq!(
        list(&existing)["apply"]["roles"],
        json!(["roles/container.developer", "roles/compute.viewer"])
    );
    kubernetes(&existing, "kubeconfig = \"k.yaml\"");
    let rules = list(&existing)["apply"]["rules"].to_string();
    assert!(rules.contains(r#""resources":["namespaces"]"#) && rules.contains("patch"), "{rules}");
    existing.run(&["permissions"]).expect(0).says("rules of a ClusterRole");
}

#[test]
fn what_google_refuses_is_told_with_its_cure() {
    let table: &[(u16, &str, &str, &str, &str, &str)] = &[
        (
            401,
            "UNAUTHENTICATED",
            "Request had invalid authentication credentials.",
            "ACCESS_TOKEN_EXPIRED",
            "the credentials were refused: GET /v1/",
            "gcloud auth application-default login",
        ),
        (
            403,
            "PERMISSION_DENIED",
            "Required \"container.clusters.get\" permission(s) for \"projects/p\".",
            "",
            "permission container.clusters.get is missing on project sandbox-project",
            "roles/container.clusterViewer",
        ),
        (
            403,
            "PERMISSION_DENIED",
            "Kubernetes Engine API has not been used in project p before.",
            "SERVICE_DISABLED",
            "the API container.googleapis.com is not enabled in project sandbox-project",
            "gcloud services enable",
        ),
        (
            403,
            "PERMISSION_DENIED",
            "Permission denied on resource project p.",
            "CONSUMER_INVALID",
            "project sandbox-project does not exist, or these credentials have no access to it",
            "gcloud projects list",
        ),
        (400, "INVALID_ARGUMENT", "Location \"x\" does not exist.", "", "GET /v1/", "--offline"),
    ];
    for (status, canonical, message, reason, expect, cure) in table {
        let gke = Gke::refusing(*status, canonical, message, reason);
        let user = User::with_ready_stack(None);
        for command in
            [vec!["plan"], vec!["apply", "--auto-approve"], vec!["status"], vec!["plan", "--refresh-only"]]
        {
            let found = command_output(
                command_without_home(&user, &command).env("DASK_INFRA_GKE_ENDPOINT", &gke.url),
            )
            .expect(1);
            assert!(first(&found).starts_with(expect), "{command:?} {message}:\n{}", found.err);
            let words =
                found.err.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" ");
            assert!(words.contains(cure), "{message}: no {cure:?} in\n{}", found.err);
        }
    }
}

fn kubernetes(user: &User, section: &str) {
    let text =
        format!("# a comment\n\n[stack]\nname = \"s\"\n\n[kubernetes]\n{section}\n\n[namespace.team]\n");
    user.write(text);
}

fn kubeconfig(folder: &Path, server: &str) {
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": { "token": "secret-CANARY" } }],
        "contexts": [{ "name": "lab", "context": { "cluster": "c", "user": "u" } }],
    });
    std::fs::write(folder.join("k.yaml"), text.to_string()).unwrap();
}

#[test]
fn a_kubeconfig_that_leads_nowhere_is_told_at_its_section() {
    let user = User::empty();
    kubernetes(&user, "kubeconfig = \"nowhere.yaml\"");
    user.run(&["plan"]).expect(1).says("DI0607").says("nowhere.yaml").says("stack.toml:7:");
    std::fs::write(user.path().join("bad.yaml"), "a: [").unwrap();
    kubernetes(&user, "kubeconfig = \"bad.yaml\"");
    user.run(&["plan"]).expect(1).says("DI0607").says("bad.yaml").says("stack.toml:7:");
    kubeconfig(user.path(), "https://127.0.0.1:1");
    kubernetes(&user, "kubeconfig = \"k.yaml\"\ncontext = \"other\"");
    user.run(&["plan"]).expect(1).says("DI0607").says("other").says("stack.toml:8:11");
    kubernetes(&user, "kubeconfig = \"k.yaml\"");
    let found = user.run(&["plan"]).expect(1).says("DI0604").says("cannot be reached").says("stack.toml:6:");
    assert!(!found.err.contains("CANARY"));
    user.run(&["doctor"]).expect(1).says("cannot be reached");
}

#[test]
fn other_mistakes_outside_the_file_name_what_to_do() {
    let user = User::with_ready_stack(None);
    let table: &[(&[&str], &str, &str)] = &[
        (&["--stack", "nowhere", "plan", "--offline"], "DI0001", "nowhere"),
        (&["--sandbox", "plan", "--out", "no/folder/p"], "DI0011", "no folder no/folder"),
        (&["--sandbox", "plan", "--out", "."], "DI0011", "is a folder"),
        (&["--sandbox", "--var", "nope=1", "validate"], "nope", "[vars]"),
        (
            &["--sandbox", "plan", "--target", "node_pool.defualt-pool"],
            "DI0224",
            "did you mean `node_pool.default-pool`",
        ),
        (&["--sandbox", "plan", "--replace", "chek.cuda"], "DI0224", "did you mean `check.cuda`"),
        (&["plan", "-out=x"], "two dashes", "'--out x'"),
        (&["plna"], "unrecognized subcommand", "'plan'"),
        (&["init", "--from", "rapids"], "DI0012", "rapids-gke"),
        (&["explain", "DI7777"], "DI0013", "explain --codes"),
    ];
    for (words, what, help) in table {
        user.run(words).expect(1).says(what).says(help);
    }
    let endpoint = command_output(
        command_without_home(&user, &["plan"]).env("DASK_INFRA_GKE_ENDPOINT", "https://example.org"),
    );
    endpoint.expect(1).says("is not plain HTTP");
    let missing = user.path().join("missing.json");
    let mut command = command_without_home(&user, &["plan"]);
    command.env("GOOGLE_APPLICATION_CREDENTIALS", &missing).env("GOOGLE_CLOUD_PROJECT", "p");
    let found = command_output(&mut command).expect(1).says("DI0601");
    assert!(first(&found).contains("cannot be read"), "{}", found.err);
    std::fs::write(&missing, "{}").unwrap();
    let found = command_output(&mut command).expect(1).says("DI0601");
    assert!(first(&found).contains("it has no `type`"), "{}", found.err);
}

/// A check that the selection excludes does not run on resources that this apply recreated.
#[test]
fn a_check_that_was_left_out_runs_again_on_what_was_replaced() {
    let user = User::empty();
    user.write(
        "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
         [node_pool.cpu]\nmachine_type = \"e2-standard-8\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n\n\
         [dask_cluster.work]\nimage = \"ghcr.io/dask/dask:2026.8.0\"\nworker = { replicas = 1 }\n\n\
         [check.sum]\nrun = \"dask-sum\"\ncluster = \"work\"\n",
    );
    user.run(&["--sandbox", "apply", "--auto-approve"]).expect(0);
    user.run(&["--sandbox", "plan", "--detailed-exitcode"]).expect(0);
    let anew = ["--target", "dask_cluster.work", "--replace", "dask_cluster.work"];
    let words =
        [&["--sandbox", "apply", "--auto-approve", "--allow", "replace:dask_cluster.work"], &anew[..]];
    user.run(&words.concat()).expect(0).says("left out: ");
    user.run(&["--sandbox", "plan", "--detailed-exitcode"]).expect(2).says("check.sum");
    user.run(&["--sandbox", "apply", "--auto-approve"]).expect(0);
    user.run(&["--sandbox", "plan", "--detailed-exitcode"]).expect(0);
}
