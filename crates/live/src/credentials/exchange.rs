//! Tokens that this program requests from a token server itself. For a service account's key, Google's library signs a token
//! locally. Google's APIs accept that, but a cluster needs an OAuth token. The library also does not support workforce identity
//! federation. Source: RFC 7523; google-auth's `service_account.py` and `external_account_authorized_user.py`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::SigningKey;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

use super::TokenError;
use crate::proxy::with_environment_proxy;
use crate::transport::{USER_AGENT, causes};

/// The scopes of tokens. Without the second one, a GKE cluster identifies an account by a number, and role bindings for an e-mail
/// address do not match. Source: gke-gcloud-auth-plugin.
pub const SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"];

const TOKEN_SERVER: &str = "https://oauth2.googleapis.com/token";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The lifetime of a signed assertion: the longest that the token server accepts.
const ASSERTION_LIFETIME: SignedDuration = SignedDuration::from_secs(3600);
/// How far this machine's clock may be ahead of the token server's.
const SKEW: SignedDuration = SignedDuration::from_secs(10);
/// Seconds before the end of a token at which it is renewed, if it lives long enough.
const RENEW_BEFORE: i64 = 300;
/// Pauses before further requests to the token server.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(1000)];
const TIMEOUT: Duration = Duration::from_secs(8);

pub struct Key {
    email: String,
    id: Option<String>,
    signing_key: Arc<dyn SigningKey>,
    server: String,
}

impl Key {
    /// Reads a file of `type` `service_account`.
    ///
    /// # Errors
    /// A field of the file is missing or not valid.
    pub fn from_file(file: &Value) -> Result<Self, String> {
        let unsigned = || "its `private_key` is not an RSA key in PEM".to_owned();
        let pem = PrivateKeyDer::from_pem_slice(field(file, "private_key")?.as_bytes());
        let signing_key = rustls::crypto::ring::sign::any_supported_type(&pem.map_err(|_| unsigned())?);
        let signing_key = signing_key.map_err(|_| unsigned())?;
        signing_key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]).ok_or_else(unsigned)?;
        let server = file["token_uri"].as_str().filter(|uri| !uri.is_empty()).unwrap_or(TOKEN_SERVER);
        Ok(Self {
            email: field(file, "client_email")?.to_owned(),
            id: file["private_key_id"].as_str().map(str::to_owned),
            signing_key,
            server: secure_url(server, "token_uri")?,
        })
    }

    /// Returns the signed assertion of the account's identity.
    fn assertion(&self, now: Timestamp) -> Result<String, TokenError> {
        let issued = now - SKEW;
        let mut header = json!({ "alg": "RS256", "typ": "JWT" });
        if let Some(id) = &self.id {
            header["kid"] = json!(id);
        }
        let claims = json!({
            "iss": self.email,
            "scope": SCOPES.join(" "),
            "aud": self.server,
            "iat": issued.as_second(),
            "exp": (issued + ASSERTION_LIFETIME).as_second(),
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let unsigned = || TokenError::file("its `private_key` does not sign");
        let signer =
            self.signing_key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]).ok_or_else(unsigned)?;
        let signature = signer.sign(signed.as_bytes()).map_err(|_| unsigned())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// The credentials that `gcloud auth application-default login --login-config` stores.
pub struct Refresh {
    /// Basic authentication of the client.
    client: String,
    /// The refresh token. The server may return another one with each access token.
    token: Mutex<String>,
    server: String,
}

impl Refresh {
    /// Reads a file of `type` `external_account_authorized_user`.
    ///
    /// # Errors
    /// A field of the file is missing or not valid.
    pub fn from_file(file: &Value) -> Result<Self, String> {
        let client = format!("{}:{}", field(file, "client_id")?, field(file, "client_secret")?);
        Ok(Self {
            client: format!("Basic {}", STANDARD.encode(client)),
            token: Mutex::new(field(file, "refresh_token")?.to_owned()),
            server: secure_url(field(file, "token_url")?, "token_url")?,
        })
    }
}

fn field<'a>(file: &'a Value, name: &str) -> Result<&'a str, String> {
    let value = file[name].as_str().filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("it has no `{name}`"))
}

