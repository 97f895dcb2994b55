//! Application default credentials: the search that both requests and `doctor` use, so that they agree. Source: google-auth's
//! `_default.py` and `gcloud` for paths and order; AIP-4110 for the types of files.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::exchange::{Key, Login, Refresh};
use crate::environment::Env;

/// The result of a search for application default credentials on this machine, without network access.
#[derive(Debug)]
pub enum AdcSearch {
    File(File),
    /// A credentials file that cannot be used, and why.
    Unusable {
        path: PathBuf,
        why: String,
    },
    /// No file. On Google Cloud the metadata server may still have credentials.
    NoFile,
}

/// A file with credentials.
pub struct File {
    pub path: PathBuf,
    pub kind: CredentialKind,
    /// The account's e-mail address, if the file has it. It is not a secret.
    pub account: Option<String>,
    /// The project that is charged for requests, if the file names one.
    pub quota_project: Option<String>,
    pub(super) content: Content,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, kind, account, quota_project, content: _ } = self;
        let mut shown = f.debug_struct("File");
        shown.field("path", path).field("kind", kind).field("account", account);
        shown.field("quota_project", quota_project).finish_non_exhaustive()
    }
}

/// Ways to get a token for a file.
pub(super) enum Content {
    /// Exchanges it at a token server, without the library.
    Exchange(Login),
    /// Passes it to Google's library.
    Library(Value),
}

/// The `type` of a file with credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    User,
    Key,
    Impersonated,
    /// Workload identity federation.
    External,
    /// Workforce identity federation.
    Workforce,
}

impl CredentialKind {
    const ALL: [Self; 5] = [Self::User, Self::Key, Self::Impersonated, Self::External, Self::Workforce];

    /// Returns the `type` in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "authorized_user",
            Self::Key => "service_account",
            Self::Impersonated => "impersonated_service_account",
            Self::External => "external_account",
            Self::Workforce => "external_account_authorized_user",
        }
    }

    /// Returns the fields without which Google's library cannot use such a file.
    fn required_fields(self) -> &'static [&'static str] {
        match self {
            Self::User => &["client_id", "client_secret", "refresh_token"],
            Self::Impersonated => &["service_account_impersonation_url", "source_credentials"],
            Self::External => &["audience", "subject_token_type", "token_url", "credential_source"],
            // Read field by field.
            Self::Key | Self::Workforce => &[],
        }
    }
}

/// Searches the paths that Google's libraries search, in the same order.
pub fn find(env: Env<'_>) -> AdcSearch {
    if let Some(path) = env("GOOGLE_APPLICATION_CREDENTIALS") {
        return open(Path::new(&path));
    }
    match folder(env).map(|folder| folder.join("application_default_credentials.json")) {
        Some(path) if path.exists() => open(&path),
        Some(_) | None => AdcSearch::NoFile,
    }
}

/// Returns gcloud's folder.
pub fn folder(env: Env<'_>) -> Option<PathBuf> {
    let named = env("CLOUDSDK_CONFIG").map(PathBuf::from);
    named.or_else(|| env("HOME").map(|home| Path::new(&home).join(".config/gcloud")))
}

/// Returns the project that is charged for requests: the environment's, else the file's.
pub fn quota_project(env: Env<'_>, found: &AdcSearch) -> Option<String> {
    let of_file = || match found {
        AdcSearch::File(file) => file.quota_project.clone(),
        AdcSearch::Unusable { .. } | AdcSearch::NoFile => None,
    };
    env("GOOGLE_CLOUD_QUOTA_PROJECT").or_else(of_file)
}

fn open(path: &Path) -> AdcSearch {
    match read(path) {
        Ok(file) => AdcSearch::File(file),
        Err(why) => AdcSearch::Unusable { path: path.to_owned(), why },
    }
}

fn read(path: &Path) -> Result<File, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("it cannot be read: {error}"))?;
    // The parser's own words may repeat the text, which is secret.
    let value: Value = serde_json::from_str(&text).map_err(|_| "it is not valid JSON".to_owned())?;
    let named = |key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let account = named("client_email").or_else(|| named("account")).or_else(|| impersonated(&value));
    let (kind, quota_project) = (kind(&value)?, named("quota_project_id"));
    let content = content(kind, value)?;
    Ok(File { path: path.to_owned(), kind, account, quota_project, content })
}

fn kind(value: &Value) -> Result<CredentialKind, String> {
    let word = value["type"].as_str().ok_or("it has no `type`, so it holds no credentials")?;
    let kind = CredentialKind::ALL.into_iter().find(|kind| kind.name() == word);
    kind.ok_or_else(|| match word {
        "gdch_service_account" => "credentials of Distributed Cloud are not supported".to_owned(),
        _ => "its `type` is not one of Google's credentials".to_owned(),
    })
}

