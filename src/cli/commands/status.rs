//! `status`: the live state of a stack, and what its pods wait for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::Exit;
use crate::cli::commands::plan::parallelism;
use crate::cli::completion_values;
use crate::cli::session::{Link, Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::report::brief;
use crate::report::human::cost::RunningCost;
use crate::report::status::{Row, State, Status};
use apply::ApplyOptions;
use kinds::dask::check;
use kinds::dask::expiry::{self, ExpiryCause};
use kinds::kind::QueryResults;
use kinds::kubernetes::flex_start;
use kinds::kubernetes::pods::{not_scaled_by_events, why_by_events};
use kinds::status::StatusLine;
use live::{LiveApi, probe};
use model::record::Stopped;
use model::resource::{Api, Await, Identity, KindId, Owner, Query, Readiness, Resource, World};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra status                  a line for each section\n  \
    dask-infra status -v               every object\n  \
    dask-infra status rapids           one section, with each of its objects\n  \
    dask-infra status --watch          updates on every change, until everything is ready\n  \
    dask-infra status --follow         a line for each change, until everything is ready or has failed\n  \
    dask-infra status --json | jq '.things[] | select(.state != \"ready\")'\n\
    \n\
    Reads only. Exits with 0 even when something is not ready; see `ready` of `--json`. With `--follow` it exits with 1 \
    when something has failed.";

/// Options of `status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only this: a section of the stack, or an object of one; any unique ending works
    #[arg(value_name = "ADDRESS", add = completion_values::addresses())]
    address: Option<String>,
    /// Check every two seconds and print what changed, until everything is ready
    #[arg(long)]
    watch: bool,
    /// Check every five seconds and print a line for each thing whose state changed, until all are ready, stopped or
    /// failed
    #[arg(short, long, conflicts_with = "watch")]
    follow: bool,
    /// Print JSON: one object, with `--watch` or `--follow` one for each change
    #[arg(long)]
    json: bool,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    parallelism: usize,
}

/// The polling interval of `--watch`.
const WATCH: Duration = Duration::from_secs(2);
/// The polling interval of `--follow`, which may run for days.
const FOLLOW: Duration = Duration::from_secs(5);

/// Shows the live state.
pub fn status(settings: &Settings, args: &Args) -> Exit {
    settings.report(Format::Text, |reporter| {
        let session = Session::load(settings)?;
        let found = match &args.address {
            Some(address) => session.find(address)?.into_iter().map(|found| found.identity.clone()).collect(),
            None => Vec::new(),
        };
        block_on(async {
            let link = session.connect(settings)?;
            session.read_prices(&link).await?;
            reporter.diagnostics(session.price_warnings(), session.sources());
            if args.follow {
                return follow(settings, args, (&session, link), &found).await;
            }
            let mut before = String::new();
            loop {
                link.api().skip_unreachable_hosts();
                let status = status_of(&session, &link, &found, args.parallelism).await?;
                reporter.diagnostics(&session.skipped_hosts(&link), session.sources());
                let text = shown(settings, args, &status);
                if text != before && settings.print(&text) != Exit::Done
                    || !args.watch
                    || status.is_ready_or_stopped()
                {
                    break;
                }
                before = text;
                tokio::time::sleep(WATCH).await;
            }
            let exit = if session.skipped_hosts(&link).is_empty() { Exit::Done } else { Exit::Error };
            link.close().await?;
            Ok(exit)
        })
    })
}

/// Prints the status once, and then each change. Failed reads are retried.
async fn follow(
    settings: &Settings,
    args: &Args,
    (session, link): (&Session, Link),
    found: &[Identity],
) -> Result<Exit, Failure> {
    link.api().skip_unreachable_hosts();
    let mut status = status_of(session, &link, found, args.parallelism).await?;
    let mut printed = settings.print(&shown(settings, args, &status));
    while printed == Exit::Done && !status.is_over() {
        tokio::time::sleep(FOLLOW).await;
        link.api().skip_unreachable_hosts();
        let Ok(now) = status_of(session, &link, found, args.parallelism).await else { continue };
        let moment = Timestamp::now();
        let lines: String =
            now.changes(&status).iter().map(|change| change.shown(args.json, moment)).collect();
        if !lines.is_empty() {
            printed = settings.print(&lines);
        }
        status = now;
    }
    link.close().await?;
    Ok(if status.has_failed() { Exit::Error } else { printed })
}

