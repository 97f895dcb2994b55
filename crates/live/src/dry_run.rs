//! Dry runs: writes that the API server judges and does not store. Many are sent at the same time, each with its own result.

use std::sync::Mutex;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use crate::retry::{RetryDecision, RetryPolicy, RetryState};
use crate::{ApiError, ErrorClass, LiveApi, Reply, Request};

/// The longest time that all dry runs of a plan take together: a person waits for it. 1,000 objects take 2 to 10 seconds.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Sends dry runs, `parallelism` at a time, and returns the result of each in the order of the requests. Once the server does
/// not answer, or the time is over, the others are not sent and have that error.
pub async fn dry_run(
    api: &dyn LiveApi,
    requests: Vec<Request>,
    parallelism: usize,
    limit: Duration,
) -> Vec<Result<Reply, ApiError>> {
    let end = Instant::now() + limit;
    let silence = Mutex::new(None);
    let one = |request: Request| {
        let silence = &silence;
        async move {
            if let Some(error) = silence.lock().ok().and_then(|known| known.clone()) {
                return Err(error);
            }
            let sent = tokio::time::timeout_at(end, send(api, &request)).await;
            let sent = sent.unwrap_or_else(|_| Err(too_late(&request, limit)));
            if let (Some(error), Ok(mut known)) =
                (sent.as_ref().err().filter(|error| is_silence(error)), silence.lock())
            {
                known.get_or_insert_with(|| error.clone());
            }
            sent
        }
    };
    stream::iter(requests).map(one).buffered(parallelism.max(1)).collect().await
}

fn too_late(request: &Request, limit: Duration) -> ApiError {
    request.failed(ErrorClass::Unavailable, format!("the dry runs took longer than {} s", limit.as_secs()))
}

/// Returns true if no other request will be answered either.
fn is_silence(error: &ApiError) -> bool {
    let unreached = matches!(
        error.class,
        ErrorClass::Unavailable | ErrorClass::Lost | ErrorClass::Untrusted | ErrorClass::Unauthenticated
    );
    unreached && error.status != Some(500) && !error.is_webhook()
}

/// Sends a dry run, with the retries of a read: it stores nothing.
async fn send(api: &dyn LiveApi, request: &Request) -> Result<Reply, ApiError> {
    let mut tries = RetryState::new(RetryPolicy::Read);
    let start = Instant::now();
    loop {
        let error = match api.send_warned(request.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        match tries.decide(request, &error, false, start.elapsed()) {
            RetryDecision::Again { after, .. } if is_worth_a_retry(&error) => tokio::time::sleep(after).await,
            RetryDecision::Again { .. } | RetryDecision::GiveUp => return Err(error),
        }
    }
}

/// Returns false if a later try in a few seconds has the same answer: the plan names it, and need not wait for it.
fn is_worth_a_retry(error: &ApiError) -> bool {
    !error.is_unknown_path()
        && !error.is_webhook()
        && error.class != ErrorClass::Busy
        && error.status != Some(500)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use serde_json::{Value, json};

    use super::*;
    use model::resource::{Api, Method};

    /// Answers that depend on the path, how many were asked for, and at most how many at the same time.
    #[derive(Default)]
    struct Server {
        asked: AtomicUsize,
        open: AtomicUsize,
        most: AtomicUsize,
    }

    impl LiveApi for Server {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            async move {
                self.asked.fetch_add(1, Ordering::SeqCst);
                let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(open, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.open.fetch_sub(1, Ordering::SeqCst);
                match request.path.as_str() {
                    "/slow" => {
                        tokio::time::sleep(Duration::from_secs(600)).await;
                        Ok(Value::Null)
                    }
                    "/gone" => Err(request.failed(ErrorClass::Unavailable, "connection refused")),
                    "/refused" => Err(request.failed(ErrorClass::Invalid, "no")),
                    path => Ok(json!(path)),
                }
            }
            .boxed()
        }
    }

    fn requests(paths: &[&str]) -> Vec<Request> {
        let request = |path: &&str| Request {
            api: Api::Kubernetes,
            method: Method::Patch,
            path: (*path).to_owned(),
            body: None,
        };
        paths.iter().map(request).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_has_its_own_answer_in_order_and_not_all_are_open() {
        let server = Server::default();
        let paths: Vec<String> = (0..100).map(|number| format!("/{number}")).collect();
        let mut paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        paths[7] = "/refused";
        let answers = dry_run(&server, requests(&paths), 8, TIME_LIMIT).await;
        for (place, (path, answer)) in paths.iter().zip(&answers).enumerate() {
            match (place, answer) {
                (7, Err(error)) => assert_eq!(error.class, ErrorClass::Invalid),
                (_, answer) => assert_eq!(answer.as_ref().unwrap().value, json!(path)),
            }
        }
        assert_eq!((server.asked.into_inner(), server.most.into_inner()), (100, 8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_gone_is_not_asked_for_each_object() {
        let server = Server::default();
        let answers = dry_run(&server, requests(&["/gone"; 200]), 4, TIME_LIMIT).await;
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap_err().message == "connection refused"));
        let asked = server.asked.into_inner();
        assert!(asked < 40, "{asked} requests");
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_them_end_at_the_limit() {
        let (server, start) = (Server::default(), Instant::now());
        let answers =
            dry_run(&server, requests(&["/slow", "/a", "/slow", "/b"]), 1, Duration::from_secs(5)).await;
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
        let why = "the dry runs took longer than 5 s";
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap_err().message == why), "{answers:?}");
    }
}
