//! Values with a short form and a full one. The structural check of the stack reports mistakes before serde sees them, so there
//! is no untagged enum here.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Deserializes a value that is a string (the short form) or a table; `expected` names both in messages.
///
/// # Errors
///
/// The value is neither, or the table has other fields.
pub fn text_or_table<'de, D: Deserializer<'de>, Table: Deserialize<'de>, T>(
    deserializer: D,
    expected: &str,
    text: fn(&str) -> T,
    table: fn(Table) -> T,
) -> Result<T, D::Error> {
    struct Either<'a, Table, T> {
        expected: &'a str,
        text: fn(&str) -> T,
        table: fn(Table) -> T,
    }

    impl<'de, Table: Deserialize<'de>, T> Visitor<'de> for Either<'_, Table, T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.expected)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            Ok((self.text)(text))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            Table::deserialize(MapAccessDeserializer::new(map)).map(self.table)
        }
    }

    deserializer.deserialize_any(Either { expected, text, table })
}

/// Returns `7d`, `12h`, `30m`, `45s`, `1h30m` in seconds.
pub fn seconds(text: &str) -> Option<u64> {
    let (mut total, mut number) = (0u64, String::new());
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            number.push(letter);
            continue;
        }
        let unit = match letter {
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    (number.is_empty() && !text.is_empty()).then_some(total)
}

/// GPUs of a node pool: `"nvidia-tesla-t4"`, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// The accelerator's type as GKE names it: `nvidia-tesla-t4`.
    pub r#type: String,
    /// GPUs a node; `None` means what the machine type fixes, else 1.
    pub count: Option<u32>,
    /// Several pods on one GPU.
    pub sharing: Option<Sharing>,
    /// The size of a partition (MIG): `1g.5gb`.
    pub partition: Option<String>,
}

/// GPUs of a node pool in full.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AcceleratorTable")]
struct Table<'a> {
    /// The GPU type as GKE names it: `nvidia-tesla-t4`.
    r#type: Cow<'a, str>,
    /// GPUs a node. Default: what the machine type fixes, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    count: Option<u32>,
    /// Several pods on one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sharing: Option<Sharing>,
    /// The size of a partition (MIG): `1g.5gb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<Cow<'a, str>>,
}

/// How several pods share one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// `time-sharing` or `mps`.
    pub strategy: SharingStrategy,
    /// Pods on one GPU at most.
    #[schemars(range(min = 2, max = 48))]
    pub clients: u32,
}

/// The way of sharing a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharingStrategy {
    /// Pods take turns.
    TimeSharing,
    /// NVIDIA's Multi-Process Service.
    Mps,
}

/// The size of a node pool: a number, or limits to autoscale between. Both count all zones together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// As many as this.
    Fixed(u32),
    /// GKE's autoscaler is the writer of the number.
    Autoscaled {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
}

/// Limits of an autoscaled node pool.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NodeLimits")]
struct Limits {
    /// Nodes at least, in all zones together.
    #[schemars(range(min = 0, max = 15000))]
    min: u32,
    /// Nodes at most, in all zones together.
    #[schemars(range(min = 1, max = 15000))]
    max: u32,
}

impl Default for Nodes {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl Nodes {
    pub fn least(self) -> u32 {
        match self {
            Self::Fixed(nodes) => nodes,
            Self::Autoscaled { min, .. } => min,
        }
    }

    pub fn most(self) -> u32 {
        match self {
            Self::Fixed(nodes) => nodes,
            Self::Autoscaled { max, .. } => max,
        }
    }
}

impl Serialize for Accelerator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { r#type, count, sharing, partition } = self;
        if count.is_none() && sharing.is_none() && partition.is_none() {
            return serializer.serialize_str(r#type);
        }
        let partition = partition.as_deref().map(Cow::Borrowed);
        Table { r#type: Cow::Borrowed(r#type), count: *count, sharing: sharing.clone(), partition }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Accelerator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let short =
            |text: &str| Self { r#type: text.to_owned(), count: None, sharing: None, partition: None };
        text_or_table(deserializer, "a GPU type or a table with `type`", short, |table: Table<'static>| {
            let Table { r#type, count, sharing, partition } = table;
            Self { r#type: r#type.into_owned(), count, sharing, partition: partition.map(Cow::into_owned) }
        })
    }
}

impl JsonSchema for Accelerator {
    fn schema_name() -> Cow<'static, str> {
        "Accelerator".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "GPUs of a node pool: `\"nvidia-tesla-t4\"`, or a table.",
            "oneOf": [{ "type": "string" }, generator.subschema_for::<Table<'static>>()],
        })
    }
}

impl Serialize for Nodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Fixed(nodes) => serializer.serialize_u32(nodes),
            Self::Autoscaled { min, max } => Limits { min, max }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Nodes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of nodes or a table with `min` and `max`")
            }

            fn visit_i64<E: Error>(self, nodes: i64) -> Result<Nodes, E> {
                u32::try_from(nodes).map(Nodes::Fixed).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, nodes: u64) -> Result<Nodes, E> {
                u32::try_from(nodes).map(Nodes::Fixed).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Nodes, A::Error> {
                let Limits { min, max } = Limits::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Nodes::Autoscaled { min, max })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Nodes {
    fn schema_name() -> Cow<'static, str> {
        "Nodes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The size of a node pool: a number, or limits to autoscale between. Both count all \
                 zones together.",
            "oneOf": [
                { "type": "integer", "format": "uint32", "minimum": 0, "maximum": 15000 },
                generator.subschema_for::<Limits>(),
            ],
        })
    }
}

/// A value of `[vars]`: text, a number, or true or false.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scalar(pub serde_json::Value);

impl JsonSchema for Scalar {
    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A value of `[vars]`: text, a number, or true or false.",
            "type": ["string", "integer", "number", "boolean"],
        })
    }
}

/// A taint of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value; empty if omitted.
    #[serde(default)]
    pub value: String,
    /// The effect on pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods are kept away.
    NoSchedule,
    /// New pods are kept away when there is another place.
    PreferNoSchedule,
    /// Running pods are evicted as well.
    NoExecute,
}

impl TaintEffect {
    pub(crate) fn api(self) -> &'static str {
        match self {
            Self::NoSchedule => "NO_SCHEDULE",
            Self::PreferNoSchedule => "PREFER_NO_SCHEDULE",
            Self::NoExecute => "NO_EXECUTE",
        }
    }

    /// Returns the name in the Kubernetes API.
    pub fn kubernetes(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// The installer of the NVIDIA driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriverInstall {
    /// GKE itself, as part of the node pool.
    #[default]
    Gke,
    /// The installer DaemonSet `kube-system/nvidia-driver-installer`.
    Daemonset,
    /// Neither: others bring the driver and the device plugin, as NVIDIA's GPU Operator does.
    None,
}

/// The most hosts that one name may stand for.
const MAX_HOSTS: u32 = 1000;

/// Returns `gpu1` to `gpu4` for `gpu[1-4]`, and `gpu01` to `gpu12` for `gpu[01-12]`.
pub fn host_names(text: &str) -> Vec<String> {
    let whole = || vec![text.to_owned()];
    let Some((before, rest)) = text.split_once('[') else { return whole() };
    let Some((range, after)) = rest.split_once(']') else { return whole() };
    let Some((first, last)) = range.split_once('-') else { return whole() };
    let width = first.len();
    let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { return whole() };
    if last < first || last - first >= MAX_HOSTS {
        return whole();
    }
    (first..=last).map(|number| format!("{before}{number:0width$}{after}")).collect()
}
