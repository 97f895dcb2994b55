//! `docs/stack-reference.md`, which is generated from the schema, and so from the doc comments of the sections.

use std::fmt::Write as _;

use serde_json::Value;

use super::schema::{OVERLAY, listed_words, resolve, shape, types, words};
use super::sections::SECTIONS;

/// Returns the sections in their usual order.
pub fn order() -> Vec<&'static str> {
    let sections = SECTIONS.iter().map(|row| row.name);
    ["stack", "gke", "kubernetes", "local", "ssh", "slurm", "vars"]
        .into_iter()
        .chain(sections)
        .chain(["budget", "allow"])
        .collect()
}

const HEAD: &str = "\
# The stack file

<!-- Written from the doc comments of the sections by `UPDATE_GOLDEN=1 cargo test`; do not edit. -->

A stack is a TOML file, `stack.toml`. Its first line may name the schema for editors: `#:schema stack.schema.json` \
(`dask-infra schema` prints it). `${var.NAME}` in any value is replaced by a variable of `[vars]`; a string that is nothing else takes the variable's type. `${env.NAME}` is replaced by an environment variable, in `[vars]` and `[gke]` only. `$${` is a literal `${`. `--var NAME=VALUE` sets a variable. The key of a section is the name of what it creates, unless `name` is set, and its address everywhere: `node_pool.a100`.

A file can overlay another one: `extends = \"base.toml\"` before the first section, relative to the folder of the file that has it. Tables are merged key by key, lists and other values are replaced; the extended file may extend a third one. Every section takes `enabled = false`, which removes it, and `unset = [\"labels.x\"]`, which removes keys set by the extended file; `unset` before the first section takes full paths (`node_pool.a.labels.x`). [Stacks](stacks.md) shows all of it, and `dask-infra show --effective` the result.
";

/// Returns the whole page.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for name in order() {
        let section = &shape()["properties"][name];
        let members =
            resolve(shape(), section).get("additionalProperties").filter(|members| members.is_object());
        match members {
            Some(members) if has_keys(members) => {
                table(&mut page, 2, &format!("{name}.NAME"), members, description(section));
            }
            Some(members) => {
                let _ = write!(
                    page,
                    "\n## `[{name}]`\n\n{}\n\nKeys are names, values {}.\n",
                    description(section),
                    type_of(members)
                );
            }
            None => table(&mut page, 2, name, section, description(section)),
        }
    }
    page
}

pub(super) fn has_keys(schema: &Value) -> bool {
    resolve(shape(), schema).get("properties").is_some()
}

/// Writes a heading, the table of keys, and the tables inside.
fn table(page: &mut String, depth: usize, path: &str, schema: &Value, about: &str) {
    let schema = resolve(shape(), schema);
    let _ = write!(page, "\n{} `[{path}]`\n\n{about}\n\n", "#".repeat(depth));
    page.push_str("| key | value | default | |\n|---|---|---|---|\n");
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut keys: Vec<(&String, &Value)> = schema["properties"].as_object().into_iter().flatten().collect();
    keys.retain(|(key, _)| !OVERLAY.contains(&key.as_str()));
    keys.sort_by_key(|(key, _)| (!required.contains(&key.as_str()), key.as_str()));
    for (key, value) in &keys {
        let (meaning, default) = meaning_and_default(value);
        let default = if required.contains(&key.as_str()) { "**required**".to_owned() } else { default };
        let _ = writeln!(
            page,
            "| `{key}` | {} | {} | {} |",
            cell(&type_of(value)),
            cell(&default),
            cell(&meaning)
        );
    }
    for (key, value) in keys {
        if let Some(members) = resolve(shape(), value).get("additionalProperties").filter(|it| has_keys(it)) {
            let about = description(resolve(shape(), members));
            table(page, depth + 1, &format!("{path}.{key}.NAME"), members, about);
        }
        for inner in tables_in(value) {
            let about = description(resolve(shape(), inner));
            table(page, depth + 1, &format!("{path}.{key}"), inner, about);
        }
    }
}

/// Returns the tables with keys that a value is, can be, or contains as a list.
pub(super) fn tables_in(schema: &Value) -> Vec<&Value> {
    let schema = resolve(shape(), schema);
    if let Some(items) = schema.get("items") {
        return tables_in(items);
    }
    if has_keys(schema) {
        return vec![schema];
    }
    schema["oneOf"].as_array().into_iter().flatten().filter(|choice| has_keys(choice)).collect()
}

/// Splits a description into its sentences and those that begin with "Default".
pub(super) fn meaning_and_default(schema: &Value) -> (String, String) {
    let (mut meaning, mut default) = (Vec::new(), Vec::new());
    for sentence in sentences(description(schema)) {
        match sentence.strip_prefix("Default") {
            Some(rest) => default.push(rest.trim_start_matches([':', ' ']).trim_end_matches('.').to_owned()),
            None => meaning.push(sentence),
        }
    }
    if default.is_empty() {
        let value = schema.get("default").filter(|value| !value.is_object() && !value.is_array());
        default.extend(
            value.map(|value| {
                format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            }),
        );
    }
    (meaning.join(" "), default.join(" "))
}

pub(super) fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut rest = text.trim();
    while let Some(end) = rest.find(". ") {
        sentences.push(&rest[..=end]);
        rest = rest[end + 2..].trim_start();
    }
    sentences.push(rest);
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

pub(super) fn type_of(schema: &Value) -> String {
    let schema = resolve(shape(), schema);
    if let Some(words) = words(schema).or_else(|| listed_words(schema)) {
        return words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return choices.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    }
    let names = types(schema).into_iter().map(|name| match name {
        "integer" => range(schema),
        "number" => "fraction".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => format!("list: {}", type_of(&schema["items"])),
        "object" => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => format!("table: {}", type_of(values)),
            _ => "table".to_owned(),
        },
        _ => "text".to_owned(),
    });
    names.collect::<Vec<_>>().join(", ")
}

fn range(schema: &Value) -> String {
    let most = schema["maximum"].as_u64().filter(|most| *most != u64::from(u32::MAX));
    match (schema["minimum"].as_u64(), most) {
        (Some(least), Some(most)) => format!("number, {least} to {most}"),
        (Some(least), None) => format!("number from {least}"),
        _ => "number".to_owned(),
    }
}

pub(super) fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_its_place() {
        let mut order = order().into_iter().map(str::to_owned).collect::<Vec<_>>();
        order.sort();
        let mut sections: Vec<String> = shape()["properties"].as_object().unwrap().keys().cloned().collect();
        sections.retain(|key| !OVERLAY.contains(&key.as_str()));
        assert_eq!(order, sections);
    }
}
