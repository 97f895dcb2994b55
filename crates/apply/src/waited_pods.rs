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
        let pods: Vec<&Value> = lists.chain((own["kind"] == "Pod").then_some(own)).collect();
        let mut waiting: Vec<&Value> = pods.iter().copied().filter(is_unscheduled).collect();
        waiting.retain(|pod| !is_replaced(pod, &pods));
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
        let pods: Vec<&Value> = list.iter().collect();
        let waiting = pods.iter().copied().filter(is_unscheduled).filter(|pod| !is_replaced(pod, &pods));
        self.unscheduled = newest_of_each_pool(waiting.collect());
    }
}

fn is_unscheduled(pod: &&Value) -> bool {
    let state = PodState(pod);
    state.phase() == "Pending" && state.unscheduled().is_some() && !state.is_terminating()
}

/// Returns true for a pod of an earlier revision of a Deployment: it is deleted once a pod of the newest one is ready.
fn is_replaced(pod: &Value, pods: &[&Value]) -> bool {
    let Some((deployment, revision)) = deployment_of(pod) else { return false };
    let created = |pod: &Value| pod["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    pods.iter().any(|other| {
        let is_next = |(owner, hash): (String, String)| owner == deployment && hash != revision;
        deployment_of(other).is_some_and(is_next) && created(other) > created(pod)
    })
}

/// Returns the name of the Deployment of a pod, and the hash of its template.
fn deployment_of(pod: &Value) -> Option<(String, String)> {
    let hash = pod["metadata"]["labels"]["pod-template-hash"].as_str()?;
    let set = pod["metadata"]["ownerReferences"][0]["name"].as_str()?;
    Some((set.strip_suffix(hash)?.trim_end_matches('-').to_owned(), hash.to_owned()))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use kinds::dask::api;
    use kinds::scope::POOL_LABEL;
    use model::address::{Address, FieldPath};
    use model::resource::{Identity, KindId, ObjectId, Recreation};

    fn pod(name: &str, created: &str, pool: &str, group: &str) -> Value {
        json!({
            "metadata": { "name": name, "creationTimestamp": created, "labels": { "dask.org/workergroup-name": group } },
            "spec": { "nodeSelector": { POOL_LABEL: pool } },
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False" }] },
        })
    }

    fn names(pods: &WaitedPods) -> Vec<&str> {
        pods.unscheduled.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect()
    }

    #[test]
    fn pods_of_an_earlier_revision_do_not_count() {
        let of = |name: &str, hash: &str, created: &str| {
            let mut pod = pod(name, created, "a", "g");
            pod["metadata"]["labels"]["pod-template-hash"] = json!(hash);
            pod["metadata"]["ownerReferences"] =
                json!([{ "kind": "ReplicaSet", "name": format!("web-{hash}") }]);
            pod
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:09:00Z");
        let (old, mut new) = (of("old", "5d8f", early), of("new", "77bc", late));
        let mut pods = WaitedPods::default();
        pods.read(&[old.clone(), new.clone()]);
        assert_eq!(names(&pods), ["new"]);
        new["status"] = json!({ "phase": "Running" });
        pods.read(&[old.clone(), new]);
        assert!(names(&pods).is_empty());
        pods.read(&[old]);
        assert_eq!(names(&pods), ["old"]);
    }

    #[test]
    fn the_newest_own_pod_of_each_pool_counts() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:09:00Z");
        let mut ended = pod("ended", late, "c", "rapids-default");
        ended["status"]["phase"] = json!("Failed");
        let mut going = pod("going", late, "d", "rapids-default");
        going["metadata"]["deletionTimestamp"] = json!(late);
        let list = json!({ "items": [
            pod("old", early, "a", "rapids-default"), pod("new", late, "a", "rapids-default"),
            pod("other-pool", early, "b", "rapids-default"), pod("other-group", late, "e", "rapids-more"), ended, going,
        ] });
        let found = QueryResults::of([(Part::Pods, &list)]);
        let object = ObjectId {
            gvk: api::cluster(),
            namespace: Some("default".to_owned()),
            name: "rapids".to_owned(),
        };
        let cluster = Resource {
            address: Address::new("dask_cluster.rapids"),
            kind: KindId::DaskCluster,
            identity: Identity::Object(object),
            body: Value::Null,
            create_only: Value::Null,
            origin: FieldPath::root(),
            provenance: Vec::new(),
            depends_on: Vec::new(),
            protect: false,
            recreation: Recreation::Always,
        };
        assert_eq!(names(&WaitedPods::of(|| Some(&cluster), &found)), ["new", "other-pool"]);
        let none = json!({ "items": [] });
        let looked_up = || panic!("no Pod waits");
        assert!(WaitedPods::of(looked_up, &QueryResults::of([(Part::Pods, &none)])).unscheduled.is_empty());
    }
}
