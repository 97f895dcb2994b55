//! Rules of the API server for keys, labels and names that its schemas do not contain. They are checked before the first write.
//! Source: apimachinery, `pkg/util/validation/validation.go`; `ValidateConfigMap` and `ValidateSecret` in
//! `pkg/apis/core/validation/validation.go`.

use serde_json::{Map, Value};

use model::address::FieldPath;

const CONFIG_KEY: &str = "a key has letters of ASCII, digits, `-`, `_` and `.`, and at most 253 of them";
const QUALIFIED: &str =
    "letters of ASCII, digits, `-`, `_` and `.`, at most 63, with a letter or digit at both ends";
const SUBDOMAIN: &str =
    "small letters, digits, `-` and `.`, at most 253, with a letter or digit at both ends of each part";
const LABEL: &str = "small letters, digits and `-`, at most 63, with a letter or digit at both ends";

/// Returns the keys, labels and annotations that the server would refuse, with their paths.
pub fn refused(body: &Value) -> Vec<(FieldPath, String)> {
    let mut found = Vec::new();
    let root = FieldPath::root();
    let core = body["apiVersion"] == "v1";
    let config: &[&str] = match body["kind"].as_str() {
        Some("ConfigMap") if core => &["data", "binaryData"],
        Some("Secret") if core => &["data", "stringData"],
        _ => &[],
    };
    for field in config {
        for key in table(&body[*field]).map(|(key, _)| key).filter(|key| !is_config_key(key)) {
            let what = format!(
                "`{key}` cannot be a key of a {}: {CONFIG_KEY}",
                body["kind"].as_str().unwrap_or_default()
            );
            found.push((root.key(field).key(key), what));
        }
    }
    let paths = [FieldPath::keys(["metadata"]), FieldPath::keys(["spec", "template", "metadata"])];
    for metadata in paths {
        check_metadata(&metadata, metadata.find(body).unwrap_or(&Value::Null), &mut found);
    }
    found
}

/// Returns the problem with the name of an object of a built-in kind, if the server would refuse it.
pub fn refused_name(body: &Value) -> Option<(FieldPath, String)> {
    let (kind, name) = (body["kind"].as_str()?, body["metadata"]["name"].as_str()?);
    let group = body["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group);
    let (fits, rule) = match (group, kind) {
        ("", "Namespace" | "Service") => (is_label(name), LABEL),
        (
            "" | "apps" | "batch" | "networking.k8s.io" | "policy" | "scheduling.k8s.io" | "storage.k8s.io",
            _,
        ) => (is_subdomain(name), SUBDOMAIN),
        _ => return None,
    };
    let what = format!("`{name}` cannot be the name of a {kind}: {rule}");
    (!fits).then(|| (FieldPath::keys(["metadata", "name"]), what))
}

fn check_metadata(path: &FieldPath, metadata: &Value, found: &mut Vec<(FieldPath, String)>) {
    for (field, called) in [("labels", "a label"), ("annotations", "an annotation")] {
        for (key, value) in table(&metadata[field]) {
            let at = path.key(field).key(key);
            // The server compares keys of annotations in small letters, and so takes large ones before the slash.
            let lowered = key.to_lowercase();
            if !is_qualified_key(if field == "labels" { key } else { &lowered }) {
                found.push((
                    at,
                    format!("`{key}` cannot be the key of {called}: {QUALIFIED}; before a `/` a domain name"),
                ));
            } else if let Some(value) =
                value.as_str().filter(|value| field == "labels" && !is_label_value(value))
            {
                found
                    .push((at, format!("{value:?} cannot be the value of a label: {QUALIFIED}, or nothing")));
            }
        }
    }
}

fn table(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn is_config_key(key: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !key.is_empty() && key.len() <= 253 && key.bytes().all(fits) && key != "." && !key.starts_with("..")
}

fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_qualified(value)
}

fn is_qualified_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_qualified(name),
        None => is_qualified(key),
    }
}

fn is_qualified(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    edge(bytes.first()) && edge(bytes.last()) && bytes.len() <= 63 && bytes.iter().all(fits)
}

fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_part)
}

fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_part(name)
}

fn is_part(part: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(|byte| edge(*byte))
        && bytes.last().is_some_and(|byte| edge(*byte))
        && bytes.iter().all(|byte| edge(*byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_and_labels_follow_the_rules_of_the_server() {
        let map = |data: Value, labels: Value| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "labels": labels }, "data": data });
        let long = "k".repeat(64);
        for (body, count) in [
            (map(json!({ "a.b_c-D": "1", ".hidden": "2" }), json!({ "example.com/a": "", "b": "x.Y" })), 0),
            (map(json!({ "ü": "1", "..a": "2", "a b": "3" }), json!({})), 3),
            (map(json!({}), json!({ "-a": "b" })), 1),
            (map(json!({}), json!({ "a": "b c" })), 1),
            (map(json!({}), json!({ long.clone(): "b" })), 1),
            (json!({ "apiVersion": "v1", "kind": "Secret", "stringData": { "a/b": "" } }), 1),
            (
                json!({ "apiVersion": "apps/v1", "kind": "Deployment",
                    "spec": { "template": { "metadata": { "annotations": { "a/b/c": "" } } } } }),
                1,
            ),
        ] {
            let found = refused(&body);
            assert_eq!(found.len(), count, "{body}: {found:?}");
        }
    }

    #[test]
    fn names_follow_their_kind() {
        let object = |version: &str, kind: &str, name: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        for (version, kind, name, fits) in [
            ("v1", "ConfigMap", "a.b-c", true),
            ("v1", "ConfigMap", "A", false),
            ("v1", "Service", "a.b", false),
            ("apps/v1", "Deployment", "a_b", false),
            ("rbac.authorization.k8s.io/v1", "Role", "system:x", true),
        ] {
            assert_eq!(refused_name(&object(version, kind, name)).is_none(), fits, "{kind} {name}");
        }
    }
}
