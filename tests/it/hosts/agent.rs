//! The agent of a host by itself: its protocol, what it keeps on disk, and processes that are not Dask's.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use live::Request;
use live::hosts::Fleet;
use model::resource::{Api, Host};
use serde_json::{Value, json};

use crate::sandbox_server::{entries_in, on_path, wait_until};

pub(crate) const HOSTS: &str = "/apis/hosts.dask-infra.dev/v1";

pub(crate) struct Agent {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    hello: Value,
}

/// How an agent is started.
#[derive(Default)]
pub(crate) struct Setting<'a> {
    /// Constants of the agent that would make a test wait: text and what stands in its place.
    pub(crate) faster: &'a [(&'a str, &'a str)],
    /// Before the `PATH`.
    pub(crate) path: Option<&'a Path>,
    /// Runs before it in the same shell.
    pub(crate) shell: &'a str,
}

impl Agent {
    pub(crate) fn start(state: &Path) -> Self {
        Self::start_with(state, &Setting::default())
    }

    pub(crate) fn start_with(state: &Path, setting: &Setting<'_>) -> Self {
        let mut source = live::hosts::AGENT.to_owned();
        for (slow, fast) in setting.faster {
            assert!(source.contains(slow), "{slow}");
            source = source.replace(slow, fast);
        }
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("{}\nexec \"$@\"", setting.shell),
            "sh",
            "python3",
            "-I",
            "-u",
            "-c",
            live::hosts::START,
        ]);
        command.env("XDG_STATE_HOME", state);
        if let Some(first) = setting.path {
            let rest = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{rest}", first.display()));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut requests = child.stdin.take().unwrap();
        requests.write_all(live::hosts::start_input(&source).as_bytes()).unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut hello = String::new();
        answers.read_line(&mut hello).unwrap();
        let hello = serde_json::from_str(&hello).unwrap();
        Self { child, requests: Some(requests), answers, hello }
    }

    /// The folder of this machine below the one of the user.
    pub(crate) fn folder(&self) -> PathBuf {
        PathBuf::from(self.hello["folder"].as_str().unwrap())
    }

    /// Returns the agent's note about a process.
    pub(crate) fn note(&self, pod: &str) -> (PathBuf, Value) {
        let file = self.folder().join(format!("objects/pods/default/{pod}.json"));
        let note = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        (file, note)
    }

    fn pid(&self, pod: &str) -> u32 {
        self.note(pod).1["internal"]["process"]["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// An environment that is ready.
    pub(crate) fn with_environment(&mut self, python: &Path) {
        let path = format!("{HOSTS}/environments/main");
        self.apply(&path, "", &environment(python));
        self.wait_until(&path, |_, live| live["status"]["phase"] == "Ready");
    }

    /// A cluster whose workers run, and nothing goes on.
    #[track_caller]
    pub(crate) fn wait_until_settled(&mut self, name: &str, workers: u64) -> Value {
        self.wait_until(&format!("{HOSTS}/{name}"), |_, live| {
            let status = &live["status"];
            status["converging"] == false && status["workers"]["running"] == workers
        })
    }

    /// Ends a cluster and its environment.
    pub(crate) fn destroy(&mut self) {
        for object in ["clusters/c", "environments/main"] {
            self.delete(&format!("{HOSTS}/{object}"));
        }
    }

    /// Deletes what is there, until it is gone.
    #[track_caller]
    pub(crate) fn delete(&mut self, path: &str) {
        assert_eq!(self.ask("DELETE", path, None).0, 200);
        self.wait_until(path, |status, _| status == 404);
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> (u64, Value) {
        let line = json!({ "id": 1, "method": method, "path": path, "body": body });
        writeln!(self.requests.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        (answer["status"].as_u64().unwrap(), answer["body"].take())
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) fn tell(&mut self, method: &str, path: &str, body: &Value) {
        let line = json!({ "id": 1, "method": method, "path": path, "body": body });
        writeln!(self.requests.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for the answer to what it was told, or for its end.
    pub(crate) fn wait_for_reply(&mut self) {
        self.answers.read_line(&mut String::new()).unwrap();
    }

    /// As SIGKILL ends it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// As a stack asks whose hosts run no jobs of SLURM.
    pub(crate) fn ask_without_jobs(&mut self, path: &str) -> (u64, Value) {
        let line = json!({ "id": 1, "method": "GET", "path": path, "slurm": false });
        writeln!(self.requests.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        (answer["status"].as_u64().unwrap(), answer["body"].take())
    }

    pub(crate) fn get(&mut self, path: &str) -> (u64, Value) {
        self.ask("GET", path, None)
    }

    pub(crate) fn apply(&mut self, path: &str, query: &str, body: &Value) -> (u64, Value) {
        self.ask("PATCH", &format!("{path}?fieldManager=dask-infra%2Fs{query}"), Some(body))
    }

    /// Looks until something is so.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, path: &str, so: impl Fn(u64, &Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let (status, body) = self.get(path);
            if so(status, &body) {
                return body;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{status} {body:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The end of its input is its end.
        drop(self.requests.take());
        let _ = self.child.wait();
    }
}

/// A Python that is not Dask's: it says its versions, listens as a scheduler does, and as a worker only lives. As the program of a
/// job (`--work`) it notes in `ran` that it ran and where its scheduler is, and ends once `enough` is there. Beside it
/// `requests` lists what schedulers were asked, `workers/` who is registered; `refuses`, `busy`, `mute` have a scheduler retire
/// nobody, answer with an error once, or never listen.
const PRETENDED: &str = r#"#!/usr/bin/env python3
import http.server, json, os, re, signal, socket, ssl, struct, sys, threading, time
here, words = os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]
def after(word):
    return words[words.index(word) + 1]
def there(name):
    return os.path.exists(os.path.join(here, name))
workers = os.path.join(here, "workers")
os.makedirs(workers, exist_ok=True)
if any("importlib" in word for word in words):
    print(json.dumps({"python": "3.12.1", "distributed": "2026.8.0", "dask-cuda": "26.10.0"}))
elif "distributed.cli.dask_scheduler" in words:
    if there("mute"):
        time.sleep(3600)
    host, port = after("--host"), int(after("--port"))
    comm = socket.create_server((host, port))
    role, secure = "DASK_DISTRIBUTED__COMM__TLS__SCHEDULER__", None
    if role + "CERT" in os.environ:
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secure.load_cert_chain(os.environ[role + "CERT"], os.environ[role + "KEY"])
        secure.load_verify_locations(os.environ["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"])
        secure.verify_mode = ssl.CERT_REQUIRED
    def text_of(value):
        return b"\xdb" + struct.pack(">I", len(value)) + value
    def exchange(link):
        link = secure.wrap_socket(link, server_side=True) if secure else link
        with link, link.makefile("rb") as requests:
            while True:
                message = requests.read(struct.unpack("<Q", requests.read(8))[0])
                names = []
                if b"retire_workers" in message:
                    sent = re.findall(rb"tcp://[\w.-]+", message)
                    with open(os.path.join(here, "requests"), "a") as file:
                        file.write("%d RETIRE %s\n" % (os.getpid(), b" ".join(sent).decode()))
                    names = [] if there("refuses") else sent
                    for name in names:
                        os.unlink(os.path.join(workers, name[6:].decode()))
                elif b"pickle-protocol" not in message:
                    # What is asked for versions hears nothing.
                    return
                answer = struct.pack(">BI", 0xDF, len(names)) + b"".join(text_of(name) + b"\x80" for name in names)
                link.sendall(struct.pack("<QQQ", len(answer) + 16, 1, len(answer)) + answer)
    def answers():
        while True:
            threading.Thread(target=exchange, args=(comm.accept()[0],), daemon=True).start()
    threading.Thread(target=answers, daemon=True).start()
    own = {"id": "Scheduler-%d" % os.getpid(), "address": "tcp://%s:%d" % (host, port)}
    class Pages(http.server.BaseHTTPRequestHandler):
        def say(self, what, status=200):
            text = json.dumps(what).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        def log_message(self, *_):
            pass
        def heard(self):
            with open(os.path.join(here, "requests"), "a") as file:
                file.write("%d %s %s\n" % (os.getpid(), self.command, self.path))
        def do_GET(self):
            self.heard()
            if there("busy"):
                os.unlink(os.path.join(here, "busy"))
                return self.say({}, 500)
            self.say(dict(own, workers={"tcp://" + name: {"id": name} for name in os.listdir(workers)}))
    http.server.HTTPServer((host, int(after("--dashboard-address").rsplit(":", 1)[1])), Pages).serve_forever()
elif "--work" in words:
    with open(os.path.join(here, "ran"), "a") as file:
        file.write(os.environ["DASK_SCHEDULER_ADDRESS"] + "\n")
    while not there("enough"):
        time.sleep(0.02)
else:
    if words[0] == "-c" and "--nworkers" in words:
        if sys.stdin.readline() != "\n":
            sys.exit("nobody told it to go on")
        words[:2] = ["-m"]
    print(*words, flush=True)
    if "--name" in words:
        gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        number = int(after("--nworkers")) if "--nworkers" in words else len(gpus)
        if gpus:
            print("devices", *gpus, flush=True)
        for one in [after("--name")] if number == 1 else ["%s-%d" % (after("--name"), at) for at in range(number)]:
            open(os.path.join(workers, one), "w").close()
    time.sleep(3600)
"#;

/// A program; written by another process, as one that a test just forks while the file is open for writing here would keep it
/// from being run (ETXTBSY).
pub(crate) fn script(file: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(file)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}

pub(crate) fn pretended(folder: &Path) -> PathBuf {
    let python = folder.join("python");
    script(&python, PRETENDED);
    python
}

/// Returns the requests by one method that fake schedulers in a folder received.
pub(crate) fn asked(folder: &Path, method: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.join("requests")).unwrap_or_default();
    text.lines().filter(|line| line.contains(&format!(" {method} "))).map(str::to_owned).collect()
}

pub(crate) fn is_alive(pid: u32) -> bool {
    // One that only waits to be reaped has no program any more.
    Path::new("/proc").join(pid.to_string()).join("exe").exists()
}

pub(crate) fn environment(path: &Path) -> Value {
    json!({ "metadata": { "name": "main" }, "spec": { "digest": "d1", "path": path } })
}

pub(crate) fn cluster(workers: u32, ports: [u16; 2]) -> Value {
    json!({ "metadata": { "name": "c" }, "spec": {
        "environment": { "name": "main", "digest": "d1" },
        "scheduler": { "host": "127.0.0.1", "port": ports[0], "dashboardPort": ports[1] },
        "worker": { "replicas": workers, "threads": 1 },
    } })
}

/// Workers are started with their scheduler, wait for it, and do not outlive what waits for it.
#[test]
fn workers_of_a_scheduler_that_never_answers_end() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let setting = Setting { faster: &[("UP = 180", "UP = 3")], ..Setting::default() };
    let mut agent = Agent::start_with(state.path(), &setting);
    agent.with_environment(&python);
    fs::write(home.path().join("mute"), "").unwrap();
    let (path, body) = (format!("{HOSTS}/clusters/c"), cluster(2, crate::real::free_ports::<2>()));
    let pids = |agent: &mut Agent| {
        agent.apply(&path, "", &body);
        let live = agent.wait_until(&path, |_, live| live["status"]["workers"]["running"] == 2);
        assert_eq!(
            (&live["status"]["converging"], &live["status"]["workers"]["registered"]),
            (&json!(true), &json!(0))
        );
        ["c-worker-0", "c-worker-1"].map(|pod| agent.pid(pod))
    };
    let workers = pids(&mut agent);
    let live = agent.wait_until_settled("clusters/c", 0);
    let message = live["status"]["message"].as_str().unwrap();
    assert!(message.contains("does not answer on port") && message.contains("within 3 s"), "{live:#}");
    assert_eq!(live["status"]["workers"]["present"], 0, "{live:#}");
    assert!(!workers.into_iter().any(is_alive));
    // The waiting process is killed: the workers notice it, and nobody has to find them.
    let workers = pids(&mut agent);
    let note = fs::read_to_string(agent.folder().join("run/c")).unwrap();
    let converger = serde_json::from_str::<Value>(&note).unwrap()["pid"].to_string();
    assert!(Command::new("kill").args(["-9", &converger]).status().unwrap().success());
    let live = agent.wait_until_settled("clusters/c", 0);
    let message = live["status"]["message"].as_str().unwrap();
    assert!(message.contains("nobody told it to go on") && message.contains("was interrupted"), "{live:#}");
    assert!(!workers.into_iter().any(is_alive));
    fs::remove_file(home.path().join("mute")).unwrap();
    let scheduler = agent.pid("c-scheduler").to_string();
    assert!(Command::new("kill").args(["-9", &scheduler]).status().unwrap().success());
    agent.apply(&path, "", &body);
    agent.wait_until_settled("clusters/c", 2);
    agent.destroy();
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

/// An apply writes its record while its lock is being renewed, and looks at the lock no more.
#[tokio::test]
async fn who_asks_and_looks_away_holds_nobody_up() {
    if !on_path("python3", "--version") || !Path::new("/proc").exists() {
        return;
    }
    let fleet = Fleet::of(&[Host::this_machine()], Vec::new()).unwrap();
    let request = Request::get(Api::Kubernetes, "/version");
    let mut first = std::pin::pin!(fleet.send(&request));
    assert!(futures::poll!(&mut first).is_pending());
    let second = tokio::time::timeout(Duration::from_secs(60), fleet.send(&request)).await;
    assert_eq!(second.expect("it is answered").unwrap()["major"], "1");
    assert_eq!(first.await.unwrap()["major"], "1");
}

#[test]
fn it_says_what_it_serves_and_a_look_leaves_nothing() {
    if !on_path("python3", "--version") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(state.path());
    assert!(agent.folder().starts_with(state.path().join("dask-infra/at")), "{}", agent.hello);
    let (status, groups) = agent.get("/apis");
    assert_eq!((status, &groups["groups"][1]["name"]), (200, &json!("hosts.dask-infra.dev")));
    let (_, kinds) = agent.get(HOSTS);
    let names: Vec<&str> =
        kinds["resources"].as_array().unwrap().iter().filter_map(|kind| kind["name"].as_str()).collect();
    assert_eq!(names, ["environments", "files", "clusters", "workergroups", "jobs", "strangers"]);
    for (path, status, kind) in [
        (format!("{HOSTS}/clusters"), 200, json!("ClusterList")),
        (format!("{HOSTS}/clusters/c"), 404, json!("Status")),
        ("/api/v1/namespaces/n/events".to_owned(), 200, json!("EventList")),
        ("/apis/apps/v1/deployments".to_owned(), 404, Value::Null),
        ("/api/v1/namespaces/default/pods/..%2F..%2Fx".to_owned(), 422, json!("Status")),
    ] {
        let (found, body) = agent.get(&path);
        assert_eq!((found, &body["kind"]), (status, &kind), "{path}: {body}");
    }
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

/// Compiled files are kept while anything is managed, and used only if they are whole and the user's own.
#[test]
fn the_agent_is_compiled_once() {
    if !on_path("python3", "--version") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let base = state.path().join("dask-infra");
    let compiled = || {
        let files = fs::read_dir(&base).into_iter().flatten().map(|entry| entry.unwrap().path());
        files.filter(|file| file.is_file()).collect::<Vec<_>>()
    };
    let serves = || {
        let mut agent = Agent::start(state.path());
        assert_eq!(agent.get(&format!("{HOSTS}/environments/main")).0, 200);
    };
    let python = pretended(state.path());
    Agent::start(state.path()).with_environment(&python);
    assert_eq!(compiled(), Vec::<PathBuf>::new(), "there was nothing yet");
    serves();
    let files = compiled();
    let [file] = &files[..] else { panic!("{files:?}") };
    let inode = |file: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(file).unwrap());
    let (whole, first) = (fs::read(file).unwrap(), inode(file));
    serves();
    assert_eq!(inode(file), first, "it was used");
    let mut broken = whole.clone();
    *broken.last_mut().unwrap() ^= 1;
    for text in [&broken[..], &whole[..whole.len() / 2], &[]] {
        fs::write(file, text).unwrap();
        serves();
        assert_eq!(fs::read(file).unwrap(), whole);
    }
    // Not through a link, and not what others can write.
    let elsewhere = state.path().join("elsewhere");
    fs::rename(file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, file).unwrap();
    serves();
    assert!(!fs::symlink_metadata(file).unwrap().is_symlink());
    fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
    let before = inode(file);
    serves();
    assert_ne!(inode(file), before);
    let mut agent = Agent::start(state.path());
    let path = format!("{HOSTS}/environments/main");
    assert_eq!(agent.ask("DELETE", &path, None).0, 200);
    agent.wait_until(&path, |status, _| status == 404);
    assert!(!base.exists(), "{:?}", entries_in(&base));
}

#[test]
fn objects_are_applied_as_a_cluster_applies_them() {
    if !on_path("python3", "--version") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(state.path());
    let path = "/api/v1/namespaces/dask-infra/configmaps/r";
    let map = |data: Value| json!({ "metadata": { "name": "r" }, "data": data });
    assert_eq!(agent.apply(path, "", &map(json!({ "a": "1" }))).0, 404, "its namespace is not there");
    let namespace = json!({ "metadata": { "name": "dask-infra", "labels": { "l": "x" } } });
    assert_eq!(agent.apply("/api/v1/namespaces/dask-infra", "", &namespace).0, 200);
    let new = json!({ "metadata": { "name": "r", "resourceVersion": "1" }, "data": { "a": "1", "b": "2" } });
    let (status, made) = agent.apply(path, "", &new);
    assert_eq!(status, 200, "{made}");
    assert_eq!(agent.apply(path, "", &new).1["reason"], "Conflict", "what is there is not made");
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(entry["manager"], "dask-infra/s");
    assert_eq!(entry["fieldsV1"], json!({ "f:data": { "f:a": {}, "f:b": {} } }));
    // Another manager's value is not taken without force, and a field that is given up goes.
    let other = format!("{path}?fieldManager=other");
    let (status, refused) = agent.ask("PATCH", &other, Some(&map(json!({ "a": "9" }))));
    assert_eq!((status, refused["message"].as_str().unwrap().contains("dask-infra/s")), (409, true));
    let (_, forced) = agent.ask("PATCH", &format!("{other}&force=true"), Some(&map(json!({ "a": "9" }))));
    assert_eq!(forced["data"], json!({ "a": "9", "b": "2" }));
    let (_, left) = agent.apply(path, "", &map(json!({ "c": "3" })));
    assert_eq!(left["data"], json!({ "a": "9", "c": "3" }));
    assert_eq!(agent.apply(path, "&dryRun=All", &map(json!({ "d": "4" }))).1["data"]["d"], "4");
    assert_eq!(agent.get(path).1["data"]["d"], Value::Null);
    let wrong = json!({ "preconditions": { "uid": "another" } });
    assert_eq!(agent.ask("DELETE", path, Some(&wrong)).0, 409);
    assert_eq!(agent.ask("DELETE", "/api/v1/namespaces/dask-infra", None).0, 200);
    assert_eq!(agent.get(path).0, 404, "it went with its namespace");
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn an_environment_that_cannot_be_used_says_why() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    let path = format!("{HOSTS}/environments/main");
    agent.apply(&path, "", &environment(&home.path().join("nothing")));
    let settled = |_: u64, live: &Value| live["status"]["phase"] != "Making";
    let failed = agent.wait_until(&path, settled);
    let said = failed["status"]["message"].as_str().unwrap();
    assert!(said.starts_with("there is no Python at "), "{said}");
    // The environment again, once its Python is there.
    let python = home.path().join("nothing");
    fs::rename(pretended(home.path()), &python).unwrap();
    agent.apply(&path, "", &environment(&python));
    let ready = agent.wait_until(&path, settled);
    assert_eq!(
        ready["status"]["versions"],
        json!({ "python": "3.12.1", "distributed": "2026.8.0" }),
        "{ready:#}"
    );
    fs::remove_file(&python).unwrap();
    let gone = agent.get(&path).1;
    assert_eq!(gone["status"]["phase"], "Failed", "{gone}");
    agent.ask("DELETE", &path, None);
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn processes_outlive_the_agent_and_are_found_again() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let ports = crate::real::free_ports::<2>();
    let (path, env) = (format!("{HOSTS}/clusters/c"), format!("{HOSTS}/environments/main"));
    let there = |number: u64| {
        move |_: u64, live: &Value| {
            let status = &live["status"];
            status["converging"] == false && status["workers"]["running"] == number
        }
    };
    {
        let mut agent = Agent::start(state.path());
        agent.apply(&env, "", &environment(&python));
        agent.wait_until(&env, |_, live| live["status"]["phase"] == "Ready");
        agent.apply(&path, "", &cluster(2, ports));
        let live = agent.wait_until(&path, there(2));
        assert_eq!(live["status"]["scheduler"]["running"], true, "{live:#}");
    }
    let mut agent = Agent::start(state.path());
    let selector = "/api/v1/namespaces/default/pods?labelSelector=dask.org%2Fcluster-name%3Dc";
    let (_, pods) = agent.get(selector);
    let names: Vec<&str> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| {
            assert_eq!(pod["status"]["phase"], "Running", "{pod:#}");
            pod["metadata"]["name"].as_str().unwrap()
        })
        .collect();
    assert_eq!(names, ["c-scheduler", "c-worker-0", "c-worker-1"]);
    // A process that runs has not always written yet.
    agent.wait_until("/api/v1/namespaces/default/pods/c-worker-1/log?tailLines=1", |_, log| {
        log.as_str().unwrap().contains("--name c-worker-1")
    });
    // Another number touches only those that are more or fewer.
    agent.ask("PUT", &format!("{path}/scale?fieldManager=x"), Some(&json!({ "spec": { "replicas": 1 } })));
    agent.wait_until(&path, |status, live| {
        there(1)(status, live) && live["status"]["workers"]["present"] == 1
    });
    agent.ask("DELETE", &path, None);
    agent.wait_until(&path, |status, _| status == 404);
    agent.ask("DELETE", &env, None);
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_process_that_ended_is_seen_and_another_one_of_its_number_is_spared() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let mut agent = Agent::start(state.path());
    let (path, env) = (format!("{HOSTS}/clusters/c"), format!("{HOSTS}/environments/main"));
    agent.apply(&env, "", &environment(&python));
    agent.wait_until(&env, |_, live| live["status"]["phase"] == "Ready");
    let body = cluster(1, crate::real::free_ports::<2>());
    agent.apply(&path, "", &body);
    let running = |_: u64, live: &Value| {
        let status = &live["status"];
        status["converging"] == false && status["workers"]["running"] == 1
    };
    agent.wait_until(&path, running);
    let (note, mut pod) = agent.note("c-worker-0");
    let pid = pod["internal"]["process"]["pid"].as_u64().unwrap();
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    let live = agent.wait_until(&path, |_, live| live["status"]["workers"]["running"] == 0);
    assert!(live["status"]["message"].as_str().unwrap().starts_with("c-worker-0 ended: "), "{live:#}");
    // Its number went to a process of somebody else.
    let mut innocent = Command::new("sleep").arg("3600").spawn().unwrap();
    pod["internal"]["process"]["pid"] = json!(innocent.id());
    fs::write(&note, pod.to_string()).unwrap();
    assert_eq!(agent.get(&path).1["status"]["workers"]["running"], 0);
    agent.apply(&path, "", &body);
    agent.wait_until(&path, running);
    agent.ask("DELETE", &path, None);
    agent.wait_until(&path, |status, _| status == 404);
    assert!(innocent.try_wait().unwrap().is_none(), "it lives");
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

#[test]
fn workers_join_no_scheduler_of_somebody_else() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home, other) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (python, theirs) = (pretended(home.path()), pretended(other.path()));
    let ports = crate::real::free_ports::<2>();
    let dashboard = format!("127.0.0.1:{}", ports[1]);
    let port = ports[0].to_string();
    let words = [
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--dashboard-address",
        &dashboard,
    ];
    let mut stranger = Command::new(theirs).args(words).spawn().unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", ports[1])).is_err() {
        std::thread::yield_now();
    }
    let mut agent = Agent::start(state.path());
    agent.with_environment(&python);
    agent.apply(&format!("{HOSTS}/clusters/c"), "", &cluster(2, ports));
    let live = agent.wait_until_settled("clusters/c", 0);
    let status = &live["status"];
    assert_eq!(
        (&status["scheduler"]["running"], &status["scheduler"]["answers"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(status["workers"]["present"], 0, "{live:#}");
    let by = format!("port {port} of 127.0.0.1 is in use on this host by process {} (", stranger.id());
    assert!(status["message"].as_str().unwrap().starts_with(&by), "{live:#}");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    agent.apply(&format!("{HOSTS}/clusters/c"), "&force=true", &cluster(2, ports));
    agent.wait_until_settled("clusters/c", 2);
    // Its process goes, and another one answers in its place.
    let pid = agent.pid("c-scheduler").to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    while is_alive(pid.parse().unwrap()) {
        std::thread::yield_now();
    }
    let mut stranger = Command::new(other.path().join("python")).args(words).spawn().unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", ports[1])).is_err() {
        std::thread::yield_now();
    }
    fs::write(other.path().join("workers/c-worker-0"), "").unwrap();
    let live = agent.get(&format!("{HOSTS}/clusters/c")).1;
    assert_eq!(live["status"]["scheduler"]["answers"], false, "{live:#}");
    assert_eq!(live["status"]["workers"]["registered"], 0, "{live:#}");
    agent.destroy();
    assert_eq!(asked(other.path(), "RETIRE"), Vec::<String>::new());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn processes_of_two_names_never_share_one() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&pretended(home.path()));
    agent.apply(&format!("{HOSTS}/clusters/c"), "", &cluster(0, crate::real::free_ports::<2>()));
    agent.wait_until_settled("clusters/c", 0);
    let spec = |of: &str| json!({ "spec": { "cluster": of, "environment": { "name": "main", "digest": "d1" }, "worker": { "replicas": 1 } } });
    assert_eq!(agent.apply(&format!("{HOSTS}/workergroups/c-more"), "", &spec("c")).0, 200);
    agent.wait_until_settled("workergroups/c-more", 1);
    let pid = agent.pid("c-more-worker-0");
    for (object, body) in [
        ("clusters/c-more", cluster(1, crate::real::free_ports::<2>())),
        ("workergroups/c", spec("c")),
        ("workergroups/c-default", spec("c")),
    ] {
        let (status, said) = agent.apply(&format!("{HOSTS}/{object}"), "", &body);
        assert_eq!(status, 422, "{object}: {said}");
        assert!(said["message"].as_str().unwrap().contains("give one of them another `name`"), "{said}");
    }
    assert_eq!((agent.pid("c-more-worker-0"), is_alive(pid)), (pid, true));
    agent.ask("DELETE", &format!("{HOSTS}/workergroups/c-more"), None);
    agent.wait_until(&format!("{HOSTS}/workergroups/c-more"), |status, _| status == 404);
    agent.destroy();
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

/// A home that several machines share: a process id says nothing elsewhere.
#[test]
fn what_another_machine_noted_is_not_called_dead() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&pretended(home.path()));
    let machine = agent.folder().join("machine");
    let ours = fs::read_to_string(&machine).unwrap();
    let mut noted: Value = serde_json::from_str(&ours).unwrap();
    noted["processes"] = json!("pid:[1]");
    fs::write(&machine, noted.to_string()).unwrap();
    // Something that was started there lives.
    let alive = fs::File::create(agent.folder().join("alive")).unwrap();
    alive.lock_shared().unwrap();
    let (status, said) = agent.get(&format!("{HOSTS}/environments"));
    assert_eq!(status, 500, "{said}");
    let other = Agent::start(state.path());
    let said = other.hello["error"].as_str().unwrap();
    assert!(said.contains("belongs to another machine or container"), "{said}");
    assert!(other.hello["remedy"].as_str().unwrap().contains("XDG_STATE_HOME"), "{}", other.hello);
    // A container that was restarted has another number, and nothing of the one before it lives.
    drop(alive);
    let mut restarted = Agent::start(state.path());
    assert_eq!(restarted.hello["error"], Value::Null, "{}", restarted.hello);
    assert_eq!(restarted.get(&format!("{HOSTS}/environments/main")).1["status"]["phase"], "Ready");
    // Of what an older version noted nobody knows whether it lives.
    noted["held"] = Value::Null;
    fs::write(&machine, noted.to_string()).unwrap();
    assert!(Agent::start(state.path()).hello["error"].is_string());
    fs::write(&machine, ours).unwrap();
    assert_eq!(agent.get(&format!("{HOSTS}/environments/main")).1["status"]["phase"], "Ready");
    // Under another name of the machine the folder is found as long as the machine runs.
    let at = agent.folder();
    fs::rename(&at, at.with_file_name("old-name")).unwrap();
    let mut renamed = Agent::start(state.path());
    assert!(renamed.folder().ends_with("old-name"), "{}", renamed.hello);
    assert_eq!(renamed.ask("DELETE", &format!("{HOSTS}/environments/main"), None).0, 200);
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_folder_that_others_can_write_is_refused() {
    if !on_path("python3", "--version") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let folder = state.path().join("dask-infra");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let agent = Agent::start(state.path());
    assert!(agent.hello["error"].as_str().unwrap().ends_with("can be written by others"), "{}", agent.hello);
    assert!(agent.hello["remedy"].as_str().unwrap().contains("chmod go-w"), "{}", agent.hello);
    fs::remove_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/tmp", &folder).unwrap();
    let agent = Agent::start(state.path());
    assert!(agent.hello["error"].as_str().unwrap().ends_with("is a symbolic link"), "{}", agent.hello);
}

/// Stands for uv: notes that it was asked, and makes what `venv` would.
fn installer(folder: &Path, work: &str) -> PathBuf {
    let programs = folder.join("programs");
    fs::create_dir(&programs).unwrap();
    let python = pretended(folder);
    let text = format!(
        "#!/bin/sh\necho \"$1\" >> {here}/installs\n{work}\n[ \"$1\" = venv ] || exit 0\nmkdir -p \"$3/bin\"\ncp {python} \
         \"$3/bin/python\"\n",
        here = folder.display(),
        python = python.display()
    );
    script(&programs.join("uv"), &text);
    programs
}

fn made(packages: &[&str]) -> Value {
    json!({ "spec": { "digest": "d1", "packages": packages } })
}

#[test]
fn a_maker_that_hangs_ends_with_its_environment() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let work = format!("echo $$ > {}/pid; sleep 3600 & wait", home.path().display());
    let programs = installer(home.path(), &work);
    let setting = Setting {
        path: Some(&programs),
        faster: &[("INSTALL, ABOUT = 1700,", "INSTALL, ABOUT = 0.5,")],
        ..Setting::default()
    };
    let noted =
        || fs::read_to_string(home.path().join("pid")).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let path = format!("{HOSTS}/environments/main");
    // It has a deadline.
    let mut agent = Agent::start_with(state.path(), &setting);
    agent.apply(&path, "", &made(&["dask"]));
    let failed = agent.wait_until(&path, |_, live| live["status"]["phase"] == "Failed");
    assert!(failed["status"]["message"].as_str().unwrap().contains("did not end within"), "{failed}");
    assert!(!is_alive(noted().unwrap()));
    fs::remove_file(home.path().join("pid")).unwrap();
    drop(agent);
    // Before it, the environment can go.
    let setting = Setting { faster: &[], ..setting };
    let mut agent = Agent::start_with(state.path(), &setting);
    agent.apply(&path, "", &made(&["dask"]));
    let pid = loop {
        match noted() {
            Some(pid) => break pid,
            None => std::thread::yield_now(),
        }
    };
    assert!(is_alive(pid));
    assert_eq!(agent.ask("DELETE", &path, None).0, 200);
    assert!(!is_alive(pid));
    agent.wait_until(&path, |status, _| status == 404);
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

#[test]
fn an_environment_of_two_stacks_is_made_once_and_again_when_it_broke() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let programs = installer(home.path(), "");
    let mut agent = Agent::start_with(state.path(), &Setting { path: Some(&programs), ..Setting::default() });
    let paths = ["one-main", "two-main"].map(|name| format!("{HOSTS}/environments/{name}"));
    let body = made(&["dask @ https://ann:hidden@example.com/dask.whl"]);
    for path in &paths {
        agent.apply(path, "", &body);
    }
    for path in &paths {
        agent.wait_until(path, |_, live| live["status"]["phase"] == "Ready");
    }
    let installs = || fs::read_to_string(home.path().join("installs")).unwrap();
    assert_eq!(installs(), "venv\npip\n");
    let logs: String =
        entries_in(&agent.folder().join("logs")).iter().map(|log| fs::read_to_string(log).unwrap()).collect();
    assert!(logs.contains("https://***@example.com/dask.whl") && !logs.contains("hidden"), "{logs}");
    // Its interpreter went with an update of the system.
    fs::remove_file(agent.folder().join("environments/d1/bin/python")).unwrap();
    assert_eq!(agent.get(&paths[0]).1["status"]["phase"], "Failed");
    agent.apply(&paths[0], "", &body);
    agent.wait_until(&paths[0], |_, live| live["status"]["phase"] == "Ready");
    assert_eq!(installs(), "venv\npip\nvenv\npip\n");
    for path in &paths {
        agent.delete(path);
    }
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

/// Removes what is left of an environment.
const REMOVES: &str = "                shutil.rmtree(path, ignore_errors=True)\n";

/// The folder of an environment may have gigabytes of small files: the host goes on to answer while they are removed, the same
/// environment can be made anew, and whoever asks next goes on with what was interrupted.
#[test]
fn an_environment_is_removed_beside_requests() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let programs = installer(home.path(), "");
    let held = home.path().join("held");
    let hold = format!(
        "                while os.path.exists('{}'):\n                    time.sleep(0.02)\n{REMOVES}",
        held.display()
    );
    let setting = Setting { path: Some(&programs), faster: &[(REMOVES, &hold)], ..Setting::default() };
    let mut agent = Agent::start_with(state.path(), &setting);
    let [one, two] = ["one-main", "two-main"].map(|name| format!("{HOSTS}/environments/{name}"));
    let ready = |agent: &mut Agent, path: &str| {
        agent.apply(path, "", &made(&["dask"]));
        agent.wait_until(path, |_, live| live["status"]["phase"] == "Ready");
    };
    ready(&mut agent, &one);
    fs::write(&held, "").unwrap();
    assert_eq!(agent.ask("DELETE", &one, None).0, 200);
    assert!(agent.get(&one).1["metadata"]["deletionTimestamp"].is_string());
    // Asked for again, by the same stack and by another one.
    for path in [&one, &two] {
        ready(&mut agent, path);
        assert_eq!(agent.get(path).1["metadata"]["deletionTimestamp"], Value::Null);
    }
    assert!(agent.folder().join("environments/d1/bin/python").exists());
    assert_eq!(agent.ask("DELETE", &one, None).0, 200);
    assert_eq!(agent.get(&one).0, 200, "a folder is still there");
    let note = fs::read_to_string(agent.folder().join("clears")).unwrap();
    let remover = serde_json::from_str::<Value>(&note).unwrap()["pid"].as_i64().unwrap();
    assert!(Command::new("kill").args(["-KILL", &remover.to_string()]).status().unwrap().success());
    fs::remove_file(&held).unwrap();
    agent.wait_until(&one, |status, _| status == 404);
    assert_eq!(agent.get(&two).1["status"]["phase"], "Ready");
    agent.delete(&two);
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

#[test]
fn a_folder_that_cannot_be_removed_keeps_its_environment() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let programs = installer(home.path(), "");
    let refuses = home.path().join("refuses");
    // Root may remove whatever a test could make.
    let again = "                    shutil.rmtree(path)\n";
    let refused = format!("os.path.exists('{}') and name.startswith('d1')", refuses.display());
    let faster = [
        (REMOVES, format!("                {refused} or shutil.rmtree(path, ignore_errors=True)\n")),
        (
            again,
            format!(
                "                    if {refused}: raise PermissionError(13, 'Permission denied', 'numpy')\n{again}"
            ),
        ),
    ];
    let faster: Vec<(&str, &str)> = faster.iter().map(|(slow, fast)| (*slow, fast.as_str())).collect();
    let command = || {
        let setting = Setting { path: Some(&programs), faster: &faster, ..Setting::default() };
        Agent::start_with(state.path(), &setting)
    };
    let [one, two] = ["one-main", "two-main"].map(|name| format!("{HOSTS}/environments/{name}"));
    let stuck = |agent: &mut Agent| {
        let live = agent.wait_until(&one, |_, live| live["status"]["phase"] == "Stuck");
        let said = live["status"]["message"].as_str().unwrap();
        assert!(said.contains("/discarded/d1."), "{said}");
        assert!(said.ends_with("cannot be removed: [Errno 13] Permission denied: 'numpy'"), "{said}");
    };
    for by_hand in [false, true] {
        let mut agent = command();
        fs::write(&refuses, "").unwrap();
        for (path, digest) in [(&one, "d1"), (&two, "d2")] {
            let mut made = made(&["dask"]);
            made["spec"]["digest"] = json!(digest);
            agent.apply(path, "", &made);
            agent.wait_until(path, |_, live| live["status"]["phase"] == "Ready");
        }
        assert_eq!(agent.ask("DELETE", &one, None).0, 200);
        stuck(&mut agent);
        // It is in nobody else's way.
        agent.delete(&two);
        // Each command tries once more.
        agent = command();
        assert_eq!(agent.get(&one).1["status"]["phase"], "Removing");
        stuck(&mut agent);
        assert_eq!(agent.ask("DELETE", &one, None).0, 200);
        stuck(&mut agent);
        if by_hand {
            fs::remove_dir_all(agent.folder().join("discarded")).unwrap();
        } else {
            fs::remove_file(&refuses).unwrap();
        }
        command().wait_until(&one, |status, _| status == 404);
        wait_until("nothing is left", || entries_in(state.path()).is_empty());
    }
}

#[test]
fn a_worker_ends_only_when_the_scheduler_retired_it() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let setting = Setting { faster: &[("RETIRE = 120", "RETIRE = 1")], ..Setting::default() };
    let mut agent = Agent::start_with(state.path(), &setting);
    let path = format!("{HOSTS}/clusters/c");
    agent.with_environment(&python);
    let ports = crate::real::free_ports::<2>();
    agent.apply(&path, "", &cluster(3, ports));
    agent.wait_until(&path, |_, live| live["status"]["workers"]["registered"] == 3);
    fs::write(home.path().join("refuses"), "").unwrap();
    agent.apply(&path, "", &cluster(2, ports));
    let live = agent.wait_until_settled("clusters/c", 3);
    let said = live["status"]["message"].as_str().unwrap();
    assert!(said.starts_with("c-worker-2: the scheduler did not retire it"), "{said}");
    // It is asked again by the next apply; an error in between is not taken for an answer.
    fs::remove_file(home.path().join("refuses")).unwrap();
    fs::write(home.path().join("busy"), "").unwrap();
    fs::remove_file(home.path().join("requests")).unwrap();
    agent.apply(&path, "", &cluster(2, ports));
    let live = agent.wait_until_settled("clusters/c", 2);
    assert_eq!(live["status"]["message"], Value::Null);
    assert!(asked(home.path(), "RETIRE")[0].ends_with("RETIRE tcp://c-worker-2"));
    // Others hold what those of a changed group have, while these are started again.
    fs::remove_file(home.path().join("requests")).unwrap();
    let mut changed = cluster(2, ports);
    changed["spec"]["worker"]["threads"] = json!(2);
    agent.apply(&path, "", &changed);
    agent.wait_until(&path, |_, live| live["status"]["converging"] == false);
    let sent: Vec<String> =
        asked(home.path(), "RETIRE").iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(sent, ["tcp://c-worker-0", "tcp://c-worker-1"], "one after the other");
    agent.destroy();
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn one_request_asks_a_scheduler_once() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&pretended(home.path()));
    agent.apply(&format!("{HOSTS}/clusters/c"), "", &cluster(0, crate::real::free_ports::<2>()));
    agent.wait_until_settled("clusters/c", 0);
    for name in ["a", "b", "d"] {
        let spec = json!({ "spec": { "cluster": "c", "environment": { "name": "main", "digest": "d1" }, "worker": { "replicas": 0 } } });
        agent.apply(&format!("{HOSTS}/workergroups/c-{name}"), "", &spec);
        agent.wait_until(&format!("{HOSTS}/workergroups/c-{name}"), |_, live| {
            live["status"]["converging"] == false
        });
    }
    fs::remove_file(home.path().join("requests")).unwrap();
    let (_, groups) = agent.get(&format!("{HOSTS}/workergroups"));
    let answers: Vec<&Value> = groups["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["status"]["scheduler"]["answers"])
        .collect();
    assert_eq!(answers, [true, true, true]);
    assert_eq!(asked(home.path(), "GET").len(), 1);
    agent.destroy();
}

/// A process that holds the files of the machine until it is told to end.
fn holder(agent: &Agent) -> Child {
    let program = "import fcntl, os, sys\nfcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)\nprint(flush=True)\nsys.stdin.read()";
    let mut command = Command::new("python3");
    command.args(["-c", program]).arg(agent.folder().join("machine"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    child
}

#[test]
fn nobody_waits_for_ever_and_nothing_is_done_for_those_who_left() {
    if !on_path("python3", "--version") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let namespace = |name: &str| {
        (format!("/api/v1/namespaces/{name}"), json!({ "metadata": { "labels": { "l": "x" } } }))
    };
    let (first, body) = namespace("first");
    let mut agent = Agent::start_with(
        state.path(),
        &Setting { faster: &[("LOCK = 10", "LOCK = 0.1")], ..Setting::default() },
    );
    assert_eq!(agent.apply(&first, "", &body).0, 200);
    let mut stopped = holder(&agent);
    let (status, said) = agent.apply(&first, "", &body);
    assert_eq!((status, &said["reason"]), (503, &json!("ServiceUnavailable")), "{said}");
    drop(agent);
    // Whoever asked is killed while the agent waits.
    let mut agent = Agent::start(state.path());
    let (late, body) = namespace("late");
    let line = json!({ "id": 1, "method": "PATCH", "path": format!("{late}?fieldManager=x"), "body": body });
    writeln!(agent.requests.as_mut().unwrap(), "{line}").unwrap();
    drop(agent.requests.take());
    drop(stopped.stdin.take());
    stopped.wait().unwrap();
    agent.child.wait().unwrap();
    let mut agent = Agent::start(state.path());
    assert_eq!(agent.get(&late).0, 404);
    assert_eq!(agent.ask("DELETE", &first, None).0, 200);
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_disk_without_room_can_be_emptied() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&pretended(home.path()));
    let path = format!("{HOSTS}/clusters/c");
    let ports = crate::real::free_ports::<2>();
    agent.apply(&path, "", &cluster(2, ports));
    agent.wait_until_settled("clusters/c", 2);
    let pids = ["c-scheduler", "c-worker-0", "c-worker-1"].map(|name| agent.pid(name));
    drop(agent);
    // No file can be longer than nothing.
    let mut agent = Agent::start_with(state.path(), &Setting { shell: "ulimit -f 0", ..Setting::default() });
    let (status, said) = agent.apply(&path, "", &cluster(3, ports));
    assert_eq!(status, 500, "{said}");
    let objects = entries_in(&agent.folder().join("objects/clusters/_"));
    assert_eq!(objects, [agent.folder().join("objects/clusters/_/c.json")], "a half of a file is left");
    agent.destroy();
    assert!(!pids.into_iter().any(is_alive));
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_change_that_cannot_be_completed_says_why() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&pretended(home.path()));
    let path = format!("{HOSTS}/clusters/c");
    let ports = crate::real::free_ports::<2>();
    // A file where a folder should be.
    fs::write(agent.folder().join("scratch"), "").unwrap();
    agent.apply(&path, "", &cluster(1, ports));
    let live = agent.wait_until(&path, |_, live| live["status"]["converging"] == false);
    assert!(live["status"]["message"].as_str().unwrap().contains("/scratch/c-scheduler"), "{live:#}");
    fs::remove_file(agent.folder().join("scratch")).unwrap();
    agent.apply(&path, "", &cluster(1, ports));
    let live = agent.wait_until_settled("clusters/c", 1);
    assert_eq!(live["status"]["message"], Value::Null);
    agent.destroy();
}

/// A failed request that has not ended yet does not make the next equal request fail.
#[test]
fn what_is_asked_for_again_meanwhile_is_done() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (held, seen) = (home.path().join("held"), home.path().join("seen"));
    let hold = |indent: &str| {
        let body = format!("{indent}    open('{}', 'w').close(); time.sleep(0.02)\n", seen.display());
        format!("{indent}while os.path.exists('{}'):\n{body}", held.display())
    };
    let failed = "                again = refused and why.status == 503 and time.monotonic() < until\n";
    let made = "            self.collect()\n\n    def python_of";
    let setting = Setting {
        faster: &[
            (failed, &format!("{failed}{}", hold("                "))),
            (made, &format!("            self.collect()\n{}\n    def python_of", hold("        "))),
        ],
        ..Setting::default()
    };
    let holds = || {
        let _ = fs::remove_file(&seen);
        fs::write(&held, "").unwrap();
    };
    let mut agent = Agent::start_with(state.path(), &setting);
    holds();
    let path = format!("{HOSTS}/environments/main");
    let python = home.path().join("nothing");
    agent.apply(&path, "", &environment(&python));
    agent.wait_until(&path, |_, live| live["status"]["phase"] == "Failed" && seen.exists());
    fs::rename(pretended(home.path()), &python).unwrap();
    fs::remove_file(&held).unwrap();
    holds();
    agent.apply(&path, "", &environment(&python));
    agent.wait_until(&path, |_, live| live["status"]["phase"] == "Ready");
    fs::remove_file(&held).unwrap();
    // A file where a folder should be.
    let (path, body) = (format!("{HOSTS}/clusters/c"), cluster(1, crate::real::free_ports::<2>()));
    let scratch = agent.folder().join("scratch");
    fs::write(&scratch, "").unwrap();
    holds();
    agent.apply(&path, "", &body);
    agent.wait_until(&path, |_, _| seen.exists());
    fs::remove_file(scratch).unwrap();
    agent.apply(&path, "", &body);
    fs::remove_file(&held).unwrap();
    let live = agent.wait_until_settled("clusters/c", 1);
    assert_eq!(live["status"]["message"], Value::Null);
    agent.destroy();
}

