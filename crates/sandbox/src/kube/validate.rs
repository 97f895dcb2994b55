//! Reasons to refuse an object: unknown fields, wrong types, missing fields, and changes of fields that
//! may not change.

use serde_json::{Value, json};

use super::form::prune;
use super::object::{list, text};
use super::scheme::{Kind, Origin};
use super::status::{Cause, Status};
use super::{bounds, names};
use model::address::{FieldPath, Segment};
use model::schema::{self, Problem, ProblemKind, Type};

/// Ways to treat fields that the schema does not have.
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

/// Refuses an object that breaks its schema or the rules of its kind, all causes at once.
pub fn object(kind: &Kind, object: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    let name = text(object, "/metadata/name");
    if name.is_empty() {
        let message = "Required value: name or generateName is required";
        causes.push(Cause::new("FieldValueRequired", "metadata.name", message));
    } else if let Some(why) = (kind.strategy.bad_name)(name) {
        causes.push(Cause::invalid("metadata.name", format!("\"{name}\""), why));
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
    (kind.strategy.validate)(object, &mut causes);
    if kind.origin == Origin::Custom {
        causes.extend(bounds::judge(kind, object));
    }
    causes.extend(labels(object));
    causes.extend(owners(object));
    refuse(kind, object, causes)
}

/// Returns the errors in the syntax of the labels. Source: apimachinery, `ValidateLabels`.
fn labels(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut wrong = |shown: &str, whys: Vec<&str>| {
        let shown = format!("{shown:?}");
        causes.extend(whys.into_iter().map(|why| Cause::invalid("metadata.labels", &shown, why)));
    };
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    for (name, value) in labels.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        wrong(name, names::bad_label_key(name));
        wrong(value, names::bad_label_value(value));
    }
    causes
}

/// Returns the errors in the owner references.
fn owners(object: &Value) -> Vec<Cause> {
    let references = list(object, "/metadata/ownerReferences");
    let mut causes = Vec::new();
    for reference in references {
        for name in ["apiVersion", "kind", "name", "uid"] {
            if text(reference, &format!("/{name}")).is_empty() {
                let field = format!("metadata.ownerReferences.{name}");
                causes.push(Cause::invalid(field, "\"\"", "must not be empty"));
            }
        }
    }
    let controllers = references.iter().filter(|reference| reference["controller"] == true);
    let controllers: Vec<&str> = controllers.map(|reference| text(reference, "/name")).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and \
             {second}"
        );
        causes.push(Cause::invalid("metadata.ownerReferences", json!(references), &why));
    }
    causes
}

/// Refuses new finalizers of an object that is being deleted.
pub fn finalizers(kind: &Kind, live: &Value, object: &Value) -> Result<(), Status> {
    if live.pointer("/metadata/deletionTimestamp").is_none() {
        return Ok(());
    }
    let known = list(live, "/metadata/finalizers");
    let fresh = list(object, "/metadata/finalizers").iter().filter(|name| !known.contains(name));
    let fresh: Vec<String> = fresh.map(Value::to_string).collect();
    if fresh.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        fresh.join(", ")
    );
    // Two of the server's checks find it.
    refuse(kind, object, vec![Cause::forbidden("metadata.finalizers", &why); 2])
}

fn schema_cause(object: &Value, path: &FieldPath, problem: &ProblemKind) -> Option<Cause> {
    let field = path_text(path);
    let value = || path.find(object).cloned().unwrap_or_default();
    Some(match problem {
        ProblemKind::WrongType { expected, found } => {
            let found = if found == "list" { "array" } else { found };
            let expected = match expected {
                Type::List => "array".to_owned(),
                Type::Map => "object".to_owned(),
                Type::IntOrString => "integer,string".to_owned(),
                other => other.to_string(),
            };
            let message = format!(
                "Invalid value: \"{found}\": {field} in body must be of type {expected}: \"{found}\""
            );
            Cause::new("FieldValueTypeInvalid", field, message)
        }
        ProblemKind::MissingField(name) => Cause::required(path_text(&path.key(name))),
        ProblemKind::NotOneOf(values) => {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            Cause::unsupported(field, value(), &values)
        }
        ProblemKind::OutOfRange { format } => Cause::invalid(field, value(), &format!("must fit {format}")),
        ProblemKind::NotAQuantity(value) => {
            Cause::invalid(field, format!("\"{value}\""), "quantities must match the regular expression")
        }
        ProblemKind::UnknownField { .. } | ProblemKind::OnlyOneOf(_) => return None,
    })
}

/// Refuses a change of what may not change.
pub fn change(kind: &Kind, live: &Value, object: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    for pointer in kind.strategy.immutable {
        if live.pointer(pointer) != object.pointer(pointer) {
            let value = object.pointer(pointer).unwrap_or(&Value::Null);
            causes.push(Cause::invalid(pointer[1..].replace('/', "."), value, "field is immutable"));
        }
    }
    (kind.strategy.validate_update)(live, object, &mut causes);
    refuse(kind, object, causes)
}

fn refuse(kind: &Kind, object: &Value, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&kind.group, &kind.kind, text(object, "/metadata/name"), causes))
}
