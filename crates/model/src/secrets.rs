//! Secrets, which are recognized by their name or their shape, also in the middle of a text. All output uses this module: values
//! are [`masked`], texts [`redacted`], lines of files [`starred`]. Values that a stack has under the name of a secret are stored
//! in [`Secrets`] and removed from everything that is printed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::{Map, Value, json};

pub mod env_values;
mod names;

use names::{is_auth, words};
pub use names::{is_secret, is_secret_file};

/// The placeholder of a secret.
pub const HIDDEN: &str = "(hidden)";

/// Returns true if a text cannot be a secret: it is empty, a flag, or a reference to something else.
fn says_nothing(text: &str) -> bool {
    let reference = |open: &str, close: char| {
        text.strip_prefix(open)
            .and_then(|rest| rest.strip_suffix(close))
            .is_some_and(|name| !name.contains(close))
    };
    matches!(text, "" | "true" | "false" | "null" | "~" | "…" | "..." | HIDDEN)
        || text.starts_with(env_values::ENV_PREFIX)
        || reference("$(", ')')
        || reference("${", '}')
}

/// Returns true if a text is `user:password` in base64, as in Docker's `config.json` and npm's `_auth`.
fn is_userinfo(text: &str) -> bool {
    let bytes = STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok();
    let decoded = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let parts = decoded.as_deref().and_then(|decoded| decoded.split_once(':'));
    parts.is_some_and(|(user, password)| !user.is_empty() && !password.is_empty())
}

/// Returns true if the value of a field with the name of a secret is the secret itself, and not empty, a flag, a reference or the
/// name of a Secret.
pub fn is_literal(name: &str, text: &str) -> bool {
    // The name first: few names are those of secrets.
    let of_secret = is_secret(name);
    if !(of_secret || is_auth(name)) || says_nothing(text) {
        return false;
    }
    if !of_secret {
        return is_userinfo(text);
    }
    // `authSecret: jupyter` of charts and kinds names a Secret; `CLIENT_SECRET` of a container is one.
    let key = name.chars().any(char::is_lowercase);
    let names_object = |text: &str| {
        text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
            || text.chars().all(|c| c.is_ascii_lowercase())
    };
    !(key && words(name).last().is_some_and(|last| last == "SECRET") && names_object(text))
}

/// Prefixes of tokens, each with the minimum number of characters that follow. Sources: GitHub's, GitLab's, Slack's, npm's and
/// Docker's documentation of their token formats; AWS "Understanding unique ID prefixes"; Google's `AIza` API keys and `ya29.`
/// access tokens; Hugging Face's `hf_`; OpenAI's `sk-`.
const TOKENS: [(&str, usize); 24] = [
    ("ghp_", 36),
    ("gho_", 36),
    ("ghu_", 36),
    ("ghs_", 36),
    ("ghr_", 36),
    ("github_pat_", 22),
    ("glpat-", 20),
    ("hf_", 20),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 35),
    ("ya29.", 20),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxe-", 10),
    ("xoxo-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("npm_", 36),
    ("dckr_pat_", 20),
    ("pypi-AgEI", 20),
    ("sk-", 32),
    ("whsec_", 20),
];

/// The length in bytes of the shortest token, which is Slack's.
const SHORTEST: usize = 15;

fn is_token(word: &str) -> bool {
    if word.len() < SHORTEST {
        return false;
    }
    let known = TOKENS.iter().any(|(start, least)| {
        word.strip_prefix(start)
            .is_some_and(|rest| rest.len() >= *least && rest.bytes().any(|b| b.is_ascii_digit()))
    });
    // A JSON Web Token: header and claims are JSON objects, in base64.
    let mut parts = word.split('.');
    let object = |part: Option<&str>| part.is_some_and(|part| part.len() >= 10 && part.starts_with("eyJ"));
    known || (object(parts.next()) && object(parts.next()) && parts.next().is_some())
}

