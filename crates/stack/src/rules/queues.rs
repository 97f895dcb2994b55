//! Checks of Kueue's queues and of the work that waits in them.

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::anti_affinity::anti_affinity;
use crate::rules::{Context, counted, names};
use crate::{DaskCluster, DaskJob, Queue, Replicas, Stack};
use kinds::gke::node_pool::ServesRequests;
use kinds::kubernetes::bundle;
use kinds::kubernetes::kueue::{gang, v1beta1};
use kinds::kubernetes::provisioning::MAX_NODES;
use kinds::scope::{KUEUE, PoolFacts};
use kinds::section::{PodKeys, PodRole, managed};
use kinds::short_forms::seconds;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, listed, nearest};
use model::quantity::Quantity;
use model::schema::DASK_GROUP;

/// The maximum lifetime, in seconds, of nodes for a request. Source: "How Dynamic Workload Scheduler works" of GKE's guide.
const WEEK: u64 = 604_800;

/// The maximum length of a label's value. Work names its priority class in a label.
const LABEL: usize = 63;

/// Pods of one kind in a gang.
struct Part<'a> {
    /// The path of their keys.
    path: FieldPath,
    role: PodRole,
    count: u32,
    keys: &'a PodKeys,
}

/// Work that starts as a whole.
struct Work<'a> {
    /// The path of the key `queue`.
    named: FieldPath,
    queue: &'a str,
    /// The path of its section.
    section: FieldPath,
    /// Namespace and name of its gang; `None` for a Job, whose Workload Kueue names.
    gang: Option<(&'a str, String)>,
    parts: Vec<Part<'a>>,
}

/// Returns all work of the stack that waits in queues. For external Dask clusters, that is only their groups.
fn work(stack: &Stack) -> Vec<Work<'_>> {
    let mut all = Vec::new();
    for (key, cluster) in &stack.dask_cluster {
        let section = FieldPath::keys(["dask_cluster", key]);
        if let Some(queue) = cluster.queue.as_deref().filter(|_| cluster.manage.is_managed()) {
            let parts = own_parts(&section, cluster);
            let gang = Some((cluster.namespace(), cluster.live_name(key).to_owned()));
            all.push(Work { named: section.key("queue"), queue, section: section.clone(), gang, parts });
        }
        for (group_key, group) in managed(&cluster.group) {
            let path = section.key("group").key(group_key);
            let own = group.queue.as_deref().map(|queue| (path.key("queue"), queue));
            let inherited = || Some((section.key("queue"), cluster.queue.as_deref()?));
            let Some((named, queue)) = own.or_else(inherited) else { continue };
            let part = Part {
                path: path.clone(),
                role: PodRole::Worker,
                count: group.replicas.most(),
                keys: &group.keys,
            };
            let gang = Some((cluster.namespace(), group.live_name(cluster.live_name(key), group_key)));
            all.push(Work { named, queue, section: path, gang, parts: vec![part] });
        }
    }
    for (key, job) in managed(&stack.dask_job) {
        let Some(queue) = job.queue.as_deref() else { continue };
        let section = FieldPath::keys(["dask_job", key]);
        let parts = parts_of_job(stack, &section, job);
        let gang = Some((job.namespace(), job.live_name(key).to_owned()));
        all.push(Work { named: section.key("queue"), queue, section, gang, parts });
    }
    for (key, job) in &stack.job {
        let Some(queue) = job.queue.as_deref() else { continue };
        let section = FieldPath::keys(["job", key]);
        let part =
            Part { path: section.clone(), role: PodRole::Job, count: job.at_a_time(), keys: &job.keys };
        all.push(Work { named: section.key("queue"), queue, section, gang: None, parts: vec![part] });
    }
    all
}

fn own_parts<'a>(section: &FieldPath, cluster: &'a DaskCluster) -> Vec<Part<'a>> {
    let DaskCluster { scheduler, worker, .. } = cluster;
    let part = |key: &str, role, count, keys| Part { path: section.key(key), role, count, keys };
    vec![
        part("scheduler", PodRole::Scheduler, 1, &scheduler.keys),
        part("worker", PodRole::Worker, worker.replicas.most(), &worker.keys),
    ]
}

