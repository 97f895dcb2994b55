//! The few parts of other services that clients of GKE look at: instance groups, places and what they have, one service's
//! state, organization policies.

use serde_json::{Value, json};

use super::errors::Refusal;
use super::ids::{hex, number, project_number};
use super::machines;
use super::operations::Kind;
use super::path::ClusterId;
use super::places;
use super::state::{Gke, Pool};
use model::catalog;

/// When things of Compute Engine were made, of which no time is kept; the form is that API's (RFC 3339 with milliseconds).
const MADE: &str = "2024-01-01T00:00:00.000-08:00";

/// Service usage: gcloud asks for this before it creates a cluster. Every service counts as enabled.
pub(super) fn service(project: &str, service: &str) -> Value {
    let number = project_number(project);
    json!({
        "name": format!("projects/{number}/services/{service}"),
        "parent": format!("projects/{number}"),
        "config": { "name": service },
        "state": "ENABLED",
    })
}

/// The beginning of every link of Compute Engine.
pub(super) fn root(project: &str) -> String {
    format!("https://www.googleapis.com/compute/v1/projects/{project}")
}

/// A machine type or a GPU, where its zone has it.
pub(super) fn offer(project: &str, zone: &str, name: &str, machine: bool) -> Result<Value, Refusal> {
    let word = if machine { "machineTypes" } else { "acceleratorTypes" };
    let there = places::is_zone(zone) && places::exists(zone);
    let has = if machine { machines::has_machine(zone, name) } else { machines::has_gpu(zone, name) };
    if !there || !has {
        let text = format!("The resource 'projects/{project}/zones/{zone}/{word}/{name}' was not found");
        return Err(Refusal::new(super::errors::Code::NotFound, text));
    }
    Ok(if machine { machine_type(project, zone, name) } else { accelerator_type(project, zone, name) })
}

/// Numbers that the catalog does not have are left out. Source of the fields and their types: the discovery document of Compute
/// Engine v1, `MachineType`.
pub(super) fn machine_type(project: &str, zone: &str, name: &str) -> Value {
    let here = format!("{}/zones/{zone}", root(project));
    let mut body = json!({
        "kind": "compute#machineType",
        "id": number(&["machine", name]),
        "creationTimestamp": MADE,
        "name": name,
        "zone": zone,
        "isSharedCpu": false,
        "selfLink": format!("{here}/machineTypes/{name}"),
    });
    if let Some(machine) = catalog::machine(name) {
        if let Some(vcpus) = machine.vcpus {
            body["guestCpus"] = json!(vcpus);
        }
        if let Some(memory) = machine.memory_gb {
            #[expect(clippy::cast_possible_truncation, reason = "megabytes of a machine")]
            let megabytes = (memory * 1024.0).round() as i64;
            body["memoryMb"] = json!(megabytes);
        }
        if let Some(gpus) = &machine.accelerator {
            let (kind, count) = (&gpus.kind, gpus.count);
            body["accelerators"] = json!([{ "guestAcceleratorType": kind, "guestAcceleratorCount": count }]);
        }
    }
    body
}

/// Source as of machine types: `AcceleratorType`, whose zone is a link.
pub(super) fn accelerator_type(project: &str, zone: &str, name: &str) -> Value {
    let here = format!("{}/zones/{zone}", root(project));
    let mut body = json!({
        "kind": "compute#acceleratorType",
        "id": number(&["accelerator", name]),
        "creationTimestamp": MADE,
        "name": name,
        "zone": here,
        "selfLink": format!("{here}/acceleratorTypes/{name}"),
    });
    if let Some(most) = catalog::accelerator(name).and_then(|gpu| gpu.counts.iter().max()) {
        body["maximumCardsPerInstance"] = json!(most);
    }
    body
}

