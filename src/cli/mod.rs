//! The command line: what is asked for, and the exit code. Joins everything; decides nothing else.
//!
//! `commands` has a file for each command (`connect` is a folder, `start` is in `stop.rs`): arguments, exit codes, approval at the
//! prompt. `session` joins a stack, the APIs and the live state.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod access;
mod approval;
mod budget;
mod commands;
mod completion_values;
pub mod dry_run;
mod exit;
mod first_hour;
mod gcloud;
pub mod helm;
mod lock_holder;
pub mod plan_file;
mod preflight;
mod prices;
mod readiness;
mod rights;
mod sandbox_folder;
mod session;
mod settings;
mod signals;
mod stack_file;
mod terraform_habits;

pub use exit::Exit;

use settings::Settings;

/// The command line.
#[derive(Parser, Debug)]
#[command(
    name = "dask-infra",
    version,
    about = "Plans and applies RAPIDS and Dask on GKE, on hosts and on SLURM",
    long_about = "Plans and applies RAPIDS and Dask on GKE, on hosts and on SLURM: a TOML stack describes what should \
         exist, from the GKE cluster down to the Dask workers and a check that a GPU works. `plan` shows what \
         would change, `apply` changes it.",
    after_help = START,
    after_long_help = after_help(),
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
    /// Run against an embedded GKE and Kubernetes [DIR: .dask-infra/sandbox]
    ///
    /// They are kept in DIR. DASK_INFRA_SANDBOX=DIR in the environment does the same.
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = settings::SANDBOX_DIR,
        global = true
    )]
    sandbox: Option<PathBuf>,
    /// Set a variable declared in `[vars]` of the stack
    #[arg(
        long = "var",
        value_name = "NAME=VALUE",
        value_parser = settings::variable,
        global = true,
        hide_short_help = true
    )]
    vars: Vec<(String, String)>,
    /// The `helm` that renders charts [env: DASK_INFRA_HELM; default: the one on the PATH]
    #[arg(long, value_name = "PATH", global = true, hide_short_help = true)]
    helm: Option<PathBuf>,
    /// Count costs with the prices of a file, of Google (`live`) or of your contract (`billingAccounts/ID`)
    ///
    /// Without it, costs are counted with the built-in list prices. `live` and `billingAccounts/ID` read the Cloud Billing API, and
    /// keep the prices for a week.
    #[arg(
        long,
        value_name = "FILE|live|billingAccounts/ID",
        value_parser = prices::PriceSource::parse,
        value_hint = clap::ValueHint::FilePath,
        global = true,
        hide_short_help = true
    )]
    prices: Option<prices::PriceSource>,
    /// Let the stack read files outside its repository and run the programs in its kubeconfig [env:
    /// DASK_INFRA_TRUST_STACK=1]
    #[arg(long, global = true, hide_short_help = true)]
    trust_stack: bool,
    /// Show every object with its body and its requests
    #[arg(short, long, global = true)]
    verbose: bool,
    /// When to use colors; NO_COLOR turns them off, too
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, global = true, hide_short_help = true)]
    color: settings::Color,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Write a stack file to start from
    #[command(after_help = commands::init::EXAMPLES)]
    Init(commands::init::Args),
    /// Write a stack file from an existing cluster
    #[command(after_help = commands::import::EXAMPLES)]
    Import(commands::import::Args),
    /// Adopt existing resources into the stack
    #[command(after_help = commands::adopt::EXAMPLES)]
    Adopt(commands::adopt::Args),
    /// Check the stack; needs no network and no credentials
    #[command(after_help = "Example: dask-infra --stack stacks/rapids-gke validate\n\n\
        Reports all errors that can be told apart in one run, each with its line; `dask-infra explain CODE` explains one. Writes \
        nothing.")]
    Validate(commands::validate::Args),
    /// Show what apply would do
    #[command(after_help = commands::plan::EXAMPLES)]
    Plan(commands::plan::Args),
    /// Make live resources match the stack, or apply a saved plan
    #[command(after_help = commands::apply::EXAMPLES)]
    Apply(commands::apply::Args),
    /// Delete everything the stack owns
    #[command(after_help = commands::apply::DESTROY_EXAMPLES)]
    Destroy(commands::apply::DestroyArgs),
    /// Take away what costs money, and keep the stack file as it is
    #[command(after_help = commands::stop::STOP_EXAMPLES)]
    Stop(commands::stop::StopArgs),
    /// Bring back what is stopped
    #[command(after_help = commands::stop::START_EXAMPLES)]
    Start(commands::stop::StartArgs),
    /// Show live resources and why pods are pending
    #[command(after_help = commands::status::EXAMPLES)]
    Status(commands::status::Args),
    /// Show what the stack costs, and what it has cost since it was created
    #[command(after_help = commands::cost::EXAMPLES)]
    Cost(commands::cost::Args),
    /// Explain why something is pending, not ready or would be replaced, and how to fix it
    #[command(after_help = commands::why::EXAMPLES)]
    Why(commands::why::Args),
    /// Connect to a Dask cluster or a notebook
    #[command(after_help = commands::connect::EXAMPLES)]
    Connect(commands::connect::Args),
    /// Print the logs of a section's pods
    #[command(after_help = commands::logs::EXAMPLES)]
    Logs(commands::logs::Args),
    /// Run a job or a check again
    #[command(after_help = commands::run::EXAMPLES)]
    Run(commands::run::Args),
    /// Change the live number of workers, nodes or pods
    #[command(after_help = commands::scale::EXAMPLES)]
    Scale(commands::scale::Args),
    /// Show a saved plan, or the stack with files and variables resolved
    #[command(after_help = "Examples:\n  \
        dask-infra plan --out rapids.plan; dask-infra show rapids.plan\n  \
        dask-infra show --effective            the stack, with the place of every value\n  \
        dask-infra show --effective -v         and the objects that it produces\n\n\
        Writes nothing.")]
    Show(commands::plan::ShowArgs),
    /// Show the order of changes
    #[command(after_help = commands::graph::EXAMPLES)]
    Graph(commands::graph::Args),
    /// Explain a code of a message, or a key of the stack file
    #[command(after_help = commands::explain::EXAMPLES)]
    Explain(commands::explain::Args),
    /// Check for missing credentials, permissions, APIs and tools
    #[command(after_help = commands::doctor::EXAMPLES)]
    Doctor(commands::doctor::Args),
    /// Print the permissions that the stack needs, and the least roles that hold them
    #[command(after_help = commands::permissions::EXAMPLES)]
    Permissions(commands::permissions::Args),
    /// Print the JSON Schema of stack files, for editors
    #[command(after_help = "Example: dask-infra schema > stack.schema.json\n\
        and as the first line of stack.toml: #:schema ./stack.schema.json")]
    Schema,
    /// Serve and reset the embedded GKE and Kubernetes
    #[command(subcommand, after_help = commands::sandbox::EXAMPLES)]
    Sandbox(commands::sandbox::Command),
    /// Print a shell completion script
    #[command(after_help = commands::completions::EXAMPLES)]
    Completions(commands::completions::Args),
    /// Print the version
    #[command(hide = true)]
    Version(commands::validate::VersionArgs),
}

