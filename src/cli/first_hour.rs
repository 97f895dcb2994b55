//! `doctor --live`: the kit of examples/first-hour, which tries on a real project what is expected of GKE. It comes with the
//! program, so that nobody needs the repository for it.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use super::Exit;
use super::settings::{Access, ENDPOINT_VARIABLE, Format, Settings};
use crate::diag::{Code, Diagnostic};

macro_rules! files {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../examples/first-hour/", $name)))),*]
    };
}

const FILES: &[(&str, &str)] =
    files!("README.md", "first-hour", "experiments.py", "google.py", "hour.py", "report.py", "stack.toml");

/// Where they are put, beside the sandbox's folder: to be read before they run, and for `--clean` after.
const FOLDER: &str = ".dask-infra/first-hour";

/// Becomes the kit, with these words for it; comes back only when that cannot be.
pub fn become_it(settings: &Settings, words: &[String]) -> Exit {
    settings.report(Format::Text, |_| {
        lay_out(Path::new(FOLDER)).map_err(|why| {
            let help = "run it in a folder in which files can be written";
            Diagnostic::error(Code::CannotWrite, format!("cannot write {FOLDER}: {why}")).help(help)
        })?;
        let why = command(settings, words).exec();
        let problem = Diagnostic::error(Code::Usage, format!("python3 cannot be run: {why}"));
        Err(problem.help("`doctor --live` needs Python 3.8 or newer on the PATH").into())
    })
}

fn lay_out(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    FILES.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
}

fn command(settings: &Settings, words: &[String]) -> Command {
    let mut command = Command::new("python3");
    command.arg(Path::new(FOLDER).join("first-hour")).args(words);
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
