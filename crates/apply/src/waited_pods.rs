//! Pods of what is waited for, by a look at it.

use serde_json::Value;

use kinds::kind::QueryResults;
use kinds::kubernetes::pod_state::PodState;
use kinds::kubernetes::pods::selected;
use kinds::scope::POOL_LABEL;
use model::resource::Query;

/// Pools whose pods are looked at in one look.
const MAX_POOLS: usize = 4;

/// The pods of a resource that is waited for.
#[derive(Debug, Default)]
pub struct WaitedPods {
    /// Those that no node takes, one for each pool that they select.
    pub unscheduled: Vec<Value>,
    /// The query for them, where the look at the resource did not read them.
    pub query: Option<Query>,
}

impl WaitedPods {
    /// Returns the pods by a look at a resource.
    pub fn of(found: &QueryResults) -> Self {
        let lists = found.all().filter_map(|part| part["items"].as_array()).flatten();
        let own = found.own_object();
        let pods = lists.chain((own["kind"] == "Pod").then_some(own));
        let unscheduled = unscheduled(pods);
        // Deployments and the like count their pods themselves.
        let query = if unscheduled.is_empty() { selected(own) } else { None };
        Self { unscheduled, query }
    }
}

/// Returns the pods that no node takes, one for each pool that they select.
pub fn unscheduled<'p>(all: impl Iterator<Item = &'p Value>) -> Vec<Value> {
    let mut pods: Vec<Value> = Vec::new();
    for pod in all.filter(|pod| PodState(pod).unscheduled().is_some() && !PodState(pod).is_terminating()) {
        let is_known = pods.iter().any(|other| selected_pool(other) == selected_pool(pod));
        if pods.len() < MAX_POOLS && !is_known {
            pods.push(pod.clone());
        }
    }
    pods
}

/// Returns the name of the pool that a pod selects.
pub fn selected_pool(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeSelector"][POOL_LABEL].as_str()
}
