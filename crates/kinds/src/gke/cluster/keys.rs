//! Values of `[cluster]` that are tables, or have a short form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::gke::enums::{AutoscalingProfile, ExclusionScope};
use crate::json::{number, text};

/// Networks that reach the control plane: a list of ranges, or a table of names and ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Networks {
    /// `["10.0.0.0/8"]`
    Ranges(Vec<String>),
    /// `{ office = "10.0.0.0/8" }`
    Named(BTreeMap<String, String>),
}

impl Networks {
    /// Returns the ranges, with their names.
    pub fn ranges(&self) -> Vec<(Option<&str>, &str)> {
        match self {
            Self::Ranges(ranges) => ranges.iter().map(|range| (None, range.as_str())).collect(),
            Self::Named(named) => {
                named.iter().map(|(name, range)| (Some(name.as_str()), range.as_str())).collect()
            }
        }
    }

    pub(super) fn api(&self) -> Value {
        let block = |(name, range): (Option<&str>, &str)| match name {
            Some(name) => json!({ "cidrBlock": range, "displayName": name }),
            None => json!({ "cidrBlock": range }),
        };
        let blocks: Vec<Value> = self.ranges().into_iter().map(block).collect();
        json!({ "cidrBlocks": blocks, "enabled": true })
    }

    pub(super) fn of(live: &Value) -> Option<Self> {
        let blocks = live["cidrBlocks"].as_array().map(Vec::as_slice).unwrap_or_default();
        if blocks.is_empty() && live["enabled"] != true {
            return None;
        }
        let range = |block: &Value| text(&block["cidrBlock"]).to_owned();
        let named = |block: &Value| Some((block["displayName"].as_str()?.to_owned(), range(block)));
        let all: Option<BTreeMap<String, String>> = blocks.iter().map(named).collect();
        Some(match all.filter(|all| all.len() == blocks.len() && !all.is_empty()) {
            Some(all) => Self::Named(all),
            None => Self::Ranges(blocks.iter().map(range).collect()),
        })
    }
}

impl Serialize for Networks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Ranges(ranges) => ranges.serialize(serializer),
            Self::Named(named) => named.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Networks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Networks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of ranges or a table of names and ranges")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Networks, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Networks::Ranges)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Networks, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(Networks::Named)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Networks {
    fn schema_name() -> Cow<'static, str> {
        "Networks".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Networks that reach the control plane: a list of ranges, or a table of names and ranges.",
            "oneOf": [
                { "type": "array", "items": { "type": "string" } },
                { "type": "object", "additionalProperties": { "type": "string" } },
            ],
        })
    }
}