/// A project, with the quotas that hold for all its regions together.
pub(super) fn project(project: &str, quotas: &Value) -> Value {
    json!({
        "kind": "compute#project",
        "id": project_number(project).to_string(),
        "creationTimestamp": MADE,
        "name": project,
        "quotas": quotas,
        "selfLink": root(project),
    })
}

/// A constraint that nobody has set: nothing is forbidden.
pub(super) fn policy(project: &str, constraint: &str) -> Value {
    let number = project_number(project);
    let rule = match constraint.contains(".require") {
        true => json!({ "enforce": false }),
        false => json!({ "allowAll": true }),
    };
    json!({ "name": format!("projects/{number}/policies/{constraint}"), "spec": { "rules": [rule] } })
}

/// The subnetworks that a cluster may use: the default network's, one a region.
pub(super) fn usable_subnetworks(project: &str) -> Value {
    let list: Vec<Value> = places::regions()
        .map(|region| {
            json!({
                "network": format!("projects/{project}/global/networks/default"),
                "subnetwork": format!("projects/{project}/regions/{region}/subnetworks/default"),
                "ipCidrRange": "10.128.0.0/20",
            })
        })
        .collect();
    json!({ "subnetworks": list })
}

/// A zone or a region.
pub(super) fn place(project: &str, regions: bool, name: &str) -> Result<Value, Refusal> {
    if !places::exists(name) || places::is_zone(name) == regions {
        let word = if regions { "regions" } else { "zones" };
        let text = format!("The resource 'projects/{project}/{word}/{name}' was not found");
        return Err(Refusal::new(super::errors::Code::NotFound, text));
    }
    Ok(render_place(project, name))
}

pub(super) fn render_place(project: &str, place: &str) -> Value {
    let root = root(project);
    let (word, kind) =
        if places::is_zone(place) { ("zones", "compute#zone") } else { ("regions", "compute#region") };
    let mut body = json!({
        "kind": kind,
        "id": number(&["place", place]),
        "creationTimestamp": MADE,
        "name": place,
        "description": place,
        "status": "UP",
        "selfLink": format!("{root}/{word}/{place}"),
    });
    if places::is_zone(place) {
        body["region"] = json!(format!("{root}/regions/{}", places::region(place)));
    } else {
        let link = |zone: &String| format!("{root}/zones/{zone}");
        body["zones"] = places::zones(place).iter().map(link).collect();
    }
    body
}

impl Gke {
    /// Nodes that an upgrade puts beside those of a pool: in its first zone, the one that it begins with. A blue-green
    /// one doubles them. Source: googleapis `cluster_service.proto`, `UpgradeSettings`; which zone is from memory.
    fn surge_nodes(&self, id: &ClusterId, pool: &Pool, zone: &str) -> u32 {
        let rolls = self.operations.values().any(|op| {
            op.is_running()
                && op.kind == Kind::UpgradeNodes
                && op.cluster == *id
                && op.scope.holds(&pool.name)
        });
        let wanted = pool.sizes.get(zone).copied().unwrap_or_default();
        let settings = &pool.body["upgradeSettings"];
        match settings["strategy"].as_str() {
            _ if !rolls || wanted == 0 => 0,
            Some("BLUE_GREEN") => wanted,
            _ if pool.sizes.keys().next().is_some_and(|first| first == zone) => {
                settings["maxSurge"].as_u64().and_then(|more| u32::try_from(more).ok()).unwrap_or_default()
            }
            _ => 0,
        }
    }

    /// All instance group managers of a zone, or their groups.
    pub(super) fn instance_groups(&self, project: &str, zone: &str, manager: bool) -> Vec<Value> {
        let clusters = self.clusters.values().filter(|cluster| cluster.id.project == project);
        let pools = clusters.flat_map(|cluster| cluster.pools.iter().map(|pool| (&cluster.id, pool)));
        let here = pools.filter(|(_, pool)| pool.sizes.contains_key(zone));
        here.map(|(id, pool)| render_group(project, zone, pool, manager, self.surge_nodes(id, pool, zone)))
            .collect()
    }