const START: &str = "Start here, without a cloud:\n  \
    dask-infra init --from rapids-gke-lean\n  \
    dask-infra --sandbox apply    shows the plan and asks";

fn after_help() -> String {
    format!(
        "{START}\n\nWhat it writes: `init` and `import` a stack file, `plan --out` a plan file, `apply` and `destroy` live resources, `--sandbox` its folder, `--prices live` and `--prices billingAccounts/ID` the prices that they read (`~/.cache/dask-infra`). Nothing else.\n\nExit codes:\n{}",
        exit::table()
    )
}

/// `docs/commands.md`: what `--help` says, command by command. Options of every command stand at the top only.
pub fn page() -> String {
    fn add(page: &mut String, command: &clap::Command, name: &str, depth: usize) {
        let help = command.clone().bin_name(name).term_width(100).disable_help_flag(true).render_long_help();
        let help: Vec<String> = help.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        let heading = "#".repeat(depth);
        page.push_str(&format!("\n{heading} `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim()));
        for inner in command.get_subcommands().filter(|_| depth > 1) {
            add(page, inner, &format!("{name} {}", inner.get_name()), depth + 1);
        }
    }
    let program = Cli::command().disable_help_subcommand(true);
    let mut page = "# Commands\n\n<!-- Written from src/cli/ by `UPDATE_GOLDEN=1 cargo test`; do not edit. -->\n\nThe output of `--help`. Global options may come before or after the command.\n"
        .to_owned();
    add(&mut page, &program, "dask-infra", 1);
    for command in program.get_subcommands() {
        add(&mut page, command, &format!("dask-infra {}", command.get_name()), 2);
    }
    page.replacen("\n# `dask-infra`", "\n## `dask-infra`", 1)
}

/// Runs the program with these arguments, its own name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if commands::completions::answer(&arguments) {
        return Exit::Done;
    }
    match parse(arguments.clone()) {
        Ok((cli, matches)) => dispatch(cli, &matches),
        Err(error) => {
            let error = terraform_habits::with_tip(error, &arguments, &Cli::command());
            let text = parse_message(&error);
            // There is nowhere left to say that this failed.
            if error.use_stderr() {
                let _ = anstream::stderr().write_all(text.as_bytes());
                Exit::Error
            } else {
                let _ = anstream::stdout().write_all(text.as_bytes());
                Exit::Done
            }
        }
    }
}

