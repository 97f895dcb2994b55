//! Live state of a host: requests to the agent that shows it as a small Kubernetes-like API. The agent is a Python program. The
//! host's Python reads it from its standard input, and it ends with the command, leaving nothing behind.
//!
//! There is no separate client for processes: because the agent's API is like that of Kubernetes, planning, comparison, lock,
//! record and apply work without changes. The agent needs nothing on the host but Python, and also works over SSH.
//!
//! # The agent's API
//!
//! A request is a line of JSON on the agent's standard input (`method`, `path`, `body`), and its answer a line on the standard
//! output: an HTTP status and a body. Paths, bodies and errors are those of the Kubernetes API; `agent/serve.py` routes them.
//!
//! | resource | group | what it is |
//! | --- | --- | --- |
//! | `environments` | `hosts.dask-infra.dev/v1` | a Python environment, in a folder of its own |
//! | `files` | | the user's own code: a folder for each content |
//! | `clusters`, `workergroups`, `jobs` | | a Dask cluster, a group of its workers, a job with a cluster of its own |
//! | `strangers` | | Dask processes of no stack: only LIST |
//! | `namespaces`, `configmaps`, `secrets`, `events` | `v1` | the record and the lock; values for processes |
//! | `pods` | `v1` | one for each process, and one for each environment's installer |
//!
//! - GET and LIST (with `labelSelector`), PATCH (a server-side apply with `fieldManager` and `force`) and DELETE (with
//!   preconditions). Watches are not supported: callers poll.
//! - `pods/NAME/log` is the log of a process. `clusters/NAME/scale` (PUT) sets the number of workers. `clusters/NAME/certificates`
//!   returns the files of TLS.
//! - `spec` is stored as a file, `status` is computed for each answer: the agent looks at processes and asks schedulers.
//!   [`shape`] has the types.
//! - Writes start and end processes before the answer; rolling restarts go on in a process that outlives the command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

mod certificates;
mod fleet;
mod parts;
mod remedies;
mod rollout;
pub mod shape;
mod ssh;

pub use self::certificates::{CERTIFICATES, keep_for_clients};
pub use self::fleet::Fleet;

use crate::answer::{Answer, MAX_RESPONSE_BYTES};
use crate::kube::ByteStream;
use crate::shape::Media;
use crate::{ApiError, ErrorClass, Request};
use model::resource::{Host, HostConnection};

/// The agent's source: several files joined into one text, because there are no files on the host's disk to import. The last file
/// serves requests and uses the others.
pub const AGENT: &str = concat!(
    include_str!("agent/load.py"),
    include_str!("agent/base.py"),
    "\nRULES = ",
    include_str!("../../../model/src/versions.json"),
    include_str!("../../../model/src/versions.py"),
    "\nNEVER = ",
    include_str!("../../../model/src/never_start.json"),
    include_str!("agent/processes.py"),
    include_str!("agent/fields.py"),
    include_str!("agent/store.py"),
    include_str!("agent/schedulers.py"),
    include_str!("agent/certificates.py"),
    include_str!("agent/comm.py"),
    include_str!("agent/slurm.py"),
    include_str!("agent/environments.py"),
    include_str!("agent/files.py"),
    include_str!("agent/containers.py"),
    include_str!("agent/gpus.py"),
    include_str!("agent/memory.py"),
    include_str!("agent/plugins.py"),
    include_str!("agent/clusters.py"),
    include_str!("agent/adapted.py"),
    include_str!("agent/jobs.py"),
    include_str!("agent/pods.py"),
    include_str!("agent/status.py"),
    include_str!("agent/strangers.py"),
    include_str!("agent/boot.py"),
    include_str!("agent/serve.py"),
);

/// The program that reads the agent.
const LOAD: &str = concat!(
    include_str!("agent/load.py"),
    "\nrefuse_old()\nSOURCE = sys.stdin.read(int(sys.stdin.readline()))\nexec(load(SOURCE))\n"
);

/// Reads a program from the standard input and runs it. So its text does not appear in process lists, and is on the host's disk
/// only for restarts after a reboot. The agent passes its text to the processes that it starts.
pub const START: &str = "import sys; SOURCE = sys.stdin.read(int(sys.stdin.readline())); exec(compile(SOURCE, 'dask-infra', 'exec'))";

