//! `logs`: what the pods of a section say.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::mpsc;

use crate::cli::Exit;
use crate::cli::commands::plan::seconds;
use crate::cli::completion_values;
use crate::cli::session::{Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::report::Screen;
use crate::report::logs::{Lines, Look, without};
use kinds::kind::PodSource;
use kinds::kubernetes::pods::{self, Container};
use live::connection::Connection;
use live::{ApiError, ErrorClass, LiveApi as _, Request};
use model::diag::{Code, Diagnostic};
use model::resource::{Api, Identity, Query};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra logs rapids                       scheduler and workers, the last 10 lines of each\n  \
    dask-infra logs rapids -c scheduler --tail -1\n  \
    dask-infra logs dask_job.train -f            follows the log, new pods included\n  \
    dask-infra logs dask_operator --since 10m\n  \
    dask-infra logs rapids --previous            of the containers that crashed, on hosts of processes that ended\n\
    dask-infra logs environment.main             on hosts, what installs its packages\n\
    \n\
    Prints one pod after the other, with -f as lines arrive. With several pods or containers, each line starts with its own.\n\
    Reads only.";

/// Lines of each container where there are several, as kubectl has it.
const TAIL: i64 = 10;
/// Between two looks for new pods.
const PACE: Duration = Duration::from_secs(2);
/// Logs that are followed at a time: each is a connection.
const MOST: usize = 50;

/// Options of `logs`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A Dask cluster or one of its groups, a job, a check, a notebook, an environment, the operator or the driver
    #[arg(value_name = "ADDRESS", add = completion_values::addresses())]
    address: String,
    /// Follow the logs, including those of new pods
    #[arg(short, long, conflicts_with = "previous")]
    follow: bool,
    /// Lines of each container; -1 for all [default: 10 with several containers, else all]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    tail: Option<i64>,
    /// Only newer lines: `45s`, `10m`, `1h30m`, `2d`
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    since: Option<u32>,
    /// Logs of the previous container, if one crashed and was restarted; on hosts, of processes that ended
    #[arg(short, long)]
    previous: bool,
    /// Only containers of this name
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Do not prefix lines with pod and container
    #[arg(long, conflicts_with = "json")]
    no_prefix: bool,
    /// One JSON object for each line
    #[arg(long)]
    json: bool,
}

/// Shows what the pods of a section say.
pub fn logs(settings: &Settings, args: &Args) -> Exit {
    settings.report(Format::Text, |reporter| {
        let session = Session::load(settings)?;
        let mut places = Vec::new();
        let (mut is_check, mut ends) = (false, true);
        for resource in session.find(&args.address)? {
            is_check |= matches!(resource.identity, Identity::Check(_));
            ends &= kinds::of(resource.kind).runs_to_completion;
            match (kinds::of(resource.kind).pods)(resource) {
                PodSource::None => {}
                found => places.push(found),
            }
        }
        if places.is_empty() {
            let (_, target) = session.owner_and_target();
            let (runs, help) = match target.is_on_hosts() {
                true => ("processes", "Dask clusters, their groups, jobs, checks and environments have logs"),
                false => (
                    "pods",
                    "Dask clusters, groups, jobs, checks, notebooks, `dask_operator` and `gpu_driver` have logs",
                ),
            };
            let what = format!("`{}` has no {runs}, so it has no log", args.address);
            return Err(session.failure(Diagnostic::error(Code::NoLog, what).help(help)));
        }
        block_on(async {
            let link = session.connect(settings)?;
            let api = link.api();
            api.skip_unreachable_hosts();
            let reading = LogReader { api, session: &session, args, places, is_check, ends };
            let exit = reading.show(settings).await?;
            reporter.diagnostics(&session.skipped_hosts(&link), session.sources());
            link.close().await?;
            Ok(exit)
        })
    })
}

struct LogReader<'a> {
    api: Arc<Connection>,
    session: &'a Session,
    args: &'a Args,
    places: Vec<PodSource>,
    is_check: bool,
    /// True if everything that is read runs to completion.
    ends: bool,
}

