//! The fields of a node pool.

use serde_json::{Value, json};

use super::keys::{BlueGreen, Kubelet, Linux, LocalSsd, Reservation, TenantAffinity};
use super::networks::{self, NodeNetwork, PodNetwork};
use super::registries;
use super::section::{DriverVersion, NodePool, Surge};
use crate::gke::compare::owned_labels;
use crate::gke::enums::{
    Confidential, GpuDirect, LocationPolicy, LoggingVariant, Placement, WorkloadMetadata, from_api_keys,
    from_proto_duration, to_api_keys, to_proto_duration,
};
use crate::gke::field::{
    self, Field, RuleSource, google_labels, non_empty, non_empty_list, pairs, rule, schema_row, strings,
    unless_default,
};
use crate::json::text;
use crate::kind::{FieldComparison, Rule, Update};
use crate::scope::Scope;
use crate::short_forms::{Accelerator, DriverInstall, Nodes, SharingStrategy, Taint, TaintEffect};
use model::address::FieldPath;
use model::resource::{Effect, Resource};

/// The note on changes that look like metadata but recreate the nodes.
pub const LABELS_ROLL: &str = "GKE recreates the nodes";
const ROLLS: Option<&str> = Some(LABELS_ROLL);
const UPGRADE_NOTE: Option<&str> = Some("GKE updates the nodes one after the other, as in an upgrade");
const FIXED: Option<&str> = Some("GKE cannot change it on an existing pool");
const ZONES: Option<&str> = Some("adds and removes nodes with the zones");

/// Returns the rule of a field of the update request that recreates the nodes.
const fn rolls(path: &'static str, comparison: FieldComparison, name: &'static str) -> RuleSource {
    rule(path, comparison, Effect::Rolling, Update::Rolling(name), ROLLS)
}

const fn fixed(path: &'static str, comparison: FieldComparison) -> RuleSource {
    rule(path, comparison, Effect::Replace, Update::Never, FIXED)
}

const fn in_place(path: &'static str, comparison: FieldComparison, update: Update) -> RuleSource {
    rule(path, comparison, Effect::InPlace, update, None)
}

