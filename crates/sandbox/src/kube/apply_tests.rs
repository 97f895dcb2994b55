//! The cases in `tests/cases-ssa` were run through the real implementation (apimachinery 0.36.1 with
//! structured-merge-diff 6.4.2 over Kubernetes 1.36 schemas, without defaulting); ours must agree.

use serde_json::{Value, json};

use super::*;
use crate::kube::scheme::Kinds;

/// A built-in kind without what the API server's own types add: zero structs and status doors.
fn bare(api_version: &str, kind: &str) -> Kind {
    let kind = Kinds::default().by_kind(api_version, kind).unwrap();
    Kind { origin: Origin::Custom, subresources: Vec::new(), ..kind.as_ref().clone() }
}

fn owners(object: &Value) -> Value {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).cloned();
    let owners: Vec<Value> = entries
        .unwrap_or_default()
        .iter()
        .map(|entry| {
            json!({"manager": entry["manager"], "operation": entry["operation"],
                "timed": entry.get("time").is_some(), "fields": entry["fieldsV1"]})
        })
        .collect();
    Value::Array(owners)
}

fn sorted(list: &Value) -> Vec<String> {
    let mut texts: Vec<String> = list.as_array().into_iter().flatten().map(ToString::to_string).collect();
    texts.sort();
    texts
}

#[test]
fn ownership_is_as_in_the_real_implementation() {
    let cases: Value = serde_json::from_str(include_str!("../../../../tests/cases-ssa/cases.json")).unwrap();
    let mut failures = Vec::new();
    for case in cases.as_array().unwrap() {
        let kind = bare(text(case, "/apiVersion"), text(case, "/kind"));
        let mut live: Option<Value> = None;
        for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{} step {index}", text(case, "/name"));
            let object = &step["object"];
            let now = Timestamp::from_second(1_800_000_000 + i64::try_from(index).unwrap()).unwrap();
            let writer = Writer { manager: text(step, "/manager"), subresource: "", now };
            let result = if step["op"] == "apply" {
                let force = if step["force"] == true { Force::Yes } else { Force::No };
                apply(&kind, live.as_ref(), object, writer, force)
            } else {
                let mut new = object.clone();
                update(&kind, live.as_ref(), &mut new, writer);
                Ok(new)
            };
            match (result, step.get("error").and_then(Value::as_str)) {
                (Ok(new), None) => {
                    if without_entries(&new) != step["live"] {
                        failures.push(format!(
                            "{place}: object\n  ours {}\n  real {}",
                            without_entries(&new),
                            step["live"]
                        ));
                    }
                    if sorted(&owners(&new)) != sorted(&step["owners"]) {
                        failures.push(format!(
                            "{place}: owners\n  ours {}\n  real {}",
                            owners(&new),
                            step["owners"]
                        ));
                    }
                    live = Some(new);
                }
                (Err(status), Some("conflict")) => {
                    let causes: Vec<Value> = status
                        .causes
                        .iter()
                        .map(|cause| json!(format!("{} {}", cause.field, cause.message)))
                        .collect();
                    if sorted(&json!(causes)) != sorted(&step["causes"]) {
                        failures.push(format!(
                            "{place}: conflicts\n  ours {causes:?}\n  real {}",
                            step["causes"]
                        ));
                    }
                }
                (Err(status), Some(error)) => {
                    if status.message != error {
                        failures.push(format!("{place}: message\n  ours {}\n  real {error}", status.message));
                    }
                }
                (Ok(new), Some(error)) => {
                    failures.push(format!("{place}: accepted {new}, real says {error}"));
                }
                (Err(status), None) => failures.push(format!("{place}: refused: {status}")),
            }
        }
    }
    assert!(failures.is_empty(), "{} differ\n{}", failures.len(), failures.join("\n"));
}
