//! Waits: watches or polls until a resource is ready, or until nothing of it is left.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::change_run::{ChangeRun, Pause, unfinished};
use crate::failure::{brief, failed, request_failure};
use crate::gke_errors::GkeError;
use crate::unscheduled::Unscheduled;
use crate::waited_pods::WaitedPods;
use crate::watch_events::{Known, ObjectTracker};
use crate::{Event, Outcome};
use kinds::dask;
use kinds::dask::idle_wait::IdleQuery;
use kinds::kind::{Part, Queries, QueryResults};
use kinds::kubernetes::flex_start;
use live::{ApiError, ErrorClass, Request, probe, served_kinds};
use model::diag::Code;
use model::resource::{Action, Api, Await, Identity, ObjectId, Query, Readiness, Until};

/// The first pause between two reads. Each later pause is longer by [`FACTOR`], up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(100);
const FACTOR: f64 = 1.3;
const LONGEST: Duration = Duration::from_secs(3);
/// How long a wait tolerates that machines are not available. GKE retries every few minutes, and a shortage of GPUs lasts for
/// hours.
const STALL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a kept resource may take to be ready. Parallel reads happen at different moments, and a pod may just be restarting.
const KEPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a scheduler must have been idle.
const IDLE_TIME: Duration = Duration::from_secs(5);

impl<'a> ChangeRun<'a> {
    /// Runs the wait of a step.
    pub(crate) async fn wait(&mut self, wait: &Await) -> Result<(), Outcome> {
        if wait.until == Until::StillReady {
            return self.check_kept(wait).await;
        }
        let deadline = Duration::from_secs(wait.deadline.into());
        let mut clock = Clock::default();
        let mut unscheduled = Unscheduled::default();
        self.pods = WaitedPods::default();
        let mut tracker = self.tracker(wait);
        if wait.until == Until::Gone {
            tracker.await_deletion().await;
        }
        let mut delay = FIRST;
        let mut failing = false;
        loop {
            // A failure is read a second time before it counts.
            let known = if failing { Known::Unknown } else { tracker.known() };
            let found = self.read_readiness(wait, &mut tracker, known).await?;
            // The queries of one look run side by side and may be of different moments; a second look is later than
            // all of them.
            if matches!(found, Readiness::Failed(_)) && !failing {
                failing = true;
                continue;
            }
            failing = false;
            let found = self.with_cause(wait, found, &mut unscheduled).await?;
            clock.update(&found);
            let Some(message) = self.judge(wait, found, &clock)? else { return Ok(()) };
            let waited = clock.waited();
            let most = if clock.queued.is_some() { self.shared.capacity } else { deadline };
            if clock.queued.is_none() && waited >= deadline {
                if wait.until == Until::Handled {
                    self.warn_unhandled(wait, deadline);
                    return Ok(());
                }
                let message =
                    format!("{} is not {} after {}: {message}", wait.identity, goal(wait), brief(deadline));
                return Err(Outcome::TimedOut { message });
            }
            self.report_wait(&message, waited, most);
            tracker.subscribe();
            let left = most.saturating_sub(waited);
            let paused = tokio::select! {
                paused = self.pause(delay.min(left)) => paused,
                () = tracker.changed() => Pause::Elapsed,
            };
            if paused == Pause::Interrupted {
                return Err(interrupted(self.change.action, wait, &message));
            }
            delay = delay.mul_f64(FACTOR).min(LONGEST);
        }
    }

    /// Returns what the wait still waits for, as a text; `None` if the wait is over.
    fn judge(&mut self, wait: &Await, found: Readiness, clock: &Clock) -> Result<Option<String>, Outcome> {
        match found {
            Readiness::Ready => Ok(None),
            Readiness::Impaired(what) => {
                self.warn(wait, &what);
                Ok(None)
            }
            Readiness::Progressing(progress) => Ok(Some(progress.to_string())),
            Readiness::Unhandled(message) => Ok(Some(message)),
            // Where there is another way, nobody waits for this one.
            Readiness::Stalled(message)
                if clock.stalled() >= STALL_TIMEOUT || self.change.fallback.is_some() =>
            {
                self.no_capacity = Some(message.clone());
                Err(stall_failure(wait, &message))
            }
            Readiness::Stalled(message) => Ok(Some(message)),
            Readiness::Queued(known) if clock.waited() >= self.shared.capacity => {
                Err(Outcome::Queued { message: format!("{}: {known}", wait.identity) })
            }
            Readiness::Queued(known) => Ok(Some(known.to_string())),
            Readiness::Failed(why) => {
                self.no_capacity = GkeError::from_text(why.as_str()).lacks_machines().then(|| why.clone());
                let what = format!("{}: {why}", wait.identity);
                Err(failed(Code::NotReady, what, Some(&self.next_step(wait))))
            }
        }
    }

