//! Checks of Dask clusters and checks: GPUs, quantities, commands, the operator.

use std::collections::BTreeMap;

use crate::rules::machines::{Gpus, gpus_of};
use crate::rules::{Context, counted, queues};
use crate::{Nodes, Stack};
use kinds::dask::operator::BUILT_IN_VERSION;
use kinds::kubernetes::bundle;
use kinds::scope::OPERATOR_NAME;
use kinds::section::{PodRole, Pods, managed};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::quantity::{Quantity, Spelling};
use model::schema::DASK_GROUP;

/// Checks that no Pod requests more GPUs than a node of its pool has.
pub(crate) fn gpus_fit_a_node(context: &mut Context<'_>) {
    for pod in context.pods().into_iter().filter(|pod| pod.keys.gpus() > 0) {
        let hard =
            pod.keys.pool.as_deref().map(|name| (name, Diagnostic::error as fn(Code, String) -> Diagnostic));
        let soft = pod
            .keys
            .prefer_pool
            .as_deref()
            .map(|name| (name, Diagnostic::warning as fn(Code, String) -> Diagnostic));
        for (name, finding) in hard.into_iter().chain(soft) {
            let Some(gpus) = context.pool(name).and_then(gpus_of) else { continue };
            let Gpus { allocatable, shared, .. } = gpus;
            let pool = FieldPath::keys(["node_pool", name]);
            let asked = asked(&pod);
            if allocatable < pod.keys.gpus() {
                let message = format!(
                    "{} requests {}, a node of `{name}` has {}",
                    pod.role,
                    counted(pod.keys.gpus(), "GPU"),
                    if allocatable == 0 { "none".to_owned() } else { allocatable.to_string() },
                );
                let finding = finding(Code::NoGpuThere, message).at_value(pod.path.key("gpus"), asked);
                let finding = finding.at_value(pool.key("machine_type"), has(gpus));
                context.say(finding.help(more_gpus(context, &pod, name)));
            } else if shared && pod.keys.gpus() > 1 {
                let message = format!(
                    "{} requests {}, a container gets at most one shared GPU",
                    pod.role,
                    pod.keys.gpus()
                );
                let finding = finding(Code::OneGpuShared, message).at_value(pod.path.key("gpus"), asked);
                let finding = finding.at_value(pool.key("accelerator"), "shared here");
                context.say(finding.help("set `gpus = 1`, or remove `sharing`"));
            }
        }
    }
}

fn asked(pod: &Pods<'_>) -> String {
    format!("{} requests {}", pod.role, pod.keys.gpus())
}

fn has(gpus: Gpus) -> String {
    match gpus.allocatable {
        0 => "has no GPU".to_owned(),
        number => format!("{number} per node"),
    }
}

fn more_gpus(context: &Context<'_>, pod: &Pods<'_>, not: &str) -> String {
    let enough = context.stack.node_pool.iter().find(|(name, pool)| {
        name.as_str() != not && gpus_of(pool).is_some_and(|gpus| gpus.allocatable >= pod.keys.gpus())
    });
    match enough {
        Some((name, _)) => format!("the pool `{name}` has enough"),
        None => {
            "request fewer GPUs, or give the pool a machine type or an `accelerator` with more".to_owned()
        }
    }
}

