//! The JSON Schema of the stack file, made from the Rust types. One form is what the file is checked against
//! after its references are resolved; the other is for editors, which see the references themselves.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Stack;

/// The schema for editors, draft-07 (what TOML editors know): a number, a flag or a word may be written as a
/// reference `"${var.x}"` too.
pub fn json_schema() -> Value {
    let mut schema = shape().clone();
    walk(&mut schema, &allow_references);
    schema
}

/// The schema of the resolved file.
pub(super) fn shape() -> &'static Value {
    static SHAPE: LazyLock<Value> = LazyLock::new(|| {
        let generator = SchemaSettings::draft07().into_generator();
        let mut schema = generator.into_root_schema_for::<Stack>().to_value();
        walk(&mut schema, &settle);
        schema
    });
    &SHAPE
}

/// The schema behind a `$ref`, alone or wrapped in `allOf` beside a description.
pub(super) fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let mut schema = schema;
    loop {
        let reference =
            schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref")).and_then(Value::as_str);
        let Some(target) = reference.and_then(|r| root.pointer(r.trim_start_matches('#'))) else {
            return schema;
        };
        schema = target;
    }
}

/// The words of an enumeration.
pub(super) fn words(schema: &Value) -> Option<Vec<&str>> {
    let choices = schema.get("oneOf")?.as_array()?;
    choices.iter().map(|choice| choice.get("const")?.as_str()).collect()
}

/// The JSON types that a schema accepts; empty when it lists alternatives instead.
pub(super) fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn walk(value: &mut Value, change: &impl Fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(|value| walk(value, change));
            change(object);
        }
        Value::Array(items) => items.iter_mut().for_each(|value| walk(value, change)),
        _ => {}
    }
}

/// TOML has no null, integers have ends, and a wrapped line is no new line.
fn settle(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            object.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(mut choices)) = object.remove("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
        object.insert("allOf".to_owned(), Value::Array(choices));
    }
    if object.get("format").is_some_and(|format| format == "uint32") {
        object.remove("format");
        object.entry("maximum").or_insert(json!(u32::MAX));
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.replace("\n\n", "\u{0}").replace('\n', " ").replace('\u{0}', "\n\n");
    }
}

const REFERENCE: &str = r"\$\{";

fn allow_references(object: &mut Map<String, Value>) {
    let reference = json!({ "type": "string", "pattern": REFERENCE });
    if words(&Value::Object(object.clone())).is_some() {
        if let Some(Value::Array(choices)) = object.get_mut("oneOf") {
            choices.push(reference);
        }
        return;
    }
    let scalar = object.get("type").is_some_and(|name| name == "integer" || name == "boolean");
    if scalar && let Some(name) = object.remove("type") {
        object.insert("type".to_owned(), json!([name, "string"]));
        object.insert("pattern".to_owned(), json!(REFERENCE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_null_and_every_reference_leads_somewhere() {
        fn visit(root: &Value, value: &Value) {
            assert_ne!(value, "null");
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                assert!(root.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
            }
            assert_eq!(value.get("anyOf"), None, "alternatives are told apart by type: `oneOf`");
            match value {
                Value::Object(object) => object.values().for_each(|value| visit(root, value)),
                Value::Array(items) => items.iter().for_each(|value| visit(root, value)),
                _ => {}
            }
        }
        visit(shape(), shape());
        visit(&json_schema(), &json_schema());
    }
}
