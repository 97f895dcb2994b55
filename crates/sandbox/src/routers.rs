//! The APIs of a sandbox as axum routers. The same routers answer in process and over sockets, so users exercise the same code as
//! the tests.

use axum::body::Bytes;
use axum::extract::State as Extracted;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use tower::ServiceExt as _;

use super::backing::proxy;
use super::cluster_access::ClusterAccess;
use super::faults::{Side, layer};
use super::gke::{ClusterId, Reply};
use super::kube;
use super::state::Sandbox;

impl Sandbox {
    /// Returns GKE's API, with the parts of Service Usage and Compute Engine that its clients need.
    pub fn gke_router(&self) -> axum::Router {
        let inner = axum::Router::new().fallback(answer_gke).with_state(self.clone());
        layer::around(self, Side::Gke, inner)
    }

    /// Returns the Kubernetes API of one cluster.
    pub fn kubernetes_router(&self, cluster: &ClusterId) -> axum::Router {
        let inner = match &self.shared.backing {
            Some(backing) => proxy::router(backing.clone()),
            None => self.stored(kube::router(ClusterAccess::new(self.clone(), cluster.clone()))),
        };
        layer::around(self, Side::Kubernetes, inner)
    }

    /// Returns the router with a layer that sends a response only once the changes are stored: a full disk must not look like
    /// success.
    fn stored(&self, inner: axum::Router) -> axum::Router {
        let sandbox = self.clone();
        axum::Router::new().fallback(move |request: http::Request<axum::body::Body>| {
            let (sandbox, inner) = (sandbox.clone(), inner.clone());
            async move {
                let answer = inner.oneshot(request).await.unwrap_or_else(|never| match never {});
                let failure = sandbox.lock().failure.as_ref().map(ToString::to_string);
                match failure {
                    None => answer,
                    Some(why) => {
                        let status = json!({
                            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                            "message": why, "reason": "InternalError", "code": 507,
                        });
                        let json = [(header::CONTENT_TYPE, "application/json")];
                        (StatusCode::INSUFFICIENT_STORAGE, json, status.to_string()).into_response()
                    }
                }
            }
        })
    }
}

async fn answer_gke(
    Extracted(sandbox): Extracted<Sandbox>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let reply = sandbox.gke_request(method.as_str(), uri.path(), uri.query().unwrap_or_default(), &body);
    let (code, body) = match reply {
        Ok(Reply { code, body }) => {
            (StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        }
        Err(error) => {
            let body =
                json!({ "error": { "code": 507, "message": error.to_string(), "status": "INTERNAL" } });
            (StatusCode::INSUFFICIENT_STORAGE, body)
        }
    };
    let text = serde_json::to_string_pretty(&body).unwrap_or_default();
    (code, [(header::CONTENT_TYPE, "application/json; charset=UTF-8")], text).into_response()
}
