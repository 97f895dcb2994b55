//! Arguments for which a shell can offer words: any word is taken, as what is wrong with it is told elsewhere and better.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};

use crate::diag::Code;
use crate::stack::ready::READY;

/// Words that completion offers.
#[derive(Clone, Copy, Debug)]
pub enum Offered {
    /// Codes of messages.
    Codes,
    /// Names of ready stacks.
    ReadyStacks,
}

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, word: &std::ffi::OsStr) -> Result<String, Error> {
        StringValueParser::new().parse_ref(cmd, arg, word)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(match self {
            Self::Codes => Box::new(Code::all().iter().map(|entry| PossibleValue::new(entry.id))),
            Self::ReadyStacks => Box::new(READY.iter().map(|ready| PossibleValue::new(ready.name))),
        })
    }
}
