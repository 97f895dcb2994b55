//! Certificates of Dask clusters on hosts. Each cluster has its own authority, which signs one certificate. Its key is then
//! discarded, so nobody can sign another one. The agent on the scheduler's host receives the certificates through its pipe and
//! stores them as files. Other hosts and clients get copies from there. The certificates are never in a plan, a record or the
//! arguments of a program.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::{Map, Value, json};

use crate::shape::ApiPath;
use crate::{Request, private_files};
use model::resource::{Host, HostConnection, Method};

/// The lifetime of certificates, in days. Plans warn when a twelfth of it, two months, is left.
const VALID_DAYS: i64 = 730;

/// The protocol of a scheduler with TLS.
pub(super) const TLS: &str = "tls";

/// The subresource with the certificates of a Dask cluster.
pub const CERTIFICATES: &str = "certificates";

/// Certificates to write to a host, keyed by the plural and the name of their object. They are copies of those on the scheduler's
/// host.
#[derive(Default)]
pub(super) struct HostCertificates(Mutex<BTreeMap<(String, String), Value>>);

impl HostCertificates {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, String), Value>> {
        // Nothing that holds it can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep(&self, plural: &str, name: &str, certificates: Value) {
        self.all().insert((plural.to_owned(), name.to_owned()), certificates);
    }

    /// Returns the certificates to send with a request: copies of those of the Dask cluster that it writes, or new ones. An agent
    /// that already has certificates ignores them.
    pub(super) fn for_request(&self, request: &Request) -> Option<Value> {
        let api_path = tls_cluster(request)?;
        let known = self.all().get(&api_path).cloned();
        // Others than those of the scheduler would be of no use to a host without it.
        let spec = &request.body.as_ref()?["spec"];
        let on = &spec["scheduler"]["on"];
        let leads = spec["host"].is_null() || on.is_null() || *on == spec["host"];
        known.or_else(|| if leads { new_certificates(Timestamp::now()) } else { None })
    }
}

/// Returns the plural and the name of the Dask cluster that a request writes, if it uses TLS.
pub(super) fn tls_cluster(request: &Request) -> Option<(String, String)> {
    let body = request.body.as_ref().filter(|_| request.method == Method::Patch)?;
    if body["spec"]["scheduler"]["protocol"] != TLS {
        return None;
    }
    let api_path = ApiPath::parse(request.path.split('?').next().unwrap_or_default())?;
    Some((api_path.plural.to_owned(), api_path.name?.to_owned()))
}

/// Creates an authority and its certificate for scheduler, workers and clients. If this fails, the agent reports missing
/// certificates.
fn new_certificates(now: Timestamp) -> Option<Value> {
    let day = |timestamp: Timestamp| {
        let date = timestamp.to_zoned(TimeZone::UTC).date();
        let (year, month, day) = (date.year(), date.month().unsigned_abs(), date.day().unsigned_abs());
        (date_time_ymd(year.into(), month, day), format!("{date}T00:00:00Z"))
    };
    // Clocks of hosts may be behind.
    let (begins, ends) =
        (now.checked_sub(24.hours()).ok()?, now.checked_add((24 * VALID_DAYS).hours()).ok()?);
    let ((not_before, begins), (not_after, ends)) = (day(begins), day(ends));
    let params = |name: &str| -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (not_before, not_after);
        Ok(params)
    };
    let make = || -> Result<Value, rcgen::Error> {
        let mut authority = params("dask-infra authority of a Dask cluster")?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let signs = KeyPair::generate()?;
        let signed = authority.self_signed(&signs)?.pem();
        let issuer = Issuer::new(authority, signs);
        let mut own = params("dask-infra Dask cluster")?;
        own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        own.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        own.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = own.signed_by(&key, &issuer)?.pem();
        Ok(json!({
            "authority": signed, "certificate": certificate, "key": key.serialize_pem(),
            "begins": begins, "ends": ends,
        }))
    };
    make().ok()
}

/// The files of a client by the options of Dask's `Security`.
const CLIENT_FILES: [(&str, &str, &str); 3] = [
    ("tls_ca_file", "ca.pem", "authority"),
    ("tls_client_cert", "cert.pem", "certificate"),
    ("tls_client_key", "key.pem", "key"),
];

/// Returns this user's folder for copies of a Dask cluster's certificates, and its parents, innermost first.
fn folders_for_clients(host: &Host, cluster: &str) -> Option<[PathBuf; 3]> {
    let base = private_files::state_dir()?.join("dask-infra");
    let clients = base.join("clients");
    Some([clients.join(name_for_clients(host, cluster)), clients, base])
}

