//! Whole commands behind something that answers in the API server's place, or not at all.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, header};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sandbox::Sandbox;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower::ServiceExt as _;

use crate::sandbox_server::{SandboxServer, User};

/// The failure of the proxy in front of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// Nothing.
    Open,
    /// A sign-in page, with the status of a success.
    Page,
    /// Something that ends connections.
    Cut,
}

/// GKE and its cluster behind sockets of ours.
struct FaultyProxy {
    gke: String,
    way: Arc<Mutex<Failure>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl FaultyProxy {
    fn of(sandbox: &Sandbox) -> Self {
        let way = Arc::new(Mutex::new(Failure::Open));
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, bound) = std::sync::mpsc::channel();
        let (sandbox, passing) = (sandbox.clone(), Arc::clone(&way));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let gke = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
                ready.send(gke.local_addr().unwrap()).unwrap();
                let (authority, tls) = certificates();
                let router = redirect_clusters(sandbox.gke_router(), inside.local_addr().unwrap(), authority);
                let serving = tokio::spawn(async move { axum::serve(gke, router).await });
                let accepting = tokio::spawn(accept(inside, tls, sandbox, passing));
                let _ = stopped.await;
                serving.abort();
                accepting.abort();
            });
        });
        let address: SocketAddr = bound.recv().unwrap();
        Self { gke: format!("http://{address}"), way, stop: Some(stop), thread: Some(thread) }
    }

    fn is(&self, way: Failure) {
        *self.way.lock().unwrap() = way;
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// GKE whose clusters are reached here.
fn redirect_clusters(gke: Router, inside: SocketAddr, authority: String) -> Router {
    Router::new().fallback(move |request: Request<Body>| {
        let (gke, authority) = (gke.clone(), authority.clone());
        async move {
            let answer = gke.oneshot(request).await.unwrap_or_else(|never| match never {});
            let (mut parts, body) = answer.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
                return Response::from_parts(parts, Body::from(bytes));
            };
            set_endpoints(&mut value, inside, &authority);
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(value.to_string()))
        }
    })
}

fn set_endpoints(value: &mut Value, inside: SocketAddr, authority: &str) {
    match value {
        Value::Object(fields) => {
            if fields.get("endpoint").is_some_and(|endpoint| endpoint != "")
                && fields.contains_key("masterAuth")
            {
                fields.insert("endpoint".into(), inside.to_string().into());
                fields.insert("masterAuth".into(), json!({ "clusterCaCertificate": authority }));
            }
            fields.values_mut().for_each(|value| set_endpoints(value, inside, authority));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| set_endpoints(item, inside, authority)),
        _ => {}
    }
}

/// An authority, as GKE tells it, and a server that has its certificate.
fn certificates() -> (String, tokio_rustls::TlsAcceptor) {
    let named = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "between");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params
    };
    let key = KeyPair::generate().unwrap();
    let authority = named().self_signed(&key).unwrap().pem();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()));
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let own = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&own, &Issuer::new(named(), key)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.serialize_der())),
        )
        .unwrap();
    (STANDARD.encode(authority), tokio_rustls::TlsAcceptor::from(Arc::new(config)))
}

async fn accept(
    listener: TcpListener,
    tls: tokio_rustls::TlsAcceptor,
    sandbox: Sandbox,
    way: Arc<Mutex<Failure>>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if *way.lock().unwrap() == Failure::Cut {
            continue;
        }
        let (tls, sandbox, way) = (tls.clone(), sandbox.clone(), Arc::clone(&way));
        let answer = Router::new().fallback(move |request: Request<Body>| {
            let (cluster, now) = (sandbox.clusters().pop(), *way.lock().unwrap());
            let router = cluster.map(|cluster| sandbox.kubernetes_router(&cluster));
            async move {
                match router.filter(|_| now == Failure::Open) {
                    Some(router) => router.oneshot(request).await.unwrap_or_else(|never| match never {}),
                    None => ([(header::CONTENT_TYPE, "text/html")], "<html>Sign in</html>").into_response(),
                }
            }
        });
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = hyper_util::service::TowerToHyperService::new(answer);
            let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
            let _ = builder.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await;
        });
    }
}

