//! The `Table` that `kubectl get` prints: the columns of pkg/printers/internalversion for built-in
//! kinds, a CRD's own for custom ones, name and age for the rest.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::since;
use super::scheme::{Kind, Origin, PrinterColumn};
use super::strategy::Column;

/// How much of each object a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// From `includeObject`.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("None") => Self::None,
            Some("Object") => Self::Object,
            _ => Self::Metadata,
        }
    }
}

/// The table of these objects. `show` says whether column definitions are stated: a watch does so only
/// in its first event.
pub fn table(kind: &Kind, objects: &[&Value], metadata: &Value, include: Include, now: Timestamp) -> Value {
    let (definitions, rows): (Vec<Value>, Vec<Vec<Value>>) = match kind.origin {
        Origin::BuiltIn => {
            let columns = kind.strategy.columns;
            let cells =
                |object: &&Value| columns.iter().map(|column| column.cell.show(object, now)).collect();
            (
                columns.iter().map(|Column { name, ty, wide, .. }| definition(name, ty, *wide)).collect(),
                objects.iter().map(cells).collect(),
            )
        }
        Origin::Custom => (
            custom_columns(kind)
                .iter()
                .map(|PrinterColumn { name, ty, priority, .. }| definition(name, ty, *priority != 0))
                .collect(),
            objects.iter().map(|object| custom_cells(kind, object, now)).collect(),
        ),
    };
    let rows: Vec<Value> = rows
        .into_iter()
        .zip(objects)
        .map(|(cells, object)| (typed(&definitions, cells), object))
        .map(|(cells, object)| match include {
            Include::None => json!({"cells": cells, "object": null}),
            Include::Metadata => json!({"cells": cells, "object": partial(object)}),
            Include::Object => json!({"cells": cells, "object": object}),
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows})
}

/// Cells in the type of their columns.
fn typed(definitions: &[Value], cells: Vec<Value>) -> Vec<Value> {
    let typed = |(cell, definition): (Value, &Value)| match (definition["type"].as_str(), cell) {
        (Some("integer"), Value::String(text)) => {
            text.parse::<i64>().map_or(json!(text), |number| json!(number))
        }
        (Some("boolean"), Value::String(text)) => text.parse::<bool>().map_or(json!(text), |is| json!(is)),
        (Some("string"), Value::Number(number)) => json!(number.to_string()),
        (_, cell) => cell,
    };
    cells.into_iter().zip(definitions).map(typed).collect()
}

/// An object's metadata alone.
pub fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn definition(name: &str, ty: &str, wide: bool) -> Value {
    json!({"name": name, "type": ty, "format": if name == "Name" { "name" } else { "" }, "description": "",
        "priority": i32::from(wide)})
}

/// The columns of a custom kind; without declared ones, its age.
fn custom_columns(kind: &Kind) -> Vec<PrinterColumn> {
    let column = |name: &str, ty: &str, path: &str| PrinterColumn {
        name: name.to_owned(),
        ty: ty.to_owned(),
        path: path.to_owned(),
        priority: 0,
    };
    let mut columns = vec![column("Name", "string", ".metadata.name")];
    if kind.columns.is_empty() {
        columns.push(column("Age", "date", ".metadata.creationTimestamp"));
    }
    columns.extend(kind.columns.iter().cloned());
    columns
}

fn custom_cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    custom_columns(kind)
        .iter()
        .map(|PrinterColumn { ty, path, .. }| match find(object, path) {
            Some(value) if ty == "date" => json!(since(value.as_str().unwrap_or_default(), now)),
            Some(value) if ty == "string" && !value.is_string() => json!(value.to_string()),
            Some(value) => value,
            None if ty == "date" => json!("<unknown>"),
            None => Value::Null,
        })
        .collect()
}

/// The part of JSONPath that printer columns use: names, and `[?(@.a=="b")]` filters.
fn find(object: &Value, path: &str) -> Option<Value> {
    let mut place = object.clone();
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix("[?(@.") {
            let (filter, tail) = tail.split_once(")]")?;
            let (name, wanted) = filter.split_once("==")?;
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            place = place.as_array()?.iter().find(|item| item[name.trim()] == wanted)?.clone();
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix('[') {
            let (index, tail) = tail.split_once(']')?;
            place = match index.parse::<usize>() {
                Ok(index) => place.get(index)?.clone(),
                Err(_) => place.get(index.trim_matches(['"', '\'']))?.clone(),
            };
            rest = tail;
        } else {
            let tail = rest.strip_prefix('.').unwrap_or(rest);
            let mut end = tail.len();
            let bytes = tail.as_bytes();
            for at in 0..bytes.len() {
                let escaped = at > 0 && bytes[at - 1] == b'\\';
                if (bytes[at] == b'.' && !escaped) || bytes[at] == b'[' {
                    end = at;
                    break;
                }
            }
            let name = tail[..end].replace("\\.", ".");
            if name.is_empty() {
                return None;
            }
            place = place.get(&name)?.clone();
            rest = &tail[end..];
        }
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_find_their_values() {
        let object = json!({"a": {"b.c": 1}, "l": [{"type": "Ready", "status": "True"}]});
        assert_eq!(find(&object, ".a.b\\.c"), Some(json!(1)));
        assert_eq!(find(&object, ".l[?(@.type==\"Ready\")].status"), Some(json!("True")));
        assert_eq!(find(&object, ".l[0].type"), Some(json!("Ready")));
        assert_eq!(find(&object, ".x.y"), None);
    }
}
