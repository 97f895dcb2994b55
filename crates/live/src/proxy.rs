//! The proxy that the environment names for a server, and messages for connections that fail at a proxy. HTTPS_PROXY, ALL_PROXY
//! and NO_PROXY mean the same as for kubectl. Source: Go's `golang.org/x/net/http/httpproxy`, which kubectl and
//! gke-gcloud-auth-plugin read them with.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use serde_json::json;

use crate::environment::{Env, env_var};
use crate::{ApiError, ErrorClass, Request};
use model::resource::encoded;

/// Returns the proxy for a server, if there is one, with its user and password in the URL, as kube takes them.
pub fn proxy_for(env: Env<'_>, server: &http::Uri) -> Option<http::Uri> {
    let any = |names: [&str; 2]| names.into_iter().find_map(env).unwrap_or_default();
    let no = any(["NO_PROXY", "no_proxy"]);
    if is_loopback(server) || no.split(',').any(|entry| bypasses(entry.trim(), server)) {
        return None;
    }
    let matcher = Matcher::builder()
        .all(any(["ALL_PROXY", "all_proxy"]))
        .http(any(["HTTP_PROXY", "http_proxy"]))
        .https(any(["HTTPS_PROXY", "https_proxy"]))
        .build();
    let proxy = matcher.intercept(server)?;
    let (scheme, authority) = (proxy.uri().scheme_str()?, proxy.uri().authority()?);
    let user = user(&proxy).map(|(user, password)| format!("{}:{}@", encoded(&user), encoded(&password)));
    format!("{scheme}://{}{authority}/", user.unwrap_or_default()).parse().ok()
}

/// The default port of a SOCKS proxy. Source: RFC 1928.
const SOCKS_PORT: u16 = 1080;

fn is_socks5(proxy: &http::Uri) -> bool {
    matches!(proxy.scheme_str(), Some("socks5" | "socks5h"))
}

/// Returns a proxy as kube takes it. For SOCKS 5, kube only supports `socks5`, with which the proxy resolves names, as with
/// kubectl.
///
/// # Errors
///
/// The proxy needs what kube cannot send; the message has no password.
pub fn for_kube(proxy: http::Uri) -> Result<http::Uri, String> {
    if !is_socks5(&proxy) {
        return Ok(proxy);
    }
    let authority = proxy.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if let Some((_, authority)) = authority.rsplit_once('@') {
        return Err(format!(
            "its proxy socks5://{authority} cannot be used: user and password of a SOCKS proxy are not sent to it; use \
             one that asks for neither, or an HTTP proxy"
        ));
    }
    let authority =
        if proxy.port().is_some() { authority.to_owned() } else { format!("{authority}:{SOCKS_PORT}") };
    format!("socks5://{authority}/")
        .parse()
        .map_err(|_| format!("its proxy socks5://{authority} is not a URL"))
}

/// Returns a client for Google's servers that uses the environment's proxies, under the same rules as the client for clusters.
pub fn with_environment_proxy(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    let found = |url: &reqwest::Url| {
        let proxy = proxy_for(&env_var, &url.as_str().parse().ok()?)?;
        Some(for_reqwest(&proxy))
    };
    builder.no_proxy().proxy(reqwest::Proxy::custom(found))
}

/// Returns a proxy as reqwest takes it. reqwest resolves names itself for `socks5`, and lets the proxy resolve them for
/// `socks5h`.
fn for_reqwest(proxy: &http::Uri) -> String {
    let url = proxy.to_string();
    url.strip_prefix("socks5://").map_or_else(|| url.clone(), |rest| format!("socks5h://{rest}"))
}

