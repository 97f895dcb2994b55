//! OpenAPI v3 and v2: the shape of every kind that is served, for `kubectl explain`, `apply` and Helm.
//!
//! Built-in kinds come from `schemas/`, which has no descriptions; custom ones are shown as their definition
//! has them. Operations are told as far as clients look at them: which kind a path is about, and which
//! query parameters a write takes. Modelled on kube-openapi's `handler`, `handler3` and on the `openapi/builder` of
//! apiextensions-apiserver 0.36.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::gnostic;
use super::request::{Request, Response};
use super::scheme::{Kind, Kinds, MINOR, Origin};
use model::schema;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The two ways to write one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn refer(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// Answers the paths below `/openapi`.
pub fn handle(kinds: &Kinds, request: &Request, path: &[&str]) -> Response {
    let group_version = match path {
        ["v2"] => return whole(kinds, request),
        ["v3"] => return Response::json(200, &index(kinds)),
        ["v3", "api", version] => ("", *version),
        ["v3", "apis", group, version] => (*group, *version),
        _ => return Response::nowhere(),
    };
    let (group, version) = group_version;
    let served: Vec<&Kind> =
        served(kinds).filter(|kind| kind.group == group && kind.version == version).collect();
    if served.is_empty() {
        return Response::nowhere();
    }
    match Form::asked(request) {
        Some(Form::Json) => Response::json(200, &document(&served, group, version)),
        // Clients of v3 in protobuf exist, but none of kubectl, Helm and client-go's own is one.
        Some(Form::Protobuf) | None => not_acceptable(),
    }
}

/// Formats that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf,
}

impl Form {
    fn asked(request: &Request) -> Option<Self> {
        let mut clauses =
            request.accept.split(',').map(|clause| clause.split(';').next().unwrap_or("").trim());
        clauses.find_map(|media| match media {
            "" | "*/*" | "application/*" | "application/json" => Some(Self::Json),
            media if media.starts_with("application/com.github.proto-openapi.spec.") => Some(Self::Protobuf),
            _ => None,
        })
    }
}

fn not_acceptable() -> Response {
    Response::text(406, "")
}

fn served(kinds: &Kinds) -> impl Iterator<Item = &Kind> {
    kinds.all().map(AsRef::as_ref).filter(|kind| kind.served)
}

/// The documents of v3, each with a hash that moves when it does.
fn index(kinds: &Kinds) -> Value {
    let mut hashes: BTreeMap<String, blake3::Hasher> = BTreeMap::new();
    for kind in served(kinds) {
        let Kind { group, version, .. } = kind;
        let path =
            if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        let hasher = hashes.entry(path).or_default();
        hasher.update(format!("{MINOR} {} {} {:?}", kind.kind, kind.plural, kind.subresources).as_bytes());
        if let Some(document) = &kind.document {
            hasher.update(document.to_string().as_bytes());
        }
    }
    let paths: Map<String, Value> = hashes
        .into_iter()
        .map(|(path, hasher)| {
            let hash = hasher.finalize().to_hex().to_ascii_uppercase();
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// OpenAPI v3 of one group version.
fn document(served: &[&Kind], group: &str, version: &str) -> Value {
    let mut definitions = Definitions::new(Dialect::V3);
    definitions.add_group(group, version);
    let mut paths = Map::new();
    for kind in served {
        definitions.add_kind(kind);
        add_paths(Dialect::V3, kind, &mut paths);
    }
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": format!("v1.{MINOR}.0")},
        "paths": paths, "components": {"schemas": definitions.finish()}})
}

/// OpenAPI v2: all groups in one document.
fn whole(kinds: &Kinds, request: &Request) -> Response {
    let Some(form) = Form::asked(request) else { return not_acceptable() };
    let mut definitions = Definitions::new(Dialect::V2);
    let mut paths = Map::new();
    for kind in served(kinds) {
        definitions.add_group(&kind.group, &kind.version);
        definitions.add_kind(kind);
        add_paths(Dialect::V2, kind, &mut paths);
    }
    let document = json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": format!("v1.{MINOR}.0")},
        "paths": paths, "definitions": definitions.finish()});
    match form {
        Form::Json => Response::json(200, &document),
        Form::Protobuf => Response {
            content_type: PROTOBUF_V2.to_owned(),
            body: Bytes::from(gnostic::document(&document)),
            ..Response::text(200, "")
        },
    }
}

/// The definitions of a document and what they refer to.
struct Definitions {
    dialect: Dialect,
    groups: BTreeSet<(String, String)>,
    /// Upstream's names, still to be written.
    todo: BTreeSet<String>,
    kinds: BTreeMap<String, Vec<Value>>,
    written: Map<String, Value>,
}