/// Node pools that GKE makes by itself for Pods that fit on none (node auto-provisioning). `profile` alone sets the
/// autoscaler's profile without it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Autoprovisioning {
    /// `false` switches it off. Default true, unless `profile` is the only key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// CPUs of all nodes of the cluster at most.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_cpus: u32,
    /// Gigabytes of memory of all nodes of the cluster at most.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_memory_gb: u32,
    /// GPUs of the cluster at most, by type: `{ nvidia-l4 = 4 }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_gpus: BTreeMap<String, u32>,
    /// Zones of the pools that GKE makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The Google service account of their nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Their boot disks' type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_type: Option<String>,
    /// Their boot disks' size in GB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 65536))]
    pub disk_size_gb: Option<u32>,
    /// True if GKE repairs nodes of the pools that it creates. Default true; a repair ends the work on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_repair: Option<bool>,
    /// True if GKE upgrades these nodes. Default true; in a release channel it cannot be switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_upgrade: Option<bool>,
    /// How hard the autoscaler tries to remove nodes, of all pools: `"balanced"` or `"optimize-utilization"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<AutoscalingProfile>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Autoprovisioning {
    /// Returns true unless auto-provisioning is off, or the section sets nothing but the autoscaler's profile.
    pub fn makes_pools(&self) -> bool {
        self.enabled.unwrap_or(self.profile.is_none() || *self != Self::profile(self.profile))
    }

    /// Creates settings with only the autoscaler's profile.
    fn profile(profile: Option<AutoscalingProfile>) -> Self {
        Self {
            enabled: None,
            max_cpus: 0,
            max_memory_gb: 0,
            max_gpus: BTreeMap::new(),
            zones: Vec::new(),
            service_account: None,
            disk_type: None,
            disk_size_gb: None,
            auto_repair: None,
            auto_upgrade: None,
            profile,
        }
    }

    pub(super) fn api(&self) -> Value {
        let Self { enabled, max_cpus, max_memory_gb, max_gpus, zones, .. } = self;
        let Self { service_account, disk_type, disk_size_gb, auto_repair, auto_upgrade, profile, .. } = self;
        let mut found = json!({});
        if enabled.is_some() || self.makes_pools() {
            found["enableNodeAutoprovisioning"] = json!(self.makes_pools());
        }
        let gpus = max_gpus.iter().map(|(kind, most)| (kind.as_str(), *most));
        let limits = [("cpu", *max_cpus), ("memory", *max_memory_gb)].into_iter().chain(gpus);
        let limits: Vec<Value> = limits
            .filter(|(_, most)| *most > 0)
            .map(|(kind, most)| json!({ "maximum": most.to_string(), "resourceType": kind }))
            .collect();
        if !limits.is_empty() {
            found["resourceLimits"] = limits.into();
        }
        if !zones.is_empty() {
            found["autoprovisioningLocations"] = json!(zones);
        }
        let mut pools = json!({});
        let texts = [("serviceAccount", service_account), ("diskType", disk_type)];
        for (name, value) in texts.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            pools[name] = json!(value);
        }
        if let Some(size) = disk_size_gb {
            pools["diskSizeGb"] = json!(size);
        }
        let switches = [("autoRepair", auto_repair), ("autoUpgrade", auto_upgrade)];
        for (name, on) in switches.into_iter().filter_map(|(name, on)| Some((name, (*on)?))) {
            pools["management"][name] = json!(on);
        }
        if pools != json!({}) {
            found["autoprovisioningNodePoolDefaults"] = pools;
        }
        if let Some(profile) = profile {
            found["autoscalingProfile"] = profile.api();
        }
        found
    }

    pub(super) fn of(live: &Value) -> Option<Self> {
        let profile = AutoscalingProfile::of(&live["autoscalingProfile"]);
        if live["enableNodeAutoprovisioning"] != true {
            // `BALANCED` is GKE's own.
            let chosen = profile.filter(|profile| *profile != AutoscalingProfile::Balanced);
            return chosen.map(|profile| Self::profile(Some(profile)));
        }
        let limits = live["resourceLimits"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Minimums have no key: what has one is said in the API's own words.
        if limits.iter().any(|limit| number(&limit["minimum"]).unwrap_or_default() > 0) {
            return None;
        }
        let mut most: BTreeMap<String, u32> = limits
            .iter()
            .filter_map(|limit| {
                let most = u32::try_from(number(&limit["maximum"])?).ok()?;
                Some((text(&limit["resourceType"]).to_owned(), most))
            })
            .collect();
        let pools = &live["autoprovisioningNodePoolDefaults"];
        let given = |value: &Value| Some(text(value).to_owned()).filter(|text| !text.is_empty());
        // GKE leaves out what is off.
        let off = |switch: &str| {
            (pools["management"].is_object() && pools["management"][switch] != true).then_some(false)
        };
        Some(Self {
            enabled: None,
            max_cpus: most.remove("cpu").unwrap_or_default(),
            max_memory_gb: most.remove("memory").unwrap_or_default(),
            max_gpus: most,
            zones: crate::gke::field::strings(
                live["autoprovisioningLocations"].as_array().into_iter().flatten(),
            ),
            service_account: given(&pools["serviceAccount"]),
            disk_type: given(&pools["diskType"]),
            disk_size_gb: number(&pools["diskSizeGb"]).and_then(|size| u32::try_from(size).ok()),
            auto_repair: off("autoRepair"),
            auto_upgrade: off("autoUpgrade"),
            profile,
        })
    }
}

/// When GKE may upgrade: `daily`, or a window that recurs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Maintenance {
    /// The start of a window of four hours each day, in UTC: `"03:00"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daily: Option<String>,
    /// The start of the first window: `"2026-01-03T03:00:00Z"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// How it recurs, by RFC 5545: `"FREQ=WEEKLY;BYDAY=SA,SU"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<String>,
    /// Times without upgrades, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub exclusions: BTreeMap<String, Exclusion>,
}

/// A time without upgrades.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// From when: `"2026-12-20T00:00:00Z"`.
    pub start: String,
    /// Until when.
    pub end: String,
    /// The upgrades to prevent: `"no-upgrades"`, `"no-minor-upgrades"` or `"no-minor-or-node-upgrades"`. Default: every upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ExclusionScope>,
}