fn content(kind: CredentialKind, value: Value) -> Result<Content, String> {
    if let Some(missing) = kind.required_fields().iter().find(|field| value[**field].is_null()) {
        return Err(format!("it has no `{missing}`"));
    }
    match kind {
        CredentialKind::Key => Key::from_file(&value).map(|key| Content::Exchange(Login::Key(key))),
        CredentialKind::Workforce => {
            Refresh::from_file(&value).map(|refresh| Content::Exchange(Login::Refresh(refresh)))
        }
        CredentialKind::Impersonated => {
            let source = &value["source_credentials"];
            let of_source = |why| format!("in its `source_credentials`: {why}");
            content(self::kind(source).map_err(of_source)?, source.clone()).map_err(of_source)?;
            Ok(Content::Library(value))
        }
        CredentialKind::User | CredentialKind::External => Ok(Content::Library(value)),
    }
}

/// Returns `sa@p.iam.gserviceaccount.com` of `…/serviceAccounts/sa@p.iam.gserviceaccount.com:generateAccessToken`.
fn impersonated(value: &Value) -> Option<String> {
    let url = value["service_account_impersonation_url"].as_str()?;
    let account = url.rsplit_once("/serviceAccounts/")?.1.split(':').next()?;
    Some(account.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::super::testing::key_file;
    use super::*;

    fn env<'a>(pairs: &'a BTreeMap<&str, String>) -> impl Fn(&str) -> Option<String> + 'a {
        |name| pairs.get(name).cloned()
    }

    #[test]
    fn files_are_looked_for_where_gcloud_puts_them() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let user = json!({ "type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r" });
        let mut pairs = BTreeMap::from([("HOME", home.path().display().to_string())]);
        assert!(matches!(find(&env(&pairs)), AdcSearch::NoFile));
        let folder = home.path().join(".config/gcloud");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("application_default_credentials.json"), user.to_string()).unwrap();
        let path = |found: AdcSearch| match found {
            AdcSearch::File(file) => file.path,
            found @ (AdcSearch::Unusable { .. } | AdcSearch::NoFile) => panic!("{found:?}"),
        };
        assert!(path(find(&env(&pairs))).starts_with(home.path()));
        pairs.insert("CLOUDSDK_CONFIG", other.path().display().to_string());
        assert!(matches!(find(&env(&pairs)), AdcSearch::NoFile), "gcloud writes elsewhere now");
        fs::write(other.path().join("application_default_credentials.json"), user.to_string()).unwrap();
        assert!(path(find(&env(&pairs))).starts_with(other.path()));
        pairs.insert("GOOGLE_APPLICATION_CREDENTIALS", other.path().join("none").display().to_string());
        assert!(matches!(find(&env(&pairs)), AdcSearch::Unusable { .. }));
    }

    #[test]
    fn credentials_are_named_by_kind_and_no_secret_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        let pairs = BTreeMap::from([("GOOGLE_APPLICATION_CREDENTIALS", path.display().to_string())]);
        let workforce = json!({ "type": "external_account_authorized_user", "client_id": "c", "client_secret": "CANARY",
            "refresh_token": "CANARY", "token_url": "https://sts.googleapis.com/v1/oauthtoken" });
        let impersonated = |source: &Value| {
            let url =
                "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b:generateAccessToken";
            json!({ "type": "impersonated_service_account", "service_account_impersonation_url": url,
                "source_credentials": source })
        };
        let broken = json!({ "type": "service_account", "client_email": "a@b", "private_key": "CANARY" });
        let url = |url: &str| {
            let mut key = key_file("a@b", url);
            key["quota_project_id"] = json!("billing");
            key.to_string()
        };
        for (text, expect) in [
            (
                url("https://oauth2.googleapis.com/token"),
                "kind: Key, account: Some(\"a@b\"), quota_project: Some(\"billing\")",
            ),
            (url("http://example.com/token"), "not https://"),
            (broken.to_string(), "`private_key` is not"),
            (json!({ "type": "authorized_user", "refresh_token": "CANARY" }).to_string(), "no `client_id`"),
            (workforce.to_string(), "kind: Workforce"),
            (impersonated(&workforce).to_string(), "kind: Impersonated, account: Some(\"a@b\")"),
            (impersonated(&broken).to_string(), "in its `source_credentials`: its `private_key`"),
            (json!({ "type": "CANARY" }).to_string(), "not one of Google's"),
            (r#"{"CANARY": "CANARY"}"#.to_owned(), "no `type`"),
            ("CANARY {".to_owned(), "not valid JSON"),
        ] {
            fs::write(&path, text).unwrap();
            let found = format!("{:?}", find(&env(&pairs)));
            assert!(found.contains(expect), "{found}");
            assert!(!found.contains("CANARY") && !found.contains("PRIVATE KEY"), "{found}");
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(find(&env(&pairs)), AdcSearch::Unusable { .. }));
    }

    #[test]
    fn the_environment_names_who_is_charged_before_the_file() {
        let mut pairs = BTreeMap::from([("HOME", "/none".to_owned())]);
        assert_eq!(quota_project(&env(&pairs), &AdcSearch::NoFile), None);
        pairs.insert("GOOGLE_CLOUD_QUOTA_PROJECT", "billing".to_owned());
        assert_eq!(quota_project(&env(&pairs), &AdcSearch::NoFile).as_deref(), Some("billing"));
    }
}
