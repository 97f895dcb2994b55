//! Settings of every command: the options, the environment, and a reporter on the right streams.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::cli::prices::{BILLING_ENDPOINT_VARIABLE, PriceSource};
use crate::cli::{Exit, Global};
use crate::report::human::Detail;
pub use crate::report::quoted;
use crate::report::{ColourChoice, Human, Json, Masks, Reporter, Screen, Stream};
use model::diag::{Code, Diagnostic};
use model::secrets::{HIDDEN, Secrets, has_secret_shape, is_secret};
use model::source::{Sources, Span};
use plan::NEEDS_LIVE_STATE_HELP;
use sandbox::SandboxError;
use sandbox::faults::mistakes::{Mistakes, Problem};
use stack::disk::Trust;

/// The default folder of the sandbox.
pub const SANDBOX_DIR: &str = ".dask-infra/sandbox";
/// The environment variable that equals `--sandbox=DIR`.
const SANDBOX_VARIABLE: &str = "DASK_INFRA_SANDBOX";
/// The environment variable with the URL of a served sandbox: `http://127.0.0.1:PORT`.
pub const ENDPOINT_VARIABLE: &str = "DASK_INFRA_GKE_ENDPOINT";
/// The environment variable that equals `--helm PATH`.
const HELM_VARIABLE: &str = "DASK_INFRA_HELM";
/// The environment variable that equals `--trust-stack` if it is `1`.
const TRUST_VARIABLE: &str = "DASK_INFRA_TRUST_STACK";
/// The project of a sandbox if the environment names none.
pub const SANDBOX_PROJECT: &str = "sandbox-project";
/// The environment variable from which stacks and Google's tools read the project.
pub const PROJECT_VARIABLE: &str = "GOOGLE_CLOUD_PROJECT";

/// When colors are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On terminals.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The service that answers: Google, or a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Google.
    Google,
    /// A sandbox that is served at this URL.
    Endpoint(String),
    /// The sandbox in this folder, in this process or served by another process.
    Sandbox(PathBuf),
}

impl Access {
    /// Returns true if a sandbox answers instead of the cloud.
    pub fn is_simulated(&self) -> bool {
        match self {
            Self::Google => false,
            Self::Endpoint(_) | Self::Sandbox(_) => true,
        }
    }
}

/// The output format of a reporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text.
    Text,
    /// JSON lines.
    Json,
}

