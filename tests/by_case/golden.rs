//! Expected output in files: `UPDATE_GOLDEN=1` rewrites it, a missing file is created and fails once.

#![allow(dead_code, clippy::unwrap_used, reason = "`cases` and `it` take a part each")]

use std::fs;
use std::path::{Path, PathBuf};

/// The package's folder.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folders of `tests/cases` whose names begin with `prefix`, sorted.
pub fn cases(prefix: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/cases");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    cases.sort();
    cases
}

/// Compares `found` with a committed file; says how to accept it.
pub fn golden(path: &Path, found: &str) -> Result<(), String> {
    let shown = path.strip_prefix(root()).unwrap_or(path).display();
    let expected = fs::read_to_string(path).ok();
    if expected.as_deref() == Some(found) {
        return Ok(());
    }
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    if update || expected.is_none() {
        fs::write(path, found).map_err(|error| format!("cannot write {shown}: {error}"))?;
    }
    match expected {
        _ if update => Ok(()),
        None => Err(format!("{shown} was missing and has been written: look at it and run again")),
        Some(expected) => {
            let diff = similar::TextDiff::from_lines(expected.as_str(), found);
            Err(format!("{shown} is stale (UPDATE_GOLDEN=1 accepts):\n{}", diff.unified_diff()))
        }
    }
}
