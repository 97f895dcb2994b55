//! The cost of a stack, and of the part of it that exists.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use kinds::status::Price;
use model::resource::{Cost, External, Identity, Target};
use plan::Plan;

/// The region whose list prices the catalog has.
const PRICED: &str = "us-central1";

/// `Cost: $0.23/h at minimum size, $15.47/h at maximum size (…)`. Unknown prices are named, and never left out of a sum
/// in silence.
pub(super) fn plan_cost(plan: &Plan) -> Option<String> {
    let unknown = plan.unpriced();
    let Some(cost) = plan.cost() else { return with_unknown(None, &unknown) };
    let whole = if plan.partial.is_some() { " for the whole stack" } else { "" };
    let list = list_of(&plan.target);
    let least = at_least(&unknown);
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
    with_unknown(Some(known), &unknown)
}

fn at_least(unknown: &[String]) -> &'static str {
    if unknown.is_empty() { "" } else { "at least " }
}

fn with_unknown(known: Option<String>, unknown: &[String]) -> Option<String> {
    let unknown = (!unknown.is_empty()).then(|| format!("price unknown: {}", unknown.join(", ")));
    let said: Vec<String> = known.into_iter().chain(unknown).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The running cost of existing resources.
#[derive(Default)]
pub(in crate::report) struct RunningCost<'p> {
    /// US dollars per hour of what has a price.
    known: Option<f64>,
    unknown: BTreeSet<&'p str>,
}

impl<'p> RunningCost<'p> {
    pub(in crate::report) fn from_prices(prices: impl Iterator<Item = &'p Price>) -> Self {
        let mut running = Self::default();
        for price in prices {
            match price {
                Price::Known(each) => *running.known.get_or_insert(0.0) += each,
                Price::Unknown(what) => drop(running.unknown.insert(what)),
            }
        }
        running
    }

    /// `Running cost: $8.12/h (list prices, without disks and traffic)`; nothing where nothing is billed.
    pub(in crate::report) fn shown(&self, target: &Target) -> Option<String> {
        let unknown: Vec<String> = self.unknown.iter().map(|what| (*what).to_owned()).collect();
        let (least, list) = (at_least(&unknown), list_of(target));
        let known = self
            .known
            .map(|sum| format!("Running cost: {least}${sum:.2}/h ({list}, without disks and traffic)"));
        with_unknown(known, &unknown)
    }

    /// `{ "usd_per_hour": 8.12, "unpriced": [] }`; null where nothing is billed.
    pub(in crate::report) fn json(&self) -> Value {
        match self.known.is_none() && self.unknown.is_empty() {
            true => Value::Null,
            false => json!({ "usd_per_hour": self.known, "unpriced": self.unknown }),
        }
    }
}

fn list_of(target: &Target) -> String {
    let region = target.gke.as_ref().map(|cluster| cluster.location.as_str());
    match region.is_some_and(|location| !location.starts_with(PRICED)) {
        true => format!("list prices of {PRICED}"),
        false => "list prices".to_owned(),
    }
}

/// `$0.13/h`, `$0–0.54/h`.
pub(super) fn shown(cost: Cost) -> String {
    match is_same(cost) {
        true => format!("${:.2}/h", cost.most),
        false if cost.least == 0.0 => format!("$0–{:.2}/h", cost.most),
        false => format!("${:.2}–{:.2}/h", cost.least, cost.most),
    }
}

/// Returns true if minimum and maximum are equal to the cent.
fn is_same(cost: Cost) -> bool {
    format!("{:.2}", cost.least) == format!("{:.2}", cost.most)
}
