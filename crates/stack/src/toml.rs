//! Writes TOML: headers, keys, and values on one line.

use serde_json::Value;

use model::address::{FieldPath, Segment};

/// Returns a path as in a TOML header: `node_pool.a."b.c"`.
pub fn header(path: &FieldPath) -> String {
    let words = path.segments().iter().map(|segment| match segment {
        Segment::Key(key) => word(key),
        Segment::Index(index) => index.to_string(),
    });
    words.collect::<Vec<_>>().join(".")
}

/// Returns a key, in quotes where TOML needs them.
pub fn word(key: &str) -> String {
    if is_bare(key) { key.to_owned() } else { quoted(key) }
}

/// Returns true for a key that needs no quotes: letters, digits, `_` and `-`. Source: "Keys" of TOML 1.0.
pub fn is_bare(key: &str) -> bool {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !key.is_empty() && key.chars().all(bare)
}

/// Returns a string on one line, with control characters escaped.
fn quoted(text: &str) -> String {
    // JSON's escapes are TOML's, but for one character that JSON leaves as it is.
    Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

/// Returns a string in which references to variables are escaped.
pub fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

/// Returns a value on one line; `escape` quotes strings.
pub fn inline(value: &Value, escape: fn(&str) -> String) -> String {
    match value {
        Value::String(text) => quoted(&escape(text)),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|item| inline(item, escape)).collect::<Vec<_>>().join(", "))
        }
        Value::Object(table) if table.is_empty() => "{}".to_owned(),
        Value::Object(table) => {
            let pairs = table.iter().map(|(key, value)| format!("{} = {}", word(key), inline(value, escape)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
