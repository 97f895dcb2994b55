//! Certificate authorities that a connection trusts, and the remedies for untrusted certificates. Such errors are not retried, as
//! waiting does not help.

/// Certificate authorities that a connection trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The authorities of the system's store, or of SSL_CERT_FILE.
    #[default]
    Public,
    /// The authority that GKE names for a cluster.
    Cluster,
    /// The settings of a kubeconfig.
    Kubeconfig,
}

impl Trust {
    /// Returns the remedy for a certificate of an untrusted authority.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Public => {
                "its certificate must be of an authority that this machine trusts, and a proxy that intercepts TLS has one \
                 of its own: add it to the system's store, name a file with all authorities in SSL_CERT_FILE, or bypass \
                 the proxy (NO_PROXY)"
            }
            Self::Cluster => {
                "its certificate must be of the cluster's own authority, so something in between intercepts TLS: bypass it \
                 (NO_PROXY), or use the DNS endpoint (`endpoint = \"dns\"` in [cluster]), for which the system's store and \
                 SSL_CERT_FILE count"
            }
            Self::Kubeconfig => {
                "its certificate must be of the authority that the kubeconfig names (`certificate-authority-data`); if it \
                 names none, of one in the system's store or in SSL_CERT_FILE"
            }
        }
    }
}

/// Returns true if any cause in the chain is an untrusted server certificate. Also looks inside IO errors, whose inner error is
/// not their `source()`.
pub fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if matches!(cause.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))) {
            return true;
        }
        let held = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = held.map_or_else(|| cause.source(), |held| Some(held));
    }
    false
}
