//! Google's recommendations for pools with queued provisioning and flex-start. Settings that the API refuses are in
//! [`crate::rules::capacity`]: the acceptance tests of Terraform's provider make such pools on the real service with automatic
//! repair, without a location policy and without GPUs, so none of this is refused.

use crate::rules::Context;
use crate::rules::queued_workers::queued_workers;
use crate::{NodePool, ProvisioningRequest};
use kinds::gke::cluster::{Cluster, Maintenance, ReleaseChannel};
use kinds::gke::enums::{ExclusionScope, LocationPolicy, seconds};
use kinds::gke::node_pool::Capacity;
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic};

/// The maximum number of machines of a ProvisioningRequest. Source: GKE's guide to the Dynamic Workload Scheduler, "Limitations".
const MACHINES: u32 = 1000;
const DAY: u64 = 86_400;
/// The default lifetime of such machines in seconds. Source: the same guide.
const WEEK: u64 = 7 * DAY;
/// Prefixes of machine types that are not available with flex-start. Source: its page on flex-start VMs.
const NOT_BY_FLEX_START: [&str; 2] = ["a4x-", "g4-"];

/// A recommendation that a section does not follow.
struct Advice {
    /// The key that it is about.
    key: &'static str,
    what: String,
    help: String,
}

/// Checks pools that wait for machines against Google's guide.
pub(crate) fn pools_wait_well(context: &mut Context<'_>) {
    let cluster = context.stack.cluster.as_ref();
    for (path, pool) in context.pools() {
        let option = |option: Capacity| pool.capacity.contains(&option);
        let queued = pool.queued == Some(true) || option(Capacity::Queued);
        let flex = pool.flex_start == Some(true) || option(Capacity::FlexStart);
        if !queued && !flex {
            continue;
        }
        let by = match (pool.capacity.is_empty(), queued) {
            (false, _) => "capacity",
            (true, true) => "queued",
            (true, false) => "flex_start",
        };
        let lasts = lasts(context, &path, pool, queued);
        for Advice { key, what, help } in advice(pool, cluster, (queued, flex), lasts) {
            let place = path.key(key);
            let said = key != by && context.sources.span(&place).is_some();
            let finding = Diagnostic::warning(Code::PoolWaits, what).at_value(path.key(by), "");
            let finding = if said { finding.at_value(place, "here") } else { finding };
            context.say(finding.help(help));
        }
    }
}

/// Returns the maximum lifetime of a pool's machines in seconds. Requests for queued machines may have a shorter one.
fn lasts(context: &Context<'_>, path: &FieldPath, pool: &NodePool, queued: bool) -> u64 {
    let stack = context.stack;
    let own = pool.max_run_duration.as_deref().and_then(seconds).unwrap_or(WEEK);
    let key = path.segments().last().and_then(Segment::key).unwrap_or_default();
    let of_queues = stack
        .queue
        .values()
        .filter(|queue| queue.pool.as_deref() == Some(key) || queue.pools.contains_key(key));
    let of_requests = stack.provisioning_request.values().filter(|request| {
        let job = request.job.as_ref().and_then(|job| stack.job.get(job));
        let keys = job.map_or(&request.keys, |job| &job.keys);
        keys.pool.as_deref() == Some(key)
    });
    let of_workers =
        queued_workers(stack).into_iter().filter(|queued| queued.keys.pool.as_deref() == Some(key));
    let said = of_queues
        .map(|queue| queue.max_run_duration.as_deref())
        .chain(of_requests.map(|request| request.max_run_duration.as_deref()))
        .chain(of_workers.map(|queued| queued.longest));
    let longest = said.map(|said| said.and_then(seconds).unwrap_or(WEEK)).max();
    longest.filter(|_| queued).unwrap_or(WEEK).min(own)
}

