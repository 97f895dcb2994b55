//! Two applies of one stack at the same time. Every order in which their requests can arrive is tried, up to so many switches
//! between the two and so many accidents: an answer that is lost, a request that is lost, a process that dies, and one that
//! sleeps longer than its lock holds. What runs is the code of the program, on tokio's paused clock, against a [`store`].
//!
//! A model checker would look at a model of this code. The code itself is small enough to be run again from the start for
//! every order: that is what happens here.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

mod interleavings;
mod shared_release;
mod signals;
mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apply::lock::{Holder, Liveness, Lock, LockOptions};
use apply::{AbortCause, AcquireError, ApplyOptions, Outcome, Summary};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use live::{ApiError, LiveApi, Request, deletion_scope::read_scope};
use model::diag::{self, Look};
use model::resource::Method;
use model::source::Sources;
use plan::{Inputs, Mode, Plan};
use serde_json::Value;
use stack::lower::{Lowered, lower};
use stack::{Options as Reading, parse_text};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use store::{RECORD, Store};

/// The job of one process.
#[derive(Clone)]
struct Job {
    mode: Mode,
    lowered: Arc<Lowered>,
}

impl Job {
    /// Makes the namespaces of these names, each with something that it says.
    fn apply(namespaces: &[(&str, &str)]) -> Self {
        Self { mode: Mode::Apply, lowered: Arc::new(stack(namespaces)) }
    }

    fn destroy(namespaces: &[(&str, &str)]) -> Self {
        Self { mode: Mode::Destroy, ..Self::apply(namespaces) }
    }
}

fn stack(namespaces: &[(&str, &str)]) -> Lowered {
    let mut text = "[stack]\nname = \"s\"\nid = \"s\"\n\n[kubernetes]\ncontext = \"here\"\n".to_owned();
    for (name, says) in namespaces {
        text.push_str(&format!("\n[namespace.{name}]\nlabels = {{ said = \"{says}\" }}\n"));
    }
    let reading = Reading { env: &|_| None, vars: &BTreeMap::new(), helm: None };
    let loaded = parse_text("stack.toml", &text, &reading);
    let loaded = loaded.unwrap_or_else(|failure| {
        panic!("{}", diag::render(&failure.diagnostics, &failure.sources, Look::PLAIN))
    });
    lower(&loaded.stack, false)
}

/// How a process ended.
#[derive(Clone, Debug)]
enum ApplyEnd {
    /// There was nothing to do.
    Empty,
    /// It applied something.
    Applied(Summary),
    /// It stopped before it began.
    Refused(String),
}

impl ApplyEnd {
    fn is_done(&self) -> bool {
        let Self::Applied(summary) = self else { return false };
        summary.stopped == AbortCause::None
            && summary.outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done)
    }

    fn has_begun(&self) -> bool {
        matches!(self, Self::Applied(_))
    }
}

/// Tokio's clock, which goes on while a process of these tests sleeps.
fn clock() -> Duration {
    thread_local!(static FIRST: Instant = Instant::now());
    FIRST.with(Instant::elapsed)
}

async fn planned(api: &dyn LiveApi, job: &Job) -> Result<Plan, String> {
    let Lowered { owner, target, resources, external, capacity_options: _ } = &*job.lowered;
    let wanted = plan::read_set(resources, external, target, owner);
    let mut read = live::read(api, &wanted, 4).await;
    let sources = Sources::default();
    let make = |world: &_| {
        let inputs = Inputs::of((*job.lowered).clone(), job.mode, world, &sources);
        plan::plan(inputs).map_err(|problems| diag::render(&problems, &sources, Look::PLAIN))
    };
    let plan = make(&read.world)?;
    let Some(scope) = plan::deletion_scope(&plan) else { return Ok(plan) };
    read_scope(api, (&mut read.world, &read.listed), &scope, 4).await;
    make(&read.world)
}

/// Does what `apply --auto-approve` and `destroy` do.
async fn process(api: Arc<dyn LiveApi>, pid: u32, job: Job, interrupt: watch::Receiver<u8>) -> ApplyEnd {
    let plan = match planned(&*api, &job).await {
        Ok(plan) if plan.has_nothing_to_do() => return ApplyEnd::Empty,
        Ok(plan) => plan,
        Err(why) => return ApplyEnd::Refused(why),
    };
    apply_approved(api, pid, plan, job, interrupt).await
}

/// Applies from the approval on.
async fn apply_approved(
    api: Arc<dyn LiveApi>,
    pid: u32,
    plan: Plan,
    job: Job,
    interrupt: watch::Receiver<u8>,
) -> ApplyEnd {
    let holder = Holder { who: format!("p{pid}"), pid, process: None };
    let now = || jiff::Timestamp::UNIX_EPOCH;
    let locking = LockOptions { holder, liveness: |_| Liveness::Unknown, force: false, now, clock };
    let lock = Arc::new(Lock::new(Arc::clone(&api), &plan.owner, locking));
    let plan = match apply::acquire(&plan, &*api, &lock, &interrupt, planned(&*api, &job)).await {
        Ok(plan) => plan,
        Err(AcquireError::Failed(why)) => return ApplyEnd::Refused(why),
        Err(why) => return ApplyEnd::Refused(format!("{why:?}")),
    };
    if plan.has_nothing_to_do() {
        apply::release(&lock, &interrupt).await;
        return ApplyEnd::Empty;
    }
    let options = ApplyOptions { lock: Some(lock), now, ..ApplyOptions::new(interrupt) };
    ApplyEnd::Applied(apply::apply(&plan, api, options, |_| {}).await)
}

/// Answers every request at once.
struct DirectApi(Arc<Mutex<Store>>);

impl LiveApi for DirectApi {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        let answer = self.0.lock().unwrap().answer(&request);
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            answer
        }
        .boxed()
    }
}

/// Runs one process alone.
async fn alone(store: &Arc<Mutex<Store>>, pid: u32, job: &Job) -> ApplyEnd {
    let (_keep, interrupt) = watch::channel(0);
    process(Arc::new(DirectApi(Arc::clone(store))), pid, job.clone(), interrupt).await
}

/// Runs on a clock that jumps over waiting.
fn paused<T>(future: impl Future<Output = T>) -> T {
    let builder = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    builder.unwrap().block_on(future)
}

/// Returns true if a request is about state that both processes share: the order of the others changes nothing.
fn is_shared(request: &Request) -> bool {
    request.method != Method::Get || request.path == RECORD
}