fn shown(settings: &Settings, args: &Args, status: &Status) -> String {
    match args.json {
        true if args.watch || args.follow => format!("{}\n", status.json()),
        true => format!("{:#}\n", status.json()),
        false => {
            let every = settings.is_verbose() || args.address.is_some();
            let text = status.text(every, settings.screen().data_look().width);
            if args.watch || args.follow { format!("{text}\n") } else { text }
        }
    }
}

/// Returns the status of the stack, or of the selected part.
pub(crate) async fn status_of(
    session: &Session,
    link: &Link,
    found: &[Identity],
    parallelism: usize,
) -> Result<Status, Failure> {
    let world = session.world(link, parallelism).await?;
    let lowered = session.lowered();
    let api = link.api();
    let external = lowered.external.iter().map(|external| &external.resource);
    let resources =
        plan::propose::fallback::with_current_options(&lowered.resources, &lowered.capacity_options, &world);
    let meant = |resource: &&Resource| found.is_empty() || found.contains(&resource.identity);
    let all = external.chain(&resources).filter(meant);
    let stopped = plan::stop::stopped(&resources, &lowered.external, &world);
    let looks = all.map(|resource| row(&*api, resource, &lowered.owner, &world, &stopped));
    let mut rows: Vec<Row> = futures::stream::iter(looks).buffered(parallelism.max(1)).collect().await;
    // External resources are not on this stack's bill.
    let others = lowered.external.iter().map(|external| &external.resource.identity);
    let others: BTreeSet<&Identity> = others.collect();
    rows.iter_mut().filter(|row| others.contains(&row.identity)).for_each(|row| row.said.billed.clear());
    without_nodes(&mut rows, &resources, &world, &stopped);
    add_event_reasons(&*api, &mut rows).await;
    let billed = rows.iter().flat_map(|row| &row.said.billed);
    let cost = RunningCost::of(&lowered.target, billed, session.prices());
    Ok(Status { owner: lowered.owner.clone(), target: lowered.target.clone(), rows, cost })
}

pub(crate) async fn row(
    api: &dyn LiveApi,
    resource: &Resource,
    owner: &Owner,
    world: &World,
    stopped: &Stopped,
) -> Row {
    let live = world.find(&resource.identity);
    let (address, identity) = (resource.address.clone(), resource.identity.clone());
    if let Some(state) = stopped_state(resource, live, world, stopped) {
        return Row { address, identity, state, said: StatusLine::default() };
    }
    let (state, said) = match (&resource.identity, live) {
        (Identity::Check(_), _) => {
            let state = check_state(resource, world);
            let line = match state {
                State::Ready => "passed",
                State::Absent => "it has not passed yet",
                _ => "",
            };
            (state, StatusLine { line: line.to_owned(), ..StatusLine::default() })
        }
        (_, None) => (State::Absent, ended_by_itself(resource, world)),
        (_, Some(live)) => {
            let (resource, instead) = with_live_size(resource, world);
            match kinds::of(resource.kind).keep_wait(&resource, owner, live) {
                None => (State::Ready, StatusLine::default()),
                Some(wait) => {
                    let (state, mut said) = judge(api, &wait, world).await;
                    if let Some(instead) = instead {
                        said.line.push_str(&instead);
                    }
                    if let Some(end) = end_of_stack(&resource, live, world) {
                        said.line = format!("{end}; {}", said.line);
                    }
                    if expiry::is_of_stack(&resource) && has_failed_looks(live, Timestamp::now()) {
                        let why = "its looks fail, so nothing stops the stack; `kubectl -n dask-infra get jobs,pods` has them";
                        return Row { address, identity, state: State::Failed(why.to_owned()), said };
                    }
                    (state, said)
                }
            }
        }
    };
    Row { address, identity, state, said }
}

