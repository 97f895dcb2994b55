//! Checks of stacks with `[local]`, `[ssh]` or `[slurm]`, and of keys that only such stacks can have.

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::Context;
use crate::rules::ssh_hosts::{host_is_plain, is_host_name};
use crate::{BuiltInCheck, CheckRun, Environment, Replicas, Stack};
use kinds::dask::cluster::{DaskCluster, Scheduler, Worker};
use kinds::dask::job::DaskJob;
use kinds::dask::replicas::WorkerCountOwner;
use kinds::dask::service::DaskService;
use kinds::env::Variable;
use kinds::hosts::cluster::{DASHBOARD_PORT, PORT, listen_address};
use kinds::hosts::environment::local_package;
use kinds::section::PodKeys;
use kinds::short_forms::host_names;
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic, listed, nearest};

/// The section that names the target.
pub(crate) fn section_of(stack: &Stack) -> &'static str {
    match (&stack.slurm, &stack.ssh) {
        (Some(_), _) => "slurm",
        (None, Some(_)) => "ssh",
        (None, None) => "local",
    }
}

/// Returns why a section has no meaning on hosts; `None` if it has one.
fn absent(section: &str) -> Option<&'static str> {
    match section {
        "cluster" | "node_pool" => Some("a host is there already: nothing of Google Cloud is made"),
        "gpu_driver" => Some("drivers are installed into nodes of a cluster"),
        "dask_operator" => Some("the Dask operator runs in Kubernetes"),
        "notebook" => Some("it runs in Pods of a cluster"),
        "namespace" | "manifest" | "helm_release" => Some("it makes Kubernetes objects"),
        _ => None,
    }
}

/// Reports sections that only work with Kubernetes.
pub(crate) fn sections_fit_the_host(context: &mut Context<'_>) {
    if !context.stack.is_on_hosts() {
        return;
    }
    for placed in context.stack.sections().into_iter().filter(|placed| !placed.is_inner) {
        let Some(why) = absent(placed.row.name) else { continue };
        let target = section_of(context.stack);
        let message = format!("`[{}]` cannot be used with `[{target}]`: {why}", placed.path);
        let finding = Diagnostic::error(Code::NotOnHost, message).at_value(placed.path, "not on a host");
        let finding = finding.at_value(FieldPath::keys([target]), "the target");
        context.say(finding.help("put it into the stack of a cluster; both can share a base with `extends`"));
    }
}

/// A key that has no meaning on a host: its path, why, and what to do.
type Unsupported = (FieldPath, &'static str, &'static str);

/// Reports keys of Dask clusters and checks that have no effect on hosts.
pub(crate) fn keys_fit_the_host(context: &mut Context<'_>) {
    if !context.stack.is_on_hosts() {
        return;
    }
    let (mut unsupported, mut idle): (Vec<Unsupported>, Vec<FieldPath>) = (Vec::new(), Vec::new());
    for (key, cluster) in &context.stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key]);
        of_cluster(&path, cluster, &mut unsupported);
        let keys = &cluster.scheduler.keys;
        let limits = [("cpu", &keys.cpu), ("memory", &keys.memory)];
        let limits = limits.iter().filter(|(_, limit)| limit.is_some() && cluster.scheduler.slurm.is_none());
        idle.extend(limits.map(|(key, _)| path.key("scheduler").key(key)));
    }
    for (key, job) in &context.stack.dask_job {
        let path = FieldPath::keys(["dask_job", key]);
        of_job(&path, job, context.stack, &mut unsupported);
        let limits = [("cpu", &job.keys.cpu), ("memory", &job.keys.memory)];
        idle.extend(limits.iter().filter(|(_, limit)| limit.is_some()).map(|(key, _)| path.key(key)));
        let scheduler =
            job.scheduler.iter().flat_map(|own| [("cpu", &own.keys.cpu), ("memory", &own.keys.memory)]);
        idle.extend(
            scheduler.filter(|(_, limit)| limit.is_some()).map(|(key, _)| path.key("scheduler").key(key)),
        );
    }
    for (path, check) in context.checks() {
        for (key, there) in [
            ("pool", check.pool.is_some()),
            ("namespace", check.namespace.is_some()),
            ("image", check.image.is_some()),
        ] {
            if there {
                unsupported.push((
                    path.key(key),
                    "the check runs in the environment of its cluster",
                    "remove it",
                ));
            }
        }
    }
    for (place, why, help) in unsupported {
        let message = format!("`{place}` cannot be used with `[{}]`: {why}", section_of(context.stack));
        context
            .say(Diagnostic::error(Code::KeyNotOnHost, message).at_value(place, "not on a host").help(help));
    }
    for place in idle {
        let message = format!("`{place}` has no effect on a host: only workers are limited there");
        context.say(
            Diagnostic::warning(Code::KeyNotOnHost, message).at_value(place, "no effect").help("remove it"),
        );
    }
}

