//! CustomResourceDefinitions. Source: apiextensions-apiserver, `pkg/apis/apiextensions/v1/defaults.go`,
//! `pkg/apis/apiextensions/validation/validation.go`, `pkg/registry/customresourcedefinition/strategy.go`; compared
//! with kube-apiserver 1.36.

use serde_json::{Value, json};

use super::super::object::{fill, list, text};
use super::super::status::Cause;
use super::super::strategy::{CREATED_AT, Deletion, NAME, Strategy, put};

pub const STRATEGIES: &[Strategy] = &[Strategy {
    generation: true,
    columns: &[NAME, CREATED_AT],
    zero: || {
        json!({"spec": {"names": {"kind": "", "plural": ""}},
        "status": {"conditions": null, "storedVersions": null}})
    },
    defaults: |definition| {
        let kind = text(definition, "/spec/names/kind").to_owned();
        fill(
            &mut definition["spec"],
            &json!({"names": {"singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
                "conversion": {"strategy": "None"}}),
        );
        let status = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null,
            "storedVersions": stored_versions(definition)});
        put(definition, "status", status);
    },
    validate: |definition, causes| {
        let (plural, group) = (text(definition, "/spec/names/plural"), text(definition, "/spec/group"));
        let name = text(definition, "/metadata/name");
        if name != format!("{plural}.{group}") {
            let why = "must be spec.names.plural+\".\"+spec.group";
            causes.push(Cause::invalid("metadata.name", format!("\"{name}\""), why));
        }
    },
    immutable: &["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural"],
    deletion: Deletion::AfterInstances,
    ..Strategy::of("apiextensions.k8s.io", "CustomResourceDefinition")
}];

/// The versions in which objects are stored.
pub fn stored_versions(definition: &Value) -> Vec<Value> {
    let stored = list(definition, "/spec/versions").iter().filter(|version| version["storage"] == true);
    stored.map(|version| version["name"].clone()).collect()
}
