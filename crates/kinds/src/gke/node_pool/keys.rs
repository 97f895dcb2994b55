//! Values of `[node_pool.NAME]` that are tables, or have a short form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::gke::enums::{TenantOperator, from_proto_duration, to_proto_duration};
use crate::json::{number, text};

/// The `key` of a reservation affinity that names a reservation.
const RESERVATION_NAME: &str = "compute.googleapis.com/reservation-name";

/// A way to buy machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Capacity {
    /// Out of the reservation that `reservation` names, and no other machine.
    Reservation,
    /// At the list price, to keep.
    OnDemand,
    /// Cheaper; may be reclaimed at any time.
    Spot,
    /// Node by node when machines are to be had, for 7 days at most.
    FlexStart,
    /// All nodes of a ProvisioningRequest at once.
    Queued,
}

impl Capacity {
    /// Returns the word of the stack file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reservation => "reservation",
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::FlexStart => "flex-start",
            Self::Queued => "queued",
        }
    }

    /// Returns true if GKE waits for machines with this option. Such a pool is created without nodes, so its creation never fails
    /// for lack of machines.
    pub fn waits(self) -> bool {
        matches!(self, Self::FlexStart | Self::Queued)
    }
}

/// Reserved machines: `"any"`, `"none"`, or `{ name = "r" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Any that fits, else other machines.
    Any,
    /// None, although one fits.
    None,
    /// This one and no other machine.
    Named(String),
}

/// A reservation in full.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ReservationTable")]
struct Named<'a> {
    /// The reservation's name; of another project `projects/P/reservations/R`.
    name: Cow<'a, str>,
}

impl Reservation {
    pub(super) fn api(&self) -> Value {
        match self {
            Self::Any => json!({ "consumeReservationType": "ANY_RESERVATION" }),
            Self::None => json!({ "consumeReservationType": "NO_RESERVATION" }),
            Self::Named(name) => json!({
                "consumeReservationType": "SPECIFIC_RESERVATION", "key": RESERVATION_NAME, "values": [name],
            }),
        }
    }

    pub(super) fn of(live: &Value) -> Option<Self> {
        let names = live["values"].as_array().map(Vec::as_slice).unwrap_or_default();
        match (text(&live["consumeReservationType"]), names) {
            ("ANY_RESERVATION", _) => Some(Self::Any),
            ("NO_RESERVATION", _) => Some(Self::None),
            ("SPECIFIC_RESERVATION", [name]) if live["key"] == RESERVATION_NAME => {
                Some(Self::Named(text(name).to_owned()))
            }
            _ => None,
        }
    }
}

impl Serialize for Reservation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => serializer.serialize_str("any"),
            Self::None => serializer.serialize_str("none"),
            Self::Named(name) => Named { name: Cow::Borrowed(name) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Reservation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Reservation;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`any`, `none` or a table with `name`")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Reservation, E> {
                match word {
                    "any" => Ok(Reservation::Any),
                    "none" => Ok(Reservation::None),
                    other => Err(E::unknown_variant(other, &["any", "none"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Reservation, A::Error> {
                let Named { name } = Named::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Reservation::Named(name.into_owned()))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Reservation {
    fn schema_name() -> Cow<'static, str> {
        "Reservation".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Reserved machines: `\"any\"`, `\"none\"`, or a table with `name`.",
            "oneOf": [
                { "type": "string", "enum": ["any", "none"] },
                generator.subschema_for::<Named<'static>>(),
            ],
        })
    }
}

/// Disks inside the machines: a number for the scratch space of Pods, or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalSsd {
    /// For `emptyDir` and container layers.
    pub ephemeral: Option<u32>,
    /// As raw block devices.
    pub block: Option<u32>,
    /// By SCSI, formatted and mounted by GKE: the oldest form.
    pub scsi: Option<u32>,
}

impl LocalSsd {
    const NONE: Self = Self { ephemeral: None, block: None, scsi: None };

    pub(super) fn ephemeral(disks: u32) -> Self {
        Self { ephemeral: Some(disks), ..Self::NONE }
    }

    pub(super) fn block(disks: u32) -> Self {
        Self { block: Some(disks), ..Self::NONE }
    }

    pub(super) fn scsi(disks: u32) -> Self {
        Self { scsi: Some(disks), ..Self::NONE }
    }

    /// Returns how many forms are set; a machine can have only one.
    pub fn forms(self) -> usize {
        [self.ephemeral, self.block, self.scsi].into_iter().flatten().count()
    }
}

/// Local SSDs in full.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LocalSsdTable")]
struct Ssds {
    /// Disks for the scratch space of Pods: `emptyDir` and container layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    ephemeral: Option<u32>,
    /// Disks that Pods get as raw block devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    block: Option<u32>,
    /// Disks by SCSI, formatted and mounted below `/mnt/disks`: the oldest form, on machines that have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    scsi: Option<u32>,
}

impl Serialize for LocalSsd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self { ephemeral: Some(disks), block: None, scsi: None } => serializer.serialize_u32(disks),
            Self { ephemeral, block, scsi } => Ssds { ephemeral, block, scsi }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for LocalSsd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = LocalSsd;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of disks or a table with `ephemeral`, `block` or `scsi`")
            }

            fn visit_i64<E: Error>(self, disks: i64) -> Result<LocalSsd, E> {
                u32::try_from(disks).map(LocalSsd::ephemeral).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, disks: u64) -> Result<LocalSsd, E> {
                u32::try_from(disks).map(LocalSsd::ephemeral).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LocalSsd, A::Error> {
                let Ssds { ephemeral, block, scsi } = Ssds::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LocalSsd { ephemeral, block, scsi })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for LocalSsd {
    fn schema_name() -> Cow<'static, str> {
        "LocalSsd".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Disks inside the machines: a number for the scratch space of Pods, or a table.",
            "oneOf": [
                { "type": "integer", "format": "uint32", "minimum": 1, "maximum": 64 },
                generator.subschema_for::<Ssds>(),
            ],
        })
    }
}

