//! Stops and starts: what a plan is asked to do, and what is stopped once it is applied.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use model::record::{Stop, Stopped, as_list};
use model::resource::Identity;

/// Requests to a plan to stop or start things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopRequest {
    /// Stopped things stay stopped.
    #[default]
    Leave,
    /// The selected things stop; without a selection, everything that can.
    Stop(Stop),
    /// Things of the plan that are stopped, or have gone by themselves, are restored.
    Start,
}

/// The things that are stopped once a plan is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopState {
    #[serde(rename = "asked")]
    pub request: StopRequest,
    #[serde(default, with = "as_list", skip_serializing_if = "Stopped::is_empty")]
    pub stopped: Stopped,
    /// The things that are being started: each no longer counts as stopped, and the record names it until an apply has seen it there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub starting: BTreeSet<Identity>,
    /// True if the record says otherwise, so that it is written even where nothing else changes.
    #[serde(rename = "news", default)]
    pub differs_from_record: bool,
}

impl StopState {
    /// Returns true if nothing is asked for, stopped or being started.
    pub fn is_none(&self) -> bool {
        self.request == StopRequest::Leave && self.stopped.is_empty() && self.starting.is_empty()
    }

    /// Returns true for what is stopped, and for what is being started.
    pub fn has(&self, identity: &Identity) -> bool {
        self.stopped.contains_key(identity) || self.starting.contains(identity)
    }

    /// Returns true for a plan of `start` or `--start`.
    pub fn is_start(&self) -> bool {
        self.request == StopRequest::Start
    }

    /// Returns true where this command stops all that is stopped, so that a plain `start` restores nothing else.
    pub fn is_all_of_stop(&self) -> bool {
        let StopRequest::Stop(asked) = &self.request else { return false };
        self.stopped.values().all(|stop| (&stop.by, &stop.since) == (&asked.by, &asked.since))
    }

    /// Returns true for a plan of `stop`.
    pub fn is_stop(&self) -> bool {
        matches!(self.request, StopRequest::Stop(_))
    }
}

/// The things that were stopped, and those that were being started, when a plan was begun.
#[derive(Clone, Debug, Default)]
pub struct PreviousStops {
    pub(crate) stopped: Stopped,
    pub(crate) starting: BTreeSet<Identity>,
}

impl PreviousStops {
    /// Returns true for what is stopped, or was and is not there again yet.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.stopped.contains_key(identity) || self.starting.contains(identity)
    }
}
