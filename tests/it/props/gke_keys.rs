//! Keys of `[cluster]` and `[node_pool.NAME]`: lines of a stack, and where GKE has what they say. Written out by hand from
//! the API, so that a key that lands elsewhere is found.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::cases::check;
use super::laws::{self, Tally};
use super::player::play;
use super::script::{Command, Script, Step};
use super::stacks::{Change, Section, Slot, Spec, Tweak};

/// A key with the values that are drawn.
pub struct Key {
    /// Lines of a section, the place of what they say (a JSON pointer) and the value there.
    says: &'static [(&'static str, &'static str, &'static str)],
    /// Keys that it excludes; `autopilot` for those that Autopilot clusters do not take.
    excludes: &'static [&'static str],
}

const fn key(
    says: &'static [(&'static str, &'static str, &'static str)],
    excludes: &'static [&'static str],
) -> Key {
    Key { says, excludes }
}

const IP: &str = "/controlPlaneEndpointsConfig/ipEndpointsConfig/authorizedNetworksConfig";
const WINDOW: &str = "/maintenancePolicy/window";

pub const CLUSTER: &[Key] = &[
    key(
        &[
            ("release_channel = \"rapid\"", "/releaseChannel/channel", "\"RAPID\""),
            ("release_channel = \"stable\"", "/releaseChannel/channel", "\"STABLE\""),
        ],
        &[],
    ),
    key(
        &[
            (
                "authorized_networks = [\"10.0.0.0/8\"]",
                IP,
                r#"{"enabled":true,"cidrBlocks":[{"cidrBlock":"10.0.0.0/8"}]}"#,
            ),
            (
                "authorized_networks = { office = \"192.0.2.0/24\" }",
                IP,
                r#"{"enabled":true,"cidrBlocks":[{"cidrBlock":"192.0.2.0/24","displayName":"office"}]}"#,
            ),
        ],
        &[],
    ),
    key(
        &[
            ("private_nodes = true", "/networkConfig/defaultEnablePrivateNodes", "true"),
            ("private_nodes = false", "/networkConfig/defaultEnablePrivateNodes", "false"),
        ],
        &[],
    ),
    key(
        &[(
            "dns_endpoint = true",
            "/controlPlaneEndpointsConfig/dnsEndpointConfig/allowExternalTraffic",
            "true",
        )],
        &[],
    ),
    key(
        &[
            ("pods_range = \"/17\"", "/ipAllocationPolicy/useIpAliases", "true"),
            ("pods_range = \"pods\"", "/ipAllocationPolicy/clusterSecondaryRangeName", "\"pods\""),
        ],
        &[],
    ),
    key(
        &[(
            "services_range = \"services\"",
            "/ipAllocationPolicy/servicesSecondaryRangeName",
            "\"services\"",
        )],
        &[],
    ),
    key(&[("workload_identity = true", "/workloadIdentityConfig/workloadPool", "\"demo.svc.id.goog\"")], &[]),
    key(
        &[
            (
                "autoprovisioning = { max_cpus = 64, max_memory_gb = 256 }",
                "/autoscaling",
                r#"{"enableNodeAutoprovisioning":true,"resourceLimits":[{"maximum":"64","resourceType":"cpu"},{"maximum":"256","resourceType":"memory"}]}"#,
            ),
            ("autoprovisioning = { enabled = false }", "/autoscaling/enableNodeAutoprovisioning", "false"),
        ],
        &["autopilot"],
    ),
    key(
        &[
            (
                "maintenance = { daily = \"03:00\" }",
                "/maintenancePolicy/window/dailyMaintenanceWindow/startTime",
                "\"03:00\"",
            ),
            (
                "maintenance = { start = \"2026-01-03T03:00:00Z\", end = \"2026-01-03T09:00:00Z\", recurrence = \"FREQ=DAILY\" }",
                WINDOW,
                r#"{"recurringWindow":{"recurrence":"FREQ=DAILY","window":{"startTime":"2026-01-03T03:00:00Z","endTime":"2026-01-03T09:00:00Z"}}}"#,
            ),
        ],
        &[],
    ),
    key(
        &[("network_policy = true", "/networkPolicy", r#"{"enabled":true,"provider":"CALICO"}"#)],
        &["dataplane_v2", "autopilot"],
    ),
    key(&[("dataplane_v2 = true", "/networkConfig/datapathProvider", "\"ADVANCED_DATAPATH\"")], &[]),
    key(
        &[
            ("addons = { gcs_fuse_csi = true }", "/addonsConfig/gcsFuseCsiDriverConfig/enabled", "true"),
            (
                "addons = { http_load_balancing = false, filestore_csi = true }",
                "/addonsConfig",
                r#"{"httpLoadBalancing":{"disabled":true},"gcpFilestoreCsiDriverConfig":{"enabled":true}}"#,
            ),
        ],
        &["autopilot"],
    ),
    key(
        &[
            (
                "logging = [\"system\"]",
                "/loggingConfig/componentConfig/enableComponents",
                r#"["SYSTEM_COMPONENTS"]"#,
            ),
            (
                "logging = [\"system\", \"workloads\"]",
                "/loggingConfig/componentConfig/enableComponents",
                r#"["SYSTEM_COMPONENTS","WORKLOADS"]"#,
            ),
        ],
        &[],
    ),
    key(
        &[(
            "monitoring = [\"system\", \"dcgm\"]",
            "/monitoringConfig/componentConfig/enableComponents",
            r#"["SYSTEM_COMPONENTS","DCGM"]"#,
        )],
        &[],
    ),
    key(
        &[("managed_prometheus = false", "/monitoringConfig/managedPrometheusConfig/enabled", "false")],
        &["autopilot"],
    ),
    key(
        &[(
            "secrets_key = \"projects/demo/locations/us-central1/keyRings/r/cryptoKeys/k\"",
            "/databaseEncryption",
            r#"{"keyName":"projects/demo/locations/us-central1/keyRings/r/cryptoKeys/k"}"#,
        )],
        &[],
    ),
    key(
        &[
            ("shielded_nodes = true", "/shieldedNodes/enabled", "true"),
            ("shielded_nodes = false", "/shieldedNodes/enabled", "false"),
        ],
        &["autopilot"],
    ),
    key(
        &[(
            "binary_authorization = true",
            "/binaryAuthorization/evaluationMode",
            "\"PROJECT_SINGLETON_POLICY_ENFORCE\"",
        )],
        &[],
    ),
    key(
        &[
            ("cost_allocation = true", "/costManagementConfig/enabled", "true"),
            ("cost_allocation = false", "/costManagementConfig/enabled", "false"),
        ],
        &[],
    ),
    key(&[("vertical_pod_autoscaling = true", "/verticalPodAutoscaling/enabled", "true")], &[]),
    key(
        &[
            ("security_posture = \"enterprise\"", "/securityPostureConfig/mode", "\"ENTERPRISE\""),
            ("security_posture = \"disabled\"", "/securityPostureConfig/mode", "\"DISABLED\""),
        ],
        &[],
    ),
    key(
        &[(
            "vulnerability_scanning = \"basic\"",
            "/securityPostureConfig/vulnerabilityMode",
            "\"VULNERABILITY_BASIC\"",
        )],
        &[],
    ),
    key(
        &[
            (
                "notification_topic = \"projects/demo/topics/t\"",
                "/notificationConfig/pubsub",
                r#"{"enabled":true,"topic":"projects/demo/topics/t"}"#,
            ),
            (
                "notification_topic = \"projects/demo/topics/u\"",
                "/notificationConfig/pubsub",
                r#"{"enabled":true,"topic":"projects/demo/topics/u"}"#,
            ),
        ],
        &[],
    ),
    key(&[("fleet = \"demo\"", "/fleet/project", "\"demo\"")], &[]),
    key(&[("max_pods_per_node = 64", "/defaultMaxPodsConstraint/maxPodsPerNode", "\"64\"")], &["autopilot"]),
    key(
        &[(
            "api = { networkConfig = { enableIntraNodeVisibility = true } }",
            "/networkConfig/enableIntraNodeVisibility",
            "true",
        )],
        &["autopilot"],
    ),
];

const SHIELDED: &str = "/config/shieldedInstanceConfig";

/// Of a pool of N2 machines.
pub const POOL: &[Key] = &[
    key(
        &[
            ("disk_size_gb = 50", "/config/diskSizeGb", "50"),
            ("disk_size_gb = 80", "/config/diskSizeGb", "80"),
        ],
        &[],
    ),
    key(
        &[
            ("disk_type = \"pd-ssd\"", "/config/diskType", "\"pd-ssd\""),
            ("disk_type = \"pd-standard\"", "/config/diskType", "\"pd-standard\""),
        ],
        &[],
    ),
    key(&[("image_type = \"UBUNTU_CONTAINERD\"", "/config/imageType", "\"UBUNTU_CONTAINERD\"")], &[]),
    key(
        &[
            ("tags = [\"net\"]", "/config/tags", r#"["net"]"#),
            ("tags = [\"a\", \"b\"]", "/config/tags", r#"["a","b"]"#),
        ],
        &[],
    ),
    key(
        &[
            ("resource_labels = { cost = \"a\" }", "/config/resourceLabels", r#"{"cost":"a"}"#),
            ("resource_labels = { cost = \"b\" }", "/config/resourceLabels", r#"{"cost":"b"}"#),
        ],
        &[],
    ),
    key(
        &[(
            "surge = { max_surge = 2, max_unavailable = 1 }",
            "/upgradeSettings",
            r#"{"maxSurge":2,"maxUnavailable":1,"strategy":"SURGE"}"#,
        )],
        &["blue_green"],
    ),
    key(
        &[(
            "blue_green = { soak = \"10m\", batch_nodes = 1 }",
            "/upgradeSettings",
            r#"{"strategy":"BLUE_GREEN","blueGreenSettings":{"nodePoolSoakDuration":"600s","standardRolloutPolicy":{"batchNodeCount":1}}}"#,
        )],
        &[],
    ),
    key(
        &[
            ("max_pods_per_node = 32", "/maxPodsConstraint/maxPodsPerNode", "\"32\""),
            ("max_pods_per_node = 64", "/maxPodsConstraint/maxPodsPerNode", "\"64\""),
        ],
        &[],
    ),
    key(
        &[
            ("max_run_duration = \"3d\"", "/config/maxRunDuration", "\"259200s\""),
            ("max_run_duration = \"12h\"", "/config/maxRunDuration", "\"43200s\""),
        ],
        &[],
    ),
    key(&[("workload_metadata = \"gce\"", "/config/workloadMetadataConfig/mode", "\"GCE_METADATA\"")], &[]),
    key(
        &[
            (
                "logging_variant = \"max-throughput\"",
                "/config/loggingConfig/variantConfig/variant",
                "\"MAX_THROUGHPUT\"",
            ),
            ("logging_variant = \"default\"", "/config/loggingConfig/variantConfig/variant", "\"DEFAULT\""),
        ],
        &[],
    ),
    key(
        &[
            ("local_ssd = 1", "/config/ephemeralStorageLocalSsdConfig/localSsdCount", "1"),
            ("local_ssd = { block = 1 }", "/config/localNvmeSsdBlockConfig/localSsdCount", "1"),
        ],
        &[],
    ),
    key(
        &[
            ("auto_repair = false", "/management/autoRepair", "false"),
            ("auto_repair = true", "/management/autoRepair", "true"),
        ],
        &[],
    ),
    key(&[("spot = true", "/config/spot", "true")], &["reservation"]),
    key(
        &[
            (
                "reservation = \"none\"",
                "/config/reservationAffinity/consumeReservationType",
                "\"NO_RESERVATION\"",
            ),
            (
                "reservation = { name = \"r\" }",
                "/config/reservationAffinity",
                r#"{"consumeReservationType":"SPECIFIC_RESERVATION","key":"compute.googleapis.com/reservation-name","values":["r"]}"#,
            ),
        ],
        &["spot"],
    ),
    key(&[("placement = \"compact\"", "/placementPolicy/type", "\"COMPACT\"")], &[]),
    key(
        &[
            ("gvnic = true", "/config/gvnic/enabled", "true"),
            ("gvnic = false", "/config/gvnic/enabled", "false"),
        ],
        &[],
    ),
    key(
        &[
            ("image_streaming = true", "/config/gcfsConfig/enabled", "true"),
            (
                "image_streaming = true\nsecondary_boot_disks = [\"projects/demo/global/images/i\"]",
                "/config/secondaryBootDisks",
                r#"[{"diskImage":"projects/demo/global/images/i","mode":"CONTAINER_IMAGE_CACHE"}]"#,
            ),
        ],
        &[],
    ),
    key(&[("secure_boot = true", SHIELDED, r#"{"enableSecureBoot":true}"#)], &[]),
    key(&[("integrity_monitoring = false", SHIELDED, r#"{"enableIntegrityMonitoring":false}"#)], &[]),
    key(&[("private_nodes = true", "/networkConfig/enablePrivateNodes", "true")], &[]),
    key(
        &[(
            "nested_virtualization = true",
            "/config/advancedMachineFeatures/enableNestedVirtualization",
            "true",
        )],
        &[],
    ),
    key(&[("threads_per_core = 1", "/config/advancedMachineFeatures/threadsPerCore", "\"1\"")], &[]),
    key(&[("pod_range = \"pods-2\"", "/networkConfig/podRange", "\"pods-2\"")], &[]),
    key(
        &[(
            "boot_disk_key = \"projects/demo/locations/us-central1/keyRings/r/cryptoKeys/k\"",
            "/config/bootDiskKmsKey",
            "\"projects/demo/locations/us-central1/keyRings/r/cryptoKeys/k\"",
        )],
        &[],
    ),
    key(
        &[(
            "service_account = \"nodes@demo.iam.gserviceaccount.com\"",
            "/config",
            r#"{"serviceAccount":"nodes@demo.iam.gserviceaccount.com","oauthScopes":["https://www.googleapis.com/auth/cloud-platform"]}"#,
        )],
        &["scopes"],
    ),
    key(
        &[(
            "scopes = [\"https://www.googleapis.com/auth/logging.write\"]",
            "/config/oauthScopes",
            r#"["https://www.googleapis.com/auth/logging.write"]"#,
        )],
        &[],
    ),
    key(&[("min_cpu_platform = \"Intel Ice Lake\"", "/config/minCpuPlatform", "\"Intel Ice Lake\"")], &[]),
    key(&[("node_group = \"g\"", "/config/nodeGroup", "\"g\"")], &["spot"]),
    key(
        &[
            ("kubelet = { pod_pids_limit = 4096 }", "/config/kubeletConfig/podPidsLimit", "\"4096\""),
            (
                "kubelet = { cpu_manager_policy = \"static\", cpu_cfs_quota = false }",
                "/config/kubeletConfig",
                r#"{"cpuManagerPolicy":"static","cpuCfsQuota":false}"#,
            ),
        ],
        &[],
    ),
    key(
        &[
            (
                "linux = { sysctls = { \"net.core.somaxconn\" = \"2048\" } }",
                "/config/linuxNodeConfig/sysctls",
                r#"{"net.core.somaxconn":"2048"}"#,
            ),
            (
                "linux = { cgroup_mode = \"CGROUP_MODE_V2\", hugepages = { hugepage_size2m = 64 } }",
                "/config/linuxNodeConfig",
                r#"{"cgroupMode":"CGROUP_MODE_V2","hugepages":{"hugepageSize2m":64}}"#,
            ),
        ],
        &[],
    ),
    key(
        &[
            (
                "registry_mirrors = { \"docker.io\" = [\"https://mirror.gcr.io\"] }",
                "/config/containerdConfig/registryHosts/0/server",
                "\"docker.io\"",
            ),
            (
                "registry_mirrors = { \"quay.io\" = [\"https://mirror.example\"] }",
                "/config/containerdConfig/registryHosts/0/server",
                "\"quay.io\"",
            ),
        ],
        &[],
    ),
    key(
        &[("api = { config = { metadata = { team = \"x\" } } }", "/config/metadata", r#"{"team":"x"}"#)],
        &[],
    ),
];

/// Which keys a section has: index of the key, and of its value.
pub type Keys = BTreeMap<usize, usize>;

pub fn some(of: &'static [Key], most: usize) -> impl Strategy<Value = Keys> {
    let one = (0..of.len(), any::<Index>()).prop_map(|(key, says)| (key, says.index(of[key].says.len())));
    prop::collection::vec(one, 0..most).prop_map(|keys| keys.into_iter().collect())
}

/// Says a key, says something else by it, or says it no longer.
pub fn turn(keys: &mut Keys, of: &[Key], key: usize) {
    let key = key % of.len();
    let next = keys.get(&key).map_or(0, |says| says + 1);
    if next < of[key].says.len() {
        keys.insert(key, next);
    } else {
        keys.remove(&key);
    }
}

impl Key {
    fn name(&self) -> &'static str {
        self.says[0].0.split(' ').next().unwrap_or_default()
    }
}

/// Their lines, without those that others exclude.
pub fn lines(of: &'static [Key], keys: &Keys, autopilot: bool) -> String {
    let mut said: Vec<&Key> = Vec::new();
    let mut lines = String::new();
    for (key, says) in keys {
        let key = &of[*key];
        let apart =
            |other: &&Key| key.excludes.contains(&other.name()) || other.excludes.contains(&key.name());
        if said.iter().any(apart) || (autopilot && key.excludes.contains(&"autopilot")) {
            continue;
        }
        said.push(key);
        lines.push_str(key.says[*says].0);
        lines.push('\n');
    }
    lines
}

/// Checks that GKE has every value that a section sets.
///
/// # Errors
/// The line, and what is there.
pub fn is_live(of: &[Key], section: &toml::Value, live: &Value) -> Result<(), String> {
    for (line, place, want) in of.iter().flat_map(|key| key.says) {
        let said: toml::Table = toml::from_str(line).unwrap();
        if said.iter().any(|(key, value)| section.get(key) != Some(value)) {
            continue;
        }
        let want: Value = serde_json::from_str(want).unwrap();
        let have = live.pointer(place).unwrap_or(&Value::Null);
        if !holds(have, &want) {
            return Err(format!("`{line}` is {want} at {place}, where GKE has {have}"));
        }
    }
    Ok(())
}

/// Returns true if a value has all of another; GKE omits values that are off.
fn holds(have: &Value, want: &Value) -> bool {
    match want {
        Value::Object(fields) => fields.iter().all(|(key, want)| holds(&have[key.as_str()], want)),
        Value::Bool(false) => have.is_null() || have == want,
        other => have == other,
    }
}

fn pool(keys: Keys) -> Section {
    Section { keys, ..Section::of(Slot::Pool(2)) }
}

/// A cluster with a first pool, and another one.
fn cluster(regional: bool, autopilot: bool, keys: Keys, pools: Option<Section>) -> Spec {
    Spec {
        own_cluster: true,
        autopilot,
        regional,
        keys,
        labels: false,
        protect: false,
        sections: pools.into_iter().collect(),
    }
}

/// Two edits, and what each leaves is what the file says.
fn script() -> impl Strategy<Value = Script> {
    let edit = prop_oneof![
        (0..CLUSTER.len()).prop_map(|key| Change::Cluster(Tweak::Gke(key))),
        (0..POOL.len()).prop_map(|key| Change::Tweak(Slot::Pool(2), Tweak::Gke(key))),
    ];
    let whole = (any::<bool>(), proptest::bool::weighted(0.2), some(CLUSTER, 6), some(POOL, 6));
    (whole, prop::collection::vec(prop::collection::vec(edit, 1..5), 1..3)).prop_map(|(whole, rounds)| {
        let (regional, autopilot, of_cluster, of_pool) = whole;
        let mut spec = cluster(regional, autopilot, of_cluster, Some(pool(of_pool)));
        let mut steps = vec![Step::Edit(spec.render()), Step::Apply(Command::default())];
        for round in rounds {
            round.iter().for_each(|change| spec.edit(change));
            steps.extend([Step::Edit(spec.render()), Step::Apply(Command::default())]);
        }
        steps.push(Step::Destroy(Command::default()));
        Script { steps, ..Script::default() }
    })
}

fn holds_in(script: &Script, tally: &Tally) -> Result<(), String> {
    play(script, async |player, step, done| {
        tally.step(step, done);
        match &done.refused {
            Some(why) => return Err(format!("refused: {why}")),
            None if !done.failures().is_empty() => return Err(done.failures().join("; ")),
            None => {}
        }
        laws::all(player, step, done).await
    })
}

#[test]
fn edits_of_keys_reach_gke() {
    let tally = Tally::default();
    check("keys of GKE", 12, script().boxed(), |script| holds_in(script, &tally));
}

/// A line that is no stack would be left out of every property without a word.
#[test]
fn every_key_that_is_drawn_is_applied() {
    let tally = Tally::default();
    let mut wrong = Vec::new();
    // A few keys at a time: each alone would take minutes.
    for says in 0..2 {
        for first in 0..6 {
            let every = |of: &'static [Key]| -> Keys {
                let has = |key: &usize| key % 6 == first && says < of[*key].says.len();
                (0..of.len()).filter(has).map(|key| (key, says)).collect()
            };
            let spec = cluster(false, false, every(CLUSTER), Some(pool(every(POOL))));
            let steps = vec![Step::Edit(spec.render()), Step::Apply(Command::default())];
            let script = Script { steps, ..Script::default() };
            wrong.extend(holds_in(&script, &tally).err().map(|why| format!("{why}\n{script}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
