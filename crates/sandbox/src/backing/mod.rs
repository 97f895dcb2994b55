//! A real API server behind the sandbox's GKE: the cluster that is created there is that server. Its listener ends TLS and
//! forwards ([`proxy`]), its Nodes follow the node pools ([`nodes`]); everything else in it is done by real controllers. The
//! sandbox's own control loops do not run for it.

mod kubeconfig;
pub mod nodes;
pub mod proxy;

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use self::kubeconfig::Access;
use super::error::SandboxError;

/// The timeout of the sandbox's own requests.
const PATIENCE: Duration = Duration::from_secs(10);

/// The API server, and a client with the kubeconfig's credentials.
pub struct Backing {
    kubeconfig: PathBuf,
    server: String,
    authorization: Option<HeaderValue>,
    http: Client<HttpsConnector<HttpConnector>, Body>,
}

impl std::fmt::Debug for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backing").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Backing {
    /// Creates the client of the server in a kubeconfig; sends nothing yet.
    pub fn new(kubeconfig: &Path) -> Result<Self, SandboxError> {
        let unusable = |cause: String| SandboxError::Kubernetes { kubeconfig: kubeconfig.to_owned(), cause };
        let Access { server, token, tls } = Access::read(kubeconfig).map_err(unusable)?;
        let authorization = match token {
            None => None,
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                    .map_err(|_| unusable("its token is no text for a header".to_owned()))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let http = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { kubeconfig: kubeconfig.to_owned(), server, authorization, http })
    }

    /// Checks that the API server answers, so that a wrong kubeconfig fails at once.
    pub async fn check(&self) -> Result<(), SandboxError> {
        let unusable =
            |cause: String| SandboxError::Kubernetes { kubeconfig: self.kubeconfig.clone(), cause };
        let said = self.ask(Method::GET, "/api/v1/nodes?limit=1", "", &Value::Null).await;
        match said.map_err(unusable)? {
            (StatusCode::OK, _) => Ok(()),
            (status, said) => {
                let message = said["message"].as_str().unwrap_or_default();
                Err(unusable(format!("{} answers {status} when asked for its nodes: {message}", self.server)))
            }
        }
    }

    /// Forwards a request with the kubeconfig's credentials in place of the client's.
    async fn send(&self, mut request: Request<Body>) -> Result<Response<hyper::body::Incoming>, String> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() =
            Uri::try_from(format!("{}{path}", self.server)).map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.remove(header::HOST);
        headers.remove(header::AUTHORIZATION);
        if let Some(value) = &self.authorization {
            headers.insert(header::AUTHORIZATION, value.clone());
        }
        self.http.request(request).await.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{} cannot be reached: {error}: {cause}", self.server)
        })
    }

    /// Sends one JSON request of the sandbox itself, and returns the whole response.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: &Value,
    ) -> Result<(StatusCode, Value), String> {
        let mut request =
            Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        let body = if body.is_null() {
            Body::empty()
        } else {
            request = request.header(header::CONTENT_TYPE, media_type);
            Body::from(body.to_string())
        };
        let request = request.body(body).map_err(|error| error.to_string())?;
        let exchange = async {
            let (parts, body) = self.send(request).await?.into_parts();
            let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok((parts.status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .unwrap_or_else(|_| Err(format!("{} does not answer", self.server)))
    }
}