/// Returns the URL of a token server if requests to it are encrypted or stay on this machine.
fn secure_url(url: &str, name: &str) -> Result<String, String> {
    let uri: http::Uri = url.parse().map_err(|_| format!("its `{name}` is not a URL"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let here = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if uri.scheme() == Some(&http::uri::Scheme::HTTPS) || here || host == "localhost" {
        return Ok(url.to_owned());
    }
    Err(format!("its `{name}` is not https://"))
}

/// Credentials that are exchanged for a token.
pub enum Login {
    Key(Key),
    Refresh(Refresh),
}

/// A request to the token server.
struct TokenRequest {
    form: Vec<(&'static str, String)>,
    client: Option<String>,
}

impl Login {
    fn server(&self) -> &str {
        match self {
            Self::Key(key) => &key.server,
            Self::Refresh(refresh) => &refresh.server,
        }
    }

    async fn token_request(&self) -> Result<TokenRequest, TokenError> {
        Ok(match self {
            Self::Key(key) => TokenRequest {
                form: vec![
                    ("grant_type", JWT_BEARER.to_owned()),
                    ("assertion", key.assertion(Timestamp::now())?),
                ],
                client: None,
            },
            Self::Refresh(refresh) => TokenRequest {
                form: vec![
                    ("grant_type", "refresh_token".to_owned()),
                    ("refresh_token", refresh.token.lock().await.clone()),
                ],
                client: Some(refresh.client.clone()),
            },
        })
    }

    /// Updates the refresh token from an answer.
    async fn update(&self, answer: &Value) {
        match (self, answer["refresh_token"].as_str()) {
            (Self::Refresh(refresh), Some(token)) => token.clone_into(&mut *refresh.token.lock().await),
            (Self::Refresh(_), None) | (Self::Key(_), _) => {}
        }
    }
}

struct Token {
    text: String,
    renew: Timestamp,
    end: Timestamp,
}

impl Token {
    fn from_answer(answer: &Value, now: Timestamp) -> Option<Self> {
        let text = answer["access_token"].as_str().filter(|text| !text.is_empty())?;
        let lasts = answer["expires_in"].as_i64().unwrap_or(3600).clamp(0, 24 * 3600);
        let renew = (lasts - RENEW_BEFORE).max(lasts / 2);
        let after = |seconds| now + SignedDuration::from_secs(seconds);
        Some(Self { text: text.to_owned(), renew: after(renew), end: after(lasts) })
    }
}

/// Exchanges credentials for tokens, and keeps the last token.
pub struct Exchange {
    login: Login,
    http: OnceCell<reqwest::Client>,
    last: Mutex<Option<Token>>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("server", &self.login.server()).finish_non_exhaustive()
    }
}

impl Exchange {
    pub fn new(login: Login) -> Self {
        Self { login, http: OnceCell::new(), last: Mutex::new(None) }
    }

    /// Returns a valid token.
    ///
    /// # Errors
    ///
    /// The token server returns none.
    pub async fn token(&self) -> Result<String, TokenError> {
        // Held while asking, so that many first requests ask once.
        let mut last = self.last.lock().await;
        let now = Timestamp::now();
        if let Some(token) = last.as_ref().filter(|token| now < token.renew) {
            return Ok(token.text.clone());
        }
        match self.ask().await {
            Ok(token) => {
                let text = token.text.clone();
                *last = Some(token);
                Ok(text)
            }
            // It was early; the old one is still good.
            Err(TokenError::Unreachable { .. }) if last.as_ref().is_some_and(|token| now < token.end) => {
                Ok(last.as_ref().map(|token| token.text.clone()).unwrap_or_default())
            }
            Err(refused) => Err(refused),
        }
    }

    /// Discards a token that was refused. Returns true if the next request will have another one.
    pub async fn forget(&self, refused: &str) -> bool {
        let mut last = self.last.lock().await;
        last.take_if(|token| token.text == refused);
        last.as_ref().is_none_or(|token| token.text != refused)
    }

    async fn ask(&self) -> Result<Token, TokenError> {
        let mut pauses = RETRY_PAUSES.into_iter();
        loop {
            match (self.ask_once().await, pauses.next()) {
                (Err(TokenError::Unreachable { .. }), Some(pause)) => tokio::time::sleep(pause).await,
                (result, _) => return result,
            }
        }
    }

    async fn ask_once(&self) -> Result<Token, TokenError> {
        let TokenRequest { form, client } = self.login.token_request().await?;
        let server = self.login.server();
        let sent: Vec<&str> = form.iter().map(|(_, value)| value.as_str()).chain(client.as_deref()).collect();
        let away = |why: String| TokenError::Unreachable { server: host(server), why };
        let http = self.http.get_or_try_init(|| async { client_of(server) }).await;
        let mut request = http.map_err(|error| away(causes(&error)))?.post(server);
        if let Some(client) = &client {
            request = request.header(http::header::AUTHORIZATION, client);
        }
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(&form).finish();
        let request =
            request.header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        let response = request.send().await.map_err(|error| away(causes(&error.without_url())))?;
        let status = response.status();
        let text = response.bytes().await.map_err(|error| away(causes(&error.without_url())))?;
        let answer = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        if status.is_server_error() || status == http::StatusCode::TOO_MANY_REQUESTS {
            return Err(away(format!("it answered {}", status.as_u16())));
        }
        match Token::from_answer(&answer, Timestamp::now()).filter(|_| status.is_success()) {
            Some(token) => {
                self.login.update(&answer).await;
                Ok(token)
            }
            None => Err(TokenError::server(server, status.as_u16(), &answer, &text, &sent)),
        }
    }
}

fn client_of(server: &str) -> Result<reqwest::Client, reqwest::Error> {
    // A redirect would carry the assertion to wherever it points.
    let builder = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .user_agent(USER_AGENT)
        .redirect(reqwest::redirect::Policy::none());
    // A token server without TLS is one of this machine's.
    if server.starts_with("http://") {
        builder.no_proxy().build()
    } else {
        with_environment_proxy(builder).build()
    }
}

/// Returns the host of a token server for messages.
pub fn host(server: &str) -> String {
    let uri = server.parse::<http::Uri>().ok();
    uri.and_then(|uri| uri.authority().map(ToString::to_string))
        .unwrap_or_else(|| "the token server".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Server, decoded, key_file, verified};
    use super::*;

    fn exchange(file: &Value) -> Exchange {
        let login = match file["type"].as_str() {
            Some("service_account") => Login::Key(Key::from_file(file).unwrap()),
            _ => Login::Refresh(Refresh::from_file(file).unwrap()),
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        Exchange::new(login)
    }

    fn workforce(server: &Server) -> Value {
        json!({ "type": "external_account_authorized_user", "client_id": "id", "client_secret": "CANARY1",
            "refresh_token": "CANARY2", "token_url": server.url })
    }

    #[tokio::test]
    async fn a_key_is_exchanged_for_a_token_once_while_it_lasts() {
        let server =
            Server::answering(vec![(200, json!({ "access_token": "ya29.first", "expires_in": 3599 }))]).await;
        let exchange = exchange(&key_file("ci@p.iam.gserviceaccount.com", &server.url));
        for _ in 0..3 {
            assert_eq!(exchange.token().await.unwrap(), "ya29.first");
        }
        let asked = server.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
        let assertion = &asked[0].form["assertion"];
        assert!(verified(assertion), "{assertion}");
        let (header, claims) = decoded(assertion);
        assert_eq!(header, json!({ "alg": "RS256", "typ": "JWT", "kid": "key-1" }));
        let now = Timestamp::now().as_second();
        let (issued, end) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
        assert!((now - 30..now).contains(&issued) && end - issued == 3600, "{claims}");
        assert_eq!(claims["iss"], "ci@p.iam.gserviceaccount.com");
        assert_eq!(claims["aud"], server.url);
        let scope =
            "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email";
        assert_eq!(claims["scope"], scope);
    }

    #[tokio::test]
    async fn a_token_is_renewed_before_its_end_and_after_it_was_refused() {
        let token = |text: &str, lasts: i64| (200, json!({ "access_token": text, "expires_in": lasts }));
        let server = Server::answering(vec![token("a", 0), token("b", 3600), token("c", 3600)]).await;
        let exchange = exchange(&key_file("ci@p", &server.url));
        assert_eq!(exchange.token().await.unwrap(), "a");
        assert_eq!(exchange.token().await.unwrap(), "b");
        assert_eq!(exchange.token().await.unwrap(), "b");
        exchange.forget("a").await;
        assert_eq!(exchange.token().await.unwrap(), "b");
        exchange.forget("b").await;
        assert_eq!(exchange.token().await.unwrap(), "c");
    }

    #[test]
    fn tokens_are_renewed_early() {
        let now = Timestamp::UNIX_EPOCH;
        for (lasts, renewed) in [(3600, 3300), (600, 300), (100, 50), (0, 0)] {
            let token =
                Token::from_answer(&json!({ "access_token": "t", "expires_in": lasts }), now).unwrap();
            assert_eq!((token.renew.as_second(), token.end.as_second()), (renewed, lasts));
        }
        assert!(Token::from_answer(&json!({ "id_token": "t" }), now).is_none());
    }

    #[tokio::test]
    async fn a_token_server_that_breaks_is_asked_again() {
        let token = (200, json!({ "access_token": "t" }));
        let server = Server::answering(vec![(503, json!({})), (500, json!({})), token]).await;
        assert_eq!(exchange(&key_file("ci@p", &server.url)).token().await.unwrap(), "t");
        let server = Server::answering(vec![(503, json!({}))]).await;
        let refused = exchange(&key_file("ci@p", &server.url)).token().await.unwrap_err();
        assert!(
            matches!(&refused, TokenError::Unreachable { why, .. } if why == "it answered 503"),
            "{refused:?}"
        );
        assert_eq!(server.asked().len(), 3);
    }

    #[tokio::test]
    async fn a_login_of_workforce_identity_is_refreshed_with_what_the_server_gave_last() {
        let answer =
            |token: &str| json!({ "access_token": token, "expires_in": 0, "refresh_token": "CANARY3" });
        let server = Server::answering(vec![(200, answer("a")), (200, answer("b"))]).await;
        let exchange = exchange(&workforce(&server));
        assert_eq!(exchange.token().await.unwrap(), "a");
        assert_eq!(exchange.token().await.unwrap(), "b");
        let asked = server.asked();
        let refresh: Vec<&str> = asked.iter().map(|asked| asked.form["refresh_token"].as_str()).collect();
        assert_eq!(refresh, ["CANARY2", "CANARY3"]);
        assert_eq!(asked[0].authorization, format!("Basic {}", STANDARD.encode("id:CANARY1")));
        assert!(!format!("{exchange:?}").contains("CANARY"));
    }
}
