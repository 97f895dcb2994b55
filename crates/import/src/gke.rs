//! Imports `[cluster]` and `[node_pool.NAME]` from GKE's responses.

use serde_json::Value;

use crate::{Draft, Found, Place, stack_of, text};
use kinds::gke::field::{self, strings};
use kinds::gke::node_pool::BlueGreen;
use kinds::gke::{cluster, node_pool};
use kinds::section::{Lifecycle, Manage};
use kinds::short_forms::DriverInstall;
use model::catalog;
use model::schema::Message;
use stack::{
    Accelerator, Cluster, DriverVersion, GpuDriver, NodePool, Nodes, Sharing, SharingStrategy, Surge,
};

pub(crate) fn import(found: &Found, draft: &mut Draft) {
    let Place::Gke(name) = &found.place else { return };
    let live = &found.cluster;
    let version = text(&live["currentMasterVersion"]);
    draft.above("cluster", format!("The GKE cluster, {} at version {version}.", text(&live["status"])));
    owned("cluster", live, draft);
    let locations = strings(live["locations"].as_array().into_iter().flatten());
    // A zonal cluster has its own zone, which is no wish.
    let zones = if locations == [name.location.clone()] { Vec::new() } else { locations.clone() };
    let project = name.project.clone();
    let endpoint = Some(found.endpoint).filter(|endpoint| !endpoint.is_auto());
    let name = name.cluster.clone();
    let mut cluster = Cluster { name, zones, endpoint, manage: Manage::EXTERNAL, ..Cluster::default() };
    let autopilot = cluster::autopilot::is_on(live);
    let once = without_twins(live);
    let chosen = if autopilot { cluster::autopilot::chosen(&once) } else { once };
    cluster.api = field::import(Message::Cluster, cluster::FIELDS, &mut cluster, &chosen);
    // The newer name of it is left out when it is false, as all false values are.
    if live["privateClusterConfig"]["enablePrivateEndpoint"] == true {
        cluster.public_endpoint = Some(false);
    }
    for (said, link) in [(&mut cluster.network, "network"), (&mut cluster.subnetwork, "subnetwork")] {
        *said = shared(&project, &live["networkConfig"][link]).or(said.take());
    }
    cluster.pods_range = cluster.pods_range.or(pods_range(live));
    draft.stack.cluster = Some(cluster);
    if autopilot {
        draft.below("cluster", "an Autopilot cluster: GKE makes its node pools, so none has a section here");
        return;
    }
    let install = driver(found, draft);
    for (name, live) in found.pools.iter().filter(|(_, live)| !node_pool::is_autoprovisioned(live)) {
        pool(name, live, found, &locations, install, draft);
    }
}

/// Returns the link to a network if it is in another project (a shared VPC), where the name alone is not enough.
fn shared(project: &str, link: &Value) -> Option<String> {
    let host = text(link).strip_prefix("projects/")?.split('/').next()?;
    (host != project).then(|| text(link).to_owned())
}

/// Returns the secondary range for the addresses of a cluster's Pods, unless GKE created it (recorded names).
fn pods_range(cluster: &Value) -> Option<String> {
    let range = text(&cluster["ipAllocationPolicy"]["clusterSecondaryRangeName"]);
    (!range.is_empty() && !is_of_gke(range, cluster)).then(|| range.to_owned())
}

/// Returns the secondary range of a pool, if it differs from that of its cluster.
fn pod_range(pool: &Value, cluster: &Value) -> Option<String> {
    let range = text(&pool["networkConfig"]["podRange"]);
    let of_cluster = text(&cluster["ipAllocationPolicy"]["clusterSecondaryRangeName"]);
    let own = !range.is_empty() && range != of_cluster && !is_of_gke(range, cluster);
    own.then(|| range.to_owned())
}

fn is_of_gke(range: &str, cluster: &Value) -> bool {
    range.starts_with(&format!("gke-{}-pods-", text(&cluster["name"])))
}

/// The driver version of pools on which GKE installs none.
const DISABLED: &str = "INSTALLATION_DISABLED";

