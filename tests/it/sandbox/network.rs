//! The way to Google and to the cluster: keys, tokens, proxies and endpoints, with the program as it is shipped. Google stands
//! behind a proxy on loopback and is the sandbox.

mod company;
mod proxy;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::SignatureScheme;
use sandbox::{Options, Sandbox, Scale};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use self::proxy::{Authority, Behavior, Proxy};
use crate::sandbox_server::{CommandOutput, SandboxServer, User};

const STACK: &str = "[stack]\nname = \"net\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n\
                     [cluster]\nname = \"net\"\n\n[node_pool.system]\nmachine_type = \"e2-standard-4\"\n\n[namespace.team]\n";
const EMAIL: &str = "ci@demo.iam.gserviceaccount.com";
const CLUSTER: &str = "/v1/projects/demo/locations/us-central1-c/clusters/net";
const GOOGLE: &[&str] = &[
    "container.googleapis.com:443",
    "compute.googleapis.com:443",
    "cloudresourcemanager.googleapis.com:443",
];

/// Headers that a server received: `authorization` and `x-goog-user-project`.
type RequestLog = Arc<Mutex<Vec<(String, String)>>>;

/// Google and a cluster of it behind a proxy, with a token server.
struct World {
    proxy: Proxy,
    google: Authority,
    sandbox: Sandbox,
    tokens: TokenServer,
    at_google: RequestLog,
    at_cluster: RequestLog,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let options = Options { scale: Scale { time_scale: 6000.0 }, ..Options::default() };
        let sandbox = Sandbox::open(options).unwrap();
        let (proxy, google) = (Proxy::new(Behavior::Connects), Authority::new());
        let (at_google, at_cluster) = (RequestLog::default(), RequestLog::default());
        let of_cluster = Authority::new();
        let api = with_authority(sandbox.gke_router(), &of_cluster.pem);
        proxy.serve_hosts(GOOGLE, &google, log_requests(api, &at_google));
        let clusters = sandbox.clone();
        let inside = Router::new().fallback(any(move |request: axum::extract::Request| {
            let cluster = clusters.clusters().pop().unwrap();
            let router = clusters.kubernetes_router(&cluster);
            async move { router.oneshot(request).await.unwrap() }
        }));
        let inside = log_requests(inside, &at_cluster);
        // The sandbox's first address.
        let addresses: Vec<String> = (0..8).map(|number| format!("203.0.113.{number}:443")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        proxy.serve_hosts(&addresses, &of_cluster, inside);
        let running = sandbox.clone();
        proxy.spawn(async move { running.run(std::future::pending()).await.unwrap() });
        let folder = tempfile::tempdir().unwrap();
        let tokens = TokenServer::answering(&[(
            200,
            json!({ "access_token": "ya29.Canary-token", "expires_in": 3599 }),
        )]);
        Self { proxy, google, sandbox, tokens, at_google, at_cluster, folder }
    }

    /// The DNS name of the cluster leads to it, with a certificate of this authority.
    fn opens_dns(&self, authority: &Authority) -> String {
        let cluster = ask(&self.sandbox, http::Method::GET, CLUSTER, &Value::Null);
        let name = cluster["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"].as_str().unwrap();
        let name = format!("{name}:443");
        self.opens(&name, authority);
        name
    }

    /// A name leads to the newest cluster.
    fn opens(&self, name: &str, authority: &Authority) {
        let clusters = self.sandbox.clone();
        let inside = Router::new().fallback(any(move |request: axum::extract::Request| {
            let cluster = clusters.clusters().pop().unwrap();
            let router = clusters.kubernetes_router(&cluster);
            async move { router.oneshot(request).await.unwrap() }
        }));
        self.proxy.serve_hosts(&[name], authority, log_requests(inside, &self.at_cluster));
    }

