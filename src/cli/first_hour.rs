//! `doctor --live`: runs the kit of examples/first-hour, which checks on a real project that GKE behaves as expected. The kit is
//! embedded in the program, so nobody needs the repository for it.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::cli::Exit;
use crate::cli::settings::{Access, ENDPOINT_VARIABLE, Format, Settings};
use model::diag::{Code, Diagnostic};

macro_rules! files {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../examples/first-hour/", $name)))),*]
    };
}

const FILES: &[(&str, &str)] =
    files!("README.md", "first-hour", "experiments.py", "google.py", "hour.py", "report.py", "stack.toml");

/// The catalog that the kit compares with the project, in a format that Python reads.
const CATALOG: (&str, &str) = ("gcp-accelerators.toml", include_str!("../../schemas/gcp-accelerators.toml"));

/// The environment variable that gives the kit its folder; the kit deletes the folder at its end.
const FOLDER_VARIABLE: &str = "DASK_INFRA_FIRST_HOUR_FOLDER";

/// Executes the kit with these arguments; returns only if that fails.
pub fn exec(settings: &Settings, words: &[String]) -> Exit {
    settings.report(Format::Text, |_| {
        let folder = write_files().map_err(|why| {
            let what = format!("cannot write to a temporary folder: {why}");
            Diagnostic::error(Code::CannotWrite, what).help("TMPDIR names the folder for temporary files")
        })?;
        let why = command(settings, words, &folder).exec();
        let _ = fs::remove_dir_all(&folder);
        let problem = Diagnostic::error(Code::Usage, format!("python3 cannot be run: {why}"));
        Err(problem.help("`doctor --live` needs Python 3.8 or newer on the PATH").into())
    })
}

/// Creates a new folder that only this user can write to. Python imports modules from the folder of a program, and a folder of a
/// repository could contain unwanted ones.
fn write_files() -> io::Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("dask-infra-first-hour-").tempdir()?;
    FILES.iter().chain([&CATALOG]).try_for_each(|(name, text)| fs::write(folder.path().join(name), text))?;
    Ok(folder.keep())
}

fn command(settings: &Settings, words: &[String], folder: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(folder.join("first-hour")).args(words).env(FOLDER_VARIABLE, folder);
    if let Ok(program) = std::env::current_exe() {
        command.env("DASK_INFRA", program);
    }
    match &settings.access {
        Access::Google => {}
        Access::Endpoint(url) => drop(command.env(ENDPOINT_VARIABLE, url)),
        // It serves one of its own.
        Access::Sandbox(_) => drop(command.arg("--sandbox")),
    }
    command
}
