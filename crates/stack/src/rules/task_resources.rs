//! Checks of Dask's resources that the tasks of a check's program take.

use crate::rules::Context;
use crate::rules::worker_section::Finding;
use crate::{Check, CheckRun};
use kinds::dask::cluster::DaskCluster;
use kinds::dask::replicas::{Replicas, WorkerCountOwner};
use kinds::worker_resources::{self, WorkerResources};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// The variable that sets the programs of a client, and with a suffix their arguments.
const PRELOAD: &str = "DASK_DISTRIBUTED__CLIENT__PRELOAD";
/// The variable that declares resources where no option does, and with a suffix one of them.
const DECLARED: &str = "DASK_DISTRIBUTED__WORKER__RESOURCES";

/// Checks that the tasks of a program can take the resources: the check is a client, and a worker has all of them. Dask keeps a
/// task that no worker can run, without an error, until one can.
pub(crate) fn tasks_find_their_resources(context: &mut Context<'_>) {
    let mut found = Vec::new();
    for (path, check) in context.checks().filter(|(_, check)| !check.resources.is_empty()) {
        let place = path.key("resources");
        if let Some((why, help)) = without_tasks(check) {
            let message = format!("`{place}` is not used: {why}");
            found.push(Finding { message, places: vec![(place, "not used")], help: help.to_owned() });
            continue;
        }
        let wrong: Vec<Finding> = Finding::of_resources(&check.resources, &place).collect();
        let is_sound = wrong.is_empty();
        found.extend(wrong);
        if let Some((key, cluster)) = context.stack.cluster_of_check(check) {
            let cluster_path = FieldPath::keys(["dask_cluster", key]);
            found.extend(preloads_twice(&place, cluster, &cluster_path));
            found.extend(unmet(&place, &check.resources, cluster, &cluster_path).filter(|_| is_sound));
        }
    }
    for Finding { message, places, help } in found {
        let finding = Diagnostic::error(Code::CheckProgram, message).help(help);
        let is_of_value = places.len() == 1;
        let finding =
            places.into_iter().fold(finding, |finding, (place, said)| finding.at_value(place, said));
        if is_of_value { context.say_of_value(finding) } else { context.say(finding) }
    }
}

/// Returns the reason why a check has no tasks of its own, and what to do.
fn without_tasks(check: &Check) -> Option<(&'static str, &'static str)> {
    match check.run {
        CheckRun::BuiltIn(_) => Some((
            "only the tasks of your own program take resources",
            "remove it, or set `run` to the words of a program",
        )),
        CheckRun::Program(_) if check.is_like_worker() => Some((
            "a program in the place of a worker has no tasks, and runs before there is a scheduler",
            "remove it, or remove `as`: the program is then a client",
        )),
        CheckRun::Program(_) => None,
    }
}

/// Returns the value of `config` that the program's own one would replace.
fn preloads_twice(place: &FieldPath, cluster: &DaskCluster, path: &FieldPath) -> Option<Finding> {
    let setting = cluster.config.settings().into_iter().find(|one| one.variable.starts_with(PRELOAD))?;
    let config = path.key("config");
    let config: FieldPath = config.segments().iter().chain(setting.path.segments()).cloned().collect();
    Some(Finding {
        message: format!("`{place}` sets `distributed.client.preload`, which conflicts with `{config}`"),
        places: vec![(place.clone(), ""), (config, "conflicts")],
        help: "remove one of them, or call `dask.annotate` in the program".to_owned(),
    })
}

/// Returns true if workers may have resources that their sections do not say.
fn may_have_others(cluster: &DaskCluster) -> bool {
    let worker = (&cluster.worker.keys, &cluster.worker.args);
    let mut all = cluster.group.values().map(|group| (&group.keys, &group.args)).chain([worker]);
    // A script may start a worker with any option.
    let declares = |args: &[String]| {
        args.first().is_some_and(|program| program != "dask")
            || args.iter().any(|arg| arg.starts_with(worker_resources::OPTION))
    };
    !cluster.manage.is_managed()
        || cluster.group.values().any(|group| !group.manage.is_managed())
        || cluster.config.settings().iter().any(|setting| setting.variable.starts_with(DECLARED))
        || all.any(|(keys, args)| {
            keys.pod.is_some() || keys.env.keys().any(|name| name.starts_with(DECLARED)) || declares(args)
        })
}

/// Returns true if workers may run: people set the number from notebooks.
fn may_run(replicas: Replicas) -> bool {
    replicas.most() > 0 || matches!(replicas.owner(), WorkerCountOwner::Notebooks(_))
}

/// Returns the finding on resources that no worker of the Dask cluster has.
fn unmet(
    place: &FieldPath,
    asked: &WorkerResources,
    cluster: &DaskCluster,
    path: &FieldPath,
) -> Option<Finding> {
    let groups = cluster.group.values().map(|group| (&group.resources, group.replicas));
    let all: Vec<_> = groups.chain([(&cluster.worker.resources, cluster.worker.replicas)]).collect();
    let covers: Vec<_> = all.iter().filter(|(resources, _)| resources.cover(asked)).collect();
    if may_have_others(cluster) || covers.iter().any(|(_, replicas)| may_run(*replicas)) {
        return None;
    }
    let finding = |place: FieldPath, what: String, help: String| {
        let message = format!("the program would wait forever: {what}");
        Some(Finding { message, places: vec![(place, "")], help })
    };
    if !covers.is_empty() {
        let what = format!("`{path}` has 0 workers with these resources");
        let help = "raise `replicas` of the section that declares them";
        return finding(place.clone(), what, help.to_owned());
    }
    for (name, amount) in asked.iter() {
        let most = all.iter().map(|(resources, _)| resources.amount(name)).fold(0.0, f64::max);
        if most == 0.0 {
            let what = format!("no worker or group of `{path}` declares `{name}` in its `resources`");
            let help =
                format!("set `resources = {{ {name} = {amount} }}` on workers; names are case-sensitive");
            return finding(place.key(name), what, help);
        }
        if most < amount {
            let what = format!("each task takes {amount} of `{name}`, and a worker of `{path}` has {most}");
            return finding(place.key(name), what, "lower the amount, or raise it on the workers".to_owned());
        }
    }
    let what = format!("no worker or group of `{path}` declares all of these resources");
    finding(place.clone(), what, "declare them in one section: a task runs on one worker".to_owned())
}