/// Returns a readable and unique name: two stacks may have a host of the same name, or a Dask cluster.
fn name_for_clients(host: &Host, cluster: &str) -> String {
    let (user, port) = match &host.connection {
        HostConnection::Ssh { user, port, .. } => {
            (user.as_deref().unwrap_or_default(), port.unwrap_or_default())
        }
        HostConnection::Local => ("", 0),
    };
    let identity = format!("{user}\0{}\0{port}\0{cluster}", host.address());
    let known: String = cluster.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    format!("{known}-{}", &blake3::hash(identity.as_bytes()).to_hex()[..16])
}

/// Returns the options of Dask's `Security` for a client: paths of files that only this user can read. If the scheduler runs on
/// this machine, they are the agent's own files. Otherwise they are copies, which are kept until the Dask cluster is deleted.
///
/// # Errors
///
/// The files cannot be written.
pub fn keep_for_clients(host: &Host, cluster: &str, found: &Value) -> Result<Value, String> {
    let text = |field: &str| found[field].as_str().filter(|text| !text.is_empty());
    let folder = match host.connection {
        HostConnection::Local => PathBuf::from(text("folder").ok_or("the host does not say where they are")?),
        HostConnection::Ssh { .. } => {
            let [folder, clients, base] =
                folders_for_clients(host, cluster).ok_or("neither XDG_STATE_HOME nor HOME is set")?;
            private_files::create_dir(&base)?;
            private_files::create_private_dir(&clients)?;
            let folder = private_files::create_private_dir(&folder)?;
            for (_, name, field) in CLIENT_FILES {
                let pem = text(field).ok_or("the host did not send them")?;
                write(&folder, name, pem).map_err(|error| error.to_string())?;
            }
            folder
        }
    };
    let paths = CLIENT_FILES.map(|(option, name, _)| (option.to_owned(), json!(folder.join(name))));
    let mut options: Map<String, Value> = paths.into_iter().collect();
    options.insert("require_encryption".to_owned(), json!(true));
    Ok(Value::Object(options))
}

/// Writes a file with mode 0600 from the start, replacing an existing one.
fn write(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(folder.join(name)).map_err(|error| error.error)?;
    Ok(())
}

/// Removes the copies for clients of a Dask cluster, and folders that have become empty.
pub(super) fn forget_for_clients(host: &Host, cluster: &str) {
    let Some([folder, clients, base]) = folders_for_clients(host, cluster) else { return };
    // Usually there are none.
    if fs::remove_dir_all(&folder).is_ok() {
        for above in [clients, base] {
            let _ = fs::remove_dir(above);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::Api;

    #[test]
    fn only_what_speaks_tls_gets_certificates_and_none_are_in_its_request() {
        let write = |protocol: &str| Request {
            api: Api::Kubernetes,
            method: Method::Patch,
            path: "/apis/hosts.dask-infra.dev/v1/clusters/c?fieldManager=x".to_owned(),
            body: Some(json!({ "spec": { "scheduler": { "protocol": protocol } } })),
        };
        let given = HostCertificates::default();
        assert_eq!(given.for_request(&write("tcp")), None);
        assert_eq!(given.for_request(&Request::get(Api::Kubernetes, write(TLS).path)), None);
        let made = given.for_request(&write(TLS)).unwrap();
        assert!(made["key"].as_str().unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
        assert_ne!(given.for_request(&write(TLS)).unwrap()["authority"], made["authority"]);
        let mut elsewhere = write(TLS);
        elsewhere.body = elsewhere.body.map(|mut body| {
            body["spec"]["host"] = json!("n2");
            body["spec"]["scheduler"]["on"] = json!("n1");
            body
        });
        assert_eq!(given.for_request(&elsewhere), None);
        given.keep("clusters", "c", json!({ "key": "of the scheduler's host" }));
        assert_eq!(given.for_request(&write(TLS)).unwrap()["key"], "of the scheduler's host");
    }

    #[test]
    fn certificates_hold_for_two_years() {
        let made = new_certificates("2026-11-28T10:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(
            (&made["begins"], &made["ends"]),
            (&json!("2026-11-27T00:00:00Z"), &json!("2028-11-27T00:00:00Z"))
        );
    }
    #[test]
    fn clients_of_each_dask_cluster_have_a_folder_of_their_own() {
        let host = |address: &str, user: Option<&str>| Host {
            name: "login".to_owned(),
            connection: HostConnection::Ssh {
                address: address.to_owned(),
                user: user.map(str::to_owned),
                port: None,
                identity: None,
                python: None,
                prologue: Vec::new(),
            },
            slurm: false,
        };
        let names = [
            name_for_clients(&host("a", None), "work"),
            name_for_clients(&host("b", None), "work"),
            name_for_clients(&host("a", Some("u")), "work"),
            name_for_clients(&host("a", None), "other"),
        ];
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{names:?}");
        }
        assert!(names[0].starts_with("work-"));
        assert!(!name_for_clients(&host("a", None), "../../x").contains(['/', '.']));
    }
}