/// Returns the input of [`START`] for the text of an agent.
pub fn start_input(agent: &str) -> String {
    [LOAD, agent].map(|text| format!("{}\n{text}", text.chars().count())).concat()
}

/// The variable that names the Python that runs the agent.
const PYTHON: &str = "DASK_INFRA_PYTHON";

/// The timeout of the agent's start, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout of a request. On a busy machine, the agent waits up to 10 s for its files and 3 s for schedulers, and a killed
/// program may take seconds to end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval at which a followed log is read.
const LOG_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum number of bytes that are read of an agent's standard error, which says why it ended.
const MAX_STDERR: u64 = 1024 * 1024;

/// The remedy when the agent cannot run.
const REMEDY: &str =
    "Python 3.8 or later must be on the PATH as `python3`; DASK_INFRA_PYTHON names another one";

/// The agent of a host. It is started on first use, and restarted if it has ended.
pub struct Agent {
    host: Host,
    slot: Mutex<Slot>,
    folder_hosts: FolderHosts,
    certificates: certificates::HostCertificates,
}

#[derive(Default)]
struct Slot {
    running: Option<Running>,
    /// The time and the error of its last failed start: requests that waited for that start return its error.
    failed: Option<(Instant, ApiError)>,
}

/// The name of the host that uses a folder, keyed by machine and folder: two names with the same folder are one host.
type FolderHosts = Arc<std::sync::Mutex<BTreeMap<String, String>>>;

struct Running {
    /// The process, which ends with this value.
    _child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// The number of the last request. The agent repeats it in its answer.
    last_request_id: u64,
}

impl Agent {
    fn new(host: Host, folder_hosts: FolderHosts) -> Self {
        Self {
            host,
            slot: Mutex::default(),
            folder_hosts,
            certificates: certificates::HostCertificates::default(),
        }
    }

    /// Sends one request, once.
    ///
    /// # Errors
    /// The agent cannot be started, ends, or refuses.
    pub async fn send(self: &Arc<Self>, request: &Request) -> Result<Value, ApiError> {
        let (status, body) = self.exchange(request, &request.path).await?;
        let body = match body {
            Value::String(text) => text.into_bytes(),
            mut other => {
                if let Some(remedy) = other.get_mut("remedy").filter(|_| status >= 400) {
                    *remedy = remedies::checked(remedy);
                }
                other.to_string().into_bytes()
            }
        };
        request.read(Answer { status, media: Media::Other, warnings: Vec::new(), body })
    }

    /// Sends a request in a task of its own. Otherwise other requests would wait forever if the caller stopped polling this one,
    /// as an apply does that writes its record while its lock is renewed. The task ends with the caller.
    async fn exchange(self: &Arc<Self>, request: &Request, path: &str) -> Result<(u16, Value), ApiError> {
        let (agent, asked, full_path) = (Arc::clone(self), request.clone(), path.to_owned());
        let mut task = JoinSet::new();
        task.spawn(async move { agent.exchange_locked(&asked, &full_path).await });
        match task.join_next().await {
            Some(Ok(answer)) => self.checked(request, path, answer?),
            Some(Err(error)) => Err(request.unanswered(error.to_string())),
            None => Err(request.unanswered("nothing was asked".to_owned())),
        }
    }

    /// Checks that a successful response has the expected shape.
    fn checked(&self, request: &Request, path: &str, answer: (u16, Value)) -> Result<(u16, Value), ApiError> {
        let (status, body) = &answer;
        if (200..300).contains(status)
            && let Err(why) = shape::check(path, body)
        {
            let class = if request.writes() { ErrorClass::Lost } else { ErrorClass::Unreadable };
            let message = format!("unexpected answer from the agent on {}: {why}", self.host);
            return Err(request.failed(class, message));
        }
        Ok(answer)
    }

