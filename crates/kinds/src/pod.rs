//! The key `pod`: fields of a PodSpec that a user gives, merged over the pod that a section makes.
//!
//! The rules are those of the strategic merge that `kubectl patch` uses: tables are merged; lists whose items have a name
//! (containers by `name`, ports by `containerPort`, mounts by `mountPath`) are merged item by item; other lists are replaced;
//! `null` and `$patch: delete` remove, `$patch: replace` replaces. One rule differs: tolerations are appended, because the
//! section's own tolerations are the ones that its pools need. Source: `x-kubernetes-patch-merge-key` of
//! `io.k8s.api.core.v1.PodSpec`.

use std::borrow::Cow;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::json::number;
use crate::scope::POOL_LABEL;
use model::address::FieldPath;
use model::schema::{self, Schema};

/// Returns the number of GPUs that a PodSpec requests.
pub fn gpus(spec: &Value) -> u64 {
    let containers = spec["containers"].as_array().into_iter().flatten();
    containers.filter_map(|container| number(&container["resources"]["limits"]["nvidia.com/gpu"])).sum()
}

/// Returns the name of the node pool that a PodSpec selects.
pub fn selected_pool(spec: &Value) -> Option<&str> {
    spec["nodeSelector"][POOL_LABEL].as_str()
}

/// A PodSpec, or the parts of one that are to differ. In the file it may be the name of a YAML file; when a stack
/// is loaded, what the file holds has taken the name's place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Pod(pub Value);

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value {
            Value::Object(_) | Value::String(_) => Ok(Self(value)),
            _ => Err(D::Error::custom("a PodSpec as a table, or the name of a YAML file")),
        }
    }
}

impl JsonSchema for Pod {
    fn schema_name() -> Cow<'static, str> {
        "Pod".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({
            "description": "A PodSpec or parts of one: a table, or the name of a YAML file.",
            "oneOf": [{ "type": "string" }, { "type": "object", "additionalProperties": {} }],
        })
    }
}

/// The key of a directive in an item or table, which says how it is merged.
pub const DIRECTIVE: &str = "$patch";

/// Merges `given` into the pod of a section. `path` is that of the pod in the object's body, `origin` that of `given` in the
/// stack file. Adds the provenance of the merged fields.
pub fn merge_pod(
    pod: &mut Value,
    given: Option<&Pod>,
    path: &FieldPath,
    origin: &FieldPath,
    provenance: &mut Vec<(FieldPath, FieldPath)>,
) {
    let Some(Pod(given)) = given else { return };
    let schema = schema::definition("io.k8s.api.core.v1.PodSpec");
    strategic_merge(pod, given, schema.as_ref(), path, origin, provenance);
}

/// Merges as [`merge_pod`] does, into a value of any schema.
pub fn strategic_merge(
    value: &mut Value,
    given: &Value,
    schema: Option<&Schema>,
    path: &FieldPath,
    origin: &FieldPath,
    provenance: &mut Vec<(FieldPath, FieldPath)>,
) {
    *value = Merge { provenance }.value(Some(value), given, schema, path, origin);
}

struct Merge<'a> {
    provenance: &'a mut Vec<(FieldPath, FieldPath)>,
}

impl Merge<'_> {
    fn value(
        &mut self,
        base: Option<&Value>,
        over: &Value,
        schema: Option<&Schema>,
        at: &FieldPath,
        from: &FieldPath,
    ) -> Value {
        match (base, over) {
            (Some(Value::Object(base)), Value::Object(over))
                if over.get(DIRECTIVE) != Some(&"replace".into()) =>
            {
                self.table(base, over, schema, at, from)
            }
            (Some(Value::Array(base)), Value::Array(over)) => match merge_key(schema) {
                Some(key) => self.named(&key, base, over, schema, at, from),
                None if ends_with(at, "tolerations") => self.added(base, over, at, from),
                None => self.replaced(&Value::Array(over.clone()), at, from),
            },
            _ => self.replaced(over, at, from),
        }
    }

    fn replaced(&mut self, over: &Value, at: &FieldPath, from: &FieldPath) -> Value {
        self.provenance.push((at.clone(), from.clone()));
        let mut value = over.clone();
        clean(&mut value);
        value
    }

    fn table(
        &mut self,
        base: &Map<String, Value>,
        over: &Map<String, Value>,
        schema: Option<&Schema>,
        at: &FieldPath,
        from: &FieldPath,
    ) -> Value {
        let mut merged = base.clone();
        for (key, value) in over.iter().filter(|(key, _)| *key != DIRECTIVE) {
            if value.is_null() || value[DIRECTIVE] == "delete" {
                merged.remove(key);
                continue;
            }
            let child = schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
            let value = self.value(base.get(key), value, child.as_ref(), &at.key(key), &from.key(key));
            merged.insert(key.clone(), value);
        }
        Value::Object(merged)
    }

    /// Merges lists whose items have a key. The section's items keep their order; new items are appended.
    fn named(
        &mut self,
        key: &str,
        base: &[Value],
        over: &[Value],
        schema: Option<&Schema>,
        at: &FieldPath,
        from: &FieldPath,
    ) -> Value {
        let same = |one: &Value, other: &Value| !one[key].is_null() && one[key] == other[key];
        let is_deleted = |item: &Value| item[DIRECTIVE] == "delete";
        let gone = |item: &&Value| over.iter().any(|other| is_deleted(other) && same(item, other));
        let mut merged: Vec<Value> = base.iter().filter(|item| !gone(item)).cloned().collect();
        let items = schema.and_then(Schema::items);
        for (index, item) in over.iter().enumerate().filter(|(_, item)| !is_deleted(item)) {
            let from = from.index(index);
            let found = merged.iter().position(|other| same(other, item));
            let at = at.index(found.unwrap_or(merged.len()));
            let base = found.map(|found| merged[found].clone());
            let value = self.value(base.as_ref(), item, items.as_ref(), &at, &from);
            match found {
                Some(found) => merged[found] = value,
                None => merged.push(value),
            }
        }
        Value::Array(merged)
    }

    fn added(&mut self, base: &[Value], over: &[Value], at: &FieldPath, from: &FieldPath) -> Value {
        let mut merged = base.to_vec();
        for (index, item) in over.iter().enumerate().filter(|(_, item)| !base.contains(item)) {
            let value = self.replaced(item, &at.index(merged.len()), &from.index(index));
            merged.push(value);
        }
        Value::Array(merged)
    }
}