impl LogReader<'_> {
    async fn show(&self, settings: &Settings) -> Result<Exit, Failure> {
        let found = self.containers().await?;
        if found.is_empty() && !self.args.follow {
            return Err(self.nothing(settings));
        }
        let look = match (self.args.json, self.args.no_prefix, found.len() > 1 || self.args.follow) {
            (true, ..) => Look::Json,
            (false, false, true) if self.session.owner_and_target().1.is_on_hosts() => Look::Processes,
            (false, false, true) => Look::Prefixed,
            (false, ..) => Look::Bare,
        };
        let mut screen = settings.screen();
        let mut lines = Lines::new(look);
        if self.args.follow {
            self.follow(&mut screen, &mut lines).await
        } else {
            let tail = self.args.tail.or((found.len() > 1 && self.args.since.is_none()).then_some(TAIL));
            self.one_by_one(&found, tail, &mut screen, &mut lines).await
        }
    }

    /// Containers of all pods, those that are asked for.
    async fn containers(&self) -> Result<Vec<Container>, Failure> {
        let mut all = BTreeSet::new();
        for place in &self.places {
            let query = match place {
                // A host lists processes that ended apart: others may have their names now.
                PodSource::Known(query)
                    if self.args.previous && self.session.owner_and_target().1.is_on_hosts() =>
                {
                    Some(Query { path: format!("{}&previous=true", query.path), ..query.clone() })
                }
                PodSource::Known(query) => Some(query.clone()),
                PodSource::FromObject(query) => {
                    self.read(&query.path).await?.as_ref().and_then(pods::selected)
                }
                PodSource::None => None,
            };
            let Some(query) = query else { continue };
            let found = self.read(&query.path).await?;
            all.extend(found.iter().flat_map(pods::containers));
        }
        let wanted = |one: &Container| self.args.container.as_ref().is_none_or(|name| *name == one.name);
        Ok(all.into_iter().filter(wanted).collect())
    }

    async fn read(&self, path: &str) -> Result<Option<serde_json::Value>, Failure> {
        match self.api.send(Request::get(Api::Kubernetes, path)).await {
            Ok(found) => Ok(Some(found)),
            // Not an object that is missing, but the cluster that it would be in.
            Err(error) if error.class == ErrorClass::NotFound && error.status.is_none() => {
                let problem = Diagnostic::error(Code::NoAnswerThere, error.message);
                Err(self.session.failure(problem.help("`dask-infra apply` creates it")))
            }
            Err(error) if error.class == ErrorClass::NotFound => Ok(None),
            Err(error) => Err(self.session.refused(&error)),
        }
    }

    fn nothing(&self, settings: &Settings) -> Failure {
        let program = settings.program();
        let (_, target) = self.session.owner_and_target();
        let runs = if target.is_on_hosts() { "process" } else { "pod" };
        let (what, help) = match (&self.args.container, self.is_check) {
            (container, _) if target.is_on_hosts() && self.args.previous => (
                match container {
                    Some(container) => format!("no {container} of `{}` has ended", self.args.address),
                    None => format!("no process of `{}` has ended", self.args.address),
                },
                format!(
                    "the last logs are kept as long as their Dask cluster or job exists; `{program} logs {}` shows what runs",
                    self.args.address
                ),
            ),
            (Some(container), _) if target.is_on_hosts() => (
                format!("`{}` has no process that is a {container}", self.args.address),
                format!(
                    "`{program} logs {address}` shows all of them, `{program} logs {address} --previous` those that ended",
                    address = self.args.address
                ),
            ),
            (Some(container), _) => (
                format!("no pod of `{}` has a container `{container}`", self.args.address),
                format!("`{program} logs {}` shows all of them", self.args.address),
            ),
            (None, true) => (
                format!("`{}` has no {runs}", self.args.address),
                format!(
                    "a check's {runs} is deleted when the check has passed; `{program} run {}` runs it again",
                    self.args.address
                ),
            ),
            (None, false) => (
                format!("`{}` has no {runs}", self.args.address),
                format!("`{program} status` shows its state"),
            ),
        };
        self.session.failure(Diagnostic::error(Code::NoAnswerThere, what).help(help))
    }

    async fn one_by_one(
        &self,
        found: &[Container],
        tail: Option<i64>,
        screen: &mut Screen,
        lines: &mut Lines,
    ) -> Result<Exit, Failure> {
        for one in found {
            if let Some(why) = one.waits.as_ref().filter(|_| !self.args.previous) {
                screen.message(&without(one, why));
                continue;
            }
            let mut log = match self.open(one, tail, false).await {
                Ok(log) => log,
                Err(error) if error.class == ErrorClass::Denied => return Err(self.session.refused(&error)),
                Err(error) => {
                    screen.message(&without(one, &error.message));
                    continue;
                }
            };
            let mut said = false;
            while let Some(line) = log.next().await {
                said = true;
                match line {
                    Ok(line) => screen.data(&lines.line(one, &line)),
                    Err(why) => screen.message(&without(one, &format!("it ended early: {why}"))),
                }
                if screen.finish().is_err() {
                    return Ok(Exit::Done);
                }
            }
            if !said {
                let since = if self.args.since.is_some() { " in that time" } else { "" };
                let ended = one.ended.as_ref().map(|ended| format!(", and {ended}")).unwrap_or_default();
                screen.message(&without(one, &format!("it wrote nothing{since}{ended}")));
            }
        }
        Ok(Exit::Done)
    }

    async fn open(&self, one: &Container, tail: Option<i64>, follow: bool) -> Result<LineStream, ApiError> {
        let Container { namespace, pod, name, .. } = one;
        let mut path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?container={name}");
        if let Some(tail) = tail.filter(|tail| *tail >= 0) {
            path.push_str(&format!("&tailLines={tail}"));
        }
        if let Some(since) = self.args.since {
            path.push_str(&format!("&sinceSeconds={since}"));
        }
        for (given, parameter) in [(self.args.previous, "&previous=true"), (follow, "&follow=true")] {
            path.push_str(if given { parameter } else { "" });
        }
        self.api.stream(Request::get(Api::Kubernetes, path)).await.map(split)
    }

    /// Prints logs as they grow, until Ctrl-C or until everything that runs to completion has ended.
    async fn follow(&self, screen: &mut Screen, lines: &mut Lines) -> Result<Exit, Failure> {
        let (told, mut heard) = mpsc::channel::<(Container, Option<Result<String, String>>)>(1000);
        let mut seen: BTreeSet<(String, String, u64)> = BTreeSet::new();
        let mut open = 0_usize;
        let mut full = false;
        let mut look = tokio::time::interval(PACE);
        loop {
            tokio::select! {
                _ = look.tick() => {
                    let found = self.containers().await?;
                    let known = |one: &Container| seen.contains(&(one.uid.clone(), one.name.clone(), one.restarts));
                    if self.ends && open == 0 && !seen.is_empty() && found.iter().all(known) {
                        return Ok(Exit::Done);
                    }
                    let new: Vec<Container> =
                        found.into_iter().filter(|one| one.waits.is_none() && !known(one)).collect();
                    for one in new {
                        let key = (one.uid.clone(), one.name.clone(), one.restarts);
                        if open >= MOST {
                            if !full {
                                let what = format!("at most {MOST} logs are followed at a time; the others wait: `-c` selects a container\n");
                                screen.message(&what);
                            }
                            full = true;
                            break;
                        }
                        // Of what starts while we look, everything.
                        let first = seen.is_empty() || one.restarts == 0;
                        let tail = self.args.tail.or(first.then_some(TAIL));
                        seen.insert(key);
                        match self.open(&one, tail, true).await {
                            Ok(log) => {
                                open += 1;
                                tokio::spawn(forward_lines(one, log, told.clone()));
                            }
                            Err(error) if error.class == ErrorClass::Denied => {
                                return Err(self.session.refused(&error));
                            }
                            Err(error) => screen.message(&without(&one, &error.message)),
                        }
                    }
                }
                Some((one, line)) = heard.recv() => {
                    match line {
                        Some(Ok(line)) => screen.data(&lines.line(&one, &line)),
                        // A connection that broke is made again, from where it was as far as the clock tells.
                        Some(Err(_)) => drop(seen.remove(&(one.uid.clone(), one.name.clone(), one.restarts))),
                        None => open -= 1,
                    }
                    if screen.finish().is_err() {
                        return Ok(Exit::Done);
                    }
                }
            }
        }
    }
}

