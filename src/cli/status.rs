//! `status`: what is live of a stack, and what its pods wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;

use super::Exit;
use super::offered;
use super::plan::parallelism;
use super::session::{Link, Session, block_on};
use super::settings::{Failure, Format, Settings};
use crate::apply::ApplyOptions;
use crate::kinds;
use crate::kinds::kind::Found;
use crate::kinds::kubernetes::check;
use crate::kinds::kubernetes::pods::why_by_events;
use crate::kinds::status::StatusLine;
use crate::live::{LiveApi, look as ask};
use crate::report::status::{Row, State, Status};
use crate::resource::{Api, Await, Identity, Owner, Query, Readiness, Resource, World};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra status                  a line for each section\n  \
    dask-infra status -v               every object\n  \
    dask-infra status rapids           one section, with each of its objects\n  \
    dask-infra status --watch          updates on every change, until everything is ready\n  \
    dask-infra status --json | jq '.things[] | select(.state != \"ready\")'\n\
    \n\
    Reads only. Exits with 0 even when something is not ready; see `ready` of `--json`.";

/// Options of `status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only this: a section of the stack, or an object of one; any unique ending works
    #[arg(value_name = "ADDRESS", add = offered::addresses())]
    address: Option<String>,
    /// Check every two seconds and print what changed, until everything is ready
    #[arg(long)]
    watch: bool,
    /// Print JSON: one object, with `--watch` one for each change
    #[arg(long)]
    json: bool,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    parallelism: usize,
}

/// Between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(2);

/// Shows what is live.
pub fn status(settings: &Settings, args: &Args) -> Exit {
    settings.report(Format::Text, |reporter| {
        let session = Session::load(settings)?;
        let found = match &args.address {
            Some(address) => session.find(address)?.into_iter().map(|found| found.identity.clone()).collect(),
            None => Vec::new(),
        };
        block_on(async {
            let link = session.connect(settings)?;
            let mut before = String::new();
            loop {
                let status = look(&session, &link, &found, args.parallelism).await?;
                reporter.diagnostics(&[], session.sources());
                let text = shown(settings, args, &status);
                if text != before && settings.print(&text) != Exit::Done || !args.watch || status.is_ready() {
                    break;
                }
                before = text;
                tokio::time::sleep(WATCH).await;
            }
            link.close().await?;
            Ok(Exit::Done)
        })
    })
}

fn shown(settings: &Settings, args: &Args, status: &Status) -> String {
    match args.json {
        true if args.watch => format!("{}\n", status.json()),
        true => format!("{:#}\n", status.json()),
        false => {
            let every = settings.is_verbose() || args.address.is_some();
            let text = status.text(every, settings.screen().data_look().width);
            if args.watch { format!("{text}\n") } else { text }
        }
    }
}

/// How the stack is, or what of it was asked for.
async fn look(
    session: &Session,
    link: &Link,
    found: &[Identity],
    parallelism: usize,
) -> Result<Status, Failure> {
    let world = session.world(link, parallelism).await?;
    let lowered = session.lowered();
    let api = link.api();
    let external = lowered.external.iter().map(|external| &external.resource);
    let meant = |resource: &&Resource| found.is_empty() || found.contains(&resource.identity);
    let all = external.chain(&lowered.resources).filter(meant);
    let looks = all.map(|resource| row(&*api, resource, &lowered.owner, &world));
    let mut rows: Vec<Row> = futures::stream::iter(looks).buffered(parallelism.max(1)).collect().await;
    ask_events(&*api, &mut rows).await;
    Ok(Status { owner: lowered.owner.clone(), target: lowered.target.clone(), rows })
}

pub(super) async fn row(api: &dyn LiveApi, resource: &Resource, owner: &Owner, world: &World) -> Row {
    let (state, said) = match (&resource.identity, world.find(&resource.identity)) {
        (Identity::Check(_), _) => {
            let state = passed(resource, world);
            let line = if state == State::Ready { "passed" } else { "" };
            (state, StatusLine { line: line.to_owned(), ..StatusLine::default() })
        }
        (_, None) => (State::Absent, StatusLine::default()),
        (_, Some(live)) => match kinds::of(resource.kind).kept(resource, owner, live) {
            None => (State::Ready, StatusLine::default()),
            Some(wait) => judged(api, &wait).await,
        },
    };
    Row { address: resource.address.clone(), identity: resource.identity.clone(), state, said }
}

/// A check has passed when the record says so of this very text.
fn passed(resource: &Resource, world: &World) -> State {
    let pass = world.record.as_ref().and_then(|record| record.passes.get(&resource.identity));
    match pass {
        Some(pass) if *pass == check::digest(&resource.body) => State::Ready,
        Some(_) => State::Waiting("must run again: it changed since it passed".to_owned()),
        None => State::Absent,
    }
}

async fn judged(api: &dyn LiveApi, wait: &Await) -> (State, StatusLine) {
    let kind = kinds::of(wait.kind);
    let queries = (kind.queries)(wait);
    match futures::future::try_join_all(queries.iter().map(|(_, query)| ask(api, query))).await {
        Err(error) => (State::Unknown(error.to_string()), StatusLine::default()),
        Ok(found) => {
            let found = Found::answers(&queries, &found);
            let state = match kind.readiness(wait, &found) {
                Readiness::Ready | Readiness::Impaired(_) => State::Ready,
                Readiness::Progressing(what) | Readiness::Stalled(what) => State::Waiting(what),
                Readiness::Failed(why) => State::Failed(why),
            };
            (state, (kind.status_line)(wait, &found).unwrap_or_default())
        }
    }
}

/// Pods that do not say themselves why they wait: the events of their namespaces may.
async fn ask_events(api: &dyn LiveApi, rows: &mut [Row]) {
    let mut events: BTreeMap<String, Value> = BTreeMap::new();
    for row in rows {
        for pending in row.said.pending.iter_mut().filter(|pending| pending.why.is_none()) {
            if !events.contains_key(&pending.namespace) {
                let path = format!("/api/v1/namespaces/{}/events", pending.namespace);
                let found = ask(api, &Query { api: Api::Kubernetes, path }).await;
                // Without rights to read events the pods stay without a reason.
                events.insert(pending.namespace.clone(), found.unwrap_or_default());
            }
            pending.why =
                events.get(&pending.namespace).and_then(|events| why_by_events(&pending.pod, events));
        }
    }
}
