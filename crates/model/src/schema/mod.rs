//! Reader of `schemas/`: the upstream schemas of Kubernetes kinds, the Dask operator's custom resources and GKE v1 messages. It
//! has structure only, no rules. A definition is parsed on first use.
//!
//! Bodies are `json!` values checked against these schemas, not structs of `k8s-openapi`: the same check works for built-in
//! kinds, custom resources, manifests and values from users.

mod check;
mod dask;
pub mod gke;
mod gke_fields;
mod gke_kinds;
mod kubernetes;
mod lines;
mod node;
pub mod protobuf;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::check::{Problem, ProblemKind, check, closest};
pub use self::dask::{DASK_GROUP, dask, dask_apis, dask_crds};
pub use self::gke_fields::{Change as GkeChange, GkeCall, GkeField, Message, gke_field, gke_fields};
pub use self::gke_kinds::{
    AUTOSCALING_GROUP, Installed, installed, installed_crd, provisioning_crd, served, served_apis,
};
pub use self::kubernetes::{
    KUBERNETES, api, apis, builtin, definition, definition_of, kinds_of, subresources, written,
};
use self::node::{Additional, Node, Shared};

/// The shape of one value. Cheap to clone. References to other definitions are resolved only when a child is read, so definitions
/// can be recursive.
#[derive(Clone)]
pub struct Schema {
    /// The definition of the shape.
    node: Arc<Node>,
    /// The field that refers to `node`: its default, nullability and list type take precedence.
    site: Option<Arc<Node>>,
}

/// Kinds of JSON values that a schema takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Fields with names.
    Object,
    /// Any keys, values of one shape.
    Map,
    List,
    String,
    /// A whole number.
    Integer,
    Number,
    Boolean,
    /// A Kubernetes quantity such as `500m` or `16Gi`, as a string or a number.
    Quantity,
    IntOrString,
    /// Whatever JSON.
    Any,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "object",
            Self::Map => "map",
            Self::List => "list",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Quantity => "quantity",
            Self::IntOrString => "integer or string",
            Self::Any => "any value",
        })
    }
}

/// How the elements of a list are identified, from `x-kubernetes-list-type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// The list is one value.
    Atomic,
    /// The elements are scalars, each at most once.
    Set,
    /// The elements are objects; these fields together identify one.
    Map(Vec<String>),
}

/// A kind as in API discovery.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Api {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    /// `status`, `scale`, `log`, …
    pub subresources: Vec<String>,
}

/// A subresource as in API discovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subresource {
    /// `status`, `scale`, `log`, …
    pub name: String,
    /// The kind of its body: `autoscaling/v1 Scale` below a Deployment.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

impl Api {
    /// `v1` or `apps/v1`, as in an object's `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl Schema {
    /// Creates the schema of a custom resource's version, from its `openAPIV3Schema`. As on the server, `apiVersion`, `kind` and
    /// `metadata` are added if the definition lacks them. A schema that cannot be parsed allows any value.
    pub fn from_crd(open_api_v3_schema: &Value) -> Self {
        match Node::deserialize(open_api_v3_schema) {
            Ok(node) => Self::new(node.into_embedded()),
            Err(_) => Self::any(),
        }
    }

    /// Creates a schema that takes any value.
    pub fn any() -> Self {
        Self::new(Node::default())
    }

    fn new(node: Node) -> Self {
        Self { node: Arc::new(node), site: None }
    }

    /// Returns the schema of a child, with its reference resolved. A reference to a missing definition allows any value.
    fn child(Shared(node): &Shared) -> Self {
        match &node.reference {
            None => Self { node: Arc::clone(node), site: None },
            Some(name) => {
                let target =
                    if name.starts_with(gke::PACKAGES) { gke::definition(name) } else { definition(name) };
                let target = target.unwrap_or_else(Self::any);
                Self { node: target.node, site: Some(Arc::clone(node)) }
            }
        }
    }