impl Maintenance {
    pub(super) fn api(&self) -> Value {
        let Self { daily, start, end, recurrence, exclusions } = self;
        let mut window = json!({});
        if let Some(daily) = daily {
            window["dailyMaintenanceWindow"] = json!({ "startTime": daily });
        }
        if let (Some(start), Some(end), Some(recurrence)) = (start, end, recurrence) {
            window["recurringWindow"] =
                json!({ "recurrence": recurrence, "window": { "endTime": end, "startTime": start } });
        }
        for (name, Exclusion { start, end, scope }) in exclusions {
            window["maintenanceExclusions"][name] = json!({ "endTime": end, "startTime": start });
            // The API leaves out its zero value, which is every upgrade.
            if let Some(scope) = scope.filter(|scope| *scope != ExclusionScope::NoUpgrades) {
                window["maintenanceExclusions"][name]["maintenanceExclusionOptions"] =
                    json!({ "scope": scope.api() });
            }
        }
        window
    }

    pub(super) fn of(live: &Value) -> Option<Self> {
        let given = |value: &Value| Some(text(value).to_owned()).filter(|text| !text.is_empty());
        let recurring = &live["recurringWindow"];
        let exclusion = |(name, live): (&String, &Value)| {
            let scope = &live["maintenanceExclusionOptions"]["scope"];
            let (start, end) = (given(&live["startTime"])?, given(&live["endTime"])?);
            Some((name.clone(), Exclusion { start, end, scope: ExclusionScope::of(scope) }))
        };
        let exclusions = live["maintenanceExclusions"].as_object().into_iter().flatten();
        let found = Self {
            daily: given(&live["dailyMaintenanceWindow"]["startTime"]),
            start: given(&recurring["window"]["startTime"]),
            end: given(&recurring["window"]["endTime"]),
            recurrence: given(&recurring["recurrence"]),
            exclusions: exclusions.filter_map(exclusion).collect(),
        };
        (found != Self::default()).then_some(found)
    }
}

/// Addons of the cluster, by name. An addon that is not named stays as GKE has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Addons {
    /// Load balancers for Ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_load_balancing: Option<bool>,
    /// Horizontal Pod autoscaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizontal_pod_autoscaling: Option<bool>,
    /// A DNS cache on every node. Switching it recreates the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_cache: Option<bool>,
    /// Volumes on Compute Engine disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_disk_csi: Option<bool>,
    /// Volumes on Filestore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filestore_csi: Option<bool>,
    /// Volumes on Cloud Storage buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcs_fuse_csi: Option<bool>,
    /// Volumes on Parallelstore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelstore_csi: Option<bool>,
    /// Volumes on Managed Lustre.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lustre_csi: Option<bool>,
    /// Backup for GKE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// Config Connector. Needs `workload_identity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_connector: Option<bool>,
    /// The Ray operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_operator: Option<bool>,
}

/// The meaning of `true` in the API's field of an addon: on (`enabled`) or off (`disabled`).
#[derive(Clone, Copy, PartialEq)]
enum SwitchMeaning {
    On,
    Off,
}

impl Addons {
    fn rows(&mut self) -> [(&'static str, SwitchMeaning, &mut Option<bool>); 11] {
        [
            ("httpLoadBalancing", SwitchMeaning::Off, &mut self.http_load_balancing),
            ("horizontalPodAutoscaling", SwitchMeaning::Off, &mut self.horizontal_pod_autoscaling),
            ("dnsCacheConfig", SwitchMeaning::On, &mut self.dns_cache),
            ("gcePersistentDiskCsiDriverConfig", SwitchMeaning::On, &mut self.persistent_disk_csi),
            ("gcpFilestoreCsiDriverConfig", SwitchMeaning::On, &mut self.filestore_csi),
            ("gcsFuseCsiDriverConfig", SwitchMeaning::On, &mut self.gcs_fuse_csi),
            ("parallelstoreCsiDriverConfig", SwitchMeaning::On, &mut self.parallelstore_csi),
            ("lustreCsiDriverConfig", SwitchMeaning::On, &mut self.lustre_csi),
            ("gkeBackupAgentConfig", SwitchMeaning::On, &mut self.backup),
            ("configConnectorConfig", SwitchMeaning::On, &mut self.config_connector),
            ("rayOperatorConfig", SwitchMeaning::On, &mut self.ray_operator),
        ]
    }

    pub(super) fn api(mut self) -> Value {
        let said = self.rows().into_iter().filter_map(|(name, says, on)| {
            let on = (*on)?;
            Some((
                name,
                if says == SwitchMeaning::On { json!({ "enabled": on }) } else { json!({ "disabled": !on }) },
            ))
        });
        said.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    pub(super) fn of(live: &Value) -> Option<Self> {
        let mut found = Self::default();
        for (name, says, on) in found.rows() {
            *on = match says {
                SwitchMeaning::On => live[name]["enabled"].as_bool(),
                SwitchMeaning::Off => live[name]["disabled"].as_bool().map(|off| !off),
            };
        }
        (found != Self::default()).then_some(found)
    }
}
