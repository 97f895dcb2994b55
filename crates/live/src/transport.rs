//! Parts that both clients share: requests into a router of this process, and timeouts.

use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower::ServiceExt as _;

use crate::answer::{Answer, MAX_RESPONSE_BYTES};
use crate::{ApiError, ErrorClass, Request};
use model::resource::{Api, Method};

/// The timeout of one request, including the connection.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a token request: without a credentials file the metadata server is asked, which does not exist outside Google
/// Cloud.
pub const TOKEN_TIMEOUT: Duration = Duration::from_secs(15);
/// The user agent of this program.
pub const USER_AGENT: &str = concat!("dask-infra/", env!("CARGO_PKG_VERSION"));

/// Returns the content type of a body.
pub fn content_type(request: &Request) -> &'static str {
    match (request.api, request.method) {
        (Api::Kubernetes, Method::Patch) => "application/apply-patch+yaml",
        (Api::Kubernetes, Method::Merge) => "application/merge-patch+json",
        _ => "application/json",
    }
}

/// Returns the whole body of a response, up to the size limit.
///
/// # Errors
///
/// The response ends early, or is larger than the limit.
pub async fn bounded<B>(request: &Request, body: B) -> Result<Vec<u8>, ApiError>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let read = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
    read.map(|body| body.to_bytes().to_vec()).map_err(|error| {
        if error.is::<LengthLimitError>() { request.too_large() } else { request.unanswered(causes(&*error)) }
    })
}

/// The `Accept` header for discovery: aggregated discovery, if the server supports it.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList, application/json, */*";

/// Returns the request as HTTP, with a target relative to the server.
///
/// # Errors
///
/// A path that is no URI is an invalid request, as is one with a fragment, which would be cut off.
pub fn http_request(request: &Request) -> Result<http::Request<Vec<u8>>, ApiError> {
    if request.path.contains('#') {
        return Err(request.failed(ErrorClass::Invalid, "the path has a fragment"));
    }
    let body = request.body.as_ref().map(ToString::to_string).unwrap_or_default();
    let accept = match (request.api, request.path.as_str()) {
        (Api::Kubernetes, "/apis") => AGGREGATED,
        _ => "application/json, */*",
    };
    let mut builder = http::Request::builder()
        .method(request.method.as_str())
        .uri(&request.path)
        .header(http::header::ACCEPT, accept)
        .header(http::header::USER_AGENT, USER_AGENT);
    if request.body.is_some() {
        builder = builder.header(http::header::CONTENT_TYPE, content_type(request));
    }
    builder.body(body.into_bytes()).map_err(|error| request.failed(ErrorClass::Invalid, error.to_string()))
}

/// Sends a request into a router of this process.
///
/// # Errors
///
/// The body of the response could not be read.
pub async fn in_process(router: &Router, request: &Request) -> Result<Answer, ApiError> {
    let (parts, body) = in_process_open(router, request).await?.into_parts();
    let body = bounded(request, body).await?;
    Ok(Answer::of(&parts, body))
}

/// Sends a request as [`in_process`] does, but does not wait for the answer's body.
///
/// # Errors
/// The path is no URI.
pub async fn in_process_open(
    router: &Router,
    request: &Request,
) -> Result<http::Response<axum::body::Body>, ApiError> {
    let http = http_request(request)?.map(axum::body::Body::from);
    let response = router.clone().oneshot(http).await;
    Ok(response.unwrap_or_else(|never| match never {}))
}

/// Returns an error and its causes, innermost last: `connect error: connection refused`.
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    if broke_off(error) {
        return "the connection was closed in the middle of the answer".to_owned();
    }
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Returns true if any cause in the chain is that the other side closed the connection before its answer was complete.
fn broke_off(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        let io = cause.downcast_ref::<std::io::Error>();
        let http = cause.downcast_ref::<hyper::Error>();
        if io.is_some_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof)
            || http.is_some_and(hyper::Error::is_incomplete_message)
        {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// `http` cuts off a fragment, and with it all that was appended to the path, such as `&dryRun=All`.
    #[test]
    fn a_path_with_a_fragment_is_not_sent() {
        let request = Request::get(Api::Kubernetes, "/api/v1/pods?limit=1#&dryRun=All");
        assert_eq!(http_request(&request).unwrap_err().class, ErrorClass::Invalid);
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_read_to_a_bound() {
        let piece = Bytes::from(vec![b' '; 1024 * 1024]);
        for (method, class) in [(Method::Get, ErrorClass::TooLarge), (Method::Patch, ErrorClass::Lost)] {
            let endless = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(piece.clone())));
            let request = Request { method, ..Request::get(Api::Kubernetes, "/api/v1/pods") };
            let error = bounded(&request, StreamBody::new(endless)).await.unwrap_err();
            assert_eq!((error.class, error.message.as_str()), (class, "the answer is larger than 64 MiB"));
        }
        let whole = stream::iter([
            Ok::<_, Infallible>(Frame::data(Bytes::from("a"))),
            Ok(Frame::data(Bytes::from("b"))),
        ]);
        let request = Request::get(Api::Kubernetes, "/api/v1/pods");
        assert_eq!(bounded(&request, StreamBody::new(whole)).await.unwrap(), b"ab");
    }
}
