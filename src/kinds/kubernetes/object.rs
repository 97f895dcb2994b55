//! Kubernetes objects as JSON: what they are called, what their status says.

use serde_json::{Value, json};

use crate::resource::{Gvk, Identity, OBJECT_LABEL_MANAGED_BY, OBJECT_LABEL_STACK, Resource};
use crate::schema::{self, DASK_GROUP};

/// The `[…]` of an object of a built-in or Dask kind.
pub fn gvk(group: &str, version: &str, kind: &str, plural: &str) -> Gvk {
    Gvk { group: group.into(), version: version.into(), kind: kind.into(), plural: plural.into() }
}

/// The schema that an object's kind has in this program.
pub fn object_schema(identity: &Identity) -> Option<schema::Schema> {
    let Identity::Object(object) = identity else { return None };
    let gvk = &object.gvk;
    if gvk.group == DASK_GROUP {
        return schema::dask(&gvk.kind);
    }
    schema::builtin(&gvk.group, &gvk.version, &gvk.kind)
}

/// A condition of a Kubernetes object by its type.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// What an object is and what it is called, and nothing else of it.
pub(crate) fn bare(body: &Value) -> Value {
    let mut bare = json!({ "apiVersion": body["apiVersion"], "kind": body["kind"] });
    for field in ["name", "namespace"] {
        if let Some(value) = body["metadata"].get(field) {
            bare["metadata"][field] = value.clone();
        }
    }
    bare
}

/// What a section says of an object that others own: everything but the labels of our objects.
pub(crate) fn unmarked(mut resource: Resource) -> Resource {
    let labels = resource.body.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels {
        labels.retain(|key, value| {
            key != OBJECT_LABEL_STACK && !(key == OBJECT_LABEL_MANAGED_BY && *value == "dask-infra")
        });
    }
    if resource.body["metadata"]["labels"] == json!({})
        && let Some(metadata) = resource.body["metadata"].as_object_mut()
    {
        metadata.remove("labels");
    }
    resource
}