    /// Sends one request at a time. The agent only reads files and processes, which is too fast to gain from parallel requests.
    async fn exchange_locked(&self, request: &Request, path: &str) -> Result<(u16, Value), ApiError> {
        let asked = Instant::now();
        let mut slot = self.slot.lock().await;
        let mut running = match (slot.running.take(), &slot.failed) {
            (Some(running), _) => running,
            // Another start would take as long again where a host is silent.
            (None, Some((at, error))) if *at > asked => {
                return Err(ApiError { request: request.title(), ..error.clone() });
            }
            (None, _) => match self.start(request).await {
                Ok(running) => running,
                Err(error) => {
                    slot.failed = Some((Instant::now(), error.clone()));
                    return Err(error);
                }
            },
        };
        running.last_request_id += 1;
        let id = running.last_request_id;
        let mut line = json!({
            "id": id, "method": request.method.as_str(), "path": path, "body": request.body, "slurm": self.host.slurm,
        });
        if let Some(certificates) = self.certificates.for_request(request) {
            line["certificates"] = certificates;
        }
        // An answer that was given up by a command that ended leaves the slot empty: the next request starts anew.
        // One that is given up ends with its agent: whatever it waited for, it is not done later.
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, running.ask(&format!("{line}\n"))).await;
        let Ok(answer) = answer else {
            let message =
                format!("the agent on {} did not answer within {} s", self.host, ANSWER_TIMEOUT.as_secs());
            return Err(request.unanswered(message));
        };
        match answer {
            Ok(Some(answer)) if answer["id"] == id => {
                let status = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok());
                slot.running = Some(running);
                Ok((status.unwrap_or(500), answer["body"].clone()))
            }
            Ok(_) => Err(request.unanswered(running.end_reason(&self.host).await)),
            Err(error) => Err(request.unanswered(format!("the agent on {} ended: {error}", self.host))),
        }
    }

    async fn start(&self, request: &Request) -> Result<Running, ApiError> {
        let cannot = |why: String| {
            let body = Some(json!({ "remedy": REMEDY }));
            ApiError { body, ..request.failed(ErrorClass::Other, why) }
        };
        let nonce = nonce();
        let (program, mut command) = match &self.host.connection {
            HostConnection::Local => {
                let python = std::env::var_os(PYTHON).filter(|name| !name.is_empty()).map(PathBuf::from);
                let python = python.unwrap_or_else(|| PathBuf::from("python3"));
                let mut command = Command::new(&python);
                // Isolated: modules come neither from the current folder nor from variables of the environment.
                command.args(["-I", "-u", "-c", START, &nonce]);
                (python.display().to_string(), command)
            }
            connection @ HostConnection::Ssh { .. } => {
                let remote = ssh::remote(&self.host, START, &nonce);
                let command = ssh::command(connection, &remote).map_err(cannot)?;
                (format!("ssh to {}", self.host), command)
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-Z of the terminal would stop it while it holds the lock of the machine's files.
        command.process_group(0).kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|error| cannot(format!("{program} cannot be started: {error}")))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(requests), Some(answers), Some(stderr)) = pipes else {
            return Err(cannot("the agent has no pipes".to_owned()));
        };
        let answers = BufReader::new(answers);
        let stderr = BufReader::new(stderr);
        let mut running = Running { _child: child, requests, answers, stderr, last_request_id: 0 };
        let source = start_input(AGENT);
        let hello = tokio::time::timeout(START_TIMEOUT, running.first_answer(&source, &nonce)).await;
        match hello {
            Ok(Ok(Some(hello))) => match hello["error"].as_str() {
                None => match self.duplicate_of(&hello) {
                    None => Ok(running),
                    Some(other) => {
                        let why = format!("{other} and {} are the same machine and the same user", self.host);
                        let body = Some(json!({ "remedy": "keep one of the two names", "same_host": other }));
                        Err(ApiError { body, ..request.failed(ErrorClass::Invalid, why) })
                    }
                },
                Some(why) => Err(ApiError {
                    body: Some(json!({ "remedy": remedies::checked(&hello["remedy"]) })),
                    // Between backquotes stand our own commands.
                    ..request.failed(ErrorClass::Other, why.replace('`', "'"))
                }),
            },
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                Err(cannot(format!("the agent on {} ended: {error}", self.host)))
            }
            Ok(Ok(None) | Err(_)) if self.host.connection != HostConnection::Local => {
                Err(ssh::failed(request, &self.host, &running.read_stderr().await))
            }
            Ok(Ok(None) | Err(_)) => Err(cannot(running.end_reason(&self.host).await)),
            Err(_) => Err(cannot(format!("{program} did not answer within {} s", START_TIMEOUT.as_secs()))),
        }
    }

    /// Returns the other name of the host if another name already uses the same folder on the same machine.
    fn duplicate_of(&self, hello: &Value) -> Option<String> {
        let machine_folder = format!("{} {}", hello["machine"], hello["folder"]);
        // Nothing that holds it can panic half way.
        let mut folder_hosts = self.folder_hosts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let name = folder_hosts.entry(machine_folder).or_insert_with(|| self.host.name.clone());
        (*name != self.host.name).then(|| name.clone())
    }

    /// Follows a log: returns its bytes as they arrive, until the process has ended.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), up to the first byte.
    pub async fn follow(self: Arc<Self>, request: Request) -> Result<ByteStream, ApiError> {
        let first = self.send(&request).await?;
        let first = bytes::Bytes::from(first.as_str().unwrap_or_default().to_owned());
        if !request.path.contains("follow=true") {
            return Ok(futures::stream::once(async move { Ok(first) }).boxed());
        }
        let base_path = request.path.split('?').next().unwrap_or_default().to_owned();
        // Where the log ends now.
        let (_, at) = self.exchange(&request, &format!("{base_path}?offset={}", u64::MAX >> 1)).await?;
        let offset = at["end"].as_u64().unwrap_or_default();
        let rest = futures::stream::unfold((self, request, offset), move |(agent, request, offset)| {
            let base_path = base_path.clone();
            async move {
                tokio::time::sleep(LOG_INTERVAL).await;
                let path = format!("{base_path}?offset={offset}");
                match agent.exchange(&request, &path).await {
                    Ok((200, more)) => {
                        let next = more["end"].as_u64().unwrap_or(offset);
                        let text = more["text"].as_str().unwrap_or_default().to_owned();
                        if text.is_empty() && more["alive"] == false {
                            return None;
                        }
                        Some((Ok(bytes::Bytes::from(text)), (agent, request, next)))
                    }
                    // A deleted object writes no more log.
                    Ok(_) => None,
                    Err(error) => Some((Err(error.message), (agent, request, offset))),
                }
            }
        });
        Ok(futures::stream::once(async move { Ok(first) }).chain(rest).boxed())
    }
}

