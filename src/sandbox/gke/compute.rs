//! The few parts of other services that clients of GKE look at: instance groups, places and what they have, one service's
//! state, organization policies.

use serde_json::{Value, json};

use super::errors::Refusal;
use super::ids::{hex, project_number};
use super::machines;
use super::operations::Kind;
use super::path::ClusterId;
use super::places;
use super::state::{Gke, Pool};

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

/// A machine type or a GPU, where its zone has it.
pub(super) fn offer(project: &str, zone: &str, name: &str, machine: bool) -> Result<Value, Refusal> {
    let (word, kind) = match machine {
        true => ("machineTypes", "compute#machineType"),
        false => ("acceleratorTypes", "compute#acceleratorType"),
    };
    let path = format!("projects/{project}/zones/{zone}/{word}/{name}");
    let there = places::is_zone(zone) && places::exists(zone);
    let has = if machine { machines::has_machine(zone, name) } else { machines::has_gpu(zone, name) };
    if !there || !has {
        let text = format!("The resource '{path}' was not found");
        return Err(Refusal::new(super::errors::Code::NotFound, text));
    }
    let link = format!("https://www.googleapis.com/compute/v1/{path}");
    Ok(json!({ "kind": kind, "name": name, "zone": zone, "selfLink": link }))
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

/// Zones or regions of a project, or one of them.
pub(super) fn places(project: &str, regions: bool, name: Option<&str>) -> Result<Value, Refusal> {
    let word = if regions { "regions" } else { "zones" };
    let root = format!("https://www.googleapis.com/compute/v1/projects/{project}");
    let render = |place: &str| {
        let mut body = json!({
            "kind": format!("compute#{}", word.trim_end_matches('s')),
            "id": hex(&["place", place], 8),
            "name": place,
            "status": "UP",
            "selfLink": format!("{root}/{word}/{place}"),
        });
        if !regions {
            body["region"] = json!(format!("{root}/regions/{}", places::region(place)));
        }
        body
    };
    if let Some(name) = name {
        if !places::exists(name) || places::is_zone(name) == regions {
            let text = format!("The resource 'projects/{project}/{word}/{name}' was not found");
            return Err(Refusal::new(super::errors::Code::NotFound, text));
        }
        return Ok(render(name));
    }
    let all: Vec<Value> = match regions {
        true => places::regions().map(render).collect(),
        false => places::regions().flat_map(places::zones).map(|zone| render(&zone)).collect(),
    };
    Ok(json!({ "kind": format!("compute#{}List", word.trim_end_matches('s')), "items": all }))
}

impl Gke {
    /// Nodes that an upgrade puts beside those of a pool: in its first zone, the one that it begins with. A blue-green
    /// one doubles them. Source: googleapis `cluster_service.proto`, `UpgradeSettings`; which zone is recalled.
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

fn render_group(project: &str, zone: &str, pool: &Pool, manager: bool, surge: u32) -> Value {
    let root = format!("https://www.googleapis.com/compute/v1/projects/{project}");
    let here = format!("{root}/zones/{zone}");
    let name = format!("{}-grp", pool.prefix);
    let wanted = pool.sizes.get(zone).copied().unwrap_or_default() + surge;
    let present = pool.present.get(zone).copied().unwrap_or_default();
    if !manager {
        return json!({
            "kind": "compute#instanceGroup",
            "id": hex(&["group", &pool.prefix, zone], 16),
            "name": name,
            "size": present,
            "selfLink": format!("{here}/instanceGroups/{name}"),
            "zone": here,
        });
    }
    let template = format!("{root}/regions/{}/instanceTemplates/{}", places::region(zone), pool.prefix);
    json!({
        "kind": "compute#instanceGroupManager",
        "id": hex(&["manager", &pool.prefix, zone], 16),
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