/// Returns the error text, with colors, for arguments that cannot be parsed; `None` if they can. Does nothing else.
pub fn parse_error(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let error = parse(arguments.clone()).err()?;
    Some(parse_message(&terraform_habits::with_tip(error, &arguments, &Cli::command())))
}

/// Returns the words of the parser, which repeat what was typed or pasted: it must not steer the terminal.
fn parse_message(error: &clap::Error) -> String {
    crate::report::human::printable(&error.render().ansi().to_string()).into_owned()
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = Cli::command().try_get_matches_from(arguments)?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

fn dispatch(Cli { global, command }: Cli, matches: &ArgMatches) -> Exit {
    let settings = Settings::new(global, matches);
    match command {
        Command::Init(args) => commands::init::init(&settings, &args),
        Command::Import(args) => commands::import::import(&settings, &args),
        Command::Adopt(args) => commands::adopt::adopt(&settings, &args),
        Command::Validate(args) => commands::validate::validate(&settings, &args),
        Command::Plan(args) => commands::plan::plan(&settings, &args),
        Command::Apply(args) => match args.when_capacity_options() {
            Some((options, agreed, force)) => {
                commands::when_capacity::apply(&settings, options, agreed, force)
            }
            None => commands::apply::apply(&settings, &args),
        },
        Command::Destroy(args) => commands::apply::destroy(&settings, &args),
        Command::Stop(args) => commands::stop::stop(&settings, &args),
        Command::Start(args) => commands::stop::start(&settings, &args),
        Command::Status(args) => commands::status::status(&settings, &args),
        Command::Cost(args) => commands::cost::cost(&settings, &args),
        Command::Why(args) => commands::why::why(&settings, &args),
        Command::Connect(args) => commands::connect::connect(&settings, &args),
        Command::Logs(args) => commands::logs::logs(&settings, &args),
        Command::Run(args) => commands::run::run(&settings, &args),
        Command::Scale(args) => commands::scale::scale(&settings, &args),
        Command::Show(args) => commands::plan::show(&settings, &args),
        Command::Graph(args) => commands::graph::graph(&settings, &args),
        Command::Explain(args) => commands::explain::explain(&settings, &args),
        Command::Doctor(args) => commands::doctor::doctor(&settings, &args),
        Command::Permissions(args) => commands::permissions::permissions(&settings, &args),
        Command::Schema => commands::validate::schema(&settings),
        Command::Sandbox(command) => commands::sandbox::run(&settings, &command),
        Command::Completions(args) => commands::completions::completions(&settings, &args),
        Command::Version(args) => commands::validate::version(&settings, &args),
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
    fn what_was_typed_is_told_without_steering_the_terminal_or_giving_secrets_away() {
        let said = |words: &[&str]| parse_error(words.iter().map(OsString::from)).unwrap();
        let said_back = said(&["dask-infra", "pl\u{1b}[2Jan\u{202e}"]);
        assert!(
            said_back.contains("pl\\u001b[2Jan\\u202e") && !said_back.contains('\u{202e}'),
            "{said_back:?}"
        );
        for words in [["--var", "hunter2"].as_slice(), &["--var=hunter2"]] {
            let said = said(&[&["dask-infra", "plan"], words].concat());
            assert!(said.contains("NAME=VALUE") && !said.contains("hunter2"), "{said:?}");
        }
        assert_eq!(parse_error(["dask-infra", "plan"].map(OsString::from)), None);
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
