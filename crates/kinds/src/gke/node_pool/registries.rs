//! Settings of containerd for registries. Settings without a short form stay under `api`, also after an import.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::json::text;

/// Returns `registryHosts` of mirrors by their registry. A host without capabilities has all of them. Source: the GKE API's
/// reference, `RegistryHostConfig`.
pub(super) fn hosts(mirrors: &BTreeMap<String, Vec<String>>) -> Option<Value> {
    let host = |mirror: &String| json!({ "host": mirror });
    let registry = |(server, mirrors): (&String, &Vec<String>)| json!({ "server": server, "hosts": mirrors.iter().map(host).collect::<Vec<_>>() });
    (!mirrors.is_empty()).then(|| mirrors.iter().map(registry).collect())
}

/// Returns the mirrors of a live pool; empty if the short form cannot express all settings.
pub(super) fn mirrors(live: &Value) -> BTreeMap<String, Vec<String>> {
    let registry = |live: &Value| {
        let hosts = live["hosts"].as_array().into_iter().flatten();
        (text(&live["server"]).to_owned(), hosts.map(|host| text(&host["host"]).to_owned()).collect())
    };
    let found: BTreeMap<_, _> = live.as_array().into_iter().flatten().map(registry).collect();
    if hosts(&found).as_ref() == Some(live) { found } else { BTreeMap::new() }
}

/// Returns `privateRegistryAccessConfig` of secrets by the domain of the registry.
pub(super) fn access(certificates: &BTreeMap<String, String>) -> Option<Value> {
    let domain = |(domain, secret): (&String, &String)| json!({ "fqdns": [domain], "gcpSecretManagerCertificateConfig": { "secretUri": secret } });
    let domains: Vec<Value> = certificates.iter().map(domain).collect();
    let access = json!({ "enabled": true, "certificateAuthorityDomainConfig": domains });
    (!certificates.is_empty()).then_some(access)
}

/// Returns the certificates of a live pool; empty if the short form cannot express all settings.
pub(super) fn certificates(live: &Value) -> BTreeMap<String, String> {
    let domain = |live: &Value| {
        let secret = text(&live["gcpSecretManagerCertificateConfig"]["secretUri"]);
        (text(&live["fqdns"][0]).to_owned(), secret.to_owned())
    };
    let domains = live["certificateAuthorityDomainConfig"].as_array().into_iter().flatten();
    let found: BTreeMap<_, _> = domains.map(domain).collect();
    if access(&found).as_ref() == Some(live) { found } else { BTreeMap::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_table_of_names_says_comes_back_and_nothing_else_does() {
        let table =
            BTreeMap::from([("docker.io".to_owned(), vec!["https://a".to_owned(), "https://b".to_owned()])]);
        let live = hosts(&table).unwrap();
        assert_eq!(mirrors(&live), table);
        let mut more = live.clone();
        more[0]["hosts"][0]["overridePath"] = json!(true);
        assert!(mirrors(&more).is_empty());

        let table = BTreeMap::from([("r.example".to_owned(), "projects/p/secrets/s/versions/1".to_owned())]);
        let live = access(&table).unwrap();
        assert_eq!(certificates(&live), table);
        let mut more = live.clone();
        more["certificateAuthorityDomainConfig"][0]["fqdns"] = json!(["r.example", "s.example"]);
        assert!(certificates(&more).is_empty());
        assert_eq!((hosts(&BTreeMap::new()), access(&BTreeMap::new())), (None, None));
    }
}
