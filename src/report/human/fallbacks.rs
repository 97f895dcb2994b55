//! The capacity options of a change, in a plan that shows every request.

use super::steps::steps;
use super::style::{strip_controls, wrap};
use model::resource::Fallback;
use plan::{Change, Plan};

/// Appends the steps of the other ways to get machines, in the order in which they are tried.
pub(super) fn calls(text: &mut String, change: &Change, indent: usize, width: usize) {
    let Some(Fallback { first, then, cleanup: last }) = &change.fallback else { return };
    let blank = " ".repeat(indent);
    let mut heading = |line: &str, of: &[model::resource::Step]| {
        text.push_str(&wrap(&format!("{blank}# "), &strip_controls(line), width));
        steps(text, change, of, indent, width);
    };
    let mut before = first;
    for attempt in then {
        heading(&format!("without machines by {before}: {}", attempt.option), &attempt.steps);
        before = &attempt.option;
    }
    heading(&format!("without machines by {before}, the last way:"), last);
}

/// `--retry-capacity`, as long as it is not done.
pub(super) fn repeated_options(plan: &Plan, is_done: &impl Fn(usize) -> bool) -> Option<String> {
    let mut changes = plan.changes.iter().enumerate();
    let open = changes.any(|(place, change)| change.fallback.is_some() && !is_done(place));
    (plan.retry_capacity && open).then(|| "--retry-capacity".to_owned())
}
