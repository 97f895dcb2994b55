//! Steps between the approval of a plan and its first change. The lock is taken, and the plan is made again under it, so that
//! it includes what another apply did in between.

use std::time::Duration;

use tokio::sync::watch;

use crate::lock::{Lock, Missing, Unlocked};
use crate::record::{cluster_change, keeps_record};
use crate::{interrupted, signals};
use live::LiveApi;
use live::read::is_api_ready;
use plan::{Action, Plan};

/// How long a lock may take to be given back when nothing was done under it and somebody wants the program to end.
const GIVE_BACK: Duration = Duration::from_millis(500);

/// Why nothing was begun.
#[derive(Debug)]
pub enum NotBegun<E> {
    /// There is no lock.
    Unlocked(Unlocked),
    /// Ctrl-C while the lock was waited for, or while the plan was made again.
    Interrupted,
    /// The plan could not be made again.
    Failed(E),
}

/// Takes the lock where there is a cluster that it can stand in, and has the plan made again while it is held and renewed.
///
/// # Errors
/// Nothing was done, and the lock was given back.
pub async fn begin<E>(
    plan: &Plan,
    api: &dyn LiveApi,
    lock: &Lock,
    interrupt: &watch::Receiver<u8>,
    again: impl Future<Output = Result<Plan, E>>,
) -> Result<Plan, NotBegun<E>> {
    let under_lock = async {
        lock_for(plan, api, lock).await.map_err(NotBegun::Unlocked)?;
        tokio::select! {
            now = again => now.map_err(NotBegun::Failed),
            who = lock.renew() => Err(NotBegun::Unlocked(Unlocked::Held(who))),
        }
    };
    let begun = tokio::select! {
        biased;
        () = interrupted(interrupt.clone()) => Err(NotBegun::Interrupted),
        begun = under_lock => begun,
    };
    if begun.is_err() {
        give_back(lock, interrupt).await;
    }
    begun
}

/// Gives the lock back; soon, when somebody wants the program to end.
pub async fn give_back(lock: &Lock, interrupt: &watch::Receiver<u8>) {
    tokio::select! {
        () = lock.release() => {}
        () = async { interrupted(interrupt.clone()).await; tokio::time::sleep(GIVE_BACK).await } => {}
        () = signals(interrupt.clone(), 2) => {}
    }
}

async fn lock_for(plan: &Plan, api: &dyn LiveApi, lock: &Lock) -> Result<(), Unlocked> {
    // Where nobody can look there is nowhere to lock; GKE runs one deletion of a cluster.
    if plan.deletes_unseen() {
        return Ok(());
    }
    if let Some(name) = &plan.target.gke {
        let inside = is_api_ready(api, name).await;
        // The first write inside takes it.
        if !inside.map_err(|error| Unlocked::Cannot(error.with_remedy()))? {
            return Ok(());
        }
    }
    let goes = cluster_change(plan)
        .is_some_and(|(_, change)| matches!(change.action, Action::Delete | Action::Replace));
    let missing = if keeps_record(plan) && !goes { Missing::Make } else { Missing::Leave };
    lock.take(missing).await
}