/// How long a CronJob that looks every five minutes may go without a look that worked.
const LOOKS: SignedDuration = SignedDuration::from_mins(20);

/// Returns true if a CronJob has looked for a while, and no look of late has worked.
fn has_failed_looks(job: &Value, now: Timestamp) -> bool {
    let time = |value: &Value| value.as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let status = &job["status"];
    let since = time(&status["lastSuccessfulTime"]).or(time(&job["metadata"]["creationTimestamp"]));
    let is_old = |since: Timestamp| now.duration_since(since) > LOOKS;
    status["lastScheduleTime"].is_string() && since.is_some_and(is_old)
}

/// Returns when a `ttl` of the stack is over: `stops the stack in 3h 12m, at 2026-11-29T20:00:00Z`.
fn end_of_stack(job: &Resource, live: &Value, world: &World) -> Option<String> {
    let effect = expiry::effect(job).filter(|_| job.origin.last_key() == Some(ExpiryCause::Ttl.key()))?;
    let seconds = expiry::seconds_of(job)?;
    let started = world.record.as_ref().and_then(|record| record.started.as_deref());
    let created = live["metadata"]["creationTimestamp"].as_str();
    let times = created.into_iter().chain(started).filter_map(|at| at.parse::<Timestamp>().ok());
    let end = times.max()?.checked_add(SignedDuration::from_secs(seconds)).ok()?;
    let left = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default();
    Some(match left.is_zero() {
        true => format!("{effect}: its time is over since {end}"),
        false => format!("{effect} in {}, at {end}", brief(left)),
    })
}

/// Returns the message for a Dask cluster on hosts that has ended because its `ttl` or `idle_stop` was over.
fn ended_by_itself(resource: &Resource, world: &World) -> StatusLine {
    let was_made =
        world.record.as_ref().is_some_and(|record| record.completed.contains_key(&resource.identity));
    let ends = kinds::hosts::cluster::ends(&resource.body);
    let ends = ends.filter(|_| was_made && resource.kind == KindId::HostCluster);
    let address = &resource.address;
    let line = ends.map(|ends| format!("it ends {ends}; `dask-infra start {address}` recreates it"));
    StatusLine { line: line.unwrap_or_default(), ..StatusLine::default() }
}

/// Returns a pool with the number of nodes that was last requested by anyone, which is the number that GKE creates. If the stack
/// file has another number, also returns a note for the end of the line.
fn with_live_size<'r>(resource: &'r Resource, world: &World) -> (Cow<'r, Resource>, Option<String>) {
    let size = resource.identity.pool().and_then(|pool| world.sizes.get(pool));
    match (size, resource.body["nodeCount"].as_u64()) {
        (Some(size), Some(says)) if u64::from(*size) != says => {
            let mut asked = resource.clone();
            asked.body["nodeCount"] = json!(size);
            (Cow::Owned(asked), Some(format!(" (the stack file has {says})")))
        }
        _ => (Cow::Borrowed(resource), None),
    }
}

/// Returns the state of a stopped resource: deleted, or a pool without nodes.
fn stopped_state(
    resource: &Resource,
    live: Option<&Value>,
    world: &World,
    stopped: &Stopped,
) -> Option<State> {
    let stop = stopped.get(&resource.identity)?;
    let left = match &resource.identity {
        Identity::NodePool { pool, .. } => world.sizes.get(pool).is_some_and(|nodes| *nodes > 0),
        Identity::Cluster(_) | Identity::Object(_) | Identity::Check(_) => live.is_some(),
    };
    Some(match left {
        true => {
            State::Waiting(format!("still there, and {stop}: `dask-infra stop` again finishes that").into())
        }
        false => State::Stopped(stop.to_string()),
    })
}

/// Marks resources that wait for a node as stopped if `stop` has removed all nodes, because no node comes before `start`.
fn without_nodes(rows: &mut [Row], resources: &[Resource], world: &World, stopped: &Stopped) {
    let is_stopped = |pool: &&Resource| stopped.contains_key(&pool.identity);
    let pools: Vec<&Resource> = resources.iter().filter(|one| one.identity.pool().is_some()).collect();
    let others =
        world.pools.keys().any(|live| !pools.iter().any(|pool| pool.identity.pool() == Some(live.as_str())));
    if pools.is_empty() || others || !pools.iter().all(is_stopped) {
        return;
    }
    for row in rows.iter_mut().filter(|row| row.identity.object().is_some()) {
        if let State::Waiting(_) = row.state {
            row.state = State::Stopped("it has no nodes: all node pools are stopped".to_owned());
            row.said = StatusLine::default();
        }
    }
}

