//! Facts about a resource for `status`, beyond its readiness.

use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusLine {
    /// One line for people: `1 of 1 nodes ready, 2 GPUs allocatable`.
    pub line: String,
    /// Facts of the line for the JSON output, by name.
    pub facts: Vec<(&'static str, Value)>,
    /// Pods that do not run, with the reason if they have one.
    pub pending: Vec<Pending>,
    /// The event that has to happen, and by when (RFC 3339): `pods must start`.
    pub until: Option<(&'static str, String)>,
    /// True if its operator has not handled it yet.
    pub unhandled: bool,
    /// The reason why it failed, if no apply waits for its end.
    pub failed: Option<String>,
    /// The wait of this command, if no apply waits for it.
    pub waits: Option<String>,
    /// The prices of its live objects, if they are billed.
    pub prices: Vec<Price>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Price {
    /// US dollars per hour: us-central1's list prices, without disks and traffic.
    Known(f64),
    /// An item that has no price in the catalog: `a3-ultragpu-8g`.
    Unknown(String),
}

/// A pod that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    pub namespace: String,
    pub pod: String,
    /// The reason from its own conditions; events may know more.
    pub why: Option<String>,
    /// True if no node accepts it.
    pub unscheduled: bool,
}
