//! One connection to all APIs of a stack: GKE, Compute Engine, and the Kubernetes API of its cluster. The address of the cluster
//! is looked up on first use, and again after the cluster was recreated.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::answer::Reply;
use crate::credentials::Credentials;
use crate::endpoint::{ControlPlaneAddress, address, endpoint};
use crate::gke::{Gke, GkeAccess};
use crate::hosts::Fleet;
use crate::kube::{Bearer, ByteStream, KubeconfigAccess, Kubernetes, Tunnel};
use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::resource::{Api, ClusterName, Endpoint, Host, Method};

/// The Kubernetes API of a simulated cluster in this process, by the endpoint of its GKE cluster.
pub type InProcess = Arc<dyn Fn(&str) -> Option<Router> + Send + Sync>;

/// The APIs and hosts to connect to.
pub struct Options {
    /// The access to GKE.
    pub gke: GkeAccess,
    /// The stack's GKE cluster; `None` for a stack of `[kubernetes]`.
    pub cluster: Option<ClusterName>,
    /// The endpoint of the control plane to use.
    pub endpoint: Endpoint,
    /// The kubeconfig context, for a stack with `[kubernetes]`.
    pub kubernetes: Option<KubeconfigAccess>,
    /// The hosts of a stack without Kubernetes.
    pub hosts: Vec<Host>,
    /// Hosts that do not exist any more.
    pub gone_hosts: Vec<String>,
    /// Kubernetes APIs in this process, which take precedence over the network.
    pub in_process_kubernetes: Option<InProcess>,
}

impl Options {
    /// Returns options for Google's APIs alone, without a cluster.
    pub fn only_gke(gke: GkeAccess) -> Self {
        Self {
            gke,
            cluster: None,
            endpoint: Endpoint::Auto,
            kubernetes: None,
            hosts: Vec::new(),
            gone_hosts: Vec::new(),
            in_process_kubernetes: None,
        }
    }
}

/// A connection. Nothing is opened before the first request.
pub struct Connection {
    gke: Gke,
    credentials: Arc<Credentials>,
    cluster: Option<ClusterName>,
    endpoint: Endpoint,
    kubeconfig: Option<KubeconfigAccess>,
    in_process: Option<InProcess>,
    kubernetes: Mutex<Option<Kubernetes>>,
    fleet: Option<Fleet>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gke, cluster, endpoint, kubeconfig, .. } = self;
        f.debug_struct("Connection")
            .field("gke", gke.access())
            .field("cluster", cluster)
            .field("endpoint", endpoint)
            .field("kubeconfig", kubeconfig)
            .finish_non_exhaustive()
    }
}

impl Connection {
    pub fn new(options: Options) -> Self {
        let Options { gke, cluster, endpoint, kubernetes, hosts, gone_hosts, in_process_kubernetes } =
            options;
        let credentials = Arc::<Credentials>::default();
        Self {
            gke: Gke::new(gke, Arc::clone(&credentials)),
            credentials,
            cluster,
            endpoint,
            kubeconfig: kubernetes,
            in_process: in_process_kubernetes,
            kubernetes: Mutex::new(None),
            fleet: Fleet::of(&hosts, gone_hosts),
        }
    }

    async fn kubernetes(&self, request: &Request) -> Result<Kubernetes, ApiError> {
        // Held while connecting, so that many first requests look the cluster up once.
        let mut slot = self.kubernetes.lock().await;
        if let Some(client) = &*slot {
            return Ok(client.clone());
        }
        let client = match (&self.cluster, &self.kubeconfig) {
            (Some(cluster), _) => self.gke_client(cluster, request).await?,
            (None, Some(access)) => Kubernetes::kubeconfig(access)
                .await
                .map_err(|why| request.failed(ErrorClass::Unauthenticated, why))?,
            (None, None) => return Err(request.failed(ErrorClass::Invalid, "the stack names no cluster")),
        };
        *slot = Some(client.clone());
        Ok(client)
    }