type LineStream = futures::stream::BoxStream<'static, Result<String, String>>;

/// Longer lines are cut here: a program may write without end and never end a line.
const LONGEST_LINE: usize = 1024 * 1024;

/// Bytes as lines; what comes after the last end of a line is one, too.
fn split(bytes: live::kube::ByteStream) -> LineStream {
    let state = (bytes, Vec::<u8>::new(), 0, false);
    futures::stream::unfold(state, |(mut bytes, mut rest, mut looked, mut ended)| async move {
        loop {
            // The bytes before `looked` contain no line end.
            let end = rest[looked..].iter().position(|byte| *byte == b'\n').map(|end| looked + end + 1);
            let end = end.or_else(|| (rest.len() > LONGEST_LINE).then(|| whole(&rest, LONGEST_LINE)));
            if let Some(end) = end {
                let line: Vec<u8> = rest.drain(..end).collect();
                let line = String::from_utf8_lossy(&line).into_owned();
                let line = if line.ends_with('\n') { line } else { line + "\n" };
                return Some((Ok(line), (bytes, rest, 0, ended)));
            }
            looked = rest.len();
            if ended {
                let line = String::from_utf8_lossy(&rest).into_owned();
                return (!line.is_empty()).then(|| (Ok(line), (bytes, Vec::new(), 0, ended)));
            }
            match bytes.next().await {
                Some(Ok(more)) => rest.extend_from_slice(&more),
                Some(Err(why)) => return Some((Err(why), (bytes, Vec::new(), 0, true))),
                None => ended = true,
            }
        }
    })
    .boxed()
}

