//! The pods that belong to a thing of a stack, for whoever wants their logs.

use crate::kinds::json::count;
use serde_json::Value;

use crate::kinds::dask;
use crate::kinds::json::text;
use crate::kinds::kubernetes::check;
use crate::kinds::kubernetes::object::gvk;
use crate::resource::{Api, Identity, Query, Resource};

/// Kinds that select their pods themselves.
const SELECTING: &[(&str, &str)] = &[
    ("apps", "Deployment"),
    ("apps", "DaemonSet"),
    ("apps", "StatefulSet"),
    ("apps", "ReplicaSet"),
    ("batch", "Job"),
];

/// Where the pods of a thing are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// A LIST of them, or the one.
    Here(Query),
    /// The live object says it; [`selected`] reads it.
    Ask(Query),
    /// It has none.
    Nowhere,
}

/// Where the pods of a resource are.
pub fn of(resource: &Resource) -> Where {
    let query = |path: String| Query { api: Api::Kubernetes, path };
    let object = match &resource.identity {
        Identity::Object(object) => object,
        Identity::Check(_) => return Where::Here(query(check::pod(&resource.body).path())),
        Identity::Cluster(_) | Identity::NodePool { .. } => return Where::Nowhere,
    };
    let namespace = object.namespace.as_deref();
    let labelled = |label: &str| {
        let pods = gvk("", "v1", "Pod", "pods").collection(namespace);
        Where::Here(query(format!("{pods}?labelSelector=dask.org%2F{label}%3D{}", object.name)))
    };
    let (group, kind) = (object.gvk.group.as_str(), object.gvk.kind.as_str());
    if object.gvk == dask::cluster::api() || object.gvk == dask::job::api() {
        // A job's cluster is called as the job, and its program's pod is labelled like the others.
        labelled("cluster-name")
    } else if object.gvk == dask::group::api() {
        labelled("workergroup-name")
    } else if (group, kind) == ("", "Pod") {
        Where::Here(query(object.path()))
    } else if SELECTING.contains(&(group, kind)) {
        match selected(&resource.body) {
            Some(query) => Where::Here(query),
            None => Where::Ask(query(object.path())),
        }
    } else {
        Where::Nowhere
    }
}

/// The LIST of the pods that an object selects, when it says so.
pub fn selected(object: &Value) -> Option<Query> {
    let labels = object["spec"]["selector"]["matchLabels"].as_object().filter(|labels| !labels.is_empty())?;
    let pairs = labels.iter().map(|(key, value)| format!("{}%3D{}", key.replace('/', "%2F"), text(value)));
    let pairs = pairs.collect::<Vec<_>>().join("%2C");
    let pods = gvk("", "v1", "Pod", "pods").collection(object["metadata"]["namespace"].as_str());
    Some(Query { api: Api::Kubernetes, path: format!("{pods}?labelSelector={pairs}") })
}

/// A container of a pod, with a log of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Container {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The place among the pod's containers; those that run first come first.
    pub place: usize,
    /// The container.
    pub name: String,
    /// Tells the pod from another one of its name.
    pub uid: String,
    /// How often it was started again: each start has a log of its own.
    pub restarts: u64,
    /// Why there is no log yet.
    pub waits: Option<String>,
    /// How it ended: `ended with code 0`.
    pub ended: Option<String>,
}

/// Containers of a LIST of pods, or of one pod, by pod and in the order in which they start.
pub fn containers(found: &Value) -> Vec<Container> {
    let mut all: Vec<Container> = match found["items"].as_array() {
        Some(pods) => pods.iter().flat_map(of_pod).collect(),
        None => of_pod(found),
    };
    all.sort();
    all.dedup();
    all
}

