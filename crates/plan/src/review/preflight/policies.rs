//! Organization policies that prevent GKE from creating nodes. Source: Google's list of constraints; refusals of GKE in public
//! threads, as hashicorp-education/learn-terraform-provision-gke-cluster 8 and GoogleCloudPlatform/cluster-toolkit 3507. The
//! shape of answers: gcloud 528's client of `orgpolicy` v2.

use serde_json::Value;

use super::{Answers, Pool, Preflight, Question};
use kinds::gke::node_pool::capacity::{IpExposure, NodeRequirements};
use model::diag::{Code, Diagnostic, listed};

/// A constraint that is known to refuse nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constraint {
    ExternalAddresses,
    ShieldedMachines,
    /// Google's guide of OS Login: nodes of private clusters can have it, those of public ones depend on GKE's version. Not seen
    /// live, so never certain.
    OsLogin,
    Locations,
}

/// Effects of a policy on a plan.
enum Verdict {
    Fine,
    /// The policy refuses this.
    Refuses(String),
    /// The policy may refuse this, and why that is not certain.
    MayRefuse(String),
}

impl Constraint {
    pub const ALL: &[Self] =
        &[Self::ExternalAddresses, Self::ShieldedMachines, Self::OsLogin, Self::Locations];

    /// Google's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExternalAddresses => "compute.vmExternalIpAccess",
            Self::ShieldedMachines => "compute.requireShieldedVm",
            Self::OsLogin => "compute.requireOsLogin",
            Self::Locations => "gcp.resourceLocations",
        }
    }

    /// Returns true if the constraint can refuse such a node.
    pub(super) fn concerns(self, node: &NodeRequirements) -> bool {
        match self {
            Self::ExternalAddresses | Self::OsLogin => node.addresses != IpExposure::Private,
            Self::ShieldedMachines => !node.secure_boot,
            Self::Locations => true,
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::ExternalAddresses => "`private_nodes = true` under `[cluster]` makes nodes without them",
            Self::ShieldedMachines => "`secure_boot = true` for the pool satisfies it",
            Self::OsLogin => {
                "`private_nodes = true` under `[cluster]` makes nodes that GKE runs with OS Login"
            }
            Self::Locations => "use a location that it allows",
        }
    }
}

pub(super) fn findings(preflight: &Preflight, answers: &Answers) -> Vec<Diagnostic> {
    let told = Constraint::ALL.iter().filter_map(|constraint| {
        let Some(Ok(policy)) = answers.get(&Question::Policy(*constraint)) else { return None };
        finding(preflight, *constraint, policy)
    });
    told.collect()
}

fn finding(preflight: &Preflight, constraint: Constraint, policy: &Value) -> Option<Diagnostic> {
    let concerned: Vec<&Pool> =
        preflight.new_pools().filter(|pool| constraint.concerns(&pool.node)).collect();
    let first = concerned.first()?;
    let name = constraint.name();
    let diagnostic = match verdict(preflight, constraint, policy, &concerned) {
        Verdict::Fine => return None,
        Verdict::Refuses(what) => {
            Diagnostic::error(Code::OrgPolicy, format!("the organization policy {name} forbids {what}"))
        }
        Verdict::MayRefuse(what) => {
            Diagnostic::warning(Code::OrgPolicy, format!("the organization policy {name} may forbid {what}"))
        }
    };
    let help = format!(
        "{}; gcloud org-policies describe {name} --project {} --effective shows it, an administrator of the organization can \
         change it",
        constraint.remedy(),
        preflight.project
    );
    Some(diagnostic.at_value(first.machine_at.clone(), "").about(first.address.clone(), "").help(help))
}

fn verdict(preflight: &Preflight, constraint: Constraint, policy: &Value, pools: &[&Pool]) -> Verdict {
    // Which rule with a condition holds depends on tags.
    let rules: Vec<&Value> = policy["spec"]["rules"].as_array().into_iter().flatten().collect();
    let (open, conditional): (Vec<&Value>, Vec<&Value>) =
        rules.into_iter().partition(|rule| rule["condition"].is_null());
    let says = |field: &str| open.iter().any(|rule| rule[field] == true);
    let maybe = |field: &str| conditional.iter().any(|rule| rule[field] == true);
    let names = || listed(pools.iter().map(|pool| pool.address.as_str()), "and");
    match constraint {
        Constraint::ExternalAddresses => {
            let what = format!("the external addresses of the nodes of {}", names());
            let public = pools.iter().any(|pool| pool.node.addresses == IpExposure::Public);
            let some = open.iter().chain(&conditional).any(|rule| rule["values"].is_object());
            match (says("denyAll"), public) {
                (true, true) => Verdict::Refuses(what),
                (true, false) => Verdict::MayRefuse(what),
                (false, _) if some || maybe("denyAll") => Verdict::MayRefuse(what),
                (false, _) => Verdict::Fine,
            }
        }
        Constraint::ShieldedMachines => {
            let what = format!("nodes without secure boot, as those of {}", names());
            match says("enforce") {
                true => Verdict::Refuses(what),
                false if maybe("enforce") => Verdict::MayRefuse(what),
                false => Verdict::Fine,
            }
        }
        Constraint::OsLogin if says("enforce") || maybe("enforce") => {
            Verdict::MayRefuse(format!("nodes that are not private, as those of {}", names()))
        }
        Constraint::OsLogin => Verdict::Fine,
        Constraint::Locations => {
            let what = format!("resources in {}", preflight.region);
            if says("denyAll") {
                return Verdict::Refuses(what);
            }
            let values = |list: &str| -> Vec<Option<bool>> {
                let lists =
                    open.iter().flat_map(|rule| rule["values"][list].as_array().into_iter().flatten());
                lists.filter_map(Value::as_str).map(|value| holds(value, &preflight.region)).collect()
            };
            let (allowed, denied) = (values("allowedValues"), values("deniedValues"));
            if denied.contains(&Some(true)) {
                Verdict::Refuses(what)
            } else if allowed.contains(&Some(true)) || allowed.is_empty() && !denied.contains(&None) {
                Verdict::Fine
            } else if !allowed.is_empty() && !allowed.contains(&None) {
                Verdict::Refuses(what)
            } else {
                Verdict::MayRefuse(what)
            }
        }
    }
}

/// Returns `Some(true)` if a value of `gcp.resourceLocations` includes a region, and `None` where only Google knows.
fn holds(value: &str, region: &str) -> Option<bool> {
    let is_place = |name: &str| name.contains('-') && name.contains(|letter: char| letter.is_ascii_digit());
    match value.strip_prefix("in:").map(|group| group.trim_end_matches("-locations")) {
        Some(group) if group == region => Some(true),
        Some(group) if is_place(group) => Some(group.starts_with(&format!("{region}-"))),
        Some(
            group @ ("us" | "asia" | "europe" | "northamerica" | "southamerica" | "australia" | "africa"
            | "me"),
        ) => {
            // A continent may have regions of other names: those of the United States are in North America.
            region.starts_with(&format!("{group}-")).then_some(true)
        }
        Some(_) => None,
        None if value == region || value.starts_with(&format!("{region}-")) => Some(true),
        None => is_place(value).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_by_value() {
        for (value, expect) in [
            ("in:us-central1-locations", Some(true)),
            ("in:us-locations", Some(true)),
            ("us-central1-a", Some(true)),
            ("europe-west4", Some(false)),
            ("in:europe-west4-locations", Some(false)),
            ("in:europe-locations", None),
            ("in:eu-locations", None),
        ] {
            assert_eq!(holds(value, "us-central1"), expect, "{value}");
        }
    }
}
