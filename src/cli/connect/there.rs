//! Connections that stand: a note beside the stack for each, so that a second `connect` finds the first, and the process
//! that goes on in the background.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::apply::lock::Liveness;
use crate::cli::{Exit, holder};
use crate::diag::{Code, Diagnostic};
use crate::live::forward::Local;
use crate::report::connect::Connected;

/// Where notes and logs are, from the stack's folder on.
const FOLDER: &str = ".dask-infra/connect";

/// The option of the process in the background.
pub const DETACHED: &str = "--detached";

/// A connection that stands.
#[derive(Serialize, Deserialize)]
struct Note {
    connected: Connected,
    /// Local ports that it holds.
    ports: Vec<u16>,
    /// Tells the process from a later one of the same number, where the system says so.
    process: Option<String>,
}

/// The note of one address. It is taken away with this value.
pub struct Noted(Option<PathBuf>);

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // A note that stays behind names a process that is gone.
            let _ = fs::remove_file(path);
        }
    }
}

fn place(stack: &Path, address: &str, ending: &str) -> PathBuf {
    let folder = if stack.is_dir() { stack } else { stack.parent().unwrap_or(Path::new("")) };
    folder.join(FOLDER).join(format!("{}.{ending}", address.replace('/', "_")))
}

/// The connection to this address of this target that stands already, with its local ports.
pub async fn standing(stack: &Path, address: &str, target: &str) -> Option<(Connected, Vec<u16>)> {
    let text = fs::read(place(stack, address, "json")).ok()?;
    let Note { connected, ports, process } = serde_json::from_slice(&text).ok()?;
    let lives = process.as_deref().map_or(Liveness::Unknown, holder::liveness);
    let stands = match lives {
        Liveness::Yes => true,
        Liveness::No => false,
        // Where processes cannot be told apart, ports that are held speak for it.
        Liveness::Unknown => match ports.first() {
            Some(port) => Local::take(*port).await.is_err(),
            None => false,
        },
    };
    (stands && connected.target == target).then_some((Connected { already: true, ..connected }, ports))
}

/// Notes a connection; where that cannot be written it is not found by others, and works.
pub fn note(stack: &Path, connected: &Connected, ports: &[u16]) -> Noted {
    let path = place(stack, &connected.address, "json");
    let note = Note { connected: connected.clone(), ports: ports.to_vec(), process: holder::this().process };
    let written = serde_json::to_vec_pretty(&note).ok().and_then(|text| {
        fs::create_dir_all(path.parent()?).ok()?;
        fs::write(&path, text).ok()
    });
    Noted(written.map(|()| path))
}

/// Starts this very command again in the background and waits until its connection stands.
///
/// # Errors
/// It cannot be started. What it says itself when it fails is in the second value, with its exit code.
pub fn go_on(stack: &Path, address: &str) -> Result<Result<Connected, (Exit, String)>, Diagnostic> {
    let log = place(stack, address, "log");
    let fails = |what: String| {
        Diagnostic::error(Code::CannotWrite, what).help("`connect` without `--background` needs no file")
    };
    let folder = log.parent().unwrap_or(Path::new("."));
    let told = fs::create_dir_all(folder).and_then(|()| File::create(&log));
    let told = told.map_err(|error| fails(format!("cannot write {}: {error}", log.display())))?;
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
    // What says something else than a connection is none.
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

    fn connected() -> Connected {
        Connected { address: "dask_cluster.a/b".into(), target: "t".into(), pid: 1, ..Connected::default() }
    }

    #[tokio::test]
    async fn a_note_is_found_while_its_process_lives_and_goes_with_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let stack = folder.path().join("stack.toml");
        let held = Local::take(0).await.unwrap();
        let ports = [held.port().unwrap()];
        let noted = note(&stack, &connected(), &ports);
        let (found, known) = standing(&stack, "dask_cluster.a/b", "t").await.unwrap();
        assert!(found.already && known == ports);
        assert!(standing(&stack, "dask_cluster.a/b", "another").await.is_none());
        assert!(standing(folder.path(), "dask_cluster.c", "t").await.is_none());
        drop(noted);
        assert!(standing(&stack, "dask_cluster.a/b", "t").await.is_none());
    }

    #[tokio::test]
    async fn a_note_of_a_process_that_ended_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let noted = note(folder.path(), &connected(), &[]);
        let path = place(folder.path(), "dask_cluster.a/b", "json");
        let text = fs::read_to_string(&path).unwrap();
        let this = holder::this().process;
        let Some(this) = this else { return };
        let (rest, _) = this.rsplit_once(' ').unwrap();
        fs::write(&path, text.replace(&this, &format!("{rest} 0"))).unwrap();
        assert!(standing(folder.path(), "dask_cluster.a/b", "t").await.is_none());
        drop(noted);
    }
}
