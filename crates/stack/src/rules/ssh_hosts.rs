//! Checks of the names, addresses, users and keys that `ssh` gets.

use std::net::IpAddr;

use crate::SshHost;
use crate::rules::Context;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// A key, its value, a test for valid values, and a description of them.
type Row<'a> = (&'a str, &'a Option<String>, fn(&str) -> bool, &'a str);

/// Checks that the arguments of `ssh` and its `ProxyCommand` contain no shell syntax. Older versions insert them into commands
/// unquoted (CVE-2023-51385).
pub(crate) fn host_is_plain(context: &mut Context<'_>, place: &FieldPath, host: &SshHost) {
    let is_address = |text: &str| is_host_name(text) || text.parse::<IpAddr>().is_ok();
    let rows: [Row<'_>; 3] = [
        (
            "address",
            &host.address,
            is_address,
            "a host name or an IP address: letters, digits, `.`, `-`, `_` and `:`",
        ),
        (
            "user",
            &host.user,
            is_user,
            "letters, digits and `. _ - @ +`, beginning with a letter, a digit or `_`",
        ),
        (
            "identity",
            &host.identity,
            is_key_file,
            "the path of a key: letters, digits, spaces and `/ ~ . _ - + @ % , = :`",
        ),
    ];
    for (key, value, fits, help) in rows {
        let Some(value) = value.as_deref().filter(|value| !fits(value)) else { continue };
        let message = format!("`{}` cannot be the `{key}` of a host", value.escape_debug());
        let finding = Diagnostic::error(Code::BadName, message).at_value(place.key(key), "");
        context.say(finding.help(help));
    }
}

fn is_user(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_@+".contains(c))
}

fn is_key_file(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || " /~._-+@%,=:".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
}

/// Returns true for text that names a host, and is neither an option of ssh nor two words.
pub(crate) fn is_host_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
}
