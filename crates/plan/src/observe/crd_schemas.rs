//! Schemas of custom kinds, from the CRDs that the stack creates or that are live.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::observe::inputs::Inputs;
use model::resource::Resource;
use model::schema::Schema;

/// Schemas of the custom kinds among the desired resources, by `apiVersion` and kind.
#[derive(Default)]
pub(crate) struct CrdSchemas(BTreeMap<(String, String), Schema>);

impl CrdSchemas {
    /// Creates the schemas from the live CRDs, whose defaults the server fills in. A kind without a live CRD gets the schema of
    /// the stack's CRD.
    pub fn of(inputs: &Inputs<'_>) -> Self {
        let is_crd = |body: &&Value| body["kind"] == "CustomResourceDefinition";
        let live = inputs.world.objects.live().into_iter().flatten().map(|(_, live)| live);
        let desired = inputs.desired.iter().map(|resource| &resource.body);
        let crds: Vec<&Value> = live.chain(desired).filter(is_crd).collect();
        let mut shapes = BTreeMap::new();
        if crds.is_empty() {
            return Self(shapes);
        }
        for resource in inputs.desired.iter() {
            if kinds::kubernetes::object::object_schema(&resource.identity).is_some() {
                continue;
            }
            let key = key(&resource.body);
            if !shapes.contains_key(&key)
                && let Some(schema) = crds.iter().find_map(|crd| schema_of(crd, &key))
            {
                shapes.insert(key, schema);
            }
        }
        Self(shapes)
    }

    /// Returns the schema of an object's kind.
    pub fn schema(&self, resource: &Resource) -> Option<Schema> {
        kinds::kubernetes::object::object_schema(&resource.identity)
            .or_else(|| self.0.get(&key(&resource.body)).cloned())
    }
}

fn key(body: &Value) -> (String, String) {
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    (text("apiVersion"), text("kind"))
}

fn schema_of(crd: &Value, (api_version, kind): &(String, String)) -> Option<Schema> {
    let (group, version) = api_version.split_once('/')?;
    let spec = &crd["spec"];
    if spec["group"] != group || spec["names"]["kind"] != kind.as_str() {
        return None;
    }
    let version = spec["versions"].as_array()?.iter().find(|found| found["name"] == version)?;
    Some(Schema::from_crd(&version["schema"]["openAPIV3Schema"]))
}
