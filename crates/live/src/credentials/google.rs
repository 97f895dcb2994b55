//! Credentials that Google's own library turns into tokens: it caches and renews them.

use google_cloud_auth::credentials::{
    AccessTokenCredentials, CacheableResource, CredentialsProvider, EntityTag, external_account,
    impersonated, mds, user_account,
};
use google_cloud_auth::errors::CredentialsError;
use serde_json::Value;

use super::TokenError;
use super::adc::CredentialKind;
use super::exchange::{Exchange, Login, Refresh, SCOPES};
use crate::transport::causes;

#[derive(Debug)]
pub struct GoogleLibrary(AccessTokenCredentials);

impl GoogleLibrary {
    /// Uses the metadata server of a machine on Google Cloud.
    pub fn metadata() -> Result<Self, String> {
        let built = mds::Builder::default().with_scopes(SCOPES).build_access_token_credentials();
        built.map(Self).map_err(|error| causes(&error))
    }

    /// Uses the content of a file. A person's login keeps the scopes that it was created with.
    pub fn from_file(kind: CredentialKind, content: Value) -> Result<Self, String> {
        let built = match kind {
            CredentialKind::User => user_account::Builder::new(content).build_access_token_credentials(),
            CredentialKind::Impersonated => {
                impersonated_by(content)?.with_scopes(SCOPES).build_access_token_credentials()
            }
            CredentialKind::External => {
                external_account::Builder::new(content).with_scopes(SCOPES).build_access_token_credentials()
            }
            CredentialKind::Key | CredentialKind::Workforce => {
                return Err("it is exchanged without the library".to_owned());
            }
        };
        built.map(Self).map_err(|error| causes(&error))
    }

    /// Returns an access token, from the library's cache or a new one.
    ///
    /// # Errors
    ///
    /// The message of the library.
    pub async fn token(&self) -> Result<String, TokenError> {
        let token = self.0.access_token().await;
        token.map(|token| token.token).map_err(|error| TokenError::Library(causes(&error)))
    }
}

/// Creates an impersonation. The library does not support workforce identity federation as source credentials, so such a source
/// is an [`Exchange`].
fn impersonated_by(content: Value) -> Result<impersonated::Builder, String> {
    let source = &content["source_credentials"];
    if source["type"] != CredentialKind::Workforce.name() {
        return Ok(impersonated::Builder::new(content));
    }
    let source = ExchangedCredentials(Exchange::new(Login::Refresh(Refresh::from_file(source)?)));
    let url = content["service_account_impersonation_url"].as_str().unwrap_or_default();
    let principal = url.rsplit_once("/serviceAccounts/").and_then(|(_, rest)| rest.split(':').next());
    let principal = principal.ok_or("its `service_account_impersonation_url` names no service account")?;
    let delegates = content["delegates"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(impersonated::Builder::from_source_credentials(source.into())
        .with_target_principal(principal)
        .with_delegates(delegates))
}

/// The source credentials of an impersonation, as the library takes them.
#[derive(Debug)]
struct ExchangedCredentials(Exchange);

impl CredentialsProvider for ExchangedCredentials {
    async fn headers(
        &self,
        _: http::Extensions,
    ) -> Result<CacheableResource<http::HeaderMap>, CredentialsError> {
        let failed = |refused: &TokenError| {
            CredentialsError::from_msg(matches!(refused, TokenError::Unreachable { .. }), refused.to_string())
        };
        let token = self.0.token().await.map_err(|refused| failed(&refused))?;
        let value = http::HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| CredentialsError::from_msg(false, "the token is not text"))?;
        value.set_sensitive(true);
        let data = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
        Ok(CacheableResource::New { entity_tag: EntityTag::new(), data })
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}