/// Returns the parts of a Dask job: its program, and its own or copied cluster.
fn parts_of_job<'a>(stack: &'a Stack, section: &FieldPath, job: &'a DaskJob) -> Vec<Part<'a>> {
    let mut parts = vec![Part { path: section.clone(), role: PodRole::Program, count: 1, keys: &job.keys }];
    let like = job.like.as_ref().and_then(|key| Some((key, stack.dask_cluster.get(key)?)));
    if let Some((key, like)) = like {
        let copied = own_parts(&FieldPath::keys(["dask_cluster", key]), like);
        parts.extend(copied.into_iter().map(|part| match part.role {
            PodRole::Worker => Part { count: job.replicas.unwrap_or(part.count), ..part },
            _ => part,
        }));
        return parts;
    }
    if let Some(scheduler) = &job.scheduler {
        parts.push(Part {
            path: section.key("scheduler"),
            role: PodRole::Scheduler,
            count: 1,
            keys: &scheduler.keys,
        });
    }
    if let Some(worker) = &job.worker {
        let count = job.replicas.unwrap_or(worker.replicas.most());
        parts.push(Part { path: section.key("worker"), role: PodRole::Worker, count, keys: &worker.keys });
    }
    parts
}

/// Returns the work with an annotation that Kueue reads from its pods: the value, its path, and the live name of the queue. For a
/// Job, Kueue reads annotations of the Job itself, which sections do not have.
pub(crate) fn annotated<'a>(stack: &'a Stack, annotation: &str) -> Vec<(&'a str, FieldPath, &'a str)> {
    let clusters = stack.dask_cluster.iter();
    let whole = clusters.filter_map(|(key, cluster)| {
        Some((FieldPath::keys(["dask_cluster", key]), &cluster.annotations, cluster.queue.as_deref()?))
    });
    let parts = work(stack).into_iter().flat_map(|Work { queue, parts, .. }| {
        let parts = parts.into_iter().filter(|part| part.role != PodRole::Job);
        parts.map(move |part| (part.path, &part.keys.annotations, queue))
    });
    let all = whole.chain(parts).filter_map(|(path, annotations, queue)| {
        let live = stack.queue.get(queue).map_or(queue, |known| known.live_name(queue));
        Some((annotations.get(annotation)?.as_str(), path.key("annotations").key(annotation), live))
    });
    all.collect()
}

/// Returns the paths of pods that wait in queues: they do not run all at once.
pub(crate) fn waiting(stack: &Stack) -> BTreeSet<FieldPath> {
    let mut places = BTreeSet::new();
    for Work { section, parts, .. } in work(stack) {
        // Pods that a job copies belong to another section and are checked there.
        places.extend(parts.into_iter().map(|part| part.path).filter(|path| section.contains(path)));
    }
    places
}

/// Checks that `queue` names a queue of this file, and that a file with queues has Kueue.
pub(crate) fn queues_exist(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut named: BTreeSet<(FieldPath, &str)> = BTreeSet::new();
    named.extend(work(stack).into_iter().map(|work| (work.named, work.queue)));
    for (place, name) in named {
        let section = FieldPath::keys(["queue", name]);
        if stack.queue.contains_key(name) || context.is_doubtful(&section) {
            continue;
        }
        let keys = context.keys("queue", stack.queue.keys());
        let gone = context.gone(&section);
        let help = match nearest(name, keys.iter().copied()) {
            _ if gone.is_some() => format!("restore `[queue.{name}]`, or remove this reference"),
            Some(near) => format!("did you mean `{near}`?"),
            None if keys.is_empty() => format!("add `[queue.{name}]` with a `pool` or `gpus`"),
            None => format!("this file has {}", listed(keys.iter().copied(), "and")),
        };
        let finding = Diagnostic::error(Code::NoQueue, format!("there is no queue `{name}`"));
        context.say(finding.at_value(place, "no such queue").with(gone).help(help));
    }
    let broken = context.is_doubtful(&FieldPath::keys([KUEUE]));
    if stack.kueue.is_none()
        && !broken
        && let Some(first) = stack.queue.keys().next()
    {
        let gone = context.gone(&FieldPath::keys([KUEUE]));
        let finding = Diagnostic::error(Code::NoQueue, "the stack has queues, but not Kueue");
        let finding = finding.at_key(FieldPath::keys(["queue", first]), "needs Kueue").with(gone);
        context.say(finding.help(
            "add `[kueue]` with `version = \"0.15.0\"`, or with `manage = false` if the cluster already has it",
        ));
    }
}

