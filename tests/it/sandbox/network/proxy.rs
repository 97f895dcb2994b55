//! A proxy on loopback that takes CONNECT and SOCKS 5, and what it leads to: servers with certificates of an authority of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// The proxy's reaction to requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    Connects,
    /// Answers with this status line; as a SOCKS proxy, that the connection is not allowed.
    Refuses(&'static str),
    /// As a SOCKS proxy: takes nobody without a user and a password.
    WantsAUser,
}

/// Hosts (`a.example:443`), and where they are on this machine.
type Routes = Arc<Mutex<BTreeMap<String, SocketAddr>>>;

/// A proxy, and servers behind it, until this value goes.
pub struct Proxy {
    /// `127.0.0.1:PORT`.
    pub address: SocketAddr,
    routes: Routes,
    heads: Arc<Mutex<Vec<String>>>,
    runtime: Option<Runtime>,
}

impl Proxy {
    pub fn new(mood: Behavior) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (routes, heads) = (Routes::default(), Arc::<Mutex<Vec<String>>>::default());
        let (known, log) = (Arc::clone(&routes), Arc::clone(&heads));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(relay(stream, Arc::clone(&known), Arc::clone(&log), mood));
            }
        });
        Self { address, routes, heads, runtime: Some(runtime) }
    }

    /// An address where nobody listens.
    pub fn dead() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn socks(&self) -> String {
        format!("socks5://{}", self.address)
    }

    /// The heads of all requests so far; of SOCKS, `SOCKS host:port`.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// The hosts that it was asked for, each once.
    pub fn hosts(&self) -> Vec<String> {
        let named = self.heads().into_iter().filter_map(|head| Some(head.split(' ').nth(1)?.to_owned()));
        let mut hosts: Vec<String> = named.collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Serves a router over TLS as these hosts.
    pub fn serve_hosts(&self, hosts: &[&str], authority: &Authority, router: Router) {
        let names = hosts.iter().map(|host| host.rsplit_once(':').unwrap().0.to_owned()).collect();
        let acceptor = authority.server(names);
        let runtime = self.runtime.as_ref().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let mut routes = self.routes.lock().unwrap();
        routes.extend(hosts.iter().map(|host| ((*host).to_owned(), address)));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper_util::service::TowerToHyperService::new(router);
                    let io = hyper_util::rt::TokioIo::new(stream);
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                });
            }
        });
    }

    /// Runs what must go on beside.
    pub fn spawn(&self, beside: impl Future<Output = ()> + Send + 'static) {
        self.runtime.as_ref().unwrap().spawn(beside);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where a host leads: by its name, or as one of `*.example:443`.
fn route(routes: &BTreeMap<String, SocketAddr>, host: &str) -> Option<SocketAddr> {
    let any = host.split_once('.').map(|(_, domain)| format!("*.{domain}"));
    routes.get(host).or_else(|| routes.get(&any?)).copied()
}

async fn relay(mut client: TcpStream, routes: Routes, heads: Arc<Mutex<Vec<String>>>, mood: Behavior) {
    let Ok(first) = client.read_u8().await else { return };
    let head = if first == SOCKS5 {
        socks_head(&mut client, mood).await
    } else {
        connect_head(&mut client, first).await
    };
    let Some(head) = head else { return };
    let host = head.split(' ').nth(1).unwrap_or_default().to_owned();
    heads.lock().unwrap().push(head);
    let to = route(&routes.lock().unwrap(), &host);
    let answer = match (first == SOCKS5, mood, to) {
        (true, Behavior::Refuses(_), _) => socks_answer(2),
        (true, _, None) => socks_answer(4),
        (true, _, Some(_)) => socks_answer(0),
        (false, Behavior::Refuses(status), _) => {
            format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes()
        }
        (false, _, None) => b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n".to_vec(),
        (false, _, Some(_)) => b"HTTP/1.1 200 Connected\r\n\r\n".to_vec(),
    };
    let _ = client.write_all(&answer).await;
    if let (Behavior::Connects, Some(to)) = (mood, to)
        && let Ok(mut server) = TcpStream::connect(to).await
    {
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}

async fn connect_head(client: &mut TcpStream, first: u8) -> Option<String> {
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// The version byte of RFC 1928, whose messages are here.
const SOCKS5: u8 = 5;

/// Returns the requested target in the form of a request's head.
async fn socks_head(client: &mut TcpStream, mood: Behavior) -> Option<String> {
    let mut methods = vec![0; client.read_u8().await.ok()?.into()];
    client.read_exact(&mut methods).await.ok()?;
    let method = if mood != Behavior::WantsAUser && methods.contains(&0) { 0 } else { 0xFF };
    client.write_all(&[SOCKS5, method]).await.ok()?;
    if method != 0 {
        return None;
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await.ok()?;
    let host = match request[3] {
        1 => std::net::Ipv4Addr::from(client.read_u32().await.ok()?).to_string(),
        3 => {
            let mut name = vec![0; client.read_u8().await.ok()?.into()];
            client.read_exact(&mut name).await.ok()?;
            String::from_utf8(name).ok()?
        }
        other => panic!("address type {other}"),
    };
    Some(format!("SOCKS {host}:{}", client.read_u16().await.ok()?))
}

fn socks_answer(status: u8) -> Vec<u8> {
    vec![SOCKS5, status, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// An authority that stands for the public ones, or for a cluster's.
pub struct Authority {
    pub pem: String,
    key: String,
    file: tempfile::NamedTempFile,
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "a test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let pem = params().self_signed(&key).unwrap().pem();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &pem).unwrap();
        Self { pem, key: key.serialize_pem(), file }
    }

    /// The file for SSL_CERT_FILE.
    pub fn path(&self) -> PathBuf {
        self.file.path().to_owned()
    }

    fn server(&self, names: Vec<String>) -> tokio_rustls::TlsAcceptor {
        let issuer = Issuer::new(params(), KeyPair::from_pem(&self.key).unwrap());
        let key = KeyPair::generate().unwrap();
        let mut leaf = CertificateParams::new(names).unwrap();
        leaf.use_authority_key_identifier_extension = true;
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key);
        tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}
