//! Checks of related Dask objects: groups, autoscalers and jobs of manifests with their clusters, groups of external clusters,
//! autoscalers, and image versions.

use serde_json::Value;

use crate::rules::Context;
use crate::rules::image_tag::Tag;
use crate::rules::workers::group_name;
use crate::{Stack, WorkerCountOwner};
use kinds::dask::cluster::DaskCluster;
use kinds::kubernetes::bundle::{self, Object};
use kinds::section::external_sections;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, nearest};
use model::schema::DASK_GROUP;

/// A Dask cluster of the stack, of a section or of a manifest.
struct Known {
    namespace: String,
    name: String,
    /// The path of its section.
    path: FieldPath,
    /// The path of its number of workers.
    replicas: FieldPath,
    number: Numbered,
}

/// The owner of the number of workers, as far as the file shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbered {
    File,
    Autoscaler,
    Nobody,
}

fn dask_objects<'a>(context: &Context<'a>) -> Vec<Object<'a>> {
    bundle::objects(&context.stack.bundles())
        .filter(|object| object.group_version().0 == DASK_GROUP)
        .collect()
}

fn known(context: &Context<'_>) -> Vec<Known> {
    let sections = context.stack.dask_cluster.iter().map(|(key, cluster)| {
        let path = FieldPath::keys(["dask_cluster", key]);
        Known {
            namespace: cluster.namespace().to_owned(),
            name: cluster.live_name(key).to_owned(),
            replicas: path.key("worker").key("replicas"),
            number: match cluster.worker.replicas.owner() {
                _ if !cluster.manage.is_managed() => Numbered::Nobody,
                WorkerCountOwner::File(_) => Numbered::File,
                WorkerCountOwner::Autoscaler { .. } => Numbered::Autoscaler,
                WorkerCountOwner::Notebooks(_) => Numbered::Nobody,
            },
            path,
        }
    });
    let objects = dask_objects(context).into_iter().filter(|object| object.kind() == "DaskCluster");
    let objects = objects.map(|object| {
        let path = object.origin();
        let given = !object.value["spec"]["worker"]["replicas"].is_null();
        Known {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            replicas: path.key("spec").key("worker").key("replicas"),
            number: if given { Numbered::File } else { Numbered::Nobody },
            path,
        }
    });
    sections.chain(objects).collect()
}

/// Checks that groups and autoscalers of manifests name a cluster in their own namespace, as the operator looks nowhere else.
pub(crate) fn objects_name_their_cluster(context: &mut Context<'_>) {
    let clusters = known(context);
    for object in dask_objects(context) {
        let kind = object.kind();
        if !matches!(kind, "DaskWorkerGroup" | "DaskAutoscaler") {
            continue;
        }
        let Some(wanted) = object.value["spec"]["cluster"].as_str() else { continue };
        let place = object.origin().key("spec").key("cluster");
        let own = |known: &&Known| known.namespace == object.namespace();
        if clusters.iter().filter(own).any(|known| known.name == wanted) {
            continue;
        }
        let elsewhere = clusters.iter().find(|known| known.name == wanted);
        let finding = match elsewhere {
            Some(other) => {
                let message = format!(
                    "the {kind} `{}` is in the namespace `{}`, but its cluster `{wanted}` is in `{}`",
                    object.name(),
                    object.namespace(),
                    other.namespace
                );
                Diagnostic::error(Code::UnknownCluster, message)
                    .at_value(place, "looked up in its own namespace only")
                    .at_key(other.path.clone(), "this one")
                    .help(format!("give it `namespace: {}`", other.namespace))
            }
            None => {
                let message = format!("there is no Dask cluster `{wanted}`");
                let near = clusters.iter().filter(own).map(|known| known.name.as_str());
                let help = match nearest(wanted, near) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!(
                        "add it; if it is managed elsewhere, add `[dask_cluster.{wanted}]` with `manage = false`"
                    ),
                };
                Diagnostic::error(Code::UnknownCluster, message)
                    .at_value(place, "not in this stack")
                    .help(help)
            }
        };
        context.say(finding);
    }
}