    /// Returns the next step for the user after a failed wait. A check runs again with the next apply, a job does not.
    fn next_step(&self, wait: &Await) -> String {
        let is_job = (self.shared.kinds)(wait.kind).runs_to_completion && self.change.action != Action::Run;
        if wait.until == Until::Gone {
            "fix the cause, then run the command again".to_owned()
        } else if is_job {
            let address = &self.change.address;
            format!("fix the cause, then run it again: `dask-infra run {address}`; an apply does not")
        } else {
            "fix the cause, then apply again".to_owned()
        }
    }

    /// Warns about something that is ready but impaired.
    fn warn(&self, wait: &Await, what: &str) {
        self.report(Event::Warning {
            message: format!("{}: {}: {what}", self.change.address, wait.identity),
        });
    }

    /// Warns that an operator has not handled an earlier change.
    fn warn_unhandled(&self, wait: &Await, after: Duration) {
        let message = format!(
            "{}: the Dask operator has not handled an earlier change of {} after {}; this change is applied \
             anyway. The operator's log says what delays it; when it handles the earlier change, the number of \
             workers may change once more",
            self.change.address,
            wait.identity,
            brief(after)
        );
        self.report(Event::Warning { message });
    }

    /// Returns the tracker of a wait's object, which starts with the reply to the last write.
    fn tracker(&mut self, wait: &Await) -> ObjectTracker<'a> {
        let queries = match wait.until {
            Until::Idle => Queries::default(),
            Until::Ready | Until::StillReady | Until::Gone | Until::Handled => {
                ((self.shared.kinds)(wait.kind).queries)(wait)
            }
        };
        let mut tracker = ObjectTracker::new(self.shared.watches, wait, &queries);
        if let Some((path, reply)) = self.reply.take()
            && tracker.path() == Some(&path)
        {
            tracker.record_reply(&reply);
        }
        tracker
    }

    /// Checks that a kept resource is still ready. If it is not, there is only a warning: a later change may fix it.
    async fn check_kept(&mut self, wait: &Await) -> Result<(), Outcome> {
        let start = Instant::now();
        let mut tracker = self.tracker(wait);
        loop {
            let (what, over) = match self.read_readiness(wait, &mut tracker, Known::Unknown).await {
                Ok(Readiness::Ready) => return Ok(()),
                Ok(Readiness::Impaired(what)) => {
                    self.warn(wait, &what);
                    return Ok(());
                }
                Ok(Readiness::Progressing(progress)) => (progress.to_string(), false),
                Ok(Readiness::Unhandled(what) | Readiness::Stalled(what)) => (what, false),
                // Nothing is wrong with it, and what follows may be what it is waited for with.
                Ok(Readiness::Queued(queued)) => (queued.to_string(), true),
                Ok(Readiness::Failed(why)) => (why, false),
                // This change does not depend on it, so an unreadable reply is no failure here.
                Err(outcome) => (format!("it cannot be read: {}", message_of(&outcome)), true),
            };
            if over || start.elapsed() >= KEPT_TIMEOUT {
                let message = format!(
                    "{}: {} was ready before and is not ready now: {what}; dependent changes continue",
                    self.change.address, wait.identity
                );
                self.report(Event::Warning { message });
                return Ok(());
            }
            if self.pause(KEPT_TIMEOUT / 4).await == Pause::Interrupted {
                return Err(Outcome::NotStarted);
            }
        }
    }

    /// Returns the readiness from the known object, or else reads the object.
    async fn read_readiness(
        &mut self,
        wait: &Await,
        tracker: &mut ObjectTracker<'_>,
        known: Known,
    ) -> Result<Readiness, Outcome> {
        if wait.until == Until::Idle {
            return self.idle(wait).await;
        }
        let kind = (self.shared.kinds)(wait.kind);
        let queries = (kind.queries)(wait);
        let result = match known {
            Known::Deleted if wait.until == Until::Gone => Ok(Readiness::Ready),
            Known::Present(live) if wait.until == Until::Gone => Ok(match self.is_deleted(tracker, &live) {
                true => terminating(&live),
                // Another one has its name by now.
                false => Readiness::Ready,
            }),
            Known::Present(live) => {
                let found = QueryResults::of([(Part::Itself, &*live)]);
                self.pods = WaitedPods::of(|| self.desired(), &found);
                Ok(flex_start::mark_queued(kind.readiness(wait, &found), &found, &self.shared.flex))
            }
            // That it is gone is said by the server, and not by what was not told.
            Known::Unknown if wait.until == Until::Gone => {
                self.deletion_readiness(wait, queries.parts(), tracker).await
            }
            Known::Deleted | Known::Unknown => self.read_all(&queries).await.map(|found| {
                found.iter().for_each(|live| tracker.record(live));
                let answers = QueryResults::answers(&queries, &found);
                self.pods = WaitedPods::of(|| self.desired(), &answers);
                flex_start::mark_queued(kind.readiness(wait, &answers), &answers, &self.shared.flex)
            }),
        };
        let refused = result.as_ref().err().filter(|error| error.class == ErrorClass::Unauthenticated);
        if let Some(error) = refused
            && let Some(work) = self.blocking_work(Api::Kubernetes, error).await
        {
            return Ok(Readiness::progressing(work.message));
        }
        result.or_else(|error| match is_temporary(&error) {
            true => Ok(Readiness::progressing(format!("no answer ({error})"))),
            false => Err(request_failure(&error)),
        })
    }

    /// Returns ready once a resource to delete has been idle for a while: between two cells of a notebook it is idle, too.
    async fn idle(&mut self, wait: &Await) -> Result<Readiness, Outcome> {
        let readiness = match dask::idle_wait::idle_query(wait) {
            Some(IdleQuery::Job(job)) => match self.read_once(job.api, &job.path).await {
                Ok(job) => return Ok(dask::idle_wait::job_readiness(&job)),
                Err(error) => unreadable(&error, "the state of the job")?,
            },
            Some(IdleQuery::Scheduler { pods, counts, service }) => {
                match self.read_once(pods.api, &pods.path).await {
                    Ok(pods) if !dask::idle_wait::runs(&pods) => return Ok(Readiness::Ready),
                    Ok(_) => self.scheduler_readiness(&counts, &service).await?,
                    Err(error) => unreadable(&error, "the pods of its scheduler")?,
                }
            }
            None => return Ok(Readiness::Ready),
        };
        if readiness != Readiness::Ready {
            self.idle_since = None;
            return Ok(readiness);
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= IDLE_TIME.min(Duration::from_secs(wait.deadline.into())) {
            return Ok(Readiness::Ready);
        }
        Ok(Readiness::progressing(format!(
            "its scheduler is idle, for less than {} so far",
            brief(IDLE_TIME)
        )))
    }

    /// Returns the readiness by the scheduler's counts of tasks.
    async fn scheduler_readiness(&self, counts: &Query, service: &ObjectId) -> Result<Readiness, Outcome> {
        let error = match self.shared.api.send(Request::get(counts.api, &counts.path)).await {
            Ok(counts) => return Ok(dask::idle_wait::readiness(&counts)),
            Err(error) => error,
        };
        // The API server's own 404 is a Status; a scheduler's is a page.
        let of_server = error.body.as_ref().is_some_and(|body| body["kind"] == "Status");
        let (what, help) = match error.class {
            ErrorClass::NotFound if of_server => (
                format!("{service} does not exist, so the scheduler cannot report whether it is idle"),
                "apply without `--when-idle` when nobody uses the cluster: it is recreated with its Service",
            ),
            ErrorClass::NotFound => (
                "its scheduler does not report its number of tasks: it serves no /json/counts.json"
                    .to_owned(),
                "add `distributed.http.scheduler.json` to `distributed.scheduler.http.routes`, or apply \
                 without `--when-idle`",
            ),
            ErrorClass::Denied => (
                format!("no permission to ask its scheduler whether it is idle: {}", error.message),
                "request `get` on `services/proxy` in the namespace, or apply without `--when-idle`",
            ),
            _ => return unreadable(&error, "the tasks of its scheduler"),
        };
        Err(failed(Code::SchedulerNotAsked, what, Some(help)))
    }

    async fn read_all(&self, queries: &Queries) -> Result<Vec<Value>, ApiError> {
        let reads = queries.all().map(|(_, query)| probe(self.shared.api, query));
        futures::future::try_join_all(reads).await
    }

    /// Sends a read without retries, because the wait itself repeats it.
    async fn read_once(&self, api: Api, path: &str) -> Result<Value, ApiError> {
        match self.shared.api.send(Request::get(api, path)).await {
            Err(error) if error.is_unknown_path() => {
                let is_unserved = served_kinds::is_unserved(self.shared.api, &error, path).await?;
                if is_unserved { Ok(Value::Null) } else { Err(error) }
            }
            Err(error) if error.class == ErrorClass::NotFound => Ok(Value::Null),
            result => result,
        }
    }

    /// Returns ready once neither the resource nor a part of it is left. Does not read its neighbors.
    async fn deletion_readiness(
        &mut self,
        wait: &Await,
        parts: &[(Part, Query)],
        tracker: &mut ObjectTracker<'_>,
    ) -> Result<Readiness, ApiError> {
        let itself = match &wait.identity {
            Identity::Object(object) => Some((Api::Kubernetes, object.path())),
            Identity::NodePool { cluster, pool } => {
                Some((Api::Gke, format!("/v1/{}", cluster.pool_path(pool))))
            }
            Identity::Cluster(cluster) => Some((Api::Gke, format!("/v1/{}", cluster.path()))),
            Identity::Check(_) => None,
        };
        if let Some((api, path)) = &itself {
            let live = self.read_once(*api, path).await?;
            if !live.is_null() && !self.has_other_uid(path, &live) {
                tracker.record(&live);
                return Ok(terminating(&live));
            }
        }
        let own = itself.as_ref().map(|(_, path)| path.as_str());
        // With its cluster gone, there is no Kubernetes API left to ask.
        let whole = matches!(wait.identity, Identity::Cluster(_));
        let others = parts.iter().map(|(_, query)| query).filter(|query| Some(query.path.as_str()) != own);
        for query in others.filter(|query| !whole || query.api != Api::Kubernetes) {
            let left = self.read_once(query.api, &query.path).await?;
            if let Some(left) = first_remaining(&left, &query.path) {
                return Ok(Readiness::progressing(format!("{left} still exist")));
            }
        }
        Ok(Readiness::Ready)
    }

    /// Returns true if a reported deletion is that of the object to delete, and not that of a later one with its name.
    fn is_deleted(&mut self, tracker: &ObjectTracker<'_>, live: &Value) -> bool {
        tracker.path().is_some_and(|path| !self.has_other_uid(path, live))
    }

    /// Returns true if a live object is a new one with the name of the deleted one.
    fn has_other_uid(&mut self, path: &str, live: &Value) -> bool {
        let Some(uid) = live.pointer("/metadata/uid").and_then(Value::as_str) else { return false };
        match self.deleted.get(path) {
            Some(deleted) => deleted != uid,
            None => {
                self.deleted.insert(path.to_owned(), uid.to_owned());
                false
            }
        }
    }
}