fn of_cluster(path: &FieldPath, cluster: &DaskCluster, unsupported: &mut Vec<Unsupported>) {
    let DaskCluster { scheduler, worker, group, .. } = cluster;
    let mut say = |there: bool, place: FieldPath, why: &'static str, help: &'static str| {
        unsupported.extend(there.then_some((place, why, help)));
    };
    say(cluster.namespace.is_some(), path.key("namespace"), "a host has no namespaces", "remove it");
    say(
        cluster.service != DaskService::default(),
        path.key("service"),
        "a host has no Services",
        "`host` of the scheduler says where it listens",
    );
    say(
        !cluster.network_policy.is_open(),
        path.key("network_policy"),
        "a host has no NetworkPolicies",
        "`host` of the scheduler says where it listens",
    );
    say(
        cluster.idle_stop.is_some(),
        path.key("idle_stop"),
        "a CronJob of Kubernetes deletes the cluster, and there is none",
        "use `idle_timeout`, which ends it after a time without work",
    );
    say(
        cluster.capacity.is_some(),
        path.key("capacity"),
        "a host is there already: no nodes are requested",
        "remove it",
    );
    say(
        !cluster.manage.is_managed(),
        path.key("manage"),
        "processes that this program did not start are not known to it",
        "remove it",
    );
    of_scheduler(scheduler, &path.key("scheduler"), unsupported);
    of_workers(worker, &path.key("worker"), unsupported);
    of_number(worker.replicas, path.key("worker").key("replicas"), unsupported);
    for (key, group) in group {
        let path = path.key("group").key(key);
        of_args(&group.args, path.clone(), unsupported);
        of_pods(&group.keys, &path, unsupported);
        of_number(group.replicas, path.key("replicas"), unsupported);
        if group.capacity.is_some() {
            let why = "a host is there already: no nodes are requested";
            unsupported.push((path.key("capacity"), why, "remove it"));
        }
        if !group.manage.is_managed() {
            let why = "processes that this program did not start are not known to it";
            unsupported.push((path.key("manage"), why, "remove it"));
        }
    }
}

/// Collects the unsupported keys of a job. Its number of workers is checked with all jobs.
fn of_job(path: &FieldPath, job: &DaskJob, stack: &Stack, unsupported: &mut Vec<Unsupported>) {
    let DaskJob {
        namespace, queue, priority, capacity, max_run_duration, network_policy, manage, args, ..
    } = job;
    let there = "a host is there already: no nodes are requested";
    let rows = [
        ("namespace", namespace.is_some(), "a host has no namespaces", "remove it"),
        ("queue", queue.is_some(), "Kueue runs in Kubernetes", "remove it"),
        ("priority", priority.is_some(), "Kueue runs in Kubernetes", "remove it"),
        ("capacity", capacity.is_some(), there, "remove it"),
        ("max_run_duration", max_run_duration.is_some(), there, "remove it"),
        ("network_policy", network_policy.is_some(), "a host has no NetworkPolicies", "remove it"),
        (
            "manage",
            !manage.is_managed(),
            "processes that this program did not start are not known to it",
            "remove it",
        ),
        (
            "args",
            args.is_empty(),
            "there is no image whose entry point would run",
            "give the command: `args = [\"python\", \"train.py\"]`",
        ),
        (
            "gpus",
            stack.slurm.is_some() && job.keys.gpus() > 0,
            "the program runs on the login node, and SLURM gives GPUs to workers only",
            "give `gpus` to the workers",
        ),
    ];
    let rows = rows.into_iter().filter(|(_, there, ..)| *there);
    unsupported.extend(rows.map(|(key, _, why, help)| (path.key(key), why, help)));
    of_pods(&job.keys, path, unsupported);
    if let Some(scheduler) = &job.scheduler {
        of_scheduler(scheduler, &path.key("scheduler"), unsupported);
        if stack.slurm.is_some() && scheduler.slurm.is_some() {
            let why = "it runs beside the program, on the login node";
            unsupported.push((path.key("scheduler").key("slurm"), why, "remove it"));
        }
    }
    if let Some(worker) = &job.worker {
        of_workers(worker, &path.key("worker"), unsupported);
    }
}

