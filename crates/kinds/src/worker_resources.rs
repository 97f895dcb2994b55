//! Dask's worker resources: amounts that workers declare, and that each task takes while it runs.
//!
//! Sources: "Worker Resources" of distributed's documentation; `cli/dask_worker.py` of distributed 2026.8.0, and `cli.py` and
//! `cuda_worker.py` of dask-cuda 26.10, whose option `--resources` is the same.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::dask_config::DaskConfig;

/// The option of `dask worker` and `dask cuda worker`.
pub const OPTION: &str = "--resources";

/// The key of Dask's configuration with the programs that run in each client when it is created.
const PRELOAD: &str = "distributed.client.preload";

/// Amounts by the names of resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct WorkerResources(BTreeMap<String, f64>);

/// The defect of a name or an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceProblem {
    /// The option separates names and amounts by `=`, `,` and blanks.
    Name,
    /// A worker has an amount above zero, and a task takes one.
    Amount,
}

impl WorkerResources {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Returns the amount of a resource, 0 for one that is not declared.
    pub fn amount(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Returns true if a worker with these amounts can run a task that takes those of `asked`.
    pub fn cover(&self, asked: &Self) -> bool {
        asked.iter().all(|(name, amount)| self.amount(name) >= amount)
    }

    /// Returns the entries that cannot be.
    pub fn problems(&self) -> impl Iterator<Item = (&str, ResourceProblem)> {
        let is_blank = |c: char| c.is_whitespace() || matches!(c, '=' | ',');
        self.iter().filter_map(move |(name, amount)| {
            if name.is_empty() || name.contains(is_blank) {
                return Some((name, ResourceProblem::Name));
            }
            (!(amount.is_finite() && amount > 0.0)).then_some((name, ResourceProblem::Amount))
        })
    }

    /// Returns the arguments of a worker.
    pub fn args(&self) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        let pairs: Vec<String> = self.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        vec![OPTION.to_owned(), pairs.join(" ")]
    }

    /// Returns the configuration of a program all of whose tasks take these amounts.
    ///
    /// Annotations are a context variable in Dask (`_annotations` in `dask/base.py` of 2026.8.0) and no key of its configuration. A
    /// client runs what `preload` says in the thread that creates it, so the program is annotated from there on as by
    /// `with dask.annotate(…):`. distributed executes a text twice, as its import and as a reload; the name keeps the
    /// generator of `annotate`, which would take the annotation back when it is collected.
    pub fn annotate(&self, config: &DaskConfig) -> DaskConfig {
        let text = format!(
            "import dask; annotation = dask.annotate(resources={}); annotation.__enter__()",
            json!(self.0)
        );
        config.with(PRELOAD, json!([text]))
    }
}

impl FromIterator<(String, f64)> for WorkerResources {
    fn from_iter<I: IntoIterator<Item = (String, f64)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl JsonSchema for WorkerResources {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "WorkerResources".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "additionalProperties": { "type": "number", "exclusiveMinimum": 0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn resources(value: Value) -> WorkerResources {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn amounts_become_an_option() {
        assert_eq!(resources(json!({ "MEM": 2.5, "GPU": 1 })).args(), ["--resources", "GPU=1 MEM=2.5"]);
        assert_eq!(resources(json!({})).args(), Vec::<String>::new());
    }

    #[test]
    fn a_worker_covers_a_task_with_all_of_its_names() {
        let worker = resources(json!({ "GPU": 2, "MEM": 2.5 }));
        for (asked, expect) in [
            (json!({}), true),
            (json!({ "GPU": 2 }), true),
            (json!({ "GPU": 1, "MEM": 2.5 }), true),
            (json!({ "GPU": 3 }), false),
            (json!({ "gpu": 1 }), false),
            (json!({ "GPU": 1, "DISK": 1 }), false),
        ] {
            assert_eq!(worker.cover(&resources(asked.clone())), expect, "{asked}");
        }
    }

    #[test]
    fn names_are_words_and_amounts_are_above_zero() {
        let wrong = resources(json!({ "": 1, "a b": 1, "a,b": 1, "a=b": 0, "GPU": 0, "M": -1, "ok": 0.5 }));
        use ResourceProblem::{Amount, Name};
        let expect =
            [("", Name), ("GPU", Amount), ("M", Amount), ("a b", Name), ("a,b", Name), ("a=b", Name)];
        assert_eq!(wrong.problems().collect::<Vec<_>>(), expect);
        let endless: WorkerResources = [("GPU".to_owned(), f64::INFINITY)].into_iter().collect();
        assert_eq!(endless.problems().collect::<Vec<_>>(), [("GPU", Amount)]);
    }

    #[test]
    fn a_program_is_annotated_by_the_preload_of_its_client() {
        let config: DaskConfig = serde_json::from_value(json!({ "array.chunk-size": "1MiB" })).unwrap();
        let variables = resources(json!({ "GPU": 1, "a\"b": 2 })).annotate(&config).variables();
        let preload = &variables["DASK_DISTRIBUTED__CLIENT__PRELOAD"];
        // JSON's escapes are Python's.
        let words: Vec<String> = serde_json::from_str(preload).unwrap();
        let text = r#"import dask; annotation = dask.annotate(resources={"GPU":1.0,"a\"b":2.0}); annotation.__enter__()"#;
        assert_eq!(words, [text]);
        assert_eq!(variables["DASK_ARRAY__CHUNK_SIZE"], "1MiB");
    }
}
