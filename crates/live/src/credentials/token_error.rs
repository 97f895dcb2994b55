//! Errors of a request for a token: the cause in one line, and the remedy. Pure.

use std::fmt;

use serde_json::Value;

use super::CREDENTIALS_REMEDY;
use super::adc::CredentialKind;
use super::exchange::host;
use crate::ErrorClass;
use model::secrets::{self, HIDDEN, Secrets};

/// The maximum number of characters of a token server's message that are shown.
const MAX_SHOWN: usize = 240;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The file with the credentials.
    File(String),
    /// The token server cannot be reached, or fails.
    Unreachable { server: String, why: String },
    /// The token server refuses the request.
    Server {
        server: String,
        status: u16,
        /// `invalid_grant`.
        error: Option<String>,
        /// The server's message, without the request's content.
        words: Option<String>,
    },
    /// The message of Google's library.
    Library(String),
}

impl TokenError {
    pub fn file(why: &str) -> Self {
        Self::File(why.to_owned())
    }

    /// Creates the error for a response without a token. The response may repeat parts of `sent`.
    pub fn server(server: &str, status: u16, answer: &Value, text: &[u8], sent: &[&str]) -> Self {
        let mut own = Secrets::default();
        sent.iter().for_each(|sent| own.add(sent, HIDDEN));
        let clean = |text: &str| {
            let text: String = secrets::redacted(&own.out_of(text)).chars().take(MAX_SHOWN).collect();
            text.lines().next().unwrap_or_default().trim().to_owned()
        };
        let is_word =
            |word: &&str| word.len() <= 40 && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let error = answer["error"].as_str().filter(is_word).map(str::to_owned);
        let words = answer["error_description"].as_str().map(clean);
        let page = || {
            let text = String::from_utf8_lossy(text);
            Some(clean(&text)).filter(|line| error.is_none() && !line.starts_with('<'))
        };
        let words = words.or_else(page).filter(|words| !words.is_empty());
        Self::Server { server: host(server), status, error, words }
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(why) | Self::Library(why) => f.write_str(why),
            Self::Unreachable { server, why } => write!(f, "no token from {server}: {why}"),
            Self::Server { server, status, error, words } => {
                write!(f, "the token server {server} answered {status}")?;
                [error, words].into_iter().flatten().try_for_each(|word| write!(f, ": {word}"))
            }
        }
    }
}

/// Sources of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    File {
        path: String,
        kind: CredentialKind,
        account: Option<String>,
    },
    /// The metadata server.
    MetadataServer,
}

/// The explanation of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub class: ErrorClass,
    pub message: String,
    pub remedy: String,
}

/// Explains why there is no token.
pub fn explain(refused: &TokenError, origin: &CredentialSource) -> Explanation {
    let (class, cause) = match refused {
        TokenError::Unreachable { .. } => (ErrorClass::Unavailable, refused.to_string()),
        TokenError::Library(words) => brief(words),
        TokenError::File(_) | TokenError::Server { .. } => (ErrorClass::Unauthenticated, refused.to_string()),
    };
    let CredentialSource::File { path, kind, account } = origin else {
        return Explanation { class, message: cause, remedy: CREDENTIALS_REMEDY.to_owned() };
    };
    if class == ErrorClass::Unavailable {
        let remedy = "check the network; behind a proxy, set HTTPS_PROXY, and NO_PROXY for what bypasses it";
        return Explanation { class, message: cause, remedy: remedy.to_owned() };
    }
    let of = account.as_ref().map(|account| format!(" of {account}")).unwrap_or_default();
    let message = match kind {
        CredentialKind::Key => format!("the service account key {path}{of} was rejected: {cause}"),
        CredentialKind::User
        | CredentialKind::Impersonated
        | CredentialKind::External
        | CredentialKind::Workforce => {
            format!("{cause} ({}{of} in {path})", kind.name())
        }
    };
    Explanation { class, message, remedy: remedy(refused, *kind, account.as_deref()) }
}

fn remedy(refused: &TokenError, kind: CredentialKind, account: Option<&str>) -> String {
    match kind {
        CredentialKind::Key if is_about_time(refused) => {
            "set the clock of this machine: the token server takes only assertions of this minute".to_owned()
        }
        CredentialKind::Key => {
            let account = account.unwrap_or("ACCOUNT");
            format!(
                "the key or its account was deleted or disabled: `gcloud iam service-accounts keys list --iam-account \
                 {account}` lists valid keys; set GOOGLE_APPLICATION_CREDENTIALS to the file of another one"
            )
        }
        CredentialKind::Workforce => {
            "log in again: `gcloud auth application-default login --login-config=FILE`, with the login \
                            configuration of your workforce pool"
                .to_owned()
        }
        CredentialKind::Impersonated => {
            let account = account.unwrap_or("ACCOUNT");
            format!(
                "log in again: `gcloud auth application-default login --impersonate-service-account={account}`; whoever \
                 impersonates needs roles/iam.serviceAccountTokenCreator on that account"
            )
        }
        CredentialKind::External => {
            "check the file's `credential_source`, where the token of the other provider comes from, and \
                           that its workload identity pool takes it (`audience`)"
                .to_owned()
        }
        CredentialKind::User => CREDENTIALS_REMEDY.to_owned(),
    }
}