impl Format {
    /// Returns the format that `--json` selects.
    pub fn json(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Settings of every command.
#[derive(Debug)]
pub struct Settings {
    /// The stack's file or folder.
    pub stack: PathBuf,
    /// Values of `--var`.
    pub vars: BTreeMap<String, String>,
    /// The service that answers.
    pub access: Access,
    /// The program that renders charts.
    pub helm: PathBuf,
    /// The source of prices, in place of the built-in list.
    pub prices: Option<PriceSource>,
    /// The URL that answers for the Cloud Billing API.
    pub billing_endpoint: Option<String>,
    /// Permission of the stack to read files outside its repository and to run programs.
    pub trust: Trust,
    detail: Detail,
    colour: ColourChoice,
    program: String,
    options: Vec<String>,
    masks: Masks,
}

impl Settings {
    /// Creates the settings from the options and the environment. Options take precedence.
    pub fn new(global: Global, matches: &ArgMatches) -> Self {
        let given = matches.value_source("stack") == Some(ValueSource::CommandLine);
        let named = given.then(|| global.stack.clone());
        let options = options(&global);
        let program = program(named.as_deref(), &options);
        let Global { stack, sandbox, vars, helm, prices, trust_stack, verbose, color } = global;
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let sandbox = sandbox.or_else(|| variable(SANDBOX_VARIABLE).map(PathBuf::from));
        let helm = helm.or_else(|| variable(HELM_VARIABLE).map(PathBuf::from));
        let trusted = trust_stack || variable(TRUST_VARIABLE).is_some_and(|value| value == "1");
        let trust = if trusted { Trust::Everything } else { Trust::Repository };
        let endpoint = variable(ENDPOINT_VARIABLE).map(|url| url.to_string_lossy().into_owned());
        let billing_endpoint =
            variable(BILLING_ENDPOINT_VARIABLE).map(|url| url.to_string_lossy().into_owned());
        let access = match (sandbox, endpoint) {
            (Some(dir), _) => Access::Sandbox(dir),
            (None, Some(url)) => Access::Endpoint(url),
            (None, None) => Access::Google,
        };
        let colour = match color {
            Color::Auto => ColourChoice::Auto,
            Color::Always => ColourChoice::Always,
            Color::Never => ColourChoice::Never,
        };
        let detail = if verbose { Detail::Objects } else { Detail::Sections };
        let mut secrets = Secrets::default();
        for (_, value) in vars.iter().filter(|(name, value)| is_hidden(name, value)) {
            secrets.add(value, HIDDEN);
        }
        let masks = Masks::default();
        masks.add(&secrets);
        let (vars, helm) = (vars.into_iter().collect(), helm.unwrap_or_else(|| PathBuf::from("helm")));
        Self {
            stack,
            vars,
            access,
            helm,
            prices,
            billing_endpoint,
            trust,
            detail,
            colour,
            program,
            options,
            masks,
        }
    }

    /// Returns an environment variable as stacks see it. With a sandbox, the project has a default.
    pub fn environment(&self, name: &str) -> Option<String> {
        let value = std::env::var(name).ok();
        let invented = name == PROJECT_VARIABLE && self.access.is_simulated();
        value
            .filter(|value| !invented || !value.is_empty())
            .or_else(|| invented.then(|| SANDBOX_PROJECT.to_owned()))
    }

    /// Returns the folder of the sandbox, for the `sandbox` commands.
    pub fn sandbox_dir(&self) -> &Path {
        match &self.access {
            Access::Sandbox(dir) => dir,
            Access::Google | Access::Endpoint(_) => Path::new(SANDBOX_DIR),
        }
    }

    /// Returns how the program was called, up to the command.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Returns the call of the program, as [`Self::program`] does, for the stack of another file.
    pub fn program_with(&self, stack: &Path) -> String {
        program(Some(stack), &self.options)
    }

    /// Returns how much is shown.
    pub fn detail(&self) -> Detail {
        self.detail
    }

    /// Returns true if everything is shown (`-v`).
    pub fn is_verbose(&self) -> bool {
        self.detail == Detail::Objects
    }

    /// Returns the secrets that no output of this command shows.
    pub fn masks(&self) -> &Masks {
        &self.masks
    }

    /// Returns the two output streams with the selected colors.
    pub fn screen(&self) -> Screen {
        Screen::new(Stream::stdout(self.colour), Stream::stderr(self.colour)).without(self.masks.clone())
    }

    /// Runs a command with a reporter, reports its failure, and returns the exit code.
    pub fn report(
        &self,
        format: Format,
        command: impl FnOnce(&mut dyn Reporter) -> Result<Exit, Failure>,
    ) -> Exit {
        self.report_in(format, self.detail, command)
    }

    /// Runs a command that returns a text, as [`Self::report`] does, and prints the text if the command succeeds.
    pub fn show(
        &self,
        format: Format,
        command: impl FnOnce(&mut dyn Reporter) -> Result<String, Failure>,
    ) -> Exit {
        let mut found = String::new();
        let exit = self.report(format, |reporter| {
            found = command(reporter)?;
            Ok(Exit::Done)
        });
        if exit == Exit::Done { self.print(&found) } else { exit }
    }

    /// Runs a command as [`Self::report`] does, with another level of detail.
    pub fn report_in(
        &self,
        format: Format,
        detail: Detail,
        command: impl FnOnce(&mut dyn Reporter) -> Result<Exit, Failure>,
    ) -> Exit {
        let mut reporter: Box<dyn Reporter> = match format {
            Format::Text => Box::new(Human::new(self.screen(), detail, self.program.clone())),
            Format::Json => Box::new(Json::new(self.screen(), jiff::Timestamp::now)),
        };
        let exit = command(reporter.as_mut()).unwrap_or_else(|Failure { diagnostics, sources }| {
            reporter.diagnostics(&diagnostics, &sources);
            Exit::of_diagnostics(&diagnostics)
        });
        exit_of_write(reporter.finish(), exit)
    }

    /// Runs a command that edits a file, as [`Self::report`] does. In text format, it prints the edit last.
    pub fn report_edit(
        &self,
        format: Format,
        command: impl FnOnce(&mut dyn Reporter, &mut Option<String>) -> Result<Exit, Failure>,
    ) -> Exit {
        let mut edited = None;
        let exit = self.report(format, |reporter| command(reporter, &mut edited));
        let Some(what) = edited.filter(|_| format == Format::Text) else { return exit };
        let said = self.print(&format!("{what}\n"));
        if exit == Exit::Done { said } else { exit }
    }

    /// Prints data that is no report.
    pub fn print(&self, text: &str) -> Exit {
        let mut screen = self.screen();
        screen.data(text);
        exit_of_write(screen.finish(), Exit::Done)
    }
}

/// Returns the exit code after writing. A closed pipe (`| head`) is no error; a full disk is.
fn exit_of_write(result: io::Result<()>, exit: Exit) -> Exit {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe && exit == Exit::Done => Exit::Error,
        Ok(()) | Err(_) => exit,
    }
}

/// The reason why a command failed.
#[derive(Clone, Debug)]
pub struct Failure {
    diagnostics: Vec<Diagnostic>,
    sources: Sources,
}

impl Failure {
    /// Creates a failure whose diagnostics refer to these sources.
    pub fn new(diagnostics: Vec<Diagnostic>, sources: Sources) -> Self {
        Self { diagnostics, sources }
    }

