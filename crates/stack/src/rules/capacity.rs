//! Checks of keys of clusters and node pools that need or exclude each other in the GKE API.

use serde_json::Value;

use crate::rules::Context;
use crate::{NodePool, Nodes};
use kinds::gke::cluster::Cluster;
use kinds::gke::enums::{Placement, WorkloadMetadata};
use kinds::gke::node_pool::Capacity;
use kinds::gke::node_pool::Reservation;
use kinds::short_forms::seconds;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, Severity};

/// A conflict of a key with another one.
struct Clash<S: 'static> {
    /// The key that needs or excludes something.
    key: &'static str,
    /// Returns true if a section has this conflict.
    is: fn(&S) -> bool,
    /// The conflict, as words that follow the key.
    what: &'static str,
    /// The other key.
    other: &'static str,
    help: &'static str,
    severity: Severity,
}

const QUEUE: &str = "set `nodes = { min = 0, max = 4 }`";
const NO_RESERVATION: &str = "add `reservation = \"none\"`";
const NO_SPOT: &str = "remove `spot`: it is another way to buy the same machines";

/// Sources: 400s of the service in public threads (`Queued_provisioning requires reservation affinity to be set to none`,
/// hashicorp/terraform-provider-google issue 18341), Terraform's acceptance tests for queued and flex-start pools, which
/// pass against the service, and `conflicts` in `schemas/gke-fields.tsv`.
const OF_POOLS: &[Clash<NodePool>] = &[
    Clash {
        key: "queued",
        is: |pool| pool.queued == Some(true) && !matches!(pool.size(), Nodes::Autoscaled { min: 0, .. }),
        what: "needs nodes that are autoscaled from 0",
        other: "nodes",
        help: QUEUE,
        severity: Severity::Error,
    },
    Clash {
        key: "queued",
        is: |pool| pool.queued == Some(true) && pool.reservation != Some(Reservation::None),
        what: "needs `reservation = \"none\"`",
        other: "reservation",
        help: NO_RESERVATION,
        severity: Severity::Error,
    },
    Clash {
        key: "queued",
        is: |pool| pool.queued == Some(true) && pool.spot,
        what: "excludes `spot`",
        other: "spot",
        help: NO_SPOT,
        severity: Severity::Error,
    },
    Clash {
        key: "queued",
        is: |pool| pool.queued == Some(true) && pool.placement == Some(Placement::Compact),
        what: "excludes compact placement of GPU machines",
        other: "placement",
        help: "remove `placement`",
        severity: Severity::Warning,
    },
    Clash {
        key: "flex_start",
        is: |pool| pool.flex_start == Some(true) && matches!(pool.size(), Nodes::Fixed(_)),
        what: "needs nodes that are autoscaled",
        other: "nodes",
        help: QUEUE,
        severity: Severity::Error,
    },
    Clash {
        key: "flex_start",
        is: |pool| pool.flex_start == Some(true) && pool.reservation != Some(Reservation::None),
        what: "needs `reservation = \"none\"`",
        other: "reservation",
        help: NO_RESERVATION,
        severity: Severity::Error,
    },
    Clash {
        key: "flex_start",
        is: |pool| pool.flex_start == Some(true) && pool.spot,
        what: "excludes `spot`",
        other: "spot",
        help: NO_SPOT,
        severity: Severity::Error,
    },
    Clash {
        key: "location_policy",
        is: |pool| pool.location_policy.is_some() && matches!(pool.size(), Nodes::Fixed(_)),
        what: "is about nodes that are autoscaled",
        other: "nodes",
        help: "remove it, or set `nodes = { min = 0, max = 4 }`",
        severity: Severity::Error,
    },
    Clash {
        key: "fast_socket",
        is: |pool| pool.fast_socket == Some(true) && pool.gvnic != Some(true),
        what: "needs `gvnic`",
        other: "gvnic",
        help: "add `gvnic = true`",
        severity: Severity::Error,
    },
    Clash {
        key: "tier_1_network",
        is: |pool| pool.tier_1_network && pool.gvnic != Some(true),
        what: "needs `gvnic`",
        other: "gvnic",
        help: "add `gvnic = true`",
        severity: Severity::Error,
    },
    Clash {
        key: "additional_pod_networks",
        is: has_a_pod_network_alone,
        what: "need `additional_node_networks` with the same subnetworks",
        other: "additional_node_networks",
        help: "add the subnetwork to `additional_node_networks`",
        severity: Severity::Error,
    },
    Clash {
        key: "secondary_boot_disks",
        is: |pool| !pool.secondary_boot_disks.is_empty() && pool.image_streaming != Some(true),
        what: "need `image_streaming`",
        other: "image_streaming",
        help: "add `image_streaming = true`",
        severity: Severity::Error,
    },
    Clash {
        key: "local_ssd",
        is: |pool| pool.local_ssd.is_some_and(|ssd| ssd.forms() != 1),
        what: "has one form",
        other: "local_ssd",
        help: "use `ephemeral` for the scratch space of Pods, `block` for raw devices, or `scsi`",
        severity: Severity::Error,
    },
    Clash {
        key: "blue_green",
        is: |pool| pool.blue_green.is_some() && pool.surge.is_some(),
        what: "excludes `surge`",
        other: "surge",
        help: "remove one of the two",
        severity: Severity::Error,
    },
    Clash {
        key: "blue_green",
        is: |pool| {
            pool.blue_green.as_ref().is_some_and(|it| it.batch_nodes.is_some() && it.batch_percent.is_some())
        },
        what: "takes `batch_nodes` or `batch_percent`",
        other: "blue_green",
        help: "remove one of the two",
        severity: Severity::Error,
    },
];

