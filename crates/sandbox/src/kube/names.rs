//! The syntax of names. Source: apimachinery, `pkg/util/validation/validation.go` and
//! `pkg/api/validation/path/name.go`; the wordings are its own.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
    or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
    must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
    'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const LABEL_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
    end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Why a text is no label of a domain name, as containers have it.
pub fn bad_label(name: &str) -> Option<&'static str> {
    (!is_label(name)).then_some(LABEL)
}

/// Why a name is none that becomes a label of a domain name.
pub fn bad_domain_label(name: &str) -> Option<&'static str> {
    match name {
        _ if name.len() > 63 => Some("must be no more than 63 characters"),
        _ if name.contains('.') => Some("must not contain dots"),
        _ => bad_label(name),
    }
}

/// Why a name is no domain name: what most kinds want.
pub fn bad_subdomain(name: &str) -> Option<&'static str> {
    match name {
        _ if name.len() > 253 => Some("must be no more than 253 characters"),
        _ => (!name.split('.').all(is_label)).then_some(SUBDOMAIN),
    }
}

/// Why a name cannot be part of a path.
pub fn bad_segment(name: &str) -> Option<&'static str> {
    name.contains(['/', '%']).then_some("may not contain '/' or '%'")
}

/// Why a key of a ConfigMap is none.
pub fn bad_config_key(key: &str) -> Option<&'static str> {
    let fits = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (!fits).then_some(CONFIG_KEY)
}

/// Returns the errors in the key of a label.
pub fn bad_label_key(key: &str) -> Vec<&'static str> {
    let part = key.rsplit_once('/').map_or(key, |(_, part)| part);
    let long = (part.len() > 63).then_some("name part must be no more than 63 bytes");
    (!is_qualified(part)).then_some(LABEL_NAME).into_iter().chain(long).collect()
}

/// Returns the errors in the value of a label.
pub fn bad_label_value(value: &str) -> Vec<&'static str> {
    let long = (value.len() > 63).then_some("must be no more than 63 bytes");
    (!value.is_empty() && !is_qualified(value)).then_some(LABEL_VALUE).into_iter().chain(long).collect()
}

fn is_label(part: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(alphanumeric)
        && part.ends_with(alphanumeric)
        && part.chars().all(|c| alphanumeric(c) || c == '-')
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_qualified(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
