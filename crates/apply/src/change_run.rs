//! Runs one change: its steps in order, and the cleanup if one of them does not succeed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::control_plane_down::{self, GkeWork, Stopwatch};
use crate::failure::failed;
use crate::record::RecordWriter;
use crate::waited_pods::WaitedPods;
use crate::watch_events::Reply;
use crate::write_guard::WriteGuard;
use crate::{AbortCause, Event, Kinds, Outcome};
use kinds::kubernetes::calls::ABSENT;
use kinds::kubernetes::job;
use kinds::kubernetes::object::gvk;
use live::retry::{self, RetryPolicy};
use live::watch::Watches;
use live::{ApiError, ErrorClass, LiveApi, Request};
use model::diag::Code;
use model::resource::{
    Api, Call, ClusterName, Identity, JsonText, Method, ObjectId, Owner, Resource, Step, Until,
};
use model::secrets::env_values::EnvValues;
use plan::{Action, Change};

/// How often a wait with an unchanged message is reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// The number of lines of a failed check's log that the error quotes.
const TAIL: usize = 20;
/// The maximum number of log lines that are sent as an event.
const LOG_LINES: usize = 200;
/// How long a pod's container may take to have a log after its pod ran.
const LOG_TIMEOUT: Duration = Duration::from_secs(120);

/// State that all changes of an apply share.
pub struct Shared<'a> {
    /// The live API, which refuses writes that the lock does not allow.
    pub api: &'a dyn LiveApi,
    /// The write guard in `api`, which knows if the lock is lost.
    pub guard: &'a WriteGuard,
    /// The owner of the resources.
    pub owner: &'a Owner,
    /// The GKE cluster that the plan acts on.
    pub cluster: Option<&'a ClusterName>,
    /// The desired state.
    pub desired: &'a [Resource],
    /// The lookup of kinds, which have the readiness functions.
    pub kinds: Kinds,
    /// Writes the record.
    pub writer: &'a RecordWriter<'a>,
    /// The values of environment variables for Secrets of the stack.
    pub given: &'a EnvValues,
    /// The watches that report changes of objects.
    pub watches: &'a Watches<'a>,
    /// How long a change waits for capacity.
    pub capacity: Duration,
    /// Names of the flex-start pools.
    pub flex: BTreeSet<String>,
}

/// A change while it runs.
pub struct ChangeRun<'a> {
    /// State that all changes share.
    pub shared: &'a Shared<'a>,
    /// Its index in the plan.
    pub index: usize,
    pub change: &'a Change,
    /// The channel on which the change reports its progress to the apply.
    pub events: mpsc::UnboundedSender<Event>,
    /// Why the apply has to end early, once it has to.
    pub stop: watch::Receiver<AbortCause>,
    /// True if it has sent a request that may have changed something.
    pub wrote: bool,
    /// Objects that it has deleted: path to uid.
    pub deleted: BTreeMap<String, String>,
    /// The reply to the last write of an object, with its path.
    pub reply: Option<(String, Reply)>,
    /// When the object of the current wait became idle.
    pub idle_since: Option<Instant>,
    /// The message of the last failure for lack of machines or quota.
    pub no_capacity: Option<String>,
    /// The pods of what is waited for, by the last look at it.
    pub pods: WaitedPods,
    last_report: Option<(String, Instant)>,
}

/// How a change ended.
pub struct ChangeEnd {
    /// Its outcome.
    pub outcome: Outcome,
    /// The digest to record: of the check that passed or of the run-once resource that was created.
    pub pass: Option<String>,
}

/// How a pause ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The time elapsed.
    Elapsed,
    /// The apply has to end.
    Interrupted,
}

