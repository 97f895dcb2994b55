//! Processes that end with the test, however it ends.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A scratch folder and the processes started in it. Dropping it kills them and removes the folder;
/// `tests/real/guard` does, so it also happens when the test runner itself is killed.
pub struct ProcessGroup {
    folder: PathBuf,
    guard: Child,
    /// The guard acts when this closes. Nobody else has it: the standard library's pipes close on exec.
    leash: Option<ChildStdin>,
    group: i32,
    children: Vec<(String, Child)>,
}

impl ProcessGroup {
    /// An empty folder under guard.
    pub fn new() -> ProcessGroup {
        let folder = tempfile::Builder::new().prefix("dask-infra-real-").tempdir().unwrap().keep();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/guard");
        let mut guard = Command::new(script)
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C is for the runner; the guard must outlive it.
            .process_group(0)
            .spawn()
            .expect("cannot start tests/real/guard: bash is needed");
        let leash = guard.stdin.take();
        let mut line = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let group = line.trim().parse().expect("tests/real/guard says a process group first");
        ProcessGroup { folder, guard, leash, group, children: Vec::new() }
    }

    /// Where the processes keep their files, and their logs as `NAME.log`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Processes of this group are ours.
    pub fn group(&self) -> i32 {
        self.group
    }

    /// Writes a file into the folder.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Starts a process in the folder; a second one of the same name adds to the first one's log.
    pub fn start(&mut self, name: impl Into<String>, command: &mut Command) {
        let name = name.into();
        let log = File::options().append(true).create(true).open(self.log(&name)).unwrap();
        let child = command
            .current_dir(&self.folder)
            .process_group(self.group)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        self.children.push((name, child));
    }

    /// Kills one process and waits for its end.
    pub fn end(&mut self, name: &str) {
        for (_, mut child) in self.children.extract_if(.., |(known, _)| known == name) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal (`STOP`, `CONT`) to one process.
    pub fn signal(&self, name: &str, signal: &str) {
        let (_, child) = self.children.iter().find(|(known, _)| known == name).unwrap();
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{name} cannot be sent {signal}");
    }

    /// The first process that ended by itself, with the end of its log.
    pub fn ended(&mut self) -> Option<String> {
        let (name, status) = self
            .children
            .iter_mut()
            .find_map(|(name, child)| child.try_wait().ok().flatten().map(|status| (name.clone(), status)))?;
        Some(format!("{name} ended by itself, {status}:\n{}", self.tail(&name)))
    }

    /// The first process that ended by itself and badly, with the end of its log.
    pub fn failed(&mut self) -> Option<String> {
        let ended =
            self.children.iter_mut().filter_map(|(name, child)| Some((name, child.try_wait().ok()??)));
        let failed =
            ended.filter(|(_, status)| !status.success()).map(|(name, status)| (name.clone(), status));
        let (name, status) = { failed }.next()?;
        Some(format!("{name} ended by itself, {status}:\n{}", self.tail(&name)))
    }

    /// Names of the processes that were started and not taken since.
    pub fn names(&self) -> Vec<String> {
        self.children.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Takes the processes that have ended, each with its exit code; shells say 128 and the number of the signal, too.
    pub fn take_ended(&mut self) -> Vec<(String, i32)> {
        let ended = |child: &mut Child| child.try_wait().ok().flatten();
        let code = |status: ExitStatus| status.code().or(status.signal().map(|signal| 128 + signal)).unwrap();
        let taken = self.children.extract_if(.., |(_, child)| ended(child).is_some());
        taken.map(|(name, mut child)| (name, code(child.wait().unwrap()))).collect()
    }

    /// The last lines of a process's log.
    pub fn tail(&self, name: &str) -> String {
        let log = self.said(name);
        let lines: Vec<String> = log.lines().map(|line| line.chars().take(300).collect()).collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// All that a process has said.
    pub fn said(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.log(name)).unwrap_or_default()).into_owned()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if thread::panicking() {
            for (name, _) in &self.children {
                eprintln!("--- {name}, the end of its log:\n{}", self.tail(name));
            }
        }
        drop(self.leash.take());
        let _ = self.guard.wait();
        for (_, child) in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Ports of the loopback interface that nobody listens on, and each only once. They lie below those that Linux gives to connections and
/// to who asks for any (32,768 to 60,999 unless it is told otherwise), which come and go at any moment.
pub fn free_ports<const N: usize>() -> [u16; N] {
    const FIRST: u32 = 12_000;
    const NUMBER: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Two processes begin at different ones.
    let begin = std::process::id().wrapping_mul(97);
    let mut all = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed))
        .map(|next| u16::try_from(FIRST + begin.wrapping_add(next) % NUMBER).unwrap())
        .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    std::array::from_fn(|_| all.next().unwrap())
}

/// Processes of a group that are alive, as `ps` shows them.
pub fn alive(group: i32) -> Vec<String> {
    let listed = Command::new("ps").args(["-e", "-o", "pgid=,stat=,args="]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout);
    let of_group = |line: &&str| {
        let mut words = line.split_whitespace();
        let is_ours = words.next().is_some_and(|pgid| pgid == group.to_string());
        is_ours && !words.next().is_some_and(|stat| stat.starts_with('Z'))
    };
    listed.lines().filter(of_group).map(str::to_owned).collect()
}
