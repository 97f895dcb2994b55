//! The number of workers that are registered with a scheduler, read through the API server's proxy. A worker that cannot reach
//! its scheduler computes nothing.

use serde_json::{Value, json};

use crate::dask::api::{self, CLUSTER_LABEL, COMPONENT_LABEL};
use crate::kubernetes::object::pods_labelled;
use crate::kubernetes::pod_state::PodState;
use model::resource::{Api, Query};

/// Returns the query for the scheduler's own counts. Source: `distributed/http/scheduler/json.py`, a route that is on by default.
pub fn counts(namespace: Option<&str>, cluster: &str) -> Query {
    let service = api::scheduler_service(namespace, cluster);
    Query { api: Api::Kubernetes, path: format!("{}:http-dashboard/proxy/json/counts.json", service.path()) }
}

/// Returns the query for all pods of a Dask cluster.
pub fn pods(namespace: Option<&str>, cluster: &str) -> Query {
    pods_labelled(namespace, [(CLUSTER_LABEL, cluster)])
}

/// The scheduler's report on the workers of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisteredWorkers {
    /// The numbers of ready pods and of registered workers.
    Counted {
        /// Pods of workers that are ready.
        ready: u64,
        /// How many of these are registered, as far as the numbers show.
        known: u64,
    },
    /// Why the scheduler's report was not read or contains no numbers.
    NotReported(String),
}

impl RegisteredWorkers {
    /// Counts the registered workers from the pods of a whole cluster and the result of [`counts`].
    pub fn of(pods: &Value, counts: &Value) -> Self {
        let Some(workers) = counts["workers"].as_u64() else {
            let why = counts
                .as_str()
                .filter(|why| why.len() < 100)
                .unwrap_or("its answer has no number of workers");
            return Self::NotReported(why.to_owned());
        };
        // A pod may run several workers, so enough of them do not tell that each pod has one; too few do tell.
        let ready = PodState::each(pods).filter(|pod| is_ready(*pod)).count() as u64;
        Self::Counted { ready, known: workers.min(ready) }
    }

    /// Describes workers that exist and are not registered; `None` when there are none.
    pub fn missing(&self) -> Option<String> {
        match self {
            Self::Counted { ready, known } if known < ready => {
                Some(format!("{} of {ready} workers not registered with the scheduler", ready - known))
            }
            Self::Counted { .. } | Self::NotReported(_) => None,
        }
    }

    /// Returns the end of a `status` line.
    pub fn status_line(&self) -> String {
        match self {
            Self::Counted { ready: 0, .. } => String::new(),
            Self::Counted { ready, known } if known < ready => {
                format!(", {} created, not registered", ready - known)
            }
            Self::Counted { .. } => ", all registered".to_owned(),
            Self::NotReported(why) => format!(", registered unknown ({why})"),
        }
    }

    /// Returns the number of registered workers for the JSON output; `null` if the scheduler was not read.
    pub fn fact(&self) -> Value {
        match self {
            Self::Counted { known, .. } => json!(known),
            Self::NotReported(_) => Value::Null,
        }
    }
}

fn is_ready(pod: PodState<'_>) -> bool {
    pod.label(COMPONENT_LABEL) == "worker" && pod.is_ready() && !pod.is_terminating()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_registered_when_the_scheduler_counts_them() {
        let pod = |component: &str, ready: &str| {
            json!({
                "metadata": { "labels": { "dask.org/component": component } },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] },
            })
        };
        let two =
            [pod("worker", "True"), pod("worker", "True"), pod("worker", "False"), pod("scheduler", "True")];
        let two = json!({ "items": two });
        let counted = |known| RegisteredWorkers::Counted { ready: 2, known };
        for (counts, expect) in [
            (json!({ "workers": 2 }), counted(2)),
            (json!({ "workers": 0 }), counted(0)),
            (json!({ "workers": 1 }), counted(1)),
            // One that is about to go is known, and not ready any more.
            (json!({ "workers": 3 }), counted(2)),
            (json!("it does not answer"), RegisteredWorkers::NotReported("it does not answer".into())),
            (Value::Null, RegisteredWorkers::NotReported("its answer has no number of workers".into())),
        ] {
            assert_eq!(RegisteredWorkers::of(&two, &counts), expect, "{counts}");
        }
        assert_eq!(counted(2).missing(), None);
        let missing = counted(1).missing().unwrap_or_default();
        assert_eq!(missing, "1 of 2 workers not registered with the scheduler");
        assert_eq!(counted(1).status_line(), ", 1 created, not registered");
    }
}