/// Returns where to cut at most so many bytes without taking a character apart.
fn whole(bytes: &[u8], most: usize) -> usize {
    let most = most.min(bytes.len());
    // A byte `10xxxxxx` continues a character, which has four bytes at most. Source: RFC 3629.
    (most.saturating_sub(3)..=most)
        .rev()
        .find(|at| bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80))
        .unwrap_or(most)
}

async fn forward_lines(
    one: Container,
    mut log: LineStream,
    told: mpsc::Sender<(Container, Option<Result<String, String>>)>,
) {
    while let Some(line) = log.next().await {
        if told.send((one.clone(), Some(line))).await.is_err() {
            return;
        }
    }
    // Nobody counts any more when all of it ends.
    let _ = told.send((one, None)).await;
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[tokio::test]
    async fn lines_are_put_together_from_pieces() {
        let pieces = ["on", "e\ntw", "o\n\nthree"].map(|piece| Ok(Bytes::from(piece)));
        let lines: Vec<_> = split(futures::stream::iter(pieces).boxed()).collect().await;
        let lines: Vec<String> = lines.into_iter().map(Result::unwrap).collect();
        assert_eq!(lines, ["one\n", "two\n", "\n", "three"]);
        // One without an end is cut, between characters.
        let endless = vec!["€".repeat(LONGEST_LINE / 4); 3].into_iter().map(|piece| Ok(Bytes::from(piece)));
        let lines: Vec<_> = split(futures::stream::iter(endless).boxed()).collect().await;
        let lines: Vec<String> = lines.into_iter().map(Result::unwrap).collect();
        assert!(lines.len() > 2 && lines.iter().all(|line| line.len() <= LONGEST_LINE + 1));
        assert!(lines.iter().all(|line| line.trim_end().chars().all(|c| c == '€')));
        let broken = [Ok(Bytes::from("half")), Err("reset".to_owned())];
        let lines: Vec<_> = split(futures::stream::iter(broken).boxed()).collect().await;
        assert_eq!(lines, [Err("reset".to_owned())]);
    }

    #[test]
    fn durations() {
        assert_eq!((seconds("45s"), seconds("1h30m")), (Ok(45), Ok(5400)));
        assert!(seconds("10").is_err() && seconds("-5m").is_err() && seconds("soon").is_err());
    }
}
