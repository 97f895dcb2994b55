//! Reports: plans, progress and summaries, for people ([`human`]) and for programs ([`json`]). Makes no decisions. Data goes to
//! stdout, everything else to stderr.

use std::path::Path;
use std::time::Duration;

use apply::{Event, Summary};
use model::diag::Diagnostic;
use model::resource::{FieldChange, Owner, Resource, Target};
use model::source::Sources;
use plan::{Action, DriftReport, Plan};

pub mod connect;
pub mod cost;
pub mod document;
pub mod dry_run;
pub mod event;
pub mod graph;
pub mod human;
pub mod json;
pub mod logs;
mod screen;
pub mod stack_cost;
pub mod status;
pub mod still_running;
pub mod why;

pub use human::Human;
pub use json::Json;
pub use screen::{ColourChoice, Masks, Screen, Stream};

/// One output format. Write errors are kept by the reporter and returned at the end by [`finish`](Reporter::finish): a closed
/// pipe must not stop an apply half way.
pub trait Reporter: Send {
    /// Reports a finished plan.
    fn plan(&mut self, plan: &Plan, view: &View<'_>);
    /// Reports changes made outside this stack since the last apply.
    fn drift(&mut self, drifted: &DriftReport, owner: &Owner, target: &Target);
    /// Reports something that happened during apply.
    fn event(&mut self, plan: &Plan, event: &Event);
    /// Reports the end of an apply.
    fn summary(&mut self, plan: &Plan, summary: &Summary);
    /// Reports a stack that `validate` found nothing wrong with, after its warnings.
    fn valid(&mut self, warnings: usize);
    /// Reports errors and warnings.
    fn diagnostics(&mut self, diagnostics: &[Diagnostic], sources: &Sources);
    /// Returns the first error of writing, once.
    fn finish(&mut self) -> std::io::Result<()>;
}

/// Details that the report of a plan needs beside the plan itself.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The source locations of the stack's fields; `None` for a plan from a file.
    pub sources: Option<&'a Sources>,
    /// The next command to suggest.
    pub next: Next<'a>,
}

impl View<'_> {
    /// Returns the location of a field that differs, `stack.toml:40:12`; `None` if only the location of its change is known.
    pub fn location(&self, wanted: Option<&Resource>, field: &FieldChange) -> Option<String> {
        let (sources, resource) = (self.sources?, wanted?);
        let origin = resource.origin_of(&field.path);
        if origin == resource.origin {
            return None;
        }
        sources.locate(&origin).map(|location| location.to_string())
    }
}

/// The next command that is suggested after a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// None: the command continues by itself, or only shows.
    Nothing,
    /// Run `apply`, or `destroy` for a plan of it.
    Apply,
    /// Run `apply FILE`.
    ApplyFile(&'a Path),
    /// Plan again with access to the live state.
    PlanOnline,
}

pub use model::shell::quoted;

/// The words for an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// `create`, as programs read it too.
    pub verb: &'static str,
    /// `creating`.
    pub doing: &'static str,
    /// `created`.
    pub done: &'static str,
}

/// Returns the words for an action: Terraform's, if it has them.
pub(crate) fn words(action: Action) -> Words {
    let (verb, doing, done) = match action {
        Action::Keep => ("keep", "checking", "ready"),
        Action::Create => ("create", "creating", "created"),
        Action::Update => ("update", "updating", "updated"),
        Action::Replace => ("replace", "replacing", "replaced"),
        Action::Delete => ("delete", "deleting", "deleted"),
        Action::Forget => ("forget", "releasing", "released"),
        Action::Run => ("run", "running", "passed"),
    };
    Words { verb, doing, done }
}

/// `0s`, `42s`, `1m20s`, `20m`, `1h5m`.
pub(crate) fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes, rest) {
        (0, 0, rest) => format!("{rest}s"),
        (0, minutes, 0) => format!("{minutes}m"),
        (0, minutes, rest) => format!("{minutes}m{rest}s"),
        (hours, 0, _) => format!("{hours}h"),
        (hours, minutes, _) => format!("{hours}h{minutes}m"),
    }
}

/// `1 object`, `2 objects`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_brief() {
        let table = [(0, "0s"), (59, "59s"), (60, "1m"), (80, "1m20s"), (3600, "1h"), (3905, "1h5m")];
        for (seconds, text) in table {
            assert_eq!(brief(Duration::from_secs(seconds)), text);
        }
    }
}