fn user(proxy: &Intercept) -> Option<(String, String)> {
    if let Some((user, password)) = proxy.raw_auth() {
        return Some((user.to_owned(), password.to_owned()));
    }
    let basic = STANDARD.decode(proxy.basic_auth()?.to_str().ok()?.strip_prefix("Basic ")?).ok()?;
    let (user, password) = std::str::from_utf8(&basic).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

fn host_of(server: &http::Uri) -> &str {
    server.host().unwrap_or_default().trim_matches(['[', ']'])
}

fn port_of(server: &http::Uri) -> u16 {
    let default = if server.scheme() == Some(&http::uri::Scheme::HTTP) { 80 } else { 443 };
    server.port_u16().unwrap_or(default)
}

/// Returns true if a server is on this machine: no proxy is used for it.
fn is_loopback(server: &http::Uri) -> bool {
    let host = host_of(server);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns true if an entry of NO_PROXY matches a server: `*`, an address, a network, a host with its subdomains, each with or
/// without a port.
fn bypasses(entry: &str, server: &http::Uri) -> bool {
    if entry == "*" {
        return true;
    }
    let (entry, port) = split_port(entry);
    if entry.is_empty() || port.is_some_and(|port| port != port_of(server)) {
        return false;
    }
    let host = host_of(server);
    if let Ok(address) = host.parse::<IpAddr>() {
        return match entry.split_once('/') {
            Some((network, length)) => is_in_network(address, network, length),
            None => entry.parse() == Ok(address),
        };
    }
    let (host, entry) = (host.to_ascii_lowercase(), entry.to_ascii_lowercase());
    let domain = entry.trim_start_matches('*').trim_start_matches('.');
    let below = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    !domain.is_empty() && (below || (host == domain && !entry.starts_with(['.', '*'])))
}

/// Splits `10.0.0.1:443`. An IPv6 address keeps its own colons.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    let bare = entry.trim_matches(['[', ']']);
    if bare.parse::<IpAddr>().is_ok() || entry.contains('/') {
        return (bare, None);
    }
    match entry.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
        Some((host, Ok(port))) => (host.trim_matches(['[', ']']), Some(port)),
        Some((_, Err(_))) | None => (entry, None),
    }
}

fn is_in_network(address: IpAddr, network: &str, length: &str) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else { return false };
    let ((ours, width), (theirs, other)) = (bits(address), bits(network));
    let differs = ours ^ theirs;
    width == other && length <= width && (length == 0 || differs >> (128 - length) == 0)
}

/// Failures of a connection through a proxy.
enum ProxyError {
    /// It requires a user and a password.
    NeedsCredentials(&'static str),
    /// It refused, with its reason if it gives one.
    Refused(Option<String>),
    /// It cannot be reached, with the reason if it is known.
    Unreachable(Option<String>),
    /// The connection failed behind it.
    BehindProxy(String),
}

impl ProxyError {
    /// Reads an error message. Source: the messages of hyper-util's tunnel and of its `SocksError`.
    fn from_message(why: &str) -> Self {
        match why.split_once("SOCKS error: ") {
            Some((_, why)) if why.contains("authentication") || why.contains("credentials") => {
                Self::NeedsCredentials(", or does not accept these")
            }
            Some((_, why)) if why.contains("underlying connection") => Self::Unreachable(None),
            Some((_, why)) => Self::Refused(Some(why.to_owned())),
            None if why.contains("authorization required") => Self::NeedsCredentials(" (407)"),
            None if why.contains("tunnel error: unsuccessful") => Self::Refused(None),
            None if why.contains("tunnel error") => {
                Self::Unreachable(why.rsplit(": ").next().map(str::to_owned))
            }
            None => Self::BehindProxy(why.to_owned()),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::NeedsCredentials(_) => {
                "put both into the proxy's URL: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT (clusters cannot be reached \
                 through a SOCKS proxy that asks for them)"
            }
            Self::Refused(_) => {
                "have the proxy allow this server, or bypass the proxy: NO_PROXY takes hosts, domains, addresses and \
                 networks"
            }
            Self::Unreachable(_) => {
                "check HTTPS_PROXY (or `proxy-url` of the kubeconfig): nothing answers there"
            }
            Self::BehindProxy(_) => {
                "for a proxy that intercepts TLS, add its certificate to the system's store (SSL_CERT_FILE); NO_PROXY \
                 lists what bypasses the proxy"
            }
        }
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, why) = match self {
            Self::NeedsCredentials(how) => return write!(f, "the proxy requires a user and a password{how}"),
            Self::BehindProxy(why) => return f.write_str(why),
            Self::Refused(why) => ("the proxy refused it", why),
            Self::Unreachable(why) => ("the proxy cannot be reached", why),
        };
        f.write_str(what)?;
        why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// A proxy that requests go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedProxy {
    /// `http://host:port`, without its password.
    pub proxy: String,
    /// The setting that names the proxy.
    pub source: &'static str,
}

impl UsedProxy {
    pub fn new(proxy: &http::Uri, source: &'static str) -> Self {
        let authority =
            proxy.authority().map(|authority| authority.as_str().rsplit('@').next().unwrap_or_default());
        let scheme = proxy.scheme_str().unwrap_or("http");
        Self { proxy: format!("{scheme}://{}", authority.unwrap_or("?")), source }
    }