#[test]
fn long_logs_are_cut_and_programs_go_with_their_namespace() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let faster = [("LOG, LONG_LOG = 4 * 1024 * 1024, 64 * 1024 * 1024", "LOG, LONG_LOG = 100, 200")];
    let mut agent = Agent::start_with(state.path(), &Setting { faster: &faster, ..Setting::default() });
    agent.with_environment(&pretended(home.path()));
    agent.apply(&format!("{HOSTS}/clusters/c"), "", &cluster(0, crate::real::free_ports::<2>()));
    agent.wait_until_settled("clusters/c", 0);
    let namespace = "/api/v1/namespaces/n";
    agent.apply(namespace, "", &json!({ "metadata": { "labels": { "l": "x" } } }));
    let pod = json!({
        "metadata": { "annotations": { "hosts.dask-infra.dev/cluster": "c" } },
        "spec": { "containers": [{ "name": "p", "command": ["python", "-c", "x".repeat(300)] }] },
    });
    let path = format!("{namespace}/pods/p");
    assert_eq!(agent.apply(&path, "", &pod).0, 200);
    agent.wait_until(&format!("{path}/log"), |_, log| log.as_str().is_some_and(|log| !log.is_empty()));
    let length = fs::metadata(agent.folder().join("logs/p.log")).unwrap().len();
    assert!(length <= 100, "{length}");
    let file = agent.folder().join("objects/pods/n/p.json");
    let note: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let pid = note["internal"]["process"]["pid"].as_u64().unwrap().try_into().unwrap();
    assert!(is_alive(pid));
    assert_eq!(agent.ask("DELETE", namespace, None).0, 200);
    assert!(!is_alive(pid));
    agent.destroy();
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}
