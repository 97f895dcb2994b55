//! Google's application default credentials: the bearer of GKE, Compute Engine and the Kubernetes API of a GKE cluster.

pub mod adc;
mod exchange;
mod google;
#[cfg(test)]
mod testing;
mod token_error;

use std::path::PathBuf;

use serde_json::json;
use tokio::sync::OnceCell;

use self::adc::{AdcSearch, Content};
use self::exchange::Exchange;
use self::google::GoogleLibrary;
pub(crate) use self::token_error::TokenError;
use self::token_error::{CredentialSource, explain};
use crate::environment::env_var;
use crate::transport::TOKEN_TIMEOUT;
use crate::{ApiError, Request};
use model::secrets::{self, Secrets};

/// The remedy for missing or expired credentials.
pub const CREDENTIALS_REMEDY: &str = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to \
     a key or workload identity file";

/// The header that names the project that is charged for a request.
const QUOTA_PROJECT: http::HeaderName = http::HeaderName::from_static("x-goog-user-project");

/// Google credentials, which are looked up on first use.
#[derive(Debug, Default)]
pub struct Credentials(OnceCell<Source>);

/// The credentials that were found, and the project to charge.
#[derive(Debug)]
struct Source {
    origin: CredentialSource,
    token_source: TokenSource,
    quota_project: Option<http::HeaderValue>,
}

#[derive(Debug)]
enum TokenSource {
    Exchange(Exchange),
    Library(GoogleLibrary),
    /// No credentials.
    Unusable(TokenError),
}

impl Source {
    fn find() -> Self {
        let found = adc::find(&env_var);
        let quota_project = adc::quota_project(&env_var, &found);
        Self::new(found, quota_project)
    }

    fn new(found: AdcSearch, quota_project: Option<String>) -> Self {
        let quota_project = quota_project.and_then(|project| http::HeaderValue::try_from(project).ok());
        let by = |library: Result<GoogleLibrary, String>| match library {
            Ok(library) => TokenSource::Library(library),
            Err(why) => TokenSource::Unusable(TokenError::Library(why)),
        };
        let (origin, token_source) = match found {
            AdcSearch::NoFile => (CredentialSource::MetadataServer, by(GoogleLibrary::metadata())),
            AdcSearch::Unusable { path, why } => {
                let what = format!("the Google credentials in {} cannot be used: {why}", path.display());
                (CredentialSource::MetadataServer, TokenSource::Unusable(TokenError::File(what)))
            }
            AdcSearch::File(adc::File { path, kind, account, quota_project: _, content }) => {
                let origin = CredentialSource::File { path: path.display().to_string(), kind, account };
                match content {
                    Content::Exchange(login) => (origin, TokenSource::Exchange(Exchange::new(login))),
                    Content::Library(value) => (origin, by(GoogleLibrary::from_file(kind, value))),
                }
            }
        };
        Self { origin, token_source, quota_project }
    }

    async fn token(&self) -> Result<String, TokenError> {
        let token = async {
            match &self.token_source {
                TokenSource::Exchange(exchange) => exchange.token().await,
                TokenSource::Library(library) => library.token().await,
                TokenSource::Unusable(refused) => Err(refused.clone()),
            }
        };
        tokio::time::timeout(TOKEN_TIMEOUT, token).await.unwrap_or_else(|_| Err(self.timeout()))
    }

    /// Returns the error for a token request that timed out: without a credentials file the metadata server is asked, which does
    /// not exist outside Google Cloud.
    fn timeout(&self) -> TokenError {
        match self.origin {
            CredentialSource::MetadataServer => {
                TokenError::Library("no application default credentials were found".to_owned())
            }
            CredentialSource::File { .. } => TokenError::Unreachable {
                server: "Google's token server".to_owned(),
                why: format!("no answer within {} s", TOKEN_TIMEOUT.as_secs()),
            },
        }
    }
}

impl Credentials {
    #[cfg(test)]
    fn new(found: AdcSearch, quota_project: Option<String>) -> Self {
        Self(OnceCell::new_with(Some(Source::new(found, quota_project))))
    }

    async fn source(&self) -> &Source {
        self.0.get_or_init(|| async { Source::find() }).await
    }

