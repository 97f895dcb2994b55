//! What the server refuses: unknown fields, wrong types, missing fields, and changes of fields that
//! may not change.

use serde_json::Value;

use super::bounds;
use super::kinds::{Kind, Origin};
use super::status::{Cause, Status};
use super::store::text;
use crate::address::{FieldPath, Segment};
use crate::schema::{self, Problem, ProblemKind, Schema, Type};

/// What to do about fields that the schema does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Drop them in silence.
    Ignore,
    /// Drop them and say so in `Warning` headers.
    Warn,
    /// Refuse the request.
    Strict,
}

impl Unknown {
    /// From `fieldValidation`; the server's default is to warn.
    pub fn parse(text: Option<&str>) -> Result<Self, Status> {
        match text {
            Some("Ignore") => Ok(Self::Ignore),
            None | Some("" | "Warn") => Ok(Self::Warn),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                Err(Status::bad_option("CreateOptions", "fieldValidation", &format!("{other:?}"), &supported))
            }
        }
    }
}

/// A path in the notation of the API server: `spec.containers[0].image`, keys never quoted.
fn path_text(path: &FieldPath) -> String {
    let mut out = String::new();
    for segment in path.segments() {
        match segment {
            Segment::Index(index) => out += &format!("[{index}]"),
            Segment::Key(key) if out.is_empty() => out += key,
            Segment::Key(key) => out += &format!(".{key}"),
        }
    }
    out
}

/// Handles a body as sent: refuses what cannot be read as the kind, drops what the kind does not have.
/// The answer is what to warn of.
pub fn read(kind: &Kind, object: &mut Value, unknown: Unknown) -> Result<Vec<String>, Status> {
    let Some(schema) = &kind.schema else { return Ok(Vec::new()) };
    let problems = schema::check(schema, object);
    let mut fields = Vec::new();
    for Problem { path, kind: problem } in &problems {
        match problem {
            ProblemKind::UnknownField { .. } => fields.push(format!("unknown field \"{}\"", path_text(path))),
            ProblemKind::WrongType { expected, found } if kind.origin == Origin::BuiltIn => {
                return Err(unreadable(kind, path, *expected, found));
            }
            ProblemKind::NotAQuantity(_) if kind.origin == Origin::BuiltIn => {
                let why = "quantities must match the regular expression \
                           '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
                return Err(unread(kind, why));
            }
            _ => {}
        }
    }
    if unknown == Unknown::Strict && !fields.is_empty() {
        return Err(unread(kind, &format!("strict decoding error: {}", fields.join(", "))));
    }
    prune(schema, object);
    Ok(if unknown == Unknown::Warn { fields } else { Vec::new() })
}

fn unread(kind: &Kind, why: &str) -> Status {
    let Kind { kind, version, .. } = kind;
    Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
}

fn unreadable(kind: &Kind, path: &FieldPath, expected: Type, found: &str) -> Status {
    let go = match expected {
        Type::String => "string",
        Type::Integer => "int32",
        Type::Number => "float64",
        Type::Boolean => "bool",
        Type::List => "[]",
        _ => "map",
    };
    let found = match found {
        "boolean" => "bool",
        "list" => "array",
        "integer" => "number",
        other => other,
    };
    let why = format!(
        "json: cannot unmarshal {found} into Go struct field {}.{} of type {go}",
        kind.kind,
        path_text(path)
    );
    unread(kind, &why)
}

/// Drops fields that the schema does not have, and nulls that are no values.
pub fn prune(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if schema.ty() == Type::Any {
                return;
            }
            let values = schema.values();
            let open = schema.preserves_unknown() || (schema.property_names().is_empty() && values.is_none());
            fields.retain(|name, value| match schema.property(name).or_else(|| values.clone()) {
                None => open,
                Some(below) => {
                    if value.is_null() {
                        return below.nullable() || below.ty() == Type::Any;
                    }
                    prune(&below, value);
                    true
                }
            });
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    prune(&schema, item);
                }
            }
        }
        _ => {}
    }
}

pub(super) fn cause(reason: &str, field: String, message: String) -> Cause {
    Cause { reason: reason.to_owned(), message, field }
}