/// Returns the ranges of keys, tokens and passwords in URLs that are recognized by their shape. Most texts are short and have
/// none.
fn shapes(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    if text.len() >= SHORTEST {
        private_keys(text, &mut found);
        tokens(text, &mut found);
    }
    if text.contains(':') {
        passwords_of_urls(text, &mut found);
    }
    found
}

fn private_keys(text: &str, found: &mut Vec<Range<usize>>) {
    for (start, _) in text.match_indices("-----BEGIN ") {
        let head = text[start..].lines().next().unwrap_or_default();
        if head.contains("PRIVATE KEY") {
            let end = text[start..].find("-----END ").map_or(text.len(), |end| start + end);
            found.push(start..end);
        }
    }
}

fn tokens(text: &str, found: &mut Vec<Range<usize>>) {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut from = 0;
    while let Some(start) = text[from..].find(inner).map(|start| from + start) {
        let end = text[start..].find(|c| !inner(c)).map_or(text.len(), |end| start + end);
        if is_token(text[start..end].trim_matches('.')) {
            found.push(start..end);
        }
        from = end;
    }
}

fn passwords_of_urls(text: &str, found: &mut Vec<Range<usize>>) {
    for (at, _) in text.match_indices("://") {
        let start = at + "://".len();
        let end = |c: char| matches!(c, '/' | '?' | '#' | '"' | '\'' | '`' | '<' | '>') || c.is_whitespace();
        let authority = &text[start..][..text[start..].find(end).unwrap_or(text.len() - start)];
        let Some((user, _)) = authority.rsplit_once('@') else { continue };
        let Some((name, password)) = user.split_once(':') else { continue };
        if !says_nothing(password) && password.chars().any(|c| c != '*') {
            let start = start + name.len() + 1;
            found.push(start..start + password.len());
        }
    }
}

/// Returns true if a text is, or contains, a secret by its shape.
pub fn has_secret_shape(text: &str) -> bool {
    !shapes(text).is_empty()
}

/// Returns the ranges of values after the name of a secret: `password=x`, `"token": "x"`, `name: DB_PASSWORD`, `value: x`.
fn assigned(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // Most texts assign nothing, and to look at each of their words takes long.
    if !text.contains(['=', ':']) {
        return found;
    }
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let (mut from, mut named) = (0, false);
    while let Some(start) = text[from..].find(inner).map(|start| from + start) {
        let end = text[start..].find(|c| !inner(c)).map_or(text.len(), |end| start + end);
        from = end;
        let name = text[start..end].trim_start_matches('-');
        // First the name: a value may go on for many lines.
        if !matches!(name, "name" | "key" | "value") && !is_secret(name) && !is_auth(name) {
            continue;
        }
        let Some(value) = value_behind(text, end) else { continue };
        let said = &text[value.clone()];
        let hidden = match name {
            "value" => std::mem::take(&mut named) && !says_nothing(said),
            _ => is_literal(name, said),
        };
        if name == "name" || name == "key" {
            named = is_secret(said);
        }
        if hidden {
            from = value.end;
            found.push(value);
        }
    }
    found
}

/// Returns the range of the value that is assigned to a name that ends at `at`.
fn value_behind(text: &str, at: usize) -> Option<Range<usize>> {
    let quotes = |c: char| matches!(c, '\\' | '"' | '\'');
    let blank = |c: char| matches!(c, ' ' | '\t');
    let rest = text[at..].trim_start_matches(quotes).trim_start_matches(blank);
    let rest = rest.strip_prefix(['=', ':'])?;
    // `a::b`, `scheme://` and `a == b` assign nothing.
    if rest.starts_with([':', '=']) || rest.starts_with("//") {
        return None;
    }
    let rest = rest.trim_start_matches(blank);
    let bare = rest.trim_start_matches(quotes);
    let start = text.len() - bare.len();
    if bare.starts_with(HIDDEN) {
        return Some(start..start + HIDDEN.len());
    }
    // `$(NAME)`, `${NAME}` and `$NAME` are no values.
    let mut first = bare.chars();
    if first.next() == Some('$')
        && first.next().is_some_and(|c| matches!(c, '(' | '{' | '_') || c.is_ascii_uppercase())
    {
        return None;
    }
    if rest.starts_with('[') {
        return list_behind(text, start + 1);
    }
    if rest.starts_with(['|', '>']) {
        return block_behind(text, at, start);
    }
    let quote = rest[..rest.len() - bare.len()].chars().next_back();
    let ends = |c: char| match quote {
        Some(quote) => c == quote || c == '\n' || (c == '\\' && rest.starts_with('\\')),
        None => c.is_whitespace() || matches!(c, ',' | ';' | '&' | '}' | ']' | ')' | '`' | '"' | '\''),
    };
    let length = bare.find(ends).unwrap_or(bare.len());
    let opens = bare.starts_with(['{', '*', '…', '<']) && quote.is_none();
    (length > 0 && !opens).then_some(start..start + length)
}

