//! The live objects by path, without values that differ between two equal runs.

use std::collections::{BTreeMap, BTreeSet};

use live::{LiveApi as _, Request};
use model::resource::Api as Which;
use serde_json::{Value, json};

use super::harness::{Api, Harness, Stack};

impl Harness {
    /// The live things by path, without fields that differ from run to run; of things that a controller made only
    /// how many there are.
    pub async fn world(&self, stack: &Stack) -> BTreeMap<String, Value> {
        let mut world = BTreeMap::new();
        let mut autoscaled = BTreeSet::new();
        let clusters = self.gke("GET", "/v1/projects/demo/locations/-/clusters", &Value::Null);
        for mut cluster in clusters["clusters"].as_array().cloned().unwrap_or_default() {
            let name = cluster["name"].as_str().unwrap().to_owned();
            let pools = cluster["nodePools"].take();
            for pool in pools.as_array().into_iter().flatten() {
                let key = pool["name"].as_str().unwrap();
                if pool["autoscaling"]["enabled"] == true {
                    autoscaled.insert(key.to_owned());
                }
                world.insert(format!("{name}/{key}"), normal(pool));
            }
            // These echo the pool that happened to be made first.
            for echo in ["nodeConfig", "nodePools", "initialNodeCount", "ipAllocationPolicy"] {
                cluster.as_object_mut().unwrap().remove(echo);
            }
            if !autoscaled.is_empty() {
                cluster.as_object_mut().unwrap().remove("currentNodeCount");
            }
            world.insert(name, normal(&cluster));
        }
        if world.contains_key(stack.cluster().rsplit('/').next().unwrap()) {
            self.inside(stack, &autoscaled, &mut world).await;
        }
        world
    }

    async fn inside(
        &self,
        stack: &Stack,
        autoscaled: &BTreeSet<String>,
        world: &mut BTreeMap<String, Value>,
    ) {
        let api = Api::of(self, stack);
        let get = async |path: &str| {
            api.send(Request::get(Which::Kubernetes, path)).await.unwrap_or_else(|error| panic!("{error}"))
        };
        let groups = get("/apis").await;
        let mut roots: Vec<String> = Vec::new();
        for group in groups["items"].as_array().unwrap() {
            let (name, version) = (&group["metadata"]["name"], &group["versions"][0]["version"]);
            roots.push(format!("/apis/{}/{}", name.as_str().unwrap(), version.as_str().unwrap()));
        }
        roots.push("/api/v1".to_owned());
        for root in roots {
            let list = get(&root).await;
            for kind in list["resources"].as_array().into_iter().flatten() {
                let name = kind["name"].as_str().unwrap();
                let lists = kind["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!("list")));
                if !lists || name.contains('/') || PASSING.contains(&name) {
                    continue;
                }
                let found = get(&format!("{root}/{name}")).await;
                for item in found["items"].as_array().into_iter().flatten() {
                    if !is_of_the_autoscaler(name, item, autoscaled) {
                        note(world, name, item);
                    }
                }
            }
        }
    }
}

/// Kinds whose objects come and go by themselves.
const PASSING: &[&str] = &["events", "leases", "endpointslices", "endpoints", "controllerrevisions"];

/// Returns true for things whose number depends on the time: nodes of a pool that GKE scales, and what each node brings.
fn is_of_the_autoscaler(kind: &str, item: &Value, autoscaled: &BTreeSet<String>) -> bool {
    let metadata = &item["metadata"];
    let pool = metadata.pointer("/labels/cloud.google.com~1gke-nodepool").and_then(Value::as_str);
    let owner = metadata.pointer("/ownerReferences/0/kind").and_then(Value::as_str);
    match kind {
        "nodes" => pool.is_some_and(|pool| autoscaled.contains(pool)),
        _ => matches!(owner, Some("DaemonSet" | "Node")) && !autoscaled.is_empty(),
    }
}

/// Notes one object of a cluster.
fn note(world: &mut BTreeMap<String, Value>, kind: &str, item: &Value) {
    let metadata = &item["metadata"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (word(&metadata["namespace"]), word(&metadata["name"]));
    let owner = metadata.pointer("/ownerReferences/0/kind").map(word);
    let pool = metadata.pointer("/labels/cloud.google.com~1gke-nodepool").map(word);
    if let Some(maker) = owner.or(pool) {
        let count = world.entry(format!("{kind} {namespace} of {maker}")).or_insert(json!(0));
        *count = json!(count.as_u64().unwrap() + 1);
    } else if namespace == "dask-infra" {
        // The record tells of times and numbers of applies; what it is for shows in the next plan.
        world.insert(format!("{kind} {namespace}/{name}"), Value::Null);
    } else {
        let mut object = normal(item);
        // A DaemonSet counts nodes, which are counted themselves.
        if let ("daemonsets", Some(object)) = (kind, object.as_object_mut()) {
            object.remove("status");
        }
        world.insert(format!("{kind} {namespace}/{name}"), object);
    }
}

/// Without times, ids, addresses and certificates.
pub fn normal(value: &Value) -> Value {
    const PASSING: &[&str] = &[
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "observedGeneration",
        "time",
        "createTime",
        "etag",
        "labelFingerprint",
        "endpoint",
        "publicEndpoint",
        "privateEndpoint",
        "id",
        "clusterCaCertificate",
        "ca.crt",
        "instanceGroupUrls",
        "clusterIP",
        "clusterIPs",
        "conditions",
        "f:conditions",
        "batch.kubernetes.io/controller-uid",
        "controller-uid",
        "podIpv4RangeUtilization",
    ];
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !PASSING.contains(&key.as_str()) && !key.ends_with("Time"))
            .map(|(key, value)| (key.clone(), normal(value)))
            .collect(),
        Value::Array(items) => items.iter().map(normal).collect(),
        other => other.clone(),
    }
}
