//! Steps between the approval of a plan and its first change. They take the lock and plan again under it, so that the plan
//! includes what another apply did in between.

use std::time::Duration;

use tokio::sync::watch;

use crate::lock::{IfMissing, Lock, LockError};
use crate::record::{cluster_change, keeps_record};
use crate::{interrupted, signals};
use live::LiveApi;
use live::read::is_api_ready;
use plan::{Action, Plan};

/// How long releasing the lock may take after a signal, if nothing was done under it.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// Errors before the first change of an apply.
#[derive(Debug)]
pub enum AcquireError<E> {
    /// The lock was not taken.
    Lock(LockError),
    /// Ctrl-C during the wait for the lock or while planning again.
    Interrupted,
    /// The plan could not be made again.
    Failed(E),
}

/// Takes the lock, if there is a cluster that can hold it, and plans again while the lock is held and renewed.
///
/// # Errors
/// Why nothing was done. The lock has been released.
pub async fn acquire<E>(
    plan: &Plan,
    api: &dyn LiveApi,
    lock: &Lock,
    interrupt: &watch::Receiver<u8>,
    again: impl Future<Output = Result<Plan, E>>,
) -> Result<Plan, AcquireError<E>> {
    let under_lock = async {
        lock_for(plan, api, lock).await.map_err(AcquireError::Lock)?;
        tokio::select! {
            now = again => now.map_err(AcquireError::Failed),
            who = lock.renew() => Err(AcquireError::Lock(LockError::HeldByOther(who))),
        }
    };
    let acquired = tokio::select! {
        biased;
        () = interrupted(interrupt.clone()) => Err(AcquireError::Interrupted),
        acquired = under_lock => acquired,
    };
    if acquired.is_err() {
        release(lock, interrupt).await;
    }
    acquired
}

/// Releases the lock. Gives up after [`RELEASE_TIMEOUT`] once a signal asks for the end.
pub async fn release(lock: &Lock, interrupt: &watch::Receiver<u8>) {
    tokio::select! {
        () = lock.release() => {}
        () = async { interrupted(interrupt.clone()).await; tokio::time::sleep(RELEASE_TIMEOUT).await } => {}
        () = signals(interrupt.clone(), 2) => {}
    }
}

async fn lock_for(plan: &Plan, api: &dyn LiveApi, lock: &Lock) -> Result<(), LockError> {
    // Where nobody can look there is nowhere to lock; GKE runs one deletion of a cluster.
    if plan.deletes_unread_cluster() {
        return Ok(());
    }
    if let Some(name) = &plan.target.gke {
        let inside = is_api_ready(api, name).await;
        // The first write inside takes it.
        if !inside.map_err(|error| LockError::Failed(error.with_remedy()))? {
            return Ok(());
        }
    }
    let goes = cluster_change(plan)
        .is_some_and(|(_, change)| matches!(change.action, Action::Delete | Action::Replace));
    let missing = if keeps_record(plan) && !goes { IfMissing::Create } else { IfMissing::Skip };
    lock.take(missing).await
}
