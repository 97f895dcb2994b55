//! A served sandbox for tests, and the program and its clients pointed at it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use axum::body::Body;
use sandbox::serve::Server;
use sandbox::{Options, Sandbox, Scale};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::block_in_place;
use tower::ServiceExt as _;

pub const FAST: Scale = Scale { time_scale: 1200.0 };

/// The head of a stack: a GKE cluster with a pool of CPUs.
pub const ON_GKE: &str = r#"[stack]
name = "s"

[gke]
project = "demo"
location = "us-central1-c"

[cluster]
name = "c"

[node_pool.cpu]
machine_type = "e2-standard-8"
"#;

/// A sandbox that is served on its own thread, on free loopback ports, until this value goes.
pub struct SandboxServer {
    /// `http://127.0.0.1:PORT`.
    pub gke: String,
    /// The sandbox itself, to look into it.
    pub sandbox: Sandbox,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Token files of served sandboxes, by address.
static TOKENS: Mutex<BTreeMap<String, tempfile::TempPath>> = Mutex::new(BTreeMap::new());

impl SandboxServer {
    /// Serves one that loses no time.
    pub fn fast() -> Self {
        Self::with(Options { scale: FAST, ..Options::default() })
    }

    /// Serves one with these options.
    pub fn with(options: Options) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, bound) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let server = Server::bind(options, 0).await.expect("bind");
                ready.send((server.address(), server.sandbox().clone())).expect("the test listens");
                server.run(async { stopped.await.unwrap_or(()) }).await.expect("serve");
            });
        });
        let (address, sandbox) = bound.recv().expect("ready");
        let gke = format!("http://{address}");
        if let Some(token) = sandbox.token() {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), token).expect("written");
            TOKENS.lock().expect("no test failed with it").insert(gke.clone(), file.into_temp_path());
        }
        Self { gke, sandbox, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the answer to a GET of the newest cluster's Kubernetes API.
    pub fn get(&self, path: &str) -> Value {
        self.send("GET", path, &Value::Null).1
    }

    /// The status of a GET.
    pub fn code(&self, path: &str) -> u16 {
        self.send("GET", path, &Value::Null).0
    }

    /// The status of a DELETE.
    pub fn delete(&self, path: &str) -> u16 {
        self.send("DELETE", path, &Value::Null).0
    }

    /// Creates an object; its status and answer.
    pub fn post(&self, path: &str, object: &Value) -> (u16, Value) {
        self.send("POST", path, object)
    }

    /// A merge patch, as people and notebooks write; its status and answer.
    pub fn merge(&self, path: &str, patch: &Value) -> (u16, Value) {
        self.send("PATCH", path, patch)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let cluster = self.sandbox.clusters().pop().expect("a cluster");
        let router = self.sandbox.kubernetes_router(&cluster);
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(body).expect("a request");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let response = router.oneshot(request).await.expect("an answer");
            let status = response.status().as_u16();
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            (status, serde_json::from_slice(&bytes).unwrap_or_default())
        })
    }
}

impl Drop for SandboxServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Returns true if a program can be run; prints once that it cannot.
pub fn on_path(program: &str, argument: &str) -> bool {
    let there = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: {program} is not on the PATH");
    }
    there
}

/// A folder with a stack, and the program run in it.
pub struct User {
    folder: tempfile::TempDir,
    gke: Option<String>,
    environment: Vec<(&'static str, PathBuf)>,
}

/// The exit code and the output of a command.
pub struct CommandOutput {
    /// The exit code.
    pub code: i32,
    /// Data.
    pub out: String,
    /// Talk.
    pub err: String,
}

impl CommandOutput {
    /// Of what a command wrote.
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Fails the test with everything that was said when the code is another one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        let Self { code: got, out, err } = &self;
        assert_eq!(*got, code, "stdout:\n{out}\nstderr:\n{err}");
        self
    }

    /// Fails the test when stdout does not have this text.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        let all = format!("{}\n{}", self.out, self.err);
        assert!(all.contains(text), "no {text:?} in:\n{all}");
        self
    }
}

