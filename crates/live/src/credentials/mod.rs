//! Google's application default credentials: the bearer of GKE, Compute Engine and the Kubernetes API of a GKE cluster.

pub mod adc;
mod exchange;
mod google;
mod refused;
#[cfg(test)]
mod testing;

use std::path::PathBuf;

use serde_json::json;
use tokio::sync::OnceCell;

use self::adc::{Content, Found};
use self::exchange::Exchange;
use self::google::Library;
pub(crate) use self::refused::Refused;
use self::refused::{Whose, explained};
use crate::environment::environment;
use crate::transport::TOKEN_TIMEOUT;
use crate::{ApiError, Request};
use model::secrets::{self, Secrets};

/// The remedy for missing or expired credentials.
pub const CURE: &str = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to \
     a key or workload identity file";

/// The header that names the project that is charged for a request.
const QUOTA_PROJECT: http::HeaderName = http::HeaderName::from_static("x-goog-user-project");

/// Credentials that are looked up when they are first needed.
#[derive(Debug, Default)]
pub struct Credentials(OnceCell<Source>);

/// Where tokens come from.
#[derive(Debug)]
struct Source {
    whose: Whose,
    way: Way,
    quota_project: Option<http::HeaderValue>,
}

#[derive(Debug)]
enum Way {
    Exchange(Exchange),
    Library(Library),
    /// There is none.
    Broken(Refused),
}

impl Source {
    fn find() -> Self {
        let found = adc::find(&environment);
        let quota_project = adc::quota_project(&environment, &found);
        Self::of(found, quota_project)
    }

    fn of(found: Found, quota_project: Option<String>) -> Self {
        let quota_project = quota_project.and_then(|project| http::HeaderValue::try_from(project).ok());
        let by = |library: Result<Library, String>| match library {
            Ok(library) => Way::Library(library),
            Err(why) => Way::Broken(Refused::Library(why)),
        };
        let (whose, way) = match found {
            Found::Nothing => (Whose::Machine, by(Library::metadata())),
            Found::Broken { path, why } => {
                let what = format!("the Google credentials in {} cannot be used: {why}", path.display());
                (Whose::Machine, Way::Broken(Refused::File(what)))
            }
            Found::File(adc::File { path, kind, account, quota_project: _, content }) => {
                let whose = Whose::File { path: path.display().to_string(), kind, account };
                match content {
                    Content::Exchange(login) => (whose, Way::Exchange(Exchange::new(login))),
                    Content::Library(value) => (whose, by(Library::of(kind, value))),
                }
            }
        };
        Self { whose, way, quota_project }
    }

    async fn token(&self) -> Result<String, Refused> {
        let token = async {
            match &self.way {
                Way::Exchange(exchange) => exchange.token().await,
                Way::Library(library) => library.token().await,
                Way::Broken(refused) => Err(refused.clone()),
            }
        };
        tokio::time::timeout(TOKEN_TIMEOUT, token).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// The metadata server is asked when there is no file, and outside of Google Cloud it is not there.
    fn late(&self) -> Refused {
        match self.whose {
            Whose::Machine => Refused::Library("no application default credentials were found".to_owned()),
            Whose::File { .. } => Refused::Away {
                server: "Google's token server".to_owned(),
                why: format!("no answer within {} s", TOKEN_TIMEOUT.as_secs()),
            },
        }
    }
}

impl Credentials {
    #[cfg(test)]
    fn of(found: Found, quota_project: Option<String>) -> Self {
        Self(OnceCell::new_with(Some(Source::of(found, quota_project))))
    }

    async fn source(&self) -> &Source {
        self.0.get_or_init(|| async { Source::find() }).await
    }

    /// Headers for Google's APIs: the bearer, and the project that is charged when one is named.
    ///
    /// # Errors
    /// No credentials, or no token for them, with what to do.
    pub async fn headers(&self, request: &Request) -> Result<http::HeaderMap, ApiError> {
        let bearer = self.bearer(request).await?;
        let quota_project = self.source().await.quota_project.clone();
        let quota_project = quota_project.map(|project| (QUOTA_PROJECT, project));
        Ok([(http::header::AUTHORIZATION, bearer)].into_iter().chain(quota_project).collect())
    }

    /// The bearer alone, for the Kubernetes API.
    ///
    /// # Errors
    /// As [`Self::headers`].
    pub async fn bearer(&self, request: &Request) -> Result<http::HeaderValue, ApiError> {
        let source = self.source().await;
        let token = source.token().await.map_err(|refused| no_token(request, &refused, &source.whose))?;
        let mut value = http::HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| no_token(request, &Refused::file("the token is not text"), &source.whose))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// A server has refused this bearer: whether there will be another one.
    pub async fn refused(&self, bearer: &http::HeaderValue) -> bool {
        let token = bearer.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        match (&self.source().await.way, token) {
            (Way::Exchange(exchange), Some(token)) => exchange.forget(token).await,
            (Way::Exchange(_) | Way::Library(_) | Way::Broken(_), _) => false,
        }
    }
}

fn no_token(request: &Request, refused: &Refused, whose: &Whose) -> ApiError {
    let refused::Words { class, message, remedy } = explained(refused, whose);
    let mut error = request.failed(class, message);
    // The library's own words fill a screen; who wants them asks for them. An endpoint may have sent back what it was sent.
    let detail = match refused {
        Refused::Library(words) => Some(without(words, &own_secrets(whose))),
        Refused::File(_) | Refused::Away { .. } | Refused::Server { .. } => None,
    };
    error.body = Some(json!({ "detail": detail, "remedy": remedy }));
    error
}

/// A text without what is a secret by its name, its shape, or by being in the file with the credentials.
fn without(text: &str, own: &Secrets) -> String {
    secrets::redacted(&own.out_of(text))
}

/// Returns the secrets in the file that the credentials come from.
fn own_secrets(whose: &Whose) -> Secrets {
    let file = match whose {
        Whose::File { path, .. } => Some(PathBuf::from(path)),
        Whose::Machine => None,
    };
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::testing::{Server, key_file};
    use super::*;
    use crate::Class;
    use model::resource::Api;

    fn of(content: &Value, quota_project: Option<&str>) -> (Credentials, tempfile::NamedTempFile) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content.to_string()).unwrap();
        let path = file.path().display().to_string();
        let found = adc::find(&|name| (name == "GOOGLE_APPLICATION_CREDENTIALS").then(|| path.clone()));
        (Credentials::of(found, quota_project.map(str::to_owned)), file)
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
        assert!(credentials.refused(&headers["authorization"]).await, "there will be another token");
        let bearer = credentials.bearer(&request()).await.unwrap();
        assert_eq!((bearer.to_str().unwrap(), server.asked().len()), ("Bearer ya29.x", 2));
    }

    #[tokio::test]
    async fn a_key_that_is_refused_is_told_with_its_file() {
        let words = json!({ "error": "invalid_grant", "error_description": "Invalid JWT Signature." });
        let server = Server::answering(vec![(400, words)]).await;
        let (credentials, file) = of(&key_file("ci@p", &server.url), None);
        let error = credentials.headers(&request()).await.unwrap_err();
        assert_eq!((error.class, error.status), (Class::Unauthenticated, None));
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
        assert_eq!(error.class, Class::Unauthenticated);
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
        assert!(matches!(credentials.source().await.way, Way::Library(_)));
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