    /// Returns the headers for Google's APIs: the bearer, and the project to charge if one is set.
    ///
    /// # Errors
    ///
    /// There are no credentials, or no token for them; with a remedy.
    pub async fn headers(&self, request: &Request) -> Result<http::HeaderMap, ApiError> {
        let bearer = self.bearer(request).await?;
        let quota_project = self.source().await.quota_project.clone();
        let quota_project = quota_project.map(|project| (QUOTA_PROJECT, project));
        Ok([(http::header::AUTHORIZATION, bearer)].into_iter().chain(quota_project).collect())
    }

    /// Returns the bearer alone, for the Kubernetes API.
    ///
    /// # Errors
    ///
    /// As [`Self::headers`].
    pub async fn bearer(&self, request: &Request) -> Result<http::HeaderValue, ApiError> {
        let source = self.source().await;
        let token = source.token().await.map_err(|refused| no_token(request, &refused, &source.origin))?;
        let mut value = http::HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| no_token(request, &TokenError::file("the token is not text"), &source.origin))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Discards a bearer that a server has refused. Returns true if the next request has another one.
    pub async fn discard(&self, bearer: &http::HeaderValue) -> bool {
        let token = bearer.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        match (&self.source().await.token_source, token) {
            (TokenSource::Exchange(exchange), Some(token)) => exchange.forget(token).await,
            (TokenSource::Exchange(_) | TokenSource::Library(_) | TokenSource::Unusable(_), _) => false,
        }
    }
}

fn no_token(request: &Request, refused: &TokenError, origin: &CredentialSource) -> ApiError {
    let token_error::Explanation { class, message, remedy } = explain(refused, origin);
    let mut error = request.failed(class, message);
    // The library's own words fill a screen; who wants them asks for them. An endpoint may have sent back what it was sent.
    let detail = match refused {
        TokenError::Library(words) => Some(redacted(words, &file_secrets(origin))),
        TokenError::File(_) | TokenError::Unreachable { .. } | TokenError::Server { .. } => None,
    };
    error.body = Some(json!({ "detail": detail, "remedy": remedy }));
    error
}

/// Hides secrets in a text: those with the name or shape of one, and those in the file with the credentials.
fn redacted(text: &str, own: &Secrets) -> String {
    secrets::redacted(&own.out_of(text))
}

/// Returns the secrets in the credentials file.
fn file_secrets(origin: &CredentialSource) -> Secrets {
    let file = match origin {
        CredentialSource::File { path, .. } => Some(PathBuf::from(path)),
        CredentialSource::MetadataServer => None,
    };
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    text.map(|text| secrets_in(&text)).unwrap_or_default()
}

