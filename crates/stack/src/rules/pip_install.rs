//! Checks of `pip_install`: packages that running workers install.

use crate::rules::Context;
use crate::rules::hosts::{has_credentials, is_package};
use kinds::hosts::environment::Environment;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Checks `pip_install`: refuses it for images and for environments that dask-infra does not create, and checks the packages.
pub(crate) fn pip_install_is_for_prototypes(context: &mut Context<'_>) {
    for (key, environment) in &context.stack.environment {
        let Some(packages) = &environment.pip_install else { continue };
        let path = FieldPath::keys(["environment", key]);
        of_environment(context, &path, environment, packages);
    }
    groups_install_the_same(context);
}

fn of_environment(
    context: &mut Context<'_>,
    path: &FieldPath,
    environment: &Environment,
    packages: &[String],
) {
    let place = path.key("pip_install");
    if environment.container.is_some() {
        let message =
            format!("`{path}` is an image, and `pip_install` would install into each of its containers");
        let finding =
            Diagnostic::error(Code::PipInstall, message).at_value(place, "lost with each container");
        let finding = finding.at_value(path.key("container"), "an image is not written");
        context.say(finding.help("make an image with these packages"));
        return;
    }
    if environment.path.is_some() {
        let message = format!("`{path}` is a Python that is there, and `pip_install` would change it");
        let finding = Diagnostic::error(Code::PipInstall, message).at_value(place, "written into it");
        let finding = finding.at_value(path.key("path"), "never written");
        let help = "give `packages`, `requirements`, `pyproject` or `conda` in place of `path`, or install them there yourself";
        context.say(finding.help(help));
        return;
    }
    for package in packages {
        if has_credentials(package) {
            // The package is not said: the message would hold what should not be seen.
            let message = format!("a URL in `pip_install` of `{path}` has a password or a token");
            let name = package.split(['@', ':', ' ']).next().unwrap_or_default();
            let finding = Diagnostic::error(Code::LiteralSecret, message);
            let finding = finding.at_value(place.clone(), format!("in `{name} …`"));
            context.say_of_value(finding.help(
                "packages appear in plans, in the record and in logs: give the user and the password in `~/.netrc` of the hosts",
            ));
        } else if !is_package(package) || package.trim().starts_with(['/', '~']) {
            let message =
                format!("`pip_install` of `{path}` has an entry that is not a package: `\"{package}\"`");
            let finding =
                Diagnostic::error(Code::PipInstall, message).at_value(place.clone(), "in this list");
            let help = "name packages as `pip install` takes them; give an index in `pip.conf` of the hosts, or as PIP_INDEX_URL in \
                        `env` of scheduler and workers";
            context.say_of_value(finding.help(help));
        }
    }
    if let Some(first) = packages.first() {
        let message = format!("each worker runs pip before it takes work, for `pip_install` of `{path}`");
        let finding = Diagnostic::warning(Code::PipInstall, message);
        let said = if packages.len() > 1 { format!("`{first}` and others") } else { format!("`{first}`") };
        let finding = finding.at_value(place, said);
        context.say(finding.help(
            "that takes its time at each start and needs the index: it is for prototypes, so move what you keep to `packages`",
        ));
    }
}

/// Reports groups with another `pip_install` than their scheduler, which has all workers install the same.
fn groups_install_the_same(context: &mut Context<'_>) {
    let stack = context.stack;
    if !stack.is_on_hosts() {
        return;
    }
    let of = |named: Option<&String>| {
        let found = match named {
            Some(name) => stack.environment.get_key_value(name),
            None => stack.environment.iter().next(),
        };
        found.map(|(key, environment)| (key, environment.pip_install.clone().unwrap_or_default()))
    };
    let mut findings = Vec::new();
    for (key, cluster) in &stack.dask_cluster {
        for (group_key, group) in &cluster.group {
            let own = group.environment.as_ref().or(cluster.environment.as_ref());
            let (Some((name, wanted)), Some((other, theirs))) = (of(cluster.environment.as_ref()), of(own))
            else {
                continue;
            };
            if wanted == theirs {
                continue;
            }
            let place = FieldPath::keys(["dask_cluster", key]).key("group").key(group_key).key("environment");
            let message = format!(
                "`pip_install` of `environment.{other}` is not that of `environment.{name}`, and the scheduler of \
                 `dask_cluster.{key}` has all workers install the same"
            );
            let finding = Diagnostic::error(Code::PipInstall, message).at_value(place, "another list");
            findings.push(
                finding
                    .help("give both the same `pip_install`, or this group the environment of its cluster"),
            );
        }
    }
    for finding in findings {
        context.say(finding);
    }
}
