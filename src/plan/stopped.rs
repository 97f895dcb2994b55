//! What a plan is told and tells of what is stopped.

use serde::{Deserialize, Serialize};

use crate::record::{Stop, Stopped, as_list};

/// What is asked of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Halting {
    /// What is stopped stays so.
    #[default]
    Leave,
    /// What the selection names stops; everything that can, when it names nothing.
    Stop(Stop),
    /// What the plan is about and is stopped, or has gone by itself, is brought back.
    Start,
}

/// What is stopped once a plan is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halts {
    pub asked: Halting,
    #[serde(default, with = "as_list", skip_serializing_if = "Stopped::is_empty")]
    pub stopped: Stopped,
    /// Whether the record says otherwise, so that it is written even where nothing else changes.
    #[serde(default)]
    pub news: bool,
}

impl Halts {
    /// Whether there is nothing to say of it.
    pub fn is_none(&self) -> bool {
        self.asked == Halting::Leave && self.stopped.is_empty()
    }

    /// Whether it is what `stop` asked for.
    pub fn is_stop(&self) -> bool {
        matches!(self.asked, Halting::Stop(_))
    }
}