    /// Replaces all diagnostics with this code by one.
    #[must_use]
    pub fn with_diagnostic_for(mut self, code: Code, mut diagnostic: Diagnostic) -> Self {
        let replaced =
            self.diagnostics.iter().find(|found| found.code == code).map(|found| found.help.clone());
        let Some(way) = replaced else { return self };
        // The way through that planning knows of is told with the cause.
        if let Some(way) = way.filter(|way| way != NEEDS_LIVE_STATE_HELP) {
            diagnostic.help = Some(diagnostic.help.map_or(way.clone(), |help| format!("{help}\n{way}")));
        }
        self.diagnostics.retain(|found| found.code != code);
        self.diagnostics.push(diagnostic);
        self
    }

    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { diagnostics: vec![diagnostic], sources: Sources::default() }
    }
}

impl From<stack::Failure> for Failure {
    fn from(stack::Failure { sources, diagnostics }: stack::Failure) -> Self {
        Self { diagnostics, sources }
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        let (code, help) = match &error {
            SandboxError::Faults(mistakes) => return fault_file_failure(mistakes),
            SandboxError::Unreadable { .. } => (Code::SandboxDamaged, None),
            SandboxError::InUse { .. } => (Code::SandboxInUse, Some(SERVE_IT)),
            SandboxError::Write { .. } | SandboxError::Kubernetes { .. } | SandboxError::OtherBacking(_) => {
                (Code::Sandbox, None)
            }
            SandboxError::Io { .. } | SandboxError::OfOthers { .. } | SandboxError::Link { .. } => {
                (Code::Sandbox, Some("fix the cause, or choose another folder: `--sandbox=DIR`"))
            }
        };
        let diagnostic = Diagnostic::error(code, error.to_string());
        help.into_iter().fold(diagnostic, Diagnostic::help).into()
    }
}

const SERVE_IT: &str =
    "one process at a time can use a folder, unless it is served: `dask-infra sandbox serve`";

/// Returns the failure of a faults file, with its mistakes at their locations.
fn fault_file_failure(mistakes: &Mistakes) -> Failure {
    let Mistakes { path, text, problems } = mistakes;
    let mut sources = Sources::default();
    let file = sources.add(path.display().to_string(), text.clone());
    let told = problems.iter().map(|Problem { at, message, help }| {
        let span = Span { file, start: at.start, end: at.end };
        let diagnostic = Diagnostic::error(Code::FaultsFile, message.clone()).at(Some(span), "");
        help.iter().cloned().fold(diagnostic, Diagnostic::help)
    });
    Failure::new(told.collect(), sources)
}

/// Returns how the program was called, up to the command, so that the next command can be pasted.
fn program(stack: Option<&Path>, options: &[String]) -> String {
    let stack = stack.map(|stack| format!("--stack {}", quoted(&stack.display().to_string())));
    let words: Vec<String> =
        ["dask-infra".to_owned()].into_iter().chain(stack).chain(options.iter().cloned()).collect();
    words.join(" ")
}

/// Returns the global options that the next command also needs, without the stack.
fn options(global: &Global) -> Vec<String> {
    let sandbox = global.sandbox.iter().map(|dir| match dir {
        dir if dir == Path::new(SANDBOX_DIR) => "--sandbox".to_owned(),
        dir => format!("--sandbox={}", quoted(&dir.display().to_string())),
    });
    // A value that nobody should see is to be typed again: command lines end up in logs.
    let vars = global.vars.iter().map(|(name, value)| match is_hidden(name, value) {
        true => format!("--var {name}=…"),
        false => format!("--var {}", quoted(&format!("{name}={value}"))),
    });
    let helm = global.helm.iter().map(|helm| format!("--helm {}", quoted(&helm.display().to_string())));
    let trust = global.trust_stack.then(|| "--trust-stack".to_owned());
    let prices = global.prices.iter().map(PriceSource::option);
    sandbox.chain(vars).chain(helm).chain(prices).chain(trust).collect()
}

/// Returns true if a variable may hold a secret.
fn is_hidden(name: &str, value: &str) -> bool {
    is_secret(name) || has_secret_shape(value)
}

/// Parses `NAME=VALUE`.
pub fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it has the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_has_no_secrets_of_this_one() {
        let vars =
            [("HF_TOKEN", "abc"), ("zone", "us-central1-a"), ("db", "postgres://a:b@c/d"), ("size", "2 3")];
        let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let global = Global {
            stack: PathBuf::from("."),
            sandbox: None,
            vars,
            helm: None,
            prices: None,
            trust_stack: false,
            verbose: false,
            color: Color::Auto,
        };
        let expect = ["--var HF_TOKEN=…", "--var zone=us-central1-a", "--var db=…", "--var 'size=2 3'"];
        assert_eq!(options(&global), expect);
    }
}