/// Returns what installs the GPU driver: the DaemonSet only if a pool disables GKE's installation.
fn driver(found: &Found, draft: &mut Draft) -> DriverInstall {
    let versions: Vec<&str> = found.pools.values().filter_map(driver_of).collect();
    let there = found.objects.iter().find(|(object, _)| {
        let home = object.namespace.as_deref() == Some("kube-system");
        object.gvk.kind == "DaemonSet" && object.name == kinds::scope::DRIVER_INSTALLER && home
    });
    let disabled = versions.contains(&DISABLED);
    let said = "DaemonSet kube-system/nvidia-driver-installer";
    match there {
        Some((_, live)) if disabled => {
            draft.above("gpu_driver", format!("{said}, for the pools on which GKE installs no driver."));
            owned("gpu_driver", live, draft);
            let section = GpuDriver { install: DriverInstall::Daemonset, manage: Manage::EXTERNAL, lifecycle: Lifecycle::default() };
            draft.stack.gpu_driver = Some(section);
            return DriverInstall::Daemonset;
        }
        Some(_) if versions.is_empty() => {
            draft.unsupported.push(format!("{said}: not needed, as no pool has GPUs"));
        }
        Some(_) => draft.unsupported.push(format!(
            "{said}: not needed, as GKE installs the driver on all GPU pools; `kubectl --namespace kube-system \
             delete daemonset nvidia-driver-installer` removes it"
        )),
        None if disabled && versions.iter().all(|version| *version == DISABLED) => {
            draft.above("gpu_driver", format!("GKE installs no driver, and there is no {said}: others do."));
            let section = GpuDriver { install: DriverInstall::None, ..GpuDriver::default() };
            draft.stack.gpu_driver = Some(section);
            return DriverInstall::None;
        }
        None if disabled => draft.unsupported.push(format!(
            "the installer of the NVIDIA driver: GKE installs it on some pools only, and there is no {said}"
        )),
        None => {}
    }
    DriverInstall::Gke
}

fn driver_of(pool: &Value) -> Option<&str> {
    let accelerator = pool["config"]["accelerators"].get(0)?;
    Some(text(&accelerator["gpuDriverInstallationConfig"]["gpuDriverVersion"]))
}

fn pool(
    name: &str,
    live: &Value,
    found: &Found,
    of_cluster: &[String],
    install: DriverInstall,
    draft: &mut Draft,
) {
    let section = format!("node_pool.{name}");
    let nodes = found.sizes.get(name).copied();
    let count =
        nodes.map_or_else(|| "an unknown number of nodes".to_owned(), |nodes| format!("nodes: {nodes}"));
    draft.above(&section, format!("Node pool {name}, {}, {count}.", text(&live["status"])));
    owned(&section, live, draft);
    let config = &live["config"];
    let zones = strings(live["locations"].as_array().into_iter().flatten());
    let places = u32::try_from(zones.len().max(1)).unwrap_or(1);
    let mut pool = NodePool {
        nodes: size(&section, live, nodes, places, draft),
        zones: if zones == of_cluster { Vec::new() } else { zones },
        manage: Manage::EXTERNAL,
        ..NodePool::default()
    };
    pool.api = field::import(Message::NodePool, node_pool::FIELDS, &mut pool, live);
    pool.pod_range = pool.pod_range.or(pod_range(live, &found.cluster));
    pool.accelerator = accelerator(&config["accelerators"][0], &pool.machine_type);
    upgrades(&section, live, &mut pool, draft);
    match (install, driver_of(live)) {
        (DriverInstall::Gke, Some("LATEST")) => pool.driver = Some(DriverVersion::Latest),
        (DriverInstall::Gke, Some("DEFAULT")) | (DriverInstall::Daemonset | DriverInstall::None, Some(DISABLED)) | (_, None) => {}
        (_, Some(version)) => draft.below(&section, format!(
            "its driver is {}, which a stack cannot combine with the other pools' drivers; adopting the pool \
             would change it", if version.is_empty() { "not set" } else { version }
        )),
    }
    account(config, &mut pool);
    draft.stack.node_pool.insert(name.to_owned(), pool);
}

/// Returns the number of nodes, or the limits of the autoscaler.
fn size(section: &str, live: &Value, nodes: Option<u32>, places: u32, draft: &mut Draft) -> Option<Nodes> {
    let scaling = &live["autoscaling"];
    let number = |field: &str| u32::try_from(scaling[field].as_u64().unwrap_or(0)).ok();
    if scaling["enabled"] == true {
        let total = number("totalMaxNodeCount").filter(|max| *max > 0);
        if let (Some(min), Some(max)) = (number("totalMinNodeCount"), total) {
            return Some(Nodes::Autoscaled { min, max });
        }
        let (min, max) = (number("minNodeCount").unwrap_or(0), number("maxNodeCount").unwrap_or(0));
        draft.below(
            section,
            format!(
                "GKE scales it from {min} to {max} nodes in each of {places} zones; a stack counts all zones \
             together: `nodes = {{ min = {}, max = {} }}` would be the same range, but change the pool",
                min * places,
                max * places
            ),
        );
        return None;
    }
    match nodes {
        Some(nodes) if nodes % places == 0 => Some(Nodes::Fixed(nodes)),
        Some(nodes) => {
            draft.below(
                section,
                format!(
                    "{nodes} nodes in {places} zones, not the same number in each, so `nodes` is not set"
                ),
            );
            None
        }
        None => {
            draft.below(section, "the number of its nodes could not be read, so `nodes` is not set");
            None
        }
    }
}

