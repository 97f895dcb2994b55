//! The Kubernetes API, as raw requests over a `kube` client: of a GKE cluster with Google's credentials, of a kubeconfig's
//! context, or of a router of this process. Nothing is retried here.

use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use axum::Router;
use base64::Engine as _;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::{Builder, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Portforwarder;
use kube::client::{AuthError, Body, ClientBuilder, ConfigExt as _, UpgradeConnectionError};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use kube::{Client, Config};
use tokio::io::DuplexStream;
use tower::{BoxError, ServiceBuilder};

use crate::answer::{Answer, Reply};
use crate::credentials::Credentials;
use crate::environment::env_var;
use crate::proxy::{self, UsedProxy};
use crate::shape::Media;
use crate::transport::{TIMEOUT, bounded, causes, http_request, in_process, in_process_open};
use crate::trust::{Trust, is_untrusted};
use crate::{ApiError, ErrorClass, Request};
use model::resource::Api;

/// The maximum size of a kubeconfig in bytes. Large ones have the credentials of a hundred clusters.
const MAX_KUBECONFIG_BYTES: u64 = 16 * 1024 * 1024;

/// The maximum number of bytes that are read of an error response.
const MAX_ERROR_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeconfigAccess {
    /// The file; `None` for `KUBECONFIG`, then `~/.kube/config`.
    pub path: Option<PathBuf>,
    /// The context; `None` for the file's current one.
    pub context: Option<String>,
}

impl KubeconfigAccess {
    /// Sets the file's current context if none is set and the file can be read: a plan for one cluster must not be applied to
    /// another because somebody switched contexts in between.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        if self.context.is_none() {
            self.context = self.file().ok().and_then(|file| file.current_context);
        }
        self
    }

    /// Reads the file, if it is a regular one: devices and pipes have no end.
    fn file(&self) -> Result<Kubeconfig, KubeconfigError> {
        let Some(path) = &self.path else { return Kubeconfig::read() };
        let unread = |error: io::Error| KubeconfigError::ReadConfig(error, path.clone());
        let about = std::fs::metadata(path).map_err(unread)?;
        if !about.is_file() || about.len() > MAX_KUBECONFIG_BYTES {
            let why = "it is not a regular file, or too large for a kubeconfig";
            return Err(unread(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        Kubeconfig::read_from(path)
    }
}

/// Programs and files that a kubeconfig refers to, on the machine that reads it.
#[derive(Clone, Debug, Default)]
pub struct KubeconfigReferences {
    /// Programs to run: exec plugins, and the program of an `auth-provider`.
    pub programs: Vec<String>,
    /// Files whose content is sent to a server, or trusted.
    pub files: Vec<PathBuf>,
}

/// Reasons why the connection of a kubeconfig is not secure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsecureAccess {
    /// `insecure-skip-tls-verify`: anybody on the network path can read and answer requests.
    UnverifiedTls(String),
    /// Plain HTTP.
    PlainHttp(String),
}

impl fmt::Display for InsecureAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnverifiedTls(server) => {
                write!(
                    f,
                    "the kubeconfig turns off certificate checks for {server} (insecure-skip-tls-verify)"
                )
            }
            Self::PlainHttp(server) => write!(f, "the kubeconfig reaches {server} over plain HTTP"),
        }
    }
}

impl KubeconfigAccess {
    /// Returns the programs and files that it refers to; none if it cannot be read, which is reported elsewhere.
    pub fn references(&self) -> KubeconfigReferences {
        let Ok(file) = self.file() else { return KubeconfigReferences::default() };
        let mut references = KubeconfigReferences::default();
        for user in file.auth_infos.into_iter().filter_map(|user| user.auth_info) {
            let plugin = user.exec.map(|exec| exec.command.unwrap_or_else(|| "exec".to_owned()));
            let provider =
                || user.auth_provider.and_then(|provider| provider.config.get("cmd-path").cloned());
            references.programs.extend(plugin.or_else(provider));
            let files = [user.token_file, user.client_certificate, user.client_key];
            references.files.extend(files.into_iter().flatten().map(PathBuf::from));
        }
        let clusters = file.clusters.into_iter().filter_map(|cluster| cluster.cluster);
        references
            .files
            .extend(clusters.filter_map(|cluster| cluster.certificate_authority).map(PathBuf::from));
        references
    }