/// Returns true if the server refused the time of the assertion. Source: the token server's `Invalid JWT: Token must be a
/// short-lived token (60 minutes) and in a reasonable timeframe`.
fn is_about_time(refused: &TokenError) -> bool {
    match refused {
        TokenError::Server { words: Some(words), .. } => {
            let words = words.to_ascii_lowercase();
            ["short-lived", "timeframe", "iat and exp"].iter().any(|word| words.contains(word))
        }
        TokenError::Server { words: None, .. }
        | TokenError::File(_)
        | TokenError::Unreachable { .. }
        | TokenError::Library(_) => false,
    }
}

/// Returns the cause in one line. Source: messages of google-cloud-auth 1.18 and of Google's token endpoint.
fn brief(why: &str) -> (ErrorClass, String) {
    let words = why.to_ascii_lowercase();
    let has = |list: &[&str]| list.iter().any(|word| words.contains(word));
    let told = |message: &str| (ErrorClass::Unauthenticated, message.to_owned());
    if has(&["invalid_grant", "invalid_rapt", "expired", "revoked", "reauth"]) {
        told("the Google credentials have expired or were revoked")
    } else if has(&["getaccesstoken"]) {
        told("these credentials may not impersonate the service account (iam.serviceAccounts.getAccessToken)")
    } else if has(&["iamcredentials.googleapis.com", "iam service account credentials api"])
        && has(&["has not been used", "disabled"])
    {
        told("the API iamcredentials.googleapis.com, which impersonates, is not enabled")
    } else if has(&["invalid_client", "unauthorized_client", "account not found", "invalid_scope"]) {
        told("Google rejected these credentials")
    } else if has(&["could not find or open", "no such file", "permission denied", "os error 2"]) {
        told("the file in GOOGLE_APPLICATION_CREDENTIALS cannot be read")
    } else if has(&["metadata", "no application default credentials", "default credentials"]) {
        told("no Google credentials were found")
    } else if has(&["error sending request", "dns error", "connect error", "timed out"]) {
        let innermost = why.rsplit(": ").next().unwrap_or(why).trim();
        (ErrorClass::Unavailable, format!("no token from Google's token server: {innermost}"))
    } else if has(&["parse", "json", "expected", "missing field", "invalid type", "pem", "private key"]) {
        told("the file with Google credentials is not valid")
    } else {
        // In whatever else an endpoint answers the secrets may stand that it was sent.
        told("Google's token server, or a proxy in its place, returned no token for the credentials")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            (
                "403: Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).",
                "may not impersonate",
            ),
        ] {
            let (_, said) = brief(why);
            assert!(said.contains(expect) && !said.contains('\n') && !said.contains("CANARY"), "{said}");
        }
    }

    fn file(kind: CredentialKind) -> CredentialSource {
        CredentialSource::File { path: "/k.json".into(), kind, account: Some("ci@p".into()) }
    }

    fn server(status: u16, answer: &Value, sent: &[&str]) -> TokenError {
        let url = "https://oauth2.googleapis.com/token";
        TokenError::server(url, status, answer, answer.to_string().as_bytes(), sent)
    }

    #[test]
    fn what_the_token_server_says_is_told_with_the_file_and_what_to_do() {
        let grant = |words: &str| json!({ "error": "invalid_grant", "error_description": words });
        for (answer, kind, message, remedy) in [
            (
                grant("Invalid JWT Signature."),
                CredentialKind::Key,
                "the service account key /k.json of ci@p was rejected: the token server oauth2.googleapis.com answered \
                 400: invalid_grant: Invalid JWT Signature.",
                "keys list --iam-account ci@p",
            ),
            (
                grant(
                    "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe.",
                ),
                CredentialKind::Key,
                "was rejected",
                "clock",
            ),
            (
                grant("Bad Request"),
                CredentialKind::Workforce,
                "(external_account_authorized_user of ci@p in /k.json)",
                "--login-config",
            ),
            (json!("<html>"), CredentialKind::Key, "answered 400", "keys list"),
        ] {
            let said = explain(&server(400, &answer, &[]), &file(kind));
            assert_eq!(said.class, ErrorClass::Unauthenticated);
            assert!(said.message.contains(message) && said.remedy.contains(remedy), "{said:?}");
        }
        let away =
            TokenError::Unreachable { server: "oauth2.googleapis.com".into(), why: "it answered 503".into() };
        let said = explain(&away, &file(CredentialKind::Key));
        assert_eq!(
            (said.class, said.message.as_str()),
            (ErrorClass::Unavailable, "no token from oauth2.googleapis.com: it answered 503")
        );
    }

    #[test]
    fn what_was_sent_does_not_come_back() {
        let sent = ["eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJDQU5BUlkifQ.c2lnbmF0dXJl", "Basic Q0FOQVJZOkNBTkFSWQ=="];
        for answer in [
            json!({ "error": "invalid_grant", "error_description": format!("you said {} as {}", sent[0], sent[1]) }),
            json!({ "error": sent[0], "error_description": "CANARY\nof another line" }),
            json!(format!("you said {}", sent[0])),
        ] {
            let said = format!("{:?}", server(400, &answer, &sent));
            assert!(
                !said.contains("eyJ") && !said.contains("Q0FO") && !said.contains("another line"),
                "{said}"
            );
        }
    }
}
