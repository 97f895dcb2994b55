//! Checks of `ttl`, `idle_stop` and `idle_timeout` of Dask clusters.

use crate::DaskCluster;
use crate::rules::Context;
use kinds::dask::expiry::{After, ExpiryCause, MAX_SECONDS, MIN_SECONDS};
use kinds::dask::idle::{IdleTable, IdleTimeout};
use kinds::short_forms::seconds;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

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

fn of_time(context: &mut Context<'_>, place: &FieldPath, after: &After) {
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
