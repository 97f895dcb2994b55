//! The command line: what is asked for, and the exit code. Joins everything; decides nothing else.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod apply;
mod consent;
mod effective;
mod exit;
mod plan;
mod sandbox;
mod session;
mod settings;
mod stop;
mod validate;

pub use exit::Exit;

use settings::Settings;

/// Plans and applies RAPIDS and Dask on GKE, from the cluster down to the Dask workers.
#[derive(Parser, Debug)]
#[command(
    name = "dask-infra",
    version,
    about = "Plans and applies RAPIDS and Dask on GKE, from the cluster down to the workers",
    long_about = "Plans and applies RAPIDS and Dask on GKE: a TOML stack says what should exist, from the GKE \
                  cluster down to the Dask workers and the check that a GPU computes. `plan` says what would \
                  happen, `apply` does it.",
    after_help = after_help(),
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(clap::Args, Debug)]
struct Global {
    /// The stack: a file, or a folder with `stack.toml`
    #[arg(long, value_name = "PATH", default_value = ".", global = true)]
    stack: PathBuf,
    /// Run against an embedded GKE and Kubernetes kept in DIR [without DIR: .dask-infra/sandbox; env:
    /// DASK_INFRA_SANDBOX=DIR]
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = settings::SANDBOX_DIR,
        global = true
    )]
    sandbox: Option<PathBuf>,
    /// Set a variable that `[vars]` of the stack declares
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = settings::variable, global = true)]
    vars: Vec<(String, String)>,
    /// Show every object with its body and its calls
    #[arg(short, long, global = true)]
    verbose: bool,
    /// When to use colours; NO_COLOR turns them off as well
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, global = true)]
    color: settings::Color,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Check the stack; needs no network and no credentials
    #[command(after_help = "Example: dask-infra --stack stacks/rapids-gke validate")]
    Validate(validate::Args),
    /// Show what apply would do
    #[command(after_help = plan::EXAMPLES)]
    Plan(plan::Args),
    /// Make the world as the stack says, or do exactly what a saved plan says
    #[command(after_help = apply::EXAMPLES)]
    Apply(apply::Args),
    /// Delete all that the stack owns and does not protect
    #[command(after_help = "Example: dask-infra --sandbox destroy --auto-approve")]
    Destroy(apply::DestroyArgs),
    /// Show a saved plan, or the stack as it came out of its files and variables
    #[command(after_help = "Examples:\n  \
        dask-infra plan --out rapids.plan; dask-infra show rapids.plan\n  \
        dask-infra show --effective            the stack, with the place of every value\n  \
        dask-infra show --effective -v         and the objects that it becomes")]
    Show(plan::ShowArgs),
    /// Print the JSON Schema of stack files, for editors
    #[command(after_help = "Example: dask-infra schema > stack.schema.json\n\
        and as the first line of stack.toml: #:schema ./stack.schema.json")]
    Schema,
    /// The embedded GKE and Kubernetes, opened to gcloud, kubectl and others
    #[command(subcommand, after_help = sandbox::EXAMPLES)]
    Sandbox(sandbox::Command),
    /// Print the version
    Version(validate::VersionArgs),
}

fn after_help() -> String {
    format!(
        "Start here, without a cloud:\n  dask-infra --stack stacks/rapids-gke --sandbox plan\n  \
         dask-infra --stack stacks/rapids-gke --sandbox apply\n\nExit codes:\n{}",
        exit::table()
    )
}

/// Runs the program with these arguments, its own name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    match parse(arguments) {
        Ok((cli, matches)) => dispatch(cli, &matches),
        Err(error) => {
            // There is nowhere left to say that this failed.
            let _ = error.print();
            if error.use_stderr() { Exit::Error } else { Exit::Done }
        }
    }
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = Cli::command().try_get_matches_from(arguments)?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

fn dispatch(Cli { global, command }: Cli, matches: &ArgMatches) -> Exit {
    let settings = Settings::new(global, matches);
    match command {
        Command::Validate(args) => validate::validate(&settings, &args),
        Command::Plan(args) => plan::plan(&settings, &args),
        Command::Apply(args) => apply::apply(&settings, &args),
        Command::Destroy(args) => apply::destroy(&settings, &args),
        Command::Show(args) => plan::show(&settings, &args),
        Command::Schema => validate::schema(&settings),
        Command::Sandbox(command) => sandbox::run(&settings, &command),
        Command::Version(args) => validate::version(&settings, &args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_stand_before_or_behind_the_command() {
        for line in ["dask-infra --stack a --sandbox=b plan", "dask-infra plan --stack a --sandbox=b"] {
            let (cli, _) = parse(line.split(' ').map(OsString::from)).unwrap();
            assert_eq!(cli.global.stack, PathBuf::from("a"));
            assert_eq!(cli.global.sandbox, Some(PathBuf::from("b")));
        }
        let (cli, _) = parse("dask-infra --sandbox plan".split(' ').map(OsString::from)).unwrap();
        assert_eq!(cli.global.sandbox, Some(PathBuf::from(settings::SANDBOX_DIR)));
    }
}
