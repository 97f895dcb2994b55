//! The lock of a folder, and the certificates of a listener.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::error::SandboxError;

/// The file that names the process that serves a folder.
pub(super) const SERVED: &str = "serve.json";

/// The lock of a folder; released when this value is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Unlocks explicitly, because closing the file is not enough: a child process that another thread is starting has a copy of
    /// the open file until it executes its program, and would keep the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Creates the folder if it does not exist, and takes its lock. The lock file contains the process ID.
    pub fn take(dir: &Path) -> Result<Self, SandboxError> {
        if fs::symlink_metadata(dir).is_ok_and(|found| found.is_symlink()) {
            return Err(SandboxError::Link { dir: dir.to_owned() });
        }
        make_private_folder(dir)
            .map_err(|error| SandboxError::io(format!("make the folder {}", dir.display()), error))?;
        if has_other_owner(dir) {
            return Err(SandboxError::OfOthers { dir: dir.to_owned() });
        }
        let path = dir.join("lock");
        let open = || File::options().create(true).truncate(false).read(true).write(true).open(&path);
        loop {
            let mut file = open()
                .map_err(|error| SandboxError::io(format!("open the lock {}", path.display()), error))?;
            match file.try_lock() {
                // A reset may have deleted it between the two.
                Ok(()) if !is_at(&file, &path) => {}
                Ok(()) => {
                    // The pid in the file is information only; the lock holds without it.
                    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                    return Ok(Self { file });
                }
                Err(TryLockError::WouldBlock) => {
                    let pid = serving_process(dir).or_else(|| holder(&path));
                    return Err(SandboxError::InUse { dir: dir.to_owned(), pid });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(SandboxError::io(format!("lock {}", path.display()), error));
                }
            }
        }
    }
}

/// Returns true if another user owns a folder and so decides what its files say about endpoints and certificates.
pub fn has_other_owner(dir: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let owner = |found: std::io::Result<fs::Metadata>| found.ok().map(|found| found.uid());
        // Whoever runs this owns what it makes.
        let us = owner(tempfile::tempfile().and_then(|file| file.metadata()));
        let there = owner(fs::symlink_metadata(dir));
        there.is_some() && us.is_some() && there != us
    }
    #[cfg(not(unix))]
    {
        let _ = dir;
        false
    }
}

/// Returns true if `path` still names this file.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let same =
            |one: fs::Metadata, other: fs::Metadata| one.ino() == other.ino() && one.dev() == other.dev();
        match (file.metadata(), fs::metadata(path)) {
            (Ok(one), Ok(other)) => same(one, other),
            _ => false,
        }
    }
    #[cfg(not(unix))]
    {
        // An open file cannot be deleted there.
        let _ = (file, path);
        true
    }
}