    /// Returns why the connection to the cluster is not secure; empty if the file cannot be read, which is reported elsewhere.
    pub fn insecure_access(&self) -> Vec<InsecureAccess> {
        let Ok(file) = self.file() else { return Vec::new() };
        let Some(cluster) = cluster_of(&file, self.context.as_ref()) else { return Vec::new() };
        let server = cluster.server.clone().unwrap_or_default();
        let url = server.parse().ok();
        let shown = url.as_ref().map_or_else(|| "its server".to_owned(), bare_url);
        let mut insecure_access = Vec::new();
        if cluster.insecure_skip_tls_verify == Some(true) {
            insecure_access.push(InsecureAccess::UnverifiedTls(shown.clone()));
        }
        if url.as_ref().is_some_and(|url| !is_private(url)) {
            insecure_access.push(InsecureAccess::PlainHttp(shown));
        }
        insecure_access
    }
}

/// Returns `https://host:port`, without user and password.
fn bare_url(url: &http::Uri) -> String {
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme_str().unwrap_or("?"), url.host().unwrap_or("?"))
}

/// Returns true if nobody else can read the requests: they use TLS or stay on this machine.
fn is_private(url: &http::Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    url.scheme() == Some(&http::uri::Scheme::HTTPS) || here
}

/// Returns true if a kubeconfig has credentials. As with kubectl, they are not sent over insecure connections.
fn has_credentials(who: &AuthInfo) -> bool {
    let AuthInfo { username, password, token, token_file, auth_provider, exec, .. } = who;
    let texts = [username.is_some(), password.is_some(), token.is_some(), token_file.is_some()];
    texts.contains(&true) || auth_provider.is_some() || exec.is_some()
}

/// Returns the cluster of a context.
fn cluster_of<'a>(file: &'a Kubeconfig, context: Option<&String>) -> Option<&'a kube::config::Cluster> {
    let context = context.or(file.current_context.as_ref());
    let context = file.contexts.iter().find(|named| Some(&named.name) == context);
    let cluster = context.and_then(|named| Some(&named.context.as_ref()?.cluster));
    file.clusters.iter().find(|named| Some(&named.name) == cluster)?.cluster.as_ref()
}

/// Returns the entries of a kubeconfig that a context names: `user "u", cluster "c"`.
fn entries_of(file: &Kubeconfig, context: Option<&String>) -> String {
    let context = context.or(file.current_context.as_ref());
    let named = file.contexts.iter().find(|named| Some(&named.name) == context);
    let Some(context) = named.and_then(|named| named.context.as_ref()) else { return String::new() };
    let user = context.user.as_ref().map(|user| format!("user {user:?}, ")).unwrap_or_default();
    format!(" ({user}cluster {:?})", context.cluster)
}

/// Returns the problem with a part of a kubeconfig that is given in base64 or as the path of a file.
fn data_problem(field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => format!("its `{field}-data` is not base64"),
        LoadDataError::ReadFile(error, path) => {
            format!("its `{field}` {} cannot be read: {error}", path.display())
        }
        LoadDataError::NoBase64DataOrFile => format!("it has no `{field}`"),
    }
}

/// Returns the problem with a kubeconfig without its content, which may have tokens and passwords.
fn kubeconfig_problem(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => {
                format!("line {}, column {} is not valid in a kubeconfig", at.line(), at.column())
            }
            None => "it is not a kubeconfig".to_owned(),
        },
        KubeconfigError::ParseClusterUrl(_) => "its `server` is not a URL".to_owned(),
        KubeconfigError::ParseProxyUrl(_) => "its `proxy-url` is not a URL".to_owned(),
        KubeconfigError::LoadClientKey(error) => data_problem("client-key", error),
        KubeconfigError::LoadClientCertificate(error) => data_problem("client-certificate", error),
        KubeconfigError::LoadCertificateAuthority(error) => data_problem("certificate-authority", error),
        KubeconfigError::ParseCertificates(_) => "its `certificate-authority` is not PEM".to_owned(),
        other => causes(other),
    }
}

