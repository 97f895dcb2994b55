//! The JSON Schema of the stack file, generated from the Rust types. One form checks the file after its references are resolved;
//! the other is for editors, which see the references.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Stack;

/// Returns the schema for editors, in draft-07, which TOML editors support. It also allows a reference such as `"${var.x}"` for a
/// number, a flag or a word.
pub fn json_schema() -> Value {
    let mut schema = shape().clone();
    walk(&mut schema, &allow_references);
    schema
}

/// Returns the schema of the resolved file.
pub(super) fn shape() -> &'static Value {
    static SHAPE: LazyLock<Value> = LazyLock::new(|| {
        let generator = SchemaSettings::draft07().into_generator();
        let mut schema = generator.into_root_schema_for::<Stack>().to_value();
        walk(&mut schema, &settle);
        overlays(&mut schema);
        schema
    });
    &SHAPE
}

/// Returns the schema behind a `$ref`, alone or wrapped in `allOf` beside a description.
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

/// The keys for merging files. They are removed before the tree becomes a stack.
pub(super) const OVERLAY: [&str; 3] = ["extends", "unset", "enabled"];

/// Returns the schema of the tables in a keyed section: that of `[node_pool.NAME]`.
pub(super) fn members<'s>(root: &'s Value, schema: &'s Value) -> Option<&'s Value> {
    let members = resolve(root, schema.get("additionalProperties")?);
    members.get("properties").is_some().then_some(members)
}

/// Returns true if a table of the file can be left out as a whole.
pub(super) fn is_section(key: &str, schema: &Value) -> bool {
    key != "stack" && schema.get("properties").is_some()
}

/// Adds the keys for merging files to every section.
fn overlays(schema: &mut Value) {
    let mut sections = BTreeSet::new();
    section_references(schema, schema, &mut sections);
    let list = |about: &str| json!({ "description": about, "type": "array", "items": { "type": "string" } });
    for reference in sections {
        let Some(section) = schema.pointer_mut(&reference).and_then(|section| section.get_mut("properties"))
        else {
            continue;
        };
        section["enabled"] = json!({
            "description": "`false` removes the section, as if it were not in the file. Default `true`.",
            "type": "boolean",
        });
        section["unset"] = list("Keys of this section to remove that an extended file sets.");
    }
    schema["properties"]["extends"] = json!({
        "description": "The file that this one overlays, relative to this one's folder.",
        "type": "string",
    });
    schema["properties"]["unset"] =
        list("Fields to remove that an extended file sets: `node_pool.a.labels.x`.");
}

fn section_references(root: &Value, schema: &Value, found: &mut BTreeSet<String>) {
    let reference = |schema: &Value| {
        let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"))?;
        Some(reference.as_str()?.trim_start_matches('#').to_owned())
    };
    let top = std::ptr::eq(root, schema);
    for (key, schema) in resolve(root, schema)["properties"].as_object().into_iter().flatten() {
        let inner = resolve(root, schema);
        if let Some(members) = members(root, inner) {
            found.extend(reference(&inner["additionalProperties"]));
            section_references(root, members, found);
        } else if top && is_section(key, inner) {
            found.extend(reference(schema));
            section_references(root, inner, found);
        }
    }
}

/// Returns the words of an enumeration.
pub(super) fn words(schema: &Value) -> Option<Vec<&str>> {
    let choices = schema.get("oneOf")?.as_array()?;
    choices.iter().map(|choice| choice.get("const")?.as_str()).collect()
}

/// Returns the words of an enumeration that is one of several forms of a value.
pub(super) fn listed_words(schema: &Value) -> Option<Vec<&str>> {
    schema.get("enum")?.as_array()?.iter().map(Value::as_str).collect()
}

/// Returns the first example in a schema, for texts in a special format.
pub(super) fn example_of(schema: &Value) -> Option<&Value> {
    schema.get("examples")?.get(0)
}

/// Returns the JSON types that a schema accepts; empty when it lists alternatives instead.
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

/// Adapts a schema to TOML: no null, bounded integers, and descriptions without line breaks.
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
    // Serde cannot refuse unknown keys of a table that shares keys with others (`flatten`), so the schema does for all.
    if object.get("properties").is_some_and(Value::is_object)
        && object.get("type").is_some_and(|name| name == "object")
    {
        object.entry("additionalProperties").or_insert(json!(false));
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