impl User {
    /// Starts in an empty folder, with no target but what a stack names.
    pub fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), gke: None, environment: Vec::new() }
    }

    /// Starts in an empty folder, pointed at a served sandbox.
    pub fn empty_at(gke: &str) -> Self {
        Self { gke: Some(gke.to_owned()), ..Self::empty() }
    }

    /// Starts with this stack, pointed at a served sandbox.
    pub fn at(served: &SandboxServer, stack: impl AsRef<[u8]>) -> Self {
        let user = Self::empty_at(&served.gke);
        user.write(stack);
        user
    }

    /// Starts with a copy of the ready stack.
    pub fn with_ready_stack(gke: Option<&str>) -> Self {
        Self::with_stack("rapids-gke", gke)
    }

    /// Starts with a copy of a ready stack.
    pub fn with_stack(stack: &str, gke: Option<&str>) -> Self {
        let user = Self { gke: gke.map(str::to_owned), ..Self::empty() };
        let ready = Path::new(env!("CARGO_MANIFEST_DIR")).join("stacks").join(stack).join("stack.toml");
        std::fs::copy(ready, user.path().join("stack.toml")).unwrap();
        user
    }

    /// Renders charts with this program, and takes them from anywhere.
    pub fn rendering(mut self, helm: PathBuf) -> Self {
        self.environment = vec![("DASK_INFRA_HELM", helm), ("DASK_INFRA_TRUST_STACK", "1".into())];
        self
    }

    /// Sets an environment variable.
    pub fn set(mut self, name: &'static str, value: PathBuf) -> Self {
        self.environment.push((name, value));
        self
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The text of the stack.
    pub fn stack(&self) -> String {
        std::fs::read_to_string(self.path().join("stack.toml")).unwrap()
    }

    /// Writes the stack, over what is there.
    pub fn write(&self, stack: impl AsRef<[u8]>) {
        std::fs::write(self.path().join("stack.toml"), stack).unwrap();
    }

    /// Edits the stack; the text must be there.
    #[track_caller]
    pub fn edit(&self, from: &str, to: &str) {
        let text = self.stack();
        assert!(text.contains(from), "no {from:?} in the stack");
        self.write(text.replacen(from, to, 1));
    }

    /// The program with these words, not started yet.
    pub fn command(&self, words: &[&str]) -> Command {
        // Another build can be held against the cases of today.
        let program = std::env::var_os("DASK_INFRA_PROGRAM").map(PathBuf::from);
        let program = program.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_dask-infra")));
        let mut command = Command::new(program);
        command.args(words).current_dir(self.path()).stdin(Stdio::null());
        for name in [
            "DASK_INFRA_SANDBOX",
            "DASK_INFRA_GKE_ENDPOINT",
            "DASK_INFRA_BILLING_ENDPOINT",
            "DASK_INFRA_HELM",
            "DASK_INFRA_SANDBOX_TOKEN_FILE",
            "DASK_INFRA_TRUST_STACK",
            "GOOGLE_CLOUD_PROJECT",
        ] {
            command.env_remove(name);
        }
        if let Some(python) = python() {
            command.env("DASK_INFRA_PYTHON", python);
        }
        if words.contains(&"connect") {
            // Notes of connections are not for the user who runs the tests.
            command.env("XDG_RUNTIME_DIR", self.path());
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(gke) = &self.gke {
            command.env("DASK_INFRA_GKE_ENDPOINT", gke).env("GOOGLE_CLOUD_PROJECT", "demo");
            if let Some(token) = TOKENS.lock().unwrap().get(gke) {
                command.env("DASK_INFRA_SANDBOX_TOKEN_FILE", token);
            }
        }
        command
    }

    /// Runs the program with these words.
    pub fn run(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(&self.command(words).output().unwrap())
    }
}

/// The interpreter that `python3` ends in: launchers of versions take longer than all else that a command does.
fn python() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let asked =
            Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
        let found = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
        found.is_absolute().then_some(found)
    });
    found.as_deref()
}

/// An apply that goes on, and what it says. Killed when the test fails.
pub struct RunningCommand {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
    out: File,
}

impl RunningCommand {
    /// Starts the program with these words.
    pub fn start(user: &User, words: &[&str]) -> RunningCommand {
        Self::of(user.command(words))
    }

    pub fn of(mut command: Command) -> RunningCommand {
        let out = tempfile::tempfile().unwrap();
        let mut child = command.stdout(out.try_clone().unwrap()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        RunningCommand { child, said, out }
    }

    /// Reads until a line has this text; the program goes on.
    #[track_caller]
    pub fn wait_until(&mut self, text: &str) -> String {
        block_in_place(|| {
            let mut before = Vec::new();
            for line in self.said.by_ref().map_while(Result::ok) {
                if line.contains(text) {
                    return line;
                }
                before.push(line);
            }
            panic!("{text:?} was never said:\n{}", before.join("\n"));
        })
    }

    /// Sends a signal by its name without `SIG`: `INT` is Ctrl-C.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// The exit code.
    pub fn end(self) -> Option<i32> {
        self.end_saying().0
    }

    /// The exit code, and all that was written to the standard output.
    pub fn end_saying(mut self) -> (Option<i32>, String) {
        block_in_place(|| {
            self.said.by_ref().for_each(drop);
            let code = self.child.wait().unwrap().code();
            self.out.rewind().unwrap();
            (code, std::io::read_to_string(&self.out).unwrap())
        })
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // Ended already in a good run.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the entries of a folder, or nothing if it does not exist.
pub fn entries_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// All that lies in a folder, and below.
pub fn entries_below(folder: &Path) -> Vec<PathBuf> {
    let inner = |thing: PathBuf| {
        let below = if thing.is_symlink() { Vec::new() } else { entries_below(&thing) };
        [vec![thing], below].concat()
    };
    entries_in(folder).into_iter().flat_map(inner).collect()
}

/// Looks again and again, for a minute: what is simulated has a clock of its own. A look may be a program, and what takes long is
/// looked at less often, up to four times a second: others need the processor.
#[track_caller]
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not in time: {what}");
        sleep((begun.elapsed() / 20).clamp(Duration::from_millis(20), Duration::from_millis(250)));
    }
}