fn gpus_asked(pods: &[&Pods<'_>]) -> u64 {
    pods.iter().map(|pod| u64::from(pod.replicas) * u64::from(pod.keys.gpus())).sum()
}

/// Numbers of nodes, keyed by their number of free GPUs.
type Free = BTreeMap<u64, u64>;

/// Puts pods on at most `nodes` nodes with `each` GPUs, pods with the most GPUs first. Returns the number of pods that do not
/// fit, and the number of used nodes. No pod may request more GPUs than a node has.
fn packed(pods: &[&Pods<'_>], each: u64, nodes: Option<u64>) -> (u64, u64) {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.keys.gpus() > 0) {
        *sizes.entry(u64::from(pod.keys.gpus())).or_default() += u64::from(pod.replicas);
    }
    let (mut free, mut used, mut left) = (Free::new(), 0, 0);
    for (size, count) in sizes.into_iter().rev() {
        let count = fill(&mut free, size, count);
        let wanted = count.div_ceil((each / size).max(1));
        let more = nodes.map_or(wanted, |nodes| wanted.min(nodes - used));
        used += more;
        *free.entry(each).or_default() += more;
        left += fill(&mut free, size, count);
    }
    (left, used)
}

/// Puts pods that request `size` GPUs on nodes with free GPUs. Returns the number of pods that do not fit.
fn fill(free: &mut Free, size: u64, mut count: u64) -> u64 {
    for (room, nodes) in free.clone().range(size..) {
        let a_node = room / size;
        let full = (count / a_node).min(*nodes);
        let mut put = |nodes: u64, pods: u64| {
            *free.entry(room - pods * size).or_default() += nodes;
            if let Some(before) = free.get_mut(room) {
                *before -= nodes;
            }
        };
        put(full, a_node);
        count -= full * a_node;
        if full < *nodes && count > 0 {
            put(1, count);
            count = 0;
        }
    }
    free.retain(|_, nodes| *nodes > 0);
    count
}

/// Returns the number of nodes with enough GPUs for all pods of the stack in a pool; `None` for pools without GPUs.
pub fn nodes_for_gpus(stack: &Stack, pool: &str) -> Option<u64> {
    let gpus = gpus_of(stack.node_pool.get(pool)?).filter(|gpus| gpus.allocatable > 0)?;
    let all = stack.pods();
    let pods: Vec<&Pods<'_>> = all.iter().filter(|pod| pod.keys.pool.as_deref() == Some(pool)).collect();
    if pods.iter().any(|pod| pod.keys.gpus() > gpus.allocatable) {
        return Some(gpus_asked(&pods).div_ceil(u64::from(gpus.allocatable)));
    }
    Some(packed(&pods, gpus.allocatable.into(), None).1)
}

/// Checks that all Pods that must run in a pool fit into it at its maximum size.
pub(crate) fn gpus_fit_the_pool(context: &mut Context<'_>) {
    // Nodes that are requested are for pods that stand elsewhere, and what waits in a queue is not there all at once.
    let waiting = queues::waiting(context.stack);
    let mut all = context.pods();
    all.retain(|pod| pod.role != PodRole::Requested && !waiting.contains(&pod.path));
    for (name, pool) in &context.stack.node_pool {
        let unknown = !pool.manage.is_managed() && pool.nodes.is_none();
        let wrong = matches!(pool.size(), Nodes::Autoscaled { min, max } if min > max);
        if unknown || wrong {
            continue;
        }
        let Some(gpus) = gpus_of(pool).filter(|gpus| gpus.allocatable > 0) else { continue };
        let pods: Vec<&Pods<'_>> = all.iter().filter(|pod| pod.keys.pool.as_deref() == Some(name)).collect();
        let fits_a_node = pods.iter().all(|pod| pod.keys.gpus() <= gpus.allocatable);
        if !fits_a_node {
            continue;
        }
        let (asked, most) = (gpus_asked(&pods), u64::from(pool.size().most()));
        let (never, _) = packed(&pods, gpus.allocatable.into(), Some(most));
        if never == 0 {
            continue;
        }
        let (_, nodes) = packed(&pods, gpus.allocatable.into(), None);
        let there = most * u64::from(gpus.allocatable);
        let all: u64 = pods.iter().filter(|pod| pod.keys.gpus() > 0).map(|pod| u64::from(pod.replicas)).sum();
        let s = |count: u64| if count == 1 { "" } else { "s" };
        let message = format!(
            "{never} of {all} Pod{} can never be scheduled: they request {asked} GPU{} from the pool `{name}`, \
             which has at most {there} ({most} node{} with {})",
            s(all),
            s(asked),
            s(most),
            gpus.allocatable
        );
        let path = FieldPath::keys(["node_pool", name]);
        let mut finding = Diagnostic::warning(Code::MoreGpusThanPool, message);
        for pod in pods.iter().filter(|pod| pod.keys.gpus() > 0) {
            finding = finding
                .at_value(pod.path.clone(), format!("requests {} × {}", pod.replicas, pod.keys.gpus()));
        }
        let label = format!("has {} × {}", pool.size().most(), gpus.allocatable);
        let finding = finding.at_value(path.key("nodes"), label);
        let help = format!(
            "apply waits for them until its deadline; use {nodes} nodes, or request fewer GPUs. If the pool is \
             scaled by other means first, continue"
        );
        context.say(finding.help(help));
    }
}

/// Checks the names of environment variables. Source: Kubernetes' validation: printable ASCII without `=`.
pub(crate) fn environments_have_names(context: &mut Context<'_>) {
    for pod in context.pods() {
        for name in pod.keys.env.keys() {
            let fits = |c: char| c.is_ascii_graphic() && c != '=';
            if !name.is_empty() && name.chars().all(fits) {
                continue;
            }
            let message = format!("`{name}` cannot be the name of an environment variable");
            let place = pod.path.key("env").key(name);
            let finding = Diagnostic::error(Code::BadName, message).at_key(place, "");
            context.say(finding.help("letters, digits and `_`: `env = { MY_NAME = \"value\" }`"));
        }
    }
}

/// Checks that a check of GPUs runs on a pool with GPUs.
pub(crate) fn checks_have_gpus(context: &mut Context<'_>) {
    for (path, check) in context.checks().filter(|(_, check)| check.needs_gpu()) {
        let Some(name) = &check.pool else { continue };
        let Some(pool) = context.pool(name) else { continue };
        if gpus_of(pool).is_some_and(|gpus| gpus.allocatable == 0) {
            let message = format!("the check needs a GPU, but the pool `{name}` has none");
            let finding =
                Diagnostic::error(Code::CheckNeedsGpu, message).at_value(path.key("pool"), "runs here");
            let place = FieldPath::keys(["node_pool", name, "machine_type"]);
            context.say(finding.at_value(place, "has no GPU").help("name a pool with GPUs"));
        }
    }
}

/// Checks that a stack with Dask objects has a Dask operator.
pub(crate) fn operator_is_there(context: &mut Context<'_>) {
    let stack = context.stack;
    let broken = context.is_doubtful(&FieldPath::keys(["dask_operator"]));
    // External clusters have an operator elsewhere.
    let clusters = stack.dask_cluster.iter().filter(|(_, cluster)| {
        cluster.manage.is_managed() || cluster.group.values().any(|group| group.manage.is_managed())
    });
    let clusters = clusters.map(|(name, _)| FieldPath::keys(["dask_cluster", name]));
    let jobs = managed(&stack.dask_job);
    let jobs = jobs.map(|(name, _)| FieldPath::keys(["dask_job", name]));
    // A manifest or a chart may bring the operator too.
    let brought = bundle::objects(&stack.bundles()).any(|object| object.name() == OPERATOR_NAME);
    let dask = bundle::objects(&stack.bundles()).find(|object| object.group_version().0 == DASK_GROUP);
    let object = dask.filter(|_| !brought).map(|object| object.origin().key("kind"));
    let Some(place) = clusters.chain(jobs).chain(object).next() else { return };
    if stack.dask_operator.is_some() || stack.is_on_hosts() || broken {
        return;
    }
    context.say(if stack.kubernetes.is_some() {
        Diagnostic::warning(Code::OperatorMissing, "the stack does not install the Dask operator")
            .at_value(place, "needs the operator")
            .help("if the cluster does not have it, add `[dask_operator]` with `version = \"2026.3.0\"`")
    } else {
        Diagnostic::error(Code::OperatorMissing, "a Dask cluster needs the Dask operator")
            .at_value(place, "needs the operator")
            .help("add `[dask_operator]` with `version = \"2026.3.0\"`")
    });
}

/// Warns of a release of the Dask operator other than the built-in one.
pub(crate) fn operator_is_known(context: &mut Context<'_>) {
    let ours = |operator: &&super::super::DaskOperator| {
        operator.manage.is_managed() && !operator.is_chart() && operator.version != BUILT_IN_VERSION
    };
    let Some(operator) = context.stack.dask_operator.as_ref().filter(ours) else { return };
    let place = FieldPath::keys(["dask_operator", "version"]);
    let version = &operator.version;
    let plain = version.chars().all(|c| c.is_ascii_digit() || c == '.') && version.contains('.');
    context.say(if plain {
        let message = format!(
            "the operator {version} is installed with the RBAC rules and definitions of {BUILT_IN_VERSION}"
        );
        let help = format!("`version = \"{BUILT_IN_VERSION}\"` is the one dask-infra knows");
        Diagnostic::warning(Code::OperatorVersion, message).at_value(place, "").help(help)
    } else {
        let message = format!("`{version}` is not a release of the operator");
        Diagnostic::error(Code::OperatorVersion, message)
            .at_value(place, "")
            .help(format!("for example `\"{BUILT_IN_VERSION}\"`"))
    });
}

/// Checks that `cpu` and `memory` are valid quantities.
pub(crate) fn quantities_are_valid(context: &mut Context<'_>) {
    for pod in context.pods() {
        for (key, text) in pod.keys.quantities() {
            let place = pod.path.key(key);
            let amount = Quantity::parse(text).unwrap_or_default();
            let (message, help) = match suffix(text) {
                None => (format!("`{text}` is not a Kubernetes quantity"), better_quantity(key, text)),
                // Kubernetes takes `512m` for half a byte, which nobody means.
                Some("m") if key == "memory" => (
                    format!("`{text}` of memory means thousandths of bytes"),
                    format!("did you mean `\"{}Mi\"`?", text.trim_end_matches('m')),
                ),
                Some(_) if amount == Quantity::default() => {
                    (format!("`{place}` is 0"), "leave it out where there is no limit".to_owned())
                }
                Some(_) if key == "memory" && amount < Quantity::units(LEAST_MEMORY) => (
                    format!("`{text}` of memory is less than 1 MiB: without a unit it is bytes"),
                    better_quantity(key, &format!("{text}gi")),
                ),
                Some(_) => continue,
            };
            context
                .say_of_value(Diagnostic::error(Code::BadQuantity, message).at_value(place, "").help(help));
        }
    }
}

/// The minimum memory in bytes. Less is a mistake, as no process can run in it.
const LEAST_MEMORY: i64 = 1 << 20;

/// Returns the suffix of a quantity without a sign; `None` if the text is not a quantity.
fn suffix(text: &str) -> Option<&str> {
    let Spelling { signed, whole, fraction, suffix, .. } = Spelling::of(text)?;
    let plain = !signed && !whole.is_empty() && fraction.is_none_or(|digits| !digits.is_empty());
    plain.then_some(suffix)
}

fn better_quantity(key: &str, text: &str) -> String {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let lower = compact.to_ascii_lowercase();
    let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic()).to_owned();
    let better = match &lower[number.len()..] {
        // `GB` is a power of ten, as Dask reads it: `Gi` would be 7 % more than asked for.
        "gb" => Some(format!("{number}G")),
        "mb" => Some(format!("{number}M")),
        "kb" => Some(format!("{number}k")),
        "tb" => Some(format!("{number}T")),
        "g" | "gi" | "gib" => Some(format!("{number}Gi")),
        "mi" | "mib" => Some(format!("{number}Mi")),
        "ki" | "kib" => Some(format!("{number}Ki")),
        "ti" | "tib" => Some(format!("{number}Ti")),
        _ => Some(compact),
    };
    match better.filter(|better| suffix(better).is_some()) {
        Some(better) => format!("did you mean `\"{better}\"`?"),
        None if key == "cpu" => "write a number of CPUs, `\"2\"`, or thousandths, `\"500m\"`".to_owned(),
        None => "write a number with `Mi` or `Gi`: `\"8Gi\"`".to_owned(),
    }
}