/// Returns why there are no credentials, without the input and output of the plugin: they contain the token.
fn auth_problem(error: &AuthError) -> String {
    let plugin = "the credential plugin of the kubeconfig";
    match error {
        AuthError::AuthExecRun { out, .. } => {
            format!("{plugin} failed ({}); run it on its own to see why", out.status)
        }
        AuthError::AuthExecStart(error) => format!("{plugin} cannot be started: {error}"),
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed | AuthError::ParseTokenKey(_) => {
            format!("{plugin} printed no credentials")
        }
        AuthError::AuthExec(_) | AuthError::AuthExecSerialize(_) => format!("{plugin} cannot be run"),
        AuthError::InvalidBasicAuth(_) | AuthError::InvalidBearerToken(_) => {
            "the kubeconfig's credentials contain characters that cannot be sent".to_owned()
        }
        AuthError::ReadTokenFile(error, path) => {
            format!("its `tokenFile` {} cannot be read: {error}", path.display())
        }
        other => causes(other),
    }
}

/// Returns why a client could not be made from a kubeconfig.
fn client_problem(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => auth_problem(error),
        kube::Error::InferKubeconfig(error) => kubeconfig_problem(error),
        kube::Error::ProxyProtocolUnsupported { proxy_url }
        | kube::Error::ProxyProtocolDisabled { proxy_url, .. } => {
            format!(
                "its proxy {} cannot be used: proxies of this type are not supported",
                bare_url(proxy_url)
            )
        }
        other => causes(other),
    }
}

/// Sources of the bearer token of a request.
#[derive(Clone, Debug)]
pub enum Bearer {
    /// The credentials of the kubeconfig.
    Kubeconfig,
    /// Google's credentials, read for each request.
    Google(Arc<Credentials>),
    /// No credentials: a sandbox accepts anybody.
    Any,
    /// The token of a sandbox.
    Token(http::HeaderValue),
}

/// Settings that name a proxy.
const ENVIRONMENT_SETTING: &str = "HTTPS_PROXY";
const KUBECONFIG_SETTING: &str = "proxy-url of the kubeconfig";

/// The client of one cluster.
#[derive(Clone)]
pub struct Kubernetes {
    transport: Transport,
    bearer: Bearer,
    route: Route,
}

/// Properties of a connection that errors name.
#[derive(Clone, Debug, Default)]
struct Route {
    /// `host:port`.
    server: String,
    proxy: Option<UsedProxy>,
    trust: Trust,
}

impl Route {
    fn explain(&self, why: &str) -> String {
        self.proxy.as_ref().map_or_else(|| why.to_owned(), |proxy| proxy.explain(&self.server, why))
    }

    fn connection_error(&self, request: &Request, why: &str) -> ApiError {
        match &self.proxy {
            Some(proxy) => proxy.connection_error(request, &self.server, why),
            None => request.failed(ErrorClass::Unavailable, why),
        }
    }
}

#[derive(Clone)]
enum Transport {
    Network(Client),
    InProcess(Router),
}

impl Kubernetes {
    /// Creates a client for a router of this process.
    pub fn in_process(router: Router) -> Self {
        Self { transport: Transport::InProcess(router), bearer: Bearer::Any, route: Route::default() }
    }

    /// Creates a client for a GKE cluster: its address (`34.1.2.3`, or `127.0.0.1:4443` on a sandbox) and its certificate
    /// authority (base64 of PEM, as in `masterAuth.clusterCaCertificate`).
    ///
    /// # Errors
    ///
    /// The address or the certificate is not valid.
    pub fn gke(endpoint: &str, authority: Option<&str>, bearer: Bearer) -> Result<Self, String> {
        let url: http::Uri = format!("https://{endpoint}")
            .parse()
            .map_err(|_| format!("the cluster's endpoint {endpoint:?} is not an address"))?;
        let proxy = proxy::proxy_for(&env_var, &url);
        Self::through(url, authority, bearer, proxy)
    }

