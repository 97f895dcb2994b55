//! A node of a schema in the format of `schemas/` and CRDs: the part of OpenAPI v3 that structural schemas use, with Kubernetes'
//! extensions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::Type;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A node of a schema. All fields are optional; without any, every value is allowed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    #[serde(rename = "$ref")]
    pub reference: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub format: Option<String>,
    pub pattern: Option<String>,
    pub properties: BTreeMap<String, Shared>,
    #[serde(rename = "additionalProperties")]
    pub additional: Option<Additional>,
    pub items: Option<Shared>,
    pub required: Vec<String>,
    pub default: Option<Value>,
    pub nullable: bool,
    #[serde(rename = "enum")]
    pub enum_values: Vec<Value>,
    #[serde(rename = "readOnly")]
    pub read_only: bool,
    #[serde(rename = "x-one-of")]
    pub one_ofs: Vec<Vec<String>>,
    #[serde(rename = "x-kubernetes-list-type")]
    pub list_type: Option<String>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    pub list_map_keys: Option<Vec<String>>,
    #[serde(rename = "x-kubernetes-map-type")]
    pub map_type: Option<String>,
    #[serde(rename = "x-kubernetes-patch-merge-key")]
    pub patch_merge_key: Option<String>,
    #[serde(rename = "x-kubernetes-patch-strategy")]
    pub patch_strategy: Option<String>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    pub preserves_unknown: bool,
    #[serde(rename = "x-kubernetes-int-or-string")]
    pub int_or_string: bool,
    #[serde(rename = "x-kubernetes-embedded-resource")]
    pub embedded_resource: bool,
}

/// A shared child. It has its own type because serde cannot deserialize an `Arc` without its `rc` feature.
#[derive(Debug)]
pub(super) struct Shared(pub Arc<Node>);

impl Shared {
    fn new(node: Node) -> Self {
        Self(Arc::new(node))
    }
}

impl<'de> Deserialize<'de> for Shared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        Ok(Self::new(if node.embedded_resource { node.into_embedded() } else { node }))
    }
}

/// `additionalProperties`: a schema, or a boolean.
#[derive(Debug)]
pub(super) enum Additional {
    Allowed(bool),
    Schema(Shared),
}

impl Node {
    pub fn ty(&self) -> Type {
        if self.int_or_string {
            return Type::IntOrString;
        }
        match self.kind.as_deref() {
            Some("object") => self.object_ty(),
            Some("array") => Type::List,
            Some("string") if self.format.as_deref() == Some("quantity") => Type::Quantity,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            _ => Type::Any,
        }
    }

    fn object_ty(&self) -> Type {
        let map = matches!(self.additional, Some(Additional::Schema(_) | Additional::Allowed(true)));
        if map && self.properties.is_empty() { Type::Map } else { Type::Object }
    }

    /// Returns this schema as that of a whole Kubernetes object: with `apiVersion`, `kind` and the standard metadata, which
    /// replaces the schema's own.
    pub fn into_embedded(mut self) -> Self {
        self.kind.get_or_insert_with(|| "object".to_owned());
        for name in ["apiVersion", "kind"] {
            let text = Self { kind: Some("string".to_owned()), ..Self::default() };
            self.properties.insert(name.to_owned(), Shared::new(text));
        }
        let metadata = Self { reference: Some(OBJECT_META.to_owned()), ..Self::default() };
        self.properties.insert("metadata".to_owned(), Shared::new(metadata));
        self
    }
}

impl<'de> Deserialize<'de> for Additional {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AdditionalVisitor)
    }
}

/// Not serde's `untagged`, which would copy every map's schema before reading it.
struct AdditionalVisitor;

impl<'de> Visitor<'de> for AdditionalVisitor {
    type Value = Additional;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a schema or a boolean")
    }

    fn visit_bool<E>(self, allowed: bool) -> Result<Additional, E> {
        Ok(Additional::Allowed(allowed))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Additional, A::Error> {
        Shared::deserialize(MapAccessDeserializer::new(map)).map(Additional::Schema)
    }
}
