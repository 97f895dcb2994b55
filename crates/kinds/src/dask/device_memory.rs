//! The GPU memory of workers: options of `dask cuda worker` for RMM and for spilling.
//!
//! Source of options and their rules: `cli.py`, `cuda_worker.py`, `plugins.py` and `utils.py` of dask-cuda 26.10.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::dask::process::arguments;
use crate::env::Env;
use crate::json::{append, is_false};
use model::address::FieldPath;

/// The variable that switches cuDF's spilling on in a process that is not a worker. dask-cuda asks for it on scheduler and clients.
const SPILL_VARIABLE: &str = "CUDF_SPILL";

/// The use of GPU memory by workers with GPUs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct DeviceMemoryKeys {
    /// RMM, the allocator of GPU memory: `{ pool = 0.8 }`, `{ async = true, release_threshold = "20GiB" }`, `{ managed = true }`. Needs `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rmm: Option<Rmm>,
    /// GPU memory at which a worker moves results to the host: a fraction, `0.7`, a size, `"30GiB"`, or `"auto"`: it never does.
    /// dask-cuda's default is 0.8. Needs `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory_limit: Option<DeviceSize>,
    /// `true`: cuDF moves the buffers of data frames to the host when GPU memory is full. Scheduler, programs, checks and
    /// notebooks get `CUDF_SPILL=on`. Needs `gpus`. Default `false`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cudf_spill: bool,
}

/// The RAPIDS Memory Manager of each worker process. Sizes are of one GPU: a fraction of its memory, `0.8`, or `"30GiB"`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rmm {
    /// Memory that a worker takes at its start, instead of in each allocation. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<DeviceSize>,
    /// The largest size of the pool. Default the memory of the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<DeviceSize>,
    /// `true`: CUDA's own asynchronous allocator. Not with `managed`. Default `false`.
    #[serde(default, rename = "async", skip_serializing_if = "is_false")]
    pub asynchronous: bool,
    /// `true`: managed memory, which may be larger than that of the GPU, and slower. Not with `async`, and not with NVLink.
    /// Default `false`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub managed: bool,
    /// With `async`: unused memory above this size is given back. Default never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_threshold: Option<DeviceSize>,
    /// The folder for a log of allocations of each worker, as an absolute path. It becomes large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_directory: Option<String>,
    /// `true`: RMM counts what is allocated, so that a program can ask for it. Default `false`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub track_allocations: bool,
}

/// An amount of GPU memory, as dask-cuda's command line takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSize {
    /// The amount as the file has it.
    text: String,
    amount: Option<DeviceAmount>,
}

/// The unit of an amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceAmount {
    /// A part of the GPU's memory, above 0 and at most 1.
    Fraction(f64),
    Bytes(f64),
    /// `"auto"`: nothing limits it.
    Unlimited,
}

/// The units of `dask.utils.parse_bytes`, in lower case as it compares them.
const UNITS: [(&str, f64); 20] = [
    ("k", 1e3),
    ("kb", 1e3),
    ("m", 1e6),
    ("mb", 1e6),
    ("g", 1e9),
    ("gb", 1e9),
    ("t", 1e12),
    ("tb", 1e12),
    ("p", 1e15),
    ("pb", 1e15),
    ("ki", 1024.0),
    ("kib", 1024.0),
    ("mi", 1_048_576.0),
    ("mib", 1_048_576.0),
    ("gi", 1_073_741_824.0),
    ("gib", 1_073_741_824.0),
    ("ti", 1_099_511_627_776.0),
    ("tib", 1_099_511_627_776.0),
    ("pi", 1_125_899_906_842_624.0),
    ("pib", 1_125_899_906_842_624.0),
];

