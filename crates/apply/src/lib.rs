//! Applies a plan: one loop that emits events. It makes no choices that the plan has not made, and contains no output texts.
//!
//! `acquire` takes the lock and plans again. `schedule` (pure) decides which change may start, `change_run` runs the steps of a
//! change, `call` sends a request, `wait` waits. `lock` and `record` store both in the cluster, and every write passes
//! `write_guard`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::FusedFuture as _;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use kinds::kind::Kind;
use live::LiveApi;
use live::watch::Watches;
use model::address::Address;
use model::diag::Code;
use model::record::Completions;
use model::resource::KindId;
use model::secrets::env_values::EnvValues;
use plan::Plan;

mod acquire;
mod call;
mod change_run;
mod control_plane_down;
mod cost_meter;
pub mod failure;
mod fallback;
mod gke_errors;
pub mod lock;
mod operations;
pub mod record;
mod record_error;
pub mod schedule;
mod unscheduled;
mod wait;
mod waited_pods;
mod watch_events;
mod write_guard;

#[cfg(test)]
mod tests;

pub use acquire::{AcquireError, acquire, release};

use change_run::{ChangeEnd, ChangeRun, Shared};
use lock::Lock;
use record::RecordWriter;
use record_error::RecordError;
use schedule::ChangeScheduler;
use write_guard::WriteGuard;

/// How one change ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// All steps are done.
    Done,
    /// A step failed.
    Failed {
        /// Stable code, `DI0401`.
        code: String,
        /// The failure and its cause.
        message: String,
        /// The next step for the user.
        help: Option<String>,
    },
    /// Not ready in time.
    TimedOut {
        /// The resource that was waited for, and its last state.
        message: String,
    },
    /// Its capacity was requested and is not available yet. Nothing is wrong, and a later apply continues.
    Queued {
        /// The capacity that it waits for, and since when.
        message: String,
    },
    /// Not started because a predecessor waits for capacity.
    Waits {
        /// The change that waits.
        because: Address,
    },
    /// Not started because a predecessor did not succeed.
    Skipped {
        /// The change that did not succeed.
        because: Address,
    },
    /// It may be done or half done: it was interrupted while running, or its last request got no answer.
    InDoubt {
        /// The step that was in progress.
        message: String,
    },
    /// Interrupted before it started.
    NotStarted,
}

/// Events of an apply. `change` is the index in the plan's `changes`.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A change began.
    Started { change: usize },
    /// A change is waiting. Sent when the message changes, and about every ten seconds.
    Waiting {
        change: usize,
        /// How far it is, and what it waits for: `1 of 2 nodes ready`.
        message: String,
        /// GKE's name of the operation that it waits for.
        operation: Option<String>,
        /// How long it has been waiting.
        waited: Duration,
        /// How long it waits at most.
        deadline: Duration,
    },
    /// A request will be retried.
    Retrying {
        change: usize,
        /// The error that caused the retry.
        message: String,
        /// The pause until the retry.
        after: Duration,
    },
    /// Lines of a pod's log that a check read.
    Log { change: usize, lines: Vec<String> },
    /// A change ended.
    Finished {
        change: usize,
        /// The outcome.
        outcome: Outcome,
        /// How long it ran.
        took: Duration,
    },
    /// The first Ctrl-C: nothing new is started.
    Interrupted,
    /// Something that changes no outcome and that the user should know.
    Warning {
        /// The warning, and what follows from it.
        message: String,
    },
}

/// The end of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The index, the outcome and the duration of each change in the plan that is not `Keep`.
    pub outcomes: Vec<(usize, Outcome, Duration)>,
    /// How long the apply took.
    pub took: Duration,
    /// Why it ended before all changes were started.
    pub stopped: AbortCause,
}

/// Reasons why an apply ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortCause {
    /// Nothing ended it.
    None,
    /// Ctrl-C, or another signal that stops the program.
    Interrupted,
    /// Another process took the stack's lock.
    LockLost,
}

pub type Kinds = fn(KindId) -> &'static Kind;

#[derive(Clone)]
pub struct ApplyOptions {
    /// The maximum number of concurrent writes to Kubernetes.
    pub parallelism: usize,
    /// The current time, for the record.
    pub now: fn() -> jiff::Timestamp,
    /// The number of Ctrl-Cs so far. The first one prevents new steps, the second one stops everything.
    pub interrupt: watch::Receiver<u8>,
    /// The lookup of kinds, which judge readiness.
    pub kinds: Kinds,
    /// The lock that prevents other applies of the stack; `None` for no lock. [`acquire`] may have taken it already.
    pub lock: Option<Arc<Lock>>,
    /// The values of environment variables for Secrets of the stack.
    pub given: EnvValues,
    /// How long a change waits for capacity before the apply continues without it.
    pub capacity: Duration,
}

impl ApplyOptions {
    /// The default number of concurrent writes to Kubernetes.
    pub const PARALLELISM: usize = 64;
    /// How long a change waits for capacity by default: long enough for machines that are available.
    pub const CAPACITY: Duration = Duration::from_secs(600);

