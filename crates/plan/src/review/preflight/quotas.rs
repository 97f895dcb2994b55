//! Compares quotas with the needs of a plan.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Answers, Pool, PoolChange, Preflight, Question};
use kinds::gke::node_pool::capacity::{NodeRequirements, Share};
use model::address::Address;
use model::diag::{Code, Diagnostic, listed};

/// The maximum number of requests that a message lists.
const MAX_LISTED: usize = 3;

#[derive(Clone, Copy)]
struct Quota {
    limit: i64,
    used: i64,
    whose: QuotaScope,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum QuotaScope {
    Region,
    Project,
}

/// The amounts that one pool uses of a quota. A negative amount is released.
struct QuotaUse<'p> {
    pool: &'p Pool,
    /// Amount that is certain, and needed at once.
    certain: i64,
    /// Amount that the initial nodes need.
    initial: i64,
    /// Amount that the pool needs at its largest size.
    most: i64,
    /// Additional amount during an upgrade.
    surge: i64,
}

/// The moment at which a quota is too small: at once, at the largest size, or during an upgrade.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shortage {
    Now,
    MaybeNow,
    AtMost,
    Upgrading,
}

/// Returns the findings about quotas.
pub(super) fn findings(preflight: &Preflight, answers: &Answers) -> Vec<Diagnostic> {
    let quotas = known(answers);
    let mut taken: BTreeMap<String, Vec<QuotaUse<'_>>> = BTreeMap::new();
    for pool in &preflight.pools {
        for (quota, amounts) in of_pool(pool, &quotas) {
            taken.entry(quota).or_default().push(amounts);
        }
    }
    let told = taken.iter().filter_map(|(name, taken)| {
        let quota = quotas.get(name.as_str())?;
        let short = shortage(preflight, *quota, taken)?;
        Some(diagnostic(preflight, name, *quota, taken, short))
    });
    let mut findings: Vec<Diagnostic> = told.collect();
    findings.extend(request_quota(preflight, &quotas));
    findings.extend(unlisted(preflight, answers, &quotas, taken.keys()));
    findings
}

/// Returns the finding about the quota of requests that wait for machines: requests above it fail.
fn request_quota(preflight: &Preflight, quotas: &BTreeMap<&str, Quota>) -> Option<Diagnostic> {
    let Preflight { provisioning_requests: requests, region, project, .. } = preflight;
    let (name, usual) = model::catalog::request_quota()?;
    let need = i64::try_from(requests.len()).unwrap_or(i64::MAX);
    let known = quotas.get(name.as_str());
    let (limit, used) = known.map_or((usual, 0), |quota| (quota.limit, quota.used));
    if need <= limit.saturating_sub(used) {
        return None;
    }
    let whose = if known.is_some() { "" } else { " unless it was raised" };
    let named: Vec<&str> = requests.iter().map(Address::as_str).take(MAX_LISTED).collect();
    let more = match requests.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "quota {name} of {region} does not suffice: need {need}, limit {limit}{whose}, used {used} ({}{more}); requests above \
         it fail",
        named.join(", ")
    );
    let desired = used.saturating_add(need);
    let help = format!(
        "request {desired} of {name} at https://console.cloud.google.com/iam-admin/quotas?project={project}, or apply in parts"
    );
    Some(Diagnostic::warning(Code::Quota, message).help(help))
}

/// Returns all quotas in the answers, keyed by name.
fn known(answers: &Answers) -> BTreeMap<&str, Quota> {
    let mut quotas = BTreeMap::new();
    for (question, whose) in
        [(Question::Region, QuotaScope::Region), (Question::Project, QuotaScope::Project)]
    {
        let Some(Ok(answer)) = answers.get(&question) else { continue };
        for quota in answer["quotas"].as_array().into_iter().flatten() {
            let Some(metric) = quota["metric"].as_str() else { continue };
            let Some(limit) = whole(&quota["limit"]) else { continue };
            let used = whole(&quota["usage"]).unwrap_or_default();
            quotas.entry(metric).or_insert(Quota { limit, used, whose });
        }
    }
    quotas
}