/// Checks that a cluster has at most one autoscaler, that its bounds are in order, and that nothing else sets the number of
/// workers.
pub(crate) fn autoscalers_are_alone(context: &mut Context<'_>) {
    let clusters = known(context);
    let all = dask_objects(context).into_iter().filter(|object| object.kind() == "DaskAutoscaler");
    let mut seen: Vec<(String, String, FieldPath)> = Vec::new();
    for object in all.collect::<Vec<_>>() {
        let (spec, path) = (&object.value["spec"], object.origin().key("spec"));
        if let (Some(min), Some(max)) = (spec["minimum"].as_i64(), spec["maximum"].as_i64())
            && min > max
        {
            let message = format!("`minimum` is {min} and `maximum` is {max}");
            let finding = Diagnostic::error(Code::Limits, message).at_value(path.key("minimum"), "more");
            context.say(
                finding
                    .at_value(path.key("maximum"), "than this")
                    .help("`minimum` must not exceed `maximum`"),
            );
        }
        let Some(of) = spec["cluster"].as_str() else { continue };
        let place = path.key("cluster");
        let same = seen.iter().find(|(namespace, name, _)| namespace == object.namespace() && name == of);
        if let Some((_, _, first)) = same {
            let message = format!("two autoscalers set the number of workers of `{of}`");
            let finding = Diagnostic::error(Code::OneWriter, message).at_value(place.clone(), "again here");
            context.say(finding.at_value(first.clone(), "first here").help("keep one of them"));
        }
        seen.push((object.namespace().to_owned(), of.to_owned(), place.clone()));
        let cluster = clusters.iter().find(|known| known.namespace == object.namespace() && known.name == of);
        let Some(cluster) = cluster else { continue };
        let finding = match cluster.number {
            Numbered::Nobody => continue,
            Numbered::Autoscaler => {
                let message = format!("two autoscalers set the number of workers of `{of}`");
                let finding =
                    Diagnostic::error(Code::OneWriter, message).at_value(cluster.replicas.clone(), "one");
                finding
                    .at_value(place, "the other")
                    .help("keep one of them: `{ min, max }` creates one of its own")
            }
            Numbered::File => {
                let message = format!("the file and an autoscaler both set the number of workers of `{of}`");
                let finding = Diagnostic::warning(Code::OneWriter, message)
                    .at_value(cluster.replicas.clone(), "reverted by every apply")
                    .at_value(place, "set by this one");
                let help = match cluster.path.segments().len() {
                    2 => "write `replicas = { min = 0, max = 8 }` and remove the autoscaler",
                    _ => "remove `replicas` from the DaskCluster",
                };
                finding.help(help)
            }
        };
        context.say(finding);
    }
}

/// Checks that names of groups in manifests are short enough for what the operator appends, and that names of jobs are unique.
pub(crate) fn objects_leave_room_for_names(context: &mut Context<'_>) {
    let clusters = known(context);
    for object in dask_objects(context) {
        let name = object.name();
        let place = object.origin().key("metadata").key("name");
        match object.kind() {
            "DaskWorkerGroup" => {
                let of = object.value["spec"]["cluster"].as_str().unwrap_or_default();
                group_name(context, of, &place, name);
            }
            "DaskJob" => {
                let same = |known: &&Known| known.name == name && known.namespace == object.namespace();
                if let Some(other) = clusters.iter().find(same) {
                    let message = format!(
                        "the job's cluster would be named `{name}`, and be deleted when the job ends"
                    );
                    let finding = Diagnostic::error(Code::ChildName, message).at_value(place, "the job");
                    let finding = finding.at_key(other.path.clone(), "this cluster");
                    context.say(finding.help("give the job another name"));
                }
            }
            "DaskCluster"
                if name.len() > LONG_NAME && crate::rules::names::wrong_dask_name(name).is_none() =>
            {
                let message = format!("`{name}` is too long for the names of its workers");
                let finding = Diagnostic::warning(Code::LongName, message);
                let finding = finding.at_value(place, format!("{} characters", name.len()));
                context.say(finding.help(format!(
                    "names of worker Pods add 26 characters and are truncated at 63: use at most {LONG_NAME}"
                )));
            }
            _ => {}
        }
    }
}

/// The maximum length of a name to which the operator appends `-default-worker-` and ten digits, within 63 characters.
const LONG_NAME: usize = 37;

/// Checks that groups of an external cluster have an image if the cluster's section has none.
pub(crate) fn external_groups_have_images(context: &mut Context<'_>) {
    let others = external_sections(&context.stack.dask_cluster);
    for (key, cluster) in others.filter(|(_, cluster)| cluster.image.is_empty()) {
        for (group, _) in cluster.group.iter().filter(|(_, group)| group.image.is_none()) {
            let path = FieldPath::keys(["dask_cluster", key, "group", group]);
            let message = format!("`{path}` has no image");
            let finding = Diagnostic::error(Code::OthersCluster, message).at_value(path, "which one?");
            context.say(finding.help(
                "set it to the `image` of its cluster; `image` of the cluster's section is compared with the \
                 live one",
            ));
        }
    }
}

/// An image of a part of a cluster.
#[derive(Clone)]
struct Part {
    what: &'static str,
    image: String,
    place: FieldPath,
}

