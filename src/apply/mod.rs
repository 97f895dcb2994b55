//! Applying a plan: one loop, events out. Makes no choices that the plan has not made.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::address::Address;

/// How one change ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// All steps are done.
    Done,
    /// A step failed.
    Failed {
        /// Stable code, `DI0401`.
        code: String,
        /// What and why.
        message: String,
        /// What to do next.
        help: Option<String>,
    },
    /// Not ready in time.
    TimedOut {
        /// What was waited for, and the last that was seen.
        message: String,
    },
    /// Not started because something before it did not succeed.
    Skipped {
        /// What did not succeed.
        because: Address,
    },
    /// Interrupted while running: it may be half done.
    InDoubt {
        /// What was under way.
        message: String,
    },
    /// Interrupted before it started.
    NotStarted,
}

/// Everything that happens during apply. `change` is the place in the plan's list.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A change began.
    Started {
        /// Which.
        change: usize,
    },
    /// A change waits; sent when the text changes and about every ten seconds.
    Waiting {
        /// Which.
        change: usize,
        /// For what.
        message: String,
        /// How long so far.
        waited: Duration,
        /// How long at most.
        deadline: Duration,
    },
    /// A request is tried again.
    Retrying {
        /// Which.
        change: usize,
        /// Why.
        message: String,
        /// When.
        after: Duration,
    },
    /// Lines of a pod's log that a check read.
    Log {
        /// Which.
        change: usize,
        /// The lines.
        lines: Vec<String>,
    },
    /// A change ended.
    Finished {
        /// Which.
        change: usize,
        /// How.
        outcome: Outcome,
        /// How long it ran.
        took: Duration,
    },
    /// The first Ctrl-C: nothing new is started.
    Interrupted,
}

/// The end of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// One for each change of the plan that is not `Keep`: its place, how it ended, how long it ran.
    pub outcomes: Vec<(usize, Outcome, Duration)>,
    /// How long it all took.
    pub took: Duration,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
}