    fn through(
        url: http::Uri,
        authority: Option<&str>,
        bearer: Bearer,
        proxy: Option<http::Uri>,
    ) -> Result<Self, String> {
        let mut config = Config::new(url);
        config.root_cert = authority.map(certificates).transpose()?;
        config.proxy_url = proxy;
        let trust = if authority.is_some() { Trust::Cluster } else { Trust::Public };
        Self::network(config, bearer, ENVIRONMENT_SETTING, trust)
    }

    /// Creates a client for a context of a kubeconfig; exec plugins are run as kubectl runs them.
    ///
    /// # Errors
    ///
    /// The file cannot be used, or has no such context.
    pub async fn kubeconfig(access: &KubeconfigAccess) -> Result<Self, String> {
        let KubeconfigAccess { path, context } = access;
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let what =
            path.as_ref().map_or_else(|| "the kubeconfig".to_owned(), |path| path.display().to_string());
        let file =
            access.file().map_err(|error| format!("cannot use {what}: {}", kubeconfig_problem(&error)))?;
        let what = format!("{what}{}", entries_of(&file, context.as_ref()));
        let own = cluster_of(&file, context.as_ref()).and_then(|cluster| cluster.proxy_url.clone());
        let own = own.filter(|proxy| !proxy.is_empty());
        let config = Config::from_custom_kubeconfig(file, &options).await;
        let mut config =
            config.map_err(|error| format!("cannot use {what}: {}", kubeconfig_problem(&error)))?;
        // kube asks NO_PROXY for the proxy's name, not the server's.
        config.proxy_url = match &own {
            Some(own) => {
                Some(own.parse().map_err(|_| format!("cannot use {what}: its `proxy-url` is not a URL"))?)
            }
            None => proxy::proxy_for(&env_var, &config.cluster_url),
        };
        let named_by = if own.is_some() { KUBECONFIG_SETTING } else { ENVIRONMENT_SETTING };
        if !is_private(&config.cluster_url) && has_credentials(&config.auth_info) {
            let server = bare_url(&config.cluster_url);
            return Err(format!(
                "cannot use {what}: credentials are not sent unencrypted to {server}; use an https:// server, \
                 or one on this machine"
            ));
        }
        Self::network(config, Bearer::Kubeconfig, named_by, Trust::Kubeconfig)
            .map_err(|why| format!("cannot use {what}: {why}"))
    }

    fn network(
        mut config: Config,
        bearer: Bearer,
        named_by: &'static str,
        trust: Trust,
    ) -> Result<Self, String> {
        config.default_retry = false;
        let route = Route {
            server: config.cluster_url.authority().map(ToString::to_string).unwrap_or_default(),
            proxy: config.proxy_url.as_ref().map(|proxy| UsedProxy::new(proxy, named_by)),
            trust,
        };
        config.proxy_url = config.proxy_url.map(proxy::for_kube).transpose()?;
        let client = client(config).map_err(|error| client_problem(&error))?;
        Ok(Self { transport: Transport::Network(client), bearer, route })
    }

    /// Sends one request, once.
    ///
    /// # Errors
    ///
    /// No credentials, no connection, no response, or a response that is not 2xx.
    pub async fn send(&self, request: &Request) -> Result<Reply, ApiError> {
        let sent = async {
            match &self.transport {
                Transport::InProcess(router) => in_process(router, request).await,
                Transport::Network(client) => self.send_over(client, request).await,
            }
        };
        let timed_out = || request.unanswered(format!("no answer within {} s", TIMEOUT.as_secs()));
        let mut answer = tokio::time::timeout(TIMEOUT, sent).await.map_err(|_| timed_out())??;
        let warnings = std::mem::take(&mut answer.warnings);
        Ok(Reply { value: request.read(answer)?, warnings })
    }

    async fn send_over(&self, client: &Client, request: &Request) -> Result<Answer, ApiError> {
        let response = self.open(client, request).await?;
        let (parts, body) = response.into_parts();
        let body = bounded(request, body).await?;
        Ok(Answer::of(&parts, body))
    }

