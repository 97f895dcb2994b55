//! A layer before the served APIs that answers only programs on this machine. A web page in a browser can also send requests to
//! loopback, and reach it by its own name (DNS rebinding). But it cannot omit `Origin`, choose `Host`, or send JSON without a
//! preflight request. With a real API server behind the sandbox, clients must also send the token of the sandbox's folder,
//! because not every user of the machine may use that server.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use axum::response::IntoResponse as _;
use serde_json::json;
use tower::ServiceExt as _;

use super::faults::Side;

/// Wraps a router so that each request to this API is checked before. If `token` is set, every request must carry it.
pub fn around(side: Side, token: Option<Arc<str>>, inner: Router) -> Router {
    Router::new().fallback(move |request: Request<Body>| {
        let (inner, token) = (inner.clone(), token.clone());
        async move {
            match refusal(side, token.as_deref(), &request) {
                Some((status, why)) => refuse(side, status, why),
                None => inner.oneshot(request).await.unwrap_or_else(|never| match never {}),
            }
        }
    })
}

fn refusal(side: Side, token: Option<&str>, request: &Request<Body>) -> Option<(StatusCode, &'static str)> {
    let headers = request.headers();
    if !is_here(headers) {
        let why = "this sandbox answers to 127.0.0.1 and localhost only";
        return Some((StatusCode::MISDIRECTED_REQUEST, why));
    }
    if headers.contains_key(header::ORIGIN) {
        return Some((StatusCode::FORBIDDEN, "this sandbox answers no web pages"));
    }
    if token.is_some_and(|token| !carries(headers, token)) {
        let why = "a real API server stands behind this sandbox, which asks for the token in its folder: `dask-infra sandbox \
                   env` and `dask-infra sandbox kubeconfig` give it to clients";
        return Some((StatusCode::UNAUTHORIZED, why));
    }
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if matches!(side, Side::Gke) && has_body && !is_json(headers) {
        return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the body as application/json"));
    }
    None
}

/// Returns true if the only `Host` of the request is a loopback name. Any port is allowed, because it may be forwarded.
fn is_here(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    let name = host.and_then(|host| host.to_str().ok()).and_then(|host| host.parse().ok());
    let name = name.as_ref().map(|authority: &http::uri::Authority| authority.host());
    more.is_none() && name.is_some_and(|name| ["127.0.0.1", "localhost", "[::1]"].contains(&name))
}

fn carries(headers: &HeaderMap, token: &str) -> bool {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, more) = (given.next(), given.next());
    let bearer = first.and_then(|value| value.to_str().ok()?.split_once(' '));
    let bearer = bearer.filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
    // Digests are compared in constant time.
    let same = |given: &str| blake3::hash(given.trim().as_bytes()) == blake3::hash(token.as_bytes());
    more.is_none() && bearer.is_some_and(|(_, given)| same(given))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Returns a refusal in the format of the API's own errors, so that clients show the reason.
fn refuse(side: Side, status: StatusCode, why: &str) -> Response<Body> {
    let code = status.as_u16();
    let unknown = status == StatusCode::UNAUTHORIZED;
    let (google, reason) = match unknown {
        true => ("UNAUTHENTICATED", "Unauthorized"),
        false => ("PERMISSION_DENIED", "Forbidden"),
    };
    let body = match side {
        Side::Gke => json!({ "error": { "code": code, "message": why, "status": google } }),
        Side::Kubernetes => json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": why, "reason": reason, "code": code,
        }),
    };
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_programs_of_this_machine_are_answered() {
        let inner = Router::new().fallback(|| async { "done" });
        let json = [("content-type", "application/json"), ("content-length", "2")];
        let text = [("content-type", "text/plain"), ("content-length", "2")];
        let form = [("content-type", "application/x-www-form-urlencoded"), ("transfer-encoding", "chunked")];
        let bare: [(&str, &str); 0] = [];
        for (host, more, gke, kubernetes) in [
            ("127.0.0.1:8085", &bare[..], 200, 200),
            ("localhost", &bare[..], 200, 200),
            ("[::1]:1", &bare[..], 200, 200),
            ("127.0.0.1:1", &json[..], 200, 200),
            (
                "127.0.0.1:1",
                &[("content-type", "application/json; charset=UTF-8"), ("content-length", "2")],
                200,
                200,
            ),
            ("127.0.0.1:1", &[("content-length", "0")], 200, 200),
            ("127.0.0.1:1", &text[..], 415, 200),
            ("127.0.0.1:1", &form[..], 415, 200),
            ("127.0.0.1:1", &[("content-length", "2")], 415, 200),
            ("127.0.0.1:1", &[("origin", "http://127.0.0.1:1")], 403, 403),
            ("127.0.0.1:1", &[("origin", "null")], 403, 403),
            ("evil.example:8085", &json[..], 421, 421),
            ("127.0.0.1.evil.example", &json[..], 421, 421),
            ("", &json[..], 421, 421),
        ] {
            for (side, expect) in [(Side::Gke, gke), (Side::Kubernetes, kubernetes)] {
                let mut request = Request::post("/v1/x");
                for (name, value) in more.iter().copied().chain((!host.is_empty()).then_some(("host", host)))
                {
                    request = request.header(name, value);
                }
                let request = request.body(Body::from("{}")).expect("a request");
                let answer = around(side, None, inner.clone()).oneshot(request).await.expect("an answer");
                assert_eq!(answer.status().as_u16(), expect, "{host} {more:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_token_is_asked_for_where_a_real_server_stands_behind() {
        let inner = Router::new().fallback(|| async { "done" });
        for (given, expect) in [
            (None, 401),
            (Some("Bearer sandbox"), 401),
            (Some("Bearer "), 401),
            (Some("Basic known"), 401),
            (Some("known"), 401),
            (Some("Bearer known"), 200),
            (Some("bearer known"), 200),
        ] {
            for side in [Side::Gke, Side::Kubernetes] {
                let mut request = Request::delete("/api/v1/namespaces/x").header("host", "127.0.0.1:1");
                if let Some(given) = given {
                    request = request.header("authorization", given);
                }
                let request = request.body(Body::empty()).expect("a request");
                let guarded = around(side, Some("known".into()), inner.clone());
                let answer = guarded.oneshot(request).await.expect("an answer");
                assert_eq!(answer.status().as_u16(), expect, "{given:?}");
            }
        }
    }
}