fn of_scheduler(scheduler: &Scheduler, path: &FieldPath, unsupported: &mut Vec<Unsupported>) {
    of_args(&scheduler.args, path.clone(), unsupported);
    of_pods(&scheduler.keys, path, unsupported);
    if scheduler.keys.gpus() > 0 {
        let why = "GPUs of a host are given to its workers";
        unsupported.push((path.key("gpus"), why, "remove it"));
    }
    if scheduler.slurm.is_some() && scheduler.host.is_some() {
        let why = "SLURM chooses the node of its job";
        unsupported.push((path.key("host"), why, "remove it; `interface` names a network of the nodes"));
    }
}

fn of_workers(worker: &Worker, path: &FieldPath, unsupported: &mut Vec<Unsupported>) {
    of_args(&worker.args, path.clone(), unsupported);
    of_pods(&worker.keys, path, unsupported);
}

fn of_args(args: &[String], path: FieldPath, unsupported: &mut Vec<Unsupported>) {
    if !args.is_empty() {
        let why = "they are arguments of an image's entry point";
        unsupported.push((
            path.key("args"),
            why,
            "use the keys: `threads`, `memory`, `nanny`, `interface`, `resources`, `env` and others",
        ));
    }
}

fn of_number(replicas: Replicas, place: FieldPath, unsupported: &mut Vec<Unsupported>) {
    if matches!(replicas.owner(), WorkerCountOwner::Notebooks(_)) {
        let why = "notebooks cannot set the number there";
        unsupported.push((place, why, "give a number, or `{ min, max }` in `worker` of the cluster"));
    }
}

fn of_pods(keys: &PodKeys, path: &FieldPath, unsupported: &mut Vec<Unsupported>) {
    let PodKeys {
        gpus: _,
        cpu: _,
        memory: _,
        pool,
        prefer_pool,
        machines,
        env,
        labels,
        annotations,
        pod,
        confined,
    } = keys;
    let rows = [
        ("pool", pool.is_some(), "a host has no node pools", "remove it"),
        ("prefer_pool", prefer_pool.is_some(), "a host has no node pools", "remove it"),
        ("labels", !labels.is_empty(), "a host has no Pods", "remove it"),
        ("annotations", !annotations.is_empty(), "a host has no Pods", "remove it"),
        ("pod", pod.is_some(), "a host has no Pods", "remove it"),
        ("confined", confined.is_some(), "a host has no Pods", "remove it"),
    ];
    let machines =
        machines.selected_labels().map(|(key, _)| (key, true, "it chooses nodes of GKE", "remove it"));
    let rows = rows.into_iter().chain(machines).filter(|(_, there, ..)| *there);
    unsupported.extend(rows.map(|(key, _, why, help)| (path.key(key), why, help)));
    let is_of_cluster = |value: &Variable| matches!(value, Variable::Secret(key) if key.variable().is_none());
    for (name, _) in env.iter().filter(|(_, value)| is_of_cluster(value)) {
        let why = "a host has no Secrets of Kubernetes";
        let help = "`{ secret = \"env:NAME\" }` takes the value of the environment variable NAME when the stack is applied";
        unsupported.push((path.key("env").key(name), why, help));
    }
}

/// Reports keys for processes on hosts, which have no meaning in a cluster.
pub(crate) fn hosts_keys_are_for_hosts(context: &mut Context<'_>) {
    if context.stack.is_on_hosts() {
        return;
    }
    let broken =
        ["local", "ssh", "slurm"].iter().any(|target| context.is_doubtful(&FieldPath::keys([*target])));
    let mut places: Vec<FieldPath> = Vec::new();
    places.extend(context.stack.environment.keys().map(|key| FieldPath::keys(["environment", key])));
    let of_scheduler = |path: &FieldPath, scheduler: &Scheduler| {
        let Scheduler { host, interface, port, dashboard_port, .. } = scheduler;
        let rows = [
            ("host", host.is_some()),
            ("interface", interface.is_some()),
            ("port", port.is_some()),
            ("dashboard_port", dashboard_port.is_some()),
        ];
        let path = path.key("scheduler");
        rows.into_iter().filter(|(_, there)| *there).map(move |(key, _)| path.key(key))
    };
    for (key, job) in &context.stack.dask_job {
        let path = FieldPath::keys(["dask_job", key]);
        places.extend(job.environment.as_ref().map(|_| path.key("environment")));
        places.extend(job.scheduler.iter().flat_map(|scheduler| of_scheduler(&path, scheduler)));
    }
    for (key, cluster) in &context.stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key]);
        places.extend(cluster.environment.as_ref().map(|_| path.key("environment")));
        places.extend(of_scheduler(&path, &cluster.scheduler));
        let groups = cluster.group.iter().filter(|(_, group)| group.environment.is_some());
        places.extend(groups.map(|(key, _)| path.key("group").key(key).key("environment")));
    }
    for place in places.into_iter().filter(|_| !broken) {
        let section = place.segments().len() == 2;
        let name = if section { format!("[{place}]") } else { place.to_string() };
        let message = format!("`{name}` can only be used with `[local]`, `[ssh]` or `[slurm]`");
        let leads = ["port", "host", "interface"].iter().any(|key| place.to_string().ends_with(key));
        let help = match leads {
            true => "a Service leads to the scheduler: remove it, or put it into the stack of a host",
            false => {
                "on Kubernetes the image is the environment: remove it, or put it into the stack of a host"
            }
        };
        context.say(Diagnostic::error(Code::OnlyOnHost, message).at_value(place, "for hosts").help(help));
    }
}

