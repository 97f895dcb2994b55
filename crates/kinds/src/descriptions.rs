//! Short descriptions of desired resources: their pods and their sizes.

use serde_json::Value;

use crate::json::{number, text};
use crate::pod::gpus;

/// Returns `2 workers with 1 GPU each`. The number may be a create-only field.
pub fn workers(worker: &Value, create_only: &Value) -> String {
    let number = number(&worker["replicas"]).or_else(|| number(&create_only["replicas"]));
    let gpus = with_gpus(&worker["spec"]);
    let each = if gpus.is_empty() || number == Some(1) { "" } else { " each" };
    let workers = number.map_or_else(|| "workers".to_owned(), |number| counted(number, "worker"));
    format!("{workers}{gpus}{each}")
}

/// Returns the replica count, unless it is 1, and the image.
pub fn replicas(spec: &Value) -> Vec<String> {
    let more = number(&spec["replicas"]).filter(|number| *number != 1);
    vec![more.map(|number| counted(number, "pod")).unwrap_or_default(), image(&spec["template"]["spec"])]
}

/// Returns `2–10`, or `4` for a fixed number.
pub fn range(least: &Value, most: &Value) -> Option<String> {
    let (least, most) = (number(least).unwrap_or_default(), number(most)?);
    Some(if least == most { most.to_string() } else { format!("{least}–{most}") })
}

/// Returns ` with 1 GPU`; empty without GPUs.
pub fn with_gpus(pod: &Value) -> String {
    match gpus(pod) {
        0 => String::new(),
        gpus => format!(" with {}", counted(gpus, "GPU")),
    }
}

/// Returns the image of the first container, without its registry.
pub fn image(pod: &Value) -> String {
    let image = text(&pod["containers"][0]["image"]);
    let from = image.rmatch_indices('/').nth(1).map_or(0, |(slash, _)| slash + 1);
    image[from..].to_owned()
}

/// Returns a text in parentheses, after a space; empty for an empty text.
pub fn in_parentheses(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_is_named_without_its_registry() {
        for (given, said) in [
            ("nvcr.io/nvidia/rapidsai/base:26.04", "rapidsai/base:26.04"),
            ("ghcr.io/dask/dask:2026.3.0", "dask/dask:2026.3.0"),
            ("rapids:1", "rapids:1"),
        ] {
            assert_eq!(image(&json!({ "containers": [{ "image": given }] })), said);
        }
    }
}
