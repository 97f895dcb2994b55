//! Selectors: exact labels and name patterns.

use serde_json::Value;

/// Returns true if every pair of `wanted` is among `labels`; an absent map asks for nothing.
pub fn exact(wanted: &Value, labels: &Value) -> bool {
    wanted.as_object().is_none_or(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// Returns true if a pattern with `*` for any run of characters covers the whole text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = pattern.rsplit_once('*').map(|(_, last)| last) else {
        return rest.is_empty();
    };
    let middle: Vec<&str> = parts.collect();
    for part in &middle[..middle.len().saturating_sub(1)] {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, want) in [
            ("*vectoradd*", "nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04", true),
            ("*vectoradd*", "nvidia/samples:nbody", false),
            ("pause", "pause", true),
            ("pause", "pause:3.8", false),
            ("*/pause:*", "gke.gcr.io/pause:3.8", true),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
        ] {
            assert_eq!(glob(pattern, text), want, "{pattern} {text}");
        }
    }
}