fn secrets_in(file: &str) -> Secrets {
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::testing::{Server, key_file};
    use super::*;
    use crate::ErrorClass;
    use model::resource::Api;

    fn of(content: &Value, quota_project: Option<&str>) -> (Credentials, tempfile::NamedTempFile) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content.to_string()).unwrap();
        let path = file.path().display().to_string();
        let found = adc::find(&|name| (name == "GOOGLE_APPLICATION_CREDENTIALS").then(|| path.clone()));
        (Credentials::new(found, quota_project.map(str::to_owned)), file)
    }

    fn request() -> Request {
        Request::get(Api::Gke, "/v1/projects/p/locations/l/clusters/c")
    }

    #[tokio::test]
    async fn requests_have_a_token_and_name_who_is_charged() {
        let server = Server::answering(vec![(200, json!({ "access_token": "ya29.x" }))]).await;
        let (credentials, _file) = of(&key_file("ci@p", &server.url), Some("billing"));
        let headers = credentials.headers(&request()).await.unwrap();
        assert_eq!(headers["authorization"], "Bearer ya29.x");
        assert_eq!(headers["x-goog-user-project"], "billing");
        assert!(!format!("{headers:?} {credentials:?}").contains("ya29"), "{headers:?}");
        assert!(credentials.discard(&headers["authorization"]).await, "there will be another token");
        let bearer = credentials.bearer(&request()).await.unwrap();
        assert_eq!((bearer.to_str().unwrap(), server.asked().len()), ("Bearer ya29.x", 2));
    }

    #[tokio::test]
    async fn a_key_that_is_refused_is_told_with_its_file() {
        let words = json!({ "error": "invalid_grant", "error_description": "Invalid JWT Signature." });
        let server = Server::answering(vec![(400, words)]).await;
        let (credentials, file) = of(&key_file("ci@p", &server.url), None);
        let error = credentials.headers(&request()).await.unwrap_err();
        assert_eq!((error.class, error.status), (ErrorClass::Unauthenticated, None));
        let said = format!("{error} {:?}", error.body);
        let path = file.path().display().to_string();
        for word in [path.as_str(), "ci@p", "Invalid JWT Signature.", "keys list --iam-account ci@p"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(server.asked().len(), 1, "no other answer is to be had");
        let asked = server.asked();
        assert!(!said.contains(&asked[0].form["assertion"]) && !said.contains("PRIVATE KEY"), "{said}");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_told() {
        let (credentials, _file) = of(&json!({ "type": "service_account", "client_email": "a@b" }), None);
        let error = credentials.headers(&request()).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Unauthenticated);
        assert!(error.message.ends_with("cannot be used: it has no `private_key`"), "{error}");
    }

    #[tokio::test]
    async fn an_impersonated_account_is_asked_for_with_both_scopes() {
        let user = json!({ "access_token": "source", "expires_in": 3600, "token_type": "Bearer" });
        let impersonated = json!({ "accessToken": "impersonated", "expireTime": "2999-01-01T00:00:00Z" });
        let server = Server::answering(vec![(200, user), (200, impersonated)]).await;
        let source = json!({ "type": "authorized_user", "client_id": "id", "client_secret": "s", "refresh_token": "r",
            "token_uri": server.url });
        let url = format!("{}/v1/projects/-/serviceAccounts/ci@p:generateAccessToken", server.url);
        let content = json!({ "type": "impersonated_service_account", "service_account_impersonation_url": url,
            "source_credentials": source });
        let (credentials, _file) = of(&content, None);
        let bearer = credentials.bearer(&request()).await.unwrap();
        assert_eq!(bearer.to_str().unwrap(), "Bearer impersonated");
        let asked = server.asked();
        let body: Value = serde_json::from_str(&asked[1].body).unwrap();
        assert_eq!(body["scope"], json!(exchange::SCOPES));
    }

    /// The library does not know such a login.
    #[tokio::test]
    async fn a_login_of_workforce_identity_impersonates() {
        let source = json!({ "type": "external_account_authorized_user", "client_id": "id", "client_secret": "s",
            "refresh_token": "r", "token_url": "http://127.0.0.1:1/token" });
        let url =
            "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/ci@p:generateAccessToken";
        let content = json!({ "type": "impersonated_service_account", "service_account_impersonation_url": url,
            "source_credentials": source });
        let (credentials, _file) = of(&content, None);
        assert!(matches!(credentials.source().await.token_source, TokenSource::Library(_)));
    }

    #[test]
    fn what_an_endpoint_sends_back_is_hidden_by_name_and_by_value() {
        let file = r#"{ "type": "authorized_user", "client_id": "a.apps", "client_secret": "GOC-canary1/x",
            "refresh_token": "1//0canary2", "quota_project_id": "p" }"#;
        let own = secrets_in(file);
        for echo in [
            "400: client_id=a.apps&client_secret=GOC-canary1%2Fx&refresh_token=1%2F%2F0canary2",
            r#"body: {"client_secret": "GOC-canary1/x", "refresh_token": "1//0canary2"}"#,
            "you said GOC-canary1/x and 1//0canary2",
            "you said GOC-canary1%2Fx and 1%2F%2F0canary2",
            r#"{"assertion": "x", "access_token": "ya29.canary3"}"#,
        ] {
            let said = redacted(echo, &own);
            assert!(!said.contains("canary"), "{said}");
        }
        assert_eq!(
            redacted("invalid_grant: Token has been revoked", &own),
            "invalid_grant: Token has been revoked"
        );
        assert_eq!(secrets_in("no JSON"), Secrets::default());
    }
}
