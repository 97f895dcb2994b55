//! Adoption of foreign resources: checks that a plan only adopts. An adoption adds the stack's ownership labels and field
//! manager. Other changes that it would make are reported, and replacements are refused.

use serde_json::Value;

use crate::{Action, Approval, ApprovalVerb, Change, Plan};
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic};
use model::resource::{
    Effect, FieldChange, Identity, LABEL_ID, LABEL_STACK, OBJECT_LABEL_MANAGED_BY, OBJECT_LABEL_STACK, Step,
    World,
};
use model::source::Sources;

/// Approvals of a person beyond the adoption itself.
#[derive(Clone, Copy, Debug)]
pub struct AcceptedChanges<'a> {
    /// Changes of fields to the values of the stack file.
    pub field_changes: bool,
    /// Approvals given. A resource of another stack needs `take:ADDRESS`.
    pub approvals: &'a [Approval],
}

/// Returns the errors that prevent adopting a section by a plan, in the order of the plan.
pub fn adoption_errors(
    plan: &Plan,
    section: &Address,
    world: &World,
    agreed: AcceptedChanges<'_>,
    sources: &Sources,
) -> Vec<Diagnostic> {
    let span = sources.address_span(section);
    let mut found = Vec::new();
    for change in plan.changes.iter().filter(|change| change.action != Action::Keep) {
        let problem = if change.address.section() == section.as_str() {
            not_approved(change, world, agreed)
        } else {
            Some(unrelated_change(change, section))
        };
        found.extend(problem.map(|problem| problem.at(span, "to be adopted")));
    }
    found
}

/// Removes the waits for resources that only get ownership labels, because labels do not change their readiness.
pub fn without_waits(plan: &mut Plan) {
    let is_labelled = |change: &&mut Change| {
        matches!(change.identity, Identity::Object(_)) && change.fields.iter().all(is_ownership_label)
    };
    for change in plan.changes.iter_mut().filter(is_labelled) {
        change.steps.retain(|step| !matches!(step, Step::Await(_)));
    }
}

/// Returns the error for a change outside the section.
fn unrelated_change(change: &Change, section: &Address) -> Diagnostic {
    let what = format!("{section} needs {}, which must be {} first", change.address, done(&change.action));
    Diagnostic::error(Code::NotAdoptable, what)
        .help("`dask-infra plan` shows it: apply that, or adopt it, and then this")
}

fn done(action: &Action) -> &'static str {
    match action {
        Action::Create => "made",
        Action::Replace => "replaced",
        Action::Delete | Action::Forget => "deleted",
        Action::Run => "run",
        Action::Update | Action::Keep => "changed",
    }
}

fn not_approved(change: &Change, world: &World, agreed: AcceptedChanges<'_>) -> Option<Diagnostic> {
    let identity = &change.identity;
    if change.action == Action::Create {
        let what = format!("{identity} does not exist, so it cannot be adopted");
        let help = "`apply` creates what is missing; a resource with another name stays with its owner";
        return Some(Diagnostic::error(Code::NotAdoptable, what).help(help));
    }
    let adopting = |approval: &Approval| {
        let addresses = [change.address.as_str(), change.address.section()];
        approval.verb == ApprovalVerb::Adopt && addresses.contains(&approval.address.as_str())
    };
    if let Some(stack) = other_stack(change, world).filter(|_| !agreed.approvals.iter().any(adopting)) {
        let what = format!("{identity} belongs to the stack {stack}");
        let help = format!(
            "two stacks would overwrite each other: set `manage = false` there, apply that, then adopt it \
             here; if the stack {stack} no longer exists: --allow take:{}",
            change.address
        );
        return Some(Diagnostic::error(Code::NotAdoptable, what).help(help));
    }
    let fields: Vec<&FieldChange> = change.fields.iter().filter(|field| !is_ownership_label(field)).collect();
    if fields.is_empty() && change.action == Action::Update {
        return None;
    }
    let list = fields.iter().map(|field| format!("\n- {}", line(field))).collect::<String>();
    if change.action != Action::Update {
        let what = format!("{identity} would be replaced:{list}");
        let help = "make the stack file match what is live, then adopt it";
        return Some(Diagnostic::error(Code::NotAdoptable, what).help(help));
    }
    let what = format!("{identity} differs from the stack file, so adopting it would change:{list}");
    let help = "make the stack file match what is live, or accept the changes with `--with-changes`";
    (!agreed.field_changes).then(|| Diagnostic::error(Code::AdoptionChanges, what).help(help))
}

/// Returns the stack that owns a resource of a kind that only one stack can own.
fn other_stack(change: &Change, world: &World) -> Option<String> {
    let shared = kinds::of(change.kind).shared;
    change.adopted.as_ref().filter(|_| !shared)?;
    let live = world.find(&change.identity)?;
    let labels = match &change.identity {
        Identity::NodePool { .. } => &live["config"]["resourceLabels"],
        Identity::Cluster(_) | Identity::Object(_) | Identity::Check(_) => &live["resourceLabels"],
    };
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let applied = entries.filter(|entry| entry["operation"] == "Apply");
    let mut stacks = applied.filter_map(|entry| entry["manager"].as_str()?.strip_prefix("dask-infra/"));
    labels[LABEL_STACK].as_str().or(stacks.next()).map(str::to_owned)
}

/// Returns true if a field is an ownership label.
fn is_ownership_label(field: &FieldChange) -> bool {
    let ownership_labels = [
        FieldPath::keys(["metadata", "labels", OBJECT_LABEL_MANAGED_BY]),
        FieldPath::keys(["metadata", "labels", OBJECT_LABEL_STACK]),
        FieldPath::keys(["resourceLabels", LABEL_STACK]),
        FieldPath::keys(["resourceLabels", LABEL_ID]),
        FieldPath::keys(["config", "resourceLabels", LABEL_STACK]),
        FieldPath::keys(["config", "resourceLabels", LABEL_ID]),
    ];
    // All labels at once, where there were none.
    let of_ownership_labels = |value: &Value| {
        let keys: Vec<&String> = value.as_object().into_iter().flatten().map(|(key, _)| key).collect();
        !keys.is_empty() && keys.iter().all(|key| ownership_labels.contains(&field.path.key(key)))
    };
    ownership_labels.contains(&field.path)
        || (field.before.as_ref().is_none_or(Value::is_null)
            && field.after.as_ref().is_some_and(of_ownership_labels))
}

fn line(field: &FieldChange) -> String {
    let (before, after) = field.shown();
    let shown = |value: Option<Value>| value.map_or_else(|| "not set".to_owned(), |value| value.to_string());
    let effect = match field.effect {
        Effect::Rolling => ", which recreates nodes or Pods",
        Effect::Replace => ", which replaces it",
        _ => "",
    };
    format!("{}: {} -> {}{effect}", field.path, shown(before), shown(after))
}
