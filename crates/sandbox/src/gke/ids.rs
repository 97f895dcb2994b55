//! Ids and numbers that look random but follow from the state.

/// A hash of words as `length` hexadecimal digits, for ids that look random but follow from the state.
pub fn hex(words: &[&str], length: usize) -> String {
    let mut hasher = blake3::Hasher::new();
    for word in words {
        hasher.update(word.as_bytes());
        hasher.update(&[0]);
    }
    let mut text = hasher.finalize().to_hex().to_string();
    text.truncate(length);
    text
}

/// The `id` of a resource of Compute Engine: an unsigned 64-bit number, as a decimal text.
pub fn number(words: &[&str]) -> String {
    u64::from_str_radix(&hex(words, 16), 16).unwrap_or_default().to_string()
}

/// Returns a hash of `words` in the form of a UUID.
pub fn uuid(words: &[&str]) -> String {
    let hex = hex(words, 32);
    format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

/// A project's number, for links: projects are not kept, so it follows from the name.
pub fn project_number(project: &str) -> u64 {
    match project.parse() {
        Ok(number) => number,
        Err(_) => {
            let hash = u64::from_str_radix(&hex(&["project", project], 12), 16).unwrap_or_default();
            100_000_000_000 + hash % 900_000_000_000
        }
    }
}
