//! The GKE and Compute Engine APIs, and other APIs of Google Cloud that a plan reads: JSON over HTTPS with Google's credentials, over plain HTTP on loopback
//! without any, or into a router of this process.
//!
//! Not Google's typed client, which drops zero values, sends enums as numbers and costs 100,000 generated lines. With JSON, a
//! planned call is sent byte for byte as shown, and new API fields need no code. For most credentials, Google's own library
//! provides the tokens.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::answer::Answer;
use crate::credentials::Credentials;
use crate::environment::env_var;
use crate::proxy::{self, UsedProxy};
use crate::shape::Media;
use crate::transport::{TIMEOUT, USER_AGENT, bounded, causes, content_type, in_process};
use crate::trust::{Trust, is_untrusted};
use crate::{ApiError, ErrorClass, Request};
use model::resource::{Api, Method};

/// Ways to access GKE.
#[derive(Clone, Debug)]
pub enum GkeAccess {
    /// Google Cloud, with application default credentials.
    Google,
    /// A sandbox on this machine. It gets its own token and no other credentials.
    Loopback {
        /// `http://127.0.0.1:8085`.
        url: String,
        /// The token that it requires if it is backed by a real API server.
        token: Option<http::HeaderValue>,
    },
    /// A sandbox in this process.
    InProcess(Router),
}

impl GkeAccess {
    /// Returns the access for `DASK_INFRA_GKE_ENDPOINT`.
    ///
    /// # Errors
    ///
    /// The URL is anything but plain HTTP on loopback: nothing else is safe without credentials.
    pub fn loopback(url: &str) -> Result<Self, String> {
        let refused =
            |why: &str| format!("{url} cannot be the endpoint of an API: {why}; give http://127.0.0.1:PORT");
        let uri: http::Uri = url.parse().map_err(|_| refused("it is not a URL"))?;
        if uri.scheme() != Some(&http::uri::Scheme::HTTP) {
            return Err(refused("it is not plain HTTP"));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let loopback =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !loopback {
            return Err(refused("it is not on this machine"));
        }
        Ok(Self::Loopback { url: url.trim_end_matches('/').to_owned(), token: None })
    }

    /// Sets the token of a sandbox.
    #[must_use]
    pub fn with_token(self, token: Option<&str>) -> Self {
        let header = token.and_then(|token| http::HeaderValue::try_from(format!("Bearer {token}")).ok());
        match self {
            Self::Loopback { url, token } => {
                let token = header.or(token).map(|mut token| {
                    token.set_sensitive(true);
                    token
                });
                Self::Loopback { url, token }
            }
            other => other,
        }
    }
}

/// A client of GKE and Compute Engine.
#[derive(Debug)]
pub struct Gke {
    access: GkeAccess,
    credentials: Arc<Credentials>,
    http: OnceCell<reqwest::Client>,
}

impl Gke {
    /// Creates a client; nothing is opened or read before the first request.
    pub fn new(access: GkeAccess, credentials: Arc<Credentials>) -> Self {
        Self { access, credentials, http: OnceCell::new() }
    }

    pub fn access(&self) -> &GkeAccess {
        &self.access
    }

    /// Sends one request, once.
    ///
    /// # Errors
    ///
    /// No credentials, no connection, no response, or a response that is not 2xx.
    pub async fn send(&self, request: &Request) -> Result<Value, ApiError> {
        let answer = match &self.access {
            GkeAccess::InProcess(router) => {
                let sent = in_process(router, request);
                tokio::time::timeout(TIMEOUT, sent).await.map_err(|_| timed_out(request))??
            }
            GkeAccess::Loopback { url, token } => {
                let token = token.iter().map(|token| (http::header::AUTHORIZATION, token.clone()));
                self.network(url, token.collect(), request).await?
            }
            GkeAccess::Google => {
                let headers = self.credentials.headers(request).await?;
                let bearer = headers.get(http::header::AUTHORIZATION).cloned();
                let answer = self.network(host(request.api), headers, request).await?;
                match bearer.filter(|_| answer.status == 401) {
                    // Nothing was done. A token ends early when the key is replaced or this machine has slept.
                    Some(bearer) if self.credentials.discard(&bearer).await => {
                        let headers = self.credentials.headers(request).await?;
                        self.network(host(request.api), headers, request).await?
                    }
                    Some(_) | None => answer,
                }
            }
        };
        request.read(answer)
    }

    async fn network(
        &self,
        base: &str,
        headers: http::HeaderMap,
        request: &Request,
    ) -> Result<Answer, ApiError> {
        let client = self
            .http
            .get_or_try_init(|| async { self.client() })
            .await
            .map_err(|error| request.failed(ErrorClass::Other, causes(&error)))?;
        let method = match request.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            Method::Put => http::Method::PUT,
            Method::Patch | Method::Merge => http::Method::PATCH,
            Method::Delete => http::Method::DELETE,
        };
        let mut builder = client.request(method, format!("{base}{}", request.path)).headers(headers);
        if let Some(body) = &request.body {
            let json = body.to_string();
            builder = builder.header(http::header::CONTENT_TYPE, content_type(request)).body(json);
        } else if request.method == Method::Post {
            // Google's front end wants a length with every POST.
            builder = builder.header(http::header::CONTENT_LENGTH, "0");
        }
        let response = builder.send().await.map_err(|error| transport_error(request, base, error))?;
        let status = response.status().as_u16();
        let media = Media::from_headers(response.headers());
        let body = bounded(request, reqwest::Body::from(response)).await?;
        Ok(Answer { status, media, warnings: Vec::new(), body })
    }