/// Checks that every process has an environment, and every environment has a source.
pub(crate) fn environments_are_there(context: &mut Context<'_>) {
    let stack = context.stack;
    for (key, environment) in &stack.environment {
        let path = FieldPath::keys(["environment", key]);
        let Environment { packages, requirements, pyproject, conda, container, path: found, .. } =
            environment;
        let rows = [
            ("packages", !packages.is_empty(), "to be installed"),
            ("requirements", requirements.is_some(), "to be installed"),
            ("pyproject", pyproject.is_some(), "to be installed"),
            ("conda", conda.is_some(), "to be installed"),
            ("container", container.is_some(), "an image"),
            ("path", found.is_some(), "is there"),
        ];
        let given: Vec<_> = rows.into_iter().filter(|(_, given, _)| *given).collect();
        let finding = match given.as_slice() {
            [_] => continue,
            [] => {
                let message = format!("`{path}` has neither `packages` nor `path`");
                Diagnostic::error(Code::EnvironmentSource, message).at_value(path, "made of nothing")
            }
            [(one, ..), (other, ..), ..] => {
                let message = format!("`{path}` has both `{one}` and `{other}`");
                let finding = Diagnostic::error(Code::EnvironmentSource, message);
                given.iter().fold(finding, |finding, (key, _, said)| finding.at_value(path.key(key), *said))
            }
        };
        context.say(finding.help(
            "`packages`, `requirements`, `pyproject` or `conda` makes an environment, `container` names an image, `path` a Python that \
             is there",
        ));
    }
    for (key, environment) in &stack.environment {
        let path = FieldPath::keys(["environment", key]);
        of_environment(context, &path, environment);
        if environment.project && environment.pyproject.is_none() {
            let message = format!(
                "`project` of `{path}` installs the project of a `pyproject.toml`, and none is named"
            );
            let finding =
                Diagnostic::error(Code::EnvironmentSource, message).at_value(path.key("project"), "of what?");
            context.say(finding.help("add `pyproject = \"pyproject.toml\"`, or remove it"));
        }
    }
    if !stack.is_on_hosts() {
        return;
    }
    for (key, cluster) in &stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key]);
        environment_of(context, &path, cluster.environment.as_deref());
        let own = cluster.group.iter().filter(|(_, group)| group.environment.is_some());
        for (group_key, group) in own {
            environment_of(context, &path.key("group").key(group_key), group.environment.as_deref());
        }
    }
    for (key, job) in &stack.dask_job {
        let like = job.like.as_ref().and_then(|like| stack.dask_cluster.get(like));
        // A copied environment is checked in its own section.
        if job.environment.is_some() || like.is_none() {
            environment_of(context, &FieldPath::keys(["dask_job", key]), job.environment.as_deref());
        }
    }
}

/// Options in a requirements file that mean the same on every host. uv and pip support all of them.
const OPTIONS: [&str; 5] = ["--hash", "--index-url", "--extra-index-url", "--only-binary", "--no-binary"];