/// Returns the range of the items of a list that begins at `start`, up to the end of the list or the line. Lists of tables are
/// skipped, as tables have their own names.
fn list_behind(text: &str, start: usize) -> Option<Range<usize>> {
    let items = text[start..].trim_start_matches([' ', '\t']);
    let start = text.len() - items.len();
    let length = items.find([']', '\n', '\r']).unwrap_or(items.len());
    (length > 0 && !items.starts_with(['{', '['])).then_some(start..start + length)
}

/// Returns the lines of a block of YAML that begins with `|` or `>` at `start`: those with a deeper indent than the line of its
/// name, which ends at `at`.
fn block_behind(text: &str, at: usize, start: usize) -> Option<Range<usize>> {
    let (head, lines) = text[start..].split_once('\n')?;
    if !head[1..].trim_end().chars().all(|c| matches!(c, '+' | '-' | '1'..='9')) {
        return None;
    }
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let depth = |line: &str, skipped: &[char]| line.len() - line.trim_start_matches(skipped).len();
    let least = depth(&text[line..at], &[' ', '-']);
    let inside = |line: &&str| line.trim().is_empty() || depth(line, &[' ']) > least;
    let length: usize = lines.split_inclusive('\n').take_while(inside).map(str::len).sum();
    let body = lines[..length].trim_end();
    let said = body.trim_start();
    let start = text.len() - lines.len() + body.len() - said.len();
    (!said.is_empty()).then_some(start..start + said.len())
}

/// Returns the ranges of all secrets in order. Adjacent ranges are joined.
fn places(text: &str, known: &Secrets) -> Vec<Range<usize>> {
    let mut found = shapes(text);
    found.extend(assigned(text));
    for (value, _) in known.iter() {
        found.extend(text.match_indices(value).map(|(start, value)| start..start + value.len()));
    }
    found.sort_by_key(|place| place.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for place in found {
        match joined.last_mut() {
            Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
            _ => joined.push(place),
        }
    }
    joined
}

/// Returns a text without secrets that are recognized by their shape or by the name before them.
pub fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for place in places(text, &Secrets::default()) {
        out.push_str(&text[from..place.start]);
        out.push_str(HIDDEN);
        from = place.end;
    }
    out.push_str(&text[from..]);
    out
}

/// Returns the text of a file with its secrets replaced by stars. Its length stays the same, so that positions remain valid.
pub fn starred(text: &str, secrets: &Secrets) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for place in places(text, secrets) {
        out.push_str(&text[from..place.start]);
        // A byte each; the lines of a key stay lines.
        out.extend(text[place.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { '*' }));
        from = place.end;
    }
    out.push_str(&text[from..]);
    out
}

/// Returns a value for output. Strings are hidden if they have the name or the shape of a secret, or are in a Secret.
pub fn masked(value: &Value) -> Value {
    without(value, &mut |_| {}).unwrap_or_else(|| value.clone())
}

/// Returns the strings of a value that [`masked`] would hide.
pub fn found_in(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    without(value, &mut |text| found.push(text.to_owned()));
    found
}