    async fn gke_client(&self, name: &ClusterName, request: &Request) -> Result<Kubernetes, ApiError> {
        let asked = self.gke.send(&Request::get(Api::Gke, format!("/v1/{}", name.path()))).await;
        let cluster = asked.map_err(|error| match error.class {
            ErrorClass::NotFound => request
                .failed(ErrorClass::NotFound, format!("the GKE cluster {} does not exist", name.cluster)),
            _ => error,
        })?;
        let found = address(&cluster, self.endpoint).map_err(|closed| {
            let mut error = request.failed(ErrorClass::Other, closed.why);
            error.body = Some(json!({ "remedy": closed.remedy }));
            error
        })?;
        let ControlPlaneAddress { host, authority } = found.ok_or_else(|| {
            let status = cluster["status"].as_str().unwrap_or("unknown");
            let message = format!("the GKE cluster {} has no endpoint yet (status {status})", name.cluster);
            request.failed(ErrorClass::Unavailable, message)
        })?;
        let router = self.in_process.as_ref().zip(endpoint(&cluster)).and_then(|(find, usual)| find(usual));
        if let Some(router) = router {
            return Ok(Kubernetes::in_process(router));
        }
        let bearer = match self.gke.access() {
            GkeAccess::Google => Bearer::Google(Arc::clone(&self.credentials)),
            GkeAccess::Loopback { token: Some(token), .. } => Bearer::Token(token.clone()),
            GkeAccess::Loopback { .. } | GkeAccess::InProcess(_) => Bearer::Any,
        };
        Kubernetes::gke(host, authority, bearer).map_err(|why| request.failed(ErrorClass::Other, why))
    }

    /// Sends to the cluster. If a request does not reach it, the next request looks up its address again.
    async fn send_kubernetes(&self, request: &Request) -> Result<Reply, ApiError> {
        let client = self.kubernetes(request).await?;
        let result = self.reset_if_unreached(client.send(request).await).await;
        match result {
            // A cluster that was made anew has another authority; nothing was sent.
            Err(error) if error.class == ErrorClass::Untrusted && self.cluster.is_some() => {
                let client = self.kubernetes(request).await?;
                self.reset_if_unreached(client.send(request).await).await
            }
            result => result,
        }
    }

    async fn reset_if_unreached<T: Send>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        let unreached = |error: &ApiError| {
            let astray =
                matches!(error.class, ErrorClass::Unavailable | ErrorClass::Lost) && error.status.is_none();
            astray || matches!(error.class, ErrorClass::Unauthenticated | ErrorClass::Untrusted)
        };
        if self.cluster.is_some() && result.as_ref().err().is_some_and(unreached) {
            *self.kubernetes.lock().await = None;
        }
        result
    }

    /// Connects to a port of a pod of the cluster.
    ///
    /// # Errors
    /// As [`Kubernetes::tunnel`].
    pub async fn tunnel(&self, namespace: &str, pod: &str, port: u16) -> Result<Tunnel, ApiError> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/portforward");
        let client = self.kubernetes(&Request::get(Api::Kubernetes, path)).await?;
        let result = client.tunnel(namespace, pod, port).await;
        self.reset_if_unreached(result).await
    }

    async fn stream_kubernetes(&self, request: &Request) -> Result<ByteStream, ApiError> {
        let client = self.kubernetes(request).await?;
        let result = client.stream(request).await;
        self.reset_if_unreached(result).await
    }

    /// Returns true if the clusters are simulated in this process: their pods run no programs.
    pub fn is_simulated(&self) -> bool {
        self.in_process.is_some()
    }

    /// Skips unreachable hosts from now on, for commands that only read.
    pub fn skip_unreachable_hosts(&self) {
        self.fleet.iter().for_each(Fleet::skip_unreachable);
    }

    /// Returns the errors of skipped hosts.
    pub fn skipped_hosts(&self) -> Vec<ApiError> {
        self.fleet.iter().flat_map(Fleet::skip_errors).collect()
    }

    async fn send_one(&self, request: Request) -> Result<Value, ApiError> {
        if let (Api::Kubernetes, Some(fleet)) = (request.api, &self.fleet) {
            return fleet.send(&request).await;
        }
        if request.api == Api::Kubernetes {
            return self.send_kubernetes(&request).await.map(|reply| reply.value);
        }
        let result = self.gke.send(&request).await;
        let deletes_cluster = request.method == Method::Delete
            && self.cluster.as_ref().is_some_and(|cluster| request.path.ends_with(&cluster.path()));
        if deletes_cluster {
            *self.kubernetes.lock().await = None;
        }
        result
    }
}

