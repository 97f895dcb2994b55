//! Checks of the images of environments.

use crate::rules::Context;
use crate::rules::hosts::has_credentials;
use kinds::dask::replicas::{Replicas, ReplicasTable};
use kinds::hosts::container::{Container, Runtime};
use kinds::hosts::environment::Environment;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Options of a runtime that dask-infra sets itself.
const OWN: [&str; 8] =
    ["--detach", "-d", "--entrypoint", "--name", "--net", "--network", "--restart", "--log-driver"];

pub(crate) fn containers_can_run(context: &mut Context<'_>) {
    for (key, environment) in &context.stack.environment {
        let Some(container) = &environment.container else { continue };
        let path = FieldPath::keys(["environment", key]);
        let found = of_image(&path, container, context.stack.slurm.is_some()).into_iter();
        for finding in found.chain(of_lists(&path, container)).chain(of_python(&path, environment)) {
            context.say(finding);
        }
    }
}

/// Reports workers that scale between bounds in an image. Adaptive scaling starts processes of the host from its environment.
pub(crate) fn containers_have_numbers(context: &mut Context<'_>) {
    let stack = context.stack;
    for (key, cluster) in &stack.dask_cluster {
        let Replicas::Table(ReplicasTable { max: Some(_), .. }) = cluster.worker.replicas else { continue };
        let named = match &cluster.environment {
            Some(name) => stack.environment.get_key_value(name),
            None => stack.environment.iter().next(),
        };
        let Some((name, _)) = named.filter(|(_, environment)| environment.container.is_some()) else {
            continue;
        };
        let place = FieldPath::keys(["dask_cluster", key]).key("worker").key("replicas");
        let message = format!("workers of `{place}` follow the work, and `environment.{name}` is an image");
        let help = "what decides runs in the environment, and starts processes of the host, which it cannot do from a container: give a \
                    number and change it with `scale`, or an environment of `packages` or `path`";
        let container = FieldPath::keys(["environment", name]).key("container");
        context.say(wrong(message, place, "between bounds", help).at_value(container, "an image"));
    }
}

fn wrong(message: String, place: FieldPath, said: &'static str, help: &'static str) -> Diagnostic {
    Diagnostic::error(Code::Container, message).at_value(place, said).help(help)
}

/// Returns the path of a key of `container`; for the short form, that of `container` itself.
fn place_of(path: &FieldPath, container: &Container, key: &str) -> FieldPath {
    let place = path.key("container");
    if container.is_short() { place } else { place.key(key) }
}

fn of_image(path: &FieldPath, container: &Container, has_jobs: bool) -> Vec<Diagnostic> {
    let (image, place) = (&container.image, place_of(path, container, "image"));
    let mut found = Vec::new();
    if has_credentials(image) {
        // The image is not said: the message would hold what should not be seen.
        let message = format!("the image of `{path}` has a password or a token");
        let finding = Diagnostic::error(Code::LiteralSecret, message).at_value(place.clone(), "in its name");
        found.push(finding.help(
            "it would appear in plans, in the record and in logs: log in to the registry on each host (`podman login`, `docker login`, \
             `apptainer registry login`)",
        ));
    } else if image.is_empty()
        || image.starts_with(['-', '.'])
        || image.contains(char::is_whitespace)
        || (image.ends_with(".sif") && !container.is_path() && !image.contains("://"))
    {
        let message = format!("`{image}` is not an image");
        let help = "name it as `podman pull` does, as in `ghcr.io/dask/dask:2026.8.0-py3.12`; the path of a file begins with `/` or `~/`";
        found.push(wrong(message, place.clone(), "not a name", help));
    }
    match container.runtime {
        Some(Runtime::Docker) if has_jobs => {
            let message = format!("`{path}` runs workers with docker, and they are jobs of SLURM");
            let help = "docker's daemon would start them outside of their jobs, where neither limits nor `scancel` reach them: use apptainer, \
                        singularity or podman";
            found.push(wrong(message, path.key("container").key("runtime"), "not in a job", help));
        }
        Some(runtime) if container.is_path() && !runtime.has_files() => {
            let message = format!("`{image}` is a file, and podman and docker run images by name");
            let help = "load it on each host (`podman load`, `docker load`) and give its name, or use apptainer or singularity";
            found.push(
                wrong(message, place, "a path", help)
                    .at_value(path.key("container").key("runtime"), "takes a name"),
            );
        }
        Some(_) | None => {}
    }
    found
}

fn of_lists(path: &FieldPath, container: &Container) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for mount in &container.mounts {
        let parts: Vec<&str> = mount.split(':').collect();
        let is_absolute = parts[0].starts_with('/') || parts[0].starts_with("~/") || parts[0] == "~";
        let has_place = parts.get(1).is_none_or(|inside| inside.starts_with('/'));
        if !is_absolute || !has_place || parts.len() > 3 {
            let message = format!("`{mount}` of `{path}` is not a mount");
            let help = "give an absolute path of the host, and where it is seen, if not at the same place: `\"/data\"`, `\"/data:/mnt\"`, \
                        `\"/data:/mnt:ro\"`";
            found.push(wrong(message, path.key("container").key("mounts"), "in this list", help));
        }
    }
    for option in &container.options {
        let word = option.split('=').next().unwrap_or_default();
        if has_credentials(option) {
            let message = format!("an option of the container of `{path}` has a password or a token");
            let place = path.key("container").key("options");
            let finding = Diagnostic::error(Code::LiteralSecret, message).at_value(place, "in this list");
            found.push(finding.help(
                "options appear in plans, in the record and in logs: put it into a file that is mounted, or into the runtime's own \
                 configuration",
            ));
        } else if OWN.contains(&word) {
            let message = format!("`{word}` cannot be given in `options` of `{path}`");
            let help = "each container runs in the foreground with the host's network, under a name by which it is found again";
            found.push(wrong(message, path.key("container").key("options"), "in this list", help));
        } else if OPENS.contains(&word) {
            let message = format!("`{option}` of `{path}` lets the image act on the host as you, or as root");
            let place = path.key("container").key("options");
            let finding = Diagnostic::warning(Code::Container, message).at_value(place, "in this list");
            found.push(finding.help(
                "take it out, or name the image by its digest (`image@sha256:…`): a tag may be another image tomorrow",
            ));
        }
    }
    found
}

/// Options that remove the isolation between a container and its host.
const OPENS: [&str; 7] =
    ["--privileged", "--cap-add", "--pid", "--security-opt", "--add-caps", "--userns", "--allow-setuid"];

fn of_python(path: &FieldPath, environment: &Environment) -> Option<Diagnostic> {
    let python = environment.python.as_ref()?;
    let is_version = !python.contains('/') && !python.starts_with("python");
    is_version.then(|| {
        let message =
            format!("`python` of `{path}` is a version, and the Python of an image is that of the image");
        let help = "take it out, or name an interpreter in the image by its absolute path";
        wrong(message, path.key("python"), "not a program", help)
            .at_value(path.key("container"), "has its own Python")
    })
}
