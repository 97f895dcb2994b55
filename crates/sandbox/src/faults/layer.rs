//! The layer between clients and APIs that applies the rules to each request.

use std::io;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use super::super::error::SandboxError;
use super::super::state::Sandbox;
use super::bodies::{self, Side};
use super::rule::{FaultEffect, Rule};

/// Returns the router with the rules before it, or unchanged if there are none.
pub fn around(sandbox: &Sandbox, side: Side, inner: Router) -> Router {
    if !sandbox.has_rules() {
        return inner;
    }
    let sandbox = sandbox.clone();
    Router::new().fallback(move |request: Request<Body>| {
        let (sandbox, inner) = (sandbox.clone(), inner.clone());
        async move { answer(&sandbox, side, inner, request).await }
    })
}

async fn answer(sandbox: &Sandbox, side: Side, inner: Router, request: Request<Body>) -> Response<Body> {
    let (method, path) = (request.method().as_str().to_owned(), request.uri().path().to_owned());
    let is_dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun=All"));
    let struck = sandbox.strike(&method, &path, is_dry_run);
    let (rule, number) = match struck {
        Ok(Some(struck)) => struck,
        Ok(None) => return done(inner, request).await,
        Err(error) => return unstored(&error),
    };
    let sandbox = sandbox.clone();
    // A server does not stop when its client has left.
    let work = tokio::spawn(async move {
        let Rule { delay, then, .. } = rule;
        tokio::time::sleep(delay).await;
        match then {
            FaultEffect::Usual => done(inner, request).await,
            FaultEffect::Refuse(refuse) => bodies::refusal(side, &method, &path, &refuse, number),
            FaultEffect::LoseRequest => lost(),
            FaultEffect::LoseAnswer => {
                done(inner, request).await;
                lost()
            }
            FaultEffect::CutAnswer => cut(done(inner, request).await).await,
            FaultEffect::FailOperation(why) => {
                fail_operation(&sandbox, done(inner, request).await, &why).await
            }
        }
    });
    work.await.unwrap_or_else(|_| lost())
}

async fn done(inner: Router, request: Request<Body>) -> Response<Body> {
    inner.oneshot(request).await.unwrap_or_else(|never| match never {})
}

/// Returns a response that is never sent: a body that fails before its first byte makes the server close the connection without
/// sending the headers.
fn lost() -> Response<Body> {
    let broken = io::Error::new(io::ErrorKind::ConnectionReset, "the sandbox was told to lose this answer");
    Response::new(Body::from_stream(futures::stream::once(std::future::ready(Err::<bytes::Bytes, _>(
        broken,
    )))))
}

/// Returns half of the body with the same headers, as from a proxy whose own connection was cut off.
async fn cut(answer: Response<Body>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return lost() };
    let bytes = body.to_bytes();
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(bytes.slice(..bytes.len() / 2)))
}

/// Returns the response unchanged, and makes the operation in it fail later.
async fn fail_operation(sandbox: &Sandbox, answer: Response<Body>, why: &str) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return lost() };
    let bytes = body.to_bytes();
    let read: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let operation = read["name"].as_str().filter(|name| name.starts_with("operation-"));
    match operation.map(|name| sandbox.doom(name, why)) {
        None | Some(Ok(())) => Response::from_parts(parts, Body::from(bytes)),
        Some(Err(error)) => unstored(&error),
    }
}

/// Returns the error if the count of a rule could not be stored; the request was not executed.
fn unstored(error: &SandboxError) -> Response<Body> {
    let mut response = Response::new(Body::from(error.to_string()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