    async fn open(&self, client: &Client, request: &Request) -> Result<http::Response<Body>, ApiError> {
        let mut http = http_request(request)?;
        let bearer = self.authorization(request).await?;
        if let Some(value) = &bearer {
            http.headers_mut().insert(http::header::AUTHORIZATION, value.clone());
        }
        let sent = client.send(http.map(Body::from)).await;
        let response = sent.map_err(|error| transport_error(request, &error, &self.route))?;
        if let (Bearer::Google(credentials), Some(value)) = (&self.bearer, &bearer)
            && response.status() == http::StatusCode::UNAUTHORIZED
        {
            credentials.discard(value).await;
        }
        Ok(response)
    }

    /// Returns the `Authorization` header, unless the client adds it itself.
    async fn authorization(&self, request: &Request) -> Result<Option<http::HeaderValue>, ApiError> {
        let token = match &self.bearer {
            Bearer::Kubeconfig => return Ok(None),
            Bearer::Token(value) => return Ok(Some(value.clone())),
            Bearer::Any => "sandbox".to_owned(),
            Bearer::Google(credentials) => return credentials.bearer(request).await.map(Some),
        };
        let mut value = http::HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| request.failed(ErrorClass::Unauthenticated, "the token is not text"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Sends a read with an endless response, such as a followed log, and returns its bytes as they arrive.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), up to the first byte. Later errors are in the stream.
    pub async fn stream(&self, request: &Request) -> Result<ByteStream, ApiError> {
        let timed_out = || request.unanswered(format!("no answer within {} s", TIMEOUT.as_secs()));
        let opened = async {
            match &self.transport {
                Transport::InProcess(router) => {
                    let response = in_process_open(router, request).await?;
                    Ok(response.map(|body| body.into_data_stream().map(as_text).boxed()))
                }
                Transport::Network(client) => {
                    let response = self.open(client, request).await?;
                    Ok(response.map(|body| body.into_data_stream().map(as_text).boxed()))
                }
            }
        };
        let (parts, mut bytes) =
            tokio::time::timeout(TIMEOUT, opened).await.map_err(|_| timed_out())??.into_parts();
        if parts.status.is_success() {
            return Ok(bytes);
        }
        let mut body = Vec::new();
        while let Some(Ok(more)) = bytes.next().await {
            body.extend_from_slice(&more);
            if body.len() > MAX_ERROR_BYTES {
                break;
            }
        }
        let answer = Answer::of(&parts, body);
        // It is no success, so it cannot be read as one.
        Err(request.read(answer).err().unwrap_or_else(timed_out))
    }

    /// Connects to a port of a pod, through the API server. Each stream has its own connection, so that streams do not affect
    /// each other.
    ///
    /// # Errors
    ///
    /// No such pod, no permission to forward its ports, no connection. If nobody listens on the port, the tunnel reports it.
    pub async fn tunnel(&self, namespace: &str, pod: &str, port: u16) -> Result<Tunnel, ApiError> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}");
        let request = Request::get(Api::Kubernetes, path);
        let Transport::Network(client) = &self.transport else {
            return Err(request.failed(ErrorClass::Invalid, "no program runs in the pods of this sandbox"));
        };
        let client = match self.authorization(&request).await? {
            None => client.clone(),
            Some(value) => with_authorization(client.clone(), value),
        };
        let pods: kube::Api<Pod> = kube::Api::namespaced(client, namespace);
        let timed_out = || request.unanswered(format!("no answer within {} s", TIMEOUT.as_secs()));
        let opened = tokio::time::timeout(TIMEOUT, pods.portforward(pod, &[port])).await;
        let opened = opened.map_err(|_| timed_out())?;
        let mut forwarder = opened.map_err(|error| upgrade_error(&request, &error, &self.route))?;
        let (stream, error) = (forwarder.take_stream(port), forwarder.take_error(port));
        match stream.zip(error) {
            Some((stream, error)) => Ok(Tunnel { stream, error: error.boxed(), forwarder }),
            None => Err(request.failed(ErrorClass::Other, "the connection has no stream")),
        }
    }
}

