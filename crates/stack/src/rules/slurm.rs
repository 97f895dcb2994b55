//! Checks of SLURM options.

use crate::rules::Context;
use crate::rules::ssh_hosts::{host_is_plain, is_host_name};
use kinds::slurm::{SlurmKeys, minutes};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Options of sbatch that other keys or dask-infra itself set, and what to use instead.
const OWN: &[(&[&str], &str)] = &[
    (&["-p", "--partition"], "use `partition`"),
    (&["-A", "--account"], "use `account`"),
    (&["-q", "--qos"], "use `qos`"),
    (&["--reservation"], "use `reservation`"),
    (&["-C", "--constraint"], "use `constraint`"),
    (&["-t", "--time"], "use `time_limit`"),
    (&["-c", "--cpus-per-task"], "use `cpu` of the workers"),
    (&["--mem"], "use `memory` of the workers"),
    (
        &["-G", "--gpus", "--gpus-per-node", "--gpus-per-task"],
        "use `gpus` of the workers, which are then started with `dask cuda worker`",
    ),
    (
        &["-n", "--ntasks", "-N", "--nodes", "-a", "--array"],
        "a worker is one task on one node: use `replicas`",
    ),
    (&["-J", "--job-name", "--comment"], "jobs are found by it: remove it"),
    (
        &["-o", "--output", "-e", "--error", "--open-mode", "-D", "--chdir"],
        "`logs` reads the log where it is: remove it",
    ),
    (&["--requeue", "--no-requeue"], "a worker that ended is submitted again by `apply`: remove it"),
    (&["--export", "--export-file"], "use `env` of the workers"),
    (&["--signal"], "workers leave before the `time_limit` by themselves: remove it"),
    (
        &[
            "--wrap",
            "-W",
            "--wait",
            "--test-only",
            "--parsable",
            "-i",
            "--input",
            "-d",
            "--dependency",
            "--hold",
            "-H",
        ],
        "it is not about one worker: remove it",
    ),
];

/// Checks that SLURM options can be written into a script without changing its meaning.
pub(crate) fn terms_are_sound(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut all: Vec<(FieldPath, &SlurmKeys)> = Vec::new();
    all.extend(stack.slurm.as_ref().map(|slurm| (FieldPath::keys(["slurm"]), &slurm.keys)));
    gpus_are_used(context);
    let mut own = Vec::new();
    for (key, cluster) in &stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key]);
        own.extend(cluster.scheduler.slurm.as_ref().map(|keys| (path.key("scheduler").key("slurm"), keys)));
        own.extend(cluster.worker.slurm.as_ref().map(|keys| (path.key("worker").key("slurm"), keys)));
        let groups = cluster.group.iter();
        own.extend(groups.filter_map(|(key, group)| {
            Some((path.key("group").key(key).key("slurm"), group.slurm.as_ref()?))
        }));
    }
    for (key, job) in &stack.dask_job {
        let path = FieldPath::keys(["dask_job", key]);
        let scheduler = job.scheduler.as_ref().and_then(|scheduler| scheduler.slurm.as_ref());
        own.extend(scheduler.map(|keys| (path.key("scheduler").key("slurm"), keys)));
        let worker = job.worker.as_ref().and_then(|worker| worker.slurm.as_ref());
        own.extend(worker.map(|keys| (path.key("worker").key("slurm"), keys)));
    }
    let broken = context.is_doubtful(&FieldPath::keys(["slurm"]));
    if stack.slurm.is_none() && !broken {
        for (place, _) in &own {
            let message = format!("`{place}` can only be used with `[slurm]`");
            let finding =
                Diagnostic::error(Code::OnlyOnHost, message).at_value(place.clone(), "for jobs of SLURM");
            context.say(finding.help("remove it, or put it into the stack of `[slurm]`"));
        }
    }
    all.append(&mut own);
    login_is_a_host(context);
    for (path, keys) in all {
        of_keys(context, &path, keys);
    }
}

/// Refuses directives that request GPUs for workers without `gpus`: the workers would not use the GPUs. For workers with `gpus`,
/// `--gres` may select the GPUs; the last one counts. Source: sbatch(1).
fn gpus_are_used(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut all = Vec::new();
    for (key, cluster) in &stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key]);
        let default = (path.key("worker"), &cluster.worker.slurm, cluster.worker.keys.gpus);
        let groups = cluster.group.iter();
        let groups = groups.map(|(key, group)| (path.key("group").key(key), &group.slurm, group.keys.gpus));
        all.push(default);
        all.extend(groups);
    }
    for (key, job) in &stack.dask_job {
        let path = FieldPath::keys(["dask_job", key]).key("worker");
        all.extend(job.worker.as_ref().map(|worker| (path, &worker.slurm, worker.keys.gpus)));
    }
    for (place, slurm, _) in all.into_iter().filter(|(.., gpus)| gpus.is_none_or(|gpus| gpus == 0)) {
        let directives = slurm.iter().flat_map(|slurm| slurm.directives.iter().enumerate());
        for (index, directive) in directives.filter(|(_, directive)| asks_for_gpus(directive)) {
            let place = place.key("slurm").key("directives").index(index);
            let message = format!("`{}` is for workers without `gpus`", directive.escape_debug());
            let finding = Diagnostic::error(Code::SlurmTerms, message).at_value(place, "");
            context.say(
                finding.help("set `gpus` of the workers: they are then started with `dask cuda worker`"),
            );
        }
    }
}

