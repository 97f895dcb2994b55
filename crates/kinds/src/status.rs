//! Facts about a resource that `status` shows besides its readiness.

use serde_json::Value;

use crate::cost::Billed;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusLine {
    /// One line for people: `1 of 1 nodes ready, 2 GPUs allocatable`.
    pub line: String,
    /// The facts in the line, by name, for the JSON output.
    pub facts: Vec<(&'static str, Value)>,
    /// Pods that do not run, with the reason if they have one.
    pub pending: Vec<Pending>,
    /// The event that is waited for (`pods must start`), and by when (RFC 3339).
    pub until: Option<(&'static str, String)>,
    /// True if its operator has not handled it yet.
    pub unhandled: bool,
    /// Why it failed, for a resource whose end no apply waits for.
    pub failed: Option<String>,
    /// The event that a ready resource still waits for: `status` shows it, and no apply waits for it.
    pub waits: Option<String>,
    /// Its parts that exist and are billed by themselves.
    pub billed: Vec<Billed>,
}

/// A pod that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    pub namespace: String,
    pub pod: String,
    /// The reason from its own conditions. Events may have more details.
    pub why: Option<String>,
    /// True if no node accepts it.
    pub unscheduled: bool,
}