/// Checks that an environment does not depend on the machine that the command runs on, and contains no credentials.
fn of_environment(context: &mut Context<'_>, path: &FieldPath, environment: &Environment) {
    let Environment { packages, python, path: found, texts, .. } = environment;
    for line in texts.get("requirements.txt").into_iter().flat_map(|text| text.lines()).map(str::trim) {
        let word = line.split([' ', '=']).next().unwrap_or_default();
        let is_local = local_package(line).is_some();
        let is_elsewhere = line.starts_with(['-', '.', '/', '~']) && !OPTIONS.contains(&word) && !is_local;
        if is_elsewhere || line.starts_with("file:") {
            let message = format!("`requirements` of `{path}` has a line that is not a package: `{word} …`");
            let finding = Diagnostic::error(Code::EnvironmentSource, message);
            let finding = finding.at_value(path.key("requirements"), "in this file");
            context.say_of_value(finding.help(
                "only the file itself and the local packages that it names (`./lib`) are brought to the host: lock everything else into it \
                 (`uv pip compile`)",
            ));
        }
    }
    for (name, text) in texts.iter().filter(|(_, text)| has_credentials(text)) {
        let key = if name == "requirements.txt" {
            "requirements"
        } else if name == "environment.yml" {
            "conda"
        } else {
            "pyproject"
        };
        let line = text.lines().position(has_credentials).unwrap_or_default() + 1;
        let message = format!("a URL in line {line} of `{name}` of `{path}` has a password or a token");
        let finding = Diagnostic::error(Code::LiteralSecret, message).at_value(path.key(key), "in this file");
        context.say_of_value(finding.help("give the user and the password in `~/.netrc` of the host"));
    }
    let is_relative = |file: &str| !file.starts_with('/') && !file.starts_with("~/");
    let files =
        [("python", python.as_deref().filter(|python| python.contains('/'))), ("path", found.as_deref())];
    for (key, file) in files {
        let Some(file) = file.filter(|file| is_relative(file)) else { continue };
        let message = format!("`{file}` is not an absolute path");
        let finding = Diagnostic::error(Code::EnvironmentSource, message);
        let finding = finding.at_value(path.key(key), "relative to what?");
        context.say_of_value(finding.help("begin it with `/` or with `~/`"));
    }
    let unsound = |(_, package): &(usize, &String)| !is_package(package) && !has_credentials(package);
    for (index, package) in packages.iter().enumerate().filter(unsound) {
        let message = format!("`packages` of `{path}` has an entry that is not a package: `\"{package}\"`");
        let finding = Diagnostic::error(Code::EnvironmentSource, message);
        context.say_of_value(finding.at_value(path.key("packages").index(index), "").help(
            "each entry is one package as `pip install` takes it; options go into `uv.toml` or `pip.conf` of the host, files of packages \
             into `requirements`",
        ));
    }
    for package in packages.iter().filter(|package| has_credentials(package)) {
        // The package is not said: the message would hold what should not be seen.
        let message = format!("a URL in `packages` of `{path}` has a password or a token");
        let name = package.split(['@', ':', ' ']).next().unwrap_or_default();
        let finding = Diagnostic::error(Code::LiteralSecret, message);
        context.say_of_value(finding.at_value(path.key("packages"), format!("in `{name} …`")).help(
            "packages appear in plans, in the record and in logs: give the user and the password in `~/.netrc`, or the index \
             in `uv.toml` or `pip.conf` of the host",
        ));
    }
}

/// Returns true if a text may be a package for `pip install`: a name with extras, versions, a URL or a marker behind it,
/// or a URL, or an absolute path. Source: PEP 508.
pub(crate) fn is_package(text: &str) -> bool {
    let text = text.trim();
    let name_ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    let rest = text.trim_start_matches(|c| !name_ends(c)).trim_start();
    let is_elsewhere = text.starts_with(['/', '~']) || rest.starts_with("://") || rest.starts_with('+');
    let is_named = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && (rest.is_empty() || rest.starts_with(['[', '<', '>', '=', '!', '~', '@', ';', '(']));
    is_elsewhere || is_named
}

/// Returns true if a URL in a text contains a password or a token. A user name for SSH does not count.
pub(crate) fn has_credentials(text: &str) -> bool {
    text.match_indices("://").any(|(at, _)| {
        let scheme: &str = text[..at].rsplit([' ', '+', '@', '=']).next().unwrap_or_default();
        let authority = text[at + 3..].split(['/', ' ', '?', '#']).next().unwrap_or_default();
        let url = text[at..].split([' ', '#', '\n']).next().unwrap_or_default();
        let query = url.split_once('?').map(|(_, query)| query).unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        user.is_some_and(|user| user.contains(':') || scheme != "ssh") || query.split('&').any(is_secret_pair)
    })
}

/// Returns true for a secret in the query of a URL: `token=…`.
fn is_secret_pair(pair: &str) -> bool {
    let Some((name, value)) = pair.split_once('=') else { return false };
    let name = name.to_ascii_lowercase();
    let words = ["token", "secret", "passw", "signature", "credential", "apikey", "api_key", "api-key"];
    !value.is_empty()
        && (["key", "sig", "auth"].contains(&name.as_str()) || words.iter().any(|word| name.contains(word)))
}

