//! Drift since the last apply, as text for people.

use super::style::{Tint, columns, paint, push_line, strip_controls, symbol, wrap};
use super::values;
use crate::report::count;
use model::resource::{FieldChange, Identity, Owner, Target, manager_text};
use plan::{Action, Drift, DriftKind, DriftReport};

/// The limits of the drift check, so that the output claims nothing about the rest.
const NOT_LOOKED_AT: &str = "Not compared: status, annotations, finalizers, owner references, and fields removed from objects. On \
                             GKE resources, only fields set by the stack, labels, taints and tags are compared.";

/// Returns the whole text, with colors.
pub fn render(drifted: &DriftReport, owner: &Owner, target: &Target, program: &str, width: usize) -> String {
    let head = format!("Drift of stack {} on {target} — {}", owner.stack, target.label());
    let mut text = wrap("", &head, width);
    if !drifted.recorded {
        let why = "no record of an apply was found, so the values last set on GKE resources are unknown";
        text.push_str(&wrap("", why, width));
    }
    text.push('\n');
    if drifted.found.is_empty() {
        let what = "Nothing that the stack sets was changed, and no other field of its objects was set.";
        text.push_str(&wrap("", &format!("{} {what}", paint(Tint::Bold, "No drift.")), width));
        text.push_str(&wrap("", NOT_LOOKED_AT, width));
        return text;
    }
    for drift in &drifted.found {
        thing(&mut text, drift, width);
    }
    let (changed, gone) = drifted.counts();
    text.push_str(&format!(
        "\n{} {} changed, {gone} deleted.\n",
        paint(Tint::Bold, "Drift:"),
        count(changed, "resource")
    ));
    text.push_str(&wrap("", NOT_LOOKED_AT, width));
    text.push_str(&format!("\nTo see what apply would do about it:\n  {program} plan\n"));
    text
}

fn thing(text: &mut String, drift: &Drift, width: usize) {
    let (action, word) = match &drift.drift_kind {
        DriftKind::Changed => (Action::Update, ""),
        DriftKind::Deleted => (Action::Delete, "  deleted outside this stack"),
        DriftKind::Replaced(_) => (Action::Replace, "  replaced: deleted outside this stack"),
        DriftKind::OwnershipRemoved => {
            (Action::Update, "  this stack's field manager was removed from it; `adopt` puts it back")
        }
    };
    let place = drift.location.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
    let head = format!("{} {}{word}", symbol(action), paint(Tint::Bold, drift.address.as_str()));
    push_line(text, &format!("{head}{}", paint(Tint::Dim, &place)));
    if let DriftKind::Replaced(Some((manager, time))) = &drift.drift_kind {
        let who = strip_controls(&format!("# {manager} created a new one at {time}"));
        push_line(text, &format!("      {}", paint(Tint::Dim, &who)));
    }
    for field in &drift.fields {
        field_lines(text, field, who(drift, field), width);
    }
    for field in &drift.set_by_others {
        let value = field.shown().0.as_ref().map(values::inline).unwrap_or_default();
        let line = format!("      {} {}: {}", paint(Tint::Add, "+"), field.path, strip_controls(&value));
        let who = format!("{}; the stack does not set it", who(drift, field));
        with_comment(text, &line, &who, width);
    }
}

/// Returns the field manager and the time of a change, where the API reports them.
fn who(drift: &Drift, field: &FieldChange) -> String {
    match (&field.drift, &drift.identity) {
        (Some((manager, time)), _) if time.is_empty() => format!("# by {}", manager_text(manager)),
        (Some((manager, time)), _) => format!("# by {} at {time}", manager_text(manager)),
        (None, Identity::Cluster(_) | Identity::NodePool { .. }) => {
            "# GKE does not record by whom".to_owned()
        }
        (None, Identity::Object(_) | Identity::Check(_)) => String::new(),
    }
}

/// `~ spec.worker.replicas: 2 -> 5  # by kubectl-edit at 2026-11-20T10:00:00Z`
fn field_lines(text: &mut String, field: &FieldChange, who: String, width: usize) {
    let value = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or_else(|| "nothing".to_owned(), values::inline)
    };
    let path = &field.path;
    let (live, ours) = field.shown();
    let line = format!(
        "      {} {path}: {} -> {}",
        paint(Tint::Change, "~"),
        strip_controls(&value(&ours)),
        strip_controls(&value(&live))
    );
    with_comment(text, &line, &who, width);
}

fn with_comment(text: &mut String, line: &str, who: &str, width: usize) {
    let who = paint(Tint::Dim, &strip_controls(who));
    if columns(line) + 2 + columns(&who) <= width {
        push_line(text, &format!("{line}  {who}"));
    } else {
        push_line(text, line);
        push_line(text, &format!("          {who}"));
    }
}