impl DeviceAmount {
    /// Parses an amount; `None` for a text that is none. A whole number without a unit would be bytes, and is always a mistake.
    fn parse(text: &str) -> Option<Self> {
        if text == "auto" {
            return Some(Self::Unlimited);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number: f64 = number.parse().ok().filter(|number| *number > 0.0)?;
        if unit.is_empty() {
            // dask-cuda reads `1` as a byte, and `1.0` as all of the memory.
            let is_fraction = text.contains('.') && number <= 1.0;
            return is_fraction.then_some(Self::Fraction(number));
        }
        let unit = unit.trim_start().to_ascii_lowercase();
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        Some(Self::Bytes(number * factor))
    }
}

impl DeviceSize {
    fn new(text: String) -> Self {
        let amount = DeviceAmount::parse(&text);
        Self { text, amount }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the amount; `None` for a text that is none.
    pub fn amount(&self) -> Option<DeviceAmount> {
        self.amount
    }

    /// Returns true for an amount with a number.
    pub fn is_limited(&self) -> bool {
        matches!(self.amount, Some(DeviceAmount::Fraction(_) | DeviceAmount::Bytes(_)))
    }

    /// Returns true if it is larger than `other`. A fraction and bytes compare only on a GPU.
    pub fn is_larger_than(&self, other: &Self) -> bool {
        match (self.amount, other.amount) {
            (Some(DeviceAmount::Fraction(one)), Some(DeviceAmount::Fraction(other)))
            | (Some(DeviceAmount::Bytes(one)), Some(DeviceAmount::Bytes(other))) => one > other,
            _ => false,
        }
    }
}

impl Rmm {
    /// Returns the sizes that are set, by their keys.
    pub fn sizes(&self) -> impl Iterator<Item = (&'static str, &DeviceSize)> {
        let rows = [
            ("pool", &self.pool),
            ("maximum", &self.maximum),
            ("release_threshold", &self.release_threshold),
        ];
        rows.into_iter().filter_map(|(key, size)| Some((key, size.as_ref()?)))
    }

    fn options(&self) -> Vec<(&'static str, &'static str, Option<String>)> {
        let Self {
            pool,
            maximum,
            asynchronous,
            managed,
            release_threshold,
            log_directory,
            track_allocations,
        } = self;
        let size = |size: &Option<DeviceSize>| size.as_ref().map(|size| size.text.clone());
        let valued = [
            ("pool", "--rmm-pool-size", size(pool)),
            ("maximum", "--rmm-maximum-pool-size", size(maximum)),
            ("release_threshold", "--rmm-release-threshold", size(release_threshold)),
            ("log_directory", "--rmm-log-directory", log_directory.clone()),
        ];
        let flags = [
            ("async", "--rmm-async", *asynchronous),
            ("managed", "--rmm-managed-memory", *managed),
            ("track_allocations", "--rmm-track-allocations", *track_allocations),
        ];
        let flags =
            flags.into_iter().filter(|(.., is_on)| *is_on).map(|(key, option, _)| (key, option, None));
        valued.into_iter().filter(|(.., value)| value.is_some()).chain(flags).collect()
    }
}

impl DeviceMemoryKeys {
    /// Returns the options of `dask cuda worker`, each with the path of its key below the workers' section, and its value.
    pub fn options(&self) -> Vec<(FieldPath, &'static str, Option<String>)> {
        let Self { rmm, device_memory_limit, cudf_spill } = self;
        let rmm = rmm.iter().flat_map(Rmm::options);
        let rmm = rmm.map(|(key, option, value)| (FieldPath::keys(["rmm", key]), option, value));
        let limit = device_memory_limit.as_ref().map(|limit| {
            let key = FieldPath::keys(["device_memory_limit"]);
            (key, "--device-memory-limit", Some(limit.text.clone()))
        });
        let spill = cudf_spill.then(|| (FieldPath::keys(["cudf_spill"]), "--enable-cudf-spill", None));
        rmm.chain(limit).chain(spill).collect()
    }

    /// Returns the options as arguments.
    pub fn args(&self) -> Vec<String> {
        arguments(self.options())
    }

    /// Returns the keys that are set.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        let Self { rmm, device_memory_limit, cudf_spill } = self;
        let rows = [
            ("rmm", rmm.is_some()),
            ("device_memory_limit", device_memory_limit.is_some()),
            ("cudf_spill", *cudf_spill),
        ];
        rows.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key)
    }
}

/// Returns the variable that switches cuDF's spilling on in a container without variables of its own.
pub(crate) fn spill_variable() -> Value {
    json!({ "name": SPILL_VARIABLE, "value": "on" })
}

/// Switches cuDF's spilling on in the container of a scheduler or client with the variables `env` of its section.
pub(crate) fn add_spill_to_container(container: &mut Value, env: &Env) {
    if !env.contains_key(SPILL_VARIABLE) {
        append(container, "env", vec![spill_variable()]);
    }
}