    /// The program as somebody with a key runs it behind the proxy.
    fn command(&self, user: &User, words: &[&str]) -> Command {
        let key = self.folder.path().join("key.json");
        std::fs::write(&key, key_file(&self.tokens.url).to_string()).unwrap();
        let mut command = clean(user, words);
        command.env("GOOGLE_APPLICATION_CREDENTIALS", key);
        command.env("SSL_CERT_FILE", self.google.path()).env("HTTPS_PROXY", self.proxy.url());
        command
    }

    fn run(&self, user: &User, words: &[&str]) -> CommandOutput {
        command_output(&mut self.command(user, words))
    }
}

/// Asks Google's API without any way in between.
pub fn ask(sandbox: &Sandbox, method: http::Method, path: &str, body: &Value) -> Value {
    let request = http::Request::builder().method(method).uri(path).body(Body::from(body.to_string()));
    let router = sandbox.gke_router();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let response = router.oneshot(request.unwrap()).await.unwrap();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice(&bytes).unwrap_or_default()
    })
}

/// The authority that a cluster's DNS name has in the sandbox, as PEM.
pub fn authority_of(cluster: &Value) -> Vec<u8> {
    STANDARD.decode(cluster["masterAuth"]["clusterCaCertificate"].as_str().unwrap()).unwrap()
}

/// Changes the endpoints of the cluster, and waits until that is done.
fn update(sandbox: &Sandbox, endpoints: &Value) {
    let body = json!({ "update": { "desiredControlPlaneEndpointsConfig": endpoints } });
    let operation = ask(sandbox, http::Method::PUT, CLUSTER, &body);
    let name = operation["name"].as_str().unwrap_or_else(|| panic!("{operation}"));
    let path = format!("/v1/projects/demo/locations/us-central1-c/operations/{name}");
    for _ in 0..600 {
        if ask(sandbox, http::Method::GET, &path, &Value::Null)["status"] == "DONE" {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{name} takes too long");
}

/// The program without what the tests' own environment says of proxies and credentials.
fn clean(user: &User, words: &[&str]) -> Command {
    let mut command = user.command(words);
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_QUOTA_PROJECT",
        "CLOUDSDK_CONFIG",
        "SSL_CERT_DIR",
        "KUBECONFIG",
    ] {
        command.env_remove(name);
    }
    command.env("HOME", user.path().join("no-home"));
    command
}

fn command_output(command: &mut Command) -> CommandOutput {
    CommandOutput::of(&command.output().unwrap())
}

fn key_file(token_uri: &str) -> Value {
    json!({
        "type": "service_account", "client_email": EMAIL, "private_key_id": "key-1", "project_id": "demo",
        "private_key": include_str!("../../data/token-test.pem"), "token_uri": token_uri,
    })
}

fn user(stack: &str) -> User {
    let user = User::empty();
    user.write(stack);
    user
}

/// Writes down who asks.
fn log_requests(router: Router, seen: &RequestLog) -> Router {
    let seen = Arc::clone(seen);
    Router::new().fallback(any(move |request: axum::extract::Request| {
        let header = |name: &str| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        seen.lock().unwrap().push((header("authorization"), header("x-goog-user-project")));
        let router = router.clone();
        async move { router.oneshot(request).await.unwrap() }
    }))
}

/// Names this authority as the cluster's own.
fn with_authority(router: Router, pem: &str) -> Router {
    let authority = STANDARD.encode(pem);
    Router::new().fallback(any(move |request: axum::extract::Request| {
        let (router, authority) = (router.clone(), authority.clone());
        async move {
            let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
                return http::Response::from_parts(parts, Body::from(bytes));
            };
            if let Some(old) = value.pointer_mut("/masterAuth/clusterCaCertificate") {
                *old = json!(authority);
            }
            let mut response = http::Response::new(Body::from(value.to_string()));
            *response.status_mut() = parts.status;
            response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
            response
        }
    }))
}

