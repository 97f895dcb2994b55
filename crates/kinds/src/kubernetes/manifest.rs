//! Manifests: any Kubernetes objects from YAML files. They are in the same graph, comparison, ownership and deletion as the
//! resources of sections.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::kubernetes::bundle::{Bundle, Kinds, Object, objects};
use crate::kubernetes::hooks;
use crate::kubernetes::kueue::{self, gang, v1beta1};
use crate::kubernetes::object::kind_of;
use crate::kubernetes::request_state;
use crate::pod::gpus;
use crate::scope::{KUEUE, POOL_LABEL, PoolFacts, Scope};
use crate::section::{Lifecycle, Section, SectionHead};
use model::address::{Address, FieldPath};
use model::resource::{Identity, OBJECT_LABEL_MANAGED_BY, ObjectId, Recreation, Resource, gvk};
use model::schema::DASK_GROUP;

pub const SECTION: &str = "manifest";

/// Kubernetes objects from YAML files.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Manifest {
    /// A YAML file with Kubernetes objects, or a list of such files. Paths are relative to the stack file's folder.
    /// `${…}` in them is not replaced.
    pub file: Files,
    /// The namespace of objects that name none. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// YAML files with the CustomResourceDefinitions of kinds that are installed elsewhere: read to check objects of
    /// those kinds, never applied.
    #[serde(default, skip_serializing_if = "Files::is_empty")]
    pub definitions: Files,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// The objects of the files, read when the stack is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub objects: Vec<Value>,
    /// The contents of the files of `definitions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub known: Vec<Value>,
}

/// One file, or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub Vec<String>);

impl Files {
    /// Returns true for no files, which `skip_serializing_if` leaves out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Files {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => serializer.serialize_str(one),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a file or a list of files")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Files, E> {
                Ok(Files(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Files, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Files)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Files {
    fn schema_name() -> Cow<'static, str> {
        "Files".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One file, or a list of files.",
            "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
        })
    }
}

impl Section for Manifest {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            depends_on: &self.lifecycle.depends_on,
            namespace: self.namespace.as_deref(),
            ..SectionHead::default()
        }
    }
}

impl Manifest {
    /// Returns its objects, with the settings for all of them.
    pub fn bundle<'a>(&'a self, key: &'a str) -> Bundle<'a> {
        Bundle {
            section: SECTION,
            key: Some(key),
            namespace: self.namespace.as_deref(),
            objects: &self.objects,
            known: &self.known,
            protect: self.lifecycle.protect,
            depends_on: &self.lifecycle.depends_on,
            hooks: None,
            other_namespaces: &[],
        }
    }
}

