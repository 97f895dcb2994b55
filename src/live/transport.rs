//! What both clients share: a request into a router of this process, and the limits of time.

use std::time::Duration;

use axum::Router;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::answer::Answer;
use super::{ApiError, Class, Request};
use crate::resource::{Api, Method};

/// How long one request may take, connecting included.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// How long getting a token may take: the metadata server is asked when there is no file, and outside of
/// Google Cloud it is not there.
pub const TOKEN_TIMEOUT: Duration = Duration::from_secs(15);
/// What we call ourselves.
pub const USER_AGENT: &str = concat!("dask-infra/", env!("CARGO_PKG_VERSION"));

/// The content type of a body.
pub fn content_type(request: &Request) -> &'static str {
    match (request.api, request.method) {
        (Api::Kubernetes, Method::Patch) => "application/apply-patch+yaml",
        _ => "application/json",
    }
}

/// Whether a header says JSON.
pub fn says_json(headers: &http::HeaderMap) -> Option<bool> {
    let value = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.starts_with("application/json"))
}

/// The request as HTTP, its target relative to the server.
///
/// # Errors
/// A path that is no URI is an invalid request.
pub fn http_request(request: &Request) -> Result<http::Request<Vec<u8>>, ApiError> {
    let body = request.body.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut builder = http::Request::builder()
        .method(request.method.as_str())
        .uri(&request.path)
        .header(http::header::ACCEPT, "application/json, */*")
        .header(http::header::USER_AGENT, USER_AGENT);
    if request.body.is_some() {
        builder = builder.header(http::header::CONTENT_TYPE, content_type(request));
    }
    builder.body(body.into_bytes()).map_err(|error| request.failed(Class::Invalid, error.to_string()))
}

/// Sends into a router of this process.
///
/// # Errors
/// The body of the answer could not be read.
pub async fn in_process(router: &Router, request: &Request) -> Result<Answer, ApiError> {
    let (parts, body) = in_process_open(router, request).await?.into_parts();
    let body = body.collect().await.map_err(|error| request.unanswered(error.to_string()))?;
    let json = says_json(&parts.headers);
    Ok(Answer { status: parts.status.as_u16(), json, body: body.to_bytes().to_vec() })
}

/// The same, with the answer's body still to come.
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

/// An error and what caused it, innermost last: `connect error: connection refused`.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