fn advice(
    pool: &NodePool,
    cluster: Option<&Cluster>,
    (queued, flex): (bool, bool),
    lasts: u64,
) -> Vec<Advice> {
    let mut found = Vec::new();
    let mut say = |key, what: &str, help: &str| {
        found.push(Advice { key, what: what.to_owned(), help: help.to_owned() });
    };
    // A pool with `capacity` gets the right values from it.
    let open = pool.capacity.is_empty();
    let anywhere = match pool.location_policy {
        None => !open,
        Some(policy) => policy == LocationPolicy::Any,
    };
    if queued && !anywhere {
        let what = "queued machines come from wherever there are some only with `location_policy = \"any\"`";
        say("location_policy", what, "set `location_policy = \"any\"`");
    }
    if pool.auto_repair.unwrap_or(open) {
        let what = "GKE repairs nodes of this pool, and a repair ends the work on them";
        say("auto_repair", what, "set `auto_repair = false`");
    }
    if queued && pool.gpus().is_none() {
        let what =
            format!("queued provisioning is for machines with GPUs, and `{}` has none", pool.machine_type);
        say("machine_type", &what, "use a machine type with GPUs, or remove `queued`");
    }
    let machine = pool.machine_type.as_str();
    if flex && NOT_BY_FLEX_START.iter().any(|series| machine.starts_with(series)) {
        let what = format!("`{machine}` is not sold by flex-start");
        say("machine_type", &what, "use a reservation or `spot = true`");
    }
    if queued && pool.size().most() > MACHINES {
        let what = "a request for queued machines has 1,000 machines at most, so no request fills this pool";
        say("nodes", what, "that many need several requests; or set `max` to at most 1000");
    }
    if queued && open && pool.gvnic.is_none() && pool.gpus().is_some() && pool.size().most() > 1 {
        let what = "traffic between nodes with GPUs is faster with gVNIC";
        say("gvnic", what, "set `gvnic = true`, or `false` if it is not to be");
    }
    for (key, said) in [("surge", pool.surge.is_some()), ("blue_green", pool.blue_green.is_some())] {
        if said {
            let what =
                "GKE upgrades machines that it waits for in a way of its own, when their work has ended";
            say(key, what, &format!("remove `{key}`"));
        }
    }
    found.extend(cluster.map(|cluster| upgrades(pool, cluster, lasts)).unwrap_or_default());
    found
}

/// Returns advice about upgrades that end the work on a pool.
fn upgrades(pool: &NodePool, cluster: &Cluster, lasts: u64) -> Vec<Advice> {
    let mut found = Vec::new();
    if pool.auto_upgrade == Some(false) {
        return found;
    }
    if cluster.release_channel == Some(ReleaseChannel::None) {
        found.push(Advice {
            key: "auto_upgrade",
            what: "GKE upgrades nodes of this pool, and an upgrade ends the work on them".to_owned(),
            help: "set `auto_upgrade = false`, which the cluster allows as it is in no release channel"
                .to_owned(),
        });
    }
    let every = cluster.maintenance.as_ref().filter(|it| !keeps_upgrades_away(it)).and_then(every);
    if let Some(every) = every.filter(|every| lasts > *every) {
        let days = |seconds: u64| match seconds / DAY {
            1 => "every day".to_owned(),
            days => format!("every {days} days"),
        };
        let what = format!(
            "machines of this pool last longer than the time between two maintenance windows, which come {}: an upgrade may end \
             the work on them",
            days(every)
        );
        let help = "set a shorter `max_run_duration`, here or on the queue or request, or rarer windows or an exclusion in \
                    `[cluster.maintenance]`";
        found.push(Advice { key: "max_run_duration", what, help: help.to_owned() });
    }
    found
}

