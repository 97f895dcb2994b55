//! Google's application default credentials: the bearer of GKE, Compute Engine and the Kubernetes API of a
//! GKE cluster. The library caches and refreshes tokens; impersonation and workload identity come with it.

use std::path::PathBuf;

use google_cloud_auth::credentials::{
    AccessTokenCredentials, Builder, CacheableResource, CredentialsProvider as _,
};
use serde_json::json;
use tokio::sync::OnceCell;

use super::transport::{TOKEN_TIMEOUT, causes};
use super::{ApiError, Class, Request};
use crate::secrets::{self, Secrets};

/// What mends missing or expired credentials.
pub const CURE: &str = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to \
     a key or workload identity file";

/// Credentials that are looked up when they are first needed.
#[derive(Debug, Default)]
pub struct Credentials(OnceCell<AccessTokenCredentials>);

impl Credentials {
    async fn get(&self) -> Result<&AccessTokenCredentials, String> {
        let build = || async { Builder::default().build_access_token_credentials() };
        self.0.get_or_try_init(build).await.map_err(|error| causes(&error))
    }

    /// Headers for Google's APIs: the bearer, and the project that pays when the credentials name one.
    ///
    /// # Errors
    /// No credentials, or no token for them: class `Unauthenticated`, with the cure.
    pub async fn headers(&self, request: &Request) -> Result<http::HeaderMap, ApiError> {
        let credentials = self.get().await.map_err(|why| unauthenticated(request, &why))?;
        let headers = credentials.headers(http::Extensions::new());
        match tokio::time::timeout(TOKEN_TIMEOUT, headers).await {
            Ok(Ok(CacheableResource::New { data, .. })) => Ok(data),
            Ok(Ok(CacheableResource::NotModified)) => Err(unauthenticated(request, "no token was given")),
            Ok(Err(error)) => Err(unauthenticated(request, &causes(&error))),
            Err(_) => Err(unauthenticated(request, "no application default credentials were found")),
        }
    }

    /// The bearer token alone, for the Kubernetes API.
    ///
    /// # Errors
    /// As [`Self::headers`].
    pub async fn token(&self, request: &Request) -> Result<String, ApiError> {
        let credentials = self.get().await.map_err(|why| unauthenticated(request, &why))?;
        match tokio::time::timeout(TOKEN_TIMEOUT, credentials.access_token()).await {
            Ok(Ok(token)) => Ok(token.token),
            Ok(Err(error)) => Err(unauthenticated(request, &causes(&error))),
            Err(_) => Err(unauthenticated(request, "no application default credentials were found")),
        }
    }
}

fn unauthenticated(request: &Request, why: &str) -> ApiError {
    let (class, message) = brief(why);
    let mut error = request.failed(class, message);
    // The library's own words fill a screen; who wants them asks for them. An endpoint may have sent back what it was sent.
    error.body = Some(json!({ "detail": without(why, &own_secrets()) }));
    error
}

/// A text without what is a secret by its name, its shape, or by being in the file with the credentials.
fn without(text: &str, own: &Secrets) -> String {
    secrets::redacted(&own.out_of(text))
}

/// What nobody else should see of the file that the credentials come from: where the library looks for it.
fn own_secrets() -> Secrets {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let configured = || {
        let folder = variable("CLOUDSDK_CONFIG").or_else(|| Some(variable("HOME")?.join(".config/gcloud")));
        Some(folder?.join("application_default_credentials.json"))
    };
    let file = variable("GOOGLE_APPLICATION_CREDENTIALS").or_else(configured);
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    text.map(|text| secrets_of(&text)).unwrap_or_default()
}

fn secrets_of(file: &str) -> Secrets {
    let mut own = Secrets::default();
    let values = serde_json::from_str::<serde_json::Value>(file).unwrap_or_default();
    for found in secrets::found_in(&values) {
        own.add(&found, secrets::HIDDEN);
        // As a form carries it.
        let form: String = found
            .bytes()
            .map(|byte| match byte {
                b'-' | b'.' | b'_' | b'*' => char::from(byte).to_string(),
                _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        own.add(&form, secrets::HIDDEN);
    }
    own
}

/// The cause in one line. Source: words of google-cloud-auth 1.18 and of Google's token endpoint.
fn brief(why: &str) -> (Class, String) {
    let words = why.to_ascii_lowercase();
    let has = |list: &[&str]| list.iter().any(|word| words.contains(word));
    let told = |message: &str| (Class::Unauthenticated, message.to_owned());
    if has(&["invalid_grant", "invalid_rapt", "expired", "revoked", "reauth"]) {
        told("the Google credentials have expired or were revoked")
    } else if has(&["invalid_client", "unauthorized_client", "account not found", "invalid_scope"]) {
        told("Google rejected these credentials")
    } else if has(&["could not find or open", "no such file", "permission denied", "os error 2"]) {
        told("the file in GOOGLE_APPLICATION_CREDENTIALS cannot be read")
    } else if has(&["metadata", "no application default credentials", "default credentials"]) {
        told("no Google credentials were found")
    } else if has(&["error sending request", "dns error", "connect error", "timed out"]) {
        let innermost = why.rsplit(": ").next().unwrap_or(why).trim();
        (Class::Unavailable, format!("no token from Google's token server: {innermost}"))
    } else if has(&["parse", "json", "expected", "missing field", "invalid type", "pem", "private key"]) {
        told("the file with Google credentials is not valid")
    } else {
        // In whatever else an endpoint answers the secrets may stand that it was sent.
        told("Google's token server, or a proxy in its place, returned no token for the credentials")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_become_one_line() {
        for (why, expect) in [
            (
                "cannot create access token: {\"error\": \"invalid_grant\", \"error_description\": \"Token has \
                 been expired or revoked.\"}",
                "expired",
            ),
            (
                "could not fetch from http://metadata.google.internal: dns error",
                "no Google credentials were found",
            ),
            ("no application default credentials were found", "no Google credentials were found"),
            ("parse error: expected value at line 1", "is not valid"),
            ("No such file or directory (os error 2)", "cannot be read"),
            (
                "cannot refresh: error sending request for url (https://x/token): dns error: name not known",
                "token server: name not known",
            ),
            ("could not find or open the credentials file nope.json.", "cannot be read"),
            ("a new kind of trouble: client_secret=CANARY\nwith more lines", "returned no token"),
        ] {
            let (_, said) = brief(why);
            assert!(said.contains(expect) && !said.contains('\n') && !said.contains("CANARY"), "{said}");
        }
    }

    #[test]
    fn what_an_endpoint_sends_back_is_hidden_by_name_and_by_value() {
        let file = r#"{ "type": "authorized_user", "client_id": "a.apps", "client_secret": "GOC-canary1/x",
            "refresh_token": "1//0canary2", "quota_project_id": "p" }"#;
        let own = secrets_of(file);
        for echo in [
            "400: client_id=a.apps&client_secret=GOC-canary1%2Fx&refresh_token=1%2F%2F0canary2",
            r#"body: {"client_secret": "GOC-canary1/x", "refresh_token": "1//0canary2"}"#,
            "you said GOC-canary1/x and 1//0canary2",
            "you said GOC-canary1%2Fx and 1%2F%2F0canary2",
            r#"{"assertion": "x", "access_token": "ya29.canary3"}"#,
        ] {
            let said = without(echo, &own);
            assert!(!said.contains("canary"), "{said}");
        }
        assert_eq!(
            without("invalid_grant: Token has been revoked", &own),
            "invalid_grant: Token has been revoked"
        );
        assert_eq!(secrets_of("no JSON"), Secrets::default());
    }
}