/// Checks Kueue and its queues: version, keys, and that the pools of a queue have the GPUs in its quota.
pub(crate) fn queues_can_be(context: &mut Context<'_>) {
    let stack = context.stack;
    if let Some(kueue) = &stack.kueue {
        let place = FieldPath::keys([KUEUE, "version"]);
        if !kueue.is_newer() && kueue.manage.is_managed() {
            let version = kueue.version.as_deref().unwrap_or_default();
            let what = format!("Kueue {version} does not serve kueue.x-k8s.io/v1beta2, which is written");
            let finding = Diagnostic::error(Code::BadQueue, what).at_value(place.clone(), "");
            context.say(finding.help("use 0.15.0 or later"));
        }
        let given = [
            ("chart", kueue.chart.is_some()),
            ("values", !kueue.values.is_empty()),
            ("values_files", !kueue.values_files.is_empty()),
        ];
        let unused = given.into_iter().find(|(_, given)| *given).map(|(key, _)| key);
        let (manifest, managed) = (!kueue.manifest.is_empty(), kueue.manage.is_managed());
        if let Some(key) = unused.filter(|_| manifest || !managed) {
            let what = format!("`{key}` has no effect: Kueue's objects do not come from its chart");
            let help = if manifest { "keep `manifest` or the chart's keys" } else { "remove the key" };
            let place = FieldPath::keys([KUEUE, key]);
            context.say(Diagnostic::error(Code::ChartNotAskedFor, what).at_key(place, "").help(help));
        }
    }
    for (key, queue) in &stack.queue {
        let section = FieldPath::keys(["queue", key]);
        shape(context, &section, queue);
        quantities(context, &section, queue);
        let pools = queue.pool.iter().map(|pool| (section.key("pool"), pool.as_str()));
        let pools: Vec<_> = pools
            .chain(queue.pools.keys().map(|pool| (section.key("pools").key(pool), pool.as_str())))
            .collect();
        for (place, pool) in pools {
            pool_of(context, &place, queue, pool);
        }
    }
}

/// Reports keys of a queue that exclude each other or have no effect.
fn shape(context: &mut Context<'_>, section: &FieldPath, queue: &Queue) {
    if let Some(key) = [("pool", queue.pool.is_some()), ("gpus", queue.gpus.is_some())]
        .into_iter()
        .find_map(|(key, given)| given.then_some(key))
        && !queue.pools.is_empty()
    {
        let what = format!("`{key}` and `pools` both say which GPUs the queue hands out");
        let finding = Diagnostic::error(Code::BadQueue, what).at_value(section.key(key), "here");
        let finding = finding.at_value(section.key("pools"), "and here");
        context
            .say(finding.help("`pool` and `gpus` for one pool; `pools = { a100 = 8, t4 = 4 }` for several"));
    }
    let stack = context.stack;
    let queued = served(queue).any(|pool| is_queued(stack, pool));
    let of_requests =
        [("max_run_duration", queue.max_run_duration.is_some()), ("retries", queue.retries.is_some())];
    for (key, _) in of_requests.into_iter().filter(|(_, given)| *given && !queued) {
        let what = format!("`{key}` has no effect: none of the queue's pools has `queued = true`");
        let finding = Diagnostic::error(Code::BadQueue, what).at_value(section.key(key), "");
        context.say(finding.help("remove it, or set `queued = true` on the node pool"));
    }
    let Some(text) = &queue.max_run_duration else { return };
    let (what, help) = match seconds(text) {
        None | Some(0) => (format!("`{text}` is not a duration"), "write `7d`, `12h`, `30m` or `45s`"),
        Some(all) if all > WEEK => (format!("`{text}` is too long"), "7 days are the most"),
        Some(_) => return,
    };
    let finding = Diagnostic::error(Code::BadDuration, what).at_value(section.key("max_run_duration"), "");
    context.say(finding.help(help));
}

/// Returns the pools whose nodes a queue hands out.
fn served(queue: &Queue) -> impl Iterator<Item = &String> {
    queue.pool.iter().chain(queue.pools.keys())
}

/// Returns true if nodes of a pool are always created for requests.
fn is_queued(stack: &Stack, pool: &str) -> bool {
    stack.node_pool.get(pool).is_some_and(|pool| pool.serves_requests() == ServesRequests::Always)
}

fn quantities(context: &mut Context<'_>, section: &FieldPath, queue: &Queue) {
    for (key, given) in [("cpu", &queue.cpu), ("memory", &queue.memory)] {
        let Some(text) = given.as_deref().filter(|text| Quantity::parse(text).is_none()) else { continue };
        let finding = Diagnostic::error(Code::BadQuantity, format!("`{text}` is not a quantity"));
        let help = if key == "cpu" { "write `\"100\"` or `\"500m\"`" } else { "write `\"400Gi\"`" };
        context.say(finding.at_value(section.key(key), "").help(help));
    }
}

