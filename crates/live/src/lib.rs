//! Access to live state: requests to GKE, Compute Engine, Kubernetes and hosts, as JSON. Besides the sandbox, only this crate
//! does network IO. It knows nothing of plans.
//!
//! - `gke`, `kube`, `connection`: the clients, and the one connection that joins them.
//! - `read`: reads a world; `watch`: follows objects; `retry`: the one place of retries.
//! - `prices`: reads prices of Google's Cloud Billing API.
//! - `forward`: carries bytes between local ports and pods.
//! - `hosts`: the agent of a host, on this machine or at the other end of `ssh`. `fleet` writes an object to several hosts,
//!   `parts` splits it and merges their answers, `rollout` orders their changes.
//!
//! [`LiveApi`] has a single method for requests, with JSON as the result. So a new GKE call is a row in a kind's table and needs
//! no code here, and recordings and fakes are a few lines.

pub mod admission;
pub mod answer;
mod batch;
pub mod connection;
pub mod credentials;
pub mod dask;
pub mod deletion_scope;
pub mod denial;
pub mod dry_run;
pub mod endpoint;
pub mod environment;
pub mod forward;
pub mod gke;
pub mod hosts;
pub mod kube;
pub mod list;
mod owned_objects;
mod pool_sizes;
pub mod prices;
pub mod private_files;
mod probe;
mod proxy;
pub mod read;
pub mod record;
pub mod retry;
pub mod served_kinds;
pub mod shape;
pub mod survey;
mod transport;
mod trust;
pub mod watch;

pub use self::answer::Reply;
pub use self::batch::read_queries;
pub use self::connection::{Connection, InProcess, Options};
pub use self::credentials::CREDENTIALS_REMEDY;
pub use self::gke::GkeAccess;
pub use self::kube::{InsecureAccess, KubeconfigAccess};
pub use self::probe::probe;
pub use self::read::{Reading, read};
pub use self::trust::Trust;

use std::fmt;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use self::kube::ByteStream;

use model::resource::{Api, Host, Method};

/// The field manager of records and their namespace. It is not the field manager of a stack, so no plan treats them as the
/// stack's.
pub const MANAGER: &str = "dask-infra";

#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub api: Api,
    /// The HTTP method. A PATCH is always a server-side apply.
    pub method: Method,
    /// The path with its query.
    pub path: String,
    pub body: Option<Value>,
}

impl Request {
    /// Creates a read.
    pub fn get(api: Api, path: impl Into<String>) -> Self {
        Self { api, method: Method::Get, path: path.into(), body: None }
    }
}

/// Classes of request failures. The class decides if a request is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// 404.
    NotFound,
    /// 409: it exists already.
    AlreadyExists,
    /// 409 or 412: the object has changed, or another manager owns the field.
    Conflict,
    /// 400 or 429: another operation is running on the GKE cluster, or the limit of concurrent operations is reached.
    Busy,
    /// 429: too many requests.
    Throttled,
    /// 5xx, or the request could not be sent: nothing was done.
    Unavailable,
    /// Not sent: it is uncertain whether this apply still holds the stack's lock.
    LockUnsure,
    /// The response was lost: the write may have been done.
    Lost,
    /// The server's certificate is not trusted: nothing was sent, and waiting does not help.
    Untrusted,
    /// 401, or no credentials.
    Unauthenticated,
    /// 403: the permission is missing.
    Denied,
    /// 403: the quota is exceeded.
    Quota,
    /// The response to a read has an unexpected shape: something other than the API answers.
    Unreadable,
    /// The response is larger than the limit.
    TooLarge,
    /// 400 or 422: the request is wrong.
    Invalid,
    /// Anything else.
    Other,
}

/// The remedy if a response is not the API's.
pub const SOMETHING_ELSE: &str = "something other than the API answered: a proxy, a sign-in page, or a load \
     balancer in front of it. Check the network, HTTPS_PROXY and NO_PROXY, then try again";

/// A request that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub class: ErrorClass,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// `GET /v1/projects/…`.
    pub request: String,
    /// The message of the server, or of the transport.
    pub message: String,
    /// The body of the response, if it was JSON.
    pub body: Option<Value>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{} answered {status}: {}", self.request, self.message),
            None => write!(f, "{}: {}", self.request, self.message),
        }
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    /// Returns the remedy, if the source of the error knows one.
    pub fn remedy(&self) -> Option<&str> {
        self.own("remedy")
    }

    /// Returns the error with its remedy as one text.
    pub fn with_remedy(&self) -> String {
        let remedy = self.remedy().map(|remedy| format!("; {remedy}"));
        format!("{self}{}", remedy.unwrap_or_default())
    }

    /// Returns the other name of this host in the stack.
    pub fn same_host(&self) -> Option<&str> {
        self.own("same_host")
    }

    /// Returns the proxy that refused the connection, or could not be reached.
    pub fn proxy(&self) -> Option<&str> {
        self.own("proxy")
    }

    /// Returns the message of the underlying library, for more detail.
    pub fn detail(&self) -> Option<&str> {
        self.own("detail")
    }

    /// Returns a field of the body of an error that this program created itself.
    fn own(&self, key: &str) -> Option<&str> {
        self.body.as_ref().filter(|_| self.status.is_none())?[key].as_str()
    }
}

/// Access to the live state: a request in, JSON out (a pod's log is a JSON string).
pub trait LiveApi: Send + Sync {
    /// Sends a request once. Callers retry.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>>;

    /// Sends a request once, as [`send`](Self::send) does, and returns the warnings of the API server, too.
    fn send_warned(&self, request: Request) -> BoxFuture<'_, Result<Reply, ApiError>> {
        async move { Ok(Reply { value: self.send(request).await?, warnings: Vec::new() }) }.boxed()
    }

    /// Adds hosts that are no longer in the stack file. Returns true if any of them is new: then the world read before is
    /// incomplete.
    fn add_hosts(&self, _hosts: &[Host]) -> bool {
        false
    }

    /// Returns true if responses can be received piece by piece.
    fn can_stream(&self) -> bool {
        false
    }

    /// Sends a read with an endless response to the cluster, and returns its bytes.
    fn stream(&self, request: Request) -> BoxFuture<'_, Result<ByteStream, ApiError>> {
        let error = request.failed(ErrorClass::Other, "answers come whole here");
        async move { Err(error) }.boxed()
    }
}