    fn client(&self) -> Result<reqwest::Client, reqwest::Error> {
        // A redirect would carry the token to wherever it points.
        let builder = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none());
        match self.access {
            // A proxy of the environment must not be asked for what is on this machine.
            GkeAccess::Loopback { .. } => builder.no_proxy().build(),
            GkeAccess::Google | GkeAccess::InProcess(_) => proxy::with_environment_proxy(builder).build(),
        }
    }
}

fn host(api: Api) -> &'static str {
    match api {
        Api::Compute => "https://compute.googleapis.com",
        Api::Projects => "https://cloudresourcemanager.googleapis.com",
        Api::Policies => "https://orgpolicy.googleapis.com",
        Api::Billing => "https://cloudbilling.googleapis.com",
        Api::Gke | Api::Kubernetes => "https://container.googleapis.com",
    }
}

fn timed_out(request: &Request) -> ApiError {
    request.unanswered(format!("no answer within {} s", TIMEOUT.as_secs()))
}

/// Returns the proxy that is used for a server.
fn used_proxy(base: &str) -> Option<UsedProxy> {
    let server = base.parse::<http::Uri>().ok()?;
    proxy::proxy_for(&env_var, &server).map(|proxy| UsedProxy::new(&proxy, "HTTPS_PROXY"))
}

fn transport_error(request: &Request, base: &str, error: reqwest::Error) -> ApiError {
    let (error, host) = (error.without_url(), base.trim_start_matches("https://"));
    if error.is_builder() {
        request.failed(ErrorClass::Invalid, causes(&error))
    } else if is_untrusted(&error) {
        let why = causes(&error);
        let why = used_proxy(base).map_or(why.clone(), |proxy| proxy.explain(host, &why));
        request.untrusted(host, &why, Trust::Public)
    } else if error.is_connect() {
        let why = causes(&error);
        match used_proxy(base) {
            Some(proxy) => proxy.connection_error(request, host, &why),
            None => request.failed(ErrorClass::Unavailable, why),
        }
    } else if error.is_timeout() {
        timed_out(request)
    } else {
        request.unanswered(causes(&error))
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use serde_json::json;

    use super::*;

    fn gke(access: GkeAccess) -> Gke {
        Gke::new(access, Arc::default())
    }

    #[test]
    fn only_plain_http_on_loopback_goes_without_credentials() {
        for good in ["http://127.0.0.1:80", "http://localhost:1/", "http://[::1]:9"] {
            assert!(GkeAccess::loopback(good).is_ok(), "{good}");
        }
        for bad in ["https://127.0.0.1:80", "http://10.0.0.1:80", "http://example.org", "127.0.0.1:80", ""] {
            assert!(GkeAccess::loopback(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_router_of_this_process_answers() {
        let echo = |request: axum::extract::Request| async move {
            json!({ "uri": request.uri().to_string() }).to_string()
        };
        let client = gke(GkeAccess::InProcess(Router::new().route("/v1/{*rest}", get(echo))));
        let answer = client.send(&Request::get(Api::Gke, "/v1/a?b=c")).await;
        assert_eq!(answer, Ok(json!({ "uri": "/v1/a?b=c" })));
    }

    #[tokio::test]
    async fn loopback_answers_and_a_closed_port_is_unavailable_also_for_writes() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let body = r#"{"name":"c"}"#;
        let router = Router::new().route("/v1/c", get(move || async move { body }));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let client = gke(GkeAccess::loopback(&format!("http://{address}")).unwrap());
        assert_eq!(client.send(&Request::get(Api::Gke, "/v1/c")).await, Ok(json!({"name": "c"})));
        server.abort();
        let _ = server.await;
        let closed = gke(GkeAccess::loopback(&format!("http://{address}")).unwrap());
        let write =
            Request { api: Api::Gke, method: Method::Post, path: "/v1/c".into(), body: Some(json!({})) };
        assert_eq!(closed.send(&write).await.unwrap_err().class, ErrorClass::Unavailable);
    }

    #[tokio::test]
    async fn a_connection_that_breaks_after_sending_loses_a_write_but_not_a_read() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                use tokio::io::AsyncReadExt as _;
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
            }
        });
        let client = gke(GkeAccess::loopback(&url).unwrap());
        let write =
            Request { api: Api::Gke, method: Method::Post, path: "/v1/c".into(), body: Some(json!({})) };
        assert_eq!(client.send(&write).await.unwrap_err().class, ErrorClass::Lost);
        let read = Request::get(Api::Gke, "/v1/c");
        assert_eq!(client.send(&read).await.unwrap_err().class, ErrorClass::Unavailable);
        server.abort();
    }
}