/// Checks that a group does not have the name of a cluster: processes are named after their group, or after the cluster.
pub(crate) fn groups_and_clusters_differ(context: &mut Context<'_>) {
    let stack = context.stack;
    if !stack.is_on_hosts() {
        return;
    }
    let mut findings = Vec::new();
    for (key, cluster) in &stack.dask_cluster {
        let cluster_name = cluster.live_name(key);
        for (group_key, group) in &cluster.group {
            let name = group.live_name(cluster_name, group_key);
            let clusters = stack.dask_cluster.iter();
            let clusters =
                clusters.map(|(key, other)| (Address::of("dask_cluster", key), other.live_name(key)));
            let jobs = stack.dask_job.iter();
            let jobs = jobs.map(|(key, job)| (Address::of("dask_job", key), job.live_name(key)));
            let other = clusters.chain(jobs).find(|(_, other)| {
                // That of its own cluster is refused everywhere.
                name == *other || (*other != cluster_name && name.strip_suffix("-default") == Some(*other))
            });
            let Some((other, _)) = other else { continue };
            let place = FieldPath::keys(["dask_cluster", key]).key("group").key(group_key);
            let message = format!("processes of `{place}` would have the names of those of `{other}`");
            let finding = Diagnostic::error(Code::SameName, message);
            let finding = finding.at_value(place, "");
            findings.push(finding.help("give one of them another `name`"));
        }
    }
    for finding in findings {
        context.say(finding);
    }
}

fn environment_of(context: &mut Context<'_>, path: &FieldPath, named: Option<&str>) {
    let keys = context.keys("environment", context.stack.environment.keys());
    let names = || keys.iter().copied();
    let (message, place) = match named {
        Some(name) if keys.contains(&name) => return,
        Some(name) => (format!("there is no environment `{name}`"), path.key("environment")),
        None if keys.len() == 1 => return,
        None if keys.is_empty() => (format!("`{path}` has no environment to run in"), path.clone()),
        None => (format!("`{path}` could run in several environments"), path.clone()),
    };
    let help = match named.and_then(|name| nearest(name, names())) {
        Some(near) => format!("did you mean `{near}`?"),
        None if keys.is_empty() => {
            "add `[environment.main]` with `packages = [\"dask[distributed]\"]`, or with the `path` of a Python"
                .to_owned()
        }
        None => format!("give `environment`: this file has {}", listed(names(), "and")),
    };
    context.say(Diagnostic::error(Code::NoEnvironment, message).at_value(place, "").help(help));
}

/// Checks that no two processes of the stack listen on the same port of a host.
pub(crate) fn ports_differ(context: &mut Context<'_>) {
    if !context.stack.is_on_hosts() {
        return;
    }
    let hosts = context.stack.hosts();
    let mut taken: BTreeMap<(&str, u16), (FieldPath, FieldPath)> = BTreeMap::new();
    // Schedulers of SLURM jobs run on other nodes.
    let clusters = context.stack.dask_cluster.iter().filter(|(_, cluster)| cluster.scheduler.slurm.is_none());
    let clusters = clusters.map(|(key, cluster)| {
        (FieldPath::keys(["dask_cluster", key]), &cluster.scheduler, [Some(PORT), Some(DASHBOARD_PORT)])
    });
    // Without ports that of a job takes free ones.
    let jobs = context.stack.dask_job.iter();
    let jobs = jobs.filter_map(|(key, job)| {
        Some((FieldPath::keys(["dask_job", key]), job.scheduler.as_ref()?, [None, None]))
    });
    let all: Vec<_> = clusters.chain(jobs).collect();
    for (section, scheduler, usual) in all {
        let Scheduler { port, dashboard_port, .. } = scheduler;
        let rows = [("port", *port, usual[0]), ("dashboard_port", *dashboard_port, usual[1])];
        for (name, given, usual) in rows {
            let Some(number) = given.or(usual) else { continue };
            let place = if given.is_some() { section.key("scheduler").key(name) } else { section.clone() };
            let own = (section.clone(), place.clone());
            let Some((whose, other)) = taken.insert((listen_address(scheduler, &hosts), number), own) else {
                continue;
            };
            let whose = match whose == section {
                true => "one scheduler would listen twice",
                false => "two schedulers would listen",
            };
            let message = format!("{whose} on port {number}");
            let finding = Diagnostic::error(Code::PortTwice, message).at_value(place, "here");
            let finding = if finding.fields().any(|field| *field == other) {
                finding
            } else {
                finding.at_value(other, "and here")
            };
            context.say(finding.help(format!(
                "give each scheduler a `port` (default {PORT}) and a `dashboard_port` (default {DASHBOARD_PORT}) of \
                 its own"
            )));
        }
    }
}