/// How long a wait has lasted. Time in a queue does not count against the deadline.
struct Clock {
    start: Instant,
    stalled: Option<Instant>,
    /// When it entered a queue, if it is in one.
    queued: Option<Instant>,
    in_queue: Duration,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now(), stalled: None, queued: None, in_queue: Duration::ZERO }
    }
}

impl Clock {
    fn update(&mut self, found: &Readiness) {
        if matches!(found, Readiness::Queued(_)) {
            self.queued.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.queued.take() {
            self.in_queue += since.elapsed();
        }
        match found {
            Readiness::Progressing(_) | Readiness::Unhandled(_) => self.stalled = None,
            Readiness::Stalled(_) => {
                self.stalled.get_or_insert_with(Instant::now);
            }
            Readiness::Ready | Readiness::Impaired(_) | Readiness::Queued(_) | Readiness::Failed(_) => {}
        }
    }

    fn stalled(&self) -> Duration {
        self.stalled.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Returns the time in the queue while it is in one, else the time outside queues.
    fn waited(&self) -> Duration {
        match self.queued {
            Some(since) => self.in_queue + since.elapsed(),
            None => self.start.elapsed().saturating_sub(self.in_queue),
        }
    }
}

/// Returns the failure of a wait for capacity that is not available. Nothing is undone, as the capacity may still become
/// available.
fn stall_failure(wait: &Await, message: &str) -> Outcome {
    let help = "GKE keeps trying: apply again later, or use fewer nodes, another machine type or other zones";
    let what = format!("{} is not ready after {}: {message}", wait.identity, brief(STALL_TIMEOUT));
    failed(Code::NotReady, what, Some(help))
}

/// Returns the state that a wait waits for, as words.
fn goal(wait: &Await) -> &'static str {
    match wait.until {
        Until::Ready | Until::StillReady => "ready",
        Until::Gone => "gone",
        Until::Idle => "idle",
        Until::Handled => "handled",
    }
}

/// Returns the readiness for a failed read if it may succeed later, else the failure.
fn unreadable(error: &ApiError, what: &str) -> Result<Readiness, Outcome> {
    match is_temporary(error) {
        true => Ok(Readiness::progressing(format!("{what} cannot be read ({error})"))),
        false => Err(request_failure(error)),
    }
}

/// Returns true if a read that failed may succeed later.
fn is_temporary(error: &ApiError) -> bool {
    matches!(
        error.class,
        ErrorClass::Unavailable
            | ErrorClass::Unreadable
            | ErrorClass::Throttled
            | ErrorClass::Lost
            | ErrorClass::Busy
    )
}

/// Returns the readiness of a resource that is terminating.
fn terminating(live: &Value) -> Readiness {
    if let Some(why) = kinds::hosts::environment::deletion_error(live) {
        return Readiness::Failed(why.to_owned());
    }
    Readiness::progressing(deletion_blocker(live))
}

/// Describes what blocks the deletion of a resource.
fn deletion_blocker(live: &Value) -> String {
    if let Some(held) =
        kinds::kubernetes::namespace_deletion::blocked_by(live).filter(|_| live["kind"] == "Namespace")
    {
        return format!("not yet deleted: {held}");
    }
    let finalizers = live.pointer("/metadata/finalizers").and_then(Value::as_array);
    let names: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
    match (live["status"].as_str(), names.is_empty()) {
        (Some(status), _) => format!("not yet deleted, {status}"),
        (None, true) => "not yet deleted".into(),
        (None, false) => {
            format!("not yet deleted, its controller must remove finalizer {}", names.join(", "))
        }
    }
}

/// Returns the first resource that a query still finds.
fn first_remaining(found: &Value, path: &str) -> Option<String> {
    let last = path.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    match found {
        Value::Null => None,
        Value::Object(fields) if fields.contains_key("items") => {
            let first = fields["items"].as_array()?.first()?;
            let name = first.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            Some(format!("{last} {name}"))
        }
        _ => Some(last.to_owned()),
    }
}

fn message_of(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed { message, .. }
        | Outcome::TimedOut { message }
        | Outcome::Queued { message }
        | Outcome::InDoubt { message } => message,
        Outcome::Done | Outcome::Skipped { .. } | Outcome::Waits { .. } | Outcome::NotStarted => {
            "the status was not read"
        }
    }
}

fn interrupted(action: Action, wait: &Await, message: &str) -> Outcome {
    match unfinished(action, wait.until) {
        Some(what) => Outcome::InDoubt { message: format!("{what}: {message}") },
        None => Outcome::NotStarted,
    }
}
