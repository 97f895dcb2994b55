//! `completions`: what a shell offers behind `dask-infra`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::settings::Settings;
use super::{Cli, Exit};

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
    clap_complete::generate(args.shell, &mut Cli::command(), "dask-infra", &mut script);
    settings.print(&String::from_utf8_lossy(&script))
}