/// Returns the image of a container in a pod that a user wrote.
fn part(pod: &Value, path: &FieldPath, name: &str, what: &'static str) -> Option<Part> {
    let containers = pod["containers"].as_array()?;
    let place = containers.iter().position(|container| container["name"] == name).unwrap_or(0);
    let image = containers.get(place)?["image"].as_str()?.to_owned();
    Some(Part { what, image, place: path.key("containers").index(place).key("image") })
}

/// Checks that scheduler, workers and programs have the same version of Dask, as its messages are pickles.
pub(crate) fn images_have_one_version(context: &mut Context<'_>) {
    let of_objects = images_of_objects(context).into_iter().chain(images_of_deployments(context));
    for (scheduler, parts) in images_of_sections(context.stack).into_iter().chain(of_objects) {
        for part in parts {
            let Some(differs) = versions_differ(&scheduler.image, &part.image) else { continue };
            let message =
                format!("{} and {} have different versions of {differs}", scheduler.what, part.what);
            let finding = Diagnostic::warning(Code::ImagesDiffer, message).at_value(part.place, part.what);
            let finding = finding.at_value(scheduler.place.clone(), scheduler.what);
            context.say(finding.help("scheduler, workers and clients should use one image"));
        }
    }
}

/// Returns the images of schedulers, each with the images of what connects to it.
fn images_of_sections(stack: &Stack) -> Vec<(Part, Vec<Part>)> {
    let of_cluster = |(key, cluster): (&String, &DaskCluster)| {
        let path = FieldPath::keys(["dask_cluster", key]);
        let scheduler =
            Part { what: "the scheduler", image: cluster.image.clone(), place: path.key("image") };
        let groups = cluster.group.iter().filter_map(|(group, section)| {
            let place = path.key("group").key(group).key("image");
            Some(Part { what: "these workers", image: section.image.clone()?, place })
        });
        let jobs = stack.dask_job.iter().filter(|(_, job)| job.like.as_ref() == Some(key));
        let programs = jobs.filter_map(|(job, section)| {
            let place = FieldPath::keys(["dask_job", job, "image"]);
            Some(Part { what: "the program", image: section.image.clone()?, place })
        });
        let checks = stack.check.iter().filter(|(_, check)| {
            check.is_client(false) && stack.cluster_of_check(check).is_some_and(|(of, _)| of == key)
        });
        let clients = checks.filter_map(|(check, section)| {
            let place = FieldPath::keys(["check", check, "image"]);
            Some(Part { what: "the check", image: section.image.clone()?, place })
        });
        (scheduler, groups.chain(programs).chain(clients).collect())
    };
    stack.dask_cluster.iter().map(of_cluster).collect()
}

/// Returns the schedulers of objects that users wrote, as [`images_of_sections`] does for sections.
fn images_of_objects(context: &Context<'_>) -> Vec<(Part, Vec<Part>)> {
    let objects = dask_objects(context);
    let of_object = |object: &Object<'_>| {
        let (spec, path) = match object.kind() {
            "DaskCluster" => (&object.value["spec"], object.origin().key("spec")),
            "DaskJob" => (
                &object.value["spec"]["cluster"]["spec"],
                object.origin().key("spec").key("cluster").key("spec"),
            ),
            _ => return None,
        };
        let pod = |part: &str| (&spec[part]["spec"], path.key(part).key("spec"));
        let (scheduler, at) = pod("scheduler");
        let scheduler = part(scheduler, &at, "scheduler", "the scheduler")?;
        let (workers, at) = pod("worker");
        let mut parts: Vec<Part> = part(workers, &at, "worker", "the workers").into_iter().collect();
        if object.kind() == "DaskJob" {
            let at = object.origin().key("spec").key("job").key("spec");
            parts.extend(part(&object.value["spec"]["job"]["spec"], &at, "job", "the program"));
        }
        let groups = objects.iter().filter(|group| {
            group.kind() == "DaskWorkerGroup"
                && group.namespace() == object.namespace()
                && group.value["spec"]["cluster"] == object.name()
        });
        parts.extend(groups.filter_map(|group| {
            let at = group.origin().key("spec").key("worker").key("spec");
            part(&group.value["spec"]["worker"]["spec"], &at, "worker", "these workers")
        }));
        Some((scheduler, parts))
    };
    objects.iter().filter_map(of_object).collect()
}

