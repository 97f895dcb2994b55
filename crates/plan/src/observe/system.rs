//! System namespaces, and the objects in them that belong to Kubernetes, GKE or this program. All other objects in them belong to
//! users, who lose them with the cluster.

use serde_json::Value;

use model::record::{self, Record};
use model::resource::ObjectId;

/// The system namespaces, by their full names: people use names like `kube-monitoring` for their own. Source: a new GKE cluster,
/// <https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-configuration-overview>, its add-ons and fleets. The list is
/// from memory, and GKE may extend it, so an add-on label is enough in any namespace ([`has_addon_key`]).
const NAMESPACES: [&str; 14] = [
    "config-management-monitoring",
    "config-management-system",
    "gke-connect",
    "gke-gmp-system",
    "gke-managed-cim",
    "gke-managed-system",
    "gke-mcs",
    "gke-system",
    "gmp-public",
    "gmp-system",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    "resource-group-system",
];
/// Prefixes of other namespaces that GKE creates. Objects in one count as GKE's only by their labels and annotations.
const PREFIXES: [&str; 4] = ["gke-managed-", "gke-gmp-", "gmp-", "config-management-"];

/// Keys of labels and annotations of the system's objects: of GKE's add-on manager (as on `kube-dns` and the GPU
/// device plugin), its components, Kubernetes' own roles, Config Sync. A key that ends with `/` stands for all of its
/// keys.
const ADDON_KEYS: [&str; 5] = [
    "addonmanager.kubernetes.io/mode",
    "components.gke.io/",
    "configmanagement.gke.io/",
    "configsync.gke.io/",
    "kubernetes.io/bootstrapping",
];
/// Field managers of the control plane. The manager of a client that sets none is the name of its program (client-go,
/// `DefaultKubernetesUserAgent`). GKE's are from memory.
const MANAGERS: [&str; 8] = [
    "cloud-controller-manager",
    "cluster-autoscaler",
    "cluster-proportional-autoscaler",
    "glbc",
    "kube-addon-manager",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];
/// The field manager of the operator of Managed Service for Prometheus, in its own namespaces.
const PROMETHEUS: (&[&str], &str) = (&["gke-gmp-system", "gmp-public", "gmp-system"], "operator");
/// ConfigMaps of GKE's control plane in `kube-system` without add-on labels, by their full names. From memory.
const CONFIG_MAPS: [&str; 6] = [
    "cluster-kubestore",
    "clustermetrics",
    "extension-apiserver-authentication",
    "gke-common-webhook-heartbeat",
    "ingress-uid",
    "kube-apiserver-legacy-service-account-token-tracking",
];

/// Returns true for a system namespace.
pub(crate) fn is_system(namespace: &str) -> bool {
    NAMESPACES.contains(&namespace) || namespace == record::NAMESPACE
}

/// Returns true for a namespace that Kubernetes, GKE or this program created, and no user of the cluster.
pub(crate) fn is_created_by_system(namespace: &str, live: &Value) -> bool {
    is_system(namespace) || is_gkes_name(namespace) && has_addon_key(live)
}

fn is_gkes_name(namespace: &str) -> bool {
    PREFIXES.iter().any(|start| namespace.starts_with(start))
}

/// Returns true for objects of Kubernetes, GKE or this stack itself in system namespaces.
pub(crate) fn is_system_object(object: &ObjectId, live: &Value, stack: &str) -> bool {
    let Some(namespace) = object.namespace.as_deref() else { return false };
    if namespace == record::NAMESPACE {
        let (record, name) = (Record::object(stack), &object.name);
        return object.gvk == record.gvk && (*name == record.name || record::is_part(stack, name));
    }
    if !is_system(namespace) && !is_gkes_name(namespace) {
        return false;
    }
    let map = object.gvk.kind == "ConfigMap" && object.gvk.group.is_empty();
    let named = map && namespace == "kube-system" && CONFIG_MAPS.contains(&object.name.as_str());
    // The accounts of Kubernetes' own controllers have a name and nothing else that anybody could have written.
    let account = object.gvk.kind == "ServiceAccount" && managers(live).next().is_none();
    named || account || has_addon_key(live) || is_managed(namespace, live)
}

