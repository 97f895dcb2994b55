//! Retries: which classes of failures are retried, how often and for how long. There is no jitter, so that runs are reproducible;
//! the server's own rate limits spread the load.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::resource::Method;

/// Reasons for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryReason {
    /// Another GKE operation runs, or a namespace is being deleted.
    Busy,
    /// Too many requests.
    Throttled,
    /// The server cannot be reached, or reports that it is not available.
    Unavailable,
    /// The stack's lock could not be renewed yet.
    LockUnsure,
    /// The server failed with an internal error.
    ServerError,
    /// A write got no response. It is sent again: sending a write of a plan twice does no harm.
    Lost,
    /// An admission webhook is not running yet.
    Webhook,
    /// The path is not served yet: a CustomResourceDefinition was just created.
    UnknownPath,
    /// The live state that the request was built from has changed: the request is built again, once.
    Stale,
}

/// Durations of retries, for each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// Seconds: a user waits for a plan.
    Read,
    /// Minutes: other changes depend on the write.
    Write,
}

struct Backoff {
    first: Duration,
    factor: f64,
    longest: Duration,
    total: Duration,
}

const fn backoff(first_ms: u64, factor: f64, longest_s: u64, total_s: u64) -> Backoff {
    let (longest, total) = (Duration::from_secs(longest_s), Duration::from_secs(total_s));
    Backoff { first: Duration::from_millis(first_ms), factor, longest, total }
}

impl RetryReason {
    /// Returns the reason to retry after an error; `None` if waiting does not help.
    pub fn from_error(request: &Request, error: &ApiError, rebuilt: bool) -> Option<Self> {
        match error.class {
            _ if error.is_webhook() => Some(Self::Webhook),
            ErrorClass::Busy => Some(Self::Busy),
            ErrorClass::Throttled => Some(Self::Throttled),
            // The server broke on this request: often for good, as on a body that it cannot handle.
            ErrorClass::Unavailable if error.status == Some(500) => Some(Self::ServerError),
            ErrorClass::LockUnsure => Some(Self::LockUnsure),
            ErrorClass::Unavailable | ErrorClass::Unreadable => Some(Self::Unavailable),
            ErrorClass::Lost => Some(Self::Lost),
            ErrorClass::NotFound if request.method == Method::Patch && error.is_unknown_path() => {
                Some(Self::UnknownPath)
            }
            ErrorClass::Conflict if rebuilt && error.conflicts().is_empty() => Some(Self::Stale),
            ErrorClass::NotFound
            | ErrorClass::Conflict
            | ErrorClass::AlreadyExists
            | ErrorClass::Untrusted
            | ErrorClass::Unauthenticated
            | ErrorClass::Denied
            | ErrorClass::Quota
            | ErrorClass::TooLarge
            | ErrorClass::Invalid
            | ErrorClass::Other => None,
        }
    }

    fn backoff(self, policy: RetryPolicy) -> Backoff {
        match (self, policy) {
            // As long as an operation may take: an automatic upgrade of a pool is one.
            (Self::Busy, RetryPolicy::Write) => backoff(1000, 1.5, 10, 7200),
            (Self::Throttled, RetryPolicy::Write) => backoff(1000, 2.0, 30, 600),
            (Self::Unavailable | Self::LockUnsure | Self::Lost, RetryPolicy::Write) => {
                backoff(250, 2.0, 8, 120)
            }
            (Self::ServerError, RetryPolicy::Write) => backoff(250, 2.0, 8, 30),
            (Self::Webhook, RetryPolicy::Write) => backoff(500, 1.5, 5, 60),
            (Self::UnknownPath, RetryPolicy::Write) => backoff(200, 1.5, 2, 20),
            (Self::Throttled, RetryPolicy::Read) => backoff(1000, 2.0, 8, 30),
            (Self::Unavailable | Self::ServerError | Self::Lost, RetryPolicy::Read) => {
                backoff(250, 2.0, 2, 5)
            }
            // One renewal may take as long as a lock holds.
            (Self::LockUnsure, RetryPolicy::Read) => backoff(250, 2.0, 2, 15),
            (Self::Stale, _) => backoff(0, 1.0, 0, 0),
            (Self::Busy | Self::Webhook | Self::UnknownPath, RetryPolicy::Read) => backoff(500, 1.5, 2, 0),
        }
    }
}

/// The number of failures of one request for each reason, and the time of the first.
#[derive(Clone, Debug)]
pub struct RetryState {
    policy: RetryPolicy,
    counts: BTreeMap<RetryReason, (u32, Duration)>,
}

/// Decisions after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Send again.
    Again {
        reason: RetryReason,
        /// The pause until the next try.
        after: Duration,
        /// How long the request has been failing for this reason.
        lasted: Duration,
        /// The longest time for retries.
        at_most: Duration,
    },
    /// Do not retry.
    GiveUp,
}

impl RetryState {
    /// Creates the state before the first failure.
    pub fn new(policy: RetryPolicy) -> Self {
        Self { policy, counts: BTreeMap::new() }
    }