/// Source of what is changed how: googleapis `cluster_service.proto`, UpdateNodePoolRequest and the `set…` methods; a field that
/// is in none of them replaces the pool. That tags recreate the nodes is not documented; for resource labels `gcloud container
/// node-pools update --labels` warns of it. A change of taints was recorded as an operation UPGRADE_NODES.
pub const FIELDS: &[Field<NodePool>] = &[
    Field { key: "name", rule: fixed("name", FieldComparison::Exact), ..Field::NONE },
    Field {
        key: "machine_type",
        from_section: |pool| non_empty(&pool.machine_type),
        import: |pool, live| text(live).clone_into(&mut pool.machine_type),
        rule: rolls("config.machineType", FieldComparison::Exact, "machineType"),
        ..Field::NONE
    },
    Field {
        key: "disk_type",
        from_section: |pool| pool.disk_type.as_deref().and_then(non_empty),
        import: |pool, live| pool.disk_type = unless_default(default_disk(&pool.machine_type), live),
        rule: rolls("config.diskType", FieldComparison::Exact, "diskType"),
        ..Field::NONE
    },
    Field {
        key: "disk_size_gb",
        from_section: |pool| pool.disk_size_gb.map(Value::from),
        import: |pool, live| {
            let size = live.as_u64().and_then(|size| u32::try_from(size).ok());
            pool.disk_size_gb = size.filter(|size| *size != DISK_SIZE_GB);
        },
        rule: rolls("config.diskSizeGb", FieldComparison::Exact, "diskSizeGb"),
        ..Field::NONE
    },
    Field {
        key: "image_type",
        from_section: |pool| pool.image_type.as_deref().and_then(non_empty),
        import: |pool, live| pool.image_type = unless_default(IMAGE, live),
        rule: rolls("config.imageType", FieldComparison::CaseInsensitive, "imageType"),
        ..Field::NONE
    },
    Field {
        key: "accelerator",
        from_section: accelerators_from_section,
        to_api: accelerators,
        rule: rolls("config.accelerators", FieldComparison::Accelerators, "accelerators"),
        ..Field::NONE
    },
    Field {
        key: "tags",
        from_section: |pool| non_empty_list(&pool.tags),
        import: |pool, live| pool.tags = strings(live.as_array().into_iter().flatten()),
        rule: rolls("config.tags", FieldComparison::OwnItems, "tags"),
        ..Field::NONE
    },
    Field {
        key: "labels",
        from_section: |pool| (!pool.labels.is_empty()).then(|| json!(pool.labels)),
        import: |pool, live| pool.labels = pairs(live).collect(),
        rule: in_place("config.labels", FieldComparison::OwnEntries, Update::Together("labels")),
        ..Field::NONE
    },
    Field {
        key: "taints",
        from_section: |pool| (!pool.taints.is_empty()).then(|| pool.taints.iter().map(taint).collect()),
        import: |pool, live| pool.taints = live_taints(live),
        rule: rule(
            "config.taints",
            FieldComparison::OwnTaints,
            Effect::Rolling,
            Update::Together("taints"),
            UPGRADE_NOTE,
        ),
        ..Field::NONE
    },
    Field {
        key: "resource_labels",
        from_section: |pool| (!pool.resource_labels.is_empty()).then(|| json!(pool.resource_labels)),
        to_api: |pool, scope| Some(owned_labels(&pool.resource_labels, &scope.owner)),
        import: |pool, live| pool.resource_labels = google_labels(live),
        rule: rule(
            "config.resourceLabels",
            FieldComparison::OwnLabels,
            Effect::Rolling,
            Update::Together("resourceLabels"),
            ROLLS,
        ),
    },
    Field {
        key: "surge",
        from_section: |pool| pool.surge.map(surge),
        to_api: upgrades,
        rule: in_place("upgradeSettings", FieldComparison::Exact, Update::Together("upgradeSettings")),
        ..Field::NONE
    },
    Field {
        key: "zones",
        from_section: |pool| non_empty_list(&pool.zones),
        rule: rule("locations", FieldComparison::Set, Effect::InPlace, Update::Alone("locations"), ZONES),
        ..Field::NONE
    },
    Field {
        key: "auto_repair",
        from_section: |pool| pool.auto_repair.map(Value::from),
        to_api: |pool, _| Some(json!(pool.auto_repair.unwrap_or(true))),
        import: |pool, live| pool.auto_repair = off(live),
        rule: in_place("management.autoRepair", FieldComparison::Exact, Update::Method("setManagement")),
    },
    Field {
        key: "auto_upgrade",
        from_section: |pool| pool.auto_upgrade.map(Value::from),
        to_api: |pool, _| Some(json!(pool.auto_upgrade.unwrap_or(true))),
        import: |pool, live| pool.auto_upgrade = off(live),
        rule: in_place("management.autoUpgrade", FieldComparison::Exact, Update::Method("setManagement")),
    },
    Field {
        key: "nodes",
        from_section: |pool| match pool.nodes? {
            Nodes::Autoscaled { min, max } => {
                Some(json!({ "enabled": true, "totalMinNodeCount": min, "totalMaxNodeCount": max }))
            }
            Nodes::Fixed(_) => None,
        },
        to_api: |pool, _| matches!(pool.size(), Nodes::Fixed(_)).then(|| json!({ "enabled": false })),
        rule: in_place("autoscaling", FieldComparison::Exact, Update::Method("setAutoscaling")),
        ..Field::NONE
    },
    Field {
        key: "nodes",
        from_section: |pool| pool.nodes.and_then(fixed_number),
        to_api: |pool, _| fixed_number(pool.size()),
        rule: in_place("nodeCount", FieldComparison::Exact, Update::Method(SET_SIZE)),
        ..Field::NONE
    },
    Field {
        key: "nodes",
        to_api: |pool, scope| Some(json!(pool.first_nodes(scope))),
        rule: rule("initialNodeCount", FieldComparison::AtCreation, Effect::Ignored, Update::Never, None),
        ..Field::NONE
    },
    Field {
        key: "spot",
        from_section: |pool| pool.spot.then_some(Value::Bool(true)),
        to_api: |pool, _| Some(json!(pool.spot)),
        import: |pool, live| pool.spot = *live == true,
        rule: fixed("config.spot", FieldComparison::Exact),
    },
    Field {
        key: "service_account",
        from_section: |pool| pool.service_account.as_deref().and_then(non_empty),
        rule: fixed("config.serviceAccount", FieldComparison::Exact),
        ..Field::NONE
    },
    Field {
        key: "scopes",
        // With an account of one's own, its roles decide what nodes may do; gcloud asks for this scope then.
        from_section: |pool| non_empty_list(&pool.scopes),
        to_api: |pool, _| {
            pool.service_account
                .as_ref()
                .filter(|_| pool.scopes.is_empty())
                .map(|_| json!([CLOUD_PLATFORM_SCOPE]))
        },
        rule: fixed("config.oauthScopes", FieldComparison::Set),
        ..Field::NONE
    },
    Field {
        key: "version",
        from_section: |pool| pool.version.as_deref().and_then(non_empty),
        rule: rule(
            "version",
            FieldComparison::MinVersion,
            Effect::Rolling,
            Update::Alone("nodeVersion"),
            ROLLS,
        ),
        ..Field::NONE
    },
    schema_row!(location_policy: word LocationPolicy, "autoscaling.locationPolicy"),
    Field {
        key: "blue_green",
        from_section: |pool| pool.blue_green.as_ref().and_then(BlueGreen::api),
        rule: RuleSource::FromSchema("upgradeSettings.blueGreenSettings"),
        ..Field::NONE
    },
    schema_row!(reservation: word Reservation, "config.reservationAffinity"),
    schema_row!(placement: word Placement, "placementPolicy.type"),
    schema_row!(flex_start: switch, "config.flexStart"),
    schema_row!(queued: switch, "queuedProvisioning.enabled"),
    schema_row!(
        max_run_duration,
        "config.maxRunDuration",
        |text: &String| to_proto_duration(text),
        from_proto_duration
    ),
    schema_row!(gvnic: switch, "config.gvnic.enabled"),
    schema_row!(fast_socket: switch, "config.fastSocket.enabled"),
    Field {
        key: "tier_1_network",
        from_section: |pool| pool.tier_1_network.then(|| json!("TIER_1")),
        import: |pool, live| pool.tier_1_network = *live == "TIER_1",
        rule: RuleSource::FromSchema("networkConfig.networkPerformanceConfig.totalEgressBandwidthTier"),
        ..Field::NONE
    },
    schema_row!(private_nodes: switch, "networkConfig.enablePrivateNodes"),
    schema_row!(pod_range: text, "networkConfig.podRange"),
    Field {
        key: "additional_node_networks",
        from_section: |pool| networks::to_json(&pool.additional_node_networks, NodeNetwork::api),
        import: |pool, live| pool.additional_node_networks = networks::import_all(live, NodeNetwork::of),
        rule: RuleSource::FromSchema("networkConfig.additionalNodeNetworkConfigs"),
        ..Field::NONE
    },
    Field {
        key: "additional_pod_networks",
        from_section: |pool| networks::to_json(&pool.additional_pod_networks, PodNetwork::api),
        import: |pool, live| pool.additional_pod_networks = networks::import_all(live, PodNetwork::of),
        rule: RuleSource::FromSchema("networkConfig.additionalPodNetworkConfigs"),
        ..Field::NONE
    },
    schema_row!(gpu_direct: word GpuDirect, "config.gpuDirectConfig.gpuDirectStrategy"),
    Field {
        key: "registry_mirrors",
        from_section: |pool| registries::hosts(&pool.registry_mirrors),
        import: |pool, live| pool.registry_mirrors = registries::mirrors(live),
        rule: RuleSource::FromSchema("config.containerdConfig.registryHosts"),
        ..Field::NONE
    },
    Field {
        key: "registry_certificates",
        from_section: |pool| registries::access(&pool.registry_certificates),
        import: |pool, live| pool.registry_certificates = registries::certificates(live),
        rule: RuleSource::FromSchema("config.containerdConfig.privateRegistryAccessConfig"),
        ..Field::NONE
    },
    schema_row!(max_pods_per_node: int64, "maxPodsConstraint.maxPodsPerNode"),
    Field {
        key: "local_ssd",
        from_section: |pool| pool.local_ssd?.ephemeral.map(Value::from),
        import: |pool, live| pool.local_ssd = field::as_u32(live).map(LocalSsd::ephemeral),
        rule: RuleSource::FromSchema("config.ephemeralStorageLocalSsdConfig.localSsdCount"),
        ..Field::NONE
    },
    Field {
        key: "local_ssd",
        from_section: |pool| pool.local_ssd?.block.map(Value::from),
        import: |pool, live| {
            if let (None, Some(disks)) = (pool.local_ssd, field::as_u32(live)) {
                pool.local_ssd = Some(LocalSsd::block(disks));
            }
        },
        rule: RuleSource::FromSchema("config.localNvmeSsdBlockConfig.localSsdCount"),
        ..Field::NONE
    },
    Field {
        key: "local_ssd",
        from_section: |pool| pool.local_ssd?.scsi.map(Value::from),
        import: |pool, live| {
            if let (None, Some(disks)) = (pool.local_ssd, field::as_u32(live)) {
                pool.local_ssd = Some(LocalSsd::scsi(disks));
            }
        },
        rule: RuleSource::FromSchema("config.localSsdCount"),
        ..Field::NONE
    },
    Field {
        key: "secondary_boot_disks",
        from_section: |pool| {
            (!pool.secondary_boot_disks.is_empty()).then(|| cached(&pool.secondary_boot_disks))
        },
        import: |pool, live| {
            let disks = live.as_array().into_iter().flatten().map(|disk| &disk["diskImage"]);
            pool.secondary_boot_disks = strings(disks);
        },
        rule: RuleSource::FromSchema("config.secondaryBootDisks"),
        ..Field::NONE
    },
    schema_row!(boot_disk_key: text, "config.bootDiskKmsKey"),
    schema_row!(image_streaming: switch, "config.gcfsConfig.enabled"),
    schema_row!(workload_metadata: word WorkloadMetadata, "config.workloadMetadataConfig.mode"),
    schema_row!(secure_boot: switch, "config.shieldedInstanceConfig.enableSecureBoot"),
    schema_row!(integrity_monitoring: switch, "config.shieldedInstanceConfig.enableIntegrityMonitoring"),
    schema_row!(
        confidential,
        "config.confidentialNodes",
        |kind: &Confidential| json!({ "enabled": true, "confidentialInstanceType": kind.api() }),
        |live: &Value| {
            // SEV is what GKE takes unasked.
            let unsaid = (live["enabled"] == true).then_some(Confidential::Sev);
            Confidential::of(&live["confidentialInstanceType"]).or(unsaid)
        }
    ),
    schema_row!(threads_per_core: int64, "config.advancedMachineFeatures.threadsPerCore"),
    schema_row!(nested_virtualization: switch, "config.advancedMachineFeatures.enableNestedVirtualization"),
    schema_row!(min_cpu_platform: text, "config.minCpuPlatform"),
    schema_row!(node_group: text, "config.nodeGroup"),
    Field {
        key: "sole_tenancy",
        from_section: |pool| {
            let affinities: Vec<Value> = pool.sole_tenancy.iter().map(TenantAffinity::api).collect();
            (!affinities.is_empty()).then(|| affinities.into())
        },
        import: |pool, live| {
            pool.sole_tenancy =
                live.as_array().into_iter().flatten().filter_map(TenantAffinity::of).collect();
        },
        rule: RuleSource::FromSchema("config.soleTenantConfig.nodeAffinities"),
        ..Field::NONE
    },
    schema_row!(logging_variant: word LoggingVariant, "config.loggingConfig.variantConfig.variant"),
    schema_row!(
        kubelet,
        "config.kubeletConfig",
        |kubelet: &Kubelet| to_api_keys(kubelet, &["podPidsLimit"]),
        |live: &Value| from_api_keys(live, &["pod_pids_limit"])
    ),
    schema_row!(
        linux,
        "config.linuxNodeConfig",
        |linux: &Linux| to_api_keys(linux, &["swapSizeGib", "diskCount"]),
        |live: &Value| from_api_keys(live, &["swap_size_gib", "disk_count"])
    ),
];

