//! Applying a plan: one loop, events out. Makes no choices that the plan has not made.

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
use model::record::Passes;
use model::resource::KindId;
use model::secrets::env_values::Given;
use plan::Plan;

mod acquire;
mod call;
mod control_plane_down;
pub mod failure;
mod fallback;
mod gke_errors;
pub mod lock;
mod operations;
mod program;
pub mod record;
pub mod schedule;
mod wait;
mod watch_events;
mod write_guard;

#[cfg(test)]
mod tests;

pub use acquire::{NotBegun, begin, give_back};

use lock::Lock;
use program::{Ended, Run, Shared};
use record::{NotKept, RecordWriter};
use schedule::Scheduler;
use write_guard::Fence;

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
        /// The thing that was waited for, and its last state.
        message: String,
    },
    /// Asked for, and there is no capacity for it yet: nothing is wrong, and a later apply goes on.
    Queued {
        /// The capacity that it waits for, and since when.
        message: String,
    },
    /// Not started because something before it waits for capacity.
    Waits {
        /// The change that waits.
        because: Address,
    },
    /// Not started because something before it did not succeed.
    Skipped {
        /// The change that did not succeed.
        because: Address,
    },
    /// It may be done or half done: interrupted while running, or its last request has no answer.
    InDoubt {
        /// The work that was under way.
        message: String,
    },
    /// Interrupted before it started.
    NotStarted,
}

/// Everything that happens during apply. `change` is the place in the plan's list.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A change began.
    Started { change: usize },
    /// A change waits; sent when the text changes and about every ten seconds.
    Waiting {
        change: usize,
        /// How far it is, and what holds it up: `1 of 2 nodes ready`.
        message: String,
        /// GKE's name of the operation that is waited for.
        operation: Option<String>,
        /// How long so far.
        waited: Duration,
        /// How long at most.
        deadline: Duration,
    },
    /// A request is tried again.
    Retrying {
        change: usize,
        /// Why.
        message: String,
        /// When.
        after: Duration,
    },
    /// Lines of a pod's log that a check read.
    Log { change: usize, lines: Vec<String> },
    /// A change ended.
    Finished {
        change: usize,
        /// How.
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
    /// One for each change of the plan that is not `Keep`: its place, how it ended, how long it ran.
    pub outcomes: Vec<(usize, Outcome, Duration)>,
    /// How long it all took.
    pub took: Duration,
    /// The event that ended it before all of it was started.
    pub stopped: Stopped,
}

/// Events that end an apply early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing did.
    No,
    /// Ctrl-C, or another signal that asks for an end.
    Interrupted,
    /// Somebody took the lock of the stack.
    Unlocked,
}

pub type Kinds = fn(KindId) -> &'static Kind;

#[derive(Clone)]
pub struct ApplyOptions {
    /// Writes into Kubernetes at once.
    pub parallelism: usize,
    /// The time that the record gets.
    pub now: fn() -> jiff::Timestamp,
    /// Ctrl-Cs so far: the first stops what is not begun, the second all.
    pub interrupt: watch::Receiver<u8>,
    /// The lookup of kinds, which judge readiness.
    pub kinds: Kinds,
    /// Keeps other applies of the stack away; without it nothing does. Held already where [`begin`] took it.
    pub lock: Option<Arc<Lock>>,
    /// The values that the environment has for Secrets of the stack.
    pub given: Given,
    /// How long a change waits for capacity before the apply goes on without it.
    pub capacity: Duration,
}

impl ApplyOptions {
    /// Writes into Kubernetes at once, when nobody says otherwise.
    pub const PARALLELISM: usize = 64;
    /// How long a change waits for capacity, when nobody says otherwise: as long as machines that are there take.
    pub const CAPACITY: Duration = Duration::from_secs(600);

    /// The usual options.
    pub fn new(interrupt: watch::Receiver<u8>) -> Self {
        Self {
            parallelism: Self::PARALLELISM,
            now: jiff::Timestamp::now,
            interrupt,
            kinds: kinds::of,
            lock: None,
            given: Given::default(),
            capacity: Self::CAPACITY,
        }
    }
}