fn asks_for_gpus(directive: &str) -> bool {
    let value = directive.strip_prefix("--gres").map(|rest| rest.trim_start_matches(['=', ' ', '\t']));
    value.is_some_and(|value| value.split(',').any(|one| one == "gpu" || one.starts_with("gpu:")))
}

/// Checks that the login node is a single host, whose name is not an option of ssh.
fn login_is_a_host(context: &mut Context<'_>) {
    let Some(login) = context.stack.slurm.as_ref().and_then(|slurm| slurm.login.as_ref()) else { return };
    let place = FieldPath::keys(["slurm", "login"]);
    host_is_plain(context, &place, login);
    let all = login.all();
    if all.len() > 1 {
        let message = format!("`{}` is several login nodes", login.name);
        let finding = Diagnostic::error(Code::BadName, message).at_value(place, "");
        context.say(finding.help("name one: it keeps the schedulers and the record"));
    } else if all.iter().any(|host| !is_host_name(&host.name)) {
        let message = format!("`{}` cannot be the name of a host", login.name.escape_debug());
        let finding = Diagnostic::error(Code::BadName, message).at_value(place, "");
        context.say(finding.help("letters, digits, `.`, `-` and `_`, beginning with a letter or a digit"));
    }
}

fn of_keys(context: &mut Context<'_>, path: &FieldPath, keys: &SlurmKeys) {
    let mut say = |place: FieldPath, message: String, help: String| {
        context.say(Diagnostic::error(Code::SlurmTerms, message).at_value(place, "").help(help));
    };
    for (key, value) in keys.named() {
        let Some(value) = value.filter(|value| !is_value(value)) else { continue };
        let help = "letters, digits and `. _ - , + & | * : / @ ( ) [ ]`, beginning with a letter, a digit, `(` or `[`";
        say(
            path.key(key),
            format!("`{}` cannot be a value of sbatch's `--{key}`", value.escape_debug()),
            help.to_owned(),
        );
    }
    if let Some(limit) = keys.time_limit.as_ref().filter(|limit| minutes(limit).is_none()) {
        let help = "`\"90m\"`, `\"12h\"`, `\"2d\"`, or as SLURM writes it: `\"1-12:00:00\"`; leave it out for the partition's own limit";
        say(
            path.key("time_limit"),
            format!("`{}` is not a time limit", limit.escape_debug()),
            help.to_owned(),
        );
    }
    for (index, directive) in keys.directives.iter().enumerate() {
        let place = path.key("directives").index(index);
        let shown = directive.escape_debug();
        if !directive.starts_with('-') || directive.chars().any(char::is_control) {
            let help = "one option of sbatch each, in one line: `\"--exclusive\"`".to_owned();
            say(place, format!("`{shown}` is not an option of sbatch"), help);
        } else if let Some(help) = instead(directive) {
            say(place, format!("`{shown}` cannot be in `directives`"), help.to_owned());
        }
    }
    for (index, line) in
        keys.prologue.iter().enumerate().filter(|(_, line)| line.chars().any(char::is_control))
    {
        let place = path.key("prologue").index(index);
        say(
            place,
            format!("`{}` is more than one line of shell", line.escape_debug()),
            "give each line its own text".to_owned(),
        );
    }
}

/// Returns the advice on what to use instead of an option.
fn instead(directive: &str) -> Option<&'static str> {
    let word = directive.split([' ', '=', '\t']).next().unwrap_or_default();
    let is = |option: &&str| match option.starts_with("--") {
        true => word == *option,
        // A value may follow without a space: `-t5`.
        false => !word.starts_with("--") && word.starts_with(option),
    };
    OWN.iter().find(|(options, _)| options.iter().any(is)).map(|(_, help)| *help)
}

fn is_value(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '(' | '['))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-,+&|*:/@()[]".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_keys_of_their_own_are_known() {
        for (directive, known) in [
            ("--exclusive", false),
            ("--gres=gpu:1", false),
            ("--mem-per-cpu=1G", false),
            ("--time=5", true),
            ("-t5", true),
            ("-t 5", true),
            ("--partition gpu", true),
            ("--nodelist=n1", false),
            ("-x n2", false),
            ("--gpus=1", true),
        ] {
            assert_eq!(instead(directive).is_some(), known, "{directive}");
        }
        for (directive, asks) in [
            ("--gres=gpu:a100:1", true),
            ("--gres gpu", true),
            ("--gres=lustre:1", false),
            ("--gres=a,gpu:1", true),
        ] {
            assert_eq!(asks_for_gpus(directive), asks, "{directive}");
        }
        assert!(
            is_value("gpu,cpu")
                && is_value("[a|b]&c*2")
                && !is_value("a b")
                && !is_value("a\n#")
                && !is_value("-x")
        );
    }
}
