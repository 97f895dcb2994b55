//! Reports `cpu = "fit"` and `memory = "fit"` that are no share of a node, and how to correct them.

use crate::Stack;
use crate::shares::{NoRoom, NoShare, Shared};
use fit::Resource as Amount;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

const AMOUNTS: &str = "write amounts: `cpu = \"4\"`, `memory = \"16Gi\"`";

/// Returns a finding for each section and reason. `has_error` is true if the stack has another error, from which the reason may follow.
pub(crate) fn findings(stack: &Stack, shared: &[Shared], has_error: bool) -> Vec<Diagnostic> {
    let is_same = |one: &Shared, other: &Shared| one.section == other.section && one.share == other.share;
    let failed = shared.chunk_by(is_same).filter_map(|amounts| {
        let (first, others) = amounts.split_first()?;
        let reason =
            first.share.as_ref().err().filter(|reason| **reason != NoShare::Unclear || !has_error)?;
        Some(finding(stack, first, others, reason))
    });
    failed.collect()
}

fn finding(stack: &Stack, first: &Shared, others: &[Shared], reason: &NoShare) -> Diagnostic {
    let place = |shared: &Shared| shared.section.key(shared.key);
    let what = format!("`{}` cannot be `fit`: {}", place(first), why(reason, &first.pool));
    let mut finding = Diagnostic::error(Code::NodeShare, what).at_value(place(first), taken(reason));
    for other in others {
        finding = finding.at_value(place(other), "");
    }
    about_pool(finding, stack, &first.pool, reason).help(help(stack, &first.pool, reason))
}

fn why(reason: &NoShare, pool: &str) -> String {
    match reason {
        NoShare::NoWorkers => "only workers share a node".to_owned(),
        NoShare::OnHosts => "the size of a host is not known before the apply".to_owned(),
        NoShare::OtherCluster => "the nodes of this cluster are not in the file".to_owned(),
        NoShare::Autopilot => "with Autopilot a Pod has no node before it asks for one".to_owned(),
        NoShare::ExternalCluster => {
            "the features and DaemonSets of a cluster that is managed elsewhere are not in the file"
                .to_owned()
        }
        NoShare::NoPool => "the workers name no node pool".to_owned(),
        NoShare::ExternalPool => format!("the pool `{pool}` is managed elsewhere"),
        NoShare::UnknownSize => format!("the size of the nodes of `{pool}` is not known"),
        NoShare::NotReserved => {
            format!("other Pods, GKE's and those of the stack, may come to nodes of `{pool}`")
        }
        NoShare::NoRoom(_) => format!("a node of `{pool}` has no room for it"),
        NoShare::Unclear => "its section or its node pool cannot be read".to_owned(),
    }
}

/// Returns the label at the amount.
fn taken(reason: &NoShare) -> String {
    match reason {
        NoShare::NoRoom(NoRoom { resource, taken, .. }) if *taken > 0 => {
            format!("other containers of the Pod ask for {}", of(resource, *taken))
        }
        _ => String::new(),
    }
}

/// Adds the label at the cluster or the pool.
fn about_pool(finding: Diagnostic, stack: &Stack, pool: &str, reason: &NoShare) -> Diagnostic {
    let section = FieldPath::keys(["node_pool", pool]);
    match reason {
        NoShare::ExternalCluster => finding.at_value(FieldPath::keys(["cluster", "manage"]), ""),
        NoShare::ExternalPool => finding.at_value(section.key("manage"), "its nodes are not in the file"),
        NoShare::UnknownSize => finding.at_value(section.key("machine_type"), ""),
        NoShare::NotReserved => finding.at_key(section, "no taint keeps them off"),
        NoShare::NoRoom(NoRoom { resource, free, workers, .. }) => {
            let key = if has_huge_pages(stack, pool, resource) { "linux" } else { "machine_type" };
            let free = of(resource, (*free).max(0));
            let workers = if *workers == 1 { "a worker".to_owned() } else { format!("{workers} workers") };
            finding.at_value(section.key(key), format!("{free} are certainly free for {workers}"))
        }
        _ => finding,
    }
}

/// Returns an amount with its resource: `0.94 CPUs`, `5.48Gi of memory`.
fn of(resource: &Amount, amount: i64) -> String {
    let noun = if *resource == Amount::Cpu { "CPUs" } else { "of memory" };
    format!("{} {noun}", resource.text(amount))
}

fn has_huge_pages(stack: &Stack, pool: &str, resource: &Amount) -> bool {
    let linux = stack.node_pool.get(pool).and_then(|pool| pool.linux.as_ref());
    *resource == Amount::Memory && linux.is_some_and(|linux| linux.hugepages.is_some())
}

fn help(stack: &Stack, pool: &str, reason: &NoShare) -> String {
    match reason {
        NoShare::OnHosts => {
            format!("{AMOUNTS}; without `memory` a worker gets its part of the host's, by threads or GPUs")
        }
        NoShare::OtherCluster | NoShare::ExternalCluster => {
            format!("{AMOUNTS}; `kubectl get nodes -o wide` and `kubectl describe node` show what a node has")
        }
        NoShare::Autopilot => format!("{AMOUNTS}; GKE makes a node for them"),
        NoShare::NoPool => match stack.node_pool.keys().next_back() {
            Some(pool) => format!("name one, `pool = \"{pool}\"`, or {AMOUNTS}"),
            None => AMOUNTS.to_owned(),
        },
        NoShare::NotReserved => format!(
            "add `taints = [{{ key = \"dask\", value = \"workers\", effect = \"NoSchedule\" }}]` to \
             `node_pool.{pool}`, if another pool is there for GKE's Pods, or {AMOUNTS}"
        ),
        NoShare::NoRoom(room) => no_room_help(room, has_huge_pages(stack, pool, &room.resource)).to_owned(),
        NoShare::NoWorkers | NoShare::ExternalPool | NoShare::UnknownSize | NoShare::Unclear => {
            AMOUNTS.to_owned()
        }
    }
}

fn no_room_help(room: &NoRoom, has_huge_pages: bool) -> &'static str {
    match room {
        _ if has_huge_pages => "use fewer huge pages or a larger machine type",
        NoRoom { taken: 1.., .. } => "let the other containers ask for less, or use a larger machine type",
        NoRoom { workers: 2.., .. } => "let fewer workers share a node, or use a larger machine type",
        _ => "use a larger machine type",
    }
}
