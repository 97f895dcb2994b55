//! Clients over TLS, kubeconfigs and proxies on loopback.

use std::net::SocketAddr;

use axum::routing::any;
use serde_json::{Value, json};

use super::*;
use model::resource::Method;

/// Answers with the applied namespace, and the received request beside it.
fn echo() -> Router {
    Router::new().fallback(any(|request: axum::extract::Request| async move {
        let header = |name: &str| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let seen = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "uid": "u"},
            "method": request.method().as_str(),
            "uri": request.uri().path_and_query().map(ToString::to_string),
            "type": header("content-type"),
            "bearer": header("authorization"),
        });
        ([(http::header::CONTENT_TYPE, "application/json")], seen.to_string())
    }))
}

/// Starts a TLS server on loopback. Returns its address and its certificate in GKE's form.
async fn tls_server() -> (SocketAddr, String, tokio::task::JoinHandle<()>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let service = hyper_util::service::TowerToHyperService::new(echo());
            let io = hyper_util::rt::TokioIo::new(stream);
            let connection = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = connection.serve_connection(io, service).await;
        }
    });
    let authority = base64::engine::general_purpose::STANDARD.encode(made.cert.pem());
    (address, authority, server)
}

fn patch() -> Request {
    Request {
        api: Api::Kubernetes,
        method: Method::Patch,
        path: "/api/v1/namespaces/n?fieldManager=dask-infra/s&force=true".into(),
        body: Some(json!({"kind": "Namespace"})),
    }
}

#[tokio::test]
async fn a_gke_cluster_is_reached_over_tls_with_its_own_authority() {
    let (address, authority, server) = tls_server().await;
    let client = Kubernetes::gke(&address.to_string(), Some(&authority), Bearer::Any).unwrap();
    let seen = client.send(&patch()).await.unwrap().value;
    let expected = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "uid": "u"}, "method": "PATCH", "uri": "/api/v1/namespaces/n?fieldManager=dask-infra/s&force=true",
        "type": "application/apply-patch+yaml", "bearer": "Bearer sandbox"});
    assert_eq!(seen, expected);
    server.abort();
    let _ = server.await;
    let fresh = Kubernetes::gke(&address.to_string(), Some(&authority), Bearer::Any).unwrap();
    assert_eq!(fresh.send(&patch()).await.unwrap_err().class, ErrorClass::Unavailable);
}

#[tokio::test]
async fn another_authority_is_not_trusted() {
    let (address, _, server) = tls_server().await;
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let authority = base64::engine::general_purpose::STANDARD.encode(other.cert.pem());
    let client = Kubernetes::gke(&address.to_string(), Some(&authority), Bearer::Any).unwrap();
    let error = client.send(&patch()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Untrusted, "{error}");
    assert!(error.with_remedy().contains("the cluster's own authority"), "{}", error.with_remedy());
    server.abort();
}

#[tokio::test]
async fn a_kubeconfig_gives_address_authority_and_token() {
    let (address, authority, server) = tls_server().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "none",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{address}"), "certificate-authority-data": authority}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(file.path(), text.to_string()).unwrap();
    let mut access = KubeconfigAccess { path: Some(file.path().to_owned()), context: Some("here".into()) };
    let client = Kubernetes::kubeconfig(&access).await.unwrap();
    assert_eq!(client.send(&patch()).await.unwrap().value["bearer"], "Bearer secret");
    access.context = Some("there".into());
    let why = Kubernetes::kubeconfig(&access).await.err().unwrap();
    assert!(why.contains("there"), "{why}");
    server.abort();
}

/// Returns the client, or the first refusal, for a kubeconfig with this cluster and user.
async fn tried(cluster: Value, user: Value) -> (Result<Value, String>, Vec<InsecureAccess>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(file.path(), text.to_string()).unwrap();
    let access = KubeconfigAccess { path: Some(file.path().to_owned()), context: None };
    let insecure = access.insecure_access();
    let sent = match Kubernetes::kubeconfig(&access).await {
        Ok(client) => client.send(&patch()).await.map(|reply| reply.value).map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    (sent, insecure)
}

#[tokio::test]
async fn credentials_go_to_nobody_who_can_be_listened_to() {
    let plain = json!({"server": "http://10.255.255.1:1"});
    for user in [
        json!({"token": "CANARY"}),
        json!({"tokenFile": "/dev/null"}),
        json!({"username": "u", "password": "CANARY"}),
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}}),
    ] {
        let (sent, insecure) = tried(plain.clone(), user).await;
        let why = sent.unwrap_err();
        assert!(
            why.contains("not sent unencrypted to http://10.255.255.1:1") && !why.contains("CANARY"),
            "{why}"
        );
        assert_eq!(insecure, [InsecureAccess::PlainHttp("http://10.255.255.1:1".into())]);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, echo()).await });
    let (sent, insecure) = tried(json!({"server": url}), json!({"token": "here"})).await;
    assert_eq!((sent.unwrap()["bearer"].as_str(), insecure), (Some("Bearer here"), Vec::new()));
    server.abort();
}