/// Refuses an object that breaks its schema or the rules of its kind, all causes at once.
pub fn object(kind: &Kind, object: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    let name = text(object, "/metadata/name");
    if name.is_empty() {
        let message = "Required value: name or generateName is required".to_owned();
        causes.push(cause("FieldValueRequired", "metadata.name".to_owned(), message));
    } else if let Some(why) = bad_name(kind, name) {
        causes.push(cause(
            "FieldValueInvalid",
            "metadata.name".to_owned(),
            format!("Invalid value: \"{name}\": {why}"),
        ));
    }
    if let Some(schema) = &kind.schema {
        let builtin = kind.origin == Origin::BuiltIn;
        for Problem { path, kind: problem } in schema::check(schema, object) {
            let top = match path.segments().first() {
                Some(Segment::Key(key)) => key.as_str(),
                _ => "",
            };
            // Status and metadata of built-in kinds follow rules that are not in the schema.
            if builtin && matches!(top, "status" | "metadata") {
                continue;
            }
            causes.extend(schema_cause(object, &path, &problem));
        }
    }
    match kind.origin {
        Origin::BuiltIn => causes.extend(rules(kind, object)),
        Origin::Custom => causes.extend(bounds::judge(kind, object)),
    }
    causes.extend(labels(object));
    causes.extend(owners(object));
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(&kind.group, &kind.kind, name, causes)) }
}

const LABEL_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
    end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with the syntax of the labels (`ValidateLabels` of apimachinery).
