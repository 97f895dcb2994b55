//! JSON values as people read them.

use serde_json::Value;

use model::secrets::masked;

/// On one line, as JSON; what looks like a secret is hidden.
pub fn inline(value: &Value) -> String {
    masked(value).to_string()
}

/// Over several lines, as YAML would be written; what looks like a secret is hidden.
pub fn lines(value: &Value) -> Vec<String> {
    yaml(&masked(value))
}

fn yaml(value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                entry(&mut out, &scalar(&Value::String(key.clone())), value);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for value in items {
                let mut inner = yaml(value).into_iter();
                out.push(format!("- {}", inner.next().unwrap_or_default()));
                out.extend(inner.map(|line| format!("  {line}")));
            }
        }
        Value::String(text) if text.contains('\n') => out.extend(text.lines().map(str::to_owned)),
        other => out.push(scalar(other)),
    }
    out
}

/// More lines than this are folded.
const LONG: usize = 150;
/// Where a body is long, what lies this deep and has more lines than [`SHORT`] is shown as its number of lines.
const DEEP: usize = 4;
const SHORT: usize = 30;

/// Returns the lines of a body; of a long one, such as the definition of a custom resource, without its deep parts.
pub fn folded(value: &Value) -> Vec<String> {
    let value = masked(value);
    let all = yaml(&value);
    if all.len() <= LONG { all } else { yaml(&fold(&value, 0)) }
}

fn fold(value: &Value, depth: usize) -> Value {
    if depth >= DEEP {
        let number = yaml(value).len();
        if number > SHORT {
            return Value::String(format!("({number} lines; the saved plan has them in full)"));
        }
        return value.clone();
    }
    match value {
        Value::Object(entries) => {
            entries.iter().map(|(key, value)| (key.clone(), fold(value, depth + 1))).collect()
        }
        Value::Array(items) => items.iter().map(|value| fold(value, depth + 1)).collect(),
        other => other.clone(),
    }
}

fn entry(out: &mut Vec<String>, key: &str, value: &Value) {
    match value {
        Value::String(text) if text.contains('\n') => {
            out.push(format!("{key}: |"));
            out.extend(text.lines().map(|line| format!("  {line}")));
        }
        Value::Object(entries) if !entries.is_empty() => {
            out.push(format!("{key}:"));
            out.extend(yaml(value).into_iter().map(|line| format!("  {line}")));
        }
        Value::Array(items) if !items.is_empty() => {
            out.push(format!("{key}:"));
            out.extend(yaml(value));
        }
        other => out.push(format!("{key}: {}", scalar(other))),
    }
}

/// Returns a scalar as YAML. A string is quoted only if YAML would read it as another value.
fn scalar(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let bare = |c: char| c.is_ascii_alphanumeric() || "_./@$()-".contains(c);
    let word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"];
    let plain = text.chars().all(|c| bare(c) || c == ':' || c == ' ')
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_')
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !word.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.clone() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_deep_parts_of_long_bodies_are_folded() {
        let long: Vec<u32> = (0..200).collect();
        let body =
            serde_json::json!({"kind": "K", "spec": {"versions": [{"name": "v1", "schema": {"a": long}}]}});
        let text = folded(&body);
        assert_eq!(text.len(), 5, "{text:?}");
        assert!(
            text.iter().any(|line| line.contains("schema: ") && line.contains("(201 lines;")),
            "{text:?}"
        );
        let short = serde_json::json!({"a": {"b": {"c": {"d": {"e": (0..40).collect::<Vec<u32>>()}}}}});
        assert_eq!(folded(&short), lines(&short));
    }

    #[test]
    fn objects_read_like_yaml() {
        let value = serde_json::json!({
            "name": "a", "on": "yes", "count": "2", "list": [{"k": 1, "l": []}, "x"], "script": "a\nb", "none": {}
        });
        let text = lines(&value).join("\n");
        let expected = "count: \"2\"\nlist:\n- k: 1\n  l: []\n- x\nname: a\nnone: {}\n\"on\": \"yes\"\nscript: |\n  a\n  b";
        assert_eq!(text, expected);
    }
}