/// Returns a limit as a whole number. Compute Engine writes `24.0`, and 9.22337e+18 for none.
#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
fn whole(value: &Value) -> Option<i64> {
    value.as_f64().map(|number| number.floor() as i64)
}

/// Returns the amounts that a pool takes, keyed by quota.
fn of_pool<'p>(pool: &'p Pool, quotas: &BTreeMap<&str, Quota>) -> BTreeMap<String, QuotaUse<'p>> {
    let mut found: BTreeMap<String, QuotaUse<'p>> = BTreeMap::new();
    let mut add = |share: &Share, [certain, initial, most, surge]: [i64; 4]| {
        let spot =
            share.of_spot.as_deref().filter(|spot| quotas.get(spot).is_some_and(|quota| quota.limit > 0));
        let name = spot.unwrap_or(&share.quota).to_owned();
        let taken = found.entry(name).or_insert(QuotaUse { pool, certain: 0, initial: 0, most: 0, surge: 0 });
        taken.certain += certain;
        taken.initial += initial;
        taken.most += most;
        taken.surge += surge;
    };
    let counted = matches!(pool.change, PoolChange::New | PoolChange::Number);
    for share in &pool.node.shares {
        let of = |nodes: u64| amount(share, nodes);
        let certain = if share.certain && counted { of(pool.initial_nodes) } else { 0 };
        add(share, [certain, of(pool.initial_nodes), of(pool.max_nodes), of(pool.surge)]);
    }
    if let Some((node, nodes)) = &pool.before {
        let NodeRequirements { shares, .. } = node;
        for share in shares {
            let (now, most) = (amount(share, nodes.nodes), amount(share, nodes.max_nodes));
            add(share, [-now, -now, -most, 0]);
        }
    }
    found
}

fn amount(share: &Share, nodes: u64) -> i64 {
    i64::try_from(share.amount.saturating_mul(nodes)).unwrap_or(i64::MAX)
}

