//! Owners of the number of workers: the stack file, the operator's autoscaler, or users in notebooks.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// The number of workers: a number, or who writes it instead of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// A fixed number, which the file owns.
    Fixed(u32),
    /// Another owner.
    Table(ReplicasTable),
}

/// The owner of the number of workers instead of the file: the Dask operator's autoscaler, or on hosts an adapter, between `min`
/// and `max`, or notebooks, beginning with `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkerLimits")]
pub struct ReplicasTable {
    /// Workers at least; with `max`, for the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub min: Option<u32>,
    /// Workers at most; with `min`, for the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max: Option<u32>,
    /// The initial number of workers, which then belongs to notebooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub start: Option<u32>,
}

/// The owner of a number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCountOwner {
    /// The stack file.
    File(u32),
    /// The operator's autoscaler.
    Autoscaler {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
    /// Users in notebooks; the file sets only the initial number.
    Notebooks(u32),
}

impl Default for Replicas {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl Replicas {
    /// Returns the owner of the number. The rules of the stack refuse contradictions.
    pub fn owner(self) -> WorkerCountOwner {
        match self {
            Self::Fixed(number) => WorkerCountOwner::File(number),
            Self::Table(ReplicasTable { start: Some(start), .. }) => WorkerCountOwner::Notebooks(start),
            Self::Table(ReplicasTable { min, max, start: None }) => {
                WorkerCountOwner::Autoscaler { min: min.unwrap_or(0), max: max.unwrap_or(1) }
            }
        }
    }

    /// Returns the number of workers at least; 0 where notebooks own it.
    pub fn least(self) -> u32 {
        match self.owner() {
            WorkerCountOwner::File(number) => number,
            WorkerCountOwner::Notebooks(_) => 0,
            WorkerCountOwner::Autoscaler { min, max: _ } => min,
        }
    }

    /// Returns the maximum number of workers.
    pub fn most(self) -> u32 {
        match self.owner() {
            WorkerCountOwner::File(number) | WorkerCountOwner::Notebooks(number) => number,
            WorkerCountOwner::Autoscaler { min: _, max } => max,
        }
    }

    /// Returns `spec.worker.replicas` if the file owns it, and the create-only fields otherwise.
    pub fn split(self) -> (Option<u32>, Value) {
        let left = |number: u32| json!({ "spec": { "worker": { "replicas": number } } });
        match self.owner() {
            WorkerCountOwner::File(number) => (Some(number), Value::Null),
            WorkerCountOwner::Autoscaler { min, max: _ } => (None, left(min)),
            WorkerCountOwner::Notebooks(start) => (None, left(start)),
        }
    }
}

impl Serialize for Replicas {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(number) => serializer.serialize_u32(*number),
            Self::Table(given) => given.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Replicas;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of workers or a table with `min` and `max`, or with `start`")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Replicas, E> {
                u32::try_from(number).map(Replicas::Fixed).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Replicas, E> {
                u32::try_from(number).map(Replicas::Fixed).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Replicas, A::Error> {
                ReplicasTable::deserialize(MapAccessDeserializer::new(map)).map(Replicas::Table)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Replicas {
    fn schema_name() -> Cow<'static, str> {
        "Replicas".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The number of workers: a number, or who writes it instead of the file.",
            "oneOf": [
                { "type": "integer", "format": "uint32", "minimum": 0, "maximum": 10000 },
                generator.subschema_for::<ReplicasTable>(),
            ],
        })
    }
}