/// A token server on loopback.
struct TokenServer {
    url: String,
    asked: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl TokenServer {
    /// Gives one answer after the other, and the last one for ever.
    fn answering(answers: &[(u16, Value)]) -> Self {
        let (answers, asked) = (answers.to_vec(), Arc::<Mutex<Vec<BTreeMap<String, String>>>>::default());
        let log = Arc::clone(&asked);
        let router = Router::new().fallback(any(move |request: axum::extract::Request| {
            let (answers, log) = (answers.clone(), Arc::clone(&log));
            async move {
                let bytes = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
                let mut log = log.lock().unwrap();
                let (status, body) = answers[log.len().min(answers.len() - 1)].clone();
                log.push(form_urlencoded::parse(&bytes).into_owned().collect());
                (http::StatusCode::from_u16(status).unwrap(), body.to_string())
            }
        }));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { url, asked, runtime: Some(runtime) }
    }

    fn asked(&self) -> Vec<BTreeMap<String, String>> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The claims of an assertion whose signature is that of the key.
fn claims(assertion: &str) -> Value {
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let rsa = |scheme: &SignatureScheme| *scheme == SignatureScheme::RSA_PKCS1_SHA256;
    let (_, verifiers) = known.mapping.iter().find(|(scheme, _)| rsa(scheme)).unwrap();
    let public = include_bytes!("../../data/token-test.der");
    assert!(verifiers.iter().any(|one| one.verify_signature(public, signed.as_bytes(), &signature).is_ok()));
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

#[test]
fn a_key_is_exchanged_once_and_both_apis_are_reached_through_the_proxy() {
    let world = World::new();
    let user = user(STACK);
    let mut apply = world.command(&user, &["apply", "--auto-approve", "-v"]);
    apply.env("GOOGLE_CLOUD_QUOTA_PROJECT", "billing-1");
    let applied = command_output(&mut apply).expect(0);
    let hosts = world.proxy.hosts();
    assert!(hosts.iter().any(|host| host == "container.googleapis.com:443"), "{hosts:?}");
    assert!(hosts.iter().any(|host| host.starts_with("203.0.113.")), "{hosts:?}");
    let asked = world.tokens.asked();
    assert_eq!(asked.len(), 1, "one token for everything");
    let claims = claims(&asked[0]["assertion"]);
    assert_eq!(
        (claims["iss"].as_str(), claims["aud"].as_str()),
        (Some(EMAIL), Some(world.tokens.url.as_str()))
    );
    let google = world.at_google.lock().unwrap().clone();
    assert!(
        google.iter().all(|(bearer, payer)| bearer == "Bearer ya29.Canary-token" && payer == "billing-1")
    );
    let cluster = world.at_cluster.lock().unwrap().clone();
    assert!(cluster.iter().all(|(bearer, payer)| bearer == "Bearer ya29.Canary-token" && payer.is_empty()));
    for head in world.proxy.heads() {
        assert!(!head.contains("Canary") && head.starts_with("CONNECT "), "{head}");
    }
    let plan = world.run(&user, &["plan", "--detailed-exitcode", "-v"]).expect(0);
    let doctor = world.run(&user, &["doctor"]).says(EMAIL);
    for said in [&applied, &plan, &doctor] {
        let all = format!("{}{}", said.out, said.err);
        for secret in ["Canary", "PRIVATE KEY", asked[0]["assertion"].as_str()] {
            assert!(!all.contains(secret), "{all}");
        }
    }
    // Lower case, a password, and what bypasses.
    let before = world.proxy.heads().len();
    let mut plan = world.command(&user, &["plan", "--detailed-exitcode"]);
    plan.env_remove("HTTPS_PROXY")
        .env("https_proxy", format!("http://ada:Canary-pw@{}", world.proxy.address));
    let said_back = command_output(&mut plan).expect(0);
    assert!(!said_back.err.contains("Canary"));
    let basic = STANDARD.encode("ada:Canary-pw");
    assert!(world.proxy.heads()[before..].iter().all(|head| head.contains(&basic)));
    let before = world.proxy.heads().len();
    let mut plan = world.command(&user, &["plan"]);
    command_output(plan.env("NO_PROXY", "container.googleapis.com")).expect(1);
    assert_eq!(world.proxy.heads().len(), before, "Google was asked for without the proxy");
}

/// Names are the proxy's to resolve: those of Google and of the cluster resolve nowhere here.
#[test]
fn both_apis_are_reached_through_a_socks_proxy() {
    let world = World::new();
    let user = user(STACK);
    for scheme in ["socks5", "socks5h"] {
        let before = world.proxy.heads().len();
        let mut apply = world.command(&user, &["apply", "--auto-approve"]);
        apply.env("HTTPS_PROXY", format!("{scheme}://{}", world.proxy.address));
        command_output(&mut apply).expect(0);
        let heads = world.proxy.heads().split_off(before);
        assert!(heads.iter().all(|head| head.starts_with("SOCKS ")), "{heads:?}");
        for host in ["container.googleapis.com:443", "203.0.113."] {
            assert!(heads.iter().any(|head| head["SOCKS ".len()..].starts_with(host)), "{host}: {heads:?}");
        }
    }
    // Requests that kube cannot send are refused first; Google's own servers get them.
    let mut plan = world.command(&user, &["plan"]);
    plan.env("HTTPS_PROXY", format!("socks5://ada:Canary-pw@{}", world.proxy.address));
    let refused = command_output(&mut plan).expect(1);
    assert!(!refused.err.contains("Canary"), "{}", refused.err);
}

#[test]
fn what_a_socks_proxy_refuses_is_told() {
    let authority = Authority::new();
    let user = kubernetes_user("", &authority);
    let (wants, refuses) = (Proxy::new(Behavior::WantsAUser), Proxy::new(Behavior::Refuses("")));
    let dead = Proxy::dead().replace("http://", "socks5://");
    for (proxy, message) in [
        (wants.socks(), "the proxy requires a user and a password, or does not accept these"),
        (refuses.socks(), "the proxy refused it: connection not allowed"),
        (dead, "the proxy cannot be reached"),
        (wants.socks().replace("//", "//me:Canary@"), "user and password of a SOCKS proxy are not sent"),
    ] {
        let mut plan = clean(&user, &["plan"]);
        let found = command_output(plan.env("HTTPS_PROXY", &proxy)).expect(1);
        let words: Vec<&str> = found.err.split_whitespace().filter(|word| *word != "|").collect();
        let words = words.join(" ");
        assert!(words.contains(message) && !words.contains("Canary"), "{proxy}: {}", found.err);
    }
}

#[test]
fn a_token_server_that_says_no_is_told_and_one_that_breaks_is_asked_again() {
    let mut world = World::new();
    let user = user(STACK);
    let grant = json!({ "error": "invalid_grant", "error_description": "Invalid JWT Signature." });
    world.tokens = TokenServer::answering(&[(400, grant)]);
    let refused = world.run(&user, &["plan", "-v"]).expect(1).says("DI0601").says("Invalid JWT Signature.");
    refused.says("key.json").says(EMAIL).says("gcloud iam service-accounts keys list");
    world.tokens = TokenServer::answering(&[(401, json!({ "error": "invalid_client" }))]);
    world.run(&user, &["plan"]).expect(1).says("DI0601").says("invalid_client");
    let token = json!({ "access_token": "ya29.x", "expires_in": 3599 });
    world.tokens = TokenServer::answering(&[(503, json!({})), (500, json!({})), (200, token)]);
    world.run(&user, &["plan", "--detailed-exitcode"]).expect(2);
    assert_eq!(world.tokens.asked().len(), 3);
    world.tokens = TokenServer::answering(&[(503, json!({}))]);
    world
        .run(&user, &["plan"])
        .expect(1)
        .says("DI0604")
        .says("no token from 127.0.0.1:")
        .says("it answered 503");
}

#[test]
fn a_cluster_without_access_by_ip_is_reached_by_its_name_with_a_public_certificate() {
    let world = World::new();
    let user = user(STACK);
    world.run(&user, &["apply", "--auto-approve"]).expect(0);
    user.edit("name = \"net\"\n\n[node_pool", "name = \"net\"\nendpoint = \"dns\"\n\n[node_pool");
    let closed = world.run(&user, &["plan"]).expect(1).says("no DNS endpoint that is open");
    closed.says("--enable-dns-access").says("stack.toml:");
    update(&world.sandbox, &json!({ "dnsEndpointConfig": { "allowExternalTraffic": true } }));
    let name = world.opens_dns(&world.google);
    world.run(&user, &["plan", "--detailed-exitcode"]).expect(0);
    assert!(world.proxy.hosts().contains(&name), "{name}");
    // Without access by IP, `auto` is enough.
    update(&world.sandbox, &json!({ "ipEndpointsConfig": { "enabled": false } }));
    assert_eq!(
        format!(
            "{}:443",
            ask(&world.sandbox, http::Method::GET, CLUSTER, &Value::Null)["endpoint"].as_str().unwrap()
        ),
        name
    );
    user.edit("endpoint = \"dns\"", "endpoint = \"auto\"");
    let before = world.proxy.heads().len();
    world.run(&user, &["plan", "--detailed-exitcode"]).expect(0);
    let after = world.proxy.heads().split_off(before);
    assert!(after.iter().any(|head| head.contains(".gke.goog")), "{after:?}");
    assert!(!after.iter().any(|head| head.contains("203.0.113.")), "{after:?}");
    user.edit("endpoint = \"auto\"", "endpoint = \"private\"");
    world.run(&user, &["plan"]).expect(1).says("no private endpoint").says("--enable-ip-access");
    // The cluster's own authority does not count there.
    user.edit("endpoint = \"private\"", "endpoint = \"dns\"");
    world.opens_dns(&Authority::new());
    world.run(&user, &["plan"]).expect(1).says("DI0608");
}

#[test]
fn the_name_of_a_served_cluster_is_trusted_as_a_public_one() {
    let served = SandboxServer::with(Options { scale: Scale { time_scale: 6000.0 }, ..Options::default() });
    let user = User::at(&served, STACK);
    user.run(&["apply", "--auto-approve"]).expect(0);
    update(&served.sandbox, &json!({ "dnsEndpointConfig": { "allowExternalTraffic": true } }));
    update(&served.sandbox, &json!({ "ipEndpointsConfig": { "enabled": false } }));
    let cluster = ask(&served.sandbox, http::Method::GET, CLUSTER, &Value::Null);
    assert!(cluster["endpoint"].as_str().unwrap().starts_with("localhost:"), "{}", cluster["endpoint"]);
    user.run(&["plan"]).expect(1).says("DI0608").says("SSL_CERT_FILE");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority_of(&cluster)).unwrap();
    let mut plan = user.command(&["plan", "--detailed-exitcode"]);
    command_output(plan.env("SSL_CERT_FILE", file.path())).expect(0);
}

const KUBERNETES: &str = "[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"k.yaml\"\n\n[namespace.n]\n";

/// A user of a cluster at `kube.test`.
fn kubernetes_user(cluster: &str, authority: &Authority) -> User {
    let user = user(KUBERNETES);
    let data = STANDARD.encode(&authority.pem);
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{ cluster: k, user: u }}\n\
         clusters:\n- name: k\n  cluster: {{ server: 'https://kube.test:6443', certificate-authority-data: {data}{cluster} }}\n\
         users:\n- name: u\n  user: {{ token: t }}\n"
    );
    std::fs::write(user.path().join("k.yaml"), config).unwrap();
    user
}

