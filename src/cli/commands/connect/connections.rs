//! Open connections: each has a note in a folder of the user, so that a second `connect` finds the first one. Also the process
//! that continues in the background.
//!
//! The notes are not in the stack's folder, which may come from somebody else. A note only says which process holds which ports.
//! It is trusted only if that process runs, belongs to the user, and listens on these ports.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::cli::{Exit, lock_holder};
use crate::report::connect::Connected;
use apply::lock::Liveness;
use live::private_files;
use model::diag::{Code, Diagnostic};

/// The option of the process in the background.
pub const DETACHED: &str = "--detached";

/// The maximum size of a note in bytes.
const LARGEST: u64 = 4096;

/// The state of a listening socket in `/proc/net/tcp`. Source: proc(5), `enum` in `include/net/tcp_states.h`.
const LISTENS: &str = "0A";

/// A note of an open connection, for other commands.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionNote {
    pub pid: u32,
    /// Distinguishes the process from a later one with the same ID.
    process: Option<String>,
    /// The local ports that the process holds, in the order of their roles.
    pub ports: Vec<u16>,
}

impl ConnectionNote {
    /// Returns true when its process runs, is this user's, and listens on all of its ports.
    fn is_alive(&self) -> bool {
        let of_pid = self.process.as_deref().and_then(|process| process.rsplit(' ').nth(1));
        let lives = self.process.as_deref().map_or(Liveness::Unknown, lock_holder::liveness);
        let is_own = fs::metadata(format!("/proc/{}", self.pid))
            .is_ok_and(|about| about.uid() == private_files::uid());
        let listens = || {
            let held = listening_ports(self.pid);
            !self.ports.is_empty() && self.ports.iter().all(|port| held.contains(port))
        };
        // The name has the process id, too: both must mean the same process.
        of_pid == Some(self.pid.to_string().as_str()) && lives == Liveness::Yes && is_own && listens()
    }

    /// Returns true when its process was started by `connect --background`.
    pub fn is_detached(&self) -> bool {
        let words = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == DETACHED.as_bytes())
    }
}

