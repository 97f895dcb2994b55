//! The address of a GKE cluster's Kubernetes API, and the authority of its certificate. Pure. Source: `gcloud container clusters
//! get-credentials` (`--internal-ip`, `--dns-endpoint`), and Config Connector's recorded cluster without IP endpoints, whose
//! `endpoint` is its DNS name.

use serde_json::Value;

use model::resource::Endpoint;

/// The suffix of DNS names of control planes, which have a public certificate.
const DNS: &str = ".gke.goog";

/// An address of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlPlaneAddress<'a> {
    /// `34.1.2.3`, `127.0.0.1:4443`, `gke-….us-central1.gke.goog`.
    pub host: &'a str,
    /// The cluster's own certificate authority, base64 of PEM. `None` for a public certificate.
    pub authority: Option<&'a str>,
}

/// Why the cluster does not have the requested endpoint, and the command that enables it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub why: String,
    pub remedy: String,
}

/// Returns the API's field `endpoint`, once the control plane has one.
pub fn endpoint(cluster: &Value) -> Option<&str> {
    text(cluster, "/endpoint")
}

/// Returns the address to use; `None` while the control plane has none.
///
/// # Errors
///
/// The cluster has no such endpoint.
pub fn address(cluster: &Value, requested: Endpoint) -> Result<Option<ControlPlaneAddress<'_>>, Closed> {
    let Some(usual) = endpoint(cluster) else { return Ok(None) };
    let name = cluster["name"].as_str().unwrap_or("the cluster");
    let authority = text(cluster, "/masterAuth/clusterCaCertificate");
    let by_ip = |host| ControlPlaneAddress { host, authority };
    let dns = text(cluster, "/controlPlaneEndpointsConfig/dnsEndpointConfig/endpoint");
    let by_dns = |host| ControlPlaneAddress { host, authority: None };
    let found = match requested {
        Endpoint::Auto if is_only_dns(cluster) => by_dns(dns.unwrap_or(usual)),
        Endpoint::Auto => by_ip(usual),
        Endpoint::Dns => {
            match dns.filter(|_| !is_false(cluster, "/dnsEndpointConfig/allowExternalTraffic")) {
                Some(host) => by_dns(host),
                None => return Err(closed(name, "DNS", "--enable-dns-access")),
            }
        }
        Endpoint::Public => {
            let open = !is_false(cluster, "/ipEndpointsConfig/enablePublicEndpoint");
            let public = text(cluster, "/controlPlaneEndpointsConfig/ipEndpointsConfig/publicEndpoint");
            let older = || text(cluster, "/privateClusterConfig/publicEndpoint");
            match public.or_else(older).or_else(|| ip(usual)).filter(|_| open && has_ip(cluster)) {
                Some(host) => by_ip(host),
                None => return Err(closed(name, "public", "--no-enable-private-endpoint")),
            }
        }
        Endpoint::Private => {
            let private = text(cluster, "/controlPlaneEndpointsConfig/ipEndpointsConfig/privateEndpoint");
            let older = || text(cluster, "/privateClusterConfig/privateEndpoint");
            match private.or_else(older).filter(|_| has_ip(cluster)) {
                Some(host) => by_ip(host),
                None => return Err(closed(name, "private", "--enable-ip-access")),
            }
        }
    };
    Ok(Some(found))
}

fn closed(name: &str, which: &str, flag: &str) -> Closed {
    Closed {
        why: format!("the GKE cluster {name} has no {which} endpoint that is open"),
        remedy: format!(
            "`gcloud container clusters update {name} {flag}` opens it; or choose another one: `endpoint` in [cluster], \
             `--endpoint` of import"
        ),
    }
}

/// Returns true if only the DNS endpoint can be reached from outside.
fn is_only_dns(cluster: &Value) -> bool {
    let usual_is_dns = endpoint(cluster).is_some_and(|endpoint| endpoint.ends_with(DNS));
    let open = cluster.pointer("/controlPlaneEndpointsConfig/dnsEndpointConfig/allowExternalTraffic");
    let no_public = is_false(cluster, "/ipEndpointsConfig/enablePublicEndpoint");
    usual_is_dns || !has_ip(cluster) || (no_public && open == Some(&Value::Bool(true)))
}

