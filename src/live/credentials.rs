//! Google's application default credentials: the bearer of GKE, Compute Engine and the Kubernetes API of a
//! GKE cluster. The library caches and refreshes tokens; impersonation and workload identity come with it.

use google_cloud_auth::credentials::{
    AccessTokenCredentials, Builder, CacheableResource, CredentialsProvider as _,
};
use tokio::sync::OnceCell;

use super::transport::{TOKEN_TIMEOUT, causes};
use super::{ApiError, Class, Request};

/// What mends missing or expired credentials.
pub const CURE: &str = "run `gcloud auth application-default login`, or point GOOGLE_APPLICATION_CREDENTIALS at a key or a workload identity file";

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
    request.failed(Class::Unauthenticated, format!("no Google credentials: {why}; {CURE}"))
}
