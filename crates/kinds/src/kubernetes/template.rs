//! Pods from the short keys that sections share: resources, placement, dependencies.

use serde_json::{Value, json};

use crate::dask_config::DaskConfig;
use crate::driver_path;
use crate::env;
use crate::node_selection::Machines;
use crate::scope::{POOL_LABEL, Scope};
use crate::section::PodKeys;
use crate::security_defaults;
use crate::worker_resources::WorkerResources;
use model::address::{Address, FieldPath};

/// The taint of nodes for queued requests. GKE adds it to pools with `queued`. GKE may or may not add the toleration to pods that
/// use a request, so it is always set.
pub const QUEUED_TAINT: &str = "cloud.google.com/gke-queued";

/// Settings of a pod in the short form that sections share.
pub struct PodSpecKeys<'a> {
    pub image: &'a str,
    /// Arguments of the image's entry point; empty for the default ones.
    pub args: &'a [String],
    /// Its other settings, such as its resources and where it runs.
    pub keys: &'a PodKeys,
    /// Dask's own resources, for workers.
    pub resources: Option<&'a WorkerResources>,
    /// Dask's configuration, for schedulers, workers and clients.
    pub config: Option<&'a DaskConfig>,
}

/// Returns the addresses that a resource with these pods depends on: its namespace, the operator that creates the pods, the
/// pools, and for GPUs the driver and the checks of those pools. A check needs a free GPU, so it comes first.
pub fn dependencies(
    pods: &[&PodSpecKeys],
    namespace: &str,
    operator: Option<Address>,
    scope: &Scope,
) -> Vec<Address> {
    let pools: Vec<&String> =
        pods.iter().flat_map(|pod| [&pod.keys.pool, &pod.keys.prefer_pool]).flatten().collect();
    let mut depends_on = scope.namespace_dependencies(namespace);
    depends_on.extend(operator);
    depends_on.extend(pools.iter().map(|pool| Address::of("node_pool", pool)));
    if pods.iter().any(|pod| pod.keys.gpus() > 0) {
        depends_on.extend(scope.section("gpu_driver"));
    }
    let variables = pods.iter().flat_map(|pod| pod.keys.env.values());
    depends_on.extend(env::dependencies(variables, namespace, &scope.owner));
    let ours = |pool: &Option<String>| pool.as_ref().is_none_or(|pool| pools.contains(&pool));
    depends_on.extend(scope.checks.iter().filter(|(_, pool)| ours(pool)).map(|(address, _)| address.clone()));
    depends_on
}

/// Returns the provenance of the fields of a PodSpec.
pub fn provenance(pod: &FieldPath, section: &FieldPath, image: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
    let container = pod.key("containers").index(0);
    let mut provenance = vec![
        (pod.clone(), section.clone()),
        (container.key("image"), image.clone()),
        (container.key("args"), section.key("args")),
        (container.key("env"), section.key("env")),
        (container.key("resources"), section.key("gpus")),
        (pod.key("nodeSelector"), section.key("pool")),
        (pod.key("affinity"), section.key("prefer_pool")),
    ];
    for list in ["requests", "limits"] {
        let amounts = container.key("resources").key(list);
        provenance.extend(["cpu", "memory"].map(|name| (amounts.key(name), section.key(name))));
    }
    provenance.extend(Machines::provenance(pod, section));
    let confined = section.key("confined");
    let bounds = [
        pod.key("automountServiceAccountToken"),
        pod.key("securityContext"),
        container.key("securityContext"),
    ];
    provenance.extend(bounds.map(|bound| (bound, confined.clone())));
    provenance
}

/// Returns a PodSpec with one container, of which only the image is set.
pub fn bare(name: &str, pod_keys: &PodSpecKeys, scope: &Scope) -> Value {
    pod(json!({ "name": name, "image": pod_keys.image, "imagePullPolicy": "IfNotPresent" }), pod_keys, scope)
}

/// Returns a PodSpec with one container, its resources, and the nodes that it may run on.
pub fn pod(mut container: Value, pod_keys: &PodSpecKeys, scope: &Scope) -> Value {
    let PodKeys {
        gpus: _,
        cpu: _,
        memory: _,
        pool,
        prefer_pool,
        machines,
        env: variables,
        labels: _,
        annotations: _,
        pod: _,
        confined: _,
    } = pod_keys.keys;
    let gpus = pod_keys.keys.gpus();
    let find = |key: &Option<String>| key.as_ref().and_then(|key| scope.pool(key));
    let (pool, prefer) = (find(pool), find(prefer_pool));
    if !variables.is_empty() {
        container["env"] = env::list(variables, &env::own_secret(&scope.owner));
    }
    if let Some(config) = pod_keys.config {
        config.add_to_container(&mut container, variables);
    }
    if gpus > 0 && driver_path::is_needed(scope) {
        driver_path::add(&mut container);
    }
    // Quantities as text: the schema of these kinds refuses numbers.
    for (resource, amount) in pod_keys.keys.quantities() {
        container["resources"]["requests"][resource] = json!(amount);
        container["resources"]["limits"][resource] = json!(amount);
    }
    let mut tolerations = Vec::new();
    if gpus > 0 {
        container["resources"]["limits"]["nvidia.com/gpu"] = json!(gpus.to_string());
        tolerations.push(json!({ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }));
    }
    for taint in pool.iter().chain(&prefer).flat_map(|pool| &pool.taints) {
        let toleration = json!({
            "key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect.kubernetes(),
        });
        if taint.key != "nvidia.com/gpu" && !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    if pool.iter().chain(&prefer).any(|pool| pool.queued) {
        tolerations.push(json!({ "key": QUEUED_TAINT, "operator": "Exists", "effect": "NoSchedule" }));
    }
    let mut pod_spec = json!({ "containers": [container] });
    if !tolerations.is_empty() {
        pod_spec["tolerations"] = json!(tolerations);
    }
    if let Some(pool) = pool {
        pod_spec["nodeSelector"] = json!({ POOL_LABEL: pool.name });
    }
    if let Some(prefer) = prefer {
        let matches = json!([{ "key": POOL_LABEL, "operator": "In", "values": [prefer.name] }]);
        pod_spec["affinity"] = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 100, "preference": { "matchExpressions": matches } },
        ] } });
    }
    machines.add_to_pod(&mut pod_spec);
    if pod_keys.keys.has_security_defaults() {
        security_defaults::apply(&mut pod_spec);
    }
    pod_spec
}
