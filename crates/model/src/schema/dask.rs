//! The Dask operator's custom resources, from `schemas/dask/`.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;

use super::node::Node;
use super::{Api, Schema};

/// The API group of the Dask operator.
pub const DASK_GROUP: &str = "kubernetes.dask.org";

struct Resource {
    kind: &'static str,
    text: &'static str,
    schema: OnceLock<Option<Schema>>,
}

static RESOURCES: [Resource; 4] = [
    Resource::new("DaskAutoscaler", include_str!("../../../../schemas/dask/daskautoscaler.json")),
    Resource::new("DaskCluster", include_str!("../../../../schemas/dask/daskcluster.json")),
    Resource::new("DaskJob", include_str!("../../../../schemas/dask/daskjob.json")),
    Resource::new("DaskWorkerGroup", include_str!("../../../../schemas/dask/daskworkergroup.json")),
];

impl Resource {
    const fn new(kind: &'static str, text: &'static str) -> Self {
        Self { kind, text, schema: OnceLock::new() }
    }

    fn read(&self) -> Option<Schema> {
        let Crd { spec } = serde_json::from_str(self.text).ok()?;
        let version = spec.versions.into_iter().next()?;
        Some(Schema::new(version.schema.open_api_v3_schema.into_embedded()))
    }
}

#[derive(Deserialize)]
struct Crd {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    schema: VersionSchema,
}

#[derive(Deserialize)]
struct VersionSchema {
    #[serde(rename = "openAPIV3Schema")]
    open_api_v3_schema: Node,
}

/// Returns the four `CustomResourceDefinition` objects, ready to apply, sorted by name.
pub fn dask_crds() -> &'static [Value] {
    static CRDS: OnceLock<Vec<Value>> = OnceLock::new();
    CRDS.get_or_init(|| {
        RESOURCES.iter().filter_map(|resource| serde_json::from_str(resource.text).ok()).collect()
    })
}

/// Returns the schema of a kind of `kubernetes.dask.org/v1`.
pub fn dask(kind: &str) -> Option<Schema> {
    let resource = RESOURCES.iter().find(|resource| resource.kind == kind)?;
    resource.schema.get_or_init(|| resource.read()).clone()
}

/// Returns the four kinds as in API discovery after the CRDs are established, sorted.
pub fn dask_apis() -> &'static [Api] {
    static APIS: OnceLock<Vec<Api>> = OnceLock::new();
    APIS.get_or_init(|| dask_crds().iter().flat_map(Api::from_crd).collect())
}

impl Api {
    /// Returns the kinds that a `CustomResourceDefinition` adds to API discovery, one for each served version.
    pub fn from_crd(crd: &Value) -> Vec<Self> {
        let (spec, names) = (&crd["spec"], &crd["spec"]["names"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
        let kind = text(&names["kind"]);
        let singular = match names["singular"].as_str() {
            Some(singular) => singular.to_owned(),
            None => kind.to_lowercase(),
        };
        let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        let versions = spec["versions"].as_array().into_iter().flatten();
        let served = versions.filter(|version| version["served"] == true);
        let one = |version: &Value| Self {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            kind: kind.clone(),
            plural: text(&names["plural"]),
            singular: singular.clone(),
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            verbs: verbs.map(str::to_owned).to_vec(),
            subresources: subresources(version),
        };
        served.map(one).collect()
    }
}

fn subresources(version: &Value) -> Vec<String> {
    let declared = |name: &&str| !version["subresources"][*name].is_null();
    ["scale", "status"].iter().filter(|name| declared(name)).map(|name| (*name).to_owned()).collect()
}
