//! Kinds of CRDs that GKE installs in every cluster, from `schemas/gke/`.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{Api, Schema};

/// The API group of ProvisioningRequests.
pub const AUTOSCALING_GROUP: &str = "autoscaling.x-k8s.io";

/// Returns the CRD of ProvisioningRequests.
pub fn provisioning_crd() -> &'static Value {
    static CRD: OnceLock<Value> = OnceLock::new();
    CRD.get_or_init(|| {
        serde_json::from_str(include_str!("../../../../schemas/gke/provisioningrequest.json"))
            .unwrap_or_default()
    })
}

/// Returns the kinds as in API discovery.
pub fn served_apis() -> &'static [Api] {
    static APIS: OnceLock<Vec<Api>> = OnceLock::new();
    APIS.get_or_init(|| Api::from_crd(provisioning_crd()))
}

/// Returns the schema of one of these kinds in one of its versions.
pub fn served(group: &str, version: &str, kind: &str) -> Option<Schema> {
    let crd = provisioning_crd();
    if (group, kind) != (AUTOSCALING_GROUP, crd["spec"]["names"]["kind"].as_str()?) {
        return None;
    }
    let versions = crd["spec"]["versions"].as_array()?;
    let found = versions.iter().find(|found| found["name"] == version)?;
    Some(Schema::from_crd(&found["schema"]["openAPIV3Schema"]))
}

/// A kind whose CRD GKE installs without publishing it: its fields are unknown.
pub struct Installed {
    pub api: Api,
    /// The key of `[cluster]`, the API field or the feature that adds the CRD; empty if every cluster has it.
    pub with: &'static str,
}

/// Returns the kinds whose CRDs are not published, from `schemas/gke/kinds.tsv`.
pub fn installed() -> &'static [Installed] {
    static KINDS: OnceLock<Vec<Installed>> = OnceLock::new();
    KINDS.get_or_init(|| {
        let rows = include_str!("../../../../schemas/gke/kinds.tsv")
            .lines()
            .filter(|row| !row.starts_with('#'))
            .skip(1);
        rows.filter_map(|row| {
            let columns: Vec<&'static str> = row.split('\t').collect();
            let &[group, version, kind, plural, scope, with, _source] = columns.as_slice() else {
                return None;
            };
            let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
            let api = Api {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                plural: plural.to_owned(),
                singular: kind.to_lowercase(),
                short_names: Vec::new(),
                categories: Vec::new(),
                namespaced: scope == "Namespaced",
                verbs: verbs.map(str::to_owned).to_vec(),
                subresources: vec!["status".to_owned()],
            };
            Some(Installed { api, with })
        })
        .collect()
    })
}

/// Returns a CRD for one of these kinds with all its versions, which allows any fields.
pub fn installed_crd(group: &str, plural: &str) -> Option<Value> {
    let rows = installed().iter().map(|row| &row.api);
    let rows: Vec<&Api> = rows.filter(|api| api.group == group && api.plural == plural).collect();
    let first = rows.first()?;
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = |(place, api): (usize, &&Api)| {
        json!({
            "name": api.version, "served": true, "storage": place == 0, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": any },
        })
    };
    let versions: Vec<Value> = rows.iter().enumerate().map(version).collect();
    Some(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "names": {
                "kind": first.kind, "listKind": format!("{}List", first.kind), "plural": plural,
                "singular": first.singular,
            },
            "scope": if first.namespaced { "Namespaced" } else { "Cluster" },
            "versions": versions,
        },
    }))
}
