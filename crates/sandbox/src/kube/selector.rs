//! Label and field selectors of lists, watches and deletes.

use serde_json::Value;

use super::object::text;
use super::scheme::Kind;
use super::status::Status;
use super::strategy::Selectable;

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    More(String, i64),
    Less(String, i64),
}

/// Which objects a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    /// Path, wanted value, and whether it must be equal.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    /// From `labelSelector` and `fieldSelector`.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, Status> {
        let labels = split(labels).into_iter().map(|part| requirement(&part)).collect::<Result<_, _>>()?;
        let fields = fields
            .split(',')
            .filter(|part| !part.trim().is_empty())
            .map(|part| {
                let (path, value, equal) = part
                    .split_once("!=")
                    .map(|(path, value)| (path, value, false))
                    .or_else(|| part.split_once("==").map(|(path, value)| (path, value, true)))
                    .or_else(|| part.split_once('=').map(|(path, value)| (path, value, true)))
                    .ok_or_else(|| {
                        Status::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'"))
                    })?;
                Ok((path.trim().to_owned(), value.trim().to_owned(), equal))
            })
            .collect::<Result<_, Status>>()?;
        Ok(Self { labels, fields })
    }

    /// Refuses fields that the kind cannot be selected by.
    pub fn check(&self, kind: &Kind) -> Result<(), Status> {
        let known = |path: &str| match kind.strategy.selectable {
            Selectable::Any => true,
            Selectable::These(own) => {
                matches!(path, "metadata.name" | "metadata.namespace") || own.contains(&path)
            }
        };
        match self.fields.iter().find(|(path, ..)| !known(path)) {
            Some((path, ..)) => Err(Status::bad_request(format!("field label not supported: {path}"))),
            None => Ok(()),
        }
    }

    /// A selector of exactly one name.
    pub fn name(name: &str) -> Self {
        Self { labels: Vec::new(), fields: vec![("metadata.name".to_owned(), name.to_owned(), true)] }
    }

    /// Returns true if it selects everything.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if the object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        let label =
            |name: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(name)?.as_str());
        let labels = self.labels.iter().all(|requirement| match requirement {
            Requirement::In(name, values) => {
                label(name).is_some_and(|value| values.iter().any(|wanted| wanted == value))
            }
            Requirement::NotIn(name, values) => {
                label(name).is_none_or(|value| values.iter().all(|wanted| wanted != value))
            }
            Requirement::Exists(name) => label(name).is_some(),
            Requirement::Absent(name) => label(name).is_none(),
            Requirement::More(name, bound) => {
                label(name).and_then(|value| value.parse::<i64>().ok()).is_some_and(|value| value > *bound)
            }
            Requirement::Less(name, bound) => {
                label(name).and_then(|value| value.parse::<i64>().ok()).is_some_and(|value| value < *bound)
            }
        });
        labels && self.fields.iter().all(|(path, wanted, equal)| (field(object, path) == *wanted) == *equal)
    }
}

/// A field as selectors see it: text, empty when absent.
fn field(object: &Value, path: &str) -> String {
    let pointer = format!("/{}", path.replace('.', "/"));
    match object.pointer(&pointer) {
        None | Some(Value::Null) => match path {
            // Defaults of the selectable fields.
            "spec.unschedulable" => "false".to_owned(),
            "status.nominatedNodeName" => String::new(),
            "source" => text(object, "/source/component").to_owned(),
            "reportingComponent" => text(object, "/source/component").to_owned(),
            _ => String::new(),
        },
        Some(Value::String(value)) => value.clone(),
        Some(Value::Object(_)) if path == "source" => text(object, "/source/component").to_owned(),
        Some(other) => other.to_string(),
    }
}

/// Splits at commas that are not inside parentheses.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_i32;
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(last) if letter != ',' || depth > 0 => last.push(letter),
            _ => parts.push(String::new()),
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

fn requirement(part: &str) -> Result<Requirement, Status> {
    let bad = || {
        Status::bad_request(format!(
            "unable to parse requirement: {part:?} is not a label selector requirement"
        ))
    };
    if let Some((name, list)) = part.split_once('(') {
        let values =
            list.trim_end_matches(')').split(',').map(|value| value.trim().to_owned()).collect::<Vec<_>>();
        return match name.split_whitespace().collect::<Vec<_>>().as_slice() {
            [name, "in"] => Ok(Requirement::In((*name).to_owned(), values)),
            [name, "notin"] => Ok(Requirement::NotIn((*name).to_owned(), values)),
            _ => Err(bad()),
        };
    }
    let pair = |mark: &str| {
        part.split_once(mark).map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
    };
    if let Some((name, value)) = pair("!=") {
        return Ok(Requirement::NotIn(name, vec![value]));
    }
    if let Some((name, value)) = pair("==").or_else(|| pair("=")) {
        if value.starts_with('=') {
            return Err(Status::bad_request("unable to parse requirement: found '=', expected: identifier"));
        }
        return Ok(Requirement::In(name, vec![value]));
    }
    if let Some((name, value)) = pair(">") {
        return Ok(Requirement::More(name, value.parse().map_err(|_| bad())?));
    }
    if let Some((name, value)) = pair("<") {
        return Ok(Requirement::Less(name, value.parse().map_err(|_| bad())?));
    }
    match part.strip_prefix('!') {
        Some(name) => Ok(Requirement::Absent(name.trim().to_owned())),
        None if part.contains(char::is_whitespace) => Err(bad()),
        None => Ok(Requirement::Exists(part.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select() {
        let object = json!({
            "metadata": {"name": "x", "labels": {"app": "dask", "tier": "gpu", "n": "5"}},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"},
            "involvedObject": {"kind": "Pod"},
        });
        for (labels, fields, expected) in [
            ("", "", true),
            ("app=dask", "", true),
            ("app==dask,tier!=cpu", "", true),
            ("app", "", true),
            ("!app", "", false),
            ("!other", "", true),
            ("tier in (gpu, cpu),app", "", true),
            ("tier notin (gpu)", "", false),
            ("other notin (gpu)", "", true),
            ("n>4", "", true),
            ("n<4", "", false),
            ("", "metadata.name=x", true),
            ("", "metadata.name!=x", false),
            ("", "spec.nodeName=n1,status.phase!=Failed", true),
            ("", "involvedObject.kind=Pod", true),
            ("", "spec.unschedulable=false", true),
        ] {
            let selector = Selector::parse(labels, fields).unwrap();
            assert_eq!(selector.matches(&object), expected, "{labels} {fields}");
        }
        assert!(Selector::parse("a b", "").is_err());
        assert!(Selector::parse("", "nonsense").is_err());
    }
}
