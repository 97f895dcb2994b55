//! Reads a kubeconfig: the current context, a token or a client certificate, and the certificate authority. That is enough for a
//! bare API server on this machine; everything else is refused by name.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

/// The address and credentials of an API server.
#[derive(Clone)]
pub struct Access {
    /// The URL without a trailing slash.
    pub server: String,
    /// The bearer token, if it is used for authentication.
    pub token: Option<String>,
    /// The server's certificate authority, and the client certificate, if it is used for authentication.
    pub tls: rustls::ClientConfig,
}

impl Access {
    /// Reads the file. The error says what is wrong with it and what to do.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let config: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
        Reader { folder: path.parent().unwrap_or(Path::new(".")), config: &config }.access()
    }
}

struct Reader<'a> {
    /// The folder of the file, which relative paths in it start from.
    folder: &'a Path,
    config: &'a Value,
}

impl<'a> Reader<'a> {
    fn access(&self) -> Result<Access, String> {
        let current = string(self.config, "current-context").ok_or("it has no current-context")?;
        let context = self.named("contexts", "context", current)?;
        let cluster_name = string(context, "cluster").unwrap_or_default();
        let user_name = string(context, "user").unwrap_or_default();
        let cluster = self.named("clusters", "cluster", cluster_name)?;
        let user = self.named("users", "user", user_name)?;
        let of_cluster = |why| format!("its cluster {cluster_name:?}: {why}");
        let of_user = |why| format!("its user {user_name:?}: {why}");
        let server = string(cluster, "server").ok_or("its cluster has no server")?.trim_end_matches('/');
        on_loopback(server)?;
        for field in ["insecure-skip-tls-verify", "proxy-url", "tls-server-name"] {
            if cluster.get(field).is_some_and(|value| *value != false) {
                return Err(format!("{field} is not supported here: name the server and its authority"));
            }
        }
        let token = match (string(user, "token"), string(user, "tokenFile")) {
            (Some(token), _) => Some(token.to_owned()),
            (None, Some(file)) => Some(self.file("tokenFile", file).map_err(of_user)?.trim().to_owned()),
            (None, None) => None,
        };
        let pem = |field| self.pem(user, field).map_err(of_user);
        let certificate = pem("client-certificate")?.zip(pem("client-key")?);
        if token.is_none() && certificate.is_none() {
            return Err("its user has neither a token nor a client certificate with its key: other ways to \
                        sign in are not supported here"
                .to_owned());
        }
        let authority = self
            .pem(cluster, "certificate-authority")
            .map_err(of_cluster)?
            .ok_or("its cluster has no certificate-authority, without which the server cannot be trusted")?;
        Ok(Access { server: server.to_owned(), token, tls: tls(&authority, certificate)? })
    }

    fn named(&self, list: &str, field: &str, name: &str) -> Result<&'a Value, String> {
        let entries = self.config.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let entry = entries.iter().find(|entry| string(entry, "name") == Some(name));
        entry
            .and_then(|entry| entry.get(field))
            .ok_or_else(|| format!("it has no {field} {name:?} in {list}"))
    }

    fn file(&self, field: &str, path: &str) -> Result<String, String> {
        let path: PathBuf = self.folder.join(path);
        fs::read_to_string(&path).map_err(|error| format!("cannot read {field} {}: {error}", path.display()))
    }

    /// Returns the PEM text of a field, which may name a file, or have the text in base64 in its `-data` form.
    fn pem(&self, object: &Value, field: &str) -> Result<Option<String>, String> {
        if let Some(data) = string(object, &format!("{field}-data")) {
            let bytes = BASE64.decode(data.trim()).map_err(|error| format!("{field}-data: {error}"))?;
            return String::from_utf8(bytes).map(Some).map_err(|error| format!("{field}-data: {error}"));
        }
        string(object, field).map(|path| self.file(field, path)).transpose()
    }
}

fn string<'v>(object: &'v Value, field: &str) -> Option<&'v str> {
    object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Refuses a server that is not on loopback: clients of the sandbox get the kubeconfig's permissions, so it must not be somebody
/// else's server.
fn on_loopback(server: &str) -> Result<(), String> {
    let uri: Uri = server.parse().map_err(|error| format!("server {server}: {error}"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match (here, uri.scheme_str()) {
        (true, Some("https")) => Ok(()),
        (true, _) => Err(format!("server {server} is not an https URL")),
        (false, _) => Err(format!(
            "server {server} is not on this machine's loopback interface: everybody who reaches the sandbox \
             gets the kubeconfig's rights, so only a server for trying things out can stand behind it"
        )),
    }
}

/// Returns TLS settings that trust only this certificate authority.
fn tls(authority: &str, certificate: Option<(String, String)>) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    for root in certificates(authority)? {
        roots.add(root).map_err(|error| format!("certificate-authority: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some((certificate, key)) = certificate else { return Ok(builder.with_no_client_auth()) };
    let key =
        PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| format!("client-key: {error}"))?;
    builder
        .with_client_auth_cert(certificates(&certificate)?, key)
        .map_err(|error| format!("client-certificate: {error}"))
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(read) if read.is_empty() => Err("a certificate is not in PEM".to_owned()),
        Ok(read) => Ok(read),
        Err(error) => Err(format!("a certificate cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubeconfig as people write it, with a certificate of its own.
    fn written(server: &str, user: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("certificate");
        let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("write");
        file("ca.pem", &made.cert.pem());
        file("client.key", &made.signing_key.serialize_pem());
        file("token", "from-a-file\n");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts:\n- name: here\n  context: \
             {{cluster: c, user: u}}\nclusters:\n- name: c\n  cluster:\n    server: {server}\n    \
             certificate-authority: ca.pem\nusers:\n- name: u\n  user: {user}\n"
        );
        file("kubeconfig", &text);
        let path = folder.path().join("kubeconfig");
        (folder, path)
    }

    #[test]
    fn tokens_and_certificates_are_read() {
        let table = [
            ("{token: abc}", Some("abc")),
            ("{tokenFile: token}", Some("from-a-file")),
            ("{client-certificate: ca.pem, client-key: client.key}", None),
        ];
        for (user, token) in table {
            let (_folder, path) = written("https://127.0.0.1:6443/", user);
            let access = Access::read(&path).expect(user);
            assert_eq!((access.server.as_str(), access.token.as_deref()), ("https://127.0.0.1:6443", token));
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let table = [
            ("https://10.1.2.3:6443", "{token: a}", "not on this machine's loopback interface"),
            ("https://kubernetes.example:6443", "{token: a}", "not on this machine's loopback interface"),
            ("http://127.0.0.1:8080", "{token: a}", "not an https URL"),
            ("https://[::1]:6443", "{exec: {command: x}}", "neither a token nor a client certificate"),
            ("https://localhost:6443", "{tokenFile: nowhere}", "\": cannot read tokenFile /"),
            (
                "https://localhost:6443",
                "{client-certificate: ca.pem, client-key: nowhere}",
                "\": cannot read client-key /",
            ),
        ];
        for (server, user, expected) in table {
            let (_folder, path) = written(server, user);
            let refused = Access::read(&path).err().unwrap_or_default();
            assert!(refused.contains(expected), "{server} {user}: {refused}");
        }
    }
}
