//! Messages and enums of `google.container.v1`, from `schemas/gke.jsonl`, with the field names of the JSON API. 64-bit numbers
//! are [`super::Type::IntOrString`], because JSON has them as strings.

use std::sync::LazyLock;

use super::Schema;
use super::lines::Lines;

const PACKAGE: &str = "google.container.v1.";
/// The prefix of all names in this file, and of no name of Kubernetes.
pub(super) const PACKAGES: &str = "google.";

static LINES: LazyLock<Lines> = LazyLock::new(|| Lines::new(include_str!("../../../../schemas/gke.jsonl")));

/// Returns the schema of a message: `Cluster`, `NodePool`, `UpdateNodePoolRequest`, `BlueGreenSettings`; nested ones with their
/// parent's name: `NodePool.UpgradeSettings`.
pub fn message(name: &str) -> Option<Schema> {
    definition(&format!("{PACKAGE}{name}"))
}

/// Returns the values of an enum in the order of the descriptor: `enum_names("NodePool.Status")`. Empty for a name that is not an
/// enum. A field's own values are [`Schema::enum_values`].
pub fn enum_names(name: &str) -> Vec<String> {
    message(name).map(|schema| schema.enum_values()).unwrap_or_default()
}

/// Returns the names of all messages and enums of the package, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    LINES.iter().filter_map(|(name, _)| name.strip_prefix(PACKAGE))
}

/// Returns a message or enum by full name.
pub(super) fn definition(name: &str) -> Option<Schema> {
    LINES.schema(name)
}