fn pool_of(context: &mut Context<'_>, place: &FieldPath, queue: &Queue, name: &str) {
    let stack = context.stack;
    let Some(pool) = stack.node_pool.get(name) else {
        if context.is_doubtful(&FieldPath::keys(["node_pool", name])) {
            return;
        }
        let keys = context.keys("node_pool", stack.node_pool.keys());
        let help = match nearest(name, keys.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if keys.is_empty() => "on a cluster of others give `gpus` without a pool".to_owned(),
            None => format!("this file has {}", listed(keys.iter().copied(), "and")),
        };
        let finding = Diagnostic::error(Code::UnknownPool, format!("there is no node pool `{name}`"));
        context.say(finding.at_value(place.clone(), "no such pool").help(help));
        return;
    };
    if pool.serves_requests() == ServesRequests::Perhaps {
        let what = format!(
            "the queue would request nodes of `{name}` before its work starts, and only the last way of the pool's `capacity` \
             takes requests: by the others they fail"
        );
        let finding = Diagnostic::error(Code::BadQueue, what).at_value(place.clone(), "asked for here");
        let finding = finding.at_value(FieldPath::keys(["node_pool", name, "capacity"]), "several ways");
        context.say(finding.help(
            "make two pools of it, one with `queued = true`, and list both in the queue's `pools`: Kueue tries them in the order \
             of their names",
        ));
        return;
    }
    let facts = pool.facts(name);
    if facts.gpus == 0 {
        let what = format!("the node pool `{name}` has no GPUs for a queue to hand out");
        let finding = Diagnostic::error(Code::BadQueue, what).at_value(place.clone(), "no GPUs");
        context.say(finding.help("name a pool with GPUs, or leave `pool` out: `cpu` and `memory` need none"));
        return;
    }
    let most = facts.gpus * facts.max_nodes;
    let quota = queue.quotas(|_| Some(&facts)).into_iter().find(|(pool, _)| *pool == Some(name));
    if let Some((_, gpus)) = quota.filter(|(_, gpus)| *gpus > most) {
        let what = format!("the queue hands out {gpus} GPUs of `{name}`, which has {most} at most");
        let asked = if queue.pools.is_empty() {
            place.parent().unwrap_or_default().key("gpus")
        } else {
            place.clone()
        };
        let finding = Diagnostic::warning(Code::BadQueue, what).at_value(asked, "more than there can be");
        context.say(
            finding.help("work in the queue would start and wait for nodes: lower it, or raise `nodes`"),
        );
    }
}

/// Checks that `priority` is one of the priorities of the queue.
pub(crate) fn priorities_exist(context: &mut Context<'_>) {
    for (section, priority, queue) in priorities(context.stack) {
        priority_exists(context, section.key("priority"), priority, queue);
    }
    for (key, queue) in &context.stack.queue {
        priorities_make_names(context, key, queue);
    }
}

/// Returns the work with a priority: its section, the priority, and its queue.
fn priorities(stack: &Stack) -> Vec<(FieldPath, &str, Option<&str>)> {
    let mut named: Vec<(FieldPath, &str, Option<&str>)> = Vec::new();
    for (key, cluster) in &stack.dask_cluster {
        let section = FieldPath::keys(["dask_cluster", key]);
        let queue = cluster.queue.as_deref();
        named.extend(cluster.priority.as_deref().map(|priority| (section.clone(), priority, queue)));
        for (key, group) in &cluster.group {
            let path = section.key("group").key(key);
            let queue = group.queue.as_deref().or(queue);
            named.extend(group.priority.as_deref().map(|priority| (path, priority, queue)));
        }
    }
    let dask = stack.dask_job.iter().map(|(key, job)| ("dask_job", key, &job.priority, &job.queue));
    let others = stack.job.iter().map(|(key, job)| ("job", key, &job.priority, &job.queue));
    named.extend(dask.chain(others).filter_map(|(section, key, priority, queue)| {
        Some((FieldPath::keys([section, key]), priority.as_deref()?, queue.as_deref()))
    }));
    named
}

fn priority_exists(context: &mut Context<'_>, place: FieldPath, priority: &str, queue: Option<&str>) {
    let Some(name) = queue else {
        let what = "`priority` orders the work of a queue, and this has none";
        let finding = Diagnostic::error(Code::BadQueue, what).at_value(place, "no `queue`");
        context.say(finding.help("add `queue`, or remove `priority`"));
        return;
    };
    // Of a queue of others the classes are theirs.
    let known = context.stack.queue.get(name).filter(|queue| queue.manage.is_managed());
    let Some(queue) = known.filter(|queue| !queue.priorities.contains_key(priority)) else { return };
    let help = match nearest(priority, queue.priorities.keys().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if queue.priorities.is_empty() => {
            format!("add `priorities = {{ {priority} = 1000 }}` to `[queue.{name}]`")
        }
        None => format!("it has {}", listed(queue.priorities.keys().map(String::as_str), "and")),
    };
    let what = format!("the queue `{name}` has no priority `{priority}`");
    context.say(Diagnostic::error(Code::BadQueue, what).at_value(place, "no such priority").help(help));
}

