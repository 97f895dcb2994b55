//! Namespaces. Source: `pkg/registry/core/namespace/strategy.go`; the label, `SetDefaults_Namespace` in
//! `pkg/apis/core/v1/defaults.go`; the lasting ones, the admission plugin `namespace/lifecycle` of
//! k8s.io/apiserver.

use serde_json::{Value, json};

use super::super::names::bad_domain_label;
use super::super::object::{fill, list};
use super::super::strategy::Cell::Text;
use super::super::strategy::{AGE, Deletion, NAME, Selectable, Strategy, column, put};

pub const STRATEGIES: &[Strategy] = &[Strategy {
    columns: &[NAME, column("Status", Text("/status/phase")), AGE],
    zero: || json!({"spec": {}, "status": {}}),
    defaults: |namespace| {
        let name = namespace["metadata"]["name"].clone();
        if name.is_string() {
            put(&mut namespace["metadata"], "labels", json!({}));
            namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
    },
    prepare_for_create: |_, namespace| {
        fill(namespace, &json!({"spec": {"finalizers": []}}));
        let kept = list(namespace, "/spec/finalizers").iter().any(|name| name == "kubernetes");
        if let Some(list) = namespace["spec"]["finalizers"].as_array_mut().filter(|_| !kept) {
            list.push(json!("kubernetes"));
        }
        namespace["status"]["phase"] = json!("Active");
    },
    bad_name: bad_domain_label,
    selectable: Selectable::These(&["status.phase"]),
    condition_times: &["lastTransitionTime"],
    deletion: Deletion::AfterContent,
    lasting: &["default", "kube-system", "kube-public"],
    ..Strategy::of("", "Namespace")
}];

/// Returns the namespaces that the API server creates before it listens.
pub fn system() -> impl Iterator<Item = Value> {
    ["default", "kube-node-lease", "kube-public", "kube-system"]
        .into_iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
}