/// Checks that a check of a Dask cluster names an existing cluster.
pub(crate) fn checks_have_a_cluster(context: &mut Context<'_>) {
    let stack: &Stack = context.stack;
    let on_hosts = stack.is_on_hosts();
    for (path, check) in context.checks() {
        let finding = match (check.uses_cluster(on_hosts), &check.cluster) {
            (false, None) => continue,
            (false, Some(_)) => {
                let message = format!("`{path}` runs on a GPU of its own, not on those of a Dask cluster");
                Diagnostic::error(Code::CheckCluster, message)
                    .at_value(path.key("cluster"), "not used")
                    .help("remove it, or set `as = \"client\"`")
            }
            (true, Some(name)) => {
                let place = path.key("cluster");
                let keys = context.keys("dask_cluster", stack.dask_cluster.keys());
                if keys.contains(&name.as_str()) {
                    continue;
                }
                let help = match nearest(name, keys.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if keys.is_empty() => "add `[dask_cluster.NAME]`".to_owned(),
                    None => format!("this file has {}", listed(keys.iter().copied(), "and")),
                };
                let message = format!("there is no Dask cluster `{name}`");
                Diagnostic::error(Code::CheckCluster, message).at_value(place, "").help(help)
            }
            (true, None) => {
                let keys = context.keys("dask_cluster", stack.dask_cluster.keys());
                if keys.len() == 1 {
                    continue;
                }
                let (what, help) = match keys.is_empty() {
                    true => ("has no Dask cluster to ask", "add `[dask_cluster.NAME]`".to_owned()),
                    false => {
                        let names = listed(keys.iter().copied(), "and");
                        let help = format!("name one with `cluster`: this file has {names}");
                        ("could ask several Dask clusters", help)
                    }
                };
                let message = format!("`{path}` {what}");
                Diagnostic::error(Code::CheckCluster, message).at_value(path, "").help(help)
            }
        };
        context.say(finding);
    }
}

/// Checks that `min` of a check is a number of bytes per second, and that the check measures bandwidth.
pub(crate) fn least_bandwidths_are_numbers(context: &mut Context<'_>) {
    for (path, check) in context.checks() {
        let Some(min) = &check.min else { continue };
        let finding = if check.run != CheckRun::BuiltIn(BuiltInCheck::Bandwidth) {
            let message = format!("`{path}` measures nothing that `min` could be held against");
            Diagnostic::error(Code::CheckCluster, message)
                .at_value(path.key("min"), "not used")
                .help("remove it, or set `run = \"bandwidth\"`")
        } else if check.least().is_none_or(|least| least == 0) {
            let message = format!("`{min}` is not a number of bytes a second");
            Diagnostic::error(Code::CheckCluster, message)
                .at_value(path.key("min"), "")
                .help("for example `min = \"500M\"` or `min = \"1Gi\"`")
        } else {
            continue;
        };
        context.say(finding);
    }
}

/// Reports checks without a known image: those of external clusters whose section gives none.
pub(crate) fn images_of_checks_are_known(context: &mut Context<'_>) {
    let stack: &Stack = context.stack;
    let on_hosts = stack.is_on_hosts();
    for (path, check) in context.checks().filter(|(_, check)| check.uses_cluster(on_hosts)) {
        let Some((key, cluster)) = stack.cluster_of_check(check) else { continue };
        if !cluster.manage.is_managed() && check.image.is_none() && cluster.image.is_empty() {
            let address = Address::of("dask_cluster", key);
            let message = format!("{address} is managed elsewhere, and the file does not give its image");
            let finding = Diagnostic::error(Code::CheckCluster, message).at_value(path, "runs in its image");
            context.say(finding.help("give the check an `image` with the versions of the cluster"));
        }
    }
}