fn priorities_make_names(context: &mut Context<'_>, key: &str, queue: &Queue) {
    let place = FieldPath::keys(["queue", key, "priorities"]);
    if !queue.manage.is_managed() && !queue.priorities.is_empty() {
        let what = "the priorities of a queue that is managed elsewhere are not this stack's";
        let finding = Diagnostic::error(Code::BadQueue, what).at_key(place, "not written");
        context.say(finding.help("remove it: `priority` names a WorkloadPriorityClass of the cluster"));
        return;
    }
    for name in queue.priorities.keys() {
        let class = format!("{}-{name}", queue.live_name(key));
        if class.len() <= LABEL && names::is_object_name(&class) {
            continue;
        }
        let what = format!("`{name}` does not make a name: its class would be called `{class}`");
        let finding = Diagnostic::error(Code::BadQueue, what).at_key(place.key(name), "");
        context
            .say(finding.help("use lower case letters, digits and `-`, 63 characters with the queue's name"));
    }
}

/// Checks that the file sets the number of pods in a gang, and that Kueue can count them.
pub(crate) fn gangs_can_start(context: &mut Context<'_>) {
    let work = work(context.stack);
    number_is_the_files(context, &work);
    kueue_takes_pods(context, &work);
    one_kind_has_gpus(context, &work);
    cluster_labels_alone(context);
    not_in_a_queue_and_requested(context);
    labels_alone(context);
    said_twice(context);
}

fn number_is_the_files(context: &mut Context<'_>, work: &[Work<'_>]) {
    let replicas: BTreeMap<FieldPath, Replicas> =
        context.replicas().into_iter().map(|(place, replicas, _)| (place, replicas)).collect();
    for Work { named, section, .. } in work {
        for place in [section.key("worker").key("replicas"), section.key("replicas")] {
            let Some(Replicas::Table(given)) = replicas.get(&place) else { continue };
            let (who, help) = match given.start {
                Some(_) => {
                    ("notebooks", "give a number; more workers later are another `group`, a gang of its own")
                }
                None => (
                    "the operator's autoscaler",
                    "give a number; `queue` on a `group` with a number of its own adds workers as a gang",
                ),
            };
            let what = format!("`{section}` starts whole, but {who} would change its number of workers");
            let finding =
                Diagnostic::error(Code::CannotBeGang, what).at_value(place, "not the file's number");
            context.say(finding.at_value(named.clone(), "waits as a gang").help(help));
        }
    }
}

/// Checks that Kueue is configured for plain Pods. Reports it once, at the first gang.
fn kueue_takes_pods(context: &mut Context<'_>, work: &[Work<'_>]) {
    let takes_pods = context.stack.kueue.as_ref().and_then(crate::Kueue::takes_pods);
    let mut gangs = work.iter().filter(|work| work.parts.iter().all(|part| part.role != PodRole::Job));
    let Some(first) = gangs.next().filter(|_| takes_pods == Some(false)) else { return };
    let what = "Kueue is not configured to look at Pods: their queue would be ignored, and the cluster start in part";
    let finding =
        Diagnostic::error(Code::CannotBeGang, what).at_value(first.named.clone(), "waits as a gang");
    let finding = finding.at_key(FieldPath::keys([KUEUE]), "its `integrations.frameworks` lack `pod`");
    context.say(finding.help(
        "add `- pod` to `integrations.frameworks` of its configuration; the chart's values of `[kueue]` have it \
         by default",
    ));
}

/// Checks that only one kind of pods requests GPUs in work for which nodes are requested.
fn one_kind_has_gpus(context: &mut Context<'_>, work: &[Work<'_>]) {
    let stack = context.stack;
    for Work { queue, section, parts, .. } in work {
        let mut pools = stack.queue.get(*queue).into_iter().flat_map(served);
        let Some(pool) = pools.find(|pool| is_queued(stack, pool)) else { continue };
        let with_gpus: Vec<&Part<'_>> =
            parts.iter().filter(|part| part.keys.gpus() > 0 && part.count > 0).collect();
        let [one, other, ..] = with_gpus.as_slice() else { continue };
        let what =
            format!("nodes of `{pool}` are requested for one kind of pod, but `{section}` has two with GPUs");
        let finding = Diagnostic::error(Code::CannotBeGang, what).at_value(one.path.key("gpus"), "one");
        let finding = finding.at_value(other.path.key("gpus"), "another");
        context
            .say(finding.help("give GPUs to the workers only, or put the others into a queue of their own"));
    }
}

