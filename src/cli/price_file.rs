//! Files of prices, given with `--prices`.

use std::path::Path;

use model::diag::{Code, Diagnostic};
use model::prices::{BadLine, Prices};

/// Reads a file of prices.
///
/// # Errors
/// It is not there, or a line is not in the format of `schemas/gcp-prices.tsv`.
pub fn load(path: &Path) -> Result<Prices, Diagnostic> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|why| Diagnostic::error(Code::PriceFile, format!("{shown} cannot be read: {why}")))?;
    Prices::parse(&text).map_err(|BadLine { line, why }| {
        let what = format!("{shown}:{line} is not a line of a price file: {why}");
        Diagnostic::error(Code::PriceFile, what).help("docs/costs.md describes the format")
    })
}