/// One-word commands that distributed 2026.6.0 removed.
const REMOVED: [(&str, &str); 2] = [("dask-scheduler", "dask scheduler"), ("dask-worker", "dask worker")];

/// Reports old commands in images that no longer have them.
pub(crate) fn commands_exist(context: &mut Context<'_>) {
    for pod in context.pods() {
        for (index, arg) in pod.args.iter().enumerate() {
            let Some(Old { new, lacks, image }) = old_command(arg, pod.image) else { continue };
            let words: Vec<String> = new.split(' ').map(|word| format!("\"{word}\"")).collect();
            let finding = Diagnostic::warning(Code::OldCommand, format!("{lacks} `{arg}`"))
                .at_value(pod.path.key("args").index(index), "removed in distributed 2026.6.0")
                .at_value(pod.image_path.clone(), image);
            context.say(finding.help(format!("write {}, or omit `args`", words.join(", "))));
        }
        let given = pod.keys.pod.as_ref().and_then(|given| given.0["containers"].as_array());
        for (place, container) in given.into_iter().flatten().enumerate() {
            let at = pod.path.key("pod").key("containers").index(place);
            let image = container["image"].as_str().unwrap_or(pod.image);
            for key in ["command", "args"] {
                let words = container[key].as_array().into_iter().flatten().enumerate();
                for (index, word) in words.filter_map(|(index, word)| Some((index, word.as_str()?))) {
                    let Some(Old { new, lacks, image }) = old_command(word, image) else { continue };
                    let words: Vec<String> = new.split(' ').map(|word| format!("\"{word}\"")).collect();
                    let finding = Diagnostic::warning(Code::OldCommand, format!("{lacks} `{word}`"))
                        .at_value(at.key(key).index(index), "removed in distributed 2026.6.0")
                        .at_value(pod.image_path.clone(), image);
                    context.say(finding.help(format!("write {}", words.join(", "))));
                }
            }
        }
    }
}