/// Returns true if the value under a key of a table must be hidden, whatever it is.
pub fn hides(table: &Map<String, Value>, key: &str) -> bool {
    table.get(key).is_some_and(|value| hides_value(table, key, value))
}

/// Returns true if this value under a key of a table must be hidden.
fn hides_value(table: &Map<String, Value>, key: &str, value: &Value) -> bool {
    let is_one = match value {
        Value::String(text) if key == "value" => {
            let name = table.get("name").or_else(|| table.get("key")).and_then(Value::as_str);
            name.is_some_and(|name| is_literal(name, text))
        }
        Value::String(text) => is_literal(key, text),
        Value::Number(_) => is_secret(key),
        _ => false,
    };
    is_one && !is_reference(table)
}

/// Returns true if an argument is the value of the secret flag before it: `--password`, `x`.
pub fn follows_flag(items: &[Value], place: usize) -> bool {
    let text = |place: usize| items.get(place).and_then(Value::as_str).unwrap_or_default();
    let (Some(before), value) = (place.checked_sub(1).map(text), text(place)) else { return false };
    let flag = before.starts_with('-') && !before.contains('=') && is_secret(before);
    flag && !value.starts_with('-') && !says_nothing(value)
}

/// Returns true for `{ secret = "NAME", key = "KEY" }`, a reference to a key of a Secret instead of the secret itself.
fn is_reference(table: &Map<String, Value>) -> bool {
    table.len() == 2 && table.contains_key("secret") && table.contains_key("key")
}