/// An API server that has nothing, behind a proxy.
fn empty_cluster(proxy: &Proxy, authority: &Authority) {
    let answer = |request: axum::extract::Request| async move {
        let path = request.uri().path().to_owned();
        let status = |code: u16, body: Value| {
            let status = http::StatusCode::from_u16(code).unwrap();
            (status, [("content-type", "application/json")], body.to_string())
        };
        if path == "/version" {
            return status(200, json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.0" }));
        }
        status(
            404,
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
            "message": "not found" }),
        )
    };
    proxy.serve_hosts(&["kube.test:6443"], authority, Router::new().fallback(any(answer)));
}

#[test]
fn the_proxy_of_the_environment_counts_for_kubeconfigs_and_no_proxy_goes_by_the_server() {
    let (proxy, authority) = (Proxy::new(Behavior::Connects), Authority::new());
    empty_cluster(&proxy, &authority);
    let user = kubernetes_user("", &authority);
    let mut doctor = clean(&user, &["doctor"]);
    command_output(doctor.env("HTTPS_PROXY", proxy.url())).says("Kubernetes v1.36.0");
    assert_eq!(proxy.hosts(), ["kube.test:6443"]);
    let asked = proxy.heads().len();
    for no in ["kube.test", ".test", "KUBE.test:6443", "10.0.0.0/8,test", "*"] {
        let mut doctor = clean(&user, &["doctor"]);
        command_output(doctor.env("HTTPS_PROXY", proxy.url()).env("NO_PROXY", no))
            .expect(1)
            .says("cannot be reached");
        assert_eq!(proxy.heads().len(), asked, "{no}");
    }
    let mut doctor = clean(&user, &["doctor"]);
    command_output(doctor.env("HTTPS_PROXY", proxy.url()).env("no_proxy", "kube.test:443,127.0.0.1"))
        .says("Kubernetes v1.36.0");
}