fn labels(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut wrong = |shown: &str, why: &str| {
        let message = format!("Invalid value: {shown:?}: {why}");
        causes.push(cause("FieldValueInvalid", "metadata.labels".to_owned(), message));
    };
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    for (name, value) in labels.into_iter().flatten() {
        let part = name.rsplit_once('/').map_or(name.as_str(), |(_, part)| part);
        let value = value.as_str().unwrap_or_default();
        if part.is_empty() || !is_qualified(part) {
            wrong(name, LABEL_NAME);
        }
        if part.len() > 63 {
            wrong(name, "name part must be no more than 63 bytes");
        }
        if !value.is_empty() && !is_qualified(value) {
            wrong(value, LABEL_VALUE);
        }
        if value.len() > 63 {
            wrong(value, "must be no more than 63 bytes");
        }
    }
    causes
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_qualified(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// What is wrong with the owner references.
fn owners(object: &Value) -> Vec<Cause> {
    let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let references: Vec<&Value> = references.into_iter().flatten().collect();
    let mut causes = Vec::new();
    for reference in &references {
        for name in ["apiVersion", "kind", "name", "uid"] {
            if text(reference, &format!("/{name}")).is_empty() {
                let message = "Invalid value: \"\": must not be empty".to_owned();
                causes.push(cause("FieldValueInvalid", format!("metadata.ownerReferences.{name}"), message));
            }
        }
    }
    let controllers: Vec<&str> = references
        .iter()
        .filter(|reference| reference["controller"] == true)
        .map(|reference| text(reference, "/name"))
        .collect();
    if let [first, second, ..] = controllers.as_slice() {
        let shown = Value::Array(references.iter().map(|reference| (*reference).clone()).collect());
        let message = format!(
            "Invalid value: {shown}: Only one reference can have Controller set to true. Found \"true\" in \
             references for {first} and {second}"
        );
        causes.push(cause("FieldValueInvalid", "metadata.ownerReferences".to_owned(), message));
    }
    causes
}

/// Refuses new finalizers of an object that is being deleted.
pub fn finalizers(kind: &Kind, live: &Value, object: &Value) -> Result<(), Status> {
    if live.pointer("/metadata/deletionTimestamp").is_none() {
        return Ok(());
    }
    let list = |object: &Value| -> Vec<String> {
        let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let known = list(live);
    let fresh: Vec<String> = list(object)
        .into_iter()
        .filter(|name| !known.contains(name))
        .map(|name| format!("{name:?}"))
        .collect();
    if fresh.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
         []string{{{}}}",
        fresh.join(", ")
    );
    // Two of the server's checks find it.
    let causes = vec![cause("FieldValueForbidden", "metadata.finalizers".to_owned(), message); 2];
    Err(Status::invalid(&kind.group, &kind.kind, text(object, "/metadata/name"), causes))
}

fn schema_cause(object: &Value, path: &FieldPath, problem: &ProblemKind) -> Option<Cause> {
    let field = path_text(path);
    match problem {
        ProblemKind::WrongType { expected, found } => {
            let found = match found.as_str() {
                "list" => "array",
                other => other,
            };
            let expected = match expected {
                Type::List => "array".to_owned(),
                Type::Map => "object".to_owned(),
                Type::IntOrString => "integer,string".to_owned(),
                other => other.to_string(),
            };
            let message = format!(
                "Invalid value: \"{found}\": {field} in body must be of type {expected}: \"{found}\""
            );
            Some(cause("FieldValueTypeInvalid", field, message))
        }
        ProblemKind::MissingField(name) => {
            let field = path_text(&path.key(name));
            Some(cause("FieldValueRequired", field, "Required value".to_owned()))
        }
        ProblemKind::NotOneOf(values) => {
            let value = path.find(object).cloned().unwrap_or_default();
            let values: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
            let message = format!("Unsupported value: {value}: supported values: {}", values.join(", "));
            Some(cause("FieldValueNotSupported", field, message))
        }
        ProblemKind::OutOfRange { format } => {
            let value = path.find(object).cloned().unwrap_or_default();
            let message = format!("Invalid value: {value}: must fit {format}");
            Some(cause("FieldValueInvalid", field, message))
        }
        ProblemKind::NotAQuantity(value) => {
            let message = format!("Invalid value: \"{value}\": quantities must match the regular expression");
            Some(cause("FieldValueInvalid", field, message))
        }
        ProblemKind::UnknownField { .. } | ProblemKind::OnlyOneOf(_) => None,
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
    or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
    must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
    'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Whether a text is a label of a domain name.
fn is_label(part: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(alphanumeric)
        && part.ends_with(alphanumeric)
        && part.chars().all(|c| alphanumeric(c) || c == '-')
}

/// Why a name does not suit the kind.
fn bad_name(kind: &Kind, name: &str) -> Option<String> {
    if kind.group == "rbac.authorization.k8s.io" {
        return name.contains(['/', '%']).then(|| "may not contain '/' or '%'".to_owned());
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace" | "Service") if name.len() > 63 => {
            Some("must be no more than 63 characters".to_owned())
        }
        ("", "Namespace" | "Service") if name.contains('.') => Some("must not contain dots".to_owned()),
        ("", "Namespace" | "Service") => (!is_label(name)).then(|| LABEL.to_owned()),
        _ if name.len() > 253 => Some("must be no more than 253 characters".to_owned()),
        _ => (!name.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned()),
    }
}

/// Rules of built-in kinds that people run into.
fn rules(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let required = |field: &str| cause("FieldValueRequired", field.to_owned(), "Required value".to_owned());
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet") => {
            selects_template(object, &mut causes);
            containers(object, "/spec/template/spec", "spec.template.spec", &mut causes);
        }
        ("batch", "Job") => {
            containers(object, "/spec/template/spec", "spec.template.spec", &mut causes);
            if text(object, "/spec/template/spec/restartPolicy") == "Always" {
                let message = "Required value: valid values: \"OnFailure\", \"Never\"";
                let field = "spec.template.spec.restartPolicy".to_owned();
                causes.push(cause("FieldValueRequired", field, message.to_owned()));
            }
        }
        ("", "Pod") => {
            containers(object, "/spec", "spec", &mut causes);
            let policy = text(object, "/spec/restartPolicy");
            if !matches!(policy, "" | "Always" | "OnFailure" | "Never") {
                let supported = "supported values: \"Always\", \"OnFailure\", \"Never\"";
                let message = format!("Unsupported value: \"{policy}\": {supported}");
                causes.push(cause("FieldValueNotSupported", "spec.restartPolicy".to_owned(), message));
            }
        }
        ("", "ConfigMap") => {
            let fits = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            for key in object["data"].as_object().into_iter().flatten().map(|(key, _)| key) {
                if !fits(key) {
                    let message = format!("Invalid value: \"{key}\": {CONFIG_KEY}");
                    causes.push(cause("FieldValueInvalid", format!("data[{key}]"), message));
                }
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let (plural, group) = (text(object, "/spec/names/plural"), text(object, "/spec/group"));
            let wanted = format!("{plural}.{group}");
            let name = text(object, "/metadata/name");
            if name != wanted {
                let message =
                    format!("Invalid value: \"{name}\": must be spec.names.plural+\".\"+spec.group");
                causes.push(cause("FieldValueInvalid", "metadata.name".to_owned(), message));
            }
        }
        ("", "Service") => {
            let headless = text(object, "/spec/clusterIP") == "None";
            let external = text(object, "/spec/type") == "ExternalName";
            let ports = object.pointer("/spec/ports").and_then(Value::as_array);
            if !headless && !external && ports.is_none_or(Vec::is_empty) {
                causes.push(required("spec.ports"));
            }
            for (index, port) in ports.into_iter().flatten().enumerate() {
                for name in ["port", "targetPort"] {
                    if let Some(number) = port[name].as_i64().filter(|number| !(1..=65535).contains(number)) {
                        let message =
                            format!("Invalid value: {number}: must be between 1 and 65535, inclusive");
                        causes.push(cause(
                            "FieldValueInvalid",
                            format!("spec.ports[{index}].{name}"),
                            message,
                        ));
                    }
                }
            }
            if ports.is_some_and(|ports| ports.len() > 1) {
                for (index, port) in ports.into_iter().flatten().enumerate() {
                    if text(port, "/name").is_empty() {
                        causes.push(required(&format!("spec.ports[{index}].name")));
                    }
                }
            }
        }
        _ => {}
    }
    causes
}

fn selects_template(object: &Value, causes: &mut Vec<Cause>) {
    let labels = object.pointer("/spec/template/metadata/labels");
    let wanted = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let matches = wanted
        .into_iter()
        .flatten()
        .all(|(name, value)| labels.and_then(|labels| labels.get(name)).is_some_and(|found| found == value));
    if !matches {
        let shown = labels.cloned().unwrap_or(Value::Null);
        let message = format!("Invalid value: {shown}: `selector` does not match template `labels`");
        causes.push(cause("FieldValueInvalid", "spec.template.metadata.labels".to_owned(), message));
    }
}

fn containers(object: &Value, pointer: &str, field: &str, causes: &mut Vec<Cause>) {
    let Some(spec) = object.pointer(pointer) else { return };
    let list = spec.get("containers").and_then(Value::as_array);
    if list.is_none_or(Vec::is_empty) {
        let missing = format!("{field}.containers");
        if !causes.iter().any(|known| known.field == missing) && spec.get("containers").is_some() {
            causes.push(cause("FieldValueRequired", missing, "Required value".to_owned()));
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, container) in list.into_iter().flatten().enumerate() {
        let at = format!("{field}.containers[{index}]");
        if text(container, "/image").is_empty() {
            causes.push(cause("FieldValueRequired", format!("{at}.image"), "Required value".to_owned()));
        }
        let name = text(container, "/name");
        if !name.is_empty() && !is_label(name) {
            causes.push(cause(
                "FieldValueInvalid",
                format!("{at}.name"),
                format!("Invalid value: \"{name}\": {LABEL}"),
            ));
        }
        if !name.is_empty() && seen.contains(&name) {
            let message = format!("Duplicate value: \"{name}\"");
            causes.push(cause("FieldValueDuplicate", format!("{at}.name"), message));
        }
        seen.push(name);
        for resource in
            container.pointer("/resources/requests").and_then(Value::as_object).into_iter().flatten()
        {
            let (name, request) = resource;
            let limit = container.pointer("/resources/limits").and_then(|limits| limits.get(name));
            let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if name.contains('/') && limit.is_some_and(|limit| plain(limit) != plain(request)) {
                let message = format!(
                    "Invalid value: \"{}\": must be equal to {name} limit of {}",
                    plain(request),
                    limit.map(plain).unwrap_or_default()
                );
                causes.push(cause("FieldValueInvalid", format!("{at}.resources.requests"), message));
            }
        }
    }
    let names: Vec<&str> = spec
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|v| text(v, "/name"))
        .collect();
    for list in ["containers", "initContainers"] {
        let all = spec.get(list).and_then(Value::as_array);
        for (index, container) in all.into_iter().flatten().enumerate() {
            let mounts = container.get("volumeMounts").and_then(Value::as_array);
            for (mount, value) in mounts.into_iter().flatten().enumerate() {
                let name = text(value, "/name");
                if !names.contains(&name) {
                    let at = format!("{field}.{list}[{index}].volumeMounts[{mount}].name");
                    causes.push(cause("FieldValueNotFound", at, format!("Not found: \"{name}\"")));
                }
            }
        }
    }
}

/// Fields that keep their first value, by group and kind.
const IMMUTABLE: &[(&str, &str, &[&str])] = &[
    ("apps", "Deployment", &["/spec/selector"]),
    ("apps", "DaemonSet", &["/spec/selector"]),
    ("apps", "ReplicaSet", &["/spec/selector"]),
    ("batch", "Job", &["/spec/selector", "/spec/template", "/spec/completionMode"]),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural"],
    ),
    ("scheduling.k8s.io", "PriorityClass", &["/value", "/preemptionPolicy"]),
    (
        "storage.k8s.io",
        "StorageClass",
        &["/parameters", "/provisioner", "/reclaimPolicy", "/volumeBindingMode"],
    ),
    ("", "Secret", &["/type"]),
];

/// Refuses a change of what may not change.
pub fn change(kind: &Kind, live: &Value, object: &Value) -> Result<(), Status> {
    if kind.origin == Origin::Custom {
        return Ok(());
    }
    let mut causes = Vec::new();
    let (group, name) = (kind.group.as_str(), kind.kind.as_str());
    let fields =
        IMMUTABLE.iter().filter(|(g, k, _)| *g == group && *k == name).flat_map(|(_, _, fields)| *fields);
    for pointer in fields {
        if live.pointer(pointer) != object.pointer(pointer) {
            causes.push(immutable(object, pointer, "field is immutable"));
        }
    }
    match (group, name) {
        ("", "Service") => {
            let (old, new) = (text(live, "/spec/clusterIP"), text(object, "/spec/clusterIP"));
            let external =
                text(object, "/spec/type") == "ExternalName" || text(live, "/spec/type") == "ExternalName";
            if !external && !old.is_empty() && old != new {
                let message = format!("Invalid value: [\"{new}\"]: may not change once set");
                causes.push(cause("FieldValueInvalid", "spec.clusterIPs[0]".to_owned(), message));
            }
        }
        ("", "ConfigMap" | "Secret") if live["immutable"] == true => {
            for pointer in ["/data", "/binaryData", "/immutable"] {
                if live.pointer(pointer) != object.pointer(pointer) {
                    let message = "Forbidden: field is immutable when `immutable` is set".to_owned();
                    causes.push(cause("FieldValueForbidden", pointer[1..].to_owned(), message));
                }
            }
        }
        ("", "Pod") => pod_change(live, object, &mut causes),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding")
            if live["roleRef"] != object["roleRef"] =>
        {
            causes.push(immutable(object, "/roleRef", "cannot change roleRef"));
        }
        _ => {}
    }
    let named = text(object, "/metadata/name");
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(group, name, named, causes)) }
}

