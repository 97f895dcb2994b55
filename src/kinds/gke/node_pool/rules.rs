//! The fields of a node pool: how they are compared, and what changing them does.

use crate::kinds::kind::{How, Rule};
use crate::resource::Effect;

const fn rule(
    path: &'static str,
    how: How,
    effect: Effect,
    call: &'static str,
    note: Option<&'static str>,
) -> Rule {
    Rule { path, how, effect, call, note }
}

const ROLLS: Option<&str> = Some("GKE makes the nodes anew");
const GOES_THROUGH: Option<&str> = Some("GKE goes through the nodes as it does for an upgrade");
const FIXED: Option<&str> = Some("GKE does not change it on a pool");

/// Source of what is changed how: googleapis `cluster_service.proto`, UpdateNodePoolRequest and the `set…`
/// methods; what is not in them replaces the pool. That tags roll the nodes is not documented; of resource labels
/// `gcloud container node-pools update --labels` warns. A change of taints was recorded as an operation UPGRADE_NODES.
pub const RULES: &[Rule] = &[
    rule("name", How::Exact, Effect::Replace, "", FIXED),
    rule("config.machineType", How::Exact, Effect::Rolling, "roll", ROLLS),
    rule("config.diskType", How::Exact, Effect::Rolling, "roll", ROLLS),
    rule("config.diskSizeGb", How::Exact, Effect::Rolling, "roll", ROLLS),
    rule("config.imageType", How::Caseless, Effect::Rolling, "roll", ROLLS),
    rule("config.accelerators", How::Accelerators, Effect::Rolling, "roll", ROLLS),
    rule("config.tags", How::OwnItems, Effect::Rolling, "roll", ROLLS),
    rule("config.labels", How::OwnEntries, Effect::InPlace, "update", None),
    rule("config.taints", How::OwnTaints, Effect::Rolling, "update", GOES_THROUGH),
    rule("config.resourceLabels", How::OwnEntries, Effect::Rolling, "update", ROLLS),
    rule("upgradeSettings", How::Exact, Effect::InPlace, "update", None),
    rule("locations", How::Set, Effect::InPlace, "locations", Some("nodes come and go with the zones")),
    rule("management", How::Exact, Effect::InPlace, "management", None),
    rule("autoscaling", How::Exact, Effect::InPlace, "autoscaling", None),
    rule("nodeCount", How::Exact, Effect::InPlace, "size", None),
    rule("initialNodeCount", How::AtCreation, Effect::Ignored, "", None),
    rule("config.spot", How::Exact, Effect::Replace, "", FIXED),
    rule("config.serviceAccount", How::Exact, Effect::Replace, "", FIXED),
    rule("config.oauthScopes", How::Set, Effect::Replace, "", FIXED),
];
