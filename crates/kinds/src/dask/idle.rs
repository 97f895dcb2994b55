//! `idle_timeout`: when the operator deletes a Dask cluster without work, and whether an apply recreates it.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::is_false;
use crate::short_forms::seconds;
use model::resource::Recreation;

/// The time without work after which the operator deletes a cluster, in the form in which the stack file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleTimeout {
    /// A number of seconds. The deleted cluster is not recreated.
    Seconds(u32),
    /// A duration such as `30m`, in seconds; `None` if the text is not a duration. The deleted cluster is not recreated.
    Text(Option<u32>),
    /// A table, which also says whether the next apply recreates the cluster.
    Table(IdleTable),
}

/// Seconds without work after which the operator deletes a cluster, and whether the next apply recreates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "IdleTimeoutTable")]
pub struct IdleTable {
    /// Seconds without work. 0 is never.
    pub seconds: u32,
    /// True if the next apply recreates it. Default `false`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub remake: bool,
}

impl IdleTimeout {
    /// Returns the seconds without work.
    pub fn seconds(self) -> u32 {
        match self {
            Self::Seconds(seconds) | Self::Table(IdleTable { seconds, .. }) => seconds,
            Self::Text(seconds) => seconds.unwrap_or_default(),
        }
    }

    /// Returns whether the next apply recreates a cluster that was deleted because it was idle.
    pub fn recreation(self) -> Recreation {
        match self {
            Self::Table(IdleTable { remake: true, .. }) => Recreation::Always,
            Self::Seconds(_) | Self::Text(_) | Self::Table(_) if self.seconds() == 0 => Recreation::Always,
            Self::Seconds(_) | Self::Text(_) | Self::Table(_) => Recreation::Once { timeout: None },
        }
    }
}

impl Serialize for IdleTimeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Seconds(_) | Self::Text(_) => serializer.serialize_u32(self.seconds()),
            Self::Table(table) => table.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for IdleTimeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = IdleTimeout;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seconds, a time, or a table with `seconds`")
            }

            fn visit_i64<E: Error>(self, seconds: i64) -> Result<IdleTimeout, E> {
                u32::try_from(seconds).map(IdleTimeout::Seconds).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, seconds: u64) -> Result<IdleTimeout, E> {
                u32::try_from(seconds).map(IdleTimeout::Seconds).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, time: &str) -> Result<IdleTimeout, E> {
                let seconds = seconds(time).and_then(|seconds| u32::try_from(seconds).ok());
                Ok(IdleTimeout::Text(seconds))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<IdleTimeout, A::Error> {
                IdleTable::deserialize(MapAccessDeserializer::new(map)).map(IdleTimeout::Table)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for IdleTimeout {
    fn schema_name() -> Cow<'static, str> {
        "IdleTimeout".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Seconds without work after which the operator deletes a cluster, and whether it is \
                 recreated.",
            "oneOf": [
                { "type": "integer", "format": "uint32", "minimum": 0 },
                { "type": "string" },
                generator.subschema_for::<IdleTable>(),
            ],
        })
    }
}
