//! Limits of cost: `--budget`, and the refusal of what exceeds `[budget]`.

use kinds::cost::are_secondary_disks;
use model::diag::{Code, Diagnostic, Severity};
use plan::budget::{Budget, Excess};
use plan::{Approval, ApprovalVerb, Plan};

/// Parses `20/h` or `8/day`.
pub fn parse(text: &str) -> Result<Budget, String> {
    let form = || "give US dollars as `20/h` or `8/day`".to_owned();
    let (amount, unit) = text.trim_start_matches('$').split_once('/').ok_or_else(form)?;
    let amount: f64 = amount.parse().map_err(|_| form())?;
    if !amount.is_finite() || amount < 0.0 {
        return Err(form());
    }
    match unit {
        "h" | "hour" => Ok(Budget { max_per_hour: Some(amount), idle_per_day: None }),
        "day" | "d" => Ok(Budget { max_per_hour: None, idle_per_day: Some(amount) }),
        _ => Err(form()),
    }
}

/// Returns an error for each limit that a plan exceeds without `--allow budget`, and may exceed by more than what is there.
pub fn refusals(plan: &Plan, allowed: &[Approval]) -> Vec<Diagnostic> {
    let is_allowed = allowed.iter().any(|approval| approval.verb == ApprovalVerb::Budget);
    match is_allowed || !plan.is_held_to_budget() {
        true => Vec::new(),
        false => plan.over_budget().iter().map(|excess| exceeded(excess, Severity::Error)).collect(),
    }
}

/// Returns a warning for each limit that is exceeded already, by a plan that costs no more.
pub fn warnings(plan: &Plan) -> Vec<Diagnostic> {
    match plan.is_held_to_budget() {
        true => Vec::new(),
        false => plan.over_budget().iter().map(|excess| exceeded(excess, Severity::Warning)).collect(),
    }
}

fn exceeded(excess: &Excess, severity: Severity) -> Diagnostic {
    let Excess { limit, allowed, cost, unknown } = excess;
    let (unit, state) = (limit.unit(), limit.state());
    let budget = format!("the budget is ${allowed:.2}/{unit} (`{}`)", limit.key());
    let what = match unknown.as_slice() {
        [] => format!("the stack costs ${cost:.2}/{unit} {state}, and {budget}"),
        unknown => format!(
            "the stack costs at least ${cost:.2}/{unit} {state}, and {budget}; price unknown: {}",
            unknown.join(", ")
        ),
    };
    let (help, once) = match unknown.as_slice() {
        [] => (
            "lower the maximum or minimum of `nodes`, choose smaller machines, or raise the budget",
            "`--allow budget` exceeds it once",
        ),
        disks if are_secondary_disks(disks.iter()) => (
            "no list of prices has secondary boot disks: remove `secondary_boot_disks`",
            "`--allow budget` accepts the unknown price once",
        ),
        _ => (
            "give the missing prices with `--prices FILE`, or choose machines that have a price",
            "`--allow budget` exceeds it once",
        ),
    };
    match severity {
        Severity::Error => Diagnostic::error(Code::OverBudget, what).help(format!("{help}; {once}")),
        Severity::Warning => Diagnostic::warning(Code::OverBudget, what).help(help),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_dollars_per_hour_or_per_day() {
        let max = |max| Budget { max_per_hour: Some(max), idle_per_day: None };
        let idle = |idle| Budget { max_per_hour: None, idle_per_day: Some(idle) };
        for (text, expected) in [
            ("20/h", Some(max(20.0))),
            ("$0.5/hour", Some(max(0.5))),
            ("8/day", Some(idle(8.0))),
            ("20", None),
            ("20/week", None),
            ("-1/h", None),
            ("NaN/h", None),
            ("much/h", None),
        ] {
            assert_eq!(parse(text).ok(), expected, "{text}");
        }
    }
}
