//! Checks of the workers of Dask clusters: the owner of their number, and the names of their groups.

use std::collections::BTreeMap;

use crate::rules::Context;
use crate::{Replicas, ReplicasTable, Worker};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Checks that a number of workers has a single owner, and that bounds are in order.
pub(crate) fn numbers_have_one_writer(context: &mut Context<'_>) {
    let on_hosts = context.stack.is_on_hosts();
    for (place, replicas, scalable) in context.replicas() {
        let Replicas::Table(given) = replicas else { continue };
        let finding = match given {
            ReplicasTable { min: Some(min), max: Some(max), start: None } if min > max => {
                let message = format!("`min` is {min} and `max` is {max}");
                let finding = Diagnostic::error(Code::Limits, message).at_value(place.key("min"), "more");
                finding.at_value(place.key("max"), "than this").help("`min` must not exceed `max`")
            }
            ReplicasTable { min: Some(_), max: Some(_), start: None } if !scalable => {
                let message = "an autoscaler sets the number of the default group only";
                let other = if on_hosts { "" } else { ", or `{ start = 2 }` to leave it to notebooks" };
                Diagnostic::error(Code::OneWriter, message)
                    .at_value(place, "of another group")
                    .help(format!("give a number{other}; autoscale workers in the cluster's `worker`"))
            }
            ReplicasTable { min: Some(_), max: Some(_), start: None }
            | ReplicasTable { min: None, max: None, start: Some(_) } => {
                continue;
            }
            ReplicasTable { start: Some(_), .. } => {
                let message = "two owners of one number: `start` leaves it to notebooks, `min` and `max` to \
                     the operator's autoscaler";
                Diagnostic::error(Code::OneWriter, message)
                    .at_value(place, "both")
                    .help("keep `start`, or `min` and `max`")
            }
            ReplicasTable { start: None, .. } => {
                let message = "the number of workers has neither a value nor an owner";
                let help = match on_hosts {
                    true => "`replicas = 2`, or `replicas = { min = 0, max = 8 }`",
                    false => {
                        "`replicas = 2`, `replicas = { min = 0, max = 8 }`, or `replicas = { start = 2 }`"
                    }
                };
                Diagnostic::error(Code::OneWriter, message).at_value(place, "").help(help)
            }
        };
        context.say(finding);
    }
}

/// Checks that workers which the operator's autoscaler retires are a single process each. Source: dask-kubernetes,
/// `daskautoscaler_adapt` and issue 521: it retires workers by the names of Pods, but names of processes have a suffix with
/// `--nworkers`, and where `dask cuda worker` has several GPUs (`dask_cuda.cuda_worker`).
pub(crate) fn retired_workers_are_single(context: &mut Context<'_>) {
    if context.stack.is_on_hosts() {
        return;
    }
    let stack = context.stack;
    for (name, cluster) in &stack.dask_cluster {
        let Replicas::Table(ReplicasTable { min: Some(_), max: Some(_), .. }) = cluster.worker.replicas
        else {
            continue;
        };
        let path = FieldPath::keys(["dask_cluster", name, "worker"]);
        let Some((place, help)) = several_processes(&cluster.worker, &path) else { continue };
        let what = "the operator's autoscaler cannot retire workers of several processes";
        let finding = Diagnostic::warning(Code::SeveralProcesses, what)
            .at_value(place, "several in each Pod")
            .at_value(path.key("replicas"), "autoscaled");
        context.say(finding.help(format!("{help}: it deletes other Pods while they compute")));
    }
}

/// Returns the path of the key by which each Pod of workers has several processes, and what to do in its place.
fn several_processes(worker: &Worker, path: &FieldPath) -> Option<(FieldPath, &'static str)> {
    let args = &worker.args;
    if args.is_empty() {
        let several = worker.keys.gpus() > 1;
        return several.then(|| (path.key("gpus"), "use `gpus = 1` and more workers"));
    }
    let number = args.iter().enumerate().find_map(|(place, arg)| match arg.split_once('=') {
        Some(("--nworkers", number)) => Some((place, number)),
        _ if arg == "--nworkers" => Some((place, args.get(place + 1)?.as_str())),
        _ => None,
    });
    let (place, _) = number.filter(|(_, number)| *number != "1")?;
    Some((path.key("args").index(place), "use one process with more `--nthreads`, or smaller workers"))
}

/// The maximum length of a group's name to which the operator appends `-worker-` and ten digits, within 63 characters.
const LONG_GROUP_NAME: usize = 45;

/// The operator calls a cluster's own group `default`, and puts names of groups into names and labels of workers.
pub(crate) fn groups_have_room_for_names(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut seen: BTreeMap<(String, String), FieldPath> = BTreeMap::new();
    for (name, cluster) in &stack.dask_cluster {
        for (key, group) in &cluster.group {
            let path = FieldPath::keys(["dask_cluster", name, "group", key]);
            let live = group.live_name(cluster.live_name(name), key);
            let place = if group.name.is_some() { path.key("name") } else { path.clone() };
            group_name(context, cluster.live_name(name), &place, &live);
            let first = seen.insert((cluster.namespace().to_owned(), live.clone()), path.clone());
            if let Some(first) = first {
                let message = format!("`{first}` and `{path}` are both named `{live}`");
                let finding =
                    Diagnostic::error(Code::SameName, message).at_value(path.key("name"), "again here");
                context.say(
                    finding.at_value(first.key("name"), "first here").help("give one of them another `name`"),
                );
            }
        }
    }
}

/// Checks the name of a group of a cluster; `place` is where it stands.
pub(crate) fn group_name(context: &mut Context<'_>, cluster: &str, place: &FieldPath, live: &str) {
    if live == format!("{cluster}-default") {
        let message = match context.stack.is_on_hosts() {
            true => format!("the Dask cluster's own workers are named `{live}`"),
            false => format!("the operator names the cluster's default group `{live}`"),
        };
        let help = "choose another name, or set the default group's workers in the cluster's `worker`";
        context.say(Diagnostic::error(Code::ChildName, message).at_key(place.clone(), "taken").help(help));
    } else if live.len() > 63 {
        let message =
            format!("the group's name `{live}` has {} characters, at most 63 are allowed", live.len());
        let help = "it becomes a label of its workers; give it a shorter `name`";
        context.say(Diagnostic::error(Code::ChildName, message).at_key(place.clone(), "too long").help(help));
    } else if live.len() > LONG_GROUP_NAME {
        let message = format!("the group's name `{live}` is too long for its workers");
        let finding = Diagnostic::warning(Code::LongName, message);
        let finding = finding.at_key(place.clone(), format!("{} characters", live.len()));
        context.say(finding.help(format!(
            "names of worker Pods add 18 characters and are truncated at 63: use at most {LONG_GROUP_NAME}"
        )));
    }
}