/// Returns the provenance of the variable in a container at `path` with the variables `env` of its section; `origin` is the path of
/// the key.
pub(crate) fn spill_provenance(
    container: &Value,
    env: &Env,
    path: &FieldPath,
    origin: &FieldPath,
) -> Option<(FieldPath, FieldPath)> {
    let mut variables = container["env"].as_array().filter(|_| !env.contains_key(SPILL_VARIABLE))?.iter();
    let index = variables.position(|variable| *variable == spill_variable())?;
    Some((path.key("env").index(index), origin.clone()))
}

/// Switches cuDF's spilling on in the process of a scheduler or client on a host.
pub(crate) fn add_spill_to_process(process: &mut Value, env: &Env) {
    if !env.contains_key(SPILL_VARIABLE) {
        process["env"][SPILL_VARIABLE] = json!("on");
    }
}

/// Returns the provenance of the variable in a process at `path` with the variables `env` of its section.
pub(crate) fn process_spill_provenance(
    env: &Env,
    path: &FieldPath,
    origin: FieldPath,
) -> Option<(FieldPath, FieldPath)> {
    (!env.contains_key(SPILL_VARIABLE)).then(|| (path.key("env").key(SPILL_VARIABLE), origin))
}

impl Serialize for DeviceSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.amount {
            Some(DeviceAmount::Fraction(fraction)) => serializer.serialize_f64(fraction),
            _ => serializer.serialize_str(&self.text),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = DeviceSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fraction, or a size with its unit")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DeviceSize, E> {
                Ok(DeviceSize::new(text.to_owned()))
            }

            fn visit_f64<E: Error>(self, fraction: f64) -> Result<DeviceSize, E> {
                Ok(DeviceSize::new(format!("{fraction:?}")))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<DeviceSize, E> {
                Ok(DeviceSize::new(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<DeviceSize, E> {
                Ok(DeviceSize::new(number.to_string()))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for DeviceSize {
    fn schema_name() -> Cow<'static, str> {
        "DeviceSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount of GPU memory: a fraction of the GPU's, or a size with its unit, `\"30GiB\"`.",
            "oneOf": [
                { "type": "string" },
                { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(value: Value) -> DeviceMemoryKeys {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn keys_become_options() {
        let all = keys(json!({
            "rmm": {
                "pool": "0.8", "maximum": 1.0, "async": true, "release_threshold": "20GiB",
                "log_directory": "/tmp/rmm", "track_allocations": true,
            },
            "device_memory_limit": 0.7, "cudf_spill": true,
        }));
        let expect = [
            "--rmm-pool-size",
            "0.8",
            "--rmm-maximum-pool-size",
            "1.0",
            "--rmm-release-threshold",
            "20GiB",
            "--rmm-log-directory",
            "/tmp/rmm",
            "--rmm-async",
            "--rmm-track-allocations",
            "--device-memory-limit",
            "0.7",
            "--enable-cudf-spill",
        ];
        assert_eq!(all.args(), expect);
        assert_eq!(keys(json!({ "rmm": { "managed": true } })).args(), ["--rmm-managed-memory"]);
        assert_eq!(keys(json!({})).args(), Vec::<String>::new());
        let again: DeviceMemoryKeys = serde_json::from_value(serde_json::to_value(&all).unwrap()).unwrap();
        assert_eq!(again.args(), expect);
    }

    #[test]
    fn amounts_are_fractions_or_have_a_unit() {
        let amount = |value: Value| serde_json::from_value::<DeviceSize>(value).unwrap().amount();
        assert_eq!(amount(json!(0.8)), Some(DeviceAmount::Fraction(0.8)));
        assert_eq!(amount(json!("1.0")), Some(DeviceAmount::Fraction(1.0)));
        assert_eq!(amount(json!("40GB")), Some(DeviceAmount::Bytes(4e10)));
        assert_eq!(amount(json!("1 GiB")), Some(DeviceAmount::Bytes(1_073_741_824.0)));
        assert_eq!(amount(json!("auto")), Some(DeviceAmount::Unlimited));
        for wrong in [json!(1), json!("1"), json!(0.0), json!("1.5"), json!("80%"), json!("0GB"), json!("")] {
            assert_eq!(amount(wrong.clone()), None, "{wrong}");
        }
    }
}
