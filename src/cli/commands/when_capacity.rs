//! `apply --when-capacity`: applies again and again until there is capacity. Each apply waits for seconds only, under the
//! lock, and between them nothing is held: what waits is only looked at.

use std::time::Duration;

use tokio::time::Instant;

use crate::cli::Exit;
use crate::cli::commands::apply::apply_stack;
use crate::cli::commands::plan::Making;
use crate::cli::commands::status::look;
use crate::cli::session::{Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::cli::signals::{self, Stops};
use crate::report::status::{State, Status};
use plan::Mode;

/// Seconds that is waited when nobody says how long: as long as GKE's nodes for one request last.
const LONGEST: u32 = 604_800;
/// Seconds that one apply waits for capacity, under the lock.
const TRY: u64 = 10;
/// Between two looks.
const LOOK: Duration = Duration::from_secs(15);
/// The longest time between two applies: there may be changes that a look does not show.
const AGAIN: Duration = Duration::from_secs(3600);

/// How the time between two applies ended.
enum Woken {
    /// Something left the queue, or it is time to try again.
    Again,
    Ended(Exit),
}

/// Applies until nothing waits for capacity any more, or the time is over.
pub fn apply(settings: &Settings, making: &Making, auto_approve: bool, force: bool) -> Exit {
    let most = Duration::from_secs(making.wait.unwrap_or(LONGEST).into());
    let begun = Instant::now();
    let (mut making, mut approved, mut force) = (making.clone(), auto_approve, force);
    let Some(agreed) = Session::load(settings).ok().and_then(|session| session.lowered().digest().ok())
    else {
        // Says what is wrong with the stack.
        return apply_stack(settings, Mode::Apply, &making, approved, force);
    };
    making.agreed = Some(agreed);
    loop {
        let left = most.saturating_sub(begun.elapsed());
        making.wait = Some(u32::try_from(left.as_secs().min(TRY)).unwrap_or_default());
        let exit = apply_stack(settings, Mode::Apply, &making, approved, force);
        // Another apply that has the lock is one more thing to wait for, once this one has begun.
        let waits = exit == Exit::Queued || (making.unattended && exit == Exit::Locked);
        if !waits || begun.elapsed() >= most {
            return exit;
        }
        // Too late for that apply, and not for this command.
        if let Some(signal) = signals::heard() {
            return Exit::of_signal(Some(signal));
        }
        // What was asked for once is done, and what was agreed to is agreed to.
        making.replace.clear();
        making.unattended = true;
        (making.retry_capacity, approved, force) = (false, true, false);
        let format = Format::json(making.json);
        let mut woken = Woken::Again;
        let exit = settings.report(format, |_| {
            woken = block_on(asleep(settings, &making, most.saturating_sub(begun.elapsed())))?;
            Ok(Exit::Done)
        });
        match woken {
            Woken::Ended(exit) => return exit,
            Woken::Again if exit != Exit::Done => return exit,
            Woken::Again => {}
        }
    }
}

/// Looks until what waits does so no longer.
async fn asleep(settings: &Settings, making: &Making, left: Duration) -> Result<Woken, Failure> {
    let stops = Stops::listen()?;
    let begun = Instant::now();
    let most = left.min(AGAIN);
    let mut before: Option<Status> = None;
    loop {
        // A file that cannot be read for a moment, or a network that is away for a while, ends no wait of days.
        let session = Session::load(settings).ok();
        session.as_ref().map_or(Ok(()), |session| session.is_agreed(making.agreed))?;
        let now = match &session {
            Some(session) => seen(settings, session, making.parallelism).await.ok(),
            None => None,
        };
        if let Some(now) = now {
            let told = before.as_ref().map(|before| now.changes(before));
            for change in told.into_iter().flatten() {
                settings.print(&change.shown(making.json, jiff::Timestamp::now()));
            }
            if before.as_ref().is_some_and(|before| moved(before, &now)) {
                return Ok(Woken::Again);
            }
            before = Some(now);
        }
        let pause = LOOK.min(most.saturating_sub(begun.elapsed()));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stops.came() => return Ok(Woken::Ended(Exit::of_signal(stops.first()))),
        }
        if begun.elapsed() >= most {
            return Ok(Woken::Again);
        }
    }
}

async fn seen(settings: &Settings, session: &Session, parallelism: usize) -> Result<Status, Failure> {
    let link = session.connect(settings)?;
    let status = look(session, &link, &[], parallelism).await?;
    link.close().await?;
    Ok(status)
}

/// Returns true if something left the queue, or nothing is queued.
fn moved(before: &Status, now: &Status) -> bool {
    let queued = |status: &Status| {
        let rows = status.rows.iter().filter(|row| matches!(row.state, State::Queued(_)));
        rows.map(|row| row.identity.clone()).collect::<Vec<_>>()
    };
    queued(before).iter().any(|one| !queued(now).contains(one)) || queued(now).is_empty()
}