const STACK: &str = "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n\
    [cluster]\nname = \"c\"\n\n[node_pool.p]\nmachine_type = \"e2-standard-4\"\n\n[manifest.m]\nfile = \"m.yaml\"\n";
const OURS: &str = "/api/v1/namespaces/default/configmaps/a";
const THEIRS: &str = "/apis/apps/v1/namespaces/default/deployments/theirs";

/// Applied through the front, with a Deployment of others in the cluster.
fn applied_stack() -> (SandboxServer, FaultyProxy, User) {
    let served = SandboxServer::fast();
    let front = FaultyProxy::of(&served.sandbox);
    let user = User::empty_at(&front.gke);
    let config =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a, namespace: default }\ndata: { k: v }\n";
    for (name, text) in [("stack.toml", STACK), ("m.yaml", config)] {
        std::fs::write(user.path().join(name), text).unwrap();
    }
    user.run(&["apply", "--auto-approve"]).expect(0);
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "x", "image": "x" }] } });
    let theirs = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "theirs" },
        "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } });
    let list = THEIRS.rsplit_once('/').unwrap().0;
    let (code, said) = served.post(list, &theirs);
    assert_eq!(code, 201, "{said}");
    (served, front, user)
}

#[test]
fn behind_a_page_that_says_200_nothing_is_done_and_nothing_is_said_to_be_done() {
    let (served, front, user) = applied_stack();
    let uid = |path: &str| served.get(path)["metadata"]["uid"].clone();
    let before = (uid(OURS), uid(THEIRS));
    assert!(before.0.is_string() && before.1.is_string());
    user.edit("e2-standard-4\"\n", "e2-standard-4\"\nlabels = { a = \"b\" }\n");
    front.is(Failure::Page);
    for words in [
        &["destroy", "--auto-approve"][..],
        &["destroy", "--auto-approve", "--allow", "delete:others.default"],
        &["destroy", "--auto-approve", "--allow", "delete:others.unseen"],
        &["plan", "--destroy"],
        &["plan"],
        &["apply", "--auto-approve"],
        &["plan", "--refresh-only"],
    ] {
        let said = user.run(words);
        let all = format!("{}{}", said.out, said.err);
        assert_eq!(said.code, 1, "{words:?}: {all}");
        for lie in ["complete!", "No changes", "Nothing to destroy", "0 to destroy", "No drift"] {
            assert!(!all.contains(lie), "{words:?}: {all}");
        }
        let words: Vec<&str> = all.split_whitespace().collect();
        assert!(words.join(" ").contains("something other than the API answered"), "{all}");
    }
    let status = user.run(&["status"]);
    assert!(!status.out.contains("absent"), "{}{}", status.out, status.err);
    assert_eq!(served.sandbox.clusters().len(), 1);
    assert_eq!((uid(OURS), uid(THEIRS)), before);
    // With the way open it is as ever: what others have needs approval of its own.
    front.is(Failure::Open);
    user.run(&["destroy", "--auto-approve"]).expect(3).says("delete:others.default");
    user.run(&["destroy", "--auto-approve", "--allow", "delete:others.default"]).expect(0);
    assert!(served.sandbox.clusters().is_empty());
}

#[test]
fn a_cluster_that_nobody_can_reach_goes_with_an_approval_that_says_so() {
    let (served, front, user) = applied_stack();
    front.is(Failure::Cut);
    for words in [
        &["destroy", "--auto-approve"][..],
        &["plan", "--destroy"],
        &["destroy", "--auto-approve", "--allow", "delete:others.default"],
        &["apply", "--auto-approve"],
    ] {
        let said = user.run(words).expect(1);
        let help = said.err.contains("delete:unseen");
        assert_eq!(
            help,
            words.contains(&"destroy") || words.contains(&"--destroy"),
            "{words:?}: {}",
            said.err
        );
    }
    assert_eq!(served.sandbox.clusters().len(), 1);
    user.run(&["destroy", "--auto-approve", "--allow", "delete:unseen"]).expect(0).says("Destroy complete!");
    assert!(served.sandbox.clusters().is_empty());
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
}
