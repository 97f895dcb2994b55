//! Changes of a world since it was applied: the `live.json` of a case, and other tools that apply the same things.

#![allow(dead_code, clippy::unwrap_used, reason = "`cases` and `it` take a part each")]

use std::collections::BTreeMap;

use model::address::Address;
use model::record::Stop;
use model::resource::{ClusterName, Identity, ObjectId, OtherClusters, Seen, World};
use serde_json::{Value, json};

use crate::world::merge;

/// The identity behind `Kind namespace/name`, `Kind name` or `Kind.group namespace/name`.
fn made_by_others(name: &str) -> ObjectId {
    let (kind, name) = name.split_once(' ').unwrap();
    let (kind, group) = match kind.split_once('.') {
        Some(both) => both,
        None if kind == "Deployment" => (kind, "apps"),
        None if kind.starts_with("Dask") => (kind, "kubernetes.dask.org"),
        None => (kind, ""),
    };
    let gvk = kinds::kubernetes::object::gvk(group, "v1", kind, &format!("{}s", kind.to_lowercase()));
    match name.split_once('/') {
        Some((namespace, name)) => ObjectId { gvk, namespace: Some(namespace.into()), name: name.into() },
        None => ObjectId { gvk, namespace: None, name: name.into() },
    }
}

/// RFC 7386, and `null` deletes the whole thing. Keys are identities as printed.
pub fn overlay(world: &mut World, patch: &Value) {
    let stopped: Vec<Address> = serde_json::from_value(patch["stopped"].clone()).unwrap_or_default();
    stopped.iter().for_each(|address| stop(world, address));
    let starting: Vec<Address> = serde_json::from_value(patch["starting"].clone()).unwrap_or_default();
    if let Some(record) = world.record.as_mut() {
        let known = record.inventory.iter().filter(|entry| starting.contains(&entry.address));
        record.starting = known.map(|entry| entry.identity.clone()).collect();
    }
    for (name, patch) in patch.as_object().unwrap() {
        if name == "stopped" || name == "starting" {
            continue;
        }
        if name == "not made" {
            let addresses: Vec<Address> = serde_json::from_value(patch.clone()).unwrap();
            let record = world.record.as_mut().unwrap();
            let known = record.inventory.iter().filter(|entry| addresses.contains(&entry.address));
            let known: Vec<Identity> = known.map(|entry| entry.identity.clone()).collect();
            record.completed.retain(|identity, _| !known.contains(identity));
            record.inventory.retain(|entry| !known.contains(&entry.identity));
            continue;
        }
        if let Some(pool) = name.strip_prefix("node pool ") {
            merge(world.pools.entry(pool.to_owned()).or_insert_with(|| json!({ "name": pool })), patch);
            world.sizes.entry(pool.to_owned()).or_insert(1);
        } else if let Some(pool) = name.strip_prefix("size of ") {
            match patch.as_u64() {
                Some(nodes) => drop(world.sizes.insert(pool.to_owned(), u32::try_from(nodes).unwrap())),
                None => drop(world.sizes.remove(pool)),
            }
        } else if name.starts_with("GKE cluster ") {
            if let Seen::Live(cluster) = &mut world.cluster {
                merge(cluster, patch);
            }
        } else if name == "elsewhere" {
            let place = |name: &Value| {
                let parts: Vec<&str> = name.as_str().unwrap().split('/').collect();
                let [project, location, cluster] = parts[..] else { panic!("{name}") };
                ClusterName { project: project.into(), location: location.into(), cluster: cluster.into() }
            };
            world.other_clusters = match patch {
                Value::String(why) => OtherClusters::Unknown(why.clone()),
                places => OtherClusters::Found(places.as_array().unwrap().iter().map(place).collect()),
            };
        } else if name == "took" {
            let took: BTreeMap<String, u32> = serde_json::from_value(patch.clone()).unwrap();
            let entries = world.record.iter_mut().flat_map(|record| &mut record.inventory);
            entries.for_each(|entry| entry.took = took.get(entry.address.as_str()).copied());
        } else if name == "unseen" {
            world.unlisted_foreign = serde_json::from_value(patch.clone()).unwrap();
        } else if name == "unreadable" {
            world.objects = Seen::Unreadable(patch.as_str().unwrap().to_owned());
        } else if let Seen::Live(objects) = &mut world.objects {
            let known = objects.keys().find(|object| object.to_string() == *name).cloned();
            let object = known.unwrap_or_else(|| made_by_others(name));
            if patch.is_null() {
                objects.remove(&object);
            } else {
                merge(objects.entry(object).or_insert(json!({})), patch);
            }
        }
    }
}

/// The world after a thing was stopped; with `!` behind its address, before it was gone.
pub fn stop(world: &mut World, address: &Address) {
    let record = world.record.as_mut().unwrap();
    let (address, is_left) = match address.as_str().strip_suffix('!') {
        Some(address) => (Address::new(address), true),
        None => (address.clone(), false),
    };
    let known = record.inventory.iter_mut().find(|entry| entry.address == address).unwrap();
    if !known.set.is_null() {
        known.set["nodeCount"] = json!(0);
        known.set["autoscaling"] = json!({ "enabled": false });
    }
    let entry = known.clone();
    let by = Stop {
        by: "ann@laptop".into(),
        since: "2026-11-20T18:00:00Z".into(),
        section: Some(address.section().to_owned()),
    };
    record.stopped.insert(entry.identity.clone(), by);
    match &entry.identity {
        Identity::NodePool { pool, .. } => {
            world.sizes.insert(pool.clone(), 0);
            world.pools.get_mut(pool).unwrap().as_object_mut().unwrap().remove("autoscaling");
        }
        Identity::Object(_) if is_left => {}
        Identity::Object(object) => {
            record.inventory.retain(|other| other.identity != entry.identity);
            record.completed.remove(&entry.identity);
            let Seen::Live(objects) = &mut world.objects else { return };
            objects.remove(object);
        }
        Identity::Cluster(_) | Identity::Check(_) => {}
    }
}

/// Makes another manager apply what stacks share, too or instead.
pub fn share(world: &mut World, manager: &str, instead: bool) {
    let record = world.record.clone().unwrap();
    let Seen::Live(objects) = &mut world.objects else { return };
    for entry in record.inventory.iter().filter(|entry| kinds::of(entry.kind.id()).shared) {
        let Identity::Object(object) = &entry.identity else { continue };
        let entries = objects.get_mut(object).unwrap()["metadata"]["managedFields"].as_array_mut().unwrap();
        let mut other = entries[0].clone();
        other["manager"] = json!(manager);
        if instead {
            entries.clear();
        }
        entries.push(other);
    }
}