    /// Creates the default options.
    pub fn new(interrupt: watch::Receiver<u8>) -> Self {
        Self {
            parallelism: Self::PARALLELISM,
            now: jiff::Timestamp::now,
            interrupt,
            kinds: kinds::of,
            lock: None,
            given: EnvValues::default(),
            capacity: Self::CAPACITY,
        }
    }
}

/// Applies a plan. The steps of a change run in order. A change starts once its predecessors are done and its lane is free. If it
/// does not succeed, only its successors are skipped.
pub async fn apply(
    plan: &Plan,
    api: Arc<dyn LiveApi>,
    options: ApplyOptions,
    mut events: impl FnMut(Event),
) -> Summary {
    let ApplyOptions { parallelism, now, interrupt, kinds, lock, given, capacity } = options;
    let guard = WriteGuard::new(api, lock.clone());
    let writer = RecordWriter::new(plan, &guard, now, lock.clone());
    let mut unlocked = Box::pin(keep_lock(lock.clone()).fuse());
    let watches = Watches::new(&guard);
    let mut watching = Box::pin(watches.run());
    let shared = Shared {
        api: &guard,
        guard: &guard,
        owner: &plan.owner,
        cluster: plan.target.gke.as_ref(),
        desired: &plan.desired,
        kinds,
        writer: &writer,
        given: &given,
        watches: &watches,
        capacity,
        flex: plan.flex_start_pools(),
    };
    let mut state = ApplyState::new(plan, parallelism);
    let (abort, stop) = watch::channel(AbortCause::None);
    let (report, mut reported) = mpsc::unbounded_channel();
    let mut ctrl_c = interrupt.clone();
    ctrl_c.mark_changed();
    let mut running = FuturesUnordered::new();
    while state.interrupts < 2 {
        for index in state.start(&mut events) {
            let run = ChangeRun::new(&shared, index, &plan.changes[index], report.clone(), stop.clone());
            running.push(async move { (index, run.finish().await) });
        }
        if running.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            count = next_interrupt(&mut ctrl_c) => state.interrupted(count, &mut events),
            never = &mut watching => match never {},
            Some(event) = reported.recv() => events(event),
            Some((index, ended)) = running.next() => {
                while let Ok(event) = reported.try_recv() {
                    events(event);
                }
                // A change may meet the lost lock before this loop hears of it, and ends because of it.
                if guard.is_closed() {
                    state.unlocked();
                }
                state.finish(index, ended, &mut events);
            }
            who = &mut unlocked, if !unlocked.is_terminated() => {
                events(lock_lost(&who));
                state.unlocked();
            }
        }
        abort.send_replace(state.stopped);
    }
    drop(running);
    state.close(&mut events);
    // After a lost lock, the new holder has read the intent, which names everything that may exist, and keeps the
    // record.
    if state.interrupts < 2
        && state.stopped != AbortCause::LockLost
        && let Err(why) = write_outcome(&writer, &state, &mut ctrl_c, &mut unlocked).await
    {
        if let RecordError::LockLost(_) = &why {
            state.unlocked();
        }
        let message = format!(
            "the record of this apply could not be written: {why}; the next plan reads live state and may run \
             checks again"
        );
        events(Event::Warning { message });
    }
    drop(unlocked);
    // After a second signal it is left to lapse: nobody waits for an answer any more.
    if let Some(lock) = lock.filter(|_| *interrupt.borrow() < 2) {
        release(&lock, &interrupt).await;
    }
    state.summary()
}

/// Writes the outcome of all changes into the record. Meanwhile the lock is renewed until it is `lost`: if a change kept the API
/// busy for long, the lock must be renewed before anything is written.
async fn write_outcome(
    writer: &RecordWriter<'_>,
    state: &ApplyState<'_>,
    ctrl_c: &mut watch::Receiver<u8>,
    lost: impl Future<Output = String>,
) -> Result<(), RecordError> {
    let stopped = async { while next_interrupt(ctrl_c).await < 2 {} };
    tokio::select! {
        biased;
        written = writer.outcome(&state.outcomes, &state.passes) => written,
        () = stopped => Err(RecordError::Failed("it was interrupted".to_owned())),
        who = lost => Err(RecordError::LockLost(who)),
    }
}

fn lock_lost(who: &str) -> Event {
    let message = format!(
        "{who} took the stack's lock: no more requests are sent; plan again when that apply has finished"
    );
    Event::Warning { message }
}

/// Renews the lock; ends when it is lost.
async fn keep_lock(lock: Option<Arc<Lock>>) -> String {
    match lock {
        Some(lock) => lock.renew().await,
        None => std::future::pending().await,
    }
}

/// Waits for the first signal.
async fn interrupted(interrupt: watch::Receiver<u8>) {
    signals(interrupt, 1).await;
}