impl Running {
    async fn ask(&mut self, text: &str) -> std::io::Result<Option<Value>> {
        self.requests.write_all(text.as_bytes()).await?;
        self.requests.flush().await?;
        let line = self.line().await?;
        Ok(line.and_then(|line| serde_json::from_str(&line).ok()))
    }

    /// Reads one line. Its length is limited, so that a host cannot exhaust this machine's memory.
    async fn line(&mut self) -> std::io::Result<Option<String>> {
        let mut line = Vec::new();
        let most = u64::try_from(MAX_RESPONSE_BYTES).unwrap_or(u64::MAX);
        (&mut self.answers).take(most).read_until(b'\n', &mut line).await?;
        if line.len() >= MAX_RESPONSE_BYTES && !line.ends_with(b"\n") {
            let what = format!("it answered a line larger than {} MiB", MAX_RESPONSE_BYTES / 1024 / 1024);
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        Ok((!line.is_empty()).then_some(line))
    }

    /// Reads the agent's first response, and skips anything that a shell prints before it.
    async fn first_answer(&mut self, source: &str, nonce: &str) -> std::io::Result<Option<Value>> {
        self.requests.write_all(source.as_bytes()).await?;
        self.requests.flush().await?;
        while let Some(line) = self.line().await? {
            let said = serde_json::from_str::<Value>(&line).ok();
            if let Some(hello) = said.filter(|said| said["nonce"] == nonce) {
                return Ok(Some(hello));
            }
        }
        Ok(None)
    }

    /// Returns why it ended: the last line of its standard error.
    async fn end_reason(self, host: &Host) -> String {
        let said = self.read_stderr().await;
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
        format!("the agent on {host} ended: {}", last.unwrap_or("it said nothing"))
    }

    /// Closes the agent's input, and returns what it wrote to its standard error.
    async fn read_stderr(self) -> String {
        let mut said = Vec::new();
        // Its end closes the pipe; what it started has pipes of its own.
        drop(self.requests);
        let mut stderr = self.stderr.take(MAX_STDERR);
        let read = stderr.read_to_end(&mut said);
        let _ = tokio::time::timeout(Duration::from_secs(1), read).await;
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Returns the text that identifies the first answer of a new agent.
fn nonce() -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("dask-infra-{}-{count}", std::process::id())
}