impl LiveApi for Connection {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        self.send_one(request).boxed()
    }

    fn send_warned(&self, request: Request) -> BoxFuture<'_, Result<Reply, ApiError>> {
        let to_cluster = request.api == Api::Kubernetes && self.fleet.is_none();
        async move {
            match to_cluster {
                true => self.send_kubernetes(&request).await,
                false => Ok(Reply { value: self.send_one(request).await?, warnings: Vec::new() }),
            }
        }
        .boxed()
    }

    fn add_hosts(&self, hosts: &[Host]) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| fleet.add_hosts(hosts))
    }

    /// Objects on a host are polled: the agent watches nothing.
    fn can_stream(&self) -> bool {
        self.fleet.is_none()
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<ByteStream, ApiError>> {
        async move {
            match &self.fleet {
                Some(fleet) => fleet.follow(request).await,
                None => self.stream_kubernetes(&request).await,
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::routing::{any, get};

    use super::*;

    fn name() -> ClusterName {
        ClusterName { project: "p".into(), location: "l".into(), cluster: "c".into() }
    }

    /// GKE with one cluster whose JSON can be changed, and how often it was asked.
    fn gke(cluster: Arc<StdMutex<Option<Value>>>) -> (Router, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let answer = move || {
            count.fetch_add(1, Ordering::SeqCst);
            let body = cluster.lock().unwrap().clone();
            async move {
                let (status, body) = match body {
                    Some(body) => (http::StatusCode::OK, body),
                    None => {
                        (http::StatusCode::NOT_FOUND, json!({"error": {"code": 404, "message": "Not found"}}))
                    }
                };
                (status, [(http::header::CONTENT_TYPE, "application/json")], body.to_string())
            }
        };
        (Router::new().route("/v1/projects/p/locations/l/clusters/c", get(answer)), asked)
    }

    const NO_PODS: &str =
        r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}"#;

    fn connection(gke: Router) -> Connection {
        let find: InProcess = Arc::new(|endpoint: &str| {
            let name = endpoint.to_owned();
            // One endpoint stands for a cluster that has just been deleted.
            let answer = move || {
                let name = name.clone();
                async move { (http::StatusCode::UNAUTHORIZED, json!({"message": name}).to_string()) }
            };
            match endpoint {
                "old" => Some(Router::new().fallback(any(answer))),
                _ => Some(Router::new().fallback(any(|| async { NO_PODS }))),
            }
        });
        Connection::new(Options {
            gke: GkeAccess::InProcess(gke),
            cluster: Some(name()),
            endpoint: Endpoint::Auto,
            kubernetes: None,
            hosts: Vec::new(),
            gone_hosts: Vec::new(),
            in_process_kubernetes: Some(find),
        })
    }

    fn pods() -> Request {
        Request::get(Api::Kubernetes, "/api/v1/pods")
    }

    #[tokio::test]
    async fn the_cluster_is_looked_up_once_and_again_when_it_was_made_anew() {
        let cluster =
            Arc::new(StdMutex::new(Some(json!({"name": "c", "status": "RUNNING", "endpoint": "old"}))));
        let (router, asked) = gke(Arc::clone(&cluster));
        let connection = connection(router);
        let error = connection.send(pods()).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Unauthenticated, "{error}");
        *cluster.lock().unwrap() = Some(json!({"name": "c", "status": "RUNNING", "endpoint": "new"}));
        for _ in 0..3 {
            assert!(connection.send(pods()).await.is_ok());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_cluster_without_endpoint_and_one_that_is_not_there_are_told_apart() {
        let cluster = Arc::new(StdMutex::new(Some(json!({"name": "c", "status": "PROVISIONING"}))));
        let (router, _) = gke(Arc::clone(&cluster));
        let connection = connection(router);
        assert_eq!(connection.send(pods()).await.unwrap_err().class, ErrorClass::Unavailable);
        *cluster.lock().unwrap() = None;
        let error = connection.send(pods()).await.unwrap_err();
        assert_eq!((error.class, error.is_unknown_path()), (ErrorClass::NotFound, false));
    }
}
