//! `apply --when-capacity`: applies again and again until there is capacity. Each apply holds the lock and waits only for
//! seconds. Between two applies there is no lock; the queued resources are only polled.

use std::time::Duration;

use tokio::time::Instant;

use crate::cli::Exit;
use crate::cli::commands::apply::apply_stack;
use crate::cli::commands::plan::PlanArgs;
use crate::cli::commands::status::status_of;
use crate::cli::session::{Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::cli::signals::{self, StopSignals};
use crate::report::status::{State, Status};
use plan::Mode;

/// The default wait in seconds: the maximum run time of nodes for one ProvisioningRequest.
const DEFAULT_WAIT: u32 = 604_800;
/// Seconds that one apply waits for capacity, under the lock.
const APPLY_WAIT: u64 = 10;
/// The pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// The longest time between two applies, because polling may not show every change.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// The next step after the pause between two applies.
enum NextStep {
    /// Something left the queue, or it is time to try again.
    Apply,
    Ended(Exit),
}

/// Applies until nothing waits for capacity any more, or the time is over.
pub fn apply(settings: &Settings, options: &PlanArgs, auto_approve: bool, force: bool) -> Exit {
    let most = Duration::from_secs(options.wait.unwrap_or(DEFAULT_WAIT).into());
    let begun = Instant::now();
    let (mut options, mut approved, mut force) = (options.clone(), auto_approve, force);
    let Some(agreed) = Session::load(settings).ok().and_then(|session| session.lowered().digest().ok())
    else {
        // Says what is wrong with the stack.
        return apply_stack(settings, Mode::Apply, &options, approved, force);
    };
    options.agreed = Some(agreed);
    loop {
        let left = most.saturating_sub(begun.elapsed());
        options.wait = Some(u32::try_from(left.as_secs().min(APPLY_WAIT)).unwrap_or_default());
        let exit = apply_stack(settings, Mode::Apply, &options, approved, force);
        // Another apply that has the lock is one more reason to wait, once this one has begun.
        let waits = exit == Exit::Queued || (options.unattended && exit == Exit::Locked);
        if !waits || begun.elapsed() >= most {
            return exit;
        }
        // Too late for that apply, and not for this command.
        if let Some(signal) = signals::first_signal() {
            return Exit::of_signal(Some(signal));
        }
        // `--replace` holds for the first apply only; the approval holds for all.
        options.replace.clear();
        options.unattended = true;
        (options.retry_capacity, approved, force) = (false, true, false);
        let format = Format::json(options.json);
        let mut next = NextStep::Apply;
        let exit = settings.report(format, |_| {
            next = block_on(wait_for_capacity(settings, &options, most.saturating_sub(begun.elapsed())))?;
            Ok(Exit::Done)
        });
        match next {
            NextStep::Ended(exit) => return exit,
            NextStep::Apply if exit != Exit::Done => return exit,
            NextStep::Apply => {}
        }
    }
}

/// Polls until something left the queue, or it is time to apply again.
async fn wait_for_capacity(
    settings: &Settings,
    options: &PlanArgs,
    left: Duration,
) -> Result<NextStep, Failure> {
    let stops = StopSignals::listen()?;
    let begun = Instant::now();
    let most = left.min(MAX_INTERVAL);
    let mut before: Option<Status> = None;
    loop {
        // A file that cannot be read for a moment, or a network that is away for a while, ends no wait of days.
        let session = Session::load(settings).ok();
        session.as_ref().map_or(Ok(()), |session| session.check_agreed(options.agreed))?;
        let now = match &session {
            Some(session) => read_status(settings, session, options.parallelism).await.ok(),
            None => None,
        };
        if let Some(now) = now {
            let told = before.as_ref().map(|before| now.changes(before));
            for change in told.into_iter().flatten() {
                settings.print(&change.shown(options.json, jiff::Timestamp::now()));
            }
            if before.as_ref().is_some_and(|before| has_left_queue(before, &now)) {
                return Ok(NextStep::Apply);
            }
            before = Some(now);
        }
        let pause = POLL_INTERVAL.min(most.saturating_sub(begun.elapsed()));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stops.received() => return Ok(NextStep::Ended(Exit::of_signal(stops.first()))),
        }
        if begun.elapsed() >= most {
            return Ok(NextStep::Apply);
        }
    }
}

async fn read_status(settings: &Settings, session: &Session, parallelism: usize) -> Result<Status, Failure> {
    let link = session.connect(settings)?;
    let status = status_of(session, &link, &[], parallelism).await?;
    link.close().await?;
    Ok(status)
}

/// Returns true if something left the queue, or nothing is queued.
fn has_left_queue(before: &Status, now: &Status) -> bool {
    let queued = |status: &Status| {
        let rows = status.rows.iter().filter(|row| matches!(row.state, State::Queued(_)));
        rows.map(|row| row.identity.clone()).collect::<Vec<_>>()
    };
    queued(before).iter().any(|one| !queued(now).contains(one)) || queued(now).is_empty()
}
