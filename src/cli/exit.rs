//! Every exit code, in one table.

use std::process::ExitCode;

use apply::{AbortCause, Outcome, Summary};
use model::diag::{Code, Diagnostic, Severity};

use crate::cli::signals::Signal;

macro_rules! exits {
    ($($name:ident $code:literal $meaning:literal)*) => {
        /// How the program ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Exit {
            $(#[doc = $meaning] $name,)*
        }

        impl Exit {
            /// All of them, in order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* }
            }

            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

exits! {
    Done 0 "done, or nothing to do"
    Error 1 "error"
    Changes 2 "there are changes (plan --detailed-exitcode), or drift (--refresh-only)"
    Refused 3 "refused: approval, policy or protection"
    Stale 4 "the saved plan is stale"
    Locked 5 "locked by another apply"
    NotReady 6 "not ready in time"
    Queued 7 "queued: capacity is requested and not yet available"
    Interrupted 130 "interrupted (Ctrl-C)"
    Terminated 143 "terminated (SIGTERM)"
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Returns the lines of the table in `--help`.
pub fn table() -> String {
    let lines = Exit::ALL.iter().map(|exit| format!("  {:>3}  {}", exit.code(), exit.meaning()));
    lines.collect::<Vec<_>>().join("\n")
}

impl Exit {
    /// Returns the exit code for errors: the code of a refusal if every error is a refusal.
    pub fn of_diagnostics(diagnostics: &[Diagnostic]) -> Self {
        let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
        let mut exits = errors.map(|diagnostic| Self::of_code(diagnostic.code));
        let Some(first) = exits.next() else { return Self::Done };
        if exits.all(|exit| exit == first) { first } else { Self::Error }
    }

    fn of_code(code: Code) -> Self {
        match code {
            Code::ApprovalRequired
            | Code::Protected
            | Code::GoesAlong
            | Code::NotOurs
            | Code::UnknownEffect
            | Code::Retarget
            | Code::NotAdoptable
            | Code::AdoptionChanges
            | Code::OverBudget => Self::Refused,
            Code::Stale => Self::Stale,
            Code::Locked => Self::Locked,
            _ => Self::Error,
        }
    }

    /// Returns the exit code for an end by a signal.
    pub fn of_signal(first: Option<Signal>) -> Self {
        match first {
            Some(Signal::Terminate) => Self::Terminated,
            Some(Signal::Interrupt) | None => Self::Interrupted,
        }
    }

    /// Returns the exit code for the end of an apply.
    pub fn of_summary(summary: &Summary, signal: Option<Signal>) -> Self {
        match (summary.stopped, signal) {
            (AbortCause::None, _) => {}
            (AbortCause::LockLost, _) => return Self::Locked,
            (AbortCause::Interrupted, signal) => return Self::of_signal(signal),
        }
        let any = |is: fn(&Outcome) -> bool| summary.outcomes.iter().any(|(_, outcome, _)| is(outcome));
        let locked =
            any(|outcome| matches!(outcome, Outcome::Failed { code, .. } if code == Code::Locked.as_str()));
        if locked {
            return Self::Locked;
        }
        let late = any(|outcome| matches!(outcome, Outcome::TimedOut { .. }));
        let failed = any(|outcome| match outcome {
            Outcome::Failed { .. } | Outcome::InDoubt { .. } | Outcome::NotStarted => true,
            Outcome::Done
            | Outcome::TimedOut { .. }
            | Outcome::Queued { .. }
            | Outcome::Waits { .. }
            | Outcome::Skipped { .. } => false,
        });
        let queued = any(|outcome| matches!(outcome, Outcome::Queued { .. }));
        match (failed, late) {
            (true, _) => Self::Error,
            (false, true) => Self::NotReady,
            (false, false) if queued => Self::Queued,
            // Apply skips a change only after a failure, so this is a bug in apply: never report success.
            (false, false) if any(|outcome| matches!(outcome, Outcome::Skipped { .. })) => Self::Error,
            (false, false) => Self::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use model::address::Address;

    #[test]
    fn errors_of_one_sort_have_their_code() {
        let error = |code| Diagnostic::error(code, "x");
        let table = [
            (vec![], Exit::Done),
            (vec![Diagnostic::warning(Code::ApprovalRequired, "x")], Exit::Done),
            (vec![error(Code::ApprovalRequired), error(Code::Protected)], Exit::Refused),
            (vec![error(Code::ApprovalRequired), error(Code::Syntax)], Exit::Error),
            (vec![error(Code::Stale)], Exit::Stale),
        ];
        for (diagnostics, exit) in table {
            assert_eq!(Exit::of_diagnostics(&diagnostics), exit);
        }
    }

    #[test]
    fn the_end_of_an_apply_decides_the_code() {
        let failed = || Outcome::Failed { code: String::new(), message: String::new(), help: None };
        let late = || Outcome::TimedOut { message: String::new() };
        let queued = || Outcome::Queued { message: String::new() };
        let waits = || Outcome::Waits { because: Address::new("x") };
        let skipped = || Outcome::Skipped { because: Address::new("x") };
        let table = [
            (vec![Outcome::Done], AbortCause::None, None, Exit::Done),
            (vec![late(), skipped()], AbortCause::None, None, Exit::NotReady),
            (vec![late(), failed()], AbortCause::None, None, Exit::Error),
            (vec![queued(), waits(), Outcome::Done], AbortCause::None, None, Exit::Queued),
            (vec![queued(), late()], AbortCause::None, None, Exit::NotReady),
            (vec![queued(), failed()], AbortCause::None, None, Exit::Error),
            (vec![queued()], AbortCause::Interrupted, Some(Signal::Interrupt), Exit::Interrupted),
            (vec![Outcome::Done], AbortCause::Interrupted, Some(Signal::Terminate), Exit::Terminated),
            (vec![failed()], AbortCause::Interrupted, Some(Signal::Interrupt), Exit::Interrupted),
            (vec![Outcome::NotStarted], AbortCause::LockLost, None, Exit::Locked),
            (vec![Outcome::Done], AbortCause::LockLost, Some(Signal::Interrupt), Exit::Locked),
        ];
        for (outcomes, stopped, signal, exit) in table {
            let outcomes = outcomes.into_iter().map(|outcome| (0, outcome, Duration::ZERO)).collect();
            let summary = Summary { outcomes, took: Duration::ZERO, stopped };
            assert_eq!(Exit::of_summary(&summary, signal), exit);
        }
    }
}