/// Returns the ID of the process that wrote it into the lock file.
fn holder(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the ID of the process that claims to serve the folder.
fn serving_process(dir: &Path) -> Option<u32> {
    let text = fs::read_to_string(dir.join(SERVED)).ok()?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    u32::try_from(value["pid"].as_u64()?).ok()
}

/// The file in the folder with the token that clients of a sandbox with a real API server must send.
pub const TOKEN: &str = "access-token";

/// Returns the token of a folder, created if it does not exist. It is kept because kubeconfigs outlive the process that wrote
/// them.
pub(super) fn token(dir: Option<&Path>) -> Result<String, SandboxError> {
    let is_token = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let file = dir.map(|dir| dir.join(TOKEN));
    let kept = file.as_ref().filter(|file| fs::symlink_metadata(file).is_ok_and(|found| found.is_file()));
    if let Some(text) = kept.and_then(|file| fs::read_to_string(file).ok())
        && is_token(text.trim())
    {
        return Ok(text.trim().to_owned());
    }
    // A new key is as random as anything that could be asked for.
    let key = KeyPair::generate().map_err(|error| SandboxError::io("make a token", error))?;
    let token = blake3::hash(&key.serialize_der()).to_hex().to_string();
    if let Some(file) = file {
        write_private(&file, &format!("{token}\n"))?;
    }
    Ok(token)
}

/// The certificate authority of every cluster of a sandbox.
#[derive(Debug)]
pub(super) struct Authority {
    certificate: String,
    key: String,
}

impl Authority {
    pub fn new() -> Result<Self, SandboxError> {
        let make = || -> Result<Self, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::new(Vec::new())?;
            params.distinguished_name.push(DnType::CommonName, "dask-infra sandbox");
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
            let certificate = params.self_signed(&key)?.pem();
            Ok(Self { certificate, key: key.serialize_pem() })
        };
        make().map_err(|error| SandboxError::io("make a certificate authority", error))
    }

    /// Returns the certificate authority of the folder, created if it does not exist. It is kept because kubeconfigs outlive the
    /// process that wrote them.
    pub fn kept_in(dir: &Path) -> Result<Self, SandboxError> {
        let (certificate, key) = (dir.join("ca.pem"), dir.join("ca.key"));
        if let (Ok(certificate), Ok(key)) = (fs::read_to_string(&certificate), fs::read_to_string(&key)) {
            return Ok(Self { certificate, key });
        }
        let made = Self::new()?;
        write_private(&key, &made.key)?;
        write_private(&certificate, &made.certificate)?;
        Ok(made)
    }

    /// Returns the certificate of the authority, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the TLS settings of a listener on loopback: a new certificate for `127.0.0.1` and `localhost`.
    pub fn server(&self) -> Result<Arc<rustls::ServerConfig>, SandboxError> {
        let failed = |error: &dyn std::fmt::Display| SandboxError::io("make a server certificate", error);
        let (leaf, key) = self.leaf().map_err(|error| failed(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
                builder.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key)
            })
            .map_err(|error| failed(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn leaf(&self) -> Result<(rcgen::Certificate, KeyPair), rcgen::Error> {
        // Not from the stored certificate: reading one needs a parser, and only its name and key matter.
        let mut issuer = CertificateParams::new(Vec::new())?;
        issuer.distinguished_name.push(DnType::CommonName, "dask-infra sandbox");
        issuer.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let issuer = Issuer::new(issuer, KeyPair::from_pem(&self.key)?);
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &issuer)?, key))
    }
}

/// Creates a folder, if it does not exist, that only this user can read.
fn make_private_folder(dir: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(dir)
}

/// Writes, atomically, a file that only this user can read. A symbolic link in its place is replaced, not followed.
pub fn write_private(path: &Path, text: &str) -> Result<(), SandboxError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // It is 0600 from the start.
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.persist(path).map_err(|error| error.error)
    });
    written.map(drop).map_err(|error| SandboxError::io(format!("write {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_a_folder() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let lock = Lock::take(dir.path()).expect("free");
        let error = Lock::take(dir.path()).expect_err("taken").to_string();
        assert!(error.contains(&format!("(process {})", std::process::id())), "{error}");
        fs::write(dir.path().join(SERVED), r#"{"pid": 42}"#).expect("write");
        let error = Lock::take(dir.path()).expect_err("taken").to_string();
        assert!(error.contains("in use by another sandbox (process 42)"), "{error}");
        drop(lock);
        Lock::take(dir.path()).expect("free again");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_written_is_private_and_no_link_is_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("temporary folder");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        let (victim, link) = (dir.path().join("victim"), dir.path().join("link"));
        fs::write(&victim, "theirs").expect("write");
        std::os::unix::fs::symlink(&victim, &link).expect("link");
        write_private(&link, "ours").expect("write");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "theirs");
        assert_eq!((fs::read_to_string(&link).expect("read").as_str(), mode(&link)), ("ours", 0o600));
        let made = dir.path().join("a/b");
        let _lock = Lock::take(&made).expect("free");
        Authority::kept_in(&made).expect("made");
        assert_eq!(mode(&made), 0o700);
        assert_eq!((mode(&made.join("ca.pem")), mode(&made.join("ca.key"))), (0o600, 0o600));
    }

    #[test]
    fn a_token_stays_with_its_folder_and_is_nobody_elses() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = dir.path().join(TOKEN);
        // As `sandbox env` writes it for clients that want any.
        fs::write(&file, "sandbox\n").expect("write");
        let first = token(Some(dir.path())).expect("made");
        assert_eq!(first.len(), 64);
        assert_eq!(fs::read_to_string(&file).expect("kept").trim(), first);
        assert_eq!(token(Some(dir.path())).expect("read"), first);
        assert_ne!(token(None).expect("made"), first);
    }

    #[test]
    fn the_authority_stays_and_signs() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let first = Authority::kept_in(dir.path()).expect("made");
        let again = Authority::kept_in(dir.path()).expect("read");
        assert_eq!(first.certificate(), again.certificate());
        again.server().expect("a server certificate");
    }
}
