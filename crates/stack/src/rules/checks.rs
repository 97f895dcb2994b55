//! Checks of the programs and the time limits of `[check.NAME]`.

use crate::rules::Context;
use crate::rules::machines::gpus_of;
use crate::{Check, CheckRole, CheckRun};
use kinds::gke::node_pool::ServesRequests;
use kinds::short_forms::seconds;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// The longest `time_limit` in seconds, a week: an apply waits for its checks and holds the lock of the stack meanwhile.
const MAX_SECONDS: u64 = 7 * 86_400;

/// The interpreter that the environment of a Dask cluster on hosts has.
const PYTHON: &str = "python";

/// Checks the words of programs, and that no key contradicts the place in which they run.
pub(crate) fn programs_can_run(context: &mut Context<'_>) {
    let on_hosts = context.stack.is_on_hosts();
    let mut found = Vec::new();
    for (path, check) in context.checks() {
        match &check.run {
            CheckRun::BuiltIn(_) if check.role == Some(CheckRole::Worker) => {
                let finding = unused(&path, "as", "a built-in check cannot take the place of a worker");
                found.push(finding.help("remove it, or set `run` to the words of a program"));
            }
            CheckRun::BuiltIn(_) if check.is_on_gpus_of_workers(false) && !on_hosts => {
                found.extend(on_gpu_pool(context, &path, check));
                found.extend(without_gpus(context, &path, check));
            }
            CheckRun::BuiltIn(_) => {}
            CheckRun::Program(words) => {
                found.extend(without_words(&path, words, on_hosts));
                if check.is_like_worker() {
                    found.extend(in_place_of_worker(&path, check, on_hosts));
                    found.extend(without_workers(context, &path, check));
                }
            }
        }
    }
    found.into_iter().for_each(|finding| context.say(finding));
}

fn without_words(path: &FieldPath, words: &[String], on_hosts: bool) -> Option<Diagnostic> {
    let place = path.key("run");
    let first = words.first().map_or("", String::as_str);
    if first.is_empty() {
        let finding = Diagnostic::error(Code::CheckProgram, "the program has no name").at_value(place, "");
        return Some(finding.help("`run = [\"python\", \"-c\", \"import cudf\"]`"));
    }
    if on_hosts && first != PYTHON {
        let message = format!("`{first}` cannot run on hosts: a check there is a program of Python");
        let finding = Diagnostic::error(Code::CheckProgram, message).at_value(place, "");
        return Some(
            finding.help("begin with `python`, which is that of the environment of the Dask cluster"),
        );
    }
    None
}

/// Returns what contradicts a pod that is as those of the workers are.
fn in_place_of_worker(path: &FieldPath, check: &Check, on_hosts: bool) -> Vec<Diagnostic> {
    if on_hosts {
        let message = "on hosts a program cannot run in the place of a worker";
        let finding =
            Diagnostic::error(Code::CheckProgram, message).at_value(path.key("as"), "not on a host");
        return vec![finding.help("remove it: as a client the program submits tasks to the workers")];
    }
    let machines = &check.machines;
    let keys = [
        ("pool", check.pool.is_some()),
        ("accelerator", machines.accelerator.is_some()),
        ("compute_class", machines.compute_class.is_some()),
        ("spot", machines.spot),
        ("namespace", check.namespace.is_some()),
    ];
    let given = keys.into_iter().filter(|(_, is_given)| *is_given);
    let finding = |key| unused(path, key, "the program runs where the workers of the Dask cluster will run");
    given.map(|(key, _)| finding(key).help("remove it")).collect()
}

/// Returns what keeps a Dask cluster from having workers in whose place the program could run.
fn without_workers(context: &Context<'_>, path: &FieldPath, check: &Check) -> Option<Diagnostic> {
    let (key, cluster) = context.stack.cluster_of_check(check)?;
    let worker = FieldPath::keys(["dask_cluster", key, "worker"]);
    let error =
        |what: String| Diagnostic::error(Code::CheckProgram, what).at_value(path.key("as"), "in its place");
    if cluster.worker.replicas.most() == 0 {
        let what =
            format!("`dask_cluster.{key}` has no worker of its default group, whose place the program takes");
        let help =
            "give `worker` the resources and the pool of the workers that compute, or make it a client";
        return Some(error(what).at_value(worker.key("replicas"), "no worker").help(help));
    }
    let pool = cluster.worker.keys.pool.as_deref()?;
    if context.pool(pool)?.serves_requests() == ServesRequests::Never {
        return None;
    }
    let what =
        format!("the program would wait forever: nodes of the pool `{pool}` are made for requests only");
    let finding = error(what).at_value(worker.key("pool"), "on this pool");
    Some(finding.help("make it a client: it runs once the workers have their nodes"))
}

/// Returns a finding on a pool with GPUs, whose nodes do not take the Pod of a client.
fn on_gpu_pool(context: &Context<'_>, path: &FieldPath, check: &Check) -> Option<Diagnostic> {
    let pool = context.pool(check.pool.as_deref()?)?;
    let has_gpus = gpus_of(pool).is_some_and(|gpus| gpus.allocatable > 0);
    let finding = || unused(path, "pool", "as a client the check computes on the GPUs of the workers");
    has_gpus.then(|| finding().help("remove it"))
}

/// Returns what keeps a Dask cluster from having workers on whose GPUs a client could compute.
fn without_gpus(context: &Context<'_>, path: &FieldPath, check: &Check) -> Option<Diagnostic> {
    let (key, cluster) = context.stack.cluster_of_check(check)?;
    let groups = cluster.group.values().map(|group| &group.keys);
    let mut all = std::iter::once(&cluster.worker.keys).chain(groups);
    if !cluster.manage.is_managed() || all.any(|keys| keys.pod.is_some()) {
        return None;
    }
    let place = path.key("as");
    let error = |what: &str| {
        let what = format!("the check computes on the workers of `dask_cluster.{key}`, {what}");
        Diagnostic::error(Code::CheckNeedsGpu, what).at_value(place.clone(), "needs a worker with a GPU")
    };
    if cluster.gpu_workers().next().is_none() {
        let help = "give `gpus` to its workers or to a group, or set `run = \"dask-sum\"`";
        return Some(error("none of which has `gpus`").help(help));
    }
    let has_none = cluster.gpu_workers().all(|workers| workers.processes() == 0);
    let help =
        "raise the number or its `min`, or remove `as`: the check then runs in a Pod with a GPU of its own";
    has_none.then(|| error("which may have no worker with a GPU").help(help))
}

fn unused(path: &FieldPath, key: &str, why: &str) -> Diagnostic {
    let place = path.key(key);
    Diagnostic::error(Code::CheckProgram, format!("`{place}` is not used: {why}")).at_value(place, "not used")
}

/// Checks that `time_limit` is a duration.
pub(crate) fn time_limits_are_durations(context: &mut Context<'_>) {
    let mut found = Vec::new();
    for (path, check) in context.checks() {
        let Some(limit) = &check.time_limit else { continue };
        let message = match seconds(limit) {
            None => format!("`{limit}` is not a duration"),
            Some(0) => "no program ends in no time".to_owned(),
            Some(seconds) if seconds > MAX_SECONDS => format!("`{limit}` is longer than 7 days"),
            Some(_) => continue,
        };
        let finding = Diagnostic::error(Code::BadDuration, message).at_value(path.key("time_limit"), "");
        found.push(finding.help("for example `time_limit = \"30m\"`"));
    }
    found.into_iter().for_each(|finding| context.say_of_value(finding));
}
