//! Fields that admission plugins add to pods: `plugin/pkg/admission` of Kubernetes, those that GKE runs.

use serde_json::{Map, Value, json};

use super::super::numbers::Numbers;
use super::super::object::{consumes, fill, on_requested_nodes, text};
use super::super::strategy::{containers, each, put};

/// Where containers find the account's token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The account, priority, tolerations and quality of service of a new pod. Source: `serviceaccount`, `priority`,
/// and `PrepareForCreate` in `pkg/registry/core/pod/strategy.go` for the status.
pub fn create(object: &mut Value) {
    let spec = &mut object["spec"];
    put(spec, "serviceAccountName", json!("default"));
    let account = spec["serviceAccountName"].clone();
    fill(
        spec,
        &json!({"serviceAccount": account, "priority": 0, "preemptionPolicy": "PreemptLowerPriority"}),
    );
    tolerations(spec);
    if consumes(object).is_some() {
        tolerate(&mut object["spec"], &on_requested_nodes());
    }
    let class = quality(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": class});
}

/// The volume with the account's token, mounted into every container. Source: `serviceaccount/admission.go`.
pub fn token(numbers: &mut Numbers, object: &mut Value) {
    let spec = &mut object["spec"];
    if spec.get("automountServiceAccountToken").is_some_and(|mount| mount == false) {
        return;
    }
    let name = format!("kube-api-access-{}", numbers.suffix());
    let mut mounted = false;
    for kind in ["initContainers", "containers"] {
        for container in each(spec, kind) {
            put(container, "volumeMounts", json!([]));
            let Some(mounts) = container["volumeMounts"].as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == TOKEN) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN}));
                mounted = true;
            }
        }
    }
    if !mounted {
        return;
    }
    put(spec, "volumes", json!([]));
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
    }
}

/// The tolerations that a pod gets on every write. Source: `extendedresourcetoleration` and
/// `defaulttolerationseconds`: both handle creates and updates.
pub fn tolerations(spec: &mut Value) {
    let is_extended = |name: &&String| name.contains('/') && !name.contains("kubernetes.io/");
    let requests =
        containers(spec).filter_map(|container| container.pointer("/resources/requests")?.as_object());
    let mut extended: Vec<String> = requests.flat_map(Map::keys).filter(is_extended).cloned().collect();
    extended.sort();
    extended.dedup();
    for name in extended {
        tolerate(spec, &json!({"key": name, "operator": "Exists", "effect": "NoSchedule"}));
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let toleration =
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        tolerate(spec, &toleration);
    }
}

/// Adds a toleration unless one of the same key and effect (or for every taint) is there.
fn tolerate(spec: &mut Value, toleration: &Value) {
    put(spec, "tolerations", json!([]));
    let Some(list) = spec["tolerations"].as_array_mut() else { return };
    let covers = |known: &Value| {
        let (key, effect) = (text(known, "/key"), text(known, "/effect"));
        (key.is_empty() || toleration["key"] == key) && (effect.is_empty() || toleration["effect"] == effect)
    };
    if !list.iter().any(covers) {
        list.push(toleration.clone());
    }
}

/// The quality-of-service class of a pod's spec. Source: `pkg/apis/core/v1/helper/qos/qos.go`.
fn quality(spec: &Value) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for container in containers(spec) {
        for name in ["cpu", "memory"] {
            let amount = |part: &str| container.pointer(&format!("/resources/{part}/{name}"));
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