impl Definitions {
    fn new(dialect: Dialect) -> Self {
        let todo = ["ObjectMeta", "ListMeta", "DeleteOptions", "Status", "Patch"];
        Self {
            dialect,
            groups: BTreeSet::new(),
            todo: todo.into_iter().map(|name| format!("{META}.{name}")).collect(),
            kinds: BTreeMap::new(),
            written: Map::new(),
        }
    }

    /// The built-in kinds of a group version, lists and bodies of requests included.
    fn add_group(&mut self, group: &str, version: &str) {
        if !self.groups.insert((group.to_owned(), version.to_owned())) {
            return;
        }
        for (kind, definition) in schema::kinds_of(group, version) {
            let gvk = json!({"group": group, "version": version, "kind": kind});
            self.kinds.entry(definition.clone()).or_default().push(gvk);
            self.todo.insert(definition);
        }
    }

    /// A custom kind and its list.
    fn add_kind(&mut self, kind: &Kind) {
        if kind.origin == Origin::BuiltIn {
            return;
        }
        let name = definition_name(kind);
        let bare = json!({"type": "object"});
        let document = kind.document.as_deref().unwrap_or(&bare);
        let mut own = custom(self.dialect, document);
        if own.get("properties").is_some() {
            embed(self.dialect, &mut own);
        }
        own["x-kubernetes-group-version-kind"] = json!([gvk(kind)]);
        let texts = json!({"type": "string"});
        let list = json!({"type": "object", "required": ["items"],
            "description": format!("{}List is a list of {}", kind.kind, kind.kind),
            "properties": {"apiVersion": texts, "kind": texts,
                "metadata": self.dialect.refer(&format!("{META}.ListMeta")),
                "items": {"type": "array", "items": self.dialect.refer(&name)}},
            "x-kubernetes-group-version-kind":
                [{"group": kind.group, "version": kind.version, "kind": format!("{}List", kind.kind)}]});
        self.written.insert(format!("{name}List"), list);
        self.written.insert(name, own);
    }

    /// Everything, with what it refers to.
    fn finish(mut self) -> Map<String, Value> {
        while let Some(name) = self.todo.pop_first() {
            if self.written.contains_key(&name) {
                continue;
            }
            let raw = schema::written(&name).unwrap_or_default();
            references(&raw, &mut self.todo);
            let mut own = known(self.dialect, &name).unwrap_or_else(|| built_in(self.dialect, &raw));
            if let Some(kinds) = self.kinds.get(&name) {
                own["x-kubernetes-group-version-kind"] = json!(kinds);
            }
            self.written.insert(name, own);
        }
        self.written
    }
}

fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(name)) = fields.get("$ref") {
                found.insert(name.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Definitions that `schemas/` writes in its own way.
fn known(dialect: Dialect, name: &str) -> Option<Value> {
    let object = || Some(json!({"type": "object"}));
    match (name.strip_prefix("io.k8s.apimachinery.pkg.")?, dialect) {
        ("api.resource.Quantity", Dialect::V2) => Some(json!({"type": "string"})),
        ("api.resource.Quantity", Dialect::V3) => {
            Some(json!({"oneOf": [{"type": "string"}, {"type": "number"}]}))
        }
        ("util.intstr.IntOrString", Dialect::V2) => {
            Some(json!({"type": "string", "format": "int-or-string"}))
        }
        ("util.intstr.IntOrString", Dialect::V3) => {
            Some(json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}))
        }
        ("apis.meta.v1.FieldsV1" | "apis.meta.v1.Patch" | "runtime.RawExtension", _) => object(),
        _ => None,
    }
}

/// A schema of `schemas/` as the server would write it: references by path, wrapped where something
/// stands beside them.
fn built_in(dialect: Dialect, raw: &Value) -> Value {
    let Value::Object(fields) = raw else { return raw.clone() };
    let mut own = below(fields, |child| built_in(dialect, child));
    let Some(Value::String(name)) = own.remove("$ref") else { return Value::Object(own) };
    let target = dialect.refer(&name);
    if own.is_empty() {
        return target;
    }
    match dialect {
        Dialect::V2 => own.insert("$ref".to_owned(), target["$ref"].clone()),
        Dialect::V3 => own.insert("allOf".to_owned(), json!([target])),
    };
    Value::Object(own)
}

/// The fields of a schema, those that are schemas changed.
fn below(fields: &Map<String, Value>, change: impl Fn(&Value) -> Value) -> Map<String, Value> {
    let each = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let changed = properties.iter().map(|(name, value)| (name.clone(), change(value)));
                Value::Object(changed.collect())
            }
            ("items" | "additionalProperties", Value::Object(_)) => change(value),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    fields.iter().map(each).collect()
}