fn cluster_labels_alone(context: &mut Context<'_>) {
    for (key, cluster) in context.stack.dask_cluster.iter().filter(|(_, cluster)| cluster.queue.is_none()) {
        if cluster.labels.contains_key(gang::QUEUE) {
            let place = FieldPath::keys(["dask_cluster", key, "labels", gang::QUEUE]);
            let help = "replace it by `queue = \"NAME\"`, which also counts its pods";
            context.say(no_gang(place).help(help));
        }
    }
}

fn not_in_a_queue_and_requested(context: &mut Context<'_>) {
    let stack = context.stack;
    let jobs = stack.job.iter().filter(|(_, job)| job.queue.is_some());
    for (key, _) in jobs.filter(|(key, _)| stack.request_of(key).is_some()) {
        let place = FieldPath::keys(["job", key, "queue"]);
        let what =
            "a job waits in a queue, or for nodes that a `[provisioning_request]` asks for: not for both";
        let finding = Diagnostic::error(Code::CannotBeGang, what).at_value(place, "in a queue");
        context.say(
            finding.help(
                "remove the request: the queue of a pool with `queued = true` asks for its nodes itself",
            ),
        );
    }
}

/// Returns the error for the label of a queue that does not make a gang.
fn no_gang(place: FieldPath) -> Diagnostic {
    let what = "with the label alone each pod waits by itself: the cluster would start in part";
    Diagnostic::error(Code::CannotBeGang, what).at_value(place, "no gang")
}

/// Checks that gangs in a namespace have unique names: two with the same name would count as one, and neither would start.
pub(crate) fn gangs_have_names_of_their_own(context: &mut Context<'_>) {
    let mut seen: BTreeMap<(&str, String), FieldPath> = BTreeMap::new();
    for Work { section, gang, .. } in work(context.stack) {
        let Some(gang) = gang else { continue };
        let Some(first) = seen.get(&gang) else {
            seen.insert(gang, section);
            continue;
        };
        let what = format!("`{first}` and `{section}` would be one gang, `{}`", gang.1);
        let finding = Diagnostic::error(Code::SameName, what).at_key(section, "again here");
        context.say(finding.at_key(first.clone(), "first here").help("give one of them another `name`"));
    }
}

/// Reports the label of a queue without that of a gang: each pod would be separate work.
fn labels_alone(context: &mut Context<'_>) {
    let mut found: Vec<FieldPath> = Vec::new();
    let alone = |labels: &BTreeMap<String, String>| {
        labels.contains_key(gang::QUEUE) && !labels.contains_key(gang::POD_GROUP_LABEL)
    };
    for pods in context.pods().iter().filter(|pods| pods.role.is_dask() && alone(&pods.keys.labels)) {
        found.push(pods.path.key("labels").key(gang::QUEUE));
    }
    let bundles = context.stack.bundles();
    let dask = |object: &bundle::Object<'_>| object.group_version().0 == DASK_GROUP;
    for object in bundle::objects(&bundles).filter(dask) {
        labels_in(object.value, &object.origin(), &mut found);
    }
    for place in found {
        context.say(no_gang(place).help(
            "replace it by `queue = \"NAME\"` of a Dask cluster, group or job, which also counts its pods; in a manifest add \
             the labels and annotations of a pod group",
        ));
    }
}

fn labels_in(value: &serde_json::Value, path: &FieldPath, found: &mut Vec<FieldPath>) {
    let Some(fields) = value.as_object() else { return };
    let labels = &value["metadata"]["labels"];
    if labels.get(gang::QUEUE).is_some() && labels.get(gang::POD_GROUP_LABEL).is_none() {
        found.push(path.key("metadata").key("labels").key(gang::QUEUE));
    }
    for (key, value) in fields {
        labels_in(value, &path.key(key), found);
    }
}

/// Returns true if work in a queue waits for nodes that are created for it.
fn asks_for_nodes(stack: &Stack, queue: &str) -> bool {
    stack.queue.get(queue).into_iter().flat_map(served).any(|pool| is_queued(stack, pool))
}