    /// Returns a property from the field that refers to the definition, else from the definition itself.
    fn first<'s, T>(&'s self, read: impl Fn(&'s Node) -> Option<T>) -> Option<T> {
        self.site.as_deref().and_then(&read).or_else(|| read(&self.node))
    }

    /// Returns the kind of JSON value that the schema takes.
    pub fn ty(&self) -> Type {
        self.node.ty()
    }

    /// Returns the shape of a field of an object.
    pub fn property(&self, name: &str) -> Option<Self> {
        self.node.properties.get(name).map(Self::child)
    }

    /// Returns the names of an object's fields, sorted.
    pub fn property_names(&self) -> Vec<String> {
        self.node.properties.keys().cloned().collect()
    }

    /// Returns the shape of a map's values (`additionalProperties`).
    pub fn values(&self) -> Option<Self> {
        match &self.node.additional {
            Some(Additional::Schema(node)) => Some(Self::child(node)),
            Some(Additional::Allowed(_)) | None => None,
        }
    }

    /// Returns the shape of a list's elements.
    pub fn items(&self) -> Option<Self> {
        self.node.items.as_ref().map(Self::child)
    }

    /// Returns how a list's elements are matched; atomic unless the schema says otherwise.
    pub fn list(&self) -> List {
        match self.first(|node| node.list_type.as_deref()) {
            Some("map") => List::Map(self.first(|node| node.list_map_keys.clone()).unwrap_or_default()),
            Some("set") => List::Set,
            _ => List::Atomic,
        }
    }

    /// Returns true if an object or map is one value, owned and replaced as a whole.
    pub fn atomic_map(&self) -> bool {
        self.first(|node| node.map_type.as_deref()) == Some("atomic")
    }

    /// Returns the required fields, sorted.
    pub fn required(&self) -> Vec<String> {
        let mut names = self.node.required.clone();
        names.sort();
        names
    }

    /// Returns the default value, which the server fills in.
    pub fn default(&self) -> Option<Value> {
        self.first(|node| node.default.clone())
    }

    /// Returns true if `null` is a value here. Elsewhere `null` counts as absent.
    pub fn nullable(&self) -> bool {
        self.first(|node| node.nullable.then_some(())).is_some()
    }

    /// Returns true if an object keeps fields that the schema does not name.
    pub fn preserves_unknown(&self) -> bool {
        self.first(|node| node.preserves_unknown.then_some(())).is_some()
            || matches!(self.node.additional, Some(Additional::Allowed(true)))
    }

    /// Returns the values that a string may have, in upstream's order; empty for any.
    pub fn enum_values(&self) -> Vec<String> {
        self.node.enum_values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }

    /// `int32`, `int64`, `date-time`, `duration`, …
    pub fn format(&self) -> Option<&str> {
        self.first(|node| node.format.as_deref())
    }

    /// Returns the regular expression that a string has to match.
    pub fn pattern(&self) -> Option<&str> {
        self.first(|node| node.pattern.as_deref())
    }

    /// Returns true if only the server sets this field. Known for GKE messages.
    pub fn read_only(&self) -> bool {
        self.first(|node| node.read_only.then_some(())).is_some()
    }

    /// Groups of fields of which at most one may be set. Known for GKE messages.
    pub fn one_ofs(&self) -> &[Vec<String>] {
        &self.node.one_ofs
    }

    /// Returns the field that names an element under a strategic merge patch.
    pub fn patch_merge_key(&self) -> Option<&str> {
        self.first(|node| node.patch_merge_key.as_deref())
    }

    /// Returns the strategies of a strategic merge patch here: `merge`, `replace`, `retainKeys`.
    pub fn patch_strategies(&self) -> Vec<String> {
        let text = self.first(|node| node.patch_strategy.as_deref()).unwrap_or_default();
        text.split(',').filter(|strategy| !strategy.is_empty()).map(str::to_owned).collect()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({}", self.ty())?;
        if let Some(name) = self.site.as_ref().and_then(|site| site.reference.as_deref()) {
            write!(f, " {name}")?;
        }
        f.write_str(")")
    }
}