/// Returns the ports of the IPv4 loopback interface that a process listens on; none where the system has no `/proc`.
fn listening_ports(pid: u32) -> BTreeSet<u16> {
    let handles = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let sockets: BTreeSet<String> = handles
        .filter_map(|handle| {
            let target = fs::read_link(handle.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let rows = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let port = |row: &str| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let (address, port) = fields.get(1)?.rsplit_once(':')?;
        let loopback = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let own = fields.get(9).is_some_and(|inode| sockets.contains(*inode));
        let fits = address == loopback && fields.get(3) == Some(&LISTENS) && own;
        u16::from_str_radix(port, 16).ok().filter(|_| fits)
    };
    rows.lines().skip(1).filter_map(port).collect()
}

/// The notes and logs of one user.
pub struct ConnectionNotes(PathBuf);

impl ConnectionNotes {
    /// Returns the folder for notes and logs: the runtime folder of the session if there is one, otherwise the user's state
    /// folder.
    ///
    /// # Errors
    /// Why no folder can be used.
    pub fn open() -> Result<Self, String> {
        // In a shell of `su` the variable may name the folder of another user.
        let session = private_files::path_from_env("XDG_RUNTIME_DIR").filter(|folder| folder.is_dir());
        let mut why = "neither XDG_RUNTIME_DIR nor HOME is set".to_owned();
        for base in [session, private_files::state_dir()].into_iter().flatten() {
            let own = base.join("dask-infra");
            match private_files::create_dir(&own)
                .and_then(|_| private_files::create_private_dir(&own.join("connect")))
            {
                Ok(folder) => return Ok(Self(folder)),
                Err(problem) => why = problem,
            }
        }
        Err(why)
    }

    /// Creates a folder for tests.
    #[cfg(test)]
    fn in_folder(folder: &Path) -> Self {
        Self(private_files::create_private_dir(&folder.join("connect")).unwrap())
    }

    /// Returns the file of one address of one target of one stack.
    fn path(&self, of: &Connected, stack: &Path, ending: &str) -> PathBuf {
        let stack = fs::canonicalize(stack).unwrap_or_else(|_| stack.to_owned());
        // The folder stands for the file in it.
        let stack = if stack.is_dir() { stack.join("stack.toml") } else { stack };
        let mut name = blake3::Hasher::new();
        for part in [stack.as_os_str().as_encoded_bytes(), of.target.as_bytes(), of.address.as_bytes()] {
            name.update(part).update(&[0]);
        }
        self.0.join(format!("{}.{ending}", &name.finalize().to_hex().as_str()[..32]))
    }

    /// Returns the open connection to an address.
    pub fn find(&self, of: &Connected, stack: &Path) -> Option<ConnectionNote> {
        let mut text = Vec::new();
        let file = File::open(self.path(of, stack, "json")).ok()?;
        file.take(LARGEST).read_to_end(&mut text).ok()?;
        serde_json::from_slice::<ConnectionNote>(&text).ok().filter(ConnectionNote::is_alive)
    }

    /// Writes the note of a connection. A connection whose note cannot be written works, but is not found by others.
    pub fn write(&self, of: &Connected, stack: &Path, ports: &[u16]) -> NoteGuard {
        let path = self.path(of, stack, "json");
        let note = ConnectionNote {
            pid: std::process::id(),
            process: lock_holder::current().process,
            ports: ports.to_vec(),
        };
        let written = serde_json::to_vec(&note).ok().and_then(|text| {
            let mut file = create_new(&path).ok()?;
            file.write_all(&text).ok()
        });
        NoteGuard(written.map(|()| path))
    }
}

/// Creates a file, in place of one that may exist, never through a link.
fn create_new(path: &Path) -> std::io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The note of one address. It is deleted with this value.
pub struct NoteGuard(Option<PathBuf>);

impl Drop for NoteGuard {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // A note that stays behind names a process that is gone.
            let _ = fs::remove_file(path);
        }
    }
}

