//! Several ways to buy the machines of one thing, and what is done about them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Cost, Identity, Step};

/// The ways of a thing, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ladder {
    pub identity: Identity,
    /// At least one.
    pub ways: Vec<Way>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// How its machines are bought: `spot`, `reservation r`.
    pub by: String,
    /// The one zone that it is tried in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The desired body of the node pool in this way.
    pub body: Value,
    /// The cost of all its nodes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hourly: Option<Cost>,
}

impl Way {
    /// As people know it: `spot in us-central1-a`. No two of a ladder are called alike.
    pub fn name(&self) -> String {
        match &self.zone {
            Some(zone) => format!("{} in {zone}", self.by),
            None => self.by.clone(),
        }
    }
}

/// The ways that a change tries one after another when no machines are available for its steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Climb {
    /// The way that the steps of the change try.
    pub first: String,
    /// Those after it, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Rung>,
    /// After the last way: what it left behind goes.
    pub last: Vec<Step>,
}

/// A way and its steps: what the way before it left behind goes first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    pub way: String,
    pub steps: Vec<Step>,
}
