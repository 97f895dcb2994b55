//! What nobody else should see, told by its name.

use serde_json::{Value, json};

/// Words in names of variables that hold what nobody else should see.
const SECRET: [&str; 8] =
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "PRIVATE_KEY", "API_KEY", "ACCESS_KEY"];

/// Whether a variable or flag of this name holds what nobody else should see.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    SECRET.iter().any(|word| name.contains(word)) || name.ends_with("_KEY") || name.ends_with("_PWD")
}

/// A live value for people: variables of containers with such names keep their names only.
pub fn masked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let hidden = fields.get("name").and_then(Value::as_str).is_some_and(is_secret);
            let shown = |key: &String, value: &Value| match value {
                Value::String(text) if hidden && key == "value" && !text.is_empty() => json!("(hidden)"),
                value => masked(value),
            };
            fields.iter().map(|(key, value)| (key.clone(), shown(key, value))).collect()
        }
        Value::Array(items) => items.iter().map(masked).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_secret_names_keep_their_names() {
        let env = json!([{ "name": "HF_TOKEN", "value": "x" }, { "name": "MODE", "value": "fast" }]);
        let expect =
            json!([{ "name": "HF_TOKEN", "value": "(hidden)" }, { "name": "MODE", "value": "fast" }]);
        assert_eq!(masked(&json!({ "env": env })), json!({ "env": expect }));
        assert_eq!(
            masked(&json!({ "name": "a-token", "image": "i" })),
            json!({ "name": "a-token", "image": "i" })
        );
    }
}