/// The rules of [`FIELDS`].
pub const RULES: &[&Rule] = &field::rules::<NodePool, { field::count(FIELDS) }>(FIELDS);

/// The size of a boot disk and the node image that GKE chooses (recorded, 1.33 to 1.36).
pub(super) const DISK_SIZE_GB: u32 = 100;
const IMAGE: &str = "COS_CONTAINERD";

/// Series of machines that support only Hyperdisk. Source: Compute Engine's refusals of `pd-balanced` in public threads, and a
/// recorded n4 pool that came back with `hyperdisk-balanced`.
const HYPERDISK_ONLY: [&str; 8] = ["a4", "a4x", "c4", "c4a", "c4d", "g4", "n4", "n4d"];

/// Returns true if machines of this type refuse persistent disks. A3 Ultra is a single type of its series.
pub fn takes_hyperdisk_only(machine: &str) -> bool {
    let series = machine.split('-').next().unwrap_or_default();
    HYPERDISK_ONLY.contains(&series) || machine.starts_with("a3-ultragpu")
}

/// Returns the type of boot disk that GKE chooses for a machine type.
pub fn default_disk(machine: &str) -> &'static str {
    if takes_hyperdisk_only(machine) { "hyperdisk-balanced" } else { "pd-balanced" }
}

/// Returns the values that GKE is expected to choose for a new pool that does not set them.
pub fn filled_in(resource: &Resource) -> Vec<(FieldPath, Value)> {
    let config = &resource.body["config"];
    let disk = default_disk(text(&config["machineType"]));
    let defaults =
        [("diskType", json!(disk)), ("diskSizeGb", json!(DISK_SIZE_GB)), ("imageType", json!(IMAGE))];
    let open = defaults.into_iter().filter(|(name, _)| {
        let twin = match *name {
            "diskType" => &config["bootDisk"]["diskType"],
            "diskSizeGb" => &config["bootDisk"]["sizeGb"],
            _ => &Value::Null,
        };
        config[*name].is_null() && twin.is_null()
    });
    open.map(|(name, value)| (FieldPath::keys(["config", name]), value)).collect()
}

