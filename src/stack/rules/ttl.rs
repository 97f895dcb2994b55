//! `ttl` of Dask clusters.

use super::Context;
use crate::address::FieldPath;
use crate::diag::{Code, Diagnostic};
use crate::kinds::dask::idle::{IdleTable, IdleTimeout};
use crate::kinds::dask::ttl::{LONGEST, LONGEST_NAME, SHORTEST, Ttl};
use crate::kinds::short::seconds;
use crate::stack::DaskCluster;

/// `idle_timeout` is seconds or a time.
pub(super) fn idle_timeouts_are_times(context: &mut Context<'_>) {
    for (key, cluster) in &context.stack.dask_cluster {
        if cluster.idle_timeout == Some(IdleTimeout::Written(None)) {
            let place = FieldPath::keys(["dask_cluster", key, "idle_timeout"]);
            let finding = Diagnostic::error(Code::BadDuration, "this is not a duration").at_value(place, "");
            context.say(finding.help("write seconds, or `30m`, `1h` or `2d`"));
        }
    }
}

/// Where workers name a pool of flex-start, and that.
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

/// A ttl is a time, and nothing else says the opposite of it.
pub(super) fn ttls_are_valid(context: &mut Context<'_>) {
    for (key, cluster) in &context.stack.dask_cluster {
        let Some(ttl) = &cluster.ttl else { continue };
        let path = FieldPath::keys(["dask_cluster", key]);
        let place = path.key("ttl");
        let value = match ttl {
            Ttl::After(_) => place.clone(),
            Ttl::Table(_) => place.key("after"),
        };
        let text = ttl.text();
        let wrong = match seconds(text) {
            None => Some((format!("`{text}` is not a time"), "write `45m`, `8h`, `2d` or `1h30m`")),
            Some(short) if short < SHORTEST => Some((
                format!("`{text}` is too short"),
                "10 minutes are the least: it is looked at every five",
            )),
            Some(long) if long > LONGEST => Some((format!("`{text}` is too long"), "365 days are the most")),
            Some(_) => None,
        };
        if let Some((message, help)) = wrong {
            context.say(Diagnostic::error(Code::TtlValue, message).at_value(value, "").help(help));
        }
        if cluster.queue.is_none()
            && let Some((worker, pool)) = of_flex_start(context, &path, cluster)
        {
            let message =
                format!("the `ttl` of `{key}` counts while its workers wait for machines of `{pool}`");
            let finding = Diagnostic::warning(Code::TtlWaits, message)
                .at_value(place.clone(), "counts from the creation")
                .at_value(worker, "may wait for days");
            context
                .say(finding.help("make it longer than that wait may be, or put the cluster into a `queue`"));
        }
        if cluster.lifecycle.protect {
            let message = format!("`ttl` deletes the protected Dask cluster `{key}`");
            let finding = Diagnostic::error(Code::TtlProtected, message)
                .at_value(place.clone(), "deletes it")
                .at_value(path.key("protect"), "never deleted");
            context.say(finding.help("remove one of the two"));
        }
        if let Some(IdleTimeout::Table(IdleTable { remake: true, .. })) = cluster.idle_timeout {
            let message =
                format!("the Dask cluster `{key}` is to stay gone after its `ttl`, and to be recreated");
            let finding = Diagnostic::error(Code::TtlRemake, message)
                .at_value(place.clone(), "stays gone")
                .at_value(path.key("idle_timeout").key("remake"), "recreated by the next apply");
            context.say(finding.help("remove `remake`, or the `ttl`"));
        }
        let name = cluster.live_name(key);
        if name.len() > LONGEST_NAME {
            let message = format!("the name `{name}` leaves no room for `-ttl`");
            let at = if cluster.name.is_some() { path.key("name") } else { path.clone() };
            let finding = Diagnostic::error(Code::TtlName, message);
            let help =
                format!("a Dask cluster with a `ttl` has a `name` of at most {LONGEST_NAME} characters");
            context.say(finding.at_value(at, "").help(help));
        }
    }
}
