//! GPUs and machine types: which go together.

use super::errors::Refusal;

use serde_json::Value;

/// The quota metric of an accelerator type, `NVIDIA_T4_GPUS`.
pub(super) fn quota_metric(accelerator: &str, preemptible: bool) -> Option<String> {
    let _ = (accelerator, preemptible);
    None
}

/// Refuses a machine type with accelerators that it does not have, or the reverse.
pub(super) fn check(_config: &Value) -> Result<(), Refusal> {
    Ok(())
}