    /// An instance group manager, or its group: the only places that tell how many nodes a pool has.
    pub(super) fn instance_group(
        &self,
        project: &str,
        zone: &str,
        name: &str,
        manager: bool,
    ) -> Result<Value, Refusal> {
        let prefix = name.strip_suffix("-grp").unwrap_or(name);
        let pools = self.clusters.values().filter(|cluster| cluster.id.project == project);
        let pool = pools
            .flat_map(|cluster| cluster.pools.iter().map(|pool| (&cluster.id, pool)))
            .find(|(_, pool)| pool.prefix == prefix && pool.sizes.contains_key(zone));
        let word = if manager { "instanceGroupManagers" } else { "instanceGroups" };
        match pool {
            Some((id, pool)) => {
                let surge = self.surge_nodes(id, pool, zone);
                Ok(render_group(project, zone, pool, manager, surge))
            }
            None => {
                let text =
                    format!("The resource 'projects/{project}/zones/{zone}/{word}/{name}' was not found");
                Err(Refusal::new(super::errors::Code::NotFound, text))
            }
        }
    }
}

/// Source of the fields and their types: the discovery document of Compute Engine v1, `InstanceGroup` and
/// `InstanceGroupManager`.
fn render_group(project: &str, zone: &str, pool: &Pool, manager: bool, surge: u32) -> Value {
    let root = root(project);
    let here = format!("{root}/zones/{zone}");
    let name = format!("{}-grp", pool.prefix);
    let wanted = pool.sizes.get(zone).copied().unwrap_or_default() + surge;
    let present = pool.present.get(zone).copied().unwrap_or_default();
    if !manager {
        return json!({
            "kind": "compute#instanceGroup",
            "id": number(&["group", &pool.prefix, zone]),
            "creationTimestamp": MADE,
            "description": format!("This instance group is controlled by Instance Group Manager '{name}'."),
            "fingerprint": hex(&["fingerprint", "group", &pool.prefix], 12),
            "name": name,
            "network": format!("{root}/global/networks/default"),
            "size": present,
            "subnetwork": format!("{root}/regions/{}/subnetworks/default", places::region(zone)),
            "selfLink": format!("{here}/instanceGroups/{name}"),
            "zone": here,
        });
    }
    let template = format!("{root}/regions/{}/instanceTemplates/{}", places::region(zone), pool.prefix);
    json!({
        "kind": "compute#instanceGroupManager",
        "id": number(&["manager", &pool.prefix, zone]),
        "creationTimestamp": MADE,
        "name": name,
        "baseInstanceName": pool.prefix,
        "targetSize": wanted,
        "currentActions": {
            "abandoning": 0, "creating": wanted.saturating_sub(present), "creatingWithoutRetries": 0,
            "deleting": 0, "none": present, "recreating": 0, "refreshing": 0, "restarting": 0, "resuming": 0,
            "starting": 0, "stopping": 0, "suspending": 0, "verifying": 0,
        },
        "fingerprint": hex(&["fingerprint", &pool.prefix, &wanted.to_string()], 12),
        "instanceGroup": format!("{here}/instanceGroups/{name}"),
        "instanceTemplate": template,
        "instanceLifecyclePolicy": { "defaultActionOnFailure": "REPAIR", "forceUpdateOnRepair": "YES" },
        "selfLink": format!("{here}/instanceGroupManagers/{name}"),
        "status": { "isStable": wanted == present },
        "updatePolicy": {
            "maxSurge": { "calculated": 1, "fixed": 1 },
            "maxUnavailable": { "calculated": 1, "fixed": 1 },
            "minimalAction": "REPLACE", "replacementMethod": "SUBSTITUTE", "type": "OPPORTUNISTIC",
        },
        "versions": [{ "instanceTemplate": template, "targetSize": { "calculated": wanted } }],
        "zone": here,
    })
}

#[cfg(test)]
#[path = "compute_tests.rs"]
mod tests;
