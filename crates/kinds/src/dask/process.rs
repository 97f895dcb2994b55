//! Settings of worker processes that are options of `dask worker`, on hosts and in Pods.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use model::address::FieldPath;

/// How the processes of workers run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct ProcessKeys {
    /// Threads of each worker process, in which its tasks run. Default on a host what `cpu` says, else 1; on Kubernetes as
    /// many as the container has CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub threads: Option<u32>,
    /// On a host: processes of each worker, which share its log and its nanny command; `threads` and `memory` are of each
    /// process. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub processes: Option<u32>,
    /// The network interface that workers are reached by: `"ib0"`. Default on a host the one by which it reaches the
    /// scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// On a host: the port that a worker listens on, `"40000"`, or the first and the last of several, `"40000:40099"`: each process of
    /// each worker on the host needs one. For a firewall that lets these through. Default any free port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_port: Option<String>,
    /// Ports of the nannies of workers: `"40100:40199"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nanny_port: Option<String>,
    /// The folder for what does not fit into memory, as an absolute path: `"/scratch"`. Each worker has one of its own in it, which
    /// goes with the worker; jobs of SLURM share one, which stays. It must exist on a host. Default there a folder below `~/.local/state/dask-infra`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_directory: Option<String>,
    /// The process that watches a worker: `{ spill = 0.7, terminate = false }`, `{ enabled = false }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nanny: Option<Nanny>,
}

/// The process that starts a worker, starts it again when it died, and ends it at its memory limit. Fractions are of `memory`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nanny {
    /// `false`: the worker runs without one. Nothing restarts it but the next `apply`, and nothing ends it at its memory limit.
    /// Default `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The fraction at which results are written to disk, by their own size. Dask's default 0.6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Fraction>,
    /// The fraction at which results are written to disk, by the size of the process. Dask's default 0.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill: Option<Fraction>,
    /// The fraction at which a worker takes no more tasks. Dask's default 0.8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Fraction>,
    /// The fraction at which the nanny ends the worker and starts it again. Dask's default 0.95.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminate: Option<Fraction>,
}

/// A part of a worker's memory limit; `false` switches off what would happen there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fraction {
    Of(f64),
    Never,
}

impl Fraction {
    /// Returns the value of an environment variable of Dask's configuration.
    fn literal(self) -> String {
        match self {
            Self::Of(fraction) => fraction.to_string(),
            Self::Never => "False".to_owned(),
        }
    }

    /// Returns the fraction; `None` if it is switched off.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Of(fraction) => Some(fraction),
            Self::Never => None,
        }
    }

    /// Returns true if it is above 0 and at most 1, or `false` (never).
    pub fn is_sound(self) -> bool {
        match self {
            Self::Of(fraction) => fraction > 0.0 && fraction <= 1.0,
            Self::Never => true,
        }
    }
}

impl Nanny {
    /// Returns the set fractions, by their name in the file and in Dask, in the order in which memory fills.
    pub fn fractions(&self) -> impl Iterator<Item = (&'static str, Fraction)> {
        let Self { enabled: _, target, spill, pause, terminate } = self;
        let rows = [("target", *target), ("spill", *spill), ("pause", *pause), ("terminate", *terminate)];
        rows.into_iter().filter_map(|(name, fraction)| Some((name, fraction?)))
    }

    /// Returns environment variables of Dask's configuration, which the worker inherits from its nanny. Source:
    /// `distributed.yaml` of distributed 2026.8.0, `distributed.worker.memory`.
    pub fn variables(&self) -> Vec<(String, String)> {
        let name = |key: &str| format!("DASK_DISTRIBUTED__WORKER__MEMORY__{}", key.to_uppercase());
        self.fractions().map(|(key, fraction)| (name(key), fraction.literal())).collect()
    }
}

/// Returns the first and the last port of `"40000"` or `"40000:40099"`.
pub fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| {
        text.parse::<u16>().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    Some((number(first)?, number(last)?)).filter(|(first, last)| first <= last)
}

