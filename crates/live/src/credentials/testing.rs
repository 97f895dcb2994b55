//! A token server on loopback, and a private key for tests only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::SignatureScheme;
use serde_json::{Value, json};

/// Returns the file of a service account's key.
pub fn key_file(email: &str, token_uri: &str) -> Value {
    json!({
        "type": "service_account",
        "client_email": email,
        "private_key_id": "key-1",
        "private_key": include_str!("../../../../tests/data/token-test.pem"),
        "project_id": "p",
        "token_uri": token_uri,
    })
}

/// Returns true if an assertion is signed with the key of [`key_file`].
pub fn verified(assertion: &str) -> bool {
    let (said, signature) = assertion.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let (_, verifiers) =
        known.mapping.iter().find(|(scheme, _)| *scheme == SignatureScheme::RSA_PKCS1_SHA256).unwrap();
    let public = include_bytes!("../../../../tests/data/token-test.der");
    verifiers.iter().any(|verifier| verifier.verify_signature(public, said.as_bytes(), &signature).is_ok())
}

/// Header and claims.
pub fn decoded(assertion: &str) -> (Value, Value) {
    let part = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    let mut parts = assertion.split('.');
    (part(parts.next().unwrap()), part(parts.next().unwrap()))
}

/// A request that the token server received.
#[derive(Clone, Debug)]
pub struct Asked {
    pub form: BTreeMap<String, String>,
    pub body: String,
    pub authorization: String,
}

/// Gives its answers one after the other, and the last one forever.
pub struct Server {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn answering(answers: Vec<(u16, Value)>) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let answer = move |request: Request| {
            let (log, answers) = (Arc::clone(&log), answers.clone());
            async move {
                let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
                let authorization = header.unwrap_or_default().to_owned();
                let request_body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
                let form = form_urlencoded::parse(&request_body).into_owned().collect();
                let mut log = log.lock().unwrap();
                let (status, body) = &answers[log.len().min(answers.len() - 1)];
                let text = String::from_utf8_lossy(&request_body).into_owned();
                log.push(Asked { form, body: text, authorization });
                (http::StatusCode::from_u16(*status).unwrap(), body.to_string())
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let router = Router::new().fallback(any(answer));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, asked, task }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