fn of_pod(pod: &Value) -> Vec<Container> {
    let metadata = |key: &str| text(&pod["metadata"][key]).to_owned();
    let lists: [(&str, &str); 2] =
        [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")];
    let all = lists.iter().flat_map(|(list, statuses)| {
        let containers = pod["spec"][*list].as_array().into_iter().flatten();
        containers.map(move |container| (container, *statuses))
    });
    let one = |(place, (container, statuses)): (usize, (&Value, &str))| {
        let of = pod["status"][statuses].as_array().into_iter().flatten();
        let status = of.into_iter().find(|status| status["name"] == container["name"]);
        Container {
            namespace: metadata("namespace"),
            pod: metadata("name"),
            place,
            name: text(&container["name"]).to_owned(),
            uid: metadata("uid"),
            restarts: status.map_or(0, |status| count(&status["restartCount"])),
            waits: waits(status),
            ended: status.and_then(ended),
        }
    };
    all.enumerate().map(one).collect()
}

fn ended(status: &Value) -> Option<String> {
    let code = status["state"]["terminated"]["exitCode"].as_i64()?;
    Some(format!("ended with code {code}"))
}

/// A container that waits has no log, unless it ran before.
fn waits(status: Option<&Value>) -> Option<String> {
    let Some(status) = status else { return Some("it has not started".to_owned()) };
    let waiting = &status["state"]["waiting"];
    if !waiting.is_object() || status["lastState"]["terminated"].is_object() {
        return None;
    }
    Some(match text(&waiting["reason"]) {
        "" => "it has not started".to_owned(),
        reason => reason.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::address::{Address, FieldPath};
    use crate::resource::KindId;
    use crate::resource::{Gvk, Life, ObjectId};

    fn resource(gvk: Gvk, body: Value) -> Resource {
        Resource {
            address: Address::new("x.y"),
            identity: Identity::Object(ObjectId { gvk, namespace: Some("n".into()), name: "y".into() }),
            kind: KindId::Object,
            body,
            initial: Value::Null,
            origin: FieldPath::root(),
            origins: Vec::new(),
            follows: Vec::new(),
            protect: false,
            life: Life::Kept,
        }
    }

    #[test]
    fn pods_are_found_by_the_operators_labels_and_by_selectors() {
        let here = |resource: &Resource| match of(resource) {
            Where::Here(query) => query.path,
            other => format!("{other:?}"),
        };
        let pods = "/api/v1/namespaces/n/pods";
        let cluster = resource(dask::cluster::api(), Value::Null);
        assert_eq!(here(&cluster), format!("{pods}?labelSelector=dask.org%2Fcluster-name%3Dy"));
        let group = resource(dask::group::api(), Value::Null);
        assert_eq!(here(&group), format!("{pods}?labelSelector=dask.org%2Fworkergroup-name%3Dy"));
        let deployment = gvk("apps", "v1", "Deployment", "deployments");
        let body = json!({ "metadata": { "namespace": "n" }, "spec": { "selector": { "matchLabels": { "a/b": "c", "d": "e" } } } });
        assert_eq!(
            here(&resource(deployment.clone(), body)),
            format!("{pods}?labelSelector=a%2Fb%3Dc%2Cd%3De")
        );
        assert!(
            matches!(of(&resource(deployment, Value::Null)), Where::Ask(_)),
            "what others own says it itself"
        );
        assert_eq!(of(&resource(gvk("", "v1", "Service", "services"), Value::Null)), Where::Nowhere);
    }

    #[test]
    fn containers_come_in_the_order_of_their_start() {
        let pod = |name: &str, statuses: Value| {
            json!({
                "metadata": { "name": name, "namespace": "n", "uid": name },
                "spec": { "initContainers": [{ "name": "install" }], "containers": [{ "name": "a" }, { "name": "b" }] },
                "status": { "containerStatuses": statuses },
            })
        };
        let waiting = json!({ "waiting": { "reason": "ContainerCreating" } });
        let again = json!({ "name": "b", "restartCount": 2, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                            "lastState": { "terminated": { "exitCode": 1 } } });
        let first = pod("p1", json!([{ "name": "a", "state": waiting }, again]));
        let second = pod("p2", json!([{ "name": "a", "state": { "running": {} } }]));
        let found = containers(&json!({ "items": [second, first] }));
        let told: Vec<String> = found
            .iter()
            .map(|one| {
                format!(
                    "{}/{} {} {}",
                    one.pod,
                    one.name,
                    one.restarts,
                    one.waits.as_deref().unwrap_or("runs")
                )
            })
            .collect();
        assert_eq!(told[..3], ["p1/install 0 it has not started", "p1/a 0 ContainerCreating", "p1/b 2 runs"]);
        assert_eq!(told[4], "p2/a 0 runs");
    }
}
