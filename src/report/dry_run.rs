//! The dry runs of a plan, for people and for programs.

use schemars::JsonSchema;
use serde::Serialize;

use super::count;
use super::human::style::strip_controls;
use plan::{Plan, Untried};

/// The objects that the API server judged by dry runs, and those that it did not.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DryRun {
    /// The number of objects that it judged.
    pub tried: usize,
    /// The objects that it did not judge, by reason.
    pub untried: Vec<UntriedObjects>,
}

/// Objects that the API server did not judge, for one reason.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UntriedObjects {
    /// The reason, in words: `the plan creates namespace team`.
    pub reason: String,
    /// The number of objects.
    pub count: usize,
    /// Their addresses.
    pub objects: Vec<String>,
}

/// Returns the dry runs of a plan; `None` if nothing was tried.
pub fn of(plan: &Plan) -> Option<DryRun> {
    let plan::DryRun { tried, untried } = plan.dry_run.as_ref()?;
    let objects = |Untried { reason, objects }: &Untried| UntriedObjects {
        reason: reason.clone(),
        count: objects.len(),
        objects: objects.iter().map(ToString::to_string).collect(),
    };
    Some(DryRun { tried: *tried, untried: untried.iter().map(objects).collect() })
}

/// The number of reasons that the line names.
const SHOWN: usize = 3;

/// `Not tried on the API server: 8 objects (the plan creates namespace team), 2 objects (…)`. Returns `None` if everything was
/// tried.
pub fn text(plan: &Plan) -> Option<String> {
    let untried = plan.dry_run.as_ref().map(|dry_run| dry_run.untried.as_slice())?;
    if untried.is_empty() {
        return None;
    }
    let part =
        |Untried { reason, objects }: &Untried| format!("{} ({reason})", count(objects.len(), "object"));
    let mut parts: Vec<String> = untried.iter().take(SHOWN).map(part).collect();
    let others: usize = untried.iter().skip(SHOWN).map(|untried| untried.objects.len()).sum();
    if others > 0 {
        parts.push(format!("{} for other reasons", count(others, "object")));
    }
    Some(strip_controls(&format!("Not tried on the API server: {}", parts.join(", "))))
}