fn shortage(preflight: &Preflight, quota: Quota, taken: &[QuotaUse<'_>]) -> Option<Shortage> {
    let free = quota.limit.saturating_sub(quota.used);
    let sum = |of: fn(&QuotaUse<'_>) -> i64| taken.iter().map(of).fold(0, i64::saturating_add);
    let over = |need: i64| need > 0 && need > free;
    if over(sum(|taken| taken.certain)) && !preflight.frees_capacity {
        Some(Shortage::Now)
    } else if over(sum(|taken| taken.initial)) {
        Some(Shortage::MaybeNow)
    } else if over(sum(|taken| taken.most)) {
        Some(Shortage::AtMost)
    } else if sum(|taken| taken.surge) > 0 && over(sum(|taken| taken.initial.max(0) + taken.surge)) {
        Some(Shortage::Upgrading)
    } else {
        None
    }
}

fn diagnostic(
    preflight: &Preflight,
    name: &str,
    quota: Quota,
    taken: &[QuotaUse<'_>],
    short: Shortage,
) -> Diagnostic {
    let of = |taken: &QuotaUse<'_>| match short {
        Shortage::Now | Shortage::MaybeNow => taken.initial,
        Shortage::AtMost => taken.most,
        Shortage::Upgrading => taken.initial.max(0) + taken.surge,
    };
    let need: i64 = taken.iter().map(of).sum();
    let users: Vec<&QuotaUse<'_>> = taken.iter().filter(|taken| of(taken) > 0).collect();
    let each: Vec<String> =
        users.iter().map(|taken| format!("{}: {}", taken.pool.address, of(taken))).collect();
    let each = each.join(", ");
    let scope = match quota.whose {
        QuotaScope::Region => &preflight.region,
        QuotaScope::Project => &preflight.project,
    };
    let lacks = match short {
        Shortage::Now => "does not suffice",
        Shortage::MaybeNow => "may not suffice",
        Shortage::AtMost => "does not suffice for all nodes that the autoscaler may add",
        Shortage::Upgrading => "does not suffice for the extra nodes of the upgrade",
    };
    let Quota { limit, used, .. } = quota;
    let message =
        format!("quota {name} of {scope} {lacks}: need {need}, limit {limit}, used {used} ({each})");
    let diagnostic = match short {
        Shortage::Now => Diagnostic::error(Code::Quota, message),
        Shortage::MaybeNow | Shortage::AtMost | Shortage::Upgrading => {
            Diagnostic::warning(Code::Quota, message)
        }
    };
    let first = users.first().map(|taken| taken.pool);
    let placed = match first {
        Some(pool) => {
            let origin =
                if pool.change == PoolChange::New { pool.machine_at.clone() } else { pool.nodes_at.clone() };
            diagnostic.at_value(origin, "for these nodes").about(pool.address.clone(), "")
        }
        None => diagnostic,
    };
    placed.help(help(preflight, name, quota, need, short))
}

/// Returns the help text: how to request a larger quota, and what helps without one.
fn help(preflight: &Preflight, name: &str, quota: Quota, need: i64, short: Shortage) -> String {
    let Preflight { project, region, .. } = preflight;
    let ask = request(project, region, name, quota, quota.used.saturating_add(need));
    let also = match (quota.whose, short) {
        (_, Shortage::Upgrading) => {
            "`surge = { max_surge = 0, max_unavailable = 1 }` upgrades without extra nodes"
        }
        (QuotaScope::Project, _) if name == "GPUS_ALL_REGIONS" => {
            "it counts the GPUs of all regions; new projects have 0, and those on a free trial get none"
        }
        (QuotaScope::Project, _) => "it counts all regions",
        (QuotaScope::Region, _) if name == model::catalog::ADDRESS_QUOTA => {
            "`private_nodes = true` needs no addresses"
        }
        (QuotaScope::Region, _) => "fewer nodes, another region or another machine type may fit",
    };
    format!("{ask}; {also}")
}

/// Returns how to request a larger quota: the command, if the name of the quota in Cloud Quotas is known, and the page. Source:
/// gcloud 528's `beta quotas preferences create --help`; `GPUS-ALL-REGIONS-per-project` in Compute Engine's own refusals,
/// `NVIDIA-T4-GPUS-per-project-region` in Cloud Quotas' answers.
fn request(project: &str, region: &str, name: &str, quota: Quota, desired: i64) -> String {
    let page = format!("https://console.cloud.google.com/iam-admin/quotas?project={project}");
    if !name.contains("GPUS") {
        return format!("request {desired} of {name} at {page}");
    }
    let id = name.replace('_', "-");
    let (id, dimensions) = match quota.whose {
        QuotaScope::Project => (format!("{id}-per-project"), String::new()),
        QuotaScope::Region => (format!("{id}-per-project-region"), format!(" --dimensions region={region}")),
    };
    format!(
        "request {desired}: gcloud beta quotas preferences create --service compute.googleapis.com --project {project} \
         --quota-id {id} --preferred-value {desired}{dimensions}, or at {page}"
    )
}

/// Returns the quotas of a region that its answer lacks. A project quota that the answer lacks does not apply: older accounts
/// have no `GPUS_ALL_REGIONS`. Source: gcloudrig/gcloudrig 25.
fn unlisted<'n>(
    preflight: &Preflight,
    answers: &Answers,
    quotas: &BTreeMap<&str, Quota>,
    names: impl Iterator<Item = &'n String>,
) -> Option<Diagnostic> {
    let answered = matches!(answers.get(&Question::Region), Some(Ok(answer)) if answer["quotas"].is_array());
    let lacking = |name: &&str| !name.ends_with("_ALL_REGIONS") && !quotas.contains_key(name);
    let missing: Vec<&str> = names.map(String::as_str).filter(lacking).collect();
    (answered && !missing.is_empty()).then(|| {
        let what = listed(missing, "and");
        let region = &preflight.region;
        let message =
            format!("not looked at: {what}, because Compute Engine does not list them for {region}");
        Diagnostic::warning(Code::NotLookedAt, message)
    })
}