fn has_ip(cluster: &Value) -> bool {
    !is_false(cluster, "/ipEndpointsConfig/enabled")
}

/// Returns true if a switch is off. A missing switch, as in responses of an older API, is on.
fn is_false(cluster: &Value, switch: &str) -> bool {
    cluster.pointer(&format!("/controlPlaneEndpointsConfig{switch}")) == Some(&Value::Bool(false))
}

fn ip(host: &str) -> Option<&str> {
    (!host.ends_with(DNS)).then_some(host)
}

fn text<'a>(cluster: &'a Value, pointer: &str) -> Option<&'a str> {
    cluster.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAME: &str = "gke-1a2b-123.us-central1-c.gke.goog";

    /// Returns a cluster as GKE shows it, with these switches.
    fn cluster(enabled: bool, public: bool, dns: bool) -> Value {
        json!({
            "name": "c",
            "endpoint": if enabled { "34.1.2.3" } else { NAME },
            "masterAuth": { "clusterCaCertificate": "Q0E=" },
            "controlPlaneEndpointsConfig": {
                "dnsEndpointConfig": { "endpoint": NAME, "allowExternalTraffic": dns },
                "ipEndpointsConfig": { "enabled": enabled, "enablePublicEndpoint": public,
                    "privateEndpoint": "10.0.0.2", "publicEndpoint": "34.1.2.3" },
            },
        })
    }

    #[test]
    fn the_way_in_goes_by_the_switches_and_by_what_is_asked_for() {
        use Endpoint::{Auto, Dns, Private, Public};
        let rows = [
            ((true, true, false), Auto, Some(("34.1.2.3", true))),
            ((true, true, true), Auto, Some(("34.1.2.3", true))),
            ((true, false, false), Auto, Some(("34.1.2.3", true))),
            ((true, false, true), Auto, Some((NAME, false))),
            ((false, false, true), Auto, Some((NAME, false))),
            ((false, true, true), Auto, Some((NAME, false))),
            ((true, true, true), Dns, Some((NAME, false))),
            ((true, true, false), Dns, None),
            ((true, true, true), Public, Some(("34.1.2.3", true))),
            ((true, false, true), Public, None),
            ((false, true, true), Public, None),
            ((true, true, true), Private, Some(("10.0.0.2", true))),
            ((false, true, true), Private, None),
        ];
        for ((enabled, public, dns), requested, expect) in rows {
            let cluster = cluster(enabled, public, dns);
            let found = address(&cluster, requested).ok().flatten();
            let found = found.map(|found| (found.host, found.authority.is_some()));
            assert_eq!(found, expect, "{enabled} {public} {dns} {requested:?}");
        }
    }

    #[test]
    fn a_cluster_of_an_older_api_and_one_that_is_being_made() {
        let older = json!({ "name": "c", "endpoint": "34.1.2.3", "masterAuth": { "clusterCaCertificate": "Q0E=" },
            "privateClusterConfig": { "privateEndpoint": "10.0.0.2", "publicEndpoint": "34.1.2.3" } });
        for (requested, host) in
            [(Endpoint::Auto, "34.1.2.3"), (Endpoint::Public, "34.1.2.3"), (Endpoint::Private, "10.0.0.2")]
        {
            assert_eq!(
                address(&older, requested),
                Ok(Some(ControlPlaneAddress { host, authority: Some("Q0E=") }))
            );
        }
        let closed = address(&older, Endpoint::Dns).unwrap_err();
        assert!(
            closed.why.contains("no DNS endpoint") && closed.remedy.contains("--enable-dns-access"),
            "{closed:?}"
        );
        assert_eq!(address(&json!({ "name": "c", "status": "PROVISIONING" }), Endpoint::Dns), Ok(None));
    }
}
