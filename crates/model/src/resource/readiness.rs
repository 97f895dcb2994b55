//! Readiness of resources.

use std::fmt;

use serde_json::Value;

/// The readiness of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It works.
    Ready,
    /// It works, but its server reports a problem.
    Impaired(String),
    /// It is not ready yet: what it waits for.
    Progressing(Progress),
    /// Its operator has not handled it yet: what it waits for.
    Unhandled(String),
    /// It waits until something else frees capacity: what it waits for.
    Stalled(String),
    /// It waits for requested capacity, and nothing is wrong. That may take days, so an apply ends and leaves it waiting.
    Queued(Queued),
    /// It does not become ready by itself: why.
    Failed(String),
}

/// The progress of a resource, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub what: String,
    /// The reason of the first pod that is not ready.
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
    /// The start of the wait according to its server (RFC 3339).
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
