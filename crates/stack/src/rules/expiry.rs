//! Checks of `ttl`, `idle_stop` and `idle_timeout` of Dask clusters, and of `ttl` and `idle_stop` of the stack.

use crate::lower::expiry_pool;
use crate::rules::Context;
use crate::{Cluster, DaskCluster};
use kinds::dask::expiry::{After, ExpiryCause, ExpiryTable, MAX_SECONDS, MIN_SECONDS};
use kinds::dask::idle::{IdleTable, IdleTimeout};
use kinds::section::managed;
use kinds::short_forms::seconds;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::resource::Resource;

/// Checks that `idle_timeout` is a number of seconds or a duration.
pub(crate) fn idle_timeouts_are_times(context: &mut Context<'_>) {
    for (key, cluster) in &context.stack.dask_cluster {
        if cluster.idle_timeout == Some(IdleTimeout::Text(None)) {
            let place = FieldPath::keys(["dask_cluster", key, "idle_timeout"]);
            let finding = Diagnostic::error(Code::BadDuration, "this is not a duration").at_value(place, "");
            context.say_of_value(finding.help("write seconds, or `30m`, `1h` or `2d`"));
        }
    }
}

/// Returns the first flex-start pool that the cluster's workers name, with the path of the key that names it.
fn of_flex_start<'a>(
    context: &Context<'a>,
    path: &FieldPath,
    cluster: &'a DaskCluster,
) -> Option<(FieldPath, &'a str)> {
    let groups = cluster.group.iter().map(|(key, group)| (path.key("group").key(key), &group.keys));
    let mut all = std::iter::once((path.key("worker"), &cluster.worker.keys)).chain(groups);
    all.find_map(|(place, keys)| {
        let pool = keys.pool.as_deref()?;
        let waits = context.pool(pool)?.flex_start == Some(true);
        waits.then(|| (place.key("pool"), pool))
    })
}

/// Checks that `ttl` and `idle_stop` are valid durations, and that no other key contradicts them.
pub(crate) fn expiry_is_valid(context: &mut Context<'_>) {
    for (key, cluster) in &context.stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key]);
        for (cause, after) in cluster.expirations() {
            let place = path.key(cause.key());
            of_time(context, &place, after);
            if !cluster.manage.is_managed() {
                let message = format!("`{}` does not delete the Dask cluster `{key}` of others", cause.key());
                let finding = Diagnostic::error(Code::OthersCluster, message)
                    .at_value(place.clone(), "has no effect")
                    .at_value(path.key("manage"), "others own it");
                context.say(finding.help(format!("remove `{}`", cause.key())));
            }
            if cluster.lifecycle.protect {
                let message = format!("`{}` deletes the protected Dask cluster `{key}`", cause.key());
                let finding = Diagnostic::error(Code::TtlProtected, message)
                    .at_value(place.clone(), "deletes it")
                    .at_value(path.key("protect"), "never deleted");
                context.say(finding.help("remove one of the two"));
            }
            match cause {
                ExpiryCause::Ttl => of_ttl(context, key, &path, cluster),
                ExpiryCause::IdleStop => of_idle_stop(context, key, &path, cluster),
            }
        }
        let name = cluster.live_name(key);
        let strictest =
            cluster.expirations().map(|(cause, _)| cause).min_by_key(|cause| cause.longest_name());
        if let Some(cause) = strictest.filter(|cause| name.len() > cause.longest_name()) {
            let message = format!("the name `{name}` leaves no room for `{}`", cause.suffix());
            let at = if cluster.name.is_some() { path.key("name") } else { path.clone() };
            let (key, most) = (cause.key(), cause.longest_name());
            let help = format!("a Dask cluster with `{key}` has a `name` of at most {most} characters");
            context.say(Diagnostic::error(Code::TtlName, message).at_value(at, "").help(help));
        }
    }
}