/// Returns the state of a check: ready if the record says that this exact text passed.
fn check_state(resource: &Resource, world: &World) -> State {
    let pass = world.record.as_ref().and_then(|record| record.completed.get(&resource.identity));
    match pass {
        Some(pass) if *pass == check::digest(&resource.body) => State::Ready,
        Some(_) => State::Waiting("must run again: it changed since it passed".into()),
        None => State::Absent,
    }
}

async fn judge(api: &dyn LiveApi, wait: &Await, world: &World) -> (State, StatusLine) {
    let kind = kinds::of(wait.kind);
    let queries = (kind.queries)(wait);
    match futures::future::try_join_all(queries.all().map(|(_, query)| probe(api, query))).await {
        Err(error) => (State::Unknown(error.to_string()), StatusLine::default()),
        Ok(found) => {
            let found = QueryResults::answers(&queries, &found);
            let flex =
                flex_start::flex_start_pools(world.pools.iter().map(|(name, pool)| (name.as_str(), pool)));
            let readiness = flex_start::mark_queued(kind.readiness(wait, &found), &found, &flex);
            let unhandled = matches!(readiness, Readiness::Unhandled(_));
            let state = match readiness {
                Readiness::Ready | Readiness::Impaired(_) => State::Ready,
                Readiness::Progressing(progress) => State::Waiting(progress),
                Readiness::Unhandled(what) | Readiness::Stalled(what) => State::Waiting(what.into()),
                Readiness::Queued(queued) => State::Queued(queued.to_string()),
                Readiness::Failed(why) => State::Failed(why),
            };
            let mut said = (kind.status_line)(wait, &found).unwrap_or_default();
            said.unhandled = unhandled;
            let state = match (state, said.failed.take(), said.waits.take()) {
                (State::Ready, Some(why), _) => State::Failed(why),
                (State::Ready, None, Some(what)) => State::Waiting(what.into()),
                (state, ..) => state,
            };
            if let Some((what, until)) = &said.until {
                said.line.push_str(&format!("; {what} {}", remaining_time(until, Timestamp::now())));
            }
            (state, said)
        }
    }
}

/// Returns the remaining time, `within 7 min`, or the end time if the remaining time is unknown.
fn remaining_time(until: &str, now: Timestamp) -> String {
    match until.parse::<Timestamp>() {
        Ok(until) if until > now => {
            // Begun minutes count: the last one is one, too.
            let seconds = until.duration_since(now).as_secs();
            format!("within {} min", (seconds + 59) / 60)
        }
        Ok(_) => "now: their time is over".to_owned(),
        Err(_) => format!("by {until}"),
    }
}

/// Adds reasons from the events of the namespaces for pods that do not say why they wait, or that no node accepts.
async fn add_event_reasons(api: &dyn LiveApi, rows: &mut [Row]) {
    let mut events: BTreeMap<String, Value> = BTreeMap::new();
    for row in rows {
        for pending in
            row.said.pending.iter_mut().filter(|pending| pending.why.is_none() || pending.unscheduled)
        {
            if !events.contains_key(&pending.namespace) {
                let path = format!("/api/v1/namespaces/{}/events", pending.namespace);
                let found = probe(api, &Query { api: Api::Kubernetes, path }).await;
                // Without rights to read events the pods stay without a reason.
                events.insert(pending.namespace.clone(), found.unwrap_or_default());
            }
            let Some(events) = events.get(&pending.namespace) else { continue };
            let told = match pending.unscheduled {
                true => not_scaled_by_events(&pending.pod, events),
                false => why_by_events(&pending.pod, events),
            };
            pending.why = told.or_else(|| pending.why.take());
        }
    }
}
