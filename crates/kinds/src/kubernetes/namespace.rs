//! Namespaces.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::text;
use crate::kind::{Compare, DeletionBlocker, Kind};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::namespace_deletion;
use crate::kubernetes::object::{gvk, strip_generated_fields};
use crate::scope::Scope;
use crate::section::{Labels, Lifecycle, LiveName, Manage, NameRule, Section, SectionHead, object_labels};
use model::address::{Address, FieldPath};
use model::resource::{Effect, Facts, Identity, KindId, ObjectId, Readiness, Recreation, Resource};

/// Seconds after which its deletion counts as stuck: its contents, some with finalizers, are deleted first.
const DEADLINE: u32 = 300;

pub const KIND: Kind = Kind {
    rank: 20,
    deletion_blocker: DeletionBlocker::Contents,
    compare: Compare::Kubernetes(|_| (Effect::InPlace, None)),
    change_steps: |context| object_change_steps(context, KindId::Namespace, Facts::None, DEADLINE),
    readiness: |_, found| Ok(readiness(found.own_object())),
    shared: true,
    address: |object| Address::of("namespace", &object.name),
    ..Kind::DEFAULT
};

/// A Kubernetes namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Namespace {
    /// The live name; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// `false`: it exists and is managed elsewhere. It is read, compared with this section and relied on, never
    /// written or deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

impl Section for Namespace {
    fn head(&self) -> SectionHead<'_> {
        SectionHead { manage: self.manage, depends_on: &self.lifecycle.depends_on, ..SectionHead::default() }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(self.name.as_deref(), key, NameRule::Object))
    }

    fn labels(&self) -> Vec<Labels<'_>> {
        object_labels(&self.labels, &self.annotations)
    }
}

/// Returns the Namespace of a name, for a section.
pub fn resource(address: Address, origin: FieldPath, name: &str, extra: &Value, scope: &Scope) -> Resource {
    let mut metadata = json!({ "name": name, "labels": scope.shared_labels() });
    for field in ["labels", "annotations"] {
        if let Some(given) = extra[field].as_object() {
            for (key, value) in given {
                metadata[field][key] = value.clone();
            }
        }
    }
    Resource {
        address,
        identity: Identity::Object(object(name)),
        kind: KindId::Namespace,
        body: json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }),
        origin,
        provenance: Vec::new(),
        depends_on: scope.cluster_dependency(),
        protect: false,
        recreation: Recreation::Always,
        create_only: Value::Null,
    }
}

/// Returns the resource of `[namespace.KEY]`.
pub fn lower(key: &str, section: &Namespace, scope: &Scope) -> Resource {
    let Namespace { name, labels, annotations, manage: _, lifecycle } = section;
    let origin = FieldPath::keys(["namespace", key]);
    let extra = json!({ "labels": labels, "annotations": annotations });
    let name = name.as_deref().unwrap_or(key);
    let mut resource = resource(Address::of("namespace", key), origin.clone(), name, &extra, scope);
    for field in ["labels", "annotations"] {
        resource.provenance.push((FieldPath::keys(["metadata", field]), origin.key(field)));
    }
    resource.depends_on.extend(lifecycle.depends_on.iter().map(Address::new));
    resource.protect = lifecycle.protect;
    resource
}

/// Returns the resource to read and compare for `[namespace.KEY]` with `manage = false`.
pub fn lower_external(key: &str, section: &Namespace, scope: &Scope) -> Resource {
    strip_generated_fields(lower(key, section, scope))
}

/// Returns the id of a namespace.
pub fn object(name: &str) -> ObjectId {
    ObjectId { gvk: gvk("", "v1", "Namespace", "namespaces"), namespace: None, name: name.into() }
}

fn readiness(namespace: &Value) -> Readiness {
    match text(&namespace["status"]["phase"]) {
        "Active" => Readiness::Ready,
        "Terminating" => {
            let held =
                namespace_deletion::blocked_by(namespace).map(|why| format!(": {why}")).unwrap_or_default();
            Readiness::Failed(format!(
                "it is being deleted; wait until it is deleted, then apply again{held}"
            ))
        }
        _ => Readiness::progressing("not active yet"),
    }
}