/// Waits until there have been at least `least` signals.
async fn signals(mut interrupt: watch::Receiver<u8>, least: u8) {
    if interrupt.wait_for(|count| *count >= least).await.is_err() {
        // Nobody is left who could send one.
        std::future::pending::<()>().await;
    }
}

/// Waits for the next Ctrl-C, and returns the number of Ctrl-Cs so far. Never returns if the sender is gone.
async fn next_interrupt(ctrl_c: &mut watch::Receiver<u8>) -> u8 {
    loop {
        if ctrl_c.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let count = *ctrl_c.borrow_and_update();
        if count > 0 {
            return count;
        }
    }
}

/// The state of a running apply.
struct ApplyState<'a> {
    plan: &'a Plan,
    scheduler: ChangeScheduler<'a>,
    began: Instant,
    started: BTreeMap<usize, Instant>,
    outcomes: BTreeMap<usize, (Outcome, Duration)>,
    passes: Completions,
    interrupts: u8,
    stopped: AbortCause,
}

impl<'a> ApplyState<'a> {
    fn new(plan: &'a Plan, parallelism: usize) -> Self {
        Self {
            plan,
            scheduler: ChangeScheduler::new(&plan.changes, &plan.barriers, parallelism),
            began: Instant::now(),
            started: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            passes: Completions::new(),
            interrupts: 0,
            stopped: AbortCause::None,
        }
    }

    /// Starts the changes that can start now, and returns their indices.
    fn start(&mut self, events: &mut impl FnMut(Event)) -> Vec<usize> {
        if self.interrupts > 0 {
            return Vec::new();
        }
        let indices = self.scheduler.start();
        for index in &indices {
            self.started.insert(*index, Instant::now());
            events(Event::Started { change: *index });
        }
        indices
    }

    fn interrupted(&mut self, count: u8, events: &mut impl FnMut(Event)) {
        if self.interrupts == 0 {
            events(Event::Interrupted);
        }
        if self.stopped == AbortCause::None {
            self.stopped = AbortCause::Interrupted;
        }
        self.interrupts = count;
    }

    /// Ends the apply because the lock is lost: running changes send nothing more.
    fn unlocked(&mut self) {
        self.interrupts = self.interrupts.max(1);
        self.stopped = AbortCause::LockLost;
    }

    fn finish(&mut self, index: usize, ended: ChangeEnd, events: &mut impl FnMut(Event)) {
        let ChangeEnd { outcome, pass } = ended;
        let address = &self.plan.changes[index].address;
        let mut skipped = Vec::new();
        match &outcome {
            Outcome::Done => self.scheduler.done(index),
            Outcome::Failed { .. }
            | Outcome::TimedOut { .. }
            | Outcome::Queued { .. }
            | Outcome::Waits { .. }
            | Outcome::Skipped { .. } => {
                skipped = self.scheduler.failed(index);
            }
            Outcome::InDoubt { .. } | Outcome::NotStarted if self.interrupts > 0 => {
                self.scheduler.interrupted(index);
            }
            // In doubt without Ctrl-C: an operation that cannot be followed any more.
            Outcome::InDoubt { .. } | Outcome::NotStarted => skipped = self.scheduler.failed(index),
        }
        let because = match &outcome {
            Outcome::Skipped { because } | Outcome::Waits { because } => because.clone(),
            _ => address.clone(),
        };
        let waits = matches!(outcome, Outcome::Queued { .. } | Outcome::Waits { .. });
        let thing = &self.plan.changes[index].identity;
        self.passes.extend(pass.map(|digest| (thing.clone(), digest)));
        self.finish_one(index, outcome, events);
        for index in skipped {
            let because = because.clone();
            let behind = if waits { Outcome::Waits { because } } else { Outcome::Skipped { because } };
            self.finish_one(index, behind, events);
        }
    }

    fn finish_one(&mut self, index: usize, outcome: Outcome, events: &mut impl FnMut(Event)) {
        let took = self.started.get(&index).map(Instant::elapsed).unwrap_or_default();
        events(Event::Finished { change: index, outcome: outcome.clone(), took });
        self.outcomes.insert(index, (outcome, took));
    }

    /// Sets the outcomes of changes that the loop left unfinished or not started.
    fn close(&mut self, events: &mut impl FnMut(Event)) {
        for index in self.scheduler.running() {
            self.scheduler.interrupted(index);
            let message = "stopped immediately; it may be incomplete".to_owned();
            self.finish_one(index, Outcome::InDoubt { message }, events);
        }
        for index in self.scheduler.waiting() {
            let outcome = if self.interrupts > 0 {
                Outcome::NotStarted
            } else {
                failure::failed(
                    Code::WrongPlan,
                    "in this plan it waits for itself",
                    Some("plan again, then apply"),
                )
            };
            self.finish_one(index, outcome, events);
        }
    }

    fn summary(self) -> Summary {
        let Self { began, outcomes, stopped, .. } = self;
        let outcomes = outcomes.into_iter().map(|(index, (outcome, took))| (index, outcome, took)).collect();
        Summary { outcomes, took: began.elapsed(), stopped }
    }
}
