//! Arguments for which a shell can offer values. Any value is accepted here; the commands report wrong values with better
//! messages.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};
use clap_complete::{ArgValueCompleter, CompletionCandidate};

use model::diag::Code;
use plan::ApprovalVerb;
use stack::ready::READY;

/// The sets of values that completion offers.
#[derive(Clone, Copy, Debug)]
pub enum ValueSet {
    /// Codes of messages.
    Codes,
    /// Names of ready stacks.
    ReadyStacks,
}

impl TypedValueParser for ValueSet {
    type Value = String;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, word: &OsStr) -> Result<String, Error> {
        StringValueParser::new().parse_ref(cmd, arg, word)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(match self {
            Self::Codes => Box::new(Code::all().iter().map(|entry| PossibleValue::new(entry.id))),
            Self::ReadyStacks => Box::new(READY.iter().map(|ready| PossibleValue::new(ready.name))),
        })
    }
}

/// Offers the addresses of the sections in the stack file.
pub fn addresses() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| sections(typed, ""))
}

/// Offers what `--allow` takes.
pub fn approvals() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        ApprovalVerb::OF_CHANGES
            .iter()
            .flat_map(|verb| sections(typed, &format!("{}:", verb.as_str())))
            .collect()
    })
}

fn sections(typed: &OsStr, before: &str) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let found = stack::sections(&stack_of(std::env::args_os()));
    let words = found.iter().map(|address| format!("{before}{address}"));
    words.filter(|word| word.starts_with(typed)).map(CompletionCandidate::new).collect()
}

/// Returns the stack that the command line names. Completion runs before the command line is parsed.
fn stack_of(words: impl Iterator<Item = OsString>) -> PathBuf {
    let mut words = words.skip_while(|word| word != "--").skip(1);
    while let Some(word) = words.next() {
        if word == "--stack" {
            return words.next().unwrap_or_default().into();
        }
        if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--stack=")) {
            return path.into();
        }
    }
    PathBuf::from(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_is_the_one_that_the_line_names() {
        let of = |line: &str| stack_of(line.split(' ').map(OsString::from));
        assert_eq!(of("dask-infra -- dask-infra plan --target"), PathBuf::from("."));
        assert_eq!(of("dask-infra -- dask-infra --stack a plan --target"), PathBuf::from("a"));
        assert_eq!(of("dask-infra -- dask-infra plan --stack=b --target"), PathBuf::from("b"));
        assert_eq!(of("dask-infra -- dask-infra plan --stack"), PathBuf::new());
    }
}
