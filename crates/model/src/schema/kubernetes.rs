//! The built-in kinds, from `schemas/kubernetes.jsonl`. Names with slashes are kinds
//! (`group/version/Kind`), the others are definitions.

use std::sync::{LazyLock, OnceLock};

use serde::Deserialize;
use serde_json::Value;

use super::lines::Lines;
use super::{Api, Schema, Subresource};

/// The Kubernetes release of these kinds; a test compares it with `schemas/versions.toml`.
pub const KUBERNETES: &str = "1.36.1";

static LINES: LazyLock<Lines> =
    LazyLock::new(|| Lines::new(include_str!("../../../../schemas/kubernetes.jsonl")));

/// A line that describes a kind.
#[derive(Deserialize)]
struct Kind {
    /// The API that serves the kind; `None` for kinds that are only bodies of requests and responses (`Scale`, `PodList`).
    api: Option<Api>,
    #[serde(default)]
    subresources: Vec<Subresource>,
    definition: String,
}

fn kind(group: &str, version: &str, kind: &str) -> Option<Kind> {
    serde_json::from_str(LINES.line(&format!("{group}/{version}/{kind}"))?).ok()
}

/// Returns the built-in kinds with their own API path, sorted by group, version and kind.
pub fn apis() -> &'static [Api] {
    static APIS: OnceLock<Vec<Api>> = OnceLock::new();
    APIS.get_or_init(|| {
        let kinds = LINES.iter().filter(|(name, _)| name.contains('/'));
        let mut apis: Vec<Api> =
            kinds.filter_map(|(_, line)| serde_json::from_str::<Kind>(line).ok()?.api).collect();
        apis.sort();
        apis
    })
}

/// Returns one built-in kind. The core group is the empty string.
pub fn api(group: &str, version: &str, kind: &str) -> Option<&'static Api> {
    let key = (group, version, kind);
    let place = apis().binary_search_by(|api| (&*api.group, &*api.version, &*api.kind).cmp(&key)).ok()?;
    apis().get(place)
}

/// Returns the subresources of a built-in kind, sorted by name.
pub fn subresources(group: &str, version: &str, kind: &str) -> Vec<Subresource> {
    self::kind(group, version, kind).map(|kind| kind.subresources).unwrap_or_default()
}

/// Returns the schema of a built-in kind, lists and request bodies (`PodList`, `Scale`, `Status`) included.
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Schema> {
    LINES.schema(&format!("{group}/{version}/{kind}"))
}

/// Returns every kind of a group version and the name of its definition, lists and request bodies included.
pub fn kinds_of(group: &str, version: &str) -> Vec<(&'static str, String)> {
    let prefix = format!("{group}/{version}/");
    let lines = LINES.iter().filter_map(|(name, line)| Some((name.strip_prefix(&prefix)?, line)));
    lines
        .filter_map(|(name, line)| Some((name, serde_json::from_str::<Kind>(line).ok()?.definition)))
        .collect()
}

/// Returns the name of the definition of a kind, lists and request bodies included.
pub fn definition_of(group: &str, version: &str, kind: &str) -> Option<String> {
    self::kind(group, version, kind).map(|kind| kind.definition)
}

/// Returns a definition as in the file, with references by name.
pub fn written(name: &str) -> Option<Value> {
    #[derive(Deserialize)]
    struct Line {
        schema: Value,
    }
    serde_json::from_str::<Line>(LINES.line(name)?).ok().map(|line| line.schema)
}

/// Returns the schema of a definition by upstream's full name, such as `io.k8s.api.core.v1.PodSpec`.
pub fn definition(name: &str) -> Option<Schema> {
    LINES.schema(name)
}
