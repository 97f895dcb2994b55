//! Checks of Dask's configuration: the form of its keys, and values that other keys set, too.

use crate::rules::Context;
use kinds::dask::process::ProcessKeys;
use kinds::dask_config::{ConfigProblem, DaskConfig};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// The configuration of a section, and the workers that it reaches.
struct Config<'a> {
    path: FieldPath,
    config: &'a DaskConfig,
    workers: Vec<(FieldPath, &'a ProcessKeys)>,
}

/// Checks that keys are those of Dask, and that a value is set once.
pub(crate) fn configs_are_sound(context: &mut Context<'_>) {
    for config in configs(context) {
        for problem in config.config.problems() {
            context.say_of_value(finding(&config.path, problem));
        }
        for finding in set_by_nannies(&config) {
            context.say_once(finding);
        }
    }
}

fn configs<'a>(context: &Context<'a>) -> Vec<Config<'a>> {
    let stack = context.stack;
    let clusters = stack.dask_cluster.iter().map(|(key, cluster)| {
        let section = FieldPath::keys(["dask_cluster", key]);
        let mut workers = vec![(section.key("worker"), &cluster.worker.process)];
        let groups = cluster.group.iter();
        workers.extend(groups.map(|(key, group)| (section.key("group").key(key), &group.process)));
        Config { path: section.key("config"), config: &cluster.config, workers }
    });
    let jobs = stack.dask_job.iter().map(|(key, job)| {
        let section = FieldPath::keys(["dask_job", key]);
        let like = job.like.as_ref().and_then(|like| Some((like, stack.dask_cluster.get(like)?)));
        let (config, path) = job.config(like.map(|(_, like)| like), &section);
        let own = job.worker.as_ref().map(|worker| (section.key("worker"), &worker.process));
        let copied = || {
            like.map(|(key, like)| (FieldPath::keys(["dask_cluster", key, "worker"]), &like.worker.process))
        };
        Config { path, config, workers: own.or_else(copied).into_iter().collect() }
    });
    clusters.chain(jobs).filter(|config| !config.config.is_empty()).collect()
}

fn finding(table: &FieldPath, problem: ConfigProblem) -> Diagnostic {
    let at =
        |path: &FieldPath| -> FieldPath { table.segments().iter().chain(path.segments()).cloned().collect() };
    match problem {
        ConfigProblem::Form { path, key } => {
            let what = format!("`{key}` cannot be a key of Dask's configuration");
            let finding = Diagnostic::error(Code::DaskConfig, what).at_key(at(&path), "");
            finding.help(
                "write lowercase words with `-` between them, and `.` between tables: \
                 `\"distributed.adaptive.target-duration\"`; other names belong in a table that is the value",
            )
        }
        ConfigProblem::Reserved { path, key } => {
            let what = format!("the variable of `{key}` has another meaning for Dask or dask-infra");
            let finding = Diagnostic::error(Code::DaskConfig, what).at_key(at(&path), "");
            finding.help("remove it: dask-infra and the Dask operator set what processes need")
        }
        ConfigProblem::Empty { path } => {
            let finding = Diagnostic::error(Code::DaskConfig, "an empty table sets nothing");
            finding.at_value(at(&path), "").help("remove it, or set a key in it")
        }
        ConfigProblem::Twice { first, second } => {
            let finding = Diagnostic::error(Code::DaskConfig, "two keys set the same value");
            let finding = finding.at_value(at(&first), "here").at_value(at(&second), "and here");
            finding.help("remove one of them: Dask reads `-` and `_` as the same")
        }
    }
}

/// Returns the findings about values that `nanny` of some workers sets, too.
fn set_by_nannies(config: &Config<'_>) -> Vec<Diagnostic> {
    let settings = config.config.settings();
    let mut found = Vec::new();
    for (worker, process) in &config.workers {
        let variables = process.variables();
        for setting in settings.iter().filter(|one| variables.iter().any(|(name, _)| *name == one.variable)) {
            let place = config.path.segments().iter().chain(setting.path.segments()).cloned().collect();
            let nanny = worker.key("nanny");
            let what = format!("`{nanny}` sets what `config` sets");
            let finding = Diagnostic::error(Code::DaskConfig, what);
            let finding = finding.at_value(place, "here").at_value(nanny, "and here");
            found.push(finding.help("remove one of them"));
        }
    }
    found
}
