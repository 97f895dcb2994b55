//! Certificate authorities that a connection trusts, and the remedy for others. Waiting does not help with certificates.

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
    /// Returns the remedy for a certificate of another authority.
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

/// Returns true if the server's certificate prevents a connection, anywhere in the chain of causes. The error inside an IO error
/// is not its source.
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