/// Returns the key that identifies the items of a list, if they are merged one by one.
pub fn merge_key(schema: Option<&Schema>) -> Option<String> {
    let schema = schema?;
    let merges = schema.patch_strategies().iter().any(|strategy| strategy == "merge");
    schema.patch_merge_key().filter(|_| merges).map(str::to_owned)
}

fn ends_with(path: &FieldPath, key: &str) -> bool {
    path.parent().is_some_and(|parent| parent.key(key) == *path)
}

/// Removes `null` values and `$patch` directives.
fn clean(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|key, value| key != DIRECTIVE && !value.is_null() && value[DIRECTIVE] != "delete");
            table.values_mut().for_each(clean);
        }
        Value::Array(items) => {
            items.retain(|item| item[DIRECTIVE] != "delete");
            items.iter_mut().for_each(clean);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn laid(base: &Value, over: Value) -> (Value, Vec<String>) {
        let mut pod = base.clone();
        let mut provenance = Vec::new();
        let (path, origin) = (FieldPath::keys(["spec"]), FieldPath::keys(["pod"]));
        merge_pod(&mut pod, Some(&Pod(over)), &path, &origin, &mut provenance);
        (pod, provenance.iter().map(|(at, from)| format!("{at} <- {from}")).collect())
    }

    fn worker() -> Value {
        json!({
            "containers": [{
                "name": "worker", "image": "a", "args": ["dask", "worker"],
                "env": [{ "name": "A", "value": "1" }], "resources": { "limits": { "cpu": "1" } },
            }],
            "nodeSelector": { "pool": "gpu" },
            "tolerations": [{ "key": "gpu", "operator": "Exists" }],
        })
    }

    #[test]
    fn containers_are_merged_by_name_and_tell_where_they_come_from() {
        let (pod, provenance) = laid(
            &worker(),
            json!({ "containers": [
                { "name": "log", "image": "b" },
                { "name": "worker", "env": [{ "name": "B", "value": "2" }], "resources": { "limits": { "memory": "1Gi" } } },
            ] }),
        );
        assert_eq!(
            pod["containers"],
            json!([
                { "name": "worker", "image": "a", "args": ["dask", "worker"],
                  "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }],
                  "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } },
                { "name": "log", "image": "b" },
            ])
        );
        assert!(
            provenance.contains(&"spec.containers[0].env[1] <- pod.containers[1].env[0]".to_owned()),
            "{provenance:?}"
        );
        assert!(provenance.contains(&"spec.containers[1] <- pod.containers[0]".to_owned()), "{provenance:?}");
    }

    #[test]
    fn lists_without_names_are_replaced_and_tolerations_are_added() {
        let over = json!({
            "containers": [{ "name": "worker", "args": ["sleep"] }],
            "nodeSelector": { "disk": "ssd" },
            "tolerations": [{ "key": "gpu", "operator": "Exists" }, { "key": "mine", "operator": "Exists" }],
        });
        let (pod, _) = laid(&worker(), over);
        assert_eq!(pod["containers"][0]["args"], json!(["sleep"]));
        assert_eq!(pod["nodeSelector"], json!({ "pool": "gpu", "disk": "ssd" }));
        let keys: Vec<_> =
            pod["tolerations"].as_array().unwrap().iter().map(|item| item["key"].clone()).collect();
        assert_eq!(keys, ["gpu", "mine"]);
    }

    #[test]
    fn null_and_directives_take_away() {
        let over = json!({
            "nodeSelector": null,
            "containers": [
                { "name": "worker", "env": [{ "name": "A", "$patch": "delete" }],
                  "resources": { "$patch": "replace", "limits": { "nvidia.com/gpu": "1" } } },
            ],
        });
        let (pod, _) = laid(&worker(), over);
        assert_eq!(pod.get("nodeSelector"), None);
        assert_eq!(pod["containers"][0]["env"], json!([]));
        assert_eq!(pod["containers"][0]["resources"], json!({ "limits": { "nvidia.com/gpu": "1" } }));
    }
}
