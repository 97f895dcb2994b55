//! Pods of what is waited for, by a look at it.

use std::cmp::Reverse;

use serde_json::Value;

use kinds::dask::why::is_own_pod;
use kinds::kind::{Part, QueryResults};
use kinds::kubernetes::pod_state::PodState;
use kinds::kubernetes::pods::selected;
use kinds::pod::selected_pool;
use model::resource::{Query, Resource};

/// Pools whose pods are looked at in one look.
const MAX_POOLS: usize = 4;

/// The pods of a resource that is waited for.
#[derive(Debug, Default)]
pub struct WaitedPods {
    /// The pods that no node takes, one for each pool that they select.
    pub unscheduled: Vec<Value>,
    /// The query for the pods, where the look at the resource did not read them.
    pub query: Option<Query>,
}

impl WaitedPods {
    /// Returns the pods by a look at a resource, which may have read pods of other resources, too. Most looks find none without a
    /// node: only then is the resource looked up.
    pub fn of<'r>(resource: impl FnOnce() -> Option<&'r Resource>, found: &QueryResults) -> Self {
        let own = found.own_object();
        let lists = [Part::Pods, Part::Program].into_iter().filter_map(|part| found.find(part));
        let lists = lists.filter_map(|list| list["items"].as_array()).flatten();
        let pods = lists.chain((own["kind"] == "Pod").then_some(own));
        let mut waiting: Vec<&Value> = pods.filter(is_unscheduled).collect();
        if !waiting.is_empty()
            && let Some(resource) = resource()
        {
            waiting.retain(|pod| is_own_pod(resource, pod));
        }
        let unscheduled = newest_of_each_pool(waiting);
        // Deployments and the like count their pods themselves.
        let query = if unscheduled.is_empty() { selected(own) } else { None };
        Self { unscheduled, query }
    }

    /// Takes the pods of a list that no node takes.
    pub fn read(&mut self, list: &[Value]) {
        self.unscheduled = newest_of_each_pool(list.iter().filter(is_unscheduled).collect());
    }
}

fn is_unscheduled(pod: &&Value) -> bool {
    let state = PodState(pod);
    state.phase() == "Pending" && state.unscheduled().is_some() && !state.is_terminating()
}

/// Returns the newest pod of each pool that they select: earlier ones may be of an earlier revision.
fn newest_of_each_pool(mut waiting: Vec<&Value>) -> Vec<Value> {
    waiting.sort_by_key(|pod| Reverse(pod["metadata"]["creationTimestamp"].as_str()));
    let mut pods: Vec<Value> = Vec::new();
    for pod in waiting {
        let is_known = pods.iter().any(|other| selected_pool(&other["spec"]) == selected_pool(&pod["spec"]));
        if pods.len() < MAX_POOLS && !is_known {
            pods.push(pod.clone());
        }
    }
    pods
}