/// The method that sets the number of nodes by zone.
pub const SET_SIZE: &str = "setSize";
/// The OAuth scope of nodes with their own service account.
pub const CLOUD_PLATFORM_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

fn fixed_number(nodes: Nodes) -> Option<Value> {
    match nodes {
        Nodes::Fixed(nodes) => Some(json!(nodes)),
        Nodes::Autoscaled { .. } => None,
    }
}

/// Returns `Some(false)` if a live field is off or absent, and `None` if it is on, which is the default.
fn off(live: &Value) -> Option<bool> {
    (live != true).then_some(false)
}

/// Returns the upgrade settings. Nodes that GKE adds on demand are upgraded with the strategy SHORT_LIVED (recorded).
fn upgrades(pool: &NodePool, _: &Scope) -> Option<Value> {
    if pool.blue_green.is_some() {
        return Some(json!({ "strategy": "BLUE_GREEN" }));
    }
    match pool.surge {
        None if pool.waits_for_machines() => None,
        given => Some(surge(given.unwrap_or(Surge { max_surge: 1, max_unavailable: 0 }))),
    }
}

/// Returns `secondaryBootDisks` with container images on them.
fn cached(images: &[String]) -> Value {
    let disk = |image: &String| json!({ "diskImage": image, "mode": "CONTAINER_IMAGE_CACHE" });
    images.iter().map(disk).collect()
}

