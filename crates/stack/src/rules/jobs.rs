//! Checks of Dask jobs: the cluster that they copy, their names, and that they end.

use crate::rules::Context;
use crate::{DaskJob, Replicas, Restart, Worker};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, listed, nearest};

/// Checks that a job defines its cluster, and that no other cluster has its name.
pub(crate) fn jobs_have_a_cluster(context: &mut Context<'_>) {
    for (key, job) in &context.stack.dask_job {
        let path = FieldPath::keys(["dask_job", key]);
        template(context, &path, job);
        own_cluster(context, &path, key, job);
        if let Some(Worker { replicas: Replicas::Table(_), .. }) = &job.worker {
            let message = "the cluster of a job cannot be scaled: it is deleted when the job ends";
            let finding =
                Diagnostic::error(Code::OneWriter, message).at_value(path.key("worker").key("replicas"), "");
            context.say(finding.help("give a number: `replicas = 2`"));
        }
    }
}

fn template(context: &mut Context<'_>, path: &FieldPath, job: &DaskJob) {
    let DaskJob { like, image, scheduler, worker, .. } = job;
    let Some(like) = like else {
        // On a host there are no images, and a cluster of its own has a worker without further words.
        if image.is_none() && !context.stack.is_on_hosts() {
            let message = format!("`{path}` does not describe its cluster");
            let finding = Diagnostic::error(Code::JobTemplate, message)
                .at_value(path.clone(), "neither `like` nor `image`");
            context.say(finding.help(
                "`like = \"NAME\"` copies a Dask cluster of this file; `image`, with `scheduler` and `worker`, describes \
                 one of its own",
            ));
        }
        return;
    };
    let empty = "this file has no Dask cluster: give `image`, `scheduler` and `worker` instead";
    unknown_cluster(context, &path.key("like"), like, empty);
    if context.stack.dask_cluster.get(like).is_some_and(|cluster| !cluster.manage.is_managed()) {
        let message =
            format!("the Dask cluster `{like}` is managed elsewhere, so the file does not describe it");
        let finding = Diagnostic::error(Code::UnknownCluster, message).at_value(path.key("like"), "copied");
        let place = FieldPath::keys(["dask_cluster", like, "manage"]);
        context.say(
            finding
                .at_value(place, "managed elsewhere")
                .help("give `image`, `scheduler` and `worker` instead"),
        );
    }
    let own = [("scheduler", scheduler.is_some()), ("worker", worker.is_some())];
    for (part, _) in own.iter().filter(|(_, there)| *there) {
        let message = format!("`{path}` copies `{like}` and describes its own {part}");
        let finding = Diagnostic::error(Code::JobTemplate, message).at_value(path.key(part), "its own");
        context.say(finding.at_value(path.key("like"), "copied").help("keep one of the two"));
    }
}

/// Reports a reference to a Dask cluster that is not in the file; `empty` is the help text if the file has none.
pub(crate) fn unknown_cluster(context: &mut Context<'_>, place: &FieldPath, like: &str, empty: &str) {
    let clusters = &context.stack.dask_cluster;
    if clusters.contains_key(like) || context.is_doubtful(&FieldPath::keys(["dask_cluster", like])) {
        return;
    }
    let keys = context.keys("dask_cluster", clusters.keys());
    let names = || keys.iter().copied();
    let help = match nearest(like, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if keys.is_empty() => empty.to_owned(),
        None => format!("this file has {}", listed(names(), "and")),
    };
    let message = format!("there is no Dask cluster `{like}`");
    context.say(Diagnostic::error(Code::UnknownCluster, message).at_value(place.clone(), "").help(help));
}

/// Checks that no Dask cluster has the name of a job: the operator would use it as the job's cluster, and delete it when the job
/// ends.
fn own_cluster(context: &mut Context<'_>, path: &FieldPath, key: &str, job: &DaskJob) {
    let name = job.live_name(key);
    let mut clusters = context.stack.dask_cluster.iter();
    let same = clusters.find(|(cluster_key, cluster)| {
        cluster.live_name(cluster_key) == name && cluster.namespace() == job.namespace()
    });
    if let Some((cluster, _)) = same {
        let message =
            format!("the job's cluster would be `dask_cluster.{cluster}`, and be deleted when the job ends");
        let finding = Diagnostic::error(Code::ChildName, message);
        let finding = finding.at_value(path.key("name"), format!("its cluster is named `{name}`, too"));
        let finding = finding.at_value(FieldPath::keys(["dask_cluster", cluster, "name"]), "as this one");
        context.say(finding.help("give the job another `name`"));
    }
}

/// Checks that a failed job ends instead of being restarted forever.
pub(crate) fn jobs_end(context: &mut Context<'_>) {
    for (key, job) in context.stack.dask_job.iter().filter(|(_, job)| job.restart == Restart::OnFailure) {
        let place = FieldPath::keys(["dask_job", key, "restart"]);
        let until = if job.wait { ", and `wait` lasts until it ends" } else { "" };
        let message = format!("a program that always fails is restarted forever{until}");
        let finding =
            Diagnostic::warning(Code::RestartsForEver, message).at_value(place, "and its cluster is kept");
        context.say(finding.help("`restart = \"never\"`, the default, ends the job when the program fails"));
    }
}