#[tokio::test]
async fn a_server_whose_certificate_nobody_checks_is_told() {
    let cluster = json!({"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true});
    let (_, insecure) = tried(cluster, json!({})).await;
    assert_eq!(insecure, [InsecureAccess::UnverifiedTls("https://127.0.0.1:1".into())]);
}

/// Checks that no message shows the input or output of a plugin, text of a broken file, or a password in an address.
#[tokio::test]
async fn no_secret_of_a_kubeconfig_is_in_a_message() {
    let server = json!({"server": "https://127.0.0.1:1"});
    let exec = |command: &str, args: &[&str]| {
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": command,
            "args": args, "env": [{"name": "PASSWORD", "value": "CANARY1"}]}})
    };
    let failing = "echo CANARY2; echo CANARY3 >&2; exit 3";
    let proxied = |url: &str| json!({"server": "https://127.0.0.1:1", "proxy-url": url});
    for (cluster, user, word) in [
        (server.clone(), exec("sh", &["-c", failing]), "plugin"),
        (server.clone(), exec("sh", &["-c", "echo '{\"token\": \"CANARY4\"'"]), "plugin"),
        (server.clone(), exec("/no/such/plugin", &["CANARY5"]), "plugin"),
        (proxied("http://user:CANARY6@127.0.0.1:1"), json!({}), "onnect"),
        (proxied("ftp://user:CANARY7@127.0.0.1:1"), json!({}), "proxy"),
    ] {
        let why = tried(cluster, user).await.0.unwrap_err();
        assert!(!why.contains("CANARY") && why.contains(word), "{why}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let broken =
        "apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user:\n    token: CANARY8\n   bad: [CANARY9\n";
    std::fs::write(file.path(), broken).unwrap();
    let access = KubeconfigAccess { path: Some(file.path().to_owned()), context: None };
    let why = Kubernetes::kubeconfig(&access).await.err().unwrap();
    assert!(!why.contains("CANARY"), "{why}");
}

/// The error for each file of a kubeconfig names the field, the entry and the kubeconfig.
#[tokio::test]
async fn a_file_of_a_kubeconfig_that_cannot_be_read_is_told_with_its_entry() {
    let server = || json!({"server": "https://127.0.0.1:1"});
    let pair = |certificate: &str, key: &str| json!({"client-certificate": certificate, "client-key": key});
    let authority = json!({"server": "https://127.0.0.1:1", "certificate-authority": "/no/such/file"});
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("here.pem");
    std::fs::write(&here, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let here = here.display().to_string();
    for (cluster, user, field) in [
        (server(), json!({"tokenFile": "/no/such/file"}), "tokenFile"),
        (server(), pair("/no/such/file", &here), "client-certificate"),
        (server(), pair(&here, "/no/such/file"), "client-key"),
        (authority, json!({}), "certificate-authority"),
    ] {
        let why = tried(cluster, user).await.0.unwrap_err();
        let place =
            format!("(user \"u\", cluster \"c\"): its `{field}` /no/such/file cannot be read: No such file");
        assert!(why.starts_with("cannot use /") && why.contains(&place), "{why}");
    }
}

/// HTTPS_PROXY applies to the cluster as it does to Google's API.
#[tokio::test]
async fn a_proxy_is_asked_for_the_cluster_with_its_password_and_without_our_token() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let named = format!("http://ada:pw@{}", listener.local_addr().unwrap());
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let url: http::Uri = "https://34.1.2.3".parse().unwrap();
    let through = proxy::proxy_for(&|name| (name == "HTTPS_PROXY").then(|| named.clone()), &url);
    let bearer = Bearer::Token(http::HeaderValue::from_static("Bearer CANARY"));
    let client = Kubernetes::through(url, None, bearer, through).unwrap();
    let error = client.send(&Request::get(Api::Kubernetes, "/version")).await.unwrap_err();
    assert!(error.message.contains("the proxy refused it"), "{error}");
    let head = asked.await.unwrap();
    assert!(head.starts_with("CONNECT 34.1.2.3:443 HTTP/1.1\r\n"), "{head}");
    let basic = base64::engine::general_purpose::STANDARD.encode("ada:pw");
    assert!(head.to_lowercase().contains("proxy-authorization: basic") && head.contains(&basic), "{head}");
    assert!(!head.contains("CANARY") && !error.to_string().contains("pw"), "{head} {error}");
}

#[tokio::test]
async fn a_router_of_this_process_is_a_cluster() {
    let seen = Kubernetes::in_process(echo()).send(&patch()).await.unwrap().value;
    assert_eq!(seen["method"], "PATCH");
}