    /// Decides what to do about an error, `now` after the first try. `rebuilt` is true if each try builds the request again from
    /// live state.
    pub fn decide(
        &mut self,
        request: &Request,
        error: &ApiError,
        rebuilt: bool,
        now: Duration,
    ) -> RetryDecision {
        let Some(reason) = RetryReason::from_error(request, error, rebuilt) else {
            return RetryDecision::GiveUp;
        };
        let Backoff { first, factor, longest, total } = reason.backoff(self.policy);
        let (count, since) = self.counts.entry(reason).or_insert((0, now));
        let lasted = now.saturating_sub(*since);
        if lasted > total || (*count > 0 && total.is_zero()) {
            return RetryDecision::GiveUp;
        }
        let exponent = i32::try_from(*count).unwrap_or(i32::MAX).min(64);
        let after = first.mul_f64(factor.powi(exponent).min(1e6)).min(longest.max(first));
        *count += 1;
        RetryDecision::Again { reason, after, lasted, at_most: total }
    }
}

/// Sends a read, with retries.
///
/// # Errors
///
/// The last failure.
pub(crate) async fn get(api: &dyn LiveApi, request: Request) -> Result<Value, ApiError> {
    send(api, request, RetryPolicy::Read).await
}

/// Sends a request that may be sent twice without harm, with retries.
///
/// # Errors
///
/// The last failure.
pub async fn send(api: &dyn LiveApi, request: Request, policy: RetryPolicy) -> Result<Value, ApiError> {
    let mut tries = RetryState::new(policy);
    let start = Instant::now();
    loop {
        let error = match api.send(request.clone()).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        match tries.decide(&request, &error, false, start.elapsed()) {
            RetryDecision::Again { after, .. } => tokio::time::sleep(after).await,
            RetryDecision::GiveUp => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::Api;

    fn request(method: Method) -> Request {
        Request { api: Api::Kubernetes, method, path: "/x".into(), body: None }
    }

    /// Returns how long a request that always fails this way is tried, and how often.
    fn retried(class: ErrorClass, message: &str, rebuilt: bool, policy: RetryPolicy) -> (u64, u32) {
        let request = request(Method::Patch);
        let error = request.failed(class, message);
        let mut tries = RetryState::new(policy);
        let (mut now, mut count) = (Duration::ZERO, 1);
        while let RetryDecision::Again { after, .. } = tries.decide(&request, &error, rebuilt, now) {
            now += after;
            count += 1;
        }
        (now.as_secs(), count)
    }

    #[test]
    fn each_class_is_tried_as_long_as_it_can_help() {
        use RetryPolicy::{Read, Write};
        let missing = "the server could not find the requested resource";
        let rows: &[(ErrorClass, &str, bool, RetryPolicy, u64, u64)] = &[
            (ErrorClass::Busy, "", false, Write, 7200, 7220),
            (ErrorClass::Throttled, "", false, Write, 600, 640),
            (ErrorClass::Unavailable, "", false, Write, 120, 130),
            (ErrorClass::Unavailable, "failed calling webhook \"x\"", false, Write, 60, 66),
            (ErrorClass::Lost, "", false, Write, 120, 130),
            (ErrorClass::NotFound, missing, false, Write, 20, 23),
            (ErrorClass::NotFound, "pods \"x\" not found", false, Write, 0, 0),
            (ErrorClass::Unavailable, "", false, Read, 5, 8),
            (ErrorClass::Denied, "", false, Write, 0, 0),
            (ErrorClass::Quota, "", false, Write, 0, 0),
            (ErrorClass::Invalid, "", false, Write, 0, 0),
            (ErrorClass::Unauthenticated, "", false, Write, 0, 0),
            (ErrorClass::Untrusted, "", false, Write, 0, 0),
            (ErrorClass::AlreadyExists, "", false, Write, 0, 0),
        ];
        for (class, message, rebuilt, policy, least, most) in rows {
            let (seconds, count) = retried(*class, message, *rebuilt, *policy);
            assert!((*least..=*most).contains(&seconds), "{class:?} {message}: {seconds} s");
            assert_eq!(*most == 0, count == 1, "{class:?} {message}: {count} tries");
        }
    }

    #[test]
    fn a_conflict_is_tried_once_more_when_the_request_is_made_anew() {
        assert_eq!(retried(ErrorClass::Conflict, "", true, RetryPolicy::Write), (0, 2));
        assert_eq!(retried(ErrorClass::Conflict, "", false, RetryPolicy::Write), (0, 1));
    }

    #[test]
    fn waiting_grows_to_a_limit_and_troubles_count_apart() {
        let request = request(Method::Patch);
        let mut tries = RetryState::new(RetryPolicy::Write);
        let mut waits = Vec::new();
        for class in
            [ErrorClass::Unavailable, ErrorClass::Unavailable, ErrorClass::Busy, ErrorClass::Unavailable]
        {
            let error = request.failed(class, "");
            if let RetryDecision::Again { after, .. } = tries.decide(&request, &error, false, Duration::ZERO)
            {
                waits.push(after.as_millis());
            }
        }
        assert_eq!(waits, [250, 500, 1000, 1000]);
    }
}
