//! The status of a pod: the only module that knows its fields. Source: `PodStatus` and `ContainerStatus` of Kubernetes 1.36,
//! `core/v1/types.go`.

use serde_json::Value;

use crate::json::{count, text};
use crate::kubernetes::object::{condition, is_ready};

/// A pod with its status.
#[derive(Clone, Copy)]
pub struct PodState<'v>(pub &'v Value);

impl<'v> PodState<'v> {
    pub fn each(list: &'v Value) -> impl Iterator<Item = Self> + Clone {
        list["items"].as_array().into_iter().flatten().map(Self)
    }

    pub fn name(self) -> &'v str {
        text(&self.0["metadata"]["name"])
    }

    pub fn namespace(self) -> &'v str {
        text(&self.0["metadata"]["namespace"])
    }

    pub fn label(self, key: &str) -> &'v str {
        text(&self.0["metadata"]["labels"][key])
    }

    /// Returns `Pending`, `Running`, `Succeeded` or `Failed`.
    pub fn phase(self) -> &'v str {
        text(&self.0["status"]["phase"])
    }

    pub fn is_ready(self) -> bool {
        is_ready(self.0)
    }

    /// Returns true if it is being deleted.
    pub fn is_terminating(self) -> bool {
        !self.0["metadata"]["deletionTimestamp"].is_null()
    }

    /// Returns its condition `PodScheduled` as long as no node takes it.
    pub fn unscheduled(self) -> Option<&'v Value> {
        condition(self.0, "PodScheduled").filter(|scheduled| scheduled["status"] == "False")
    }

    /// Returns the containers in its status, in the order in which they start.
    pub fn containers(self) -> impl Iterator<Item = ContainerState<'v>> + Clone {
        let status = &self.0["status"];
        let lists = [&status["initContainerStatuses"], &status["containerStatuses"]];
        lists.into_iter().filter_map(Value::as_array).flatten().map(ContainerState)
    }
}

/// A container with its status from the kubelet.
#[derive(Clone, Copy)]
pub struct ContainerState<'v>(pub &'v Value);

impl<'v> ContainerState<'v> {
    pub fn name(self) -> &'v str {
        text(&self.0["name"])
    }

    pub fn image(self) -> &'v str {
        text(&self.0["image"])
    }

    /// Returns reason and message while it waits.
    pub fn waiting(self) -> Option<(&'v str, &'v str)> {
        let waiting = &self.0["state"]["waiting"];
        waiting.is_object().then(|| (text(&waiting["reason"]), text(&waiting["message"])))
    }

    pub fn is_running(self) -> bool {
        self.0["state"]["running"].is_object()
    }

    /// Returns how it ended, while it is not restarted.
    pub fn terminated(self) -> Option<&'v Value> {
        Some(&self.0["state"]["terminated"]).filter(|ended| ended.is_object())
    }

    /// Returns how it ended before its last start.
    pub fn last(self) -> Option<&'v Value> {
        Some(&self.0["lastState"]["terminated"]).filter(|ended| ended.is_object())
    }

    pub fn exit_code(self) -> Option<i64> {
        self.terminated()?["exitCode"].as_i64()
    }

    pub fn restarts(self) -> u64 {
        count(&self.0["restartCount"])
    }
}