/// Returns a client for a configuration. Without a proxy, its sockets do not use Nagle's algorithm.
///
/// On a new connection a client writes twice in a row: the end of the TLS
/// handshake and its first request. Nagle's algorithm holds the second one back until the first is acknowledged, and
/// Linux delays that by 40 ms (seen with kube-apiserver 1.36). Go's clients, kubectl among them, turn it off; kube
/// leaves it on.
fn client(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut sockets = HttpConnector::new();
    sockets.enforce_http(false);
    sockets.set_nodelay(true);
    let connector = config.rustls_https_connector_with_connector(sockets)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Builder::new(TokioExecutor::new()).build(connector));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// The body of a response, piece by piece.
pub type ByteStream = BoxStream<'static, Result<Bytes, String>>;

fn as_text<E: std::error::Error + 'static>(piece: Result<Bytes, E>) -> Result<Bytes, String> {
    piece.map_err(|error| causes(&error))
}

/// A connection to a port of a pod. Dropping it ends it.
pub struct Tunnel {
    /// The bytes in both directions.
    pub stream: DuplexStream,
    /// Why the pod's side cannot be used, if it reports that: for example, nothing listens on the port.
    pub error: BoxFuture<'static, Option<String>>,
    forwarder: Portforwarder,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

/// Returns the client with an `Authorization` header on each request.
fn with_authorization(client: Client, value: http::HeaderValue) -> Client {
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let client = client.clone();
        request.headers_mut().insert(http::header::AUTHORIZATION, value.clone());
        async move { client.send(request).await }
    });
    Client::new(service, "default")
}

/// Returns the error of a connection that was not upgraded, with the server's message if there is one.
fn upgrade_error(request: &Request, error: &kube::Error, route: &Route) -> ApiError {
    let refused = |status: u16, body: Vec<u8>| {
        let read = request.read(Answer { status, media: Media::Other, warnings: Vec::new(), body });
        read.err().unwrap_or_else(|| request.failed(ErrorClass::Other, causes(error)))
    };
    match error {
        kube::Error::Api(status) => refused(status.code, serde_json::to_vec(status).unwrap_or_default()),
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => {
            refused(status.as_u16(), Vec::new())
        }
        _ => transport_error(request, error, route),
    }
}

fn transport_error(request: &Request, error: &kube::Error, route: &Route) -> ApiError {
    match error {
        kube::Error::Auth(error) => request.failed(ErrorClass::Unauthenticated, auth_problem(error)),
        kube::Error::Service(cause) if cause.is::<AuthError>() => {
            let problem = cause.downcast_ref().map(auth_problem).unwrap_or_default();
            request.failed(ErrorClass::Unauthenticated, problem)
        }
        _ if is_untrusted(error) => {
            request.untrusted(&route.server, &route.explain(&causes(error)), route.trust)
        }
        _ if is_connect(error) => route.connection_error(request, &causes(error)),
        _ => request.unanswered(causes(error)),
    }
}

/// Returns true if the connection was never made, anywhere in the chain of causes.
fn is_connect(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(client) = cause.downcast_ref::<hyper_util::client::legacy::Error>() {
            return client.is_connect();
        }
        next = cause.source();
    }
    false
}

/// Returns the DER of each certificate in a base64 PEM bundle.
fn certificates(base64_pem: &str) -> Result<Vec<Vec<u8>>, String> {
    let base64 = base64::engine::general_purpose::STANDARD;
    let unreadable = || "the cluster's certificate authority cannot be read".to_owned();
    let pem = base64.decode(base64_pem.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pem = pem.ok_or_else(unreadable)?;
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    let der = blocks.map(|block| {
        let text: String = block.split("-----END").next()?.split_whitespace().collect();
        base64.decode(text).ok()
    });
    let found: Vec<Vec<u8>> = der.collect::<Option<_>>().ok_or_else(unreadable)?;
    if found.is_empty() { Err(unreadable()) } else { Ok(found) }
}

#[cfg(test)]
#[path = "kube_tests.rs"]
mod tests;
