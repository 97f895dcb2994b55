//! The key of a Kubernetes object, and reading one: owners, conditions, times. Absent strings are empty.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use model::quantity::Quantity;

/// The identity of an object in a cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Key {
    /// API group, empty for the core group.
    pub group: String,
    /// Plural of the resource, `pods`.
    pub resource: String,
    /// Empty for cluster-wide kinds.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// A key from its four parts; an empty namespace for cluster-wide kinds.
    pub fn new(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// The string at a JSON pointer.
pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a JSON pointer.
pub fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// The quantity of a resource in thousandths of its unit; 0 when there is none.
pub fn milli(resources: &Value, resource: &str) -> i64 {
    resources.get(resource).and_then(Quantity::of).map_or(0, Quantity::milli)
}

/// The list at a JSON pointer, empty when there is none.
pub fn list<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// `metadata.generation`, 0 when the kind counts none.
pub fn generation(object: &Value) -> i64 {
    number(object, "/metadata/generation").unwrap_or(0)
}

pub fn label<'v>(object: &'v Value, key: &str) -> &'v str {
    object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub fn annotation<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object.pointer("/metadata/annotations").and_then(|all| all.get(key)).and_then(Value::as_str)
}

/// The phase of a claim that has a volume, and of a volume that has a claim.
pub const BOUND: &str = "Bound";
/// The finalizers that the admission plugin `StorageObjectInUseProtection` adds to claims and to volumes.
pub const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";
pub const VOLUME_IN_USE: &str = "kubernetes.io/pv-protection";

/// Which request for nodes a pod takes nodes of, with today's name and the one of older GKE.
pub const CONSUMES: [&str; 2] = [
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
];

/// The name of the request that a pod takes nodes of.
pub fn consumes(pod: &Value) -> Option<&str> {
    CONSUMES.iter().find_map(|name| annotation(pod, name))
}

/// The toleration by which pods of requests come to their nodes, which GKE gives them. Source: its guide to the Dynamic
/// Workload Scheduler: the PodTemplates and pods there tolerate nothing but `nvidia.com/gpu`.
pub fn on_requested_nodes() -> Value {
    json!({"key": "cloud.google.com/gke-queued", "operator": "Exists", "effect": "NoSchedule"})
}

/// The spec of pods of requests, as they come to their nodes.
pub fn as_on_requested_nodes(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let tolerations = list(&spec, "/tolerations").iter().cloned().chain([on_requested_nodes()]);
    spec["tolerations"] = tolerations.collect();
    spec
}

/// `metadata.labels`, or an empty map.
pub fn labels(object: &Value) -> Value {
    object
        .pointer("/metadata/labels")
        .filter(|labels| labels.is_object())
        .cloned()
        .unwrap_or_else(|| json!({}))
}

/// Returns true if an object is being deleted or has owners: then its fate and that of other objects are linked.
pub fn concerns_others(object: &Value) -> bool {
    is_deleted(object) || !list(object, "/metadata/ownerReferences").is_empty()
}

/// Returns true once deletion of the object has been requested.
pub fn is_deleted(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// The key of a namespaced object of that resource.
pub fn key(group: &str, resource: &str, object: &Value) -> Key {
    Key::new(group, resource, namespace(object), name(object))
}

/// The controlling owner reference.
pub fn controller(object: &Value) -> Option<&Value> {
    list(object, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true)
}

/// Returns true if `owner` controls `object`.
#[cfg(test)]
pub fn is_owned_by(object: &Value, owner: &Value) -> bool {
    controller(object).is_some_and(|reference| text(reference, "/uid") == uid(owner))
}

/// The reference with which `owner` controls its children.
pub fn reference_to(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The condition of that type in `status.conditions`.
pub fn condition<'v>(object: &'v Value, ty: &str) -> Option<&'v Value> {
    list(object, "/status/conditions").iter().find(|condition| condition["type"] == ty)
}

/// Returns true if the condition of that type is `True`.
pub fn is_true(object: &Value, ty: &str) -> bool {
    condition(object, ty).is_some_and(|condition| condition["status"] == "True")
}

/// Puts a condition into a list by its type; `lastTransitionTime` stays when the status does.
pub fn set_condition(conditions: &mut Vec<Value>, mut condition: Value, now: Timestamp) {
    let place = conditions.iter().position(|old| old["type"] == condition["type"]);
    let same =
        place.and_then(|place| conditions.get(place)).filter(|old| old["status"] == condition["status"]);
    condition["lastTransitionTime"] =
        same.and_then(|old| old.get("lastTransitionTime")).cloned().unwrap_or_else(|| json!(time(now)));
    match place {
        Some(place) => conditions[place] = condition,
        None => conditions.push(condition),
    }
}

/// Returns true once a pod has succeeded or failed.
pub fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// A time as Kubernetes prints it: RFC 3339 in whole seconds.
pub fn time(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).map_or_else(|_| time.to_string(), |whole| whole.to_string())
}

/// JSON merge patch (RFC 7386): null removes, objects merge, everything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

/// Puts what `defaults` has and `value` has not into `value`, at every level of objects.
pub fn fill(value: &mut Value, defaults: &Value) {
    match (value, defaults) {
        (Value::Object(map), Value::Object(defaults)) => {
            for (key, default) in defaults {
                match map.get_mut(key) {
                    Some(inner) => fill(inner, default),
                    None => drop(map.insert(key.clone(), default.clone())),
                }
            }
        }
        (value @ Value::Null, defaults) => *value = defaults.clone(),
        _ => {}
    }
}

/// Lower-case hexadecimal digits that follow from `seed` alone.
pub fn hex(seed: &str, digits: usize) -> String {
    let hash = blake3::hash(seed.as_bytes()).to_hex();
    hash.chars().take(digits).collect()
}

/// Letters that Kubernetes uses in generated names: no vowels, so no words.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Letters of a generated name that follow from `seed` alone.
pub fn letters(seed: &str, count: usize) -> String {
    let hash = blake3::hash(seed.as_bytes());
    hash.as_bytes()
        .iter()
        .take(count)
        .map(|byte| char::from(NAME_LETTERS[usize::from(*byte) % NAME_LETTERS.len()]))
        .collect()
}

/// `rand.SafeEncodeString` of an FNV-1a sum: how the real controllers write template hashes.
pub fn template_hash(template: &Value, collisions: i64) -> String {
    let mut sum: u32 = 2_166_136_261;
    for byte in template.to_string().bytes().chain(collisions.to_string().bytes()) {
        sum = (sum ^ u32::from(byte)).wrapping_mul(16_777_619);
    }
    sum.to_string()
        .bytes()
        .map(|digit| char::from(NAME_LETTERS[usize::from(digit) % NAME_LETTERS.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patches_merge() {
        for (target, patch, expected) in [
            (
                json!({"a": 1, "b": {"c": 2}}),
                json!({"a": null, "b": {"d": 3}}),
                json!({"b": {"c": 2, "d": 3}}),
            ),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({"a": "x"}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}})),
        ] {
            let mut value = target;
            merge(&mut value, &patch);
            assert_eq!(value, expected);
        }
    }
}