/// Returns true if a pool has a Pod network without a node network for it.
fn has_a_pod_network_alone(pool: &NodePool) -> bool {
    let of_nodes =
        |subnetwork: &str| pool.additional_node_networks.iter().any(|it| it.subnetwork == subnetwork);
    pool.additional_pod_networks.iter().any(|pods| !of_nodes(&pods.subnetwork))
}

const OF_CLUSTERS: &[Clash<Cluster>] = &[
    Clash {
        key: "multi_networking",
        is: |cluster| {
            let provider = &cluster.api.get("networkConfig").unwrap_or(&Value::Null)["datapathProvider"];
            let v2 = cluster.dataplane_v2 == Some(true) || *provider == "ADVANCED_DATAPATH";
            cluster.multi_networking == Some(true) && !v2
        },
        what: "needs `dataplane_v2`",
        other: "dataplane_v2",
        help: "add `dataplane_v2 = true`",
        severity: Severity::Error,
    },
    Clash {
        key: "network_policy",
        is: |cluster| cluster.network_policy == Some(true) && cluster.dataplane_v2 == Some(true),
        what: "excludes `dataplane_v2`, which enforces network policies by itself",
        other: "dataplane_v2",
        help: "remove `network_policy`",
        severity: Severity::Error,
    },
    Clash {
        key: "autoprovisioning",
        is: |cluster| {
            let limits = |it: &kinds::gke::cluster::Autoprovisioning| {
                it.makes_pools() && (it.max_cpus == 0 || it.max_memory_gb == 0)
            };
            cluster.autoprovisioning.as_ref().is_some_and(limits)
        },
        what: "needs limits of CPUs and of memory",
        other: "autoprovisioning",
        help: "set both: `max_cpus = 64` and `max_memory_gb = 256`; only `profile` alone needs neither",
        severity: Severity::Error,
    },
    Clash {
        key: "maintenance",
        is: |cluster| {
            cluster.maintenance.as_ref().is_some_and(|it| {
                let given = [&it.start, &it.end, &it.recurrence].into_iter().flatten().count();
                given % 3 != 0 || given > 0 && it.daily.is_some()
            })
        },
        what: "has either `daily`, or `start`, `end` and `recurrence`",
        other: "maintenance",
        help: "for example `daily = \"03:00\"`",
        severity: Severity::Error,
    },
];

