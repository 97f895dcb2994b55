//! The reverse proxy: requests of clients go to the API server unchanged except for the credentials. Bodies stream both ways, and
//! upgraded connections (exec, port-forward) are joined.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::json;

use super::Backing;

/// Headers that hold for one connection only and are not forwarded (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] = [
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
];

/// Returns a router that forwards every request.
pub fn router(backing: Arc<Backing>) -> axum::Router {
    axum::Router::new().fallback(forward).with_state(backing)
}

async fn forward(State(backing): State<Arc<Backing>>, mut request: Request<Body>) -> Response {
    let client = is_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
    strip(request.headers_mut(), client.is_some());
    let mut answer = match backing.send(request).await {
        Ok(answer) => answer,
        Err(cause) => return unreachable(&cause),
    };
    let switched = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if let (true, Some(client)) = (switched, client) {
        let server = hyper::upgrade::on(&mut answer);
        // Ends with either of the two connections.
        tokio::spawn(join(client, server));
    }
    strip(answer.headers_mut(), switched);
    answer.map(Body::new).into_response()
}

/// Carries bytes both ways until one side ends. Errors show on both connections.
async fn join(client: OnUpgrade, server: OnUpgrade) {
    if let Ok((client, server)) = tokio::try_join!(client, server) {
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
    }
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    let mut words = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    words.any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")))
        && headers.contains_key(header::UPGRADE)
}

fn strip(headers: &mut HeaderMap, upgrade: bool) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    if !upgrade {
        headers.remove(header::CONNECTION);
        headers.remove(header::UPGRADE);
    }
}

/// Returns the error in the format of the API server's own errors, so that clients show the reason.
fn unreachable(cause: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the API server behind this sandbox: {cause}"),
        "reason": "ServiceUnavailable", "code": 503,
    });
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::SERVICE_UNAVAILABLE, kind, status.to_string()).into_response()
}