fn immutable(object: &Value, pointer: &str, why: &str) -> Cause {
    let value = object.pointer(pointer).cloned().unwrap_or(Value::Null);
    let field = pointer[1..].replace('/', ".");
    cause("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
}

/// Of a pod's spec only images, deadlines, added tolerations and (gated) little else may change.
fn pod_change(live: &Value, object: &Value, causes: &mut Vec<Cause>) {
    let frozen = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                drop(container.as_object_mut().and_then(|fields| fields.remove("image")));
            }
        }
        if let Some(fields) = spec.as_object_mut() {
            for name in ["activeDeadlineSeconds", "tolerations", "nodeName", "terminationGracePeriodSeconds"]
            {
                fields.remove(name);
            }
        }
        spec
    };
    let bound = |pod: &Value| text(pod, "/spec/nodeName").to_owned();
    let moved = !bound(live).is_empty() && bound(live) != bound(object);
    let old = live.pointer("/spec/tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let new = object.pointer("/spec/tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let timeless = |toleration: &Value| {
        let mut toleration = toleration.clone();
        drop(toleration.as_object_mut().and_then(|fields| fields.remove("tolerationSeconds")));
        toleration
    };
    let kept: Vec<Value> = new.iter().map(timeless).collect();
    if old.iter().any(|toleration| !kept.contains(&timeless(toleration))) {
        let message = "Forbidden: existing toleration can not be modified except its tolerationSeconds";
        causes.push(cause("FieldValueForbidden", "spec.tolerations".to_owned(), message.to_owned()));
        return;
    }
    if frozen(live) != frozen(object) || moved {
        let message = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
            `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
            existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
            previously negative)";
        causes.push(cause("FieldValueForbidden", "spec".to_owned(), message.to_owned()));
    }
}