/// Applies a plan. Each change's steps run in order, changes run as their followers and lanes allow; a
/// change that does not succeed skips what follows it and nothing else.
pub async fn apply(
    plan: &Plan,
    api: Arc<dyn LiveApi>,
    options: ApplyOptions,
    mut events: impl FnMut(Event),
) -> Summary {
    let ApplyOptions { parallelism, now, interrupt, kinds, lock, given, capacity } = options;
    let fence = Fence::new(api, lock.clone());
    let writer = RecordWriter::new(plan, &fence, now, lock.clone());
    let mut unlocked = Box::pin(renewed(lock.clone()).fuse());
    let watches = Watches::new(&fence);
    let mut listening = Box::pin(watches.run());
    let shared = Shared {
        api: &fence,
        fence: &fence,
        owner: &plan.owner,
        cluster: plan.target.gke.as_ref(),
        desired: &plan.desired,
        kinds,
        writer: &writer,
        given: &given,
        watches: &watches,
        capacity,
        flex: plan.flex_pools(),
    };
    let mut state = ApplyState::new(plan, parallelism);
    let (halt, stop) = watch::channel(Stopped::No);
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut ctrl_c = interrupt.clone();
    ctrl_c.mark_changed();
    let mut running = FuturesUnordered::new();
    while state.interrupts < 2 {
        for place in state.start(&mut events) {
            let run = Run::new(&shared, place, &plan.changes[place], tell.clone(), stop.clone());
            running.push(async move { (place, run.finish().await) });
        }
        if running.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            count = pressed(&mut ctrl_c) => state.interrupted(count, &mut events),
            never = &mut listening => match never {},
            Some(event) = told.recv() => events(event),
            Some((place, ended)) = running.next() => {
                while let Ok(event) = told.try_recv() {
                    events(event);
                }
                // A change may meet the lost lock before this loop hears of it, and ends because of it.
                if fence.is_shut() {
                    state.unlocked();
                }
                state.ended(place, ended, &mut events);
            }
            who = &mut unlocked, if !unlocked.is_terminated() => {
                events(taken_by(&who));
                state.unlocked();
            }
        }
        halt.send_replace(state.stopped);
    }
    drop(running);
    state.close(&mut events);
    // Who has the lock now has read the intent, which names all that may be there, and keeps the record from here.
    if state.interrupts < 2
        && state.stopped != Stopped::Unlocked
        && let Err(why) = outcome_kept(&writer, &state, &mut ctrl_c, &mut unlocked).await
    {
        if let NotKept::Lost(_) = &why {
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
        give_back(&lock, &interrupt).await;
    }
    state.summary()
}

/// Writes what became of all changes. The lock is renewed meanwhile, too, until it is `lost`: after a change that took all of an
/// API's time nothing may be written before that.
async fn outcome_kept(
    writer: &RecordWriter<'_>,
    state: &ApplyState<'_>,
    ctrl_c: &mut watch::Receiver<u8>,
    lost: impl Future<Output = String>,
) -> Result<(), NotKept> {
    let stopped = async { while pressed(ctrl_c).await < 2 {} };
    tokio::select! {
        biased;
        written = writer.outcome(&state.outcomes, &state.passes) => written,
        () = stopped => Err(NotKept::Failed("it was interrupted".to_owned())),
        who = lost => Err(NotKept::Lost(who)),
    }
}

fn taken_by(who: &str) -> Event {
    let message = format!(
        "{who} took the stack's lock: no more requests are sent; plan again when that apply has finished"
    );
    Event::Warning { message }
}

/// Ends when the lock is lost.
async fn renewed(lock: Option<Arc<Lock>>) -> String {
    match lock {
        Some(lock) => lock.renew().await,
        None => std::future::pending().await,
    }
}

/// Ends when there has been a signal.
async fn interrupted(interrupt: watch::Receiver<u8>) {
    signals(interrupt, 1).await;
}

/// Ends when there have been so many signals.
async fn signals(mut interrupt: watch::Receiver<u8>, least: u8) {
    if interrupt.wait_for(|count| *count >= least).await.is_err() {
        // Nobody is left who could send one.
        std::future::pending::<()>().await;
    }
}

/// Waits for the next Ctrl-C, and returns how many there have been; never returns once nobody can press it.
async fn pressed(ctrl_c: &mut watch::Receiver<u8>) -> u8 {
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

/// How far an apply is.
struct ApplyState<'a> {
    plan: &'a Plan,
    scheduler: Scheduler<'a>,
    began: Instant,
    started: BTreeMap<usize, Instant>,
    outcomes: BTreeMap<usize, (Outcome, Duration)>,
    passes: Passes,
    interrupts: u8,
    stopped: Stopped,
}

