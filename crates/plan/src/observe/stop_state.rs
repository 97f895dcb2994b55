//! Stopping and starting: the request to a plan, and the resources that are stopped once it is applied.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use model::record::{Stop, Stopped, as_list};
use model::resource::Identity;

/// Requests to a plan to stop or start resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopRequest {
    /// Stopped resources stay stopped.
    #[default]
    Leave,
    /// The selected resources stop; without a selection, all that can be stopped.
    Stop(Stop),
    /// Stopped resources of the plan are restored, and so are those that were deleted by a time limit.
    Start,
}

/// The resources that are stopped once a plan is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopState {
    #[serde(rename = "asked")]
    pub request: StopRequest,
    #[serde(default, with = "as_list", skip_serializing_if = "Stopped::is_empty")]
    pub stopped: Stopped,
    /// The resources that are being started. They no longer count as stopped. The record lists them until an apply has found them
    /// live.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub starting: BTreeSet<Identity>,
    /// True if the record differs, so that it is written even if nothing else changes.
    #[serde(rename = "news", default)]
    pub differs_from_record: bool,
}

impl StopState {
    /// Returns true if nothing is requested, stopped or being started.
    pub fn is_none(&self) -> bool {
        self.request == StopRequest::Leave && self.stopped.is_empty() && self.starting.is_empty()
    }

    /// Returns true for a resource that is stopped or being started.
    pub fn has(&self, identity: &Identity) -> bool {
        self.stopped.contains_key(identity) || self.starting.contains(identity)
    }

    /// Returns true for a plan of `start` or `--start`.
    pub fn is_start(&self) -> bool {
        self.request == StopRequest::Start
    }

    /// Returns true if this command stops every stopped resource, so that `start` without addresses restores exactly these.
    pub fn stops_all_stopped(&self) -> bool {
        let StopRequest::Stop(asked) = &self.request else { return false };
        self.stopped.values().all(|stop| (&stop.by, &stop.since) == (&asked.by, &asked.since))
    }

    /// Returns true for a plan of `stop`.
    pub fn is_stop(&self) -> bool {
        matches!(self.request, StopRequest::Stop(_))
    }
}

/// The resources that were stopped or being started before this plan.
#[derive(Clone, Debug, Default)]
pub struct PreviousStops {
    pub(crate) stopped: Stopped,
    pub(crate) starting: BTreeSet<Identity>,
}

impl PreviousStops {
    /// Returns true for a resource that was stopped, or being started.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.stopped.contains_key(identity) || self.starting.contains(identity)
    }
}