    /// Explains a failed connection to a server through this proxy.
    pub fn explain(&self, server: &str, why: &str) -> String {
        let Self { proxy, source } = self;
        format!("no connection to {server} through {proxy} ({source}): {}", ProxyError::from_message(why))
    }

    /// Returns the error of a request whose connection to a server failed.
    pub fn connection_error(&self, request: &Request, server: &str, why: &str) -> ApiError {
        let body = Some(json!({ "remedy": ProxyError::from_message(why).remedy(), "proxy": self.proxy }));
        ApiError { body, ..request.failed(ErrorClass::Unavailable, self.explain(server, why)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &str)], server: &str) -> Option<String> {
        let env =
            |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        proxy_for(&env, &server.parse().unwrap()).map(|proxy| proxy.to_string())
    }

    #[test]
    fn a_proxy_is_taken_with_its_user() {
        for (https, expect) in [
            ("http://proxy.example:3128", "http://proxy.example:3128/"),
            ("proxy.example:3128", "http://proxy.example:3128/"),
            ("http://ada:p%40s%3A@proxy.example:3128", "http://ada:p%40s%3A@proxy.example:3128/"),
            ("http://ada@proxy.example:3128", "http://ada:@proxy.example:3128/"),
        ] {
            for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
                assert_eq!(
                    found(&[(name, https)], "https://34.1.2.3").as_deref(),
                    Some(expect),
                    "{name} {https}"
                );
            }
        }
        assert_eq!(found(&[], "https://34.1.2.3"), None);
        assert_eq!(found(&[("HTTP_PROXY", "http://p:1")], "https://34.1.2.3"), None);
        assert_eq!(found(&[("HTTP_PROXY", "http://p:1")], "http://34.1.2.3").as_deref(), Some("http://p:1/"));
        for here in ["https://127.0.0.1:1", "https://localhost", "https://[::1]:9"] {
            assert_eq!(found(&[("HTTPS_PROXY", "http://p:1")], here), None, "{here}");
        }
    }

    #[test]
    fn both_schemes_of_socks_leave_names_to_the_proxy() {
        for (https, kube, reqwest) in [
            ("socks5://p.example:1", Ok("socks5://p.example:1/"), "socks5h://p.example:1/"),
            ("socks5h://p.example:1", Ok("socks5://p.example:1/"), "socks5h://p.example:1/"),
            ("socks5://p.example", Ok("socks5://p.example:1080/"), "socks5h://p.example/"),
            ("http://p.example:1", Ok("http://p.example:1/"), "http://p.example:1/"),
            (
                "socks5://ada:CANARY@p.example:1",
                Err("its proxy socks5://p.example:1 cannot be used"),
                "socks5h://ada:CANARY@p.example:1/",
            ),
        ] {
            let proxy: http::Uri =
                found(&[("HTTPS_PROXY", https)], "https://34.1.2.3").unwrap().parse().unwrap();
            assert_eq!(for_reqwest(&proxy), reqwest, "{https}");
            match (for_kube(proxy), kube) {
                (Ok(proxy), Ok(expect)) => assert_eq!(proxy.to_string(), expect, "{https}"),
                (Err(why), Err(start)) => assert!(why.starts_with(start) && !why.contains("CANARY"), "{why}"),
                (got, _) => panic!("{https}: {got:?}"),
            }
        }
    }

