//! The fence between an apply and the world. No write is sent that another holder's lock forbids, whatever it is and whoever
//! in the apply wants it.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::failure::brief;
use crate::lock::{Barred, Lock};
use live::kube::ByteStream;
use live::retry::RetryReason;
use live::{ApiError, Class, LiveApi, Request};

/// The outside, as far as the lock lets it be written.
pub struct Fence {
    api: Arc<dyn LiveApi>,
    lock: Option<Arc<Lock>>,
}

impl Fence {
    /// Without a lock everything passes.
    pub fn new(api: Arc<dyn LiveApi>, lock: Option<Arc<Lock>>) -> Self {
        Self { api, lock }
    }

    /// Returns true once the lock is lost: nothing passes any more.
    pub fn is_shut(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.lost().is_some())
    }

    /// Lets go of the lock, because the cluster that it is in is about to be deleted.
    pub fn leave_cluster(&self) {
        if let Some(lock) = &self.lock {
            lock.forget();
        }
    }

    fn pass(&self, request: &Request) -> Result<(), ApiError> {
        let Some(lock) = self.lock.as_ref().filter(|_| request.writes()) else { return Ok(()) };
        lock.may_send().map_err(|barred| match barred {
            Barred::Lost(who) => {
                request.failed(Class::Other, format!("not sent: {who} took the stack's lock"))
            }
            Barred::Unsure(since, met) => {
                let since = brief(since);
                let why = format!("not sent: the stack's lock could not be renewed for {since}");
                match met {
                    // What waiting does not mend.
                    Some(error) if RetryReason::from_error(request, &error, false).is_none() => {
                        request.failed(Class::Other, format!("{why}: {error}"))
                    }
                    Some(error) => request.failed(Class::LockUnsure, format!("{why}: {error}")),
                    None => request.failed(Class::LockUnsure, why),
                }
            }
        })
    }
}

impl LiveApi for Fence {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        match self.pass(&request) {
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
