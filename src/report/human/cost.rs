//! What a stack costs, in words.

use crate::plan::Plan;
use crate::resource::{Cost, External, Identity};

/// The region whose list prices the catalogue has.
const PRICED: &str = "us-central1";

/// `Cost: $0.23/h at minimum size, $15.47/h at maximum size (…)`. What is not known is said, and never left out of a sum
/// in silence.
pub(super) fn of_plan(plan: &Plan) -> Option<String> {
    let unknown = plan.unpriced();
    let unknown = (!unknown.is_empty()).then(|| format!("price unknown: {}", unknown.join(", ")));
    let Some(cost) = plan.cost() else { return unknown };
    let whole = if plan.partial.is_some() { " for the whole stack" } else { "" };
    let region = plan.target.gke.as_ref().map(|cluster| cluster.location.as_str());
    let list = match region.is_some_and(|location| !location.starts_with(PRICED)) {
        true => format!("list prices of {PRICED}"),
        false => "list prices".to_owned(),
    };
    let least = if unknown.is_some() { "at least " } else { "" };
    let sum = match is_same(cost) {
        true => format!("{least}${:.2}/h{whole}", cost.most),
        false => format!(
            "{least}${:.2}/h at minimum size, {least}${:.2}/h at maximum size{whole}",
            cost.least, cost.most
        ),
    };
    let is_cluster = |external: &External| matches!(external.resource.identity, Identity::Cluster(_));
    let fee = if plan.external.iter().any(is_cluster) { "" } else { " and GKE's fee" };
    let known = format!("Cost: {sum} ({list}{fee}, without disks and traffic)");
    Some([Some(known), unknown].into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// `$0.13/h`, `$0–0.54/h`.
pub(super) fn shown(cost: Cost) -> String {
    match is_same(cost) {
        true => format!("${:.2}/h", cost.most),
        false if cost.least == 0.0 => format!("$0–{:.2}/h", cost.most),
        false => format!("${:.2}–{:.2}/h", cost.least, cost.most),
    }
}

/// Whether they are told apart by cents.
fn is_same(cost: Cost) -> bool {
    format!("{:.2}", cost.least) == format!("{:.2}", cost.most)
}