    #[test]
    fn no_proxy_goes_by_the_server() {
        let rows = [
            ("34.1.2.3", "https://34.1.2.3", true),
            ("34.1.2.0/24", "https://34.1.2.3", true),
            ("34.1.3.0/24", "https://34.1.2.3", false),
            ("0.0.0.0/0", "https://34.1.2.3", true),
            ("34.1.2.3/99", "https://34.1.2.3", false),
            ("10.0.0.1, 34.1.2.3", "https://34.1.2.3", true),
            ("34.1.2.3:443", "https://34.1.2.3", true),
            ("34.1.2.3:6443", "https://34.1.2.3", false),
            ("34.1.2.3:6443", "https://34.1.2.3:6443", true),
            ("*", "https://34.1.2.3", true),
            ("*", "https://k.example.com", true),
            ("example.com", "https://k.example.com", true),
            ("EXAMPLE.com", "https://k.Example.com", true),
            (".example.com", "https://k.example.com", true),
            ("*.example.com", "https://k.example.com", true),
            (".example.com", "https://example.com", false),
            ("example.com", "https://example.com", true),
            ("example.com", "https://anexample.com", false),
            ("example.com:6443", "https://k.example.com:6443", true),
            ("example.com:6443", "https://k.example.com", false),
            ("fd00::/8", "https://[fd00::1]:443", true),
            ("fd00::1", "https://[fd00::1]", true),
            ("[fd00::1]:443", "https://[fd00::1]", true),
            ("2001::/16", "https://[fd00::1]", false),
            ("proxy.example", "https://34.1.2.3", false),
            ("", "https://34.1.2.3", false),
        ];
        for (no, server, direct) in rows {
            for name in ["NO_PROXY", "no_proxy"] {
                let proxy = found(&[("HTTPS_PROXY", "http://proxy.example:3128"), (name, no)], server);
                assert_eq!(proxy.is_none(), direct, "{name}={no} {server}");
            }
        }
    }

    #[test]
    fn what_a_proxy_says_is_told_with_its_name_and_without_its_password() {
        let via = UsedProxy::new(&"http://ada:CANARY@proxy.example:3128/".parse().unwrap(), "HTTPS_PROXY");
        for (why, expect) in [
            (
                "client error (Connect): tunnel error: proxy authorization required",
                "a user and a password (407)",
            ),
            ("client error (Connect): tunnel error: unsuccessful", "the proxy refused it"),
            (
                "tunnel error: failed to create underlying connection: tcp connect error: Connection refused",
                "the proxy cannot be reached: Connection refused",
            ),
            ("tls handshake eof", "tls handshake eof"),
            (
                "client error (Connect): SOCKS error: server does not support user/pass authentication",
                "requires a user and a password, or does not accept these",
            ),
            ("SOCKS error: failed to create underlying connection", "the proxy cannot be reached"),
            ("SOCKS error: connection not allowed", "the proxy refused it: connection not allowed"),
        ] {
            let said = via.explain("34.1.2.3:443", why);
            let start = "no connection to 34.1.2.3:443 through http://proxy.example:3128 (HTTPS_PROXY): ";
            assert!(said.starts_with(start) && said.ends_with(expect) && !said.contains("CANARY"), "{said}");
        }
    }
}
