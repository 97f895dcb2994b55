//! gcloud as forks of processes that have its modules loaded (`fork_server.py`): to load them takes 0.4 s of a core, most of
//! what a command takes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

/// Arguments that the launcher gives to Python before the words of gcloud.
const PYTHON_ARGUMENTS: &str = "CLOUDSDK_PYTHON_ARGS";

/// One gcloud at a time; the process ends with its input, and so with this one, however that ends.
struct ForkServer {
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Servers that wait for a command.
static IDLE: Mutex<Vec<ForkServer>> = Mutex::new(Vec::new());

/// True once a server could not be started: then nobody tries again.
static IS_IMPOSSIBLE: AtomicBool = AtomicBool::new(false);

/// Runs gcloud with these words. Returns its exit code and its whole output, or `None` if it cannot be preloaded.
pub(super) fn run(words: &[&str], environment: &[(&str, String)]) -> Option<(i32, String)> {
    let idle = IDLE.lock().expect("no test failed with it").pop();
    let mut gcloud = idle.or_else(ForkServer::start)?;
    let environment: Value = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    writeln!(gcloud.commands, "{}", json!({ "words": words, "environment": environment }))
        .expect("it listens");
    let answer = gcloud.answer().unwrap_or_else(|| panic!("the preloaded gcloud ended: {words:?}"));
    IDLE.lock().expect("no test failed with it").push(gcloud);
    let text = |stream: &str| answer[stream].as_str().expect("text").to_owned();
    let code = answer["code"].as_i64().and_then(|code| i32::try_from(code).ok()).expect("an exit code");
    Some((code, text("out") + &text("err")))
}

impl ForkServer {
    fn start() -> Option<ForkServer> {
        if IS_IMPOSSIBLE.load(Ordering::Relaxed) {
            return None;
        }
        let started = Self::try_start();
        if started.is_none() {
            IS_IMPOSSIBLE.store(true, Ordering::Relaxed);
            println!("gcloud cannot be preloaded: each command is a process of its own");
        }
        started
    }

    fn try_start() -> Option<ForkServer> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients/gcloud/fork_server.py");
        let already = std::env::var(PYTHON_ARGUMENTS).unwrap_or_default();
        let mut child = Command::new("gcloud")
            // The launcher adds `-S` at the end where it is missing, and takes it away where it is not wanted.
            .env(PYTHON_ARGUMENTS, format!("{already} -S {}", script.display()))
            // Modules read the configuration when they are loaded: not the user's.
            .env("CLOUDSDK_CONFIG", Path::new(env!("CARGO_TARGET_TMPDIR")).join("gcloud"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (commands, answers) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut started = ForkServer { commands, answers };
        let is_ready = started.answer().is_some_and(|answer| answer["ready"] == true);
        if !is_ready {
            // It may not read its input.
            let _ = child.kill();
            let _ = child.wait();
        }
        is_ready.then_some(started)
    }

    /// `None` when it ended or says something else.
    fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}
