//! The objects that the Dask operator creates, as `dask_kubernetes/operator/controller/controller.py` of 2026.3.0
//! builds them.

use serde_json::{Map, Value, json};

use crate::kube::object::{labels, list, name, namespace, reference_to, text};

/// Annotations of these domains are not handed down.
const KEPT_BACK: [&str; 2] = ["kopf.zalando.org", "kubectl.kubernetes.io"];
const CLUSTER: &str = "dask.org/cluster-name";
const COMPONENT: &str = "dask.org/component";
const GROUP: &str = "dask.org/workergroup-name";
const ISTIO: &str = "sidecar.istio.io/inject";

/// The labels and annotations that a child inherits: the parent's, with `section.metadata` over them.
struct Inherited {
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
}

impl Inherited {
    fn of(parent: &Value, section: &Value) -> Self {
        let map = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
        let mut labels = map(parent.pointer("/metadata/labels"));
        labels.extend(map(section.pointer("/metadata/labels")));
        let mut annotations = map(parent.pointer("/metadata/annotations"));
        annotations.retain(|key, _| !KEPT_BACK.iter().any(|domain| key.starts_with(domain)));
        annotations.extend(map(section.pointer("/metadata/annotations")));
        Self { labels, annotations }
    }

    fn reserve(mut self, reserved: &[(&str, &str)]) -> Self {
        self.labels.extend(reserved.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
        self
    }
}

/// `kopf.adopt`: the owner's reference and namespace, and those of its labels that the child lacks.
fn adopt(metadata: &mut Value, owner: &Value) {
    metadata["ownerReferences"] = json!([reference_to(owner)]);
    metadata["namespace"] = json!(namespace(owner));
    add_labels(metadata, &labels(owner));
}

fn add_labels(metadata: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        if metadata["labels"].get(key).is_none() {
            metadata["labels"][key] = value.clone();
        }
    }
}

/// A Deployment of one replica. The operator shares one metadata map between the Deployment and its
/// template, and its labels with the selector: what adoption adds shows up in all three.
fn deployment(metadata: &Value, pod_spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": metadata["labels"]},
            "template": {"metadata": metadata, "spec": pod_spec},
        },
    })
}

/// Where a cluster's scheduler listens.
fn scheduler_address(cluster: &str, place: &str) -> String {
    format!("tcp://{cluster}-scheduler.{place}.svc.cluster.local:8786")
}

/// Appends environment variables to every container that does not have them.
fn add_env(pod_spec: &mut Value, env: &[(&str, &str)]) {
    for container in pod_spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        let mut all = list(container, "/env").to_vec();
        for (key, value) in env {
            if !all.iter().any(|known| known["name"] == **key) {
                all.push(json!({"name": key, "value": value}));
            }
        }
        container["env"] = Value::Array(all);
    }
}

pub fn scheduler_deployment(cluster: &Value) -> Value {
    let section = &cluster["spec"]["scheduler"];
    let inherited = Inherited::of(cluster, section).reserve(&[
        (CLUSTER, name(cluster)),
        (COMPONENT, "scheduler"),
        (ISTIO, "false"),
    ]);
    let mut metadata = json!({
        "name": format!("{}-scheduler", name(cluster)), "labels": inherited.labels,
        "annotations": inherited.annotations,
    });
    adopt(&mut metadata, cluster);
    deployment(&metadata, &section["spec"])
}

/// The scheduler's Service: its spec is taken as written.
pub fn scheduler_service(cluster: &Value) -> Value {
    let section = &cluster["spec"]["scheduler"];
    let inherited =
        Inherited::of(cluster, section).reserve(&[(CLUSTER, name(cluster)), (COMPONENT, "scheduler")]);
    let mut metadata = json!({
        "name": format!("{}-scheduler", name(cluster)), "labels": inherited.labels,
        "annotations": inherited.annotations,
    });
    adopt(&mut metadata, cluster);
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": section["service"]})
}

/// The default worker group; its own create handler has it adopted later.
pub fn default_group(cluster: &Value) -> Value {
    let section = &cluster["spec"]["worker"];
    let inherited =
        Inherited::of(cluster, section).reserve(&[(CLUSTER, name(cluster)), (COMPONENT, "workergroup")]);
    json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskWorkerGroup",
        "metadata": {
            "name": format!("{}-default", name(cluster)), "namespace": namespace(cluster),
            "labels": inherited.labels, "annotations": inherited.annotations,
        },
        "spec": {"cluster": name(cluster), "worker": section},
    })
}

/// One worker of a group; `id` are its ten hexadecimal digits.
pub fn worker_deployment(group: &Value, cluster: &Value, id: &str) -> Value {
    let section = &group["spec"]["worker"];
    let cluster_name = text(group, "/spec/cluster");
    let inherited = Inherited::of(group, section).reserve(&[
        (CLUSTER, cluster_name),
        (GROUP, name(group)),
        (COMPONENT, "worker"),
        (ISTIO, "false"),
    ]);
    let worker = format!("{}-worker-{id}", name(group));
    let mut metadata =
        json!({"name": worker, "labels": inherited.labels, "annotations": inherited.annotations});
    adopt(&mut metadata, group);
    add_labels(&mut metadata, &labels(cluster));
    let mut spec = section["spec"].clone();
    let address = scheduler_address(cluster_name, namespace(group));
    add_env(&mut spec, &[("DASK_WORKER_NAME", &worker), ("DASK_SCHEDULER_ADDRESS", &address)]);
    deployment(&metadata, &spec)
}

/// The cluster of a job, under the job's name. Only the worker and scheduler sections are passed on.
pub fn job_cluster(job: &Value) -> Value {
    let section = &job["spec"]["cluster"];
    let inherited = Inherited::of(job, section).reserve(&[(CLUSTER, name(job))]);
    let mut metadata =
        json!({"name": name(job), "labels": inherited.labels, "annotations": inherited.annotations});
    adopt(&mut metadata, job);
    json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "metadata": metadata,
        "spec": {"worker": section["spec"]["worker"], "scheduler": section["spec"]["scheduler"]},
    })
}

/// The pod that runs a job's program.
pub fn job_runner(job: &Value) -> Value {
    let section = &job["spec"]["job"];
    let inherited = Inherited::of(job, section).reserve(&[
        (CLUSTER, name(job)),
        (COMPONENT, "job-runner"),
        (ISTIO, "false"),
    ]);
    let mut metadata = json!({
        "name": format!("{}-runner", name(job)), "labels": inherited.labels, "annotations": inherited.annotations,
    });
    adopt(&mut metadata, job);
    let mut spec = section["spec"].clone();
    let address = scheduler_address(name(job), namespace(job));
    add_env(&mut spec, &[("DASK_SCHEDULER_ADDRESS", &address)]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}
