//! The built-in kinds, from `schemas/kubernetes.jsonl`. Names with slashes are kinds
//! (`group/version/Kind`), the others are definitions.

use std::sync::{LazyLock, OnceLock};

use serde::Deserialize;

use super::lines::Lines;
use super::{Api, Schema, Subresource};

static LINES: LazyLock<Lines> = LazyLock::new(|| Lines::new(include_str!("../../schemas/kubernetes.jsonl")));

/// A line that says what a kind is.
#[derive(Deserialize)]
struct Kind {
    /// Kinds that are only bodies of requests and answers (`Scale`, `PodList`) have none.
    api: Option<Api>,
    #[serde(default)]
    subresources: Vec<Subresource>,
    definition: String,
}

fn kind(group: &str, version: &str, kind: &str) -> Option<Kind> {
    serde_json::from_str(LINES.line(&format!("{group}/{version}/{kind}"))?).ok()
}

/// The built-in kinds that have a path of their own, sorted by group, version and kind.
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

/// One built-in kind. The core group is the empty string.
pub fn api(group: &str, version: &str, kind: &str) -> Option<&'static Api> {
    let key = (group, version, kind);
    let place = apis().binary_search_by(|api| (&*api.group, &*api.version, &*api.kind).cmp(&key)).ok()?;
    apis().get(place)
}

/// What lies below a built-in kind, sorted by name.
pub fn subresources(group: &str, version: &str, kind: &str) -> Vec<Subresource> {
    self::kind(group, version, kind).map(|kind| kind.subresources).unwrap_or_default()
}

/// The schema of a built-in kind, lists and request bodies (`PodList`, `Scale`, `Status`) included.
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Schema> {
    definition(&self::kind(group, version, kind)?.definition)
}

/// The schema of a definition by upstream's full name, such as `io.k8s.api.core.v1.PodSpec`.
pub fn definition(name: &str) -> Option<Schema> {
    LINES.schema(name)
}
