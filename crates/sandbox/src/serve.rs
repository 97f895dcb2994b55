//! The sandbox on sockets: GKE over plain HTTP, every cluster over TLS, all on loopback.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::endpoint::{SERVED, write_private};
use super::error::SandboxError;
use super::faults::Side;
use super::gke::{ClusterId, Endpoints};
use super::options::Options;
use super::state::Sandbox;
use super::{backing, guard};

/// A sandbox whose sockets are bound, but which does not answer yet.
#[derive(Debug)]
pub struct Server {
    sandbox: Sandbox,
    gke: TcpListener,
    address: SocketAddr,
    dir: Option<PathBuf>,
    tls: Arc<rustls::ServerConfig>,
}

impl Server {
    /// Opens the sandbox and binds GKE to `127.0.0.1:port`; 0 takes a free port.
    pub async fn bind(options: Options, port: u16) -> Result<Self, SandboxError> {
        let dir = options.dir.clone();
        let sandbox = Sandbox::open_with(options, Endpoints::Served)?;
        if let Some(backing) = &sandbox.shared.backing {
            backing.check().await?;
        }
        let gke = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(|error| SandboxError::io(format!("listen on 127.0.0.1:{port}"), error))?;
        let address = gke.local_addr().map_err(|error| SandboxError::io("read the port", error))?;
        let tls = sandbox.shared.authority.server()?;
        let server = Self { sandbox, gke, address, dir, tls };
        if let Some(dir) = &server.dir {
            let path = dir.join(SERVED);
            write_private(&path, &format!("{}\n", server.announcement()))?;
        }
        Ok(server)
    }

    /// Returns the address on which GKE listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the JSON that `serve` prints when it is ready: `gke` (a URL), `dir` and `pid`.
    pub fn announcement(&self) -> Value {
        json!({
            "gke": format!("http://{}", self.address),
            "dir": self.dir.as_deref().map(Path::display).map(|dir| dir.to_string()),
            "pid": std::process::id(),
        })
    }

    /// Returns the sandbox behind the sockets.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Answers until `shutdown` completes; requests in progress are then cut off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), SandboxError> {
        let Self { sandbox, gke, dir, tls, .. } = self;
        let mut tasks = JoinSet::new();
        let router = guard::around(Side::Gke, sandbox.shared.token.clone(), sandbox.gke_router());
        tasks.spawn(async move {
            axum::serve(gke, router).await.map_err(|error| SandboxError::io("serve GKE", error))
        });
        tasks.spawn(listeners(sandbox.clone(), tls));
        if let Some(backing) = sandbox.shared.backing.clone() {
            tasks.spawn(backing::nodes::keep(sandbox.clone(), backing));
        }
        let mut shutdown = std::pin::pin!(shutdown);
        let ended = tokio::select! {
            ended = sandbox.clone().run(&mut shutdown) => ended,
            Some(ended) = tasks.join_next() => match ended {
                Ok(ended) => ended,
                Err(error) => Err(SandboxError::io("keep serving", error)),
            },
        };
        tasks.shutdown().await;
        if let Some(dir) = dir {
            // Gone already is as good.
            let _ = fs::remove_file(dir.join(SERVED));
        }
        ended
    }
}

/// Keeps one listener for each cluster that has a control plane.
async fn listeners(sandbox: Sandbox, tls: Arc<rustls::ServerConfig>) -> Result<(), SandboxError> {
    let mut changes = sandbox.shared.changes.subscribe();
    let mut open: BTreeMap<ClusterId, tokio::task::AbortHandle> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let wanted = sandbox.wanted_listeners();
        open.retain(|id, handle| {
            let keep = wanted.contains_key(id);
            if !keep {
                handle.abort();
            }
            keep
        });
        for (id, endpoint) in wanted {
            if open.contains_key(&id) {
                continue;
            }
            let listener = bind(endpoint.as_deref()).await?;
            let address =
                listener.local_addr().map_err(|error| SandboxError::io("read a cluster's port", error))?;
            sandbox.set_endpoint(&id, &address.to_string())?;
            let router =
                guard::around(Side::Kubernetes, sandbox.shared.token.clone(), sandbox.kubernetes_router(&id));
            let handle = tasks.spawn(accept(listener, TlsAcceptor::from(tls.clone()), router));
            open.insert(id, handle);
        }
        while tasks.try_join_next().is_some() {}
        if changes.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Binds the port that the cluster had before, because kubeconfigs name it, or another one if it is in use.
async fn bind(endpoint: Option<&str>) -> Result<TcpListener, SandboxError> {
    let before: Option<SocketAddr> = endpoint.and_then(|endpoint| endpoint.parse().ok());
    if let Some(before) = before.filter(|before| before.ip().is_loopback())
        && let Ok(listener) = TcpListener::bind(before).await
    {
        return Ok(listener);
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(|error| SandboxError::io("listen for a cluster on 127.0.0.1", error))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, router: axum::Router) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // A full table of files passes; a new connection may find room.
                Err(_) => continue,
            },
            Some(_) = connections.join_next() => continue,
        };
        connections.spawn(connection(stream, acceptor.clone(), router.clone()));
    }
}

/// Serves one connection. Errors are visible only to the client.
async fn connection(stream: TcpStream, acceptor: TlsAcceptor, router: axum::Router) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = TowerToHyperService::new(router);
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
}