/// A schema of a definition. Version 2 cannot say all of it; what is dropped is what the server drops, for
/// kubectl's sake (`ToStructuralOpenAPIV2`).
fn custom(dialect: Dialect, raw: &Value) -> Value {
    let Value::Object(fields) = raw else { return raw.clone() };
    let on = |name: &str| fields.get(name).is_some_and(|value| value == true);
    let mut own = below(fields, |child| custom(dialect, child));
    if dialect == Dialect::V2 {
        for name in ["allOf", "anyOf", "oneOf", "not", "nullable"] {
            own.remove(name);
        }
        if on("nullable") || on("x-kubernetes-int-or-string") || on("x-kubernetes-preserve-unknown-fields") {
            for name in ["type", "items", "properties", "additionalProperties", "required"] {
                own.remove(name);
            }
            return Value::Object(own);
        }
    }
    let mut own = Value::Object(own);
    if on("x-kubernetes-embedded-resource") {
        embed(dialect, &mut own);
    }
    own
}

/// Adds what every object has.
fn embed(dialect: Dialect, own: &mut Value) {
    for name in ["apiVersion", "kind"] {
        own["properties"][name] = json!({"type": "string"});
    }
    own["properties"]["metadata"] = dialect.refer(&format!("{META}.ObjectMeta"));
}

/// `io.k8s.api.core.v1.Pod`, or `org.dask.kubernetes.v1.DaskCluster` for a custom kind.
fn definition_name(kind: &Kind) -> String {
    let Kind { group, version, kind: name, origin, .. } = kind;
    match origin {
        Origin::BuiltIn => schema::definition_of(group, version, name).unwrap_or_default(),
        Origin::Custom => {
            let parts: Vec<&str> = group.rsplit('.').collect();
            format!("{}.{version}.{name}", parts.join("."))
        }
    }
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// The operations on a path of a kind: its verb in discovery, its HTTP method, its action here.
const OF_COLLECTION: &[(&str, &str, &str)] = &[
    ("list", "get", "list"),
    ("create", "post", "post"),
    ("deletecollection", "delete", "deletecollection"),
];
const OF_OBJECT: &[(&str, &str, &str)] = &[
    ("get", "get", "get"),
    ("update", "put", "put"),
    ("patch", "patch", "patch"),
    ("delete", "delete", "delete"),
];

fn add_paths(dialect: Dialect, kind: &Kind, paths: &mut Map<String, Value>) {
    let Kind { group, version, plural, .. } = kind;
    let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{base}{scope}/{plural}");
    let all = format!("{base}/{plural}");
    let mut add = |path: String, rows: &[(&str, &str, &str)]| {
        let rows = rows.iter().filter(|(verb, ..)| kind.verbs.iter().any(|known| known == verb));
        let methods: Map<String, Value> = rows
            .map(|(_, method, action)| ((*method).to_owned(), operation(dialect, kind, action)))
            .collect();
        if !methods.is_empty() {
            paths.insert(path, Value::Object(methods));
        }
    };
    if kind.namespaced {
        add(all, &OF_COLLECTION[..1]);
    }
    add(format!("{collection}/{{name}}"), OF_OBJECT);
    add(collection, OF_COLLECTION);
}

fn operation(dialect: Dialect, kind: &Kind, action: &str) -> Value {
    let name = definition_name(kind);
    let answer = match action {
        "list" => format!("{name}List"),
        "delete" | "deletecollection" => format!("{META}.Status"),
        _ => name.clone(),
    };
    let takes: &[&str] = match action {
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        "post" | "put" => &["dryRun", "fieldManager", "fieldValidation"],
        "delete" | "deletecollection" => &["dryRun", "propagationPolicy"],
        _ => &["resourceVersion"],
    };
    let mut parameters: Vec<Value> = takes.iter().map(|name| parameter(dialect, name)).collect();
    let body = match action {
        "patch" => Some(format!("{META}.Patch")),
        "post" | "put" => Some(name),
        _ => None,
    };
    let mut operation = json!({"operationId": format!("{action}{}{}{}", kind.group, kind.version, kind.kind),
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(kind)});
    match dialect {
        Dialect::V2 => {
            if let Some(body) = body {
                let schema = dialect.refer(&body);
                parameters.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
            }
            operation["responses"] = json!({"200": {"description": "OK", "schema": dialect.refer(&answer)}});
        }
        Dialect::V3 => {
            if let Some(body) = body {
                let media = if action == "patch" { "application/apply-patch+yaml" } else { "*/*" };
                operation["requestBody"] =
                    json!({"required": true, "content": {media: {"schema": dialect.refer(&body)}}});
            }
            let content = json!({"application/json": {"schema": dialect.refer(&answer)}});
            operation["responses"] = json!({"200": {"description": "OK", "content": content}});
        }
    }
    operation["parameters"] = json!(parameters);
    operation
}

/// A parameter of the query. By these clients see that the server validates fields and can try out writes.
fn parameter(dialect: Dialect, name: &str) -> Value {
    let ty = if name == "force" { "boolean" } else { "string" };
    match dialect {
        Dialect::V2 => json!({"name": name, "in": "query", "type": ty, "uniqueItems": true}),
        Dialect::V3 => json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}}),
    }
}