/// Returns the resources of manifests and charts. Objects without a known kind are left out: the rules of the stack report them.
pub fn lower(bundles: &[Bundle<'_>], scope: &Scope) -> Vec<Resource> {
    let kinds = Kinds::of(bundles);
    let mut resources: Vec<Resource> =
        objects(bundles).filter_map(|object| resource(&object, &kinds, scope)).collect();
    let made = ManifestIndex::of(&resources);
    resources.iter_mut().for_each(|resource| made.order(resource));
    for bundle in bundles {
        if let Some(hooks) = bundle.hooks {
            hooks::order(hooks, &bundle.path(), bundle.objects, &mut resources);
        }
    }
    resources
}

/// Objects of manifests and charts, by kind, namespace and name.
pub struct ManifestIndex(HashMap<(String, Option<String>, String), Address>);

impl ManifestIndex {
    pub fn of(resources: &[Resource]) -> Self {
        let named = resources.iter().filter_map(|resource| {
            let ObjectId { gvk, namespace, name } = resource.identity.object()?.clone();
            Some(((gvk.kind, namespace, name), resource.address.clone()))
        });
        Self(named.collect())
    }

    fn find(&self, kind: &str, namespace: Option<&str>, name: &str) -> Option<Address> {
        self.0.get(&(kind.to_owned(), namespace.map(str::to_owned), name.to_owned())).cloned()
    }

    /// Adds dependencies of an object: its namespace, and the objects that its pods need to start.
    pub fn order(&self, resource: &mut Resource) {
        let Identity::Object(ObjectId { namespace, .. }) = &resource.identity else { return };
        let own_namespace = namespace.iter().filter_map(|namespace| self.find("Namespace", None, namespace));
        let named = needed(&resource.body).into_iter();
        let named = named.filter_map(|(kind, name)| self.find(kind, namespace.as_deref(), &name));
        let more: Vec<Address> =
            own_namespace.chain(named).filter(|address| *address != resource.address).collect();
        for address in more {
            if !resource.depends_on.contains(&address) {
                resource.depends_on.push(address);
            }
        }
    }
}

fn resource(object: &Object<'_>, kinds: &Kinds<'_>, scope: &Scope) -> Option<Resource> {
    let newer = (scope.newer_kueue && v1beta1::is_older(object.value))
        .then(|| v1beta1::renewed(object.value.clone()));
    let object = &Object { value: newer.as_ref().unwrap_or(object.value), ..*object };
    let (group, version) = object.group_version();
    let api = kinds.api(group, version, object.kind())?;
    let name = Some(object.name()).filter(|name| !name.is_empty())?;
    let namespace = api.namespaced.then(|| object.namespace().to_owned());
    let gvk = gvk(&api.group, &api.version, &api.kind, &api.plural);
    let id = ObjectId { gvk, namespace: namespace.clone(), name: name.to_owned() };
    let bundle = object.bundle;
    let section = bundle.address();
    let mut depends_on = match &namespace {
        Some(namespace) => scope.namespace_dependencies(namespace),
        None => scope.cluster_dependency(),
    };
    depends_on.extend(kinds.custom(group, version, object.kind()).and_then(|custom| custom.address.clone()));
    if group == DASK_GROUP && bundle.section != crate::scope::DASK_OPERATOR {
        depends_on.extend(scope.section(crate::scope::DASK_OPERATOR));
    }
    // Without Kueue's webhooks a Job with a queue would start at once.
    let queue = object.value["metadata"]["labels"][gang::QUEUE].as_str();
    if (group == kueue::GROUP || queue.is_some()) && bundle.section != KUEUE {
        depends_on.extend(scope.section(KUEUE));
    }
    let named = scope.queues.iter().filter(|known| queue == Some(known.name.as_str()));
    depends_on.extend(named.filter_map(|known| scope.section(Address::of("queue", &known.key).as_str())));
    depends_on.extend(pod_dependencies(object.value, scope));
    depends_on.extend(bundle.depends_on.iter().map(Address::new));
    let origin = object.origin();
    Some(Resource {
        address: Address::object(section.as_str(), &id.gvk.kind, namespace.as_deref(), name),
        kind: kind_of(&id),
        body: body(object, namespace.as_deref(), scope),
        identity: Identity::Object(id),
        provenance: vec![(FieldPath::root(), origin.clone())],
        origin,
        depends_on,
        protect: bundle.protect,
        create_only: Value::Null,
        recreation: recreation_of(object),
    })
}

/// Returns when an object is recreated. A job runs once, and the operator deletes a Dask cluster with an idle timeout: neither is
/// recreated.
fn recreation_of(object: &Object<'_>) -> Recreation {
    let idle = object.value["spec"]["idleTimeout"].as_u64().unwrap_or(0);
    if object.bundle.is_chart() && hooks::runs_once(object.value) {
        return Recreation::Once { timeout: None };
    }
    match (object.group_version().0, object.kind()) {
        (DASK_GROUP, "DaskJob") => Recreation::Once { timeout: None },
        (DASK_GROUP, "DaskCluster") if idle > 0 => Recreation::Once { timeout: None },
        _ => Recreation::Always,
    }
}

/// Fields of `metadata` that the server writes. `kubectl get -o yaml` prints them. An apply with them is refused or differs each
/// time.
pub const SERVER_FIELDS: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// Returns the object as it is applied: with its namespace and the stack's label, without fields that the server writes.
fn body(object: &Object<'_>, namespace: Option<&str>, scope: &Scope) -> Value {
    let mut body = object.value.clone();
    if let Value::Object(fields) = &mut body {
        fields.remove("status");
        // Variables of the environment; what the server keeps is `data`.
        if object.kind() == "Secret"
            && let Some(Value::Object(texts)) = fields.remove("stringData")
            && let Value::Object(data) = fields.entry("data").or_insert_with(|| json!({}))
        {
            data.extend(texts);
        }
    }
    // Kueue writes it from the beginning, and takes it back when the Job may start: written again, it would stop the Job.
    let queued = body["kind"] == "Job" && body["metadata"]["labels"][gang::QUEUE].is_string();
    if queued && body["spec"]["suspend"] == true && scope.section(KUEUE).is_some() {
        drop(body["spec"].as_object_mut().and_then(|spec| spec.remove("suspend")));
    }
    if let Value::Object(metadata) = &mut body["metadata"] {
        metadata.retain(|key, _| !SERVER_FIELDS.contains(&key.as_str()));
        metadata.remove("namespace");
        if let Some(namespace) = namespace {
            metadata.insert("namespace".into(), namespace.into());
        }
    }
    // The operator copies the labels of its clusters to all that it makes, as it does with those of sections.
    let own = object.kind() == "DaskCluster";
    let labels = if own { scope.labels() } else { scope.shared_labels() };
    let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) else { return body };
    let given = metadata.entry("labels").or_insert_with(|| json!({}));
    if given.is_null() {
        *given = json!({});
    }
    // Text in the place of labels is a mistake that is told elsewhere.
    let Some(given) = given.as_object_mut() else { return body };
    for (label, value) in labels.as_object().into_iter().flatten() {
        // Labels that the file sets are kept, including `managed-by`.
        if label != OBJECT_LABEL_MANAGED_BY || given.get(label).is_none_or(Value::is_null) {
            given.insert(label.clone(), value.clone());
        }
    }
    body
}