/// On which sole-tenant nodes the machines of a pool run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantAffinity {
    /// The label of the nodes: `compute.googleapis.com/node-group-name`.
    pub key: String,
    /// `in` or `not-in`.
    pub operator: TenantOperator,
    /// The label's values.
    pub values: Vec<String>,
}

impl TenantAffinity {
    pub(super) fn api(&self) -> Value {
        json!({ "key": self.key, "operator": self.operator.api(), "values": self.values })
    }

    pub(super) fn of(live: &Value) -> Option<Self> {
        let values = live["values"].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let operator = TenantOperator::of(&live["operator"])?;
        Some(Self { key: text(&live["key"]).to_owned(), operator, values })
    }
}

/// Settings of the kubelet. Other fields of the API's `NodeKubeletConfig` are set under `api`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kubelet {
    /// `static` gives whole CPUs to Pods that ask for whole ones; `none` does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_manager_policy: Option<String>,
    /// True if CPU limits are enforced by quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cfs_quota: Option<bool>,
    /// The period of that quota: `100ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cfs_quota_period: Option<String>,
    /// Processes of a Pod at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 4194304))]
    pub pod_pids_limit: Option<u32>,
    /// True if the kubelet answers on port 10255 without authentication. Default: GKE's, which is `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_kubelet_readonly_port_enabled: Option<bool>,
    /// Images that are pulled at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 5))]
    pub max_parallel_image_pulls: Option<u32>,
    /// The largest log file of a container: `10Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_log_max_size: Option<String>,
    /// Log files of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 10))]
    pub container_log_max_files: Option<u32>,
    /// Percent of the disk below which no image is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 85))]
    pub image_gc_low_threshold_percent: Option<u32>,
    /// Percent of the disk above which images are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 85))]
    pub image_gc_high_threshold_percent: Option<u32>,
}

/// Settings of the Linux kernel. Other fields of the API's `LinuxNodeConfig` are set under `api`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Linux {
    /// Kernel parameters: `{ "net.core.somaxconn" = "2048" }`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// `CGROUP_MODE_V1` or `CGROUP_MODE_V2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_mode: Option<String>,
    /// Memory pages that are set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    /// Swap space of the nodes. Pods swap as far as the kubelet lets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_config: Option<Swap>,
}

/// Swap space: on one of the three kinds of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Swap {
    /// True if nodes have swap space. With `false` nothing else may be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// On the boot disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_disk_profile: Option<SwapSize>,
    /// On the local SSDs of `local_ssd = { ephemeral = … }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral_local_ssd_profile: Option<SwapSize>,
    /// On local SSDs that serve nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated_local_ssd_profile: Option<SwapDisks>,
    /// `{ disabled = true }`: what is swapped out is not encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption_config: Option<SwapEncryption>,
}

/// How much of a disk is swap space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwapSize {
    /// GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_size_gib: Option<u32>,
    /// Percent of the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub swap_size_percent: Option<u32>,
}

/// Local SSDs for swap space alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwapDisks {
    /// Disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_count: Option<u32>,
}

/// Encryption of swap space, which GKE has by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwapEncryption {
    /// `true` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
}

/// Memory pages that are set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hugepages {
    /// Pages of 2 MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepage_size2m: Option<u32>,
    /// Pages of 1 GB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepage_size1g: Option<u32>,
}

/// Upgrades that make a second set of nodes and then move over. Needs room for as many machines again.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BlueGreen {
    /// How long the old nodes stay after all Pods have moved: `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<String>,
    /// Nodes that are drained at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub batch_nodes: Option<u32>,
    /// Percent of the nodes that are drained at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub batch_percent: Option<u32>,
    /// How long to wait after each batch: `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_soak: Option<String>,
}

impl BlueGreen {
    /// Returns the API's settings; `None` for GKE's own.
    pub(super) fn api(&self) -> Option<Value> {
        let Self { soak, batch_nodes, batch_percent, batch_soak } = self;
        let mut settings = json!({});
        if let Some(soak) = soak {
            settings["nodePoolSoakDuration"] = to_proto_duration(soak);
        }
        if let Some(nodes) = batch_nodes {
            settings["standardRolloutPolicy"]["batchNodeCount"] = json!(nodes);
        }
        if let Some(percent) = batch_percent {
            settings["standardRolloutPolicy"]["batchPercentage"] = json!(f64::from(*percent) / 100.0);
        }
        if let Some(soak) = batch_soak {
            settings["standardRolloutPolicy"]["batchSoakDuration"] = to_proto_duration(soak);
        }
        (settings != json!({})).then_some(settings)
    }

    /// Reads the settings from their live state.
    pub fn of(live: &Value) -> Self {
        let policy = &live["standardRolloutPolicy"];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "percent of a share")]
        let percent = policy["batchPercentage"].as_f64().map(|share| (share * 100.0).round() as u32);
        Self {
            // An hour is GKE's own.
            soak: from_proto_duration(&live["nodePoolSoakDuration"]).filter(|soak| soak != "1h"),
            batch_nodes: number(&policy["batchNodeCount"]).and_then(|nodes| u32::try_from(nodes).ok()),
            batch_percent: percent.filter(|percent| *percent > 0),
            batch_soak: from_proto_duration(&policy["batchSoakDuration"]).filter(|soak| soak != "0s"),
        }
    }
}
