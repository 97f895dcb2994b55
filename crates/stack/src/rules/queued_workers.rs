//! Checks of `capacity = "queued"` of Dask clusters, their groups and Dask jobs: nodes are requested for all workers at once.

use crate::Stack;
use crate::rules::Context;
use kinds::dask::replicas::{Replicas, ReplicasTable};
use kinds::kubernetes::request_state::{CLASS_ANNOTATION, CONSUMES};
use kinds::section::PodKeys;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Workers for which nodes are requested.
pub(crate) struct QueuedWorkers<'a> {
    pub section: FieldPath,
    /// The path of their keys.
    pub workers: FieldPath,
    pub keys: &'a PodKeys,
    pub count: u32,
    /// The path of the number of workers.
    pub number: FieldPath,
    pub longest: Option<&'a str>,
    replicas: Replicas,
    /// The path of the key `queue`, if they would also wait in a queue.
    queue: Option<FieldPath>,
    is_managed: bool,
}

/// Returns all workers with `capacity`.
pub(crate) fn queued_workers(stack: &Stack) -> Vec<QueuedWorkers<'_>> {
    let mut all = Vec::new();
    for (key, cluster) in &stack.dask_cluster {
        let section = FieldPath::keys(["dask_cluster", key]);
        let queue = cluster.queue.as_ref().map(|_| section.key("queue"));
        if cluster.capacity.is_some() {
            let workers = section.key("worker");
            all.push(QueuedWorkers {
                number: workers.key("replicas"),
                workers,
                keys: &cluster.worker.keys,
                count: cluster.worker.replicas.most(),
                longest: cluster.max_run_duration.as_deref(),
                replicas: cluster.worker.replicas,
                queue: queue.clone(),
                is_managed: cluster.manage.is_managed(),
                section: section.clone(),
            });
        }
        for (key, group) in cluster.group.iter().filter(|(_, group)| group.capacity.is_some()) {
            let section = section.key("group").key(key);
            all.push(QueuedWorkers {
                number: section.key("replicas"),
                workers: section.clone(),
                keys: &group.keys,
                count: group.replicas.most(),
                longest: group.max_run_duration.as_deref(),
                replicas: group.replicas,
                queue: group.queue.as_ref().map(|_| section.key("queue")).or(queue.clone()),
                is_managed: group.manage.is_managed(),
                section,
            });
        }
    }
    for (key, job) in stack.dask_job.iter().filter(|(_, job)| job.capacity.is_some()) {
        let section = FieldPath::keys(["dask_job", key]);
        let copied = job.like.as_ref().and_then(|like| {
            let place = FieldPath::keys(["dask_cluster", like]).key("worker");
            Some((place, &stack.dask_cluster.get(like)?.worker))
        });
        let own = job.worker.as_ref().map(|worker| (section.key("worker"), worker));
        let Some((workers, worker)) = own.or(copied) else { continue };
        let count = job.replicas.unwrap_or(worker.replicas.most());
        all.push(QueuedWorkers {
            number: if job.replicas.is_some() { section.key("replicas") } else { workers.key("replicas") },
            workers,
            keys: &worker.keys,
            count,
            longest: job.max_run_duration.as_deref(),
            // Its number never changes, whoever writes that of what it copies.
            replicas: Replicas::Fixed(count),
            queue: job.queue.as_ref().map(|_| section.key("queue")),
            is_managed: job.manage.is_managed(),
            section,
        });
    }
    all
}

/// Checks workers with `queued`: the file sets their number, they are not in a queue of Kueue, and the stack manages their
/// cluster.
pub(crate) fn workers_can_be_booked(context: &mut Context<'_>) {
    for QueuedWorkers { section, workers, keys, count, number, replicas, queue, is_managed, .. } in
        queued_workers(context.stack)
    {
        let place = section.key("capacity");
        let mut say = |message: String, beside: Option<(FieldPath, &'static str)>, help: &str| {
            let finding = Diagnostic::error(Code::QueuedWorkers, message)
                .at_value(place.clone(), "nodes are requested for all of them");
            let finding = match beside {
                Some((beside, text)) => finding.at_value(beside, text),
                None => finding,
            };
            context.say(finding.help(help));
        };
        if !is_managed {
            let help = "remove `capacity`, or `manage = false`";
            say(format!("the workers of `{section}` are made by others"), None, help);
            continue;
        }
        if let Some(queue) = queue {
            let what =
                format!("`{section}` waits in a queue, or for nodes that it requests itself: not for both");
            let help = "remove `capacity`: the queue of a pool with `queued = true` requests its nodes";
            say(what, Some((queue, "in a queue")), help);
        }
        if let Replicas::Table(ReplicasTable { start, .. }) = replicas {
            let who = if start.is_some() { "notebooks" } else { "the operator's autoscaler" };
            let what = format!(
                "nodes are requested for all workers of `{section}`, but {who} would change their number"
            );
            let help = "give a number; more workers later are another `group` with a `capacity` of its own";
            say(what, Some((number.clone(), "not the file's number")), help);
        } else if count == 0 {
            let what = format!("`{section}` has no workers to request nodes for");
            say(what, Some((number.clone(), "none")), "give a number of at least 1, or remove `capacity`");
        }
        for annotation in [CONSUMES, CLASS_ANNOTATION] {
            if keys.annotations.contains_key(annotation) {
                let what = format!("`capacity` sets `{annotation}`");
                let finding = Diagnostic::error(Code::SaidTwice, what)
                    .at_value(workers.key("annotations").key(annotation), "again here")
                    .at_value(place.clone(), "set by this");
                context.say(finding.help("remove it"));
            }
        }
    }
    durations_have_an_effect(context);
}

/// Checks that `max_run_duration` is only set together with `capacity`.
fn durations_have_an_effect(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut idle: Vec<FieldPath> = Vec::new();
    let mut look = |section: FieldPath, longest: bool, capacity: bool| {
        idle.extend((longest && !capacity).then(|| section.key("max_run_duration")));
    };
    for (key, cluster) in &stack.dask_cluster {
        let section = FieldPath::keys(["dask_cluster", key]);
        look(section.clone(), cluster.max_run_duration.is_some(), cluster.capacity.is_some());
        for (key, group) in &cluster.group {
            let section = section.key("group").key(key);
            look(section, group.max_run_duration.is_some(), group.capacity.is_some());
        }
    }
    for (key, job) in &stack.dask_job {
        let section = FieldPath::keys(["dask_job", key]);
        look(section, job.max_run_duration.is_some(), job.capacity.is_some());
    }
    for place in idle {
        let what = format!("`{place}` has no effect: no nodes are requested");
        let finding = Diagnostic::error(Code::QueuedWorkers, what).at_value(place, "");
        context.say(
            finding.help(
                "add `capacity = \"queued\"`, or remove it; a queue has a `max_run_duration` of its own",
            ),
        );
    }
}