/// Returns a value without its secrets, and passes each secret to `seen`; `None` if it has none, which is the common case.
fn without(value: &Value, seen: &mut dyn FnMut(&str)) -> Option<Value> {
    match value {
        Value::Object(table) => {
            let secret = table.get("kind").is_some_and(|kind| kind == "Secret");
            let mut hidden = |(key, value): (&String, &Value)| match value {
                _ if hides_value(table, key, value) => Some(whole(value, seen)),
                _ if secret && matches!(key.as_str(), "data" | "stringData") => all(value, seen),
                // `passwords: [a, b]`; what `imagePullSecrets` has are tables.
                Value::Array(items) if is_secret(key) => {
                    in_items(items, seen, |place| items[place].is_string())
                }
                value => without(value, seen),
            };
            let hidden: Vec<(&String, Value)> =
                table.iter().filter_map(|(key, value)| Some((key, hidden((key, value))?))).collect();
            with(table, hidden)
        }
        Value::Array(items) => in_items(items, seen, |place| follows_flag(items, place)),
        Value::String(text) => {
            let inner = tree_in(text).and_then(|tree| without(&tree, seen).filter(|shown| *shown != tree));
            let inner = inner.map(|shown| shown.to_string());
            let shown = inner.as_deref().unwrap_or(text);
            let places = places(shown, &Secrets::default());
            if places.is_empty() {
                return inner.map(Value::String);
            }
            places.into_iter().for_each(|place| seen(&shown[place]));
            Some(redacted(shown).into())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Returns a list without secrets: items that are secrets as a whole, and secrets inside other items.
fn in_items(items: &[Value], seen: &mut dyn FnMut(&str), is_secret: impl Fn(usize) -> bool) -> Option<Value> {
    let mut shown: Option<Vec<Value>> = None;
    for (place, item) in items.iter().enumerate() {
        let hidden = if is_secret(place) { Some(whole(item, seen)) } else { without(item, seen) };
        if let Some(hidden) = hidden {
            shown.get_or_insert_with(|| items.to_vec())[place] = hidden;
        }
    }
    shown.map(Value::Array)
}

/// Returns a table with the values of some keys replaced; `None` if `others` is empty.
fn with(table: &Map<String, Value>, others: Vec<(&String, Value)>) -> Option<Value> {
    if others.is_empty() {
        return None;
    }
    let mut table = table.clone();
    table.extend(others.into_iter().map(|(key, other)| (key.clone(), other)));
    Some(Value::Object(table))
}

/// Returns the JSON in a text, such as the objects that kubectl stores in annotations. Long texts are not parsed.
fn tree_in(text: &str) -> Option<Value> {
    let tree = text.len() <= 1 << 18 && text.trim_start().starts_with(['{', '[']);
    tree.then(|| serde_json::from_str(text).ok()).flatten()
}

/// Returns the placeholder of a secret, and passes the secret to `seen`.
fn whole(value: &Value, seen: &mut dyn FnMut(&str)) -> Value {
    match value {
        Value::String(text) => seen(text),
        other => seen(&other.to_string()),
    }
    json!(HIDDEN)
}

/// Returns the data of a Secret with all values hidden.
fn all(value: &Value, seen: &mut dyn FnMut(&str)) -> Option<Value> {
    match value {
        Value::Object(table) => {
            let hidden = table.iter().filter_map(|(key, value)| Some((key, all(value, seen)?))).collect();
            with(table, hidden)
        }
        Value::String(text) if text.is_empty() || text.starts_with(env_values::ENV_PREFIX) => None,
        Value::String(_) => Some(whole(value, seen)),
        _ => None,
    }
}

/// Secret values of a user, and the text to show instead of each, wherever it occurs. The longest come first, as one may be a
/// part of another.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<(Reverse<usize>, String), String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.values()).finish()
    }
}

impl Secrets {
    /// The minimum length of a value that is searched for in texts. Shorter values are too often parts of other words. They are
    /// still hidden under the name of a secret.
    const LEAST: usize = 6;

    /// Adds a value, and the text to show instead. Words of lower-case letters such as `default` are not added.
    pub fn add(&mut self, value: &str, shown: &str) {
        let lines = value.lines().map(str::trim).filter(|line| line.len() >= 16 && value.contains('\n'));
        for value in std::iter::once(value).chain(lines) {
            let plain = value.chars().all(|c| c.is_ascii_lowercase()) || value.contains("${");
            if value.len() < Self::LEAST || plain {
                continue;
            }
            let escaped = json!(value).to_string();
            for form in [value.to_owned(), escaped.trim_matches('"').to_owned(), STANDARD.encode(value)] {
                self.0.entry((Reverse(form.len()), form)).or_insert_with(|| shown.to_owned());
            }
        }
    }

    /// Adds the values of `others`.
    pub fn extend(&mut self, others: &Self) {
        for (value, shown) in &others.0 {
            self.0.entry(value.clone()).or_insert_with(|| shown.clone());
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|((_, value), shown)| (value.as_str(), shown.as_str()))
    }

    /// Returns true if a text contains one of the values.
    pub fn are_in(&self, text: &str) -> bool {
        self.iter().any(|(value, _)| text.contains(value))
    }

    /// Returns a text with the values replaced.
    pub fn out_of(&self, text: &str) -> String {
        let found: Vec<(&str, &str)> = self.iter().filter(|(value, _)| text.contains(value)).collect();
        found.into_iter().fold(text.to_owned(), |text, (value, shown)| text.replace(value, shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_shorter_than_the_shortest() {
        let least = TOKENS.iter().map(|(start, least)| start.len() + least).min();
        assert_eq!(least, Some(SHORTEST));
    }

    #[test]
    fn names_tell_secrets_from_what_is_about_them() {
        for name in [
            "HF_TOKEN",
            "hf-token",
            "DB_PASSWORD",
            "password",
            "rootPassword",
            "AWS_SECRET_ACCESS_KEY",
            "API_KEY",
            "x-api-key",
            "apiKey",
            "APIKEY",
            "SSH_PRIVATE_KEY",
            "GOOGLE_CREDENTIALS",
            "DB_PASS",
            "SMTP_PWD",
            "SECRET_KEY",
            "WANDB_KEY",
            "PASSPHRASE",
            "clientSecret",
            "SESSION_SECRET",
            "--password",
            "GITHUB_PAT",
            "JWT",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "MAX_TOKENS",
            "MAX_TOKEN",
            "TOKENIZERS_PARALLELISM",
            "SECRET_NAME",
            "secretName",
            "KEY_FILE",
            "TOKEN_PATH",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_ACCESS_KEY_ID",
            "PWD",
            "OLDPWD",
            "PATH",
            "KEY",
            "topologyKey",
            "PUBLIC_KEY",
            "PARTITION_KEY",
            "TOKEN_URL",
            "existingSecret",
            "existingSecretPasswordKey",
            "automountServiceAccountToken",
            "tokenExpirationSeconds",
            "imagePullSecretName",
            "AUTHOR",
            "MONKEY",
            "ENABLE_PASSWORD",
            "TOKENS",
            "a-tokenizer",
            "serviceAccountTokenTtl",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    /// Returns values in the shape of secrets. They are assembled from parts, so that secret scanners find nothing in this file.
    fn shaped() -> Vec<String> {
        let many = "a1B2".repeat(10);
        vec![
            format!("ghp_{}", &many[..36]),
            format!("hf_{}", &many[..30]),
            format!("AKIA{}", "A1B2C3D4E5F6G7H8"),
            format!("AIza{}", &many[..35]),
            format!("xoxb-{}", &many[..24]),
            format!("eyJ{}.eyJ{}.{}", &many[..20], &many[..20], &many[..20]),
            format!("-----BEGIN RSA PRIVATE KEY-----\n{many}\n-----END RSA PRIVATE KEY-----"),
            format!("postgres://user:{}@db/x", &many[..12]),
        ]
    }

    #[test]
    fn shapes_tell_secrets() {
        for text in shaped() {
            assert!(has_secret_shape(&text), "{text}");
            assert!(has_secret_shape(&format!("a {text} b")), "{text}");
            assert!(!redacted(&text).contains("a1B2a1B2"), "{}", redacted(&text));
        }
        for text in [
            "",
            "plain",
            "hf_hub",
            "AKIA",
            "https://user@host/x",
            "https://host:80/x@y",
            "redis://:$(PASSWORD)@host",
            "a@b:c",
            "http://u:***@h",
            "sk-learn",
            "eyJhbGciOi",
            "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
            "nvcr.io/nvidia/rapidsai/base:25.04-cuda12.8-py3.12",
            "tcp://scheduler.default.svc:8786",
        ] {
            assert!(!has_secret_shape(text), "{text}");
        }
    }

    #[test]
    fn texts_lose_what_stands_behind_the_name_of_a_secret() {
        for (text, expect) in [
            ("--password=x1 --n=2", "--password=(hidden) --n=2"),
            (r#"{"password": "a b", "n": 1}"#, r#"{"password": "(hidden)", "n": 1}"#),
            (r#"{\"password\":\"ab\"}"#, r#"{\"password\":\"(hidden)\"}"#),
            ("user=a;Password=b;c", "user=a;Password=(hidden);c"),
            ("https://h/?token=abc&x=1", "https://h/?token=(hidden)&x=1"),
            ("password = { secret = \"n\", key = \"k\" }", "password = { secret = \"n\", key = \"k\" }"),
            (
                "- name: DB_PASSWORD\n  value: x\n- name: A\n  value: y",
                "- name: DB_PASSWORD\n  value: (hidden)\n- name: A\n  value: y",
            ),
            ("token: $(A)", "token: $(A)"),
            ("secret \"jupyter\" not found", "secret \"jupyter\" not found"),
            ("A::Token::new() token://x", "A::Token::new() token://x"),
            ("é password: é", "é password: (hidden)"),
            ("?token=(hidden)&x", "?token=(hidden)&x"),
            ("name: PASSWORD value: \"}\nvalue: s", "name: PASSWORD value: \"(hidden)\nvalue: s"),
            ("password: [x, y\nz", "password: [(hidden)\nz"),
            ("passwords: [\"x\", y] # z", "passwords: [(hidden)] # z"),
            ("imagePullSecrets: [{ name: n }]", "imagePullSecrets: [{ name: n }]"),
            ("- password: |-\n    x\n\n    y\n  n: 1", "- password: |-\n    (hidden)\n  n: 1"),
            ("password: | x", "password: | x"),
            (r#"{"auths":{"r":{"auth":"bWU6eA=="}}}"#, r#"{"auths":{"r":{"auth":"(hidden)"}}}"#),
            ("//r/:_auth=bWU6eA", "//r/:_auth=(hidden)"),
            ("auth: basic bWU6eA==", "auth: basic bWU6eA=="),
            ("identitytoken: x", "identitytoken: (hidden)"),
        ] {
            assert_eq!(redacted(text), expect, "{text}");
            assert_eq!(redacted(expect), expect, "a second look at {text}");
            assert_eq!(starred(text, &Secrets::default()).len(), text.len(), "{text}");
        }
    }

    #[test]
    fn values_are_hidden_by_name_flag_kind_and_shape() {
        let kept = |value: &str| json!({ "name": "MODE", "value": value });
        for (value, expect) in [
            (
                json!([{ "name": "HF_TOKEN", "value": "x" }, kept("fast")]),
                json!([{ "name": "HF_TOKEN", "value": HIDDEN }, kept("fast")]),
            ),
            (json!({ "name": "a-token", "image": "i" }), json!({ "name": "a-token", "image": "i" })),
            (json!({ "name": "A_TOKEN", "value": "$(B)" }), json!({ "name": "A_TOKEN", "value": "$(B)" })),
            (
                json!({ "auth": { "password": "x", "port": 1 } }),
                json!({ "auth": { "password": HIDDEN, "port": 1 } }),
            ),
            (json!(["--password", "x", "-v"]), json!(["--password", HIDDEN, "-v"])),
            (
                json!({ "kind": "Secret", "data": { "a": "eA==" } }),
                json!({ "kind": "Secret", "data": { "a": HIDDEN } }),
            ),
            (
                json!({ "imagePullSecrets": [{ "name": "n" }] }),
                json!({ "imagePullSecrets": [{ "name": "n" }] }),
            ),
            (json!({ "passwords": ["x"] }), json!({ "passwords": [HIDDEN] })),
            (
                json!({ "auths": { "r": { "auth": STANDARD.encode("me:x"), "email": "a@b" } } }),
                json!({ "auths": { "r": { "auth": HIDDEN, "email": "a@b" } } }),
            ),
            (
                json!({ "auth": "token", "basicAuth": STANDARD.encode("no colon") }),
                json!({ "auth": "token", "basicAuth": STANDARD.encode("no colon") }),
            ),
            (
                json!({ "x": format!(r#"{{"auth":"{}","registrytoken":"y"}}"#, STANDARD.encode("_json_key:{\n}")) }),
                json!({ "x": r#"{"auth":"(hidden)","registrytoken":"(hidden)"}"# }),
            ),
            (
                json!({ "password": { "secret": "n", "key": "token" } }),
                json!({ "password": { "secret": "n", "key": "token" } }),
            ),
            (
                json!({ "automountServiceAccountToken": false }),
                json!({ "automountServiceAccountToken": false }),
            ),
            (
                json!({ "note": r#"{"env":[{"name":"A_TOKEN","value":"x"}]}"# }),
                json!({ "note": r#"{"env":[{"name":"A_TOKEN","value":"(hidden)"}]}"# }),
            ),
        ] {
            assert_eq!(masked(&value), expect, "{value}");
            assert_eq!(found_in(&value).is_empty(), value == expect, "{value}");
        }
    }

    #[test]
    fn what_was_given_is_found_in_every_form() {
        let mut secrets = Secrets::default();
        secrets.add("Cana\"ry-1", "${env.A}");
        secrets.add("default", HIDDEN);
        secrets.add("ab1", HIDDEN);
        let text = format!("a {} b Cana\\\"ry-1 c Cana\"ry-1 default ab1", STANDARD.encode("Cana\"ry-1"));
        assert_eq!(secrets.out_of(&text), "a ${env.A} b ${env.A} c ${env.A} default ab1");
    }
}
