//! Readiness of resources.

use std::fmt;

use serde_json::Value;

/// The readiness of a resource. A ready resource does what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It does.
    Ready,
    /// It does, and its server says that something is wrong with it.
    Impaired(String),
    /// Not yet; what it waits for.
    Progressing(Progress),
    /// Not yet, as its operator has not taken it up; what it waits for.
    Unhandled(String),
    /// Not yet, and only when there is room again that others have; what it waits for.
    Stalled(String),
    /// Not yet, and nothing is wrong: capacity that was asked for is not there. It may take days, so an apply ends and leaves
    /// it waiting.
    Queued(Queued),
    /// It will not without help; why.
    Failed(String),
}

/// How far something is, and what holds it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub what: String,
    /// The reason that the first of its pods that is not ready reports.
    pub blocked_by: Option<String>,
}

impl<S: Into<String>> From<S> for Progress {
    fn from(what: S) -> Self {
        Self { what: what.into(), blocked_by: None }
    }
}

/// `1 of 3 workers ready; no node has room`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.blocked_by.iter().try_for_each(|why| write!(f, "; {why}"))
    }
}

/// A wait for capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The reason for the wait, in words.
    pub what: String,
    /// Since when, as its server says it (RFC 3339).
    pub since: Option<String>,
}

impl Readiness {
    pub fn progressing(what: impl Into<Progress>) -> Self {
        Self::Progressing(what.into())
    }
}

impl Queued {
    pub fn since(what: impl Into<String>, since: &Value) -> Self {
        Self { what: what.into(), since: since.as_str().map(str::to_owned) }
    }
}

/// `queued since 2026-01-01T00:00:00Z: no machines yet`.
impl fmt::Display for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.since {
            Some(since) => write!(f, "queued since {since}: {}", self.what),
            None => write!(f, "queued: {}", self.what),
        }
    }
}
