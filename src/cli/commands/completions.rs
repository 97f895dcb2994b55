//! `completions`: prints a shell completion script for `dask-infra`.

use std::ffi::OsString;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use crate::cli::settings::Settings;
use crate::cli::{Cli, Exit};

/// The environment variable with which the script runs the program, which then prints the completions.
const VARIABLE: &str = "COMPLETE";
const PROGRAM: &str = "dask-infra";

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    bash:  source <(dask-infra completions bash)\n  \
    zsh:   dask-infra completions zsh > \"${fpath[1]}/_dask-infra\"\n  \
    fish:  dask-infra completions fish > ~/.config/fish/completions/dask-infra.fish";

/// Options of `completions`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for a shell.
pub fn completions(settings: &Settings, args: &Args) -> Exit {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell.to_string());
    // Both lists are clap_complete's own, and writing into memory does not fail.
    let _ = shell.map(|shell| shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script));
    settings.print(&String::from_utf8_lossy(&script))
}

/// Answers a shell's request for completions; returns `false` if there is no such request.
pub fn answer(arguments: &[OsString]) -> bool {
    let folder = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(Cli::command).var(VARIABLE);
    // A shell has no use for a message in the middle of a line.
    asked.try_complete(arguments, folder.as_deref()).unwrap_or(true)
}