fn surge(Surge { max_surge, max_unavailable }: Surge) -> Value {
    json!({ "maxSurge": max_surge, "maxUnavailable": max_unavailable, "strategy": "SURGE" })
}

fn taint(taint: &Taint) -> Value {
    let Taint { key, value, effect } = taint;
    json!({ "key": key, "value": value, "effect": effect.api() })
}

/// Returns the taints that users added, without the taint that GKE adds to GPU nodes.
fn live_taints(live: &Value) -> Vec<Taint> {
    let read = live.as_array().into_iter().flatten().filter(|taint| taint["key"] != "nvidia.com/gpu");
    let taints = read.filter_map(|taint| {
        let effect = match text(&taint["effect"]) {
            "NO_SCHEDULE" => TaintEffect::NoSchedule,
            "PREFER_NO_SCHEDULE" => TaintEffect::PreferNoSchedule,
            "NO_EXECUTE" => TaintEffect::NoExecute,
            _ => return None,
        };
        Some(Taint { key: text(&taint["key"]).to_owned(), value: text(&taint["value"]).to_owned(), effect })
    });
    taints.collect()
}

/// Returns the GPUs, always with a driver version: GKE 1.30.1 and later install a driver by default, and then the installer
/// DaemonSet has nothing to do.
fn accelerators(pool: &NodePool, scope: &Scope) -> Option<Value> {
    let driver = match (scope.driver, pool.driver) {
        (DriverInstall::Daemonset | DriverInstall::None, _) => "INSTALLATION_DISABLED",
        (DriverInstall::Gke, driver) => driver.unwrap_or(DriverVersion::Default).api(),
    };
    let (_, count) = pool.gpus()?;
    let mut accelerators = accelerators_from_section(pool)?;
    accelerators[0]["acceleratorCount"] = json!(count.to_string());
    accelerators[0]["gpuDriverInstallationConfig"] = json!({ "gpuDriverVersion": driver });
    Some(accelerators)
}

fn accelerators_from_section(pool: &NodePool) -> Option<Value> {
    let (r#type, count) = pool.gpus()?;
    let mut accelerator = json!({ "acceleratorType": r#type });
    if pool.accelerator.as_ref().is_none_or(|accelerator| accelerator.count.is_some()) {
        accelerator["acceleratorCount"] = json!(count.to_string());
    }
    if let Some(driver) = pool.driver {
        accelerator["gpuDriverInstallationConfig"] = json!({ "gpuDriverVersion": driver.api() });
    }
    if let Some(Accelerator { sharing, partition, .. }) = &pool.accelerator {
        if let Some(partition) = partition {
            accelerator["gpuPartitionSize"] = json!(partition);
        }
        if let Some(sharing) = sharing {
            let strategy = match sharing.strategy {
                SharingStrategy::TimeSharing => "TIME_SHARING",
                SharingStrategy::Mps => "MPS",
            };
            accelerator["gpuSharingConfig"] = json!({
                "gpuSharingStrategy": strategy,
                "maxSharedClientsPerGpu": sharing.clients.to_string(),
            });
        }
    }
    Some(json!([accelerator]))
}