fn of_time<Table>(context: &mut Context<'_>, place: &FieldPath, after: &After<Table>)
where
    Table: ExpiryTable,
{
    let value = match after {
        After::Time(_) => place.clone(),
        After::Table(_) => place.key("after"),
    };
    let text = after.text();
    let wrong = match seconds(text) {
        None => Some((format!("`{text}` is not a time"), "write `45m`, `8h`, `2d` or `1h30m`")),
        Some(short) if short < MIN_SECONDS => {
            Some((format!("`{text}` is too short"), "10 minutes are the least: it is looked at every five"))
        }
        Some(long) if long > MAX_SECONDS => Some((format!("`{text}` is too long"), "365 days are the most")),
        Some(_) => None,
    };
    if let Some((message, help)) = wrong {
        context.say(Diagnostic::error(Code::TtlValue, message).at_value(value, "").help(help));
    }
}

fn of_ttl(context: &mut Context<'_>, key: &str, path: &FieldPath, cluster: &DaskCluster) {
    let place = path.key("ttl");
    if cluster.queue.is_none()
        && let Some((worker, pool)) = of_flex_start(context, path, cluster)
    {
        let message = format!("the `ttl` of `{key}` counts while its workers wait for machines of `{pool}`");
        let finding = Diagnostic::warning(Code::TtlWaits, message)
            .at_value(place.clone(), "counts from the creation")
            .at_value(worker, "may wait for days");
        context.say(finding.help(
            "make it longer than that wait may be, put the cluster into a `queue`, or use `idle_stop`, whose time \
             begins with the first worker",
        ));
    }
    if let Some(IdleTimeout::Table(IdleTable { remake: true, .. })) = cluster.idle_timeout {
        let message =
            format!("the Dask cluster `{key}` is to stay gone after its `ttl`, and to be recreated");
        let finding = Diagnostic::error(Code::TtlRemake, message)
            .at_value(place, "stays gone")
            .at_value(path.key("idle_timeout").key("remake"), "recreated by the next apply");
        context.say(finding.help("remove `remake`, or the `ttl`"));
    }
}

fn of_idle_stop(context: &mut Context<'_>, key: &str, path: &FieldPath, cluster: &DaskCluster) {
    if cluster.idle_timeout.is_some_and(|idle| idle.seconds() > 0) {
        let message = format!("two keys delete the Dask cluster `{key}` when it has no work");
        let finding = Diagnostic::error(Code::IdleTwice, message)
            .at_value(path.key("idle_stop"), "a CronJob does")
            .at_value(path.key("idle_timeout"), "the operator does");
        context.say(finding.help("remove one of the two"));
    }
}

/// Checks that `ttl` and `idle_stop` of the stack are valid durations, and that they can do what they say.
pub(crate) fn stack_expiry_is_valid(context: &mut Context<'_>) {
    let stack = context.stack;
    for (cause, after) in stack.stack.expirations() {
        let place = FieldPath::keys(["stack", cause.key()]);
        if stack.is_on_hosts() {
            let message = format!("`{}` of the stack needs a Kubernetes cluster", cause.key());
            let finding =
                Diagnostic::error(Code::StackExpiry, message).at_value(place, "a CronJob stops the stack");
            context.say(
                finding.help("on hosts, write `ttl` or `idle_timeout` into the sections of Dask clusters"),
            );
            continue;
        }
        of_time(context, &place, after);
        if cause == ExpiryCause::IdleStop && stack.dask_cluster.is_empty() {
            let finding = Diagnostic::error(Code::StackExpiry, "`idle_stop` needs a Dask cluster")
                .at_value(place.clone(), "asks its scheduler for work");
            context.say(finding.help("use `ttl`, or add a `[dask_cluster.NAME]`"));
        }
        let owned = stack.cluster.as_ref().filter(|cluster| cluster.manage.is_managed());
        if after.destroys() && owned.is_none() {
            let message = "`destroy` deletes a GKE cluster of the stack, and there is none";
            let finding = Diagnostic::error(Code::StackExpiry, message).at_value(place.key("destroy"), "");
            context.say(finding.help("remove `destroy`"));
        }
    }
    if !stack.is_on_hosts() {
        for_protected(context);
        of_google(context);
    }
}

/// Checks that nothing with `protect` is deleted.
fn for_protected(context: &mut Context<'_>) {
    let Some((cause, _)) = context.stack.stack.expirations().next() else { return };
    let destroys = context.stack.stack.expirations().any(|(_, after)| after.destroys());
    let lowered = context.take_lowered();
    let goes = |resource: &&Resource| {
        resource.protect && (destroys || kinds::of(resource.kind).stop_effect.deletes())
    };
    for resource in lowered.resources.iter().filter(goes) {
        let message = format!("`{}` of the stack deletes the protected `{}`", cause.key(), resource.address);
        let finding = Diagnostic::error(Code::TtlProtected, message)
            .at_value(FieldPath::keys(["stack", cause.key()]), "deletes it")
            .at_value(resource.origin.key("protect"), "never deleted");
        context.say_once(finding.help("remove one of the two"));
    }
    context.lowered = Some(lowered);
}

/// Checks the right to change node pools, which comes with workload identity, and the node that the CronJobs need.
fn of_google(context: &mut Context<'_>) {
    let stack = context.stack;
    let Some((cause, _)) = stack.stack.expirations().next() else { return };
    let place = FieldPath::keys(["stack", cause.key()]);
    let has_pools = managed(&stack.node_pool).next().is_some();
    let changes_gke = has_pools || stack.stack.expirations().any(|(_, after)| after.destroys());
    if !changes_gke {
        return;
    }
    let lacks_identity = |cluster: &&Cluster| {
        cluster.manage.is_managed() && !cluster.autopilot && cluster.workload_identity != Some(true)
    };
    if stack.cluster.as_ref().filter(lacks_identity).is_some() {
        let message = format!("`{}` of the stack needs `workload_identity`", cause.key());
        let finding = Diagnostic::error(Code::StackExpiry, message)
            .at_value(place.clone(), "changes node pools with the identity of a ServiceAccount")
            .at_value(FieldPath::keys(["cluster"]), "its Pods have none");
        context.say(finding.help("add `workload_identity = true` to `[cluster]`"));
    }
    if has_pools && expiry_pool(stack).is_none() {
        let message = format!("`{}` of the stack needs a node at any time", cause.key());
        let finding = Diagnostic::error(Code::StackExpiry, message)
            .at_value(place, "a CronJob that looks every five minutes");
        context.say(finding.help(
            "give one pool without GPUs and taints a fixed number of nodes, or a minimum of 1, without `flex_start` and \
             `workload_metadata = \"gce\"`",
        ));
    }
}