/// A command that an image no longer has, or may no longer have.
pub(crate) struct Old {
    /// The command that replaces it.
    pub new: &'static str,
    /// The beginning of a message, before the command.
    pub lacks: &'static str,
    /// The note at the image.
    pub image: &'static str,
}

/// Returns the replacement of a command that the image lacks, by its tag. With a moving tag, the next pull may get an image
/// without the command, on one node and not on another.
pub(crate) fn old_command(word: &str, image: &str) -> Option<Old> {
    let (_, new) = REMOVED.iter().find(|(old, _)| *old == word)?;
    if lacks_old_commands(image) {
        return Some(Old { new, lacks: "the image has no command", image: "has a later one" });
    }
    says_no_version(image).then_some(Old {
        new,
        lacks: "newer images of this name have no command",
        image: "its tag does not show its version",
    })
}

/// Returns true for an image of RAPIDS or Dask with a moving tag.
fn says_no_version(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.split_once(':').map_or("latest", |(_, tag)| tag);
    let external = ["dask", "rapids"].iter().any(|word| name.contains(word));
    let moves = ["latest", "nightly", "stable"]
        .iter()
        .any(|word| tag == *word || tag.starts_with(&format!("{word}-")));
    external && moves && !image.contains('@')
}

/// Returns true for RAPIDS images from 26.08 and Dask images from 2026.6.0 on, by their tags.
fn lacks_old_commands(image: &str) -> bool {
    let Some((name, tag)) = image.rsplit_once(':') else { return false };
    let version = tag.split('-').next().unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next()) else { return false };
    match major {
        20..100 => name.contains("rapids") && (major, minor) >= (26, 8),
        _ => name.contains("dask") && (major, minor) >= (2026, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinds::section::PodKeys;

    #[test]
    fn pods_find_places_on_whole_nodes_only() {
        // (replicas, GPUs) of each pod, GPUs of a node, nodes: how many are left over, and nodes for all.
        for (pods, each, nodes, left, all) in [
            (&[(9, 1)][..], 1, 4, 5, 9),
            (&[(1, 1), (4, 2)], 4, 2, 1, 3),
            (&[(3, 2)], 3, 2, 1, 3),
            (&[(3, 2), (3, 1)], 3, 3, 0, 3),
            (&[(3, 2), (4, 1)], 3, 3, 1, 4),
            (&[(2, 4), (8, 1)], 8, 2, 0, 2),
            (&[(0, 1)], 1, 0, 0, 0),
            (&[(u32::MAX, 1)], 8, 1, u64::from(u32::MAX) - 8, u64::from(u32::MAX).div_ceil(8)),
        ] {
            let keys: Vec<PodKeys> =
                pods.iter().map(|(_, gpus)| PodKeys { gpus: Some(*gpus), ..PodKeys::default() }).collect();
            let pod = |((replicas, _), keys): (&(u32, u32), _)| Pods {
                path: FieldPath::root(),
                role: PodRole::Worker,
                replicas: *replicas,
                image: "",
                image_path: FieldPath::root(),
                args: &[],
                keys,
            };
            let made: Vec<Pods<'_>> = pods.iter().zip(&keys).map(pod).collect();
            let made: Vec<&Pods<'_>> = made.iter().collect();
            assert_eq!(packed(&made, each, Some(nodes)).0, left, "{pods:?} on {nodes} × {each}");
            assert_eq!(packed(&made, each, None), (0, all), "{pods:?} on {each}");
        }
    }

    #[test]
    fn quantities() {
        for text in ["1", "0.5", "500m", "8Gi", "1e3", "12E", "1E2", "100Ki"] {
            assert!(suffix(text).is_some(), "{text}");
        }
        for text in ["", "8GB", "8 Gi", "Gi", "1.", ".5Gi", "1.2.3", "-1", "8gi", "1e"] {
            assert_eq!(suffix(text), None, "{text}");
        }
        assert_eq!(better_quantity("memory", "128GB"), "did you mean `\"128G\"`?");
        assert_eq!(better_quantity("memory", "8 GB"), "did you mean `\"8G\"`?");
        assert_eq!(better_quantity("memory", "8gi"), "did you mean `\"8Gi\"`?");
    }

    #[test]
    fn old_commands_went_away_with_these_tags() {
        for (image, lacks) in [
            ("nvcr.io/nvidia/rapidsai/base:25.04-cuda12.8-py3.12", false),
            ("nvcr.io/nvidia/rapidsai/base:26.06-cuda13-py3.13", false),
            ("nvcr.io/nvidia/rapidsai/base:26.08-cuda13-py3.13", true),
            ("nvcr.io/nvidia/rapidsai/base:27.02", true),
            ("ghcr.io/dask/dask:2026.3.0", false),
            ("ghcr.io/dask/dask:2026.6.0-py3.12", true),
            ("ghcr.io/dask/dask:latest", false),
            ("localhost:5000/rapids", false),
            ("mine:26.10", false),
        ] {
            assert_eq!(lacks_old_commands(image), lacks, "{image}");
        }
        for (image, moves) in [
            ("ghcr.io/dask/dask:latest", true),
            ("ghcr.io/dask/dask", true),
            ("localhost:5000/rapids", true),
            ("ghcr.io/dask/dask:latest-py3.12", true),
            ("ghcr.io/dask/dask:2026.3.0", false),
            ("ghcr.io/dask/dask:latest@sha256:0", false),
            ("mine:latest", false),
        ] {
            assert_eq!(says_no_version(image), moves, "{image}");
            assert_eq!(old_command("dask-worker", image).is_some(), moves, "{image}");
        }
    }
}