/// Collects every PodSpec in an object, with its path: any table with `containers`.
pub fn pod_specs<'v>(value: &'v Value, path: &FieldPath, found: &mut Vec<(FieldPath, &'v Value)>) {
    pod_specs_below(value, &Below::Path(path), found);
}

/// The schema of a CustomResourceDefinition: thousands of values, and no PodSpec.
const SCHEMA: &str = "openAPIV3Schema";

/// A path during a walk. It becomes a `FieldPath` only if a PodSpec is found.
enum Below<'w> {
    Path(&'w FieldPath),
    Key(&'w Below<'w>, &'w str),
    Index(&'w Below<'w>, usize),
}

impl Below<'_> {
    fn path(&self) -> FieldPath {
        match self {
            Self::Path(path) => (*path).clone(),
            Self::Key(path, key) => path.path().key(key),
            Self::Index(path, index) => path.path().index(*index),
        }
    }
}

fn pod_specs_below<'v>(value: &'v Value, path: &Below<'_>, found: &mut Vec<(FieldPath, &'v Value)>) {
    match value {
        Value::Object(table) if table.get("containers").is_some_and(Value::is_array) => {
            found.push((path.path(), value));
        }
        Value::Object(table) => {
            for (key, value) in table.iter().filter(|(key, _)| *key != SCHEMA) {
                pod_specs_below(value, &Below::Key(path, key), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pod_specs_below(item, &Below::Index(path, index), found);
            }
        }
        _ => {}
    }
}

/// A node label that a pod selects.
pub struct NodeLabel<'v> {
    /// Its path in the PodSpec.
    pub path: FieldPath,
    /// The label.
    pub key: &'v str,
    /// The selected values.
    pub values: Vec<&'v str>,
}

/// Returns the node labels that a PodSpec selects, by `nodeSelector` and by required and preferred node affinity.
pub fn node_labels<'v>(spec: &'v Value, path: &FieldPath) -> Vec<NodeLabel<'v>> {
    let mut labels = Vec::new();
    let selector = spec["nodeSelector"].as_object().into_iter().flatten();
    labels.extend(selector.filter_map(|(key, value)| {
        let path = path.key("nodeSelector").key(key);
        Some(NodeLabel { path, key, values: vec![value.as_str()?] })
    }));
    let affinity = (&spec["affinity"]["nodeAffinity"], path.key("affinity").key("nodeAffinity"));
    let (hard, soft) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let terms = affinity.0[hard]["nodeSelectorTerms"].as_array().into_iter().flatten().enumerate();
    let hard = terms.map(|(n, term)| (term, affinity.1.key(hard).key("nodeSelectorTerms").index(n)));
    let terms = affinity.0[soft].as_array().into_iter().flatten().enumerate();
    let soft = terms.map(|(n, term)| (&term["preference"], affinity.1.key(soft).index(n).key("preference")));
    for (term, path) in hard.chain(soft) {
        let expressions = term["matchExpressions"].as_array().into_iter().flatten().enumerate();
        labels.extend(expressions.filter(|(_, expression)| expression["operator"] == "In").filter_map(
            |(n, expression)| {
                let path = path.key("matchExpressions").index(n).key("values");
                let values = expression["values"].as_array()?.iter().filter_map(Value::as_str).collect();
                Some(NodeLabel { path, key: expression["key"].as_str()?, values })
            },
        ));
    }
    labels
}