/// Returns true for an object with a label or annotation of GKE's add-ons.
fn has_addon_key(live: &Value) -> bool {
    ["labels", "annotations"].iter().any(|map| {
        let keys = live["metadata"][*map].as_object().into_iter().flatten().map(|(key, _)| key);
        keys.into_iter().any(|key| {
            ADDON_KEYS
                .iter()
                .any(|prefix| if prefix.ends_with('/') { key.starts_with(prefix) } else { key == prefix })
        })
    })
}

/// Returns true for an object that only the control plane has written.
fn is_managed(namespace: &str, live: &Value) -> bool {
    let (namespaces, operator) = PROMETHEUS;
    let known =
        |manager: &str| MANAGERS.contains(&manager) || manager == operator && namespaces.contains(&namespace);
    managers(live).next().is_some() && managers(live).all(known)
}

fn managers(live: &Value) -> impl Iterator<Item = &str> {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["manager"].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use model::resource::gvk;

    #[test]
    fn people_use_names_like_those_of_the_system() {
        for name in ["kube-monitoring", "kube-prometheus", "gmp-of-the-team", "config-management-x", "team"] {
            assert!(!is_system(name) && !is_created_by_system(name, &json!({})), "{name}");
        }
        for name in ["kube-system", "kube-public", "kube-node-lease", "gmp-system", "dask-infra"] {
            assert!(is_created_by_system(name, &json!({})), "{name}");
        }
        let labelled =
            json!({ "metadata": { "labels": { "addonmanager.kubernetes.io/mode": "Reconcile" } } });
        assert!(is_created_by_system("gke-managed-new", &labelled), "GKE adds to its namespaces");
        assert!(!is_created_by_system("kube-monitoring", &labelled));
    }

    #[test]
    fn an_object_of_the_system_shows_its_maker() {
        let written = |manager: &str| json!({ "metadata": { "managedFields": [{ "manager": manager }] } });
        let with = |map: &str, key: &str| json!({ "metadata": { map: { key: "x" } } });
        let nobody = json!({ "metadata": {} });
        for (kind, namespace, name, live, expect) in [
            ("Secret", "kube-system", "mine", written("kubectl-create"), false),
            ("Secret", "kube-system", "mine", nobody.clone(), false),
            ("ConfigMap", "kube-system", "status", written("cluster-autoscaler"), true),
            ("ConfigMap", "kube-system", "ingress-uid", written("kubectl-edit"), true),
            ("ConfigMap", "default", "ingress-uid", written("glbc"), false),
            ("ConfigMap", "gmp-system", "collector", written("operator"), true),
            ("ConfigMap", "kube-system", "collector", written("operator"), false),
            ("Deployment", "kube-system", "dns", with("labels", "addonmanager.kubernetes.io/mode"), true),
            ("Deployment", "gke-managed-new", "a", with("annotations", "components.gke.io/name"), true),
            ("Deployment", "gke-managed-new", "a", written("kubectl-create"), false),
            ("Deployment", "kube-monitoring", "a", with("labels", "addonmanager.kubernetes.io/mode"), false),
            ("ServiceAccount", "kube-system", "job-controller", nobody.clone(), true),
            ("ServiceAccount", "kube-system", "mine", written("kubectl-create"), false),
            ("ServiceAccount", "team", "mine", nobody.clone(), false),
            ("ConfigMap", "dask-infra", "dask-infra-s", written("dask-infra"), true),
            ("ConfigMap", "dask-infra", "dask-infra-s.0123456789abcdef-2", written("dask-infra"), true),
            ("ConfigMap", "dask-infra", "dask-infra-other", written("dask-infra"), false),
            ("Secret", "dask-infra", "dask-infra-s", written("kubectl-create"), false),
        ] {
            let plural = format!("{}s", kind.to_lowercase());
            let group = if kind == "Deployment" { "apps" } else { "" };
            let object = ObjectId {
                gvk: gvk(group, "v1", kind, &plural),
                namespace: Some(namespace.to_owned()),
                name: name.to_owned(),
            };
            assert_eq!(is_system_object(&object, &live, "s"), expect, "{kind} {namespace}/{name}: {live}");
        }
    }
}
