//! Worlds of cases: what a quiet apply leaves.

#![allow(dead_code, clippy::unwrap_used, reason = "`cases` and `it` take a part each")]

use std::collections::BTreeMap;

use kinds::dask::check;
use model::record::{Entry, Record};
use model::resource::{Identity, Resource, Seen, World};
use model::schema::{List, Schema};
use serde_json::{Value, json};
use stack::lower::Lowered;

/// fieldsV1 of everything that a body says, lists told apart as the schema says.
fn fields(value: &Value, schema: Option<&Schema>) -> Value {
    match value {
        Value::Object(map) if schema.is_none_or(|schema| !schema.atomic_map()) => {
            let child =
                |key: &str| schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
            map.iter().map(|(key, value)| (format!("f:{key}"), fields(value, child(key).as_ref()))).collect()
        }
        Value::Array(items) => match schema.map(Schema::list) {
            Some(List::Map(keys)) => {
                let item_schema = schema.and_then(Schema::items);
                let key = |item: &Value| -> Value {
                    keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect()
                };
                items
                    .iter()
                    .map(|item| (format!("k:{}", key(item)), fields(item, item_schema.as_ref())))
                    .collect()
            }
            Some(List::Set) => items.iter().map(|item| (format!("v:{item}"), json!({}))).collect(),
            Some(List::Atomic) | None => json!({}),
        },
        _ => json!({}),
    }
}

/// The world after a quiet apply, as far as a plan looks at it.
pub fn settled(lowered: &Lowered) -> World {
    let Lowered { owner, resources, .. } = lowered;
    let mut world = World::empty();
    let mut inside = BTreeMap::new();
    let mut record = Record {
        version: Record::VERSION,
        stack: owner.stack.clone(),
        id: owner.id.clone(),
        ..Record::default()
    };
    for resource in resources.iter() {
        let Resource { address, identity, kind, body, create_only, recreation: life, .. } = resource;
        let set = match identity {
            Identity::Cluster(_) => {
                let mut live = body.clone();
                live["status"] = json!("RUNNING");
                world.cluster = Seen::Live(live);
                body.clone()
            }
            Identity::NodePool { pool, .. } => {
                let mut live = body.clone();
                live["status"] = json!("RUNNING");
                let nodes = live.as_object_mut().unwrap().remove("nodeCount").unwrap_or(json!(1));
                world.sizes.insert(pool.clone(), u32::try_from(nodes.as_u64().unwrap()).unwrap());
                world.pools.insert(pool.clone(), live);
                body.clone()
            }
            Identity::Object(object) => {
                let schema = kinds::kubernetes::object::object_schema(identity);
                let body = kinds::of(*kind).readable(body);
                let mut live = (*body).clone();
                live["metadata"]["uid"] = json!(format!("uid-{}", object.name));
                live["metadata"]["managedFields"] = json!([{
                    "manager": owner.field_manager(), "operation": "Apply", "time": "2026-11-01T00:00:00Z",
                    "fieldsV1": fields(&body, schema.as_ref()),
                }]);
                if !create_only.is_null() {
                    merge(&mut live, create_only);
                    live["metadata"]["managedFields"].as_array_mut().unwrap().push(json!({
                        "manager": owner.initial_manager(), "operation": "Apply",
                        "time": "2026-11-01T00:00:00Z", "fieldsV1": fields(create_only, schema.as_ref()),
                    }));
                }
                if object.gvk.kind == "Deployment" {
                    live["status"] = json!({ "availableReplicas": 1 });
                }
                if object.gvk.kind == "DaemonSet" {
                    live["status"] = json!({ "numberReady": 2, "desiredNumberScheduled": 2 });
                }
                if object.gvk.kind == "CustomResourceDefinition" {
                    live["status"]["conditions"] = json!([{ "type": "Established", "status": "True" }]);
                }
                inside.insert(object.clone(), live);
                Value::Null
            }
            Identity::Check(_) => {
                record.completed.insert(identity.clone(), check::digest(body));
                continue;
            }
        };
        if !life.is_always() {
            record.completed.insert(identity.clone(), kinds::kubernetes::once_digest::digest(resource));
        }
        let (address, identity, kind) = (address.clone(), identity.clone(), (*kind).into());
        record.inventory.push(Entry { address, identity, kind, set, ready: Some(true), took: None });
    }
    world.objects = Seen::Live(inside);
    world.record = Some(record);
    world
}

/// RFC 7386.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}