#[test]
fn the_proxy_of_a_kubeconfig_wins_and_gets_nothing_of_the_environment() {
    let (proxy, authority) = (Proxy::new(Behavior::Connects), Authority::new());
    empty_cluster(&proxy, &authority);
    let user = kubernetes_user(&format!(", proxy-url: '{}'", proxy.url()), &authority);
    // It lies in the repository, as everything in this folder does.
    std::fs::create_dir(user.path().join(".git")).unwrap();
    let mut doctor = clean(&user, &["doctor"]);
    let other = Proxy::dead().replace("http://", "http://me:Canary-pw@");
    command_output(doctor.env("HTTPS_PROXY", other).env("NO_PROXY", "*")).says("Kubernetes v1.36.0");
    let heads = proxy.heads();
    assert!(
        !heads.is_empty() && heads.iter().all(|head| !head.to_lowercase().contains("proxy-authorization")),
        "{heads:?}"
    );
}

#[test]
fn what_a_proxy_refuses_is_told() {
    let authority = Authority::new();
    let user = kubernetes_user("", &authority);
    let google = self::user(STACK);
    let key = google.path().join("key.json");
    let tokens = TokenServer::answering(&[(200, json!({ "access_token": "t", "expires_in": 3599 }))]);
    std::fs::write(&key, key_file(&tokens.url).to_string()).unwrap();
    let (wants, refuses) = (
        Proxy::new(Behavior::Refuses("407 Proxy Authentication Required")),
        Proxy::new(Behavior::Refuses("403 Forbidden")),
    );
    for (proxy, message, help) in [
        (wants.url(), "the proxy requires a user and a password (407)", "USER:PASSWORD"),
        (refuses.url(), "the proxy refused it", "NO_PROXY"),
        (Proxy::dead(), "the proxy cannot be reached", "nothing answers there"),
    ] {
        let place = proxy.replace("http://", "http://me:Canary@");
        for user in [&user, &google] {
            let mut plan = clean(user, &["plan"]);
            plan.env("HTTPS_PROXY", &place).env("GOOGLE_APPLICATION_CREDENTIALS", &key);
            let found = command_output(&mut plan).expect(1).says("DI0608").says(help);
            let words: Vec<&str> = found.err.split_whitespace().filter(|word| *word != "|").collect();
            let words = words.join(" ");
            assert!(
                words.contains(message) && words.contains(&proxy) && !words.contains("Canary"),
                "{}",
                found.err
            );
        }
    }
}
