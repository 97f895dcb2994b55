//! The guard that all writes of an apply pass. It sends no write if another process may hold the lock.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::failure::brief;
use crate::lock::{Lock, SendBlocked};
use live::kube::ByteStream;
use live::retry::RetryReason;
use live::{ApiError, ErrorClass, LiveApi, Request};

/// The live API, which refuses writes that the lock does not allow.
pub struct WriteGuard {
    api: Arc<dyn LiveApi>,
    lock: Option<Arc<Lock>>,
}

impl WriteGuard {
    /// Creates a guard; without a lock all writes are sent.
    pub fn new(api: Arc<dyn LiveApi>, lock: Option<Arc<Lock>>) -> Self {
        Self { api, lock }
    }

    /// Returns true once the lock is lost: no more writes are sent.
    pub fn is_closed(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.lost().is_some())
    }

    /// Abandons the lock, because the cluster that it is in is about to be deleted.
    pub fn abandon_lock(&self) {
        if let Some(lock) = &self.lock {
            lock.forget();
        }
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let Some(lock) = self.lock.as_ref().filter(|_| request.writes()) else { return Ok(()) };
        lock.may_send().map_err(|blocked| match blocked {
            SendBlocked::LockLost(who) => {
                request.failed(ErrorClass::Other, format!("not sent: {who} took the stack's lock"))
            }
            SendBlocked::LockUnsure(since, met) => {
                let since = brief(since);
                let why = format!("not sent: the stack's lock could not be renewed for {since}");
                match met {
                    // Waiting does not help with this error.
                    Some(error) if RetryReason::from_error(request, &error, false).is_none() => {
                        request.failed(ErrorClass::Other, format!("{why}: {error}"))
                    }
                    Some(error) => request.failed(ErrorClass::LockUnsure, format!("{why}: {error}")),
                    None => request.failed(ErrorClass::LockUnsure, why),
                }
            }
        })
    }
}

impl LiveApi for WriteGuard {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        match self.check(&request) {
            Ok(()) => self.api.send(request),
            Err(error) => async move { Err(error) }.boxed(),
        }
    }

    fn can_stream(&self) -> bool {
        self.api.can_stream()
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<ByteStream, ApiError>> {
        self.api.stream(request)
    }
}