/// Returns true if nodes of the pool have the label.
pub fn has_label(pool: &PoolFacts, label: &NodeLabel<'_>) -> bool {
    let value = if label.key == POOL_LABEL { Some(&pool.name) } else { pool.labels.get(label.key) };
    value.is_some_and(|value| label.values.contains(&value.as_str()))
}

/// Returns the addresses of the pools that pods select. For pods that request GPUs, these are the pools with GPUs, their driver
/// and the checks of those pools: a check needs a free GPU, so it comes first.
fn pod_dependencies(object: &Value, scope: &Scope) -> Vec<Address> {
    let mut specs = Vec::new();
    pod_specs(object, &FieldPath::root(), &mut specs);
    let asks = specs.iter().any(|(_, spec)| gpus(spec) > 0);
    let mut pools: Vec<&PoolFacts> = Vec::new();
    for (path, spec) in &specs {
        let labels = node_labels(spec, path);
        let chosen = scope.pools.iter().filter(|pool| labels.iter().any(|label| has_label(pool, label)));
        let chosen: Vec<&PoolFacts> = chosen.collect();
        let any = scope.pools.iter().filter(|pool| chosen.is_empty() && gpus(spec) > 0 && pool.gpus > 0);
        pools.extend(any);
        pools.extend(chosen);
    }
    let mut depends_on: Vec<Address> = pools.iter().map(|pool| Address::of("node_pool", &pool.key)).collect();
    if asks {
        depends_on.extend(scope.section("gpu_driver"));
        let ours =
            |pool: &Option<String>| pool.as_ref().is_none_or(|key| pools.iter().any(|pool| pool.key == *key));
        depends_on
            .extend(scope.checks.iter().filter(|(_, pool)| ours(pool)).map(|(address, _)| address.clone()));
    }
    depends_on.sort();
    depends_on.dedup();
    depends_on
}

/// Returns the objects that the pods of an object need to start: ConfigMaps, Secrets, ServiceAccounts and claims, and the request
/// for their nodes. A request is processed once, and fails without its PodTemplate.
fn needed(object: &Value) -> Vec<(&'static str, String)> {
    let mut specs = Vec::new();
    pod_specs(object, &FieldPath::root(), &mut specs);
    let mut found = Vec::new();
    for (_, spec) in specs {
        found.extend(spec["serviceAccountName"].as_str().map(|name| ("ServiceAccount", name.to_owned())));
        references(spec, &mut found);
    }
    let request = request_state::api().kind;
    if object["kind"] == request.as_str() {
        let sets = object["spec"]["podSets"].as_array().into_iter().flatten();
        let names = sets.filter_map(|set| set["podTemplateRef"]["name"].as_str());
        found.extend(names.map(|name| ("PodTemplate", name.to_owned())));
    } else if object["kind"] != "PodTemplate" {
        let mut consumed = Vec::new();
        request_state::consumed(object, &mut consumed);
        found.extend(consumed.into_iter().map(|name| ("ProvisioningRequest", name.to_owned())));
    }
    found
}

fn references(value: &Value, found: &mut Vec<(&'static str, String)>) {
    const REFERENCES: [(&str, &str, &str); 8] = [
        ("configMap", "name", "ConfigMap"),
        ("configMapRef", "name", "ConfigMap"),
        ("configMapKeyRef", "name", "ConfigMap"),
        ("secret", "secretName", "Secret"),
        ("secret", "name", "Secret"),
        ("secretRef", "name", "Secret"),
        ("secretKeyRef", "name", "Secret"),
        ("persistentVolumeClaim", "claimName", "PersistentVolumeClaim"),
    ];
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let names = REFERENCES.iter().filter(|(field, ..)| field == key);
                let names =
                    names.filter_map(|(_, name, kind)| Some((*kind, value[*name].as_str()?.to_owned())));
                found.extend(names);
                references(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}