impl<'a> ApplyState<'a> {
    fn new(plan: &'a Plan, parallelism: usize) -> Self {
        Self {
            plan,
            scheduler: Scheduler::new(&plan.changes, &plan.barriers, parallelism),
            began: Instant::now(),
            started: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            passes: Passes::new(),
            interrupts: 0,
            stopped: Stopped::No,
        }
    }

    /// Changes that start now.
    fn start(&mut self, events: &mut impl FnMut(Event)) -> Vec<usize> {
        if self.interrupts > 0 {
            return Vec::new();
        }
        let places = self.scheduler.start();
        for place in &places {
            self.started.insert(*place, Instant::now());
            events(Event::Started { change: *place });
        }
        places
    }

    fn interrupted(&mut self, count: u8, events: &mut impl FnMut(Event)) {
        if self.interrupts == 0 {
            events(Event::Interrupted);
        }
        if self.stopped == Stopped::No {
            self.stopped = Stopped::Interrupted;
        }
        self.interrupts = count;
    }

    /// Ends the apply because the lock is lost: running changes send nothing more.
    fn unlocked(&mut self) {
        self.interrupts = self.interrupts.max(1);
        self.stopped = Stopped::Unlocked;
    }

    fn ended(&mut self, place: usize, ended: Ended, events: &mut impl FnMut(Event)) {
        let Ended { outcome, pass } = ended;
        let address = &self.plan.changes[place].address;
        let mut skipped = Vec::new();
        match &outcome {
            Outcome::Done => self.scheduler.done(place),
            Outcome::Failed { .. }
            | Outcome::TimedOut { .. }
            | Outcome::Queued { .. }
            | Outcome::Waits { .. }
            | Outcome::Skipped { .. } => {
                skipped = self.scheduler.failed(place);
            }
            Outcome::InDoubt { .. } | Outcome::NotStarted if self.interrupts > 0 => {
                self.scheduler.left(place);
            }
            // In doubt without Ctrl-C: an operation that cannot be followed any more.
            Outcome::InDoubt { .. } | Outcome::NotStarted => skipped = self.scheduler.failed(place),
        }
        let because = match &outcome {
            Outcome::Skipped { because } | Outcome::Waits { because } => because.clone(),
            _ => address.clone(),
        };
        let waits = matches!(outcome, Outcome::Queued { .. } | Outcome::Waits { .. });
        let thing = &self.plan.changes[place].identity;
        self.passes.extend(pass.map(|digest| (thing.clone(), digest)));
        self.close_one(place, outcome, events);
        for place in skipped {
            let because = because.clone();
            let behind = if waits { Outcome::Waits { because } } else { Outcome::Skipped { because } };
            self.close_one(place, behind, events);
        }
    }

    fn close_one(&mut self, place: usize, outcome: Outcome, events: &mut impl FnMut(Event)) {
        let took = self.started.get(&place).map(Instant::elapsed).unwrap_or_default();
        events(Event::Finished { change: place, outcome: outcome.clone(), took });
        self.outcomes.insert(place, (outcome, took));
    }

    /// Closes the changes that the end of the loop left: stopped in the middle, or never started.
    fn close(&mut self, events: &mut impl FnMut(Event)) {
        for place in self.scheduler.running() {
            self.scheduler.left(place);
            let message = "stopped immediately; it may be incomplete".to_owned();
            self.close_one(place, Outcome::InDoubt { message }, events);
        }
        for place in self.scheduler.waiting() {
            let outcome = if self.interrupts > 0 {
                Outcome::NotStarted
            } else {
                failure::failed(
                    Code::WrongPlan,
                    "in this plan it waits for itself",
                    Some("plan again, then apply"),
                )
            };
            self.close_one(place, outcome, events);
        }
    }

    fn summary(self) -> Summary {
        let Self { began, outcomes, stopped, .. } = self;
        let outcomes = outcomes.into_iter().map(|(place, (outcome, took))| (place, outcome, took)).collect();
        Summary { outcomes, took: began.elapsed(), stopped }
    }
}
