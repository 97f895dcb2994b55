//! Pods of what is waited for, by a look at it.

use std::cmp::Reverse;

use serde_json::Value;

use kinds::dask::why::own_pods;
use kinds::kind::{Part, QueryResults};
use kinds::kubernetes::pod_state::PodState;
use kinds::kubernetes::pods::selected;
use kinds::scope::POOL_LABEL;
use model::resource::{Query, Resource};

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
    /// Returns the pods by a look at a resource; those of others that it may read beside its own do not count.
    pub fn of(resource: Option<&Resource>, found: &QueryResults) -> Self {
        let own = found.own_object();
        let parts = [Part::Pods, Part::Program, Part::Itself].into_iter().filter_map(|part| found.find(part));
        let pods = parts.flat_map(|answer| match resource {
            Some(resource) => own_pods(resource, answer),
            None => answer["items"].as_array().into_iter().flatten().collect(),
        });
        let unscheduled = unscheduled(pods);
        // Deployments and the like count their pods themselves.
        let query = if unscheduled.is_empty() { selected(own) } else { None };
        Self { unscheduled, query }
    }
}

/// Returns the pods that no node takes, the newest of each pool that they select: earlier ones may be of an earlier revision.
pub fn unscheduled<'p>(all: impl Iterator<Item = &'p Value>) -> Vec<Value> {
    let waits = |pod: &&Value| {
        let state = PodState(pod);
        state.phase() == "Pending" && state.unscheduled().is_some() && !state.is_terminating()
    };
    let mut waiting: Vec<&Value> = all.filter(waits).collect();
    waiting.sort_by_key(|pod| Reverse(pod["metadata"]["creationTimestamp"].as_str()));
    let mut pods: Vec<Value> = Vec::new();
    for pod in waiting {
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