/// Checks work for which nodes are created all at once: a request has a maximum of nodes, and its pods must not have
/// anti-affinity.
pub(crate) fn work_has_nodes(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut seen: BTreeSet<FieldPath> = BTreeSet::new();
    for Work { queue, section, parts, .. } in work(stack) {
        let asks = asks_for_nodes(stack, queue);
        let mut needs: BTreeMap<&str, (u64, FieldPath)> = BTreeMap::new();
        for part in &parts {
            let place = part.path.key("pod");
            if asks && seen.insert(place.clone()) {
                anti_affinity(context, part.keys.pod.as_ref().map(|pod| &pod.0), &place);
            }
            let gpus = part.keys.gpus();
            let Some((name, pool)) =
                part.keys.pool.as_deref().and_then(|name| Some((name, context.pool(name)?)))
            else {
                continue;
            };
            // Pods that fit no node are reported elsewhere.
            let Some(each) = pool.allocatable_gpus().checked_div(gpus).filter(|each| *each > 0) else {
                continue;
            };
            let nodes = u64::from(part.count).div_ceil(u64::from(each));
            let number = if part.role == PodRole::Worker { "replicas" } else { "gpus" };
            let (all, _) = needs.entry(name).or_insert((0, part.path.key(number)));
            *all += nodes;
        }
        for (name, (nodes, place)) in needs {
            let Some(pool) = context.pool(name) else { continue };
            let known = pool.manage.is_managed() || pool.nodes.is_some();
            let most = u64::from(pool.size().most());
            let at_pool = FieldPath::keys(["node_pool", name, "nodes"]);
            let (most, what) = match (known, asks) {
                (true, _) if nodes > most => (most, format!("the pool `{name}` has at most {most}")),
                (_, true) if nodes > MAX_NODES => {
                    (MAX_NODES, format!("GKE makes at most {MAX_NODES} for one request"))
                }
                _ => continue,
            };
            let message = format!("`{section}` starts whole and needs {nodes} nodes at once, and {what}");
            let finding =
                Diagnostic::error(Code::NeverFits, message).at_value(place, "too many to start together");
            let finding =
                if most == MAX_NODES { finding } else { finding.at_value(at_pool, "not more than these") };
            context.say(finding.help("ask for fewer pods, or split the work into several pieces"));
        }
    }
}

/// Reports labels and annotations of a gang in the file, as dask-infra computes them.
fn said_twice(context: &mut Context<'_>) {
    for (key, cluster) in context.stack.dask_cluster.iter().filter(|(_, cluster)| cluster.queue.is_some()) {
        let section = FieldPath::keys(["dask_cluster", key]);
        let given = [("labels", &cluster.labels), ("annotations", &cluster.annotations)];
        for (map, entries) in given {
            for entry in [gang::QUEUE, gang::POD_GROUP_LABEL, gang::COUNT, gang::RETRIABLE] {
                if entries.contains_key(entry) {
                    let place = section.key(map).key(entry);
                    let finding = Diagnostic::error(Code::SaidTwice, format!("`queue` sets `{entry}`"));
                    let finding =
                        finding.at_value(place, "again here").at_value(section.key("queue"), "set by this");
                    context.say(finding.help("remove it"));
                }
            }
        }
    }
}

/// Reports work that asks for more than its queue hands out, which would wait forever.
pub(crate) fn gangs_fit_their_queue(context: &mut Context<'_>) {
    let stack = context.stack;
    let pools: BTreeMap<&str, PoolFacts> =
        stack.node_pool.iter().map(|(key, pool)| (key.as_str(), pool.facts(key))).collect();
    for work in work(stack) {
        // External queues cannot be changed here, and a cohort may lend more than this file shows.
        let known = stack.queue.get(work.queue);
        let closed = known.filter(|queue| queue.manage.is_managed() && queue.cohort.is_none());
        let Some(queue) = closed else { continue };
        let quotas = queue.quotas(|key| pools.get(key));
        gpus_are_served(context, &work, &quotas);
        gpus_fit(context, &work, queue, &quotas);
        quantities_fit(context, &work, queue);
    }
}

/// The GPU quotas of a queue, each for a pool or for any pool.
type Quotas<'a> = [(Option<&'a str>, u32)];

/// Returns the quotas that serve work on a pool.
fn serving<'q>(quotas: &'q Quotas<'_>, pool: Option<&str>) -> impl Iterator<Item = u32> + 'q {
    let pool = pool.map(str::to_owned);
    let serves = move |served: Option<&str>| served.is_none() || pool.is_none() || served == pool.as_deref();
    quotas.iter().filter(move |(served, _)| serves(*served)).map(|(_, gpus)| *gpus)
}

