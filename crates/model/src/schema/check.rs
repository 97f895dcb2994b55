//! Checks values against schemas: returns every problem with its path.

use std::fmt;

use serde_json::{Map, Value};

use super::{Schema, Type};
use crate::address::FieldPath;
use crate::quantity::Quantity;

/// A violation of the schema at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: FieldPath,
    pub kind: ProblemKind,
}

/// The ways in which a value does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The path ends with a field that the object does not have.
    UnknownField { suggestion: Option<String> },
    /// `found` is the JSON type: `string`, `integer`, `number`, `boolean`, `list`, `object`, `null`.
    WrongType { expected: Type, found: String },
    /// The object at the path lacks this field.
    MissingField(String),
    /// The values that it may have.
    NotOneOf(Vec<String>),
    /// A string that is not a quantity such as `500m` or `16Gi`.
    NotAQuantity(String),
    /// A whole number that does not fit the format, `int32` or `uint32`.
    OutOfRange { format: String },
    /// At most one of these fields may be set.
    OnlyOneOf(Vec<String>),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_root() {
            write!(f, "{}: ", self.path)?;
        }
        self.kind.fmt(f)
    }
}

/// Describes the problem, without its place.
impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField { suggestion: Some(name) } => {
                write!(f, "unknown field, did you mean `{name}`?")
            }
            Self::UnknownField { suggestion: None } => f.write_str("unknown field"),
            Self::WrongType { expected, found } => write!(f, "expected {expected}, found {found}"),
            Self::MissingField(name) => write!(f, "required field `{name}` is missing"),
            Self::NotOneOf(values) => write!(f, "must be one of {}", values.join(", ")),
            Self::NotAQuantity(text) => {
                write!(f, "{text:?} is not a quantity; use a number and a unit such as 500m or 16Gi")
            }
            Self::OutOfRange { format } => write!(f, "number does not fit {format}"),
            Self::OnlyOneOf(names) => write!(f, "only one of {} may be set", names.join(", ")),
        }
    }
}

/// Returns all problems of a value, in path order. `null` counts as absent unless the schema allows it.
pub fn check(schema: &Schema, value: &Value) -> Vec<Problem> {
    let mut walk = Walk { problems: Vec::new() };
    walk.value(schema, value, &FieldPath::root());
    walk.problems.sort_by(|a, b| a.path.cmp(&b.path));
    walk.problems
}

struct Walk {
    problems: Vec<Problem>,
}

impl Walk {
    fn report(&mut self, path: &FieldPath, kind: ProblemKind) {
        self.problems.push(Problem { path: path.clone(), kind });
    }

    fn value(&mut self, schema: &Schema, value: &Value, path: &FieldPath) {
        if value.is_null() && schema.nullable() {
            return;
        }
        match (schema.ty(), value) {
            (Type::Any, _) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => {}
            (Type::Object | Type::Map, Value::Object(fields)) => self.object(schema, fields, path),
            (Type::List, Value::Array(elements)) => self.list(schema, elements, path),
            (Type::String, Value::String(text)) => self.text(schema, text, path),
            (Type::Quantity, Value::Number(_)) | (Type::IntOrString, Value::String(_)) => {}
            (Type::Quantity, Value::String(text)) => {
                if Quantity::parse(text).is_none() {
                    self.report(path, ProblemKind::NotAQuantity(text.clone()));
                }
            }
            (Type::Integer | Type::IntOrString, Value::Number(number)) if !number.is_f64() => {
                self.integer(schema, number, path);
            }
            (expected, found) => {
                let found = json_type(found).to_owned();
                self.report(path, ProblemKind::WrongType { expected, found });
            }
        }
    }

    fn object(&mut self, schema: &Schema, fields: &Map<String, Value>, path: &FieldPath) {
        let values = schema.values();
        for (name, value) in fields {
            let path = path.key(name);
            match schema.property(name).or_else(|| values.clone()) {
                Some(inner) if value.is_null() && !inner.nullable() => {}
                Some(inner) => self.value(&inner, value, &path),
                None if schema.preserves_unknown() => {}
                None => {
                    let suggestion = closest(name, &schema.property_names());
                    self.report(&path, ProblemKind::UnknownField { suggestion });
                }
            }
        }
        for name in schema.required() {
            if !is_set(schema, fields, &name) && !has_default(schema, &name) {
                self.report(path, ProblemKind::MissingField(name));
            }
        }
        for names in schema.one_ofs() {
            let set: Vec<String> =
                names.iter().filter(|name| is_set(schema, fields, name)).cloned().collect();
            if set.len() > 1 {
                self.report(path, ProblemKind::OnlyOneOf(set));
            }
        }
    }

    fn list(&mut self, schema: &Schema, elements: &[Value], path: &FieldPath) {
        if let Some(items) = schema.items() {
            for (place, element) in elements.iter().enumerate() {
                self.value(&items, element, &path.index(place));
            }
        }
    }

    fn text(&mut self, schema: &Schema, text: &str, path: &FieldPath) {
        let values = schema.enum_values();
        if !values.is_empty() && !values.iter().any(|value| value == text) {
            self.report(path, ProblemKind::NotOneOf(values));
        }
    }

    fn integer(&mut self, schema: &Schema, number: &serde_json::Number, path: &FieldPath) {
        let Some(format) = schema.format() else { return };
        let fits = match format {
            "int32" => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            "uint32" => number.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
            _ => true,
        };
        if !fits {
            self.report(path, ProblemKind::OutOfRange { format: format.to_owned() });
        }
    }
}

/// Returns true if a field has a value. `null` is a value only if the schema says so.
fn is_set(schema: &Schema, fields: &Map<String, Value>, name: &str) -> bool {
    match fields.get(name) {
        Some(Value::Null) => schema.property(name).is_some_and(|inner| inner.nullable()),
        Some(_) => true,
        None => false,
    }
}

/// Returns true if the server fills in a field before it checks for required ones.
fn has_default(schema: &Schema, name: &str) -> bool {
    schema.property(name).is_some_and(|inner| inner.default().is_some())
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Returns the candidate that `word` probably means: it differs only in case, or by few edits.
pub fn closest<S: AsRef<str>>(word: &str, candidates: &[S]) -> Option<String> {
    let lower = word.to_lowercase();
    let length = lower.chars().count();
    let limit = length.div_ceil(3).min(length.saturating_sub(1));
    let measured = candidates.iter().map(|candidate| {
        let candidate = candidate.as_ref();
        (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate)
    });
    let (_, best) = measured.filter(|(distance, _)| *distance <= limit).min()?;
    Some(best.to_owned())
}