/// Starts the same command again in the background, and waits until it is connected.
///
/// # Errors
/// The process cannot be started. If it starts and then fails, the inner error has its message and exit code.
pub fn run_detached(of: &Connected, stack: &Path) -> Result<Result<Connected, (Exit, String)>, Diagnostic> {
    let fails = |what: String| {
        Diagnostic::error(Code::CannotWrite, what).help("`connect` without `--background` needs no file")
    };
    let notes =
        ConnectionNotes::open().map_err(|why| fails(format!("there is no folder for the log: {why}")))?;
    let log = notes.path(of, stack, "log");
    let told = create_new(&log).map_err(|error| fails(format!("cannot write {}: {error}", log.display())))?;
    let words = std::env::args_os().skip(1).map(|word| match word {
        word if word == "--background" => OsString::from(DETACHED),
        word => word,
    });
    let program = std::env::current_exe();
    let program =
        program.map_err(|error| fails(format!("the path of this program cannot be found: {error}")))?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(told);
    // Ctrl-C at the terminal is not for it.
    command.process_group(0);
    let started = command.spawn();
    let mut child =
        started.map_err(|error| fails(format!("the background process cannot be started: {error}")))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        // Nothing comes when it fails, which its end tells.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if let Ok(connected) = serde_json::from_str(&line) {
        return Ok(Ok(connected));
    }
    // Output that is not a connection means the command failed.
    if !line.is_empty() {
        let _ = child.kill();
    }
    let code = child.wait().ok().and_then(|status| status.code());
    let exit = Exit::ALL.iter().copied().find(|exit| code == Some(i32::from(exit.code())));
    let mut said = String::new();
    // Without it the exit code has to do.
    let _ = File::open(&log).and_then(|mut file| file.read_to_string(&mut said));
    Ok(Err((exit.filter(|exit| *exit != Exit::Done).unwrap_or(Exit::Error), said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use live::forward::LocalPort;

    fn of(address: &str, target: &str) -> Connected {
        Connected { address: address.into(), target: target.into(), ..Connected::default() }
    }

    #[tokio::test]
    async fn a_note_is_found_while_its_process_holds_the_ports() {
        if lock_holder::current().process.is_none() {
            println!("skipped: the system has no /proc");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let notes = ConnectionNotes::in_folder(folder.path());
        let (stack, one) = (folder.path().join("stack.toml"), of("dask_cluster.a/b", "t"));
        fs::write(&stack, "").unwrap();
        let held = LocalPort::bind(0).await.unwrap();
        let ports = [held.port().unwrap()];
        let noted = notes.write(&one, &stack, &ports);
        let found = notes.find(&one, &stack).unwrap();
        assert!((found.pid, found.ports.as_slice()) == (std::process::id(), &ports) && !found.is_detached());
        assert_eq!(notes.find(&one, folder.path()), Some(found), "the folder stands for the file");
        for other in [of("dask_cluster.a/b", "another"), of("dask_cluster.c", "t")] {
            assert_eq!(notes.find(&other, &stack), None);
        }
        assert_eq!(notes.find(&one, &folder.path().join("else/stack.toml")), None);
        // Ports that the process does not hold make it no connection.
        drop(held);
        assert_eq!(notes.find(&one, &stack), None);
        drop(noted);
        assert_eq!(fs::read_dir(&notes.0).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_note_of_another_process_counts_for_nothing() {
        let Some(this) = lock_holder::current().process else { return };
        let folder = tempfile::tempdir().unwrap();
        let (notes, one) = (ConnectionNotes::in_folder(folder.path()), of("dask_cluster.a", "t"));
        let held = LocalPort::bind(0).await.unwrap();
        let noted = notes.write(&one, folder.path(), &[held.port().unwrap()]);
        let path = notes.path(&one, folder.path(), "json");
        let text = fs::read_to_string(&path).unwrap();
        let (rest, start) = this.rsplit_once(' ').unwrap();
        let (world, pid) = rest.rsplit_once(' ').unwrap();
        for process in [format!("\"{rest} 0\""), format!("\"{world} 1 {start}\""), "null".to_owned()] {
            fs::write(&path, text.replace(&format!("\"{this}\""), &process)).unwrap();
            assert_eq!(notes.find(&one, folder.path()), None, "{process}");
        }
        fs::write(&path, text.replace(&format!("\"pid\":{pid}"), "\"pid\":1")).unwrap();
        assert_eq!(notes.find(&one, folder.path()), None, "another process id");
        fs::write(&path, &text).unwrap();
        assert!(notes.find(&one, folder.path()).is_some());
        drop(noted);
    }

    /// Each byte of a note is left out, cut off at, or another one.
    #[tokio::test]
    async fn a_changed_note_is_no_note_or_says_the_same() {
        if lock_holder::current().process.is_none() {
            println!("skipped: the system has no /proc");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (notes, one) = (ConnectionNotes::in_folder(folder.path()), of("dask_cluster.a", "t"));
        let held = LocalPort::bind(0).await.unwrap();
        let noted = notes.write(&one, folder.path(), &[held.port().unwrap()]);
        let path = notes.path(&one, folder.path(), "json");
        let text = fs::read(&path).unwrap();
        let right = notes.find(&one, folder.path()).unwrap();
        for at in 0..text.len() {
            let (before, after) = (&text[..at], &text[at + 1..]);
            let others = b"\"0{}[],:-\\\x00\xff\n".iter().map(|byte| [before, &[*byte], after].concat());
            for changed in others.chain([before.to_vec(), [before, after].concat()]) {
                fs::write(&path, &changed).unwrap();
                if let Some(note) = notes.find(&one, folder.path()) {
                    assert_eq!(note, right, "{}", String::from_utf8_lossy(&changed));
                }
            }
        }
        drop(noted);
    }

    #[test]
    fn files_are_not_written_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        create_new(&link).unwrap().write_all(b"log").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&link).unwrap(), "log");
    }
}