fn gpus_are_served(context: &mut Context<'_>, work: &Work<'_>, quotas: &Quotas<'_>) {
    let Work { queue: name, section, parts, .. } = work;
    for part in parts.iter().filter(|part| part.keys.gpus() > 0 && part.count > 0) {
        let pool = part.keys.pool.as_deref();
        if serving(quotas, pool).next().is_some() {
            continue;
        }
        let role = part.role;
        let what = match pool {
            Some(pool) if !quotas.is_empty() => {
                format!(
                    "{role} of `{section}` runs on `{pool}`, of which the queue `{name}` hands out nothing"
                )
            }
            _ => format!("{role} of `{section}` needs GPUs, of which the queue `{name}` hands out none"),
        };
        let finding = never_fits(what, part.path.key("gpus"), FieldPath::keys(["queue", name]));
        context.say(finding.help("add the pool to the queue's `pools`, or name another queue"));
    }
}

fn gpus_fit(context: &mut Context<'_>, work: &Work<'_>, queue: &Queue, quotas: &Quotas<'_>) {
    let Work { queue: name, section, parts, .. } = work;
    let mut asked: BTreeMap<Option<&str>, u32> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.keys.gpus() > 0 && part.count > 0) {
        *asked.entry(part.keys.pool.as_deref()).or_default() += part.count * part.keys.gpus();
    }
    for (pool, gpus) in asked {
        let Some(most) = serving(quotas, pool).max().filter(|most| gpus > *most) else { continue };
        let what = format!(
            "`{section}` needs {} at once, and the queue `{name}` hands out {most}: it would wait forever",
            counted(gpus, "GPU")
        );
        let largest = parts.iter().max_by_key(|part| part.count * part.keys.gpus());
        let place = largest.map_or(section.clone(), |part| match part.role {
            PodRole::Worker => part.path.key("replicas"),
            _ => part.path.key("gpus"),
        });
        let key = if queue.pools.is_empty() { "gpus" } else { "pools" };
        let finding = never_fits(what, place, FieldPath::keys(["queue", name, key]));
        context.say(finding.help("raise the quota, ask for less, or put some workers into a `group`"));
    }
}

fn quantities_fit(context: &mut Context<'_>, work: &Work<'_>, queue: &Queue) {
    let Work { queue: name, section, parts, .. } = work;
    for (key, given) in [("cpu", &queue.cpu), ("memory", &queue.memory)] {
        let Some((text, most)) = given.as_deref().and_then(|text| Some((text, Quantity::parse(text)?)))
        else {
            continue;
        };
        let asks = |part: &Part<'_>| {
            let text = if key == "cpu" { &part.keys.cpu } else { &part.keys.memory };
            text.as_deref().and_then(Quantity::parse).unwrap_or_default().times(part.count)
        };
        if parts.iter().map(asks).fold(Quantity::default(), Quantity::plus) > most {
            let what = format!(
                "the pods of `{section}` need more {key} at once than the {text} that the queue `{name}` hands out: it \
                 would wait forever"
            );
            let largest = parts.iter().max_by_key(|part| asks(part));
            let place = largest.map_or(section.clone(), |part| part.path.key(key));
            let finding = never_fits(what, place, FieldPath::keys(["queue", name, key]));
            context.say(finding.help("raise the quota, or ask for less"));
        }
    }
}

fn never_fits(what: String, place: FieldPath, quota: FieldPath) -> Diagnostic {
    let finding = Diagnostic::error(Code::NeverFits, what).at_value(place, "asked for here");
    finding.at_value(quota, "handed out here")
}

/// Reports objects of Kueue in the older API version, which guides use.
pub(crate) fn objects_are_of_the_newer_version(context: &mut Context<'_>) {
    let stack = context.stack;
    if !stack.kueue.as_ref().is_some_and(crate::Kueue::is_newer) {
        return;
    }
    let bundles = stack.bundles();
    for object in bundle::objects(&bundles).filter(|object| v1beta1::is_older(object.value)) {
        let dropped = v1beta1::dropped(object.value);
        let mut finding = Diagnostic::warning(
            Code::OlderKueue,
            format!("the {} `{}` is written as kueue.x-k8s.io/v1beta2", object.kind(), object.name()),
        )
        .at_value(object.origin().key("apiVersion"), "of an older version");
        for (keys, becomes) in dropped {
            let place = keys.iter().fold(object.origin(), |path, key| path.key(key));
            finding = finding.at_key(place, becomes);
        }
        context.say(finding.help("write v1beta2 in the file, so that it says what is applied"));
    }
}