impl<'a> ChangeRun<'a> {
    /// Creates a change that is about to run.
    pub fn new(
        shared: &'a Shared<'a>,
        index: usize,
        change: &'a Change,
        events: mpsc::UnboundedSender<Event>,
        stop: watch::Receiver<AbortCause>,
    ) -> Self {
        let (wrote, deleted, reply, idle_since, no_capacity, last_report) =
            (false, BTreeMap::new(), None, None, None, None);
        Self {
            shared,
            index,
            change,
            events,
            stop,
            wrote,
            deleted,
            reply,
            idle_since,
            no_capacity,
            pods: WaitedPods::default(),
            last_report,
        }
    }

    /// Returns the resource of the change as the stack wants it.
    pub(crate) fn desired(&self) -> Option<&'a Resource> {
        self.shared.desired.iter().find(|resource| resource.address == self.change.address)
    }

    /// Runs the change to its end.
    pub async fn finish(mut self) -> ChangeEnd {
        let change = self.change;
        let mut pass = None;
        for (at, step) in change.steps.iter().enumerate() {
            let result = self.step_unless_stopped(step, &mut pass).await;
            if let Err(outcome) = result {
                let outcome = match &change.fallback {
                    Some(fallback) => match self.try_fallbacks(fallback, outcome).await {
                        Ok(()) => return ChangeEnd { outcome: Outcome::Done, pass },
                        Err(outcome) => outcome,
                    },
                    None => self.clean_up(at, outcome).await,
                };
                // A created run-once resource stays recorded, even if the wait for it fails.
                return ChangeEnd { outcome, pass };
            }
        }
        ChangeEnd { outcome: Outcome::Done, pass }
    }

    /// Runs a step, unless the apply has to end.
    pub(crate) async fn step_unless_stopped(
        &mut self,
        step: &Step,
        pass: &mut Option<String>,
    ) -> Result<(), Outcome> {
        match self.abort_outcome(step) {
            Some(outcome) => Err(outcome),
            None => self.step(step, pass).await,
        }
    }

    async fn step(&mut self, step: &Step, pass: &mut Option<String>) -> Result<(), Outcome> {
        match step {
            Step::Call(call) => {
                if call.method != Method::Get {
                    self.record_intent(step, call).await?;
                }
                if self.creates_once(call) { self.create_once(call).await } else { self.call(call).await }
            }
            Step::Await(wait) => self.wait(wait).await,
            Step::ReadLog { pod, expect: Some(expect) } => self.check_log(pod, expect).await,
            Step::ReadLog { pod, expect: None } => self.show_log(pod).await,
            Step::RecordCompletion { digest } => self.record_pass(digest, pass).await,
        }
    }

    /// Writes the completion into the record before any successor starts. Successors of a check may take the GPUs that a rerun
    /// would need. Successors of a run-once resource must wait until its creation is recorded.
    async fn record_pass(&self, digest: &str, pass: &mut Option<String>) -> Result<(), Outcome> {
        let Change { address, identity, .. } = &self.change;
        *pass = Some(digest.to_owned());
        let recorded = self.shared.writer.note_pass(identity, digest).await;
        recorded.map_err(|why| {
            let message = format!("{address} passed, but the pass could not be recorded: {why}");
            let help = "apply again when the API server accepts writes";
            failed(Code::RecordNotWritten, message, Some(help))
        })
    }

    /// Writes the intent into the record before a write, if there is a cluster to record it in.
    async fn record_intent(&mut self, step: &Step, call: &Call) -> Result<(), Outcome> {
        let whole = matches!(self.change.identity, Identity::Cluster(_))
            && matches!(self.change.action, Action::Create | Action::Replace | Action::Delete);
        if whole {
            if call.method == Method::Delete {
                self.shared.guard.abandon_lock();
                self.shared.watches.end_all();
            }
            return Ok(());
        }
        let writer = self.shared.writer;
        let stopped = tokio::select! {
            biased;
            written = writer.intent(&self.change.address) => return written,
            () = aborted(&mut self.stop) => self.abort_outcome(step),
        };
        stopped.map_or(Ok(()), Err)
    }

    /// Returns why the apply has to end early.
    pub fn abort_cause(&self) -> AbortCause {
        if self.shared.guard.is_closed() { AbortCause::LockLost } else { *self.stop.borrow() }
    }

    /// Returns true if a call creates a run-once resource.
    fn creates_once(&self, call: &Call) -> bool {
        let noted = |step: &Step| matches!(step, Step::RecordCompletion { .. });
        let makes = |body: &JsonText| body.value()["metadata"]["resourceVersion"] == ABSENT;
        let is_noted = self.change.action != Action::Run && self.change.steps.iter().any(noted);
        is_noted && call.body.as_ref().is_some_and(makes)
    }

    async fn create_once(&mut self, call: &Call) -> Result<(), Outcome> {
        let (writer, thing) = (self.shared.writer, &self.change.identity);
        if let Err(why) = writer.note_creation(thing).await {
            let message = format!("the creation of {} cannot be recorded: {why}", self.change.address);
            let help =
                "it runs only once, so it is not created without a record; fix the cause, then apply again";
            return Err(failed(Code::RecordNotWritten, message, Some(help)));
        }
        let made = self.call(call).await;
        if matches!(made, Err(Outcome::Failed { .. } | Outcome::NotStarted)) {
            writer.drop_creation(thing).await;
        }
        made
    }

    /// Returns the outcome if the step must not start, after Ctrl-C or without the lock.
    fn abort_outcome(&self, step: &Step) -> Option<Outcome> {
        if self.abort_cause() == AbortCause::None || matches!(step, Step::RecordCompletion { .. }) {
            return None;
        }
        if !self.wrote {
            return Some(Outcome::NotStarted);
        }
        let message = match step {
            Step::Await(wait) => unfinished(self.change.action, wait.until)?.to_owned(),
            Step::RecordCompletion { .. } => return None,
            Step::Call(call) => format!("{} {} was not sent", call.method.as_str(), call.path),
            Step::ReadLog { pod, .. } => format!("the log of {pod} was not read"),
        };
        Some(Outcome::InDoubt { message })
    }

    /// Cleans up after a step that did not succeed: a check's pod must not stay behind.
    async fn clean_up(&mut self, at: usize, outcome: Outcome) -> Outcome {
        let steps = &self.change.steps;
        if !self.wrote {
            return outcome;
        }
        let rest = steps.get(at..).unwrap_or_default();
        let log = rest.iter().skip(1).find_map(|step| match step {
            Step::ReadLog { pod, .. } => Some(pod),
            Step::Call(_) | Step::Await(_) | Step::RecordCompletion { .. } => None,
        });
        let outcome = match log {
            Some(pod) => self.with_tail(outcome, pod).await,
            None => outcome,
        };
        if self.change.action != Action::Run {
            return outcome;
        }
        let interrupted = self.abort_cause() != AbortCause::None;
        for step in rest {
            let cleaned = match step {
                Step::Call(call) if call.method == Method::Delete => self.delete_once(call).await,
                Step::Await(wait) if wait.until == Until::Gone && !interrupted => self.wait(wait).await,
                Step::Call(_) | Step::Await(_) | Step::ReadLog { .. } | Step::RecordCompletion { .. } => {
                    Ok(())
                }
            };
            if cleaned.is_err() {
                // The next apply finds it; this outcome has its own cause to tell.
                break;
            }
        }
        outcome
    }

    async fn delete_once(&mut self, call: &Call) -> Result<(), Outcome> {
        let Call { api, method, path, body, deferred: _ } = call;
        let request = Request {
            api: *api,
            method: *method,
            path: path.clone(),
            body: body.as_ref().map(JsonText::value),
        };
        match retry::send(self.shared.api, request, RetryPolicy::Read).await {
            Ok(_) => Ok(()),
            Err(error) => Err(crate::failure::request_failure(&error)),
        }
    }

    /// Adds the end of the pod's log to the outcome, if the pod has a log.
    async fn with_tail(&mut self, outcome: Outcome, pod: &ObjectId) -> Outcome {
        let Ok(lines) = self.read_log(pod).await else { return outcome };
        if lines.is_empty() {
            return outcome;
        }
        self.report_log(&lines);
        let more = |message: String| format!("{message}\n{}", tail(pod, &lines));
        match outcome {
            Outcome::Failed { code, message, help } => Outcome::Failed { code, message: more(message), help },
            Outcome::TimedOut { message } => Outcome::TimedOut { message: more(message) },
            other => other,
        }
    }

    /// Reports the end of a log. A log that cannot be read is no failure.
    async fn show_log(&mut self, pod: &ObjectId) -> Result<(), Outcome> {
        match self.wait_for_log(pod).await {
            Ok(lines) => self.report_log(&lines[lines.len().saturating_sub(TAIL)..]),
            Err(outcome @ Outcome::InDoubt { .. }) => return Err(outcome),
            Err(outcome) => {
                let why = match outcome {
                    Outcome::Failed { message, .. } => message,
                    other => format!("{other:?}"),
                };
                let message = format!("the log of {pod} could not be read: {why}");
                self.report(Event::Warning { message });
            }
        }
        Ok(())
    }

    /// Checks that a pod's log has the expected line.
    async fn check_log(&mut self, pod: &ObjectId, expect: &str) -> Result<(), Outcome> {
        let lines = self.wait_for_log(pod).await?;
        self.report_log(&lines);
        if lines.iter().any(|line| line.trim() == expect) {
            return Ok(());
        }
        let message = format!("the log of {pod} has no line `{expect}`\n{}", tail(pod, &lines));
        Err(failed(
            Code::CheckFailed,
            message,
            Some("fix what the log reports, then apply again: the check runs again"),
        ))
    }

    /// Waits for the log of a pod that ran, until its container has one.
    async fn wait_for_log(&mut self, pod: &ObjectId) -> Result<Vec<String>, Outcome> {
        let start = Instant::now();
        let mut delay = Duration::from_millis(200);
        loop {
            match self.read_log(pod).await {
                Ok(lines) => return Ok(lines),
                Err(error) if is_starting(&error) && start.elapsed() < LOG_TIMEOUT => {
                    self.report_wait(&format!("{pod} has no log yet"), start.elapsed(), LOG_TIMEOUT);
                    if self.pause(delay).await == Pause::Interrupted {
                        let message = format!("the log of {pod} was not read");
                        return Err(Outcome::InDoubt { message });
                    }
                    delay = delay.mul_f64(1.5).min(Duration::from_secs(3));
                }
                Err(error) => return Err(crate::failure::request_failure(&error)),
            }
        }
    }

    async fn read_log(&self, pod: &ObjectId) -> Result<Vec<String>, ApiError> {
        let path = match job::log_of(pod) {
            None => pod.path(),
            Some(query) => {
                let request = Request::get(query.api, query.path);
                let pods = retry::send(self.shared.api, request.clone(), RetryPolicy::Read).await?;
                let none = || request.failed(ErrorClass::NotFound, format!("{pod} has no pod"));
                let name = job::most_relevant_pod(&pods).ok_or_else(none)?;
                let namespace = pod.namespace.as_deref();
                format!("{}/{name}", gvk("", "v1", "Pod", "pods").collection(namespace))
            }
        };
        let request = Request::get(Api::Kubernetes, format!("{path}/log"));
        let log = retry::send(self.shared.api, request, RetryPolicy::Read).await?;
        let text = log
            .as_str()
            .map_or_else(|| if log.is_null() { String::new() } else { log.to_string() }, str::to_owned);
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn report_log(&self, lines: &[String]) {
        let lines = lines[lines.len().saturating_sub(LOG_LINES)..].to_vec();
        self.report(Event::Log { change: self.index, lines });
    }

    /// Sends an event. Continues if nobody receives it.
    pub fn report(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Reports a wait, if its message is new or was last reported long ago.
    pub fn report_wait(&mut self, message: &str, waited: Duration, deadline: Duration) {
        self.report_operation_wait(None, message, waited, deadline);
    }

    /// Reports a wait as [`Self::report_wait`] does, for a GKE operation where there is one.
    pub fn report_operation_wait(
        &mut self,
        operation: Option<&str>,
        message: &str,
        waited: Duration,
        deadline: Duration,
    ) {
        let now = Instant::now();
        let old = self
            .last_report
            .as_ref()
            .is_some_and(|(text, when)| text == message && now - *when < REPORT_INTERVAL);
        if old {
            return;
        }
        self.last_report = Some((message.to_owned(), now));
        let (message, operation) = (message.to_owned(), operation.map(str::to_owned));
        self.report(Event::Waiting { change: self.index, message, operation, waited, deadline });
    }

    /// Sleeps until the time has elapsed or the apply has to end.
    pub async fn pause(&mut self, time: Duration) -> Pause {
        tokio::select! {
            () = tokio::time::sleep(time) => Pause::Elapsed,
            () = aborted(&mut self.stop) => Pause::Interrupted,
        }
    }

    /// Returns the work of GKE that explains the error of a request.
    pub async fn blocking_work(&self, api: Api, error: &ApiError) -> Option<GkeWork> {
        control_plane_down::blocking_work(self.shared.api, self.shared.cluster, api, error).await
    }

    /// Sends a read with retries; returns `null` for an object that does not exist.
    pub async fn read_live(&self, request: Request) -> Result<Value, ApiError> {
        let mut since = Stopwatch::default();
        loop {
            match retry::send(self.shared.api, request.clone(), RetryPolicy::Write).await {
                Err(error) if error.class == ErrorClass::NotFound && !error.is_unknown_path() => {
                    return Ok(Value::Null);
                }
                Err(error) => match self.blocking_work(request.api, &error).await {
                    Some(work) if since.elapsed() <= work.at_most => {
                        tokio::time::sleep(control_plane_down::RETRY_INTERVAL).await;
                    }
                    Some(_) | None => return Err(error),
                },
                Ok(value) => return Ok(value),
            }
        }
    }
}

/// Waits until the apply has to end early.
async fn aborted(stop: &mut watch::Receiver<AbortCause>) {
    if stop.wait_for(|stop| *stop != AbortCause::None).await.is_err() {
        // Nobody is left who could.
        std::future::pending::<()>().await;
    }
}

/// Returns true if the container has no log yet. Source: the kubelet's message for a container that has not started.
fn is_starting(error: &ApiError) -> bool {
    let text = &error.message;
    text.contains("waiting to start")
        || text.contains("ContainerCreating")
        || text.contains("PodInitializing")
}

fn tail(pod: &ObjectId, lines: &[String]) -> String {
    if lines.is_empty() {
        return format!("the log of {pod} is empty");
    }
    let last = &lines[lines.len().saturating_sub(TAIL)..];
    format!("the log of {pod} ends with:\n{}", last.join("\n"))
}

/// Describes what goes on after a change is interrupted in a wait; `None` if nothing does.
pub(crate) fn unfinished(action: Action, until: Until) -> Option<&'static str> {
    match (until, action) {
        (Until::Ready | Until::StillReady, Action::Update) => Some("changed, not yet ready"),
        (Until::Ready | Until::StillReady, Action::Keep) => Some("not yet ready"),
        (Until::Ready | Until::StillReady, Action::Run) => Some("started, not yet finished"),
        (Until::Ready | Until::StillReady, _) => Some("created, not yet ready"),
        (Until::Gone, _) => Some("deletion requested, not yet deleted"),
        (Until::Idle | Until::Handled, _) => None,
    }
}