/// Returns the images of Deployments of Dask's chart, and of Deployments with the same labels. Source: `templates` of
/// `dask/helm-chart`: `app: dask`, `release` and `component`.
fn images_of_deployments(context: &Context<'_>) -> Vec<(Part, Vec<Part>)> {
    let all: Vec<Object<'_>> = bundle::objects(&context.stack.bundles())
        .filter(|object| object.group_version().0 == "apps" && object.kind() == "Deployment")
        .collect();
    fn labels<'o>(object: &Object<'o>) -> &'o Value {
        &object.value["spec"]["template"]["metadata"]["labels"]
    }
    let image = |object: &Object<'_>, what: &'static str| {
        let (spec, path) = (&object.value["spec"]["template"]["spec"], object.origin());
        part(spec, &path.key("spec").key("template").key("spec"), "", what)
    };
    let is_a = |object: &&Object<'_>, component: &str| {
        labels(object)["app"] == "dask" && labels(object)["component"] == component
    };
    let schedulers = all.iter().filter(|object| is_a(object, "scheduler"));
    let of = |scheduler: &Object<'_>| {
        let beside = |object: &&Object<'_>| {
            object.namespace() == scheduler.namespace()
                && labels(object)["release"] == labels(scheduler)["release"]
        };
        let found = |component: &'static str, what: &'static str| {
            let own = all.iter().filter(beside).filter(move |object| is_a(object, component));
            own.filter_map(|object| image(object, what)).collect::<Vec<Part>>()
        };
        let (workers, notebook) = (found("worker", "these workers"), found("jupyter", "the notebook"));
        Some((image(scheduler, "the scheduler")?, [workers, notebook].concat()))
    };
    schedulers.filter_map(of).collect()
}

/// Returns how the versions of two images differ, by their tags; `None` if they do not differ or are unknown.
fn versions_differ(one: &str, other: &str) -> Option<&'static str> {
    let (one, other) = (Tag::of(one)?, Tag::of(other)?);
    let differs = match (one.family, other.family) {
        ("RAPIDS", "Dask") => dask_differs(&one.version, &other.version),
        ("Dask", "RAPIDS") => dask_differs(&other.version, &one.version),
        _ => one.version != other.version,
    };
    if differs {
        return Some(if one.family == other.family { one.family } else { "Dask" });
    }
    (one.python.is_some() && other.python.is_some() && one.python != other.python).then_some("Python")
}

/// The release of Dask in each release of RAPIDS. Source: `rapids-dask-dependency` of each, on PyPI.
const PINS: [([u32; 2], [u32; 3]); 6] = [
    ([25, 4], [2025, 2, 0]),
    ([25, 12], [2025, 9, 1]),
    ([26, 4], [2026, 1, 1]),
    ([26, 6], [2026, 1, 1]),
    ([26, 8], [2026, 7, 1]),
    ([26, 10], [2026, 7, 1]),
];

/// Returns true if a release of RAPIDS contains another version of Dask. If its version is unknown, it is at least no later one.
fn dask_differs(rapids: &[u32], dask: &[u32]) -> bool {
    let [year, month, ..] = *rapids else { return false };
    match PINS.iter().find(|(release, _)| *release == [year, month]) {
        Some((_, pin)) => !pin.starts_with(&dask[..dask.len().min(3)]),
        None => dask.first_chunk::<2>().is_some_and(|dask| *dask > [2000 + year, month]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_tags_of_one_family() {
        let rapids = "nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13";
        for (other, differs) in [
            ("nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13", None),
            ("nvcr.io/nvidia/rapidsai/notebooks:26.04-cuda13-py3.13", None),
            ("rapidsai/base:26.06-cuda12-py3.13", Some("RAPIDS")),
            ("rapidsai/base:26.04-cuda12-py3.11", Some("Python")),
            ("rapidsai/base:26.04", None),
            ("rapidsai/base:latest", None),
            ("ghcr.io/dask/dask:2026.3.0", Some("Dask")),
            ("ghcr.io/dask/dask:2026.1.1-py3.13", None),
            ("ghcr.io/dask/dask:2026.1.1-py3.12", Some("Python")),
            ("localhost:5000/rapidsai", None),
            ("rapidsai/base@sha256:00", None),
        ] {
            assert_eq!(versions_differ(rapids, other), differs, "{other}");
        }
        let dask = "ghcr.io/dask/dask:2026.3.0";
        assert_eq!(versions_differ(dask, "daskdev/dask:2026.3.1-py3.12"), Some("Dask"));
        assert_eq!(versions_differ("mine:1.2", "mine:1.3"), None);
        // Of a release whose Dask is not known.
        let old = "rapidsai/rapidsai-core:21.12-cuda11.5-runtime-ubuntu20.04-py3.8";
        assert_eq!(versions_differ("ghcr.io/dask/dask:2025.11.0", old), Some("Dask"));
        assert_eq!(versions_differ("daskdev/dask:2021.11.2", old), None);
    }
}
