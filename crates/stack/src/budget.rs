//! `[budget]`: limits of what a stack may cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of what the stack may cost on Google Cloud. An apply that would exceed one ends with exit code 3 before the first write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// US dollars per hour, with autoscaled node pools at their maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_per_hour: Option<f64>,
    /// US dollars per day, with autoscaled node pools at their minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub idle_per_day: Option<f64>,
}
