//! Plain HTTP to the API server, so that a test says exactly what it sends.

use std::time::Instant;

use reqwest::Method;
use serde_json::Value;

use super::control_plane::{Access, PATIENCE};

/// Media type of a server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// A client of one API server. Belongs to the runtime it is made in.
pub struct Client {
    http: reqwest::Client,
    access: Access,
}

/// Returns a client's builder that uses no proxy. Its TLS has a provider, whichever test runs first, or alone.
pub fn http_client() -> reqwest::ClientBuilder {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy()
}

impl Client {
    pub fn new(access: &Access) -> Client {
        let roots = reqwest::Certificate::from_pem_bundle(access.ca_pem.as_bytes()).unwrap();
        let http = http_client().tls_certs_only(roots).build().unwrap();
        Client { http, access: access.clone() }
    }

    /// Sends a request; a body that is not JSON comes back as a string.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<(u16, Value), reqwest::Error> {
        let mut request = self.http.request(method, format!("{}{path}", self.access.server));
        request = request.bearer_auth(&self.access.token);
        if let Some((media_type, body)) = body {
            request = request.header("content-type", media_type).body(body.to_string());
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// A GET that may fail, for waiting.
    pub async fn try_get(&self, path: &str) -> Result<(u16, Value), reqwest::Error> {
        self.try_send(Method::GET, path, None).await
    }

    /// Sends a body.
    pub async fn send(&self, method: Method, path: &str, media_type: &str, body: &Value) -> (u16, Value) {
        self.try_send(method, path, Some((media_type, body))).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.try_get(path).await.unwrap()
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.try_send(Method::DELETE, path, None).await.unwrap()
    }

    /// Server-side apply of an object under its path, without force.
    pub async fn apply(&self, path: &str, manager: &str, object: &Value) -> (u16, Value) {
        self.send(Method::PATCH, &format!("{path}?fieldManager={manager}"), APPLY, object).await
    }

    /// Reads `path` until it answers 200 and `done` is true of the answer; panics with the last answer
    /// when that takes too long.
    pub async fn wait(&self, path: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(path, what, |status, answer| status == 200 && done(answer)).await
    }

    /// Reads `path` until it answers 404: what others delete goes only when the finalizers of third parties are off.
    pub async fn wait_gone(&self, path: &str, what: &str) {
        self.wait_for(path, what, |status, _| status == 404).await;
    }

    async fn wait_for(&self, path: &str, what: &str, done: impl Fn(u16, &Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let (status, answer) = self.get(path).await;
            if done(status, &answer) {
                return answer;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{what}: not in {} s; {path}: {status} {answer:#}",
                PATIENCE.as_secs()
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}