/// Checks that node pools which node auto-provisioning creates for queued work have the settings of GKE's guide to queued
/// provisioning.
pub(crate) fn made_pools_wait_well(context: &mut Context<'_>) {
    let stack = context.stack;
    let made = stack.cluster.as_ref().and_then(|cluster| Some((cluster, cluster.autoprovisioning.as_ref()?)));
    let Some((cluster, made)) = made.filter(|(_, made)| made.makes_pools() && !made.max_gpus.is_empty())
    else {
        return;
    };
    // Requests whose pods name no pool are for pools that GKE makes.
    let anywhere = |request: &ProvisioningRequest| {
        let job = request.job.as_ref().and_then(|job| stack.job.get(job));
        job.map_or(&request.keys, |job| &job.keys).pool.is_none()
    };
    let Some((key, _)) = stack.provisioning_request.iter().find(|(_, request)| anywhere(request)) else {
        return;
    };
    let section = FieldPath::keys(["cluster", "autoprovisioning"]);
    let of_channel = cluster.release_channel != Some(ReleaseChannel::None);
    let advised = [
        ("auto_repair", made.auto_repair, "a repair ends the work on them", true),
        ("auto_upgrade", made.auto_upgrade, "an upgrade ends the work on them", !of_channel),
    ];
    for (switch, said, because, can) in advised {
        if !can || said == Some(false) {
            continue;
        }
        let verb = if switch == "auto_repair" { "repairs" } else { "upgrades" };
        let what = format!(
            "GKE {verb} nodes of pools that it makes for `provisioning_request.{key}`, and {because}"
        );
        let finding = Diagnostic::warning(Code::PoolWaits, what).at_value(section.clone(), "");
        context.say(finding.help(format!("set `{switch} = false` in `[cluster.autoprovisioning]`")));
    }
}

/// Returns true if any maintenance exclusion prevents upgrades of nodes.
fn keeps_upgrades_away(maintenance: &Maintenance) -> bool {
    let of_nodes = |scope: Option<ExclusionScope>| !matches!(scope, Some(ExclusionScope::NoMinorUpgrades));
    maintenance.exclusions.values().any(|exclusion| of_nodes(exclusion.scope))
}

/// Returns the maximum seconds between two maintenance windows; `None` for a recurrence rule with more than days of the week.
fn every(maintenance: &Maintenance) -> Option<u64> {
    if maintenance.daily.is_some() {
        return Some(DAY);
    }
    let rule = maintenance.recurrence.as_deref()?;
    let part = |name: &str| rule.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let interval: u64 = part("INTERVAL").map_or(Some(1), |number| number.parse().ok())?;
    match part("FREQ")? {
        "DAILY" if part("BYDAY").is_none() => Some(DAY * interval),
        "DAILY" | "WEEKLY" if interval == 1 => Some(DAY * longest_gap(part("BYDAY").unwrap_or("MO"))?),
        _ => None,
    }
}

/// Returns the maximum number of days between two of these days of the week.
fn longest_gap(days: &str) -> Option<u64> {
    const WEEK: [&str; 7] = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"];
    let place = |day: &str| WEEK.iter().position(|known| *known == day);
    let places: Option<std::collections::BTreeSet<usize>> = days.split(',').map(place).collect();
    let places: Vec<usize> = places?.into_iter().collect();
    let first = places.first()?;
    let next = places.iter().skip(1).copied().chain([first + WEEK.len()]);
    let gap = places.iter().zip(next).map(|(day, next)| next - day).max()?;
    u64::try_from(gap).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_come_as_often_as_their_rule_says() {
        let recurring =
            |rule: &str| Maintenance { recurrence: Some(rule.to_owned()), ..Maintenance::default() };
        let cases = [
            ("FREQ=DAILY", Some(1)),
            ("FREQ=DAILY;INTERVAL=3", Some(3)),
            ("FREQ=WEEKLY", Some(7)),
            ("FREQ=WEEKLY;BYDAY=SA,SU", Some(6)),
            ("FREQ=WEEKLY;BYDAY=MO,TH", Some(4)),
            ("FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR", Some(3)),
            ("FREQ=WEEKLY;BYDAY=XX", None),
            ("FREQ=MONTHLY", None),
            ("nonsense", None),
        ];
        for (rule, days) in cases {
            assert_eq!(every(&recurring(rule)), days.map(|days| days * DAY), "{rule}");
        }
        let daily = Maintenance { daily: Some("03:00".to_owned()), ..Maintenance::default() };
        assert_eq!(every(&daily), Some(DAY));
    }
}