/// Returns options, each with its key and its value, as arguments.
pub(crate) fn arguments<K>(options: Vec<(K, &'static str, Option<String>)>) -> Vec<String> {
    let words =
        |(_, option, value): (K, &str, Option<String>)| std::iter::once(option.to_owned()).chain(value);
    options.into_iter().flat_map(words).collect()
}

impl ProcessKeys {
    /// Returns the ports that are set, by their keys.
    pub fn port_keys(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let rows = [("worker_port", &self.worker_port), ("nanny_port", &self.nanny_port)];
        rows.into_iter().filter_map(|(key, ports)| Some((key, ports.as_deref()?)))
    }

    /// Returns true if a nanny watches each worker.
    pub fn has_nanny(&self) -> bool {
        self.nanny.as_ref().and_then(|nanny| nanny.enabled) != Some(false)
    }

    /// Returns the options of `dask worker` and `dask cuda worker`, each with the key that sets it and its value.
    pub fn options(&self) -> Vec<(&'static str, &'static str, Option<String>)> {
        let Self { threads, interface, local_directory, .. } = self;
        let rows = [
            ("threads", "--nthreads", threads.map(|threads| threads.to_string())),
            ("interface", "--interface", interface.clone()),
            ("local_directory", "--local-directory", local_directory.clone()),
        ];
        let given = rows.into_iter().filter(|(.., value)| value.is_some());
        given.chain((!self.has_nanny()).then_some(("nanny", "--no-nanny", None))).collect()
    }

    /// Returns the options as arguments.
    pub fn args(&self) -> Vec<String> {
        arguments(self.options())
    }

    /// Returns the environment variables of workers.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.nanny.as_ref().map(Nanny::variables).unwrap_or_default()
    }

    /// Returns the paths of the keys that are set.
    pub fn paths(&self, section: &FieldPath) -> Vec<FieldPath> {
        let Self { threads, processes, interface, local_directory, worker_port, nanny_port, nanny } = self;
        let rows = [
            ("threads", threads.is_some()),
            ("processes", processes.is_some()),
            ("interface", interface.is_some()),
            ("local_directory", local_directory.is_some()),
            ("worker_port", worker_port.is_some()),
            ("nanny_port", nanny_port.is_some()),
            ("nanny", nanny.is_some()),
        ];
        rows.into_iter().filter(|(_, given)| *given).map(|(key, _)| section.key(key)).collect()
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Of(fraction) => serializer.serialize_f64(*fraction),
            Self::Never => serializer.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Fraction;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fraction of the memory limit, or `false`")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<Fraction, E> {
                if on { Err(E::custom("a fraction, or `false`")) } else { Ok(Fraction::Never) }
            }

            fn visit_f64<E: Error>(self, fraction: f64) -> Result<Fraction, E> {
                Ok(Fraction::Of(fraction))
            }

            fn visit_u64<E: Error>(self, whole: u64) -> Result<Fraction, E> {
                u32::try_from(whole).map(|whole| Fraction::Of(whole.into())).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, whole: i64) -> Result<Fraction, E> {
                i32::try_from(whole).map(|whole| Fraction::Of(whole.into())).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Fraction {
    fn schema_name() -> Cow<'static, str> {
        "Fraction".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A fraction of the memory limit, or `false` for never.",
            "oneOf": [
                { "type": "number", "minimum": 0, "maximum": 1 },
                { "type": "boolean", "const": false },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_become_options_and_variables() {
        let keys = json!({
            "threads": 4, "processes": 2, "interface": "ib0", "local_directory": "/scratch",
            "nanny": { "enabled": false, "target": 0.5, "spill": false, "terminate": 1 },
        });
        let keys: ProcessKeys = serde_json::from_value(keys).unwrap();
        let expect = ["--nthreads", "4", "--interface", "ib0", "--local-directory", "/scratch", "--no-nanny"];
        assert_eq!(keys.args(), expect);
        let variable =
            |name: &str, value: &str| (format!("DASK_DISTRIBUTED__WORKER__MEMORY__{name}"), value.to_owned());
        let expect = [variable("TARGET", "0.5"), variable("SPILL", "False"), variable("TERMINATE", "1")];
        assert_eq!(keys.variables(), expect);
        assert_eq!(ProcessKeys::default().args(), Vec::<String>::new());
        assert!(serde_json::from_value::<Nanny>(json!({ "spill": true })).is_err());
    }
}
