//! The ownership of an object: `Apply` entries of managedFields, and two labels that narrow lists. It ends when another stack
//! adopts the object, or when the object is released.

use serde_json::{Map, Value, json};

use crate::kind::ChangeContext;
use model::address::FieldPath;
use model::resource::{
    Action, Api, Call, Deferred, Method, OBJECT_LABEL_MANAGED_BY, OBJECT_LABEL_STACK, ObjectId, encoded,
};

/// The value of the label for objects that this program manages.
const MANAGED_BY: &str = "dask-infra";

/// Returns the field managers that have applied an object.
fn appliers(live: &Value) -> impl Iterator<Item = &str> {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter(|entry| is_apply(entry)).filter_map(|entry| entry["manager"].as_str())
}

fn is_apply(entry: &Value) -> bool {
    entry["operation"] == "Apply" && entry["subresource"].is_null()
}

/// Returns true for the field managers of a stack: `dask-infra/STACK`, `dask-infra/STACK:initial`.
pub fn is_manager_of_stack(name: &str, manager: &str) -> bool {
    name.strip_prefix(manager).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Returns the field managers of other stacks that have applied the object.
pub fn other_stacks<'a>(live: &'a Value, manager: &str) -> Vec<&'a str> {
    appliers(live)
        .filter(|name| name.starts_with("dask-infra/") && !is_manager_of_stack(name, manager))
        .collect()
}

/// Returns the field managers of this stack that have applied the object.
pub fn own_managers<'a>(live: &'a Value, manager: &str) -> Vec<&'a str> {
    appliers(live).filter(|name| is_manager_of_stack(name, manager)).collect()
}

/// Returns true if the labels of an object name the stack, whichever manager applied it.
pub fn has_stack_labels(live: &Value, stack: &str) -> bool {
    let labels = &live["metadata"]["labels"];
    labels[OBJECT_LABEL_STACK] == stack && labels[OBJECT_LABEL_MANAGED_BY] == MANAGED_BY
}

/// Returns managedFields without the `Apply` entries of some managers, for a write: a list of one empty entry removes all.
/// Source: apimachinery, `managedfields/internal/managedfields.go`: an empty list counts as missing.
pub fn without(live: &Value, managers: &[String]) -> Value {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let goes = |entry: &Value| {
        is_apply(entry) && managers.iter().any(|manager| entry["manager"] == manager.as_str())
    };
    let left: Vec<Value> = entries.filter(|entry| !goes(entry)).cloned().collect();
    if left.is_empty() { json!([{}]) } else { Value::Array(left) }
}

/// Ends the ownership of the field managers that a change releases. Every field keeps its value. An empty apply under their names
/// would instead remove the fields that no other manager applies. A released object loses the stack's labels, too.
pub(crate) fn release(context: &ChangeContext, object: &ObjectId) -> Call {
    let live = context.live.unwrap_or(&Value::Null);
    let mut metadata = json!({ "uid": live["metadata"]["uid"] });
    // Other stacks that share it apply the label that says who manages it, too.
    let alone = other_stacks(live, &context.owner.field_manager()).is_empty();
    if context.action == Action::Forget && alone {
        let labels = own_labels(live, &context.owner.stack);
        if !labels.is_empty() {
            metadata["labels"] = Value::Object(labels);
        }
    }
    let manager = encoded(&context.owner.field_manager());
    let without = context.removed_managers.to_vec();
    Call {
        api: Api::Kubernetes,
        method: Method::Merge,
        path: format!("{}?fieldManager={manager}", object.path()),
        body: Some(json!({ "metadata": metadata }).into()),
        deferred: vec![
            (FieldPath::keys(["metadata", "managedFields"]), Deferred::ManagedFields { without }),
            (FieldPath::keys(["metadata", "resourceVersion"]), Deferred::Version),
        ],
    }
}

/// Returns the merge patch that removes the labels of an object that name this stack.
fn own_labels(live: &Value, stack: &str) -> Map<String, Value> {
    let ours = [(OBJECT_LABEL_STACK, stack), (OBJECT_LABEL_MANAGED_BY, MANAGED_BY)];
    let labels = &live["metadata"]["labels"];
    let found = ours.into_iter().filter(|(key, value)| labels[*key] == *value);
    found.map(|(key, _)| (key.to_owned(), Value::Null)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_manager_go_and_all_others_stay() {
        let entry = |manager: &str, operation: &str| json!({ "manager": manager, "operation": operation });
        let live = |entries: &[Value]| json!({ "metadata": { "managedFields": entries } });
        let (apply, update) = (entry("dask-infra/a", "Apply"), entry("dask-infra/a", "Update"));
        let (initial, other) = (entry("dask-infra/a:initial", "Apply"), entry("dask-infra/ab", "Apply"));
        let all = live(&[apply.clone(), initial, other.clone(), update.clone()]);
        assert_eq!(own_managers(&all, "dask-infra/a"), ["dask-infra/a", "dask-infra/a:initial"]);
        assert_eq!(other_stacks(&all, "dask-infra/a"), ["dask-infra/ab"]);
        let ours: Vec<String> = own_managers(&all, "dask-infra/a").into_iter().map(str::to_owned).collect();
        assert_eq!(without(&all, &ours), json!([other, update]));
        assert_eq!(without(&live(&[apply]), &ours), json!([{}]), "an empty list would be taken for none");
    }
}