pub(crate) fn keys_go_together(context: &mut Context<'_>) {
    let stack = context.stack;
    for (path, pool) in context.pools() {
        clashes(context, &path, pool, OF_POOLS);
    }
    let Some(cluster) = stack.cluster.as_ref().filter(|cluster| cluster.manage.is_managed()) else { return };
    clashes(context, &FieldPath::keys(["cluster"]), cluster, OF_CLUSTERS);
    let by_api = cluster.api.get("networkConfig").unwrap_or(&Value::Null);
    if cluster.multi_networking != Some(true) && by_api["enableMultiNetworking"] != true {
        for (path, _) in context.pools().filter(|(_, pool)| !pool.additional_node_networks.is_empty()) {
            let what = "`additional_node_networks` need `multi_networking` of the cluster";
            let finding = Diagnostic::error(Code::KeysClash, what);
            let finding = finding.at_value(path.key("additional_node_networks"), "");
            context.say(finding.help("add `multi_networking = true` to `[cluster]`"));
        }
    }
    if cluster.workload_identity == Some(true) || cluster.api.contains_key("workloadIdentityConfig") {
        return;
    }
    for (path, _) in context.pools().filter(|(_, pool)| pool.workload_metadata == Some(WorkloadMetadata::Gke))
    {
        let what = "`workload_metadata = \"gke\"` needs `workload_identity` of the cluster";
        let finding = Diagnostic::error(Code::KeysClash, what).at_value(path.key("workload_metadata"), "");
        context.say(finding.help("add `workload_identity = true` to `[cluster]`"));
    }
}

fn clashes<S>(context: &mut Context<'_>, path: &FieldPath, section: &S, all: &[Clash<S>]) {
    for Clash { key, is: _, what, other, help, severity } in all.iter().filter(|clash| (clash.is)(section)) {
        let message = format!("`{key}` {what}");
        let finding = match severity {
            Severity::Error => Diagnostic::error(Code::KeysClash, message),
            Severity::Warning => Diagnostic::warning(Code::KeysClash, message),
        };
        let finding = finding.at_value(path.key(key), "");
        let place = path.key(other);
        let there = key != other && context.sources.span(&place).is_some();
        let finding = if there { finding.at_value(place, "here") } else { finding };
        context.say(finding.help(*help));
    }
}

/// The longest `max_run_duration` in seconds. Source: GKE's documentation of `maxRunDuration`.
const WEEK: u64 = 7 * 86_400;

pub(crate) fn durations_are_valid(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let mut given = vec![(path.key("max_run_duration"), pool.max_run_duration.as_deref(), WEEK)];
        if let Some(blue_green) = &pool.blue_green {
            let at = path.key("blue_green");
            given.push((at.key("soak"), blue_green.soak.as_deref(), WEEK));
            given.push((at.key("batch_soak"), blue_green.batch_soak.as_deref(), WEEK));
        }
        for (place, text, most) in given {
            let Some(text) = text else { continue };
            let (message, help) = match seconds(text) {
                None => (format!("`{text}` is not a duration"), "write `7d`, `12h`, `30m` or `45s`"),
                Some(seconds) if seconds > most => (format!("`{text}` is too long"), "7 days are the most"),
                Some(_) => continue,
            };
            context.say(Diagnostic::error(Code::BadDuration, message).at_value(place, "").help(help));
        }
    }
}

/// Checks machine types that are not available on demand: names the keys that make them available. Source: Compute Engine's and
/// GKE's documentation of these machine types, from memory.
pub(crate) fn machines_can_be_had(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let machine = pool.machine_type.as_str();
        let small = ["a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"].contains(&machine);
        let large = ["a3-ultragpu-", "a4-", "a4x-"].iter().any(|series| machine.starts_with(series));
        let reserved = matches!(pool.reservation, Some(Reservation::Any | Reservation::Named(_)));
        let option = pool.capacity.iter().any(|option| *option != Capacity::OnDemand);
        let had = pool.spot || pool.waits_for_machines() || large && reserved || option;
        if had || !(small || large) {
            continue;
        }
        let named = if large { "`reservation = { name = \"…\" }`, " } else { "" };
        let finding = Diagnostic::warning(Code::NotOnDemand, format!("`{machine}` is not sold on demand"));
        let finding = finding.at_value(path.key("machine_type"), "");
        context.say(finding.help(format!(
            "set {named}`spot = true`, or `flex_start = true` with `reservation = \"none\"` and nodes that are autoscaled"
        )));
    }
}