/// Checks that hosts have unique names, and that keys name existing hosts.
pub(crate) fn hosts_are_there(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut names: Vec<String> = Vec::new();
    for (index, host) in stack.ssh.iter().flat_map(|ssh| &ssh.hosts).enumerate() {
        let place = FieldPath::keys(["ssh", "hosts"]).index(index);
        host_is_plain(context, &place, host);
        let several = host.all();
        if several.len() > 1 && host.address.is_some() {
            let message = format!("`{}` is several hosts, which cannot have one address", host.name);
            let finding = Diagnostic::error(Code::BadName, message).at_value(place.clone(), "");
            context.say(finding.help("give each its own table, or leave `address` out"));
        }
        for host in several {
            if !is_host_name(&host.name) {
                let message = format!("`{}` cannot be the name of a host", host.name);
                let finding = Diagnostic::error(Code::BadName, message).at_value(place.clone(), "");
                context.say(finding.help("letters, digits, `.`, `-` and `_`, beginning with a letter or a digit; `gpu[1-4]` is `gpu1` to `gpu4`"));
            } else if names.contains(&host.name) {
                context.say(again(&host.name, place.clone()));
            }
            names.push(host.name);
        }
    }
    if stack.ssh.as_ref().is_some_and(|ssh| ssh.hosts.is_empty()) {
        let finding = Diagnostic::error(Code::NoHost, "`[ssh]` has no hosts");
        context.say(finding.at_value(FieldPath::keys(["ssh", "hosts"]), "").help("list one at least"));
    }
    for (index, text) in stack.ssh.iter().flat_map(|ssh| &ssh.gone).enumerate() {
        let place = FieldPath::keys(["ssh", "gone"]).index(index);
        for name in host_names(text).into_iter().filter(|name| names.contains(name)) {
            let message = format!("the host `{name}` is in `hosts` and in `gone`");
            let finding = Diagnostic::error(Code::Twice, message).at_value(place.clone(), "no longer exists");
            context.say(finding.help("remove it from one of the two"));
        }
    }
    for (place, list) in lists(stack) {
        if list.is_empty() && context.sources.written(&place).is_some() {
            let message = format!("`{place}` names no host");
            let finding = Diagnostic::error(Code::NoHost, message).at_value(place, "");
            context.say(finding.help("leave it out for all hosts, or name one at least"));
        }
    }
    let mut seen = BTreeSet::new();
    for (place, text) in placed(stack) {
        let all = host_names(text);
        // Of a pattern the first is named.
        let twice: Vec<&String> =
            all.iter().filter(|name| !seen.insert((place.parent(), (*name).clone()))).collect();
        if let Some(name) = twice.first() {
            context.say(again(name, place.clone()));
        }
        if stack.ssh.is_none() {
            let message = format!("`{place}` can only be used with `[ssh]`");
            let finding = Diagnostic::error(Code::OnlyOnHost, message).at_value(place, "names a host");
            context.say(finding.help("remove it, or put it into the stack of `[ssh]`"));
            continue;
        }
        let missing: Vec<&String> = all.iter().filter(|name| !names.contains(name)).collect();
        let Some(name) = missing.first() else { continue };
        let message = match missing.len() {
            1 => format!("there is no host `{name}`"),
            more => format!("there is no host `{name}`, nor {} more of `{text}`", more - 1),
        };
        let help = match nearest(name, names.iter().map(String::as_str)) {
            Some(near) if all.len() == 1 => format!("did you mean `{near}`?"),
            _ => format!("`hosts` of `[ssh]` has {}", listed(names.iter().map(String::as_str), "and")),
        };
        context.say(Diagnostic::error(Code::NoHost, message).at_value(place, "").help(help));
    }
}

/// Returns the error for a host that is listed twice.
fn again(name: &str, place: FieldPath) -> Diagnostic {
    let message = format!("the host `{name}` is listed twice");
    Diagnostic::error(Code::Twice, message).at_value(place, "again here").help("remove one")
}

/// Returns the keys that name a host, with the host.
fn placed(stack: &Stack) -> Vec<(FieldPath, &String)> {
    let home = stack.ssh.as_ref().and_then(|ssh| ssh.home.as_ref());
    let home = home.map(|home| (FieldPath::keys(["ssh", "home"]), home));
    let jobs = stack.dask_job.iter();
    let jobs =
        jobs.filter_map(|(key, job)| Some((FieldPath::keys(["dask_job", key]), job.scheduler.as_ref()?)));
    let clusters = stack.dask_cluster.iter();
    let clusters =
        clusters.map(|(key, cluster)| (FieldPath::keys(["dask_cluster", key]), &cluster.scheduler));
    let schedulers = jobs.chain(clusters);
    let on = schedulers.filter_map(|(path, own)| Some((path.key("scheduler").key("on"), own.on.as_ref()?)));
    let lists = lists(stack).into_iter();
    let listed = lists.flat_map(|(place, list)| {
        list.iter().enumerate().map(move |(index, name)| (place.index(index), name))
    });
    home.into_iter().chain(on).chain(listed).collect()
}

/// Returns the lists of hosts that workers are spread over.
fn lists(stack: &Stack) -> Vec<(FieldPath, &Vec<String>)> {
    let mut lists = Vec::new();
    for (key, job) in &stack.dask_job {
        let place = FieldPath::keys(["dask_job", key, "worker", "hosts"]);
        lists.extend(job.worker.iter().map(|worker| (place.clone(), &worker.hosts)));
    }
    for (key, cluster) in &stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key]);
        lists.push((path.key("worker").key("hosts"), &cluster.worker.hosts));
        let groups = cluster.group.iter();
        lists.extend(groups.map(|(key, group)| (path.key("group").key(key).key("hosts"), &group.hosts)));
    }
    lists
}
