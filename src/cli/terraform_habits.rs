//! Arguments typed out of habit from Terraform: `-out=x`, `-auto-approve`, `refresh`. The mistake is reported as usual,
//! with the spelling that works.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use model::secrets::HIDDEN;

/// Terraform's flags that have another form here.
const FLAGS: &[(&str, &str)] = &[
    ("backend-config", "there is no state file, so no backend"),
    ("chdir", "--stack FOLDER"),
    ("compact-warnings", "--summary"),
    ("force", "--auto-approve, and --allow VERB:ADDRESS to replace and delete"),
    ("input", "without a terminal there are no prompts"),
    ("lock", "there is no lock file; the lock is in the cluster"),
    ("no-color", "--color never"),
    ("refresh", "plan always reads live state; --offline plans without it"),
    ("state", "there is no state file: the live resources are the state"),
    ("upgrade", "there are no providers to upgrade"),
    ("var-file", "--var NAME=VALUE, or values in [vars] of the stack"),
];

/// Commands of Terraform, Helm and kubectl that have other names here.
const COMMANDS: &[(&str, &str)] = &[
    ("console", "explain"),
    ("create", "apply"),
    ("delete", "destroy"),
    ("diff", "plan"),
    ("down", "destroy"),
    ("install", "apply"),
    ("preview", "plan"),
    ("refresh", "plan --refresh-only"),
    ("taint", "plan --replace ADDRESS"),
    ("template", "plan --offline -v"),
    ("uninstall", "destroy"),
    ("up", "apply"),
    ("upgrade", "apply"),
];

/// Returns the error, with a tip if an argument is known from another tool.
pub fn with_tip(mut error: Error, arguments: &[OsString], program: &Command) -> Error {
    let tip = match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            arguments.iter().skip(1).find_map(|word| flag(word.to_str()?, program))
        }
        ErrorKind::InvalidSubcommand => arguments.iter().skip(1).find_map(|word| command(word.to_str()?)),
        _ => None,
    };
    if let Some(tip) = tip {
        // The guess of the parser is made from letters and would contradict it.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::Suggested);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    // Whoever forgets the name of a variable types its value alone, which may be a secret.
    let about_var = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg.starts_with("--var "));
    if error.kind() == ErrorKind::ValueValidation && about_var {
        error.insert(ContextKind::InvalidValue, ContextValue::String(HIDDEN.to_owned()));
    }
    error
}

/// `-out=x` is `--out x`; `--chdir` is `--stack FOLDER`.
fn flag(word: &str, program: &Command) -> Option<String> {
    let bare = word.trim_start_matches('-');
    let dashes = word.len() - bare.len();
    let (name, value) = bare.split_once('=').map_or((bare, None), |(name, value)| (name, Some(value)));
    if !(1..=2).contains(&dashes) || name.len() < 2 {
        return None;
    }
    if dashes == 1 && is_flag(program, name) {
        let value = value.map(|value| format!(" {value}")).unwrap_or_default();
        return Some(format!("long flags have two dashes: '--{name}{value}'"));
    }
    let (_, ours) = FLAGS.iter().find(|(external, _)| *external == name)?;
    Some(if ours.starts_with('-') { format!("use '{ours}'") } else { (*ours).to_owned() })
}

/// Returns true if the program or one of its commands has a long flag of this name.
fn is_flag(program: &Command, name: &str) -> bool {
    let own = program.get_arguments().any(|argument| argument.get_long() == Some(name));
    own || name == "help"
        || name == "version"
        || program.get_subcommands().any(|command| is_flag(command, name))
}

fn command(word: &str) -> Option<String> {
    let (_, ours) = COMMANDS.iter().find(|(external, _)| *external == word)?;
    Some(format!("use 'dask-infra {ours}'"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::{Cli, parse};

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = parse(words.clone()).unwrap_err();
        with_tip(error, &words, &Cli::command()).to_string()
    }

    #[test]
    fn habits_of_other_tools_get_a_tip() {
        for (line, tip) in [
            ("dask-infra plan -out=x", "'--out x'"),
            ("dask-infra plan -out x", "'--out'"),
            ("dask-infra apply -auto-approve", "'--auto-approve'"),
            ("dask-infra apply -target=node_pool.a", "'--target node_pool.a'"),
            ("dask-infra plan -detailed-exitcode", "'--detailed-exitcode'"),
            ("dask-infra plan -json", "'--json'"),
            ("dask-infra -chdir=x plan", "'--stack FOLDER'"),
            ("dask-infra plan -no-color", "'--color never'"),
            ("dask-infra apply --lock=false", "there is no lock file"),
            ("dask-infra taint x", "'dask-infra plan --replace ADDRESS'"),
            ("dask-infra up", "'dask-infra apply'"),
            ("dask-infra aply", "'apply'"),
            ("dask-infra plan --paralelism 3", "'--parallelism'"),
        ] {
            let said = said(line);
            assert!(said.contains(tip), "{line}: no {tip} in\n{said}");
        }
    }

    #[test]
    fn every_command_that_a_habit_leads_to_is_there() {
        let program = Cli::command();
        for (_, ours) in COMMANDS {
            let name = ours.split(' ').next().unwrap();
            assert!(program.find_subcommand(name).is_some(), "{ours}");
        }
    }
}
