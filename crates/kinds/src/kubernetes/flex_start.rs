//! Pods that wait for flex-start nodes count as queued, not as failed. Source: "About GPU obtainability with flex-start
//! provisioning mode" of GKE's documentation.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::json::text;
use crate::kind::QueryResults;
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::why::{NO_LABELS, no_node};
use crate::scope::POOL_LABEL;
use model::resource::{Queued, Readiness};

/// The label of flex-start nodes.
const FLEX_LABEL: &str = "cloud.google.com/gke-flex-start";

/// Returns the names of the flex-start pools in `all`.
pub fn flex_start_pools<'v>(all: impl IntoIterator<Item = (&'v str, &'v Value)>) -> BTreeSet<String> {
    let flex = |(_, pool): &(&str, &Value)| pool["config"]["flexStart"] == true;
    all.into_iter().filter(flex).map(|(name, _)| name.to_owned()).collect()
}

/// Turns the readiness of a resource that is not ready into queued if its pods wait for flex-start nodes.
pub fn mark_queued(readiness: Readiness, found: &QueryResults, pools: &BTreeSet<String>) -> Readiness {
    match readiness {
        Readiness::Progressing(_) | Readiness::Unhandled(_) | Readiness::Stalled(_) => {
            queued(found, pools).map_or(readiness, Readiness::Queued)
        }
        other @ (Readiness::Ready | Readiness::Impaired(_) | Readiness::Queued(_) | Readiness::Failed(_)) => {
            other
        }
    }
}

fn queued(found: &QueryResults, pools: &BTreeSet<String>) -> Option<Queued> {
    let lists = found.all().filter_map(|part| part["items"].as_array());
    let mut waiting: Vec<(&str, &Value, &str)> = Vec::new();
    for pod in lists.flatten().map(PodState) {
        let selector = &pod.0["spec"]["nodeSelector"];
        let pool = selector[POOL_LABEL].as_str().filter(|pool| pools.contains(*pool));
        let flex = || (selector[FLEX_LABEL] == "true").then_some("flex-start");
        let (Some(of), Some(told)) = (pool.or_else(flex), pod.unscheduled()) else { continue };
        if !waiting.iter().any(|(name, ..)| *name == pod.name()) {
            waiting.push((pod.name(), told, of));
        }
    }
    let (_, first, of) = waiting.iter().min_by_key(|(_, told, _)| text(&told["lastTransitionTime"]))?;
    let number = waiting.len();
    let (pods, wait) = if number == 1 { ("pod", "waits") } else { ("pods", "wait") };
    let of = match *of {
        "flex-start" => "of flex-start".to_owned(),
        pool => format!("of the pool {pool} (flex-start)"),
    };
    // That nodes of other pools have other labels says nothing about machines that are not there yet.
    let why = Some(no_node(text(&first["message"]))).filter(|why| *why != NO_LABELS);
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Some(Queued::since(
        format!("{number} {pods} {wait} for machines {of}{why}"),
        &first["lastTransitionTime"],
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Part;

    fn pod(name: &str, selector: Value, scheduled: &str) -> Value {
        json!({
            "metadata": { "name": name }, "spec": { "nodeSelector": selector },
            "status": { "phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": scheduled, "reason": "Unschedulable", "message": "0/1 nodes are available",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }] },
        })
    }

    #[test]
    fn pods_of_flex_start_that_have_no_node_are_queued() {
        let pools = flex_start_pools([
            ("flex", &json!({ "config": { "flexStart": true } })),
            ("cpu", &json!({ "config": {} })),
        ]);
        let of = |pods: Vec<Value>| {
            let list = json!({ "items": pods });
            let found = QueryResults::of([(Part::Pods, &list)]);
            mark_queued(Readiness::progressing("1 of 2"), &found, &pools)
        };
        let (flex, cpu) = (json!({ POOL_LABEL: "flex" }), json!({ POOL_LABEL: "cpu" }));
        let Readiness::Queued(told) =
            of(vec![pod("a", flex.clone(), "False"), pod("b", flex.clone(), "True")])
        else {
            panic!("not queued")
        };
        let said = told.to_string();
        assert!(
            said.starts_with("queued since 2026-01-01T00:00:00Z: 1 pod waits for machines of the pool flex"),
            "{said}"
        );
        assert!(matches!(of(vec![pod("a", json!({ FLEX_LABEL: "true" }), "False")]), Readiness::Queued(_)));
        let waits = Readiness::progressing("1 of 2");
        assert_eq!(of(vec![pod("a", cpu, "False")]), waits);
        assert_eq!(of(vec![pod("a", flex, "True")]), waits);
        assert_eq!(of(vec![]), waits);
    }
}