fn accelerator(live: &Value, machine_type: &str) -> Option<Accelerator> {
    let kind = text(&live["acceleratorType"]);
    if kind.is_empty() {
        return None;
    }
    let number = |value: &Value| {
        value
            .as_str()
            .and_then(|n| n.parse::<u32>().ok())
            .or(value.as_u64().and_then(|n| u32::try_from(n).ok()))
    };
    let count = number(&live["acceleratorCount"]);
    let fixed = catalog::machine(machine_type).and_then(|machine| machine.accelerator.as_ref());
    let partition = live["gpuPartitionSize"].as_str().map(str::to_owned);
    let clients = number(&live["gpuSharingConfig"]["maxSharedClientsPerGpu"]).filter(|clients| *clients > 1);
    let sharing = clients.map(|clients| Sharing {
        strategy: match text(&live["gpuSharingConfig"]["gpuSharingStrategy"]) {
            "MPS" => SharingStrategy::Mps,
            _ => SharingStrategy::TimeSharing,
        },
        clients,
    });
    let follows = fixed.is_some_and(|fixed| fixed.kind == kind && Some(fixed.count) == count);
    if follows && partition.is_none() && sharing.is_none() {
        return None;
    }
    let count = count.filter(|count| if follows { false } else { fixed.is_some() || *count != 1 });
    Some(Accelerator { r#type: kind.to_owned(), count, sharing, partition })
}

/// Deprecated API fields that repeat another field. Source: published exchanges, where both are always the same.
const TWINS: [&[&str]; 7] = [
    &["masterAuthorizedNetworksConfig"],
    &["privateClusterConfig", "enablePrivateNodes"],
    &["privateClusterConfig", "enablePrivateEndpoint"],
    &["privateClusterConfig", "privateEndpointSubnetwork"],
    &["privateClusterConfig", "masterGlobalAccessConfig"],
    &["loggingService"],
    &["monitoringService"],
];

/// Returns a cluster without fields that repeat others.
fn without_twins(live: &Value) -> Value {
    let mut live = live.clone();
    for path in TWINS {
        let Some((last, above)) = path.split_last() else { continue };
        let place = above.iter().try_fold(&mut live, |place, key| place.get_mut(*key));
        if let Some(table) = place.and_then(Value::as_object_mut) {
            table.remove(*last);
        }
    }
    live
}

fn upgrades(section: &str, live: &Value, pool: &mut NodePool, draft: &mut Draft) {
    let live = &live["upgradeSettings"];
    let number = |field: &str| u32::try_from(live[field].as_u64().unwrap_or(0)).unwrap_or(0);
    let (max_surge, max_unavailable) = (number("maxSurge"), number("maxUnavailable"));
    match text(&live["strategy"]) {
        "" | "SURGE" if (max_surge, max_unavailable) == (1, 0) => {}
        "" | "SURGE" => pool.surge = Some(Surge { max_surge, max_unavailable }),
        "BLUE_GREEN" => pool.blue_green = Some(BlueGreen::of(&live["blueGreenSettings"])),
        "SHORT_LIVED" if pool.waits_for_machines() => {}
        other => {
            draft.below(
                section,
                format!("its upgrade strategy is {other}; adopting the pool would change it"),
            );
        }
    }
}

/// Imports a service account that is not the default one, and its scopes unless they are a stack's default.
fn account(config: &Value, pool: &mut NodePool) {
    let account = text(&config["serviceAccount"]);
    if matches!(account, "" | "default") {
        return;
    }
    pool.service_account = Some(account.to_owned());
    let scopes = strings(config["oauthScopes"].as_array().into_iter().flatten());
    if scopes != [node_pool::CLOUD_PLATFORM_SCOPE] {
        pool.scopes = scopes;
    }
}

/// Adds a comment with the stack that owns a resource by its labels, and with the tool that manages it.
pub(crate) fn owned(section: &str, live: &Value, draft: &mut Draft) {
    if let Some(stack) = stack_of(live) {
        draft.above(section, format!("It belongs to the stack {stack}."));
    }
    if let Some(keeper) = crate::kept_by(live) {
        draft.above(section, format!("Managed by {keeper}: adopting it needs `--allow take:…`."));
    }
}
