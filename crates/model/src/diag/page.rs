//! The reference page of all codes.

use super::codes::{Code, Entry};

/// Returns `docs/diagnostics.md`.
pub fn page() -> String {
    let mut page = "# Diagnostics\n\n<!-- Written from crates/model/src/diag/codes.rs by `UPDATE_GOLDEN=1 cargo test`; do not \
                    edit. -->\n\nEvery message has a code whose meaning does not change: `00xx` usage and target, `01xx` syntax and structure of the stack file, `02xx` its meaning, `03xx` plans and refusals, `04xx` apply, `05xx` sandbox, `06xx` credentials and APIs.\n"
        .to_owned();
    for Entry { code: _, id, title, text, example } in Code::all() {
        page.push_str(&format!("\n## {id}: {title}\n\n{text}\n"));
        if let Some(example) = example {
            page.push_str(&format!("\n```text\n{example}\n```\n"));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_rows_and_printed_codes_agree() {
        for (place, entry) in Code::all().iter().enumerate() {
            assert_eq!(entry.code as usize, place);
            assert_eq!(entry.id.parse(), Ok(entry.code));
            assert_eq!(entry.id.len(), 6, "{}", entry.id);
        }
        assert!(Code::all().is_sorted_by(|a, b| a.id < b.id), "codes are unique and in order");
    }
}
